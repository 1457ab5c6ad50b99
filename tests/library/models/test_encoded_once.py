"""A request encodes only new messages and sends the same bytes as a complete encoding."""

import gc
import sys
from copy import copy
from dataclasses import replace

import pytest

from agentloop import Agent, Tool
from agentloop.messages import AssistantMessage, SystemMessage, ToolCall, ToolMessage, UserMessage
from agentloop.models import wire as wires
from agentloop.models.wire import encode_body
from tests.doubles.wires import ANTHROPIC, GOOGLE, OPENAI, RESPONSES, WIRES
from tests.properties import given, settings, st

from .helpers import HI, PDF, PNG, TOOLS, body_of

THINKING = {"type": "thinking", "thinking": "hm", "signature": "s"}
SEARCH = {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}}
SEARCH_RESULT = {"type": "web_search_tool_result", "tool_use_id": "s", "content": []}


def encode_request(llm, messages):
    return encode_body(llm.body(messages, TOOLS, "auto", False))


def turn(number, size=1, **fields):
    """Return a reply with a call, followed by the result of the call."""
    called = ToolCall(f"c{number}", "time", '{"zone": "x"}')
    reply = AssistantMessage(f"I look. {number}", (called,), **fields)
    return [reply, called.answer(f"at noon {number}" * size)]


contents = st.sampled_from(["hello", "", " ", "ünï ☃", (PNG,), ("a", PDF), ()])
blocks = st.lists(st.sampled_from([THINKING, SEARCH, SEARCH_RESULT]), unique_by=id, max_size=3)


@st.composite
def turns(draw):
    """A turn: a reply with its results, a user message, or both."""
    text, count = draw(st.sampled_from(["", "so"])), draw(st.integers(0, 2))
    calls = tuple(ToolCall(f"{draw(st.uuids())}", "time") for _ in range(count))
    own = [*draw(blocks), {"type": "text", "text": text}, *[{"type": "tool_use"}] * count]
    raw = draw(st.sampled_from([None, {"provider": "anthropic", "content": own}, {"x": "other"}]))
    results = [call.answer(draw(contents)) for call in calls]
    after = [UserMessage(words) for words in draw(st.lists(contents, max_size=1))]
    return [AssistantMessage(text, calls, raw=raw), *results, *after]


@settings(max_examples=100, deadline=None)
@given(st.sampled_from(WIRES), st.lists(turns(), max_size=8), st.booleans())
def test_cached_encoding_produces_the_same_bytes_as_encoding_every_message(
    wire, history, has_system
):
    llm = wire.model("http://x")
    messages = [*[SystemMessage("s")] * has_system, *HI]
    for added in history:
        for message in added:
            messages.append(message)
            assert encode_request(llm, messages) == encode_request(
                llm, [copy(item) for item in messages]
            )


def test_a_pending_search_is_left_out_once_the_turn_has_ended():
    calls = (ToolCall("c1", "time"),)
    raw = {"provider": "anthropic", "content": [SEARCH, {"type": "tool_use"}]}
    turn = [*HI, AssistantMessage(tool_calls=calls, raw=raw), calls[0].answer("noon")]
    llm = ANTHROPIC.model("http://x")
    continued, ended = (
        body_of(llm, messages) for messages in (turn, [*turn, AssistantMessage("so"), *HI])
    )
    assert SEARCH in continued["messages"][1]["content"]
    assert SEARCH not in ended["messages"][1]["content"]


@settings(max_examples=200, deadline=None)
@given(st.sampled_from([ANTHROPIC, GOOGLE]), st.lists(turns(), max_size=8), st.booleans())
def test_roles_alternate_and_start_with_the_user_even_with_empty_replies(wire, history, has_system):
    messages = [message for added in history for message in added]
    body = body_of(wire.model("http://x"), [*[SystemMessage("s")] * has_system, *messages])
    roles = [message["role"] for message in body.get("messages") or body["contents"]]
    model = "assistant" if wire is ANTHROPIC else "model"
    assert roles == [("user", model)[at % 2] for at in range(len(roles))]
    assert roles


