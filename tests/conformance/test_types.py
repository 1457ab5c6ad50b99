"""Our requests against the vendors' own types, and their clients against our doubles.

It needs the vendors' packages: `pip install -e '.[conformance]'`.
"""

import copy
import json
import warnings
from dataclasses import replace

import pytest
from pydantic import TypeAdapter, ValidationError
from pydantic_core import SchemaValidator

from tests.doubles.openai_double import Reply
from tests.doubles.wires import (
    ANTHROPIC,
    CONVERSATIONS,
    GOOGLE,
    OPENAI,
    RESPONSES,
    TOOLS,
    WIRES,
    hold,
)

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    openai = pytest.importorskip("openai")
    anthropic = pytest.importorskip("anthropic")
    genai = pytest.importorskip("google.genai")
    from anthropic import types as anthropic_types
    from anthropic.types import message_create_params as anthropic_params
    from google.genai import types as google_types
    from openai.types import chat as openai_types
    from openai.types import responses as responses_types
    from openai.types.chat import completion_create_params as openai_params
    from openai.types.responses import response_create_params as responses_params

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


# ---- requests


def strict(kind):
    """A validator that looks into iterables, and refuses fields that the type does not have."""
    adapter = TypeAdapter(kind)
    adapter.rebuild(force=True)  # the vendors' models put it off
    return SchemaValidator(_eager(adapter.core_schema))


def _eager(schema):
    if isinstance(schema, list | tuple):
        return type(schema)(map(_eager, schema))
    if not isinstance(schema, dict):
        return schema
    schema = {key: _eager(value) for key, value in schema.items()}
    if schema.get("type") == "generator":
        schema["type"] = "list"
    if schema.get("type") in ("typed-dict", "model-fields"):
        schema["extra_behavior"] = "forbid"
    if "config" in schema:
        schema["config"] = schema["config"] | {"extra_fields_behavior": "forbid"}
    return schema


OPENAI_TYPES = {
    False: strict(openai_params.CompletionCreateParamsNonStreaming),
    True: strict(openai_params.CompletionCreateParamsStreaming),
}
RESPONSES_TYPES = {
    False: strict(responses_params.ResponseCreateParamsNonStreaming),
    True: strict(responses_params.ResponseCreateParamsStreaming),
}
ANTHROPIC_TYPES = {
    False: strict(anthropic_params.MessageCreateParamsNonStreaming),
    True: strict(anthropic_params.MessageCreateParamsStreaming),
}
GOOGLE_TYPES = {
    "contents": TypeAdapter(list[google_types.Content]),
    "systemInstruction": TypeAdapter(google_types.Content),
    "tools": TypeAdapter(list[google_types.Tool]),
    "toolConfig": TypeAdapter(google_types.ToolConfig),
    "generationConfig": TypeAdapter(google_types.GenerationConfig),
}


def check_openai(body):
    for message in body["messages"]:
        if message["role"] == "assistant":
            message.pop("reasoning_content", None)  # of servers that are not the vendor's
    OPENAI_TYPES["stream" in body].validate_python(body)


def check_google(body):
    for name, value in body.items():
        GOOGLE_TYPES[name].validate_python(value)


CHECKS = {
    "openai": check_openai,
    "responses": lambda body: RESPONSES_TYPES["stream" in body].validate_python(body),
    "anthropic": lambda body: ANTHROPIC_TYPES["stream" in body].validate_python(body),
    "google": check_google,
}
OPENAI_SETTINGS = {
    "temperature": 0,
    "max_completion_tokens": 9,
    "reasoning_effort": "low",
    "prompt_cache_key": "p",
    "parallel_tool_calls": False,
    "strict": True,
    "output_schema": {"type": "object", "properties": {"n": {"type": "integer"}}},
}
SETTINGS = {
    "openai": OPENAI_SETTINGS,
    "responses": OPENAI_SETTINGS
    | {"reasoning_summary": "auto", "provider_tools": [{"type": "web_search"}]},
    "anthropic": {"max_tokens": 2000, "parallel_tool_calls": False},
    "google": {
        "temperature": 0,
        "max_output_tokens": 9,
        "thinking_budget": 0,
        "thinking_level": "low",
        "include_thoughts": True,
    },
}


