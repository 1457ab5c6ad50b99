"""Approval: a call runs only if a rule, the mode or the user explicitly allows it."""

import asyncio
import json
import math
import os
import re
from collections import Counter
from contextlib import suppress
from functools import partial
from pathlib import Path
from random import Random
from typing import Annotated

import pytest
from pydantic import AliasChoices, AliasPath, BaseModel, ConfigDict, Field

from agentloop import (
    Agent,
    AgentBusy,
    Depends,
    NeedsApproval,
    ScriptedModel,
    Session,
    ToolCall,
    ToolError,
    is_approved,
    tool,
)
from agentloop.common.review import Ask, Decision
from agentloop.depends import current_call
from agentloop.messages import ImagePart, frozen
from agentloop.mixins.approval import Approval, Rule
from agentloop.mixins.hooks import Hook, Hooks
from agentloop.models.scripted import call
from agentloop.toolkits.files import Workspace
from agentloop.toolkits.subagent import as_tool
from agentloop.transcript import OUTCOME_UNKNOWN, CallEntry, ToolStart
from tests import helpers as mixins
from tests.core import test_loop
from tests.core.test_loop import shown
from tests.doubles.kills import Killed, mortal
from tests.helpers import bash, late, raises, record_all, results


class Asking(Approval, Agent): ...


class SavedAsking(Approval, Session, Agent):
    session = "s"
    session_fsync = False


def approve(call, reason):
    return True


async def late_approve(call, reason):
    with suppress(asyncio.CancelledError):
        await asyncio.Event().wait()
    return True


acting = partial(mixins.acting, kind=Asking)
INVALID_APPROVALS = [lambda *_, answer=answer: answer for answer in (False, None, 1, "true")]
BROKEN_RULES = [raises, lambda: True, lambda arguments: arguments["x"], lambda arguments: "no"]
GIT = Rule("allow", "bash", {"command": "git *"})
MORE_THAN_GIT = (
    *("git log; rm x", "git log && rm x", "git log | sh", "git $(rm x)", "git `rm x`", "gitx log"),
    *('git -C ."". log', "git -C a/.''./b log", 'git -C "."./x log', "git log '.'."),
    *("git log\nrm x", "git log > x", "git -C .. log", "git -C a/../.. log", " git log"),
)
COMMANDS = ["git log", "git push", "make"]
RULES = [
    GIT,
    Rule("ask", "b*", {"command": "* push"}),
    Rule("deny", "*", lambda arguments: arguments.get("command") == "make", "Make nothing."),
    Rule("allow", "bash", {"command": "make"}),
]


class Secret(BaseModel):
    model_config = ConfigDict(frozen=True)
    path: str = Field(exclude=True)


class Chosen(BaseModel):
    path: str = Field(validation_alias=AliasChoices("p", "q"))


class Nested(BaseModel):
    path: str = Field(validation_alias=AliasPath("a", "b"))


class Open(BaseModel):
    model_config = ConfigDict(extra="allow")
    path: str = Field("safe", alias="p")


EVIL = "*evil*"
HIDDEN = [  # parameter type, arguments from the model, arguments of the rule
    (dict[str, str], {"x": {"evil": "a"}}, {"x": EVIL}),
    (list[dict[str, str]], {"x": [{"evil": "a"}]}, {"x": EVIL}),
    (set[Secret], {"x": [{"path": "evil"}]}, {"x": EVIL}),
    (Chosen, {"q": "evil"}, {"q": EVIL}),
    (Chosen, {"p": "evil"}, {"path": EVIL}),
    (Nested, {"a": {"b": "evil"}}, {"a": EVIL}),
    (Open, {"p": "safe", "path": "evil"}, {"path": EVIL}),
    (list[str], {"x": []}, {"x": "*"}),
    (dict[str, str], {"x": {}}, {"x": "*"}),
    (list[list[str]], {"x": [[]]}, {"x": "*"}),
]


