"""Problem: a tool needs things that the model must not choose, such as the pantry it looks into.

A parameter marked with `Depends(function)` is not part of the schema. The function is called
before the tool and its value is handed in; a model that names the parameter gets an error.
`dependency_overrides` puts another function in its place, above all in tests.

A `def` dependency runs where its tool runs. For a `def` tool this is a thread that the call has for
itself: dependencies are opened there, used and closed, so a connection to SQLite works. For an
`async def` tool it is the thread of the event loop, where nothing should block. An `async def`
dependency always runs there.

Task: let `open_pantry` yield the pantry, and print when it is opened and when it is closed. It is
closed after each call, also after a second one for milk, which fails: print what the model is
told.
"""

import json
from typing import Annotated

from agentloop import Depends, Loop, ScriptedModel, ToolMessage, call, tool


def open_pantry() -> dict[str, int]:
    return {"flour": 900, "eggs": 12}


def empty_pantry() -> dict[str, int]:
    return {"flour": 0, "eggs": 0}


@tool
def stock(item: str, pantry: Annotated[dict[str, int], Depends(open_pantry)]) -> int:
    """How much of an item is in the pantry."""
    return pantry[item]


def look(overrides):
    model = ScriptedModel(
        call("stock", item="eggs", pantry={"eggs": 1000}),
        call("stock", item="eggs"),
        lambda messages, tools: f"There are {messages[-1].text} eggs.",
    )
    agent = Loop(llm=model, tools=[stock], dependency_overrides=overrides)
    answer = agent.run_sync("How many eggs are there?")
    for message in agent.messages:
        if isinstance(message, ToolMessage):
            print("the model is told:", message.text)
    print(answer)


if __name__ == "__main__":
    print("the model may fill in:", json.dumps(stock.parameters["properties"]))
    look(overrides={})
    look(overrides={open_pantry: empty_pantry})
    print("Notice: the pantry is not in the schema, and a call that brings one is refused.")
    print("Notice: the same tool looked into two pantries.")
