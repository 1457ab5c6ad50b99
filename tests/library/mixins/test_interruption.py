"""Interruption: the loop's contract and its own."""

import asyncio
import threading
from functools import partial

import pytest

from agentloop import (
    Depends,
    FinalResponseEvent,
    Loop,
    ScriptedModel,
    Stop,
    ToolCallEvent,
    current_agent,
    tool,
)
from agentloop.mixins.interruption import Interruption
from agentloop.models.scripted import call
from agentloop.transcript import (
    OUTCOME_UNKNOWN,
)
from agentloop.waiting import wait_for
from tests.core.test_loop import TestLoop, cancelled, ids_in, shown


class TestInterruption(TestLoop):
    agent_class = Interruption

    @pytest.mark.parametrize("from_thread", [False, True])
    async def test_interrupt_ends_the_run_with_a_result_and_informs_the_model(self, from_thread):
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
        agent.interrupt()  # no effect between runs

    async def test_a_cancelled_call_stays_open_with_an_unknown_outcome(self):
        started = asyncio.Event()

        @tool("Slow")
        async def slow() -> None:
            started.set()
            await asyncio.Event().wait()

        agent, _ = self.make(call("slow"), call("slow"), tools=[slow])
        await cancelled(agent, started)
        assert agent.messages[-1].text == OUTCOME_UNKNOWN
        started.clear()
        run = asyncio.create_task(agent.run("again"))
        await started.wait()
        agent.interrupt()
        assert (await run).stop_reason == "interrupted"
        assert [state.call.id for state in agent.conversation.open_calls] == ids_in(agent)[-1:]

    async def test_an_interrupt_prevents_the_call_and_does_not_affect_the_next_run(self):
        def interrupt(event):
            if isinstance(event, ToolCallEvent | FinalResponseEvent):
                agent.interrupt()

        ran = []
        note = tool("Note", name="note")(lambda: ran.append(1))
        agent, _ = self.make(call("note"), "one", "two", tools=[note], listeners=[interrupt])
        assert (await agent.run("x")).stop_reason == "interrupted"
        assert ran == []
        assert await agent.query("a") == "one"  # interrupted at its end
        assert await agent.query("b") == "two"

    @pytest.mark.parametrize("order", ["cancel, interrupt", "interrupt, cancel"])
    async def test_a_cancellation_together_with_an_interrupt_is_not_lost(self, order):
        started = asyncio.Event()

        async def wait(messages, tools):
            started.set()
            await asyncio.Event().wait()

        agent, _ = self.make(wait, "ok")
        task = asyncio.ensure_future(agent.run("x"))
        await started.wait()
        if order == "cancel, interrupt":
            task.cancel()
            agent.interrupt()
        else:
            agent.interrupt()
            task.cancel()
        await asyncio.wait([task])
        assert task.cancelled()
        assert await agent.query("go on") == "ok"


async def test_an_interrupt_after_the_last_turn_ends_the_run_with_a_result():
    class Checked(Interruption):
        async def finish(self, result):
            self.interrupt()
            await asyncio.sleep(0)
            return await super().finish(result)

    agent = Checked(llm=ScriptedModel(call("x")), max_iterations=1)
    assert (await agent.run("x")).stop_reason == "interrupted"
    assert asyncio.current_task().cancelling() == 0


async def test_only_the_first_of_several_interrupts_has_an_effect():
    started = asyncio.Event()

    async def wait(messages, tools):
        started.set()
        await asyncio.Event().wait()

    agent = Interruption(llm=ScriptedModel(wait))
    task = asyncio.create_task(agent.run("x"))
    await started.wait()
    agent.interrupt("Wait.")
    agent.interrupt("Stop.")
    assert (await task).stop_reason == "interrupted"
    assert agent.messages[-1].text.endswith("Wait.")


@pytest.mark.parametrize("interrupts", [True, False])
async def test_an_error_raised_by_a_model_due_to_an_interrupt_ends_the_run_as_interrupted(
    interrupts,
):
    started = asyncio.Event()

    async def aborts(messages, tools):
        started.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            raise RuntimeError("aborted") from None

    agent = Interruption(llm=ScriptedModel(aborts, "ok"))
    task = asyncio.create_task(agent.run("x"))
    await started.wait()
    agent.interrupt("stop") if interrupts else task.cancel()
    await asyncio.wait([task])
    if interrupts:
        assert task.result().stop_reason == "interrupted"
        assert task.cancelling() == 0
    else:
        assert isinstance(task.exception(), RuntimeError)
    assert await agent.query("go on") == "ok"


@pytest.mark.parametrize("stops", [True, False])
async def test_an_interrupt_at_the_end_of_a_run_does_not_cancel_what_follows(stops):
    class Slow(Interruption):
        async def finish(self, result):
            await wait_for(interrupt(), 60, grace=1)
            if stops:
                raise Stop("limit:requests")
            return await super().finish(result)

    async def interrupt():
        agent.interrupt()

    agent = Slow(llm=ScriptedModel("ok"))
    assert (await agent.run("x")).stop_reason == ("limit:requests" if stops else "completed")
    await asyncio.sleep(0.01)
    assert asyncio.current_task().cancelling() == 0