class TestApproval(test_loop.TestLoop):
    agent_class = type("Auto", (Approval,), {"approval_mode": "auto"})
    largest_fork = 1100  # includes the dict of judgments

    @pytest.mark.parametrize("callback", [*INVALID_APPROVALS, raises, late, late_approve])
    async def test_any_answer_but_true_within_the_timeout_denies_the_call(self, callback):
        agent, ran = acting(bash("x"), "ok", approval_callback=callback, approval_timeout=0.05)
        assert (await agent.run("go")).stop_reason == "completed"
        assert ran == []
        assert [each.by for each in agent.log if isinstance(each, Decision)] == ["callback"]
        assert shown(agent.llm.requests[1])[-1].startswith("Denied")
        assert agent.conversation.states.popitem()[1].status == "denied"

    @pytest.mark.parametrize("verdict", ["deny", "ask", "allow"])
    @pytest.mark.parametrize("broken", BROKEN_RULES)
    async def test_a_rule_that_raises_allows_no_call(self, verdict, broken):
        rules = [Rule(verdict, "bash", broken)]
        for mode in ("ask", *["auto"] * (verdict != "allow")):
            agent, ran = acting(bash("x"), "ok", approval_rules=rules, approval_mode=mode)
            result = await agent.run("go")
            assert (result.stop_reason == "completed") is (verdict == "deny")
            assert ran == []

    @pytest.mark.parametrize("command", MORE_THAN_GIT)
    async def test_an_allowed_command_prefix_does_not_allow_a_second_command(self, command):
        agent, ran = acting(bash(command), approval_rules=[GIT])
        agent.allow_always("bash", GIT.arguments)
        assert (await agent.run("go")).stop_reason == "needs_approval"
        assert ran == []

    async def test_missing_or_unsafe_arguments_do_not_match_the_glob_of_an_allow_rule(self):
        rules = [Rule("allow", "*", {"path": "src/*"})]
        script = [[bash("x"), call("write", path="src/../x"), call("write", path="src/a.py")]]
        agent, _ran = acting(*script, approval_rules=rules)
        await agent.run("go")
        asked = [json.loads(r.arguments) for r in agent.log if isinstance(r, Ask)]
        assert asked == [{"command": "x"}, {"path": "src/../x"}]

    async def test_a_deny_rule_matches_the_decoded_arguments(self):
        hidden = ToolCall("1", "bash", '"{\\"command\\": \\"rm x\\"}"')  # encoded twice
        rules = [Rule("deny", "bash", {"command": "*rm*"})]
        agent, ran = acting([hidden], "ok", approval_rules=rules, approval_mode="auto")
        await agent.run("go")
        assert ran == []

    @pytest.mark.parametrize("kind", ["deny", "ask"])
    @pytest.mark.parametrize(("annotation", "sent", "arguments"), HIDDEN)
    async def test_deny_and_ask_rules_also_match_the_raw_arguments_of_the_model(
        self, kind, annotation, sent, arguments
    ):
        ran = []

        def act(x):
            ran.append(x)

        act.__annotations__ = {"x": annotation}
        hidden_call = ToolCall("1", "act", json.dumps(sent))
        agent = Asking(
            llm=ScriptedModel([hidden_call], "ok"),
            tools=[tool("Act", name="act")(act)],
            approval_mode="auto",
            approval_rules=[Rule(kind, "act", arguments)],
        )
        await agent.run("go")
        assert ran == []

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
    async def test_deny_outranks_ask_and_allow_and_the_mode_is_the_fallback(
        self, mode, rules, ran, asked
    ):
        def ask(call, reason):
            seen.append(call.parsed["command"])

        seen, calls = [], [*map(bash, COMMANDS), call("look", at="y")]
        settings = {"approval_mode": mode, "approval_rules": rules, "approval_callback": ask}
        agent, done = acting(calls, "ok", **settings)
        await agent.run("go")
        assert (done, seen) == (ran, asked)

    async def test_an_approved_plan_permits_approval_requests_until_the_history_is_cleared(
        self, tmp_path
    ):
        plan = {"kind": SavedAsking, "session_dir": tmp_path, "approval_mode": "plan"}
        agent, _ = acting(bash("x"), "My plan: x.", **plan)
        with agent:
            assert (await agent.run("go")).text == "My plan: x."
            assert "plan" in results(agent)[0]
            agent.approve_plan()
        agent, ran = acting(bash("x"), "ok", bash("y"), "no", approval_callback=approve, **plan)
        with agent:
            await agent.run("Do it.")
            assert ran == ["x"]
            agent.clear_history()
            await agent.run("And y?")
            assert ran == ["x"]

    async def test_no_call_of_a_turn_runs_before_all_its_approvals_are_decided(self):
        calls = [call("look", at="z"), bash("x"), bash("y")]
        agent, ran = acting(calls, "ok", approval_callback=approve)
        await agent.run("go")
        marks = [type(r).__name__ for r in agent.log if isinstance(r, Ask | Decision | ToolStart)]
        assert marks == ["Ask", "Decision"] * 2 + ["ToolStart"] * 3
        assert sorted(ran) == ["x", "y", "z"]

    async def test_without_a_callback_the_run_ends_and_continues_after_a_decision(self, tmp_path):
        script = [bash("x"), call("look", at="y"), bash("z")]
        agent, ran = acting(script, kind=SavedAsking, session_dir=tmp_path)
        with agent:
            result = await agent.run("go")
            assert (result.stop_reason, ran) == ("needs_approval", [])
        agent, ran = acting("ok", kind=SavedAsking, session_dir=tmp_path)  # like a new process
        with agent:
            first, last = agent.pending
            agent.decide(first.id, "allow", by="anna")
            assert agent.pending == (last,)
            assert (await agent.run()).stop_reason == "needs_approval"
            agent.decide(last.id, "deny", "Not z.")
            assert agent.pending == ()
            assert (await agent.run()).text == "ok"
        assert sorted(ran) == ["x", "y"]
        assert results(agent)[2].endswith("Not z.")
        trails = agent.conversation.states
        states = [(t.status, t.newest(Decision) and t.newest(Decision).by) for t in trails.values()]
        assert states == [("completed", "anna"), ("completed", None), ("denied", "user")]

    async def test_a_started_call_that_is_denied_does_not_run_again(self):
        started = asyncio.Event()

        @tool("Pay", idempotent=True)
        async def pay() -> str:
            started.set()
            await asyncio.sleep(30)
            return "paid"

        agent = Asking(llm=ScriptedModel(call("pay"), "I stop here."), tools=[pay])
        [waiting] = (await agent.run("go")).pending
        agent.decide(waiting.id, "allow")
        run = asyncio.create_task(agent.run())
        await started.wait()
        run.cancel()
        with suppress(asyncio.CancelledError):
            await run
        assert (await agent.run()).stop_reason == "needs_approval", "a second run of the call"
        agent.decide(waiting.id, "deny", "Not twice.")
        assert (await agent.run()).text == "I stop here."
        assert results(agent) == [f"{OUTCOME_UNKNOWN} It may not run again. Not twice."]
        assert agent.conversation.states[waiting.id].status == "sealed"

    async def test_an_invalid_decision_is_an_error(self):
        async def busy(call, reason):
            with pytest.raises(AgentBusy):
                agent.decide(call.id, "allow")

        agent, ran = acting(bash("x"), "ok", bash("y"), "Fine.", bash("z"), "ok")
        [first] = (await agent.run("go")).pending
        for call_id, verdict, problem in [
            ("other", "allow", "no call 'other'"),
            (first.id, "yes", "not 'yes'"),
            (first.id, True, "not True"),
        ]:
            with pytest.raises(ValueError, match=re.escape(problem)):
                agent.decide(call_id, verdict)
        agent.decide(first.id, "deny")
        await agent.run()
        with pytest.raises(ValueError, match=f"{first.id!r} is not pending: it is denied"):
            agent.decide(first.id, "allow")
        [second] = (await agent.run("go")).pending
        assert (await agent.run("Never mind.")).text == "Fine."  # a prompt instead of a decision
        closed = f"{second.id!r} is not pending: it is sealed .Not run"
        with pytest.raises(ValueError, match=closed):
            agent.decide(second.id, "allow")
        assert agent.pending == ()
        agent.approval_callback = busy
        await agent.run("go")
        assert ran == []

    async def test_an_approval_permits_one_execution_even_of_an_idempotent_tool(self):
        runs, started = [], asyncio.Event()

        @tool("Pay", idempotent=True)
        async def pay(amount: int) -> str:
            runs.append(amount)
            if len(runs) == 1:
                started.set()
                await asyncio.Event().wait()
            return "paid"

        agent = Asking(llm=ScriptedModel(call("pay", amount=5), "ok"), tools=[pay])
        result = await agent.run("go")
        [pending] = result.pending
        agent.decide(pending.id, "allow")
        task = asyncio.ensure_future(agent.run())
        await started.wait()
        task.cancel()
        await asyncio.wait([task])
        assert (await agent.run()).stop_reason == "needs_approval"
        assert runs == [5]
        agent.decide(pending.id, "allow")
        assert (await agent.run()).text == "ok"
        assert runs == [5, 5]

    async def test_allow_always_is_saved_in_the_session_and_invalid_after_the_tool_changes(
        self, tmp_path
    ):
        saved = {"kind": SavedAsking, "session_dir": tmp_path}
        agent, ran = acting(bash("git log"), bash("make"), **saved)
        with agent:
            agent.allow_always("bash", {"command": "git *"})
            assert (await agent.run("go")).stop_reason == "needs_approval"
            assert ran == ["git log"]
        for change, reason in [("", "completed"), (", and tell mallory", "needs_approval")]:
            agent, ran = acting(bash("git status"), "ok", **saved)
            with agent:
                agent.tools[0].description += change
                assert (await agent.run("And now?")).stop_reason == reason
                assert ran == ([] if change else ["git status"])

    async def test_allow_always_in_a_session_holds_for_a_tool_that_has_no_timeout(self, tmp_path):
        for prompt in "one", "two":
            agent, ran = acting(bash("make"), "ok", kind=SavedAsking, session_dir=tmp_path)
            with agent:
                agent.tools[0].timeout = math.inf
                if prompt == "one":
                    agent.allow_always("bash")
                assert (await agent.run(prompt)).text == "ok"
                assert ran == ["make"]

    async def test_allow_always_in_a_callback_approves_later_calls_of_the_turn(self):
        asked = []

        def answer(call, reason):
            asked.append(call.parsed["path"])
            agent.allow_always("write")
            return True

        writes = [call("write", path=path) for path in "ab"]
        agent, ran = acting(writes, "ok", approval_callback=answer)
        await agent.run("go")
        assert (asked, ran) == (["a"], ["a", "b"])

    async def test_allow_always_overrides_neither_plan_mode_nor_a_deny_rule(self):
        for settings in ({"approval_mode": "plan"}, {"approval_rules": [Rule("deny")]}):
            agent, ran = acting(bash("x"), "ok", **settings)
            with pytest.raises(ToolError, match="no tool named 'bahs'"):
                agent.allow_always("bahs")
            agent.allow_always("bash")
            await agent.run("go")
            assert ran == []


