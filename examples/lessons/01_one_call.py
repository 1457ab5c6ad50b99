"""Problem: a program needs an answer from a chat model.

The program sends a list of messages and receives one message. The model keeps no state between
requests and sees only the list. Therefore the program must include all necessary information.

The model below is a script, because the lessons run offline. A real model exchanges the same
dictionaries over HTTP, in the format Chat Completions.

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
    print("Notice: the model received a list and returned one message.")
    print("Notice: the program had to guess that the model needs the number of eggs.")
