"""Dependencies: declaration, calls, sharing, overrides and closing."""

from __future__ import annotations

import asyncio
import contextvars
import sqlite3
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import pytest
from typing_extensions import TypeAliasType

from agentloop.content import describe_error
from agentloop.depends import Depends, current_agent, current_call
from agentloop.errors import ToolError
from agentloop.messages import TaskComplete
from agentloop.tools import Tool, tool
from agentloop.waiting import cancel_and_wait


def plain() -> str:
    return "plain"


async def coroutine() -> str:
    return "async"


def generator() -> Iterator[str]:
    yield "generator"


async def async_generator() -> AsyncIterator[str]:
    yield "async"


class Settings:
    def __init__(self, text: str = "a class") -> None:
        self.text = text

    def __str__(self) -> str:
        return self.text


class Factory:
    async def __call__(self, text: Annotated[str, Depends(plain)]) -> str:
        return "from " + text


def take(settings: Settings) -> None: ...


async def get(function: Callable[..., Any], overrides: dict[Any, Any] | None = None) -> Any:
    """Return the value injected into a tool that depends on `function`."""

    @tool("Test")
    async def give(value: Any = Depends(function)) -> Any:
        return value

    return await give.execute({}, overrides or {})


@pytest.mark.parametrize(
    ("function", "value"),
    [
        (plain, "plain"),
        (coroutine, "async"),
        (generator, "generator"),
        (async_generator, "async"),
        (Settings, "a class"),
        (Factory(), "from plain"),
        (partial(Settings, "x"), "x"),
        (lambda: coroutine(), "async"),
    ],
)
async def test_every_kind_of_function_can_be_a_dependency(
    function: Callable[..., Any], value: Any
) -> None:
    assert str(await get(function)) == value


async def test_nested_dependencies_are_called_once_and_closed_in_reverse_order() -> None:
    ledger: list[str] = []

    def config() -> Iterator[str]:
        ledger.append("open config")
        yield "config"
        ledger.append("close config")

    async def db(config: str = Depends(config)) -> AsyncIterator[str]:
        ledger.append("open db")
        yield f"db({config})"
        ledger.append("close db")

    @tool("Test")
    async def work(db: str = Depends(db), config: str = Depends(config), limit: int = 3) -> str:
        ledger.append("work")
        return f"{db}, {config}, {limit}"

    assert list(work.parameters["properties"]) == ["limit"]
    assert await work.execute({}, {}) == "db(config), config, 3"
    assert ledger == ["open config", "open db", "work", "close db", "close config"]


def base() -> str:
    return "real"


def middle(base: Annotated[str, Depends(base)]) -> str:
    return f"middle({base})"


async def test_an_override_replaces_a_dependency_of_tools_and_of_dependencies() -> None:
    closed: list[str] = []

    async def fake(text: str = Depends(plain)) -> AsyncIterator[str]:
        yield f"fake({text})"
        closed.append("fake")

    overrides: dict[Any, Any] = {base: fake, plain: lambda: "simple"}
    assert await get(middle, overrides) == "middle(fake(simple))"
    assert closed == ["fake"]


def test_depends_rejects_a_function_with_a_required_parameter() -> None:
    def get_url(host: str, port: int = 80, *args: str, **kwargs: str) -> str:
        return host

    with pytest.raises(TypeError, match=r"get_url: .*'host'"):
        Depends(get_url)


Alias = TypeAliasType("Alias", Annotated[str, Depends(plain)])


@pytest.mark.parametrize("function", [current_agent, current_call])
def test_current_agent_and_current_call_outside_a_tool_call_raise_lookup_error(
    function: Any,
) -> None:
    with pytest.raises(LookupError, match="is a dependency"):
        function()


async def test_depends_in_an_optional_type_or_a_type_alias_injects() -> None:
    @tool("Test")
    async def work(a: Annotated[str, Depends(plain)] | None = None, b: Alias = "") -> Any:
        return a, b

    assert await work.execute({}) == ("plain", "plain")
    assert work.parameters["properties"] == {}


def test_annotations_are_not_resolved_in_the_scope_of_the_caller() -> None:
    Settings = None

    with pytest.raises(TypeError, match="JSON schema"):  # the module's class has no schema
        tool(take)
    assert Settings is None


async def test_the_error_of_a_dependency_that_fails_to_close_states_that_the_tool_ran() -> None:
    def get_db() -> Iterator[None]:
        yield
        raise ValueError("connection lost")

    with pytest.raises(ToolError, match="failed to close.*connection lost"):
        await get(get_db)


@pytest.mark.parametrize("error", [LookupError("not there"), ToolError("say more")])
async def test_a_dependency_receives_the_error_of_the_tool_and_reraises_it(
    error: Exception,
) -> None:
    errors: list[BaseException] = []

    def get_db() -> Iterator[None]:
        try:
            yield
        except Exception as failure:
            errors.append(failure)
            raise

    @tool("Test")
    async def save(db: None = Depends(get_db)) -> None:
        raise error

    with pytest.raises(type(error), match=str(error)):
        await save.execute({}, {})
    assert errors == [error]


