"""The size of a model's context window, as reported by the server.

Use the request for self-hosted servers: the window is a start option of the server, regardless of
the model's maximum, and Ollama silently truncates longer requests. vLLM, SGLang, llama.cpp, Ollama,
LM Studio, OpenRouter, Groq, Mistral and Together report the window; OpenAI does not.

    window = await server_window(llm.base_url, llm.model, llm.headers())
    agent = Agent(llm=llm, compaction=CompactionConfig(context_window=window))

Ollama reports the window of loaded models only: send a request to the model first.
"""

import asyncio
from collections.abc import Mapping
from typing import Any

import httpx

from agentloop import Agent, CompactionConfig, ScriptedModel

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
    """Return a model's window from the server's list of models, or the window of the only model."""
    models = data
    if isinstance(data, dict):
        models = data.get("data") or data.get("models") or [data]
    for info in models:
        if model in (info.get("id", model), info.get("name"), info.get("model")):
            settings = info.get("default_generation_settings") or {}
            for name in NAMES:
                if info.get(name) or settings.get(name):
                    return int(info.get(name) or settings[name])
    return None


async def server_window(
    url: str, model: str, headers: Mapping[str, str] | None = None, **client: Any
) -> int | None:
    """Request the window from the server at a base URL; None if unreachable or not reported."""
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


async def main() -> None:
    def ollama(request: httpx.Request) -> httpx.Response:
        if request.url.path != "/api/ps":
            return httpx.Response(200, json={"data": [{"id": "qwen3:8b"}]})
        return httpx.Response(200, json={"models": [{"name": "qwen3:8b", "context_length": 4096}]})

    double = httpx.MockTransport(ollama)
    window = await server_window("http://localhost:11434/v1", "qwen3:8b", transport=double)
    print("the window is", window)
    config = CompactionConfig(context_window=window)
    print(await Agent(llm=ScriptedModel("hello"), compaction=config).query("Hi"))


if __name__ == "__main__":
    asyncio.run(main())
