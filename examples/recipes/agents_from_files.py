"""Sub-agents from a folder of markdown files, and one tool that starts any of them.

Use markdown files where the authors of agents do not write Python, or already have agent files, for
example from Claude Code. `as_tool` of toolkits/subagent.py makes a separate tool of an agent.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from agentloop import (
    Agent,
    ChatModel,
    Loop,
    ScriptedModel,
    Tool,
    ToolError,
    call,
    current_agent,
    current_call,
)
from agentloop.depends import Overrides
from agentloop.messages import JSON
from agentloop.toolkits.skills import read_folder
from agentloop.toolkits.subagent import run_sub_agent
from agentloop.tools import NO_OVERRIDES, find_tool

TASK = "Delegate a task to a sub-agent, which sees only the prompt. Available sub-agents:"
READER = """\
---
name: reader
description: Reads long texts.
model: small
---
Read the text and summarize its subject in one sentence.
"""

# matches the names in a value such as `[a, b]`, `a, b`, `a b` or `- a - b`
NAMES = re.compile(r"[^\s,\[\]'\"-][^\s,\[\]'\"]*")


@dataclass(frozen=True)
class AgentDefinition:
    """A sub-agent for `task_tool`. None means the tools, or the model, of the template."""

    name: str
    description: str
    system_prompt: str
    tools: Sequence[Tool] | None = None
    model: ChatModel | None = None


def task_tool(definitions: Sequence[AgentDefinition], template: Loop) -> Tool:
    """Return the tool `task`, which starts a sub-agent by name: a fork of the template."""
    agents = dict[str, Loop]()
    description = TASK
    for definition in definitions:
        agents[definition.name] = template.fork(
            system_prompt=definition.system_prompt,
            tools=template.tools if definition.tools is None else definition.tools,
            llm=definition.model or template.llm,
        )
        description += f"\n- {definition.name}: {definition.description}"
    return TaskTool(agents, description)


class TaskTool(Tool):
    """A tool that passes a prompt to the agent that the model names."""

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
    """Read the sub-agents in a folder: markdown files with front matter and a system prompt.

    The front matter contains `name` and `description`. Optional keys replace settings of the
    template: `tools: read, grep` (names from `tools`) and `model: small` (a key of `models`).
    Raises ValueError with the file, the key and the remedy.
    """
    definitions = list[AgentDefinition]()
    all_models = {"inherit": None, **models}
    for path, head, text in read_folder(folder, "*.md", "name", "description"):
        model = head.get("model", "inherit")
        if model not in all_models:
            names = ", ".join(all_models)
            raise ValueError(f"{path}: model: unknown model {model!r}. Available models: {names}.")
        own_tools = None
        if "tools" in head:
            try:
                own_tools = [find_tool(name, tools) for name in NAMES.findall(head["tools"])]
            except ToolError as error:
                raise ValueError(f"{path}: tools: {error}") from None
        definitions.append(
            AgentDefinition(head["name"], head["description"], text, own_tools, all_models[model])
        )
    return definitions


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