async def test_a_failure_to_close_is_reported_in_addition_to_the_error_of_the_tool() -> None:
    def get_db() -> Iterator[None]:
        try:
            yield
        except LookupError:
            raise ValueError("connection lost")  # noqa: B904

    @tool("Test")
    async def save(db: None = Depends(get_db)) -> None:
        raise LookupError("not there")

    with pytest.raises(ExceptionGroup) as caught:
        await save.execute({}, {})
    assert describe_error(caught.value) == "LookupError: not there; ValueError: connection lost"


async def test_a_dependency_may_convert_the_error_of_the_tool() -> None:
    def get_db() -> Iterator[None]:
        try:
            yield
        except LookupError as error:
            raise ToolError("There is no such row.") from error

    @tool("Test")
    async def save(db: None = Depends(get_db)) -> None:
        raise LookupError("not there")

    with pytest.raises(ToolError, match=r"no such row"):
        await save.execute({}, {})


async def test_dependencies_do_not_receive_task_complete_as_an_error() -> None:
    ended: list[str] = []

    def get_db() -> Iterator[None]:
        try:
            yield
        except BaseException:
            ended.append("rolled back")
            raise
        ended.append("committed")

    @tool("Test")
    async def done(db: None = Depends(get_db)) -> None:
        raise TaskComplete("It is saved.")

    with pytest.raises(TaskComplete, match=r"It is saved\."):
        await done.execute({}, {})
    assert ended == ["committed"]


async def test_open_dependencies_are_closed_if_a_later_dependency_fails_to_open() -> None:
    closed: list[str] = []

    def first() -> Iterator[None]:
        try:
            yield
        finally:
            closed.append("first")

    def second(_: None = Depends(first)) -> None:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        await get(second)
    assert closed == ["first"]


async def test_dependencies_open_and_close_in_one_context_and_task() -> None:
    variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable")

    async def get_db() -> AsyncIterator[None]:
        token = variable.set("inside")
        async with asyncio.timeout(60):
            yield
        variable.reset(token)

    @tool("Test")
    async def work(db: None = Depends(get_db)) -> str:
        return variable.get()

    assert await work.execute({}) == "inside"


# ---- cancellation


class Held:
    """A dependency with events for its start and its closing, which waits for `release`."""

    def __init__(self) -> None:
        self.started, self.closing, self.release = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self.is_closed = False

    async def get(self) -> AsyncIterator[None]:
        try:
            yield
        finally:
            self.closing.set()
            await self.release.wait()
            self.is_closed = True

    def use(self, *, forever: bool) -> asyncio.Task[Any]:
        """Run a tool that has this dependency, and that waits forever or returns immediately."""

        @tool("Test")
        async def work(_held: None = Depends(self.get)) -> str:
            self.started.set()
            if forever:
                await asyncio.Event().wait()
            return "result"

        return asyncio.create_task(work.execute({}))


@pytest.mark.parametrize("forever", [False, True])
async def test_cancellations_wait_for_dependencies_to_close_and_keep_a_result(
    forever: bool,
) -> None:
    held = Held()
    task = held.use(forever=forever)
    await (held.started if forever else held.closing).wait()
    cancels = [asyncio.create_task(cancel_and_wait([task], 60))]
    await held.closing.wait()
    cancels += [asyncio.create_task(cancel_and_wait([task], 60))]
    await asyncio.sleep(0)
    held.release.set()
    await asyncio.wait([task, *cancels])
    assert task.cancelled() if forever else task.result() == "result"
    assert held.is_closed


async def test_a_cancellation_during_closing_is_raised_after_the_dependencies_are_closed(
    caplog: pytest.LogCaptureFixture,
) -> None:
    held = Held()

    @tool("Test")
    async def work(_held: None = Depends(held.get)) -> None: ...

    async def work_and_wait() -> None:
        await work.execute({})
        await asyncio.Event().wait()

    task = asyncio.create_task(work_and_wait())
    await held.closing.wait()
    cancel = asyncio.create_task(cancel_and_wait([task], 10))
    await asyncio.sleep(0)
    held.release.set()
    await cancel
    assert held.is_closed
    assert task.cancelled()
    assert "did not stop" not in caplog.text


