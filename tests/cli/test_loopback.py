"""The server that plays a script, as a provider reads and checks it."""

import json
from dataclasses import replace

import pytest

from agentloop import BadRequest, ChatOpenAI, TextDeltaEvent, ToolMessage, UserMessage, tool
from agentloop.cli.loopback import loopback

SCRIPT = [
    ["I add  them.\n", ("add", {"a": 1, "b": 2}), ("add", {"a": 3, "b": '"é"'})],
    [("add", {})],
    "Done: \U0001f600.",
]


@tool("Adds two numbers.")
async def add(a: int, b: int) -> int:
    return a + b


async def replies(streams):
    """What the model makes of the whole script, and the text that it showed."""
    log, said, shown = [UserMessage("go")], [], []
    with loopback(SCRIPT) as base_url:
        async with ChatOpenAI("scripted", base_url=base_url, api_key="k") as llm:
            for _ in SCRIPT:
                reply = await llm.ainvoke(log, [add], on_delta=shown.append if streams else None)
                said.append(reply)
                log += [reply, *(ToolMessage(c.id, c.name, "x") for c in reply.tool_calls)]
            with pytest.raises(BadRequest, match="script ends"):
                await llm.ainvoke([*log, UserMessage("and?")], [add])
    return said, "".join(each.content for each in shown if isinstance(each, TextDeltaEvent))


async def test_it_says_what_the_script_says_streamed_or_not():
    (said, shown), (whole, nothing) = await replies(True), await replies(False)
    for before, after in zip(said, whole, strict=True):
        # a request that says that it wants a stream is the longer for it
        assert replace(before, usage=None) == replace(after, usage=None)
    assert [reply.content for reply in said] == ["I add  them.\n", "", "Done: \U0001f600."]
    calls = [[(c.name, json.loads(c.arguments)) for c in reply.tool_calls] for reply in said]
    assert calls == [SCRIPT[0][1:], SCRIPT[1], []]
    assert [reply.stop_reason for reply in said] == ["tool_calls", "tool_calls", "end"]
    assert all(reply.usage.input_tokens and reply.usage.output_tokens for reply in said)
    assert (shown, nothing) == ("I add  them.\nDone: \U0001f600.", "")


async def test_it_refuses_a_call_without_a_result():
    with loopback(SCRIPT) as base_url:
        async with ChatOpenAI("scripted", base_url=base_url, api_key="k") as llm:
            reply = await llm.ainvoke([UserMessage("go")], [add])
            one = ToolMessage(reply.tool_calls[0].id, "add", "3")
            with pytest.raises(BadRequest, match="not one result for each call"):
                await llm.ainvoke([UserMessage("go"), reply, one], [add])
