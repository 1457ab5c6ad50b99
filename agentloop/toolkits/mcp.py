"""Tools of MCP servers, with the official package `mcp`.

Copy with: toolkits/environment.py, common/processes.py, arguments.py, loop.py, content.py,
    tools.py, waiting.py and their imports.

    async with mcp_tools("npx", "-y", "@modelcontextprotocol/server-everything") as tools:
        await Agent(llm=llm, tools=tools).run("What can you do?")

    async with mcp_servers("mcp.json") as servers:
        tools = [tool for server in servers for tool in server.tools]
        failed = [server.error for server in servers if server.error]

A server gets HOME, PATH and the like, and otherwise only the environment variables that you
configure. It has 60 seconds to start (`start_timeout`) and 5 to stop; its child processes are
killed with it. A server may say that a tool is `read_only`: that counts only if you configure
`trust_hints`.

If a server ends, or the connection is lost, the next call starts it or connects to it again, and
lists its tools again. A call whose result was lost is an error, and isn't repeated. A call that the
server refused because it had forgotten the session (over HTTP) is sent again, once.

If a server wants a login, pass an `httpx2.Auth` as `auth`, such as the package's
`OAuthClientProvider`, which keeps its tokens in a `TokenStorage` that you write. Set a longer
`start_timeout`, so that the user has time.

    auth = OAuthClientProvider(url, client_metadata, token_storage, open_browser, await_callback)
    async with mcp_tools(url, auth=auth, start_timeout=300) as tools: ...

A configuration can name environment variables: `${TOKEN}`. Error messages hide their values, those
of `env` and `headers`, and everything of a `url` but its host. Results of tools may contain them,
because many paths contain `${HOME}`.
"""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import sys
from base64 import b64decode
from collections import defaultdict
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager, nullcontext, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import partial
from hashlib import sha256
from itertools import chain
from pathlib import Path
from subprocess import PIPE
from tempfile import TemporaryFile
from typing import Any, cast
from urllib.parse import unquote

from pydantic import Field, TypeAdapter
from pydantic_core import from_json, to_json

from ..arguments import type_of
from ..common.processes import kill_group
from ..content import describe_error
from ..depends import Overrides
from ..errors import ToolError
from ..loop import Loop
from ..messages import JSON, ImagePart, Stop, TextPart, clean_text, text_of
from ..tools import NO_OVERRIDES, Tool
from ..waiting import cancel_and_wait, logger, shield_from_cancel
from .environment import Secrets, StrictConfig, fill_in, mask, texts_in_url

MAX_MESSAGE = 10_000_000  # bytes of a message
MAX_STDERR = 100_000  # bytes read of what a server wrote to stderr, to quote the end of it
MAX_BLOCKS = 1_000  # content blocks of a result
MAX_IMAGES = 20  # images of a result: some providers reject a request that has more than 100
MAX_TOOLS = 1_000  # tools of a server
MAX_DEFINITION = 200_000  # bytes of a tool's definition as JSON
NEWEST = "2026-07-28"  # the first version whose results may be questions
HOW_TO_ASK = "a tool_class like AskingTool: see examples/recipes/ask_user.py"
LIST_PAUSE = 0.1  # seconds before a changed list is read: some servers announce changes endlessly
STOP_SECONDS = 1.5  # between the end of input, a signal, and the next signal
IMAGE_TYPES = "image/png", "image/jpeg", "image/gif", "image/webp"  # that models accept
MAX_RESULT = 5_000_000  # characters of an image in base64: providers reject longer ones

# the HTTP statuses with which the server refused requests of a call, in the context of the call
REFUSALS = ContextVar[list[int]]("REFUSALS")


@dataclass(eq=False)
class MCPError(Exception):
    """A server can't be used. `stderr` is the end of what it wrote to standard error."""

    server: str
    reason: str
    stderr: str

    def __str__(self) -> str:
        return f"MCP server {self.server!r}: {self.reason}; stderr: {self.stderr or 'empty'}"


# ---- configuration

