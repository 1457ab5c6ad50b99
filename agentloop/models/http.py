"""Chat models over HTTP: retries, errors, server-sent events, limits, connections.

Copy with: models/wire.py, vocabulary.py, errors.py, events.py and their imports.

A provider is a subclass of `HTTPModel` with five methods: `headers` and `path` (the destination),
`body` (the request), `read` (the reply), and `chunks` (an accumulator that assembles a stream into
the input of `read`, so that streamed and complete replies result in identical messages).
`HTTPModel` implements all other functionality. The recipe examples/recipes/azure_openai.py adds a
provider.
"""

from __future__ import annotations

import asyncio
import copy
import functools
import inspect
import logging
import os
import random
import re
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import aclosing, suppress
from dataclasses import KW_ONLY, dataclass, field, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeVar, cast, dataclass_transform

from ..errors import (
    AuthenticationFailed,
    BadRequest,
    BadResponse,
    ConnectionFailed,
    ContentRefused,
    ContextWindowExceeded,
    ModelError,
    Overloaded,
    RateLimited,
    ServerError,
)
from ..events import OnDelta
from ..messages import JSON, Advised, AssistantMessage, Attempt, Message, ToolChoice
from ..tools import Tool
from .wire import (
    Accumulator,
    EventParser,
    as_dict,
    encode_body,
    first_text,
    load_json,
    merge,
    parse_json,
    retry_after,
    storable,
)

if TYPE_CHECKING:
    import httpx  # imported on first use: the import takes 60 ms


logger = logging.getLogger("agentloop")
Provider = TypeVar("Provider")

MAX_RETRY_DELAY = 120.0  # seconds; longer delays fail immediately
LARGE_UPLOAD = 2**20  # bytes; a server that closes the connection meanwhile refuses the request
LINGER = 1.0  # seconds to wait for the end of a stream after its last event
KEEP_ALIVE = 25.0  # seconds that an idle connection stays open
MAX_IDLE = 1000  # idle connections to a server
MAX_CONCURRENT_CONNECTS = 50  # connections to a server in the process of connecting
LOOPBACK = ("localhost", "127.0.0.1", "::1")  # reached without a proxy
# OpenAI, Anthropic: status 429 with a permanent cause
QUOTA_ERRORS = "insufficient_quota|spend_limit"
OWNERS = {  # the class for a model name, an API key or an environment variable, by its beginning
    "gpt-": "ChatOpenAI",
    "sk-proj-": "ChatOpenAI",
    "OPENAI_API_KEY": "ChatOpenAI",
    "claude-": "ChatAnthropic",
    "sk-ant-": "ChatAnthropic",
    "ANTHROPIC_API_KEY": "ChatAnthropic",
    "gemini-": "ChatGoogle",
    "AIza": "ChatGoogle",
    "GEMINI_API_KEY": "ChatGoogle",
    "GOOGLE_API_KEY": "ChatGoogle",
}
# identity: a few compressed kilobytes can expand to gigabytes
HEADERS = {"content-type": "application/json", "accept-encoding": "identity"}
USER_AGENT = {"user-agent": "agentloop"}
# errors that a retry may solve
RETRYABLE = (BadResponse, ConnectionFailed, RateLimited, Overloaded, ServerError)
# raised by `HTTPModel.read` for an invalid reply
PARSE_ERRORS = (BadResponse, LookupError, TypeError, AttributeError, ValueError, RecursionError)


class Secret(str):
    """Confidential text, excluded from reprs, pickles and deep copies."""

    def __repr__(self) -> str:
        return "***"

    def __reduce__(self) -> Any:
        return str, ()


# ---- errors, as pure functions

ERROR_PATTERNS = {  # the first pattern that matches "429 BODY" selects the class
    "^2": BadResponse,
    "^408": ConnectionFailed,
    "^(429|rate_limit)": RateLimited,
    "^(409|503|529|overloaded|server_is_overloaded|slow_down)": Overloaded,
    "^5": ServerError,
    r"^(401|403|authentication|permission)|api[ _]key (not|expired|invalid)|"
    r"(incorrect|invalid) api[ _]key": AuthenticationFailed,
    r"^413|context[ _]length|maximum (prompt|model) length|exceed\w* [^.]{0,60}context|"
    r"exceed_context|context_window_exceed|(prompt|input|request) is too long|"
    r"reduce the length of|total length of all messages|"
    r"input token count[^.]{0,80}exceeds": ContextWindowExceeded,
    "content_filter|content_policy|content management policy|usage policy": ContentRefused,
    "^([34]|invalid|not_found)": BadRequest,
}


