"""The recipe for background sub-agents, which report to their parent and end with it."""

import asyncio
import shutil

import pytest

from agentloop import Agent, Limits, ScriptedModel, Session, assert_prefix_stable, tool
from agentloop.messages import AssistantMessage, Usage
from agentloop.mixins.approval import Approval, Rule
from agentloop.models.scripted import call
from tests.doubles.openai_double import calls
from tests.doubles.wires import WIRES
from tests.recipes import load

recipe = load("background_agents")
Boss = recipe.Boss


class Helper:
    """A sub-agent that answers once `go` is set, and counts its starts and cancellations."""

    def __init__(self, answer="384,400 km.", name="research"):
        self.go, self.started = asyncio.Event(), asyncio.Event()
        self.starts = self.cancelled = 0

        @tool("Look", read_only=True)
        async def look() -> str:
            self.starts += 1
            self.started.set()
            try:
                await self.go.wait()
            except asyncio.CancelledError:
                self.cancelled += 1
                raise
            return "seen"

        looks = AssistantMessage(tool_calls=(call("look"),), usage=Usage(100, 10))
        agent = Agent(llm=ScriptedModel(looks, answer), tools=[look])
        self.tool = recipe.in_background(agent, name, "Research in the background")


def texts(agent):
    return [message.text for message in agent.messages if message.text]


async def test_the_parent_continues_and_receives_the_answer_as_a_message():
    helper = Helper()

    @tool("Let the helper answer")
    async def release() -> str:
        await helper.started.wait()
        helper.go.set()
        return "released"

    llm = ScriptedModel(call("research", prompt="moon"), call("release"), "Soon.", "Far.")
    boss = Boss(llm=llm, tools=[helper.tool, release])
    assert (await boss.run("x")).text in ("Soon.", "Far.")
    assert texts(boss)[1:3] == [recipe.STARTED, "released"]
    assert "research (call_0_0) has answered: 384,400 km." in texts(boss)
    assert boss.usage.total_tokens == 110, "requests of the helper are counted in the parent"
    assert_prefix_stable(llm.requests)


async def test_a_run_ends_after_the_last_helper_and_a_failure_is_reported_as_a_message():
    one, two = Helper(), Helper(RuntimeError("no disk"), name="other")
    script = [[call("research", prompt="a"), call("other", prompt="b")], "Done?", "Done."]
    boss = Boss(llm=ScriptedModel(*script), tools=[one.tool, two.tool])
    run = asyncio.ensure_future(boss.run("x"))
    for helper in (one, two):
        await helper.started.wait()
        assert not run.done()
        helper.go.set()
    assert (await run).text == "Done."
    assert any("has answered: 384,400 km." in text for text in texts(boss))
    assert any("has failed" in text and "no disk" in text for text in texts(boss))


@pytest.mark.parametrize("end", ["cancel", "interrupt", "error"])
async def test_helpers_end_with_their_parent_and_the_next_run_reports_an_unknown_outcome(end):
    helper = Helper()
    boss = Boss(llm=ScriptedModel(call("research", prompt="moon"), call("wait"), "I see."))

    @tool("Wait")
    async def wait() -> None:
        await helper.started.wait()
        if end == "cancel":
            run.cancel()
        elif end == "interrupt":
            boss.interrupt()
        else:
            raise OSError("broken")
        await asyncio.Event().wait()

    boss.tools, boss.on_tool_error = [helper.tool, wait], "raise"
    run = asyncio.ensure_future(boss.run("x"))
    await asyncio.wait([run])
    for _ in range(20):
        await asyncio.sleep(0)
    assert (helper.starts, helper.cancelled) == (1, 1)
    assert (await boss.run("y")).text == "I see."
    reports = [text for text in texts(boss) if recipe.UNKNOWN in text]
    assert len(reports) == 1
    assert helper.starts == 1


async def test_a_run_that_was_cancelled_while_it_waited_for_a_helper_continues_with_a_report():
    helper = Helper()
    llm = ScriptedModel(call("research", prompt="moon"), "Soon.", "I see.")
    boss = Boss(llm=llm, tools=[helper.tool])
    run = asyncio.ensure_future(boss.run("x"))
    await helper.started.wait()
    while "Soon." not in texts(boss):
        await asyncio.sleep(0)
    run.cancel()
    await asyncio.wait([run])
    assert (await boss.run()).text == "I see."
    assert any(recipe.UNKNOWN in text for text in texts(boss))


async def test_after_a_restart_the_outcome_is_unknown_and_nothing_starts_again(tmp_path):
    class SessionBoss(recipe.Background, Session, Agent): ...

    helper, left = Helper(), tmp_path / "left"

    @tool("Copy the files that a kill would leave now")
    async def kill() -> str:
        await helper.started.wait()
        shutil.copytree(tmp_path / "now", left)
        helper.go.set()
        return "copied"

    script = [call("research", prompt="moon"), call("kill"), "Soon.", "Far."]
    settings = {"tools": [helper.tool, kill], "session": "s"}
    with SessionBoss(llm=ScriptedModel(*script), session_dir=tmp_path / "now", **settings) as boss:
        await boss.run("x")
    for _ in range(2):  # the second restart loads the report
        llm = ScriptedModel("I see.")
        with SessionBoss(llm=llm, session_dir=left, **settings) as boss:
            await boss.run("And now?")
            assert sum(recipe.UNKNOWN in text for text in texts(boss)) == 1
    assert helper.starts == 1


