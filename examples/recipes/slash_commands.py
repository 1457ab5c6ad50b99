"""Slash commands: functions that change the conversation, and files with prompt templates.

Use commands in a chat: `/undo` removes the last question, `/review FILE` expands review.md. They
change the agent's own history, so a session stays open, and knows of the change after a restart.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from tempfile import TemporaryDirectory

from agentloop import Agent, AssistantMessage, ScriptedModel, Usage, UserMessage
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


def undo(agent: Agent) -> None:
    """Remove the last question and its answer."""
    messages = agent.messages
    questions = [
        at
        for at, message in enumerate(messages)
        if isinstance(message, UserMessage) and not message.hidden
    ]
    if questions:
        agent.load_history(messages[: questions[-1]])


def clear(agent: Agent) -> None:
    """Start an empty conversation."""
    agent.clear_history()


def usage(agent: Agent) -> None:
    """Print how many tokens the requests used."""
    print(agent.usage.total_tokens, "tokens")


COMMANDS: dict[str, Callable[[Agent], None]] = {f.__name__: f for f in (undo, clear, usage)}


def take(agent: Agent, line: str, prompts: dict[str, SlashCommand]) -> None:
    """Do what a line of input says."""
    name = line.split()[0].removeprefix("/") if line.startswith("/") else ""
    if name in COMMANDS:
        COMMANDS[name](agent)
    elif name and name not in prompts:
        near = get_close_matches(name, [*prompts, *COMMANDS], n=1)
        print(f"Unknown command /{name}.", *(f"Did you mean /{match}?" for match in near))
    else:
        print(agent.run_sync(expand(line, prompts)))


if __name__ == "__main__":
    reply = AssistantMessage("Line 3 adds instead of multiplying.", usage=Usage(90, 10))
    agent = Agent(llm=ScriptedModel(reply, "You are welcome."))
    with TemporaryDirectory() as folder:
        Path(folder, "review.md").write_text(REVIEW, "utf-8")
        prompts = discover_commands(folder)
    for line in "/review prices.py", "/usage", "Thanks!", "/undoo", "/undo":
        print(">", line)
        take(agent, line, prompts)
    print([message.text for message in agent.messages])
