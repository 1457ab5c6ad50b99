"""ChatOpenAI: what it sends, and what it makes of the replies that servers really give."""

import json
from typing import Any

import pytest

from agentloop.errors import BadRequest
from agentloop.messages import (
    AssistantMessage,
    FilePart,
    ImagePart,
    SystemMessage,
    TextPart,
    ToolCall,
    ToolMessage,
    Unknown,
    Usage,
    UserMessage,
)
from agentloop.models.http import Deltas
from agentloop.models.openai import (
    ChatOpenAI,
    OpenAIChunks,
    read_openai_reply,
    write_openai_messages,
)
from agentloop.models.responses import strict_schema
from agentloop.records import dump_record, load_record
from tests.doubles.fault_server import FaultServer, send, stream
from tests.doubles.openai_double import OpenAIDouble
from tests.doubles.wires import KEY, OPENAI
from tests.models.asked import HI, TOOLS, conversation, fake_tool, sent


def reply_to(message, finish="stop", **rest):
    return read_openai_reply({"choices": [{"message": message, "finish_reason": finish}], **rest})


def assemble(*chunks):
    whole = OpenAIChunks(Deltas(None))
    for chunk in chunks:
        whole.add(chunk)
    return read_openai_reply(whole.reply())


model = OPENAI.model
END = {"choices": [{"delta": {}, "finish_reason": "tool_calls"}]}


def write(*messages):
    return write_openai_messages(messages, "system")


# ---- the request


async def test_the_default_request_holds_nothing_that_was_not_asked_for():
    async with OpenAIDouble(["hello"]) as server:
        llm = model(server)
        assert (await llm.ainvoke([SystemMessage("be brief"), *HI])).text == "hello"
    messages = [{"role": "system", "content": "be brief"}, {"role": "user", "content": "hi"}]
    assert server.requests == [{"model": "m", "messages": messages}]
    assert server.headers[0]["authorization"] == f"Bearer {KEY}"
    assert server.headers[0]["content-type"] == "application/json"


async def test_settings_are_sent_when_set_even_if_they_are_zero():
    settings = {
        "temperature": 0,
        "max_completion_tokens": 9,
        "reasoning_effort": "low",
        "prompt_cache_key": "p",
        "parallel_tool_calls": False,
    }
    body = await sent(OPENAI, HI, TOOLS, **settings, extra={"seed": 4})
    assert {name: body[name] for name in settings} == settings
    assert body["seed"] == 4


async def test_the_system_prompt_can_have_the_role_of_the_developer():
    body = await sent(OPENAI, [SystemMessage("s"), *HI], system_role="developer", system="s")
    assert body["messages"][0]["role"] == "developer"


async def test_a_conversation_with_calls_is_one_that_the_provider_takes():
    wire = (await sent(OPENAI, conversation(), TOOLS, system="s"))["messages"]
    assert wire[2]["content"] == "I look"
    assert wire[2]["tool_calls"][1]["function"] == {"name": "time", "arguments": "{}"}
    assert wire[4] == {"role": "tool", "tool_call_id": "b", "content": "no clock"}


async def test_a_long_id_of_another_server_is_shortened_on_call_and_result_alike():
    long = "chatcmpl-tool-" + "0123456789abcdef" * 2
    turn = [AssistantMessage(tool_calls=(ToolCall(long, "time"),)), ToolMessage(long, "time", "1")]
    wire = (await sent(OPENAI, [*HI, *turn], TOOLS))["messages"]
    assert wire[1]["tool_calls"][0]["id"] == wire[2]["tool_call_id"] != long


async def test_content_is_null_when_there_are_only_calls_and_empty_replies_are_left_out():
    call = AssistantMessage(tool_calls=(ToolCall("a", "time"),))
    wire = write(*HI, AssistantMessage(), call, ToolMessage("a", "time", ""))
    assert [message["role"] for message in wire] == ["user", "assistant", "tool"]
    assert (wire[1]["content"], wire[2]["content"]) == (None, "")


