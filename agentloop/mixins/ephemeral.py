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
from collections.abc import Mapping, Sequence
from dataclasses import replace

from pydantic import NonNegativeFloat

from ..common.tokens import message_tokens
from ..events import PruneEvent
from ..loop import Loop
from ..messages import AssistantMessage, Message, Record, Summary, ToolMessage, Usage
from ..transcript import Fold, Records

MOST_LOST = 0.1  # how much more all cuts together may cost than none, as a share
SMALLEST_CACHED = 1_024  # tokens: providers cache no shorter request
PLACEHOLDER_TOKENS = 23  # an estimate
REQUESTS_TO_JUDGE = 3  # so many requests without cached tokens mean that there is no cache


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
    """Which results are hidden from the model, and the account that says when to hide more.

    Each reply in the log stands for a request with all that was before it. A cut is what hides
    some results. It makes the provider write again what follows the first of them.

    placeholders: what stands in the place of each hidden result, by its call id.
    """

    _begin = 0  # the index where the view begins, behind a summary
    _reply = 0  # the index of the newest reply: the model has seen what is before it
    _seen = 0  # tokens that the model has seen and still sees
    _unseen = 0  # tokens of the newest reply and of what follows it
    _saved = 0  # tokens that are hidden
    _carried = 0  # tokens that were stale, added up over the turns since the last cut
    _paid = 0.0  # what all requests would have cost without any cut
    _lost = 0.0  # what the cuts have cost, less what they have saved
    _prefix_broken = False  # True after a summary: a cut costs nothing then
    _uncached = 0  # how many requests could have been cached, but were not
    _has_cache = False  # the provider has reported cached tokens
    _given: Sequence[Message] = ()  # what `hide` was given last, since the newest cut
    _shown: Sequence[Message] = ()  # what it made of that

    def __init__(self, log: Records, write_price: float = 1.25, read_price: float = 0.1) -> None:
        super().__init__(log)
        self.placeholders = dict[str, ToolMessage]()
        self._write_price = write_price
        self._read_price = read_price
        self._sizes = list[int]()  # of each record as the model sees it, in tokens
        self._newest = defaultdict[str, list[tuple[int, ToolMessage]]](list)  # by tool
        self._stale = dict[int, ToolMessage]()  # older results, if long enough to hide, by index

    @property
    def due(self) -> dict[str, ToolMessage]:
        """Return placeholders for the results to hide in the next request, by call id."""
        stale = self._stale_and_seen()
        if not self._cut_pays(stale):
            return {}
        results = [self._stale[index] for index in stale]
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
            # The account begins anew: what the summary stands for is no longer in view.
            self._begin = record.kept_from
            self._carried = self._saved = 0
            self._seen = sum(self._sizes[record.kept_from : self._reply])
            self._prefix_broken = True
        elif isinstance(record, ToolMessage) and record.ephemeral:
            self._age(at, record)
        self._unseen += size

    def hide(self, messages: list[Message]) -> list[Message]:
        """Return the next request's messages. What was shown last is kept, unless a cut is due."""
        due = self.due
        known = len(self._given)
        if due or messages[:known] != self._given:
            known = 0
        self._shown = [*self._shown[:known], *hide(messages[known:], self.placeholders | due)]
        self._given = messages
        return [*self._shown]

    def _stale_and_seen(self) -> list[int]:
        """Return the indices of the stale results in view that the model has seen."""
        return [index for index in self._stale if self._begin <= index < self._reply]

    def _freed(self, stale: Sequence[int]) -> int:
        """Return how many tokens it saves to hide these results."""
        return sum(self._sizes[index] - PLACEHOLDER_TOKENS for index in stale)

    def _cost_of_cut(self, stale: Sequence[int]) -> float:
        """Return what it costs to hide these results: the rest is written to the cache again."""
        rest = self._seen - self._freed(stale)
        return rest * (self._write_price - self._read_price)

    def _cut_pays(self, stale: Sequence[int]) -> bool:
        """Return whether carrying these results has cost as much by now as hiding them will."""
        if not stale:
            return False
        if self._prefix_broken or (self._uncached >= REQUESTS_TO_JUDGE and not self._has_cache):
            return True
        cost = self._cost_of_cut(stale)
        affordable = self._lost + cost <= MOST_LOST * self._paid
        return affordable and self._carried * self._read_price >= cost

    def _account_for_request(self, at: int) -> None:
        """Account for the request that the reply at an index answers, and for its cut."""
        due = self.due
        stale = self._stale_and_seen()
        freed = self._freed(stale)
        self._carried += freed
        read = (self._seen + self._saved) * self._read_price
        self._paid += read + self._unseen * self._write_price
        self._lost -= self._saved * self._read_price
        if due:
            self._lost += self._cost_of_cut(stale)
            self._carried = 0
            self._saved += freed
            self._seen -= freed
            for index in stale:
                del self._stale[index]
                self._sizes[index] = PLACEHOLDER_TOKENS
            self.placeholders |= due
            self._given = ()  # what was shown of them is out of date
        self._seen += self._unseen
        self._unseen = 0
        self._reply = at
        self._prefix_broken = False

    def _age(self, at: int, result: ToolMessage) -> None:
        """Take a new result, which makes an older one of the same tool stale."""
        newest = self._newest[result.tool_name]
        newest.append((at, result))
        while len(newest) > result.ephemeral:
            index, stale = newest.pop(0)
            if self._sizes[index] > PLACEHOLDER_TOKENS:
                self._stale[index] = stale


def hide(messages: Sequence[Message], placeholders: Mapping[str, ToolMessage]) -> list[Message]:
    """Return the messages with placeholders for the results of calls with these ids."""
    return [
        placeholders.get(message.tool_call_id, message)
        if isinstance(message, ToolMessage)
        else message
        for message in messages
    ]


def placeholder(result: ToolMessage) -> ToolMessage:
    """Return a result with a text that says how much stood there, and where it still is."""
    text = (
        f"An older result of {result.tool_name} stood here: {len(result.text):,} characters. "
        "Newer results follow."
    )
    if result.offloaded:
        text += f' read_offloaded(name="{result.offloaded}") reads it again.'
    return replace(result, content=f"[{text}]")
