"""Dependencies: how they are found, called, shared and closed."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import AsyncIterator, Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import pytest
from typing_extensions import TypeAliasType

from agentloop.depends import (
    Depends,
    Resolver,
    current_agent,
    current_call,
    dependencies,
    plan,
    run_and_close,
)

if TYPE_CHECKING:
    from decimal import Decimal as OnlyForCheckers


def plain() -> str:
    return "plain"


async def coroutine() -> str:
    return "async"


def generator() -> Iterator[str]:
    yield "generator"


async def async_generator() -> AsyncIterator[str]:
    yield "async generator"


class Settings:
    def __init__(self, text: str = "a class") -> None:
        self.text = text


class Factory:
    async def __call__(self, given: Annotated[str, Depends(plain)]) -> str:
        return "from " + given


@pytest.mark.parametrize(
    ("function", "value"),
    [
        (plain, "plain"),
        (coroutine, "async"),
        (generator, "generator"),
        (async_generator, "async generator"),
        (Factory(), "from plain"),
        (partial(Settings, "x"), None),
        (lambda: coroutine(), "async"),
    ],
)
async def test_every_kind_of_function_can_be_a_dependency(
    function: Callable[..., Any], value: Any
) -> None:
    async with Resolver({}) as resolver:
        got = await resolver.get(function)
    assert got == value or (value is None and got.text == "x")


async def test_a_class_can_be_a_dependency() -> None:
    async with Resolver({}) as resolver:
        assert (await resolver.get(Settings)).text == "a class"


async def test_dependencies_of_dependencies_are_called_once_and_closed_last_in_first_out() -> None:
    ledger: list[str] = []

    def config() -> Iterator[str]:
        ledger.append("open config")
        yield "config"
        ledger.append("close config")

    async def db(config: Annotated[str, Depends(config)]) -> AsyncIterator[str]:
        ledger.append("open db")
        yield f"db({config})"
        ledger.append("close db")

    async def user(
        db: Annotated[str, Depends(db)],
        config: str = Depends(config),
        limit: int = 3,
    ) -> str:
        return f"user({db}, {config}, {limit})"

    async with Resolver({}, plan([user], locals())) as resolver:
        assert await resolver.get(user) == "user(db(config), config, 3)"
        assert await resolver.get(db) == "db(config)"
        ledger.append("work")
    assert ledger == ["open config", "open db", "work", "close db", "close config"]


def base() -> str:
    return "real"


def middle(base: Annotated[str, Depends(base)]) -> str:
    return f"middle({base})"


async def test_an_override_replaces_a_dependency_wherever_it_is_asked_for() -> None:
    closed: list[str] = []

    async def fake(text: str = Depends(plain)) -> AsyncIterator[str]:
        yield f"fake({text})"
        closed.append("fake")

    async with Resolver({base: fake, plain: lambda: "simple"}) as resolver:
        assert await resolver.get(middle) == "middle(fake(simple))"
    assert closed == ["fake"]


async def test_overrides_that_go_in_a_circle_are_refused() -> None:
    def fake(text: str = Depends(middle)) -> str:
        return text

    async with Resolver({base: fake}) as resolver:
        with pytest.raises(TypeError, match="circle: middle -> fake -> middle"):
            await resolver.get(middle)


def test_dependencies_that_go_in_a_circle_are_refused() -> None:
    def first(x: Any = None) -> None: ...
    def second(x: Any = None) -> None: ...

    first.__defaults__, second.__defaults__ = (Depends(second),), (Depends(first),)
    with pytest.raises(TypeError, match="circle: first -> second -> first"):
        plan([first])


def test_a_parameter_that_nothing_fills_in_is_refused_and_named() -> None:
    def get_db(url: str) -> str:
        return url

    with pytest.raises(TypeError, match=r"'get_db': nothing gives its parameter 'url' a value"):
        plan([get_db])


def test_optional_and_collected_parameters_need_no_value() -> None:
    def get_db(url: str = "", *args: str, **kwargs: str) -> str:
        return url

    assert plan([get_db]) == {get_db: {}}


def test_depends_takes_a_function_only() -> None:
    with pytest.raises(TypeError, match=r"such as Depends\(get_db\), not 'postgres'"):
        Depends("postgres")  # type: ignore[arg-type]


def test_a_mark_inside_an_optional_type_still_injects() -> None:
    def work(db: Annotated[str, Depends(plain)] | None = None) -> None: ...

    assert dependencies(work) == {"db": plain}


def test_a_mark_inside_a_type_alias_injects() -> None:
    Db = TypeAliasType("Db", Annotated[str, Depends(plain)])

    def work(db: Any) -> None: ...

    work.__annotations__["db"] = Db
    assert dependencies(work) == {"db": plain}


def test_a_builtin_that_tells_no_signature_has_no_dependencies() -> None:
    assert plan([dict]) == {dict: {}}


def test_an_annotation_that_is_not_there_at_run_time_is_refused_and_named() -> None:
    def work(amount: OnlyForCheckers) -> None: ...

    with pytest.raises(TypeError, match="'work': an annotation uses 'OnlyForCheckers'"):
        dependencies(work)


def test_a_return_type_for_checkers_only_does_no_harm() -> None:
    def work(db: str = Depends(plain)) -> OnlyForCheckers:
        raise NotImplementedError

    assert dependencies(work) == {"db": plain}


async def test_a_generator_that_yields_nothing_is_named() -> None:
    def get_db() -> Iterator[str]:
        yield from ()

    async def get_other() -> AsyncIterator[str]:
        if False:
            yield ""

    for function in (get_db, get_other):
        async with Resolver({}) as resolver:
            with pytest.raises(RuntimeError, match=f"{function.__name__}: generator didn't yield"):
                await resolver.get(function)


async def test_a_generator_that_yields_twice_is_an_error() -> None:
    def get_db() -> Iterator[str]:
        yield "one"
        yield "two"

    async def get_other() -> AsyncIterator[str]:
        yield "one"
        yield "two"

    for function in (get_db, get_other):
        with pytest.raises(RuntimeError, match="generator didn't stop"):
            async with Resolver({}) as resolver:
                await resolver.get(function)


async def fail_with(error: Exception, function: Callable[..., Any]) -> None:
    async with Resolver({}) as resolver:
        await resolver.get(function)
        raise error


async def test_the_error_of_the_work_reaches_every_dependency_even_if_one_swallows_it() -> None:
    seen: list[str] = []

    def outer() -> Iterator[None]:
        try:
            yield
        except ValueError as error:
            seen.append(f"outer {error}")
            raise

    async def inner(_: None = Depends(outer)) -> AsyncIterator[None]:
        try:
            yield
        except ValueError as error:
            seen.append(f"inner {error}")  # swallowed

    with pytest.raises(ValueError, match="boom"):
        await fail_with(ValueError("boom"), inner)
    assert seen == ["inner boom", "outer boom"]


async def test_a_dependency_can_translate_an_error() -> None:
    def get_db() -> Iterator[None]:
        try:
            yield
        except KeyError as error:
            raise LookupError("no such row") from error

    with pytest.raises(LookupError, match="no such row"):
        await fail_with(KeyError(3), get_db)


async def test_what_is_open_is_closed_when_a_later_one_fails_to_open() -> None:
    ledger: list[str] = []

    def first() -> Iterator[None]:
        try:
            yield
        finally:
            ledger.append("closed")

    def second(_: None = Depends(first)) -> None:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        async with Resolver({}) as resolver:
            await resolver.get(second)
    assert ledger == ["closed"]


@pytest.mark.parametrize("function", [current_agent, current_call])
def test_outside_a_tool_call_there_is_no_current_anything(function: Callable[[], Any]) -> None:
    with pytest.raises(LookupError, match="only inside a tool call"):
        function()


# ---- cancelling


class Held:
    """A dependency that says where it is and waits until it may go on."""

    def __init__(self) -> None:
        self.closing, self.go_on = asyncio.Event(), asyncio.Event()
        self.ledger: list[str] = []

    async def get(self) -> AsyncIterator[str]:
        try:
            yield "held"
        finally:
            self.closing.set()
            await self.go_on.wait()
            self.ledger.append("closed")


async def use(resolver: Resolver, held: Held, work: Callable[[], Any]) -> Any:
    async with resolver:
        await resolver.get(held.get)
        return await work()


async def test_a_cancel_while_dependencies_close_lets_them_finish_and_keeps_the_result() -> None:
    held, resolver = Held(), Resolver({})

    async def work() -> str:
        return "result"

    task = asyncio.ensure_future(run_and_close(resolver, lambda: use(resolver, held, work)))
    await held.closing.wait()
    task.cancel()
    await asyncio.sleep(0)
    assert not task.done()
    held.go_on.set()
    assert await task == "result"
    assert held.ledger == ["closed"]


async def test_a_cancel_of_the_work_closes_the_dependencies_before_it_is_passed_on() -> None:
    held, resolver, started = Held(), Resolver({}), asyncio.Event()

    async def work() -> None:
        started.set()
        await asyncio.Event().wait()

    task = asyncio.ensure_future(run_and_close(resolver, lambda: use(resolver, held, work)))
    await started.wait()
    task.cancel()
    await held.closing.wait()
    task.cancel()  # a second one, while they close
    await asyncio.sleep(0)
    held.go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert held.ledger == ["closed"]


async def test_a_dependency_that_fails_to_close_does_not_undo_a_cancel() -> None:
    resolver, started = Resolver({}), asyncio.Event()

    async def get_db() -> AsyncIterator[None]:
        try:
            yield
        finally:
            raise ValueError("cannot close")

    async def work() -> None:
        async with resolver:
            await resolver.get(get_db)
            started.set()
            await asyncio.Event().wait()

    task = asyncio.ensure_future(run_and_close(resolver, work))
    await started.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit, GeneratorExit, ValueError])
async def test_what_the_work_raises_arrives_at_its_waiter(kind: type[BaseException]) -> None:
    async def work() -> None:
        raise kind("stop")

    with pytest.raises(kind, match="stop"):
        await run_and_close(Resolver({}), work)


async def test_dependencies_open_and_close_in_one_context_and_task() -> None:
    variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable")

    async def get_db() -> AsyncIterator[None]:
        token = variable.set("inside")
        async with asyncio.timeout(60):
            yield
        variable.reset(token)

    resolver = Resolver({})

    async def work() -> str:
        async with resolver:
            await resolver.get(get_db)
            return variable.get()

    assert await run_and_close(resolver, work) == "inside"
