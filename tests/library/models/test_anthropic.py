"""ChatAnthropic: request bodies, and parsing of realistic server replies."""

import json
from dataclasses import replace
from typing import Annotated

import pytest
from pydantic import BaseModel

from agentloop import Agent, CompactionConfig, Depends, current_agent, tool
from agentloop.common.found_tools import FoundTool
from agentloop.common.records import dump_record, load_record
from agentloop.common.typed_answer import done_tool
from agentloop.errors import BadRequest, BadResponse, ContextWindowExceeded
from agentloop.events import ThinkingDeltaEvent
from agentloop.messages import (
    AssistantMessage,
    FilePart,
    SystemMessage,
    TextPart,
    ToolCall,
    ToolMessage,
    Usage,
    UserMessage,
)
from agentloop.mixins.structured_output import StructuredOutput
from agentloop.models.anthropic import AnthropicChunks, ChatAnthropic
from agentloop.tools import Tool
from tests.doubles.anthropic_double import AnthropicDouble, redacted, sign, sse, thought
from tests.doubles.fault_server import answer, chunk, stream_head
from tests.doubles.openai_double import Reply, calls
from tests.doubles.wires import ANTHROPIC, add

from .helpers import (
    CALLED,
    HI,
    RESULT,
    SCHEMA,
    TOOLS,
    agent_of,
    ask,
    body_of,
    conversation,
    sent_body,
    serving,
)

model = ANTHROPIC.model
LLM = ChatAnthropic("m", api_key="k")
read = LLM.read
MARK = {"cache_control": {"type": "ephemeral"}}
WEB = {"type": "web_search_20250305", "name": "web_search", "max_uses": 3}
SEARCH = {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {"q": "x"}}
SEARCH_RESULT = {"type": "web_search_tool_result", "tool_use_id": "s", "content": []}
SEARCH_2 = SEARCH | {"id": "t"}
HOP = {"type": "fallback", "from": {"model": "a"}, "to": {"model": "b"}, "trigger": {}}
ADVISOR = SEARCH | {"id": "v", "name": "advisor"}
ADVICE = {"type": "advisor_tool_result", "tool_use_id": "v", "content": {"type": "advisor_result"}}
MCP = SEARCH | {"type": "mcp_tool_use", "id": "p", "server_name": "x"}
MCP_RESULT = {"type": "mcp_tool_result", "tool_use_id": "p", "content": [], "is_error": False}


def text(words):
    return {"type": "text", "text": words}


def use(call_id="a", name="time", **arguments):
    return {"type": "tool_use", "id": call_id, "name": name, "input": arguments}


def result(call_id, words):
    return {"type": "tool_result", "tool_use_id": call_id, "content": [text(words)]}


def read_stream(*items):
    whole = AnthropicChunks()
    for item in items:
        whole.add(item)
    return read(whole.reply())


def start(index, block):
    return {"type": "content_block_start", "index": index, "content_block": block}


def delta(index, kind, **fields):
    return {"type": "content_block_delta", "index": index, "delta": {"type": kind, **fields}}


def blocks_of(reply):
    """Return the content blocks of a reply when sent back to the provider."""
    return sent_blocks(LLM, reply)


def sent_blocks(llm, reply):
    return body_of(llm, [*HI, reply])["messages"][1]["content"]


def long_conversation():
    talk = conversation()
    return [*talk[:5], UserMessage("hurry"), *talk[5:], UserMessage("bye")]


# ---- the request


async def test_unsupported_keywords_are_removed_from_an_output_schema():
    number = {"type": "integer", "minimum": 0, "title": "N"}
    kinds = {
        "oneOf": [{"$ref": "#/$defs/A"}, {"type": "string", "format": "path", "pattern": "a"}],
        "discriminator": {"propertyName": "kind", "mapping": {}},
    }
    place = {"type": "object", "properties": {"format": {"type": "null"}, "minimum": number}}
    listed = {"type": "array", "items": kinds, "maxItems": 9}
    schema = {"type": "object", "properties": {"kinds": listed}, "$defs": {"A": place}}
    body = await sent_body(ANTHROPIC, HI, output_schema=schema)
    plain = {"format": {"type": "null"}, "minimum": {"type": "integer", "title": "N"}}
    items = {"anyOf": [{"$ref": "#/$defs/A"}, {"type": "string"}]}
    closed = {"type": "object", "additionalProperties": False}
    assert body["output_config"]["format"]["schema"] == closed | {
        "properties": {"kinds": {"type": "array", "items": items}},
        "$defs": {"A": closed | {"properties": plain}},
    }
    assert number["minimum"] == 0


