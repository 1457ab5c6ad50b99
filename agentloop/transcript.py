"""The log of an agent, and what follows from it: the messages sent to the model, and its calls.

Copy with: content.py and its imports.

A log is a list of records that only grows: messages, and log entries (`Mark`) that say what
happened besides. A run may end at any record, so a log may hold calls that have no result. The
messages computed from it (the view) are valid for every provider all the same.

An entry says itself what it changes: `Mark.apply` for the conversation, `CallEntry.apply_to` for a
call. This file defines the entries that the loop records. Any other feature, including yours,
defines its entries in its own file.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from secrets import token_hex
from threading import RLock
from typing import Any, Literal, Self, TypeGuard, TypeVar, cast, overload

from .content import clip, describe_error
from .errors import attempts_of
from .messages import (
    TAGS,
    AssistantMessage,
    Clean,
    Message,
    Prompt,
    Result,
    Stop,
    SystemMessage,
    TaskComplete,
    ToolCall,
    ToolMessage,
    Unknown,
    Usage,
    UserMessage,
    frozen,
    tag_of,
)
from .waiting import logger, was_cancelled

NEVER_STARTED = "Not run: the run ended before this call started. It had no effects."
OUTCOME_UNKNOWN = (
    "Interrupted: this call had started and its outcome is unknown. "
    "It may have had effects: check before you repeat it."
)
CUT_OFF = "Not run: the reply was truncated. Split the task into smaller calls."

MAX_INNER = 4_000  # characters about the nested calls of a call with an unknown outcome

STOP_REASONS = {  # of runs, by those of replies; any other reason becomes "unknown:..."
    "end": "completed",
    "tool_calls": "completed",
    "refused": "refused",
    "context_overflow": "context_overflow",
    "length": "limit:length",
    "pause": "no_progress",
}


# ---- log entries, which are not sent to the model


@frozen
class Mark(Clean):
    """A log entry: something that happened. `at` is Unix time in seconds.

    An entry says itself what it changes: see `apply`. An application may define entries, too.

    The class name is the "type" of the entry in session files, so a class of the same name in
    another module raises TypeError.
    """

    _: KW_ONLY
    at: float = field(default_factory=time.time)

    def apply(self, conversation: Conversation) -> None:
        """Change the conversation: the calls, the view or the run. By default, nothing changes."""


@frozen
class RunStart(Mark):
    """A run started. `extra` is what you passed to `run` as `extra`.

    session, system_prompt, tools: in a session, its name, the prompt, and the tools as [name,
        description, parameters].
    workflow_run: the id of a run in a durable workflow. If that run starts again, it replaces this
        attempt.
    """

    system_prompt: str = ""
    tools: Sequence[object] = field(default=(), hash=False, repr=False)
    workflow_run: str = ""
    session: str = ""

    def apply(self, conversation: Conversation) -> None:
        conversation.run = []
        conversation.stop_reason = ""


@frozen
class RunEnd(Mark):
    """A run ended. `stop_reason` is that of its Result, "cancelled", or "error".

    error: the type of the exception, and the first line of its text.
    text: the answer.
    """

    stop_reason: str
    error: str = ""
    text: str = field(default="", compare=False, repr=False)

    def apply(self, conversation: Conversation) -> None:
        conversation.stop_reason = self.stop_reason


@frozen
class Reset(Mark):
    """A new history starts here. The records before it don't count any more."""


@frozen
class Fork(Mark):
    """A fork starts here. Another agent has paid for the requests before it."""

    def apply(self, conversation: Conversation) -> None:
        conversation.requests = []


@frozen
class CallEntry(Mark):
    """A log entry about one call."""

    call_id: str

    def apply(self, conversation: Conversation) -> None:
        if state := conversation.states.get(self.call_id):
            state.entries.append(self)
            self.apply_to(state)

    def apply_to(self, state: CallState) -> None:
        """Change the state of the call. By default, nothing changes."""


@frozen
class ToolStart(CallEntry):
    """The function of a call is about to run: from here on, it may have effects."""

    def apply_to(self, state: CallState) -> None:
        state.start, state.status, state.awaits = self, "running", None
        state.defers = False


