"""Problem: the loop of lesson 4 ran with a script. Does it work with a real model?

Yes, unchanged. Only `model` is different: it sends the request of lesson 1b, and with it the
descriptions of the functions. This is a complete agent, without third-party packages:

    export OPENAI_BASE_URL=http://127.0.0.1:11434/v1 OPENAI_MODEL=qwen3  # or another server
    python examples/lessons/04b_on_a_real_model.py

If you have no server, you play the model. The program prints the message that the model would get,
and you type a reply: an answer, or a call that starts with `stock`, such as `stock {"item":
"eggs"}`. (If there's no keyboard, a script replies.)

Task: play the model. Request an item that doesn't exist, read the error, and request the flour and
the eggs. Answer with both numbers, 900 and 12. Then store your replies in TYPED.
"""

import json
import os
import urllib.request

PANTRY = {"flour": 900, "eggs": 12}
TYPED = ['stock {"item": "eggs"}', "Yes: 20 pancakes take 10 eggs, and there are 12."]


def stock(item: str) -> int:
    """Return the quantity of an ingredient in the pantry."""
    return PANTRY[item]


TOOLS = {"stock": stock}
ITEM = {"type": "object", "properties": {"item": {"type": "string"}}, "required": ["item"]}
OUT_OF_TURNS = "You have no turns left. Report the results and the open points."
STOCK = {"name": "stock", "description": stock.__doc__, "parameters": ITEM}


def model(messages):
    """Get the reply from a server, or from you at the keyboard."""
    url, name = os.environ.get("OPENAI_BASE_URL"), os.environ.get("OPENAI_MODEL", "gpt-5.4-mini")
    if not url:
        return play(messages)
    body = {"model": name, "messages": messages, "tools": [{"type": "function", "function": STOCK}]}
    key = f"Bearer {os.environ.get('OPENAI_API_KEY', 'no-key')}"
    headers = {"Content-Type": "application/json", "Authorization": key}
    request = urllib.request.Request(f"{url}/chat/completions", json.dumps(body).encode(), headers)
    with urllib.request.urlopen(request, timeout=600) as response:
        return json.load(response)["choices"][0]["message"]


def play(messages):
    """Print what the model would get, and return what you type as its reply."""
    print(f"You receive {len(messages)} messages. The last one: {json.dumps(messages[-1])}")
    try:
        typed = input("Your reply (a call starts with: stock): ")
    except EOFError:
        print(typed := TYPED.pop(0))
    name, _, arguments = typed.partition(" ")
    if name not in TOOLS:
        return {"role": "assistant", "content": typed}
    function = {"name": name, "arguments": arguments}
    call = {"id": f"call_{len(messages)}", "type": "function", "function": function}
    return {"role": "assistant", "content": None, "tool_calls": [call]}


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
    print("The answer:", run("Are there enough eggs for 20 pancakes?", limit=10)[-1]["content"])
    print("Notice: the loop can't tell you from a model.")
