"""The records of nested calls, which a tool makes with `agent.call`: see mixins/nested_calls.py.

Copy with: transcript.py and its imports.
"""

from __future__ import annotations

from ..messages import TAGS, ToolMessage, frozen, tag_of
from ..transcript import CallEntry, CallState, Conversation, Record, RoutedCall


@frozen
class NestedCall(RoutedCall):
    """A call of a tool by another tool. The model doesn't see the result."""

    def record_of(self, record: ToolMessage | CallEntry) -> Record:
        return InnerResult(self.id, record) if isinstance(record, ToolMessage) else record


del TAGS[tag_of(NestedCall)]  # never a record


@frozen
class InnerCall(CallEntry):
    """A tool called another tool of its agent, during the call `parent_id`: see `NestedCalls`."""

    parent_id: str
    name: str
    arguments: str

    @property
    def call(self) -> NestedCall:
        return NestedCall(self.call_id, self.name, self.arguments, self.parent_id)

    def apply(self, conversation: Conversation) -> None:
        parent = conversation.states.get(self.parent_id)
        if parent and self.call_id not in conversation.states:
            conversation.states[self.call_id] = state = CallState(self.call, entries=[self])
            parent.inner += (state,)


@frozen
class InnerResult(CallEntry):
    """The result of an InnerCall. The tool that made the call gets it, and the model never does."""

    result: ToolMessage

    def apply_to(self, state: CallState) -> None:
        state.end(self.result)
