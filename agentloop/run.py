"""One run of an agent, from its prompt to its Result, and the stream of its events.

Copy with: events.py, tools.py and their imports.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol, Self, cast

from .content import describe_error
from .events import Event, EventQueue, StepStartEvent, ToolCallEvent
from .messages import (
    Advised,
    AssistantMessage,
    Content,
    Extra,
    MessageView,
    Prompt,
    Result,
    Stop,
    TaskComplete,
    ToolCall,
    ToolMessage,
    UserMessage,
)
from .tools import Tool
from .transcript import (
    CallState,
    Conversation,
    Log,
    Record,
    RunEnd,
    RunStart,
    calls_to_resume,
    check_prompt,
    done_result,
    last_but_instructions,
    placeholder_result,
    record_of,
    result_of,
    result_of_failure,
    usage_of,
)
from .waiting import cancel_and_wait, capture


class Runs(Protocol):
    """What a run needs of its agent: see `Loop`."""

    active_run: Run | None
    log: Log

    @property
    def messages(self) -> MessageView: ...
    @property
    def conversation(self) -> Conversation: ...
    @property
    def pending(self) -> tuple[ToolCall, ...]: ...

    async def wait_for_cancelled_run(self) -> None: ...
    def refuse_if_busy(self) -> None: ...
    async def call_tools(self, calls: Sequence[ToolCall]) -> Result | None: ...
    async def call_tool(self, call: ToolCall) -> ToolMessage: ...
    async def finish(self, result: Result) -> Result | None: ...
    def turn_tools(self) -> Sequence[Tool]: ...
    def system_text(self) -> str: ...
    def record(self, record: Record) -> None: ...
    def add(self, *records: Record) -> None: ...
    def emit(self, event: Event) -> None: ...


@asynccontextmanager
async def only_run(
    agent: Runs, prompt: Prompt, extra: Extra, events: EventQueue | None
) -> AsyncGenerator[Run]:
    """Refuse a second run, record the start and the prompt, and the end if the run fails."""
    await agent.wait_for_cancelled_run()
    check_prompt(prompt, agent.conversation)
    run = Run(agent, events)
    with agent.log.lock:  # another thread may start a run at the same time
        agent.refuse_if_busy()
        agent.active_run = run
    try:
        run.start(prompt, extra)
        yield run
    except BaseException as error:
        if run.is_current and agent.conversation.stop_reason == "":  # else saving failed
            reason = "cancelled" if isinstance(error, asyncio.CancelledError) else "error"
            agent.record(RunEnd(reason, describe_error(error)))
        raise
    finally:
        if agent.active_run is run:  # else its event loop was closed, and another has started
            agent.active_run = None


class Run:
    """One run of an agent.

    system_text: the system prompt of all requests of the run.
    events: the queue of the stream's reader, if there is one.
    stopping: whether no more calls may start, because one has ended the run, or somebody interrupts
        it. A call that waits for something from outside lets the others run.
    interrupted: whether the task was cancelled to end the run with a Result.
    follows_kill: whether the earlier run has no end in the log.
    """

    def __init__(self, agent: Runs, events: EventQueue | None) -> None:
        task = asyncio.current_task()
        assert task  # a coroutine runs in a task
        self.agent = agent
        self.task = task
        self._cancels_before = task.cancelling()
        self.system_text = agent.system_text()
        self.events = events
        self.stopping = self.interrupted = False
        self.follows_kill = agent.conversation.stop_reason == ""
        self._steps = 0
        if not isinstance(cast(object, self.system_text), str):
            raise TypeError(
                f"system_prompt: your function must return text, not {self.system_text!r:.80}"
            )

    @property
    def is_current(self) -> bool:
        """Whether this is the run that the agent works on, and its event loop isn't closed."""
        return self.agent.active_run is self and self.is_alive

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

    async def wait_if_cancelled(self, seconds: float) -> None:
        """Wait until a cancelled run has ended, but no longer than this."""
        if self.is_alive and self.is_cancelled:
            await asyncio.wait([self.task], timeout=seconds)

    def start(self, prompt: Prompt, extra: Extra) -> None:
        """Record the start and the prompt, which closes open calls."""
        record = self.agent.record
        record(RunStart(extra=extra))
        if prompt is None:
            return
        for state in self.agent.conversation.open_calls:
            self.agent.add(record_of(state.call, placeholder_result(state)))
        message = UserMessage(cast(Content, prompt))  # converts text in a list to parts
        if last_but_instructions(self.agent.messages) != message:  # it is if you repeat run()
            record(message)

    async def resume(self) -> Result | None:
        """Run the calls that an earlier run has left open. After a prompt, there are none.

        Returns a Result if one of them is a done call, or if the earlier run was killed before it
        returned its answer.
        """
        agent = self.agent
        tools = agent.turn_tools()
        done = await self.resume_calls(agent.conversation.open_calls, tools)
        last = last_but_instructions(agent.messages)
        if isinstance(last, AssistantMessage) and last.stop_reason != "pause":
            return done or result_of(last)
        if self.follows_kill and not done:
            return done_result(agent.messages, [tool.name for tool in tools if tool.ends_run])
        return done

    async def resume_calls(
        self, states: Sequence[CallState], tools: Sequence[Tool]
    ) -> Result | None:
        """Run calls that have no result if they may run, and record what's known of the others.

        Returns a Result if one of them is a done call.
        """
        for state in states:
            if state.decided:
                await self.close(state)
        left = [state for state in states if not state.decided]
        resumable = [tool.name for tool in tools if tool.resumes]
        runnable, ended = calls_to_resume(left, resumable)
        done = await self.agent.call_tools(runnable) if runnable else None
        for state in ended:
            if self.agent.conversation.state_of(state.call).result is None:
                await self.close(state)
        return done

    async def close(self, state: CallState) -> None:
        """Announce a call that doesn't run, and record what's known of its outcome."""
        await self._announce(state.call)
        self.agent.add(record_of(state.call, placeholder_result(state)))

    async def perform(self, call: ToolCall) -> None:
        """Announce a call, run it, and record its result at once.

        Raises what ends the run. A cancelled call stays open, and so does one that waits for
        something from outside; the view tells the two apart.
        """
        agent = self.agent
        if not await self._announce(call):
            return
        start = time.perf_counter()
        result = None
        try:
            result = call.checked(await agent.call_tool(call))
        except BaseException as error:
            result = result_of_failure(agent.conversation.state_of(call), error)
            if result and not isinstance(error, TaskComplete):
                self.stopping = True
            raise
        finally:
            if result and self.is_current:
                # a tool that ignores a cancellation may end after the run
                seconds = round(time.perf_counter() - start, 3)
                agent.add(record_of(call, replace(result, seconds=seconds)))

    async def _announce(self, call: ToolCall) -> bool:
        """Emit the ToolCallEvent, and wait for its reader. Returns whether the call may start."""
        if self.stopping:
            return False
        self._steps += 1
        self.agent.emit(StepStartEvent(call.id, call.name, self._steps))
        self.agent.emit(ToolCallEvent(call.name, call.parsed or {}, call.id, call.parent_id))
        if self.events:
            await self.events.join()
        return not self.stopping

    async def finish_now(self, result: Result) -> Result:
        """End the run, whatever `agent.finish` makes of the Result."""
        try:
            result = await self.agent.finish(result) or result
        except Stop as later:
            result = later.result
        except asyncio.CancelledError as cancel:
            return self.end_if_interrupted(cancel)
        return self.end(result)

    def end_if_interrupted(self, error: BaseException) -> Result:
        """End the run with a Result if it was interrupted; if not, raise the error.

        The error is a CancelledError, or what a model raised in response to one.
        """
        if not self.interrupted:
            raise error
        self.task.uncancel()
        if self.is_cancelled:  # by somebody else, too
            raise error
        return self.end(Result(stop_reason="interrupted"))

    def end(self, result: Result) -> Result:
        """Record the end of the run, and return the complete Result."""
        if self.interrupted and self.is_cancelled:  # too late: spare what follows the run
            self.task.uncancel()
        self.agent.add(RunEnd(result.stop_reason, text=result.text))
        usage = usage_of(self.agent.conversation.run)
        return replace(result, usage=usage, pending=self.agent.pending)


class EventStream(Advised):
    """An async iterator over the events of a run; `result` is the Result after the last event.

    If you leave early, the run is cancelled: when the stream is garbage-collected, with `aclose()`,
    or at the end of `async with`. This isn't an async generator, because after a `break` Python
    closes a generator only later.
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
            # if the task referred to the stream, the stream would never be garbage-collected
            queue = self._queue
            self._task = asyncio.ensure_future(capture(self._run(queue)))
            self._task.add_done_callback(lambda _: queue.put_nowait(None))
        else:  # the reader is done with the last event, so the run goes on
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
        """Cancel the run if it's still going, and wait for its last records."""
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
                "an EventStream can't be awaited: write `async for event in stream`, or "
                "`result = await agent.run(prompt)`"
            )

        def __iter__(self) -> object:
            raise TypeError(
                "write `async for event in stream` in an `async def` function; if you don't need "
                "events, use agent.run_sync(prompt)"
            )

        def __enter__(self) -> object:
            raise TypeError("write `async with agent.query_stream(prompt) as stream`")

        def __exit__(self, *exc_info: object) -> None: ...

    def __del__(self) -> None:
        if self._task and not self._task.get_loop().is_closed():
            self._task.cancel()
