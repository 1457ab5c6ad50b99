"""Writes to a terminal: text whose control characters are escaped, and events as plain lines.

Text from a model, a tool, a file or a server may contain control sequences that move the cursor,
set the clipboard, or change the order in which you see the characters of a command. So `safe`
escapes all text before it's printed.
"""

from __future__ import annotations

import os
import re
import shutil
from textwrap import fill
from typing import TextIO
from unicodedata import east_asian_width

from .. import events
from ..messages import JSON

UNSAFE = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f"  # control characters (C0, DEL, C1) except tab and newline
    r"\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"  # characters that change the text direction
    r"\u00ad\u034f\u115f\u1160\u180b-\u180f\u200b\u2060-\u2065\u206a-\u206f\u3164\ufeff\uffa0"
    r"\ufff9-\ufffb\U000e0000-\U000e0fff"  # invisible characters, as in the previous line
    r"\u2028\u2029\ud800-\udfff\ufffe\uffff]"  # Unicode line separators; surrogates; noncharacters
)
JOINERS = re.compile("[\u200c\u200d]")  # invisible, but required by Persian, Hindi and emoji

# Components of error messages: a broken stream, the class of the model, a server's JSON or HTML
BROKEN = re.compile(
    r"\d+: text/event-stream.*?: \w+\(['\"](.*?)['\"]\):.*|\S+: RemoteProtocolError: ([^(]*\w).*"
)
SENDER = re.compile(r"\w+\('.*?'\): ")
BODY = re.compile(
    r'\[?[{<].*?(?:"(?:message|error|detail)": *"((?:\\.|[^"\\])*)|<title>([^<]*)).*', re.DOTALL
)

DIM, BOLD, RED, CYAN = "2", "1", "31", "36"


def safe(text: str) -> str:
    """Escape control characters and invisible ones: the escape character becomes \\x1b."""
    return UNSAFE.sub(_spelled_out, text.replace("\r\n", "\n"))


def exact(text: str) -> str:
    """Escape text as `safe` does, and joiners, too: for what the user must approve."""
    return JOINERS.sub(_spelled_out, safe(text))


def one_line(text: str) -> str:
    """Escape text as `safe` does, and put all of it on one line."""
    return safe(text).replace("\t", " ").replace("\n", "\\n")


def _spelled_out(match: re.Match[str]) -> str:
    return match[0].encode("unicode_escape").decode()


def cut(line: str, width: int) -> str:
    """Cut a line off at `width` columns, with "..." at the end."""
    if columns_of(line) <= width:
        return line
    line = line[: width - 3]
    while columns_of(line) > width - 3:
        line = line[:-1]
    return line + "..."


def columns_of(line: str) -> int:
    """How many columns a line takes: a wide character, such as a Chinese one, takes two."""
    return len(line) + sum(east_asian_width(each) in "WF" for each in line)


def wrap(line: str, width: int, indent: int = 0) -> str:
    """Break a line between words. A longer word, such as a URL, is left to the terminal."""
    if len(line) < width:
        return line
    return fill(
        line,
        width - 1,
        subsequent_indent=" " * indent,
        break_long_words=False,
        break_on_hyphens=False,
    )


def plain(error: object) -> str:
    """Reduce a provider's error to what it says, in one line.

    'ChatOpenAI("m"): 400: {"error": {"message": "Too long."}}' -> "400: Too long."
    """
    text = " ".join(str(error).split())
    text = BROKEN.sub(r"the answer was interrupted: \1\2", text)
    text = SENDER.sub("", text)
    return BODY.sub(r"\1\2", text).replace(r"\"", '"')


def arguments_of(args: JSON) -> str:
    """The arguments of a call in one line; of bash, only the command."""
    return one_line(str(args.get("command") or " ".join(map(str, args.values()))))


def outline(result: str) -> str:
    """The last two lines of a result in one line, after the number of its lines."""
    lines = [line.strip() for line in result.split("\n") if line.strip()]
    if len(lines) > 2:
        lines[:-2] = [f"[{len(lines)} lines]"]
    return "  ".join(lines)


class Terminal:
    """Writes escaped text to a stream. If that's a terminal, in colour and with whole words."""

    def __init__(self, stream: TextIO) -> None:
        self.stream: TextIO | None = stream
        is_plain = os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
        self.is_screen = stream.isatty()
        self.colour = self.is_screen and not is_plain

    @property
    def width(self) -> int:
        """The number of columns, at least 4: "..." and a character."""
        return max(shutil.get_terminal_size((100, 0)).columns, 4)

    def say(self, text: str, style: str = "", indent: int = 0) -> None:
        """Print escaped lines of any length. Everything is printed here.

        indent: how many columns the rows of a wrapped line begin with, after the first.
        """
        text = safe(text)
        if self.is_screen:
            text = "\n".join(wrap(line, self.width, indent) for line in text.split("\n"))
        if style and self.colour:
            text = f"\x1b[{style}m{text}\x1b[0m"
        print(text, file=self.stream, flush=True)

    def line(self, text: str, style: str = "") -> None:
        """Print one line, cut off at the width of the terminal."""
        self.say(cut(one_line(text), self.width - 1), style)

    def show(self, event: events.Event) -> None:
        """Print the event of a text, a call or a result as plain lines."""
        match event:
            case events.TextEvent():
                self.say(event.content)
            case events.ToolCallEvent():
                mark = "  *" if event.parent_id else "*"  # called by another tool
                self.line(f"{mark} {event.tool} {arguments_of(event.args)}", CYAN)
            case events.ToolResultEvent():
                self.line(f"  {outline(event.result)}", RED if event.is_error else DIM)
            case _:
                pass
