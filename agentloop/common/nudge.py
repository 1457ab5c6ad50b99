"""A hidden message that tells the model to go on.

Copy with: the core.
"""

from ..loop import Loop
from ..messages import AssistantMessage, Stop, ToolMessage, UserMessage

MAX_NUDGES = 3


def nudge(agent: Loop, text: str) -> None:
    """Tell the model to go on, in a message that the user doesn't see.

    Raises Stop("no_progress") after `MAX_NUDGES` nudges in a row, if there was no tool result and
    no other user message between them.
    """
    nudges = 0
    newest_text = ""
    for record in reversed(agent.log):
        if isinstance(record, AssistantMessage):
            newest_text = newest_text or record.text
        elif isinstance(record, UserMessage) and record.origin == "nudge":
            nudges += 1
        elif isinstance(record, UserMessage | ToolMessage):
            break
    if nudges >= MAX_NUDGES:
        raise Stop("no_progress", newest_text)
    agent.add_note(text, "nudge")