def error_class(status: Any, text: str) -> type[ModelError]:
    """Return the exception class for a status or error code, and the text of the body."""
    described = f"{status} {text}"
    for pattern, kind in ERROR_PATTERNS.items():
        if re.search(pattern, described, re.IGNORECASE):
            return kind
    return ServerError


def cause_of(error: BaseException) -> BaseException:
    """Return the operating system's error that caused an exception, or the exception itself."""
    found: BaseException | None = error
    while found:
        if isinstance(found, OSError) and found.errno:
            return found
        # an exception group, for a host name with several addresses
        several: Sequence[BaseException] = getattr(found, "exceptions", ())
        found = next(iter(several), None) or found.__cause__ or found.__context__
    return error


# ---- connections


@lru_cache
def _address(base_url: str, path: str) -> httpx.URL:
    import httpx

    base, _, query = base_url.partition("?")
    version = re.match("/v1[a-z]*", path)
    if version:  # the base URL may also contain it
        base = base.removesuffix(version[0])
    return httpx.URL(base + path).copy_merge_params(query)


@lru_cache
def _ssl_context() -> Any:
    import httpx

    # takes 20 ms; a transport with an existing context takes 0.1 ms
    return httpx.create_ssl_context()


def _is_direct(url: httpx.URL, no_proxy: str) -> bool:
    """Return whether a host is reached without a proxy. NO_PROXY may also name networks."""
    from ipaddress import ip_address, ip_network
    from urllib.request import proxy_bypass

    if url.host in LOOPBACK or proxy_bypass(url.netloc.decode()):
        return True
    for entry in no_proxy.split(","):
        with suppress(ValueError):  # a name
            if ip_address(url.host) in ip_network(entry.strip()):
                return True
    return False


def _new_transport(url: httpx.URL) -> httpx.AsyncHTTPTransport:
    from urllib.request import getproxies

    import httpx

    proxies = getproxies()
    source = url.scheme if url.scheme in proxies else "all"
    proxy = proxies.get(source)
    if proxy and _is_direct(url, proxies.get("no", "")):
        proxy = None
    try:
        return httpx.AsyncHTTPTransport(
            verify=_ssl_context(),
            limits=httpx.Limits(keepalive_expiry=KEEP_ALIVE),
            proxy=proxy and re.sub("^(?!.*://)", "http://", proxy),
        )
    except (ImportError, ValueError, httpx.InvalidURL) as error:
        reason = f"{source.upper()}_PROXY in the environment: {error}"
        raise ConnectionFailed(reason, should_retry=False) from None


def _is_page(response: httpx.Response) -> bool:
    """Return whether a server sent a web page as if it were a reply."""
    return response.is_success and "text/html" in response.headers.get("content-type", "")


def _closed_unanswered(error: BaseException) -> bool:
    """Return whether a connection was closed before the response headers arrived.

    The context of the exception's cause contains errors of the HTTP parser (malformed headers).
    """
    import httpx

    if isinstance(error, httpx.RemoteProtocolError):
        return not getattr(error.__cause__, "__context__", None)
    return isinstance(error, httpx.ReadError | httpx.WriteError)


