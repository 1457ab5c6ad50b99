"""The data of a run: messages, content parts, marks, usage and results.

Copy with: nothing else.

Everything here is frozen. A log is a list of records: of messages, and of marks that say what
happened. records.py writes a record as a line of JSON, and reads it back.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import Any, Generic, Literal, TypeVar, cast, dataclass_transform

from pydantic_core import from_json
from typing_extensions import TypeVar as DefaultTypeVar

Data = TypeVar("Data")
Value = DefaultTypeVar("Value", default=Any)
JSON = dict[str, Any]
Extra = Mapping[str, Any] | None
ToolChoice = str
"""`"auto"`, `"required"`, `"none"`, or the name of the tool that has to be called."""
UserOrigin = Literal[
    "user",  # a prompt: the user's own words
    "sent",  # the user's own words, sent while a run was going on
    # from here on nobody said it: it is hidden from the user
    "program",  # sent by the application
    "note",  # the library tells the model what happened
    "nudge",  # the library asks the model to go on
    "reminder",  # the library repeats something on schedule
    "memory",  # the content of files that the model is always to know
    "summary",  # stands for older messages
]
ToolOrigin = Literal[
    "tool",  # the tool ran, or its arguments were wrong
    "denied",  # a gate did not let the call run
    "cut_off",  # the reply with the call was incomplete, so the call did not run
    "sealed",  # the run ended before the call did
]


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def frozen(cls: type[Data]) -> type[Data]:
    """Make a class a dataclass whose objects never change."""
    return dataclass(frozen=True, slots=True)(cls)


def clean_text(text: str) -> str:
    """Return text that UTF-8 can carry: join surrogate pairs, replace lone ones by U+FFFD."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


TAGS: dict[str, type] = {}  # the classes of log entries by their "type" in session files
MESSAGE_TAGS = ("user", "assistant", "tool", "system", "text", "image", "file")


def tag_of(cls: type) -> str:
    """Return the "type" of a record in session files: "user" for UserMessage, "run_start" ..."""
    name = cls.__name__.removesuffix("Message").removesuffix("Part")
    return re.sub(r"\B[A-Z]", r"_\g<0>", name).lower()


def claim_tag(cls: type) -> None:
    """Register a class of log entries. A module may define it again, as notebooks do.

    Raises TypeError if a message or another class has the name.
    """
    tag = tag_of(cls)
    owner = TAGS.get(tag, cls)
    if tag in MESSAGE_TAGS or owner.__module__ != cls.__module__:
        raise TypeError(
            f"the log entry {cls.__name__} has the name of another record type: rename the class "
            f"(its type in session files would be {tag!r})"
        )
    TAGS[tag] = cls


@frozen
class _Clean:
    """Base of records: strings are made valid UTF-8. `extra` holds data of the application."""

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
        if not all(isinstance(cast(object, part), Part) for part in parts):
            raise TypeError(f"content is text, or TextPart, ImagePart, FilePart; not {parts!r:.80}")
        object.__setattr__(self, "content", parts)

    @property
    def text(self) -> str:
        """Return the text, without images and files."""
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
    """A file (a PDF, say): a `url`, or `data` (bytes) with its `media_type`; `name` is shown.

    `extra` may hold fields for a provider, such as {"anthropic": {"citations": {"enabled": True}}}.
    So one that has the file takes its id, and others the data:
    {"openai": {"file": {"file_id": "file-1"}},
    "anthropic": {"source": {"type": "file", "file_id": "file_1"}}}.
    """

    name: str | None = None


@frozen
class Unknown:
    """A record or a part of a type that this version does not know, kept as it was read."""

    data: Mapping[str, Any] = field(hash=False)


Part = TextPart | ImagePart | FilePart | Unknown
Content = str | Sequence[Part]


def text_of(content: Content) -> str:
    """Return the text of some content, without its images and files."""
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

    def __post_init__(self) -> None:
        if not isinstance(cast(object, self.arguments), str):
            raise TypeError(f"arguments is text, such as json.dumps({self.arguments!r:.80})")
        _Clean.__post_init__(self)

    def answer(self, content: Content, **more: Any) -> ToolMessage:
        """Return a result of this call."""
        return ToolMessage(self.id, self.name, content, **more)

    @property
    def parsed(self) -> JSON | None:
        """Return the arguments if they are a JSON object, else None."""
        try:
            value = from_json(self.arguments, allow_inf_nan=False)
        except ValueError:
            return None
        return cast(JSON, value) if isinstance(value, dict) else None


