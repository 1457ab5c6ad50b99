"""Hooks: functions and commands have a say in what an agent does, and a broken gate is shut."""

import asyncio
import hashlib
import json
import sys
import time

import pytest

from agentloop import (
    Agent,
    Compaction,
    CompactionConfig,
    Loop,
    ScriptedModel,
    ToolCall,
    ToolMessage,
    UserMessage,
    tool,
    validate,
)
from agentloop.mixins.approval import Approval, Rule
from agentloop.mixins.channels import Channels
from agentloop.mixins.hooks import Hook, Hooks, load_hooks
from agentloop.models.scripted import call

from .. import test_loop
from ..test_loop import shown


class Hooked(Hooks, Agent):
    """The plain case."""


class TestHooks(test_loop.TestLoop):
    agent_class = type("Quiet", (Hooks,), {"hooks": [Hook("PreToolUse", lambda data: None)]})


def acting(*script, hooks=(), kind=Hooked, **settings):
    """An agent with a tool, and what has run."""
    ran = []

    @tool
    def bash(command: str) -> str:
        """Run a command."""
        if command == "fail":
            raise LookupError(command)
        ran.append(command)
        return f"ran {command}"

    return kind(llm=ScriptedModel(*script), tools=[bash], hooks=[*hooks], **settings), ran


def bash(command):
    return call("bash", command=command)


def program(code):
    """A command that has read its data."""
    return [sys.executable, "-c", f"import json, sys; data = json.load(sys.stdin); {code}"]


def prints(**said):
    return program(f"print({json.dumps(said)!r})")


def results(agent):
    return [m.text for m in agent.messages if isinstance(m, ToolMessage)]


# ---- a gate that fails denies


def raises(data):
    raise RuntimeError("broken")


async def late(data):
    await asyncio.Event().wait()


BROKEN = {
    "raises": raises,
    "late": late,
    "no": lambda data: False,
    "text": lambda data: "allow",
    "word": lambda data: {"decision": "sure"},
    "defer": lambda data: {"hookSpecificOutput": {"permissionDecision": "defer"}},
    "stop": lambda data: {"continue": False},
    "list": lambda data: ["allow"],
    "arguments": lambda data: {"updatedInput": "ls"},
    "no JSON in arguments": lambda data: {"updatedInput": {1, 2}},
    "context": lambda data: {"additionalContext": 5},
    "output": lambda data: {"hookSpecificOutput": "allow"},
    "not there": ["./no-such-command"],
    "exit 1": program("sys.exit(1)"),
    "exit 2": program("sys.exit(2)"),
    "no JSON": program("print('fine')"),
    "half": program("print('{')"),
    "a list": program("print('[]')"),
    "killed": program("import os, signal; os.kill(os.getpid(), 9)"),
    "never ends": program("import time; time.sleep(30)"),
}


@pytest.mark.parametrize("broken", BROKEN)
async def test_a_gate_before_a_tool_that_fails_in_any_way_denies(broken):
    timeout = 0.3 if broken in ("late", "never ends") else 10.0
    hooks = [Hook("PreToolUse", BROKEN[broken], timeout=timeout)]
    agent, ran = acting(bash("x"), "ok", hooks=hooks)
    start = time.monotonic()
    assert (await agent.run("go")).stop_reason == "completed"
    assert time.monotonic() - start < 20
    assert ran == []
    assert results(agent)[0].startswith(("Denied", "arguments must be"))
    validate(agent.messages)


@pytest.mark.parametrize("broken", ["raises", "exit 1"])
async def test_a_gate_before_a_prompt_that_fails_denies(broken):
    agent, _ = acting("never said", hooks=[Hook("UserPromptSubmit", BROKEN[broken])])
    assert (await agent.run("go")).stop_reason == "refused"
    assert agent.llm.requests == []


