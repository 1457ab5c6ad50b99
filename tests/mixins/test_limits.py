"""Limits: a run ends at its limits, during the run, and says what it has done."""

import asyncio
import time
from math import inf, nan

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentloop import (
    Agent,
    AssistantMessage,
    CompactionConfig,
    Depends,
    Inbox,
    Loop,
    Overloaded,
    Reset,
    RunStart,
    ScriptedModel,
    Session,
    SideRequest,
    Stop,
    Summary,
    ToolCallEvent,
    ToolMessage,
    ToolStart,
    Usage,
    UsageEvent,
    UserMessage,
    assert_prefix_stable,
    current_agent,
    dump_record,
    load_record,
    tool,
    validate,
)
from agentloop.messages import Decision, ToolCall
from agentloop.mixins.compaction import SUMMARY_PROMPT
from agentloop.mixins.limits import CUT_SHORT, LAST_WORDS, NOT_RUN, Limits, Spending, Spent, spent
from agentloop.models.fallback import Fallback
from agentloop.models.scripted import call

from .. import test_loop
from ..test_loop import add, fail, shown


class Limited(Limits, Agent):
    """The plain case."""


class EveryLimit(Limits):
    """All limits are set, and far away: the loop's contract holds all the same."""

    max_requests = max_tokens = max_tool_calls = max_tool_failures = 10_000
    max_seconds, max_calls_per_turn = 10_000.0, 1000


class Clock:
    """A clock that a test moves on."""

    def __init__(self):
        self.more = 0.0

    def __call__(self):
        return time.time() + self.more


def reply(*calls, text="", used=10, model=None):
    return AssistantMessage(text, tuple(calls), usage=Usage(used - 1, 1), model=model)


def again(messages, tools):
    """A model that never ends by itself."""
    if messages[-1].text == LAST_WORDS:
        return "I have added."
    return reply(call("add", a=1, b=len(messages)), text=f"step {len(messages)}")


def price(model, usage):
    return usage.total_tokens / 10


WAYS = ["run", "query_stream", "run_sync"]


def play(agent, way, prompt="x"):
    async def streamed():
        async with agent.query_stream(prompt) as stream:
            async for _ in stream:
                pass
        return stream.result

    if way == "run_sync":
        return agent.run_sync(prompt)
    return asyncio.run(agent.run(prompt) if way == "run" else streamed())


def results(agent):
    return [m for m in agent.messages if isinstance(m, ToolMessage)]


def is_closed(agent):
    return validate([*agent.messages, UserMessage("next")]) == []


class TestLimits(test_loop.TestLoop):
    agent_class = Limits


class TestEveryLimit(test_loop.TestLoop):
    agent_class = EveryLimit


# ---- each limit at its edge, over all ways to run


