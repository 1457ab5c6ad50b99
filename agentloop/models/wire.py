"""JSON functions that all wire formats share: turns, parts, names, schemas, counts, events.

Copy with: errors.py, events.py, tools.py and their imports.

These functions write requests and read replies; http.py sends and receives them.
"""

import base64
import hashlib
import json
import logging
import math
import re
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from email.utils import parsedate_to_datetime
from functools import lru_cache
from itertools import pairwise
from typing import Any, cast

from pydantic_core import from_json, to_json

from ..errors import BadResponse
from ..events import OnDelta, TextDeltaEvent, ThinkingDeltaEvent, ToolCallDeltaEvent
from ..messages import (
    JSON,
    AssistantMessage,
    Citation,
    Content,
    FilePart,
    ImagePart,
    Message,
    Part,
    SystemMessage,
    TextPart,
    ToolCall,
    ToolMessage,
    Unknown,
    UserMessage,
    cache_of,
    clean_text,
)
from ..tools import Tool

logger = logging.getLogger("agentloop")

NUMBER = r"(\d+(?:\.\d+)?)"
# Servers, and models behind gateways, that require thoughts with every reply that has calls, even
# if another model wrote it. A name alone doesn't say it: Groq serves Kimi and refuses thoughts.
# Sources: https://github.com/earendil-works/pi/pull/3640 (DeepSeek V4),
# https://github.com/rikkahub/rikkahub/issues/1629 (DeepSeek's Responses),
# https://github.com/BerriAI/litellm/issues/27439 (DeepSeek V4 behind OpenRouter),
# https://github.com/continuedev/continue/issues/11600 (Kimi),
# https://github.com/anomalyco/opencode/issues/29690 (Kimi behind OpenRouter),
# https://github.com/spacedriveapp/spacebot/issues/549 (Kimi behind OpenCode Go),
# https://platform.xiaomimimo.com/docs/zh-CN/usage-guide/passing-back-reasoning_content
NEEDS_THOUGHTS = (
    r"//[^/]*(deepseek\.com|moonshot\.(ai|cn)|kimi\.com|xiaomimimo\.com)|"
    r"//(openrouter|opencode)\.ai\S* \S*(deepseek|kimi|mimo)"
)

# ---- external JSON, whose values may have any type


def as_dict(value: Any, *path: str) -> JSON:
    """The dict at a path of nested dicts; {} if there is none."""
    for name in path:
        value = cast(JSON, value).get(name) if isinstance(value, dict) else None
    return cast(JSON, value) if isinstance(value, dict) else {}


def as_dicts(value: Any, *path: str) -> list[JSON]:
    """The dicts, except empty ones, of the list at a path; [] if there is no list."""
    for name in path:
        value = cast(JSON, value).get(name) if isinstance(value, dict) else None
    if not isinstance(value, list):
        return []
    return [item for item in cast("Sequence[Any]", value) if item and isinstance(item, dict)]


def plain_text(value: Any) -> str:
    """Text as it is, other values as JSON: some servers send arguments as objects."""
    if isinstance(value, str):
        return value
    if value is None:
        return ""
    return json.dumps(value, ensure_ascii=False)


def first_text(fields: JSON, *names: str) -> str:
    """The first of these fields that isn't empty, as text; "" if all are."""
    for name in names:
        if value := fields.get(name):
            return plain_text(value)
    return ""


def drop_none(fields: Mapping[str, Any]) -> JSON:
    """A copy that leaves out None."""
    return {name: value for name, value in fields.items() if value is not None}


def parse_json(text: str | bytes | bytearray) -> Any:
    """Read JSON; None if it's invalid."""
    with suppress(ValueError, RecursionError):
        return json.loads(text)
    return None


def clean_json(value: Any) -> Any:
    """A JSON value whose texts are valid: lone surrogates become U+FFFD."""
    return from_json(clean_text(json.dumps(value, ensure_ascii=False)))


