"""ChatAnthropic: what it sends, and what it makes of the replies that servers really give."""

import json
from typing import Any

import pytest

from agentloop import Agent, tool
from agentloop.errors import BadRequest
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
    read_anthropic_reply,
    write_anthropic_messages,
)
from agentloop.models.http import Deltas
from agentloop.records import dump_record, load_record
from tests.doubles.anthropic_double import AnthropicDouble, Reply, calls, redacted, sign, thought
from tests.doubles.wires import ANTHROPIC, KEY
from tests.models.asked import HI, PNG, TOOLS, conversation, sent

model = ANTHROPIC.model
MARK = {"cache_control": {"type": "ephemeral"}}


def text(words):
    return {"type": "text", "text": words}


def use(call_id="a", name="time", **arguments):
    return {"type": "tool_use", "id": call_id, "name": name, "input": arguments}


def result(call_id, words):
    return {"type": "tool_result", "tool_use_id": call_id, "content": [text(words)]}


def reply_with(*content, stop="end_turn", **rest):
    return read_anthropic_reply({"content": list(content), "stop_reason": stop, **rest})


def streamed(*items):
    whole = AnthropicChunks(Deltas(None))
    for item in items:
        whole.add(item)
    return read_anthropic_reply(whole.reply())


def start(index, block):
    return {"type": "content_block_start", "index": index, "content_block": block}


def delta(index, kind, **fields):
    event = {"type": "content_block_delta", "index": index, "delta": {"type": kind, **fields}}
    return event if index is not None else {k: event[k] for k in ("type", "delta")}


def write(*messages):
    return write_anthropic_messages(messages)


def hurried():
    talk = conversation()
    return [*talk[:5], UserMessage("hurry"), *talk[5:], UserMessage("bye")]


def without_marks(value):
    if isinstance(value, list):
        return [without_marks(item) for item in value]
    if isinstance(value, dict):
        return {k: without_marks(v) for k, v in value.items() if k != "cache_control"}
    return value


# ---- the request


async def test_the_default_request_holds_nothing_that_was_not_asked_for():
    async with AnthropicDouble(["hello"]) as server:
        llm = model(server, cache=False)
        assert (await llm.ainvoke([SystemMessage("be brief"), *HI])).text == "hello"
    assert server.requests == [
        {
            "model": "m",
            "max_tokens": 16000,
            "system": [text("be brief")],
            "messages": [{"role": "user", "content": [text("hi")]}],
        }
    ]
    headers = server.headers[0]
    assert (headers["x-api-key"], headers["anthropic-version"]) == (KEY, "2023-06-01")
    assert "anthropic-beta" not in headers
    assert "authorization" not in headers


async def test_settings_are_sent_when_set_even_if_they_are_zero():
    async with AnthropicDouble(["a", "a"]) as server:
        llm = model(
            server,
            max_tokens=9,
            temperature=0,
            parallel_tool_calls=False,
            betas=["x-1", "y-2"],
            extra={"top_k": 4},
        )
        await llm.ainvoke(HI, TOOLS)
        await model(server, version="2026-10-21", thinking=0).ainvoke(HI)
    body = server.requests[0]
    assert (body["max_tokens"], body["temperature"], body["top_k"]) == (9, 0, 4)
    assert body["tool_choice"] == {"type": "auto", "disable_parallel_tool_use": True}
    assert server.headers[0]["anthropic-beta"] == "x-1,y-2"
    assert server.headers[1]["anthropic-version"] == "2026-10-21"


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


PDF = FilePart(data=b"%PDF", media_type="application/pdf", name="a.pdf")
PARTS = [
    TextPart("look"),
    ImagePart(url="https://x/y.png"),
    ImagePart(url="data:image/png;base64,AP8="),
    PNG,
    FilePart(url="https://x/y.pdf"),
    PDF,
    FilePart(data="é".encode(), media_type="text/csv"),
]
BYTES = {"type": "base64", "media_type": "image/png", "data": "AP8="}
PDF_BYTES = {"type": "base64", "media_type": "application/pdf", "data": "JVBERg=="}
BLOCKS = [
    {"type": "text", "text": "look"},
    {"type": "image", "source": {"type": "url", "url": "https://x/y.png"}},
    {"type": "image", "source": BYTES},
    {"type": "image", "source": BYTES},
    {"type": "document", "source": {"type": "url", "url": "https://x/y.pdf"}},
    {"type": "document", "source": PDF_BYTES, "title": "a.pdf"},
    {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "é"}},
]


