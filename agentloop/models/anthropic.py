"""Anthropic's Messages API, and every server that speaks it.

Copy with: models/http.py and what it names.

Source: https://platform.claude.com/docs/en/api/messages
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from ..errors import BadRequest
from ..messages import (
    AssistantMessage,
    Content,
    FilePart,
    ImagePart,
    Message,
    Part,
    SystemMessage,
    TextPart,
    ToolCall,
    ToolChoice,
    ToolMessage,
    Usage,
)
from .http import (
    JSON,
    Deltas,
    HTTPModel,
    as_json,
    count,
    given,
    loaded,
    obj,
    stop_reason,
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
PIECES = {"text", "thinking", "signature", "partial_json", "content"}  # texts in deltas
NOTHING = "(empty)"  # stands where the API wants some text and there is none


@dataclass(repr=False, eq=False, kw_only=True)
class ChatAnthropic(HTTPModel):
    """A model behind the Messages API. Settings that are None are not sent.

    `max_tokens` bounds the output with its thinking. `thinking` is a budget in tokens or, for
    models that do without one, the API's own object, such as {"type": "adaptive"}; the API does
    not force a thinking model to call a tool. `cache` marks the prompt for the provider's cache:
    tools, system prompt, and the conversation up to here. `betas` are features to switch on by
    header. Newer values of `version` know no `temperature`.
    """

    max_tokens: int = 16_000
    temperature: float | None = None
    thinking: int | Mapping[str, Any] | None = None
    parallel_tool_calls: bool | None = None
    cache: bool = True
    betas: Sequence[str] = ()
    version: str = "2023-06-01"

    key_variable = "ANTHROPIC_API_KEY"
    url_variable = "ANTHROPIC_BASE_URL"
    default_url = "https://api.anthropic.com"

    def headers(self) -> dict[str, str]:
        return given(
            {
                "x-api-key": self.api_key or None,
                "anthropic-version": self.version,
                "anthropic-beta": ",".join(self.betas) or None,
            }
        )

    def path(self, stream: bool) -> str:
        return "/messages" if str(self.base_url).endswith("/v1") else "/v1/messages"

    def body(
        self,
        messages: Sequence[Message],
        tools: Sequence[Tool],
        tool_choice: ToolChoice,
        stream: bool,
    ) -> JSON:
        system = "\n\n".join(m.content for m in messages if isinstance(m, SystemMessage))
        written = write_anthropic_messages(messages)
        thinking: Any = self.thinking or None
        if isinstance(thinking, int):
            thinking = {"type": "enabled", "budget_tokens": thinking}
        if thinking and thinking["type"] == "enabled" and not _may_think(written):
            thinking = None  # another provider began this turn
        body: JSON = {
            "model": self.model,
            "max_tokens": self.max_tokens,
            "system": _write_content(system) or None,
            "messages": written,
            "temperature": self.temperature,
            "thinking": thinking,
            "stream": stream or None,
        }
        if tools:
            body["tools"] = [
                {"name": t.name, "description": t.description, "input_schema": t.parameters}
                for t in tools
            ]
            body["tool_choice"] = self._tool_choice(tool_choice)
        if self.cache:
            mark_for_cache(body)
        return given(body)

    def _tool_choice(self, choice: ToolChoice) -> JSON | None:
        kinds = {"auto": "auto", "required": "any", "none": "none"}
        out: JSON = {"type": kinds[choice]} if choice in kinds else {"type": "tool", "name": choice}
        if self.parallel_tool_calls is None or choice == "none":
            return None if choice == "auto" else out
        return out | {"disable_parallel_tool_use": not self.parallel_tool_calls}

    def read(self, data: JSON) -> AssistantMessage:
        return read_anthropic_reply(data)

    def accumulator(self, deltas: Deltas) -> AnthropicChunks:
        return AnthropicChunks(deltas)


# ---- the request


def write_anthropic_messages(messages: Sequence[Message]) -> list[JSON]:
    """Messages as the Messages API takes them. BadRequest: a part that it cannot carry.

    Roles alternate, and the user begins: the results of one turn and what the user says after them
    are one message.
    """
    out: list[JSON] = [{"role": "user", "content": []}]
    for message in messages:
        role = "user"
        if isinstance(message, AssistantMessage):
            role, blocks = "assistant", _write_assistant(message)
        elif isinstance(message, ToolMessage):
            blocks = [_write_result(message)]
        else:
            blocks = [] if isinstance(message, SystemMessage) else _write_content(message.content)
        if out[-1]["role"] == role:
            out[-1]["content"] += blocks
        elif blocks or role == "user":
            out.append({"role": role, "content": blocks})
    for written in out:
        written["content"] = written["content"] or _write_content(NOTHING)
    return out


def _write_assistant(message: AssistantMessage) -> list[JSON]:
    """The blocks that the API sent, or those of the text and the calls if one has changed them."""
    calls: list[JSON] = [
        {
            "type": "tool_use",
            "id": _write_id(call.id),
            "name": wire_name(call.name),
            "input": call.parsed or {},
        }
        for call in message.tool_calls
    ]
    raw, out = obj(message.raw), [*_write_content(message.content), *calls]
    if raw.get("provider") != "anthropic":
        return out
    blocks = raw["content"]
    places = [block["type"] for block in blocks].count("tool_use")
    if _join(blocks, "text") == message.content and places == len(calls):
        rest = iter(calls)
        out = [block | next(rest) if block["type"] == "tool_use" else block for block in blocks]
    return [*filter(_is_sendable, out)]


def _is_sendable(block: JSON) -> bool:
    """False for blank text, even the API's own, and for thoughts cut off before their signature."""
    needed = {"text": "text", "thinking": "signature"}.get(block["type"])
    return not needed or bool((block.get(needed) or "").strip())


