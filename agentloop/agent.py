"""Agent: the loop with its usual mixins.

Copy with: the core, mixins/nested_calls.py, mixins/done.py, mixins/ephemeral.py,
mixins/compaction.py, mixins/interruption.py, mixins/final_summary.py, mixins/continuation.py,
mixins/forced_tool.py, mixins/histories.py, toolkits/recall.py, common/decides.py,
common/describe.py, common/hidden_text.py, common/keywords.py, common/model_info.py,
common/tokens.py, and models/openai_messages.py for histories of dicts.
"""

import logging
from collections.abc import Mapping, Sequence
from typing import Any, cast

from .common.decides import Decides
from .common.describe import describe
from .common.keywords import advising
from .loop import Loop
from .messages import Message
from .mixins.compaction import Compaction
from .mixins.continuation import Continuation
from .mixins.done import DoneTool
from .mixins.ephemeral import Ephemeral
from .mixins.final_summary import FinalSummary
from .mixins.forced_tool import ForcedTool
from .mixins.histories import Histories
from .mixins.interruption import Interruption
from .mixins.nested_calls import NestedCalls
from .toolkits.recall import recall
from .tools import Tool, by_name
from .transcript import Record
from .waiting import logger


class Agent(
    NestedCalls,
    Decides,
    DoneTool,
    Ephemeral,
    Compaction,
    Interruption,
    FinalSummary,
    Continuation,
    ForcedTool,
    Histories,
    Loop,
):
    """A loop with a done tool, ephemeral results and compaction, each with its settings.

        agent = Agent(llm=ChatOpenAI("gpt-5-mini"), tools=[search], system_prompt="Be brief.")
        result = await agent.run("...")              # in scripts: agent.run_sync("...")
        text = await agent.query("...")              # raises RunStopped if there's no answer
        city = (await agent.run_as(City, "...")).value
        async for event in agent.query_stream("..."): ...

    llm, tools, system_prompt: the model, its tools, and its instructions.
    max_iterations, max_parallel, max_result_chars, tool_timeout, on_tool_error: as in `Loop`.
    tool_choice: as in `ForcedTool`.
    dependency_overrides: `{dependency: replacement}`, mainly for tests.
    require_done_tool, output_type, done_nudge: as in `DoneTool`. By default a plain answer ends a
        run; `require_done_tool=True` requires the done tool.
    ephemeral_per_turn: as in `Ephemeral`.
    compaction, context_budget: as in `Compaction`; `compaction=None` disables both.
    recall_tool: a tool that searches dropped and pruned text, offered if a budget or an ephemeral
        tool may hide text; None disables the tool.
    listeners, cancel_timeout: as in `Loop`.
    """

    # defined here, so that a keyword of another library is answered, and `help` begins with them
    run = advising(Loop.run)
    run_sync = advising(Loop.run_sync)
    run_as = advising(DoneTool.run_as)
    query = advising(Loop.query)
    query_stream = advising(Loop.query_stream)

    require_done_tool = False
    recall_tool = recall

    def toolset(self) -> Sequence[Tool]:
        tools = super().toolset()
        budgeted = self.compaction and self.context_budget and tools
        hides = budgeted or any(tool.ephemeral for tool in tools)
        if not hides or not self.recall_tool or self.recall_tool.name in by_name(tools):
            return tools  # not offered without other tools; a tool of the same name has precedence
        return [*tools, self.recall_tool]

    def load_history(self, messages: Sequence[Message | Mapping[str, Any]]) -> None:
        """Replace the current history with these messages: see `Histories`.

        Dicts of Chat Completions are converted: see `from_openai`.
        """
        if any(isinstance(message, Mapping) for message in messages):
            from .models.openai_messages import from_openai

            messages = from_openai(messages)
        super().load_history(cast("Sequence[Message]", messages))

    def record(self, record: Record) -> None:
        super().record(record)
        if logger.isEnabledFor(logging.DEBUG):
            logger.debug("%s", describe(record))

    def __repr__(self) -> str:
        llm = f"{type(self.llm).__name__}({self.llm.model!r})"  # the model's repr may hold a key
        counts = f"{len(self.tools)} tools, {len(self.messages)} messages"
        return f"{type(self).__name__}({llm}, {counts})"
