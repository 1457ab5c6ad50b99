"""Problem: a run takes time, and the user wants to watch it.

`query_stream` runs the same loop, and yields each event as it happens. A ToolCallEvent announces a
call, and its tool only starts when you ask for the next event. So if you leave the stream at the
ToolCallEvent, the tool doesn't run.

Task: leave the stream before `stock` runs, and continue with `agent.run()`, which runs the call
once. In between, print the placeholder result of the call (the last of `agent.messages`).
"""

import asyncio

from agentloop import (
    FinalResponseEvent,
    Loop,
    ScriptedModel,
    TextDeltaEvent,
    ToolCallEvent,
    ToolResultEvent,
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
    async for event in agent.query_stream("How many eggs are there?"):
        match event:
            case ToolCallEvent():
                print(f"{event.tool} is about to run with {event.args}")
            case ToolResultEvent():
                print(f"{event.tool} returned {event.result}")
            case TextDeltaEvent():
                print(f"a piece of text: {event.content!r}")
            case FinalResponseEvent():
                print(f"the answer: {event.content}")


if __name__ == "__main__":
    asyncio.run(main())
    print(f"Notice: streaming does not change the conversation: {len(agent.messages)} messages.")
    print("Notice: the text arrived in pieces, and again as a whole at the end.")
