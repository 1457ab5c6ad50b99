"""Hooks: functions and commands have a say in what an agent does, and a broken gate is shut."""

import asyncio
import json
import random
import runpy
import sys
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest

from agentloop import (
    Agent,
    CompactionConfig,
    MessageQueue,
    ScriptedModel,
    Session,
    Stop,
    ToolCall,
    ToolMessage,
    UserMessage,
)
from agentloop.messages import Withheld
from agentloop.mixins.approval import Approval, Rule
from agentloop.mixins.hooks import Hook, Hooks
from agentloop.models.scripted import call
from agentloop.toolkits.recall import recall

from .. import mixins, test_loop
from ..test_loop import shown
from ..test_recipes import load
from . import bash, late, raises, results, summarizing

recipe = Path(__file__).parents[2] / "examples" / "recipes" / "claude_code_hooks.py"
command = runpy.run_path(str(recipe))["command"]


class Hooked(Hooks, Agent): ...


class Gated(Hooks, Approval, Agent): ...


def program(code):
    """A hook's function that runs a command, which has read its data."""
    script = f"import json, sys; data = json.load(sys.stdin)\n{code}"
    return command([sys.executable, "-c", script], timeout=20)


def says(event, **said):
    return Hook(event, lambda data: said)


async def cut_off_in(agent, event):
    """Cancel a run while a hook runs."""
    called = asyncio.Event()

    async def wait(data):
        called.set()
        await late(data)

    agent.hooks = [Hook(event, wait)]
    task = asyncio.ensure_future(agent.run("go"))
    await called.wait()
    task.cancel()
    await asyncio.wait([task])


acting = partial(mixins.acting, kind=Hooked)
NO_VERDICTS = [
    *(False, "allow", ["allow"], {"decision": "sure"}, {"updatedInput": "ls"}, {"reason": 5}),
    *({"updatedInput": {1, 2}}, {"additionalContext": 5}, {"permissionDecision": "allow"}),
]
NO_YES = program("""print('{"decision": "ask"}')""")  # there is nobody to ask
KILLED = program("import os; os.kill(os.getpid(), 9)")
SLEEPS = program("import time; time.sleep(30)")
EXITS_1, EXITS_2, SAYS_FINE = map(program, ("sys.exit(1)", "sys.exit(2)", "print('fine')"))
BROKEN = [
    *(lambda data, said=said: said for said in NO_VERDICTS),
    *(raises, command(["./no-such-command"]), program("print('[]')")),
    *(NO_YES, KILLED, EXITS_1, EXITS_2, SAYS_FINE),
]
GATES = [Hook("PreToolUse", run) for run in BROKEN]
GATES += [Hook("PreToolUse", run, timeout=0.3) for run in (late, SLEEPS)]
GATES += [Hook("PreToolUse", lambda data: None, "(")]
DENY = {
    "hookEventName": "PreToolUse",
    "permissionDecision": "deny",
    "permissionDecisionReason": "Not on Fridays.",
}
KNOWN = """
keys = {"hook_event_name", "session_id", "cwd", "tool_name", "tool_input", "tool_use_id"}
assert keys <= data.keys()
assert (data["tool_name"], data["tool_input"]) == ("bash", {"command": "git push"})
"""


