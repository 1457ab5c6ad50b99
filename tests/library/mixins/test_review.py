"""The verbs of review: allow, edit, deny and respond, for an agent's calls and its sub-agents'."""

import asyncio
import time
from collections import Counter
from contextlib import suppress
from threading import Barrier, BrokenBarrierError
from typing import Annotated

import pytest

from agentloop import (
    Agent,
    AssistantMessage,
    Depends,
    Limits,
    NeedsApproval,
    Review,
    ScriptedModel,
    Session,
    Stop,
    ToolCallEvent,
    ToolError,
    ToolMessage,
    ToolResultEvent,
    UserMessage,
    is_approved,
    tool,
    validate_messages,
)
from agentloop.common.review import DENIED, Ask, Decision
from agentloop.depends import current_agent
from agentloop.events import SubAgentEvent
from agentloop.messages import ImagePart, TextPart
from agentloop.mixins.approval import Approval, Rule
from agentloop.mixins.hooks import Hook, Hooks
from agentloop.models.scripted import call
from agentloop.toolkits.ask import ask_user
from agentloop.toolkits.subagent import as_tool
from tests.helpers import raises, record_all


class Asking(Approval, Agent): ...


class Saved(Session, Agent):
    session = "s"
    session_fsync = False


class SavedAsking(Approval, Saved): ...


def replaying(*turns):
    """Return a model that answers by the number of its replies in the history."""

    def reply(messages, tools):
        done = sum(isinstance(message, AssistantMessage) for message in messages)
        turn = turns[min(done, len(turns) - 1)]
        return turn(messages) if callable(turn) else turn

    return ScriptedModel(reply)


def last(messages):
    return messages[-1].text


class Bank:
    """A tool that pays, and agents that use it at a depth of sub-agents."""

    def __init__(self, depth=0, *, asks_itself=False):
        self.paid = Counter()
        self.depth = depth
        self.asks_itself = asks_itself

        @tool
        def pay(amount: int, to: str = "anna") -> str:
            """Pay."""
            self.paid[amount, to] += 1
            return f"paid {amount} to {to}"

        @tool(name="pay")
        def pay_or_ask(
            amount: int, approved: Annotated[bool, Depends(is_approved)], to: str = "anna"
        ) -> str:
            """Pay, and ask above 100."""
            if amount > 100 and not approved:
                raise NeedsApproval("over 100")
            return pay(amount, to)

        self.tool = pay_or_ask if asks_itself else pay

    def agent(self, *, cls=None, llm=None, above=Agent, **settings):
        """Return the agent to talk to. `cls` is the class of the agent that pays."""
        cls = cls or (Agent if self.asks_itself else Asking)
        tools = [self.tool]
        llm = llm or replaying(call("pay", amount=500), last)
        if not self.depth:
            return cls(llm=llm, tools=tools, **settings)
        agent = cls(llm=llm, tools=tools)
        for level in range(self.depth):
            is_top = level == self.depth - 1
            kind, given = (above, settings) if is_top else (Agent, {})
            tools = [as_tool(agent, "clerk", "Pays")]
            agent = kind(llm=replaying(call("clerk", prompt="Pay."), last), tools=tools, **given)
        return agent


DEPTHS = pytest.mark.parametrize("depth", [0, 1, 2])
ASKS = pytest.mark.parametrize("asks_itself", [False, True])


@DEPTHS
@ASKS
@pytest.mark.parametrize(
    ("verb", "paid", "word"),
    [
        (("allow",), {(500, "anna"): 1}, "paid 500"),
        (("deny", "Not today."), {}, "Not today."),
        (("respond", "Use the other account."), {}, "Use the other account."),
    ],
)
async def test_a_verb_is_the_outcome_of_the_call(depth, asks_itself, verb, paid, word):
    bank = Bank(depth, asks_itself=asks_itself)
    agent = bank.agent()
    result = await agent.run("go")
    assert result.stop_reason == "needs_approval"
    [waiting] = result.pending
    assert waiting.parsed == {"amount": 500}
    agent.decide(waiting.id, *verb, by="the boss")
    result = await agent.run()
    assert word in result.text
    assert bank.paid == paid
    assert agent.pending == ()
    [message] = [message for message in agent.messages if isinstance(message, ToolMessage)]
    assert depth or message.is_error == (verb[0] == "deny")
    assert validate_messages([*agent.messages, UserMessage("next")]) == []


