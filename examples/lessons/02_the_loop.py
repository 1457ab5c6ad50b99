"""Problem: a program can't know in advance what the model will need.

So let the model ask. Instead of an answer, it sends a call: the name of a function, and arguments
as JSON text. The program runs the function, appends the result, and calls the model again. A real
model also gets descriptions of the functions (lesson 6).

Task: let the model request the flour as well before it answers, without changing `run`. The tool
messages are 12, then 900.
"""

import json

PANTRY = {"flour": 900, "eggs": 12}


def stock(item: str) -> int:
    """Return the quantity of an ingredient in the pantry."""
    return PANTRY[item]


def call(id, name, **arguments):
    function = {"name": name, "arguments": json.dumps(arguments)}
    return {"id": id, "type": "function", "function": function}


def reply_with(*calls):
    return {"role": "assistant", "content": None, "tool_calls": list(calls)}


SCRIPT = [
    reply_with(call("call_1", "stock", item="eggs")),
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
            result = stock(**json.loads(tool_call["function"]["arguments"]))
            answer = {"role": "tool", "tool_call_id": tool_call["id"], "content": str(result)}
            messages.append(answer)


if __name__ == "__main__":
    for message in run("Are there enough eggs for 20 pancakes?"):
        print(json.dumps(message))
    print("Notice: the result follows its call, and carries the id of the call.")
    print("Notice: the loop ends with the first reply that has no calls.")