# Keys of other programs, and our settings for them. "" means that the key has no effect, because
# `Approval` decides which tools need approval. Sources: what these programs document about MCP.
OTHER_NAMES = {
    "serverUrl": "url",  # Windsurf
    "httpUrl": "url",  # Gemini CLI
    "includeTools": "include",  # Gemini CLI
    "excludeTools": "exclude",  # Gemini CLI
    "disabledTools": "exclude",  # Kiro, Roo Code, Windsurf
    "autoApprove": "",  # Cline, Kiro
    "alwaysAllow": "",  # Roo Code
    "trust": "",  # Gemini CLI
    "gallery": "",  # VS Code
    "version": "",  # VS Code
}
OTHER_NAMES_OF_A_FILE = {
    "servers": "mcpServers",  # VS Code
    "inputs": "",  # VS Code
    "$schema": "",  # editors
}


class MCPConfig(StrictConfig):
    """How to reach a server: `command`, `args`, `env`, `cwd`, or `url`, `headers`, `type="sse"`.

    include, exclude: patterns (`read_*`) for the names of tools, without the server's prefix.
    enabled, disabled: a server starts only if it's enabled and not disabled.
    timeout: how many seconds a call may take, at most 3,600. Claude Code and Gemini CLI count
        milliseconds: write 60 instead of 60000.
    start_timeout: how many seconds the start may take, with a download by `npx -y` or `uvx`.
    elicitation: whether the server may ask the user. You also need a `tool_class` that answers,
        such as `AskingTool` of the recipe ask_user.py. Only MCP 2026-07-28 has such questions,
        so this version is tried first, and some older servers exit then.
    trust_hints: whether to believe a server which says that a tool is `read_only`. `Approval` then
        runs the tool and asks nobody.

    Keys of other programs are accepted: see `OTHER_NAMES`. An unknown key is an error, and so are
    two keys for one setting.
    """

    other_names = OTHER_NAMES

    command: str = ""
    args: Sequence[str] = ()
    env: Mapping[str, str] = {}
    cwd: str | None = None
    url: str = ""
    headers: Mapping[str, str] = {}
    type: str = Field("", pattern="^(|stdio|local|sse|http|streamable[-_]?[Hh]ttp)$")
    include: Sequence[str] = ("*",)
    exclude: Sequence[str] = ()
    enabled: bool = True
    disabled: bool = False
    timeout: float = Field(60, gt=0, le=3600)
    start_timeout: float = Field(60, gt=0)
    trust_hints: bool = False
    elicitation: bool = False


class _File(StrictConfig):
    other_names = OTHER_NAMES_OF_A_FILE

    mcpServers: dict[str, MCPConfig]


# ---- tools


