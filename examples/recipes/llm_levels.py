"""LLM levels: a cheap model works, and a strong one takes over when it gets difficult.

One wants it when most turns are easy. An error result raises the level for the rest of the run, and
so does a call of `think_harder`; the level is counted in the log, so a restart keeps it. The strong
level is a `Fallback`, which asks another provider when the first is down. Each change of models
costs what the new one's cache does not hold, so levels only rise.
"""

from collections.abc import Sequence
from dataclasses import replace

from agentloop import Agent, ChatModel, Fallback, Loop, Request, ScriptedModel, tool
from agentloop import messages as m
from agentloop.errors import Overloaded, ToolError
from agentloop.models.scripted import call
from agentloop.transcript import Records


def difficulty(run: Records) -> int:
    """How often a run met an error, or asked for a stronger model."""
    results = [record for record in run if isinstance(record, m.ToolMessage)]
    return sum(result.is_error or result.tool_name == "think_harder" for result in results)


class Levels(Loop):
    """levels: the models above `llm`, each stronger than the one before it."""

    levels: Sequence[ChatModel] = ()

    async def call_model(self, request: Request) -> m.AssistantMessage:
        level = min(difficulty(self.conversation.run), len(self.levels))
        if level and request.model is None:
            request = replace(request, model=self.levels[level - 1])
        return await super().call_model(request)


@tool("Hand over to a stronger model, if this is too difficult")
def think_harder(why: str) -> str:
    return "You are the stronger model: go on."


@tool("Divide")
def divide(a: int, b: int) -> float:
    if b == 0:
        raise ToolError("Nothing divides by zero.")
    return a / b


class Thinker(Levels, Agent):
    tools = (divide, think_harder)


if __name__ == "__main__":
    small = ScriptedModel(call("divide", a=1, b=0), "4 is half of 8.", model="small")
    down = ScriptedModel(Overloaded("529"), model="strong")
    other = ScriptedModel("Nothing divides by zero.", model="other")
    thinker = Thinker(llm=small, levels=[Fallback(down, other)])
    for said in "What is 1 / 0?", "What is half of 8?":
        print(thinker.run_sync(said))
    print([each.model for each in thinker.messages if isinstance(each, m.AssistantMessage)])
