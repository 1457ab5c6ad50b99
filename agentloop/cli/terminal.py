"""What a terminal is sent and what it is asked: text made safe, lines cut to its width, questions.

Copy with: nothing else.

Text of a model, a tool, a file or a server can hold sequences that move the cursor, set the
clipboard, or show a command in another order than it has. So nothing is printed but through here.
"""

from __future__ import annotations

import logging
import os
import re
import sys
import textwrap
import unicodedata
from collections.abc import Iterator
from contextlib import suppress
from typing import TextIO

UNSAFE = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f"  # controls (C0, DEL, C1), but for tab and line end
    r"\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"  # turns the direction of text
    r"\u00ad\u034f\u115f\u1160\u180b-\u180f\u200b\u2060-\u2065\u206a-\u206f\u3164\ufeff\uffa0"
    r"\ufff9-\ufffb\U000e0000-\U000e0fff"  # as the line before: nothing to be seen
    r"\u2028\u2029\ud800-\udfff]"  # other line ends; halves of characters
)
JOINERS = re.compile("[\u200c\u200d]")  # Persian, Hindi and emoji need them; in a command they hide

DIM, BOLD, RED, GREEN, CYAN = "2", "1", "31", "32", "36"


def safe(text: str) -> str:
    """The text with everything that a terminal would obey, or not show, spelled out: \\x1b."""
    return UNSAFE.sub(_spelled_out, text.replace("\r\n", "\n"))


def exact(text: str) -> str:
    """As `safe`, and no invisible character at all: for what somebody is to decide on."""
    return JOINERS.sub(_spelled_out, UNSAFE.sub(_spelled_out, text))


def one_line(text: str) -> str:
    """As `safe`, in one line."""
    return safe(text).replace("\t", " ").replace("\n", "\\n")


def _spelled_out(match: re.Match[str]) -> str:
    return match[0].encode("unicode_escape").decode()


def columns(text: str) -> int:
    """How many columns of a terminal a line of safe text takes."""
    return sum(map(_width, text))


def _width(character: str) -> int:
    if character < "\u0300":
        return 1
    if unicodedata.category(character) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def pieces(line: str, width: int) -> Iterator[str]:
    """The line in pieces of `width` columns at most."""
    piece, used = "", 0
    for character in line:
        if piece and used + _width(character) > width:
            yield piece
            piece, used = "", 0
        piece, used = piece + character, used + _width(character)
    yield piece


def cut(line: str, width: int) -> str:
    """The line, its end replaced by "..." if it is longer than `width` columns."""
    if columns(line) <= width:
        return line
    return next(pieces(line, max(1, width - 3))) + "..."


def reason(error: BaseException) -> str:
    """What went wrong, without an error number."""
    if isinstance(error, OSError) and error.strerror:
        return f"{error.strerror}: {error.filename}"
    return str(error)


class Terminal:
    """A stream to somebody's screen. `asks`: whether they can be asked something."""

    def __init__(self, stream: TextIO) -> None:
        self.stream = stream
        self.asks = bool(sys.stdin and sys.stdin.isatty() and stream.isatty())
        plain = os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
        old_console = sys.platform == "win32" and "WT_SESSION" not in os.environ
        self.colour = stream.isatty() and not plain and not old_console
        self.moves = stream.isatty() and os.environ.get("TERM") != "dumb" and not old_console
        self._column_0 = True
        self._status = ""

    @property
    def width(self) -> int:
        """The columns that a line may take, at this moment."""
        with suppress(OSError, ValueError):
            return max(20, os.get_terminal_size(self.stream.fileno()).columns - 1)
        return 100

    def text(self, text: str, style: str = "") -> None:
        """The next piece of running text."""
        self._write(safe(text), style)

    def say(self, text: str, style: str = "") -> None:
        """A line of its own, of any length; on a screen it is broken at spaces."""
        self.end_line()
        wrap = textwrap.TextWrapper(self.width, break_long_words=False, break_on_hyphens=False)
        fill = wrap.fill if self.stream.isatty() else str
        self._write("\n".join(map(fill, safe(text).split("\n"))) + "\n", style)

    def line(self, text: str, style: str = "") -> None:
        """A line of its own, cut to the width of the screen."""
        self.end_line()
        self._write(cut(one_line(text), self.width) + "\n", style)

    def block(self, text: str, mark: str, style: str = "") -> None:
        """All of a text, with a mark before each line on the screen, so that none can pose as
        something else."""
        self.end_line()
        for line in exact(text).expandtabs(4).split("\n"):
            for piece in pieces(line, self.width - len(mark)):
                self._write(f"{mark}{piece}\n", style)

    def ask(self, question: str) -> str:
        """The answer, in lower case; "" at the end of input. What was typed before is dropped."""
        self.end_line()
        _drop_input()
        self._write(safe(question), BOLD)
        self._column_0 = True
        answer = sys.stdin.readline()
        if not answer.endswith("\n"):
            self._write("\n")
        return answer.strip().lower()

    def status(self, text: str) -> None:
        """A line that stands until something else is written, or another status; "" takes it away.

        Nothing on what is no screen, and in the middle of a line.
        """
        if self.moves and self._column_0 and text != self._status:
            self._erase()
            self._status = cut(one_line(text), self.width)
            self.stream.write(
                f"\x1b[{DIM}m{self._status}\x1b[0m" if text and self.colour else self._status
            )
            self.stream.flush()

    def _erase(self) -> None:
        if self._status:
            self.stream.write("\r\x1b[K")
            self._status = ""

    def end_line(self) -> None:
        if not self._column_0:
            self._write("\n")

    def _write(self, text: str, style: str = "") -> None:
        """The only way out: `text` is safe, and `style` is ours."""
        if not text:
            return
        self._column_0 = text.endswith("\n")
        if style and self.colour and (body := text.rstrip("\n")):
            text = f"\x1b[{style}m{body}\x1b[0m{text[len(body) :]}"
        self._erase()
        self.stream.write(text)
        self.stream.flush()


def _drop_input() -> None:
    """Forget what was typed ahead, which cannot have been an answer to what comes now."""
    if sys.platform == "win32":
        import msvcrt

        while msvcrt.kbhit():
            msvcrt.getwch()
    else:
        import termios

        with suppress(termios.error, OSError, ValueError):
            termios.tcflush(sys.stdin.fileno(), termios.TCIFLUSH)


class Log(logging.Handler):
    """Shows warnings, and that a request to the model is tried again."""

    def __init__(self, terminal: Terminal) -> None:
        super().__init__()
        self.terminal = terminal

    def emit(self, record: logging.LogRecord) -> None:
        retries = record.name == "agentloop" and record.module == "http"
        if retries or record.levelno >= logging.WARNING:
            self.terminal.line(f"({record.getMessage()})", DIM)
