"""Limits: a run ends at its limits, during the run, and reports its progress."""

import asyncio
import time
from contextvars import ContextVar

import anyio
import pytest

from agentloop import (
    Agent,
    CompactionConfig,
    Depends,
    Loop,
    Price,
    ScriptedModel,
    current_agent,
    tool,
)
from agentloop.common.summary import Summary
from agentloop.messages import AssistantMessage, Usage, UserMessage
from agentloop.mixins.compaction import SUMMARY_PROMPT
from agentloop.mixins.limits import NOT_RUN, Limits, RunUsage
from agentloop.models.scripted import call, validate_messages
from agentloop.transcript import OUTCOME_UNKNOWN, SideRequest, ToolStart
from tests.core import test_loop
from tests.core.test_loop import add, fail
from tests.helpers import late, results


class Limited(Limits, Agent): ...


PRICES = {"scripted": Price(input=100_000, output=100_000)}  # 0.1 per token


class EveryLimit(Limits):
    """An agent with very high limits, which fulfills the contract of the loop."""

    max_requests = max_tokens = max_tool_calls = max_tool_failures = 10_000
    max_seconds = 10_000.0


def reply(*calls, text="", used=10, model=None):
    return AssistantMessage(text, tuple(calls), usage=Usage(used - 1, 1), model=model)


def again(messages, tools):
    """A model that never stops calling tools."""
    return reply(call("add", a=1, b=len(messages)), text=f"step {len(messages)}")


def limited(*script, tools=(add,), **settings):
    return Limited(llm=ScriptedModel(*script), tools=tools, **settings)


def is_closed(agent):
    return validate_messages([*agent.messages, UserMessage("next")]) == []


ADD, DONE = call("add", a=1, b=1), call("done", message="fine")
BAD, WRONG = call("fail"), call("add", a="one", b=1)
EDGES = [  # the limit, its value, and the number of requests and calls until the end
    ("requests", 1, 1, 1),
    ("requests", 2, 2, 2),
    ("requests", 5, 5, 5),
    ("tokens", 1, 1, 0),
    ("tokens", 10, 1, 0),
    ("tokens", 11, 2, 1),
    ("tokens", 20, 2, 1),
    ("tokens", 21, 3, 2),
    ("cost", 0.5, 1, 0),
    ("cost", 1, 1, 0),
    ("cost", 1.01, 2, 1),
    ("cost", 2, 2, 1),
    ("tool_calls", 1, 2, 1),
    ("tool_calls", 3, 4, 3),
    ("tool_calls", 4, 5, 4),
]
mark: ContextVar[str] = ContextVar("mark", default="")


