"""Reads what the versions up to 0.4 wrote into sessions.

Copy with: messages.py, transcript.py.

They kept agreements between their parts in keys beside a record's fields, or in the wording of a
text. These are fields of their own now.
"""

import re
from glob import escape

from pydantic_core import to_json

from ..messages import JSON
from ..transcript import CUT_OFF, DENIED, NEVER_STARTED, OUTCOME_UNKNOWN

USER_ORIGINS = {  # by a key of a hidden user message
    "sent": "program",
    "nudge": "nudge",
    "reminder": "reminder",
    "pinned": "memory",
}
TOOL_ORIGINS = {  # by the text of an error result
    NEVER_STARTED: "sealed",
    OUTCOME_UNKNOWN: "sealed",
    CUT_OFF: "cut_off",
    DENIED: "denied",  # a reason follows
}
MARKS = {  # the new types of marks that had no time
    "always": "always_allow",
    "hook": "hook_verdict",
    "plan approved": "plan_approved",
    "sent": "sent",
}


def modernize(data: JSON) -> JSON:
    """Return a record's JSON data as this version writes it. New data comes back as it is."""
    if "origin" in data:
        return data
    new = JSON()
    match data:
        case {"type": "user", "hidden": True}:
            found = [origin for key, origin in USER_ORIGINS.items() if key in data]
            new = {"origin": [*found, "note"][0], "sent_id": data.get("sent", "")}
        case {"type": "user", "sent": sent_id}:
            new = {"origin": "sent", "sent_id": sent_id}
        case {"type": "sent", "id": sent_id, "message": message}:
            new = {"message": {**message, "sent": sent_id}}
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