def test_the_encoding_work_per_request_is_constant(wire, monkeypatch):
    sizes = []

    def to_json(value, **options):
        result = encode(value, **options)
        sizes[-1] += len(result)
        return result

    encode = wires.to_json
    monkeypatch.setattr(wires, "to_json", to_json)
    llm = wire.model("http://x")
    messages = [UserMessage("a long prompt " * 2000)]
    for number in range(1000, 1200):
        asks, result = turn(number, size=50)
        messages += [replace(asks, content=""), result, AssistantMessage(f"so {number}"), *HI]
        sizes.append(0)
        whole = encode_request(llm, [SystemMessage("s"), *messages])  # a new one, as agents send it
    assert sizes[-1] == sizes[10] < len(whole) / 10


def test_the_schemas_of_tools_are_rewritten_once(wire):
    def calls_of(properties):
        """Count the calls of Python functions in a later request."""
        schema = {"type": "object", "properties": {f"p{n}": {"type": "array"} for n in properties}}
        own = [Tool(name, "Does it.", schema) for name in ("one", "two")]
        encode_body(llm.body(HI, own, "auto", False))
        events = []
        sys.setprofile(lambda frame, event, argument: events.append(event))
        try:
            encode_body(llm.body(HI, own, "auto", False))
        finally:
            sys.setprofile(None)
        return events.count("call")

    llm = wire.model("http://x")
    assert calls_of(range(40)) == calls_of(range(4))


def test_a_result_that_is_pruned_later_is_encoded_again(wire):
    llm = wire.model("http://x")
    messages = [*HI, *[message for number in range(9) for message in turn(number)]]
    assert b"at noon 2" in encode_request(llm, messages)
    messages[6] = replace(messages[6], content="[removed]")
    later = encode_request(llm, messages)
    assert b"at noon 2" not in later
    assert b"[removed]" in later


def test_alternating_models_send_only_their_own_reasoning():
    raw = {"provider": "openai", "reasoning_content": "mine"}
    first, other = OPENAI.model("http://x"), OPENAI.model("http://y")
    owner = first.read({"choices": [{"message": {"reasoning_content": "mine"}}]}).raw["owner"]
    messages = [*HI, *turn(1, raw=raw | {"owner": owner}), *turn(2)]
    for _ in range(2):
        assert b"mine" in encode_request(first, messages)
        assert b"mine" not in encode_request(other, messages)
        assert "input" in body_of(RESPONSES.model("http://x"), messages)


def test_a_fork_reuses_the_encoded_messages_of_its_original(wire, monkeypatch):
    llm = wire.model("http://x")
    agent = Agent(llm=llm)
    for number in range(50):
        for record in [*HI, *turn(number, size=50)]:
            agent.record(record)
    whole = encode_request(llm, agent.messages)
    written = []
    encode = wires.to_json
    monkeypatch.setattr(
        wires, "to_json", lambda *value, **options: written.append(0) or encode(*value, **options)
    )
    assert encode_request(llm, agent.fork().messages) == whole
    assert len(written) < 50


@pytest.mark.parametrize("answered", [True, False])
def test_a_server_tool_call_is_kept_only_if_a_later_reply_contains_its_result(answered):
    def own(number, *blocks):
        content = [*blocks, {"type": "text", "text": f"I look. {number}"}, {"type": "tool_use"}]
        return turn(number, raw={"provider": "anthropic", "content": content})

    llm = ANTHROPIC.model("http://x")
    messages = [*HI, *own(1, SEARCH), *own(2, *[SEARCH_RESULT] * answered)]
    assert b"server_tool_use" in encode_request(llm, messages[:3])
    for number in range(3, 9):
        messages += own(number)
        assert (b"server_tool_use" in encode_request(llm, messages)) == answered


def test_encoded_messages_are_released_with_their_log(wire):
    llm = wire.model("http://x")
    messages = [*HI, *[message for number in range(9) for message in turn(number)]]
    encode_request(llm, messages)
    remaining = messages[8:9]  # a message does not keep later messages alive
    gc.disable()
    try:
        del messages
        alive = [record for record in gc.get_objects() if isinstance(record, ToolMessage)]
        assert {record.text for record in alive if "at noon" in record.text} <= {remaining[0].text}
    finally:
        gc.enable()
