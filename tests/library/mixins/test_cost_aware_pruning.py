"""CostAwarePruning: outdated results are hidden when that is cheaper than reading them."""

import sys
from dataclasses import replace

import pytest

from agentloop import Agent, ScriptedModel, Usage, tool
from agentloop.common.ledger import Ledger
from agentloop.common.model_info import CacheRules
from agentloop.common.pruned import Pruned
from agentloop.common.summary import Summary
from agentloop.events import PruneEvent
from agentloop.messages import AssistantMessage, ToolCall, ToolMessage
from agentloop.mixins.cost_aware_pruning import CostAwarePruning
from agentloop.models.scripted import call
from tests.core import test_loop
from tests.core.test_loop import shown
from tests.helpers import words
from tests.properties import given, st

from .test_ephemeral import log_of, logs, look

prices = st.sampled_from([(1.25, 0.1), (1.0, 0.25), (1.0, 1.0), (1.25, 0.0)])


def rules_of(write=1.25, read=0.1, smallest=0):
    return CacheRules(smallest, read, write)


def due(log, *prices):
    """Return the calls whose results have been pruned or are to be pruned now."""
    pruned = Ledger(log[:0], rules_of(*prices))
    ids = []
    grown = pruned.log = []
    for record in log:
        if isinstance(record, AssistantMessage) and pruned.catch_up().due:
            ids += pruned.due
            grown.append(Pruned(pruned.due))
        grown.append(record)
    return {*ids, *pruned.catch_up().due}


def turns_of(count, tokens):
    """Return a log of `count` turns with one result each, of which three are retained."""
    return log_of([*[[("look", tokens, 3)]] * count, AssistantMessage("hm")])


class TestCostAwarePruning(test_loop.TestLoop):
    agent_class = CostAwarePruning

    async def test_outdated_results_are_pruned_together_with_an_event(self):
        llm = ScriptedModel(*(call("look", n=n) for n in range(40)), "ok")
        agent = CostAwarePruning(llm=llm, tools=[look])
        events = [event async for event in agent.query_stream("x")]
        [event] = [event for event in events if isinstance(event, PruneEvent)]
        hidden = sum("Older result" in text for text in shown(llm.requests[-1]))
        assert hidden == len(event.tool_call_ids) > 10

    @pytest.mark.parametrize("prices", [(1.0, 1.0), (0.0, 0.0), (0.1, 1.25)])
    def test_stale_results_are_pruned_at_once_if_cached_tokens_are_not_cheaper(self, prices):
        assert due(turns_of(9, 100), *prices) == {f"{n}.0" for n in range(6)}

    def test_stale_results_are_pruned_with_a_summary_that_changes_the_prefix(self):
        log = turns_of(6, 1_000)
        assert due(log) == set()
        assert due([*log, Summary("so far", kept_from=2)]) == {"1.0", "2.0"}, (
            "result 0 is no longer in the view"
        )

    @pytest.mark.parametrize(("smallest", "left"), [(0, 1_500), (4_096, 3_500), (6_000, 5_500)])
    def test_pruning_leaves_a_prefix_that_the_provider_caches(self, smallest, left):
        log = [*turns_of(20, 1_000), Summary("so far", kept_from=2)]
        hidden = due(log, 1.25, 0.1, smallest)
        assert left <= 1_000 * (19 - len(hidden)) < left + 1_500

    async def test_a_request_after_a_pruning_saves_what_the_pruning_cost(self):
        page = tool("Page", name="page", ephemeral=1)(lambda: words(2_000))
        agent = Agent(llm=ScriptedModel(*[call("page")] * 60, "ok"), tools=[page])
        await agent.query("x")
        sizes = [sum(map(len, shown(request))) for request in agent.llm.requests]
        assert max(sizes[30:]) < sizes[29] * 1.5

    @pytest.mark.parametrize(("tokens", "pruned"), [(1_500, False), (4_096, True)])
    def test_only_long_uncached_requests_show_that_there_is_no_cache(self, tokens, pruned):
        usage = Usage(tokens, 5)
        reported = [
            replace(record, usage=usage) if isinstance(record, AssistantMessage) else record
            for record in turns_of(8, 400)
        ]
        assert bool(due(reported, 1.25, 0.1, 4_096)) == pruned

    @pytest.mark.parametrize("cached", [0, 19_000])
    def test_the_work_per_turn_does_not_grow_with_the_log(self, cached):
        usage = Usage(20_000, 20, cached_input_tokens=cached)
        log, steps, calls = [], [], 0

        def count_call(frame, event, argument):
            nonlocal calls
            calls += event in ("call", "c_call")

        ledger = Ledger(log, CacheRules())
        for n in range(2_000):
            reply = AssistantMessage(tool_calls=(ToolCall(str(n), "look"),), usage=usage)
            log += [reply, ToolMessage(str(n), "look", f"{n} " + words(250), ephemeral=3)]
            calls = 0
            sys.setprofile(count_call)
            ids = ledger.catch_up().due
            sys.setprofile(None)
            if ids:
                log.append(Pruned(ids))
            steps.append(calls)
        early, late = steps[100:200], steps[1_000:]
        assert sum(late) <= 1.2 * 10 * sum(early)

    @given(logs, prices)
    def test_an_incremental_fold_keeps_the_same_accounts_as_a_new_one(self, log, prices):
        agent = CostAwarePruning(llm=ScriptedModel())
        for record in log:
            agent.record(record)
            incremental = agent.fold(Ledger, rules_of(*prices))
            assert incremental.due == Ledger(agent.log, rules_of(*prices)).catch_up().due

    async def test_recall_is_offered_if_a_tool_is_ephemeral(self):
        page = tool("Page", name="page", ephemeral=1)(lambda: words(500))
        agent = Agent(llm=ScriptedModel("ok"), tools=[page])
        assert [tool.name for tool in agent.toolset()] == ["page", "recall"]
        assert agent.fork(offer_recall=False).toolset() == [page]
