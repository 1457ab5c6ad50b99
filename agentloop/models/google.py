"""Google's Gemini models, over the generateContent API.

Copy with: models/http.py, models/wire.py and what they name.

Source: https://ai.google.dev/api/generate-content
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any
from urllib.parse import quote

from ..errors import BadResponse
from ..messages import (
    AssistantMessage,
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
    in_turns,
    kept_blocks,
    obj,
    objects,
    plain_text,
    read_usage,
    rewrite_schema,
    stop_reason,
    wire_name,
    write_content,
)

REFUSED = (
    "SAFETY RECITATION BLOCKLIST PROHIBITED_CONTENT SPII MODEL_ARMOR IMAGE_SAFETY "
    "IMAGE_PROHIBITED_CONTENT IMAGE_RECITATION LANGUAGE ESCALATION"
)
MENDABLE = ("MALFORMED_FUNCTION_CALL", "UNEXPECTED_TOOL_CALL", "TOO_MANY_TOOL_CALLS")
GOOGLE_STOP_REASONS = {
    "STOP": "end",
    "FUNCTION_CALL": "tool_calls",  # Google itself says STOP, compatible servers this
    "MAX_TOKENS": "length",
    "CONTINUATION": "length",
    **dict.fromkeys(REFUSED.split(), "refused"),
    **dict.fromkeys(MENDABLE, "tool_calls"),
}
# Gemini counts cached tokens as part of the prompt, but thoughts on top of the reply
GOOGLE_USAGE = (
    "promptTokenCount + toolUsePromptTokenCount",
    "candidatesTokenCount + thoughtsTokenCount",
    "cachedContentTokenCount",
    "",  # it reports no cache writes
    "thoughtsTokenCount",
)
UNKNOWN = "exclusiveMinimum|exclusiveMaximum|multipleOf|discriminator"  # in a schema
EMPTY_PART: JSON = {"text": "(empty)"}  # for a turn of the user, who has to begin
PATH = re.compile(r"\[\d+\]|[^.\[\]'\"$]+")  # $.a[0].b -> a, [0], b
UNSIGNED = "skip_thought_signature_validator"  # what the API takes for a call that it did not make


# ---- the reply


def _google_text(parts: Sequence[JSON], thought: bool = False) -> str:
    return "".join([p.get("text") or "" for p in parts if bool(p.get("thought")) == thought])


def _listed(value: JSON) -> Any:
    return [*value.values()] if "[0]" in value else value


@dataclass
class GoogleChunks(Accumulator):
    """A streamed reply: each chunk is a reply of its own, with the next parts."""

    def __post_init__(self) -> None:
        self.data = {"candidates": [{}], "usageMetadata": {}, "promptFeedback": {}}
        self._parts: list[JSON] = []

    def add(self, event: JSON) -> None:
        [whole] = self.data["candidates"]
        for name in ("usageMetadata", "promptFeedback"):
            self.data[name] |= obj(event.get(name))  # counts are totals so far
        for candidate in objects(event.get("candidates"))[:1]:
            whole |= given(candidate)
            for part in map(given, obj(candidate.get("content")).get("parts") or []):
                show = self.thinking if part.get("thought") else self.text
                show(part.get("text", ""))
                last = self._parts[-1] if self._parts else {}
                if "functionCall" in part:
                    self._add_call(part)
                elif {*part} == {*last} <= {"text", "thought"}:
                    last["text"] += part["text"]  # a part with a signature stays as it is
                else:
                    self._parts.append(part)
        self.complete = bool(
            whole.get("finishReason") or self.data["promptFeedback"].get("blockReason")
        )

    def _add_call(self, part: JSON) -> None:
        """Take a whole call, or with streamFunctionCallArguments (Vertex AI) its next piece."""
        piece = part["functionCall"]
        pieces = piece.pop("partialArgs", ())
        shown = plain_text(piece.get("args"))
        if "name" in piece:
            self._parts.append(part)
        call = self._parts[-1]["functionCall"]
        for each in pieces:
            *path, name = PATH.findall(each["jsonPath"])
            holder = call.setdefault("args", {})
            for key in path:
                holder = holder.setdefault(key, {})
            text: str | None = each.get("stringValue")
            shown += text or ""
            other = each.get("numberValue", each.get("boolValue"))
            holder[name] = other if text is None else holder.get(name, "") + text
        self.call(shown, call["name"], str(call.get("id") or ""))

    def reply(self) -> JSON:
        parts = json.loads(json.dumps(self._parts), object_hook=_listed)
        self.data["candidates"][0]["content"] = {"parts": parts}
        return self.data


# ---- the model


@dataclass(repr=False, eq=False, kw_only=True)
class ChatGoogle(HTTPModel):
    """A Gemini model. Settings that are None are not sent.

    `thinking_budget` (tokens; 0 is off, -1 leaves it to the model) is for Gemini 2.5,
    `thinking_level` ("low", "high", ...) for later ones. Thoughts are billed but not shown unless
    `include_thoughts` asks for them. `generation_config` holds further fields of that name.
    On Vertex AI: `base_url="https://aiplatform.googleapis.com"`,
    `api_version="v1/publishers/google"`.
    """

    temperature: float | None = None
    max_output_tokens: int | None = None
    thinking_budget: int | None = None
    thinking_level: str | None = None
    include_thoughts: bool | None = None
    generation_config: Mapping[str, Any] = field(default_factory=dict[str, Any])
    api_version: str = "v1beta"

    key_variable = "GOOGLE_API_KEY or GEMINI_API_KEY"
    url_variable = "GOOGLE_GEMINI_BASE_URL"
    default_url = "https://generativelanguage.googleapis.com"
    chunks = GoogleChunks

    def headers(self) -> dict[str, str]:
        return {"x-goog-api-key": self.api_key} if self.api_key else {}

    def path(self, stream: bool) -> str:
        model = quote(self.model.removeprefix("models/"), safe="")
        method = "streamGenerateContent?alt=sse" if stream else "generateContent"
        return f"/{self.api_version}/models/{model}:{method}"

    def body(
        self,
        messages: Sequence[Message],
        tools: Sequence[Tool],
        tool_choice: ToolChoice,
        stream: bool,
    ) -> JSON:
        thinking = {
            "thinkingBudget": self.thinking_budget,
            "thinkingLevel": self.thinking_level,
            "includeThoughts": self.include_thoughts,
        }
        config = {
            "temperature": self.temperature,
            "maxOutputTokens": self.max_output_tokens,
            "thinkingConfig": given(thinking) or None,
            "responseMimeType": "application/json" if self.output_schema else None,
            "responseJsonSchema": self.output_schema and write_schema(self.output_schema),
            **self.generation_config,
        }
        system = [{"text": m.content} for m in messages if isinstance(m, SystemMessage)]
        own = [
            {
                "name": tool.name,
                "description": tool.description,
                "parametersJsonSchema": write_schema(tool.parameters),
            }
            for tool in tools
        ]
        declared = [{"functionDeclarations": own}] if own else []
        modes = {"auto": None, "required": "ANY", "none": "NONE"}
        names = None if tool_choice in modes else [tool_choice]
        calling = {"mode": modes.get(tool_choice, "ANY"), "allowedFunctionNames": names}
        # Gemini wants to be told of tools of both kinds, Vertex AI does not know the word
        are_both = bool(self.provider_tools) and "publishers" not in self.api_version
        tool_config = {
            "functionCallingConfig": given(calling) or None,
            "includeServerSideToolInvocations": are_both or None,
        }
        return given(
            {
                "systemInstruction": {"parts": system} if system else None,
                "contents": write_google_messages(messages),
                "generationConfig": given(config) or None,
                "tools": [*declared, *self.provider_tools] or None,
                "toolConfig": given(tool_config) or None if own else None,
            }
        )

    def read(self, data: JSON) -> AssistantMessage:
        candidate = obj((data.get("candidates") or [None])[0])
        feedback = obj(data.get("promptFeedback"))
        sent: list[JSON] = obj(candidate.get("content")).get("parts") or []
        finish = plain_text(candidate.get("finishReason"))
        if not sent and "blockReason" in feedback:
            finish = finish or "SAFETY"
        # a malformed reply is one by chance: the next try may be whole
        if finish == "MALFORMED_RESPONSE" or not (sent or finish):
            raise BadResponse(f"no message in the reply ({finish or 'no candidates'})")
        parts = [part for part in map(given, sent) if part not in ({}, {"text": ""})]
        # then no call runs, and each gets an error result for the model to read
        broken = plain_text(candidate.get("finishMessage", finish)) if finish in MENDABLE else ""
        if broken and not any("functionCall" in part for part in parts):
            parts.append({"functionCall": {"name": finish.lower()}})
        calls = tuple(
            ToolCall(
                str(call.get("id") or ""),
                call["name"],
                broken or plain_text(call.pop("args", None)) or "{}",
            )
            for part in parts
            if (call := part.get("functionCall"))
        )
        stop = stop_reason(GOOGLE_STOP_REASONS, finish, calls)
        raw: Any = {"provider": "google", "parts": parts}
        if stop == "refused":
            raw |= {"finishReason": finish, **feedback}
        elif all(part.keys() <= {"text", "thought", "functionCall"} for part in parts):
            raw = None  # the message says it all
        return AssistantMessage(
            content=_google_text(parts),
            tool_calls=calls,
            thinking=_google_text(parts, True) or None,
            usage=read_usage(data.get("usageMetadata"), GOOGLE_USAGE),
            stop_reason=stop,
            raw=raw,
        )


# ---- the request


def write_google_messages(messages: Sequence[Message]) -> list[JSON]:
    """Messages as Gemini takes them, system prompt aside. BadRequest: a part it cannot carry."""
    turns = in_turns(messages, _write_google_assistant, _write_google_result, _write_google_part)
    return [
        {
            "role": "user" if role == "user" else "model",
            # results stand first, then the images and files that came with them
            "parts": sorted(parts or [EMPTY_PART], key=lambda part: "functionResponse" not in part),
        }
        for role, parts in turns
    ]


def _write_google_result(message: ToolMessage) -> list[JSON]:
    """The result, and the images and files that came with it: not every model takes them inside."""
    media = [
        part for part in write_content(message.content, _write_google_part) if "text" not in part
    ]
    label = {"text": f"Attached to the result of {message.tool_name}:"}
    # always wrapped: as an object, long numbers in it would lose their last digits
    said = {"error" if message.is_error else "output": message.text}
    response = {"id": message.tool_call_id, "name": wire_name(message.tool_name), "response": said}
    return [{"functionResponse": response}, *([label, *media] if media else ())]


@lru_cache(1000)
def _write_google_assistant(message: AssistantMessage) -> list[JSON]:
    """The parts that the API sent, or those of the text and the calls if one has changed them."""
    own: list[JSON] = [
        {"functionCall": {"id": call.id, "name": wire_name(call.name), "args": call.parsed or {}}}
        for call in message.tool_calls
    ]
    parts = kept_blocks(message, "parts", "google", "functionCall", own, _google_text)
    parts = parts or write_content(message.content, _write_google_part) + own
    # only the first of parallel calls has to have one
    first = next((part for part in parts if "functionCall" in part), JSON())
    first.setdefault("thoughtSignature", UNSIGNED)
    return parts


def _write_google_part(part: Part) -> JSON | None:
    if isinstance(part, TextPart):  # the API refuses an empty one
        return {"text": part.text} if part.text else None
    kind, data, url = attachment(part)
    if url:
        return {"fileData": given({"mimeType": kind or None, "fileUri": url})}
    return {"inlineData": {"mimeType": kind, "data": data}}


def write_schema(schema: JSON) -> JSON:
    """A JSON schema without what Gemini refuses (anything beside a $ref) or does not know (const).

    Source: https://ai.google.dev/api/generate-content#FIELDS.response_json_schema
    """
    return rewrite_schema(schema, UNKNOWN, _write_subschema)


def _write_subschema(schema: JSON) -> JSON:
    if not isinstance(schema.get("const", {}), dict):
        schema["enum"] = [schema.pop("const")]
    if isinstance(schema.get("$ref"), str) and any(not key.startswith("$") for key in schema):
        schema["anyOf"] = [{"$ref": schema.pop("$ref")}, *schema.get("anyOf", ())]
    return schema
