"""What a chat in a terminal looks like: Markdown, calls with their results, changes of files.

Copy with: cli/agent.py, cli/terminal.py, rich.
"""

from __future__ import annotations

import re
from difflib import unified_diff
from typing import Any

from rich.console import Console
from rich.markdown import Heading, Markdown
from rich.panel import Panel
from rich.text import Text

from .. import events
from ..messages import ToolCall
from ..mixins.approval import PLAIN
from .agent import Chat
from .terminal import CYAN, DIM, RED, arguments_of, exact, one_line, safe

Heading.LEVEL_ALIGN = dict.fromkeys(Heading.LEVEL_ALIGN, "left")

FOLDED = 6  # lines of a result that are shown
COLOURS = {"-": "red", "+": "green"}


class Drawn(Chat):
    """A chat that is drawn. `text` and `output` have what is still to come to its end."""

    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self.shell.on_output = self.hear
        self.console = Console(highlight=False)
        self.text = self.output = ""  # of a reply, what is not printed; of what runs, the newest
        self.calls: dict[str, tuple[str, Text | None]] = {}  # that run: a line, what they change
        self.asked = set[str]()  # the calls whose changes were shown before
        self.folded = list[str]()

    def show(self, event: events.Event) -> None:
        """Show what happens in an answer."""
        if not isinstance(event, events.ThinkingDeltaEvent | events.ToolCallDeltaEvent):
            self.output = ""
        match event:
            case events.TextDeltaEvent():
                whole, self.text = whole_blocks(self.text + event.content)
                self.markdown(whole)
            case events.TextEvent():
                self.markdown(self.text or event.content)  # some servers do not stream
                self.text = ""
            case events.ThinkingDeltaEvent() | events.ToolCallDeltaEvent():
                self.hear(event.content)
            case events.ToolCallEvent():
                diff = self.diff(event.tool, event.args)
                line = f"{event.tool} {event.args['path'] if diff else arguments_of(event.args)}"
                self.calls[event.tool_call_id] = line, diff
            case events.ToolResultEvent():
                line, diff = self.calls.pop(event.tool_call_id, (event.tool, None))
                self.terminal.line(f"* {line}", RED if event.is_error else CYAN)
                if event.is_error or not diff:
                    self.fold(event.result)
                elif event.tool_call_id not in self.asked:
                    self.console.print(diff)
            case events.CompactionEvent():
                sizes = f"{event.tokens_before:,} tokens are now {event.tokens_after:,}"
                self.note(f"Summarized: {sizes}.")
                self.markdown(event.summary)
            case _:
                pass

    def hear(self, piece: str) -> None:
        """Take the newest of what a command prints."""
        self.output = self.output[-1000:] + safe(piece)

    def drawn(self, text: str) -> str:
        """Some Markdown as it looks in this terminal."""
        with self.console.capture() as shown:
            self.console.print(Markdown(safe(text), hyperlinks=False))
        return shown.get().strip("\n")

    def markdown(self, text: str) -> None:
        if text.strip():
            print(self.drawn(text), end="\n\n")

    def fold(self, text: str) -> None:
        """Show all of a short result, else how it begins and ends."""
        lines = text.strip("\n").split("\n")
        if len(lines) > FOLDED:
            self.folded.append(text)
            left_out = f"... {len(lines) - FOLDED + 1} lines more: Ctrl-O shows them"
            lines = [*lines[: FOLDED - 4], left_out, *lines[-3:]]
        for line in lines:
            self.terminal.line(f"  {line}", DIM)

    def unfold(self, _: object) -> None:
        if self.folded:
            self.box(self.folded.pop())

    def diff(self, tool: str, args: dict[str, Any]) -> Text | None:
        """How a write or an edit changes its file, in lines with numbers; None for others."""
        if tool not in ("write", "edit"):
            return None
        path, old, new = (str(args.get(name)) for name in ("path", "old_text", "new_text"))
        file = self.root / path
        before = file.read_text("utf-8", "replace") if file.is_file() else ""
        after = str(args["content"]) if tool == "write" else before.replace(old, new)
        number, shown = 0, Text()
        lines = unified_diff(before.splitlines(), after.splitlines(), n=2, lineterm="")
        for line in [*lines][2:]:
            if start := re.match(r"@@ .*\+(\d+)", line):
                number = int(start[1])
            else:
                shown.append(f"{number:5} {exact(line)}\n", COLOURS.get(line[0], "dim"))
                number += line[0] != "-"
        shown.rstrip()
        return shown

    def draw_question(self, call: ToolCall) -> tuple[str, list[str], dict[str, str] | None]:
        """Show all that the user decides on, and return what "always" would allow.

        That is what to call it, the tools, and the pattern for their arguments.
        """
        args, name = call.parsed or {}, call.name
        self.asked.add(call.id)
        diff = self.diff(name, args)
        if diff:
            self.box(diff, f"{name} {args['path']}")
            return "each edit", ["write", "edit"], None
        if name != "bash":
            self.box("\n".join(f"{key}: {args[key]}" for key in args), name)
            return f"each {name}", [name], None
        command = str(args["command"])
        self.box(command, f"bash in {self.shell.cwd}")
        program, _, more = command.partition(" ")
        is_plain = bool(more) and PLAIN.fullmatch(command)
        what = f"{program} *" if is_plain else "this command"
        return exact(what), [name], {"command": what if is_plain else command}

    def box(self, shown: str | Text, title: str = "") -> None:
        text = Text(exact(shown)) if isinstance(shown, str) else shown
        self.console.print(Panel(text, title=Text(one_line(title)), title_align="left"))


def whole_blocks(text: str) -> tuple[str, str]:
    """The blocks of some Markdown that are complete, and the one that is not."""
    at, in_code = 0, False
    for match in re.finditer(r"^ *(```|~~~)|\n\n(?=\S)", text, re.MULTILINE):
        if match[1]:
            in_code = not in_code
        elif not in_code:
            at = match.end()
    return text[:at], text[at:]
