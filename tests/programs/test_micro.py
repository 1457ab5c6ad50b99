"""examples/micro.py: streaming, sessions, approval and Anthropic on top of nano.py."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.doubles.anthropic_double import AnthropicDouble
from tests.doubles.openai_double import Failure, OpenAIDouble, Reply, calls

from .nano_adapter import NANO, nano

sys.path.insert(0, str(NANO.parent))
import micro

MICRO = NANO.parent / "micro.py"
MODELS = {
    "openai": (OpenAIDouble, micro.ChatOpenAI),
    "anthropic": (AnthropicDouble, micro.ChatAnthropic),
}
wires = pytest.mark.parametrize("wire", MODELS)


@nano.tool("Add two numbers.")
async def add(a: int, b: int) -> int:
    return a + b


class Plain(nano.Agent, micro.Streaming):
    """Only streaming."""


class Careful(micro.Approval, nano.Agent):
    """Only approval."""

    requires_approval = staticmethod(lambda name, arguments: name == "pay")


class Saved(micro.Session, nano.Agent):
    """Only a session."""


def pay_into(ledger):
    @nano.tool("Pay an amount.")
    async def pay(amount: int) -> str:
        ledger.append(amount)
        return f"paid {amount}"

    return pay


async def events_of(stream):
    return [event async for event in stream]


def model_of(wire, server, **settings):
    return MODELS[wire][1]("m", base_url=server.base_url, api_key="k", **settings)


def test_nano_and_micro_are_at_most_a_thousand_lines():
    assert sum(len(path.read_text("utf-8").splitlines()) for path in (NANO, MICRO)) <= 1000


# ---- streaming


@wires
async def test_a_conversation_is_streamed_and_every_request_is_valid(wire):
    script = [calls(("add", {"a": 2, "b": 3}), ("add", {"a": 1, "b": 1})), "5 and 2", "bye"]
    async with MODELS[wire][0](script, system="Be good.") as server:
        agent = Plain(llm=model_of(wire, server), tools=[add], system_prompt="Be good.")
        events = await events_of(agent.query_stream("2 + 3, 1 + 1?"))
        deltas = [event.text for event in events if isinstance(event, micro.TextDelta)]
        assert "".join(deltas) == "5 and 2"
        assert len(deltas) > 1
        kinds = [type(event).__name__ for event in events if not isinstance(event, micro.TextDelta)]
        assert kinds == ["ToolCall"] * 2 + ["ToolResult"] * 2 + ["Result"]
        assert events[-1].text == "5 and 2"
        assert (await agent.run("Bye.")).text == "bye"
        assert server.refusals == []
        assert server.prefix_breaks == []
        assert agent.usage.output_tokens > 0


@wires
async def test_a_truncated_reply_ends_the_run_and_its_calls_do_not_run(wire):
    ledger = []
    async with MODELS[wire][0]([Reply(calls=[("pay", {"amount": 1})], finish="length")]) as server:
        agent = Plain(llm=model_of(wire, server), tools=[pay_into(ledger)])
        assert (await agent.run("Pay.")).stop_reason == "limit:length"
        assert ledger == []


@wires
async def test_a_rate_limit_is_retried_and_a_bad_request_is_not(wire):
    async with MODELS[wire][0]([Failure(429), "hello", Failure(400, "no such model")]) as server:
        agent = Plain(llm=model_of(wire, server))
        assert (await agent.run("hi")).text == "hello"
        with pytest.raises(nano.ModelError, match="no such model"):
            await agent.run("again")
        assert len(server.requests) == 3


@wires
async def test_a_broken_stream_is_an_error_and_the_next_prompt_works(wire):
    double = MODELS[wire][0]
    whole = double.frames

    class Breaks(double):
        def frames(self, reply):
            frames = whole(self, reply)
            return frames if len(self.requests) > 1 else frames[:-2][:3]

    async with Breaks(["a long answer", "fine"]) as server:
        agent = Plain(llm=model_of(wire, server))
        with pytest.raises(nano.ModelError):
            await events_of(agent.query_stream("hi"))
        assert (await agent.run("again")).text == "fine"


async def test_closing_the_stream_cancels_the_run():
    stopped = asyncio.Event()

    @nano.tool("Wait.")
    async def wait() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()

    agent = Plain(llm=nano.ScriptedModel(nano.call("wait"), "ok"), tools=[wait])
    stream = agent.query_stream("go")
    async for event in stream:
        assert isinstance(event, micro.ToolCall)
        await asyncio.sleep(0.01)
        break
    await stream.aclose()
    assert stopped.is_set()
    assert (await agent.run("again")).text == "ok"


async def test_a_summary_and_its_calls_which_do_not_run_are_not_streamed():
    class Talks:
        async def ainvoke(self, messages, tools=()):
            summary = messages[-1]["content"] == nano.SUMMARIZE
            text = "a summary" if summary else "an answer"
            micro.on_text.get(micro.ignore)(text)
            if not summary and text_of(messages, "So far"):
                return {"content": text}
            calls = [nano.call("add", a=1, b=0 if summary else 1)]
            return {"content": text if summary else "", "tool_calls": calls}

    def text_of(messages, start):
        return [each for each in messages if each["content"].startswith(start)]

    compaction = nano.CompactionConfig(context_window=500)
    agent = Plain(llm=Talks(), tools=[add], compaction=compaction)
    events = await events_of(agent.query_stream("go"))
    assert any(record["role"] == "summary" for record in agent.log)
    assert any(isinstance(event, micro.TextDelta) for event in events)
    assert all(event.text != "a summary" for event in events if isinstance(event, micro.TextDelta))
    calls = [event.id for event in events if isinstance(event, micro.ToolCall)]
    assert calls == [event.id for event in events if isinstance(event, micro.ToolResult)]


# ---- approval


async def test_no_call_in_a_turn_runs_until_every_pending_approval_is_decided():
    ledger = []
    turn = [nano.call("pay", amount=1), nano.call("pay", amount=2), nano.call("add", a=1, b=1)]
    agent = Careful(llm=nano.ScriptedModel(turn, "done"), tools=[pay_into(ledger), add])
    assert (await agent.run("Pay 1 and 2.")).stop_reason == "needs_approval"
    first, second = agent.pending
    agent.decide(first["id"], allow=True)
    assert (await agent.resume()).stop_reason == "needs_approval"
    assert ledger == []
    agent.decide(second["id"], allow=False, note="Too much.")
    assert (await agent.resume()).text == "done"
    assert ledger == [1]
    results = [message["content"] for message in agent.messages if message["role"] == "tool"]
    assert results == ["paid 1", "Denied by the user. Too much.", "2"]
    with pytest.raises(ValueError, match="not pending"):
        agent.decide(first["id"], allow=True)


async def test_a_new_prompt_closes_pending_calls_without_running_them():
    ledger = []
    llm = nano.ScriptedModel(nano.call("pay", amount=1), "as you like")
    agent = Careful(llm=llm, tools=[pay_into(ledger)])
    await agent.run("Pay.")
    assert (await agent.run("No, leave it.")).text == "as you like"
    assert (ledger, agent.pending) == ([], [])
    assert micro.NOT_RUN in [message["content"] for message in agent.messages]


async def test_a_failing_approval_check_prevents_the_call():
    ledger = []

    def fails(name, arguments):
        raise KeyError("rules")

    llm = nano.ScriptedModel(nano.call("pay", amount=1))
    agent = Careful(llm=llm, tools=[pay_into(ledger)], requires_approval=fails)
    with pytest.raises(KeyError):
        await agent.run("Pay.")
    assert ledger == []


# ---- sessions


async def test_another_agent_continues_the_session(tmp_path):
    path = str(tmp_path / "ada.jsonl")
    agent = Saved(
        llm=nano.ScriptedModel(nano.call("add", a=1, b=1), "2"), tools=[add], session=path
    )
    await agent.run("1 + 1?")
    with pytest.raises(BlockingIOError):
        Saved(llm=nano.ScriptedModel(), session=path)
    agent.close()
    twin = Saved(llm=nano.ScriptedModel("you asked 1 + 1"), tools=[add], session=path)
    assert twin.log == agent.log
    assert (await twin.run("What did I ask?")).text == "you asked 1 + 1"
    twin.close()


def test_a_line_truncated_by_a_crash_is_dropped(tmp_path):
    path = tmp_path / "ada.jsonl"
    path.write_bytes(b'{"role": "user", "content": "hi"}\n{"role": "assis')
    agent = Saved(llm=nano.ScriptedModel("hello"), session=str(path))
    assert agent.messages == [{"role": "user", "content": "hi"}]
    agent.run_sync("again")
    agent.close()
    lines = path.read_text("utf-8").splitlines()
    assert [json.loads(line)["role"] for line in lines] == ["user", "user", "assistant"]


PROGRAM = """
import asyncio, os, signal, sys
sys.path.insert(0, {folder!r})
from micro import Agent, Approval, Session, ScriptedModel, scripted_call, tool

