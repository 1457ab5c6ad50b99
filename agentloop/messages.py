"""The data of a run: messages, content parts, usage and results.

Copy with: nothing else.

All classes are frozen. common/records.py converts a message to a line of JSON and back.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from difflib import get_close_matches
from functools import cache
from inspect import formatannotation
from pathlib import Path
from types import UnionType
from typing import (
    TYPE_CHECKING,
    Any,
    ClassVar,
    Generic,
    Literal,
    TypeVar,
    Union,
    cast,
    dataclass_transform,
    get_args,
    get_origin,
    get_type_hints,
    is_typeddict,
)

from pydantic_core import from_json
from typing_extensions import TypeVar as DefaultTypeVar

Data = TypeVar("Data")
Value = DefaultTypeVar("Value", default=Any)
JSON = dict[str, Any]
Extra = Mapping[str, Any] | None
ToolChoice = str
"""`"auto"`, `"required"`, `"none"`, or the name of the tool that the model must call."""
UserOrigin = Literal[
    "user",  # a prompt, written by the user
    "sent",  # written by the user during a run
    # the user neither wrote the following, nor sees them
    "program",  # sent by the application
    "note",  # tells the model what happened
    "nudge",  # asks the model to go on
    "reminder",  # repeated from time to time
    "memory",  # the content of instruction files
    "summary",  # replaces earlier messages
]
ToolOrigin = Literal[
    "tool",  # the tool ran, or its arguments were invalid
    "denied",  # a gate denied the call
    "cut_off",  # the model's reply was incomplete, so the call didn't run
    "sealed",  # the run ended before the call had a result
]


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def frozen(cls: type[Data]) -> type[Data]:
    """Make a class a frozen dataclass with slots."""
    return dataclass(frozen=True, slots=True)(cls)


def clean_text(text: str) -> str:
    """Make text valid Unicode: join surrogate pairs, and replace lone surrogates with U+FFFD."""
    if text.isascii():
        return text
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


@cache
def hints_of(cls: Hashable) -> list[tuple[str, Any, tuple[Any, ...]]]:
    """The fields of a record, except those of type Any: name, annotation, and usual classes."""
    hints = get_type_hints(cls)
    names = [field.name for field in fields(cast(Any, cls)) if hints[field.name] is not Any]
    return [(name, hints[name], union_members(hints[name])) for name in names]


def union_members(hint: Any) -> tuple[Any, ...]:
    kind = get_origin(hint) or hint
    return get_args(hint) if kind in (Union, UnionType) else (kind,)


def fits(value: object, hint: Any) -> bool:
    """Whether a value has the annotated type. The items of a container aren't checked."""
    kind: Any = get_origin(hint) or hint
    if kind in (Union, UnionType):
        return any(fits(value, option) for option in get_args(hint))
    if kind is Literal:
        return value in get_args(hint)
    if isinstance(value, bool):  # no number, although bool is a subclass of int
        return kind in (bool, object)
    if kind is float:
        return isinstance(value, float | int)
    return not isinstance(kind, type) or is_typeddict(kind) or isinstance(value, kind)


def tuple_of(kind: type[Data], items: object) -> tuple[Data, ...]:
    """Make a tuple of items, or of a single item; () for None.

    Raises TypeError if an item has another type.
    """
    given = items or ()
    whole = tuple(cast(Sequence[Data], given if isinstance(given, Iterable) else [given]))
    for item in whole:
        if not isinstance(item, kind):
            raise TypeError(f"each item must be a {kind.__name__}, not {item!r:.80}")
    return whole


TAGS: dict[str, type] = {}  # the classes of records and parts by their "type" in session files


def tag_of(cls: type) -> str:
    """The "type" of a record in session files: "user" for UserMessage, "run_start" for RunStart."""
    name = cls.__name__.removesuffix("Message").removesuffix("Part")
    return re.sub(r"\B[A-Z]", r"_\g<0>", name).lower()