@pytest.mark.parametrize("streaming", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("wire", WIRES, ids=lambda wire: wire.name)
@pytest.mark.parametrize("talk", CONVERSATIONS, ids=lambda talk: talk.name)
async def test_every_request_is_one_that_the_vendor_s_types_describe(talk, wire, streaming):
    settings = talk.settings.get(wire.name, {})
    async with wire.double(talk.script) as server, wire.model(server, **settings) as llm:
        await hold(talk, llm, streaming)
    for body in server.requests:
        CHECKS[wire.name](body)


@pytest.mark.parametrize("wire", WIRES, ids=lambda wire: wire.name)
@pytest.mark.parametrize("choice", ["auto", "none", "required", "add"])
async def test_every_setting_is_one_that_the_vendor_s_types_describe(choice, wire):
    talk = CONVERSATIONS[0]
    async with wire.double(["hello"]) as server, wire.model(server, **SETTINGS[wire.name]) as llm:
        messages = (await hold(talk, wire.model(server))).agent.messages[:1]
        server.replies = ["hello"]
        await llm.ainvoke(messages, TOOLS, tool_choice=choice)
    CHECKS[wire.name](server.requests[-1])


@pytest.mark.parametrize("wire", WIRES, ids=lambda wire: wire.name)
async def test_the_check_would_notice(wire):
    talk = next(talk for talk in CONVERSATIONS if talk.name == "an image in a tool result")
    async with wire.double(talk.script) as server, wire.model(server) as llm:
        await hold(talk, llm)
    body = server.requests[-1]
    CHECKS[wire.name](copy.deepcopy(body))
    name = next(name for name in ("messages", "input", "contents") if name in body)
    for at in range(-1, len(body[name])):
        spoiled = copy.deepcopy(body)
        (spoiled[name][at] if at >= 0 else spoiled)["zzz"] = 1
        with pytest.raises((ValidationError, KeyError)):
            CHECKS[wire.name](spoiled)


# ---- replies

REPLIES = [
    Reply("hello"),
    Reply("so", calls=[("add", {"a": 1, "b": 2}, "c1"), ("now", {}, "c2")]),
    Reply("so", thinking="hm"),
    Reply("cut", finish="length"),
    Reply(refusal="I can't."),
]


WHOLE = {
    "openai": strict(openai_types.ChatCompletion),
    "responses": strict(responses_types.Response),
    "anthropic": strict(anthropic_types.Message),
    "google": strict(google_types.GenerateContentResponse),
}
PARTS = {
    "openai": strict(openai_types.ChatCompletionChunk),
    "responses": strict(responses_types.ResponseStreamEvent),
    "anthropic": strict(anthropic_types.RawMessageStreamEvent),
    "google": WHOLE["google"],
}


@pytest.mark.parametrize("wire", WIRES, ids=lambda wire: wire.name)
@pytest.mark.parametrize("reply", REPLIES)
def test_our_doubles_say_what_the_vendor_s_types_describe(reply, wire):
    if wire.name == "openai":
        reply = replace(reply, thinking=None)  # only servers of others show it
    WHOLE[wire.name].validate_json(json.dumps(wire.whole(reply)))
    for frame in wire.frames(reply):
        data = frame.partition(b"data: ")[2].strip()
        if data not in (b"[DONE]", b'{"type": "ping"}'):
            PARTS[wire.name].validate_json(data)


@pytest.mark.parametrize("reply", REPLIES)
async def test_the_client_of_openai_reads_our_double(reply):
    async with (
        OPENAI.double([reply, reply]) as server,
        openai.AsyncOpenAI(
            api_key="k", base_url=server.base_url, _strict_response_validation=True
        ) as client,
    ):
        ask = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
        whole = await client.chat.completions.create(**ask)
        async with client.chat.completions.stream(
            **ask, stream_options={"include_usage": True}
        ) as stream:
            async for _ in stream:
                pass
            try:
                streamed = await stream.get_final_completion()
            except openai.LengthFinishReasonError as error:
                streamed = error.completion
    for found in (whole, streamed):
        [choice] = found.choices
        assert choice.message.content == reply.text
        assert choice.message.refusal == reply.refusal
        calls = choice.message.tool_calls or []
        assert [call.function.name for call in calls] == [call[0] for call in reply.calls]
        assert [json.loads(call.function.arguments) for call in calls] == [
            call[1] for call in reply.calls
        ]
        reason = reply.finish or ("tool_calls" if reply.calls else "stop")
        assert choice.finish_reason == reason
        assert found.usage.prompt_tokens == 10


@pytest.mark.parametrize("reply", REPLIES)
async def test_the_client_of_openai_reads_our_double_of_responses(reply):
    async with (
        RESPONSES.double([reply, reply]) as server,
        openai.AsyncOpenAI(
            api_key="k", base_url=server.base_url, _strict_response_validation=True
        ) as client,
    ):
        ask = {"model": "m", "input": [{"role": "user", "content": "hi"}]}
        whole = await client.responses.create(**ask)
        async with client.responses.stream(**ask) as stream:
            async for _ in stream:
                pass
            if not reply.finish:
                streamed = await stream.get_final_response()
    for found in (whole, whole if reply.finish else streamed):
        items = {"message": [], "reasoning": [], "function_call": []}
        for item in found.output:
            items[item.type].append(item)
        assert found.output_text == (reply.text or "")
        said = [part for item in items["message"] for part in item.content]
        refusals = [part.refusal for part in said if part.type == "refusal"]
        assert refusals == ([reply.refusal] if reply.refusal else [])
        summaries = [part.text for item in items["reasoning"] for part in item.summary]
        assert summaries == ([reply.thinking] if reply.thinking else [])
        calls = [(call.name, json.loads(call.arguments)) for call in items["function_call"]]
        assert calls == [call[:2] for call in reply.calls]
        assert found.status == ("incomplete" if reply.finish else "completed")
        assert (found.usage.input_tokens, found.usage.output_tokens) == (10, 5)


@pytest.mark.parametrize("reply", REPLIES)
async def test_the_client_of_anthropic_reads_our_double(reply):
    async with (
        ANTHROPIC.double([reply, reply]) as server,
        anthropic.AsyncAnthropic(
            api_key="k", base_url=server.base_url, _strict_response_validation=True
        ) as client,
    ):
        content = [{"type": "text", "text": "hi"}]
        messages = [{"role": "user", "content": content}]
        ask = {"model": "m", "max_tokens": 9, "messages": messages}
        whole = await client.messages.create(**ask)
        async with client.messages.stream(**ask) as stream:
            async for _ in stream:
                pass
            streamed = await stream.get_final_message()
    for found in (whole, streamed):
        blocks = {block.type: block for block in found.content}
        if reply.text or reply.refusal:
            assert blocks["text"].text == (reply.text or reply.refusal)
        if reply.thinking:
            assert blocks["thinking"].thinking == reply.thinking
            assert blocks["thinking"].signature
        calls = [block for block in found.content if block.type == "tool_use"]
        assert [(call.name, call.input) for call in calls] == [call[:2] for call in reply.calls]
        reason = {"length": "max_tokens"}.get(reply.finish or "")
        reason = reason or ("tool_use" if reply.calls else "end_turn")
        assert found.stop_reason == ("refusal" if reply.refusal else reason)
        assert (found.usage.input_tokens, found.usage.output_tokens) == (10, 5)


def google(server):
    options = google_types.HttpOptions(base_url=server.base_url)
    return genai.Client(api_key="k", http_options=options)


@pytest.mark.parametrize("reply", REPLIES)
async def test_the_client_of_google_reads_our_double(reply):
    async with GOOGLE.double([reply, reply]) as server:
        client = google(server)
        ask = {"model": "gemini-3-pro", "contents": "hi"}
        whole = await client.aio.models.generate_content(**ask)
        chunks = [chunk async for chunk in await client.aio.models.generate_content_stream(**ask)]
        await client.aio.aclose()
        client.close()
    for found in ([whole], chunks):
        parts = [part for one in found for part in one.candidates[0].content.parts or []]
        said = "".join(part.text or "" for part in parts if not part.thought)
        assert said == (reply.text or reply.refusal or "")
        assert "".join(part.text for part in parts if part.thought) == (reply.thinking or "")
        calls = [part.function_call for part in parts if part.function_call]
        assert [(call.name, call.args) for call in calls] == [call[:2] for call in reply.calls]
        assert any(part.thought_signature for part in parts)
        reason = found[-1].candidates[0].finish_reason.name
        expected = "MAX_TOKENS" if reply.finish else "SAFETY" if reply.refusal else "STOP"
        assert reason == expected
        assert found[-1].usage_metadata.prompt_token_count == 10
