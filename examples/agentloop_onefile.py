# ==== header ==== agentloop 0.1.0, sha256 80ccf0dd14c1b699
# An agent in one file. It is yours: read it, edit it, add to it. Made by
#
#   agentloop bundle agent openai -o examples/agentloop_onefile.py
#
# `agentloop bundle --check FILE` says what you changed in it and what is newer in
# agentloop; --upgrade gets that.
#
# It needs Python 3.11, httpx, pydantic, pydantic_core.
#
#   messages.py: The data of a run: messages, content parts, marks, usage, requests and results.
#   events.py: What a run tells its listeners, as it happens.
#   depends.py: Depends: what a tool gets from the program instead of from the model.
#   errors.py: What can go wrong, in one small hierarchy.
#   tokens.py: How many tokens a text, a message, a list of tools has: tiktoken's count, or an
#       estimate.
#   transcript.py: Pure functions over a log: what the model sees of it, which calls are open,
#       what is wrong.
#   prefix.py: What a request shares with the one before it: the prefix that a provider has in its
#       cache.
#   results.py: What a tool returned or raised, as content that the model can read.
#   settings.py: Makes the settings of a class and of all its mixins add up in one typed
#       constructor.
#   waiting.py: Waits that end: several coroutines side by side, each cancel answered within a
#       grace period.
#   stream.py: The events of one run as an async iterator that stays in step with its reader.
#   runs.py: One run at a time, from a prompt to a Result, and a log that is in order however it
#       ends.
#   docstrings.py: Takes a docstring apart: what a function does, and what each of its parameters
#       means.
#   arguments.py: From a function's signature to a JSON schema, and from the model's text to
#       checked arguments.
#   tools.py: @tool: a function's signature becomes a schema for the model and a validated call.
#   loop.py: An agent is a for-loop: `Loop` is that loop, `ChatModel` is what it calls.
#   turns.py: Where the turns of a log begin, and where it can be cut between them.
#   mixins/compaction.py: Summarizes the conversation when it nears the context window, and goes
#       on from the summary.
#   mixins/done.py: Ends a run on a done tool only, so that the model cannot stop by just talking.
#   mixins/ephemeral.py: Shows the model only the newest results of tools whose results go stale.
#   agent.py: The composition that most people want.
#   models/clients.py: The HTTP connections of a model: made as needed, closed with the event loop
#       that uses them.
#   models/http.py: A model behind HTTP: retries, errors, server-sent events, limits.
#   models/openai.py: OpenAI's Chat Completions, and every server that speaks it (vLLM, Ollama,
#       OpenRouter, ...).
#
# MIT License
#
# Copyright (c) 2026 The agentloop authors
#
# Permission is hereby granted, free of charge, to any person obtaining a copy
# of this software and associated documentation files (the "Software"), to deal
# in the Software without restriction, including without limitation the rights
# to use, copy, modify, merge, publish, distribute, sublicense, and/or sell
# copies of the Software, and to permit persons to whom the Software is
# furnished to do so, subject to the following conditions:
#
# The above copyright notice and this permission notice shall be included in all
# copies or substantial portions of the Software.
#
# THE SOFTWARE IS PROVIDED "AS IS", WITHOUT WARRANTY OF ANY KIND, EXPRESS OR
# IMPLIED, INCLUDING BUT NOT LIMITED TO THE WARRANTIES OF MERCHANTABILITY,
# FITNESS FOR A PARTICULAR PURPOSE AND NONINFRINGEMENT. IN NO EVENT SHALL THE
# AUTHORS OR COPYRIGHT HOLDERS BE LIABLE FOR ANY CLAIM, DAMAGES OR OTHER
# LIABILITY, WHETHER IN AN ACTION OF CONTRACT, TORT OR OTHERWISE, ARISING FROM,
# OUT OF OR IN CONNECTION WITH THE SOFTWARE OR THE USE OR OTHER DEALINGS IN THE
# SOFTWARE.


# ==== imports ==== agentloop 0.1.0, sha256 7d2a6a56538dc321
from __future__ import annotations

import asyncio
import base64
import calendar
import codecs
import contextvars
import copy
import functools
import hashlib
import inspect
import itertools
import json
import logging
import math
import os
import random
import re
import tempfile
import threading
import time
from abc import ABC, abstractmethod
from collections import defaultdict, deque
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Awaitable,
    Callable,
    Container,
    Coroutine,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from concurrent.futures import Future
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from dataclasses import KW_ONLY, Field, dataclass, field, fields, replace
from difflib import get_close_matches
from email.utils import parsedate_tz
from functools import cache, lru_cache, partial
from hashlib import sha256
from importlib import import_module
from inspect import Parameter
from itertools import groupby, takewhile
from operator import attrgetter
from pathlib import Path
from types import AsyncGeneratorType, CoroutineType, FrameType, GeneratorType, MethodType
from typing import (
    Annotated,
    Any,
    ClassVar,
    Concatenate,
    Generic,
    Literal,
    NamedTuple,
    ParamSpec,
    Protocol,
    Self,
    TypeAlias,
    TypeVar,
    cast,
    dataclass_transform,
    get_args,
    get_origin,
    get_type_hints,
    overload,
)
from urllib.parse import urlsplit
from urllib.request import getproxies
from uuid import uuid4
from weakref import WeakKeyDictionary

import pydantic
from pydantic import BaseModel, ConfigDict, RootModel, TypeAdapter, ValidationError, create_model
from pydantic.errors import PydanticUserError
from pydantic.fields import FieldInfo
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaWarningKind
from pydantic_core import ErrorDetails, from_json, to_json, to_jsonable_python

P = ParamSpec("P")
P2 = ParamSpec("P2")
R = TypeVar("R")
R2 = TypeVar("R2")
T = TypeVar("T")
X = TypeVar("X")
logger = logging.getLogger("agentloop")


# ==== messages.py ==== agentloop 0.1.0, sha256 4e2282b43a6658c4
"""The data of a run: messages, content parts, marks, usage, requests and results.

Everything here is a frozen record. A log is a list of them, and a saved log is a list of lines:
`dump_record` writes one, `load_record` reads it back, and what this version does not know yet
(fields, whole record types) survives the round trip.
"""

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


# ==== events.py ==== agentloop 0.1.0, sha256 11b0aa4d1043f0ab
"""What a run tells its listeners, as it happens.

Listeners get these objects; `query_stream` yields them. Nothing here is stored: the log is.
"""


@dataclass(slots=True)
class TextDeltaEvent:
    """The next piece of the model's text, as it streams in."""

    content: str


@dataclass(slots=True)
class ThinkingDeltaEvent:
    """The next piece of the model's thinking, as it streams in."""

    content: str


@dataclass(slots=True)
class ThinkingEvent:
    """The model's thinking in one reply, whole."""

    content: str


@dataclass(slots=True)
class TextEvent:
    """The text of one reply, whole."""

    content: str


@dataclass(slots=True)
class RequestEvent:
    """A model request goes out, with so many messages and an estimate of its input tokens.

    `kept` is with how many of the last request's messages it begins, byte for byte; 0 if the tools
    or tool_choice changed. Of the tokens, `tokens_kept` stand in what was kept, so that a provider
    may read them from its cache; `tokens_again` were in the last request too, but behind a change,
    and are billed again.
    """

    purpose: str
    messages: int
    kept: int
    tokens: int
    tokens_kept: int = 0
    tokens_again: int = 0


@dataclass(slots=True)
class UsageEvent:
    """What one model request used, and which model answered it."""

    usage: Usage
    model: str | None = None


@dataclass(slots=True)
class StepStartEvent:
    """A tool call begins. `step_id` is its id; `step_number` counts the agent's steps from 1."""

    step_id: str
    title: str
    step_number: int = 0


@dataclass(slots=True)
class StepCompleteEvent:
    """A tool call ended: `status` is "completed" or "error"."""

    step_id: str
    status: str
    duration_ms: float = 0.0


@dataclass(slots=True)
class ToolCallEvent:
    """The model calls a tool. The tool starts once a `query_stream` reader asks for what is next.

    `args` are the arguments as the model wrote them: {} if they are no JSON object.
    """

    tool: str
    args: dict[str, Any]
    tool_call_id: str


@dataclass(slots=True)
class ToolResultEvent:
    """A tool call has its result, as the model will read it."""

    tool: str
    result: str
    tool_call_id: str
    is_error: bool = False


@dataclass(slots=True)
class HiddenUserMessageEvent:
    """The library put a user message into the conversation (a nudge, a reminder)."""

    content: str


@dataclass(slots=True)
class PruneEvent:
    """Old results were replaced by placeholders: the request's prefix changes here."""

    tool_call_ids: list[str]


@dataclass(slots=True)
class CompactionEvent:
    """The conversation was summarized, or cut: the request's prefix changes here.

    `dropped` are the messages that the model sees no more; the log keeps them.
    """

    summary: str
    tokens_before: int
    tokens_after: int
    dropped: Sequence[Message] = ()


@dataclass(slots=True)
class ToolsChangedEvent:
    """The tools on offer differ from the last request's: the request's prefix changes here."""

    added: list[str] = field(default_factory=list[str])
    removed: list[str] = field(default_factory=list[str])


@dataclass(slots=True)
class FinalResponseEvent:
    """The run's answer. `stop_reason` is that of its Result."""

    content: str
    stop_reason: str = "completed"


Event: TypeAlias = (
    TextDeltaEvent
    | ThinkingDeltaEvent
    | ThinkingEvent
    | TextEvent
    | RequestEvent
    | UsageEvent
    | StepStartEvent
    | StepCompleteEvent
    | ToolCallEvent
    | ToolResultEvent
    | HiddenUserMessageEvent
    | PruneEvent
    | CompactionEvent
    | ToolsChangedEvent
    | FinalResponseEvent
)
Listener: TypeAlias = Callable[[Any], None]
OnDelta: TypeAlias = Callable[[TextDeltaEvent | ThinkingDeltaEvent], None]


# ==== depends.py ==== agentloop 0.1.0, sha256 12fff7478beb8ed2
"""Depends: what a tool gets from the program instead of from the model.

    async def get_db():
        async with connect() as db:
            yield db

    @tool
    async def find(name: str, db: Annotated[Db, Depends(get_db)]) -> str: ...

A dependency is a function: plain, async, a generator or an async generator (what follows its
`yield` runs after the tool, also when that failed or was cancelled). Its own parameters may be
dependencies. Within one tool call each is called once, and they close last in, first out. Plain
functions and generators run on the event loop, so they should not block.
"""

Function: TypeAlias = Callable[..., Any]
Plan: TypeAlias = dict[Function, dict[str, Function]]
Names: TypeAlias = Mapping[str, Any] | None


@dataclass(frozen=True, slots=True)
class Dependency:
    """The mark that `Depends` leaves on a parameter."""

    function: Function


def Depends(function: Function) -> Any:
    """Marks a parameter: `db: Annotated[Db, Depends(get_db)]`, or `db: Db = Depends(get_db)`."""
    if not callable(function):
        raise TypeError(f"Depends takes a function, such as Depends(get_db), not {function!r:.80}")
    return Dependency(function)


def current_agent() -> Any:
    """As `Depends(current_agent)`: the agent that runs the tool."""
    raise LookupError("there is a current agent only inside a tool call")


def current_call() -> Any:
    """As `Depends(current_call)`: the `ToolCall` that is being answered."""
    raise LookupError("there is a current call only inside a tool call")


# ---- calling and closing them


class Resolver(AsyncExitStack[None]):
    """The dependencies of one tool call: `async with Resolver(overrides) as r: await r.get(fn)`.

    `overrides` maps functions to those that take their place, wherever they are asked for.
    """

    def __init__(self, overrides: Mapping[Function, Function], plan: Plan | None = None) -> None:
        super().__init__()
        self.closing = False
        self._overrides, self._plan = overrides, plan or {}
        self._values: dict[Function, Any] = {}

    async def __aexit__(self, *error: Any) -> None:
        self.closing = True
        await super().__aexit__(*error)

    async def get(self, function: Function, *path: Function) -> Any:
        """What a dependency gives, called now if it has not been called yet."""
        function = self._overrides.get(function, function)
        if function not in self._values:
            _refuse_circle(function, path)
            wanted = self._plan.get(function)
            wanted = dependencies(function) if wanted is None else wanted
            given = {name: await self.get(each, *path, function) for name, each in wanted.items()}
            self._values[function] = await self._open(function, given)
        return self._values[function]

    async def _open(self, function: Function, arguments: dict[str, Any]) -> Any:
        manager = _opened(function, arguments)

        async def close(*error: Any) -> None:  # not True: no dependency swallows a tool's error
            await manager.__aexit__(*error)

        try:
            value = await manager.__aenter__()
        except RuntimeError as error:
            if str(error) != "generator didn't yield":  # contextlib's, which does not say whose
                raise
            raise RuntimeError(f"dependency {name_of(function)}: {error}") from error
        self.push_async_exit(close)
        return value


@asynccontextmanager
async def _opened(function: Function, arguments: dict[str, Any]) -> AsyncGenerator[Any, None]:
    made: Any = function(**arguments)
    once: Function = lambda: made  # noqa: E731
    if inspect.isasyncgen(made):
        async with asynccontextmanager(once)() as value:
            yield value
    elif inspect.isgenerator(made):
        with contextmanager(once)() as value:
            yield value
    else:
        yield await made if inspect.isawaitable(made) else made


async def run_and_close(resolver: Resolver, work: Callable[[], Awaitable[T]]) -> T:
    """What `work()` returns, which uses the resolver; a cancel does not cut its closing short.

    The work has a task for itself, since dependencies have to open and close in one task and one
    context. A cancel is handed on to it only while it is not closing; work that ends all the same
    counts as finished, so that its result is not lost.
    """

    async def outcome() -> tuple[T] | BaseException:
        try:
            return (await work(),)
        except BaseException as error:  # a KeyboardInterrupt would leave a task by the event loop
            return error

    task = asyncio.ensure_future(outcome())
    cancelled: BaseException | None = None
    while not task.done():
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError as error:
            cancelled = error
            if not resolver.closing:
                task.cancel()
    if isinstance(result := task.result(), BaseException):
        raise cancelled or result
    return result[0]


# ---- reading signatures


def plan(
    functions: Iterable[Function], names: Names = None, path: tuple[Function, ...] = ()
) -> Plan:
    """What dependencies, and each of their own in turn, have injected. TypeError if it cannot work.

    `names` are names that annotations may use besides those of the function's module.
    """
    found: Plan = {}
    for function in functions:
        _refuse_circle(function, path)
        found[function] = dependencies(function, names)
        found |= plan(found[function].values(), names, (*path, function))
    return found


def dependencies(function: Function, names: Names = None) -> dict[str, Function]:
    """As `injected`, for a dependency: TypeError if something else is missing to call it."""
    parameters = parameters_of(function, names)
    wanted = injected(parameters)
    for name, parameter in parameters.items():
        optional = parameter.default is not parameter.empty or parameter.kind in (2, 4)  # *a, **k
        if not optional and name not in wanted:
            raise TypeError(
                f"dependency {name_of(function)!r}: nothing gives its parameter {name!r} a value; "
                "mark it with Depends(...) or give it a default"
            )
    return wanted


def injected(parameters: Mapping[str, inspect.Parameter]) -> dict[str, Function]:
    """The parameters that are marked with `Depends`, and the function that each gets it from."""
    marks = {
        name: _mark(each.default) or _mark(each.annotation) for name, each in parameters.items()
    }
    return {name: mark.function for name, mark in marks.items() if mark}


def _mark(hint: Any) -> Dependency | None:
    if isinstance(hint, Dependency):
        return hint
    marks = map(_mark, get_args(getattr(hint, "__value__", hint)))  # __value__: `type X = ...`
    return next((mark for mark in marks if mark), None)


def parameters_of(function: Function, names: Names = None) -> dict[str, inspect.Parameter]:
    """The parameters of a function, each annotation resolved, with its `Annotated` metadata."""
    try:
        parameters = inspect.signature(function).parameters
    except ValueError:  # a builtin that does not tell (`dict`, say)
        return {}

    def typed() -> None: ...  # without the return type, which is often there for checkers only

    empty = inspect.Parameter.empty
    typed.__annotations__ = {
        name: each.annotation for name, each in parameters.items() if each.annotation is not empty
    }
    while isinstance(function, partial):
        function = function.func
    if not inspect.isroutine(function):  # a class, or an object that can be called
        function = function.__init__ if inspect.isclass(function) else type(function).__call__
    module = getattr(inspect.unwrap(function), "__globals__", {})
    local = names if "." in function.__qualname__ else None  # defined in a function or a class
    try:
        hints = get_type_hints(typed, module, local, include_extras=True)
    except NameError as error:
        raise TypeError(
            f"{name_of(function)!r}: an annotation uses {error.name!r}, which is not defined there "
            "when the program runs; define or import it at the top of its module"
        ) from error
    return {n: each.replace(annotation=hints.get(n, empty)) for n, each in parameters.items()}


def _refuse_circle(function: Function, path: tuple[Function, ...]) -> None:
    if function in path:
        circle = " -> ".join(map(name_of, [*path[path.index(function) :], function]))
        raise TypeError(f"dependencies go in a circle: {circle}")


def name_of(function: Function) -> str:
    """What to call a function in messages."""
    return getattr(function, "__name__", None) or type(function).__name__


# ==== errors.py ==== agentloop 0.1.0, sha256 b10c71388d53144f
"""What can go wrong, in one small hierarchy."""


class AgentBusy(RuntimeError):
    """One agent runs one query at a time; `fork()` gives an independent copy."""


class SessionLocked(RuntimeError):
    """A session is open in one agent at a time; `fork()` gives it a copy of its own."""


class ToolError(Exception):
    """An expected failure of a tool: the model reads the message, and nothing else of it."""


class ModelError(Exception):
    """A model request failed.

    `status` is the HTTP status (None if there was no answer), `request_id` the provider's own,
    `retry_after` the seconds that the provider asks to wait.
    """

    def __init__(
        self,
        message: str,
        *,
        status: int | None = None,
        request_id: str | None = None,
        retry_after: float | None = None,
    ) -> None:
        super().__init__(message)
        self.status, self.request_id, self.retry_after = status, request_id, retry_after


class ConnectionFailed(ModelError):
    """No answer, or only part of one: refused, reset, timed out, cut off."""


class RateLimited(ModelError):
    """429: too many requests or tokens."""


class Overloaded(ModelError):
    """529 or 503: the provider has no capacity at the moment."""


class ServerError(ModelError):
    """Any other 5xx."""


class BadRequest(ModelError):
    """The provider refuses the request itself: trying again would not help."""


class ContextWindowExceeded(BadRequest):
    """The request is longer than the model's context window."""


class ContentRefused(BadRequest):
    """The provider's content filter refuses the request."""


class AuthenticationFailed(ModelError):
    """401 or 403: the key is missing, wrong, or not allowed to do this."""


class BadResponse(ModelError):
    """The answer is not what the provider's API promises (HTML, truncated JSON, ...)."""


# ==== tokens.py ==== agentloop 0.1.0, sha256 379f3821c492df9a
"""How many tokens a text, a message, a list of tools has: tiktoken's count, or an estimate.

The estimate is one token per four bytes of UTF-8, on every machine. tiktoken counts better, but
downloads its tables, without a timeout: so it counts only where a program says so, and where they
are on the disk. Either is scaled by what the provider reports: see prefix.py.
"""

TokenCount: TypeAlias = Callable[[str], int]

