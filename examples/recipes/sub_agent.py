"""Sub-agents: each reads much, and the agent that asked sees one sentence of it.

One wants them when a side task would fill the conversation: a search, a long file, a log. Each call
runs a fork of its agent, so it begins with an empty log and calls run side by side. Its requests
count for the caller as they happen: in its usage, its bill and its limits. `as_tool` makes one
agent a tool.
"""

import asyncio
from collections.abc import Sequence

from agentloop import Agent, AssistantMessage, Limits, Message, ScriptedModel, Usage, tool
from agentloop.events import SubAgentEvent
from agentloop.models.scripted import call
from agentloop.toolkits.subagent import as_tool

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


class Boss(Limits, Agent):
    max_requests = 10


reader = Agent(llm=ScriptedModel(read_and_tell, model="small"), tools=[read])
research = as_tool(reader, "research", "Have a page read for you, and get what matters in it")


def show(event: object) -> None:
    """Events of a sub-agent come inside of one that says whose they are."""
    if isinstance(event, SubAgentEvent) and hasattr(event.event, "args"):
        print(f"{event.agent}: {event.event.tool}({event.event.args})")


if __name__ == "__main__":
    both = [call("research", prompt="moon"), call("research", prompt="sun")]
    llm = ScriptedModel(both, "The moon is nearer.")
    boss = Boss(llm=llm, tools=[research], listeners=[show])
    print(asyncio.run(boss.query("Which is nearer?")))
    print("read:", sum(map(len, PAGES.values())), "characters")
    print("seen:", sum(len(message.text) for message in boss.messages), "characters")
    print("billed:", boss.usage.total_tokens, "tokens")
