"""The sessions of a directory, and their descriptions in lists."""

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
    """Return the prefix of a directory's session names: the name, and a hash of the path."""
    name = re.sub("[^A-Za-z0-9]+", "-", folder.name)[:20].strip("-") or "folder"
    return f"{name}-{sha256(str(folder).encode()).hexdigest()[:6]}"


def free_names(folder: Path) -> Iterator[str]:
    """Yield unused names for sessions of the directory."""
    for number in count(1):
        name = f"{stem(folder)}-{number}"
        if not session_path(name).exists():
            yield name


def sessions_of(folder: Path) -> list[SessionInfo]:
    """Return the sessions of a directory that contain messages, newest first."""
    return [each for each in list_sessions(names=f"{stem(folder)}-*") if each.title]


def described(session: SessionInfo) -> str:
    """Describe a session in a line with its newest prompt and its first prompt.

    The newest prompt distinguishes a fork from the original session, and precedes the first prompt
    because narrow terminals truncate the line.
    """
    when = datetime.fromtimestamp(session.modified)
    title = session.title
    if session.latest not in ("", title):
        title = f"{session.latest[:28]} (began: {title[:28]})"
    return f"{session.name}  {when:%Y-%m-%d %H:%M}  {title}"
