"""Tool search: you have hundreds of tools, and the model gets those that it searches for.

Copy with: the core, common/found_tools.py, common/model_info.py, common/summary.py.

    class MyAgent(ToolSearch, Agent): ...

    agent = MyAgent(llm=..., tools=[read, write], searchable_tools=hundreds)

The model gets `tools` and the tool `search_tools`. What a search finds is part of its result, so no
search changes the prefix that the provider has cached. Models that can load a tool in the middle of
a conversation (Claude from 4.5 on, and GPT from 5.6 on behind Responses) call it by its name.
Others call it with `call_tool`, so no tool of yours may have that name. Approval, hooks, limits and
the log always see the tool itself. A summary takes the place of the results, so what was found
before it is offered like `tools`.

Some providers also search for tools themselves, so that you don't need `ToolSearch`:

    for each in hundreds:
        each.extra = {"anthropic": {"defer_loading": True}, "openai": {"defer_loading": True}}
    search = {"type": "tool_search_tool_bm25_20251119", "name": "tool_search_tool_bm25"}
    llm = ChatAnthropic("claude-opus-5-5", provider_tools=[search])
    llm = ChatOpenAI("gpt-5.4", provider_tools=[{"type": "tool_search"}])
    agent = Agent(llm=llm, tools=[read, write, *hundreds])

Sources: https://platform.claude.com/docs/en/agents-and-tools/tool-use/tool-search-tool,
https://developers.openai.com/api/docs/guides/tools-tool-search
"""

from __future__ import annotations

import copy
import json
import re
from collections import Counter
from collections.abc import Awaitable, Callable, Container, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import accumulate, chain
from math import log
from typing import Annotated, Any

from pydantic import SkipValidation

from ..common.found_tools import FoundTool
from ..common.model_info import loads_tools
from ..common.summary import Summary
from ..errors import ToolError
from ..loop import Loop
from ..messages import AssistantMessage, Message, ToolCall, ToolMessage, cache_of, frozen
from ..model import Request
from ..tools import Tool, by_name, tool
from ..transcript import Fold, Mark, Record
from ..waiting import call_function

MOST_FOUND = 5  # results of a `bm25` search
MIN_SCORE = 1 / 3  # of the best score, for the other results
MOST_LISTED = 500  # characters of names in the description of `search_tools`
STOP_WORDS = {
    *("a", "an", "and", "at", "by", "for", "from", "i", "in", "is", "it"),
    *("me", "my", "of", "on", "or", "that", "the", "this", "to", "with"),
}
# one Chinese or Japanese character, or consecutive letters and digits of another script
TOOL_WORD = re.compile(r"[\u3040-\u30ff\u3400-\u9fff]|[^\W_\u3040-\u30ff\u3400-\u9fff]+")
CALL_TOOL = Tool(
    "call_tool",
    "Call a tool that search_tools has found.",
    {
        "type": "object",
        "properties": {"name": {"type": "string"}, "arguments": {"type": "object"}},
        "required": ["name", "arguments"],
        "additionalProperties": False,
    },
)
FIELDS = CALL_TOOL.parameters["properties"].keys()
SearchFunction = Callable[[str, Sequence[Tool]], Sequence[Tool] | Awaitable[Sequence[Tool]]]


def bm25(query: str, tools: Sequence[Tool]) -> list[Tool]:
    """Rank tools by how well names, descriptions and parameters match a query (Okapi BM25).

    Returns the best five; fewer if the others score less than a third of the best.
    """
    texts = [word_counts(text_of_tool(tool)) for tool in tools]
    holders = Counter(chain.from_iterable(texts))  # how many tools have a word
    average = sum(text.total() for text in texts) / (len(texts) or 1)
    scores = [0.0] * len(tools)
    for word in word_counts(query):
        if word not in holders:
            continue
        rarity = log((len(texts) + 1) / (holders[word] + 0.5))
        for place, text in enumerate(texts):
            often = text[word]
            length = 0.25 + 0.75 * text.total() / average
            scores[place] += rarity * often / (often + 1.2 * length)
    least = MIN_SCORE * max(scores, default=0)
    best_first = sorted(range(len(tools)), key=lambda place: -scores[place])
    return [tools[place] for place in best_first[:MOST_FOUND] if scores[place] > least]


def text_of_tool(tool: Tool) -> str:
    """What a search reads of a tool: its name, description and parameter names."""
    return " ".join([tool.name, tool.description, *tool.parameters.get("properties", ())])


@lru_cache(4_096)
def word_counts(text: str) -> Counter[str]:
    """Count the words of a text in lower case. A final "s" doesn't count, nor do stop words."""
    # "createGitHub_issues" -> "creategithub", "issue", "create", "git", "hub", "issue"
    parts = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", text)
    matches = TOOL_WORD.findall(f"{text} {parts}".lower())
    return Counter(word.removesuffix("s") for word in matches if word not in STOP_WORDS)


@frozen
class ToolFound(Mark):
    """A search has found the tool with this name."""

    name: str


class FoundTools(Fold):
    """The names of the tools that searches have found, and which of them before a summary."""

    names = frozenset[str]()
    summarized = frozenset[str]()

    def take(self, at: int, record: Record | Message) -> None:
        if isinstance(record, ToolFound):
            self.names |= {record.name}
        elif isinstance(record, Summary):
            self.summarized = self.names


