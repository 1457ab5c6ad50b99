"""ChatOpenAI with the Responses API: request bodies and parsing of replies."""

import json
import re
from dataclasses import replace

import pytest

from agentloop.common.records import dump_record, load_record
from agentloop.errors import (
    BadRequest,
    BadResponse,
    ContentRefused,
    ContextWindowExceeded,
    Overloaded,
    RateLimited,
    ServerError,
)
from agentloop.events import TextDeltaEvent, ThinkingDeltaEvent, ToolCallDeltaEvent
from agentloop.messages import AssistantMessage, ToolCall, ToolMessage
from agentloop.models.openai import ChatOpenAI
from agentloop.models.responses import ResponsesEvents, read_responses, write_items
from tests.doubles.fault_server import answer, chunk, stream, stream_head
from tests.doubles.openai_double import OpenAIDouble, Reply
from tests.doubles.responses_double import ResponsesDouble, event
from tests.doubles.wires import RESPONSES
from tests.doubles.wires import TOOLS as REAL_TOOLS

from .helpers import (
    CALLED,
    HI,
    RESULT,
    TOOLS,
    agent_of,
    ask,
    body_of,
    conversation,
    sent_body,
    serving,
)

THOUGHT = {"id": "rs_1", "type": "reasoning", "summary": [], "encrypted_content": "gAAAAAB=="}
CALL = {"id": "fc_1", "type": "function_call", "status": "completed"}
CALL |= {"call_id": "c1", "name": "weather", "arguments": '{"city":  "Bern"}'}


def model(server, name="m", **settings):
    return RESPONSES.model(server, model=name, **settings)


def text(words, **more):
    part = {"type": "output_text", "text": words, "annotations": []}
    return {"id": "msg_1", "type": "message", "role": "assistant", "content": [part]} | more


def response(*items, **more):
    return {"status": "completed", "output": [*items]} | more


def reply(*items, **more):
    return read_responses(response(*items, **more), "me")


def write(*messages, server="me"):
    return write_items(messages, server)


def assistant_item(words):
    """Return an item with an assistant message."""
    return {"type": "message", "role": "assistant", "content": words}


# ---- API selection


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
def test_openai_uses_responses_and_other_addresses_use_chat_completions(url, api, path):
    assert ChatOpenAI("m", base_url=url, api_key="k", api=api).path(False) == path


def test_an_invalid_api_name_is_rejected_at_construction():
    with pytest.raises(ValueError, match="'responses' or 'chat'"):
        ChatOpenAI("m", api_key="k", api="response")


async def test_the_error_for_tools_rejected_by_chat_completions_names_the_setting():
    async with OpenAIDouble(["never", "hi"]) as server:
        for name in ("gpt-5.5", "gpt-5.6-terra", "gpt-6"):
            with pytest.raises(BadRequest, match=r"api='responses'"):
                await ask(model(server, name, api="chat"), tools=TOOLS)
        await ask(model(server, "gpt-5.6", api="chat", reasoning_effort="none"), tools=TOOLS)


async def test_the_error_of_bedrock_for_a_model_without_chat_completions_names_the_setting():
    # Source: https://github.com/enricoros/big-AGI/pull/1167
    said = "The model 'openai.gpt-5.6-terra' does not support the '/v1/chat/completions' API"
    async with serving(answer(said, 400)) as server:
        with pytest.raises(BadRequest, match=r"api='responses'"):
            await ask(model(server, api="chat"))


@pytest.mark.parametrize("api", ["chat", "responses"])
@pytest.mark.parametrize("status", [404, 405])
async def test_the_error_for_an_unsupported_api_names_the_setting(api, status):
    async with serving(answer("404 page not found", status)) as server:
        with pytest.raises(BadRequest, match=f"support '{api}', set api="):
            await ask(model(server, api=api))


@pytest.mark.parametrize("name", ["gpt-4o", "gpt-4.1-mini", "gpt-5-chat-latest", "ft:gpt-4o:me"])
async def test_reasoning_is_not_requested_from_a_model_that_does_not_reason(name):
    async with ResponsesDouble(["hello"]) as server:
        await ask(model(server, name))
    assert "include" not in server.requests[0]


