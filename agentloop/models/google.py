"""Google's Gemini models, over the generateContent API.

Copy with: messages.py, events.py, errors.py, transcript.py, models/http.py, models/clients.py.

Source: https://ai.google.dev/api/generate-content
"""

from __future__ import annotations

import base64
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import TYPE_CHECKING, Any, ClassVar
from urllib.parse import quote

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
    obj,
    objects,
    stop_reason,
    text_in,
    wire_name,
)

if TYPE_CHECKING:
    from ..tools import Tool

GOOGLE_STOP_REASONS = {
    "STOP": "end",
    "FUNCTION_CALL": "tool_calls",  # Google itself says STOP, compatible servers this
    "MAX_TOKENS": "length",
    "SAFETY": "refused",
    "RECITATION": "refused",
    "BLOCKLIST": "refused",
    "PROHIBITED_CONTENT": "refused",
    "SPII": "refused",
    "MODEL_ARMOR": "refused",
    "IMAGE_SAFETY": "refused",
    "IMAGE_PROHIBITED_CONTENT": "refused",
    "IMAGE_RECITATION": "refused",
}
BROKEN = ("MALFORMED_FUNCTION_CALL", "MALFORMED_RESPONSE")  # by chance: the next try may be whole
UNSIGNED = "skip_thought_signature_validator"  # what the API takes for a call that it did not make


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

    key_variable: ClassVar[str] = "GOOGLE_API_KEY"
    url_variable: ClassVar[str] = "GOOGLE_GEMINI_BASE_URL"
    default_url: ClassVar[str] = "https://generativelanguage.googleapis.com"

    def __post_init__(self) -> None:
        if not os.environ.get(self.key_variable):
            self.api_key = self.api_key or os.environ.get("GEMINI_API_KEY")
        super().__post_init__()
        self.base_url = self.base_url.removesuffix(f"/{self.api_version}")

    def headers(self) -> dict[str, str]:
        return {"x-goog-api-key": self.api_key} if self.api_key else {}

    def path(self, stream: bool) -> str:
        model = quote(self.model.removeprefix("models/"), safe="")
        method = "streamGenerateContent?alt=sse" if stream else "generateContent"
        return f"/{self.api_version}/models/{model}:{method}"

    def body(self, request: Request, stream: bool) -> dict[str, Any]:
        thinking = {
            "thinkingBudget": self.thinking_budget,
            "thinkingLevel": self.thinking_level,
            "includeThoughts": self.include_thoughts,
        }
        config = {
            "temperature": self.temperature,
            "maxOutputTokens": self.max_output_tokens,
            "thinkingConfig": given(thinking) or None,
            **self.generation_config,
        }
        system = [m.content for m in request.messages if isinstance(m, SystemMessage)]
        body: dict[str, Any] = {
            "systemInstruction": {"parts": [{"text": text} for text in system]} if system else None,
            "contents": write_google_messages(
                request.messages, _takes_media_in_results(self.model)
            ),
            "generationConfig": given(config) or None,
        }
        if request.tools:
            body["tools"] = [
                {"functionDeclarations": [write_google_tool(tool) for tool in request.tools]}
            ]
            if (choice := request.tool_choice) != "auto":
                modes = {"required": {"mode": "ANY"}, "none": {"mode": "NONE"}}
                named = {"mode": "ANY", "allowedFunctionNames": [choice]}
                body["toolConfig"] = {"functionCallingConfig": modes.get(choice, named)}
        return given(body)

    def read(self, data: dict[str, Any]) -> AssistantMessage:
        return read_google_reply(data)

    def accumulator(self, deltas: Deltas) -> GoogleChunks:
        return GoogleChunks(deltas)


# ---- the request

_MEDIA_IN_RESULTS = ("image/png", "image/jpeg", "image/webp", "application/pdf", "text/plain")


def _takes_media_in_results(model: str) -> bool:
    """Gemini 3 and later; of a name without a version we do not know."""
    return bool(re.search(r"gemini-([3-9]|\d\d)", model))