@DEPTHS
@ASKS
async def test_edited_arguments_run_once_and_the_model_reads_of_the_change(depth, asks_itself):
    bank = Bank(depth, asks_itself=asks_itself)
    agent = bank.agent()
    [waiting] = (await agent.run("go")).pending
    agent.decide(waiting.id, "allow", arguments={"amount": 50, "to": "bert"})
    result = await agent.run()
    assert bank.paid == {(50, "bert"): 1}
    assert "paid 50 to bert" in result.text
    assert "reviewer changed the arguments" in result.text
    assert '"amount":50' in result.text


@DEPTHS
async def test_an_edit_is_validated_like_the_arguments_of_a_model(depth):
    bank = Bank(depth)
    agent = bank.agent()
    [waiting] = (await agent.run("go")).pending
    with pytest.raises(ValueError, match="amount"):
        agent.decide(waiting.id, "allow", arguments={"amount": "much"})
    with pytest.raises(ValueError, match="allow"):
        agent.decide(waiting.id, "deny", arguments={"amount": 1})
    with pytest.raises(ValueError, match="dict"):  # as JSON text, like those of the call
        agent.decide(waiting.id, "allow", arguments=waiting.arguments)
    assert agent.pending == (waiting,)


@pytest.mark.parametrize("depth", [0, 1])
async def test_an_edit_is_judged_again_by_deny_rules(depth):
    class Strict(Asking):
        approval_rules = (Rule("deny", "pay", {"to": "mallory"}, reason="Never to Mallory."),)

    bank = Bank(depth)
    agent = bank.agent(cls=Strict)
    [waiting] = (await agent.run("go")).pending
    agent.decide(waiting.id, "allow", arguments={"amount": 5, "to": "mallory"})
    assert "Never to Mallory." in (await agent.run()).text
    assert not bank.paid


@DEPTHS
@ASKS
async def test_a_callback_edits_and_responds(depth, asks_itself):
    for review, word, paid in [
        (Review("allow", arguments={"amount": 5}), "paid 5", {(5, "anna"): 1}),
        (Review("respond", "Done by hand."), "Done by hand.", {}),
        (Review("deny", "No."), "No.", {}),
        (True, "paid 500", {(500, "anna"): 1}),
    ]:
        bank = Bank(depth, asks_itself=asks_itself)
        asked = []

        def decide(call, why, asked=asked, review=review):
            if call.name == "clerk":
                return True
            asked.append((call.name, why))
            return review

        agent = bank.agent(cls=None if depth else Asking, above=Asking, approval_callback=decide)
        agent.approval_mode = "auto" if asks_itself else "ask"
        result = await agent.run("go")
        assert word in result.text
        assert result.stop_reason == "completed"
        assert bank.paid == paid
        assert len(asked) == 1
        assert not asks_itself or asked[0][1] == "over 100"


@DEPTHS
@ASKS
@pytest.mark.parametrize(
    ("verb", "edit", "word"),
    [
        (("allow",), None, "paid 500"),
        (("allow",), {"amount": 5}, "paid 5 "),
        (("deny", "Not today."), None, "Not today."),
        (("respond", "By hand."), None, "By hand."),
    ],
)
async def test_a_deferred_call_is_decided_while_the_conversation_continues(
    depth, asks_itself, verb, edit, word, tmp_path
):
    bank = Bank(depth, asks_itself=asks_itself)

    def open_agent():
        rules = [Rule("allow", "clerk")]
        settings = {"session_dir": tmp_path, "defer_approval": True, "approval_rules": rules}
        cls = Agent if depth else SavedAsking
        if depth and not asks_itself:
            cls = Asking
        agent = bank.agent(cls=cls, above=SavedAsking, **settings)
        if asks_itself:
            agent.approval_mode = "auto"
        return agent

    with open_agent() as agent:
        result = await agent.run("go")
        assert result.stop_reason == "completed"
        assert "awaits approval" in result.text
        assert agent.pending == ()
        [waiting] = agent.deferred
        assert waiting.name == "pay"
    with open_agent() as agent:
        assert agent.deferred == (waiting,)
        agent.decide(waiting.id, *verb, arguments=edit)
        assert agent.deferred == ()
    with open_agent() as agent:
        result = await agent.run()
        assert word in result.text
        amount = (edit or {}).get("amount", 500)
        assert bank.paid == ({(amount, "anna"): 1} if verb[0] == "allow" else {})
        await agent.run("next")
        assert validate_messages([*agent.messages, UserMessage("next")]) == []
        assert sum(word in message.text for message in agent.messages[:-2]) == 2


