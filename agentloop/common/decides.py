"""Decisions and answers from outside, for calls of an agent or its sub-agents that wait for one.

Copy with: the core, common/nested.py, common/records.py, common/review.py, common/subagents.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Literal

from ..content import to_result
from ..loop import Loop
from ..messages import ToolMessage, frozen
from ..transcript import CallEntry, CallState, can_continue, record_of, waiting_state

DECIDED = "A call that awaited approval was decided."


@frozen
class Answered(CallEntry):
    """The result that a call got from outside. The next run records it as the call's result."""

    result: ToolMessage

    def apply_to(self, state: CallState) -> None:
        state.awaits, state.status = None, "answered"
        state.decided = replace(self.result, tool_call_id=state.call.id)  # a sub-agent has its own


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

        That run emits events for the call and its result, even if you don't allow the call.

            agent.decide(call_id, "allow")
            agent.decide(call_id, "allow", arguments={"amount": 50})     # instead of the model's
            agent.decide(call_id, "deny", "Not today.")
            agent.decide(call_id, "respond", "Use the other account.")   # instead of the tool

        note: why, for the log. If you deny a call, the model reads it; if you respond, it's the
            call's result.
        arguments: all arguments of a call that you allow, in place of the model's. They're checked
            as the model's are, by "deny" rules too, and the model reads that a reviewer changed
            them.
        by: who decided, for the log.

        Raises ValueError if nobody asked for approval of the call, if it can't start any more, or
        if the arguments are invalid, and AgentBusy during a run.
        """
        from .review import check_decision  # optional

        with self.log.lock:  # another thread may decide at the same time
            state = self.waiting_call(call_id)
            decision = check_decision(self, state, verdict, note, arguments, by)
            # If the call was deferred, the model has answered. The note comes first: after a kill,
            # the decision alone would leave nothing for run() to continue.
            if not can_continue(self.conversation):
                self.add_note(DECIDED)
            self.record(decision)

    def answer(self, call_id: str, content: object) -> None:
        """Give a call its result, or answer its question. Call `run()` to continue.

        `content` may be anything that a tool may return. Raises ValueError if the call can't start
        any more, or waits for `decide()`; TypeError for an object that has no text; and AgentBusy
        during a run.
        """
        with self.log.lock:  # another thread may answer at the same time
            state = self.waiting_call(call_id)
            answer = state.awaits.answered(content) if state.awaits else None
            if answer is None:
                answer = Answered(call_id, to_result(state.call, content, self.max_result_chars))
            self.record(record_of(state.call, answer))

    def waiting_call(self, call_id: str) -> CallState:
        """The state of a call that may still start.

        Raises ValueError for any other call, and AgentBusy during a run.
        """
        self.refuse_if_busy()
        return waiting_state(self.conversation, call_id)
