"""Promises 1, 2, 4 and 6 also hold for nested calls, which a tool makes by `agent.call`."""

import asyncio
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Annotated

import pytest

from agentloop import (
    Agent,
    Depends,
    ImagePart,
    Limits,
    Loop,
    ScriptedModel,
    Session,
    Stop,
    TaskComplete,
    TextPart,
    ToolCall,
    ToolCallEvent,
    ToolError,
    ToolResultEvent,
    current_agent,
    current_call,
    tool,
)
from agentloop.common.gate import Gate, Verdict
from agentloop.common.nested import InnerCall, InnerResult
from agentloop.common.review import Ask
from agentloop.messages import AssistantMessage, UserMessage
from agentloop.mixins.approval import Approval, Deferred, Rule
from agentloop.mixins.hooks import Hook, Hooks
from agentloop.models.scripted import call
from agentloop.toolkits.ask import UserAnswer, UserQuestion
from agentloop.toolkits.search import ToolSearch
from agentloop.toolkits.subagent import as_tool
from agentloop.transcript import ToolStart
from tests.core.test_loop import cancelled
from tests.helpers import record_all, results

Caller = Annotated[Loop, Depends(current_agent)]
PHOTO = ImagePart(data=b"x", media_type="image/png")


def agent_of(kind, *script, idempotent=False, **settings):
    """Return an agent whose tool `order` calls `look` and `pay`, and the list of executed tools."""
    ran = []

    @tool("Order", idempotent=idempotent)
    async def order(agent: Caller, amount: int = 5) -> str:
        ran.append("order")
        await agent.call(look, at="price")
        return f"ordered: {await agent.call('pay', amount=amount)}"

    @tool("Pay")
    async def pay(amount: int) -> str:
        ran.append(f"pay {amount}")
        return f"paid {amount}"

    @tool("Look", read_only=True)
    async def look(at: str) -> dict:
        ran.append(f"look {at}")
        return {"at": at}

    llm = ScriptedModel(*script or (call("order"), "ok"))
    return kind(llm=llm, tools=[order, pay, look], **settings), ran


class Asking(Approval, Agent):
    approval_rules = (Rule("allow", "order"),)


async def test_a_nested_call_returns_its_result_to_the_tool_and_is_hidden_from_the_model():
    agent, ran = agent_of(Agent, idempotent=False)
    assert (await agent.run("go")).text == "ok"
    assert ran == ["order", "look price", "pay 5"]
    assert results(agent) == ["ordered: paid 5"]
    calls = [record for record in agent.log if isinstance(record, InnerCall)]
    [outer] = agent.messages[1].tool_calls
    assert [(inner.parent_id, inner.name) for inner in calls] == [
        (outer.id, "look"),
        (outer.id, "pay"),
    ]
    assert [r.result.text for r in agent.log if isinstance(r, InnerResult)] == [
        '{"at":"price"}',
        "paid 5",
    ]


async def test_results_of_nested_calls_keep_their_types():
    values = [None, 5, "5", [1, "a"], {"a": 1.5}, "", True, "{}"]
    received = []

    @tool("Give")
    async def give(at: int) -> object:
        return values[at]

    @tool("Take")
    async def take(agent: Caller) -> str:
        received.extend([await agent.call(give, at=at) for at in range(len(values))])
        return "ok"

    agent = Agent(llm=ScriptedModel(call("take"), "ok"), tools=[give, take])
    await agent.run("go")
    assert received == values


async def test_nested_calls_run_in_parallel_with_their_own_dependencies():
    running = most = 0
    opened = []

    async def connection(call: Annotated[object, Depends(current_call)]):
        opened.append(call.id)
        yield call.id

    @tool("Work")
    async def work(at: int, id: Annotated[str, Depends(connection)]) -> str:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.001)
        running -= 1
        return f"{at} {id}"

    @tool("All")
    async def spread(agent: Caller) -> list:
        return await asyncio.gather(*(agent.call(work, at=at) for at in range(20)))

    agent = Agent(llm=ScriptedModel(call("spread"), "ok"), tools=[work, spread], max_parallel=4)
    await agent.run("go")
    assert most == 4
    assert len(set(opened)) == 20
    assert all(f"{at} {id}" in results(agent)[0] for at, id in enumerate(opened))