async def test_a_deferred_call_does_not_run_in_an_agent_that_never_asks():
    bank = Bank()
    agent = bank.agent(defer_approval=True)
    await agent.run("go")
    for length in range(1, len(agent.log) + 1):
        careless = Agent(llm=ScriptedModel("ok", "ok"), tools=agent.tools)
        record_all(careless, agent.log[:length])
        if any(isinstance(record, Ask) for record in careless.log):
            with suppress(ValueError):  # the model has answered
                await careless.run()
            assert bank.paid == {}


@DEPTHS
async def test_a_tool_that_asks_although_it_was_allowed_is_an_error_instead_of_an_endless_loop(
    depth,
):
    asked = []

    def approve(call, why):
        asked.append(call)
        return len(asked) < 5

    @tool
    def pay(amount: int) -> str:
        """Pay."""
        raise NeedsApproval("always")

    bank = Bank(depth)
    bank.tool = pay
    cls = Agent if depth else Asking
    agent = bank.agent(cls=cls, above=Asking, approval_mode="auto", approval_callback=approve)
    with pytest.raises(RuntimeError, match="is_approved"):
        await agent.run("go")
    assert len(asked) == 1


SETTLED = [{"approval_callback": lambda call, why: True}, {"defer_approval": True}]


@DEPTHS
@pytest.mark.parametrize("settings", SETTLED)
@pytest.mark.parametrize("is_first", [True, False])
async def test_a_question_ends_the_run_though_another_call_of_the_turn_is_settled(
    depth, settings, is_first
):
    bank = Bank(depth, asks_itself=True)
    calls = [call("clerk", prompt="Pay.") if depth else call("pay", amount=500)]
    calls.insert(0 if is_first else 1, call("ask_user", question="Which account?"))
    agent = bank.agent(cls=None if depth else Asking, above=Asking, **settings)
    agent.approval_mode = "auto"
    agent.tools = [*agent.tools, ask_user]
    agent.llm = replaying(calls, last, last)
    result = await agent.run("go")
    assert result.stop_reason == "needs_answer"
    [waiting] = result.pending
    assert len(agent.llm.requests) == 1
    agent.answer(waiting.id, "The second one.")
    for deferred in agent.deferred:
        agent.decide(deferred.id, "allow")
    await agent.run()
    assert bank.paid == {(500, "anna"): 1}
    assert "The second one." in [message.text for message in agent.llm.requests[-1].messages]


@pytest.mark.parametrize("settings", SETTLED)
@pytest.mark.parametrize("is_first", [True, False])
async def test_a_tool_that_asks_the_user_starts_once_though_another_call_of_the_turn_is_settled(
    settings, is_first
):
    started = []

    @tool
    async def book(agent: Annotated[Agent, Depends(current_agent)]) -> str:
        """Book a table."""
        started.append("book")
        return await agent.call(ask_user, question="For how many?")

    bank = Bank(asks_itself=True)
    calls = [call("pay", amount=500)]
    calls.insert(0 if is_first else 1, call("book"))
    agent = bank.agent(cls=Asking, llm=replaying(calls, last, last), **settings)
    agent.approval_mode = "auto"
    agent.tools = [*agent.tools, book, ask_user]
    result = await agent.run("go")
    assert result.stop_reason == "needs_answer"
    [waiting] = result.pending
    agent.answer(waiting.id, "Four.")
    for deferred in agent.deferred:
        agent.decide(deferred.id, "allow")
    await agent.run()
    assert started == ["book"]
    assert bank.paid == {(500, "anna"): 1}


