"""The conversations of all wires with servers of other projects: llmock, aimock and LiteLLM.

llmock is in the group `dev`. aimock requires Node: run `npm install @copilotkit/aimock` in a
separate folder and add its node_modules/.bin to the PATH. LiteLLM's proxy has many dependencies:
run `pip install 'litellm[proxy]'` in a separate virtual environment and add its bin to the PATH.
"""

import asyncio
import itertools
import json
import os
import re
import shutil
import socket
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from agentloop.models.scripted import ScriptedModel
from tests.doubles.wires import (
    CONVERSATIONS,
    KEY,
    OPENAI,
    RESPONSES,
    VARIABLES,
    WIRES,
    as_message,
    hold,
)

AIMOCK, LITELLM = shutil.which("aimock"), shutil.which("litellm")
PATHS = {"openai": "/v1", "responses": "/v1", "anthropic": "", "google": ""}  # of aimock
MODELS = {
    "openai": "gpt-4o",
    "responses": "gpt-5.5",
    "anthropic": "claude-sonnet-4-6",
    "google": "gemini-2.5-pro",
}


@pytest.fixture(autouse=True)
def _clean_environment(monkeypatch):
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)


def is_plain(reply):
    """Return whether every server can play the reply."""
    return not (reply.refusal or reply.finish or reply.usage is None)


def essence(held):
    """Return the log without values chosen by the server: ids are numbered, tokens omitted."""
    ids, out = {}, []
    for record in held.log:
        record = {key: value for key, value in record.items() if key != "usage"}
        for name in {"call_id", "tool_call_id"} & record.keys():
            record[name] = ids.setdefault(record[name], len(ids))
        if calls := record.get("tool_calls"):
            record["tool_calls"] = [
                (ids.setdefault(c["id"], len(ids)), c["name"], json.loads(c.get("arguments", "{}")))
                for c in calls
            ]
        out.append(record)
    return out


async def check(talk, wire, url, streaming):
    expected = await hold(talk, ScriptedModel(*map(as_message, talk.script)))
    settings = {"model": MODELS[wire.name], "max_retries": 0, **talk.settings.get(wire.name, {})}
    async with wire.model(url, **settings) as llm:
        held = await hold(talk, llm, streaming)
    assert essence(held) == essence(expected)
    assert [result.text for result in held.results] == [r.text for r in expected.results]
    if streaming:
        assert held.texts == "".join(reply.text or "" for reply in talk.script)
    assert all(m.usage for m in held.agent.messages if hasattr(m, "usage"))


every_wire = pytest.mark.parametrize("wire", WIRES, ids=lambda wire: wire.name)


# ---- llmock


@pytest.fixture(scope="module")
def llmock():
    testing = pytest.importorskip("llmock.testing")
    with testing.LLMockServer() as server:
        yield server


@pytest.mark.parametrize("streaming", [False, True], ids=["whole", "streamed"])
@every_wire
@pytest.mark.parametrize(
    "talk",
    [talk for talk in CONVERSATIONS if all(is_plain(r) and not r.thinking for r in talk.script)],
    ids=lambda talk: talk.name,
)
async def test_the_conversation_with_llmock_is_identical(talk, wire, streaming, llmock):
    from llmock.scenarios import Reply as Scripted
    from llmock.scenarios import ToolCall

    for reply in talk.script:
        calls = tuple(ToolCall(call[0], call[1]) for call in reply.calls)
        llmock.state.scenarios.add(Scripted(text=reply.text, tool_calls=calls))
    names = {"responses": "openai", "google": "gemini"}
    await check(talk, wire, llmock.base_url(names.get(wire.name, wire.name)), streaming)


# ---- aimock


def fixture(turn, reply):
    """Return a reply for aimock; the system prompt identifies the conversation."""
    calls = [dict(zip(("name", "arguments", "id"), call, strict=True)) for call in reply.calls]
    said = {"content": reply.text, "toolCalls": calls, "reasoning": reply.thinking}
    response = {name: value for name, value in said.items() if value}
    return {"match": {"systemMessage": "#0#", "turnIndex": turn}, "response": response}


def turns(talk, wire):
    """Return the turn of each reply as aimock counts them: with Responses, each item is a turn."""
    replies, items = talk.script, wire.name == "responses"
    steps = [bool(reply.text) + len(reply.calls) if items else 1 for reply in replies]
    return [sum(steps[:n]) for n in range(len(steps))]


@asynccontextmanager
async def started(command, *arguments, **environment):
    """Yield a server, and the address that it prints once it is ready."""
    process = await asyncio.create_subprocess_exec(
        command or "",
        *arguments,
        env=os.environ | environment,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    assert process.stdout is not None
    drained = None
    try:
        while line := await process.stdout.readline():
            if found := re.search(r"http://127\.0\.0\.1:\d+", line.decode()):
                drained = asyncio.create_task(
                    process.stdout.read()
                )  # otherwise, its pipe would fill up
                yield found[0]
                break
        else:
            raise AssertionError(f"{command} did not start")
    finally:
        if process.returncode is None:
            process.terminate()
        await (drained or process.stdout.read())
        await process.wait()


@asynccontextmanager
async def aimock(folder, talk, wire):
    numbers = turns(talk, wire)
    fixtures = [*map(fixture, numbers, talk.script)]
    (folder / "fixtures.json").write_text(json.dumps({"fixtures": fixtures}), encoding="utf-8")
    config = {"llm": {"fixtures": str(folder / "fixtures.json")}}
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    async with started(AIMOCK, "--config", str(folder / "config.json"), "--port", "0") as url:
        yield url


@pytest.mark.skipif(AIMOCK is None, reason="aimock is not on the PATH")
@every_wire
@pytest.mark.parametrize(
    "talk",
    [talk for talk in CONVERSATIONS if all(map(is_plain, talk.script))],
    ids=lambda talk: talk.name,
)
async def test_the_conversation_with_aimock_is_identical(talk, wire, tmp_path):
    talk = replace(talk, system=f"{talk.system} #0#")
    async with aimock(tmp_path, talk, wire) as url:
        for streaming in (False, True):
            await check(talk, wire, url + PATHS[wire.name], streaming)


# ---- LiteLLM's proxy: Responses on our side, Chat Completions on the side of its server


@pytest.mark.skipif(LITELLM is None, reason="litellm is not on the PATH")
async def test_the_conversations_with_litellm_over_responses_are_identical(tmp_path):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    wanted = {"thinking", "parallel tools", "tool errors", "unicode", "a second question"}
    talks = [talk for talk in CONVERSATIONS if talk.name in wanted]
    async with OPENAI.double() as behind:
        settings = {"model": "deepseek/m", "api_base": behind.base_url, "api_key": KEY}
        config = {
            "model_list": [{"model_name": "gpt-5.5", "litellm_params": settings}],
            "litellm_settings": {"drop_params": True},
            "general_settings": {"dangerously_permit_weak_or_unset_master_key": True},
        }
        (tmp_path / "config.yaml").write_text(json.dumps(config), encoding="utf-8")
        where = ("--config", str(tmp_path / "config.yaml"), "--host", "127.0.0.1")
        # prevents a download of prices on import
        offline = {"LITELLM_LOCAL_MODEL_COST_MAP": "True", "NO_PROXY": "127.0.0.1"}
        async with started(LITELLM, *where, "--port", str(port), **offline) as url:
            for talk, streaming in itertools.product(talks, (False, True)):
                behind.replies, behind.prefix_breaks = list(talk.script), []
                await check(talk, RESPONSES, f"{url}/v1", streaming)
                assert (behind.replies, behind.refusals) == ([], [])
