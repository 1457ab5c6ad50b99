"""Who answers a request: a pattern without a model, a cheap model, or a strong one.

Use a `Router` where many requests are variations of ten sentences, as in customer support. A flow
is a tool that ends the run; a pattern calls it in place of the model. The agent can call the same
flows, use tools, or answer.

Use `Levels` if most turns are easy. A result that's an error, and a call of `think_harder`, raise
the level for the rest of the run. The level is computed from the log, so it survives a restart. It
only rises within a run, because the next model can't read the cache of the one before. The strong
level is a `Fallback`: during an outage, another provider answers.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

from agentloop import (
    Agent,
    AssistantMessage,
    ChatModel,
    Fallback,
    Loop,
    Overloaded,
    Request,
    ScriptedModel,
    TaskComplete,
    ToolCall,
    ToolError,
    ToolMessage,
    UserMessage,
    call,
    tool,
)
from agentloop.transcript import Records


class Router(Loop):
    """routes: flow names by pattern; the named groups of a pattern are the flow's arguments."""

    routes: Mapping[str, str] = {}

    async def call_model(self, request: Request) -> AssistantMessage:
        last = request.messages[-1]
        text = last.text.strip() if isinstance(last, UserMessage) and not last.hidden else ""
        for pattern, flow in self.routes.items():
            if match := re.fullmatch(pattern, text, re.IGNORECASE):
                flow_call = ToolCall("", flow, json.dumps(match.groupdict()))
                return AssistantMessage(tool_calls=(flow_call,))
        return await super().call_model(request)


class Levels(Loop):
    """levels: the models above `llm`, in order of strength."""

    levels: Sequence[ChatModel] = ()

    async def call_model(self, request: Request) -> AssistantMessage:
        level = min(difficulty(self.conversation.run), len(self.levels))
        if level and request.model is None:
            request = replace(request, model=self.levels[level - 1])
        return await super().call_model(request)


def difficulty(run: Records) -> int:
    """Count the errors of a run and its requests for a stronger model."""
    results = [record for record in run if isinstance(record, ToolMessage)]
    return sum(result.is_error or result.tool_name == "think_harder" for result in results)


@tool("Flow: cancel an order and inform the customer")
def cancel(order: int) -> None:
    raise TaskComplete(f"Order {order} is cancelled.")


@tool("Look up an order")
def look_up(order: int) -> str:
    if order > 1000:
        raise ToolError(f"There is no order {order}.")
    return f"Order {order}: one kettle, delivered 12 days ago."


@tool("Hand over a task that is too difficult to a stronger model")
def think_harder(why: str) -> str:
    return "You are the stronger model: continue."


class Desk(Router, Levels, Agent):
    tools = (cancel, look_up, think_harder)
    routes: Mapping[str, str] = {r"(please )?cancel (my )?order #?(?P<order>\d+)\W*": "cancel"}


if __name__ == "__main__":
    small = ScriptedModel(call("look_up", order=7000), call("cancel", order=8), model="small")
    down = ScriptedModel(Overloaded("529"), model="strong")
    other = ScriptedModel("Is it perhaps order 700?", model="other")
    desk = Desk(llm=small, levels=[Fallback(down, other)])
    for text in "Cancel order #5!", "Where is order 7000?", "Cancel 8, too.":
        print(f"{text} -> {desk.run_sync(text)}")
    print([reply.model for reply in desk.messages if isinstance(reply, AssistantMessage)])