@tool("Pay.")
async def pay(amount: int) -> str:
    with open("ledger", "a") as ledger:
        ledger.write(f"{{amount}} ")
    if amount == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    return "paid"

class Clerk(Session, Approval, Agent): ...

turn = [scripted_call("pay", amount=1)], [scripted_call("pay", amount=2)]
agent = Clerk(llm=ScriptedModel(*{script}), tools=[pay], session="s.jsonl",
              requires_approval=lambda name, arguments: arguments["amount"] == 2)
{work}
"""


@pytest.mark.skipif(sys.platform == "win32", reason="SIGKILL")
def test_after_a_kill_an_approved_call_that_started_does_not_run_again(tmp_path):
    def execute(script, work):
        program = PROGRAM.format(folder=str(NANO.parent), script=script, work=work)
        done = subprocess.run(
            [sys.executable, "-c", program],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=60,
        )
        return done.returncode, done.stdout.strip(), done.stderr

    asked = execute("turn", 'print(agent.run_sync("Pay 1, then 2.").stop_reason)')
    assert asked[:2] == (0, "needs_approval")
    killed = execute(
        "()", 'agent.decide(agent.pending[0]["id"], allow=True); asyncio.run(agent.resume())'
    )
    assert killed[0] == -signal.SIGKILL
    after = execute('["sorry"]', "print(asyncio.run(agent.resume()).text)")
    assert after[:2] == (0, "sorry"), after[2]
    assert (tmp_path / "ledger").read_text() == "1 2 "
    log = [json.loads(line) for line in (tmp_path / "s.jsonl").read_text("utf-8").splitlines()]
    assert nano.NO_RESULT in [record.get("content") for record in log]


async def test_a_full_disk_records_nothing(tmp_path, monkeypatch):
    path = tmp_path / "ada.jsonl"
    agent = Saved(llm=nano.ScriptedModel("hello", "there"), session=str(path))
    await agent.run("hi")
    before = path.read_bytes()

    def full(file):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="space"):
        await agent.run("again")
    agent.close()
    assert path.read_bytes() == before
    assert len(agent.log) == 2


# ---- everything at once


@wires
async def test_all_features_together(wire, tmp_path):
    ledger = []
    script = [calls(("pay", {"amount": 7})), "paid"]
    async with MODELS[wire][0](script) as server:
        settings = {
            "llm": model_of(wire, server),
            "tools": [pay_into(ledger)],
            "session": str(tmp_path / "s.jsonl"),
            "requires_approval": lambda name, arguments: True,
        }
        agent = micro.Assistant(**settings)
        events = await events_of(agent.query_stream("Pay 7."))
        assert events[-1].stop_reason == "needs_approval"
        agent.close()
        other = micro.Assistant(**settings)
        other.decide(other.pending[0]["id"], allow=True)
        events = await events_of(other.query_stream())
        other.close()
        assert events[-1].text == "paid"
        assert ledger == [7]
        assert server.refusals == []


def test_the_program_runs_offline_unless_it_gets_a_prompt(tmp_path):
    (tmp_path / "old.txt").touch()
    env = {key: value for key, value in os.environ.items() if not key.endswith("_API_KEY")}
    env |= {"OPENAI_BASE_URL": "http://127.0.0.1:9/v1"}
    done = subprocess.run(
        [sys.executable, str(MICRO)],
        cwd=tmp_path, env=env, input="y\n", capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert done.stdout.endswith("old.txt is deleted.\n"), done.stderr
    assert [path.name for path in Path(tmp_path).iterdir()] == ["agent.jsonl"]


async def test_a_run_killed_after_its_answer_ends_with_this_answer(tmp_path):
    session = str(tmp_path / "s.jsonl")
    agent = Saved(llm=nano.ScriptedModel("It is 5."), session=session)
    await agent.run("What is 2 + 3?")
    agent.close()
    async with OpenAIDouble(["no request is needed"]) as server:
        again = Saved(llm=micro.ChatOpenAI("m", server.base_url, "k"), session=session)
        assert (await again.resume()).text == "It is 5."
        assert not server.requests
        again.close()
