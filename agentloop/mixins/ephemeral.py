"""Shows the model only the newest results of tools whose results go stale.

Copy with: the core.

`@tool("...", ephemeral=2)` keeps the newest two results of that tool visible. Older ones become a
short placeholder in what the model sees; the log keeps them whole. A result that the model has not
seen yet is never hidden. Each prune changes the request's prefix, which the provider then reads at
the full price again: `ephemeral_batch=8` lets eight results pile up before it prunes once.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace

from ..events import PruneEvent
from ..loop import Loop
from ..messages import AssistantMessage, Message, Record, TextPart, ToolMessage


class Ephemeral(Loop):
    """Replaces old results of tools made with `ephemeral=N` by placeholders.

    ephemeral_batch: how many stale results have to pile up before they are pruned together.
    """

    ephemeral_batch: int = 1

    async def context(self) -> list[Message]:
        messages = await super().context()
        stale = stale_results(self.log, self.ephemeral_batch)
        shown_before = self.log[: _last_reply(self.log)]
        if new := stale - stale_results(shown_before, self.ephemeral_batch):
            self.emit(PruneEvent(sorted(new)))
        return hide(messages, stale)


def stale_results(log: Sequence[Record], batch: int = 1) -> set[str]:
    """The call ids of the results to hide; what is stale once stays so as the log grows."""
    results: defaultdict[str, list[ToolMessage]] = defaultdict(list)
    seen: Counter[str] = Counter()
    last_reply = _last_reply(log)
    for at, record in enumerate(log):
        if isinstance(record, ToolMessage) and record.ephemeral:
            results[record.tool_name].append(record)
            seen[record.tool_name] += at < last_reply
    stale: set[str] = set()
    for name, of_tool in results.items():
        count = max(0, min(len(of_tool) - of_tool[-1].ephemeral, seen[name]))
        stale |= {message.tool_call_id for message in of_tool[: count - count % max(1, batch)]}
    return stale


def _last_reply(log: Sequence[Record]) -> int:
    """Where the newest reply stands. The model saw the results before it, and no others."""
    places = (at for at in range(len(log) - 1, -1, -1) if isinstance(log[at], AssistantMessage))
    return next(places, 0)


def hide(messages: Iterable[Message], call_ids: set[str]) -> list[Message]:
    """The messages, with a placeholder instead of the results of these calls."""
    return [
        replace(message, content=placeholder(message))
        if isinstance(message, ToolMessage) and message.tool_call_id in call_ids
        else message
        for message in messages
    ]


def placeholder(message: ToolMessage) -> str:
    """What stands for a hidden result: how much of what was there."""
    parts = () if isinstance(message.content, str) else message.content
    others = sum(not isinstance(part, TextPart) for part in parts)
    attached = f" and {others} attachment{'s' * (others != 1)}" * bool(others)
    return (
        f"[An older result of {message.tool_name} stood here: {len(message.text):,} characters"
        f"{attached}. Newer results follow.]"
    )
