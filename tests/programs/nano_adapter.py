"""examples/nano.py with the package's interface, so that tests of the package run with it.

nano.py uses dicts instead of objects. The adapted agent accepts scripted models and tools of the
package, and returns its log and its messages as records of the package.
"""

import asyncio
import importlib.util
import sys

from agentloop import AssistantMessage, SystemMessage, ToolCall, ToolMessage, UserMessage
from agentloop.tools import FunctionTool
from tests import ROOT

NANO = ROOT / "examples" / "nano.py"
FINISH = {
    "length": "length",
    "refused": "content_filter",
}  # our stop reasons, and those of the wire format


def load_nano():
    spec = importlib.util.spec_from_file_location("nano", NANO)
    module = importlib.util.module_from_spec(spec)
    sys.modules["nano"] = module
    spec.loader.exec_module(module)
    return module


nano = load_nano()


def read(messages):
    """Return dicts of Chat Completions as the package's messages."""
    read, names = [], {}
    for message in messages:
        role, content = message["role"], message["content"]
        if role == "system":
            read.append(SystemMessage(content))
        elif role == "user":
            read.append(UserMessage(content))
        elif role == "tool":
            read.append(
                ToolMessage(
                    message["tool_call_id"], names.get(message["tool_call_id"], ""), content
                )
            )
        elif role == "assistant":
            calls = [
                ToolCall(call["id"], call["function"]["name"], call["function"]["arguments"])
                for call in message.get("tool_calls", [])
            ]
            names |= {call.id: call.name for call in calls}
            read.append(AssistantMessage(content, tuple(calls)))
    return read


def write(reply):
    """Return an AssistantMessage in the format of nano.py."""
    calls = [
        {
            "id": call.id,
            "type": "function",
            "function": {"name": call.name, "arguments": call.arguments},
        }
        for call in reply.tool_calls
    ]
    finish = FINISH.get(reply.stop_reason or "", "stop")
    usage = reply.usage and {
        "prompt_tokens": reply.usage.input_tokens,
        "completion_tokens": reply.usage.output_tokens,
    }
    return {"content": reply.text, "tool_calls": calls, "_finish": finish, "_usage": usage}


class Bridge:
    """Adapts a model of the package, such as ScriptedModel, to nano.py."""

    def __init__(self, llm):
        self.llm = llm

    async def ainvoke(self, messages, tools=()):
        await asyncio.sleep(0)
        return write(await self.llm.ainvoke(read(messages), tools))


def tool(description="", *, name=None, parallel=True, idempotent=False, **options):
    """Create a tool of nano.py, named like its function."""

    def make(function):
        made = nano.Tool(function, description, **options)
        if name:
            made.name = made.declaration["function"]["name"] = name
        return made

    if isinstance(description, str):
        return make
    function, description = description, ""
    return make(function)


def own_tool(made):
    """Convert a tool of the package to a tool of nano.py."""
    if isinstance(made, FunctionTool):
        options = {"name": made.name, "ephemeral": made.ephemeral, "timeout": made.timeout}
        return tool(made.description, **options)(made.function)
    return made


class Loop:
    """A nano.Loop with the interface of the package."""

    kind = nano.Loop

    def __init__(self, *, llm, tools=(), **settings):
        llm = llm if isinstance(llm, nano.ChatOpenAI) else Bridge(llm)
        self.nano = self.kind(llm=llm, tools=[own_tool(tool) for tool in tools], **settings)

    @property
    def log(self):
        return read(self.nano.log)

    @property
    def messages(self):
        return read(self.nano.messages)

    async def run(self, prompt):
        return await self.nano.run(prompt)

    async def query(self, prompt):
        return (await self.run(prompt)).text

    def clear_history(self):
        self.nano.log = []


class Agent(Loop):
    kind = nano.Agent


NAMES = {  # replacements for names in tests of the package
    "Agent": Agent,
    "Loop": Loop,
    "tool": tool,
    "Depends": nano.Depends,
    "TaskComplete": nano.TaskComplete,
    "Stop": nano.Stop,
    "ChatOpenAI": nano.ChatOpenAI,
    "CompactionConfig": nano.CompactionConfig,
    "SUMMARY_PROMPT": nano.SUMMARIZE,
}
