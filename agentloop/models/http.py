"""Chat models over HTTP: retries, errors, server-sent events, limits, connections.

Copy with: models/wire.py, errors.py, events.py and their imports.

A provider is a subclass of `HTTPModel` that says five things: `headers` and `path` (where a request
goes), `body` (the request), `read` (the reply), and `chunks` (an accumulator that puts a stream
together into what `read` takes, so streamed and complete replies become the same message).
`HTTPModel` does the rest. The recipe examples/recipes/other_servers.py adds a provider.
"""

from __future__ import annotations

import asyncio
import copy
import functools
import inspect
import json
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
from ..messages import (
    JSON,
    Advised,
    AssistantMessage,
    Attempt,
    Message,
    ToolChoice,
    advice,
    clean_text,
)
from ..tools import Tool
from .wire import (
    Accumulator,
    EventParser,
    as_dict,
    encode_body,
    first_text,
    merge,
    parse_json,
    retry_after,
    storable,
)

if TYPE_CHECKING:
    import httpx  # imported on first use: the import takes 60 ms


logger = logging.getLogger("agentloop")
Provider = TypeVar("Provider")

MAX_RETRY_DELAY = 120.0  # seconds; if the provider asks for more, the request fails at once
LINGER = 1.0  # seconds to wait for the end of a stream after its last event
KEEP_ALIVE = 25.0  # seconds that an idle connection stays open
MAX_CONCURRENT_CONNECTS = 50  # connections to a server that are being made at the same time
LOOPBACK = ("localhost", "127.0.0.1", "::1")  # reached without a proxy
# With status 429, although waiting doesn't help: OpenAI, Anthropic, xAI, Ollama's cloud, Kimi, and
# the daily quotas of OpenRouter and Google, whose error asks you to wait for seconds. Sources:
# https://help.openai.com/en/articles/6614457-troubleshooting-api-usage-and-spend-limits,
# https://platform.claude.com/docs/en/api/rate-limits (Anthropic),
# https://github.com/continuedev/continue/issues/10373 (xAI),
# https://github.com/voideditor/void/issues/557 (Google),
# https://github.com/Gitlawb/openclaude/issues/936 (OpenRouter),
# https://github.com/continuedev/continue/issues/11444 (Ollama),
# https://github.com/MoonshotAI/kimi-code/pull/1857 (Kimi)
QUOTA_ERRORS = (
    "insufficient_quota|exceeded_current_quota|credit_balance_exhausted|spend_limit|"
    "spending limit|PerDay|per-day|usage[ _]limit"
)
# LM Studio, with status 200: https://github.com/lmstudio-ai/lmstudio-bug-tracker/issues/618
NO_ENDPOINT = "unexpected endpoint or method"
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
# identity, because a few compressed kilobytes can become gigabytes
HEADERS = {"content-type": "application/json", "accept-encoding": "identity"}
USER_AGENT = {"user-agent": "agentloop"}
TIMEOUTS = {  # what to change after a timeout of httpx
    "ConnectTimeout": "if the server needs longer, raise connect_timeout",
    "ReadTimeout": "if the server needs longer, raise read_timeout",
    "WriteTimeout": "if the server needs longer, raise read_timeout",
    "PoolTimeout": "client has no free connection: raise max_connections",
}
# errors that a retry may solve
RETRYABLE = (BadResponse, ConnectionFailed, RateLimited, Overloaded, ServerError)
# what `HTTPModel.read` raises for an invalid reply
PARSE_ERRORS = (BadResponse, LookupError, TypeError, AttributeError, ValueError, RecursionError)


class Secret(str):
    """Secret text. A repr doesn't show it, and a pickle or a deep copy doesn't hold it."""

    def __repr__(self) -> str:
        return "***"

    def __reduce__(self) -> Any:
        return str, ()


# ---- errors, as pure functions

