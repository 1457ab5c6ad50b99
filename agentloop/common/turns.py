"""The turns of a log: where you can cut it, and how many tokens that frees.

Copy with: transcript.py and its imports, common/summary.py, common/tokens.py.
"""

from __future__ import annotations

from collections.abc import Iterable

from ..messages import AssistantMessage, Message, ToolMessage, UserMessage
from ..transcript import Conversation, Record, Records
from .summary import Summary, summarized
from .tokens import message_tokens

LEFT_OUT = "(Earlier messages no longer fit and were removed.)"


def newest_summary(log: Records) -> Summary:
    """The newest Summary of a log; if there's none, one which says that messages were removed."""
    for record in reversed(log):
        if isinstance(record, Summary):
            return record
    return Summary(LEFT_OUT, 0)


def turn_starts(log: Records) -> list[int]:
    """The indices at which you can cut a log, oldest first.

    A turn begins after the reply before it and the results of that reply. The newest turn can't go,
    because the model hasn't seen its results.
    """
    starts = [newest_summary(log).kept_from]
    start = 0
    for at, record in enumerate(log):
        if isinstance(record, AssistantMessage) and start > starts[-1]:
            starts.append(start)
        if isinstance(record, AssistantMessage | ToolMessage):
            start = at + 1
    return starts


def freed_tokens(conversation: Conversation, cut: int) -> int:
    """About how many tokens a cut takes out of the view, not counting an older summary."""
    kept = summarized(conversation, Summary("", cut))
    return shown_tokens(conversation, conversation.shown) - shown_tokens(conversation, kept)


def shown_tokens(conversation: Conversation, records: Iterable[Record | Message]) -> int:
    """About how many tokens records have as the model sees them, not counting a summary."""
    tokens = 0
    for record in records:
        if isinstance(record, ToolMessage):
            record = conversation.instead.get(record.tool_call_id, record)
        is_summary = isinstance(record, UserMessage) and record.origin == "summary"
        if isinstance(record, Message) and not is_summary:
            tokens += message_tokens(record)
    return tokens
