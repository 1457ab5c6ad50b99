"""Sub-agents: a sub-agent reads long texts, and the calling agent receives one sentence.

Use sub-agents for side tasks that would fill the conversation: a search, a long file, a log.
`as_tool` converts an agent to a tool. Calls execute a fork of the agent, with an empty log, and run
concurrently. Requests of sub-agents count immediately in the usage, the bill and the limits of the
calling agent.
"""

import asyncio
from collections.abc import Sequence

from agentloop import Agent, AssistantMessage, Limits, Message, ScriptedModel, Usage, call, tool
from agentloop.events import SubAgentEvent
from agentloop.toolkits.subagent import as_tool

PAGES = {"moon": "Dust. " * 900 + "384,400 km away.", "sun": "Hot. " * 900 + "8 light minutes."}


@tool("Read a complete page")
def read(page: str) -> str:
    return PAGES[page]


def summarize(messages: Sequence[Message], tools: object) -> AssistantMessage:
    """Simulate a small model: read the page that the prompt names, and return its last sentence."""
    if len(messages) == 1:
        reading = call("read", page=messages[0].text)
        return AssistantMessage(tool_calls=(reading,), usage=Usage(50, 10))
    return AssistantMessage(messages[-1].text.split(". ")[-1], usage=Usage(1_400, 20))


class Boss(Limits, Agent):
    max_requests = 10


reader = Agent(llm=ScriptedModel(summarize, model="small"), tools=[read])
research = as_tool(reader, "research", "Have a page read, and receive its essential content")


def show(event: object) -> None:
    """Print calls of sub-agents, whose events are wrapped in a SubAgentEvent with the name."""
    if isinstance(event, SubAgentEvent) and hasattr(event.event, "args"):
        print(f"{event.agent}: {event.event.tool}({event.event.args})")


if __name__ == "__main__":
    both = [call("research", prompt="moon"), call("research", prompt="sun")]
    llm = ScriptedModel(both, "The moon is nearer.")
    boss = Boss(llm=llm, tools=[research], listeners=[show])
    print(asyncio.run(boss.query("Which is nearer?")))
    print("read:", sum(map(len, PAGES.values())), "characters")
    print("received:", sum(len(message.text) for message in boss.messages), "characters")
    print("billed:", boss.usage.total_tokens, "tokens")
