"""The loop's contract. The tests of every mixin inherit this class: a mixin has to keep it."""

import asyncio
import gc
import inspect
import logging
import math
import threading
import tracemalloc
from contextlib import nullcontext, suppress
from contextvars import ContextVar
from dataclasses import replace
from functools import partial
from typing import ClassVar

import pytest

from agentloop import (
    AgentBusy,
    AssistantMessage,
    Depends,
    FinalResponseEvent,
    Loop,
    Request,
    RunStopped,
    ScriptedModel,
    StepCompleteEvent,
    StepStartEvent,
    Stop,
    SystemMessage,
    TaskComplete,
    TextDeltaEvent,
    TextEvent,
    ThinkingDeltaEvent,
    ThinkingEvent,
    ToolCall,
    ToolCallEvent,
    ToolError,
    ToolMessage,
    ToolResultEvent,
    ToolStart,
    Usage,
    UsageEvent,
    UserMessage,
    assert_prefix_stable,
    current_agent,
    current_call,
    dump_record,
    load_record,
    tool,
    validate,
)
from agentloop.errors import report_failed_attempt
from agentloop.events import HiddenUserMessageEvent, ToolsChangedEvent
from agentloop.loop import EMPTY_REPLY, OUT_OF_TURNS
from agentloop.messages import Ask, RunEnd, RunStart, SideRequest
from agentloop.models.scripted import call
from agentloop.settings import settings_of
from agentloop.transcript import CUT_OFF, NEVER_STARTED, OUTCOME_UNKNOWN
from agentloop.waiting import wait_for

EXITS = (KeyboardInterrupt, SystemExit)


@tool("Add two numbers")
async def add(a: int, b: int) -> int:
    return a + b


@tool("Fail")
async def fail(how: str = "") -> str:
    raise LookupError(how)


@tool("Finish")
def finish(text: str) -> None:
    raise TaskComplete(text)


def shown(request):
    """What a request showed the model, a line a message."""
    return [message.text for message in request.messages]


async def cancelled(agent, begun):
    """The task of a run that was cancelled once `begun` was set, at its end."""
    task = asyncio.create_task(agent.run("x"))
    await begun.wait()
    task.cancel()
    await asyncio.wait([task])
    return task


def tool_threads():
    """The threads that plain tools run in just now."""
    return [each for each in threading.enumerate() if each.name == "tool thread"]


def ids_in(agent):
    """The ids of the calls in an agent's log."""
    replies = (record for record in agent.log if isinstance(record, AssistantMessage))
    return [call.id for reply in replies for call in reply.tool_calls]