class MCPTool(Tool):
    """A tool of a server, named `server__tool`. An invalid name is changed, and ends with a hash.

    elicitation_callback: as in the package's client, for servers with the setting `elicitation`.
    """

    elicitation_callback: Any = None

    def __init__(self, server: MCPServer, definition: Any) -> None:
        name = f"{server.name}__{definition.name}"
        # Gemini and Kimi refuse each request that has a name which begins with a digit. Sources:
        # https://github.com/NoeFabris/opencode-antigravity-auth/pull/280,
        # https://github.com/MoonshotAI/kimi-cli/issues/2531
        legal = re.sub("^(?![A-Za-z])", "mcp_", re.sub("[^A-Za-z0-9_-]", "_", name))[:64]
        if legal != name:
            legal = f"{legal[:55]}_{sha256(name.encode()).hexdigest()[:8]}"
        hints = server.config.trust_hints and definition.annotations
        schema: JSON = {"properties": {}, **definition.input_schema}
        properties: JSON = schema["properties"]
        # Anthropic refuses each request that has other names of properties. Source:
        # https://github.com/anthropics/claude-code/issues/34771
        legal_names = {own: re.sub("[^A-Za-z0-9_.-]", "_", own)[:64] for own in properties}
        schema["properties"] = {legal_names[own]: value for own, value in properties.items()}
        if "required" in schema:
            schema["required"] = [legal_names.get(own, own) for own in schema["required"]]
        super().__init__(
            legal,
            definition.description or "",
            schema,
            timeout=server.config.timeout,
            read_only=bool(hints and hints.read_only_hint),
        )
        self.server = server
        self.own_name = definition.name
        self.own_names = {legal: own for own, legal in legal_names.items()}

    def validate(self, arguments: str) -> JSON:
        args = super().validate(arguments)
        for legal, own in self.own_names.items():
            if own in args and own != legal:  # a rule about `legal` wouldn't see it
                raise ToolError(f"There's no argument {own!r}: write {legal!r}.")
        return args

    async def execute(self, args: JSON, overrides: Overrides = NO_OVERRIDES) -> object:
        server = self.server
        args = {self.own_names.get(name, name): value for name, value in args.items()}
        try:
            result = await server.send(lambda: self.request(args, overrides))
        except (Stop, ToolError, MCPError):
            raise
        except Exception as error:
            failed = server.error or server.explain(error)
            reason = f"{failed.reason}; the call may have had effects"
            if "elicitation" in reason.lower() and not server.config.elicitation:
                reason += f". To let it ask the user, set elicitation=True and {HOW_TO_ASK}"
            raise MCPError(server.name, reason, failed.stderr) from None
        parts = [as_part(block) for block in result.content]
        images = [at for at, part in enumerate(parts) if isinstance(part, ImagePart)]
        for at in images[MAX_IMAGES:]:
            parts[at] = TextPart(f"[Image omitted: the result has more than {MAX_IMAGES}.]")
        if result.is_error:
            raise ToolError(
                mask(text_of(parts), server.secrets) or "The server gave no reason for the failure."
            )
        return parts or result.structured_content

    async def request(self, args: JSON, overrides: Overrides) -> Any:
        """Send a call, and return the server's result. If the server asks something, this raises.

        To answer questions, override this method and `elicitation_callback`.
        """
        return await self.server.client.call_tool(self.own_name, args)


def as_part(block: Any) -> TextPart | ImagePart:
    """Turn a content block into text or an image; anything else becomes JSON."""
    block = getattr(block, "resource", block)
    data = getattr(block, "data", getattr(block, "blob", ""))
    if 0 < len(data) <= MAX_RESULT and block.mime_type in IMAGE_TYPES:
        with suppress(ValueError):  # if it isn't base64
            return ImagePart(data=b64decode(data), media_type=block.mime_type)
    if hasattr(block, "text"):
        return TextPart(block.text)
    return TextPart(block.model_dump_json(exclude={"data", "blob"}, exclude_none=True))


# ---- servers