class TestEveryLimit(test_loop.TestLoop):
    agent_class = EveryLimit

    @pytest.mark.parametrize(("limit", "most", "requests", "ran"), EDGES)
    async def test_every_limit_ends_the_run_exactly_at_its_value(self, limit, most, requests, ran):
        agent = limited(again, prices=PRICES, **{f"max_{limit}": most})
        result = await agent.run("x")
        assert result.stop_reason == f"limit:{limit}"
        assert len(agent.llm.requests) == len(results(agent)) == requests
        assert sum(isinstance(record, ToolStart) for record in agent.log) == ran
        assert is_closed(agent)

    async def test_a_call_that_cancels_itself_does_not_end_the_run(self):
        @tool("Look")
        async def look() -> str:
            asyncio.current_task().cancel()
            return await asyncio.sleep(0, "not cancelled")

        agent = limited(call("look"), "ok", tools=[look], max_seconds=60)
        assert await agent.query("x") == "ok"
        assert results(agent) == [OUTCOME_UNKNOWN]

    async def test_a_success_of_another_tool_does_not_reset_the_failure_count(self):
        for turns, reason in (
            ([BAD, ADD], "limit:tool_failures"),
            ([WRONG, WRONG, ADD], "completed"),
        ):
            agent = limited(*turns * 3, "ok", tools=[fail, add], max_tool_failures=3)
            assert (await agent.run("x")).stop_reason == reason

    async def test_done_counts_as_no_call_and_is_ignored_if_other_calls_did_not_run(self):
        for turns, limit, end in (
            ([reply(ADD), reply(DONE)], {"max_tokens": 15}, "done"),
            ([reply(ADD), reply(DONE)], {"max_tool_calls": 1, "max_requests": 2}, "done"),
            ([[ADD, ADD, DONE]], {"max_tool_calls": 1}, "limit:tool_calls"),
            ([reply(ADD, DONE)], {"max_tokens": 10}, "limit:tokens"),
        ):
            agent = limited(*turns, require_done_tool=True, **limit)
            assert (await agent.run("x")).stop_reason == end
            assert len(agent.llm.requests) == len(turns)

    async def test_a_call_prevented_by_a_limit_counts_as_denied(self):
        agent = limited([ADD, ADD], "ok", max_tool_calls=1)
        await agent.run("x")
        states = [state.status for state in agent.conversation.states.values()]
        assert states == ["completed", "denied"]

    async def test_every_run_counts_from_zero_even_a_continued_one(self):
        agent = limited(again, max_requests=2)
        for prompt in ("x", None, "y", None):
            result = await agent.run(prompt)
            assert (result.stop_reason, result.usage.total_tokens) == ("limit:requests", 20)
        assert len(agent.llm.requests) == 8

    @pytest.mark.parametrize("most", [1, 4, 5, 8])
    @pytest.mark.parametrize("bases", [(Limits, Agent), (Agent, Limits)])
    @pytest.mark.parametrize("fails", [False, True])
    async def test_summary_requests_count_in_any_order_of_the_bases(self, bases, most, fails):
        def model(messages, tools):
            if messages[-1].text == SUMMARY_PROMPT:
                return RuntimeError("down") if fails else "SUM"
            return AssistantMessage("word " * 400, (call("add", a=1, b=len(messages)),))

        config = {"compaction": CompactionConfig(context_window=1500), "max_requests": most}
        agent = type("Both", bases, {})(llm=ScriptedModel(model), tools=[add], **config)
        assert (await agent.run("x")).stop_reason == "limit:requests"
        assert len(agent.llm.requests) == most
        assert most < 5 or fails != any(isinstance(record, Summary) for record in agent.log)
        assert is_closed(agent)

    async def test_tokens_used_by_a_tool_can_prevent_the_next_call(self):
        @tool("Ask a sub-agent", parallel=False)
        async def ask(agent: Loop = Depends(current_agent)) -> str:
            agent.record(SideRequest(usage=Usage(40, 10), model="small"))
            return "asked"

        agent = limited([call("ask")] * 4, tools=[ask], max_tokens=100)
        assert (await agent.run("x")).stop_reason == "limit:tokens"
        assert results(agent) == ["asked"] * 2 + [NOT_RUN.format("tokens")] * 2
        assert RunUsage(agent.log, None).catch_up().used["requests"] == 3

    @pytest.mark.parametrize("prices", [None, {"other-model": Price(1, 1)}])
    async def test_max_cost_without_a_price_is_an_error_before_the_first_request(self, prices):
        llm = ScriptedModel("ok", model="my-model")
        agent = Limited(llm=llm, max_cost=1000, prices=prices)
        message = r"'my-model' is unknown.* prices=\{'my-model': Price\(input=\.\.\."
        with pytest.raises(ValueError, match=message):
            await agent.run("x")
        assert llm.requests == []
        agent.prices = {"my-model": Price(1, 1)}
        with_usage = reply(text="fine")
        llm = agent.llm = ScriptedModel(with_usage, model="my-model")
        assert (await agent.run()).text == "fine", "run() retries"

    async def test_an_unknown_price_during_the_run_ends_the_run(self):
        agent = limited(reply(ADD, model="a sub-agent's"), max_cost=1000)
        result = await agent.run("x")
        assert result.stop_reason == "limit:cost"
        assert "cost None" in result.text
        assert len(agent.llm.requests) == 1
        assert is_closed(agent)

    async def test_a_scripted_model_is_free_for_max_cost_unless_prices_include_the_model(self):
        for script in ([call("add", a=1, b=2), "ok"], [reply(ADD), "ok"]):
            assert (await limited(*script, max_cost=0.01).run("x")).text == "ok"
            agent = limited(*script, max_cost=0.01, prices=PRICES)
            assert (await agent.run("x")).stop_reason == "limit:cost"

    async def test_a_replacement_model_has_its_own_price(self):
        prices = {"cheap": Price(1, 1), "dear": Price(1_000_000, 1_000_000)}
        llm = ScriptedModel(reply(ADD, used=1000), "ok", model="cheap")
        agent = Limited(llm=llm, tools=[add], max_cost=100, prices=prices)
        assert (await agent.run("x")).text == "ok"
        agent.llm = ScriptedModel(reply(ADD, used=1000), "ok", model="dear")
        assert (await agent.run("y")).stop_reason == "limit:cost"
        local = ScriptedModel(reply(ADD, used=1000), reply(text="ok"))
        agent = Limited(llm=ScriptedModel("x", model="nobody's"), tools=[add], max_cost=100)
        with pytest.raises(ValueError, match="nobody's"):
            await agent.run("x")
        agent.llm = local
        assert (await agent.run()).text == "ok"

    async def test_context_variables_set_by_a_request_remain_with_a_time_limit(self):
        class Left(Loop):
            async def call_model(self, request):
                reply = await super().call_model(request)
                mark.set("model")
                return reply

        class Both(Limits, Left): ...

        for seconds in (None, 60.0):
            mark.set("")
            await Both(llm=ScriptedModel("ok"), max_seconds=seconds).run("go")
            assert mark.get() == "model"

    async def test_a_scope_of_anyio_that_cancels_a_run_goes_on_after_its_block(self):
        agent = limited(late, "ok", max_seconds=60)
        with anyio.move_on_after(0.05) as scope:
            await agent.run("go")
        assert scope.cancelled_caught

    async def test_a_model_that_hangs_is_cancelled(self):
        agent = limited(late, "ok", max_seconds=0.05)
        assert (await agent.run("x")).stop_reason == "limit:seconds"
        assert len(asyncio.all_tasks()) == 1, "the request is cancelled"
        assert RunUsage(agent.log, None).catch_up().used["requests"] == 0
        assert (await agent.run()).text == "ok", "run() continues"

    async def test_tools_that_hang_are_cancelled_and_completed_results_are_retained(self):
        calls = [call("hang"), ADD, call("hang")]
        tools = [tool("Hang", name="hang")(lambda: late()), add]
        agent = limited(calls, "ok", tools=tools, max_seconds=0.05)
        assert (await agent.run("x")).stop_reason == "limit:seconds"
        assert results(agent) == [OUTCOME_UNKNOWN, "2", OUTCOME_UNKNOWN]
        assert len(agent.llm.requests) == 1
        assert (await agent.run("go on")).text == "ok"

    async def test_a_done_tool_does_not_hide_that_a_call_beside_it_was_cancelled(self):
        tools = [tool("Hang", name="hang")(lambda: late())]
        settings = {"require_done_tool": True, "max_seconds": 0.05}
        agent = limited([call("hang"), DONE], tools=tools, **settings)
        assert (await agent.run("x")).stop_reason == "limit:seconds"

    @pytest.mark.parametrize("where", ["model", "tool"])
    async def test_a_timeout_error_of_the_model_or_a_tool_is_not_a_limit(self, where):
        @tool("Be late")
        async def late() -> None:
            raise TimeoutError("mine")

        script = TimeoutError("mine") if where == "model" else call("late")
        agent = limited(script, tools=[late], max_seconds=1000, on_tool_error="raise")
        with pytest.raises(TimeoutError, match="mine"):
            await agent.run("x")

    @pytest.mark.parametrize("most", [0, -1, "5", True])
    def test_an_invalid_limit_is_an_error(self, most):
        with pytest.raises(ValueError, match="max_requests"):
            Limits(llm=ScriptedModel(), max_requests=most)


async def test_a_clock_change_during_a_run_does_not_end_the_run(monkeypatch):
    now = time.time

    @tool("Set the clock to tomorrow")
    def set_clock() -> None:
        monkeypatch.setattr(time, "time", lambda: now() + 86_400)

    llm = ScriptedModel(call("set_clock"), "ok")
    agent = Limited(llm=llm, tools=[set_clock], max_seconds=1000)
    assert await agent.query("go") == "ok"
