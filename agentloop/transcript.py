"""Folds and functions over a log: the rendered messages (the view), and the states of calls.

Copy with: content.py and its imports.

The log is append-only, and may contain calls without a result, after an interrupted run or while a
call awaits approval. The view is computed from the log, and is valid for all providers.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from secrets import token_hex
from typing import Literal, Self, TypeGuard, cast

from .content import clip
from .messages import (
    Ask,
    AssistantMessage,
    CallEntry,
    Decision,
    Fork,
    InnerCall,
    InnerResult,
    Message,
    Record,
    RequestRecord,
    RunEnd,
    RunStart,
    SideRequest,
    Summary,
    ToolCall,
    ToolMessage,
    ToolStart,
    Usage,
    UserAnswer,
    UserMessage,
    UserQuestion,
    Withheld,
)

Records = Sequence[Record | Message]
CallStatus = Literal[
    "pending", "awaiting_approval", "running", "completed", "failed", "denied", "cut_off", "sealed"
]

NEVER_STARTED = "Not run: the run ended before this call started. It had no effects."
OUTCOME_UNKNOWN = (
    "Interrupted: this call had started and its outcome is unknown. "
    "It may have had effects: check before you repeat it."
)
DENIED = "Denied: this call was not allowed and did not run."
CUT_OFF = "Not run: the reply was truncated. Split the task into smaller calls."

MAX_INNER = 4_000  # maximum characters about the nested calls of a call with an unknown outcome
SUMMARY_INTRO = "Summary of the conversation so far:\n\n"


# ---- folds


class Fold:
    """An incremental computation over a log that processes every record exactly once.

    The cost of a turn is therefore independent of the length of the log. `Log.fold` caches folds.
    """

    def __init__(self, log: Records) -> None:
        self.log = log
        self._taken = 0

    def take(self, at: int, record: Record | Message) -> None:
        """Process the record at an index of the log."""
        raise NotImplementedError

    def catch_up(self) -> Self:
        """Process the new records. After an exception, the fold is unusable."""
        for record in self.log[self._taken :]:
            self.take(self._taken, record)
            self._taken += 1
        return self


class Conversation(Fold):
    """The rendered messages of a log, the states of its calls, and the model requests.

    states: the CallState of all calls, including nested calls, by call id.
    requests: the records of model requests since the newest Fork.
    run: the records of the newest run.
    withheld: `id(message)` of messages refused by a gate, which the view omits.
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
        self._summary_at: int | None = None
        self._begin_view()

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
        self._note(record)
        if isinstance(record, Summary):
            self._summary_at = at
        if isinstance(record, Withheld):
            self.withheld.update(map(id, self.log[record.index : record.index + 1]))
        if isinstance(record, Summary | Withheld):
            self._begin_view()
            for kept in in_view(self.log[: at + 1], self._summary_at):
                self._show(kept)
        else:
            self._show(record)

    def _note(self, record: Record | Message) -> None:
        """Update the states of calls, the run and the requests from a record."""
        self._note_call(record)
        if isinstance(record, RunStart):
            self.run = []
            self.stop_reason = ""
        elif isinstance(record, RunEnd):
            self.stop_reason = record.stop_reason
        elif isinstance(record, Fork):
            self.requests = []
        if is_request(record):
            self.requests.append(record)
        self.run.append(record)

    def _note_call(self, record: Record | Message) -> None:
        """Update the states of calls from a record."""
        if isinstance(record, AssistantMessage):
            status: CallStatus = "pending" if is_complete(record) else "cut_off"
            for call in record.tool_calls:
                self.states[call.id] = CallState(call, status)
        elif isinstance(record, ToolMessage):
            call = ToolCall(record.tool_call_id, record.tool_name)  # if a mixin has added it
            self.states.setdefault(call.id, CallState(call)).end(record)
        elif isinstance(record, InnerCall):
            parent = self.states.get(record.parent_id)
            if parent and record.call_id not in self.states:
                self.states[record.call_id] = inner = CallState(record.call)
                parent.inner += (inner,)
        elif isinstance(record, CallEntry) and (state := self.states.get(record.call_id)):
            state.note(record)

    def _begin_view(self) -> None:
        self._messages: list[Message] = []
        self._ids: set[str] = set()  # ids of the calls in the view
        self._open: list[_Slot] = []  # the positions of missing results, in order

    def _show(self, record: Record | Message) -> None:
        """Add a record to the view."""
        if isinstance(record, AssistantMessage):
            self._show_reply(record)
        elif isinstance(record, ToolMessage):
            state = self.states.get(record.tool_call_id)
            for place in self._open:
                if place.state is state:
                    self._messages[place.index] = place.fill(record)
                    self._open.remove(place)
                    break
        elif isinstance(record, Message) and id(record) not in self.withheld:
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