class Line(BaseModel):
    x: int


class Node(BaseModel):
    name: str
    children: list["Node"] = []


class Prices(BaseModel):
    prices: dict[str, int]


class Anything(BaseModel):
    data: list[dict]


UNFIT = [Prices, dict[str, int], Anything, Node, list[Node], tuple[int, str]]


@pytest.mark.parametrize("kind", UNFIT)
async def test_an_output_type_that_structured_outputs_do_not_support_uses_the_done_tool(kind):
    # structured outputs close every object, so that only {} fits a dict, and reject recursion;
    # they don't know the types of a tuple
    async with AnthropicDouble(["never"]) as server:
        llm = model(server)
        assert llm.with_output(done_tool(kind).parameters) is None
        agent = StructuredOutput(llm=llm, output_type=kind)
        assert [tool.name for tool in agent.toolset()] == ["done"]


async def test_an_output_type_with_a_repeated_model_uses_structured_outputs():
    class Pair(BaseModel):
        one: Line
        two: list[Line]

    async with AnthropicDouble(['{"one": {"x": 1}, "two": []}']) as server:
        agent = StructuredOutput(llm=model(server), output_type=Pair)
        assert (await agent.run("?")).value == Pair(one=Line(x=1), two=[])
    assert "output_config" in server.requests[0]


async def test_a_conversation_with_calls_is_valid_for_the_provider():
    body = await sent_body(ANTHROPIC, long_conversation(), TOOLS, cache=False, system="s")
    blocks = [text("I look"), use("a", "weather", city="Bern"), use("b", "time")]
    failed = result("b", "no clock") | {"is_error": True}
    assert body["messages"] == [
        {"role": "user", "content": [text("weather?")]},
        {"role": "assistant", "content": blocks},
        {"role": "user", "content": [result("a", "sunny"), failed, text("hurry")]},
        {"role": "assistant", "content": [text("It is sunny.")]},
        {"role": "user", "content": [text("thanks"), text("bye")]},
    ]


async def test_call_ids_of_other_servers_are_converted_to_valid_distinct_ids():
    ids = ["a.b", "a_b", "call|1", "x" * 70, "é"]
    turn = AssistantMessage(tool_calls=tuple(ToolCall(call_id, "time") for call_id in ids))
    results = [ToolMessage(call_id, "time", call_id) for call_id in ids]
    wire = (await sent_body(ANTHROPIC, [*HI, turn, *results], TOOLS))["messages"]
    sent_ids = [block["id"] for block in wire[1]["content"]]
    assert sent_ids == [block["tool_use_id"] for block in wire[2]["content"]]
    assert (len(set(sent_ids)), sent_ids[1]) == (5, "a_b")


@pytest.mark.parametrize("blank", ["", "\n\t "])
async def test_blank_text_is_omitted_or_replaced_by_a_placeholder(blank):
    messages = [
        SystemMessage(blank),
        UserMessage([TextPart("hi"), TextPart(blank)]),
        UserMessage(blank),
        AssistantMessage(blank, tool_calls=(ToolCall("a", "time"), ToolCall("b", "time"))),
        ToolMessage("a", "time", blank),
        ToolMessage("b", "time", [TextPart(blank)], is_error=True),
        UserMessage(blank),
        AssistantMessage(blank),
    ]
    body = await sent_body(ANTHROPIC, messages, TOOLS, cache=False)
    assert "system" not in body
    failed = result("b", "(empty)") | {"is_error": True}
    assert [message["content"] for message in body["messages"]] == [
        [text("hi")],
        [use("a"), use("b")],
        [result("a", "(empty)"), failed],
    ]


@pytest.mark.parametrize("blank", ["", "\n\t "])
async def test_a_blank_message_keeps_its_turn_if_alternating_roles_require_it(blank):
    turns = [UserMessage(blank), AssistantMessage("yes?"), UserMessage(blank)]
    welcome = [AssistantMessage("welcome"), *HI]
    async with AnthropicDouble(["a"] * 4) as server:
        for messages in (turns[:1], turns, [*turns, AssistantMessage("well"), *HI]):
            await ask(model(server), messages=messages)
        assert server.prefix_breaks == []
        await ask(model(server), messages=welcome)
    roles = [message["role"] for message in server.requests[3]["messages"]]
    assert roles == ["user", "assistant", "user"]


# ---- thinking, and other block types