@cache
def remedies() -> dict[str, str]:
    """What to write instead of a wrong name, by "place.name": from remedies.txt, if it's there."""
    found, place = dict[str, str](), ""
    try:
        text = Path(__file__).with_name("remedies.txt").read_text(encoding="utf-8")
    except OSError:  # only this file was copied
        return found
    for section, names, remedy in re.findall(r"(?m)^\[(\w+)\]$|^([\w -]+)\n +(.+)$", text):
        place = section or place
        found |= {f"{place}.{name}": remedy for name in names.split()}
    return found


def advice(places: Iterable[str], name: str, known: Iterable[str] = (), default: str = "") -> str:
    """Say what to write instead of an unknown name: its remedy, or the known name most like it."""
    for place in places:
        if remedy := remedies().get(f"{place}.{name}"):
            return remedy
    near = get_close_matches(name, known, 1, 0.7)
    return f"did you mean {near[0]}?" if near else default


def attribute_advice(owner: object, name: str) -> str:
    """Say what to write instead of an unknown attribute of an object: "" if nobody knows."""
    places = [cls.__name__ for cls in type(owner).__mro__]
    return advice(places, name, [known for known in dir(owner) if known[0] != "_"])


class UnknownAttribute(AttributeError):
    """An attribute that doesn't exist. The message says what to write instead."""

    def __init__(self, owner: object, attribute: str) -> None:
        super().__init__()
        self.owner, self.attribute = owner, attribute

    def __str__(self) -> str:  # looked up here, because most such errors are caught by `getattr`
        kind = type(self.owner).__name__
        if remedy := attribute_advice(self.owner, self.attribute):
            return f"{kind} has no attribute {self.attribute}: {remedy}"
        return f"{kind!r} object has no attribute {self.attribute!r}"

    def __reduce__(self) -> tuple[type[AttributeError], tuple[str]]:
        return AttributeError, (str(self),)  # the owner may be unpicklable, as agents are


class Advised:
    """Base of objects that say what to write instead of an attribute or key they don't have."""

    __slots__ = ()

    if not TYPE_CHECKING:  # otherwise type checkers would accept any attribute

        def __getattr__(self, name: str) -> object:
            raise UnknownAttribute(self, name)

        def __getitem__(self, key: object) -> object:
            kind, name = type(self).__name__, str(key)
            remedy = f"use .{name}" if hasattr(self, name) else attribute_advice(self, name)
            raise TypeError(f"{kind} is not a dict or a list: {remedy or 'use its attributes'}")


@frozen
class Clean(Advised):
    """The base of records: text becomes valid Unicode. `extra` is for data of your application."""

    extra: Extra = field(default=None, hash=False, kw_only=True, repr=False)

    def __init_subclass__(cls) -> None:
        """Register the class by its tag. A module may define a class again, as notebooks do."""
        tag = tag_of(cls)
        other = TAGS.get(tag, cls)
        if other.__module__ != cls.__module__:
            raise TypeError(
                f"{cls} and {other} would both have the type {tag!r} in session files: "
                f"rename {cls.__name__}"
            )
        TAGS[tag] = cls

    def __post_init__(self) -> None:
        for name, hint, classes in hints_of(cast(Hashable, type(self))):
            value = getattr(self, name)
            if type(value) not in classes and not fits(value, hint):
                raise TypeError(
                    f"{type(self).__name__}: {name} must be {formatannotation(hint)}, "
                    f"not {value!r:.80}"
                )
            if isinstance(value, str) and not value.isascii():
                object.__setattr__(self, name, clean_text(value))


