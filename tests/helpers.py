"""Helpers for the tests of mixins and toolkits."""

import asyncio
from math import inf

from agentloop import ContextWindowExceeded, ScriptedModel, ToolError, ToolMessage, tool
from agentloop.common.tokens import message_tokens
from agentloop.mixins.compaction import SUMMARY_PROMPT
from agentloop.models.scripted import call


def words(tokens):
    """Return a text with an estimated length of `tokens` tokens."""
    return "word " * tokens


@tool("Read a lot")
async def read(n: int) -> str:
    return f"{n} " + words(375)


def record_all(agent, records):
    """Record an earlier history in an agent."""
    for record in records:
        agent.record(record)


def raises(*_):
    raise ToolError("broken")


async def late(*_):
    await asyncio.Event().wait()


def bash(command):
    return call("bash", command=command)


def acting(*script, kind, **settings):
    """Return an agent with three tools, one of them read-only, and the executed calls."""
    ran = []

    @tool("Run a command")
    def bash(command: str) -> str:
        if command == "fail":
            raise LookupError(command)
        ran.append(command)
        return f"ran {command}"

    @tool("Write a file")
    def write(path: str, text: str = "") -> str:
        ran.append(path)
        return f"wrote {path}"

    @tool("Look at something", read_only=True)
    def look(at: str) -> str:
        ran.append(at)
        return f"saw {at}"

    return kind(llm=ScriptedModel(*script), tools=[bash, write, look], **settings), ran


def results(agent):
    """Return the texts of all tool results."""
    return [message.text for message in agent.messages if isinstance(message, ToolMessage)]


def summarizing(*replies, summary="SUMMARY", window=inf):
    """Return a model that summarizes on request, rejects long requests, and replays replies."""
    script = iter(replies)

    def answer(messages, tools):
        if sum(map(message_tokens, messages)) > window:
            return ContextWindowExceeded("prompt is too long")
        return summary if messages[-1].text == SUMMARY_PROMPT else next(script)

    return ScriptedModel(answer)