@pytest.mark.parametrize("settings", SETTLED)
async def test_a_tool_that_ends_the_run_ends_it_though_another_call_of_the_turn_asks(settings):
    @tool
    def leave() -> str:
        """Leave."""
        raise Stop("left")

    bank = Bank(asks_itself=True)
    calls = [call("pay", amount=500), call("leave")]
    agent = bank.agent(cls=Asking, llm=replaying(calls, last, last), **settings)
    agent.approval_mode = "auto"
    agent.tools = [*agent.tools, leave]
    result = await agent.run("go")
    assert len(agent.llm.requests) == 1
    assert [waiting.name for waiting in result.pending] == ["pay"]
    await agent.run()
    for deferred in agent.deferred:
        agent.decide(deferred.id, "allow")
        await agent.run()
    assert bank.paid == {(500, "anna"): 1}


@pytest.mark.parametrize("bases", [(Hooks, Approval), (Approval, Hooks)])
async def test_hooks_after_a_tool_run_once_for_each_call_though_one_has_asked(bases):
    @tool
    def look() -> str:
        """Look."""
        return "seen"

    fired = []
    hook = Hook("PostToolUse", lambda data: fired.append(data["tool_name"]))
    bank = Bank(asks_itself=True)
    agent = bank.agent(
        cls=type("Hooked", (*bases, Agent), {}),
        llm=replaying([call("look"), call("pay", amount=500)], last),
        hooks=[hook],
        approval_mode="auto",
        approval_callback=lambda call, why: True,
    )
    agent.tools = [*agent.tools, look]
    await agent.run("go")
    assert fired == ["look", "pay"]


@pytest.mark.parametrize("bases", [(Limits, Approval), (Approval, Limits)])
async def test_a_call_that_was_approved_keeps_its_place_before_the_limit(bases):
    bank = Bank(asks_itself=True)
    agent = bank.agent(
        cls=type("Limited", (*bases, Agent), {}),
        llm=replaying([call("pay", amount=500), call("pay", amount=1)], last),
        max_tool_calls=1,
        approval_mode="auto",
        approval_callback=lambda call, why: True,
    )
    await agent.run("go")
    assert bank.paid == {(500, "anna"): 1}


async def hang(call, why):
    await asyncio.Event().wait()


async def cancel_itself(call, why):
    raise asyncio.CancelledError


@DEPTHS
@ASKS
@pytest.mark.parametrize(
    "callback",
    [raises, hang, cancel_itself, lambda *_: Review("maybe"), lambda *_: Review("deny", 5)],
)
async def test_a_callback_that_fails_denies_the_call_and_the_run_goes_on(
    callback, depth, asks_itself
):
    bank = Bank(depth, asks_itself=asks_itself)
    mode = "auto" if asks_itself else "ask"
    rules = [Rule("allow", "clerk")]
    agent = bank.agent(
        cls=Agent if depth else Asking,
        above=Asking,
        approval_mode=mode,
        approval_rules=rules,
        approval_callback=callback,
        approval_timeout=0.05,
    )
    result = await agent.run("go")
    assert result.stop_reason == "completed"
    assert "approval check failed" in result.text
    assert agent.pending == ()
    assert bank.paid == {}


async def test_a_call_that_one_thread_denies_is_not_allowed_by_another_meanwhile():
    both = Barrier(2)

    class Meeting(Asking):
        def waiting_call(self, call_id):
            state = super().waiting_call(call_id)
            with suppress(BrokenBarrierError):
                both.wait(0.2)
            return state

        def record(self, record):
            if isinstance(record, Decision) and record.allowed:
                time.sleep(0.05)
            super().record(record)

    bank = Bank()
    agent = bank.agent(cls=Meeting)
    [waiting] = (await agent.run("go")).pending

    def allow():
        with suppress(ValueError):
            agent.decide(waiting.id, "allow")

    denying = asyncio.to_thread(agent.decide, waiting.id, "deny")
    await asyncio.gather(denying, asyncio.to_thread(allow))
    await agent.run()
    assert bank.paid == {}


async def test_a_nested_call_that_asks_is_edited_and_returns_its_plain_result():
    bank = Bank(asks_itself=True)

    @tool(idempotent=True)
    async def book(agent: Agent = Depends(current_agent)) -> str:
        """Book."""
        return f"booked: {await agent.call('pay', amount=500)}"

    agent = Agent(llm=replaying(call("book"), last), tools=[book, bank.tool])
    [waiting] = (await agent.run("go")).pending
    agent.decide(waiting.id, "allow", arguments={"amount": 7})
    assert (await agent.run()).text == "booked: paid 7 to anna"
    assert bank.paid == {(7, "anna"): 1}


