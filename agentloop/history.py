"""The history of an agent: its log, the messages computed from the log, forks, and events.

Copy with: events.py, log.py, settings.py, waiting.py and their imports.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any, Self, cast

from .events import Event, Listener, events_of
from .log import AnyFold, Log
from .messages import (
    AssistantMessage,
    Fork,
    Message,
    Record,
    Reset,
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

MAX_NUDGES = 3


class History(Settings):
    """An agent's settings, log and events, without runs.

    listeners: functions that are called with all events.
    """

    __slots__ = ("_log",)

    listeners: Sequence[Listener] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        self._log = Log(self, self.load_records())

    def refuse_if_busy(self) -> None:
        """Raise AgentBusy during a run: see `BaseAgent`."""

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
        """Save records before they replace the log. `Session` rewrites its file.

        Raises AgentBusy during a run.
        """
        self.refuse_if_busy()

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
        """Return the calls that await approval, a result or an answer.

        Pending calls survive a restart. A prompt closes them without executing them.
        """
        states = self.conversation.states.values()
        return tuple(state.presented for state in states if state.awaits)

    def waiting_call(self, call_id: str) -> CallState:
        """Return the state of a call that awaits approval, an external result, or `run()`.

        Raises ValueError for any other call, and AgentBusy during a run.
        """
        self.refuse_if_busy()
        state = self.conversation.states.get(call_id)
        if state is None:
            raise ValueError(f"unknown call {call_id!r}: agent.pending lists the pending calls")
        if not state.waits:
            reason = f" ({state.result.text})" if state.state == "sealed" and state.result else ""
            raise ValueError(f"the call {call_id!r} is not pending: it is {state.state}{reason}")
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
            ToolStart(state.call.id).apply(history)
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
        cls = cls or type(self)
        same = settings_of(self) | settings
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

    def emit(self, event: Event) -> None:
        """Call the listeners with an event. A listener's exception is logged."""
        for listener in [*self.listeners]:  # a copy, because listeners may remove themselves
            try:
                listener(event)
            except Exception:
                logger.exception("a listener failed on %s", type(event).__name__)

    def add(self, record: Record) -> None:
        """Append a record, and emit its events."""
        self.record(record)
        for event in events_of(record):
            self.emit(event)

    def add_note(self, text: str, origin: UserOrigin = "note") -> None:
        """Add a hidden user message to the conversation."""
        self.add(UserMessage(text, origin))

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
