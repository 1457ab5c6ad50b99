"""ChatOpenAI: request bodies, and parsing of realistic server replies."""

import json
import re
from dataclasses import replace
from enum import StrEnum
from typing import Any, Literal

import pytest
from pydantic import BaseModel

from agentloop.common.records import dump_record, load_record
from agentloop.common.typed_answer import done_tool
from agentloop.errors import BadResponse
from agentloop.events import TextDeltaEvent, ThinkingDeltaEvent
from agentloop.messages import (
    AssistantMessage,
    FilePart,
    ImagePart,
    SystemMessage,
    TextPart,
    ToolCall,
    ToolMessage,
    Usage,
    UserMessage,
)
from agentloop.models.completions import strict_schema, write_openai_messages
from agentloop.models.openai import ChatOpenAI
from agentloop.models.wire import drop_none
from agentloop.tools import Tool, tool
from tests.doubles.fault_server import stream
from tests.doubles.wires import OPENAI, RESPONSES

from .helpers import (
    CALLED,
    HI,
    PNG,
    RESULT,
    SCHEMA,
    TOOLS,
    ask,
    body_of,
    conversation,
    sent_body,
    serving,
)

LLM = ChatOpenAI("m", base_url="http://x")
END = {"choices": [{"delta": {}, "finish_reason": "tool_calls"}]}


def reply_to(message, finish="stop"):
    return LLM.read({"choices": [{"message": message, "finish_reason": finish}]})


def assemble(*chunks):
    whole = LLM.chunks(None)
    for chunk in chunks:
        whole.add(chunk)
    return LLM.read(whole.reply())


def delta(fields):
    return {"choices": [{"delta": fields}]}


def sent_message(llm, message):
    """Return a message as it is sent back to the provider."""
    return body_of(llm, [*HI, message])["messages"][1]


# ---- the request


async def test_a_conversation_with_calls_is_valid_for_the_provider():
    wire = (await sent_body(OPENAI, conversation(), TOOLS, system="s"))["messages"]
    assert wire[2]["content"] == "I look"
    assert wire[2]["tool_calls"][1]["function"] == {"name": "time", "arguments": "{}"}
    assert wire[4] == {"role": "tool", "tool_call_id": "b", "content": "no clock"}


async def test_a_long_id_of_another_server_is_shortened_in_call_and_result():
    long = "chatcmpl-tool-" + "0123456789abcdef" * 2
    turn = [AssistantMessage(tool_calls=(ToolCall(long, "time"),)), ToolMessage(long, "time", "1")]
    wire = (await sent_body(OPENAI, [*HI, *turn], TOOLS))["messages"]
    assert wire[1]["tool_calls"][0]["id"] == wire[2]["tool_call_id"] != long


MISTRALS = [
    ChatOpenAI("mistral-large-latest", base_url="https://api.mistral.ai/v1", api_key="k"),
    ChatOpenAI("mistralai/Devstral-Small-2-24B-Instruct-2512", base_url="http://x"),
]


ALTERNATING = [
    *MISTRALS,
    ChatOpenAI("gemma3:12b", base_url="http://x"),
    ChatOpenAI("google/gemma-3n-e4b-it", base_url="http://x"),
    ChatOpenAI("sonar-pro", base_url="https://api.perplexity.ai", api_key="k"),
    ChatOpenAI("perplexity/sonar", base_url="https://openrouter.ai/api/v1", api_key="k"),
]


@pytest.mark.parametrize("llm", ALTERNATING, ids=repr)
def test_a_reply_comes_before_each_prompt_for_models_whose_roles_must_alternate(llm):
    # "Unexpected role 'user' after role 'tool'", for example after an interrupted run
    # Source: https://github.com/NousResearch/hermes-agent/issues/20154
    # "conversation roles must alternate user and assistant", for example after a summary
    # Source: https://github.com/NousResearch/hermes-agent/pull/74087
    def roles(*messages):
        return [message["role"] for message in body_of(llm, messages, TOOLS)["messages"]]

    turn = ["user", "assistant", "tool"]
    assert roles(*HI, CALLED, RESULT) == turn
    assert roles(*HI, *HI) == ["user", "assistant", "user"]
    assert roles(*HI, CALLED, RESULT, *HI, *HI) == [*turn, *["assistant", "user"] * 2]
    attached = replace(RESULT, content=[PNG])
    assert roles(*HI, CALLED, attached) == [*turn, "assistant", "user"]
    assert roles(*HI, CALLED, attached, *HI) == [*turn, *["assistant", "user"] * 2]


