"""The data of a run: messages, content parts, marks, usage and results.

Copy with: nothing else.

Everything here is a frozen record. A log is a list of records, and a saved log is a list of lines:
`dump_record` writes a line and `load_record` reads it back. Fields and record types that this
version does not know survive the round trip.
"""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cache
from typing import Any, ClassVar, TypeAlias, cast

from pydantic import ConfigDict, TypeAdapter
from pydantic_core import from_json, to_json

Extra: TypeAlias = Mapping[str, Any] | None  # what else is known of a record
ToolChoice: TypeAlias = str
"""`"auto"`, `"required"`, `"none"`, or the name of the tool that has to be called."""


def no_extra() -> Any:
    """The default of `extra`, which does not count in a hash."""
    return field(default=None, hash=False)


def clean_text(text: str) -> str:
    """Text that UTF-8 can carry: surrogate pairs are joined, lone surrogates become U+FFFD."""
    if text.isascii():
        return text
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


class _Texts:
    """A record whose texts are clean from the start."""

    __slots__ = ()
    __dataclass_fields__: ClassVar[dict[str, Any]]

    def __post_init__(self) -> None:
        for name in self.__dataclass_fields__:
            if isinstance(value := getattr(self, name), str):
                object.__setattr__(self, name, clean_text(value))


class _Content(_Texts):
    """A message of text or parts. A string among the parts becomes a TextPart."""

    __slots__ = ()
    content: Content

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.content, str):
            return
        parts = tuple(TextPart(each) if isinstance(each, str) else each for each in self.content)
        if not all(isinstance(cast(Any, part), Part) for part in parts):
            raise TypeError(f"content is text, or TextPart, ImagePart, FilePart; not {parts!r:.80}")
        object.__setattr__(self, "content", parts)

    @property
    def text(self) -> str:
        """The text, without images and files."""
        return text_of(self.content)


# ---- content parts


@dataclass(frozen=True, slots=True)
class TextPart(_Texts):
    """A piece of text."""

    text: str
    extra: Extra = no_extra()


@dataclass(frozen=True, slots=True)
class _Attachment:
    url: str | None = None
    data: bytes | None = field(default=None, repr=False)
    media_type: str | None = None
    extra: Extra = no_extra()

    def __post_init__(self) -> None:
        kind = type(self).__name__
        if (self.url is None) == (self.data is None):
            raise ValueError(f"{kind} needs either url= or data=, and not both")
        if self.data is not None and not self.media_type:
            raise ValueError(f"{kind} with data= needs a media_type=, such as 'image/png'")


@dataclass(frozen=True, slots=True)
class ImagePart(_Attachment):
    """An image: a `url`, or `data` (bytes) with its `media_type` (such as "image/png")."""


@dataclass(frozen=True, slots=True)
class FilePart(_Attachment):
    """A file (a PDF, say): a `url`, or `data` (bytes) with its `media_type`; `name` is shown."""

    name: str | None = None


@dataclass(frozen=True, slots=True)
class Unknown:
    """A record or a part of a type that this version does not know, kept as it was read."""

    data: Mapping[str, Any] = field(hash=False)


Part: TypeAlias = TextPart | ImagePart | FilePart | Unknown
Content: TypeAlias = str | Sequence[Part]


def text_of(content: Content) -> str:
    """The text of some content, without its images and files."""
    if isinstance(content, str):
        return content
    return "\n".join(part.text for part in content if isinstance(part, TextPart))


# ---- messages


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
    extra: Extra = no_extra()

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
class ToolCall(_Texts):
    """A call that the model asks for; `arguments` is the JSON text as the model wrote it."""

    id: str
    name: str
    arguments: str = "{}"
    extra: Extra = no_extra()

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
        """The model's own text if it is a JSON object, else "{}".

        Providers refuse a history that holds anything but a JSON object here, for ever.
        """
        return "{}" if self.parsed is None else self.arguments


@dataclass(frozen=True, slots=True)
class SystemMessage(_Texts):
    """The system prompt. It is a setting and never in a log, so that nothing can lose it."""

    content: str

    @property
    def text(self) -> str:
        return self.content


@dataclass(frozen=True, slots=True)
class UserMessage(_Content):
    """What the user says, as text or parts. `hidden`: the library said it, not the user."""

    content: Content
    hidden: bool = False
    extra: Extra = no_extra()


@dataclass(frozen=True, slots=True)
class AssistantMessage(_Texts):
    """What the model said: text, tool calls, thinking, and what that cost.

    `stop_reason` is one of "end", "tool_calls", "length" (cut off by the output limit), "refused",
    "pause", "context_overflow", or the provider's own word if it is none of these. None counts as
    "end". `raw` is opaque: the provider's own blocks, for the provider that made them. `usage` is
    None if the provider reported none. `model` is who answered, `seconds` how long that took.
    """

    content: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    thinking: str | None = None
    usage: Usage | None = None
    stop_reason: str | None = None
    raw: Any = field(default=None, hash=False, repr=False)
    extra: Extra = no_extra()
    model: str | None = field(default=None, compare=False, repr=False)
    seconds: float | None = field(default=None, compare=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "content", self.content or "")  # providers send null
        object.__setattr__(self, "tool_calls", tuple(self.tool_calls or ()))
        _Texts.__post_init__(self)

    @property
    def text(self) -> str:
        return self.content


@dataclass(frozen=True, slots=True)
class ToolMessage(_Content):
    """The result of one call, which took so many `seconds`.

    `ephemeral` is how many newest results of this tool stay visible; 0 means all of them.
    """

    tool_call_id: str
    tool_name: str
    content: Content
    is_error: bool = False
    ephemeral: int = 0
    extra: Extra = no_extra()
    seconds: float | None = field(default=None, compare=False, repr=False)