def read_counts(usage: JSON) -> Counter[str]:
    """The token counts of a usage object by name, also those one level below.

    {"input_tokens": 9, "details": {"cached": 4}} -> {"input_tokens": 9, "cached": 4}
    """
    counts = Counter[str]()
    for group in (*usage.values(), usage):
        for name, count in as_dict(group).items():
            if type(count) is int:  # not a bool
                counts[name] = max(0, count)
    return counts


def merge(fields: Mapping[str, Any], more: Mapping[str, Any]) -> JSON:
    """Add fields to a copy. Dicts that both have are merged, other values replaced."""
    whole = {**fields}
    for name, value in more.items():
        old = whole.get(name)
        if isinstance(old, dict) and isinstance(value, dict):
            value = merge(cast(JSON, old), cast(JSON, value))
        whole[name] = value
    return whole


def grow(whole: JSON, piece: JSON, growing: Container[str]) -> None:
    """Add a streamed piece: it extends the fields in `growing`, and replaces others."""
    for name, value in piece.items():
        old = whole.get(name)
        if old and name in growing:
            whole[name] = old + value
        else:
            whole[name] = value


# ---- the request: each message is encoded once, because records never change


class Encoded(list[bytes]):
    """A list of items that are encoded already: a value in the body of a request.

    prefix: identifies the items and everything before them: see `encode_exchanges`.
    """

    prefix = ""


def encode(value: Any) -> bytes:
    """Encode a value as JSON, with null for NaN and infinity, which JSON doesn't have."""
    return to_json(value, inf_nan_mode="null")


def encode_body(body: Mapping[str, Any]) -> bytes:
    """Encode the body of a request, in which values may be `Encoded`."""
    pieces = list[bytes]()
    for name, value in body.items():
        pieces += b",", encode(name), b":"
        pieces += (b"[", b",".join(value), b"]") if isinstance(value, Encoded) else [encode(value)]
    return b"".join([b"{", *pieces[1:], b"}"])


def split_exchanges(messages: Sequence[Message]) -> list[int]:
    """Find the index at which each exchange starts; after the last comes the number of messages.

    An exchange is a reply, its results, and the user messages before the next reply. It can be
    written without looking at the others. The system prompt is an exchange of its own. A reply
    starts no exchange if it comes directly after another reply, or is empty: requests leave it out.
    """
    bounds = [0] if messages else []
    after_system = after_reply = False
    for at, message in enumerate(messages):
        starts = after_system
        if not isinstance(message, AssistantMessage):
            after_system, after_reply = isinstance(message, SystemMessage), False
        else:
            if not after_reply:
                starts = bool(message.tool_calls or message.text.strip())
            after_system, after_reply = False, True
        if starts and at:
            bounds.append(at)
    return [*bounds, len(messages)]


def extend_prefix(prefix: str, items: Iterable[bytes]) -> str:
    """Identify a prefix that continues with these items."""
    return hashlib.sha256(prefix.encode() + b",".join(items)).hexdigest()[:16]


def encode_exchanges(
    messages: Sequence[Message],
    api: str,
    write: Callable[[Sequence[Message]], Sequence[JSON]],
    *,
    closed_by_reply: bool = False,
    prefix: str = "",
    bind: Callable[[Sequence[Message], str], Sequence[Message]] | None = None,
) -> Encoded:
    """Encode the items of `write(exchange)` for each exchange.

    The first message of an exchange keeps the encoded items for later requests to the same API.
    They're written again if another message of the exchange has changed, such as a result that is
    hidden now.

    closed_by_reply: whether `write` also gets the reply after the exchange, because the items
        before the reply depend on its `raw`.
    prefix: identifies what the request has before the messages, such as the system prompt.
    bind: replaces the messages of an exchange whose content depends on the prefix. It gets the
        exchange, and the identity of everything before the exchange.
    """
    encoded = Encoded()
    for start, end in pairwise(split_exchanges(messages)):
        first, others = messages[start], messages[start + 1 : end]
        closing = messages[end] if closed_by_reply and end < len(messages) else None
        key = api, prefix, others, closing is None, getattr(closing, "raw", None)
        cache = cache_of(first)
        kept: Any = cache.get("encoded", (None, (), ""))
        if kept[0] != key:
            exchange = messages[start:end]
            if bind:
                exchange = bind(exchange, prefix)
            written = write([*exchange, closing] if closing else exchange)
            items = [encode(item) for item in (written[:-1] if closing else written)]
            kept = key, items, extend_prefix(prefix, items) if bind else ""
            cache["encoded"] = kept
        encoded += kept[1]
        prefix = kept[2]
    encoded.prefix = prefix
    return encoded


