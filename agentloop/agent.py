"""The composition that most people want.

Copy with: the core, mixins/done.py, mixins/ephemeral.py, mixins/compaction.py, tokens.py.
"""

from __future__ import annotations

from .loop import Loop
from .mixins.compaction import Compaction
from .mixins.done import DoneTool
from .mixins.ephemeral import Ephemeral


class Agent(DoneTool, Ephemeral, Compaction, Loop):
    """A loop with a done tool, ephemeral results and compaction, each with its settings.

    A plain answer ends a run; `require_done_tool=True` asks for the done tool instead.
    """

    require_done_tool = False
