"""Reads what a store has saved: one session as a log, or all of them as a list.

Copy with: messages.py, transcript.py, store.py.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from .messages import Record, Reset, Summary, Unknown, Usage, UserMessage, load_record
from .store import FileStore, SessionStore
from .transcript import usage_of, view

logger = logging.getLogger("agentloop")

SESSION_DIR = "~/.agentloop/sessions"
TITLE_LENGTH = 60


def read_log(path: str | Path) -> list[Record]:
    """The log that a session file holds. ValueError: it is no session file."""
    lines = Path(path).read_bytes().splitlines()
    first = load_line(1, lines[0] if lines else b"")
    kind = first.data.get("type") if isinstance(first, Unknown) else "record"
    if kind == "recording":
        raise ValueError(f"{path} is no session: it is a recording of requests")
    if kind == "unreadable":
        raise ValueError(f"{path} is no session: its first line is not one of a session")
    header = 1 if kind == "session" else 0
    return load_log(enumerate(lines[header:], header + 1))


def load_log(lines: Iterable[tuple[int, bytes]]) -> list[Record]:
    """The log that some numbered lines hold: what follows the last Reset.

    A line that cannot be read still takes its place, so that `Summary.keep` counts on.
    """
    log: list[Record] = []
    for number, line in lines:
        record = load_line(number, line)
        if isinstance(record, Unknown) and record.data.get("type") == "unreadable":
            logger.warning("line %d of the session: %s", number, record.data.get("error"))
        elif isinstance(record, Reset):
            log.clear()
        elif isinstance(record, Summary) and record.keep > len(log):
            record = replace(record, keep=len(log))
        log.append(record)
    return log


def load_line(number: int, line: bytes) -> Record:
    """The record of one line, an Unknown of type "unreadable" if it holds none."""
    try:
        record = load_record(line)
        if not isinstance(record, Record):
            raise ValueError(f"a {type(record).__name__} is no record of a log")
        if not isinstance(getattr(record, "extra", None), Mapping | None):
            raise ValueError(f"its extra is {getattr(record, 'extra', None)!r:.40}")
        view([record])  # fields of a wrong type would fail here and below, then in every run
        usage_of([record])
        return record
    except (ValueError, TypeError, AttributeError) as error:
        why = f"it cannot be read ({error})"
        return Unknown({"type": "unreadable", "line": number, "error": why})


@dataclass(frozen=True)
class SessionInfo:
    """A session in a list. `cost` is what the `price` function made of its tokens."""

    name: str
    title: str
    modified: float
    size: int
    usage: Usage
    cost: float | None = None


def sessions(
    session_dir: str | Path = SESSION_DIR,
    *,
    store: SessionStore | None = None,
    price: Callable[[Usage], float] | None = None,
) -> list[SessionInfo]:
    """The sessions there are, newest first. Titles are first tasks, usage is all tokens ever used.

    One that cannot be read has the reason as its title.
    """
    found: list[SessionInfo] = []
    store = store or FileStore(session_dir)
    for name, modified, size in store.list():
        title, usage = "", Usage()
        try:
            for number, line in store.read(name):
                record = load_line(number, line)
                if isinstance(record, Reset):
                    title = ""
                elif isinstance(record, UserMessage) and not (title or record.hidden):
                    title = one_line(record.text)
                usage += usage_of([record])
        except (OSError, ValueError) as error:
            title = str(error)
        cost = price(usage) if price else None
        found.append(SessionInfo(name, title, modified, size, usage, cost))
    return sorted(found, key=lambda info: (-info.modified, info.name))


def one_line(text: str) -> str:
    """The beginning of a text, in one line."""
    line = " ".join(text.split())
    return line if len(line) <= TITLE_LENGTH else line[: TITLE_LENGTH - 1].rstrip() + "…"
