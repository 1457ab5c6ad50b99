"""@tool: a function's signature becomes a schema for the model and a validated call.

Copy with: arguments.py, depends.py, errors.py, messages.py, waiting.py and what they name.

    @tool
    async def add(a: int, b: int) -> int:
        "Adds two numbers."
        return a + b

`await add(1, 2)` still calls the function. A plain `def` works as well: each call runs in a thread
of its own, together with its plain dependencies.
"""

from __future__ import annotations

import copy
import functools
import inspect
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import KW_ONLY, dataclass, field
from types import MethodType
from typing import Any, Generic, ParamSpec, TypeVar, overload

from pydantic import TypeAdapter

from .arguments import Arguments, read_object, type_of
from .content import as_text
from .depends import Overrides, Resolver
from .errors import ToolError
from .messages import JSON, Extra, TaskComplete
from .waiting import WorkThread

P = ParamSpec("P")
R = TypeVar("R")

NO_OVERRIDES: Overrides = {}


@dataclass(repr=False)
class Tool:
    """Something that the model may call. Other sources of tools than `@tool` derive from this.

    parameters: a JSON schema of type "object". These keywords are checked here: `type`, `enum`,
        `required`, `properties`, `items`, `additionalProperties: false`. The others are
        the tool's own to check.
    ephemeral: how many newest results of this tool stay visible; 0 means all of them. Older ones
        go in batches: see `Ephemeral`.
    timeout: seconds that one call may take.
    parallel: may run side by side with other calls.
    idempotent: may run twice for one call, for example when a restart cut the first one off.
    read_only: has no side effects.
    ends_run: a result of this tool is the result of the run, which ends as "done". An error does
        not end the run.
    external: somebody else does the work: a person, a queue, a browser. Nothing runs here. The run
        ends with "needs_answer", and `agent.answer` gives the result.
    extra: further fields of the tool for a provider, as its API has them, such as
        {"anthropic": {"input_examples": [{"city": "Bern"}]}}. The names of the providers are
        "openai", "anthropic", "google".

    Tools are equal if all of this is.
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
    __hash__ = object.__hash__

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[A-Za-z0-9_-]{1,64}", self.name):
            raise ValueError(
                f"tool name {self.name!r:.100}: providers accept 1 to 64 letters, digits, _ and -; "
                'choose another one, such as @tool(name="search")'
            )

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r})"

    def validate(self, arguments: str) -> JSON:
        """Return the arguments in the model's JSON text. ToolError says what is wrong with them."""
        adapter = TypeAdapter[JSON](type_of({"type": "object", **self.parameters}))
        return read_object(arguments, adapter)

    async def execute(self, args: JSON, overrides: Overrides = NO_OVERRIDES) -> object:
        """Run the tool with validated arguments. Return what it returns, raise what it raises."""
        raise NotImplementedError


class FunctionTool(Tool, Generic[P, R]):
    """A function as a tool; calling it calls the function. `@tool` makes these.

    types: of parameters whose annotations do not say it, because the type is only known at run
        time.
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
        own_name: str = getattr(function, "__name__", type(function).__name__)
        name = name or own_name
        if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
            raise TypeError(f"tool {name!r} is a generator function; return a list instead")
        self.takes = takes = Arguments(function, name, types)
        super().__init__(name, description or takes.description, takes.schema, **options)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return self.function(*args, **kwargs)

    def __get__(self, instance: object, owner: object) -> FunctionTool[..., R]:
        """Bind a tool that is defined in a class to the instance, as a method is bound."""
        bound = copy.copy(self)
        if instance is not None:
            bound.function = MethodType(self.function, instance)
        return bound

    def validate(self, arguments: str) -> JSON:
        return self.takes.read(arguments)

    async def execute(self, args: JSON, overrides: Overrides = NO_OVERRIDES) -> object:
        thread = WorkThread(inline=inspect.iscoroutinefunction(self.function))
        async with Resolver(overrides, thread) as resolver:
            injected = await resolver.get(self.takes.injected)
            try:
                result = await thread.run(self.function, **args, **injected)
                result = await result if inspect.isawaitable(result) else result
                if not self.ends_run:
                    return result
                raise TaskComplete(as_text(result), None if isinstance(result, str) else result)
            except* TaskComplete as group:  # no failure: dependencies are not to roll back
                done = group.exceptions[0]
                while isinstance(done, BaseExceptionGroup):
                    done = done.exceptions[0]
        raise done


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
def tool(description: Any = None, **options: Any) -> object:
    """Make a tool of a function: `@tool`, or `@tool("what it does", name=...)`.

    Without a description the docstring is it; the docstring also describes the parameters. The
    other options are those of `Tool`. A plain `def` runs in a thread, an `async def` does not.
    """
    if callable(description):
        return FunctionTool(description)
    return functools.partial(FunctionTool, description=description, **options)


def by_name(tools: Iterable[object]) -> dict[str, Tool]:
    """Return tools by name. TypeError: something is no tool. ValueError: two have one name."""
    named: dict[str, Tool] = {}
    for each in tools:
        if not isinstance(each, Tool):
            raise TypeError(f"{each!r:.80} is not a tool: decorate it with @tool")
        if each.name in named:
            raise ValueError(
                f"there are two tools named {each.name!r}: give one another name, "
                "such as @tool(name=...)"
            )
        named[each.name] = each
    return named


def find_tool(name: str, tools: Iterable[Tool]) -> Tool:
    """Return the tool of this name. ToolError if there is none."""
    named = by_name(tools)
    if name not in named:
        names = ", ".join(named) or "none"
        raise ToolError(f"There is no tool named {name!r:.80}. There are: {names}.")
    return named[name]