def split_system(messages: Sequence[Message]) -> tuple[list[str], list[Message]]:
    """The texts of the system messages, and the other messages."""
    texts = [message.content for message in messages if type(message) is SystemMessage]
    return texts, [message for message in messages if type(message) is not SystemMessage]


def from_user(messages: Sequence[Message]) -> Sequence[Message]:
    """Put an empty user message first if another role would be: some APIs refuse that."""
    first = next((one for one in messages if not isinstance(one, SystemMessage)), None)
    if isinstance(first, UserMessage | ToolMessage):
        return messages
    return [UserMessage(""), *messages]


def resumed(messages: Sequence[Message], owner: str = "") -> Sequence[Message]:
    """Ask to go on with a reply that another server paused: only its own server continues it."""
    last = messages[-1] if messages else None
    if not isinstance(last, AssistantMessage) or last.stop_reason != "pause":
        return messages
    is_own = as_dict(last.raw).get("owner") == owner
    return messages if is_own else [*messages, UserMessage("Go on.")]


def in_turns(
    messages: Sequence[Message],
    write_reply: Callable[[AssistantMessage], Sequence[JSON]],
    write_result: Callable[[ToolMessage], Sequence[JSON]],
    write_part: Callable[[Part], JSON | None],
) -> list[tuple[str, list[JSON]]]:
    """Group messages into turns of alternating roles. A turn of the user may be empty.

    Results and the user messages after them are one turn. System messages are turns of their own.
    """
    turns = list[tuple[str, list[JSON]]]()
    for message in messages:
        role = "user"
        blocks: Sequence[JSON]
        if isinstance(message, SystemMessage):
            role, blocks = "system", write_content(message.content, write_part)
        elif isinstance(message, AssistantMessage):
            role, blocks = "assistant", write_reply(message)
        elif isinstance(message, ToolMessage):
            blocks = write_result(message)
        else:
            blocks = write_content(message.content, write_part)
        if turns and turns[-1][0] == role:
            turns[-1][1].extend(blocks)
        elif blocks or role == "user":
            turns.append((role, [*blocks]))
    return turns


def write_content(content: Content, write_part: Callable[[Part], JSON | None]) -> list[JSON]:
    """Write the parts of a message, except those for which `write_part` returns None."""
    if isinstance(content, str):
        content = [TextPart(content)]
    return [*filter(None, map(write_part, content))]


@lru_cache
def applies(rule: str, server: str) -> bool:
    """Whether a rule for some servers, a regular expression, applies to this one."""
    return bool(re.search(rule, server))


@lru_cache
def owner_id(address: str) -> str:
    """Identify a server, or a server and a model: opaque reasoning only goes back to its owner.

    It's a hash, because the address may contain a password.
    """
    return hashlib.sha256(address.encode()).hexdigest()[:16]


def needed_thoughts(message: AssistantMessage, server: str) -> str:
    """The thoughts that a server requires with a reply; "" if it requires none.

    server: its address and the model.
    """
    if not applies(NEEDS_THOUGHTS, server):
        return ""
    return message.thinking or "(not recorded)"  # some models reject ""


