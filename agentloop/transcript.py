"""Plain functions over a log: what the model sees of it, and which calls are open.

Copy with: messages.py.

The log is append-only. It may hold calls without a result: a run was cut off, or a call waits for
approval. The view is computed from the log and is always a conversation that every provider
accepts.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from secrets import token_hex
from typing import Any, TypeGuard

from pydantic_core import to_json

from .messages import (
    Ask,
    AssistantMessage,
    Decision,
    Fork,
    Message,
    Record,
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
ModelRequest = AssistantMessage | Summary | SideRequest

WHOLE = (None, "end", "tool_calls")  # no call of a reply with another stop reason runs
NEVER_STARTED = "Not run: the run ended before this call started. It had no effects."
OUTCOME_UNKNOWN = (
    "Interrupted: this call had started and its outcome is unknown. "
    "It may have had effects: check before you repeat it."
)
DENIED = "Denied: this call was not allowed and did not run."

SUMMARY_INTRO = "The conversation so far, summarized:\n\n"


def view(log: Records) -> list[Message]:
    """The conversation as the model sees it: the last Summary applied, every call answered.

    After a Summary that is the first task, the summary, the user's own messages from the newest
    prompt on, and the records from `keep` on.
    """
    summaries = [(at, record) for at, record in enumerate(log) if isinstance(record, Summary)]
    if not summaries:
        return seal(log)
    at, summary = summaries[-1]
    prompt = newest_prompt(log[:at])
    own = [i for i, record in enumerate(log[: summary.keep]) if is_own(record)]
    kept = [log[i] for i in own if i == own[0] or i >= prompt]
    told = UserMessage(SUMMARY_INTRO + summary.content, True, extra={"pinned": True})
    return seal([*kept[:1], told, *kept[1:], *log[summary.keep :]])


def is_own(record: Record | Message) -> TypeGuard[UserMessage]:
    """True for the user's own words, False for what the library says in the user's place."""
    return isinstance(record, UserMessage) and not record.hidden


def newest_prompt(log: Records) -> int:
    """The place of the newest prompt; the log's end if there is none.

    What was sent into a run is no prompt, unless there is nothing else.
    """
    prompt = len(log)
    for at in reversed(range(len(log))):
        if is_own(record := log[at]):
            prompt = at
            if "sent" not in (record.extra or {}):
                break
    return prompt


def seal(records: Records) -> list[Message]:
    """The messages among some records, as a conversation that every provider accepts.

    Each call is followed by its result, in call order; a call without one gets a text that says
    what is known of it. Results without a call, second results and empty replies are left out.
    Empty or repeated call ids are made unique. Idempotent, and the same at any time.
    """
    messages: list[Message | tuple[int, str, str]] = []  # a tuple holds the place of a result
    places: dict[str, list[tuple[int, str, str]]] = {}  # by the call's id as the log has it
    seen: set[str] = set()
    for record in records:
        if isinstance(record, AssistantMessage):
            reply = with_unique_ids(record, seen)
            if reply.tool_calls or reply.text.strip() or reply.raw:  # raw: for its provider only
                messages.append(reply)
            for call in record.tool_calls:
                places[call.id] = []
            for nth, call in enumerate(record.tool_calls):
                place = len(messages), call.id, reply.tool_calls[nth].id
                places[call.id].append(place)
                messages.append(place)
        elif isinstance(record, ToolMessage):
            if found := places.get(record.tool_call_id):
                at, _, new = found.pop(0)
                if new != record.tool_call_id:
                    record = replace(record, tool_call_id=new)
                messages[at] = record
        elif isinstance(record, Message):
            messages.append(record)
    states = call_states(records) if tuple in map(type, messages) else {}
    return [
        replace(sealed(states[each[1]]), tool_call_id=each[2]) if isinstance(each, tuple) else each
        for each in messages
    ]


def with_unique_ids(
    reply: AssistantMessage, seen: set[str], *, new: bool = False
) -> AssistantMessage:
    """The reply with call ids that are not empty and not in `seen`; adds its ids to `seen`.

    "call_1", "call_1" -> "call_1", "call_1_2". An empty id of a new reply becomes "call_" and 12
    hex digits; one in a log becomes the same at any time.
    """
    calls: list[ToolCall] = []
    for call in reply.tool_calls:
        call_id = call.id or (f"call_{token_hex(6)}" if new else "call")
        while call_id in seen:
            call_id += f"_{len(seen) + 1}"
        seen.add(call_id)
        calls.append(call if call_id == call.id else replace(call, id=call_id))
    return reply if tuple(calls) == reply.tool_calls else replace(reply, tool_calls=tuple(calls))


@dataclass(slots=True)
class CallState:
    """What a log says of one call.

    `start.at` is when it started, in Unix time, and `result.seconds` how long it took, if known.

    `state` is "pending", "awaiting_approval", "running", "completed", "failed", "denied", or
    "sealed": it has no result of its own. `decision.extra["by"]` is who decided. A call that was
    denied without a decision was denied by a rule. A call that is open has no `result`.
    """

    call: ToolCall
    state: str = "pending"
    ask: Ask | None = None
    decision: Decision | None = None
    start: ToolStart | None = None
    result: ToolMessage | None = None

    @property
    def asked(self) -> ToolCall:
        """The call as somebody is asked for it: a mixin may have changed its arguments."""
        if not (self.ask and self.ask.extra):
            return self.call
        return replace(self.call, arguments=to_json(self.ask.extra["call"][1]).decode())

    @property
    def waits(self) -> bool:
        """True if the call may still start."""
        return self.state in ("pending", "awaiting_approval")


def call_states(records: Records) -> dict[str, CallState]:
    """What happened to each call, by its id."""
    states = dict[str, CallState]()
    for record in records:
        of = getattr(record, "call_id", None) or getattr(record, "tool_call_id", None)
        state = states.get(of or "")
        if isinstance(record, AssistantMessage):
            word = "pending" if record.stop_reason in WHOLE else "denied"
            states |= {call.id: CallState(call, word) for call in record.tool_calls}
        elif state is None:
            continue
        elif isinstance(record, Ask):
            state.ask, state.state = record, "awaiting_approval"
        elif isinstance(record, Decision):
            state.decision, state.state = record, "pending" if record.allowed else "denied"
        elif isinstance(record, ToolStart):
            state.start, state.state = record, "running"
        elif isinstance(record, ToolMessage):
            state.result, state.state = record, "failed" if record.is_error else "completed"
            if record.text in (NEVER_STARTED, OUTCOME_UNKNOWN):
                state.state = "sealed"
            elif record.is_error and record.text.startswith("Denied"):  # as each gate says
                state.state = "denied"
    return states


def open_states(records: Records) -> list[CallState]:
    """The calls that have no result yet, in the order in which they were asked for."""
    return [state for state in call_states(records).values() if state.result is None]


def sealed(state: CallState) -> ToolMessage:
    """The result of a call that has none: it says what is known of the call."""
    if state.state == "denied":
        return denied(state.call, state.decision.reason if state.decision else "")
    text = OUTCOME_UNKNOWN if state.start else NEVER_STARTED
    return state.call.answer(text, is_error=True)


def denied(call: ToolCall, reason: str) -> ToolMessage:
    """The result of a call that was not allowed."""
    return call.answer(f"{DENIED} {reason}".strip(), is_error=True)


def newest_run(log: Sequence[Record]) -> Sequence[Record]:
    """The records of the newest run."""
    for at in reversed(range(len(log))):
        if isinstance(log[at], RunStart):
            return log[at:]
    return ()


def requests_of(records: Iterable[Any]) -> list[ModelRequest]:
    """The records that stand for a model request, from the newest Fork on."""
    found = list[ModelRequest]()
    for record in records:
        if isinstance(record, Fork):
            found.clear()
        elif isinstance(record, AssistantMessage | SideRequest) or (
            isinstance(record, Summary) and (record.model or record.usage)
        ):  # else no model wrote the summary
            found.append(record)
    return found


def usage_of(records: Iterable[Any]) -> Usage:
    """The tokens that some records report, added up: replies, summaries and side requests."""
    return sum((each.usage for each in requests_of(records) if each.usage), Usage())
