"""OpenAI's Responses, the second wire of ChatOpenAI, and what it shares with the first.

Copy with: models/http.py, models/wire.py and what they name.

Nothing is stored at the server: each request holds the whole conversation, and in it the items
that only the server can read (encrypted reasoning, say), as it sent them.

Source: https://platform.openai.com/docs/api-reference/responses
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ..errors import BadResponse
from ..messages import (
    AssistantMessage,
    ImagePart,
    Message,
    Part,
    SystemMessage,
    TextPart,
    ToolCall,
    ToolMessage,
)
from .http import Accumulator
from .wire import (
    JSON,
    attachment,
    given,
    grow,
    kept_blocks,
    obj,
    objects,
    plain_text,
    rewrite_schema,
    stop_reason,
    wire_id,
    wire_name,
)

RESPONSES_STOP_REASONS = {
    "completed": "end",
    "max_output_tokens": "length",
    "content_filter": "refused",
}
PIECES_OF = {
    "output_text.delta": "text",
    "refusal.delta": "text",
    "reasoning_summary_text.delta": "thinking",
    "reasoning_text.delta": "thinking",  # gpt-oss behind vLLM, llama.cpp, LM Studio
}


# ---- the request


def write_items(messages: Sequence[Message], owner: str) -> list[JSON]:
    out = list[JSON]()
    for message in messages:
        if isinstance(message, AssistantMessage):
            out += _write_reply(message, owner)
            continue
        parts = () if isinstance(message.content, str) else message.content
        is_text = all(isinstance(part, TextPart) for part in parts)
        content = message.text if is_text else [*map(_write_input, parts)]
        if isinstance(message, ToolMessage):
            call_id = wire_id(message.tool_call_id)
            out.append({"type": "function_call_output", "call_id": call_id, "output": content})
        else:
            role = "system" if isinstance(message, SystemMessage) else "user"
            out.append({"role": role, "content": content})
    return out


def _write_reply(message: AssistantMessage, owner: str) -> list[JSON]:
    """The items that this server and model sent, or those of the text and the calls."""
    calls: list[JSON] = [
        {
            "type": "function_call",
            "call_id": wire_id(call.id),
            "name": wire_name(call.name),
            "arguments": call.wire_arguments,
        }
        for call in message.tool_calls
    ]
    kept = kept_blocks(message, "output", owner, "function_call", calls, _items_text)
    said: list[JSON] = [{"role": "assistant", "content": message.content}]
    return kept or said * bool(message.content) + calls


def _write_input(part: Part) -> JSON:
    chat = write_part(part)
    if image := chat.get("image_url"):
        image = {"image_url": image["url"], "detail": image.get("detail", "auto")}
        return {"type": "input_image"} | image
    if file := chat.get("file"):
        url = {"file_url": file["file_data"]} if getattr(part, "url", None) else file
        return {"type": "input_file"} | url
    return chat | {"type": "input_text"} if "text" in chat else chat


# ---- for both wires: parts, schemas, reasoning


def write_part(part: Part) -> JSON:
    """A part as Chat Completions takes it. BadRequest: it cannot carry that."""
    if isinstance(part, TextPart):
        return {"type": "text", "text": part.text}
    kind, data, url = attachment(part)
    url = url or f"data:{kind};base64,{data}"
    if isinstance(part, ImagePart):
        detail = given({"detail": (part.extra or {}).get("detail")})
        return {"type": "image_url", "image_url": {"url": url} | detail}
    if data and kind.startswith("audio/"):
        form = re.sub("audio/(x-)?", "", kind).replace("mpeg", "mp3")
        return {"type": "input_audio", "input_audio": {"data": data, "format": form}}
    return {
        "type": "file",
        "file": {"filename": getattr(part, "name", None) or "file", "file_data": url},
    }


def write_openai_schema(name: str, schema: JSON, strict: bool) -> JSON:
    """The schema under that name, strict if that is asked for and the schema allows it."""
    found = strict_schema(schema) if strict else None
    return {name: found, "strict": True} if found else {name: schema}


STRICT_KEYWORDS = re.compile(
    r"type|properties|required|additionalProperties|items|enum|const|anyOf|\$defs|title|"
    "description|pattern|format|minimum|maximum|exclusiveMinimum|exclusiveMaximum|multipleOf|"
    "minItems|maxItems"
)
FORMATS = "date-time|time|date|duration|email|hostname|ipv4|ipv6|uuid"


def strict_schema(schema: JSON) -> JSON | None:
    """The schema for strict mode, or None if it does not qualify.

    Every parameter is required there: optional ones become nullable, and null means the default.
    Source: https://platform.openai.com/docs/guides/structured-outputs#supported-schemas
    """
    schema = rewrite_schema(schema, "default", _without_other_formats)
    properties = obj(schema.get("properties"))
    for name in properties.keys() - {*schema.get("required", ())}:
        properties[name] = {"anyOf": [properties[name], {"type": "null"}]}
    schema = {
        "additionalProperties": False,
        **schema,
        "properties": properties,
        "required": [*properties],
    }
    return schema if _is_strict(schema) else None


def _without_other_formats(schema: JSON) -> JSON:
    form = schema.get("format")  # or a parameter of that name
    if isinstance(form, str) and not re.fullmatch(FORMATS, form):
        del schema["format"]
    return schema


def _is_strict(schema: JSON) -> bool:
    keys = schema.keys()
    kind = schema.get("type")
    properties = obj(schema.get("properties"))
    is_closed = schema.get("additionalProperties") is False
    if kind == "object" and not (is_closed and {*schema.get("required", ())} == properties.keys()):
        return False
    inner = [*properties.values(), *obj(schema.get("$defs")).values(), *schema.get("anyOf", ())]
    inner += [schema.get("items")] * (kind == "array")
    is_known = all(map(STRICT_KEYWORDS.fullmatch, keys)) and keys & {"type", "anyOf", "enum"}
    return keys == {"$ref"} or (bool(is_known) and all(_is_strict(obj(each)) for each in inner))


def join_details(details: Sequence[JSON]) -> list[JSON]:
    """OpenRouter's fragments of reasoning, put together: the signature comes last, without text."""
    whole = list[JSON]()
    for new in map(given, details):
        last = whole[-1] if whole else {"index": ""}
        if "data" in last | new or last.get("index") != new.get("index"):
            whole.append(new)
        else:
            grow(last, new, ("text", "summary"))
    return whole