@pytest.mark.parametrize("event", ["SessionStart", "PostToolUse", "PostModel", "Stop"])
@pytest.mark.parametrize("broken", ["raises", "exit 1", "no JSON"])
async def test_an_observer_that_fails_is_reported_and_stops_nothing(event, broken, caplog):
    run = program("sys.exit(3)") if event == "SessionStart" else BROKEN[broken]
    agent, ran = acting(bash("x"), "ok", hooks=[Hook(event, run)])
    assert await agent.query("go") == "ok"
    assert ran == ["x"]
    assert len(agent.llm.requests[-1].messages) == 3  # the model is told nothing of it
    assert f"a hook at {event} failed" in caplog.text


async def test_an_ask_without_anybody_to_ask_is_a_no():
    agent, ran = acting(bash("x"), "ok", hooks=[Hook("PreToolUse", prints(decision="ask"))])
    await agent.run("go")
    assert ran == []


# ---- what a hook before a tool may say


@pytest.mark.parametrize(
    ("said", "stop_reason", "ran"),
    [
        ({"decision": "allow"}, "completed", ["x"]),
        ({"decision": "approve"}, "completed", ["x"]),
        ({"hookSpecificOutput": {"permissionDecision": "allow"}}, "completed", ["x"]),
        ({"decision": "ask"}, "needs_approval", []),
        ({"decision": "deny"}, "completed", []),
        ({}, "needs_approval", []),
    ],
)
async def test_with_approval_a_hook_counts_as_a_rule(said, stop_reason, ran):
    kind = type("Both", (Hooks, Approval, Agent), {})
    agent, done = acting(bash("x"), "ok", kind=kind, hooks=[Hook("PreToolUse", lambda data: said)])
    assert (await agent.run("go")).stop_reason == stop_reason
    assert done == ran
    strict, done = acting(
        bash("x"),
        "ok",
        kind=kind,
        hooks=[Hook("PreToolUse", lambda data: said)],
        approval_rules=[Rule("deny")],
    )
    await strict.run("go")
    assert done == []


@pytest.mark.parametrize("bases", [(Hooks, Approval, Agent), (Approval, Hooks, Agent)])
async def test_what_a_hook_puts_in_is_what_somebody_is_asked_for_in_any_order(bases):
    asked = []

    def answer(call, reason):
        asked.append(call.parsed["command"])
        return True

    agent, ran = acting(
        bash("ls"),
        "ok",
        kind=type("Both", bases, {}),
        hooks=[Hook("PreToolUse", lambda data: {"updatedInput": {"command": "ls -l"}})],
        approval_callback=answer,
    )
    await agent.run("go")
    assert set(ran) <= set(asked)


async def test_a_command_gets_and_prints_what_people_know():
    deny = {
        "hookSpecificOutput": {
            "hookEventName": "PreToolUse",
            "permissionDecision": "deny",
            "permissionDecisionReason": "Not on Fridays.",
        }
    }
    code = f"""
keys = {{"hook_event_name", "session_id", "cwd", "tool_name", "tool_input", "tool_use_id"}}
assert keys <= data.keys()
assert (data["tool_name"], data["tool_input"]) == ("bash", {{"command": "git push"}})
print({json.dumps(deny)!r})"""
    run = [sys.executable, "-c", f"import json, sys; data = json.load(sys.stdin){code}"]
    agent, ran = acting(bash("git push"), "ok", hooks=[Hook("PreToolUse", run, "Write|B*")])
    await agent.run("go")
    assert shown(agent.llm.requests[1])[-1].endswith("did not run. Not on Fridays.")
    assert ran == []


async def test_exit_code_2_denies_with_what_the_command_says():
    run = f'"{sys.executable}" -c "import sys; sys.exit(\'Never.\' and 2)"'
    if sys.platform != "win32":
        run = "echo Never. >&2; exit 2"
    agent, ran = acting(bash("x"), "ok", hooks=[Hook("PreToolUse", run)])
    await agent.run("go")
    assert ran == []
    assert results(agent)[0].startswith("Denied")


