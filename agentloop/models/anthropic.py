"""Anthropic's Messages API, and every server that speaks it.

Copy with: models/http.py and what it names.

Source: https://platform.claude.com/docs/en/api/messages
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal

from ..errors import BadRequest, BadResponse
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
    UserMessage,
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
    "compaction": "pause",  # with pause_after_compaction
    "model_context_window_exceeded": "context_overflow",
}
NEEDED = {"text": "text", "thinking": "signature"}  # what a block has, or it is not sent
ID = re.compile("[a-zA-Z0-9_-]{1,64}")
IN_OUTPUT = re.compile(  # keywords of a schema that structured outputs take, and a mark for one
    r"type|properties|required|items|enum|const|anyOf|oneOf|allOf|\$defs|\$ref|title|description|"
    "default|propertyName"
)
NOTHING = "(empty)"  # stands where the API wants some text and there is none


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

    def headers(self) -> dict[str, str]:
        return given(
            {
                "x-api-key": self.api_key or None,
                "anthropic-version": self.version,
                "anthropic-beta": ",".join(self.betas) or None,
            }
        )

    def path(self, stream: bool) -> str:
        base, _, _ = str(self.base_url).partition("?")
        return "/messages" if base.endswith("/v1") else "/v1/messages"

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
        declared: list[Any] = [
            {"name": t.name, "description": t.description, "input_schema": t.parameters}
            for t in tools
        ]
        declared += self.provider_tools
        schema = self.output_schema and json.loads(
            json.dumps(self.output_schema), object_hook=write_subschema
        )
        body: JSON = {
            "model": self.model,
            "max_tokens": self.max_tokens,
            "system": _write_content(system) or None,
            "messages": written,
            "temperature": self.temperature,
            "thinking": thinking,
            "stream": stream or None,
            "tools": declared or None,
            "tool_choice": self._tool_choice(tool_choice) if declared else None,
            "container": _find_container(messages) if self.provider_tools else None,
            "output_config": {"format": {"type": "json_schema", "schema": schema}}
            if schema
            else None,
        }
        if self.cache:
            mark_for_cache(body, None if self.cache is True else self.cache)
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
            role, blocks = "assistant", [*_write_assistant(message)]
        elif isinstance(message, ToolMessage):
            blocks = [_write_result(message)]
        else:
            blocks = [] if isinstance(message, SystemMessage) else _write_content(message.content)
        if out[-1]["role"] == role:
            out[-1]["content"] += blocks
        elif blocks or role == "user":
            out.append({"role": role, "content": blocks})
    blocks = [block for written in out for block in written["content"]]
    answered = {block.get("tool_use_id") for block in blocks}
    # calls of the provider's own tools, which run when the turn goes on
    pending = {block["id"] for block in blocks if "_tool_use" in block["type"]} - answered
    goes_on = {block["type"] for block in out[-1]["content"]} == {"tool_result"}
    for written in out[: -1 - goes_on]:
        blocks = [block for block in written["content"] if block.get("id") not in pending]
        while blocks and "thinking" in blocks[-1]["type"]:
            blocks.pop()  # the API takes none at the end of a turn
        written["content"] = blocks
    for written in out:
        written["content"] = written["content"] or _write_content(NOTHING)
    return out


@lru_cache(1000)
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
    raw, rest = obj(message.raw), iter(calls)
    blocks: list[JSON] = raw["content"] if raw.get("provider") == "anthropic" else []
    places = [block["type"] for block in blocks].count("tool_use")
    if places != len(calls) or _join(blocks, "text") != message.content:
        return [*_write_content(message.content), *calls]
    blocks = [block | next(rest) if block["type"] == "tool_use" else block for block in blocks]
    # no blank text, even the API's own, and no thought cut off before its signature
    return [b for b in blocks if (b.get(NEEDED.get(b["type"], "type")) or "").strip()]


def _write_id(call_id: str) -> str:
    """The id if Anthropic takes it: other providers' may be longer, or hold other characters."""
    if ID.fullmatch(call_id):
        return call_id
    return hashlib.sha256(call_id.encode()).hexdigest()[:40]


def _write_result(message: ToolMessage) -> JSON:
    blocks = _write_content(message.content) or _write_content(NOTHING)
    call_id = _write_id(message.tool_call_id)
    result: JSON = {"type": "tool_result", "tool_use_id": call_id, "content": blocks}
    # the API refuses an error with an image in it
    if message.is_error and all(block["type"] == "text" for block in blocks):
        result["is_error"] = True
    return result


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