async def test_every_item_has_a_type():
    # llama.cpp rejects an assistant message without a type: "Cannot determine type of 'item'"
    items = (await sent_body(RESPONSES, conversation(), TOOLS, system="s"))["input"]
    assert [item["type"] for item in items] == [
        "message",
        "message",
        "message",
        "function_call",
        "function_call",
        "function_call_output",
        "function_call_output",
        "message",
        "message",
    ]


# ---- reasoning, and other item types

ADDS = Reply("I add.", thinking="two sums", calls=[("add", {"a": 1, "b": 2}), ("now", {})])


@pytest.mark.parametrize("streaming", [False, True])
async def test_the_namespace_of_a_call_is_sent_back(streaming):
    # OpenAI: "Missing namespace for function_call ... Round-trip the model's function_call item"
    call = CALL | {"namespace": "crm"}
    body = response(call)
    first = stream(event("completed", response=body)) if streaming else answer(body)
    async with serving(first, answer(response(text("Sunny.")))) as server:
        llm = model(server)
        message = await ask(llm, streaming, tools=TOOLS)
        await ask(llm, messages=[*HI, message, ToolMessage("c1", "weather", "sunny")], tools=TOOLS)
        again = json.loads(server.requests[1][1])["input"]
    assert again[1] == call


OTHER_CALLS = {  # according to OpenAI's type definitions
    "computer_call": {"call_id": "c1", "action": {"type": "screenshot"}},
    "custom_tool_call": {"call_id": "c1", "name": "code", "input": "print(1)"},
    "shell_call": {"call_id": "c1", "action": {"commands": ["ls"]}},
    "local_shell_call": {"call_id": "c1", "action": {"type": "exec", "command": ["ls"], "env": {}}},
    "apply_patch_call": {"call_id": "c1", "operation": {"type": "delete_file", "path": "a"}},
    "mcp_approval_request": {"name": "f", "arguments": "{}", "server_label": "s"},
    "tool_search_call": {"call_id": "c1", "execution": "client", "arguments": {"query": "time"}},
}


@pytest.mark.parametrize("kind", OTHER_CALLS)
async def test_a_call_without_a_matching_tool_is_answered_with_an_error(kind, streaming):
    item = {"id": "c1", "type": kind, "status": "completed", **OTHER_CALLS[kind]}
    body = response(THOUGHT, item)
    first = stream(event("completed", response=body)) if streaming else answer(body)
    async with serving(first, answer(response(text("Then not.")))) as server:
        assert await agent_of(model(server), streaming).query("Do it!") == "Then not."
        call, output = json.loads(server.requests[1][1])["input"][1:]
    assert (call["type"], call["name"], call["call_id"]) == ("function_call", kind, "c1")
    assert json.loads(call["arguments"]) == item
    assert (output["type"], output["call_id"]) == ("function_call_output", "c1")
    assert f"no tool named '{kind}'" in output["output"]


def test_a_call_that_the_server_has_answered_is_sent_back_unchanged():
    call = {"id": "sh_1", "type": "shell_call", "call_id": "c1", "action": {"commands": ["ls"]}}
    output = {"id": "so_1", "type": "shell_call_output", "call_id": "c1", "output": []}
    message = reply(call, output, text("Done."))
    assert message.tool_calls == ()
    assert write(message) == [call, output, text("Done.")]


def test_a_search_for_tools_by_the_server_is_sent_back_unchanged():
    # https://developers.openai.com/api/docs/guides/tools-tool-search
    about = {"execution": "server", "call_id": None, "status": "completed"}
    found = {"type": "function", "name": "weather", "defer_loading": True}
    items = [
        {"id": "tsc_1", "type": "tool_search_call", "arguments": {"paths": ["crm"]}, **about},
        {"id": "tso_1", "type": "tool_search_output", "tools": [found], **about},
        CALL | {"namespace": "crm"},
    ]
    message = reply(*items)
    assert [call.name for call in message.tool_calls] == ["weather"]
    assert write(message) == items