Message: TypeAlias = SystemMessage | UserMessage | AssistantMessage | ToolMessage


# ---- marks: what happened, for the log and not for the model


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark(_Texts):
    """Something that happened. `at` is Unix time in seconds."""

    at: float = field(default_factory=time.time)
    extra: Extra = no_extra()


@dataclass(frozen=True, slots=True)
class RunStart(Mark):
    """A run began."""


@dataclass(frozen=True, slots=True)
class RunEnd(Mark):
    """A run ended: `stop_reason` is that of its Result, or "cancelled", or "error" if it raised."""

    stop_reason: str


@dataclass(frozen=True, slots=True)
class ToolStart(Mark):
    """The function behind a call is about to run: from here on it may have had effects."""

    call_id: str


@dataclass(frozen=True, slots=True)
class Summary(Mark):
    """The conversation was summarized: see `view` for how the model sees it from here on.

    `content` stands for the records before number `keep`.
    """

    content: str
    keep: int
    usage: Usage | None = None
    model: str | None = None


@dataclass(frozen=True, slots=True)
class Reset(Mark):
    """The history was cleared, or replaced by what follows: nothing before this counts."""


@dataclass(frozen=True, slots=True)
class Decision(Mark):
    """Somebody, or a rule, allowed a call or denied it."""

    call_id: str
    allowed: bool
    reason: str = ""


@dataclass(frozen=True, slots=True)
class SideRequest(Mark):
    """A model request that left no message, so that its tokens are counted all the same."""

    usage: Usage | None = None
    model: str | None = None


Record: TypeAlias = (
    UserMessage
    | AssistantMessage
    | ToolMessage
    | RunStart
    | RunEnd
    | ToolStart
    | Summary
    | Reset
    | Decision
    | SideRequest
    | Unknown
)


# ---- how a run ends


@dataclass(frozen=True, slots=True)
class Result:
    """How a run ended.

    `stop_reason` is one of "completed" (a plain answer), "done" (a done tool), "max_iterations",
    "interrupted", "needs_approval", "refused", "no_progress", "context_overflow", "limit:<which>"
    ("limit:length": the model's answer was cut off), or "unknown:<word>", the provider's own word
    for a reason that we do not know. `value` is what a done tool handed over, `usage` is this run's
    tokens, `pending` are calls that still wait for an answer.
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

_TYPES: dict[Any, Any] = {
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
_TAGS = {cls: {"type": tag} for tag, cls in _TYPES.items()}
_FIELDS: dict[Any, dict[str, Any]] = {
    cls: {each.name: each.default for each in fields(cls) if each.name != "extra"}
    for cls in (*_TAGS, Usage, ToolCall)
}
MAX_DEPTH = 150  # of brackets in a line that is surely read back


def to_dict(value: Any) -> Any:
    """The record as plain JSON data, its type under "type"; fields at their default are left out.

    Bytes become base64 text.
    """
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, tuple):
        return [to_dict(item) for item in cast(Sequence[Any], value)]
    if isinstance(value, Unknown):
        return dict(value.data)
    if type(value) not in _FIELDS:
        return value
    data: dict[str, Any] = dict(getattr(value, "extra", None) or {}) | _TAGS.get(type(value), {})
    for name, default in _FIELDS[type(value)].items():
        if (found := getattr(value, name)) != default:
            data[name] = to_dict(found)
        else:
            data.pop(name, None)  # of `extra`
    return data


def from_dict(data: Any) -> Any:
    """The record (or part) that `to_dict` was given. ValueError: it is none."""
    record: Any = _build(_TYPES.get(data["type"], Unknown), data)
    return _adapter(_TYPES.get(data["type"], Unknown)).validate_python([record])[0]


@cache
def _adapter(cls: Any) -> TypeAdapter[Any]:
    generic: Any = list
    return TypeAdapter[Any](
        generic[cls], config=ConfigDict(strict=True, revalidate_instances="always")
    )


def _build(cls: Any, data: Mapping[str, Any]) -> Any:
    if cls is Unknown:
        return Unknown(data)
    known = {name: value for name, value in data.items() if name in _FIELDS[cls]}
    extra = {name: data[name] for name in data.keys() - known.keys() - _TAGS.get(cls, {}).keys()}
    for name, value in known.items():
        if name == "content" and isinstance(value, list):
            parts = cast(list[dict[str, Any]], value)
            known[name] = [_build(_TYPES.get(part["type"], Unknown), part) for part in parts]
        elif name == "tool_calls":
            known[name] = tuple(_build(ToolCall, call) for call in value)
        elif name == "usage":
            known[name] = _build(Usage, value)
        elif name == "data":
            known[name] = base64.b64decode(value)
    return cls(**known, extra=extra) if extra else cls(**known)


def dump_record(record: Record | Message) -> bytes:
    """The record as one line of JSON, without the line's end.

    ValueError: `raw` or `extra` holds what is no JSON, or is nested too deep to be read back.
    """
    data = to_dict(record)
    try:
        line = to_json(data, inf_nan_mode="strings")
    except UnicodeEncodeError:  # in `raw` or `extra`
        line = clean_text(json.dumps(data, ensure_ascii=False)).encode()
    if line.count(b"[") + line.count(b"{") > MAX_DEPTH:  # it may be deeper than can be read back
        from_json(line)
    return line


def load_record(line: str | bytes) -> Any:
    """The record that a line holds; one of an unknown type comes back as `Unknown`, whole.

    ValueError: the line is no JSON object, or a record with a missing or a wrong field.
    """
    try:
        return from_dict(from_json(line))
    except (TypeError, AttributeError, KeyError) as error:
        raise ValueError(f"this line is no record: {error!r}") from None
