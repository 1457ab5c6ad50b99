"""Agent: the loop with its usual mixins.

Copy with: the core, common/decides.py, common/describe.py, common/dropped_turns.py,
common/guidance.py, common/ledger.py, common/model_info.py, common/nudge.py, common/pruned.py,
common/request_size.py, common/summary.py, common/tokens.py, common/turns.py,
common/typed_answer.py, common/windows.py, mixins/compaction.py, mixins/context_budget.py,
mixins/continuation.py, mixins/cost_aware_pruning.py, mixins/done.py, mixins/final_summary.py,
mixins/forced_tool.py, mixins/histories.py, mixins/interruption.py, mixins/nested_calls.py,
mixins/structured_output.py, toolkits/recall.py, and models/openai_messages.py for histories of
dicts.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any, cast

from .common.decides import Decides
from .common.describe import describe
from .common.guidance import ShortHelp, advising
from .loop import Loop
from .messages import Message
from .mixins.compaction import Compaction
from .mixins.context_budget import ContextBudget
from .mixins.continuation import Continuation
from .mixins.cost_aware_pruning import CostAwarePruning
from .mixins.done import DoneTool
from .mixins.final_summary import FinalSummary
from .mixins.forced_tool import ForcedTool
from .mixins.histories import Histories
from .mixins.interruption import Interruption
from .mixins.nested_calls import NestedCalls
from .mixins.structured_output import StructuredOutput
from .tools import Tool
from .transcript import Record
from .waiting import logger


class Agent(
    NestedCalls,
    Decides,
    DoneTool,
    ForcedTool,
    StructuredOutput,
    CostAwarePruning,
    ContextBudget,
    Compaction,
    Interruption,
    FinalSummary,
    Continuation,
    Histories,
    Loop,
    metaclass=ShortHelp,
):
    """An agent: a chat model that calls tools in a loop until it has an answer.

        agent = Agent(llm=ChatOpenAI("gpt-5.4-mini"), tools=[search], system_prompt="Be brief.")
        result = await agent.run("...")              # in scripts: agent.run_sync("...")
        text = await agent.query("...")              # the answer; RunStopped if there's none
        city = (await agent.run_as(City, "...")).value
        async for event in agent.query_stream("..."): ...

    llm: the chat model.
    tools: what the model may call: functions with `@tool`.
    system_prompt: the instructions, or a function that gets the agent and returns them.
    max_iterations: how many turns (model calls) a run may take.
    output_type: the type of `result.value`: a pydantic model, a dataclass, `list[int]`, ...
    require_done_tool: whether the model must call a done tool to end a run. By default, a plain
        answer ends it.
    done_nudge: what the model reads if it answers but doesn't call the done tool; `{tool}` becomes
        the tool's name.
    tool_choice: whether the first reply to a prompt may call tools ("auto"), must ("required"),
        must not ("none"), or must call one tool (its name).
    context_budget: how many tokens a request may have before the oldest turns are dropped: 16_000
        suits most models. The newest names and numbers of the dropped turns stay.
    compaction: a `CompactionConfig` that says when to summarize, by default at 80 % of the model's
        context window. With None, only `agent.compact()` summarizes.
    offer_recall: whether the model may search dropped and hidden text with the tool `recall`. An
        agent with tools offers it if a budget or an ephemeral tool may hide text, unless one of its
        tools has that name.
    max_parallel: how many calls may run at the same time.
    max_result_chars: how long a tool result may be; the middle of a longer one is left out.
    tool_timeout: how many seconds a call may take, unless its tool has its own `timeout`.
    on_tool_error: "return" shows a tool's exception to the model; "raise" ends the run with it,
        unless it's a ToolError.
    dependency_overrides: `{dependency: replacement}`, mainly for tests.
    listeners: functions that are called with every event.
    cancel_timeout: how many seconds to wait for a tool that was cancelled.

    `help(Loop)` lists what mixins use, and the classes below describe their settings in full.
    """

    # defined here, so that a keyword of another library is answered, and `help` begins with them
    run = advising(Loop.run)
    run_sync = advising(Loop.run_sync)
    run_as = advising(StructuredOutput.run_as)
    query = advising(Loop.query)
    query_stream = advising(Loop.query_stream)

    require_done_tool = False
    offer_recall: bool = True

    def toolset(self) -> Sequence[Tool]:
        tools = super().toolset()
        may_hide = (self.context_budget and self.tools) or any(tool.ephemeral for tool in tools)
        if not may_hide or not self.offer_recall:
            return tools
        from .toolkits.recall import recall

        return tools if recall.name in [tool.name for tool in tools] else [*tools, recall]

    def load_history(self, messages: Sequence[Message | Mapping[str, Any]]) -> None:
        """Continue with these messages instead of the current history: see `Histories`.

        They may be dicts of Chat Completions, too: see `from_openai`.
        """
        if any(isinstance(message, Mapping) for message in messages):
            from .models.openai_messages import from_openai  # optional

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