async def test_a_cancellation_after_a_synchronous_tool_waits_for_dependencies_to_close(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def notify(*args: Any) -> None:
        call_soon(*args)
        is_notified.set()

    held, is_notified = Held(), threading.Event()
    loop = asyncio.get_running_loop()
    call_soon = loop.call_soon_threadsafe
    monkeypatch.setattr(loop, "call_soon_threadsafe", notify)

    @tool("Test")
    def work(_held: None = Depends(held.get)) -> str:
        is_notified.clear()
        held.started.set()
        return "result"

    task = asyncio.create_task(work.execute({}))
    while not held.started.is_set():
        await asyncio.sleep(0)
    assert is_notified.wait(5)  # the thread has notified the event loop, which has not reacted yet
    cancel = asyncio.create_task(cancel_and_wait([task], 60))
    await held.closing.wait()
    for _ in range(3):
        await asyncio.sleep(0)
    held.release.set()
    await asyncio.wait([task, cancel])
    assert task.result() == "result"
    assert held.is_closed


async def test_dependencies_that_never_close_are_cancelled_after_the_timeout() -> None:
    held = Held()
    task = held.use(forever=False)
    await held.closing.wait()
    await cancel_and_wait([task], 0.01)
    await asyncio.wait([task])
    assert task.cancelled()
    assert not held.is_closed


# ---- threads


def database(file: Path, threads: list[int]) -> Callable[[], Iterator[sqlite3.Connection]]:
    """Return a dependency that opens a database, commits or rolls back, and closes it."""

    def get_db() -> Iterator[sqlite3.Connection]:
        threads.append(threading.get_ident())
        with closing(sqlite3.connect(file)) as db:
            db.execute("CREATE TABLE IF NOT EXISTS notes (text)")
            with db:
                yield db
        threads.append(threading.get_ident())

    return get_db


def notes_in(file: Path) -> list[str]:
    with closing(sqlite3.connect(file)) as db:
        return [text for [text] in db.execute("SELECT text FROM notes")]


@pytest.mark.parametrize("is_async", [False, True])
async def test_a_sqlite_connection_works_in_its_tool_and_is_committed_and_closed(
    tmp_path: Path, is_async: bool
) -> None:
    threads: list[int] = []
    get_db = database(tmp_path / "db", threads)

    def get_cursor(db: sqlite3.Connection = Depends(get_db)) -> sqlite3.Cursor:
        return db.cursor()

    async def get_first() -> str:
        return "first"

    @tool("Test")
    def add(
        text: str,
        db: Any = Depends(get_db),
        cursor: Any = Depends(get_cursor),
        first: str = Depends(get_first),
    ) -> Any:
        db.executemany("INSERT INTO notes VALUES (?)", [[first], [text]])
        return [text for [text] in cursor.execute("SELECT text FROM notes")]

    @tool("Test")
    async def add_async(
        text: str, db: Any = Depends(get_db), cursor: Any = Depends(get_cursor)
    ) -> Any:
        return add(text, db, cursor, "first")

    the_tool: Tool = add_async if is_async else add
    assert await the_tool.execute({"text": "second"}) == ["first", "second"]
    assert notes_in(tmp_path / "db") == ["first", "second"]
    [thread] = set(threads)
    assert (thread == threading.get_ident()) == is_async


async def test_a_failed_synchronous_tool_rolls_its_database_back(tmp_path: Path) -> None:
    get_db = database(tmp_path / "db", [])

    @tool("Test")
    def add(db: Any = Depends(get_db)) -> None:
        db.execute("INSERT INTO notes VALUES ('wrong')")
        raise LookupError("not there")

    with pytest.raises(LookupError):
        await add.execute({})
    assert notes_in(tmp_path / "db") == []


async def test_a_synchronous_tool_abandoned_after_a_cancellation_is_rolled_back_on_return(
    tmp_path: Path,
) -> None:
    threads: list[int] = []
    get_db = database(tmp_path / "db", threads)
    started, release = threading.Event(), threading.Event()

    @tool("Test")
    def add(db: Any = Depends(get_db)) -> None:
        db.execute("INSERT INTO notes VALUES ('late')")
        started.set()
        release.wait(60)

    task = asyncio.create_task(add.execute({}))
    await asyncio.to_thread(started.wait, 60)
    task.cancel()
    await asyncio.wait([task])
    assert task.cancelled()
    [thread] = [alive for alive in threading.enumerate() if alive.ident == threads[0]]
    release.set()
    await asyncio.to_thread(thread.join, 60)
    assert not thread.is_alive()
    assert notes_in(tmp_path / "db") == []


async def test_a_database_that_opens_while_its_call_is_cancelled_is_closed() -> None:
    opening, release, closed = threading.Event(), threading.Event(), threading.Event()

    def get_db() -> Iterator[None]:
        opening.set()
        release.wait(60)
        try:
            yield
        finally:
            closed.set()

    @tool("Test")
    def work(db: None = Depends(get_db)) -> None: ...

    task = asyncio.create_task(work.execute({}))
    await asyncio.to_thread(opening.wait, 60)
    task.cancel()
    await asyncio.wait([task])
    release.set()
    assert await asyncio.to_thread(closed.wait, 60)


async def test_a_tool_in_a_thread_and_its_dependencies_share_context_variables() -> None:
    variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable", default="")

    async def first() -> None:
        variable.set("first")

    def second(_: None = Depends(first)) -> Iterator[str]:
        token = variable.set(variable.get() + ", second")
        yield variable.get()
        variable.reset(token)

    async def third(seen: str = Depends(second)) -> str:
        return variable.get() + ", third"

    @tool("Test")
    def work(one: str = Depends(second), other: str = Depends(third)) -> list[str]:
        return [one, other, variable.get()]

    seen = await work.execute({})
    assert seen == ["first, second", "first, third", "first, second"]