class TestHooks(test_loop.TestLoop):
    agent_class = type("Quiet", (Hooks,), {"hooks": [Hook("PreToolUse", lambda data: None)]})
    largest_fork = 1200  # its list of hooks included

    @pytest.mark.parametrize("gate", GATES)
    async def test_a_gate_before_a_tool_that_fails_in_any_way_denies(self, gate):
        agent, ran = acting(bash("x"), "ok", hooks=[gate])
        async with asyncio.timeout(20):
            assert (await agent.run("go")).stop_reason == "completed"
        assert ran == []
        assert results(agent)[0].startswith(("Denied", "arguments must be"))

    @pytest.mark.parametrize("broken", [raises, EXITS_1, EXITS_2, lambda data: {"decision": "?"}])
    async def test_a_prompt_that_a_gate_refuses_reaches_no_model_now_or_later(self, broken):
        agent, _ = acting("Hello.", "Yes.")
        await agent.query("Hi")
        agent.hooks = [Hook("UserPromptSubmit", broken)]
        for _ in range(2):
            assert (await agent.run("My key is k.")).stop_reason == "refused"
        with pytest.raises(ValueError, match="nothing to continue"):
            await agent.run()
        agent.hooks = []
        assert await agent.query("Hi again") == "Yes."
        assert shown(agent.llm.requests[-1]) == ["Hi", "Hello.", "Hi again"]

    async def test_nobody_can_be_asked_about_a_prompt_so_an_ask_refuses_it(self):
        agent, _ = acting("never said", hooks=[says("UserPromptSubmit", decision="ask")])
        assert (await agent.run("My key is k.")).stop_reason == "refused"
        assert agent.llm.requests == []

    @pytest.mark.parametrize("event", ["SessionStart", "PostToolUse", "PostModel", "Stop"])
    @pytest.mark.parametrize("broken", [raises, EXITS_1, SAYS_FINE])
    async def test_an_observer_that_fails_is_told_and_stops_nothing(self, event, broken, caplog):
        run = EXITS_1 if event == "SessionStart" and broken is SAYS_FINE else broken  # as context
        agent, ran = acting(bash("x"), "ok", hooks=[Hook(event, run)])
        assert await agent.query("go") == "ok"
        assert ran == ["x"]
        assert len(agent.llm.requests[-1].messages) == 3  # the model is told nothing of it
        assert f"a hook at {event} failed" in caplog.text

    @pytest.mark.parametrize(
        ("said", "stop_reason", "ran"),
        [
            ({"decision": "allow"}, "completed", ["x"]),
            ({"decision": "ask"}, "needs_approval", []),
            ({"decision": "deny"}, "completed", []),
            ({}, "needs_approval", []),
        ],
    )
    async def test_with_approval_a_hook_counts_as_a_rule(self, said, stop_reason, ran):
        for rules, reason, expected in [([], stop_reason, ran), ([Rule("deny")], "completed", [])]:
            settings = {"hooks": [says("PreToolUse", **said)], "approval_rules": rules}
            agent, done = acting(bash("x"), "ok", kind=Gated, **settings)
            assert (await agent.run("go")).stop_reason == reason
            assert done == expected

    @pytest.mark.parametrize("bases", [(Hooks, Approval, Agent), (Approval, Hooks, Agent)])
    async def test_what_runs_is_what_was_asked_for_also_where_a_hook_changes_it(self, bases):
        hooks = [says("PreToolUse", updatedInput={"command": "ls -l"})]
        agent, ran = acting(bash("ls"), "ok", kind=type("Both", bases, {}), hooks=hooks)
        [pending] = (await agent.run("go")).pending
        agent.decide(pending.id, "allow")
        await agent.run()
        assert pending.parsed == {"command": "ls -l"}
        assert ran == ["ls -l"]

    async def test_a_command_gets_and_prints_what_people_know(self):
        for code in (
            f"print(json.dumps({ {'hookSpecificOutput': DENY} }))",
            "print(json.dumps({'decision': 'block', 'reason': 'Not on Fridays.'}))",
            "sys.stderr.write('Not on Fridays.'); sys.exit(2)",
        ):
            hook = Hook("PreToolUse", program(KNOWN + code), "write|bash")
            agent, ran = acting(bash("git push"), "ok", hooks=[hook])
            await agent.run("go")
            assert shown(agent.llm.requests[1])[-1].endswith("did not run. Not on Fridays.")
            [state] = agent.conversation.states.values()
            assert (state.state, ran) == ("denied", [])

    async def test_hooks_run_in_order_and_each_sees_the_arguments_of_the_one_before(self):
        def longer(data):
            return {"updatedInput": {"command": data["tool_input"]["command"] + "!"}}

        agent, ran = acting(bash("x"), "ok", hooks=[Hook("PreToolUse", longer)] * 2)
        await agent.run("go")
        assert ran == ["x!!"]
        assert [each.arguments for each in agent.messages[1].tool_calls] == ['{"command":"x"}']

    async def test_a_matcher_is_a_name_a_list_of_names_or_a_pattern(self):
        matchers = [
            "bash",
            "write|bash",
            "write, bash",
            "^ba",
            "sh$",
            "",
            "*",
            "BASH",
            "ba",
            "write",
        ]
        seen = []
        hooks = [Hook("PostToolUse", lambda data, m=m: seen.append(m), m) for m in matchers]
        agent, _ = acting(bash("x"), "ok", hooks=hooks)
        await agent.run("go")
        assert seen == matchers[:7]

    async def test_a_matcher_of_another_event_is_about_why_it_came(self):
        matchers = ["startup", "resume|startup", "resume", "compact", ""]
        seen = []
        hooks = [Hook("SessionStart", lambda data, m=m: seen.append(m), m) for m in matchers]
        agent, _ = acting("ok", hooks=hooks)
        await agent.run("go")
        assert seen == ["startup", "resume|startup", ""]

    async def test_each_event_comes_at_its_moment(self):
        events = []
        names = "SessionStart UserPromptSubmit PreModel PostModel PreToolUse PostToolUse Stop"
        hooks = [
            Hook(name, lambda data: events.append(data["hook_event_name"]))
            for name in [*names.split(), "PostToolUseFailure", "SessionEnd"]
        ]
        agent, _ = acting(bash("x"), bash("fail"), "ok", "bye", hooks=hooks)
        await agent.query("go")
        model = ["PreModel", "PostModel"]
        assert events == [
            *("SessionStart", "UserPromptSubmit", *model, "PreToolUse", "PostToolUse"),
            *(*model, "PreToolUse", "PostToolUseFailure", *model, "Stop"),
        ]
        events.clear()
        await agent.query("again")
        await agent.fire_hooks("SessionEnd", {})
        assert events == ["UserPromptSubmit", *model, "Stop", "SessionEnd"]

    async def test_a_summary_is_told_of(self):
        seen = []
        hooks = [Hook("PostCompact", lambda data: seen.append(data["compact_summary"]))]
        llm = summarizing(*["word " * 900] * 3)
        agent = Hooked(llm=llm, hooks=hooks, compaction=CompactionConfig(context_window=1000))
        for prompt in ("one", "two", "three"):
            await agent.query(prompt)
        assert seen == ["SUMMARY"]

    async def test_context_reaches_the_model_at_the_next_request(self):
        hooks = [
            Hook("SessionStart", program("print('It is Friday.')")),
            says("UserPromptSubmit", additionalContext="In Basel."),
            says("PostToolUse", decision="block", reason="Format it."),
        ]
        agent, _ = acting(bash("x"), "ok", hooks=hooks)
        await agent.query("go")
        assert shown(agent.llm.requests[0]) == ["go", "It is Friday.", "In Basel."]
        assert shown(agent.llm.requests[1])[-2:] == ["ran x", "Format it."]

    @pytest.mark.parametrize("seen", [json.dumps, lambda data: data["tool_input"]["command"]])
    async def test_a_gate_sees_arguments_that_are_encoded_twice(self, seen):
        hidden = ToolCall("1", "bash", '"{\\"command\\": \\"git push\\"}"')
        gate = Hook("PreToolUse", lambda data: {"decision": "deny"} if "push" in seen(data) else {})
        agent, ran = acting([hidden], "ok", hooks=[gate])
        await agent.run("go")
        assert ran == []

    async def test_what_hooks_said_and_why_one_failed_are_entries_of_the_monitor(self):
        hooks = [says("PreToolUse", decision="deny", reason="No."), Hook("PostModel", raises)]
        kind = type("Both", (Hooks, load("channels").Channels, Agent), {})
        agent, _ = acting(bash("x"), "ok", kind=kind, hooks=hooks)
        monitor = agent.follow("HookVerdict")
        await agent.run("go")
        monitor.close()
        told = [entry.item async for entry in monitor]
        assert [each.event for each in told[1:]] == ["PostModel", "PreToolUse", "PostModel"]
        assert (told[2].verdict, told[2].reason) == ("deny", "No.")
        assert told[1].verdict == "broken"

    async def test_a_prompt_whose_check_was_cut_off_is_checked_again(self):
        agent, _ = acting("never said")
        await cut_off_in(agent, "UserPromptSubmit")
        agent.hooks = [says("UserPromptSubmit", decision="deny")]
        assert (await agent.run()).stop_reason == "refused"

    async def test_a_hook_at_the_end_lets_the_run_go_on_but_not_for_ever(self):
        active = []

        def not_yet(data):
            active.append(data["stop_hook_active"])
            return {"decision": "block", "reason": "The tests are red."}

        agent, _ = acting(*["done"] * 9, hooks=[Hook("Stop", not_yet)])
        assert (await agent.run("go")).stop_reason == "no_progress"
        assert active == [False, True, True, True]
        told = [m.text for m in agent.messages if isinstance(m, UserMessage) and m.hidden]
        assert told == ["The tests are red."] * 3

    async def test_a_result_is_recorded_before_a_hook_hears_of_it(self):
        agent, ran = acting(bash("x"))
        await cut_off_in(agent, "PostToolUse")
        assert (results(agent), ran) == (["ran x"], ["x"])


