"""The data of a run: messages, content parts, marks, usage, requests and results.

Copy with: nothing else.

Everything here is a frozen record. A log is a list of them, and a saved log is a list of lines:
`dump_record` writes one, `load_record` reads it back, and what this version does not know yet
(fields, whole record types) survives the round trip.
"""

from __future__ import annotations

import base64
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import Field, dataclass, field, fields
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar, cast

from pydantic_core import from_json, to_json

if TYPE_CHECKING:
    from .loop import ChatModel
    from .tools import Tool

ToolChoice: TypeAlias = str
"""`"auto"`, `"required"`, `"none"`, or the name of the tool that has to be called."""


def clean_text(text: str) -> str:
    """Text that UTF-8 can carry: surrogate pairs are joined, lone surrogates become U+FFFD."""
    if text.isascii():
        return text
    try:
        text.encode()
        return text
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _clean(record: Any, *names: str) -> None:
    for name in names:
        if isinstance(value := getattr(record, name), str) and not value.isascii():
            object.__setattr__(record, name, clean_text(value))


# ---- content parts


@dataclass(frozen=True, slots=True)
class TextPart:
    """A piece of text."""

    text: str
    extra: Mapping[str, Any] | None = field(default=None, hash=False)

    def __post_init__(self) -> None:
        _clean(self, "text")


@dataclass(frozen=True, slots=True)
class ImagePart:
    """An image: a `url`, or `data` (bytes) with its `media_type` (such as "image/png")."""

    url: str | None = None
    data: bytes | None = field(default=None, repr=False)
    media_type: str | None = None
    extra: Mapping[str, Any] | None = field(default=None, hash=False)

    def __post_init__(self) -> None:
        _need_one_source(self)


@dataclass(frozen=True, slots=True)
class FilePart:
    """A file (a PDF, say): a `url`, or `data` (bytes) with its `media_type`; `name` is shown."""

    url: str | None = None
    data: bytes | None = field(default=None, repr=False)
    media_type: str | None = None
    name: str | None = None
    extra: Mapping[str, Any] | None = field(default=None, hash=False)

    def __post_init__(self) -> None:
        _need_one_source(self)


@dataclass(frozen=True, slots=True)
class Unknown:
    """A record or a part of a type that this version does not know, kept as it was read."""

    data: Mapping[str, Any] = field(hash=False)


Part: TypeAlias = TextPart | ImagePart | FilePart | Unknown
Content: TypeAlias = str | Sequence[Part]


def _need_one_source(part: ImagePart | FilePart) -> None:
    kind = type(part).__name__
    if (part.url is None) == (part.data is None):
        raise ValueError(f"{kind} needs either url= or data=, and not both")
    if part.data is not None and not part.media_type:
        raise ValueError(f"{kind} with data= needs a media_type=, such as 'image/png'")
    if isinstance(cast(Any, part.data), bytearray | memoryview):
        object.__setattr__(part, "data", bytes(part.data or b""))


def _freeze_content(message: UserMessage | ToolMessage) -> None:
    """Clean text, or a tuple of parts; a plain string among the parts becomes a TextPart."""
    if isinstance(message.content, str):
        _clean(message, "content")
        return
    if not isinstance(cast(Any, message.content), list | tuple):
        raise TypeError(f"content is text, or a list of parts; got {message.content!r:.80}")
    parts = tuple(TextPart(part) if isinstance(part, str) else part for part in message.content)
    for part in parts:
        if type(part) not in (TextPart, ImagePart, FilePart, Unknown):
            raise TypeError(f"content is text or TextPart, ImagePart, FilePart; got {part!r:.80}")
    object.__setattr__(message, "content", parts)


def text_of(content: Content | None) -> str:
    """The text of some content, without its images and files."""
    if content is None or isinstance(content, str):
        return content or ""
    return "\n".join(part.text for part in content if isinstance(part, TextPart))


# ---- messages

