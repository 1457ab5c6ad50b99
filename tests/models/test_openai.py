"""ChatOpenAI: what it sends, and what it makes of the replies that servers really give."""

import json
from dataclasses import replace

import pytest

from agentloop.errors import BadResponse, ConnectionFailed
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
from agentloop.models.fallback import Fallback
from agentloop.models.openai import ChatOpenAI, write_openai_messages
from agentloop.models.responses import strict_schema
from agentloop.models.scripted import ScriptedModel
from agentloop.records import dump_record, load_record
from tests.doubles.fault_server import FaultServer, send, stream
from tests.doubles.wires import OPENAI, RESPONSES
from tests.models.asked import HI, TOOLS, conversation, sent

ME = ChatOpenAI("m", base_url="http://x")
model = OPENAI.model


def reply_to(message, finish="stop"):
    return ME.read({"choices": [{"message": message, "finish_reason": finish}]})


def assemble(*chunks):
    whole = ME.chunks(None)
    for chunk in chunks:
        whole.add(chunk)
    return ME.read(whole.reply())


def delta(fields):
    return {"choices": [{"delta": fields}]}


def written(llm, message):
    """The message as it goes back."""
    return llm.body([*HI, message], (), "auto", False)["messages"][1]


END = {"choices": [{"delta": {}, "finish_reason": "tool_calls"}]}


def write(*messages):
    return write_openai_messages(messages)


# ---- the request


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


async def test_images_files_and_sounds_are_carried():
    parts = [
        TextPart("look"),
        ImagePart(url="https://x/y.png"),
        ImagePart(data=b"\x00\xff", media_type="image/png", extra={"detail": "low", "x": 1}),
        FilePart(data=b"%PDF", media_type="application/pdf", name="a.pdf"),
        FilePart(url="https://x/y.pdf"),  # OpenRouter takes it
        FilePart(data=b"RIFF", media_type="audio/x-wav"),
        FilePart(data=b"ID3", media_type="audio/mpeg", name="a.mp3"),
    ]
    body = await sent(OPENAI, [UserMessage(parts)])
    pdf = "data:application/pdf;base64,JVBERg=="
    assert body["messages"][0]["content"] == [
        {"type": "text", "text": "look"},
        {"type": "image_url", "image_url": {"url": "https://x/y.png"}},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,AP8=", "detail": "low"}},
        {"type": "file", "file": {"filename": "a.pdf", "file_data": pdf}},
        {"type": "file", "file": {"filename": "file", "file_data": "https://x/y.pdf"}},
        {"type": "input_audio", "input_audio": {"data": "UklGRg==", "format": "wav"}},
        {"type": "input_audio", "input_audio": {"data": "SUQz", "format": "mp3"}},
    ]


CITY = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
STRICT = {"name": "answer", "strict": True, "schema": CITY | {"additionalProperties": False}}
LOOSE = {"type": "object", "additionalProperties": {"type": "string"}}


@pytest.mark.parametrize(
    ("schema", "expected"), [(CITY, STRICT), (LOOSE, {"name": "answer", "schema": LOOSE})]
)
async def test_an_answer_that_follows_a_schema_is_asked_for_natively(schema, expected):
    llm = ChatOpenAI("m", base_url="http://x", prompt_cache_key="p")
    twin = llm.with_output(schema)
    body = twin.body(HI, (), "auto", False)
    assert body["response_format"] == {"type": "json_schema", "json_schema": expected}
    assert body["prompt_cache_key"] == "p"
    assert "response_format" not in llm.body(HI, (), "auto", False)
    body = replace(llm, api="responses").with_output(schema).body(HI, (), "auto", False)
    assert body["text"] == {"format": {"type": "json_schema", **expected}}
    async with OPENAI.double(['{"city": "Bern"}']) as chat, RESPONSES.double(["{}"]) as server:
        down = OPENAI.model("http://127.0.0.1:9/v1", max_retries=0)
        both = Fallback(down, ScriptedModel(ConnectionFailed("down")), OPENAI.model(chat))
        assert (await both.with_output(schema).ainvoke(HI)).text == '{"city": "Bern"}'
        await RESPONSES.model(server).with_output(schema).ainvoke(HI)
    assert "response_format" in chat.requests[0]


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
            "c": {"anyOf": [{"anyOf": [{"type": "string"}, {"type": "null"}]}, {"type": "null"}]},
        },
        "required": ["a", "b", "c"],
        "additionalProperties": False,
    }
    assert json.dumps(schema) == before