@pytest.mark.parametrize("way", WAYS)
class TestAtTheEdge:
    @pytest.mark.parametrize("most", [1, 2, 5])
    def test_requests(self, way, most):
        agent = Limited(llm=ScriptedModel(again), tools=[add], max_requests=most)
        result = play(agent, way)
        assert result.stop_reason == "limit:requests"
        assert len(agent.llm.requests) == most
        assert len(results(agent)) == most, "the calls of the last reply have run"
        assert is_closed(agent)

    def test_as_many_requests_as_allowed_are_enough(self, way):
        llm = ScriptedModel(call("add", a=1, b=1), "2")
        result = play(Limited(llm=llm, tools=[add], max_requests=2), way)
        assert (result.text, result.stop_reason) == ("2", "completed")

    @pytest.mark.parametrize(("most", "requests"), [(1, 1), (10, 1), (11, 2), (20, 2), (21, 3)])
    def test_tokens(self, way, most, requests):
        agent = Limited(llm=ScriptedModel(again), tools=[add], max_tokens=most)
        result = play(agent, way)
        assert result.stop_reason == "limit:tokens"
        assert len(agent.llm.requests) == requests
        assert results(agent)[-1].text == NOT_RUN.format("tokens"), (
            "it could show its result to nobody"
        )
        assert is_closed(agent)

    @pytest.mark.parametrize(("most", "requests"), [(0.5, 1), (1, 1), (1.01, 2), (2, 2)])
    def test_cost(self, way, most, requests):
        agent = Limited(llm=ScriptedModel(again), tools=[add], max_cost=most, limit_price=price)
        result = play(agent, way)
        assert result.stop_reason == "limit:cost"
        assert len(agent.llm.requests) == requests
        assert is_closed(agent)

    def test_seconds(self, way):
        clock = Clock()

        @tool
        async def work() -> None:
            """Work for a while."""
            clock.more += 10

        llm = ScriptedModel(lambda m, t: call("work"))
        agent = Limited(llm=llm, tools=[work], max_seconds=25, limit_clock=clock)
        result = play(agent, way)
        assert result.stop_reason == "limit:seconds"
        assert len(llm.requests) == 3
        assert is_closed(agent)

    @pytest.mark.parametrize("most", [1, 3, 4])
    def test_tool_calls(self, way, most):
        agent = Limited(llm=ScriptedModel(again), tools=[add], max_tool_calls=most)
        result = play(agent, way)
        assert result.stop_reason == "limit:tool_calls"
        assert len(agent.llm.requests) == most + 1, "the model may answer after the last call"
        assert [m.is_error for m in results(agent)] == [False] * most + [True]
        assert is_closed(agent)

    def test_as_many_calls_as_allowed_are_enough(self, way):
        llm = ScriptedModel([call("add", a=1, b=1), call("add", a=2, b=2)], "ok")
        result = play(Limited(llm=llm, tools=[add], max_tool_calls=2), way)
        assert (result.text, result.stop_reason) == ("ok", "completed")

    def test_tool_calls_of_one_turn(self, way):
        calls = [call("add", a=i, b=0) for i in range(10)]
        agent = Limited(llm=ScriptedModel(calls, "next"), tools=[add], max_tool_calls=3)
        result = play(agent, way)
        assert (result.stop_reason, result.pending) == ("limit:tool_calls", ())
        assert [m.text for m in results(agent)] == ["0", "1", "2"] + 7 * [
            NOT_RUN.format("tool_calls")
        ]
        assert sum(isinstance(record, ToolStart) for record in agent.log) == 3
        assert is_closed(agent)
        assert agent.run_sync("go on").text == "next"

    def test_calls_per_turn(self, way):
        calls = [call("add", a=i, b=0) for i in range(10)]
        agent = Limited(llm=ScriptedModel(calls, "ok"), tools=[add], max_calls_per_turn=4)
        result = play(agent, way)
        assert (result.text, result.stop_reason) == ("ok", "completed")
        texts = shown(agent.llm.requests[1])[2:]
        assert texts[:4] == ["0", "1", "2", "3"]
        assert len(texts) == 10
        assert all(text.startswith("Not run: only 4 calls of one turn") for text in texts[4:])

    @pytest.mark.parametrize("most", [1, 3])
    def test_failures_of_one_tool_in_a_row(self, way, most):
        agent = Limited(
            llm=ScriptedModel(lambda m, t: call("fail", how="x")),
            tools=[fail],
            max_tool_failures=most,
        )
        result = play(agent, way)
        assert result.stop_reason == "limit:tool_failures"
        assert "fail" in result.text
        assert len(results(agent)) == most
        assert is_closed(agent)


# ---- what counts


async def test_200_calls_in_one_turn_are_200_answers_and_few_runs():
    most = running = 0

    @tool
    async def count(i: int) -> int:
        """Count."""
        nonlocal most, running
        running += 1
        most = max(most, running)
        await asyncio.sleep(0)
        running -= 1
        return i

    calls = [call("count", i=i) for i in range(200)]
    agent = Limited(
        llm=ScriptedModel(calls, "ok"), tools=[count], max_calls_per_turn=20, max_parallel=6
    )
    assert await agent.query("x") == "ok"
    assert most == 6
    assert len(results(agent)) == 200
    assert [m.text for m in results(agent)[:20]] == [str(i) for i in range(20)]
    assert sum(m.is_error for m in results(agent)) == 180


