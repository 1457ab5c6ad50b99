"""Settings for one run: other tools, fewer turns, a smaller model; then it is as it was.

One wants it in a conversation that has phases: look first, write later. A fork would leave the
conversation; these settings are checked as those of a new agent are, and end with the block,
however the run ends.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from agentloop import Agent, Loop, ScriptedModel, call, tool
from agentloop.settings import check_settings, settings_of
from agentloop.tools import by_name


@contextmanager
def settings(agent: Loop, **for_now: Any) -> Iterator[None]:
    """Have these settings until the block ends. Raises what a new agent with them would raise.

    What is read when an agent is made, as `session` and `memory` are, is not read again.
    """
    agent.refuse_if_busy()
    cls = type(agent)
    usual = settings_of(agent)
    checked = check_settings(cls, usual | for_now)
    by_name(checked["tools"])
    try:
        for name in for_now:
            setattr(agent, name, checked[name])
        yield
    finally:
        for name in for_now:
            setattr(agent, name, usual[name])


@tool("Look at a file", read_only=True)
def look(name: str) -> str:
    return f"{name}: 3 faults"


@tool("Mend a file")
def mend(name: str) -> str:
    return f"mended {name}"


def main() -> None:
    script = call("look", name="a.py"), call("mend", name="a.py"), "I may only look.", "Mended."
    agent = Agent(llm=ScriptedModel(*script), tools=[look, mend])
    with settings(agent, tools=[look], max_iterations=5):
        print(agent.run_sync("What is wrong?"))
    print(agent.run_sync("Mend it."))
    print(*[message.text for message in agent.messages if "no tool named" in message.text])


if __name__ == "__main__":
    main()
