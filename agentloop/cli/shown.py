"""What a run looks like in a terminal, event by event; and as lines of JSON.

Copy with: cli/terminal.py and the core.
"""

from __future__ import annotations

import json
import re
from dataclasses import fields
from typing import Any

from pydantic_core import from_json, to_json

from .. import events
from .terminal import CYAN, DIM, RED, Terminal, cut, one_line


class Shown:
    """Shows events as they come. `text`: whether the model's text is shown too."""

    def __init__(self, terminal: Terminal, *, text: bool = True) -> None:
        self.terminal, self.with_text = terminal, text
        self._streamed = False  # whether the present reply's text has been shown
        self._open: dict[str, str] = {}  # the calls without a result: what to call each
        self._side_by_side = False

    def __call__(self, event: events.Event) -> None:
        match event:
            case events.TextDeltaEvent(content=piece):
                if not self._streamed:
                    self.terminal.end_line()  # of the thinking before it
                self._streamed = True
                self._text(piece)
            case events.TextEvent(content=text):
                if not self._streamed:  # some servers do not stream
                    self._text(text)
                self._streamed = False
                self.terminal.end_line()
            case events.ThinkingDeltaEvent(content=piece):
                if self.terminal.colour:  # else one could not tell it from the answer
                    self.terminal.text(piece, DIM)
            case events.ThinkingEvent():
                self.terminal.end_line()
            case events.ToolCallEvent(tool=tool, args=args, tool_call_id=call_id):
                self._streamed = False
                line = f"{tool} {arguments_of(args)}"
                self.terminal.line(f"* {line}", CYAN)
                self._open[call_id] = cut(one_line(line), 40)
                self._side_by_side |= len(self._open) > 1
            case events.ToolResultEvent(tool=tool, result=result, tool_call_id=call_id):
                name = self._open.pop(call_id, tool)
                which = f"{name}: " * self._side_by_side  # these come in any order
                self._side_by_side &= bool(self._open)
                style = RED if event.is_error else DIM
                self.terminal.line(f"  {which}{outline(tool, result)}", style)
            case events.CompactionEvent(tokens_before=before, tokens_after=after):
                self.terminal.say(f"(Summarized: {before:,} tokens are now {after:,}.)", DIM)
            case _:
                pass

    def begin(self) -> None:
        """Forget what a run that was stopped has left open."""
        self._streamed = self._side_by_side = False
        self._open.clear()

    def _text(self, text: str) -> None:
        if self.with_text:
            self.terminal.text(text)


def json_line(event: events.Event) -> str:
    """An event as one line: its name as `type` (ToolCallEvent is "tool_call"), and its fields."""
    name = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", type(event).__name__.removesuffix("Event")).lower()
    values = {field.name: getattr(event, field.name) for field in fields(event)}
    data = to_json({"type": name} | values, bytes_mode="base64", inf_nan_mode="strings")
    return json.dumps(from_json(data))  # ASCII: a terminal obeys nothing of it


def arguments_of(args: dict[str, Any]) -> str:
    """Arguments in a line: the one that matters most without its name."""
    first = next((name for name in ("command", "path", "pattern") if name in args), None)
    words = [str(args[first])] if first else []
    rest = {name: value for name, value in args.items() if name != first}
    return " ".join([*words, *(f"{name}={as_json(value)}" for name, value in rest.items())])


def outline(tool: str, result: str) -> str:
    """A result in a line: of a command's output the end, of everything else the beginning."""
    lines = [line.strip() for line in result.split("\n") if line.strip()]
    if len(lines) < 2:
        return "".join(lines) or "(nothing)"
    if tool == "bash":
        return f"{len(lines)} lines, the last: {'  '.join(lines[-2:])}"
    return f"{len(lines)} lines, the first: {lines[0]}"


def as_json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
