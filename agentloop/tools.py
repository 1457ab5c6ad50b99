"""@tool turns a function into a tool: its signature is the schema, and calls are validated.

Copy with: arguments.py, depends.py, errors.py, messages.py, waiting.py and their imports.

    @tool
    async def add(a: int, b: int) -> int:
        "Adds two numbers."
        return a + b

`await add(1, 2)` still calls the function. It may be a plain `def`, too: then each call runs in a
thread of its own, together with the `def` dependencies.
"""

from __future__ import annotations

import copy
import functools
import inspect
import os
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path
from types import MethodType
from typing import Any, Generic, ParamSpec, TypeVar, cast, overload
from weakref import WeakKeyDictionary

from pydantic import TypeAdapter
from pydantic_core import to_json

from .arguments import Arguments, read_object, type_of
from .content import as_text
from .depends import Function, Overrides, Resolver
from .errors import ToolError
from .messages import JSON, Advised, Extra, TaskComplete, ToolCall, advice
from .waiting import WorkThread, warn_if_blocking

P = ParamSpec("P")
R = TypeVar("R")

NO_OVERRIDES: Overrides = {}
"""What `Tool.execute` gets if there are no overrides."""


@dataclass(repr=False)
class Tool(Advised):
    """A tool that the model may call. If your tools don't come from functions, derive a class.

    parameters: a JSON schema of type "object". Tools made from one function share it, so copy it
        before you change it. The arguments are checked for `type`, `enum`, `required`,
        `properties`, `items` and `additionalProperties: false`; check all else in `execute`.
    ephemeral: how many of the tool's newest results the model still sees; 0 for all of them. Older
        ones are hidden several at a time: see `Ephemeral` and `CostAwarePruning`.
    timeout: how many seconds a call may take.
    parallel: whether calls may run at the same time as others.
    idempotent: whether a call may run twice, because the first time was interrupted for example.
    read_only: whether calls have no side effects.
    ends_run: whether a result of this tool is the answer of the run, which ends as "done". An error
        doesn't end it.
    external: whether a person, a queue or a browser does the work. The run ends as "needs_answer",
        and you pass the result to `agent.answer`.
    deferred: whether the model gets the tool only after a search has found it: see `ToolSearch`.
    extra: more fields for the tool by provider ("openai", "anthropic", "google"), in the format of
        its API, such as {"anthropic": {"input_examples": [{"city": "Bern"}]}}. They replace the
        tool's own fields of the same name.

    Tools with equal fields are equal.
    """

    name: str
    description: str = ""
    parameters: JSON = field(default_factory=lambda: {"type": "object", "properties": {}})
    _: KW_ONLY
    ephemeral: int = 0
    timeout: float | None = None
    parallel: bool = True
    idempotent: bool = False
    read_only: bool = False
    external: bool = False
    deferred: bool = False
    extra: Extra = None
    ends_run: bool = False

    def __hash__(self) -> int:
        return hash(self.name)

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[A-Za-z0-9_-]{1,64}", self.name):
            raise ValueError(
                f"tool name {self.name!r:.100}: providers accept 1 to 64 letters, digits, _ and -; "
                'choose another name, such as @tool(name="search")'
            )
        timeout = cast(object, self.timeout)
        if timeout is not None and not (isinstance(timeout, int | float) and timeout > 0):
            raise TypeError(
                f"tool {self.name!r}: timeout must be seconds, such as 10 or math.inf, "
                f"not {timeout!r:.80}"
            )
        if self.ephemeral < 0:
            raise ValueError(
                f"tool {self.name!r}: ephemeral must be at least 0, not {self.ephemeral}"
            )
        try:
            to_json(self.parameters)
        except ValueError as error:  # such as a schema in which hundreds of objects are nested
            raise ValueError(f"tool {self.name!r}: parameters must be JSON: {error}") from None

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r})"

    @property
    def resumes(self) -> bool:
        """Whether an interrupted call may start again.

        It may if the tool is idempotent, or continues where it stopped, as a sub-agent does.
        """
        return self.idempotent

    def validate(self, arguments: str) -> JSON:
        """Read the arguments from the model's JSON text. Raises ToolError if they're invalid."""
        adapter = TypeAdapter[JSON](type_of({"type": "object", **self.parameters}))
        return read_object(arguments, adapter)

    def file_names(self, args: JSON) -> Mapping[str, Sequence[str]]:
        """The names of the files that the arguments lead to, by argument.

        "deny" and "ask" rules of `Approval` match these names. For a tool made by `@tool`, these
        are the arguments of type `Path`, and those in lists of paths.
        """
        return {}

    async def execute(self, args: JSON, overrides: Overrides = NO_OVERRIDES) -> object:
        """Run the tool with arguments from `validate`. Returns its result, or raises."""
        raise NotImplementedError


