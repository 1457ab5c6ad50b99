"""MCP: servers of other projects over stdio and HTTP, and a hostile one."""

import asyncio
import json
import os
import shutil
import socket
import subprocess
import sys
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import pytest

from agentloop import Agent, ImagePart, Loop, ScriptedModel, ToolError
from agentloop.models.scripted import call
from agentloop.toolkits.mcp import (
    MCPConfig,
    MCPError,
    MCPServer,
    MCPTools,
    mcp_servers,
    mcp_tools,
    open_servers,
)

pytest.importorskip("mcp")
HOSTILE = str(Path(__file__).parent.parent / "doubles" / "mcp_server.py")
NODE = Path(os.environ.get("XDG_CACHE_HOME", "~/.cache")).expanduser() / "agentloop-ci/node_modules"


def command(name):
    """The path of a server's command, or a skipped test."""
    here = f"{Path(sys.executable).parent}{os.pathsep}{NODE / '.bin'}{os.pathsep}"
    if (found := shutil.which(name, path=here + os.environ["PATH"])) is None:
        pytest.skip(f"{name} is not installed; .ci/run installs it")
    return found


@asynccontextmanager
async def opened(config):
    server = MCPServer(config)
    async with open_servers(server):
        if server.error:
            raise server.error
        yield server


@pytest.fixture
def hostile(tmp_path):
    """Config of the hostile server, and a check that none of its processes is left."""
    pids = tmp_path / "pids"
    yield lambda mode, **more: MCPConfig(
        command=sys.executable, args=[HOSTILE, mode, str(pids)], **more
    )
    for pid in pids.read_text().split():
        state = Path(f"/proc/{pid}/stat")
        assert not state.exists() or state.read_text().split()[2] == "Z", f"{pid} is still there"


def result_of(server, kind):
    agent = Agent(llm=ScriptedModel(call("fake__echo", kind=kind), "seen"), tools=server.tools)

    async def run():
        await agent.run("go")
        return agent.messages[2]

    return run()


# ---- servers of other projects


async def test_the_time_server_answers_over_stdio():
    async with mcp_tools(command("mcp-server-time")) as tools:
        now = next(each for each in tools if each.name == "mcp-time__get_current_time")
        assert json.loads(await now.execute({"timezone": "UTC"}))["timezone"] == "UTC"
        assert now.read_only


async def test_the_git_server_reads_a_repository_and_reports_errors(tmp_path):
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    (tmp_path / "a.txt").write_text("one\n")
    async with mcp_tools(command("mcp-server-git"), name="git") as tools:
        status = next(each for each in tools if each.name == "git__git_status")
        assert "a.txt" in await status.execute({"repo_path": str(tmp_path)})
        with pytest.raises(ToolError):
            await status.execute({"repo_path": str(tmp_path / "nowhere")})


async def test_the_filesystem_server_works_in_an_agent(tmp_path):
    (tmp_path / "a.txt").write_text("milk")
    path = str(tmp_path / "a.txt")
    async with mcp_tools(command("mcp-server-filesystem"), str(tmp_path), name="fs") as tools:
        llm = ScriptedModel(call("fs__read_text_file", path=path), "It says milk.")
        agent = Agent(llm=llm, tools=tools)
        assert await agent.query("What does it say?") == "It says milk."
    assert agent.messages[2].text == "milk"


async def everything(server):
    by_name = {each.name.partition("__")[2]: each for each in server.tools}
    assert await by_name["echo"].execute({"message": "hi"}) == "Echo: hi"
    image = await by_name["get-tiny-image"].execute({})
    assert [part.media_type for part in image if isinstance(part, ImagePart)] == ["image/png"]
    links = await by_name["get-resource-links"].execute({"count": 2})
    assert "demo://resource/" in links
    assert (await server.client.list_resources()).resources
    assert (await server.client.get_prompt("simple-prompt")).messages


async def test_the_everything_server_over_stdio():
    config = MCPConfig(command=command("mcp-server-everything"), args=["stdio"])
    async with opened(config) as server:
        await everything(server)


