"""ChatAnthropic: what it sends, and what it makes of the replies that servers really give."""

import json
from dataclasses import replace
from typing import Any

import pytest

from agentloop import Agent, tool
from agentloop.errors import BadRequest, BadResponse
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
from agentloop.models.anthropic import (
    AnthropicChunks,
    ChatAnthropic,
    write_anthropic_messages,
)
from agentloop.records import dump_record, load_record
from tests.doubles.anthropic_double import AnthropicDouble, Reply, redacted, sign, thought
from tests.doubles.fault_server import FaultServer, answer, chunk, send, stream_head
from tests.doubles.openai_double import calls
from tests.doubles.wires import ANTHROPIC
from tests.models.asked import HI, PNG, TOOLS, conversation, sent

model = ANTHROPIC.model
read_anthropic_reply = ChatAnthropic("m", api_key="k").read
MARK = {"cache_control": {"type": "ephemeral"}}
WEB = {"type": "web_search_20250305", "name": "web_search", "max_uses": 3}
SEARCH = {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {"q": "x"}}
FOUND = {"type": "web_search_tool_result", "tool_use_id": "s", "content": []}


def text(words):
    return {"type": "text", "text": words}


def use(call_id="a", name="time", **arguments):
    return {"type": "tool_use", "id": call_id, "name": name, "input": arguments}


def result(call_id, words):
    return {"type": "tool_result", "tool_use_id": call_id, "content": [text(words)]}


def reply_with(*content, stop="end_turn", **rest):
    return read_anthropic_reply({"content": list(content), "stop_reason": stop, **rest})


def streamed(*items):
    whole = AnthropicChunks()
    for item in items:
        whole.add(item)
    return read_anthropic_reply(whole.reply())


def start(index, block):
    return {"type": "content_block_start", "index": index, "content_block": block}


def delta(index, kind, **fields):
    return {"type": "content_block_delta", "index": index, "delta": {"type": kind, **fields}}


def write(*messages):
    return write_anthropic_messages(messages)


def hurried():
    talk = conversation()
    return [*talk[:5], UserMessage("hurry"), *talk[5:], UserMessage("bye")]


# ---- the request


async def test_a_forced_tool_and_adaptive_thinking_are_sent_and_the_api_decides():
    body = await sent(ANTHROPIC, HI, TOOLS, "time", thinking={"type": "adaptive"})
    assert body["thinking"] == {"type": "adaptive"}
    assert body["tool_choice"] == {"type": "tool", "name": "time"}


async def test_an_output_schema_is_sent_without_what_the_provider_refuses():
    number = {"type": "integer", "minimum": 0, "title": "N"}
    kinds = {
        "oneOf": [{"$ref": "#/$defs/A"}, {"type": "string", "format": "path", "pattern": "a"}],
        "discriminator": {"propertyName": "kind", "mapping": {}},
    }
    place = {"type": "object", "properties": {"format": {"type": "null"}, "minimum": number}}
    schema = {
        "type": "object",
        "properties": {"kinds": {"type": "array", "items": kinds, "maxItems": 9}},
        "$defs": {"A": place},
    }
    body = await sent(ANTHROPIC, HI, output_schema=schema)
    plain = {"type": "integer", "title": "N"}
    items = {"anyOf": [{"$ref": "#/$defs/A"}, {"type": "string"}]}
    closed = {"type": "object", "additionalProperties": False}
    assert body["output_config"]["format"]["schema"] == closed | {
        "properties": {"kinds": {"type": "array", "items": items}},
        "$defs": {"A": closed | {"properties": {"format": {"type": "null"}, "minimum": plain}}},
    }
    assert number["minimum"] == 0


async def test_a_conversation_with_calls_is_one_that_the_provider_takes():
    body = await sent(ANTHROPIC, hurried(), TOOLS, cache=False, system="s")
    assert body["messages"] == [
        {"role": "user", "content": [text("weather?")]},
        {
            "role": "assistant",
            "content": [text("I look"), use("a", "weather", city="Bern"), use("b", "time")],
        },
        {
            "role": "user",
            "content": [
                result("a", "sunny"),
                result("b", "no clock") | {"is_error": True},
                text("hurry"),
            ],
        },
        {"role": "assistant", "content": [text("It is sunny.")]},
        {"role": "user", "content": [text("thanks"), text("bye")]},
    ]


