"""Waits that end: for coroutines that run together, timeouts, and what was cancelled.

Copy with: nothing else.

Some tools don't stop, because they, or something they await, suppress CancelledError. After `grace`
seconds, such a tool is abandoned, with a warning. No wait here takes longer.
"""

import asyncio
import inspect
import logging
import threading
from collections.abc import Awaitable, Callable, Collection, Coroutine, Generator, Iterable
from concurrent.futures import Future
from contextlib import closing, contextmanager, suppress
from contextvars import copy_context
from functools import partial
from queue import SimpleQueue
from typing import ParamSpec, TypeVar, cast
from weakref import WeakKeyDictionary

Params = ParamSpec("Params")
Input = TypeVar("Input")
T = TypeVar("T")

logger = logging.getLogger("agentloop")

MAX_BLOCKED = 1.0  # seconds in which a tool may keep the event loop from running


async def gather_bounded(
    function: Callable[[Input], Awaitable[T]], items: Iterable[Input], *, at_once: int, grace: float
) -> list[T | BaseException]:
    """Call `function` with every item, and return the results or exceptions in order.

    At most `at_once` calls run at the same time, and one that fails leaves the others alone. A call
    that cancels itself is left out. If you cancel this, the running calls are cancelled, and
    CancelledError is raised once they have ended, or after `grace` seconds.
    """
    slots = asyncio.Semaphore(at_once)

    async def one(item: Input) -> T | BaseException:
        async with slots:
            try:
                return await function(item)
            except BaseException as error:  # like `capture`, with fewer frames above a tool
                if was_cancelled(error):
                    raise
                return error

    tasks = [asyncio.ensure_future(one(item)) for item in items]
    try:
        await asyncio.wait(tasks)
    except asyncio.CancelledError:
        await cancel_and_wait(tasks, grace)
        raise
    return [task.result() for task in tasks if not task.cancelled()]


async def wait_for(work: Awaitable[T], seconds: float | None, *, grace: float) -> T:
    """Await `work`. Raises TimeoutError after `seconds`.

    If the work still finishes while it's cancelled, you get its result, and the cancellation comes
    at your next await. If it doesn't stop, it's abandoned `grace` seconds later.
    """
    if seconds is None:
        return await work
    ended: list[T | BaseException] = []  # a task that's cancelled while it ends loses its result

    async def keep() -> None:
        ended.append(await capture(work))

    context = copy_context()
    task = asyncio.create_task(keep(), context=context)
    in_time = cancelled = False
    try:
        in_time = bool((await asyncio.wait([task], timeout=seconds))[0])
    except asyncio.CancelledError:
        await cancel_and_wait([task], grace)
        if not ended:
            raise  # the same error, because anyio only catches its own
        cancelled = True
    cancelled = await cancel_and_wait([task], grace) or cancelled
    if not ended:
        if cancelled or in_time:  # in time: the work cancelled itself
            raise asyncio.CancelledError
        raise TimeoutError(f"not finished within {seconds:g} seconds; it may have had effects")
    # if the work sets context variables, the caller sees them
    for variable, value in context.items():
        variable.set(value)
    if cancelled:
        cancel_this_task()
    if isinstance(result := ended[0], BaseException):
        raise result
    return result


async def capture(work: Awaitable[T]) -> T | BaseException:
    """Await `work`, and return its result or its exception. A cancellation is still raised.

    A KeyboardInterrupt comes back as a value, too, because a task that raises one stops the event
    loop.
    """
    try:
        return await work
    except BaseException as error:
        if was_cancelled(error):
            raise
        return error


async def cancel_and_wait(tasks: Collection[asyncio.Future[T]], grace: float) -> bool:
    """Cancel tasks and wait until they have ended, for at most `grace` seconds.

    Returns whether you were cancelled meanwhile; that doesn't shorten the wait.
    """
    loop = asyncio.get_running_loop()
    cancelled = False
    for task in tasks:
        if task in _shielded:
            _shielded[task] = True
        else:
            task.cancel()
    end = loop.time() + grace
    while pending := [task for task in tasks if not task.done()]:
        if (left := end - loop.time()) <= 0:
            if grace:  # 0: nobody wants to wait
                logger.warning("%d task(s) did not stop within %g seconds", len(pending), grace)
            for task in pending:
                task.cancel()
            break
        try:
            await asyncio.wait(pending, timeout=left)
        except asyncio.CancelledError:
            cancelled = True
    return cancelled


_shielded = WeakKeyDictionary[object, bool]()  # by task: whether a cancellation was delayed


