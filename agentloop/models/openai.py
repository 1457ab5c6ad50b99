"""OpenAI's models, and every server that speaks Chat Completions (vLLM, Ollama, OpenRouter, ...).

Copy with: models/http.py, models/responses.py and what they name.

Chat Completions is here. Responses, which OpenAI itself is spoken to with, and strict schemas are
in models/responses.py.

Source: https://platform.openai.com/docs/api-reference/chat
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..errors import BadRequest, ModelError
from ..messages import (
    AssistantMessage,
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
    Accumulator,
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
    wire_id,
    wire_name,
)

if TYPE_CHECKING:
    import httpx

    from ..tools import Tool

OPENAI_STOP_REASONS = {
    "stop": "end",
    "length": "length",
    "content_filter": "refused",
}
REASONING = ("reasoning_content", "reasoning")  # DeepSeek's and vLLM's name, OpenRouter's name
PATHS = {"chat": "/chat/completions", "responses": "/responses"}


@dataclass(repr=False, eq=False, kw_only=True)
class ChatOpenAI(HTTPModel):
    """A model behind Responses or Chat Completions. Settings that are None are not sent.

    `api` is "responses" or "chat"; without it, OpenAI's own address gets Responses and any other
    Chat Completions. `reasoning_summary` ("auto", say) asks Responses for a summary of the model's
    thinking.

    `max_completion_tokens` bounds the output with its reasoning. Older servers only know
    `max_tokens`, which newer models of OpenAI refuse: set the one that yours takes.
    `system_role` is "developer" for models that want it so. `strict` asks for arguments that
    follow the schema exactly, for every tool whose schema allows it.
    """

    temperature: float | None = None
    max_completion_tokens: int | None = None
    max_tokens: int | None = None
    reasoning_effort: str | None = None
    reasoning_summary: str | None = None
    prompt_cache_key: str | None = None
    parallel_tool_calls: bool | None = None
    strict: bool = False
    system_role: str = "system"
    api: str | None = None

    key_variable = "OPENAI_API_KEY"
    url_variable = "OPENAI_BASE_URL"
    default_url = "https://api.openai.com/v1"

    def __post_init__(self) -> None:
        super().__post_init__()
        at_openai = "api.openai.com/" in f"{self.base_url}/"  # also eu.api.openai.com
        self.api = self.api or ("responses" if at_openai else "chat")
        if self.api not in PATHS:
            raise ValueError(f"{self!r}: api is 'responses' or 'chat', not {self.api!r}")
        # whose reasoning no other server or model may see; hashed, for it may hold a password
        self._owner = hashlib.sha256(f"{self.base_url} {self.model}".encode()).hexdigest()[:16]

    def headers(self) -> dict[str, str]:
        return {"authorization": f"Bearer {self.api_key}"} if self.api_key else {}

    def path(self, stream: bool) -> str:
        return PATHS[str(self.api)]

    def body(
        self,
        messages: Sequence[Message],
        tools: Sequence[Tool],
        tool_choice: ToolChoice,
        stream: bool,
    ) -> JSON:
        body: JSON = {
            "model": self.model,
            "temperature": self.temperature,
            "max_completion_tokens": self.max_completion_tokens,
            "max_tokens": self.max_tokens,
            "reasoning_effort": self.reasoning_effort,
            "reasoning_summary": self.reasoning_summary,
            "prompt_cache_key": self.prompt_cache_key,
        }
        if tools:
            body["tools"] = [write_openai_tool(tool, self.strict) for tool in tools]
            body["parallel_tool_calls"] = self.parallel_tool_calls
            if tool_choice in ("required", "none"):
                body["tool_choice"] = tool_choice
            elif tool_choice != "auto":
                body["tool_choice"] = {"type": "function", "function": {"name": tool_choice}}
        if stream:
            body |= {"stream": True, "stream_options": {"include_usage": True}}
        if self.api == "chat":
            return given(body | {"messages": write_openai_messages(messages, self.system_role)})
        from .responses import write_responses

        return write_responses(body, messages, self.system_role, self._owner)

    def read(self, data: JSON) -> AssistantMessage:
        if self.api == "chat":
            return read_openai_reply(data)
        from .responses import read_responses

        return read_responses(data, self._owner)

    def accumulator(self, deltas: Deltas) -> Accumulator:
        if self.api == "chat":
            return OpenAIChunks(deltas)
        from .responses import ResponsesEvents

        return ResponsesEvents(deltas)

    def _parse(self, response: httpx.Response, content: bytes | bytearray) -> JSON:
        data = super()._parse(response, content)
        # Responses: the event is an error itself, or has a failed response in it
        error = data if data.get("type") == "error" else obj(data.get("response")).get("error")
        if error:
            word = obj(error).get("code") or "unknown"
            raise self._error(response, content.decode(errors="replace"), word)
        return data

    def _error(self, response: httpx.Response, said: str, word: Any = None) -> ModelError:
        error = super()._error(response, said, word)
        if response.status_code in (404, 405) or "v1/responses" in said:
            other = "responses" if self.api == "chat" else "chat"
            error.args = (f"{error} (if {self.api!r} is not spoken here, set api={other!r})",)
        return error


# ---- the request


def write_openai_messages(messages: Sequence[Message], system_role: str) -> list[JSON]:
    """Messages as Chat Completions takes them. BadRequest: a part that it cannot carry.

    Tool results are text there: a user message behind the last one of a turn has their images.
    """
    out: list[JSON] = []
    attached: list[JSON] = []  # the content of that user message
    for message in messages:
        content = message.content
        parts = [] if isinstance(content, str) else [_write_openai_part(part) for part in content]
        if isinstance(message, ToolMessage):
            media = [part for part in parts if part["type"] != "text"]
            call_id = wire_id(message.tool_call_id)
            result = {"role": "tool", "tool_call_id": call_id, "content": message.text}
            out.insert(len(out) - bool(attached), result)
            if media:
                note = f"\n[attached to the next user message: {len(media)}]"
                result["content"] = (message.text + note).lstrip()
                if not attached:
                    out.append({"role": "user", "content": attached})
                label = f"Attached to the result of {message.tool_name}:"
                attached += [{"type": "text", "text": label}, *media]
            continue
        attached = []
        if not isinstance(message, AssistantMessage):
            role = system_role if isinstance(message, SystemMessage) else "user"
            out.append({"role": role, "content": parts or message.text})
        elif content or message.tool_calls:  # an empty reply would be refused
            out.append(_write_openai_assistant(message))
    return out


def _write_openai_assistant(message: AssistantMessage) -> JSON:
    out: JSON = {"role": "assistant", "content": message.content or None}
    raw = obj(message.raw)
    if raw.get("provider") == "openai":
        # DeepSeek's thinking models refuse a history without it, even an empty one
        out |= {name: raw[name] for name in REASONING if name in raw}
    if message.tool_calls:
        out["tool_calls"] = [
            {
                "id": wire_id(call.id),
                "type": "function",
                "function": {"name": wire_name(call.name), "arguments": call.wire_arguments},
            }
            for call in message.tool_calls
        ]
    return out


def _write_openai_part(part: Part) -> JSON:
    if isinstance(part, TextPart):
        return {"type": "text", "text": part.text}
    if isinstance(part, ImagePart | FilePart):
        data = base64.b64encode(part.data or b"").decode()
        url = part.url or f"data:{part.media_type};base64,{data}"
        if isinstance(part, ImagePart):
            return {"type": "image_url", "image_url": {"url": url}}
        if data:
            return {"type": "file", "file": {"filename": part.name or "file", "file_data": url}}
    raise BadRequest(f"Chat Completions cannot carry {part!r:.80}; a file needs data=, not url=")


def write_openai_tool(tool: Tool, strict: bool) -> JSON:
    """A tool as Chat Completions takes it."""
    function: JSON = {
        "name": tool.name,
        "description": tool.description,
        "parameters": tool.parameters,
    }
    out: JSON = {"type": "function", "function": function}
    if not strict:
        return out
    from .responses import strict_schema

    if schema := strict_schema(tool.parameters):
        function |= {"parameters": schema, "strict": True}
    return out


# ---- the reply


def read_openai_reply(data: JSON) -> AssistantMessage:
    """The message in a reply. LookupError or TypeError: there is none."""
    choice = data["choices"][0]
    message: JSON = choice["message"]
    thinking: dict[str, str] = given({name: message.get(name) for name in REASONING})
    calls = tuple(map(_read_openai_call, objects(message.get("tool_calls"))))
    refusal = message.get("refusal") or ""
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
    """Content is text, null, or a list of parts (Mistral)."""
    if isinstance(content, str):
        return content
    return "".join(text_in(part.get("text")) for part in objects(content))


def _read_openai_call(call: JSON) -> ToolCall:
    function = obj(call.get("function")) or call
    name, arguments = text_in(function.get("name")), as_json(function.get("arguments"))
    return ToolCall(text_in(call.get("id")), name, arguments)


def read_openai_usage(usage: Any) -> Usage | None:
    """Tokens: cached ones are part of the input, reasoning ones of the output."""
    counts = obj(usage)
    reasoning = count(obj(counts.get("completion_tokens_details")).get("reasoning_tokens"))
    written = count(counts.get("completion_tokens"))
    read = count(counts.get("prompt_tokens"))
    cached = count(obj(counts.get("prompt_tokens_details")).get("cached_tokens"))
    return Usage(read, written, cached, reasoning_tokens=reasoning) if counts else None


class OpenAIChunks:
    """A streamed reply, put together from the chunks that servers really send."""

    def __init__(self, deltas: Deltas) -> None:
        self.complete = False
        self._deltas = deltas
        self._open: dict[Any, JSON] = {}  # the call that is being written, by its index
        self._message: JSON = {"tool_calls": []}
        self._choice: JSON = {"message": self._message}
        self._usage: Any = None

    def add(self, event: JSON) -> None:
        self._usage = event.get("usage") or self._usage
        for choice in objects(event.get("choices")):
            delta = obj(choice.get("delta"))
            for name in ("content", "refusal", *REASONING):
                if (piece := delta.get(name)) is not None:
                    text = _openai_text(piece)
                    self._message[name] = self._message.get(name, "") + text
                    show = self._deltas.thinking if name in REASONING else self._deltas.text
                    show(text)
            for position, call in enumerate(objects(delta.get("tool_calls"))):
                self._add_call(position, call)
            if finish := choice.get("finish_reason"):
                self._choice["finish_reason"], self.complete = finish, True

    def _add_call(self, position: int, delta: JSON) -> None:
        """Index, id and name may each be missing, repeated, or the same for two calls."""
        index, function = delta.get("index", position), obj(delta.get("function"))
        call_id, name = delta.get("id") or "", function.get("name") or ""
        arguments, call = as_json(function.get("arguments")), self._open.get(index)
        if call and name:  # Gemini gives all calls one index, and no ids
            is_whole = arguments and loaded(call["arguments"]) is not None
            if call_id != call["id"] if call_id and call["id"] else is_whole:
                call = None
        if not call:
            call = self._open[index] = {"id": "", "name": "", "arguments": ""}
            self._message["tool_calls"].append(call)
        call["id"] = call["id"] or call_id
        if name != call["name"]:
            call["name"] += name
        call["arguments"] += arguments
        self._deltas.call(arguments, call["name"], call["id"])

    def reply(self) -> JSON:
        return {"choices": [self._choice], "usage": self._usage}
