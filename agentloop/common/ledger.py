"""What the requests of a log have cost, and when it pays to hide outdated results.

Copy with: the core, common/model_info.py, common/outdated.py, common/pruned.py, common/summary.py,
common/tokens.py.
"""

from __future__ import annotations

from ..messages import AssistantMessage, Message, Usage
from ..transcript import Record, Records
from .model_info import CacheRules
from .outdated import PLACEHOLDER_TOKENS, Outdated
from .pruned import Pruned
from .summary import Summary

MOST_LOST = 0.1  # what hiding may cost in total, as a share of what the log would cost unpruned
NO_CACHE = CacheRules(0, read_price=1.0, write_price=1.0)
UNCACHED_REQUESTS = 3  # long requests, none of them cached, after which there seems to be no cache


class Ledger(Outdated):
    """Keeps the accounts of a log: what its requests cost, and what hiding results saved.

    Each reply stands for a request with everything before it. One unit of cost is the price of an
    uncached input token.
    """

    _seen = 0  # tokens of the newest request, which the provider has cached
    _unseen = 0  # tokens of the records since
    _saved = 0  # tokens that are pruned
    _rent = 0.0  # what reading the outdated results has cost since the last pruning
    _paid = 0.0  # what all requests would have cost if nothing had been pruned
    _lost = 0.0  # what the prunings cost, minus what they saved
    _prefix_changed = False  # by a summary, so pruning costs nothing now
    _uncached = 0  # requests that were long enough for the cache, but weren't cached
    _has_cache = False  # whether the provider has reported cached tokens

    def __init__(self, log: Records, rules: CacheRules) -> None:
        super().__init__(log)
        self._rules = rules

    @property
    def rules(self) -> CacheRules:
        """The model's prices; those of an uncached model if the provider seems to have no cache."""
        is_uncached = self._uncached >= UNCACHED_REQUESTS and not self._has_cache
        return NO_CACHE if is_uncached else self._rules

    @property
    def due(self) -> list[str]:
        """The ids of the calls whose results to replace before the next request."""
        count, freed = self._cut()
        cost = (self._seen - freed) * (self.rules.write_price - self.rules.read_price)
        affordable = self._lost + cost <= MOST_LOST * self._paid
        pays = affordable and self._rent >= cost
        if pays or self._prefix_changed or cost <= 0:
            return self.call_ids[:count]
        return []

    def take(self, at: int, record: Record | Message) -> None:
        outdated = self.freed
        if isinstance(record, AssistantMessage):
            self._pay()
            self._look_for_cache(record.usage or Usage())
        super().take(at, record)
        if isinstance(record, Pruned):
            self._seen -= outdated - self.freed
            self._saved += outdated - self.freed
            self._rent = 0
            if not self._prefix_changed:
                self._lost += self._seen * (self.rules.write_price - self.rules.read_price)
        elif isinstance(record, Summary):
            self._seen = sum(self.sizes[record.kept_from : self.reply_index])
            self._rent = self._saved = 0
            self._prefix_changed = True
        self._unseen += self.sizes[at]

    def _pay(self) -> None:
        """Add what the request of a reply cost."""
        read = self.rules.read_price
        self._rent += self._cut()[1] * read
        self._paid += (self._seen + self._saved) * read + self._unseen * self.rules.write_price
        self._lost -= self._saved * read
        self._seen += self._unseen
        self._unseen = 0
        self._prefix_changed = False

    def _look_for_cache(self, usage: Usage) -> None:
        if usage.cached_input_tokens or usage.cache_write_tokens:
            self._has_cache = True
        elif usage.input_tokens >= max(1, self._rules.smallest_prefix):
            self._uncached += 1

    def _cut(self) -> tuple[int, int]:
        """How many results to replace, oldest first, and how many tokens that frees.

        The newest stay if the rest of the request would be too short for the provider's cache.
        """
        count, freed = len(self.indices), self.freed
        most = self._seen + self._unseen - self.rules.smallest_prefix
        while count and freed > most:
            count -= 1
            freed -= self.sizes[self.indices[count]] - PLACEHOLDER_TOKENS
        return count, freed