class ConnectionPool:
    """The connections to one server, in one event loop.

    A transport serves one request at a time: httpx is slow with many requests per transport, and
    its own pool leaks the slots of cancelled requests
    (https://github.com/encode/httpcore/issues/1093).
    """

    def __init__(self) -> None:
        self.idle: dict[httpx.AsyncHTTPTransport, asyncio.TimerHandle] = {}
        self.connecting = asyncio.Semaphore(MAX_CONCURRENT_CONNECTS)

    async def send(self, request: httpx.Request) -> tuple[httpx.Response, httpx.AsyncHTTPTransport]:
        """Send a request over the newest idle connection, or over a new one.

        A server may close an idle connection at the moment of its reuse. The request is then
        repeated immediately over a new connection, provided that no response headers have arrived.
        """
        is_new = False

        async def trace(event: str, info: object) -> None:
            """Called by httpcore: limit connects, which would time out, and note a refusal."""
            nonlocal is_new
            if event == "connection.connect_tcp.started":
                is_new = True
                await self.connecting.acquire()
            elif event.startswith("connection.connect_tcp."):  # complete, failed
                self.connecting.release()
            elif event == "http11.send_request_body.failed" and is_new:
                request.extensions["refused"] = True

        request.extensions["trace"] = trace
        transport = self.acquire() if self.idle else _new_transport(request.url)
        try:
            return await self._exchange(request, transport)
        except Exception as error:
            if is_new or not _closed_unanswered(error):
                raise
        return await self._exchange(request, _new_transport(request.url))

    async def _exchange(
        self, request: httpx.Request, transport: httpx.AsyncHTTPTransport
    ) -> tuple[httpx.Response, httpx.AsyncHTTPTransport]:
        """Send a request over this transport, and close the transport without a response."""
        try:
            return await transport.handle_async_request(request), transport
        except BaseException:
            await transport.aclose()
            raise

    def acquire(self) -> httpx.AsyncHTTPTransport:
        """Remove the newest idle transport from the pool, and return it."""
        transport, timer = self.idle.popitem()
        timer.cancel()
        return transport

    async def release(self, transport: httpx.AsyncHTTPTransport) -> None:
        """Return a transport to the pool, or close the transport if the pool is full."""
        if len(self.idle) >= MAX_IDLE:
            await transport.aclose()
            return
        loop = asyncio.get_running_loop()
        self.idle[transport] = loop.call_later(KEEP_ALIVE, self._expire, transport)

    def _expire(self, transport: httpx.AsyncHTTPTransport) -> None:
        del self.idle[transport]
        # a reference prevents garbage collection before completion
        self.closing = asyncio.create_task(transport.aclose())

    async def close(self) -> None:
        """Close the idle connections."""
        while self.idle:
            await self.acquire().aclose()


Pool = defaultdict[tuple[str, bytes], ConnectionPool]  # by scheme and host
# Shared by all models. Garbage collection of a pool per model could leave its connections open.
_pools: dict[asyncio.AbstractEventLoop, AsyncGenerator[Pool, None]] = {}


async def _keep_pool() -> AsyncGenerator[Pool, None]:
    """Yield the pools of one event loop, and close their connections at the end of the loop.

    Event loops close their open async generators before ending.
    """
    pool = Pool(ConnectionPool)
    try:
        while True:
            yield pool
    finally:
        del _pools[asyncio.get_running_loop()]
        for server in pool.values():
            await server.close()


async def _pool() -> Pool:
    """Return the connection pools of this event loop."""
    loop = asyncio.get_running_loop()
    if loop not in _pools:
        for other in [*_pools]:
            if other.is_closed():  # without closing its generators
                _pools.pop(other, None)
    return await anext(_pools.setdefault(loop, _keep_pool()))


# ---- the model

ENDPOINT = r"/(chat/completions|completions|responses|messages|[^/]+:\w*[gG]enerateContent)$"


def owner(text: str) -> str:
    """Return the name of the class for a model name, an API key or an environment variable."""
    return next((name for start, name in OWNERS.items() if text.startswith(start)), "")


@dataclass_transform(kw_only_default=True, eq_default=False)
def chat_model(cls: type[Provider]) -> type[Provider]:
    """Convert a provider's class to a dataclass. Its TypeErrors name a remedy."""
    made: Any = dataclass(repr=False, eq=False, kw_only=True)(cls)
    set_fields: Callable[..., None] = made.__init__
    known = inspect.signature(set_fields).parameters

    @functools.wraps(set_fields)
    def check_names(self: HTTPModel, *args: Any, **settings: Any) -> None:
        for name in sorted(settings.keys() - known.keys()):
            from ..vocabulary import advice

            default = f"for a field of the API, use {self.fields_setting}={{{name!r}: ...}}"
            remedy = advice([type(self).__name__, "parameter"], name, known, default)
            raise TypeError(f"{type(self).__name__}: unknown parameter {name}: {remedy}")
        set_fields(self, *args, **settings)

    made.__init__ = check_names
    return cls