@frozen
class Citation(_Clean):
    """A source that an answer names. It stands for `text[start:end]` of the message.

    start, end: 0 and 0 if the provider does not say for what the source stands.
    raw: the source as the provider describes it. Of a document it has the place
        (`start_page_number`, say), and mostly the words that are cited (`cited_text`).
    """

    url: str = ""
    title: str = ""
    start: int = 0
    end: int = 0
    raw: Any = field(default=None, hash=False, repr=False)


@frozen
class SystemMessage(_Content):
    """The system prompt. It is a setting and never in a log, so that nothing can lose it."""

    content: str


@frozen
class UserMessage(_Content):
    """A message in the user's name, as text or parts. `origin` says whose words they are.

    `sent_id` is set if the message was sent into a run: it tells messages with one text apart.
    """

    content: Content
    origin: UserOrigin = "user"
    sent_id: str = ""

    @property
    def hidden(self) -> bool:
        """Return True if these are not the user's own words."""
        return self.origin not in ("user", "sent")


@frozen
class AssistantMessage(_Content):
    """What the model said: text, tool calls, thinking, and what that cost.

    `stop_reason` is one of "end", "tool_calls", "length" (cut off by the output limit), "refused",
    "pause", "context_overflow", or the provider's own word if it is none of these. None counts as
    "end". `raw` is opaque: the provider's own blocks, for the provider that made them. `usage` is
    None if the provider reported none. `model` is who answered, `seconds` how long that took.
    `citations` are the sources that the text names.
    """

    content: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    thinking: str | None = None
    usage: Usage | None = None
    stop_reason: str | None = None
    raw: Any = field(default=None, hash=False, repr=False)
    model: str | None = field(default=None, compare=False, repr=False)
    seconds: float | None = field(default=None, compare=False, repr=False)
    citations: tuple[Citation, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "content", self.content or "")  # providers send null
        object.__setattr__(self, "citations", tuple(self.citations))
        object.__setattr__(self, "tool_calls", tuple(self.tool_calls or ()))
        _Content.__post_init__(self)


@frozen
class ToolMessage(_Content):
    """The result of one call. `seconds` is how long it took, `origin` how the result came about.

    `ephemeral` is how many newest results of this tool stay visible; 0 means all of them.
    `offloaded` is the name of the file that holds the whole text, if `content` is only its ends.
    """

    tool_call_id: str
    tool_name: str
    content: Content
    is_error: bool = False
    ephemeral: int = 0
    seconds: float | None = field(default=None, compare=False, repr=False)
    origin: ToolOrigin = "tool"
    offloaded: str = ""


Message = SystemMessage | UserMessage | AssistantMessage | ToolMessage


# ---- marks: what happened, for the log and not for the model


@frozen
class Mark(_Clean):
    """A log entry: an event of a run. `at` is Unix time in seconds.

    The class name is the "type" of the entry in session files. Raises TypeError where a second
    class of the same name is defined, because sessions would be read with the wrong class.
    """

    _: KW_ONLY
    at: float = field(default_factory=time.time)

    def __init_subclass__(cls) -> None:
        claim_tag(cls)

    def after_change(self, change: HistoryChange) -> Mark | None:
        """Return this entry for a changed history, or None if the entry is obsolete.

        Overridden by entries that refer to other records, so that no reference is wrong, and no
        deleted text remains, after `Log.replace`.
        """
        return self


@frozen
class RunStart(Mark):
    """A run began. `extra` is the `extra=` of `run`.

    A session keeps its name as `session`, the `system_prompt` and the `tools`, each as [name,
    description, parameters].
    `workflow_run` is the id of a durable workflow, which may begin the same run again.
    """

    system_prompt: str = ""
    tools: Sequence[object] = field(default=(), hash=False, repr=False)
    workflow_run: str = ""
    session: str = ""


@frozen
class RunEnd(Mark):
    """A run ended: `stop_reason` is that of its Result, or "cancelled", or "error" if it raised.

    `error` is the type and the first line of the exception that it raised, `text` the answer.
    """

    stop_reason: str
    error: str = ""
    text: str = field(default="", compare=False, repr=False)

    def after_change(self, change: HistoryChange) -> Mark | None:
        return replace(self, text="") if self.text in change.deleted_texts else self


@frozen
class ToolStart(Mark):
    """The function behind a call is about to run: from here on it may have had effects."""

    call_id: str

    def after_change(self, change: HistoryChange) -> Mark | None:
        return None if self.call_id in change.deleted_calls else self


@frozen
class Summary(Mark):
    """The conversation was summarized: see `view` for how the model sees it from here on.

    `content` replaces the records before index `kept_from`.
    """

    content: str
    kept_from: int
    usage: Usage | None = None
    model: str | None = None

    def after_change(self, change: HistoryChange) -> Mark | None:
        return replace(self, kept_from=change.position(self.kept_from))


