"""Conversations as Chat Completions dicts: a round trip preserves everything."""

import json

import pytest

from agentloop import Agent, ScriptedModel, from_openai, to_openai
from agentloop.common.records import dump_record, load_record
from agentloop.messages import (
    AssistantMessage,
    FilePart,
    ImagePart,
    SystemMessage,
    TextPart,
    ToolCall,
    ToolMessage,
    UserMessage,
)
from agentloop.mixins.histories import Histories
from tests.doubles.wires import CONVERSATIONS, OPENAI, hold


def round_trip(dicts):
    """Read dicts as loaded from a file, and convert them back to dicts."""
    return to_openai(from_openai(json.loads(json.dumps(dicts))))


@pytest.mark.parametrize("talk", CONVERSATIONS, ids=lambda talk: talk.name)
async def test_a_conversation_is_unchanged_after_a_round_trip(talk):
    async with OPENAI.double(talk.script) as server, OPENAI.model(server) as llm:
        held = await hold(talk, llm)
    requests = [request["messages"] for request in server.requests]
    for sent in [*requests, to_openai(held.agent.messages)]:
        assert round_trip(sent) == sent
    other = Agent(llm=ScriptedModel("ok"))
    other.load_history(from_openai(to_openai(held.agent.messages)))
    assert to_openai(other.messages) == to_openai(held.agent.messages)


@pytest.mark.parametrize(
    "message",
    [
        {"role": "assistant", "refusal": [1.5]},
        {"role": "assistant", "annotations": [{"url": b"x"}]},
        {
            "role": "user",
            "content": [{"type": "input_audio", "input_audio": {"data": 1, "format": 1}}],
        },
    ],
    ids=str,
)
def test_a_message_with_invalid_values_is_an_error(message):
    with pytest.raises(ValueError, match="Chat Completions message"):
        from_openai([message])


def test_ids_names_and_thinking_of_any_type_are_converted_to_text():
    reasons = {"role": "assistant", "content": "a", "reasoning_content": {"at": "\ud800"}}
    result = {"role": "tool", "tool_call_id": [5], "name": 6, "content": "b"}
    read = from_openai([reasons, result])
    assert [load_record(dump_record(message)) for message in read] == read


def test_images_files_audio_and_calls_are_read():
    call = ToolCall("call_1", "add", '{"a": 1}')
    parts = [
        TextPart("look"),
        ImagePart(url="https://x/y.png", extra={"detail": "low"}),
        FilePart(url="data:application/pdf;base64,JVBERg==", name="a.pdf"),
        FilePart(data=b"x", media_type="audio/mpeg"),
    ]
    messages = [
        SystemMessage("Be brief."),
        UserMessage(parts),
        AssistantMessage("I add.", (call,), stop_reason="tool_calls"),
        ToolMessage("call_1", "add", "3"),
        AssistantMessage("3"),
    ]
    assert from_openai(to_openai(messages)) == messages


def test_messages_stored_by_other_programs_are_read():
    stored = [
        {"role": "developer", "content": [{"type": "text", "text": "Be brief."}]},
        {"role": "user", "content": [{"type": "text", "text": "hi"}], "name": "anna"},
        {"role": "assistant", "content": [{"type": "text", "text": "hello"}], "refusal": None},
        {"role": "assistant", "content": None, "refusal": "I can't."},
        {"role": "assistant", "content": [{"type": "refusal", "refusal": "No."}]},
        {"role": "tool", "tool_call_id": "gone", "content": "late", "name": "look"},
    ]
    assert from_openai(stored) == [
        SystemMessage("Be brief."),
        UserMessage([TextPart("hi")]),
        AssistantMessage("hello"),
        AssistantMessage("I can't.", stop_reason="refused"),
        AssistantMessage("No."),
        ToolMessage("gone", "look", "late"),
    ]


def test_results_without_ids_are_matched_with_calls_without_ids_in_order():
    def calls(*names):
        entries = [{"function": {"name": name, "arguments": {"n": 1}}} for name in names]
        return {"role": "assistant", "content": "", "tool_calls": entries}

    stored = [
        {"role": "user", "content": "Pay both."},
        calls("pay", "post"),
        {"role": "tool", "content": "paid"},
        {"role": "tool", "tool_call_id": None, "content": "sent"},
        calls("pay"),
        {"role": "tool", "content": "paid again"},
    ]
    agent = Agent(llm=ScriptedModel("ok"))
    agent.load_history(from_openai(stored))
    results = [message for message in agent.messages if isinstance(message, ToolMessage)]
    assert [(result.tool_name, result.text) for result in results] == [
        ("pay", "paid"),
        ("post", "sent"),
        ("pay", "paid again"),
    ]


def test_the_thinking_of_a_stored_reply_is_preserved():
    stored = [{"role": "assistant", "content": "hello", "reasoning_content": "hm"}]
    assert from_openai(stored)[0].thinking == "hm"
    assert round_trip(stored) == stored


@pytest.mark.parametrize(
    ("message", "words"),
    [
        ({"content": "hi"}, "Chat Completions message: {'content': 'hi'}"),
        ({"role": "zzz", "content": "hi"}, "Chat Completions message"),
        ({"role": "tool", "content": "3"}, "Chat Completions message"),
        ({"role": "user", "content": [{"type": "zzz"}]}, "part of a message: .*'zzz'"),
        ({"role": "user", "content": [{"type": "image_url"}]}, "part of a message"),
        (
            {"role": "user", "content": [{"type": "text", "text": None}]},
            "part of a message",
        ),
        ({"role": "user", "content": ["hi"]}, "part of a message: .*'hi'"),
        ({"role": "user", "content": 5}, "content of a message must be text or parts, not 5"),
        (None, "Chat Completions message: None"),
        ("hi", "Chat Completions message: 'hi'"),
    ],
)
def test_an_invalid_dict_is_quoted_in_the_error(message, words):
    with pytest.raises(ValueError, match=words):
        from_openai([message])


@pytest.mark.parametrize("stored", [{"role": "user", "content": "hi"}, UserMessage("hi")])
def test_load_history_accepts_dicts_and_messages(stored):
    agent = Agent(llm=ScriptedModel("ok"))
    agent.load_history([{"role": "system", "content": "Be brief."}, stored])
    assert agent.messages == (UserMessage("hi"),)


@pytest.mark.parametrize("loop", [Agent, Histories])
@pytest.mark.parametrize("junk", ["hi", 7, None, ("user", "hi")])
def test_a_history_of_another_type_is_an_error_that_names_the_function_to_use(loop, junk):
    with pytest.raises(TypeError, match="from_openai"):
        loop(llm=ScriptedModel()).load_history([junk])


def test_a_history_of_dicts_in_a_plain_mixin_is_an_error_that_names_the_function():
    with pytest.raises(TypeError, match="from_openai"):
        Histories(llm=ScriptedModel()).load_history([{"role": "user", "content": "hi"}])


def test_a_history_with_an_invalid_dict_keeps_the_old_history():
    agent = Agent(llm=ScriptedModel("ok"))
    agent.run_sync("hi")
    with pytest.raises(ValueError, match="'zzz'"):
        agent.load_history([{"role": "user", "content": "new"}, {"role": "zzz"}])
    assert agent.messages[0].text == "hi"
