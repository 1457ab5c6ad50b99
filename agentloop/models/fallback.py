"""Fallback: several chat models, tried in order until one answers.

Copy with: the core, common/model_info.py.

    llm = Fallback(ChatAnthropic("...", max_retries=1), ChatOpenAI("..."))

Each model retries before the next is tried: lower `max_retries` of all but the last.
"""

from collections.abc import Sequence
from dataclasses import replace
from time import monotonic

from ..common.model_info import (
    CacheRules,
    cache_rules,
    compact_threshold,
    loads_tools,
    output_limit,
)
from ..errors import (
    ConnectionFailed,
    ModelError,
    Overloaded,
    RateLimited,
    ServerError,
    attempts_of,
)
from ..events import Delta, OnDelta, ToolCallDeltaEvent
from ..messages import AssistantMessage, Attempt, Message, ToolChoice
from ..model import ChatModel
from ..tools import Tool

DOWN = (ConnectionFailed, RateLimited, Overloaded, ServerError)


class Fallback:
    """Tries models in order until one answers. A failure that comes after streamed text is final.

    errors: exceptions after which the next model is tried. Others, such as BadRequest, are raised
        at once.
    cooldown: seconds in which a model that's down is tried last. The provider may ask for more.
    """

    def __init__(
        self,
        *models: ChatModel,
        errors: tuple[type[ModelError], ...] = DOWN,
        cooldown: float = 60.0,
    ) -> None:
        if not models or not all(hasattr(model, "ainvoke") for model in models):
            raise TypeError(f"Fallback takes chat models, which have ainvoke(), not {models!r:.80}")
        self.models = models
        self.errors = errors
        self.cooldown = cooldown
        self._down_until: dict[int, float] = {}  # by the identity of the model

    def __repr__(self) -> str:
        return f"Fallback({', '.join(map(repr, self.models))})"

    @property
    def model(self) -> str:
        """The name of the model that the next request tries first."""
        return self._order()[0].model

    @property
    def cache_rules(self) -> CacheRules:
        """The cache rules of the first model, even while it's down."""
        return cache_rules(self.models[0])

    @property
    def output_limit(self) -> int:
        """The highest output limit of the models."""
        return max(map(output_limit, self.models))

    @property
    def loads_tools(self) -> bool:
        """Whether every model can get more tools in the middle of a conversation."""
        return all(map(loads_tools, self.models))

    @property
    def compact_threshold(self) -> int:
        """The lowest threshold; 0 if a provider doesn't compact."""
        return min(map(compact_threshold, self.models))

    def _order(self) -> list[ChatModel]:
        """The models in the order in which they're tried, those that are down last."""
        now = monotonic()
        return sorted(self.models, key=lambda model: self._down_until.get(id(model), now) > now)

    async def ainvoke(
        self,
        messages: Sequence[Message],
        tools: Sequence[Tool] = (),
        *,
        tool_choice: ToolChoice = "auto",
        on_delta: OnDelta | None = None,
    ) -> AssistantMessage:
        """Get the reply of the first model that answers.

        If none does, raises the last exception, with the earlier ones as notes.
        """
        shown = False
        notes: list[str] = []
        attempts: tuple[Attempt, ...] = ()  # of earlier models; they may be billed

        def show(delta: Delta) -> None:
            nonlocal shown
            shown = shown or not isinstance(delta, ToolCallDeltaEvent)
            if on_delta:
                on_delta(delta)

        models = self._order()
        while True:
            model = models.pop(0)
            try:
                reply = await model.ainvoke(
                    messages, tools, tool_choice=tool_choice, on_delta=on_delta and show
                )
                return replace(
                    reply,
                    model=reply.model or model.model,
                    attempts=(*attempts, *reply.attempts),
                )
            except BaseException as error:
                attempts = vars(error)["attempts"] = (*attempts, *attempts_of(error))
                if not isinstance(error, ModelError):
                    raise
                for note in notes:
                    error.add_note(note)
                if not isinstance(error, self.errors):
                    raise
                pause = max(self.cooldown, error.retry_after or 0.0)
                self._down_until[id(model)] = monotonic() + pause
                if shown or not models:
                    raise
                notes.append(f"earlier, {model!r}: {type(error).__name__}: {error}")
