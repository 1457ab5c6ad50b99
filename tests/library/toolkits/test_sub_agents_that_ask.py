"""A sub-agent that asks ends its parent's run; after the answer, it continues where it stopped."""

import asyncio
from collections import Counter

import pytest

from agentloop import (
    Agent,
    AssistantMessage,
    Depends,
    Limits,
    ScriptedModel,
    ServerError,
    Session,
    ToolCall,
    ToolMessage,
    UserMessage,
    current_call,
    tool,
    validate_messages,
)
from agentloop.common.subagents import SubAgentRecord
from agentloop.depends import current_agent
from agentloop.mixins.approval import Approval, Rule
from agentloop.mixins.hooks import Hook, Hooks
from agentloop.models.scripted import call
from agentloop.toolkits.ask import ask_user
from agentloop.toolkits.subagent import as_tool
from tests import SLOW
from tests.doubles.kills import Killed, mortal
from tests.helpers import results


class Guarded(Approval, Agent):
    approval_rules = (Rule("allow", "pay"),)


class Careful(Approval, Agent): ...


class Boss(Session, Agent):
    session = "boss"
    session_fsync = False


def replaying(*turns):
    """Return a model that answers by the number of its replies in the history.

    A turn is a reply, or a function of the last message.
    """

    def reply(messages, tools):
        turn = turns[sum(isinstance(message, AssistantMessage) for message in messages)]
        return turn(messages[-1]) if callable(turn) else turn

    return ScriptedModel(reply)


def last(message):
    return message.text


class Office:
    """Tools with counted effects, a sub-agent that uses them, and the agents above it."""

    def __init__(self, *turns, cls=Guarded, depth=1):
        self.done = Counter()
        self.cls, self.turns, self.depth = cls, turns, depth

        @tool
        def pay(to: str) -> str:
            """Pay."""
            self.done[f"pay {to}"] += 1
            return f"paid {to}"

        @tool
        def delete(name: str) -> str:
            """Delete."""
            self.done[f"delete {name}"] += 1
            return f"deleted {name}"

        self.tools = [pay, delete, ask_user]

    def clean(self):
        """Return a new tool that runs the sub-agent, at `depth` levels below its user."""
        agent = self.cls(llm=replaying(*self.turns), tools=self.tools)
        for _ in range(self.depth - 1):
            above = replaying(call("clean", prompt="Clean."), last)
            agent = Agent(llm=above, tools=[as_tool(agent, "clean", "Cleans")])
        return as_tool(agent, "clean", "Cleans")

    def boss(self, *turns, cls=Agent, **settings):
        turns = turns or (call("clean", prompt="Clean."), last)
        return cls(llm=replaying(*turns), tools=[self.clean()], **settings)


PAYS_THEN_DELETES = (call("pay", to="anna"), call("delete", name="a"), last)
DEPTHS = pytest.mark.parametrize("depth", [1, 2, 3])


@DEPTHS
@pytest.mark.parametrize("verdict", ["allow", "deny"])
async def test_a_decision_on_the_parent_continues_the_sub_agent_and_repeats_nothing(depth, verdict):
    office = Office(*PAYS_THEN_DELETES, depth=depth)
    boss = office.boss()
    result = await boss.run("go")
    assert result.stop_reason == "needs_approval"
    [waiting] = boss.pending
    assert result.pending == (waiting,)
    assert (waiting.name, waiting.parsed) == ("delete", {"name": "a"})
    assert waiting.id.count("/") == depth
    boss.decide(waiting.id, verdict, "Keep it.")
    result = await boss.run()
    deleted = verdict == "allow"
    assert result.stop_reason == "completed"
    assert office.done == {"pay anna": 1, **({"delete a": 1} if deleted else {})}
    assert ("deleted a" if deleted else "Keep it.") in result.text
    assert boss.pending == ()
    assert validate_messages([*boss.messages, UserMessage("next")]) == []


@DEPTHS
async def test_a_session_continues_the_sub_agent_in_another_process(depth, tmp_path):
    office = Office(*PAYS_THEN_DELETES, depth=depth)
    with office.boss(cls=Boss, session_dir=tmp_path) as boss:
        asked = (await boss.run("go")).pending
    with office.boss(cls=Boss, session_dir=tmp_path) as boss:
        assert boss.pending == asked
        boss.decide(asked[0].id, "allow")
    with office.boss(cls=Boss, session_dir=tmp_path) as boss:
        assert boss.pending == ()
        assert (await boss.run()).text == "deleted a"
    assert office.done == {"pay anna": 1, "delete a": 1}


