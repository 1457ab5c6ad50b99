"""OpenAI's models, and servers with Chat Completions (vLLM, Ollama, OpenRouter, ...).

Copy with: common/model_info.py, models/http.py, models/completions.py, models/responses.py and
their imports.

    llm = ChatOpenAI("gpt-5.4-mini", reasoning_effort="low")
    llm = ChatOpenAI("qwen3", base_url="http://localhost:11434/v1")

completions.py has the format of Chat Completions, responses.py that of Responses, which is the
default at OpenAI's own address.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from pydantic_core import from_json, to_json

from ..common.model_info import CacheRules
from ..messages import JSON, AssistantMessage, Message, SystemMessage, ToolChoice
from ..tools import Tool
from .completions import (
    NEEDS_TYPES,
    NO_STREAM_OPTIONS,
    OpenAIChunks,
    add_types,
    inline_types,
    read_openai_reply,
    write_openai_messages,
    write_openai_schema,
)
from .http import HTTPModel, chat_model
from .responses import ResponsesEvents, read_responses, write_items
from .wire import (
    Accumulator,
    Encoded,
    applies,
    declare,
    drop_none,
    encode_exchanges,
    extend_prefix,
    owner_id,
    resumed,
    split_system,
)

if TYPE_CHECKING:
    import httpx

NO_REASONING = "gpt-[34]|gpt-5-chat"  # OpenAI rejects requests for the reasoning of these
GPT_CACHE_SOURCE = (
    "https://developers.openai.com/api/docs/guides/prompt-caching (sizes, price of a write), "
    "https://developers.openai.com/api/docs/pricing (price of a read), November 2026"
)
# models that take `additional_tools`, which OpenAI's guide to tool search describes
GPT_LOADS_TOOLS = r"gpt-(5\.([6-9]|\d\d)|[6-9]|\d\d)"
# the price of cached input relative to input; of other models, a tenth
READ_PRICES = {
    "gpt-4o": 0.5,
    "o1": 0.5,
    "o3-mini": 0.5,
    "gpt-4.1": 0.25,
    "o3": 0.25,
    "o4": 0.25,
    "gpt-6.1": 0.05,
    "gpt-6.2": 0.05,
}


class API(NamedTuple):
    """An API: its path, and the functions for messages, replies and streams."""

    path: str
    write: Callable[..., list[JSON]]
    read: Callable[[JSON, str], AssistantMessage]
    chunks: type[Accumulator]


APIS = {
    "chat": API("/chat/completions", write_openai_messages, read_openai_reply, OpenAIChunks),
    "responses": API("/responses", write_items, read_responses, ResponsesEvents),
}


def _one_prompt(messages: Sequence[Message]) -> Sequence[Message]:
    """Put all instructions into one system message at the start.

    Servers of Qwen, MiniMax and Mistral refuse any other system message, gpt-oss doesn't get to see
    it, and Gemma takes it for another role. Sources:
    https://github.com/ggml-org/llama.cpp/issues/27367 (Qwen),
    https://github.com/can1357/oh-my-pi/pull/954 (MiniMax),
    https://github.com/swarmauri/swarmauri-sdk/issues/162 (Mistral),
    https://github.com/raullenchai/Rapid-MLX/issues/1765 (gpt-oss),
    https://github.com/livekit/agents/issues/7020 (Gemma)
    """
    if SystemMessage not in map(type, messages[1:]):
        return messages
    texts, said = split_system(messages)
    return [SystemMessage("\n\n".join(texts)), *said]


@lru_cache(1000)  # each request repeats the schemas of the tools
def _write_parameters(schema: bytes, is_chat: bool, strict: bool, server: str) -> JSON:
    """The fields of a tool's declaration that describe its parameters."""
    parameters: JSON = from_json(schema)
    if is_chat:
        parameters = inline_types(parameters)
    written = write_openai_schema("parameters", parameters, strict)
    if applies(NEEDS_TYPES, server):
        written["parameters"] = add_types(written["parameters"])
    return written


