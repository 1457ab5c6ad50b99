"""Finds a model to talk to: the one that was named, one that there is a key for, or a local one."""

from __future__ import annotations

import asyncio
import copy
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any
from urllib.parse import urlsplit

from .. import ChatAnthropic, ChatGoogle, ChatOpenAI
from ..models.http import LOOPBACK, HTTPModel, loaded, obj, objects, text_in

DEFAULT_MODELS = {  # of another server at --base-url, it is the first that it lists
    "openai": "gpt-5-mini",
    "anthropic": "claude-sonnet-5",
    "google": "gemini-flash-latest",
}
KEYS = {"ANTHROPIC_API_KEY": "anthropic", "GOOGLE_API_KEY": "google", "GEMINI_API_KEY": "google"}
PORTS = {11434: "Ollama", 8080: "llama.cpp", 1234: "LM Studio", 8000: "vLLM"}
PROBE_SECONDS = 1.5

WAYS = f"""\
  OPENAI_BASE_URL    or --base-url: any server that speaks Chat Completions
  OPENAI_API_KEY     a model of OpenAI: {DEFAULT_MODELS["openai"]}, or --model
  ANTHROPIC_API_KEY  a model of Anthropic: {DEFAULT_MODELS["anthropic"]}, or --model
  GOOGLE_API_KEY     or GEMINI_API_KEY: a model of Google: {DEFAULT_MODELS["google"]}, or --model
  a local server     on its usual port: """ + ", ".join(f"{n} ({p})" for p, n in PORTS.items())
NO_OPENAI = "--provider openai needs OPENAI_API_KEY, --base-url, or a local server."
NO_MODEL = f"""\
There is no model to talk to. Each of these gives one:
{WAYS}
Without a model there is a demo, in which the model is a script: agentloop demo"""


class NoModel(Exception):
    """None was named and none was found."""


def plain(error: Exception) -> str:
    """What is wrong, for somebody who gives no arguments to a class."""
    problem = str(error).replace("api_key=, or GOOGLE", "GEMINI_API_KEY or GOOGLE")
    return problem.replace("api_key=, or ", "")


def another_model(llm: Any, name: str) -> Any:
    """The model of this name, at the place of this one; "anthropic:..." is at another provider's.

    ValueError: there is no key for that, or nothing that answers.
    """
    provider, _, rest = name.partition(":")
    if provider in DEFAULT_MODELS:  # and not qwen3:8b
        try:
            other, _ = choose(provider, rest or None, None)
        except NoModel:
            raise ValueError(NO_OPENAI) from None
        except ValueError as error:
            raise ValueError(plain(error)) from None
        other.dump = llm.dump
        return other
    other = copy.copy(llm)
    other.model = name
    return other


def choose(
    provider: str | None, model: str | None, base_url: str | None, ports: Mapping[Any, str] = PORTS
) -> tuple[HTTPModel, str]:
    """The model to talk to, and where it is. ValueError: it cannot be, and why. NoModel."""
    at_openai = base_url or os.environ.get("OPENAI_BASE_URL") or os.environ.get("OPENAI_API_KEY")
    key = next(filter(os.environ.get, KEYS), None)
    why = ""
    if key and not (provider or at_openai):
        provider, why = KEYS[key], f" (there is {key})"
    provider = provider or "openai"
    if provider != "openai" or at_openai:
        llm = model_at(provider, model or DEFAULT_MODELS[provider], base_url)
        where = urlsplit(str(llm.base_url)).netloc.rpartition("@")[2]
        if provider == "openai" and not model and llm.base_url != llm.default_url:
            [names] = asyncio.run(listings([str(llm.base_url)], llm.api_key))
            if not names:
                silent = f"{where} does not answer: does it run, and is the URL right?"
                empty = f"{where} lists no models: name one with --model"
                raise ValueError(silent if names is None else empty)
            llm.model = names[0]
        return llm, where + why
    urls = [f"http://127.0.0.1:{port}/v1" for port in ports]
    found = zip(asyncio.run(listings(urls)), urls, ports, strict=True)
    for listed, url, port in sorted(found, key=lambda server: model not in (server[0] or ())):
        if listed:
            return model_at(provider, model or listed[0], url), f"{ports[port]} (127.0.0.1:{port})"
    raise NoModel


async def listings(urls: Sequence[str], key: str | None = None) -> list[list[str] | None]:
    """The models that each server lists, but for embeddings; None: it does not answer soon."""
    import httpx

    async def listing(url: str) -> list[str] | None:
        content, local = b"", urlsplit(url).hostname in LOOPBACK
        with suppress(httpx.HTTPError, httpx.InvalidURL, TimeoutError):
            async with (
                asyncio.timeout(PROBE_SECONDS if local else 10 * PROBE_SECONDS),
                httpx.AsyncClient(trust_env=not local) as client,
            ):
                headers = {"authorization": f"Bearer {key}"} if key else {}
                content = (await client.get(f"{url}/models", headers=headers)).content
        names = [text_in(model.get("id")) for model in objects(obj(loaded(content)).get("data"))]
        return [name for name in names if name and "embed" not in name.lower()] if content else None

    return await asyncio.gather(*map(listing, urls))


def model_at(provider: str, model: str, base_url: str | None, key: str | None = None) -> HTTPModel:
    """A model of one of the three providers."""
    kinds: Mapping[str, type[HTTPModel]]
    kinds = {"openai": ChatOpenAI, "anthropic": ChatAnthropic, "google": ChatGoogle}
    return kinds[provider](model, base_url=base_url, api_key=key)