def test_calls_of_the_message_replace_the_calls_in_raw_at_the_same_positions():
    reply = read({"content": [thought("x"), text("so"), use("a"), text("and"), use("b")]})
    renamed = tuple(ToolCall(f"{call.id}_2", "time", '{"x":1}') for call in reply.tool_calls)
    turn = [thought("x"), text("so"), use("a_2", x=1), text("and"), use("b_2", x=1)]
    assert blocks_of(replace(reply, tool_calls=renamed)) == turn
    fewer = [text("soand"), use("a_2", x=1)]
    assert blocks_of(replace(reply, tool_calls=renamed[:1])) == fewer


HIDDEN = {"type": "thinking", "thinking": "", "signature": sign("")}
UNKNOWN_BLOCK = {"type": "zzz", "x": [1, None], "y": {"é": "漢"}}
COMPACT = {"type": "compaction", "content": "in short", "encrypted_content": "e"}
CITED = text("so") | {"citations": [{"type": "char_location", "cited_text": x} for x in "ab"]}
DIRECT = use() | {"caller": {"type": "direct"}}


@pytest.mark.parametrize(
    ("blocks", "back"),
    [
        ([UNKNOWN_BLOCK, COMPACT, SEARCH, SEARCH_RESULT, CITED, DIRECT], None),
        ([HIDDEN, use()], None),
        ([thought("hm 漢字"), redacted("secret"), text("so"), use()], None),
        ([thought("x"), text("\n\n"), use()], [thought("x"), use()]),  # the API rejects blank text
    ],
)
async def test_received_blocks_are_sent_back_unchanged(blocks, back):
    async with AnthropicDouble([Reply(blocks=blocks)] * 2 + ["done"]) as server:
        llm = model(server, cache=False, compact_threshold=50_000)
        whole = await ask(llm, tools=TOOLS)
        reply = await ask(llm, True, tools=TOOLS)
        assert reply == whole
        again = load_record(dump_record(reply))
        await ask(llm, messages=[*HI, again, RESULT], tools=TOOLS)
    assert server.requests[2]["messages"][1]["content"] == (back or blocks)


async def test_calls_of_a_model_that_declined_do_not_run_and_are_not_sent_back(streaming):
    """Source: https://platform.claude.com/docs/en/build-with-claude/refusals-and-fallback"""
    ran = list[str]()

    @tool("Note something.")
    def note(what: str) -> str:
        ran.append(what)
        return what

    served = [HOP, thought("c"), use("2", "note", what="two")]
    searches = [SEARCH, SEARCH_RESULT, SEARCH_2]
    begun = [thought("a"), use("0", "note", what="zero"), HOP, thought("b"), text("so"), *searches]
    blocks = [*begun, use("1", "note", what="one"), *served]
    async with AnthropicDouble([Reply(blocks=blocks), "done"]) as server:
        betas = ["server-side-fallback-2026-07-01"]
        agent = agent_of(model(server, cache=False, betas=betas), streaming, [note])
        assert await agent.query("hi") == "done"
    assert ran == ["two"]
    sent = server.requests[1]["messages"][1]["content"]
    assert sent == [HOP, text("so"), SEARCH, SEARCH_RESULT, *served]


@pytest.mark.parametrize(
    ("beta", "blocks"),
    [
        ("server-side-fallback-2026-07-01", [HOP]),
        ("advisor-tool-2026-03-01", [ADVISOR, ADVICE]),
        ("mcp-client-2025-11-20", [MCP, MCP_RESULT]),
    ],
)
@pytest.mark.parametrize("name", ["m", "claude-opus-5-5"])
async def test_blocks_of_a_beta_feature_are_sent_only_with_it(name, beta, blocks):
    blocks = [thought("x"), *blocks, text("so"), use()]
    if blocks[1] == HOP:
        del blocks[0]  # the API refuses thinking before a fallback
    async with AnthropicDouble([Reply(blocks=blocks), "yes", "done"]) as server:
        plain = model(server, model=name, cache=False)
        agent = agent_of(replace(plain, betas=[beta]), False, TOOLS)
        assert await agent.query("hi") == "yes"
        agent.llm = plain
        assert await agent.query("and?") == "done"
    with_it, without_it = (request["messages"][1]["content"] for request in server.requests[1:])
    assert len(with_it) == len(blocks)
    assert [block["type"] for block in without_it] == ["text", "tool_use"]


def test_deltas_of_an_unknown_type_are_merged():
    reply = read_stream(
        start(0, {"type": "zzz"}),
        delta(0, "zzz_delta", zzz="a", n=[1], none=None),
        delta(0, "zzz_delta", zzz="b"),
        start(1, {"type": "thinking", "thinking": ""}),
        delta(1, "thinking_delta", thinking="x", estimated_tokens=9),
    )
    zzz = {"type": "zzz", "zzz": "ab", "n": [1]}
    assert reply.raw["content"] == [zzz, {"type": "thinking", "thinking": "x"}]