class World:
    """Simulated approvals and payments: each approval permits one payment.

    Requests, decisions, cancellations and restarts occur in random order. The model is hostile.
    """

    def __init__(self, folder, seed):
        self.chance, self.folder, self.yes, self.paid = Random(seed), folder, Counter(), Counter()
        self.killed_at = None

    def reply(self, messages, tools):
        """Return a hostile reply: duplicate ids, arguments encoded twice, denied calls repeated."""
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
        answer = self.chance.choice([True, True, False, None, "no", 1, raises, late])
        if answer is True:
            self.yes[call.name, call.parsed["amount"]] += 1
        return await late() if answer is late else answer() if answer is raises else answer

    def open(self):
        async def spend(amount: int, this: ToolCall = Depends(current_call)) -> None:
            self.paid[this.name, amount] += 1
            if self.chance.random() < 0.2:  # the file after a kill at this point
                file = (self.folder / "s.jsonl").read_bytes()
                self.killed_at = file, self.yes.copy(), self.paid.copy()
            await asyncio.sleep(0)

        pay = tool("Pay", name="pay")(spend)
        refund = tool("Pay back", name="refund", idempotent=True)(spend)
        look = tool("Look", name="look", read_only=True)(lambda: "fine")
        return SavedAsking(
            llm=ScriptedModel(self.reply),
            tools=[pay, refund, look],
            session_dir=self.folder,
            approval_callback=self.ask if self.chance.random() < 0.5 else None,
            approval_timeout=0.02,
            max_iterations=4,
        )

    def decide(self, agent):
        for call_id, state in agent.conversation.states.items():
            verdict = self.chance.choice(["allow", "allow", "deny", "perhaps"])
            with suppress(ValueError):
                agent.decide(call_id, verdict)
                if verdict == "allow" and state.newest(Ask):  # a decision on an approval request
                    name, arguments = (
                        state.newest(Ask).name,
                        json.loads(state.newest(Ask).arguments),
                    )
                    self.yes[name, arguments["amount"]] += 1

    async def live(self):
        agent = self.open()
        for _ in range(12):
            task = asyncio.ensure_future(agent.run(self.chance.choice([None, None, "Pay."])))
            if self.chance.random() < 0.3:
                for _ in range(self.chance.randint(0, 30)):
                    await asyncio.sleep(0)
                task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            self.decide(agent)
            if self.chance.random() < 0.4:
                agent.close()
                if self.killed_at and self.chance.random() < 0.5:
                    file, self.yes, self.paid = self.killed_at
                    (self.folder / "s.jsonl").write_bytes(file)
                self.killed_at = None
                agent = self.open()
            assert not self.paid - self.yes, "each payment has its own approval"
        agent.close()
        return sum(self.paid.values())