@pytest.mark.parametrize(
    ("per_turn", "in_all", "reason", "ran"),
    [(3, 5, "completed", 3), (5, 3, "limit:tool_calls", 3), (3, 3, "limit:tool_calls", 3)],
)
async def test_the_nearer_of_two_limits_of_calls_holds(per_turn, in_all, reason, ran):
    calls = [call("add", a=i, b=0) for i in range(10)]
    agent = Limited(
        llm=ScriptedModel(calls, "ok"),
        tools=[add],
        max_calls_per_turn=per_turn,
        max_tool_calls=in_all,
    )
    assert (await agent.run("x")).stop_reason == reason
    assert sum(isinstance(record, ToolStart) for record in agent.log) == ran


async def test_a_success_or_another_tool_ends_no_streak_but_its_own():
    bad, good = call("fail"), call("add", a=1, b=1)
    llm = ScriptedModel(bad, good, bad, good, bad, "never")
    agent = Limited(llm=llm, tools=[fail, add], max_tool_failures=3)
    assert (await agent.run("x")).stop_reason == "limit:tool_failures"

    flaky = iter([False, False, True] * 2)

    @tool
    async def sometimes() -> None:
        """Work now and then."""
        assert next(flaky)

    llm = ScriptedModel(*[call("sometimes")] * 6, "ok")
    assert await Limited(llm=llm, tools=[sometimes], max_tool_failures=3).query("x") == "ok"


async def test_arguments_that_are_always_bad_end_the_run():
    llm = ScriptedModel(lambda m, t: call("add", a="x"))
    agent = Limited(llm=llm, tools=[add], max_tool_failures=3)
    assert (await agent.run("x")).stop_reason == "limit:tool_failures"
    assert len(llm.requests) == 3


async def test_failures_side_by_side_count_in_the_order_of_their_calls():
    bad = call("fail")
    for last, reason in ((bad, "limit:tool_failures"), (call("add", a=1, b=1), "completed")):
        llm = ScriptedModel([bad, bad, last], "ok")
        agent = Limited(llm=llm, tools=[fail, add], max_tool_failures=3)
        assert (await agent.run("x")).stop_reason == reason


def test_what_a_person_denied_is_no_failure_of_the_tool():
    asked = AssistantMessage(tool_calls=(call("add"),) * 1)
    log = [RunStart(), asked, Decision("", False), ToolMessage("", "add", "Denied", is_error=True)]
    assert spent(log).tool_failures == 0
    assert spent([*log[:2], log[3]]).tool_failures == 1


async def test_a_done_tool_runs_at_the_limit_and_is_not_counted():
    for limit in ({"max_tokens": 15}, {"max_tool_calls": 1}, {"max_requests": 2}):
        turns = [reply(call("add", a=1, b=1)), reply(call("done", message="fine"))]
        agent = Limited(llm=ScriptedModel(*turns), tools=[add], require_done_tool=True, **limit)
        result = await agent.run("x")
        assert (result.text, result.stop_reason) == ("fine", "done"), limit


async def test_done_is_not_believed_beside_calls_that_did_not_run():
    turns = [[call("add", a=1, b=1), call("add", a=2, b=2), call("done", message="all added")]]
    agent = Limited(
        llm=ScriptedModel(*turns), tools=[add], require_done_tool=True, max_tool_calls=1
    )
    assert (await agent.run("x")).stop_reason == "limit:tool_calls"
    llm = ScriptedModel(*turns, call("add", a=2, b=2), call("done", message="now"))
    agent = Limited(llm=llm, tools=[add], require_done_tool=True, max_calls_per_turn=1)
    assert await agent.query("x") == "now"
    turns = [reply(call("add", a=1, b=1), call("done", message="added"))]
    agent = Limited(llm=ScriptedModel(*turns), tools=[add], require_done_tool=True, max_tokens=10)
    assert (await agent.run("x")).stop_reason == "limit:tokens"


async def test_a_message_into_the_run_resets_nothing():
    class Steered(Inbox, Limits, Agent):
        pass

    def steering(messages, tools):
        agent.send("be quick")
        return again(messages, tools)

    agent = Steered(llm=ScriptedModel(steering), tools=[add], max_requests=3)
    assert (await agent.run("x")).stop_reason == "limit:requests"
    assert len(agent.llm.requests) == 3
    assert sum(m.text == "be quick" for m in agent.messages) == 3


