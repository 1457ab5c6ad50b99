"""`agentloop view`: a session as one HTML file to look into, or to watch the loop with.

A page is view.html or loop.html with the session in it as data, each message once: a row stands for
a record, and says how what the model saw before it differs from what it saw before.
"""

from __future__ import annotations

import argparse
import inspect
import re
import time
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path

from pydantic_core import to_json

from .. import AssistantMessage, Loop, Message
from ..common.prices import cost_of, genai_price
from ..common.records import to_dict
from ..common.store import SESSION_NAME, load_log, read_lines, session_path
from ..messages import JSON, Record, RunEnd, Unknown
from ..mixins.ephemeral import Pruning
from ..transcript import Conversation, is_request
from .terminal import safe

WARNING = "It holds the whole session: mind whom you send it."
RESET = re.compile(rb'(?m)^(?={"type":"reset")')  # where the log begins anew
END = Unknown({"type": "end"})  # the last row: what the model would see next


def main(options: argparse.Namespace) -> int:
    """Write a page to look into a session with.

    file SESSION  the session's file, or its name
    -o PAGE.html  the page (SESSION.html here if not given)
    --beside SESSION  another session, which stands beside the first
    --loop        a page to watch the loop with, record by record
    --live        write the page again whenever the session has grown, until Ctrl-C
    """
    path = path_of(options.file)
    output = Path(options.o or f"{path.stem}.html")
    if output.suffix != ".html":  # it may be the session, which would be lost
        raise ValueError(f"-o names the page, which ends in .html, not {output}")
    beside: JSON | None = None
    if options.beside:
        other = path_of(options.beside)
        beside = {"title": other.name} | data_of(*logs_of(other))
    written = 0
    while True:
        size = path.stat().st_size
        if size != written:
            written = size
            logs = logs_of(path)
            page = page_of(path.name, *logs, loop=options.loop, live=options.live, beside=beside)
            draft = output.with_suffix(".part")  # so that no browser reads half a page
            draft.touch(0o600)  # for the owner's eyes only
            draft.write_bytes(page)
            draft.replace(output)
            print(safe(f"{output}: {len(page):,} bytes. {WARNING}"), flush=True)
        if not options.live:
            return 0
        time.sleep(1)


def path_of(name: str) -> Path:
    """Return the file of a session that was named by its path, or by its name.

    FileNotFoundError: there is none.
    """
    path = Path(name)
    if not path.is_file() and SESSION_NAME.fullmatch(name):
        path = session_path(name)
    if not path.is_file():
        raise FileNotFoundError(f"there is no session {name}: name its file, or one of those kept")
    return path


def logs_of(path: Path) -> list[list[Record]]:
    """Return the log of a session, and before it each log that was replaced by another."""
    text = b"".join(read_lines(path))
    return [load_log(part.splitlines()) for part in RESET.split(text)]


def page_of(title: str, *logs: Sequence[Record], loop: bool = False, **more: object) -> bytes:
    """Return a page of a session, as UTF-8.

    logs: as from `logs_of`. loop: make the page to watch the loop with, of the last of them.
    live: let the page load itself again and again. beside: the title and data of another session.
    """
    data: JSON = {"title": title, "code": inspect.getsource(Loop.run)} | more
    data |= data_of(*logs[-1:], every=True) if loop else data_of(*logs)
    text = to_json(data, inf_nan_mode="null").decode()
    nonce = sha256(text.encode()).hexdigest()  # no text can hold its own hash
    template = "loop.html" if loop else "view.html"
    page = Path(__file__).with_name(template).read_text("utf-8").replace("{{nonce}}", nonce)
    return page.replace("{{data}}", text.replace("<", "\\u003c")).encode()


def data_of(*logs: Sequence[Record], every: bool = False) -> JSON:
    """Return what a page shows: all messages, and a row for each record and for the end of a log.

    The row of a reply or of a run's end (with `every`, each row) says what the model saw, or would
    have seen, before it: the first `same` messages of the last such row, and `then` others. Results
    are pruned as `Ephemeral` does with its defaults: a log does not say how it was set.
    """
    rows: list[JSON] = []
    places: dict[Message, int] = {}
    seen: list[Message] = []  # what the model sees
    for log in logs:
        so_far: list[Record] = []
        conversation = Conversation(so_far)
        pruning = Pruning(so_far)
        for record in [*log, END]:
            row: JSON = to_dict(record)
            if isinstance(record, Message):
                row = {"type": row["type"], "message": places.setdefault(record, len(places))}
            if every or isinstance(record, AssistantMessage | RunEnd):
                before, messages = seen, conversation.catch_up().messages
                seen = pruning.catch_up().hide(messages)
                row["same"] = common(before, seen)
                row["then"] = [places.setdefault(each, len(places)) for each in seen[row["same"] :]]
            if is_request(record):
                row["cost"] = cost_of([record], genai_price)
            rows.append(row)
            so_far.append(record)
    return {"messages": [to_dict(each) | {"raw": None} for each in places], "rows": rows}


def common(before: Sequence[Message], now: Sequence[Message]) -> int:
    """Return how many messages two lists begin with alike, or somewhat fewer.

    A list mostly grows at its end: so all are tried first, then 1, 3, 7, ... fewer.
    """
    same, step = min(len(before), len(now)), 1
    while before[:same] != now[:same]:
        same, step = max(0, same - step), 2 * step
    return same