def write_google_messages(
    messages: Sequence[Message], media_in_results: bool = False
) -> list[dict[str, Any]]:
    """Messages as Gemini takes them, system prompt aside. BadRequest: a part it cannot carry.

    Images and files of tool results stay with them (`media_in_results`) or follow the last one.
    """
    out: list[dict[str, Any]] = []
    attached: list[dict[str, Any]] = []
    for message in messages:
        if attached and not isinstance(message, ToolMessage):
            _append_to_google(out, "user", attached)
            attached = []
        if isinstance(message, UserMessage):
            _append_to_google(out, "user", _write_google_content(message.content))
        elif isinstance(message, ToolMessage):
            media = [part for part in _write_google_content(message.content) if "text" not in part]
            inside = [part for part in media if media_in_results and _fits_inside(part)]
            rest = [part for part in media if not (media_in_results and _fits_inside(part))]
            text = message.text
            if rest:
                text = f"{text}\n[attached after the results: {len(rest)}]".lstrip()
                attached += [{"text": f"Attached to the result of {message.tool_name}:"}, *rest]
            # always wrapped: as an object, long numbers in it would lose their last digits
            response: dict[str, Any] = {
                "id": message.tool_call_id,
                "name": wire_name(message.tool_name),
                "response": {"error" if message.is_error else "output": text},
            }
            response |= {"parts": inside} if inside else {}
            _append_to_google(out, "user", [{"functionResponse": response}])
        elif isinstance(message, AssistantMessage):
            _append_to_google(out, "model", _write_google_assistant(message))
    _append_to_google(out, "user", attached)
    return out


def _append_to_google(out: list[dict[str, Any]], role: str, parts: list[dict[str, Any]]) -> None:
    if out and out[-1]["role"] == role:
        out[-1]["parts"] += parts
    elif parts:
        out.append({"role": role, "parts": parts})


def _write_google_assistant(message: AssistantMessage) -> list[dict[str, Any]]:
    raw = obj(message.raw)
    parts = objects(raw.get("parts")) if raw.get("provider") == "google" else []
    signed = any("thoughtSignature" in part for part in parts)
    names = [call.name for call in _read_google_calls(parts)]
    if _google_text(parts) != message.content or names != [
        call.name for call in message.tool_calls
    ]:
        # made elsewhere, or changed since
        text: list[dict[str, Any]] = [{"text": message.content}] if message.content else []
        parts, signed = text + [{"functionCall": {}} for _ in message.tool_calls], False
    calls = iter(message.tool_calls)
    for at, part in enumerate(parts):
        if "functionCall" in part:
            call = obj(part["functionCall"]) | _write_google_call(next(calls))
            parts[at] = part | {"functionCall": call}
            if not signed:  # only the first of parallel calls has to be
                parts[at]["thoughtSignature"], signed = UNSIGNED, True
    return parts


def _write_google_call(call: ToolCall) -> dict[str, Any]:
    return {"id": call.id, "name": wire_name(call.name), "args": call.parsed or {}}


def _write_google_content(content: Content) -> list[dict[str, Any]]:
    parts = [TextPart(content)] if isinstance(content, str) else content
    # an empty text would be refused
    return [
        _write_google_part(part) for part in parts if not isinstance(part, TextPart) or part.text
    ]


def _write_google_part(part: Part) -> dict[str, Any]:
    if isinstance(part, TextPart):
        return {"text": part.text}
    if isinstance(part, ImagePart | FilePart):
        if part.data is not None:
            data = base64.b64encode(part.data).decode()
            return {"inlineData": {"mimeType": part.media_type, "data": data}}
        url = part.url or ""
        if found := re.fullmatch(r"data:([^;,]+);base64,(.*)", url):
            return {"inlineData": {"mimeType": found[1], "data": found[2]}}
        if re.match("https?://|gs://", url):
            return {"fileData": given({"mimeType": part.media_type, "fileUri": url})}
    raise BadRequest(f"Gemini cannot carry {part!r:.80}")


def _fits_inside(part: dict[str, Any]) -> bool:
    return obj(part.get("inlineData")).get("mimeType") in _MEDIA_IN_RESULTS


def write_google_tool(tool: Tool) -> dict[str, Any]:
    """A tool as Gemini takes it."""
    schema = write_schema(tool.parameters)
    return {"name": tool.name, "description": tool.description, "parametersJsonSchema": schema}


def write_schema(schema: Any) -> Any:
    """A JSON schema without what Gemini refuses (anything beside a $ref) or does not know (const).

    Source: https://ai.google.dev/api/generate-content#FIELDS.response_json_schema
    """
    if isinstance(schema, list):
        return [write_schema(item) for item in objects(schema)]
    out: dict[str, Any] = {}
    for key, value in obj(schema).items():
        if key in ("properties", "$defs"):
            out[key] = {name: write_schema(item) for name, item in obj(value).items()}
        elif key in ("items", "prefixItems", "anyOf", "oneOf", "allOf", "additionalProperties"):
            out[key] = write_schema(value) if isinstance(value, dict | list) else value
        else:
            out[key] = value
    if "const" in out:
        out["enum"] = [out.pop("const")]
    if "$ref" in out and any(not key.startswith("$") for key in out):
        out["anyOf"] = [{"$ref": out.pop("$ref")}, *out.get("anyOf", ())]
    return out


