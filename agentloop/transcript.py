"""Folds and functions over a log: the rendered messages (the view), and the states of calls.

Copy with: content.py and its imports.

The log is append-only, and may contain calls without a result, after an interrupted run or while a
call awaits approval. The view is computed from the log, and is valid for all providers.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from secrets import token_hex
from typing import Literal, Self, TypeGuard, TypeVar

from .content import clip
from .messages import (
    AssistantMessage,
    Awaits,
    CallEntry,
    Mark,
    Message,
    Record,
    RequestEntry,
    RequestRecord,
    ToolCall,
    ToolMessage,
    ToolStart,
    Usage,
    UserMessage,
)

Records = Sequence[Record | Message]
Entry = TypeVar("Entry", bound=CallEntry)
CallStatus = Literal[
    "pending",
    "awaiting_approval",
    "awaiting_answer",
    "deferred",
    "running",
    "completed",
    "failed",
    "denied",
    "cut_off",
    "sealed",
]

NEVER_STARTED = "Not run: the run ended before this call started. It had no effects."
OUTCOME_UNKNOWN = (
    "Interrupted: this call had started and its outcome is unknown. "
    "It may have had effects: check before you repeat it."
)
DENIED = "Denied: this call was not allowed and did not run."
CUT_OFF = "Not run: the reply was truncated. Split the task into smaller calls."

MAX_INNER = 4_000  # maximum characters about the nested calls of a call with an unknown outcome


# ---- folds


class Fold:
    """An incremental computation over a log that processes every record exactly once.

    The cost of a turn is therefore independent of the length of the log. `Log.fold` caches folds.
    """

    def __init__(self, log: Records) -> None:
        self.log = log
        self.taken = 0  # number of processed records

    def take(self, at: int, record: Record | Message) -> None:
        """Process the record at an index of the log."""
        raise NotImplementedError

    def catch_up(self) -> Self:
        """Process the new records. After an exception, the fold is unusable."""
        for record in self.log[self.taken :]:
            self.take(self.taken, record)
            self.taken += 1
        return self


class Conversation(Fold):
    """The rendered messages of a log, the states of its calls, and the model requests.

    A log entry updates the conversation itself: see `Mark.apply`.

    states: the CallState of all calls, including nested calls, by call id.
    requests: the records of model requests since the newest Fork.
    run: the records of the newest run.
    withheld: `id(message)` of messages refused by a gate, which the view omits.
    shown: the messages of the log that the view contains.
    stop_reason: the stop reason of the newest run; "" for a running or killed run, None without a
        run.
    """

    stop_reason: str | None = None

    def __init__(self, log: Records) -> None:
        super().__init__(log)
        self.states: dict[str, CallState] = {}
        self.requests: list[RequestRecord] = []
        self.run: list[Record | Message] = []
        self.withheld: set[int] = set()
        self.show([])

    @property
    def messages(self) -> list[Message]:
        """Return the rendered messages, with placeholder results for calls without a result."""
        messages = list(self._messages)
        for place in self._open:
            messages[place.index] = place.fill(placeholder_result(place.state))
        return messages

    @property
    def open_calls(self) -> list[CallState]:
        """Return the model's calls without a result, in call order."""
        states = self.states.values()
        return [state for state in states if state.result is None and not state.call.parent_id]

    def state_of(self, call: ToolCall) -> CallState:
        """Return the state of a call. The log does not contain calls that a mixin has added."""
        return self.states.get(call.id) or CallState(call)

    def take(self, at: int, record: Record | Message) -> None:
        if isinstance(record, Mark):
            record.apply(self)
        elif isinstance(record, AssistantMessage):
            status: CallStatus = "pending" if is_complete(record) else "cut_off"
            for call in record.tool_calls:
                self.states[call.id] = CallState(call, status)
        elif isinstance(record, ToolMessage):
            call = ToolCall(record.tool_call_id, record.tool_name)  # if a mixin has added it
            self.states.setdefault(call.id, CallState(call)).end(record)
        if is_request(record):
            self.requests.append(record)
        self.run.append(record)
        self._show(record)

    def withhold(self, message: Record | Message) -> None:
        """Remove a message from the view."""
        self.withheld.add(id(message))
        self.show(self.shown)

    def show(self, records: Records) -> None:
        """Render these records instead of the previous records."""
        self.shown: list[Message] = []
        self._messages: list[Message] = []
        self._ids: set[str] = set()  # ids of the calls in the view
        self._open: list[_Slot] = []  # the positions of missing results, in order
        for record in records:
            self._show(record)

    def _show(self, record: Record | Message) -> None:
        """Add a record to the view, if it is a message that is not withheld."""
        if not isinstance(record, Message) or id(record) in self.withheld:
            return
        self.shown.append(record)
        if isinstance(record, AssistantMessage):
            self._show_reply(record)
        elif isinstance(record, ToolMessage):
            state = self.states.get(record.tool_call_id)
            for place in self._open:
                if place.state is state:
                    self._messages[place.index] = place.fill(record)
                    self._open.remove(place)
                    break
        else:
            self._messages.append(record)

    def _show_reply(self, record: AssistantMessage) -> None:
        """Add a reply to the view, and a placeholder result for each of its calls."""
        reply = with_unique_ids(record, self._ids)
        self._ids.update(call.id for call in reply.tool_calls)
        # raw: content for the same provider
        if reply.tool_calls or reply.text.strip() or reply.raw:
            self._messages.append(reply)
        for call, shown in zip(record.tool_calls, reply.tool_calls, strict=True):
            place = _Slot(len(self._messages), shown.id, self.states[call.id])
            self._open.append(place)
            self._messages.append(placeholder_result(place.state))  # `messages` updates it


