"""ChatOpenAI over Responses: what it sends, and what it makes of the replies."""

import json
from types import SimpleNamespace

import pytest

from agentloop.errors import BadRequest, BadResponse, Overloaded, RateLimited, ServerError
from agentloop.events import TextDeltaEvent, ThinkingDeltaEvent, ToolCallDeltaEvent
from agentloop.messages import (
    AssistantMessage,
    FilePart,
    ImagePart,
    TextPart,
    ToolCall,
    ToolMessage,
    UserMessage,
)
from agentloop.models.openai import ChatOpenAI
from agentloop.models.responses import ResponsesEvents, read_responses, write_items
from agentloop.records import dump_record, load_record
from tests.doubles.fault_server import FaultServer, answer, send, stream
from tests.doubles.openai_double import OpenAIDouble, Reply
from tests.doubles.responses_double import ResponsesDouble
from tests.doubles.wires import RESPONSES
from tests.doubles.wires import TOOLS as REAL_TOOLS
from tests.models.asked import HI, SCHEMA, sent

TOOLS = [
    SimpleNamespace(name="weather", description="The weather.", parameters=SCHEMA),
    SimpleNamespace(name="any", description="Any.", parameters={"type": "object"}),
]
THOUGHT = {"id": "rs_1", "type": "reasoning", "summary": [], "encrypted_content": "gAAAAAB=="}
CALL = {"id": "fc_1", "type": "function_call", "status": "completed"}
CALL |= {"call_id": "c1", "name": "weather", "arguments": '{"city":  "Bern"}'}
RESULT = ToolMessage("c1", "weather", "sunny")


def model(server, name="m", **settings):
    return RESPONSES.model(server, model=name, **settings)


def text(words, **more):
    part = {"type": "output_text", "text": words, "annotations": []}
    return {"id": "msg_1", "type": "message", "role": "assistant", "content": [part]} | more


def response(*items, **more):
    return {"status": "completed", "output": [*items]} | more


def reply(*items, **more):
    return read_responses(response(*items, **more), "me")


def write(*messages, owner="me"):
    return write_items(messages, owner)


# ---- which wire is spoken


@pytest.mark.parametrize(
    ("url", "api", "path"),
    [
        (None, None, "/responses"),
        ("https://eu.api.openai.com/v1/", None, "/responses"),
        ("http://localhost:8080/v1", None, "/chat/completions"),
        ("https://openrouter.ai/api/v1", None, "/chat/completions"),
        (None, "chat", "/chat/completions"),
        ("http://localhost:8080/v1", "responses", "/responses"),
    ],
)
def test_openai_gets_responses_and_every_other_address_chat_completions(url, api, path):
    assert ChatOpenAI("m", base_url=url, api_key="k", api=api).path(False) == path


def test_a_mistyped_api_is_told_at_once():
    with pytest.raises(ValueError, match="'responses' or 'chat', not 'response'"):
        ChatOpenAI("m", api_key="k", api="response")


async def test_a_model_that_chat_completions_refuses_with_tools_says_what_to_set():
    async with OpenAIDouble(["never", "hi"]) as server:
        for name in ("gpt-5.5", "gpt-5.6-terra", "gpt-6"):
            with pytest.raises(BadRequest, match=r"use /v1/responses.*set api='responses'"):
                await model(server, name, api="chat").ainvoke(HI, TOOLS)
        await model(server, "gpt-5.6", api="chat", reasoning_effort="none").ainvoke(HI, TOOLS)


@pytest.mark.parametrize("api", ["chat", "responses"])
@pytest.mark.parametrize("status", [404, 405])
async def test_a_server_that_does_not_speak_it_says_what_to_set(api, status):
    async with FaultServer([send(answer("404 page not found", status))]) as server:
        with pytest.raises(BadRequest, match=f"if '{api}' is not spoken here, set api="):
            await model(server, api=api).ainvoke(HI)


# ---- the request


@pytest.mark.parametrize("name", ["gpt-4o", "gpt-4.1-mini", "gpt-5-chat-latest", "ft:gpt-4o:me"])
async def test_a_model_that_does_not_reason_is_not_asked_for_it(name):
    async with ResponsesDouble(["hello"]) as server, model(server, name) as llm:
        await llm.ainvoke(HI)
    assert "include" not in server.requests[0]