async def test_ids_of_other_servers_are_made_such_as_the_provider_takes_and_stay_apart():
    ids = ["a.b", "a_b", "call|1", "x" * 70, "é"]
    turn = AssistantMessage(tool_calls=tuple(ToolCall(one, "time") for one in ids))
    results = [ToolMessage(one, "time", one) for one in ids]
    wire = (await sent(ANTHROPIC, [*HI, turn, *results], TOOLS))["messages"]
    found = [block["id"] for block in wire[1]["content"]]
    assert found == [block["tool_use_id"] for block in wire[2]["content"]]
    assert len(set(found)) == 5
    assert found[1] == "a_b"


# ---- blank text


@pytest.mark.parametrize("blank", ["", "\n\t "])
async def test_blank_text_is_left_out_wherever_it_stands(blank):
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
    body = await sent(ANTHROPIC, messages, TOOLS, cache=False)
    assert "system" not in body
    wire = body["messages"]
    assert wire[0]["content"] == [text("hi")]
    assert wire[1]["content"] == [use("a"), use("b")]
    assert wire[2]["content"] == [
        result("a", "(empty)"),
        result("b", "(empty)") | {"is_error": True},
    ]


@pytest.mark.parametrize("blank", ["", "\n\t "])
async def test_a_blank_message_still_takes_its_turn_where_there_has_to_be_one(blank):
    turns = [UserMessage(blank), AssistantMessage("yes?"), UserMessage(blank)]
    async with AnthropicDouble(["a", "a", "a", "a"]) as server:
        llm = model(server)
        await llm.ainvoke(turns[:1])
        await llm.ainvoke(turns)
        await llm.ainvoke([*turns, AssistantMessage("well"), *HI])
        assert server.prefix_breaks == []
        await llm.ainvoke([AssistantMessage("welcome"), *HI])
    roles = [message["role"] for message in server.requests[3]["messages"]]
    assert roles == ["user", "assistant", "user"]


# ---- images and files


def media(block, kind="url", **fields):
    return {"type": block, "source": {"type": kind, **fields}}


URL = "https://x/y"
PNG_BLOCK = media("image", "base64", media_type="image/png", data="AP8=")
PDF_BLOCK = media("document", "base64", media_type="application/pdf", data="JVBERg==")
CARRIED: list[Any] = [
    (TextPart("look"), text("look")),
    (ImagePart(url=URL), media("image", url=URL)),
    (ImagePart(url="data:image/png;base64,AP8="), PNG_BLOCK),
    (PNG, PNG_BLOCK),
    (FilePart(url=URL), media("document", url=URL)),
    (FilePart(data=b"%PDF", media_type="application/pdf", name="a"), PDF_BLOCK | {"title": "a"}),
    (
        FilePart(data="é".encode(), media_type="text/csv"),
        media("document", "text", media_type="text/plain", data="é"),
    ),
]


async def test_images_and_files_are_carried_in_user_messages_and_in_results():
    turn = AssistantMessage(tool_calls=(ToolCall("a", "time"),))
    parts, blocks = map(list, zip(*CARRIED, strict=True))
    messages = [UserMessage(parts), turn, ToolMessage("a", "time", parts)]
    wire = (await sent(ANTHROPIC, messages, TOOLS, cache=False))["messages"]
    assert wire[0]["content"] == blocks
    assert wire[2]["content"] == [{"type": "tool_result", "tool_use_id": "a", "content": blocks}]


# ---- thinking


def test_the_message_s_calls_stand_where_those_in_raw_stood():
    reply = reply_with(thought("x"), text("so"), use("a"), text("and"), use("b"))
    renamed = tuple(ToolCall(f"{call.id}_2", "time", '{"x":1}') for call in reply.tool_calls)
    turn = [thought("x"), text("so"), use("a_2", x=1), text("and"), use("b_2", x=1)]
    assert write(*HI, replace(reply, tool_calls=renamed))[1]["content"] == turn
    fewer = replace(reply, tool_calls=renamed[:1])
    assert write(*HI, fewer)[1]["content"] == [text("soand"), use("a_2", x=1)]


