"""Problem: a model may call tools forever, and every turn costs time and money.

So the loop gets a limit. When it's reached, a message asks the model for one more reply: what it
has found out, and what is still open. That's more useful than an exception.

Task: let `run` also return why it ended, "completed" or "max_iterations", for limits of 3 and 4:
`limit 3: max_iterations, after 10 messages`, `limit 4: completed, after 9 messages`.
"""

import json

PANTRY = {"flour": 900, "eggs": 12}


def stock(item: str) -> int:
    """Return the quantity of an ingredient in the pantry."""
    return PANTRY[item]


def recipe(dish: str) -> str:
    """Return the ingredients of a dish."""
    return {"pancakes": "8 pancakes take 400 flour and 4 eggs"}[dish]


TOOLS = {"stock": stock, "recipe": recipe}
OUT_OF_TURNS = "You have no turns left. Report the results and the open points."


def call(id, name, **arguments):
    function = {"name": name, "arguments": json.dumps(arguments)}
    return {"id": id, "type": "function", "function": function}


def reply_with(*calls):
    return {"role": "assistant", "content": None, "tool_calls": list(calls)}


SCRIPT = [
    reply_with(call("call_1", "recipe", dish="pancakes"), call("call_2", "stock", item="egg")),
    reply_with(call("call_3", "stock", item="hen's egg")),
    reply_with(call("call_4", "stock", item="oeuf")),
    {"role": "assistant", "content": "20 pancakes take 10 eggs; the number of eggs is unknown."},
]


def model(messages):
    """Simulate a model: after n replies in the list, return reply n + 1 of the script."""
    return SCRIPT[sum(message["role"] == "assistant" for message in messages)]


def run(question, limit=3):
    messages = [{"role": "user", "content": question}]
    for _ in range(limit):
        messages.append(model(messages))
        if not messages[-1].get("tool_calls"):
            return messages
        for tool_call in messages[-1]["tool_calls"]:
            try:
                tool = TOOLS[tool_call["function"]["name"]]
                result = tool(**json.loads(tool_call["function"]["arguments"]))
            except Exception as error:
                result = f"{type(error).__name__}: {error}"
            answer = {"role": "tool", "tool_call_id": tool_call["id"], "content": str(result)}
            messages.append(answer)
    messages.append({"role": "user", "content": OUT_OF_TURNS})
    messages.append(model(messages))  # nano.py drops tool calls in the final reply
    return messages


if __name__ == "__main__":
    for message in run("Are there enough eggs for 20 pancakes?"):
        print(json.dumps(message))
    print("Notice: a `for` instead of a `while`. An agent is a for-loop.")
    print("Notice: the last reply says what was found, and what is missing.")
