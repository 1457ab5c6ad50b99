"""Waits that end: several coroutines side by side, each cancel answered within a grace period.

Copy with: nothing else.

A tool may refuse to stop (it swallows CancelledError, or awaits something that does). It is then
left behind after `grace` seconds, with a warning; nobody waits for it for ever.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from typing import Any, TypeVar

T = TypeVar("T")
X = TypeVar("X")

logger = logging.getLogger("agentloop")


async def settle(
    function: Callable[[X], Awaitable[T]], items: Iterable[X], *, at_once: int, grace: float
) -> list[T | BaseException]:
    """What `function` returned or raised for each item, in order; one failure stops no other.

    `at_once` of them run at a time. Cancelled, it cancels those that still run, waits for them up
    to `grace` seconds, and raises CancelledError.
    """
    items, loop = list(items), asyncio.get_running_loop()
    slots = asyncio.Semaphore(at_once) if len(items) > at_once else None
    left, all_ended = len(items), loop.create_future()

    async def one(item: X) -> T | BaseException:
        nonlocal left
        try:
            if slots is None:
                return await outcome(function(item))
            async with slots:
                return await outcome(function(item))
        finally:
            left -= 1
            if not left and not all_ended.done():
                all_ended.set_result(None)

    tasks = [loop.create_task(one(item)) for item in items]
    try:
        if tasks:  # asyncio.wait takes one more turn of the event loop, which is 5 us
            await all_ended
    except asyncio.CancelledError:
        await reap(tasks, grace)
        raise
    return [asyncio.CancelledError() if task.cancelled() else task.result() for task in tasks]


async def within(seconds: float | None, work: Awaitable[T], *, grace: float) -> T:
    """What `work` returns, or TimeoutError after `seconds`.

    Work that ends while it is being stopped counts as finished: its result comes first, and a
    cancel at the next await. Work that does not stop is left behind `grace` seconds later.
    """
    if seconds is None:
        return await work
    task = asyncio.ensure_future(outcome(work))
    in_time = cancelled = False
    try:
        in_time = bool((await asyncio.wait([task], timeout=seconds))[0])
    except asyncio.CancelledError:
        cancelled = True
    cancelled = await reap([task], grace) or cancelled
    finished = task.done() and not task.cancelled()
    if cancelled and not finished:
        raise asyncio.CancelledError
    if not in_time and not finished:
        raise TimeoutError(f"not finished within {seconds:g} seconds; it may have had effects")
    if cancelled:
        cancel_this_task()
    if isinstance(result := task.result(), BaseException):
        raise result
    return result


async def outcome(work: Awaitable[T]) -> T | BaseException:
    """What `work` returns or raises. A task that is cancelled still ends as cancelled.

    A KeyboardInterrupt that leaves a task would stop the event loop; so it travels as a value.
    """
    try:
        return await work
    except BaseException as error:
        if was_cancelled(error):
            raise
        return error


async def reap(tasks: Sequence[asyncio.Future[Any]], grace: float) -> bool:
    """Cancel tasks and wait until they have ended, but no longer than `grace` seconds.

    Whether the waiting task itself was cancelled meanwhile, which does not shorten this.
    """
    for task in tasks:
        task.cancel()
    loop, cancelled = asyncio.get_running_loop(), False
    end = loop.time() + grace
    while pending := [task for task in tasks if not task.done()]:
        if (left := end - loop.time()) <= 0:
            logger.warning("%d task(s) did not stop within %g seconds", len(pending), grace)
            break
        try:
            await asyncio.wait(pending, timeout=left)
        except asyncio.CancelledError:
            cancelled = True
    return cancelled


def run_to_its_end(work: Coroutine[Any, Any, T], grace: float) -> T:
    """`asyncio.run`, without its wait for ever for a task that does not stop."""
    runner = asyncio.Runner()
    try:
        return runner.run(work)
    finally:
        loop = runner.get_loop()
        loop.run_until_complete(reap([*asyncio.all_tasks(loop)], grace))
        if asyncio.all_tasks(loop):
            loop.run_until_complete(loop.shutdown_asyncgens())
            loop.close()
            asyncio.set_event_loop(None)
        else:
            runner.close()


def cancel_this_task() -> None:
    """Let the next await raise the CancelledError that was caught just now."""
    if (task := asyncio.current_task()) is not None:
        task.uncancel()  # it is still one cancel, and not two
        task.cancel()


def was_cancelled(error: BaseException) -> bool:
    """Whether somebody cancelled this task, rather than its own code raising CancelledError."""
    if not isinstance(error, asyncio.CancelledError):
        return False
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
