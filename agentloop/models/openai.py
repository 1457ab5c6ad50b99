"""OpenAI's models, and every server that speaks Chat Completions (vLLM, Ollama, OpenRouter, ...).

Copy with: models/http.py, models/wire.py, models/responses.py and what they name.

Chat Completions is here. Responses, which OpenAI itself is spoken to with, and what both wires
share are in models/responses.py.

Source: https://platform.openai.com/docs/api-reference/chat
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from ..errors import BadResponse, ModelError
from ..messages import (
    AssistantMessage,
    Message,
    SystemMessage,
    ToolCall,
    ToolChoice,
    ToolMessage,
)
from ..tools import Tool
from .http import Accumulator, HTTPModel
from .responses import (
    ResponsesEvents,
    join_details,
    read_responses,
    write_items,
    write_openai_schema,
    write_part,
)
from .wire import (
    JSON,
    given,
    loaded,
    obj,
    objects,
    plain_text,
    read_usage,
    stop_reason,
    wire_id,
    wire_name,
)

if TYPE_CHECKING:
    import httpx

NO_REASONING = "gpt-[34]|gpt-5-chat"  # OpenAI refuses to include the reasoning of these models
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
OPENAI_USAGE = (
    "prompt_tokens | input_tokens",  # of Chat Completions, of Responses
    "completion_tokens | output_tokens",
    "cached_tokens | num_cached_tokens | prompt_cache_hit_tokens",  # OpenAI, Mistral, DeepSeek
    "cache_write_tokens",
    "reasoning_tokens",
)
# OpenRouter, Z.AI, DeepSeek
BROKEN_OFF = "error", "network_error", "insufficient_system_resource"
THOUGHTS = "reasoning_content", "reasoning", "thinking"  # DeepSeek and vLLM; OpenRouter; Mistral
# for the server alone; the last two hold signatures, of OpenRouter and of Gemini
OPAQUE = *THOUGHTS[:2], "reasoning_details", "extra_content"
GROWING = "content", "refusal", *THOUGHTS  # from chunk to chunk


@dataclass(repr=False, eq=False, kw_only=True)
class ChatOpenAI(HTTPModel):
    """A model behind Responses or Chat Completions. Settings that are None are not sent.

    `api` is "responses" or "chat"; without it, OpenAI's own address gets Responses and any other
    Chat Completions. `reasoning_summary` ("auto", say) asks Responses for a summary of the model's
    thinking.

    `max_completion_tokens` bounds the output with its reasoning. Older servers only know
    `max_tokens`, which newer models of OpenAI refuse: set the one that yours takes. `strict` asks
    for arguments that follow the schema exactly, for every tool whose schema allows it.
    """

    temperature: float | None = None
    max_completion_tokens: int | None = None
    max_tokens: int | None = None
    reasoning_effort: str | None = None
    reasoning_summary: str | None = None
    prompt_cache_key: str | None = None
    parallel_tool_calls: bool | None = None
    strict: bool = False
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
        self.chunks = OpenAIChunks if self.api == "chat" else ResponsesEvents

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
        is_chat = self.api == "chat"

        def function(about: JSON) -> JSON:
            return {"type": "function"} | ({"function": about} if is_chat else about)

        # strict is what Responses does unless told otherwise
        plain: JSON = {} if is_chat else {"strict": False}
        named = [
            {"name": tool.name, "description": tool.description}
            | plain
            | write_openai_schema("parameters", tool.parameters, self.strict)
            for tool in tools
        ]
        choice = tool_choice if tools and tool_choice != "auto" else None
        is_word = choice in (None, "required", "none")
        schema = self.output_schema
        form = schema and {"name": "answer"} | write_openai_schema("schema", schema, True)
        body: JSON = {
            "temperature": self.temperature,
            "prompt_cache_key": self.prompt_cache_key,
            "tools": [*map(function, named), *self.provider_tools] or None,
            "parallel_tool_calls": self.parallel_tool_calls if tools else None,
            "tool_choice": choice if is_word else function({"name": choice}),
            "stream": stream or None,
        }
        if is_chat:
            own: JSON = {
                "messages": write_openai_messages(messages, self._owner),
                "max_completion_tokens": self.max_completion_tokens,
                "max_tokens": self.max_tokens,
                "reasoning_effort": self.reasoning_effort,
                "response_format": form and {"type": "json_schema", "json_schema": form},
                "stream_options": {"include_usage": True} if stream else None,
            }
        else:
            reasoning = {"effort": self.reasoning_effort, "summary": self.reasoning_summary}
            own = {
                "input": write_items(messages, self._owner),
                "store": False,
                "include": None
                if re.search(NO_REASONING, self.model)
                else ["reasoning.encrypted_content"],
                "reasoning": given(reasoning) or None,
                "max_output_tokens": self.max_completion_tokens or self.max_tokens,
                "text": form and {"format": {"type": "json_schema"} | form},
            }
        return given({"model": self.model} | own | body)

    def read(self, data: JSON) -> AssistantMessage:
        read = read_openai_reply if self.api == "chat" else read_responses
        return replace(read(data, self._owner), usage=read_usage(data.get("usage"), OPENAI_USAGE))

    def _error(self, response: httpx.Response, said: str, word: Any = None) -> ModelError:
        error = super()._error(response, said, word)
        if response.status_code in (404, 405) or "v1/responses" in said:
            other = "responses" if self.api == "chat" else "chat"
            error.args = (f"{error} (if {self.api!r} is not spoken here, set api={other!r})",)
        return error


# ---- the request


def write_openai_messages(messages: Sequence[Message], owner: str = "") -> list[JSON]:
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
                if not attached:
                    out.append({"role": "user", "content": attached})
                label = f"Attached to the result of {message.tool_name}:"
                attached += [{"type": "text", "text": label}, *media]
            continue
        attached = []
        if not isinstance(message, AssistantMessage):
            role = "system" if isinstance(message, SystemMessage) else "user"
            out.append({"role": role, "content": parts or message.text})
        elif content or message.tool_calls:  # an empty reply would be refused
            out.append(_write_openai_reply(message, owner))
    return out


@lru_cache(1000)  # every request holds all replies so far
def _write_openai_reply(message: AssistantMessage, owner: str) -> JSON:
    out: JSON = {"role": "assistant", "content": message.content or None}
    raw = obj(message.raw)
    own = raw if raw.get("owner") == owner else {}
    if own:  # DeepSeek's thinking models refuse a history without it, even an empty one
        out |= {name: own[name] for name in OPAQUE if name in own}
    if message.tool_calls:
        out["tool_calls"] = [
            {
                **((own and call.extra) or {}),
                "id": wire_id(call.id),
                "type": "function",
                "function": {"name": wire_name(call.name), "arguments": call.wire_arguments},
            }
            for call in message.tool_calls
        ]
    return out


# ---- the reply


def read_openai_reply(data: JSON, owner: str = "") -> AssistantMessage:
    """The message in a reply. LookupError, TypeError or BadResponse: there is none."""
    choice = data["choices"][0]
    finish = choice.get("finish_reason")
    if finish in BROKEN_OFF:
        raise BadResponse(finish)
    has_message = finish != "content_filter"  # Azure filters content without a message
    message = _plain(choice["message"] if has_message else obj(choice.get("message")))
    calls = tuple(map(_read_openai_call, objects(message.get("tool_calls"))))
    opaque, refusal = given({name: message.get(name) for name in OPAQUE}), message.get("refusal")
    is_signed = opaque or any(call.extra for call in calls)
    return AssistantMessage(
        content=plain_text(message.get("content")) or refusal or "",  # Cloudflare: an object
        tool_calls=calls,
        thinking=next(filter(None, map(message.get, THOUGHTS)), None),
        stop_reason="refused" if refusal else stop_reason(OPENAI_STOP_REASONS, finish, calls),
        raw={"provider": "openai", "owner": owner} | opaque if is_signed else None,
    )


def _read_openai_call(call: JSON) -> ToolCall:
    function = obj(call.get("function"))
    name = "extra_content"
    return ToolCall(
        plain_text(call.get("id")),
        plain_text(function.get("name")),
        plain_text(function.get("arguments")),
        extra={name: call[name]} if name in call else None,  # Gemini's signature
    )


def _plain(message: JSON) -> JSON:
    """A message, or a piece of one, with text for Mistral's parts, some of them thinking."""
    if not isinstance(message.get("content"), list):
        return message
    parts = objects(message["content"])
    thoughts = [thought for part in parts for thought in objects(part.get("thinking"))]
    texts = ("".join(plain_text(one.get("text")) for one in some) for some in (parts, thoughts))
    return message | dict(zip(("content", "thinking"), texts, strict=True))


