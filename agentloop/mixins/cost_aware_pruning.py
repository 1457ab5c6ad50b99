"""Old results of a tool are hidden once that is cheaper than reading them again and again.

Copy with: the core, common/ledger.py, common/model_info.py, common/outdated.py,
common/pruned.py, common/summary.py, common/tokens.py.

    @tool(ephemeral=2)
    async def screenshot() -> ImagePart: ...

`@tool(ephemeral=2)` keeps at least the newest two results of the tool. In what the model sees, a
short placeholder takes the place of an older one; the log keeps everything.

A pruning changes the beginning of the request, so the provider has to write what follows to its
cache again. Outdated results therefore stay until reading them has cost as much as that (rent or
buy: no forecast is needed), and then go together. All prunings of a log together cost at most a
tenth more than none, and what stays is long enough for the provider's cache. If a provider never
reports cached tokens, outdated results go at once.
"""

from __future__ import annotations

from ..common.model_info import cache_rules
from ..common.pruned import Pruned
from ..events import PruneEvent
from ..loop import Loop
from ..messages import Message


class CostAwarePruning(Loop):
    """Replaces old results of tools made with `ephemeral=N` by placeholders, when that pays.

    The prices are those of the model's `cache_rules`: see common/model_info.py.
    """

    async def context(self) -> list[Message]:
        if not any(tool.ephemeral for tool in self.toolset()):
            return await super().context()
        from ..common.ledger import Ledger

        due = self.fold(Ledger, cache_rules(self.llm)).due
        if due:
            self.record(Pruned(due))
            self.emit(PruneEvent(due))
        return await super().context()
