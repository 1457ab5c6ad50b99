"""Usage as servers really report it, also of attempts that failed: what is not known is no 0."""

import asyncio
from dataclasses import replace

import pytest

from agentloop import Agent, ModelError
from agentloop.messages import RunEnd, SideRequest, Usage
from agentloop.models import anthropic, google, openai
from agentloop.models.fallback import Fallback
from agentloop.models.wire import read_usage
from agentloop.prices import cost_of
from agentloop.transcript import requests_of
from tests.doubles.fault_server import FaultServer, answer, chunk, fin, send, stall, stream_head
from tests.doubles.wires import ANTHROPIC, GOOGLE, OPENAI, WIRES

JUNK = ["10", None, -5, 1.5, float("nan"), float("inf"), [], {}]
READ = [
    (openai.OPENAI_USAGE, "prompt_tokens", "completion_tokens"),
    (openai.OPENAI_USAGE, "input_tokens", "output_tokens"),
    (anthropic.ANTHROPIC_USAGE, "input_tokens", "output_tokens"),
    (google.GOOGLE_USAGE, "promptTokenCount", "candidatesTokenCount"),
]


@pytest.mark.parametrize("junk", JUNK)
@pytest.mark.parametrize(("names", "asked", "answered"), READ)
def test_junk_counts_as_nothing(names, asked, answered, junk):
    assert read_usage({asked: junk, answered: 7}, names) == Usage(0, 7)
    assert read_usage({asked: 7, answered: junk}, names) == Usage(7, 0)
    assert read_usage({}, names) is None


REPORTED = [
    (
        openai.OPENAI_USAGE,  # Responses
        {
            "input_tokens": 100,
            "input_tokens_details": {"cached_tokens": 60, "cache_write_tokens": 30},
            "output_tokens": 50,
            "output_tokens_details": {"reasoning_tokens": 40},
            "total_tokens": 150,
        },
        Usage(100, 50, 60, 30, 40),
    ),
    (openai.OPENAI_USAGE, {"input_tokens": 1, "output_tokens": None}, Usage(1)),
    (
        anthropic.ANTHROPIC_USAGE,
        {
            "input_tokens": 5,
            "cache_read_input_tokens": 80,
            "cache_creation_input_tokens": 15,
            "output_tokens": 50,
            "output_tokens_details": {"thinking_tokens": 30},
            "server_tool_use": None,
            "cache_creation": {"ephemeral_1h_input_tokens": 12, "ephemeral_5m_input_tokens": 3},
        },
        Usage(100, 50, 80, 15, 30),
    ),
    (
        google.GOOGLE_USAGE,
        {
            "promptTokenCount": 100,
            "cachedContentTokenCount": 80,
            "candidatesTokenCount": 50,
            "thoughtsTokenCount": 30,
            "toolUsePromptTokenCount": 7,
            "totalTokenCount": 187,
        },
        Usage(107, 80, 80, 0, 30),
    ),
]


@pytest.mark.parametrize(("names", "reported", "usage"), REPORTED)
def test_tokens_are_counted_once(names, reported, usage):
    found = read_usage(reported, names)
    assert found == replace(usage, extra=reported.get("cache_creation"))


# ---- attempts that failed


@pytest.fixture(params=WIRES, ids=lambda wire: wire.name)
def wire(request):
    return request.param


def started(wire):
    """A stream that was cut off after its first event, and the usage that is in that event."""
    first = wire.frames()[0]
    if wire is OPENAI:  # a server that reports as it goes
        first = b'data: {"choices": [], "usage": {"prompt_tokens": 10}}\n\n'
    if wire is GOOGLE:
        first = b'data: {"usageMetadata": {"promptTokenCount": 10}, "candidates": [{"content":'
        first += b'{"parts": [{"text": ""}]}}]}\n\n'
    known = wire in (OPENAI, ANTHROPIC, GOOGLE)
    return stream_head() + chunk(first), Usage(10) if known else None


def side_requests(agent):
    return [record for record in agent.log if isinstance(record, SideRequest)]


def listening(llm):
    agent = Agent(llm=llm)
    agent.listeners = [lambda _: None]
    return agent


async def test_a_stream_that_was_cut_off_is_counted_as_far_as_it_is_known(wire):
    begun, used = started(wire)
    async with FaultServer([send(begun), fin()], [send(wire.stream()), fin()]) as server:
        agent = listening(Fallback(wire.model(server)))
        assert await agent.query("go") == "hello"
    [failed] = side_requests(agent)
    assert (failed.usage or Usage()).input_tokens == (used or Usage()).input_tokens
    assert (failed.usage is None, failed.model) == (used is None, wire.model_name)
    requests = requests_of(agent.log)
    assert len(requests) == 2
    assert cost_of(requests, lambda model, usage: 1.0) == (2.0 if used else None)


async def test_the_last_attempt_is_counted_too_and_so_is_one_that_was_cancelled(wire):
    begun, _ = started(wire)
    async with FaultServer([send(begun), fin()], [send(begun), stall()]) as server:
        agent = listening(wire.model(server, max_retries=0))
        with pytest.raises(ModelError):
            await agent.run("go")
        task = asyncio.create_task(agent.run())
        while len(server.requests) < 2:
            await asyncio.sleep(0.001)
        agent.interrupt()
        assert (await task).stop_reason == "interrupted"
    assert len(side_requests(agent)) == 2
    assert isinstance(agent.log[-1], RunEnd)


@pytest.mark.parametrize("status", [400, 429, 503])
async def test_an_answer_that_says_no_costs_nothing(wire, status):
    async with FaultServer([send(answer("no", status))]) as server:
        port, agent = server.port, Agent(llm=wire.model(server, max_retries=0))
        with pytest.raises(ModelError):
            await agent.run("go")
    agent.llm = wire.model(f"http://127.0.0.1:{port}/v1", max_retries=1)  # nobody is there now
    with pytest.raises(ModelError):
        await agent.run()
    assert side_requests(agent) == []


async def test_a_request_that_was_never_answered_may_have_cost_something(wire):
    async with FaultServer([stall()]) as server:
        agent = Agent(llm=wire.model(server, max_retries=0, read_timeout=0.02))
        with pytest.raises(ModelError, match="ReadTimeout"):
            await agent.run("go")
    [failed] = side_requests(agent)
    assert (failed.usage, failed.model) == (None, wire.model_name)
    assert cost_of(requests_of(agent.log), lambda model, usage: 1.0) is None


async def test_a_model_that_is_asked_without_an_agent_tells_nobody(wire):
    begun, _ = started(wire)
    async with FaultServer([send(begun), fin()]) as server:
        agent = listening(wire.model(server, max_retries=0))
        with pytest.raises(ModelError):
            await agent.run("go")
        with pytest.raises(ModelError):
            await wire.model("http://127.0.0.1:9/v1", max_retries=0).ainvoke(agent.messages)
    assert len(side_requests(agent)) == 1
