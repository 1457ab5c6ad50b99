"""Anthropic's Messages API, and every server that speaks it.

Copy with: models/http.py, models/wire.py and what they name.

Source: https://platform.claude.com/docs/en/api/messages
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, Literal

from ..errors import BadResponse
from ..messages import (
    AssistantMessage,
    ImagePart,
    Message,
    Part,
    SystemMessage,
    TextPart,
    ToolCall,
    ToolChoice,
    ToolMessage,
)
from ..tools import Tool
from .http import Accumulator, HTTPModel
from .wire import (
    JSON,
    attachment,
    given,
    grow,
    in_turns,
    kept_blocks,
    loaded,
    obj,
    plain_text,
    read_usage,
    rewrite_schema,
    stop_reason,
    wire_id,
    wire_name,
    write_content,
)

ANTHROPIC_STOP_REASONS = {
    "end_turn": "end",
    "stop_sequence": "end",
    "tool_use": "tool_calls",
    "max_tokens": "length",
    "refusal": "refused",
    "pause_turn": "pause",
    "compaction": "pause",  # with pause_after_compaction
    "model_context_window_exceeded": "context_overflow",
}
CHOICES: dict[str, JSON] = {
    "auto": {"type": "auto"},
    "required": {"type": "any"},
    "none": {"type": "none"},
}
# what is read from the cache or written to it is part of the input
ANTHROPIC_USAGE = (
    "input_tokens + cache_read_input_tokens + cache_creation_input_tokens",
    "output_tokens",
    "cache_read_input_tokens",
    "cache_creation_input_tokens",
    "thinking_tokens",
)
NEEDED = {"text": "text", "thinking": "signature"}  # what a block has, or it is not sent
ID = "[a-zA-Z0-9_-]{1,64}"
# all keywords of a schema but those that structured outputs take, and a mark for one.
# Source: https://platform.claude.com/docs/en/build-with-claude/structured-outputs
NOT_IN_OUTPUT = (
    r"(?!(type|properties|required|items|enum|const|anyOf|oneOf|allOf|\$defs|\$ref|title|"
    "description|default|propertyName)$).*"
)
EMPTY_BLOCK: JSON = {"type": "text", "text": "(empty)"}  # where the API wants some text


# ---- the reply


def _anthropic_text(blocks: Sequence[JSON], kind: str = "text") -> str:
    return "".join([block.get(kind) or "" for block in blocks if block["type"] == kind])


class AnthropicChunks(Accumulator):
    """A streamed reply, put together from its events."""

    def add(self, event: JSON) -> None:
        blocks = self.data.setdefault("content", [])
        usage = self.data.setdefault("usage", {})
        kind = event.get("type")
        piece = obj(event.get("content_block") or event.get("delta") or event.get("message"))
        if kind == "content_block_start":
            blocks.append(piece)
        elif kind == "content_block_delta":
            block = blocks[-1]  # they come one by one
            if "citation" in piece:
                piece = {"citations": [piece["citation"]]}
            new = {n: value for n, value in piece.items() if n not in ("type", "estimated_tokens")}
            grow(block, new, new)
            arguments = piece.get("partial_json", "")
            self.call(arguments, block.get("name", ""), block.get("id", ""))
        else:  # message_start, message_delta
            # counts are totals so far; those that an event leaves out stay as they were
            usage |= given(obj(event.get("usage") or piece.get("usage")))
            self.data |= piece | {"content": blocks, "usage": usage}
        self.complete |= kind == "message_stop" or bool(piece.get("stop_reason"))
        self.text(piece.get("text", ""))
        self.thinking(piece.get("thinking", ""))

    def reply(self) -> JSON:
        for block in self.data["content"]:
            if text := block.pop("partial_json", "").strip():
                # cut off, it stays text for a call of ours, and no server tool takes that
                block["input"] = loaded(text) or (text if block["type"] == "tool_use" else {})
        return self.data


# ---- the model


@dataclass(repr=False, eq=False, kw_only=True)
class ChatAnthropic(HTTPModel):
    """A model behind the Messages API. Settings that are None are not sent.

    `max_tokens` bounds the output with its thinking. `thinking` is a budget in tokens or, for
    models that do without one, the API's own object, such as {"type": "adaptive"}; the API does
    not force a model with a budget to call a tool. `cache` marks the prompt for the provider's
    cache: tools, system prompt, and the conversation up to here; "1h" keeps it for an hour, which
    costs more. `betas` are features to switch on by header. Newer values of `version` know no
    `temperature`.
    """

    max_tokens: int = 16_000
    temperature: float | None = None
    thinking: int | Mapping[str, Any] | None = None
    parallel_tool_calls: bool | None = None
    cache: bool | Literal["5m", "1h"] = True
    betas: Sequence[str] = ()
    version: str = "2023-06-01"

    key_variable = "ANTHROPIC_API_KEY"
    url_variable = "ANTHROPIC_BASE_URL"
    default_url = "https://api.anthropic.com"
    chunks = AnthropicChunks

    def headers(self) -> dict[str, str]:
        return given(
            {
                "x-api-key": self.api_key or None,
                "anthropic-version": self.version,
                "anthropic-beta": ",".join(self.betas) or None,
            }
        )

    def path(self, stream: bool) -> str:
        return "/v1/messages"

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
        declared: list[JSON] = [
            {"name": t.name, "description": t.description, "input_schema": t.parameters}
            for t in tools
        ]
        declared += self.provider_tools
        schema = self.output_schema and rewrite_schema(self.output_schema, NOT_IN_OUTPUT, _close)
        choice = CHOICES.get(tool_choice, {"type": "tool", "name": tool_choice})
        if self.parallel_tool_calls is not None and tool_choice != "none":
            choice = choice | {"disable_parallel_tool_use": not self.parallel_tool_calls}
        body: JSON = {
            "model": self.model,
            "max_tokens": self.max_tokens,
            "system": write_content(system, _write_part) or None,
            "messages": written,
            "temperature": self.temperature,
            "thinking": thinking,
            "stream": stream or None,
            "tools": declared or None,
            "tool_choice": choice if declared and choice != CHOICES["auto"] else None,
            "container": _find_container(messages) if self.provider_tools else None,
            "output_config": schema and {"format": {"type": "json_schema", "schema": schema}},
        }
        if self.cache:
            mark_for_cache(body, self.cache)
        return given(body)

    def read(self, data: JSON) -> AssistantMessage:
        blocks = [*map(given, data["content"])]
        if not all(isinstance(block.get("type"), str) for block in blocks):
            raise BadResponse("malformed: a block without a type")
        calls = tuple(  # a block keeps their place, the message has the rest
            ToolCall(
                str(block.pop("id", "")), block.pop("name"), plain_text(block.pop("input", None))
            )
            for block in blocks
            if block["type"] == "tool_use"
        )
        container = obj(data.get("container")) or None
        # most replies need no blocks of their own: the message says it all
        is_plain = not container and all(block.keys() <= {"type", "text"} for block in blocks)
        raw = given({"provider": "anthropic", "content": blocks, "container": container})
        return AssistantMessage(
            content=_anthropic_text(blocks) or obj(data.get("stop_details")).get("explanation", ""),
            tool_calls=calls,
            thinking=_anthropic_text(blocks, "thinking") or None,
            usage=read_usage(data.get("usage"), ANTHROPIC_USAGE),
            stop_reason=stop_reason(ANTHROPIC_STOP_REASONS, data.get("stop_reason"), calls),
            raw=None if is_plain else raw,
        )


# ---- the request


def write_anthropic_messages(messages: Sequence[Message]) -> list[JSON]:
    """Messages as the Messages API takes them. BadRequest: a part that it cannot carry."""
    turns = in_turns(messages, _write_assistant, _write_result, _write_part)
    blocks = [block for _, written in turns for block in written]
    answered = {block.get("tool_use_id") for block in blocks}
    # calls of the provider's own tools, which run when the turn goes on
    pending = {block["id"] for block in blocks if "_tool_use" in block["type"]} - answered
    goes_on = {block["type"] for block in turns[-1][1]} == {"tool_result"}
    for _, written in turns[: -1 - goes_on]:
        written[:] = [block for block in written if block.get("id") not in pending]
        while written and "thinking" in written[-1]["type"]:
            written.pop()  # the API takes none at the end of a turn
    return [{"role": role, "content": written or [EMPTY_BLOCK]} for role, written in turns]


@lru_cache(1000)
def _write_assistant(message: AssistantMessage) -> list[JSON]:
    """The blocks that the API sent, or those of the text and the calls if one has changed them."""
    calls: list[JSON] = [
        {
            "type": "tool_use",
            "id": wire_id(call.id, ID),
            "name": wire_name(call.name),
            "input": call.parsed or {},
        }
        for call in message.tool_calls
    ]
    blocks = kept_blocks(message, "content", "anthropic", "tool_use", calls, _anthropic_text)
    blocks = blocks or write_content(message.content, _write_part) + calls
    # no blank text, even the API's own, and no thought cut off before its signature
    return [b for b in blocks if (b.get(NEEDED.get(b["type"], "type")) or "").strip()]


def _write_result(message: ToolMessage) -> list[JSON]:
    blocks = write_content(message.content, _write_part) or [EMPTY_BLOCK]
    call_id = wire_id(message.tool_call_id, ID)
    result: JSON = {"type": "tool_result", "tool_use_id": call_id, "content": blocks}
    # the API refuses an error with an image in it
    is_error = message.is_error and all(block["type"] == "text" for block in blocks)
    return [result | {"is_error": True} if is_error else result]


def _write_part(part: Part) -> JSON | None:
    if isinstance(part, TextPart):  # the API refuses blank text
        return {"type": "text", "text": part.text} if part.text.strip() else None
    kind, data, url = attachment(part)
    source = {"type": "base64", "media_type": kind, "data": data}
    if url:
        source = {"type": "url", "url": url}
    elif kind.startswith("text/"):
        text = base64.b64decode(data).decode(errors="replace")
        source = {"type": "text", "media_type": "text/plain", "data": text}
    name = "image" if isinstance(part, ImagePart) else "document"
    return given({"type": name, "source": source, "title": getattr(part, "name", None)})


def mark_for_cache(body: JSON, cache: bool | str = True) -> None:
    """Ask to cache the request up to its tools, system prompt, last and last but one user message.

    The provider looks for an earlier mark at most 20 blocks back, which a turn with many calls
    exceeds: the last but one is where the request before this one ended, so it hits exactly.
    Source: https://platform.claude.com/docs/en/build-with-claude/prompt-caching
    """
    mark = {"cache_control": {"type": "ephemeral"} | ({} if cache is True else {"ttl": cache})}
    users = [m["content"] for m in body["messages"] if m["role"] == "user"]
    for blocks in (body.get("tools"), body["system"], *users[-2:]):
        if blocks:
            blocks[-1] = blocks[-1] | mark


def _close(schema: JSON) -> JSON:
    if "oneOf" in schema:
        schema["anyOf"] = schema.pop("oneOf")
    return schema | {"additionalProperties": False} if schema.get("type") == "object" else schema


def _find_container(messages: Sequence[Message]) -> str | None:
    """The id of the newest container that code ran in, and that can be used again."""
    now = datetime.now(UTC).isoformat()
    for message in reversed(messages):
        container = obj(obj(getattr(message, "raw", None)).get("container"))
        if str(container.get("expires_at", "")) > now:
            return str(container["id"])
    return None


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