async def test_images_and_files_are_carried_in_user_messages_and_in_results():
    turn = AssistantMessage(tool_calls=(ToolCall("a", "time"),))
    async with AnthropicDouble(["a"]) as server:
        messages = [UserMessage(PARTS), turn, ToolMessage("a", "time", PARTS)]
        await model(server, cache=False).ainvoke(messages, TOOLS)
    wire = server.requests[0]["messages"]
    assert wire[0]["content"] == BLOCKS
    assert wire[2]["content"] == [{"type": "tool_result", "tool_use_id": "a", "content": BLOCKS}]


# ---- thinking


THOUGHTS = Reply("so", thinking="let me think 漢字", redacted="secret", calls=[("time", {})])


@pytest.mark.parametrize("streaming", [True, False])
async def test_thinking_goes_back_as_it_came(streaming):
    on_delta = (lambda _: None) if streaming else None
    async with AnthropicDouble([THOUGHTS, "done"]) as server:
        llm = model(server, thinking=2000, cache=False)
        reply = await llm.ainvoke(HI, TOOLS, on_delta=on_delta)
        assert reply.thinking == "let me think 漢字"
        again = load_record(dump_record(reply))
        outcome = ToolMessage(reply.tool_calls[0].id, "time", "noon")
        assert (await llm.ainvoke([*HI, again, outcome], TOOLS)).text == "done"
    body = server.requests[1]
    assert body["thinking"] == {"type": "enabled", "budget_tokens": 2000}
    assert body["messages"][1]["content"] == [
        thought("let me think 漢字"),
        redacted("secret"),
        text("so"),
        use("toolu_1_0"),
    ]


async def test_thinking_that_is_not_shown_goes_back_with_its_signature():
    hidden = {"type": "thinking", "thinking": "", "signature": sign("")}
    async with AnthropicDouble([Reply(blocks=[hidden, use()]), "done"]) as server:
        llm = model(server, thinking={"type": "adaptive"})
        reply = await llm.ainvoke(HI, TOOLS, on_delta=lambda _: None)
        assert reply.thinking is None
        await llm.ainvoke([*HI, reply, ToolMessage("a", "time", "noon")], TOOLS)
    assert server.requests[1]["messages"][1]["content"][0] == hidden
    assert server.requests[1]["thinking"] == {"type": "adaptive"}


def test_the_message_s_calls_and_text_win_over_those_in_raw():
    reply = reply_with(thought("x"), text("so"), use("a"), text("and"), use("b"))
    renamed = tuple(ToolCall(f"{call.id}_2", "time", '{"x":1}') for call in reply.tool_calls)
    same = AssistantMessage(reply.content, renamed, raw=reply.raw)
    assert write(*HI, same)[1]["content"] == [
        thought("x"),
        text("so"),
        use("a_2", x=1),
        text("and"),
        use("b_2", x=1),
    ]
    fewer = AssistantMessage(reply.content, renamed[:1], raw=reply.raw)
    assert write(*HI, fewer)[1]["content"] == [text("soand"), use("a_2", x=1)]
    changed = AssistantMessage("[redacted]", renamed, raw=reply.raw)
    assert "so" not in json.dumps(write(*HI, changed)).split('"')
    foreign = AssistantMessage(
        "a", raw={"provider": "openai", "content": [thought("x"), text("a")]}
    )
    assert write(*HI, foreign)[1]["content"] == [text("a")]


async def test_blocks_of_an_unknown_type_survive_and_go_back():
    zzz = {"type": "zzz", "x": [1, None], "y": {"é": "漢"}}
    search = {"type": "server_tool_use", "id": "s", "name": "web", "input": {"q": "x"}}
    cited = text("so") | {"citations": [{"type": "char_location", "cited_text": "x"}]}
    blocks = [zzz, search, cited, use("a", caller={"type": "direct"})]
    blocks[3]["caller"] = blocks[3]["input"].pop("caller")
    async with AnthropicDouble([Reply(blocks=blocks)] * 2 + ["done"]) as server:
        llm = model(server, cache=False)
        whole = await llm.ainvoke(HI, TOOLS)
        reply = await llm.ainvoke(HI, TOOLS, on_delta=lambda _: None)
        assert reply == whole
        again = load_record(dump_record(reply))
        await llm.ainvoke([*HI, again, ToolMessage("a", "time", "noon")], TOOLS)
    assert server.requests[2]["messages"][1]["content"] == blocks