def test_completed_server_side_searches_are_neither_calls_of_the_agent_nor_sent_back():
    # xAI's x_search: https://docs.x.ai/docs/guides/tools/overview
    about = {"name": "x_keyword_search", "input": "{}", "status": "completed"}
    searches = [
        {"id": f"ctc_{n}", "type": "custom_tool_call", "call_id": f"xs_{n}", **about}
        for n in range(3)
    ]
    message = reply(THOUGHT, *searches, text("Found."))
    assert (message.tool_calls, message.text) == ((), "Found.")
    # xAI: "data did not match any variant of untagged enum ModelInput"
    # https://github.com/router-for-me/CLIProxyAPI/pull/4284
    assert write(message) == [THOUGHT, text("Found.")]
    assert write(reply(text("Wait."), THOUGHT, *searches)) == [assistant_item("Wait.")]


@pytest.mark.parametrize("name", ["x_keyword_search", "x_thread_fetch", "code"])
def test_server_side_searches_next_to_a_call_of_the_agent_are_not_calls_of_the_agent(name):
    about = {"call_id": "xs_1", "name": name, "input": "{}", "status": "completed"}
    message = reply({"id": "ctc_1", "type": "custom_tool_call", **about}, CALL)
    names = [call.name for call in message.tool_calls]
    assert names == (["custom_tool_call", "weather"] if name == "code" else ["weather"])


@pytest.mark.parametrize("status", ["queued", "in_progress"])
async def test_a_background_reply_is_an_error_that_names_the_setting(status):
    async with serving(answer({"status": status, "output": []})) as server:
        with pytest.raises(BadRequest, match=f"{status}.*`background`"):
            await ask(model(server, extra={"background": True}))
        assert len(server.requests) == 1


@pytest.mark.parametrize("change", [{"name": "other"}, {"elsewhere": True}, {"api": "chat"}])
async def test_reasoning_is_sent_only_to_its_model_and_server(change):
    double = OpenAIDouble if "api" in change else ResponsesDouble
    async with ResponsesDouble([ADDS, "Noon."]) as own, double(["Noon."]) as other:
        first = await ask(model(own), tools=REAL_TOOLS)
        results = [ToolMessage(call.id, call.name, "3") for call in first.tool_calls]
        server = own if "name" in change else other
        settings = {key: value for key, value in change.items() if key != "elsewhere"}
        await ask(model(server, **settings), messages=[*HI, first, *results], tools=REAL_TOOLS)
        assert server.refusals == []
    body = json.dumps(server.requests[-1])
    hidden, visible = ("opaque", "fc_", "two sums"), "I add."
    assert [word for word in (*hidden, visible) if word in body] == [visible]


def test_items_of_unknown_types_are_sent_back_even_from_a_saved_log():
    unknown = {"id": "zz_1", "type": "zzz_call", "status": "completed", "deep": [{"a": None}]}
    message = reply(unknown, THOUGHT, text("It is.", phase="final_answer"))
    again = load_record(dump_record(message))
    assert write(again) == [unknown, THOUGHT, text("It is.", phase="final_answer")]
    assert write(again, server="another") == [assistant_item("It is.")]


@pytest.mark.parametrize(
    "items",
    [
        [text("a")],  # the message contains the complete information
        [THOUGHT],
        [text("a"), THOUGHT],  # no item follows the reasoning
        [THOUGHT | {"encrypted_content": None}, text("a")],  # the server stores nothing
    ],
)
def test_items_that_are_redundant_or_would_be_rejected_are_not_saved(items):
    message = reply(*items)
    assert message.raw is None
    assert write(message) == ([assistant_item("a")] if message.content else [])


def test_unencrypted_reasoning_is_saved():
    item = {"id": "rs_1", "type": "reasoning", "summary": []}
    item["content"] = [{"type": "reasoning_text", "text": "hm"}]  # gpt-oss with vLLM
    message = reply(item, text("a"))
    assert message.thinking == "hm"
    assert write(message)[0] == item