@frozen
class Awaits(CallEntry):
    """The call waits for its result from outside, as calls of `external` tools do.

    Subclasses wait for something else, such as a decision. The run ends as `stop_reason`, and
    `agent.pending` lists the call as `presented`.
    """

    @property
    def stop_reason(self) -> str:
        return "needs_answer"

    def presented(self, call: ToolCall) -> ToolCall:
        """The call as `agent.pending` shows it."""
        return call

    def answered(self, content: object) -> CallEntry | None:
        """The entry for an answer, or None if the answer is the call's result."""
        return None

    def apply_to(self, state: CallState) -> None:
        state.awaits, state.status = self, "awaiting_answer"


class Asks(Stop):
    """A tool raises this to wait for something from outside. `entry` is what the log then holds."""

    def entry(self, call: ToolCall) -> CallEntry:
        """The log entry about the call whose tool raised this."""
        raise NotImplementedError


@frozen
class RequestEntry(Mark):
    """A model request that left no message in this log. It's recorded for its usage."""

    _: KW_ONLY
    usage: Usage | None = None
    model: str | None = None

    @property
    def is_request(self) -> bool:
        """Whether a model was asked at all."""
        return True


@frozen
class SideRequest(RequestEntry):
    """A failed request or attempt, or a request of a sub-agent.

    purpose: that of the Request that failed, or "failed attempt" if a request was tried again.
    tool_calls: how many calls a sub-agent's reply had.
    text: what arrived of the reply before the attempt failed.
    """

    purpose: str = ""
    tool_calls: int = 0
    text: str = field(default="", compare=False, repr=False)


for base in (Mark, CallEntry, RequestEntry):  # never written themselves
    del TAGS[tag_of(base)]

Record = Message | Mark | Unknown
Records = Sequence[Record | Message]
RequestRecord = AssistantMessage | RequestEntry  # what a model request leaves in the log
Entry = TypeVar("Entry", bound=CallEntry)


# ---- the log, and folds over it


class Fold:
    """Something computed from a log. It sees every record once, so a late turn costs no more.

    Write `take`, and read the fold with `agent.fold(MyFold)`.
    """

    def __init__(self, log: Records) -> None:
        self.log = log
        self.taken = 0  # how many records `take` has seen

    def take(self, at: int, record: Record | Message) -> None:
        """Look at the record at an index of the log."""
        raise NotImplementedError

    def catch_up(self) -> Self:
        """Take the new records. If that raises, don't use the fold any more."""
        for record in self.log[self.taken :]:
            self.take(self.taken, record)
            self.taken += 1
        return self


AnyFold = TypeVar("AnyFold", bound=Fold)


class Log(Sequence[Record]):
    """The records of an agent, in a sequence that only grows. Thread-safe.

    lock: held while a record is appended, or a fold catches up.
    """

    __slots__ = ("_folds", "_records", "lock")

    def __init__(self, records: Iterable[Record] = ()) -> None:
        self.lock = RLock()
        self._records = [*records]
        self._folds: dict[object, Fold] = {}

    def append(self, record: Record) -> None:
        """Append a record. In a program, call `agent.record`.

        A Reset drops the history before it, and a workflow that starts a run again drops its
        earlier attempt: see `still_valid`. Raises TypeError for anything but a record.
        """
        if not isinstance(cast(object, record), Record):
            raise TypeError(f"pass a record, such as SystemMessage('...'), not {record!r:.80}")
        with self.lock:
            kept = still_valid(self._records, record)
            if kept < len(self._records):
                self._records, self._folds = self._records[:kept], {}
            self._records.append(record)

    def fold(self, kind: Callable[..., AnyFold], *settings: Hashable) -> AnyFold:
        """The fold `kind(records, *settings)`, which has seen all records.

        Folds are kept, so each call only looks at new records. If `take` raises, the next call
        starts again with the first record. Raises TypeError unless `kind` is a class, because a
        lambda would be kept forever.
        """
        if not isinstance(kind, type):
            raise TypeError(f"fold() takes a subclass of Fold, then its settings; not {kind!r:.80}")
        with self.lock:
            fold = self._folds.pop((kind, settings), None)
            if fold is None:
                fold = kind(self._records, *settings)
            fold.catch_up()
            self._folds[kind, settings] = fold
        return cast(AnyFold, fold)

    @overload
    def __getitem__(self, index: int) -> Record: ...
    @overload
    def __getitem__(self, index: slice) -> list[Record]: ...
    def __getitem__(self, index: Any) -> Any:
        return cast(Any, self._records[index])

    def __len__(self) -> int:
        return len(self._records)

    def __iter__(self) -> Iterator[Record]:
        return iter(self._records)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and self._records == [*cast(Sequence[object], other)]

    def __repr__(self) -> str:
        return f"Log({self._records!r})"


