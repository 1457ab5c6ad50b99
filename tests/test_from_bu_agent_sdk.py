"""Programs of bu_agent_sdk's shape run with their imports changed."""

import re
import runpy
import sys
from pathlib import Path

import pytest

from agentloop import ScriptedModel, ServerError, call

SHIM = Path(__file__).parents[1] / "examples" / "recipes" / "from_bu_agent_sdk.py"
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
DEPENDENCIES = """
import asyncio
from typing import Annotated
from bu_agent_sdk import Agent
from bu_agent_sdk.agent import FinalResponseEvent, ToolCallEvent, ToolResultEvent
from bu_agent_sdk.llm import ChatOpenAI
from bu_agent_sdk.tools import Depends, tool

def get_shelf() -> dict:
    raise RuntimeError("to be overridden")

@tool("How many there are")
async def count(item: str, shelf: Annotated[dict, Depends(get_shelf)]) -> str:
    return f"{shelf[item]} {item}"

async def main():
    overrides = {get_shelf: lambda: {"cups": 3}}
    agent = Agent(
        llm=ChatOpenAI(model="m"), tools=[count], system_prompt=None, dependency_overrides=overrides
    )
    async for event in agent.query_stream("How many cups?"):
        match event:
            case ToolCallEvent(tool=name, args=args):
                print(name, args)
            case ToolResultEvent(result=result, is_error=False):
                print("->", result)
            case FinalResponseEvent(content=text):
                print(text)
    print((await agent.get_usage()).total_cost)

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
MANY_TURNS = """
import asyncio
from bu_agent_sdk import Agent, observe
from bu_agent_sdk.llm import ChatGoogle
from bu_agent_sdk.tools import tool

@tool("Look around")
async def look() -> dict:
    return {"seen": []}

@observe(name="main")
async def main():
    agent = Agent(llm=ChatGoogle(model="m"), tools=[look], max_iterations=1)
    print(await agent.query("Find it."))
    agent.clear_history()
    print(len(agent.messages))

asyncio.run(main())
"""
HISTORY = """
import asyncio
from bu_agent_sdk import Agent
from bu_agent_sdk.llm import AssistantMessage, ChatOpenAI, UserMessage, ModelProviderError

async def main():
    agent = Agent(llm=ChatOpenAI(model="m"), tools=[])
    agent.load_history([UserMessage(content="I am Ann."), AssistantMessage(content="Hi.")])
    print(await agent.query("Who am I?"), len(agent.messages))
    try:
        await agent.query("And now?")
    except ModelProviderError as error:
        print(type(error).__name__)
    print((await agent.get_usage()).entry_count > 0)

asyncio.run(main())
"""
PROGRAMS = {
    "done tool": (
        DONE_TOOL,
        [call("multiply", a=6, b=7), "It is 42.", call("done", message="42")],
        "42\n",
    ),
    "dependencies": (
        DEPENDENCIES,
        [call("count", item="cups"), "Three."],
        "count {'item': 'cups'}\n-> 3 cups\nThree.\n0.0\n",
    ),
    "one by one": (
        ONE_BY_ONE,
        [[call("page", number=1), call("page", number=2)], call("page", number=3), "All."],
        "begins 1\nends 1\nbegins 2\nends 2\nbegins 3\nends 3\nAll.\n"
        "Read all.|[An older|[An older|page 3: t\n",
    ),
    "out of turns": (MANY_TURNS, [call("look"), "I have only looked."], "I have only looked.\n0\n"),
    "history": (HISTORY, ["Ann.", ServerError("gone", status=503)], "Ann. 4\nServerError\nTrue\n"),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_runs_with_its_imports_changed(
    name: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    program, script, printed = PROGRAMS[name]
    monkeypatch.syspath_prepend(SHIM.parent)
    monkeypatch.delitem(sys.modules, "from_bu_agent_sdk", raising=False)
    import from_bu_agent_sdk as shim

    for provider in ("ChatAnthropic", "ChatGoogle", "ChatOpenAI"):
        monkeypatch.setattr(shim, provider, lambda model: ScriptedModel(*script))
    text = re.sub(r"(?m)^from bu_agent_sdk[.a-z]* import", "from from_bu_agent_sdk import", program)
    (tmp_path / "program.py").write_text(text, encoding="utf-8")
    runpy.run_path(str(tmp_path / "program.py"), run_name="__main__")
    assert capsys.readouterr().out == printed