class MCPServer:
    """A server and the connection to it. One task owns the connection; any task may use it.

    tools: what the server offers, as of the newest connection.
    error: why the server didn't start, or the connection ended; None while it's connected. The next
        call connects again; if the server never started, it has no tools: `await server.connect()`.
    client: the client of the package `mcp`, for resources and prompts: see `send`.
    """

    tools: Sequence[Tool] = ()
    error: MCPError | None = None
    client: Any = None
    _is_closed: bool = False
    end: Exception | None = None  # why the newest connection ended, if that's known
    refusal: int = 0  # the HTTP status of the newest POST request, or 0 if it succeeded
    stderr: Any  # a temporary file; its type differs on Windows

    def __init__(
        self,
        name: str,
        config: MCPConfig,
        secrets: Secrets,
        auth: Any = None,
        tool_class: type[MCPTool] = MCPTool,
    ) -> None:
        if not (config.command or config.url):
            raise ValueError(f"the server {name!r} needs a command or a url")
        self.name = name
        self.config = config
        self.auth = auth
        self.tool_class = tool_class
        if config.elicitation and not tool_class.elicitation_callback:
            raise ValueError(f"the server {name!r}: elicitation needs {HOW_TO_ASK}")
        self.wanted = asyncio.Event()  # a call waits for a new connection
        self.started = asyncio.Event()  # the start of the newest connection succeeded or failed
        self.changed = asyncio.Event()  # the tools have changed, or the connection is lost
        # all but the host of the url is secret
        written = [*config.env.values(), *config.headers.values(), *texts_in_url(config.url)]
        texts = " ".join(written).split()
        self.secrets = Secrets({*secrets, *texts, *map(unquote, texts)})

    async def own(self) -> None:
        """Open and close connections in one task, because the package requires it."""
        with TemporaryFile() as self.stderr:
            try:
                while not self._is_closed:
                    self.wanted.clear()
                    try:
                        await self._connect()
                    except Exception as error:
                        if not self.wanted.is_set():
                            self.error = self.explain(self.end or error)
                            self.started.set()
                    await self.wanted.wait()
            finally:
                self._is_closed = True  # also if somebody else has cancelled this task
                self.error = self.explain(ConnectionError("the connection was closed"))
                self.started.set()

    def close(self) -> None:
        """Let `own` end, also if the package suppresses its cancellation."""
        self._is_closed = True
        self.wanted.set()

    async def connect(self) -> None:
        """Wait until the server is connected. If the connection was lost, connect again.

        Calls that wait at the same time share one attempt. Raises MCPError if it fails.
        """
        if self.error and not self._is_closed:
            self.error = None
            self.started.clear()
            self.wanted.set()
        await self.started.wait()
        if self.error:
            raise self.error

    async def send(self, request: Callable[[], Awaitable[Any]]) -> Any:
        """Connect if necessary, call `request`, and return what it returns. It uses `client`.

        If the server refuses the request because it has forgotten the session, this connects again
        and calls `request` once more. For resources and prompts; tools do it themselves:

            found = await server.send(lambda: server.client.list_resources())
        """
        await self.connect()
        client = self.client
        refused = list[int]()
        REFUSALS.set(refused)
        try:
            return await request()
        except Exception:
            if not refused or await self._knows(client):
                raise
        self.lose(ConnectionError("the server has forgotten the session"))
        await self.connect()
        return await request()

    async def _knows(self, client: Any) -> bool:
        """Whether the server still knows the session: it may have refused only the request."""
        try:
            await client.list_tools()
        except Exception:
            return False
        return True

    def lose(self, reason: Exception | None = None) -> None:
        """Note that the connection is lost, before the owner closes it and the calls in it fail."""
        self.end = self.end or reason
        if self.started.is_set():
            self.error = self.explain(self.end or ConnectionError("the connection has ended"))
        self.changed.set()

    async def _connect(self) -> None:
        """Connect with the older protocol, which most servers use, or else with the newest.

        If you ask for the versions first, some older servers exit.
        """
        if self.config.elicitation:
            await self._connect_in("auto")
            return
        try:
            await self._connect_in("legacy")
        except Exception as error:
            if not refuses_older(error):
                raise
            await self._connect_in("auto")

    async def _connect_in(self, mode: str) -> None:
        """Connect, and stay connected until the task is cancelled."""
        try:
            import httpx2
            from mcp.client import sse, streamable_http
        except ImportError:
            raise ImportError("MCP needs the package mcp: pip install 'mcp>=2.3,<3'") from None
        config = self.config
        address = httpx2.URL(config.url)
        auth = self.auth
        if address.userinfo:
            auth = httpx2.BasicAuth(address.username, address.password)
        # no password, because the package writes the url into errors and logs
        url = str(address.copy_with(userinfo=b""))
        hooks: Any = {"response": [self._note_response]}
        new_client: Any = partial(httpx2.AsyncClient, event_hooks=hooks)
        http = new_client(headers=config.headers, auth=auth, timeout=config.timeout)
        http.event_hooks["request"].append(keep_open)
        if config.command:
            transport: Any = connect_stdio(self)
        elif config.type == "sse":
            transport = sse.sse_client(
                url, dict(config.headers), auth=auth, httpx_client_factory=new_client
            )
        else:
            transport = streamable_http.streamable_http_client(
                url, http_client=http, max_sse_event_size=MAX_MESSAGE
            )
        start = asyncio.timeout(config.start_timeout)
        try:
            async with start, http:
                await self._keep_open(transport, start, mode)
        except TimeoutError:
            if start.expired():
                raise TimeoutError(
                    f"it didn't start within {config.start_timeout:g} seconds: set start_timeout"
                ) from None
            raise

    async def _keep_open(self, transport: Any, start: asyncio.Timeout, mode: str) -> None:
        """Connect, and list the tools again after each change, until the connection ends."""
        import mcp

        self.end = None

        async def on_message(message: object) -> None:
            if isinstance(message, mcp.types.ToolListChangedNotification):
                self.changed.set()

        config = self.config
        elicitation_callback = None
        if config.elicitation:
            elicitation_callback = self.tool_class.elicitation_callback
        client = mcp.Client(
            Messages(self).of(transport),
            mode=mode,
            # longer than the timeouts of a call and of the start, which have better messages
            read_timeout_seconds=config.timeout + config.start_timeout,
            message_handler=on_message,
            elicitation_callback=elicitation_callback,
            input_required_max_rounds=sys.maxsize,  # the timeout of the call limits the rounds
        )
        async with client as self.client:
            is_newest = client.protocol_version >= NEWEST
            subscription: Any = nullcontext()  # older servers announce changes unasked
            if is_newest and getattr(client.server_capabilities.tools, "list_changed", False):
                subscription = client.listen(tools_list_changed=True)
            async with subscription:
                try:
                    while not (self.error or self.wanted.is_set()):  # until the connection is lost
                        self.changed.clear()
                        self.tools = await self._list_tools()
                        start.reschedule(None)
                        self.started.set()
                        await self.changed.wait()
                        await asyncio.sleep(LIST_PAUSE)
                    raise ConnectionError("the connection has ended")
                finally:
                    self.lose()

    async def _list_tools(self) -> Sequence[Tool]:
        """Get the tools page by page, and keep those that the configuration includes."""
        page: Any = await self.client.list_tools()
        definitions = [*page.tools]
        while page.next_cursor and page.tools and len(definitions) < MAX_TOOLS:
            page = await self.client.list_tools(cursor=page.next_cursor)
            definitions += page.tools
        tools = {
            definition.name: self.tool_class(self, definition)
            for definition in definitions
            if self._includes(definition.name)
        }
        return [*tools.values()][:MAX_TOOLS]

    def _includes(self, name: str) -> bool:
        matches = partial(fnmatchcase, name)
        return any(map(matches, self.config.include)) and not any(map(matches, self.config.exclude))

    def explain(self, error: Exception) -> MCPError:
        """Make an MCPError of an exception, with the end of the server's stderr."""
        end = self.stderr.seek(0, 2)
        self.stderr.seek(max(0, end - MAX_STDERR))
        hide = partial(mask, secrets=self.secrets)
        written = hide(self.stderr.read().decode(errors="replace"))[-500:].strip()
        reason = describe_error(error, hide)
        if self.refusal and not self.started.is_set():  # the package doesn't report the status
            reason += f" (HTTP status {self.refusal})"
        return MCPError(self.name, reason, written)

    async def _note_response(self, response: Any) -> None:
        """Note whether the server refuses a request, and limit the size of its reply."""
        request = response.request
        if request.method == "POST":
            self.refusal = response.status_code if response.is_error else 0
        # 404 by the standard; servers with the package for TypeScript often send 400
        if "mcp-session-id" in request.headers and response.status_code in (400, 404):
            REFUSALS.get([]).append(response.status_code)
        if not response.headers.get("content-type", "").startswith("text/event-stream"):
            response.aiter_bytes = partial(limited, response.aiter_bytes)


