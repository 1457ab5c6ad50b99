"""Problem: a program needs an answer from a chat model.

You send a list of messages and get one message back. The model remembers nothing between requests:
it sees this list, so your program has to put everything into it that the model needs.

The model below is a script, because the lessons run offline. You'd send the same dictionaries to a
real model, over HTTP, in the format called Chat Completions.

Task: ask a second question in the same conversation, and print all four messages. The roles are
user, assistant, user, assistant.
"""

import json

PANTRY = {"flour": 900, "eggs": 12}


def stock(item: str) -> int:
    """Return the quantity of an ingredient in the pantry."""
    return PANTRY[item]


SCRIPT = [
    {"role": "assistant", "content": "Yes: 20 pancakes take 10 eggs, and there are 12."},
]


def model(messages):
    """Simulate a model: after n replies in the list, return reply n + 1 of the script."""
    return SCRIPT[sum(message["role"] == "assistant" for message in messages)]


def run(question):
    messages = [{"role": "user", "content": question}]
    messages.append(model(messages))
    return messages


if __name__ == "__main__":
    for message in run(f"There are {stock('eggs')} eggs. Are they enough for 20 pancakes?"):
        print(json.dumps(message))
    print("Notice: the model got a list and returned one message.")
    print("Notice: the program had to guess that the model would need the number of eggs.")