class TestLoop:
    agent_class: type[Loop] = Loop
    largest_fork = 1024  # bytes

    def make(self, *script, **settings):
        """An agent of the class under test, its plain answers final, and its scripted model."""
        llm = ScriptedModel(*script)
        if hasattr(self.agent_class, "require_done_tool"):
            settings.setdefault("require_done_tool", False)
        return self.agent_class(llm=llm, **settings), llm

    # ---- the loop

    async def test_it_calls_tools_until_there_is_an_answer(self):
        agent, llm = self.make(call("add", a=2, b=3), "It is 5.", tools=[add], system_prompt="Be.")
        result = await agent.run("2 + 3?")
        assert (result.text, result.stop_reason) == ("It is 5.", "completed")
        assert str(result) == "It is 5."
        assert shown(llm.requests[1]) == ["Be.", "2 + 3?", "", "5"]
        assert all(r.messages[0] == SystemMessage("Be.") for r in llm.requests)
        assert [m.text for m in agent.messages] == ["2 + 3?", "", "5", "It is 5."]
        assert agent.messages[1].tool_calls[0].id == agent.messages[2].tool_call_id != ""

    @pytest.mark.parametrize(("settings", "together"), [({}, 16), ({"max_parallel": 7}, 7)])
    async def test_calls_run_side_by_side_up_to_max_parallel_answered_in_order(
        self, settings, together
    ):
        running = most = 0

        @tool("Count")
        async def count(i: int) -> int:
            nonlocal running, most
            running += 1
            most = max(most, running)
            for _ in range(i % 3 + 1):
                await asyncio.sleep(0)
            running -= 1
            return i

        calls = [call("count", i=i) for i in range(50)]
        agent, llm = self.make(calls, "ok", tools=[count], **settings)
        await agent.query("x")
        assert most == together
        assert shown(llm.requests[1])[2:] == [str(i) for i in range(50)]

    async def test_a_tool_that_is_not_parallel_runs_alone(self):
        running, beside = [], []

        async def step(name: str) -> None:
            running.append(name)
            await asyncio.sleep(0)
            beside.append([*running])
            running.remove(name)

        tools = [tool("Act", name=n, parallel=n != "alone")(step) for n in ("shared", "alone")]
        names = ["shared", "alone", "alone", "shared"]
        calls = [call(kind, name=f"{kind} {at}") for at, kind in enumerate(names)]
        agent, _ = self.make(calls, "ok", tools=tools)
        await agent.query("x")
        assert ["alone 1"] in beside
        assert ["alone 2"] in beside

    # ---- limits and odd replies

    async def test_at_the_limit_the_model_says_what_was_done_and_no_call_beside_it_runs(self):
        def again(messages, tools):
            said = "half done" if messages[-1].text == OUT_OF_TURNS else ""
            return AssistantMessage(said, tool_calls=(call("add", a=1, b=1),), raw={"x": 1})

        agent, llm = self.make(again, tools=[add], max_iterations=3, tool_choice="add")
        result = await agent.run("x")
        assert (result.text, result.stop_reason) == ("half done", "max_iterations")
        assert [r.tool_choice for r in llm.requests] == ["add", "auto", "auto", "auto"]
        assert_prefix_stable(llm.requests[1:])
        last = agent.messages[-1]
        assert (last.text, last.tool_calls, last.raw) == ("half done", (), None)
        assert validate(agent.messages[:-1]) == []

    async def test_an_empty_reply_is_nudged_three_times_and_then_given_up(self):
        agent, llm = self.make("", "", call("add", a=1, b=1), "", "", " ", "", tools=[add])
        assert (await agent.run("x")).stop_reason == "no_progress"
        assert len(llm.requests) == 7, "a call is progress"
        assert shown(llm.requests[-1])[-3:] == 3 * [EMPTY_REPLY]

    async def test_what_is_recorded_between_two_nudges_is_no_progress(self):
        def empty(messages, tools):
            agent.record(SideRequest(Usage(1)))
            return ""

        agent, llm = self.make(*[empty] * 9)
        assert (await agent.run("x")).stop_reason == "no_progress"
        assert len(llm.requests) == 4

    @pytest.mark.parametrize("prompt", [None, "again"])
    async def test_calls_that_are_cut_off_five_times_in_a_row_end_the_run(self, prompt):
        cut = AssistantMessage("So: ", tool_calls=(call("fail"),), stop_reason="length")
        agent, llm = self.make(*9 * [cut], "short", tools=[fail])
        result = await agent.run("x")
        assert (result.stop_reason, result.text, result.pending) == ("limit:length", "So: ", ())
        assert len(llm.requests) == 5
        assert not any(isinstance(record, ToolStart) for record in agent.log)
        results = [m for m in agent.messages if isinstance(m, ToolMessage)]
        assert [(m.text, m.is_error) for m in results] == 5 * [(CUT_OFF, True)]
        assert (await agent.run(prompt)).text == "short", "the next run gives it five again"

    @pytest.mark.parametrize(
        ("word", "reason"),
        [(word, word) for word in ("refused", "context_overflow")]
        + [("length", "limit:length"), ("zzz", "unknown:zzz")],
    )
    async def test_a_reply_that_ended_badly_is_never_success(self, word, reason):
        agent, _ = self.make(AssistantMessage("no", stop_reason=word))
        assert (await agent.run("x")).stop_reason == reason

    @pytest.mark.parametrize("text", ["wait", ""])
    async def test_a_paused_model_gets_its_own_turn_back_and_nothing_behind_it(self, text):
        paused = AssistantMessage(text, stop_reason="pause", raw=[{"type": "server_tool_use"}])
        agent, llm = self.make(paused, RuntimeError("down"), "done")
        with pytest.raises(RuntimeError):
            await agent.run("x")
        assert (await agent.run()).text == "done"
        for request in llm.requests[1:]:
            assert request.messages[-1].raw == paused.raw

    async def test_a_model_cannot_pause_for_ever(self):
        agent, llm = self.make(lambda m, t: AssistantMessage("wait", stop_reason="pause", raw=[1]))
        assert (await agent.run("x")).stop_reason == "no_progress"
        assert len(llm.requests) < 20

    async def test_an_id_that_the_library_makes_is_in_no_other_log(self):
        asks = AssistantMessage(tool_calls=(ToolCall("", "add", '{"a":1,"b":1}'),) * 3)
        template, _ = self.make(*(asks, "ok") * 6, tools=[add])
        made = []
        for agent in (template, template.fork(), template.fork()):
            agent.clear_history()
            await agent.query("x")
            await agent.query("y")
            made += ids_in(agent)
        assert len(set(made)) == len(made) == 3 * 6

    async def test_the_id_that_is_recorded_is_the_one_that_everybody_is_told(self):
        asks = AssistantMessage(tool_calls=(ToolCall("", "add", '{"a":1,"b":1}'),))
        agent, llm = self.make(asks, asks, "ok", tools=[add])
        events = [event async for event in agent.query_stream("x")]
        ids = ids_in(agent)
        assert len(set(ids)) == 2
        for told in (ToolCallEvent, ToolResultEvent):
            assert [e.tool_call_id for e in events if isinstance(e, told)] == ids
        assert [r.call_id for r in agent.log if isinstance(r, ToolStart)] == ids
        results = [m for m in llm.requests[-1].messages if isinstance(m, ToolMessage)]
        assert [m.tool_call_id for m in results] == ids
        assert ids_in(agent.fork()) == ids

    # ---- failures of tools

    async def test_on_tool_error_raise_ends_the_run_and_answers_the_call(self):
        agent, _ = self.make(call("fail", how="x"), tools=[fail], on_tool_error="raise")
        with pytest.raises(LookupError):
            await agent.query("x")
        assert validate(agent.messages) == []
        assert agent.messages[-1].text == "LookupError: x"

    async def test_a_cancel_that_a_tool_raises_itself_is_a_result_also_with_raise(self):
        @tool("Look")
        async def look() -> str:
            raise asyncio.CancelledError

        calls = [call("look"), call("add", a=1, b=1)]
        agent, llm = self.make(calls, "ok", tools=[look, add], on_tool_error="raise")
        assert await agent.query("x") == "ok"
        assert shown(llm.requests[-1])[-2:] == ["CancelledError", "2"]

    async def test_one_failure_of_many_stops_no_other(self):
        @tool("Look")
        async def look() -> str:
            raise ToolError("Try Paris.")

        how = "nowhere\nsecond line"
        calls = [call("add", a=1, b=1), call("fail", how=how), call("look"), call("add", a=2, b=2)]
        agent, llm = self.make(calls, "ok", tools=[add, fail, look])
        await agent.query("x")
        assert shown(llm.requests[1])[2:] == ["2", "LookupError: nowhere", "Try Paris.", "4"]
        assert [m.is_error for m in llm.requests[1].messages[2:]] == [False, True, True, False]

    @pytest.mark.parametrize("error", [KeyboardInterrupt(), Stop("limit:money")])
    async def test_after_a_crash_or_a_stop_no_further_call_starts(self, error):
        @tool("Boom", parallel=False)
        async def boom() -> None:
            raise error

        ran = []
        after = tool("After", name="after")(lambda: ran.append(1))
        agent, _ = self.make([call("boom")] + 5 * [call("after")], "ok", tools=[boom, after])
        with suppress(KeyboardInterrupt):
            await agent.run("x")
        assert ran == []
        assert await agent.query("go on") == "ok"

    @pytest.mark.parametrize("answer", ["", 42])
    async def test_task_complete_hands_over_a_text_and_a_value(self, answer):
        @tool("Finish")
        async def finish_up() -> None:
            raise TaskComplete(answer, {"a": 1})

        agent, _ = self.make(call("finish_up"), tools=[finish_up])
        result = await agent.run("x")
        assert (result.stop_reason, result.value) == ("done", {"a": 1})
        assert str(answer) == result.text == agent.messages[-1].text

    @pytest.mark.parametrize(
        "error", [*EXITS, asyncio.CancelledError, GeneratorExit, StopIteration]
    )
    @pytest.mark.parametrize("sync", [True, False])
    async def test_exits_of_the_interpreter_end_the_run_and_no_other_exception(self, error, sync):
        def odd_sync() -> None:
            raise error("odd")

        async def odd() -> None:
            raise error("odd")

        leaves = error in EXITS
        made = tool("Odd", name="odd")(odd_sync if sync else odd)
        agent, _ = self.make([call("odd"), call("add", a=1, b=1)], "ok", tools=[made, add])
        with pytest.raises(error) if leaves else nullcontext():
            await agent.query("x")
        assert agent.messages[2].is_error
        assert error.__name__ in agent.messages[2].text
        assert agent.log[-1].stop_reason == ("error" if leaves else "completed")
        assert not leaves or await agent.query("go on") == "ok"

    # ---- done and stop

    async def test_siblings_of_a_done_call_are_answered_too(self):
        calls = [call("finish", text="1"), call("add", a=1, b=1), call("finish", text="2")]
        agent, _ = self.make(calls, "next", tools=[finish, add])
        assert (await agent.run("x")).text == "1"
        assert [m.text for m in agent.messages[2:]] == ["1", "2", "2"]
        assert await agent.query("more") == "next"

    async def test_another_stop_outranks_done(self):
        @tool("Spend")
        async def spend() -> str:
            raise Stop("limit:cost", "too much")

        calls = [call("finish", text="done"), call("spend")]
        agent, _ = self.make(calls, "next", tools=[finish, spend])
        result = await agent.run("x")
        assert (result.stop_reason, result.text) == ("limit:cost", "too much")
        assert await agent.query("more") == "next"

    # ---- dependencies

    async def test_a_tool_gets_its_agent_its_call_and_overrides(self):
        def place() -> str:
            return "production"

        @tool("Where")
        async def where(
            at=Depends(place), agent=Depends(current_agent), this=Depends(current_call)
        ) -> str:
            return f"{at} {agent is given} {this.name}"

        overrides = {place: lambda: "test"}
        given, llm = self.make(call("where"), "ok", tools=[where], dependency_overrides=overrides)
        await given.query("x")
        assert shown(llm.requests[1])[-1] == "test True where"

    # ---- one at a time, and copies

    async def test_a_second_query_at_the_same_time_is_refused_at_once(self):
        gate = asyncio.Event()

        async def slow(messages, tools):
            await gate.wait()
            return "ok"

        agent, llm = self.make(slow)
        first = asyncio.create_task(agent.query("a"))
        await asyncio.sleep(0)
        with pytest.raises(AgentBusy, match="running a query"):
            await agent.query("b")
        with pytest.raises(AgentBusy):
            agent.clear_history()
        gate.set()
        assert await first == "ok"
        assert [shown(r) for r in llm.requests] == [["a"]]

    async def test_forks_share_the_settings_and_nothing_else(self):
        template, llm = self.make(lambda messages, tools: messages[-1].text + "!", tools=[add])
        answers = await asyncio.gather(*(template.fork().query(f"{i}") for i in range(20)))
        assert answers == [f"{i}!" for i in range(20)]
        assert template.log == []
        assert all(len(request.messages) == 1 for request in llm.requests)

    async def test_a_fork_has_lists_dicts_and_sets_of_its_own(self):
        class Listing(self.agent_class):
            seen: set = {"shared"}
            table: dict = {}

        self.agent_class, heard, inner = Listing, [], []
        template, _ = self.make("ok", "ok", tools=[add], table={"inner": inner})
        template.listeners = [heard.append]
        twin = template.fork()
        twin.seen.add("mine")
        twin.table["mine"] = 1
        twin.tools.append(fail)
        twin.listeners.clear()
        assert (template.seen, template.table, [*template.tools]) == (
            {"shared"},
            {"inner": []},
            [add],
        )
        assert twin.table["inner"] is inner, "a copy is shallow"
        await twin.query("x")
        assert heard == []
        await template.query("x")
        assert heard

    @pytest.mark.parametrize("count", [1, 20])
    def test_a_fork_of_an_empty_agent_is_small(self, count):
        # A class of its own: attributes that other tests set would make its instances larger.
        self.agent_class = type("Fresh", (self.agent_class,), {})
        tools = [tool("Add two numbers", name=f"add_{n}")(add.function) for n in range(count)]
        template, _ = self.make(tools=tools)
        sizes = []
        gc.freeze()  # so that a collection looks at new objects only
        try:
            while len(sizes) < 3:  # the smallest counts: other allocations are noise
                tracemalloc.start()
                before = tracemalloc.get_traced_memory()[0]
                forks = [template.fork() for _ in range(100)]
                gc.collect()  # empties Python's free lists, too, which are no part of a fork
                sizes.append((tracemalloc.get_traced_memory()[0] - before) / len(forks))
                tracemalloc.stop()
        finally:
            gc.unfreeze()
        assert min(sizes) < self.largest_fork + (count > 1) * 1024
        assert all(len(twin.toolset()) >= count for twin in forks)

    async def test_a_fork_in_the_past_takes_no_open_call_with_it(self):
        agent, llm = self.make(call("add", a=1, b=1), "2", "other", tools=[add])
        await agent.query("x")
        before = list(agent.log)
        kinds = [type(record) for record in before]
        twin = agent.fork(at=kinds.index(AssistantMessage) + 1)
        assert await twin.query("again") == "other"
        assert agent.log == before
        assert shown(llm.requests[-1])[2].startswith("Not run")

    async def test_a_call_of_a_history_without_a_result_may_have_had_effects(self):
        asked = AssistantMessage("", (ToolCall("c1", "add", "{}"), ToolCall("c2", "add", "{}")))
        agent, llm = self.make("ok")
        agent.load_history([UserMessage("a"), asked, ToolMessage("c2", "add", "3")])
        await agent.query("b")
        assert shown(llm.requests[0])[2:4] == [OUTCOME_UNKNOWN, "3"]

    @pytest.mark.parametrize("junk", ["hi", 7])
    async def test_history_that_is_no_messages_is_refused(self, junk):
        with pytest.raises(TypeError, match="UserMessage"):
            self.make("ok")[0].load_history([junk])

    async def test_what_a_caller_does_to_the_messages_does_nothing_to_the_agent(self):
        history = [UserMessage("a"), AssistantMessage("b")]
        one, two = self.make("1")[0], self.make("2")[0]
        for agent in (one, two):
            agent.load_history(history)
        history.append(UserMessage("evil"))
        one.messages.append(UserMessage("evil"))
        assert (await one.query("c"), await two.query("c")) == ("1", "2")
        assert [m.text for m in one.messages] == ["a", "b", "c", "1"]
        assert [m.text for m in two.messages] == ["a", "b", "c", "2"]

    async def test_calls_are_resolved_against_the_tools_that_were_offered(self):
        def swap(messages, tools):
            agent.tools = [fail]
            return call("add", a=1, b=1)

        agent, llm = self.make(swap, "ok", tools=[add])
        await agent.query("x")
        assert shown(llm.requests[1])[-1] == "2"
        assert {t.name for t in llm.requests[1].tools} & {"fail", "add"} == {"fail"}

    # ---- going on

    async def test_a_model_that_calls_what_is_not_there_is_told_what_there_is(self):
        agent, _ = self.make(call("subtract"), "ok", tools=[add, fail])
        await agent.run("x")
        assert agent.messages[2].is_error
        told = agent.messages[2].text
        assert told.startswith("There is no tool named 'subtract'. Available tools: add, fail")

    async def test_asking_the_same_again_after_a_failure_does_not_repeat_it(self):
        agent, llm = self.make(RuntimeError("down"), "ok", RuntimeError("down"), "ok again")
        for _ in range(2):
            with pytest.raises(RuntimeError):
                await agent.run("x")
            await agent.run("x")
        assert shown(llm.requests[1]) == ["x"]
        assert shown(llm.requests[3]) == ["x", "ok", "x"]

    async def test_with_nothing_to_go_on_with_run_says_so(self):
        agent, _ = self.make("ok")
        with pytest.raises(ValueError, match="nothing to continue"):
            await agent.run()
        await agent.run("x")
        with pytest.raises(ValueError, match="nothing to continue"):
            await agent.run()

    @pytest.mark.parametrize("empty", ["", "  ", []])
    async def test_an_empty_prompt_is_refused(self, empty):
        with pytest.raises(ValueError, match="prompt is empty"):
            await self.make("ok")[0].run(empty)

    def test_before_its_first_run_an_agent_waits_for_nobody(self):
        agent, _ = self.make()
        assert (agent.pending, agent.running, agent.messages) == ((), False, [])

    async def test_open_calls_run_when_they_never_started_and_not_when_they_may_have(self):
        ran = []

        def note(name: str) -> None:
            ran.append(name)

        tools = [tool("Note", name=n, idempotent=n == "again")(note) for n in ("once", "again")]
        agent, llm = self.make("ok", tools=tools)
        calls = (
            ToolCall("1", "once", '{"name":"waiting"}'),
            ToolCall("2", "once", '{"name":"started"}'),
            ToolCall("3", "again", '{"name":"idempotent"}'),
        )
        made = [
            UserMessage("x"),
            AssistantMessage(tool_calls=calls),
            ToolStart("2"),
            ToolStart("3"),
        ]
        agent.log.replace(made)
        assert (await agent.run()).text == "ok"
        assert sorted(ran) == ["idempotent", "waiting"]
        answered = [r.tool_call_id for r in agent.log if isinstance(r, ToolMessage)]
        assert sorted(answered) == ["1", "2", "3"], "also the one that may not run again"
        assert "may have had effects" in shown(llm.requests[0])[3]

    async def test_a_new_prompt_closes_open_calls_for_good(self):
        agent, llm = self.make("ok", tools=[add])
        agent.log.replace([UserMessage("x"), AssistantMessage(tool_calls=(ToolCall("1", "add"),))])
        await agent.run("never mind")
        assert shown(llm.requests[0])[2].startswith("Not run")
        assert any(isinstance(r, ToolMessage) for r in agent.log)

    # ---- cancelling

    @pytest.mark.parametrize("from_thread", [False, True])
    async def test_interrupt_ends_the_run_with_a_result_and_the_model_is_told(self, from_thread):
        @tool("Wait")
        async def wait(agent: Loop = Depends(current_agent)) -> None:
            interrupt = partial(agent.interrupt, "look at the other file")
            threading.Thread(target=interrupt).start() if from_thread else interrupt()
            await asyncio.Event().wait()

        agent, llm = self.make(call("wait"), "ok", tools=[wait])
        assert (await agent.run("x")).stop_reason == "interrupted"
        assert asyncio.current_task().cancelling() == 0
        assert await agent.query("go on") == "ok"
        assert any("look at the other file" in text for text in shown(llm.requests[1]))
        agent.interrupt()  # nothing runs: nothing happens

    @pytest.mark.parametrize("timeout", [None, 30])
    @pytest.mark.parametrize("sync", [True, False])
    async def test_a_result_that_a_cancel_meets_on_its_way_is_kept(
        self, sync, timeout, monkeypatch
    ):
        returned, told = threading.Event(), threading.Event()

        def pay_sync() -> str:
            returned.set()
            return "paid"

        async def pay() -> str:
            return pay_sync()

        def tell(*args):
            call_soon(*args)
            told.set()

        loop = asyncio.get_running_loop()
        call_soon = loop.call_soon_threadsafe
        monkeypatch.setattr(loop, "call_soon_threadsafe", tell)
        made = tool("Pay", name="pay", timeout=timeout)(pay_sync if sync else pay)
        for turns in range(12):
            returned.clear()
            told.clear()
            agent, _ = self.make(call("pay"), "ok", tools=[made])
            task = asyncio.create_task(agent.run("x"))
            for _ in range(turns):
                await asyncio.sleep(0)
            if tool_threads():
                told.wait(5)  # the tool's thread has told the event loop, which does not know yet
            ended = returned.is_set()
            task.cancel()
            await asyncio.wait([task])
            ended = ended or (returned.is_set() and not sync)  # a thread may have gone on alone
            texts = [m.text for m in agent.messages if isinstance(m, ToolMessage)]
            assert not ended or texts == ["paid"], turns
            for thread in tool_threads():
                thread.join(5)

    async def test_of_two_calls_that_end_a_run_an_error_comes_before_an_answer(self):
        script = [call("finish", text="fine"), call("fail", how="no")]
        agent, _ = self.make(script, tools=[finish, fail], on_tool_error="raise")
        with pytest.raises(LookupError, match="no"):
            await agent.run("x")
        assert validate(agent.messages) == []

    async def test_a_call_that_was_cancelled_is_open_and_its_effects_are_unknown(self):
        begun = asyncio.Event()

        @tool("Slow")
        async def slow() -> None:
            begun.set()
            await asyncio.Event().wait()

        agent, _ = self.make(call("slow"), call("slow"), tools=[slow])
        await cancelled(agent, begun)
        assert agent.messages[-1].text == OUTCOME_UNKNOWN
        begun.clear()
        run = asyncio.create_task(agent.run("again"))
        await begun.wait()
        agent.interrupt()
        [pending] = (await run).pending
        assert pending.id == ids_in(agent)[-1]

    async def test_what_work_with_a_timeout_leaves_in_its_context_is_there_as_without_one(self):
        mark = ContextVar("mark", default="")

        async def work():
            mark.set("left")

        await wait_for(30, work(), grace=1)
        assert mark.get() == "left"

    async def test_a_cancel_that_meets_a_result_comes_at_the_next_wait_and_once(self):
        async def save():
            begun.set()
            with suppress(asyncio.CancelledError):
                await asyncio.Event().wait()
            return "saved"

        async def use():
            seen.append(await wait_for(30, save(), grace=1))
            try:
                await asyncio.Event().wait()
            finally:
                seen.append(asyncio.current_task().cancelling())

        seen, begun = [], asyncio.Event()
        task = asyncio.create_task(use())
        await begun.wait()
        task.cancel()
        await asyncio.wait([task], timeout=5)
        assert task.cancelled()
        assert seen == ["saved", 1]

    async def test_a_tool_with_a_timeout_fails_and_ends_a_run_as_one_without(self):
        lost = tool("Look", name="look", timeout=30)(fail.function)
        end = tool("Finish", name="end", timeout=30)(finish.function)
        script = call("look", how="not there"), call("end", text="fine"), "never"
        agent, _ = self.make(*script, tools=[lost, end])
        result = await agent.run("x")
        assert (result.text, result.stop_reason) == ("fine", "done")
        failed = agent.messages[2]
        assert (failed.text, failed.is_error) == ("LookupError: not there", True)

    @pytest.mark.parametrize("timeout", [None, 30])
    async def test_what_a_tool_returns_when_it_is_cancelled_is_kept(self, timeout):
        begun = asyncio.Event()

        @tool("Save", timeout=timeout)
        async def save() -> str:
            begun.set()
            with suppress(asyncio.CancelledError):
                await asyncio.Event().wait()
            return "saved a part"

        agent, _ = self.make(call("save"), "ok", tools=[save])
        assert (await cancelled(agent, begun)).cancelled()
        assert agent.messages[-1].text == "saved a part"

    async def test_an_interrupt_keeps_a_call_from_running_and_does_not_reach_the_next_run(self):
        def interrupt(event):
            if isinstance(event, ToolCallEvent | FinalResponseEvent):
                agent.interrupt()

        ran = []
        note = tool("Note", name="note")(lambda: ran.append(1))
        agent, _ = self.make(call("note"), "one", "two", tools=[note], listeners=[interrupt])
        assert (await agent.run("x")).stop_reason == "interrupted"
        assert ran == []
        assert await agent.query("a") == "one"  # interrupted as it ended
        assert await agent.query("b") == "two"

    @pytest.mark.parametrize("order", ["cancel, interrupt", "interrupt, cancel"])
    async def test_a_cancel_beside_an_interrupt_is_not_swallowed(self, order):
        begun = asyncio.Event()

        async def wait(messages, tools):
            begun.set()
            await asyncio.Event().wait()

        agent, _ = self.make(wait, "ok")
        task = asyncio.ensure_future(agent.run("x"))
        await begun.wait()
        if order == "cancel, interrupt":
            task.cancel()
            agent.interrupt()
        else:
            agent.interrupt()
            task.cancel()
        await asyncio.wait([task])
        assert task.cancelled()
        assert await agent.query("go on") == "ok"

    async def test_a_cancel_while_a_stream_closes_is_not_swallowed(self):
        begun, cleaning, go_on = asyncio.Event(), asyncio.Event(), asyncio.Event()

        @tool("Slow to stop")
        async def slow() -> None:
            begun.set()
            try:
                await asyncio.Event().wait()
            finally:
                cleaning.set()
                await go_on.wait()

        async def read():
            return [event async for event in stream]

        agent, _ = self.make(call("slow"), "ok", tools=[slow])
        stream = agent.query_stream("x")
        reading = asyncio.create_task(read())
        await begun.wait()
        closing = asyncio.create_task(stream.aclose())
        await cleaning.wait()
        closing.cancel()
        await asyncio.sleep(0)
        go_on.set()
        await asyncio.wait([closing, reading])
        assert closing.cancelled()

    async def test_a_model_that_swallows_the_cancel_does_not_keep_the_run_going(self):
        asked = asyncio.Event()

        async def stubborn(messages, tools):
            asked.set()
            with suppress(asyncio.CancelledError):
                await asyncio.Event().wait()
            return call("add", a=1, b=1)

        agent, llm = self.make(stubborn, "never", tools=[add])
        assert (await cancelled(agent, asked)).cancelled()
        assert len(llm.requests) == 1

    # ---- events

    async def test_the_events_of_a_run_in_their_order(self):
        reply = AssistantMessage(tool_calls=(call("add", a=1, b=1),), usage=Usage(9, 1))
        agent, _ = self.make(reply, "2", tools=[add])
        events = [event async for event in agent.query_stream("x")]
        call_id, seconds = events[1].step_id, events[4].duration_ms
        assert call_id
        assert events == [
            UsageEvent(Usage(9, 1), "scripted"),
            StepStartEvent(call_id, "add", 1),
            ToolCallEvent("add", {"a": 1, "b": 1}, call_id),
            ToolResultEvent("add", "2", call_id),
            StepCompleteEvent(call_id, "completed", seconds),
            TextDeltaEvent("2"),
            TextEvent("2"),
            FinalResponseEvent("2"),
        ]

    async def test_thinking_is_told_as_it_comes_and_whole_and_is_no_text(self):
        agent, _ = self.make(AssistantMessage("2", thinking="1 + 1?"))
        events = [event async for event in agent.query_stream("x")]
        thoughts = [event.content for event in events if isinstance(event, ThinkingDeltaEvent)]
        assert "".join(thoughts) == "1 + 1?"
        assert ThinkingEvent("1 + 1?") in events
        assert [event for event in events if isinstance(event, TextEvent)] == [TextEvent("2")]

    async def test_what_the_library_tells_the_model_is_an_event_and_a_prompt_is_none(self):
        heard = []
        agent, _ = self.make("", "ok", listeners=[heard.append])
        await agent.run("x")
        told = [event.content for event in heard if isinstance(event, HiddenUserMessageEvent)]
        assert told == [EMPTY_REPLY]

    async def test_the_stream_has_the_result_and_the_same_transcript_as_run(self):
        script = [call("add", a=1, b=1), "It is two."]
        agent, _ = self.make(*script, tools=[add])
        stream = agent.query_stream("x")
        text = [e.content async for e in stream if isinstance(e, TextDeltaEvent)]
        assert "".join(text) == stream.result.text == "It is two."
        other, _ = self.make(*script, tools=[add])
        await other.run("x")
        assert other.messages == agent.messages

    async def test_leaving_the_stream_at_a_call_prevents_it(self):
        ran = []
        note = tool("Note", name="note")(lambda: ran.append(1))
        agent, llm = self.make([call("note"), call("note")], "ok", tools=[note])
        async for event in agent.query_stream("x"):
            if isinstance(event, ToolCallEvent):
                break
        assert validate(agent.messages) == []
        assert await agent.query("go on") == "ok"
        assert ran == []
        assert shown(llm.requests[1])[2].startswith("Not run")

    async def test_a_reader_that_is_cancelled_leaves_when_the_run_has_closed_its_log(self):
        begun = asyncio.Event()

        @tool("Slow")
        async def slow() -> None:
            begun.set()
            try:
                await asyncio.Event().wait()
            finally:
                await asyncio.sleep(0.01)

        async def read():
            async for _ in stream:
                pass

        agent, _ = self.make(call("slow"), "ok", tools=[slow])
        stream = agent.query_stream("x")
        reading = asyncio.create_task(read())
        await begun.wait()
        reading.cancel()
        await asyncio.wait([reading])
        assert reading.cancelled()
        assert not agent.running
        [end] = [record for record in agent.log if isinstance(record, RunEnd)]
        assert end.stop_reason == "cancelled"

    async def test_a_stream_that_was_closed_has_no_further_event(self):
        agent, _ = self.make("a b c", "ok", tools=[add])
        stream = agent.query_stream("x")
        await anext(stream)
        await stream.aclose()
        assert [event async for event in stream] == []
        whole = agent.query_stream("y")
        assert [event async for event in whole]
        assert [event async for event in whole] == [], "nor one that has come to its end"

    async def test_an_error_in_the_readers_loop_and_leaving_its_block_end_the_run_too(self):
        adding = call("add", a=1, b=1)
        agent, _ = self.make("a b c", adding, RuntimeError("down"), "fine", tools=[add])
        with pytest.raises(ZeroDivisionError):
            async for _ in agent.query_stream("x"):
                _ = 1 / 0
        gc.collect()
        async with agent.query_stream("y") as stream:
            await anext(stream)
        assert not agent.running
        with pytest.raises(RuntimeError, match="down"):
            [event async for event in agent.query_stream("x")]
        assert await agent.query("z") == "fine"

    async def test_a_listener_that_raises_kills_no_run(self, caplog):
        def bad(event):
            raise ValueError("oops")

        heard = []
        agent, _ = self.make("hi", listeners=[bad, heard.append])
        assert await agent.query("x") == "hi"
        assert FinalResponseEvent("hi") in heard
        assert "a listener failed" in caplog.text

    @pytest.mark.parametrize(
        ("tools", "names"),
        [
            ([add, fail], ["add", "fail"]),
            ([tool("Another", name="add")(add.function)], ["add"]),
        ],
    )
    async def test_a_change_of_the_tools_is_an_event(self, tools, names):
        def change(heard):
            agent.tools = tools if isinstance(heard, ToolResultEvent) else agent.tools

        agent, _ = self.make(call("add", a=1, b=1), "2", tools=[add], listeners=[change])
        events = [event async for event in agent.query_stream("x")]
        [changed] = [each for each in events if isinstance(each, ToolsChangedEvent)]
        assert changed.tools[: len(names)] == names

    # ---- usage, and the settings

    async def test_usage_adds_up_over_runs_and_a_result_and_a_fork_have_their_own(self):
        agent, _ = self.make(*(AssistantMessage("ok", usage=Usage(10, i)) for i in (1, 2, 3)))
        assert (await agent.run("a")).usage == Usage(10, 1)
        assert (await agent.run("b")).usage == Usage(10, 2)
        fork = agent.fork()
        await fork.run("c")
        assert (agent.usage, fork.usage) == (Usage(20, 3), Usage(10, 3))

    @pytest.mark.parametrize(
        ("settings", "told"),
        [
            ({"llm": "gpt-5"}, r"llm: .*ChatOpenAI"),
            ({"llm": ScriptedModel}, "ChatOpenAI"),
            ({"max_iterations": 0}, "max_iterations"),
            ({"max_iterations": "3"}, "max_iterations"),
            ({"cancel_timeout": math.nan}, "cancel_timeout"),
            ({"tools": [add, add]}, "add"),
            ({"tools": [lambda: 1]}, "@tool"),
            ({"tools": add}, "tools=.search"),
            ({"on_tool_error": "raises"}, "on_tool_error"),
            ({"dependency_overrides": {current_call: 5}}, r"dependency_overrides.*callable"),
            ({"max_iteration": 3}, "max_iteration.*max_iterations"),
            ({"nonsense": 3}, "nonsense.*mixin"),
        ],
    )
    def test_settings_are_checked_when_an_agent_is_made_or_forked(self, settings, told):
        with pytest.raises((TypeError, ValueError), match=told):
            self.agent_class(**{"llm": ScriptedModel()} | settings)
        with pytest.raises((TypeError, ValueError), match=told):
            self.make()[0].fork(**settings).run_sync("x")

    def test_renamed_settings_and_methods_keep_their_old_names_with_a_deprecation_warning(self):
        agent, _ = self.make()
        with pytest.warns(DeprecationWarning, match="cancel_timeout"):
            old = self.agent_class(llm=ScriptedModel(), cancel_grace=2)
        with pytest.warns(DeprecationWarning, match="cancel_timeout"):
            fork = agent.fork(cancel_grace=3)
        with pytest.warns(DeprecationWarning, match="cancel_timeout"):
            subclass = type("Mine", (self.agent_class,), {"cancel_grace": 4})
        made = subclass(llm=ScriptedModel())
        assert [each.cancel_timeout for each in (agent, old, fork, made)] == [5, 2, 3, 4]
        with pytest.warns(DeprecationWarning, match="add_note"):
            agent.tell("a note")
        assert agent.messages == [UserMessage("a note", "note")]

    def test_what_a_class_adds_to_its_settings_is_added_once(self):
        class Adding(self.agent_class):
            def __post_init__(self):
                super().__post_init__()
                self.tools = [*self.tools, add]
                self.system_prompt += "!"

        fork = Adding(llm=ScriptedModel(), system_prompt="Hi").fork().fork(max_iterations=5)
        assert ([*fork.tools], fork.system_prompt, fork.max_iterations) == ([add], "Hi!", 5)

    async def test_a_fork_takes_settings_of_its_own(self):
        agent, llm = self.make("one", call("add", a=1, b=1), "two", tools=[])
        await agent.run("x")
        twin = agent.fork(tools=[add], max_iterations=1)
        assert (await twin.run("y")).stop_reason == "max_iterations"
        assert (agent.tools, agent.max_iterations) == ([], 200)
        assert shown(llm.requests[1]) == ["x", "one", "y"]

    async def test_what_a_run_is_given_as_extra_stands_in_its_start(self):
        agent, _ = self.make("ok")
        await agent.run("x", extra={"trace": "1"})
        [start] = [record for record in agent.log if isinstance(record, RunStart)]
        assert load_record(dump_record(start)).extra["trace"] == "1"

    def test_a_class_body_changes_defaults(self):
        class Mine(self.agent_class):
            max_iterations = 3
            tools = [add]
            seen: list[str] = []

        one, two = Mine(llm=ScriptedModel()), Mine(llm=ScriptedModel(), tools=[])
        assert (one.max_iterations, one.tools, two.tools) == (3, [add], [])
        assert one.seen is not two.seen, "each agent has lists of its own"
        with pytest.raises(ValueError, match="max_iterations"):
            type("Wrong", (Mine,), {"max_iterations": 0})(llm=ScriptedModel())
        with pytest.raises(TypeError, match="max_iteration.*max_iterations"):
            type("Wrong", (Mine,), {"max_iteration": 4})

    async def test_an_agent_is_hashable_and_its_repr_says_what_it_is_without_texts_and_keys(self):
        class Mine:  # its own repr shows a key
            model = "mine-1"

            def __init__(self):
                self.ainvoke = ScriptedModel("the answer").ainvoke

            def __repr__(self):
                return "Mine(api_key='secret')"

        agent, _ = self.make(system_prompt="secret", tools=[add])
        agent.llm = Mine()
        await agent.run("secret")
        assert agent in {agent}
        name = type(agent).__name__
        assert repr(agent) == f"{name}(Mine('mine-1'), 1 tools, {len(agent.messages)} messages)"

    def test_help_and_the_signature_show_the_settings_and_their_defaults(self):
        parameters = inspect.signature(self.agent_class).parameters
        assert parameters["max_iterations"].default == 200
        assert parameters["llm"].default is inspect.Parameter.empty
        assert parameters.keys() == settings_of(self.make()[0]).keys()
        assert all(each.kind is each.KEYWORD_ONLY for each in parameters.values())

    async def test_private_state_is_fresh_for_each_agent_and_in_a_fork(self):
        class Counting(self.agent_class):
            _turns: int = 0
            _seen: list[str] = []
            _shared: ClassVar[list[str]] = []
            _later: str
            _tools: dict[str, int] = {}  # no mistyped `tools`
            turns = 5  # no mistyped `_turns`

            async def finish(self, result):
                self._turns += 1
                self._seen.append(result.text)
                self._shared.append(result.text)
                return await super().finish(result)

        self.agent_class = Counting
        (one, _), (two, _) = self.make("ok", "ok"), self.make("ok")
        await one.run("x")
        await one.run("y")
        await two.run("z")
        fork = one.fork()
        states = [(each._turns, each._seen) for each in (one, two, fork)]
        assert states == [(2, ["ok", "ok"]), (1, ["ok"]), (0, [])]
        assert one._shared is fork._shared
        assert not {"_turns", "_seen"} & settings_of(fork).keys()
        with pytest.raises(ValueError, match="_turns"):
            self.make(_turns=3)

    # ---- a system prompt by a function

    async def test_a_system_prompt_may_be_a_function_that_is_called_once_a_run(self):
        made = []

        def prompt(agent):
            made.append(agent)
            return f"You have had {len(agent.messages)} messages."

        script = call("add", a=1, b=1), "ok", "again", "twin"
        agent, llm = self.make(*script, tools=[add], system_prompt=prompt)
        await agent.run("x")
        await agent.run("y")
        firsts = [request.messages[0].text for request in llm.requests]
        assert firsts[0] == firsts[1] == "You have had 0 messages.", "the prefix stays"
        assert firsts[2] != firsts[1]
        assert made == [agent, agent]
        twin = agent.fork()
        await twin.run("z")
        assert made == [agent, agent, twin]
        assert shown(llm.requests[-1])[0] != firsts[2]

    async def test_a_system_prompt_may_be_a_method_and_may_be_empty(self):
        class Speaking(self.agent_class):
            def system_prompt(self):
                return "Speak." if self.log else ""

        self.agent_class = Speaking
        agent, llm = self.make("one", "two")
        await agent.run("x")
        await agent.run("y")
        assert [shown(request)[0] for request in llm.requests] == ["x", "Speak."]

    async def test_a_system_prompt_function_that_returns_no_text_ends_the_run_with_an_error(self):
        agent, llm = self.make("ok", system_prompt=lambda agent: None)
        with pytest.raises(TypeError, match="system_prompt: the function .* not None"):
            await agent.run("x")
        assert (llm.requests, agent.running) == ([], False)
        agent.system_prompt = "Hi."
        assert (await agent.run("x")).text == "ok"

    # ---- time

    async def test_tool_timeout_is_the_timeout_of_each_tool_without_one_of_its_own(self):
        @tool("Hang")
        async def hang():
            await asyncio.Event().wait()

        @tool("Hang, at length", timeout=math.inf)
        async def slow():
            await asyncio.sleep(0.1)
            return "done"

        calls = [call("hang"), call("slow")]
        agent, llm = self.make(calls, "ok", tools=[hang, slow], tool_timeout=0.02)
        await agent.query("x")
        hung, ended = shown(llm.requests[1])[-2:]
        assert "not finished within 0.02 seconds" in hung
        assert ended == "done"

    # ---- without an event loop

    def test_run_sync_is_for_scripts(self):
        agent, _ = self.make("hi", "ho")
        assert agent.run_sync("x").text == "hi"
        assert agent.run_sync("y").text == "ho"  # a second event loop

        async def inside():
            agent.run_sync("x")

        with pytest.raises(RuntimeError, match="await agent.run"):
            asyncio.run(inside())
        with pytest.raises(ValueError, match="empty") as caught:
            agent.run_sync("")
        assert caught.value.__context__ is None, "nothing stands above what went wrong"


