"""Pure functions over a log: what the model sees of it, which calls are open, what is wrong.

Copy with: messages.py.

The log is append-only and may hold calls without a result (a run was cut off, a call waits for
approval). What the model sees is computed from it, and is always a conversation that every
provider accepts.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import fields, replace
from operator import attrgetter
from typing import Any, Literal, TypeAlias
from uuid import uuid4

from .messages import (
    AssistantMessage,
    Decision,
    Message,
    Record,
    RunEnd,
    RunStart,
    Summary,
    SystemMessage,
    ToolCall,
    ToolMessage,
    ToolStart,
    Usage,
    UserMessage,
)

CallState: TypeAlias = Literal["waiting", "started", "denied", "answered"]

NEVER_STARTED = "Not run: the run ended before this call started. It had no effects."
OUTCOME_UNKNOWN = (
    "Interrupted: this call had started and its outcome is unknown. "
    "It may have had effects: check before you repeat it."
)
DENIED = "Denied: this call was not allowed and did not run."
_SEALS = {"waiting": NEVER_STARTED, "started": OUTCOME_UNKNOWN, "denied": DENIED}

SUMMARY_INTRO = "The conversation so far, summarized:\n\n"


def view(log: Sequence[Record | Message]) -> list[Message]:
    """What the model sees of a log: its last Summary applied, marks left out, every call answered.

    After a Summary that is the first task, the summary, the user's own messages since the newest
    prompt, and the records from `keep` on.
    """
    reader = View()
    reader.catch_up(log)
    return reader.messages()


def seal(records: Iterable[Record | Message]) -> list[Message]:
    """The messages among some records, as a conversation that every provider accepts.

    Each call is followed by its result, in call order; a call without one gets a text that says
    what is known of it. Results without a call, second results and empty replies are left out,
    empty or repeated call ids are made unique. Idempotent, and the same at any time.
    """
    conversation = Conversation()
    for record in records:
        conversation.add(record)
    return conversation.messages()


class Conversation:
    """The conversation that some records amount to, which come one by one: see `seal`."""

    def __init__(self) -> None:
        self._messages: list[Message] = []
        self._open: dict[str, deque[tuple[int, ToolCall]]] = {}
        self._states: dict[str, CallState] = {}
        self._seen: set[str] = set()

    def add(self, record: Record | Message) -> None:
        note_state(record, self._states)
        if isinstance(record, ToolMessage):
            if waiting := self._open.get(record.tool_call_id):
                at, call = waiting.popleft()
                if not waiting:
                    del self._open[record.tool_call_id]
                same = call.id == record.tool_call_id
                self._messages[at] = record if same else replace(record, tool_call_id=call.id)
        elif isinstance(record, AssistantMessage):
            if record.tool_calls:
                self._add_calls(record)
            elif record.text.strip():
                self._messages.append(record)
        elif isinstance(record, UserMessage | SystemMessage):
            self._messages.append(record)

    def _add_calls(self, record: AssistantMessage) -> None:
        reply = with_unique_ids(record, self._seen)
        self._messages.append(reply)
        for asked, call in zip(record.tool_calls, reply.tool_calls, strict=True):
            self._open.setdefault(asked.id, deque()).append((len(self._messages), call))
            self._messages.append(reply)  # until there is a result

    def messages(self) -> list[Message]:
        messages = self._messages[:]
        for asked_id, still_open in list(self._open.items()):
            for at, call in still_open:
                messages[at] = _sealed(call, self._states[asked_id])
        return messages


class LogReader:
    """Takes in each record of a growing log once, so that a long log costs no more than a new one.

    What it has taken in can be had again from the log at any time: it is no state of its own.
    """

    def __init__(self) -> None:
        self._read = 0
        self._ends: tuple[Any, Any] | None = None  # of what was read; None while it takes one in

    def follows(self, log: Sequence[Any]) -> bool:
        """Whether this log begins with what was read; not after it was cleared, nor if a record
        was not taken in to its end."""
        if self._ends is None:
            return not self._read
        first, last = self._ends  # first: a new Reset, though what follows it may be known
        return self._read <= len(log) and log[0] is first and log[self._read - 1] is last

    def catch_up(self, log: Sequence[Any]) -> None:
        if (start := self._read) < len(log):
            self._read, self._ends = len(log), None
            for at in range(start, self._read):
                self.take(log, at)
            self._ends = log[0], log[self._read - 1]

    def take(self, log: Sequence[Any], at: int) -> None:
        """Take in `log[at]`, the next record."""
        raise NotImplementedError


class View(LogReader):
    """What the model sees of a log, and the ids of all its calls."""

    def __init__(self) -> None:
        super().__init__()
        self._conversation = Conversation()
        self._task: int | None = None
        self.call_ids: set[str] = set()

    def take(self, log: Sequence[Record | Message], at: int) -> None:
        record = log[at]
        if isinstance(record, AssistantMessage):
            self.call_ids.update([call.id for call in record.tool_calls])
        elif isinstance(record, UserMessage) and not record.hidden and self._task is None:
            self._task = at
        if not isinstance(record, Summary):
            self._conversation.add(record)
            return
        self._conversation = Conversation()
        if self._task is not None and self._task < record.keep:
            self._conversation.add(log[self._task])
        told = SUMMARY_INTRO + record.content
        self._conversation.add(UserMessage(told, hidden=True, extra={"pinned": True}))
        for own in own_messages(log[:at]):
            if own < record.keep and own != self._task:
                self._conversation.add(log[own])
        for each in log[record.keep : at]:
            self._conversation.add(each)

    def messages(self) -> list[Message]:
        return self._conversation.messages()


def with_unique_ids(
    reply: AssistantMessage, seen: set[str], fresh: bool = False
) -> AssistantMessage:
    """The reply with call ids that are not empty and not in `seen`; adds its ids to `seen`.

    Some servers send empty ids, or the same ones in every reply; providers refuse both.
    fresh: an empty id becomes one that no other log has ("call_9f86d081884c"), so that what is
        said of a call is said of no other; else it is the same each time ("call", "call_2").
    """
    calls, changed = list[ToolCall](), False
    for call in reply.tool_calls:
        asked = call.id or (f"call_{uuid4().hex[:12]}" if fresh else "call")
        call_id, n = asked, len(seen)  # so that a flood of equal ids is no long search
        while call_id in seen:
            n += 1
            call_id = f"{asked}_{n}"
        seen.add(call_id)
        if call_id != call.id:
            call, changed = replace(call, id=call_id), True
        calls.append(call)
    return replace(reply, tool_calls=tuple(calls)) if changed else reply


def call_states(records: Iterable[Record | Message]) -> dict[str, CallState]:
    """The state of each call, by id: "waiting", "started", "denied" or "answered"."""
    states: dict[str, CallState] = {}
    for record in records:
        note_state(record, states)
    return states


def note_state(record: Record | Message, states: dict[str, CallState]) -> None:
    """Bring the states of some calls up to date with the next record."""
    if isinstance(record, ToolStart):
        if record.call_id in states:
            states[record.call_id] = "started"
    elif isinstance(record, ToolMessage):
        if record.tool_call_id in states:
            states[record.tool_call_id] = "answered"
    elif isinstance(record, AssistantMessage):
        states |= {call.id: "waiting" for call in record.tool_calls}
    elif isinstance(record, Decision) and states.get(record.call_id) == "waiting":
        states[record.call_id] = "waiting" if record.allowed else "denied"


def closing_results(records: Iterable[Record | Message]) -> list[ToolMessage]:
    """The results that open calls lack: each says what is known of its call."""
    records = list(records)
    states = call_states(records)
    return [_sealed(call, states[call.id]) for call in open_calls(records)]


def _sealed(call: ToolCall, state: CallState) -> ToolMessage:
    return ToolMessage(call.id, call.name, _SEALS.get(state, OUTCOME_UNKNOWN), is_error=True)


def open_calls(records: Iterable[Record | Message]) -> list[ToolCall]:
    """The calls that have no result yet, in the order in which they were asked for."""
    records = list(records)
    states = call_states(records)
    return [
        call
        for record in records
        if isinstance(record, AssistantMessage)
        for call in record.tool_calls
        if states[call.id] != "answered"
    ]


def last_message(log: Sequence[Record]) -> UserMessage | AssistantMessage | ToolMessage | None:
    """The newest message of a log, marks left out; None if there is none."""
    for record in reversed(log):
        if isinstance(record, UserMessage | AssistantMessage | ToolMessage):
            return record
    return None


def own_messages(log: Sequence[Record | Message]) -> list[int]:
    """Where in a log the user's own messages stand that are of the task at hand.

    They are the newest prompt and what was sent since. Where a run goes on that was only sent to,
    the prompt is that of a run before it, unless an answer has come between.
    """
    found: list[int] = []
    for at in range(len(log) - 1, -1, -1):
        record = log[at]
        if isinstance(record, RunEnd) and found and record.stop_reason in ("completed", "done"):
            break
        if isinstance(record, UserMessage) and not record.hidden:
            found.append(at)
            if "sent" not in (record.extra or {}):
                break
    return found[::-1]


def nudges_since_a_call(log: Sequence[Record]) -> tuple[int, str]:
    """How often the model was nudged since it called a tool or was asked, and what it said last."""
    nudges, said = 0, ""
    for record in reversed(log):
        if isinstance(record, AssistantMessage):
            said = said or record.text
        elif isinstance(record, UserMessage) and (record.extra or {}).get("nudge"):
            nudges += 1
        elif isinstance(record, UserMessage | ToolMessage):
            break
    return nudges, said


def cut_off_in_a_row(log: Sequence[Record]) -> int:
    """How many of this run's newest replies are cut off by the length limit and have calls."""
    count = 0
    for record in reversed(log):
        if isinstance(record, AssistantMessage):
            if record.stop_reason != "length" or not record.tool_calls:
                break
            count += 1
        elif isinstance(record, RunStart):
            break
    return count