KIMI = ChatAnthropic("kimi-k3", base_url="https://api.kimi.com/coding", api_key="k")


@pytest.mark.parametrize("signature", [{"signature": "kimi"}, {"signature": ""}, {}])
def test_thinking_goes_back_only_to_its_server_also_without_a_signature(signature):
    # "Invalid `signature` in `thinking` block", after a switch to Anthropic
    # Source: https://github.com/can1357/oh-my-pi/issues/6379
    # "The `content[].thinking` in the thinking mode must be passed back to the API."
    # Source: https://github.com/NousResearch/hermes-agent/pull/104219 (DeepSeek, unsigned)
    blocks = [{"type": "thinking", "thinking": "hm"} | signature, text("so"), use()]
    reply = load_record(dump_record(KIMI.read({"content": blocks, "stop_reason": "tool_use"})))
    assert sent_blocks(KIMI, reply) == blocks
    assert sent_blocks(LLM, reply) == blocks[1:]
    cut_off = KIMI.read({"content": blocks, "stop_reason": "max_tokens"})
    assert sent_blocks(KIMI, cut_off)[0]["thinking"] == "hm", "the call needs it"


def test_calls_of_other_models_are_sent_to_deepseek_with_thinking():
    # "The `content[].thinking` in the thinking mode must be passed back to the API."
    # Source: https://github.com/QwenLM/qwen-code/pull/3788
    deepseek = ChatAnthropic("deepseek-v4-pro", base_url="https://api.deepseek.com/anthropic")
    for thinking, sent in ("hm", "hm"), (None, "(not recorded)"):
        first, call = sent_blocks(deepseek, replace(CALLED, thinking=thinking))
        assert first == {"type": "thinking", "thinking": sent, "signature": ""}
        assert call["type"] == "tool_use"
        assert sent_blocks(LLM, replace(CALLED, thinking=thinking)) == [call]
    assert sent_blocks(deepseek, AssistantMessage("so", thinking="hm")) == [text("so")]


def test_thinking_that_was_cut_off_before_its_signature_is_not_sent_back():
    blocks = [{"type": "thinking", "thinking": "hm", "signature": ""}, text("so")]
    reply = read({"content": blocks, "stop_reason": "max_tokens"})
    assert sent_blocks(LLM, reply) == blocks[1:]


def test_a_truncated_server_tool_call_is_sent_back_with_an_object_as_input():
    cut = delta(0, "input_json_delta", partial_json='{"q": "x')
    reply = read_stream(start(0, SEARCH | {"input": {}}), cut)
    assert (reply.tool_calls, blocks_of(reply)) == ((), [SEARCH | {"input": {}}])


# ---- paused turns


async def test_a_paused_turn_is_resumed_by_sending_it_back_unchanged(streaming):
    paused = Reply(blocks=[SEARCH], finish="pause_turn")
    more = Reply(blocks=[SEARCH_RESULT, thought("x"), SEARCH_2], finish="pause_turn")
    ended = Reply(blocks=[SEARCH_RESULT | {"tool_use_id": "t"}, text("so")])
    async with AnthropicDouble([paused, more, ended, "bye"]) as server:
        agent = agent_of(model(server, provider_tools=[WEB], cache="1h"), streaming)
        assert await agent.query("Look it up.") == "so"
        assert await agent.query("And now?") == "bye"
        assert (server.refusals, server.prefix_breaks) == ([], [])
    roles = [request["messages"][-1]["role"] for request in server.requests]
    assert roles == ["user", "assistant", "assistant", "user"]
    turn = server.requests[3]["messages"][1]["content"]
    assert turn == [*paused.blocks, *more.blocks, *ended.blocks]


@pytest.mark.parametrize(
    ("blocks", "sendable"),
    [
        ([text("so"), SEARCH], [text("so")]),
        ([text("so"), SEARCH | {"id": None}], [text("so")]),  # an invalid reply
        ([SEARCH, SEARCH_RESULT, SEARCH_2], [SEARCH, SEARCH_RESULT]),
        ([thought("x"), SEARCH], [text("(empty)")]),
        ([thought("x")], [text("(empty)")]),
        ([SEARCH, use()], [use()]),
    ],
)
@pytest.mark.parametrize("finish", ["pause_turn", "max_tokens", None])
async def test_blocks_that_cannot_end_a_turn_are_omitted_if_messages_follow(
    blocks, sendable, finish
):
    async with AnthropicDouble([Reply(blocks=blocks, finish=finish), "so"]) as server:
        llm = model(server, provider_tools=[WEB], cache=False)
        reply = await ask(llm, tools=TOOLS)
        results = [ToolMessage(call.id, call.name, "1") for call in reply.tool_calls]
        await ask(llm, messages=[*HI, reply, *results, *HI], tools=TOOLS)
    assert server.requests[1]["messages"][1]["content"] == sendable


