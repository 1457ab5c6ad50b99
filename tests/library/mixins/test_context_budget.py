"""ContextBudget: old turns leave the view so that requests keep to a budget."""

from dataclasses import replace
from itertools import pairwise

import pytest

from agentloop import Agent, ChatAnthropic, ScriptedModel, tool
from agentloop.common.dropped_turns import NAMES, names_in
from agentloop.common.model_info import CacheRules
from agentloop.common.summary import Summary
from agentloop.common.tokens import count_tokens, message_tokens, tool_tokens
from agentloop.common.turns import LEFT_OUT
from agentloop.events import OverBudgetEvent
from agentloop.messages import SystemMessage, Usage, UserMessage
from agentloop.mixins.context_budget import ContextBudget
from agentloop.models.scripted import assert_prefix_stable, call
from tests import some
from tests.core import test_loop
from tests.core.test_loop import add, shown
from tests.helpers import read, words

RATES = [0.6, 0.8, 1.0, 1.2, 1.6, 2.0, 3.0]  # tokens of the provider per estimated token


def reads(first, end):
    return [call("read", n=n) for n in range(first, end)]


def make(*replies, tools=(read,), **settings):
    return ContextBudget(llm=ScriptedModel(*replies), tools=tools, **settings)


def summaries(agent):
    return [record for record in agent.log if isinstance(record, Summary)]


class Metered(ScriptedModel):
    """A model whose provider reports `rate` tokens for each estimated token."""

    def __init__(self, rate, *script):
        super().__init__(*script)
        self.rate, self.sizes = rate, []

    async def ainvoke(self, messages, tools=(), **options):
        size = round(self.rate * (message_tokens(messages) + tool_tokens(tools)))
        self.sizes.append(size)
        reply = await super().ainvoke(messages, tools, **options)
        return replace(reply, usage=Usage(size, 10))


@tool("Read a page")
def read_page(n: int) -> str:
    return f"{n} " + words(390)


