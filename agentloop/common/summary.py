"""The record of a summary, and what the model sees after it.

Copy with: transcript.py and its imports.
"""

from __future__ import annotations

from ..messages import Message, UserMessage, frozen
from ..transcript import Conversation, RequestEntry, is_from_user, newest_prompt_index

SUMMARY_INTRO = "Summary of the conversation so far:\n\n"


@frozen
class Summary(RequestEntry):
    """A summary of the conversation. From here on, the model reads it instead of the records
    before `kept_from`.
    """

    content: str
    kept_from: int

    @property
    def is_request(self) -> bool:
        return bool(self.model or self.usage)  # not if old turns were only dropped

    def apply(self, conversation: Conversation) -> None:
        conversation.show(summarized(conversation, self))


def summarized(conversation: Conversation, summary: Summary) -> list[Message]:
    """What the view contains after a Summary.

    That's the first task, the summary, the user's messages since the newest prompt, and what the
    view already contains of the records since `kept_from`.
    """
    shown = conversation.shown
    prompt = newest_prompt_index(shown)
    kept = {id(each) for each in conversation.log[summary.kept_from : conversation.taken]}
    own = [at for at, each in enumerate(shown) if is_from_user(each) and id(each) not in kept]
    first_task = [shown[at] for at in own[:1]]
    message = UserMessage(SUMMARY_INTRO + summary.content, "summary")
    since_prompt = [shown[at] for at in own[1:] if at >= prompt]
    return [*first_task, message, *since_prompt, *(each for each in shown if id(each) in kept)]