async def test_images_and_files_are_carried():
    parts = [
        TextPart("look"),
        ImagePart(url="https://x/y.png"),
        ImagePart(data=b"\x00\xff", media_type="image/png"),
        FilePart(data=b"%PDF", media_type="application/pdf", name="a.pdf"),
    ]
    body = await sent(OPENAI, [UserMessage(parts)])
    pdf = "data:application/pdf;base64,JVBERg=="
    assert body["messages"][0]["content"] == [
        {"type": "text", "text": "look"},
        {"type": "image_url", "image_url": {"url": "https://x/y.png"}},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,AP8="}},
        {"type": "file", "file": {"filename": "a.pdf", "file_data": pdf}},
    ]


@pytest.mark.parametrize("part", [FilePart(url="https://x/y.pdf"), Unknown({"type": "zzz"})])
def test_what_cannot_be_carried_is_refused(part):
    with pytest.raises(BadRequest, match="Chat Completions"):
        write(UserMessage([part]))


async def test_images_in_tool_results_follow_after_the_last_result_of_the_turn():
    image = ImagePart(data=b"1", media_type="image/png")
    turn = [
        AssistantMessage(tool_calls=(ToolCall("a", "shot"), ToolCall("b", "time"))),
        ToolMessage("a", "shot", [TextPart("the page"), image]),
        ToolMessage("b", "time", "noon"),
    ]
    async with OpenAIDouble(["a", "b"]) as server:
        llm = model(server)
        reply = await llm.ainvoke([*HI, *turn], TOOLS)
        await llm.ainvoke([*HI, *turn, reply, UserMessage("and?")], TOOLS)
        assert server.prefix_breaks == []
    wire = server.requests[1]["messages"]
    roles = ["user", "assistant", "tool", "tool", "user", "assistant", "user"]
    assert [message["role"] for message in wire] == roles
    assert wire[2]["content"] == "the page\n[attached to the next user message: 1]"
    assert wire[4]["content"][0]["text"] == "Attached to the result of shot:"
    assert wire[4]["content"][1]["type"] == "image_url"


# ---- strict tools


def test_strict_parameters_are_all_required_and_optional_ones_nullable():
    schema = {
        "type": "object",
        "properties": {
            "a": {"type": "string"},
            "b": {"type": "integer", "default": 3, "description": "d"},
            "c": {"anyOf": [{"type": "string"}, {"type": "null"}], "default": None},
        },
        "required": ["a"],
    }
    before = json.dumps(schema)
    assert strict_schema(schema) == {
        "type": "object",
        "properties": {
            "a": {"type": "string"},
            "b": {"anyOf": [{"type": "integer", "description": "d"}, {"type": "null"}]},
            "c": {"anyOf": [{"type": "string"}, {"type": "null"}]},
        },
        "required": ["a", "b", "c"],
        "additionalProperties": False,
    }
    assert json.dumps(schema) == before


@pytest.mark.parametrize(
    "value",
    [
        {},
        {"type": "object"},
        {"type": "object", "additionalProperties": {"type": "string"}},
        {"type": "string", "minLength": 1},
        {"oneOf": [{"type": "string"}]},
        {"type": "array"},
        {"type": "array", "items": {}},
        {"$ref": "#/$defs/X", "description": "d"},
    ],
)
def test_a_schema_that_strict_mode_would_refuse_stays_as_it_is(value):
    schema = {"type": "object", "properties": {"a": value}, "required": ["a"]}
    assert strict_schema(schema) is None


async def test_strict_is_asked_for_tool_by_tool():
    loose = fake_tool("loose", {"type": "object", "properties": {"x": {}}})
    tools = [fake_tool(), loose]
    async with OpenAIDouble(["a", "a"]) as server:
        await model(server, strict=True).ainvoke(HI, tools)
        await model(server).ainvoke(HI, tools)
    strict = [[t["function"].get("strict") for t in r["tools"]] for r in server.requests]
    assert strict == [[True, None], [None, None]]