async def call_twice(server, **settings):
    """Answer the calls of two replies, then send a final request."""
    llm, messages = model(server, **settings), list(HI)
    for _ in range(2):
        reply = await ask(llm, messages=messages, tools=TOOLS)
        messages += [reply, ToolMessage(reply.tool_calls[0].id, "time", "noon")]
    await ask(llm, messages=[*messages, *HI], tools=TOOLS)
    assert server.prefix_breaks == []


async def test_a_server_tool_call_stays_open_until_the_results_of_the_agent_are_sent():
    script = [Reply(blocks=[SEARCH, use()]), Reply(blocks=[SEARCH_RESULT, use("b")]), "so"]
    async with AnthropicDouble(script) as server:
        await call_twice(server, provider_tools=[WEB])
    assert server.requests[1]["messages"][1]["content"] == [SEARCH, use()]


async def test_later_calls_of_a_turn_do_not_require_thinking_blocks():
    first = Reply("so", thinking="let me think", calls=[("time", {})])
    async with AnthropicDouble([first, calls(("time", {})), "done"]) as server:
        await call_twice(server, thinking=1024)
    budget = {"type": "enabled", "budget_tokens": 1024}
    assert [body["thinking"] for body in server.requests] == [budget] * 3


async def test_a_turn_started_by_another_provider_continues_without_a_thinking_budget():
    answered = [*HI, CALLED, RESULT]
    second = AssistantMessage(tool_calls=(ToolCall("b", "time"),))
    longer = [*answered, second, ToolMessage("b", "time", "one"), UserMessage("hurry")]
    async with AnthropicDouble(["a"] * 4) as server:
        for messages in (HI, answered, longer, [*answered, AssistantMessage("noon"), *HI]):
            await ask(model(server, thinking=1024), messages=messages, tools=TOOLS)
    assert ["thinking" in body for body in server.requests] == [True, False, False, True]


async def test_a_code_execution_container_is_reused_until_it_expires():
    future, past = "2999-01-01T00:00:00Z", "2020-01-01T00:00:00Z"
    ran = [
        Reply("a", more={"container": {"id": name, "expires_at": expires}})
        for name, expires in (("c1", future), ("c2", future), ("c3", past))
    ]
    async with AnthropicDouble([*ran, "b", "c"]) as server:
        llm, messages = model(server, provider_tools=[WEB]), list(HI)
        for streaming in (False, True, False):
            messages += [await ask(llm, streaming, messages), *HI]
        await ask(llm, messages=messages)
        await ask(model(server), messages=messages[:3])
    containers = [body.get("container") for body in server.requests]
    assert containers == [None, "c1", "c2", "c2", None]


# ---- the prompt cache


async def test_tools_system_prompt_and_the_last_two_user_messages_have_cache_marks():
    marked = await sent_body(ANTHROPIC, long_conversation(), TOOLS)
    assert json.dumps(marked).count("cache_control") == 4
    assert [MARK.items() <= tool.items() for tool in marked["tools"]] == [False, True]
    assert marked["system"] == [text("s") | MARK]
    assert marked["messages"][2]["content"][-1] == text("hurry") | MARK
    assert marked["messages"][4]["content"][-1] == text("bye") | MARK
    hour = json.dumps(await sent_body(ANTHROPIC, long_conversation(), TOOLS, cache="1h"))
    assert hour.count('"cache_control": {"type": "ephemeral", "ttl": "1h"}') == 4


@pytest.mark.parametrize(
    "url", ["api.deepseek.com/anthropic", "api.kimi.com/coding", "api.minimax.io/anthropic"]
)
def test_servers_that_take_no_documents_get_the_text_of_files_instead(url):
    files = [
        FilePart(data=b"a,b", media_type="text/csv", name="a.csv"),
        FilePart(data=b"%PDF\xff", media_type="application/pdf"),
    ]
    turn = [UserMessage(files)]
    other = ChatAnthropic("m", base_url=f"https://{url}", api_key="k")
    [message] = body_of(other, turn)["messages"]
    assert [block["type"] for block in message["content"]] == ["text", "text"]
    assert message["content"][0]["text"] == "a.csv:\na,b"
    [message] = body_of(LLM, turn)["messages"]
    assert [block["type"] for block in message["content"]] == ["document", "document"]