def test_run_sync_ends_what_a_tool_has_left_open_and_leaves_no_event_loop():
    closed, left = [], []

    async def lines():
        try:
            yield "first"
        finally:
            closed.append("generator")

    async def wait():
        try:
            await asyncio.Event().wait()
        finally:
            closed.append("task")

    @tool("Read")
    async def read() -> str:
        left.extend([lines(), asyncio.create_task(wait())])
        await asyncio.sleep(0)
        return await anext(left[0])

    Loop(llm=ScriptedModel(call("read"), "ok"), tools=[read]).run_sync("x")
    assert closed == ["task", "generator"]
    with pytest.raises(RuntimeError):
        asyncio.get_event_loop()


@pytest.mark.parametrize("reason", ["refused", "limit:length", "no_progress", "needs_approval"])
async def test_query_raises_a_bad_end(reason):
    def end(messages, tools):
        raise Stop(reason, "Half of it.")

    with pytest.raises(RunStopped) as caught:
        await Loop(llm=ScriptedModel(end)).query("go")
    assert caught.value.result.stop_reason == reason
    assert str(caught.value) == f"{reason}: Half of it."


async def test_a_disk_that_is_full_at_a_tool_start_ends_the_run_before_the_tool():
    class FullDisk(Loop):
        def record(self, record):
            super().record(record)
            if any(isinstance(each, ToolStart) for each in self.log):
                raise OSError(28, "No space left on device")

    ran = []
    work = tool("Work", name="work")(lambda: ran.append(1))
    with pytest.raises(OSError, match="No space left"):
        await FullDisk(llm=ScriptedModel(call("work"), "done"), tools=[work]).run("go")
    assert ran == []