HIDDEN = {"type": "thinking", "thinking": "", "signature": sign("")}
ZZZ = {"type": "zzz", "x": [1, None], "y": {"é": "漢"}}
COMPACT = {"type": "compaction", "content": "in short", "encrypted_content": "e"}
CITED = text("so") | {"citations": [{"type": "char_location", "cited_text": x} for x in "ab"]}
DIRECT = use() | {"caller": {"type": "direct"}}


@pytest.mark.parametrize(
    ("blocks", "back"),
    [
        ([ZZZ, COMPACT, SEARCH, FOUND, CITED, DIRECT], None),
        ([HIDDEN, use()], None),
        ([thought("hm 漢字"), redacted("secret"), text("so"), use()], None),
        ([thought("x"), text("\n\n"), use()], [thought("x"), use()]),  # which the API refuses
    ],
)
async def test_blocks_go_back_as_they_came(blocks, back):
    async with AnthropicDouble([Reply(blocks=blocks)] * 2 + ["done"]) as server:
        llm = model(server, cache=False)
        whole = await llm.ainvoke(HI, TOOLS)
        reply = await llm.ainvoke(HI, TOOLS, on_delta=lambda _: None)
        assert reply == whole
        again = load_record(dump_record(reply))
        await llm.ainvoke([*HI, again, ToolMessage("a", "time", "noon")], TOOLS)
    assert server.requests[2]["messages"][1]["content"] == (back or blocks)


def test_deltas_of_an_unknown_kind_are_put_together():
    reply = streamed(
        start(0, {"type": "zzz"}),
        delta(0, "zzz_delta", zzz="a", n=[1], none=None),
        delta(0, "zzz_delta", zzz="b"),
        start(1, {"type": "thinking", "thinking": ""}),
        delta(1, "thinking_delta", thinking="x", estimated_tokens=9),
    )
    zzz = {"type": "zzz", "zzz": "ab", "n": [1]}
    assert reply.raw["content"] == [zzz, {"type": "thinking", "thinking": "x"}]


def test_a_server_s_own_call_that_was_cut_off_goes_back_as_an_object():
    start_of_it = start(0, SEARCH | {"input": {}})
    reply = streamed(start_of_it, delta(0, "input_json_delta", partial_json='{"q": "x'))
    assert reply.tool_calls == ()
    assert write(*HI, reply)[1]["content"] == [SEARCH | {"input": {}}]


# ---- turns that go on


@pytest.mark.parametrize("streaming", [True, False])
async def test_a_paused_turn_is_the_end_of_the_next_request_as_it_came(streaming):
    paused = Reply(blocks=[SEARCH], finish="pause_turn")
    more = Reply(blocks=[FOUND, thought("x"), SEARCH | {"id": "t"}], finish="pause_turn")
    ended = Reply(blocks=[FOUND | {"tool_use_id": "t"}, text("so")])
    async with AnthropicDouble([paused, more, ended, "bye"]) as server:
        agent = Agent(llm=model(server, provider_tools=[WEB], cache="1h"))
        agent.listeners = [lambda _: None] if streaming else []
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
        ([SEARCH, FOUND, SEARCH | {"id": "t"}], [SEARCH, FOUND]),
        ([thought("x"), SEARCH], [text("(empty)")]),
        ([thought("x")], [text("(empty)")]),
        ([SEARCH, use()], [use()]),
    ],
)
@pytest.mark.parametrize("finish", ["pause_turn", "max_tokens", None])
async def test_what_no_turn_may_end_with_is_left_out_once_something_follows(
    blocks, sendable, finish
):
    async with AnthropicDouble([Reply(blocks=blocks, finish=finish), "so"]) as server:
        llm = model(server, provider_tools=[WEB], cache=False)
        reply = await llm.ainvoke(HI, TOOLS)
        results = [ToolMessage(call.id, call.name, "1") for call in reply.tool_calls]
        await llm.ainvoke([*HI, reply, *results, *HI], TOOLS)
    assert server.requests[1]["messages"][1]["content"] == sendable


async def test_a_call_of_the_provider_waits_for_the_results_of_ours():
    script = [Reply(blocks=[SEARCH, use()]), Reply(blocks=[FOUND, use("b")]), "so", "bye"]
    async with AnthropicDouble(script) as server:
        llm, messages = model(server, provider_tools=[WEB]), list(HI)
        for _ in range(2):
            reply = await llm.ainvoke(messages, TOOLS)
            messages += [reply, ToolMessage(reply.tool_calls[0].id, "time", "noon")]
        await llm.ainvoke([*messages, *HI], TOOLS)
        assert server.prefix_breaks == []
    assert server.requests[1]["messages"][1]["content"] == [SEARCH, use()]


