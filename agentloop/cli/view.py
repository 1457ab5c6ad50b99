"""`agentloop view`: a session as one HTML file to look into.

The page is view.html with the session in it as data, each message once: a turn names its reply, and
how what the model saw differs from what it saw in the turn before.
"""

from __future__ import annotations

import argparse
import base64
import re
from collections.abc import Callable, Iterator, Sequence
from hashlib import sha256
from itertools import takewhile
from pathlib import Path
from typing import Any

from pydantic_core import to_json

from ..messages import (
    AssistantMessage,
    Message,
    Record,
    SideRequest,
    Summary,
    ToolMessage,
    UserMessage,
)
from ..mixins.ephemeral import placeholder, prune
from ..prices import PriceOf, cost_of, price_of
from ..records import to_dict
from ..store import SESSION_NAME, read_log, session_path
from ..transcript import view
from .terminal import safe

TEMPLATE = Path(__file__).with_name("view.html")


def add_options(add: Callable[..., object]) -> None:
    add("file", metavar="SESSION", help="the session's file, or its name")
    add("-o", dest="output", metavar="PAGE.html", help="the page (SESSION.html here if not given)")


def run(options: argparse.Namespace) -> int:
    """Writes the page; returns the exit status."""
    path = path_of(options.file)
    output = Path(options.output or f"{path.stem}.html")
    if output.suffix != ".html":  # it may be the session, which would be lost
        raise ValueError(f"-o names the page, which ends in .html, not {output}")
    page = page_of(path.name, read_log(path), price_of())
    write(output, page)
    said = f"{output}: {len(page):,} bytes. It holds the whole session: mind whom you send it."
    print(safe(said))
    return 0


def path_of(name: str) -> Path:
    """The file of a session that was named by its path, or by its name. FileNotFoundError."""
    path = Path(name)
    if not path.is_file() and SESSION_NAME.fullmatch(name):
        path = session_path(name)
    if not path.is_file():
        raise FileNotFoundError(f"there is no session {name}: name its file, or one of those kept")
    return path


def write(path: Path, content: bytes) -> None:
    """Writes a file for the owner's eyes only."""
    path.touch(0o600)
    path.chmod(0o600)  # where there was a file
    path.write_bytes(content)


def page_of(title: str, log: Sequence[Record], price: PriceOf | None = None) -> bytes:
    """The page, as UTF-8. `price` says what a model's tokens cost in dollars."""
    template = TEMPLATE.read_text(encoding="utf-8")
    [script] = re.findall("<script>(.*?)</script>", template, re.DOTALL)
    digest = base64.b64encode(sha256(script.encode()).digest()).decode()
    data = to_json({"title": title} | data_of(log, price), inf_nan_mode="null").decode()
    page = template.replace("{{script}}", f"sha256-{digest}")
    return page.replace("{{data}}", data.replace("<", "\\u003c")).encode()


def data_of(log: Sequence[Record], price: PriceOf | None = None) -> dict[str, Any]:
    """What the page shows: all messages, and the rows of its timeline, which are turns and marks.

    A turn's model saw the first `same` messages of the turn before it, and `then` others.
    """
    turns, before, places = dict(contexts(log)), list[Message](), dict[Message, int]()
    rows: list[dict[str, Any]] = []
    for message in (record for record in log if isinstance(record, Message)):
        places.setdefault(message, len(places))
    for at, record in enumerate(log):
        row: dict[str, Any] = to_dict(record)
        if isinstance(record, AssistantMessage):
            kept = takewhile(lambda pair: pair[0] is pair[1], zip(before, turns[at], strict=False))
            same, before = sum(1 for _ in kept), turns[at]
            then = [places.setdefault(message, len(places)) for message in before[same:]]
            row = {"type": "turn", "reply": places[record], "same": same, "then": then}
        if isinstance(record, AssistantMessage | Summary | SideRequest):
            row["cost"] = cost_of([record], price)
        if not isinstance(record, UserMessage | ToolMessage):
            rows.append(row)
    return {"messages": [to_dict(each) | {"raw": None} for each in places], "rows": rows}


def contexts(log: Sequence[Record]) -> Iterator[tuple[int, list[Message]]]:
    """The place of each reply, and what the model saw before it.

    Results are pruned as `Ephemeral` does with its defaults: a log does not say how it was set.
    """
    since, _ = prune(log)
    results = (r for r in log if isinstance(r, ToolMessage) and r.tool_call_id in since)
    short: dict[str, Message] = {r.tool_call_id: placeholder(r) for r in results}
    for at, record in enumerate(log):
        if isinstance(record, AssistantMessage):
            gone = {call_id: short[call_id] for call_id in since if since[call_id] <= at}
            yield at, [gone.get(getattr(m, "tool_call_id", ""), m) for m in view(log[:at])]
