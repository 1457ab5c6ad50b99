"""Identical conversations with every provider, streamed or not, produce identical logs."""

import json
from itertools import permutations

import pytest

from agentloop.messages import AssistantMessage, ToolCall, ToolMessage
from agentloop.models.google import UNSIGNED
from agentloop.models.scripted import ScriptedModel
from tests import some
from tests.doubles.openai_double import Reply
from tests.doubles.wires import CONVERSATIONS, KEY, TOOLS, WIRES, as_message, hold

from .helpers import HI, agent_of, ask, body_of, serving


@pytest.mark.parametrize("talk", some(CONVERSATIONS, 10), ids=lambda talk: talk.name)
async def test_a_conversation_produces_the_same_log_with_every_provider(talk, wire, streaming):
    script = [as_message(reply) for reply in talk.script]
    expected = await hold(talk, ScriptedModel(*script))
    double = wire.double(talk.script, system=talk.system or None, secrets=[KEY])
    async with double as server, wire.model(server, **talk.settings.get(wire.name, {})) as llm:
        held = await hold(talk, llm, streaming)
    assert held.log == expected.log
    assert held.results == expected.results
    assert (server.refusals, server.prefix_breaks, server.replies) == ([], [], [])
    texts = "".join(message.text for message in script)
    thoughts = "".join(message.thinking or "" for message in script)
    assert (held.texts, held.thoughts) == ((texts, thoughts) if streaming else ("", ""))


FINISH_REASONS = {
    "openai": "stop",
    "responses": "completed",
    "anthropic": "end_turn",
    "google": "STOP",
}


async def test_a_reply_keeps_the_finish_reason_of_the_provider(wire, streaming):
    async with wire.double([Reply("Hello.")]) as server, wire.model(server) as llm:
        reply = await ask(llm, streaming)
    assert (reply.finish_reason, reply.stop_reason) == (FINISH_REASONS[wire.name], "end")


# ---- switching providers

FIRST = [
    Reply("I add.", thinking="two sums", calls=[("add", {"a": 1, "b": 2}, "a.b|" + "long" * 20)]),
    Reply(thinking="hm", calls=[("look", {}, "c2"), ("fail", {}, "c3")]),
]
SECOND = [Reply(thinking="mine", calls=[("add", {"a": 3, "b": 4}, "c2")]), Reply("7.")]


@pytest.mark.parametrize(
    "pair", [*permutations(WIRES, 2)], ids=lambda pair: f"{pair[0].name} to {pair[1].name}"
)
async def test_a_conversation_switches_providers_during_a_turn_and_returns(pair, streaming):
    async with pair[0].double(FIRST) as first, pair[1].double(SECOND) as second:
        first_llm, second_llm = (
            wire.model(double, **wire.thinks)
            for wire, double in zip(pair, (first, second), strict=True)
        )
        agent = agent_of(first_llm, streaming, TOOLS)
        with pytest.raises(Exception, match="no more replies"):
            await agent.run("Add.")  # the turn continues with the other provider
        first.replies, first.refusals = ["bye"], []
        agent.llm = second_llm
        assert (await agent.run()).text == "7."
        agent.llm = first_llm
        own = opaque(agent, pair[0].name)
        assert (await agent.run("Thanks.")).text == "bye"
        assert (first.refusals, second.refusals) == ([], [])
    assert own
    assert all(text in json.dumps(first.requests[-1]) for text in own)
    assert not [text for text in own if text in json.dumps(second.requests)]
    foreign = opaque(agent, pair[1].name)
    assert not [text for text in foreign if text in json.dumps(first.requests)]
    for request in (second.requests[0], first.requests[-1]):
        assert "I add." in json.dumps(request)


def opaque(agent, provider):
    """Return the opaque texts of one provider, such as thinking and signatures, as JSON."""
    raws = [m.raw for m in agent.log if isinstance(m, AssistantMessage) and m.raw]
    texts = [text for raw in raws if raw["provider"] == provider for text in strings(raw)]
    words = {"thinking", "text", "I add.", UNSIGNED, provider, "function", "tool_use"}
    words |= {"reasoning", "summary_text"}
    return [json.dumps(text)[1:-1] for text in texts if text not in words and len(text) > 5]


def strings(value):
    if isinstance(value, dict):
        if value.get("type") in ("function_call", "message"):
            return []
        value = [item for key, item in value.items() if key not in ("functionCall", "owner")]
    if isinstance(value, list):
        return [text for item in value for text in strings(item)]
    return [value] if isinstance(value, str) else []


@pytest.mark.parametrize(
    "ids", [["", ""], ["a", "a"], [None, "call"], ["call", "call", "call_2"], [7, "b", "b"]]
)
async def test_every_call_gets_a_unique_id(ids, wire, streaming):
    script = [Reply(calls=[("now", {}, call_id) for call_id in ids])] * 2
    async with wire.double([*script, "Noon."]) as server, wire.model(server) as llm:
        agent = agent_of(llm, streaming, TOOLS)
        await agent.run("When?")
        call_ids = [call.id for call in agent.messages[1].tool_calls]
        assert all(call_ids)
        assert len(set(call_ids)) == len(ids)
    assert (server.refusals, server.prefix_breaks) == ([], [])


async def test_lone_surrogates_in_a_reply_are_replaced(wire, streaming):
    odd = "half \ud83d, whole \ud83d\ude00, \udc00 no more"
    text = "half \ufffd, whole 😀, \ufffd no more"
    call = ToolCall("c1", "echo", json.dumps({"text": text}, ensure_ascii=False))
    reply = Reply(odd, thinking=odd, calls=[("echo", {"text": odd}, "c1")])
    content = wire.stream(reply) if streaming else wire.answer(reply)
    async with serving(content) as server, wire.model(server) as llm:
        message = await ask(llm, streaming, tools=TOOLS)
        assert (message.text, message.thinking, message.tool_calls) == (text, text, (call,))
        sent = [*HI, message, ToolMessage("c1", "echo", "x")]
        json.dumps(body_of(llm, sent, TOOLS), ensure_ascii=False).encode()


@pytest.mark.parametrize(
    "arguments",
    [
        '{"a":',
        "",
        "  ",
        "[]",
        "5",
        '"x"',
        "null",
        '{"x": NaN}',
        pytest.param("[" * 5_000 + "]" * 5_000, id="deep"),
    ],
)
async def test_malformed_arguments_do_not_break_the_conversation(arguments, wire, streaming):
    script = [Reply(calls=[("echo", arguments, "c1")]), "done"]
    async with wire.double(script) as server, wire.model(server) as llm:
        agent = agent_of(llm, streaming, TOOLS)
        assert (await agent.run("Well?")).text == "done"
        assert agent.messages[2].is_error
    assert server.refusals == []


@pytest.mark.parametrize("name", ["", "a.b", "über", "x" * 80, "a b", "default_api:now"])
async def test_an_invented_tool_name_does_not_break_the_conversation(name, wire):
    async with wire.double([Reply(calls=[(name, {}, "c1")]), "done"]) as server:
        assert (await agent_of(wire.model(server), False, TOOLS).run("Well?")).text == "done"
        assert (server.refusals, server.prefix_breaks) == ([], [])


async def test_equal_conversations_are_sent_as_equal_bytes(wire):
    talk = CONVERSATIONS[2]
    async with wire.double(talk.script) as server, wire.model(server) as llm:
        held = await hold(talk, llm)
    async with serving(*[wire.answer()] * 2) as server:
        for _ in range(2):
            await ask(wire.model(server), messages=held.agent.messages[:-1], tools=TOOLS)
    [(_, first), (_, second)] = server.requests
    assert first == second
