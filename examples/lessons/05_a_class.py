"""Problem: to change one part of the loop, you have to change the function that contains the loop.

So the loop becomes a class, and each part a method. A change is then a mixin: a subclass that
overrides a method and calls `super()`. `Verbose` below prints every call.

The methods have the same names in nano.py and in agentloop, which calls them seams: `context`
returns the messages for the model, `toolset` the tools that it may call, and `record` appends to
the log.

Task: write a mixin `Polite` that answers calls of `recipe` itself. The result is `ask the cook
first`; other calls work as before. (`class Both(Verbose, Polite): pass` combines two mixins.)
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


class Loop:
    def __init__(self, model, tools, max_iterations=3):
        self.llm, self.tools, self.max_iterations, self.log = model, tools, max_iterations, []

    def run(self, prompt):
        self.record({"role": "user", "content": prompt})
        for _ in range(self.max_iterations):
            reply = self.call_model(self.context())
            self.record(reply)
            if not reply.get("tool_calls"):
                return reply["content"]
            self.call_tools(reply["tool_calls"])
        self.record({"role": "user", "content": OUT_OF_TURNS})
        reply = self.call_model(self.context())
        self.record(reply)
        return reply["content"]

    def context(self):
        return self.log

    def toolset(self):
        return self.tools

    def call_model(self, messages):
        return self.llm(messages)

    def call_tools(self, calls):
        for call in calls:
            self.record(self.call_tool(call))

    def call_tool(self, call):
        try:
            tool = self.toolset()[call["function"]["name"]]
            result = tool(**json.loads(call["function"]["arguments"]))
        except Exception as error:
            result = f"{type(error).__name__}: {error}"
        return result_of(call, str(result))

    def record(self, record):
        self.log.append(record)


def result_of(call, text):
    return {"role": "tool", "tool_call_id": call["id"], "content": text}


class Verbose(Loop):
    def call_tool(self, call):
        result = super().call_tool(call)
        print("Verbose:", call["function"]["name"], "->", result["content"])
        return result


if __name__ == "__main__":
    agent = Verbose(model, TOOLS)
    agent.run("Are there enough eggs for 20 pancakes?")
    for message in agent.log:
        print(json.dumps(message))
    print("Notice: the messages are those of lesson 4; `run` is its loop, with named parts.")
    print("Notice: `Verbose` has five lines, and the loop didn't change.")