async def test_tools_without_parallel_calls_run_one_at_a_time():
    running = most = 0

    @tool("Write", parallel=False)
    async def write(at: int) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0)
        running -= 1

    @tool("All")
    async def spread(agent: Caller) -> None:
        await asyncio.gather(*(agent.call(write, at=at) for at in range(5)))

    await Agent(llm=ScriptedModel(call("spread"), "ok"), tools=[write, spread]).run("go")
    assert most == 1


async def test_recursion_ends_with_a_clear_error():
    depth = 0

    @tool("Again")
    async def again(agent: Caller) -> str:
        nonlocal depth
        depth += 1
        return await agent.call(again)

    agent = Agent(llm=ScriptedModel(call("again"), "ok"), tools=[again])
    await agent.run("go")
    assert depth == 9
    assert "limit is 8 levels" in results(agent)[0]


@pytest.mark.parametrize("name", ["nothing", "fail", "pay"])
async def test_a_failed_nested_call_raises_tool_error_in_the_tool(name):
    errors = []

    @tool("Fail")
    async def fail() -> None:
        raise LookupError("broken")

    @tool("Pay")
    async def pay(amount: int) -> None: ...

    @tool("Outer")
    async def outer(agent: Caller) -> str:
        try:
            await agent.call(name)
        except ToolError as error:
            errors.append(str(error))
        return "handled"

    agent = Agent(llm=ScriptedModel(call("outer"), "ok"), tools=[fail, outer, pay])
    await agent.run("go")
    assert results(agent) == ["handled"]
    assert any(word in errors[0] for word in ("no tool named", "LookupError", "Field required"))


@pytest.mark.parametrize(
    ("raised", "stop_reason", "text"),
    [(Stop("mine", "why"), "mine", "why"), (TaskComplete("all"), "done", "all")],
)
async def test_a_tool_cannot_catch_the_end_of_the_run(raised, stop_reason, text):
    @tool("End")
    async def end() -> None:
        raise raised

    @tool("Outer")
    async def outer(agent: Caller) -> str:
        try:
            return await agent.call(end)
        except Exception:
            return "caught"

    agent = Agent(llm=ScriptedModel(call("outer"), "ok"), tools=[end, outer])
    result = await agent.run("go")
    assert (result.stop_reason, result.text) == (stop_reason, text)
    assert results(agent) == [text]
    assert (await agent.run("next")).text == "ok"


async def test_a_nested_call_that_ends_the_run_waits_for_the_calls_beside_it():
    ran = []

    @tool("End")
    async def end() -> None:
        raise Stop("mine")

    @tool("Work")
    async def work() -> str:
        await asyncio.sleep(0.01)
        ran.append("work")
        return "worked"

    @tool("Outer")
    async def outer(agent: Caller) -> None:
        await asyncio.gather(agent.call(work), agent.call(end))

    agent = Agent(llm=ScriptedModel(call("outer")), tools=[end, work, outer])
    assert (await agent.run("go")).stop_reason == "mine"
    assert ran == ["work"]
    assert "worked" in [r.result.text for r in agent.log if isinstance(r, InnerResult)]


async def test_an_error_of_a_nested_call_ends_the_run_with_on_tool_error_raise():
    @tool("Fail")
    async def fail() -> None:
        raise LookupError("broken")

    @tool("Outer")
    async def outer(agent: Caller) -> str:
        try:
            return await agent.call(fail)
        except Exception:
            return "caught"

    agent = Agent(
        llm=ScriptedModel(call("outer"), "ok"), tools=[fail, outer], on_tool_error="raise"
    )
    with pytest.raises(LookupError):
        await agent.run("go")
    assert (await agent.run()).text == "ok"


async def test_a_nested_call_may_run_a_sub_agent():
    helper = Agent(llm=ScriptedModel(call("work"), "sub answer"), tools=[])

    @tool("Work")
    async def work() -> str:
        return "worked"

    helper = helper.fork(tools=[work])

    @tool("Outer")
    async def outer(agent: Caller) -> str:
        return await agent.call("help", prompt="do it")

    agent = Agent(
        llm=ScriptedModel(call("outer"), "ok"), tools=[outer, as_tool(helper, "help", "Help")]
    )
    await agent.run("go")
    assert results(agent) == ["sub answer"]


async def test_a_call_outside_of_a_tool_is_an_error():
    agent, ran = agent_of(Agent)
    with pytest.raises(RuntimeError, match="inside a tool"):
        await agent.call("pay", amount=1)
    assert ran == []


# ---- gates


