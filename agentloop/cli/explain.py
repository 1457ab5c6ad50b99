"""`agentloop explain my_module:MyAgent`: which class does what in an agent.

A request or a call goes through the classes from left to right; a view comes back the other way.
"""

from __future__ import annotations

import argparse
import importlib
import inspect
import sys
from collections.abc import Iterator
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

SEAMS = ["context", "toolset", "call_model", "call_tools", "call_tool", "finish", "record"]


class NotFound(Exception):
    """There is no such agent."""


def run(options: argparse.Namespace) -> int:
    """Prints what is known of an agent; returns 2 if there is none of that name."""
    try:
        print("\n".join(explanation(find(options.agent))))
    except NotFound as error:
        print(error, file=sys.stderr)
        return 2
    return 0


def find(where: str) -> type[Any]:
    """The class at "module:Class" or "file.py:Class". NotFound: there is no such agent."""
    place, _, name = where.partition(":")
    if not all(map(str.isidentifier, place.removesuffix(".py").replace("/", ".").split("."))):
        raise NotFound(f"Name it as my_module:MyAgent, not as {where}.")
    module = load(place)
    agents: dict[str, type[Any]] = {
        key: value for key, value in vars(module).items() if is_agent(value)
    }
    if name not in agents:
        found = ", ".join(agents) or "no agent, a subclass of Loop"
        raise NotFound(f"There is no agent {name!r} in {place}. It has: {found}.")
    return agents[name]


def load(place: str) -> ModuleType:
    """The module at "my.module" or "file.py". NotFound: there is none."""
    path = Path(place)
    sys.path.insert(0, str(path.resolve().parent if path.suffix == ".py" else Path.cwd()))
    if path.suffix != ".py":
        try:
            return importlib.import_module(place)
        except ModuleNotFoundError as error:
            if not error.name or not f"{place}.".startswith(f"{error.name}."):
                raise  # it is there, and imports what is not
            raise NotFound(f"There is no module {error.name} here.") from None
    if not path.is_file():
        raise NotFound(f"There is no file {place}.")
    name = f"_{path.stem}" if path.stem in sys.modules else path.stem  # it may be called json.py
    spec = spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    sys.modules[name] = module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def is_agent(value: object) -> bool:
    """Whether it is a subclass of a Loop: this package's, or that of a bundle."""
    return isinstance(value, type) and "Loop" in [base.__name__ for base in value.__mro__[1:]]


def explanation(agent: type[Any]) -> Iterator[str]:
    """Its classes, and which of them handle each seam."""
    classes = [cls for cls in agent.__mro__ if cls.__module__ not in ("abc", "builtins")]
    names = (cls.__name__ for cls in classes[1:] if not cls.__name__.startswith("_"))
    yield f"{agent.__name__}, from left to right: {', '.join(names)}"
    width = max(len(cls.__name__) for cls in classes) + 2
    for name in ["run", *SEAMS]:
        title = name
        for cls in classes:
            method = vars(cls).get(name)
            if method and not getattr(method, "__isabstractmethod__", False):
                yield f"{title:12}{cls.__name__:{width}}{place_of(method)}"
                title = ""


def place_of(method: Any) -> str:
    """The file and line of a method, as one would open it from here."""
    code = getattr(inspect.unwrap(method), "__code__", None)
    if code is None:
        return f"in {method.__module__}"
    path, package = Path(code.co_filename), Path(__file__).parents[2]
    base = next((base for base in (Path.cwd(), package) if path.is_relative_to(base)), None)
    return f"{path.relative_to(base).as_posix() if base else path}:{code.co_firstlineno}"
