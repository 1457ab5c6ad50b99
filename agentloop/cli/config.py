"""What the options and the config file say: a model to talk to, tools, rules, and so on.

The model is the one that was named, one that there is a key for, or that of a local server.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import tomllib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from pkgutil import resolve_name
from typing import Annotated, Any
from urllib.parse import urlsplit

from pydantic import AfterValidator

from .. import ChatAnthropic, ChatGoogle, ChatOpenAI
from ..mixins.approval import Rule
from ..models.http import LOOPBACK, HTTPModel, loaded, obj, objects, text_in
from ..settings import Settings
from ..tools import Tool

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
NO_MODEL = f"""\
There is no model to talk to. Each of these gives one:
{WAYS}
Without a model there is a demo, in which the model is a script: agentloop demo"""


def config_folder() -> Path:
    return Path(os.environ.get("XDG_CONFIG_HOME") or "~/.config").expanduser() / "agentloop"


Beside = Annotated[str, AfterValidator(lambda name: str(config_folder() / name))]


class Config(Settings):
    """What the config file may say. Files are beside it."""

    provider: str | None = None
    model: str | None = None
    base_url: str | None = None
    context_window: int | None = None
    tools: Sequence[Beside] = ()
    mcp: Beside | None = None
    skills: Beside | None = None
    rules: Sequence[Rule] = ()


def configured(options: argparse.Namespace) -> Config:
    """The settings of the config file, and in their place those of the options. ValueError."""
    file, values = config_folder() / "config.toml", dict[str, Any]()
    try:
        with suppress(FileNotFoundError):
            values = tomllib.loads(file.read_text("utf-8"))
        config = Config(**values)
    except ValueError as error:
        raise ValueError(f"{file}: {error}") from None
    for name, value in vars(options).items():
        if value and hasattr(config, name):
            setattr(config, name, value)
    return config


def load_tools(where: str) -> list[Tool]:
    """All tools at the top of "mytools.py", or the one or the list at "my.module:name".

    ValueError: why there are none.
    """
    path = Path(where).resolve()
    is_file = path.suffix == ".py"
    sys.path.insert(0, str(path.parent if is_file else Path.cwd()))
    try:
        value: Any = vars(import_module(path.stem)).values() if is_file else resolve_name(where)
        found: list[Any] = [value] if isinstance(value, Tool) else [*value]
    except (Exception, SystemExit) as error:
        raise ValueError(f"{where}: {type(error).__name__}: {error}") from None
    tools = [each for each in found if isinstance(each, Tool)]
    if not tools:
        raise ValueError(f"{where}: there is no tool; @tool makes one of a function")
    return list(dict.fromkeys(tools))


# ---- the model


def choose(
    provider: str | None, model: str | None, base_url: str | None, ports: Mapping[Any, str] = PORTS
) -> tuple[HTTPModel, str]:
    """The model to talk to, and where it is. ValueError: it cannot be, and why."""
    url, why = base_url or os.environ.get("OPENAI_BASE_URL"), ""
    has_key = bool(os.environ.get("OPENAI_API_KEY"))
    if not (provider or url or has_key) and (key := next(filter(os.environ.get, KEYS), None)):
        provider, why = KEYS[key], f" (there is {key})"
    provider = provider or "openai"
    if provider != "openai" or (model and url) or (has_key and not url):
        llm = model_at(provider, model, base_url)
        return llm, place_of(llm.base_url) + why
    servers = {f"http://127.0.0.1:{port}/v1": name for port, name in ports.items()}
    if url:
        servers = {url.rstrip("/"): place_of(url)}
    listed = asyncio.run(listings([*servers], os.environ.get("OPENAI_API_KEY") if url else None))
    found = [(names, server) for names, server in zip(listed, servers, strict=True) if names]
    for names, server in sorted(found, key=lambda each: model not in each[0]):
        return model_at("openai", model or names[0], server), servers[server]
    if url:
        silent = "does not answer: does it run, and is the URL right?"
        empty = "lists no models: name one with --model"
        raise ValueError(f"{place_of(url)} {silent if listed == [None] else empty}")
    raise ValueError(NO_MODEL)


def place_of(url: str | None) -> str:
    """The host in a URL, without a password."""
    return urlsplit(url or "").netloc.rpartition("@")[2]


async def listings(urls: Sequence[str], key: str | None = None) -> list[list[str] | None]:
    """The models that each server lists, but for embeddings; None: it does not answer soon."""
    import httpx

    async def listing(url: str) -> list[str] | None:
        local = urlsplit(url).hostname in LOOPBACK
        headers = {"authorization": f"Bearer {key}"} if key else {}
        try:
            async with (
                asyncio.timeout(PROBE_SECONDS if local else 10 * PROBE_SECONDS),
                httpx.AsyncClient(trust_env=not local, headers=headers) as client,
            ):
                content = (await client.get(f"{url}/models")).content
        except (httpx.HTTPError, httpx.InvalidURL, TimeoutError):
            return None
        names = [text_in(model.get("id")) for model in objects(obj(loaded(content)).get("data"))]
        return [name for name in names if name and "embed" not in name.lower()]

    return await asyncio.gather(*map(listing, urls))


def model_at(provider: str, model: str | None, base_url: str | None) -> HTTPModel:
    """A model of one of the three providers. ValueError: it has no key, or no good URL."""
    kinds: Mapping[str, type[HTTPModel]]
    kinds = {"openai": ChatOpenAI, "anthropic": ChatAnthropic, "google": ChatGoogle}
    try:
        return kinds[provider](model or DEFAULT_MODELS[provider], base_url=base_url)
    except ValueError as error:  # for somebody who gives no arguments to a class
        raise ValueError(str(error).replace("api_key=, or ", "")) from None