@DEPTHS
async def test_an_answer_on_the_parent_is_the_result_of_the_sub_agents_question(depth):
    office = Office(call("ask_user", question="Which one?"), last, depth=depth)
    boss = office.boss()
    result = await boss.run("go")
    assert result.stop_reason == "needs_answer"
    [question] = result.pending
    assert question.parsed == {"question": "Which one?"}
    boss.answer(question.id, "The blue one.")
    assert (await boss.run()).text == "The blue one."


async def test_two_sub_agents_ask_at_once_and_are_decided_one_after_the_other():
    office = Office(*PAYS_THEN_DELETES)
    both = [call("clean", prompt="One."), call("clean", prompt="Two.")]
    boss = office.boss(both, "done")
    first, second = (await boss.run("go")).pending
    boss.decide(first.id, "allow")
    assert (await boss.run()).pending == (second,)
    assert results(boss)[0] == "deleted a"
    boss.decide(second.id, "deny", "Once is enough.")
    assert (await boss.run()).text == "done"
    assert "Once is enough." in results(boss)[1]
    assert office.done == {"pay anna": 2, "delete a": 1}


async def test_an_approval_and_a_question_of_two_sub_agents_wait_together():
    asking = as_tool(
        Agent(llm=replaying(call("ask_user", question="Why?"), last), tools=[ask_user]),
        *("wonder", "Wonders"),
    )
    office = Office(*PAYS_THEN_DELETES)
    llm = replaying([call("clean", prompt="x"), call("wonder", prompt="y")], "done")
    boss = Agent(llm=llm, tools=[office.clean(), asking])
    waiting = {pending.name: pending for pending in (await boss.run("go")).pending}
    delete, question = waiting["delete"], waiting["ask_user"]
    boss.answer(question.id, "Because.")
    with pytest.raises(ValueError, match="decide"):
        boss.answer(delete.id, "yes")
    boss.decide(delete.id, "allow")
    assert (await boss.run()).text == "done"
    assert results(boss) == ["deleted a", "Because."]


async def test_a_prompt_instead_of_a_decision_tells_the_model_what_has_run():
    office = Office(*PAYS_THEN_DELETES)
    boss = office.boss(call("clean", prompt="Clean."), "I see.")
    [waiting] = (await boss.run("go")).pending
    assert (await boss.run("Never mind.")).text == "I see."
    [told] = results(boss)
    assert "paid anna" in told
    assert "delete" in told
    assert "Not run" in told
    assert boss.pending == ()
    with pytest.raises(ValueError, match="not pending"):
        boss.decide(waiting.id, "allow")


@pytest.mark.parametrize("end", [ServerError("down"), AssistantMessage("", stop_reason="refused")])
async def test_the_model_reads_what_a_sub_agent_had_done_before_it_failed(end):
    office = Office(call("pay", to="anna"), end)
    boss = office.boss()
    await boss.run("go")
    [told] = results(boss)
    assert "paid anna" in told


async def test_only_pending_calls_are_decided(tmp_path):
    office = Office(*PAYS_THEN_DELETES)
    boss = office.boss()
    [waiting] = (await boss.run("go")).pending
    with pytest.raises(ValueError, match="verdict"):
        boss.decide(waiting.id, "perhaps")
    with pytest.raises(ValueError, match="no call"):
        boss.decide(waiting.id.split("/")[1], "allow")
    with pytest.raises(ValueError, match="approval"):
        boss.decide(waiting.parent_id, "allow")


# ---- the gates and limits of the agents above


@DEPTHS
async def test_the_rules_of_the_agents_above_apply_to_a_sub_agents_calls(depth):
    office = Office(call("pay", to="anna"), last, cls=Agent, depth=depth)
    rules = [Rule("allow", "clean"), Rule("deny", "pay", reason="Never.")]
    boss = office.boss(cls=Careful, approval_rules=rules)
    assert "Never." in (await boss.run("go")).text
    assert not office.done


@DEPTHS
async def test_a_mode_above_asks_once_for_a_call_of_a_sub_agent_without_gates(depth):
    office = Office(call("pay", to="anna"), last, cls=Agent, depth=depth)
    boss = office.boss(cls=Careful, approval_rules=[Rule("allow", "clean")])
    [waiting] = (await boss.run("go")).pending
    assert not office.done
    boss.decide(waiting.id, "allow")
    assert (await boss.run()).text == "paid anna"
    assert office.done == {"pay anna": 1}


async def test_an_approved_sub_agent_is_not_asked_for_again_when_it_continues():
    office = Office(*PAYS_THEN_DELETES)
    boss = office.boss(cls=Careful)
    asked = []
    while pending := boss.pending or (not asked and (await boss.run("go")).pending):
        asked += [waiting.name for waiting in pending]
        boss.decide(pending[0].id, "allow")
        result = await boss.run()
    assert asked == ["clean", "delete"]
    assert result.text == "deleted a"


