"""Makes watch_the_loop.html: a page that shows how the loop works, record by record.

    python examples/lessons/make_loop_page.py

Three runs in a kitchen show calls at the same time, pruned results, a cancelled run and a summary.
`agentloop view SESSION --loop` makes the same page of any session.
"""

import asyncio
from dataclasses import replace
from pathlib import Path

from agentloop import (
    Agent,
    AssistantMessage,
    CompactionConfig,
    Mark,
    ScriptedModel,
    ToolCall,
    Usage,
    UserMessage,
    tool,
)
from agentloop.cli.view import page_of

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
PLACES = [
    "a jar in the cupboard",
    "a bag next to the door",
    "a box in the cellar",
    "some on the table",
]
SHELF = "\n".join(f"{spice}: {place}" for place in PLACES for spice in SPICES)


@tool
async def recipe(dish: str) -> str:
    """Return the ingredients of a dish."""
    await asyncio.sleep(0.01)
    return {"pancakes": "8 pancakes take 4 eggs, 400 flour and 200 milk"}[dish]


@tool(ephemeral=1)
async def take(item: str, amount: int) -> str:
    """Take some of an item. Return the remaining contents of the pantry."""
    return f"{item}: {PANTRY[item] - amount}\n{SHELF}"


def reply_with(text, *calls):
    """A reply with calls, of which nothing was cached, so that pruning begins at once."""
    tool_calls = [ToolCall(id, name, arguments) for id, name, arguments in calls]
    return AssistantMessage(text, tool_calls, usage=Usage(5000, 20))


FIRST = [
    reply_with(
        "I will look up the recipe.",
        ("call_1", "recipe", '{"dish": "pancakes"}'),
        ("call_2", "take", '{"item": "eggs", "amount": 4}'),
    ),
    reply_with("", ("call_3", "take", '{"item": "flour", "amount": 400}')),
    reply_with("", ("call_4", "take", '{"item": "milk", "amount": 200}')),
    reply_with("Now I bake the pancakes.", ("call_5", "bake", '{"pancakes": 8}')),
]
SECOND = AssistantMessage(
    "I do not know: I was interrupted during baking. Please look into the oven."
)
SUMMARY = AssistantMessage("The task: 8 pancakes. 4 eggs, 400 flour and 200 milk were taken.")
THIRD = AssistantMessage("One day, in the refrigerator.")


async def kitchen():
    """The log of the three runs, without times."""
    begun = asyncio.Event()

    @tool
    async def bake(pancakes: int) -> str:
        """Bake the pancakes."""
        begun.set()
        await asyncio.sleep(3600)
        return "The pancakes are golden."

    agent = Agent(llm=ScriptedModel(*FIRST, SECOND), tools=[recipe, take, bake])
    run = asyncio.ensure_future(agent.run("Make 8 pancakes."))
    await begun.wait()
    run.cancel()
    await asyncio.wait([run])
    await agent.run("Are they done?")
    agent.llm = ScriptedModel(SUMMARY, THIRD)
    agent.compaction = CompactionConfig(context_window=500, keep_turns=0)
    await agent.run("How long do pancakes keep?")
    return [without_time(record, n) for n, record in enumerate(agent.log)]


def without_time(record, n):
    """A record that is the same each time: an entry at second `n`, or a message with no duration."""
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
