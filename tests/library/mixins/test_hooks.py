"""Hooks: functions and commands control the agent, and a failing hook denies."""

import asyncio
import json
import random
import runpy
import sys
from contextlib import suppress
from functools import partial

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
from agentloop.mixins.approval import Approval, Rule
from agentloop.mixins.hooks import Hook, Hooks
from agentloop.models.scripted import call
from agentloop.toolkits.recall import recall
from tests import ROOT
from tests import helpers as mixins
from tests.core import test_loop
from tests.core.test_loop import shown
from tests.helpers import bash, late, raises, record_all, results, summarizing
from tests.recipes import load

recipe = ROOT / "examples" / "recipes" / "claude_code_hooks.py"
command = runpy.run_path(str(recipe))["command"]


class Hooked(Hooks, Agent): ...


class Gated(Hooks, Approval, Agent): ...


def program(code):
    """Return a hook function that runs Python code with the parsed hook input."""
    script = f"import json, sys; data = json.load(sys.stdin)\n{code}"
    return command([sys.executable, "-c", script], timeout=20)


def returns(event, **output):
    return Hook(event, lambda data: output)


async def cancel_during(agent, event):
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
INVALID_OUTPUTS = [
    *(False, "allow", ["allow"], {"decision": "sure"}, {"updatedInput": "ls"}, {"reason": 5}),
    *({"updatedInput": {1, 2}}, {"additionalContext": 5}, {"permissionDecision": "allow"}),
]
PRINTS_ASK = program("""print('{"decision": "ask"}')""")  # nobody can decide an approval request
KILLED = program("import os; os.kill(os.getpid(), 9)")
SLEEPS = program("import time; time.sleep(30)")
EXITS_1, EXITS_2, PRINTS_TEXT = map(program, ("sys.exit(1)", "sys.exit(2)", "print('fine')"))
BROKEN = [
    *(lambda data, output=output: output for output in INVALID_OUTPUTS),
    *(raises, command(["./no-such-command"]), program("print('[]')")),
    *(PRINTS_ASK, KILLED, EXITS_1, EXITS_2, PRINTS_TEXT),
]
GATES = [Hook("PreToolUse", run) for run in BROKEN]
GATES += [Hook("PreToolUse", run, timeout=0.3) for run in (late, SLEEPS)]
GATES += [Hook("PreToolUse", lambda data: None, "(")]
DENY = {
    "hookEventName": "PreToolUse",
    "permissionDecision": "deny",
    "permissionDecisionReason": "Not on Fridays.",
}
CHECKS_INPUT = """
keys = {"hook_event_name", "session_id", "cwd", "tool_name", "tool_input", "tool_use_id"}
assert keys <= data.keys()
assert (data["tool_name"], data["tool_input"]) == ("bash", {"command": "git push"})
"""


