"""The data of a run: messages, content parts, marks, usage and results.

Copy with: nothing else.

Everything here is frozen. A log is a list of records: of messages, and of marks that say what
happened. records.py writes a record as a line of JSON, and reads it back.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, TypeVar, cast, dataclass_transform

from pydantic_core import from_json

Data = TypeVar("Data")
Extra = Mapping[str, Any] | None
ToolChoice = str
"""`"auto"`, `"required"`, `"none"`, or the name of the tool that has to be called."""


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def frozen(cls: type[Data]) -> type[Data]:
    """Makes a class a dataclass whose objects never change."""
    return dataclass(frozen=True, slots=True)(cls)


def clean_text(text: str) -> str:
    """Text that UTF-8 can carry: surrogate pairs are joined, lone surrogates become U+FFFD."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


@frozen
class _Clean:
    """Data whose texts are clean from the start. `extra` is what else is known of it."""

    extra: Extra = field(default=None, hash=False, kw_only=True, repr=False)

    def __post_init__(self) -> None:
        for name in self.__dataclass_fields__:
            value = getattr(self, name)
            if isinstance(value, str) and not value.isascii():
                object.__setattr__(self, name, clean_text(value))


class _Content(_Clean):
    """A message of text, or of parts. A string among the parts becomes a TextPart."""

    __slots__ = ()
    content: Any

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


@frozen
class TextPart(_Clean):
    """A piece of text."""

    text: str


@frozen
class _Attachment(_Clean):
    url: str | None = None
    data: bytes | None = field(default=None, repr=False)
    media_type: str | None = None

    def __post_init__(self) -> None:
        _Clean.__post_init__(self)
        if (self.url is None) == (self.data is None) or (self.data and not self.media_type):
            raise ValueError(
                f"{type(self).__name__} takes url=, or data= with its media_type= ('image/png')"
            )


IMAGE_TYPES = "image/png", "image/jpeg", "image/gif", "image/webp"  # what models see


@frozen
class ImagePart(_Attachment):
    """An image: a `url`, or `data` (bytes) with its `media_type` (such as "image/png")."""


@frozen
class FilePart(_Attachment):
    """A file (a PDF, say): a `url`, or `data` (bytes) with its `media_type`; `name` is shown."""

    name: str | None = None


@frozen
class Unknown:
    """A record or a part of a type that this version does not know, kept as it was read."""

    data: Mapping[str, Any] = field(hash=False)


Part = TextPart | ImagePart | FilePart | Unknown
Content = str | Sequence[Part]


def text_of(content: Content) -> str:
    """The text of some content, without its images and files."""
    if isinstance(content, str):
        return content
    return "\n".join(part.text for part in content if isinstance(part, TextPart))


# ---- messages


@frozen
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
    extra: Extra = field(default=None, hash=False)

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


@frozen
class ToolCall(_Clean):
    """A call that the model asks for; `arguments` is the JSON text as the model wrote it."""

    id: str
    name: str
    arguments: str = "{}"

    def answer(self, content: Content, **more: Any) -> ToolMessage:
        """A result of this call."""
        return ToolMessage(self.id, self.name, content, **more)

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


@frozen
class SystemMessage(_Content):
    """The system prompt. It is a setting and never in a log, so that nothing can lose it."""

    content: str


@frozen
class UserMessage(_Content):
    """What the user says, as text or parts. `hidden`: the library said it, not the user."""

    content: Content
    hidden: bool = False


@frozen
class AssistantMessage(_Content):
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
    model: str | None = field(default=None, compare=False, repr=False)
    seconds: float | None = field(default=None, compare=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "content", self.content or "")  # providers send null
        object.__setattr__(self, "tool_calls", tuple(self.tool_calls or ()))
        _Content.__post_init__(self)


@frozen
class ToolMessage(_Content):
    """The result of one call, which took so many `seconds`.

    `ephemeral` is how many newest results of this tool stay visible; 0 means all of them.
    """

    tool_call_id: str
    tool_name: str
    content: Content
    is_error: bool = False
    ephemeral: int = 0
    seconds: float | None = field(default=None, compare=False, repr=False)


Message = SystemMessage | UserMessage | AssistantMessage | ToolMessage


# ---- marks: what happened, for the log and not for the model


@frozen
class Mark(_Clean):
    """Something that happened. `at` is Unix time in seconds."""

    _: KW_ONLY
    at: float = field(default_factory=time.time)


@frozen
class RunStart(Mark):
    """A run began. `extra` is what `run` was given as such."""


@frozen
class RunEnd(Mark):
    """A run ended: `stop_reason` is that of its Result, or "cancelled", or "error" if it raised."""

    stop_reason: str


@frozen
class ToolStart(Mark):
    """The function behind a call is about to run: from here on it may have had effects."""

    call_id: str


@frozen
class Summary(Mark):
    """The conversation was summarized: see `view` for how the model sees it from here on.

    `content` stands for the records before number `keep`.
    """

    content: str
    keep: int
    usage: Usage | None = None
    model: str | None = None


@frozen
class Reset(Mark):
    """The history was cleared, or replaced by what follows: nothing before this counts."""


@frozen
class Fork(Mark):
    """A fork begins here: the requests before it are on the bill of another agent."""


@frozen
class Ask(Mark):
    """Somebody is asked whether a call may run, for this reason."""

    call_id: str
    reason: str = ""


@frozen
class Decision(Mark):
    """Somebody, or a rule, allowed a call or denied it."""

    call_id: str
    allowed: bool
    reason: str = ""


@frozen
class SideRequest(Mark):
    """A model request that left no message, so that its tokens are counted all the same."""

    usage: Usage | None = None
    model: str | None = None


Record = (
    UserMessage
    | AssistantMessage
    | ToolMessage
    | RunStart
    | RunEnd
    | ToolStart
    | Summary
    | Reset
    | Fork
    | Ask
    | Decision
    | SideRequest
    | Unknown
)


# ---- how a run ends


@frozen
class Result:
    """How a run ended.

    `stop_reason` is one of "completed" (a plain answer), "done" (a done tool), "max_iterations",
    "interrupted", "needs_approval", "refused", "no_progress", "context_overflow", "limit:<which>"
    ("limit:length": the model's answer was cut off), or "unknown:<word>", the provider's own word
    for a reason that we do not know. `value` is what a done tool handed over, `usage` is this run's
    tokens, `pending` are the calls that somebody is asked for, else those without a result.
    """

    text: str = ""
    value: Any = None
    stop_reason: str = "completed"
    usage: Usage = Usage()
    pending: tuple[ToolCall, ...] = ()

    def __str__(self) -> str:
        if self.text or self.stop_reason != "needs_approval":
            return self.text
        waits = [f"{call.name}: agent.decide({call.id!r}, 'allow')" for call in self.pending]
        return "\n".join(["(needs_approval)", *waits, "agent.run()"])


class Stop(Exception):
    """Ends the run with a Result: any seam but `record`, any mixin and any tool may raise it.

    A call that it kept from its start stays open, and is tried again by `run()`.
    """

    def __init__(self, reason: str, text: str = "", value: Any = None) -> None:
        super().__init__(text or reason)
        self.reason, self.text, self.value = reason, text, value

    @property
    def result(self) -> Result:
        """The Result that it ends a run with."""
        return Result(self.text, self.value, self.reason)


class TaskComplete(Stop):
    """What a done tool raises: the task is finished, and `message` is the answer."""

    def __init__(self, message: str = "", value: Any = None) -> None:
        super().__init__("done", str(message), value)

    @property
    def message(self) -> str:
        """The answer."""
        return self.text