async def test_each_run_counts_from_zero_and_so_does_one_that_goes_on():
    agent = Limited(llm=ScriptedModel(again), tools=[add], max_requests=2)
    for prompt in ("x", None, "y", None):
        result = await agent.run(prompt)
        assert (result.stop_reason, result.usage.total_tokens) == ("limit:requests", 20)
    assert len(agent.llm.requests) == 8


async def test_a_fork_has_the_limits_and_a_count_of_its_own():
    agent = Limited(llm=ScriptedModel(again), tools=[add], max_requests=2)
    await agent.run("x")
    twin = agent.fork()
    assert (await twin.run("y")).stop_reason == "limit:requests"
    assert len(agent.llm.requests) == 4
    assert spent(agent.log).requests == spent(twin.log).requests == 2


async def test_a_fork_inside_a_run_begins_a_run_of_its_own():
    @tool
    async def ask_a_twin(agent: Loop = Depends(current_agent)) -> str:
        """Ask a twin."""
        twin = agent.fork()
        twin.tools = [add]
        return (await twin.run("you")).stop_reason

    def model(messages, tools):
        return again(messages, tools) if len(tools) == 1 and tools[0] is add else call("ask_a_twin")

    agent = Limited(llm=ScriptedModel(model), tools=[ask_a_twin], max_requests=2)
    assert (await agent.run("x")).stop_reason == "limit:requests"
    assert [m.text for m in results(agent)] == ["limit:requests"] * 2
    assert len(agent.llm.requests) == 6


async def test_a_restart_in_the_middle_of_a_run_counts_from_the_new_run(tmp_path):
    class Kept(Limits, Session, Agent):
        pass

    def cut(messages, tools):
        raise KeyboardInterrupt

    settings = {"tools": [add], "session": "s", "session_dir": tmp_path, "max_requests": 2}
    first = Kept(llm=ScriptedModel(again, cut), **settings)
    with pytest.raises(KeyboardInterrupt):
        await first.run("x")
    first.close()
    second = Kept(llm=ScriptedModel(again), **settings)
    assert spent(second.log).requests == 1
    assert (await second.run()).stop_reason == "limit:requests"
    assert len(second.llm.requests) == 2
    second.close()
    third = Kept(llm=ScriptedModel("ok"), **settings)
    assert await third.query("y") == "ok"
    third.close()


async def test_calls_that_were_open_count_when_they_run_and_not_as_failures():
    class Asking(Limits, Agent):
        allowed: bool = False

        async def call_tool(self, call):
            if not self.allowed:
                raise Stop("needs_approval")
            return await super().call_tool(call)

    calls = [call("add", a=i, b=0) for i in range(3)]
    agent = Asking(llm=ScriptedModel(calls, "ok"), tools=[add], max_tool_calls=2)
    agent.max_tool_calls = None
    result = await agent.run("x")
    assert len(result.pending) == 3
    agent.allowed, agent.max_tool_calls = True, 2
    result = await agent.run()
    assert result.stop_reason == "limit:tool_calls"
    assert [m.is_error for m in results(agent)] == [False, False, True]
    assert spent(agent.log).tool_calls == 2
    assert await agent.query("y") == "ok"


# ---- side requests


def summarizing(messages, tools):
    if messages[-1].text == SUMMARY_PROMPT:
        return "SUM"
    return AssistantMessage("word " * 400, (call("add", a=1, b=len(messages)),))


@pytest.mark.parametrize("most", range(1, 9))
@pytest.mark.parametrize("order", ["first", "last"])
async def test_summaries_count_wherever_the_mixin_stands(order, most):
    bases = (Limits, Agent) if order == "first" else (Agent, Limits)
    agent = type("Both", bases, {})(
        llm=ScriptedModel(summarizing),
        tools=[add],
        max_requests=most,
        compaction=CompactionConfig(context_window=1500),
    )
    result = await agent.run("x")
    assert result.stop_reason == "limit:requests"
    assert len(agent.llm.requests) == most
    if most > 4:
        assert any(isinstance(record, Summary) for record in agent.log)
    assert is_closed(agent)


