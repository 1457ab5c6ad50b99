"""Old session files become ones of the present format: a folder at a time, with a backup.

One wants it once, after an upgrade from a version up to 0.5.0: a session that such a version wrote
is refused since then. Close the programs that use the sessions first.

    python old_sessions.py ~/.agentloop/sessions

converts each old session in the folder. The old files are kept in its folder `before_0.6`. Up to
version 0.4 the parts of agentloop agreed through keys beside a record's fields, or through the
wording of a text. These are fields of their own now.
"""

import json
import os
import re
import shutil
import sys
import tempfile
from glob import escape
from pathlib import Path
from typing import Any

from pydantic_core import to_json

from agentloop import dump_record, load_record
from agentloop.common.store import HEADER, SessionFile, read_log
from agentloop.errors import SessionLocked

BACKUP = "before_0.6"
IS_OLD = re.compile(rb'{"type": ?"session", ?"schema": ?1[,}]')
USER_ORIGINS = {  # by a key of a hidden user message
    "sent": "program",
    "nudge": "nudge",
    "reminder": "reminder",
    "pinned": "memory",
}
DENIED = "Denied: this call was not allowed and did not run."  # a reason follows
TOOL_ORIGINS = {  # by the text of an error result
    "Not run: the run ended before this call started. It had no effects.": "sealed",
    "Interrupted: this call had started and its outcome is unknown. It may have had effects: "
    "check before you repeat it.": "sealed",
    "Not run: the reply ended before it was complete. Do it in smaller pieces.": "cut_off",
    DENIED: "denied",
}
MARKS = {  # the new types of marks that had no time
    "always": "always_allow",
    "hook": "hook_verdict",
    "plan approved": "plan_approved",
    "sent": "sent",
}
EXAMPLE = """\
{"type":"session","schema":1}
{"type":"user","content":"Buy milk"}
{"type":"user","content":"Go on.","hidden":true,"nudge":1}
{"type":"assistant","content":"Bought."}
"""


def modernize(data: dict[str, Any]) -> dict[str, Any]:
    """Return a record's JSON data as version 0.5 wrote it. Newer data comes back as it is."""
    if "origin" in data:
        return data
    new = dict[str, Any]()
    match data:
        case {"type": "user", "hidden": True}:
            found = [origin for key, origin in USER_ORIGINS.items() if key in data]
            new = {"origin": [*found, "note"][0], "sent_id": data.get("sent", "")}
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
            # "rm *.pyc" was kept as a glob, too, but only such as "git *" was meant as one
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
    """Return a line in the present format. A line that cannot be read stays as it is."""
    try:
        return dump_record(load_record(json.dumps(modernize(json.loads(line)))))
    except (ValueError, TypeError, KeyError, RecursionError):
        return line


def convert(path: Path) -> bool:
    """Convert a session file if it is an old one, and return whether it was.

    The new file takes the place of the old one at once, so a kill leaves one of the two. Raises
    SessionLocked if a program has the session open.
    """
    if path.is_symlink() or not path.is_file():
        return False
    with path.open("rb") as file:
        if not IS_OLD.match(file.read(60)):
            return False
    try:
        SessionFile(path).close()
    except SessionLocked:
        raise
    except ValueError:  # it is free, and an old one
        pass
    backup = path.parent / BACKUP / path.name
    backup.parent.mkdir(0o700, exist_ok=True)
    if not backup.exists():
        part = backup.with_suffix(".part")  # a kill leaves no half of a backup
        os.replace(shutil.copy2(path, part), backup)
    header, *lines = path.read_bytes().split(b"\n")
    torn = lines.pop() if lines else header  # a whole line has its end
    new = path.with_suffix(".new")
    new.unlink(missing_ok=True)  # of a conversion that was killed
    new.touch(0o600)  # a session is for its owner's eyes only
    with new.open("wb") as file:
        file.write(HEADER + b"\n")
        for line in lines:
            file.write(convert_line(line) + b"\n")
        file.flush()
        os.fsync(file.fileno())
    if torn:
        print(f"{path.name}: the last line was cut off, {len(torn)} bytes")
    shutil.copystat(path, new)
    os.replace(new, path)
    return True


def convert_folder(folder: Path) -> None:
    """Convert the old sessions in a folder, and say what became of each file."""
    for path in sorted(folder.glob("*.jsonl")):
        try:
            done = convert(path)
        except (OSError, SessionLocked) as error:
            print(f"{path.name}: not converted: {error}")
        else:
            print(f"{path.name}: {'converted' if done else 'left as it is'}")


if __name__ == "__main__":
    if sys.argv[1:]:
        convert_folder(Path(sys.argv[1]).expanduser())
    else:
        with tempfile.TemporaryDirectory() as example:
            path = Path(example) / "milk.jsonl"
            path.write_text(EXAMPLE, encoding="utf-8")
            convert_folder(path.parent)
            print(path.read_text(encoding="utf-8"))
            print(f"{len(read_log(path))} records are read")
