"""Writes watch_the_loop.html: a page on which one sees the loop work, record by record.

    python examples/lessons/make_loop_page.py

Three runs in a kitchen: calls side by side, results that are pruned, a run that is cut off, and a
summary. `agentloop view SESSION --loop` makes such a page of any session.
"""

import asyncio
from dataclasses import replace
from pathlib import Path

from agentloop import (
    Agent,
    AssistantMessage,
    CompactionConfig,
    ScriptedModel,
    ToolCall,
    Usage,
    UserMessage,
    tool,
)
from agentloop.cli.view import page_of
from agentloop.messages import Mark

PAGE = Path(__file__).parent / "watch_the_loop.html"
PANTRY = {"eggs": 12, "flour": 900, "milk": 500}
SPICES = [
    "salt",
    "pepper",
    "cinnamon",
    "cardamom",
    "cloves",
    "nutmeg",
    "ginger",
    "turmeric",
    "cumin",
    "saffron",
]
KEPT = [
    "a jar in the cupboard",
    "a bag beside the door",
    "a box in the cellar",
    "some on the table",
]
SHELF = "\n".join(f"{spice}: {place}" for place in KEPT for spice in SPICES)


@tool
async def recipe(dish: str) -> str:
    """What a dish takes."""
    await asyncio.sleep(0.01)
    return {"pancakes": "8 pancakes take 4 eggs, 400 flour and 200 milk"}[dish]


@tool(ephemeral=1)
async def take(item: str, amount: int) -> str:
    """Take some of an item. Returns what is in the pantry then."""
    return f"{item}: {PANTRY[item] - amount}\n{SHELF}"


def asks(text, *calls):
    """A reply with calls. No provider had the request in its cache, so stale results go at once."""
    asked = [ToolCall(id, name, arguments) for id, name, arguments in calls]
    return AssistantMessage(text, asked, usage=Usage(5000, 20))


FIRST = [
    asks(
        "I look.",
        ("call_1", "recipe", '{"dish": "pancakes"}'),
        ("call_2", "take", '{"item": "eggs", "amount": 4}'),
    ),
    asks("", ("call_3", "take", '{"item": "flour", "amount": 400}')),
    asks("", ("call_4", "take", '{"item": "milk", "amount": 200}')),
    asks("Now they go into the oven.", ("call_5", "bake", '{"pancakes": 8}')),
]
SECOND = AssistantMessage("I do not know: I was cut off while they were in the oven. Look there.")
SUMMARY = AssistantMessage("8 pancakes were to be made: 4 eggs, 400 flour, 200 milk are taken.")
THIRD = AssistantMessage("A day, in the refrigerator.")


async def kitchen():
    """The log of the three runs, without the times."""
    begun = asyncio.Event()

    @tool
    async def bake(pancakes: int) -> str:
        """Bake them."""
        begun.set()
        await asyncio.sleep(3600)
        return "They are golden."

    agent = Agent(llm=ScriptedModel(*FIRST, SECOND), tools=[recipe, take, bake])
    run = asyncio.ensure_future(agent.run("Make 8 pancakes."))
    await begun.wait()
    run.cancel()
    await asyncio.wait([run])
    await agent.run("Are they done?")
    agent.llm = ScriptedModel(SUMMARY, THIRD)
    agent.compaction = CompactionConfig(context_window=500, keep_turns=0)
    await agent.run("How long do they keep?")
    return [without_time(record, n) for n, record in enumerate(agent.log)]


def without_time(record, n):
    """The record as it is each time: a mark at second `n`, a message that took no time."""
    if isinstance(record, Mark):
        return replace(record, at=float(n))
    if isinstance(record, UserMessage):
        return record
    return replace(record, seconds=None)


def page():
    """The page, as bytes."""
    return page_of("A kitchen in three runs", asyncio.run(kitchen()), loop=True)


if __name__ == "__main__":
    PAGE.write_bytes(page())
    print(f"{PAGE.name}: {PAGE.stat().st_size:,} bytes")
