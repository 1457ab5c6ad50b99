"""The contract of the loop: the tests of every mixin inherit the class TestLoop."""

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
from typing import ClassVar

import pytest

from agentloop import (
    Agent,
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
    current_agent,
    current_call,
    dump_record,
    load_record,
    nudge,
    tool,
    validate_messages,
)
from agentloop.common.review import Ask
from agentloop.errors import ModelError
from agentloop.events import ToolsChangedEvent
from agentloop.messages import Attempt
from agentloop.mixins.final_summary import FinalSummary
from agentloop.models.scripted import call
from agentloop.settings import settings_of
from agentloop.transcript import (
    NEVER_STARTED,
    Awaits,
    RunEnd,
    RunStart,
    SideRequest,
)
from agentloop.waiting import wait_for
from tests.helpers import record_all

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
    """Return the text of each message of a request."""
    return [message.text for message in request.messages]


async def cancelled(agent, started):
    """Run an agent, cancel the run once `started` is set, and return the ended task."""
    task = asyncio.create_task(agent.run("x"))
    await started.wait()
    task.cancel()
    await asyncio.wait([task])
    return task


def tool_threads():
    """Return the threads in which synchronous tools are running."""
    return [each for each in threading.enumerate() if each.name == "tool thread"]


def ids_in(agent):
    """Return the ids of the calls in an agent's log."""
    replies = (record for record in agent.log if isinstance(record, AssistantMessage))
    return [call.id for reply in replies for call in reply.tool_calls]


