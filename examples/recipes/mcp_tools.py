"""Tools over MCP, both ways: this file serves its tools, and an agent uses them.

One wants it where tools run in a process of their own, or are somebody else's. With the word
`serve` this is a server for any client of the protocol; without it, an agent starts that server and
asks it. Needs `pip install 'agentloop-micro[mcp]'`.
"""

import asyncio
import sys

from agentloop import Agent, ScriptedModel, call, tool
from agentloop.toolkits.mcp import mcp_tools, serve

STOCK = {"tea": 12, "coffee": 0}


@tool(read_only=True)
def stock(item: str) -> int:
    """How many there are."""
    return STOCK[item]


async def main() -> None:
    async with mcp_tools(sys.executable, __file__, "serve", name="shop") as tools:
        llm = ScriptedModel(call("shop__stock", item="tea"), "There are 12.")  # or ChatOpenAI(...)
        agent = Agent(llm=llm, tools=tools)
        print([each.name for each in tools])
        print(await agent.query("How much tea is there?"), "|", agent.messages[2].text)


if __name__ == "__main__":
    if sys.argv[1:] == ["serve"]:
        serve([stock], "shop")
    else:
        asyncio.run(main())