async def test_a_run_that_ends_at_its_summary_says_what_that_says():
    texts = set()
    for most in range(1, 9):
        agent = Limited(
            llm=ScriptedModel(summarizing),
            tools=[add],
            max_requests=most,
            compaction=CompactionConfig(context_window=1500),
        )
        texts |= {(await agent.run("x")).text.endswith("\n\nSUM")}
    assert texts == {True, False}


async def test_what_a_tool_spends_keeps_the_next_call_from_running():
    @tool(parallel=False)
    async def ask(agent: Loop = Depends(current_agent)) -> str:
        """Ask a sub-agent."""
        agent.record(SideRequest(Usage(40, 10), model="small"))
        return "asked"

    agent = Limited(llm=ScriptedModel([call("ask")] * 4), tools=[ask], max_tokens=100)
    assert (await agent.run("x")).stop_reason == "limit:tokens"
    assert [m.text for m in results(agent)] == ["asked"] * 2 + [NOT_RUN.format("tokens")] * 2
    assert spent(agent.log).requests == 3


# ---- tokens and money that are not what one expects


async def test_usage_that_is_none_counts_no_tokens_but_a_request():
    llm = ScriptedModel(call("add", a=1, b=1), call("add", a=1, b=2), "ok")
    agent = Limited(llm=llm, tools=[add], max_tokens=1, max_requests=3)
    assert await agent.query("x") == "ok"
    assert spent(agent.log) == Spent(requests=3, tool_calls=2, failing="add")


async def test_cached_tokens_are_a_part_of_the_input():
    used = AssistantMessage("", (call("add", a=1, b=1),), usage=Usage(5, 1, cached_input_tokens=99))
    agent = Limited(llm=ScriptedModel(used, "ok"), tools=[add], max_tokens=7)
    assert await agent.query("x") == "ok"


@pytest.mark.parametrize("bad", [None, nan, inf, -1.0, "much", ZeroDivisionError()])
async def test_where_no_price_is_known_the_run_ends_after_one_request(bad):
    def no_price(model, usage):
        if isinstance(bad, Exception):
            raise bad
        return bad

    llm = ScriptedModel(again)
    agent = Limited(llm=llm, tools=[add], max_cost=1000, limit_price=no_price)
    result = await agent.run("x")
    assert result.stop_reason == "limit:cost"
    assert "not known" in result.text
    assert len(llm.requests) == 1
    assert is_closed(agent)


async def test_the_price_is_that_of_the_model_which_answered():
    asked = []

    def by_model(model, usage):
        asked.append(model)
        return {"big": 10.0, "small": 0.1}[model]

    llm = Fallback(
        ScriptedModel(Overloaded("down"), model="small"), ScriptedModel(again, model="big")
    )
    agent = Limited(llm=llm, tools=[add], max_cost=5.0, limit_price=by_model)
    assert (await agent.run("x")).stop_reason == "limit:cost"
    assert set(asked) == {"big"}


# ---- time, while something is under way


@pytest.mark.parametrize("way", WAYS)
def test_a_model_that_hangs_is_stopped(way):
    stopped = []

    async def hang(messages, tools):
        try:
            await asyncio.Event().wait()
        finally:
            stopped.append(True)

    agent = Limited(llm=ScriptedModel(hang, "ok"), max_seconds=0.05)
    result = play(agent, way)
    assert result.stop_reason == "limit:seconds"
    assert stopped == [True]
    assert spent(agent.log).requests == 0
    assert agent.run_sync().text == "ok", "run() goes on"


@pytest.mark.parametrize("way", WAYS)
def test_tools_that_hang_are_stopped_and_others_keep_their_results(way):
    @tool
    async def hang() -> None:
        """Hang."""
        await asyncio.Event().wait()

    calls = [call("hang"), call("add", a=1, b=1), call("hang")]
    agent = Limited(llm=ScriptedModel(calls, "ok"), tools=[hang, add], max_seconds=0.05)
    result = play(agent, way)
    assert result.stop_reason == "limit:seconds"
    assert [m.text for m in results(agent)] == [CUT_SHORT, "2", CUT_SHORT]
    assert len(agent.llm.requests) == 1
    assert agent.run_sync("go on").text == "ok"