def in_view(log: Records, summary_at: int | None) -> Records:
    """Return the records of a log that the view contains, given the index of the last Summary."""
    if summary_at is None:
        return log
    summary = cast(Summary, log[summary_at])
    return [*summarized(log[:summary_at], summary), *log[summary_at + 1 :]]


def summarized(log: Records, summary: Summary) -> list[Record | Message]:
    """Return the records that the view contains after a Summary at the end of a log.

    The view then contains the first task, the summary, the user's messages since the newest prompt,
    and the records since `kept_from`.
    """
    prompt = newest_prompt_index(log)
    own = [at for at, record in enumerate(log[: summary.kept_from]) if is_own(record)]
    first_task = [log[at] for at in own[:1]]
    message = UserMessage(SUMMARY_INTRO + summary.content, "summary")
    since_prompt = [log[at] for at in own[1:] if at >= prompt]
    return [*first_task, message, *since_prompt, *log[summary.kept_from :]]


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

    state: "cut_off" if the reply with the call was incomplete, so that the call was never executed;
        "sealed" if the run ended before the call, or if the call had started and may not start
        again.
    start: `start.at` is the Unix time of the start.
    result: None while the call is open. `result.seconds` is the duration, if known.
    inner: the calls that this call made by `Loop.call`. Calls without a result are closed together
        with this call.
    question, answer: the newest question of the call's tool to the user, and the user's answer.
    decision: `decision.by` identifies the reviewer. A call denied without a decision was denied by
        a rule.
    """

    call: ToolCall
    state: CallStatus = "pending"
    ask: Ask | None = None
    decision: Decision | None = None
    start: ToolStart | None = None
    result: ToolMessage | None = None
    inner: tuple[CallState, ...] = ()
    question: UserQuestion | None = None
    answer: UserAnswer | None = None

    @property
    def asked(self) -> ToolCall:
        """Return the call as presented for approval; a gate may have changed the arguments."""
        if self.ask and self.ask.arguments:
            return replace(self.call, name=self.ask.name, arguments=self.ask.arguments)
        return self.call

    @property
    def presented(self) -> ToolCall:
        """Return the call as `agent.pending` presents it, with the question of its tool, if any."""
        if self.question:
            return replace(self.call, arguments=self.question.arguments)
        return self.asked

    @property
    def waits(self) -> bool:
        """Return whether the call may still start."""
        return self.state in ("pending", "awaiting_approval")

    @property
    def waiting_inside(self) -> list[CallState]:
        """Return the nested calls, at any depth, that may still start."""
        waiting = list[CallState]()
        for inner in self.inner:
            waiting += [inner] if inner.waits else inner.waiting_inside
        return waiting

    def note(self, mark: CallEntry) -> None:
        """Update the state from a log entry about this call."""
        if isinstance(mark, ToolStart):
            self.start = mark
            self.state = "running"
        elif isinstance(mark, UserQuestion):
            self.question, self.answer = mark, None
            self.state = "pending"
        elif isinstance(mark, UserAnswer):
            self.answer = mark
        elif isinstance(mark, Ask):
            self.ask = mark
            self.state = "awaiting_approval"
        elif isinstance(mark, InnerResult):
            self.end(mark.result)
        elif isinstance(mark, Decision):
            self.decision = mark
            if mark.allowed:
                self.state = "pending"
            else:  # started calls may have had effects
                self.state = "sealed" if self.start else "denied"

    def end(self, result: ToolMessage) -> None:
        """Record the result of this call. A started call is never "denied"."""
        self.result = result
        if result.origin == "tool" or (result.origin == "denied" and self.start):
            self.state = "failed" if result.is_error else "completed"
        else:
            self.state = result.origin
        for inner in self.inner:
            if inner.result is None:
                inner.end(placeholder_result(inner))


def placeholder_result(state: CallState) -> ToolMessage:
    """Return a placeholder result that describes the state of a call without a result."""
    if state.state == "denied":
        return denied(state, state.decision.reason if state.decision else "")
    if state.state == "cut_off":
        return state.call.answer(CUT_OFF, is_error=True, origin="cut_off")
    text = OUTCOME_UNKNOWN if state.start else NEVER_STARTED
    if state.inner:
        made = "\n".join(map(describe_inner, state.inner))
        text = f"{text} It made these calls:\n{clip(made, MAX_INNER)}"
    return state.call.answer(text, is_error=True, origin="sealed")


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
    if isinstance(record, Summary):
        return bool(record.model or record.usage)
    return isinstance(record, AssistantMessage | SideRequest)


def usage_of(records: Iterable[object]) -> Usage:
    """Return the total usage of the model requests in some records."""
    requests = filter(is_request, records)
    return sum((request.usage for request in requests if request.usage), Usage())
