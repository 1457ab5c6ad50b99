"""The model, or an MCP server, asks the user, and the answer arrives in another process.

Use questions in a messenger bot or behind a web form, where no process should wait for days. The
run ends with the question, and the session continues after `agent.answer`. Calls of tools with
`external=True` are answered in the same way: by a person, a queue or a browser.

A server asks for a date, a confirmation or a login if you set `elicitation=True` and a tool class
such as `AskingTool`. The model doesn't see its question. The class is a part of the program
agentloop_chat, which is installed with agentloop; to change it, copy
examples/agentloop_chat/mcp_questions.py. With the argument `serve`, this file is the server. It
needs `pip install 'mcp>=2.3,<3'`; questions of the model need only `ask_user`.
"""

import asyncio
import subprocess
import sys
from tempfile import TemporaryDirectory
from typing import Annotated, Any

from agentloop_chat.mcp_questions import AskingTool
from mcp.server import MCPServer
from mcp.server.mcpserver import Elicit, Resolve
from mcp.server.request_state import RequestStateSecurity
from pydantic import BaseModel

from agentloop import Agent, ScriptedModel, Session, ToolMessage, call
from agentloop.toolkits.ask import ask_user, question_text
from agentloop.toolkits.mcp import mcp_tools

# With a key, a server recognizes the answer to a question that it asked before a restart.
KEY = "at least 32 characters from your secrets"


class Day(BaseModel):
    date: str


async def ask_for_day() -> Elicit[Day]:
    return Elicit("On which day?", Day)


def serve() -> None:
    server = MCPServer("inn", request_state_security=RequestStateSecurity(keys=[KEY]))

    @server.tool()
    async def book(guests: str, day: Annotated[Day, Resolve(ask_for_day)]) -> str:
        """Book a table."""
        return f"A table for {guests}, {day.date}."

    server.run()


class Waiter(Session, Agent): ...


def answer(messages: Any, tools: Any) -> Any:
    """Simulate a model: ask a question, then book."""
    results = [message.text for message in messages if isinstance(message, ToolMessage)]
    if not results:
        return call("ask_user", question="For how many people?", options=["two", "four"])
    return results[1] if results[1:] else call("inn__book", guests=results[0])


async def handle(folder: str, message: str) -> None:
    """Process a message of the user: the answer to a pending question, or a prompt."""
    inn: dict[str, Any] = {"name": "inn", "elicitation": True, "tool_class": AskingTool}
    async with mcp_tools(sys.executable, __file__, "serve", **inn) as tools:
        waiter = Waiter(
            llm=ScriptedModel(answer),
            tools=[ask_user, *tools],
            session="table",
            session_dir=folder,
        )
        with waiter:
            asked = waiter.pending
            for waiting in asked:
                has_form = "form" in (waiting.parsed or {})  # a dict answers the form of a server
                waiter.answer(waiting.id, {"date": message} if has_form else message)
            result = await waiter.run(None if asked else message)
            for waiting in result.pending:
                print(question_text(waiting.parsed or {}))
            if not result.pending:
                print(result)


if __name__ == "__main__":
    if sys.argv[1:] == ["serve"]:
        serve()
    elif sys.argv[1:]:
        asyncio.run(handle(*sys.argv[1:]))
    else:
        with TemporaryDirectory() as folder:
            for message in ("A table, please.", "six", "Friday"):
                print(f"> {message}", flush=True)
                subprocess.run([sys.executable, __file__, folder, message], check=True)
