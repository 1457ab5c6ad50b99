"""What the loop needs from a chat model, and what it asks: `ChatModel`, and one `Request`.

Copy with: events.py, messages.py, tools.py and their imports.
"""

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from .events import OnDelta
from .messages import AssistantMessage, Message, ToolChoice, frozen
from .tools import Tool


@runtime_checkable
class ChatModel(Protocol):
    """The interface of a chat model. With `on_delta`, it also streams the reply that it returns."""

    @property
    def model(self) -> str: ...

    async def ainvoke(
        self,
        messages: Sequence[Message],
        tools: Sequence[Tool] = (),
        *,
        tool_choice: ToolChoice = "auto",
        on_delta: OnDelta | None = None,
    ) -> AssistantMessage: ...


@frozen
class Request:
    """One model request. `purpose` is "step" for a turn of the loop.

    Mixins name other purposes for their own requests, such as "compaction". `model` takes the place
    of `agent.llm` for this request.
    """

    messages: Sequence[Message]
    tools: Sequence[Tool] = ()
    tool_choice: ToolChoice = "auto"
    purpose: str = "step"
    model: ChatModel | None = None
