"""Ephemeral: only the newest results are sent to the model, at the lowest cost."""

import sys
from dataclasses import replace

import pytest

from agentloop import Agent, Ephemeral, ScriptedModel, ToolCall, tool
from agentloop.common.model_info import CacheRules
from agentloop.common.summary import Summary
from agentloop.events import PruneEvent
from agentloop.messages import AssistantMessage, ToolMessage, Usage, UserMessage
from agentloop.mixins.ephemeral import Pruning, placeholder
from agentloop.models.scripted import call
from tests.core import test_loop
from tests.core.test_loop import ids_in, shown
from tests.helpers import record_all, words
from tests.properties import given, st


@tool("Look at the page", ephemeral=2)
async def look(n: int) -> str:
    return f"page {n} " + words(500)


def stale_results(log, *prices):
    pruning = Pruning(log, rules_of(*prices)).catch_up()
    return {*pruning.hidden, *pruning.due}


def rules_of(write=1.25, read=0.1, smallest=0):
    return CacheRules(smallest, read, write)


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


def turns_of(count, tokens):
    """Return a log of `count` turns with one result each, of which three are retained."""
    turns = [[("look", tokens, 3)]] * count
    return log_of([*turns, AssistantMessage("hm")])


def steps_of_turns(count, usage):
    """Return the number of function calls that pruning makes in each turn of a log."""
    log, messages, steps, calls = [], [], [], 0

    def count_call(frame, event, argument):
        nonlocal calls
        calls += event in ("call", "c_call")

    pruning = Pruning(log, CacheRules())
    for n in range(count):
        reply = AssistantMessage(tool_calls=(ToolCall(str(n), "look"),), usage=usage)
        log += [reply, ToolMessage(str(n), "look", f"{n} " + words(250), ephemeral=3)]
        messages = [*messages, *log[-2:]]
        calls = 0
        sys.setprofile(count_call)
        pruning.catch_up().hide(messages, placeholder)
        sys.setprofile(None)
        steps.append(calls)
    return steps


turns = st.tuples(st.sampled_from("ab"), st.integers(0, 750), st.integers(0, 2))
others = st.sampled_from([UserMessage("x"), Summary("so far", kept_from=2)])
logs = st.lists(others | st.lists(turns, min_size=1, max_size=4), max_size=30).map(log_of)
prices = st.sampled_from([(1.25, 0.1), (1.0, 0.25), (1.0, 1.0), (1.25, 0.0)])


