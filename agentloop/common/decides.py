"""Decisions from outside about calls that await approval: of an agent, or of its sub-agents.

Copy with: the core, common/review.py.
"""

from __future__ import annotations

from typing import Literal

from ..loop import Loop
from ..run import can_continue
from ..transcript import CallState

DECIDED = "A call that awaited approval was decided."


class Decides(Loop):
    """An agent whose calls, or whose sub-agents' calls, may await approval: see `Approval`."""

    def decide(
        self, call_id: str, verdict: Literal["allow", "deny"], note: str = "", *, by: str = "user"
    ) -> None:
        """Decide on a call in `pending` or `deferred`; `run()` then continues.

        note: the reason, recorded in the log; for "deny" the model reads it, too.
        by: who decided, for the log.

        Raises ValueError if the call doesn't await approval, and AgentBusy during a run.
        """
        from .review import Ask, Decision  # loaded on first use

        self.refuse_if_busy()
        state = self.state_to_decide(call_id)
        if state.newest(Ask) is None:
            raise ValueError(
                f"call {call_id!r} does not require approval: use agent.answer() or run()"
            )
        if verdict not in ("allow", "deny"):
            raise ValueError(
                f"invalid verdict {verdict!r} for call {call_id!r}: use 'allow' or 'deny'"
            )
        decision = Decision(call_id, verdict == "allow", note, by)
        self.record(state.call.record_of(decision))
        if not can_continue(self.messages):  # the call was deferred, and the model has answered
            self.add_note(DECIDED)

    def state_to_decide(self, call_id: str) -> CallState:
        """Return the state of a call that may be decided. Raises ValueError for another call."""
        return self.waiting_call(call_id)
