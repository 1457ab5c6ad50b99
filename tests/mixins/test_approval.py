"""Approval: a call runs only if a rule, the mode or somebody clearly allows it."""

import asyncio
import json
import os
import subprocess
import sys
from collections import Counter
from contextlib import suppress
from dataclasses import replace
from random import Random

import pytest

from agentloop import (
    Agent,
    AgentBusy,
    ScriptedModel,
    Session,
    ToolCall,
    ToolError,
    ToolMessage,
    tool,
    validate,
)
from agentloop.messages import Ask, Decision, ToolStart
from agentloop.mixins.approval import Approval, Rule
from agentloop.models.scripted import call
from agentloop.records import dump_record, load_record
from agentloop.store import read_log
from agentloop.transcript import call_states

from .. import test_loop
from ..test_loop import shown


class Asking(Approval, Agent):
    """The plain case."""


class TestApproval(test_loop.TestLoop):
    agent_class = type("Auto", (Approval,), {"approval_mode": "auto"})


def acting(*script, kind=Asking, **settings):
    """An agent with two tools that act and one that reads, and what has run."""
    ran = []

    @tool
    def bash(command: str) -> str:
        """Run a command."""
        ran.append(command)
        return f"ran {command}"

    @tool
    def write(path: str, text: str = "") -> str:
        """Write a file."""
        ran.append(path)
        return f"wrote {path}"

    @tool(read_only=True)
    def look(at: str) -> str:
        """Look at something."""
        ran.append(at)
        return f"saw {at}"

    return kind(llm=ScriptedModel(*script), tools=[bash, write, look], **settings), ran


def bash(command):
    return call("bash", command=command)


def results(agent):
    return [m.text for m in agent.messages if isinstance(m, ToolMessage)]


def raises(*_):
    raise ToolError("broken")


# ---- what is no clear yes is a no


async def late(*_):
    await asyncio.Event().wait()


@pytest.mark.parametrize(
    "callback",
    [
        lambda call, reason: False,
        lambda call, reason: None,
        lambda call, reason: 1,
        lambda call, reason: "true",
        lambda call: True,
        raises,
        late,
    ],
)
async def test_an_answer_that_is_no_clear_yes_in_time_denies(callback):
    agent, ran = acting(bash("x"), "ok", approval_callback=callback, approval_timeout=0.05)
    assert (await agent.run("go")).stop_reason == "completed"
    assert ran == []
    assert shown(agent.llm.requests[1])[-1].startswith("Denied")
    assert call_states(agent.log).popitem()[1].state == "denied"


@pytest.mark.parametrize("verdict", ["deny", "ask", "allow"])
@pytest.mark.parametrize(
    "broken", [raises, lambda: True, lambda arguments: arguments["x"], lambda arguments: "no"]
)
async def test_a_rule_that_fails_allows_nothing(verdict, broken):
    rules = [Rule(verdict, "bash", broken)]
    for mode in ("ask", *["auto"] * (verdict != "allow")):
        agent, ran = acting(bash("x"), "ok", approval_rules=rules, approval_mode=mode)
        result = await agent.run("go")
        assert (result.stop_reason == "completed") is (verdict == "deny")
        assert ran == []


MORE_THAN_GIT = (
    *("git log; rm x", "git log && rm x", "git log | sh", "git $(rm x)", "git `rm x`"),
    *("git log\nrm x", "git log > x", "git -C .. log", "git -C a/../.. log", " git log"),
)


@pytest.mark.parametrize("command", [*MORE_THAN_GIT, "gitx log"])
async def test_a_prefix_that_is_allowed_allows_no_second_command(command):
    agent, ran = acting(bash(command), approval_rules=[Rule("allow", "bash", {"command": "git *"})])
    agent.allow_always("bash", {"command": "git *"})
    assert (await agent.run("go")).stop_reason == "needs_approval"
    assert ran == []


async def test_arguments_that_are_missing_or_not_text_fit_no_glob_that_allows():
    rules = [Rule("allow", "*", {"path": "src/*"})]
    script = [[bash("x"), call("write", path="src/../x"), call("write", path="src/a.py")]]
    agent, _ran = acting(*script, approval_rules=rules)
    await agent.run("go")
    asked = [r.extra["call"][1] for r in agent.log if isinstance(r, Ask)]
    assert asked == [{"command": "x"}, {"path": "src/../x"}]


async def test_a_rule_that_denies_sees_the_arguments_that_will_run():
    hidden = ToolCall("1", "bash", '"{\\"command\\": \\"rm x\\"}"')  # twice encoded, and accepted
    rules = [Rule("deny", "bash", {"command": "*rm*"})]
    agent, ran = acting([hidden], "ok", approval_rules=rules, approval_mode="auto")
    await agent.run("go")
    assert ran == []


