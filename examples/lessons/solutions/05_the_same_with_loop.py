"""Exercise: let a model give each call the id "1", and print the ids under which they are kept."""

from agentloop import AssistantMessage, Loop, ScriptedModel, ToolCall, ToolMessage, tool

PANTRY = {"flour": 900, "eggs": 12}


@tool
def stock(item: str) -> int:
    """How much of an item is in the pantry."""
    return PANTRY[item]


SCRIPT = [
    AssistantMessage(tool_calls=(ToolCall("1", "stock", '{"item": "eggs"}'),)),
    AssistantMessage(tool_calls=(ToolCall("1", "stock", '{"item": "flour"}'),)),
    AssistantMessage("There are 12 eggs and 900 flour."),
]
agent = Loop(llm=ScriptedModel(*SCRIPT), tools=[stock])

if __name__ == "__main__":
    agent.run_sync("What is there?")
    print("the model's ids:", *(call.id for reply in SCRIPT for call in reply.tool_calls))
    results = [message for message in agent.messages if isinstance(message, ToolMessage)]
    print("they are kept as:", *(result.tool_call_id for result in results))
    print("their results:", *(result.text for result in results))
    print("Notice: providers refuse a conversation in which two calls have one id.")
