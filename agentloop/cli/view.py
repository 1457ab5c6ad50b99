"""`agentloop view`: a session as one HTML file to look into.

The page is view.html with the session in it as data, each message once: a turn names the records
that the model saw, and what stood in their place.
"""

from __future__ import annotations

import argparse
import base64
import re
import sys
from collections.abc import Sequence
from contextlib import suppress
from hashlib import sha256
from html import escape
from pathlib import Path
from typing import Any, TypeAlias

from pydantic_core import to_json

from ..messages import (
    AssistantMessage,
    Content,
    FilePart,
    ImagePart,
    Record,
    RunEnd,
    RunStart,
    SideRequest,
    Summary,
    TextPart,
    ToolMessage,
    UserMessage,
    text_of,
)
from ..mixins.ephemeral import placeholder, prune
from ..prices import PriceOf, cost_of, price_of
from ..store import SESSION_NAME, read_log, session_path
from ..tokens import message_tokens
from ..transcript import closing_results
from .terminal import RED, Terminal, reason

TEMPLATE = Path(__file__).with_name("view.html")
IMAGES = ("image/png", "image/jpeg", "image/gif", "image/webp")  # the page shows no others
NAME = re.compile("[0-9a-f]{16}")  # of an offloaded result: the beginning of its SHA-256
UNSAFE = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"}

JSON: TypeAlias = dict[str, Any]


def add_options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("file", metavar="SESSION", help="the session's file, or its name")
    add("-o", dest="output", metavar="FILE", help="the page (SESSION.html here if not given)")
    what = "the agent's offload_dir: so the page has the whole of offloaded results"
    add("--offloaded", metavar="FOLDER", help=what)


def run(options: argparse.Namespace) -> int:
    """Writes the page; returns the exit status."""
    terminal = Terminal(sys.stdout)
    try:
        path = path_of(options.file)
        output = Path(options.output or f"{path.stem}.html")
        if output.exists() and output.samefile(path):
            raise ValueError("-o names the session itself, which would be lost")
        page = page_of(path.name, read_log(path), options.offloaded, price_of())
        if output.exists() and not options.output:
            raise FileExistsError(f"there is {output} already: -o {output} writes it anew")
        write(output, page)
    except (OSError, ValueError) as error:
        Terminal(sys.stderr).say(reason(error), RED)
        return 2
    terminal.say(
        f"{output}: {len(page):,} bytes. It holds the whole session: mind whom you send it."
    )
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


def page_of(
    title: str,
    log: Sequence[Record],
    offloaded: str | Path | None = None,
    price: PriceOf | None = None,
) -> bytes:
    """The page, as UTF-8. `price` says what a model's tokens cost in dollars."""
    template = TEMPLATE.read_text(encoding="utf-8")
    [script] = re.findall("<script>(.*?)</script>", template, re.DOTALL)
    digest = base64.b64encode(sha256(script.encode()).digest()).decode()
    data = to_json(page_data(log, offloaded, price), inf_nan_mode="null").decode()
    filled = {
        "{{title}}": escape(title),
        "{{script}}": f"sha256-{digest}",
        "{{data}}": re.sub("|".join(UNSAFE), lambda match: UNSAFE[match[0]], data),
    }
    return re.sub("{{[a-z]+}}", lambda match: filled[match[0]], template).encode()


def page_data(
    log: Sequence[Record], offloaded: str | Path | None = None, price: PriceOf | None = None
) -> JSON:
    """What the page shows: records, turns, and the rows of its timeline.

    A turn has the places of its reply, of the first task and the summary that the model saw, and of
    the record from which on it saw the rest.
    """
    answered = {r.tool_call_id: at for at, r in enumerate(log) if isinstance(r, ToolMessage)}
    sealed = {result.tool_call_id: result.text for result in closing_results(log)}
    tasks = (at for at, r in enumerate(log) if isinstance(r, UserMessage) and not r.hidden)
    task = next(tasks, len(log))
    records: list[JSON | None] = []
    turns: list[JSON] = []
    rows: list[tuple[str, int]] = []
    seen: JSON = {"task": -1, "summary": -1, "keep": 0}
    for at, record in enumerate(log):
        data = data_of(record, offloaded)
        records.append(data)
        if data is None:
            continue
        if isinstance(record, AssistantMessage):
            data["calls"] = [
                {"name": call.name, "arguments": call.arguments, "id": call.id}
                | {"result": answered.get(call.id, -1), "sealed": sealed.get(call.id, "")}
                for call in record.tool_calls
            ]
            rows.append(("turn", len(turns)))
            turns.append({"at": at} | seen | figures(record, price))
        elif isinstance(record, Summary):
            shown = task if task < record.keep else -1
            seen = {"task": shown, "summary": at, "keep": record.keep}
        if isinstance(record, Summary | SideRequest):
            data |= figures(record, price)
        if not isinstance(record, UserMessage | AssistantMessage | ToolMessage):
            rows.append((data["kind"], at))
    for call_id, (turn, text) in pruned(log).items():
        if (data := records[answered[call_id]]) is not None:
            data |= {"stale": turn, "placeholder": text}
    return {"records": records, "turns": turns, "rows": rows}


