"""Slash commands: some act on the conversation, others are files that stand for a prompt.

One wants them in a chat: `/undo` forks before the last question, `/review F` is review.md.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from tempfile import TemporaryDirectory

from agentloop import Agent, AssistantMessage, ScriptedModel, Usage
from agentloop.messages import RunStart
from agentloop.toolkits.skills import read_folder

ARGUMENTS = "$ARGUMENTS"
REVIEW = "---\ndescription: Reviews a file\n---\nReview $ARGUMENTS: say what is wrong, worst first."


@dataclass(frozen=True)
class SlashCommand:
    """A prompt that a user types as "/name arguments". $ARGUMENTS is the place of the arguments."""

    description: str
    text: str


def discover_commands(folder: str | Path) -> dict[str, SlashCommand]:
    """Read the slash commands in a folder: "review" is review.md.

    Its front matter may have a `description`, which lists of commands show.
    """
    commands = dict[str, SlashCommand]()
    for path, head, text in read_folder(folder, "*.md"):
        commands[path.stem] = SlashCommand(head.get("description", ""), text)
    return commands


def expand(line: str, commands: Mapping[str, SlashCommand]) -> str:
    """Return the prompt that "/name arguments" stands for, and any other line as it is.

    A text without $ARGUMENTS has the arguments at its end.
    """
    name, _, arguments = line.partition(" ")
    if not name.startswith("/") or name[1:] not in commands:
        return line
    text = commands[name[1:]].text
    if ARGUMENTS not in text:
        text += f"\n\n{ARGUMENTS}"
    return text.replace(ARGUMENTS, arguments.strip()).strip()


# ---- those that act on the conversation


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