async def test_an_answer_received_before_a_kill_is_delivered_after_the_restart(tmp_path):
    class SessionBoss(recipe.Background, Session, Agent): ...

    helper, left = Helper(), tmp_path / "left"

    class Slow(ScriptedModel):
        """Delivers the helper's answer during the second request, then simulates a kill."""

        async def ainvoke(self, messages, tools=(), **more):
            if len(self.requests) == 1:
                helper.go.set()
                while not boss.fold(recipe.Unread).messages:
                    await asyncio.sleep(0)
                shutil.copytree(tmp_path / "now", left)
            return await super().ainvoke(messages, tools, **more)

    settings = {"tools": [helper.tool], "session": "s"}
    llm = Slow(call("research", prompt="moon"), "Soon.", "Far.")
    with SessionBoss(llm=llm, session_dir=tmp_path / "now", **settings) as boss:
        assert await boss.query("x") == "Far."
    with SessionBoss(llm=ScriptedModel("I see."), session_dir=left, **settings) as boss:
        await boss.run("And now?")
        assert sum("has answered" in text for text in texts(boss)) == 1
        assert not any(recipe.UNKNOWN in text for text in texts(boss))


async def test_a_background_agent_has_a_time_limit():
    helper = Helper()
    llm = ScriptedModel(call("research", prompt="moon"), "Done?", "Done.")
    boss = Boss(llm=llm, tools=[helper.tool], background_timeout=0.05)
    assert await boss.query("x") == "Done."
    assert any("has failed: TimeoutError" in text for text in texts(boss))
    assert helper.cancelled == 1


async def test_the_limits_of_the_parent_apply_to_its_background_agents():
    class Limited(recipe.Background, Limits, Agent):
        max_requests = 3

    helper = Helper()
    helper.go.set()
    llm = ScriptedModel(call("research", prompt="moon"), "Done?", "Done.", "Done.")
    result = await Limited(llm=llm, tools=[helper.tool]).run("x")
    assert result.stop_reason == "limit:requests"
    assert len(llm.requests) + helper.starts <= 3


async def test_a_call_that_awaits_approval_starts_no_agent():
    class Asking(recipe.Background, Approval, Agent):
        approval_rules = (Rule("ask", "research"), Rule("allow"))  # also judge its sub-agents

    helper = Helper()
    helper.go.set()
    boss = Asking(llm=ScriptedModel(call("research", prompt="moon"), "a", "b"), tools=[helper.tool])
    result = await boss.run("x")
    assert (result.stop_reason, helper.starts) == ("needs_approval", 0)
    boss.decide(result.pending[0].id, "allow")
    assert (await boss.run()).text == "b"
    assert helper.starts == 1


async def test_the_caller_reads_what_a_background_agent_did_before_it_asked():
    class Asking(recipe.Background, Approval, Agent):
        approval_rules = (Rule("allow", "research"),)

    look = tool("Look", name="look", read_only=True)(lambda: "seen")
    pay = tool("Pay", name="pay")(lambda: "paid")
    agent = Agent(llm=ScriptedModel(call("look"), call("pay"), "never"), tools=[look, pay])
    research = recipe.in_background(agent, "research", "Research in the background")
    llm = ScriptedModel(call("research", prompt="moon"), "a", "b")
    boss = Asking(llm=llm, tools=[research])
    assert (await boss.run("x")).stop_reason == "completed"
    [told] = [text for text in texts(boss) if "needed a decision" in text]
    assert "look({}): seen" in told
    assert boss.pending == ()


@pytest.mark.parametrize("wire", WIRES, ids=lambda wire: wire.name)
async def test_every_request_is_valid_for_any_arrival_time_of_the_answer(wire):
    script = [calls(("research", {"prompt": "moon"}, "c1"), ("add", {}, "c2"))]
    script += [calls(("add", {}, f"c{n}")) for n in range(3, 9)]
    add = tool("Add", name="add")(lambda: "5")
    for pauses in range(0, 60, 6):
        helper = Helper()

        async def release(pauses=pauses, helper=helper):
            await helper.started.wait()
            for _ in range(pauses):
                await asyncio.sleep(0.001)
            helper.go.set()

        async with wire.double([*script, *["ok"] * 3]) as server:
            boss = Boss(llm=wire.model(server, max_retries=0), tools=[helper.tool, add])
            releasing = asyncio.ensure_future(release())
            assert await boss.query("x") == "ok"
            await releasing
            assert server.refusals == []
        assert sum("has answered" in text for text in texts(boss)) == 1
