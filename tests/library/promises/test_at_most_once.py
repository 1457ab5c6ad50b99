"""Promise 2: a call runs at most once, and never if it is invalid or truncated."""

import asyncio
from contextlib import suppress

import pytest

from agentloop import Agent, AssistantMessage, Loop, ScriptedModel, ToolCall, tool
from agentloop.models.scripted import call
from tests.core.test_loop import cancelled


@pytest.fixture
def ledger():
    return []


@pytest.fixture
def pay(ledger):
    @tool("Pay")
    async def pay(amount: int) -> str:
        ledger.append(amount)
        return "paid"

    return pay


@pytest.mark.parametrize(
    "arguments", ["", "{", "[]", '{"amount": "x"}', '{"amount": 1, "to": "me"}', "null", '"5"']
)
async def test_an_invalid_call_never_runs(arguments, pay, ledger):
    llm = ScriptedModel(AssistantMessage(tool_calls=(ToolCall("1", "pay", arguments),)), "ok")
    await Agent(llm=llm, tools=[pay]).query("x")
    assert ledger == []


async def test_a_call_runs_once_even_if_the_run_is_continued_several_times(pay, ledger):
    llm = ScriptedModel(call("pay", amount=1), RuntimeError("1"), RuntimeError("2"), "ok")
    agent = Agent(llm=llm, tools=[pay])
    for prompt in ("x", None):
        with pytest.raises(RuntimeError):
            await agent.run(prompt)
    await agent.run()
    assert ledger == [1]


@pytest.mark.parametrize(("idempotent", "runs"), [(False, 1), (True, 2)])
async def test_a_cancelled_call_is_not_repeated_unless_it_is_idempotent(idempotent, runs, ledger):
    started = asyncio.Event()

    async def act() -> str:
        ledger.append(1)
        started.set()
        await asyncio.Event().wait() if len(ledger) == 1 else None
        return "done"

    act_tool = tool("Act", name="act", idempotent=idempotent)(act)
    agent = Loop(llm=ScriptedModel(call("act"), "ok"), tools=[act_tool])
    await cancelled(agent, started)
    assert (await agent.run()).text == "ok"
    assert len(ledger) == runs


async def test_an_external_call_never_runs_and_accepts_one_answer(ledger):
    @tool("Pay", external=True)
    async def pay(amount: int) -> str:
        ledger.append(amount)
        return "paid"

    agent = Agent(llm=ScriptedModel(call("pay", amount=1), "ok"), tools=[pay])
    for prompt in ("x", None, None):
        assert (await agent.run(prompt)).stop_reason == "needs_answer"
    [waiting] = agent.pending
    agent.answer(waiting.id, "paid at the bank")
    with pytest.raises(ValueError, match="is not pending"):
        agent.answer(waiting.id, "paid twice")
    assert (await agent.run()).text == "ok"
    assert ledger == []
    assert [message.text for message in agent.messages][2:] == ["paid at the bank", "ok"]


@pytest.mark.parametrize("reason", ["length", "pause", "context_overflow", "refused", "zzz"])
@pytest.mark.parametrize("cancelled", [False, True])
async def test_a_call_in_an_incomplete_reply_never_runs(reason, cancelled, pay, ledger):
    cut = AssistantMessage(tool_calls=(ToolCall("1", "pay", '{"amount":1}'),), stop_reason=reason)

    async def answer(messages, tools):
        if cancelled:  # and the model suppresses the cancellation
            asyncio.current_task().cancel()
            with suppress(asyncio.CancelledError):
                await asyncio.sleep(0)
        return cut

    agent = Agent(llm=ScriptedModel(answer, "ok", "ok"), tools=[pay])
    await asyncio.wait([asyncio.ensure_future(agent.run("x"))])
    await agent.run(None if cancelled else "y")
    assert ledger == []
