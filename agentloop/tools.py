"""@tool: a function's signature becomes a schema for the model and a validated call.

Copy with: arguments.py, results.py, depends.py, docstrings.py, errors.py, messages.py, waiting.py.

    @tool
    async def add(a: int, b: int) -> int:
        "Adds two numbers."
        return a + b

`await add(1, 2)` still calls the function. A plain `def` works as well: it runs in a thread.
"""

from __future__ import annotations

import asyncio
import contextvars
import copy
import functools
import inspect
import logging
import re
import threading
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from contextlib import suppress
from difflib import get_close_matches
from types import FrameType, MethodType
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, TypeVar, overload
from weakref import WeakKeyDictionary

from .depends import (
    Function,
    Names,
    Plan,
    Resolver,
    injected,
    name_of,
    parameters_of,
    plan,
    run_and_close,
)
from .docstrings import parse_docstring
from .errors import ToolError
from .messages import TaskComplete
from .results import as_text, clip, describe_error
from .waiting import cancel_this_task, within

if TYPE_CHECKING:
    from .arguments import Arguments

logger = logging.getLogger("agentloop")

P = ParamSpec("P")
R = TypeVar("R")
P2 = ParamSpec("P2")
R2 = TypeVar("R2")

NO_OVERRIDES: Mapping[Function, Function] = {}


class Tool:
    """Something that the model may call. Other sources of tools than `@tool` derive from this.

    parameters: a JSON schema of type "object".
    ephemeral: how many newest results of this tool stay visible; 0 means all of them.
    timeout: seconds that one call may take.
    parallel: may run side by side with other calls.
    idempotent: may run twice for one call, for example when a restart cut the first one off.
    """

    def __init__(
        self,
        name: str,
        description: str = "",
        parameters: dict[str, Any] | None = None,
        *,
        ephemeral: int = 0,
        timeout: float | None = None,
        parallel: bool = True,
        idempotent: bool = False,
    ) -> None:
        if not re.fullmatch(r"[A-Za-z0-9_-]{1,64}", name):
            raise ValueError(
                f"tool name {name!r:.100}: providers accept 1 to 64 letters, digits, _ and -; "
                'choose another one, such as @tool(name="search")'
            )
        if type(timeout) not in (int, float, type(None)) or (timeout is not None and timeout <= 0):
            raise ValueError(f"tool {name!r}: timeout is a number of seconds, not {timeout!r}")
        if ephemeral < 0:
            raise ValueError(f"tool {name!r}: ephemeral is how many results stay, not {ephemeral}")
        self.name = name
        self.description = description
        self.parameters = parameters or {"type": "object", "properties": {}}
        self.ephemeral = int(ephemeral)
        self.timeout = timeout
        self.parallel = parallel
        self.idempotent = idempotent

    def __repr__(self) -> str:
        return f"<Tool {self.name}({', '.join(self.parameters.get('properties', ()))})>"

    def validate(self, arguments: str) -> dict[str, Any]:
        """The arguments, fresh, from the model's JSON text. ToolError says what is wrong."""
        from .arguments import parse_arguments

        return parse_arguments(arguments)

    async def execute(
        self, args: dict[str, Any], overrides: Mapping[Function, Function] = NO_OVERRIDES
    ) -> Any:
        """What the tool returns for validated arguments. Raises what it raises."""
        raise NotImplementedError(f"{type(self).__name__} needs a method execute(args, overrides)")


