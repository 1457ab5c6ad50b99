"""Tool search: you have hundreds of tools, and the model gets those that it searches for.

Copy with: the core.

    class MyAgent(ToolSearch, Agent): ...

    agent = MyAgent(llm=..., tools=[read, write], searchable_tools=hundreds)

At first, the model gets `tools` and the tool `search_tools`. What a search finds is offered from
the next turn on, after the other tools. It's in the log, so later runs, forks and other processes
offer it, too. A search that finds something new changes the prefix that the provider has cached,
and a ToolsChangedEvent is emitted. It costs less if the model searches for several tools at once.

Some providers search for tools themselves, and append what they find without changing the prefix.
With Claude, and with OpenAI's models from GPT-5.4 on, you don't need `ToolSearch`:

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

import re
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from functools import lru_cache
from itertools import accumulate, chain
from math import log
from typing import Annotated

from pydantic import SkipValidation

from ..errors import ToolError
from ..loop import Loop
from ..messages import Message, frozen
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
    """A search has found the tool with this name, which is offered from then on."""

    name: str


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
        searchable = by_name(self.searchable_tools)
        search = self.search_tools  # a copy
        search.description += f"\n\n{list_of_names([*searchable])}"
        offered = by_name([*tools, search])
        for name in self.fold(FoundTools).names:
            if name in searchable:
                offered.setdefault(name, searchable[name])
        return [*offered.values()]

    @tool(idempotent=True, read_only=True, timeout=60)
    async def search_tools(self, query: str) -> str:
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
        offered = by_name(self.toolset())
        lines = list[str]()
        for match in matches:
            if offered.get(match.name, match) != match:
                continue  # a mixin offers another tool of this name
            self.record(ToolFound(match.name))
            lines.append(f"{match.name}: {match.description}")
        if not lines:
            raise ToolError("No matching tool. Search again with different or fewer words.")
        return "\n".join(lines)


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


class FoundTools(Fold):
    """The `names` of the tools that searches have found, each once, in order."""

    names: tuple[str, ...] = ()

    def take(self, at: int, record: Record | Message) -> None:
        if isinstance(record, ToolFound) and record.name not in self.names:
            self.names += (record.name,)
