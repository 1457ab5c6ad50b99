"""Dependencies: how they are found, called, shared and closed."""

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
    async def __call__(self, given: Annotated[str, Depends(plain)]) -> str:
        return "from " + given


def take(settings: Settings) -> None: ...


async def get(function: Callable[..., Any], overrides: dict[Any, Any] | None = None) -> Any:
    """What a tool is given that depends on `function`."""

    @tool
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


async def test_dependencies_of_dependencies_are_called_once_and_closed_in_turn() -> None:
    ledger: list[str] = []

    def config() -> Iterator[str]:
        ledger.append("open config")
        yield "config"
        ledger.append("close config")

    async def db(config: str = Depends(config)) -> AsyncIterator[str]:
        ledger.append("open db")
        yield f"db({config})"
        ledger.append("close db")

    @tool
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


async def test_an_override_replaces_a_dependency_wherever_it_is_asked_for() -> None:
    closed: list[str] = []

    async def fake(text: str = Depends(plain)) -> AsyncIterator[str]:
        yield f"fake({text})"
        closed.append("fake")

    overrides: dict[Any, Any] = {base: fake, plain: lambda: "simple"}
    assert await get(middle, overrides) == "middle(fake(simple))"
    assert closed == ["fake"]


def test_a_parameter_that_nothing_fills_in_is_refused_when_it_is_marked() -> None:
    def get_url(host: str, port: int = 80, *args: str, **kwargs: str) -> str:
        return host

    with pytest.raises(TypeError, match=r"get_url: missing a required.*: 'host'.*default"):
        Depends(get_url)


Alias = TypeAliasType("Alias", Annotated[str, Depends(plain)])


@pytest.mark.parametrize("function", [current_agent, current_call])
def test_outside_a_tool_call_there_is_no_agent_and_no_call(function: Any) -> None:
    with pytest.raises(LookupError, match="inside a tool call"):
        function()


async def test_a_mark_in_an_optional_type_or_a_type_alias_injects() -> None:
    @tool
    async def work(a: Annotated[str, Depends(plain)] | None = None, b: Alias = "") -> Any:
        return a, b

    assert await work.execute({}) == ("plain", "plain")
    assert work.parameters["properties"] == {}


def test_a_name_of_whoever_makes_the_tool_is_no_annotation() -> None:
    Settings = None

    with pytest.raises(TypeError, match="JSON schema"):  # the module's class, which has none
        tool(take)
    assert Settings is None


async def test_a_dependency_that_fails_to_close_does_not_hide_that_the_tool_ran() -> None:
    def get_db() -> Iterator[None]:
        yield
        raise ValueError("connection lost")

    with pytest.raises(ToolError, match="the tool ran, but closing.*ValueError: connection lost"):
        await get(get_db)


@pytest.mark.parametrize("error", [LookupError("not there"), ToolError("say more")])
async def test_dependencies_see_why_a_tool_failed_and_do_not_hide_it(error: Exception) -> None:
    seen: list[BaseException] = []

    def get_db() -> Iterator[None]:
        try:
            yield
        except Exception as failure:
            seen.append(failure)
            raise

    @tool
    async def save(db: None = Depends(get_db)) -> None:
        raise error

    with pytest.raises(type(error), match=str(error)):
        await save.execute({}, {})
    assert seen == [error]


async def test_a_failure_to_close_is_told_beside_the_reason_why_the_tool_failed() -> None:
    def get_db() -> Iterator[None]:
        try:
            yield
        except LookupError:
            raise ValueError("connection lost")  # noqa: B904

    @tool
    async def save(db: None = Depends(get_db)) -> None:
        raise LookupError("not there")

    with pytest.raises(ExceptionGroup) as caught:
        await save.execute({}, {})
    assert describe_error(caught.value) == "LookupError: not there; ValueError: connection lost"


async def test_a_dependency_may_raise_another_error_from_that_of_the_tool() -> None:
    def get_db() -> Iterator[None]:
        try:
            yield
        except LookupError as error:
            raise ToolError("There is no such row.") from error

    @tool
    async def save(db: None = Depends(get_db)) -> None:
        raise LookupError("not there")

    with pytest.raises(ToolError, match=r"^There is no such row\.$"):
        await save.execute({}, {})


async def test_the_end_of_a_task_is_no_failure_to_its_dependencies() -> None:
    ended: list[str] = []

    def get_db() -> Iterator[None]:
        try:
            yield
        except BaseException:
            ended.append("rolled back")
            raise
        ended.append("committed")

    @tool
    async def done(db: None = Depends(get_db)) -> None:
        raise TaskComplete("It is saved.")

    with pytest.raises(TaskComplete, match=r"It is saved\."):
        await done.execute({}, {})
    assert ended == ["committed"]


async def test_what_is_open_is_closed_when_a_later_one_fails_to_open() -> None:
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

    @tool
    async def work(db: None = Depends(get_db)) -> str:
        return variable.get()

    assert await work.execute({}) == "inside"


# ---- cancelling


class Held:
    """A dependency that says where it is and waits until it may go on."""

    def __init__(self) -> None:
        self.started, self.closing, self.go_on = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self.is_closed = False

    async def get(self) -> AsyncIterator[None]:
        try:
            yield
        finally:
            self.closing.set()
            await self.go_on.wait()
            self.is_closed = True

    def use(self, *, forever: bool) -> asyncio.Task[Any]:
        """Run a tool that depends on this one, and that waits for ever or returns at once."""

        @tool
        async def work(_held: None = Depends(self.get)) -> str:
            self.started.set()
            if forever:
                await asyncio.Event().wait()
            return "result"

        return asyncio.create_task(work.execute({}))


