"""Cost: tokens and money per model, per run and in total, without double counting."""

import socket
import sys
from math import fsum

import pytest

from agentloop import Agent, ChatOpenAI, Limits, Price, ScriptedModel
from agentloop.common.prices import cost_of, genai_price
from agentloop.common.summary import Summary
from agentloop.events import UsageEvent
from agentloop.messages import AssistantMessage, Usage, UserMessage
from agentloop.mixins.cost import Bill, Cost
from agentloop.models.scripted import call
from agentloop.toolkits.subagent import as_tool
from agentloop.transcript import RunStart, SideRequest
from tests.core import test_loop
from tests.core.test_loop import add
from tests.doubles.fault_server import FaultServer, answer, send
from tests.helpers import record_all
from tests.properties import given, st

MILLION = 1_000_000
PRICES = {
    "big": Price(input=10, output=50, cached_input=1, cache_write=12.5),
    "small": Price(input=1, output=2),
}

tokens = st.integers(0, 10**6)


def usage_of(plain, read, written, output):
    return Usage(plain + read + written, output, read, written)


usages = st.none() | st.builds(usage_of, tokens, tokens, tokens, tokens)
models = st.sampled_from(["big", "small", "new", None])
records = (
    st.builds(AssistantMessage, st.text(), usage=usages, model=models)
    | st.builds(SideRequest, usage=usages, model=models)
    | st.builds(Summary, st.text(), st.just(0), usage=usages, model=st.sampled_from(["big", "new"]))
    | st.builds(UserMessage, st.text(min_size=1))
    | st.builds(RunStart)
)


class Priced(Cost, Agent):
    """An agent without compaction: the tests use more tokens than any context window."""

    compaction = None


def reply(text="ok", *calls, used=None, model=None):
    return AssistantMessage(text, tuple(calls), usage=used, model=model)


def priced(*script, model="scripted", **settings):
    """Run an agent until the script is replayed, with a separate run per answer."""
    agent = Priced(llm=ScriptedModel(*script, model=model), tools=[add], **settings)
    while len(agent.llm.requests) < len(script):
        agent.run_sync("x")
    return agent