@pytest.mark.parametrize("order", [(Hooks, Approval), (Approval, Hooks)])
@pytest.mark.parametrize("action", ["allow", "deny"])
async def test_rules_apply_to_nested_calls(order, action):
    kind = type("Gated", (*order, Agent), {})
    rules = [Rule("allow", "order"), Rule(action, "pay", {"amount": "5"}, "Not today.")]
    agent, ran = agent_of(kind, approval_rules=rules)
    assert (await agent.run("go")).stop_reason == "completed"
    assert ("pay 5" in ran) is (action == "allow")
    assert ("Not today." in results(agent)[0]) is (action == "deny")


@pytest.mark.parametrize("answer", [True, "Too much."])
async def test_an_approval_callback_decides_on_nested_calls(answer):
    agent, ran = agent_of(Asking, approval_callback=lambda call, why: answer)
    assert (await agent.run("go")).stop_reason == "completed"
    assert ("pay 5" in ran) is (answer is True)


@pytest.mark.parametrize("verdict", ["allow", "deny"])
@pytest.mark.parametrize("restart", [False, True])
async def test_a_request_for_approval_suspends_an_idempotent_caller(verdict, restart, tmp_path):
    class Saved(Session, Asking): ...

    settings = {"session": "s", "session_dir": tmp_path, "idempotent": True}
    agent, ran = agent_of(Saved, **settings)
    with agent:
        result = await agent.run("go")
        assert (result.stop_reason, [c.name for c in result.pending]) == ("needs_approval", ["pay"])
        assert ran == ["order", "look price"]
        if not restart:
            agent.decide(result.pending[0].id, verdict, note="Not today.")
            assert (await agent.run()).text == "ok"
    if restart:
        agent, again = agent_of(Saved, "ok", **settings)
        with agent:
            agent.decide(agent.pending[0].id, verdict, note="Not today.")
            assert (await agent.run()).text == "ok"
        ran += again
    paid = ["pay 5"] if verdict == "allow" else []
    assert ran == ["order", "look price", "order", *paid]
    assert agent.pending == ()
    expected = "ordered: paid 5" if verdict == "allow" else "Not today."
    assert expected in results(agent)[0]


async def test_equal_calls_of_a_suspended_caller_return_their_own_results():
    numbers = iter("12")

    @tool("Draw a number")
    async def draw() -> str:
        return next(numbers)

    @tool("Pay")
    async def pay() -> str:
        return "paid"

    @tool("Order", idempotent=True)
    async def order(agent: Caller) -> str:
        drawn = [await agent.call(draw), await agent.call(draw)]
        return f"{await agent.call(pay)} {drawn}"

    class Clerk(Approval, Agent):
        approval_rules = (Rule("ask", "pay"), Rule("allow"))

    agent = Clerk(llm=ScriptedModel(call("order"), "ok"), tools=[draw, order, pay])
    result = await agent.run("go")
    agent.decide(result.pending[0].id, "allow")
    await agent.run()
    assert results(agent) == ["paid ['1', '2']"]


@pytest.mark.parametrize("deferred", [False, True])
async def test_what_a_suspended_caller_left_behind_makes_no_calls(deferred):
    paid = asyncio.Event()
    mailed = []

    @tool("Pay")
    async def pay() -> None:
        paid.set()

    @tool("Mail")
    async def mail() -> None:
        mailed.append("mail")

    @tool("Order", idempotent=True)
    async def order(agent: Caller) -> None:
        async def confirm():
            await paid.wait()
            await agent.call(mail)

        await asyncio.gather(agent.call(pay), confirm())  # if one raises, the other goes on

    class Clerk(Approval, Agent):
        approval_rules = (Rule("ask", "pay"), Rule("allow"))
        defer_approval = deferred

    agent = Clerk(llm=ScriptedModel(call("order"), "ok", "ok"), tools=[mail, order, pay])
    await agent.run("go")
    [waiting] = [*agent.pending, *agent.deferred]
    agent.decide(waiting.id, "allow")
    await agent.run()
    assert mailed == ["mail"]


@pytest.mark.parametrize("verdict", ["allow", "deny"])
async def test_a_caller_that_is_not_idempotent_does_not_run_again_after_the_decision(verdict):
    agent, ran = agent_of(Asking)
    result = await agent.run("go")
    assert (await agent.run()).stop_reason == "needs_approval"  # without a decision
    agent.decide(result.pending[0].id, verdict, note="Not today.")
    assert (await agent.run()).text == "ok"
    assert ran == ["order", "look price", *(["pay 5"] if verdict == "allow" else [])]
    [text] = results(agent)
    assert "outcome is unknown" in text
    assert ("paid 5" if verdict == "allow" else "Not today.") in text


