"""Decisions and answers from outside: for an agent's waiting calls, or those of its sub-agents.

Copy with: the core, common/nested.py, common/records.py, common/review.py, common/subagents.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from ..content import to_result
from ..loop import Loop
from ..transcript import CallState, can_continue, record_of, waiting_state

DECIDED = "A call that awaited approval was decided."


class Decides(Loop):
    """An agent whose calls, or whose sub-agents' calls, may wait for a decision or an answer."""

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
        from .review import decide_call  # optional

        self.refuse_if_busy()
        state = self.state_to_decide(call_id)
        decide_call(self, state, verdict, note, arguments, by)
        if not can_continue(self.messages):  # the call was deferred, and the model has answered
            self.add_note(DECIDED)

    def answer(self, call_id: str, content: object) -> None:
        """Give a pending call its result, or answer its question. Call `run()` to continue.

        `content` may be anything that a tool may return. Raises ValueError if the call isn't
        pending, and AgentBusy during a run.
        """
        state = self.waiting_call(call_id)
        answer = state.awaits.answered(content) if state.awaits else None
        result = answer or to_result(state.call, content, self.max_result_chars)
        self.add(record_of(state.call, result))

    def state_to_decide(self, call_id: str) -> CallState:
        """Return the state of a call that may be decided. Raises ValueError for another call."""
        return self.waiting_call(call_id)

    def waiting_call(self, call_id: str) -> CallState:
        """Return the state of a call that may still start.

        Raises ValueError for any other call, and AgentBusy during a run.
        """
        self.refuse_if_busy()
        return waiting_state(self.conversation, call_id)