@pytest.mark.parametrize("script", [[call("stop")], [call("add", a=1, b=1), "hunter2"]])
async def test_finish_sees_every_text_that_leaves_a_run(script):
    @tool("Stop")
    def stop() -> None:
        raise Stop("needs_approval", "hunter2")

    class Redacting(Loop):
        async def finish(self, result):
            result = await super().finish(result)
            return result and replace(result, text=result.text.replace("hunter2", "***"))

    agent = Redacting(llm=ScriptedModel(*script), tools=[stop, add], max_iterations=1)
    assert (await agent.run("go")).text == "***"


def test_a_base_beside_the_loop_hears_of_its_subclasses():
    class Registry:
        names: ClassVar[list[str]] = []

        def __init_subclass__(cls, *, name, **more):
            super().__init_subclass__(**more)
            cls.names.append(name)

    class Mine(Loop, Registry, name="mine"):
        pass

    assert Mine.names == ["mine"]


async def test_an_error_outranks_a_stop_of_a_sibling():
    crashed = asyncio.Event()

    @tool("Stop")
    async def stop() -> None:
        await crashed.wait()
        raise Stop("limit:cost")

    @tool("Crash")
    async def crash() -> None:
        crashed.set()
        raise LookupError("nothing there")

    llm = ScriptedModel([call("stop"), call("crash")])
    agent = Loop(llm=llm, tools=[stop, crash], on_tool_error="raise")
    with pytest.raises(LookupError, match="nothing there"):
        await agent.run("x")