def _write_id(call_id: str) -> str:
    """The id if Anthropic takes it: other providers' may be longer, or hold other characters."""
    if re.fullmatch("[a-zA-Z0-9_-]{1,64}", call_id):
        return call_id
    return hashlib.sha256(call_id.encode()).hexdigest()[:40]


def _write_result(message: ToolMessage) -> JSON:
    blocks = _write_content(message.content) or _write_content(NOTHING)
    # the API refuses an error with an image in it
    failed = message.is_error and all(block["type"] == "text" for block in blocks)
    call_id = _write_id(message.tool_call_id)
    return given(
        {
            "type": "tool_result",
            "tool_use_id": call_id,
            "content": blocks,
            "is_error": failed or None,
        }
    )


def _write_content(content: Content) -> list[JSON]:
    """Blocks with the content; none for blank text, which the API refuses."""
    if isinstance(content, str):
        return [{"type": "text", "text": content}] if content.strip() else []
    return [block for part in content for block in _write_part(part)]


def _write_part(part: Part) -> list[JSON]:
    if isinstance(part, TextPart):
        return _write_content(part.text)
    if not isinstance(part, ImagePart | FilePart):
        raise BadRequest(f"the Messages API cannot carry {part!r:.80}")
    kind, data = part.media_type or "", part.data or b""
    source = {"type": "base64", "media_type": kind, "data": base64.b64encode(data).decode()}
    if found := re.fullmatch("data:([^;,]+);base64,(.*)", part.url or ""):
        source |= {"media_type": found[1], "data": found[2]}
    elif part.url:
        source = {"type": "url", "url": part.url}
    elif kind.startswith("text/"):
        source = {"type": "text", "media_type": "text/plain", "data": data.decode(errors="replace")}
    return [
        given(
            {
                "type": "image" if isinstance(part, ImagePart) else "document",
                "source": source,
                "title": getattr(part, "name", None),
            }
        )
    ]


def mark_for_cache(body: JSON) -> None:
    """Ask to cache the request up to its tools, system prompt, last and last but one user message.

    The provider looks for an earlier mark at most 20 blocks back, which a turn with many calls
    exceeds: the last but one is where the request before this one ended, so it hits exactly.
    Source: https://platform.claude.com/docs/en/build-with-claude/prompt-caching
    """
    users = [m["content"] for m in body["messages"] if m["role"] == "user"]
    for blocks in (body.get("tools"), body["system"], *users[-2:]):
        if blocks:
            blocks[-1] = blocks[-1] | {"cache_control": {"type": "ephemeral"}}