@pytest.mark.parametrize("verdict", ["allow", "deny"])
async def test_a_caller_that_does_not_run_again_may_be_a_nested_call_itself(verdict):
    @tool("Order all", idempotent=True, read_only=True)
    async def order_all(agent: Caller) -> str:
        try:
            return await agent.call("order")
        except ToolError as error:
            return str(error)

    agent, ran = agent_of(Asking, call("order_all"), "ok")
    agent.tools = [order_all, *agent.tools]
    result = await agent.run("go")
    assert (await agent.run()).stop_reason == "needs_approval"  # without a decision
    agent.decide(result.pending[0].id, verdict, note="Not today.")
    assert (await agent.run()).text == "ok"
    assert ran == ["order", "look price", *(["pay 5"] if verdict == "allow" else [])]
    [text] = results(agent)
    assert "outcome is unknown" in text
    assert ("paid 5" if verdict == "allow" else "Not today.") in text


@pytest.mark.parametrize("idempotent", [True, False])
async def test_a_deferred_call_that_was_killed_runs_again_only_if_it_is_idempotent(idempotent):
    rules = [Rule("ask", "order"), Rule("allow", "pay")]
    settings = {"idempotent": idempotent, "approval_rules": rules, "defer_approval": True}
    agent, _ = agent_of(Asking, call("order"), "It waits.", "ok", **settings)
    await agent.run("go")
    agent.decide(agent.deferred[0].id, "allow")
    await agent.run()
    records = [*agent.log]
    kill = next(at for at, record in enumerate(records) if isinstance(record, InnerCall))

    killed, ran = agent_of(Asking, "It waits.", "ok", **settings)
    killed.tools = [*killed.tools, as_tool(Agent(llm=ScriptedModel()), "clerk", "Resumes")]
    record_all(killed, records[: kill + 1])
    assert (await killed.run()).text == "It waits."
    if idempotent:
        assert killed.deferred, "a second start needs a second decision"
        killed.decide(killed.deferred[0].id, "allow")
        await killed.run()
    assert ran == (["order", "look price", "pay 5"] if idempotent else [])
    outcome = killed.messages[-2].text
    assert ("ordered: paid 5" if idempotent else "outcome is unknown") in outcome
    assert killed.deferred == killed.pending == ()


@pytest.mark.parametrize("idempotent", [True, False])
@pytest.mark.parametrize("verdict", ["allow", "deny"])
async def test_a_nested_call_that_awaits_approval_defers_its_caller(verdict, idempotent):
    settings = {"idempotent": idempotent, "defer_approval": True}
    script = call("order"), "It waits.", "Noon.", "I see."
    agent, ran = agent_of(Asking, *script, **settings)
    assert (await agent.run("go")).text == "It waits."
    assert (await agent.run("What time is it?")).text == "Noon."
    [pay] = agent.deferred
    assert (pay.name, agent.pending) == ("pay", ())
    agent.decide(pay.id, verdict, "Not today.")
    assert (await agent.run()).text == "I see."
    paid = ["pay 5"] * (verdict == "allow")
    assert ran == ["order", "look price", *["order"] * idempotent, *paid]
    outcome = agent.messages[-2].text
    assert ("paid 5" if paid else "Not today.") in outcome
    assert ("outcome is unknown" in outcome) != idempotent
    assert agent.deferred == agent.pending == ()


async def test_a_tool_that_a_search_found_runs_again_after_its_nested_call_was_deferred():
    class Searching(ToolSearch, Asking): ...

    script = call("search_tools", query="order"), call("call_tool", name="order", arguments={})
    settings = {"idempotent": True, "defer_approval": True}
    agent, ran = agent_of(Searching, *script, "It waits.", "I see.", **settings)
    [order, *others] = agent.tools
    agent = agent.fork(tools=others, searchable_tools=[order])
    await agent.run("go")
    agent.decide(agent.deferred[0].id, "allow")
    await agent.run()
    assert ran == ["order", "look price", "order", "pay 5"]
    assert "ordered: paid 5" in agent.messages[-2].text