async def keep_open(request: Any) -> None:
    """Keep a stream of changes open while it's idle. The package gives up after two timeouts."""
    if request.method == "GET" or request.headers.get("mcp-method") == "subscriptions/listen":
        request.extensions.get("timeout", {})["read"] = None


async def limited(pieces: Callable[[], AsyncGenerator[bytes]]) -> AsyncGenerator[bytes]:
    """The body of a reply, decompressed. Raises StreamError if it's too long."""
    from httpx2 import StreamError  # which the package reports as the error of the call

    size = 0
    async with aclosing(pieces()) as body:
        async for piece in body:
            size += len(piece)
            if size > MAX_MESSAGE:
                raise StreamError(f"the reply is longer than {MAX_MESSAGE:,} bytes")
            yield piece


def refuses_older(error: BaseException) -> bool:
    """Whether a server only knows the newest protocol, which has no `initialize`."""
    # "unsupported version" of MCP 2026-07-28, or "no such method" of JSON-RPC
    refused = getattr(error, "code", None) in (-32022, -32601)
    return refused or any(map(refuses_older, getattr(error, "exceptions", ())))


# ---- how large a message may be, checked before the package makes objects of it


class Messages:
    """The stream of a server's messages. Lists in them are cut off at a limit."""

    def __init__(self, server: MCPServer) -> None:
        self.server = server
        self.stream: Any = None

    @asynccontextmanager
    async def of(self, transport: Any) -> AsyncGenerator[tuple[Any, Any]]:
        """Open a transport, and yield this stream for reading and the transport's for writing."""
        async with transport as (self.stream, writing):
            yield self, writing

    async def __aenter__(self) -> Messages:
        await self.stream.__aenter__()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.stream.__aexit__(*error)

    async def __aiter__(self) -> AsyncGenerator[object]:
        end = None
        async for item in self.stream:
            if isinstance(item, Exception):
                end = item
            elif isinstance(result := getattr(item.message, "result", None), dict):
                await bound_lists(self.server.name, cast(JSON, result))
            yield item
        self.server.lose(end)


