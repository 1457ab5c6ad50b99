"""Only the newest results of a tool stay in view: of a screenshot, of a page, of a search.

Copy with: the core, common/outdated.py, common/pruned.py, common/summary.py,
common/tokens.py.

    @tool(ephemeral=2)
    async def screenshot() -> ImagePart: ...

`@tool(ephemeral=2)` keeps the newest two results of the tool. In what the model sees, a short
placeholder takes the place of an older one; the log keeps everything. Results that the model hasn't
read yet stay.

Each pruning changes the beginning of the request, which the provider then can't read from its
cache. Outdated results are therefore replaced in batches. `Agent` has `CostAwarePruning` instead,
which chooses the time by what it costs.
"""

from __future__ import annotations

from pydantic import PositiveInt

from ..common.outdated import Outdated
from ..common.pruned import Pruned
from ..events import PruneEvent
from ..loop import Loop
from ..messages import Message


class Ephemeral(Loop):
    """Replaces old results of tools made with `ephemeral=N` by placeholders.

    ephemeral_batch: how many outdated results are replaced together; 1 replaces each at once.
    """

    ephemeral_batch: PositiveInt = 8

    async def context(self) -> list[Message]:
        outdated = self.fold(Outdated).call_ids
        if len(outdated) >= self.ephemeral_batch:
            self.record(Pruned(outdated))
            self.emit(PruneEvent(outdated))
        return await super().context()