async def test_a_stop_ends_the_run_although_a_deferred_call_asks_again():
    requests = []

    @tool("Pay")
    async def pay(amount: int) -> str:
        return "paid"

    @tool("Halt", read_only=True)
    async def halt() -> str:
        raise Stop("limit:budget")

    @tool("Order", idempotent=True, read_only=True)
    async def order(agent: Caller) -> None:
        await agent.call(pay, amount=1)
        await asyncio.gather(agent.call(pay, amount=2), agent.call(halt))

    def reply(messages, tools):
        requests.append(messages)
        return call("order") if len(requests) == 1 else "It waits."

    tools = [order, pay, halt]
    agent = Asking(llm=ScriptedModel(reply), tools=tools, defer_approval=True)
    await agent.run("go")
    agent.decide(agent.deferred[0].id, "allow")
    assert (await agent.run()).stop_reason != "completed"
    assert len(requests) == 2
    assert [waiting.parsed for waiting in agent.deferred] == [{"amount": 2}]
    assert agent.pending == ()


async def test_an_older_log_with_a_deferred_nested_call_says_that_it_does_not_run():
    agent, ran = agent_of(Asking, "I see.", defer_approval=True)
    waits = ToolCall("a.1", "pay").answer("Not run: this call awaits approval.", is_error=True)
    older = [
        InnerCall("a.1", "a", "pay", '{"amount":5}'),
        Ask("a.1", "", "pay", '{"amount":5}'),
        Deferred("a.1"),
        InnerResult("a.1", waits),
        ToolCall("a", "order").answer("It waits."),
    ]
    order = AssistantMessage("", [ToolCall("a", "order", "{}")])
    for record in [UserMessage("go"), order, ToolStart("a"), *older]:
        agent.record(record)
    assert agent.deferred == ()
    assert (await agent.run()).text == "I see."
    assert "Not run" in agent.messages[-2].text
    assert ran == []


@pytest.mark.parametrize("idempotent", [True, False])
async def test_a_sub_agent_asks_twice_in_a_nested_call_that_was_deferred(idempotent):
    paid = []

    @tool("Pay")
    async def pay(amount: int) -> str:
        paid.append(amount)
        return "paid"

    @tool("Delegate", idempotent=idempotent, read_only=True)
    async def delegate(agent: Caller) -> str:
        return await agent.call("clerk", prompt="Pay.")

    clerk = Agent(
        llm=ScriptedModel(call("pay", amount=1), call("pay", amount=2), "Both are paid."),
        tools=[pay],
    )
    agent = Asking(
        llm=ScriptedModel(call("delegate"), "It waits.", "It still waits.", "ok"),
        tools=[delegate, as_tool(clerk, "clerk", "Pays")],
        approval_rules=[Rule("allow", "clerk")],
        defer_approval=True,
    )
    result = await agent.run("go")
    for amount in (1, 2):
        assert result.pending == ()
        [waiting] = agent.deferred
        assert waiting.parsed == {"amount": amount}
        agent.decide(waiting.id, "allow")
        result = await agent.run()
        assert paid == [1, 2][:amount]
    assert result.text == "ok"
    assert "Both are paid." in agent.messages[-2].text


@pytest.mark.parametrize("idempotent", [True, False])
async def test_a_deferred_call_makes_calls_once_it_is_approved(idempotent):
    rules = [Rule("ask", "order"), Rule("allow", "pay")]
    settings = {"idempotent": idempotent, "approval_rules": rules, "defer_approval": True}
    agent, ran = agent_of(Asking, call("order"), "It waits.", "ok", **settings)
    assert (await agent.run("go")).text == "It waits."
    agent.decide(agent.deferred[0].id, "allow")
    assert (await agent.run()).text == "ok"
    assert ran == ["order", "look price", "pay 5"]
    assert "ordered: paid 5" in agent.messages[-2].text


@pytest.mark.parametrize("verdict", ["allow", "deny"])
async def test_a_nested_sub_agent_continues_after_its_second_start_was_cancelled(verdict):
    ran = []
    started = asyncio.Event()
    seconds = iter([0, 9, 0])

    async def wait(data):
        if delay := next(seconds):
            started.set()
        await asyncio.sleep(delay)

    @tool("Pay", name="pay")
    async def pay_as_clerk() -> str:
        ran.append("clerk")
        return "paid"

    @tool("Pay", name="pay")
    async def pay_as_boss() -> str:
        ran.append("boss")
        return "paid"

    @tool("Delegate", read_only=True)
    async def delegate(agent: Caller) -> str:
        return await agent.call("clerk", prompt="Pay.")

    class Boss(Hooks, Approval, Agent): ...

    clerk = Agent(llm=ScriptedModel(call("pay"), "It is paid."), tools=[pay_as_clerk])
    agent = Boss(
        llm=ScriptedModel(call("delegate"), "ok"),
        tools=[delegate, pay_as_boss, as_tool(clerk, "clerk", "Pays")],
        hooks=[Hook("SubagentStart", wait)],
    )
    [first] = (await agent.run("go")).pending
    agent.decide(first.id, "allow")
    [payment] = (await agent.run()).pending
    agent.decide(payment.id, "allow")
    run = asyncio.create_task(agent.run())
    await started.wait()
    run.cancel()
    await asyncio.wait([run])
    [again] = (await agent.run()).pending
    assert again.id == first.id
    agent.decide(again.id, verdict, note="Not today.")
    assert (await agent.run()).text == "ok"
    assert ran == (["clerk"] if verdict == "allow" else [])
    assert ("It is paid." if verdict == "allow" else "Not today.") in results(agent)[0]


