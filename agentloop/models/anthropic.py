"""Anthropic's Messages API, and every server that speaks it.

Copy with: messages.py, events.py, errors.py, transcript.py, models/http.py, models/clients.py.

Source: https://platform.claude.com/docs/en/api/messages
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

from ..errors import BadRequest, BadResponse
from ..messages import (
    AssistantMessage,
    Content,
    FilePart,
    ImagePart,
    Message,
    Part,
    Request,
    SystemMessage,
    TextPart,
    ToolCall,
    ToolMessage,
    Usage,
    UserMessage,
)
from .http import (
    Deltas,
    HTTPModel,
    as_json,
    count,
    given,
    loaded,
    obj,
    objects,
    stop_reason,
    text_in,
    wire_name,
)

if TYPE_CHECKING:
    from ..tools import Tool

ANTHROPIC_STOP_REASONS = {
    "end_turn": "end",
    "stop_sequence": "end",
    "tool_use": "tool_calls",
    "max_tokens": "length",
    "refusal": "refused",
    "pause_turn": "pause",
    "model_context_window_exceeded": "context_overflow",
}
NOTHING = "(empty)"  # what stands where the API wants some text and there is none


@dataclass(repr=False, eq=False, kw_only=True)
class ChatAnthropic(HTTPModel):
    """A model behind the Messages API. Settings that are None are not sent.

    `max_tokens` bounds the output with its thinking. `thinking` is a budget in tokens or, for
    models that do without one, the API's own object, such as {"type": "adaptive"}; a thinking
    model can't be forced to call a tool. `cache` marks the prompt for the provider's cache: tools,
    system prompt, and the conversation up to here. `betas` are features to switch on by header.
    Newer values of `version` know no `temperature`.
    """

    max_tokens: int = 16_000
    temperature: float | None = None
    thinking: int | Mapping[str, Any] | None = None
    parallel_tool_calls: bool | None = None
    cache: bool = True
    betas: Sequence[str] = ()
    version: str = "2023-06-01"

    key_variable: ClassVar[str] = "ANTHROPIC_API_KEY"
    url_variable: ClassVar[str] = "ANTHROPIC_BASE_URL"
    default_url: ClassVar[str] = "https://api.anthropic.com"

    def __post_init__(self) -> None:
        super().__post_init__()
        self.base_url = self.base_url.removesuffix("/v1")
        if isinstance(self.thinking, int) and self.thinking >= self.max_tokens:
            raise ValueError(f"thinking={self.thinking} needs a max_tokens above it")

    def headers(self) -> dict[str, str]:
        betas = ",".join(self.betas) or None
        headers = {"anthropic-version": self.version, "anthropic-beta": betas}
        return given(headers | {"x-api-key": self.api_key})

    def path(self, stream: bool) -> str:
        return "/v1/messages"

    def body(self, request: Request, stream: bool) -> dict[str, Any]:
        system = [m.content for m in request.messages if isinstance(m, SystemMessage)]
        body: dict[str, Any] = {
            "model": self.model,
            "max_tokens": self.max_tokens,
            "system": [block for text in system for block in _write_text(text)] or None,
            "messages": write_anthropic_messages(request.messages),
            "temperature": self.temperature,
            "thinking": self._thinking() or None,
            "stream": stream or None,
        }
        if request.tools:
            body["tools"] = [write_anthropic_tool(tool) for tool in request.tools]
            body["tool_choice"] = self._tool_choice(request.tool_choice)
        if self._thinking().get("type") == "enabled" and not _may_think(body["messages"]):
            del body["thinking"]
        if self.cache:
            mark_for_cache(body)
        return given(body)

    def _thinking(self) -> dict[str, Any]:
        if self.thinking and isinstance(self.thinking, int):
            return {"type": "enabled", "budget_tokens": self.thinking}
        return dict(self.thinking or {})

    def _tool_choice(self, choice: str) -> dict[str, Any] | None:
        thinks = self._thinking().get("type") in ("enabled", "adaptive")
        if thinks and choice not in ("auto", "none"):
            raise BadRequest(
                f"tool_choice={choice!r}: a model of Anthropic's can't be forced to call a tool "
                "while it thinks. Use tool_choice='auto', or a model without thinking="
            )
        kinds = {"auto": "auto", "required": "any", "none": "none"}
        out: dict[str, Any] = {"type": kinds.get(choice, "tool")}
        out |= {} if choice in kinds else {"name": choice}
        if self.parallel_tool_calls is not None and choice != "none":
            out["disable_parallel_tool_use"] = not self.parallel_tool_calls
        return None if out == {"type": "auto"} else out

    def read(self, data: dict[str, Any]) -> AssistantMessage:
        return read_anthropic_reply(data)

    def accumulator(self, deltas: Deltas) -> AnthropicChunks:
        return AnthropicChunks(deltas)


# ---- the request


def write_anthropic_messages(messages: Sequence[Message]) -> list[dict[str, Any]]:
    """Messages as the Messages API takes them. BadRequest: a part that it cannot carry.

    The results of one turn and what the user says after them are one message.
    """
    out: list[dict[str, Any]] = []
    for message in messages:
        if isinstance(message, AssistantMessage):
            blocks = _write_anthropic_assistant(message)
            if blocks and not out:
                _append_to_anthropic(out, "user", _write_text(NOTHING))
            _append_to_anthropic(out, "assistant", blocks)
        elif isinstance(message, ToolMessage):
            _append_to_anthropic(out, "user", [_write_result(message)])
        elif isinstance(message, UserMessage):
            blocks = _write_anthropic_content(message.content)
            if not out or out[-1]["role"] == "assistant":
                blocks = blocks or _write_text(NOTHING)
            _append_to_anthropic(out, "user", blocks)
    if out and out[-1]["role"] == "assistant" and "text" in (last := out[-1]["content"][-1]):
        out[-1]["content"][-1] = last | {"text": last["text"].rstrip()}
    return out


def _append_to_anthropic(
    out: list[dict[str, Any]], role: str, blocks: list[dict[str, Any]]
) -> None:
    if out and out[-1]["role"] == role:
        out[-1]["content"] += blocks
    elif blocks:
        out.append({"role": role, "content": blocks})


def _write_anthropic_assistant(message: AssistantMessage) -> list[dict[str, Any]]:
    """The message's blocks as the API sent them, with the calls as the message has them."""
    raw = obj(message.raw)
    blocks = objects(raw.get("content")) if raw.get("provider") == "anthropic" else []
    calls = [_write_anthropic_call(call) for call in message.tool_calls]
    places = [block for block in blocks if block.get("type") == "tool_use"]
    if _join(blocks, "text") != message.content or len(places) != len(calls):
        # made elsewhere, or changed since
        thoughts = [b for b in blocks if b.get("type") in ("thinking", "redacted_thinking")]
        return [*filter(_is_sendable, thoughts), *_write_text(message.content), *calls]
    rest = iter(calls)
    out = [block | next(rest) if block.get("type") == "tool_use" else block for block in blocks]
    return [*filter(_is_sendable, out)]