@pytest.mark.parametrize(
    ("name", "address"),
    [
        # "The `reasoning_text` in the thinking mode must be passed back to the API."
        # Source: https://github.com/rikkahub/rikkahub/issues/1629
        ("deepseek-flash", "https://api.deepseek.com"),
        # https://mimo.mi.com/static/docs/api/chat/responses.md asks for the reasoning as well
        ("mimo-v2.5-pro", "https://api.xiaomimimo.com/v1"),
    ],
)
def test_replies_of_other_models_are_sent_to_deepseek_and_mimo_with_reasoning_first(name, address):
    llm = ChatOpenAI(name, base_url=address, api_key="k", api="responses")
    called = replace(CALLED, content="so", thinking="hm")
    done = AssistantMessage("done")  # an empty text is refused, too
    items = body_of(llm, [*HI, called, RESULT, done, *HI])["input"]
    kinds = [item["type"] for item in items]
    asked, answered = ["message", "reasoning", "message"], ["reasoning", "message", "message"]
    assert kinds == [*asked, "function_call", "function_call_output", *answered]
    parts = [item["content"] for item in items if item["type"] == "reasoning"]
    thoughts = [(part["type"], part["text"]) for [part] in parts]
    assert thoughts == [("reasoning_text", "hm"), ("reasoning_text", "(not recorded)")]
    other = ChatOpenAI("grok-5", base_url="https://api.x.ai/v1", api_key="k", api="responses")
    kinds = [item["type"] for item in body_of(other, [*HI, called, RESULT])["input"]]
    assert kinds == ["message", "message", "function_call", "function_call_output"]


def test_null_instead_of_reasoning_is_not_sent_back():
    # xAI sends "content": null, and answers it with status 422
    # Source: https://github.com/Wei-Shaw/sub2api/issues/4237
    thought = THOUGHT | {"content": None}
    assert write(reply(thought, text("It is."))) == [THOUGHT, text("It is.")]


def test_a_truncated_reply_is_sent_back_without_its_items():
    cut = {"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}}
    message = reply(THOUGHT, CALL | {"arguments": '{"ci'}, **cut)
    assert message.stop_reason == "length"
    call = {"type": "function_call", "call_id": "c1", "name": "weather", "arguments": "{}"}
    assert write(message) == [call]


def test_the_double_rejects_input_that_openai_rejects():
    server, user = ResponsesDouble(), {"role": "user", "content": "hi"}
    thought, call = server.whole(Reply(thinking="hm", calls=[("any", {}, "c1")]))["output"]
    output = {"type": "function_call_output", "call_id": "c1", "output": "sunny"}
    server.check_input([user, thought, call, output])
    cases = {
        "calls without a result": [user, thought, call],
        "no call before it waits for result 'c1'": [user, output],
        "no following item": [user, thought],
        "no 'reasoning' item 'rs_0000'": [user, call, output],
        "could not be verified": [user, THOUGHT, CALL, output],
        "nothing is stored": [user, thought | {"encrypted_content": None}, call, output],
        "no summary": [user, {"type": "reasoning"}],
    }
    for error, wrong in cases.items():
        with pytest.raises(AssertionError, match=error):
            server.check_input(wrong)


# ---- the reply


def test_a_refusal_is_the_text_of_a_refused_reply():
    part = {"type": "refusal", "refusal": "I can't."}
    message = reply(text("") | {"content": [part]})
    assert (message.text, message.stop_reason) == ("I can't.", "refused")


def test_an_item_type_that_is_not_text_is_an_error():
    with pytest.raises(BadResponse, match="a block has no type"):
        reply(text("a"), {"type": {}})


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("server_error", ServerError),
        ("rate_limit_exceeded", RateLimited),
        ("server_is_overloaded", Overloaded),
        ("invalid_prompt", BadRequest),
        ("context_length_exceeded", ContextWindowExceeded),
        # https://github.com/openai/codex/pull/31439
        ("bio_policy", ContentRefused),
        ("cyber_policy", ContentRefused),
        # https://github.com/openai/codex/issues/43728
        ("misalignment_policy_violation", ContentRefused),
        (None, ServerError),
    ],
)
async def test_a_failed_response_is_an_error(code, kind, streaming):
    # OpenAI repeats the tools, and Azure adds `content_filters`
    repeated = {"content_filters": [], "tools": [{"description": "Get the usage limit."}]}
    error = {"code": code, "message": "sorry"}
    failed = {"status": "failed", "output": [], "error": error} | repeated
    sent = stream(event("failed", response=failed)) if streaming else answer(failed)
    async with serving(sent) as server:
        with pytest.raises(kind, match="sorry") as caught:
            await ask(model(server, max_retries=0), streaming)
        assert caught.value.should_retry is None


