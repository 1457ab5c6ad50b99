"""Bounded waits: concurrent coroutines, timeouts, and cancellation within a grace period.

Copy with: nothing else.

Some tools do not stop, because the tool or an awaited function suppresses CancelledError. Such a
tool is abandoned after `grace` seconds, with a warning. All waits are bounded.
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

MAX_BLOCKED = 1.0  # seconds without the event loop, in a tool


async def gather_bounded(
    function: Callable[[Input], Awaitable[T]], items: Iterable[Input], *, at_once: int, grace: float
) -> list[T | BaseException]:
    """Return the results or exceptions of `function` for all items, in order.

    At most `at_once` calls run concurrently; failures do not affect other calls. Calls that cancel
    themselves are omitted. On cancellation, running calls are cancelled, and CancelledError is
    raised after they have ended, or after `grace` seconds.
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
    """Return the result of `work`, or raise TimeoutError after `seconds`.

    If the work finishes during its cancellation, its result is returned, and the cancellation is
    delivered at the next await. Work that does not stop is abandoned `grace` seconds later.
    """
    if seconds is None:
        return await work
    ended: list[T | BaseException] = []  # a task cancelled while ending loses its result

    async def keep() -> None:
        ended.append(await capture(work))

    context = copy_context()
    task = asyncio.create_task(keep(), context=context)
    in_time = cancelled = False
    try:
        in_time = bool((await asyncio.wait([task], timeout=seconds))[0])
    except asyncio.CancelledError:
        cancelled = True
    cancelled = await cancel_and_wait([task], grace) or cancelled
    if not ended:
        if cancelled or in_time:  # in time: the work cancelled itself
            raise asyncio.CancelledError
        raise TimeoutError(f"not finished within {seconds:g} seconds; it may have had effects")
    # context variables set by the work also apply to the caller
    for variable, value in context.items():
        variable.set(value)
    if cancelled:
        cancel_this_task()
    if isinstance(result := ended[0], BaseException):
        raise result
    return result


async def capture(work: Awaitable[T]) -> T | BaseException:
    """Return the result or exception of `work`. Cancellation of the task propagates.

    A KeyboardInterrupt raised by a task would stop the event loop, so it is returned as a value.
    """
    try:
        return await work
    except BaseException as error:
        if was_cancelled(error):
            raise
        return error


async def cancel_and_wait(tasks: Collection[asyncio.Future[T]], grace: float) -> bool:
    """Cancel tasks and wait until they have ended, for at most `grace` seconds.

    Return whether the waiting task was cancelled in the meantime, which does not shorten the wait.
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
    """Delay cancellation by `cancel_and_wait` until the end of the block or of the grace period.

    A task that ends together with the block is not cancelled.
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
    """Return the result of a tool. A tool that blocks the event loop for a second is logged."""
    loop = asyncio.get_running_loop()
    start = loop.time()
    iterations = list[bool]()
    loop.call_soon(iterations.append, True)
    result = await work
    if not iterations and loop.time() - start > MAX_BLOCKED:
        logger.warning(
            "tool %s blocks the event loop: declare it with `def`, to execute it in a thread, "
            "or replace blocking calls such as time.sleep by `await asyncio.sleep`",
            tool,
        )
    return result


def run_blocking(work: Callable[[], Coroutine[object, None, T]], grace: float) -> T:
    """Run a coroutine like `asyncio.run`, but with a bounded wait for remaining tasks.

    Raises RuntimeError in async code.
    """
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        pass
    else:
        raise RuntimeError("run_sync() is for scripts; in async code use: await agent.run(...)")
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
    """Raise the CancelledError that was just caught at the next await."""
    task = asyncio.current_task()

    def again() -> None:
        if task and task.cancelling() and task not in _shielded:
            task.uncancel()  # preserves the number of cancellation requests
            task.cancel()

    asyncio.get_running_loop().call_soon(again)


def is_cancelled() -> bool:
    """Return whether the current task was cancelled."""
    task = asyncio.current_task()
    return bool(task and task.cancelling())


def raise_if_cancelled() -> None:
    """Raise CancelledError if the current task was cancelled, which other code may suppress."""
    if is_cancelled():
        raise asyncio.CancelledError


def was_cancelled(error: BaseException) -> bool:
    """Return whether the error is an external cancellation of this task."""
    return isinstance(error, asyncio.CancelledError) and is_cancelled()


# ---- synchronous functions


async def call_function(
    function: Callable[Params, Awaitable[T] | T], /, *args: Params.args, **kwargs: Params.kwargs
) -> T:
    """Await an asynchronous function; execute a synchronous function in a separate thread."""
    with closing(WorkThread(inline=False)) as thread:
        result = await thread.run(function, *args, **kwargs)
        return cast(T, await result if inspect.isawaitable(result) else result)


def is_async(function: Callable[..., object]) -> bool:
    """Return whether calling the function only creates a coroutine, without executing code."""
    return inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function)


class WorkThread:
    """A thread that executes functions in order until `close`; `inline` uses the caller's thread.

    The thread is a daemon thread: threads of `asyncio.to_thread` would delay the interpreter's
    exit, and their limited number allows slow tools to block each other. Context variables have the
    values of the caller at the first use.

    On cancellation, the thread continues with its current function, and executes subsequently
    submitted functions afterwards, without a waiting caller.
    """

    def __init__(self, *, inline: bool) -> None:
        self._inline = inline
        self._jobs: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._is_started = self._is_left = False

    async def run(self, function: Callable[..., T], /, *args: object, **kwargs: object) -> T:
        """Execute a function in the thread, or an asynchronous function in the caller's thread."""
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
        if not self._is_started:  # delayed until here, so that tools start in call order
            self._is_started = True
            work = partial(copy_context().run, self._work)
            threading.Thread(target=work, name="tool thread", daemon=True).start()
        try:
            await ended.wait()
        except asyncio.CancelledError:
            if not ended_with.done():
                self._is_left = True
                raise
            cancel_this_task()  # both ended simultaneously: return the result, then cancel
        return ended_with.result()

    def close(self) -> None:
        """Terminate the thread after the submitted functions."""
        self._jobs.put(None)

    def _work(self) -> None:
        while job := self._jobs.get():
            job()
