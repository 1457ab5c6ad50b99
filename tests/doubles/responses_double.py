"""A strict stand-in for OpenAI's Responses, on a real socket: it keeps nothing between requests but
what it needs to know whether an item is its own.

It plays the same scripts as the double of Chat Completions.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

from tests.doubles.openai_double import (
    PROVIDER_TOOLS,
    OpenAIDouble,
    Refused,
    Reply,
    check_format,
    check_length,
    check_name,
    check_strict,
    pieces,
    scripted_calls,
)

KNOWN = {
    *("model", "input", "instructions", "store", "include", "stream", "stream_options"),
    *("temperature", "top_p", "max_output_tokens", "reasoning", "prompt_cache_key", "tools"),
    *("tool_choice", "parallel_tool_calls", "text", "truncation", "metadata", "service_tier"),
}
PARTS = {
    "user": {"input_text": "text", "input_image": "image_url", "input_file": ""},
    "assistant": {"output_text": "text", "refusal": "refusal"},
}
PARTS |= {"system": PARTS["user"], "developer": PARTS["user"], "output": PARTS["user"]}


class ResponsesDouble(OpenAIDouble):
    """It refuses what OpenAI refuses where nothing is stored."""

    def __init__(self, *replies: Any, **settings: Any) -> None:
        super().__init__(*replies, **settings)
        self.sent: dict[str, dict[str, Any]] = {}  # items by their ids
        self.behind: dict[str, str] = {}  # the reasoning item that an item followed

    path = "/v1/responses"

    def _check(self, body: dict[str, Any], headers: dict[str, str]) -> None:
        check_fields(body)
        _check_tools(body)
        if form := body.get("text", {}).get("format"):
            check_format(form)
        self.check_input(body["input"])
        roles = [(item.get("role"), item.get("content")) for item in body["input"]]
        found = [content for role, content in roles if role in ("system", "developer")]
        if self.system is not None and found != [self.system]:
            raise Refused(f"expected the system prompt {self.system!r}, got {found!r}", "input")

    def in_order(self, body: dict[str, Any]) -> list[Any]:
        return list(body["input"])

    def check_input(self, items: Sequence[dict[str, Any]]) -> None:
        open_calls: list[str] = []
        seen: set[str] = set()
        answering = False
        for number, item in enumerate(items):
            at, kind = f"input[{number}]", item.get("type", "message")
            is_users = kind == "message" and item.get("role") != "assistant"
            answers = kind == "function_call_output"
            if open_calls and (is_users or (answering and not answers)):
                raise _unanswered(open_calls[0])
            answering = answers
            self._check_own(item, at, items, number)
            for name in ({item.get("id")} - {None}) | ({item.get("call_id")} - {None, ""}):
                if name in seen and not answers:
                    raise Refused(f"Duplicate item found with id {name}. Remove duplicates", at)
                seen.add(name)
            if kind == "message":
                if item.get("role") not in PARTS:
                    raise Refused(f"Invalid value: '{item.get('role')}'.", f"{at}.role")
                _check_content(item.get("content"), f"{at}.content", item["role"])
            elif kind == "function_call":
                _check_call(item, at)
                open_calls.append(item["call_id"])
            elif answers:
                if item.get("call_id") not in open_calls:
                    raise Refused(
                        "No tool call found for function call output with call_id "
                        f"{item.get('call_id')}.",
                        "input",
                    )
                if item["call_id"] != open_calls.pop(0):
                    raise Refused("outputs must come in the order of the calls", at)
                _check_content(item.get("output"), f"{at}.output", "output")
            elif kind != "reasoning" and item.get("id") not in self.sent:
                raise Refused(f"Invalid value: '{kind}'. Supported values are: ...", f"{at}.type")
        if open_calls:
            raise _unanswered(open_calls[0])
        last = items[-1]
        if last.get("type") != "function_call_output" and last.get("role") != "user":
            raise Refused("The last item must be from the user or a tool", "input")

    def _check_own(
        self, item: dict[str, Any], at: str, items: Sequence[dict[str, Any]], number: int
    ) -> None:
        """An item with an id: it is as it was sent, and those that belong to it are there."""
        name, kind = item.get("id"), item.get("type")
        if kind == "reasoning":
            if "summary" not in item:
                raise Refused(f"Missing required parameter: '{at}.summary'.", f"{at}.summary")
            if not item.get("encrypted_content"):
                raise Refused(
                    f"Item with id '{name}' not found. Items are not persisted when `store` is "
                    "set to false. Try again with `store` set to true, or remove this item from "
                    "your input.",
                    "input",
                )
            if self.sent.get(str(name), {}).get("encrypted_content") != item["encrypted_content"]:
                raise Refused(
                    f"The encrypted content {item['encrypted_content'][:8]}... could not be "
                    "verified. Reason: Encrypted content could not be decrypted or parsed.",
                    "input",
                    "invalid_encrypted_content",
                )
            follower = items[number + 1] if number + 1 < len(items) else {}
            if self.behind.get(str(follower.get("id"))) != name:
                raise Refused(
                    f"Item '{name}' of type 'reasoning' was provided without its required "
                    "following item.",
                    "input",
                )
        elif name is not None:
            first = {"function_call": "fc", "message": "msg"}.get(str(kind), "")
            if not re.fullmatch("[a-zA-Z0-9_-]{1,64}", name) or not name.startswith(first):
                raise Refused(
                    f"Invalid '{at}.id': '{name}'. Expected an ID that begins with '{first}'.", at
                )
            needed = self.behind.get(name)
            if needed and not any(each.get("id") == needed for each in items[:number]):
                raise Refused(
                    f"Item '{name}' of type '{kind}' was provided without its required "
                    f"'reasoning' item: '{needed}'.",
                    "input",
                )

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
        usage = reply.usage and {
            "input_tokens": reply.usage["prompt_tokens"],
            "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
            "output_tokens": reply.usage["completion_tokens"],
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": reply.usage["total_tokens"],
        }
        return {
            "id": f"resp_{number:04}",
            "object": "response",
            "created_at": 0,
            "status": "in_progress" if begun else "incomplete" if reply.finish else "completed",
            "error": None,
            "incomplete_details": {"reason": reason} if reason and not begun else None,
            "instructions": None,
            "metadata": {},
            "model": "m",
            "output": [] if begun else self._items(reply, number),
            "parallel_tool_calls": True,
            "temperature": 1.0,
            "tool_choice": "auto",
            "tools": [],
            "top_p": 1.0,
            "usage": None if begun else usage,
        }

    def whole(self, reply: Any) -> dict[str, Any]:
        return self.response(reply, len(self.requests))

    def frames(self, reply: Any) -> list[bytes]:
        number = len(self.requests)
        whole, begun = self.response(reply, number), self.response(reply, number, True)
        events = [event("created", response=begun), event("in_progress", response=begun)]
        for index, item in enumerate(whole["output"]):
            at = {"output_index": index, "item_id": item["id"]}
            start = {"content": []} if item["type"] == "message" else {"arguments": ""}
            if item["type"] == "reasoning":
                start = {"summary": [], "encrypted_content": "gAAAAAB-begun"}
            else:
                start["status"] = "in_progress"
            events.append(event("output_item.added", output_index=index, item=item | start))
            events += [each | at for each in inner_events(item)]
            events.append(event("output_item.done", output_index=index, item=item))
        events.append(event(whole["status"], response=whole))
        events = [each | {"sequence_number": n} for n, each in enumerate(events)]
        return [f"event: {e['type']}\ndata: {json.dumps(e)}\n\n".encode() for e in events]


def event(kind: str, **fields: Any) -> dict[str, Any]:
    return {"type": f"response.{kind}", **fields}


def inner_events(item: dict[str, Any]) -> list[dict[str, Any]]:
    """The events between an item's first and last, without their places."""
    if item["type"] == "function_call":
        deltas = [
            event("function_call_arguments.delta", delta=piece)
            for piece in pieces(item["arguments"])
        ]
        return [*deltas, event("function_call_arguments.done", arguments=item["arguments"])]
    if item["type"] == "reasoning":
        kind, place, [part] = "reasoning_summary_text", {"summary_index": 0}, item["summary"]
        about, words = "reasoning_summary_part", part["text"]
    else:
        place, [part] = {"content_index": 0}, item["content"]
        kind = "refusal" if part["type"] == "refusal" else "output_text"
        about, words = "content_part", part.get("text") or part["refusal"]
    name = "refusal" if kind == "refusal" else "text"
    more: dict[str, Any] = {"logprobs": []} if kind == "output_text" else {}
    found = [event(f"{about}.added", part=part | {name: ""})]
    found += [event(f"{kind}.delta", delta=piece, **more) for piece in pieces(words)]
    found += [event(f"{kind}.done", **{name: words}, **more), event(f"{about}.done", part=part)]
    return [each | place for each in found]


