"""Old results of a tool are hidden once that is cheaper than reading them again and again.

Copy with: the core, common/ledger.py, common/model_info.py, common/outdated.py,
common/pruned.py, common/summary.py, common/tokens.py.

    @tool(ephemeral=2)
    async def screenshot() -> ImagePart: ...

`@tool(ephemeral=2)` keeps at least the newest two results of the tool. The model sees a short
placeholder instead of an older one; the log keeps everything. Results of fewer than 70 tokens stay:
they're hardly longer than a placeholder.

If you hide a result in the middle of a request, the provider has to write all that follows to its
cache again. So outdated results stay until reading them has cost as much as that would, and then go
together, so nothing has to be forecast. All this may make a log cost at most a tenth more than if
nothing were hidden, and what stays is long enough for the provider's cache. If the provider hasn't
reported any cached tokens after three requests that were long enough, outdated results go at once.
"""

from __future__ import annotations

from ..common.model_info import cache_rules
from ..common.pruned import Pruned
from ..events import PruneEvent
from ..loop import Loop
from ..messages import Message


class CostAwarePruning(Loop):
    """Hides old results of tools that have `ephemeral=N`, as soon as that pays.

    The prices come from the model's `cache_rules`: see common/model_info.py.
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
