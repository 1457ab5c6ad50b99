"""Erases the prompt and the live area, but no row above them, after a terminal has wrapped rows."""

import os
from time import sleep

from prompt_toolkit.application import Application
from prompt_toolkit.layout import Layout
from prompt_toolkit.renderer import Renderer

WRAPS = 20  # maximum number of times that a narrower terminal wraps a row
RESIZE_PAUSE = 0.3  # seconds without a change that end a series of resizes; tmux reports after 0.25


class RowRenderer(Renderer):
    """A renderer that erases wrapped rows, and never switches off the marks around pastes.

    prompt_toolkit switches the marks off whenever it prints, which would split pastes into lines.
    """

    def __init__(self, app: Application[str]) -> None:
        self.app = app
        self.width = app.output.get_size().columns
        super().__init__(
            app.renderer.style,
            app.output,
            cpr_not_supported_callback=app.renderer.cpr_not_supported_callback,
        )

    def reset(self, _scroll: bool = False, leave_alternate_screen: bool = True) -> None:
        super().reset(_scroll, leave_alternate_screen)
        self.output.enable_bracketed_paste()
        self.output.flush()

    def render(self, app: Application[str], layout: Layout, is_done: bool = False) -> None:
        """Draw, but nothing while the terminal is being resized."""
        while (width := self.output.get_size().columns) != self.width:
            self.erase()
            self.width = width
            sleep(RESIZE_PAUSE)
        super().render(app, layout, is_done)

    def erase(self, leave_alternate_screen: bool = True) -> None:
        """Erase what was drawn. If a terminal other than tmux has wrapped rows, the first ones stay.

        A terminal may wrap rows before it reports its width, so a count of wrapped rows could
        include printed ones. In tmux, a backspace at the start of a row goes to the row before if
        both were drawn as one, and otherwise does nothing.
        """
        drawn, output = self.last_rendered_screen, self.output
        if drawn and "TMUX" in os.environ:
            rows = drawn.get_cursor_position(self.app.layout.current_window).y
            start = "\r\b" * WRAPS + "\r"
            output.write_raw(start + f"\x1b[A{start}" * rows)
            output.erase_end_of_line()
            output.cursor_forward(1)  # if all rows go at once, tmux keeps them
            output.erase_down()
            output.write_raw("\r")
            output.cursor_down(rows)
        super().erase(leave_alternate_screen)
