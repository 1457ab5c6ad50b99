"""OpenAI's models, and servers with Chat Completions (vLLM, Ollama, OpenRouter, ...).

Copy with: common/model_info.py, models/http.py, models/wire.py, models/responses.py and their
imports.

This module contains Chat Completions. models/responses.py contains Responses, the default API for
OpenAI's own address, and the functions shared by both.

Source: https://platform.openai.com/docs/api-reference/chat
"""

from __future__ import annotations

import base64
import hashlib
import re
import sys
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from ..common.model_info import CacheRules
from ..errors import BadResponse, ModelError
from ..messages import (
    JSON,
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
    UserMessage,
    text_of,
)
from ..tools import Tool
from .http import HTTPModel, chat_model
from .responses import (
    ResponsesEvents,
    join_details,
    read_openai_usage,
    read_responses,
    write_items,
    write_openai_schema,
    write_part,
)
from .wire import (
    Accumulator,
    as_dict,
    as_dicts,
    declare,
    drop_none,
    encode_exchanges,
    parse_json,
    plain_text,
    read_citations,
    split_exchanges,
    stop_reason,
    wire_arguments,
    wire_id,
    wire_name,
)

if TYPE_CHECKING:
    import httpx

NO_REASONING = "gpt-[34]|gpt-5-chat"  # OpenAI rejects requests for the reasoning of these models
# relative price of cached input, unless it is a tenth of the input price
READ_PRICES = {"gpt-4o": 0.5, "o1": 0.5, "o3-mini": 0.5, "gpt-4.1": 0.25, "o3": 0.25, "o4": 0.25}
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
# finish reasons of an aborted reply: OpenRouter, Z.AI, DeepSeek
BROKEN_OFF = ("error", "network_error", "insufficient_system_resource")
THOUGHTS = ("reasoning_content", "reasoning", "thinking")  # DeepSeek, vLLM; OpenRouter; Mistral
GROWING = ("content", "refusal", *THOUGHTS)  # texts that are streamed in pieces
# Fields that are returned only to their server. The last two contain signatures of OpenRouter
# and of Gemini.
OPAQUE = ("reasoning_content", "reasoning", "reasoning_details", "extra_content")


# ---- the request


def _write_openai_reply(message: AssistantMessage, owner: str) -> JSON:
    written: JSON = {"role": "assistant", "content": message.content or None}
    raw = as_dict(message.raw)
    is_own = raw.get("owner") == owner
    if is_own:  # required by DeepSeek's thinking models, even if empty
        for name in OPAQUE:
            if name in raw:
                written[name] = raw[name]
    calls = list[JSON]()
    for call in message.tool_calls:
        function = {"name": wire_name(call.name), "arguments": wire_arguments(call)}
        own: JSON = {"id": wire_id(call.id), "type": "function", "function": function}
        if is_own and call.extra:
            own = {**call.extra, **own}
        calls.append(own)
    if calls:
        written["tool_calls"] = calls
    return written


def write_openai_messages(messages: Sequence[Message], owner: str = "") -> list[JSON]:
    """Return messages in the format of Chat Completions. Raises BadRequest for unsupported parts.

    `owner` identifies the server and the model: opaque fields are returned only to their owner.
    Tool results can contain only text, so a user message after the last result of a turn contains
    their images and files.
    """
    written: list[JSON] = []
    attached: list[JSON] = []  # the content of the additional user message
    for message in messages:
        content = message.content
        parts: list[JSON] = []
        if not isinstance(content, str):
            parts += map(write_part, content)
        if isinstance(message, ToolMessage):
            call_id = wire_id(message.tool_call_id)
            result = {"role": "tool", "tool_call_id": call_id, "content": message.text}
            if attached:
                written.insert(-1, result)
            else:
                written.append(result)
            media = [part for part in parts if part["type"] != "text"]
            if media:
                if not attached:
                    written.append({"role": "user", "content": attached})
                label = f"Attached to the result of {message.tool_name}:"
                attached += [{"type": "text", "text": label}, *media]
            continue
        attached = []
        if not isinstance(message, AssistantMessage):
            role = "system" if isinstance(message, SystemMessage) else "user"
            written.append({"role": role, "content": parts or message.text})
        elif content or message.tool_calls:  # providers reject empty replies
            written.append(_write_openai_reply(message, owner))
    return written


# ---- the reply


def _read_openai_call(call: JSON) -> ToolCall:
    function = as_dict(call.get("function"))
    signature = call.get("extra_content")  # Gemini's
    return ToolCall(
        plain_text(call.get("id")),
        plain_text(function.get("name")),
        plain_text(function.get("arguments")),
        extra={"extra_content": signature} if signature else None,
    )


