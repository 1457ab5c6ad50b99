"""Resources and prompts of an MCP server as tools, for a model that may look around in them.

One wants it where a server offers files, tables or ready texts beside its tools. Resources are what
the server lets one read, prompts are texts that it has written for a task. Here this file is the
server, too (with the word `serve`). Needs `pip install 'mcp>=2,<3'`.
"""

import asyncio
import json
import sys
from typing import Any

from mcp.server import MCPServer as Server

from agentloop import Agent, ScriptedModel, Tool, call, tool
from agentloop.messages import Part
from agentloop.toolkits.mcp import MCPServer, as_part, mcp_servers


def resource_tools(server: MCPServer) -> list[Tool]:
    """Return tools that list and read what a server offers. They only read."""

    @tool(name=f"{server.name}__list", read_only=True)
    async def look() -> list[dict[str, Any]]:
        """List the resources, each with its uri, and the prompts, each with its arguments."""
        found: list[Any] = (await server.client.list_resources()).resources
        if server.client.server_capabilities.prompts:
            found += (await server.client.list_prompts()).prompts
        return [each.model_dump(mode="json", exclude_none=True) for each in found]

    @tool(name=f"{server.name}__read", read_only=True)
    async def read(uri: str) -> list[Part]:
        """Read a resource."""
        return [as_part(each) for each in (await server.client.read_resource(uri)).contents]

    @tool(name=f"{server.name}__prompt", read_only=True)
    async def prompt(name: str, arguments: dict[str, str]) -> list[Part]:
        """Get the text of a prompt, filled in."""
        found = await server.client.get_prompt(name, arguments)
        return [as_part(message.content) for message in found.messages]

    return [look, read, prompt]


def serve() -> None:
    """Offer a resource and a prompt, over stdin and stdout."""
    server = Server("shop")

    @server.resource("shop://prices", mime_type="application/json")
    def prices() -> str:
        return json.dumps({"tea": 3, "coffee": 4})

    @server.prompt(description="How to write an offer.")
    def offer(customer: str) -> str:
        return f"Write to {customer} in two sentences, and name each price once."

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
        "Dear Ada, tea is 3 and coffee is 4. Both are here today.",
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
