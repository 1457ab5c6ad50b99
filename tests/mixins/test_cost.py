"""Cost: tokens and money per request, per model, per run and in all, each counted once."""

import asyncio
import socket
import sys
from math import fsum, inf, nan

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentloop import (
    Agent,
    AssistantMessage,
    CompactionConfig,
    Depends,
    Loop,
    Overloaded,
    RunStart,
    ScriptedModel,
    Session,
    SideRequest,
    Summary,
    Usage,
    UsageEvent,
    UserMessage,
    current_agent,
    tool,
)
from agentloop.mixins.compaction import SUMMARY_PROMPT
from agentloop.mixins.cost import (
    Bill,
    Cost,
    Price,
    add_up,
    bills,
    genai_price,
    price_of,
    run_counted,
)
from agentloop.mixins.limits import Limits
from agentloop.models.fallback import Fallback
from agentloop.models.scripted import call

from .. import test_loop
from ..test_loop import add

MILLION = 1_000_000
PRICES = {
    "big": Price(input=10, output=50, cached_input=1, cache_write=12.5),
    "small": Price(input=1, output=2),
}


class Priced(Cost, Agent):
    """The plain case. No window has the millions of tokens that are used here."""

    compaction = None


def said(text="ok", *calls, used=None, model=None):
    return AssistantMessage(text, tuple(calls), usage=used, model=model)


WAYS = ["run", "query_stream", "run_sync"]


def play(agent, way):
    async def streamed():
        async with agent.query_stream("x") as stream:
            return [event async for event in stream]

    if way == "run_sync":
        agent.run_sync("x")
    else:
        asyncio.run(agent.run("x") if way == "run" else streamed())


class TestCost(test_loop.TestLoop):
    agent_class = Cost


# ---- one price