@dataclass(slots=True)
class _Slot:
    """The position in the view for the result of a call, and the call id in the view."""

    index: int
    call_id: str
    state: CallState

    def fill(self, result: ToolMessage) -> ToolMessage:
        """Return the result with the call id of the view."""
        if result.tool_call_id == self.call_id:
            return result
        return replace(result, tool_call_id=self.call_id)


# ---- the view


def view(log: Records) -> list[Message]:
    """Render the messages for the model: after the last Summary, with a result for every call.

    Results follow their calls, in call order; a placeholder result describes the state of a call
    without a result. Results without a call, duplicate results and empty replies are omitted.
    Unique ids replace empty and repeated call ids. Equal logs have equal views.
    """
    return Conversation(log).catch_up().messages


def is_own(record: Record | Message) -> TypeGuard[UserMessage]:
    """Return whether the user wrote the message."""
    return isinstance(record, UserMessage) and not record.hidden


def is_complete(reply: AssistantMessage) -> bool:
    """Return whether a reply is complete. Calls in an incomplete reply are not executed."""
    return reply.stop_reason in (None, "end", "tool_calls")


def newest_prompt_index(log: Records) -> int:
    """Return the index of the newest prompt, or len(log).

    Messages sent during a run are considered only in a log without a prompt.
    """
    prompt = len(log)
    for at in reversed(range(len(log))):
        record = log[at]
        if is_own(record):
            prompt = at
            if record.origin == "user":
                break
    return prompt


def with_unique_ids(
    reply: AssistantMessage, taken: Collection[str], *, new: bool = False
) -> AssistantMessage:
    """Return the reply with unique, non-empty call ids that differ from `taken`.

    "call_1", "call_1" -> "call_1", "call_1_2". With new=True, a random id replaces an empty id,
    otherwise a deterministic id, so that equal logs have equal views.
    """
    ids = list[str]()
    for call in reply.tool_calls:
        call_id = call.id or (f"call_{token_hex(6)}" if new else "call")
        while call_id in taken or call_id in ids:
            call_id += f"_{len(taken) + len(ids) + 1}"
        ids.append(call_id)
    if ids == [call.id for call in reply.tool_calls]:
        return reply
    calls = [replace(call, id=new_id) for call, new_id in zip(reply.tool_calls, ids, strict=True)]
    return replace(reply, tool_calls=tuple(calls))


# ---- the states of calls


