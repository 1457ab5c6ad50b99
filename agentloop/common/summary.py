"""The record of a summary, and what the model sees after it.

Copy with: transcript.py and its imports.
"""

from __future__ import annotations

from ..messages import Message, UserMessage, frozen
from ..transcript import (
    Conversation,
    Record,
    Records,
    RequestEntry,
    is_from_user,
    newest_prompt_index,
)

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
        conversation.show(summarized(conversation.log[: conversation.taken], self))


def summarized(log: Records, summary: Summary) -> list[Record | Message]:
    """The records in the view after a Summary, if it comes at the end of this log.

    These are the first task, the summary, the user's messages since the newest prompt, and the
    records from `kept_from` on.
    """
    prompt = newest_prompt_index(log)
    own = [at for at, record in enumerate(log[: summary.kept_from]) if is_from_user(record)]
    first_task = [log[at] for at in own[:1]]
    message = UserMessage(SUMMARY_INTRO + summary.content, "summary")
    since_prompt = [log[at] for at in own[1:] if at >= prompt]
    return [*first_task, message, *since_prompt, *log[summary.kept_from :]]
