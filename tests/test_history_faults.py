"""What goes wrong with histories in programs of this kind: a test for each fault."""

import asyncio
import json
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentloop import (
    Agent,
    AssistantMessage,
    ChatAnthropic,
    ChatOpenAI,
    CompactionConfig,
    ContextWindowExceeded,
    Loop,
    PruneEvent,
    ScriptedModel,
    Summary,
    ToolCall,
    ToolMessage,
    ToolStart,
    UserMessage,
    assert_prefix_stable,
    tool,
    validate,
    view,
)
from agentloop.messages import Decision, RunStart
from agentloop.models.http import error_class
from agentloop.models.scripted import call
from agentloop.transcript import DENIED, NEVER_STARTED, OUTCOME_UNKNOWN, seal

from .test_loop import add, shown
from .test_transcript import logs


def dump(model, messages, tools=()):
    """A request as bytes."""
    return json.dumps(model.body(messages, tools, "auto", False), separators=(",", ":")).encode()


async def test_h01_a_cancel_between_a_call_and_its_result_leaves_a_history_that_is_accepted():
    started = asyncio.Event()

    @tool
    async def hang() -> None:
        """Hang."""
        started.set()
        await asyncio.Event().wait()

    llm = ScriptedModel([call("hang"), call("add", a=1, b=2)], "ok")
    agent = Loop(llm=llm, tools=[hang, add])
    run = asyncio.create_task(agent.run("x"))
    await started.wait()
    run.cancel()
    await asyncio.wait([run])
    assert validate([*agent.messages, UserMessage("go on")]) == []
    assert await agent.query("go on") == "ok"


def test_h02_a_sealed_call_says_what_is_known_of_it():
    calls = tuple(ToolCall(name, "t") for name in ("waiting", "started", "denied"))
    log = [AssistantMessage(tool_calls=calls), ToolStart("started"), Decision("denied", False)]
    assert [m.text for m in view(log)[1:]] == [NEVER_STARTED, OUTCOME_UNKNOWN, DENIED]
    assert len({NEVER_STARTED, OUTCOME_UNKNOWN, DENIED}) == 3


@given(logs)
def test_h03_sealing_is_idempotent_and_needs_no_clock(log):
    once = seal(log)
    assert seal(once) == once == seal(list(log))
    assert [p for p in validate([*once, UserMessage("x")]) if "call" in p or "result" in p] == []


@given(logs, st.data())
def test_h05_no_cut_separates_a_call_from_its_result(log, data):
    keep = data.draw(st.integers(0, len(log)))
    cut = view([UserMessage("task"), *log, Summary("so far", keep=keep + 1)])
    assert validate([*cut, UserMessage("x")]) == []


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


async def test_h12_pruning_breaks_the_prefix_a_few_times_in_30_turns_and_says_so():
    @tool(ephemeral=2)
    async def look(n: int) -> str:
        """Look."""
        return f"{n} " + "word " * 500

    llm = ScriptedModel(*(call("look", n=n) for n in range(30)), "ok")
    events = [event async for event in Agent(llm=llm, tools=[look]).query_stream("x")]
    prunes = sum(isinstance(event, PruneEvent) for event in events)
    assert 1 <= prunes <= 4
    assert_prefix_stable(llm.requests, breaks=prunes)
    shortest = min(len(request.messages) for request in llm.requests[1:])
    assert all("older result" not in text for r in llm.requests for text in shown(r)[-shortest:])


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


async def test_a_compaction_and_a_fork_and_a_reset_read_the_log_as_a_fresh_view_does():
    agent = Agent(
        llm=ScriptedModel(lambda m, t: "word " * 200),
        compaction=CompactionConfig(context_window=1_500),
    )
    for n in range(8):
        await agent.query(f"{n}")
        assert agent.messages == view(agent.log)
        assert agent.fork(at=n).messages == view(agent.log[:n])
    agent.clear_history()
    assert agent.messages == []
    agent.log += [RunStart(), UserMessage("put there by hand")]
    assert agent.messages == view(agent.log)