# ---- the reply


@pytest.mark.parametrize(
    ("message", "text"),
    [
        ({"content": "a"}, "a"),
        ({"content": None}, ""),
        ({}, ""),
        ({"content": [{"type": "text", "text": "a"}, {"type": "zzz"}, {"text": "b"}, 5]}, "ab"),
        ({"content": "a\ud83d\ude00\ud83d"}, "a😀\ufffd"),
    ],
)
def test_content_comes_in_many_forms(message, text):
    assert reply_to(message).text == text


@pytest.mark.parametrize(
    ("finish", "reason"),
    [
        ("stop", "end"),
        ("tool_calls", "tool_calls"),
        ("length", "length"),
        ("content_filter", "refused"),
        ("zzz", "zzz"),
        (None, None),
    ],
)
def test_stop_reasons_have_one_vocabulary(finish: str | None, reason: str | None) -> None:
    assert reply_to({"content": "a"}, finish).stop_reason == reason


@pytest.mark.parametrize(
    ("finish", "reason"),
    [("stop", "tool_calls"), (None, "tool_calls"), ("length", "length"), ("zzz", "zzz")],
)
def test_a_stop_with_calls_is_for_the_calls(finish: Any, reason: str) -> None:
    message = {"tool_calls": [{"id": "a", "function": {"name": "f", "arguments": "{}"}}]}
    assert reply_to(message, finish).stop_reason == reason


def test_a_refusal_is_the_text_of_a_refused_reply():
    reply = reply_to({"content": None, "refusal": "I can't."})
    assert (reply.text, reply.stop_reason) == ("I can't.", "refused")


@pytest.mark.parametrize("name", ["reasoning_content", "reasoning"])
async def test_reasoning_goes_back_to_the_server_that_sent_it(name):
    reply = reply_to({"content": "a", name: "hm"})
    assert reply.thinking == "hm"
    assert reply.raw == {"provider": "openai", name: "hm"}
    again = load_record(dump_record(reply))
    assert write(again)[0] == {"role": "assistant", "content": "a", name: "hm"}


def test_empty_reasoning_goes_back_too_and_that_of_others_does_not():
    call = [{"id": "a", "function": {"name": "f", "arguments": "{}"}}]
    reply = reply_to({"content": None, "reasoning_content": "", "tool_calls": call})
    assert reply.thinking is None
    assert write(reply)[0]["reasoning_content"] == ""
    for raw in ({"provider": "other", "reasoning_content": "x"}, [1], "x", None):
        assert "reasoning_content" not in write(AssistantMessage("a", raw=raw))[0]


@pytest.mark.parametrize(
    ("arguments", "text"),
    [('{"a":1}', '{"a":1}'), ({"a": 1}, '{"a": 1}'), ("", ""), (None, ""), (" ", " ")],
)
def test_arguments_are_text_whatever_the_server_sends(arguments, text):
    message = {"tool_calls": [{"id": "a", "function": {"name": "f", "arguments": arguments}}]}
    assert reply_to(message).tool_calls[0].arguments == text


def test_tokens_are_counted_once():
    usage = {
        "prompt_tokens": 100,
        "completion_tokens": 50,
        "prompt_tokens_details": {"cached_tokens": 80},
        "completion_tokens_details": {"reasoning_tokens": 30},
    }
    read = reply_to({"content": "a"}, usage=usage).usage
    assert read == Usage(100, 50, cached_input_tokens=80, reasoning_tokens=30)
    assert read is not None
    assert read.total_tokens == 150


# ---- streams


