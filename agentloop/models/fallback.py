"""A chat model that asks the next one when the first is down.

Copy with: messages.py, events.py, errors.py.

    llm = Fallback(ChatAnthropic("...", max_retries=1), ChatOpenAI("..."))

Each model retries on its own first: give those before the last few retries.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from ..errors import ConnectionFailed, ModelError, Overloaded, RateLimited, ServerError
from ..events import OnDelta, TextDeltaEvent, ThinkingDeltaEvent
from ..messages import AssistantMessage, Message, ToolChoice

if TYPE_CHECKING:
    from ..loop import ChatModel
    from ..tools import Tool

logger = logging.getLogger("agentloop")

DOWN = (ConnectionFailed, RateLimited, Overloaded, ServerError)


class Fallback:
    """The first of some models that is up. None is asked after another has shown a delta.

    errors: what counts as down; a request that is refused as such is not tried elsewhere.
    cooldown: seconds for which a model that was down is passed over, or longer if it says so. If
    all are, they are asked all the same, in their order.
    """

    def __init__(
        self,
        *models: ChatModel,
        errors: tuple[type[ModelError], ...] = DOWN,
        cooldown: float = 60.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if not models:
            raise ValueError("Fallback needs models to choose from")
        self.models, self.errors, self.cooldown, self.clock = models, errors, cooldown, clock
        self._down_until = [float("-inf")] * len(models)

    def __repr__(self) -> str:
        return f"Fallback({', '.join(map(repr, self.models))})"

    @property
    def model(self) -> str:
        """The name of the model that is asked first at the moment."""
        return self.models[self._up()[0]].model

    def _up(self) -> Sequence[int]:
        """The numbers of the models to ask, in order."""
        now, numbers = self.clock(), range(len(self.models))
        return [number for number in numbers if self._down_until[number] <= now] or numbers

    async def ainvoke(
        self,
        messages: Sequence[Message],
        tools: Sequence[Tool] = (),
        *,
        tool_choice: ToolChoice = "auto",
        on_delta: OnDelta | None = None,
    ) -> AssistantMessage:
        """The answer of the first model that gives one.

        Raises the last error, with those before it in its notes.
        """
        shown = False

        def show(delta: TextDeltaEvent | ThinkingDeltaEvent) -> None:
            nonlocal shown
            shown = True
            if on_delta is not None:
                on_delta(delta)

        listener = show if on_delta is not None else None
        notes: list[str] = []
        *others, last = self._up()
        for number in (*others, last):
            model = self.models[number]
            try:
                reply = await model.ainvoke(
                    messages, tools, tool_choice=tool_choice, on_delta=listener
                )
                return reply if reply.model else replace(reply, model=model.model)
            except ModelError as error:
                for note in notes:
                    error.add_note(note)
                if isinstance(error, self.errors):
                    wait = max(self.cooldown, error.retry_after or 0.0)
                    self._down_until[number] = self.clock() + wait
                if shown or number == last or not isinstance(error, self.errors):
                    raise
                logger.info("%r is down, so the next is asked: %s", model, error)
                notes.append(f"before it, {model!r}: {type(error).__name__}: {error}")
        raise AssertionError("there is a last model")
