"""The run lifecycle: start, interruption and end of a run, and the base class of agents.

Copy with: content.py, errors.py, events.py, log.py, messages.py, settings.py, transcript.py,
waiting.py.

`Loop.run` contains the run itself. After any kind of end, the log is consistent and another run can
follow.
"""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import Callable, Hashable, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from types import MappingProxyType
from typing import Any, Literal, Self, cast

from pydantic import NonNegativeFloat

from .content import describe_error
from .errors import AgentBusy
from .events import Event, EventQueue, Listener, events_of
from .log import AnyFold, Log
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
from .transcript import CallState, Conversation, placeholder_result, usage_of
from .waiting import logger

Prompt = str | Sequence[Part] | None

ANSWERED = ("completed", "done", "max_iterations")  # stop reasons of runs with an answer
MAX_NUDGES = 3
INTERRUPTED = "The user interrupted you here."


class Run:
    """One run of an agent: `async with Run(agent, prompt) as run: ... return run.end(result)`.

    Entering prevents concurrent runs, and records the RunStart and the prompt. Leaving with an
    exception records a RunEnd.

    state: "running" while calls may start, "stopping" after an error, a Stop or `interrupt`, and
        "interrupted" once `interrupt` has cancelled the task.
    system_text: the system prompt of all requests of the run.
    events: the queue of the stream's reader, if there is a reader.
    """

    task: asyncio.Task[object]

    def __init__(
        self, agent: BaseAgent, prompt: Prompt, extra: Extra, events: EventQueue | None
    ) -> None:
        self.agent = agent
        self.prompt = prompt
        self.extra = extra
        self.events = events
        self.system_text = ""
        self.state: Literal["running", "stopping", "interrupted"] = "running"
        self._note = ""  # sent to the model after an interruption

    async def __aenter__(self) -> Self:
        agent = self.agent
        await agent.wait_for_cancelled_run()
        text = agent.system_text()
        if not isinstance(cast(object, text), str):
            raise TypeError(f"system_prompt: the function must return text, not {text!r:.80}")
        self.system_text = text
        self.task = cast(asyncio.Task[object], asyncio.current_task())
        self._cancels_before = self.task.cancelling()
        agent.active_run = self
        try:
            self._record_start()
        except BaseException:
            agent.active_run = None
            raise
        return self

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        agent = self.agent
        if agent.active_run is not self:  # its event loop was closed, and another run has started
            return
        try:
            if isinstance(error, asyncio.CancelledError):
                agent.record(RunEnd("cancelled"))
            elif error and not isinstance(agent.log[-1], RunEnd):  # otherwise saving RunEnd failed
                agent.record(RunEnd("error", describe_error(error)))
        finally:
            agent.active_run = None

    def is_cancelled(self) -> bool:
        """Return whether the run's task was cancelled during the run."""
        return self.task.cancelling() > self._cancels_before

    def interrupt(self, note: str) -> None:
        """Prevent additional calls, and cancel the task at its next await. Thread-safe."""
        if self.state == "running":
            self.state = "stopping"

        def cancel() -> None:
            if self.agent.active_run is self and self.state != "interrupted":
                self.state = "interrupted"
                self._note = note
                self.task.cancel()

        with suppress(RuntimeError):  # the event loop is closed
            self.task.get_loop().call_soon_threadsafe(cancel)

    def result_if_interrupted(self, error: BaseException) -> Result:
        """Return the Result if `interrupt` ended the run. Otherwise raise the error.

        The error is a CancelledError, or an exception that a model raised in response.
        """
        if self.state != "interrupted":
            raise error
        self.task.uncancel()
        if self.is_cancelled():  # also cancelled externally
            raise error
        self.agent.add_note(self._note)
        return Result(stop_reason="interrupted")

    def end(self, result: Result) -> Result:
        """Record the RunEnd, emit its event, and return the complete Result."""
        agent = self.agent
        agent.add(RunEnd(result.stop_reason, text=result.text))
        usage = usage_of(agent.conversation.run)
        pending = agent.pending
        if not pending:  # without pending approvals and answers: list the calls without a result
            pending = tuple(state.asked for state in agent.conversation.open_calls)
        return replace(result, usage=usage, pending=pending)

    def _record_start(self) -> None:
        """Record the RunStart and the prompt. A prompt closes open calls.

        Raises ValueError for an empty prompt, or without a prompt if no message awaits a reply.
        """
        agent, prompt = self.agent, self.prompt
        if prompt is None:
            if not can_continue(agent.messages):
                raise ValueError(
                    "nothing to continue: no message awaits a reply of the model. "
                    "Give run() a prompt, such as 'Continue.'"
                )
        elif not (prompt.strip() if isinstance(prompt, str) else prompt):
            raise ValueError("the prompt is empty: write the task")
        agent.record(RunStart(extra=self.extra))
        if prompt is None:
            return
        for state in agent.conversation.open_calls:
            agent.record(placeholder_result(state))
        message = UserMessage(prompt)
        if agent.messages[-1:] != [message]:  # already present if run() is repeated after an error
            agent.record(message)


