"""The composition that most people want.

Copy with: the core, mixins/done.py, mixins/ephemeral.py, mixins/compaction.py, toolkits/recall.py,
common/tokens.py.
"""

from collections.abc import Sequence

from .loop import Loop
from .mixins.compaction import Compaction
from .mixins.done import DoneTool
from .mixins.ephemeral import Ephemeral
from .toolkits.recall import recall
from .tools import Tool, by_name


class Agent(DoneTool, Ephemeral, Compaction, Loop):
    """A loop with a done tool, ephemeral results and compaction, each with its settings.

    llm, tools, system_prompt: the model, what it may call, and what it is told first.
    max_iterations, tool_choice, max_parallel, max_result_chars, tool_timeout, on_tool_error: as in
        `Loop`.
    dependency_overrides: `{dependency: replacement}`, for tests above all.
    require_done_tool, output_type, done_nudge: as in `DoneTool`. A plain answer ends a run here;
        `require_done_tool=True` asks for the done tool instead.
    ephemeral_per_turn, ephemeral_write_price, ephemeral_read_price: as in `Ephemeral`.
    compaction, context_budget: as in `Compaction`; `compaction=None` turns both off.
        With a budget and tools, the tool `recall` finds what is no longer in view.
    listeners, cancel_timeout: as in `BaseAgent`.
    """

    require_done_tool = False

    def toolset(self) -> Sequence[Tool]:
        tools = super().toolset()
        budgeted = self.compaction and self.context_budget
        if not budgeted or not tools or recall.name in by_name(tools):
            return tools  # an agent without tools stays without, and an own `recall` stays
        return [*tools, recall]