def still_valid(records: Sequence[Record], record: Record) -> int:
    """How many of the records, from the first on, still count after a new one."""
    if isinstance(record, Reset):
        return 0
    if isinstance(record, RunStart) and record.workflow_run:
        for at, old in enumerate(records):
            if isinstance(old, RunStart) and old.workflow_run == record.workflow_run:
                return at
    return len(records)


class Conversation(Fold):
    """The messages of a log as the model sees them, the states of its calls, and its requests.

    states: the CallState of every call, nested calls included, by call id.
    requests: the records of model requests since the newest Fork.
    run: the records of the newest run.
    withheld: `id(message)` of messages that a gate refused, which the view leaves out.
    instead: results that the view has in place of those in the log, by call id.
    shown: the messages of the log that are in the view.
    stop_reason: how the newest run ended; "" while a run is in progress or was killed; None before
        the first run.
    """

    stop_reason: str | None = None

    def __init__(self, log: Records) -> None:
        super().__init__(log)
        self.states: dict[str, CallState] = {}
        self.requests: list[RequestRecord] = []
        self.run: list[Record | Message] = []
        self.withheld: set[int] = set()
        self.instead: dict[str, ToolMessage] = {}
        self.show([])

    @property
    def messages(self) -> list[Message]:
        """The messages that the model sees. A call that has no result gets a placeholder."""
        messages = list(self._messages)
        for place in self._open:
            messages[place.index] = place.fill(placeholder_result(place.state))
        return messages

    @property
    def unfinished_calls(self) -> list[CallState]:
        """The model's calls that have no result yet, in their order."""
        states = [*self.states.values()]
        return [state for state in states if state.result is None and not state.call.parent_id]

    @property
    def open_calls(self) -> list[CallState]:
        """The unfinished calls, except those that were deferred."""
        return [state for state in self.unfinished_calls if not state.deferred]

    @property
    def waiting(self) -> list[CallState]:
        """The calls that wait for something from outside, in call order, at any depth."""
        return [state for state in self.in_call_order() if state.awaits]

    def in_call_order(self) -> Iterator[CallState]:
        """Yield the model's calls, each followed by its nested calls.

        `states` has the order of the log, which differs if calls that ran at once do so again.
        """
        states = [*self.states.values()]  # another thread may read it during a run
        return with_inner(state for state in states if not state.call.parent_id)

    def state_of(self, call: ToolCall) -> CallState:
        """The state of a call. If a mixin has added it, the log may not hold the call."""
        return self.states.get(call.id) or CallState(call)

    def take(self, at: int, record: Record | Message) -> None:
        if isinstance(record, Mark):
            self._apply(record)
        elif isinstance(record, AssistantMessage):
            status: CallStatus = "pending" if is_complete(record) else "cut_off"
            for call in record.tool_calls:
                self.states[call.id] = CallState(call, status)
        elif isinstance(record, ToolMessage):
            call = ToolCall(record.tool_call_id, record.tool_name)  # if a mixin has added it
            self.states.setdefault(call.id, CallState(call)).end(record)
        elif isinstance(record, Unknown):
            self._hold_call(str(record.data.get("call_id")))
        if is_request(record):
            self.requests.append(record)
        self.run.append(record)
        self._show(record)

    def withhold(self, message: Record | Message) -> None:
        """Take a message out of the view."""
        self.withheld.add(id(message))
        self.show(self.shown)

    def show_instead(self, result: ToolMessage) -> None:
        """Put this result into the view, in place of the one that the call has in the log."""
        self.instead[result.tool_call_id] = result
        if place := self._filled.get(result.tool_call_id):
            self._messages[place.index] = place.fill(result)

    def show(self, records: Records) -> None:
        """Make the view of these records, and no others."""
        self.shown: list[Message] = []
        self._messages: list[Message] = []
        self._ids: set[str] = set()  # ids of the calls in the view
        self._open: list[_Slot] = []  # the positions of missing results, in order
        self._filled: dict[str, _Slot] = {}  # the positions of the other results, by call id
        for record in records:
            self._show(record)

    def _apply(self, entry: Mark) -> None:
        """Apply an entry. If it raises, because the file is damaged for example, it's ignored."""
        try:
            entry.apply(self)
        except Exception:
            logger.exception("a log entry has no effect: %r", entry)

    def _hold_call(self, call_id: str) -> None:
        """Don't let a call start, because an unknown entry about it may be an approval request."""
        state = self.states.get(call_id)
        if state and state.may_start:
            Awaits(call_id).apply_to(state)

    def _show(self, record: Record | Message) -> None:
        """Add a record to the view, if it's a message and not withheld."""
        if not isinstance(record, Message) or id(record) in self.withheld:
            return
        self.shown.append(record)
        if isinstance(record, AssistantMessage):
            self._show_reply(record)
        elif isinstance(record, ToolMessage):
            state = self.states.get(record.tool_call_id)
            for place in self._open:
                if place.state is state:
                    shown = self.instead.get(record.tool_call_id, record)
                    self._messages[place.index] = place.fill(shown)
                    self._open.remove(place)
                    self._filled[record.tool_call_id] = place
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
            place = _Slot(len(self._messages), shown, self.states[call.id])
            self._open.append(place)
            self._messages.append(shown.answer(""))  # a place, which `messages` fills


