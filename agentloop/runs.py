"""One run at a time, from a prompt to a Result, and a log that is in order however it ends.

Copy with: messages.py, events.py, errors.py, transcript.py, settings.py, stream.py, waiting.py.

`Loop.work` is what a run does; this is what stands around it: who may start one, what marks it
leaves, how it is cancelled, interrupted, streamed, continued and forked.
"""

from __future__ import annotations

import asyncio
import copy
import logging
import threading
from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, Self, TypeVar, cast

from .errors import AgentBusy
from .events import FinalResponseEvent, HiddenUserMessageEvent, Listener
from .messages import (
    AssistantMessage,
    Message,
    Part,
    Record,
    Reset,
    Result,
    RunEnd,
    RunStart,
    Stop,
    SystemMessage,
    TextPart,
    ToolMessage,
    Usage,
    UserMessage,
    dump_record,
)
from .settings import Settings
from .stream import EventStream
from .transcript import LogReader, View, closing_results, last_message, open_calls, seal, usage_of
from .waiting import run_to_its_end

logger = logging.getLogger("agentloop")

L = TypeVar("L", bound=LogReader)

recording = threading.RLock()  # for mixins whose `record` is called from several threads

INTERRUPTED = "The user interrupted you here."


@dataclass(slots=True)
class Run:
    """A run that goes on."""

    task: asyncio.Task[Any]
    queue: asyncio.Queue[Any] | None  # to the reader of query_stream
    cancels: int  # that the task had before
    interrupt: str | None = None
    halted: bool = False  # no further call starts

    def goes_on(self) -> bool:
        return not (self.task.done() or self.task.get_loop().is_closed())

    def is_cancelled(self) -> bool:
        return self.task.cancelling() > self.cancels


