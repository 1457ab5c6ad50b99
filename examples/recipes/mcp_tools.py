"""Tools over MCP in both directions: this file serves tools, and an agent uses the tools.

Use MCP for tools that run in a separate process or come from a third party. With the argument
`serve`, this program is a server for any MCP client; without arguments, an agent starts the server
and calls its tools. Requires `pip install 'mcp>=2,<3'`.
"""

import asyncio
import json
import sys
from base64 import b64encode
from collections.abc import Sequence
from typing import Any

from mcp import server, types

from agentloop import Agent, ImagePart, ScriptedModel, Tool, call, tool
from agentloop.content import to_content
from agentloop.messages import JSON, text_of
from agentloop.toolkits.mcp import mcp_tools
from agentloop.tools import find_tool
from agentloop.waiting import wait_for

STOCK = {"tea": 12, "coffee": 0}
MAX_RESULT = 5_000_000  # characters


def serve(tools: Sequence[Tool], name: str = "agentloop", **options: Any) -> None:
    """Serve tools over stdin and stdout. The tools must not print. Results are text and images.

    options: arguments of `MCPServer.run`, for example `transport="streamable-http", port=8000`.
    """

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
                if isinstance(part, ImagePart) and part.data:
                    data = b64encode(part.data).decode()
                    blocks.append(types.ImageContent(data=data, mime_type=part.media_type))
            return types.CallToolResult(content=blocks)

    Served(name).run(**options)


@tool(read_only=True)
def stock(item: str) -> int:
    """Return the number of items in stock."""
    return STOCK[item]


async def main() -> None:
    # `trust_hints`: trust this server's statement that a tool is read-only
    this = mcp_tools(sys.executable, __file__, "serve", name="shop", trust_hints=True)
    async with this as tools:
        llm = ScriptedModel(call("shop__stock", item="tea"), "There are 12.")  # or ChatOpenAI(...)
        agent = Agent(llm=llm, tools=tools)
        print([tool.name for tool in tools if tool.read_only])
        print(await agent.query("How much tea is there?"), "|", agent.messages[2].text)


if __name__ == "__main__":
    if sys.argv[1:] == ["serve"]:
        serve([stock], "shop")
    else:
        asyncio.run(main())
