"""Bombs: input that is cheap for the sender and expensive for the reader.

`python -m tests.doubles.bombs NAME FOLDER` runs one in a separate process, and prints its cost: the
peak memory in MB, the seconds of CPU, and the longest time that the event loop was blocked, in
seconds of CPU of its thread. The model's text is `text`.
"""

import asyncio
import contextlib
import importlib
import json
import re
import resource
import sys
import time
from contextlib import asynccontextmanager
from pathlib import Path

from agentloop import Agent, ScriptedModel, TextPart, ToolError, tool
from agentloop.messages import ToolMessage
from agentloop.mixins.hooks import Hook, Hooks
from agentloop.models.scripted import call
from agentloop.toolkits.files import Workspace
from agentloop.toolkits.mcp import MCPError, mcp_tools
from agentloop.toolkits.shell import Shell
from tests.recipes import load

importlib.import_module("mcp.client.streamable_http")  # not part of the cost
SERVER = str(Path(__file__).with_name("mcp_server.py"))
BOMBS = {}


def bomb(function):
    """Register a bomb under its name: an async function of a folder that returns a text."""
    BOMBS[function.__name__] = function
    return function


async def result_of(tool, **arguments):
    """Return the text of a tool's result in an agent."""
    agent = Agent(llm=ScriptedModel(call(tool.name, **arguments), "done"), tools=[tool])
    await agent.run("go")
    [result] = [message for message in agent.messages if isinstance(message, ToolMessage)]
    return result.text


@bomb
async def a_line_of_a_gigabyte(folder):
    with open(folder / "huge", "wb") as file:
        for _ in range(250):
            file.write(b"x" * 1_000_000)
        file.write(b"needle")
    return await result_of(Workspace(folder).grep, pattern="needle")


@bomb
async def a_file_of_line_ends(folder):
    (folder / "huge").write_bytes(b"\n" * 20_000_000)
    return await result_of(Workspace(folder).read, path="huge")


@bomb
async def ten_edits_that_each_make_ten_of_one(folder):
    (folder / "a").write_text("x")
    edits = [{"old_text": "x", "new_text": "x" * 10, "replace_all": True}] * 10
    return await result_of(Workspace(folder).multi_edit, path="a", edits=edits)


@bomb
async def a_tool_that_returns_tiny_parts(folder):
    parts = [TextPart("") for _ in range(300_000)]
    return await result_of(tool("Split it", name="split")(lambda: parts))


@bomb
async def a_hook_command_that_floods(folder):
    flood = load("claude_code_hooks").command([sys.executable, "-c", "while 1: print('x' * 99999)"])
    gate = Hook("PreToolUse", flood)
    llm = ScriptedModel(call("act"), "done")
    act = tool("Act", name="act")(lambda: "acted")
    agent = type("Hooked", (Hooks, Agent), {})(llm=llm, tools=[act], hooks=[gate])
    await agent.run("go")
    return agent.messages[2].text


@bomb
async def a_hook_with_a_long_reason(folder):
    answer = {"decision": "deny", "reason": "no" * 10_000_000, "additionalContext": "x" * 10**7}
    act = tool("Act", name="act")(lambda: "acted")
    agent = type("Hooked", (Hooks, Agent), {})(
        llm=ScriptedModel(call("act"), "done"),
        tools=[act],
        hooks=[Hook("PreToolUse", lambda data: answer)],
    )
    await agent.run("go")
    return "".join(message.text for message in agent.messages)


@asynccontextmanager
async def server_of(folder, mode):
    async with mcp_tools(sys.executable, SERVER, mode, str(folder / "pids")) as tools:
        yield tools


@bomb
async def a_server_with_20_000_tools(folder):
    async with server_of(folder, "tools") as tools:
        return f"{len(tools)} tools"


@bomb
async def a_server_with_20_mb_of_descriptions(folder):
    try:
        async with server_of(folder, "descriptions") as tools:
            return f"{len(tools)} tools"
    except MCPError as error:
        return str(error)


@bomb
async def a_server_that_answers_with_300_000_parts(folder):
    async with server_of(folder, "good") as [echo, *_]:
        return await result_of(echo, kind="parts")


@bomb
async def a_server_that_answers_with_150_mb(folder):
    async with server_of(folder, "good") as [echo, *_]:
        return await result_of(echo, kind="flood")


@bomb
async def forty_background_commands_that_print(folder):
    shell = Shell(folder)
    results = []
    for _ in range(40):
        try:
            await shell.bash("exec yes", background=True)
        except ToolError as error:
            results.append(str(error))
    await asyncio.sleep(1)
    shell.close()
    await asyncio.sleep(0.1)
    return " ".join(results)


async def measured(name, folder):
    """Run a bomb; return its result and the longest time that the event loop was blocked."""
    longest = 0.0

    async def watch():
        nonlocal longest
        while True:
            before = time.thread_time()
            await asyncio.sleep(0)
            await asyncio.sleep(0.005)
            longest = max(longest, time.thread_time() - before)

    watching = asyncio.create_task(watch())
    result = await BOMBS[name](folder)
    await asyncio.sleep(0.01)
    watching.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await watching
    return result, longest


def cpu_of(usage):
    return usage.ru_utime + usage.ru_stime


if __name__ == "__main__":
    before = cpu_of(resource.getrusage(resource.RUSAGE_SELF))
    text, held = asyncio.run(measured(sys.argv[1], Path(sys.argv[2])))
    usages = [resource.getrusage(resource.RUSAGE_SELF)]
    if sys.argv[1] == a_line_of_a_gigabyte.__name__:  # the search runs in a subprocess
        usages.append(resource.getrusage(resource.RUSAGE_CHILDREN))
    # `ru_maxrss` of this process includes that of its parent
    [peak] = map(int, re.findall(r"VmHWM:\s*(\d+)", Path("/proc/self/status").read_text()))
    cost = {
        "megabytes": max(peak, *(usage.ru_maxrss for usage in usages[1:]), 0) // 1024,
        "cpu": round(sum(map(cpu_of, usages)) - before, 2),
        "held": round(held, 3),
        "text": text,
    }
    print(json.dumps(cost))