@pytest.mark.parametrize("own", [1, 2, 3])
async def test_own_cache_marks_of_attachments_take_the_place_of_others(own):
    # "A maximum of 4 blocks with cache_control may be provided. Found 5."
    document = FilePart(data=b"hi", media_type="text/plain", extra={"anthropic": MARK})
    history = [UserMessage([document] * own)]
    for _ in range(3):
        history += [AssistantMessage("hello"), *HI]
    body = body_of(LLM, history, TOOLS)
    assert json.dumps(body["messages"]).count("cache_control") == max(2, own)
    assert json.dumps(body["messages"][0]).count("cache_control") == own


@pytest.mark.parametrize("width", [1, 9, 10, 11, 60])
async def test_every_request_of_a_run_reads_the_previous_request_from_the_cache(width):
    @tool("The time.")
    def clock(n: int) -> str:
        return str(n)

    turn = calls(*[("clock", {"n": n}) for n in range(width)])
    script = [turn, Reply("so", thinking="hm", calls=turn.calls), turn, "noon", "again"]
    async with AnthropicDouble(script, system="s") as server:
        agent = Agent(llm=model(server), tools=[clock], system_prompt="s")
        await agent.run("when?")
        await agent.run("and now?")
        assert server.prefix_breaks == []
    sizes = [len(server.in_order(body)) for body in server.requests]
    assert server.cached == [0, *sizes[:-1]]


# ---- the reply


async def test_a_refusal_contains_the_explanation_of_the_provider(streaming):
    why = {"type": "refusal", "category": "bio", "explanation": "This was declined."}
    silent = Reply(finish="refusal", more={"stop_details": why})
    async with AnthropicDouble([silent, Reply("I can't.", finish="refusal")]) as server:
        for words in ("This was declined.", "I can't."):
            reply = await ask(model(server), streaming)
            assert (reply.text, reply.stop_reason) == (words, "refused")


@pytest.mark.parametrize(
    ("deltas", "arguments"),
    [
        (["", '{"x"', ":1}"], '{"x": 1}'),
        ([], "{}"),
        (['{"x"'], '{"x"'),  # truncated
        (["[]"], "[]"),
    ],
)
def test_streamed_calls_are_assembled_separately(deltas, arguments):
    call = [delta(0, "input_json_delta", partial_json=piece) for piece in deltas]
    reply = read_stream(start(0, use("a", "f")), *call, start(1, use("b", "g")))
    assert reply.tool_calls == (ToolCall("a", "f", arguments), ToolCall("b", "g"))
    assert reply.stop_reason == "tool_calls"


async def test_an_error_event_of_llama_cpp_keeps_its_reason():
    # llama.cpp (server-context.cpp) sends the bare error object in an event named `error`
    error = {"code": 400, "message": "the request context size"}
    error["type"] = "exceed_context_size_error"
    start_event = {"type": "message_start", "message": {"content": []}}
    content = sse(start_event) + f"event: error\ndata: {json.dumps(error)}\n\n".encode()
    async with serving(stream_head() + chunk(content) + chunk(b"")) as server:
        with pytest.raises(ContextWindowExceeded, match="context size"):
            await ask(model(server, max_retries=0), streaming=True)


def test_streamed_usage_merges_two_parts_and_keeps_counts_missing_from_the_second():
    first = {"input_tokens": 3, "cache_read_input_tokens": 7, "output_tokens": 1}
    last = {"output_tokens": 40, "input_tokens": None, "cache_read_input_tokens": 9}
    reply = read_stream(
        {"type": "message_start", "message": {"content": [], "usage": first}},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": last},
    )
    assert reply.usage == Usage(12, 40, 9)


def test_a_stream_with_parts_of_two_replies_is_a_bad_response():
    # the thinking of both, in one message, is refused: https://github.com/vercel/ai/issues/18331
    first, again = ({"type": "message_start", "message": {"id": i, "content": []}} for i in "ab")
    begun = [first, first, start(0, text("hel")), first]
    assert read_stream(again, *begun).text == "hel"
    with pytest.raises(BadResponse, match="another reply starts"):
        read_stream(*begun, again)


def test_a_block_may_be_repeated_when_it_ends():
    # as in events of `messages.stream()` of Anthropic's SDK, which some proxies pass on
    block = {"type": "tool_use", "id": "toolu_1", "name": "look", "input": {}}
    begin = {"type": "message_start", "message": {"id": "msg_1", "content": []}}
    end = {"type": "content_block_stop", "index": 0, "content_block": block}
    [call] = read_stream(begin, start(0, block), end).tool_calls
    assert call.id == "toolu_1"