class _Content(Clean):
    """A message whose content is text or parts. A string among the parts becomes a TextPart.

    cache: what other modules have computed from the message: see `cache_of`.
    """

    __slots__ = ("cache",)
    content: Any

    def __post_init__(self) -> None:
        if not isinstance(self.content, str):
            self._convert_parts(self.content)
        super().__post_init__()

    def _convert_parts(self, content: object) -> None:
        """Convert strings to TextParts. Raises TypeError for anything but parts."""
        given = cast(Sequence[object], content if isinstance(content, Sequence) else [content])
        parts = tuple(TextPart(part) if isinstance(part, str) else part for part in given)
        if not all(isinstance(part, Part) for part in parts):
            raise TypeError(
                "content must be text, or a list of text, ImagePart and FilePart, "
                f"not {content!r:.80}"
            )
        object.__setattr__(self, "content", parts)

    @property
    def text(self) -> str:
        """The text, without images and files."""
        return text_of(self.content)


# ---- content parts


@frozen
class TextPart(Clean):
    """A piece of text."""

    text: str


@frozen
class _Attachment(Clean):
    url: str | None = None
    data: bytes | None = field(default=None, repr=False)
    media_type: str | None = None

    def __post_init__(self) -> None:
        if (self.url is None) == (self.data is None) or (self.data and not self.media_type):
            raise ValueError(
                f"{type(self).__name__} takes either url=..., or data=... with its media_type, "
                "such as media_type='image/png' or 'application/pdf'"
            )
        url = cast(object, self.url)
        if url is not None and not (isinstance(url, str) and ":" in url):
            raise ValueError(
                f"{type(self).__name__}: url={url!r:.80} is not an address. For a local file, use "
                "data=Path(...).read_bytes() and media_type='image/png' or 'application/pdf'"
            )
        Clean.__post_init__(self)


@frozen
class ImagePart(_Attachment):
    """An image: a `url`, or `data` (bytes) with its `media_type` (such as "image/png")."""


@frozen
class FilePart(_Attachment):
    """A file, such as a PDF: a `url`, or `data` (bytes) with its `media_type`, and a file `name`.

    If the model can't read this type of file, it gets the text of a text file, and otherwise a note
    that the file was left out.

    `extra` may have fields for a provider, such as {"anthropic": {"citations": {"enabled":
    True}}}. If a provider has stored the file, it gets the file's id, and others get the data:
    {"openai": {"file": {"file_id": "file-1"}},
    "anthropic": {"source": {"type": "file", "file_id": "file_1"}}}.
    """

    name: str | None = None


@frozen
class Unknown:
    """A record or a part whose type this version doesn't know. It's kept unchanged."""

    data: Mapping[str, Any] = field(hash=False)


Part = TextPart | ImagePart | FilePart | Unknown
Content = str | Sequence[Part]
Prompt = str | Sequence[str | Part] | None


def text_of(content: Content) -> str:
    """The text of content, without images and files."""
    if isinstance(content, str):
        return content
    return "\n".join(part.text for part in content if isinstance(part, TextPart))


# ---- messages


@frozen
class Usage(Clean):
    """How many tokens a request used, or several requests in total.

    `input_tokens` includes `cached_input_tokens` (read from the provider's cache) and
    `cache_write_tokens`; `output_tokens` includes `reasoning_tokens`. So `total_tokens`
    counts no token twice.
    """

    input_tokens: int = 0
    output_tokens: int = 0
    cached_input_tokens: int = 0
    cache_write_tokens: int = 0
    reasoning_tokens: int = 0

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
class ToolCall(Clean):
    """A tool call. `arguments` is JSON text, exactly as the model wrote it.

    `parent_id` is the id of the call whose tool made this one, or "" if the model made it: see
    `NestedCalls.call`.
    """

    id: str
    name: str
    arguments: str = "{}"
    parent_id: str = field(default="", repr=False)

    def __post_init__(self) -> None:
        if not isinstance(cast(object, self.arguments), str):
            raise TypeError(f"arguments must be text, such as json.dumps({self.arguments!r:.80})")
        Clean.__post_init__(self)

    def answer(self, content: Content, **more: Any) -> ToolMessage:
        """Make the result of this call."""
        return ToolMessage(self.id, self.name, content, **more)

    def checked(self, result: ToolMessage) -> ToolMessage:
        """Check that a result is this call's, and return it. Raises ValueError if it isn't."""
        if result.tool_call_id != self.id:
            raise ValueError(
                f"call_tool({self.id!r}) returned a result of {result.tool_call_id!r}: "
                "make it with call.answer(...)"
            )
        return result

    @property
    def parsed(self) -> JSON | None:
        """The arguments as a dict, or None if they aren't a JSON object."""
        try:
            value = from_json(self.arguments, allow_inf_nan=False)
        except ValueError:
            return None
        return cast(JSON, value) if isinstance(value, dict) else None


