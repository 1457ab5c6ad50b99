"""The size of a model's context window, as its server says it.

One wants it for servers of one's own: the window is what they were started with, whatever the model
could do, and Ollama cuts off what is longer without a word. vLLM, SGLang, llama.cpp, Ollama, LM
Studio, OpenRouter, Groq, Mistral and Together say it; OpenAI does not.

    window = await server_window(llm.base_url, llm.model, llm.headers())
    agent = Agent(llm=llm, compaction=CompactionConfig(context_window=window))

Ollama says it of models that are loaded: ask it something first.
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
    """Return the window in what a server says of its models, or of its only one."""
    models = data
    if isinstance(data, dict):
        models = data.get("data") or data.get("models") or [data]
    for each in models:
        if model in (each.get("id", model), each.get("name"), each.get("model")):
            settings = each.get("default_generation_settings") or {}
            for name in NAMES:
                if each.get(name) or settings.get(name):
                    return int(each.get(name) or settings[name])
    return None


async def server_window(
    url: str, model: str, headers: Mapping[str, str] | None = None, **client: Any
) -> int | None:
    """Ask the server at a base URL; None if it does not say, or is not there."""
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
