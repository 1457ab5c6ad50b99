"""All that stands around a run: one at a time, its marks, cancel, interrupt, fork.

Copy with: messages.py, events.py, errors.py, content.py, transcript.py, settings.py, waiting.py.

`Loop.run` is the run itself. However it ends, the log is in order and the next run can follow.
"""

import asyncio
import warnings
from collections.abc import AsyncGenerator, Callable, Hashable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from threading import RLock
from types import MappingProxyType
from typing import Any, Self, TypeVar, cast

from pydantic import NonNegativeFloat

from .content import describe_error
from .errors import AgentBusy
from .events import Event, EventQueue, Listener, events_of
from .messages import (
    AssistantMessage,
    Extra,
    Fork,
    Message,
    Part,
    Record,
    Reset,
    Result,
    RunEnd,
    RunStart,
    Stop,
    SystemMessage,
    ToolCall,
    ToolMessage,
    ToolStart,
    Usage,
    UserMessage,
    UserOrigin,
)
from .settings import Settings, check_settings, settings_of
from .transcript import CallState, Conversation, Fold, placeholder_result, usage_of
from .waiting import logger

AnyFold = TypeVar("AnyFold", bound=Fold)
Prompt = str | Sequence[Part] | None

ANSWERED = ("completed", "done", "max_iterations")  # the ends of a run that has an answer
MAX_NUDGES = 3
folding = RLock()  # tools in threads may ask for messages, too
INTERRUPTED = "The user interrupted you here."


@dataclass(slots=True)
class ActiveRun:
    """The run in progress."""

    task: asyncio.Task[object]
    cancels: int  # how often the task was cancelled before the run began
    events: EventQueue | None  # to the reader of a stream
    system_text: str  # the system prompt when the run began
    halted: bool = False  # no further call starts: an interrupt, an error, a Stop of a tool
    interrupt: str | None = None  # what the model is told, once an interrupt has cancelled the task

    def is_cancelled(self) -> bool:
        """Return whether somebody has cancelled the run."""
        return self.task.cancelling() > self.cancels