async def test_of_two_threads_that_answer_one_question_the_second_is_refused():
    both = Barrier(2)

    class Meeting(Agent):
        def waiting_call(self, call_id):
            state = super().waiting_call(call_id)
            with suppress(BrokenBarrierError):
                both.wait(0.2)
            return state

    llm = replaying(call("ask_user", question="Which account?"), last)
    agent = Meeting(llm=llm, tools=[ask_user])
    [waiting] = (await agent.run("go")).pending
    answers = [asyncio.to_thread(agent.answer, waiting.id, text) for text in ("one", "two")]
    outcomes = await asyncio.gather(*answers, return_exceptions=True)
    assert sum(isinstance(outcome, ValueError) for outcome in outcomes) == 1


@ASKS
@pytest.mark.parametrize("verdict", ["deny", "respond"])
@pytest.mark.parametrize("has_callback", [True, False])
async def test_a_nested_call_of_an_idempotent_tool_is_decided_once(
    asks_itself, verdict, has_callback
):
    asked = []

    def approve(waiting, why):
        asked.append(waiting.id)
        return Review(verdict, "by hand")

    @tool(idempotent=True)
    def pay(amount: int, approved: Annotated[bool, Depends(is_approved)]) -> str:
        """Pay."""
        if asks_itself and not approved:
            raise NeedsApproval
        bank.paid[amount] += 1
        return "paid"

    @tool(idempotent=True, read_only=True)
    async def book(agent: Agent = Depends(current_agent)) -> str:
        """Book."""
        try:
            return await agent.call("pay", amount=500)
        except ToolError as error:
            return str(error)

    bank = Bank()
    clerk = (Agent if asks_itself else Asking)(llm=replaying(call("book"), last), tools=[book, pay])
    agent = Asking(
        llm=replaying(call("clerk", prompt="Pay."), last),
        tools=[as_tool(clerk, "clerk", "Pays")],
        approval_mode="auto",
        approval_callback=approve if has_callback else None,
    )
    result = await agent.run("go")
    if not has_callback:
        agent.decide(result.pending[0].id, verdict, "by hand")
        result = await agent.run()
    assert result.stop_reason == "completed"
    assert "by hand" in result.text
    assert len(asked) == has_callback
    assert not bank.paid


@DEPTHS
@pytest.mark.parametrize("caller", ["book", "trip"])
async def test_nothing_inside_a_call_runs_once_its_second_start_is_denied(depth, caller):
    bank = Bank(depth)

    @tool(idempotent=True)
    async def book(agent: Agent = Depends(current_agent)) -> str:
        """Book."""
        return await agent.call("pay", amount=500)

    @tool(idempotent=True, read_only=True)
    async def trip(agent: Agent = Depends(current_agent)) -> str:
        """Plan a trip."""
        return await agent.call("book")

    agent = bank.agent(llm=replaying(call(caller), last))
    pays = agent
    for _ in range(depth):
        pays = pays.tools[0].agent
    pays.tools = [book, trip, *pays.tools]
    result = await agent.run("go")
    for name in "book", "pay":
        [waiting] = result.pending
        assert waiting.name == name
        agent.decide(waiting.id, "allow")
        result = await agent.run()
    [waiting] = result.pending
    assert waiting.name == "book"
    agent.decide(waiting.id, "deny", "Not today.")
    result = await agent.run()
    assert not bank.paid
    assert "Not today." in result.text
    assert "pay(" in result.text


def innermost(event):
    """Return the event of an agent, or of a sub-agent at any depth."""
    return innermost(event.event) if isinstance(event, SubAgentEvent) else event


def told(events, name="pay"):
    """Return what the events tell of the calls of a tool, without ids."""
    about = list[tuple[str, object]]()
    ids = set()
    for event in map(innermost, events):
        if isinstance(event, ToolCallEvent) and event.tool == name:
            about.append(("call", event.args))
            ids.add(event.tool_call_id)
        elif isinstance(event, ToolResultEvent) and event.tool == name:
            about.append(("result", event.result))
            assert event.tool_call_id in ids, "a result follows its call"
    return about