ERROR_PATTERNS = {  # the first pattern that matches "429 BODY" decides the class
    "^2": BadResponse,
    # with status 400, if what the model wrote as a call is none: Groq, Cerebras. Sources:
    # https://github.com/agno-agi/agno/issues/4090,
    # https://github.com/vybestack/llxprt-code/issues/221
    "tool_use_failed|failed to generate tool": BadResponse,
    # with status 500 or 400: llama.cpp, LM Studio. Sources:
    # https://github.com/ggml-org/llama.cpp/issues/19774,
    # https://github.com/lmstudio-ai/lmstudio-bug-tracker/issues/2339
    "context size has been exceeded": ContextWindowExceeded,
    "^408": ConnectionFailed,
    "^(429|rate_limit)": RateLimited,
    "^(409|503|529|overloaded|server_is_overloaded|slow_down)": Overloaded,
    "^5": ServerError,
    # with status 403 at xAI and OpenRouter. Sources:
    # https://github.com/UKGovernmentBEIS/inspect_ai/pull/2267,
    # https://openrouter.ai/docs/api/reference/errors-and-debugging
    "content_filter|(content|bio|cyber|misalignment)_policy|content management policy|"
    "usage policy|violates usage guidelines|flagged_input|content exists risk|"
    "data_?inspection_?failed|"
    '"code": ?"1301"': ContentRefused,  # the last is Z.AI's, whose text may be Chinese
    r"^(401|403|authentication|permission)|api[ _]key (not|expired|invalid)|"
    r"(incorrect|invalid) api[ _]key": AuthenticationFailed,
    r"^413|context[ _]length|maximum (prompt|model) length|exceed\w* [^.]{0,60}context|"
    r"exceed_context|context[ _]window[ _]exceed|(prompt|input|request) is too long|"
    r"reduce the length of|total length of all messages|range of input length|"
    r"(prompt|input (length|token))[^.]{0,80} exceeds? (the |customer )?(model )?max|"
    r"exceeded model token limit|too many tokens:|tokens in request more than max|"
    r"`inputs` (tokens|must have less)|n_keep\b.{0,80}\bn_ctx": ContextWindowExceeded,
    f"^([34]|invalid|not_found)|{NO_ENDPOINT}": BadRequest,
}


def error_class(status: Any, text: str) -> type[ModelError]:
    """Choose an exception class from the status or error code, and the text of the body."""
    described = f"{status} {text}"[:20_000]  # a server may send megabytes
    for pattern, kind in ERROR_PATTERNS.items():
        if re.search(pattern, described, re.IGNORECASE):
            return kind
    return ServerError


def cause_of(error: BaseException) -> BaseException:
    """Find the operating system's error behind an exception, or return the exception itself."""
    found: BaseException | None = error
    while found:
        if isinstance(found, OSError) and found.errno:
            return found
        # a group of exceptions if a host name has several addresses
        several: Sequence[BaseException] = getattr(found, "exceptions", ())
        found = next(iter(several), None) or found.__cause__ or found.__context__
    return error


# ---- connections


@lru_cache
def _address(base_url: str, path: str) -> httpx.URL:
    import httpx

    base, _, query = base_url.partition("?")
    version = re.match("/v1[a-z]*", path)
    if version:  # the base URL may have it, too
        base = base.removesuffix(version[0])
    return httpx.URL(base + path).copy_merge_params(query)


@lru_cache
def _ssl_context() -> Any:
    import httpx

    # making one takes 20 ms; a transport that gets one takes 0.1 ms
    try:
        return httpx.create_ssl_context()
    except OSError as error:
        reason = f"SSL_CERT_FILE in the environment: {error}"
        raise ConnectionFailed(reason, should_retry=False) from None


def _is_direct(url: httpx.URL, no_proxy: str) -> bool:
    """Whether to reach a host without a proxy. NO_PROXY may also name networks."""
    from ipaddress import ip_address, ip_network
    from urllib.request import proxy_bypass

    if url.host in LOOPBACK or proxy_bypass(url.netloc.decode()):
        return True
    for entry in no_proxy.split(","):
        with suppress(ValueError):  # a name
            if ip_address(url.host) in ip_network(entry.strip()):
                return True
    return False


def _find_proxy(url: httpx.URL) -> tuple[str, str]:
    """The environment variable with the proxy to use, and the proxy; "" if there's none."""
    from urllib.request import getproxies

    proxies = getproxies()
    source = url.scheme if url.scheme in proxies else "all"
    proxy = proxies.get(source, "")
    if proxy and _is_direct(url, proxies.get("no", "")):
        proxy = ""
    return f"{source.upper()}_PROXY", proxy


