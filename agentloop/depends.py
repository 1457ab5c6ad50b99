"""Depends: values that a tool gets from the program, and not from the model.

Copy with: content.py, errors.py, waiting.py and their imports.

    async def get_db():
        async with connect() as db:
            yield db

    @tool
    async def find(name: str, db: Annotated[Db, Depends(get_db)]) -> str: ...

A dependency is a function or a generator, `def` or `async def`. What comes after the `yield` runs
after the tool. If the tool fails or is cancelled, the exception is raised at the `yield`, so `async
with` and `finally` clean up. A dependency may have dependencies of its own. Each is called once per
tool call, and they're closed in reverse order.

A `def` tool and its `def` dependencies share one thread per call, so the tool can use a SQLite
connection that a dependency has opened. With an `async def` tool, `def` dependencies run on the
event loop and shouldn't block.
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

    Raises TypeError if the function has a parameter with neither a default nor a dependency.
    """
    signature = signature_of(function)
    needs = marked(signature.parameters)
    try:
        signature.bind(**needs)
    except TypeError as error:
        name = getattr(function, "__qualname__", function)
        raise TypeError(f"{name}: {error}: give it a dependency or a default") from None
    return Dependency(function, needs)


def current_agent() -> object:
    """Give a tool the agent that runs it: write `Depends(current_agent)`."""
    raise LookupError("current_agent is a dependency: write Depends(current_agent) in a tool")


def current_call() -> object:
    """Give a tool its own `ToolCall`: write `Depends(current_call)`."""
    raise LookupError("current_call is a dependency: write Depends(current_call) in a tool")


class Resolver(AsyncExitStack):
    """The dependencies of one tool call: `async with Resolver(overrides, thread) as r: ...`.

    `overrides` maps functions to their replacements. `def` functions run in the `thread`.
    """

    def __init__(self, overrides: Overrides, thread: WorkThread) -> None:
        super().__init__()
        self.overrides = overrides
        self.thread = thread
        self.values: dict[Function, object] = {}

    async def get(self, needs: Needs) -> dict[str, object]:
        """Get the dependencies of one function, as {parameter: value}. None is called twice."""
        return {name: await self._value(dependency) for name, dependency in needs.items()}

    async def _value(self, dependency: Dependency) -> object:
        if dependency.function in self.overrides:
            dependency = Depends(self.overrides[dependency.function])
        function = dependency.function
        if function not in self.values:
            values = await self.get(dependency.needs)
            self.values[function] = await self._open(await self.thread.run(function, **values))
        return self.values[function]

    async def _open(self, value: object) -> object:
        """Get the value out of what a function returned: run a generator up to its `yield`, await a
        coroutine.
        """

        def once() -> Any:
            return value

        if inspect.isasyncgen(value):
            return await self.enter_async_context(asynccontextmanager(once)())
        if inspect.isgenerator(value):
            manager = contextmanager(once)()
            # first, because the thread may be abandoned while the generator runs
            self.push_async_exit(partial(self.thread.run, manager.__exit__))
            return await self.thread.run(manager.__enter__)
        return await value if inspect.isawaitable(value) else value

    async def __aexit__(self, *error: Any) -> None:
        """Close the dependencies. They get the exception of the tool, but can't suppress it.

        If they fail as well, both exceptions are raised as a group, unless the second was raised
        `from` the first.
        """
        try:
            with shield_from_cancel():
                await super().__aexit__(*error)
        except Exception as failure:
            reason = error[1]
            if reason is None:  # the model must know that the call may have had effects
                raise ToolError(
                    f"the tool ran, but a dependency failed to close: {describe_error(failure)}"
                ) from failure
            if failure.__cause__ is reason:
                raise
            raise BaseExceptionGroup("a dependency failed to close", [reason, failure]) from None
        finally:
            self.thread.close()


def marked(parameters: Mapping[str, Parameter]) -> Needs:
    """The parameters that are declared with `Depends`."""
    needs: Needs = {}
    for name, parameter in parameters.items():
        if mark := _mark(parameter.default) or _mark(parameter.annotation):
            needs[name] = mark
    return needs


def _mark(hint: object) -> Dependency | None:
    """Find the Dependency in a default or an annotation, at any depth."""
    if isinstance(hint, Dependency):
        return hint
    for inner in get_args(getattr(hint, "__value__", hint)):  # __value__: of `type X = ...`
        if mark := _mark(inner):
            return mark
    return None


def signature_of(function: Function) -> Signature:
    """The signature of a function, with types instead of texts as annotations.

    Texts (`from __future__ import annotations`) may use the names of the function's module. Raises
    NameError for any other name.
    """
    return inspect.signature(function, eval_str=True)