async def test_a_callback_above_answers_for_a_sub_agent_that_asks():
    asked = []

    def approve(call, reason):
        asked.append(call.name)
        return True

    office = Office(*PAYS_THEN_DELETES)
    boss = office.boss(cls=Careful, approval_callback=approve)
    assert (await boss.run("go")).text == "deleted a"
    assert asked == ["clean", "delete"]


async def test_a_hook_above_changes_a_call_before_the_rules_of_the_sub_agent_judge_it():
    def rename(data):
        if data["tool_name"] == "pay":
            return {"updatedInput": {"to": "mallory"}}
        return None

    class Hooked(Hooks, Agent): ...

    office = Office(call("pay", to="anna"), last)
    office.cls = type("Strict", (Guarded,), {"approval_rules": [Rule("deny", "pay", {"to": "m*"})]})
    boss = office.boss(cls=Hooked, hooks=[Hook("PreToolUse", rename)])
    assert "Denied" in (await boss.run("go")).text
    assert not office.done


async def test_a_sub_agent_reads_what_a_hook_above_adds_about_its_call():
    def remind(data):
        return {"additionalContext": "Anna moved."} if data["tool_name"] == "pay" else None

    class Hooked(Hooks, Agent): ...

    seen = []

    def report(messages, tools):
        seen.extend(message.text for message in messages)
        return "ok"

    pay = tool("Pay", name="pay")(lambda: "paid")
    helper = Agent(llm=ScriptedModel(call("pay"), report), tools=[pay])
    tools = [as_tool(helper, "clean", "Cleans")]
    llm = replaying(call("clean", prompt="Clean."), last)
    boss = Hooked(llm=llm, tools=tools, hooks=[Hook("PreToolUse", remind)])
    await boss.run("go")
    assert "Anna moved." in seen
    assert "Anna moved." not in [message.text for message in boss.messages]


async def test_limits_above_count_the_requests_of_a_sub_agent_that_continues():
    class Limited(Limits, Agent): ...

    office = Office(*PAYS_THEN_DELETES)
    boss = office.boss(cls=Limited, max_requests=3)
    [waiting] = (await boss.run("go")).pending
    boss.decide(waiting.id, "allow")
    assert (await boss.run()).text == "deleted a"
    assert boss.usage.total_tokens >= 0
    assert len(boss.conversation.requests) == 5


async def test_a_tool_that_calls_a_sub_agent_continues_it_too():
    office = Office(*PAYS_THEN_DELETES)

    @tool(idempotent=True)
    async def work(agent: Agent = Depends(current_agent)) -> str:
        """Work."""
        return await agent.call("clean", prompt="Clean.")

    boss = Agent(llm=replaying(call("work"), last), tools=[work, office.clean()])
    [waiting] = (await boss.run("go")).pending
    boss.decide(waiting.id, "allow")
    assert (await boss.run()).text == "deleted a"
    assert office.done == {"pay anna": 1, "delete a": 1}


async def test_a_tool_that_may_not_run_again_leaves_its_sub_agent_to_the_run():
    office = Office(*PAYS_THEN_DELETES)

    @tool
    async def work(agent: Agent = Depends(current_agent)) -> str:
        """Work."""
        return await agent.call("clean", prompt="Clean.")

    boss = Agent(llm=replaying(call("work"), last), tools=[work, office.clean()])
    [waiting] = (await boss.run("go")).pending
    boss.decide(waiting.id, "allow")
    assert "deleted a" in (await boss.run()).text
    assert office.done == {"pay anna": 1, "delete a": 1}


# ---- kills and cancellations