def _new_transport(url: httpx.URL) -> httpx.AsyncHTTPTransport:
    import httpx

    variable, proxy = _find_proxy(url)
    try:
        return httpx.AsyncHTTPTransport(
            verify=_ssl_context(),
            limits=httpx.Limits(keepalive_expiry=KEEP_ALIVE),
            proxy=re.sub("^(?!.*://)", "http://", proxy) if proxy else None,
        )
    except (ImportError, ValueError, httpx.InvalidURL) as error:
        hidden = re.sub("//.*@", "//***@", str(error))
        reason = f"{variable} in the environment: {hidden}"
        raise ConnectionFailed(reason, should_retry=False) from None


def _is_page(response: httpx.Response) -> bool:
    """Whether a server sent a web page as if it were a reply."""
    return response.is_success and "text/html" in response.headers.get("content-type", "")


class ConnectionPool:
    """The connections to one server, in one event loop.

    Each transport serves one request at a time, because httpx is slow with many requests in one
    transport, and its own pool loses the slots of cancelled requests
    (https://github.com/encode/httpcore/issues/1093).
    """

    def __init__(self) -> None:
        self.idle: dict[httpx.AsyncHTTPTransport, asyncio.TimerHandle] = {}
        self.connecting = asyncio.Semaphore(MAX_CONCURRENT_CONNECTS)

    async def send(self, request: httpx.Request) -> tuple[httpx.Response, httpx.AsyncHTTPTransport]:
        """Send a request over the newest idle connection, or over a new one.

        A server may close an idle connection just when it's used again. If no response headers have
        arrived by then, the request is repeated at once over a new connection.
        """
        import httpx

        is_new = False

        async def trace(event: str, info: object) -> None:
            """httpcore calls this: limit concurrent connects, which would time out."""
            nonlocal is_new
            if event == "connection.connect_tcp.started":
                is_new = True
                await self.connecting.acquire()
            elif event.startswith("connection.connect_tcp."):  # complete, failed
                self.connecting.release()

        request.extensions["trace"] = trace
        transport = self.acquire() if self.idle else _new_transport(request.url)
        try:
            return await self._exchange(request, transport)
        except (httpx.NetworkError, httpx.RemoteProtocolError):
            if is_new:
                raise
        return await self._exchange(request, _new_transport(request.url))

    async def _exchange(
        self, request: httpx.Request, transport: httpx.AsyncHTTPTransport
    ) -> tuple[httpx.Response, httpx.AsyncHTTPTransport]:
        """Send a request over this transport. Close the transport if there's no response."""
        try:
            return await transport.handle_async_request(request), transport
        except BaseException:
            await transport.aclose()
            raise

    def acquire(self) -> httpx.AsyncHTTPTransport:
        """Take the newest idle transport out of the pool."""
        transport, timer = self.idle.popitem()
        timer.cancel()
        return transport

    def release(self, transport: httpx.AsyncHTTPTransport) -> None:
        """Put a transport back, and close it if it stays idle."""
        loop = asyncio.get_running_loop()
        self.idle[transport] = loop.call_later(KEEP_ALIVE, self._expire, transport)

    def _expire(self, transport: httpx.AsyncHTTPTransport) -> None:
        del self.idle[transport]
        # kept, because asyncio doesn't keep a task that nobody refers to
        self.closing = asyncio.create_task(transport.aclose())

    async def close(self) -> None:
        """Close the idle connections."""
        while self.idle:
            await self.acquire().aclose()


Pool = defaultdict[tuple[str, bytes], ConnectionPool]  # by scheme and host
# Shared by all models: if each had a pool, deleting a model would leave its connections open.
_pools: dict[asyncio.AbstractEventLoop, AsyncGenerator[Pool, None]] = {}


