"""Erases the prompt and the live area if a terminal got narrower and has wrapped their rows."""

import os
from time import sleep

from prompt_toolkit.application import Application
from prompt_toolkit.renderer import Renderer

# Variables set by terminals that truncate rows when they become narrower, instead of wrapping rows
TRUNCATING = ("XTERM_VERSION", "STY")
RESIZE_PAUSE = 0.3  # seconds without a change that end a series of resizes; tmux reports after 0.25


class RowRenderer(Renderer):
    """A renderer that erases wrapped rows, and never switches off the marks around pastes.

    prompt_toolkit switches the marks off whenever it prints, which would split pastes into lines.
    """

    def __init__(self, app: Application[str]) -> None:
        self.app = app
        self.width = app.output.get_size().columns  # of the drawn rows
        super().__init__(
            app.renderer.style,
            app.output,
            cpr_not_supported_callback=app.renderer.cpr_not_supported_callback,
        )

    def reset(self, _scroll: bool = False, leave_alternate_screen: bool = True) -> None:
        super().reset(_scroll, leave_alternate_screen)
        self.output.enable_bracketed_paste()
        self.output.flush()

    def erase(self, leave_alternate_screen: bool = True) -> None:
        """Erase row by row: if all go at once, tmux keeps them."""
        drawn, output = self.last_rendered_screen, self.output
        if drawn and not any(map(os.environ.get, TRUNCATING)):
            # the terminal would process the next change before the output for the current width
            while (width := output.get_size().columns) != self.width:
                self.width = width
                sleep(RESIZE_PAUSE)
            cursor = drawn.get_cursor_position(self.app.layout.current_window)
            rows = cursor.x // width
            for row in [drawn.data_buffer[y] for y in range(cursor.y)]:
                used = (x for x in row if row[x].char != " " or "bg:" in row[x].style)
                rows += max(used, default=0) // width + 1
            output.write_raw("\r")
            for _ in range(rows):
                output.erase_end_of_line()
                output.cursor_up(1)
            output.cursor_down(cursor.y)
        super().erase(leave_alternate_screen)
