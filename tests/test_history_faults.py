"""What goes wrong with histories in programs of this kind: a test for each fault."""

import json
from dataclasses import replace
from itertools import pairwise

import pytest

from agentloop import (
    Agent,
    AssistantMessage,
    ChatAnthropic,
    ChatOpenAI,
    ContextWindowExceeded,
    Loop,
    ScriptedModel,
    ToolCall,
    ToolMessage,
    UserMessage,
    assert_prefix_stable,
)
from agentloop.models.http import error_class
from agentloop.models.scripted import call
from agentloop.transcript import view

from .test_loop import add


def dump(model, messages, tools=()):
    """A request as bytes."""
    return json.dumps(model.body(messages, tools, "auto", False), separators=(",", ":")).encode()


@pytest.mark.parametrize(
    ("status", "said"),
    [
        (400, "context_length_exceeded: This model's maximum context length is 128000 tokens."),
        (400, "invalid_request_error: prompt is too long: 210000 tokens > 200000 maximum"),
        (413, "request_too_large: Request exceeds the maximum size"),
        (400, "The input token count (1200000) exceeds the maximum number of tokens allowed"),
        (400, "model_context_window_exceeded"),
        (400, "the request exceeds the available context size, try increasing it"),
    ],
)
def test_h08_a_context_that_is_too_long_is_known_by_many_spellings(status, said):
    assert error_class(status, said) is ContextWindowExceeded


async def test_h08_it_is_compacted_once_tried_once_more_and_then_raised():
    too_long = ContextWindowExceeded("prompt is too long")
    llm = ScriptedModel(call("add", a=1, b=1), too_long, "SUMMARY", too_long, "never")
    with pytest.raises(ContextWindowExceeded):
        await Agent(llm=llm, tools=[add]).query("x")
    assert len(llm.requests) == 4


@pytest.mark.parametrize("blank", ["\n", " ", ""])
def test_h09_blank_text_is_left_out_on_anthropics_wire_and_kept_in_the_log(blank):
    history = [
        UserMessage("x"),
        AssistantMessage(blank, tool_calls=(ToolCall("a", "t"),)),
        ToolMessage("a", "t", blank),
        UserMessage(blank),
    ]
    body = ChatAnthropic("m", api_key="k").body(history, (), "auto", False)
    blocks = [
        block
        for message in body["messages"]
        if not isinstance(message["content"], str)
        for block in message["content"]
    ]
    assert not any(b["type"] == "text" and not b["text"].strip() for b in blocks)
    assert all(m["content"] for m in body["messages"])
    agent = Loop(llm=ScriptedModel())
    agent.load_history(history)
    assert agent.messages == history


def test_h10_a_result_without_a_call_is_dropped():
    assert view([ToolMessage("a", "t", "orphan"), UserMessage("x")]) == [UserMessage("x")]


def test_h11_of_two_results_for_a_call_the_first_counts():
    log = [
        UserMessage("x"),
        AssistantMessage(tool_calls=(ToolCall("a", "t"),)),
        ToolMessage("a", "t", "first"),
        ToolMessage("a", "t", "second"),
    ]
    assert view(log) == log[:3]


async def test_h13_tools_and_system_prompt_are_the_same_bytes_from_turn_to_turn():
    llm = ScriptedModel(*(call("add", a=n, b=n) for n in range(5)), "ok")
    await Agent(llm=llm, tools=[add], system_prompt="Be good.").query("x")
    assert_prefix_stable(llm.requests)
    model = ChatOpenAI("m", api_key="k")
    bodies = [dump(model, r.messages, r.tools) for r in llm.requests]
    for before, after in pairwise(bodies):
        start, _, end = before.partition(b"]")
        assert after.startswith(start)
        assert after.endswith(end[end.index(b'"tools"') :])


async def test_h14_what_a_caller_does_to_the_messages_does_nothing_to_the_agent():
    history = [UserMessage("a"), AssistantMessage("b")]
    one, two = Loop(llm=ScriptedModel("1")), Loop(llm=ScriptedModel("2"))
    one.load_history(history)
    two.load_history(history)
    history.append(UserMessage("evil"))
    one.messages.append(UserMessage("evil"))
    assert (await one.query("c"), await two.query("c")) == ("1", "2")
    assert [m.text for m in one.messages] == ["a", "b", "c", "1"]
    assert [m.text for m in two.messages] == ["a", "b", "c", "2"]


def test_h15_another_providers_blocks_stay_at_home():
    raw = {"provider": "anthropic", "content": [{"type": "thinking", "signature": "secret"}]}
    said = AssistantMessage("hi", raw=raw, thinking="hm")
    body = dump(ChatOpenAI("m", api_key="k"), [UserMessage("x"), said])
    assert b"signature" not in body
    back = replace(said, raw={"provider": "openai", "reasoning": "mine"})
    assert b"mine" not in dump(ChatAnthropic("m", api_key="k"), [UserMessage("x"), back])
