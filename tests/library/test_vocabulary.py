"""Programs written for bu_agent_sdk run with imports from the shim or from agentloop."""

import re
import runpy
import shlex
import subprocess
import sys
from itertools import product

import pytest

import agentloop
from agentloop import AssistantMessage, ScriptedModel, ServerError, call
from tests import ROOT

SHIM = ROOT / "examples" / "recipes" / "from_bu_agent_sdk.py"
DONE_TOOL = """
import asyncio
from bu_agent_sdk import Agent, tool, TaskComplete
from bu_agent_sdk.llm import ChatAnthropic

@tool("Multiply")
async def multiply(a: int, b: int) -> int:
    return a * b

@tool("The task is finished")
async def done(message: str) -> str:
    raise TaskComplete(message)

agent = Agent(llm=ChatAnthropic(model="m"), tools=[multiply, done], require_done_tool=True)
print(asyncio.run(agent.query("What is 6 times 7?")))
"""
ALL_SETTINGS = """
import asyncio
from typing import Annotated
from bu_agent_sdk import Agent
from bu_agent_sdk.agent import (
    CompactionConfig, FinalResponseEvent, StepCompleteEvent, StepStartEvent, TextEvent,
    ThinkingEvent, ToolCallEvent, ToolResultEvent,
)
from bu_agent_sdk.llm import ChatOpenAI
from bu_agent_sdk.tools import Depends, tool

def get_shelf() -> dict:
    raise RuntimeError("to be overridden")

@tool("How many there are")
async def count(item: str, shelf: Annotated[dict, Depends(get_shelf)]) -> str:
    return f"{shelf[item]} {item}"

async def main():
    agent = Agent(
        llm=ChatOpenAI(model="m"),
        tools=[count],
        system_prompt="You are a helper.",
        max_iterations=50,
        tool_choice="auto",
        compaction=CompactionConfig(threshold_ratio=0.80),
        dependency_overrides={get_shelf: lambda: {"cups": 3}},
        require_done_tool=False,
    )
    async for event in agent.query_stream("How many cups?"):
        match event:
            case ThinkingEvent(content=text):
                print("thinks", text)
            case StepStartEvent(step_id=_, title=title, step_number=number):
                print("step", number, title)
            case ToolCallEvent(tool=name, args=args, tool_call_id=_):
                print(name, args)
            case ToolResultEvent(tool=name, result=result, is_error=False):
                print("->", result)
            case StepCompleteEvent(status=status, duration_ms=ms):
                print(status, ms >= 0)
            case TextEvent(content=text) | FinalResponseEvent(content=text):
                print(text)
    saved = agent.messages
    agent.clear_history()
    print(len(agent.messages))
    agent.load_history(saved)
    print(agent.messages == saved)

asyncio.run(main())
"""
ONE_BY_ONE = """
import asyncio
from bu_agent_sdk.agent import Agent, CompactionConfig
from bu_agent_sdk.llm import ChatOpenAI
from bu_agent_sdk.tools import tool

@tool("Read a page", ephemeral=True)
async def page(number: int) -> str:
    print("begins", number)
    await asyncio.sleep(0.01)
    print("ends", number)
    return f"page {number}: " + "text " * 400

agent = Agent(
    llm=ChatOpenAI(model="m"), tools=[page], include_cost=True, llm_max_retries=2,
    compaction=CompactionConfig(threshold_ratio=0.5),
)
print(asyncio.run(agent.query("Read all.")))
seen = [message for message in agent.llm.requests[-1].messages if message.text]
print(*(message.text[:9] for message in seen), sep="|")
"""
LAST_WORDS = """
import asyncio
from bu_agent_sdk import Agent, observe
from bu_agent_sdk.llm import AssistantMessage, ChatGoogle, UserMessage, ModelProviderError
from bu_agent_sdk.tools import tool

@tool("Look around")
async def look() -> dict:
    return {"seen": []}

@observe(name="main")
async def main():
    agent = Agent(llm=ChatGoogle(model="m"), tools=[look], system_prompt=None, max_iterations=1)
    print(await agent.query("Find it."))
    agent.load_history([UserMessage(content="I am Ann."), AssistantMessage(content="Hi.")])
    print(await agent.query("Who am I?"), len(agent.messages))
    try:
        await agent.query("And now?")
    except ModelProviderError as error:
        print(type(error).__name__)
    usage = await agent.get_usage()
    print(usage.total_cost, usage.entry_count > 0)

asyncio.run(main())
"""
TODOS = """
import asyncio
from bu_agent_sdk import Agent
from bu_agent_sdk.agent import HiddenUserMessageEvent, FinalResponseEvent
from bu_agent_sdk.llm import ChatOpenAI

class Careful(Agent):
    async def _get_incomplete_todos_prompt(self) -> str | None:
        return "Is anything left to do?"

async def main():
    agent = Careful(ChatOpenAI(model="m"), [])
    async for event in agent.query_stream("Tidy up."):
        match event:
            case HiddenUserMessageEvent(content=text) | FinalResponseEvent(content=text):
                print(text)
    print(await agent.query("Again."))

asyncio.run(main())
"""
BY_HAND = """
import asyncio
from typing import Annotated
from bu_agent_sdk.tools import Depends, Tool, tool

def get_shelf() -> dict:
    return {"cups": 3}

@tool("How many there are", name="how_many", ephemeral=True)
async def count(item: str, shelf: Annotated[dict, Depends(get_shelf)], more: int = 0) -> dict:
    return {"count": shelf[item] + more}

@tool("Ring")
async def ring() -> None:
    pass

async def main():
    print(await count.execute(item="cups"), await count.execute(item="cups", more=2))
    print(await count.execute(_overrides={get_shelf: lambda: {"cups": 7}}, item="cups"))
    print(repr(await ring.execute()), isinstance(ring, Tool))
    print(await count.func("cups", {"cups": 1}))
    one = count.definition
    print(one.name, one.description, sorted(one.parameters["properties"]))
    try:
        await count.execute(thing="cups")
    except Exception as error:
        print("item" in str(error))

asyncio.run(main())
"""
OWN_MODEL = """
import asyncio
from bu_agent_sdk import Agent
from bu_agent_sdk.llm import (
    BaseChatModel, ChatInvokeCompletion, ChatInvokeUsage, ContentImage, ContentText, Function,
    ToolCall, ToolDefinition, UserMessage,
)
from bu_agent_sdk.llm.messages import ImageURL
from bu_agent_sdk.agent.events import ToolCallEvent, ToolResultEvent
from bu_agent_sdk.tools import tool

class Parrot(BaseChatModel):
    model = "parrot-1"
    provider = name = "parrot"

    async def ainvoke(self, messages, tools=None, tool_choice=None, **kwargs):
        usage = ChatInvokeUsage(
            prompt_tokens=10, prompt_cached_tokens=4, prompt_cache_creation_tokens=None,
            prompt_image_tokens=None, completion_tokens=2, total_tokens=12,
        )
        if messages[-1].content == "look":
            call = ToolCall(id="c1", function=Function(name=tools[0].name, arguments="{}"))
            return ChatInvokeCompletion(tool_calls=[call], usage=usage)
        return ChatInvokeCompletion(content="I see it.", usage=usage, stop_reason="stop")

@tool("Take a picture")
async def look() -> list:
    shot = ContentImage(image_url=ImageURL(url="data:image/png;base64,aGk=", detail="low"))
    return [ContentText(text="a page"), shot]

async def main():
    llm = Parrot()
    agent = Agent(llm, [look], "Look around.", 5)
    async for event in agent.query_stream("look"):
        match event:
            case ToolCallEvent(tool=name, display_name=shown):
                print(name, repr(shown))
            case ToolResultEvent(result=text, screenshot_base64=shot):
                print(text, shot)
    summary = await agent.get_usage()
    stats = summary.by_model["parrot-1"]
    print(summary.total_tokens, stats.invocations, stats.total_tokens, stats.prompt_tokens)
    tools = [ToolDefinition(name="seek", description="Seek", parameters={"type": "object"})]
    reply = await llm.ainvoke([UserMessage(content="look")], tools=tools)
    print(reply.has_tool_calls, reply.tool_calls[0].function.name, reply.tool_calls[0].id)
    print(await agent.query([ContentText(text="And"), ContentText(text="now?")]))
    print([d.name for d in agent.tool_definitions])

asyncio.run(main())
"""
OTHER_NAMES = """
import asyncio
from bu_agent_sdk import Agent
from bu_agent_sdk.agent import CompactionConfig
from bu_agent_sdk.llm.messages import (
    ContentPartImageParam, ContentPartTextParam, DeveloperMessage, SystemMessage, UserMessage,
)
from bu_agent_sdk.llm import ChatOpenAI, ChatOpenAILike, ToolChoice
from bu_agent_sdk.tools import Tool, tool

class RetryTool(Tool):
    async def execute(self, _overrides=None, **kwargs):
        for attempt in range(2):
            try:
                return await super().execute(_overrides=_overrides, **kwargs)
            except ValueError as error:
                print("again:", error)

attempts = []

async def read(path: str, lines: list[int]) -> str:
    attempts.append(path)
    if len(attempts) == 1:
        raise ValueError("busy")
    return f"{path} {lines}"

@tool("Look")
async def look() -> list[ContentPartTextParam | ContentPartImageParam]:
    return [ContentPartTextParam(text="a page")]

async def main():
    choice: ToolChoice = "auto"
    agent = Agent(
        llm=ChatOpenAI(model="m"), tools=[RetryTool(func=read, description="Read"), look],
        tool_choice=choice, compaction=CompactionConfig(enabled=False),
    )
    async for event in agent.query_stream("Read a."):
        print(type(event).__name__, getattr(event, "content", getattr(event, "result", "")))
    print(agent.compaction, CompactionConfig().enabled)
    history = [SystemMessage(content="Be brief.", cache=True), DeveloperMessage(content="Now.")]
    print([message.content for message in history])

asyncio.run(main())
"""
TEXTS_OF_EVENTS = """
import asyncio
import re
from bu_agent_sdk import Agent
from bu_agent_sdk.agent.events import ToolCallEvent
from bu_agent_sdk.llm import ChatOpenAI
from bu_agent_sdk.tools import tool

@tool("Look")
async def look(at: str) -> str:
    return "seen " * 20

async def main():
    agent = Agent(llm=ChatOpenAI(model="m"), tools=[look])
    async for event in agent.query_stream("Look."):
        print(re.sub("[0-9]+ms", "ms", str(event)))
    print(ToolCallEvent(tool="look", args={"at": "it"}, tool_call_id="1"))
    print(*(message.role for message in agent.messages))
    print((await agent.token_cost.get_usage_summary()).entry_count)

asyncio.run(main())
"""
SMALL_THINGS = """
import asyncio
from bu_agent_sdk import Agent
from bu_agent_sdk.agent import CompactionConfig, TaskComplete
from bu_agent_sdk.agent.events import FinalResponseEvent, ToolResultEvent
from bu_agent_sdk.llm import ChatOpenAI
from bu_agent_sdk.llm.base import ToolDefinition
from bu_agent_sdk.llm.exceptions import ModelProviderError
from bu_agent_sdk.tools import tool

@tool("Look")
async def look(at) -> str:
    return f"{at!r}"

@tool("Done")
async def done(message: str) -> str:
    raise TaskComplete(message)

async def main():
    config = CompactionConfig(model="gpt-4o-mini", threshold_ratio=0.6)
    agent = Agent(llm=ChatOpenAI(model="m"), tools=[look, done], compaction=config)
    async for event in agent.query_stream("Look."):
        match event:
            case ToolResultEvent(result=text) | FinalResponseEvent(content=text):
                print(text)
            case _:
                print(type(event).__name__)
    print(look.definition.strict, ToolDefinition("a", "b", {"type": "object"}, False).strict)
    try:
        await agent.query("And now?")
    except ModelProviderError as error:
        print(error.status_code, error.message)

asyncio.run(main())
"""
THINKS = AssistantMessage("", (call("count", item="cups"),), thinking="Cups.")
PAGES = [[call("page", number=1), call("page", number=2)], call("page", number=3), "All."]
GONE = ServerError("gone", status=503)
PROGRAMS = {
    "done tool": (
        DONE_TOOL,
        [call("multiply", a=6, b=7), "It is 42.", call("done", message="42")],
        "42",
    ),
    "all settings": (
        ALL_SETTINGS,
        [THINKS, "Three."],
        "thinks Cups.|step 1 count|count {'item': 'cups'}|-> 3 cups|completed True|"
        "Three.|Three.|0|True",
    ),
    "one by one": (
        ONE_BY_ONE,
        PAGES,
        "begins 1|ends 1|begins 2|ends 2|begins 3|ends 3|All.|"
        "Read all.|[Older re|[Older re|page 3: t",
    ),
    "to-dos": (
        TODOS,
        ["Done.", "No, nothing.", "Done.", "Nothing."],
        "Is anything left to do?|No, nothing.|Nothing.",
    ),
    "by hand": (
        BY_HAND,
        [],
        """{"count":3} {"count":5}|{"count":7}|'' True|{'count': 1}|"""
        "how_many How many there are ['item', 'more']|True",
    ),
    "a model of one's own": (
        OWN_MODEL,
        [],
        "look 'look'|a page aGk=|24 2 24 20|True seek c1|I see it.|['look']",
    ),
    "other names": (
        OTHER_NAMES,
        [call("read", path="a", lines=[1]), call("look"), "It is read."],
        "StepStartEvent |ToolCallEvent |again: busy|ToolResultEvent a [1]|StepCompleteEvent |"
        "StepStartEvent |ToolCallEvent |ToolResultEvent a page|StepCompleteEvent |"
        "TextEvent It is read.|FinalResponseEvent It is read.|None True|['Be brief.', 'Now.']",
    ),
    "texts of events": (
        TEXTS_OF_EVENTS,
        [call("look", at="it"), "It is here."],
        "▶️  Step 1: look|🔧 look|   ✓ look: " + "seen " * 16 + "...|✅ Step complete (ms)|"
        '💬 It is here.|✅ Final: It is here.|🔧 look({"at": "it"})|'
        "user assistant tool assistant|2",
    ),
    "small things": (
        SMALL_THINGS,
        [call("look", at="it"), call("done", message="Seen."), GONE],
        "StepStartEvent|ToolCallEvent|'it'|StepCompleteEvent|StepStartEvent|ToolCallEvent|"
        "Task completed: Seen.|StepCompleteEvent|Seen.|True False|503 gone",
    ),
    "last words": (
        LAST_WORDS,
        [call("look"), "I have only looked.", "Ann.", GONE],
        "I have only looked.|Ann. 4|ServerError|0.0 True",
    ),
}
OURS = [("agentloop", "done tool"), ("agentloop", "all settings")]


