"""Tool search: hundreds of tools, offered to the model only after a search has returned them.

Copy with: the core.

    class MyAgent(ToolSearch, Agent): ...

    agent = MyAgent(llm=..., tools=[read, write], searchable_tools=hundreds)

The model initially receives `tools` and the additional tool `search_tools`. Search results are
offered from the next turn on, after the other tools. The log records them, so that later runs,
forks and other processes offer them as well. A search with new results changes the tools and emits
a ToolsChangedEvent: the cached prefix is invalidated once. All other requests repeat the previous
prefix.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from functools import lru_cache
from itertools import chain
from math import log
from typing import Annotated

from pydantic import SkipValidation

from ..errors import ToolError
from ..loop import Loop
from ..messages import Mark, Message, Record, frozen
from ..tools import Tool, by_name, tool
from ..transcript import Fold
from ..waiting import call_function

MOST_FOUND = 5  # results of a `bm25` search
MIN_SCORE = 1 / 3  # of the best score, for the other results
MOST_NAMES = 500  # searchable tools whose names `search_tools` lists
STOP_WORDS = {
    *("a", "an", "and", "at", "by", "for", "from", "i", "in", "is", "it"),
    *("me", "my", "of", "on", "or", "that", "the", "this", "to", "with"),
}
# one Chinese or Japanese character, or consecutive letters and digits of another script
TOOL_WORD = re.compile(r"[\u3040-\u30ff\u3400-\u9fff]|[^\W_\u3040-\u30ff\u3400-\u9fff]+")
SearchFunction = Callable[[str, Sequence[Tool]], Sequence[Tool] | Awaitable[Sequence[Tool]]]


def bm25(query: str, tools: Sequence[Tool]) -> list[Tool]:
    """Return the tools whose names, descriptions and parameters match a query best (Okapi BM25)."""
    texts = [word_counts(text_of_tool(tool)) for tool in tools]
    holders = Counter(chain.from_iterable(texts))  # number of tools that contain a word
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
    """Return a tool's name, description and parameter names."""
    return " ".join([tool.name, tool.description, *tool.parameters.get("properties", ())])


@lru_cache(4_096)
def word_counts(text: str) -> Counter[str]:
    """Count the words of a text in lower case, without a final "s" and without stop words."""
    # "createGitHub_issues" -> "creategithub", "issue", "create", "git", "hub", "issue"
    parts = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", text)
    matches = TOOL_WORD.findall(f"{text} {parts}".lower())
    return Counter(word.removesuffix("s") for word in matches if word not in STOP_WORDS)


@frozen
class ToolFound(Mark):
    """A search returned the tool with this name, which is offered in all following turns."""

    name: str


class ToolSearch(Loop):
    """Offers `search_tools`, and the tools returned by previous searches.

    searchable_tools: tools that are offered only after a search has returned them, unlike `tools`.
        The description of `search_tools` lists their names, if there are at most 500. If empty,
        `search_tools` is omitted. Searches never return a tool whose name a mixin's tool already
        has, such as "done".
    tool_search: a synchronous or asynchronous function that selects tools for the model's query.
        The default ranks by keywords; a comparison of embeddings finds additional tools.
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
        searchable = by_name(self.searchable_tools)
        search = self.search_tools  # a copy
        if len(searchable) <= MOST_NAMES:
            search.description += f"\n\nNames of these tools: {', '.join(searchable)}"
        offered = by_name([*tools, search])
        for name in self.fold(FoundTools).names:
            if name in searchable:
                offered.setdefault(name, searchable[name])
        return [*offered.values()]

    @tool(idempotent=True, read_only=True, timeout=60)
    async def search_tools(self, query: str) -> str:
        """Find additional tools, which can be called from the next turn on.

        Search before reporting that a task is impossible: most tools are available only after a
        search.

        Args:
            query: Names of tools, or purpose and subject of a tool: "create issue github".
        """
        names = re.findall(r"[\w-]+", query)
        matches: Sequence[Tool] = [tool for tool in self.searchable_tools if tool.name in names]
        if not matches:
            matches = await call_function(self.tool_search, query, self.searchable_tools)
        offered = by_name(self.toolset())
        lines = list[str]()
        for match in matches:
            if offered.get(match.name, match) != match:
                continue  # a mixin offers another tool with the same name
            self.record(ToolFound(match.name))
            lines.append(f"{match.name}: {match.description}")
        if not lines:
            raise ToolError("No matching tool. Search again with different or fewer words.")
        return "\n".join(lines)


class FoundTools(Fold):
    """The `names` of the tools that searches have returned, without duplicates, in order."""

    names: tuple[str, ...] = ()

    def take(self, at: int, record: Record | Message) -> None:
        if isinstance(record, ToolFound) and record.name not in self.names:
            self.names += (record.name,)