async def test_blank_text_that_the_provider_sent_does_not_go_back():
    async with AnthropicDouble([Reply(blocks=[thought("x"), text("\n\n"), use()]), "a"]) as server:
        llm = model(server, thinking=1024)
        reply = await llm.ainvoke(HI, TOOLS)
        assert reply.text == "\n\n"
        await llm.ainvoke([*HI, reply, ToolMessage("a", "time", "noon")], TOOLS)
    kinds = [block["type"] for block in server.requests[1]["messages"][1]["content"]]
    assert kinds == ["thinking", "tool_use"]


def test_a_server_s_own_call_that_was_cut_off_goes_back_as_an_object():
    search = {"type": "server_tool_use", "id": "s", "name": "web", "input": {}}
    reply = streamed(start(0, search), delta(0, "input_json_delta", partial_json='{"q": "x'))
    assert reply.tool_calls == ()
    assert write(*HI, reply)[1]["content"] == [search]


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
    async with AnthropicDouble([THOUGHTS, calls(("time", {})), "done"]) as server:
        llm = model(server, thinking=1024)
        messages = list(HI)
        for _ in range(2):
            reply = await llm.ainvoke(messages, TOOLS)
            messages += [reply, ToolMessage(reply.tool_calls[0].id, "time", "noon")]
        await llm.ainvoke(messages, TOOLS)
        assert server.prefix_breaks == []
    assert all("thinking" in body for body in server.requests)


# ---- the prompt cache


async def test_tools_system_prompt_and_the_last_two_user_messages_are_marked():
    async with AnthropicDouble(["a", "a"]) as server:
        llm = model(server)
        await llm.ainvoke(hurried(), TOOLS)
        llm.cache = False
        await llm.ainvoke(hurried(), TOOLS)
    marked, plain = server.requests
    assert without_marks(marked) == plain
    assert json.dumps(plain).count("cache_control") == 0
    assert json.dumps(marked).count("cache_control") == 4
    assert [MARK.items() <= one.items() for one in marked["tools"]] == [False, True]
    assert marked["system"] == [text("s") | MARK]
    assert marked["messages"][2]["content"][-1] == text("hurry") | MARK
    assert marked["messages"][4]["content"][-1] == text("bye") | MARK


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
    sizes = [len(list(_blocks(body))) for body in server.requests]
    assert server.cached == [0, *sizes[:-1]]


def _blocks(body):
    yield from [*body["tools"], *body["system"]]
    for message in body["messages"]:
        yield from message["content"]


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
    script = [Reply(finish="refusal", stop_details=why), Reply("I can't.", finish="refusal")]
    on_delta = (lambda _: None) if streaming else None
    async with AnthropicDouble(script) as server:
        llm = model(server)
        for words in ("This was declined.", "I can't."):
            reply = await llm.ainvoke(HI, on_delta=on_delta)
            assert (reply.text, reply.stop_reason) == (words, "refused")


def test_tokens_are_counted_once():
    usage = {
        "input_tokens": 5,
        "cache_read_input_tokens": 80,
        "cache_creation_input_tokens": 15,
        "output_tokens": 50,
        "output_tokens_details": {"thinking_tokens": 30},
        "server_tool_use": None,
    }
    assert reply_with(text("a"), usage=usage).usage == Usage(100, 50, 80, 15, 30)
    assert reply_with(text("a"), usage=None).usage is None


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


# ---- errors


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


def test_the_address_comes_from_the_environment_or_is_that_of_anthropic(monkeypatch):
    with pytest.raises(ValueError, match="ANTHROPIC_API_KEY"):
        ChatAnthropic("m")
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-4711")
    assert ChatAnthropic("m").base_url == "https://api.anthropic.com"
    assert ChatAnthropic("m").headers()["x-api-key"] == "sk-4711"
    assert "4711" not in repr(ChatAnthropic("m"))
    monkeypatch.setenv("ANTHROPIC_BASE_URL", "http://local/")
    assert ChatAnthropic(model="m").base_url == "http://local"
    assert ChatAnthropic("m", base_url="http://here").base_url == "http://here"
    paths = [ChatAnthropic("m", base_url=f"http://here{end}").path(False) for end in ("", "/v1/")]
    assert paths == ["/v1/messages", "/messages"]