def can_continue(messages: Sequence[Message]) -> bool:
    """Return whether the last message awaits a reply, or is a reply in which the model paused."""
    if not messages:
        return False
    last = messages[-1]
    return not isinstance(last, AssistantMessage) or last.stop_reason == "pause"


class BaseAgent(Settings):
    """The base of agents, without the loop: settings, log, events, and one run at a time.

    listeners: functions that are called with all events.
    cancel_timeout: maximum seconds to wait for a cancelled tool.
    """

    __slots__ = ("_log", "active_run")  # in addition to __dict__, so that a fork stays below 1 KB

    renamed_settings = MappingProxyType({"cancel_grace": "cancel_timeout"})

    listeners: Sequence[Listener] = ()
    cancel_timeout: NonNegativeFloat = 5.0

    def __post_init__(self) -> None:
        super().__post_init__()
        self.active_run: Run | None = None
        self._log = Log(self, self.load_records())

    # ---- the log

    @property
    def log(self) -> Log:
        """Return the records, in order. `agent.log.replace(records)` changes history."""
        return self._log

    @log.setter
    def log(self, records: object) -> None:
        raise AttributeError("agent.log cannot be assigned: use agent.log.replace(records)")

    def load_records(self) -> Iterable[Record]:
        """Return the initial records of a new agent, which `Session` reads from its file."""
        return ()

    def record(self, record: Record) -> None:
        """Append to the log without emitting events. Synchronous, and therefore not cancellable."""
        self.log.append(record)

    def save_history(self, records: Sequence[Record]) -> None:
        """Save records before they replace the log. `Session` rewrites its file."""

    @property
    def conversation(self) -> Conversation:
        """Return the fold with the rendered messages, the states of calls and the requests."""
        return self.fold(Conversation)

    def fold(self, kind: Callable[..., AnyFold], *settings: Hashable) -> AnyFold:
        """Return the fold `kind(log, *settings)`, updated with all records: see `Log.fold`."""
        return self.log.fold(kind, *settings)

    @property
    def messages(self) -> list[Message]:
        """Return the messages sent to the model, without the system prompt. Thread-safe.

        Every call has a result.
        """
        with self.log.lock:
            return self.conversation.messages

    @property
    def usage(self) -> Usage:
        """Return the tokens of all requests, including summaries and other side requests.

        A fork counts only its own requests.
        """
        return usage_of(self.conversation.requests)

    @property
    def pending(self) -> tuple[ToolCall, ...]:
        """Return the calls that await approval or, after "needs_answer", a result or an answer.

        Pending calls survive a restart. A prompt closes them without executing them.
        """
        states = ["awaiting_approval"]
        if self.conversation.stop_reason == "needs_answer":
            states.append("pending")
        calls = [call for call in self.conversation.states.values() if call.state in states]
        return tuple(call.presented for call in calls if not (call.answer or call.result))

    def waiting_call(self, call_id: str) -> CallState:
        """Return the state of a call that awaits approval, an external result, or `run()`.

        Raises ValueError for any other call, and AgentBusy during a run.
        """
        self.refuse_if_busy()
        state = self.conversation.states.get(call_id)
        if state is None:
            raise ValueError(f"unknown call {call_id!r}: agent.pending lists the pending calls")
        if not state.waits:
            raise ValueError(f"the call {call_id!r} is not pending: it is {state.state}")
        return state

    # ---- other histories

    def load_history(self, messages: Sequence[Message]) -> None:
        """Replace the current history with these messages.

        A call without a result receives a placeholder result with an unknown outcome, because
        another program may have executed the call. System messages are omitted: the system prompt
        is a setting. The file of a session preserves the lines of the previous log.
        Raises AgentBusy during a run, TypeError for a value that is not a message, and OSError if
        the session cannot be written, in which case the log contains the written records.
        """
        self.refuse_if_busy()
        for message in messages:
            if not isinstance(cast(object, message), Message):
                raise TypeError(
                    f"history is messages, such as UserMessage('hi'), not {message!r:.80}; "
                    "from_openai() converts dicts of Chat Completions"
                )
        history = Conversation(messages).catch_up()
        for state in history.open_calls:
            state.note(ToolStart(state.call.id))
        self.record(Reset())
        for message in history.messages:
            if not isinstance(message, SystemMessage):
                self.record(message)

    def clear_history(self) -> None:
        """Start a new history. Old lines of a session remain: `log.replace([])` deletes them."""
        self.load_history([])

    def fork(
        self, at: int | None = None, *, cls: type[Self] | None = None, **settings: Any
    ) -> Self:
        """Return an independent copy with the records before index `at`, by default all.

        Settings are copied unless overridden by arguments; other attributes have their initial
        values. An agent with an empty log is a template: fork the agent once per request.

        cls: a subclass of this agent's class for the copy.
        """
        same = settings_of(self) | settings
        cls = cls or type(self)
        twin = cls(**same)
        # restores settings that __post_init__ may have changed
        vars(twin).update(check_settings(cls, same))
        records = self.log[:at]
        if records:
            is_whole = len(records) == len(self.log)  # then its calls are known already
            conversation = self.conversation if is_whole else Conversation(records).catch_up()
            closing = map(placeholder_result, conversation.open_calls)
            twin.log.replace([*records, *closing, Fork()])
        return twin

    # ---- events and messages

    @property
    def listened(self) -> bool:
        """Return whether events have a listener or a reader."""
        return bool(self.listeners or (self.active_run and self.active_run.events))

    def emit(self, event: Event) -> None:
        """Call the listeners with an event. A listener's exception is logged."""
        for listener in [*self.listeners]:  # a copy, because listeners may remove themselves
            try:
                listener(event)
            except Exception:
                logger.exception("a listener failed on %s", type(event).__name__)
        if self.active_run and self.active_run.events:
            self.active_run.events.put_nowait(event)

    def add(self, record: Record) -> None:
        """Append a record, and emit its events."""
        self.record(record)
        for event in events_of(record):
            self.emit(event)

    def add_note(self, text: str, origin: UserOrigin = "note") -> None:
        """Add a hidden user message to the conversation."""
        self.add(UserMessage(text, origin))

    def tell(self, text: str, origin: UserOrigin = "note") -> None:
        """Add a note: the deprecated name of `add_note`."""
        warnings.warn("agent.tell is now agent.add_note", DeprecationWarning, stacklevel=2)
        self.add_note(text, origin)

    def nudge(self, text: str) -> None:
        """Add a hidden user message that instructs the model to continue.

        Raises Stop("no_progress") after `MAX_NUDGES` consecutive nudges without a tool result or
        another user message.
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

    # ---- runs

    @property
    def running(self) -> bool:
        """Return whether a run is in progress. A run ends with its event loop."""
        run = self.active_run
        return run is not None and not run.task.get_loop().is_closed()

    def refuse_if_busy(self) -> None:
        """Raise AgentBusy during a run."""
        if self.running:
            raise AgentBusy(
                "this agent is running a query: await the query (or close its stream) first, or "
                "use a separate copy for every query: agent.fork()"
            )

    async def wait_for_cancelled_run(self) -> None:
        """Wait until a cancelled run has ended. Raises AgentBusy during any other run."""
        run = self.active_run
        if run and self.running and run.is_cancelled():
            await asyncio.wait([run.task], timeout=2 * self.cancel_timeout)
        self.refuse_if_busy()

    def interrupt(self, note: str | None = None) -> None:
        """End the current run, with stop_reason "interrupted" in its Result. Thread-safe.

        The model is informed about the interruption, including the note. Calls that have not
        started remain pending: the next prompt cancels them, and `run()` without a prompt executes
        them. Has no effect between runs, or if the run ends before its next await.
        """
        if run := self.active_run:
            run.interrupt(f"{INTERRUPTED} {note or ''}".strip())

    def system_text(self) -> str:
        """Return the text of the system prompt: empty here, because `Loop` has the setting."""
        return ""