PARTS = [
    TextPart("look"),
    ImagePart(url="https://x/y.png"),
    ImagePart(data=b"\x00\xff", media_type="image/png", extra={"detail": "high"}),
    FilePart(data=b"%PDF", media_type="application/pdf", name="a.pdf"),
    FilePart(url="https://x/y.pdf"),
]
WRITTEN = [
    {"type": "input_text", "text": "look"},
    {"type": "input_image", "image_url": "https://x/y.png", "detail": "auto"},
    {"type": "input_image", "image_url": "data:image/png;base64,AP8=", "detail": "high"},
    {
        "type": "input_file",
        "filename": "a.pdf",
        "file_data": "data:application/pdf;base64,JVBERg==",
    },
    {"type": "input_file", "file_url": "https://x/y.pdf"},
]


async def test_images_and_files_are_carried_in_messages_and_in_results():
    turn = [AssistantMessage(tool_calls=(ToolCall("c1", "any"),)), ToolMessage("c1", "any", PARTS)]
    items = (await sent(RESPONSES, [UserMessage(PARTS), *turn], TOOLS))["input"]
    assert items[0] == {"role": "user", "content": WRITTEN}
    assert items[2] == {"type": "function_call_output", "call_id": "c1", "output": WRITTEN}


# ---- reasoning, and items of other kinds

LOOP = [
    Reply("I add.", thinking="two sums", calls=[("add", {"a": 1, "b": 2}), ("now", {})]),
    Reply(thinking="hm", calls=[("now", {})]),
    Reply("Noon.", thinking="done"),
    "Bye.",
]


@pytest.mark.parametrize("change", [{"name": "other"}, {"elsewhere": True}, {"api": "chat"}])
async def test_reasoning_stays_with_its_model_and_server(change):
    double = OpenAIDouble if "api" in change else ResponsesDouble
    async with ResponsesDouble(LOOP[:1]) as one, double(["Noon.", "Noon."]) as two:
        first = await model(one).ainvoke(HI, REAL_TOOLS)
        results = [ToolMessage(call.id, call.name, "3") for call in first.tool_calls]
        server = two if change.keys() & {"api", "elsewhere"} else one
        one.replies = ["Noon."]
        settings = {key: value for key, value in change.items() if key != "elsewhere"}
        await model(server, **settings).ainvoke([*HI, first, *results], REAL_TOOLS)
        assert server.refusals == []
    said = json.dumps(server.requests[-1])
    assert "opaque" not in said
    assert "fc_" not in said
    assert "two sums" not in said
    assert "I add." in said


def test_items_of_unknown_kinds_go_back_too_also_from_a_saved_log():
    found = {"id": "zz_1", "type": "zzz_call", "status": "completed", "deep": [{"a": None}]}
    message = reply(found, THOUGHT, text("It is.", phase="final_answer"))
    again = load_record(dump_record(message))
    assert write(again) == [found, THOUGHT, text("It is.", phase="final_answer")]
    assert write(again, owner="another") == [{"role": "assistant", "content": "It is."}]


@pytest.mark.parametrize(
    "items",
    [
        [text("a")],  # the message says it all
        [THOUGHT],
        [text("a"), THOUGHT],  # nothing follows it
        [THOUGHT | {"encrypted_content": None}, text("a")],  # nothing is stored at the server
    ],
)
def test_what_would_be_refused_or_says_no_more_is_not_kept(items):
    message = reply(*items)
    assert message.raw is None
    assert write(message) == [{"role": "assistant", "content": "a"}] * bool(message.content)


def test_open_reasoning_is_kept():
    item = {"id": "rs_1", "type": "reasoning", "summary": []}
    item["content"] = [{"type": "reasoning_text", "text": "hm"}]  # gpt-oss behind vLLM
    message = reply(item, text("a"))
    assert message.thinking == "hm"
    assert write(message)[0] == item


