"""Task: ask a second question in the same conversation, and print all four messages."""

import json

PANTRY = {"flour": 900, "eggs": 12}


def stock(item: str) -> int:
    """Return the quantity of an ingredient in the pantry."""
    return PANTRY[item]


SCRIPT = [
    {"role": "assistant", "content": "Yes: 20 pancakes take 10 eggs, and there are 12."},
    {"role": "assistant", "content": "Then 2 eggs are left."},
]


def model(messages):
    """Simulate a model: after n replies in the list, return reply n + 1 of the script."""
    return SCRIPT[sum(message["role"] == "assistant" for message in messages)]


def run(*questions):
    messages = []
    for question in questions:
        messages.append({"role": "user", "content": question})
        messages.append(model(messages))
    return messages


if __name__ == "__main__":
    first = f"There are {stock('eggs')} eggs. Are they enough for 20 pancakes?"
    for message in run(first, "And how many eggs are left?"):
        print(json.dumps(message))
    print("Notice: the second request also contains the first question and its answer.")
