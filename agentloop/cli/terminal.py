"""What a terminal is sent: text made safe, and the events of a run as plain lines.

Text of a model, a tool, a file or a server can hold sequences that move the cursor, set the
clipboard, or show a command in another order than it has. So all text goes through `safe` before it
is shown.
"""

from __future__ import annotations

import json
import logging
import os
import re
import shutil
from dataclasses import asdict
from textwrap import fill
from typing import TextIO

from .. import events
from ..messages import JSON

UNSAFE = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f"  # controls (C0, DEL, C1) except tab and line end
    r"\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"  # these turn the direction of text
    r"\u00ad\u034f\u115f\u1160\u180b-\u180f\u200b\u2060-\u2065\u206a-\u206f\u3164\ufeff\uffa0"
    r"\ufff9-\ufffb\U000e0000-\U000e0fff"  # as on the line before: invisible characters
    r"\u2028\u2029\ud800-\udfff]"  # other line ends; halves of characters
)
JOINERS = re.compile("[\u200c\u200d]")  # Persian, Hindi and emoji need these invisible characters

# In the text of an error: what broke, the class that raised it, a server's JSON or HTML
BROKEN = re.compile(
    r"\d+: text/event-stream.*?: \w+\(['\"](.*?)['\"]\):.*|\S+: RemoteProtocolError: ([^(]*\w).*"
)
SENDER = re.compile(r"\w+\('.*?'\): ")
BODY = re.compile(
    r'\[?[{<].*?(?:"(?:message|error|detail)": *"((?:\\.|[^"\\])*)|<title>([^<]*)).*', re.DOTALL
)

DIM, BOLD, RED, CYAN = "2", "1", "31", "36"


def safe(text: str) -> str:
    """Spell out what a terminal would obey or not show: the escape character becomes \\x1b."""
    return UNSAFE.sub(_spelled_out, text.replace("\r\n", "\n"))


def exact(text: str) -> str:
    """Do as `safe`, and spell out joiners too: for text that somebody decides on."""
    return JOINERS.sub(_spelled_out, safe(text))


def one_line(text: str) -> str:
    """Do as `safe`, and put all into one line."""
    return safe(text).replace("\t", " ").replace("\n", "\\n")


def _spelled_out(match: re.Match[str]) -> str:
    return match[0].encode("unicode_escape").decode()


def cut(line: str, width: int) -> str:
    """Replace the end of a line that is longer than `width` characters by "..."."""
    return line if len(line) <= width else line[: width - 3] + "..."


def plain(error: object) -> str:
    """Return the words of a provider's error, in one line.

    'ChatOpenAI("m"): 400: {"error": {"message": "Too long."}}' -> "400: Too long."
    """
    text = " ".join(str(error).split())
    text = BROKEN.sub(r"the answer was cut off: \1\2", text)
    text = SENDER.sub("", text)
    return BODY.sub(r"\1\2", text).replace(r"\"", '"')


def arguments_of(args: JSON) -> str:
    """Return the arguments of a call in one line, without their names; of bash, the command."""
    return one_line(str(args.get("command") or " ".join(map(str, args.values()))))


def outline(result: str) -> str:
    """Return the end of a result in one line, and how many lines it has."""
    lines = [line.strip() for line in result.split("\n") if line.strip()]
    if len(lines) > 2:
        lines[:-2] = [f"[{len(lines)} lines]"]
    return "  ".join(lines)


class Terminal:
    """Text that is written to a stream, in colour if that is a screen."""

    def __init__(self, stream: TextIO) -> None:
        self.stream: TextIO | None = stream
        is_plain = os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
        self.colour = stream.isatty() and not is_plain

    @property
    def width(self) -> int:
        return shutil.get_terminal_size((100, 0)).columns

    def say(self, text: str, style: str = "") -> None:
        """Print lines of any length. All output goes through here: `safe` text, our own style."""
        text = safe(text)
        if style and self.colour:
            text = "\n".join(fill(line, self.width - 1) for line in text.split("\n"))
            text = f"\x1b[{style}m{text}\x1b[0m"
        print(text, file=self.stream, flush=True)

    def line(self, text: str, style: str = "") -> None:
        """Print one line, cut to the width of the screen."""
        self.say(cut(one_line(text), self.width - 1), style)


class Log(logging.Handler):
    """A log on the terminal: of warnings, and of requests to the model that are tried again."""

    def __init__(self, terminal: Terminal) -> None:
        super().__init__()
        self.terminal = terminal

    def emit(self, record: logging.LogRecord) -> None:
        if record.module == "http" or record.levelno >= logging.WARNING:
            self.terminal.say(f"({plain(record.getMessage())})", DIM)


class Shown:
    """Events as plain lines. `says=False` hides the model's own text."""

    def __init__(self, terminal: Terminal) -> None:
        self.terminal = terminal
        self.says = True

    def __call__(self, event: events.Event) -> None:
        """Print an event."""
        match event:
            case events.TextEvent() if self.says:
                self.terminal.say(event.content)
            case events.ToolCallEvent():
                self.terminal.line(f"* {event.tool} {arguments_of(event.args)}", CYAN)
            case events.ToolResultEvent():
                self.terminal.line(f"  {outline(event.result)}", RED if event.is_error else DIM)
            case _:
                pass


def print_json(event: events.Event) -> None:
    """Print an event as a line of JSON: the name of its class as "type", and its fields."""
    fields = {"type": type(event).__name__} | asdict(event)
    print(json.dumps(fields, default=str), flush=True)
