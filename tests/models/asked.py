"""What the models are asked in the tests of each wire: tools, messages, a conversation."""

from types import SimpleNamespace

from agentloop.messages import (
    AssistantMessage,
    ImagePart,
    SystemMessage,
    ToolCall,
    ToolMessage,
    UserMessage,
)

HI = [UserMessage("hi")]
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
PNG = ImagePart(data=b"\x00\xff", media_type="image/png")


def fake_tool(name="weather", parameters=SCHEMA):
    return SimpleNamespace(name=name, description=f"The {name}.", parameters=parameters)


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


async def sent(wire, messages, tools=(), tool_choice="auto", *, system=None, **settings):
    """The request that the strict double of a wire gets, and takes, from its model."""
    async with wire.double(["a"], system=system) as server, wire.model(server, **settings) as llm:
        await llm.ainvoke(messages, tools, tool_choice=tool_choice)
    return server.requests[0]
