"""Skills: folders of instructions, which the model loads when a task needs them.

Use skills to shorten a long system prompt: until the model loads a skill, it only sees one line
about it. In this recipe, the active skill restricts the tools: a call is denied if the tool isn't
in its `allowed-tools`. The model is offered the same tools all the time, so the provider's cache
stays valid.
"""

import re
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from agentloop import (
    Agent,
    AssistantMessage,
    Message,
    Record,
    ScriptedModel,
    ToolCall,
    ToolMessage,
    UserMessage,
    call,
    tool,
)
from agentloop.arguments import parse_arguments
from agentloop.toolkits.skills import Skill, Skills, discover_skills
from agentloop.transcript import Fold, Records

NOT_ALLOWED = "Denied. While the skill {} is active, only these tools can be called: {}."
UNKNOWN = "This call had started, its outcome is unknown, and it may not run again. "
# matches the names in a value such as `[a, b]`, `a, b`, `a b` or `- a - b`
NAMES = re.compile(r"[^\s,\[\]'\"-][^\s,\[\]'\"]*")


class StrictSkills(Skills):
    """Denies calls of tools that the active skill doesn't allow.

    A skill is active until the model loads another one, or until the next prompt.

    skill_exempt: names of tools that are never denied, such as a done tool.
    """

    skill_exempt: Sequence[str] = ("done",)

    async def call_tool(self, call: ToolCall) -> ToolMessage:
        active = self.fold(ActiveSkill).name
        for skill in self.skills:
            names = allowed_tools(skill)
            if skill.name == active and names is not None:
                allowed = [*names, "skill", *self.skill_exempt]
                if call.name.lower() not in [name.lower() for name in allowed]:
                    reason = NOT_ALLOWED.format(active, ", ".join(allowed))
                    if self.conversation.state_of(call).start:  # interrupted by a crash
                        return call.answer(UNKNOWN + reason, is_error=True, origin="sealed")
                    return call.answer(reason, is_error=True, origin="denied")
        return await super().call_tool(call)


def allowed_tools(skill: Skill) -> list[str] | None:
    """The names of the tools that a skill allows, or None if it allows all."""
    for key in ("allowed-tools", "allowed_tools"):
        if key in skill.fields:
            return NAMES.findall(skill.fields[key])
    return None


class ActiveSkill(Fold):
    """The `name` of the last skill that was read after the newest prompt, or ""."""

    def __init__(self, log: Records = ()) -> None:
        super().__init__(log)
        self._begin()

    def _begin(self) -> None:
        self.name = ""
        self._arguments = dict[str, str]()  # arguments, by call id

    def take(self, at: int, record: Record | Message) -> None:
        if isinstance(record, UserMessage) and record.origin == "user":
            self._begin()
        elif isinstance(record, AssistantMessage):
            for call in record.tool_calls:
                if call.name == "skill":
                    self._arguments[call.id] = call.arguments
        elif isinstance(record, ToolMessage) and not record.is_error:
            arguments = self._arguments.get(record.tool_call_id)
            if arguments is not None:
                self.name = parse_arguments(arguments).get("name", self.name)


TEA = """\
---
name: brew-tea
description: Brews tea. Use this skill when the user wants tea.
allowed-tools: kettle
---
Heat the water to the temperature in temperatures.md, then steep the leaves.
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
    llm = ScriptedModel(
        call("skill", name="brew-tea"),
        call("skill", name="brew-tea", path="temperatures.md"),
        [call("kettle", degrees=70), call("door")],
        "Here is your tea. The door remains closed.",
    )
    with TemporaryDirectory() as folder:
        home = Path(folder, "brew-tea")
        home.mkdir()
        (home / "SKILL.md").write_text(TEA, encoding="utf-8")
        (home / "temperatures.md").write_text("Green: 70. Black: 95.", encoding="utf-8")
        butler = Butler(llm=llm, skills=discover_skills(folder))
        butler.run_sync("A green tea, please.")
    for message in butler.messages:
        print(f"{type(message).__name__}: {message.text}")