async def test_a_hook_gets_the_name_of_the_session_or_none(tmp_path):
    class Kept(Hooks, Session, Agent): ...

    names = []
    hooks = [Hook("UserPromptSubmit", lambda data: names.append(data["session_id"]))]
    for session in (None, "monday"):
        llm = ScriptedModel("ok")
        with Kept(llm=llm, hooks=hooks, session=session, session_dir=tmp_path) as agent:
            await agent.query("go")
    assert names == [None, "monday"]


# ---- a refused prompt stays hidden


class Steered(Hooks, MessageQueue, Agent): ...


def no_secrets(data):
    return {"decision": "deny"} if "SECRET" in data["prompt"] else None


@pytest.mark.parametrize("seed", range(50))
async def test_no_model_and_no_recall_receives_a_refused_prompt(seed):
    chance = random.Random(seed)
    received = []

    def reply(messages, tools):
        received.extend(message.text for message in messages)
        if chance.random() < 0.3:
            agent.send(chance.choice(["fine", "SECRET sent"]))
        if chance.random() < 0.3 and not isinstance(messages[-1], ToolMessage):
            return call("recall", words="SECRET prompt fine user")
        return "ok"

    def new_agent(**settings):
        hooks = [Hook("UserPromptSubmit", no_secrets)]
        return Steered(llm=ScriptedModel(reply), tools=[recall], hooks=hooks, **settings)

    agent = new_agent()
    for number in range(12):
        step = chance.choice(["run", "run", "run", "kill", "fork", "clear", "delete", "compact"])
        if step == "run":
            text = chance.choice(["fine", "SECRET prompt", "another prompt"])
            await agent.run(f"{text} {number}")
        elif step == "kill":  # after any record, and reopened
            log = agent.log[: chance.randint(0, len(agent.log))]
            agent = new_agent()
            agent.log.replace(log)
        elif step == "fork":
            agent = agent.fork(chance.randint(0, len(agent.log)))
        elif step == "clear":
            agent.load_history(agent.messages)
        elif step == "delete" and len(agent.log):
            deleted = chance.choice(agent.log)
            if not isinstance(deleted, Withheld):  # which is what hides the prompt
                agent.log.replace(record for record in agent.log if record is not deleted)
        elif agent.messages:
            with suppress(Stop):  # the newest prompt is refused
                await agent.compact()
    assert received
    assert not [text for text in received if "SECRET" in text]
