"""`agentloop view`: a session as an HTML page, to inspect it or watch the loop, or as a picture.

A page is view.html or loop.html with the data of the session, which has each message once. A row
stands for a record, and says how the messages that the model got before it differ from those of the
request before.
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
from ..messages import JSON, Unknown
from ..transcript import Conversation, Record, RunEnd, is_request
from .picture import picture_of
from .terminal import plain, safe

WARNING = "The page contains the complete session: be careful when sharing it."
SHOWN = "It shows the first prompt, and the newest answer or error, if there's one."
RESET = re.compile(rb'(?m)^(?={"type":"reset")')  # where a new log starts
END = Unknown({"type": "end"})  # the last row: the messages of the next request


HELP = "Write an HTML page or a picture of a session."


def add_options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("file", metavar="SESSION", help="the file or the name of the session")
    add(
        "-o",
        metavar="FILE",
        help="the page (default: SESSION.html in the current directory), or a picture: NAME.svg",
    )
    add("--beside", metavar="SESSION", help="a second session for a side-by-side comparison")
    add("--loop", action="store_true", help="a page that shows the loop record by record")
    add(
        "--live",
        action="store_true",
        help="update the page whenever the session grows, until Ctrl-C",
    )


def main(options: argparse.Namespace) -> int:
    path = path_of(options.file)
    output = Path(options.o or f"{path.stem}.html")
    if output.suffix == ".svg":
        picture = picture_of(*logs_of(path)).encode()
        write_page(output, picture)
        print(safe(f"{output}: {len(picture):,} bytes. {SHOWN}"))
        return 0
    if output.suffix != ".html":  # otherwise -o SESSION would overwrite the session
        raise ValueError(f"the name after -o must end in .html or .svg, not {output}")
    beside: JSON | None = None
    if options.beside:
        other = path_of(options.beside)
        beside = {"title": other.name} | data_of(*logs_of(other))
    written = -1
    while True:
        size = path.stat().st_size
        if size != written:
            written = size
            logs = logs_of(path)
            page = page_of(path.name, *logs, loop=options.loop, live=options.live, beside=beside)
            write_page(output, page)
            print(safe(f"{output}: {len(page):,} bytes. {WARNING}"), flush=True)
        if not options.live:
            return 0
        time.sleep(1)


def write_page(path: Path, page: bytes) -> None:
    """Write a page that only its owner can read, and that no browser loads half-written."""
    draft = path.with_suffix(".part")
    draft.touch(0o600)
    draft.write_bytes(page)
    draft.replace(path)


def path_of(name: str) -> Path:
    """Find the file of a session by its path or its name.

    Raises FileNotFoundError if there's no such session.
    """
    path = Path(name)
    if not path.is_file() and SESSION_NAME.fullmatch(name):
        path = session_path(name)
    if not path.is_file():
        raise FileNotFoundError(
            f"session {name} not found: pass the path of its file, or the name of a saved session"
        )
    return path


def logs_of(path: Path) -> list[list[Record]]:
    """Read the log of a session. Before it come the logs that a Reset has replaced."""
    text = b"".join(read_lines(path))
    return [load_log(part.splitlines()) for part in RESET.split(text)]


def page_of(title: str, *logs: Sequence[Record], loop: bool = False, **more: object) -> bytes:
    """The page of a session, in UTF-8.

    logs: what `logs_of` returns.
    loop: whether to make the page that shows the loop, of the last log.
    live: whether the page loads itself again now and then.
    beside: the title and the data of a second session.
    """
    data: JSON = {"title": title, "code": inspect.getsource(Loop.run)} | more
    data |= data_of(*logs[-1:], every=True) if loop else data_of(*logs)
    text = to_json(data, inf_nan_mode="null").decode()
    nonce = sha256(text.encode()).hexdigest()  # a text cannot contain its own hash
    template = "loop.html" if loop else "view.html"
    page = Path(__file__).with_name(template).read_text("utf-8").replace("{{nonce}}", nonce)
    page = page.replace("{{picture}}", "" if loop else picture_of(*logs))
    return page.replace("{{data}}", text.replace("<", "\\u003c")).encode()


def data_of(*logs: Sequence[Record], every: bool = False) -> JSON:
    """The data of a page: all messages, and rows for the records and the end of each log.

    The row of a reply, or of a run's end, has the messages that a request would have at this point,
    whether one was sent or not; with `every`, each row has them. They are the first `same` messages
    of the last row that has some, then those in `then`.
    """
    rows: list[JSON] = []
    places: dict[Message, int] = {}
    seen: list[Message] = []  # the messages of the previous described request
    for log in logs:
        so_far: list[Record] = []
        conversation = Conversation(so_far)
        for record in [*log, END]:
            row: JSON = to_dict(record)
            if isinstance(record, Message):
                row = {"type": row["type"], "message": places.setdefault(record, len(places))}
            if every or isinstance(record, AssistantMessage | RunEnd):
                before, seen = seen, conversation.catch_up().messages
                row["same"] = common(before, seen)
                added = seen[row["same"] :]
                row["then"] = [places.setdefault(message, len(places)) for message in added]
            if error := row.get("error", row.get("record", row).get("error")):
                row["words"] = plain(error)
            if is_request(record):
                row["cost"] = cost_of([record], genai_price)
            rows.append(row)
            so_far.append(record)
    return {"messages": [to_dict(message) | {"raw": None} for message in places], "rows": rows}


def common(before: Sequence[Message], now: Sequence[Message]) -> int:
    """How many messages two lists have in common at the beginning, or a few less.

    Messages are usually appended, so the whole length is tried first, then 1, 3, 7, ... less.
    """
    same, step = min(len(before), len(now)), 1
    while before[:same] != now[:same]:
        same, step = max(0, same - step), 2 * step
    return same
