"""`agentloop view`: a session as one HTML file to look into, or to watch the loop with.

A page is view.html or loop.html with the session in it as data, each message once: a row stands for
a record, and says how what the model saw before it differs from what it saw before.
"""

from __future__ import annotations

import argparse
import inspect
import time
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path

from pydantic_core import to_json

from .. import AssistantMessage, Loop, Message, Summary, ToolMessage
from ..common.prices import PriceOf, cost_of, genai_price
from ..common.records import to_dict
from ..common.store import SESSION_NAME, read_log, session_path
from ..messages import JSON, Record, RunEnd, SideRequest, Unknown
from ..mixins.ephemeral import Pruning, hide
from ..transcript import Conversation
from .terminal import safe

FOLDER = Path(__file__).parent
WARNING = "It holds the whole session: mind whom you send it."
END = Unknown({"type": "end"})  # the last row: what the model would see next


def main(options: argparse.Namespace) -> int:
    """Write a page to look into a session with.

    file SESSION  the session's file, or its name
    -o PAGE.html  the page (SESSION.html here if not given)
    --loop        a page to watch the loop with, record by record
    --live        write the page again whenever the session has grown, until Ctrl-C
    """
    path = path_of(options.file)
    output = Path(options.o or f"{path.stem}.html")
    if output.suffix != ".html":  # it may be the session, which would be lost
        raise ValueError(f"-o names the page, which ends in .html, not {output}")
    written = 0
    while True:
        size = path.stat().st_size
        if size != written:
            written = size
            page = page_of(path.name, read_log(path), options.loop, options.live)
            write(output, page)
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


def write(path: Path, content: bytes) -> None:
    """Write a file for the owner's eyes only."""
    path.touch(0o600)
    path.chmod(0o600)  # where there was a file
    path.write_bytes(content)


def page_of(title: str, log: Sequence[Record], loop: bool = False, live: bool = False) -> bytes:
    """Return a page, as UTF-8.

    loop: make the one to watch the loop with. live: let it load itself again, every other second.
    """
    data: JSON = {"title": title, "live": live, "code": inspect.getsource(Loop.run)}
    data |= data_of(log, every=loop)
    text = to_json(data, inf_nan_mode="null").decode()
    nonce = sha256(text.encode()).hexdigest()  # no text can hold its own hash
    template = "loop.html" if loop else "view.html"
    page = (FOLDER / template).read_text("utf-8").replace("{{nonce}}", nonce)
    return page.replace("{{data}}", text.replace("<", "\\u003c")).encode()


def data_of(log: Sequence[Record], price: PriceOf = genai_price, every: bool = False) -> JSON:
    """Return what a page shows: all messages, and a row for each record and for the end.

    The row of a reply or of a run's end (with `every`, each row) says what the model saw, or would
    have seen, before it: the first `same` messages of the last such row, and `then` others. Results
    are pruned as `Ephemeral` does with its defaults: a log does not say how it was set. `price`
    says what a model's tokens cost in dollars.
    """
    rows: list[JSON] = []
    places: dict[Message, int] = {}
    so_far: list[Record] = []
    conversation = Conversation(so_far)
    pruning = Pruning(so_far)
    messages: list[Message] = []  # what the model sees, but for pruning
    seen: list[Message] = []  # what it sees
    hidden: dict[str, ToolMessage] = {}  # placeholders, by call id
    for record in [*log, END]:
        row: JSON = to_dict(record)
        if isinstance(record, Message):
            row = {"type": row["type"], "message": places.setdefault(record, len(places))}
        if every or isinstance(record, AssistantMessage | RunEnd):
            before, messages = messages, conversation.catch_up().messages
            hidden_before, seen_before = hidden, seen
            due = pruning.catch_up().due
            hidden = pruning.placeholders | due
            same = common(before, messages) if hidden == hidden_before else 0
            seen = [*seen[:same], *hide(messages[same:], hidden)]
            row["same"] = common(seen_before, seen)
            row["then"] = [places.setdefault(each, len(places)) for each in seen[row["same"] :]]
        if isinstance(record, AssistantMessage | Summary | SideRequest):
            row["cost"] = cost_of([record], price)
        rows.append(row)
        so_far.append(record)
    return {"messages": [to_dict(each) | {"raw": None} for each in places], "rows": rows}


def common(before: Sequence[Message], now: Sequence[Message]) -> int:
    """Return a number of messages that two lists begin with, all or nearly all of them.

    A list grows at its end, so it looks there first.
    """
    same, step = min(len(before), len(now)), 1
    while before[:same] != now[:same]:
        same, step = max(0, same - step), 2 * step
    return same