async def test_a_stop_of_finish_ends_the_run_also_if_it_comes_while_a_stop_is_shown():
    class Checking(Loop):
        async def finish(self, result):
            raise Stop("no_progress", f"{result.text}?")

    agent = Checking(llm=ScriptedModel("It is 5."))
    result = await agent.run("x")
    assert (result.stop_reason, result.text) == ("no_progress", "It is 5.??")
    assert agent.log[-1] == RunEnd("no_progress", at=agent.log[-1].at)


async def test_a_run_that_was_nudged_in_vain_ends_with_the_models_newest_words():
    class Insisting(Loop):
        async def finish(self, result):
            self.nudge("Go on.")

    result = await Insisting(llm=ScriptedModel("a", "b", "", "c", " ")).run("x")
    assert (result.stop_reason, result.text) == ("no_progress", "c")


# ---- stops, timeouts, and what a model tells beside its reply


async def test_a_stop_before_a_tool_begins_keeps_its_call_for_the_next_run():
    class Asking(Loop):
        allowed = False

        async def call_tool(self, call):
            if not self.allowed:
                raise Stop("needs_approval", "May I?")
            return await super().call_tool(call)

    llm = ScriptedModel(call("add", a=1, b=1), "ok")
    agent = Asking(llm=llm, tools=[add])
    result = await agent.run("x")
    assert (result.stop_reason, result.text) == ("needs_approval", "May I?")
    assert [each.name for each in result.pending] == ["add"]
    assert not any(isinstance(record, ToolMessage) for record in agent.log)
    agent.allowed = True
    assert (await agent.run()).text == "ok"
    assert shown(llm.requests[1])[-1] == "2"