async def bound_lists(server: str, result: JSON) -> None:
    """Cut off the lists in a server's result, and drop the tools that can't be used."""
    content: list[object] | None = result.get("content")
    definitions: list[JSON] | None = result.get("tools")
    if isinstance(content, list) and (omitted := len(content) - MAX_BLOCKS) > 0:
        note = f"[{omitted:,} more parts omitted: the result is too large.]"
        content[MAX_BLOCKS:] = [{"type": "text", "text": note}]
    if not isinstance(definitions, list):
        return
    result["tools"] = usable = list[object]()
    for definition in definitions[:MAX_TOOLS]:
        await asyncio.sleep(0)  # lets other tasks run while the list is long
        try:
            usable.append(checked_tool(definition))
        except Exception as error:  # from pydantic, or a RecursionError
            reason = describe_error(error)
            logger.warning("MCP server %r: skipped tool %.100r: %s", server, definition, reason)


def checked_tool(definition: JSON) -> JSON:
    """Check a tool's definition, and take the null keywords out of its schema.

    Raises an exception if the definition is too large, or the schema can't be used.
    """
    from mcp.types import methods

    if len(to_json(definition)) > MAX_DEFINITION:
        raise ValueError(f"the definition has more than {MAX_DEFINITION:,} bytes")
    whole = json.loads(json.dumps(definition["inputSchema"]), object_hook=completed)
    schema = {key: value for key, value in whole.items() if value is not None}
    definition = without_unions(definition | {"inputSchema": schema})
    schema = definition["inputSchema"]
    methods.validate_server_result("tools/list", "2025-11-25", {"tools": [definition]})
    TypeAdapter(type_of(schema))
    return definition