async def _keep_pool() -> AsyncGenerator[Pool, None]:
    """Yield the pools of one event loop, and close their connections when the loop ends.

    It's a generator because an event loop closes its async generators before it ends.
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
    """The connection pools of this event loop."""
    loop = asyncio.get_running_loop()
    if loop not in _pools:
        for other in [*_pools]:
            if other.is_closed():  # it ended without closing its generators
                _pools.pop(other, None)
    return await anext(_pools.setdefault(loop, _keep_pool()))


# ---- the model

ENDPOINT = r"/(chat/completions|completions|responses|messages|[^/]+:\w*[gG]enerateContent)(?=\?|$)"


def owner(text: str) -> str:
    """The class for a model name, an API key or an environment variable; "" if unknown."""
    return next((name for start, name in OWNERS.items() if text.startswith(start)), "")


@dataclass_transform(kw_only_default=True, eq_default=False)
def chat_model(cls: type[Provider]) -> type[Provider]:
    """Make a provider's class a dataclass whose TypeErrors say what to write."""
    made: Any = dataclass(repr=False, eq=False, kw_only=True)(cls)
    set_fields: Callable[..., None] = made.__init__
    known = inspect.signature(set_fields).parameters

    @functools.wraps(set_fields)
    def check_names(self: HTTPModel, *args: Any, **settings: Any) -> None:
        for name in sorted(settings.keys() - known.keys()):
            default = f"for a field of the API, use {self.fields_setting}={{{name!r}: ...}}"
            remedy = advice([type(self).__name__, "parameter"], name, known, default)
            raise TypeError(f"{type(self).__name__}: unknown parameter {name}: {remedy}")
        set_fields(self, *args, **settings)

    made.__init__ = check_names
    return cls


