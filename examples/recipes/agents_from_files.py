"""Sub-agents from a folder of markdown files, and one tool that starts any of them.

One wants it when those who write the agents do not write Python, or have such files already, as for
Claude Code. With `as_tool` of toolkits/subagent.py each is a tool of its own.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from agentloop import Agent, ChatModel, Loop, ScriptedModel, Tool, ToolError, call
from agentloop.depends import Overrides, current_agent, current_call
from agentloop.messages import JSON
from agentloop.toolkits.skills import read_folder
from agentloop.toolkits.subagent import run_sub_agent
from agentloop.tools import NO_OVERRIDES, find_tool

TASK = "Give a task to a sub-agent, which sees nothing but the prompt. There are:"
READER = """\
---
name: reader
description: Reads long texts.
model: small
---
Read it, and say in one sentence what it is about.
"""

# each name in a value such as `[a, b]`, `a, b`, `a b` or `- a - b`
EACH_NAME = re.compile(r"[^\s,\[\]'\"-][^\s,\[\]'\"]*")


@dataclass(frozen=True)
class AgentDefinition:
    """A sub-agent for `task_tool`. Without tools, or a model, it has those of the template."""

    name: str
    description: str
    system_prompt: str
    tools: Sequence[Tool] | None = None
    model: ChatModel | None = None


def task_tool(definitions: Sequence[AgentDefinition], template: Loop) -> Tool:
    """Make the tool `task`. It starts the sub-agent that it names: a fork of the template."""
    agents = dict[str, Loop]()
    description = TASK
    for each in definitions:
        agents[each.name] = template.fork(
            system_prompt=each.system_prompt,
            tools=template.tools if each.tools is None else each.tools,
            llm=each.model or template.llm,
        )
        description += f"\n- {each.name}: {each.description}"
    return TaskTool(agents, description)


class TaskTool(Tool):
    """A tool that gives a prompt to the one of its agents that the model names."""

    def __init__(self, agents: Mapping[str, Loop], description: str) -> None:
        names = {"type": "string", "enum": [*agents]}
        properties = {"agent": names, "prompt": {"type": "string"}}
        parameters = {"type": "object", "properties": properties, "required": [*properties]}
        super().__init__("task", description, parameters)
        self.agents = agents

    async def execute(self, args: JSON, overrides: Overrides = NO_OVERRIDES) -> str:
        name = args["agent"]
        parent = overrides[current_agent]()
        call = overrides[current_call]()
        return await run_sub_agent(self.agents[name], args["prompt"], name, parent, call)


def discover_agents(
    folder: str | Path, tools: Sequence[Tool] = (), models: Mapping[str, ChatModel] = {}
) -> list[AgentDefinition]:
    """Read the sub-agents in a folder: markdown files, with front matter above a system prompt.

    It has name, description and, where they differ from the template's, `tools: read, grep` (of
    these tools) and `model: small` (of these models). Raises ValueError with the file, the key and
    what to do.
    """
    found = list[AgentDefinition]()
    known_models = {"inherit": None, **models}
    for path, head, text in read_folder(folder, "*.md", "name", "description"):
        model = head.get("model", "inherit")
        if model not in known_models:
            names = ", ".join(known_models)
            raise ValueError(
                f"{path}: model: There is no model {model!r}. Available tools: {names}."
            )
        own_tools = None
        if "tools" in head:
            try:
                own_tools = [find_tool(name, tools) for name in EACH_NAME.findall(head["tools"])]
            except ToolError as error:
                raise ValueError(f"{path}: tools: {error}") from None
        found.append(
            AgentDefinition(head["name"], head["description"], text, own_tools, known_models[model])
        )
    return found


if __name__ == "__main__":
    small = ScriptedModel("It is about tea.")
    with TemporaryDirectory() as folder:
        Path(folder, "reader.md").write_text(READER, encoding="utf-8")
        definitions = discover_agents(folder, models={"small": small})
    script = call("task", agent="reader", prompt="Read the letter."), "The letter is about tea."
    task = task_tool(definitions, template=Agent(llm=small))
    boss = Agent(llm=ScriptedModel(*script), tools=[task])
    print(boss.run_sync("What does she write?"))
    print(*[message.text for message in small.requests[0].messages], sep="\n")
