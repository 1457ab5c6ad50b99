"""Skills: a folder of instructions for each kind of task, loaded when a task needs them.

One wants them when a system prompt grows: of a skill the model sees one line until it loads it.
While a skill is active, tools that it does not allow are denied; the tools on offer stay the same,
so that the provider's cache holds.
"""

from pathlib import Path
from tempfile import TemporaryDirectory

from agentloop import Agent, ScriptedModel, tool
from agentloop.models.scripted import call
from agentloop.toolkits.skills import Skills, discover_skills

TEA = """\
---
name: brew-tea
description: Brews tea. Use it when somebody wants tea.
allowed-tools: kettle
---
Heat the water as temperatures.md says, and let the leaves draw.
"""


@tool("Heats water")
def kettle(degrees: int) -> str:
    return f"The water has {degrees} degrees."


@tool("Opens the door")
def door() -> str:
    return "The door is open."


class Butler(Skills, Agent):
    tools = (kettle, door)


if __name__ == "__main__":
    script = [
        call("skill", name="brew-tea"),
        call("skill", name="brew-tea", path="temperatures.md"),
        [call("kettle", degrees=70), call("door")],
        "Your tea, and the door stays shut.",
    ]
    with TemporaryDirectory() as folder:
        home = Path(folder, "brew-tea")
        home.mkdir()
        (home / "SKILL.md").write_text(TEA, encoding="utf-8")
        (home / "temperatures.md").write_text("Green: 70. Black: 95.", encoding="utf-8")
        butler = Butler(llm=ScriptedModel(*script), skills=discover_skills(folder))
        butler.run_sync("A green tea, please.")
    for message in butler.messages:
        print(f"{type(message).__name__}: {message.text}")