# ---- rules and modes

COMMANDS = ["git log", "git push", "make"]
RULES = [
    Rule("allow", "bash", {"command": "git *"}),
    Rule("ask", "b*", {"command": "* push"}),
    Rule("deny", "*", lambda arguments: arguments.get("command") == "make", "Make nothing."),
    Rule("allow", "bash", {"command": "make"}),
]


@pytest.mark.parametrize(
    ("mode", "rules", "ran", "asked"),
    [
        ("ask", RULES, ["git log", "y"], ["git push"]),
        ("ask", RULES[::-1], ["git log", "y"], ["git push"]),
        ("ask", [Rule("allow")], [*COMMANDS, "y"], []),
        ("ask", [Rule("allow"), Rule("ask", "bash")], ["y"], COMMANDS),
        ("ask", [Rule("ask"), Rule("deny")], [], []),
        ("ask", [Rule("allow", "BASH"), Rule("deny", "bas")], ["y"], COMMANDS),
        ("auto", [], [*COMMANDS, "y"], []),
        ("readonly", [], ["y"], []),
        ("plan", [], ["y"], []),
    ],
)
async def test_deny_outranks_ask_outranks_allow_and_where_no_rule_is_the_mode_decides(
    mode, rules, ran, asked
):
    seen = []
    agent, done = acting(
        [*map(bash, COMMANDS), call("look", at="y")],
        "ok",
        approval_mode=mode,
        approval_rules=rules,
        approval_callback=lambda call, reason: seen.append(call.parsed["command"]),
    )
    await agent.run("go")
    assert (done, seen) == (ran, asked)
    validate(agent.messages)


async def test_an_approved_plan_lets_calls_be_asked_for_in_its_conversation(tmp_path):
    kind = type("Kept", (Approval, Session, Agent), {"approval_mode": "plan"})
    kept = {"kind": kind, "session": "s", "session_dir": tmp_path, "session_fsync": False}
    agent, _ = acting(bash("x"), "My plan: x.", **kept)
    with agent:
        assert (await agent.run("go")).text == "My plan: x."
        assert "plan" in results(agent)[0]
        agent.approve_plan()
    agent, ran = acting(
        bash("x"), "ok", bash("y"), "no", approval_callback=lambda call, reason: True, **kept
    )
    with agent:
        await agent.run("Do it.")
        assert ran == ["x"]
        agent.clear_history()
        await agent.run("And y?")
        assert ran == ["x"]


# ---- asking


async def test_all_asks_of_a_turn_are_answered_before_any_of_its_calls_runs():
    calls = [call("look", at="z"), bash("x"), bash("y")]
    agent, ran = acting(calls, "ok", approval_callback=lambda call, reason: True)
    await agent.run("go")
    marks = [type(r).__name__ for r in agent.log if isinstance(r, Ask | Decision | ToolStart)]
    assert marks == ["Ask", "Decision"] * 2 + ["ToolStart"] * 3
    assert sorted(ran) == ["x", "y", "z"]


async def test_without_a_callback_the_run_ends_and_goes_on_after_a_decision():
    agent, ran = acting([bash("x"), call("look", at="y"), bash("z")], "ok")
    result = await agent.run("go")
    assert (result.stop_reason, ran) == ("needs_approval", [])
    first, last = result.pending
    agent.decide(first.id, "allow", by="anna")
    assert (await agent.run()).stop_reason == "needs_approval"
    agent.decide(last.id, "deny", "Not z.")
    assert (await agent.run()).text == "ok"
    assert sorted(ran) == ["x", "y"]
    assert results(agent)[2].endswith("Not z.")
    trails = call_states(agent.log)
    states = [(t.state, t.decision and t.decision.extra["by"]) for t in trails.values()]
    assert states == [("completed", "anna"), ("completed", None), ("denied", "user")]
    validate(agent.messages)


async def test_what_cannot_be_decided_is_an_error():
    agent, ran = acting(bash("x"), "ok", bash("y"), "Fine.")
    [pending] = (await agent.run("go")).pending
    wrong = [("other", "allow"), (pending.id, "yes"), (pending.id, True)]
    for call_id, verdict in wrong:
        with pytest.raises(ValueError, match=pending.id):
            agent.decide(call_id, verdict)
    agent.decide(pending.id, "deny")
    with pytest.raises(ValueError, match="waits"):
        agent.decide(pending.id, "allow")
    await agent.run()
    [pending] = (await agent.run("go")).pending
    assert (await agent.run("Never mind.")).text == "Fine."  # a prompt instead of an answer
    with pytest.raises(ValueError, match="waits"):
        agent.decide(pending.id, "allow")
    assert ran == []

    async def busy(call, reason):
        with pytest.raises(AgentBusy):
            agent.decide(call.id, "allow")

    agent, _ran = acting(bash("x"), "ok", approval_callback=busy)
    await agent.run("go")


