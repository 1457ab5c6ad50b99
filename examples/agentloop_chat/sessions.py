"""The sessions of a directory, and how lists describe them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import datetime
from hashlib import sha256
from itertools import count
from pathlib import Path

from agentloop import Agent, list_sessions, session_path
from agentloop.mixins.session import SessionInfo


def is_cut_off(agent: Agent) -> bool:
    """Whether the newest run can continue: it failed, was killed, or waits for an approval."""
    return agent.conversation.stop_reason in ("", "error", "cancelled", "needs_approval")


def stem(folder: Path) -> str:
    """What the names of a directory's sessions begin with: its name, and a hash of its path."""
    name = re.sub("[^A-Za-z0-9]+", "-", folder.name)[:20].strip("-") or "folder"
    return f"{name}-{sha256(str(folder).encode()).hexdigest()[:6]}"


def free_names(folder: Path) -> Iterator[str]:
    """Yield names that no session of the directory has."""
    for number in count(1):
        name = f"{stem(folder)}-{number}"
        if not session_path(name).exists():
            yield name


def sessions_of(folder: Path) -> list[SessionInfo]:
    """The sessions of a directory that have messages, newest first."""
    return [each for each in list_sessions(names=f"{stem(folder)}-*") if each.title]


def described(session: SessionInfo) -> str:
    """Describe a session in a line, with its newest prompt and its first one.

    The newest prompt tells a fork from the session it was forked from. It comes first, because a
    narrow terminal cuts the line off.
    """
    when = datetime.fromtimestamp(session.modified)
    title = session.title
    if session.latest not in ("", title):
        title = f"{session.latest[:28]} (began: {title[:28]})"
    return f"{session.name}  {when:%Y-%m-%d %H:%M}  {title}"
