"""OpenAI's models, and every server that speaks Chat Completions (vLLM, Ollama, OpenRouter, ...).

Copy with: models/http.py, models/wire.py, models/responses.py and what they name.

Chat Completions is here. Responses, which OpenAI itself is spoken to with, and what both wires
share are in models/responses.py.

Source: https://platform.openai.com/docs/api-reference/chat
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import chain, repeat
from typing import TYPE_CHECKING, Any

from ..errors import BadResponse, ModelError
from ..events import OnDelta
from ..messages import (
    AssistantMessage,
    Message,
    SystemMessage,
    ToolCall,
    ToolChoice,
    ToolMessage,
)
from .http import HTTPModel, as_json, given, loaded, obj, objects, text_in
from .responses import (
    ResponsesEvents,
    join_details,
    read_openai_usage,
    read_responses,
    write_openai_schema,
    write_part,
    write_responses,
)
from .wire import JSON, Accumulator, stop_reason, wire_id, wire_name

if TYPE_CHECKING:
    import httpx

    from ..tools import Tool

SENT = (
    *("model", "temperature", "max_completion_tokens", "max_tokens", "reasoning_effort"),
    *("reasoning_summary", "prompt_cache_key"),
)
OPENAI_STOP_REASONS = {
    "stop": "end",
    "eos": "end",  # Together
    "eos_token": "end",  # TGI, SGLang
    "function_call": "tool_calls",
    "length": "length",
    "model_length": "length",  # Mistral
    "content_filter": "refused",
    "sensitive": "refused",  # Z.AI
    "guardrail_intervened": "refused",  # Bedrock
}
# OpenRouter, Z.AI, DeepSeek
BROKEN_OFF = ("error", "network_error", "insufficient_system_resource")
THOUGHTS = ("reasoning_content", "reasoning", "thinking")  # DeepSeek and vLLM; OpenRouter; Mistral
# for the server alone; the last two hold signatures, of OpenRouter and of Gemini
OPAQUE = (*THOUGHTS[:2], "reasoning_details", "extra_content")


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
        if self.api not in ("responses", "chat"):
            raise ValueError(f"{self!r}: api is 'responses' or 'chat', not {self.api!r}")

    @property
    def _owner(self) -> str:
        """Whose reasoning no other server or model may see; hashed, for it may hold a password."""
        return hashlib.sha256(f"{self.base_url} {self.model}".encode()).hexdigest()[:16]

    def headers(self) -> dict[str, str]:
        return {"authorization": f"Bearer {self.api_key}"} if self.api_key else {}

    def path(self, stream: bool) -> str:
        return "/responses" if self.api == "responses" else "/chat/completions"

    def body(
        self,
        messages: Sequence[Message],
        tools: Sequence[Tool],
        tool_choice: ToolChoice,
        stream: bool,
    ) -> JSON:
        body: JSON = {name: getattr(self, name) for name in SENT}
        if self.output_schema:
            form = {"name": "answer"} | write_openai_schema("schema", self.output_schema, True)
            body["response_format"] = {"type": "json_schema", "json_schema": form}
        written = [write_openai_tool(tool, self.strict) for tool in tools]
        body["tools"] = [*written, *self.provider_tools] or None
        if tools:
            body["parallel_tool_calls"] = self.parallel_tool_calls
        if tools and tool_choice != "auto":
            named: Any = {"type": "function", "function": {"name": tool_choice}}
            body["tool_choice"] = tool_choice if tool_choice in ("required", "none") else named
        if stream:
            body |= {"stream": True, "stream_options": {"include_usage": True}}
        if self.api == "chat":
            body["messages"] = write_openai_messages(messages, self.system_role, self._owner)
            return given(body)
        return write_responses(body, messages, self.system_role, self._owner)

    def read(self, data: JSON) -> AssistantMessage:
        read = read_openai_reply if self.api == "chat" else read_responses
        return replace(read(data, self._owner), usage=read_openai_usage(data.get("usage")))

    def accumulator(self, on_delta: OnDelta | None) -> Accumulator:
        return OpenAIChunks(on_delta) if self.api == "chat" else ResponsesEvents(on_delta)

    def _error(self, response: httpx.Response, said: str, word: Any = None) -> ModelError:
        error = super()._error(response, said, word)
        if response.status_code in (404, 405) or "v1/responses" in said:
            other = "responses" if self.api == "chat" else "chat"
            error.args = (f"{error} (if {self.api!r} is not spoken here, set api={other!r})",)
        return error


# ---- the request


def write_openai_messages(
    messages: Sequence[Message], system_role: str, owner: str = ""
) -> list[JSON]:
    """Messages as Chat Completions takes them. BadRequest: a part that it cannot carry.

    `owner` stands for the server and the model: no other gets what is opaque.
    Tool results are text there: a user message behind the last one of a turn has their images.
    """
    out: list[JSON] = []
    attached: list[JSON] = []  # the content of that user message
    for message in messages:
        content = message.content
        parts = [] if isinstance(content, str) else [*map(write_part, content)]
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
            out.append(_write_openai_assistant(message, owner))
    return out


def _write_openai_assistant(message: AssistantMessage, owner: str) -> JSON:
    out: JSON = {"role": "assistant", "content": message.content or None}
    raw, calls = obj(message.raw), message.tool_calls
    kept: JSON = raw if raw.get("owner") == owner else {}
    # DeepSeek's thinking models refuse a history without it, even an empty one
    out |= {name: kept[name] for name in OPAQUE if name in kept}
    beside: list[JSON] = kept.get("calls", [])
    if calls:
        out["tool_calls"] = [
            {
                "id": wire_id(call.id),
                "type": "function",
                "function": {"name": wire_name(call.name), "arguments": call.wire_arguments},
            }
            | more
            for call, more in zip(calls, chain(beside, repeat({})), strict=False)
        ]
    return out


def _signed(sent: JSON) -> JSON:
    """The signature that Gemini puts beside a message, or beside a call."""
    return {name: sent[name] for name in ("extra_content",) if name in sent}


def write_openai_tool(tool: Tool, strict: bool) -> JSON:
    """A tool as Chat Completions takes it."""
    about = {"name": tool.name, "description": tool.description}
    schema = write_openai_schema("parameters", tool.parameters, strict)
    return {"type": "function", "function": about | schema}


# ---- the reply


def read_openai_reply(data: JSON, owner: str = "") -> AssistantMessage:
    """The message in a reply. LookupError, TypeError or BadResponse: there is none."""
    choice = data["choices"][0]
    finish = choice.get("finish_reason")
    if finish in BROKEN_OFF:
        raise BadResponse(finish)
    filtered = finish == "content_filter"  # Azure: without a message
    message = _plain(obj(choice.get("message")) if filtered else choice["message"])
    sent, refusal = objects(message.get("tool_calls")), message.get("refusal")
    calls = tuple(map(_read_openai_call, sent))
    opaque, beside = given({name: message.get(name) for name in OPAQUE}), [*map(_signed, sent)]
    opaque |= {"calls": beside} if any(beside) else {}
    stop = stop_reason(OPENAI_STOP_REASONS, finish, calls)
    return AssistantMessage(
        content=message.get("content") or refusal or "",
        tool_calls=calls,
        thinking=next(filter(None, map(message.get, THOUGHTS)), None),
        stop_reason="refused" if refusal else stop,
        raw={"provider": "openai", "owner": owner} | opaque if opaque else None,
    )


def _plain(message: JSON) -> JSON:
    """A message, or a piece of one, with text for content that is none.

    That is a list of parts (Mistral, some of them thinking), or an object (Cloudflare).
    """
    content: Any = message.get("content")
    if isinstance(content, list):
        parts = objects(content)
        thoughts = [part for each in parts for part in objects(each.get("thinking"))]
        return message | {"content": _texts_in(parts), "thinking": _texts_in(thoughts)}
    return message | {"content": as_json(content)} if isinstance(content, dict) else message


def _texts_in(parts: Sequence[JSON]) -> str:
    return "".join(text_in(part.get("text")) for part in parts)


def _read_openai_call(call: JSON) -> ToolCall:
    function = obj(call.get("function")) or call
    return ToolCall(
        text_in(call.get("id")), text_in(function.get("name")), as_json(function.get("arguments"))
    )


@dataclass
class OpenAIChunks(Accumulator):
    """A streamed reply, put together from the chunks that servers really send."""

    def __post_init__(self) -> None:
        self._message: JSON = {"tool_calls": []}
        self._open: dict[Any, JSON] = {}  # the call that is being written, by its index
        self._details: list[JSON] = []

    def add(self, event: JSON) -> None:
        message = self._message
        self.data["usage"] = event.get("usage") or self.data.get("usage")
        for choice in objects(event.get("choices")):
            delta = _plain(obj(choice.get("delta")))
            for name in ("content", "refusal", *THOUGHTS):
                if (piece := delta.get(name)) is not None:
                    message[name] = message.get(name, "") + piece
                    show = self.thinking if name in THOUGHTS else self.text
                    show(piece)
            message |= _signed(delta)
            self._details += objects(delta.get("reasoning_details"))
            for position, call in enumerate(objects(delta.get("tool_calls"))):
                self._add_call(position, call)
            if finish := choice.get("finish_reason"):
                self.complete = True
                self.data["finish_reason"] = finish

    def _add_call(self, position: int, delta: JSON) -> None:
        """Index, id and name may each be missing, repeated, or the same for two calls."""
        index, function = delta.get("index", position), obj(delta.get("function"))
        call_id, name = delta.get("id") or "", function.get("name") or ""
        arguments, call = as_json(function.get("arguments")), self._open.get(index)
        if call and name:
            if call_id and call["id"]:
                is_other = call_id != call["id"]
            else:  # Gemini gives all calls one index, and no ids
                is_other = arguments and loaded(call["arguments"]) is not None
            call = None if is_other else call
        if not call:
            call = self._open[index] = {"id": "", "name": "", "arguments": ""}
            self._message["tool_calls"].append(call)
        call["id"] = call["id"] or call_id
        if name != call["name"]:
            call["name"] += name
        call["arguments"] += arguments
        call |= _signed(delta)
        self.call(arguments, call["name"], call["id"])

    def reply(self) -> JSON:
        details = join_details(self._details) or None
        message = self._message | given({"reasoning_details": details})
        return {"choices": [{"message": message, **self.data}], "usage": self.data.get("usage")}
