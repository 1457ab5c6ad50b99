"""MCP: third-party servers over stdio and HTTP, and a hostile server."""

import asyncio
import json
import logging
import os
import re
import shutil
import socket
import subprocess
import sys
import time
from base64 import b64encode
from contextlib import asynccontextmanager, closing
from gzip import compress
from pathlib import Path

import httpx
import pytest
from agentloop_chat import mcp_questions
from agentloop_chat.mcp_questions import AskingTool

from agentloop import Agent, ImagePart, ScriptedModel, Session, ToolError, assert_prefix_stable
from agentloop.messages import UserMessage, text_of
from agentloop.mixins.approval import Approval, Rule
from agentloop.models.scripted import call
from agentloop.toolkits.environment import mask
from agentloop.toolkits.mcp import (
    MCPConfig,
    MCPError,
    MCPServer,
    MCPTool,
    MCPTools,
    mcp_servers,
    mcp_tools,
)
from agentloop.transcript import OUTCOME_UNKNOWN, ToolStart
from agentloop.waiting import cancel_and_wait
from tests import ROOT
from tests.doubles.wires import GOOGLE

pytest.importorskip("mcp")
HOSTILE = str(ROOT / "tests" / "doubles" / "mcp_server.py")
NODE = Path(os.environ.get("XDG_CACHE_HOME", "~/.cache")).expanduser() / "agentloop-ci/node_modules"


def command(name):
    """Return the path of a server's command, or skip the test."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{NODE / '.bin'}{os.pathsep}"
    if (program := shutil.which(name, path=path + os.environ["PATH"])) is None:
        pytest.skip(f"{name} is not installed; .ci/run installs it")
    return program


@asynccontextmanager
async def connect(tool_class=None, name="fake", **config):
    tool_class = tool_class or (AskingTool if config.get("elicitation") else MCPTool)
    text = json.dumps({"mcpServers": {name: config}})
    async with mcp_servers("mcp.json", text, tool_class=tool_class) as [server]:
        if server.error:
            raise server.error
        yield server


def is_running(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().split()[2] != "Z"
    except OSError:
        return False


@pytest.fixture
def hostile(tmp_path):
    """Start the hostile server; on teardown, verify that no process remains."""
    pids = tmp_path / "pids"
    yield lambda mode, *args, **more: connect(
        command=sys.executable, args=[HOSTILE, mode, str(pids), *args], **more
    )
    while any(map(is_running, pids.read_text().split())):
        time.sleep(0.01)  # killed processes end soon; the time limit of the test bounds the wait


async def result_of(server, kind):
    agent = Agent(llm=ScriptedModel(call("fake__echo", kind=kind), "seen"), tools=server.tools)
    await agent.run("go")
    return agent.messages[2]


def tool_named(tools, name):
    return next(tool for tool in tools if tool.name == name)


async def test_the_time_and_git_servers_work_over_stdio(tmp_path):
    async with mcp_tools(command("mcp-server-time")) as tools:
        now = tool_named(tools, "mcp__get_current_time")
        text = text_of(await now.execute({"timezone": "UTC"}))
        assert json.loads(text)["timezone"] == "UTC"
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    (tmp_path / "a.txt").write_text("one\n")
    async with mcp_tools(command("mcp-server-git"), name="git") as tools:
        status = tool_named(tools, "git__git_status")
        assert "a.txt" in text_of(await status.execute({"repo_path": str(tmp_path)}))
        with pytest.raises(ToolError):
            await status.execute({"repo_path": str(tmp_path / "nowhere")})


async def test_a_program_is_found_by_the_name_that_a_shell_takes(tmp_path, monkeypatch):
    # On Windows, npx is the file npx.cmd, which only `shutil.which` finds.
    # Source: https://github.com/modelcontextprotocol/python-sdk/issues/240
    monkeypatch.setattr(shutil, "which", lambda name, **_: {"npx": sys.executable}.get(name))
    async with connect(command="npx", args=[HOSTILE, "good", str(tmp_path / "pids")]) as server:
        assert server.tools


async def test_the_filesystem_server_works_in_an_agent(tmp_path):
    (tmp_path / "a.txt").write_text("milk")
    path = str(tmp_path / "a.txt")
    async with mcp_tools(command("mcp-server-filesystem"), str(tmp_path), name="fs") as tools:
        llm = ScriptedModel(call("fs__read_text_file", path=path), "It says milk.")
        agent = Agent(llm=llm, tools=tools)
        assert await agent.query("What does it say?") == "It says milk."
    assert agent.messages[2].text == "milk"


@pytest.mark.parametrize("kind", ["stdio", "streamableHttp", "sse"])
async def test_the_everything_server_works_over_each_transport(kind):
    program, process = command("mcp-server-everything"), None
    place = {"command": program, "args": [kind]}
    if kind != "stdio":
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        process = subprocess.Popen([program, kind], env={**os.environ, "PORT": f"{port}"}, **quiet)
        path = "sse" if kind == "sse" else "mcp"
        place = {"url": f"http://127.0.0.1:{port}/{path}", "type": kind}
        with socket.socket() as probe:
            while probe.connect_ex(("127.0.0.1", port)):
                await asyncio.sleep(0.1)
    try:
        async with connect(**place) as server:
            by_name = {tool.own_name: tool for tool in server.tools}
            assert text_of(await by_name["echo"].execute({"message": "hi"})) == "Echo: hi"
            image = await by_name["get-tiny-image"].execute({})
            assert "image/png" in [getattr(part, "media_type", "") for part in image]
            links = await by_name["get-resource-links"].execute({"count": 2})
            assert "demo://resource/" in text_of(links)
            assert (await server.client.list_resources()).resources
            assert (await server.client.get_prompt("simple-prompt")).messages
    finally:
        if process:
            process.kill()
            process.wait()


# ---- connections over HTTP that are lost

SHOP = """
import asyncio, sys
from mcp import server

kind, port, options, ran = sys.argv[1], int(sys.argv[2]), eval(sys.argv[3]), sys.argv[4]
shop = server.MCPServer("shop")

@shop.tool()
async def order(item: str, seconds: float = 0) -> str:
    with open(ran, "a") as file:
        print(item, file=file)
    await asyncio.sleep(seconds)
    return f"ordered {item}"