def _is_sendable(block: dict[str, Any]) -> bool:
    """The API refuses blank text, even its own, and thoughts that were cut off unsigned."""
    kind = block.get("type")
    needs = {"text": "text", "thinking": "signature"}
    return kind not in needs or bool(text_in(block.get(needs[kind])).strip())


def _write_anthropic_call(call: ToolCall) -> dict[str, Any]:
    name, arguments = wire_name(call.name), call.parsed or {}
    return {
        "type": "tool_use",
        "id": _write_anthropic_id(call.id),
        "name": name,
        "input": arguments,
    }


def _write_anthropic_id(call_id: str) -> str:
    """The id if Anthropic takes it: other providers' may be longer, or hold other characters."""
    good = re.fullmatch("[a-zA-Z0-9_-]{1,64}", call_id)
    return call_id if good else hashlib.sha256(call_id.encode()).hexdigest()[:40]


def _write_result(message: ToolMessage) -> dict[str, Any]:
    blocks = _write_anthropic_content(message.content)
    out: dict[str, Any] = {
        "type": "tool_result",
        "tool_use_id": _write_anthropic_id(message.tool_call_id),
    }
    if message.is_error and all(block["type"] == "text" for block in blocks):
        out["is_error"] = True  # refused with other blocks, and without any
        blocks = blocks or _write_text(NOTHING)
    return out | {"content": blocks} if blocks else out


