"""Regressions: errors of 0.1.0 in the interaction of two parts."""

import asyncio

import httpx
import pytest

import agentloop as al
from agentloop import Agent, AssistantMessage, ModelError, ScriptedModel, Usage, tool
from agentloop.models.scripted import call
from tests.doubles.fault_server import FaultServer, send, stall, stream_head


class Saved(al.Session, Agent):
    pass


@tool(ephemeral=1)
def look() -> str:
    """Look."""
    return "x" * 8_000


@tool
def read() -> str:
    """Read what stays true."""
    return "y" * 20_000


async def test_an_agent_and_the_list_of_sessions_agree_after_clear_history(tmp_path):
    used = AssistantMessage("ok", usage=Usage(1000, 100))
    with Saved(llm=ScriptedModel(used), session="s", session_dir=tmp_path) as agent:
        await agent.run("go")
        agent.clear_history()
        [info] = al.list_sessions(tmp_path)
        assert agent.usage == info.usage


async def test_ephemeral_results_are_pruned_immediately_if_nothing_is_cached():
    calls = (call("look"), call("read"))
    script = [AssistantMessage("", calls, usage=Usage(9000 * at, 100)) for at in range(4)]
    llm = ScriptedModel(*script, "done")
    await Agent(llm=llm, tools=[look, read]).run("go")
    results = [m for m in llm.requests[-1].messages if isinstance(m, al.ToolMessage)]
    looks = [len(m.text) == 8_000 for m in results if m.tool_name == "look"]
    assert looks == [False, False, False, True]


async def test_a_timeout_while_waiting_for_a_connection_raises_model_error():
    own = httpx.AsyncClient(limits=httpx.Limits(max_connections=1))
    bounds = {"connect_timeout": 0.2, "read_timeout": 0.2, "timeout": None, "max_retries": 0}
    async with FaultServer([send(stream_head()), stall()]) as server, own:
        llm = al.ChatOpenAI("m", base_url=server.url, client=own, **bounds)
        async with own.stream("POST", server.url):  # takes the only connection
            with pytest.raises(ModelError):
                await asyncio.wait_for(llm.ainvoke([]), 5)
