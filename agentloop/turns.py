"""Where the turns of a log begin, and where it can be cut between them.

Copy with: messages.py, transcript.py, tokens.py.
"""

from __future__ import annotations

from collections.abc import Sequence

from .messages import AssistantMessage, Record, Summary, ToolMessage, UserMessage
from .tokens import message_tokens
from .transcript import own_messages


def beginning(log: Sequence[Record]) -> int:
    """From which record on the log is in view: the last summary's, or what follows the task."""
    for record in reversed(log):
        if isinstance(record, Summary):
            return record.keep
    return next((at + 1 for at, record in enumerate(log) if isinstance(record, UserMessage)), 0)


def first_unseen(log: Sequence[Record]) -> int:
    """From which record on the model has not answered yet: its last calls, or the new prompt."""
    at = len(log)
    while at and not isinstance(log[at - 1], AssistantMessage):
        at -= 1
    reply = log[at - 1] if at else None
    return at - 1 if isinstance(reply, AssistantMessage) and reply.tool_calls else at


def new_prompt(log: Sequence[Record]) -> int:
    """Where the prompt begins that the model has not answered yet; the log's end without one."""
    at = len(log)
    while at and not isinstance(log[at - 1], AssistantMessage | ToolMessage):
        at -= 1
    return at


def turn_starts(log: Sequence[Record], begin: int, end: int) -> list[int]:
    """Where each turn begins: a reply, with what was said before it and its results after it."""
    starts, start = list[int](), begin
    for at in range(begin, end):
        if isinstance(log[at], AssistantMessage):
            starts.append(start)
        if isinstance(log[at], AssistantMessage | ToolMessage):
            start = at + 1
    return starts


def place_to_cut(log: Sequence[Record], keep_turns: int, min_gain: int) -> int:
    """Up to which record to summarize, for `min_gain` tokens at least: 0 if it is not worth it.

    That keeps `keep_turns` turns and what is unseen, or fewer turns if they are all there is.
    """
    begin, end = beginning(log), first_unseen(log)
    cuts = [*turn_starts(log, begin, end), end][-1 - keep_turns :]
    return next((at for at in cuts if gain(log, at) >= min_gain), 0)


def gain(log: Sequence[Record], at: int) -> int:
    """The estimated tokens that leave the view if the log is cut at record `at`."""
    begin, stay = beginning(log), {*own_messages(log)}
    return tokens_of([log[n] for n in range(begin, at) if n not in stay])


def tokens_of(records: Sequence[Record]) -> int:
    """The estimated tokens of the messages among some records."""
    return sum(
        message_tokens(record)
        for record in records
        if isinstance(record, UserMessage | AssistantMessage | ToolMessage)
    )