def _flatten(message: JSON) -> JSON:
    """Convert Mistral's list content to texts: "content" and "thinking"."""
    if not isinstance(message.get("content"), list):
        return message
    flat = message | {"content": "", "thinking": ""}
    for part in as_dicts(message["content"]):
        flat["content"] += plain_text(part.get("text"))
        for thought in as_dicts(part.get("thinking")):
            flat["thinking"] += plain_text(thought.get("text"))
    return flat


def read_openai_reply(data: JSON, owner: str = "") -> AssistantMessage:
    """Convert a reply to a message. Raises one of PARSE_ERRORS for an invalid reply."""
    choice = data["choices"][0]
    finish = choice.get("finish_reason")
    if finish in BROKEN_OFF:
        raise BadResponse(finish)
    if finish == "content_filter":  # Azure filters content without a message
        choice = choice | {"message": as_dict(choice.get("message"))}
    message = _flatten(choice["message"])
    calls = [_read_openai_call(call) for call in as_dicts(message.get("tool_calls"))]
    opaque = drop_none({name: message.get(name) for name in OPAQUE})
    raw = None
    if opaque or any(call.extra for call in calls):
        raw = {"provider": "openai", "owner": owner} | opaque
    stop = stop_reason(OPENAI_STOP_REASONS, finish, calls)
    sources = as_dicts(message.get("annotations")) or as_dicts(data.get("search_results"))
    if not sources and isinstance(data.get("citations"), list):
        sources = [{"url": url} for url in data["citations"]]
    refusal = message.get("refusal")
    if refusal:
        stop = "refused"
    return AssistantMessage(
        content=plain_text(message.get("content")) or refusal or "",  # Cloudflare: an object
        tool_calls=tuple(calls),
        thinking=next(filter(None, map(message.get, THOUGHTS)), None),
        stop_reason=stop,
        raw=raw,
        citations=tuple(read_citations(sources, 0, 0)),
        finish_reason=plain_text(finish) or None,
    )


# ---- conversations of other programs


def to_openai(messages: Sequence[Message]) -> list[JSON]:
    """Convert messages to dicts of Chat Completions, the format that most programs store.

    The system prompt is a setting and not part of `agent.messages`: add
    `SystemMessage(agent.system_text())` to store it.
    """
    return write_openai_messages(messages)


def from_openai(messages: Iterable[Mapping[str, Any] | Message]) -> list[Message]:
    """Convert dicts of Chat Completions to messages. Messages are returned unchanged.

    Results without an id are assigned to the calls without an id, in order. Raises ValueError for
    an invalid message or part.
    """
    read = list[Message]()
    names = defaultdict[str, list[str]](list)  # tools of the calls without a result, by call id
    for given in messages:
        if isinstance(given, Message):
            read.append(given)
            continue
        message: Any = given
        match message:
            case {"role": "system" | "developer"}:
                read.append(SystemMessage(text_of(_read_content(message))))
            case {"role": "user"}:
                read.append(UserMessage(_read_content(message)))
            case {"role": "assistant"}:
                own = {**message, "content": text_of(_read_content(message))}
                reply = read_openai_reply({"choices": [{"message": own}]})
                for call in reply.tool_calls:
                    names[call.id].append(call.name)
                read.append(reply)
            case {"role": "tool"} if message.get("tool_call_id") or names[""]:
                call_id = message.get("tool_call_id") or ""
                called = names[call_id]
                name = called.pop(0) if called else message.get("name", "")
                read.append(ToolMessage(call_id, name, _read_content(message)))
            case _:
                raise ValueError(f"invalid message of Chat Completions: {message!r:.200}")
    return read


def _read_content(message: JSON) -> Content:
    match message.get("content"):
        case None:
            return ""
        case str(text):
            return text
        case [*parts]:
            return [*map(_read_part, parts)]
        case content:
            raise ValueError(f"invalid content of a message: {content!r:.200}")


def _read_part(part: Any) -> Part:
    match part:
        case {"type": "text", "text": str(text)} | {"type": "refusal", "refusal": str(text)}:
            return TextPart(text)
        case {"type": "image_url", "image_url": {"url": str(url)} as image}:
            return ImagePart(url=url, extra=drop_none({"detail": image.get("detail")}) or None)
        case {"type": "file", "file": {"file_data": str(url)} as file}:
            return FilePart(url=url, name=file.get("filename"))
        case {"type": "input_audio", "input_audio": {"data": data, "format": form}}:
            media_type = "audio/mpeg" if form == "mp3" else f"audio/{form}"
            return FilePart(data=base64.b64decode(data), media_type=media_type)
        case _:
            raise ValueError(f"invalid part of a message: {part!r:.200}")


