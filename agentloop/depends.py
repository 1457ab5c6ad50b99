"""Depends: what a tool gets from the program instead of from the model.

Copy with: errors.py, messages.py, content.py, waiting.py.

    async def get_db():
        async with connect() as db:
            yield db

    @tool
    async def find(name: str, db: Annotated[Db, Depends(get_db)]) -> str: ...

A dependency is a function: plain, async, a generator or an async generator. What follows its
`yield` runs after the tool. When that failed or was cancelled, the error is raised at the `yield`:
`async with` closes all the same, and so does `finally`. Its own parameters may be dependencies.
Within one tool call each is called once, and they close last in, first out.

Plain functions and generators run where the tool runs, so that it can use a connection to SQLite
that one of them opens. A `def` tool and its plain dependencies have one thread for each call. For
an `async def` tool they run in the thread of the event loop, so they should not block there.
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
    """The mark that `Depends` leaves on a parameter: a function, and what it needs in turn."""

    function: Function
    needs: Needs


def Depends(function: Function) -> Any:
    """Mark a parameter: `db: Annotated[Db, Depends(get_db)]`, or `db: Db = Depends(get_db)`.

    A plain function runs in the thread of its tool: that of the event loop for an `async def` tool.
    Raises TypeError if nothing gives a parameter of the function a value.
    """
    signature = signature_of(function)
    needs = marked(signature.parameters)
    signature.bind(**needs)
    return Dependency(function, needs)


def current_agent() -> object:
    """Give a tool the agent that runs it, by `Depends(current_agent)`."""
    raise LookupError("there is a current agent only inside a tool call")


def current_call() -> object:
    """Give a tool the `ToolCall` that it answers, by `Depends(current_call)`."""
    raise LookupError("there is a current call only inside a tool call")


class Resolver(AsyncExitStack):
    """The dependencies of one tool call: `async with Resolver(overrides, thread) as r: ...`.

    `overrides` maps functions to those that take their place, wherever they are asked for. Plain
    functions run in the `thread`.
    """

    def __init__(self, overrides: Overrides, thread: WorkThread) -> None:
        super().__init__()
        self.overrides = overrides
        self.thread = thread
        self.values: dict[Function, object] = {}

    async def get(self, needs: Needs) -> dict[str, object]:
        """Resolve the dependencies of one function, as {parameter: value}.

        Each is called if it has not been called yet.
        """
        return {name: await self._value(each) for name, each in needs.items()}

    async def _value(self, wanted: Dependency) -> object:
        """Return what a dependency gives, or what its override gives."""
        if wanted.function in self.overrides:
            wanted = Depends(self.overrides[wanted.function])
        function = wanted.function
        if function not in self.values:
            needed = await self.get(wanted.needs)
            self.values[function] = await self._open(await self.thread.run(function, **needed))
        return self.values[function]

    async def _open(self, made: object) -> object:
        """Return what a function gave: a generator up to its `yield`, a coroutine awaited."""

        def once() -> Any:
            return made

        if inspect.isasyncgen(made):
            return await self.enter_async_context(asynccontextmanager(once)())
        if inspect.isgenerator(made):
            manager = contextmanager(once)()
            # before it is opened, for a cancel may leave it behind there
            self.push_async_exit(partial(self.thread.run, manager.__exit__))
            return await self.thread.run(manager.__enter__)
        return await made if inspect.isawaitable(made) else made

    async def __aexit__(self, *error: Any) -> None:
        """Close the dependencies. They see the error of the tool, and cannot swallow it.

        If closing fails as well, both errors are raised, but for one that is raised `from` the
        tool's own.
        """
        try:
            with shield_from_cancel():
                await super().__aexit__(*error)
        except Exception as failure:
            reason = error[1]
            if reason is None:  # the model has to know that there may be effects
                raise ToolError(
                    f"the tool ran, but closing its dependencies failed: {describe_error(failure)}"
                ) from failure
            if failure.__cause__ is reason:
                raise
            raise BaseExceptionGroup("closing failed as well", [reason, failure]) from None
        finally:
            self.thread.close()


def marked(parameters: Mapping[str, Parameter]) -> Needs:
    """Return the parameters that are marked with `Depends`."""
    needs: Needs = {}
    for name, each in parameters.items():
        if mark := _mark(each.default) or _mark(each.annotation):
            needs[name] = mark
    return needs


def _mark(hint: object) -> Dependency | None:
    """Find the mark in a default or an annotation, at any depth."""
    if isinstance(hint, Dependency):
        return hint
    for inner in get_args(getattr(hint, "__value__", hint)):  # __value__: of `type X = ...`
        if mark := _mark(inner):
            return mark
    return None


def signature_of(function: Function) -> Signature:
    """Return the signature of a function, with its annotations resolved.

    Annotations that are texts (`from __future__ import annotations`) may use the names of the
    function's module. NameError: they use others.
    """
    return inspect.signature(function, eval_str=True)