class TestHooks(test_loop.TestLoop):
    agent_class = type("Quiet", (Hooks,), {"hooks": [Hook("PreToolUse", lambda data: None)]})
    largest_fork = 1200  # includes the list of hooks

    @pytest.mark.parametrize("gate", GATES)
    async def test_a_pre_tool_hook_that_fails_in_any_way_denies_the_call(self, gate):
        agent, ran = acting(bash("x"), "ok", hooks=[gate])
        async with asyncio.timeout(20):
            assert (await agent.run("go")).stop_reason == "completed"
        assert ran == []
        assert results(agent)[0].startswith(("Denied", "arguments must be"))

    @pytest.mark.parametrize("broken", [raises, EXITS_1, EXITS_2, lambda data: {"decision": "?"}])
    async def test_a_prompt_refused_by_a_hook_never_reaches_the_model(self, broken):
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

    async def test_an_ask_verdict_for_a_prompt_refuses_the_prompt(self):
        agent, _ = acting("unused reply", hooks=[returns("UserPromptSubmit", decision="ask")])
        assert (await agent.run("My key is k.")).stop_reason == "refused"
        assert agent.llm.requests == []

    @pytest.mark.parametrize("event", ["SessionStart", "PostToolUse", "PostModel", "Stop"])
    @pytest.mark.parametrize("broken", [raises, EXITS_1, PRINTS_TEXT])
    async def test_a_failed_observer_hook_is_logged_and_does_not_stop_the_run(
        self, event, broken, caplog
    ):
        run = (
            EXITS_1 if event == "SessionStart" and broken is PRINTS_TEXT else broken
        )  # plain text is additional context
        agent, ran = acting(bash("x"), "ok", hooks=[Hook(event, run)])
        assert await agent.query("go") == "ok"
        assert ran == ["x"]
        assert len(agent.llm.requests[-1].messages) == 3  # the failure is not sent to the model
        assert f"a hook at {event} failed" in caplog.text

    @pytest.mark.parametrize(
        ("output", "stop_reason", "ran"),
        [
            ({"decision": "allow"}, "completed", ["x"]),
            ({"decision": "ask"}, "needs_approval", []),
            ({"decision": "deny"}, "completed", []),
            ({}, "needs_approval", []),
        ],
    )
    async def test_with_approval_a_hook_counts_as_a_rule(self, output, stop_reason, ran):
        for rules, reason, expected in [([], stop_reason, ran), ([Rule("deny")], "completed", [])]:
            settings = {"hooks": [returns("PreToolUse", **output)], "approval_rules": rules}
            agent, done = acting(bash("x"), "ok", kind=Gated, **settings)
            assert (await agent.run("go")).stop_reason == reason
            assert done == expected

    @pytest.mark.parametrize("bases", [(Hooks, Approval, Agent), (Approval, Hooks, Agent)])
    async def test_the_approved_arguments_run_even_if_a_hook_changes_them(self, bases):
        hooks = [returns("PreToolUse", updatedInput={"command": "ls -l"})]
        agent, ran = acting(bash("ls"), "ok", kind=type("Both", bases, {}), hooks=hooks)
        [pending] = (await agent.run("go")).pending
        agent.decide(pending.id, "allow")
        await agent.run()
        assert pending.parsed == {"command": "ls -l"}
        assert ran == ["ls -l"]

    async def test_a_command_uses_the_input_and_output_format_of_claude_code(self):
        for code in (
            f"print(json.dumps({ {'hookSpecificOutput': DENY} }))",
            "print(json.dumps({'decision': 'block', 'reason': 'Not on Fridays.'}))",
            "sys.stderr.write('Not on Fridays.'); sys.exit(2)",
        ):
            hook = Hook("PreToolUse", program(CHECKS_INPUT + code), "write|bash")
            agent, ran = acting(bash("git push"), "ok", hooks=[hook])
            await agent.run("go")
            assert shown(agent.llm.requests[1])[-1].endswith("did not run. Not on Fridays.")
            [state] = agent.conversation.states.values()
            assert (state.status, ran) == ("denied", [])

    async def test_hooks_run_in_order_with_the_arguments_of_the_previous_hook(self):
        def longer(data):
            return {"updatedInput": {"command": data["tool_input"]["command"] + "!"}}

        agent, ran = acting(bash("x"), "ok", hooks=[Hook("PreToolUse", longer)] * 2)
        await agent.run("go")
        assert ran == ["x!!"]
        assert [tool_call.arguments for tool_call in agent.messages[1].tool_calls] == [
            '{"command":"x"}'
        ]

    async def test_a_hook_judges_a_call_once_in_whatever_order_its_arguments_are(self):
        seen = []
        hooks = [Hook("PreToolUse", lambda data: seen.append(data["tool_input"]))]
        reply = ToolCall("1", "write", '{"text": "x", "path": "y"}')
        agent, _ = acting([reply], "ok", hooks=hooks)
        await agent.run("go")
        assert seen == [{"path": "y", "text": "x"}]

    async def test_a_hook_that_reorders_the_arguments_has_not_changed_them(self):
        seen = []
        hooks = [
            Hook("PreToolUse", lambda data: seen.append(data["tool_input"])),
            returns("PreToolUse", updatedInput={"text": "x", "path": "y"}),
        ]
        agent, _ = acting([ToolCall("1", "write", '{"path": "y", "text": "x"}')], "ok", hooks=hooks)
        await agent.run("go")
        assert len(seen) == 1

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

    async def test_a_matcher_of_a_session_start_hook_matches_the_source(self):
        matchers = ["startup", "resume|startup", "resume", "compact", ""]
        seen = []
        hooks = [Hook("SessionStart", lambda data, m=m: seen.append(m), m) for m in matchers]
        agent, _ = acting("ok", hooks=hooks)
        await agent.run("go")
        assert seen == ["startup", "resume|startup", ""]

    async def test_events_occur_in_their_documented_order(self):
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

    async def test_a_post_compact_hook_receives_the_summary(self):
        seen = []
        hooks = [Hook("PostCompact", lambda data: seen.append(data["compact_summary"]))]
        llm = summarizing(*["word " * 900] * 3)
        agent = Hooked(llm=llm, hooks=hooks, compaction=CompactionConfig(context_window=1000))
        for prompt in ("one", "two", "three"):
            await agent.query(prompt)
        assert seen == ["SUMMARY"]

    async def test_additional_context_is_part_of_the_next_request(self):
        hooks = [
            Hook("SessionStart", program("print('It is Friday.')")),
            returns("UserPromptSubmit", additionalContext="In Basel."),
            returns("PostToolUse", decision="block", reason="Format it."),
        ]
        agent, _ = acting(bash("x"), "ok", hooks=hooks)
        await agent.query("go")
        assert shown(agent.llm.requests[0]) == ["go", "It is Friday.", "In Basel."]
        assert shown(agent.llm.requests[1])[-2:] == ["ran x", "Format it."]

    @pytest.mark.parametrize("seen", [json.dumps, lambda data: data["tool_input"]["command"]])
    async def test_a_hook_receives_decoded_arguments_of_a_call_that_is_encoded_twice(self, seen):
        hidden = ToolCall("1", "bash", '"{\\"command\\": \\"git push\\"}"')
        gate = Hook("PreToolUse", lambda data: {"decision": "deny"} if "push" in seen(data) else {})
        agent, ran = acting([hidden], "ok", hooks=[gate])
        await agent.run("go")
        assert ran == []

    async def test_verdicts_and_failures_of_hooks_are_entries_of_the_monitor(self):
        hooks = [returns("PreToolUse", decision="deny", reason="No."), Hook("PostModel", raises)]
        kind = type("Both", (Hooks, load("channels").Channels, Agent), {})
        agent, _ = acting(bash("x"), "ok", kind=kind, hooks=hooks)
        monitor = agent.follow("HookVerdict")
        await agent.run("go")
        monitor.close()
        verdicts = [entry.item async for entry in monitor]
        assert [verdict.event for verdict in verdicts[1:]] == [
            "PostModel",
            "PreToolUse",
            "PostModel",
        ]
        assert (verdicts[2].verdict, verdicts[2].reason) == ("deny", "No.")
        assert verdicts[1].verdict == "broken"

    async def test_a_prompt_is_checked_again_after_a_cancelled_check(self):
        agent, _ = acting("unused reply")
        await cancel_during(agent, "UserPromptSubmit")
        agent.hooks = [returns("UserPromptSubmit", decision="deny")]
        assert (await agent.run()).stop_reason == "refused"

    async def test_a_stop_hook_can_continue_the_run_a_limited_number_of_times(self):
        active = []

        def not_yet(data):
            active.append(data["stop_hook_active"])
            reason = {"reason": "The tests are red."} if len(active) < 3 else {}
            return {"decision": "block"} | reason

        agent, _ = acting(*["done"] * 9, hooks=[Hook("Stop", not_yet)])
        assert (await agent.run("go")).stop_reason == "no_progress"
        assert active == [False, True, True, True]
        notes = [m.text for m in agent.messages if isinstance(m, UserMessage) and m.hidden]
        assert notes == ["The tests are red.", "The tests are red.", "Continue."]

    async def test_a_result_is_recorded_before_a_hook_receives_it(self):
        agent, ran = acting(bash("x"))
        await cancel_during(agent, "PostToolUse")
        assert (results(agent), ran) == (["ran x"], ["x"])


