"""Hides outdated results of a tool from the model, except the newest results.

Copy with: the core, common/hidden_text.py, common/model_info.py, common/summary.py,
common/tokens.py.

    @tool(ephemeral=2)
    async def screenshot() -> ImagePart: ...

`@tool("...", ephemeral=2)` keeps at least the newest two results of the tool visible. A short
placeholder replaces older results in the messages sent to the model; the log remains complete.
Results that the model has not seen are never hidden.

Hiding a result invalidates the provider's cached prefix: the messages after the system prompt are
written to the cache again. Stale results are therefore retained until their accumulated cost equals
the cost of hiding them, and are then hidden together (the rent-or-buy rule, which requires no
forecast). In addition, the total cost of all cuts may exceed the cost without cuts by at most a
tenth, and a cut never leaves less than the smallest cacheable prefix. Without cached tokens in the
provider's reports, stale results are hidden immediately.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import cast

from ..common.hidden_text import HidesText
from ..common.model_info import CacheRules, cache_rules
from ..common.summary import Summary
from ..common.tokens import message_tokens
from ..events import PruneEvent
from ..messages import (
    AssistantMessage,
    Message,
    ToolMessage,
    Usage,
)
from ..tools import by_name
from ..transcript import Fold, Record, Records

MOST_LOST = 0.1  # maximum additional cost of all cuts, as a share of the cost without cuts
PLACEHOLDER_TOKENS = 35  # estimated tokens of a placeholder
REQUESTS_TO_JUDGE = 3  # long requests without cached tokens that indicate a missing cache


NO_CACHE = CacheRules(0, read_price=1.0, write_price=1.0)


class Ephemeral(HidesText):
    """Replaces old results of tools made with `ephemeral=N` by placeholders.

    The model's `cache_rules` determine the time: see common/model_info.py.

    ephemeral_per_turn: whether to hide stale results immediately, regardless of the cost.
    recall_tool: a tool that finds hidden text; placeholders refer to this tool.
    """

    ephemeral_per_turn: bool = False

    async def context(self) -> list[Message]:
        messages = await super().context()  # may append records
        rules = NO_CACHE if self.ephemeral_per_turn else cache_rules(self.llm)
        pruning = self.fold(Pruning, rules)
        if pruning.due:
            self.emit(PruneEvent([*pruning.due]))
        return pruning.hide(messages, self._placeholder)

    def _placeholder(self, result: ToolMessage) -> ToolMessage:
        """Return the placeholder of a hidden result, with instructions to read the result again."""
        offered = by_name(self.toolset())
        tool = offered.get(result.tool_name)
        sources = list[str]()
        if recall := self.recall_name(offered.values()):
            sources.append(f"use {recall}")
        if tool and (tool.idempotent or tool.read_only):
            sources.append(f"call {result.tool_name} again")
        return placeholder(result, sources)


class Pruning(Fold):
    """Decides which results are hidden from the model, based on the cost of previous requests.

    A reply in the log represents a request with all preceding records. A cut hides the stale
    results; the provider then writes all content after the first stale result to its cache again.

    hidden: the call ids of hidden results.
    """

    _begin = 0  # the index where the rendered messages begin, after a summary
    _reply = 0  # the index of the newest reply: the model has seen all preceding records
    _seen = 0  # visible tokens that the model has seen before
    _unseen = 0  # tokens of the newest reply and of subsequent records
    _saved = 0  # hidden tokens
    _freed = 0  # tokens that a cut would free
    _carried = 0  # the sum of `_freed` over the turns since the last cut
    _paid = 0.0  # the hypothetical cost of all requests without cuts
    _lost = 0.0  # the cost of the cuts minus their savings
    _prefix_broken = False  # True after a summary, when a cut has no additional cost
    _uncached = 0  # requests without cached tokens, although long enough for a cache
    _has_cache = False  # whether the provider has reported cached tokens

    def __init__(self, log: Records, rules: CacheRules) -> None:
        super().__init__(log)
        self.hidden = set[str]()
        self._rules = rules
        self._sizes = list[int]()  # tokens of every record in the rendered messages
        self._newest = defaultdict[str, list[int]](list)  # indices of visible results, by tool
        self._stale = list[int]()  # indices of results to hide with the next cut
        self._stale_unseen = list[int]()  # stale results that the model has not seen
        self._before: Sequence[Message] = ()  # the argument of the previous call of `hide`
        self._after = list[Message]()  # the result of the previous call of `hide`
        self._positions = dict[str, int]()  # positions of ephemeral results in `_after`, by call id

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
            # Records before the summary are no longer visible, so the accounting restarts.
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
        same = len(self._before)
        if messages[:same] != self._before:
            same = 0
            self._positions.clear()
        del self._after[same:]  # an interrupted call may have added messages
        for message in messages[same:]:
            if isinstance(message, ToolMessage) and message.ephemeral:
                self._positions[message.tool_call_id] = len(self._after)
                if message.tool_call_id in self.hidden:
                    message = describe(message)
            self._after.append(message)
        for call_id in self.due:
            at = self._positions.get(call_id)
            if at is not None:
                self._after[at] = describe(cast(ToolMessage, messages[at]))
        self._before = messages
        return [*self._after]

    @property
    def _cacheless(self) -> bool:
        """Return whether hiding results costs nothing, because cached input is not cheaper."""
        if self._uncached >= REQUESTS_TO_JUDGE and not self._has_cache:
            return True
        return self._rules.write_price <= self._rules.read_price

    def _next_cut(self) -> tuple[int, int]:
        """Return the number of stale results that a cut hides, oldest first, and the freed tokens.

        The newest stale results remain if the request would be too short for the cache otherwise.
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
        """Return the cost of a cut: the remaining messages are written to the cache again."""
        return (self._seen - freed) * (self._rules.write_price - self._rules.read_price)

    def _cut_pays(self, freed: int) -> bool:
        """Return whether the accumulated cost of stale results has reached the cost of a cut."""
        if not freed:
            return False
        if self._prefix_broken or self._cacheless:
            return True
        cost = self._cost_of_cut(freed)
        affordable = self._lost + cost <= MOST_LOST * self._paid
        return affordable and self._carried * self._rules.read_price >= cost

    def _account_for_request(self, at: int) -> None:
        """Add the costs of the request answered by the reply at an index, and of its cut."""
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
        """Process a new result, which makes an older result of the same tool stale."""
        newest = self._newest[result.tool_name]
        newest.append(at)
        while len(newest) > result.ephemeral:
            index = newest.pop(0)
            if index < self._reply:
                self._add_stale([index])
            else:
                self._stale_unseen.append(index)

    def _add_stale(self, indices: Sequence[int]) -> None:
        """Add visible results that are at least twice as long as a placeholder."""
        for index in indices:
            freed = self._sizes[index] - PLACEHOLDER_TOKENS
            if freed >= PLACEHOLDER_TOKENS and index >= self._begin:
                self._stale.append(index)
                self._freed += freed

    def _set_stale(self, indices: Sequence[int]) -> None:
        """Replace the stale results by the visible results among `indices`."""
        self._stale = []
        self._freed = 0
        self._add_stale(indices)


def placeholder(result: ToolMessage, sources: Sequence[str] = ()) -> ToolMessage:
    """Return the placeholder of a result. `sources` are ways to read the result again."""
    size = f"{len(result.text):,} characters"
    text = f"Older result of {result.tool_name} removed ({size}). See newer results below."
    if sources:
        text += f" To read it, {' or '.join(sources)}."
    return replace(result, content=f"[{text}]")