async def test_a_prompt_cancels_a_suspended_nested_call():
    agent, ran = agent_of(Asking, call("order"), "ok")
    await agent.run("go")
    await agent.run("never mind")
    assert ran == ["order", "look price"]
    assert agent.pending == ()


async def test_a_tool_cannot_catch_the_request_for_approval():
    @tool("Pay")
    async def pay() -> str:
        return "paid"

    @tool("Swallow")
    async def swallow(agent: Caller) -> str:
        try:
            return await agent.call(pay)
        except BaseException:
            return "nothing happened"

    class Rules(Approval, Agent):
        approval_rules = (Rule("allow", "swallow"),)

    agent = Rules(llm=ScriptedModel(call("swallow"), "ok"), tools=[pay, swallow])
    assert (await agent.run("go")).stop_reason == "needs_approval"
    assert [pending.name for pending in agent.pending] == ["pay"]


@pytest.mark.parametrize("deferred", [False, True])
async def test_waiting_calls_have_the_order_of_their_callers_whichever_asks_first(deferred):
    asked = asyncio.Event()

    @tool("First", idempotent=True, read_only=True)
    async def first(agent: Caller) -> str:
        await asked.wait()
        return await agent.call("pay", amount=1)

    @tool("Second", idempotent=True, read_only=True)
    async def second(agent: Caller) -> str:
        asyncio.get_running_loop().call_later(0.01, asked.set)
        return await agent.call("pay", amount=2)

    agent, ran = agent_of(Asking, [call("first"), call("second")], "ok", "done")
    agent.tools = [first, second, *agent.tools]
    agent.defer_approval = deferred
    await agent.run("go")
    calls = agent.deferred if deferred else agent.pending
    assert [waiting.arguments for waiting in calls] == ['{"amount":1}', '{"amount":2}']
    for waiting in calls:
        agent.decide(waiting.id, "allow")
    await agent.run()
    assert ran == ["pay 1", "pay 2"]


@pytest.mark.parametrize("group", [True, False])
async def test_parallel_requests_for_approval_are_decided_together(group):
    ran = []

    @tool("Pay")
    async def pay(amount: int) -> int:
        ran.append(amount)
        return amount

    @tool("Pay all", idempotent=True)
    async def pay_all(agent: Caller) -> str:
        if not group:
            return str(await asyncio.gather(*(agent.call(pay, amount=n) for n in (1, 2))))
        async with asyncio.TaskGroup() as tasks:
            paid = [tasks.create_task(agent.call(pay, amount=n)) for n in (1, 2)]
        return str([task.result() for task in paid])

    class Rules(Approval, Agent):
        approval_rules = (Rule("allow", "pay_all"),)

    agent = Rules(llm=ScriptedModel(call("pay_all"), "ok"), tools=[pay, pay_all])
    result = await agent.run("go")
    while result.stop_reason == "needs_approval":
        for pending in result.pending:
            agent.decide(pending.id, "allow")
        result = await agent.run()
    assert sorted(ran) == [1, 2]
    assert results(agent) == ["[1, 2]"]


async def test_a_tool_receives_the_answer_of_an_external_tool():
    asked = tool("Ask", external=True)

    @asked
    async def ask(question: str) -> str: ...

    @tool("Greet", idempotent=True)
    async def greet(agent: Caller) -> str:
        return f"Hello {await agent.call(ask, question='name?')}"

    agent = Agent(llm=ScriptedModel(call("greet"), "ok"), tools=[ask, greet])
    result = await agent.run("go")
    assert (result.stop_reason, result.pending[0].name) == ("needs_answer", "ask")
    agent.answer(result.pending[0].id, "Ada")
    assert (await agent.run()).text == "ok"
    assert results(agent) == ["Hello Ada"]


