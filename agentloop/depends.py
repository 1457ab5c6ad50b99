"""Depends: values that the program, not the model, provides to a tool.

Copy with: content.py, errors.py, waiting.py and their imports.

    async def get_db():
        async with connect() as db:
            yield db

    @tool
    async def find(name: str, db: Annotated[Db, Depends(get_db)]) -> str: ...

A dependency is a synchronous or asynchronous function or generator. Code after the `yield` is
executed after the tool. If the tool failed or was cancelled, the exception is raised at the
`yield`, so that `async with` and `finally` clean up. The parameters of a dependency may be
dependencies. Dependencies are called once per tool call, and closed in reverse order.

Plain functions and generators run in the thread of the tool, so that the tool can use a SQLite
connection opened by a dependency. A `def` tool and its plain dependencies share one thread per
call. With an `async def` tool they run on the event loop, and should not block.
"""

import inspect
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from functools import partial
from inspect import Parameter, Signature
from typing import Any, get_args

from .content import describe_error
from .errors import ToolError
from .waiting import WorkThread, shield_from_cancel

Function = Callable[..., Any]
Overrides = Mapping[Function, Function]
Needs = dict[str, "Dependency"]


@dataclass(eq=False)
class Dependency:
    """The function that `Depends` declares for a parameter, and its own dependencies."""

    function: Function
    needs: Needs


def Depends(function: Function) -> Any:
    """Declare a dependency: `db: Annotated[Db, Depends(get_db)]`, or `db: Db = Depends(get_db)`.

    A plain function runs in the thread of its tool: the event loop's for an `async def` tool.
    Raises TypeError for a parameter of the function without a default or a dependency.
    """
    signature = signature_of(function)
    needs = marked(signature.parameters)
    try:
        signature.bind(**needs)
    except TypeError as error:
        name = getattr(function, "__qualname__", function)
        raise TypeError(f"{name}: {error}. Declare its dependency or default") from None
    return Dependency(function, needs)


def current_agent() -> object:
    """Provide the agent that runs a tool, with `Depends(current_agent)`."""
    raise LookupError("current_agent is only available inside a tool call")


def current_call() -> object:
    """Provide the `ToolCall` of a tool, with `Depends(current_call)`."""
    raise LookupError("current_call is only available inside a tool call")


class Resolver(AsyncExitStack):
    """The dependencies of one tool call: `async with Resolver(overrides, thread) as r: ...`.

    `overrides` maps functions to their replacements. Plain functions run in the `thread`.
    """

    def __init__(self, overrides: Overrides, thread: WorkThread) -> None:
        super().__init__()
        self.overrides = overrides
        self.thread = thread
        self.values: dict[Function, object] = {}

    async def get(self, needs: Needs) -> dict[str, object]:
        """Resolve the dependencies of one function, as {parameter: value}.

        Dependencies that were called before are not called again.
        """
        return {name: await self._value(dependency) for name, dependency in needs.items()}

    async def _value(self, dependency: Dependency) -> object:
        """Return the value of a dependency, or of its override."""
        if dependency.function in self.overrides:
            dependency = Depends(self.overrides[dependency.function])
        function = dependency.function
        if function not in self.values:
            values = await self.get(dependency.needs)
            self.values[function] = await self._open(await self.thread.run(function, **values))
        return self.values[function]

    async def _open(self, value: object) -> object:
        """Return the value of a function: advance a generator to its `yield`, await a coroutine."""

        def once() -> Any:
            return value

        if inspect.isasyncgen(value):
            return await self.enter_async_context(asynccontextmanager(once)())
        if inspect.isgenerator(value):
            manager = contextmanager(once)()
            # registered before opening, because a cancellation may abandon the thread
            self.push_async_exit(partial(self.thread.run, manager.__exit__))
            return await self.thread.run(manager.__enter__)
        return await value if inspect.isawaitable(value) else value

    async def __aexit__(self, *error: Any) -> None:
        """Close the dependencies. They receive the exception of the tool and cannot suppress it.

        If closing fails as well, both exceptions are raised as a group, unless the second was
        raised `from` the first.
        """
        try:
            with shield_from_cancel():
                await super().__aexit__(*error)
        except Exception as failure:
            reason = error[1]
            if reason is None:  # the model must be informed that the call may have had effects
                raise ToolError(
                    f"the tool ran, but closing its dependencies failed: {describe_error(failure)}"
                ) from failure
            if failure.__cause__ is reason:
                raise
            raise BaseExceptionGroup("closing failed, too", [reason, failure]) from None
        finally:
            self.thread.close()


def marked(parameters: Mapping[str, Parameter]) -> Needs:
    """Return the parameters declared with `Depends`."""
    needs: Needs = {}
    for name, parameter in parameters.items():
        if mark := _mark(parameter.default) or _mark(parameter.annotation):
            needs[name] = mark
    return needs


def _mark(hint: object) -> Dependency | None:
    """Return the Dependency in a default or an annotation, at any depth."""
    if isinstance(hint, Dependency):
        return hint
    for inner in get_args(getattr(hint, "__value__", hint)):  # __value__: of `type X = ...`
        if mark := _mark(inner):
            return mark
    return None


def signature_of(function: Function) -> Signature:
    """Return the signature of a function with resolved annotations.

    String annotations (`from __future__ import annotations`) may use names of the function's
    module. Raises NameError for other names.
    """
    return inspect.signature(function, eval_str=True)
