"""LLM levels: a cheap model starts, and a strong model takes over difficult tasks.

Use levels when most turns are easy. Error results and calls of `think_harder` raise the level for
the rest of the run. The level is computed from the log and therefore survives a restart. The strong
level is a `Fallback`, which switches to another provider during an outage of the first. Within
a run levels only rise, because the cache of the previous model does not help the next model.
"""

from collections.abc import Sequence
from dataclasses import replace

from agentloop import Agent, ChatModel, Fallback, Loop, Request, ScriptedModel, tool
from agentloop import messages as m
from agentloop.errors import Overloaded, ToolError
from agentloop.models.scripted import call
from agentloop.transcript import Records


def difficulty(run: Records) -> int:
    """Count the errors of a run and its requests for a stronger model."""
    results = [record for record in run if isinstance(record, m.ToolMessage)]
    return sum(result.is_error or result.tool_name == "think_harder" for result in results)


class Levels(Loop):
    """levels: the models above `llm`, in order of strength."""

    levels: Sequence[ChatModel] = ()

    async def call_model(self, request: Request) -> m.AssistantMessage:
        level = min(difficulty(self.conversation.run), len(self.levels))
        if level and request.model is None:
            request = replace(request, model=self.levels[level - 1])
        return await super().call_model(request)


@tool("Hand over a task that is too difficult to a stronger model")
def think_harder(why: str) -> str:
    return "You are the stronger model: continue."


@tool("Divide")
def divide(a: int, b: int) -> float:
    if b == 0:
        raise ToolError("Division by zero is undefined.")
    return a / b


class Thinker(Levels, Agent):
    tools = (divide, think_harder)


if __name__ == "__main__":
    small = ScriptedModel(call("divide", a=1, b=0), "4 is half of 8.", model="small")
    down = ScriptedModel(Overloaded("529"), model="strong")
    other = ScriptedModel("Division by zero is undefined.", model="other")
    thinker = Thinker(llm=small, levels=[Fallback(down, other)])
    for prompt in "What is 1 / 0?", "What is half of 8?":
        print(thinker.run_sync(prompt))
    print([reply.model for reply in thinker.messages if isinstance(reply, m.AssistantMessage)])