class World:
    """An agent with sub-agents that ask, killed at one record and then continued."""

    def __init__(self, folder, kill_at, *, before, depth):
        self.folder, self.kill_at, self.before = folder, kill_at, before
        self.depth = depth
        self.records = 0
        self.was_killed = False
        self.done = Counter()
        self.agent = self.open()

    def open(self):
        world = self

        @tool
        async def pay(to: str, this: ToolCall = Depends(current_call)) -> str:
            """Pay."""
            world.done[this.id] += 1
            return f"paid {to}"

        def reply(messages, tools):
            me = messages[0].text
            number = sum(isinstance(message, AssistantMessage) for message in messages)
            turns = [
                replace_id(call("pay", to="shop"), f"{me}-shop"),
                [
                    replace_id(call("pay", to="bank"), f"{me}-bank"),
                    replace_id(call("ask_user", question="More?"), f"{me}-more"),
                ],
            ]
            return turns[number] if number < len(turns) else "cleaned"

        rules = [Rule("allow", "pay", {"to": "shop"}), Rule("allow", "ask_user")]
        child = Careful(llm=ScriptedModel(reply), tools=[pay, ask_user], approval_rules=rules)
        tools = [as_tool(child, "clean", "Cleans")]
        for level in range(1, self.depth):

            def pass_on(messages, tools, level=level):
                me = messages[0].text
                return call("clean", prompt=f"{me}.{level}") if len(messages) == 1 else "passed"

            middle = Agent(llm=ScriptedModel(pass_on), tools=tools)
            tools = [as_tool(middle, "clean", "Cleans")]
        both = [call("clean", prompt="one"), call("clean", prompt="two")]
        llm = ScriptedModel(lambda messages, tools: both if len(messages) == 1 else "all clean")
        return mortal(Boss, self)(llm=llm, tools=tools, session_dir=self.folder)

    def step(self, action):
        try:
            return action()
        except (Killed, BaseExceptionGroup):
            self.was_killed = True
            self.agent = self.open()
            return action()

    def go_on(self):
        if not self.agent.messages:
            return self.agent.run_sync("Clean up.")
        if isinstance(self.agent.messages[-1], AssistantMessage):
            return None
        return self.agent.run_sync()

    def decide(self):
        for waiting in self.agent.pending:
            if waiting.name == "pay":
                self.agent.decide(waiting.id, "allow")
            elif waiting.name == "ask_user":
                self.agent.answer(waiting.id, "No.")

    def live(self):
        self.step(self.go_on)
        for _ in range(20):
            if not self.agent.pending:
                break
            self.step(self.decide)
            self.step(self.go_on)
        self.step(self.go_on)
        self.agent.close()


def replace_id(call, call_id):
    return ToolCall(call_id, call.name, call.arguments)


@pytest.mark.parametrize("before", [False, True])
@pytest.mark.parametrize("depth", [1, 2])
def test_a_kill_at_any_record_of_sub_agents_that_ask_repeats_no_payment(tmp_path, before, depth):
    kill_at, step = 0, 1 if SLOW else 11
    was_killed = True
    interrupted = 0
    while was_killed:
        kill_at += step
        world = World(tmp_path / str(kill_at), kill_at, before=before, depth=depth)
        world.live()
        was_killed = world.was_killed
        agent = world.agent
        assert agent.pending == ()
        assert agent.messages[-1].text == "all clean"
        assert all(times == 1 for times in world.done.values())
        told = [m.text for m in agent.messages if isinstance(m, ToolMessage)]
        assert len(told) == 2
        continued = set(told) == {"cleaned" if depth == 1 else "passed"}
        interrupted += not continued
        if continued and len(world.done) < 4:  # the sub-agent has read that the outcome is unknown
            assert "unknown" in str([r.record for r in agent.log if hasattr(r, "record")])
        assert validate_messages([*agent.messages, UserMessage("x")]) == []
    assert kill_at > 50
    assert interrupted == 0, "every sub-agent continued to its answer"


# ---- cancellations


async def drive(boss):
    """Decide and continue until the boss has answered."""
    if not boss.messages:
        await boss.run("go")
    while not isinstance(boss.messages[-1], AssistantMessage):
        for waiting in boss.pending:
            boss.decide(waiting.id, "allow", arguments={"name": "b"})
        await boss.run()


async def iterations(task, at_most):
    """Let a task run for some iterations of the event loop; return their number."""
    for count in range(at_most):
        if task.done():
            return count
        await asyncio.sleep(0)
    return at_most


def twice(depth):
    """Return an office, and a boss that runs two sub-agents at once."""
    turns = (call("pay", to="anna"), [call("delete", name="a"), call("pay", to="bert")], "clean")
    office = Office(*turns, depth=depth)
    both = [call("clean", prompt="One."), call("clean", prompt="Two.")]
    return office, office.boss(both, "done")


@pytest.mark.parametrize("depth", [1, 2])
async def test_a_cancellation_at_any_iteration_of_the_event_loop_repeats_nothing(depth):
    def once_each(office):
        assert set(office.done) <= {"pay anna", "pay bert", "delete b"}
        assert max(office.done.values(), default=0) <= 2, "once for each of two sub-agents"

    office, boss = twice(depth)
    moments = await iterations(asyncio.ensure_future(drive(boss)), 100_000)
    assert office.done == {"pay anna": 2, "pay bert": 2, "delete b": 2}
    for moment in range(0, moments, 1 if SLOW else 5):
        office, boss = twice(depth)
        task = asyncio.ensure_future(drive(boss))
        await iterations(task, moment)
        task.cancel()
        await asyncio.wait([task])
        once_each(office)
        assert validate_messages([*boss.messages, UserMessage("x")]) == []
        await drive(boss)
        once_each(office)
        assert boss.messages[-1].text == "done"
        told = str([record.record for record in boss.log if isinstance(record, SubAgentRecord)])
        assert sum(office.done.values()) + told.count("outcome is unknown") >= 6
