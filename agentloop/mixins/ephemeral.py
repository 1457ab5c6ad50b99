"""Shows the model only the newest results of tools whose results become outdated.

Copy with: the core, common/hidden_text.py, common/model_info.py, common/tokens.py.

`@tool("...", ephemeral=2)` keeps at least the newest two results of that tool visible. Older
results are replaced by a short placeholder in the messages sent to the model; the log keeps them. A
result that the model has not seen yet is never hidden.

Hiding a result invalidates the provider's cached prefix: everything after the system prompt is
written to the cache again. Stale results are therefore carried until that has cost as much as
hiding them, and are then hidden all at once (the rent-or-buy rule, which needs no forecast). A cut
also waits until all cuts together have cost at most a tenth more than none, and never leaves less
than the provider caches. If the provider reports no cached tokens, there is no cache, and stale
results are hidden at once.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import cast

from ..common.hidden_text import HidesText
from ..common.model_info import CacheRules, cache_rules
from ..common.tokens import message_tokens
from ..events import PruneEvent
from ..messages import AssistantMessage, Message, Record, Summary, ToolMessage, Usage
from ..tools import by_name
from ..transcript import Fold, Records

MOST_LOST = 0.1  # how much more all cuts together may cost than none, as a share
PLACEHOLDER_TOKENS = 35  # an estimate
REQUESTS_TO_JUDGE = 3  # long requests without cached tokens that indicate that there is no cache


NO_CACHE = CacheRules(0, read_price=1.0, write_price=1.0)


class Ephemeral(HidesText):
    """Replaces old results of tools made with `ephemeral=N` by placeholders.

    The model's `cache_rules` decide when: see common/model_info.py.

    ephemeral_per_turn: True hides stale results at once, whatever that costs.
    recall_tool: a tool that finds hidden text, which placeholders name.
    """

    ephemeral_per_turn: bool = False

    async def context(self) -> list[Message]:
        messages = await super().context()  # which may record
        rules = NO_CACHE if self.ephemeral_per_turn else cache_rules(self.llm)
        pruning = self.fold(Pruning, rules)
        if pruning.due:
            self.emit(PruneEvent([*pruning.due]))
        return pruning.hide(messages, self._placeholder)

    def _placeholder(self, result: ToolMessage) -> ToolMessage:
        """Return a hidden result's placeholder, which names the ways to read the result again."""
        offered = by_name(self.toolset())
        tool = offered.get(result.tool_name)
        sources = list[str]()
        if recall := self.recall_name(offered.values()):
            sources.append(f"use {recall}")
        if tool and (tool.idempotent or tool.read_only):
            sources.append(f"call {result.tool_name} again")
        return placeholder(result, sources)


