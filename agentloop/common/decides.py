"""Decisions from outside about calls that await approval: an agent's, or those of its sub-agents.

Copy with: the core, common/nested.py, common/records.py, common/review.py, common/subagents.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from ..loop import Loop
from ..transcript import CallState, can_continue

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
        from .review import decide_call

        self.refuse_if_busy()
        state = self.state_to_decide(call_id)
        decide_call(self, state, verdict, note, arguments, by)
        if not can_continue(self.messages):  # the call was deferred, and the model has answered
            self.add_note(DECIDED)

    def state_to_decide(self, call_id: str) -> CallState:
        """Return the state of a call that may be decided. Raises ValueError for another call."""
        return self.waiting_call(call_id)
