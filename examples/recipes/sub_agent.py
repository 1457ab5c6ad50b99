"""A sub-agent as a tool: it reads much, and its caller sees one sentence of it.

One wants it when a side task would fill the conversation: a search, a long file, a log. Each call
runs a fork of a template, so it begins with an empty log and calls run side by side; `run_counted`
adds their tokens to the caller's, so that bills and limits hold for both.
"""

import asyncio
from collections.abc import Sequence
from typing import Annotated

from agentloop import Agent, AssistantMessage, Depends, Loop, Message, ScriptedModel, Usage, tool
from agentloop.depends import current_agent
from agentloop.mixins.cost import run_counted
from agentloop.models.scripted import call

PAGES = {"moon": "Dust. " * 900 + "384,400 km away.", "sun": "Hot. " * 900 + "8 light minutes."}


@tool("Read a page, whole")
def read(page: str) -> str:
    return PAGES[page]


def read_and_tell(messages: Sequence[Message], tools: object) -> AssistantMessage:
    """Stands in for a small model: reads the page that it is asked about, and tells its end."""
    if len(messages) == 1:
        asked = call("read", page=messages[0].text)
        return AssistantMessage(tool_calls=(asked,), usage=Usage(50, 10))
    return AssistantMessage(messages[-1].text.split(". ")[-1], usage=Usage(1_400, 20))


def reader() -> Agent:
    """The template of the sub-agents."""
    return Agent(llm=ScriptedModel(read_and_tell, model="small"), tools=[read])


@tool("Have a page read for you, and get what matters in it")
async def research(
    page: str,
    template: Annotated[Agent, Depends(reader)],
    agent: Annotated[Loop, Depends(current_agent)],
) -> str:
    result = await run_counted(agent, template.fork(), page)
    return result.text if result.stop_reason == "completed" else f"Gave up: {result.stop_reason}"


if __name__ == "__main__":
    both = [call("research", page="moon"), call("research", page="sun")]
    boss = Agent(llm=ScriptedModel(both, "The moon is nearer."), tools=[research])
    print(asyncio.run(boss.query("Which is nearer?")))
    print("read:", sum(map(len, PAGES.values())), "characters")
    print("seen:", sum(len(message.text) for message in boss.messages), "characters")
    print("billed:", boss.usage.total_tokens, "tokens")
