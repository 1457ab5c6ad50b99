"""Task: leave the stream before `stock` runs, and continue with `agent.run()`."""

import asyncio

from agentloop import (
    Loop,
    ScriptedModel,
    ToolCallEvent,
    call,
    tool,
)

PANTRY = {"flour": 900, "eggs": 12}


@tool
def stock(item: str) -> int:
    """Return the quantity of an ingredient in the pantry."""
    print("stock runs")
    return PANTRY[item]


agent = Loop(
    llm=ScriptedModel(call("stock", item="eggs"), "There are 12 eggs."),
    tools=[stock],
)


async def main():
    async with agent.query_stream("How many eggs are there?") as events:
        async for event in events:
            if isinstance(event, ToolCallEvent):
                print(f"{event.tool} is about to run; the reader leaves")
                break
    print("the model would receive:", agent.messages[-1].text)
    print("the answer:", await agent.run())


if __name__ == "__main__":
    asyncio.run(main())
    print("Notice: the log contained the call without a result, so `run()` could continue.")