# ---- what OpenAI refuses


def check_fields(body: dict[str, Any]) -> None:
    if "messages" in body:
        raise Refused(
            "Unsupported parameter: 'messages'. In the Responses API, this parameter has moved to "
            "'input'. Try again with the new parameter.",
            "messages",
            "unsupported_parameter",
        )
    for name in body:
        if name not in KNOWN:
            raise Refused(f"Unknown parameter: '{name}'.", name, "unknown_parameter")
        if body[name] is None and name in ("tools", "tool_choice", "reasoning"):
            raise Refused(f"Invalid type for '{name}': got null instead.", name, "invalid_type")
    if not body.get("model"):
        raise Refused("Missing required parameter: 'model'.", "model")
    if not isinstance(body.get("input"), list) or not body["input"]:
        raise Refused('One of "input" or "previous_response_id" must be provided.', "input")
    asks = "reasoning.encrypted_content" in body.get("include", ())
    if asks and re.match("gpt-4|gpt-5-chat", body["model"]):
        raise Refused("Encrypted content is not supported with this model.", "include")


def _check_tools(body: dict[str, Any]) -> None:
    names: list[str] = []
    for number, tool in enumerate(body.get("tools", ())):
        at = f"tools[{number}]"
        if tool.get("type") in PROVIDER_TOOLS and "strict" not in tool:
            continue
        if tool.get("type") != "function":
            raise Refused(f"Missing required parameter: '{at}.type'.", at)
        check_name(tool.get("name"), f"{at}.name")
        schema = tool.get("parameters")
        if not isinstance(schema, dict) or schema.get("type") != "object":
            text = "schema must be a JSON Schema of 'type: \"object\"'"
            raise Refused(f"Invalid schema for function '{tool['name']}': {text}", at)
        if tool.get("strict", True):
            check_strict(schema, tool["name"])
        names.append(tool["name"])
    if len(set(names)) < len(names):
        raise Refused("Tool names must be unique.", "tools")
    choice = body.get("tool_choice", "auto")
    if choice != "auto" and not names:
        raise Refused("Tool choice must be 'auto' when no tools are given.", "tool_choice")
    if isinstance(choice, dict) and choice.get("name") not in names:
        text = f"Tool choice 'function' '{choice.get('name')}' not found in 'tools' parameter."
        raise Refused(text, "tool_choice")
    if isinstance(choice, str) and choice not in ("auto", "none", "required"):
        raise Refused(f"Invalid value: '{choice}'.", "tool_choice")