def kept_blocks(
    message: AssistantMessage,
    field: str,
    provider: str,
    owner: str,
    mark: str,
    calls: Sequence[JSON],
    text_of: Callable[[Sequence[JSON]], str],
) -> list[JSON]:
    """The blocks that the provider sent, with the message's calls in place of the original calls.

    They're in `raw[field]`. A block is a call if its type, or one of its keys, is `mark`. Returns
    [] if another provider or owner sent the blocks, if the message's text or calls have changed
    since, or if a field has a type that the provider would refuse.
    """
    raw = as_dict(message.raw)
    if raw.get("provider") != provider or raw.get("owner", owner) != owner:
        return []
    left = [*calls]
    blocks = list[JSON]()
    for block in as_dicts(raw, field):
        if not _is_returnable(block):
            return []
        if block.get("type") == mark or mark in block:
            if not left:
                return []
            block = block | left.pop(0)
        blocks.append(block)
    if left or text_of(blocks) != message.content:
        return []
    return blocks


def _is_returnable(block: Any) -> bool:
    """Whether the fields of a block that are text at every provider are text."""
    if not isinstance(block, dict):
        return False
    fields = cast(JSON, block)
    names = {"text", "thinking", "signature", "thoughtSignature"} & fields.keys()
    if fields.get("type") == "thinking":
        names.add("thinking")
    if not all(isinstance(fields.get(name), str) for name in names):
        return False
    if not all(isinstance(fields.get(name), str | None) for name in ("id", "role", "type")):
        return False
    parts: list[Any] = []
    for name in ("content", "summary"):  # lists of parts, or anything
        inner = fields.get(name)
        parts += inner if isinstance(inner, list) else []
    return all(map(_is_returnable, parts))


def readable(
    messages: Sequence[Message], provider: str, reads: str, max_image: float = math.inf
) -> list[Message]:
    """Put text in place of the files that the provider's models can't read.

    The API would refuse this request, and each later one, because they all have the file.

    reads: matches the media types that the models can read.
    max_image: how many characters an image may have in base64.
    """
    read = list[Message]()
    for message in messages:
        if not isinstance(message.content, str):
            parts = [_as_readable(part, provider, reads, max_image) for part in message.content]
            message = replace(message, content=parts)
        read.append(message)
    return read


def _as_readable(part: Part, provider: str, reads: str, max_image: float) -> Part:
    """The part, or a text in its place: the text of a text file, or what is missing."""
    if isinstance(part, TextPart):
        return part
    if isinstance(part, Unknown):
        return TextPart("[Left out: a part that this version of agentloop doesn't know.]")
    kind, data, url, own = attachment(part, provider)
    if own or url:
        return part
    is_image = kind.startswith("image/")
    limit = max_image if is_image else math.inf
    if re.fullmatch(reads, kind) and 0 < len(data) <= limit:
        if is_image == isinstance(part, ImagePart):
            return part
        fitting = ImagePart if is_image else FilePart  # APIs refuse an image as a file
        return fitting(part.url, part.data, part.media_type, extra=part.extra)
    with suppress(ValueError):  # it isn't text
        text = base64.b64decode(data).decode()
        if text.strip() and "\0" not in text:
            name = getattr(part, "name", None)
            return TextPart(f"{name}:\n{text}" if name else text)
    about = f"a file of type {kind} with {len(data) * 3 / 4000:,.0f} kB"
    logger.warning("left out %s: this model can't read it", about)
    return TextPart(f"[Left out: {about}, which this model can't read.]")