def test_a_prompt_whose_parts_are_all_text_is_sent_as_a_string():
    # Lemonade: "type must be string, but is array"
    # Source: https://github.com/lemonade-sdk/lemonade/issues/629
    llm = ChatOpenAI("m", base_url="http://x")
    file = FilePart(data=b"a, b", media_type="text/csv", name="a.csv")
    [message] = body_of(llm, [UserMessage([TextPart("Sum up."), file])], ())["messages"]
    assert message["content"] == "Sum up.\na.csv:\na, b"


def test_a_pdf_is_a_document_for_mistrals_own_api():
    # 422: 'file' isn't known. Source: https://github.com/nextcloud/integration_openai/pull/419
    file = FilePart(data=b"%PDF-1.4", media_type="application/pdf", name="a.pdf")
    sent = {}
    for llm in MISTRALS:
        history = [UserMessage(["Sum up.", file]), CALLED, replace(RESULT, content=[file])]
        messages = body_of(llm, history, TOOLS)["messages"]
        sent[llm.model] = messages[0]["content"][1]
        assert messages[-1]["content"][1] == sent[llm.model]  # the attachment of the result
    address = "data:application/pdf;base64,JVBERi0xLjQ="
    document = {"type": "document_url", "document_url": address, "document_name": "a.pdf"}
    assert [*sent.values()] == [
        document,
        {"type": "file", "file": {"filename": "a.pdf", "file_data": address}},
    ]


def test_prompts_stay_next_to_each_other_for_other_models():
    llm = ChatOpenAI("google/gemma-4-31b-it", base_url="http://x")
    assert [message["role"] for message in body_of(llm, [*HI, *HI], ())["messages"]] == ["user"] * 2


@pytest.mark.parametrize("has_prompt", [True, False])
def test_chat_completions_gets_one_system_message_with_all_instructions(has_prompt):
    # Qwen: "System message must be at the beginning", also for a second one at the beginning
    # Source: https://github.com/ggml-org/llama.cpp/issues/27367
    # gpt-oss doesn't get to see others: https://github.com/raullenchai/Rapid-MLX/issues/1765
    llm = ChatOpenAI("qwen3.8:27b", base_url="http://x")
    added = SystemMessage("Answer in French.")
    history = [*HI, CALLED, RESULT, added, AssistantMessage("Noon."), added, *HI]
    texts = ["Answer in French."] * 2
    if has_prompt:
        history = [SystemMessage("Be brief."), *history]
        texts = ["Be brief.", *texts]
    first, *rest = body_of(llm, history, TOOLS)["messages"]
    assert first == {"role": "system", "content": "\n\n".join(texts)}
    roles = [message["role"] for message in rest]
    assert roles == ["user", "assistant", "tool", "assistant", "user"]


@pytest.mark.parametrize("llm", MISTRALS, ids=repr)
def test_mistral_gets_ids_of_nine_letters_or_digits_for_the_calls_of_other_servers(llm):
    # "Tool call id was call_PTLP8x but must be a-z, A-Z, 0-9, with a length of 9"
    # Source: https://github.com/anomalyco/opencode/issues/1680
    for call_id, is_kept in ("D681PevKs", True), ("call_PTLP8x", False), ("toolu_01Vp", False):
        turn = [
            AssistantMessage(tool_calls=(ToolCall(call_id, "time"),)),
            ToolMessage(call_id, "time", "1"),
        ]
        _, call, result = body_of(llm, [*HI, *turn], TOOLS)["messages"]
        sent = call["tool_calls"][0]["id"]
        assert sent == result["tool_call_id"]
        assert re.fullmatch("[a-zA-Z0-9]{9}", sent)
        assert (sent == call_id) is is_kept


@pytest.mark.parametrize(
    ("model", "address"),
    [
        ("deepseek-v4-pro", "https://api.deepseek.com"),
        ("deepseek/deepseek-v4-pro", "https://openrouter.ai/api/v1"),
        ("kimi-k2.5", "https://api.moonshot.ai/v1"),
        ("moonshotai/kimi-k2.6", "https://openrouter.ai/api/v1"),
        ("kimi-k2.6", "https://opencode.ai/zen/go/v1"),
        ("mimo-v2.5", "https://token-plan-sgp.xiaomimimo.com/v1"),
    ],
)
def test_replies_of_other_models_are_sent_to_deepseek_kimi_and_mimo_with_thoughts(model, address):
    # "The `reasoning_content` in the thinking mode must be passed back to the API."
    # Source: https://github.com/Astro-Han/pawwork/issues/250 (after a switch of the model)
    llm = ChatOpenAI(model, base_url=address, api_key="k")
    for thinking, sent in ("hm", "hm"), (None, "(not recorded)"):
        assert sent_message(llm, replace(CALLED, thinking=thinking))["reasoning_content"] == sent
    empty = {"content": "a", "reasoning_content": ""}  # DeepSeek V4 Pro sends it, and rejects it
    own = llm.read({"choices": [{"message": empty}]})
    assert sent_message(llm, own)["reasoning_content"] == "(not recorded)"