class Runs(Settings):
    """Runs one prompt at a time, and keeps the log. `Loop.run` is the run itself.

    `log` is the list of records: read it, and write through `record`. To change what is in it, to
    strike something out say, assign another list: `agent.log = [...]`.

    listeners: functions that get each event as it happens.
    cancel_grace: seconds that a cancelled tool may take to stop.
    """

    __slots__ = ("_active", "_folds")  # beside __dict__: so a fork stays below 1 KB

    renamed_settings = MappingProxyType({"cancel_grace": "cancel_timeout"})

    listeners: Sequence[Listener] = ()
    cancel_timeout: NonNegativeFloat = 5.0

    def __post_init__(self) -> None:
        super().__post_init__()
        self.log: list[Record] = vars(self).get("log", [])  # Session loads it before
        self._active: ActiveRun | None = None  # None between runs
        self._folds: dict[object, Fold] = {}

    def record(self, record: Record) -> None:
        """Append to the log. Synchronous, so that no cancel comes between; emits nothing."""
        self.log.append(record)

    def interrupt(self, note: str | None = None) -> None:
        """End the current run from outside: it returns a Result with stop_reason "interrupted".

        The model is told of it, and the note. Calls that have not started stay open: a prompt
        closes them, `run()` without one runs them. Does nothing if no run is going on, or if it
        ends before it waits again. Thread-safe.
        """
        run = self._active
        if run is None:
            return
        run.halted = True

        def cancel() -> None:
            if self._active is run and run.interrupt is None:
                run.interrupt = f"{INTERRUPTED} {note or ''}".strip()
                run.task.cancel()

        run.task.get_loop().call_soon_threadsafe(cancel)

    def system_text(self) -> str:
        """Return the text of the system prompt, which is a setting of `Loop`."""
        return ""

    # ---- what the log says

    @property
    def running(self) -> bool:
        """Return True while a run goes on."""
        return self._active is not None

    @property
    def messages(self) -> list[Message]:
        """Return the conversation as the model sees it, without the system prompt.

        Every call is answered. Thread-safe.
        """
        with folding:
            return self.conversation.messages

    @property
    def usage(self) -> Usage:
        """Return all tokens so far, those of summaries and other side requests included.

        A fork counts only its own requests.
        """
        return usage_of(self.conversation.requests)

    @property
    def pending(self) -> tuple[ToolCall, ...]:
        """Return the calls that wait for somebody: for a decision, or for an answer.

        Those that wait for an answer are here when the run has ended with "needs_answer". They are
        here after a restart, too. A prompt closes them, and they do not run.
        """
        waiting = ["awaiting_approval"]
        if self.conversation.stop_reason == "needs_answer":
            waiting.append("pending")
        return tuple(each.asked for each in self.conversation.open_calls if each.state in waiting)

    def waiting_call(self, call_id: str) -> CallState:
        """Return what the log says of a call that waits: for a decision, an answer, or `run()`.

        Raises ValueError that says why it does not wait, and AgentBusy while a run goes on.
        """
        self.refuse_if_busy()
        state = self.conversation.states.get(call_id)
        if state is None:
            raise ValueError(f"there is no call {call_id!r}: agent.pending has those that wait")
        if not state.waits:
            raise ValueError(f"the call {call_id!r} does not wait: it is {state.state}")
        return state

    @property
    def conversation(self) -> Conversation:
        """Return what the log says: the messages, the state of each call, the requests."""
        return self.fold(Conversation)

    def fold(self, kind: Callable[..., AnyFold], *settings: Hashable) -> AnyFold:
        """Return what `kind(log, *settings)` computes from the log.

        The fold is kept, so that the next call only takes the records that are new.
        """
        with folding:
            found = self._folds.get((kind, settings))
            if found is None or not found.follows(self.log):
                found = self._folds[kind, settings] = kind(self.log, *settings)
            return cast(AnyFold, found.catch_up())

    # ---- another history

    def load_history(self, messages: Sequence[Message]) -> None:
        """Start from these messages instead of the present log. Calls without a result get one.

        Another program may have run such a call: the model reads that it may have had effects.
        System messages are left out: the system prompt is a setting. OSError: a session's disk is
        full; the log has what could be written.
        """
        self.refuse_if_busy()
        for message in messages:
            if not isinstance(cast(object, message), Message):
                raise TypeError(
                    f"history is messages, such as UserMessage('hi'), not {message!r:.80}"
                )
        self.record(Reset())
        self.log = self.log[-1:]  # another list, so that no fold takes it for the old one
        history = Conversation(messages).catch_up()
        for state in history.open_calls:
            state.note(ToolStart(state.call.id))
        for message in history.messages:
            if not isinstance(message, SystemMessage):
                self.record(message)

    def clear_history(self) -> None:
        """Forget the log; the settings stay."""
        self.load_history([])

    def fork(
        self, at: int | None = None, *, cls: type[Self] | None = None, **settings: Any
    ) -> Self:
        """Return an independent copy with the records before number `at`, or all.

        Settings are copied, except those passed here. Other attributes start fresh. An agent with
        an empty log is a template: fork it once per request. `cls` is the class of the copy, if it
        is to be a subclass of this agent's.
        """
        same = settings_of(self) | settings
        cls = cls or type(self)
        twin = cls(**same)
        vars(twin).update(check_settings(cls, same))  # which __post_init__ may have changed
        twin.log = self.log[:at]
        if twin.log:
            twin.log += [*map(placeholder_result, twin.conversation.open_calls), Fork()]
        return twin

    # ---- telling

    @property
    def listened(self) -> bool:
        """Return True if anybody gets the events."""
        return bool(self.listeners or (self._active and self._active.events))

    def emit(self, event: Event) -> None:
        """Call the listeners with an event, and survive one that raises."""
        for listener in [*self.listeners]:  # one may remove itself
            try:
                listener(event)
            except Exception:
                logger.exception("a listener failed on %s", type(event).__name__)
        if self._active and self._active.events:
            self._active.events.put_nowait(event)

    def add(self, record: Record) -> None:
        """Record, and emit the events of the record."""
        self.record(record)
        for event in events_of(record):
            self.emit(event)

    def add_note(self, text: str, origin: UserOrigin = "note") -> None:
        """Add a hidden user message to the conversation, for the model to read."""
        self.add(UserMessage(text, origin))

    def tell(self, text: str, origin: UserOrigin = "note") -> None:
        """Add a note under the old name of `add_note`, which is deprecated."""
        warnings.warn("agent.tell is now agent.add_note", DeprecationWarning, stacklevel=2)
        self.add_note(text, origin)

    def nudge(self, text: str) -> None:
        """Say something to the model as a hidden user message, so that the run goes on.

        Raises Stop("no_progress") instead if it was nudged `MAX_NUDGES` times, with no result of a
        tool and no other user message since.
        """
        nudges = 0
        newest_text = ""
        for record in reversed(self.log):
            if isinstance(record, AssistantMessage):
                newest_text = newest_text or record.text
            elif isinstance(record, UserMessage) and record.origin == "nudge":
                nudges += 1
            elif isinstance(record, UserMessage | ToolMessage):
                break
        if nudges >= MAX_NUDGES:
            raise Stop("no_progress", newest_text)
        self.add_note(text, "nudge")

    # ---- how a run begins and ends

    @asynccontextmanager
    async def _running(
        self, prompt: Prompt, extra: Extra, events: EventQueue | None
    ) -> AsyncGenerator[None]:
        """Keep other runs out; record how this one begins, and how it ends if it raises."""
        before = self._active
        if before and before.is_cancelled():  # dropped or interrupted, on its way out
            await asyncio.wait([before.task], timeout=2 * self.cancel_timeout)
        self.refuse_if_busy()
        text = self.system_text()
        if not isinstance(cast(object, text), str):
            raise TypeError(f"system_prompt: the function has to return text, not {text!r:.80}")
        task = cast(asyncio.Task[object], asyncio.current_task())
        self._active = ActiveRun(task, task.cancelling(), events, text)
        try:
            self._begin(prompt, extra)
            try:
                yield
            except asyncio.CancelledError:
                self.record(RunEnd("cancelled"))
                raise
            except BaseException as error:
                if not isinstance(self.log[-1], RunEnd):  # else it is the end that was not saved
                    self.record(RunEnd("error", describe_error(error)))
                raise
        finally:
            self._active = None

    def refuse_if_busy(self) -> None:
        """Raise AgentBusy if a run is going on."""
        if self.running:
            raise AgentBusy(
                "this agent is running a query: await it (or close its stream) first, "
                "or give each query a copy of its own with agent.fork()"
            )

    def _begin(self, prompt: Prompt, extra: Extra) -> None:
        """Record RunStart and the prompt. A prompt answers calls that are still open.

        ValueError: there is nothing to work on.
        """
        if prompt is None:
            if not self._can_go_on():
                raise ValueError(
                    "there is nothing to go on with, as the model had the last word: "
                    "give run() a prompt, such as 'Go on.'"
                )
        elif not (prompt.strip() if isinstance(prompt, str) else prompt):
            raise ValueError("the prompt is empty: say what to do")
        self.record(RunStart(extra=extra))
        if prompt is None:
            return
        for state in self.conversation.open_calls:
            self.record(placeholder_result(state))
        message = UserMessage(prompt)
        if self.messages[-1:] != [message]:  # else it is there: asked again after an error
            self.record(message)

    def _can_go_on(self) -> bool:
        """Return whether the model has something to answer: the last word is not its own."""
        if not self.messages:
            return False
        last = self.messages[-1]
        return not isinstance(last, AssistantMessage) or last.stop_reason == "pause"

    def _interrupted(self, error: BaseException) -> Result:
        """Return the Result of a run that `interrupt` ended. Raise the error of any other run.

        The error is the CancelledError of the interrupt, or what a model has made of it.
        """
        run = self._active
        if not run or run.interrupt is None:
            raise error
        run.task.uncancel()  # takes back the cancel of `interrupt`
        if run.is_cancelled():  # by somebody else, too
            raise error
        self.add_note(run.interrupt)
        return Result(stop_reason="interrupted")

    def _end(self, result: Result) -> Result:
        """Record that the run has ended, tell of it, and return the complete Result."""
        self.add(RunEnd(result.stop_reason, text=result.text))
        usage = usage_of(self.conversation.run)
        opened = tuple(state.asked for state in self.conversation.open_calls)
        return replace(result, usage=usage, pending=self.pending or opened)