def attachment(part: Part, provider: str) -> tuple[str, str, str | None, JSON]:
    """The media type of an image or a file, its data in base64, its URL if it has one, and the
    provider's fields in its `extra`.
    """
    assert isinstance(part, ImagePart | FilePart)  # others have become text
    own = as_dict(part.extra, provider)
    kind, url = part.media_type or "", part.url
    data = base64.b64encode(part.data or b"").decode()
    if found := re.fullmatch("data:([^;,]+);base64,(.*)", url or ""):
        kind, data, url = found[1], found[2], None
    return kind.replace("image/jpg", "image/jpeg"), data, url, own  # a usual slip


def rewrite_schema(schema: JSON, refused: str, rewrite: Callable[[JSON], JSON]) -> JSON:
    """Copy a JSON schema: leave out keywords that match `refused`, and `rewrite` each subschema."""

    def visit(found: JSON) -> JSON:
        kept = JSON()
        for name, value in found.items():
            # a property may be named like a keyword, but then its value is a schema; only
            # `discriminator` is a keyword whose value is another dict
            is_property = isinstance(value, dict) and "propertyName" not in value
            if is_property or not re.fullmatch(refused, name):
                kept[name] = value
        return rewrite(kept)

    copied: JSON = json.loads(json.dumps(schema), object_hook=visit)
    return copied


def wire_name(name: str) -> str:
    """A tool name that every provider accepts.

    The model may invent a name. Its call gets an error result, but is in all later requests.
    """
    return re.sub("[^a-zA-Z0-9_-]", "_", name)[:64] or "_"


def wire_id(call_id: str, allowed: str = "(?s).{,40}") -> str:
    """The id of a call, or nine characters of its hash if the id doesn't match `allowed`.

    Such an id comes from another server, and this one would reject it. Mistral accepts only nine.
    """
    if re.fullmatch(allowed, call_id):
        return call_id
    return hashlib.sha256(call_id.encode()).hexdigest()[:9]


def wire_arguments(call: ToolCall) -> str:
    """The arguments as the model wrote them if they're a JSON object, otherwise "{}".

    With invalid arguments in the history, providers would reject all later requests.
    """
    return "{}" if call.parsed is None else call.arguments


def declare(tool: Tool, provider: str, schema: JSON) -> JSON:
    """Declare a tool: its name, description, schema, and the fields in its `extra`."""
    about = {"name": tool.name, "description": tool.description}
    return about | schema | as_dict(tool.extra, provider)


# ---- the reply


def check_types(blocks: Sequence[JSON]) -> None:
    """Raise BadResponse if a block has no type, because later requests couldn't contain it."""
    if not all(isinstance(block.get("type"), str) for block in blocks):
        raise BadResponse("a block has no type")


def read_citations(sources: Any, start: int, end: int) -> Iterator[Citation]:
    """Yield the sources that are cited for `text[start:end]`.

    OpenAI's sources have positions of their own, which are added to `start` and `end`.
    """
    for source in as_dicts(sources):
        if source.get("type") == "file":
            continue  # OpenRouter: the content of a file in the request
        about = {**source}
        for nested in source.values():  # nested in Chat Completions, and at Google
            about |= as_dict(nested)
        places = read_counts(about)
        yield Citation(
            first_text(about, "url", "uri", "source", "sourceUri"),
            first_text(about, "title", "document_title", "filename"),
            start + places["start_index"],
            end + places["end_index"],
            clean_json(source),
        )


def stop_reason(reasons: Mapping[str, str], word: Any, calls: Sequence[ToolCall]) -> str | None:
    """The stop reason for a finish reason; an unknown one stays as it is.

    A regular end with calls is "tool_calls". Raises BadResponse if the reason isn't text.
    """
    if not isinstance(word, str | None):
        raise BadResponse(f"the finish reason must be text, not {word}")
    found = reasons.get(word or "", word) or None
    if calls and found in ("end", None):
        return "tool_calls"
    return found


