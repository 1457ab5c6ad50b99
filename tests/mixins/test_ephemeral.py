"""Ephemeral: the model sees the newest results only, at the least cost."""

import sys
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentloop import Agent, Ephemeral, ScriptedModel, ToolCall, tool
from agentloop.common.model_info import CacheRules
from agentloop.events import PruneEvent
from agentloop.messages import AssistantMessage, Summary, ToolMessage, Usage, UserMessage
from agentloop.mixins.ephemeral import Pruning, placeholder
from agentloop.models.scripted import call

from .. import test_loop
from ..test_loop import ids_in, shown
from . import words


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
    """A log of records, and of turns: the tool, the tokens and the `ephemeral` of each result."""
    log = []
    for n, part in enumerate(parts):
        if isinstance(part, list):
            calls = [ToolCall(f"{n}.{i}", name) for i, (name, _, _) in enumerate(part)]
            log.append(AssistantMessage(tool_calls=tuple(calls)))
            for each, (name, tokens, keep) in zip(calls, part, strict=True):
                log.append(ToolMessage(each.id, name, words(tokens), ephemeral=keep))
        else:
            log.append(part)
    return log


def turns_of(count, tokens):
    """A log with a turn for each of some results, of which three are to stay."""
    turns = [[("look", tokens, 3)]] * count
    return log_of([*turns, AssistantMessage("hm")])


def steps_of_turns(count, usage):
    """The number of function calls that pruning makes in each turn of a log."""
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

    async def test_the_newest_n_results_stay_and_others_become_placeholders_with_an_event(self):
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
    def test_where_reading_is_no_cheaper_results_go_as_soon_as_they_are_stale(self, prices):
        stale = stale_results(turns_of(9, 100), *prices)
        assert stale == {f"{n}.0" for n in range(6)}

    def test_a_result_shorter_than_its_placeholder_stays(self):
        assert stale_results(turns_of(100, 5)) == set()

    def test_a_summary_breaks_the_prefix_anyway_so_a_cut_is_free_then(self):
        log = turns_of(6, 1_000)
        assert stale_results(log) == set()
        assert stale_results([*log, Summary("so far", kept_from=2)]) == {"1.0", "2.0"}, (
            "0 is out of view"
        )

    @pytest.mark.parametrize(("tokens", "pruned"), [(1_500, False), (4_096, True)])
    def test_only_uncached_requests_that_any_provider_would_cache_mean_that_there_is_no_cache(
        self, tokens, pruned
    ):
        log = turns_of(8, 400)
        reported = [
            replace(one, usage=Usage(tokens, 5)) if isinstance(one, AssistantMessage) else one
            for one in log
        ]
        assert bool(stale_results(reported, 1.25, 0.1, 4_096)) == pruned

    @pytest.mark.parametrize("cached", [0, 19_000])
    def test_late_turns_take_as_many_steps_as_early_ones(self, cached):
        steps = steps_of_turns(2_000, Usage(20_000, 20, cached_input_tokens=cached))
        early, late = steps[100:200], steps[1_000:]
        assert sum(late) <= 1.2 * 10 * sum(early)

    async def test_a_fork_and_a_restart_prune_as_the_original_would_have(self):
        llm = ScriptedModel(*(call("look", n=n) for n in range(30)), "ok")
        agent = Ephemeral(llm=llm, tools=[look])
        await agent.query("x")
        whole = await agent.context()
        assert await agent.fork().context() == whole
        replies = [at for at, one in enumerate(agent.log) if isinstance(one, AssistantMessage)]
        for at, request in zip(replies, llm.requests, strict=True):
            again = Ephemeral(llm=llm, tools=[look])
            again.log.replace(agent.log[:at])
            assert tuple(await again.context()) == request.messages

    def test_the_placeholder_says_which_how_long_and_how_to_get_it_again(self):
        text = placeholder(ToolMessage("1", "look", "x" * 5000, ephemeral=1)).text
        assert "look" in text
        assert "5,000 characters" in text
        sources = ["use recall", "call look again"]
        kept = ToolMessage("1", "look", "x" * 50, ephemeral=1)
        assert "use recall or call look again" in placeholder(kept, sources).text

    @pytest.mark.parametrize(("smallest", "left"), [(0, 1_500), (4_096, 3_500), (6_000, 5_500)])
    def test_a_cut_leaves_a_prefix_that_the_provider_caches(self, smallest, left):
        log = [*turns_of(20, 1_000), Summary("so far", kept_from=2)]
        hidden = stale_results(log, 1.25, 0.1, smallest)
        assert left <= 1_000 * (19 - len(hidden)) < left + 1_500

    def test_a_result_shorter_than_two_placeholders_stays(self):
        assert stale_results(turns_of(100, 60), 0.0, 0.0) == set()
        assert stale_results(turns_of(100, 80), 0.0, 0.0)

    async def test_the_placeholder_names_recall_and_a_tool_that_can_be_called_again(self):
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
    def test_what_is_hidden_once_stays_hidden_but_for_what_only_one_look_had_due(self, log, prices):
        committed = set()
        for at in range(len(log) + 1):
            hidden = Pruning(log[:at], rules_of(*prices)).catch_up().hidden
            assert committed <= hidden
            committed = hidden

    @given(logs, prices)
    def test_a_fold_that_goes_on_with_a_log_prunes_as_one_from_its_beginning(self, log, prices):
        agent = Ephemeral(llm=ScriptedModel())
        for record in log:
            agent.record(record)
            kept = agent.fold(Pruning, rules_of(*prices))
            anew = Pruning(agent.log, rules_of(*prices)).catch_up()
            assert (kept.hidden, kept.due) == (anew.hidden, anew.due)
            messages = agent.messages
            assert kept.hide(messages, placeholder) == anew.hide(messages, placeholder)

    @given(logs, prices)
    def test_the_newest_n_of_each_tool_and_what_was_not_seen_stay(self, log, prices):
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
    """Messages of which only the first is read before Ctrl-C, once."""

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


def test_an_interruption_while_results_are_hidden_shows_no_message_twice():
    fold = Pruning([], CacheRules())
    messages = InterruptedOnce([UserMessage("a"), UserMessage("b"), UserMessage("c")])
    fold.hide([*messages][:1], placeholder)
    with pytest.raises(KeyboardInterrupt):
        fold.hide(messages, placeholder)
    assert fold.hide(messages, placeholder) == [*messages]