async def test_the_container_of_the_provider_s_code_is_used_again_while_it_can_be():
    def ran(name, expires, **reply):
        return Reply("a", more={"container": {"id": name, "expires_at": expires}}, **reply)

    later, gone = "2999-01-01T00:00:00Z", "2020-01-01T00:00:00Z"
    script = [ran("c1", later), ran("c2", later), ran("c3", gone)]
    async with AnthropicDouble([*script, "b", "c"]) as server:
        llm, messages = model(server, provider_tools=[WEB]), list(HI)
        for on_delta in (None, lambda _: None):
            messages += [await llm.ainvoke(messages, on_delta=on_delta), *HI]
        messages += [await llm.ainvoke(messages), *HI]
        await llm.ainvoke(messages)
        await model(server).ainvoke(messages[:3])
    containers = [body.get("container") for body in server.requests]
    assert containers == [None, "c1", "c2", "c2", None]


async def test_a_turn_that_another_provider_began_goes_on_without_a_thinking_budget():
    foreign = [*HI, AssistantMessage(tool_calls=(ToolCall("a", "time"),))]
    answered = [*foreign, ToolMessage("a", "time", "noon")]
    second = AssistantMessage(tool_calls=(ToolCall("b", "time"),))
    longer = [*answered, second, ToolMessage("b", "time", "one"), UserMessage("hurry")]
    async with AnthropicDouble(["a"] * 4) as server:
        llm = model(server, thinking=1024)
        for messages in (HI, answered, longer, [*answered, AssistantMessage("noon"), *HI]):
            await llm.ainvoke(messages, TOOLS)
    assert ["thinking" in body for body in server.requests] == [True, False, False, True]


async def test_later_calls_of_a_turn_need_no_thinking_of_their_own():
    first = Reply("so", thinking="let me think", calls=[("time", {})])
    async with AnthropicDouble([first, calls(("time", {})), "done"]) as server:
        llm = model(server, thinking=1024)
        messages = list(HI)
        for _ in range(2):
            reply = await llm.ainvoke(messages, TOOLS)
            messages += [reply, ToolMessage(reply.tool_calls[0].id, "time", "noon")]
        await llm.ainvoke(messages, TOOLS)
        assert server.prefix_breaks == []
    budget = {"type": "enabled", "budget_tokens": 1024}
    assert [body["thinking"] for body in server.requests] == [budget] * 3


# ---- the prompt cache


async def test_tools_system_prompt_and_the_last_two_user_messages_are_marked():
    marked = await sent(ANTHROPIC, hurried(), TOOLS)
    assert json.dumps(marked).count("cache_control") == 4
    assert [MARK.items() <= one.items() for one in marked["tools"]] == [False, True]
    assert marked["system"] == [text("s") | MARK]
    assert marked["messages"][2]["content"][-1] == text("hurry") | MARK
    assert marked["messages"][4]["content"][-1] == text("bye") | MARK
    hour = json.dumps(await sent(ANTHROPIC, hurried(), TOOLS, cache="1h"))
    assert hour.count('"cache_control": {"type": "ephemeral", "ttl": "1h"}') == 4


@pytest.mark.parametrize("width", [1, 9, 10, 11, 60])
async def test_every_request_of_a_run_finds_all_of_the_one_before(width):
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


@pytest.mark.parametrize(
    ("stop", "reason", "with_calls"),
    [
        ("end_turn", "end", "tool_calls"),
        ("stop_sequence", "end", "tool_calls"),
        ("tool_use", "tool_calls", "tool_calls"),
        ("max_tokens", "length", "length"),
        ("refusal", "refused", "refused"),
        ("pause_turn", "pause", "pause"),
        ("compaction", "pause", "pause"),
        ("model_context_window_exceeded", "context_overflow", "context_overflow"),
        ("zzz", "zzz", "zzz"),
        (None, None, "tool_calls"),
    ],
)
def test_stop_reasons_have_one_vocabulary(stop: Any, reason: Any, with_calls: str) -> None:
    assert reply_with(text("a"), stop=stop).stop_reason == reason
    assert reply_with(use(), stop=stop).stop_reason == with_calls


