"""A strict double of Anthropic's Messages API, on a real socket.

Its interface is that of OpenAIDouble. It signs thinking, rejects thinking that the client has
changed, and keeps a prompt cache as documented: `cached` contains the number of cached blocks of
each request. A request may end with an assistant turn only if this server has paused that turn.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from .fault_server import answer
from .openai_double import (
    Failure,
    OpenAIDouble,
    Refused,
    Scripted,
    check_declared,
    check_name,
    check_system,
    check_turns,
    pieces,
)

# Models that bind thinking to its prefix. Only Haiku accepts forced tools and disabled thinking.
# Sources: https://platform.claude.com/docs/en/models/sonnet-5-5/migration-guide,
# https://platform.claude.com/docs/en/models/haiku-5-5/migration-guide
BINDING = {f"claude-{name}" for name in ("opus-5-5", "sonnet-5-5", "haiku-5-5", "fable-5-1")}
BINDING |= {f"claude-{name}" for name in ("fable-5-2", "mythos-5-1", "mythos-5-2")}
# https://platform.claude.com/docs/en/build-with-claude/mid-conversation-system-messages
SYSTEM_MESSAGES = {f"claude-{name}" for name in ("opus-4-8", "opus-5", "fable-5", "mythos-5")}
SYSTEM_MESSAGES |= BINDING
LOOKBACK = 20  # https://platform.claude.com/docs/en/build-with-claude/prompt-caching


def sign(text: str) -> str:
    """Return the signature of a thinking text."""
    return "Sig+/" + hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest() + "=="


def thought(text: str) -> dict[str, Any]:
    return {"type": "thinking", "thinking": text, "signature": sign(text)}


def redacted(text: str) -> dict[str, Any]:
    return {"type": "redacted_thinking", "data": f"{text}.{sign(text)}"}


class AnthropicDouble(OpenAIDouble):
    def __init__(self, replies: Iterable[Scripted] = (), **settings: Any) -> None:
        super().__init__(replies, **settings)
        self.cached: list[int] = []
        self.paused: list[Any] = []  # the blocks of the newest reply, if it was paused
        self._cache: set[str] = set()

    base_path, path = "", "/v1/messages"

    def _check_head(self, first: str, headers: dict[str, str]) -> None:
        if first != f"POST {self.path} HTTP/1.1":
            raise Refused("Not found", "404 not_found_error")
        if not headers.get("x-api-key") and not headers.get("authorization"):
            raise Refused("x-api-key header is required", "401 authentication_error")
        assert re.fullmatch(r"\d{4}-\d\d-\d\d", headers.get("anthropic-version", ""))

    def _check(self, body: dict[str, Any], headers: dict[str, str]) -> None:
        if headers["anthropic-version"] >= "2026-10-21":
            assert not body.keys() & {"temperature", "top_p", "top_k"}
        check(body, self.system, self.paused)
        betas = headers.get("anthropic-beta", "").split(",")
        edits = body.get("context_management", {"edits": []})["edits"]
        for edit in edits:
            check_edit(edit, betas)
        kinds = [block.get("type") for block in _in_order(body)]
        for kind in kinds:
            tag = f"Input tag '{kind}' found using 'type' does not match any of the expected tags"
            assert BETAS.get(kind) in (None, *betas), tag
        if not any(edit["type"] == "compact_20260112" for edit in edits):
            assert "compaction" not in kinds, "`compaction` blocks require a `compact_20260112`"
        if body["model"] in BINDING:
            check_binding(body)
        self.cached.append(self._read_cache(body))

    def _refuse(self, refused: Refused) -> bytes:
        status, _, kind = (refused.code or "400 invalid_request_error").partition(" ")
        return self._fail(Failure(int(status), refused.message, kind))

    def _fail(self, failure: Failure) -> bytes:
        error = {"type": failure.type, "message": failure.message}
        return answer({"type": "error", "error": error}, failure.status, failure.headers)

    def whole(self, reply: Any) -> dict[str, Any]:
        message = whole(reply, len(self.requests))
        if self.requests and self.requests[-1]["model"] in BINDING:
            message["content"] = seal(self.requests[-1], message["content"])
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
        """Return the number of cached blocks before each cache mark, and store the marks."""
        prefixes, marks, prefix = [""], [], ""
        for block in _in_order(body):
            marked = block.pop("cache_control", None)
            prefix = hashlib.sha256((prefix + json.dumps(block)).encode()).hexdigest()
            prefixes.append(prefix)
            if marked:
                marks.append(len(prefixes) - 1)
        looks = (range(mark, max(0, mark - LOOKBACK), -1) for mark in marks)
        hits = [at for look in looks for at in look if prefixes[at] in self._cache]
        self._cache.update(prefixes[mark] for mark in marks)
        return max(hits, default=0)


def _in_order(body: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the blocks of a request in cache order: tools, system prompt, messages."""
    blocks = [*body.get("tools", ()), *body.get("system", ())]
    for message in body["messages"]:
        blocks += [{"role": message["role"]} | block for block in message["content"]]
    return [dict(block) for block in blocks]


