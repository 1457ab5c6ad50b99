"""The model sees only the newest results of a tool: screenshots, pages, searches.

Copy with: the core, common/outdated.py, common/pruned.py, common/summary.py,
common/tokens.py.

    @tool(ephemeral=2)
    async def screenshot() -> ImagePart: ...

`@tool(ephemeral=2)` keeps the newest two results of the tool. The model sees a short placeholder
instead of an older one; the log keeps everything. Results that the model hasn't read yet stay, and
so do those of fewer than 70 tokens, which are hardly longer than a placeholder.

If you hide a result in the middle of a request, the provider can't read what follows from its
cache. So outdated results are hidden in batches. `Agent` has `CostAwarePruning` instead, which
waits until it pays.
"""

from __future__ import annotations

from pydantic import PositiveInt

from ..common.outdated import Outdated
from ..common.pruned import Pruned
from ..events import PruneEvent
from ..loop import Loop
from ..messages import Message


class Ephemeral(Loop):
    """Hides old results of tools that have `ephemeral=N`.

    ephemeral_batch: how many outdated results to hide together; with 1, each goes at once.
    """

    ephemeral_batch: PositiveInt = 8

    async def context(self) -> list[Message]:
        outdated = self.fold(Outdated).call_ids
        if len(outdated) >= self.ephemeral_batch:
            self.record(Pruned(outdated))
            self.emit(PruneEvent(outdated))
        return await super().context()