def _begins_another(known: JSON, call_id: str, arguments: str) -> bool:
    """Return whether a piece with a name starts a new call instead of extending a call."""
    if call_id and known["id"]:
        return bool(call_id != known["id"])
    # Gemini's calls have the same index, and lack ids
    return bool(arguments) and parse_json(known["function"]["arguments"]) is not None


@dataclass
class OpenAIChunks(Accumulator):
    """Assembles a streamed reply from the chunks of various servers."""

    def __post_init__(self) -> None:
        self._message: JSON = {"tool_calls": []}
        self._choice: JSON = {"message": self._message}
        self.data = {"choices": [self._choice]}
        self._open: dict[Any, JSON] = {}  # the incomplete calls, by index

    def add(self, event: JSON) -> None:
        for name in ("usage", "search_results", "citations"):  # Perplexity repeats its sources
            if event.get(name):
                self.data[name] = event[name]
        for choice in as_dicts(event.get("choices")):
            if choice.get("index"):
                continue  # with extra={"n": 2}: only the first choice is read
            self._add_delta(_flatten(as_dict(choice.get("delta"))))
            finish = choice.get("finish_reason")
            if finish:
                self.complete = True
                self._choice["finish_reason"] = finish

    def _add_delta(self, delta: JSON) -> None:
        message = self._message
        thought = ""  # emitted only once, although some servers send two fields
        for name, piece in delta.items():
            if piece is None:
                continue
            if name in GROWING:
                text = plain_text(piece)
                message[name] = message.get(name, "") + text
                if name not in THOUGHTS:
                    self.text(text)
                elif not thought:
                    thought = text
                    self.thinking(text)
            elif name == "tool_calls":
                for position, call in enumerate(as_dicts(piece)):
                    self._add_call(position, call)
            elif name == "annotations":  # OpenRouter repeats some
                known = message.setdefault(name, [])
                known += [source for source in as_dicts(piece) if source not in known]
            elif name == "reasoning_details":
                message[name] = join_details(message.get(name, []) + as_dicts(piece))
            else:
                message[name] = piece

    def _add_call(self, position: int, delta: JSON) -> None:
        """Add a piece of a call.

        Index, id and name may be missing, repeated, or identical for two calls.
        """
        index = delta.get("index", position)
        function = as_dict(delta.get("function"))
        call_id = delta.get("id") or ""
        name = function.get("name") or ""
        arguments = plain_text(function.get("arguments"))
        call = self._open.get(index)
        if not call or (name and _begins_another(call, call_id, arguments)):
            call = self._open[index] = {"id": "", "function": {"name": "", "arguments": ""}}
            self._message["tool_calls"].append(call)
        known = call["function"]
        if name != known["name"]:
            known["name"] += name
        known["arguments"] += arguments
        call |= delta | {"id": call["id"] or call_id, "function": known}
        self.call(arguments, known["name"], call["id"])


# ---- the model