@contextmanager
def served(*args):
    """A server in a process of its own, on a free port."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    process = subprocess.Popen(
        [command("mcp-server-everything"), *args],
        env={**os.environ, "PORT": str(port)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        yield port
    finally:
        process.kill()
        process.wait()


@pytest.mark.parametrize(("kind", "path"), [("streamableHttp", "mcp"), ("sse", "sse")])
async def test_the_everything_server_over_http(kind, path):
    with served(kind) as port:
        for _ in range(300):
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            await asyncio.sleep(0.1)
        config = MCPConfig(url=f"http://127.0.0.1:{port}/{path}", type=kind)
        async with opened(config) as server:
            await everything(server)


# ---- a hostile server


async def test_names_are_legal_and_never_collide(hostile):
    async with opened(hostile("good")) as server:
        names = [each.name for each in server.tools]
    assert names[0] == "fake__echo"
    assert "fake__a_b" in names
    assert len({*names}) == 4
    assert all(len(name) <= 64 for name in names)
    assert [each.read_only for each in server.tools] == [False, True, False, False]


async def test_include_and_exclude_choose_tools(hostile):
    async with opened(hostile("good", include=["a*", "echo"], exclude=["*.*"])) as server:
        assert [each.name for each in server.tools] == ["fake__echo", "fake__a_b"]


@pytest.mark.parametrize("mode", ["good", "noise"])
@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("texts", "one\ntwo"),
        ("structured", '{"n":1}'),
        ("link", "a: file:///a.txt"),
        ("error", "no such file"),
    ],
)
async def test_a_result_is_what_the_model_can_read(hostile, mode, kind, text):
    async with opened(hostile(mode)) as server:
        message = await result_of(server, kind)
    assert (message.text, message.is_error) == (text, kind == "error")


async def test_a_server_gets_no_variable_that_it_was_not_given(hostile, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    async with opened(hostile("good", env={"KEY": "k"})) as server:
        names = (await result_of(server, "env")).text.split(",")
    assert "KEY" in names
    assert "sk-1" not in repr(MCPConfig(command="x", env={"KEY": "sk-1"}, headers={"A": "sk-1"}))
    assert "OPENAI_API_KEY" not in names


async def test_a_server_that_dies_gives_an_error_result_without_its_secrets(hostile):
    async with opened(hostile("good", env={"KEY": "sk-12345"})) as server:
        message = await result_of(server, "die")
        assert message.is_error
        assert "dying with ***" in message.text
        assert (await result_of(server, "texts")).is_error


async def test_a_call_that_hangs_ends_with_its_timeout(hostile):
    async with opened(hostile("good", timeout=0.2)) as server:
        message = await result_of(server, "hang")
    assert message.is_error
    assert "0.2 seconds" in message.text


async def test_a_changed_list_counts_from_the_next_turn_on(hostile):
    class Asking(MCPTools, Agent):
        pass

    async with opened(hostile("good")) as server:
        llm = ScriptedModel(call("fake__echo", kind="change"), "first", "second")
        agent = Asking(llm=llm, mcp_servers=[server])
        await agent.run("go")
        for _ in range(200):
            if len(server.tools) == 1:
                break
            await asyncio.sleep(0.05)
        await agent.run("again")
    assert [len(request.tools) for request in llm.requests][::2] == [4, 1]
    assert llm.requests[-1].tools[0].description == "Echo louder."


async def test_a_server_that_does_not_start_says_why(hostile):
    with pytest.raises(MCPError, match="no licence found") as caught:
        async with opened(hostile("exit")):
            pass
    assert not isinstance(caught.value, BaseExceptionGroup)


@pytest.mark.slow
async def test_a_mute_server_fails_in_bounded_time(hostile):
    with pytest.raises(MCPError, match="TimeoutError"):
        async with opened(hostile("mute")):
            pass


@pytest.mark.slow
async def test_a_server_that_ignores_signals_is_killed_with_its_children(hostile):
    async with opened(hostile("stubborn")) as server:
        assert server.tools


async def test_a_cancelled_start_leaves_no_process(hostile, tmp_path):
    async def start():
        async with opened(hostile("mute")):
            pass

    task = asyncio.create_task(start())
    while not (tmp_path / "pids").exists() or not (tmp_path / "pids").read_text():
        await asyncio.sleep(0.02)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


# ---- a file of servers


def write(path, servers):
    path.write_text(json.dumps({"mcpServers": servers}))
    return path


async def test_a_file_of_servers_starts_those_that_it_can(hostile, tmp_path, monkeypatch):
    monkeypatch.setenv("MODE", "good")
    entry = {"command": sys.executable, "args": [HOSTILE, "${MODE}", str(tmp_path / "pids")]}
    broken = {"command": str(tmp_path / "nowhere")}
    off = entry | {"enabled": False}
    path = write(tmp_path / "mcp.json", {"one": entry, "two": broken, "three": off})
    async with mcp_servers(path) as servers:
        assert [each.name for each in servers] == ["one", "two"]
        assert [bool(each.tools) for each in servers] == [True, False]
        assert [bool(each.error) for each in servers] == [False, True]
        assert servers[0].tools[0].name == "one__echo"


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ({"command": "x", "args": "-v"}, "mcpServers.bad.args"),
        ({}, "'bad' needs either command or url"),
        ({"command": "x", "url": "http://localhost"}, "'bad' needs either command or url"),
        ({"url": "http://h", "headers": {"A": "${NOT_SET}"}}, "NOT_SET"),
    ],
)
async def test_a_broken_file_of_servers_is_refused_with_its_place(tmp_path, entry, said):
    with pytest.raises(ValueError, match=said) as caught:
        async with mcp_servers(write(tmp_path / "mcp.json", {"bad": entry})):
            pass
    assert "mcp.json" in str(caught.value) or "bad" in str(caught.value)


# ---- the reverse

SERVE = """
from agentloop import tool
from agentloop.toolkits.mcp import serve

@tool
def add(a: int, b: int) -> int:
    "Add two numbers."
    return a + b

serve([add], "sums")
"""


async def test_tools_are_served_to_any_client():
    async with mcp_tools(sys.executable, "-c", SERVE) as tools:
        assert [(each.name, each.description) for each in tools] == [
            ("sums__add", "Add two numbers.")
        ]
        assert await tools[0].execute({"a": 2, "b": 3}) == "5"
        with pytest.raises(ToolError, match="valid integer"):
            await tools[0].execute({"a": "two", "b": 3})


def test_the_mixin_is_a_loop_by_itself():
    agent = MCPTools(llm=ScriptedModel("hello"))
    assert agent.run_sync("hi").text == "hello"
    assert isinstance(agent, Loop)