def _check_content(content: Any, at: str, role: str) -> None:
    if isinstance(content, str):
        if role == "assistant" and not content:
            raise Refused(f"Invalid value for '{at}': expected a non-empty string.", at)
        return
    if not isinstance(content, list) or not content:
        raise Refused(f"Invalid type for '{at}': expected a string or an array.", at)
    for number, part in enumerate(content):
        kinds = PARTS[role]
        if part.get("type") not in kinds:
            text = f"Invalid value: '{part.get('type')}'. Supported values are: {', '.join(kinds)}"
            raise Refused(text, f"{at}[{number}]")
        if kinds[part["type"]] and kinds[part["type"]] not in part:
            raise Refused(f"Missing required parameter: '{at}[{number}].{part['type']}'.", at)
        if part["type"] == "input_file" and ("file_data" in part) == ("file_url" in part):
            raise Refused("Mutually exclusive parameters: 'file_data' and 'file_url'.", at)


def _check_call(item: dict[str, Any], at: str) -> None:
    call_id = item.get("call_id")
    if not isinstance(call_id, str) or not call_id:
        raise Refused(f"Invalid '{at}.call_id': empty string.", at, "empty_string")
    check_length(call_id, f"{at}.call_id", 64)
    check_name(item.get("name"), f"{at}.name")
    try:
        arguments = json.loads(item["arguments"])
    except (KeyError, ValueError, TypeError):
        arguments = None
    if not isinstance(arguments, dict):
        raise Refused(f"Invalid '{at}.arguments': expected a JSON object.", at)


def _unanswered(call_id: str) -> Refused:
    return Refused(f"No tool output found for function call {call_id}.", "input")
