"""A question of an MCP server to the user, answered in another process.

Use `elicitation=True` and `AskingTool` for servers that ask the user for a date, a confirmation or
a login. The run ends with "needs_answer", and `agent.answer` continues the call. The model does not
see the question. The class is a part of the program agentloop_chat, which is installed together
with agentloop; to change the class, copy examples/agentloop_chat/mcp_questions.py. With the
argument `serve`, this program is the server. Requires `pip install 'mcp>=2,<3'`.
"""

import asyncio
import json
import sys
from tempfile import TemporaryDirectory
from typing import Annotated, Any

from agentloop_chat.mcp_questions import AskingTool
from mcp.server import MCPServer
from mcp.server.mcpserver import Elicit, Resolve
from pydantic import BaseModel

from agentloop import Agent, ScriptedModel, Session, call
from agentloop.toolkits.mcp import mcp_tools


class Table(BaseModel):
    date: str
    guests: int


async def ask_for_table() -> Elicit[Table]:
    return Elicit("When, and for how many guests?", Table)


def serve() -> None:
    server = MCPServer("inn")

    @server.tool()
    async def book(name: str, table: Annotated[Table, Resolve(ask_for_table)]) -> str:
        """Book a table."""
        return f"A table for {table.guests}, {table.date}, for {name}."

    server.run()


class Waiter(Session, Agent):
    session = "table"


async def main() -> None:
    this: dict[str, Any] = {"name": "inn", "elicitation": True, "tool_class": AskingTool}
    with TemporaryDirectory() as folder:
        async with mcp_tools(sys.executable, __file__, "serve", **this) as tools:
            llm = ScriptedModel(call("inn__book", name="Ada"), "It is booked.")
            with Waiter(llm=llm, tools=tools, session_dir=folder) as waiter:
                result = await waiter.run("Book a table for Ada.")
                question = result.pending[0].parsed or {}
                print(f"{result.stop_reason}: {question['question']}")
                print([*question["form"]["properties"]])
            # another process continues here, with the same server
            with Waiter(llm=llm, tools=tools, session_dir=folder) as waiter:
                waiter.answer(waiter.pending[0].id, {"date": "tomorrow", "guests": 4})
                print((await waiter.run()).text, "|", json.dumps(waiter.messages[2].text))


if __name__ == "__main__":
    if sys.argv[1:] == ["serve"]:
        serve()
    else:
        asyncio.run(main())
