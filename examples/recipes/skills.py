"""Skills: a folder of instructions for each kind of task, loaded when a task needs them.

One wants them when a system prompt grows: of a skill the model sees one line until it loads it.
Here, while a skill is active, calls of tools that its `allowed-tools` does not name are denied. The
tools on offer stay the same, so that the provider's cache holds.
"""

import re
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from agentloop import (
    Agent,
    AssistantMessage,
    Message,
    ScriptedModel,
    ToolCall,
    ToolMessage,
    UserMessage,
    tool,
)
from agentloop.arguments import parse_arguments
from agentloop.messages import Record
from agentloop.models.scripted import call
from agentloop.toolkits.skills import Skill, Skills, discover_skills
from agentloop.transcript import Fold, Records, denied

NOT_ALLOWED = "While the skill {} is active, only these tools can be called: {}."
# each name in a value such as `[a, b]`, `a, b`, `a b` or `- a - b`
EACH_NAME = re.compile(r"[^\s,\[\]'\"-][^\s,\[\]'\"]*")


class StrictSkills(Skills):
    """Denies the tools that the active skill does not allow.

    A skill is active until another one is loaded or the next prompt comes.

    skill_exempt: tools that are never denied, such as a done tool.
    """

    skill_exempt: Sequence[str] = ("done",)

    async def call_tool(self, call: ToolCall) -> ToolMessage:
        active = self.fold(ActiveSkill).name
        for skill in self.skills:
            names = allowed_tools(skill)
            if skill.name == active and names is not None:
                allowed = [*names, "skill", *self.skill_exempt]
                if call.name.lower() not in [name.lower() for name in allowed]:
                    state = self.conversation.states[call.id]
                    return denied(state, NOT_ALLOWED.format(active, ", ".join(allowed)))
        return await super().call_tool(call)


def allowed_tools(skill: Skill) -> list[str] | None:
    """Return the names of the tools that a skill allows; None if it allows all."""
    for key in ("allowed-tools", "allowed_tools"):
        if key in skill.fields:
            return EACH_NAME.findall(skill.fields[key])
    return None


class ActiveSkill(Fold):
    """The `name` of the skill that was read last since the newest prompt, or ""."""

    def __init__(self, log: Records = ()) -> None:
        super().__init__(log)
        self._begin()

    def _begin(self) -> None:
        self.name = ""
        self._asked_for = dict[str, str]()  # arguments, by call id

    def take(self, at: int, record: Record | Message) -> None:
        if isinstance(record, UserMessage) and record.origin == "user":
            self._begin()
        elif isinstance(record, AssistantMessage):
            for call in record.tool_calls:
                if call.name == "skill":
                    self._asked_for[call.id] = call.arguments
        elif isinstance(record, ToolMessage) and not record.is_error:
            arguments = self._asked_for.get(record.tool_call_id)
            if arguments is not None:
                self.name = parse_arguments(arguments).get("name", self.name)


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


class Butler(StrictSkills, Agent):
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