async def test_each_execution_with_side_effects_has_its_own_approval(tmp_path):
    paid = 0
    for seed in range(int(os.environ.get("AGENTLOOP_SEEDS", "15"))):
        folder = tmp_path / str(seed)
        folder.mkdir()
        paid += await World(folder, seed).live()
    assert paid, "some payments were approved"


# ---- deny rules


class FileSystem(Approval, Agent):
    approval_mode = "auto"


@pytest.mark.parametrize(
    "path",
    [
        ".github/x",
        "./.github/x",
        ".GITHUB/x",
        "a/../.github/x",
        ".github//x",
        "link/x",
        "link/../.github/./x",
        "a/../link/x",
    ],
)
@pytest.mark.parametrize("glob", [".github/*", "*/project/.github/x"])
async def test_a_rule_that_denies_a_file_denies_every_path_to_the_file(path, glob, tmp_path):
    root = tmp_path / "project"
    (root / ".github").mkdir(parents=True)
    (root / "link").symlink_to(root / ".github")
    rules = [Rule("deny", "write", {"path": glob})]
    llm = ScriptedModel(call("write", path=path, content="evil"), "done")
    agent = FileSystem(llm=llm, tools=Workspace(root).tools, approval_rules=rules)
    await agent.run("go")
    assert "Denied" in results(agent)[0]
    assert [*(root / ".github").iterdir()] == []


