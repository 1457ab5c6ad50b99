"""Problem: a program needs an answer from a chat model.

The program sends a list of messages and receives one message. The model keeps no state between two
requests and sees only the list, so the program must include everything that the model has to know.

The model below is a script, so that the lesson runs offline. A real model receives and returns the
same dictionaries over HTTP (the format is Chat Completions).

Task: ask a second question in the same conversation, and print all four messages. The roles are
user, assistant, user, assistant.
"""

import json

PANTRY = {"flour": 900, "eggs": 12}


def stock(item: str) -> int:
    """Return the amount of an item in the pantry."""
    return PANTRY[item]


SCRIPT = [
    {"role": "assistant", "content": "Yes: 20 pancakes take 10 eggs, and there are 12."},
]


def model(messages):
    """Replace a model by a script: after n replies in the list, return reply n + 1."""
    return SCRIPT[sum(message["role"] == "assistant" for message in messages)]


def run(question):
    messages = [{"role": "user", "content": question}]
    messages.append(model(messages))
    return messages


if __name__ == "__main__":
    for message in run(f"There are {stock('eggs')} eggs. Are they enough for 20 pancakes?"):
        print(json.dumps(message))
    print("Notice: the model received a list and returned one message.")
    print("Notice: the program had to guess that the model needs the number of eggs.")