def test_a_reply_that_was_cut_off_goes_back_without_its_items():
    cut = {"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}}
    message = reply(THOUGHT, CALL | {"arguments": '{"ci'}, **cut)
    assert message.stop_reason == "length"
    call = {"type": "function_call", "call_id": "c1", "name": "weather", "arguments": "{}"}
    assert write(message) == [call]


async def test_the_double_refuses_what_openai_would():
    first, user = reply(THOUGHT, CALL), {"role": "user", "content": "hi"}
    items = write(*HI, first, RESULT)
    server = ResponsesDouble()
    sent = server.whole(Reply(thinking="hm", calls=[("any", {}, "c1")]))["output"]
    output = items[-1]
    cases = {
        "No tool output found for function call c1.": [user, *sent],
        "No tool call found for function call output with call_id c1.": [user, output],
        "of type 'reasoning' was provided without its required following item.": [user, sent[0]],
        "'function_call' was provided without its required 'reasoning' item: 'rs_0000'": [
            *(user, sent[1], output)
        ],
        "could not be verified": [user, THOUGHT, CALL, output],
        "Items are not persisted when `store` is set to false": [
            *(user, sent[0] | {"encrypted_content": None}, sent[1], output)
        ],
        "Missing required parameter: 'input[1].summary'.": [user, {"type": "reasoning"}],
    }
    for said, wrong in cases.items():
        with pytest.raises(Exception, match=r".*") as caught:
            server.check_input(wrong)
        assert said in str(caught.value)
    server.check_input([user, *sent, output])


# ---- the reply


@pytest.mark.parametrize(
    ("status", "reason", "stop"),
    [
        ("completed", None, "end"),
        ("incomplete", "max_output_tokens", "length"),
        ("incomplete", "content_filter", "refused"),
        ("incomplete", "zzz", "zzz"),
    ],
)
def test_stop_reasons(status, reason, stop):
    details = {"reason": reason} if reason else None
    assert reply(text("a"), status=status, incomplete_details=details).stop_reason == stop


def test_a_refusal_is_the_text_of_a_refused_reply():
    part = {"type": "refusal", "refusal": "I can't."}
    message = reply(text("") | {"content": [part]})
    assert (message.text, message.stop_reason) == ("I can't.", "refused")


def test_a_kind_that_is_no_text_is_an_error_that_trying_again_would_not_mend():
    with pytest.raises(BadResponse, match="malformed: "):
        reply(text("a"), {"type": {}})


FAILED = {"status": "failed", "output": [], "error": {"code": "server_error", "message": "sorry"}}


@pytest.mark.parametrize("streaming", [False, True])
@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("server_error", ServerError),
        ("rate_limit_exceeded", RateLimited),
        ("server_is_overloaded", Overloaded),
        ("invalid_prompt", BadRequest),
        (None, ServerError),
    ],
)
async def test_a_failed_response_is_an_error(code, kind, streaming):
    failed = FAILED | {"error": {"code": code, "message": "sorry"}}
    sent = stream({"type": "response.failed", "response": failed})
    async with FaultServer([send(sent if streaming else answer(failed))]) as server:
        with pytest.raises(kind, match="sorry"):
            await model(server, max_retries=0).ainvoke(
                HI, on_delta=(lambda _: None) if streaming else None
            )


# ---- streams


def event(kind, **fields):
    return {"type": f"response.{kind}", **fields}


def assemble(*events):
    shown = []
    whole = ResponsesEvents(shown.append)
    for each in events:
        whole.add(each)
    assert whole.complete
    return read_responses(whole.reply(), "me"), shown


def test_a_stream_shows_thinking_text_and_the_growing_arguments_of_calls():
    item = THOUGHT | {"summary": [{"type": "summary_text", "text": t} for t in ("one", "two")]}
    begun = CALL | {"arguments": "", "status": "in_progress"}
    thought, call = "reasoning_summary_text.delta", "function_call_arguments.delta"
    message, shown = assemble(
        event("created", response={"status": "in_progress", "output": []}),
        event("output_item.added", output_index=0, item=THOUGHT),
        event(thought, output_index=0, summary_index=0, delta="o"),
        event(thought, output_index=0, summary_index=0, delta="ne"),
        event(thought, output_index=0, summary_index=1, delta="two"),
        event("output_item.done", output_index=0, item=item),
        event("output_item.added", output_index=1, item=begun),
        event("output_text.delta", output_index=2, content_index=0, delta="so"),
        event(call, output_index=1, delta='{"city":'),
        event(call, output_index=1, delta='  "Bern"}'),
        event("zzz.delta", delta="?"),
        event("completed", response=response(item, CALL, text("so"))),
    )
    assert (message.thinking, message.text) == ("one\n\ntwo", "so")
    assert message.tool_calls == (ToolCall("c1", "weather", '{"city":  "Bern"}'),)
    assert shown == [
        ThinkingDeltaEvent("o"),
        ThinkingDeltaEvent("ne"),
        ThinkingDeltaEvent("\n\ntwo"),
        TextDeltaEvent("so"),
        ToolCallDeltaEvent('{"city":', "weather", "c1"),
        ToolCallDeltaEvent('  "Bern"}', "weather", "c1"),
    ]


def test_items_are_taken_from_the_stream_where_the_last_event_has_none():
    done = [
        event("output_item.done", output_index=n, item=item)
        for n, item in enumerate([THOUGHT, CALL])
    ]
    message, _ = assemble(*done, event("completed", response=response()))  # the backend of Codex
    assert write(message) == [THOUGHT, CALL]
