"""Slash commands: functions that change the conversation, and files with prompt templates.

Use commands in a chat: `/undo` forks before the last question, `/review FILE` expands review.md.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from tempfile import TemporaryDirectory

from agentloop import Agent, AssistantMessage, RunStart, ScriptedModel, Usage
from agentloop.toolkits.skills import read_folder

ARGUMENTS = "$ARGUMENTS"
REVIEW = "---\ndescription: Reviews a file\n---\nReview $ARGUMENTS: list the errors, worst first."


@dataclass(frozen=True)
class SlashCommand:
    """A prompt template for "/name arguments". The arguments replace $ARGUMENTS in `text`."""

    description: str
    text: str


def discover_commands(folder: str | Path) -> dict[str, SlashCommand]:
    """Find the slash commands in a folder: "review" is review.md.

    Front matter is optional; its `description` is meant for lists of commands.
    """
    commands = dict[str, SlashCommand]()
    for path, head, text in read_folder(folder, "*.md"):
        commands[path.stem] = SlashCommand(head.get("description", ""), text)
    return commands


def expand(line: str, commands: Mapping[str, SlashCommand]) -> str:
    """Turn "/name arguments" into its prompt. Any other line stays as it is.

    If the template has no $ARGUMENTS, they come at the end.
    """
    name, _, arguments = line.partition(" ")
    if not name.startswith("/") or name[1:] not in commands:
        return line
    text = commands[name[1:]].text
    if ARGUMENTS not in text:
        text += f"\n\n{ARGUMENTS}"
    return text.replace(ARGUMENTS, arguments.strip()).strip()


# ---- commands that change the conversation


def undo(agent: Agent) -> Agent:
    """Remove the last question and its answer."""
    starts = [at for at, record in enumerate(agent.log) if isinstance(record, RunStart)]
    return agent.fork(at=starts[-1]) if starts else agent


def clear(agent: Agent) -> Agent:
    """Start an empty conversation."""
    return agent.fork(at=0)


def usage(agent: Agent) -> Agent:
    """Print how many tokens the requests used."""
    print(agent.usage.total_tokens, "tokens")
    return agent


COMMANDS: dict[str, Callable[[Agent], Agent]] = {f.__name__: f for f in (undo, clear, usage)}


def take(agent: Agent, line: str, prompts: dict[str, SlashCommand]) -> Agent:
    """Do what a line of input says. Returns the agent for the next line."""
    name = line.split()[0].removeprefix("/") if line.startswith("/") else ""
    if name in COMMANDS:
        return COMMANDS[name](agent)
    if name and name not in prompts:
        near = get_close_matches(name, [*prompts, *COMMANDS], n=1)
        print(f"Unknown command /{name}.", *(f"Did you mean /{match}?" for match in near))
        return agent
    print(agent.run_sync(expand(line, prompts)))
    return agent


if __name__ == "__main__":
    reply = AssistantMessage("Line 3 adds instead of multiplying.", usage=Usage(90, 10))
    agent = Agent(llm=ScriptedModel(reply, "You are welcome."))
    with TemporaryDirectory() as folder:
        Path(folder, "review.md").write_text(REVIEW, "utf-8")
        prompts = discover_commands(folder)
    for line in "/review prices.py", "/usage", "Thanks!", "/undoo", "/undo":
        print(">", line)
        agent = take(agent, line, prompts)
    print([message.text for message in agent.messages])
