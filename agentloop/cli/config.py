"""The settings of the options and of the config file: a model to talk to, tools and rules."""

from __future__ import annotations

import argparse
import json
import os
import sys
import tomllib
from collections.abc import Callable, Sequence
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias
from urllib.parse import urlsplit
from urllib.request import ProxyHandler, build_opener

from pydantic import AfterValidator

from .. import ChatAnthropic, ChatGoogle, ChatOpenAI, Tool
from ..mixins.approval import Rule
from ..models.http import HTTPModel
from ..settings import Settings

Provider: TypeAlias = Literal["openai", "anthropic", "google"]

DEFAULT_MODELS = {
    "openai": "gpt-5-mini",
    "anthropic": "claude-sonnet-5",
    "google": "gemini-flash-latest",
}
KEYS: dict[str, Provider] = {  # the first variable that is set says whose model it is
    "OPENAI_BASE_URL": "openai",
    "OPENAI_API_KEY": "openai",
    "ANTHROPIC_API_KEY": "anthropic",
    "GOOGLE_API_KEY": "google",
    "GEMINI_API_KEY": "google",
}
KINDS = {"openai": ChatOpenAI, "anthropic": ChatAnthropic, "google": ChatGoogle}
WAYS = f"""\
  OPENAI_BASE_URL    or --base-url: any server that speaks Chat Completions
  OPENAI_API_KEY     OpenAI: {DEFAULT_MODELS["openai"]}, or --model
  ANTHROPIC_API_KEY  Anthropic: {DEFAULT_MODELS["anthropic"]}, or --model
  GOOGLE_API_KEY     or GEMINI_API_KEY: Google: {DEFAULT_MODELS["google"]}, or --model"""
FILE = "config.toml"
PORTS = (11434, 8080, 1234)  # Ollama, llama.cpp, LM Studio
NO_MODEL = f"""\
There is no model to talk to. Each of these gives one:
{WAYS}
Without a model there is a demo, in which the model is a script: agentloop demo"""


def config_folder() -> Path:
    """Return the folder of the config file."""
    return Path(os.environ.get("XDG_CONFIG_HOME") or "~/.config").expanduser() / "agentloop"


Beside = Annotated[str, AfterValidator(lambda name: str(config_folder() / name))]


class Config(Settings):
    """The settings of the config file. The files that it names are beside it."""

    provider: Provider | None = None
    model: str | None = None
    base_url: str | None = None
    context_window: int | None = None
    tools: Sequence[Beside] = ()
    mcp: Beside | None = None
    skills: Beside | None = None
    rules: Sequence[Rule] = ()


def configured(options: argparse.Namespace) -> Config:
    """Read the config file; options replace its settings. Raises ValueError for a mistake in it."""
    file = config_folder() / FILE
    text = ""
    try:
        with suppress(FileNotFoundError):
            text = file.read_text("utf-8")
        config = Config(**tomllib.loads(text))
    except ValueError as error:
        raise ValueError(f"{file}: {error}") from None
    for name, value in vars(options).items():
        if value and hasattr(config, name):
            setattr(config, name, value)
    return config


def local_models() -> list[tuple[tuple[str, str], str]]:
    """List the models of servers on this machine: (URL, model), and the two in words."""
    found = list[tuple[tuple[str, str], str]]()
    direct = build_opener(ProxyHandler({}))
    for port in PORTS:
        url = f"http://localhost:{port}/v1"
        with suppress(OSError, ValueError, LookupError, TypeError):  # another server is there
            for each in json.load(direct.open(f"{url}/models", timeout=0.5))["data"]:
                found.append(((url, each["id"]), f"{each['id']} at {url}"))
    return found


def choose(config: Config, pick: Callable[..., Any] | None = None) -> tuple[HTTPModel, str | None]:
    """Return the model and its host. Raises ValueError if no provider is configured.

    pick: asks the user for one of some options. If nothing is configured, it is asked which model
        of this machine to use, and the config file keeps the answer.
    """
    providers = [KEYS[key] for key in KEYS if os.environ.get(key)]
    if config.base_url:
        providers = ["openai"]
    if config.provider:
        providers = [config.provider]
    if not providers and pick and (found := local_models()):
        config.base_url, config.model = pick("Which model, from now on?", options=found)
        config_folder().mkdir(parents=True, exist_ok=True)
        with (config_folder() / FILE).open("a", encoding="utf-8") as file:
            file.write(f'\nbase_url = "{config.base_url}"\nmodel = "{config.model}"\n')
        providers = ["openai"]
    if not providers:
        raise ValueError(NO_MODEL)
    provider = providers[0]
    llm = KINDS[provider](config.model or DEFAULT_MODELS[provider], base_url=config.base_url)
    return llm, urlsplit(llm.base_url or "").hostname


def load_tools(file: str) -> list[Tool]:
    """Return all tools at the top of a file. Raises ValueError if there are none, and says why."""
    path = Path(file).resolve()
    sys.path.insert(0, str(path.parent))
    try:
        found = vars(import_module(path.stem)).values()
    except (Exception, SystemExit) as error:
        raise ValueError(f"{file}: {type(error).__name__}: {error}") from None
    tools = [each for each in found if isinstance(each, Tool)]
    if not tools:
        raise ValueError(f"{file}: there is no tool; @tool makes one of a function")
    return tools
