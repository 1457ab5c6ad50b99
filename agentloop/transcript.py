"""Folds and plain functions over a log: what the model sees of it, and which calls are open.

Copy with: messages.py.

The log is append-only. It may hold calls without a result: a run was cut off, or a call waits for
approval. The view is computed from the log and is always a conversation that every provider
accepts.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from secrets import token_hex
from typing import Literal, Self, TypeGuard

from .messages import (
    Ask,
    AssistantMessage,
    Decision,
    Fork,
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
    UserMessage,
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
CUT_OFF = "Not run: the reply ended before it was complete. Do it in smaller pieces."

SUMMARY_INTRO = "The conversation so far, summarized:\n\n"


# ---- folds


class Fold:
    """An incremental computation over a log, which processes each record once.

    A turn therefore costs the same at record 2,000 as at record 100. `Log.fold` caches folds.
    """

    def __init__(self, log: Records) -> None:
        self.log = log
        self._taken = 0

    def take(self, at: int, record: Record | Message) -> None:
        """Process the record at an index of the log."""
        raise NotImplementedError

    def catch_up(self) -> Self:
        """Process the new records. After an exception, the fold is not usable."""
        for record in self.log[self._taken :]:
            self.take(self._taken, record)
            self._taken += 1
        return self


class Conversation(Fold):
    """What a log says: the messages that the model sees, the state of each call, the requests.

    states: a CallState for each call, by its id.
    requests: the records that stand for a model request, from the newest Fork on.
    run: the records of the newest run.
    stop_reason: how that has ended; "" if it goes on or was killed, None if there is none.
    """

    stop_reason: str | None = None

    def __init__(self, log: Records) -> None:
        super().__init__(log)
        self.states: dict[str, CallState] = {}
        self.requests: list[RequestRecord] = []
        self.run: list[Record | Message] = []
        self._begin_view()

    @property
    def messages(self) -> list[Message]:
        """Return the messages that the model sees. A call without a result gets one."""
        messages = list(self._messages)
        for place in self._open:
            messages[place.index] = place.fill(placeholder_result(place.state))
        return messages

    @property
    def open_calls(self) -> list[CallState]:
        """Return the calls that have no result yet, in the order in which they were asked for."""
        return [state for state in self.states.values() if state.result is None]

    def take(self, at: int, record: Record | Message) -> None:
        self._note(record)
        if isinstance(record, Summary):
            self._begin_view()
            for each in summarized(self.log[:at], record):
                self._show(each)
        else:
            self._show(record)

    def _note(self, record: Record | Message) -> None:
        """Keep what a record says of calls and of requests."""
        if isinstance(record, AssistantMessage):
            for call in record.tool_calls:
                self.states[call.id] = CallState(
                    call, "pending" if is_complete(record) else "cut_off"
                )
        elif isinstance(record, ToolMessage):
            if state := self.states.get(record.tool_call_id):
                state.end(record)
        elif isinstance(record, Ask | Decision | ToolStart):
            if state := self.states.get(record.call_id):
                state.note(record)
        elif isinstance(record, RunStart):
            self.run = []
            self.stop_reason = ""
        elif isinstance(record, RunEnd):
            self.stop_reason = record.stop_reason
        elif isinstance(record, Fork):
            self.requests = []
        if is_request(record):
            self.requests.append(record)
        self.run.append(record)

    def _begin_view(self) -> None:
        self._messages: list[Message] = []
        self._ids: set[str] = set()  # of the calls in view
        self._open: list[_Slot] = []  # where results to come will stand, in order

    def _show(self, record: Record | Message) -> None:
        """Add a record to the view."""
        if isinstance(record, AssistantMessage):
            reply = with_unique_ids(record, self._ids)
            self._ids.update(call.id for call in reply.tool_calls)
            if reply.tool_calls or reply.text.strip() or reply.raw:  # raw: for its provider only
                self._messages.append(reply)
            for call, shown in zip(record.tool_calls, reply.tool_calls, strict=True):
                place = _Slot(len(self._messages), shown.id, self.states[call.id])
                self._open.append(place)
                self._messages.append(
                    placeholder_result(place.state)
                )  # a stand-in, which `messages` replaces
        elif isinstance(record, ToolMessage):
            state = self.states.get(record.tool_call_id)
            for place in self._open:
                if place.state is state:
                    self._messages[place.index] = place.fill(record)
                    self._open.remove(place)
                    break
        elif isinstance(record, Message):
            self._messages.append(record)


@dataclass(slots=True)
class _Slot:
    """Where the view shows the result of a call, and under which id."""

    index: int
    call_id: str
    state: CallState

    def fill(self, result: ToolMessage) -> ToolMessage:
        """Return the result under the id that the view has for its call."""
        if result.tool_call_id == self.call_id:
            return result
        return replace(result, tool_call_id=self.call_id)


# ---- what the model sees


def view(log: Records) -> list[Message]:
    """Return the conversation as the model sees it: the last Summary applied, every call answered.

    Each call is followed by its result, in call order; a call without one gets a text that says
    what is known of it. Results without a call, second results and empty replies are left out.
    Empty or repeated call ids are made unique. The same log always has the same view.
    """
    return Conversation(log).catch_up().messages


def summarized(log: Records, summary: Summary) -> list[Record | Message]:
    """Return the records that are in view after a Summary at the end of a log.

    They are the first task, the summary, the user's own messages from the newest prompt on, and
    the records from `kept_from` on.
    """
    prompt = newest_prompt(log)
    own = [at for at, record in enumerate(log[: summary.kept_from]) if is_own(record)]
    first_task = [log[at] for at in own[:1]]
    told = UserMessage(SUMMARY_INTRO + summary.content, "summary")
    since_prompt = [log[at] for at in own[1:] if at >= prompt]
    return [*first_task, told, *since_prompt, *log[summary.kept_from :]]


def is_own(record: Record | Message) -> TypeGuard[UserMessage]:
    """Return True for the user's own words, False for what is said in the user's place."""
    return isinstance(record, UserMessage) and not record.hidden


def is_complete(reply: AssistantMessage) -> bool:
    """Return whether the model said all that it wanted to say. No call of another reply runs."""
    return reply.stop_reason in (None, "end", "tool_calls")


def newest_prompt(log: Records) -> int:
    """Return the index of the newest prompt, or len(log).

    A message that was sent during a run counts only if there is no prompt.
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
    """Return the reply with call ids that are unique, not empty, and not among `taken`.

    "call_1", "call_1" -> "call_1", "call_1_2". With new=True an empty id gets a random one;
    otherwise a fixed one, so that a log always has the same view.
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


# ---- what became of each call


@dataclass(slots=True)
class CallState:
    """What a log says of one call.

    state: "cut_off" if the reply with the call was incomplete, so that it never ran; "sealed" if
        the run ended before the call did, or if it had started and may not start again. The other
        words say what they mean.
    start: `start.at` is when it started, in Unix time.
    result: None while the call is open. `result.seconds` is how long it took, if known.
    decision: `decision.by` says who decided. If it was denied without one, a rule denied it.
    """

    call: ToolCall
    state: CallStatus = "pending"
    ask: Ask | None = None
    decision: Decision | None = None
    start: ToolStart | None = None
    result: ToolMessage | None = None

    @property
    def asked(self) -> ToolCall:
        """Return the call as the approver saw it; a gate may have changed it."""
        if self.ask and self.ask.arguments:
            return replace(self.call, name=self.ask.name, arguments=self.ask.arguments)
        return self.call

    @property
    def waits(self) -> bool:
        """Return True if the call may still start."""
        return self.state in ("pending", "awaiting_approval")

    def note(self, mark: Ask | Decision | ToolStart) -> None:
        """Take a mark that is about this call."""
        if isinstance(mark, ToolStart):
            self.start = mark
            self.state = "running"
        elif isinstance(mark, Ask):
            self.ask = mark
            self.state = "awaiting_approval"
        else:
            self.decision = mark
            if mark.allowed:
                self.state = "pending"
            else:  # a call that has started before may have had effects
                self.state = "sealed" if self.start else "denied"

    def end(self, result: ToolMessage) -> None:
        """Take the result of this call. A call that has started is never "denied"."""
        self.result = result
        if result.origin == "tool" or (result.origin == "denied" and self.start):
            self.state = "failed" if result.is_error else "completed"
        else:
            self.state = result.origin


def placeholder_result(state: CallState) -> ToolMessage:
    """Return a result for a call that has none: it says what is known of the call."""
    if state.state == "denied":
        return denied(state, state.decision.reason if state.decision else "")
    if state.state == "cut_off":
        return state.call.answer(CUT_OFF, is_error=True, origin="cut_off")
    text = OUTCOME_UNKNOWN if state.start else NEVER_STARTED
    return state.call.answer(text, is_error=True, origin="sealed")


def denied(state: CallState, reason: str) -> ToolMessage:
    """Return the result of a call that was not allowed, or not allowed to start once more."""
    if state.start:
        text = f"{OUTCOME_UNKNOWN} It may not run again. {reason}".strip()
        return state.call.answer(text, is_error=True, origin="sealed")
    return state.call.answer(f"{DENIED} {reason}".strip(), is_error=True, origin="denied")


# ---- requests and their tokens


def is_request(record: object) -> TypeGuard[RequestRecord]:
    """Return True for a record that stands for a model request. Some summaries no model wrote."""
    if isinstance(record, Summary):
        return bool(record.model or record.usage)
    return isinstance(record, AssistantMessage | SideRequest)


def usage_of(records: Iterable[object]) -> Usage:
    """Return the tokens of the requests among some records, added up."""
    requests = filter(is_request, records)
    return sum((each.usage for each in requests if each.usage), Usage())