def _write_anthropic_content(content: Content) -> list[dict[str, Any]]:
    parts: Sequence[Part] = [TextPart(content)] if isinstance(content, str) else content
    return [block for part in parts for block in _write_anthropic_part(part)]


def _write_anthropic_part(part: Part) -> list[dict[str, Any]]:
    if isinstance(part, TextPart):
        return _write_text(part.text)
    if isinstance(part, ImagePart):
        return [{"type": "image", "source": _source(part)}]
    if isinstance(part, FilePart):
        title = {"title": part.name} if part.name else {}
        return [{"type": "document", "source": _source(part), **title}]
    raise BadRequest(f"the Messages API cannot carry {part!r:.80}")


def _write_text(text: str) -> list[dict[str, Any]]:
    """One block, or none: blank text would be refused."""
    return [{"type": "text", "text": text}] if text.strip() else []


def _source(part: ImagePart | FilePart) -> dict[str, Any]:
    kind, data = part.media_type or "", part.data or b""
    if found := re.fullmatch("data:([^;,]+);base64,(.*)", part.url or "", re.DOTALL):
        return {"type": "base64", "media_type": found[1], "data": found[2]}
    if part.url:
        return {"type": "url", "url": part.url}
    if isinstance(part, FilePart) and kind.startswith("text/"):
        return {"type": "text", "media_type": "text/plain", "data": data.decode(errors="replace")}
    if isinstance(part, FilePart) and kind != "application/pdf":
        raise BadRequest(f"the Messages API takes PDF and text files, not {kind}")
    return {"type": "base64", "media_type": kind, "data": base64.b64encode(data).decode()}


def write_anthropic_tool(tool: Tool) -> dict[str, Any]:
    """A tool as the Messages API takes it."""
    return {"name": tool.name, "description": tool.description, "input_schema": tool.parameters}


def mark_for_cache(body: dict[str, Any]) -> None:
    """Ask to cache the request up to its tools, system prompt, last and last but one user message.

    The provider looks for an earlier mark at most 20 blocks back, which a turn with many calls
    exceeds: the last but one is where the request before this one ended, so it hits exactly.
    Source: https://platform.claude.com/docs/en/build-with-claude/prompt-caching
    """
    users = [m["content"] for m in body["messages"] if m["role"] == "user"]
    for blocks in (body.get("tools"), body["system"], *users[-2:]):
        if blocks:
            blocks[-1] = blocks[-1] | {"cache_control": {"type": "ephemeral"}}


def _may_think(messages: list[dict[str, Any]]) -> bool:
    """Whether the turn that goes on here began with thinking, or is a new one.

    Another provider's turn did not, and the API takes no budget until it is over.
    """
    first = ""
    for message in reversed(messages):
        kind = message["content"][0]["type"]
        if message["role"] == "user" and kind != "tool_result":
            break
        first = kind if message["role"] == "assistant" else first
    return first in ("", "thinking", "redacted_thinking")


# ---- the reply


def read_anthropic_reply(data: dict[str, Any]) -> AssistantMessage:
    """The message in a reply. BadResponse: there is none."""
    if not isinstance(data.get("content"), list):
        raise BadResponse("no content in the reply")
    content = objects(data["content"])
    calls = tuple(
        _read_anthropic_call(block) for block in content if block.get("type") == "tool_use"
    )
    thinking = [block for block in content if block.get("type") == "thinking"]
    stop = stop_reason(ANTHROPIC_STOP_REASONS, data.get("stop_reason"), calls)
    text = _join(content, "text")
    if stop == "refused" and not text.strip():
        text = text_in(obj(data.get("stop_details")).get("explanation"))
    message = AssistantMessage(
        content=text,
        tool_calls=calls,
        thinking=_join(thinking, "thinking") or None,
        usage=read_anthropic_usage(data.get("usage")),
        stop_reason=stop,
    )
    raw = {"provider": "anthropic", "content": [_opaque(block) for block in content]}
    whole = replace(message, raw=raw)
    # what the message says by itself is not kept twice
    return (
        message
        if _write_anthropic_assistant(message) == _write_anthropic_assistant(whole)
        else whole
    )


def _join(blocks: list[dict[str, Any]], name: str) -> str:
    return "".join(text_in(block.get(name)) for block in blocks if block.get("type") == name)


