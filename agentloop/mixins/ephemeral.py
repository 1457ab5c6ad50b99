"""Shows the model only the newest results of tools whose results go stale.

Copy with: the core, common/tokens.py.

`@tool("...", ephemeral=2)` keeps at least the newest two results of that tool visible. Older ones
become a short placeholder in what the model sees; the log keeps them whole. A result that the model
has not seen yet is never hidden.

Hiding a result breaks the prefix that the provider has cached: what follows the system prompt is
written again. So stale results are carried until that has cost as much as hiding them would, and
then go all at once. This is the rent-or-buy rule, which needs no forecast. A cut also waits until
all cuts together have cost at most a tenth more than none would have. Where the provider reports no
cached tokens, there is no cache, and stale results go at once.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from typing import cast

from pydantic import NonNegativeFloat

from ..common.tokens import message_tokens
from ..events import PruneEvent
from ..loop import Loop
from ..messages import AssistantMessage, Message, Record, Summary, ToolMessage, Usage
from ..transcript import Fold, Records

MOST_LOST = 0.1  # how much more all cuts together may cost than none, as a share
SMALLEST_CACHED = 4_096  # tokens: some providers cache no shorter request
PLACEHOLDER_TOKENS = 23  # an estimate
REQUESTS_TO_JUDGE = 3  # long requests without cached tokens that indicate that there is no cache


class Ephemeral(Loop):
    """Replaces old results of tools made with `ephemeral=N` by placeholders.

    ephemeral_write_price: the price of a token that is not in the provider's cache.
    ephemeral_read_price: the price of a token that is. Only the ratio of the two counts; where it
        is 1 or less, stale results go at once.
    ephemeral_per_turn: True lets them go at once in any case.
    """

    ephemeral_write_price: NonNegativeFloat = 1.25
    ephemeral_read_price: NonNegativeFloat = 0.1
    ephemeral_per_turn: bool = False

    async def context(self) -> list[Message]:
        messages = await super().context()  # which may record
        prices = self.ephemeral_write_price, self.ephemeral_read_price
        if self.ephemeral_per_turn:
            prices = 0.0, 0.0
        pruning = self.fold(Pruning, *prices)
        if pruning.due:
            self.emit(PruneEvent([*pruning.due]))
        return pruning.hide(messages)


class Pruning(Fold):
    """Decides which results are hidden from the model, by the cost of each request.

    Each reply in the log represents a request with all records before it. A cut hides the stale
    results; the provider then writes everything after the first of them to its cache again.

    placeholders: the message shown instead of each hidden result, by call id.
    """

    _begin = 0  # the index where the view begins, after a summary
    _reply = 0  # the index of the newest reply: the model has seen all records before it
    _seen = 0  # tokens that the model has seen and still sees
    _unseen = 0  # tokens of the newest reply and of the records after it
    _saved = 0  # tokens that are hidden
    _freed = 0  # tokens that a cut would free
    _carried = 0  # `_freed`, summed over the turns since the last cut
    _paid = 0.0  # the cost of all requests without any cut
    _lost = 0.0  # the cost of the cuts, less their savings
    _prefix_broken = False  # True after a summary: a cut costs nothing then
    _uncached = 0  # requests that were long enough for a cache, but were not read from one
    _has_cache = False  # the provider has reported cached tokens

    def __init__(self, log: Records, write_price: float = 1.25, read_price: float = 0.1) -> None:
        super().__init__(log)
        self.placeholders = dict[str, ToolMessage]()
        self._write_price = write_price
        self._read_price = read_price
        self._sizes = list[int]()  # of each record as the model sees it, in tokens
        self._newest = defaultdict[str, list[int]](list)  # indices of visible results, by tool
        self._stale = list[int]()  # indices of results to hide with the next cut
        self._stale_unseen = list[int]()  # the same, but the model has not seen them yet
        self._given: Sequence[Message] = ()  # the messages of the last call of `hide`
        self._shown = list[Message]()  # the messages that it returned
        self._positions = dict[str, int]()  # of ephemeral results in `_shown`, by call id

    @property
    def due(self) -> dict[str, ToolMessage]:
        """Return placeholders for the results to hide in the next request, by call id."""
        if not self._cut_pays():
            return {}
        results = [cast(ToolMessage, self.log[index]) for index in self._stale]
        return {result.tool_call_id: placeholder(result) for result in results}

    def take(self, at: int, record: Record | Message) -> None:
        size = message_tokens(record) if isinstance(record, Message) else 0
        self._sizes.append(size)
        if isinstance(record, AssistantMessage):
            self._account_for_request(at)
            usage = record.usage or Usage()
            if usage.cached_input_tokens or usage.cache_write_tokens:
                self._has_cache = True
            elif usage.input_tokens >= SMALLEST_CACHED:
                self._uncached += 1
        elif isinstance(record, Summary):
            # Records before the summary are no longer in view, so the accounting is reset.
            self._begin = record.kept_from
            self._carried = self._saved = 0
            self._seen = sum(self._sizes[record.kept_from : self._reply])
            self._prefix_broken = True
            self._set_stale(self._stale)
        elif isinstance(record, ToolMessage) and record.ephemeral:
            self._age(at, record)
        self._unseen += size

    def hide(self, messages: list[Message]) -> list[Message]:
        """Return the messages of the next request, with placeholders for the hidden results."""
        known = len(self._given)
        if messages[:known] != self._given:
            known = 0
            self._shown.clear()
            self._positions.clear()
        for message in messages[known:]:
            if isinstance(message, ToolMessage) and message.ephemeral:
                self._positions[message.tool_call_id] = len(self._shown)
                message = self.placeholders.get(message.tool_call_id, message)
            self._shown.append(message)
        for call_id, replacement in self.due.items():
            if call_id in self._positions:
                self._shown[self._positions[call_id]] = replacement
        self._given = messages
        return [*self._shown]

    def _cost_of_cut(self) -> float:
        """Return the cost of a cut: the rest of the messages is written to the cache again."""
        return (self._seen - self._freed) * (self._write_price - self._read_price)

    def _cut_pays(self) -> bool:
        """Return whether carrying the stale results has already cost as much as a cut does."""
        if not self._stale:
            return False
        if self._prefix_broken or (self._uncached >= REQUESTS_TO_JUDGE and not self._has_cache):
            return True
        cost = self._cost_of_cut()
        affordable = self._lost + cost <= MOST_LOST * self._paid
        return affordable and self._carried * self._read_price >= cost

    def _account_for_request(self, at: int) -> None:
        """Account for the request that the reply at an index answers, and for its cut."""
        due = self.due
        self._carried += self._freed
        read = (self._seen + self._saved) * self._read_price
        self._paid += read + self._unseen * self._write_price
        self._lost -= self._saved * self._read_price
        if due:
            self._lost += self._cost_of_cut()
            self._carried = 0
            self._saved += self._freed
            self._seen -= self._freed
            for index in self._stale:
                self._sizes[index] = PLACEHOLDER_TOKENS
            self._set_stale([])
            self.placeholders |= due
        self._add_stale(self._stale_unseen)
        self._stale_unseen.clear()
        self._seen += self._unseen
        self._unseen = 0
        self._reply = at
        self._prefix_broken = False

    def _age(self, at: int, result: ToolMessage) -> None:
        """Take a new result, which makes an older result of the same tool stale."""
        newest = self._newest[result.tool_name]
        newest.append(at)
        while len(newest) > result.ephemeral:
            index = newest.pop(0)
            if index < self._reply:
                self._add_stale([index])
            else:
                self._stale_unseen.append(index)

    def _add_stale(self, indices: Sequence[int]) -> None:
        """Add the results that are in view and long enough to hide."""
        for index in indices:
            freed = self._sizes[index] - PLACEHOLDER_TOKENS
            if freed > 0 and index >= self._begin:
                self._stale.append(index)
                self._freed += freed

    def _set_stale(self, indices: Sequence[int]) -> None:
        """Replace the stale results by those among `indices` that are in view."""
        self._stale = []
        self._freed = 0
        self._add_stale(indices)


def placeholder(result: ToolMessage) -> ToolMessage:
    """Return a result with a text that says how much stood there, and where it still is."""
    text = (
        f"An older result of {result.tool_name} stood here: {len(result.text):,} characters. "
        "Newer results follow."
    )
    if result.offloaded:
        text += f' read_offloaded(name="{result.offloaded}") reads it again.'
    return replace(result, content=f"[{text}]")
