"""ChatGoogle: what it sends, and what it makes of the replies that Gemini really gives."""

import json
from copy import deepcopy
from dataclasses import replace
from typing import Any

import httpx
import pytest
import respx

from agentloop import Agent, tool
from agentloop.errors import BadRequest
from agentloop.events import ToolCallDeltaEvent
from agentloop.messages import (
    AssistantMessage,
    FilePart,
    ImagePart,
    TextPart,
    ToolCall,
    ToolMessage,
    Usage,
    UserMessage,
)
from agentloop.models.google import (
    UNSIGNED,
    ChatGoogle,
    GoogleChunks,
    write_google_messages,
    write_schema,
)
from agentloop.records import dump_record, load_record
from agentloop.transcript import with_unique_ids
from tests.doubles.fault_server import FaultServer, answer, chunk, send, stream_head
from tests.doubles.google_double import GoogleDouble
from tests.doubles.openai_double import Reply, calls
from tests.doubles.wires import GOOGLE
from tests.models.asked import HI, PNG, TOOLS, conversation, sent

model = GOOGLE.model
read_google_reply = ChatGoogle("m", api_key="k").read
WIRE_PNG = {"inlineData": {"mimeType": "image/png", "data": "AP8="}}
SIGNED = {"thoughtSignature": "MQ=="}
OK = {"candidates": [{"content": {"parts": [{"text": "hello"}]}, "finishReason": "STOP"}]}


def reply_of(*parts, finish="STOP", **rest):
    candidate = {"content": {"role": "model", "parts": list(parts)}, "finishReason": finish}
    return read_google_reply({"candidates": [candidate], **rest})


def part_chunk(*parts, finish=None, **rest):
    candidate = {"content": {"role": "model", "parts": list(parts)}}
    return {"candidates": [candidate | ({"finishReason": finish} if finish else {})], **rest}


def sse(*events):
    return "".join(f"data: {json.dumps(event)}\r\n\r\n" for event in events).encode()


def streamed(*events):
    return stream_head() + chunk(sse(*events)) + chunk(b"")


def assemble(*chunks, on_delta=None):
    whole = GoogleChunks(on_delta)
    for each in chunks:
        whole.add(each)
    return read_google_reply(whole.reply())


def call_part(name="f", signature=None, **call):
    part = {"functionCall": {"name": name, "args": {}, **call}}
    return part | ({"thoughtSignature": signature} if signature else {})


def result(call, content="1", **rest):
    return ToolMessage(call.id, call.name, content, **rest)


# ---- the request


async def test_an_output_schema_is_sent():
    schema = {"type": "object", "properties": {"n": {"type": "integer", "exclusiveMinimum": 0}}}
    body = await sent(GOOGLE, HI, output_schema=schema)
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
async def test_the_name_of_the_model_stays_in_its_place(name, segment):
    async with FaultServer([send(answer(OK))]) as server:
        llm = model(server, model=name)
        assert llm.path(False) == f"/v1beta/models/{segment}:generateContent"
        assert (await llm.ainvoke(HI)).text == "hello"


async def test_a_conversation_with_calls_is_one_that_the_provider_takes():
    contents = (await sent(GOOGLE, conversation(), TOOLS, system="s"))["contents"]
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


async def test_empty_texts_are_left_out_and_neighbours_of_one_role_are_one_content():
    empty = UserMessage([TextPart(""), TextPart("look")])
    wire = write_google_messages([*HI, AssistantMessage(), empty, UserMessage(""), *HI])
    assert wire == [{"role": "user", "parts": [{"text": t} for t in ("hi", "look", "hi")]}]
    first = [{"role": "user", "parts": [{"text": "(empty)"}]}]  # the user has to begin
    assert write_google_messages([UserMessage("")]) == first
    assert write_google_messages([AssistantMessage("a")])[:1] == first
    turn = [AssistantMessage(tool_calls=(ToolCall("a", "time"),)), ToolMessage("a", "time", "")]
    body = await sent(GOOGLE, [*HI, *turn, UserMessage("and?")], TOOLS)
    assert [len(content["parts"]) for content in body["contents"]] == [1, 1, 2]


