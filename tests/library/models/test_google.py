"""ChatGoogle: request bodies, and parsing of realistic Gemini replies."""

import json
from copy import deepcopy
from dataclasses import replace

import httpx
import pytest
import respx
from pydantic import BaseModel

from agentloop import tool
from agentloop.common.records import dump_record, load_record
from agentloop.errors import BadRequest
from agentloop.messages import AssistantMessage, TextPart, ToolCall, ToolMessage, Usage, UserMessage
from agentloop.models.google import (
    UNSIGNED,
    ChatGoogle,
    GoogleChunks,
    write_schema,
)
from agentloop.transcript import with_unique_ids
from tests.doubles.fault_server import answer, chunk, stream_head
from tests.doubles.google_double import GoogleDouble, sse
from tests.doubles.openai_double import Reply, calls
from tests.doubles.wires import GOOGLE

from .helpers import CALLED, HI, TOOLS, agent_of, ask, body_of, conversation, sent_body, serving

model = GOOGLE.model
read = ChatGoogle("m", api_key="k", base_url="http://x").read
OK = {"candidates": [{"content": {"parts": [{"text": "hello"}]}, "finishReason": "STOP"}]}


def a_chunk(*parts, finish=None, **rest):
    candidate = {"content": {"role": "model", "parts": list(parts)}}
    return {"candidates": [candidate | ({"finishReason": finish} if finish else {})], **rest}


def sent_by_server(body, streaming):
    return stream_head() + chunk(sse(body)) + chunk(b"") if streaming else answer(body)


def assemble(*chunks):
    whole = GoogleChunks()
    for data in chunks:
        whole.add(data)
    return read(whole.reply())


def contents(*messages):
    """Return the `contents` of a request with these messages."""
    return body_of(model("http://x"), messages)["contents"]


def call_part(name="f", **call):
    return {"functionCall": {"name": name, "args": {}, **call}}


# ---- the request


async def test_an_output_schema_is_sent():
    schema = {"type": "object", "properties": {"n": {"type": "integer", "exclusiveMinimum": 0}}}
    body = await sent_body(GOOGLE, HI, output_schema=schema)
    plain = {"type": "object", "properties": {"n": {"type": "integer"}}}
    config = {"responseMimeType": "application/json", "responseJsonSchema": plain}
    assert body["generationConfig"] == config


@pytest.mark.parametrize(
    ("name", "segment"),
    [
        ("models/gemini-3-pro", "gemini-3-pro"),
        ("../../v1/x?key=1#a", "..%2F..%2Fv1%2Fx%3Fkey%3D1%23a"),
        ("a:countTokens", "a%3AcountTokens"),
        ("..", ".."),
        ("a b\r\nx", "a%20b%0D%0Ax"),
    ],
)
async def test_the_model_name_is_escaped_in_the_path(name, segment):
    async with serving(answer(OK)) as server:
        llm = model(server, model=name)
        assert llm.path(False) == f"/v1beta/models/{segment}:generateContent"
        assert (await ask(llm)).text == "hello"


async def test_a_conversation_with_calls_is_valid_for_the_provider():
    contents = (await sent_body(GOOGLE, conversation(), TOOLS, system="s"))["contents"]
    assert [content["role"] for content in contents] == ["user", "model", "user", "model", "user"]
    weather = {"id": "a", "name": "weather", "args": {"city": "Bern"}}
    assert contents[1]["parts"] == [
        {"text": "I look"},
        {"functionCall": weather, "thoughtSignature": UNSIGNED},
        {"functionCall": {"id": "b", "name": "time", "args": {}}},
    ]
    assert [part["functionResponse"] for part in contents[2]["parts"]] == [
        {"id": "a", "name": "weather", "response": {"output": "sunny"}},
        {"id": "b", "name": "time", "response": {"error": "no clock"}},
    ]


async def test_empty_texts_are_omitted_and_adjacent_messages_of_one_role_are_merged():
    empty = UserMessage([TextPart(""), TextPart("look")])
    wire = contents(*HI, AssistantMessage(), empty, UserMessage(""), *HI)
    assert wire == [{"role": "user", "parts": [{"text": t} for t in ("hi", "look", "hi")]}]
    # the first message must have the user role
    first = [{"role": "user", "parts": [{"text": "(empty)"}]}]
    assert contents(UserMessage("")) == first
    assert contents(AssistantMessage("a"))[:1] == first
    turn = [*HI, CALLED, ToolMessage("a", "time", ""), UserMessage("and?")]
    body = await sent_body(GOOGLE, turn, TOOLS)
    assert [len(content["parts"]) for content in body["contents"]] == [1, 1, 2]