@pytest.mark.parametrize("streaming", [True, False])
async def test_a_refusal_says_why_if_the_provider_does(streaming):
    why = {"type": "refusal", "category": "bio", "explanation": "This was declined."}
    script = [
        Reply(finish="refusal", more={"stop_details": why}),
        Reply("I can't.", finish="refusal"),
    ]
    on_delta = (lambda _: None) if streaming else None
    async with AnthropicDouble(script) as server:
        llm = model(server)
        for words in ("This was declined.", "I can't."):
            reply = await llm.ainvoke(HI, on_delta=on_delta)
            assert (reply.text, reply.stop_reason) == (words, "refused")


# ---- streams


@pytest.mark.parametrize(
    ("deltas", "arguments"),
    [
        (["", '{"x"', ":1}"], '{"x": 1}'),
        ([], "{}"),
        (['{"x"'], '{"x"'),  # cut off
        (["[]"], "[]"),
    ],
)
def test_calls_are_put_together_one_by_one(deltas, arguments):
    call = [delta(0, "input_json_delta", partial_json=piece) for piece in deltas]
    reply = streamed(start(0, use("a", "f")), *call, start(1, use("b", "g")))
    assert reply.tool_calls == (ToolCall("a", "f", arguments), ToolCall("b", "g"))
    assert reply.stop_reason == "tool_calls"


def test_usage_comes_in_two_parts_and_what_the_second_leaves_out_stays():
    first = {"input_tokens": 3, "cache_read_input_tokens": 7, "output_tokens": 1}
    last = {"output_tokens": 40, "input_tokens": None, "cache_read_input_tokens": 9}
    reply = streamed(
        {"type": "message_start", "message": {"content": [], "usage": first}},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": last},
    )
    assert reply.usage == Usage(12, 40, 9)


async def test_a_stream_that_said_why_it_stops_is_whole():
    content = b"".join(ANTHROPIC.frames()[:-1])  # without message_stop
    async with FaultServer([send(stream_head() + chunk(content) + chunk(b""))]) as server:
        assert (await model(server).ainvoke(HI, on_delta=lambda _: None)).text == "hello"


# ---- errors


@pytest.mark.parametrize("block", [{"type": {}}, {"text": "a"}])
async def test_a_block_that_could_never_go_back_is_a_bad_response_at_once(block):
    body = {"content": [text("a"), block], "stop_reason": "end_turn"}
    async with FaultServer([send(answer(body))]) as server:
        with pytest.raises(BadResponse, match="malformed"):
            await model(server).ainvoke(HI)
        assert len(server.requests) == 1


async def test_the_double_refuses_what_the_provider_would():
    orphan = [*HI, ToolMessage("a", "time", "1")]
    unanswered = [*HI, AssistantMessage(tool_calls=(ToolCall("a", "time"),)), *HI]
    twice = [*unanswered[:2], ToolMessage("a", "time", "1"), ToolMessage("a", "time", "2")]
    forged = reply_with(thought("x"), text("a"))
    forged.raw["content"][0]["thinking"] = "y"
    cases = [
        (orphan, "unexpected `tool_use_id`"),
        (unanswered, "without `tool_result` blocks immediately after"),
        (twice, "multiple results"),
        ([*HI, AssistantMessage("a")], "must end with a user message"),
        ([*HI, forged, *HI], "Invalid `signature`"),
        ([UserMessage([ImagePart(url="http://x/y")])], "Only HTTPS"),
    ]
    async with AnthropicDouble(["never"]) as server:
        llm = model(server)
        for messages, words in cases:
            with pytest.raises(BadRequest, match=words):
                await llm.ainvoke(messages, TOOLS)
        with pytest.raises(BadRequest, match="must define tools"):
            await llm.ainvoke([*unanswered[:2], ToolMessage("a", "time", "1")])
        with pytest.raises(BadRequest, match="greater than or equal to 1024"):
            await model(server, thinking=5).ainvoke(HI)
        with pytest.raises(BadRequest, match="Extra inputs"):
            await model(server, extra={"zzz": 1}).ainvoke(HI)
        assert len(server.refusals) == 9
        assert server.replies == ["never"]


# ---- settings, runs, other doubles