@pytest.mark.parametrize(("glob", "denied"), [("rm *", ["rm x"]), ("*rm *", ["rm x", "ls; rm x"])])
async def test_a_glob_matches_the_whole_text(glob, denied):
    ran = []

    @tool("Run")
    def bash(command: str) -> None:
        ran.append(command)

    commands = ["ls", "rm x", "ls; rm x"]
    llm = ScriptedModel([call("bash", command=command) for command in commands], "ok")
    rules = [Rule("deny", "bash", {"command": glob})]
    await Asking(llm=llm, tools=[bash], approval_mode="auto", approval_rules=rules).run("go")
    assert {*ran} == {*commands} - {*denied}


async def test_a_deny_rule_leaves_an_object_alone_that_has_no_such_key_or_value():
    ran = []

    @tool("Act")
    def act(x: dict[str, str]) -> None:
        ran.append(x)

    llm = ScriptedModel([call("act", x={"good": "a"}), call("act", x={"a": "evil"})], "ok")
    rules = [Rule("deny", "act", {"x": EVIL})]
    await Asking(llm=llm, tools=[act], approval_mode="auto", approval_rules=rules).run("go")
    assert ran == [{"good": "a"}]


@pytest.mark.parametrize(("kind", "pack"), [(Path, str), (list[Path], lambda name: ["c", name])])
async def test_a_rule_normalizes_arguments_of_type_path(kind, pack, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    @tool
    def delete(file: kind, keep: str = "") -> str:
        """Delete a file."""
        return "deleted"

    calls = [call("delete", file=pack("a/../.ENV")), call("delete", file=pack("b"))]
    llm = ScriptedModel(*calls, "done")
    rules = [Rule("deny", "delete", {"file": ".env"})]
    agent = FileSystem(llm=llm, tools=[delete], approval_rules=rules)
    await agent.run("go")
    assert [result.partition(":")[0] for result in results(agent)] == ["Denied", "deleted"]


@pytest.mark.parametrize(
    ("rule", "word"),
    [
        (Rule("deny", "Bash"), "'bash'"),
        (Rule("ask", "BA*"), "'bash'"),
        (Rule("deny", "bash", {"cmd": "rm *"}), "command"),
        (Rule("deny", "*", {"Path": "*"}), "path"),
    ],
)
async def test_a_rule_that_never_matches_is_an_error_before_the_first_request(rule, word):
    agent, _ = acting("done", approval_rules=[rule])
    with pytest.raises(ValueError, match=word):
        await agent.run("go")
    assert agent.llm.requests == []


async def test_a_rule_for_an_unknown_tool_is_only_a_warning(caplog):
    fine = [Rule("allow", "Look"), Rule("deny", "drop_*"), Rule("deny", "*", {"path": "x"})]
    agent, _ = acting("done", approval_rules=[*fine, Rule("deny", "push")])
    await agent.run("go")
    [warning] = caplog.messages
    assert "push" in warning


async def test_a_rule_for_a_tool_of_a_sub_agent_is_checked_against_that_tool(caplog):
    below, _ = acting()
    tools = [as_tool(below, "delegate", "Has it done")]
    agent = Asking(llm=ScriptedModel("done"), tools=tools, approval_rules=[Rule("deny", "bash")])
    await agent.run("go")
    assert caplog.messages == []
    misspelt = agent.fork(0, approval_rules=[Rule("deny", "bash", {"cmd": "rm *"})])
    with pytest.raises(ValueError, match="command"):
        await misspelt.run("go")


async def test_the_done_tool_needs_no_approval():
    llm = ScriptedModel(call("done", message="ok"))
    agent = type("Strict", (Approval, Agent), {})(llm=llm, require_done_tool=True)
    assert (await agent.run("x")).stop_reason == "done"


# ---- approval while the conversation continues


class Patient(Approval, Session, Agent):
    defer_approval = True
    session = "s"
    session_fsync = False


class Payments:
    """Prompts, decisions and runs of an agent that is killed at one record and reopened."""

    def __init__(self, folder, kill_at, before, verdicts):
        self.folder, self.kill_at, self.before = folder, kill_at, before
        self.verdicts = verdicts
        self.paid = Counter()
        self.records = 0
        self.was_killed = False
        self.agent = self.open()

    def open(self):
        world = self

        @tool
        async def pay(to: str, this: ToolCall = Depends(current_call)) -> str:
            """Pay."""
            world.paid[this.id] += 1
            return f"paid {to}"

        def reply(messages, tools):
            text = messages[-1].text
            return call("pay", to=text.split()[1]) if text.startswith("Pay ") else "fine"

        return mortal(Patient, self)(llm=ScriptedModel(reply), tools=[pay], session_dir=self.folder)

    def step(self, action):
        """Perform an action; if the agent is killed, repeat the action after a restart."""
        try:
            action()
        except Killed:
            self.was_killed = True
            self.agent = self.open()
            action()

    def decide(self):
        for waiting in self.agent.deferred:
            self.agent.decide(waiting.id, self.verdicts[waiting.parsed["to"]], "Not today.")

    def live(self):
        for prompt in ("Pay anna", "Pay bert", "What time is it?"):
            if not any(prompt == record.text for record in self.agent.messages):
                self.step(lambda prompt=prompt: self.agent.run_sync(prompt))
        self.step(self.decide)
        self.step(lambda: self.agent.run_sync("Go on."))
        self.step(lambda: self.agent.run_sync("And now?"))
        self.agent.close()


@pytest.mark.parametrize("before", [False, True])
@pytest.mark.parametrize("anna", ["allow", "deny"])
def test_a_kill_at_any_record_loses_no_deferred_approval_and_repeats_no_payment(
    anna, before, tmp_path
):
    kill_at = 0
    was_killed = True
    while was_killed:
        kill_at += 1
        verdicts = {"anna": anna, "bert": "allow"}
        world = Payments(tmp_path / str(kill_at), kill_at, before, verdicts)
        world.live()
        was_killed = world.was_killed
        agent = world.agent
        assert agent.deferred == agent.pending == ()
        states = [state for state in agent.conversation.states.values() if state.newest(Decision)]
        assert {state.call.parsed["to"] for state in states} == {"anna", "bert"}
        for state in states:
            [note] = [m.text for m in agent.messages if getattr(m, "sent_id", 0) == state.call.id]
            if verdicts[state.call.parsed["to"]] == "deny":
                assert world.paid[state.call.id] == 0
                assert "Denied" in note
            elif "paid" in note:
                assert world.paid[state.call.id] == 1
            else:
                assert "outcome is unknown" in note
                assert world.paid[state.call.id] <= 1
        assert sum(world.paid.values()) <= len(states)
    assert kill_at > 25


async def test_a_deferred_call_survives_later_prompts_and_its_outcome_is_a_note(tmp_path):
    llm = ScriptedModel(call("bash", command="a"), "It waits.", "Noon.", "It has run.")
    agent, ran = acting(kind=Patient, session_dir=tmp_path)
    agent = agent.fork(llm=llm)
    assert (await agent.run("go")).stop_reason == "completed"
    assert "awaits approval" in results(agent)[0]
    await agent.run("What time is it?")
    [waiting] = agent.deferred
    assert agent.fork().deferred == ()
    agent.decide(waiting.id, "allow")
    assert agent.deferred == ()
    assert ran == []
    assert (await agent.run()).text == "It has run."
    with pytest.raises(ValueError, match="pending"):
        agent.decide(waiting.id, "allow")
    assert ran == ["a"]
    assert "ran a" in llm.requests[-1].messages[-1].text


async def test_a_decision_after_a_run_that_a_done_tool_ended_is_something_to_continue():
    script = bash("a"), call("done", message="It waits."), call("done", message="It has run.")
    agent, ran = acting(*script, kind=Asking, defer_approval=True, require_done_tool=True)
    assert (await agent.run("go")).stop_reason == "done"
    with pytest.raises(ValueError, match="nothing to continue"):
        await agent.run()
    agent.decide(agent.deferred[0].id, "allow")
    assert (await agent.run()).text == "It has run."
    assert ran == ["a"]


async def test_a_call_stays_deferred_if_an_application_records_an_entry_about_it():
    @frozen
    class Attempt(CallEntry): ...

    class Auditing(Asking):
        async def call_tool(self, call):
            self.record(Attempt(call.id))
            return await super().call_tool(call)

    agent, ran = acting(bash("a"), "It waits.", "It ran.", kind=Auditing, defer_approval=True)
    await agent.run("go")
    agent.decide(agent.deferred[0].id, "allow")
    assert (await agent.run()).text == "It ran."
    assert ran == ["a"]


async def test_the_outcome_of_a_deferred_call_has_the_images_of_its_result():
    image = ImagePart(data=b"pixels", media_type="image/png")

    @tool
    def shoot() -> object:
        """Take a picture."""
        return ["Taken.", image]

    llm = ScriptedModel(call("shoot"), "It waits.", "A cat.")
    agent = Asking(llm=llm, tools=[shoot], defer_approval=True)
    await agent.run("go")
    agent.decide(agent.deferred[0].id, "allow")
    await agent.run()
    note = llm.requests[-1].messages[-1]
    assert "Taken." in note.text
    assert image in note.content


async def test_a_turn_defers_calls_that_a_gate_and_a_tool_ask_about():
    ran = []

    @tool(read_only=True)
    def order(item: str, approved: Annotated[bool, Depends(is_approved)]) -> str:
        """Order an item."""
        if not approved:
            raise NeedsApproval
        ran.append(item)
        return "ordered"

    @tool
    def pay(amount: int) -> str:
        """Pay an amount."""
        ran.append(amount)
        return "paid"

    llm = ScriptedModel([call("order", item="a desk"), call("pay", amount=5)], "They wait.", "ok")
    agent = Asking(llm=llm, tools=[order, pay], defer_approval=True)
    assert (await agent.run("go")).text == "They wait."
    assert agent.pending == ()
    for waiting in agent.deferred:
        agent.decide(waiting.id, "allow")
    assert (await agent.run()).text == "ok"
    assert ran == ["a desk", 5]


async def test_a_kill_during_a_decision_leaves_something_to_continue():
    agent, ran = acting(bash("a"), "It waits.", kind=Asking, defer_approval=True)
    await agent.run("go")
    before = len(agent.log)
    agent.decide(agent.deferred[0].id, "allow")
    for length in range(before + 1, len(agent.log) + 1):
        ran.clear()
        reopened = agent.fork(at=0, llm=ScriptedModel("I see.", "It has run."))
        record_all(reopened, agent.log[:length])
        assert (await reopened.run()).answered
        for waiting in reopened.deferred:
            reopened.decide(waiting.id, "allow")
            assert (await reopened.run()).answered
        assert ran == ["a"]


async def test_a_prompt_after_a_decision_does_not_cancel_a_deferred_call():
    agent, ran = acting(bash("a"), "It waits.", kind=Asking, defer_approval=True)
    await agent.run("go")
    records = [*agent.log]
    for length in range(1, len(records) + 1):
        ran.clear()
        llm = ScriptedModel(bash("b"), "It waits.", "It has run.")
        reopened = agent.fork(at=0, llm=llm)
        record_all(reopened, records[:length])
        for waiting in reopened.deferred:
            reopened.decide(waiting.id, "allow")
            await reopened.run("What time is it?")
            assert ran == ["a"]


async def test_an_external_call_that_waits_for_its_result_is_not_asked_about_again():
    @tool(external=True)
    def weigh(box: int) -> None:
        """Weigh a box."""

    llm = ScriptedModel([call("weigh", box=1), call("weigh", box=2)], "ok")
    agent = Asking(llm=llm, tools=[weigh])
    for waiting in (await agent.run("x")).pending:
        agent.decide(waiting.id, "allow")
    for number in range(2):
        result = await agent.run()
        assert result.stop_reason == "needs_answer", number
        agent.answer(result.pending[0].id, "1 kg")
    assert (await agent.run()).text == "ok"


async def test_an_external_call_is_not_deferred():
    @tool(external=True)
    def weigh(parcel: str) -> None:
        """Weigh a parcel."""

    llm = ScriptedModel(call("weigh", parcel="a"), "5 kg.")
    agent = Asking(llm=llm, tools=[weigh], defer_approval=True)
    agent.approval_rules = [Rule("ask", "weigh")]
    [pending] = (await agent.run("go")).pending
    agent.decide(pending.id, "allow")
    assert (await agent.run()).stop_reason == "needs_answer"
    agent.answer(pending.id, "5 kg")
    assert (await agent.run()).text == "5 kg."


@pytest.mark.parametrize("bases", [(Hooks, Approval), (Approval, Hooks)])
async def test_a_deferred_call_is_judged_again_before_it_runs(bases):
    verdicts = iter([None, {"decision": "deny", "reason": "The bank is closed."}])
    hook = Hook("PreToolUse", lambda data: next(verdicts))
    agent, ran = acting(
        *(bash("x"), "It waits.", "It was denied.", "ok"),
        kind=type("Both", (*bases, Agent), {}),
        hooks=[hook],
        defer_approval=True,
    )
    await agent.run("go")
    agent.decide(agent.deferred[0].id, "allow")
    assert (await agent.run()).text == "It was denied."
    assert ran == []
    assert "The bank is closed." in agent.messages[-2].text
    await agent.run("next")
    assert agent.llm.requests[-1].messages[-1].text == "next"


@pytest.mark.parametrize("bases", [(Hooks, Approval), (Approval, Hooks)])
async def test_a_hook_changes_a_deferred_call_once(bases):
    def add(data):
        return {"updatedInput": {"command": "time " + data["tool_input"]["command"]}}

    agent, ran = acting(
        *(bash("ls"), "It waits.", "It ran."),
        kind=type("Both", (*bases, Agent), {}),
        hooks=[Hook("PreToolUse", add)],
        defer_approval=True,
    )
    await agent.run("go")
    agent.decide(agent.deferred[0].id, "allow")
    assert (await agent.run()).text == "It ran."
    assert ran == ["time ls"]
