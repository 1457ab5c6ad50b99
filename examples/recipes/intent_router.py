"""An intent router: what a pattern catches reaches no model, and the rest goes to an agent.

One wants it for a support desk, where half of what people write is one of ten sentences. A flow is
a tool that ends the run; a pattern calls it in the model's place. The agent may take the same flow,
use tools, read a skill (instructions for one subject), or just answer.
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
    """routes: a flow's name by its pattern, whose named groups are the flow's arguments."""

    routes: Mapping[str, str] = {}

    async def call_model(self, request: Request) -> AssistantMessage:
        last = request.messages[-1]
        said = last.text.strip() if isinstance(last, UserMessage) and not last.hidden else ""
        for pattern, flow in self.routes.items():
            if found := re.fullmatch(pattern, said, re.IGNORECASE):
                asked = ToolCall("", flow, json.dumps(found.groupdict()))
                return AssistantMessage(tool_calls=(asked,))
        return await super().call_model(request)


@tool("Flow: cancel an order, and tell the customer so")
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
    for said in "Cancel order #5!", "I opened the kettle of order 7.", "No 8 either.", "Thanks":
        print(f"{said} -> {desk.run_sync(said)}")