@pytest.mark.parametrize("block", [{"type": {}}, {"text": "a"}])
async def test_a_block_without_a_valid_type_is_a_bad_response(block):
    body = {"content": [text("a"), block], "stop_reason": "end_turn"}
    async with serving(answer(body)) as server:
        with pytest.raises(BadResponse, match="a block has no type"):
            await ask(model(server, max_retries=0))


@pytest.mark.parametrize(
    ("messages", "settings", "words"),
    [
        (HI, {"thinking": 5}, "greater than or equal to 1024"),
        (HI, {"extra": {"zzz": 1}}, "Extra inputs"),
    ],
)
async def test_the_double_rejects_settings_that_the_provider_rejects(messages, settings, words):
    async with AnthropicDouble(["never"]) as server:
        with pytest.raises(BadRequest, match=words):
            await ask(model(server, **settings), messages=messages)


async def test_a_block_with_an_id_that_is_not_text_does_not_break_later_requests():
    odd = {"type": "server_tool_use", "id": ["s"], "name": "web_search", "input": {}}
    reply = AssistantMessage("hello", raw={"provider": "anthropic", "content": [odd]})
    body = await sent_body(ANTHROPIC, [*HI, reply, UserMessage("again")])
    assert body["messages"][-1]["role"] == "user"


@pytest.mark.parametrize("choice", ["required", "weather"])
async def test_haiku_can_be_kept_from_thinking_and_forced_to_call_a_tool(choice):
    off = {"type": "disabled"}
    async with ANTHROPIC.double(["ok"]) as server:
        llm = ANTHROPIC.model(server, model="claude-haiku-5-5", thinking=off)
        await llm.ainvoke(HI, TOOLS, tool_choice=choice)
    assert server.requests[0]["thinking"] == off
    assert server.requests[0]["tool_choice"]["type"] in ("any", "tool")


def test_the_effort_is_sent_beside_the_format_of_an_answer():
    llm = ANTHROPIC.model("http://x", model="claude-opus-5-5", effort="low")
    assert body_of(llm, HI)["output_config"] == {"effort": "low"}
    assert body_of(llm.with_output(SCHEMA), HI)["output_config"].keys() == {"effort", "format"}
    assert "output_config" not in body_of(ANTHROPIC.model("http://x"), HI)


async def test_text_between_calls_is_thinking_that_a_display_setting_returns():
    reply = Reply(calls=[("weather", {"city": "Bern"})], thinking="I look it up.")
    async with ANTHROPIC.double([reply]) as server:
        shown = {"type": "adaptive", "display": "summarized"}
        llm = ANTHROPIC.model(server, model="claude-opus-5-5", thinking=shown)
        deltas = []
        message = await llm.ainvoke(HI, TOOLS, on_delta=deltas.append)
    assert server.requests[0]["thinking"] == shown
    assert message.thinking == "I look it up."
    assert (
        "".join(d.content for d in deltas if isinstance(d, ThinkingDeltaEvent)) == message.thinking
    )


async def test_a_search_for_tools_by_the_server_keeps_the_prefix(streaming):
    # https://platform.claude.com/docs/en/agents-and-tools/tool-use/tool-search-tool
    search = {"type": "tool_search_tool_bm25_20251119", "name": "tool_search_tool_bm25"}
    references = [{"type": "tool_reference", "tool_name": "now"}]
    result = {"type": "tool_search_tool_search_result", "tool_references": references}
    blocks = [
        {"type": "server_tool_use", "id": "s1", "name": search["name"], "input": {"query": "now"}},
        {"type": "tool_search_tool_result", "tool_use_id": "s1", "content": result},
        {"type": "tool_use", "id": "toolu_1", "name": "now", "input": {}},
    ]

    @tool("Say the time.", extra={"anthropic": {"defer_loading": True}})
    def now() -> str:
        return "noon"

    async with AnthropicDouble([Reply(blocks=blocks, finish="tool_calls"), "Noon."]) as server:
        llm = ANTHROPIC.model(server, provider_tools=[search], cache=False)
        assert await agent_of(llm, streaming, [now]).query("When?") == "Noon."
    first, second = server.requests
    assert second["tools"] == first["tools"]
    assert second["messages"][:2] == [*first["messages"], {"role": "assistant", "content": blocks}]


# ---- instructions in the middle of a conversation


async def test_a_deferred_tool_is_found_as_text_by_a_model_that_cannot_load_it():
    asked = AssistantMessage("", [ToolCall("c1", "find")])
    found = ToolMessage("c1", "find", [FoundTool("later: does it later", "later")])
    later = Tool("later", "Does it later.", deferred=True)
    async with AnthropicDouble(["so"]) as server:
        await ask(
            model(server, model="claude-3-5-haiku"), messages=[*HI, asked, found], tools=[later]
        )
    [result] = server.requests[0]["messages"][-1]["content"]
    assert [block["type"] for block in result["content"]] == ["text"]