shop.run(transport=kind, port=port, **options)
"""


def free_port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


class Killable:
    """A server in a process that a test kills and starts again at the same port."""

    process = None

    def __init__(self, port, *line, **environment):
        self.port = port
        self.line = line
        self.environment = os.environ | environment

    async def start(self):
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        self.process = subprocess.Popen(self.line, env=self.environment, **quiet)
        with socket.socket() as probe:
            while probe.connect_ex(("127.0.0.1", self.port)):
                await asyncio.sleep(0.05)

    async def restart(self):
        self.kill()
        await self.start()

    def kill(self):
        self.process.kill()
        self.process.wait()

    async def __aenter__(self):
        await self.start()
        return self

    async def __aexit__(self, *error):
        self.kill()


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("streamable-http", {}),
        ("streamable-http", {"json_response": True, "stateless_http": True}),
        ("sse", {}),
    ],
)
async def test_a_call_after_the_restart_of_a_server_connects_again(kind, options, tmp_path):
    pytest.importorskip("uvicorn")
    port, ran = free_port(), tmp_path / "ran"
    line = [sys.executable, "-c", SHOP, kind, str(port), repr(options), str(ran)]
    path = "sse" if kind == "sse" else "mcp"
    place = {"url": f"http://127.0.0.1:{port}/{path}", "type": kind}
    async with Killable(port, *line) as shop, connect(**place) as server:
        [order] = server.tools
        assert text_of(await order.execute({"item": "tea"})) == "ordered tea"
        lost = asyncio.create_task(order.execute({"item": "lost", "seconds": 60}))
        while "lost" not in ran.read_text():
            await asyncio.sleep(0.01)
        await shop.restart()
        with pytest.raises(MCPError, match="may have had effects"):
            await lost
        calls = [order.execute({"item": "two"}) for _ in range(2)]
        assert [text_of(parts) for parts in await asyncio.gather(*calls)] == ["ordered two"] * 2
        shop.kill()
        with pytest.raises(MCPError):
            await order.execute({"item": "down"})
    assert ran.read_text().split() == ["tea", "lost", "two", "two"]


async def test_a_call_after_the_restart_of_the_everything_server_connects_again():
    port = free_port()
    line = command("mcp-server-everything"), "streamableHttp"
    url = f"http://127.0.0.1:{port}/mcp"
    async with Killable(port, *line, PORT=f"{port}") as node, connect(url=url) as server:
        echo = tool_named(server.tools, "fake__echo")
        for text in ("Echo: one", "Echo: two"):
            assert text_of(await echo.execute({"message": text[6:]})) == text
            await node.restart()


@asynccontextmanager
async def http_server(reply):
    """Serve MCP over HTTP. `reply(message)` returns a status, a media type and a body, or None."""
    requests, tasks = [], []

    async def serve(reader, writer):
        tasks.append(asyncio.current_task())
        with closing(writer):
            await answer(reader, writer)

    async def answer(reader, writer):
        head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
        size = int((re.findall(r"content-length: (\d+)", head) or [0])[0])
        message = json.loads(await reader.readexactly(size) or "{}")
        method = message.get("method") or head.split()[0]
        requests.append(method)
        status, media, body = await reply(message) or (200, "application/json", "")
        if not body:
            tools = [{"name": "echo", "inputSchema": {"type": "object"}}]
            about = {"protocolVersion": "2025-06-18", "serverInfo": {"name": "a", "version": "1"}}
            results = {
                "initialize": about | {"capabilities": {"tools": {}}},
                "tools/list": {"tools": tools},
                "tools/call": {"content": [{"type": "text", "text": "done"}]},
            }
            if "id" not in message:
                status = 202 if size else 405
            body = json.dumps(
                {"jsonrpc": "2.0", "id": message.get("id"), "result": results.get(method)}
            )
        body = body if isinstance(body, bytes) else body.encode()
        packed = "gzip" if body.startswith(b"\x1f\x8b") else "identity"
        lines = f"HTTP/1.1 {status} OK", f"content-type: {media}", f"content-encoding: {packed}"
        lines += "mcp-session-id: 1", "connection: close", f"content-length: {len(body)}", "", ""
        writer.write("\r\n".join(lines).encode() + body)

    listening = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with listening:
        try:
            yield f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}/mcp", requests
        finally:
            await cancel_and_wait(tasks, 1)  # from Python 3.12 on, a server waits for them


async def test_providers_accept_a_tool_with_any_property_names_and_arrays():
    # Claude: "Property keys should match pattern '^[a-zA-Z0-9_.-]{1,64}$'"
    # Source: https://github.com/anthropics/claude-code/issues/34771
    # OpenAI: "array schema missing items". Source: https://github.com/ogx-ai/ogx/pull/3602
    # Claude: "It must match JSON Schema draft 2020-12", in which `items` is no list
    # Source: https://github.com/hyperdxio/hyperdx/pull/2925
    array, long = {"type": "array"}, "x" * 70
    pair = {"type": "array", "minItems": 2, "items": [{"type": "number"}, {"type": "string"}]}
    properties = {"filter[name]": array, "ok": {"type": ["array", "null"]}, long: {}}
    properties |= {"pair": pair, "none": array | {"items": []}}
    schema = {"type": "object", "properties": properties, "required": ["filter[name]", "ok"]}
    received = []

    async def reply(message):
        if message.get("method") == "tools/call":
            received.append(message["params"]["arguments"])
        if message.get("method") != "tools/list":
            return None
        found = {"tools": [{"name": "find", "inputSchema": schema}]}
        body = {"jsonrpc": "2.0", "id": message["id"], "result": found}
        return 200, "application/json", json.dumps(body)

    async with http_server(reply) as (url, _), connect(url=url) as server:
        [find] = server.tools
        assert find.parameters["properties"] == {
            "filter_name_": array | {"items": {}},
            "ok": {"type": ["array", "null"], "items": {}},
            "x" * 64: {},
            "pair": pair | {"items": {"anyOf": pair["items"]}},
            "none": array | {"items": {}},
        }
        assert find.parameters["required"] == ["filter_name_", "ok"]
        args = find.validate('{"filter_name_": ["a"], "ok": null, "%s": 1, "more": 2}' % ("x" * 64))
        assert text_of(await find.execute(args)) == "done"
        # a rule about `filter_name_` would see one value, and the server get the other
        with pytest.raises(ToolError, match="filter_name_"):
            find.validate('{"filter_name_": ["a"], "ok": null, "filter[name]": ["b"]}')
    assert received == [{"filter[name]": ["a"], "ok": None, long: 1, "more": 2}]


async def test_gemini_accepts_a_tool_that_requires_a_property_without_a_schema():
    # FastMCP leaves out that of `title` beside `type`. Sources:
    # https://github.com/PrefectHQ/fastmcp/issues/3576,
    # https://github.com/google-gemini/gemini-cli/issues/13705
    schema = {"type": "object", "properties": {"type": {"type": "string"}}}
    schema["required"] = ["title", "type"]
    both = {"type": "object", "properties": {"required": schema, "properties": schema}}

    async def reply(message):
        if message.get("method") != "tools/list":
            return None
        found = {"tools": [{"name": "make", "inputSchema": both | {"required": ["title"]}}]}
        body = {"jsonrpc": "2.0", "id": message["id"], "result": found}
        return 200, "application/json", json.dumps(body)

    async with http_server(reply) as (url, _), connect(url=url) as server:
        async with GOOGLE.double(["ok"]) as gemini:
            await GOOGLE.model(gemini).ainvoke([UserMessage("hi")], server.tools)
        [make] = server.tools
    assert [*make.parameters["properties"]] == ["required", "properties", "title"]
    nested = {"type": "a", "title": "b"}
    assert make.validate(json.dumps({"title": "c", "required": nested}))["required"] == nested


async def test_providers_accept_a_tool_whose_schema_has_alternatives():
    # Claude: "input_schema does not support oneOf, allOf, or anyOf at the top level"
    # Source: https://github.com/makenotion/notion-mcp-server/issues/340
    text, kind = {"type": "string"}, {"const": "url"}
    inline = {"properties": {"content": text, "kind": text}, "required": ["content"]}
    choices = [inline, {"properties": {"url": text, "kind": kind}, "required": ["url"]}]
    base = {"type": "object", "properties": {"page": text}, "required": ["page"]}

    async def reply(message):
        if message.get("method") != "tools/list":
            return None
        tools = [{"name": "attach", "description": "Attach.", "inputSchema": base | extra}]
        found = {"jsonrpc": "2.0", "id": message["id"], "result": {"tools": tools}}
        return 200, "application/json", json.dumps(found)

    for extra in ({"anyOf": choices}, {"oneOf": choices}, {"allOf": choices}):
        async with http_server(reply) as (url, _), connect(url=url) as server:
            [attach] = server.tools
        assert attach.parameters == base | {
            "properties": {
                "content": {"anyOf": [text]},
                "kind": {"anyOf": [text, kind]},
                "url": {"anyOf": [text]},
                "page": text,
            }
        }
        assert attach.description.startswith("Attach.\n\nThe arguments must match")
        assert json.dumps(extra) in attach.description
        assert attach.validate('{"page": "p", "url": "u"}') == {"page": "p", "url": "u"}


async def test_a_cancelled_start_over_http_ends_at_once_wherever_it_was():
    async def reply(message):
        return None

    async def start():
        async with connect(url=url):
            await asyncio.sleep(60)

    async with http_server(reply) as (url, _):
        for steps in range(10, 56, 3):
            starting = asyncio.create_task(start())
            for _ in range(steps):
                await asyncio.sleep(0)
            starting.cancel()
            ended, _ = await asyncio.wait([starting], timeout=3)
            assert ended, steps


@pytest.mark.parametrize("status", [400, 404])
async def test_a_refused_call_leaves_a_session_that_the_server_knows(status):
    async def reply(message):
        arguments = message.get("params", {}).get("arguments", {})
        if "slow" in arguments:
            await asyncio.sleep(0.3)
        if "bad" in arguments:
            return status, "text/plain", "bad"
        return None

    async with http_server(reply) as (url, requests), connect(url=url) as server:
        [echo] = server.tools
        slow = asyncio.create_task(echo.execute({"slow": True}))
        with pytest.raises(MCPError, match="may have had effects"):
            await echo.execute({"bad": True})
        assert text_of(await slow) == "done"
    assert (requests.count("tools/call"), requests.count("initialize")) == (2, 1)


async def test_a_call_right_after_one_that_broke_the_connection_connects_again():
    async def reply(message):
        if requests.count("tools/call") == 1 and message.get("method") == "tools/call":
            raise asyncio.CancelledError  # closes the connection: there's no reply

    async with http_server(reply) as (url, requests), connect(url=url) as server:
        [echo] = server.tools
        with pytest.raises(MCPError, match="may have had effects"):
            await echo.execute({})
        assert text_of(await echo.execute({})) == "done"
    assert (requests.count("tools/call"), requests.count("initialize")) == (2, 2)


async def test_calls_that_are_refused_together_connect_again_together():
    async def reply(message):
        if requests.count("initialize") == 1 and "tools/call" in requests:
            slow = message.get("method") == "tools/list" and requests.count("tools/list") > 2
            await asyncio.sleep(0.3 * slow)
            return 404, "text/plain", "unknown"
        return None

    async with http_server(reply) as (url, requests), connect(url=url) as server:
        [echo] = server.tools
        results = await asyncio.gather(*[echo.execute({}) for _ in range(5)])
        assert [text_of(parts) for parts in results] == ["done"] * 5
    assert requests.count("initialize") == 2


async def test_a_call_that_is_always_refused_is_sent_twice():
    async def reply(message):
        is_known = "tools/call" not in requests[-2:]  # neither a call, nor the list after a call
        return None if is_known else (404, "text/plain", "unknown")

    async with http_server(reply) as (url, requests), connect(url=url) as server:
        with pytest.raises(MCPError, match="Session terminated"):
            await server.tools[0].execute({})
    assert requests.count("tools/call") == 2


def text_message(number, text):
    result = {"content": [{"type": "text", "text": text}]}
    return json.dumps({"jsonrpc": "2.0", "id": number, "result": result})


@pytest.mark.parametrize("kind", ["plain", "gzip"])
async def test_a_reply_over_http_is_limited_like_a_message_over_stdio(kind):
    async def reply(message):
        if "large" in message.get("params", {}).get("arguments", {}):
            body = text_message(message["id"], "x" * 100_000_000).encode()
            return 200, "application/json", compress(body) if kind == "gzip" else body
        return None

    async with http_server(reply) as (url, _), connect(url=url) as server:
        [echo] = server.tools
        with pytest.raises(MCPError, match=r"'fake'.*longer than 10,000,000 bytes"):
            await echo.execute({"large": True})
        assert text_of(await echo.execute({})) == "done"


async def test_an_event_over_http_may_be_as_long_as_a_message_over_stdio():
    async def reply(message):
        if message.get("method") == "tools/call":
            body = f"data: {text_message(message['id'], 'x' * 9_000_000)}\n\n"
            return 200, "text/event-stream", body
        return None

    async with http_server(reply) as (url, _), connect(url=url) as server:
        assert len(text_of(await server.tools[0].execute({}))) == 9_000_000


async def test_an_idle_stream_of_events_stays_open():
    async def reply(message):
        if not message:  # the GET request
            await asyncio.sleep(600)

    async with http_server(reply) as (url, requests), connect(url=url, timeout=0.1):
        await asyncio.sleep(1.5)
    assert requests.count("get") == 1


@pytest.mark.parametrize(
    ("chosen", "names"),
    [
        ({}, ["fake__echo", "fake__a_b_39ec6c18", "fake__a_b", "fake__" + "x" * 49 + "_03282cad"]),
        (
            {"include": ["a*", "echo"], "exclude": ["*.*"], "url": "http://127.0.0.1:9"},  # unused
            ["fake__echo", "fake__a_b"],
        ),
    ],
)
async def test_tool_names_are_valid_unique_and_selectable(hostile, chosen, names):
    async with hostile("good", **chosen) as server:
        assert [tool.name for tool in server.tools] == names
        # hints of a server do not affect approvals
        assert not any(tool.read_only for tool in server.tools)


@pytest.mark.parametrize("name", ["1mcp", "@21st-dev/magic"])
async def test_gemini_and_kimi_accept_the_tools_of_a_server_with_any_name(hostile, name):
    # "Invalid function name. Must start with a letter or an underscore." Kimi wants a letter.
    # Sources: https://github.com/NoeFabris/opencode-antigravity-auth/pull/280,
    # https://github.com/MoonshotAI/kimi-cli/issues/2531
    async with hostile("good", name=name) as server, GOOGLE.double(["ok"]) as gemini:
        await GOOGLE.model(gemini).ainvoke([UserMessage("hi")], server.tools)
    assert all(tool.name[0].isalpha() for tool in server.tools)


@pytest.mark.parametrize(
    ("mode", "kind", "text"),
    [
        *[(mode, "texts", "one\ntwo") for mode in ("good", "noise")],
        ("good", "half an emoji", "half \ufffd emoji"),
        ("good", "debug", "one\ntwo"),
        ("good", "structured", '{"n":1}'),
        ("good", "nested", "in it"),
        ("good", "link", '{"name":"a","uri":"file:///a.txt","type":"resource_link"}'),
        ("good", "sound", '{"type":"audio","mime_type":"audio/wav"}'),
        ("good", "svg", '{"type":"image","mime_type":"image/svg+xml"}'),
        ("good", "broken", '{"type":"image","mime_type":"image/png"}\nafter it'),
        ("good", "huge", '{"type":"image","mime_type":"image/png"}'),
        ("good", "blob", '{"uri":"a://b"}'),
        ("good", "error", "no such file"),
        ("good", "empty", "The server gave no reason for the failure."),
    ],
)
async def test_results_of_each_type_are_converted_to_readable_text(hostile, mode, kind, text):
    async with hostile(mode) as server:
        message = await result_of(server, kind)
    assert (message.text, message.is_error) == (text, kind in ("error", "empty"))


async def test_an_image_stays_an_image_and_a_long_result_is_truncated_in_the_middle(hostile):
    async with hostile("good") as server:
        for kind in ("image", "picture"):
            image = await result_of(server, kind)
            assert image.content == (ImagePart(data=b"pixel", media_type="image/png"),)
        assert len((await result_of(server, "long")).text) < 101_000


async def test_the_number_of_images_in_a_result_is_limited(hostile):
    async with hostile("good") as server:
        message = await result_of(server, "images")
    assert sum(isinstance(part, ImagePart) for part in message.content) == 20
    assert message.text.count("Image omitted") == 80
    assert "after them" in message.text


async def test_errors_contain_no_secrets_and_no_variables_are_inherited(hostile, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-inherited")
    monkeypatch.setenv("TOKEN", "tk-67890 !")
    args = "--token=${TOKEN}", "--plain"
    async with hostile("good", *args, env={"KEY": "sk-12345", "N": "one"}) as server:
        env = json.loads((await result_of(server, "env")).text)
        assert (await result_of(server, "args")).text == "--token=*** --plain"
        assert (await result_of(server, "texts")).text == "one\ntwo"
        with pytest.raises(MCPError, match=r"dying with \*\*\*") as died:
            await server.tools[0].execute({"kind": "die"})
        texts = f"{died.value} {server.config!r} {server.config}"
    assert (env["KEY"], "OPENAI_API_KEY" in env) == ("sk-12345", False)
    assert not [secret for secret in ("sk-1", "67890", "inherited") if secret in texts]


async def test_keys_in_a_url_or_a_header_are_masked():
    url = "http://127.0.0.1:9/s/path-secret/mcp?key=query%2Fsecret"
    config = MCPConfig(url=url, headers={"A": "Bearer head-secret"})
    server = MCPServer("one", config, {"variable"})
    masked = mask(f"{url} with head-secret, key=query/secret, variable", server.secrets)
    assert masked == "http://127.0.0.1:9/s/***/mcp?key=*** with ***, key=***, ***"
    with pytest.raises(MCPError, match="MCP server 'fake': ") as refused:
        async with connect(url=config.url, headers=config.headers):
            pass
    assert "secret" not in f"{refused.value}"


@pytest.mark.parametrize("kind", ["sse", "http"])
async def test_the_password_in_a_url_is_sent_to_the_server_and_not_to_errors_or_logs(kind, caplog):
    requests = []

    async def refuse(reader, writer):
        requests.append(await reader.readuntil(b"\r\n\r\n"))
        [login] = re.findall(b"Basic .*", requests[-1])
        writer.write(b"HTTP/1.1 401 No " + login + b"\nContent-Length: 0\r\n\r\n")
        writer.close()

    caplog.set_level(logging.DEBUG)
    listening = await asyncio.start_server(refuse, "127.0.0.1", 0)
    port = listening.sockets[0].getsockname()[1]
    async with listening:
        with pytest.raises(MCPError) as refused:
            async with connect(url=f"http://user:p%40ss@127.0.0.1:{port}/mcp", type=kind):
                pass
    assert b"Authorization: Basic " + b64encode(b"user:p@ss") in requests[0]
    assert f"127.0.0.1:{port}/mcp" in caplog.text
    for password in ("p@ss", "p%40ss"):
        assert password not in f"{refused.value} {caplog.text}"
    assert b64encode(b"user:p@ss").decode() not in f"{refused.value}"


@pytest.mark.parametrize("kind", ["sse", "http"])
async def test_a_truncated_error_contains_no_part_of_a_long_token(kind):
    token = "".join(f"{number:05}" for number in range(200))
    headers = {"Authorization": f"Bearer {token}\n"}  # an invalid header value, quoted in the error
    listening = await asyncio.start_server(lambda reader, writer: writer.close(), "127.0.0.1", 0)
    port = listening.sockets[0].getsockname()[1]
    async with listening:
        with pytest.raises(MCPError, match=r"Illegal header value b.\*\*\*") as refused:
            async with connect(url=f"http://127.0.0.1:{port}/mcp", type=kind, headers=headers):
                pass
    assert token[:20] not in f"{refused.value}"


async def test_the_repr_of_a_server_shows_no_secret():
    config = MCPConfig(url="http://me:pass-word@h/mcp", headers={"A": "Bearer head-secret"})
    server = MCPServer("one", config, {"variable"})
    text = f"{vars(server)} {config!r} {config}"
    assert not [secret for secret in ("pass-word", "head-secret", "variable") if secret in text]


async def test_a_hanging_call_ends_with_its_timeout(hostile):
    async with hostile("good", timeout=0.2) as server:
        message = await result_of(server, "hang")
    assert (message.is_error, "0.2 seconds" in message.text) == (True, True)


async def test_a_call_has_an_unknown_outcome_if_its_server_dies(hostile):
    async with hostile("good") as server:
        text = (await result_of(server, "die")).text
    assert "connection has ended; the call may have had effects; stderr: dying" in text


async def test_a_call_to_a_closed_server_is_an_error(hostile):
    async with hostile("good") as server:
        assert server.tools
    assert "was closed" in (await result_of(server, "texts")).text


async def test_a_call_does_not_wait_for_a_connection_whose_task_was_cancelled(hostile):
    async with hostile("good") as server:
        others = asyncio.all_tasks() - {asyncio.current_task()}
        await cancel_and_wait(others, 5)  # as asyncio.run does at its end
        assert "was closed" in (await asyncio.wait_for(result_of(server, "texts"), 5)).text


async def test_a_server_that_ended_is_started_again_by_the_next_call(hostile, tmp_path):
    async with hostile("good") as server:
        for _ in range(2):
            await result_of(server, "die")
            texts = await asyncio.gather(*[result_of(server, "texts") for _ in range(5)])
            assert {message.text for message in texts} == {"one\ntwo"}
    assert len((tmp_path / "pids").read_text().split()) == 3, "the five calls share a start"


async def test_tools_are_listed_again_after_a_new_start(hostile):
    async with hostile("good") as server:
        await result_of(server, "change")
        while len(server.tools) > 1:
            await asyncio.sleep(0.01)
        await result_of(server, "die")
        assert (await result_of(server, "texts")).text == "one\ntwo"
        assert len(server.tools) == 4


async def test_a_request_of_a_program_connects_again_too(hostile):
    async with hostile("good") as server:
        await result_of(server, "die")
        listed = await server.send(lambda: server.client.list_tools())
        assert listed.tools[0].name == "echo"


async def test_a_call_that_waits_for_a_new_start_ends_with_the_block(hostile):
    async with hostile("good") as server:
        await result_of(server, "die")
        waiting = asyncio.create_task(result_of(server, "texts"))
        await asyncio.sleep(0.01)
    assert "was closed" in (await waiting).text


async def test_each_call_to_a_server_that_no_longer_starts_tries_once(hostile, tmp_path):
    program = tmp_path / "python"
    program.symlink_to(sys.executable)
    async with connect(
        command=str(program), args=[HOSTILE, "good", str(tmp_path / "pids")]
    ) as server:
        await result_of(server, "die")
        program.unlink()
        for _ in range(2):
            text = (await result_of(server, "texts")).text
            assert "No such file" in text
            assert "effects" not in text  # the call was not sent
        program.symlink_to(sys.executable)
        assert (await result_of(server, "texts")).text == "one\ntwo"


async def test_a_tool_with_an_unusable_schema_is_skipped_with_a_warning(hostile, caplog):
    async with hostile("schemas") as server:
        assert [tool.own_name for tool in server.tools] == ["echo", "nulls", "deep"]
        assert server.tools[1].parameters == {"type": "object", "properties": {}}
        assert server.tools[1].validate('{"a": 1}') == {"a": 1}
    skipped = [record.getMessage() for record in caplog.records if "skipped" in record.message]
    for name in ("no tool", "5", *(f"bad{number}" for number in range(6))):
        assert any(name in message for message in skipped), name


async def test_the_number_of_parts_in_a_result_is_limited(hostile):
    async with hostile("good") as server:
        message = await result_of(server, "parts")
    assert len(message.content) == 1001
    assert len(message.text) < 20_000


async def test_a_server_that_sends_an_oversized_message_is_disconnected(hostile):
    async with hostile("good") as server:
        text = (await result_of(server, "flood")).text
        assert "longer than 10,000,000 bytes; the call may have had effects" in text
        assert (await result_of(server, "texts")).text == "one\ntwo"


async def test_a_changed_tool_list_applies_from_the_next_turn(hostile):
    async with hostile("good") as server:
        llm = ScriptedModel(call("fake__echo", kind="change"), "first", "second")
        agent = type("Asking", (MCPTools, Agent), {})(llm=llm, mcp_servers=[server])
        await agent.run("go")
        while len(server.tools) > 1:
            await asyncio.sleep(0.01)
        await agent.run("again")
    assert [len(request.tools) for request in llm.requests][::2] == [4, 1]
    assert llm.requests[-1].tools[0].description == "Echo louder."


async def test_a_server_that_always_announces_new_tools_is_not_asked_all_the_time(hostile):
    async with hostile("restless") as server:
        await asyncio.sleep(0.5)
        assert 1 < int(server.tools[0].description) < 10


async def test_a_server_with_only_the_newest_version_works_and_reports_changed_tools(hostile):
    async with hostile("newest") as server:
        assert server.client.protocol_version == "2026-07-28"
        assert (await result_of(server, "texts")).text == "one\ntwo"
        await result_of(server, "change")
        while len(server.tools) > 1:
            await asyncio.sleep(0.01)
        assert server.tools[0].description == "Echo louder."


async def test_the_newest_version_is_not_requested_from_a_server_that_would_exit(hostile):
    async with hostile("oldest") as server:
        assert (await result_of(server, "texts")).text == "one\ntwo"


# ---- elicitation


class SessionAgent(Session, Agent):
    session_fsync = False


class Asking(Approval, Agent):
    approval_rules = (Rule("allow"),)


def asking_agent(server, kind, cls=Agent, *replies, **settings):
    """Return an agent whose model makes a call in which the server asks the user."""
    llm = ScriptedModel(call("fake__echo", kind=kind), "seen", *replies)
    return cls(llm=llm, tools=server.tools, **settings)


@pytest.mark.parametrize("cls", [Agent, Asking])
async def test_a_form_ends_the_run_and_its_answer_continues_the_call(hostile, cls):
    async with hostile("newest", elicitation=True) as server:
        agent = asking_agent(server, "form", cls)
        result = await agent.run("go")
        assert result.stop_reason == "needs_answer"
        [question] = result.pending
        assert question.name == "fake__echo"
        assert question.parsed["server"] == "fake"
        assert question.parsed["question"] == "Which date?"
        assert {*question.parsed["form"]["properties"]} == {"date", "guests"}
        assert (await agent.run()).pending == result.pending, "the question has no answer"
        agent.answer(question.id, {"date": "tomorrow", "guests": 4})
        assert agent.pending == ()
        assert (await agent.run()).text == "seen"
        answers = json.loads(agent.messages[2].text)
        content = {"date": "tomorrow", "guests": 4}
        assert answers == {
            "requests": 2,
            "answers": {"when": {"action": "accept", "content": content}},
        }
        assert_prefix_stable(agent.llm.requests)


@pytest.mark.parametrize(
    ("kind", "answer", "expected"),
    [
        ("one", "tomorrow", {"when": {"action": "accept", "content": {"date": "tomorrow"}}}),
        ("one", '{"date": "now"}', {"when": {"action": "accept", "content": {"date": "now"}}}),
        ("number", 0, {"when": {"action": "accept", "content": {"guests": 0}}}),
        ("number", "4", {"when": {"action": "accept", "content": {"guests": 4}}}),
        ("confirm", True, {"when": {"action": "accept", "content": {}}}),
        ("confirm", "Yes.", {"when": {"action": "accept", "content": {}}}),
        ("confirm", False, {"when": {"action": "decline"}}),
        ("one", None, {"when": {"action": "decline"}}),
        ("one", "decline", {"when": {"action": "decline"}}),
        ("url", True, {"login": {"action": "accept"}}),
        ("url", "done", {"login": {"action": "accept"}}),
        ("url", False, {"login": {"action": "decline"}}),
    ],
)
async def test_an_answer_is_a_dict_a_text_or_a_refusal(hostile, kind, answer, expected):
    async with hostile("newest", elicitation=True) as server:
        agent = asking_agent(server, kind)
        [question] = (await agent.run("go")).pending
        if kind == "url":
            assert question.parsed["url"] == "https://bank.example/login?id=7"
        agent.answer(question.id, answer)
        assert (await agent.run()).text == "seen"
        assert json.loads(agent.messages[2].text)["answers"] == expected


@pytest.mark.parametrize("answer", ["no", "cancel", "not now", "what is this?", 0])
@pytest.mark.parametrize("kind", ["confirm", "url"])
async def test_a_question_that_has_no_field_is_accepted_only_by_a_word_that_consents(
    hostile, kind, answer
):
    async with hostile("newest", elicitation=True) as server:
        agent = asking_agent(server, kind)
        [question] = (await agent.run("go")).pending
        agent.answer(question.id, answer)
        [question] = (await agent.run()).pending
        assert "decline" in question.parsed["problem"]
        agent.answer(question.id, "decline")
        assert (await agent.run()).text == "seen"
        [sent] = json.loads(agent.messages[2].text)["answers"].values()
        assert sent == {"action": "decline"}


@pytest.mark.parametrize("kind", ["two", "rounds"])
async def test_several_questions_are_asked_one_after_another(hostile, kind):
    async with hostile("newest", elicitation=True) as server:
        agent = asking_agent(server, kind)
        result = await agent.run("go")
        for text in ("First?", "Second?"):
            [question] = result.pending
            assert question.parsed["question"] == text
            agent.answer(question.id, text)
            result = await agent.run()
        assert result.text == "seen"
        answers = json.loads(agent.messages[2].text)
        assert answers["requests"] == {"two": 2, "rounds": 3}[kind]
        assert [answer["content"] for answer in answers["answers"].values()] == [
            {"a": "First?"},
            {"b": "Second?"},
        ]


@pytest.mark.parametrize(
    ("answer", "field"),
    [
        ({"date": "tomorrow", "guests": "many"}, "guests"),
        ({"date": "tomorrow"}, "guests"),
        ({"date": "tomorrow", "guests": 4, "more": {"a": [{}]}}, "more"),
        ("tomorrow", "guests"),
        (True, "guests"),
        ("{", "JSON"),
    ],
)
async def test_an_answer_that_does_not_match_the_form_is_requested_again(hostile, answer, field):
    async with hostile("newest", elicitation=True) as server:
        agent = asking_agent(server, "form")
        [question] = (await agent.run("go")).pending
        agent.answer(question.id, answer)
        [question] = (await agent.run()).pending
        assert field in question.parsed["problem"]
        agent.answer(question.id, {"date": "tomorrow", "guests": 4})
        assert (await agent.run()).text == "seen"
        assert json.loads(agent.messages[2].text)["requests"] == 2, "the first answer was not sent"


async def test_a_question_may_be_answered_in_another_process(hostile, tmp_path):
    settings = {"session": "s", "session_dir": tmp_path}
    async with hostile("newest", elicitation=True) as server:
        with asking_agent(server, "one", SessionAgent, **settings) as agent:
            assert (await agent.run("go")).stop_reason == "needs_answer"
    async with hostile("newest", elicitation=True) as server:
        with SessionAgent(llm=ScriptedModel("seen"), tools=server.tools, **settings) as agent:
            [question] = agent.pending
            agent.answer(question.id, "tomorrow")
            assert (await agent.run()).text == "seen"
            assert json.loads(agent.messages[2].text)["requests"] == 1, "in this process"


async def test_an_approved_call_does_not_require_approval_again_after_its_question(hostile):
    class Reviewed(Approval, Agent): ...

    async with hostile("newest", elicitation=True) as server:
        agent = asking_agent(server, "one", Reviewed)
        result = await agent.run("go")
        assert result.stop_reason == "needs_approval"
        agent.decide(result.pending[0].id, "allow")
        result = await agent.run()
        assert result.stop_reason == "needs_answer"
        agent.answer(result.pending[0].id, "tomorrow")
        assert (await agent.run()).text == "seen"
        assert json.loads(agent.messages[2].text)["requests"] == 2


async def test_a_question_closed_by_a_prompt_has_an_unknown_outcome(hostile):
    async with hostile("newest", elicitation=True) as server:
        agent = asking_agent(server, "form")
        [question] = (await agent.run("go")).pending
        assert (await agent.run("never mind")).text == "seen"
        assert agent.messages[2].text == OUTCOME_UNKNOWN
        assert agent.pending == ()
        with pytest.raises(ValueError, match="not pending"):
            agent.answer(question.id, "late")


async def test_a_call_whose_server_dies_after_the_answer_is_not_sent_again(hostile):
    async with hostile("newest", elicitation=True) as server:
        agent = asking_agent(server, "kill", Agent, "again")
        [question] = (await agent.run("go")).pending
        agent.answer(question.id, "tomorrow")
        assert (await agent.run()).text == "seen"
        assert "may have had effects" in agent.messages[2].text
        with pytest.raises(ValueError, match="nothing to continue"):
            await agent.run()


async def test_a_killed_process_does_not_send_an_answer_twice(hostile):
    async with hostile("newest", elicitation=True) as server:
        agent = asking_agent(server, "one")
        [question] = (await agent.run("go")).pending
        agent.answer(question.id, "tomorrow")
        agent.record(ToolStart(question.id))  # simulates a kill during the call
        assert (await agent.run()).text == "seen"
        assert agent.messages[2].text == OUTCOME_UNKNOWN


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("script", "cannot be answered"),
        ("sampling", "cannot be answered"),
        ("bad", "cannot be answered"),
        ("large", "200,000"),
    ],
)
async def test_unsupported_requests_of_a_server_are_errors(hostile, kind, text):
    async with hostile("newest", elicitation=True) as server:
        agent = asking_agent(server, kind)
        assert (await agent.run("go")).text == "seen"
        assert agent.messages[2].is_error
        assert text in agent.messages[2].text


@pytest.mark.parametrize("elicitation", [True, False])
async def test_a_server_may_request_repeated_calls_until_the_timeout(hostile, elicitation):
    async with hostile("newest", elicitation=elicitation) as server:
        assert json.loads((await result_of(server, "again")).text)["requests"] == 2
    async with hostile("newest", elicitation=elicitation, timeout=1) as server:
        assert "not finished within 1 second" in (await result_of(server, "endless")).text


async def test_a_server_with_only_older_versions_works_without_questions(hostile):
    async with hostile("good", elicitation=True) as server:
        assert (await result_of(server, "texts")).text == "one\ntwo"


@pytest.mark.parametrize("tool_class", [MCPTool, AskingTool])
async def test_a_question_is_an_error_if_elicitation_is_disabled(hostile, tool_class):
    async with hostile("newest", tool_class=tool_class) as server:
        agent = asking_agent(server, "form")
        assert (await agent.run("go")).text == "seen"
        assert agent.messages[2].is_error
        text = agent.messages[2].text
        assert "The server asks the user: set `elicitation`" in text or "AskingTool" in text


@pytest.mark.parametrize("tool_class", [MCPTool, AskingTool])
async def test_a_server_that_requires_questions_names_the_settings_and_the_recipe(tool_class):
    recipe = str(Path(mcp_questions.__file__).parents[1] / "recipes" / "ask_user.py")
    config = {"command": sys.executable, "args": [recipe, "serve"], "tool_class": tool_class}
    async with connect(**config) as server:
        agent = Agent(llm=ScriptedModel(call("fake__book", guests="2"), "no"), tools=server.tools)
        await agent.run("Book a table.")
    assert agent.messages[2].is_error
    assert "elicitation=True" in agent.messages[2].text
    assert "tool_class like AskingTool" in agent.messages[2].text
    assert "recipes/ask_user.py" in agent.messages[2].text


async def test_elicitation_requires_a_tool_class_and_the_error_names_the_recipe():
    with pytest.raises(ValueError, match=r"fake.*tool_class.*recipes/ask_user\.py"):
        async with mcp_tools("x", name="fake", elicitation=True):
            pass


async def test_hints_of_a_server_are_used_if_its_config_trusts_them(hostile):
    async with hostile("good", trust_hints=True) as server:
        assert [tool.own_name for tool in server.tools if tool.read_only] == ["a.b"]


class StoredTokens:
    """A `TokenStorage` of the package with a token from an earlier login."""

    def __init__(self, token):
        self.token = token

    async def get_tokens(self):
        from mcp.shared.auth import OAuthToken

        return OAuthToken(access_token=self.token)

    async def get_client_info(self):
        return None


@pytest.mark.parametrize("kind", ["sse", "http"])
async def test_an_oauth_login_with_stored_tokens_is_used(kind):
    from mcp.client.auth import OAuthClientProvider
    from mcp.shared.auth import OAuthClientMetadata

    requests = []

    async def refuse(reader, writer):
        requests.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(b"HTTP/1.1 500 Not today\r\nContent-Length: 0\r\n\r\n")
        writer.close()

    listening = await asyncio.start_server(refuse, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}/mcp"
    about_me = OAuthClientMetadata(redirect_uris=["http://127.0.0.1:9/"])
    login = OAuthClientProvider(url, about_me, StoredTokens("stored-token"))
    async with listening:
        with pytest.raises(MCPError) as refused:
            async with mcp_tools(url, auth=login, type=kind):
                pass
    assert b"Authorization: Bearer stored-token" in requests[0]
    assert "stored-token" not in f"{refused.value}"


@pytest.mark.parametrize("kind", ["sse", "http"])
async def test_a_server_that_refuses_the_start_is_an_error_with_the_status(kind):
    async def refuse(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\n\r\n")
        writer.close()

    listening = await asyncio.start_server(refuse, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}/mcp"
    async with listening:
        with pytest.raises(MCPError, match="401"):
            async with mcp_tools(url, type=kind):
                pass


class TokenStore:
    """Stores tokens and the client registration in memory, like a program in a file."""

    tokens = client = None

    async def get_tokens(self):
        return self.tokens

    async def set_tokens(self, tokens):
        self.tokens = tokens

    async def get_client_info(self):
        return self.client

    async def set_client_info(self, client_info):
        self.client = client_info


async def test_a_login_is_requested_once_and_its_token_is_stored():
    pytest.importorskip("uvicorn")
    from mcp.client.auth import AuthorizationCodeResult, OAuthClientProvider
    from mcp.shared.auth import OAuthClientMetadata

    from tests.doubles.oauth_server import oauth_server

    pages, store = [], TokenStore()
    about_me = OAuthClientMetadata(
        redirect_uris=["http://127.0.0.1:9/back"], token_endpoint_auth_method="none"
    )

    async def open_page(url):
        pages.append(url)

    async def await_answer():
        async with httpx.AsyncClient() as browser:
            back = (await browser.get(pages[-1])).headers["location"]
        params = httpx.URL(back).params
        return AuthorizationCodeResult(code=params["code"], state=params["state"])

    async with oauth_server() as server:
        for _ in range(2):  # two consecutive programs
            url = f"{server.url}/mcp"
            login = OAuthClientProvider(url, about_me, store, open_page, await_answer)
            async with mcp_tools(url, auth=login) as [whoami]:
                assert text_of(await whoami.execute({})) == "you"
        assert (len(pages), len(server.tokens)) == (1, 1)
        assert store.tokens.access_token == server.tokens[0]
        with pytest.raises(MCPError):
            async with mcp_tools(url):
                pass


async def test_a_server_that_exits_at_once_is_an_error_with_the_reason(hostile):
    with pytest.raises(MCPError, match="no licence found"):
        async with hostile("exit"):
            pass


async def test_a_start_timeout_is_an_error_that_names_the_limit_and_the_setting(hostile):
    limit = "didn't start within 0.5 seconds: set start_timeout"
    with pytest.raises(MCPError, match=limit):
        async with hostile("mute", start_timeout=0.5):
            pass
    assert MCPConfig().start_timeout == 60  # `npx -y` took up to 56 s with an empty cache


@pytest.mark.parametrize("mode", ["stubborn", "leaves"])
async def test_a_server_that_ignores_signals_or_has_children_leaves_no_processes(hostile, mode):
    async with hostile(mode) as server:
        assert server.tools


async def test_a_cancelled_start_leaves_no_process(hostile, tmp_path):
    async def start():
        async with hostile("mute"):
            pass

    task = asyncio.create_task(start())
    while not (tmp_path / "pids").exists() or not (tmp_path / "pids").read_text():
        await asyncio.sleep(0.02)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_servers_in_a_file_start_even_if_others_fail(hostile, tmp_path, monkeypatch):
    monkeypatch.setenv("MODE", "good")
    entry = {"command": sys.executable, "args": [HOSTILE, "${MODE}", str(tmp_path / "pids")]}
    broken = {"command": str(tmp_path / "nowhere")}
    path, servers = tmp_path / "mcp.json", {"one": entry, "two": broken}
    path.write_text(json.dumps({"mcpServers": {**servers, "three": entry | {"enabled": False}}}))
    async with mcp_servers(path) as servers:
        assert [server.name for server in servers] == ["one", "two"]
        assert [bool(server.tools) for server in servers] == [True, False]
        assert servers[0].error is None
        assert "'two'" in str(servers[1].error)
        assert "nowhere" in str(servers[1].error)
        assert servers[0].tools[0].name == "one__echo"


async def test_config_keys_of_other_programs_are_read(hostile, tmp_path):
    cline = {"type": "stdio", "disabled": False, "timeout": 60, "autoApprove": ["echo"]}
    kiro = {"disabledTools": ["a*", "x*"]}
    async with hostile("good", **cline, **kiro) as server:
        assert [tool.name for tool in server.tools] == ["fake__echo"]
    vs_code = {
        "servers": {"off": {"command": "x", "disabled": True, "gallery": "a", "version": ""}}
    }
    (tmp_path / "mcp.json").write_text(json.dumps({**vs_code, "inputs": [], "$schema": "s"}))
    async with mcp_servers(tmp_path / "mcp.json") as servers:
        assert servers == []
    for url in ("serverUrl", "httpUrl"):
        assert MCPConfig.model_validate({url: "http://h/mcp"}).url == "http://h/mcp"
    assert MCPConfig.model_validate({"includeTools": ["a"], "trust": True}).include == ["a"]


@pytest.mark.parametrize(
    ("entry", "problem"),
    [
        ({"command": "x", "args": "-v"}, "mcpServers.bad.args"),
        ("mcp-server-git", "mcpServers.bad"),
        (
            {"command": "x", "excludes": ["drop"]},
            "unknown setting 'excludes'. Did you mean 'exclude'",
        ),
        ({"comand": "x"}, "mcpServers.bad\n.*unknown setting 'comand'. Did you mean 'command'"),
        ({"command": "x", "envFile": ".env"}, "unknown setting 'envFile'. Did you mean 'env'"),
        ({"command": "x", "env": {"KEY": "${input:key}"}}, "set 'key' in the environment"),
        ({"command": "x", "timeout": 30_000}, "bad.timeout\n.*less than or equal to 3600"),
        ({"command": "x", "timeout": -1}, "bad.timeout\n.*greater than 0"),
        ({"command": "x", "start_timeout": 0}, "bad.start_timeout\n.*greater than 0"),
        ({"url": "http://h", "type": "ssee"}, "bad.type\n.*sse"),
        (
            {"command": "x", "exclude": ["drop"], "excludeTools": ["b"]},
            "'exclude' and 'excludeTools' are the same setting",
        ),
        (
            {"url": "http://h", "serverUrl": "http://g"},
            "'url' and 'serverUrl' are the same setting",
        ),
        ({}, "'bad' needs a command or a url"),
        ({"url": "http://h", "headers": {"A": "${NOT_SET}"}}, "set 'NOT_SET' in the environment"),
    ],
)
async def test_an_invalid_config_file_is_an_error_with_the_location(tmp_path, entry, problem):
    path = tmp_path / "mcp.json"
    path.write_text(json.dumps({"mcpServers": {"bad": entry}}))
    with pytest.raises(ValueError, match=f"(?s)mcp.json: .*{problem}"):
        async with mcp_servers(path):
            pass


@pytest.mark.parametrize(
    ("more", "problem"),
    [
        ({"servers": {}}, "'mcpServers' and 'servers' are the same setting"),
        ({"mcpServer": {}}, "unknown setting 'mcpServer'. Did you mean 'mcpServers'"),
        ({"disabled": ["good"]}, "unknown setting 'disabled'"),
    ],
)
async def test_an_unknown_top_level_key_is_rejected(tmp_path, more, problem):
    path = tmp_path / "mcp.json"
    path.write_text(json.dumps({"mcpServers": {"good": {"command": "x"}}, **more}))
    with pytest.raises(ValueError, match=f"(?s)mcp.json: .*{problem}"):
        async with mcp_servers(path):
            pass


SERVE = """
import importlib.util, sys
from agentloop import ImagePart, tool

