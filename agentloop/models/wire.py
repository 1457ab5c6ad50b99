"""What the JSON of all wires has in common: turns, parts, names, schemas, counts, events.

Copy with: errors.py and what it names.

Nothing here sends. http.py is how a request travels; this is how one is written, and a reply read.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from typing import Any, TypeAlias, cast

from ..errors import BadRequest
from ..messages import (
    AssistantMessage,
    Content,
    FilePart,
    ImagePart,
    Message,
    Part,
    SystemMessage,
    TextPart,
    ToolCall,
    ToolMessage,
    Usage,
)

JSON: TypeAlias = dict[str, Any]


# ---- JSON from outside, where anything may be anything


def obj(value: Any) -> JSON:
    """The value if it is an object, else an empty one."""
    return cast(JSON, value) if isinstance(value, dict) else {}


def objects(value: Any) -> list[JSON]:
    """The objects in a list, but for empty ones; no object if it is no list."""
    return [*filter(obj, cast("Sequence[Any]", value))] if isinstance(value, list) else []


def plain_text(value: Any) -> str:
    """Text as it is, and JSON for anything else: some servers send arguments as an object."""
    if isinstance(value, str):
        return value
    return "" if value is None else json.dumps(value, ensure_ascii=False)


def given(fields: Mapping[str, Any]) -> JSON:
    """The fields that are not None."""
    return {name: value for name, value in fields.items() if value is not None}


def loaded(text: str | bytes | bytearray) -> Any:
    """The value that the JSON stands for; None if it is no JSON."""
    with suppress(ValueError, RecursionError):
        return json.loads(text)
    return None


def read_usage(usage: Any, names: Sequence[str]) -> Usage | None:
    """The tokens that a provider reports, or None if there are none.

    `names` are the provider's, for each field of Usage: "a + b" is a sum, "a | b" the one that is
    there. A count may stand one level deeper: "reasoning_tokens" in "completion_tokens_details".
    """
    parts = (*obj(usage).values(), usage)
    found = {n: v for part in parts for n, v in obj(part).items() if isinstance(v, int)}
    tokens: list[Any] = [
        sum(max(0, *(found.get(n, 0) for n in each.split(" | "))) for each in field.split(" + "))
        for field in names
    ]
    if found.get("total_tokens") == tokens[0] + tokens[1] + tokens[4]:
        tokens[1] += tokens[4]  # xAI counts reasoning beside the rest
    tokens.append(obj(obj(usage).get("cache_creation")) or None)  # Anthropic: how many for how long
    return Usage(*tokens) if obj(usage) else None


def grow(whole: JSON, piece: JSON, growing: Container[str]) -> None:
    """Add the next piece: text and lists with these names grow by it, all else is replaced."""
    for name, value in piece.items():
        old = whole.get(name)
        whole[name] = old + value if old and name in growing else value


# ---- the request


def in_turns(
    messages: Sequence[Message],
    write_reply: Callable[[AssistantMessage], Sequence[JSON]],
    write_result: Callable[[ToolMessage], Sequence[JSON]],
    write_part: Callable[[Part], JSON | None],
) -> list[tuple[str, list[JSON]]]:
    """The role and the blocks of each turn, system prompt aside.

    Roles alternate, and the user begins: the results of one turn and what the user says after them
    are one. A turn of the user may be empty.
    """
    out: list[tuple[str, list[JSON]]] = [("user", [])]
    for message in messages:
        role = "user"
        if isinstance(message, AssistantMessage):
            role, blocks = "assistant", write_reply(message)
        elif isinstance(message, ToolMessage):
            blocks = write_result(message)
        else:
            said = () if isinstance(message, SystemMessage) else message.content
            blocks = write_content(said, write_part)
        if out[-1][0] == role:
            out[-1][1].extend(blocks)
        elif blocks or role == "user":
            out.append((role, [*blocks]))
    return out


def write_content(content: Content, write_part: Callable[[Part], JSON | None]) -> list[JSON]:
    """The parts of some content, but for those that are written as None."""
    parts = [TextPart(content)] if isinstance(content, str) else content
    return [*filter(None, map(write_part, parts))]


def kept_blocks(
    message: AssistantMessage,
    name: str,
    owner: str,
    mark: str,
    calls: Sequence[JSON],
    text_of: Callable[[Sequence[JSON]], str],
) -> list[JSON]:
    """The blocks that a provider sent, with the message's own calls in place of theirs.

    They stand in `raw` under `name`. A call has the mark as its type, or as one of its keys.
    [] if another provider sent them, or if the message says something else by now.
    """
    raw = obj(message.raw)
    rest = iter(calls)
    sent = objects(raw.get(name)) if owner in raw.values() else []
    with suppress(StopIteration):  # fewer calls than there were
        blocks = [b | next(rest) if mark in (b.get("type"), *b) else b for b in sent]
        if not [*rest] and text_of(blocks) == message.content:
            return blocks
    return []


def attachment(part: Part) -> tuple[str, str, str | None]:
    """The media type of an image or a file, and its data in base64 or its address.

    BadRequest: it is neither, and no provider carries it.
    """
    if not isinstance(part, ImagePart | FilePart):
        raise BadRequest(f"a request cannot carry {part!r:.80}")
    if found := re.fullmatch("data:([^;,]+);base64,(.*)", part.url or ""):
        return found[1], found[2], None
    return part.media_type or "", base64.b64encode(part.data or b"").decode(), part.url


def rewrite_schema(schema: JSON, refused: str, rewrite: Callable[[JSON], JSON]) -> JSON:
    """A copy of a JSON schema without the keywords that a provider refuses, each part rewritten."""

    def visit(found: JSON) -> JSON:
        return rewrite(
            {
                name: value
                for name, value in found.items()
                # a property may have any name: then the value is a schema
                if (isinstance(value, dict) and "propertyName" not in value)
                or not re.fullmatch(refused, name)
            }
        )

    copied: JSON = json.loads(json.dumps(schema), object_hook=visit)
    return copied


@lru_cache
def wire_name(name: str) -> str:
    """A name that every provider takes.

    A name that the model made up was answered with an error, but goes back all the same.
    """
    return re.sub("[^a-zA-Z0-9_-]", "_", name)[:64] or "_"


@lru_cache(1024)  # every request holds all ids so far
def wire_id(call_id: str, allowed: str = "(?s).{,40}") -> str:
    """The id, or a hash of it if the provider refuses it: other servers' may be longer."""
    if re.fullmatch(allowed, call_id):
        return call_id
    return hashlib.sha256(call_id.encode()).hexdigest()[:40]


# ---- the reply


def stop_reason(reasons: Mapping[str, str], word: Any, calls: Sequence[ToolCall]) -> str | None:
    """Our word for the provider's: its own if we know none. A good end with calls is for them."""
    found = reasons.get(str(word), word) or None
    return "tool_calls" if calls and found in ("end", None) else found


# ---- streams


class EventParser:
    """The data of server-sent events, out of bytes that were cut anywhere.

    Source: https://html.spec.whatwg.org/multipage/server-sent-events.html#parsing-an-event-stream
    """

    _line = b""  # the unfinished one
    _data = b""  # of the unfinished event

    def feed(self, piece: bytes) -> Iterator[bytes]:
        *lines, self._line = (self._line + piece).split(b"\n")
        for line in lines:
            name, _, value = line.partition(b":")
            if name in (b"data", b"error"):  # GPUStack writes "error: {...}"
                self._data += value.strip()
            elif self._data and not line.strip():
                yield self._data
                self._data = b""