@dataclass
class OpenAIChunks(Accumulator):
    """A streamed reply, put together from the chunks that servers really send."""

    def __post_init__(self) -> None:
        self.data = {"choices": [{"message": {"tool_calls": []}}]}
        self._open: dict[Any, JSON] = {}  # the call that is being written, by its index

    def add(self, event: JSON) -> None:
        if usage := event.get("usage"):
            self.data["usage"] = usage
        [whole] = self.data["choices"]
        message = whole["message"]
        for choice in objects(event.get("choices")):
            for name, piece in given(_plain(obj(choice.get("delta")))).items():
                if name in GROWING:
                    text = plain_text(piece)
                    message[name] = message.get(name, "") + text
                    show = self.thinking if name in THOUGHTS else self.text
                    show(text)
                elif name == "tool_calls":
                    for position, call in enumerate(objects(piece)):
                        self._add_call(position, call)
                elif name == "reasoning_details":
                    message[name] = join_details(message.get(name, []) + objects(piece))
                else:
                    message[name] = piece
            if finish := choice.get("finish_reason"):
                self.complete, whole["finish_reason"] = True, finish

    def _add_call(self, position: int, delta: JSON) -> None:
        """Index, id and name may each be missing, repeated, or the same for two calls."""
        index = delta.get("index", position)
        function = obj(delta.get("function"))
        call_id = delta.get("id") or ""
        name = function.get("name") or ""
        arguments = plain_text(function.get("arguments"))
        call = self._open.get(index)
        if call and name:
            both = call_id and call["id"]  # Gemini gives all calls one index, and no ids
            is_whole = arguments and loaded(call["function"]["arguments"]) is not None
            if call_id != call["id"] if both else is_whole:
                call = None
        if not call:
            call = self._open[index] = {"id": "", "function": {"name": "", "arguments": ""}}
            self.data["choices"][0]["message"]["tool_calls"].append(call)
        known = call["function"]
        if name != known["name"]:
            known["name"] += name
        known["arguments"] += arguments
        call |= delta | {"id": call["id"] or call_id, "function": known}
        self.call(arguments, known["name"], call["id"])