@DEPTHS
@ASKS
@pytest.mark.parametrize(
    ("verb", "result"),
    [
        (("allow",), "paid 500 to anna"),
        (("deny", "Not today."), f"{DENIED} Not today."),
        (("respond", "Use the other account."), "Use the other account."),
    ],
)
async def test_the_run_after_a_decision_tells_of_the_call_then_of_its_result_once(
    depth, asks_itself, verb, result
):
    heard = []
    agent = Bank(depth, asks_itself=asks_itself).agent(listeners=[heard.append])
    [waiting] = (await agent.run("go")).pending
    heard.clear()
    agent.decide(waiting.id, *verb)
    async with agent.query_stream() as stream:
        streamed = [event async for event in stream]
    assert told(streamed) == [("call", {"amount": 500}), ("result", result)]
    assert told(heard) == told(streamed)
    async with agent.query_stream("And now?") as stream:
        assert told([event async for event in stream]) == []


@DEPTHS
@pytest.mark.parametrize(
    "content", ["yes", [TextPart("see"), ImagePart(url="https://x.test/a.png")]]
)
async def test_the_run_after_an_answer_tells_of_the_call_then_of_its_result_once(depth, content):
    @tool(name="pay", external=True)
    def sign() -> None:
        """Sign."""

    bank = Bank(depth)
    bank.tool = sign
    agent = bank.agent(cls=Agent, llm=replaying(call("pay"), last))
    [waiting] = (await agent.run("go")).pending
    agent.answer(waiting.id, content)
    async with agent.query_stream() as stream:
        streamed = [event async for event in stream]
    [first, second] = told(streamed)
    assert first == ("call", {})
    assert second[1].startswith("yes" if content == "yes" else "see")


async def test_a_run_that_has_to_stop_again_tells_what_was_decided_so_far():
    agent = Bank().agent(llm=replaying([call("pay", amount=1), call("pay", amount=2)], last))
    first, second = (await agent.run("go")).pending
    agent.decide(first.id, "respond", "Paid by hand.")
    async with agent.query_stream() as stream:
        streamed = [event async for event in stream]
    assert stream.result.pending == (second,)
    assert told(streamed) == [("call", {"amount": 1}), ("result", "Paid by hand.")]


@pytest.mark.parametrize("idempotent", [True, False])
async def test_a_nested_call_that_is_denied_is_told_of_if_its_caller_runs_again(idempotent):
    bank = Bank(asks_itself=True)

    @tool(idempotent=idempotent)
    async def book(agent: Agent = Depends(current_agent)) -> str:
        """Book."""
        return f"booked: {await agent.call('pay', amount=500)}"

    agent = Agent(llm=replaying(call("book"), last), tools=[book, bank.tool])
    [waiting] = (await agent.run("go")).pending
    agent.decide(waiting.id, "deny", "Not today.")
    async with agent.query_stream() as stream:
        streamed = [event async for event in stream]
    if idempotent:
        assert [kind for kind, _ in told(streamed)] == ["call", "result"]
    assert "Not today." in told(streamed, "book")[-1][1]
    assert not bank.paid


@DEPTHS
async def test_a_reviewer_may_have_any_name(depth):
    bank = Bank(depth, asks_itself=True)
    agent = bank.agent()
    [waiting] = (await agent.run("go")).pending
    agent.decide(waiting.id, "allow", by="rule")
    assert (await agent.run()).stop_reason == "completed"
    assert bank.paid == {(500, "anna"): 1}


async def test_the_log_names_the_reviewer_and_holds_the_edit():
    bank = Bank()
    agent = bank.agent()
    [waiting] = (await agent.run("go")).pending
    agent.decide(waiting.id, "allow", "too much", arguments={"amount": 5}, by="ada")
    [decision] = [record for record in agent.log if isinstance(record, Decision)]
    assert (decision.by, decision.reason, decision.arguments) == ("ada", "too much", '{"amount":5}')