def test_a_format_that_openai_does_not_list_is_left_out():
    url, day = ({"type": "string", "format": word} for word in ("uri", "date"))
    inner = {"type": "object", "properties": {"u": url}, "required": ["u"]}
    inner["additionalProperties"] = False
    properties = {
        "format": url,
        "day": day,
        "inner": inner,
        "urls": {"type": "array", "items": url},
    }
    strict = strict_schema({"type": "object", "properties": properties, "required": [*properties]})
    plain = {"type": "string"}
    assert strict["properties"] == {
        "format": plain,
        "day": day,
        "inner": inner | {"properties": {"u": plain}},
        "urls": {"type": "array", "items": plain},
    }


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


# ---- the reply, with the provider that sends it so

CALL = {"id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}}
SAYS = {"content": "a"}
USED = {"prompt_tokens": 100, "completion_tokens": 50, "total_tokens": 150}
DETAILS = {"completion_tokens_details": {"reasoning_tokens": 30}}
REPLIES = {  # (message, finish_reason, usage, what is read)
    "text": (SAYS, "stop", None, {"text": "a", "stop_reason": "end", "raw": None, "usage": None}),
    "null": ({"content": None}, "stop", None, {"text": ""}),
    "no content": ({}, None, None, {"text": "", "stop_reason": None}),
    "Mistral: parts": (
        {"content": [{"type": "text", "text": "a"}, {"type": "zzz"}, {"text": "b"}, 5]},
        *("stop", None, {"text": "ab", "thinking": None}),
    ),
    "Mistral: thinking parts": (
        {"content": [{"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}, SAYS]},
        *("stop", None, {"text": "", "thinking": "hm", "raw": None}),
    ),
    "Cloudflare: an object": ({"content": {"n": 1}}, "stop", None, {"text": '{"n": 1}'}),
    "half characters": ({"content": "a\ud83d\ude00\ud83d"}, "stop", None, {"text": "a😀\ufffd"}),
    "a refusal": (
        {"content": None, "refusal": "I can't."},
        *("stop", None, {"text": "I can't.", "stop_reason": "refused"}),
    ),
    "packyapi, SGLang: ''": (SAYS, "", None, {"stop_reason": None}),
    "Together: eos": (SAYS, "eos", None, {"stop_reason": "end"}),
    "TGI: eos_token": (SAYS, "eos_token", None, {"stop_reason": "end"}),
    "length": (SAYS, "length", None, {"stop_reason": "length"}),
    "Mistral: model_length": (SAYS, "model_length", None, {"stop_reason": "length"}),
    "content_filter": (SAYS, "content_filter", None, {"stop_reason": "refused"}),
    "Azure: no message": (None, "content_filter", None, {"text": "", "stop_reason": "refused"}),
    "Z.AI: sensitive": (SAYS, "sensitive", None, {"stop_reason": "refused"}),
    "Bedrock": (SAYS, "guardrail_intervened", None, {"stop_reason": "refused"}),
    "an unknown word": (SAYS, "zzz", None, {"stop_reason": "zzz"}),
    "calls, stop": ({"tool_calls": [CALL]}, "stop", None, {"stop_reason": "tool_calls"}),
    "calls, null": ({"tool_calls": [CALL]}, None, None, {"stop_reason": "tool_calls"}),
    "calls, length": ({"tool_calls": [CALL]}, "length", None, {"stop_reason": "length"}),
    "calls, unknown": ({"tool_calls": [CALL]}, "zzz", None, {"stop_reason": "zzz"}),
    "DeepSeek, vLLM": (SAYS | {"reasoning_content": "hm"}, "stop", None, {"thinking": "hm"}),
    "OpenRouter": (SAYS | {"reasoning": "hm"}, "stop", None, {"thinking": "hm"}),
    "OpenAI: usage": (
        *(SAYS, "stop", USED | DETAILS | {"prompt_tokens_details": {"cached_tokens": 80}}),
        {"usage": Usage(100, 50, cached_input_tokens=80, reasoning_tokens=30)},
    ),
    "OpenRouter: cache writes": (
        *(SAYS, "stop", USED | {"prompt_tokens_details": {"cache_write_tokens": 60}}),
        {"usage": Usage(100, 50, cache_write_tokens=60)},
    ),
    "xAI: reasoning beside": (
        *(SAYS, "stop", USED | DETAILS | {"total_tokens": 180}),
        {"usage": Usage(100, 80, reasoning_tokens=30)},
    ),
    "Mistral: cached": (
        SAYS,
        "stop",
        USED | {"num_cached_tokens": 7},
        {"usage": Usage(100, 50, 7)},
    ),
    "Moonshot: cached": (SAYS, "stop", USED | {"cached_tokens": 7}, {"usage": Usage(100, 50, 7)}),
    "DeepSeek: cached": (
        *(SAYS, "stop", USED | {"prompt_cache_hit_tokens": 7, "prompt_cache_miss_tokens": 93}),
        {"usage": Usage(100, 50, 7)},
    ),
}


def chunks_of(message, finish, usage):
    """The reply as a stream: each text in one piece, usage in a chunk of its own."""
    choice = {"delta": message, "finish_reason": finish} if message is not None else {}
    yield {"choices": [choice | {"finish_reason": finish}]}
    yield {"choices": [], "usage": usage}


@pytest.mark.parametrize("streaming", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("case", REPLIES)
def test_a_reply_is_read_as_servers_send_it(case, streaming):
    message, finish, usage, expected = REPLIES[case]
    if streaming:
        reply = assemble(*chunks_of(message, finish, usage))
    else:
        choice = {"finish_reason": finish} | ({} if message is None else {"message": message})
        reply = ME.read({"choices": [choice], "usage": usage})
    assert {name: getattr(reply, name) for name in expected} == expected


@pytest.mark.parametrize("word", ["error", "network_error", "insufficient_system_resource"])
def test_a_finish_that_is_a_failure_is_no_reply(word):  # OpenRouter, Z.AI, DeepSeek
    with pytest.raises(BadResponse, match=word):
        reply_to(SAYS, word)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [('{"a":1}', '{"a":1}'), ({"a": 1}, '{"a": 1}'), ("", ""), (None, ""), (" ", " ")],
)
def test_arguments_are_text_whatever_the_server_sends(arguments, text):
    message = {"tool_calls": [{"id": "a", "function": {"name": "f", "arguments": arguments}}]}
    assert reply_to(message).tool_calls[0].arguments == text


# ---- what is for its server alone

SIGNED = {"extra_content": {"google": {"thought_signature": "c2ln"}}}
THOUGHTS = [
    {"type": "reasoning.text", "text": "Let me see.", "signature": "Et8B", "index": 0},
    {"type": "reasoning.encrypted", "data": "one", "index": 1},
    {"type": "reasoning.encrypted", "data": "two", "index": 1},
    {"type": "reasoning.summary", "summary": "I saw it.", "index": 2},
]
OPAQUE = {  # what the message holds beside its text and its call
    "DeepSeek": {"reasoning_content": "hm"},
    "DeepSeek, without a thought": {"reasoning_content": ""},  # it refuses a history without it
    "OpenRouter": {"reasoning": "Let me see.", "reasoning_details": THOUGHTS},
    "Gemini: of the message": SIGNED,
}


@pytest.mark.parametrize("streaming", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("case", OPAQUE)
def test_what_is_opaque_goes_back_to_its_server_and_model_and_to_no_other(case, streaming):
    # Groq and Mistral refuse the reasoning of others
    message = {"content": "a", "tool_calls": [CALL | SIGNED, CALL | {"id": "b"}], **OPAQUE[case]}
    pieces = [{name: value} for name, value in message.items()]
    reply = assemble(*map(delta, pieces), END) if streaming else reply_to(message)
    again = load_record(dump_record(reply))
    sent = {"role": "assistant", **message}
    assert written(ME, again) == sent
    plain = {"role": "assistant", "content": "a", "tool_calls": [CALL, CALL | {"id": "b"}]}
    for other in (ChatOpenAI("other", base_url="http://x"), ChatOpenAI("m", base_url="http://y")):
        assert written(other, again) == plain
    changed = replace(again, tool_calls=again.tool_calls[:1])
    assert written(ME, changed)["tool_calls"] == [CALL | SIGNED]
    for raw in ({"reasoning_content": "x"}, [1], "x", None):
        assert written(ME, replace(again, raw=raw)) == plain


def test_the_fragments_of_openrouter_are_put_together():
    first = {"type": "reasoning.text", "format": "anthropic-claude-v1", "index": 0}
    fragments = [
        first | {"text": "Let", "id": None},
        first | {"text": " me see."},
        first | {"signature": "Et8B"},  # of the whole text
        *THOUGHTS[1:],
    ]
    reply = assemble(
        *[delta({"reasoning_details": [each]}) for each in fragments], delta(SAYS), END
    )
    whole = first | {"text": "Let me see.", "signature": "Et8B"}
    assert written(ME, reply)["reasoning_details"] == [whole, *THOUGHTS[1:]]


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