async def test_hooks_run_in_order_and_each_sees_the_arguments_that_the_one_before_put_in():
    seen = []

    def longer(data):
        seen.append(data["tool_input"]["command"])
        return {"updatedInput": {"command": data["tool_input"]["command"] + "!"}}

    agent, ran = acting(bash("x"), "ok", hooks=[Hook("PreToolUse", longer)] * 2)
    await agent.run("go")
    assert (seen, ran) == (["x", "x!"], ["x!!"])
    assert [c.arguments for m in agent.messages[1:2] for c in m.tool_calls] == ['{"command":"x"}']


@pytest.mark.parametrize(
    ("matcher", "runs"),
    [("", 1), ("*", 1), ("Bash", 1), ("write|bash", 1), ("b.*", 1), ("write", 0), ("bas", 0)],
)
async def test_a_matcher_is_globs_on_the_name_of_the_tool(matcher, runs):
    seen = []
    agent, _ = acting(bash("x"), "ok", hooks=[Hook("PostToolUse", seen.append, matcher)])
    await agent.run("go")
    assert len(seen) == runs


# ---- the other events


async def test_each_event_comes_at_its_moment():
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


@pytest.mark.parametrize("bases", [(Hooks, Compaction, Loop), (Compaction, Hooks, Loop)])
async def test_a_summary_is_told_of(bases):
    seen = []
    hooks = [Hook("PostCompact", lambda data: seen.append(data["compact_summary"]))]
    config = CompactionConfig(context_window=1000)
    llm = ScriptedModel(
        lambda m, t: "SUM" if len(m) > 1 and "ummar" in m[-1].text else "word " * 900
    )
    agent = type("Both", bases, {})(llm=llm, hooks=hooks, compaction=config)
    for prompt in ("one", "two", "three"):
        await agent.query(prompt)
    assert seen == ["SUM"]


async def test_context_reaches_the_model_at_the_next_request():
    hooks = [
        Hook("SessionStart", [sys.executable, "-c", "print('It is Friday.')"]),
        Hook("UserPromptSubmit", lambda data: {"additionalContext": "In Basel."}),
        Hook("PostToolUse", lambda data: {"decision": "block", "reason": "Format it."}),
    ]
    agent, _ = acting(bash("x"), "ok", hooks=hooks)
    await agent.query("go")
    assert shown(agent.llm.requests[0]) == ["go", "It is Friday.", "In Basel."]
    assert shown(agent.llm.requests[1])[-2:] == ["ran x", "Format it."]
    validate(agent.messages)


async def test_a_refused_prompt_reaches_no_model_ever():
    def no_secrets(data):
        return {"decision": "block", "reason": "No."} if "key" in data["prompt"] else None

    agent, _ = acting("Hello.", "Yes.", hooks=[Hook("UserPromptSubmit", no_secrets)])
    await agent.query("Hi")
    result = await agent.run("My key is k.")
    assert (result.stop_reason, result.text) == ("refused", "No.")
    assert await agent.query("Hi again") == "Yes."
    assert all("key" not in text for request in agent.llm.requests for text in shown(request))


async def test_a_refused_prompt_stays_refused_when_it_is_asked_again():
    agent, _ = acting("Fine.", hooks=[Hook("UserPromptSubmit", lambda d: {"decision": "deny"})])
    for prompt in ("go", "go", None):
        assert (await agent.run(prompt)).stop_reason == "refused"
    agent.hooks = []
    assert (await agent.run("Go.")).text == "Fine."
    assert shown(agent.llm.requests[0]) == ["Go."]


async def test_a_gate_sees_arguments_that_are_encoded_twice():
    hidden = ToolCall("1", "bash", '"{\\"command\\": \\"git push\\"}"')
    for gate in (
        lambda data: {"decision": "deny"} if "push" in json.dumps(data) else None,
        lambda data: {"decision": "deny"} if "push" in data["tool_input"]["command"] else None,
    ):
        agent, ran = acting([hidden], "ok", hooks=[Hook("PreToolUse", gate)])
        await agent.run("go")
        assert ran == []


