"""What the wires of all providers share: turns, parts, names, schemas, streams.

Copy with: errors.py, events.py and what they name.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, partialmethod
from typing import Any, TypeAlias

from ..errors import BadRequest
from ..events import Delta, OnDelta, TextDeltaEvent, ThinkingDeltaEvent, ToolCallDeltaEvent
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
    clean_text,
)

JSON: TypeAlias = dict[str, Any]


# ---- the request


def in_turns(
    messages: Sequence[Message],
    write_assistant: Callable[[AssistantMessage], Sequence[JSON]],
    write_result: Callable[[ToolMessage], Sequence[JSON]],
    write_part: Callable[[Part], JSON | None],
) -> list[tuple[str, list[JSON]]]:
    """The role and the blocks of each turn, system prompt aside.

    Roles alternate, and the user begins: the results of one turn and what the user says after them
    are one. A turn of the user may be empty.
    """
    out: list[tuple[str, list[JSON]]] = [("user", [])]
    for message in messages:
        role, blocks = "user", list[JSON]()
        if isinstance(message, AssistantMessage):
            role, blocks = "assistant", [*write_assistant(message)]
        elif isinstance(message, ToolMessage):
            blocks = [*write_result(message)]
        elif not isinstance(message, SystemMessage):
            blocks = write_content(message.content, write_part)
        if out[-1][0] == role:
            out[-1][1].extend(blocks)
        elif blocks or role == "user":
            out.append((role, blocks))
    return out


def write_content(content: Content, write_part: Callable[[Part], JSON | None]) -> list[JSON]:
    """The parts of some content, but for those that are written as None."""
    parts = [TextPart(content)] if isinstance(content, str) else content
    return [*filter(None, map(write_part, parts))]


def put_back(
    blocks: Sequence[JSON], are_calls: Sequence[bool], calls: Sequence[JSON]
) -> list[JSON]:
    """The blocks as they came, with the message's own calls in place of theirs.

    None if there are more or fewer by now.
    """
    if sum(are_calls) != len(calls):
        return []
    rest = iter(calls)
    pairs = zip(blocks, are_calls, strict=True)
    return [block | next(rest) if is_call else block for block, is_call in pairs]


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


def wire_id(call_id: str, allowed: str = "(?s).{,40}") -> str:
    """The id, or a hash of it if the provider refuses it: other servers' may be longer."""
    if re.fullmatch(allowed, call_id):
        return call_id
    return hashlib.sha256(call_id.encode()).hexdigest()[:40]


# ---- the reply


def stop_reason(reasons: Mapping[str, str], word: Any, calls: Sequence[ToolCall]) -> str | None:
    """Our word for the provider's: its own if we know none. A good end with calls is for them."""
    found = reasons.get(word if isinstance(word, str) else "", word) or None
    return "tool_calls" if calls and found in ("end", None) else found


@dataclass
class Accumulator(ABC):
    """Puts one streamed reply together, and shows its pieces to a listener."""

    on_delta: OnDelta | None = None
    shown: bool = False  # a reply that showed pieces of calls alone is tried again
    complete: bool = False
    """True when the reply's end was seen."""
    body: bytearray = field(default_factory=bytearray)
    """What the server sent in this attempt, streamed or not."""
    data: JSON = field(default_factory=JSON)
    """What there is of the reply so far."""

    @abstractmethod
    def add(self, event: JSON) -> None:
        """Take the next event, and show what is in it."""

    def reply(self) -> JSON:
        """`data`, in the form that `HTTPModel.read` takes."""
        return self.data

    def _show(self, kind: Callable[..., Delta], piece: str, *more: str) -> None:
        if piece and self.on_delta:
            self.shown |= not more
            self.on_delta(kind(clean_text(piece), *more))

    text = partialmethod(_show, TextDeltaEvent)
    thinking = partialmethod(_show, ThinkingDeltaEvent)
    call = partialmethod(_show, ToolCallDeltaEvent)  # (piece, tool, call_id)


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
            elif not line.strip() and self._data:
                yield self._data
                self._data = b""