class Runs(Settings, ABC):
    """What can be run on a prompt.

    listeners: functions that get each event as it happens.
    cancel_grace: how many seconds a cancelled tool gets to stop.
    """

    listeners: Sequence[Listener] = ()
    cancel_grace: float = 5.0

    log: list[Record] = field(default_factory=list[Record], init=False)
    _run: Run | None = field(default=None, init=False)  # the one that goes on
    _cache: dict[Any, Any] = field(default_factory=dict[Any, Any], init=False)  # not for forks

    @abstractmethod
    async def work(self) -> Result:
        """The run itself."""

    @abstractmethod
    def record(self, record: Record) -> None:
        """Append to the log."""

    async def run(self, prompt: str | Sequence[Part] | None = None) -> Result:
        """Work on a prompt until there is an answer; without one, go on where the last run ended.

        Raises what the model raises, AgentBusy if a run is going on, and ValueError if there is
        nothing to work on. After an error, `run()` tries again.
        """
        return await self._start(prompt, None)

    async def query(self, prompt: str | Sequence[Part]) -> str:
        """The answer to a prompt, as text."""
        return (await self.run(prompt)).text

    def query_stream(self, prompt: str | Sequence[Part] | None = None) -> EventStream[Result]:
        """The events of a run, as they happen; leaving the iteration cancels the run.

        No tool starts before its ToolCallEvent has been dealt with: leaving there prevents it.
        """
        return EventStream(lambda queue: self._start(prompt, queue), 2 * self.cancel_grace)

    def run_sync(self, prompt: str | Sequence[Part] | None = None) -> Result:
        """`run` for scripts. RuntimeError in a running event loop: `await agent.run(...)` there."""
        if _in_event_loop():
            raise RuntimeError("run_sync() is for scripts; in async code use: await agent.run(...)")
        return run_to_its_end(self.run(prompt), self.cancel_grace)

    def interrupt(self, note: str | None = None) -> None:
        """End the current run from outside: it returns a Result with stop_reason "interrupted".

        The model is told of it, and the note. Does nothing if no run is going on. Thread-safe.
        """
        if (run := self._run) is None or run.interrupt is not None:
            return
        run.interrupt, run.halted = f"{INTERRUPTED} {note or ''}".strip(), True
        run.task.get_loop().call_soon_threadsafe(lambda: self._run is run and run.task.cancel())

    @property
    def messages(self) -> list[Message]:
        """The conversation as the model sees it, without the system prompt: every call answered."""
        with recording:  # which other threads may go on with
            return self.reader(View).messages()

    @property
    def usage(self) -> Usage:
        """All tokens so far, those of summaries and other side requests included."""
        return usage_of(self.log)

    def load_history(self, messages: Sequence[Message]) -> None:
        """Start from these messages instead of the present log. Calls without a result get one.

        System messages are left out: the system prompt is a setting. ValueError: one of them holds
        what cannot be saved, and the log is as it was. With a session, a process that dies in here
        may leave a part of them; the old ones are in its file all the same.
        """
        self._refuse_if_busy()
        for message in messages:
            if type(message) not in (SystemMessage, UserMessage, AssistantMessage, ToolMessage):
                raise TypeError(
                    f"history is messages, such as UserMessage('hi'), not {message!r:.80}"
                )
        history = [m for m in seal(messages) if not isinstance(m, SystemMessage)]
        for message in history:
            dump_record(message)
        with recording:
            log = self.log[:]
            self.log.clear()
            try:
                self.record(Reset())
            except BaseException:  # such as a full disk
                self.log[:] = log
                raise
            for message in history:
                self.record(message)

    def clear_history(self) -> None:
        """Forget the log; the settings stay."""
        self.load_history([])

    def __copy__(self) -> Self:  # as `copy` would without it, in half the time
        twin, state = object.__new__(type(self)), object.__getstate__(self)
        fields, slots = cast(Any, state if isinstance(state, tuple) else (state, {}))
        vars(twin).update(fields)
        for name, value in slots.items():
            setattr(twin, name, value)
        return twin

    def fork(self, at: int | None = None) -> Self:
        """An independent copy with the same settings, and the log up to record `at` (or all of it).

        It has lists, dicts and sets of its own, with the same things in them. Calls that are open
        there get a result in the copy. An agent with an empty log is a template: fork it once per
        request.
        """
        twin = copy.copy(self)
        log = self.log[:at]
        twin.log, twin._run, twin._cache = [], None, {}
        for name, value in vars(twin).items():
            if isinstance(value, list | dict | set):
                setattr(twin, name, copy.copy(cast(Any, value)))
        if log:
            twin.log = [*log, *closing_results(log)]
        return twin

    def reader(self, kind: type[L], *settings: Any) -> L:
        """A reader of this kind, made with these settings, that has read the whole log."""
        with recording:
            reader: L | None = self._cache.get((kind, settings))
            if reader is None or not reader.follows(self.log):
                reader = self._cache[kind, settings] = kind(*settings)
            reader.catch_up(self.log)
            return reader

    @property
    def listened(self) -> bool:
        """Whether anybody gets the events."""
        return bool(self.listeners) or (self._run is not None and self._run.queue is not None)

    def emit(self, event: Any) -> None:
        """Tell the listeners, and survive one that raises."""
        for listener in self.listeners:
            try:
                listener(event)
            except Exception:
                logger.exception("a listener failed on %s", type(event).__name__)
        if self._run is not None and self._run.queue is not None:
            self._run.queue.put_nowait(event)

    def tell(self, text: str, **extra: Any) -> None:
        """Put a hidden user message into the conversation."""
        self.record(UserMessage(text, hidden=True, extra=extra or None))
        self.emit(HiddenUserMessageEvent(text))

    # ---- how a run begins and ends

    async def _start(
        self, prompt: str | Sequence[Part] | None, queue: asyncio.Queue[Any] | None
    ) -> Result:
        if self._run is not None and self._run.is_cancelled():  # a dropped stream, on its way out
            await asyncio.wait([self._run.task], timeout=2 * self.cancel_grace)
        self._refuse_if_busy()
        task = asyncio.current_task()
        assert task is not None
        run = self._run = Run(task, queue, task.cancelling())
        try:
            start = len(self.log)
            self._begin(prompt)
            result = await self._to_its_end(run)
            result = replace(
                result, usage=usage_of(self.log[start:]), pending=tuple(open_calls(self.log))
            )
            self.emit(FinalResponseEvent(result.text, result.stop_reason))
            return result
        finally:
            self._run = None

    def _refuse_if_busy(self) -> None:
        if self._run is not None and self._run.goes_on():
            raise AgentBusy(
                "this agent is running a query: await it (or close its stream) first, "
                "or give each query a copy of its own with agent.fork()"
            )

    def _begin(self, prompt: str | Sequence[Part] | None) -> None:
        if prompt is None:
            unanswered = not isinstance(last_message(self.log), AssistantMessage | None)
            if not unanswered and not open_calls(self.log):
                raise ValueError("there is nothing to go on with: give run() a prompt")
            self.record(RunStart())
            return
        message = UserMessage(prompt)
        only_text = isinstance(prompt, str) or all(isinstance(part, TextPart) for part in prompt)
        if only_text and not message.text.strip():
            raise ValueError("the prompt is empty: say what to do")
        self.record(RunStart())
        for result in closing_results(self.log):
            self.record(result)
        if last_message(self.log) != message:  # asked again after an error: it is there already
            self.record(message)

    async def _to_its_end(self, run: Run) -> Result:
        """Work, and mark in the log how it ended."""
        try:
            result = await self.work()
        except Stop as stop:
            result = Result(stop.text, stop.value, stop.reason)
        except asyncio.CancelledError:
            # If interrupt() alone cancelled the task, it is cancelled no more.
            if run.interrupt is None or run.task.uncancel() > run.cancels:
                self.record(RunEnd("cancelled"))
                raise
            self.tell(run.interrupt)
            result = Result(stop_reason="interrupted")
        except GeneratorExit:  # the event loop is gone, and with it the run
            raise
        except BaseException:
            self.record(RunEnd("error"))
            raise
        self.record(RunEnd(result.stop_reason))
        return result


def _in_event_loop() -> bool:
    with suppress(RuntimeError):
        return bool(asyncio.get_running_loop())
    return False
