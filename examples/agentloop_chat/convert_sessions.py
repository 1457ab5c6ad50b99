"""`agentloop convert`: conversion of session files of version 0.5.0 and older.

Up to version 0.4, components of agentloop exchanged data in additional keys of a record or in the
wording of a text. The current format represents the same data in separate fields.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import re
import shutil
from collections.abc import Iterable
from contextlib import suppress
from glob import escape
from pathlib import Path
from typing import Any

from pydantic_core import to_json

from agentloop import Loop, ScriptedModel, Session, SessionLocked, dump_record, load_record
from agentloop.cli.terminal import safe

logger = logging.getLogger("agentloop")

BACKUP = "before_0.6"
IS_OLD = re.compile(rb'{"type": ?"session", ?"schema": ?1[,}]')
HEADER = b'{"type":"session","schema":2}'  # see agentloop/SESSIONS.md
USER_ORIGINS = {  # keys: additional keys of hidden user messages
    "sent": "program",
    "nudge": "nudge",
    "reminder": "reminder",
    "pinned": "memory",
}
DENIED = "Denied: this call was not allowed and did not run."  # followed by a reason
TOOL_ORIGINS = {  # keys: texts of error results
    "Not run: the run ended before this call started. It had no effects.": "sealed",
    "Interrupted: this call had started and its outcome is unknown. It may have had effects: "
    "check before you repeat it.": "sealed",
    "Not run: the reply ended before it was complete. Do it in smaller pieces.": "cut_off",
    DENIED: "denied",
}
MARKS = {  # new types of the log entries without a time
    "always": "always_allow",
    "hook": "hook_verdict",
    "plan approved": "plan_approved",
    "sent": "sent",
}


class OldSession(Session, Loop):
    """Opens a session, which locks the file."""


def main(options: argparse.Namespace) -> int:
    """Convert the sessions of version 0.5.0 and older.

    folders FOLDER...  directories of session files (default: ~/.agentloop/sessions)

    Close all programs that use the sessions first. The original files are preserved in the
    subdirectory before_0.6.
    """
    failures = 0
    for folder in map(Path, options.folders or [Session.session_dir]):
        if not folder.expanduser().is_dir():
            print(safe(f"{folder}: not a directory"))
            failures = 1
        for path in sorted(folder.expanduser().glob("*.jsonl")):
            try:
                outcome = "converted" if convert(path) else "unchanged"
            except (OSError, SessionLocked) as error:
                outcome = f"not converted: {error}"
                failures = 1
            print(safe(f"{path.name}: {outcome}"))
    return failures


def modernize(data: dict[str, Any]) -> dict[str, Any]:
    """Convert a record's JSON data to the format of version 0.5. Newer data remains unchanged."""
    if "origin" in data:
        return data
    new = dict[str, Any]()
    match data:
        case {"type": "user", "hidden": True}:
            origins = [origin for key, origin in USER_ORIGINS.items() if key in data]
            new = {"origin": [*origins, "note"][0], "sent_id": data.get("sent", "")}
        case {"type": "user", "sent": sent_id}:
            new = {"origin": "sent", "sent_id": sent_id}
        case {"type": "sent", "id": sent_id, "message": message}:
            new = {"message": modernize({**message, "sent": sent_id})}
        case {"type": "tool", "is_error": True, "content": str(text)}:
            start = DENIED if text.startswith(DENIED) else text
            new = {"origin": TOOL_ORIGINS.get(start, "tool")}
        case {"type": "ask", "call": [name, arguments]}:
            new = {"name": name, "arguments": to_json(arguments).decode()}
        case {"type": "hook", "said": [word, reason]}:
            new = {"verdict": word or "none", "reason": reason}
        case {"type": "always", "arguments": {"command": str(command)}}:
            # "rm *.pyc" was stored as a glob, although only commands like "git *" are globs
            if re.fullmatch(r"[^*?\[]+ \*", command) is None:
                new = {"arguments": {"command": escape(command)}}
        case {"type": "always_allow", "exact": True, "arguments": {**texts}}:
            new = {"arguments": {name: escape(str(text)) for name, text in texts.items()}}
        case _:
            pass
    if data["type"] in MARKS:
        new |= {"type": MARKS[data["type"]], "at": data.get("at", 0.0)}
    return data | new


def convert_line(line: bytes) -> bytes:
    """Convert a line to the current format. Unreadable lines are returned unchanged."""
    try:
        return dump_record(load_record(json.dumps(modernize(json.loads(line)))))
    except (ValueError, TypeError, KeyError, RecursionError):
        return line


def convert(path: Path) -> bool:
    """Convert a session file in the old format. Return whether the file was converted.

    The new file replaces the original file atomically, so a kill leaves either file complete.
    Raises SessionLocked if another program has opened the session.
    """
    if path.is_symlink() or not path.is_file():
        return False
    with path.open("rb") as file:
        if not IS_OLD.match(file.read(60)):
            return False
    check_unlocked(path)
    save_backup(path)
    header, *lines = path.read_bytes().split(b"\n")
    torn = lines.pop() if lines else header  # a complete line ends with a line break
    if torn:
        logger.warning("%s: incomplete last line dropped, %d bytes", path.name, len(torn))
    new = path.with_suffix(".new")
    write_private(new, [HEADER, *map(convert_line, lines)])
    shutil.copystat(path, new)
    os.replace(new, path)
    return True


def check_unlocked(path: Path) -> None:
    """Raise SessionLocked if another program has opened the session."""
    with suppress(ValueError):  # not locked, and in the old format
        OldSession(llm=ScriptedModel(), session=path.stem, session_dir=path.parent).close()


def save_backup(path: Path) -> None:
    """Copy a session to the directory of backups, unless a previous conversion has copied it."""
    backup = path.parent / BACKUP / path.name
    backup.parent.mkdir(0o700, exist_ok=True)
    if not backup.exists():
        part = backup.with_suffix(".part")  # prevents an incomplete backup after a kill
        os.replace(shutil.copy2(path, part), backup)


def write_private(path: Path, lines: Iterable[bytes]) -> None:
    """Write lines durably to a new file that only the owner may read."""
    path.unlink(missing_ok=True)  # from an interrupted conversion
    path.touch(0o600)
    with path.open("wb") as file:
        file.writelines(line + b"\n" for line in lines)
        file.flush()
        os.fsync(file.fileno())
