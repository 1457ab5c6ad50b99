"""@tool: a function's signature becomes a schema for the model and a validated call.

Copy with: arguments.py, depends.py, errors.py, messages.py, waiting.py and their imports.

    @tool
    async def add(a: int, b: int) -> int:
        "Adds two numbers."
        return a + b

`await add(1, 2)` still calls the function. Synchronous functions are also supported: every call is
executed in a separate thread, together with its synchronous dependencies.
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
"""The default overrides of `Tool.execute`."""


@dataclass(repr=False)
class Tool(Advised):
    """A tool that the model may call. Sources of tools other than `@tool` derive from this class.

    parameters: a JSON schema of type "object". Tools made from one function share it, so copy it
        before you change it. The validated keywords are `type`, `enum`,
        `required`, `properties`, `items` and `additionalProperties: false`. The tool must validate
        other keywords.
    ephemeral: number of newest results of this tool that remain visible; 0 for all results. Older
        results are pruned in batches: see `Ephemeral` and `CostAwarePruning`.
    timeout: maximum seconds per call.
    parallel: whether calls may run concurrently with other calls.
    idempotent: whether a call may be executed twice, for example after an interrupted execution.
    read_only: whether calls have no side effects.
    ends_run: a result of this tool is the result of the run, which ends as "done". An error does
        not end the run.
    external: whether a person, a queue or a browser executes the call. The run ends with
        "needs_answer", and `agent.answer` provides the result.
    extra: additional fields of the tool by provider ("openai", "anthropic", "google"), in the
        format of its API, such as {"anthropic": {"input_examples": [{"city": "Bern"}]}}.

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
        except ValueError as error:  # for example a schema with hundreds of nested objects
            raise ValueError(f"tool {self.name!r}: invalid parameters: {error}") from None

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r})"

    @property
    def resumes(self) -> bool:
        """Whether an interrupted call may start again: it repeats nothing, or may be repeated."""
        return self.idempotent

    def validate(self, arguments: str) -> JSON:
        """Parse and validate the model's JSON text. Raises ToolError for invalid arguments."""
        adapter = TypeAdapter[JSON](type_of({"type": "object", **self.parameters}))
        return read_object(arguments, adapter)

    def file_names(self, args: JSON) -> Mapping[str, Sequence[str]]:
        """Return the names of the files that path arguments lead to, by argument.

        "deny" and "ask" rules of `Approval` match these names. `@tool` recognizes arguments of type
        `Path`, and lists of paths.
        """
        return {}

    async def execute(self, args: JSON, overrides: Overrides = NO_OVERRIDES) -> object:
        """Execute the tool with validated arguments. Return its result; exceptions propagate."""
        raise NotImplementedError


class FunctionTool(Tool, Generic[P, R]):
    """A function as a tool. Calling the object calls the function. `@tool` returns such objects.

    types: types of parameters that are determined at run time, overriding annotations.
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
            raise TypeError(f"tool {name!r} is a generator function; return a list instead")
        self.takes = takes = _arguments_of(function, name, types)
        description = description or takes.description
        if not description and sys.flags.optimize < 2:  # `python -OO` removes docstrings
            raise TypeError(
                f"tool {name!r} has no description, which tells the model when to call it: "
                f'write @tool("...") or a docstring'
            )
        super().__init__(name, description, takes.schema, **options)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return self.function(*args, **kwargs)

    def __get__(self, instance: object, owner: object) -> FunctionTool[..., R]:
        """Bind a tool defined in a class to the instance, like a method."""
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
                while inspect.isawaitable(result):  # also a coroutine without its `await`
                    result = await warn_if_blocking(self.name, result)
                if inspect.isgenerator(result):  # iteration may raise an exception
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
    """Tools that are made again from the same function share their schema and its validation."""
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
    timeout: maximum seconds per call.
    read_only, idempotent, parallel: whether calls have no side effects, may run twice (after a
        crash, for example), or may run at the same time as others.
    ephemeral: how many of the newest results stay visible to the model; 0 for all of them.
    ends_run: whether a result of this tool is the answer of the run.
    external: whether a person, a queue or a browser executes the call: see `Agent.answer`.
    extra: fields for one provider, such as {"anthropic": {"input_examples": [...]}}.

    A `def` function runs in a thread. An `async def` function runs on the event loop, where code
    that blocks, such as `time.sleep`, stops all agents; this logs a warning.
    """
    if callable(description):
        return FunctionTool(description)
    if (description is not None and not isinstance(description, str)) or more:
        raise TypeError('write @tool("What it does", name="search"): the rest are keywords')
    known = inspect.signature(Tool).parameters
    for option in options:
        if option not in known:
            remedy = advice(["tool"], option, known, "help(Tool) describes the options")
            raise TypeError(f"@tool has no option {option}: {remedy}")
    return functools.partial(FunctionTool, description=description, **options)


def names_of_file(path: Path, folder: Path = Path()) -> tuple[str, str]:
    """Return the names of the file that a path leads to: relative to a directory, and absolute."""
    file = os.path.realpath(folder / path)
    relative = os.path.relpath(file, os.path.realpath(folder))
    return Path(relative).as_posix(), Path(file).as_posix()


def by_name(tools: Iterable[object]) -> dict[str, Tool]:
    """Return tools by name. Raises TypeError for other objects, ValueError for duplicate names."""
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
    """Return the tool of a call, or with a name. Raises ToolError if there is none."""
    if not isinstance(cast(object, call), ToolCall | str):
        raise TypeError("agent.tool is not a decorator: use @tool, and Agent(tools=[search])")
    name = call if isinstance(call, str) else call.name
    named = by_name(tools)
    if name not in named:
        names = ", ".join(named) or "none"
        raise ToolError(f"There is no tool named {name!r:.80}. Available tools: {names}.")
    return named[name]
