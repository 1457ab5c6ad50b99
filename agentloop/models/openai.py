"""OpenAI's Chat Completions, and every server that speaks it (vLLM, Ollama, OpenRouter, ...).

Copy with: messages.py, events.py, errors.py, transcript.py, models/http.py, models/clients.py.

Source: https://platform.openai.com/docs/api-reference/chat
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

from pydantic_core import to_json

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
    written,
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

OPENAI_STOP_REASONS = {
    "stop": "end",
    "tool_calls": "tool_calls",
    "function_call": "tool_calls",
    "length": "length",
    "content_filter": "refused",
}
REASONING = ("reasoning_content", "reasoning")  # what compatible servers call it
TEXTS = ("content", "refusal", *REASONING)  # of a message


@dataclass(repr=False, eq=False, kw_only=True)
class ChatOpenAI(HTTPModel):
    """A model behind Chat Completions. Settings that are None are not sent.

    `max_completion_tokens` bounds the output with its reasoning. Older servers only know
    `max_tokens`, which newer models of OpenAI refuse: set the one that yours takes.
    `system_role` is "developer" for models that want it so. `strict` asks for arguments that
    follow the schema exactly, for every tool whose schema allows it.
    OpenAI's models since gpt-5.4 take tools here only with `reasoning_effort="none"`.
    """

    temperature: float | None = None
    max_completion_tokens: int | None = None
    max_tokens: int | None = None
    reasoning_effort: str | None = None
    prompt_cache_key: str | None = None
    parallel_tool_calls: bool | None = None
    strict: bool = False
    system_role: str = "system"

    key_variable: ClassVar[str] = "OPENAI_API_KEY"
    url_variable: ClassVar[str] = "OPENAI_BASE_URL"
    default_url: ClassVar[str] = "https://api.openai.com/v1"
    # OpenAI, since gpt-5.4: "Function tools with reasoning_effort are not supported for gpt-5.5 in
    # /v1/chat/completions", also where none was sent.
    # Source: https://github.com/openai/openai-openapi/issues/541
    hints: ClassVar[Mapping[str, str]] = {
        "reasoning_effort.*/v1/responses": (
            'ChatOpenAI does not speak Responses: give it reasoning_effort="none"'
        )
    }

    def headers(self) -> dict[str, str]:
        return {"authorization": f"Bearer {self.api_key}"} if self.api_key else {}

    def path(self, stream: bool) -> str:
        return "/chat/completions"

    def body(self, request: Request, stream: bool) -> dict[str, Any]:
        body: dict[str, Any] = {
            "model": self.model,
            "messages": write_openai_messages(request.messages, self.system_role),
            "temperature": self.temperature,
            "max_completion_tokens": self.max_completion_tokens,
            "max_tokens": self.max_tokens,
            "reasoning_effort": self.reasoning_effort,
            "prompt_cache_key": self.prompt_cache_key,
        }
        if request.tools:
            body["tools"] = [write_openai_tool(tool, self.strict) for tool in request.tools]
            body["parallel_tool_calls"] = self.parallel_tool_calls
            if (choice := request.tool_choice) in ("required", "none"):
                body["tool_choice"] = choice
            elif choice != "auto":
                body["tool_choice"] = {"type": "function", "function": {"name": choice}}
        if stream:
            body |= {"stream": True, "stream_options": {"include_usage": True}}
        return given(body)

    def content(self, request: Request, stream: bool) -> bytes:
        """As `body` says, from the bytes that each message keeps, which are copied once."""
        if "messages" in self.extra or type(self).body is not ChatOpenAI.body:
            return super().content(request, stream)
        kind = f"openai, {self.system_role}"
        try:
            pieces = [*filter(None, written(request.messages, kind, self._encode))]
        except _Attached:
            return super().content(request, stream)
        rest = super().content(replace(request, messages=()), stream)
        if not pieces:
            return rest
        head, _, tail = rest.partition(b'"messages":[]')
        pieces[-1] = pieces[-1].removesuffix(b",")
        return b"".join([head, b'"messages":[', *pieces, b"]", tail])

    def _encode(self, message: Message) -> bytes:
        if isinstance(message, ToolMessage) and not isinstance(message.content, str):
            raise _Attached
        sent = write_openai_messages([message], self.system_role)
        return b"".join(to_json(each) + b"," for each in sent)

    def read(self, data: dict[str, Any]) -> AssistantMessage:
        return read_openai_reply(data)

    def accumulator(self, deltas: Deltas) -> OpenAIChunks:
        return OpenAIChunks(deltas)


# ---- the request


class _Attached(Exception):
    """There is a tool result with more than text, which takes two messages to send."""


def write_openai_messages(messages: Sequence[Message], system_role: str) -> list[dict[str, Any]]:
    """Messages as Chat Completions takes them. BadRequest: a part that it cannot carry."""
    out: list[dict[str, Any]] = []
    attached: list[dict[str, Any]] = []  # tool results are text: a user message brings the rest
    for message in messages:
        if attached and not isinstance(message, ToolMessage):
            out.append({"role": "user", "content": attached})
            attached = []
        if isinstance(message, SystemMessage):
            out.append({"role": system_role, "content": message.content})
        elif isinstance(message, UserMessage):
            out.append({"role": "user", "content": _write_openai_content(message.content)})
        elif isinstance(message, ToolMessage):
            text, media = message.text, _media(message.content)
            if media:
                text = f"{text}\n[attached to the next user message: {len(media)}]".lstrip()
                label = TextPart(f"Attached to the result of {message.tool_name}:")
                attached += map(_write_openai_part, [label, *media])
            call_id = _write_openai_id(message.tool_call_id)
            out.append({"role": "tool", "tool_call_id": call_id, "content": text})
        elif message.content or message.tool_calls:  # an empty reply would be refused
            out.append(_write_openai_assistant(message))
    return [*out, {"role": "user", "content": attached}] if attached else out


def _write_openai_assistant(message: AssistantMessage) -> dict[str, Any]:
    out: dict[str, Any] = {"role": "assistant", "content": message.content or None}
    raw = obj(message.raw)
    if raw.get("provider") == "openai":
        # thinking models of compatible servers refuse a history without it, even an empty one
        out |= {name: raw[name] for name in REASONING if name in raw}
    if message.tool_calls:
        out["tool_calls"] = [_write_openai_call(call) for call in message.tool_calls]
    return out


def _write_openai_call(call: ToolCall) -> dict[str, Any]:
    function = {"name": wire_name(call.name), "arguments": call.wire_arguments}
    return {"id": _write_openai_id(call.id), "type": "function", "function": function}


def _write_openai_id(call_id: str) -> str:
    """At most 40 characters, which is all that OpenAI takes of other servers' ids."""
    return call_id if len(call_id) <= 40 else hashlib.sha256(call_id.encode()).hexdigest()[:40]