def _read_anthropic_call(block: dict[str, Any]) -> ToolCall:
    name, arguments = text_in(block.get("name")), as_json(block.get("input"))
    return ToolCall(text_in(block.get("id")), name, arguments)


def _opaque(block: dict[str, Any]) -> dict[str, Any]:
    """A block as it goes back. A call leaves only its place here: the message has the rest."""
    if block.get("type") == "tool_use":
        block = {key: block[key] for key in block if key not in ("id", "name", "input")}
    if block.get("type") in ("tool_use", "text"):
        block = given(block)
    if isinstance(block.get("input"), str):  # of a server's tool: it has to be an object
        block["input"] = {}
    return block


def read_anthropic_usage(usage: Any) -> Usage | None:
    """Tokens: what was read from the cache or written to it is part of the input."""
    if not (counts := obj(usage)):
        return None
    read = count(counts.get("cache_read_input_tokens"))
    written = count(counts.get("cache_creation_input_tokens"))
    return Usage(
        input_tokens=count(counts.get("input_tokens")) + read + written,
        output_tokens=count(counts.get("output_tokens")),
        cached_input_tokens=read,
        cache_write_tokens=written,
        reasoning_tokens=count(obj(counts.get("output_tokens_details")).get("thinking_tokens")),
    )


DELTAS = {  # what a delta adds to: the type of its block, and the field
    "text_delta": ("text", "text"),
    "thinking_delta": ("thinking", "thinking"),
    "signature_delta": ("thinking", "signature"),
    "input_json_delta": ("tool_use", "partial_json"),
}


class AnthropicChunks:
    """A streamed reply, put together from its events."""

    def __init__(self, deltas: Deltas) -> None:
        self.complete = False
        self._deltas = deltas
        self._message: dict[str, Any] = {}
        self._usage: dict[str, Any] = {}
        self._blocks: list[dict[str, Any]] = []
        self._open: dict[str, int] = {}  # the block that is being written, by index
        self._pieces: dict[tuple[int, str], list[str]] = {}  # of a block's field

    def add(self, event: dict[str, Any]) -> None:
        kind, index = event.get("type"), str(event.get("index"))
        if kind == "message_start":
            self._message = dict(obj(event.get("message")))
            self._add_usage(self._message.get("usage"))
        elif kind == "content_block_start":
            self._start(index, obj(event.get("content_block")))
        elif kind == "content_block_delta":
            self._add_delta(index, obj(event.get("delta")))
        elif kind == "message_delta":
            self._message |= obj(event.get("delta"))
            self._add_usage(event.get("usage"))
        self.complete = self.complete or kind == "message_stop"

    def _add_usage(self, usage: Any) -> None:
        """Counts are totals so far; those that an event leaves out stay as they were."""
        self._usage |= {key: value for key, value in obj(usage).items() if value is not None}

    def _start(self, index: str, block: dict[str, Any]) -> None:
        self._open[index] = len(self._blocks)
        self._blocks.append(dict(block))
        self._show(block, block.get("type"))

    def _show(self, piece: dict[str, Any], kind: Any) -> None:
        if kind in ("text", "thinking"):
            show = self._deltas.text if kind == "text" else self._deltas.thinking
            show(text_in(piece.get(kind)))

    def _add_delta(self, index: str, delta: dict[str, Any]) -> None:
        kind, field = DELTAS.get(text_in(delta.get("type")), ("text", ""))
        if index not in self._open:
            self._start(index, {"type": kind})
        at = self._open[index]
        if "citation" in delta:
            block = self._blocks[at]
            block["citations"] = [*(block.get("citations") or ()), delta["citation"]]
        if field:
            self._pieces.setdefault((at, field), []).append(text_in(delta.get(field)))
            self._show(delta, field)

    def reply(self) -> dict[str, Any]:
        for (at, name), pieces in self._pieces.items():
            block, text = self._blocks[at], "".join(pieces)
            if name != "partial_json":
                block[name] = text_in(block.get(name)) + text
            elif text.strip():  # it stays text if it is no object
                block["input"] = found if isinstance(found := loaded(text), dict) else text
        return self._message | {"content": self._blocks, "usage": self._usage}