def data_of(record: Record, offloaded: str | Path | None) -> JSON | None:
    """A record for the page; None for one that it does not show."""
    data: JSON
    match record:
        case UserMessage():
            extra = record.extra or {}
            why = next((key for key in ("nudge", "reminder", "sent") if key in extra), "")
            data = {"kind": "user", "hidden": record.hidden, "why": why}
        case AssistantMessage():
            data = {"kind": "assistant", "thinking": record.thinking, "stop": record.stop_reason}
        case ToolMessage():
            data = {"kind": "tool", "name": record.tool_name, "error": record.is_error}
            data["seconds"] = record.seconds
            if name := (record.extra or {}).get("offloaded"):
                data["offloaded"] = str(name)
                data["original"] = read_offloaded(offloaded, str(name))
        case Summary():
            return {"kind": "summary", "text": record.content}
        case SideRequest():
            return {"kind": "side"}
        case RunStart():
            return {"kind": "start", "time": record.at}
        case RunEnd():
            return {"kind": "end", "reason": record.stop_reason}
        case _:
            return None
    return data | content_of(record.content) | {"tokens": message_tokens(record)}


def content_of(content: Content) -> JSON:
    """The text of some content, its images as data URLs, and a line for each other part."""
    if isinstance(content, str):
        return {"text": content}
    images: list[str] = []
    others: list[str] = []
    for part in content:
        if isinstance(part, ImagePart) and part.data is not None and part.media_type in IMAGES:
            images.append(f"data:{part.media_type};base64,{base64.b64encode(part.data).decode()}")
        elif isinstance(part, ImagePart | FilePart):
            name = getattr(part, "name", None) or part.url or part.media_type
            size = "" if part.data is None else f", {len(part.data):,} bytes"
            others.append(f"{type(part).__name__}: {name}{size}")
        elif not isinstance(part, TextPart):
            others.append("a part of an unknown type")
    return {"text": text_of(content), "images": images, "others": others}


def figures(record: AssistantMessage | Summary | SideRequest, price: PriceOf | None) -> JSON:
    """Who answered, and what it took."""
    data: JSON = {"model": record.model, "seconds": getattr(record, "seconds", None)}
    if (usage := record.usage) is not None:
        data |= {"in": usage.input_tokens, "cached": usage.cached_input_tokens}
        data |= {"out": usage.output_tokens, "cost": cost_of([record], price) if price else None}
    return data


def pruned(log: Sequence[Record]) -> dict[str, tuple[int, str]]:
    """By call id, the first turn (from 0) that did not see a result, and what stood in its place.

    As `Ephemeral` prunes with its defaults: a log does not say how it was set.
    """
    results = {record.tool_call_id: record for record in log if isinstance(record, ToolMessage)}
    turns = [at for at, record in enumerate(log) if isinstance(record, AssistantMessage)]
    hidden, _ = prune(log)
    return {
        call_id: (turns.index(at), placeholder(results[call_id]).text)
        for call_id, at in hidden.items()
    }


def read_offloaded(folder: str | Path | None, name: str) -> str | None:
    """The whole of an offloaded result; None if it is not in the folder, or was changed."""
    if folder is None or not NAME.fullmatch(name):
        return None
    with suppress(OSError):
        data = Path(folder, name).read_bytes()
        if sha256(data).hexdigest().startswith(name):
            return data.decode(errors="replace")
    return None