async def test_a_decision_may_be_changed_before_the_run_continues():
    bank = Bank()
    agent = bank.agent()
    [waiting] = (await agent.run("go")).pending
    agent.decide(waiting.id, "allow", arguments={"amount": 5})
    agent.decide(waiting.id, "allow", arguments={"amount": 6})
    await agent.run()
    assert bank.paid == {(6, "anna"): 1}


async def test_a_sub_agent_that_was_allowed_to_start_is_not_decided_on_again():
    bank = Bank(1)
    agent = bank.agent(above=Asking)
    [clerk] = (await agent.run("go")).pending
    agent.decide(clerk.id, "allow")
    [waiting] = (await agent.run()).pending
    for verb in (("allow",), ("deny",), ("respond", "Done by hand.")):
        with pytest.raises(ValueError, match="needs no approval"):
            agent.decide(clerk.id, *verb)
    agent.decide(waiting.id, "allow")
    assert (await agent.run()).text == "paid 500 to anna"


@pytest.mark.parametrize("depth", [1, 2])
@pytest.mark.parametrize("below", [Agent, Asking])
@pytest.mark.parametrize("amount", ["*", "500"])
async def test_what_is_always_allowed_holds_for_later_calls_of_a_sub_agent(
    tmp_path, depth, below, amount
):
    bank = Bank(depth)
    given = {"approval_mode": "ask" if below is Agent else "auto", "session_dir": tmp_path}
    given |= {"approval_rules": [Rule("allow", "clerk")]}
    with bank.agent(cls=below, above=SavedAsking, **given) as agent:
        [waiting] = (await agent.run("go")).pending
        agent.allow_always(waiting.name, {"amount": amount})
        assert "paid 500" in (await agent.run()).text
    once_more = ScriptedModel(call("clerk", prompt="Pay."), "Done.")
    with bank.agent(cls=below, above=SavedAsking, **given) as agent:
        agent.llm = once_more
        assert (await agent.run("Once more.")).text == "Done."
        assert bank.paid == {(500, "anna"): 2}


async def test_always_means_the_own_tool_of_an_agent_before_that_of_its_sub_agent():
    clerk = Asking(llm=replaying(call("pay", amount=500), last), tools=[Bank().tool])
    ran = []

    @tool
    def pay(cheque: str) -> str:
        """Pay with a cheque."""
        ran.append(cheque)
        return "paid"

    llm = replaying([call("pay", cheque="1"), call("clerk", prompt="Pay.")], last)
    rules = [Rule("allow", "clerk")]
    tools = [pay, as_tool(clerk, "clerk", "Pays")]
    agent = Asking(llm=llm, tools=tools, approval_rules=rules)
    agent.allow_always("pay")
    [waiting] = (await agent.run("go")).pending
    assert (ran, waiting.parsed) == (["1"], {"amount": 500})
    with pytest.raises(ToolError, match="no tool named 'spend'"):
        agent.allow_always("spend")


@DEPTHS
@pytest.mark.parametrize("above", [Agent, Asking])
async def test_a_run_instead_of_a_decision_does_not_allow_what_a_tool_asked_for(depth, above):
    bank = Bank(depth, asks_itself=True)
    settings = {"approval_mode": "auto"} if above is Asking else {}
    agent = bank.agent(cls=None if depth else above, above=above, **settings)
    [waiting] = (await agent.run("go")).pending
    result = await agent.run()
    assert result.stop_reason == "needs_approval"
    assert result.pending == (waiting,)
    assert not bank.paid


@pytest.mark.parametrize("verdict", ["deny", "respond"])
async def test_a_long_note_is_cut_like_any_result(verdict):
    @tool
    def pay() -> str:
        """Pay."""
        return "paid"

    note = 1_000 * "x"
    settings = {"tools": [pay], "max_result_chars": 100}
    decided = Asking(llm=ScriptedModel(call("pay"), "Done."), **settings)
    [waiting] = (await decided.run("x")).pending
    decided.decide(waiting.id, verdict, note)
    await decided.run()
    answered = Asking(
        llm=ScriptedModel(call("pay"), "Done."),
        approval_callback=lambda call, why: Review(verdict, note),
        **settings,
    )
    await answered.run("x")
    for agent in decided, answered:
        text = last(agent.llm.requests[-1].messages)
        assert "omitted" in text
        assert len(text) < 300
