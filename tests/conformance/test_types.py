"""Requests validated by the vendors' types, and the vendors' clients with the doubles.

Requires the vendors' packages: `pip install --group conformance`.
"""

import copy
import inspect
import json
import re
import warnings
from contextlib import suppress
from dataclasses import replace
from typing import Any, NamedTuple

import pytest
from pydantic import TypeAdapter, ValidationError
from pydantic_core import SchemaValidator

from agentloop import Agent
from agentloop.messages import SystemMessage
from agentloop.toolkits.search import ToolSearch
from tests import ROOT
from tests.doubles.openai_double import Reply, calls
from tests.doubles.wires import ANTHROPIC, CONVERSATIONS, RESPONSES, TOOLS, WIRES, hold

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    openai = pytest.importorskip("openai")
    anthropic = pytest.importorskip("anthropic")
    genai = pytest.importorskip("google.genai")
    from anthropic import types as anthropic_types
    from anthropic.resources.messages.messages import DEPRECATED_MODELS
    from anthropic.types import beta as anthropic_beta
    from anthropic.types import message_create_params as anthropic_params
    from google.genai import types as google_types
    from openai.types import chat as openai_types
    from openai.types import responses as responses_types
    from openai.types.chat import completion_create_params as openai_params
    from openai.types.responses import response_create_params as responses_params
    from openai.types.shared import chat_model

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


# ---- requests


def strict(kind):
    """Return a validator that checks iterables, and rejects unknown fields."""
    adapter = TypeAdapter(kind)
    adapter.rebuild(force=True)  # the vendors' models defer it
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
SUFFIXES = (".md", ".py", ".txt", ".toml", ".ipynb")
ANTHROPIC_EDITS = strict(anthropic_beta.BetaContextManagementConfigParam)
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
            message.pop("reasoning_content", None)  # of other servers, not of the vendor
    OPENAI_TYPES["stream" in body].validate_python(body)


def check_anthropic(body):
    if "context_management" in body:
        ANTHROPIC_EDITS.validate_python(body.pop("context_management"))
    ANTHROPIC_TYPES["stream" in body].validate_python(body)


def check_google(body):
    for name, value in body.items():
        GOOGLE_TYPES[name].validate_python(value)


