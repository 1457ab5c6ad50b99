"""Problem: one function isn't enough, and functions fail.

A dictionary has the function for each name that a call may have. An exception becomes the text of
the result: the model reads the error and can correct its call. If the program didn't catch it, the
exception would end the conversation.

Task: let the error of `stock` list the available items, so that the model doesn't have to guess.
The result is `LookupError: there is no egg; there are flour, eggs`.
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


def call(id, name, **arguments):
    function = {"name": name, "arguments": json.dumps(arguments)}
    return {"id": id, "type": "function", "function": function}


def reply_with(*calls):
    return {"role": "assistant", "content": None, "tool_calls": list(calls)}


SCRIPT = [
    reply_with(call("call_1", "recipe", dish="pancakes"), call("call_2", "stock", item="egg")),
    reply_with(call("call_3", "stock", item="eggs")),
    {"role": "assistant", "content": "Yes: 20 pancakes take 10 eggs, and there are 12."},
]


def model(messages):
    """Simulate a model: after n replies in the list, return reply n + 1 of the script."""
    return SCRIPT[sum(message["role"] == "assistant" for message in messages)]


def run(question):
    messages = [{"role": "user", "content": question}]
    while True:
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


if __name__ == "__main__":
    for message in run("Are there enough eggs for 20 pancakes?"):
        print(json.dumps(message))
    print("Notice: the model read KeyError: 'egg' and tried again with 'eggs'.")
    print("Notice: both calls of a reply have a result, in the order of the calls.")