@pytest.mark.parametrize(
    ("usage", "money"),
    [
        (Usage(), 0),
        (Usage(MILLION, 0), 10),
        (Usage(0, MILLION), 50),
        (Usage(MILLION, 0, cached_input_tokens=MILLION), 1),
        (Usage(MILLION, 0, cached_input_tokens=MILLION // 2), 5.5),
        (Usage(MILLION, 0, cached_input_tokens=400_000, cache_write_tokens=600_000), 7.9),
        (Usage(0, MILLION, reasoning_tokens=MILLION), 50),
        (Usage(MILLION, 0, cached_input_tokens=3 * MILLION), 1),
        (Usage(MILLION, 0, cached_input_tokens=MILLION, cache_write_tokens=MILLION), 1),
    ],
)
def test_each_token_is_counted_once(usage, money):
    assert PRICES["big"].cost(usage) == pytest.approx(money)


def test_without_prices_of_their_own_cached_tokens_cost_what_others_do():
    used = Usage(MILLION, 0, cached_input_tokens=MILLION // 2, cache_write_tokens=MILLION // 4)
    assert PRICES["small"].cost(used) == pytest.approx(1)


@pytest.mark.parametrize("bad", [-1, nan, inf, None])
def test_a_price_is_a_number(bad):
    with pytest.raises(ValueError, match="0 or more"):
        Price(input=1, output=bad)
    with pytest.raises(ValueError, match="0 or more"):
        Price(input=bad, output=1)


@pytest.mark.parametrize("bad", [{"big": 3.0}, {"big": PRICES["big"], "new": {"input": 1}}, 5])
def test_what_are_no_prices_is_refused_when_the_agent_is_made(bad):
    with pytest.raises(TypeError, match=r"prices= takes \{model: Price\(...\)\} or a function"):
        Cost(llm=ScriptedModel(), prices=bad)


# ---- sums


@pytest.mark.parametrize("way", WAYS)
def test_per_request_per_model_per_run_and_in_all(way):
    one, two = Usage(MILLION, 0), Usage(0, MILLION, reasoning_tokens=5)
    turns = [said("", call("add", a=1, b=1), used=one, model="small"), said(used=two, model="big")]
    agent = Priced(llm=ScriptedModel(*turns, *turns), tools=[add], prices=PRICES)
    play(agent, way)
    play(agent, way)
    assert agent.cost == pytest.approx(102)
    assert agent.bill == Bill(4, one + two + one + two, pytest.approx(102))
    assert agent.run_bill == Bill(2, one + two, pytest.approx(51))
    assert agent.model_bills == {
        "small": Bill(2, one + one, pytest.approx(2)),
        "big": Bill(2, two + two, pytest.approx(100)),
    }
    assert agent.bill.usage == agent.usage


async def test_each_request_is_an_event():
    turns = [
        said("", call("add", a=1, b=1), used=Usage(9, 1)),
        said(used=Usage(19, 1), model="big"),
    ]
    agent = Priced(llm=ScriptedModel(*turns, model="small"), tools=[add])
    told = [event async for event in agent.query_stream("x") if isinstance(event, UsageEvent)]
    assert told == [UsageEvent(Usage(9, 1), "small"), UsageEvent(Usage(19, 1), "big")]


def test_a_new_agent_has_spent_nothing():
    agent = Priced(llm=ScriptedModel(), prices=PRICES)
    assert (agent.cost, agent.run_bill, agent.model_bills) == (0.0, Bill(0, Usage(), 0.0), {})


async def test_summaries_are_requests_of_the_model_that_made_them():
    def model(messages, tools):
        if messages[-1].text == SUMMARY_PROMPT:
            return said("SUM", used=Usage(MILLION, 0))
        return "word " * 400 if len(messages) > 2 else said("", call("add", a=1, b=1))

    agent = Priced(
        llm=ScriptedModel(model, model="big"),
        tools=[add],
        prices=lambda name, usage: PRICES[name].cost(usage),
        compaction=CompactionConfig(context_window=1500),
    )
    for prompt in "abcdef":
        await agent.query(prompt)
    summaries = [r for r in agent.log if isinstance(r, Summary) and r.model]
    assert summaries
    assert agent.model_bills["big"].usage.input_tokens == MILLION * len(summaries)


async def test_a_session_knows_it_after_a_restart(tmp_path):
    class Kept(Cost, Session, Agent):
        pass

    settings = {"session": "s", "session_dir": tmp_path, "prices": PRICES}
    first = Kept(llm=ScriptedModel(said(used=Usage(MILLION, 0)), model="big"), **settings)
    await first.run("x")
    first.close()
    again = Kept(llm=ScriptedModel(said(used=Usage(MILLION, 0)), model="small"), **settings)
    assert again.cost == pytest.approx(10)
    await again.run("y")
    assert again.cost == pytest.approx(11)
    assert again.run_bill.cost == pytest.approx(1)
    again.close()


async def test_a_fork_takes_the_bill_along_and_adds_to_its_own():
    agent = Priced(
        llm=ScriptedModel(*[said(used=Usage(MILLION, 0))] * 2, model="big"), prices=PRICES
    )
    await agent.run("x")
    twin = agent.fork()
    await twin.run("y")
    assert (agent.cost, twin.cost) == (pytest.approx(10), pytest.approx(20))


async def test_the_price_is_that_of_the_model_which_answered():
    answer = said(used=Usage(MILLION, 0))
    llm = Fallback(
        ScriptedModel(Overloaded("down"), model="big"), ScriptedModel(answer, model="small")
    )
    agent = Priced(llm=llm, prices=PRICES)
    await agent.run("x")
    assert list(agent.model_bills) == ["small"]
    assert agent.cost == pytest.approx(1)


# ---- what is not known


async def test_a_model_without_a_price_costs_none_and_its_tokens_count():
    turns = [said(used=Usage(MILLION, 7), model="small"), said(used=Usage(3, 4), model="new")]
    agent = Priced(llm=ScriptedModel(*turns), prices=PRICES)
    await agent.run("x")
    assert agent.cost == pytest.approx(1.000014)
    await agent.run("y")
    assert agent.cost is None
    assert agent.run_bill == Bill(1, Usage(3, 4), None)
    assert agent.usage == Usage(MILLION + 3, 11)
    assert agent.model_bills["small"].cost == pytest.approx(1.000014)
    assert agent.model_bills["new"] == Bill(1, Usage(3, 4), None)


async def test_a_reply_without_usage_costs_none():
    agent = Priced(llm=ScriptedModel("ok", model="big"), prices=PRICES)
    await agent.run("x")
    assert agent.bill == Bill(1, Usage(), None)


def test_a_request_that_nobody_answered_costs_nothing():
    assert add_up(bills([SideRequest(extra={"compaction": "failed"})], genai_price)).cost == 0.0


@pytest.mark.parametrize("bad", [None, nan, inf, -1.0, "much", ZeroDivisionError()])
async def test_a_price_function_that_fails_or_gives_no_money_is_none(bad):
    def price(model, usage):
        if isinstance(bad, Exception):
            raise bad
        return bad

    agent = Priced(llm=ScriptedModel(said(used=Usage(1, 1))), prices=price)
    await agent.run("x")
    assert agent.cost is None
    assert agent.usage == Usage(1, 1)


# ---- sub-agents


def with_a_helper(outcomes, prices=PRICES, bases=(Cost, Agent), **settings):
    """An agent with a tool that asks a sub-agent, which plays these outcomes."""
    small = ScriptedModel(*outcomes, model="small")

    @tool(parallel=False)
    async def ask(what: str, agent: Loop = Depends(current_agent)) -> str:
        """Ask a sub-agent."""
        return (await run_counted(agent, Agent(llm=small, tools=[add]), what)).text

    turns = [
        said("", call("ask", what="a"), call("ask", what="b"), used=Usage(MILLION, 0)),
        said(used=Usage(MILLION, 0)),
    ]
    llm = ScriptedModel(*turns, model="big")
    return type("Both", bases, {})(llm=llm, tools=[ask], prices=prices, **settings)


async def test_requests_of_sub_agents_are_added_up():
    steps = [said("", call("add", a=1, b=1), used=Usage(MILLION, 0)), said(used=Usage(0, MILLION))]
    agent = with_a_helper([*steps, *steps])
    told = [event async for event in agent.query_stream("x") if isinstance(event, UsageEvent)]
    assert agent.model_bills["small"] == Bill(4, Usage(2 * MILLION, 2 * MILLION), pytest.approx(6))
    assert agent.cost == pytest.approx(26)
    assert len(told) == agent.bill.requests == 6
    assert agent.run_bill == agent.bill


async def test_a_sub_agent_that_fails_is_paid_for_too():
    first = said("", call("add", a=1, b=1), used=Usage(MILLION, 0))
    agent = with_a_helper([first, RuntimeError("down"), said(used=Usage(MILLION, 0))])
    await agent.run("x")
    assert agent.model_bills["small"].cost == pytest.approx(2)


async def test_sub_agents_of_sub_agents_are_counted_once():
    tiny = ScriptedModel(said(used=Usage(MILLION, 0)), model="small")

    @tool
    async def deeper(agent: Loop = Depends(current_agent)) -> str:
        """Ask further."""
        return (await run_counted(agent, Agent(llm=tiny), "z")).text

    @tool
    async def ask(agent: Loop = Depends(current_agent)) -> str:
        """Ask a sub-agent."""
        llm = ScriptedModel(said("", call("deeper"), used=Usage(1, 0)), said(used=Usage(1, 0)))
        return (await run_counted(agent, Agent(llm=llm, tools=[deeper]), "y")).text

    agent = Priced(llm=ScriptedModel(call("ask"), "ok"), tools=[ask], prices=PRICES)
    await agent.run("x")
    assert agent.model_bills["small"] == Bill(1, Usage(MILLION, 0), pytest.approx(1))
    assert agent.bill.requests == 5


async def test_a_limit_counts_sub_agents_and_the_same_prices():
    agent = with_a_helper(
        [said(used=Usage(MILLION, 0))],
        bases=(Limits, Cost, Agent),
        max_cost=11,
        limit_price=price_of(PRICES),
    )
    result = await agent.run("x")
    assert result.stop_reason == "limit:cost"
    assert agent.cost == pytest.approx(11)
    assert agent.messages[-1].text.startswith("Not run")


# ---- genai-prices


@pytest.fixture
def _no_network(monkeypatch):
    def refuse(*args, **kwargs):
        raise AssertionError("the network was asked for")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    genai_price.cache_clear()
    yield
    genai_price.cache_clear()


@pytest.mark.usefixtures("_no_network")
class TestGenaiPrices:
    def test_without_the_package_no_price_is_known(self, monkeypatch):
        monkeypatch.setitem(sys.modules, "genai_prices", None)
        agent = Priced(llm=ScriptedModel(said(used=Usage(9, 1)), model="gpt-5-mini"))
        agent.run_sync("x")
        assert agent.cost is None
        assert agent.model_bills == {"gpt-5-mini": Bill(1, Usage(9, 1), None)}

    def test_its_prices_are_used_where_none_are_given(self):
        pytest.importorskip("genai_prices")
        used = Usage(MILLION // 10, 0, cached_input_tokens=MILLION // 20)
        agent = Priced(llm=ScriptedModel(said(used=used), model="gpt-5-mini"))
        agent.run_sync("x")
        plain = genai_price("gpt-5-mini", Usage(MILLION // 20, 0))
        assert plain
        assert 0 < agent.cost - plain < plain, "cached tokens are cheaper"
        assert agent.cost < genai_price("gpt-5-mini", Usage(MILLION // 10, 0))

    def test_more_cached_tokens_than_input_are_no_error(self):
        pytest.importorskip("genai_prices")
        all_cached = genai_price("gpt-5-mini", Usage(1000, 0, cached_input_tokens=1000))
        assert genai_price("gpt-5-mini", Usage(1000, 0, cached_input_tokens=5000)) == all_cached

    def test_a_model_that_it_does_not_know_costs_none(self):
        pytest.importorskip("genai_prices")
        assert genai_price("scripted", Usage(1, 1)) is None

    def test_given_prices_do_not_load_it(self, monkeypatch):
        monkeypatch.delitem(sys.modules, "genai_prices", raising=False)
        agent = Priced(llm=ScriptedModel(said(used=Usage(9, 1)), model="new"), prices=PRICES)
        agent.run_sync("x")
        assert agent.cost is None
        assert "genai_prices" not in sys.modules


# ---- totals are sums over the log

tokens = st.integers(0, 10**6)
usages = st.none() | st.builds(
    Usage, tokens, tokens, cached_input_tokens=tokens, cache_write_tokens=tokens
)
models = st.sampled_from(["big", "small", "new", None])
requests = (
    st.builds(AssistantMessage, st.text(), usage=usages, model=models)
    | st.builds(SideRequest, usages, model=models)
    | st.builds(Summary, st.text(), st.just(0), usages, model=st.sampled_from(["big", "new"]))
)


@given(st.lists(requests | st.builds(UserMessage, st.text(min_size=1)) | st.builds(RunStart)))
def test_totals_are_the_sums_over_the_log(log):
    agent = Priced(llm=ScriptedModel(), prices=PRICES)
    agent.log.extend(log)
    asked = [record for record in log if hasattr(record, "usage")]
    known = [r for r in asked if r.usage is not None and r.model in PRICES]
    free = [r for r in asked if r.usage is None and r.model is None]
    assert agent.bill.requests == len(asked)
    assert agent.bill.usage == agent.usage
    if len(known) + len(free) < len(asked):
        assert agent.cost is None
    else:
        assert agent.cost == pytest.approx(fsum(PRICES[r.model].cost(r.usage) for r in known))
    parts = agent.model_bills.values()
    assert sum((part.usage for part in parts), Usage()) == agent.usage
    assert sum(part.requests for part in parts) == len(asked)
    last = max((at for at, r in enumerate(log) if isinstance(r, RunStart)), default=len(log))
    assert agent.run_bill == add_up(bills(log[last:], price_of(PRICES)))


@given(usages.filter(bool))
def test_no_token_is_paid_for_twice_or_missed(usage):
    flat = Price(input=3, output=5, cached_input=3, cache_write=3)
    assert flat.cost(usage) * MILLION == pytest.approx(
        usage.input_tokens * 3 + usage.output_tokens * 5
    )
