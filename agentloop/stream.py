"""A run in progress, and the stream of its events that `query_stream` returns.

Copy with: events.py, waiting.py and their imports.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Self, cast

from .events import Event, EventQueue
from .messages import Advised, Result
from .waiting import cancel_and_wait, capture


class Run:
    """One run of an agent, from its prompt to its Result.

    system_text: the system prompt of all requests of the run.
    events: the queue of the stream's reader, if there is one.
    stopping: whether no further call may start, after an error, a Stop or an interruption.
    interrupted: whether the task was cancelled to end the run with a Result.
    """

    def __init__(self, system_text: str, events: EventQueue | None) -> None:
        task = asyncio.current_task()
        assert task  # a coroutine runs in a task
        if not isinstance(cast(object, system_text), str):
            raise TypeError(
                f"system_prompt: the function must return text, not {system_text!r:.80}"
            )
        self.task = task
        self._cancels_before = task.cancelling()
        self.system_text = system_text
        self.events = events
        self.stopping = self.interrupted = False

    @property
    def is_alive(self) -> bool:
        """Whether the run can go on: it ends with its event loop."""
        return not self.task.get_loop().is_closed()

    @property
    def is_cancelled(self) -> bool:
        """Whether the run's task was cancelled during the run."""
        return self.task.cancelling() > self._cancels_before

    def raise_if_cancelled(self) -> None:
        """Raise CancelledError if the run was cancelled, which a model may have suppressed."""
        if self.is_cancelled:
            raise asyncio.CancelledError

    def result_if_interrupted(self, error: BaseException) -> Result:
        """Return the Result of an interrupted run. Raises the error of any other run.

        The error is a CancelledError, or what a model raised in response to one.
        """
        if not self.interrupted:
            raise error
        self.task.uncancel()
        if self.is_cancelled:  # by somebody else, too
            raise error
        return Result(stop_reason="interrupted")

    async def wait_if_cancelled(self, seconds: float) -> None:
        """Wait until a cancelled run has ended, at most this long."""
        if self.is_cancelled:
            await asyncio.wait([self.task], timeout=seconds)


class EventStream(Advised):
    """An async iterator over the events of a run; `result` is the Result after the last event.

    Leaving the iteration early cancels the run: immediately when the stream is garbage-collected,
    with `aclose()`, or at the end of `async with`. The class is not an async generator, because
    Python delays a generator's `aclose` after a `break`.
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
            # a reference from the task would prevent garbage collection of the stream
            queue = self._queue
            self._task = asyncio.ensure_future(capture(self._run(queue)))
            self._task.add_done_callback(lambda _: queue.put_nowait(None))
        else:  # the reader has processed the last event: the run continues
            self._queue.task_done()
        try:
            event = await self._queue.get()
        except asyncio.CancelledError:
            await self.aclose()
            raise
        if self._ended:  # closed by another task
            raise StopAsyncIteration
        if event is not None:
            return event
        self._ended = True
        if isinstance(result := self._task.result(), BaseException):
            raise result
        self.result = result
        raise StopAsyncIteration

    async def aclose(self) -> None:
        """Cancel a running run, and wait for its last records."""
        self._ended = True
        self._queue.put_nowait(None)  # the reader may be waiting in another task
        if self._task and await cancel_and_wait([self._task], self._grace):
            raise asyncio.CancelledError

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.aclose()

    if not TYPE_CHECKING:  # type checkers reject `await`, `for` and `with` already

        def __await__(self) -> object:
            raise TypeError(
                "an EventStream is read, not awaited: write `async for event in stream`, or "
                "`result = await agent.run(prompt)`"
            )

        def __iter__(self) -> object:
            raise TypeError(
                "write `async for event in stream` in an `async def` function; without events, "
                "use agent.run_sync(prompt)"
            )

        def __enter__(self) -> object:
            raise TypeError("write `async with agent.query_stream(prompt) as stream`")

        def __exit__(self, *exc_info: object) -> None: ...

    def __del__(self) -> None:
        if self._task and not self._task.get_loop().is_closed():
            self._task.cancel()
