"""Forces the model to call a tool, or a certain tool, in its first reply to a prompt.

Copy with: the core.

    agent = Agent(llm=llm, tools=[search], tool_choice="search")
"""

from collections.abc import Sequence
from dataclasses import replace

from ..loop import Loop
from ..messages import AssistantMessage, Message, ToolChoice, UserMessage
from ..model import Request
from ..transcript import is_from_user


class ForcedTool(Loop):
    """Applies `tool_choice` to the first request after a prompt.

    tool_choice: "auto", "required", "none", or the name of the tool to call. Later requests use
        "auto", because a tool that is forced again and again would never let the model answer.
    """

    tool_choice: ToolChoice = "auto"

    async def call_model(self, request: Request) -> AssistantMessage:
        forces = self.tool_choice != "auto" and request.purpose == "turn"
        if forces and is_first_after_prompt(request.messages):
            known = ["required", "none", *(tool.name for tool in request.tools)]
            if self.tool_choice not in known:
                raise ValueError(f"tool_choice must be one of {known}, not {self.tool_choice!r}")
            request = replace(request, tool_choice=self.tool_choice)
        return await super().call_model(request)


def is_first_after_prompt(messages: Sequence[Message]) -> bool:
    """Whether nothing but notes follows the newest prompt."""
    for message in reversed(messages):
        if is_from_user(message):
            return True
        if not isinstance(message, UserMessage):
            return False
    return False