async def test_a_hook_receives_the_session_name_or_none(tmp_path):
    class SavedHooked(Hooks, Session, Agent): ...

    names = []
    hooks = [Hook("UserPromptSubmit", lambda data: names.append(data["session_id"]))]
    for session in (None, "monday"):
        llm = ScriptedModel("ok")
        with SavedHooked(llm=llm, hooks=hooks, session=session, session_dir=tmp_path) as agent:
            await agent.query("go")
    assert names == [None, "monday"]


# ---- refused prompts are never sent


class Steered(Hooks, MessageQueue, Agent): ...


def no_secrets(data):
    return {"decision": "deny"} if "SECRET" in data["prompt"] else None


async def test_a_message_after_a_refused_one_reaches_the_model():
    hooks = [Hook("UserPromptSubmit", no_secrets)]
    agent = Steered(llm=ScriptedModel("ok"), hooks=hooks)
    agent.load_history([UserMessage("SECRET loaded"), UserMessage("fine")])
    assert await agent.query("go") == "ok"
    assert shown(agent.llm.requests[0]) == ["fine", "go"]


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
        step = chance.choice(["run", "run", "run", "kill", "fork", "clear", "compact"])
        if step == "run":
            text = chance.choice(["fine", "SECRET prompt", "another prompt"])
            await agent.run(f"{text} {number}")
        elif step == "kill":  # at any record, then reopened
            log = agent.log[: chance.randint(0, len(agent.log))]
            agent = new_agent()
            record_all(agent, log)
        elif step == "fork":
            agent = agent.fork(chance.randint(0, len(agent.log)))
        elif step == "clear":
            agent.load_history(agent.messages)
        elif agent.messages:
            with suppress(Stop):  # the newest prompt was refused
                await agent.compact()
    assert not [text for text in received if "SECRET" in text]