class TestContextBudget(test_loop.TestLoop):
    agent_class = ContextBudget

    def test_a_context_budget_and_provider_compaction_are_mutually_exclusive(self):
        llm = ChatAnthropic("claude-opus-5", api_key="-", compact_threshold=50_000)
        with pytest.raises(ValueError, match="compact_threshold"):
            Agent(llm=llm, context_budget=12_000)

    async def test_with_a_budget_names_and_numbers_of_dropped_turns_remain(self):
        @tool("Find an order")
        async def find(n: int) -> str:
            return f'{{"order": "#W{n}", "city": "New York", "note": "{words(150)}"}}'

        finds = [call("find", n=n) for n in range(30)]
        agent = make(*finds, "done", tools=[find], context_budget=1_500)
        assert await agent.query("The task: use tabs.") == "done"
        last = shown(agent.llm.requests[-1])
        assert last[0] == "The task: use tabs."
        assert LEFT_OUT in last[1]
        assert "New York" in last[1]
        assert all(f"#W{n}" in " ".join(last) for n in range(30))
        assert all(sum(map(message_tokens, r.messages)) < 2_000 for r in agent.llm.requests)
        assert 2 < len(summaries(agent)) < 10
        assert_prefix_stable(agent.llm.requests, breaks=len(summaries(agent)))
        assert agent.usage == Usage()

    async def test_instructions_added_to_the_log_survive_every_cut(self):
        agent = make("one", *reads(0, 20), "done", context_budget=3_000)
        await agent.query("The task")
        agent.add(SystemMessage("Answer in French."))
        await agent.query("Go on.")
        assert len(summaries(agent)) >= 2
        assert all("Answer in French." in shown(request) for request in agent.llm.requests[1:])
        assert shown(agent.llm.requests[-1])[:2] == ["The task", "Answer in French."]
        assert_prefix_stable(agent.llm.requests, breaks=len(summaries(agent)))

    @pytest.mark.parametrize(
        ("rate", "budget"),
        [*((rate, 12_000) for rate in RATES), *((rate, 48_000) for rate in some(RATES, 2))],
    )
    async def test_a_budget_limits_the_tokens_counted_by_the_provider(self, rate, budget):
        llm = Metered(rate, *(call("read_page", n=n) for n in range(300)), "done")
        agent = ContextBudget(llm=llm, tools=[read_page], context_budget=budget, max_iterations=400)
        assert await agent.query("The task") == "done"
        sizes = llm.sizes[1:]
        cut = [after for before, after in pairwise(sizes) if after < before]
        turn = rate * 450
        left = max(0.25 * budget, min(4_096 + turn, 0.5 * budget))
        assert cut
        assert max(sizes) <= 1.05 * budget
        assert min(cut) >= left - turn
        assert max(cut) <= left + 2 * turn

    @pytest.mark.parametrize("share", [0.1, 0.2, 0.3, 0.4, 0.6, 0.8, 1.0])
    async def test_usage_below_half_of_the_estimate_is_not_believed(self, share, caplog):
        llm = Metered(share, *(call("read_page", n=n) for n in range(60)), "done")
        llm.model = f"reports-{share}"
        agent = ContextBudget(llm=llm, tools=[read_page], context_budget=4_000)
        assert await agent.query("The task") == "done"
        believed = share if share >= 0.5 else 1.0
        assert max(llm.sizes) * believed / share <= 1.05 * 4_000
        assert caplog.text.count("less than half") == (share < 0.5)

    @pytest.mark.parametrize("smallest", [1_024, 2_048, 4_096])
    async def test_a_cut_retains_enough_tokens_for_the_cache_of_the_provider(self, smallest):
        llm = Metered(1.0, *(call("read_page", n=n) for n in range(90)), "done")
        llm.cache_rules = CacheRules(smallest_prefix=smallest)
        agent = ContextBudget(llm=llm, tools=[read_page], context_budget=12_000)
        assert await agent.query("The task") == "done"
        cut = [after for before, after in pairwise(llm.sizes) if after < before]
        assert min(cut) >= max(smallest, 2_500)
        assert max(cut) <= max(smallest, 3_000) + 900

    async def test_a_context_that_is_always_full_is_not_cut_every_turn(self):
        adds = [call("add", a=n, b=n) for n in range(20)]
        settings = {"tools": [add], "system_prompt": words(1_250), "context_budget": 1_000}
        agent = make(*adds, "done", **settings)
        assert await agent.query("x") == "done"
        assert len(summaries(agent)) <= 6

    async def test_a_budget_includes_a_long_system_prompt(self):
        llm = Metered(1.0, *(call("read_page", n=n) for n in range(90)), "done")
        prompt = words(9_000)
        settings = {"context_budget": 12_000, "system_prompt": prompt}
        agent = ContextBudget(llm=llm, tools=[read_page], **settings)
        assert await agent.query("The task") == "done"
        assert max(llm.sizes) <= 1.05 * 12_000

    async def test_a_single_turn_above_the_budget_is_sent_with_a_warning_and_an_event(self, caplog):
        much = tool("Much", name="much")(lambda: words(2_500))
        events = []
        agent = make(call("much"), *reads(0, 3), "done", tools=[much, read], context_budget=2_000)
        agent.listeners = [events.append]
        assert await agent.query("x") == "done"
        over = [event for event in events if isinstance(event, OverBudgetEvent)]
        assert [event.budget for event in over] == [2_000]
        assert over[0].tokens > 2_100
        assert caplog.text.count("raise context_budget") == 1

    @pytest.mark.parametrize(
        ("read_price", "budget", "warns"),
        [
            (0.1, 16_000, 0),
            (0.05, 16_000, 0),
            (0.025, 16_000, 1),
            (0.025, 24_000, 0),
            (0, 99_000, 1),
        ],
    )
    def test_a_budget_that_costs_more_than_it_saves_is_warned_of_once(
        self, read_price, budget, warns, caplog
    ):
        llm = ScriptedModel(cache_rules=CacheRules(512, read_price))
        for _ in range(3):
            ContextBudget(llm=llm, context_budget=budget).fork()
        assert caplog.text.count(f"context_budget={budget}") == warns

    async def test_turns_are_dropped_whenever_the_request_then_fits(self):
        much = tool("Much", name="much")(lambda: words(5_000))
        calls = [*(call("read_page", n=n) for n in range(9)), call("much")]
        llm = Metered(1.0, *calls, "done")
        settings = {"context_budget": 12_000, "system_prompt": words(4_950)}
        agent = ContextBudget(llm=llm, tools=[read_page, much], **settings)
        assert await agent.query("x") == "done"
        assert max(llm.sizes) <= 1.05 * 12_000

    def test_names_are_words_with_a_digit_and_quoted_text(self):
        for text, names in {
            '{"city": "New York", "n": 12, "ids": ["HAT1"]}': "HAT1 | 12 | New York",
            "Order #W12 of a_b@c.org, see src/a.py, e.g.": "src/a.py | a_b@c.org | #W12",
            "x1 x2 x1": "x1 | x2",
            "x1" * 1_000_000: "",
        }.items():
            assert names_in([UserMessage(text)], "", 8_000) == names

    def test_of_many_names_the_newest_are_retained_and_none_is_truncated(self):
        floods = [" ".join(f"id_{n}_{k}" for k in range(1_000)) for n in range(200)]
        names = names_in(map(UserMessage, floods), "", 5_000).split(" | ")
        assert names[0].startswith("id_199_")
        assert {name.count("_") for name in names} == {2}
        assert 500 < len(names) < 1_000

    @pytest.mark.parametrize("form", ["id_{n}_{k}", "{n}{k:02}", '"Oak Street {n} {k}"'])
    async def test_the_list_of_names_takes_at_most_a_fifth_of_the_budget_in_tokens(self, form):
        floods = [" ".join(form.format(n=n, k=k) for k in range(59)) for n in range(60)]
        agent = make(*floods, context_budget=2_000)
        for n in range(60):
            await agent.query(f"prompt {n}")
        lists = [record.content.partition(NAMES)[2] for record in summaries(agent)]
        assert 380 <= max(map(count_tokens, lists)) <= 400