@chat_model
class ChatOpenAI(HTTPModel):
    """A model behind Responses or Chat Completions. Settings that are None are omitted.

    api: "responses" or "chat". The default is Responses for OpenAI's own address, Chat Completions
        for others.
    reasoning_summary: requests a summary of the thinking from Responses, for example "auto".
    max_completion_tokens: limit of the output including reasoning. Older servers only support
        `max_tokens`, which newer models of OpenAI reject: set the supported parameter.
    strict: whether to request arguments that conform exactly to the schema, for all tools with
        supported schemas.
    compact_threshold: input tokens at which Responses replaces older messages by an encrypted
        summary: see `Compaction`.
    """

    temperature: float | None = None
    max_completion_tokens: int | None = None
    max_tokens: int | None = None
    reasoning_effort: str | None = None
    reasoning_summary: str | None = None
    prompt_cache_key: str | None = None
    parallel_tool_calls: bool | None = None
    strict: bool = False
    compact_threshold: int | None = None
    api: str | None = None

    key_variables = ("OPENAI_API_KEY",)
    url_variable = "OPENAI_BASE_URL"
    default_url = "https://api.openai.com/v1"

    def __post_init__(self) -> None:
        super().__post_init__()
        default = "chat"
        if "api.openai.com/" in f"{self.base_url}/":  # also eu.api.openai.com
            default = "responses"
        self.api = self.api or default
        if self.api == "chat":
            self.chunks = OpenAIChunks
        elif self.api == "responses":
            self.chunks = ResponsesEvents
        else:
            raise ValueError(f"{self!r}: api is 'responses' or 'chat', not {self.api!r}")
        if self.compact_threshold and self.api == "chat":
            raise ValueError(f"{self!r}: compact_threshold requires api='responses'")

    @property
    def cache_rules(self) -> CacheRules:
        """Return the rules of OpenAI's cache, or cautious rules for other providers.

        Sources, November 2026: https://developers.openai.com/api/docs/guides/prompt-caching (sizes,
        price of a write), https://developers.openai.com/api/docs/pricing (price of a read).
        """
        name = re.search(r"gpt-(\d+)(?:\.(\d+))?|\bo\d", self.model)
        if not name:
            return CacheRules()
        version = int(name[1] or 0), int(name[2] or 0)
        read = next((price for model, price in READ_PRICES.items() if model in self.model), 0.1)
        return CacheRules(1_024, read, 1.25 if version >= (5, 6) else 1.0)

    @property
    def output_limit(self) -> int | None:
        return self.max_completion_tokens or self.max_tokens

    @property
    def _owner(self) -> str:
        """Identify the server and the model: opaque reasoning is returned only to its owner.

        The identifier is a hash, because the address may contain a password.
        """
        return hashlib.sha256(f"{self.base_url} {self.model}".encode()).hexdigest()[:16]

    def headers(self) -> dict[str, str]:
        if not self.api_key:
            return {}
        return {"authorization": f"Bearer {self.api_key}"}

    def path(self, stream: bool) -> str:
        return "/responses" if self.api == "responses" else "/chat/completions"

    def _function(self, about: JSON) -> JSON:
        """Return the declaration or the name of a function, which Chat Completions nests."""
        if self.api == "chat":
            about = {"function": about}
        return {"type": "function"} | about

    def _declare(self, tool: Tool) -> JSON:
        schema = write_openai_schema("parameters", tool.parameters, self.strict)
        about = declare(tool, "openai", schema)
        if self.api == "responses":
            about.setdefault("strict", False)  # strict is the default of the API
        return self._function(about)

    def body(
        self,
        messages: Sequence[Message],
        tools: Sequence[Tool],
        tool_choice: ToolChoice,
        stream: bool,
    ) -> JSON:
        choice: Any = tool_choice
        if not tools or tool_choice == "auto":
            choice = None
        elif tool_choice not in ("required", "none"):
            choice = self._function({"name": tool_choice})
        declared = [self._declare(tool) for tool in tools]
        body: JSON = {
            "temperature": self.temperature,
            "prompt_cache_key": self.prompt_cache_key,
            "tools": [*declared, *self.provider_tools] or None,
            "tool_choice": choice,
            "stream": stream or None,
        }
        if tools:
            body["parallel_tool_calls"] = self.parallel_tool_calls
        answer = None
        if self.output_schema:
            schema = write_openai_schema("schema", self.output_schema, True)
            answer = {"name": "answer"} | schema
        write = write_openai_messages if self.api == "chat" else write_items
        written = encode_exchanges(
            messages,
            split_exchanges(messages),
            sys.intern(f"{self.api} {self._owner}"),  # one string for all messages
            partial(write, owner=self._owner),
        )
        if self.api == "chat":
            own: JSON = {
                "messages": written,
                "max_completion_tokens": self.max_completion_tokens,
                "max_tokens": self.max_tokens,
                "reasoning_effort": self.reasoning_effort,
                "response_format": answer and {"type": "json_schema", "json_schema": answer},
            }
            if stream:
                own["stream_options"] = {"include_usage": True}
        else:
            reasoning = {"effort": self.reasoning_effort, "summary": self.reasoning_summary}
            threshold = self.compact_threshold
            own = {
                "input": written,
                "store": False,
                "reasoning": drop_none(reasoning) or None,
                "max_output_tokens": self.max_completion_tokens or self.max_tokens,
                "context_management": threshold
                and [{"type": "compaction", "compact_threshold": threshold}],
                "text": answer and {"format": {"type": "json_schema"} | answer},
            }
            if not re.search(NO_REASONING, self.model):
                own["include"] = ["reasoning.encrypted_content"]
        return drop_none({"model": self.model} | own | body)

    def read(self, data: JSON) -> AssistantMessage:
        read = read_openai_reply if self.api == "chat" else read_responses
        usage = read_openai_usage(as_dict(data.get("usage")))
        return replace(read(data, self._owner), usage=usage)

    def _error(self, response: httpx.Response, text: str, error_code: Any = None) -> ModelError:
        error = super()._error(response, text, error_code)
        if response.status_code in (404, 405) or "v1/responses" in text:
            other = "responses" if self.api == "chat" else "chat"
            error.args = (
                f"{error} (if this server does not support {self.api!r}, set api={other!r})",
            )
        return error
