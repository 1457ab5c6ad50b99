"""Depends: what a tool gets from the program instead of from the model.

Copy with: errors.py, messages.py, results.py, waiting.py.

    async def get_db():
        async with connect() as db:
            yield db

    @tool
    async def find(name: str, db: Annotated[Db, Depends(get_db)]) -> str: ...

A dependency is a function: plain, async, a generator or an async generator (what follows its
`yield` runs after the tool, also when that failed or was cancelled). Its own parameters may be
dependencies. Within one tool call each is called once, and they close last in, first out. Plain
functions and generators run on the event loop, so they should not block.
"""

import inspect
from collections.abc import Callable, Iterable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from inspect import Parameter
from typing import Any, get_args, get_type_hints

from .errors import ToolError
from .results import describe_error
from .waiting import uncancelled

Function = Callable[..., Any]
Plan = dict[Function, dict[str, Function]]
Overrides = Mapping[Function, Function]


@dataclass(frozen=True)
class Dependency:
    """The mark that `Depends` leaves on a parameter."""

    function: Function


def Depends(function: Function) -> Any:
    """Marks a parameter: `db: Annotated[Db, Depends(get_db)]`, or `db: Db = Depends(get_db)`."""
    return Dependency(function)


def current_agent() -> Any:
    """Gives a tool the agent that runs it, by `Depends(current_agent)`."""
    raise LookupError("there is a current agent only inside a tool call")


def current_call() -> Any:
    """Gives a tool the `ToolCall` that it answers, by `Depends(current_call)`."""
    raise LookupError("there is a current call only inside a tool call")


class Resolver(AsyncExitStack):
    """The dependencies of one tool call: `async with Resolver(overrides, plan) as r: ...`.

    `overrides` maps functions to those that take their place, wherever they are asked for.
    """

    def __init__(self, overrides: Overrides, plan: Plan) -> None:
        super().__init__()
        self.overrides, self.plan = overrides, plan
        self.values: dict[Function, Any] = {}

    async def get(self, function: Function) -> Any:
        """What a dependency gives. It is called if it has not been called yet."""
        function = self.overrides.get(function, function)
        if function not in self.values:
            if function not in self.plan:
                self.plan = self.plan | plan([function])
            given = await self.get_all(self.plan[function])
            self.values[function] = await self._open(function(**given))
        return self.values[function]

    async def get_all(self, wanted: Mapping[str, Function]) -> dict[str, Any]:
        """What the dependencies of one function give, by the names of its parameters."""
        return {name: await self.get(each) for name, each in wanted.items()}

    async def _open(self, made: Any) -> Any:
        def once() -> Any:
            return made

        if inspect.isasyncgen(made):
            return await self.enter_async_context(asynccontextmanager(once)())
        if inspect.isgenerator(made):
            return self.enter_context(contextmanager(once)())
        return await made if inspect.isawaitable(made) else made

    async def __aexit__(self, *error: Any) -> None:
        """Close them. They see the error of the tool, and cannot swallow it."""
        try:
            with uncancelled():
                await super().__aexit__(*error)
        except Exception as failure:
            if any(error):
                raise
            raise ToolError(  # the model has to know that there may be effects
                f"the tool ran, but closing its dependencies failed: {describe_error(failure)}"
            ) from failure


def plan(functions: Iterable[Function]) -> Plan:
    """Which parameters of dependencies, and of theirs in turn, are dependencies.

    Raises TypeError if nothing gives another parameter a value.
    """
    found: Plan = {}
    for function in functions:
        parameters = parameters_of(function)
        found[function] = wanted = injected(parameters)
        for name, each in parameters.items():
            optional = each.default is not each.empty or each.kind in (2, 4)  # *args, **kwargs
            if not optional and name not in wanted:
                raise TypeError(
                    f"dependency {name_of(function)!r}: nothing gives its parameter {name!r} a "
                    "value; mark it with Depends(...) or give it a default"
                )
        found |= plan(wanted.values())
    return found


def injected(parameters: Mapping[str, Parameter]) -> dict[str, Function]:
    """The parameters that are marked with `Depends`, and the function that each gets it from."""
    marks = {n: _mark(each.default) or _mark(each.annotation) for n, each in parameters.items()}
    return {name: mark.function for name, mark in marks.items() if mark}


def _mark(hint: Any) -> Dependency | None:
    if isinstance(hint, Dependency):
        return hint
    inner = get_args(getattr(hint, "__value__", hint))  # __value__: of `type X = ...`
    return next(filter(None, map(_mark, inner)), None)


def parameters_of(function: Function) -> dict[str, Parameter]:
    """The parameters of a function, each annotation resolved, with its `Annotated` metadata.

    Annotations may use the names of the function's module, and, if it is defined in a function or
    a class, those that are there while it is defined.
    """
    try:
        parameters = inspect.signature(function).parameters
    except ValueError:  # a builtin that does not tell (`dict`, say)
        return {}

    def typed() -> None: ...  # without the return type, which is often there for checkers only

    typed.__annotations__ = {
        name: each.annotation for name, each in parameters.items() if each.annotation != each.empty
    }
    code: Any = getattr(function, "func", function)  # func: of a partial
    if not inspect.isroutine(code):
        code = code.__init__ if inspect.isclass(code) else code.__call__
    module = getattr(inspect.unwrap(code), "__globals__", {})
    local: dict[str, Any] = {}
    frame = inspect.currentframe() if "." in code.__qualname__ else None
    while frame:
        local = {**frame.f_locals, **local}
        frame = frame.f_back
    hints = get_type_hints(typed, module, local, include_extras=True)
    empty = Parameter.empty
    return {n: each.replace(annotation=hints.get(n, empty)) for n, each in parameters.items()}


def name_of(function: Function) -> str:
    """The name of a function in messages."""
    return getattr(function, "__name__", type(function).__name__)