def _write_openai_content(content: Content) -> Any:
    return content if isinstance(content, str) else [_write_openai_part(part) for part in content]


def _media(content: Content) -> list[Part]:
    parts = () if isinstance(content, str) else content
    return [part for part in parts if not isinstance(part, TextPart)]


def _write_openai_part(part: Part) -> dict[str, Any]:
    if isinstance(part, TextPart):
        return {"type": "text", "text": part.text}
    if isinstance(part, ImagePart):
        return {"type": "image_url", "image_url": {"url": part.url or _data_url(part)}}
    if isinstance(part, FilePart) and part.data is not None:
        file = {"filename": part.name or "file", "file_data": _data_url(part)}
        return {"type": "file", "file": file}
    if isinstance(part, FilePart):
        raise BadRequest("Chat Completions takes no file by its url: give FilePart(data=...)")
    raise BadRequest(f"Chat Completions cannot carry {part!r:.80}")


def _data_url(part: ImagePart | FilePart) -> str:
    return f"data:{part.media_type};base64,{base64.b64encode(part.data or b'').decode()}"


def write_openai_tool(tool: Tool, strict: bool = False) -> dict[str, Any]:
    """A tool as Chat Completions takes it."""
    function: dict[str, Any] = {
        "name": tool.name,
        "description": tool.description,
        "parameters": tool.parameters,
    }
    if strict and (schema := strict_schema(tool.parameters)):
        function |= {"parameters": schema, "strict": True}
    return {"type": "function", "function": function}


# ---- strict schemas

_STRICT_KEYWORDS = re.compile(
    r"type|properties|required|additionalProperties|items|enum|const|anyOf|\$ref|\$defs|title|"
    "description|pattern|format|minimum|maximum|exclusiveMinimum|exclusiveMaximum|multipleOf|"
    "minItems|maxItems"
)


def strict_schema(schema: dict[str, Any]) -> dict[str, Any] | None:
    """The schema for strict mode, or None if it does not qualify.

    Every parameter is required there: optional ones become nullable, and null means the default.
    Source: https://platform.openai.com/docs/guides/structured-outputs#supported-schemas
    """
    properties: dict[str, Any] = {}
    for name, value in obj(schema.get("properties")).items():
        if name not in schema.get("required", ()):
            value = {key: item for key, item in value.items() if key != "default"}
            if {"type": "null"} not in value.get("anyOf", ()):
                value = {"anyOf": [value, {"type": "null"}]}
        properties[name] = value
    schema = schema | {"properties": properties, "required": list(properties)}
    schema["additionalProperties"] = False
    return schema if _is_strict(schema) else None


def _is_strict(schema: dict[str, Any]) -> bool:
    keys, properties = schema.keys(), obj(schema.get("properties"))
    if "$ref" in keys:
        return len(keys) == 1
    if not all(map(_STRICT_KEYWORDS.fullmatch, keys)):
        return False
    if not keys & {"type", "anyOf", "enum", "const"}:
        return False
    if schema.get("type") == "object":
        closed = schema.get("additionalProperties") is False
        if not closed or set(schema.get("required", ())) != properties.keys():
            return False
    if schema.get("type") == "array" and "items" not in keys:
        return False
    inner = [*properties.values(), *obj(schema.get("$defs")).values(), *schema.get("anyOf", ())]
    inner += [schema["items"]] if "items" in keys else []
    return all(isinstance(item, dict) and _is_strict(obj(item)) for item in inner)