async def test_a_call_of_an_external_tool_waits_for_its_answer_and_takes_one():
    @tool("Sign", external=True)
    async def sign() -> None: ...

    heard = []
    llm = ScriptedModel(call("sign"), "signed")
    agent = Loop(llm=llm, tools=[sign], listeners=[heard.append])
    assert (await agent.run("x")).stop_reason == "needs_answer"
    [waiting] = agent.pending
    with pytest.raises(ValueError, match=r"call_9"):
        agent.answer("call_9", "no")
    agent.answer(waiting.id, {"by": "Ada"})
    assert heard[-1] == StepCompleteEvent(waiting.id, "completed", 0), "nobody knows how long"
    assert agent.pending == ()
    with pytest.raises(ValueError, match="is not pending: it is completed"):
        agent.answer(waiting.id, "twice")
    assert (await agent.run()).text == "signed"
    assert shown(llm.requests[1]) == ["x", "", '{"by":"Ada"}']


def test_a_call_that_waits_for_approval_is_decided_and_not_answered():
    agent = Loop(llm=ScriptedModel())
    agent.record(AssistantMessage(tool_calls=(ToolCall("1", "pay"),)))
    assert agent.pending == (), "nobody was asked"
    agent.record(Ask("1"))
    assert agent.pending == (agent.waiting_call("1").call,)
    with pytest.raises(ValueError, match="requires approval"):
        agent.answer("1", "no")


