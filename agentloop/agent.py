"""Agent: the loop with its usual mixins.

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

    llm, tools, system_prompt: the model, its tools, and its instructions.
    max_iterations, tool_choice, max_parallel, max_result_chars, tool_timeout, on_tool_error: as in
        `Loop`.
    dependency_overrides: `{dependency: replacement}`, mainly for tests.
    require_done_tool, output_type, done_nudge: as in `DoneTool`. By default a plain answer ends a
        run; `require_done_tool=True` requires the done tool.
    ephemeral_per_turn, ephemeral_write_price, ephemeral_read_price: as in `Ephemeral`.
    compaction, context_budget: as in `Compaction`; `compaction=None` disables both. With a budget
        and tools, the tool `recall` searches dropped and pruned text.
    listeners, cancel_timeout: as in `BaseAgent`.
    """

    require_done_tool = False

    def toolset(self) -> Sequence[Tool]:
        tools = super().toolset()
        budgeted = self.compaction and self.context_budget
        if not budgeted or not tools or recall.name in by_name(tools):
            return tools  # an agent without tools gets none, and a custom `recall` is kept
        return [*tools, recall]
