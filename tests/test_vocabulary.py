"""Programs in the words of the agent SDKs that people come from run as they expect."""

import asyncio
from typing import Annotated

from agentloop import (
    Agent,
    CompactionConfig,
    Depends,
    FinalResponseEvent,
    ScriptedModel,
    StepCompleteEvent,
    StepStartEvent,
    TaskComplete,
    TextEvent,
    ThinkingEvent,
    ToolCallEvent,
    ToolResultEvent,
    tool,
)
from agentloop.messages import AssistantMessage, UserMessage
from agentloop.models.scripted import call


class Database:
    async def find(self, id: int) -> str:
        return f"user {id}"


def get_db() -> Database:
    raise RuntimeError("the real database")


@tool("Add two numbers")
async def add(a: int, b: int) -> int:
    return a + b


@tool("Query users")
async def get_user(id: int, db: Annotated[Database, Depends(get_db)]) -> str:
    return await db.find(id)


@tool("Signal task completion")
async def done(message: str) -> str:
    raise TaskComplete(message)


def test_a_quick_start_as_a_script():
    llm = ScriptedModel(call("add", a=2, b=3), call("done", message="It is 5."))
    agent = Agent(llm=llm, tools=[add, done])

    async def main():
        return await agent.query("What is 2 + 3?")

    assert asyncio.run(main()) == "It is 5."


async def test_all_the_settings_that_people_know():
    llm = ScriptedModel("Let me see.", call("get_user", id=7), call("done", message="user 7"))
    agent = Agent(
        llm=llm,
        tools=[get_user, done],
        system_prompt="You are a helper.",
        max_iterations=50,
        tool_choice="auto",
        compaction=CompactionConfig(threshold_ratio=0.80),
        dependency_overrides={get_db: Database},
        require_done_tool=True,
    )
    assert await agent.query("Who is 7?") == "user 7"
    assert any(message.text == "user 7" for message in agent.messages)
    saved = agent.messages
    agent.clear_history()
    assert agent.messages == []
    agent.load_history(saved)
    assert agent.messages == saved


async def test_watching_a_query():
    thinking = AssistantMessage("", (call("add", a=1, b=2),), thinking="Numbers.")
    agent = Agent(llm=ScriptedModel(thinking, "3"), tools=[add])
    seen = []
    async for event in agent.query_stream("1 + 2"):
        match event:
            case ThinkingEvent(content=text):
                seen.append(f"thinks {text}")
            case StepStartEvent(step_id=_, title=title, step_number=number):
                seen.append(f"step {number} {title}")
            case ToolCallEvent(tool=name, args=args, tool_call_id=_):
                seen.append(f"{name} {args}")
            case ToolResultEvent(tool=name, result=result, is_error=False):
                seen.append(f"{name} gave {result}")
            case StepCompleteEvent(status=status, duration_ms=ms):
                seen.append(f"{status} {ms >= 0}")
            case TextEvent(content=text):
                seen.append(f"says {text}")
            case FinalResponseEvent(content=text):
                seen.append(f"answers {text}")
            case _:
                pass
    assert seen == [
        "thinks Numbers.",
        "step 1 add",
        "add {'a': 1, 'b': 2}",
        "add gave 3",
        "completed True",
        "says 3",
        "answers 3",
    ]


async def test_a_model_of_ones_own_needs_one_method():
    class Echo:
        model = "echo"

        async def ainvoke(self, messages, tools=(), *, tool_choice="auto", on_delta=None):
            assert isinstance(messages[-1], UserMessage)
            return AssistantMessage(content=messages[-1].text.upper())

    assert await Agent(llm=Echo()).query("hi") == "HI"
