"""Task: let a second model answer if the first one is unavailable, and print the name of the model
that answered."""

from agentloop import Agent, AssistantMessage, Fallback, Overloaded, ScriptedModel, call, tool

PANTRY = {"flour": 900, "eggs": 12}


@tool
def stock(item: str) -> int:
    """Return the quantity of an ingredient in the pantry: flour in grams, eggs in pieces."""
    return PANTRY[item]


first = ScriptedModel(Overloaded("529: try later", status=529), model="the first")
second = ScriptedModel(call("stock", item="eggs"), "There are 12 eggs.", model="the second")

if __name__ == "__main__":
    agent = Agent(llm=Fallback(first, second), tools=[stock])
    agent.run_sync("How many eggs are there?")
    for message in agent.messages:
        if isinstance(message, AssistantMessage):
            print(f"{message.model} says: {message.text or message.tool_calls[0].name}")
    print("requests to the first:", len(first.requests))
    print("requests to the second:", len(second.requests))
    print("Notice: an unavailable model receives no further request for a minute.")