async def test_verdicts_and_failures_are_entries_of_the_monitor():
    kind = type("Both", (Hooks, Channels, Agent), {})
    hooks = [
        Hook("PreToolUse", lambda data: {"decision": "deny", "reason": "No."}),
        Hook("PostModel", raises),
        Hook("PreModel", lambda data: None),
    ]
    agent, _ = acting(bash("x"), "ok", kind=kind, hooks=hooks)
    monitor = agent.subscribe("monitor", kinds=["hook"])
    await agent.run("go")
    monitor.close()
    told = [entry.item.data async for entry in monitor]
    assert [(each["event"], each["said"][0]) for each in told] == [
        ("PostModel", ""),
        ("PreToolUse", "deny"),
        ("PostModel", ""),
    ]
    assert "broken" in told[0]["said"][1]


async def test_a_prompt_whose_check_was_cut_off_is_checked_again():
    slow = asyncio.Event()

    async def check(data):
        if not slow.is_set():
            slow.set()
            await asyncio.Event().wait()
        return {"decision": "deny"}

    agent, _ = acting("never said", hooks=[Hook("UserPromptSubmit", check)])
    task = asyncio.ensure_future(agent.run("go"))
    await slow.wait()
    task.cancel()
    await asyncio.wait([task])
    assert (await agent.run()).stop_reason == "refused"


async def test_a_hook_at_the_end_lets_the_run_go_on_but_not_for_ever():
    active = []

    def not_yet(data):
        active.append(data["stop_hook_active"])
        return {"decision": "block", "reason": "The tests are red."}

    agent, _ = acting(*["done"] * 9, hooks=[Hook("Stop", not_yet)])
    assert (await agent.run("go")).stop_reason == "no_progress"
    assert active == [False, True, True, True]
    told = [m.text for m in agent.messages if isinstance(m, UserMessage) and m.hidden]
    assert told == ["The tests are red."] * 3


# ---- settings

GOOD = {"type": "command", "command": "true"}


def settings(**events):
    return json.dumps({"permissions": {}, "hooks": events})


def test_a_settings_file_gives_hooks(tmp_path):
    path = tmp_path / "settings.json"
    group = {"matcher": "Write|mcp__.*", "hooks": [GOOD | {"timeout": 3, "statusMessage": "..."}]}
    path.write_text(settings(PreToolUse=[group], Stop=[{"hooks": [GOOD]}], Notification=[group]))
    before, stop, _ = load_hooks(path)
    assert before == Hook("PreToolUse", "true", "Write|mcp__.*", 3)
    assert stop == Hook("Stop", "true", "", 10)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        settings(PreToolUze=[{"hooks": [GOOD]}]),
        settings(PreToolUse={"hooks": [GOOD]}),
        settings(PreToolUse=[{"hooks": [{"type": "prompt", "prompt": "Is it fine?"}]}]),
        settings(PreToolUse=[{"hooks": [{"type": "command"}]}]),
        settings(PreToolUse=[{"hooks": [GOOD | {"timeout": 0}]}]),
        settings(PreToolUse=[{"matcher": "^(Bash|Write)$", "hooks": [GOOD]}]),
    ],
)
def test_a_broken_file_refuses_to_start_and_is_named(tmp_path, text):
    path = tmp_path / "settings.json"
    path.write_text(text)
    with pytest.raises(ValueError, match=r"settings\.json"):
        load_hooks(path)


def test_a_project_s_file_runs_only_after_a_yes_to_what_is_in_it(tmp_path):
    path = tmp_path / "settings.json"
    path.write_text(settings(Stop=[{"hooks": [GOOD]}]))
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    with pytest.raises(PermissionError, match=digest):
        load_hooks(path, trusted=[])
    assert load_hooks(path, trusted=[digest]) == [Hook("Stop", "true")]
    path.write_text(path.read_text().replace("true", "rm -r x"))
    with pytest.raises(PermissionError):
        load_hooks(path, trusted=[digest])
