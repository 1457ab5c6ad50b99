"""Ephemeral: the model sees only the newest results of a tool."""

import pytest

from agentloop import Ephemeral, ScriptedModel, tool
from agentloop.common.outdated import Outdated
from agentloop.common.pruned import Pruned, placeholder
from agentloop.common.records import dump_record, load_record
from agentloop.common.summary import Summary
from agentloop.events import PruneEvent
from agentloop.messages import AssistantMessage, ToolCall, ToolMessage, UserMessage
from agentloop.models.scripted import call
from tests.core import test_loop
from tests.core.test_loop import ids_in, shown
from tests.helpers import record_all, words
from tests.properties import given, st


@tool("Look at the page", ephemeral=2)
async def look(n: int) -> str:
    return f"page {n} " + words(500)


def hidden(request):
    return ["Older result" in text for text in shown(request) if text][1:]


def log_of(parts):
    """Return a log of records and turns: tool, tokens and `ephemeral` setting of each result."""
    log = []
    for n, part in enumerate(parts):
        if isinstance(part, list):
            calls = [ToolCall(f"{n}.{i}", name) for i, (name, _, _) in enumerate(part)]
            log.append(AssistantMessage(tool_calls=tuple(calls)))
            for tool_call, (name, tokens, keep) in zip(calls, part, strict=True):
                log.append(ToolMessage(tool_call.id, name, words(tokens), ephemeral=keep))
        else:
            log.append(part)
    return log


turns = st.tuples(st.sampled_from("ab"), st.integers(0, 750), st.integers(0, 2))
others = st.sampled_from(
    [UserMessage("x"), Summary("so far", kept_from=2), Pruned(["0.0", "3.0", "4.1"])]
)
logs = st.lists(others | st.lists(turns, min_size=1, max_size=4), max_size=30).map(log_of)


class TestEphemeral(test_loop.TestLoop):
    agent_class = Ephemeral

    async def test_all_but_the_newest_n_results_become_placeholders_with_an_event(self):
        llm = ScriptedModel(*(call("look", n=n) for n in range(5)), "ok")
        agent = Ephemeral(llm=llm, tools=[look], ephemeral_batch=1)
        events = [event async for event in agent.query_stream("x")]
        assert hidden(llm.requests[-1]) == [True, True, True, False, False]
        assert hidden(llm.requests[2]) == [False, False]
        assert "look" in shown(llm.requests[-1])[2]
        assert "2,507 characters" in shown(llm.requests[-1])[2]
        pruned = [e.tool_call_ids for e in events if isinstance(e, PruneEvent)]
        assert pruned == [[call_id] for call_id in ids_in(agent)[:3]]

    async def test_outdated_results_are_pruned_in_batches(self):
        llm = ScriptedModel(*(call("look", n=n) for n in range(12)), "ok")
        agent = Ephemeral(llm=llm, tools=[look], ephemeral_batch=4)
        await agent.query("x")
        assert [sum(hidden(request)) for request in llm.requests] == [0] * 6 + [4] * 4 + [8] * 3

    async def test_a_fork_and_a_restart_see_what_the_original_saw(self):
        llm = ScriptedModel(*(call("look", n=n) for n in range(30)), "ok")
        agent = Ephemeral(llm=llm, tools=[look])
        await agent.query("x")
        whole = await agent.context()
        assert await agent.fork().context() == whole
        replies = [at for at, one in enumerate(agent.log) if isinstance(one, AssistantMessage)]
        for at, request in zip(replies, llm.requests, strict=True):
            again = Ephemeral(llm=llm, tools=[look])
            record_all(again, [load_record(dump_record(record)) for record in agent.log[:at]])
            assert tuple(await again.context()) == request.messages

    async def test_an_agent_of_another_class_sees_what_was_sent(self):
        llm = ScriptedModel(*(call("look", n=n) for n in range(9)), "ok")
        agent = Ephemeral(llm=llm, tools=[look], ephemeral_batch=1)
        await agent.query("x")
        plain = test_loop.Loop(llm=llm)
        for record in agent.log:
            plain.record(record)
        assert plain.messages == agent.messages

    async def test_parallel_results_stay_until_the_model_has_read_them(self):
        llm = ScriptedModel([call("look", n=n) for n in range(5)], "read", "ok")
        agent = Ephemeral(llm=llm, tools=[look], ephemeral_batch=1)
        await agent.query("x")
        await agent.query("y")
        assert hidden(llm.requests[1]) == [False] * 5
        assert hidden(llm.requests[2])[:5] == [True, True, True, False, False]

    def test_the_placeholder_names_the_tool_and_the_length(self):
        text = placeholder(ToolMessage("1", "look", "x" * 5000, ephemeral=1)).text
        assert "look" in text
        assert "5,000 characters" in text

    @pytest.mark.parametrize(("tokens", "outdated"), [(5, 0), (60, 0), (80, 97)])
    def test_a_result_shorter_than_two_placeholders_is_retained(self, tokens, outdated):
        log = log_of([*[[("look", tokens, 3)]] * 100, AssistantMessage("hm")])
        assert len(Outdated(log).catch_up().call_ids) == outdated

    @given(logs)
    def test_an_incremental_fold_finds_the_same_results_as_a_new_one(self, log):
        agent = Ephemeral(llm=ScriptedModel())
        for record in log:
            agent.record(record)
            assert agent.fold(Outdated).call_ids == Outdated(agent.log).catch_up().call_ids

    @given(logs)
    def test_the_oldest_results_of_all_tools_come_first(self, log):
        indices = Outdated(log).catch_up().indices
        assert indices == sorted(indices)

    @given(logs)
    def test_the_newest_n_results_of_each_tool_and_unseen_results_are_retained(self, log):
        outdated = Outdated(log).catch_up().call_ids
        last = max(
            (at for at, one in enumerate(log) if isinstance(one, AssistantMessage)), default=0
        )
        for name in "ab":
            places = [
                at
                for at, one in enumerate(log)
                if isinstance(one, ToolMessage) and one.ephemeral and one.tool_name == name
            ]
            newest = places[-log[places[-1]].ephemeral :] if places else []
            unseen = [at for at in places if at >= last]
            assert not {*outdated} & {log[at].tool_call_id for at in newest + unseen}
