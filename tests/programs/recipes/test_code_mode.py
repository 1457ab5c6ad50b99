"""The recipe for code mode: programs written by the model, whose tool calls keep all guarantees."""

import asyncio
import json
from typing import Annotated

import pytest

from agentloop import (
    Agent,
    Depends,
    Limits,
    Loop,
    ScriptedModel,
    Session,
    ToolCall,
    assert_prefix_stable,
    current_agent,
    current_call,
    tool,
)
from agentloop.messages import AssistantMessage, Stop
from agentloop.mixins.approval import Approval, Rule
from agentloop.mixins.hooks import Hook, Hooks
from agentloop.models.scripted import call
from agentloop.toolkits.ask import UserAnswer, UserQuestion
from tests.doubles.openai_double import calls
from tests.doubles.wires import WIRES
from tests.recipes import load

pytest.importorskip("pydantic_monty")
recipe = load("code_mode")


class Coder(recipe.CodeMode, Agent): ...


class Asking(recipe.CodeMode, Approval, Agent):
    approval_rules = (Rule("ask", "pay"), Rule("allow"))


def coder(code, *replies, kind=Coder, **settings):
    """Return an agent whose model writes a program, and a list of the executed calls."""
    ran = []

    @tool(read_only=True)
    async def look(at: str) -> dict:
        """Look."""
        ran.append(f"look {at}")
        await asyncio.sleep(0)
        return {"at": at, "price": len(at)}

    @tool
    async def pay(amount: int) -> str:
        """Pay."""
        ran.append(f"pay {amount}")
        return f"paid {amount}"

    script = [call("run_python", code=code), *replies]
    return kind(llm=ScriptedModel(*script), tools=[look, pay], **settings), ran


async def result_of(code, **settings):
    agent, ran = coder(code, "seen", **settings)
    assert (await agent.run("go")).text == "seen"
    return agent.messages[2], ran


async def test_a_program_calls_tools_in_parallel_and_returns_its_last_value():
    code = """
import asyncio
seen = await asyncio.gather(*[look(at=at) for at in ("a", "bb", "ccc")])
print("looked")
await pay(amount=sum(each["price"] for each in seen))
"""
    agent, ran = coder(code, "seen")
    await agent.run("go")
    assert ran == ["look a", "look bb", "look ccc", "pay 6"]
    assert agent.messages[2].text == "looked\npaid 6"
    assert len(agent.messages) == 4
    for request in agent.llm.requests:
        assert [tool.name for tool in request.tools] == ["run_python"]
    assert "async def look(*, at: str): 'Look.'" in request.tools[0].description
    assert_prefix_stable(agent.llm.requests)


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("x = (", "SyntaxError"),
        ("1 / 0", "line 1"),
        ("nosuch", "NameError"),
        ("await look(at=5)", "valid string (got 5)"),
        ("await look()", "Field required"),
        ("await look('a')", "use keyword arguments"),
        ("await nosuch(at=1)", "no tool named 'nosuch'"),
        ("look(at='a')", "not awaited: look"),
        ("print('before')\n1 / 0", "before"),
    ],
)
async def test_errors_of_a_program_are_returned_to_the_model(code, words):
    result, ran = await result_of(code)
    assert result.is_error
    assert words in result.text
    assert ran == []


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("while True: pass", "time limit"),
        ("x = [1]\nwhile True: x += x", "memory limit"),
        ("def f(): return f()\nf()", "recursion"),
        ("while True: print('x' * 10_000)", "time limit"),
        ("for n in range(2_000): await look(at='a')", "RuntimeError"),
    ],
)
async def test_time_memory_calls_and_output_are_bounded(code, words, monkeypatch):
    seconds = 0.3 if words == "time limit" else 60
    monkeypatch.setitem(recipe.LIMITS, "max_turn_duration_secs", seconds)
    result, _ = await result_of(code)
    assert result.is_error
    assert words in result.text
    assert len(result.text) < 25_000


@pytest.mark.parametrize(
    "code",
    [
        "open('/etc/passwd').read()",
        "import os\nos.listdir('/')",
        "import os\nos.environ['HOME']",
        "import socket",
        "import subprocess",
        "import urllib.request",
        "().__class__.__base__.__subclasses__()",
        "__import__('os').system('true')",
        "look.__globals__",
    ],
)
async def test_a_program_has_no_access_to_files_network_or_host_objects(code):
    result, ran = await result_of(code)
    assert result.is_error
    assert ran == []


async def test_a_large_call_result_is_complete_and_a_large_program_result_is_truncated():
    @tool
    async def rows() -> list[dict[str, int]]:
        """Rows."""
        return [{"id": n} for n in range(50_000)]

    agent, _ = coder("r = await rows()\nprint(len(r), r[-1]['id'])\nr", "seen")
    agent.tools = [rows]
    assert (await agent.run("go")).text == "seen"
    assert agent.messages[2].text.startswith("50000 49999\n")
    assert len(agent.messages[2].text) < 51_000


