"""Approval requests and decisions: the log entries, and what they do to a call.

Copy with: transcript.py and its imports.
"""

from __future__ import annotations

from dataclasses import replace

from ..messages import Awaits, CallEntry, ToolCall, frozen
from ..transcript import CallState


@frozen
class Ask(Awaits):
    """An approval request for a call, with its reason.

    `name` and `arguments` (JSON text) describe the call as it would be executed.
    """

    reason: str = ""
    name: str = ""
    arguments: str = ""

    @property
    def stop_reason(self) -> str:
        return "needs_approval"

    def presented(self, call: ToolCall) -> ToolCall:
        if not self.arguments:
            return call
        return replace(call, name=self.name, arguments=self.arguments)

    def answered(self, content: object) -> None:
        raise ValueError(f"call {self.call_id!r} requires approval: use agent.decide()")

    def apply_to(self, state: CallState) -> None:
        state.awaits, state.state = self, "awaiting_approval"


@frozen
class Decision(CallEntry):
    """The decision on an approval request. `by` identifies the reviewer."""

    allowed: bool
    reason: str = ""
    by: str = ""

    def apply_to(self, state: CallState) -> None:
        state.awaits, state.reason = None, self.reason
        if self.allowed:
            state.state = "pending"
        else:  # started calls may have had effects
            state.state = "sealed" if state.start else "denied"


def asked(state: CallState) -> ToolCall:
    """Return the call as presented for approval; a gate may have changed the arguments."""
    ask = state.newest(Ask)
    return ask.presented(state.call) if ask else state.call
