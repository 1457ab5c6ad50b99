"""Task: let the model request the flour as well before it answers, without changing `run`."""

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
    reply_with(call("call_2", "stock", item="flour")),
    {
        "role": "assistant",
        "content": "There are 12 eggs, enough for 24, and 900 flour, enough for 18.",
    },
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
    for message in run("Are there enough eggs and flour for 20 pancakes?"):
        print(json.dumps(message))
    print("Notice: the model determines the number of turns.")
