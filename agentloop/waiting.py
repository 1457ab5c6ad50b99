"""Waits that end: several coroutines side by side, each cancel answered within a grace period.

Copy with: nothing else.

A tool may refuse to stop (it swallows CancelledError, or awaits something that does). It is then
left behind after `grace` seconds, with a warning. No wait lasts for ever.
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
Each = TypeVar("Each")
T = TypeVar("T")

logger = logging.getLogger("agentloop")


async def gather_bounded(
    function: Callable[[Each], Awaitable[T]], items: Iterable[Each], *, at_once: int, grace: float
) -> list[T | BaseException]:
    """Return what `function` returned or raised for each item, in order.

    `at_once` of them run at a time, and a failure of one stops no other. One that cancels itself is
    left out. If this is cancelled, it cancels those that still run, waits for them up to `grace`
    seconds and raises CancelledError.
    """
    slots = asyncio.Semaphore(at_once)

    async def one(item: Each) -> T | BaseException:
        async with slots:
            try:
                return await function(item)
            except BaseException as error:  # as in `capture`, with one frame less
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


async def wait_for(seconds: float | None, work: Awaitable[T], *, grace: float) -> T:
    """Return what `work` returns, or raise TimeoutError after `seconds`.

    If the work finishes while it is being cancelled, return its result and deliver the cancel at
    the next await. Work that does not stop is left behind `grace` seconds later.
    """
    if seconds is None:
        return await work
    ended: list[T | BaseException] = []  # a task that is cancelled as it ends loses its own result

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
        if cancelled or in_time:  # or the work has cancelled itself
            raise asyncio.CancelledError
        raise TimeoutError(f"not finished within {seconds:g} seconds; it may have had effects")
    for variable, value in context.items():  # what the work has set is as if it had run here
        variable.set(value)
    if cancelled:
        cancel_this_task()
    if isinstance(result := ended[0], BaseException):
        raise result
    return result


async def capture(work: Awaitable[T]) -> T | BaseException:
    """Return what `work` returns or raises. A task that is cancelled still ends as cancelled.

    A KeyboardInterrupt that leaves a task would stop the event loop, so it travels as a value.
    """
    try:
        return await work
    except BaseException as error:
        if was_cancelled(error):
            raise
        return error


async def cancel_and_wait(tasks: Collection[asyncio.Future[T]], grace: float) -> bool:
    """Cancel tasks and wait until they have ended, but no longer than `grace` seconds.

    Return whether the waiting task itself was cancelled meanwhile, which does not shorten this.
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


_shielded = WeakKeyDictionary[object, bool]()  # by task: True if a cancel waits


@contextmanager
def shield_from_cancel() -> Generator[None]:
    """Hold back the cancels of `cancel_and_wait` until the block has ended, or its grace has.

    A task that ends together with the block is not cancelled any more.
    """
    task = asyncio.current_task()
    _shielded[task] = False
    try:
        yield
    finally:
        if task and _shielded.pop(task):
            asyncio.get_running_loop().call_soon(task.cancel)


def run_blocking(work: Callable[[], Coroutine[object, None, T]], grace: float) -> T:
    """Do as `asyncio.run` does, without its wait for ever for a task that does not stop.

    RuntimeError: this is async code.
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
    """Let the next wait raise the CancelledError that was caught just now."""
    task = asyncio.current_task()

    def again() -> None:
        if task and task.cancelling() and task not in _shielded:
            task.uncancel()  # it is still one cancel, and not two
            task.cancel()

    asyncio.get_running_loop().call_soon(again)


def is_cancelled() -> bool:
    """Return whether somebody cancelled this task, and it has not ended yet."""
    task = asyncio.current_task()
    return bool(task and task.cancelling())


def was_cancelled(error: BaseException) -> bool:
    """Return whether somebody cancelled this task: its own code may raise CancelledError, too."""
    return isinstance(error, asyncio.CancelledError) and is_cancelled()


# ---- plain functions


async def call_function(
    function: Callable[Params, Awaitable[T] | T], /, *args: Params.args, **kwargs: Params.kwargs
) -> T:
    """Call a function: await it if it is async, else run it in a thread of its own."""
    with closing(WorkThread(inline=False)) as thread:
        result = await thread.run(function, *args, **kwargs)
        return cast(T, await result if inspect.isawaitable(result) else result)


def is_async(function: Callable[..., object]) -> bool:
    """Return whether a call of the function runs nothing yet."""
    return inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function)


class WorkThread:
    """A thread that calls functions in turn, until `close`. If it is `here`, the caller's does.

    It is a daemon thread: those of `asyncio.to_thread` keep the interpreter from exiting, and are
    few enough that slow tools hold each other up. Context variables have in it what they had in the
    caller when it was first used.

    A cancel leaves the thread behind with the function that it runs. What it is given later runs
    after that, and nobody waits for it.
    """

    def __init__(self, *, inline: bool) -> None:
        self._inline = inline
        self._jobs: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._is_started = self._is_left = False

    async def run(self, function: Callable[..., T], /, *args: object, **kwargs: object) -> T:
        """Call a function in the thread, or here if it is async."""
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
            with suppress(RuntimeError):  # the event loop is closed: nobody waits any more
                loop.call_soon_threadsafe(ended.set)

        self._jobs.put(job)
        if self._is_left:
            raise asyncio.CancelledError
        if not self._is_started:  # only now, so that tools begin in the order of their calls
            self._is_started = True
            work = partial(copy_context().run, self._work)
            threading.Thread(target=work, name="tool thread", daemon=True).start()
        try:
            await ended.wait()
        except asyncio.CancelledError:
            if not ended_with.done():
                self._is_left = True
                raise
            cancel_this_task()  # it has ended just now: its result first, then the cancel
        return ended_with.result()

    def close(self) -> None:
        """Let the thread end after what it has been given."""
        self._jobs.put(None)

    def _work(self) -> None:
        while job := self._jobs.get():
            job()
