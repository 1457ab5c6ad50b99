"""Shared requests for the tests of model wire formats: tools, messages, a conversation."""

import json

import pytest

from agentloop import Agent
from agentloop.messages import (
    AssistantMessage,
    FilePart,
    ImagePart,
    SystemMessage,
    ToolCall,
    ToolMessage,
    UserMessage,
)
from agentloop.models.wire import encode_body
from agentloop.tools import Tool
from tests.doubles.fault_server import FaultServer, send

HI = [UserMessage("hi")]
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
PNG = ImagePart(data=b"\x00\xff", media_type="image/png")
PDF = FilePart(data=b"%PDF", media_type="application/pdf", name="a.pdf")
CALLED, RESULT = (
    AssistantMessage(tool_calls=(ToolCall("a", "time"),)),
    ToolMessage("a", "time", "1"),
)


def fake_tool(name="weather", parameters=SCHEMA):
    return Tool(name, f"The {name}.", parameters)


TOOLS = [fake_tool(), fake_tool("time", {"type": "object", "properties": {}})]


def conversation():
    first = ToolCall("a", "weather", '{"city": "Bern"}')
    return [
        SystemMessage("s"),
        UserMessage("weather?"),
        AssistantMessage("I look", tool_calls=(first, ToolCall("b", "time", "null"))),
        ToolMessage("a", "weather", "sunny"),
        ToolMessage("b", "time", "no clock", is_error=True),
        AssistantMessage("It is sunny."),
        UserMessage("thanks"),
    ]


def for_wires(*wires):
    return pytest.mark.parametrize("wire", wires, ids=lambda wire: wire.name)


def serving(*answers):
    """Create a server that sends each answer on a separate connection."""
    return FaultServer(*[[send(answer)] for answer in answers])


async def ask(llm, streaming=False, messages=HI, tools=()):
    return await llm.ainvoke(messages, tools, on_delta=(lambda _: None) if streaming else None)


def agent_of(llm, streaming=True, tools=()):
    return Agent(llm=llm, tools=tools, listeners=[lambda _: None] if streaming else [])


def body_of(llm, messages, tools=(), tool_choice="auto"):
    """Return the request body as parsed by a server."""
    return json.loads(encode_body(llm.body(messages, tools, tool_choice, False)))


async def sent_body(wire, messages, tools=(), tool_choice="auto", *, system=None, **settings):
    """Send messages to the strict double of a wire and return the accepted request body."""
    async with wire.double(["a"], system=system) as server, wire.model(server, **settings) as llm:
        await llm.ainvoke(messages, tools, tool_choice=tool_choice)
    return server.requests[0]