# ---- the reply


def read_openai_reply(data: dict[str, Any]) -> AssistantMessage:
    """The message in a reply. BadResponse: there is none."""
    choices = objects(data.get("choices"))
    if not choices or not isinstance(choices[0].get("message"), dict):
        raise BadResponse("no message in the reply")
    choice, message = choices[0], obj(choices[0]["message"])
    found = {name: message.get(name) for name in REASONING}
    thinking = {name: text for name, text in found.items() if isinstance(text, str)}
    calls = tuple(map(_read_openai_call, objects(message.get("tool_calls"))))
    refusal = text_in(message.get("refusal"))
    stop = stop_reason(OPENAI_STOP_REASONS, choice.get("finish_reason"), calls)
    return AssistantMessage(
        content=_openai_text(message.get("content")) or refusal,
        tool_calls=calls,
        thinking=next(filter(None, thinking.values()), None),
        usage=read_openai_usage(data.get("usage")),
        stop_reason="refused" if refusal else stop,
        raw={"provider": "openai", **thinking} if thinking else None,
    )


def _openai_text(content: Any) -> str:
    """Content is text, null, or a list of parts."""
    if isinstance(content, str):
        return content
    return "".join(text_in(part.get("text") or part.get("refusal")) for part in objects(content))


def _read_openai_call(call: dict[str, Any]) -> ToolCall:
    function = obj(call.get("function"))
    name, arguments = text_in(function.get("name")), as_json(function.get("arguments"))
    return ToolCall(text_in(call.get("id")), name, arguments)


def read_openai_usage(usage: Any) -> Usage | None:
    """Tokens: cached ones are part of the input, reasoning ones of the output."""
    if not (counts := obj(usage)):
        return None
    read = obj(counts.get("prompt_tokens_details"))
    written = obj(counts.get("completion_tokens_details"))
    return Usage(
        input_tokens=count(counts.get("prompt_tokens")),
        output_tokens=count(counts.get("completion_tokens")),
        cached_input_tokens=count(read.get("cached_tokens")),
        reasoning_tokens=count(written.get("reasoning_tokens")),
    )


class OpenAIChunks:
    """A streamed reply, put together from the chunks that servers really send."""

    def __init__(self, deltas: Deltas) -> None:
        self.complete = False
        self._deltas = deltas
        self._texts: dict[str, list[str]] = {}  # content, refusal, reasoning_content
        self._calls: list[dict[str, Any]] = []
        self._open: dict[int, dict[str, Any]] = {}  # the call that is being written, by index
        self._finish: str | None = None
        self._usage: Any = None

    def add(self, event: dict[str, Any]) -> None:
        self._usage = event.get("usage") or self._usage
        for choice in objects(event.get("choices")):
            delta = obj(choice.get("delta"))
            for name, piece in delta.items():
                if name in TEXTS and piece is not None:
                    text = _openai_text(piece)
                    self._texts.setdefault(name, []).append(text)
                    show = self._deltas.thinking if name in REASONING else self._deltas.text
                    show(text)
            for position, call in enumerate(objects(delta.get("tool_calls"))):
                self._add_call(position, call)
            self._finish = choice.get("finish_reason") or self._finish
        self.complete = self._finish is not None

    def _add_call(self, position: int, delta: dict[str, Any]) -> None:
        """Index, id and name may each be missing, repeated, or the same for two calls."""
        function = obj(delta.get("function"))
        call_id, name = text_in(delta.get("id")), text_in(function.get("name"))
        arguments = as_json(function.get("arguments"))
        index = delta.get("index")
        index = index if isinstance(index, int) else position
        call = self._open.get(index)
        if call is None or (name and _is_another(call, call_id, arguments)):
            call = self._open[index] = {"id": call_id, "name": "", "arguments": ""}
            self._calls.append(call)
        if name != call["name"]:
            call["name"] += name
        call["id"] = call["id"] or call_id
        call["arguments"] += arguments

    def reply(self) -> dict[str, Any]:
        message: dict[str, Any] = {name: "".join(texts) for name, texts in self._texts.items()}
        message["tool_calls"] = [{"id": call["id"], "function": call} for call in self._calls]
        choice = {"message": message, "finish_reason": self._finish}
        return {"choices": [choice], "usage": self._usage}


def _is_another(call: dict[str, Any], call_id: str, arguments: str) -> bool:
    """Whether a delta with a name begins another call, though its index is this one's."""
    if call_id and call["id"]:
        return bool(call_id != call["id"])
    try:
        json.loads(call["arguments"])
    except ValueError:
        return False
    return bool(arguments)  # nothing can follow whole arguments