async def test_a_tool_that_refuses_to_stop_is_left_behind():
    release = asyncio.Event()

    @tool
    async def refuse() -> None:
        """Refuse."""
        while not release.is_set():
            try:
                await release.wait()
            except asyncio.CancelledError:
                continue

    llm = ScriptedModel(call("refuse"), "ok")
    agent = Limited(llm=llm, tools=[refuse], max_seconds=0.05, cancel_grace=0.01)
    assert (await agent.run("x")).stop_reason == "limit:seconds"
    release.set()
    await asyncio.sleep(0)
    assert await agent.query("go on") == "ok"


async def test_a_thread_that_hangs_does_not_hold_the_run():
    import threading

    release = threading.Event()

    @tool
    def hang() -> None:
        """Hang in a thread."""
        release.wait(30)

    agent = Limited(llm=ScriptedModel(call("hang"), "ok"), tools=[hang], max_seconds=0.05)
    result = await agent.run("x")
    release.set()
    assert result.stop_reason == "limit:seconds"
    assert results(agent)[0].text == CUT_SHORT


async def test_calls_that_wait_for_their_turn_never_start_when_time_is_up():
    clock = Clock()

    @tool(parallel=False)
    async def work() -> str:
        """Work for a while."""
        clock.more += 10
        return "worked"

    llm = ScriptedModel([call("work")] * 4)
    agent = Limited(llm=llm, tools=[work], max_seconds=15, limit_clock=clock)
    assert (await agent.run("x")).stop_reason == "limit:seconds"
    assert [m.text for m in results(agent)] == ["worked"] * 2 + [NOT_RUN.format("seconds")] * 2


async def test_a_call_that_waits_for_approval_when_time_is_up_is_known_not_to_have_run():
    class Asking(Loop):
        async def call_tool(self, call):
            await asyncio.Event().wait()
            return await super().call_tool(call)

    class Both(Limits, Asking):
        pass

    agent = Both(llm=ScriptedModel(call("add", a=1, b=1)), tools=[add], max_seconds=0.05)
    assert (await agent.run("x")).stop_reason == "limit:seconds"
    assert results(agent)[0].text == NOT_RUN.format("seconds")


@pytest.mark.parametrize("where", ["model", "tool"])
async def test_a_timeout_of_the_model_or_the_tool_itself_is_theirs(where):
    @tool
    async def late() -> None:
        """Be late."""
        raise TimeoutError("mine")

    llm = ScriptedModel(TimeoutError("mine") if where == "model" else call("late"))
    agent = Limited(llm=llm, tools=[late], max_seconds=1000, on_tool_error="raise")
    with pytest.raises(TimeoutError, match="mine"):
        await agent.run("x")


async def test_an_interrupt_at_the_moment_of_the_reply_is_an_interrupt():
    async def interrupted(messages, tools):
        agent.interrupt()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return "too late"

    agent = Limited(llm=ScriptedModel(interrupted, "ok"), max_seconds=1000)
    assert (await agent.run("x")).stop_reason == "interrupted"
    assert asyncio.current_task().cancelling() == 0


# ---- the last summary


@pytest.mark.parametrize(
    ("limit", "requests"),
    [
        ({"max_requests": 2}, 2),
        ({"max_tokens": 15}, 2),
        ({"max_cost": 1.5, "limit_price": price}, 2),
        ({"max_tool_calls": 1}, 2),
    ],
)
async def test_a_last_summary_is_one_more_request(limit, requests):
    llm = ScriptedModel(again)
    agent = Limited(llm=llm, tools=[add], limit_summary=True, **limit)
    events = [event async for event in agent.query_stream("x")]
    assert len(llm.requests) == requests + 1
    last = llm.requests[-1]
    assert (last.messages[-1].text, last.tool_choice) == (LAST_WORDS, "auto")
    assert_prefix_stable(llm.requests)
    assert last.messages[: len(llm.requests[-2].messages)] == llm.requests[-2].messages
    assert [tool.name for tool in last.tools] == ["add"]
    assert events[-1].content.endswith("I have added.")
    assert isinstance(agent.log[-2], SideRequest)
    assert is_closed(agent)
    assert not any(m.text == LAST_WORDS for m in agent.messages)


