"""The sessions of a folder: as what a chat there is kept, and a list of those that were."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator
from hashlib import sha256
from itertools import count
from pathlib import Path
from typing import NamedTuple

from ..messages import AssistantMessage, UserMessage
from ..saved import SESSION_DIR, load_log, one_line
from ..store import FileStore
from .terminal import Terminal


class Kept(NamedTuple):
    """A session of a folder: its name, when it was written to, its turns and its first words."""

    name: str
    modified: float
    turns: int
    title: str


def stem(folder: Path) -> str:
    """How the names of a folder's sessions begin: its name, and a hash of where it is."""
    where = os.path.normcase(folder.resolve())
    name = re.sub("[^A-Za-z0-9]+", "-", folder.resolve().name)[:20].strip("-") or "folder"
    return f"{name}-{sha256(where.encode()).hexdigest()[:6]}"


def free_names(folder: Path, session_dir: str | Path = SESSION_DIR) -> Iterator[str]:
    """Names for a new session of the folder, numbered on from the last."""
    numbers = (int(name.rpartition("-")[2]) for name in _names(folder, session_dir))
    return (f"{stem(folder)}-{n}" for n in count(max(numbers, default=0) + 1))


def begin(folder: Path, session_dir: str | Path = SESSION_DIR) -> str:
    """The name of a new session of the folder, whose file is there from now on. OSError."""
    for name in free_names(folder, session_dir):
        try:
            FileStore(session_dir).create(name, []).close()
            return name
        except FileExistsError:  # another chat in this folder has just begun
            continue
    raise AssertionError("there is always one more number")


def kept(folder: Path, session_dir: str | Path = SESSION_DIR) -> list[Kept]:
    """The folder's sessions in which something was said, newest first."""
    store, found = FileStore(session_dir), list[Kept]()
    for name, modified in _names(folder, session_dir).items():
        try:
            log = load_log(store.read(name))
        except (OSError, ValueError) as error:
            found.append(Kept(name, modified, 0, str(error)))
            continue
        turns = sum(isinstance(record, AssistantMessage) for record in log)
        said = (r.text for r in log if isinstance(r, UserMessage) and not r.hidden)
        if log:
            found.append(Kept(name, modified, turns, one_line(next(said, ""))))
    return sorted(found, key=lambda each: -each.modified)


def show(folder: Path, terminal: Terminal) -> None:
    """Lists the folder's sessions."""
    if not (found := kept(folder)):
        terminal.say(f"(No session of {folder} is kept.)")
    for each in found:
        when = time.strftime("%Y-%m-%d %H:%M", time.localtime(each.modified))
        turns = f"{each.turns} turn{'s' * (each.turns != 1)}"
        terminal.line(f"{each.name}  {when}  {turns:>9}  {each.title}")


def _names(folder: Path, session_dir: str | Path) -> dict[str, float]:
    """The sessions of the folder, and when each was written to."""
    name = re.compile(re.escape(stem(folder)) + r"-\d{1,9}")
    listed = FileStore(session_dir).list()
    return {each.name: each.modified for each in listed if name.fullmatch(each.name)}
