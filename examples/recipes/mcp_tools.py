"""MCP in both directions: this file serves tools, a resource and a prompt, and an agent uses them.

Use MCP for tools that run in another process or come from a third party. `serve` makes a server of
`@tool` functions. A server may also offer resources (readable data) and prompts (text templates for
particular tasks): `resource_tools` are tools with which the model browses them.

With the argument `serve`, this program is a server for any MCP client; without arguments, an agent
starts it and calls its tools. Requires `pip install 'mcp>=2.3,<3'`.
"""

import asyncio
import json
import sys
from base64 import b64encode
from collections.abc import Sequence
from typing import Any

from mcp import server, types

from agentloop import Agent, ImagePart, Part, ScriptedModel, Tool, call, tool
from agentloop.content import to_content
from agentloop.messages import JSON, text_of
from agentloop.toolkits.mcp import MCPServer, as_part, mcp_servers
from agentloop.tools import find_tool
from agentloop.waiting import wait_for

STOCK = {"tea": 12, "coffee": 0}
MAX_RESULT = 5_000_000  # characters


def server_of(tools: Sequence[Tool], name: str = "agentloop") -> server.MCPServer[object]:
    """Make a server that offers tools. Results are text and images."""

    class Served(server.MCPServer[object]):
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
            self, name: str, arguments: JSON, context: object = None
        ) -> types.CallToolResult:
            tool = find_tool(name, tools)
            work = tool.execute(tool.validate(json.dumps(arguments)))
            content = to_content(await wait_for(work, tool.timeout, grace=1), MAX_RESULT)
            blocks: list[Any] = [types.TextContent(text=text_of(content) or "(no text)")]
            for part in content:
                if isinstance(part, ImagePart) and part.data and part.media_type:
                    data = b64encode(part.data).decode()
                    blocks.append(types.ImageContent(data=data, mime_type=part.media_type))
            return types.CallToolResult(content=blocks)

    return Served(name)


def serve(tools: Sequence[Tool], name: str = "agentloop", **options: Any) -> None:
    """Serve tools over stdin and stdout. The tools must not print.

    options: arguments of `MCPServer.run`, for example `transport="streamable-http", port=8000`.
    """
    server_of(tools, name).run(**options)


def resource_tools(server: MCPServer) -> list[Tool]:
    """Return read-only tools that list and read the resources and prompts of a server.

    They connect again if the connection was lost.
    """

    @tool(name=f"{server.name}__list", read_only=True)
    async def look() -> list[dict[str, Any]]:
        """List the resources with their URIs, and the prompts with their arguments."""
        found = await server.send(lambda: server.client.list_resources())
        items: list[Any] = found.resources
        if server.client.server_capabilities.prompts:
            items += (await server.client.list_prompts()).prompts
        return [item.model_dump(mode="json", exclude_none=True) for item in items]

    @tool(name=f"{server.name}__read", read_only=True)
    async def read(uri: str) -> list[Part]:
        """Read a resource."""
        result = await server.send(lambda: server.client.read_resource(uri))
        return [as_part(item) for item in result.contents]

    @tool(name=f"{server.name}__prompt", read_only=True)
    async def prompt(name: str, arguments: dict[str, str]) -> list[Part]:
        """Return the text of a prompt with its arguments filled in."""
        result = await server.send(lambda: server.client.get_prompt(name, arguments))
        return [as_part(message.content) for message in result.messages]

    return [look, read, prompt]


@tool(read_only=True)
def stock(item: str) -> int:
    """Return the number of items in stock."""
    return STOCK[item]


def serve_the_shop() -> None:
    shop = server_of([stock], "shop")

    @shop.resource("shop://prices", mime_type="application/json")
    def prices() -> str:
        return json.dumps({"tea": 3, "coffee": 4})

    @shop.prompt(description="How to write an offer.")
    def offer(customer: str) -> str:
        return f"Write to {customer} in two sentences, and state each price once."

    shop.run()


async def main() -> None:
    # `trust_hints`: trust this server's statement that a tool is read-only
    shop = {"command": sys.executable, "args": [__file__, "serve"], "trust_hints": True}
    looks = [call("shop__stock", item="tea"), call("shop__list")]
    reads = [
        call("shop__read", uri="shop://prices"),
        call("shop__prompt", name="offer", arguments={"customer": "Ada"}),
    ]
    llm = ScriptedModel(looks, reads, "Dear Ada, tea is 3. There are 12.")  # or ChatOpenAI(...)
    async with mcp_servers("", text=json.dumps({"mcpServers": {"shop": shop}})) as [server]:
        if server.error:
            raise server.error
        print([tool.name for tool in server.tools if tool.read_only])
        agent = Agent(llm=llm, tools=[*server.tools, *resource_tools(server)])
        await agent.query("Write an offer to Ada.")
    print(*[message.text for message in agent.messages if message.text], sep="\n")


if __name__ == "__main__":
    if sys.argv[1:] == ["serve"]:
        serve_the_shop()
    else:
        asyncio.run(main())
