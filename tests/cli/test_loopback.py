"""The server that plays a script, as a provider reads and checks it."""

import json

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


async def test_it_says_what_the_script_says_and_refuses_what_a_provider_would():
    log, said, shown = [UserMessage("go")], [], []
    with loopback(SCRIPT) as base_url:
        async with ChatOpenAI("scripted", base_url=base_url, api_key="k") as llm:
            for _ in SCRIPT:
                said.append(reply := await llm.ainvoke(log, [add], on_delta=shown.append))
                log += [reply, *(ToolMessage(c.id, c.name, "x") for c in reply.tool_calls)]
            for bad in ([*log, UserMessage("and?")], [*log[:2], log[2]]):
                with pytest.raises(BadRequest, match="script is over, or a call has not one"):
                    await llm.ainvoke(bad, [add], on_delta=shown.append)
    assert [reply.content for reply in said] == ["I add  them.\n", "", "Done: \U0001f600."]
    calls = [[(c.name, json.loads(c.arguments)) for c in reply.tool_calls] for reply in said]
    assert calls == [SCRIPT[0][1:], SCRIPT[1], []]
    assert [reply.stop_reason for reply in said] == ["tool_calls", "tool_calls", "end"]
    assert all(reply.usage.input_tokens and reply.usage.output_tokens for reply in said)
    pieces = [each.content for each in shown if isinstance(each, TextDeltaEvent)]
    assert pieces == ["I ", "add  ", "them.\n", "Done: ", "\U0001f600."]