def test_opencode_gets_its_reasoning_back_in_the_only_field_that_it_takes():
    # "Extra inputs are not permitted, field: 'messages[2].reasoning'"
    llm = ChatOpenAI("kimi-k2.6", base_url="https://opencode.ai/zen/go/v1", api_key="k")
    sent = {"content": "a", "reasoning": "hm", "reasoning_details": [{"text": "hm"}]}
    back = sent_message(llm, llm.read({"choices": [{"message": sent}]}))
    assert back == {"role": "assistant", "content": "a", "reasoning_content": "hm"}


def test_groq_gets_no_thoughts_although_it_serves_kimi():
    # "property 'reasoning_content' is unsupported"
    groq = "https://api.groq.com/openai/v1"
    llm = ChatOpenAI("moonshotai/kimi-k2-instruct", base_url=groq, api_key="k")
    assert "reasoning_content" not in sent_message(llm, replace(CALLED, thinking="hm"))


@pytest.mark.parametrize(
    ("address", "model", "asks"),
    [
        ("https://api.mistral.ai/v1", "mistral-large-latest", False),
        ("https://r.services.ai.azure.com/openai/v1", "Mistral-Large-3", False),
        ("https://adb-1.2.azuredatabricks.net/serving-endpoints", "databricks-claude-5", False),
        ("https://openrouter.ai/api/v1", "mistralai/mistral-large", True),
        ("https://r.services.ai.azure.com/openai/v1", "gpt-5-mini", True),
    ],
)
def test_a_stream_is_asked_for_its_usage_except_where_that_is_refused(address, model, asks):
    # "stream_options", "include_usage": "Extra inputs are not permitted"
    llm = ChatOpenAI(model, base_url=address, api_key="k")
    body = json.loads(llm.request_body(HI, stream=True))
    assert body["stream"]
    assert ("stream_options" in body) is asks


def test_content_is_null_for_replies_with_only_calls_and_empty_replies_are_omitted():
    turn = [AssistantMessage(), CALLED, ToolMessage("a", "time", "noon")]
    contents = [(m["role"], m["content"]) for m in write_openai_messages([*HI, *turn])]
    assert contents == [("user", "hi"), ("assistant", None), ("tool", "noon")]


@pytest.mark.parametrize("content", ["", [ImagePart("https://example.com/a.png")]])
def test_a_result_has_some_text_even_if_its_tool_returns_none(content):
    # OpenCode: "The content field in the Message object at messages.2 is empty"
    # https://github.com/anomalyco/opencode/issues/15371
    written = write_openai_messages([*HI, CALLED, ToolMessage("a", "time", content)])
    assert written[2]["role"] == "tool"
    assert written[2]["content"].strip()


@pytest.mark.parametrize(
    ("address", "model"),
    [
        ("https://api.cloudflare.com/client/v4/accounts/a/ai/v1", "@cf/openai/gpt-oss-120b"),
        ("https://gateway.ai.cloudflare.com/v1/a/g/compat", "workers-ai/@cf/zai-org/glm-4.7-flash"),
    ],
)
def test_cloudflare_gets_an_empty_text_with_calls_because_it_refuses_null(address, model):
    llm = ChatOpenAI(model, base_url=address, api_key="k")
    assert sent_message(llm, CALLED)["content"] == ""


STRICT = {"name": "answer", "strict": True, "schema": SCHEMA | {"additionalProperties": False}}
LOOSE = {"type": "object", "additionalProperties": {"type": "string"}}


@pytest.mark.parametrize(
    ("schema", "expected"), [(SCHEMA, STRICT), (LOOSE, {"name": "answer", "schema": LOOSE})]
)
async def test_an_output_schema_uses_structured_outputs(schema, expected):
    llm = ChatOpenAI("m", base_url="http://x", prompt_cache_key="p")
    body = body_of(llm.with_output(schema), HI)
    assert body["response_format"] == {"type": "json_schema", "json_schema": expected}
    assert body["prompt_cache_key"] == "p"
    assert "response_format" not in body_of(llm, HI)
    body = body_of(replace(llm, api="responses").with_output(schema), HI)
    assert body["text"] == {"format": {"type": "json_schema", **expected}}
    async with RESPONSES.double(["{}"]) as server:
        await ask(RESPONSES.model(server).with_output(schema))


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("wire", [OPENAI, RESPONSES], ids=["chat", "responses"])
async def test_a_pattern_that_looks_ahead_or_behind_is_not_sent_to_openai(wire, strict):
    # "regex lookaround is not supported". Source: https://github.com/vercel/ai/pull/21037
    email = {"type": "string", "pattern": r"^(?!\.)(?!.*\.\.)\S+@\S+$"}
    place = {"type": "string", "pattern": "^[A-Z](?:[a-z]+)$"}
    pattern = {"type": "string"}  # a parameter with this name
    properties = {"email": email, "place": place, "pattern": pattern}
    invite = Tool("invite", "Invite.", {"type": "object", "properties": properties})
    sent = json.dumps(await sent_body(wire, HI, [invite], strict=strict))
    assert "(?!" not in sent
    assert "^[A-Z](?:[a-z]+)$" in sent


