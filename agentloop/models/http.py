"""A model behind HTTP: retries, errors, server-sent events, limits.

Copy with: messages.py, events.py, errors.py, transcript.py, models/clients.py.

A provider subclasses `HTTPModel` and says five things: `headers` and `path` (where to), `body`
(the request), `read` (the reply), and `accumulator` (a streamed reply, put together into what
`read` takes, so that both ways give the same message). Everything else is here, once.
"""

from __future__ import annotations

import asyncio
import calendar
import codecs
import itertools
import json
import logging
import math
import os
import random
import re
import time
from abc import ABC, abstractmethod
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass, field
from email.utils import parsedate_tz
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol, Self, cast
from urllib.parse import urlsplit

from pydantic_core import from_json, to_json

from .. import errors
from ..errors import BadRequest, BadResponse, ConnectionFailed, ModelError
from ..events import OnDelta, TextDeltaEvent, ThinkingDeltaEvent
from ..messages import AssistantMessage, Message, Request, ToolCall, ToolChoice, clean_text
from ..transcript import with_unique_ids
from .clients import Clients

if TYPE_CHECKING:
    from ..tools import Tool

logger = logging.getLogger("agentloop")

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
        return errors.AuthenticationFailed
    if status == 408:
        return ConnectionFailed
    if status == 429:
        return errors.RateLimited
    if status in (503, 529):
        return errors.Overloaded
    if status >= 500:
        return errors.ServerError
    if status < 400:  # a redirect: we do not follow any
        return BadResponse
    if status == 413 or _TOO_LONG.search(text):
        return errors.ContextWindowExceeded
    if _FILTERED.search(text):
        return errors.ContentRefused
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
