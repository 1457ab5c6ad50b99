"""ChatAnthropic: what it sends, and what it makes of the replies that servers really give."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
import respx

from agentloop import Agent, errors, tool
from agentloop.errors import BadRequest, BadResponse
from agentloop.events import TextDeltaEvent, ThinkingDeltaEvent
from agentloop.messages import (
    AssistantMessage,
    FilePart,
    ImagePart,
    Message,
    SystemMessage,
    TextPart,
    ToolCall,
    ToolMessage,
    Unknown,
    Usage,
    UserMessage,
    dump_record,
    load_record,
    to_dict,
)
from agentloop.models import http
from agentloop.models.anthropic import (
    AnthropicChunks,
    ChatAnthropic,
    read_anthropic_reply,
    write_anthropic_messages,
)
from agentloop.models.http import Deltas
from tests.doubles.anthropic_double import (
    AnthropicDouble,
    Reply,
    calls,
    events,
    redacted,
    sign,
    sse,
    thought,
)
from tests.doubles.fault_server import (
    FaultServer,
    answer,
    chunk,
    fin,
    send,
    stream_head,
)
from tests.doubles.openai_double import Failure

HI: list[Message] = [UserMessage("hi")]
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
MARK = {"cache_control": {"type": "ephemeral"}}


class FakeTool(SimpleNamespace):
    def __init__(self, name: str = "weather", parameters: Any = SCHEMA) -> None:
        super().__init__(name=name, description=f"The {name}.", parameters=parameters)


TOOLS: list[Any] = [FakeTool(), FakeTool("time", {"type": "object", "properties": {}})]


@pytest.fixture(autouse=True)
def _clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL", "HTTP_PROXY", "http_proxy"):
        monkeypatch.delenv(name, raising=False)


class Naps(list[float]):
    """Stands in for sleep, and remembers."""

    async def __call__(self, seconds: float) -> None:
        self.append(seconds)


def model(server: Any, **settings: Any) -> ChatAnthropic:
    url = server if isinstance(server, str) else server.base_url
    settings = {"sleep": Naps(), "jitter": lambda: 1.0, "api_key": "k", **settings}
    return ChatAnthropic("m", base_url=url, **settings)


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


def use(call_id: str = "a", name: str = "time", **arguments: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": call_id, "name": name, "input": arguments}


def result(call_id: str, words: str) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": call_id, "content": [text(words)]}


def reply_with(*content: Any, stop: Any = "end_turn", **rest: Any) -> AssistantMessage:
    return read_anthropic_reply({"content": list(content), "stop_reason": stop, **rest})


def streamed(*items: dict[str, Any]) -> AssistantMessage:
    whole = AnthropicChunks(Deltas(None))
    for item in items:
        whole.add(item)
    return read_anthropic_reply(whole.reply())


def start(index: Any, block: dict[str, Any]) -> dict[str, Any]:
    return {"type": "content_block_start", "index": index, "content_block": block}


def delta(index: Any, kind: str, **fields: Any) -> dict[str, Any]:
    event = {"type": "content_block_delta", "index": index, "delta": {"type": kind, **fields}}
    return event if index is not None else {k: event[k] for k in ("type", "delta")}


def write(*messages: Message) -> list[dict[str, Any]]:
    return write_anthropic_messages(messages)


def without_marks(value: Any) -> Any:
    if isinstance(value, list):
        return [without_marks(item) for item in value]
    if isinstance(value, dict):
        return {k: without_marks(v) for k, v in value.items() if k != "cache_control"}
    return value


# ---- the request


async def test_the_default_request_holds_nothing_that_was_not_asked_for() -> None:
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
    assert (headers["x-api-key"], headers["anthropic-version"]) == ("k", "2023-06-01")
    assert "anthropic-beta" not in headers
    assert "authorization" not in headers


async def test_settings_are_sent_when_set_even_if_they_are_zero() -> None:
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


async def test_without_tools_there_are_no_tool_fields() -> None:
    async with AnthropicDouble(["a"]) as server:
        await model(server, parallel_tool_calls=True).ainvoke(HI, tool_choice="required")
    assert set(server.requests[0]) == {"model", "max_tokens", "messages"}


@pytest.mark.parametrize(
    ("choice", "wire"),
    [
        ("auto", None),
        ("required", {"type": "any"}),
        ("none", {"type": "none"}),
        ("time", {"type": "tool", "name": "time"}),
    ],
)
async def test_tool_choice(choice: str, wire: Any) -> None:
    async with AnthropicDouble(["a", "a"]) as server:
        await model(server).ainvoke(HI, TOOLS, tool_choice=choice)
        await model(server, parallel_tool_calls=True).ainvoke(HI, TOOLS, tool_choice=choice)
    assert server.requests[0].get("tool_choice") == wire
    expected = {"disable_parallel_tool_use": False} if choice != "none" else {}
    assert server.requests[1]["tool_choice"] == (wire or {"type": "auto"}) | expected
    tools = without_marks(server.requests[0]["tools"])
    assert tools[0] == {
        "name": "weather",
        "description": "The weather.",
        "input_schema": SCHEMA,
    }


async def test_only_a_streamed_request_says_so() -> None:
    async with AnthropicDouble(["a", "a"]) as server:
        await model(server).ainvoke(HI, on_delta=lambda _: None)
        await model(server).ainvoke(HI)
    assert server.requests[0]["stream"] is True
    assert "stream" not in server.requests[1]


def conversation() -> list[Message]:
    first = ToolCall("a", "weather", '{"city": "Bern"}')
    return [
        SystemMessage("s"),
        UserMessage("weather?"),
        AssistantMessage("I look", tool_calls=(first, ToolCall("b", "time", "null"))),
        ToolMessage("a", "weather", "sunny"),
        ToolMessage("b", "time", "no clock", is_error=True),
        UserMessage("hurry"),
        AssistantMessage("It is sunny."),
        UserMessage("thanks"),
        UserMessage("bye"),
    ]


async def test_a_conversation_with_calls_is_one_that_the_provider_takes() -> None:
    async with AnthropicDouble(["a"], system="s") as server:
        await model(server, cache=False).ainvoke(conversation(), TOOLS)
    assert server.requests[0]["messages"] == [
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


async def test_ids_of_other_servers_are_made_such_as_the_provider_takes_and_stay_apart() -> None:
    ids = ["a.b", "a_b", "call|1", "x" * 70, "é"]
    turn = AssistantMessage(tool_calls=tuple(ToolCall(one, "time") for one in ids))
    results = [ToolMessage(one, "time", one) for one in ids]
    async with AnthropicDouble(["a"]) as server:
        await model(server).ainvoke([*HI, turn, *results], TOOLS)
    wire = server.requests[0]["messages"]
    sent = [block["id"] for block in wire[1]["content"]]
    assert sent == [block["tool_use_id"] for block in wire[2]["content"]]
    assert len(set(sent)) == 5
    assert sent[1] == "a_b"


# ---- blank text


BLANK = ["", " ", "\n\t "]


@pytest.mark.parametrize("blank", BLANK)
async def test_blank_text_is_left_out_wherever_it_stands(blank: str) -> None:
    messages: list[Message] = [
        SystemMessage(blank),
        UserMessage([TextPart("hi"), TextPart(blank)]),
        UserMessage(blank),
        AssistantMessage(blank, tool_calls=(ToolCall("a", "time"), ToolCall("b", "time"))),
        ToolMessage("a", "time", blank),
        ToolMessage("b", "time", [TextPart(blank)], is_error=True),
        UserMessage(blank),
        AssistantMessage(blank),
    ]
    async with AnthropicDouble(["a"]) as server:
        await model(server, cache=False).ainvoke(messages, TOOLS)
    assert "system" not in server.requests[0]
    wire = server.requests[0]["messages"]
    assert wire[0]["content"] == [text("hi")]
    assert wire[1]["content"] == [use("a"), use("b")]
    assert wire[2]["content"] == [
        {"type": "tool_result", "tool_use_id": "a"},
        result("b", "(empty)") | {"is_error": True},
    ]


@pytest.mark.parametrize("blank", BLANK)
async def test_a_blank_message_still_takes_its_turn_where_there_has_to_be_one(blank: str) -> None:
    turns: list[Message] = [UserMessage(blank), AssistantMessage("yes?"), UserMessage(blank)]
    async with AnthropicDouble(["a", "a", "a", "a"]) as server:
        llm = model(server)
        await llm.ainvoke(turns[:1])
        await llm.ainvoke(turns)
        await llm.ainvoke([*turns, AssistantMessage("well"), *HI])
        assert server.prefix_breaks == []
        await llm.ainvoke([AssistantMessage("welcome"), *HI])
    roles = [message["role"] for message in server.requests[3]["messages"]]
    assert roles == ["user", "assistant", "user"]


async def test_a_final_assistant_message_loses_its_trailing_whitespace() -> None:
    async with AnthropicDouble(["b"], prefill=True) as server:
        await model(server).ainvoke([*HI, AssistantMessage("a: \n")])
    assert server.requests[0]["messages"][1]["content"] == [text("a:")]
    assert write(*HI, AssistantMessage("a: "), *HI)[1]["content"] == [text("a: ")]


# ---- images and files


PNG = ImagePart(data=b"\x00\xff", media_type="image/png")
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
    {
        "type": "document",
        "source": {"type": "text", "media_type": "text/plain", "data": "é"},
    },
]


async def test_images_and_files_are_carried_in_user_messages_and_in_results() -> None:
    turn = AssistantMessage(tool_calls=(ToolCall("a", "time"),))
    async with AnthropicDouble(["a"]) as server:
        messages = [UserMessage(PARTS), turn, ToolMessage("a", "time", PARTS)]
        await model(server, cache=False).ainvoke(messages, TOOLS)
    wire = server.requests[0]["messages"]
    assert wire[0]["content"] == BLOCKS
    assert wire[2]["content"] == [{"type": "tool_result", "tool_use_id": "a", "content": BLOCKS}]


async def test_an_error_with_an_image_is_carried_too() -> None:
    turn = AssistantMessage(tool_calls=(ToolCall("a", "time"),))
    failed = ToolMessage("a", "time", [TextPart("crashed"), PNG], is_error=True)
    async with AnthropicDouble(["a"]) as server:
        await model(server, cache=False).ainvoke([*HI, turn, failed], TOOLS)
    block = server.requests[0]["messages"][2]["content"][0]
    assert [part["type"] for part in block["content"]] == ["text", "image"]


@pytest.mark.parametrize(
    "part", [FilePart(data=b"1", media_type="audio/wav"), Unknown({"type": "zzz"})]
)
def test_what_cannot_be_carried_is_refused(part: Any) -> None:
    with pytest.raises(BadRequest, match="Messages API"):
        write(UserMessage([part]))


# ---- thinking


THOUGHTS = Reply("so", thinking="let me think 漢字", redacted="secret", calls=[("time", {})])


@pytest.mark.parametrize("streaming", [True, False])
async def test_thinking_goes_back_as_it_came(streaming: bool) -> None:
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


async def test_thinking_that_is_not_shown_goes_back_with_its_signature() -> None:
    hidden = {"type": "thinking", "thinking": "", "signature": sign("")}
    async with AnthropicDouble([Reply(blocks=[hidden, use()]), "done"]) as server:
        llm = model(server, thinking={"type": "adaptive"})
        reply = await llm.ainvoke(HI, TOOLS, on_delta=lambda _: None)
        assert reply.thinking is None
        await llm.ainvoke([*HI, reply, ToolMessage("a", "time", "noon")], TOOLS)
    assert server.requests[1]["messages"][1]["content"][0] == hidden
    assert server.requests[1]["thinking"] == {"type": "adaptive"}


def test_thinking_that_was_cut_off_before_its_signature_does_not_go_back() -> None:
    unsigned = {"type": "thinking", "thinking": "hm", "signature": ""}
    reply = reply_with(unsigned, stop="max_tokens")
    assert (reply.thinking, reply.stop_reason, reply.raw) == ("hm", "length", None)
    assert write(*HI, reply, *HI)[0]["content"] == [text("hi"), text("hi")]


@pytest.mark.parametrize(
    "raw",
    [
        {"provider": "openai", "reasoning_content": "x", "content": [thought("x")]},
        {"provider": "google", "parts": [{"text": "x"}]},
        {"content": [thought("x")]},
        [1],
        "x",
        None,
    ],
)
def test_what_others_left_in_raw_is_ignored(raw: Any) -> None:
    assert write(*HI, AssistantMessage("a", raw=raw))[1]["content"] == [text("a")]


def test_the_message_s_calls_and_text_win_over_those_in_raw() -> None:
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
    assert write(*HI, fewer)[1]["content"] == [thought("x"), text("soand"), use("a_2", x=1)]
    changed = AssistantMessage("[redacted]", renamed, raw=reply.raw)
    assert "so" not in json.dumps(write(*HI, changed)).split('"')
    none = AssistantMessage(reply.content, raw=reply.raw)
    assert write(*HI, none)[1]["content"] == [thought("x"), text("soand")]


async def test_blocks_of_an_unknown_type_survive_and_go_back() -> None:
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


async def test_blank_text_that_the_provider_sent_does_not_go_back() -> None:
    async with AnthropicDouble([Reply(blocks=[thought("x"), text("\n\n"), use()]), "a"]) as server:
        llm = model(server, thinking=1024)
        reply = await llm.ainvoke(HI, TOOLS)
        assert reply.text == "\n\n"
        await llm.ainvoke([*HI, reply, ToolMessage("a", "time", "noon")], TOOLS)
    kinds = [block["type"] for block in server.requests[1]["messages"][1]["content"]]
    assert kinds == ["thinking", "tool_use"]


def test_a_server_s_own_call_that_was_cut_off_goes_back_as_an_object() -> None:
    search = {"type": "server_tool_use", "id": "s", "name": "web", "input": {}}
    reply = streamed(start(0, search), delta(0, "input_json_delta", partial_json='{"q": "x'))
    assert reply.tool_calls == ()
    assert write(*HI, reply)[1]["content"] == [search]


def test_what_the_message_says_itself_is_not_kept_twice() -> None:
    assert reply_with(text("a") | {"citations": None}).raw is None
    assert reply_with(text("a"), use(), use("b")).raw is None
    assert reply_with(text("a"), text("b")).raw is not None


async def test_a_turn_that_another_provider_began_goes_on_without_a_thinking_budget() -> None:
    foreign = [*HI, AssistantMessage(tool_calls=(ToolCall("a", "time"),))]
    answered = [*foreign, ToolMessage("a", "time", "noon")]
    second = AssistantMessage(tool_calls=(ToolCall("b", "time"),))
    longer = [*answered, second, ToolMessage("b", "time", "one"), UserMessage("hurry")]
    async with AnthropicDouble(["a"] * 4) as server:
        llm = model(server, thinking=1024)
        for messages in (HI, answered, longer, [*answered, AssistantMessage("noon"), *HI]):
            await llm.ainvoke(messages, TOOLS)
    assert ["thinking" in body for body in server.requests] == [True, False, False, True]


async def test_later_calls_of_a_turn_need_no_thinking_of_their_own() -> None:
    async with AnthropicDouble([THOUGHTS, calls(("time", {})), "done"]) as server:
        llm = model(server, thinking=1024)
        messages = list(HI)
        for _ in range(2):
            reply = await llm.ainvoke(messages, TOOLS)
            messages += [reply, ToolMessage(reply.tool_calls[0].id, "time", "noon")]
        await llm.ainvoke(messages, TOOLS)
        assert server.prefix_breaks == []
    assert all("thinking" in body for body in server.requests)


async def test_a_turn_that_begins_with_encrypted_thinking_has_its_thinking() -> None:
    async with AnthropicDouble([Reply(redacted="r", calls=[("time", {})]), "done"]) as server:
        llm = model(server, thinking=1024)
        reply = await llm.ainvoke(HI, TOOLS)
        await llm.ainvoke([*HI, reply, ToolMessage(reply.tool_calls[0].id, "time", "1")], TOOLS)
    assert "thinking" in server.requests[1]


@pytest.mark.parametrize("choice", ["required", "time"])
@pytest.mark.parametrize("thinking", [1024, {"type": "adaptive"}])
async def test_a_thinking_model_that_is_to_be_forced_is_refused_clearly(
    choice: str, thinking: Any
) -> None:
    async with AnthropicDouble(["a", "a"]) as server:
        llm = model(server, thinking=thinking)
        with pytest.raises(BadRequest, match="while it thinks"):
            await llm.ainvoke(HI, TOOLS, tool_choice=choice)
        await llm.ainvoke(HI, TOOLS, tool_choice="none")
        off = model(server, thinking={"type": "disabled"})
        await off.ainvoke(HI, TOOLS, tool_choice=choice)
    assert len(server.requests) == 2


def test_a_budget_above_all_tokens_is_refused_at_once() -> None:
    with pytest.raises(ValueError, match="max_tokens"):
        ChatAnthropic("m", api_key="k", thinking=5000, max_tokens=4096)


# ---- the prompt cache


async def test_tools_system_prompt_and_the_last_two_user_messages_are_marked() -> None:
    async with AnthropicDouble(["a", "a"]) as server:
        await model(server).ainvoke(conversation(), TOOLS)
        await model(server, cache=False).ainvoke(conversation(), TOOLS)
    marked, plain = server.requests
    assert without_marks(marked) == plain
    assert json.dumps(plain).count("cache_control") == 0
    assert json.dumps(marked).count("cache_control") == 4
    assert [MARK.items() <= one.items() for one in marked["tools"]] == [False, True]
    assert marked["system"] == [text("s") | MARK]
    assert marked["messages"][2]["content"][-1] == text("hurry") | MARK
    assert marked["messages"][4]["content"][-1] == text("bye") | MARK


def test_marking_does_not_touch_the_messages() -> None:
    llm = ChatAnthropic("m", api_key="k")
    reply = reply_with(thought("x"), text("so"))
    before = dump_record(reply)
    request = http.Request([*HI, reply, *HI])
    assert llm.body(request, False) == llm.body(request, False)
    assert dump_record(reply) == before


@pytest.mark.parametrize("width", [1, 9, 10, 11, 60])
async def test_every_request_of_a_run_finds_all_of_the_one_before(width: int) -> None:
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


def _blocks(body: dict[str, Any]) -> Any:
    yield from [*body["tools"], *body["system"]]
    for message in body["messages"]:
        yield from message["content"]


# ---- the reply


@pytest.mark.parametrize(
    ("stop", "reason"),
    [
        ("end_turn", "end"),
        ("stop_sequence", "end"),
        ("tool_use", "tool_calls"),
        ("max_tokens", "length"),
        ("refusal", "refused"),
        ("pause_turn", "pause"),
        ("model_context_window_exceeded", "context_overflow"),
        ("zzz", "zzz"),
        (None, None),
        (7, None),
    ],
)
def test_stop_reasons_have_one_vocabulary(stop: Any, reason: str | None) -> None:
    assert reply_with(text("a"), stop=stop).stop_reason == reason


@pytest.mark.parametrize(
    ("stop", "reason"),
    [("end_turn", "tool_calls"), (None, "tool_calls"), ("max_tokens", "length"), ("zzz", "zzz")],
)
def test_a_stop_with_calls_is_for_the_calls(stop: Any, reason: str) -> None:
    assert reply_with(use(), stop=stop).stop_reason == reason


@pytest.mark.parametrize("streaming", [True, False])
async def test_a_refusal_says_why_if_the_provider_does(streaming: bool) -> None:
    why = {"type": "refusal", "category": "bio", "explanation": "This was declined."}
    script = [Reply(finish="refusal", stop_details=why), Reply("I can't.", finish="refusal")]
    on_delta = (lambda _: None) if streaming else None
    async with AnthropicDouble(script) as server:
        llm = model(server)
        for words in ("This was declined.", "I can't."):
            reply = await llm.ainvoke(HI, on_delta=on_delta)
            assert (reply.text, reply.stop_reason) == (words, "refused")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ([text("a")], "a"),
        ([text("a"), text("b")], "ab"),
        ([], ""),
        ([{"type": "text"}, {"type": "text", "text": None}, 5, None], ""),
        ([text("a\ud83d\ude00\ud83d")], "a😀\ufffd"),
    ],
)
def test_content_comes_in_many_forms(content: Any, words: str) -> None:
    reply = reply_with(*content)
    assert reply.text == words
    json.dumps(to_dict(reply), ensure_ascii=False).encode()


@pytest.mark.parametrize("content", [None, "a", {}, 5])
def test_a_reply_without_content_is_a_bad_one(content: Any) -> None:
    with pytest.raises(BadResponse):
        read_anthropic_reply({"content": content})


@pytest.mark.parametrize(
    ("arguments", "words"),
    [({"a": "é"}, '{"a": "é"}'), ({}, "{}"), ('{"a":1}', '{"a":1}'), ("", ""), (None, "")],
)
def test_arguments_are_text_whatever_the_server_sends(arguments: Any, words: str) -> None:
    block = {"type": "tool_use", "id": "a", "name": "f", "input": arguments}
    assert reply_with(block).tool_calls[0].arguments == words


def test_tokens_are_counted_once() -> None:
    usage = {
        "input_tokens": 5,
        "cache_read_input_tokens": 80,
        "cache_creation_input_tokens": 15,
        "output_tokens": 50,
        "output_tokens_details": {"thinking_tokens": 30},
        "server_tool_use": None,
    }
    assert reply_with(text("a"), usage=usage).usage == Usage(100, 50, 80, 15, 30)


@pytest.mark.parametrize("usage", [None, {}, [], 5])
def test_no_usage_is_none(usage: Any) -> None:
    assert reply_with(text("a"), usage=usage).usage is None


def test_usage_with_nulls_counts_as_zero() -> None:
    usage = {"input_tokens": 5, "output_tokens": None, "cache_read_input_tokens": None}
    assert reply_with(text("a"), usage=usage).usage == Usage(5, 0)


# ---- streams


@pytest.mark.parametrize(
    "scripted",
    [
        "Hello, world",
        Reply("text", calls=[("weather", {"city": "Zürich 漢字"}), ("time", "{}")]),
        THOUGHTS,
        Reply(thinking="", calls=[("time", {})]),
        Reply("cut", finish="length", usage=None),
        Reply("", finish="refusal"),
        Reply("on", finish="pause_turn"),
        Reply(blocks=[]),
    ],
)
async def test_streamed_or_whole_the_message_is_the_same(scripted: Any) -> None:
    if isinstance(scripted, Reply) and scripted.calls:
        named = [(*call, f"toolu_{n}") for n, call in enumerate(scripted.calls)]
        scripted = Reply(**{**vars(scripted), "calls": named})
    async with AnthropicDouble([scripted] * 2) as server:
        llm = model(server)
        shown: list[Any] = []
        reply = await llm.ainvoke(HI, TOOLS, on_delta=shown.append)
        assert await llm.ainvoke(HI, TOOLS) == reply
    by_kind = {
        kind: "".join(e.content for e in shown if type(e) is kind) for kind in set(map(type, shown))
    }
    assert by_kind.get(TextDeltaEvent, "") == reply.text
    assert by_kind.get(ThinkingDeltaEvent) == reply.thinking


def test_usage_comes_in_two_parts_and_what_the_second_leaves_out_stays() -> None:
    first = {"input_tokens": 3, "cache_read_input_tokens": 7, "output_tokens": 1}
    last = {"output_tokens": 40, "input_tokens": None, "cache_read_input_tokens": 9}
    reply = streamed(
        {"type": "message_start", "message": {"content": [], "usage": first}},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": last},
    )
    assert reply.usage == Usage(12, 40, 9)


@pytest.mark.parametrize(
    ("items", "expected"),
    [
        pytest.param(
            [
                start(0, use("a", "f")),
                delta(0, "input_json_delta", partial_json=""),
                delta(0, "input_json_delta", partial_json='{"x"'),
                delta(0, "input_json_delta", partial_json=":1}"),
            ],
            [("a", "f", '{"x": 1}')],
            id="as documented",
        ),
        pytest.param([start(0, use("a", "f"))], [("a", "f", "{}")], id="no arguments"),
        pytest.param(
            [start(0, use("a", "f", x=1)), delta(0, "input_json_delta", partial_json="")],
            [("a", "f", '{"x": 1}')],
            id="arguments at the start",
        ),
        pytest.param(
            [
                start(0, use("a", "f")),
                start(1, use("b", "g")),
                delta(0, "input_json_delta", partial_json="{}"),
                delta(1, "input_json_delta", partial_json="[]"),
            ],
            [("a", "f", "{}"), ("b", "g", "[]")],
            id="two calls interleaved",
        ),
        pytest.param(
            [
                start(0, use("a", "f")),
                delta(0, "input_json_delta", partial_json='{"x":1}'),
                start(0, use("b", "g")),
                delta(0, "input_json_delta", partial_json='{"x":2}'),
            ],
            [("a", "f", '{"x": 1}'), ("b", "g", '{"x": 2}')],
            id="one index for two calls",
        ),
        pytest.param(
            [
                start(None, use("a", "f")),
                delta(None, "input_json_delta", partial_json='{"x":1}'),
                start(None, use("b", "g")),
            ],
            [("a", "f", '{"x": 1}'), ("b", "g", "{}")],
            id="no index",
        ),
        pytest.param(
            [start(5, use("a", "f")), start(9, use("b", "g"))],
            [("a", "f", "{}"), ("b", "g", "{}")],
            id="gaps in the index",
        ),
        pytest.param(
            [start(0, use("", "f")), start(1, use("", "f"))],
            [("", "f", "{}"), ("", "f", "{}")],
            id="no ids",
        ),
        pytest.param(
            [start(0, use("a", "f")), delta(0, "input_json_delta", partial_json='{"x"')],
            [("a", "f", '{"x"')],
            id="arguments cut off",
        ),
    ],
)
def test_calls_are_put_together_as_servers_send_them(items: Any, expected: Any) -> None:
    reply = streamed(*items)
    assert [(c.id, c.name, c.arguments) for c in reply.tool_calls] == expected
    assert reply.stop_reason == "tool_calls"


def test_a_signature_in_pieces_and_a_block_without_a_start_are_put_together() -> None:
    reply = streamed(
        delta(0, "thinking_delta", thinking="hm"),
        delta(0, "signature_delta", signature="ab"),
        delta(0, "signature_delta", signature="cd"),
        delta(1, "text_delta", text="so"),
    )
    assert reply.raw["content"] == [
        {"type": "thinking", "thinking": "hm", "signature": "abcd"},
        text("so"),
    ]


def test_text_that_comes_with_the_start_of_its_block_is_shown_and_kept() -> None:
    shown: list[Any] = []
    whole = AnthropicChunks(Deltas(shown.append))
    for item in (start(0, text("a")), delta(0, "text_delta", text="b")):
        whole.add(item)
    assert read_anthropic_reply(whole.reply()).text == "ab"
    assert shown == [TextDeltaEvent("a"), TextDeltaEvent("b")]


@pytest.mark.parametrize(
    "odd",
    [
        {},
        {"type": "zzz"},
        {"type": "ping"},
        {"type": "message_start"},
        {"type": "message_delta"},
        {"type": "message_delta", "delta": None, "usage": []},
        {"type": "content_block_start"},
        {"type": "content_block_stop", "index": 7},
        {"type": "content_block_delta", "index": 3},
        {"type": "content_block_delta", "index": [0], "delta": {"type": "text_delta"}},
        delta(4, "zzz_delta", zzz=1),
        delta(4, "text_delta", text=7),
        delta(4, "citations_delta", citation={"x": 1}),
    ],
)
def test_odd_events_do_not_crash(odd: dict[str, Any]) -> None:
    assert streamed(odd, start(0, text("")), delta(0, "text_delta", text="a"), odd).text == "a"


def wire(words: str = "hello", **more: Any) -> bytes:
    """A streamed reply on the wire, in one chunk."""
    block = text(words)
    usage = {"input_tokens": 1, "output_tokens": 2}
    message = {"content": [block], "stop_reason": "end_turn", "stop_sequence": None}
    return sse(*events(message | {"stop_details": None, "usage": usage} | more))


WHOLE = {"content": [text("hello")], "stop_reason": "end_turn"}


# ---- errors


async def failed(status: int, kind: str, message: str = "no", **headers: str) -> Any:
    script = [Failure(status, message, kind, headers=headers)]
    async with AnthropicDouble(script) as server:
        with pytest.raises(errors.ModelError) as caught:
            await model(server, max_retries=0).ainvoke(HI)
    return caught.value


@pytest.mark.parametrize(
    ("status", "kind", "expected"),
    [
        (400, "invalid_request_error", BadRequest),
        (401, "authentication_error", errors.AuthenticationFailed),
        (402, "billing_error", BadRequest),
        (403, "permission_error", errors.AuthenticationFailed),
        (404, "not_found_error", BadRequest),
        (413, "request_too_large", errors.ContextWindowExceeded),
        (429, "rate_limit_error", errors.RateLimited),
        (500, "api_error", errors.ServerError),
        (504, "timeout_error", errors.ServerError),
        (529, "overloaded_error", errors.Overloaded),
    ],
)
async def test_each_error_has_its_class_status_and_request_id(
    status: int, kind: str, expected: type[Exception]
) -> None:
    error = await failed(status, kind, "why")
    assert type(error) is expected
    assert (error.status, error.request_id) == (status, "req_double")
    assert f"{kind}: why" in str(error)


@pytest.mark.parametrize(
    "words",
    [
        "prompt is too long: 210000 tokens > 200000 maximum",
        "input length and `max_tokens` exceed context limit: 190000 + 20000 > 200000",
    ],
)
async def test_a_full_context_window_is_known(words: str) -> None:
    error = await failed(400, "invalid_request_error", words)
    assert type(error) is errors.ContextWindowExceeded


async def test_a_spent_budget_is_not_asked_again() -> None:
    details = {"error_code": "enforced_spend_limit_reached"}
    error = {"type": "rate_limit_error", "message": "limit", "details": details}
    async with FaultServer([send(answer({"type": "error", "error": error}, 429))]) as server:
        with pytest.raises(errors.RateLimited, match="enforced_spend_limit_reached"):
            await model(server.url).ainvoke(HI)
        assert len(server.requests) == 1


@pytest.mark.parametrize(
    ("kind", "expected", "again"),
    [
        ("overloaded_error", errors.Overloaded, True),
        ("rate_limit_error", errors.RateLimited, True),
        ("api_error", errors.ServerError, True),
        ("timeout_error", errors.ServerError, True),
        ("billing_error", BadRequest, False),
        ("invalid_request_error", BadRequest, False),
    ],
)
@pytest.mark.parametrize("named", [True, False])
async def test_an_error_inside_a_stream_is_that_error(
    kind: str, expected: type[Exception], again: bool, named: bool
) -> None:
    event = sse({"type": "error", "error": {"type": kind, "message": "later"}})
    event = event if named else event.removeprefix(b"event: error\n")
    begun = wire()[: wire().index(b"event: content_block_stop")]
    early = [send(stream_head() + chunk(event)), fin()]
    late = [send(stream_head() + chunk(begun + event)), fin()]
    good = [send(stream_head() + chunk(wire()) + chunk(b"")), fin()]
    async with FaultServer(early, *[good] * again, late) as server:
        llm = model(server.url)
        if again:
            assert (await llm.ainvoke(HI, on_delta=lambda _: None)).text == "hello"
        else:
            with pytest.raises(expected, match="later"):
                await llm.ainvoke(HI, on_delta=lambda _: None)
        shown: list[Any] = []
        with pytest.raises(expected, match="later"):
            await llm.ainvoke(HI, on_delta=shown.append)
        assert "".join(event.content for event in shown) == "hello"
        assert len(server.requests) == 2 + again


async def test_the_double_refuses_what_the_provider_would() -> None:
    orphan = [*HI, ToolMessage("a", "time", "1")]
    unanswered = [*HI, AssistantMessage(tool_calls=(ToolCall("a", "time"),)), *HI]
    twice = [*unanswered[:2], ToolMessage("a", "time", "1"), ToolMessage("a", "time", "2")]
    forged = AssistantMessage("a", raw={"provider": "anthropic", "content": [thought("x")]})
    forged.raw["content"][0]["thinking"] = "y"
    cases: list[tuple[list[Any], str]] = [
        (orphan, "unexpected `tool_use_id`"),
        (unanswered, "without `tool_result` blocks immediately after"),
        (twice, "multiple results"),
        ([*HI, AssistantMessage("a")], "must end with a user message"),
        ([*HI, forged, *HI], "Invalid `signature`"),
        ([], "at least one message"),
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
        assert len(server.refusals) == 10
        assert server.replies == ["never"]


# ---- settings, runs, other doubles


def test_the_address_comes_from_the_environment_or_is_that_of_anthropic(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with pytest.raises(ValueError, match="ANTHROPIC_API_KEY"):
        ChatAnthropic("m")
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-4711")
    assert ChatAnthropic("m").base_url == "https://api.anthropic.com"
    assert ChatAnthropic("m").headers()["x-api-key"] == "sk-4711"
    assert "4711" not in repr(ChatAnthropic("m"))
    monkeypatch.setenv("ANTHROPIC_BASE_URL", "http://local/")
    assert ChatAnthropic(model="m").base_url == "http://local"
    assert ChatAnthropic("m", base_url="http://here").base_url == "http://here"
    assert ChatAnthropic("m", base_url="http://here/v1/").base_url == "http://here"


async def test_a_mocked_transport_is_enough() -> None:
    with respx.mock(base_url="https://api.anthropic.com") as mock:
        route = mock.post("/v1/messages").mock(return_value=httpx.Response(200, json=WHOLE))
        llm = ChatAnthropic("m", api_key="sk-123456")
        assert (await llm.ainvoke(HI)).text == "hello"
        assert route.calls.last.request.headers["x-api-key"] == "sk-123456"
        await llm.aclose()


@tool("Adds two numbers.")
def add(a: int, b: int) -> int:
    return a + b


async def run(streaming: bool) -> tuple[AnthropicDouble, Agent]:
    both = [("add", {"a": 1, "b": 2}, "toolu_1"), ("add", {"a": 3, "b": "x"}, "toolu_2")]
    script = [
        Reply("I add.", thinking="two sums", calls=both),
        Reply(thinking="again", redacted="r", calls=[("add", {"a": 3, "b": 4}, "toolu_1")]),
        "3 and 7",
        "you are welcome",
    ]
    async with AnthropicDouble(script, system="be exact", secrets=["sk-4711"]) as server:
        llm = model(server, api_key="sk-4711", thinking=2048)
        agent = Agent(llm=llm, tools=[add], system_prompt="be exact")
        for prompt in ("add 1, 2 and 3, 4", "thanks"):
            if streaming:
                [_ async for _ in agent.query_stream(prompt)]
            else:
                await agent.run(prompt)
        assert server.refusals == []
        assert server.prefix_breaks == []
    return server, agent


async def test_a_run_leaves_the_same_log_streamed_or_not() -> None:
    (server, agent), (streaming, streamed_agent) = await run(False), await run(True)

    def plain(log: Any) -> list[Any]:
        return [
            {k: v for k, v in to_dict(record).items() if k not in ("at", "seconds")}
            for record in log
        ]

    assert plain(streamed_agent.log) == plain(agent.log)
    first = [without_marks(body) | {"stream": True} for body in server.requests]
    assert first == [without_marks(body) for body in streaming.requests]
    assert [body.get("stream") for body in streaming.requests] == [True] * 4
    assert server.requests[3]["messages"][1]["content"][0] == thought("two sums")
    assert server.requests[3]["messages"][3]["content"][1] == redacted("r")
    ids = [c.id for r in agent.log if isinstance(r, AssistantMessage) for c in r.tool_calls]
    assert ids[:2] == ["toolu_1", "toolu_2"]
    assert len(set(ids)) == 3
    assert agent.usage == Usage(40, 20)


async def test_a_conversation_that_grew_too_long_is_summarized_and_goes_on() -> None:
    full = Failure(
        400, "prompt is too long: 210000 tokens > 200000 maximum", "invalid_request_error"
    )
    turn = Reply(thinking="hm", calls=[("add", {"a": 1, "b": 2})])
    async with AnthropicDouble([turn, turn, full, "we added", "3"], system="s") as server:
        llm = model(server, thinking=1024)
        agent = Agent(llm=llm, tools=[add], system_prompt="s")
        assert (await agent.run("add 1 and 2, twice")).text == "3"
        assert server.refusals == []
    assert "we added" in json.dumps(server.requests[4]["messages"])
