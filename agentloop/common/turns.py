"""The turns of a log: where it can be cut, and how many tokens a cut frees.

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
    """Return the newest Summary of a log, or one that says that messages were removed."""
    for record in reversed(log):
        if isinstance(record, Summary):
            return record
    return Summary(LEFT_OUT, 0)


def turn_starts(log: Records) -> list[int]:
    """Return the indices at which a log can be cut, oldest first.

    A turn begins after the previous reply and its results. The newest is the last that can't go,
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
    """Return the estimated tokens that leave the view with a cut, besides an older summary."""
    kept = summarized(conversation, Summary("", cut))
    return shown_tokens(conversation, conversation.shown) - shown_tokens(conversation, kept)


def shown_tokens(conversation: Conversation, records: Iterable[Record | Message]) -> int:
    """Return the estimated tokens of records as the model sees them, besides a summary."""
    tokens = 0
    for record in records:
        if isinstance(record, ToolMessage):
            record = conversation.instead.get(record.tool_call_id, record)
        is_summary = isinstance(record, UserMessage) and record.origin == "summary"
        if isinstance(record, Message) and not is_summary:
            tokens += message_tokens(record)
    return tokens
