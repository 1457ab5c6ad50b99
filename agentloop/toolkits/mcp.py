"""Tools of MCP servers, and tools as an MCP server, over the official package `mcp`.

Copy with: loop.py, results.py, tools.py, waiting.py and what they name.

    async with mcp_tools("npx", "-y", "@modelcontextprotocol/server-everything") as tools:
        await Agent(llm=llm, tools=tools).run("What can you do?")

    async with mcp_servers("mcp.json") as servers:
        tools = [tool for server in servers for tool in server.tools]
        failed = [server.error for server in servers if server.error]

A server gets the environment variables that it is given, and of this process's own only HOME, PATH
and the like. It has 10 seconds to start, and its processes end with it. Once it has died, its tools
answer with an error.
"""

from __future__ import annotations

import asyncio
import os
import re
from base64 import b64decode
from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from fnmatch import fnmatchcase
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryFile
from typing import TYPE_CHECKING, Annotated, Any, cast
from urllib.parse import parse_qsl

from pydantic import AfterValidator, BaseModel, Field
from pydantic_core import to_json

from ..depends import Overrides
from ..errors import ToolError
from ..loop import Loop
from ..messages import FilePart, ImagePart, Part, TextPart, text_of
from ..results import as_text, describe_error
from ..tools import NO_OVERRIDES, Tool, find_tool
from ..waiting import cancel_and_wait, within

if TYPE_CHECKING:
    import mcp

ILLEGAL = "[^A-Za-z0-9_-]"  # in the name of a tool
START_SECONDS = 10
STOP_SECONDS = 8  # the package waits 2 s for an exit, terminates, waits 2 s more, and kills
STDERR_TAIL = 500  # bytes


@dataclass(eq=False)
class MCPError(Exception):
    """A server cannot be used. `stderr` is the end of what it wrote there."""

    server: str
    reason: str
    stderr: str

    def __str__(self) -> str:
        return f"MCP server {self.server!r}: {self.reason}; stderr: {self.stderr or 'empty'}"


def in_environment(text: str) -> str:
    """The text with each `${NAME}` replaced by the environment variable."""

    def value(place: re.Match[str]) -> str:
        if place[1] not in os.environ:
            raise ValueError(f"set {place[1]} in the environment, or remove {place[0]}")
        return os.environ[place[1]]

    return re.sub(r"\$\{(\w+)\}", value, text)


Filled = Annotated[str, AfterValidator(in_environment)]


class MCPConfig(BaseModel, hide_input_in_errors=True):
    """How to reach a server: `command`, `args`, `env`, `cwd`, or `url`, `headers`, `type="sse"`.

    `${NAME}` in them is the environment variable.

    include, exclude: patterns (`read_*`) for the server's own names of its tools.
    timeout: seconds that one call may take.
    """

    command: Filled = ""
    args: list[Filled] = Field([], repr=False)
    env: dict[str, Filled] = Field({}, repr=False)
    cwd: str | None = None
    url: Filled = Field("", repr=False)
    headers: dict[str, Filled] = Field({}, repr=False)
    type: str = ""
    include: list[str] = ["*"]
    exclude: list[str] = []
    enabled: bool = True
    timeout: float = 60

    def offers(self, name: str) -> bool:
        """Whether a tool of the server is included, and not excluded."""
        included, excluded = (
            any(fnmatchcase(name, pattern) for pattern in patterns)
            for patterns in (self.include, self.exclude)
        )
        return included and not excluded


