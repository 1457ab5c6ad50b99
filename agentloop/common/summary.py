"""The record of a summary, and what the model sees after it.

Copy with: transcript.py and its imports.
"""

from __future__ import annotations

from ..messages import Message, SystemMessage, UserMessage, frozen
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

    That's the first task and all system messages, the summary, the user's messages since the newest
    prompt, and what the view already contains of the records since `kept_from`.
    """
    shown = conversation.shown
    prompt = newest_prompt_index(shown)
    kept = {id(each) for each in conversation.log[summary.kept_from : conversation.taken]}
    old = [at for at, each in enumerate(shown) if id(each) not in kept]
    own = [at for at in old if is_from_user(shown[at])]
    start = [shown[at] for at in old if at in own[:1] or isinstance(shown[at], SystemMessage)]
    message = UserMessage(SUMMARY_INTRO + summary.content, "summary")
    since_prompt = [shown[at] for at in own[1:] if at >= prompt]
    return [*start, message, *since_prompt, *(each for each in shown if id(each) in kept)]