# ---- the reply


def read_responses(data: JSON, owner: str) -> AssistantMessage:
    """The message in a reply. LookupError, TypeError or BadResponse: there is none."""
    items = objects(data["output"])
    status = data["status"]
    if status in ("failed", "cancelled"):
        raise BadResponse(status)
    if not all(isinstance(item["type"], str) for item in items):
        raise BadResponse("malformed: a type is no text")  # no later request could hold it
    calls = tuple(
        ToolCall(plain_text(item.get("call_id")), item["name"], plain_text(item.get("arguments")))
        for item in items
        if item["type"] == "function_call"
    )
    reason = obj(data.get("incomplete_details")).get("reason") or status
    is_refusal = any("refusal" in part for item in items for part in objects(item.get("content")))
    return AssistantMessage(
        content=_items_text(items),
        tool_calls=calls,
        thinking=_items_text(items, "reasoning") or None,
        stop_reason="refused" if is_refusal else stop_reason(RESPONSES_STOP_REASONS, reason, calls),
        raw={"provider": "responses", "owner": owner, "output": items}
        if status == "completed" and _is_needed(items)
        else None,
    )


def _is_needed(items: Sequence[JSON]) -> bool:
    """True if the items say more than the message, and go back as they are.

    Reasoning has to be readable for a server that stores nothing, and something has to follow it.
    """
    thoughts = [item for item in items if item["type"] == "reasoning"]
    says_more = any(
        item["type"] not in ("message", "function_call") or item.get("phase") for item in items
    )
    is_whole = all(item.get("encrypted_content") or item.get("content") for item in thoughts)
    return says_more and is_whole and items[-1] not in thoughts


def _items_text(items: Sequence[JSON], kind: str = "message") -> str:
    texts = (
        part.get("text") or part.get("refusal")
        for item in items
        if item["type"] == kind
        for part in objects(item.get("summary")) + objects(item.get("content"))
    )
    return "\n\n".join(filter(None, texts))


@dataclass
class ResponsesEvents(Accumulator):
    """A streamed reply: its last event has the whole, but for servers that leave out its items."""

    def __post_init__(self) -> None:
        self.data = {"output": []}
        self._begun: dict[Any, JSON] = {}
        self._places: dict[str, Any] = {}  # of the last piece of each kind

    def add(self, event: JSON) -> None:
        kind = plain_text(event.get("type")).removeprefix("response.")
        at = event.get("output_index")
        if kind in ("completed", "incomplete", "failed"):
            # the backend of Codex, new-api: the last event has no items
            items = event["response"].get("output") or self.data["output"]
            self.data = event["response"] | {"output": items}
            self.complete = True
        elif kind == "output_item.added":
            self._begun[at] = event["item"]
        elif kind == "output_item.done":
            self.data["output"].append(event["item"])
        elif kind == "function_call_arguments.delta":
            call = self._begun[at]
            self.call(event["delta"], call["name"], call["call_id"])
        elif name := PIECES_OF.get(kind):
            place = at, event.get("summary_index"), event.get("content_index")
            gap = "" if self._places.setdefault(name, place) == place else "\n\n"
            self._places[name] = place
            getattr(self, name)(gap + event["delta"])
