"""Models on other servers: addresses, a provider of your own, the context window, what is sent.

Use `chat_model` for servers that speak the Chat Completions API: they need only an address. Use a
subclass for unusual requests: Azure's dated API expects the deployment in the path, the version in
the query and the key in a header.

OpenRouter caches nothing for Claude unless you ask for it, and without a cache, an agent pays the
full price for what each request repeats. Pass `extra={"cache_control": {"type": "ephemeral"}}`.
Source: https://openrouter.ai/docs/guides/best-practices/prompt-caching

`server_window` asks a server for the context window of a model. It's a start option of self-hosted
servers, whatever the model's maximum is, and Ollama truncates longer requests silently. Ollama
reports the window of loaded models only, and the first request loads them: ask after it. OpenAI
doesn't report the window.

`dump_to` saves the bodies of requests and responses to files, to see what was really sent, document
a bug of the server, or record a stream for a test. The model masks its API key in them, and only
the owner can read the files.

    python other_servers.py                                           a double of Ollama
    python other_servers.py ollama qwen3 "Why is the sky blue?"
    python other_servers.py azure my-deployment "Why is the sky blue?"

Azure's address and key are in AZURE_OPENAI_ENDPOINT and AZURE_OPENAI_API_KEY, others' keys in
GROQ_API_KEY and so on.
"""

import asyncio
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, ClassVar
from urllib.parse import quote

import httpx

from agentloop import Agent, ChatOpenAI, CompactionConfig

BASE_URLS = {
    "deepseek": "https://api.deepseek.com",
    "groq": "https://api.groq.com/openai/v1",
    "mistral": "https://api.mistral.ai/v1",
    "openrouter": "https://openrouter.ai/api/v1",
    "ollama": "http://localhost:11434/v1",
    "llama.cpp": "http://localhost:8080/v1",
    "lm studio": "http://localhost:1234/v1",
    "vllm": "http://localhost:8000/v1",
}
KEYS = {"deepseek", "groq", "mistral", "openrouter"}  # require a key: GROQ_API_KEY and so on


@dataclass(repr=False, eq=False, kw_only=True)
class AzureOpenAI(ChatOpenAI):
    """A deployment on Azure: `model` is the deployment's name, `base_url` the resource's address.

    Azure's newer v1 API needs no subclass: use ChatOpenAI(base_url="https://.../openai/v1").
    Source: https://learn.microsoft.com/azure/ai-services/openai/reference
    """

    api_version: str = "2024-10-21"

    key_variables = ("AZURE_OPENAI_API_KEY",)
    url_variable: ClassVar[str] = "AZURE_OPENAI_ENDPOINT"
    default_url: ClassVar[str] = ""  # every resource has its own address

    def headers(self) -> dict[str, str]:
        return {"api-key": self.api_key} if self.api_key else {}

    def path(self, stream: bool) -> str:
        deployment, version = quote(self.model, safe=""), quote(self.api_version, safe="")
        return f"/openai/deployments/{deployment}/chat/completions?api-version={version}"


def chat_model(provider: str, model: str, **settings: Any) -> ChatOpenAI:
    """Make the chat model of a provider, with its key from the environment."""
    if provider == "azure":
        return AzureOpenAI(model, **settings)
    key = os.environ[f"{provider.upper()}_API_KEY"] if provider in KEYS else "none"
    return ChatOpenAI(model, base_url=BASE_URLS[provider], api_key=key, **settings)


# ---- the context window

# Sources: docs.vllm.ai, openrouter.ai/docs/api-reference, docs.ollama.com/api/ps,
# github.com/ggml-org/llama.cpp/tree/master/tools/server
PATHS = "{url}/models", "{root}/props", "{root}/api/ps", "{root}/api/v0/models"
NAMES = (
    "max_model_len",  # vLLM, SGLang
    "loaded_context_length",  # LM Studio
    "context_length",  # OpenRouter, Together, Ollama
    "context_window",  # Groq
    "max_context_length",  # Mistral
    "n_ctx",  # llama.cpp
)


def read_window(data: Any, model: str) -> int | None:
    """Return a model's window from a list of models, or from the properties of the only model."""
    models = data
    if isinstance(data, dict):
        models = data.get("data") or data.get("models", [data | {"id": model}])
    for info in models:
        names = {info.get("id"), info.get("name"), info.get("model")}
        if names & {model, f"{model}:latest"}:  # Ollama adds the tag
            settings = info.get("default_generation_settings") or {}
            for name in NAMES:
                if info.get(name) or settings.get(name):
                    return int(info.get(name) or settings[name])
    return None


async def server_window(
    url: str, model: str, headers: Mapping[str, str] | None = None, **client: Any
) -> int | None:
    """Ask the server at a base URL for the window; None if there's no answer."""
    root = url.removesuffix("/v1")
    async with httpx.AsyncClient(headers=headers, timeout=5, **client) as http:
        for path in PATHS:
            try:
                answer = await http.get(path.format(url=url, root=root))
                window = read_window(answer.raise_for_status().json(), model)
            except (httpx.HTTPError, ValueError, AttributeError):
                continue
            if window:
                return window
    return None


# ---- the bodies of requests and responses


def dump_to(folder: str | Path) -> Callable[[str, str], None]:
    """Make a function for the setting `dump` of a model, which saves the bodies to files."""
    root = Path(folder)

    def dump(request: str, response: str) -> None:
        root.mkdir(0o700, parents=True, exist_ok=True)
        number = len([*root.glob("*-request.json")]) + 1
        for name, body in {"request": request, "response": response}.items():
            kind = "json" if body.lstrip()[:1] in "{[" else "sse"
            path = root / f"{number:04}-{name}.{kind}"
            path.touch(0o600)
            path.write_text(body, encoding="utf-8")

    return dump


async def main(
    provider: str, model: str, question: str, transport: httpx.AsyncBaseTransport | None = None
) -> None:
    client = httpx.AsyncClient(transport=transport) if transport else None
    with TemporaryDirectory() as folder:
        async with chat_model(provider, model, client=client, dump=dump_to(folder)) as llm:
            agent = Agent(llm=llm)
            print(await agent.query(question))
            url, headers = llm.base_url or "", llm.headers()
            window = await server_window(url, model, headers, transport=transport)
            print("the window is", window)
            agent.compaction = CompactionConfig(context_window=window)
        for path in sorted(Path(folder).iterdir()):
            print(path.name, path.read_text(encoding="utf-8"))


def ollama(request: httpx.Request) -> httpx.Response:
    replies = {
        "/v1/models": {"data": [{"id": "qwen3:8b"}]},
        "/api/ps": {"models": [{"name": "qwen3:8b", "context_length": 4096}]},
        "/v1/chat/completions": {"choices": [{"message": {"content": "hello"}}]},
    }
    reply = replies.get(request.url.path)
    return httpx.Response(200 if reply else 404, json=reply)


if __name__ == "__main__":
    if len(sys.argv) == 4:
        _, provider, model, question = sys.argv
        asyncio.run(main(provider, model, question))
    else:
        asyncio.run(main("ollama", "qwen3:8b", "Hi", transport=httpx.MockTransport(ollama)))