BYTES_PER_TOKEN = 4
MESSAGE_OVERHEAD = 4  # role and separators
ATTACHMENT_TOKENS = 1_000  # an image of about a megapixel, or a page or two of a PDF
ENCODING = "o200k_base"
TABLES = {  # the names of tiktoken's tables in its cache, and how their sha256 begins
    "o200k_base": ("fb374d419588a4632f3f557e76b4b70aebbca790", "446a9538cb6c348e3516120d7c08b09f"),
    "cl100k_base": ("9b5ad71b2ce5302211f9c61530b329a4922fc6a4", "223921b76ee99bde995b7ff738513eef"),
}
PIECE = 2_000  # characters that tiktoken gets at once: long runs of one letter take it very long

_in_use: list[str] = []  # the encoding, if there is one


def estimate(text: str) -> int:
    """One token per four bytes of UTF-8: the same on every machine and at any time."""
    size = len(text) if text.isascii() else len(text.encode("utf-8", "replace"))
    return -(-size // BYTES_PER_TOKEN)


def count_tokens(text: str, encoding: str | None = None) -> int:
    """The tokens of a text: estimated, or counted with a tiktoken encoding ("o200k_base").

    A named encoding is loaded from tiktoken's cache, or downloaded by tiktoken.
    """
    if encoding is None:
        return estimate(text)
    encoder: Any = import_module("tiktoken").get_encoding(encoding)  # which it keeps
    pieces = (text[at : at + PIECE] for at in range(0, len(text), PIECE))
    return sum(len(encoder.encode(piece, disallowed_special=())) for piece in pieces)


def use_tiktoken(encoding: str | None = ENCODING) -> bool:
    """Let agents count with tiktoken from now on, if its table is on the disk: whether they do.

    For the start of a program: loading the table takes half a second. None goes back to the
    estimate. TIKTOKEN_CACHE_DIR says where tiktoken keeps its tables.
    """
    _in_use.clear()
    if encoding is None:
        return False
    if encoding not in TABLES:
        raise ValueError(f"the encodings are {', '.join(TABLES)}; not {encoding!r}")
    folder = os.environ.get("TIKTOKEN_CACHE_DIR", os.environ.get("DATA_GYM_CACHE_DIR"))
    name, digest = TABLES[encoding]
    path = Path(folder or Path(tempfile.gettempdir(), "data-gym-cache"), name)
    # With "" for a folder tiktoken has no cache; a damaged table it deletes, and downloads.
    data = path.read_bytes() if folder != "" and path.is_file() else b""
    if found := sha256(data).hexdigest().startswith(digest):
        count_tokens("", encoding)
        _in_use.append(encoding)
    return found


def counter() -> TokenCount:
    """How agents count: by the estimate, or with tiktoken after `use_tiktoken`."""
    return partial(count_tokens, encoding=_in_use[0]) if _in_use else estimate


def message_tokens(message: Message, count: TokenCount = estimate) -> int:
    """The estimated tokens of one message, its calls and attachments included."""
    content = message.content
    tokens = MESSAGE_OVERHEAD
    if isinstance(content, str):
        tokens += count(content)
    else:
        for part in content:
            tokens += count(part.text) if isinstance(part, TextPart) else ATTACHMENT_TOKENS
    if isinstance(message, AssistantMessage):
        for call in message.tool_calls:
            tokens += MESSAGE_OVERHEAD + count(call.name) + count(call.arguments)
    return tokens


def tool_tokens(tools: Iterable[Tool], count: TokenCount = estimate) -> int:
    """The estimated tokens of the declarations of some tools."""
    return sum(
        count(tool.name + tool.description) + count(to_json(tool.parameters).decode())
        for tool in tools
    )


def context_window(model: str) -> int | None:
    """How many tokens a model's context window has, if the package genai-prices is there and
    knows it."""
    try:
        snapshot = import_module("genai_prices.data_snapshot").get_snapshot()
        _, found = snapshot.find_provider_model(model, None, None, None)
    except (ImportError, LookupError):
        return None
    window: int | None = found.context_window
    return window


# ==== transcript.py ==== agentloop 0.1.0, sha256 656475eb7a42787c
"""Pure functions over a log: what the model sees of it, which calls are open, what is wrong.

The log is append-only and may hold calls without a result (a run was cut off, a call waits for
approval). What the model sees is computed from it, and is always a conversation that every
provider accepts.
"""

CallState: TypeAlias = Literal["waiting", "started", "denied", "answered"]

NEVER_STARTED = "Not run: the run ended before this call started. It had no effects."
OUTCOME_UNKNOWN = (
    "Interrupted: this call had started and its outcome is unknown. "
    "It may have had effects: check before you repeat it."
)
DENIED = "Denied: this call was not allowed and did not run."
_SEALS = {"waiting": NEVER_STARTED, "started": OUTCOME_UNKNOWN, "denied": DENIED}

SUMMARY_INTRO = "The conversation so far, summarized:\n\n"


def view(log: Sequence[Record | Message]) -> list[Message]:
    """What the model sees of a log: its last Summary applied, marks left out, every call answered.

    After a Summary that is the first task, the summary, the user's own messages since the newest
    prompt, and the records from `keep` on.
    """
    reader = View()
    reader.catch_up(log)
    return reader.messages()


def seal(records: Iterable[Record | Message]) -> list[Message]:
    """The messages among some records, as a conversation that every provider accepts.

    Each call is followed by its result, in call order; a call without one gets a text that says
    what is known of it. Results without a call, second results and empty replies are left out,
    empty or repeated call ids are made unique. Idempotent, and the same at any time.
    """
    conversation = Conversation()
    for record in records:
        conversation.add(record)
    return conversation.messages()


class Conversation:
    """The conversation that some records amount to, which come one by one: see `seal`."""

    def __init__(self) -> None:
        self._messages: list[Message] = []
        self._open: dict[str, deque[tuple[int, ToolCall]]] = {}
        self._states: dict[str, CallState] = {}
        self._seen: set[str] = set()

    def add(self, record: Record | Message) -> None:
        note_state(record, self._states)
        if isinstance(record, ToolMessage):
            if waiting := self._open.get(record.tool_call_id):
                at, call = waiting.popleft()
                if not waiting:
                    del self._open[record.tool_call_id]
                same = call.id == record.tool_call_id
                self._messages[at] = record if same else replace(record, tool_call_id=call.id)
        elif isinstance(record, AssistantMessage):
            if record.tool_calls:
                self._add_calls(record)
            elif record.text.strip():
                self._messages.append(record)
        elif isinstance(record, UserMessage | SystemMessage):
            self._messages.append(record)

    def _add_calls(self, record: AssistantMessage) -> None:
        reply = with_unique_ids(record, self._seen)
        self._messages.append(reply)
        for asked, call in zip(record.tool_calls, reply.tool_calls, strict=True):
            self._open.setdefault(asked.id, deque()).append((len(self._messages), call))
            self._messages.append(reply)  # until there is a result

    def messages(self) -> list[Message]:
        messages = self._messages[:]
        for asked_id, still_open in list(self._open.items()):
            for at, call in still_open:
                messages[at] = _sealed(call, self._states[asked_id])
        return messages


class LogReader:
    """Takes in each record of a growing log once, so that a long log costs no more than a new one.

    What it has taken in can be had again from the log at any time: it is no state of its own.
    """

    def __init__(self) -> None:
        self._read = 0
        self._ends: tuple[Any, Any] | None = None  # of what was read; None while it takes one in

    def follows(self, log: Sequence[Any]) -> bool:
        """Whether this log begins with what was read; not after it was cleared, nor if a record
        was not taken in to its end."""
        if self._ends is None:
            return not self._read
        first, last = self._ends  # first: a new Reset, though what follows it may be known
        return self._read <= len(log) and log[0] is first and log[self._read - 1] is last

    def catch_up(self, log: Sequence[Any]) -> None:
        if (start := self._read) < len(log):
            self._read, self._ends = len(log), None
            for at in range(start, self._read):
                self.take(log, at)
            self._ends = log[0], log[self._read - 1]

    def take(self, log: Sequence[Any], at: int) -> None:
        """Take in `log[at]`, the next record."""
        raise NotImplementedError


class View(LogReader):
    """What the model sees of a log, and the ids of all its calls."""

    def __init__(self) -> None:
        super().__init__()
        self._conversation = Conversation()
        self._task: int | None = None
        self.call_ids: set[str] = set()

    def take(self, log: Sequence[Record | Message], at: int) -> None:
        record = log[at]
        if isinstance(record, AssistantMessage):
            self.call_ids.update([call.id for call in record.tool_calls])
        elif isinstance(record, UserMessage) and not record.hidden and self._task is None:
            self._task = at
        if not isinstance(record, Summary):
            self._conversation.add(record)
            return
        self._conversation = Conversation()
        if self._task is not None and self._task < record.keep:
            self._conversation.add(log[self._task])
        told = SUMMARY_INTRO + record.content
        self._conversation.add(UserMessage(told, hidden=True, extra={"pinned": True}))
        for own in own_messages(log[:at]):
            if own < record.keep and own != self._task:
                self._conversation.add(log[own])
        for each in log[record.keep : at]:
            self._conversation.add(each)

    def messages(self) -> list[Message]:
        return self._conversation.messages()


def with_unique_ids(
    reply: AssistantMessage, seen: set[str], fresh: bool = False
) -> AssistantMessage:
    """The reply with call ids that are not empty and not in `seen`; adds its ids to `seen`.

    Some servers send empty ids, or the same ones in every reply; providers refuse both.
    fresh: an empty id becomes one that no other log has ("call_9f86d081884c"), so that what is
        said of a call is said of no other; else it is the same each time ("call", "call_2").
    """
    calls, changed = list[ToolCall](), False
    for call in reply.tool_calls:
        asked = call.id or (f"call_{uuid4().hex[:12]}" if fresh else "call")
        call_id, n = asked, len(seen)  # so that a flood of equal ids is no long search
        while call_id in seen:
            n += 1
            call_id = f"{asked}_{n}"
        seen.add(call_id)
        if call_id != call.id:
            call, changed = replace(call, id=call_id), True
        calls.append(call)
    return replace(reply, tool_calls=tuple(calls)) if changed else reply


def call_states(records: Iterable[Record | Message]) -> dict[str, CallState]:
    """The state of each call, by id: "waiting", "started", "denied" or "answered"."""
    states: dict[str, CallState] = {}
    for record in records:
        note_state(record, states)
    return states


def note_state(record: Record | Message, states: dict[str, CallState]) -> None:
    """Bring the states of some calls up to date with the next record."""
    if isinstance(record, ToolStart):
        if record.call_id in states:
            states[record.call_id] = "started"
    elif isinstance(record, ToolMessage):
        if record.tool_call_id in states:
            states[record.tool_call_id] = "answered"
    elif isinstance(record, AssistantMessage):
        states |= {call.id: "waiting" for call in record.tool_calls}
    elif isinstance(record, Decision) and states.get(record.call_id) == "waiting":
        states[record.call_id] = "waiting" if record.allowed else "denied"


def closing_results(records: Iterable[Record | Message]) -> list[ToolMessage]:
    """The results that open calls lack: each says what is known of its call."""
    records = list(records)
    states = call_states(records)
    return [_sealed(call, states[call.id]) for call in open_calls(records)]


def _sealed(call: ToolCall, state: CallState) -> ToolMessage:
    return ToolMessage(call.id, call.name, _SEALS.get(state, OUTCOME_UNKNOWN), is_error=True)


def open_calls(records: Iterable[Record | Message]) -> list[ToolCall]:
    """The calls that have no result yet, in the order in which they were asked for."""
    records = list(records)
    states = call_states(records)
    return [
        call
        for record in records
        if isinstance(record, AssistantMessage)
        for call in record.tool_calls
        if states[call.id] != "answered"
    ]


def last_message(log: Sequence[Record]) -> UserMessage | AssistantMessage | ToolMessage | None:
    """The newest message of a log, marks left out; None if there is none."""
    for record in reversed(log):
        if isinstance(record, UserMessage | AssistantMessage | ToolMessage):
            return record
    return None


def own_messages(log: Sequence[Record | Message]) -> list[int]:
    """Where in a log the user's own messages stand that are of the task at hand.

    They are the newest prompt and what was sent since. Where a run goes on that was only sent to,
    the prompt is that of a run before it, unless an answer has come between.
    """
    found: list[int] = []
    for at in range(len(log) - 1, -1, -1):
        record = log[at]
        if isinstance(record, RunEnd) and found and record.stop_reason in ("completed", "done"):
            break
        if isinstance(record, UserMessage) and not record.hidden:
            found.append(at)
            if "sent" not in (record.extra or {}):
                break
    return found[::-1]


def nudges_since_a_call(log: Sequence[Record]) -> tuple[int, str]:
    """How often the model was nudged since it called a tool or was asked, and what it said last."""
    nudges, said = 0, ""
    for record in reversed(log):
        if isinstance(record, AssistantMessage):
            said = said or record.text
        elif isinstance(record, UserMessage) and (record.extra or {}).get("nudge"):
            nudges += 1
        elif isinstance(record, UserMessage | ToolMessage):
            break
    return nudges, said


def cut_off_in_a_row(log: Sequence[Record]) -> int:
    """How many of this run's newest replies are cut off by the length limit and have calls."""
    count = 0
    for record in reversed(log):
        if isinstance(record, AssistantMessage):
            if record.stop_reason != "length" or not record.tool_calls:
                break
            count += 1
        elif isinstance(record, RunStart):
            break
    return count


def validate(messages: Sequence[Message]) -> list[str]:
    """What a provider would refuse in these messages, a line each; [] if nothing."""
    problems: list[str] = []
    seen: set[str] = set()
    waiting: list[str] = []
    for at, message in enumerate(messages):
        where = f"messages[{at}]"
        if isinstance(message, ToolMessage):
            if not waiting or waiting[0] != message.tool_call_id:
                problems.append(
                    f"{where}: a result for {message.tool_call_id!r}, which no call "
                    "before it waits for, or not in this order"
                )
            else:
                waiting.pop(0)
            continue
        if waiting:
            problems.append(f"{where}: calls without a result before it: {', '.join(waiting)}")
            waiting = []
        match message:
            case SystemMessage() if at:
                problems.append(f"{where}: a system message that is not the first message")
            case AssistantMessage():
                if not message.text.strip() and not message.tool_calls:
                    problems.append(f"{where}: an assistant message with neither text nor calls")
                for call in message.tool_calls:
                    if not call.id or call.id in seen:
                        problems.append(f"{where}: call id {call.id!r} is empty or used before")
                    seen.add(call.id)
                    waiting.append(call.id)
            case _:
                pass
    if waiting:
        problems.append(f"at the end: calls without a result: {', '.join(waiting)}")
    if not any(isinstance(message, UserMessage | ToolMessage) for message in messages[-1:]):
        problems.append("the last message is not from the user or a tool")
    return problems


def common_prefix(before: Sequence[Message], after: Sequence[Message]) -> int:
    """With how many of the messages of `before` the messages of `after` begin."""
    if after[: len(before)] == before:  # the common case, at the speed of C
        return len(before)
    pairs = enumerate(zip(before, after, strict=False))
    return next((at for at, (a, b) in pairs if a != b), min(len(before), len(after)))


def usage_of(records: Iterable[Any]) -> Usage:
    """The tokens that some records report, added up: replies, summaries and side requests."""
    found = [record.usage for record in records if getattr(record, "usage", None) is not None]
    totals: dict[str, Any] = {name: sum(map(attrgetter(name), found)) for name in _COUNTS}
    return Usage(**totals)


_COUNTS = [counted.name for counted in fields(Usage) if counted.name != "extra"]


# ==== prefix.py ==== agentloop 0.1.0, sha256 56cae796f81d9e74
"""What a request shares with the one before it: the prefix that a provider has in its cache.

A cached token costs about a tenth of a new one, so what a change costs is what stands behind it.
"""

PRIOR = 256  # tokens by which the estimate is trusted before anything was reported
TOO_MUCH = 20  # times the estimate: a report of more than that is none


class PrefixMeter:
    """Measures each request of an agent against the one before it, and against the reports.

    An estimate is what the provider last reported, plus what has come or gone since, at the rate
    of reported to estimated tokens.
    """

    def __init__(self) -> None:
        self._count = counter()
        self._messages: Sequence[Message] = ()  # of the last request that went out
        self._sizes = [0]  # the tokens of its first 0, 1, 2, ... messages
        self._offer: Any = None
        self._fixed = 0  # the tokens of its tools
        self._estimated, self._reported, self._rate = 0, 0, 1.0
        self._measured: tuple[Request, int, list[int]] | None = None

    def tokens(self, request: Request) -> int:
        """The estimated input tokens of a request."""
        if self._offer is None:
            self._learn_from(request)
        kept, new = self._measure(request)
        return self._scaled(self._sizes[kept] + sum(new) + self._tool_tokens(request))

    def send(self, request: Request) -> RequestEvent:
        """What a request has in common with the one before it; it is the one before the next."""
        kept, new = self._measure(request)
        offer = (request.tools, request.tool_choice)
        known = 0 if self._offer is not None and offer != self._offer else kept
        again = set(self._messages[known:])
        self._fixed, self._offer = self._tool_tokens(request), offer
        del self._sizes[kept + 1 :]
        for size in new:
            self._sizes.append(self._sizes[-1] + size)
        self._messages, self._measured = request.messages, None
        rebilled = sum(
            self._sizes[at + 1] - self._sizes[at]
            for at in range(known, len(request.messages) if again else known)
            if request.messages[at] in again
        )
        read = self._sizes[known] + self._fixed if known else 0
        return RequestEvent(
            request.purpose,
            messages=len(request.messages),
            kept=known,
            tokens=(total := self._scaled(self._sizes[-1] + self._fixed)),
            tokens_kept=min(total, round(read * self._rate)),
            tokens_again=round(rebilled * self._rate),
        )

    def report(self, reply: AssistantMessage) -> None:
        """Learn from what the provider says that the last request and its reply had."""
        if reply.usage is not None:
            self._learn(self._sizes[-1] + self._fixed, reply, reply.usage)

    def _learn(self, estimated: int, reply: AssistantMessage, usage: Usage) -> None:
        if not 0 < usage.input_tokens < TOO_MUCH * (estimated + PRIOR):  # nobody can mean that
            return
        rate = (usage.input_tokens + PRIOR) / (estimated + PRIOR)
        self._rate = min(max(rate, 0.5), 2.0)
        self._estimated = estimated + message_tokens(reply, self._count)
        self._reported = usage.total_tokens - usage.reasoning_tokens

    def _learn_from(self, request: Request) -> None:
        """Before an agent's first request: from the newest reply in the history it begins with."""
        for at in range(len(request.messages) - 1, -1, -1):
            reply = request.messages[at]
            if isinstance(reply, AssistantMessage) and reply.usage and reply.usage.input_tokens > 0:
                sizes = (message_tokens(one, self._count) for one in request.messages[:at])
                self._learn(sum(sizes) + self._tool_tokens(request), reply, reply.usage)
                return

    def _scaled(self, estimated: int) -> int:
        return max(0, self._reported + round(self._rate * (estimated - self._estimated)))

    def _measure(self, request: Request) -> tuple[int, list[int]]:
        """With how many of the last request's messages this one begins, and the tokens of the rest.

        Once for a request, as the one that asks how long it is often sends it.
        """
        if self._measured is None or self._measured[0] is not request:
            kept = common_prefix(self._messages, request.messages)
            sizes = [message_tokens(each, self._count) for each in request.messages[kept:]]
            self._measured = request, kept, sizes
        return self._measured[1:]

    def _tool_tokens(self, request: Request) -> int:
        if self._offer is not None and request.tools == self._offer[0]:
            return self._fixed
        return tool_tokens(request.tools, self._count)


# ==== results.py ==== agentloop 0.1.0, sha256 227069283d985f5a
"""What a tool returned or raised, as content that the model can read."""


def as_content(value: Any, limit: int) -> str | tuple[Part, ...]:
    """What a tool returned, as the model will read it. Never raises: the tool has run.

    Text of more than `limit` characters loses its middle.
    """
    items: Sequence[Any] = value if type(value) in (list, tuple) else (value,)
    if not any(isinstance(item, _PARTS) for item in items):
        return clip(as_text(value), limit)
    parts: list[Part] = []
    for item in items:
        if not isinstance(item, _PARTS):
            item = TextPart(as_text(item))
        if isinstance(item, TextPart):
            item = replace(item, text=clip(item.text, limit))
            limit = max(0, limit - len(item.text))
        parts.append(item)
    return tuple(parts)


_PARTS = (TextPart, ImagePart, FilePart, Unknown)


_NOT_RUN = (GeneratorType, AsyncGeneratorType, CoroutineType)


def as_text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, str):
        return clean_text(str.__str__(value))  # of a StrEnum, its value
    if isinstance(value, bytes | bytearray | memoryview):
        data = bytes(cast(bytes, value))
        return f"<{len(data):,} bytes, sha256 {sha256(data).hexdigest()[:16]}>"
    if isinstance(value, _NOT_RUN):
        kind = type(cast(object, value)).__name__
        return f"The tool returned a {kind} object, which nobody has run: there is nothing to see."
    try:
        return _to_json(value)
    except Exception:
        with suppress(Exception):  # text that UTF-8 cannot carry
            return _to_json_cleaned(value)
    return _describe(value)