async def test_equal_programs_have_equal_clocks_and_random_numbers():
    code = "import random, time\n[random.random(), time.time()]"
    assert (await result_of(code))[0] == (await result_of(code))[0]


# ---- gates


@pytest.mark.parametrize("verdict", ["allow", "deny"])
@pytest.mark.parametrize("restart", [False, True])
async def test_an_approval_request_suspends_the_program_and_no_call_runs_twice(
    verdict, restart, tmp_path
):
    class SessionAgent(Session, Asking): ...

    code = """
first = await look(at="a")
try:
    paid = await pay(amount=5)
except RuntimeError as error:
    paid = str(error)
await look(at="z")
[first["price"], paid]
"""
    settings = {"kind": SessionAgent, "session": "s", "session_dir": tmp_path}
    agent, ran = coder(code, "seen", **settings)
    with agent:
        result = await agent.run("go")
        assert (result.stop_reason, [call.name for call in result.pending]) == (
            "needs_approval",
            ["pay"],
        )
        assert ran == ["look a"]
        if not restart:
            agent.decide(result.pending[0].id, verdict, note="Not today.")
            assert (await agent.run()).text == "seen"
            text = agent.messages[2].text
    if restart:
        agent, again = coder(code, **settings)
        agent.llm = ScriptedModel("seen")
        with agent:
            agent.decide(agent.pending[0].id, verdict, note="Not today.")
            assert (await agent.run()).text == "seen"
            text = agent.messages[2].text
        ran += again
    paid = ["pay 5"] if verdict == "allow" else []
    assert ran == ["look a", *paid, "look z"]
    price, outcome = json.loads(text)
    assert price == 1
    assert ("paid 5" if verdict == "allow" else "Not today.") in outcome


async def test_a_program_cannot_catch_an_approval_request_and_continue():
    code = """
try:
    await pay(amount=5)
except BaseException:
    await look(at="after")
"""
    agent, ran = coder(code, "seen", kind=Asking)
    assert (await agent.run("go")).stop_reason == "needs_approval"
    assert ran == []


async def test_a_hook_changes_a_call_of_a_program():
    def halve(data):
        return {"updatedInput": {"amount": data["tool_input"]["amount"] // 2}}

    kind = type("Hooked", (recipe.CodeMode, Hooks, Agent), {})
    _, ran = await result_of(
        "await pay(amount=8)", kind=kind, hooks=[Hook("PreToolUse", halve, "pay")]
    )
    assert ran == ["pay 4"]


async def test_limits_count_the_calls_of_a_program():
    class Limited(recipe.CodeMode, Limits, Agent):
        max_tool_calls = 3

    agent, ran = coder("for n in range(9): await look(at=str(n))", "seen", kind=Limited)
    assert (await agent.run("go")).stop_reason == "limit:tool_calls"
    assert len(ran) == 2


async def test_a_cancelled_run_cancels_the_call_of_a_program():
    started, ended = asyncio.Event(), []

    @tool
    async def wait() -> None:
        """Wait."""
        started.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            ended.append(True)
            raise

    agent, _ = coder("await wait()")
    agent.tools = [wait]
    run = asyncio.ensure_future(agent.run("go"))
    await started.wait()
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run
    assert ended == [True]
    agent.llm = ScriptedModel("seen")
    assert (await agent.run("And now?")).text == "seen"
    assert "wait({}): Interrupted" in agent.messages[2].text


async def test_a_tool_called_by_a_program_may_ask_a_question():
    @tool
    async def book(
        agent: Annotated[Loop, Depends(current_agent)],
        this: Annotated[ToolCall, Depends(current_call)],
    ) -> str:
        """Book."""
        if answer := agent.conversation.state_of(this).newest(UserAnswer):
            return f"booked for {answer.content}"
        agent.record(UserQuestion(this.id, '{"question": "For how many?"}'))
        raise Stop("needs_answer")

    agent, _ = coder("await book()", "seen")
    agent.tools = [book]
    result = await agent.run("go")
    assert result.stop_reason == "needs_answer"
    [question] = result.pending
    assert (question.name, question.parsed) == ("book", {"question": "For how many?"})
    agent.answer(question.id, 4)
    assert (await agent.run()).text == "seen"
    assert agent.messages[2].text == "booked for 4"


@pytest.mark.parametrize("wire", WIRES, ids=lambda wire: wire.name)
async def test_every_provider_accepts_the_requests(wire):
    programs = ["await look(at='a')", "1 / 0", "'\\ud800' + chr(0)", "await pay(amount=1)"]
    turns = [calls(("run_python", {"code": code}, f"c{n}")) for n, code in enumerate(programs)]
    async with wire.double([*turns, "ok"]) as server:
        agent, ran = coder("", kind=Coder)
        agent.llm = wire.model(server, max_retries=0)
        assert await agent.query("go") == "ok"
        assert server.refusals == []
        assert all(len(wire.declared(body)) == 1 for body in server.requests)
    assert ran == ["look a", "pay 1"]
    assert sum(isinstance(message, AssistantMessage) for message in agent.messages) == 5
