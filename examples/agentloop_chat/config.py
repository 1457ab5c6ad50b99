"""Settings from options and the configuration file: model, tools and approval rules."""

from __future__ import annotations

import argparse
import json
import os
import sys
import tomllib
from collections.abc import Callable, Sequence
from contextlib import suppress
from difflib import get_close_matches
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias
from urllib.parse import urlsplit
from urllib.request import ProxyHandler, build_opener

from pydantic import AfterValidator, BaseModel, ConfigDict, ValidationError

from agentloop import ChatAnthropic, ChatGoogle, ChatOpenAI, Tool
from agentloop.mixins.approval import Rule
from agentloop.models.http import HTTPModel

Provider: TypeAlias = Literal["openai", "anthropic", "google"]
LocalModel: TypeAlias = tuple[str, str]  # URL and name
Pick: TypeAlias = Callable[..., Any]  # asks the user to select one of the `options`

DEFAULT_MODELS = {
    "openai": "gpt-5.4-mini",
    "anthropic": "claude-sonnet-5",
    "google": "gemini-flash-latest",
}
KEYS: dict[str, Provider] = {  # the first variable that is set selects the provider
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
FILE = "config.toml"  # written by the user only
REMEMBERED = "local_model.json"  # next to FILE
PORTS = (11434, 8080, 1234)  # Ollama, llama.cpp, LM Studio
MAX_LISTING = 1_000_000  # bytes of a server's list of models
NO_MODEL = f"""\
No model is configured. Each of these selects a model:
{WAYS}
A demo with a scripted model requires no configuration: agentloop demo"""


def config_folder() -> Path:
    """The directory of the configuration file."""
    return Path(os.environ.get("XDG_CONFIG_HOME") or "~/.config").expanduser() / "agentloop"


Beside = Annotated[str, AfterValidator(lambda name: str(config_folder() / name))]


class Config(BaseModel):
    """The settings of the configuration file. Paths are relative to its directory."""

    model_config = ConfigDict(extra="forbid", strict=True)

    provider: Provider | None = None
    model: str | None = None
    base_url: str | None = None
    context_window: int | None = None
    tools: Sequence[Beside] = ()
    mcp: Beside | None = None
    skills: Beside | None = None
    web: Sequence[str] = ()  # hosts
    sub_agent: str | None = None  # name of its model
    screen_reader: bool = False
    bell: bool = True  # at a question, and after a run of more than 10 seconds
    pass_env: Sequence[str] = ()  # variables for commands although they're probably secrets
    rules: Sequence[Rule] = ()


def configured(options: argparse.Namespace) -> Config:
    """Read the configuration file. Options go before it. Raises ValueError if it's invalid."""
    file = config_folder() / FILE
    text = ""
    try:
        with suppress(FileNotFoundError):
            text = file.read_text("utf-8")
        settings = tomllib.loads(text)
        for name in sorted(settings.keys() - Config.model_fields):
            near = get_close_matches(name, Config.model_fields, 1, 0.5) or Config.model_fields
            raise ValueError(f"{name}: unknown setting. Did you mean {', '.join(near)}?")
        config = Config(**settings)
    except ValidationError as error:
        problem = error.errors()[0]
        name = ".".join(map(str, problem["loc"]))
        raise ValueError(f"{file}: {name}: {problem['msg']}") from None
    except ValueError as error:
        raise ValueError(f"{file}: {error}") from None
    for name, value in vars(options).items():
        if value and name in Config.model_fields:
            setattr(config, name, value)
    return config


def local_models() -> list[tuple[LocalModel, str]]:
    """Find the models of local servers, with a label for each.

    Names with control characters are left out.
    """
    models = list[tuple[LocalModel, str]]()
    direct = build_opener(ProxyHandler({}))
    for port in PORTS:
        url = f"http://localhost:{port}/v1"
        with suppress(OSError, ValueError, LookupError, TypeError):  # a different kind of server
            listing = direct.open(f"{url}/models", timeout=0.5).read(MAX_LISTING)
            for model in json.loads(listing)["data"]:
                name = model["id"]
                if isinstance(name, str) and name.isprintable():
                    models.append(((url, name), f"{name} at {url}"))
    return models


def remember_model(model: LocalModel) -> None:
    """Save the model that the user has chosen, in a file of its own.

    If a crash cuts the file off, `remembered_model` ignores it, and the user chooses again.
    """
    file = config_folder() / REMEMBERED
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(model), "utf-8")


def remembered_model() -> LocalModel | None:
    """The model that the user chose the last time."""
    with suppress(OSError, TypeError, ValueError):  # the user then selects a model again
        url, name = json.loads((config_folder() / REMEMBERED).read_text("utf-8"))
        return url, name
    return None


def configured_provider(config: Config) -> Provider | None:
    """The provider of the settings, or else of the first variable that's set."""
    if config.provider:
        return config.provider
    if config.base_url:
        return "openai"
    return next((KEYS[key] for key in KEYS if os.environ.get(key)), None)


def choose(config: Config, pick: Pick | None = None) -> tuple[HTTPModel, str | None]:
    """Choose the model and its host. Raises ValueError if there's no provider.

    pick: asks the user to choose an option. If no model is configured, the user chooses one of a
        local server, once.
    """
    provider = configured_provider(config)
    if not provider and (selected := remembered_model() or select_model(pick)):
        config.base_url, name = selected
        config.model = config.model or name
        provider = "openai"
    if not provider:
        raise ValueError(NO_MODEL)
    llm = KINDS[provider](config.model or DEFAULT_MODELS[provider], base_url=config.base_url)
    return llm, urlsplit(llm.base_url or "").hostname


def select_model(pick: Pick | None) -> LocalModel | None:
    """Let the user choose a model of a local server, and remember the choice."""
    if not pick or not (offered := local_models()):
        return None
    selected: LocalModel = pick("Which model do you want to use permanently?", options=offered)
    with suppress(OSError):  # the user then selects it again
        remember_model(selected)
    return selected


def load_tools(file: str) -> list[Tool]:
    """Load all tools at the top level of a file. Raises ValueError if there are none."""
    path = Path(file).resolve()
    if not path.is_file():
        raise ValueError(f"{file}: no such file")
    sys.path.insert(0, str(path.parent))
    try:
        module = import_module(path.stem)
    except (Exception, SystemExit) as error:
        raise ValueError(f"{file}: {type(error).__name__}: {error}") from None
    if path != Path(getattr(module, "__file__", None) or "").resolve():
        raise ValueError(f"{file}: rename the file, because another module is named {path.stem}")
    tools = [value for value in vars(module).values() if isinstance(value, Tool)]
    if not tools:
        raise ValueError(f"{file}: no tool found; @tool turns a function into a tool")
    return tools