@frozen
class Attempt:
    """A failed attempt at a request, which may be billed; `text` is what arrived of the reply."""

    usage: Usage | None = None
    model: str | None = None
    text: str = ""


@frozen
class Citation(Clean):
    """A source that an answer cites for `text[start:end]` of the message.

    start, end: both 0 if the provider reports no position.
    raw: the citation in the provider's format. For documents it includes the position (for example
        `start_page_number`), and usually the cited text (`cited_text`).
    """

    url: str = ""
    title: str = ""
    start: int = 0
    end: int = 0
    raw: Any = field(default=None, hash=False, repr=False)


@frozen
class SystemMessage(_Content):
    """The system prompt, or later instructions. The system prompt is a setting, and not in the log.

    To change the instructions during a conversation, and still begin each request with the bytes of
    the last one, append them: `agent.add(SystemMessage("From now on, ..."))`. They stay where they
    are with OpenAI's Responses and with Claude Opus 4.8, 5 and later; other models get them with
    the system prompt. A summary or a context budget keeps them all, word for word, after the first
    task: add only lasting rules. What's for one turn is an `agent.add_note(...)`, which a summary
    covers.
    """

    role: ClassVar[Literal["system"]] = "system"

    content: str


@frozen
class UserMessage(_Content):
    """A message with the role "user", as text or parts. `origin` says who wrote it.

    `sent_id` tells messages that were sent during a run apart, even if their texts are equal.
    """

    role: ClassVar[Literal["user"]] = "user"
    content: Content
    origin: UserOrigin = "user"
    sent_id: str = ""

    @property
    def hidden(self) -> bool:
        """Whether somebody else than the user wrote the message."""
        return self.origin not in ("user", "sent")


@frozen
class AssistantMessage(_Content):
    """A reply of the model: text, tool calls, thinking, and usage.

    stop_reason: "end", "tool_calls", "length" (cut off at the output limit), "refused", "pause",
        "context_overflow", or another word of the provider. None means "end".
    finish_reason: the provider's own word for the stop reason, for traces.
    raw: blocks that only this provider can read, and that nobody else gets.
    usage: None if the provider didn't report it.
    model, seconds: the model that answered, and how long the request took.
    citations: the sources that the text cites.
    attempts: earlier attempts at this request that failed and may be billed. The loop records them
        as entries of their own.
    """

    role: ClassVar[Literal["assistant"]] = "assistant"
    content: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    thinking: str | None = None
    usage: Usage | None = None
    stop_reason: str | None = None
    raw: Any = field(default=None, hash=False, repr=False)
    model: str | None = field(default=None, compare=False, repr=False)
    seconds: float | None = field(default=None, compare=False, repr=False)
    citations: tuple[Citation, ...] = ()
    finish_reason: str | None = field(default=None, compare=False, repr=False)
    attempts: tuple[Attempt, ...] = field(default=(), compare=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "content", self.content or "")  # providers send null
        object.__setattr__(self, "citations", tuple_of(Citation, self.citations))
        object.__setattr__(self, "tool_calls", tuple_of(ToolCall, self.tool_calls))
        object.__setattr__(self, "attempts", tuple_of(Attempt, self.attempts))
        _Content.__post_init__(self)