def completed(schema: JSON) -> JSON:
    """Give an array one schema for all its items, whether its schema has none or one for each.

    OpenAI refuses each request that has an array with no schema for its items, and both OpenAI and
    Anthropic refuse a list of schemas, which Zod 3 writes for a tuple. Sources:
    https://github.com/ogx-ai/ogx/pull/3602, https://github.com/hyperdxio/hyperdx/pull/2925

    Required properties get a schema, too: FastMCP before 3.2 leaves out that of `title` beside a
    property `type`, and Gemini and Kimi then refuse each request. Sources:
    https://github.com/PrefectHQ/fastmcp/issues/3576,
    https://github.com/google-gemini/gemini-cli/issues/13705,
    https://github.com/MoonshotAI/kimi-code/issues/1610
    """
    required, properties = schema.get("required"), schema.get("properties")
    # otherwise they're properties with these names
    if isinstance(required, list) and isinstance(properties, dict):
        for name in cast(list[str], required):
            cast(JSON, properties).setdefault(name, {})
    if "array" in (schema.get("type") or ()):
        items = schema.setdefault("items", {})
        if isinstance(items, list):
            schema["items"] = {"anyOf": items} if items else {}
    return schema


def without_unions(definition: JSON) -> JSON:
    """Move the alternatives of a schema as a whole into the description, and keep their properties.

    OpenAI and Anthropic refuse each request that has such a schema. Source:
    https://github.com/makenotion/notion-mcp-server/issues/340
    """
    schema = {**definition["inputSchema"]}
    unions = {key: schema.pop(key) for key in ("anyOf", "oneOf", "allOf") if key in schema}
    if not unions:
        return definition
    found = defaultdict[str, list[object]](list)  # the schemas of a property
    for choice in chain.from_iterable(unions.values()):
        for name, value in choice.get("properties", {}).items():
            found[name].append(value)
    merged = {name: {"anyOf": schemas} for name, schemas in found.items()}
    schema["properties"] = merged | schema.get("properties", {})
    rule = f"The arguments must match this JSON schema: {json.dumps(unions)}"
    about = "\n\n".join(filter(None, (definition.get("description"), rule)))
    return definition | {"inputSchema": schema, "description": about}


# ---- the transport over stdio


@asynccontextmanager
async def connect_stdio(server: MCPServer) -> AsyncGenerator[tuple[Any, Any]]:
    """Start a server, yield its message streams, and stop its processes at the end.

    The package has a transport of its own, but that accepts messages of any length.
    """
    import anyio
    from mcp.client.stdio import get_default_environment

    config = server.config
    env = get_default_environment() | dict(config.env)
    command = shutil.which(config.command, path=env.get("PATH"))  # on Windows, npx is npx.cmd
    process = await asyncio.create_subprocess_exec(
        command or config.command,
        *config.args,
        env=env,
        cwd=config.cwd,
        stdin=PIPE,
        stdout=PIPE,
        stderr=server.stderr,
        limit=MAX_MESSAGE,
        start_new_session=True,
    )
    received, read_stream = anyio.create_memory_object_stream[Any]()
    write_stream, outgoing = anyio.create_memory_object_stream[Any]()
    tasks = [
        asyncio.create_task(receive_lines(process.stdout, received)),
        asyncio.create_task(send_lines(process.stdin, outgoing)),
    ]
    try:
        yield read_stream, write_stream
    finally:
        # a cancellation by anyio or `cancel_and_wait` must not leave a process running
        with anyio.CancelScope(shield=True), shield_from_cancel():
            await stop_process(process)
            for stream in (received, read_stream, write_stream, outgoing):
                stream.close()
            await asyncio.wait(tasks, timeout=1)  # until the end of the output closes the pipe
            await cancel_and_wait(tasks, 1)


async def receive_lines(reader: Any, received: Any) -> None:
    """Pass on one message per line, until a line is too long."""
    import anyio
    from mcp.shared.message import SessionMessage

    with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
        async with received:
            try:
                async for line in reader:
                    if message := read_message(line):
                        await received.send(SessionMessage(message))
            except ValueError:
                await received.send(ValueError(f"a message is longer than {MAX_MESSAGE:,} bytes"))
    while await reader.read(MAX_MESSAGE):
        pass  # discard the remaining output until the server closes the pipe


