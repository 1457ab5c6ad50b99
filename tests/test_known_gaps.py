"""What 0.1.0 did wrong, each as a case."""

import asyncio
import inspect
import os
import sys
from pathlib import Path

import httpx
import pytest

import agentloop as al
from agentloop import Agent, AssistantMessage, Loop, ModelError, ScriptedModel, Stop, Usage, tool
from agentloop.models.scripted import call
from agentloop.prices import Price
from agentloop.tokens import count_tokens
from agentloop.toolkits.subagent import as_tool
from tests.doubles.fault_server import FaultServer, send, stall, stream_head

ROOT = Path(__file__).parent.parent
SCRIPT = Path(sys.executable).with_name("agentloop")
KEY = "sk-very-secret-0123456789"
posix = pytest.mark.skipif(os.name != "posix", reason="needs links, modes or signals")


class Limited(al.Limits, Agent):
    pass


def used(*calls, tokens=1000):
    """A reply that tells how many tokens it took."""
    return AssistantMessage("" if calls else "ok", calls, usage=Usage(tokens, 100))


class Billed(al.Cost, al.Session, Agent):
    pass


@tool(ephemeral=1)
def look(size: int = 4) -> str:
    """Look."""
    return "x" * size


class Order(al.Tool):
    def __init__(self, ran, schema):
        super().__init__("order", parameters={"type": "object", **schema})
        self.ran = ran

    async def execute(self, args, overrides=None):
        self.ran.append(args)
        return "ordered"


@pytest.mark.parametrize(
    ("schema", "arguments"),
    [
        ({"properties": {"a": {"type": "integer"}}, "required": ["a"]}, {}),
        ({"properties": {"a": {"type": "integer"}}}, {"a": "x"}),
        ({"properties": {"a": {"enum": ["x", "y"]}}}, {"a": "z"}),
        ({"properties": {"a": {"const": 1}}}, {"a": 2}),
        ({"properties": {"a": {"type": "array", "items": {"type": "string"}}}}, {"a": [1]}),
        ({"properties": {"a": {"type": "object", "required": ["b"]}}}, {"a": {}}),
        ({"properties": {"a": {}}, "additionalProperties": False}, {"b": 1}),
    ],
)
def test_arguments_that_break_a_hand_written_schema_never_reach_the_tool(schema, arguments):
    ran, llm = [], ScriptedModel(call("order", **arguments), "ok")
    Agent(llm=llm, tools=[Order(ran, schema)]).run_sync("go")
    assert ran == []


async def test_the_requests_of_a_sub_agent_count_as_they_happen():
    counted, sub_model = [], ScriptedModel(*[call("note")] * 15, "found nothing")

    @tool
    def note() -> None:
        """Note what the sub-agent's parent has counted."""
        counted.append(sum(isinstance(record, al.messages.SideRequest) for record in boss.log))

    ask_sub = as_tool(Agent(llm=sub_model, tools=[note]), "ask_sub", "Let a sub-agent work.")
    script = call("ask_sub", prompt="go"), "done"
    boss = Limited(llm=ScriptedModel(*script), tools=[ask_sub], max_requests=2)
    result = await boss.run("go")
    assert result.stop_reason == "limit:requests"
    assert set(counted) <= {1}
    assert len(boss.llm.requests) + len(sub_model.requests) <= 2


async def test_no_request_goes_beyond_a_limit_after_a_failed_summary():
    def reply(messages, tools):
        asks_for_summary = "summar" in messages[-1].text.lower()
        return ModelError("down", status=400) if asks_for_summary else call("look", size=90_000)

    agent = type("A", (al.Limits, al.Compaction, Loop), {})(
        llm=ScriptedModel(reply),
        tools=[look],
        compaction=al.CompactionConfig(context_window=50_000, keep_turns=0),
        max_requests=3,
    )
    assert (await agent.run("go")).stop_reason == "limit:requests"
    assert len(agent.llm.requests) <= 3


class Redacting(Loop):
    async def finish(self, result):
        if result := await super().finish(result):
            return al.Result(result.text.replace("hunter2", "***"), None, result.stop_reason)
        return None


@tool
def pay() -> str:
    """Pay."""
    raise Stop("needs_approval", "It is hunter2.")


@pytest.mark.parametrize("script", [[call("pay")], [call("look"), "It is hunter2."]])
async def test_finish_sees_every_text_that_leaves_a_run(script):
    agent = Redacting(llm=ScriptedModel(*script), tools=[pay, look], max_iterations=1)
    assert (await agent.run("go")).text == "It is ***."


async def test_the_bills_of_an_agent_and_its_fork_add_up():
    prices = {"scripted": Price(input=1, output=1)}
    agent = Billed(llm=ScriptedModel(used(), used()), prices=prices)
    await agent.run("go")
    fork = agent.fork()
    await fork.run("go on")
    assert (agent.usage + fork.usage).total_tokens == 2200
    assert agent.cost + fork.cost == pytest.approx(0.0022)


async def test_an_agent_and_the_list_of_sessions_agree_after_clear_history(tmp_path):
    with Billed(llm=ScriptedModel(used()), session="s", session_dir=tmp_path) as agent:
        await agent.run("go")
        agent.clear_history()
        [info] = al.sessions(tmp_path)
        assert agent.usage == info.usage


@tool
def read() -> str:
    """Read what stays true."""
    return "y" * 20_000


async def test_where_nothing_is_cached_stale_results_go_at_once():
    turns = [(call("look", size=8000), call("read")) for _ in range(4)]
    llm = ScriptedModel(*[used(*calls, tokens=9000 * at) for at, calls in enumerate(turns)], "done")
    await Agent(llm=llm, tools=[look, read]).run("go")
    results = [each for each in llm.requests[-1].messages if isinstance(each, al.ToolMessage)]
    looks = [len(each.text) == 8000 for each in results if each.tool_name == "look"]
    assert looks == [False, False, False, True]


def test_count_tokens_takes_a_models_name():
    assert "model" in inspect.signature(count_tokens).parameters
    assert count_tokens("one two three", model="gpt-5") > 0


async def test_a_wait_for_a_free_connection_ends_with_an_error_of_ours():
    own = httpx.AsyncClient(limits=httpx.Limits(max_connections=1))
    bounds = {"connect_timeout": 0.2, "read_timeout": 0.2, "timeout": None, "max_retries": 0}
    async with FaultServer([send(stream_head()), stall()]) as server, own:
        llm = al.ChatOpenAI("m", base_url=server.url, client=own, **bounds)
        async with own.stream("POST", server.url):  # takes the only connection
            with pytest.raises((ModelError, TimeoutError)) as caught:
                await asyncio.wait_for(llm.ainvoke([]), 5)
    assert isinstance(caught.value, ModelError)