class TestLoop:
    agent_class: type[Loop] = Loop
    largest_fork = 1024  # bytes

    def make(self, *script, **settings):
        """Return an agent of the tested class, whose answers end a run, and its scripted model."""
        llm = ScriptedModel(*script)
        if hasattr(self.agent_class, "require_done_tool"):
            settings.setdefault("require_done_tool", False)
        return self.agent_class(llm=llm, **settings), llm

    # ---- the loop

    async def test_the_loop_calls_tools_until_the_model_answers(self):
        agent, llm = self.make(call("add", a=2, b=3), "It is 5.", tools=[add], system_prompt="Be.")
        result = await agent.run("2 + 3?")
        assert (result.text, result.stop_reason) == ("It is 5.", "completed")
        assert str(result) == "It is 5."
        assert shown(llm.requests[1]) == ["Be.", "2 + 3?", "", "5"]
        assert all(r.messages[0] == SystemMessage("Be.") for r in llm.requests)
        assert [m.text for m in agent.messages] == ["2 + 3?", "", "5", "It is 5."]
        assert agent.messages[1].tool_calls[0].id == agent.messages[2].tool_call_id != ""

    @pytest.mark.parametrize(("settings", "together"), [({}, 16), ({"max_parallel": 7}, 7)])
    async def test_calls_run_concurrently_up_to_max_parallel_with_results_in_order(
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

    async def test_a_tool_without_parallel_calls_runs_alone(self):
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

    # ---- limits and unusual replies

    @pytest.mark.parametrize(
        ("word", "reason"),
        [(word, word) for word in ("refused", "context_overflow")]
        + [("length", "limit:length"), ("zzz", "unknown:zzz")],
    )
    async def test_an_incomplete_reply_is_never_a_success(self, word, reason):
        agent, _ = self.make(AssistantMessage("no", stop_reason=word))
        assert (await agent.run("x")).stop_reason == reason

    async def test_an_answer_is_complete_even_if_its_stop_reason_announces_calls(self):
        agent, _ = self.make(AssistantMessage("yes", stop_reason="tool_calls"))
        assert await agent.query("x") == "yes"

    async def test_events_results_and_records_contain_the_same_generated_id(self):
        asks = AssistantMessage(tool_calls=(ToolCall("", "add", '{"a":1,"b":1}'),))
        agent, llm = self.make(asks, asks, "ok", tools=[add])
        events = [event async for event in agent.query_stream("x")]
        ids = ids_in(agent)
        assert len(set(ids)) == 2
        for kind in (ToolCallEvent, ToolResultEvent):
            assert [e.tool_call_id for e in events if isinstance(e, kind)] == ids
        assert [r.call_id for r in agent.log if isinstance(r, ToolStart)] == ids
        results = [m for m in llm.requests[-1].messages if isinstance(m, ToolMessage)]
        assert [m.tool_call_id for m in results] == ids
        assert ids_in(agent.fork()) == ids

    # ---- failures of tools

    async def test_on_tool_error_raise_ends_the_run_and_records_a_result(self):
        agent, _ = self.make(call("fail", how="x"), tools=[fail], on_tool_error="raise")
        with pytest.raises(LookupError):
            await agent.query("x")
        assert validate_messages(agent.messages) == []
        assert agent.messages[-1].text == "LookupError: x"

    async def test_a_cancelled_error_raised_by_a_tool_is_an_error_result_even_with_raise(self):
        @tool("Look")
        async def look() -> str:
            raise asyncio.CancelledError

        calls = [call("look"), call("add", a=1, b=1)]
        agent, llm = self.make(calls, "ok", tools=[look, add], on_tool_error="raise")
        assert await agent.query("x") == "ok"
        assert shown(llm.requests[-1])[-2:] == ["CancelledError", "2"]

    async def test_a_failed_call_does_not_affect_other_calls(self):
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
    async def test_no_call_starts_after_an_exit_or_a_stop(self, error):
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
    async def test_task_complete_sets_the_text_and_the_value_of_the_result(self, answer):
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
    async def test_only_exits_of_the_interpreter_end_the_run(self, error, sync):
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

    async def test_calls_next_to_a_done_call_receive_results(self):
        calls = [call("finish", text="1"), call("add", a=1, b=1), call("finish", text="2")]
        agent, _ = self.make(calls, "next", tools=[finish, add])
        assert (await agent.run("x")).text == "1"
        assert [m.text for m in agent.messages[2:]] == ["1", "2", "2"]
        assert await agent.query("more") == "next"

    async def test_another_stop_takes_precedence_over_done(self):
        @tool("Spend")
        async def spend() -> str:
            raise Stop("limit:cost", "too much")

        calls = [call("finish", text="done"), call("spend")]
        agent, _ = self.make(calls, "next", tools=[finish, spend])
        result = await agent.run("x")
        assert (result.stop_reason, result.text) == ("limit:cost", "too much")
        assert await agent.query("more") == "next"

    # ---- dependencies

    async def test_a_tool_receives_its_agent_its_call_and_overrides(self):
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

    # ---- one run at a time, and copies

    async def test_a_concurrent_query_raises_agent_busy(self):
        gate = asyncio.Event()

        async def slow(messages, tools):
            await gate.wait()
            return "ok"

        agent, llm = self.make(slow)
        first = asyncio.create_task(agent.query("a"))
        await asyncio.sleep(0)
        asyncio.get_running_loop().call_soon(gate.set)  # too late: it's refused at once
        with pytest.raises(AgentBusy, match="running a query"):
            await agent.query("b")
        with pytest.raises(AgentBusy):
            agent.refuse_if_busy()
        assert await first == "ok"
        assert [shown(r) for r in llm.requests] == [["a"]]

    async def test_forks_share_only_the_settings(self):
        template, llm = self.make(lambda messages, tools: messages[-1].text + "!", tools=[add])
        answers = await asyncio.gather(*(template.fork().query(f"{i}") for i in range(20)))
        assert answers == [f"{i}!" for i in range(20)]
        assert template.log == []
        assert all(len(request.messages) == 1 for request in llm.requests)

    async def test_a_fork_has_separate_lists_dicts_and_sets(self):
        class Listing(self.agent_class):
            seen: set = {"shared"}
            table: dict = {}

        self.agent_class, received, inner = Listing, [], []
        template, _ = self.make("ok", "ok", tools=[add], table={"inner": inner})
        template.listeners = [received.append]
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
        assert received == []
        await template.query("x")
        assert received

    @pytest.mark.parametrize("count", [1, 20])
    def test_a_fork_of_an_empty_agent_is_small(self, count):
        # A new class: attributes set by other tests would enlarge the instances.
        self.agent_class = type("Fresh", (self.agent_class,), {})
        tools = [tool("Add two numbers", name=f"add_{n}")(add.function) for n in range(count)]
        template, _ = self.make(tools=tools)
        sizes = []
        gc.freeze()  # so that a collection processes only new objects
        while len(sizes) < 3:  # the minimum excludes other allocations
            forks = [template] * 100  # the list is not part of a fork
            tracemalloc.start()
            before = tracemalloc.get_traced_memory()[0]
            forks[:] = (template.fork() for _ in forks)
            gc.collect()  # also empties Python's free lists, which are not part of a fork
            sizes.append((tracemalloc.get_traced_memory()[0] - before) / len(forks))
            tracemalloc.stop()
        assert min(sizes) < self.largest_fork + (count > 1) * 1024
        assert all(len(twin.toolset()) >= count for twin in forks)

    async def test_a_fork_before_a_result_closes_the_open_call(self):
        agent, llm = self.make(call("add", a=1, b=1), "2", "other", tools=[add])
        await agent.query("x")
        before = list(agent.log)
        kinds = [type(record) for record in before]
        twin = agent.fork(at=kinds.index(AssistantMessage) + 1)
        assert await twin.query("again") == "other"
        assert agent.log == before
        assert shown(llm.requests[-1])[2].startswith("Not run")

    async def test_calls_are_resolved_against_the_offered_tools(self):
        def swap(messages, tools):
            agent.tools = [fail]
            return call("add", a=1, b=1)

        agent, llm = self.make(swap, "ok", tools=[add])
        await agent.query("x")
        assert shown(llm.requests[1])[-1] == "2"
        assert {t.name for t in llm.requests[1].tools} & {"fail", "add"} == {"fail"}

    # ---- continuing

    async def test_the_error_about_an_unknown_tool_lists_the_available_tools(self):
        agent, _ = self.make(call("subtract"), "ok", tools=[add, fail])
        await agent.run("x")
        assert agent.messages[2].is_error
        text = agent.messages[2].text
        assert text.startswith("There is no tool named 'subtract'. Available tools: add, fail")

    async def test_repeating_a_prompt_after_a_failure_does_not_duplicate_the_message(self):
        agent, llm = self.make(RuntimeError("down"), "ok", RuntimeError("down"), "ok again")
        for _ in range(2):
            with pytest.raises(RuntimeError):
                await agent.run("x")
            await agent.run("x")
        assert shown(llm.requests[1]) == ["x"]
        assert shown(llm.requests[3]) == ["x", "ok", "x"]

    async def test_run_without_a_prompt_raises_if_there_is_nothing_to_continue(self):
        agent, _ = self.make("ok")
        with pytest.raises(ValueError, match="nothing to continue"):
            await agent.run()
        await agent.run("x")
        with pytest.raises(ValueError, match="nothing to continue"):
            await agent.run()

    async def test_a_run_that_a_done_tool_ended_leaves_nothing_to_continue(self):
        @tool("Hand in", ends_run=True)
        def hand_in(work: str) -> str:
            return work

        agent, _ = self.make(call("hand_in", work="essay"), tools=[hand_in])
        assert (await agent.run("x")).stop_reason == "done"
        with pytest.raises(ValueError, match="nothing to continue"):
            await agent.run()

    async def test_the_answer_of_a_run_that_was_killed_before_its_end_is_returned(self):
        agent, llm = self.make()
        for record in (RunStart(), UserMessage("Capital of France?"), AssistantMessage("Paris.")):
            agent.record(record)
        result = await agent.run()
        assert (result.text, result.stop_reason) == ("Paris.", "completed")
        assert llm.requests == [], "the answer isn't paid for twice"
        with pytest.raises(ValueError, match="nothing to continue"):
            await agent.run()

    async def test_a_done_tools_result_is_the_answer_of_a_run_that_was_killed_before_its_end(self):
        @tool("Hand in", ends_run=True)
        def hand_in(work: str) -> str:
            return work

        async def killed_after(*answers):
            agent, llm = self.make("What else?", tools=[add, hand_in])
            calls = tuple(ToolCall(str(at), name) for at, (name, _) in enumerate(answers))
            record_all(agent, [RunStart(), UserMessage("x"), AssistantMessage(tool_calls=calls)])
            for made, (_, options) in zip(calls, answers, strict=True):
                record_all(agent, [ToolStart(made.id), made.answer(f"essay {made.id}", **options)])
            result = await agent.run()
            return result.text, result.stop_reason, len(llm.requests)

        done, failed = ("hand_in", {}), ("hand_in", {"is_error": True})
        assert await killed_after(done) == ("essay 0", "done", 0)
        assert await killed_after(done, ("add", {})) == ("essay 0", "done", 0)
        assert await killed_after(failed, done, done) == ("essay 1", "done", 0), "the first of two"
        assert await killed_after(failed) == ("What else?", "completed", 1)
        assert await killed_after(("add", {})) == ("What else?", "completed", 1)

    async def test_instructions_after_an_answer_leave_nothing_to_continue(self):
        agent, llm = self.make("Paris.", "Rome.")
        await agent.run("Capital of France?")
        agent.add(SystemMessage("Be brief."))
        with pytest.raises(ValueError, match="nothing to continue"):
            await agent.run()
        killed, llm = self.make()
        for record in (RunStart(), UserMessage("Capital of France?"), AssistantMessage("Paris.")):
            killed.record(record)
        killed.add(SystemMessage("Be brief."))
        assert (await killed.run()).text == "Paris."
        assert llm.requests == []

    async def test_a_prompt_repeated_after_new_instructions_is_recorded_once(self):
        agent, llm = self.make(ModelError("no connection"), "Paris.")
        with pytest.raises(ModelError):
            await agent.run("Capital of France?")
        agent.add(SystemMessage("Be brief."))
        assert await agent.query("Capital of France?") == "Paris."
        assert shown(llm.requests[-1]) == ["Capital of France?", "Be brief."]

    async def test_a_run_goes_on_if_it_was_killed_before_its_answer_was_refused(self):
        class Doubting(self.agent_class):
            async def finish(self, result):
                ended = await super().finish(result)
                if ended and ended.text == "Lyon.":
                    self.add_note("Look again.")
                    return None
                return ended

        self.agent_class = Doubting
        agent, llm = self.make("Paris.")
        for record in (RunStart(), UserMessage("Capital of France?"), AssistantMessage("Lyon.")):
            agent.record(record)
        assert (await agent.run()).text == "Paris."
        assert shown(llm.requests[0])[-1] == "Look again."

    @pytest.mark.parametrize("empty", ["", "  ", []])
    async def test_an_empty_prompt_raises_value_error(self, empty):
        with pytest.raises(ValueError, match="prompt is empty"):
            await self.make("ok")[0].run(empty)

    def test_a_new_agent_has_no_pending_calls_and_no_messages(self):
        agent, _ = self.make()
        assert (agent.pending, agent.running, agent.messages) == ((), False, ())

    async def test_open_calls_run_only_if_never_started_or_idempotent(self):
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
        record_all(agent, made)
        assert (await agent.run()).text == "ok"
        assert sorted(ran) == ["idempotent", "waiting"]
        answered = [r.tool_call_id for r in agent.log if isinstance(r, ToolMessage)]
        assert sorted(answered) == ["1", "2", "3"], "including the call that may not run again"
        assert "may have had effects" in shown(llm.requests[0])[3]

    async def test_a_new_prompt_closes_open_calls_permanently(self):
        agent, llm = self.make("ok", tools=[add])
        record_all(agent, [UserMessage("x"), AssistantMessage(tool_calls=(ToolCall("1", "add"),))])
        told = []
        agent.listeners = [told.append]
        await agent.run("never mind")
        assert shown(llm.requests[0])[2].startswith("Not run")
        assert [e.tool_call_id for e in told if isinstance(e, ToolResultEvent)] == ["1"]
        assert any(isinstance(r, ToolMessage) for r in agent.log)

    # ---- cancellation

    @pytest.mark.parametrize("timeout", [None, 30])
    @pytest.mark.parametrize("sync", [True, False])
    async def test_a_result_that_coincides_with_a_cancellation_is_recorded(
        self, sync, timeout, monkeypatch
    ):
        returned, notified = threading.Event(), threading.Event()
        others = tool_threads()  # that another test has left

        def own_threads():
            return [thread for thread in tool_threads() if thread not in others]

        def pay_sync() -> str:
            returned.set()
            return "paid"

        async def pay() -> str:
            return pay_sync()

        def notify(*args):
            call_soon(*args)
            notified.set()

        loop = asyncio.get_running_loop()
        call_soon = loop.call_soon_threadsafe
        monkeypatch.setattr(loop, "call_soon_threadsafe", notify)
        made = tool("Pay", name="pay", timeout=timeout)(pay_sync if sync else pay)
        for turns in range(12):
            returned.clear()
            notified.clear()
            agent, _ = self.make(call("pay"), "ok", tools=[made])
            task = asyncio.create_task(agent.run("x"))
            for _ in range(turns):
                await asyncio.sleep(0)
            if own_threads():  # it has notified the event loop, which has not reacted yet
                notified.wait(5)
            ended = returned.is_set()
            task.cancel()
            await asyncio.wait([task])
            ended = ended or (returned.is_set() and not sync)  # a thread may have continued alone
            texts = [m.text for m in agent.messages if isinstance(m, ToolMessage)]
            assert not ended or texts == ["paid"], turns
            for thread in own_threads():
                thread.join(5)

    async def test_an_error_takes_precedence_over_a_done_call(self):
        script = [call("finish", text="fine"), call("fail", how="no")]
        agent, _ = self.make(script, tools=[finish, fail], on_tool_error="raise")
        with pytest.raises(LookupError, match="no"):
            await agent.run("x")
        assert validate_messages(agent.messages) == []

    async def test_context_variables_set_by_work_with_a_timeout_apply_to_the_caller(self):
        mark = ContextVar("mark", default="")

        async def work():
            mark.set("left")

        await wait_for(work(), 30, grace=1)
        assert mark.get() == "left"

    async def test_a_cancellation_that_coincides_with_a_result_is_delivered_once_at_the_next_await(
        self,
    ):
        async def save():
            started.set()
            with suppress(asyncio.CancelledError):
                await asyncio.Event().wait()
            return "saved"

        async def use():
            seen.append(await wait_for(save(), 30, grace=1))
            try:
                await asyncio.Event().wait()
            finally:
                seen.append(asyncio.current_task().cancelling())

        seen, started = [], asyncio.Event()
        task = asyncio.create_task(use())
        await started.wait()
        task.cancel()
        await asyncio.wait([task], timeout=5)
        assert task.cancelled()
        assert seen == ["saved", 1]

    async def test_tools_with_a_timeout_fail_and_end_a_run_like_other_tools(self):
        lost = tool("Look", name="look", timeout=30)(fail.function)
        end = tool("Finish", name="end", timeout=30)(finish.function)
        script = call("look", how="not there"), call("end", text="fine"), "never"
        agent, _ = self.make(*script, tools=[lost, end])
        result = await agent.run("x")
        assert (result.text, result.stop_reason) == ("fine", "done")
        failed = agent.messages[2]
        assert (failed.text, failed.is_error) == ("LookupError: not there", True)

    @pytest.mark.parametrize("timeout", [None, 30])
    async def test_the_value_returned_by_a_cancelled_tool_is_recorded(self, timeout):
        started = asyncio.Event()

        @tool("Save", timeout=timeout)
        async def save() -> str:
            started.set()
            with suppress(asyncio.CancelledError):
                await asyncio.Event().wait()
            return "saved a part"

        agent, _ = self.make(call("save"), "ok", tools=[save])
        assert (await cancelled(agent, started)).cancelled()
        assert agent.messages[-1].text == "saved a part"

    async def test_a_cancellation_while_a_stream_closes_is_not_lost(self):
        started, cleaning, go_on = asyncio.Event(), asyncio.Event(), asyncio.Event()

        @tool("Slow to stop")
        async def slow() -> None:
            started.set()
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
        await started.wait()
        closing = asyncio.create_task(stream.aclose())
        await cleaning.wait()
        closing.cancel()
        await asyncio.sleep(0)
        go_on.set()
        await asyncio.wait([closing, reading])
        assert closing.cancelled()

    async def test_a_model_that_suppresses_the_cancellation_does_not_continue_the_run(self):
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

    async def test_the_events_of_a_run_in_order(self):
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

    async def test_thinking_is_emitted_in_deltas_and_as_a_whole_separately_from_text(self):
        agent, _ = self.make(AssistantMessage("2", thinking="1 + 1?"))
        events = [event async for event in agent.query_stream("x")]
        thoughts = [event.content for event in events if isinstance(event, ThinkingDeltaEvent)]
        assert "".join(thoughts) == "1 + 1?"
        assert ThinkingEvent("1 + 1?") in events
        assert [event for event in events if isinstance(event, TextEvent)] == [TextEvent("2")]

    async def test_a_stream_has_the_result_and_the_messages_of_run(self):
        script = [call("add", a=1, b=1), "It is two."]
        agent, _ = self.make(*script, tools=[add])
        stream = agent.query_stream("x")
        text = [e.content async for e in stream if isinstance(e, TextDeltaEvent)]
        assert "".join(text) == stream.result.text == "It is two."
        other, _ = self.make(*script, tools=[add])
        await other.run("x")
        assert other.messages == agent.messages

    async def test_leaving_the_stream_at_a_call_prevents_the_call(self):
        ran = []
        note = tool("Note", name="note")(lambda: ran.append(1))
        agent, llm = self.make([call("note"), call("note")], "ok", tools=[note])
        async for event in agent.query_stream("x"):
            if isinstance(event, ToolCallEvent):
                break
        assert validate_messages(agent.messages) == []
        assert await agent.query("go on") == "ok"
        assert ran == []
        assert shown(llm.requests[1])[2].startswith("Not run")

    async def test_a_cancelled_reader_ends_after_the_end_of_the_run_is_recorded(self):
        started = asyncio.Event()

        @tool("Slow")
        async def slow() -> None:
            started.set()
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
        await started.wait()
        reading.cancel()
        await asyncio.wait([reading])
        assert reading.cancelled()
        assert not agent.running
        [end] = [record for record in agent.log if isinstance(record, RunEnd)]
        assert end.stop_reason == "cancelled"

    async def test_a_closed_or_finished_stream_has_no_more_events(self):
        agent, _ = self.make("a b c", "ok", tools=[add])
        stream = agent.query_stream("x")
        await anext(stream)
        await stream.aclose()
        assert [event async for event in stream] == []
        whole = agent.query_stream("y")
        assert [event async for event in whole]
        assert [event async for event in whole] == [], "a finished stream has no more events"

    async def test_an_error_in_the_reader_and_leaving_its_block_end_the_run(self):
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

    async def test_an_exception_of_a_listener_does_not_affect_the_run(self, caplog):
        def bad(event):
            raise ValueError("oops")

        received = []
        agent, _ = self.make("hi", listeners=[bad, received.append])
        assert await agent.query("x") == "hi"
        assert FinalResponseEvent("hi") in received
        assert "a listener failed" in caplog.text

    @pytest.mark.parametrize(
        ("tools", "names"),
        [
            ([add, fail], ["add", "fail"]),
            ([tool("Another", name="add")(add.function)], ["add"]),
        ],
    )
    async def test_a_change_of_the_tools_emits_an_event(self, tools, names):
        def change(received):
            agent.tools = tools if isinstance(received, ToolResultEvent) else agent.tools

        agent, _ = self.make(call("add", a=1, b=1), "2", tools=[add], listeners=[change])
        events = [event async for event in agent.query_stream("x")]
        [changed] = [each for each in events if isinstance(each, ToolsChangedEvent)]
        assert changed.tools[: len(names)] == names

    # ---- usage and settings

    async def test_usage_is_summed_per_agent_and_separate_for_results_and_forks(self):
        agent, _ = self.make(*(AssistantMessage("ok", usage=Usage(10, i)) for i in (1, 2, 3)))
        assert (await agent.run("a")).usage == Usage(10, 1)
        assert (await agent.run("b")).usage == Usage(10, 2)
        fork = agent.fork()
        await fork.run("c")
        assert (agent.usage, fork.usage) == (Usage(20, 3), Usage(10, 3))

    @pytest.mark.parametrize(
        ("settings", "message"),
        [
            ({"llm": "gpt-5"}, "llm: .*(ChatOpenAI|ChatModel)"),
            ({"llm": ScriptedModel}, "ChatOpenAI|ChatModel"),
            ({"max_iterations": 0}, "max_iterations"),
            ({"max_iterations": "3"}, "max_iterations"),
            ({"cancel_timeout": math.nan}, "cancel_timeout"),
            ({"tools": [add, add]}, "add"),
            ({"tools": [lambda: 1]}, "@tool"),
            ({"tools": add}, "tools"),
            ({"on_tool_error": "raises"}, "on_tool_error"),
            ({"dependency_overrides": {current_call: 5}}, r"dependency_overrides.*callable"),
            ({"max_iteration": 3}, "max_iteration.*max_iterations"),
            ({"nonsense": 3}, "nonsense.*mixin"),
        ],
    )
    def test_settings_are_validated_by_the_constructor_and_by_fork(self, settings, message):
        with pytest.raises((TypeError, ValueError), match=message):
            self.agent_class(**{"llm": ScriptedModel()} | settings)
        with pytest.raises((TypeError, ValueError), match=message):
            self.make()[0].fork(**settings).run_sync("x")

    def test_additions_of_post_init_to_settings_are_not_repeated_in_forks(self):
        class Adding(self.agent_class):
            def __post_init__(self):
                super().__post_init__()
                self.tools = [*self.tools, add]
                self.system_prompt += "!"

        fork = Adding(llm=ScriptedModel(), system_prompt="Hi").fork().fork(max_iterations=5)
        assert ([*fork.tools], fork.system_prompt, fork.max_iterations) == ([add], "Hi!", 5)

    async def test_fork_accepts_different_settings(self):
        agent, llm = self.make("one", call("add", a=1, b=1), "two", tools=[])
        await agent.run("x")
        twin = agent.fork(tools=[add], max_iterations=1)
        assert (await twin.run("y")).stop_reason == "max_iterations"
        assert (agent.tools, agent.max_iterations) == ([], 200)
        assert shown(llm.requests[1]) == ["x", "one", "y"]

    async def test_extra_data_of_a_run_is_recorded_in_run_start(self):
        agent, _ = self.make("ok")
        await agent.run("x", extra={"trace": "1"})
        [start] = [record for record in agent.log if isinstance(record, RunStart)]
        assert load_record(dump_record(start)).extra["trace"] == "1"

    def test_a_subclass_may_change_defaults(self):
        class Mine(self.agent_class):
            max_iterations = 3
            tools = [add]
            seen: list[str] = []

        one, two = Mine(llm=ScriptedModel()), Mine(llm=ScriptedModel(), tools=[])
        assert (one.max_iterations, one.tools, two.tools) == (3, [add], [])
        assert one.seen is not two.seen, "each agent has separate lists"
        with pytest.raises(ValueError, match="max_iterations"):
            type("Wrong", (Mine,), {"max_iterations": 0})(llm=ScriptedModel())
        with pytest.raises(TypeError, match="max_iteration.*max_iterations"):
            type("Wrong", (Mine,), {"max_iteration": 4})

    async def test_an_agent_is_hashable_and_its_repr_contains_neither_texts_nor_keys(self):
        class Mine:  # the repr contains a key
            model = "mine-1"

            def __init__(self):
                self.ainvoke = ScriptedModel("the answer").ainvoke

            def __repr__(self):
                return "Mine(api_key='secret')"

        agent, _ = self.make(system_prompt="secret", tools=[add])
        agent.llm = Mine()
        await agent.run("secret")
        assert agent in {agent}
        assert repr(agent).startswith(type(agent).__name__)
        assert "secret" not in repr(agent)
        if isinstance(agent, Agent):
            assert "Mine('mine-1'), 1 tools, " in repr(agent)

    def test_the_signature_contains_the_settings_and_their_defaults(self):
        parameters = inspect.signature(self.agent_class).parameters
        assert parameters["max_iterations"].default == 200
        assert parameters["llm"].default is inspect.Parameter.empty
        assert parameters.keys() == settings_of(self.make()[0]).keys()
        assert all(each.kind is each.KEYWORD_ONLY for each in parameters.values())

    async def test_each_agent_and_each_fork_has_separate_private_state(self):
        class Counting(self.agent_class):
            _turns: int = 0
            _seen: list[str] = []
            _shared: ClassVar[list[str]] = []
            _later: str
            _tools: dict[str, int] = {}  # not a mistyped `tools`
            turns = 5  # not a mistyped `_turns`

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

    # ---- a function as system prompt

    async def test_a_system_prompt_function_is_called_once_per_run(self):
        made = []

        def prompt(agent):
            made.append(agent)
            return f"You have had {len(agent.messages)} messages."

        script = call("add", a=1, b=1), "ok", "again", "twin"
        agent, llm = self.make(*script, tools=[add], system_prompt=prompt)
        await agent.run("x")
        await agent.run("y")
        firsts = [request.messages[0].text for request in llm.requests]
        assert firsts[0] == firsts[1] == "You have had 0 messages.", "the prefix is unchanged"
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

    async def test_a_system_prompt_function_that_returns_none_raises_type_error(self):
        agent, llm = self.make("ok", system_prompt=lambda agent: None)
        with pytest.raises(TypeError, match="system_prompt: .*None"):
            await agent.run("x")
        assert (llm.requests, agent.running) == ([], False)
        agent.system_prompt = "Hi."
        assert (await agent.run("x")).text == "ok"

    # ---- timeouts

    async def test_tool_timeout_applies_to_tools_without_a_timeout(self):
        @tool("Hang")
        async def hang():
            await asyncio.Event().wait()

        @tool("Take longer", timeout=math.inf)
        async def slow():
            await asyncio.sleep(0.1)
            return "done"

        calls = [call("hang"), call("slow")]
        agent, llm = self.make(calls, "ok", tools=[hang, slow], tool_timeout=0.02)
        await agent.query("x")
        hung, ended = shown(llm.requests[1])[-2:]
        assert "not finished within 0.02 seconds" in hung
        assert ended == "done"

    # ---- synchronous code

    def test_run_sync_is_for_scripts(self):
        agent, _ = self.make("hi", "ho")
        assert agent.run_sync("x").text == "hi"
        assert agent.run_sync("y").text == "ho"  # in a second event loop

        async def inside():
            agent.run_sync("x")

        with pytest.raises(RuntimeError, match="await agent.run"):
            asyncio.run(inside())
        with pytest.raises(ValueError, match="empty") as caught:
            agent.run_sync("")
        assert caught.value.__context__ is None, "the traceback has no second exception"


def test_run_sync_ends_open_tasks_and_generators_and_closes_the_event_loop():
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
async def test_query_raises_run_stopped_without_an_answer(reason):
    def end(messages, tools):
        raise Stop(reason, "Half of it.")

    with pytest.raises(RunStopped) as caught:
        await Loop(llm=ScriptedModel(end)).query("go")
    assert caught.value.result.stop_reason == reason
    assert str(caught.value) == f"{reason}: Half of it."


async def test_a_full_disk_at_a_tool_start_ends_the_run_before_the_tool():
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
async def test_finish_receives_the_result_of_every_run(script):
    @tool("Stop")
    def stop() -> None:
        raise Stop("needs_approval", "hunter2")

    class Redacting(Loop):
        async def finish(self, result):
            result = await super().finish(result)
            return result and replace(result, text=result.text.replace("hunter2", "***"))

    class Summing(Redacting, FinalSummary): ...

    agent = Summing(llm=ScriptedModel(*script), tools=[stop, add], max_iterations=1)
    assert (await agent.run("go")).text == "***"


def test_init_subclass_of_another_base_class_is_called():
    class Registry:
        names: ClassVar[list[str]] = []

        def __init_subclass__(cls, *, name, **more):
            super().__init_subclass__(**more)
            cls.names.append(name)

    class Mine(Loop, Registry, name="mine"):
        pass

    assert Mine.names == ["mine"]


async def test_an_error_takes_precedence_over_a_stop_of_another_call():
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


async def test_a_stop_raised_by_finish_ends_the_run_even_during_another_stop():
    class Checking(Loop):
        async def finish(self, result):
            raise Stop("no_progress", f"{result.text}?")

    agent = Checking(llm=ScriptedModel("It is 5."))
    result = await agent.run("x")
    assert (result.stop_reason, result.text) == ("no_progress", "It is 5.??")
    assert agent.log[-1] == RunEnd("no_progress", at=agent.log[-1].at)


async def test_after_unsuccessful_nudges_the_result_has_the_newest_text_of_the_model():
    class Insisting(Loop):
        async def finish(self, result):
            nudge(self, "Go on.")

    result = await Insisting(llm=ScriptedModel("a", "b", "", "c", " ")).run("x")
    assert (result.stop_reason, result.text) == ("no_progress", "c")


# ---- stops, timeouts, and failed attempts


async def test_a_call_prevented_by_a_stop_runs_in_the_next_run():
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
    assert [each.call.name for each in agent.conversation.open_calls] == ["add"]
    assert result.pending == ()
    assert not any(isinstance(record, ToolMessage) for record in agent.log)
    agent.allowed = True
    assert (await agent.run()).text == "ok"
    assert shown(llm.requests[1])[-1] == "2"


async def test_an_external_call_awaits_and_accepts_one_answer():
    @tool("Sign", external=True)
    async def sign() -> None: ...

    received = []
    llm = ScriptedModel(call("sign"), "signed")
    agent = Agent(llm=llm, tools=[sign], listeners=[received.append])
    assert (await agent.run("x")).stop_reason == "needs_answer"
    [waiting] = agent.pending
    with pytest.raises(ValueError, match=r"call_9"):
        agent.answer("call_9", "no")
    agent.answer(waiting.id, {"by": "Ada"})
    assert agent.pending == ()
    with pytest.raises(ValueError, match="answered"):
        agent.answer(waiting.id, "twice")
    received.clear()
    assert (await agent.run()).text == "signed"
    assert agent.messages[2] == ToolMessage(waiting.id, "sign", '{"by":"Ada"}')
    about = [event for event in received if waiting.id in vars(event).values()]
    assert about == [
        StepStartEvent(waiting.id, "sign", 1),
        ToolCallEvent("sign", {}, waiting.id),
        ToolResultEvent("sign", '{"by":"Ada"}', waiting.id),
        StepCompleteEvent(waiting.id, "completed", 0),  # the duration is unknown
    ]
    assert shown(llm.requests[1]) == ["x", "", '{"by":"Ada"}']


async def test_nothing_is_answered_during_a_run():
    @tool("Sign", external=True)
    async def sign() -> None: ...

    async def too_early(messages, tools):
        for call_id in (waiting.id, "unknown"):
            with pytest.raises(AgentBusy):
                agent.answer(call_id, "yes")
        return "wait"

    agent = Agent(llm=ScriptedModel(call("sign"), too_early), tools=[sign])
    await agent.run("x")
    [waiting] = agent.pending
    assert (await agent.run("Are you there?")).text == "wait"
    assert "yes" not in [message.text for message in agent.messages]


def test_answer_rejects_a_call_that_awaits_approval():
    agent = Agent(llm=ScriptedModel())
    agent.record(AssistantMessage(tool_calls=(ToolCall("1", "pay"),)))
    assert agent.pending == (), "no approval was requested"
    agent.record(Ask("1"))
    assert agent.pending == (agent.waiting_call("1").call,)
    with pytest.raises(ValueError, match="needs approval"):
        agent.answer("1", "no")


async def test_a_stop_raised_by_a_started_tool_is_the_result_of_the_call():
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
async def test_a_timed_out_tool_fails_unless_it_returns_or_raises(then, text, is_error):
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


async def test_a_timed_out_synchronous_tool_is_abandoned_immediately():
    release = threading.Event()
    work = tool("Work", name="work", timeout=0.01)(lambda: release.wait(60))
    agent = Loop(llm=ScriptedModel(call("work"), "ok"), tools=[work], cancel_timeout=60)
    assert await asyncio.wait_for(agent.query("x"), 30) == "ok"
    assert agent.messages[2].text.startswith("TimeoutError: not finished within 0.01 seconds")
    release.set()


@pytest.mark.parametrize("reply", ["Paris.", {"content": "Paris."}, None])
async def test_a_model_that_returns_no_message_is_told_what_to_return(reply):
    class Model:
        model = "m"

        async def ainvoke(self, messages, tools=(), **_):
            return reply

    with pytest.raises(TypeError, match="AssistantMessage"):
        await Loop(llm=Model()).run("Capital of France?")


def test_another_thread_may_read_the_pending_calls_during_a_run():
    agent = Loop(llm=ScriptedModel())

    class AwaitsLong(Awaits):
        def presented(self, call):  # the run goes on meanwhile
            agent.record(AssistantMessage(tool_calls=(ToolCall(f"after {call.id}", "add"),)))
            return agent.conversation.states[call.id].call

    for call_id in "ab":
        agent.record(AssistantMessage(tool_calls=(ToolCall(call_id, "add"),)))
        agent.record(AwaitsLong(call_id))
    assert [call.id for call in agent.pending] == ["a", "b"]


async def test_a_run_that_is_out_of_turns_has_an_answer_only_if_it_has_a_text():
    llm = ScriptedModel(lambda messages, tools: call("add", a=1, b=1))
    result = await Loop(llm=llm, tools=[add], max_iterations=2).run("x")
    assert (result.text, result.stop_reason) == ("", "max_iterations")
    assert not result.answered
    with pytest.raises(RunStopped, match="max_iterations"):
        await Loop(llm=llm, tools=[add], max_iterations=2).query("x")


@pytest.mark.parametrize(
    ("purpose", "listeners", "streams"),
    [("turn", [], False), ("turn", [print], True), ("compaction", [print], False)],
)
async def test_a_turn_is_streamed_if_there_is_a_listener(purpose, listeners, streams):
    class Model:
        model = "own"

        async def ainvoke(self, messages, tools=(), *, tool_choice="auto", on_delta=None):
            seen.append(on_delta is not None)
            return AssistantMessage("ok")

    seen = []
    agent = Loop(llm=Model(), listeners=listeners)
    await agent.call_model(Request([UserMessage("x")], purpose=purpose))
    assert seen == [streams]


async def test_the_failed_attempts_of_a_reply_and_of_an_error_are_recorded_before_them():
    attempt = Attempt(Usage(5))
    failure = ModelError("busy")
    failure.attempts = (attempt, attempt)
    agent = Loop(llm=ScriptedModel(AssistantMessage("ok", attempts=(attempt,)), failure))
    await agent.run("x")
    assert [type(record) for record in agent.log[-3:]] == [SideRequest, AssistantMessage, RunEnd]
    assert agent.messages[-1].attempts == ()
    with pytest.raises(ModelError, match="busy"):
        await agent.run("y")
    assert agent.usage == Usage(15)


# ---- errors of tools, mixins and models


async def test_a_call_reported_as_not_run_never_runs_later():
    class Stubborn(Loop):
        async def call_tool(self, call):
            while not release.is_set():
                started.set()
                with suppress(asyncio.CancelledError):
                    await release.wait()
            return await super().call_tool(call)

    ran, started, release = [], asyncio.Event(), asyncio.Event()
    work = tool("Work", name="work")(lambda: ran.append(1))
    agent = Stubborn(llm=ScriptedModel(call("work"), "ok"), tools=[work], cancel_timeout=0.01)
    await cancelled(agent, started)
    assert agent.messages[-1].text == NEVER_STARTED
    [behind] = asyncio.all_tasks() - {asyncio.current_task()}
    release.set()
    await asyncio.wait([behind])
    assert ran == []
    assert agent.messages[-1].text == NEVER_STARTED
    assert await agent.query("go on") == "ok"


async def test_a_mixin_that_returns_the_result_of_another_call_raises_an_error():
    class Mixing(Loop):
        async def call_tool(self, call):
            await super().call_tool(call)
            return ToolCall("another", "add").answer("5")

    agent = Mixing(llm=ScriptedModel(call("add", a=2, b=3)), tools=[add])
    with pytest.raises(ValueError, match=r"call\.answer"):
        await agent.run("x")
    assert "a result of 'another'" in agent.messages[-1].text


async def test_a_done_call_added_by_a_mixin_ends_the_run():
    @tool("Finish")
    async def finish_up() -> None:
        raise TaskComplete("fine")

    class Finishing(Loop):
        async def call_tools(self, calls):
            return await super().call_tools([*calls, ToolCall("mine", "finish_up")])

    llm = ScriptedModel(call("add", a=2, b=3))
    result = await Finishing(llm=llm, tools=[add, finish_up]).run("x")
    assert (result.stop_reason, result.text) == ("done", "fine")


async def test_task_complete_may_be_raised_in_a_task_group():
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


async def test_a_tool_error_without_text_yields_the_name_of_its_class():
    class Odd(ToolError):
        def __str__(self):
            raise ValueError("no text")

    @tool("Look")
    async def look() -> str:
        raise Odd

    llm = ScriptedModel(call("look"), "ok")
    assert await Loop(llm=llm, tools=[look], on_tool_error="raise").query("x") == "ok"
    assert shown(llm.requests[1])[-1] == "<Odd>"


async def test_exceptions_of_tools_are_logged_with_traceback_except_tool_errors(caplog):
    @tool("Look")
    async def look() -> str:
        raise ToolError("Try Paris.")

    llm = ScriptedModel([call("fail", how="a bug"), call("look")], "ok")
    with caplog.at_level(logging.WARNING, "agentloop"):
        await Loop(llm=llm, tools=[fail, look]).run("x")
    [record] = [each for each in caplog.records if each.name == "agentloop"]
    assert (record.levelname, record.getMessage()) == ("WARNING", "tool fail failed")
    assert "LookupError: a bug" in caplog.text


async def test_the_end_of_a_run_is_recorded_for_any_exception_of_the_model():
    class Odd(BaseException):
        pass

    agent = Loop(llm=ScriptedModel(Odd("no"), "ok"))
    with pytest.raises(Odd):
        await agent.run("x")
    assert (agent.log[-1].stop_reason, agent.log[-1].error) == ("error", "Odd: no")
    assert await agent.query("x") == "ok"


async def test_an_open_done_call_ends_the_run_that_continues():
    agent = Loop(llm=ScriptedModel(), tools=[finish])
    agent.record(UserMessage("x"))
    agent.record(AssistantMessage(tool_calls=(ToolCall("1", "finish", '{"text":"It is 5."}'),)))
    result = await agent.run()
    assert (result.text, result.stop_reason) == ("It is 5.", "done")


def test_the_duration_of_a_step_is_that_of_its_result():
    received = []
    agent = Loop(llm=ScriptedModel(), listeners=[received.append])
    agent.add(ToolMessage("1", "add", "5", seconds=1.5))
    assert received[-1] == StepCompleteEvent("1", "completed", 1500)


async def test_a_run_end_that_cannot_be_saved_is_recorded_once():
    class FullDisk(Loop):
        def record(self, record):
            super().record(record)
            if isinstance(record, RunEnd):
                raise OSError("no space")

    agent = FullDisk(llm=ScriptedModel("ok"))
    with pytest.raises(OSError, match="no space"):
        await agent.run("x")
    assert sum(isinstance(record, RunEnd) for record in agent.log) == 1


async def test_a_reader_ends_if_another_task_closes_its_stream():
    async def stubborn(messages, tools):
        while not release.is_set():
            started.set()
            with suppress(asyncio.CancelledError):
                await release.wait()
        return "late"

    async def read():
        return [event async for event in stream]

    started, release = asyncio.Event(), asyncio.Event()
    stream = Loop(llm=ScriptedModel(stubborn), cancel_timeout=0.01).query_stream("x")
    reading = asyncio.create_task(read())
    await started.wait()
    await stream.aclose()
    assert await asyncio.wait_for(reading, 5) == []
    release.set()


async def test_a_listener_may_remove_itself_without_effect_on_other_listeners():
    def once(event):
        received.append("once")
        agent.listeners.remove(once)

    received, all_received = [], []
    agent = Loop(llm=ScriptedModel("ok"), listeners=[once, all_received.append])
    events = [event async for event in agent.query_stream("x")]
    assert received == ["once"]
    assert all_received == events


async def test_a_cancelled_error_raised_by_a_mixin_ends_only_the_current_run():
    class Broken(Loop):
        async def call_tool(self, call):
            await super().call_tool(call)
            raise asyncio.CancelledError

    agent = Broken(llm=ScriptedModel(call("add", a=1, b=1), "ok"), tools=[add])
    with pytest.raises(asyncio.CancelledError):
        await agent.run("x")
    assert agent.log[-1].stop_reason == "cancelled"
    assert (await agent.run()).text == "ok"
