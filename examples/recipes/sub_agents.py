"""Sub-agents as tools: long reading and short reports; also from a folder of markdown files.

Use sub-agents for side tasks that would fill the conversation: a search, a long file, a log.
`as_tool` makes a tool of one agent. Calls run a fork of it, with an empty log, at the same time.
Their requests count at once in the usage, the bill and the limits of the calling agent, and their
events arrive in a SubAgentEvent.

Use markdown files where the authors of agents don't write Python, or already have agent files, for
example from Claude Code: `discover_agents` reads them, and `task_tool` is one tool that starts any
of them.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from agentloop import (
    Agent,
    AssistantMessage,
    ChatModel,
    Limits,
    Loop,
    Message,
    ScriptedModel,
    Tool,
    ToolError,
    Usage,
    call,
    current_agent,
    current_call,
    tool,
)
from agentloop.depends import Overrides
from agentloop.events import SubAgentEvent, ToolCallEvent
from agentloop.messages import JSON
from agentloop.toolkits.skills import read_folder
from agentloop.toolkits.subagent import as_tool, run_sub_agent
from agentloop.tools import NO_OVERRIDES, find_tool

TASK = "Delegate a task to a sub-agent, which sees only the prompt. Available sub-agents:"
PAGES = {"moon": "Dust. " * 900 + "384,400 km away.", "sun": "Hot. " * 900 + "8 light minutes."}
JUDGE = """\
---
name: judge
description: Compares distances.
model: small
---
Answer with one word.
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
    """Make the tool `task`, which starts a sub-agent by name: a fork of the template."""
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


@tool("Read a complete page")
def read(page: str) -> str:
    return PAGES[page]


def summarize(messages: Sequence[Message], tools: object) -> AssistantMessage:
    """Simulate a small model: read the page that the prompt names, and return its last sentence."""
    if messages[-1].text in PAGES:
        reading = call("read", page=messages[0].text)
        return AssistantMessage(tool_calls=(reading,), usage=Usage(50, 10))
    return AssistantMessage(messages[-1].text.split(". ")[-1], usage=Usage(1_400, 20))


def show(event: object) -> None:
    """Print the calls of sub-agents."""
    if isinstance(event, SubAgentEvent) and isinstance(event.event, ToolCallEvent):
        print(f"{event.agent}: {event.event.tool}({event.event.args})")


class Boss(Limits, Agent):
    max_requests = 10


def main() -> None:
    small = ScriptedModel(summarize, model="small")
    reader = Agent(llm=small, tools=[read])
    research = as_tool(reader, "research", "Have a page read, and receive its essential content")
    with TemporaryDirectory() as folder:
        Path(folder, "judge.md").write_text(JUDGE, encoding="utf-8")
        judges = discover_agents(folder, models={"small": ScriptedModel("The moon.")})
    both = [call("research", prompt="moon"), call("research", prompt="sun")]
    asks = call("task", agent="judge", prompt="384,400 km or 8 light minutes?")
    llm = ScriptedModel(both, asks, "The moon is nearer.")
    boss = Boss(llm=llm, tools=[research, task_tool(judges, template=reader)], listeners=[show])
    print(boss.run_sync("Which is nearer?"))
    print("read:", sum(map(len, PAGES.values())), "characters")
    print("received:", sum(len(message.text) for message in boss.messages), "characters")
    print("billed:", boss.usage.total_tokens, "tokens")


if __name__ == "__main__":
    main()
