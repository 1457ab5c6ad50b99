"""The same conversations over every wire, streamed and not, leave the same log."""

import json
from itertools import permutations

import pytest

from agentloop import Agent
from agentloop.errors import BadRequest
from agentloop.messages import AssistantMessage, ToolCall, ToolMessage, UserMessage
from agentloop.models.google import UNSIGNED
from agentloop.models.scripted import ScriptedModel
from tests.doubles.fault_server import FaultServer, answer, fin, send
from tests.doubles.openai_double import Reply
from tests.doubles.wires import CONVERSATIONS, KEY, THINKS, TOOLS, WIRES, as_message, hold


@pytest.mark.parametrize("streaming", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("wire", WIRES, ids=lambda wire: wire.name)
@pytest.mark.parametrize("talk", CONVERSATIONS, ids=lambda talk: talk.name)
async def test_a_conversation_leaves_the_same_log_whatever_it_goes_over(talk, wire, streaming):
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


# ---- from one provider to another

FIRST = [
    Reply("I add.", thinking="two sums", calls=[("add", {"a": 1, "b": 2}, "a.b|" + "long" * 20)]),
    Reply(thinking="hm", calls=[("look", {}, "c2"), ("fail", {}, "c3")]),
]
SECOND = [Reply(thinking="mine", calls=[("add", {"a": 3, "b": 4}, "c2")]), Reply("7.")]


@pytest.mark.parametrize("streaming", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize(
    "pair", [*permutations(WIRES, 2)], ids=lambda pair: f"{pair[0].name} to {pair[1].name}"
)
async def test_a_conversation_moves_to_another_provider_amid_a_turn_and_back(pair, streaming):
    async with pair[0].double([*FIRST, "bye"]) as one, pair[1].double(SECOND) as two:
        here, there = (
            wire.model(double, **THINKS.get(wire.name, {}))
            for wire, double in zip(pair, (one, two), strict=True)
        )
        agent = Agent(llm=here, tools=TOOLS, max_iterations=2)
        agent.listeners = [lambda _: None] if streaming else []
        script = one.replies
        one.replies = script[:2]
        with pytest.raises(Exception, match="no more replies"):
            await agent.run("Add.")  # the turn ends on its results, and goes on elsewhere
        one.replies, one.refusals = script[2:], []
        agent.llm = there
        assert (await agent.run()).text == "7."
        agent.llm = here
        opaque = _opaque(agent, pair[0].name)
        assert (await agent.run("Thanks.")).text == "bye"
        assert (one.refusals, two.refusals) == ([], [])
        await here.aclose()
        await there.aclose()
    assert opaque
    assert all(json.dumps(text)[1:-1] not in json.dumps(two.requests) for text in opaque)
    assert all(json.dumps(text)[1:-1] in json.dumps(one.requests[-1]) for text in opaque)
    foreign = _opaque(agent, pair[1].name)
    assert all(json.dumps(text)[1:-1] not in json.dumps(one.requests) for text in foreign)
    for request in (two.requests[0], one.requests[-1]):
        assert "I add." in json.dumps(request)


def _opaque(agent, provider):
    """The texts that one provider gave us for itself: thoughts, and signatures."""
    raws = [m.raw for m in agent.log if isinstance(m, AssistantMessage) and m.raw]
    found = [text for raw in raws if raw["provider"] == provider for text in _strings(raw)]
    words = {"thinking", "text", "I add.", UNSIGNED, provider, "function", "tool_use"}
    words |= {"reasoning", "summary_text"}
    return [text for text in found if text not in words and len(text) > 5]


def _strings(value):
    if isinstance(value, dict):
        if value.get("type") in ("function_call", "message"):
            return []
        keep = (item for key, item in value.items() if key not in ("functionCall", "owner"))
        return [text for item in keep for text in _strings(item)]
    if isinstance(value, list):
        return [text for item in value for text in _strings(item)]
    return [value] if isinstance(value, str) else []


@pytest.mark.parametrize("streaming", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("wire", WIRES, ids=lambda wire: wire.name)
@pytest.mark.parametrize(
    "ids", [["", ""], ["a", "a"], [None, "call"], ["call", "call", "call_2"], [7, "b", "b"]]
)
async def test_every_call_gets_an_id_of_its_own(ids, wire, streaming):
    script = [Reply(calls=[("now", {}, one) for one in ids])] * 2
    async with wire.double([*script, "Noon."]) as server, wire.model(server) as llm:
        agent = Agent(llm=llm, tools=TOOLS)
        agent.listeners = [lambda _: None] if streaming else []
        await agent.run("When?")
        reply = agent.messages[1]
        assert isinstance(reply, AssistantMessage)
        found = [call.id for call in reply.tool_calls]
        assert all(found)
        assert len(set(found)) == len(ids)
    assert (server.refusals, server.prefix_breaks) == ([], [])


@pytest.mark.parametrize("streaming", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("wire", WIRES, ids=lambda wire: wire.name)
async def test_what_no_request_can_carry_does_not_come_back(wire, streaming):
    odd = "half \ud83d, whole \ud83d\ude00, \udc00 no more"
    text = "half \ufffd, whole 😀, \ufffd no more"
    call = ToolCall("c1", "echo", json.dumps({"text": text}, ensure_ascii=False))
    reply = Reply(odd, thinking=odd, calls=[("echo", {"text": odd}, "c1")])
    content = wire.stream(reply) if streaming else wire.answer(reply)
    async with FaultServer([send(content)]) as server, wire.model(server) as llm:
        on_delta = (lambda _: None) if streaming else None
        message = await llm.ainvoke([UserMessage("hi")], TOOLS, on_delta=on_delta)
        assert (message.text, message.thinking, message.tool_calls) == (text, text, (call,))
        sent = [UserMessage("hi"), message, ToolMessage("c1", "echo", "x")]
        json.dumps(llm.body(sent, TOOLS, "auto", False), ensure_ascii=False).encode()


@pytest.mark.parametrize("streaming", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("wire", WIRES, ids=lambda wire: wire.name)
@pytest.mark.parametrize(
    "arguments",
    [
        *('{"a":', "", "  ", "[]", "5", '"x"', "null", '{"x": NaN}'),
        pytest.param("[" * 5_000 + "]" * 5_000, id="deep"),
    ],
)
async def test_malformed_arguments_do_not_poison_the_conversation(arguments, wire, streaming):
    script = [Reply(calls=[("echo", arguments, "c1")]), "done"]
    async with wire.double(script) as server, wire.model(server) as llm:
        agent = Agent(llm=llm, tools=TOOLS)
        agent.listeners = [lambda _: None] if streaming else []
        assert (await agent.run("Well?")).text == "done"
        result = agent.messages[2]
        assert isinstance(result, ToolMessage)
        assert result.is_error
    assert server.refusals == []


@pytest.mark.parametrize("wire", WIRES, ids=lambda wire: wire.name)
@pytest.mark.parametrize("name", ["", "a.b", "über", "x" * 80, "a b", "default_api:now"])
async def test_a_name_that_the_model_made_up_does_not_poison_the_conversation(name, wire):
    script = [Reply(calls=[(name, {}, "c1")]), "done"]
    async with wire.double(script) as server, wire.model(server) as llm:
        agent = Agent(llm=llm, tools=TOOLS)
        assert (await agent.run("Well?")).text == "done"
        assert (server.refusals, server.prefix_breaks) == ([], [])


@pytest.mark.parametrize("wire", WIRES, ids=lambda wire: wire.name)
async def test_the_same_conversation_is_the_same_bytes(wire):
    talk = CONVERSATIONS[2]
    async with wire.double(talk.script) as server, wire.model(server) as llm:
        held = await hold(talk, llm)
    async with FaultServer(*[[send(answer("no", 400)), fin()]] * 2) as server:
        for _ in range(2):
            with pytest.raises(BadRequest):
                await wire.model(server).ainvoke([*held.agent.messages[:-1]], TOOLS)
        assert server.requests[0][1] == server.requests[1][1]
