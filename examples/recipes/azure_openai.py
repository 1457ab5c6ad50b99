"""A custom provider in a few lines: Azure OpenAI, and the addresses of compatible servers.

Use a subclass for servers with unusual requests: Azure's dated API expects the deployment in the
path, the version in the query and the key in a header. Compatible servers require only an address.

    python azure_openai.py ollama qwen3 "Why is the sky blue?"
    python azure_openai.py azure my-deployment "Why is the sky blue?"

The environment variables AZURE_OPENAI_ENDPOINT and AZURE_OPENAI_API_KEY contain Azure's address and
key.
"""

import asyncio
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar
from urllib.parse import quote

from agentloop import Agent, ChatOpenAI

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

    key_variables: ClassVar[Sequence[str]] = ("AZURE_OPENAI_API_KEY",)
    url_variable: ClassVar[str] = "AZURE_OPENAI_ENDPOINT"
    default_url: ClassVar[str] = ""  # every resource has its own address

    def headers(self) -> dict[str, str]:
        return {"api-key": self.api_key} if self.api_key else {}

    def path(self, stream: bool) -> str:
        deployment, version = quote(self.model, safe=""), quote(self.api_version, safe="")
        return f"/openai/deployments/{deployment}/chat/completions?api-version={version}"


def chat_model(provider: str, model: str) -> ChatOpenAI:
    """Return the chat model of a provider, with its key from the environment."""
    if provider == "azure":
        return AzureOpenAI(model)
    key = os.environ[f"{provider.upper()}_API_KEY"] if provider in KEYS else "none"
    return ChatOpenAI(model, base_url=BASE_URLS[provider], api_key=key)


async def main(provider: str, model: str, question: str) -> None:
    async with chat_model(provider, model) as llm:
        print(await Agent(llm=llm).query(question))


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit("usage: azure_openai.py PROVIDER MODEL QUESTION, such as: ollama qwen3 'Hello?'")
    asyncio.run(main(*sys.argv[1:4]))
