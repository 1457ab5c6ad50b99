"""Resources and prompts of an MCP server as tools that the model can browse.

Use these tools where a server offers files, tables or templates in addition to its tools. Resources
are readable data; prompts are text templates for particular tasks. With the argument `serve`, this
file is also the example server. Requires `pip install 'mcp>=2,<3'`.
"""

import asyncio
import json
import sys
from typing import Any

from mcp.server import MCPServer as Server

from agentloop import Agent, Part, ScriptedModel, Tool, call, tool
from agentloop.toolkits.mcp import MCPServer, as_part, mcp_servers


def resource_tools(server: MCPServer) -> list[Tool]:
    """Return read-only tools that list and read the resources and prompts of a server."""

    @tool(name=f"{server.name}__list", read_only=True)
    async def look() -> list[dict[str, Any]]:
        """List the resources with their URIs, and the prompts with their arguments."""
        items: list[Any] = (await server.client.list_resources()).resources
        if server.client.server_capabilities.prompts:
            items += (await server.client.list_prompts()).prompts
        return [item.model_dump(mode="json", exclude_none=True) for item in items]

    @tool(name=f"{server.name}__read", read_only=True)
    async def read(uri: str) -> list[Part]:
        """Read a resource."""
        return [as_part(item) for item in (await server.client.read_resource(uri)).contents]

    @tool(name=f"{server.name}__prompt", read_only=True)
    async def prompt(name: str, arguments: dict[str, str]) -> list[Part]:
        """Return the text of a prompt with its arguments filled in."""
        result = await server.client.get_prompt(name, arguments)
        return [as_part(message.content) for message in result.messages]

    return [look, read, prompt]


def serve() -> None:
    """Serve a resource and a prompt over stdin and stdout."""
    server = Server("shop")

    @server.resource("shop://prices", mime_type="application/json")
    def prices() -> str:
        return json.dumps({"tea": 3, "coffee": 4})

    @server.prompt(description="How to write an offer.")
    def offer(customer: str) -> str:
        return f"Write to {customer} in two sentences, and state each price once."

    server.run()


async def main() -> None:
    shop = {"command": sys.executable, "args": [__file__, "serve"]}
    config = json.dumps({"mcpServers": {"shop": shop}})
    llm = ScriptedModel(  # or ChatOpenAI("gpt-5-mini")
        call("shop__list"),
        [
            call("shop__read", uri="shop://prices"),
            call("shop__prompt", name="offer", arguments={"customer": "Ada"}),
        ],
        "Dear Ada, tea is 3 and coffee is 4. Both are in stock.",
    )
    async with mcp_servers("", text=config) as [server]:
        if server.error:
            raise server.error
        agent = Agent(llm=llm, tools=[*server.tools, *resource_tools(server)])
        await agent.query("Write an offer to Ada.")
    for message in agent.messages:
        print(message.text)


if __name__ == "__main__":
    if sys.argv[1:] == ["serve"]:
        serve()
    else:
        asyncio.run(main())