# ---- an approval is bound, and counts once


async def test_an_approval_counts_once_also_for_a_tool_that_may_run_twice():
    runs, started = [], asyncio.Event()

    @tool(idempotent=True)
    async def pay(amount: int) -> str:
        """Pay."""
        runs.append(amount)
        if len(runs) == 1:
            started.set()
            await asyncio.Event().wait()
        return "paid"

    agent = Asking(llm=ScriptedModel(call("pay", amount=5), "ok"), tools=[pay])
    result = await agent.run("go")
    [pending] = result.pending
    yes = f"pay: agent.decide({pending.id!r}, 'allow')"
    assert str(result) == f"(needs_approval)\n{yes}\nagent.run()", "it says how to go on"
    assert str(replace(result, stop_reason="interrupted")) == ""
    agent.decide(pending.id, "allow")
    task = asyncio.ensure_future(agent.run())
    await started.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert (await agent.run()).stop_reason == "needs_approval"
    assert runs == [5]
    agent.decide(pending.id, "allow")
    assert (await agent.run()).text == "ok"
    assert runs == [5, 5]


# ---- always


async def test_always_is_kept_in_the_session_and_void_when_the_tool_changes(tmp_path):
    kind = type("Kept", (Approval, Session, Agent), {})
    kept = {"kind": kind, "session": "s", "session_dir": tmp_path, "session_fsync": False}

    agent, ran = acting(bash("git log"), bash("make"), **kept)
    with agent:
        agent.allow_always("bash", {"command": "git *"})
        assert (await agent.run("go")).stop_reason == "needs_approval"
        assert ran == ["git log"]
    agent, ran = acting(bash("git status"), "ok", **kept)
    with agent:
        assert (await agent.run("And now?")).text == "ok"
        assert ran == ["git status"]
    agent, ran = acting(bash("git status"), "ok", **kept)
    with agent:
        agent.tools[0].description = "Run a command, and tell mallory."
        assert (await agent.run("And now?")).stop_reason == "needs_approval"
        assert ran == []


async def test_always_said_in_a_callback_answers_the_later_asks_of_the_turn():
    asked = []

    def answer(call, reason):
        asked.append(call.parsed["path"])
        agent.allow_always("write")
        return True

    writes = [call("write", path=path) for path in "ab"]
    agent, ran = acting(writes, "ok", approval_callback=answer)
    await agent.run("go")
    assert (asked, ran) == (["a"], ["a", "b"])


@pytest.mark.parametrize(
    "settings", [{"approval_mode": "plan"}, {"approval_rules": [Rule("deny")]}]
)
async def test_always_answers_asks_and_nothing_else(settings):
    agent, ran = acting(bash("x"), "ok", **settings)
    with pytest.raises(ToolError, match="no tool named 'bahs'"):
        agent.allow_always("bahs")
    agent.allow_always("bash")
    await agent.run("go")
    assert ran == []


# ---- restarts

PROGRAM = """
import sys
from pathlib import Path
from agentloop import Agent, ScriptedModel, Session, tool
from agentloop.mixins.approval import Approval
from agentloop.models.scripted import call
from agentloop.records import dump_record, load_record

class Clerk(Approval, Session, Agent):
    session_dir = sys.argv[1]

@tool
def pay(amount: int) -> str:
    "Pay somebody."
    with Path(sys.argv[1], "ledger").open("a") as ledger:
        ledger.write(f"{amount} ")
    return f"paid {amount}"

def clerk(*script):
    return Clerk(llm=ScriptedModel(*script), tools=[pay], session="s")
"""
FIRST = """
with clerk([call("pay", amount=5), call("pay", amount=7)]) as agent:
    print(agent.run_sync("Pay both.").stop_reason)
    sys.stdout.flush()
    import os
    os._exit(9)  # without any farewell
"""
SECOND = """
with clerk("Paid one.") as agent:
    five, seven = agent.run_sync().pending
    agent.decide(five.id, "allow")
    agent.decide(seven.id, "deny", "Seven is too much.")
    print(agent.run_sync())
"""