# ---- streams


def assemble(*events):
    deltas = []
    whole = ResponsesEvents(deltas.append)
    for data in events:
        whole.add(data)
    assert whole.complete
    return read_responses(whole.reply(), "me"), deltas


def test_a_stream_emits_deltas_of_thinking_text_and_call_arguments():
    item = THOUGHT | {"summary": [{"type": "summary_text", "text": t} for t in ("one", "two")]}
    started_call = CALL | {"arguments": "", "status": "in_progress"}
    thought, call = "reasoning_summary_text.delta", "function_call_arguments.delta"
    message, deltas = assemble(
        event("created", response={"status": "in_progress", "output": []}),
        event("output_item.added", output_index=0, item=THOUGHT),
        event(thought, output_index=0, summary_index=0, delta="o"),
        event(thought, output_index=0, summary_index=0, delta="ne"),
        event(thought, output_index=0, summary_index=1, delta="two"),
        event("output_item.done", output_index=0, item=item),
        event("output_item.added", output_index=1, item=started_call),
        event("output_text.delta", output_index=2, content_index=0, delta="so"),
        event(call, output_index=1, delta='{"city":'),
        event(call, output_index=1, delta='  "Bern"}'),
        event("zzz.delta", delta="?"),
        event("completed", response=response(item, CALL, text("so"))),
    )
    assert (message.thinking, message.text) == ("one\n\ntwo", "so")
    assert message.tool_calls == (ToolCall("c1", "weather", '{"city":  "Bern"}'),)
    assert deltas == [
        ThinkingDeltaEvent("o"),
        ThinkingDeltaEvent("ne"),
        ThinkingDeltaEvent("\n\ntwo"),
        TextDeltaEvent("so"),
        ToolCallDeltaEvent('{"city":', "weather", "c1"),
        ToolCallDeltaEvent('  "Bern"}', "weather", "c1"),
    ]


def test_texts_of_several_messages_are_joined_without_a_separator():
    one, two = text("It is "), text("sunny.")
    delta = "output_text.delta"
    message, deltas = assemble(
        event(delta, output_index=0, content_index=0, delta="It is "),
        event(delta, output_index=1, content_index=0, delta="sunny."),
        event("completed", response=response(one, two)),
    )
    assert message.text == "It is sunny."
    assert deltas == [TextDeltaEvent("It is "), TextDeltaEvent("sunny.")]


def test_items_are_collected_from_the_stream_if_the_last_event_has_none():
    items = enumerate([THOUGHT, CALL])
    done = [event("output_item.done", output_index=n, item=item) for n, item in items]
    message, _ = assemble(*done, event("completed", response=response()))  # as in the Codex backend
    assert write(message) == [THOUGHT, CALL]


async def test_pieces_of_a_call_need_no_index():
    script = [Reply(calls=[("time", {"zone": "a"}, "c1"), ("time", {"zone": "b"}, "c2")])]
    frames = b"".join(RESPONSES.frames(script[0]))
    for field in (rb'"output_index": \d+', rb'"item_id": "\w*"'):
        frames = re.sub(rb"(, )?" + field, b"", frames)
    assert b"_index" not in frames
    deltas = []
    async with serving(stream_head() + chunk(frames) + chunk(b"")) as server:
        reply = await model(server, max_retries=0).ainvoke(HI, on_delta=deltas.append)
    assert [call.parsed for call in reply.tool_calls] == [{"zone": "a"}, {"zone": "b"}]
    assert "".join(delta.content for delta in deltas) == '{"zone": "a"}{"zone": "b"}'