Wire: TypeAlias = tuple[str, bytes] | None
"""A kind of provider, and the bytes of a message for it: see `written`."""


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of one request, or of several added up.

    `input_tokens` includes `cached_input_tokens` (read from the provider's cache) and
    `cache_write_tokens`; `output_tokens` includes `reasoning_tokens`. Nothing is counted twice.
    """

    input_tokens: int = 0
    output_tokens: int = 0
    cached_input_tokens: int = 0
    cache_write_tokens: int = 0
    reasoning_tokens: int = 0
    extra: Mapping[str, Any] | None = field(default=None, hash=False)

    @property
    def total_tokens(self) -> int:
        return self.input_tokens + self.output_tokens

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            self.input_tokens + other.input_tokens,
            self.output_tokens + other.output_tokens,
            self.cached_input_tokens + other.cached_input_tokens,
            self.cache_write_tokens + other.cache_write_tokens,
            self.reasoning_tokens + other.reasoning_tokens,
        )


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call that the model asks for; `arguments` is the JSON text as the model wrote it."""

    id: str
    name: str
    arguments: str = "{}"
    extra: Mapping[str, Any] | None = field(default=None, hash=False)

    def __post_init__(self) -> None:
        _clean(self, "id", "name", "arguments")

    @property
    def parsed(self) -> dict[str, Any] | None:
        """The arguments if they are a JSON object, else None."""
        try:
            value = from_json(self.arguments, allow_inf_nan=False)
        except ValueError:
            return None
        return cast(dict[str, Any], value) if isinstance(value, dict) else None

    @property
    def wire_arguments(self) -> str:
        """Arguments as providers accept them: the model's own text, or "{}" if that is no object.

        Providers refuse a history that holds anything but a JSON object here, for ever.
        """
        return "{}" if self.parsed is None else self.arguments


@dataclass(frozen=True, slots=True)
class SystemMessage:
    """The system prompt. Never in a log: it is a setting, so that nothing can lose it."""

    content: str
    wire: Wire = field(default=None, init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        _clean(self, "content")

    @property
    def text(self) -> str:
        return self.content


@dataclass(frozen=True, slots=True)
class UserMessage:
    """What the user says, as text or parts. `hidden`: the library said it, not the user."""

    content: Content
    hidden: bool = False
    extra: Mapping[str, Any] | None = field(default=None, hash=False)
    wire: Wire = field(default=None, init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        _freeze_content(self)

    @property
    def text(self) -> str:
        return text_of(self.content)


@dataclass(frozen=True, slots=True)
class AssistantMessage:
    """What the model said: text, tool calls, thinking, and what that cost.

    `stop_reason` is one of "end", "tool_calls", "length" (cut off by the output limit), "refused",
    "pause", "context_overflow", or the provider's own word if it is none of these; None says
    nothing and counts as "end". `raw` is opaque: the provider's own blocks, for the provider that
    made them. `usage` is None if the provider reported none. `model` is who answered, and `seconds`
    how long that took.
    """

    content: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    thinking: str | None = None
    usage: Usage | None = None
    stop_reason: str | None = None
    raw: Any = field(default=None, hash=False, repr=False)
    extra: Mapping[str, Any] | None = field(default=None, hash=False)
    model: str | None = field(default=None, compare=False, repr=False)
    seconds: float | None = field(default=None, compare=False, repr=False)
    wire: Wire = field(default=None, init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "content", self.content or "")  # providers send null
        object.__setattr__(self, "tool_calls", tuple(self.tool_calls or ()))
        _clean(self, "content", "thinking")

    @property
    def text(self) -> str:
        return self.content


@dataclass(frozen=True, slots=True)
class ToolMessage:
    """The result of one call, which took so many `seconds`.

    `ephemeral` is how many newest results of this tool stay visible; 0 means all of them.
    """

    tool_call_id: str
    tool_name: str
    content: Content
    is_error: bool = False
    ephemeral: int = 0
    extra: Mapping[str, Any] | None = field(default=None, hash=False)
    seconds: float | None = field(default=None, compare=False, repr=False)
    wire: Wire = field(default=None, init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        _freeze_content(self)
        _clean(self, "tool_call_id", "tool_name")

    @property
    def text(self) -> str:
        return text_of(self.content)


Message: TypeAlias = SystemMessage | UserMessage | AssistantMessage | ToolMessage


M = TypeVar("M", AssistantMessage, ToolMessage)


def stamped(message: M, seconds: float, model: str | None = None) -> M:
    """A message that nobody has recorded yet, with how long it took and who made it.

    In place: `replace` takes 2 us, and this says nothing that messages are compared by.
    """
    object.__setattr__(message, "seconds", round(seconds, 3))
    if isinstance(message, AssistantMessage) and message.model is None:
        object.__setattr__(message, "model", model)
    return message


def written(
    messages: Sequence[Message], kind: str, write: Callable[[Message], bytes]
) -> list[bytes]:
    """The messages as bytes for one kind of provider. Each is written once and keeps its bytes: it
    is frozen, and a conversation of 400 turns would take 2 ms a turn to write anew."""
    return [
        kept[1] if (kept := message.wire) and kept[0] == kind else _write(message, kind, write)
        for message in messages
    ]


def _write(message: Message, kind: str, write: Callable[[Message], bytes]) -> bytes:
    kept = (kind, write(message))
    object.__setattr__(message, "wire", kept)
    return kept[1]


# ---- marks: what happened, for the log and not for the model


@dataclass(frozen=True, slots=True)
class RunStart:
    """A run began. `at` is Unix time in seconds, here and in every mark."""

    at: float = field(default_factory=time.time)
    extra: Mapping[str, Any] | None = field(default=None, hash=False)


@dataclass(frozen=True, slots=True)
class RunEnd:
    """A run ended: `stop_reason` is that of its Result, or "error" if it raised."""

    stop_reason: str
    at: float = field(default_factory=time.time)
    extra: Mapping[str, Any] | None = field(default=None, hash=False)


@dataclass(frozen=True, slots=True)
class ToolStart:
    """The function behind a call is about to run: from here on it may have had effects."""

    call_id: str
    at: float = field(default_factory=time.time)
    extra: Mapping[str, Any] | None = field(default=None, hash=False)


@dataclass(frozen=True, slots=True)
class Summary:
    """From here on the view is: the first task, `content`, and the log's records from `keep` on."""

    content: str
    keep: int
    usage: Usage | None = None
    at: float = field(default_factory=time.time)
    extra: Mapping[str, Any] | None = field(default=None, hash=False)
    model: str | None = None

    def __post_init__(self) -> None:
        _clean(self, "content")


@dataclass(frozen=True, slots=True)
class Reset:
    """The history was cleared, or replaced by what follows: nothing before this counts."""

    at: float = field(default_factory=time.time)
    extra: Mapping[str, Any] | None = field(default=None, hash=False)


@dataclass(frozen=True, slots=True)
class Decision:
    """Somebody, or a rule, allowed a call or denied it."""

    call_id: str
    allowed: bool
    reason: str = ""
    at: float = field(default_factory=time.time)
    extra: Mapping[str, Any] | None = field(default=None, hash=False)

    def __post_init__(self) -> None:
        _clean(self, "reason")


@dataclass(frozen=True, slots=True)
class SideRequest:
    """A model request that left no message, so that its tokens are counted all the same."""

    usage: Usage | None = None
    at: float = field(default_factory=time.time)
    extra: Mapping[str, Any] | None = field(default=None, hash=False)
    model: str | None = None


Mark: TypeAlias = RunStart | RunEnd | ToolStart | Summary | Reset | Decision | SideRequest
Record: TypeAlias = UserMessage | AssistantMessage | ToolMessage | Mark | Unknown


# ---- what goes into a model, and what comes out of a run


@dataclass(frozen=True, slots=True)
class Request:
    """One model request. `purpose` is "step" for the loop's own, another word for side requests.

    `model` answers it instead of the agent's own.
    """

    messages: Sequence[Message]
    tools: Sequence[Tool] = ()
    tool_choice: ToolChoice = "auto"
    purpose: str = "step"
    model: ChatModel | None = None


@dataclass(frozen=True, slots=True)
class Result:
    """How a run ended.

    `stop_reason` is one of "completed" (a plain answer), "done" (a done tool), "max_iterations",
    "interrupted", "needs_approval", "refused", "no_progress", "context_overflow", "limit:<which>"
    ("limit:length": the model's answer was cut off, or its calls three times in a row), or
    "unknown:<word>", the provider's own word for a reason that we do not know. `value` is what a
    done tool handed over, `usage` is this run's tokens, `pending` are calls that still wait for an
    answer.
    """

    text: str = ""
    value: Any = None
    stop_reason: str = "completed"
    usage: Usage = Usage()
    pending: tuple[ToolCall, ...] = ()

    def __str__(self) -> str:
        return self.text


class Stop(Exception):
    """Ends the run with a Result: any seam, any mixin and any tool may raise it."""

    def __init__(self, reason: str, text: str = "", value: Any = None) -> None:
        super().__init__(text or reason)
        self.reason, self.text, self.value = reason, text, value


class TaskComplete(Stop):
    """What a done tool raises: the task is finished, and `message` is the answer.

    A message that is no text becomes the value, and its JSON the text.
    """

    def __init__(self, message: Any = "", value: Any = None) -> None:
        if not isinstance(message, str):
            value = message if value is None else value
            message = "" if message is None else to_json(message, fallback=repr).decode()
        super().__init__("done", message, value)


# ---- JSON

_TYPES: dict[str, type[Any]] = {
    "text": TextPart,
    "image": ImagePart,
    "file": FilePart,
    "system": SystemMessage,
    "user": UserMessage,
    "assistant": AssistantMessage,
    "tool": ToolMessage,
    "run_start": RunStart,
    "run_end": RunEnd,
    "tool_start": ToolStart,
    "summary": Summary,
    "reset": Reset,
    "decision": Decision,
    "side_request": SideRequest,
}
_TAGS = {cls: tag for tag, cls in _TYPES.items()}
_FIELDS: dict[type[Any], dict[str, Field[Any]]] = {
    cls: {f.name: f for f in fields(cls) if f.init} for cls in (*_TYPES.values(), Usage, ToolCall)
}
_SCALARS = (str, int, float, bool)
_DEFAULTS = {
    cls: [(name, each.default) for name, each in of_class.items() if name != "extra"]
    for cls, of_class in _FIELDS.items()
}
_KINDS: dict[Any, Any] = {
    "str": str,
    "str | None": str | None,
    "bool": bool,
    "int": int,
    "float": int | float,
    "float | None": int | float | None,
}


def to_dict(record: Record | Message | Part) -> dict[str, Any]:
    """The record as plain JSON data, its type under "type"; fields at their default are left out.

    Bytes become base64 text.
    """
    if isinstance(record, Unknown):
        return dict(record.data)
    tag = {"type": _TAGS[type(record)]}
    return tag | _plain_fields(record) | tag


def _plain_fields(record: Any) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for name, default in _DEFAULTS[type(record)]:
        value = getattr(record, name)
        if value is not default and value != default:
            out[name] = value if type(value) in _SCALARS else _plain(value)
    extra: dict[str, Any] = getattr(record, "extra", None) or {}
    return out | {name: value for name, value in extra.items() if name not in out}


def _plain(value: Any) -> Any:
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, tuple):
        return [_plain(item) for item in cast(Sequence[Any], value)]
    if isinstance(value, Usage | ToolCall):
        return _plain_fields(value)
    return to_dict(value) if type(value) in _TAGS or isinstance(value, Unknown) else value


def from_dict(data: Mapping[str, Any]) -> Any:
    """The record (or part) that `to_dict` was given. ValueError: it lacks a field that it needs."""
    tag = data.get("type")
    if not isinstance(tag, str):
        raise ValueError(f"a record or a part says its type; this one says {tag!r:.40}")
    if (cls := _TYPES.get(tag)) is None:
        return Unknown(data)
    return _build(cls, {name: value for name, value in data.items() if name != "type"})


def _build(cls: type[Any], data: Mapping[str, Any]) -> Any:
    known = _FIELDS[cls]
    values = {name: _READ.get(name, _as_is)(data[name]) for name in data if name in known}
    for name, value in values.items():
        if not isinstance(value, _KINDS.get(known[name].type, object)):
            raise ValueError(f"a {cls.__name__} record cannot be read: its {name} is {value!r:.40}")
    if unknown := {name: value for name, value in data.items() if name not in known}:
        values["extra"] = unknown
    try:
        return cls(**values)
    except TypeError as error:
        raise ValueError(f"a {cls.__name__} record cannot be read: {error}") from None


def _as_is(value: Any) -> Any:
    return value


def _read_content(value: Any) -> Content:
    return value if isinstance(value, str) else tuple(from_dict(part) for part in value)


def _read_calls(value: Any) -> tuple[ToolCall, ...]:
    return tuple(_build(ToolCall, call) for call in value)


def _read_usage(value: Any) -> Any:
    return _build(Usage, value)


_READ: dict[str, Callable[[Any], Any]] = {
    "content": _read_content,
    "tool_calls": _read_calls,
    "usage": _read_usage,
    "data": base64.b64decode,
}


MAX_DEPTH = 150


def dump_record(record: Record | Message) -> bytes:
    """The record as one line of JSON, without the line's end.

    ValueError: `raw` or `extra` holds what is no JSON, or is nested too deep to be read back.
    """
    data = to_dict(record)
    try:
        line = to_json(data, inf_nan_mode="strings")
    except ValueError:  # text that UTF-8 cannot carry, inside `raw` or `extra`
        line = to_json(_clean_deep(data), inf_nan_mode="strings")
    if line.count(b"[") + line.count(b"{") > MAX_DEPTH:  # it may be deeper than can be read back
        from_json(line)
    return line


def load_record(line: str | bytes) -> Any:
    """The record that a line holds; one of an unknown type comes back as `Unknown`, whole.

    ValueError: the line is no JSON object, or a record that lacks a field it needs.
    """
    data = from_json(line)
    if not isinstance(data, dict):
        raise ValueError(f"a record is a JSON object, not {type(data).__name__}")
    try:
        return from_dict(cast(dict[str, Any], data))
    except (TypeError, AttributeError) as error:
        raise ValueError(f"a record cannot be read: {error}") from None


def _clean_deep(value: Any) -> Any:
    if isinstance(value, str):
        return clean_text(value)
    if isinstance(value, Mapping):
        items = cast(dict[Any, Any], value).items()
        return {clean_text(str(key)): _clean_deep(item) for key, item in items}
    if isinstance(value, list | tuple):
        return [_clean_deep(item) for item in cast(Sequence[Any], value)]
    return value
