"""The cost of 300 tools: all in each request, or those that a search has found.

python -m tests.benchmarks.tool_search

A model makes one call in each of twenty turns, of eight tools among 300. With `ToolSearch`, it
searches for each of the eight in additional turns, as the table states: all at the beginning, or
some later. Each search finds up to five tools, of which the model uses one, by `call_tool`.

The cost is in prices of an input token: 0.1 if it is cached, 5 in a reply, and 1.25 (Anthropic) or
1 (OpenAI) for a write. The tokens of JSON are estimated. The cache contains the longest prefix of
complete blocks (a tool, the system prompt, a message) of an earlier request.
"""

import argparse
import json
from itertools import accumulate
from typing import Any

from pydantic_core import to_json

from agentloop import (
    AssistantMessage,
    ChatAnthropic,
    Loop,
    Request,
    ScriptedModel,
    ToolMessage,
    call,
)
from agentloop.common.tokens import message_tokens
from agentloop.models.wire import encode_body
from agentloop.toolkits.search import ToolSearch
from agentloop.tools import Tool

from .caches import tokens

SERVERS = "github", "jira", "slack", "drive", "crm"
THINGS = (
    *("issue", "comment", "branch", "release", "label", "sprint", "epic", "channel", "thread"),
    *("file", "folder", "permission", "lead", "deal", "invoice", "contact", "webhook", "report"),
    *("user", "team"),
)
ACTIONS = "create", "list", "update"
TURNS = 20
USED = 8  # tools
READ, REPLY = 0.1, 5.0
WRITE = {"Anthropic": 1.25, "OpenAI": 1.0}
PROMPT = "You keep the books of a small company. " * 44  # 400 tokens
RESULT = "id 4711, state open, changed on 2026-03-04 by ann@example.com; " * 17  # 400 tokens


class Remote(Tool):
    """A tool as from an MCP server: a description of two sentences, and six parameters."""

    def __init__(self, server: str, action: str, thing: str) -> None:
        properties: dict[str, Any] = {}
        for name in ("id", "title", "body", "owner", "state", "page"):
            properties[name] = {
                "type": "string",
                "description": f"The {name} of the {thing}, as {server} shows it in its own pages.",
            }
        super().__init__(
            f"{server}__{action}_{thing}",
            f"{action.capitalize()} a {thing} in {server}. Returns the {thing} with its id, its "
            "state and who changed it last, or an error that says which permission is missing.",
            {"type": "object", "properties": properties, "required": ["id"]},
        )

    async def execute(self, args: dict[str, Any], overrides: object = None) -> str:
        return RESULT


def tools() -> list[Tool]:
    return [
        Remote(server, action, thing)
        for server in SERVERS
        for thing in THINGS
        for action in ACTIONS
    ]


def script(turns_with_searches: int) -> list[Any]:
    """Return the replies of the model: twenty calls, and eight searches before or between them."""
    every = tools()
    used = every[:: len(every) // USED][:USED]
    searches = [call("search_tools", query=f"{each.name} {each.description}") for each in used]
    replies: list[Any] = []
    for turn in range(TURNS):
        number = turn * USED // TURNS  # of the tool: each tool is used in a few consecutive turns
        if turns_with_searches and (turn == 0 or number > (turn - 1) * USED // TURNS):
            at_once = USED // turns_with_searches
            if number % at_once == 0:
                replies.append(searches[number : number + at_once])
        if turns_with_searches:
            given = {"name": used[number].name, "arguments": {"id": str(turn)}}
            replies.append(call("call_tool", **given))
        else:
            replies.append(call(used[number].name, id=str(turn)))
    return [*replies, "All of it is done."]


class Searcher(ToolSearch, Loop): ...


def play(turns_with_searches: int) -> tuple[list[Request], list[AssistantMessage]]:
    """Return the requests and the replies of a run; without searches, with all tools."""
    llm = ScriptedModel(*script(turns_with_searches))
    settings: dict[str, Any] = {"llm": llm, "system_prompt": PROMPT}
    if turns_with_searches:
        agent: Loop = Searcher(searchable_tools=tools(), **settings)
    else:
        agent = Loop(tools=tools(), **settings)
    agent.run_sync("Close the quarter.")
    messages = agent.messages
    assert not [each for each in messages if isinstance(each, ToolMessage) and each.is_error]
    return llm.requests, [each for each in messages if isinstance(each, AssistantMessage)]


def blocks(request: Request) -> list[bytes]:
    """Return the blocks of a request to Anthropic, in the order of its cache."""
    model = ChatAnthropic("m", api_key="k", cache=False)
    written = model.body(request.messages, request.tools, request.tool_choice, False)
    body = json.loads(encode_body(written))
    return [to_json(each) for each in (*body.get("tools", ()), body["system"], *body["messages"])]


def measure(turns_with_searches: int) -> dict[str, float]:
    """Return the tokens of the input and of the largest request, and the cost by provider."""
    requests, replies = play(turns_with_searches)
    seen = set[int]()
    read = written = largest = 0
    for request in requests:
        parts = blocks(request)
        sizes = list(accumulate(map(tokens, parts)))
        names = list(accumulate(parts, lambda before, part: hash((before, part)), initial=0))[1:]
        hits = [size for name, size in zip(names, sizes, strict=True) if name in seen]
        cached = max(hits, default=0)
        seen.update(names)
        read += cached
        written += sizes[-1] - cached
        largest = max(largest, sizes[-1])
    said = sum(map(message_tokens, replies))
    row = {"requests": len(requests), "input": read + written, "largest": largest}
    for provider, price in WRITE.items():
        row[provider] = READ * read + price * written + REPLY * said
    return row


def table() -> str:
    """Return the table of README.md."""
    everything = measure(0)
    lines = [
        "| 300 tools, 20 turns | requests | input tokens | largest request | Anthropic | OpenAI |",
        "| --- | ---: | ---: | ---: | ---: | ---: |",
    ]
    for turns, name in (
        (0, "all of them, always"),
        (1, "8 searches in 1 turn"),
        (2, "8 searches in 2 turns"),
        (4, "8 searches in 4 turns"),
        (8, "8 searches in 8 turns"),
    ):
        row = measure(turns)
        costs = [f"{row[provider] / everything[provider]:.2f}" for provider in WRITE]
        counts = [f"{row[key]:,.0f}" for key in ("requests", "input", "largest")]
        lines.append(f"| {' | '.join([name, *counts, *costs])} |")
    return "\n".join(lines)


if __name__ == "__main__":
    argparse.ArgumentParser(description=__doc__).parse_args()
    print(table())
