"""Task: let `open_pantry` yield the pantry, and print when the pantry is opened and when it is
closed."""

from collections.abc import Iterator
from typing import Annotated

from agentloop import Depends, Loop, ScriptedModel, ToolMessage, call, tool


def open_pantry() -> Iterator[dict[str, int]]:
    print("the pantry is opened")
    try:
        yield {"flour": 900, "eggs": 12}
    finally:
        print("the pantry is closed")


@tool
def stock(item: str, pantry: Annotated[dict[str, int], Depends(open_pantry)]) -> int:
    """Return the quantity of an ingredient in the pantry."""
    print("stock runs")
    return pantry[item]


model = ScriptedModel(
    call("stock", item="eggs"),
    call("stock", item="milk"),
    "There are 12 eggs, and no milk.",
)
agent = Loop(llm=model, tools=[stock])

if __name__ == "__main__":
    print(agent.run_sync("How many eggs are there, and is there milk?"))
    for message in agent.messages:
        if isinstance(message, ToolMessage):
            print("the model received:", message.text)
    print("Notice: with `finally`, the pantry is also closed after a failed call.")