@frozen
class Reset(Mark):
    """The history was cleared, or replaced by what follows: nothing before this counts."""


@frozen
class Fork(Mark):
    """A fork begins here: the original agent paid for the requests before it."""


@frozen
class Ask(Mark):
    """Somebody is asked whether a call may run, for this reason.

    `name` and `arguments` (JSON text) are the call as it would run.
    """

    call_id: str
    reason: str = ""
    name: str = ""
    arguments: str = ""

    def after_change(self, change: HistoryChange) -> Mark | None:
        return None if self.call_id in change.deleted_calls else self


@frozen
class Decision(Mark):
    """Somebody allowed a call or denied it: `by` says who."""

    call_id: str
    allowed: bool
    reason: str = ""
    by: str = ""

    def after_change(self, change: HistoryChange) -> Mark | None:
        return None if self.call_id in change.deleted_calls else self


@frozen
class SideRequest(Mark):
    """A model request that left no message here. It is recorded because its tokens count.

    `purpose` is that of its Request if the request failed. `tool_calls` is how many calls a
    sub-agent's reply asked for.
    """

    usage: Usage | None = None
    model: str | None = None
    purpose: str = ""
    tool_calls: int = 0


Record = UserMessage | AssistantMessage | ToolMessage | Mark | Unknown
RequestRecord = AssistantMessage | Summary | SideRequest  # what stands for a model request


class HistoryChange:
    """The old and the new records of a log, for log entries that refer to other records.

    deleted_calls: ids of the tool calls that only the old records contain.
    deleted_texts: texts of the messages that only the old records contain.
    """

    def __init__(self, old: Sequence[Record], new: Sequence[Record]) -> None:
        self.old, self.new = old, new
        self.deleted_calls = call_ids(old) - call_ids(new)
        self.deleted_texts = texts_of(old) - texts_of(new)

    def position(self, index: int) -> int:
        """Return the new index of a position between the old records.

        Kept records stay on their side of the position. A record that only the new records contain
        takes the place of the old record after its predecessor.
        """
        old_index = {id(record): at for at, record in enumerate(self.old)}
        position = 0
        place = -1
        for record in self.new:
            place = old_index.get(id(record), place + 1)
            position += place < index
        return position

    def is_deleted(self, message: Message) -> bool:
        """Return whether only the old records contain the message."""
        return message in self.old and message not in self.new


def call_ids(records: Iterable[Record]) -> set[str]:
    """Return the ids of all tool calls among the records."""
    replies = [record for record in records if isinstance(record, AssistantMessage)]
    return {call.id for reply in replies for call in reply.tool_calls}


def texts_of(records: Iterable[Record]) -> set[str]:
    """Return the texts of the messages among the records."""
    return {record.text for record in records if isinstance(record, Message)}


# ---- how a run ends


@dataclass(frozen=True)  # slots and Generic fail together on 3.11
class Result(Generic[Value]):
    """How a run ended. `Result[City]` has a City as its `value`; `run_as(City, ...)` gives it.

    `stop_reason` is one of "completed" (a plain answer), "done" (a done tool), "max_iterations",
    "interrupted", "needs_approval" (see `Approval`), "needs_answer" (see `Tool.external`),
    "refused", "no_progress", "context_overflow", "limit:<which>" ("limit:length": the model's
    answer was cut off), or "unknown:<word>", the provider's own word for a reason that we do not
    know. `value` is what a done tool handed over, `usage` is this run's tokens, `pending` are the
    calls that somebody is asked for, else those without a result: `run()` runs those that have not
    started.
    """

    text: str = ""
    value: Value = cast(Any, None)
    stop_reason: str = "completed"
    usage: Usage = Usage()
    pending: tuple[ToolCall, ...] = ()

    def __str__(self) -> str:
        return self.text


class Stop(Exception):
    """Ends the run with a Result: any seam but `record`, any mixin and any tool may raise it.

    A call that it kept from its start stays open, and is tried again by `run()`.
    """

    def __init__(self, reason: str, text: str = "", value: Any = None) -> None:
        super().__init__(text or reason)
        self.reason, self.text, self.value = reason, text, value

    @property
    def result(self) -> Result:
        """Return the Result that this ends a run with."""
        return Result(self.text, self.value, self.reason)


class TaskComplete(Stop):
    """What a done tool raises: the task is finished, and `message` is the answer."""

    def __init__(self, message: str = "", value: Any = None) -> None:
        super().__init__("done", str(message), value)

    @property
    def message(self) -> str:
        """Return the answer."""
        return self.text
