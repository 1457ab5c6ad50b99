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
from ..store import SESSION_DIR, SessionFile, read_log, session_path
from .terminal import Terminal, cut


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
    numbers = (int(path.stem.rpartition("-")[2]) for path in _paths(folder, session_dir))
    return (f"{stem(folder)}-{n}" for n in count(max(numbers, default=0) + 1))


def begin(folder: Path, session_dir: str | Path = SESSION_DIR) -> str:
    """The name of a new session of the folder, whose file is there from now on. OSError."""
    for name in free_names(folder, session_dir):
        try:
            SessionFile(session_path(name, session_dir), new=True).close()
            return name
        except FileExistsError:  # another chat in this folder has just begun
            continue
    raise AssertionError("there is always one more number")


def kept(folder: Path | None, session_dir: str | Path = SESSION_DIR) -> list[Kept]:
    """The folder's sessions in which something was said, newest first; None: those of no folder."""
    found = list[Kept]()
    for path in _paths(folder, session_dir):
        name, modified = path.stem, path.stat().st_mtime
        try:
            log = read_log(path)
        except (OSError, ValueError) as error:
            found.append(Kept(name, modified, 0, str(error)))
            continue
        turns = sum(isinstance(record, AssistantMessage) for record in log)
        said = (r.text for r in log if isinstance(r, UserMessage) and not r.hidden)
        if log:
            found.append(Kept(name, modified, turns, cut(" ".join(next(said, "").split()), 60)))
    return sorted(found, key=lambda each: -each.modified)


def show(folder: Path, terminal: Terminal) -> None:
    """Lists the folder's sessions, and those that were named."""
    found, named = kept(folder), kept(None)
    if not found:
        terminal.say(f"(No session of {folder} is kept.)")
    for each in [*found, *named]:
        if named and each is named[0]:
            terminal.say("With a name, from any folder:")
        when = time.strftime("%Y-%m-%d %H:%M", time.localtime(each.modified))
        turns = f"{each.turns} turn{'s' * (each.turns != 1)}"
        terminal.line(f"{each.name}  {when}  {turns:>9}  {each.title}")


def _paths(folder: Path | None, session_dir: str | Path) -> list[Path]:
    """The sessions of the folder, or of none."""
    start = re.escape(stem(folder)) if folder else ".+-[0-9a-f]{6}"
    is_folders = re.compile(start + r"-\d{1,9}").fullmatch
    return [
        path
        for path in Path(session_dir).expanduser().glob("*.jsonl")
        if bool(is_folders(path.stem)) == bool(folder)
    ]