@pytest.mark.parametrize("wire", [OPENAI, RESPONSES], ids=["chat", "responses"])
async def test_openai_accepts_tuples_as_parameters_and_as_answers(wire):
    # "array schema missing items". Source: https://github.com/AnswerDotAI/fastcore/issues/798
    def crop(box: tuple[int, int], boxes: list[tuple[int, str]]) -> None:
        """Crop an image."""

    async with wire.double(["ok", "{}"]) as server:
        llm = wire.model(server)
        await llm.ainvoke(HI, [tool(crop)])
        await llm.with_output(done_tool(tuple[int, str]).parameters).ainvoke(HI)


@pytest.mark.parametrize("strict", [False, True])
async def test_nothing_is_beside_a_reference_to_the_type_of_a_described_parameter(strict):
    # OpenAI, strict: "$ref cannot have keywords {'description'}"
    # Source: https://github.com/defog-ai/defog/pull/244
    # Kimi: "conflicting keywords found after $ref expansion: description"
    # Source: https://github.com/MoonshotAI/kimi-cli/issues/2061
    class Unit(StrEnum):
        """A unit of temperature."""

        CELSIUS = "celsius"

    def weather(unit: Unit, other: Unit = Unit.CELSIUS) -> None:
        """The weather.

        Args:
            unit: what you want
        """

    body = await sent_body(RESPONSES, HI, [tool(weather)], strict=strict)
    declared = body["tools"][0]
    assert declared.get("strict", False) is strict
    unit = declared["parameters"]["properties"]["unit"]
    assert unit == {"anyOf": [{"$ref": "#/$defs/Unit"}], "description": "what you want"}
    assert not re.search(r'"\$ref": "[^"]*",', json.dumps(declared))


async def test_chat_completions_gets_the_types_of_parameters_in_their_place():
    # Ollama leaves references out: ToolProperty in
    # https://github.com/ollama/ollama/blob/main/api/types.go
    class Unit(StrEnum):
        CELSIUS = "celsius"

    class Place(BaseModel):
        city: str
        unit: Unit = Unit.CELSIUS

    def weather(unit: Unit, places: list[Place], home: Place | None = None) -> None:
        """The weather.

        Args:
            unit: what you want
        """

    [declared] = (await sent_body(OPENAI, HI, [tool(weather)]))["tools"]
    parameters = declared["function"]["parameters"]
    assert "$" not in json.dumps(parameters)
    unit = {"enum": ["celsius"], "title": "Unit", "type": "string"}
    found = parameters["properties"]
    assert found["unit"] == unit | {"description": "what you want"}
    assert found["places"]["items"]["properties"]["unit"] == unit | {"default": "celsius"}
    assert found["home"]["anyOf"] == [found["places"]["items"], {"type": "null"}]


def check_types(schema):
    """Check a schema as Kimi does: "type is not defined", and "type should be defined in anyOf".

    "type object is not allowed in combination with enum". Source:
    https://github.com/MoonshotAI/walle/blob/main/validator.go
    """
    assert ("anyOf" in schema) != ("type" in schema), schema
    assert "enum" not in schema or isinstance(schema["type"], str)
    inner = [*schema.get("anyOf", ()), *schema.get("properties", {}).values()]
    for subschema in [*inner, schema.get("items")]:
        if subschema is not None:
            check_types(subschema)


@pytest.mark.parametrize("url", ["https://api.moonshot.ai/v1", "https://openrouter.ai/api/v1"])
async def test_each_schema_has_a_type_for_kimi_and_none_has_one_beside_alternatives(url):
    def search(
        properties: dict[str, int],
        values: list,
        value: Any,
        maybe: Any | None,
        mixed: Literal["a", 1, None],
    ) -> None:
        """Search."""

    unions = {
        "properties": {"type": "object", "properties": {"a": {}, "b": {"enum": [1]}}},
        "view": {"enum": ["text", "raw"]},
        "page": {"type": "object", "anyOf": [{"required": ["id"]}, {"required": ["url"]}]},
    }
    found = Tool("find", "Find.", {"type": "object", "properties": unions})
    model = ChatOpenAI("moonshotai/kimi-k3", base_url=url, api_key="k")
    body = model.body([UserMessage("hi")], [tool(search), found], "auto", False)
    for declared in body["tools"]:
        check_types(declared["function"]["parameters"])
    page = body["tools"][1]["function"]["parameters"]["properties"]["page"]
    assert page["anyOf"][0] == {"required": ["id"], "type": "object"}