def spoken(body):
    """Return the roles and texts of a request's messages."""
    return [(each["role"], each["content"][0].get("text")) for each in body["messages"]]


async def test_instructions_added_to_the_log_stay_where_they_are_and_keep_the_prefix():
    script = [calls(("add", {"a": 1, "b": 2}, "c1")), "3", "sure", "bye"]
    async with AnthropicDouble(script) as server:
        llm = ANTHROPIC.model(server, model="claude-opus-5")
        agent = Agent(llm=llm, tools=[add], system_prompt="Be exact.")
        await agent.query("1 + 2?")
        agent.add(SystemMessage("Answer in French."), SystemMessage("Be brief."))
        await agent.query("Really?")
        await agent.query("Bye.")
    assert server.refusals == []
    assert server.prefix_breaks == []
    last = server.requests[-1]
    assert [block["text"] for block in last["system"]] == ["Be exact."]
    [system] = [each for each in last["messages"] if each["role"] == "system"]
    assert [block["text"] for block in system["content"]] == ["Answer in French.\n\nBe brief."]
    assert spoken(last)[-5:] == [
        ("assistant", "3"),
        ("user", "Really?"),
        ("system", "Answer in French.\n\nBe brief."),
        ("assistant", "sure"),
        ("user", "Bye."),
    ]


async def test_a_reply_cannot_end_with_thinking_if_instructions_follow_the_next_prompt():
    async with AnthropicDouble([Reply(blocks=[text("so"), thought("x")]), "so"]) as server:
        llm = model(server, model="claude-opus-5", cache=False)
        reply = await ask(llm)
        await ask(llm, messages=[*HI, reply, *HI, SystemMessage("Be brief.")])
    assert server.requests[1]["messages"][1]["content"] == [text("so")]


@pytest.mark.parametrize("model", ["claude-opus-5", "claude-sonnet-5"])
async def test_instructions_added_to_the_log_survive_a_summary(model):
    async with AnthropicDouble(["Because. " * 900, "sure", "so far", "bye"]) as server:
        llm = ANTHROPIC.model(server, model=model)
        agent = Agent(llm=llm, compaction=CompactionConfig(keep_turns=0))
        await agent.query("Why?")
        agent.add(SystemMessage("Answer in French."))
        await agent.query("Really?")
        assert await agent.compact()
        await agent.query("Bye.")
    assert server.refusals == []
    last = server.requests[-1]
    assert str(last).count("Answer in French.") == 1
    assert ("system" in last) == (model == "claude-sonnet-5")
    assert "so far" in str(last)


async def test_a_tool_adds_instructions_behind_the_results_of_its_turn():
    @tool
    async def plan(agent: Annotated[Agent, Depends(current_agent)]) -> str:
        """Change the mode."""
        agent.add(SystemMessage("You may only read."))
        return "planning"

    script = [calls(("plan", {}, "c1"), ("add", {"a": 1, "b": 2}, "c2")), "ok", "bye"]
    async with AnthropicDouble(script) as server:
        agent = Agent(llm=ANTHROPIC.model(server, model="claude-opus-5-5"), tools=[plan, add])
        await agent.query("Go.")
        await agent.query("Bye.")
    assert server.refusals == []
    assert server.prefix_breaks == []
    assert [role for role, _ in spoken(server.requests[1])][-3:] == ["assistant", "user", "system"]


@pytest.mark.parametrize("model", ["claude-sonnet-5", "claude-sonnet-5-20260301", "m"])
async def test_other_models_get_all_instructions_in_the_system_prompt(model):
    async with AnthropicDouble(["a", "b"]) as server:
        agent = Agent(llm=ANTHROPIC.model(server, model=model), system_prompt="Be exact.")
        await agent.query("hi")
        agent.add(SystemMessage("Be brief."))
        await agent.query("go on")
    assert server.refusals == []
    assert server.requests[-1]["system"][0]["text"] == "Be exact.\n\nBe brief."


async def test_instructions_after_a_reply_at_the_end_become_a_message_of_the_user():
    async with AnthropicDouble(["a"]) as server:
        llm = ANTHROPIC.model(server, model="claude-opus-4-8")
        await llm.ainvoke([*HI, AssistantMessage("hello"), SystemMessage("Go on.")])
    assert spoken(server.requests[0])[-1] == ("user", "Go on.")