@pytest.mark.parametrize("idempotent", [True, False])
async def test_a_nested_call_may_ask_the_user(idempotent):
    @tool("Ask, as an MCP server does")
    async def served(agent: Caller, call: Annotated[ToolCall, Depends(current_call)]) -> str:
        state = agent.conversation.states[call.id]
        if not state.newest(UserAnswer):
            agent.record(UserQuestion(call.id, '{"question": "name?"}'))
            raise Stop("needs_answer")
        return f"Hello {state.newest(UserAnswer).content}"

    @tool("Greet", idempotent=idempotent)
    async def greet(agent: Caller) -> str:
        return await agent.call(served)

    agent = Agent(llm=ScriptedModel(call("greet"), "ok"), tools=[served, greet])
    result = await agent.run("go")
    [question] = result.pending
    assert (result.stop_reason, question.parsed) == ("needs_answer", {"question": "name?"})
    agent.answer(question.id, "Ada")
    assert (await agent.run()).text == "ok"
    assert 'Hello "Ada"' in results(agent)[0]


@pytest.mark.parametrize(
    ("value", "received"),
    [
        (TextPart("42"), (TextPart("42"),)),
        ([TextPart("{}"), PHOTO], (TextPart("{}"), PHOTO)),
        (PHOTO, (PHOTO,)),
        (Decimal("1.50"), "1.50"),
        (Path("42"), "42"),
        (None, None),
        ({"at": date(2026, 1, 2)}, {"at": "2026-01-02"}),
        ({"part": slice(3)}, {"part": "slice(None, 3, None)"}),
    ],
    ids=str,
)
async def test_a_result_is_data_only_if_the_tool_returned_data(value, received):
    got = []

    @tool("Look")
    def look() -> object:
        return value

    @tool("Order")
    async def order(agent: Caller) -> None:
        got.append(await agent.call(look))

    await Agent(llm=ScriptedModel(call("order"), "ok"), tools=[look, order]).run("go")
    assert got == [received]


