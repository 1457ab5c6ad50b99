"""Leaves out what is old when the conversation outgrows a budget, without asking a model.

Copy with: the core, tokens.py.

Old tool results keep their beginning and end; when that is not enough, old turns (what was said, a
reply, its calls and their results) go whole. The system prompt, the task, the user's words since
the newest prompt, pinned messages (memory, summaries) and the newest turns stay as they are. The
log keeps everything.

A cut changes the request's prefix, which the provider then reads at the full price. So it goes down
to a share of the budget, and the next is far. `trim` finds the cuts of earlier requests again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

from pydantic import PositiveInt

from ..events import PruneEvent
from ..loop import Loop
from ..messages import AssistantMessage, Message, SystemMessage, ToolMessage, UserMessage
from ..results import clip
from ..settings import Settings
from ..tokens import message_tokens
from ..transcript import is_own, newest_prompt

LOW_WATER = 0.6  # of the budget is what a cut goes down to
CUT_RESULT = 200  # characters are left of an old result


class TrimConfig(Settings):
    """How many tokens (estimated) the messages may have.

    budget: of all messages.
    keep_turns: how many of the newest turns stay as they are in any case.
    """

    budget: PositiveInt = 100_000
    keep_turns: PositiveInt = 5


class Trim(Loop):
    """Keeps what the model sees within a budget.

    trim: the budget, and what stays in any case.
    """

    trim: TrimConfig = TrimConfig()

    async def context(self) -> list[Message]:
        messages, gone = trim(await super().context(), self.trim)
        if gone:
            self.emit(PruneEvent([m.tool_call_id for m in gone if isinstance(m, ToolMessage)]))
        return messages


def trim(messages: Sequence[Message], config: TrimConfig) -> tuple[list[Message], list[Message]]:
    """The messages that fit the budget or have to stay, and those that leave just now.

    Each reply stands for a request with all that was left before it.
    """
    left, size = list[Message](), 0
    for message in messages:
        if isinstance(message, AssistantMessage) and size > config.budget:
            left = cut(left, config)
            size = size_of(left)
        left.append(message)
        size += message_tokens(message)
    if size <= config.budget:
        return left, []
    now = cut(left, config)
    return now, [message for message in left if message not in now]


def cut(messages: Sequence[Message], config: TrimConfig) -> list[Message]:
    """The messages without what is old, down to a share of the budget if there is enough of it."""
    turns = [[messages[0]]]
    for before, message in pairwise(messages):
        if not isinstance(before, UserMessage) and not isinstance(message, ToolMessage):
            turns.append([])
        turns[-1].append(message)
    own = [
        *filter(is_own, messages[newest_prompt(messages) :]),
        next(filter(is_own, messages), None),
    ]

    def kept(m: Message) -> Message | None:
        stays = isinstance(m, SystemMessage) or m in own or "pinned" in (m.extra or {})
        return m if stays else None

    size, unseen = size_of(messages), isinstance(messages[-1], UserMessage)
    for change in (shortened, kept):
        for turn in turns[: max(0, len(turns) - config.keep_turns - unseen)]:
            if size > config.budget * LOW_WATER:
                size -= size_of(turn)
                turn[:] = [new for message in turn if (new := change(message))]
                size += size_of(turn)
    return [message for turn in turns for message in turn]


def shortened(message: Message) -> Message:
    """A long result's beginning and end, without its attachments; another message as it is."""
    if not isinstance(message, ToolMessage):
        return message
    note = "" if isinstance(message.content, str) else "\n[attachments left out]"
    if not note and len(message.text) <= 2 * CUT_RESULT:
        return message
    return replace(message, content=clip(message.text, CUT_RESULT) + note)


def size_of(messages: Sequence[Message]) -> int:
    return sum(map(message_tokens, messages))
