"""A strict stand-in for Anthropic's Messages API, on a real socket.

    async with AnthropicDouble([calls(("add", {"a": 1, "b": 2})), "It is 3."]) as server:
        model = ChatAnthropic("m", base_url=server.base_url, api_key="k")
        ...
    assert server.requests[1]["messages"][-1]["role"] == "user"

It serves, scripts and records like OpenAIDouble, and takes that one's replies too. It signs what it
thinks, refuses thinking that does not come back as it went out, and keeps a prompt cache as the
documentation describes it: `cached` holds how many blocks each request found there. A request may
end on the assistant only with the turn that this server has paused.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.doubles import openai_double
from tests.doubles.openai_double import Failure, OpenAIDouble, Refused, Scripted, pieces

LOOKBACK = 20  # https://platform.claude.com/docs/en/build-with-claude/prompt-caching


@dataclass
class Reply(openai_double.Reply):
    """A reply; also with encrypted thinking, or with exactly these `blocks`."""

    redacted: str | None = None
    blocks: Sequence[dict[str, Any]] | None = None
    more: Mapping[str, Any] = field(default_factory=dict)  # other fields of the message


def sign(text: str) -> str:
    """The signature under some thinking."""
    return "Sig+/" + hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest() + "=="


def thought(text: str) -> dict[str, Any]:
    return {"type": "thinking", "thinking": text, "signature": sign(text)}


def redacted(text: str) -> dict[str, Any]:
    return {"type": "redacted_thinking", "data": f"{text}.{sign(text)}"}


class AnthropicDouble(OpenAIDouble):
    def __init__(self, replies: Iterable[Scripted] = (), **settings: Any) -> None:
        super().__init__(replies, **settings)
        self.cached: list[int] = []
        self.paused: list[Any] = []  # the blocks of the newest reply if that was paused
        self._cache: set[str] = set()

    base_path, path = "", "/v1/messages"
    id_header = "request-id"

    def _check_head(self, first: str, headers: dict[str, str]) -> None:
        if first != f"POST {self.path} HTTP/1.1":
            raise Refused("Not found", code="404 not_found_error")
        if not headers.get("x-api-key") and not headers.get("authorization"):
            raise Refused("x-api-key header is required", code="401 authentication_error")
        if not re.fullmatch(r"\d{4}-\d\d-\d\d", headers.get("anthropic-version", "")):
            raise Refused("anthropic-version: header is required")

    def _check(self, body: dict[str, Any], headers: dict[str, str]) -> None:
        for name in ("temperature", "top_p", "top_k"):
            if name in body and headers["anthropic-version"] >= "2026-10-21":
                raise Refused(f"{name}: Extra inputs are not permitted")
        check(body, self.system, self.paused)
        self.cached.append(self._read_cache(body))

    def _refuse(self, refused: Refused) -> bytes:
        status, _, kind = (refused.code or "400 invalid_request_error").partition(" ")
        return self._fail(Failure(int(status), refused.message, kind))

    def _fail(self, failure: Failure) -> bytes:
        error = {"type": failure.type, "message": failure.message}
        body = {"type": "error", "error": error, "request_id": "req_double"}
        return self._response(failure.status, body, failure.headers)

    def whole(self, reply: Any) -> dict[str, Any]:
        message = whole(reply, len(self.requests))
        is_paused = message["stop_reason"] in ("pause_turn", "compaction")
        self.paused = message["content"] if is_paused else []
        return message

    def frames(self, reply: Any) -> list[bytes]:
        return [sse(event) for event in events(self.whole(reply))]

    fixed = ("model", "tool_choice", "thinking")

    def in_order(self, body: dict[str, Any]) -> list[Any]:
        blocks = _in_order(body)
        for block in blocks:
            block.pop("cache_control", None)
        return blocks

    def _read_cache(self, body: dict[str, Any]) -> int:
        """How many blocks were found, looking back from each mark. Each mark is then an entry."""
        prefixes, marks, prefix = [""], [], ""
        for block in _in_order(body):
            marked = block.pop("cache_control", None)
            prefix = hashlib.sha256((prefix + json.dumps(block)).encode()).hexdigest()
            prefixes.append(prefix)
            if marked:
                marks.append(len(prefixes) - 1)
        looks = (range(mark, max(0, mark - LOOKBACK), -1) for mark in marks)
        found = [at for look in looks for at in look if prefixes[at] in self._cache]
        self._cache.update(prefixes[mark] for mark in marks)
        return max(found, default=0)


def _in_order(body: dict[str, Any]) -> list[dict[str, Any]]:
    """The blocks of a request as the cache sees them: tools, system prompt, messages."""
    blocks = [*body.get("tools", ()), *body.get("system", ())]
    for message in body["messages"]:
        blocks += [{"role": message["role"]} | block for block in message["content"]]
    return [dict(block) for block in blocks]


# ---- what the provider refuses

FIELDS = {"model", "max_tokens", "messages", "system", "tools", "tool_choice", "thinking"}
FIELDS |= {"temperature", "top_p", "top_k", "stream", "stop_sequences", "metadata"}
FIELDS |= {"service_tier", "output_config", "container", "cache_control"}
TOOL_FIELDS = {"type", "name", "description", "input_schema", "cache_control", "strict"}
TOOL_FIELDS |= {"allowed_callers", "defer_loading", "eager_input_streaming", "input_examples"}
BLOCKS: dict[str, tuple[str, set[str], set[str]]] = {  # whose, fields needed, other fields
    "text": ("both", {"text"}, {"citations", "cache_control"}),
    "image": ("user", {"source"}, {"cache_control"}),
    "document": ("user", {"source"}, {"title", "context", "citations", "cache_control"}),
    "tool_result": ("user", {"tool_use_id"}, {"content", "is_error", "cache_control"}),
    "tool_use": ("assistant", {"id", "name", "input"}, {"caller", "cache_control"}),
    "thinking": ("assistant", {"thinking", "signature"}, set()),
    "redacted_thinking": ("assistant", {"data"}, set()),
    "server_tool_use": ("assistant", {"id", "name", "input"}, {"caller", "cache_control"}),
    "web_search_tool_result": ("assistant", {"tool_use_id", "content"}, {"cache_control"}),
    "compaction": ("assistant", set(), {"content", "encrypted_content", "cache_control"}),
}
SOURCES = {
    "base64": {"type", "media_type", "data"},
    "url": {"type", "url"},
    "text": {"type", "media_type", "data"},
}
IMAGES = ("image/jpeg", "image/png", "image/gif", "image/webp")


def check(body: dict[str, Any], system: str | None = None, paused: Sequence[Any] = ()) -> None:
    """Refused: the provider would not take this request."""
    for name in body.keys() - FIELDS:
        raise Refused(f"{name}: Extra inputs are not permitted")
    for name, kind in (("model", str), ("max_tokens", int), ("messages", list)):
        if not isinstance(body.get(name), kind):
            raise Refused(f"{name}: Field required")
    if not body["messages"]:
        raise Refused("messages: at least one message is required")
    for name, value in body.items():
        if value is None:
            raise Refused(f"{name}: Input should not be null")
    _check_tools(body)
    _check_thinking(body)
    for block in body.get("system", ()):
        if block.get("type") != "text" or not block["text"].strip():
            raise Refused("system: text content blocks must contain non-whitespace text")
    seen: set[str] = set()
    open_ids: list[str] = []
    for number, message in enumerate(body["messages"]):
        open_ids = _check_message(body, number, message, open_ids, seen)
    if open_ids:
        raise _unanswered(len(body["messages"]) - 1, open_ids)
    _check_ends(body["messages"], paused)
    marks = [block["cache_control"] for block in _in_order(body) if "cache_control" in block]
    if len(marks) > 4:
        text = f"A maximum of 4 blocks with cache_control may be provided. Found {len(marks)}."
        raise Refused(text)
    for mark in marks:
        if mark not in ({"type": "ephemeral"}, {"type": "ephemeral", "ttl": "1h"}):
            raise Refused(f"cache_control: Input should be 'ephemeral', '5m' or '1h': {mark}")
    if form := body.get("output_config", {}).get("format"):
        if form.keys() != {"type", "schema"} or form["type"] != "json_schema":
            raise Refused("output_config.format: Input tag does not match")
        json.loads(json.dumps(form["schema"]), object_hook=_check_output)
    found = "".join(block["text"] for block in body.get("system", ()))
    if system is not None and found != system:
        raise Refused(f"expected the system prompt {system!r}, got {found!r}")


def _check_tools(body: dict[str, Any]) -> None:
    blocks = [block for message in body["messages"] for block in message["content"]]
    used = any(block.get("type") in ("tool_use", "tool_result") for block in blocks)
    if "tools" not in body:
        if "tool_choice" in body:
            raise Refused("tool_choice may only be specified while providing tools.")
        if used:
            raise Refused(
                "Requests which include `tool_use` or `tool_result` blocks must define tools."
            )
        return
    names = [tool.get("name") for tool in body["tools"]]
    for number, tool in enumerate(body["tools"]):
        if tool.get("type", "custom") != "custom":
            continue  # one of the provider's own
        at = f"tools.{number}.custom"
        for name in tool.keys() - TOOL_FIELDS:
            raise Refused(f"{at}.{name}: Extra inputs are not permitted")
        _check_pattern(tool.get("name"), f"{at}.name", "^[a-zA-Z0-9_-]{1,64}$")
        if not isinstance(tool.get("input_schema"), dict):
            raise Refused(f"{at}.input_schema: Field required")
        if tool["input_schema"].get("type") != "object":
            raise Refused(f"{at}.input_schema.type: Input should be 'object'")
    if len(set(names)) < len(names):
        raise Refused("tools: Tool names must be unique.")
    choice = body.get("tool_choice", {"type": "auto"})
    if choice["type"] not in ("auto", "any", "tool", "none"):
        raise Refused(f"tool_choice: Input tag '{choice['type']}' does not match the expected tags")
    if choice["type"] == "tool" and choice["name"] not in names:
        raise Refused(f"Tool '{choice['name']}' not found in provided tools")


def _check_thinking(body: dict[str, Any]) -> None:
    thinking = body.get("thinking", {"type": "disabled"})
    if thinking["type"] == "disabled":
        return
    if thinking["type"] == "enabled":
        if thinking["budget_tokens"] < 1024:
            raise Refused(
                "thinking.enabled.budget_tokens: Input should be greater than or equal to 1024"
            )
        if thinking["budget_tokens"] >= body["max_tokens"]:
            raise Refused("`max_tokens` must be greater than `thinking.budget_tokens`.")
        _check_last_turn(body["messages"])
        # adaptive thinking and a forced tool: some models take both
        if body.get("tool_choice", {}).get("type") in ("any", "tool"):
            raise Refused("Thinking may not be enabled when tool_choice forces tool use.")
    if body.get("temperature", 1) != 1:
        raise Refused("`temperature` may only be set to 1 when thinking is enabled.")


def _check_last_turn(messages: list[dict[str, Any]]) -> None:
    first = None
    for number in range(len(messages) - 1, -1, -1):
        kind = messages[number]["content"][0]["type"]
        if messages[number]["role"] == "assistant":
            first = (number, kind)
        elif kind != "tool_result":
            break
    if first and first[1] not in ("thinking", "redacted_thinking"):
        raise Refused(
            f"messages.{first[0]}.content.0.type: Expected `thinking` or `redacted_thinking`, but "
            f"found `{first[1]}`. When `thinking` is enabled, a final `assistant` message must "
            "start with a thinking block (preceeding the lastmost set of `tool_use` and "
            "`tool_result` blocks)."
        )


def _check_pattern(text: Any, at: str, pattern: str = "^[a-zA-Z0-9_-]+$") -> None:
    if not isinstance(text, str) or not re.fullmatch(pattern, text):
        raise Refused(f"{at}: String should match pattern '{pattern}'")


def _check_message(
    body: dict[str, Any],
    number: int,
    message: dict[str, Any],
    open_ids: list[str],
    seen: set[str],
) -> list[str]:
    """The ids of the calls that the next message has to answer."""
    at, role, content = f"messages.{number}", message.get("role"), message.get("content")
    if role not in ("user", "assistant"):
        raise Refused(f"{at}.role: Input should be 'user' or 'assistant'")
    if number == 0 and role != "user":
        raise Refused("messages: first message must use the user role")
    if number and body["messages"][number - 1]["role"] == role:
        raise Refused(
            'messages: roles must alternate between "user" and "assistant", but found '
            f'multiple "{role}" roles in a row'
        )
    if not isinstance(content, list) or not content:
        raise Refused(f"{at}: all messages must have non-empty content")
    asked: list[str] = []
    answered: list[str] = []
    for position, block in enumerate(content):
        where = f"{at}.content.{position}"
        _check_block(block, where, role)
        if block["type"] == "tool_use":
            _check_pattern(block["id"], f"{where}.tool_use.id")
            _check_pattern(block["name"], f"{where}.tool_use.name", "^[a-zA-Z0-9_-]{1,64}$")
            if block["id"] in seen:
                raise Refused(f"{where}: `tool_use` ids must be unique")
            seen.add(block["id"])
            asked.append(block["id"])
        elif block["type"] == "tool_result":
            if block["tool_use_id"] not in open_ids:
                raise Refused(
                    f"{where}: unexpected `tool_use_id` found in `tool_result` blocks: "
                    f"{block['tool_use_id']}. Each `tool_result` block must have a corresponding "
                    "`tool_use` block in the previous message."
                )
            if position != len(answered):
                raise _unanswered(number - 1, open_ids[len(answered) :])
            answered.append(block["tool_use_id"])
    if len(set(answered)) < len(answered):
        raise Refused(f"{at}: each tool_use must have a single result. Found multiple results")
    if answered != open_ids:
        raise _unanswered(number - 1, [call_id for call_id in open_ids if call_id not in answered])
    return asked


def _unanswered(number: int, ids: list[str]) -> Refused:
    return Refused(
        f"messages.{number}: `tool_use` ids were found without `tool_result` blocks immediately "
        f"after: {', '.join(ids)}. Each `tool_use` block must have a corresponding `tool_result` "
        "block in the next message."
    )


def _check_block(block: dict[str, Any], at: str, role: str) -> None:
    kind = block.get("type")
    if kind == "zzz":
        return  # a block type of the future
    if kind not in BLOCKS:
        raise Refused(f"{at}: Input tag '{kind}' found using 'type' does not match")
    whose, needed, others = BLOCKS[kind]
    if whose not in ("both", role):
        raise Refused(f"{at}: `{kind}` blocks are not permitted in `{role}` messages")
    for name in needed - block.keys():
        raise Refused(f"{at}.{kind}.{name}: Field required")
    for name in block.keys() - needed - others - {"type"}:
        raise Refused(f"{at}.{kind}.{name}: Extra inputs are not permitted")
    if kind == "text" and not block["text"].strip():
        raise Refused("messages: text content blocks must contain non-whitespace text")
    if kind in ("image", "document"):
        _check_source(block["source"], f"{at}.{kind}.source", kind)
    if kind in ("tool_use", "server_tool_use") and not isinstance(block["input"], dict):
        raise Refused(f"{at}.{kind}.input: Input should be a valid dictionary")
    if kind == "thinking" and block["signature"] != sign(block["thinking"]):
        raise Refused(f"{at}: Invalid `signature` in `thinking` block")
    if kind == "redacted_thinking" and block != redacted(block["data"].partition(".")[0]):
        raise Refused(f"{at}: Invalid `data` in `redacted_thinking` block")
    if kind == "tool_result":
        content = block.get("content", [])
        for position, part in enumerate(content):
            if part.get("type") not in ("text", "image", "document"):
                raise Refused(f"{at}.content.{position}: Input tag does not match")
            _check_block(part, f"{at}.content.{position}", "user")
        if block.get("is_error") and not content:
            raise Refused(f"{at}.tool_result: content cannot be empty if `is_error` is true")
        if block.get("is_error") and any(part["type"] != "text" for part in content):
            raise Refused(
                f'{at}.tool_result: all content must be type "text" if `is_error` is true'
            )


def _check_source(source: dict[str, Any], at: str, kind: str) -> None:
    fields = SOURCES.get(source.get("type", ""))
    if source.keys() != fields or (source["type"] == "text" and kind == "image"):
        raise Refused(f"{at}: Input tag does not match any of the expected tags")
    types = {"text": ("text/plain",), "base64": IMAGES, "url": (None,)}[source["type"]]
    if kind == "document" and source["type"] == "base64":
        types = ("application/pdf",)
    if source.get("media_type") not in types:
        raise Refused(f"{at}.media_type: Input should be {' or '.join(map(repr, types))}")
    if source["type"] == "url" and not source["url"].startswith("https://"):
        raise Refused(f"{at}.url: Only HTTPS URLs are supported.")


def _check_ends(messages: list[dict[str, Any]], paused: Sequence[Any]) -> None:
    """What the turns of the assistant end with, and whether the last one may stand there."""
    if messages[-1]["role"] == "assistant":
        if not paused or messages[-1]["content"][-len(paused) :] != paused:
            raise Refused(
                "This model does not support assistant message prefill. The conversation must end "
                "with a user message."
            )
        messages = messages[:-1]
    answered = {block.get("tool_use_id") for each in messages for block in each["content"]}
    for number, message in enumerate(messages):
        if message["role"] == "user":
            continue
        blocks = message["content"]
        if "thinking" in blocks[-1]["type"]:
            text = "The final block in an assistant message cannot be `thinking`."
            raise Refused(f"messages.{number}: {text}")
        results = {block["type"] for block in messages[-1]["content"]} == {"tool_result"}
        if results and number == len(messages) - 2:
            continue  # its other calls run now
        for block in blocks:
            if block["type"] == "server_tool_use" and block["id"] not in answered:
                raise Refused(
                    f"messages.{number}: `web_search` tool use with id `{block['id']}` was found "
                    "without a corresponding `web_search_tool_result` block"
                )


def _check_output(schema: dict[str, Any]) -> dict[str, Any]:
    refused = [
        name
        for name in ("minimum", "pattern", "format", "oneOf", "discriminator")
        if name in schema and "type" not in str(schema[name])  # else it is a property
    ]
    if schema.get("type") == "object" and schema.get("additionalProperties") is not False:
        refused.append("additionalProperties")
    if refused:
        raise Refused(f"output_config.format.schema: property {refused} is not supported")
    return schema


# ---- replies

FINISH = {"length": "max_tokens", "content_filter": "refusal", "stop": "end_turn"}


def whole(reply: Any, number: int = 1) -> dict[str, Any]:
    content: list[dict[str, Any]] = []
    if reply.thinking is not None:
        content.append(thought(reply.thinking))
    if getattr(reply, "redacted", None):
        content.append(redacted(reply.redacted))
    if text := reply.text or reply.refusal:
        content.append({"type": "text", "text": text})
    for position, (name, arguments, *rest) in enumerate(reply.calls):
        call_id = rest[0] if rest else f"toolu_{number}_{position}"
        if isinstance(arguments, str):
            try:
                arguments = json.loads(arguments)
            except (ValueError, RecursionError):
                pass  # stays text, as a broken stream would have it
        content.append({"type": "tool_use", "id": call_id, "name": name, "input": arguments})
    if getattr(reply, "blocks", None) is not None:
        content = list(reply.blocks)
    finish = "tool_use" if reply.calls else "end_turn"
    finish = "refusal" if reply.refusal else FINISH.get(reply.finish, reply.finish) or finish
    usage = dict(reply.usage or {})
    if "prompt_tokens" in usage:
        usage = {
            "input_tokens": usage["prompt_tokens"],
            "output_tokens": usage["completion_tokens"],
        }
    return {
        "id": f"msg_{number}",
        "type": "message",
        "role": "assistant",
        "model": "m",
        "content": content,
        "stop_reason": finish,
        "stop_sequence": None,
        "usage": usage,
        **getattr(reply, "more", {}),
    }


def events(message: dict[str, Any]) -> list[dict[str, Any]]:
    """A message as it is streamed."""
    usage = dict(message["usage"])
    start = {"content": [], "stop_reason": None, "stop_details": None, "container": None}
    start["usage"] = usage | {"output_tokens": 1} if usage else {}
    out: list[dict[str, Any]] = [{"type": "message_start", "message": message | start}]
    out.append({"type": "ping"})
    for index, block in enumerate(message["content"]):
        empty, deltas = _deltas(block)
        out.append({"type": "content_block_start", "index": index, "content_block": empty})
        out += [{"type": "content_block_delta", "index": index, "delta": d} for d in deltas]
        out.append({"type": "content_block_stop", "index": index})
    names = ("stop_reason", "stop_sequence", "stop_details", "container")
    end = {name: message.get(name) for name in names}
    counts = {"output_tokens": usage["output_tokens"]} if usage else {}
    out.append({"type": "message_delta", "delta": end, "usage": counts})
    return [*out, {"type": "message_stop"}]


def _deltas(block: dict[str, Any]) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """A block as it starts, and what is then added to it."""
    if block["type"] == "text":
        citations = [{"type": "citations_delta", "citation": c} for c in block.get("citations", ())]
        texts = [{"type": "text_delta", "text": piece} for piece in pieces(block["text"])]
        return {"type": "text", "text": ""}, citations + texts
    if block["type"] == "thinking":
        deltas = [{"type": "thinking_delta", "thinking": p} for p in pieces(block["thinking"])]
        deltas.append({"type": "signature_delta", "signature": block["signature"]})  # in one
        return {"type": "thinking", "thinking": "", "signature": ""}, deltas
    if block["type"] == "compaction":
        return {"type": "compaction", "content": None}, [block | {"type": "compaction_delta"}]
    if block["type"] in ("tool_use", "server_tool_use"):
        text = block["input"] if isinstance(block["input"], str) else json.dumps(block["input"])
        deltas = [{"type": "input_json_delta", "partial_json": p} for p in ["", *pieces(text)]]
        return block | {"input": {}}, deltas
    return block, []


def sse(*items: dict[str, Any]) -> bytes:
    """Events as the Messages API streams them, each with its name."""
    return "".join(f"event: {e['type']}\ndata: {json.dumps(e)}\n\n" for e in items).encode()
