"""Promise 6: a task that does not stop delays neither a run nor the interpreter's exit."""

import asyncio
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from agentloop import Agent, ContextWindowExceeded, Loop, ScriptedModel, tool
from agentloop.models.scripted import call


def stubborn(release):
    @tool("Refuse to stop")
    async def refuse() -> None:
        while not release.is_set():
            with suppress(asyncio.CancelledError):
                await release.wait()

    return refuse


async def test_a_cancellation_ends_a_run_whose_tool_does_not_stop(caplog):
    release = asyncio.Event()
    llm = ScriptedModel([call("refuse"), call("refuse")], "ok")
    agent = Agent(llm=llm, tools=[stubborn(release)], cancel_timeout=0.01)
    task = asyncio.create_task(agent.run("x"))
    while sum(type(record).__name__ == "ToolStart" for record in agent.log) < 2:
        await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert "did not stop" in caplog.text
    assert await agent.query("go on") == "ok"
    agent.clear_history()
    release.set()
    for _ in range(5):
        await asyncio.sleep(0)
    assert not agent.messages, "the tool records nothing in a later conversation"


async def test_a_request_that_exceeds_the_context_window_is_retried_once():
    too_long = ContextWindowExceeded("prompt is too long")
    llm = ScriptedModel("one " * 50, too_long, "SUMMARY", too_long, "never")
    agent = Agent(llm=llm)
    await agent.run("x")
    assert (await agent.run("y")).stop_reason == "context_overflow"
    assert len(llm.requests) == 4


async def test_closing_a_stream_ends_a_run_whose_tool_does_not_stop():
    release = asyncio.Event()
    agent = Loop(llm=ScriptedModel(call("refuse")), tools=[stubborn(release)], cancel_timeout=0.01)
    stream = agent.query_stream("x")
    while not any(type(record).__name__ == "ToolStart" for record in agent.log):
        waiting = asyncio.ensure_future(anext(stream))
        await asyncio.wait([waiting], timeout=0.01)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    release.set()
    await asyncio.sleep(0)


def test_tools_that_never_stop_block_neither_run_sync_nor_the_interpreter():
    program = """
import asyncio, threading
from agentloop import Loop, ScriptedModel, tool
from agentloop.models.scripted import call

@tool("Hang", timeout=0.01)
def hang() -> None:
    threading.Event().wait()

@tool("Swallow every cancel", timeout=0.01)
async def swallow() -> None:
    while True:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            pass

async def closing():
    try:
        yield
    finally:
        print("closed")

@tool("Leave a generator open")
async def leave() -> None:
    opened.append(closing())
    await anext(opened[0])

opened = []
llm = ScriptedModel([call("hang"), call("swallow"), call("leave")], "ok", "ok again")
agent = Loop(llm=llm, tools=[hang, swallow, leave], cancel_timeout=0.01)
print(agent.run_sync("x").text)
print(agent.run_sync("y").text)
"""
    process = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=200
    )
    assert (process.stdout, process.returncode) == ("closed\nok\nok again\n", 0), process.stderr


RUNS_A_COMMAND = """
import asyncio, sys
from pathlib import Path
from agentloop import Agent, ScriptedModel, call
from agentloop.toolkits.shell import Shell

kind, folder, then = sys.argv[1:]
in_background = kind == "background"
command = call("bash", command="echo $$ > new; mv new pid; sleep 1000", background=in_background)
agent = Agent(llm=ScriptedModel(command, "done"), tools=Shell(folder).tools)

async def main():
    await agent.run("go")
    while not Path(folder, "pid").exists():
        await asyncio.sleep(0.01)
    if then == "continue":
        await asyncio.sleep(60)

asyncio.run(main())
"""


def is_running(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="requires /proc")
@pytest.mark.parametrize("kind", ["foreground", "background"])
def test_a_command_ends_when_its_program_is_killed(kind, tmp_path):
    arguments = [sys.executable, "-c", RUNS_A_COMMAND, kind, str(tmp_path), "continue"]
    with subprocess.Popen(arguments) as program:
        while not (tmp_path / "pid").exists():
            time.sleep(0.01)
        pid = int((tmp_path / "pid").read_text())
        assert is_running(pid)
        program.kill()
    while is_running(pid):
        time.sleep(0.01)


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="requires /proc")
def test_a_background_command_ends_with_its_program(tmp_path):
    arguments = [sys.executable, "-c", RUNS_A_COMMAND, "background", str(tmp_path), "end"]
    process = subprocess.run(arguments, capture_output=True, text=True, check=True)
    assert (process.stdout, process.stderr) == ("", "")
    assert not is_running(int((tmp_path / "pid").read_text()))
