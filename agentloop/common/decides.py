"""Decisions from outside about calls that await approval: an agent's, or those of its sub-agents.

Copy with: the core, common/nested.py, common/records.py, common/review.py, common/subagents.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

from ..errors import ToolError
from ..loop import Loop
from ..run import can_continue
from ..transcript import CallState

if TYPE_CHECKING:
    from .review import Decision

DECIDED = "A call that awaited approval was decided."


class Decides(Loop):
    """An agent whose calls, or whose sub-agents' calls, may await approval: see `Approval`."""

    def decide(
        self,
        call_id: str,
        verdict: Literal["allow", "deny", "respond"],
        note: str = "",
        *,
        arguments: Mapping[str, Any] | None = None,
        by: str = "user",
    ) -> None:
        """Decide on a call in `pending` or `deferred`; `run()` then continues.

            agent.decide(call_id, "allow")
            agent.decide(call_id, "allow", arguments={"amount": 50})     # instead of the model's
            agent.decide(call_id, "deny", "Not today.")
            agent.decide(call_id, "respond", "Use the other account.")   # instead of the tool

        note: the reason, for the log; the model reads the reason of "deny". For "respond", the
            call's result.
        arguments: all arguments of the allowed call. They are checked like the model's, also by
            "deny" rules, and the model reads that a reviewer changed them.
        by: who decided, for the log.

        Raises ValueError if the call doesn't await approval or the arguments are invalid, and
        AgentBusy during a run.
        """
        from .review import Ask, decision_of  # loaded on first use
        from .subagents import find_tool_of

        self.refuse_if_busy()
        state = self.state_to_decide(call_id)
        if state.newest(Ask) is None:
            raise ValueError(
                f"call {call_id!r} does not require approval: use agent.answer() or run()"
            )
        decision = decision_of(state.call, verdict, note, arguments, by)
        if decision.arguments and (tool := find_tool_of(self, state.call)):
            try:
                tool.validate(decision.arguments)
            except ToolError as error:
                raise ValueError(f"invalid arguments for call {call_id!r}: {error}") from None
        self.record_decision(state, decision)
        if not can_continue(self.messages):  # the call was deferred, and the model has answered
            self.add_note(DECIDED)

    def record_decision(self, state: CallState, decision: Decision) -> None:
        """Record a decision, and the result of a call that a reviewer has answered."""
        self.record(state.call.record_of(decision))
        if decision.is_response and state.result is None:
            self.add(state.call.record_of(state.call.answer(decision.reason)))

    def state_to_decide(self, call_id: str) -> CallState:
        """Return the state of a call that may be decided. Raises ValueError for another call."""
        return self.waiting_call(call_id)