async def test_hooks_receive_and_change_nested_calls():
    after = []

    def halve(data):
        return {"updatedInput": {"amount": data["tool_input"]["amount"] // 2}}

    hooks = [
        Hook("PreToolUse", halve, "pay"),
        Hook("PostToolUse", lambda data: after.append((data["tool_name"], data["tool_response"]))),
    ]
    agent, ran = agent_of(type("Hooked", (Hooks, Agent), {}), hooks=hooks)
    await agent.run("go")
    assert "pay 2" in ran
    assert after == [("look", '{"at":"price"}'), ("pay", "paid 2"), ("order", "ordered: paid 2")]


async def test_a_custom_gate_judges_nested_and_parallel_calls():
    class NoPay(Gate):
        async def judge(self, judgment):
            judgment = await super().judge(judgment)
            if judgment.call.name == "pay":
                return judgment.or_stricter(Verdict.DENY, "No.")
            return judgment

    script = [call("order"), call("order"), call("look", at="x")], "ok"
    agent, ran = agent_of(type("Own", (NoPay, Agent), {}), *script)
    await agent.run("go")
    assert not any(act.startswith("pay") for act in ran)
    assert "look x" in ran


# ---- limits


async def test_limits_count_nested_calls():
    class Limited(Limits, Agent):
        max_tool_calls = 2

    agent, ran = agent_of(Limited)
    assert (await agent.run("go")).stop_reason == "limit:tool_calls"
    assert ran == ["order", "look price"]


async def test_parallel_nested_calls_run_up_to_the_limit():
    ran = []

    class Limited(Limits, Agent):
        max_tool_calls = 10

    @tool("Work")
    async def work(at: int) -> None:
        ran.append(at)

    @tool("All")
    async def spread(agent: Caller) -> str:
        calls = (agent.call(work, at=at) for at in range(20))
        done = await asyncio.gather(*calls, return_exceptions=True)
        return str(sum(isinstance(each, ToolError) for each in done))

    agent = Limited(llm=ScriptedModel(call("spread"), "ok"), tools=[work, spread])
    assert (await agent.run("go")).stop_reason == "limit:tool_calls"
    assert (ran, results(agent)) == ([*range(9)], ["11"])


async def test_limits_count_failures_of_nested_calls():
    class Limited(Limits, Agent):
        max_tool_failures = 2

    @tool("Fail")
    async def fail() -> None:
        raise ToolError("no")

    @tool("Try")
    async def attempt(agent: Caller) -> str:
        for _ in range(2):
            with pytest.raises(ToolError):
                await agent.call(fail)
        return "tried"

    agent = Limited(llm=ScriptedModel(call("attempt"), "ok"), tools=[fail, attempt])
    assert (await agent.run("go")).stop_reason == "limit:tool_failures"


async def test_a_time_limit_ends_nested_calls():
    class Limited(Limits, Agent):
        max_seconds = 0.2

    @tool("Wait")
    async def wait() -> None:
        await asyncio.Event().wait()

    @tool("Outer")
    async def outer(agent: Caller) -> str:
        return await agent.call(wait)

    agent = Limited(llm=ScriptedModel(call("outer"), "ok"), tools=[wait, outer])
    assert (await agent.run("go")).stop_reason == "limit:seconds"
    assert {state.status for state in agent.conversation.states.values()} <= {"failed", "sealed"}


# ---- interruption


@pytest.mark.parametrize("how", ["cancel", "timeout", "interrupt", "not awaited"])
async def test_a_nested_call_ends_with_its_caller(how):
    started, stopped = asyncio.Event(), []

    @tool("Wait")
    async def wait() -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            stopped.append(how)

    @tool("Outer", timeout=0.2 if how == "timeout" else None)
    async def outer(agent: Caller) -> str:
        nested = asyncio.ensure_future(agent.call(wait))
        await started.wait()
        return "left" if how == "not awaited" else await nested

    agent = Agent(llm=ScriptedModel(call("outer"), "ok"), tools=[wait, outer])
    if how == "cancel":
        await cancelled(agent, started)
    elif how == "interrupt":
        task = asyncio.create_task(agent.run("go"))
        await started.wait()
        agent.interrupt()
        assert (await task).stop_reason == "interrupted"
    else:
        assert (await agent.run("go")).text == "ok"
    assert stopped == [how]
    if how in ("cancel", "interrupt"):
        await agent.run("next")
    states = {state.call.name: state.status for state in agent.conversation.states.values()}
    assert states["wait"] == "sealed"
    assert agent.pending == ()


@pytest.mark.parametrize("idempotent", [False, True])
@pytest.mark.parametrize("length", range(3, 12))
async def test_after_a_kill_no_nested_call_runs_twice(idempotent, length, tmp_path):
    class Saved(Session, Agent): ...

    agent, _ = agent_of(Saved, idempotent=idempotent, session="s", session_dir=tmp_path)
    with agent:
        await agent.run("go")
    file = tmp_path / "s.jsonl"
    lines = file.read_bytes().splitlines(keepends=True)
    if length >= len(lines):
        pytest.skip("the run is shorter")
    file.write_bytes(b"".join(lines[:length]))
    started = sum(b'"type":"tool_start"' in line for line in lines[:length])
    agent, again = agent_of(Saved, "ok", idempotent=idempotent, session="s", session_dir=tmp_path)
    with agent:
        await agent.run()
    effects = ["order", "look price", "pay 5"]
    before = effects[:started]
    for effect in ("look price", "pay 5"):
        assert before.count(effect) + again.count(effect) <= 1
    if not idempotent:
        assert before.count("order") + again.count("order") <= 1


# ---- streams


async def test_events_of_nested_calls_contain_the_id_of_the_parent():
    agent, _ = agent_of(Agent)
    events = [event async for event in agent.query_stream("go")]
    started = [event for event in events if isinstance(event, ToolCallEvent)]
    assert [bool(event.parent_id) for event in started] == [False, True, True]
    assert len([event for event in events if isinstance(event, ToolResultEvent)]) == 3


async def test_leaving_a_stream_at_a_nested_call_prevents_the_call():
    agent, ran = agent_of(Agent)
    async for event in agent.query_stream("go"):
        if isinstance(event, ToolCallEvent) and event.tool == "pay":
            break
    await asyncio.sleep(0)
    while agent.running:
        await asyncio.sleep(0.001)
    assert ran == ["order", "look price"]


async def test_the_result_of_a_tool_names_the_nested_call_that_was_denied():
    class Guarded(Approval, Agent):
        approval_rules = (Rule("deny", "pay"), Rule("allow"))

    agent, ran = agent_of(Guarded, call("order"), "Sorry.")
    await agent.run("Order.")
    assert ran[0] == "order"
    assert results(agent)[-1].startswith("pay: Denied")