# ---- the reply


def read_google_reply(data: dict[str, Any]) -> AssistantMessage:
    """The message in a reply. BadResponse: there is none, or a call in it that nobody can read."""
    usage, feedback = read_google_usage(data.get("usageMetadata")), obj(data.get("promptFeedback"))
    candidate = (objects(data.get("candidates")) or [{}])[0]
    if not candidate and feedback.get("blockReason"):
        raw: Any = {"provider": "google", "promptFeedback": feedback}
        return AssistantMessage(stop_reason="refused", usage=usage, raw=raw)
    finish = candidate.get("finishReason")
    parts = objects(obj(candidate.get("content")).get("parts"))
    if finish in BROKEN or not (parts or finish):
        raise BadResponse(f"no message in the reply ({finish or 'no candidates'})")
    parts = [part for part in map(given, parts) if part not in ({}, {"text": ""})]
    calls = _read_google_calls(parts)
    stop = stop_reason(GOOGLE_STOP_REASONS, finish, calls)
    raw = {"provider": "google", "parts": parts}
    if stop == "refused":
        raw["finishReason"] = finish
    elif all(part.keys() <= {"text", "thought", "functionCall"} for part in parts):
        raw = None  # nothing that the message does not say itself
    return AssistantMessage(
        content=_google_text(parts),
        tool_calls=calls,
        thinking=_google_text(parts, thought=True) or None,
        usage=usage,
        stop_reason=stop,
        raw=raw,
    )


def _google_text(parts: list[dict[str, Any]], thought: bool = False) -> str:
    texts = [part.get("text") for part in parts if bool(part.get("thought")) == thought]
    return "".join(map(text_in, texts))


def _read_google_calls(parts: list[dict[str, Any]]) -> tuple[ToolCall, ...]:
    calls = [obj(part["functionCall"]) for part in parts if "functionCall" in part]
    return tuple(map(_read_google_call, calls))


def _read_google_call(call: dict[str, Any]) -> ToolCall:
    name, arguments = text_in(call.get("name")), as_json(call.get("args")) or "{}"
    return ToolCall(text_in(call.get("id")), name, arguments)


def read_google_usage(usage: Any) -> Usage | None:
    """Tokens: Gemini counts cached ones as part of the prompt, but thoughts on top of the reply."""
    if not (counts := obj(usage)):
        return None
    thoughts = count(counts.get("thoughtsTokenCount"))
    return Usage(
        input_tokens=count(counts.get("promptTokenCount"))
        + count(counts.get("toolUsePromptTokenCount")),
        output_tokens=count(counts.get("candidatesTokenCount")) + thoughts,
        cached_input_tokens=count(counts.get("cachedContentTokenCount")),
        reasoning_tokens=thoughts,
    )


class GoogleChunks:
    """A streamed reply: each chunk is a reply of its own, with the next parts."""

    def __init__(self, deltas: Deltas) -> None:
        self.complete = False
        self._deltas = deltas
        self._parts: list[dict[str, Any]] = []
        self._finish: Any = None
        self._feedback: dict[str, Any] = {}
        self._usage: dict[str, Any] = {}

    def add(self, event: dict[str, Any]) -> None:
        self._usage |= obj(event.get("usageMetadata"))  # cumulative
        self._feedback |= obj(event.get("promptFeedback"))
        for candidate in objects(event.get("candidates"))[:1]:
            for part in objects(obj(candidate.get("content")).get("parts")):
                show = self._deltas.thinking if part.get("thought") else self._deltas.text
                show(_google_text([part], bool(part.get("thought"))))
                self._parts.append(part)
            self._finish = candidate.get("finishReason") or self._finish
        self.complete = bool(self._finish or self._feedback.get("blockReason"))

    def reply(self) -> dict[str, Any]:
        candidate = {"content": {"parts": _joined(self._parts)}, "finishReason": self._finish}
        candidates = [candidate] if self._parts or self._finish else []
        reply = {"candidates": candidates, "promptFeedback": self._feedback}
        return reply | {"usageMetadata": self._usage}


def _joined(parts: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The parts with pieces of text put together; those with a signature stay as they are."""
    out: list[dict[str, Any]] = []
    for is_piece, run in groupby(parts, _piece_of):
        pieces = [*run]
        out += [pieces[0] | {"text": "".join(p["text"] for p in pieces)}] if is_piece else pieces
    return out


def _piece_of(part: dict[str, Any]) -> str:
    if not isinstance(part.get("text"), str) or not part.keys() <= {"text", "thought"}:
        return ""
    return "thought" if part.get("thought") else "text"
