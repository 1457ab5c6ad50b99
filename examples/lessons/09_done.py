"""Problem: a model announces its next step instead of taking it, and the run ends.

To the loop, a reply that has no calls is the answer. With `DoneTool`, only a call of the tool
`done` ends the run, and its argument is the answer. After plain text, a message asks the
model to go on.

`DoneTool` is a mixin, a subclass of `Loop`: for each feature, you add a base class.

Task: let the run return a `Verdict(enough, left)`, which a program can use, instead of text. Hint:
`Agent(output_type=...)`, and a pydantic model. What happens to `enough="I think so"`?
"""

from agentloop import AssistantMessage, DoneTool, Loop, ScriptedModel, ToolMessage, call, tool

PANTRY = {"flour": 900, "eggs": 12}


@tool
def stock(item: str) -> int:
    """Return the quantity of an ingredient in the pantry."""
    return PANTRY[item]


@tool
def recipe(dish: str) -> str:
    """Return the ingredients of a dish."""
    return {"pancakes": "8 pancakes take 400 flour and 4 eggs"}[dish]


SCRIPT = [
    call("stock", item="eggs"),
    "There are 12 eggs. Next I will look up the recipe.",
    call("recipe", dish="pancakes"),
    call("done", message="Yes: 20 pancakes take 10 eggs, and there are 12."),
]


def look(kind):
    agent = kind(llm=ScriptedModel(*SCRIPT), tools=[stock, recipe])
    result = agent.run_sync("Are there enough eggs for 20 pancakes?")
    print(f"-- {kind.__name__}, offering {', '.join(tool.name for tool in agent.toolset())}")
    for message in agent.messages:
        match message:
            case AssistantMessage(tool_calls=[tool_call]):
                print(f"the model calls {tool_call.name}")
            case ToolMessage():
                print(f"   its result: {message.text}")
            case AssistantMessage():
                print(f"the model replies: {message.text}")
            case _ if message.hidden:
                print(f"   the library: {message.text}")
    print(f"The run ended ({result.stop_reason}): {result}")


if __name__ == "__main__":
    look(Loop)
    look(DoneTool)
    print("Notice: without the mixin, the second half of the same script was never played.")
    print("Notice: the nudge is a message in the conversation that no user wrote.")