def _to_json(value: Any) -> str:
    text = to_json(value, inf_nan_mode="strings", bytes_mode="base64", fallback=_describe).decode()
    return from_json(text) if text.startswith('"') else text  # a date, an Enum: no quotes needed


def _to_json_cleaned(value: Any) -> str:
    plain = to_jsonable_python(value, bytes_mode="base64", fallback=_describe)
    return _to_json(from_json(clean_text(json.dumps(plain, ensure_ascii=False))))


def _describe(value: Any) -> str:
    try:
        return clean_text(repr(value))
    except Exception:
        return f"<{type(value).__name__}>"


def clip(text: str, limit: int) -> str:
    if len(text) <= limit:
        return text
    head, tail = text[: limit - limit // 2], text[len(text) - limit // 2 :]
    return f"{head}\n[... {len(text) - limit:,} characters left out ...]\n{tail}"


def describe_error(error: BaseException, limit: int = 500) -> str:
    """An exception for the model: its type and the first line of what it says."""
    inner: Any = getattr(error, "exceptions", ())
    if issubclass(type(error), BaseExceptionGroup) and len(inner) == 1:
        return describe_error(inner[0], limit)  # the group itself says nothing
    try:
        lines = clean_text(str(error)).strip().splitlines()
    except Exception:
        lines = []
    return truncate(": ".join([type(error).__name__, *lines[:1]]), limit)


def truncate(text: str, limit: int) -> str:
    return text if len(text) <= limit else text[: limit - 3] + "..."


# ==== settings.py ==== agentloop 0.1.0, sha256 7b090662f05e76d7
"""Makes the settings of a class and of all its mixins add up in one typed constructor.

Without this, a composed class would silently lose the settings of all but one of its bases.
"""


@dataclass_transform(kw_only_default=True, eq_default=False, field_specifiers=(field,))
class _Typed:
    """Tells checkers and editors what `Settings` does; they look for it on a base class."""


class Settings(_Typed):
    """Every subclass is a keyword-only dataclass; a class attribute changes a setting's default.

    No `eq` and no `repr`: instances are hashable, and print neither transcripts nor keys.
    """

    _sets: ClassVar[set[str]] = set()

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "__init__" in vars(cls):
            raise TypeError(
                f"{cls.__name__}: __init__ is made from the settings, and yours would be lost in a "
                "subclass; use __post_init__ and call super().__post_init__() in it"
            )
        own = inspect.get_annotations(cls)
        nearest: dict[
            str, Field[Any]
        ] = {}  # of each inherited setting, as the nearest class has it
        for base in reversed(cls.__mro__[1:]):
            fields = base.__dict__.get("__dataclass_fields__", {})
            nearest |= {name: fields[name] for name in base.__dict__.get("_sets", ())}
        cls._sets = {*own, *(name for name in vars(cls) if name in nearest)}
        for name, inherited in nearest.items():
            if name not in cls._sets:
                setattr(cls, name, inherited)
        for name in cls._sets:
            if isinstance(value := vars(cls).get(name), list | dict | set):
                setattr(cls, name, field(default_factory=partial(copy.copy, value)))
        types = {name: inherited.type for name, inherited in nearest.items()} | own
        cls.__annotations__ = types  # dataclass() sees annotated names only
        dataclass(kw_only=True, eq=False, repr=False)(cls)
        cls.__annotations__ = own


# ==== waiting.py ==== agentloop 0.1.0, sha256 176f9f4395596c37
"""Waits that end: several coroutines side by side, each cancel answered within a grace period.

A tool may refuse to stop (it swallows CancelledError, or awaits something that does). It is then
left behind after `grace` seconds, with a warning; nobody waits for it for ever.
"""


async def settle(
    function: Callable[[X], Awaitable[T]], items: Iterable[X], *, at_once: int, grace: float
) -> list[T | BaseException]:
    """What `function` returned or raised for each item, in order; one failure stops no other.

    `at_once` of them run at a time. Cancelled, it cancels those that still run, waits for them up
    to `grace` seconds, and raises CancelledError.
    """
    items, loop = list(items), asyncio.get_running_loop()
    slots = asyncio.Semaphore(at_once) if len(items) > at_once else None
    left, all_ended = len(items), loop.create_future()

    async def one(item: X) -> T | BaseException:
        nonlocal left
        try:
            if slots is None:
                return await outcome(function(item))
            async with slots:
                return await outcome(function(item))
        finally:
            left -= 1
            if not left and not all_ended.done():
                all_ended.set_result(None)

    tasks = [loop.create_task(one(item)) for item in items]
    try:
        if tasks:  # asyncio.wait takes one more turn of the event loop, which is 5 us
            await all_ended
    except asyncio.CancelledError:
        await reap(tasks, grace)
        raise
    return [asyncio.CancelledError() if task.cancelled() else task.result() for task in tasks]


async def within(seconds: float | None, work: Awaitable[T], *, grace: float) -> T:
    """What `work` returns, or TimeoutError after `seconds`.

    Work that ends while it is being stopped counts as finished: its result comes first, and a
    cancel at the next await. Work that does not stop is left behind `grace` seconds later.
    """
    if seconds is None:
        return await work
    task = asyncio.ensure_future(outcome(work))
    in_time = cancelled = False
    try:
        in_time = bool((await asyncio.wait([task], timeout=seconds))[0])
    except asyncio.CancelledError:
        cancelled = True
    cancelled = await reap([task], grace) or cancelled
    finished = task.done() and not task.cancelled()
    if cancelled and not finished:
        raise asyncio.CancelledError
    if not in_time and not finished:
        raise TimeoutError(f"not finished within {seconds:g} seconds; it may have had effects")
    if cancelled:
        cancel_this_task()
    if isinstance(result := task.result(), BaseException):
        raise result
    return result


async def outcome(work: Awaitable[T]) -> T | BaseException:
    """What `work` returns or raises. A task that is cancelled still ends as cancelled.

    A KeyboardInterrupt that leaves a task would stop the event loop; so it travels as a value.
    """
    try:
        return await work
    except BaseException as error:
        if was_cancelled(error):
            raise
        return error


async def reap(tasks: Sequence[asyncio.Future[Any]], grace: float) -> bool:
    """Cancel tasks and wait until they have ended, but no longer than `grace` seconds.

    Whether the waiting task itself was cancelled meanwhile, which does not shorten this.
    """
    for task in tasks:
        task.cancel()
    loop, cancelled = asyncio.get_running_loop(), False
    end = loop.time() + grace
    while pending := [task for task in tasks if not task.done()]:
        if (left := end - loop.time()) <= 0:
            logger.warning("%d task(s) did not stop within %g seconds", len(pending), grace)
            break
        try:
            await asyncio.wait(pending, timeout=left)
        except asyncio.CancelledError:
            cancelled = True
    return cancelled


def run_to_its_end(work: Coroutine[Any, Any, T], grace: float) -> T:
    """`asyncio.run`, without its wait for ever for a task that does not stop."""
    runner = asyncio.Runner()
    try:
        return runner.run(work)
    finally:
        loop = runner.get_loop()
        loop.run_until_complete(reap([*asyncio.all_tasks(loop)], grace))
        if asyncio.all_tasks(loop):
            loop.run_until_complete(loop.shutdown_asyncgens())
            loop.close()
            asyncio.set_event_loop(None)
        else:
            runner.close()


def cancel_this_task() -> None:
    """Let the next await raise the CancelledError that was caught just now."""
    if (task := asyncio.current_task()) is not None:
        task.uncancel()  # it is still one cancel, and not two
        task.cancel()


def was_cancelled(error: BaseException) -> bool:
    """Whether somebody cancelled this task, rather than its own code raising CancelledError."""
    if not isinstance(error, asyncio.CancelledError):
        return False
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


# ==== stream.py ==== agentloop 0.1.0, sha256 44fe8ffed3da436b
"""The events of one run as an async iterator that stays in step with its reader."""


class EventStream(Generic[R]):
    """Iterate it for the events of a run; `result` is the run's Result once they have ended.

    Leaving the loop early cancels the run: at once when the stream is dropped, or with `aclose()`,
    or at the end of `async with`. An object rather than an async generator, because after a
    `break` the garbage collector only schedules a generator's `aclose`, some time later.
    """

    def __init__(self, run: Callable[[asyncio.Queue[Any]], Awaitable[R]], grace: float) -> None:
        self._run, self._grace = run, grace
        self._queue: asyncio.Queue[Any] = asyncio.Queue()
        self._task: asyncio.Task[R | BaseException] | None = None
        self._taken = False
        self._ended = False
        self.result: R | None = None

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Event:
        if self._ended:
            raise StopAsyncIteration
        if self._task is None:
            self._task = asyncio.ensure_future(outcome(self._run(self._queue)))
            self._task.add_done_callback(partial(_close, self._queue))
        if self._taken:  # the reader has dealt with the last event: the run may go on
            self._queue.task_done()
        try:
            event = await self._queue.get()
        except asyncio.CancelledError:
            await self.aclose()
            raise
        self._taken = True
        if event is not _END:
            return cast(Event, event)
        self._ended = True
        if isinstance(result := self._task.result(), BaseException):
            raise result
        self.result = result
        raise StopAsyncIteration

    async def aclose(self) -> None:
        """Cancel the run if it is still going, and wait until it has closed its log."""
        self._ended = True
        if self._task is not None and await reap([self._task], self._grace):
            raise asyncio.CancelledError

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.aclose()

    def __del__(self) -> None:
        if self._task is None or self._task.done() or (loop := self._task.get_loop()).is_closed():
            return
        with suppress(RuntimeError):  # there is no running loop here
            if asyncio.get_running_loop() is loop:
                self._task.cancel()
                return
        loop.call_soon_threadsafe(self._task.cancel)


_END = object()


def _close(queue: asyncio.Queue[Any], task: object) -> None:
    queue.put_nowait(_END)


# ==== runs.py ==== agentloop 0.1.0, sha256 be1d93862aafdf60
"""One run at a time, from a prompt to a Result, and a log that is in order however it ends.

`Loop.work` is what a run does; this is what stands around it: who may start one, what marks it
leaves, how it is cancelled, interrupted, streamed, continued and forked.
"""

L = TypeVar("L", bound=LogReader)

recording = threading.RLock()  # for mixins whose `record` is called from several threads

INTERRUPTED = "The user interrupted you here."


@dataclass(slots=True)
class Run:
    """A run that goes on."""

    task: asyncio.Task[Any]
    queue: asyncio.Queue[Any] | None  # to the reader of query_stream
    cancels: int  # that the task had before
    interrupt: str | None = None
    halted: bool = False  # no further call starts

    def goes_on(self) -> bool:
        return not (self.task.done() or self.task.get_loop().is_closed())

    def is_cancelled(self) -> bool:
        return self.task.cancelling() > self.cancels


class Runs(Settings, ABC):
    """What can be run on a prompt.

    listeners: functions that get each event as it happens.
    cancel_grace: how many seconds a cancelled tool gets to stop.
    """

    listeners: Sequence[Listener] = ()
    cancel_grace: float = 5.0

    log: list[Record] = field(default_factory=list[Record], init=False)
    _run: Run | None = field(default=None, init=False)  # the one that goes on
    _cache: dict[Any, Any] = field(default_factory=dict[Any, Any], init=False)  # not for forks

    @abstractmethod
    async def work(self) -> Result:
        """The run itself."""

    @abstractmethod
    def record(self, record: Record) -> None:
        """Append to the log."""

    async def run(self, prompt: str | Sequence[Part] | None = None) -> Result:
        """Work on a prompt until there is an answer; without one, go on where the last run ended.

        Raises what the model raises, AgentBusy if a run is going on, and ValueError if there is
        nothing to work on. After an error, `run()` tries again.
        """
        return await self._start(prompt, None)

    async def query(self, prompt: str | Sequence[Part]) -> str:
        """The answer to a prompt, as text."""
        return (await self.run(prompt)).text

    def query_stream(self, prompt: str | Sequence[Part] | None = None) -> EventStream[Result]:
        """The events of a run, as they happen; leaving the iteration cancels the run.

        No tool starts before its ToolCallEvent has been dealt with: leaving there prevents it.
        """
        return EventStream(lambda queue: self._start(prompt, queue), 2 * self.cancel_grace)

    def run_sync(self, prompt: str | Sequence[Part] | None = None) -> Result:
        """`run` for scripts. RuntimeError in a running event loop: `await agent.run(...)` there."""
        if _in_event_loop():
            raise RuntimeError("run_sync() is for scripts; in async code use: await agent.run(...)")
        return run_to_its_end(self.run(prompt), self.cancel_grace)

    def interrupt(self, note: str | None = None) -> None:
        """End the current run from outside: it returns a Result with stop_reason "interrupted".

        The model is told of it, and the note. Does nothing if no run is going on. Thread-safe.
        """
        if (run := self._run) is None or run.interrupt is not None:
            return
        run.interrupt, run.halted = f"{INTERRUPTED} {note or ''}".strip(), True
        run.task.get_loop().call_soon_threadsafe(lambda: self._run is run and run.task.cancel())

    @property
    def messages(self) -> list[Message]:
        """The conversation as the model sees it, without the system prompt: every call answered."""
        with recording:  # which other threads may go on with
            return self.reader(View).messages()

    @property
    def usage(self) -> Usage:
        """All tokens so far, those of summaries and other side requests included."""
        return usage_of(self.log)

    def load_history(self, messages: Sequence[Message]) -> None:
        """Start from these messages instead of the present log. Calls without a result get one.

        System messages are left out: the system prompt is a setting. ValueError: one of them holds
        what cannot be saved, and the log is as it was. With a session, a process that dies in here
        may leave a part of them; the old ones are in its file all the same.
        """
        self._refuse_if_busy()
        for message in messages:
            if type(message) not in (SystemMessage, UserMessage, AssistantMessage, ToolMessage):
                raise TypeError(
                    f"history is messages, such as UserMessage('hi'), not {message!r:.80}"
                )
        history = [m for m in seal(messages) if not isinstance(m, SystemMessage)]
        for message in history:
            dump_record(message)
        with recording:
            log = self.log[:]
            self.log.clear()
            try:
                self.record(Reset())
            except BaseException:  # such as a full disk
                self.log[:] = log
                raise
            for message in history:
                self.record(message)

    def clear_history(self) -> None:
        """Forget the log; the settings stay."""
        self.load_history([])

    def __copy__(self) -> Self:  # as `copy` would without it, in half the time
        twin, state = object.__new__(type(self)), object.__getstate__(self)
        fields, slots = cast(Any, state if isinstance(state, tuple) else (state, {}))
        vars(twin).update(fields)
        for name, value in slots.items():
            setattr(twin, name, value)
        return twin

    def fork(self, at: int | None = None) -> Self:
        """An independent copy with the same settings, and the log up to record `at` (or all of it).

        It has lists, dicts and sets of its own, with the same things in them. Calls that are open
        there get a result in the copy. An agent with an empty log is a template: fork it once per
        request.
        """
        twin = copy.copy(self)
        log = self.log[:at]
        twin.log, twin._run, twin._cache = [], None, {}
        for name, value in vars(twin).items():
            if isinstance(value, list | dict | set):
                setattr(twin, name, copy.copy(cast(Any, value)))
        if log:
            twin.log = [*log, *closing_results(log)]
        return twin

    def reader(self, kind: type[L], *settings: Any) -> L:
        """A reader of this kind, made with these settings, that has read the whole log."""
        with recording:
            reader: L | None = self._cache.get((kind, settings))
            if reader is None or not reader.follows(self.log):
                reader = self._cache[kind, settings] = kind(*settings)
            reader.catch_up(self.log)
            return reader

    @property
    def listened(self) -> bool:
        """Whether anybody gets the events."""
        return bool(self.listeners) or (self._run is not None and self._run.queue is not None)

    def emit(self, event: Any) -> None:
        """Tell the listeners, and survive one that raises."""
        for listener in self.listeners:
            try:
                listener(event)
            except Exception:
                logger.exception("a listener failed on %s", type(event).__name__)
        if self._run is not None and self._run.queue is not None:
            self._run.queue.put_nowait(event)

    def tell(self, text: str, **extra: Any) -> None:
        """Put a hidden user message into the conversation."""
        self.record(UserMessage(text, hidden=True, extra=extra or None))
        self.emit(HiddenUserMessageEvent(text))

    # ---- how a run begins and ends

    async def _start(
        self, prompt: str | Sequence[Part] | None, queue: asyncio.Queue[Any] | None
    ) -> Result:
        if self._run is not None and self._run.is_cancelled():  # a dropped stream, on its way out
            await asyncio.wait([self._run.task], timeout=2 * self.cancel_grace)
        self._refuse_if_busy()
        task = asyncio.current_task()
        assert task is not None
        run = self._run = Run(task, queue, task.cancelling())
        try:
            start = len(self.log)
            self._begin(prompt)
            result = await self._to_its_end(run)
            result = replace(
                result, usage=usage_of(self.log[start:]), pending=tuple(open_calls(self.log))
            )
            self.emit(FinalResponseEvent(result.text, result.stop_reason))
            return result
        finally:
            self._run = None

    def _refuse_if_busy(self) -> None:
        if self._run is not None and self._run.goes_on():
            raise AgentBusy(
                "this agent is running a query: await it (or close its stream) first, "
                "or give each query a copy of its own with agent.fork()"
            )

    def _begin(self, prompt: str | Sequence[Part] | None) -> None:
        if prompt is None:
            unanswered = not isinstance(last_message(self.log), AssistantMessage | None)
            if not unanswered and not open_calls(self.log):
                raise ValueError("there is nothing to go on with: give run() a prompt")
            self.record(RunStart())
            return
        message = UserMessage(prompt)
        only_text = isinstance(prompt, str) or all(isinstance(part, TextPart) for part in prompt)
        if only_text and not message.text.strip():
            raise ValueError("the prompt is empty: say what to do")
        self.record(RunStart())
        for result in closing_results(self.log):
            self.record(result)
        if last_message(self.log) != message:  # asked again after an error: it is there already
            self.record(message)

    async def _to_its_end(self, run: Run) -> Result:
        """Work, and mark in the log how it ended."""
        try:
            result = await self.work()
        except Stop as stop:
            result = Result(stop.text, stop.value, stop.reason)
        except asyncio.CancelledError:
            # If interrupt() alone cancelled the task, it is cancelled no more.
            if run.interrupt is None or run.task.uncancel() > run.cancels:
                self.record(RunEnd("cancelled"))
                raise
            self.tell(run.interrupt)
            result = Result(stop_reason="interrupted")
        except GeneratorExit:  # the event loop is gone, and with it the run
            raise
        except BaseException:
            self.record(RunEnd("error"))
            raise
        self.record(RunEnd(result.stop_reason))
        return result


def _in_event_loop() -> bool:
    with suppress(RuntimeError):
        return bool(asyncio.get_running_loop())
    return False


# ==== docstrings.py ==== agentloop 0.1.0, sha256 76c2b3a28ed6c354
"""Takes a docstring apart: what a function does, and what each of its parameters means.

Reads the Google style ("Args:"), the NumPy style ("Parameters" over dashes) and the Sphinx style
(":param x: ..."). A docstring in none of them is all description.
"""

_PARAMETERS = r"(?:Other |Keyword )?(?:Args|Arguments|Params|Parameters)"
_OTHERS = r"(?:Returns?|Yields?|Raises|Receives|Warns)"
_GOOGLE = re.compile(rf"({_PARAMETERS}|{_OTHERS}):$")
_NUMPY = re.compile(rf"({_PARAMETERS}|{_OTHERS})$")
_SPHINX = re.compile(
    r":(?:param|parameter|arg|argument|key|keyword|type|returns?|rtype|raises?|yields?)\b[^:]*:"
)
# In an entry of a section: the names of parameters, and the text on the same line.
_GOOGLE_ENTRY = re.compile(r"(\*{0,2}\w+)\s*(?:\(.*?\))?\s*:(?:\s+|$)(.*)")
_NUMPY_ENTRY = re.compile(r"(\*{0,2}\w+(?:\s*,\s*\*{0,2}\w+)*)\s*(?::.*)?$()")
_SPHINX_ENTRY = re.compile(r":(?:param|parameter|arg|argument|key|keyword)\s[^:]*?(\w+)\s*:(.*)")


def parse_docstring(doc: str | None) -> tuple[str, dict[str, str]]:
    """The text before the first section of a docstring, and the text of each parameter.

    A parameter's text is folded into one line.
    """
    lines = inspect.cleandoc(doc or "").splitlines()
    underlined = [re.match("-{3,}$", line) is not None for line in [*lines[1:], ""]]
    first, found = len(lines), dict[str, str]()
    for i, line in enumerate(lines):
        rest = lines[i + 1 :]
        if _SPHINX.match(line):
            text = takewhile(lambda line: line and line[0] != ":", rest)
            entries = _entries([line, *text], _SPHINX_ENTRY)
        elif _GOOGLE.match(line):
            text = takewhile(lambda line: not line or line[0].isspace(), rest)
            entries = _entries(inspect.cleandoc("\n" + "\n".join(text)).splitlines(), _GOOGLE_ENTRY)
        elif _NUMPY.match(line) and underlined[i]:
            end = next((j for j in range(i + 2, len(lines)) if underlined[j]), len(lines))
            entries = _entries(lines[i + 2 : end], _NUMPY_ENTRY)
        else:
            continue
        first = min(first, i)
        if line[0] == ":" or re.match(_PARAMETERS, line):
            found |= entries
    return "\n".join(lines[:first]).strip(), found


def _entries(lines: Iterable[str], start: re.Pattern[str]) -> dict[str, str]:
    """The text of each parameter; what comes before the first is dropped."""
    entries: dict[str, list[str]] = {}
    text: list[str] = []
    for line in lines:
        if match := start.match(line):
            text = [match[2]]
            entries |= {name.strip(" *"): text for name in match[1].split(",")}
        else:
            text.append(line)
    return {name: " ".join(" ".join(text).split()) for name, text in entries.items()}


# ==== arguments.py ==== agentloop 0.1.0, sha256 42c4e6755e8094f4
"""From a function's signature to a JSON schema, and from the model's text to checked arguments.

Models send almost the right thing: a list as a JSON string, null for what could be left out, no
text at all. Arguments are checked first, and such habits are undone only where that failed.
"""

MAX_ARGUMENT_CHARS = 1_000_000
MAX_ERRORS = 10  # that the model reads
MAX_DETAILS = 10_000  # more failures than these would take seconds to look at one by one


def visible(
    tool: str, parameters: Mapping[str, Parameter], hidden: Container[str]
) -> dict[str, Parameter]:
    """The parameters that the model fills in. TypeError for those that it cannot."""
    found = dict[str, Parameter]()
    for i, (name, parameter) in enumerate(parameters.items()):
        typed = parameter.annotation is not parameter.empty
        if name in hidden or (i == 0 and name in ("self", "cls") and not typed):
            continue
        if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            raise TypeError(
                f"tool {tool!r}: parameter {name!r} is {parameter.kind.description}; "
                "a model can only fill in parameters that have a name of their own"
            )
        if not typed:
            raise TypeError(f"tool {tool!r}: parameter {name!r} needs a type annotation")
        found[name] = parameter
    return found


class Arguments:
    """What a tool accepts: the schema for the model, and the check of what the model sends.

    Each parameter is a property of the object that the model sends; a single parameter that is a
    pydantic model is the whole object.
    """

    def __init__(
        self, tool: str, parameters: Mapping[str, Parameter], texts: Mapping[str, str]
    ) -> None:
        named = enumerate(parameters.items())
        self._fields = [(f"p{i}", name, _has_default(each)) for i, (name, each) in named]
        self._whole = _the_model_among(parameters)
        try:
            accepted = self._whole.annotation if self._whole else _model_of(parameters)
            self._adapter: TypeAdapter[Any] = TypeAdapter(accepted)
            schema = self._adapter.json_schema(schema_generator=_Schema)
        except _NO_SCHEMA as error:
            raise TypeError(f"tool {tool!r}: {_why_no_schema(parameters, error)}") from error
        if ref := schema.pop("$ref", None):  # a model that contains itself
            schema |= schema["$defs"][ref.rpartition("/")[2]]
        for each in (schema, *schema.get("$defs", {}).values()):
            each.pop("title", None)
        config = getattr(_bare(self._whole.annotation), "model_config", ()) if self._whole else ()
        self._says_extra = "extra" in config
        if not self._says_extra:
            schema["additionalProperties"] = False
        for name in texts.keys() & schema["properties"].keys() if not self._whole else ():
            schema["properties"][name].setdefault("description", texts[name])
        self.schema = schema

    def read(self, text: str) -> dict[str, Any]:
        """The arguments by parameter name, from a model's JSON text. ToolError as `validate`."""
        if not self._whole and len(text) <= MAX_ARGUMENT_CHARS and not _INF_NAN.search(text):
            with suppress(ValidationError):  # what is right takes a quarter of the time this way
                return self._by_name(self._adapter.validate_json(text))
        return self.validate(parse_arguments(text))

    def validate(self, data: dict[str, Any]) -> dict[str, Any]:
        """The arguments by parameter name. ToolError: a line for each problem."""
        if self._whole and not data and _has_default(self._whole):
            return {}
        known = data if self._says_extra else self.schema["properties"]
        unknown = [name for name in data if name not in known]
        problems = [_unknown(name, known) for name in unknown[:MAX_ERRORS]]
        value, errors = self._read(data)
        if errors:
            _repair(data, errors, self.schema.get("required", ()))
            value, errors = self._read(data)
        problems += [_problem(data, each) for each in errors[:MAX_ERRORS]]
        if problems:
            raise ToolError(clip("\n".join(problems[:MAX_ERRORS]), 1000))
        return {self._whole.name: value} if self._whole else self._by_name(value)

    def _by_name(self, value: BaseModel) -> dict[str, Any]:
        given, values = value.model_fields_set, vars(value)
        return {
            name: values[field]
            for field, name, has_default in self._fields
            if field in given or not has_default
        }

    def _read(self, data: dict[str, Any]) -> tuple[Any, list[ErrorDetails]]:
        try:  # as JSON: strict models too take a string for a date there, and a list for a set
            return self._adapter.validate_json(to_json(data)), []
        except ValidationError as error:
            if (count := error.error_count()) > MAX_DETAILS:
                raise ToolError(f"{count:,} values do not fit the schema") from None
            found = error.errors(include_url=False, include_context=False, include_input=False)
            return None, [e for e in found if e["type"] != "extra_forbidden" or len(e["loc"]) > 1]


def _bare(annotation: Any) -> Any:
    """The type inside an `Annotated`."""
    return annotation.__origin__ if get_origin(annotation) is Annotated else annotation


def _has_default(parameter: Parameter) -> bool:
    """Whether Python itself knows what to do without it; it knows nothing of `= Field(...)`."""
    return not (parameter.default is Parameter.empty or isinstance(parameter.default, FieldInfo))


def _the_model_among(parameters: Mapping[str, Parameter]) -> Parameter | None:
    """The only parameter, if it is a pydantic model with fields."""
    if len(parameters) != 1:
        return None
    parameter = next(iter(parameters.values()))
    kind = _bare(parameter.annotation)
    is_model = isinstance(kind, type) and issubclass(kind, BaseModel)
    return parameter if is_model and not issubclass(kind, RootModel) else None


def _model_of(parameters: Mapping[str, Parameter]) -> type[BaseModel]:
    """A model with a field for each parameter; numbered, since `schema` or `_x` can be no field."""
    fields: dict[str, Any] = {}
    for i, (name, parameter) in enumerate(parameters.items()):
        kind, field = parameter.annotation, pydantic.Field(alias=name)
        if _has_default(parameter):
            field = pydantic.Field(parameter.default, alias=name)
        elif isinstance(parameter.default, FieldInfo):  # x: int = Field(5, description=...)
            kind = Annotated[kind, parameter.default]
        fields[f"p{i}"] = (kind, field)
    return create_model("Arguments", __config__=ConfigDict(extra="forbid"), **fields)


class _Schema(GenerateJsonSchema):
    def emit_warning(self, kind: JsonSchemaWarningKind, detail: str) -> None:
        """Silent: a default that is no JSON is left out of the schema, and that is fine."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False  # a title is the name again

    def encode_default(self, dft: Any) -> Any:
        """Infinity is no JSON: as a string it is, and is read back as a number."""
        return from_json(to_json(super().encode_default(dft), inf_nan_mode="strings"))


def _why_no_schema(parameters: Mapping[str, Parameter], error: Exception) -> str:
    for name, parameter in parameters.items():
        kind = parameter.annotation
        try:
            TypeAdapter(kind).json_schema(schema_generator=_Schema)
        except _NO_SCHEMA as reason:
            return (
                f"parameter {name!r} has type {getattr(kind, '__name__', kind)}, which has no JSON "
                "schema. Inject it with Depends(...), or use a type that pydantic knows. "
                f"Pydantic says: {str(reason).splitlines()[0]}"
            )
    return f"there is no JSON schema for it: {error}"


_NO_SCHEMA = (PydanticUserError, NameError, TypeError)


_INF_NAN = re.compile("NaN|Infinity")  # in a string they do no harm, but they are rare


def parse_arguments(arguments: str) -> dict[str, Any]:
    """The object that a model wrote as JSON; no text and `null` mean an empty one.

    Some servers send the object as a JSON string: that is decoded once more. ToolError for
    anything else.
    """
    if len(arguments) > MAX_ARGUMENT_CHARS:
        raise ToolError(f"the arguments are too long: at most {MAX_ARGUMENT_CHARS:,} characters")
    try:
        value = _decode(arguments)
    except ValueError as error:
        raise ToolError(f"the arguments are not valid JSON: {error}") from None
    if isinstance(value, str):
        with suppress(ValueError):
            value = _decode(value)
    if value is None:
        return {}
    if type(value) is not dict:
        raise ToolError(f"arguments must be a JSON object, not {_short(value)}")
    return cast(dict[str, Any], value)


def _decode(text: str) -> Any:
    return from_json(text, allow_inf_nan=False) if text.strip() else None


def _repair(data: dict[str, Any], errors: list[ErrorDetails], required: Container[str]) -> None:
    """Undo, where validation failed, two habits of models: a list or an object sent as a JSON
    string, and null for an argument that could be left out."""
    for item in errors:
        holder, key, value = _find_value(data, item["loc"])
        if value is None and holder is data and key not in required:
            del data[key]
        elif isinstance(value, str) and _CONTAINER_ERROR.fullmatch(item["type"]):
            with suppress(ValueError):
                if isinstance(decoded := _decode(value), list | dict):
                    holder[key] = decoded


_CONTAINER_ERROR = re.compile(
    "(list|dict|mapping|set|frozen_set|tuple|model|model_attributes|dataclass)_type"
)


def _find_value(data: Any, loc: Iterable[int | str]) -> tuple[Any, Any, Any]:
    """The container, key and value that an error is about. Pydantic's `loc` also names the
    members of unions that it tried: those are no keys."""
    holder: Any = None
    last: int | str = ""
    for key in loc:
        if type(data) in (dict, list):
            with suppress(TypeError, LookupError):
                holder, last, data = data, key, data[key]
    return holder, last, data


def _unknown(name: str, known: Iterable[str]) -> str:
    near = get_close_matches(name[:64], known, n=1)
    hint = f"did you mean {near[0]!r}?" if near else "there is no such argument"
    return f"{_short(name)}: {hint}"


def _problem(data: dict[str, Any], item: ErrorDetails) -> str:
    where = ".".join(map(str, item["loc"])) or "arguments"
    got = "" if item["type"] == "missing" else f" (got {_short(_find_value(data, item['loc'])[2])})"
    return " ".join(f"{truncate(where, 80)}: {truncate(item['msg'], 200)}{got}".split())


def _short(value: Any) -> str:
    """A value, named or quoted in a few characters."""
    if isinstance(value, list | dict):
        return "a list" if isinstance(value, list) else "an object"
    if isinstance(value, str):
        return repr(truncate(value, 40))
    return truncate(to_json(value).decode(), 40)


# ==== tools.py ==== agentloop 0.1.0, sha256 b463642369ccc44b
"""@tool: a function's signature becomes a schema for the model and a validated call.

    @tool
    async def add(a: int, b: int) -> int:
        "Adds two numbers."
        return a + b

`await add(1, 2)` still calls the function. A plain `def` works as well: it runs in a thread.
"""

NO_OVERRIDES: Mapping[Function, Function] = {}


class Tool:
    """Something that the model may call. Other sources of tools than `@tool` derive from this.

    parameters: a JSON schema of type "object".
    ephemeral: how many newest results of this tool stay visible; 0 means all of them.
    timeout: seconds that one call may take.
    parallel: may run side by side with other calls.
    idempotent: may run twice for one call, for example when a restart cut the first one off.
    """

    def __init__(
        self,
        name: str,
        description: str = "",
        parameters: dict[str, Any] | None = None,
        *,
        ephemeral: int = 0,
        timeout: float | None = None,
        parallel: bool = True,
        idempotent: bool = False,
    ) -> None:
        if not re.fullmatch(r"[A-Za-z0-9_-]{1,64}", name):
            raise ValueError(
                f"tool name {name!r:.100}: providers accept 1 to 64 letters, digits, _ and -; "
                'choose another one, such as @tool(name="search")'
            )
        if type(timeout) not in (int, float, type(None)) or (timeout is not None and timeout <= 0):
            raise ValueError(f"tool {name!r}: timeout is a number of seconds, not {timeout!r}")
        if ephemeral < 0:
            raise ValueError(f"tool {name!r}: ephemeral is how many results stay, not {ephemeral}")
        self.name = name
        self.description = description
        self.parameters = parameters or {"type": "object", "properties": {}}
        self.ephemeral = int(ephemeral)
        self.timeout = timeout
        self.parallel = parallel
        self.idempotent = idempotent

    def __repr__(self) -> str:
        return f"<Tool {self.name}({', '.join(self.parameters.get('properties', ()))})>"

    def validate(self, arguments: str) -> dict[str, Any]:
        """The arguments, fresh, from the model's JSON text. ToolError says what is wrong."""

        return parse_arguments(arguments)

    async def execute(
        self, args: dict[str, Any], overrides: Mapping[Function, Function] = NO_OVERRIDES
    ) -> Any:
        """What the tool returns for validated arguments. Raises what it raises."""
        raise NotImplementedError(f"{type(self).__name__} needs a method execute(args, overrides)")


class FunctionTool(Tool, Generic[P, R]):
    """A function as a tool; calling it calls the function. `@tool` makes these."""

    def __init__(
        self,
        function: Callable[P, R],
        description: str | None = None,
        *,
        name: str | None = None,
        names: Names = None,
        **options: Any,
    ) -> None:
        if isinstance(function, Tool):
            raise TypeError(f"{function!r} is a tool already")
        functools.update_wrapper(self, function)
        name = name or name_of(function)
        doc, texts = parse_docstring(function.__doc__ if inspect.isroutine(function) else None)
        super().__init__(name, doc if description is None else description, **options)
        if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
            raise TypeError(f"tool {name!r} is a generator function; return a list instead")
        self.function = function
        self._overrides = NO_OVERRIDES
        self._injected, self._plan, self._arguments = _signature(function, name, names, texts)
        self.parameters = self._arguments.schema

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return self.function(*args, **kwargs)

    @overload
    def __get__(self, instance: None, owner: type[Any]) -> FunctionTool[P, R]: ...
    @overload
    def __get__(
        self: FunctionTool[Concatenate[Any, P2], R2],
        instance: object,
        owner: type[Any] | None = None,
    ) -> FunctionTool[P2, R2]: ...
    def __get__(self, instance: object, owner: type[Any] | None = None) -> Any:
        """A tool that is defined in a class is a method: it binds to its instance."""
        if instance is None:
            return self
        bound = copy.copy(self)
        bound.function = MethodType(self.function, instance)
        return bound

    def bind(self, overrides: Mapping[Function, Function]) -> FunctionTool[P, R]:
        """This tool with dependency overrides of its own; those of an agent outrank them."""
        bound = copy.copy(self)
        bound._overrides = {**self._overrides, **overrides}
        return bound

    def __eq__(self, other: object) -> bool:
        """Two looks at one bound method are the same tool, as they are the same method."""
        return isinstance(other, FunctionTool) and vars(self) == vars(other)

    def __hash__(self) -> int:
        return hash((FunctionTool, self.name))

    def validate(self, arguments: str) -> dict[str, Any]:
        return self._arguments.read(arguments)

    async def execute(
        self, args: dict[str, Any], overrides: Mapping[Function, Function] = NO_OVERRIDES
    ) -> Any:
        if not self._injected:
            return await call_function(self.function, **args)
        resolver = Resolver({**self._overrides, **overrides}, self._plan)
        return await run_and_close(resolver, lambda: self._run_with(resolver, args))

    async def _run_with(self, resolver: Resolver, args: dict[str, Any]) -> Any:
        ran, result, complete = False, None, None
        try:
            async with resolver:
                given = {name: await resolver.get(each) for name, each in self._injected.items()}
                try:
                    result = await call_function(self.function, **(args | given))
                except TaskComplete as error:  # no failure: dependencies are not to roll back
                    complete, result = error, error.text
                ran = True
        except Exception as error:
            if not ran:
                raise
            raise ToolError(  # the tool has had its effect: the model has to know
                f"the tool returned {clip(as_text(result), 500)!r}, "
                f"but closing its dependencies failed: {describe_error(error)}"
            ) from error
        if complete:
            raise complete
        return result


_signatures: WeakKeyDictionary[Any, tuple[dict[str, Function], Plan, Arguments]]
_signatures = WeakKeyDictionary()


def _signature(
    function: Function, tool: str, names: Names, texts: Mapping[str, str]
) -> tuple[dict[str, Function], Plan, Arguments]:
    """What a function has injected and takes. A schema costs 0.3 ms and 20 KB, so it is made once
    for a function, however many agents make a tool of it."""
    with suppress(TypeError):  # it cannot be a key
        if function in _signatures:
            return _signatures[function]

    parameters = parameters_of(function, names)
    given = injected(parameters)
    hidden = {*given, *getattr(function, "keywords", ())}  # those of a partial
    arguments = Arguments(tool, visible(tool, parameters, hidden), texts)
    signature = given, plan(given.values(), names), arguments
    with suppress(TypeError):
        _signatures[function] = signature
    return signature


@overload
def tool(function: Callable[P, R], /) -> FunctionTool[P, R]: ...
@overload
def tool(
    description: str | None = None,
    *,
    name: str | None = None,
    ephemeral: int | bool = 0,
    timeout: float | None = None,
    parallel: bool = True,
    idempotent: bool = False,
) -> Callable[[Callable[P, R]], FunctionTool[P, R]]: ...
def tool(description: Any = None, **options: Any) -> Any:
    """Makes a tool of a function: `@tool`, or `@tool("what it does", name=...)`.

    Without a description the docstring is it; the docstring also describes the parameters. The
    other options are those of `Tool`.
    """
    frame = inspect.currentframe()
    names = _names_around(frame.f_back if frame else None)

    def decorate(function: Callable[..., Any]) -> FunctionTool[..., Any]:
        return FunctionTool(function, description, names=names, **options)

    if callable(description):
        return FunctionTool(description, names=names)
    if not isinstance(description, str | None):
        raise TypeError(f"tool() takes a function or a description, not {description!r:.80}")
    return decorate


def _names_around(frame: FrameType | None) -> dict[str, Any]:
    """The local names where a tool is defined: annotations may use them."""
    if frame is None or frame.f_locals is frame.f_globals:
        return {}
    in_a_class = "__qualname__" in frame.f_locals  # then the function around it counts too
    return (_names_around(frame.f_back) if in_a_class else {}) | frame.f_locals


def check_unique_names(tools: Iterable[Any]) -> None:
    """TypeError for what is no tool, ValueError for two tools of one name."""
    if isinstance(tools, Tool) or not hasattr(tools, "__iter__"):
        raise TypeError(f"tools= takes a list of tools, not {tools!r:.80}")
    seen: set[str] = set()
    for each in tools:
        if not isinstance(each, Tool):
            raise TypeError(f"{each!r:.80} is not a tool: decorate it with @tool")
        if each.name in seen:
            raise ValueError(
                f"there are two tools named {each.name!r}: give one another name, "
                "such as @tool(name=...)"
            )
        seen.add(each.name)


def find_tool(name: str, tools: Iterable[Tool]) -> Tool:
    """The tool of this name. ToolError if there is none, with those of a similar name."""
    named = {tool.name: tool for tool in tools}
    if name in named:
        return named[name]
    near = get_close_matches(name[:64], named, n=3)
    hint = f"Did you mean {' or '.join(near)}?" if near else f"There are: {', '.join(named)}."
    raise ToolError(f"There is no tool named {name!r:.80}. {hint if named else 'There are: none.'}")


async def call_function(function: Function, /, *args: Any, **kwargs: Any) -> Any:
    """What a function returns: awaited if it is async, else out of a thread of its own."""
    if inspect.iscoroutinefunction(function):
        return await function(*args, **kwargs)
    result = await in_thread(function, *args, **kwargs)
    return await result if inspect.isawaitable(result) else result


async def is_approved(
    approve: Function | None, name: str, arguments: dict[str, Any], *, seconds: float
) -> bool:
    """Whether `approve(name, arguments)` says True in time; True if there is nobody to ask.

    Anything else denies: an error, another value, a late answer.
    """
    if approve is None:
        return True
    clock = asyncio.get_running_loop().time
    end = clock() + seconds
    try:
        question = call_function(approve, name, copy.deepcopy(arguments))
        answer = await within(seconds, question, grace=1.0)
    except Exception:
        logger.warning("approve failed, which denies %s", name, exc_info=True)
        return False
    await asyncio.sleep(0)  # a cancel that came with the answer goes before what it approved
    return answer is True and clock() <= end


async def in_thread(function: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
    """What a function returns that runs in a thread of its own, with this context's variables.

    A daemon thread: the threads of `asyncio.to_thread` keep the interpreter from exiting, and are
    few enough that slow tools hold each other up.
    """
    loop = asyncio.get_running_loop()
    context = contextvars.copy_context()
    ended = asyncio.Event()
    outcome: Future[R] = Future()

    def work() -> None:
        try:
            outcome.set_result(context.run(function, *args, **kwargs))
        except BaseException as error:
            outcome.set_exception(error)
        with suppress(RuntimeError):  # the event loop is closed: nobody waits any more
            loop.call_soon_threadsafe(ended.set)

    threading.Thread(target=work, name=f"tool {name_of(function)}", daemon=True).start()
    try:
        await ended.wait()
    except asyncio.CancelledError:
        if not outcome.done():
            raise
        cancel_this_task()  # it has ended just now: its result first, then the cancel
    return outcome.result()


# ==== loop.py ==== agentloop 0.1.0, sha256 bd2867364d150b98
"""An agent is a for-loop: `Loop` is that loop, `ChatModel` is what it calls.

Read `Loop.work` first. It calls seven small methods, the seams. A mixin overrides one or two of
them and calls `super()`: requests and calls go from the left of a class line to the right, views
come back from the right to the left.
"""

OUT_OF_TURNS = (
    "You have reached the limit of turns and cannot call tools any more. "
    "Say what you have done, what you found, and what is still missing."
)
CUT_OFF = "Not run: the reply ended before it was complete. Do it in smaller pieces."
EMPTY_REPLY = "Your last reply was empty. Answer, or call a tool."
GO_ON = "Go on."
MAX_NUDGES = 3
MAX_CUT_OFF = 3  # replies in a row, each at the full price of its output
UNFINISHED = {  # how a reply may end too early, and the stop reason if it was to be the answer
    "length": "limit:length",
    "context_overflow": "context_overflow",
    "pause": "",
}


class ChatModel(Protocol):
    """Anything that answers messages. With `on_delta` it streams too, and returns the same."""

    @property
    def model(self) -> str: ...

    async def ainvoke(
        self,
        messages: Sequence[Message],
        tools: Sequence[Tool] = (),
        *,
        tool_choice: ToolChoice = "auto",
        on_delta: OnDelta | None = None,
    ) -> AssistantMessage: ...


class Loop(Runs):
    """A for-loop around a chat model and its tools: the smallest agent.

    llm: the model that answers.
    tools: what it may call, each made with `@tool`.
    system_prompt: sent first with every request.
    max_iterations: how many turns (model calls) a run may take.
    tool_choice: for a run's first request; "auto" after it, so that a forced tool cannot loop.
    dependency_overrides: `{dependency: replacement}`, for tests above all.
    max_parallel: how many calls of one turn run side by side.
    max_result_chars: longer tool results are cut to their head and tail.
    on_tool_error: "return" lets the model read an exception; "raise" ends the run with it.
    """

    llm: ChatModel
    tools: Sequence[Tool] = ()
    system_prompt: str = ""
    max_iterations: int = 200
    tool_choice: ToolChoice = "auto"
    dependency_overrides: Mapping[Callable[..., Any], Callable[..., Any]] | None = None
    max_parallel: int = 16
    max_result_chars: int = 100_000
    on_tool_error: Literal["return", "raise"] = "return"

    _offered: Sequence[Tool] | None = field(default=None, init=False)
    _steps: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        if isinstance(self.llm, type) or not hasattr(self.llm, "ainvoke"):
            raise TypeError(f"llm= needs a chat model, such as ChatOpenAI(...), not {self.llm!r}")
        if self.max_iterations < 1 or self.max_parallel < 1:
            raise ValueError("max_iterations and max_parallel have to be at least 1")
        if self.on_tool_error not in ("return", "raise"):
            raise ValueError(f"on_tool_error is 'return' or 'raise', not {self.on_tool_error!r}")
        for dependency, override in (self.dependency_overrides or {}).items():
            if not callable(override):
                name = getattr(dependency, "__name__", dependency)
                raise TypeError(
                    f"dependency_overrides[{name}] has to be a function: lambda: {override!r:.40}"
                )
        check_unique_names(self.tools)
        self.tools = list(self.tools)

    # ---- the loop

    async def work(self) -> Result:
        """Up to `max_iterations` times: look at the context, call the model, call its tools."""
        if answer := await self._take_up_open_calls():
            return answer
        tool_choice = self.tool_choice
        for _ in range(self.max_iterations):
            request = Request(await self.context(), self._offer(tool_choice), tool_choice)
            reply = self._take(await self.call_model(request))
            if reply.stop_reason in UNFINISHED:  # its calls may be incomplete, so none runs
                answer = self._ask_for_the_rest(reply)
            elif reply.tool_calls:
                answer = await self.call_tools(reply.tool_calls)
            else:
                answer = Result(reply.text)
            if answer and (answer := await self.finish(answer)):
                return answer
            tool_choice = "auto"  # a forced tool is forced once
        return await self._sum_up()

    # ---- the seams, for mixins to override

    async def context(self) -> list[Message]:
        """What the model will see. Makes no request, and twice in a row gives the same."""
        system = [SystemMessage(self.system_prompt)] if self.system_prompt else []
        return [*system, *self.messages]

    def toolset(self) -> Sequence[Tool]:
        """The tools on offer in this turn."""
        return self.tools

    async def call_model(self, request: Request) -> AssistantMessage:
        """The model's reply to one request. Streams a step if somebody listens."""
        llm, start = request.model or self.llm, time.perf_counter()
        meter = self.meter(llm) if self.listened else self._cache.get((PrefixMeter, id(llm)))
        if meter is not None:  # somebody listens, or it estimates for a mixin
            self.emit(meter.send(request))
        reply = await llm.ainvoke(
            request.messages,
            request.tools,
            tool_choice=request.tool_choice,
            on_delta=self.emit if self.listened and request.purpose == "step" else None,
        )
        if meter is not None:
            meter.report(reply)
        return stamped(reply, time.perf_counter() - start, getattr(llm, "model", None))

    async def call_tools(self, calls: Sequence[ToolCall]) -> Result | None:
        """Run one turn's calls side by side, all answered; a Result if a done tool ended the run.

        Whatever a call raises waits until its siblings have settled. Then a crash outranks
        another Stop, which outranks done; among equals the first call's wins.
        """
        raised: list[BaseException] = []
        for overlap, group in groupby(calls, self._may_overlap):
            at_once = self.max_parallel if overlap else 1
            outcomes = await settle(self._answer, group, at_once=at_once, grace=self.cancel_grace)
            raised += [e for e in outcomes if not isinstance(e, asyncio.CancelledError | None)]
        if not raised:
            return None
        first = min(raised, key=lambda e: e.reason == "done" if isinstance(e, Stop) else -1)
        if isinstance(first, Stop) and first.reason == "done":
            return Result(first.text, first.value, "done")
        raise first

    async def call_tool(self, call: ToolCall) -> ToolMessage:
        """Run one call; every failure becomes an error result that the model can read."""
        given = {current_agent: lambda: self, current_call: lambda: call}
        overrides = given | dict(self.dependency_overrides or {})
        ephemeral = 0
        try:
            tool = self.tool(call)
            ephemeral = tool.ephemeral
            arguments = tool.validate(call.arguments)
            self.record(ToolStart(call.id))
            work = tool.execute(arguments, overrides)
            value = await within(tool.timeout, work, grace=self.cancel_grace)
            content = as_content(value, self.max_result_chars)
            return ToolMessage(call.id, call.name, content, ephemeral=ephemeral)
        except ToolError as error:
            text = str(error)
        except asyncio.CancelledError as error:
            if was_cancelled(error):
                raise
            text = describe_error(error)  # the tool's own doing, not the end of the run
        except (Stop, KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:
            if self.on_tool_error == "raise":
                raise
            logger.info("tool %s failed", call.name, exc_info=True)
            text = describe_error(error)
        return ToolMessage(call.id, call.name, as_content(text, 10_000), True, ephemeral)

    async def finish(self, result: Result) -> Result | None:
        """The answer that ends the run, or None to go on. Done results pass here too."""
        if result.stop_reason == "completed" and not result.text.strip():
            self.nudge(EMPTY_REPLY)
            return None
        return result

    def record(self, record: Record) -> None:
        """Append to the log. Synchronous, so that no cancel comes between; emits nothing."""
        self.log.append(record)

    # ---- what mixins use

    def meter(self, model: ChatModel | None = None) -> PrefixMeter:
        """What measures the requests to a model (the agent's own), each against the one before."""
        key = PrefixMeter, id(model or self.llm)
        meter: PrefixMeter | None = self._cache.get(key)
        if meter is None:
            meter = self._cache[key] = PrefixMeter()
        return meter

    def tool(self, call: ToolCall) -> Tool:
        """The tool that a call names, among those on offer. ToolError if there is none."""
        return find_tool(call.name, self._offered or ())

    def nudge(self, text: str) -> None:
        """Say something to the model as a hidden user message, so that the run goes on.

        Raises Stop("no_progress") instead if it was nudged `MAX_NUDGES` times without calling a
        tool since.
        """
        nudges, said = nudges_since_a_call(self.log)
        if nudges >= MAX_NUDGES:
            raise Stop("no_progress", said)
        self.tell(text, nudge=True)

    # ---- the steps of `work`

    async def _take_up_open_calls(self) -> Result | None:
        """Run the calls that an earlier run left open; not those that may have run already."""
        if not (calls := open_calls(self.log)):
            return None
        states = call_states(self.log)
        idempotent = {tool.name for tool in self._offer() if tool.idempotent}
        again = [
            call
            for call in calls
            if states[call.id] == "waiting"
            or (states[call.id] == "started" and call.name in idempotent)
        ]
        for result in closing_results(self.log):
            if all(result.tool_call_id != call.id for call in again):
                self.record(result)
        answer = await self.call_tools(again) if again else None
        return await self.finish(answer) if answer else None

    def _offer(self, tool_choice: ToolChoice = "auto") -> Sequence[Tool]:
        """This turn's tools. Its calls are resolved against this snapshot."""
        tools, before = tuple(self.toolset()), self._offered
        if tools != before:
            check_unique_names(tools)
            self._offered = tools
            if before is not None:
                were, are = ({tool.name for tool in each} for each in (before, tools))
                self.emit(ToolsChangedEvent(sorted(are - were), sorted(were - are)))
        names = [tool.name for tool in tools]
        if tool_choice not in ("auto", "required", "none", *names):
            raise ValueError(f"tool_choice={tool_choice!r} names no tool; there are: {names}")
        return self._offered or tools

    def _take(self, reply: AssistantMessage) -> AssistantMessage:
        """Record a reply and tell of it. Raises Stop if the model refused, or ended oddly."""
        reply = with_unique_ids(reply, self.reader(View).call_ids, fresh=True)
        self.record(reply)
        if reply.usage is not None:
            self.emit(UsageEvent(reply.usage, reply.model))
        if reply.thinking:
            self.emit(ThinkingEvent(reply.thinking))
        if reply.text.strip():
            self.emit(TextEvent(reply.text))
        if self._run is not None and self._run.is_cancelled():
            raise asyncio.CancelledError  # which the model has swallowed
        if reply.stop_reason in (None, "end", "tool_calls", *UNFINISHED):
            return reply
        self._do_not_run(reply)
        word = reply.stop_reason
        raise Stop(word if word == "refused" else f"unknown:{word}", reply.text)

    def _ask_for_the_rest(self, reply: AssistantMessage) -> Result | None:
        """After a reply that is cut off: none of its calls runs, since they may be incomplete."""
        self._do_not_run(reply)
        if reply.tool_calls and cut_off_in_a_row(self.log) < MAX_CUT_OFF:
            return None
        if reply.stop_reason == "pause":
            self.nudge(GO_ON)
            return None
        return Result(reply.text, stop_reason=UNFINISHED[reply.stop_reason or ""])

    def _do_not_run(self, reply: AssistantMessage) -> None:
        for call in reply.tool_calls:
            self.record(ToolMessage(call.id, call.name, CUT_OFF, is_error=True))

    async def _answer(self, call: ToolCall) -> None:
        """Tell of a call, run it, and record its result as soon as there is one."""
        run = self._run
        if run is None or run.halted:
            return
        self._steps += 1
        if self.listened:
            await self._announce(call)
        if run.halted:
            return
        start, failure = time.perf_counter(), None
        try:
            message = await self.call_tool(call)
        except BaseException as error:
            # After a cancel, or a Stop before the tool ran, the call stays open, and the view says
            # what is known of it. Anything else closes it; but for done, no further call starts.
            never_started = call_states(self.log)[call.id] == "waiting"
            not_done = not isinstance(error, Stop) or error.reason != "done"
            if was_cancelled(error) or (isinstance(error, Stop) and not_done and never_started):
                raise
            failure, run.halted = error, not_done
            text = error.text if isinstance(error, Stop) else describe_error(error)
            message = ToolMessage(call.id, call.name, text, is_error=not isinstance(error, Stop))
        if self._run is not run:
            return  # it did not stop when its run was cancelled, and was left behind
        took = time.perf_counter() - start
        self.record(stamped(message, took))
        if self.listened:
            status = "error" if message.is_error else "completed"
            self.emit(ToolResultEvent(call.name, message.text, call.id, message.is_error))
            self.emit(StepCompleteEvent(call.id, status, took * 1000))
        if failure:
            raise failure

    async def _announce(self, call: ToolCall) -> None:
        """Tell of a call, and wait until a `query_stream` reader has dealt with that."""
        self.emit(StepStartEvent(call.id, call.name, self._steps))
        self.emit(ToolCallEvent(call.name, call.parsed or {}, call.id))
        if self._run is not None and self._run.queue is not None:
            await self._run.queue.join()

    def _may_overlap(self, call: ToolCall) -> bool:
        return all(tool.parallel for tool in self._offered or () if tool.name == call.name)

    async def _sum_up(self) -> Result:
        """Out of turns: one more request for what was done and what is missing. No call runs."""
        self.tell(OUT_OF_TURNS)
        # tool_choice "none" would make Anthropic bill the whole conversation again.
        reply = await self.call_model(Request(await self.context(), self._offer()))
        reply = self._take(replace(reply, tool_calls=(), raw=None) if reply.tool_calls else reply)
        return Result(reply.text, stop_reason="max_iterations")


# ==== turns.py ==== agentloop 0.1.0, sha256 77312b77243dbac0
"""Where the turns of a log begin, and where it can be cut between them."""


def beginning(log: Sequence[Record]) -> int:
    """From which record on the log is in view: the last summary's, or what follows the task."""
    for record in reversed(log):
        if isinstance(record, Summary):
            return record.keep
    return next((at + 1 for at, record in enumerate(log) if isinstance(record, UserMessage)), 0)


def first_unseen(log: Sequence[Record]) -> int:
    """From which record on the model has not answered yet: its last calls, or the new prompt."""
    at = len(log)
    while at and not isinstance(log[at - 1], AssistantMessage):
        at -= 1
    reply = log[at - 1] if at else None
    return at - 1 if isinstance(reply, AssistantMessage) and reply.tool_calls else at


def new_prompt(log: Sequence[Record]) -> int:
    """Where the prompt begins that the model has not answered yet; the log's end without one."""
    at = len(log)
    while at and not isinstance(log[at - 1], AssistantMessage | ToolMessage):
        at -= 1
    return at


def turn_starts(log: Sequence[Record], begin: int, end: int) -> list[int]:
    """Where each turn begins: a reply, with what was said before it and its results after it."""
    starts, start = list[int](), begin
    for at in range(begin, end):
        if isinstance(log[at], AssistantMessage):
            starts.append(start)
        if isinstance(log[at], AssistantMessage | ToolMessage):
            start = at + 1
    return starts


def place_to_cut(log: Sequence[Record], keep_turns: int, min_gain: int) -> int:
    """Up to which record to summarize, for `min_gain` tokens at least: 0 if it is not worth it.

    That keeps `keep_turns` turns and what is unseen, or fewer turns if they are all there is.
    """
    begin, end = beginning(log), first_unseen(log)
    cuts = [*turn_starts(log, begin, end), end][-1 - keep_turns :]
    return next((at for at in cuts if gain(log, at) >= min_gain), 0)


def gain(log: Sequence[Record], at: int) -> int:
    """The estimated tokens that leave the view if the log is cut at record `at`."""
    begin, stay = beginning(log), {*own_messages(log)}
    return tokens_of([log[n] for n in range(begin, at) if n not in stay])


def tokens_of(records: Sequence[Record]) -> int:
    """The estimated tokens of the messages among some records."""
    return sum(
        message_tokens(record)
        for record in records
        if isinstance(record, UserMessage | AssistantMessage | ToolMessage)
    )


# ==== mixins/compaction.py ==== agentloop 0.1.0, sha256 9308f0186a085810
"""Summarizes the conversation when it nears the context window, and goes on from the summary.

The summary request is the very request that was due plus one user message, so that it reads the
provider's cache. The system prompt, the first task, the user's own messages since the newest
prompt, the newest turns and what the model has not seen yet stay word for word. A summary that
comes to nothing changes nothing; what still does not fit then loses its oldest turns. All of it
stays in the log.
"""

SUMMARY_PROMPT = (
    "Your context window is nearly full. Do not call tools. Write a summary from which you can "
    "go on without this conversation: the task and every instruction of the user, word for word "
    "where it matters; what was done and found, with names, paths, numbers and identifiers; what "
    "failed; what is left to do next."
)
LEFT_OUT = "(What was said before this no longer fits and was left out.)"
NOTHING_LEFT = "The conversation is too long for the model, and nothing in it could be left out."
UNKNOWN_WINDOW = 128_000  # tokens
SMALLEST_WINDOW = 4_096  # below this, nobody has to find out how large a model's is
MIN_GAIN = 0.1  # of the context window: for less, a summary is not worth its request
ROOM = 0.5  # of the context window is what turns are left out down to, so that it is not often
ATTEMPTS = 2  # at a summary, in a run
FAILED = {"compaction": "failed"}
SHORT_RESULT = 2_000  # characters of each tool result, when the conversation itself is too long


@dataclass(frozen=True, kw_only=True)
class CompactionConfig:
    """When and how to compact: at `threshold_ratio` of `context_window` tokens.

    context_window: None is what the package genai-prices says of the model, if it is installed,
        and else 128,000.
    summary_prompt: asks for the summary.
    keep_turns: how many of the newest turns stay as they are.
    model: writes the summary instead of the agent's own model. It may be a cheaper one; but it
        cannot read the cache of the other, and is billed for the whole conversation.
    timeout: seconds that a summary may take.
    """

    threshold_ratio: float = 0.80
    context_window: int | None = None
    summary_prompt: str = field(default=SUMMARY_PROMPT, repr=False)
    keep_turns: int = 2
    model: ChatModel | None = field(default=None, repr=False)
    timeout: float = 120.0
    enabled: bool = True

    def __post_init__(self) -> None:
        window_is_wrong = self.context_window is not None and not self.context_window >= 1
        if not 0 < self.threshold_ratio <= 1 or window_is_wrong:
            raise ValueError(
                f"threshold_ratio is a share from 0 to 1 of a context_window of tokens, not {self}"
            )
        if type(self.keep_turns) is not int or self.keep_turns < 0 or not self.timeout > 0:
            raise ValueError("keep_turns is a whole number from 0 on, and timeout above 0 seconds")
        if not self.summary_prompt.strip():
            raise ValueError("summary_prompt is empty: say what the summary has to hold")
        if not (self.model is None or hasattr(self.model, "ainvoke")):
            raise TypeError(f"model= takes a model, such as ChatOpenAI(...), not {self.model!r}")


class Compaction(Loop):
    """Summarizes before a request that would be too long, and after one that was.

    compaction: when and how; None turns it off.
    """

    compaction: CompactionConfig | None = CompactionConfig()

    def __post_init__(self) -> None:
        super().__post_init__()
        if type(self.compaction) not in (CompactionConfig, type(None)):
            raise TypeError(
                f"compaction= takes CompactionConfig(...) or None, not {self.compaction!r}"
            )

    async def call_model(self, request: Request) -> AssistantMessage:
        config = self.compaction
        if config is None or not config.enabled or request.purpose != "step":
            return await super().call_model(request)
        size = self.meter(request.model).tokens(request)
        if size >= config.threshold_ratio * (config.context_window or SMALLEST_WINDOW):
            request = await self._make_room(request, size, config)
        try:
            return await super().call_model(request)
        except ContextWindowExceeded as error:
            # Results that the model has not seen may be what is too long: they go as well.
            shorter = replace(request, messages=shorten(request.messages))
            retry = await self._summarize(shorter, new_prompt(self.log), size, config)
            if (retry := retry or await self._leave_out(request, size, size // 2)) is None:
                raise Stop("context_overflow", f"{NOTHING_LEFT} {error}") from error
        return await super().call_model(retry)

    async def compact(self) -> bool:
        """Summarize now what is older than the newest turns, however little; whether it was done.

        For between two runs. Listeners get a CompactionEvent. AgentBusy: a run is going on.
        """
        self._refuse_if_busy()
        config = self.compaction or CompactionConfig()
        request = Request(await self.context(), self._offer())
        keep, size = place_to_cut(self.log, config.keep_turns, 1), self.meter().tokens(request)
        return await self._summarize(request, keep, size, config) is not None

    async def _make_room(self, request: Request, size: int, config: CompactionConfig) -> Request:
        """The request to send instead of one of `size` tokens, if that is too long.

        An estimate refuses nothing: what is still too long is sent, and the provider says so.
        """
        known = config.context_window or await self._window_of(request.model or self.llm)
        window = known or UNKNOWN_WINDOW
        if size < (limit := config.threshold_ratio * window):
            return request
        if known is None:
            warn_of_unknown_window(name_of_model(request.model or self.llm))
        keep = place_to_cut(self.log, config.keep_turns, round(MIN_GAIN * window))
        if summarized := await self._summarize(request, keep, size, config):
            request, size = summarized, self.meter(request.model).tokens(summarized)
        if size < (limit if summarized else window):
            return request
        return await self._leave_out(request, size, round(ROOM * window)) or request

    async def _summarize(
        self, request: Request, keep: int, size: int, config: CompactionConfig
    ) -> Request | None:
        """The request that goes on from a summary of the log up to record `keep`.

        None if there is nothing to summarize, or if it came to nothing.
        """
        if keep == 0 or failures(self.log) >= ATTEMPTS:
            return None
        ask = UserMessage(config.summary_prompt, hidden=True)
        rides_the_cache = config.model is None and request.tool_choice == "auto"
        choice, model = "auto" if rides_the_cache else "none", config.model or request.model
        side = Request([*request.messages, ask], request.tools, choice, "compaction", model)
        try:
            async with asyncio.timeout(config.timeout):
                reply = await super().call_model(side)
        except Stop:
            raise
        except Exception as error:
            logger.warning("the conversation could not be summarized: %s", error)
            self.record(SideRequest(extra=FAILED))
            return None
        if reply.usage is not None:
            self.emit(UsageEvent(reply.usage, reply.model))
        replaced = gain(self.log, keep)
        is_whole = reply.text.strip() and reply.stop_reason in (None, "end", "tool_calls")
        if not is_whole or estimate(reply.text) >= replaced:
            logger.warning("the summary was empty, cut off or too long: nothing is replaced by it")
            self.record(SideRequest(reply.usage, extra=FAILED, model=reply.model))
            return None
        self.record(Summary(reply.text, keep, reply.usage, model=reply.model))
        return await self._go_on(request, size, reply.text)

    async def _leave_out(self, request: Request, size: int, target: int) -> Request | None:
        """The request without the oldest turns, down to `target` tokens; None if there are none."""
        begin, end = beginning(self.log), first_unseen(self.log)
        cuts = [at for at in (*turn_starts(self.log, begin, end), end) if at > begin]
        if not cuts:
            return None
        fits = (at for at in cuts if size - gain(self.log, at) <= target)
        summaries = [record.content for record in self.log if isinstance(record, Summary)]
        content = summaries[-1] if summaries else LEFT_OUT
        self.record(Summary(content, next(fits, cuts[-1])))
        return await self._go_on(request, size, content)

    async def _go_on(self, before: Request, size: int, summary: str) -> Request:
        request = replace(before, messages=await self.context())
        still_there = {id(message) for message in request.messages}
        dropped = [
            message
            for message in before.messages
            if id(message) not in still_there and not isinstance(message, SystemMessage)
        ]
        tokens = self.meter(request.model).tokens(request)
        self.emit(CompactionEvent(summary, size, tokens, dropped))
        return request

    async def _window_of(self, model: ChatModel) -> int | None:
        name = name_of_model(model)
        if ("window", name) not in self._cache:  # in a thread: that package takes long to import
            self._cache["window", name] = await in_thread(context_window, name)
        window: int | None = self._cache["window", name]
        return window


def name_of_model(model: ChatModel) -> str:
    return str(getattr(model, "model", None) or "")  # one's own may have none


@cache
def warn_of_unknown_window(model: str) -> None:
    logger.warning(
        "the context window of %r is not known and taken as %s tokens: set "
        "compaction=CompactionConfig(context_window=...), or install genai-prices",
        model,
        f"{UNKNOWN_WINDOW:,}",
    )


def failures(log: Sequence[Record]) -> int:
    """How many summaries of this run have failed since the last one that did not."""
    count = 0
    for record in reversed(log):
        if isinstance(record, Summary | RunStart):
            break
        count += isinstance(record, SideRequest) and "compaction" in (record.extra or {})
    return count


def shorten(messages: Sequence[Message]) -> list[Message]:
    """The messages with long tool results cut: for a conversation that no request can hold."""
    return [
        replace(message, content=as_content(message.text, SHORT_RESULT))
        if isinstance(message, ToolMessage)
        else message
        for message in messages
    ]


# ==== mixins/done.py ==== agentloop 0.1.0, sha256 d0b891578391e0f6
"""Ends a run on a done tool only, so that the model cannot stop by just talking.

A done tool is one that raises TaskComplete. Bring your own, or get the built-in `done`. After plain
text the model is nudged to go on or to call it, three times at most.
"""

DONE_DESCRIPTION = "Finish the task. Call this once everything is done, with the answer."
DONE_NUDGE = "You have not finished: go on with the task, or call the {tool} tool if it is done."


class DoneTool(Loop):
    """Ends a run when a done tool is called.

    require_done_tool: whether plain text is no answer; if not, it ends a run as usual.
    output_type: what `Result.value` is to be (a BaseModel, a dataclass, `list[int]`, ...); the
        built-in `done` then takes it as its arguments, validated, and is required.
    done_nudge: what the model is told after plain text; `{tool}` is the done tool's name.
    """

    require_done_tool: bool = True
    output_type: Any = None
    done_nudge: str = DONE_NUDGE

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.output_type is not None and any(tool.name == "done" for tool in self.tools):
            raise ValueError("output_type= brings its own tool named 'done': rename or drop yours")

    def toolset(self) -> Sequence[Tool]:
        tools = super().toolset()
        if self._must_be_done() and (self.output_type is not None or not _done_names(tools)):
            return [*tools, done_tool(self.output_type)]
        return tools

    async def finish(self, result: Result) -> Result | None:
        answer = await super().finish(result)
        if answer is None or answer.stop_reason != "completed" or not self._must_be_done():
            return answer
        names = ["done"] if self.output_type is not None else _done_names(self.toolset())
        self.nudge(self.done_nudge.replace("{tool}", " or ".join(names)))
        return None

    def _must_be_done(self) -> bool:
        return self.require_done_tool or self.output_type is not None


@lru_cache
def done_tool(output_type: Any = None) -> Tool:
    """The built-in done tool: it takes a message, or what `output_type` says."""

    def done(message: str) -> None:
        raise TaskComplete(message)

    def hand_over(result: Any) -> None:
        raise TaskComplete(to_json(result).decode(), value=result)

    hand_over.__name__ = "output_type"  # what an error is about
    hand_over.__annotations__["result"] = output_type
    named = tool(DONE_DESCRIPTION, name="done")
    return named(done) if output_type is None else named(hand_over)


def _done_names(tools: Sequence[Tool]) -> list[str]:
    return [tool.name for tool in tools if is_done_tool(tool)]


def is_done_tool(tool: Tool) -> bool:
    """Whether a tool is named `done`, or its function says TaskComplete."""
    code = getattr(getattr(tool, "function", None), "__code__", None)
    return tool.name == "done" or (
        isinstance(tool, FunctionTool) and code is not None and "TaskComplete" in code.co_names
    )


# ==== mixins/ephemeral.py ==== agentloop 0.1.0, sha256 5ebbdbec0222296d
"""Shows the model only the newest results of tools whose results go stale.

`@tool("...", ephemeral=2)` keeps at least the newest two results of that tool visible. Older ones
become a short placeholder in what the model sees; the log keeps them whole. A result that the model
has not seen yet is never hidden.

Hiding a result breaks the prefix that the provider has cached, so stale results are carried until
that has cost as much as hiding them would, and then go all at once: the rent-or-buy rule, which
needs no forecast and costs at most about twice what the best choice in hindsight does.
"""


class Ephemeral(Loop):
    """Replaces old results of tools made with `ephemeral=N` by placeholders.

    ephemeral_write_price: what a token costs that the provider has not in its cache.
    ephemeral_read_price: what one costs that it has. Only the two prices' ratio counts; with equal
        ones, stale results go at once.
    ephemeral_per_turn: whether they go at once in any case.
    """

    ephemeral_write_price: float = 1.25
    ephemeral_read_price: float = 0.1
    ephemeral_per_turn: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if not (self.ephemeral_read_price >= 0 and self.ephemeral_write_price >= 0):
            raise ValueError("ephemeral_write_price and ephemeral_read_price are prices, from 0 on")

    async def context(self) -> list[Message]:
        messages = await super().context()
        prices = self.ephemeral_write_price, self.ephemeral_read_price
        epochs = self.reader(Epochs, *((0.0, 0.0) if self.ephemeral_per_turn else prices))
        hidden = epochs.hidden
        if due := epochs.due():
            self.emit(PruneEvent([stale.message.tool_call_id for stale in due]))
            hidden = hidden | {stale.message.tool_call_id: stale.placeholder for stale in due}
        return hide(messages, hidden) if hidden else messages


def stale_results(
    log: Sequence[Record], write_price: float = 1.25, read_price: float = 0.1
) -> set[str]:
    """The call ids of the results to hide in the next request; what is hidden once stays so."""
    epochs = Epochs(write_price, read_price)
    epochs.catch_up(log)
    return {*epochs.hidden, *(stale.message.tool_call_id for stale in epochs.due())}


def hide(messages: Sequence[Message], hidden: Mapping[str, ToolMessage]) -> list[Message]:
    """The messages, with placeholders instead of the results of the calls of these ids."""
    return [
        hidden[message.tool_call_id]
        if isinstance(message, ToolMessage) and message.tool_call_id in hidden
        else message
        for message in messages
    ]


@dataclass(frozen=True, slots=True)
class Ageing:
    """A result that goes stale one day, the log's record number `at`."""

    at: int
    message: ToolMessage
    placeholder: ToolMessage
    saved: int  # tokens, once it is hidden


class Epochs(LogReader):
    """Which results are hidden, by call id, as requests were made along the log."""

    def __init__(self, write_price: float, read_price: float) -> None:
        super().__init__()
        self._prices = write_price, read_price
        self.hidden: dict[str, ToolMessage] = {}
        self._results: defaultdict[str, list[Ageing]] = defaultdict(list)  # the visible ones
        self._sizes: list[int] = []  # of each record as the model sees it, in tokens
        self._reply = 0  # where the newest one stands: the model has seen what is before it
        self._carried = 0  # token-turns of what was stale, since the last cut
        self._broken = False  # a summary has changed the prefix, so a cut now costs nothing

    def take(self, log: Sequence[Any], at: int) -> None:
        record = log[at]
        if not self._sizes:
            if not (isinstance(record, ToolMessage) and record.ephemeral):
                return  # nothing can go stale yet
            self._sizes = [0] * at
        if isinstance(record, AssistantMessage):
            self._request(at)
        is_message = isinstance(record, UserMessage | AssistantMessage | ToolMessage)
        self._sizes.append(message_tokens(record) if is_message else 0)
        if isinstance(record, ToolMessage) and record.ephemeral:
            small = replace(record, content=placeholder(record))
            saved = self._sizes[at] - message_tokens(small)
            self._results[record.tool_name].append(Ageing(at, record, small, saved))
        elif isinstance(record, Summary):
            self._carried, self._broken = 0, True
            for name, results in self._results.items():
                self._results[name] = [result for result in results if result.at >= record.keep]

    def due(self) -> list[Ageing]:
        """The results to hide in the next request."""
        stale, (write_price, read_price) = self._stale(), self._prices
        if self._broken or not stale:
            return stale
        first = min(result.at for result in stale)
        behind = sum(self._sizes[first : self._reply]) - sum(self._sizes[one.at] for one in stale)
        return stale if self._carried * read_price >= behind * (write_price - read_price) else []

    def _stale(self) -> list[Ageing]:
        """What is not among the newest of its tool, and has been seen."""
        classic = self._prices[0] <= self._prices[1]
        return [
            result
            for results in self._results.values()
            if results
            for result in results[: -results[-1].message.ephemeral]
            if result.at < self._reply and (result.saved > 0 or classic)
        ]

    def _request(self, at: int) -> None:
        """One has gone out, with all of the log before record `at`."""
        for stale in (due := self.due()):
            self.hidden[stale.message.tool_call_id] = stale.placeholder
            self._sizes[stale.at] -= stale.saved
            self._results[stale.message.tool_name].remove(stale)
        self._carried = 0 if due else self._carried + sum(one.saved for one in self._stale())
        self._reply, self._broken = at, False


def placeholder(message: ToolMessage) -> str:
    """What stands for a hidden result: how much of what was there, and where it still is."""
    parts = () if isinstance(message.content, str) else message.content
    others = sum(not isinstance(part, TextPart) for part in parts)
    attached = f" and {others} attachment{'s' * (others != 1)}" * bool(others)
    name = (message.extra or {}).get("offloaded")
    again = f' read_offloaded(name="{name}") reads it again.' * bool(name)
    return (
        f"[An older result of {message.tool_name} stood here: {len(message.text):,} characters"
        f"{attached}. Newer results follow.{again}]"
    )


# ==== agent.py ==== agentloop 0.1.0, sha256 74c8f93e37b46f78
"""The composition that most people want."""


class Agent(DoneTool, Ephemeral, Compaction, Loop):
    """A loop with a done tool, ephemeral results and compaction, each with its settings.

    llm, tools, system_prompt: the model, what it may call, and what it is told first.
    max_iterations, tool_choice, max_parallel, max_result_chars, on_tool_error: as in `Loop`.
    dependency_overrides: `{dependency: replacement}`, for tests above all.
    require_done_tool, output_type, done_nudge: as in `DoneTool`. A plain answer ends a run here;
        `require_done_tool=True` asks for the done tool instead.
    ephemeral_per_turn, ephemeral_write_price, ephemeral_read_price: as in `Ephemeral`.
    compaction: as in `Compaction`; None turns it off.
    listeners, cancel_grace: as in `Runs`.
    """

    require_done_tool = False


# ==== models/clients.py ==== agentloop 0.1.0, sha256 f1be37f6ac28aaf9
"""The HTTP connections of a model: made as needed, closed with the event loop that uses them."""

MAX_CLIENTS = 64
LOOPBACK = ("localhost", "127.0.0.1", "::1")  # reached without a proxy
HEADERS = {"accept": "*/*", "user-agent": "agentloop"}


class Clients:
    """Does for a model what an `httpx.AsyncClient` would: `stream` one request, and `aclose`.

    Each request has a client of its own, up to `MAX_CLIENTS` at a time, as httpx looks at all
    connections of a client for each request: that would triple what 200 agents cost. And where no
    proxy is to be used, the client is only a transport, without cookies, redirects and hooks, which
    is 0.1 ms less a request.
    """

    def __init__(self) -> None:
        self._pools: dict[asyncio.AbstractEventLoop, _Pool] = {}

    @asynccontextmanager
    async def stream(
        self,
        method: str,
        url: str,
        *,
        content: bytes,
        headers: Mapping[str, str],
        timeout: tuple[float | None, ...],
    ) -> AsyncGenerator[Any, None]:
        """The `httpx.Response`. `timeout`: seconds to connect, read, write and get a connection."""
        import httpx

        seconds = dict(zip(("connect", "read", "write", "pool"), timeout, strict=True))
        sent: Any = {"content": content, "extensions": {"timeout": seconds}}
        sent["headers"] = HEADERS | {name.lower(): value for name, value in headers.items()}
        address = _parsed(url)
        request = httpx.Request(method, address, **sent)
        if address.userinfo:
            request = next(httpx.BasicAuth(address.username, address.password).auth_flow(request))
        users = (await self._pool()).users
        client = _least_busy(users, url)
        users[client] += 1
        try:
            if isinstance(client, httpx.AsyncClient):
                response = await client.send(request, stream=True)
            else:
                response = await client.handle_async_request(request)
            try:
                yield response
            finally:
                await response.aclose()
        except asyncio.CancelledError:  # httpcore may keep half of a connection then
            if users.get(client) == 1:
                del users[client]
                await client.aclose()
            raise
        finally:
            if client in users:  # else it was closed meanwhile
                users[client] -= 1

    async def aclose(self) -> None:
        """Close this event loop's connections. If nobody does, the loop's own end does."""
        if pool := self._pools.pop(asyncio.get_running_loop(), None):
            await pool.closer.aclose()

    async def _pool(self) -> _Pool:
        loop = asyncio.get_running_loop()
        if (pool := self._pools.get(loop)) is None:
            for old in [old for old in list(self._pools) if old.is_closed()]:
                self._pools.pop(old, None)
            pool = self._pools[loop] = _Pool()
            await anext(pool.closer)
        return pool


class _Pool:
    """The clients of one event loop, and how many requests each has at present."""

    def __init__(self) -> None:
        self.users: dict[Any, int] = {}
        self.closer = _close_at_the_end(self.users)


async def _close_at_the_end(clients: dict[Any, int]) -> AsyncGenerator[None, None]:
    """Started once, it waits; an event loop closes its open async generators before it ends."""
    try:
        yield
    finally:
        while clients:
            client, _ = clients.popitem()
            await client.aclose()


def _least_busy(users: dict[Any, int], url: str) -> Any:
    client = min(users, key=users.__getitem__, default=None)
    if client is None or (users[client] and len(users) < MAX_CLIENTS):
        client = _new_client(url)
        users[client] = 0
    return client


def _new_client(url: str) -> Any:
    import httpx

    settings: Any = {"verify": _ssl_context(), "limits": httpx.Limits(keepalive_expiry=60)}
    if urlsplit(url).hostname not in LOOPBACK and getproxies():
        return httpx.AsyncClient(**settings)
    return httpx.AsyncHTTPTransport(**settings)


@cache
def _parsed(url: str) -> Any:
    """The URL as httpx would parse it for each request, which takes it a tenth of a millisecond."""
    import httpx

    return httpx.URL(url)


@cache
def _ssl_context() -> Any:
    import httpx

    return httpx.create_ssl_context()  # 20 ms; a client with a ready one takes 0.05


# ==== models/http.py ==== agentloop 0.1.0, sha256 86fcee3be7c90d5f
"""A model behind HTTP: retries, errors, server-sent events, limits.

A provider subclasses `HTTPModel` and says five things: `headers` and `path` (where to), `body`
(the request), `read` (the reply), and `accumulator` (a streamed reply, put together into what
`read` takes, so that both ways give the same message). Everything else is here, once.
"""

LONGEST_WAIT = 120.0  # seconds; a provider that asks for more gets none
LINGER = 0.25  # seconds for the end of a stream whose last event was seen


class Accumulator(Protocol):
    """Puts one streamed reply together."""

    complete: bool  # whether the reply's end was seen

    def add(self, event: dict[str, Any]) -> None:
        """Take the next event, and show the text in it."""

    def reply(self) -> dict[str, Any]:
        """The whole, in the form that `HTTPModel.read` takes."""
        ...


class _Url:
    """A field that may be given None, and is text when read."""

    def __get__(self, model: object | None, owner: type) -> str:
        return "" if model is None else vars(model)["base_url"]  # "" is the default

    def __set__(self, model: object, url: str | None) -> None:
        vars(model)["base_url"] = url or ""


@dataclass(repr=False, eq=False)
class HTTPModel(ABC):
    """What every provider has in common. Nothing is sent that was not asked for.

    `client` is anything with the interface of `httpx.AsyncClient`, and is never closed here.
    Without one, clients are made as needed; they use the proxies of the environment, as httpx does,
    but not for loopback addresses. `dump` gets each request's and answer's body, without the key.
    """

    model: str
    _: KW_ONLY
    api_key: str | None = None
    base_url: _Url = _Url()
    extra: Mapping[str, Any] = field(default_factory=dict[str, Any])  # more fields to send
    max_retries: int = 4  # attempts after the first
    timeout: float | None = 3600.0  # seconds for all attempts together
    connect_timeout: float = 5.0
    read_timeout: float = 600.0  # seconds without a single byte
    max_response_bytes: int = 64 * 2**20
    client: Any = None
    dump: Callable[[str, str], None] | None = None
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    clock: Callable[[], float] = time.time
    jitter: Callable[[], float] = random.random

    key_variable: ClassVar[str]
    url_variable: ClassVar[str]
    default_url: ClassVar[str]
    hints: ClassVar[Mapping[str, str]] = {}  # what to do, by a pattern of the error's message

    def __post_init__(self) -> None:
        name = type(self).__name__
        self.api_key = self.api_key or os.environ.get(self.key_variable)
        url = self.base_url or os.environ.get(self.url_variable) or self.default_url
        self.base_url = url.rstrip("/")
        if not re.match("https?://[^/]", self.base_url):
            raise ValueError(f"{name}: base_url={_host(url)!r} needs http:// or https://")
        try:
            _ = urlsplit(self.base_url).port
        except ValueError:  # whose message may show a part of a password
            raise ValueError(
                f"{name}: base_url={_host(url)!r} has no valid host and port"
            ) from None
        if self.api_key and not re.fullmatch("[!-~]+", self.api_key):
            # httpx would refuse the header, and show it in its message
            raise ValueError(f"{name}: api_key has a space, a line end or a non-ASCII character")
        if not self.api_key and self.client is None and self.base_url == self.default_url:
            raise ValueError(f"{name} needs api_key=, or {self.key_variable} in the environment")
        self._clients = Clients()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.model!r})"

    # ---- what a provider says

    @abstractmethod
    def headers(self) -> dict[str, str]:
        """The provider's own headers, with the key."""

    @abstractmethod
    def path(self, stream: bool) -> str:
        """What follows the base URL."""

    @abstractmethod
    def body(self, request: Request, stream: bool) -> dict[str, Any]:
        """The request as JSON. BadRequest: it holds what this provider cannot carry."""

    def content(self, request: Request, stream: bool) -> bytes:
        """What is sent: `body` with `extra`, as JSON text."""
        return to_json(self.body(request, stream) | dict(self.extra), inf_nan_mode="null")

    @abstractmethod
    def read(self, data: dict[str, Any]) -> AssistantMessage:
        """The message in a reply. BadResponse: there is none."""

    @abstractmethod
    def accumulator(self, deltas: Deltas) -> Accumulator:
        """A new one, for one attempt."""

    # ---- one request

    async def ainvoke(
        self,
        messages: Sequence[Message],
        tools: Sequence[Tool] = (),
        *,
        tool_choice: ToolChoice = "auto",
        on_delta: OnDelta | None = None,
    ) -> AssistantMessage:
        """The model's answer; with `on_delta` it is streamed. Raises ModelError."""
        content = self.content(Request(messages, tools, tool_choice), on_delta is not None)
        deadline = asyncio.timeout(self.timeout)
        try:
            async with deadline:
                return await self._attempts(content, on_delta)
        except TimeoutError:
            if not deadline.expired():
                raise
            raise ConnectionFailed(f"{self!r}: no whole answer in {self.timeout} s") from None

    async def _attempts(self, content: bytes, on_delta: OnDelta | None) -> AssistantMessage:
        for attempt in itertools.count(1):
            deltas = Deltas(on_delta)
            try:
                return await self._attempt(content, deltas)
            except _Transient as transient:
                error = transient.error
            wait = error.retry_after
            if wait is None:
                wait = min(60.0, 2.0 ** (attempt - 1)) * (0.5 + self.jitter() / 2)
            if deltas.shown or attempt > self.max_retries or wait > LONGEST_WAIT:
                raise error
            logger.info("%r: attempt %d failed, next in %.1f s: %s", self, attempt, wait, error)
            await self.sleep(wait)
        raise AssertionError("count() has no end")

    async def _attempt(self, content: bytes, deltas: Deltas) -> AssistantMessage:
        url = self.base_url + self.path(deltas.wanted)
        client = self._clients if self.client is None else self.client
        # identity: a few kilobytes of compressed reply can hold gigabytes
        headers = {"content-type": "application/json", "accept-encoding": "identity"}
        timeout = (self.connect_timeout, self.read_timeout, self.read_timeout, None)
        sent: Any = {"content": content, "headers": headers | self.headers(), "timeout": timeout}
        try:
            async with client.stream("POST", url, **sent) as response:
                return await self._read_response(response, deltas)
        except Exception as error:
            if not _is_transport(error):
                raise
            host = _host(urlsplit(self.base_url).netloc)
            reason = self._clip(f"{host}: {type(error).__name__}: {error}", 500)
            if type(error).__name__ == "LocalProtocolError":
                raise BadRequest(reason) from None
            raise _Transient(ConnectionFailed(reason)) from None
        finally:
            if self.dump is not None:
                self.dump(*(self._clip(b.decode(errors="replace")) for b in (content, deltas.raw)))

    async def _read_response(self, response: Any, deltas: Deltas) -> AssistantMessage:
        coding = response.headers.get("content-encoding", "identity")
        if coding != "identity":
            raise self._bad(response, f"the encoding {coding!r}, which we did not ask for")
        good = 200 <= response.status_code < 300
        kind = response.headers.get("content-type", "")
        if good and deltas.wanted and "json" not in kind and "html" not in kind:
            return await self._read_events(response, deltas)
        content = b"".join([piece async for piece in self._pieces(response, deltas)])
        if not good:
            raise self._failure(response, content)
        return self._read_message(response, self._parse(response, content))

    async def _read_events(self, response: Any, deltas: Deltas) -> AssistantMessage:
        reply, parser, start, done = self.accumulator(deltas), EventParser(), b"", False
        rest = asyncio.timeout(None)
        try:
            async with rest:
                async for piece in self._pieces(response, deltas):
                    start = start or piece
                    for name, data in parser.feed(piece):
                        done = done or data == b"[DONE]" or name == "message_stop"
                        if not done and name == "error":
                            raise self._failure(response, data)
                        if not done:
                            reply.add(self._parse(response, data))
                    if done or reply.complete:
                        # Read on, for the usage and so that the connection can be used again,
                        # but not for long: some servers leave it open.
                        now = asyncio.get_running_loop().time()
                        end = now + (LINGER if done else 20 * LINGER)
                        rest.reschedule(min(end, rest.when() or end))
        except Exception as error:
            failed = rest.expired() or _is_transport(error)
            if not (failed and (done or reply.complete)):
                raise
        if not (done or reply.complete):
            raise _Transient(self._bad(response, "the stream ended before the reply did", start))
        return self._read_message(response, reply.reply())

    async def _pieces(self, response: Any, deltas: Deltas) -> AsyncIterator[bytes]:
        size = 0
        # a hook of a client of one's own may have read it
        consumed = response.is_stream_consumed
        async for piece in response.aiter_bytes() if consumed else response.aiter_raw():
            size += len(piece)
            deltas.raw += piece if self.dump else b""
            if size > self.max_response_bytes:
                raise self._bad(response, f"more than {self.max_response_bytes} bytes")
            yield piece

    def _parse(self, response: Any, content: bytes) -> dict[str, Any]:
        data = loaded(content)
        if not isinstance(data, dict):
            raise _Transient(self._bad(response, "not a JSON object", content))
        if obj(data).get("error"):
            raise self._failure(response, content)
        return obj(data)

    def _read_message(self, response: Any, data: dict[str, Any]) -> AssistantMessage:
        try:
            return with_unique_ids(self.read(_cleaned(data)), set(), fresh=True)
        except BadResponse as error:
            content = json.dumps(data).encode()
            raise _Transient(self._bad(response, str(error), content)) from None

    # ---- what went wrong

    def _clip(self, text: str, length: int | None = None) -> str:
        """The text without the key; a very short one is a placeholder, and may be part of words."""
        if self.api_key and len(self.api_key) > 5:
            text = text.replace(self.api_key, "***")
        return text[:length]

    def _bad(self, response: Any, reason: str, content: bytes = b"") -> BadResponse:
        kind = response.headers.get("content-type", "no content type")
        text = self._clip(content.decode(errors="replace"), 200)
        return BadResponse(
            f"{self!r}: {response.status_code}, {kind}: {reason}" + (f": {text!r}" if text else ""),
            status=response.status_code,
            request_id=_request_id(response),
        )

    def _failure(self, response: Any, content: bytes) -> Exception:
        """The error in an answer; wrapped as _Transient if another attempt may help."""
        body = content.decode(errors="replace")
        words, message = error_words(body)
        status = response.status_code
        if 200 <= status < 300:
            status = status_of(words)
        said = f"{words}: {message}" if words else message
        end = urlsplit(self.default_url).path
        todo = [todo for pattern, todo in self.hints.items() if re.search(pattern, message)]
        if status == 404 and not self.base_url.endswith(end):
            todo.append(f"does base_url end in {end}?")
        hint = f" ({', '.join(todo)})" if todo else ""
        error = error_class(status, f"{words} {message}")(
            f"{self!r}: {status}: {self._clip(said, 500)}{hint}",
            status=status,
            request_id=_request_id(response),
            retry_after=retry_after(response.headers, self.clock(), body),
        )
        again = status in (408, 409, 425, 429) or status >= 500
        again = again and not re.search("insufficient_quota|spend_limit", words)
        advice = response.headers.get("x-should-retry")
        if advice == "true" or (again and advice != "false"):
            return _Transient(error)
        return error

    # ---- connections

    async def aclose(self) -> None:
        """Close this event loop's connections. If nobody does, the loop's own end does."""
        await self._clients.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.aclose()


class _Transient(Exception):
    """Carries an error that another attempt may not meet."""

    def __init__(self, error: ModelError) -> None:
        self.error = error


def _host(address: str) -> str:
    """The address without a user's name and password in it."""
    return address.rpartition("@")[2]


def _is_transport(error: Exception) -> bool:
    """Whether the connection failed. By name, as the client need not be httpx's."""
    return any(kind.__name__ == "TransportError" for kind in type(error).__mro__)


# ---- JSON from outside, where anything may be anything


def obj(value: Any) -> dict[str, Any]:
    """The value if it is an object, else an empty one."""
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def count(value: Any) -> int:
    """A number of tokens; 0 for what is none."""
    return value if type(value) is int and value >= 0 else 0


def objects(value: Any) -> list[dict[str, Any]]:
    """The objects in a list; none if it is no list."""
    items = cast("Sequence[Any]", value) if isinstance(value, list) else ()
    return [item for item in items if isinstance(item, dict)]


def text_in(value: Any) -> str:
    """The value if it is text, else none."""
    return value if isinstance(value, str) else ""


def as_json(arguments: Any) -> str:
    """A call's arguments: JSON text, or what some servers send instead: an object, or nothing."""
    if isinstance(arguments, str):
        return arguments
    return "" if arguments is None else json.dumps(arguments, ensure_ascii=False)


def given(fields: Mapping[str, Any]) -> dict[str, Any]:
    """The fields that are not None."""
    return {name: value for name, value in fields.items() if value is not None}


def wire_name(name: str) -> str:
    """A name that every provider takes.

    One that the model made up was answered with an error, but goes back all the same.
    """
    return re.sub("[^a-zA-Z0-9_-]", "_", name)[:64] or "_"


def loaded(text: str | bytes) -> Any:
    """The value that the JSON stands for; None if it is no JSON."""
    try:
        return from_json(text)
    except (ValueError, TypeError):  # it refuses half surrogate pairs
        with suppress(ValueError, RecursionError):
            return json.loads(text)
    return None


def _cleaned(data: dict[str, Any]) -> dict[str, Any]:
    """The data, with nothing in it that UTF-8 cannot carry."""
    text = json.dumps(data, ensure_ascii=False)
    clean = clean_text(text)
    return data if clean is text else obj(json.loads(clean))


def stop_reason(reasons: Mapping[str, str], word: Any, calls: Sequence[ToolCall]) -> str | None:
    """Our word for the provider's: its own if we know none. A good end with calls is for them."""
    found = reasons.get(word, word) if isinstance(word, str) else None
    return "tool_calls" if calls and found in ("end", None) else found


# ---- errors, as pure functions

_STATUS_WORDS = {
    "overloaded|unavailable": 529,
    "rate_limit|exhausted|quota": 429,
    "authentication|api_key": 401,
    "billing": 402,
    "permission": 403,
    "not_found": 404,
    "too_large": 413,
    "invalid|bad_?request|context_length|content_filter": 400,
}
_TOO_LONG = re.compile(
    r"context_length_exceeded|maximum (context|prompt) length|exceed\w* [^.]{0,60}context|"
    r"exceed_context|context_window_exceeded|(prompt|input|request) is too long|"
    r"reduce the length of|input token count[^.]{0,80}exceeds",
    re.IGNORECASE,
)
_BAD_KEY = re.compile(r"api[ _]key (not|expired|invalid)|(incorrect|invalid) api[ _]key", re.I)
_FILTERED = re.compile(
    r"content_filter|content_policy|content management policy|responsible_?ai|usage policy",
    re.IGNORECASE,
)


def error_words(body: str) -> tuple[str, str]:
    """An error body's type and code, and its message: the usual JSON shapes, or any text."""
    data = loaded(body)
    data = obj(data) or (objects(data) or [{}])[0]  # Google sends a list of one
    error = obj(data.get("error")) or data
    found = obj(error.get("details")) | error  # Anthropic's details have an error_code
    words = [str(found[key]) for key in ("type", "code", "status", "error_code") if found.get(key)]
    return " ".join(dict.fromkeys(words)), str(error.get("message") or error.get("error") or body)


def status_of(words: str) -> int:
    """The HTTP status that an error inside a good answer stands for; 500 if it does not say."""
    if number := re.search(r"\b[45]\d\d\b", words):
        return int(number[0])
    found = (status for word, status in _STATUS_WORDS.items() if re.search(word, words, re.I))
    return next(found, 500)


def error_class(status: int, text: str) -> type[ModelError]:
    """The class of error for a status and what was said with it."""
    if status in (401, 403) or (status == 400 and _BAD_KEY.search(text)):
        return AuthenticationFailed
    if status == 408:
        return ConnectionFailed
    if status == 429:
        return RateLimited
    if status in (503, 529):
        return Overloaded
    if status >= 500:
        return ServerError
    if status < 400:  # a redirect: we do not follow any
        return BadResponse
    if status == 413 or _TOO_LONG.search(text):
        return ContextWindowExceeded
    if _FILTERED.search(text):
        return ContentRefused
    return ModelError if status in (409, 425) else BadRequest


def retry_after(headers: Mapping[str, str], now: float, body: str = "") -> float | None:
    """The seconds that an answer asks to wait; None if it does not, or makes no sense.

    Source: RFC 9110, 10.2.3 (seconds or a date); `retry-after-ms` is OpenAI's, and Google says it
    in the body: https://cloud.google.com/apis/design/errors#error_details (RetryInfo).
    """
    for name, unit in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        text = headers.get(name, "")
        try:
            wait = float(text) * unit
        except ValueError:
            try:
                date = parsedate_tz(text)
                wait = calendar.timegm(date[:6]) - (date[9] or 0) - now if date else 0.0
            except (ValueError, OverflowError):
                continue
        if wait > 0 and math.isfinite(wait):
            return wait
    found = re.search(r'"retryDelay": *"(\d+(\.\d+)?)s"', body)
    return (float(found[1]) or None) if found else None


def _request_id(response: Any) -> str | None:
    found: str | None = response.headers.get("x-request-id") or response.headers.get("request-id")
    return found


# ---- streams


class Deltas:
    """Passes pieces of text on. A surrogate pair that was cut in two waits for its other half."""

    def __init__(self, on_delta: OnDelta | None) -> None:
        self.wanted, self.shown, self.raw = on_delta is not None, False, bytearray()
        self._on_delta = on_delta
        self._half: dict[type[Any], str] = {}

    def text(self, piece: str) -> None:
        self._show(TextDeltaEvent, piece)

    def thinking(self, piece: str) -> None:
        self._show(ThinkingDeltaEvent, piece)

    def _show(self, kind: type[TextDeltaEvent] | type[ThinkingDeltaEvent], piece: str) -> None:
        piece = self._half.pop(kind, "") + piece
        if "\ud800" <= piece[-1:] <= "\udbff":
            self._half[kind], piece = piece[-1], piece[:-1]
        if piece and self._on_delta:
            self.shown = True
            self._on_delta(kind(clean_text(piece)))


class SentEvent(NamedTuple):
    """One server-sent event."""

    name: str
    data: bytes


class EventParser:
    """Server-sent events out of bytes that were cut anywhere.

    Source: https://html.spec.whatwg.org/multipage/server-sent-events.html#parsing-an-event-stream
    """

    def __init__(self) -> None:
        self._line: list[bytes] = []  # the pieces of the unfinished line
        self._name = ""
        self._data: list[bytes] = []
        self._after_cr = False
        self._first = True

    def feed(self, piece: bytes) -> Iterator[SentEvent]:
        if self._after_cr and piece:
            piece, self._after_cr = piece.removeprefix(b"\n"), False
        if not piece:
            return
        self._after_cr = piece.endswith(b"\r")
        rest, *lines = re.split(rb"\r\n|\r|\n", piece)
        for line in lines:
            self._line.append(rest)
            if event := self._end_line(b"".join(self._line)):
                yield event
            self._line, rest = [], line
        self._line.append(rest)

    def _end_line(self, line: bytes) -> SentEvent | None:
        if self._first:
            line, self._first = line.removeprefix(codecs.BOM_UTF8), False
        if not line:
            event = SentEvent(self._name, b"\n".join(self._data)) if self._data else None
            self._name, self._data = "", []
            return event
        name, _, value = line.partition(b":")  # a comment has no name
        value = value.removeprefix(b" ")
        if name == b"data":
            self._data.append(value)
        elif name == b"event":
            self._name = value.decode(errors="replace")
        return None


# ==== models/openai.py ==== agentloop 0.1.0, sha256 be15a1a40a1232b6
"""OpenAI's Chat Completions, and every server that speaks it (vLLM, Ollama, OpenRouter, ...).

Source: https://platform.openai.com/docs/api-reference/chat
"""

OPENAI_STOP_REASONS = {
    "stop": "end",
    "tool_calls": "tool_calls",
    "function_call": "tool_calls",
    "length": "length",
    "content_filter": "refused",
}
REASONING = ("reasoning_content", "reasoning")  # what compatible servers call it
TEXTS = ("content", "refusal", *REASONING)  # of a message


@dataclass(repr=False, eq=False, kw_only=True)
class ChatOpenAI(HTTPModel):
    """A model behind Chat Completions. Settings that are None are not sent.

    `max_completion_tokens` bounds the output with its reasoning. Older servers only know
    `max_tokens`, which newer models of OpenAI refuse: set the one that yours takes.
    `system_role` is "developer" for models that want it so. `strict` asks for arguments that
    follow the schema exactly, for every tool whose schema allows it.
    OpenAI's models since gpt-5.4 take tools here only with `reasoning_effort="none"`.
    """

    temperature: float | None = None
    max_completion_tokens: int | None = None
    max_tokens: int | None = None
    reasoning_effort: str | None = None
    prompt_cache_key: str | None = None
    parallel_tool_calls: bool | None = None
    strict: bool = False
    system_role: str = "system"

    key_variable: ClassVar[str] = "OPENAI_API_KEY"
    url_variable: ClassVar[str] = "OPENAI_BASE_URL"
    default_url: ClassVar[str] = "https://api.openai.com/v1"
    # OpenAI, since gpt-5.4: "Function tools with reasoning_effort are not supported for gpt-5.5 in
    # /v1/chat/completions", also where none was sent.
    # Source: https://github.com/openai/openai-openapi/issues/541
    hints: ClassVar[Mapping[str, str]] = {
        "reasoning_effort.*/v1/responses": (
            'ChatOpenAI does not speak Responses: give it reasoning_effort="none"'
        )
    }

    def headers(self) -> dict[str, str]:
        return {"authorization": f"Bearer {self.api_key}"} if self.api_key else {}

    def path(self, stream: bool) -> str:
        return "/chat/completions"

    def body(self, request: Request, stream: bool) -> dict[str, Any]:
        body: dict[str, Any] = {
            "model": self.model,
            "messages": write_openai_messages(request.messages, self.system_role),
            "temperature": self.temperature,
            "max_completion_tokens": self.max_completion_tokens,
            "max_tokens": self.max_tokens,
            "reasoning_effort": self.reasoning_effort,
            "prompt_cache_key": self.prompt_cache_key,
        }
        if request.tools:
            body["tools"] = [write_openai_tool(tool, self.strict) for tool in request.tools]
            body["parallel_tool_calls"] = self.parallel_tool_calls
            if (choice := request.tool_choice) in ("required", "none"):
                body["tool_choice"] = choice
            elif choice != "auto":
                body["tool_choice"] = {"type": "function", "function": {"name": choice}}
        if stream:
            body |= {"stream": True, "stream_options": {"include_usage": True}}
        return given(body)

    def content(self, request: Request, stream: bool) -> bytes:
        """As `body` says, from the bytes that each message keeps, which are copied once."""
        if "messages" in self.extra or type(self).body is not ChatOpenAI.body:
            return super().content(request, stream)
        kind = f"openai, {self.system_role}"
        try:
            pieces = [*filter(None, written(request.messages, kind, self._encode))]
        except _Attached:
            return super().content(request, stream)
        rest = super().content(replace(request, messages=()), stream)
        if not pieces:
            return rest
        head, _, tail = rest.partition(b'"messages":[]')
        pieces[-1] = pieces[-1].removesuffix(b",")
        return b"".join([head, b'"messages":[', *pieces, b"]", tail])

    def _encode(self, message: Message) -> bytes:
        if isinstance(message, ToolMessage) and not isinstance(message.content, str):
            raise _Attached
        sent = write_openai_messages([message], self.system_role)
        return b"".join(to_json(each) + b"," for each in sent)

    def read(self, data: dict[str, Any]) -> AssistantMessage:
        return read_openai_reply(data)

    def accumulator(self, deltas: Deltas) -> OpenAIChunks:
        return OpenAIChunks(deltas)


# ---- the request


class _Attached(Exception):
    """There is a tool result with more than text, which takes two messages to send."""


def write_openai_messages(messages: Sequence[Message], system_role: str) -> list[dict[str, Any]]:
    """Messages as Chat Completions takes them. BadRequest: a part that it cannot carry."""
    out: list[dict[str, Any]] = []
    attached: list[dict[str, Any]] = []  # tool results are text: a user message brings the rest
    for message in messages:
        if attached and not isinstance(message, ToolMessage):
            out.append({"role": "user", "content": attached})
            attached = []
        if isinstance(message, SystemMessage):
            out.append({"role": system_role, "content": message.content})
        elif isinstance(message, UserMessage):
            out.append({"role": "user", "content": _write_openai_content(message.content)})
        elif isinstance(message, ToolMessage):
            text, media = message.text, _media(message.content)
            if media:
                text = f"{text}\n[attached to the next user message: {len(media)}]".lstrip()
                label = TextPart(f"Attached to the result of {message.tool_name}:")
                attached += map(_write_openai_part, [label, *media])
            call_id = _write_openai_id(message.tool_call_id)
            out.append({"role": "tool", "tool_call_id": call_id, "content": text})
        elif message.content or message.tool_calls:  # an empty reply would be refused
            out.append(_write_openai_assistant(message))
    return [*out, {"role": "user", "content": attached}] if attached else out


def _write_openai_assistant(message: AssistantMessage) -> dict[str, Any]:
    out: dict[str, Any] = {"role": "assistant", "content": message.content or None}
    raw = obj(message.raw)
    if raw.get("provider") == "openai":
        # thinking models of compatible servers refuse a history without it, even an empty one
        out |= {name: raw[name] for name in REASONING if name in raw}
    if message.tool_calls:
        out["tool_calls"] = [_write_openai_call(call) for call in message.tool_calls]
    return out


def _write_openai_call(call: ToolCall) -> dict[str, Any]:
    function = {"name": wire_name(call.name), "arguments": call.wire_arguments}
    return {"id": _write_openai_id(call.id), "type": "function", "function": function}


def _write_openai_id(call_id: str) -> str:
    """At most 40 characters, which is all that OpenAI takes of other servers' ids."""
    return call_id if len(call_id) <= 40 else hashlib.sha256(call_id.encode()).hexdigest()[:40]


def _write_openai_content(content: Content) -> Any:
    return content if isinstance(content, str) else [_write_openai_part(part) for part in content]


def _media(content: Content) -> list[Part]:
    parts = () if isinstance(content, str) else content
    return [part for part in parts if not isinstance(part, TextPart)]


def _write_openai_part(part: Part) -> dict[str, Any]:
    if isinstance(part, TextPart):
        return {"type": "text", "text": part.text}
    if isinstance(part, ImagePart):
        return {"type": "image_url", "image_url": {"url": part.url or _data_url(part)}}
    if isinstance(part, FilePart) and part.data is not None:
        file = {"filename": part.name or "file", "file_data": _data_url(part)}
        return {"type": "file", "file": file}
    if isinstance(part, FilePart):
        raise BadRequest("Chat Completions takes no file by its url: give FilePart(data=...)")
    raise BadRequest(f"Chat Completions cannot carry {part!r:.80}")


def _data_url(part: ImagePart | FilePart) -> str:
    return f"data:{part.media_type};base64,{base64.b64encode(part.data or b'').decode()}"


def write_openai_tool(tool: Tool, strict: bool = False) -> dict[str, Any]:
    """A tool as Chat Completions takes it."""
    function: dict[str, Any] = {
        "name": tool.name,
        "description": tool.description,
        "parameters": tool.parameters,
    }
    if strict and (schema := strict_schema(tool.parameters)):
        function |= {"parameters": schema, "strict": True}
    return {"type": "function", "function": function}


# ---- strict schemas

_STRICT_KEYWORDS = re.compile(
    r"type|properties|required|additionalProperties|items|enum|const|anyOf|\$ref|\$defs|title|"
    "description|pattern|format|minimum|maximum|exclusiveMinimum|exclusiveMaximum|multipleOf|"
    "minItems|maxItems"
)


def strict_schema(schema: dict[str, Any]) -> dict[str, Any] | None:
    """The schema for strict mode, or None if it does not qualify.

    Every parameter is required there: optional ones become nullable, and null means the default.
    Source: https://platform.openai.com/docs/guides/structured-outputs#supported-schemas
    """
    properties: dict[str, Any] = {}
    for name, value in obj(schema.get("properties")).items():
        if name not in schema.get("required", ()):
            value = {key: item for key, item in value.items() if key != "default"}
            if {"type": "null"} not in value.get("anyOf", ()):
                value = {"anyOf": [value, {"type": "null"}]}
        properties[name] = value
    schema = schema | {"properties": properties, "required": list(properties)}
    schema["additionalProperties"] = False
    return schema if _is_strict(schema) else None


def _is_strict(schema: dict[str, Any]) -> bool:
    keys, properties = schema.keys(), obj(schema.get("properties"))
    if "$ref" in keys:
        return len(keys) == 1
    if not all(map(_STRICT_KEYWORDS.fullmatch, keys)):
        return False
    if not keys & {"type", "anyOf", "enum", "const"}:
        return False
    if schema.get("type") == "object":
        closed = schema.get("additionalProperties") is False
        if not closed or set(schema.get("required", ())) != properties.keys():
            return False
    if schema.get("type") == "array" and "items" not in keys:
        return False
    inner = [*properties.values(), *obj(schema.get("$defs")).values(), *schema.get("anyOf", ())]
    inner += [schema["items"]] if "items" in keys else []
    return all(isinstance(item, dict) and _is_strict(obj(item)) for item in inner)


# ---- the reply


def read_openai_reply(data: dict[str, Any]) -> AssistantMessage:
    """The message in a reply. BadResponse: there is none."""
    choices = objects(data.get("choices"))
    if not choices or not isinstance(choices[0].get("message"), dict):
        raise BadResponse("no message in the reply")
    choice, message = choices[0], obj(choices[0]["message"])
    found = {name: message.get(name) for name in REASONING}
    thinking = {name: text for name, text in found.items() if isinstance(text, str)}
    calls = tuple(map(_read_openai_call, objects(message.get("tool_calls"))))
    refusal = text_in(message.get("refusal"))
    stop = stop_reason(OPENAI_STOP_REASONS, choice.get("finish_reason"), calls)
    return AssistantMessage(
        content=_openai_text(message.get("content")) or refusal,
        tool_calls=calls,
        thinking=next(filter(None, thinking.values()), None),
        usage=read_openai_usage(data.get("usage")),
        stop_reason="refused" if refusal else stop,
        raw={"provider": "openai", **thinking} if thinking else None,
    )


def _openai_text(content: Any) -> str:
    """Content is text, null, or a list of parts."""
    if isinstance(content, str):
        return content
    return "".join(text_in(part.get("text") or part.get("refusal")) for part in objects(content))


def _read_openai_call(call: dict[str, Any]) -> ToolCall:
    function = obj(call.get("function"))
    name, arguments = text_in(function.get("name")), as_json(function.get("arguments"))
    return ToolCall(text_in(call.get("id")), name, arguments)


def read_openai_usage(usage: Any) -> Usage | None:
    """Tokens: cached ones are part of the input, reasoning ones of the output."""
    if not (counts := obj(usage)):
        return None
    read = obj(counts.get("prompt_tokens_details"))
    written = obj(counts.get("completion_tokens_details"))
    return Usage(
        input_tokens=count(counts.get("prompt_tokens")),
        output_tokens=count(counts.get("completion_tokens")),
        cached_input_tokens=count(read.get("cached_tokens")),
        reasoning_tokens=count(written.get("reasoning_tokens")),
    )


class OpenAIChunks:
    """A streamed reply, put together from the chunks that servers really send."""

    def __init__(self, deltas: Deltas) -> None:
        self.complete = False
        self._deltas = deltas
        self._texts: dict[str, list[str]] = {}  # content, refusal, reasoning_content
        self._calls: list[dict[str, Any]] = []
        self._open: dict[int, dict[str, Any]] = {}  # the call that is being written, by index
        self._finish: str | None = None
        self._usage: Any = None

    def add(self, event: dict[str, Any]) -> None:
        self._usage = event.get("usage") or self._usage
        for choice in objects(event.get("choices")):
            delta = obj(choice.get("delta"))
            for name, piece in delta.items():
                if name in TEXTS and piece is not None:
                    text = _openai_text(piece)
                    self._texts.setdefault(name, []).append(text)
                    show = self._deltas.thinking if name in REASONING else self._deltas.text
                    show(text)
            for position, call in enumerate(objects(delta.get("tool_calls"))):
                self._add_call(position, call)
            self._finish = choice.get("finish_reason") or self._finish
        self.complete = self._finish is not None

    def _add_call(self, position: int, delta: dict[str, Any]) -> None:
        """Index, id and name may each be missing, repeated, or the same for two calls."""
        function = obj(delta.get("function"))
        call_id, name = text_in(delta.get("id")), text_in(function.get("name"))
        arguments = as_json(function.get("arguments"))
        index = delta.get("index")
        index = index if isinstance(index, int) else position
        call = self._open.get(index)
        if call is None or (name and _is_another(call, call_id, arguments)):
            call = self._open[index] = {"id": call_id, "name": "", "arguments": ""}
            self._calls.append(call)
        if name != call["name"]:
            call["name"] += name
        call["id"] = call["id"] or call_id
        call["arguments"] += arguments

    def reply(self) -> dict[str, Any]:
        message: dict[str, Any] = {name: "".join(texts) for name, texts in self._texts.items()}
        message["tool_calls"] = [{"id": call["id"], "function": call} for call in self._calls]
        choice = {"message": message, "finish_reason": self._finish}
        return {"choices": [choice], "usage": self._usage}


def _is_another(call: dict[str, Any], call_id: str, arguments: str) -> bool:
    """Whether a delta with a name begins another call, though its index is this one's."""
    if call_id and call["id"]:
        return bool(call_id != call["id"])
    try:
        json.loads(call["arguments"])
    except ValueError:
        return False
    return bool(arguments)  # nothing can follow whole arguments


# ==== yours ==== agentloop 0.1.0, sha256 e3b0c44298fc1c14
