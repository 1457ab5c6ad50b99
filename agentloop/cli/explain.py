"""`python -m agentloop explain my_module:MyAgent`: which class does what in an agent.

A request or a call goes through the classes from left to right; a view comes back the other way.
"""

from __future__ import annotations

import argparse
import importlib
import inspect
import sys
from collections.abc import Iterator
from dataclasses import MISSING, Field
from difflib import get_close_matches
from functools import partial
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
    """The class at "module:Class", at "path/to/file.py:Class", or the only agent of a module."""
    place, _, name = where.rpartition(":")
    if not place or name.endswith(".py"):  # C:\agent.py has a colon too
        place, name = where, ""
    module = load(place)
    agents: dict[str, type[Any]] = {k: v for k, v in vars(module).items() if is_agent(v)}
    own = [key for key in agents if agents[key].__module__ == module.__name__]
    if not name and len(own) == 1:
        name = own[0]
    if name in agents:
        return agents[name]
    near = ", ".join(get_close_matches(name, agents) or own) or "no agent, a subclass of Loop"
    problem = f"{name} is no agent" if hasattr(module, name) else f"there is no {name} in it"
    raise NotFound(f"{place}: {problem if name else 'name one'}. It has: {near}.")


def is_agent(value: object) -> bool:
    """Whether it is a subclass of a Loop: this package's, or that of a bundle."""
    return isinstance(value, type) and "Loop" in [base.__name__ for base in value.__mro__[1:]]


def load(place: str) -> ModuleType:
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


def explanation(agent: type[Any]) -> Iterator[str]:
    """Its classes, which of them handle each seam, and where each setting comes from."""
    classes = [cls for cls in agent.__mro__ if cls.__module__ not in ("abc", "builtins")]
    names = (cls.__name__ for cls in classes[1:] if not cls.__name__.startswith("_"))
    yield f"{agent.__name__}, from left to right: {', '.join(names)}"
    width = max(len(cls.__name__) for cls in classes) + 2
    for name in ["run", *SEAMS]:
        defined = [cls for cls in classes if name in vars(cls) and not is_abstract(cls, name)]
        for i, cls in enumerate(defined):
            line, ends = place_of(cls, name), ""
            if i < len(defined) - 1 and not calls_super(vars(cls)[name]):
                ends = "  calls no super(): what follows is not reached by it"
            yield f"{'' if i else name:12}{cls.__name__:{width}}{line}{ends}"
    yield ""
    fields: dict[str, Field[Any]] = agent.__dataclass_fields__
    for name, setting in fields.items():
        if setting.init:
            cls = next(cls for cls in classes if name in vars(cls).get("_sets", ()))
            yield f"{name:24}{cls.__name__:{width}}{default_of(setting)}"


def is_abstract(cls: type[Any], name: str) -> bool:
    return getattr(vars(cls)[name], "__isabstractmethod__", False)


def calls_super(method: Any) -> bool:
    code = getattr(inspect.unwrap(method), "__code__", None)
    return code is None or "__class__" in code.co_freevars


def place_of(cls: type[Any], name: str) -> str:
    """The file and line of a method, as one would open it from here."""
    code = getattr(inspect.unwrap(vars(cls)[name]), "__code__", None)
    if code is None:
        return f"in {cls.__module__}"
    path, package = Path(code.co_filename), Path(__file__).parents[2]
    base = next((base for base in (Path.cwd(), package) if path.is_relative_to(base)), None)
    return f"{path.relative_to(base).as_posix() if base else path}:{code.co_firstlineno}"


def default_of(setting: Field[Any]) -> str:
    factory: Any = setting.default_factory
    if isinstance(factory, partial):  # as Settings copies a list
        return f"{factory.args[0]!r:.60}"
    if factory is not MISSING:
        return f"made by {getattr(factory, '__name__', factory)}"
    return "(required)" if setting.default is MISSING else f"{setting.default!r:.60}"