class TestEphemeral(test_loop.TestLoop):
    agent_class = Ephemeral

    async def test_all_but_the_newest_n_results_become_placeholders_with_an_event(self):
        llm = ScriptedModel(*(call("look", n=n) for n in range(5)), "ok")
        agent = Ephemeral(llm=llm, tools=[look], ephemeral_per_turn=True)
        events = [event async for event in agent.query_stream("x")]
        assert hidden(llm.requests[-1]) == [True, True, True, False, False]
        assert hidden(llm.requests[2]) == [False, False]
        assert "look" in shown(llm.requests[-1])[2]
        assert "2,507 characters" in shown(llm.requests[-1])[2]
        pruned = [e.tool_call_ids for e in events if isinstance(e, PruneEvent)]
        assert pruned == [[call_id] for call_id in ids_in(agent)[:3]]

    @pytest.mark.parametrize("prices", [(1.0, 1.0), (0.0, 0.0), (0.1, 1.25)])
    def test_stale_results_are_pruned_at_once_if_cached_tokens_are_not_cheaper(self, prices):
        stale = stale_results(turns_of(9, 100), *prices)
        assert stale == {f"{n}.0" for n in range(6)}

    def test_a_result_shorter_than_the_placeholder_is_retained(self):
        assert stale_results(turns_of(100, 5)) == set()

    def test_stale_results_are_pruned_with_a_summary_that_invalidates_the_prefix(self):
        log = turns_of(6, 1_000)
        assert stale_results(log) == set()
        assert stale_results([*log, Summary("so far", kept_from=2)]) == {"1.0", "2.0"}, (
            "result 0 is no longer in the view"
        )

    @pytest.mark.parametrize(("tokens", "pruned"), [(1_500, False), (4_096, True)])
    def test_only_large_uncached_requests_indicate_a_missing_cache(self, tokens, pruned):
        log = turns_of(8, 400)
        reported = [
            replace(one, usage=Usage(tokens, 5)) if isinstance(one, AssistantMessage) else one
            for one in log
        ]
        assert bool(stale_results(reported, 1.25, 0.1, 4_096)) == pruned

    @pytest.mark.parametrize("cached", [0, 19_000])
    def test_the_work_per_turn_does_not_grow_with_the_log(self, cached):
        steps = steps_of_turns(2_000, Usage(20_000, 20, cached_input_tokens=cached))
        early, late = steps[100:200], steps[1_000:]
        assert sum(late) <= 1.2 * 10 * sum(early)

    async def test_a_fork_and_a_restart_prune_the_same_results_as_the_original(self):
        llm = ScriptedModel(*(call("look", n=n) for n in range(30)), "ok")
        agent = Ephemeral(llm=llm, tools=[look])
        await agent.query("x")
        whole = await agent.context()
        assert await agent.fork().context() == whole
        replies = [at for at, one in enumerate(agent.log) if isinstance(one, AssistantMessage)]
        for at, request in zip(replies, llm.requests, strict=True):
            again = Ephemeral(llm=llm, tools=[look])
            record_all(again, agent.log[:at])
            assert tuple(await again.context()) == request.messages

    def test_the_placeholder_names_the_tool_the_length_and_the_ways_to_read_the_result(self):
        text = placeholder(ToolMessage("1", "look", "x" * 5000, ephemeral=1)).text
        assert "look" in text
        assert "5,000 characters" in text
        sources = ["use recall", "call look again"]
        short_result = ToolMessage("1", "look", "x" * 50, ephemeral=1)
        assert "use recall or call look again" in placeholder(short_result, sources).text

    @pytest.mark.parametrize(("smallest", "left"), [(0, 1_500), (4_096, 3_500), (6_000, 5_500)])
    def test_pruning_leaves_a_prefix_that_the_provider_caches(self, smallest, left):
        log = [*turns_of(20, 1_000), Summary("so far", kept_from=2)]
        hidden = stale_results(log, 1.25, 0.1, smallest)
        assert left <= 1_000 * (19 - len(hidden)) < left + 1_500

    def test_a_result_shorter_than_two_placeholders_is_retained(self):
        assert stale_results(turns_of(100, 60), 0.0, 0.0) == set()
        assert stale_results(turns_of(100, 80), 0.0, 0.0)

    async def test_the_placeholder_names_recall_and_a_tool_only_if_a_new_call_is_safe(self):
        long = words(500)
        page = tool("Page", name="page", ephemeral=1, read_only=True)(lambda: long)
        act = tool("Act", name="act", ephemeral=1)(lambda: long)
        calls = [call("page"), call("act")] * 3
        for kind, named in ((Agent, ["recall", "page"]), (Ephemeral, ["page"])):
            agent = kind(
                llm=ScriptedModel(*calls, "ok"), tools=[page, act], ephemeral_per_turn=True
            )
            await agent.query("x")
            of_page, of_act, *_ = [
                text for text in shown(agent.llm.requests[-1]) if text.startswith("[Older")
            ]
            sources = of_page.partition("To read it")[2]
            assert [name for name in ("recall", "page") if name in sources] == named
            assert "again" not in of_act
            assert ("recall" in of_act) == (kind is Agent)
            assert ("recall" in [t.name for t in agent.toolset()]) == (kind is Agent)

    @given(logs, prices)
    def test_committed_pruning_is_permanent(self, log, prices):
        committed = set()
        for at in range(len(log) + 1):
            hidden = Pruning(log[:at], rules_of(*prices)).catch_up().hidden
            assert committed <= hidden
            committed = hidden

    @given(logs, prices)
    def test_an_incremental_fold_prunes_the_same_results_as_a_new_one(self, log, prices):
        agent = Ephemeral(llm=ScriptedModel())
        for record in log:
            agent.record(record)
            incremental = agent.fold(Pruning, rules_of(*prices))
            fresh = Pruning(agent.log, rules_of(*prices)).catch_up()
            assert (incremental.hidden, incremental.due) == (fresh.hidden, fresh.due)
            messages = agent.messages
            assert incremental.hide(messages, placeholder) == fresh.hide(messages, placeholder)

    @given(logs, prices)
    def test_the_newest_n_results_of_each_tool_and_unseen_results_are_retained(self, log, prices):
        stale = stale_results(log, *prices)
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
            assert not stale & {log[at].tool_call_id for at in newest + unseen}


class InterruptedOnce(list):
    """Messages that raise KeyboardInterrupt once, after the first message is read."""

    interrupts = 1

    def __getitem__(self, at):
        part = super().__getitem__(at)
        return self.interrupt(part) if isinstance(at, slice) and at.stop is None else part

    def interrupt(self, part):
        for message in part:
            yield message
            if self.interrupts:
                self.interrupts -= 1
                raise KeyboardInterrupt


def test_an_interruption_during_pruning_duplicates_no_message():
    fold = Pruning([], CacheRules())
    messages = InterruptedOnce([UserMessage("a"), UserMessage("b"), UserMessage("c")])
    fold.hide([*messages][:1], placeholder)
    with pytest.raises(KeyboardInterrupt):
        fold.hide(messages, placeholder)
    assert fold.hide(messages, placeholder) == [*messages]