@dataclass(slots=True)
class CallState:
    """The state of one call in a log.

    state: "deferred" from the request for a later decision until the result that says so;
        "cut_off" if the reply with the call was incomplete, so that the call was never executed;
        "sealed" if the run ended before the call, or if the call had started and may not start
        again.
    start: `start.at` is the Unix time of the start.
    result: None while the call is open. `result.seconds` is the duration, if known.
    inner: the calls that this call made: by `agent.call`, or as a sub-agent. Those without a result
        are closed together with this call.
    reason: why the call was denied.
    awaits: the entry that describes what the call awaits from outside, if anything.
    entries: the log entries about the call. `state.newest(Decision)` returns the decision.
    """

    call: ToolCall
    state: CallStatus = "pending"
    start: ToolStart | None = None
    result: ToolMessage | None = None
    inner: tuple[CallState, ...] = ()
    awaits: Awaits | None = None
    reason: str = ""
    entries: list[CallEntry] = field(default_factory=list[CallEntry])

    @property
    def presented(self) -> ToolCall:
        """Return the call as `agent.pending` presents it."""
        return self.awaits.presented(self.call) if self.awaits else self.call

    def newest(self, kind: type[Entry]) -> Entry | None:
        """Return the newest entry of a type about this call."""
        for entry in reversed(self.entries):
            if isinstance(entry, kind):
                return entry
        return None

    @property
    def waits(self) -> bool:
        """Return whether the call may still start."""
        return self.state in ("pending", "awaiting_approval", "awaiting_answer", "deferred")

    @property
    def waiting_inside(self) -> list[CallState]:
        """Return the nested calls, at any depth, that may still start."""
        waiting = list[CallState]()
        for inner in self.inner:
            waiting += [inner] if inner.waits else inner.waiting_inside
        return waiting

    def end(self, result: ToolMessage) -> None:
        """Record the result of this call. A started call is never "denied"."""
        self.result, self.awaits = result, None
        inner_ends = self.state != "deferred"  # the result says that the outcome follows
        if result.origin == "tool" or (result.origin == "denied" and self.start):
            self.state = "failed" if result.is_error else "completed"
        else:
            self.state = result.origin
        for inner in self.inner:
            if inner_ends and inner.result is None:
                inner.end(placeholder_result(inner))


def placeholder_result(state: CallState) -> ToolMessage:
    """Return a placeholder result that describes the state of a call without a result."""
    if state.state == "denied":
        return denied(state, state.reason)
    if state.state == "cut_off":
        return state.call.answer(CUT_OFF, is_error=True, origin="cut_off")
    text = with_calls_made(state, OUTCOME_UNKNOWN if state.start else NEVER_STARTED)
    return state.call.answer(text, is_error=True, origin="sealed")


def with_calls_made(state: CallState, text: str) -> str:
    """Return a text about a call, followed by the calls that it made and their results."""
    if not state.inner:
        return text
    made = "\n".join(map(describe_inner, state.inner))
    return f"{text} It made these calls:\n{clip(made, MAX_INNER)}"


def describe_inner(state: CallState) -> str:
    """Describe a nested call and its result as text."""
    result = state.result or placeholder_result(state)
    return f"{state.call.name}({state.call.arguments}): {result.text}"


def denied(state: CallState, reason: str) -> ToolMessage:
    """Return the result of a call that was denied, or whose second start was denied."""
    if state.start:
        text = f"{OUTCOME_UNKNOWN} It may not run again. {reason}".strip()
        return state.call.answer(text, is_error=True, origin="sealed")
    return state.call.answer(f"{DENIED} {reason}".strip(), is_error=True, origin="denied")


# ---- requests and their tokens


def is_request(record: object) -> TypeGuard[RequestRecord]:
    """Return whether the record documents a model request, unlike some summaries."""
    if isinstance(record, RequestEntry):
        return record.is_request
    return isinstance(record, AssistantMessage)


def usage_of(records: Iterable[object]) -> Usage:
    """Return the total usage of the model requests in some records."""
    requests = filter(is_request, records)
    return sum((request.usage for request in requests if request.usage), Usage())