@dataclass(slots=True)
class _Slot:
    """The position in the view for the result of a call, and the call in the view."""

    index: int
    call: ToolCall
    state: CallState

    def fill(self, result: ToolMessage) -> ToolMessage:
        if (result.tool_call_id, result.tool_name) == (self.call.id, self.call.name):
            return result
        return replace(result, tool_call_id=self.call.id, tool_name=self.call.name)


# ---- messages and replies


def view(log: Records) -> list[Message]:
    """The messages that the model sees. They're valid for every provider, whatever the log holds.

    After the newest Summary, every call has one result, in call order. If a call has none, a
    placeholder says what's known about it. Left out are results of no call, second results and
    empty replies; empty and repeated call ids are replaced. Equal logs have equal views.
    """
    return Conversation(log).catch_up().messages


def is_from_user(record: Record | Message) -> TypeGuard[UserMessage]:
    """Whether the user wrote the message, and not the library or the program."""
    return isinstance(record, UserMessage) and not record.hidden


def is_complete(reply: AssistantMessage) -> bool:
    """Whether a reply is complete. The calls of an incomplete reply don't run."""
    return reply.stop_reason in (None, "end", "tool_calls")


def result_of(reply: AssistantMessage) -> Result:
    """The Result of a run that ends with this reply."""
    reason = reply.stop_reason or "end"
    return Result(reply.text, stop_reason=STOP_REASONS.get(reason, f"unknown:{reason}"))


def done_result(messages: Sequence[Message], done_names: Collection[str]) -> Result | None:
    """The Result of a run that was killed after its last turn; None if no done tool ended it."""
    ended: Result | None = None
    for message in reversed(messages):
        if isinstance(message, AssistantMessage | UserMessage):
            break
        if isinstance(message, SystemMessage) or message.is_error:
            continue
        if message.tool_name in done_names:
            ended = Result(message.text, stop_reason="done")  # the first of several ends a run
    return ended


def check_prompt(prompt: Prompt, conversation: Conversation) -> None:
    """Raise ValueError for an empty prompt, or if there's no prompt and nothing to continue."""
    if prompt is None:
        early = conversation.stop_reason in ("", "error", "cancelled")  # "": it was killed
        if not can_continue(conversation) and not (conversation.messages and early):
            raise ValueError(
                "there's nothing to continue, because no message waits for the model's reply: "
                "give run() a prompt, such as 'Continue.'"
            )
    elif not (prompt.strip() if isinstance(prompt, str) else prompt):
        raise ValueError("the prompt is empty: write the task")


def can_continue(conversation: Conversation) -> bool:
    """Whether the last message waits for a reply, or is one in which the model paused."""
    last = last_but_instructions(conversation.messages)
    if isinstance(last, AssistantMessage):
        return last.stop_reason == "pause"
    if isinstance(last, ToolMessage) and conversation.stop_reason == "done":
        return False
    return last is not None


