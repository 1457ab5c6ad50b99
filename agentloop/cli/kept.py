"""The sessions of a folder, and what is said of them."""

from __future__ import annotations

import re
from contextlib import suppress
from datetime import datetime
from hashlib import sha256
from itertools import count
from pathlib import Path

from .. import sessions
from ..common.store import read_log, session_path
from ..mixins.session import SessionInfo
from ..transcript import Conversation, is_own
from .terminal import one_line


def is_cut_off(conversation: Conversation) -> bool:
    """Return True if the newest run failed, or was killed."""
    return conversation.stop_reason in ("", "error", "cancelled")


def stem(folder: Path) -> str:
    """Return how the names of a folder's sessions begin: its name, and a hash of its path."""
    name = re.sub("[^A-Za-z0-9]+", "-", folder.name)[:20].strip("-") or "folder"
    return f"{name}-{sha256(str(folder).encode()).hexdigest()[:6]}"


def free_name(folder: Path) -> str:
    """Return a name for a new session of the folder."""
    names = (f"{stem(folder)}-{number}" for number in count(1))
    return next(name for name in names if not session_path(name).exists())


def sessions_of(folder: Path) -> list[SessionInfo]:
    """List the folder's sessions in which something was said, newest first."""
    return [each for each in sessions(names=f"{stem(folder)}-*") if each.title]


def described(session: SessionInfo) -> str:
    """Return a line for a list of sessions: its newest prompt, and the first.

    The newest tells a fork from its origin. It comes first, as a narrow screen cuts the end off.
    """
    when = datetime.fromtimestamp(session.modified)
    title = session.title
    with suppress(OSError, ValueError):  # the title says what is wrong with the file
        prompts = [each.text for each in read_log(session_path(session.name)) if is_own(each)]
        if prompts[1:]:
            title = f"{one_line(prompts[-1])[:28]} (began: {title[:28]})"
    return f"{session.name}  {when:%Y-%m-%d %H:%M}  {title}"
