"""Temporary settings for one run: other tools, fewer turns, a smaller model.

Use temporary settings in conversations with phases, for example first read, then write. A fork
would leave the conversation. The settings are validated like the settings of a new agent, and are
restored at the end of the block, regardless of how the run ends.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from agentloop import Agent, Loop, ScriptedModel, call, tool
from agentloop.settings import check_settings, settings_of
from agentloop.tools import by_name


@contextmanager
def settings(agent: Loop, **temporary: Any) -> Iterator[None]:
    """Apply settings until the block ends. Invalid settings raise the errors of a new agent.

    Settings that only the construction of an agent reads, such as `session` and `memory`, are not
    applied.
    """
    agent.refuse_if_busy()
    cls = type(agent)
    usual = settings_of(agent)
    checked = check_settings(cls, usual | temporary)
    by_name(checked["tools"])
    try:
        for name in temporary:
            setattr(agent, name, checked[name])
        yield
    finally:
        for name in temporary:
            setattr(agent, name, usual[name])


@tool("Look at a file", read_only=True)
def look(name: str) -> str:
    return f"{name}: 3 errors"


@tool("Fix a file")
def fix(name: str) -> str:
    return f"fixed {name}"


def main() -> None:
    script = call("look", name="a.py"), call("fix", name="a.py"), "I can only look.", "Fixed."
    agent = Agent(llm=ScriptedModel(*script), tools=[look, fix])
    with settings(agent, tools=[look], max_iterations=5):
        print(agent.run_sync("What is wrong?"))
    print(agent.run_sync("Fix it."))
    print(*[message.text for message in agent.messages if "no tool named" in message.text])


if __name__ == "__main__":
    main()
