"""Depends: what a tool gets from the program instead of from the model.

Copy with: nothing else.

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

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias, TypeVar, get_args, get_type_hints

T = TypeVar("T")
Function: TypeAlias = Callable[..., Any]
Plan: TypeAlias = dict[Function, dict[str, Function]]
Names: TypeAlias = Mapping[str, Any] | None


@dataclass(frozen=True, slots=True)
class Dependency:
    """The mark that `Depends` leaves on a parameter."""

    function: Function


def Depends(function: Function) -> Any:
    """Marks a parameter: `db: Annotated[Db, Depends(get_db)]`, or `db: Db = Depends(get_db)`."""
    if not callable(function):
        raise TypeError(f"Depends takes a function, such as Depends(get_db), not {function!r:.80}")
    return Dependency(function)


def current_agent() -> Any:
    """As `Depends(current_agent)`: the agent that runs the tool."""
    raise LookupError("there is a current agent only inside a tool call")


def current_call() -> Any:
    """As `Depends(current_call)`: the `ToolCall` that is being answered."""
    raise LookupError("there is a current call only inside a tool call")


# ---- calling and closing them


class Resolver(AsyncExitStack[None]):
    """The dependencies of one tool call: `async with Resolver(overrides) as r: await r.get(fn)`.

    `overrides` maps functions to those that take their place, wherever they are asked for.
    """

    def __init__(self, overrides: Mapping[Function, Function], plan: Plan | None = None) -> None:
        super().__init__()
        self.closing = False
        self._overrides, self._plan = overrides, plan or {}
        self._values: dict[Function, Any] = {}

    async def __aexit__(self, *error: Any) -> None:
        self.closing = True
        await super().__aexit__(*error)

    async def get(self, function: Function, *path: Function) -> Any:
        """What a dependency gives, called now if it has not been called yet."""
        function = self._overrides.get(function, function)
        if function not in self._values:
            _refuse_circle(function, path)
            wanted = self._plan.get(function)
            wanted = dependencies(function) if wanted is None else wanted
            given = {name: await self.get(each, *path, function) for name, each in wanted.items()}
            self._values[function] = await self._open(function, given)
        return self._values[function]

    async def _open(self, function: Function, arguments: dict[str, Any]) -> Any:
        manager = _opened(function, arguments)

        async def close(*error: Any) -> None:  # not True: no dependency swallows a tool's error
            await manager.__aexit__(*error)

        try:
            value = await manager.__aenter__()
        except RuntimeError as error:
            if str(error) != "generator didn't yield":  # contextlib's, which does not say whose
                raise
            raise RuntimeError(f"dependency {name_of(function)}: {error}") from error
        self.push_async_exit(close)
        return value


@asynccontextmanager
async def _opened(function: Function, arguments: dict[str, Any]) -> AsyncGenerator[Any, None]:
    made: Any = function(**arguments)
    once: Function = lambda: made  # noqa: E731
    if inspect.isasyncgen(made):
        async with asynccontextmanager(once)() as value:
            yield value
    elif inspect.isgenerator(made):
        with contextmanager(once)() as value:
            yield value
    else:
        yield await made if inspect.isawaitable(made) else made


async def run_and_close(resolver: Resolver, work: Callable[[], Awaitable[T]]) -> T:
    """What `work()` returns, which uses the resolver; a cancel does not cut its closing short.

    The work has a task for itself, since dependencies have to open and close in one task and one
    context. A cancel is handed on to it only while it is not closing; work that ends all the same
    counts as finished, so that its result is not lost.
    """

    async def outcome() -> tuple[T] | BaseException:
        try:
            return (await work(),)
        except BaseException as error:  # a KeyboardInterrupt would leave a task by the event loop
            return error

    task = asyncio.ensure_future(outcome())
    cancelled: BaseException | None = None
    while not task.done():
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError as error:
            cancelled = error
            if not resolver.closing:
                task.cancel()
    if isinstance(result := task.result(), BaseException):
        raise cancelled or result
    return result[0]


# ---- reading signatures


def plan(
    functions: Iterable[Function], names: Names = None, path: tuple[Function, ...] = ()
) -> Plan:
    """What dependencies, and each of their own in turn, have injected. TypeError if it cannot work.

    `names` are names that annotations may use besides those of the function's module.
    """
    found: Plan = {}
    for function in functions:
        _refuse_circle(function, path)
        found[function] = dependencies(function, names)
        found |= plan(found[function].values(), names, (*path, function))
    return found


def dependencies(function: Function, names: Names = None) -> dict[str, Function]:
    """As `injected`, for a dependency: TypeError if something else is missing to call it."""
    parameters = parameters_of(function, names)
    wanted = injected(parameters)
    for name, parameter in parameters.items():
        optional = parameter.default is not parameter.empty or parameter.kind in (2, 4)  # *a, **k
        if not optional and name not in wanted:
            raise TypeError(
                f"dependency {name_of(function)!r}: nothing gives its parameter {name!r} a value; "
                "mark it with Depends(...) or give it a default"
            )
    return wanted


def injected(parameters: Mapping[str, inspect.Parameter]) -> dict[str, Function]:
    """The parameters that are marked with `Depends`, and the function that each gets it from."""
    marks = {
        name: _mark(each.default) or _mark(each.annotation) for name, each in parameters.items()
    }
    return {name: mark.function for name, mark in marks.items() if mark}


def _mark(hint: Any) -> Dependency | None:
    if isinstance(hint, Dependency):
        return hint
    marks = map(_mark, get_args(getattr(hint, "__value__", hint)))  # __value__: `type X = ...`
    return next((mark for mark in marks if mark), None)


def parameters_of(function: Function, names: Names = None) -> dict[str, inspect.Parameter]:
    """The parameters of a function, each annotation resolved, with its `Annotated` metadata."""
    try:
        parameters = inspect.signature(function).parameters
    except ValueError:  # a builtin that does not tell (`dict`, say)
        return {}

    def typed() -> None: ...  # without the return type, which is often there for checkers only

    empty = inspect.Parameter.empty
    typed.__annotations__ = {
        name: each.annotation for name, each in parameters.items() if each.annotation is not empty
    }
    while isinstance(function, partial):
        function = function.func
    if not inspect.isroutine(function):  # a class, or an object that can be called
        function = function.__init__ if inspect.isclass(function) else type(function).__call__
    module = getattr(inspect.unwrap(function), "__globals__", {})
    local = names if "." in function.__qualname__ else None  # defined in a function or a class
    try:
        hints = get_type_hints(typed, module, local, include_extras=True)
    except NameError as error:
        raise TypeError(
            f"{name_of(function)!r}: an annotation uses {error.name!r}, which is not defined there "
            "when the program runs; define or import it at the top of its module"
        ) from error
    return {n: each.replace(annotation=hints.get(n, empty)) for n, each in parameters.items()}


def _refuse_circle(function: Function, path: tuple[Function, ...]) -> None:
    if function in path:
        circle = " -> ".join(map(name_of, [*path[path.index(function) :], function]))
        raise TypeError(f"dependencies go in a circle: {circle}")


def name_of(function: Function) -> str:
    """What to call a function in messages."""
    return getattr(function, "__name__", None) or type(function).__name__