async def test_a_stop_of_a_tool_that_has_begun_is_its_result():
    @tool("Spend")
    async def spend() -> None:
        raise Stop("limit:cost", "too much")

    agent = Loop(llm=ScriptedModel(call("spend")), tools=[spend])
    result = await agent.run("x")
    assert (result.stop_reason, result.pending) == ("limit:cost", ())
    assert agent.messages[-1].text == "too much"
    assert not agent.messages[-1].is_error


@pytest.mark.parametrize(
    ("then", "text", "is_error"),
    [
        ("wait", "TimeoutError: not finished within 0.01 seconds; it may have had effects", True),
        ("return", "saved a part", False),
        ("raise", "LookupError: not saved", True),
    ],
)
async def test_a_tool_that_takes_too_long_fails_unless_it_says_more(then, text, is_error):
    @tool("Save", timeout=0.01)
    async def save() -> str:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            if then == "raise":
                raise LookupError("not saved") from None
            if then == "wait":
                raise
        return "saved a part"

    agent = Loop(llm=ScriptedModel(call("save"), "ok"), tools=[save])
    assert await agent.query("x") == "ok"
    assert (agent.messages[2].text, agent.messages[2].is_error) == (text, is_error)


@pytest.mark.parametrize("how", ["raises", "cancels"])
async def test_a_tool_with_a_timeout_may_cancel_itself(how):
    @tool("Look", timeout=30)
    async def look() -> str:
        if how == "raises":
            raise asyncio.CancelledError
        asyncio.current_task().cancel()
        return await asyncio.sleep(0, "not cancelled")

    agent = Loop(llm=ScriptedModel(call("look"), "ok"), tools=[look])
    assert await agent.query("x") == "ok"
    assert agent.messages[2].text == "CancelledError"


async def test_a_plain_tool_that_takes_too_long_is_left_behind_at_once():
    release = threading.Event()
    work = tool("Work", name="work", timeout=0.01)(lambda: release.wait(60))
    agent = Loop(llm=ScriptedModel(call("work"), "ok"), tools=[work], cancel_timeout=60)
    assert await asyncio.wait_for(agent.query("x"), 30) == "ok"
    assert agent.messages[2].text.startswith("TimeoutError: not finished within 0.01 seconds")
    release.set()


@pytest.mark.parametrize(
    ("purpose", "listeners", "streams"),
    [("step", [], False), ("step", [print], True), ("compaction", [print], False)],
)
async def test_a_step_streams_if_somebody_listens(purpose, listeners, streams):
    class Model:
        model = "own"

        async def ainvoke(self, messages, tools=(), *, tool_choice="auto", on_delta=None):
            seen.append(on_delta is not None)
            return AssistantMessage("ok")

    seen = []
    agent = Loop(llm=Model(), listeners=listeners)
    await agent.call_model(Request([UserMessage("x")], purpose=purpose))
    assert seen == [streams]


async def test_an_attempt_that_failed_after_a_run_is_no_cost_of_its_agent():
    def fails_once(messages, tools):
        report_failed_attempt.get()(SideRequest(Usage(5)))
        return "ok"

    llm = ScriptedModel(fails_once)
    agent = Loop(llm=llm)
    await agent.run("x")
    await llm.ainvoke([UserMessage("y")])
    assert agent.usage == Usage(5)


# ---- what tools, mixins and models do wrong


