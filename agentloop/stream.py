"""The events of one run as an async iterator that stays in step with its reader.

Copy with: events.py, messages.py, waiting.py.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import Any, Generic, Self, TypeVar, cast

from .events import Event
from .waiting import outcome, reap

R = TypeVar("R")


class EventStream(Generic[R]):
    """Iterate it for the events of a run; `result` is the run's Result once they have ended.

    Leaving the loop early cancels the run: at once when the stream is dropped, or with `aclose()`,
    or at the end of `async with`. An object rather than an async generator, because after a
    `break` the garbage collector only schedules a generator's `aclose`, some time later.
    """

    def __init__(self, run: Callable[[asyncio.Queue[Any]], Awaitable[R]], grace: float) -> None:
        self._run, self._grace = run, grace
        self._queue: asyncio.Queue[Any] = asyncio.Queue()
        self._task: asyncio.Task[R | BaseException] | None = None
        self._taken = False
        self._ended = False
        self.result: R | None = None

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Event:
        if self._ended:
            raise StopAsyncIteration
        if self._task is None:
            self._task = asyncio.ensure_future(outcome(self._run(self._queue)))
            self._task.add_done_callback(partial(_close, self._queue))
        if self._taken:  # the reader has dealt with the last event: the run may go on
            self._queue.task_done()
        try:
            event = await self._queue.get()
        except asyncio.CancelledError:
            await self.aclose()
            raise
        self._taken = True
        if event is not _END:
            return cast(Event, event)
        self._ended = True
        if isinstance(result := self._task.result(), BaseException):
            raise result
        self.result = result
        raise StopAsyncIteration

    async def aclose(self) -> None:
        """Cancel the run if it is still going, and wait until it has closed its log."""
        self._ended = True
        if self._task is not None and await reap([self._task], self._grace):
            raise asyncio.CancelledError

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.aclose()

    def __del__(self) -> None:
        if self._task is None or self._task.done() or (loop := self._task.get_loop()).is_closed():
            return
        with suppress(RuntimeError):  # there is no running loop here
            if asyncio.get_running_loop() is loop:
                self._task.cancel()
                return
        loop.call_soon_threadsafe(self._task.cancel)


_END = object()


def _close(queue: asyncio.Queue[Any], task: object) -> None:
    queue.put_nowait(_END)
