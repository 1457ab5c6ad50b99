"""A strict double of OpenAI's Responses, on a real socket.

It stores only the data that identifies its own items, and accepts the scripts of OpenAIDouble.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

from .openai_double import (
    PROVIDER_TOOLS,
    OpenAIDouble,
    Reply,
    check_call,
    check_format,
    check_functions,
    check_system,
    check_turns,
    check_url,
    pieces,
    scripted_calls,
)

KNOWN = {
    "model",
    "input",
    "instructions",
    "store",
    "include",
    "stream",
    "stream_options",
    "temperature",
    "top_p",
    "max_output_tokens",
    "reasoning",
    "prompt_cache_key",
    "tools",
    "tool_choice",
    "parallel_tool_calls",
    "text",
    "truncation",
    "metadata",
    "service_tier",
    "context_management",
}
PARTS = {
    "user": {"input_text": "text", "input_image": "image_url", "input_file": ""},
    "assistant": {"output_text": "text", "refusal": "refusal"},
}
PARTS |= {"system": PARTS["user"], "developer": PARTS["user"], "output": PARTS["user"]}


class ResponsesDouble(OpenAIDouble):
    """A server of Responses that rejects requests like OpenAI with `store: false`."""

    def __init__(self, *replies: Any, **settings: Any) -> None:
        super().__init__(*replies, **settings)
        self.sent: dict[str, dict[str, Any]] = {}  # items by their ids
        self.behind: dict[str, str] = {}  # the reasoning item before an item

    path = "/v1/responses"

    def _check(self, body: dict[str, Any], headers: dict[str, str]) -> None:
        check_fields(body)
        _check_tools(body)
        if form := body.get("text", {}).get("format"):
            check_format(form)
        self.check_input(body["input"])
        said = [item for item in body["input"] if item.get("type") != "additional_tools"]
        roles = [(item.get("role"), item.get("content")) for item in said]
        check_system([text for role, text in roles if role in ("system", "developer")], self.system)

    def in_order(self, body: dict[str, Any]) -> list[Any]:
        return list(body["input"])

    def check_input(self, items: Sequence[dict[str, Any]]) -> None:
        seen: set[str] = set()
        turns: list[tuple[bool, list[Any], list[Any]]] = []
        answers = False
        for number, item in enumerate(items):
            kind, role, name = item.get("type", "message"), item.get("role"), item.get("id")
            answered, answers = answers, kind == "function_call_output"
            self._check_own(items, number)
            assert name is None or name not in seen
            seen.add(name)
            call_id = [item.get("call_id")]
            # reasoning and text may be between the calls of a reply, but not between results
            closes = (kind == "message" and role != "assistant") or (answered and not answers)
            turns.append((closes, call_id * answers, call_id * (kind == "function_call")))
            if kind == "additional_tools":
                assert item.keys() == {"type", "role", "tools"}
                assert role == "developer"
                assert item["tools"]
                check_functions({}, item["tools"], "", strict=True)
            elif kind == "message":
                assert role in PARTS
                _check_content(item.get("content"), item["role"])
            elif kind == "function_call":
                check_call(item.get("call_id"), item, 64)
            elif answers:
                _check_content(item.get("output"), "output")
            else:
                assert kind == "reasoning" or item.get("id") in self.sent
        check_turns(turns)
        ends = items[-1].get("role") in ("user", "system", "developer") or answers
        assert ends, "it ends with the assistant"

    def _check_own(self, items: Sequence[dict[str, Any]], number: int) -> None:
        """Check an item with an id: it is unchanged, and its companion items are present."""
        item = items[number]
        name, kind, opaque = item.get("id"), item.get("type"), item.get("encrypted_content")
        if kind == "reasoning":
            assert "summary" in item, "no summary"
            assert opaque, f"Item with id '{name}' not found: nothing is stored"
            sent = self.sent.get(str(name), {})
            assert sent.get("encrypted_content") == opaque, "could not be verified"
            follower = items[number + 1] if number + 1 < len(items) else {}
            assert self.behind.get(str(follower.get("id"))) == name, "no following item"
        elif name is not None:
            assert re.fullmatch("[a-zA-Z0-9_-]{1,64}", name)
            assert name.startswith({"function_call": "fc", "message": "msg"}.get(str(kind), ""))
            needed = self.behind.get(name)
            there = [item.get("id") for item in items[:number]]
            assert needed is None or needed in there, f"no 'reasoning' item {needed!r}"

    # ---- replies

    def _items(self, reply: Reply, number: int) -> list[dict[str, Any]]:
        items: list[dict[str, Any]] = []
        status = "incomplete" if reply.finish else "completed"
        if reply.thinking is not None:
            summary = [{"type": "summary_text", "text": reply.thinking}]
            item = {"id": f"rs_{number:04}", "type": "reasoning", "summary": summary}
            items.append(item | {"encrypted_content": f"gAAAAAB-opaque-{number:04}=="})
        part: dict[str, Any] | None = None
        if reply.text:
            part = {"type": "output_text", "text": reply.text, "annotations": [], "logprobs": []}
        elif reply.refusal:
            part = {"type": "refusal", "refusal": reply.refusal}
        if part:
            message = {"id": f"msg_{number:04}", "type": "message", "role": "assistant"}
            items.append(message | {"status": status, "content": [part]})
        for position, call in enumerate(scripted_calls(reply, number)):
            item = {"id": f"fc_{number:04}_{position}", "type": "function_call", "status": status}
            items.append(item | {"call_id": call["id"]} | call["function"])
        for before, item in zip([{}, *items], items, strict=False):
            self.sent[item["id"]] = item
            if before.get("type") == "reasoning":
                self.behind[item["id"]] = before["id"]
        return items

    def response(self, reply: Reply, number: int, begun: bool = False) -> dict[str, Any]:
        words = {"length": "max_output_tokens"}
        reason = words.get(reply.finish or "", reply.finish)
        settings = {"parallel_tool_calls": True, "temperature": 1.0, "top_p": 1.0, "metadata": {}}
        settings |= {"instructions": None, "tool_choice": "auto", "tools": [], "model": "m"}
        common = {"id": f"resp_{number:04}", "object": "response", "created_at": 0, "error": None}
        common |= settings
        if begun:
            common |= {"status": "in_progress", "incomplete_details": None}
            return common | {"output": [], "usage": None}
        usage = reply.usage and {
            "input_tokens": reply.usage["prompt_tokens"],
            "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
            "output_tokens": reply.usage["completion_tokens"],
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": reply.usage["total_tokens"],
        }
        details = {"reason": reason} if reason else None
        common |= {"status": "incomplete" if reason else "completed", "incomplete_details": details}
        return common | {"output": self._items(reply, number), "usage": usage}

    def whole(self, reply: Any) -> dict[str, Any]:
        return self.response(reply, len(self.requests))

    def frames(self, reply: Any) -> list[bytes]:
        number = len(self.requests)
        whole, begun = self.response(reply, number), self.response(reply, number, True)
        events = [event("created", response=begun), event("in_progress", response=begun)]
        for index, item in enumerate(whole["output"]):
            at = {"output_index": index, "item_id": item["id"]}
            start: dict[str, Any] = {
                "message": {"content": [], "status": "in_progress"},
                "function_call": {"arguments": "", "status": "in_progress"},
                "reasoning": {"summary": [], "encrypted_content": "gAAAAAB-begun"},
            }[item["type"]]
            events.append(event("output_item.added", output_index=index, item=item | start))
            events += [inner | at for inner in inner_events(item)]
            events.append(event("output_item.done", output_index=index, item=item))
        events.append(event(whole["status"], response=whole))
        events = [data | {"sequence_number": n} for n, data in enumerate(events)]
        return [f"event: {e['type']}\ndata: {json.dumps(e)}\n\n".encode() for e in events]


def event(kind: str, **fields: Any) -> dict[str, Any]:
    return {"type": f"response.{kind}", **fields}


def inner_events(item: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the events between the first and the last event of an item, without positions."""
    if item["type"] == "function_call":
        kind, text = "function_call_arguments", item["arguments"]
        deltas = [event(f"{kind}.delta", delta=piece) for piece in pieces(text)]
        return [*deltas, event(f"{kind}.done", arguments=text)]
    if item["type"] == "reasoning":
        kind, place, [part] = "reasoning_summary_text", {"summary_index": 0}, item["summary"]
        about, words = "reasoning_summary_part", part["text"]
    else:
        place, [part] = {"content_index": 0}, item["content"]
        kind = "refusal" if part["type"] == "refusal" else "output_text"
        about, words = "content_part", part.get("text") or part["refusal"]
    name = "refusal" if kind == "refusal" else "text"
    more: dict[str, Any] = {"logprobs": []} if kind == "output_text" else {}
    events = [event(f"{about}.added", part=part | {name: ""})]
    events += [event(f"{kind}.delta", delta=piece, **more) for piece in pieces(words)]
    events += [event(f"{kind}.done", **{name: words}, **more), event(f"{about}.done", part=part)]
    return [data | place for data in events]