class FunctionTool(Tool, Generic[P, R]):
    """A function as a tool; calling it calls the function. `@tool` makes these."""

    def __init__(
        self,
        function: Callable[P, R],
        description: str | None = None,
        *,
        name: str | None = None,
        names: Names = None,
        **options: Any,
    ) -> None:
        if isinstance(function, Tool):
            raise TypeError(f"{function!r} is a tool already")
        functools.update_wrapper(self, function)
        name = name or name_of(function)
        doc, texts = parse_docstring(function.__doc__ if inspect.isroutine(function) else None)
        super().__init__(name, doc if description is None else description, **options)
        if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
            raise TypeError(f"tool {name!r} is a generator function; return a list instead")
        self.function = function
        self._overrides = NO_OVERRIDES
        self._injected, self._plan, self._arguments = _signature(function, name, names, texts)
        self.parameters = self._arguments.schema

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return self.function(*args, **kwargs)

    @overload
    def __get__(self, instance: None, owner: type[Any]) -> FunctionTool[P, R]: ...
    @overload
    def __get__(
        self: FunctionTool[Concatenate[Any, P2], R2],
        instance: object,
        owner: type[Any] | None = None,
    ) -> FunctionTool[P2, R2]: ...
    def __get__(self, instance: object, owner: type[Any] | None = None) -> Any:
        """A tool that is defined in a class is a method: it binds to its instance."""
        if instance is None:
            return self
        bound = copy.copy(self)
        bound.function = MethodType(self.function, instance)
        return bound

    def bind(self, overrides: Mapping[Function, Function]) -> FunctionTool[P, R]:
        """This tool with dependency overrides of its own; those of an agent outrank them."""
        bound = copy.copy(self)
        bound._overrides = {**self._overrides, **overrides}
        return bound

    def __eq__(self, other: object) -> bool:
        """Two looks at one bound method are the same tool, as they are the same method."""
        return isinstance(other, FunctionTool) and vars(self) == vars(other)

    def __hash__(self) -> int:
        return hash((FunctionTool, self.name))

    def validate(self, arguments: str) -> dict[str, Any]:
        return self._arguments.read(arguments)

    async def execute(
        self, args: dict[str, Any], overrides: Mapping[Function, Function] = NO_OVERRIDES
    ) -> Any:
        if not self._injected:
            return await call_function(self.function, **args)
        resolver = Resolver({**self._overrides, **overrides}, self._plan)
        return await run_and_close(resolver, lambda: self._run_with(resolver, args))

    async def _run_with(self, resolver: Resolver, args: dict[str, Any]) -> Any:
        ran, result, complete = False, None, None
        try:
            async with resolver:
                given = {name: await resolver.get(each) for name, each in self._injected.items()}
                try:
                    result = await call_function(self.function, **(args | given))
                except TaskComplete as error:  # no failure: dependencies are not to roll back
                    complete, result = error, error.text
                ran = True
        except Exception as error:
            if not ran:
                raise
            raise ToolError(  # the tool has had its effect: the model has to know
                f"the tool returned {clip(as_text(result), 500)!r}, "
                f"but closing its dependencies failed: {describe_error(error)}"
            ) from error
        if complete:
            raise complete
        return result


_signatures: WeakKeyDictionary[Any, tuple[dict[str, Function], Plan, Arguments]]
_signatures = WeakKeyDictionary()


def _signature(
    function: Function, tool: str, names: Names, texts: Mapping[str, str]
) -> tuple[dict[str, Function], Plan, Arguments]:
    """What a function has injected and takes. A schema costs 0.3 ms and 20 KB, so it is made once
    for a function, however many agents make a tool of it."""
    with suppress(TypeError):  # it cannot be a key
        if function in _signatures:
            return _signatures[function]
    from .arguments import Arguments, visible  # here, as pydantic takes 60 ms to import

    parameters = parameters_of(function, names)
    given = injected(parameters)
    hidden = {*given, *getattr(function, "keywords", ())}  # those of a partial
    arguments = Arguments(tool, visible(tool, parameters, hidden), texts)
    signature = given, plan(given.values(), names), arguments
    with suppress(TypeError):
        _signatures[function] = signature
    return signature