class FunctionTool(Tool, Generic[P, R]):
    """A function as a tool, as `@tool` makes it. If you call the tool, you call the function.

    types: types of parameters that you know only at run time, in place of the annotations.
    """

    def __init__(
        self,
        function: Callable[P, R],
        description: str | None = None,
        *,
        name: str | None = None,
        types: Mapping[str, object] = {},
        **options: Any,
    ) -> None:
        functools.update_wrapper(self, function)
        self.function = function
        name = name or str(getattr(function, "__name__", type(function).__name__))
        if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
            raise TypeError(f"tool {name!r} must not be a generator function: return a list")
        self.takes = takes = _arguments_of(function, name, types)
        description = description or takes.description
        if not description and sys.flags.optimize < 2:  # `python -OO` removes docstrings
            raise TypeError(
                f"tool {name!r} needs a description, which tells the model when to call it: "
                f'write @tool("...") or a docstring'
            )
        super().__init__(name, description, takes.schema, **options)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return self.function(*args, **kwargs)

    def __get__(self, instance: object, owner: object) -> FunctionTool[..., R]:
        """Bind a tool that's defined in a class to the instance, as a method is."""
        bound = copy.copy(self)
        if instance is not None:
            bound.function = MethodType(self.function, instance)
        return bound

    def validate(self, arguments: str) -> JSON:
        return self.takes.read(arguments)

    def file_names(self, args: JSON) -> Mapping[str, Sequence[str]]:
        names = dict[str, list[str]]()
        for name, value in args.items():
            several = isinstance(value, list | tuple | set)
            for path in cast(Iterable[object], value) if several else [value]:
                if isinstance(path, Path):
                    names.setdefault(name, []).extend(names_of_file(path))
        return names

    async def execute(self, args: JSON, overrides: Overrides = NO_OVERRIDES) -> object:
        thread = WorkThread(inline=inspect.iscoroutinefunction(self.function))
        async with Resolver(overrides, thread) as resolver:
            injected = await resolver.get(self.takes.injected)
            try:
                result: Any = await thread.run(self.function, **args, **injected)
                while inspect.isawaitable(result):  # also of a function that forgot its `await`
                    result = await warn_if_blocking(self.name, result)
                if inspect.isgenerator(result):  # here, because it may raise
                    result = await thread.run(list[Any], result)
                if not self.ends_run:
                    return result
                raise TaskComplete(as_text(result), None if isinstance(result, str) else result)
            except* TaskComplete as group:  # not a failure: dependencies must not roll back
                done = group.exceptions[0]
                while isinstance(done, BaseExceptionGroup):
                    done = done.exceptions[0]
        raise done


_known = WeakKeyDictionary[Any, dict[tuple[str, str | None], Arguments]]()


def _arguments_of(function: Function, name: str, types: Mapping[str, object]) -> Arguments:
    """The arguments of a function. A tool made again from one function reuses them."""
    if types or not inspect.isfunction(function):
        return Arguments(function, name, types)
    known = _known.setdefault(function, {})
    key = name, function.__doc__
    if key not in known:
        known[key] = Arguments(function, name, types)
    return known[key]


@overload
def tool(function: Callable[P, R], /) -> FunctionTool[P, R]: ...
@overload
def tool(
    description: str | None = None,
    *,
    name: str | None = None,
    ephemeral: int = 0,
    timeout: float | None = None,
    parallel: bool = True,
    idempotent: bool = False,
    read_only: bool = False,
    external: bool = False,
    ends_run: bool = False,
    extra: Extra = None,
) -> Callable[[Callable[P, R]], FunctionTool[P, R]]: ...
def tool(description: Any = None, *more: object, **options: Any) -> object:
    """Turn a function into a tool: `@tool`, or `@tool("description", timeout=10)`.

    description: tells the model when to call the tool; by default the docstring, which also
        describes the parameters.
    name: the name for the model; by default that of the function.
    timeout: how many seconds a call may take.
    read_only, idempotent, parallel: whether calls have no side effects, may run twice (after a
        crash, for example), or may run at the same time as others.
    ephemeral: how many of the newest results the model still sees; 0 for all of them.
    ends_run: whether a result of this tool is the answer of the run.
    external: whether a person, a queue or a browser does the work: see `Agent.answer`.
    extra: fields for one provider, such as {"anthropic": {"input_examples": [...]}}.

    A `def` function runs in a thread. An `async def` function runs on the event loop, where code
    that blocks, such as `time.sleep`, stops all agents; this logs a warning.
    """
    if callable(description):
        return FunctionTool(description)
    if (description is not None and not isinstance(description, str)) or more:
        raise TypeError('@tool takes one text, and keywords: @tool("What it does", name="search")')
    known = inspect.signature(Tool).parameters
    for option in options:
        if option not in known:
            remedy = advice(["tool"], option, known, "help(Tool) describes the options")
            raise TypeError(f"@tool has no option {option}: {remedy}")
    return functools.partial(FunctionTool, description=description, **options)


def names_of_file(path: Path, folder: Path = Path()) -> tuple[str, str]:
    """The names of the file that a path leads to: relative to a folder, and absolute."""
    file = os.path.realpath(folder / path)
    relative = os.path.relpath(file, os.path.realpath(folder))
    return Path(relative).as_posix(), Path(file).as_posix()


def by_name(tools: Iterable[object]) -> dict[str, Tool]:
    """Tools by name. Raises TypeError if one isn't a Tool, and ValueError if two share a name."""
    named: dict[str, Tool] = {}
    for item in tools:
        if not isinstance(item, Tool):
            raise TypeError(
                f"{item!r:.80} is not a tool: decorate it with @tool. For a list of tools, use "
                "*tools; for a toolkit, *toolkit.tools; for an agent, as_tool(agent, ...); for an "
                "MCP server, `async with mcp_tools(...) as tools`"
            )
        if item.name in named:
            raise ValueError(
                f"there are two tools named {item.name!r}: rename one, such as @tool(name=...), or "
                'name its MCP server: mcp_tools(..., name="papers")'
            )
        named[item.name] = item
    return named


def find_tool(call: ToolCall | str, tools: Iterable[Tool]) -> Tool:
    """Find the tool of a call, or by its name. Raises ToolError if there's none."""
    if not isinstance(cast(object, call), ToolCall | str):
        raise TypeError("agent.tool is not a decorator: use @tool, and Agent(tools=[search])")
    name = call if isinstance(call, str) else call.name
    named = by_name(tools)
    if name not in named:
        names = ", ".join(name for name in named if not named[name].deferred) or "none"
        raise ToolError(f"There is no tool named {name!r:.80}. Available tools: {names}.")
    return named[name]