@chat_model
class ChatOpenAI(HTTPModel):
    """A model behind Responses or Chat Completions. Settings that are None aren't sent.

    api: "responses" or "chat". The default is Responses at OpenAI's own address, and Chat
        Completions elsewhere.
    reasoning_summary: "auto", for example, asks Responses for a summary of the thinking.
    max_completion_tokens: how long the output may be, reasoning included. Older servers only know
        `max_tokens`, which newer models of OpenAI reject: set the one that yours supports.
    strict: whether arguments must match the schema exactly, for all tools whose schema allows it.
    compact_threshold: input tokens at which Responses replaces older messages with an encrypted
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
    api: Literal["responses", "chat"] | None = None

    key_variables = ("OPENAI_API_KEY",)
    url_variable = "OPENAI_BASE_URL"
    default_url = "https://api.openai.com/v1"

    def __post_init__(self) -> None:
        super().__post_init__()
        is_openai = "api.openai.com/" in f"{self.base_url}/"  # also eu.api.openai.com
        self.api = self.api or ("responses" if is_openai else "chat")
        if self.api not in APIS:
            raise ValueError(f"{self!r}: api must be 'responses' or 'chat', not {self.api!r}")
        if self.compact_threshold and self.api == "chat":
            raise ValueError(f"{self!r}: compact_threshold needs api='responses'")
        self._api = APIS[self.api]
        self.chunks = self._api.chunks

    @property
    def cache_rules(self) -> CacheRules:
        """The rules of OpenAI's cache, or careful ones for other providers."""
        name = re.search(r"gpt-(\d+)(?:\.(\d+))?|\bo\d", self.model)
        if not name:
            return CacheRules()
        version = int(name[1] or 0), int(name[2] or 0)
        read = next((price for model, price in READ_PRICES.items() if model in self.model), 0.1)
        return CacheRules(1_024, read, 1.25 if version >= (5, 6) else 1.0, GPT_CACHE_SOURCE)

    @property
    def output_limit(self) -> int | None:
        return self.max_completion_tokens or self.max_tokens

    @property
    def loads_tools(self) -> bool:
        """Whether tools can be added in the middle of a conversation: see `ToolSearch`."""
        return self.api == "responses" and bool(re.search(GPT_LOADS_TOOLS, self.model))

    @property
    def _server(self) -> str:
        return f"{self.base_url} {self.model}"

    def headers(self) -> dict[str, str]:
        if not self.api_key:
            return {}
        return {"authorization": f"Bearer {self.api_key}"}

    def path(self, stream: bool) -> str:
        return self._api.path

    def _function(self, about: JSON) -> JSON:
        """Write the declaration or the name of a function, which Chat Completions nests."""
        if self.api == "chat":
            about = {"function": about}
        return {"type": "function"} | about

    def _declare(self, tool: Tool) -> JSON:
        is_chat = self.api == "chat"
        schema = _write_parameters(to_json(tool.parameters), is_chat, self.strict, self._server)
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
        messages = resumed(messages)
        deferred = {tool.name: tool for tool in tools if tool.deferred and self.loads_tools}
        declared = [self._declare(tool) for tool in tools if tool.name not in deferred]
        answer = None
        if self.output_schema:
            answer = {"name": "answer"} | write_openai_schema("schema", self.output_schema, True)
        key = f"{self.api} {owner_id(self._server)}"
        write = partial(self._api.write, server=self._server)
        if self.api == "chat":
            messages = _one_prompt(messages)
        if deferred:

            def load(name: str) -> JSON | None:
                return self._declare(deferred[name]) if name in deferred else None

            key = extend_prefix(key, map(str.encode, deferred))
            write = partial(write, load=load)
        written = encode_exchanges(messages, sys.intern(key), write)  # one string for all messages
        own = self._chat_fields if self.api == "chat" else self._responses_fields
        body: JSON = {
            "model": self.model,
            **own(written, answer, stream),
            "temperature": self.temperature,
            "prompt_cache_key": self.prompt_cache_key,
            "tools": [*declared, *self.provider_tools] or None,
            "tool_choice": choice,
            "stream": stream or None,
            "parallel_tool_calls": self.parallel_tool_calls if tools else None,
        }
        return drop_none(body)

    def _chat_fields(self, messages: Encoded, answer: JSON | None, stream: bool) -> JSON:
        """The fields of a request that only Chat Completions has."""
        asks_usage = stream and not applies(NO_STREAM_OPTIONS, self._server)
        return {
            "messages": messages,
            "max_completion_tokens": self.max_completion_tokens,
            "max_tokens": self.max_tokens,
            "reasoning_effort": self.reasoning_effort,
            "response_format": answer and {"type": "json_schema", "json_schema": answer},
            "stream_options": {"include_usage": True} if asks_usage else None,
        }

    def _responses_fields(self, messages: Encoded, answer: JSON | None, stream: bool) -> JSON:
        """The fields of a request that only Responses has."""
        reasoning = {"effort": self.reasoning_effort, "summary": self.reasoning_summary}
        fields: JSON = {
            "input": messages,
            "store": False,
            "reasoning": drop_none(reasoning) or None,
            "max_output_tokens": self.max_completion_tokens or self.max_tokens,
            "text": answer and {"format": {"type": "json_schema"} | answer},
        }
        if self.compact_threshold:
            summary = {"type": "compaction", "compact_threshold": self.compact_threshold}
            fields["context_management"] = [summary]
        if not re.search(NO_REASONING, self.model):
            fields["include"] = ["reasoning.encrypted_content"]
        return fields

    def read(self, data: JSON) -> AssistantMessage:
        return self._api.read(data, self._server)

    def _advise(self, response: httpx.Response, text: str) -> str:
        # this model, or its tools; the second is Bedrock's
        needed = "v1/responses|does not support the '/v1/chat/completions'"
        if self.api == "chat" and re.search(needed, text):
            return " (set api='responses')"
        return super()._advise(response, text)

    @property
    def _address_remedy(self) -> str:
        address = re.sub("//[^/@]*@", "//", str(self.base_url).partition("?")[0])
        if not re.search(r"/v\d", address):
            return f"most servers want base_url='{address}/v1'"
        other = "responses" if self.api == "chat" else "chat"
        return f"correct base_url; if this server doesn't support {self.api!r}, set api={other!r}"