class MCPServer:
    """A connection to a server: `open_servers` opens it. One task owns it, any task may use it.

    `tools` is made anew when the server's list changes: `MCPTools` looks at it in each turn.
    `client` is the package's own, for resources and prompts.
    """

    client: mcp.Client
    tools: Sequence[Tool] = ()
    error: MCPError | None = None

    def __init__(self, config: MCPConfig, name: str = "") -> None:
        if bool(config.command) == bool(config.url):
            raise ValueError(f"MCP server {name!r} needs either command or url, and not both")
        self.config, self.name, self.started = config, name, asyncio.Event()

    async def own(self) -> None:
        """Open the connection, keep it and close it: in one task, as the package demands."""
        with TemporaryFile() as self._stderr:
            try:
                await self._connect()
            except Exception as error:
                self.error = self.explain(error)
            finally:
                self.started.set()

    async def _connect(self) -> None:
        try:
            import httpx2
            import mcp
            from mcp.client import sse, stdio, streamable_http
        except ImportError as error:
            raise ImportError("its package is missing: pip install 'mcp>=2,<3'") from error
        changed, config = asyncio.Event(), self.config

        async def heed(message: object) -> None:
            if isinstance(message, mcp.types.ToolListChangedNotification):
                changed.set()

        async with asyncio.timeout(START_SECONDS) as start, AsyncExitStack() as stack:
            if config.command:
                settings = config.model_dump() | {"encoding_error_handler": "replace"}
                server = mcp.StdioServerParameters.model_validate(settings)
                transport: Any = stdio.stdio_client(server, cast(Any, self._stderr))
            elif config.type == "sse":
                transport = sse.sse_client(config.url, config.headers)
            else:
                http = await stack.enter_async_context(
                    httpx2.AsyncClient(headers=config.headers, timeout=config.timeout)
                )
                transport = streamable_http.streamable_http_client(config.url, http_client=http)
            self.client = client = await stack.enter_async_context(
                mcp.Client(transport, message_handler=heed, cache=None)
            )
            own = getattr(client.server_info, "name", "mcp")
            self.name = re.sub(ILLEGAL, "_", self.name or own)
            can = client.server_capabilities.tools
            # older servers tell unasked
            if client.protocol_version >= "2026-07-28" and can and can.list_changed:
                await stack.enter_async_context(client.listen(tools_list_changed=True))
            while True:
                page = await client.list_tools()
                found = page.tools
                while page.next_cursor:
                    page = await client.list_tools(cursor=page.next_cursor)
                    found += page.tools
                self.tools = [MCPTool(self, each) for each in found if config.offers(each.name)]
                start.reschedule(None)
                self.started.set()
                await changed.wait()
                changed.clear()

    def explain(self, error: Exception) -> MCPError:
        """What went wrong, without the secrets that the server was given."""
        config, file, wrote = self.config, self._stderr, b""
        if not file.closed:
            file.seek(0)
            wrote = file.read()[-STDERR_TAIL:]
        said = [describe_error(error), wrote.decode(errors="replace").strip()]
        given = [*config.env.values(), *config.headers.values()]
        url, _, query = config.url.partition("?")
        given += [each.split()[-1] for each in given if each.split()]  # of "Bearer ..."
        for secret in filter(None, [*given, query, *(value for _, value in parse_qsl(query))]):
            said = [text.replace(secret, "***") for text in said]
        return MCPError(self.name or config.command or url, *said)


class MCPTool(Tool):
    """A tool of a server. Its name is `server__tool`, with a hash where that had to be changed."""

    def __init__(self, server: MCPServer, definition: mcp.types.Tool) -> None:
        name = f"{server.name}__{definition.name}"
        legal = re.sub(ILLEGAL, "_", name)
        if legal != name or len(name) > 64:
            legal = f"{legal[:55]}_{sha256(name.encode()).hexdigest()[:8]}"
        hints = definition.annotations
        super().__init__(
            legal,
            definition.description or "",
            {"properties": {}, **definition.input_schema},
            timeout=server.config.timeout,
            read_only=bool(hints and hints.read_only_hint),
        )
        self.server, self.own_name = server, definition.name

    async def execute(self, args: dict[str, Any], overrides: Overrides = NO_OVERRIDES) -> Any:
        try:
            result = await self.server.client.call_tool(self.own_name, args)
        except Exception as error:
            raise self.server.explain(error) from None
        parts = [_as_part(block) for block in result.content]
        if not parts and result.structured_content is not None:
            parts = [TextPart(to_json(result.structured_content).decode())]
        text = text_of(parts)
        if result.is_error:
            raise ToolError(text or "the tool failed and did not say why")
        return text if all(isinstance(part, TextPart) for part in parts) else parts


