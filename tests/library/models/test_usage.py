"""Usage as reported by real servers, including failed attempts: unknown usage is not zero."""

import asyncio
from dataclasses import replace

import pytest

from agentloop import ModelError
from agentloop.common.prices import cost_of
from agentloop.messages import Usage
from agentloop.models.anthropic import read_anthropic_usage
from agentloop.models.completions import read_openai_usage
from agentloop.models.fallback import Fallback
from agentloop.models.google import read_google_usage
from agentloop.transcript import RunEnd, SideRequest
from tests.doubles.fault_server import FaultServer, answer, chunk, fin, send, stall, stream_head
from tests.doubles.wires import GOOGLE, OPENAI, RESPONSES

from .helpers import agent_of, ask, serving

READ = [
    (read_openai_usage, "prompt_tokens", "completion_tokens"),
    (read_openai_usage, "input_tokens", "output_tokens"),
    (read_anthropic_usage, "input_tokens", "output_tokens"),
    (read_google_usage, "promptTokenCount", "candidatesTokenCount"),
]


@pytest.mark.parametrize("junk", ["10", None, -5, 1.5, float("nan"), float("inf"), [], {}])
@pytest.mark.parametrize(("read", "input_name", "output_name"), READ)
def test_invalid_counts_are_read_as_zero(read, input_name, output_name, junk):
    assert read({input_name: junk, output_name: 7}) == Usage(0, 7)
    assert read({input_name: 7, output_name: junk}) == Usage(7, 0)
    assert read({}) is None


RESPONSES_USAGE = {
    "input_tokens": 100,
    "input_tokens_details": {"cached_tokens": 60, "cache_write_tokens": 30},
    "output_tokens": 50,
    "output_tokens_details": {"reasoning_tokens": 40},
    "total_tokens": 150,
}
ANTHROPIC_USAGE = {
    "input_tokens": 5,
    "cache_read_input_tokens": 80,
    "cache_creation_input_tokens": 15,
    "output_tokens": 50,
    "output_tokens_details": {"thinking_tokens": 30},
    "server_tool_use": None,
    "cache_creation": {"ephemeral_1h_input_tokens": 12, "ephemeral_5m_input_tokens": 3},
}
GOOGLE_USAGE = {
    "promptTokenCount": 100,
    "cachedContentTokenCount": 80,
    "candidatesTokenCount": 50,
    "thoughtsTokenCount": 30,
    "toolUsePromptTokenCount": 7,
    "totalTokenCount": 187,
}


@pytest.mark.parametrize(
    ("read", "reported", "usage"),
    [
        (read_openai_usage, RESPONSES_USAGE, Usage(100, 50, 60, 30, 40)),
        (read_openai_usage, {"input_tokens": 1, "output_tokens": None}, Usage(1)),
        (read_anthropic_usage, ANTHROPIC_USAGE, Usage(100, 50, 80, 15, 30)),
        (read_google_usage, GOOGLE_USAGE, Usage(107, 80, 80, 0, 30)),
    ],
)
def test_tokens_are_counted_once(read, reported, usage):
    counted = read(reported)
    assert counted == replace(usage, extra=reported.get("cache_creation"))


def test_values_that_are_not_counts_are_left_out_of_the_details():
    usage = {"input_tokens": 1, "cache_creation": {"ephemeral_5m_input_tokens": "\ud800", "x": 2}}
    assert read_anthropic_usage(usage).extra == {"x": 2}  # a session couldn't store the text


# ---- failed attempts


def truncated_stream(wire):
    """Return a stream truncated after its first event, and the input tokens in this event."""
    first = wire.frames()[0]
    if wire is OPENAI:  # a server that reports usage continuously
        first = b'data: {"choices": [], "usage": {"prompt_tokens": 10}}\n\n'
    if wire is GOOGLE:
        first = b'data: {"usageMetadata": {"promptTokenCount": 10}, "candidates": [{"content":'
        first += b'{"parts": [{"text": ""}]}}]}\n\n'
    return stream_head() + chunk(first), None if wire is RESPONSES else 10


def side_requests(agent):
    return [record for record in agent.log if isinstance(record, SideRequest)]


def cost(agent):
    return cost_of(agent.conversation.requests, lambda model, usage: 1.0)


async def test_the_known_usage_of_a_truncated_stream_is_counted(wire):
    partial, tokens = truncated_stream(wire)
    async with FaultServer([send(partial), fin()], [send(wire.stream()), fin()]) as server:
        agent = agent_of(Fallback(wire.model(server)))
        assert await agent.query("go") == "hello"
    [failed] = side_requests(agent)
    assert (failed.usage and failed.usage.input_tokens, failed.model) == (tokens, wire.model_name)
    assert len(agent.conversation.requests) == 2
    assert cost(agent) == (2.0 if tokens else None)


async def test_the_received_text_of_a_truncated_stream_is_recorded(wire):
    frames = wire.frames()
    last = max(at for at, frame in enumerate(frames) if b'"o"' in frame)
    partial = stream_head() + b"".join(map(chunk, frames[: last + 1]))
    async with FaultServer([send(partial), fin()]) as server:
        agent = agent_of(wire.model(server, max_retries=0))
        with pytest.raises(ModelError):
            await agent.run("go")
    [failed] = side_requests(agent)
    assert (failed.text, failed.purpose) == ("hello", "failed attempt")


async def test_the_last_failed_attempt_and_a_cancelled_attempt_are_counted(wire):
    partial, _ = truncated_stream(wire)
    async with FaultServer([send(partial), fin()], [send(partial), stall()]) as server:
        agent = agent_of(wire.model(server, max_retries=0))
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
async def test_a_rejected_request_costs_nothing(wire, status):
    async with serving(answer("no", status)) as server:
        agent = agent_of(wire.model(server, max_retries=0), streaming=False)
        with pytest.raises(ModelError):
            await agent.run("go")
    with pytest.raises(ModelError):  # the server no longer exists
        await agent.run()
    assert side_requests(agent) == []


async def test_a_request_without_a_response_has_an_unknown_cost(wire):
    async with FaultServer([stall()]) as server:
        agent = agent_of(wire.model(server, max_retries=0, read_timeout=0.02), streaming=False)
        with pytest.raises(ModelError, match="ReadTimeout"):
            await agent.run("go")
    [failed] = side_requests(agent)
    assert (failed.usage, failed.model, cost(agent)) == (None, wire.model_name, None)


async def test_a_failed_request_outside_of_a_run_is_not_recorded(wire):
    partial, _ = truncated_stream(wire)
    async with FaultServer(*[[send(partial), fin()]] * 2) as server:
        agent = agent_of(wire.model(server, max_retries=0))
        with pytest.raises(ModelError):
            await agent.run("go")
        with pytest.raises(ModelError):
            await ask(agent.llm, True, agent.messages)
    assert len(side_requests(agent)) == 1