# ---- checks of requests


def check_fields(body: dict[str, Any]) -> None:
    for name, value in body.items():
        assert name in KNOWN, f"Unknown parameter: '{name}'."
        assert value is not None or name not in ("tools", "tool_choice", "reasoning")
    assert body.get("model")
    assert isinstance(body.get("input"), list)
    assert body["input"]
    asks = "reasoning.encrypted_content" in body.get("include", ())
    assert not asks or not re.match("gpt-4|gpt-5-chat", body["model"])
    for edit in body.get("context_management", ()):
        assert edit.keys() == {"type", "compact_threshold"}
        assert edit["type"] == "compaction"
        assert isinstance(edit["compact_threshold"], int)


def _check_tools(body: dict[str, Any]) -> None:
    tools = body.get("tools", ())
    own = [tool for tool in tools if tool.get("type") not in PROVIDER_TOOLS or "strict" in tool]
    assert all(tool.get("type") == "function" for tool in own)
    assert own or body.get("tool_choice", "auto") == "auto"
    check_functions(body, own, "", strict=True)


def _check_content(content: Any, role: str) -> None:
    if isinstance(content, str):
        assert content or role != "assistant"
        return
    assert isinstance(content, list)
    assert content
    for part in content:
        kind, kinds = part.get("type"), PARTS[role]
        assert kind in kinds
        assert not kinds[kind] or kinds[kind] in part
        if kind == "input_image":
            check_url(part["image_url"])
        if kind == "input_file":
            # the types that https://developers.openai.com/api/docs/guides/file-inputs lists
            listed = r"(data:(text/|application/(pdf|json|rtf|msword|vnd\.)).*)?"
            assert re.fullmatch(listed, part.get("file_data", "")), "file type not supported"
            assert len(part.keys() & {"file_data", "file_url", "file_id"}) == 1
            assert "file_data" in part or "filename" not in part
