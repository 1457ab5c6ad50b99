"""Promise 8: a request repeats the previous request byte for byte, unless an event was emitted."""

from itertools import pairwise

from agentloop import Agent, ChatOpenAI, CompactionConfig, CompactionEvent, Ephemeral, tool
from agentloop.events import PruneEvent, ToolsChangedEvent
from agentloop.toolkits.search import ToolSearch
from tests.doubles.openai_double import OpenAIDouble, Reply, calls


@tool("Look", ephemeral=2)
async def look(n: int) -> str:
    return f"{n} " + "word " * 400


@tool("Note")
async def note(text: str) -> str:
    return text


async def play(script, agent_class=Agent, **settings):
    """Return the requests of a run, as the server received them, and the events."""
    async with OpenAIDouble(script) as server:
        llm = ChatOpenAI("gpt-5", base_url=server.base_url, api_key="k")
        agent = agent_class(llm=llm, tools=[look, note], system_prompt="Be good.", **settings)
        events = [event async for event in agent.query_stream("x")]
        assert server.refusals == []
        return server.requests, events


def prefix_changes(requests):
    """Return the number of requests that do not begin with the complete previous request."""
    return sum(
        after["messages"][: len(before["messages"])] != before["messages"]
        or after["tools"] != before["tools"]
        or after.get("tool_choice") != before.get("tool_choice")
        for before, after in pairwise(requests)
    )


async def test_without_pruning_every_request_begins_with_the_previous_request():
    script = [calls(("note", {"text": str(n)}), ("note", {"text": "é"})) for n in range(8)]
    requests, _ = await play([*script, "", "done"])
    assert len(requests) == 10
    assert prefix_changes(requests) == 0


async def test_every_change_of_the_prefix_emits_an_event():
    script = [*(calls(("look", {"n": n})) for n in range(8)), "done"]
    requests, events = await play(script, Ephemeral, ephemeral_batch=1)
    assert prefix_changes(requests) == sum(isinstance(event, PruneEvent) for event in events) == 6


async def test_pruning_in_batches_changes_the_prefix_less_often():
    script = [*(calls(("look", {"n": n})) for n in range(40)), "done"]
    requests, events = await play(script)
    assert (
        1 <= prefix_changes(requests) == sum(isinstance(event, PruneEvent) for event in events) <= 4
    )


async def test_a_summary_request_keeps_the_prefix_and_the_next_change_emits_an_event():
    texts = ["word " * 300, "more " * 300]
    script = [Reply(calls=[("note", {"text": text})], usage=None) for text in texts]
    requests, events = await play(
        [*script, "SUMMARY", "done"], compaction=CompactionConfig(context_window=1200)
    )
    assert prefix_changes(requests[:3]) == 0
    assert (
        prefix_changes(requests) == sum(isinstance(event, CompactionEvent) for event in events) == 1
    )


async def test_a_tool_search_keeps_the_prefix_and_emits_nothing():
    class Searcher(ToolSearch, Agent): ...

    def search(*names):
        return calls(*(("search_tools", {"query": name}) for name in names))

    later = [tool(f"Do {name}", name=name)(lambda: "") for name in ("paint", "sing", "swim")]
    sings = calls(("call_tool", {"name": "sing", "arguments": {}}))
    script = [search("swim", "paint"), search("paint"), search("fly"), search("sing"), sings]
    requests, events = await play([*script, "done"], Searcher, searchable_tools=later)
    assert prefix_changes(requests) == 0
    assert not [event for event in events if isinstance(event, ToolsChangedEvent)]
    names = [each["function"]["name"] for each in requests[-1]["tools"]]
    assert names == ["look", "note", "recall", "search_tools", "call_tool"]
