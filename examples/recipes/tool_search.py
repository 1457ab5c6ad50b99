"""Hundreds of tools, of which the model only gets those it searches for.

Use tool search if you have several MCP servers, whose schemas may be longer than the conversation.
This program makes the tools up; with real servers, `searchable_tools` is `[tool for server in
servers for tool in server.tools]`. To search by meaning, write your own search function.
"""

from collections.abc import Sequence
from typing import Any

from agentloop import Agent, ScriptedModel, Tool, call, tool
from agentloop.toolkits.search import ToolSearch, bm25

THINGS = "issue", "invoice", "customer", "shipment", "message", "report", "user", "file"
SYNONYMS = {"parcel": "shipment", "bill": "invoice", "client": "customer"}


class Remote(Tool):
    async def execute(self, args: dict[str, Any], overrides: object = None) -> str:
        return f"{self.name} has run."


HUNDREDS = [
    Remote(f"{action}_{thing}", f"{action.capitalize()} one {thing}.")
    for action in ("create", "read", "update", "delete", "list", "share")
    for thing in THINGS
]


def search(query: str, tools: Sequence[Tool]) -> Sequence[Tool]:
    """Search with synonyms of the words in tool names."""
    words = [SYNONYMS.get(word, word) for word in query.split()]
    return bm25(" ".join(words), tools)[:2]


@tool
def today() -> str:
    """Return the day of the week."""
    return "Monday"


class Clerk(ToolSearch, Agent):
    tools = (today,)
    searchable_tools = HUNDREDS


if __name__ == "__main__":
    search_first = call("search_tools", query="list parcel")
    lists = call("call_tool", name="list_shipment", arguments={})
    llm = ScriptedModel(search_first, lists, "They are on their way.", "It is Monday.")
    clerk = Clerk(llm=llm, tool_search=search)
    print(clerk.run_sync("Where are my parcels?"))
    print(clerk.fork().run_sync("And which day is it?"))
    for request in llm.requests:  # no search changes the tools, which the provider has cached
        print(*(tool.name for tool in request.tools))