CHECKS = {
    "openai": check_openai,
    "responses": lambda body: RESPONSES_TYPES["stream" in body].validate_python(body),
    "anthropic": check_anthropic,
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
    | {"reasoning_summary": "auto", "provider_tools": [{"type": "web_search"}]}
    | {"compact_threshold": 100_000},
    "anthropic": {
        "max_tokens": 2000,
        "parallel_tool_calls": False,
        "compact_threshold": 100_000,
        "clear_tool_uses": 30_000,
    },
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
async def test_every_request_matches_the_types_of_the_vendor(talk, wire, streaming):
    settings = talk.settings.get(wire.name, {})
    async with wire.double(talk.script) as server, wire.model(server, **settings) as llm:
        await hold(talk, llm, streaming)
    for body in server.requests:
        CHECKS[wire.name](body)


@pytest.mark.parametrize("wire", WIRES, ids=lambda wire: wire.name)
@pytest.mark.parametrize("choice", ["auto", "none", "required", "add"])
async def test_every_setting_matches_the_types_of_the_vendor(choice, wire):
    talk = CONVERSATIONS[0]
    async with wire.double(["hello"]) as server, wire.model(server, **SETTINGS[wire.name]) as llm:
        messages = (await hold(talk, wire.model(server))).agent.messages[:1]
        server.replies = ["hello"]
        await llm.ainvoke(messages, TOOLS, tool_choice=choice)
    CHECKS[wire.name](server.requests[-1])


@pytest.mark.parametrize("wire", WIRES, ids=lambda wire: wire.name)
async def test_the_check_detects_invalid_requests(wire):
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


class Searcher(ToolSearch, Agent): ...


@pytest.mark.parametrize(
    ("wire", "model"),
    [
        *((wire, wire.model_name) for wire in WIRES),
        (ANTHROPIC, "claude-opus-5-5"),
        (RESPONSES, "gpt-5.6"),
    ],
    ids=lambda each: getattr(each, "name", each),
)
async def test_found_tools_and_later_instructions_match_the_types_of_the_vendor(wire, model):
    script = [calls(("search_tools", {"query": "add"}, "c1")), "ok", "bye"]
    async with wire.double(script) as server:
        agent = Searcher(llm=wire.model(server, model=model), searchable_tools=TOOLS)
        await agent.query("Add.")
        agent.add(SystemMessage("Be brief."))
        await agent.query("Bye.")
    for body in server.requests:
        CHECKS[wire.name](body)


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
def test_replies_of_our_doubles_match_the_types_of_the_vendor(reply, wire):
    if wire.name == "openai":
        reply = replace(reply, thinking=None)  # only other servers send thinking
    WHOLE[wire.name].validate_json(json.dumps(wire.whole(reply)))
    for frame in wire.frames(reply):
        data = frame.partition(b"data: ")[2].strip()
        if data not in (b"[DONE]", b'{"type": "ping"}'):
            PARTS[wire.name].validate_json(data)


class Read(NamedTuple):
    """The fields of a reply read by a vendor's client."""

    text: str
    thinking: str
    calls: list[tuple[str, dict[str, Any]]]
    reason: str
    tokens: int


CLIENT = {"api_key": "k", "_strict_response_validation": True}
PROMPT = [{"role": "user", "content": "hi"}]


async def read_openai(url):
    ask = {"model": "m", "messages": PROMPT}
    async with openai.AsyncOpenAI(base_url=url, **CLIENT) as client:
        found = [await client.chat.completions.create(**ask)]
        options = {"include_usage": True}
        async with client.chat.completions.stream(**ask, stream_options=options) as stream:
            async for _ in stream:
                pass
            try:
                found.append(await stream.get_final_completion())
            except openai.LengthFinishReasonError as error:
                found.append(error.completion)
    for each in found:
        [choice] = each.choices
        said = choice.message
        functions = [call.function for call in said.tool_calls or ()]
        calls = [(function.name, json.loads(function.arguments)) for function in functions]
        tokens = each.usage.prompt_tokens
        yield Read(said.content or said.refusal or "", "", calls, choice.finish_reason, tokens)


async def read_responses(url):
    ask = {"model": "m", "input": PROMPT}
    async with openai.AsyncOpenAI(base_url=url, **CLIENT) as client:
        found = [await client.responses.create(**ask)]
        async with client.responses.stream(**ask) as stream:
            async for _ in stream:
                pass
            with suppress(RuntimeError):  # the reply was truncated
                found.append(await stream.get_final_response())
    for each in found:
        items = {kind: [] for kind in ("message", "reasoning", "function_call")}
        for item in each.output:
            items[item.type].append(item)
        said = [part for item in items["message"] for part in item.content]
        text = each.output_text or "".join(p.refusal for p in said if p.type == "refusal")
        thinking = "".join(part.text for item in items["reasoning"] for part in item.summary)
        calls = [(call.name, json.loads(call.arguments)) for call in items["function_call"]]
        yield Read(text, thinking, calls, each.status, each.usage.input_tokens)


async def read_anthropic(url):
    ask = {"model": "m", "max_tokens": 9}
    ask["messages"] = [{"role": "user", "content": [{"type": "text", "text": "hi"}]}]
    async with anthropic.AsyncAnthropic(base_url=url, **CLIENT) as client:
        found = [await client.messages.create(**ask)]
        async with client.messages.stream(**ask) as stream:
            async for _ in stream:
                pass
            found.append(await stream.get_final_message())
    for each in found:
        blocks = each.content
        text = "".join(block.text for block in blocks if block.type == "text")
        thoughts = [block for block in blocks if block.type == "thinking"]
        assert all(thought.signature for thought in thoughts)
        thinking = "".join(thought.thinking for thought in thoughts)
        calls = [(block.name, block.input) for block in blocks if block.type == "tool_use"]
        yield Read(text, thinking, calls, each.stop_reason, each.usage.input_tokens)


async def read_google(url):
    client = genai.Client(api_key="k", http_options=google_types.HttpOptions(base_url=url))
    ask = {"model": "gemini-3-pro", "contents": "hi"}
    found = [[await client.aio.models.generate_content(**ask)]]
    stream = await client.aio.models.generate_content_stream(**ask)
    found.append([chunk async for chunk in stream])
    await client.aio.aclose()
    client.close()
    for each in found:
        parts = [part for chunk in each for part in chunk.candidates[0].content.parts or ()]
        assert any(part.thought_signature for part in parts)
        text = "".join(part.text or "" for part in parts if not part.thought)
        thinking = "".join(part.text for part in parts if part.thought)
        made = [part.function_call for part in parts if part.function_call]
        reason = each[-1].candidates[0].finish_reason.name
        tokens = each[-1].usage_metadata.prompt_token_count
        yield Read(text, thinking, [(call.name, call.args) for call in made], reason, tokens)


CLIENTS = {  # and their reasons for an answer, calls, a truncation and a refusal
    "openai": (read_openai, ("stop", "tool_calls", "length", "stop")),
    "responses": (read_responses, ("completed", "completed", "incomplete", "completed")),
    "anthropic": (read_anthropic, ("end_turn", "tool_use", "max_tokens", "refusal")),
    "google": (read_google, ("STOP", "STOP", "MAX_TOKENS", "SAFETY")),
}


@pytest.mark.parametrize("wire", WIRES, ids=lambda wire: wire.name)
@pytest.mark.parametrize("reply", REPLIES)
async def test_the_client_of_the_vendor_reads_replies_of_our_double(reply, wire):
    read, (plain, with_calls, cut, refused) = CLIENTS[wire.name]
    async with wire.double([reply, reply]) as server:
        found = [each async for each in read(server.base_url)]
    reason = cut if reply.finish else refused if reply.refusal else plain
    thinking = (wire.name != "openai" and reply.thinking) or ""
    calls = [call[:2] for call in reply.calls]
    text = reply.text or reply.refusal
    expected = Read(text, thinking, calls, with_calls if calls else reason, 10)
    assert found == [expected] * (1 if reply.finish and wire is RESPONSES else 2)


# ---- models


def test_no_program_or_page_names_a_model_that_a_vendor_shuts_down():
    _, _, deprecated = inspect.getsource(chat_model).partition("Deprecated values")
    ending = {*DEPRECATED_MODELS, *re.findall(r'"(gpt[^"]+|o\d[^"]*)"', deprecated)}
    assert {"gpt-5-mini", "claude-sonnet-4-5"} <= ending
    paths = [ROOT / "README.md"]
    for folder in ("agentloop", "examples"):
        paths += [path for path in (ROOT / folder).rglob("*.*") if path.suffix in SUFFIXES]
    for path in paths:
        text = path.read_text(encoding="utf-8")
        # not the keys of a table of prices, which also has old models
        assert not ending & {*re.findall(r"""["']([\w.-]+)["'](?!: [\d.])""", text)}, path