def inline(kind, data):
    return {"inlineData": {"mimeType": kind, "data": data}}


async def test_images_and_files_are_carried():
    pdf = "application/pdf"
    carried = [
        (TextPart("look"), {"text": "look"}),
        (ImagePart(url="https://x/y"), {"fileData": {"fileUri": "https://x/y"}}),
        (ImagePart(url="data:image/png;base64,AP8="), WIRE_PNG),
        (PNG, WIRE_PNG),
        (FilePart(data=b"%PDF", media_type=pdf, name="a.pdf"), inline(pdf, "JVBERg==")),
        (FilePart(data=b"RIFF", media_type="audio/wav"), inline("audio/wav", "UklGRg==")),
        (
            FilePart(url="gs://b/a", media_type=pdf),
            {"fileData": {"mimeType": pdf, "fileUri": "gs://b/a"}},
        ),
    ]
    body = await sent(GOOGLE, [UserMessage([part for part, _ in carried])])
    assert body["contents"][0]["parts"] == [written for _, written in carried]


# ---- schemas


def test_a_schema_is_written_without_what_gemini_does_not_take():
    kinds = {"anyOf": [], "discriminator": {"propertyName": "kind", "mapping": {"a": "A"}}}
    number = {"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 9, "multipleOf": 0.5}
    schema = {
        "type": "object",
        "properties": {
            "place": {"$ref": "#/$defs/Place", "description": "Where."},
            "plain": {"$ref": "#/$defs/Place"},
            "const": {"const": "x", "type": "string"},
            "any": {"anyOf": [{"const": 1}, {"type": "null"}], "default": {"ref": 2}},
            "multipleOf": number,
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
            "discriminator": {"anyOf": []},
        }
    }
    assert json.dumps(schema) == before


# ---- signatures


def test_unknown_parts_and_fields_survive():
    parts = [
        {"executableCode": {"language": "PYTHON", "code": "1"}},
        {"text": "a", "zzz": {"x": 1}},
        call_part(id="x") | {"zzz": 3},
        {"zzz": "new"},
    ]
    reply = load_record(dump_record(reply_of(*deepcopy(parts))))
    assert reply.text == "a"
    wire = write_google_messages([reply])[1]["parts"]
    wire[2].pop("thoughtSignature")
    assert wire == parts


# ---- the reply


REFUSALS = ["SAFETY", "RECITATION", "BLOCKLIST", "PROHIBITED_CONTENT", "SPII", "IMAGE_SAFETY"]


@pytest.mark.parametrize(
    ("finish", "reason", "with_calls"),
    [
        ("STOP", "end", "tool_calls"),
        ("MAX_TOKENS", "length", "length"),
        *((word, "refused", "refused") for word in REFUSALS),
        ("LANGUAGE", "refused", "refused"),
        ("CONTINUATION", "length", "length"),
        ("OTHER", "OTHER", "OTHER"),
        ("zzz", "zzz", "zzz"),
        (None, None, "tool_calls"),
    ],
)
def test_stop_reasons_have_one_vocabulary(finish: Any, reason: Any, with_calls: str) -> None:
    assert reply_of({"text": "a"}, finish=finish).stop_reason == reason
    assert assemble(part_chunk({"text": "a"}, finish=finish)).stop_reason == reason
    assert reply_of(call_part(), finish=finish).stop_reason == with_calls


def test_a_refusal_without_content_says_why_in_raw():
    reply = read_google_reply({"candidates": [{"finishReason": "SAFETY"}]})
    assert (reply.text, reply.stop_reason) == ("", "refused")
    assert reply.raw == {"provider": "google", "parts": [], "finishReason": "SAFETY"}
    assert len(write_google_messages([reply])) == 1


@pytest.mark.parametrize("streaming", [False, True])
async def test_a_blocked_prompt_is_a_refusal(streaming):
    body = {
        "promptFeedback": {"blockReason": "PROHIBITED_CONTENT"},
        "usageMetadata": {"promptTokenCount": 7},
    }
    async with FaultServer([send(streamed(body) if streaming else answer(body))]) as server:
        reply = await model(server).ainvoke(HI, on_delta=(lambda _: None) if streaming else None)
    assert (reply.text, reply.stop_reason, reply.usage) == ("", "refused", Usage(7))
    assert reply.raw["blockReason"] == "PROHIBITED_CONTENT"
    assert len(write_google_messages([reply])) == 1


@pytest.mark.parametrize("streaming", [False, True])
@pytest.mark.parametrize(
    "body",
    [
        {"candidates": None, "promptFeedback": {}},
        {"candidates": [{}], "usageMetadata": {"promptTokenCount": 7}},
        {"candidates": [{"content": {"role": "model"}, "finishReason": "MALFORMED_RESPONSE"}]},
        {"candidates": [{"content": {"parts": [5]}, "finishReason": "STOP"}]},
    ],
)
async def test_a_reply_without_a_message_is_asked_for_again(body, streaming):
    empty = streamed(body) if streaming else answer(body)
    async with FaultServer([send(empty)], [send(answer(OK))]) as server:
        reply = await model(server).ainvoke(HI, on_delta=(lambda _: None) if streaming else None)
        assert (reply.text, len(server.requests)) == ("hello", 2)


@pytest.mark.parametrize(
    ("reply", "said"),
    [
        (Reply(finish="MALFORMED_FUNCTION_CALL"), "no tool named 'malformed_function_call'"),
        (Reply("So", finish="TOO_MANY_TOOL_CALLS"), "no tool named 'too_many_tool_calls'"),
        (Reply(finish="UNEXPECTED_TOOL_CALL", calls=[("zzz", {})]), "no tool named 'zzz'"),
        (Reply(finish="UNEXPECTED_TOOL_CALL", calls=[("clock", {})]), "not valid JSON"),
    ],
)
@pytest.mark.parametrize("streaming", [False, True])
async def test_a_call_that_gemini_finds_wrong_is_an_error_result_and_the_run_goes_on(
    reply, said, streaming
):
    @tool
    async def clock() -> str:
        """The time."""
        raise AssertionError("it ran")

    async with GoogleDouble([reply, "done"]) as server:
        agent = Agent(llm=model(server), tools=[clock])
        agent.listeners = [lambda _: None] if streaming else []
        assert await agent.query("When?") == "done"
        assert (server.refusals, server.prefix_breaks) == ([], [])
    [answered] = server.requests[1]["contents"][2]["parts"]
    assert said in answered["functionResponse"]["response"]["error"]


def test_what_was_wrong_with_a_call_is_kept_as_its_arguments():
    message = "Malformed function call: print(default_api.f(x"
    candidate = {"finishReason": "MALFORMED_FUNCTION_CALL", "finishMessage": message}
    for reply in (
        read_google_reply({"candidates": [candidate]}),
        assemble({"candidates": [candidate]}),
    ):
        assert reply.tool_calls == (ToolCall("", "malformed_function_call", message),)


def test_usage_in_a_stream_grows_and_the_last_counts():
    reply = assemble(
        part_chunk({"text": "a"}, usageMetadata={"promptTokenCount": 9, "thoughtsTokenCount": 3}),
        part_chunk({"text": "b"}, usageMetadata={"promptTokenCount": 9, "candidatesTokenCount": 1}),
        part_chunk(finish="STOP"),
        {"usageMetadata": {"promptTokenCount": 9, "candidatesTokenCount": 2}},
    )
    assert reply.usage == Usage(9, 5, reasoning_tokens=3)


# ---- streams


def test_pieces_of_text_are_put_together_but_signed_ones_stay_as_they_are():
    thought = {"text": "h", "thought": True}
    reply = assemble(
        part_chunk(thought),
        part_chunk({"text": "m", "thought": True}),
        part_chunk({"text": "a"}),
        part_chunk({"text": "b", "thoughtSignature": "MQ=="}),
        part_chunk({"text": "c"}, {"text": "d"}),
        part_chunk(call_part()),
        part_chunk({"text": ""}),
        part_chunk({"text": "", "thoughtSignature": "Mg=="}, finish="STOP"),
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


def test_the_arguments_of_a_call_may_come_piece_by_piece():
    def piece(*partial, **call):
        return part_chunk({"functionCall": {"partialArgs": list(partial), **call}})

    def value(path, **given):
        return {"jsonPath": path, **given}

    shown: list[Any] = []
    reply = assemble(
        part_chunk({"functionCall": {"name": "write", "willContinue": True}} | SIGNED),
        piece(value("$.path", stringValue="a", willContinue=True), willContinue=True),
        piece(value("$.path", stringValue=".py"), value("$.n", numberValue=3), willContinue=True),
        piece(value("$.rows[0].name", stringValue="x"), value("$.rows[0].on", boolValue=True)),
        piece(value("$.rows[1].name", nullValue="NULL_VALUE"), value("$['a b'][0]", numberValue=1)),
        part_chunk({"functionCall": {}}),
        piece(value("$.text", stringValue="so"), name="note"),
        part_chunk({"functionCall": {"name": "now"}}, finish="STOP"),
        on_delta=shown.append,
    )
    rows = [{"name": "x", "on": True}, {"name": None}]
    assert [(call.name, call.parsed) for call in reply.tool_calls] == [
        ("write", {"path": "a.py", "n": 3, "rows": rows, "a b": [1]}),
        ("note", {"text": "so"}),
        ("now", {}),
    ]
    assert write_google_messages([reply])[1]["parts"][0].items() >= SIGNED.items()
    assert shown[:2] == [ToolCallDeltaEvent(text, "write", "") for text in ("a", ".py")]


# ---- errors, settings, other doubles


async def test_the_double_refuses_what_the_provider_would():
    call = AssistantMessage(tool_calls=(ToolCall("a", "time"),))
    orphan = [*HI, ToolMessage("a", "time", "1")]
    bad = [
        (orphan, "function response turn comes immediately after"),
        ([*HI, call, *HI], "number of function response parts is equal"),
        ([*HI, AssistantMessage("a")], "end with a user role"),
    ]
    async with GoogleDouble([calls(("time", {})), "never"]) as server:
        llm = model(server)
        for messages, words in bad:
            with pytest.raises(BadRequest, match=words):
                await llm.ainvoke(messages, TOOLS)
        reply = with_unique_ids(await llm.ainvoke(HI, TOOLS), set())
        stripped = [*HI, replace(reply, raw=None), result(reply.tool_calls[0])]
        with pytest.raises(BadRequest, match="missing a thought_signature"):
            await llm.ainvoke(stripped, TOOLS)
        forged = json.loads(json.dumps(reply.raw).replace("c2lnbmF0dXJlIDQ=", "Zm9yZ2Vk"))
        with pytest.raises(BadRequest, match="Corrupted thought signature"):
            await llm.ainvoke([*HI, replace(reply, raw=forged), stripped[2]], TOOLS)
        assert len(server.refusals) == len(bad) + 2
        assert server.replies == ["never"]


def test_vertex_knows_no_word_for_tools_of_both_kinds():
    settings = {"api_version": "v1/publishers/google", "provider_tools": [{"googleSearch": {}}]}
    assert "toolConfig" not in model("http://x", **settings).body(HI, TOOLS, "auto", False)


async def test_vertex_is_another_address():
    url, version = "https://aiplatform.googleapis.com", "v1/publishers/google"
    with respx.mock(base_url=url) as mock:
        path = "/v1/publishers/google/models/gemini-3-pro:generateContent"
        mock.post(path).mock(return_value=httpx.Response(200, json=OK))
        async with ChatGoogle(
            "gemini-3-pro", api_key="k", base_url=url, api_version=version
        ) as llm:
            assert (await llm.ainvoke(HI)).text == "hello"