def mark_for_cache(body: JSON, ttl: str | None = None) -> None:
    """Ask to cache the request up to its tools, system prompt, last and last but one user message.

    The provider looks for an earlier mark at most 20 blocks back, which a turn with many calls
    exceeds: the last but one is where the request before this one ended, so it hits exactly.
    Source: https://platform.claude.com/docs/en/build-with-claude/prompt-caching
    """
    mark = {"cache_control": given({"type": "ephemeral", "ttl": ttl})}
    users = [m["content"] for m in body["messages"] if m["role"] == "user"]
    for blocks in (body.get("tools"), body["system"], *users[-2:]):
        if blocks:
            blocks[-1] = blocks[-1] | mark


def write_subschema(schema: JSON) -> JSON:
    """A JSON schema without what structured outputs refuse, but for the schemas in it.

    Source: https://platform.claude.com/docs/en/build-with-claude/structured-outputs
    """
    out: JSON = {
        "anyOf" if name == "oneOf" else name: value
        for name, value in schema.items()
        # a property may have any name: then the value is a schema
        if IN_OUTPUT.fullmatch(name) or (isinstance(value, dict) and "propertyName" not in value)
    }
    return out | {"additionalProperties": False} if out.get("type") == "object" else out


def _find_container(messages: Sequence[Message]) -> str | None:
    """The id of the newest container that code ran in, and that can be used again."""
    oldest = ""  # amid a turn any one is needed
    for message in reversed(messages):
        container = obj(getattr(message, "raw", None)).get("container")
        if container and str(container.get("expires_at")) > oldest:
            return str(container["id"])
        if isinstance(message, UserMessage):
            oldest = datetime.now(UTC).isoformat()
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


# ---- the reply


def read_anthropic_reply(data: JSON) -> AssistantMessage:
    """The message in a reply. LookupError, TypeError or BadResponse: there is none."""
    blocks = [*map(given, data["content"])]
    if not all(isinstance(block.get("type"), str) for block in blocks):
        raise BadResponse("malformed: a block without a type")
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
    container = obj(data.get("container")) or None
    raw = given({"provider": "anthropic", "content": blocks, "container": container})
    whole = replace(message, raw=raw)
    # most replies need no blocks of their own: the message says it all
    is_plain = not container and _write_assistant(message) == _write_assistant(whole)
    return message if is_plain else whole


def _join(blocks: Sequence[JSON], kind: str) -> str:
    return "".join([block.get(kind) or "" for block in blocks if block["type"] == kind])


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
    # how many were written for how long
    extra = obj(counts.get("cache_creation")) or None
    usage = Usage(fresh + read + written, output, read, written, thinking, extra)
    return usage if counts else None


class AnthropicChunks:
    """A streamed reply, put together from its events."""

    def __init__(self, deltas: Deltas) -> None:
        self.complete = False
        self._deltas = deltas
        self._reply: JSON = {"content": [], "usage": {}}

    def add(self, event: JSON) -> None:
        kind, blocks, usage = event.get("type"), self._reply["content"], self._reply["usage"]
        piece = obj(event.get("content_block") or event.get("delta") or event.get("message"))
        if kind == "content_block_start":
            blocks.append(piece)
        elif kind == "content_block_delta":
            block = blocks[-1]  # they come one by one
            if "citation" in piece:
                piece = {"citations": [piece["citation"]]}
            for name in piece.keys() - {"type", "estimated_tokens"}:
                value = piece[name]
                grows = isinstance(value, str | list) and block.get(name)
                block[name] = block[name] + value if grows else value
            arguments = piece.get("partial_json", "")
            self._deltas.call(arguments, block.get("name", ""), block.get("id", ""))
        else:  # message_start, message_delta
            # counts are totals so far; those that an event leaves out stay as they were
            usage |= given(obj(event.get("usage") or piece.get("usage")))
            self._reply |= piece | {"content": blocks, "usage": usage}
        self.complete |= kind == "message_stop" or bool(piece.get("stop_reason"))
        self._deltas.text(piece.get("text", ""))
        self._deltas.thinking(piece.get("thinking", ""))

    def reply(self) -> JSON:
        for block in self._reply["content"]:
            if text := block.pop("partial_json", "").strip():
                # cut off, it stays text for a call of ours, and no server tool takes that
                block["input"] = loaded(text) or (text if block["type"] == "tool_use" else {})
        return self._reply
