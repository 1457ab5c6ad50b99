"""Results of which the model sees only a placeholder.

Copy with: transcript.py and its imports.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ..messages import ToolMessage, frozen
from ..transcript import Conversation, Mark


@frozen
class Pruned(Mark):
    """From here on, the model sees placeholders instead of the results of these calls."""

    call_ids: Sequence[str]

    def apply(self, conversation: Conversation) -> None:
        for call_id in self.call_ids:
            state = conversation.states.get(call_id)
            if state and state.result:
                conversation.show_instead(placeholder(state.result))


def placeholder(result: ToolMessage) -> ToolMessage:
    size = f"{len(result.text):,} characters"
    text = f"[Older result of {result.tool_name} removed ({size}). See newer results below.]"
    return replace(result, content=text)