@pytest.mark.parametrize(("module", "name"), [*product(["from_bu_agent_sdk"], PROGRAMS), *OURS])
def test_a_program_runs_with_changed_imports(module, name, tmp_path, monkeypatch, capsys):
    program, script, printed = PROGRAMS[name]
    monkeypatch.syspath_prepend(SHIM.parent)
    monkeypatch.delitem(sys.modules, "from_bu_agent_sdk", raising=False)
    # the recipe adds this attribute; monkeypatch removes it after the test
    monkeypatch.setattr(agentloop.ToolCall, "function", None, raising=False)
    import from_bu_agent_sdk as shim

    for provider in ("ChatAnthropic", "ChatGoogle", "ChatOpenAI"):
        for where in (agentloop, shim):
            monkeypatch.setattr(where, provider, lambda model: ScriptedModel(*script))
    text = re.sub(r"(?m)^from bu_agent_sdk[.a-z]* import", f"from {module} import", program)
    (tmp_path / "program.py").write_text(text, encoding="utf-8")
    runpy.run_path(str(tmp_path / "program.py"), run_name="__main__")
    assert capsys.readouterr().out.strip().replace("\n", "|") == printed


def test_sampling_parameters_of_a_model_are_sent_unchanged(monkeypatch):
    monkeypatch.syspath_prepend(SHIM.parent)
    monkeypatch.delitem(sys.modules, "from_bu_agent_sdk", raising=False)
    # the recipe adds this attribute; monkeypatch removes it after the test
    monkeypatch.setattr(agentloop.ToolCall, "function", None, raising=False)
    from from_bu_agent_sdk import ChatOpenAILike

    model = ChatOpenAILike(model="m", api_key="k", top_p=0.5, seed=1, frequency_penalty=None)
    assert (model.extra, model.api) == ({"top_p": 0.5, "seed": 1}, "chat")
    assert ChatOpenAILike(model="m", api_key="k").extra == {}


def test_the_documented_sed_changes_every_import(tmp_path):
    page = (SHIM.parent / "README.md").read_text(encoding="utf-8")
    [command] = re.findall("(?m)^sed .*bu_agent_sdk.*$", page)
    before = [
        "from bu_agent_sdk.llm.some_messages import UserMessage",
        "    from bu_agent_sdk import Agent",
        "import bu_agent_sdk",
        "import bu_agent_sdk as sdk",
        "print('from bu_agent_sdk import Agent')",
    ]
    (tmp_path / "my_program.py").write_text("\n".join(before) + "\n", encoding="utf-8")
    subprocess.run(shlex.split(command), cwd=tmp_path, check=True)
    assert (tmp_path / "my_program.py").read_text(encoding="utf-8").splitlines() == [
        "from from_bu_agent_sdk import UserMessage",
        "    from from_bu_agent_sdk import Agent",
        "import from_bu_agent_sdk as bu_agent_sdk",
        "import from_bu_agent_sdk as sdk",
        before[-1],
    ]