def with_a_sub_agent(*outcomes, bases=(Cost, Agent), **settings):
    """Return an agent with a tool that calls a sub-agent, which replays the outcomes."""
    small = ScriptedModel(*outcomes, model="small")
    ask = as_tool(Agent(llm=small, tools=[add]), "ask", "Ask a sub-agent.")
    asks = (reply("", call("ask", prompt=p), used=Usage(MILLION // 2, 0)) for p in "ab")
    llm = ScriptedModel(*asks, reply(used=Usage(MILLION, 0)), model="big")
    return type("Both", bases, {})(llm=llm, tools=[ask], prices=PRICES, **settings)


@pytest.fixture
def genai(monkeypatch):
    def refuse(*args, **kwargs):
        raise AssertionError("a network connection was attempted")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    return pytest.importorskip("genai_prices")


class TestCost(test_loop.TestLoop):
    agent_class = Cost

    def test_each_token_is_counted_once(self):
        for usage, money in {
            Usage(MILLION, MILLION): 60,
            Usage(MILLION, 0, cached_input_tokens=MILLION): 1,
            Usage(MILLION, 0, cached_input_tokens=MILLION // 2): 5.5,
            Usage(MILLION, 0, cached_input_tokens=400_000, cache_write_tokens=600_000): 7.9,
            Usage(0, MILLION, reasoning_tokens=MILLION): 50,
        }.items():
            assert PRICES["big"].cost(usage) == pytest.approx(money)
            plain = usage.input_tokens + 2 * usage.output_tokens
            assert PRICES["small"].cost(usage) == pytest.approx(plain / MILLION), (
                "without a cache price"
            )

    def test_a_one_hour_cache_write_of_anthropic_costs_twice_the_input(self):
        for_an_hour = {"ephemeral_1h_input_tokens": MILLION}
        usage = Usage(MILLION, 0, cache_write_tokens=MILLION, extra=for_an_hour)
        agent = Cost(llm=ScriptedModel(), prices=PRICES)
        cost = cost_of([SideRequest(usage=usage, model="big")], agent.price)
        assert cost == pytest.approx(20)

    @pytest.mark.parametrize("bad", [{"big": 3.0}, {"big": Price(1, 2), "new": {"input": 1}}, 5])
    def test_invalid_prices_are_rejected(self, bad):
        with pytest.raises(TypeError, match="prices"):
            Cost(llm=ScriptedModel(), prices=bad)

    def test_cost_and_usage_per_model_per_run_and_in_total(self):
        one, two = Usage(MILLION, 0), Usage(0, MILLION, reasoning_tokens=5)
        first = reply("", call("add", a=1, b=1), used=one, model="small")
        turns = [first, reply(used=two, model="big")]
        agent = priced(*turns, *turns, prices=PRICES)
        assert agent.cost == pytest.approx(102)
        assert agent.bill == Bill(4, one + two + one + two, pytest.approx(102))
        assert agent.run_bill == Bill(2, one + two, pytest.approx(51))
        small, big = Bill(2, one + one, pytest.approx(2)), Bill(2, two + two, pytest.approx(100))
        assert agent.model_bills == {"small": small, "big": big}

    async def test_totals_include_the_requests_of_sub_agents(self):
        first = reply("", call("add", a=1, b=1), used=Usage(MILLION, 0))
        last = reply(used=Usage(0, MILLION))
        agent = with_a_sub_agent(first, last, first, last)
        events = [event async for event in agent.query_stream("x")]
        requests = [event for event in events if isinstance(event, UsageEvent)]
        small = Bill(4, Usage(2 * MILLION, 2 * MILLION), pytest.approx(6))
        assert agent.model_bills["small"] == small
        assert agent.cost == pytest.approx(26)
        assert len(requests) == agent.bill.requests == 7
        assert agent.run_bill == agent.bill

    async def test_max_cost_includes_sub_agents_and_uses_the_same_prices(self):
        settings = {"bases": (Limits, Cost, Agent), "max_cost": 11}
        agent = with_a_sub_agent(reply(used=Usage(MILLION, 0)), **settings)
        assert (await agent.run("x")).stop_reason == "limit:cost"
        assert agent.cost == pytest.approx(11)
        assert "the limit of cost is reached" in agent.messages[-1].text

    def test_without_genai_prices_the_cost_is_unknown(self, monkeypatch):
        monkeypatch.setitem(sys.modules, "genai_prices", None)
        agent = priced(reply(used=Usage(9, 1)), model="gpt-5-mini")
        assert agent.model_bills == {"gpt-5-mini": Bill(1, Usage(9, 1), None)}

    @pytest.mark.usefixtures("genai")
    def test_genai_prices_is_the_default_source_of_prices(self):
        used = Usage(MILLION // 10, 0, cached_input_tokens=MILLION // 20)
        costs = [priced(reply(used=used), model=f"{by}gpt-5-mini").cost for by in ("", "openai/")]
        assert costs[0] == costs[1], "the provider's prefix does not belong to the model name"
        plain = genai_price("gpt-5-mini", Usage(MILLION // 20, 0))
        assert 0 < costs[0] - plain < plain, "cached tokens are cheaper"

    @pytest.mark.usefixtures("genai")
    def test_max_cost_works_without_configured_prices(self):
        for tokens, reason in [(10, "completed"), (1_000_000, "limit:cost")]:
            replies = [reply("", call("add", a=1, b=2), used=Usage(tokens, 100)), "done"]
            llm = ScriptedModel(*replies, model="claude-sonnet-4-5")
            agent = Limits(llm=llm, tools=[add], max_cost=0.05)
            assert agent.run_sync("go").stop_reason == reason

    async def test_a_local_model_is_free_unless_prices_include_the_model(self):
        choice = {"message": {"content": "ok"}, "finish_reason": "stop"}
        body = {"choices": [choice], "usage": {"prompt_tokens": 1000, "completion_tokens": 100}}
        async with FaultServer([send(answer(body))]) as server:
            agent = Priced(llm=ChatOpenAI("gpt-4o", base_url=server.url))
            await agent.run("go")
            await agent.llm.aclose()
        assert agent.usage.total_tokens == 1100
        assert agent.cost == 0
        agent.prices = {"gpt-4o": Price(input=1000, output=0)}
        assert agent.cost == pytest.approx(1)

    @pytest.mark.parametrize(
        ("url", "cost"),
        [
            ("http://localhost:11434/v1", 0),
            ("http://127.0.0.1:8000/v1", 0),
            ("http://[::1]:8000/v1", 0),
            ("http://10.0.0.5/v1", 0),
            ("http://172.16.0.5:8000/v1", 0),
            ("http://192.168.1.5:8000/v1", 0),
            ("http://workstation:8000", 0),
            ("https://172.217.0.5/v1", None),
            ("https://api.example.com/v1", None),
            ("https://10.example.com/v1", None),
            ("https://localhost.example.com/v1", None),
        ],
    )
    def test_a_local_address_is_recognized(self, url, cost):
        llm = ChatOpenAI("my-model", base_url=url, api_key="k")
        assert Cost(llm=llm).price("my-model", Usage(10, 10)) == cost
        assert Cost(llm=llm).price("a-sub-agents-model", Usage(10, 10)) is None

    def test_a_scripted_model_is_free_unless_prices_include_the_model(self):
        assert priced(reply(used=Usage(MILLION, 0))).cost == 0
        assert priced("unreported usage").cost == 0
        assert priced("unreported usage", model="big", prices=PRICES).cost is None
        prices = {"scripted": Price(input=3, output=0)}
        assert priced(reply(used=Usage(MILLION, 0)), prices=prices).cost == pytest.approx(3)

    @given(st.lists(records))
    def test_totals_are_the_sums_over_the_log(self, log):
        agent = Priced(llm=ScriptedModel(), prices=PRICES)
        record_all(agent, log)
        requests = [record for record in log if hasattr(record, "usage")]
        unknown = [
            r for r in requests if (r.usage or r.model) and not (r.usage and r.model in PRICES)
        ]
        costs = [PRICES[r.model].cost(r.usage) for r in requests if r.usage and r.model in PRICES]
        assert agent.cost == (None if unknown else pytest.approx(fsum(costs)))
        assert (agent.bill.requests, agent.bill.usage) == (len(requests), agent.usage)
        parts = agent.model_bills.values()
        assert sum((part.usage for part in parts), Usage()) == agent.usage
        assert sum(part.requests for part in parts) == len(requests)
