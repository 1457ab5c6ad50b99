"""Shows the model only the newest results of tools whose results go stale.

Copy with: the core.

`@tool("...", ephemeral=2)` keeps at least the newest two results of that tool visible. Older ones
become a short placeholder in what the model sees; the log keeps them whole. A result that the model
has not seen yet is never hidden.

Hiding a result breaks the prefix that the provider has cached, so stale results are carried until
that has cost as much as hiding them would, and then go all at once: the rent-or-buy rule, which
needs no forecast and costs at most about twice what the best choice in hindsight does.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ..events import PruneEvent
from ..loop import Loop
from ..messages import (
    AssistantMessage,
    Message,
    Record,
    Summary,
    TextPart,
    ToolMessage,
    UserMessage,
)
from ..tokens import message_tokens
from ..transcript import LogReader


class Ephemeral(Loop):
    """Replaces old results of tools made with `ephemeral=N` by placeholders.

    ephemeral_write_price: what a token costs that the provider has not in its cache.
    ephemeral_read_price: what one costs that it has. Only the two prices' ratio counts; with equal
        ones, stale results go at once.
    ephemeral_per_turn: whether they go at once in any case.
    """

    ephemeral_write_price: float = 1.25
    ephemeral_read_price: float = 0.1
    ephemeral_per_turn: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if not (self.ephemeral_read_price >= 0 and self.ephemeral_write_price >= 0):
            raise ValueError("ephemeral_write_price and ephemeral_read_price are prices, from 0 on")

    async def context(self) -> list[Message]:
        messages = await super().context()
        prices = self.ephemeral_write_price, self.ephemeral_read_price
        epochs = self.reader(Epochs, *((0.0, 0.0) if self.ephemeral_per_turn else prices))
        hidden = epochs.hidden
        if due := epochs.due():
            self.emit(PruneEvent([stale.message.tool_call_id for stale in due]))
            hidden = hidden | {stale.message.tool_call_id: stale.placeholder for stale in due}
        return hide(messages, hidden) if hidden else messages


def stale_results(
    log: Sequence[Record], write_price: float = 1.25, read_price: float = 0.1
) -> set[str]:
    """The call ids of the results to hide in the next request; what is hidden once stays so."""
    epochs = Epochs(write_price, read_price)
    epochs.catch_up(log)
    return {*epochs.hidden, *(stale.message.tool_call_id for stale in epochs.due())}


def hide(messages: Sequence[Message], hidden: Mapping[str, ToolMessage]) -> list[Message]:
    """The messages, with placeholders instead of the results of the calls of these ids."""
    return [
        hidden[message.tool_call_id]
        if isinstance(message, ToolMessage) and message.tool_call_id in hidden
        else message
        for message in messages
    ]


@dataclass(frozen=True, slots=True)
class Ageing:
    """A result that goes stale one day, the log's record number `at`."""

    at: int
    message: ToolMessage
    placeholder: ToolMessage
    saved: int  # tokens, once it is hidden


class Epochs(LogReader):
    """Which results are hidden, by call id, as requests were made along the log."""

    def __init__(self, write_price: float, read_price: float) -> None:
        super().__init__()
        self._prices = write_price, read_price
        self.hidden: dict[str, ToolMessage] = {}
        self._results: defaultdict[str, list[Ageing]] = defaultdict(list)  # the visible ones
        self._sizes: list[int] = []  # of each record as the model sees it, in tokens
        self._reply = 0  # where the newest one stands: the model has seen what is before it
        self._carried = 0  # token-turns of what was stale, since the last cut
        self._broken = False  # a summary has changed the prefix, so a cut now costs nothing

    def take(self, log: Sequence[Any], at: int) -> None:
        record = log[at]
        if not self._sizes:
            if not (isinstance(record, ToolMessage) and record.ephemeral):
                return  # nothing can go stale yet
            self._sizes = [0] * at
        if isinstance(record, AssistantMessage):
            self._request(at)
        is_message = isinstance(record, UserMessage | AssistantMessage | ToolMessage)
        self._sizes.append(message_tokens(record) if is_message else 0)
        if isinstance(record, ToolMessage) and record.ephemeral:
            small = replace(record, content=placeholder(record))
            saved = self._sizes[at] - message_tokens(small)
            self._results[record.tool_name].append(Ageing(at, record, small, saved))
        elif isinstance(record, Summary):
            self._carried, self._broken = 0, True
            for name, results in self._results.items():
                self._results[name] = [result for result in results if result.at >= record.keep]

    def due(self) -> list[Ageing]:
        """The results to hide in the next request."""
        stale, (write_price, read_price) = self._stale(), self._prices
        if self._broken or not stale:
            return stale
        first = min(result.at for result in stale)
        behind = sum(self._sizes[first : self._reply]) - sum(self._sizes[one.at] for one in stale)
        return stale if self._carried * read_price >= behind * (write_price - read_price) else []

    def _stale(self) -> list[Ageing]:
        """What is not among the newest of its tool, and has been seen."""
        classic = self._prices[0] <= self._prices[1]
        return [
            result
            for results in self._results.values()
            if results
            for result in results[: -results[-1].message.ephemeral]
            if result.at < self._reply and (result.saved > 0 or classic)
        ]

    def _request(self, at: int) -> None:
        """One has gone out, with all of the log before record `at`."""
        for stale in (due := self.due()):
            self.hidden[stale.message.tool_call_id] = stale.placeholder
            self._sizes[stale.at] -= stale.saved
            self._results[stale.message.tool_name].remove(stale)
        self._carried = 0 if due else self._carried + sum(one.saved for one in self._stale())
        self._reply, self._broken = at, False


def placeholder(message: ToolMessage) -> str:
    """What stands for a hidden result: how much of what was there, and where it still is."""
    parts = () if isinstance(message.content, str) else message.content
    others = sum(not isinstance(part, TextPart) for part in parts)
    attached = f" and {others} attachment{'s' * (others != 1)}" * bool(others)
    name = (message.extra or {}).get("offloaded")
    again = f' read_offloaded(name="{name}") reads it again.' * bool(name)
    return (
        f"[An older result of {message.tool_name} stood here: {len(message.text):,} characters"
        f"{attached}. Newer results follow.{again}]"
    )