@contextmanager
def shield_from_cancel() -> Generator[None]:
    """Let `cancel_and_wait` cancel this task only after the block, or after the grace period.

    If the task ends together with the block, it isn't cancelled at all.
    """
    try:
        task = asyncio.current_task()
    except RuntimeError:  # the event loop was closed, and this coroutine is collected
        yield
        return
    _shielded[task] = False
    try:
        yield
    finally:
        if task and _shielded.pop(task):
            asyncio.get_running_loop().call_soon(task.cancel)


async def warn_if_blocking(tool: str, work: Awaitable[T]) -> T:
    """Await the work of a tool. If it blocks the event loop for a second, log a warning."""
    loop = asyncio.get_running_loop()
    start = loop.time()
    iterations = list[bool]()
    loop.call_soon(iterations.append, True)
    result = await work
    if not iterations and loop.time() - start > MAX_BLOCKED:
        logger.warning(
            "tool %s blocks the event loop: write `def` instead of `async def`, so that it runs in "
            "a thread, or await what blocks, such as `asyncio.sleep` instead of time.sleep",
            tool,
        )
    return result


def run_blocking(work: Callable[[], Coroutine[object, None, T]], grace: float) -> T:
    """Run a coroutine as `asyncio.run` does, but wait only `grace` seconds for remaining tasks.

    Raises RuntimeError in async code, such as a notebook: see examples/recipes/notebook_cell.py.
    """
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        pass
    else:
        raise RuntimeError("run_sync() is for scripts: in async code, write await agent.run(...)")
    runner = asyncio.Runner()
    try:
        return runner.run(work())
    finally:
        loop = runner.get_loop()
        loop.run_until_complete(cancel_and_wait(asyncio.all_tasks(loop), grace))
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()
        asyncio.set_event_loop(None)


def cancel_this_task() -> None:
    """Raise the CancelledError that you have just caught again, at the next await."""
    task = asyncio.current_task()

    def again() -> None:
        if task and task.cancelling() and task not in _shielded:
            task.uncancel()  # so that the number of requests to cancel stays the same
            task.cancel()

    asyncio.get_running_loop().call_soon(again)


def is_cancelled() -> bool:
    """Whether the current task was cancelled."""
    task = asyncio.current_task()
    return bool(task and task.cancelling())


def raise_if_cancelled() -> None:
    """Raise CancelledError if the current task was cancelled, which other code may suppress."""
    if is_cancelled():
        raise asyncio.CancelledError


def was_cancelled(error: BaseException) -> bool:
    """Whether an error means that somebody has cancelled this task."""
    return isinstance(error, asyncio.CancelledError) and is_cancelled()


# ---- synchronous functions


async def call_function(
    function: Callable[Params, Awaitable[T] | T], /, *args: Params.args, **kwargs: Params.kwargs
) -> T:
    """Call a function: await it if it's `async def`, or run it in a thread if it's `def`."""
    with closing(WorkThread(inline=False)) as thread:
        result = await thread.run(function, *args, **kwargs)
        return cast(T, await result if inspect.isawaitable(result) else result)


def is_async(function: Callable[..., object]) -> bool:
    """Whether a call of the function only makes a coroutine or generator, and runs no code yet."""
    return inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function)


class WorkThread:
    """A thread that runs functions in order until `close`. `inline` runs them in your own thread.

    It's a daemon thread. Those of `asyncio.to_thread` would keep the interpreter from exiting, and
    there are so few that slow tools would block each other. Context variables have the values that
    they have for the first caller.

    If you cancel a call, the thread finishes its function, and then runs those that are still
    submitted, though nobody waits for them.
    """

    def __init__(self, *, inline: bool) -> None:
        self._inline = inline
        self._jobs: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._is_started = self._is_left = False

    async def run(self, function: Callable[..., T], /, *args: object, **kwargs: object) -> T:
        """Run a function in the thread; an `async def` function in the caller's own."""
        if self._inline or is_async(function):
            return function(*args, **kwargs)
        loop = asyncio.get_running_loop()
        ended = asyncio.Event()
        ended_with: Future[T] = Future()

        def job() -> None:
            try:
                ended_with.set_result(function(*args, **kwargs))
            except BaseException as error:
                ended_with.set_exception(error)
            with suppress(RuntimeError):  # the event loop is closed
                loop.call_soon_threadsafe(ended.set)

        self._jobs.put(job)
        if self._is_left:
            raise asyncio.CancelledError
        if not self._is_started:  # not earlier, so that tools start in call order
            self._is_started = True
            work = partial(copy_context().run, self._work)
            threading.Thread(target=work, name="tool thread", daemon=True).start()
        try:
            await ended.wait()
        except asyncio.CancelledError:
            if not ended_with.done():
                self._is_left = True
                raise
            cancel_this_task()  # both at the same moment: return the result, then cancel
        return ended_with.result()

    def close(self) -> None:
        """End the thread once the submitted functions have run."""
        self._jobs.put(None)

    def _work(self) -> None:
        while job := self._jobs.get():
            job()
