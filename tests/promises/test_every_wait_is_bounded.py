"""Promise: nothing that refuses to end keeps a run, or the interpreter, from ending."""

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


async def test_a_cancel_ends_a_run_whose_tool_refuses_to_stop(caplog):
    release = asyncio.Event()
    llm = ScriptedModel([call("refuse"), call("refuse")], "ok")
    agent = Loop(llm=llm, tools=[stubborn(release)], cancel_timeout=0.01)
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
    assert agent.messages == [], "it writes nothing into a later conversation"


async def test_a_request_that_stays_too_long_is_tried_once_more_and_then_raised():
    too_long = ContextWindowExceeded("prompt is too long")
    llm = ScriptedModel("one " * 50, too_long, "SUMMARY", too_long, "never")
    agent = Agent(llm=llm)
    await agent.run("x")
    with pytest.raises(ContextWindowExceeded):
        await agent.query("y")
    assert len(llm.requests) == 4


async def test_closing_a_stream_does_so_too():
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


def test_tools_that_never_stop_keep_neither_run_sync_nor_the_interpreter():
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
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=200
    )
    assert (done.stdout, done.returncode) == ("closed\nok\nok again\n", 0), done.stderr


RUNS_A_COMMAND = """
import asyncio, sys
from pathlib import Path
from agentloop import Agent, ScriptedModel, call
from agentloop.toolkits.shell import Shell

kind, folder, then = sys.argv[1:]
command = call("bash", command="echo $$ > new; mv new pid; sleep 1000", background=kind == "later")
agent = Agent(llm=ScriptedModel(command, "done"), tools=Shell(folder).tools)

async def main():
    await agent.run("go")
    while not Path(folder, "pid").exists():
        await asyncio.sleep(0.01)
    if then == "goes on":
        await asyncio.sleep(60)

asyncio.run(main())
"""


def is_running(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="it looks for processes in /proc")
@pytest.mark.parametrize("kind", ["now", "later"])
def test_a_command_ends_with_a_program_that_is_killed(kind, tmp_path):
    arguments = [sys.executable, "-c", RUNS_A_COMMAND, kind, str(tmp_path), "goes on"]
    with subprocess.Popen(arguments) as program:
        while not (tmp_path / "pid").exists():
            time.sleep(0.01)
        pid = int((tmp_path / "pid").read_text())
        assert is_running(pid)
        program.kill()
    while is_running(pid):
        time.sleep(0.01)


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="it looks for processes in /proc")
def test_a_command_in_the_background_ends_with_its_program(tmp_path):
    arguments = [sys.executable, "-c", RUNS_A_COMMAND, "later", str(tmp_path), "ends"]
    done = subprocess.run(arguments, capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("", "")
    assert not is_running(int((tmp_path / "pid").read_text()))