def read_message(line: bytes) -> Any:
    """Read a message; None if the line isn't one, because some servers also print log lines."""
    from mcp.types import jsonrpc_message_adapter

    if b'"jsonrpc"' not in line:
        return None
    text = line.decode(errors="replace")
    try:
        try:
            data = from_json(text)
        except ValueError:  # half an emoji, where a server has cut off a text?
            data = from_json(clean_text(json.dumps(json.loads(text), ensure_ascii=False)))
        return jsonrpc_message_adapter.validate_python(data)
    except (ValueError, RecursionError) as error:
        logger.warning("skipped an unreadable line of an MCP server: %s", describe_error(error))
        return None


async def send_lines(writer: Any, outgoing: Any) -> None:
    """Write one message per line."""
    with suppress(OSError):
        async with outgoing:
            async for item in outgoing:
                text = item.message.model_dump_json(by_alias=True, exclude_unset=True)
                writer.write(f"{text}\n".encode())
                await writer.drain()


async def stop_process(process: asyncio.subprocess.Process) -> None:
    """Close a server's standard input. If it doesn't stop, terminate it, then kill it."""
    if process.stdin:
        process.stdin.close()
    for force in (False, True, True):
        with suppress(TimeoutError):
            await asyncio.wait_for(process.wait(), STOP_SECONDS)
            break
        kill_group(process.pid, force=force)
    kill_group(process.pid)  # its child processes


# ---- how to use servers


class MCPTools(Loop):
    """Offers what the servers offer now: if one changes its list, the next turn has the new one.

    mcp_servers: the servers that `mcp_servers` yields.
    """

    mcp_servers: Sequence[MCPServer] = ()

    def toolset(self) -> Sequence[Tool]:
        tools = list(super().toolset())
        for server in self.mcp_servers:
            tools += server.tools
        return tools


@asynccontextmanager
async def mcp_servers(
    path: str | Path,
    text: str = "",
    auth: Mapping[str, object] = {},
    *,
    tool_class: type[MCPTool] = MCPTool,
) -> AsyncGenerator[list[MCPServer]]:
    """Start the servers of a JSON file: `{"mcpServers": {"git": {"command": "mcp-server-git"}}}`.

    They start at the same time. If a server doesn't start, it has an `error` and no tools. Raises
    ValueError, with the position, if the file isn't valid.

    text: what to read instead of the file.
    auth: an `httpx2.Auth` by the name of the server, for servers that want a login.
    tool_class: the class of the tools, such as `AskingTool` of the recipe ask_user.py.
    """
    try:
        text, secrets = fill_in(text or Path(path).read_text("utf-8-sig"))
        servers = [
            MCPServer(name, config, secrets, auth.get(name), tool_class)
            for name, config in _File.model_validate_json(text).mcpServers.items()
            if config.enabled and not config.disabled
        ]
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None
    owners = [asyncio.ensure_future(server.own()) for server in servers]
    try:
        for server in servers:
            await server.started.wait()
        yield servers
    finally:
        for server in servers:
            server.close()
        # longer than `stop_process`, which takes up to three times STOP_SECONDS
        await cancel_and_wait(owners, 5)


@asynccontextmanager
async def mcp_tools(
    target: str,
    *args: str,
    name: str = "mcp",
    auth: object = None,
    tool_class: type[MCPTool] = MCPTool,
    **config: object,
) -> AsyncGenerator[Sequence[Tool]]:
    """Start one server (a command and its arguments, or a URL) and yield its tools.

    config: more settings of `MCPConfig`.
    name: what the names of the tools begin with, before `__`. Give each server another one.
    auth: an `httpx2.Auth`, if the server wants a login.
    tool_class: the class of the tools.

    Raises MCPError if the server doesn't start.
    """
    if "://" in target:
        config["url"] = target
    else:
        config |= {"command": target, "args": args}
    text = json.dumps({"mcpServers": {name: config}})
    async with mcp_servers("mcp_tools", text, {name: auth}, tool_class=tool_class) as [server]:
        if server.error:
            raise server.error
        yield server.tools