class Branch(BaseModel):
    """A type that refers to itself."""

    branches: list["Branch"] = []


async def test_types_stay_references_if_one_refers_to_itself_or_they_are_too_large():
    letters = {
        "type": "object",
        "properties": {"text": {"type": "string", "description": "x" * 99}},
    }
    types = {"T0": letters}
    for number in range(20):
        inner = {"$ref": f"#/$defs/T{number}"}
        types[f"T{number + 1}"] = {"type": "object", "properties": {"a": inner, "b": inner}}
    large = {"type": "object", "properties": {"it": {"$ref": "#/$defs/T20"}}, "$defs": types}
    many = {f"p{number}": {"$ref": "#/$defs/T0"} for number in range(200)}
    wide = {"type": "object", "properties": many, "$defs": {"T0": letters}}

    def grow(branch: Branch, size: int) -> None:
        """Grow."""

    for each in (tool(grow), Tool("large", "Large.", large), Tool("wide", "Wide.", wide)):
        [declared] = (await sent_body(OPENAI, HI, [each]))["tools"]
        assert declared["function"]["parameters"] == each.parameters


@pytest.mark.parametrize("wire", [OPENAI, RESPONSES], ids=["chat", "responses"])
async def test_a_list_of_texts_has_a_type(wire):
    # Kimi: "type is not defined". Source: https://github.com/MoonshotAI/kimi-cli/pull/2030
    enum = {"type": "string"}  # a parameter with this name
    properties = {"mode": {"enum": ["START", "END"]}, "level": {"enum": [1, "max"]}, "enum": enum}
    run = Tool("run", "Run.", {"type": "object", "properties": properties})
    body = await sent_body(wire, HI, [run])
    declared = body["tools"][0].get("function") or body["tools"][0]
    mode = {"mode": {"enum": ["START", "END"], "type": "string"}}
    assert declared["parameters"]["properties"] == properties | mode


# ---- strict tools


def strict_with(properties, required):
    schema = {"type": "object", "properties": properties, "required": required}
    before = json.dumps(schema)
    strict = strict_schema(schema)
    assert json.dumps(schema) == before
    return strict


def test_strict_schemas_require_all_parameters_and_make_optional_ones_nullable():
    text, null = {"type": "string"}, {"type": "null"}
    number = {"type": "integer", "description": "d"}
    maybe = {"anyOf": [text, null]}
    properties = {"a": text, "b": number | {"default": 3}, "c": maybe | {"default": None}}
    assert strict_with(properties, ["a"]) == {
        "type": "object",
        "properties": {"a": text, "b": {"anyOf": [number, null]}, "c": {"anyOf": [maybe, null]}},
        "required": ["a", "b", "c"],
        "additionalProperties": False,
    }


def test_strict_schemas_close_nested_models_at_every_depth():
    class Line(BaseModel):
        text: str
        number: int = 0

    class Order(BaseModel):
        lines: list[Line]
        last: Line

    schema = done_tool(Order).parameters
    body = body_of(LLM.with_output(schema), HI)
    sent = body["response_format"]["json_schema"]
    assert sent["strict"]
    line = sent["schema"]["$defs"]["Line"]
    assert (line["required"], line["additionalProperties"]) == (["text", "number"], False)