def last_but_instructions(messages: Sequence[Message]) -> Message | None:
    """The last message, unless it's a SystemMessage: then the last before it."""
    return next((each for each in reversed(messages) if not isinstance(each, SystemMessage)), None)


def newest_prompt_index(log: Records) -> int:
    """The index of the newest prompt, or len(log) if there's none.

    A message that was sent during a run only counts if the log has no prompt.
    """
    prompt = len(log)
    for at in reversed(range(len(log))):
        record = log[at]
        if is_from_user(record):
            prompt = at
            if record.origin == "user":
                break
    return prompt


def with_unique_ids(
    reply: AssistantMessage, taken: Collection[str], *, new: bool = False
) -> AssistantMessage:
    """Give calls new ids if theirs are empty, used twice in the reply, or in `taken`.

    "call_1", "call_1" -> "call_1", "call_1_2". If `new`, an empty id becomes a random one; if not,
    always the same one, so that equal logs have equal views.
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


# ---- calls

CallStatus = Literal[
    "pending",
    "awaiting_approval",
    "awaiting_answer",
    "running",
    "completed",
    "failed",
    "denied",
    "answered",
    "cut_off",
    "sealed",
]


@dataclass(slots=True)
class CallState:
    """What a log says about one call.

    status: "denied" and "answered" once somebody outside has said so, and until the next run
        records the result; "cut_off" if the reply was incomplete, so the call never ran; "sealed"
        if the run ended before the call did, or if it had started and may not start again.
    start: `start.at` is the Unix time of the start.
    result: None while the call is open. `result.seconds` is how long it took, if that's known.
    inner: the calls that this call made: by `agent.call`, or as a sub-agent. Those that have no
        result end with this call.
    continues: whether the call goes on where it was if it starts again.
    awaits: the entry that says what the call waits for, if anything.
    decided: the result that came from outside; the next run records it.
    defers: whether the next result only says that the outcome comes later.
    deferred: whether the model has read that.
    entries: the log entries about the call. `state.newest(Decision)` is the last decision.
    """

    call: ToolCall
    status: CallStatus = "pending"
    start: ToolStart | None = None
    result: ToolMessage | None = None
    inner: tuple[CallState, ...] = ()
    continues: bool = False
    awaits: Awaits | None = None
    decided: ToolMessage | None = None
    defers: bool = False
    deferred: bool = False
    entries: list[CallEntry] = field(default_factory=list[CallEntry])

    @property
    def presented(self) -> ToolCall:
        """The call as `agent.pending` shows it."""
        return self.awaits.presented(self.call) if self.awaits else self.call

    def newest(self, kind: type[Entry]) -> Entry | None:
        """The newest entry of this type about the call, or None."""
        for entry in reversed(self.entries):
            if isinstance(entry, kind):
                return entry
        return None

    @property
    def may_start(self) -> bool:
        """Whether the call may still start."""
        return self.status in ("pending", "awaiting_approval", "awaiting_answer")

    @property
    def waiting_inside(self) -> list[CallState]:
        """The nested calls that may still start, at any depth."""
        waiting = list[CallState]()
        for inner in self.inner:
            if inner.result or inner.decided:
                continue
            may_start = inner.may_start or inner.continues
            waiting += [inner] if may_start else inner.waiting_inside
        return waiting

    def end(self, result: ToolMessage) -> None:
        """Give the call its result, or defer it. If it had started, it's never "denied"."""
        if self.defers and result.origin == "tool":
            self.defers, self.deferred = False, True
            return
        self.result, self.awaits = result, None
        if result.origin == "tool" or (result.origin == "denied" and self.start):
            self.status = "failed" if result.is_error else "completed"
        else:
            self.status = result.origin
        for inner in self.inner:
            if inner.result is None:
                inner.end(placeholder_result(inner))


def with_inner(states: Iterable[CallState]) -> Iterator[CallState]:
    """Yield calls, each followed by its nested calls, at any depth."""
    for state in states:
        yield state
        yield from with_inner(state.inner)