def validate(messages: Sequence[Message]) -> list[str]:
    """What a provider would refuse in these messages, a line each; [] if nothing."""
    problems: list[str] = []
    seen: set[str] = set()
    waiting: list[str] = []
    for at, message in enumerate(messages):
        where = f"messages[{at}]"
        if isinstance(message, ToolMessage):
            if not waiting or waiting[0] != message.tool_call_id:
                problems.append(
                    f"{where}: a result for {message.tool_call_id!r}, which no call "
                    "before it waits for, or not in this order"
                )
            else:
                waiting.pop(0)
            continue
        if waiting:
            problems.append(f"{where}: calls without a result before it: {', '.join(waiting)}")
            waiting = []
        match message:
            case SystemMessage() if at:
                problems.append(f"{where}: a system message that is not the first message")
            case AssistantMessage():
                if not message.text.strip() and not message.tool_calls:
                    problems.append(f"{where}: an assistant message with neither text nor calls")
                for call in message.tool_calls:
                    if not call.id or call.id in seen:
                        problems.append(f"{where}: call id {call.id!r} is empty or used before")
                    seen.add(call.id)
                    waiting.append(call.id)
            case _:
                pass
    if waiting:
        problems.append(f"at the end: calls without a result: {', '.join(waiting)}")
    if not any(isinstance(message, UserMessage | ToolMessage) for message in messages[-1:]):
        problems.append("the last message is not from the user or a tool")
    return problems


def common_prefix(before: Sequence[Message], after: Sequence[Message]) -> int:
    """With how many of the messages of `before` the messages of `after` begin."""
    if after[: len(before)] == before:  # the common case, at the speed of C
        return len(before)
    pairs = enumerate(zip(before, after, strict=False))
    return next((at for at, (a, b) in pairs if a != b), min(len(before), len(after)))


def usage_of(records: Iterable[Any]) -> Usage:
    """The tokens that some records report, added up: replies, summaries and side requests."""
    found = [record.usage for record in records if getattr(record, "usage", None) is not None]
    totals: dict[str, Any] = {name: sum(map(attrgetter(name), found)) for name in _COUNTS}
    return Usage(**totals)


_COUNTS = [counted.name for counted in fields(Usage) if counted.name != "extra"]
