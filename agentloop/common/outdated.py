"""Which results are outdated, because their tools have newer ones.

Copy with: transcript.py and its imports, common/pruned.py, common/summary.py, common/tokens.py.
"""

from __future__ import annotations

from bisect import insort
from collections import defaultdict

from ..messages import AssistantMessage, Message, ToolMessage
from ..transcript import Fold, Record, Records
from .pruned import Pruned
from .summary import Summary
from .tokens import message_tokens

PLACEHOLDER_TOKENS = 35  # about as long as a placeholder


class Outdated(Fold):
    """Finds the results that are outdated, because their tools have newer ones: see
    `Tool.ephemeral`.

    A result isn't outdated until the model has seen it, and never if it's hardly longer than a
    placeholder.

    indices: where the outdated results stand in the log, oldest first.
    sizes: the estimated tokens of every record, as the model sees it.
    freed: the tokens that placeholders for the outdated results would save.
    reply_index: where the newest reply is. The model has seen everything before it.
    """

    reply_index = 0
    freed = 0
    _begin = 0  # where the view begins, after a summary

    def __init__(self, log: Records) -> None:
        super().__init__(log)
        self.indices = list[int]()
        self.sizes = list[int]()
        self._newest = defaultdict[str, list[int]](list)  # the other results of each tool

    @property
    def call_ids(self) -> list[str]:
        """The ids of the calls whose results are outdated."""
        records = [self.log[at] for at in self.indices]
        return [record.tool_call_id for record in records if isinstance(record, ToolMessage)]

    def take(self, at: int, record: Record | Message) -> None:
        self.sizes.append(message_tokens(record) if isinstance(record, Message) else 0)
        if isinstance(record, AssistantMessage):
            self.reply_index = at
            for name in self._newest:
                self._age(name)
        elif isinstance(record, ToolMessage) and record.ephemeral:
            self._newest[record.tool_name].append(at)
            self._age(record.tool_name)
        elif isinstance(record, Pruned):
            for index, call_id in zip([*self.indices], self.call_ids, strict=True):
                if call_id in record.call_ids:
                    self._forget(index)
                    self.sizes[index] = PLACEHOLDER_TOKENS
        elif isinstance(record, Summary):
            self._begin = record.kept_from
            for index in [*self.indices]:
                if index < self._begin:
                    self._forget(index)

    def _age(self, tool_name: str) -> None:
        """Find out which results of a tool are outdated now: seen, and not among its newest."""
        newest = self._newest[tool_name]
        record = self.log[newest[-1]]
        keep = record.ephemeral if isinstance(record, ToolMessage) else 0
        while len(newest) > keep and newest[0] < self.reply_index:
            at = newest.pop(0)
            if at >= self._begin and self.sizes[at] >= 2 * PLACEHOLDER_TOKENS:
                insort(self.indices, at)
                self.freed += self.sizes[at] - PLACEHOLDER_TOKENS

    def _forget(self, at: int) -> None:
        self.indices.remove(at)
        self.freed -= self.sizes[at] - PLACEHOLDER_TOKENS