# ---- checks of requests

FIELDS = {"model", "max_tokens", "messages", "system", "tools", "tool_choice", "thinking"}
FIELDS |= {"temperature", "top_p", "top_k", "stream", "stop_sequences", "metadata"}
FIELDS |= {"service_tier", "output_config", "container", "cache_control", "context_management"}
TOOL_FIELDS = {"type", "name", "description", "input_schema", "cache_control", "strict"}
TOOL_FIELDS |= {"allowed_callers", "defer_loading", "eager_input_streaming", "input_examples"}
BLOCKS: dict[str, tuple[str, set[str], set[str]]] = {  # role, required fields, optional fields
    "text": ("both", {"text"}, {"citations", "cache_control"}),
    "image": ("user", {"source"}, {"cache_control"}),
    "document": ("user", {"source"}, {"title", "context", "citations", "cache_control"}),
    "tool_result": ("user", {"tool_use_id"}, {"content", "is_error", "cache_control"}),
    "tool_use": ("assistant", {"id", "name", "input"}, {"caller", "cache_control"}),
    "thinking": ("assistant", {"thinking", "signature"}, set()),
    "redacted_thinking": ("assistant", {"data"}, set()),
    "server_tool_use": ("assistant", {"id", "name", "input"}, {"caller", "cache_control"}),
    "web_search_tool_result": ("assistant", {"tool_use_id", "content"}, {"cache_control"}),
    "tool_search_tool_result": ("assistant", {"tool_use_id", "content"}, {"cache_control"}),
    "fallback": ("assistant", {"from", "to"}, {"trigger", "cache_control"}),
    "advisor_tool_result": ("assistant", {"tool_use_id", "content"}, {"cache_control"}),
    "mcp_tool_use": ("assistant", {"id", "name", "input", "server_name"}, {"cache_control"}),
    "mcp_tool_result": ("assistant", {"tool_use_id", "content"}, {"is_error", "cache_control"}),
    "compaction": ("assistant", set(), {"content", "encrypted_content", "cache_control"}),
}
BETAS = {  # the beta features of blocks
    "fallback": "server-side-fallback-2026-07-01",
    "advisor_tool_result": "advisor-tool-2026-03-01",
    "mcp_tool_use": "mcp-client-2025-11-20",
    "mcp_tool_result": "mcp-client-2025-11-20",
}
SOURCES = {
    "base64": {"type", "media_type", "data"},
    "url": {"type", "url"},
    "text": {"type", "media_type", "data"},
    "file": {"type", "file_id"},
}
EDITS = {  # edits of the conversation, and their beta features
    "compact_20260112": "compact-2026-01-12",
    "clear_tool_uses_20250919": "context-management-2025-06-27",
}
IMAGES = ("image/jpeg", "image/png", "image/gif", "image/webp")


def check(body: dict[str, Any], system: str | None = None, paused: Sequence[Any] = ()) -> None:
    """Raise Refused for an invalid request."""
    for name, value in body.items():
        assert name in FIELDS, f"{name}: Extra inputs are not permitted"
        assert value is not None, f"{name}: Input should not be null"
    for name, kind in (("model", str), ("max_tokens", int), ("messages", list)):
        assert isinstance(body.get(name), kind), f"{name}: Field required"
    assert body["messages"]
    _check_tools(body)
    _check_thinking(body)
    for block in body.get("system", ()):
        assert block.get("type") == "text"
        assert block["text"].strip(), "blank text"
    messages = _check_instructions(body)
    check_turns([_check_message(messages, n) for n in range(len(messages))])
    _check_ends(messages, paused)
    marks = [block["cache_control"] for block in _in_order(body) if "cache_control" in block]
    assert len(marks) <= 4
    assert all(
        mark in ({"type": "ephemeral"}, {"type": "ephemeral", "ttl": "1h"}) for mark in marks
    )
    if form := body.get("output_config", {}).get("format"):
        assert form.keys() == {"type", "schema"}
        assert form["type"] == "json_schema"
        json.loads(json.dumps(form["schema"]), object_hook=_check_output)
    texts = [block["text"] for block in body.get("system", ())]
    check_system(["".join(texts)] if texts else [], system)


