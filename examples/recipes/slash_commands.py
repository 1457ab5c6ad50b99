"""Slash commands: some act on the conversation, others are files that stand for a prompt.

One wants them in a chat: `/undo` forks before the last question, `/review F` is review.md.
"""

from collections.abc import Callable
from difflib import get_close_matches
from pathlib import Path
from tempfile import TemporaryDirectory

from agentloop import Agent, AssistantMessage, ScriptedModel, Usage
from agentloop.messages import RunStart
from agentloop.toolkits.skills import SlashCommand, discover_commands, expand

REVIEW = "---\ndescription: Reviews a file\n---\nReview $ARGUMENTS: say what is wrong, worst first."


def undo(agent: Agent) -> Agent:
    """Forget the last question and its answer."""
    starts = [at for at, record in enumerate(agent.log) if isinstance(record, RunStart)]
    return agent.fork(at=starts[-1]) if starts else agent


def clear(agent: Agent) -> Agent:
    """Begin a new conversation."""
    return agent.fork(at=0)


def usage(agent: Agent) -> Agent:
    """Say how many tokens it took."""
    print(agent.usage.total_tokens, "tokens")
    return agent


COMMANDS: dict[str, Callable[[Agent], Agent]] = {f.__name__: f for f in (undo, clear, usage)}


def take(agent: Agent, line: str, prompts: dict[str, SlashCommand]) -> Agent:
    """Do what a line says; the agent to go on with."""
    name = line.split()[0].removeprefix("/") if line.startswith("/") else ""
    if name in COMMANDS:
        return COMMANDS[name](agent)
    if name and name not in prompts:
        near = get_close_matches(name, [*prompts, *COMMANDS], n=1)
        print(f"There is no /{name}.", *(f"Did you mean /{each}?" for each in near))
        return agent
    print(agent.run_sync(expand(line, prompts)))
    return agent


if __name__ == "__main__":
    said = AssistantMessage("Line 3 adds where it should multiply.", usage=Usage(90, 10))
    agent = Agent(llm=ScriptedModel(said, "You are welcome."))
    with TemporaryDirectory() as folder:
        Path(folder, "review.md").write_text(REVIEW, "utf-8")
        prompts = discover_commands(folder)
    for line in "/review prices.py", "/usage", "Thanks!", "/undoo", "/undo":
        print(">", line)
        agent = take(agent, line, prompts)
    print([message.text for message in agent.messages])