@dataclass(repr=False, eq=False)
class HTTPModel(Advised, ABC):
    """The common functionality of all providers. Parameters that are None are not sent.

    A provider's class defines `headers`, `path`, `body`, `read` and `chunks`, and the sources of
    the API key and the address: `key_variables`, `url_variable`, `default_url`.

    The extra `fast` installs sniffio, which reduces the CPU time of a request by up to 40 %.
    httpcore 1.0 searches for this optional package several times per request. Source:
    https://github.com/encode/httpcore/pull/1103

    client: a custom `httpx.AsyncClient`, which is used unchanged and never closed. By default,
        connections are opened on demand and use the proxies of the environment, except to loopback
        addresses; patches of `httpx.AsyncClient` do not affect these connections.
    dump: a function that receives the bodies of all requests and responses, without the API key.
    provider_tools: the provider's own tools, such as web search, in the format of its API, sent in
        addition to the agent's tools.
    """

    model: str
    _: KW_ONLY
    api_key: str | None = None
    base_url: str | None = None
    extra: Mapping[str, Any] = field(default_factory=JSON)  # additional fields of the request
    provider_tools: Sequence[JSON] = ()
    output_schema: JSON | None = None  # of a JSON answer
    max_retries: int = 4  # additional attempts after the first
    timeout: float | None = 3600.0  # seconds for all attempts
    connect_timeout: float = 5.0
    read_timeout: float = 600.0  # seconds without receiving data
    max_response_bytes: int = 64 * 2**20
    client: httpx.AsyncClient | None = None
    dump: Callable[[str, str], None] | None = None
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep

    chunks: type[Accumulator] = field(init=False)
    key_variables: ClassVar[Sequence[str]]
    url_variable: ClassVar[str]
    default_url: ClassVar[str]
    fields_setting: ClassVar = "extra"  # the setting for additional fields of the API

    def __post_init__(self) -> None:
        keys = [self.api_key, *map(os.environ.get, self.key_variables)]
        self.api_key = Secret(next(filter(None, keys), ""))
        url = self.base_url or os.environ.get(self.url_variable) or self.default_url
        self.base_url = re.sub(r"/+(\?|$)", r"\1", url)
        if not re.match(
            r"(?i)https?://([^/?#@]*@)?([^/?#@:\s]+|\[[\d:a-f]+\])(:\d+)?([/?]|$)", url
        ):
            raise ValueError(
                f"{self!r}: base_url={url.rpartition('@')[2]!r} is not an http(s) address"
            )
        if endpoint := re.search(ENDPOINT, self.base_url):
            raise ValueError(
                f"{self!r}: base_url ends in {endpoint[0]!r}, which the model adds itself: pass "
                "the address before it, such as 'https://example.com/v1'"
            )
        if not re.fullmatch("[!-~]*", self.api_key):
            # httpx would reject the header, and include the key in the exception
            raise ValueError(
                f"{self!r}: api_key contains a space, a line break or a non-ASCII character"
            )
        if self.client is not None:
            import httpx

            found = type(cast(object, self.client))
            if not issubclass(found, httpx.AsyncClient):
                hint = ""
                if found.__module__.startswith("httpx2"):
                    hint = ": call httpx2.alias_httpx() before anything imports httpx"
                raise TypeError(f"client must be an httpx.AsyncClient, not {found}{hint}")
        if self.client is None and self.base_url == self.default_url:
            self._check_provider()

    def _check_provider(self) -> None:
        """Raise ValueError without an API key, or for another provider's model or API key."""
        classes = [cls.__name__ for cls in type(self).__mro__]
        for setting, value in ("model", self.model), ("api_key", self.api_key or ""):
            if (other := owner(value)) and other not in classes:
                raise ValueError(f"{self!r}: this {setting} is for {other}: use {other}(...)")
        if not self.api_key:
            names = " or ".join(self.key_variables)
            found = "".join(f"; {v} is set, for {OWNERS[v]}" for v in OWNERS if os.environ.get(v))
            raise ValueError(
                f"{type(self).__name__} needs an API key: set {names} in the environment, "
                f"or pass api_key{found}"
            )

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.model!r})"

    def with_output(self, schema: JSON) -> Self | None:
        """Return a copy with structured output by this schema, or None if unsupported."""
        twin = copy.copy(self)
        twin.output_schema = schema
        return twin

    # ---- implemented by a provider, in addition to `chunks`

    @abstractmethod
    def headers(self) -> dict[str, str]:
        """Return the provider's own headers, including the API key."""

    @abstractmethod
    def path(self, stream: bool) -> str:
        """Return the path of the endpoint, relative to the base URL."""

    @abstractmethod
    def body(
        self,
        messages: Sequence[Message],
        tools: Sequence[Tool],
        tool_choice: ToolChoice,
        stream: bool,
    ) -> JSON:
        """Return the request body, in which values may be `Encoded`.

        Raises BadRequest for an unsupported part.
        """

    @abstractmethod
    def read(self, data: JSON) -> AssistantMessage:
        """Convert a reply to a message. Raises one of PARSE_ERRORS for an invalid reply."""

    def bound(self, reply: AssistantMessage, body: JSON) -> AssistantMessage:
        """The reply, with what later requests must know about the request that produced it."""
        return reply

    # ---- errors

    def _hide(self, text: str) -> str:
        """Hide the API key in a text. Keys of up to five characters are placeholders ("none")."""
        key = self.api_key or ""
        if len(key) <= 5:
            return text
        return text.replace(key, "***")

    def _error(self, response: httpx.Response, text: str, error_code: Any = None) -> ModelError:
        """Return the exception for a response, by its status or the error code in a 200 response.

        OpenAI, OpenRouter and Google send the error code as "code", Anthropic as "type".
        """
        headers = response.headers
        shown = self._hide(" ".join(text.split()))[:500]
        # respected by the official clients of OpenAI and Anthropic
        should_retry = {"true": True, "false": False}.get(headers.get("x-should-retry", ""))
        if re.search(QUOTA_ERRORS, shown):
            should_retry = False
        return error_class(error_code or response.status_code, text)(
            f"{self!r}: {response.status_code}: {shown}{self._advise(response, text)}",
            status=response.status_code,
            request_id=headers.get("x-request-id") or headers.get("request-id"),
            retry_after=retry_after(headers, text),
            should_retry=should_retry,
        )

    def _advise(self, response: httpx.Response, text: str) -> str:
        """If nothing at the requested address takes requests, name it and say what to change."""
        target = response.headers.get("location", "")
        is_missing = response.status_code in (404, 405) and self.model not in text
        if not (response.has_redirect_location or is_missing or _is_page(response)):
            return ""
        path = self.path(False)
        requested = _address(str(self.base_url), path).copy_with(userinfo=b"", query=None)
        remedy = self._address_remedy
        if response.has_redirect_location:
            target = self._hide(target).removesuffix(path)[:200]
            remedy = f"it redirects to {target!r}: change base_url"
        return f" (requested {requested}; {remedy})"

    @property
    def _address_remedy(self) -> str:
        """What to change if nothing at the requested address takes requests."""
        return "is base_url the address of an API?"

    # ---- one attempt: build, send, receive; after a failure, note the cost, and translate

    def _build_request(self, content: bytes, stream: bool) -> httpx.Request:
        """Return the HTTP request. Credentials in the address become a header."""
        import httpx

        url = _address(str(self.base_url), self.path(stream))
        build = self.client.build_request if self.client else httpx.Request
        timeouts = dict.fromkeys(("read", "write", "pool"), self.read_timeout)
        common = HEADERS if self.client else HEADERS | USER_AGENT  # a client has its own
        request = build(
            "POST",
            url.copy_with(userinfo=b"") if url.userinfo else url,  # httpx would log the credentials
            content=content,
            # self.headers() is not assigned, because tracebacks may include local variables
            headers=common | self.headers(),
            extensions={"timeout": timeouts | {"connect": self.connect_timeout}},
        )
        if url.userinfo:
            request = next(httpx.BasicAuth(url.username, url.password).auth_flow(request))
        return request

    def _parse(self, response: httpx.Response, content: bytes | bytearray) -> JSON:
        """Parse a body, or the data of an event. Raises ModelError for a reported error."""
        data = as_dict(load_json(content))
        # the latter in an event with a failed response
        error = data.get("error") or as_dict(data.get("response")).get("error")
        if not error and first_text(data, "type").endswith("error"):
            error = data  # an event of Responses ("error"), of llama.cpp ("server_error")
        if not error:
            return data
        error_code = first_text(as_dict(error), "code", "type") or "unknown"
        raise self._error(response, content.decode(errors="replace"), error_code)

    def _add_events(
        self, response: httpx.Response, parts: Accumulator, events: Iterable[bytes]
    ) -> None:
        for data in events:
            if data == b"[DONE]":
                parts.complete = True
            else:
                parts.add(self._parse(response, data))

    async def _receive(self, response: httpx.Response, parts: Accumulator) -> JSON:
        """Receive the body and return the reply, assembled from a stream if necessary."""
        import httpx

        parser = EventParser()
        deadline = asyncio.timeout(None)
        may_stream = parts.on_delta and response.is_success
        streamed = False
        try:
            async with deadline:
                async for piece in response.aiter_bytes():
                    if may_stream and not parts.body:
                        # some servers label a stream as JSON, others do not support streaming
                        streamed = not piece.lstrip().startswith((b"{", b"["))
                    parts.body += piece
                    if len(parts.body) > self.max_response_bytes:
                        raise BadResponse(f"more than {self.max_response_bytes} bytes")
                    if streamed:
                        self._add_events(response, parts, parser.feed(piece))
                    if parts.complete and not deadline.when():
                        # Continue reading briefly, for the usage and for reusing the connection:
                        # some servers keep the stream open.
                        deadline.reschedule(asyncio.get_running_loop().time() + LINGER)
                # the last event may lack the terminating blank line
                self._add_events(response, parts, parser.feed(b"\n\n"))
        except (httpx.HTTPError, TimeoutError, ValueError):
            if not parts.complete:
                raise
        if not response.is_success:
            raise self._error(response, parts.body.decode(errors="replace"))
        if not streamed:
            return self._parse(response, parts.body)
        if not parts.complete:
            raise BadResponse("the stream ended before the reply was complete")
        return parts.reply()

    def _billed(
        self, error: BaseException, response: httpx.Response | None, parts: Accumulator
    ) -> list[Attempt]:
        """The entry for a failed attempt that may be billed, with its usage and text if known.

        A response with an error status costs nothing, and neither does a connection that broke
        before there was a response.
        """
        import httpx

        may_cost = isinstance(error, httpx.ReadTimeout | asyncio.CancelledError)
        if response:
            may_cost = response.is_success
        if not may_cost:
            return []
        usage = None
        with suppress(Exception):  # of whatever arrived
            usage = self.read(as_dict(parse_json(parts.body)) or parts.reply()).usage
        text = "".join(parts.texts)
        return [Attempt(usage, self.model, text)]

    def _translate(
        self,
        error: BaseException,
        request: httpx.Request,
        response: httpx.Response | None,
        parts: Accumulator,
    ) -> ModelError | None:
        """Convert an exception of a library to a ModelError; None for other exceptions."""
        import httpx

        # raised by an event hook of a custom client
        response = getattr(error, "response", response)
        if response is not None and isinstance(error, (httpx.HTTPStatusError, *PARSE_ERRORS)):
            label = response.headers.get("content-type", "no content type")
            fault = "a web page" if _is_page(response) else repr(error)
            text = f"{label}: {fault}: {parts.body.decode(errors='replace')}"
            return self._error(response, text)
        if isinstance(error, httpx.HTTPError):
            return self._connection_error(error, request)
        if self.client and response is None and isinstance(error, RuntimeError):
            reason = f"client: {error}: use a client in one event loop, and close it at the end"
            return ConnectionFailed(reason, should_retry=False)
        return None

    def _connection_error(self, error: Exception, request: httpx.Request) -> ModelError:
        """Describe a request that got no response."""
        import httpx

        host = request.url.netloc.decode()
        size = len(request.content)
        is_refused = "refused" in request.extensions and _closed_unanswered(error)
        if is_refused and size > LARGE_UPLOAD:
            return BadRequest(
                f"{host} closed the connection during the upload of {size // 10**6} MB: "
                "send less, for example smaller images"
            )
        cause = cause_of(error)
        if request.url.host in LOOPBACK and isinstance(cause, ConnectionRefusedError):
            hint = "no server at this address: start one (`ollama serve`?) or correct base_url"
            return ConnectionFailed(f"{host}: {hint}", should_retry=False)
        if isinstance(error, httpx.PoolTimeout):
            return ConnectionFailed(f"{host}: client has no free connection: raise max_connections")
        return ConnectionFailed(self._hide(f"{host}: {type(error).__name__}: {cause}")[:500])

    async def _attempt(
        self, content: bytes, parts: Accumulator, attempts: list[Attempt]
    ) -> AssistantMessage:
        """Send the request once, and return the reply. Raises ModelError.

        A failed attempt that may be billed is added to `attempts`.
        """
        request = self._build_request(content, bool(parts.on_delta))
        pool = (await _pool())[request.url.scheme, request.url.netloc]
        transport = None
        response = None
        try:
            if self.client:
                response = await self.client.send(request, stream=True)
            else:
                response, transport = await pool.send(request)
            async with aclosing(response):
                return storable(self.read(await self._receive(response, parts)))
        except BaseException as error:
            if transport and not isinstance(error, Exception):
                await transport.aclose()  # connections of cancelled requests are not reused
            attempts += self._billed(error, response, parts)
            known = self._translate(error, request, response, parts)
            if known:
                raise known from None
            raise
        finally:
            if transport:
                await pool.release(transport)
            if self.dump:
                sent = content.decode(errors="replace")
                received = parts.body.decode(errors="replace")
                self.dump(self._hide(sent), self._hide(received))

    # ---- all attempts

    def request_body(
        self,
        messages: Sequence[Message],
        tools: Sequence[Tool] = (),
        *,
        tool_choice: ToolChoice = "auto",
        stream: bool = False,
    ) -> bytes:
        """The JSON that `ainvoke` would send for these messages, without sending it."""
        return encode_body(merge(self.body(messages, tools, tool_choice, stream), self.extra))

    def _wait(self, error: ModelError, attempt: int) -> float | None:
        """Return the seconds to wait before another attempt, or None without another attempt."""
        may_retry = error.should_retry
        if may_retry is None:
            may_retry = isinstance(error, RETRYABLE)
        if not may_retry or attempt == self.max_retries:
            return None
        wait = error.retry_after or min(60.0, 2.0**attempt) * random.uniform(0.5, 1)
        return wait if wait <= MAX_RETRY_DELAY else None

    async def ainvoke(
        self,
        messages: Sequence[Message],
        tools: Sequence[Tool] = (),
        *,
        tool_choice: ToolChoice = "auto",
        on_delta: OnDelta | None = None,
    ) -> AssistantMessage:
        """Send a request to the model, streamed with `on_delta`. Raises ModelError.

        The reply, or the exception, has the failed attempts that may be billed as `attempts`.
        """
        body = self.body(messages, tools, tool_choice, bool(on_delta))
        content = encode_body(merge(body, self.extra))
        attempts = list[Attempt]()
        try:
            async with asyncio.timeout(self.timeout):
                reply = await self._retry(content, on_delta, attempts)
        except TimeoutError:
            failure = ConnectionFailed(f"{self!r}: no complete answer within {self.timeout} s")
            failure.attempts = tuple(attempts)
            raise failure from None
        except BaseException as error:
            vars(error)["attempts"] = tuple(attempts)  # also of a CancelledError
            raise
        if attempts:
            reply = replace(reply, attempts=tuple(attempts))
        return self.bound(reply, body)

    async def _retry(
        self, content: bytes, on_delta: OnDelta | None, attempts: list[Attempt]
    ) -> AssistantMessage:
        """Send the request until there's a reply, or an error that another attempt can't mend."""
        number = 0
        while True:
            parts = self.chunks(on_delta)
            try:
                return await self._attempt(content, parts, attempts)
            except ModelError as error:
                wait = self._wait(error, number)
                if wait is None or parts.shown:
                    raise
                number += 1
                logger.info("%r: attempt %d failed, next in %.1f s: %s", self, number, wait, error)
            await self.sleep(wait)

    # ---- connections

    async def aclose(self) -> None:
        """Close the idle connections of this event loop. The end of the event loop closes them,
        too.
        """
        for server in [*(await _pool()).values()]:
            await server.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.aclose()