@pytest.mark.parametrize("forever", [False, True])
async def test_cancels_let_dependencies_close_and_keep_a_result(forever: bool) -> None:
    held = Held()
    task = held.use(forever=forever)
    await (held.started if forever else held.closing).wait()
    cancels = [asyncio.create_task(cancel_and_wait([task], 60))]
    await held.closing.wait()
    cancels += [asyncio.create_task(cancel_and_wait([task], 60))]
    await asyncio.sleep(0)
    held.go_on.set()
    await asyncio.wait([task, *cancels])
    assert task.cancelled() if forever else task.result() == "result"
    assert held.is_closed


async def test_a_cancel_that_waits_for_dependencies_to_close_ends_what_follows(
    caplog: pytest.LogCaptureFixture,
) -> None:
    held = Held()

    @tool
    async def work(_held: None = Depends(held.get)) -> None: ...

    async def work_and_go_on() -> None:
        await work.execute({})
        await asyncio.Event().wait()

    task = asyncio.create_task(work_and_go_on())
    await held.closing.wait()
    cancel = asyncio.create_task(cancel_and_wait([task], 10))
    await asyncio.sleep(0)
    held.go_on.set()
    await cancel
    assert held.is_closed
    assert task.cancelled()
    assert "did not stop" not in caplog.text


async def test_a_cancel_that_meets_the_result_of_a_plain_tool_lets_dependencies_close(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def tell(*args: Any) -> None:
        call_soon(*args)
        told.set()

    held, told = Held(), threading.Event()
    loop = asyncio.get_running_loop()
    call_soon = loop.call_soon_threadsafe
    monkeypatch.setattr(loop, "call_soon_threadsafe", tell)

    @tool
    def work(_held: None = Depends(held.get)) -> str:
        told.clear()
        held.started.set()
        return "result"

    task = asyncio.create_task(work.execute({}))
    while not held.started.is_set():
        await asyncio.sleep(0)
    assert told.wait(5)  # the thread has told the event loop, which does not know yet
    cancel = asyncio.create_task(cancel_and_wait([task], 60))
    await held.closing.wait()
    for _ in range(3):
        await asyncio.sleep(0)
    held.go_on.set()
    await asyncio.wait([task, cancel])
    assert task.result() == "result"
    assert held.is_closed


async def test_dependencies_that_never_close_do_not_outlast_the_grace() -> None:
    held = Held()
    task = held.use(forever=False)
    await held.closing.wait()
    await cancel_and_wait([task], 0.01)
    await asyncio.wait([task])
    assert task.cancelled()
    assert not held.is_closed


# ---- threads


def database(file: Path, threads: list[int]) -> Callable[[], Iterator[sqlite3.Connection]]:
    """A dependency that opens a database, and commits or rolls back and closes it afterwards."""

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

    @tool
    def add(
        text: str,
        db: Any = Depends(get_db),
        cursor: Any = Depends(get_cursor),
        first: str = Depends(get_first),
    ) -> Any:
        db.executemany("INSERT INTO notes VALUES (?)", [[first], [text]])
        return [text for [text] in cursor.execute("SELECT text FROM notes")]

    @tool
    async def add_async(
        text: str, db: Any = Depends(get_db), cursor: Any = Depends(get_cursor)
    ) -> Any:
        return add(text, db, cursor, "first")

    made: Tool = add_async if is_async else add
    assert await made.execute({"text": "second"}) == ["first", "second"]
    assert notes_in(tmp_path / "db") == ["first", "second"]
    [thread] = set(threads)
    assert (thread == threading.get_ident()) == is_async


async def test_a_plain_tool_that_fails_rolls_its_database_back(tmp_path: Path) -> None:
    get_db = database(tmp_path / "db", [])

    @tool
    def add(db: Any = Depends(get_db)) -> None:
        db.execute("INSERT INTO notes VALUES ('wrong')")
        raise LookupError("not there")

    with pytest.raises(LookupError):
        await add.execute({})
    assert notes_in(tmp_path / "db") == []


async def test_a_plain_tool_that_is_left_behind_is_rolled_back_when_it_returns(
    tmp_path: Path,
) -> None:
    threads: list[int] = []
    get_db = database(tmp_path / "db", threads)
    begun, release = threading.Event(), threading.Event()

    @tool
    def add(db: Any = Depends(get_db)) -> None:
        db.execute("INSERT INTO notes VALUES ('late')")
        begun.set()
        release.wait(60)

    task = asyncio.create_task(add.execute({}))
    await asyncio.to_thread(begun.wait, 60)
    task.cancel()
    await asyncio.wait([task])
    assert task.cancelled()
    [thread] = [each for each in threading.enumerate() if each.ident == threads[0]]
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

    @tool
    def work(db: None = Depends(get_db)) -> None: ...

    task = asyncio.create_task(work.execute({}))
    await asyncio.to_thread(opening.wait, 60)
    task.cancel()
    await asyncio.wait([task])
    release.set()
    assert await asyncio.to_thread(closed.wait, 60)


async def test_context_variables_go_into_the_thread_of_a_tool_whose_functions_share_them() -> None:
    variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable", default="")

    async def first() -> None:
        variable.set("first")

    def second(_: None = Depends(first)) -> Iterator[str]:
        token = variable.set(variable.get() + ", second")
        yield variable.get()
        variable.reset(token)

    async def third(seen: str = Depends(second)) -> str:
        return variable.get() + ", third"

    @tool
    def work(one: str = Depends(second), other: str = Depends(third)) -> list[str]:
        return [one, other, variable.get()]

    seen = await work.execute({})
    assert seen == ["first, second", "first, third", "first, second"]