spec = importlib.util.spec_from_file_location("recipe", sys.argv[1])
recipe = importlib.util.module_from_spec(spec)
spec.loader.exec_module(recipe)

@tool
def add(a: int, b: int) -> int:
    "Add two numbers."
    return a + b

@tool("Look", read_only=True)
def look() -> list:
    return ["seen", ImagePart(data=b"pixel", media_type="image/png")]

recipe.serve([add, look], "sums")
"""
RECIPE = ROOT / "examples" / "recipes" / "mcp_tools.py"


async def test_tools_are_served_to_any_client():
    async with connect(command=sys.executable, args=["-c", SERVE, str(RECIPE)]) as server:
        add, look = server.tools
        assert (add.name, add.description) == ("fake__add", "Add two numbers.")
        tools = (await server.client.list_tools()).tools
        assert [tool.annotations.read_only_hint for tool in tools] == [False, True]
        assert text_of(await add.execute({"a": 2, "b": 3})) == "5"
        with pytest.raises(ToolError, match="valid integer"):
            await add.execute({"a": "two", "b": 3})
        text, image = await look.execute({})
        assert (text.text, image.data) == ("seen", b"pixel")


def test_the_mixin_works_without_servers():
    assert MCPTools(llm=ScriptedModel("hello")).run_sync("hi").text == "hello"
