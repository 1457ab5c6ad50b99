"""What the loop needs of a chat model, `ChatModel`, and what it sends, one `Request`.

Copy with: events.py, messages.py, tools.py and their imports.
"""

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from .events import OnDelta
from .messages import AssistantMessage, Message, ToolChoice, frozen
from .tools import Tool


@runtime_checkable
class ChatModel(Protocol):
    """What a chat model must have. If it gets an `on_delta`, it also streams the reply."""

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
    """One model request. `purpose` is "turn" for a turn of the loop.

    The requests of mixins have other purposes, such as "compaction". `model` takes the place of
    `agent.llm` for this request.
    """

    messages: Sequence[Message]
    tools: Sequence[Tool] = ()
    tool_choice: ToolChoice = "auto"
    purpose: str = "turn"
    model: ChatModel | None = None