async def test_a_call_that_the_model_was_told_did_not_run_does_not_run_later():
    class Stubborn(Loop):
        async def call_tool(self, call):
            while not release.is_set():
                begun.set()
                with suppress(asyncio.CancelledError):
                    await release.wait()
            return await super().call_tool(call)

    ran, begun, release = [], asyncio.Event(), asyncio.Event()
    work = tool("Work", name="work")(lambda: ran.append(1))
    agent = Stubborn(llm=ScriptedModel(call("work"), "ok"), tools=[work], cancel_timeout=0.01)
    await cancelled(agent, begun)
    assert agent.messages[-1].text == NEVER_STARTED
    [behind] = asyncio.all_tasks() - {asyncio.current_task()}
    release.set()
    await asyncio.wait([behind])
    assert ran == []
    assert agent.messages[-1].text == NEVER_STARTED
    assert await agent.query("go on") == "ok"


async def test_a_mixin_that_returns_the_result_of_another_call_is_told_so():
    class Mixing(Loop):
        async def call_tool(self, call):
            await super().call_tool(call)
            return ToolCall("another", "add").answer("5")

    agent = Mixing(llm=ScriptedModel(call("add", a=2, b=3)), tools=[add])
    with pytest.raises(ValueError, match=r"a result of 'another': make it with call\.answer"):
        await agent.run("x")
    assert "a result of 'another'" in agent.messages[-1].text


async def test_a_done_tool_that_a_mixin_calls_by_itself_ends_the_run():
    @tool("Finish")
    async def finish_up() -> None:
        raise TaskComplete("fine")

    class Finishing(Loop):
        async def call_tools(self, calls):
            return await super().call_tools([*calls, ToolCall("mine", "finish_up")])

    llm = ScriptedModel(call("add", a=2, b=3))
    result = await Finishing(llm=llm, tools=[add, finish_up]).run("x")
    assert (result.stop_reason, result.text) == ("done", "fine")


async def test_the_end_of_a_task_may_come_out_of_a_task_group():
    ended = []

    def get_db():
        try:
            yield
        except BaseException:
            ended.append("rolled back")
            raise
        ended.append("committed")

    @tool("Finish")
    async def finish_up(db=Depends(get_db)) -> None:
        async with asyncio.TaskGroup() as outer, asyncio.TaskGroup() as inner:
            outer.create_task(asyncio.sleep(0))
            inner.create_task(complete())

    async def complete():
        raise TaskComplete("fine")

    result = await Loop(llm=ScriptedModel(call("finish_up")), tools=[finish_up]).run("x")
    assert (result.stop_reason, result.text) == ("done", "fine")
    assert ended == ["committed"]


async def test_a_tool_error_without_a_text_is_named():
    class Odd(ToolError):
        def __str__(self):
            raise ValueError("no text")

    @tool("Look")
    async def look() -> str:
        raise Odd

    llm = ScriptedModel(call("look"), "ok")
    assert await Loop(llm=llm, tools=[look], on_tool_error="raise").query("x") == "ok"
    assert shown(llm.requests[1])[-1] == "<Odd>"


async def test_a_bug_in_a_tool_is_logged_with_its_traceback_and_a_tool_error_is_not(caplog):
    @tool("Look")
    async def look() -> str:
        raise ToolError("Try Paris.")

    llm = ScriptedModel([call("fail", how="a bug"), call("look")], "ok")
    with caplog.at_level(logging.WARNING, "agentloop"):
        await Loop(llm=llm, tools=[fail, look]).run("x")
    [record] = caplog.records
    assert (record.levelname, record.getMessage()) == ("WARNING", "tool fail failed")
    assert "LookupError: a bug" in caplog.text


async def test_a_run_has_an_end_whatever_its_model_raises():
    class Odd(BaseException):
        pass

    agent = Loop(llm=ScriptedModel(Odd("no"), "ok"))
    with pytest.raises(Odd):
        await agent.run("x")
    assert (agent.log[-1].stop_reason, agent.log[-1].error) == ("error", "Odd: no")
    assert await agent.query("x") == "ok"


async def test_an_open_call_of_a_done_tool_ends_the_run_that_takes_it_up():
    agent = Loop(llm=ScriptedModel(), tools=[finish])
    agent.record(UserMessage("x"))
    agent.record(AssistantMessage(tool_calls=(ToolCall("1", "finish", '{"text":"It is 5."}'),)))
    result = await agent.run()
    assert (result.text, result.stop_reason) == ("It is 5.", "done")


def test_a_step_takes_as_many_milliseconds_as_its_result_says():
    heard = []
    agent = Loop(llm=ScriptedModel(), listeners=[heard.append])
    agent.add(ToolMessage("1", "add", "5", seconds=1.5))
    assert heard[-1] == StepCompleteEvent("1", "completed", 1500)


async def test_of_several_interrupts_the_first_counts():
    begun = asyncio.Event()

    async def wait(messages, tools):
        begun.set()
        await asyncio.Event().wait()

    agent = Loop(llm=ScriptedModel(wait))
    task = asyncio.create_task(agent.run("x"))
    await begun.wait()
    agent.interrupt("Wait.")
    agent.interrupt("Stop.")
    assert (await task).stop_reason == "interrupted"
    assert agent.messages[-1].text.endswith("Wait.")


async def test_a_run_whose_end_cannot_be_saved_has_one_end():
    class FullDisk(Loop):
        def record(self, record):
            super().record(record)
            if isinstance(record, RunEnd):
                raise OSError("no space")

    agent = FullDisk(llm=ScriptedModel("ok"))
    with pytest.raises(OSError, match="no space"):
        await agent.run("x")
    assert sum(isinstance(record, RunEnd) for record in agent.log) == 1


@pytest.mark.parametrize("interrupts", [True, False])
async def test_an_error_that_a_model_makes_of_an_interrupt_is_an_interrupt(interrupts):
    begun = asyncio.Event()

    async def aborts(messages, tools):
        begun.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            raise RuntimeError("aborted") from None

    agent = Loop(llm=ScriptedModel(aborts, "ok"))
    task = asyncio.create_task(agent.run("x"))
    await begun.wait()
    agent.interrupt("stop") if interrupts else task.cancel()
    await asyncio.wait([task])
    if interrupts:
        assert task.result().stop_reason == "interrupted"
        assert task.cancelling() == 0
    else:
        assert isinstance(task.exception(), RuntimeError)
    assert await agent.query("go on") == "ok"


async def test_a_reader_whose_stream_another_task_closes_comes_to_its_end():
    async def stubborn(messages, tools):
        while not release.is_set():
            begun.set()
            with suppress(asyncio.CancelledError):
                await release.wait()
        return "late"

    async def read():
        return [event async for event in stream]

    begun, release = asyncio.Event(), asyncio.Event()
    stream = Loop(llm=ScriptedModel(stubborn), cancel_timeout=0.01).query_stream("x")
    reading = asyncio.create_task(read())
    await begun.wait()
    await stream.aclose()
    assert await asyncio.wait_for(reading, 5) == []
    release.set()


async def test_a_listener_that_removes_itself_takes_no_event_from_others():
    def once(event):
        heard.append("once")
        agent.listeners.remove(once)

    heard, all_heard = [], []
    agent = Loop(llm=ScriptedModel("ok"), listeners=[once, all_heard.append])
    events = [event async for event in agent.query_stream("x")]
    assert heard == ["once"]
    assert all_heard == events


async def test_a_cancel_that_a_mixin_makes_up_ends_the_run_and_cripples_none():
    class Broken(Loop):
        async def call_tool(self, call):
            await super().call_tool(call)
            raise asyncio.CancelledError

    agent = Broken(llm=ScriptedModel(call("add", a=1, b=1), "ok"), tools=[add])
    with pytest.raises(asyncio.CancelledError):
        await agent.run("x")
    assert agent.log[-1].stop_reason == "cancelled"
    assert (await agent.run()).text == "ok"