async def test_without_a_summary_the_result_has_the_numbers_and_the_models_last_words():
    agent = Limited(llm=ScriptedModel(again), tools=[add], max_requests=2)
    text = (await agent.run("x")).text
    assert text.startswith(
        "Stopped at max_requests=2. Until then: 2 requests, 20 tokens, 2 tool calls"
    )
    assert text.endswith("\n\nstep 3")


async def test_the_last_summary_is_counted_and_told_of():
    def model(messages, tools):
        if messages[-1].text == LAST_WORDS:
            return AssistantMessage("So far so good.", usage=Usage(70, 7))
        return again(messages, tools)

    agent = Limited(llm=ScriptedModel(model), tools=[add], max_requests=1, limit_summary=True)
    events = [event async for event in agent.query_stream("x")]
    assert UsageEvent(Usage(70, 7), "scripted") in events
    assert agent.usage.total_tokens == 87


@pytest.mark.parametrize("failure", [RuntimeError("down"), TimeoutError(), Stop("refused"), ""])
async def test_a_last_summary_that_fails_changes_nothing_else(failure):
    def model(messages, tools):
        return failure if messages[-1].text == LAST_WORDS else again(messages, tools)

    agent = Limited(llm=ScriptedModel(model), tools=[add], max_requests=1, limit_summary=True)
    result = await agent.run("x")
    assert result.stop_reason == "limit:requests"
    assert result.text.endswith("step 1")
    assert is_closed(agent)


async def test_calls_in_the_last_summary_do_not_run():
    llm = ScriptedModel(lambda m, t: call("add", a=1, b=len(m)))
    agent = Limited(llm=llm, tools=[add], max_requests=2, limit_summary=True)
    result = await agent.run("x")
    assert (result.stop_reason, result.pending) == ("limit:requests", ())
    assert len(results(agent)) == 2
    assert is_closed(agent)


async def test_a_tool_that_was_forced_is_not_forced_in_the_last_summary():
    llm = ScriptedModel("I have added.")
    settings = {"tools": [add], "tool_choice": "required", "limit_summary": True}
    agent = Limited(llm=llm, max_seconds=10, limit_clock=lambda: time.time() + 100, **settings)
    assert (await agent.run("x")).text.endswith("I have added.")
    assert [request.tool_choice for request in llm.requests] == ["auto"]


async def test_after_a_model_that_hung_the_summary_is_asked_for_once():
    async def model(messages, tools):
        if messages[-1].text != LAST_WORDS:
            await asyncio.Event().wait()
        return "Nothing yet."

    agent = Limited(llm=ScriptedModel(model), max_seconds=0.05, limit_summary=True)
    result = await agent.run("x")
    assert (result.stop_reason, result.text.split("\n\n")[1]) == ("limit:seconds", "Nothing yet.")
    assert len(agent.llm.requests) == 2


# ---- settings


TYPES = Limits.__annotations__
NAMES = [name for name in TYPES if name.startswith("max_")]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("most", [0, -1, nan, inf, "5", True])
def test_a_limit_that_is_none_says_so(name, most):
    with pytest.raises(ValueError, match=f"{name} is a .*number above 0, or None for no limit"):
        Limits(llm=ScriptedModel(), limit_price=price, **{name: most})


@pytest.mark.parametrize("name", [name for name in NAMES if "float" not in str(TYPES[name])])
def test_what_is_counted_has_a_whole_number_as_its_limit(name):
    with pytest.raises(ValueError, match=f"{name} is a whole number above 0, or None"):
        Limits(llm=ScriptedModel(), **{name: 1.5})


def test_one_name_is_no_list_of_exempt_tools():
    with pytest.raises(TypeError, match=r"limit_exempt= takes a list: \['done'\]"):
        Limits(llm=ScriptedModel(), limit_exempt="done")


@pytest.mark.parametrize(
    "wrong", [{"max_cost": 1}, {"max_cost": 1, "limit_price": 5}, {"limit_price": 5}]
)
def test_a_limit_of_money_needs_a_price(wrong):
    with pytest.raises(ValueError, match="max_cost needs limit_price=, a function of"):
        Limits(llm=ScriptedModel(), **wrong)


