"""Approval: a tool's way to ask, the log entries, and what a decision does to a call.

Copy with: the core, common/nested.py, common/records.py, common/subagents.py.

    @tool
    def pay(amount: int, approved: Annotated[bool, Depends(is_approved)]) -> str:
        "Pays an amount."
        if amount > 100 and not approved:
            raise NeedsApproval("over 100")
        ...

The run ends as "needs_approval", and `agent.pending` lists the call. After `agent.decide`, `run()`
runs the tool again, so raise the exception before the tool has had any effect. With the rules,
modes and callbacks of `Approval`, a tool doesn't have to ask.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, Any, Literal, NamedTuple, cast

from pydantic_core import to_json

from ..content import clip
from ..depends import Depends, current_agent, current_call
from ..errors import ToolError
from ..loop import Loop
from ..messages import TAGS, TextPart, ToolCall, ToolMessage, frozen, tag_of
from ..transcript import (
    OUTCOME_UNKNOWN,
    Asks,
    Awaits,
    CallEntry,
    CallState,
    Record,
    RoutedCall,
    ToolStart,
    record_of,
    with_calls_made,
)
from .subagents import find_tool_of

DENIED = "Denied: this call was not allowed and did not run."
EDITED = "A reviewer changed the arguments of this call to {}. The result:"


class NeedsApproval(Asks):
    """Raise this in a tool to ask for approval. The text says why."""

    def __init__(self, reason: str = "") -> None:
        super().__init__("needs_approval", reason)

    def entry(self, call: ToolCall) -> Ask:
        return Ask(call.id, self.text, call.name, call.arguments, by_tool=True)


def is_approved(
    agent: Annotated[Loop, Depends(current_agent)], call: Annotated[ToolCall, Depends(current_call)]
) -> bool:
    """Whether a person has allowed this call: a dependency for tools that ask."""
    decision = agent.conversation.state_of(call).newest(Decision)
    return decision is not None and decision.allowed and not decision.by_rule


class Review(NamedTuple):
    """A reviewer's decision, as `decide` takes it and an `approval_callback` may return it.

    verdict: "allow", "deny", or "respond", which makes `note` the call's result.
    note: the reason, or the result.
    arguments: what an allowed call gets in place of the model's arguments.
    """

    verdict: Literal["allow", "deny", "respond"]
    note: str = ""
    arguments: Mapping[str, Any] | None = None


@frozen
class Ask(Awaits):
    """An approval request for a call, with its reason.

    `name` and `arguments` (JSON text) show the call as it would run. `by_tool` means that the tool
    itself asks, and has had no effect yet.
    """

    reason: str = ""
    name: str = ""
    arguments: str = ""
    by_tool: bool = False

    @property
    def stop_reason(self) -> str:
        return "needs_approval"

    def presented(self, call: ToolCall) -> ToolCall:
        if not self.arguments:
            return call
        return replace(call, name=self.name, arguments=self.arguments)

    def answered(self, content: object) -> None:
        raise ValueError(f"the call {self.call_id!r} needs approval: use agent.decide()")

    def apply_to(self, state: CallState) -> None:
        state.awaits, state.status = self, "awaiting_approval"
        if self.by_tool:
            state.start = None


@frozen
class Decision(CallEntry):
    """The decision on an approval request. `by` says whose it is.

    reason: why; the call's result if `is_response`.
    arguments: JSON text that replaces the arguments of an allowed call; "" keeps them.
    is_response: the reviewer answered in place of the tool, which doesn't run.
    by_rule: nobody decided, but a rule now allows the call.
    """

    allowed: bool
    reason: str = ""
    by: str = ""
    arguments: str = ""
    is_response: bool = False
    by_rule: bool = False

    def apply_to(self, state: CallState) -> None:
        state.awaits = state.decided = None
        if self.arguments:
            state.call = edited(state.call, self.arguments)
        if self.allowed:
            state.status = "pending"
        elif self.is_response:
            state.status, state.decided = "answered", state.call.answer(self.reason)
        else:
            state.status = "sealed" if state.start else "denied"
            state.decided = denied(state, self.reason)


def denied(state: CallState, reason: str) -> ToolMessage:
    """Return the result of a call that was denied, or whose second start was denied."""
    if state.start:
        text = with_calls_made(state, f"{OUTCOME_UNKNOWN} It may not run again. {reason}".strip())
        return state.call.answer(text, is_error=True, origin="sealed")
    return state.call.answer(f"{DENIED} {reason}".strip(), is_error=True, origin="denied")


def decision_of(
    call: ToolCall,
    verdict: str,
    note: str = "",
    arguments: Mapping[str, Any] | None = None,
    by: str = "user",
    *,
    limit: int,
) -> Decision:
    """The entry of a decision. Its note is shortened to `limit` characters, as results are.

    Raises ValueError for an unknown verdict, and for arguments that are misplaced or text.
    """
    if verdict not in ("allow", "deny", "respond"):
        raise ValueError(
            f"the verdict on {call.id!r} must be 'allow', 'deny' or 'respond', not {verdict!r}"
        )
    if arguments is not None and verdict != "allow":
        raise ValueError(f"only an allowed call takes arguments: use 'allow', not {verdict!r}")
    if isinstance(cast(object, arguments), str):
        raise ValueError(f"the arguments for {call.id!r} must be a dict: use json.loads() first")
    text = "" if arguments is None else to_json(arguments).decode()
    return Decision(call.id, verdict == "allow", clip(note, limit), by, text, verdict == "respond")


def check_decision(
    agent: Loop,
    state: CallState,
    verdict: str,
    note: str,
    arguments: Mapping[str, Any] | None,
    by: str,
) -> Record:
    """The entry for a decision on a call of an agent, or of its sub-agents: see `Decides.decide`.

    Raises ValueError if nobody asked about the call, or if the decision isn't valid.
    """
    call_id = state.call.id
    about = [entry for entry in state.entries if isinstance(entry, Ask | ToolStart)]
    if not about or isinstance(about[-1], ToolStart):
        raise ValueError(f"the call {call_id!r} needs no approval: use agent.answer() or run()")
    decision = decision_of(state.call, verdict, note, arguments, by, limit=agent.max_result_chars)
    if decision.arguments and (tool := find_tool_of(agent, state.call)):
        try:
            tool.validate(decision.arguments)
        except ToolError as error:
            raise ValueError(f"the arguments for {call_id!r} are invalid: {error}") from None
    return record_of(state.call, decision)


@frozen
class EditedCall(RoutedCall):
    """A call whose arguments a reviewer changed. Its result tells the model so."""

    def record_of(self, record: ToolMessage | CallEntry) -> Record:
        if not isinstance(record, ToolMessage):
            return record
        note = EDITED.format(self.arguments)
        if isinstance(record.content, str):
            return replace(record, content=f"{note}\n{record.content}", is_json=False)
        return replace(record, content=(TextPart(note), *record.content))


del TAGS[tag_of(EditedCall)]  # never a record


def edited(call: ToolCall, arguments: str) -> ToolCall:
    """The call with a reviewer's arguments."""
    if type(call) is ToolCall:
        return EditedCall(call.id, call.name, arguments, call.parent_id)
    return replace(call, arguments=arguments)  # its result goes to the tool that made the call


def asked(state: CallState) -> ToolCall:
    """The call as a reviewer saw it, with what gates had changed, or as the reviewer changed it."""
    for entry in reversed(state.entries):
        if isinstance(entry, Ask):
            return entry.presented(state.call)
        if isinstance(entry, Decision) and entry.arguments:
            break
    return state.call


def awaits_start(state: CallState) -> bool:
    """Whether a gate has asked about a call, so that the call hasn't started."""
    return isinstance(state.awaits, Ask) and not state.awaits.by_tool