def test_an_unsupported_format_is_removed_from_a_strict_schema():
    text = {"type": "string"}
    url, day = text | {"format": "uri"}, text | {"format": "date"}
    inner = {"type": "object", "required": ["u"], "additionalProperties": False}
    properties = {"format": url, "day": day, "inner": inner | {"properties": {"u": url}}}
    properties["urls"] = {"type": "array", "items": url}
    assert strict_with(properties, [*properties])["properties"] == {
        "format": text,
        "day": day,
        "inner": inner | {"properties": {"u": text}},
        "urls": {"type": "array", "items": text},
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
def test_a_schema_that_strict_mode_rejects_has_no_strict_form(value):
    assert strict_with({"a": value}, ["a"]) is None


# ---- replies, labelled with their provider

CALL = {"id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}}
CONTENT = {"content": "a"}
THOUGHT = {"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}
MIXED = [{"type": "text", "text": "a"}, {"type": "zzz"}, {"text": "b"}, 5]
REPLIES = {  # a message, and the expected fields of the reply
    "text": (CONTENT, {"text": "a", "stop_reason": "end", "raw": None, "usage": None}),
    "null": ({"content": None}, {"text": ""}),
    "no content": ({}, {"text": ""}),
    "Mistral: parts": ({"content": MIXED}, {"text": "ab", "thinking": None}),
    "Mistral: thinking parts": (
        {"content": [THOUGHT, CONTENT]},
        {"text": "", "thinking": "hm", "raw": None},
    ),
    "Cloudflare: an object": ({"content": {"n": 1}}, {"text": '{"n": 1}'}),
    "half characters": ({"content": "a\ud83d\ude00\ud83d"}, {"text": "a😀\ufffd"}),
    "a refusal": (
        {"content": None, "refusal": "I can't."},
        {"text": "I can't.", "stop_reason": "refused"},
    ),
    "DeepSeek, vLLM": (CONTENT | {"reasoning_content": "hm"}, {"thinking": "hm"}),
    "OpenRouter": (CONTENT | {"reasoning": "hm"}, {"thinking": "hm"}),
    "an object as reasoning": (CONTENT | {"reasoning": {"n": 1}}, {"thinking": '{"n": 1}'}),
    "half a character in a signature": (
        {"tool_calls": [CALL | {"extra_content": "\ud83d"}]},
        {"tool_calls": (ToolCall("a", "f", extra={"extra_content": "\ufffd"}),)},
    ),
    "Azure: filtered": (None, {"text": "", "stop_reason": "refused"}),
}
REASONING = {"completion_tokens_details": {"reasoning_tokens": 30}}
USAGES = {  # usage fields in addition to 100 input and 50 output tokens, and the expected usage
    "OpenAI": (
        REASONING | {"prompt_tokens_details": {"cached_tokens": 80}, "total_tokens": 150},
        Usage(100, 50, cached_input_tokens=80, reasoning_tokens=30),
    ),
    "OpenRouter": (
        {"prompt_tokens_details": {"cache_write_tokens": 60}},
        Usage(100, 50, cache_write_tokens=60),
    ),
    # Source: https://discuss.ai.google.dev/t/127400
    "Google": ({"total_tokens": 180}, Usage(100, 80)),
    "xAI": (REASONING | {"total_tokens": 180}, Usage(100, 80, reasoning_tokens=30)),
    # Source: packages/xai/src/convert-xai-chat-usage.ts of vercel/ai
    "xAI: cached": ({"prompt_tokens_details": {"cached_tokens": 400}}, Usage(500, 50, 400)),
    "Mistral": ({"num_cached_tokens": 7}, Usage(100, 50, 7)),
    "Moonshot": ({"cached_tokens": 7}, Usage(100, 50, 7)),
    "DeepSeek": ({"prompt_cache_hit_tokens": 7, "prompt_cache_miss_tokens": 93}, Usage(100, 50, 7)),
}


def read(message, finish, streaming, usage=None):
    """Read a reply. In a stream, each text is a single delta, and usage has a separate chunk."""
    choice = {} if message is None else {"delta" if streaming else "message": message}
    choices = [choice | {"finish_reason": finish}]
    if streaming:
        return assemble({"choices": choices}, {"choices": [], "usage": usage})
    return LLM.read({"choices": choices, "usage": usage})


@pytest.mark.parametrize("case", REPLIES)
def test_replies_of_different_servers_are_read(case, streaming):
    message, expected = REPLIES[case]
    reply = read(message, "content_filter" if message is None else "stop", streaming)
    assert {name: getattr(reply, name) for name in expected} == expected


def test_a_filtered_reply_whose_message_is_null_is_a_refusal():
    reply = LLM.read({"choices": [{"message": None, "finish_reason": "content_filter"}]})
    assert (reply.text, reply.stop_reason) == ("", "refused")


@pytest.mark.parametrize("case", USAGES)
def test_usage_of_different_servers_is_read(case, streaming):
    details, expected = USAGES[case]
    usage = {"prompt_tokens": 100, "completion_tokens": 50, **details}
    assert read(CONTENT, "stop", streaming, usage).usage == expected


def test_usage_that_kimi_streams_with_the_last_choice_is_read():
    usage = {"prompt_tokens": 100, "completion_tokens": 50}
    last = {"choices": [{"delta": {}, "finish_reason": "stop", "usage": usage}]}
    assert assemble(delta(CONTENT), last).usage == Usage(100, 50)


FAILURES = ["error", "abort", "network_error", "insufficient_system_resource"]


@pytest.mark.parametrize("word", FAILURES)
def test_a_finish_reason_that_reports_a_failure_is_a_bad_response(word):
    # OpenRouter, vLLM, Z.AI, DeepSeek
    with pytest.raises(BadResponse, match=word):
        reply_to(CONTENT, word)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [('{"a":1}', '{"a":1}'), ({"a": 1}, '{"a": 1}'), ("", ""), (None, ""), (" ", " ")],
)
def test_arguments_of_any_type_are_converted_to_text(arguments, text):
    message = {"tool_calls": [{"id": "a", "function": {"name": "f", "arguments": arguments}}]}
    assert reply_to(message).tool_calls[0].arguments == text


# ---- opaque data of a server

SIGNED = {"extra_content": {"google": {"thought_signature": "c2ln"}}}
THOUGHTS = [
    {"type": "reasoning.text", "text": "Let me see.", "signature": "Et8B", "index": 0},
    {"type": "reasoning.encrypted", "data": "one", "index": 1},
    {"type": "reasoning.encrypted", "data": "two", "index": 1},
    {"type": "reasoning.summary", "summary": "I saw it.", "index": 2},
]
BLOCKS = [
    {"type": "thinking", "thinking": "Let me see.", "signature": "Et8B"},
    {"type": "redacted_thinking", "data": "one"},
    {"type": "thinking", "thinking": "I saw it.", "signature": "Et8C"},
]
OPAQUE = {  # fields of the message in addition to its text and calls
    "DeepSeek": {"reasoning_content": "hm"},
    # DeepSeek rejects a history without this field
    "DeepSeek, empty reasoning": {"reasoning_content": ""},
    "OpenRouter": {"reasoning": "Let me see.", "reasoning_details": THOUGHTS},
    "Gemini: signature of the message": SIGNED,
    # https://docs.litellm.ai/docs/reasoning_content
    "Claude behind LiteLLM": {"reasoning_content": "Let me see.", "thinking_blocks": BLOCKS},
}


@pytest.mark.parametrize("case", OPAQUE)
def test_opaque_data_is_sent_back_only_to_its_server_and_model(case, streaming):
    # Groq and Mistral reject reasoning of other servers
    message = {"content": "a", "tool_calls": [CALL | SIGNED, CALL | {"id": "b"}], **OPAQUE[case]}
    pieces = [{name: value} for name, value in message.items()]
    reply = assemble(*map(delta, pieces), END) if streaming else reply_to(message)
    again = load_record(dump_record(reply))
    sent = {"role": "assistant", **message}
    assert sent_message(LLM, again) == sent
    plain = {"role": "assistant", "content": "a", "tool_calls": [CALL, CALL | {"id": "b"}]}
    for other in (ChatOpenAI("other", base_url="http://x"), ChatOpenAI("m", base_url="http://y")):
        assert sent_message(other, again) == plain
    changed = replace(again, tool_calls=again.tool_calls[:1])
    assert sent_message(LLM, changed)["tool_calls"] == [CALL | SIGNED]
    for raw in ({"reasoning_content": "x"}, [1], "x", None):
        assert sent_message(LLM, replace(again, raw=raw)) == plain


def test_reasoning_fragments_of_openrouter_are_merged():
    first = {"type": "reasoning.text", "format": "anthropic-claude-v1", "index": 0}
    fragments = [
        first | {"text": "Let", "id": None},
        first | {"text": " me see."},
        first | {"signature": "Et8B"},  # signs the complete text
        *THOUGHTS[1:],
    ]
    reply = assemble(
        *[delta({"reasoning_details": [fragment]}) for fragment in fragments], delta(CONTENT), END
    )
    whole = first | {"text": "Let me see.", "signature": "Et8B"}
    assert sent_message(LLM, reply)["reasoning_details"] == [whole, *THOUGHTS[1:]]


def test_thinking_blocks_of_older_versions_of_litellm_are_merged():
    # https://github.com/BerriAI/litellm/issues/29428
    pieces = [("Let me", ""), (" see.", ""), ("", "Et8B")]
    kind = {"type": "thinking"}
    fragments = [kind | {"thinking": text, "signature": sign} for text, sign in pieces]
    chunks = [delta({"thinking_blocks": [piece]}) for piece in [*fragments, *BLOCKS[1:]]]
    assert sent_message(LLM, assemble(*chunks, delta(CONTENT), END))["thinking_blocks"] == BLOCKS


def test_the_signature_of_a_gemini_call_behind_litellm_is_sent_back():
    # its id also has the signature, and is too long for other servers
    # Source: https://github.com/BerriAI/litellm/pull/16895
    signed = {"provider_specific_fields": {"thought_signature": "c2ln"}}
    call = CALL | {"id": "call_1__thought__" + "c2ln" * 99}
    pieces = [{**call, **signed, "index": 0}, {"index": 0, "provider_specific_fields": None}]
    for reply in (
        reply_to({"tool_calls": [call | signed]}),
        assemble(*[delta({"tool_calls": [piece]}) for piece in pieces], END),
    ):
        again = load_record(dump_record(reply))
        assert signed.items() <= sent_message(LLM, again)["tool_calls"][0].items()


# ---- streams


def test_only_the_first_of_several_choices_is_read():
    def choices(*texts):
        return {"choices": [{"index": n, "delta": {"content": t}} for n, t in enumerate(texts)]}

    other = {"choices": [{"index": 1, "delta": {"content": "bye"}, "finish_reason": "length"}]}
    reply = assemble(choices("Hel", "Good"), choices("lo"), other, END)
    assert (reply.text, reply.stop_reason) == ("Hello", "tool_calls")


def test_thinking_in_two_fields_is_emitted_once():
    # vLLM and OpenRouter send both fields, as clients read only one of them
    deltas = []
    whole = LLM.chunks(deltas.append)
    for piece in ("h", "m"):
        whole.add(delta({"reasoning": piece, "reasoning_content": piece}))
    assert deltas == [ThinkingDeltaEvent("h"), ThinkingDeltaEvent("m")]
    assert LLM.read(whole.reply()).thinking == "hm"


def test_thinking_is_emitted_before_the_content_and_the_refusal_of_the_same_delta():
    deltas = []
    whole = {"content": "Yes.", "refusal": "No.", "reasoning": "hm"}
    LLM.chunks(deltas.append).add(delta(whole))
    assert deltas == [ThinkingDeltaEvent("hm"), TextDeltaEvent("Yes."), TextDeltaEvent("No.")]


@pytest.mark.parametrize("position", [0, 1, 2])
async def test_a_usage_chunk_without_choices_is_accepted_at_any_position(position):
    chunks = [delta(CONTENT), END]
    usage = {"prompt_tokens": 3, "completion_tokens": 4}
    chunks.insert(position, {"choices": [], "usage": usage})
    async with serving(stream(*chunks)) as server:
        reply = await ask(OPENAI.model(server), streaming=True)
    assert (reply.text, reply.usage) == ("a", Usage(3, 4))


async def test_a_stream_may_end_without_a_finish_reason():
    async with serving(stream(delta(CONTENT))) as server:
        assert (await ask(OPENAI.model(server), streaming=True)).text == "a"


@pytest.mark.parametrize("chunks", [[], [{"choices": None, "error_message": "too long"}]])
async def test_a_stream_that_ends_without_a_reply_is_a_bad_response(chunks):
    async with serving(stream(*chunks)) as server:
        with pytest.raises(BadResponse, match="too long" if chunks else "DONE"):
            await ask(OPENAI.model(server, max_retries=0), streaming=True)


def piece(call_id, name, arguments, index=0):
    """Create a chunk with a fragment of a call; None values are omitted."""
    function = drop_none({"name": name, "arguments": arguments})
    return delta({"tool_calls": [drop_none({"index": index, "id": call_id, "function": function})]})


ONE, TWO = [("a", "f", '{"x":1}')], [("a", "f", "{}"), ("b", "g", "[]")]
CALLS = {  # fragments, and the expected calls
    "as documented": ([("a", "f", ""), (None, None, '{"x"'), (None, None, ":1}")], ONE),
    "id and name repeated": ([("a", "f", '{"x"'), ("a", "f", ":1}"), ("a", "f", "")], ONE),
    "another id in each piece": ([("a", "f", '{"x"'), ("random", None, ":1}")], ONE),
    "a late id": ([(None, "f", '{"x":1}'), ("a", "f", None)], ONE),
    "interleaved": ([("a", "f", ""), ("b", "g", "", 1), ("", "", "{}"), ("", "", "[]", 1)], TWO),
    "no index": ([("a", "f", "{}", None), ("b", "g", "[]", None)], TWO),
    "gaps in the index": ([("a", "f", "{}", 1), ("b", "g", "[]", 5)], TWO),
    "one index for two calls": (
        [("a", "f", "{}"), ("b", "f", "{}")],
        [("a", "f", "{}"), ("b", "f", "{}")],
    ),
    "Gemini: one index and no ids": (
        [("", "f", '{"x":1}'), ("", "f", '{"x":2}')],
        [("", "f", '{"x":1}'), ("", "f", '{"x":2}')],
    ),
    "a name in pieces": (
        [("a", "get_", None), (None, "weather", None)],
        [("a", "get_weather", "")],
    ),
    "neither index nor id": (
        [(None, "f", '{"a', None), (None, None, '":1}', None)],
        [("", "f", '{"a":1}')],
    ),
    "arguments as an object": ([("a", "f", {"x": 1})], [("a", "f", '{"x": 1}')]),
}


@pytest.mark.parametrize("case", CALLS)
def test_streamed_calls_of_different_servers_are_assembled(case):
    pieces, expected = CALLS[case]
    reply = assemble(*[piece(*fields) for fields in pieces], END)
    assert [(c.id, c.name, c.arguments) for c in reply.tool_calls] == expected
    assert reply.stop_reason == "tool_calls"