def _may_think(messages: Sequence[JSON]) -> bool:
    """True if the turn that goes on here began with thinking: else the API takes no budget yet."""
    first = "thinking"
    for message in reversed(messages):
        kind = message["content"][0]["type"]
        if message["role"] == "assistant":
            first = kind
        elif kind != "tool_result":
            break
    return "thinking" in first


# ---- the reply


def read_anthropic_reply(data: JSON) -> AssistantMessage:
    """The message in a reply. LookupError or TypeError: there is none."""
    blocks = [
        given(block) if block["type"] in ("text", "tool_use") else block
        for block in data["content"]
    ]
    calls = tuple(  # a block keeps their place, the message has the rest
        ToolCall(str(block.pop("id", "")), block.pop("name"), as_json(block.pop("input", None)))
        for block in blocks
        if block["type"] == "tool_use"
    )
    text = _join(blocks, "text")
    stop = stop_reason(ANTHROPIC_STOP_REASONS, data.get("stop_reason"), calls)
    if stop == "refused":
        text = text or obj(data.get("stop_details")).get("explanation", "")
    message = AssistantMessage(
        content=text,
        tool_calls=calls,
        thinking=_join(blocks, "thinking") or None,
        usage=read_anthropic_usage(obj(data.get("usage"))),
        stop_reason=stop,
    )
    whole = replace(message, raw={"provider": "anthropic", "content": blocks})
    # most replies need no blocks of their own: the message says it all
    return message if _write_assistant(message) == _write_assistant(whole) else whole


def _join(blocks: Sequence[JSON], kind: str) -> str:
    return "".join(block.get(kind) or "" for block in blocks if block["type"] == kind)


def read_anthropic_usage(counts: JSON) -> Usage | None:
    """Tokens: those read from the cache or written to it are part of the input."""
    fields = (
        "input_tokens",
        "output_tokens",
        "cache_read_input_tokens",
        "cache_creation_input_tokens",
    )
    fresh, output, read, written = (count(counts.get(field)) for field in fields)
    thinking = count(obj(counts.get("output_tokens_details")).get("thinking_tokens"))
    return Usage(fresh + read + written, output, read, written, thinking) if counts else None


class AnthropicChunks:
    """A streamed reply, put together from its events."""

    def __init__(self, deltas: Deltas) -> None:
        self.complete = False
        self._deltas = deltas
        self._message: JSON = {}
        self._usage: JSON = {}
        self._blocks: list[JSON] = []

    def add(self, event: JSON) -> None:
        kind = event.get("type")
        piece = obj(event.get("content_block") or event.get("delta") or event.get("message"))
        if kind == "content_block_start":
            self._blocks.append(piece)
        elif kind == "content_block_delta":
            block = self._blocks[-1]  # they come one by one
            for name in PIECES & piece.keys():
                block[name] = (block.get(name) or "") + piece[name]
            if "citation" in piece:
                block["citations"] = [*(block.get("citations") or ()), piece["citation"]]
            arguments = piece.get("partial_json", "")
            self._deltas.call(arguments, block.get("name", ""), block.get("id", ""))
        else:  # message_start, message_delta
            self._message |= piece
            # counts are totals so far; those that an event leaves out stay as they were
            self._usage |= given(obj(event.get("usage") or piece.get("usage")))
        self.complete = self.complete or kind == "message_stop"
        self._deltas.text(piece.get("text", ""))
        self._deltas.thinking(piece.get("thinking", ""))

    def reply(self) -> JSON:
        for block in self._blocks:
            if text := block.pop("partial_json", "").strip():
                # cut off, it stays text for a call of ours, and no server tool takes that
                block["input"] = loaded(text) or (text if block["type"] == "tool_use" else {})
        return self._message | {"content": self._blocks, "usage": self._usage}