async def test_outside_of_a_run_the_context_can_be_looked_at():
    agent = Limited(llm=ScriptedModel(again), tools=[add], max_requests=1)
    await agent.run("x")
    agent.record(Summary("SUM", 0))
    assert await agent.context()


async def test_refused_calls_start_nothing_and_are_no_events():
    calls = [call("add", a=i, b=0) for i in range(3)]
    agent = Limited(llm=ScriptedModel(calls), tools=[add], max_tool_calls=1)
    events = [event async for event in agent.query_stream("x")]
    assert sum(isinstance(event, ToolCallEvent) for event in events) == 1


# ---- the count


usages = st.none() | st.builds(
    Usage, *[st.integers(0, 10**6)] * 2, cached_input_tokens=st.integers(0, 10**6)
)
requests = (
    st.builds(AssistantMessage, st.text(), usage=usages, model=st.sampled_from("ab"))
    | st.builds(SideRequest, usages, model=st.sampled_from("ab"))
    | st.builds(Summary, st.text(), st.just(0), usages, model=st.sampled_from("ab"))
)
others = (
    st.builds(UserMessage, st.text(min_size=1)) | st.builds(ToolStart, st.text()) | st.builds(Reset)
)


@given(st.lists(requests | others), st.lists(requests | others))
def test_what_is_spent_is_the_sum_over_the_log_since_the_run_began(before, run):
    count = spent(
        [*before, RunStart(at=100), *run], lambda model, usage: usage.total_tokens, (), now=107
    )
    asked = [record for record in run if hasattr(record, "usage")]
    used = [record.usage for record in asked]
    assert count.requests == len(asked)
    assert count.tokens == sum(usage.total_tokens for usage in used if usage)
    assert count.cost == (None if None in used else count.tokens)
    assert count.seconds == 7
    assert count.tool_calls == sum(isinstance(record, ToolStart) for record in run)


results_of_tools = st.builds(
    ToolMessage,
    st.sampled_from("1234"),
    st.sampled_from(["look", "add"]),
    st.just("text"),
    is_error=st.booleans(),
    extra=st.none() | st.just({"limit": "tokens"}),
)
called = st.builds(
    lambda ids: AssistantMessage("", tuple(ToolCall(id, "look", "{}") for id in ids)),
    st.permutations("1234"),
)
starts = st.builds(RunStart, at=st.just(100.0)) | st.builds(ToolStart, st.sampled_from("1234"))
decisions = st.builds(Decision, st.sampled_from("1234"), st.booleans())


@given(st.lists(requests | others | called | starts | decisions | results_of_tools, max_size=30))
def test_a_log_that_is_read_record_by_record_comes_to_the_same_as_at_once(log):
    bit_by_bit = Spending(price, ["look"])
    for end in range(len(log) + 1):
        bit_by_bit.catch_up(log[:end])
        assert bit_by_bit.spent(107) == spent(log[:end], price, ["look"], now=107)


def test_each_record_is_counted_and_priced_once_however_long_the_run_is():
    priced = []

    class Priced(list):
        """Such as an object with data: it cannot be hashed, and may be empty."""

        def __call__(self, model, usage):
            priced.append(usage)
            return 0.0

    llm = ScriptedModel(*(reply(call("add", a=1, b=n), model="m") for n in range(30)), "ok")
    agent = Limited(llm=llm, tools=[add], max_cost=1.0, limit_price=Priced())
    assert agent.run_sync("x").stop_reason == "completed"
    assert len(priced) == 30


def test_without_a_run_nothing_is_spent():
    assert (
        spent([]) == spent([UserMessage("x"), AssistantMessage("y", usage=Usage(1, 1))]) == Spent()
    )


async def test_the_count_is_the_same_from_a_saved_log():
    calls = [call("add", a=i, b=0) for i in range(10)]
    agent = Limited(llm=ScriptedModel(calls), tools=[add], max_tool_calls=3)
    await agent.run("x")
    read = [load_record(dump_record(record)) for record in agent.log]
    assert spent(read) == spent(agent.log)
    assert spent(read).refused == "tool_calls"
