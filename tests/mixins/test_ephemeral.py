"""Ephemeral: the model sees the newest results only."""

from agentloop import Ephemeral, ImagePart, PruneEvent, ScriptedModel, TextPart, tool
from agentloop.models.scripted import call

from .. import test_loop
from ..test_loop import shown


@tool("Look at the page", ephemeral=2)
async def look(n: int) -> str:
    return f"page {n} " + "x" * 100


@tool("Look at the screen", ephemeral=True)
async def screen() -> list:
    return [TextPart("screen"), ImagePart(data=b"png", media_type="image/png")]


def hidden(request):
    return ["older result" in text for text in shown(request) if text][1:]


class TestEphemeral(test_loop.TestLoop):
    agent_class = Ephemeral

    async def test_the_newest_n_results_stay_and_older_ones_become_placeholders(self):
        llm = ScriptedModel(*(call("look", n=n) for n in range(5)), "ok")
        agent = Ephemeral(llm=llm, tools=[look])
        await agent.query("x")
        assert hidden(llm.requests[-1]) == [True, True, True, False, False]
        assert hidden(llm.requests[2]) == [False, False]
        assert "look" in shown(llm.requests[-1])[2]
        assert "107 characters" in shown(llm.requests[-1])[2]

    async def test_the_log_keeps_everything(self):
        llm = ScriptedModel(*(call("look", n=n) for n in range(5)), "ok")
        agent = Ephemeral(llm=llm, tools=[look])
        await agent.query("x")
        assert sum("xxx" in message.text for message in agent.messages) == 5

    async def test_a_result_that_the_model_has_not_seen_is_never_hidden(self):
        llm = ScriptedModel([call("look", n=n) for n in range(6)], call("look", n=9), "ok")
        agent = Ephemeral(llm=llm, tools=[look])
        await agent.query("x")
        assert hidden(llm.requests[1]) == [False] * 6
        assert hidden(llm.requests[2]) == [True] * 5 + [False] * 2

    async def test_each_tool_counts_for_itself_and_others_are_left_alone(self):
        @tool("Note")
        async def note() -> str:
            return "note"

        llm = ScriptedModel(
            call("look", n=1), call("screen"), call("note"), call("look", n=2), call("screen"), "ok"
        )
        await Ephemeral(llm=llm, tools=[look, screen, note]).query("x")
        assert hidden(llm.requests[-1]) == [False, True, False, False, False]
        assert "1 attachment" in shown(llm.requests[-1])[4]

    async def test_a_batch_waits_until_there_is_enough_to_prune(self):
        llm = ScriptedModel(*(call("look", n=n) for n in range(9)), "ok")
        agent = Ephemeral(llm=llm, tools=[look], ephemeral_batch=3)
        events = [event async for event in agent.query_stream("x")]
        counts = [sum(hidden(request)) for request in llm.requests]
        assert counts == [0, 0, 0, 0, 0, 3, 3, 3, 6, 6]
        assert sum(isinstance(event, PruneEvent) for event in events) == 2

    async def test_every_prune_is_an_event_once(self):
        llm = ScriptedModel(*(call("look", n=n) for n in range(4)), "ok")
        agent = Ephemeral(llm=llm, tools=[look])
        events = [event async for event in agent.query_stream("x")]
        pruned = [e.tool_call_ids for e in events if isinstance(e, PruneEvent)]
        assert [len(ids) for ids in pruned] == [1, 1]
        assert pruned[0] != pruned[1]

    async def test_twice_in_a_row_the_context_is_the_same(self):
        llm = ScriptedModel(*(call("look", n=n) for n in range(4)), "ok")
        agent = Ephemeral(llm=llm, tools=[look])
        await agent.query("x")
        assert await agent.context() == await agent.context()