def test_unsupported_schema_keywords_are_removed_for_gemini():
    kinds = {"anyOf": [], "discriminator": {"propertyName": "kind", "mapping": {"a": "A"}}}
    number = {"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 9, "multipleOf": 0.5}
    unique = {"type": "array", "items": {"type": "string"}}  # the schema of a set
    schema = {
        "type": "object",
        "properties": {
            "place": {"$ref": "#/$defs/Place", "description": "Where."},
            "plain": {"$ref": "#/$defs/Place"},
            "const": {"const": "x", "type": "string"},
            "any": {"anyOf": [{"const": 1}, {"type": "null"}], "default": {"ref": 2}},
            "multipleOf": number,
            "uniqueItems": unique | {"uniqueItems": True},
            "discriminator": kinds,
        },
        "additionalProperties": False,
        "$defs": {"Place": {"type": "object", "properties": {"$ref": {"type": "string"}}}},
    }
    before = json.dumps(schema)
    assert write_schema(schema) == schema | {
        "properties": {
            "place": {"anyOf": [{"$ref": "#/$defs/Place"}], "description": "Where."},
            "plain": {"$ref": "#/$defs/Place"},
            "const": {"enum": ["x"], "type": "string"},
            "any": {"anyOf": [{"enum": [1]}, {"type": "null"}], "default": {"ref": 2}},
            "multipleOf": {"type": "number"},
            "uniqueItems": unique,
            "discriminator": {"anyOf": []},
        }
    }
    assert json.dumps(schema) == before


async def test_gemini_gets_no_titles_of_nested_types():
    # it calls them, which is malformed: https://github.com/googleapis/python-genai/issues/1732
    class Page(BaseModel):
        title: str

    def publish(pages: list[Page]) -> None:
        """Publish pages."""

    body = await sent_body(GOOGLE, HI, [tool(publish)])
    [declared] = body["tools"][0]["functionDeclarations"]
    page = {"properties": {"title": {"type": "string"}}, "required": ["title"], "type": "object"}
    assert declared["parametersJsonSchema"]["$defs"] == {"Page": page}


def test_unknown_parts_and_fields_are_preserved():
    parts = [
        {"executableCode": {"language": "PYTHON", "code": "1"}},
        {"text": "a", "zzz": {"x": 1}},
        call_part(id="x") | {"zzz": 3},
        {"zzz": "new"},
    ]
    reply = load_record(dump_record(read(a_chunk(*deepcopy(parts), finish="STOP"))))
    assert reply.text == "a"
    wire = contents(reply)[1]["parts"]
    wire[2].pop("thoughtSignature")
    assert wire == parts


# ---- the reply


def test_a_refusal_without_content_has_the_reason_of_the_provider():
    reply = read({"candidates": [{"finishReason": "SAFETY"}]})
    assert (reply.text, reply.stop_reason) == ("", "refused")
    assert reply.finish_reason == "SAFETY"
    assert len(contents(reply)) == 1


@pytest.mark.parametrize("more", [{}, {"candidates": [{"finishReason": None}]}])
async def test_a_blocked_prompt_is_a_refusal(more, streaming):
    body = {"promptFeedback": {"blockReason": "SPII"}, "usageMetadata": {"promptTokenCount": 7}}
    body |= more
    async with serving(sent_by_server(body, streaming)) as server:
        reply = await ask(model(server), streaming)
    assert (reply.text, reply.stop_reason, reply.usage) == ("", "refused", Usage(7))
    assert reply.finish_reason == "SPII"
    assert len(contents(reply)) == 1


@pytest.mark.parametrize(
    "body",
    [
        {"candidates": None, "promptFeedback": {}},
        {"candidates": [{}], "usageMetadata": {"promptTokenCount": 7}},
        {"candidates": [{"content": {"role": "model"}, "finishReason": "MALFORMED_RESPONSE"}]},
        {"candidates": [{"content": {"parts": [5]}, "finishReason": "STOP"}]},
    ],
)
async def test_a_reply_without_a_message_is_requested_again(body, streaming):
    async with serving(sent_by_server(body, streaming), answer(OK)) as server:
        reply = await ask(model(server), streaming)
        assert (reply.text, len(server.requests)) == ("hello", 2)


@pytest.mark.parametrize(
    ("reply", "expected"),
    [
        (Reply(finish="MALFORMED_FUNCTION_CALL"), "no tool named 'malformed_function_call'"),
        (Reply("So", finish="TOO_MANY_TOOL_CALLS"), "no tool named 'too_many_tool_calls'"),
        (Reply(finish="UNEXPECTED_TOOL_CALL", calls=[("zzz", {})]), "no tool named 'zzz'"),
        (Reply(finish="UNEXPECTED_TOOL_CALL", calls=[("clock", {})]), "invalid JSON"),
    ],
)
async def test_a_call_that_gemini_rejects_is_an_error_result_and_the_run_continues(
    reply, expected, streaming
):
    @tool
    async def clock() -> str:
        """Return the time."""
        raise AssertionError("it ran")

    async with GoogleDouble([reply, "done"]) as server:
        assert await agent_of(model(server), streaming, [clock]).query("When?") == "done"
        assert (server.refusals, server.prefix_breaks) == ([], [])
    [answered] = server.requests[1]["contents"][2]["parts"]
    assert expected in answered["functionResponse"]["response"]["error"]


def test_the_error_message_of_a_malformed_call_becomes_its_arguments():
    message = "Malformed function call: print(default_api.f(x"
    candidate = {"finishReason": "MALFORMED_FUNCTION_CALL", "finishMessage": message}
    for reply in (read({"candidates": [candidate]}), assemble({"candidates": [candidate]})):
        assert reply.tool_calls == (ToolCall("", "malformed_function_call", message),)


# ---- streams


def test_the_last_value_of_each_usage_count_in_a_stream_is_used():
    counts = [{"thoughtsTokenCount": 3}, {"candidatesTokenCount": 1}, {"candidatesTokenCount": 2}]
    used = [{"usageMetadata": {"promptTokenCount": 9, **count}} for count in counts]
    reply = assemble(
        a_chunk({"text": "a"}, **used[0]),
        a_chunk({"text": "b"}, **used[1]),
        a_chunk(finish="STOP"),
        used[2],
    )
    assert reply.usage == Usage(9, 5, reasoning_tokens=3)


def test_streamed_text_parts_are_merged_except_signed_parts():
    thought = {"text": "h", "thought": True}
    reply = assemble(
        a_chunk(thought),
        a_chunk({"text": "m", "thought": True}),
        a_chunk({"text": "a"}),
        a_chunk({"text": "b", "thoughtSignature": "MQ=="}),
        a_chunk({"text": "c"}, {"text": "d"}),
        a_chunk(call_part()),
        a_chunk({"text": ""}),
        a_chunk({"text": "", "thoughtSignature": "Mg=="}, finish="STOP"),
    )
    assert (reply.text, reply.thinking, len(reply.tool_calls)) == ("abcd", "hm", 1)
    assert reply.raw["parts"] == [
        {"text": "hm", "thought": True},
        {"text": "a"},
        {"text": "b", "thoughtSignature": "MQ=="},
        {"text": "cd"},
        {"functionCall": {"name": "f"}},
        {"text": "", "thoughtSignature": "Mg=="},
    ]


def test_a_reply_keeps_its_parts_only_if_the_message_lacks_something():
    parts = [{"text": "hm", "thought": True}, {"text": "so"}, call_part()]
    assert assemble(a_chunk(*parts, finish="STOP")).raw is None
    parts[1]["thoughtSignature"] = "MQ=="
    assert assemble(a_chunk(*parts, finish="STOP")).raw["parts"] == parts


# ---- signatures and alternative addresses


async def test_the_double_requires_its_thought_signatures():
    async with GoogleDouble([calls(("time", {})), "never"]) as server:
        llm = model(server)
        reply = with_unique_ids(await ask(llm, tools=TOOLS), set())
        forged = json.loads(json.dumps(reply.raw).replace("c2lnbmF0dXJlIDE=", "Zm9yZ2Vk"))
        result = ToolMessage(reply.tool_calls[0].id, "time", "1")
        for raw, words in ((None, "missing a thought_signature"), (forged, "Corrupted")):
            with pytest.raises(BadRequest, match=words):
                await ask(llm, messages=[*HI, replace(reply, raw=raw), result], tools=TOOLS)
        assert server.replies == ["never"]


async def test_signatures_are_sent_only_to_their_server():
    # "Corrupted thought signature": the Gemini API and Vertex AI reject each other's
    # Source: https://github.com/BerriAI/litellm/issues/32140
    async with GoogleDouble([calls(("time", {}))]) as one, GoogleDouble(["noon"]) as other:
        reply = with_unique_ids(await ask(model(one), tools=TOOLS), set())
        saved = load_record(dump_record(reply))
        turn = [*HI, saved, ToolMessage(reply.tool_calls[0].id, "time", "1")]
        assert (await ask(model(other), messages=turn, tools=TOOLS)).text == "noon"
    sent = other.requests[0]["contents"][1]["parts"]
    assert [part["thoughtSignature"] for part in sent] == [UNSIGNED]


async def test_vertex_has_another_address_and_omits_the_tool_config_for_mixed_tools():
    url, version = "https://aiplatform.googleapis.com", "v1/publishers/google"
    llm = ChatGoogle("gemini-3-pro", api_key="k", base_url=url, api_version=version)
    with respx.mock(base_url=url) as mock:
        path = "/v1/publishers/google/models/gemini-3-pro:generateContent"
        mock.post(path).mock(return_value=httpx.Response(200, json=OK))
        async with llm:
            assert (await ask(llm)).text == "hello"
    both = replace(llm, provider_tools=[{"googleSearch": {}}])
    assert "toolConfig" not in body_of(both, HI, TOOLS)
