"""Requests keep to a budget: old turns leave the view before any summary is needed.

Copy with: the core, common/dropped_turns.py, common/model_info.py, common/request_size.py,
common/summary.py, common/tokens.py, common/turns.py.

    agent = Agent(llm=llm, context_budget=16_000)

No model is asked. The newest names and numbers of the dropped turns stay in a list, until a summary
by the model replaces it. The model finds the rest with the tool `recall`, which an `Agent` then
offers. System messages, the first task, the user's messages since the newest prompt, and results
that the model hasn't seen stay word for word. The log keeps everything.
"""

from __future__ import annotations

from pydantic import PositiveInt

from ..common.model_info import cache_rules, compact_threshold
from ..common.request_size import MeasuresRequests
from ..messages import AssistantMessage
from ..model import Request


class ContextBudget(MeasuresRequests):
    """Drops the oldest turns from requests that would be longer than a budget.

    context_budget: how many tokens a request may have; with None, nothing is dropped. 16,000 suits
        most models: long recorded runs cost 0.36 to 0.74 of what they cost unpruned. Use 24,000 if
        the provider only caches prefixes of at least 4,096 tokens (Gemini, some Claude models). The
        cheaper a model reads its cache, the less a budget saves, and you get a warning if it may
        cost more (16,000 with Claude Fable 5.1 and 5.2). If a request is still more than 5 % over
        the budget after its old turns are dropped, it's sent all the same: you get a warning and an
        OverBudgetEvent.
    """

    context_budget: PositiveInt | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.context_budget:
            return
        if compact_threshold(self.llm):
            raise ValueError(
                "context_budget doesn't work with the model's compact_threshold: remove one of them"
            )
        from ..common.dropped_turns import warn_unless_it_pays

        warn_unless_it_pays(self.context_budget, self.llm.model, cache_rules(self.llm))

    async def call_model(self, request: Request) -> AssistantMessage:
        budget = self.context_budget
        is_long = budget and request.purpose == "turn" and self.request_tokens(request) >= budget
        if budget and is_long and not self.summary_is_due:
            from ..common.dropped_turns import drop_turns

            request = await drop_turns(self, request, budget)
        return await super().call_model(request)