class ToolSearch(Loop):
    """Offers `search_tools`, and what its searches have found.

    searchable_tools: tools that the model gets once a search has found them. The description of
        `search_tools` lists their names, or how the names begin if there are too many. A search
        never finds a tool if another one that's offered has its name, such as "done".
    tool_search: a function, `def` or `async def`, that gets the model's query and the tools, and
        returns those that match. The default compares words; comparing embeddings finds more.
    """

    searchable_tools: Sequence[Annotated[Tool, SkipValidation]] = ()
    tool_search: SearchFunction = bm25

    def __post_init__(self) -> None:
        super().__post_init__()
        by_name([*self.tools, *self.searchable_tools])

    def toolset(self) -> Sequence[Tool]:
        tools = super().toolset()
        if not self.searchable_tools:
            return tools
        search = self.search_tools  # a copy
        search.description += f"\n\n{list_of_names([*by_name(self.searchable_tools)])}"
        through = () if loads_tools(self.llm) else (CALL_TOOL,)
        offered = by_name([*tools, search, *through])
        at_hand = self.fold(FoundTools).summarized
        for each in self.searchable_tools:
            if each.name not in offered:
                offered[each.name] = twin = copy.copy(each)
                twin.deferred = each.name not in at_hand
        return [*offered.values()]

    async def context(self) -> list[Message]:
        messages = await super().context()
        if CALL_TOOL not in self._turn_tools:
            return messages
        deferred = {tool.name for tool in self._turn_tools if tool.deferred}
        return [with_call_tool(message, deferred) for message in messages]

    async def call_model(self, request: Request) -> AssistantMessage:
        if CALL_TOOL not in request.tools:
            return await super().call_model(request)
        shown = [tool for tool in request.tools if not tool.deferred]
        reply = await super().call_model(replace(request, tools=shown))
        return replace(reply, tool_calls=tuple(map(without_call_tool, reply.tool_calls)))

    @tool(idempotent=True, read_only=True, timeout=60)
    async def search_tools(self, query: str) -> list[FoundTool]:
        """Find additional tools, which can be called from the next turn on.

        Search before reporting that a task is impossible: most tools are available only after a
        search. Search for all the tools of a task at once.

        Args:
            query: Names of tools, or purpose and subject of a tool: "create issue github".
        """
        names = re.findall(r"[\w-]+", query)
        matches: Sequence[Tool] = [tool for tool in self.searchable_tools if tool.name in names]
        if not matches:
            matches = await call_function(self.tool_search, query, self.searchable_tools)
        before = self.fold(FoundTools)
        # a tool that a mixin offers may have the name of one that's searched
        own = before.summarized | {tool.name for tool in self.toolset() if tool.deferred}
        found = [match for match in matches if match.name in own]
        if not found:
            raise ToolError("No matching tool. Search again with different or fewer words.")
        new = [match for match in found if match.name not in before.names]
        self.add(*(ToolFound(match.name) for match in new))
        return [*map(as_found, new or found)]


def as_found(tool: Tool) -> FoundTool:
    schema = json.dumps(tool.parameters, ensure_ascii=False)
    return FoundTool(f"{tool.name}: {tool.description}\nArguments: {schema}", tool.name)


def with_call_tool(message: Message, deferred: Container[str]) -> Message:
    """Show a call of a deferred tool, or its result, as the model knows it: by `call_tool`."""
    names = list[str]()
    if isinstance(message, AssistantMessage):
        names = [call.name for call in message.tool_calls]
    elif isinstance(message, ToolMessage):
        names = [message.tool_name]
    key = [name in deferred for name in names]
    if not any(key):
        return message
    # a message is converted once, because it's encoded and counted once
    kept: tuple[list[bool], Message] | None = cache_of(message).get("call_tool")
    if not kept or kept[0] != key:
        kept = key, _convert(message, deferred)
        cache_of(message)["call_tool"] = kept
    return kept[1]


def _convert(message: Message, deferred: Container[str]) -> Message:
    if isinstance(message, AssistantMessage):
        calls = [_wrap(call) if call.name in deferred else call for call in message.tool_calls]
        return replace(message, tool_calls=tuple(calls))
    if isinstance(message, ToolMessage):
        return replace(message, tool_name=CALL_TOOL.name)
    return message


def _wrap(call: ToolCall) -> ToolCall:
    arguments = {"name": call.name, "arguments": call.parsed or {}}
    return replace(call, name=CALL_TOOL.name, arguments=json.dumps(arguments, ensure_ascii=False))


def without_call_tool(call: ToolCall) -> ToolCall:
    """The call that the model makes with `call_tool`; any other call stays as it is.

    So does one that names no tool, or has the tool's arguments next to the name instead of in
    "arguments": the model reads why it isn't valid.
    """
    given = call.parsed or {}
    name: Any = given.get("name")
    arguments: Any = given.get("arguments") or {}
    if call.name != CALL_TOOL.name or not isinstance(name, str) or given.keys() - FIELDS:
        return call
    if not isinstance(arguments, str):  # some models write text
        arguments = json.dumps(arguments, ensure_ascii=False)
    return without_call_tool(replace(call, name=name, arguments=arguments))


def list_of_names(names: Sequence[str]) -> str:
    """List the names of tools; if there are many, how they begin, most common first.

    300 names -> "300 tools, whose names begin with: github (60), jira (60), crm (12)"
    """
    listed = ", ".join(names)
    if len(listed) <= MOST_LISTED:
        return f"Names of these tools: {listed}"
    first_words = Counter(re.split("[^A-Za-z0-9]|(?<=[a-z])(?=[A-Z])", name)[0] for name in names)
    groups = [f"{word} ({count})" for word, count in first_words.most_common()]
    sizes = accumulate(len(group) + 2 for group in groups)
    shown = [group for group, size in zip(groups, sizes, strict=True) if size <= MOST_LISTED]
    return f"{len(names)} tools, whose names begin with: {', '.join(shown)}"