@pytest.mark.parametrize("position", [0, 1, 2])
async def test_a_chunk_with_usage_and_no_choices_may_come_anywhere(position):
    chunks = [
        {"choices": [{"delta": {"content": "a"}}]},
        {"choices": [{"delta": {}, "finish_reason": "stop"}]},
    ]
    usage = {"prompt_tokens": 3, "completion_tokens": 4}
    chunks.insert(position, {"choices": [], "usage": usage})
    async with FaultServer([send(stream(*chunks))]) as server:
        reply = await ChatOpenAI("m", base_url=server.url).ainvoke(HI, on_delta=lambda _: None)
    assert (reply.text, reply.usage) == ("a", Usage(3, 4))


def piece(call_id, name, arguments, index=0):
    """A chunk with a part of a call; None is left out."""
    fields = {"name": name, "arguments": arguments}
    function = {key: value for key, value in fields.items() if value is not None}
    call = {"index": index, "id": call_id, "function": function}
    call = {key: value for key, value in call.items() if value is not None}
    return {"choices": [{"delta": {"tool_calls": [call]}}]}


CALLS = {
    "as documented": (
        [piece("a", "f", ""), piece(None, None, '{"x"'), piece(None, None, ":1}")],
        [("a", "f", '{"x":1}')],
    ),
    "interleaved": (
        [piece("a", "f", ""), piece("b", "g", "", 1), piece("", "", "{}"), piece("", "", "[]", 1)],
        [("a", "f", "{}"), ("b", "g", "[]")],
    ),
    "a name in pieces": (
        [piece("a", "get_", None), piece(None, "weather", None)],
        [("a", "get_weather", "")],
    ),
    "id and name repeated": (
        [piece("a", "f", '{"x"'), piece("a", "f", ":1}"), piece("a", "f", "")],
        [("a", "f", '{"x":1}')],
    ),
    "one index for two calls": (
        [piece("a", "f", "{}"), piece("b", "f", "{}")],
        [("a", "f", "{}"), ("b", "f", "{}")],
    ),
    "Gemini: one index and no ids": (
        [piece("", "f", '{"x":1}'), piece("", "f", '{"x":2}')],
        [("", "f", '{"x":1}'), ("", "f", '{"x":2}')],
    ),
    "no index": (
        [piece("a", "f", "{}", None), piece("b", "g", "{}", None)],
        [("a", "f", "{}"), ("b", "g", "{}")],
    ),
    "neither index nor id": (
        [piece(None, "f", '{"a', None), piece(None, None, '":1}', None)],
        [("", "f", '{"a":1}')],
    ),
    "arguments as an object": ([piece("a", "f", {"x": 1})], [("a", "f", '{"x": 1}')]),
    "another id in each piece": (
        [piece("a", "f", '{"x"'), piece("random", None, ":1}")],
        [("a", "f", '{"x":1}')],
    ),
    "a late id": ([piece(None, "f", "{}"), piece("late", "f", None)], [("late", "f", "{}")]),
    "gaps in the index": (
        [piece("b", "g", "{}", 1), piece("c", "h", "{}", 5)],
        [("b", "g", "{}"), ("c", "h", "{}")],
    ),
}


@pytest.mark.parametrize("case", CALLS)
def test_calls_are_put_together_as_servers_send_them(case):
    chunks, expected = CALLS[case]
    reply = assemble(*chunks, END)
    assert [(c.id, c.name, c.arguments) for c in reply.tool_calls] == expected
    assert reply.stop_reason == "tool_calls"


# ---- settings, other doubles


def test_the_address_comes_from_the_environment_or_is_that_of_openai(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "k")
    assert ChatOpenAI("m").base_url == "https://api.openai.com/v1"
    monkeypatch.setenv("OPENAI_BASE_URL", "http://local/v1/")
    assert ChatOpenAI(model="m").base_url == "http://local/v1"
    assert ChatOpenAI("m", base_url="http://here").base_url == "http://here"
    assert ChatOpenAI("m").headers() == {"authorization": "Bearer k"}
