"""Output of type checkers and editors: exactly the lines that end in `# E` are errors."""

from typing import Annotated, assert_type

from pydantic import BaseModel

import agentloop
from agentloop import (
    Agent,
    CompactionConfig,
    Depends,
    DoneTool,
    Ephemeral,
    ImagePart,
    Loop,
    MessageQueue,
    Result,
    ScriptedModel,
    Session,
    ToolCallEvent,
    tool,
)
from agentloop.mixins.approval import Approval

llm = ScriptedModel("hi")


def get_db() -> dict[str, str]:
    return {}


@tool("Test")
async def add(a: int, b: int) -> int:
    return a + b


@tool("Find", timeout=3, ephemeral=2)
def find(name: str, db: Annotated[dict[str, str], Depends(get_db)]) -> str:
    return db[name]


@tool("Test")
def find_too(name: str, db: dict[str, str] = Depends(get_db)) -> str:
    return db[name]


class City(BaseModel):
    name: str


class Saved(Session, MessageQueue, Agent):
    max_iterations = 20


class Desk(Approval, MessageQueue, Session, Agent):
    """Combines compatible overrides of `fork` and `close`."""


class Bare(DoneTool, Ephemeral, Loop):
    limit: int = 5


agent = Agent(
    llm=llm,
    tools=[add, find, find_too],
    require_done_tool=True,
    offer_recall=False,
    compaction=CompactionConfig(threshold_ratio=0.5),
    max_iterations=3,
    dependency_overrides={get_db: lambda: {}},
)
saved = Saved(llm=llm, session="x", reminders=[], output_type=int, cancel_timeout=1)
bare = Bare(llm=llm, limit=3, ephemeral_batch=2)

agentloop.Agnet(llm=llm)  # E
agentloop.ChatOpenAI("gpt-5")


class Counting(Agent):
    _turns: int = 0


Counting(llm=llm, system_prompt=lambda agent: "Hi.", tool_timeout=3.0)
Agent(llm=llm, system_prompt=3)  # E
Agent()  # E
Agent(llm)  # E
Agent(llm=llm, max_iteration=3)  # E
Agent(llm=llm, max_iterations="3")  # E
Agent(llm="gpt")  # E
Saved(llm=llm, session=5)  # E
Bare(llm=llm, compaction=None)  # E


async def main() -> None:
    assert_type(await add(1, 2), int)
    assert_type(find("x", {}), str)
    await add("1", 2)  # E
    assert_type(await agent.run("x"), Result)
    assert_type((await agent.run_as(City, "x")).value, City | None)
    assert_type((await agent.run_as(list[int], "x")).value, list[int] | None)
    print((await agent.run_as(City, "x")).value.name)  # E
    city: City = (await agent.run("x")).value
    assert_type(city.name, str)
    assert_type(await agent.query("x"), str)
    await agent.run(["Which city is this?", ImagePart("https://a.example/b.png")])
    await agent.run(["Which city is this?", 5])  # E
    assert_type(agent.fork(), Agent)
    async for event in agent.query_stream("x"):
        if isinstance(event, ToolCallEvent):
            assert_type(event.args["a"], object)  # E
            print(event.tool.upper(), event.tol)  # E