class MCPTools(Loop):
    """Offers the tools of servers as they are now: a changed list counts from the next turn on.

    mcp_servers: open servers.
    """

    mcp_servers: Sequence[MCPServer] = ()

    def toolset(self) -> Sequence[Tool]:
        return [*super().toolset(), *(t for server in self.mcp_servers for t in server.tools)]


@asynccontextmanager
async def open_servers(*servers: MCPServer) -> AsyncGenerator[None]:
    """Starts servers side by side, and stops them. One that does not start has an `error`."""
    owners = [asyncio.ensure_future(server.own()) for server in servers]
    try:
        for server in servers:
            await server.started.wait()
        yield
    finally:
        await cancel_and_wait(owners, STOP_SECONDS)


@asynccontextmanager
async def mcp_tools(
    target: str, *args: str, name: str = "", **config: Any
) -> AsyncGenerator[Sequence[Tool]]:
    """The tools of one server: a command and its arguments, or a URL; `config` as in MCPConfig.

    The name before `__` is the server's own unless `name` is given. Raises MCPError if the server
    does not start.
    """
    place = {"url": target} if "://" in target else {"command": target, "args": args}
    server = MCPServer(MCPConfig.model_validate({**place, **config}), name)
    async with open_servers(server):
        if server.error:
            raise server.error
        yield server.tools


@asynccontextmanager
async def mcp_servers(path: str | Path) -> AsyncGenerator[list[MCPServer]]:
    """The servers of a JSON file: `{"mcpServers": {"git": {"command": "mcp-server-git"}}}`.

    Servers start side by side. One that does not start has an `error`, and no tools. Raises
    ValueError with the place if the file is wrong.
    """

    try:
        configs = _File.model_validate_json(Path(path).read_bytes()).mcpServers
        servers = [MCPServer(config, name) for name, config in configs.items() if config.enabled]
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None
    async with open_servers(*servers):
        yield servers


class _File(BaseModel, hide_input_in_errors=True):
    mcpServers: dict[str, MCPConfig]


def serve(tools: Sequence[Tool], name: str = "agentloop", **options: Any) -> None:
    """Offer tools as an MCP server over stdin and stdout: `serve([add])`. They print nothing there.

    options: of the package's `MCPServer.run`, such as `transport="streamable-http", port=8000`.
    """
    from mcp import server, types

    class Served(server.MCPServer[Any]):
        async def list_tools(self) -> list[types.Tool]:
            return [
                types.Tool(
                    name=tool.name,
                    description=tool.description,
                    input_schema=tool.parameters,
                    annotations=types.ToolAnnotations(read_only_hint=tool.read_only),
                )
                for tool in tools
            ]

        async def call_tool(
            self, name: str, arguments: dict[str, Any], context: Any = None
        ) -> types.CallToolResult:
            tool = find_tool(name, tools)
            given = tool.validate(to_json(arguments).decode())
            value = await within(tool.timeout, tool.execute(given), grace=1)
            return types.CallToolResult(content=[types.TextContent(text=as_text(value))])

    Served(name).run(**options)


def _as_part(block: Any) -> Part:
    """A content block as a part; `block` may be a resource's content, too."""
    block = getattr(block, "resource", block)
    if hasattr(block, "text"):
        return TextPart(block.text)
    if not (data := getattr(block, "data", None) or getattr(block, "blob", None)):
        return TextPart(f"{block.name}: {block.uri}")  # a link
    kind = block.mime_type or "application/octet-stream"
    attachment = ImagePart if kind.startswith("image/") else FilePart
    return attachment(data=b64decode(data), media_type=kind)
