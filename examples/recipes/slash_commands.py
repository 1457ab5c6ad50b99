"""Slash commands: some act on the conversation, others stand for a prompt.

One wants them in a chat, where a person steers. A command is a function of the agent that gives
the agent to go on with: `/undo` gives a fork from before the last question. `/review FILE` is a
prompt that nobody likes to type. What is no command goes to the model.
"""

from collections.abc import Callable
from difflib import get_close_matches

from agentloop import Agent, AssistantMessage, ScriptedModel, Usage
from agentloop.messages import RunStart

PROMPTS = {
    "/review": "Review {}: say what is wrong, worst first, with line numbers.",
    "/explain": "Explain {} to somebody who is new here, in five sentences.",
}


def undo(agent: Agent) -> Agent:
    """Forget the last question and its answer."""
    starts = [at for at, record in enumerate(agent.log) if isinstance(record, RunStart)]
    return agent.fork(at=starts[-1]) if starts else agent


def clear(agent: Agent) -> Agent:
    """Begin a new conversation."""
    return agent.fork(at=0)


def usage(agent: Agent) -> Agent:
    """Say how many tokens this conversation took."""
    print(f"{agent.usage.total_tokens} tokens")
    return agent


COMMANDS: dict[str, Callable[[Agent], Agent]] = {f"/{f.__name__}": f for f in (undo, clear, usage)}


def take(agent: Agent, line: str) -> Agent:
    """Do what a line says; the agent to go on with."""
    name, _, rest = line.strip().partition(" ")
    if name in COMMANDS:
        return COMMANDS[name](agent)
    if name.startswith("/") and name not in PROMPTS:
        near = get_close_matches(name, [*PROMPTS, *COMMANDS], n=1)
        print(f"There is no {name}.", *(f"Did you mean {each}?" for each in near))
        return agent
    print(agent.run_sync(PROMPTS[name].format(rest) if name in PROMPTS else line))
    return agent


if __name__ == "__main__":
    said = AssistantMessage("Line 3 adds where it should multiply.", usage=Usage(90, 10))
    agent = Agent(llm=ScriptedModel(said, "You are welcome."))
    for line in "/review prices.py", "/usage", "Thanks!", "/undoo", "/undo":
        print(f"> {line}")
        agent = take(agent, line)
    print([message.text for message in agent.messages])