@overload
def tool(function: Callable[P, R], /) -> FunctionTool[P, R]: ...
@overload
def tool(
    description: str | None = None,
    *,
    name: str | None = None,
    ephemeral: int | bool = 0,
    timeout: float | None = None,
    parallel: bool = True,
    idempotent: bool = False,
) -> Callable[[Callable[P, R]], FunctionTool[P, R]]: ...
def tool(description: Any = None, **options: Any) -> Any:
    """Makes a tool of a function: `@tool`, or `@tool("what it does", name=...)`.

    Without a description the docstring is it; the docstring also describes the parameters. The
    other options are those of `Tool`.
    """
    frame = inspect.currentframe()
    names = _names_around(frame.f_back if frame else None)

    def decorate(function: Callable[..., Any]) -> FunctionTool[..., Any]:
        return FunctionTool(function, description, names=names, **options)

    if callable(description):
        return FunctionTool(description, names=names)
    if not isinstance(description, str | None):
        raise TypeError(f"tool() takes a function or a description, not {description!r:.80}")
    return decorate


def _names_around(frame: FrameType | None) -> dict[str, Any]:
    """The local names where a tool is defined: annotations may use them."""
    if frame is None or frame.f_locals is frame.f_globals:
        return {}
    in_a_class = "__qualname__" in frame.f_locals  # then the function around it counts too
    return (_names_around(frame.f_back) if in_a_class else {}) | frame.f_locals


def check_unique_names(tools: Iterable[Any]) -> None:
    """TypeError for what is no tool, ValueError for two tools of one name."""
    if isinstance(tools, Tool) or not hasattr(tools, "__iter__"):
        raise TypeError(f"tools= takes a list of tools, not {tools!r:.80}")
    seen: set[str] = set()
    for each in tools:
        if not isinstance(each, Tool):
            raise TypeError(f"{each!r:.80} is not a tool: decorate it with @tool")
        if each.name in seen:
            raise ValueError(
                f"there are two tools named {each.name!r}: give one another name, "
                "such as @tool(name=...)"
            )
        seen.add(each.name)


def find_tool(name: str, tools: Iterable[Tool]) -> Tool:
    """The tool of this name. ToolError if there is none, with those of a similar name."""
    named = {tool.name: tool for tool in tools}
    if name in named:
        return named[name]
    near = get_close_matches(name[:64], named, n=3)
    hint = f"Did you mean {' or '.join(near)}?" if near else f"There are: {', '.join(named)}."
    raise ToolError(f"There is no tool named {name!r:.80}. {hint if named else 'There are: none.'}")


async def call_function(function: Function, /, *args: Any, **kwargs: Any) -> Any:
    """What a function returns: awaited if it is async, else out of a thread of its own."""
    if inspect.iscoroutinefunction(function):
        return await function(*args, **kwargs)
    result = await in_thread(function, *args, **kwargs)
    return await result if inspect.isawaitable(result) else result


async def is_approved(
    approve: Function | None, name: str, arguments: dict[str, Any], *, seconds: float
) -> bool:
    """Whether `approve(name, arguments)` says True in time; True if there is nobody to ask.

    Anything else denies: an error, another value, a late answer.
    """
    if approve is None:
        return True
    clock = asyncio.get_running_loop().time
    end = clock() + seconds
    try:
        question = call_function(approve, name, copy.deepcopy(arguments))
        answer = await within(seconds, question, grace=1.0)
    except Exception:
        logger.warning("approve failed, which denies %s", name, exc_info=True)
        return False
    await asyncio.sleep(0)  # a cancel that came with the answer goes before what it approved
    return answer is True and clock() <= end


async def in_thread(function: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
    """What a function returns that runs in a thread of its own, with this context's variables.

    A daemon thread: the threads of `asyncio.to_thread` keep the interpreter from exiting, and are
    few enough that slow tools hold each other up.
    """
    loop = asyncio.get_running_loop()
    context = contextvars.copy_context()
    ended = asyncio.Event()
    outcome: Future[R] = Future()

    def work() -> None:
        try:
            outcome.set_result(context.run(function, *args, **kwargs))
        except BaseException as error:
            outcome.set_exception(error)
        with suppress(RuntimeError):  # the event loop is closed: nobody waits any more
            loop.call_soon_threadsafe(ended.set)

    threading.Thread(target=work, name=f"tool {name_of(function)}", daemon=True).start()
    try:
        await ended.wait()
    except asyncio.CancelledError:
        if not outcome.done():
            raise
        cancel_this_task()  # it has ended just now: its result first, then the cancel
    return outcome.result()
