"""The events of a run as an async iterator: what `query_stream` returns.

Copy with: events.py, messages.py, waiting.py.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Self

from .events import Event, EventQueue
from .messages import Result
from .waiting import cancel_and_wait, capture


class EventStream:
    """The events of a run, an async iterator; `result` is the Result once they have ended.

    Leaving the loop early cancels the run: at once when the stream is dropped, or with `aclose()`,
    or at the end of `async with`. It is no async generator, because after a `break` Python only
    schedules a generator's `aclose`, some time later.
    """

    def __init__(self, run: Callable[[EventQueue], Awaitable[Result]], grace: float) -> None:
        self._run = run
        self._grace = grace
        self._queue: EventQueue = asyncio.Queue()
        self._task: asyncio.Task[Result | BaseException] | None = None
        self._ended = False
        self.result: Result | None = None

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Event:
        if self._ended:
            raise StopAsyncIteration
        if not self._task:
            queue = self._queue  # the task must not hold the stream, or nobody could drop it
            self._task = asyncio.ensure_future(capture(self._run(queue)))
            self._task.add_done_callback(lambda _: queue.put_nowait(None))
        else:  # the reader has dealt with the last event: the run may go on
            self._queue.task_done()
        try:
            event = await self._queue.get()
        except asyncio.CancelledError:
            await self.aclose()
            raise
        if self._ended:  # another task has closed this
            raise StopAsyncIteration
        if event is not None:
            return event
        self._ended = True
        if isinstance(result := self._task.result(), BaseException):
            raise result
        self.result = result
        raise StopAsyncIteration

    async def aclose(self) -> None:
        """Cancel the run if it is still going, and wait until it has closed its log."""
        self._ended = True
        self._queue.put_nowait(None)  # the reader may be another task, which waits
        if self._task and await cancel_and_wait([self._task], self._grace):
            raise asyncio.CancelledError

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.aclose()

    def __del__(self) -> None:
        if self._task:
            self._task.cancel()
