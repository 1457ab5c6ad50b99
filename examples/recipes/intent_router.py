"""An intent router: patterns handle simple requests without a model; an agent handles the rest.

Use a router for customer support, where half of the messages are variations of ten sentences. A
flow is a tool that ends the run; a pattern calls the flow in place of the model. The agent can call
the same flows, use tools, read a skill (instructions for one subject), or answer directly.
"""

import json
import re
from collections.abc import Mapping
from typing import Literal

from agentloop import Agent, AssistantMessage, Loop, Request, ScriptedModel, TaskComplete, tool
from agentloop.messages import ToolCall, UserMessage
from agentloop.models.scripted import call

SKILLS = {"returns": "Unopened: 30 days. Opened: a voucher.", "tone": "Brief. No jokes."}


class Router(Loop):
    """routes: flow names by pattern; the named groups of a pattern are the flow's arguments."""

    routes: Mapping[str, str] = {}

    async def call_model(self, request: Request) -> AssistantMessage:
        last = request.messages[-1]
        text = last.text.strip() if isinstance(last, UserMessage) and not last.hidden else ""
        for pattern, flow in self.routes.items():
            if match := re.fullmatch(pattern, text, re.IGNORECASE):
                call = ToolCall("", flow, json.dumps(match.groupdict()))
                return AssistantMessage(tool_calls=(call,))
        return await super().call_model(request)


@tool("Flow: cancel an order and inform the customer")
def cancel(order: int) -> None:
    raise TaskComplete(f"Order {order} is cancelled.")


@tool("Look up an order")
def look_up(order: int) -> str:
    return f"Order {order}: one kettle, delivered 12 days ago."


@tool("Read a skill before you act on its subject")
def skill(name: Literal["returns", "tone"]) -> str:
    return SKILLS[name]


class Desk(Router, Agent):
    tools = (cancel, look_up, skill)
    routes: Mapping[str, str] = {r"(please )?cancel (my )?order #?(?P<order>\d+)\W*": "cancel"}


if __name__ == "__main__":
    looks = [call("skill", name="returns"), call("look_up", order=7)]
    desk = Desk(llm=ScriptedModel(looks, "A voucher, then.", call("cancel", order=8), "Bye."))
    for text in "Cancel order #5!", "I opened the kettle of order 7.", "Cancel 8, too.", "Thanks":
        print(f"{text} -> {desk.run_sync(text)}")