def retry_after(headers: Mapping[str, str], body: str) -> float | None:
    """The seconds that a response asks to wait; None if it doesn't say.

    `retry-after` has seconds or an HTTP date; `retry-after-ms` (OpenAI, Azure) counts before
    seconds. Google sends the delay in the body. Source:
    https://cloud.google.com/apis/design/errors#error_details (RetryInfo).
    """
    header = headers.get("retry-after", "")
    for pattern, text, unit in (
        (NUMBER, headers.get("retry-after-ms", ""), 0.001),
        (NUMBER, header, 1.0),
        (f'(?s).*"retryDelay": *"{NUMBER}', body, 1.0),
    ):
        if number := re.match(pattern, text):
            return float(number[1]) * unit
    with suppress(ValueError):
        return max(0.0, parsedate_to_datetime(header).timestamp() - time.time())
    return None


def storable(message: AssistantMessage) -> AssistantMessage:
    """A message whose `raw` can be stored: lone surrogates become U+FFFD.

    Raises ValueError if `raw` can't be written as JSON.
    """
    if message.raw is None:
        return message
    return replace(message, raw=clean_json(message.raw))


# ---- streams


# How a data line begins. The second has a byte-order mark; GPUStack sends the third.
DATA = (b"data", b"\xef\xbb\xbfdata", b"error")


class EventParser:
    """Parses server-sent events: `feed` takes pieces of any size, and returns the events' data.

    Source: https://html.spec.whatwg.org/multipage/server-sent-events.html#parsing-an-event-stream
    """

    def __init__(self) -> None:
        self._line = bytearray()  # the incomplete line
        self._data = bytearray()  # the data of the incomplete event

    def feed(self, piece: bytes) -> list[bytes]:
        """Take the next piece. Returns the data of the events that it completes."""
        ends_line = b"\n" in piece or b"\r" in piece or self._line.endswith(b"\r")
        self._line.extend(piece)
        if not ends_line:
            return []  # copy nothing, so that a line of many pieces takes linear time
        events = list[bytes]()
        lines = bytes(self._line).splitlines(keepends=True)
        self._line.clear()
        if not lines[-1].endswith(b"\n"):  # incomplete, or ends with the first half of \r\n
            self._line += lines.pop()
        for line in lines:
            name, _, value = line.partition(b":")
            if name in DATA:
                self._data += value.strip()
            elif self._data and not line.strip():
                events.append(bytes(self._data))
                self._data.clear()
        return events


@dataclass
class Accumulator(ABC):
    """Puts a streamed reply together, and emits its pieces to a listener."""

    on_delta: OnDelta | None = None
    shown: bool = False
    """Whether text or thinking was emitted. If so, the attempt isn't repeated."""
    complete: bool = False
    """Whether the end of the reply has arrived."""
    body: bytearray = field(default_factory=bytearray)
    """The bytes of this attempt's response, streamed or whole."""
    data: JSON = field(default_factory=JSON)
    """The part of the reply that has arrived."""
    texts: list[str] = field(default_factory=list[str])
    """The pieces of the answer that were emitted."""

    @abstractmethod
    def add(self, event: JSON) -> None:
        """Take the next event, and emit its pieces."""

    def end(self) -> None:
        """Note that the stream is at its end."""
        self.complete = True

    def reply(self) -> JSON:
        """The reply in the form that `HTTPModel.read` takes."""
        return self.data

    def text(self, piece: str) -> None:
        """Emit a piece of the answer's text."""
        if piece and self.on_delta:
            piece = clean_text(piece)
            self.shown = True
            self.texts.append(piece)
            self.on_delta(TextDeltaEvent(piece))

    def thinking(self, piece: str) -> None:
        """Emit a piece of the thinking."""
        if piece and self.on_delta:
            piece = clean_text(piece)
            self.shown = True
            self.on_delta(ThinkingDeltaEvent(piece))

    def call(self, piece: str, tool: str, call_id: str) -> None:
        """Emit a piece of a call's arguments."""
        if piece and self.on_delta:
            self.on_delta(ToolCallDeltaEvent(clean_text(piece), tool, call_id))