@frozen
class ToolMessage(_Content):
    """The result of a call. `seconds` is how long it took, `origin` where the result comes from.

    ephemeral: how many of the tool's newest results the model still sees; 0 for all of them.
    is_json: whether `content` is the JSON text of a value that the tool returned.
    """

    role: ClassVar[Literal["tool"]] = "tool"
    tool_call_id: str
    tool_name: str
    content: Content
    is_error: bool = False
    ephemeral: int = 0
    seconds: float | None = field(default=None, compare=False, repr=False)
    origin: ToolOrigin = "tool"
    is_json: bool = field(default=False, compare=False, repr=False)


Message = SystemMessage | UserMessage | AssistantMessage | ToolMessage


def cache_of(message: Message) -> dict[str, Any]:
    """What other modules have computed from a message, each under a key of its own."""
    cache: dict[str, Any] | None = getattr(message, "cache", None)
    if cache is None:
        cache = {}
        object.__setattr__(message, "cache", cache)  # messages are frozen
    return cache


class MessageView(tuple[Message, ...], Advised):
    """Messages computed from a log. You can't change them here."""


# ---- how a run ends


@dataclass(frozen=True)  # in Python 3.11, a Generic class can't have slots
class Result(Advised, Generic[Value]):
    """The outcome of a run. `Result[City]`, from `run_as(City, ...)`, has a City as its `value`.

    text: the answer.
    value: the value of a done tool, or of an `output_type`.
    stop_reason: "completed" (a plain answer), "done" (a done tool, or a valid answer of an
        `output_type`), "max_iterations", "interrupted", "needs_approval" (see `Approval`),
        "needs_answer" (see `Tool.external`), "refused", "no_progress", "context_overflow",
        "limit:NAME" ("limit:length": the answer was cut off), "unknown:WORD" if the provider
        stopped for a reason of its own, or the reason of a `Stop` that you raised.
    usage: the tokens of this run.
    pending: the calls that wait for a decision or an answer, as in `agent.pending`.
    """

    text: str = ""
    value: Value = cast(Any, None)
    stop_reason: str = "completed"
    usage: Usage = Usage()
    pending: tuple[ToolCall, ...] = ()

    @property
    def answered(self) -> bool:
        """Whether there's an answer. The summary of a run that is out of turns counts as one."""
        if self.stop_reason == "max_iterations":
            return bool(self.text)
        return self.stop_reason in ("completed", "done")

    def __str__(self) -> str:
        """The answer, or why there's none: "[needs_approval: pay]", "[max_iterations]"."""
        if self.text or self.stop_reason in ("completed", "done"):
            return self.text
        names = ", ".join(call.name for call in self.pending)
        return f"[{self.stop_reason}: {names}]" if names else f"[{self.stop_reason}]"


class Stop(Exception):
    """Ends the run with a Result. Tools may raise it, and so may every seam.

    A call that this keeps from starting stays open: `run()` tries it again.
    """

    def __init__(self, reason: str, text: str = "", value: Any = None) -> None:
        super().__init__(text or reason)
        self.reason, self.text, self.value = reason, text, value

    @property
    def result(self) -> Result:
        """The Result of the run that this ends."""
        return Result(self.text, self.value, self.reason)


class TaskComplete(Stop):
    """Ends a run as "done". Raise it in a tool, with the answer as `message`.

    If a kill comes before the run ends, `run()` returns the answer of a tool that has `ends_run`,
    with its value if there's an `output_type`. For other tools, it asks the model again.
    """

    def __init__(self, message: str = "", value: Any = None) -> None:
        super().__init__("done", str(message), value)

    @property
    def message(self) -> str:
        """The answer."""
        return self.text


# base classes; objects that are written without their type, inside messages
for kind in (_Content, _Attachment, Usage, ToolCall, Citation):
    del TAGS[tag_of(kind)]