class Pruning(Fold):
    """Decides which results are hidden from the model, by the cost of each request.

    Each reply in the log represents a request with all records before it. A cut hides the stale
    results; the provider then writes everything after the first of them to its cache again.

    hidden: the call ids of hidden results.
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

    def __init__(self, log: Records, rules: CacheRules) -> None:
        super().__init__(log)
        self.hidden = set[str]()
        self._rules = rules
        self._sizes = list[int]()  # of each record as the model sees it, in tokens
        self._newest = defaultdict[str, list[int]](list)  # indices of visible results, by tool
        self._stale = list[int]()  # indices of results to hide with the next cut
        self._stale_unseen = list[int]()  # the same, but the model has not seen them yet
        self._given: Sequence[Message] = ()  # the messages of the last call of `hide`
        self._shown = list[Message]()  # the messages that it returned
        self._positions = dict[str, int]()  # of ephemeral results in `_shown`, by call id

    @property
    def due(self) -> list[str]:
        """Return the call ids of the results to hide in the next request."""
        count, freed = self._next_cut()
        if not self._cut_pays(freed):
            return []
        indices = self._stale[:count]
        return [cast(ToolMessage, self.log[index]).tool_call_id for index in indices]

    def take(self, at: int, record: Record | Message) -> None:
        size = message_tokens(record) if isinstance(record, Message) else 0
        self._sizes.append(size)
        if isinstance(record, AssistantMessage):
            self._account_for_request(at)
            usage = record.usage or Usage()
            if usage.cached_input_tokens or usage.cache_write_tokens:
                self._has_cache = True
            elif usage.input_tokens >= max(1, self._rules.smallest_prefix):
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

    def hide(
        self, messages: list[Message], describe: Callable[[ToolMessage], ToolMessage]
    ) -> list[Message]:
        """Return the messages of the next request, with placeholders for the hidden results."""
        known = len(self._given)
        if messages[:known] != self._given:
            known = 0
            self._positions.clear()
        del self._shown[known:]  # a call that was interrupted may have added messages
        for message in messages[known:]:
            if isinstance(message, ToolMessage) and message.ephemeral:
                self._positions[message.tool_call_id] = len(self._shown)
                if message.tool_call_id in self.hidden:
                    message = describe(message)
            self._shown.append(message)
        for call_id in self.due:
            at = self._positions.get(call_id)
            if at is not None:
                self._shown[at] = describe(cast(ToolMessage, messages[at]))
        self._given = messages
        return [*self._shown]

    @property
    def _cacheless(self) -> bool:
        """Return whether hiding results costs nothing, as reading from a cache saves nothing."""
        if self._uncached >= REQUESTS_TO_JUDGE and not self._has_cache:
            return True
        return self._rules.write_price <= self._rules.read_price

    def _next_cut(self) -> tuple[int, int]:
        """Return how many stale results a cut hides, oldest first, and the tokens that it frees.

        The newest of them stay if the rest would otherwise be too short for the provider's cache.
        """
        count = len(self._stale)
        freed = self._freed
        if self._cacheless:
            return count, freed
        while count and self._seen - freed < self._rules.smallest_prefix:
            count -= 1
            freed -= self._sizes[self._stale[count]] - PLACEHOLDER_TOKENS
        return count, freed

    def _cost_of_cut(self, freed: int) -> float:
        """Return the cost of a cut: the rest of the messages is written to the cache again."""
        return (self._seen - freed) * (self._rules.write_price - self._rules.read_price)

    def _cut_pays(self, freed: int) -> bool:
        """Return whether carrying the stale results has already cost as much as a cut does."""
        if not freed:
            return False
        if self._prefix_broken or self._cacheless:
            return True
        cost = self._cost_of_cut(freed)
        affordable = self._lost + cost <= MOST_LOST * self._paid
        return affordable and self._carried * self._rules.read_price >= cost

    def _account_for_request(self, at: int) -> None:
        """Account for the request that the reply at an index answers, and for its cut."""
        due = self.due
        count, freed = self._next_cut()
        self._carried += freed
        read = (self._seen + self._saved) * self._rules.read_price
        self._paid += read + self._unseen * self._rules.write_price
        self._lost -= self._saved * self._rules.read_price
        if due:
            self._lost += self._cost_of_cut(freed)
            self._carried = 0
            self._saved += freed
            self._seen -= freed
            self.hidden.update(due)
            for index in self._stale[:count]:
                self._sizes[index] = PLACEHOLDER_TOKENS
            self._set_stale(self._stale[count:])
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
        """Add the results that are in view and at least twice as long as a placeholder."""
        for index in indices:
            freed = self._sizes[index] - PLACEHOLDER_TOKENS
            if freed >= PLACEHOLDER_TOKENS and index >= self._begin:
                self._stale.append(index)
                self._freed += freed

    def _set_stale(self, indices: Sequence[int]) -> None:
        """Replace the stale results by those among `indices` that are in view."""
        self._stale = []
        self._freed = 0
        self._add_stale(indices)


def placeholder(result: ToolMessage, sources: Sequence[str] = ()) -> ToolMessage:
    """Return the message shown instead of a result. `sources` are other ways to read it again."""
    if result.offloaded:
        sources = [f'call read_offloaded(name="{result.offloaded}")', *sources]
    size = f"{len(result.text):,} characters"
    text = f"Older result of {result.tool_name} removed ({size}). See newer results below."
    if sources:
        text += f" To read it, {' or '.join(sources)}."
    return replace(result, content=f"[{text}]")