def check_edit(edit: dict[str, Any], betas: Sequence[str]) -> None:
    """Check an edit of the conversation, and its beta feature.

    Source: https://platform.claude.com/docs/en/build-with-claude/compaction-threshold
    """
    assert EDITS[edit["type"]] in betas, f"{edit['type']}: beta header required"
    trigger = edit.get("trigger", {"type": "input_tokens", "value": 150_000})
    assert trigger.keys() == {"type", "value"}
    assert trigger["type"] == "input_tokens"
    least = 50_000 if edit["type"] == "compact_20260112" else 0
    assert trigger["value"] >= least, f"trigger.value: must be at least {least}"


def _extend(prefix: str, block: Mapping[str, Any]) -> str:
    plain = {name: value for name, value in block.items() if name != "cache_control"}
    return hashlib.sha256((prefix + json.dumps(plain)).encode()).hexdigest()


def _field(block: Mapping[str, Any]) -> str:
    """Return the name of the field of a thinking block that contains its seal."""
    return "signature" if block["type"] == "thinking" else "data"


def seal(body: dict[str, Any], content: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Bind each thinking block to everything before it: system prompt, tools, and messages.

    Source: https://platform.claude.com/docs/en/build-with-claude/preserved-thinking/prefix-checks
    """
    prefix, sealed = "", []
    for block in _in_order(body):
        prefix = _extend(prefix, block)
    for block in content:
        if "thinking" in block["type"]:
            name = _field(block)
            block = block | {name: f"{block[name]}|{prefix}"}
        prefix = _extend(prefix, {"role": "assistant"} | block)
        sealed.append(block)
    return sealed


def check_binding(body: dict[str, Any]) -> None:
    """Check the rules of models that bind thinking to its prefix."""
    kind = body.get("thinking", {"type": "adaptive"})["type"]
    is_haiku = "haiku" in body["model"]
    if kind not in ("adaptive", "disabled" if is_haiku else "between_tools"):
        raise Refused(
            f'"thinking.type.{kind}" is not supported for this model. Use "thinking.type.adaptive" '
            'and "output_config.effort" to control thinking behavior.'
        )
    forces = body.get("tool_choice", {"type": "auto"})["type"] not in ("auto", "none")
    assert is_haiku or not forces, "forced tool use"
    prefix = ""
    for block in _in_order(body):
        if "thinking" in block.get("type", "") and not block[_field(block)].endswith(f"|{prefix}"):
            raise Refused(
                f"Invalid `signature` in `{block['type']}` block. The block is bound to a "
                "different conversation. Remove the block, or set "
                '`thinking.block_binding.prefix_mismatch_behavior` to "drop_block".'
            )
        prefix = _extend(prefix, block)


def as_list(content: Any) -> list[Any]:
    return content if isinstance(content, list) else []


def _check_tools(body: dict[str, Any]) -> None:
    if "tools" not in body:
        assert "tool_choice" not in body
        return
    own = [tool for tool in body["tools"] if tool.get("type", "custom") == "custom"]
    assert all(tool.keys() <= TOOL_FIELDS for tool in own)
    for tool in own:
        # Source: https://github.com/router-for-me/CLIProxyAPI/issues/4561
        both = "cache_control" in tool and tool.get("defer_loading")
        assert not both, f"Tool {tool['name']!r} cannot have both defer_loading and cache_control"
    names = [tool.get("name") for tool in body["tools"]]
    assert len(set(names)) == len(names)
    deferred = {tool["name"] for tool in own if tool.get("defer_loading")}
    if len(deferred) == len(names):
        raise Refused(
            "At least one tool must have defer_loading=false. All tools cannot be deferred."
        )
    for message in body["messages"]:
        for block in message["content"]:
            for part in as_list(block.get("content")):
                if part.get("type") == "tool_reference" and part["tool_name"] not in deferred:
                    raise Refused(
                        f"Tool reference '{part['tool_name']}' not found in available tools"
                    )
    choice = body.get("tool_choice", {"type": "auto"})
    assert choice["type"] in ("auto", "any", "tool", "none")
    name = choice["name"] if choice["type"] == "tool" else None
    check_declared([(tool.get("name"), tool.get("input_schema")) for tool in own], name)


def _check_thinking(body: dict[str, Any]) -> None:
    thinking = body.get("thinking", {"type": "disabled"})
    if thinking["type"] == "enabled":
        assert thinking["budget_tokens"] >= 1024, "Input should be greater than or equal to 1024"
        assert thinking["budget_tokens"] < body["max_tokens"]
        _check_last_turn([each for each in body["messages"] if each["role"] != "system"])
        # some models accept adaptive thinking together with a forced tool
        assert body.get("tool_choice", {}).get("type") not in ("any", "tool")
    assert thinking["type"] == "disabled" or body.get("temperature", 1) == 1


def _check_last_turn(messages: list[dict[str, Any]]) -> None:
    first = "thinking"
    for message in reversed(messages):
        kind = message["content"][0]["type"]
        if message["role"] == "assistant":
            first = kind
        elif kind != "tool_result":
            break
    assert first in ("thinking", "redacted_thinking"), f"the turn begins with {first}"


def _check_instructions(body: dict[str, Any]) -> list[dict[str, Any]]:
    """Check the system messages in a conversation, and return the other messages."""
    messages: list[dict[str, Any]] = body["messages"]
    for number, message in enumerate(messages):
        if message.get("role") != "system":
            continue
        if body["model"] not in SYSTEM_MESSAGES:
            raise Refused("role 'system' is not supported on this model")
        assert number, "use the top-level 'system' parameter for the initial system prompt"
        after = messages[number + 1]["role"] if number + 1 < len(messages) else "assistant"
        # Source: https://github.com/earendil-works/pi/pull/9548
        said = "role 'system' must precede an 'assistant' message or end the array"
        assert after == "assistant", said
        assert messages[number - 1]["role"] == "user", "role 'system' must follow a 'user' message"
        for block in message["content"]:
            assert block["type"] == "text"
            assert block["text"].strip()
    return [message for message in messages if message.get("role") != "system"]


def _check_message(messages: list[Any], number: int) -> tuple[bool, list[Any], list[Any]]:
    """Check a turn: these results answer all previous calls, and these calls are new."""
    role, content = messages[number].get("role"), messages[number].get("content")
    assert role in ("user", "assistant")
    assert number or role == "user"
    assert not number or messages[number - 1]["role"] != role, "roles must alternate"
    assert isinstance(content, list)
    assert content
    for block in content:
        _check_block(block, role)
    kinds = [block["type"] for block in content]
    results = [block["tool_use_id"] for block in content if block["type"] == "tool_result"]
    assert set(kinds[: len(results)]) <= {"tool_result"}, "`tool_result` blocks have to come first"
    return True, results, [block["id"] for block in content if block["type"] == "tool_use"]


def _check_block(block: dict[str, Any], role: str) -> None:
    kind: Any = block.get("type")
    if kind == "zzz":
        return  # a block of an unknown type
    whose, needed, others = BLOCKS.get(kind, ("nobody", set(), set()))
    assert whose in ("both", role), f"`{kind}` blocks are not permitted in `{role}` messages"
    assert needed <= block.keys() <= needed | others | {"type"}, f"wrong fields in {kind}"
    if kind == "text":
        assert block["text"].strip(), "blank text"
    if kind in ("image", "document"):
        _check_source(block["source"], kind)
    if kind == "tool_use":
        assert re.fullmatch("[a-zA-Z0-9_-]+", block["id"])
        check_name(block["name"])
    if kind.endswith("tool_use"):
        assert isinstance(block["input"], dict)
    if kind == "thinking":
        signature = block["signature"].partition("|")[0]
        assert signature == sign(block["thinking"]), "Invalid `signature`"
    if kind == "redacted_thinking":
        data = block["data"].partition("|")[0]
        assert data == redacted(data.partition(".")[0])["data"]
    if kind == "tool_result":
        kinds = [part.get("type") for part in block.get("content", [])]
        assert set(kinds) <= {"text", "image", "document"} or set(kinds) == {"tool_reference"}
        for part in block.get("content", []):
            if part.get("type") != "tool_reference":
                _check_block(part, "user")
        assert not block.get("is_error") or set(kinds) == {"text"}


def _check_source(source: dict[str, Any], kind: str) -> None:
    form = source.get("type", "")
    assert source.keys() == SOURCES.get(form)
    assert form != "text" or kind == "document"
    types = {"text": ("text/plain",), "base64": IMAGES}.get(form, (None,))
    if kind == "document" and form == "base64":
        types = ("application/pdf",)
    assert source.get("media_type") in types
    assert kind == "document" or len(source.get("data", "")) <= 10 * 2**20, "image exceeds 10 MB"
    assert form != "url" or source["url"].startswith("https://"), "Only HTTPS URLs are supported."


def _check_ends(messages: list[dict[str, Any]], paused: Sequence[Any]) -> None:
    """Check the ends of assistant turns, and whether the request may end with one."""
    if messages[-1]["role"] == "assistant":
        assert paused, "it ends with the assistant"
        assert messages[-1]["content"][-len(paused) :] == paused
        messages = messages[:-1]
    answered = {block.get("tool_use_id") for message in messages for block in message["content"]}
    results = {block["type"] for block in messages[-1]["content"]} == {"tool_result"}
    for number, message in enumerate(messages):
        if message["role"] == "user":
            continue
        assert "thinking" not in message["content"][-1]["type"], "the turn ends with thinking"
        if results and number == len(messages) - 2:
            continue  # the other calls of the turn run now
        for block in message["content"]:
            assert block["type"] != "server_tool_use" or block["id"] in answered, "no result for it"


def _check_output(schema: dict[str, Any]) -> dict[str, Any]:
    for name in ("minimum", "pattern", "format", "oneOf", "discriminator"):
        assert "type" in str(schema.get(name, "type")), (
            f"{name} is not supported"
        )  # or it is a property
    assert schema.get("type") != "object" or schema.get("additionalProperties") is False
    return schema


# ---- replies

FINISH = {"length": "max_tokens", "content_filter": "refusal", "stop": "end_turn"}


def whole(reply: Any, number: int = 1) -> dict[str, Any]:
    content: list[dict[str, Any]] = []
    if reply.thinking is not None:
        content.append(thought(reply.thinking))
    if text := reply.text or reply.refusal:
        content.append({"type": "text", "text": text})
    for position, (name, arguments, *rest) in enumerate(reply.calls):
        call_id = rest[0] if rest else f"toolu_{number}_{position}"
        if isinstance(arguments, str):
            try:
                arguments = json.loads(arguments)
            except (ValueError, RecursionError):
                pass  # remains text, as after a broken stream
        content.append({"type": "tool_use", "id": call_id, "name": name, "input": arguments})
    content = content if reply.blocks is None else [*reply.blocks]
    finish = "tool_use" if reply.calls else "end_turn"
    finish = "refusal" if reply.refusal else FINISH.get(reply.finish, reply.finish) or finish
    words = {"prompt_tokens": "input_tokens", "completion_tokens": "output_tokens"}
    usage = {words[name]: n for name, n in (reply.usage or {}).items() if name in words}
    return {
        "id": f"msg_{number}",
        "type": "message",
        "role": "assistant",
        "model": "m",
        "content": content,
        "stop_reason": finish,
        "stop_sequence": None,
        "usage": usage,
        **reply.more,
    }


def events(message: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the stream events of a message."""
    usage = dict(message["usage"])
    start = {"content": [], "stop_reason": None, "stop_details": None, "container": None}
    iterations = {"iterations": usage.pop("iterations")} if "iterations" in usage else {}
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
    counts = {"output_tokens": usage["output_tokens"]} | iterations if usage else {}
    out.append({"type": "message_delta", "delta": end, "usage": counts})
    return [*out, {"type": "message_stop"}]


def _deltas(block: dict[str, Any]) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return the initial state of a block, and its deltas."""
    if block["type"] == "text":
        citations = [{"type": "citations_delta", "citation": c} for c in block.get("citations", ())]
        texts = [{"type": "text_delta", "text": piece} for piece in pieces(block["text"])]
        return {"type": "text", "text": ""}, citations + texts
    if block["type"] == "thinking":
        deltas = [{"type": "thinking_delta", "thinking": p} for p in pieces(block["thinking"])]
        deltas.append({"type": "signature_delta", "signature": block["signature"]})  # in one delta
        return {"type": "thinking", "thinking": "", "signature": ""}, deltas
    if block["type"] == "compaction":
        return {"type": "compaction", "content": None}, [block | {"type": "compaction_delta"}]
    if block["type"] in ("tool_use", "server_tool_use"):
        text = block["input"] if isinstance(block["input"], str) else json.dumps(block["input"])
        deltas = [{"type": "input_json_delta", "partial_json": p} for p in ["", *pieces(text)]]
        return block | {"input": {}}, deltas
    return block, []


def sse(*items: dict[str, Any]) -> bytes:
    """Encode events as server-sent events with names."""
    return "".join(f"event: {e['type']}\ndata: {json.dumps(e)}\n\n" for e in items).encode()