def calls_to_resume(
    states: Iterable[CallState], resumable: Collection[str]
) -> tuple[list[ToolCall], list[CallState]]:
    """Divide calls that have no result into those that may run, and those that may not run again.

    If a call had started, it may have had effects, and runs again only if its tool is in
    `resumable`. If it isn't, its nested calls may run if they wait for something from outside.
    """
    runnable: list[ToolCall] = []
    ended: list[CallState] = []
    for state in states:
        if state.may_start or (state.status == "running" and state.call.name in resumable):
            runnable.append(state.call)
        else:
            ended.append(state)
            inside = state.waiting_inside
            runnable += [each.call for each in inside if each.start or each.newest(Awaits)]
    return runnable, ended


def waiting_state(conversation: Conversation, call_id: str) -> CallState:
    """The state of a call that may still start. Raises ValueError for any other call."""
    state = conversation.states.get(call_id)
    if state is None:
        raise ValueError(f"there's no call {call_id!r}: pass the id of a call in agent.pending")
    if not state.may_start:
        reason = f" ({state.result.text})" if state.status == "sealed" and state.result else ""
        raise ValueError(f"the call {call_id!r} is not pending: it is {state.status}{reason}")
    return state


def placeholder_result(state: CallState) -> ToolMessage:
    """Make a result that tells the model what's known about a call that has none."""
    if state.decided:
        return state.decided
    if state.status == "cut_off":
        return state.call.answer(CUT_OFF, is_error=True, origin="cut_off")
    text = with_calls_made(state, OUTCOME_UNKNOWN if state.start else NEVER_STARTED)
    return state.call.answer(text, is_error=True, origin="sealed")


def with_calls_made(state: CallState, text: str) -> str:
    """Add to a text about a call which calls it made, and their results."""
    if not state.inner:
        return text
    made = "\n".join(map(describe_inner, state.inner))
    return f"{text} It made these calls:\n{clip(made, MAX_INNER)}"


def result_of_failure(state: CallState, error: BaseException) -> ToolMessage | None:
    """The result of a call that ends the run by raising; None if the call stays open."""
    if was_cancelled(error):
        return None
    if not isinstance(error, Stop):
        return state.call.answer(describe_error(error), is_error=True)
    if isinstance(error, TaskComplete) or not (state.may_start or state.waiting_inside):
        return state.call.answer(error.text)
    return None


def describe_inner(state: CallState) -> str:
    result = state.result or placeholder_result(state)
    return f"{state.call.name}({state.call.arguments}): {result.text}"


def forked(records: Sequence[Record]) -> list[Record]:
    """The records of a fork: these, then a placeholder result for each call that has none."""
    if not records:
        return []
    conversation = Conversation(records).catch_up()
    return [*records, *map(placeholder_result, conversation.unfinished_calls), Fork()]


@frozen
class RoutedCall(ToolCall):
    """A call that says itself how the log holds what happens to it.

    Nested calls and calls of sub-agents aren't calls of this log's model. If a reviewer has edited
    a call, its result says so.
    """

    def record_of(self, record: ToolMessage | CallEntry) -> Record:
        """What the log holds for this call's result, or for an entry about it."""
        raise NotImplementedError


del TAGS[tag_of(RoutedCall)]  # never a record


def record_of(call: ToolCall, record: ToolMessage | CallEntry) -> Record:
    """What the log holds for a call's result, or for an entry about the call."""
    return call.record_of(record) if isinstance(call, RoutedCall) else record


# ---- requests and their tokens


def is_request(record: object) -> TypeGuard[RequestRecord]:
    """Whether a record stands for a model request. Not every summary does."""
    if isinstance(record, RequestEntry):
        return record.is_request
    return isinstance(record, AssistantMessage)


def failed_attempts(outcome: AssistantMessage | BaseException) -> list[SideRequest]:
    """The entries for the failed attempts before a reply or an error, which may be billed.

    Raises TypeError for a reply of any other type, which only a model of your own can return.
    """
    if not isinstance(cast(object, outcome), AssistantMessage | BaseException):
        raise TypeError(
            "ainvoke() must return an AssistantMessage, such as AssistantMessage('hello'), "
            f"not {outcome!r:.80}"
        )
    return [
        SideRequest("failed attempt", usage=each.usage, model=each.model, text=each.text)
        for each in attempts_of(outcome)
    ]


def usage_of(records: Iterable[object]) -> Usage:
    """The tokens of all model requests among these records."""
    requests = filter(is_request, records)
    return sum((request.usage for request in requests if request.usage), Usage())