def test_a_run_that_waits_for_approval_goes_on_in_another_process(tmp_path):
    outputs = [
        subprocess.run(
            [sys.executable, "-c", PROGRAM + part, tmp_path],
            capture_output=True,
            text=True,
            timeout=60,
        ).stdout.split("\n")[0]
        for part in (FIRST, SECOND)
    ]
    assert outputs == ["needs_approval", "Paid one."]
    assert (tmp_path / "ledger").read_text() == "5 "
    log = read_log(tmp_path / "s.jsonl")
    assert [t.state for t in call_states(log).values()] == ["completed", "denied"]
    assert [load_record(dump_record(record)) for record in log] == log
    told = [r.text for r in log if isinstance(r, ToolMessage)]
    assert any(text.endswith("Seven is too much.") for text in told)


# ---- any order of asks, answers, cancels and restarts, with a model that tries to get around them


class Vault(Approval, Session, Agent):
    approval_timeout = 0.02
    session_fsync = False


class World:
    """What people said yes to, and what was paid: each yes is good for one payment."""

    def __init__(self, folder, seed):
        self.chance, self.folder, self.yes, self.paid = Random(seed), folder, Counter(), Counter()
        self.killed_at = None

    def reply(self, messages, tools):
        """One hostile reply: doubled ids, texts encoded twice, what was denied once more."""
        if self.chance.random() < 0.25:
            return "That was all."
        calls = []
        for _ in range(self.chance.randint(1, 3)):
            text = json.dumps({"amount": self.chance.randrange(4)})
            texts = [text, text, json.dumps(text), text.replace(": ", ":  "), "{"]
            name = self.chance.choice(["pay", "pay", "pay", "refund", "look", "nothing"])
            calls.append(ToolCall(self.chance.choice("ab"), name, self.chance.choice(texts)))
        return calls

    async def ask(self, call, reason):
        answer = self.chance.choice([True, True, False, None, "no", 1, ToolError("?"), "late"])
        if answer is True:
            self.yes[call.name, call.parsed["amount"]] += 1
        if answer == "late":
            await asyncio.Event().wait()
        if isinstance(answer, ToolError):
            raise answer
        return answer

    def open(self):
        async def spend(name, amount):
            self.paid[name, amount] += 1
            if self.chance.random() < 0.2:  # a kill at this moment leaves this file
                file = (self.folder / "s.jsonl").read_bytes()
                self.killed_at = file, self.yes.copy(), self.paid.copy()
            await asyncio.sleep(0)

        @tool
        async def pay(amount: int) -> None:
            """Pay."""
            await spend("pay", amount)

        @tool(idempotent=True)
        async def refund(amount: int) -> None:
            """Pay back."""
            await spend("refund", amount)

        return Vault(
            llm=ScriptedModel(self.reply),
            tools=[pay, refund, tool("Look", name="look", read_only=True)(lambda: "fine")],
            session="s",
            session_dir=self.folder,
            approval_callback=self.ask if self.chance.random() < 0.5 else None,
            max_iterations=4,
        )

    def decide(self, agent):
        for call_id, state in call_states(agent.log).items():
            verdict = self.chance.choice(["allow", "allow", "deny", "perhaps"])
            with suppress(ValueError):
                agent.decide(call_id, verdict)
                if verdict == "allow" and state.ask:  # an answer to what was asked
                    name, arguments = state.ask.extra["call"]
                    self.yes[name, arguments["amount"]] += 1

    async def live(self):
        agent = self.open()
        for _ in range(12):
            task = asyncio.ensure_future(agent.run(self.chance.choice([None, None, "Pay."])))
            if self.chance.random() < 0.3:
                for _ in range(self.chance.randint(0, 30)):
                    await asyncio.sleep(0)
                task.cancel()
            await asyncio.wait([task])
            if not task.cancelled():
                task.exception()
            self.decide(agent)
            if self.chance.random() < 0.4:
                agent.close()
                if self.killed_at and self.chance.random() < 0.5:
                    file, self.yes, self.paid = self.killed_at
                    (self.folder / "s.jsonl").write_bytes(file)
                self.killed_at = None
                agent = self.open()
            assert not self.paid - self.yes, "each payment has a yes of its own"
        agent.close()
        return sum(self.paid.values())


async def test_nothing_with_side_effects_runs_without_a_yes_of_its_own(tmp_path):
    paid = 0
    for seed in range(int(os.environ.get("AGENTLOOP_SEEDS", "15"))):
        folder = tmp_path / str(seed)
        folder.mkdir()
        paid += await World(folder, seed).live()
    assert paid, "some of them run"