@dataclass(repr=False, eq=False)
class HTTPModel(Advised, ABC):
    """What all providers have in common. Settings that are None aren't sent.

    A provider's class defines `headers`, `path`, `body`, `read` and `chunks`, and where the API key
    and the address come from: `key_variables`, `url_variable`, `default_url`.

    The extra `fast` installs sniffio, which saves a sixth of a model call's CPU time: httpcore 1.0
    looks for this package several times in each request. Source:
    https://github.com/encode/httpcore/pull/1103

    client: an `httpx.AsyncClient` of your own, which is never closed, and used as it is, except
        that it doesn't follow redirects, because they may lead to another host. By default,
        connections are made when they're needed, and use the proxies of the environment, except to
        loopback addresses. Patches of `httpx.AsyncClient` have no effect on them.
    dump: a function that gets the body of each request and response, without the API key.
    extra: more fields for the request, such as {"service_tier": "flex"}.
    provider_tools: the provider's own tools, such as web search, in the format of its API. They're
        sent after the agent's tools.
    """

    model: str
    _: KW_ONLY
    api_key: str | None = None
    base_url: str | None = None
    extra: Mapping[str, Any] = field(default_factory=JSON)
    provider_tools: Sequence[JSON] = ()
    output_schema: JSON | None = None  # of a JSON answer
    max_retries: int = 4  # attempts after the first
    timeout: float | None = 3600.0  # seconds for all attempts
    connect_timeout: float = 5.0
    read_timeout: float = 600.0  # seconds in which no data arrives
    max_response_bytes: int = 64 * 2**20
    client: httpx.AsyncClient | None = None
    dump: Callable[[str, str], None] | None = None
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep

    chunks: type[Accumulator] = field(init=False)
    key_variables: ClassVar[Sequence[str]]
    url_variable: ClassVar[str]
    default_url: ClassVar[str]
    fields_setting: ClassVar = "extra"  # the setting for more fields of the API

    def __post_init__(self) -> None:
        keys = [self.api_key, *map(os.environ.get, self.key_variables)]
        self.api_key = Secret(next(filter(None, keys), ""))
        url = self.base_url or os.environ.get(self.url_variable) or self.default_url
        self.base_url = re.sub(r"/+(\?|$)", r"\1", url)
        if not re.fullmatch(
            r"(?i)https?://([^/?#@]*@)?([^/?#@:\s]+|\[[\d:a-f]+\])(:\d+)?([/?][^#\s]*)?", url
        ):
            raise ValueError(
                f"{self!r}: base_url must be an http(s) address, not {url.rpartition('@')[2]!r}"
            )
        if endpoint := re.search(ENDPOINT, self.base_url):
            raise ValueError(
                f"{self!r}: base_url ends in {endpoint[0]!r}, which the model adds itself: pass "
                "the address before it, such as 'https://example.com/v1'"
            )
        if not re.fullmatch("[!-~]*", self.api_key):
            # httpx would refuse the header with an exception that contains the key
            raise ValueError(
                f"{self!r}: api_key has a space, a line break or a character that isn't ASCII: "
                "copy it again"
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
        """Raise ValueError if the model or the API key is another provider's, or there's no key."""
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
        """A copy that answers with JSON of this schema; None if the API can't do that."""
        twin = copy.copy(self)
        twin.output_schema = schema
        return twin

    # ---- implemented by a provider, in addition to `chunks`

    @abstractmethod
    def headers(self) -> dict[str, str]:
        """The provider's own headers, with the API key."""

    @abstractmethod
    def path(self, stream: bool) -> str:
        """The path of the endpoint, after the base URL."""

    @abstractmethod
    def body(
        self,
        messages: Sequence[Message],
        tools: Sequence[Tool],
        tool_choice: ToolChoice,
        stream: bool,
    ) -> JSON:
        """The body of a request, in which values may be `Encoded`: see `request_body` for bytes."""

    @abstractmethod
    def read(self, data: JSON) -> AssistantMessage:
        """Turn a reply into a message. Raises one of PARSE_ERRORS if the reply is invalid."""

    def bound(self, reply: AssistantMessage, body: JSON) -> AssistantMessage:
        """Add to a reply what later requests must know about its own request."""
        return reply

    # ---- errors

    def _hide(self, text: str) -> str:
        """Hide the API key in a text. Up to five characters are a placeholder, such as "none"."""
        key = self.api_key or ""
        if len(key) <= 5:
            return text
        return text.replace(key, "***")

    def _error(self, response: httpx.Response, text: str, error_code: Any = None) -> ModelError:
        """The exception for a response, by its status, or by the error code if the status is 200.

        OpenAI, OpenRouter and Google send the error code as "code", Anthropic as "type".
        """
        headers = response.headers
        shown = self._hide(" ".join(text.split()))[:500]
        # the clients of OpenAI and Anthropic obey this header
        should_retry = {"true": True, "false": False}.get(headers.get("x-should-retry", ""))
        kind = error_class(error_code or response.status_code, text)
        # the text of a BadResponse is the model's
        is_spent = kind is not BadResponse and re.search(QUOTA_ERRORS, text[:20_000])
        if is_spent or _is_page(response):
            should_retry = False
        return kind(
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
        is_missing = is_missing or NO_ENDPOINT in text.lower()
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
        """Build the HTTP request. Credentials in the address become a header."""
        import httpx

        url = _address(str(self.base_url), self.path(stream))
        build = self.client.build_request if self.client else httpx.Request
        timeouts = dict.fromkeys(("read", "write", "pool"), self.read_timeout)
        common = HEADERS if self.client else HEADERS | USER_AGENT  # a client has its own
        request = build(
            "POST",
            url.copy_with(userinfo=b"") if url.userinfo else url,  # httpx would log the credentials
            content=content,
            # self.headers() has no name here, because tracebacks may show local variables
            headers=common | self.headers(),
            extensions={"timeout": timeouts | {"connect": self.connect_timeout}},
        )
        if url.userinfo:
            request = next(httpx.BasicAuth(url.username, url.password).auth_flow(request))
        return request

    def _parse(self, response: httpx.Response, content: bytes | bytearray) -> JSON:
        """Parse a body, or the data of an event. Raises ModelError if it reports an error."""
        data = as_dict(json.loads(content))
        # the latter in an event with a failed response
        error = data.get("error") or as_dict(data.get("response")).get("error")
        if not error and first_text(data, "type").endswith("error"):
            error = data  # an event of Responses ("error"), of llama.cpp ("server_error")
        if not error:
            return data
        error_code = first_text(as_dict(error), "code", "type") or "unknown"
        # without what a failed response repeats, such as the tools and the text so far
        text = clean_text(json.dumps(error, ensure_ascii=False))
        raise self._error(response, text, error_code)

    def _add_events(
        self, response: httpx.Response, parts: Accumulator, events: Iterable[bytes]
    ) -> None:
        for data in events:
            if data == b"[DONE]":
                parts.end()
            else:
                parts.add(self._parse(response, data))

    async def _receive(self, response: httpx.Response, parts: Accumulator) -> JSON:
        """Receive the body. Returns the reply, also if it arrived as a stream."""
        import httpx

        parser = EventParser()
        deadline = asyncio.timeout(None)
        may_stream = parts.on_delta and response.is_success
        streamed = False
        encoding = response.headers.get("content-encoding", "")
        if re.search("(?i)br|zstd|,", encoding):  # httpx would decode gigabytes at once
            raise BadResponse(f"compressed as {encoding!r}, although the request forbids that")
        try:
            async with deadline:
                async for piece in response.aiter_bytes():
                    if may_stream and not parts.body:
                        # some servers label a stream as JSON, and others can't stream
                        streamed = not piece.lstrip().startswith((b"{", b"["))
                    parts.body += piece
                    if len(parts.body) > self.max_response_bytes:
                        limit = self.max_response_bytes
                        raise BadResponse(f"the response has more than max_response_bytes={limit}")
                    if streamed:
                        self._add_events(response, parts, parser.feed(piece))
                    if parts.complete and not deadline.when():
                        # Read on for a moment, to get the usage and to use the connection again.
                        # Not forever, because some servers keep the stream open.
                        deadline.reschedule(asyncio.get_running_loop().time() + LINGER)
                # the blank line after the last event may be missing
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
        """Turn an exception of httpx or of a parser into a ModelError; None for any other."""
        import httpx

        # an event hook of an own client may have raised the error
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

    def _connection_error(self, error: Exception, request: httpx.Request) -> ConnectionFailed:
        """Describe a request that got no response."""
        host = request.url.netloc.decode()
        variable, proxy = _find_proxy(request.url)
        if proxy and not self.client:
            host = f"{host} by the proxy in {variable}"
        cause = cause_of(error)
        if request.url.host in LOOPBACK and isinstance(cause, ConnectionRefusedError):
            hint = "no server at this address: start one (`ollama serve`?) or correct base_url"
            return ConnectionFailed(f"{host}: {hint}", should_retry=False)
        name = type(error).__name__
        return ConnectionFailed(self._hide(f"{host}: {name}: {TIMEOUTS.get(name, cause)}")[:500])

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
                # httpx would send the API key to the other host
                response = await self.client.send(request, stream=True, follow_redirects=False)
            else:
                response, transport = await pool.send(request)
            async with aclosing(response):
                return storable(self.read(await self._receive(response, parts)))
        except BaseException as error:
            if transport and not isinstance(error, Exception):
                await transport.aclose()  # a cancelled request may still be on its way
            attempts += self._billed(error, response, parts)
            known = self._translate(error, request, response, parts)
            if known:
                raise known from None
            raise
        finally:
            if transport:
                pool.release(transport)
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
        """The JSON that `ainvoke` would send for these messages. Nothing is sent."""
        return encode_body(merge(self.body(messages, tools, tool_choice, stream), self.extra))

    def _wait(self, error: ModelError, attempt: int) -> float | None:
        """The seconds to wait before the next attempt; None if there's no other attempt."""
        may_retry = error.should_retry
        if may_retry is None:
            may_retry = isinstance(error, RETRYABLE)
        if not may_retry or attempt >= self.max_retries:
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
        """Send a request to the model, and stream the reply if there's an `on_delta`.

        Raises ModelError. The `attempts` of the reply, or of the exception, are the failed attempts
        that may be billed.
        """
        body = self.body(messages, tools, tool_choice, bool(on_delta))
        content = encode_body(merge(body, self.extra))
        attempts = list[Attempt]()
        try:
            async with asyncio.timeout(self.timeout):
                reply = await self._retry(content, on_delta, attempts)
        except TimeoutError:
            failure = ConnectionFailed(
                f"{self!r}: no complete answer within timeout={self.timeout} s"
            )
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
        """Close the idle connections of this event loop, which closes them itself when it ends."""
        for server in [*(await _pool()).values()]:
            await server.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.aclose()
