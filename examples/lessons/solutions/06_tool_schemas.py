"""Task: let one call request several items, `items: list[str]`, and let the model send a single
text."""

import inspect
import json
from dataclasses import dataclass
from typing import Literal

from pydantic import ConfigDict, create_model

PANTRY = {"flour": 900, "eggs": 12}
OUT_OF_TURNS = "You have no turns left. Report the results and the open points."


@dataclass(eq=False)
class Tool:
    function: object
    description: str = ""

    def __post_init__(self):
        self.name = self.function.__name__
        self.description = self.description or inspect.getdoc(self.function) or ""
        fields = {}
        for name, parameter in inspect.signature(self.function, eval_str=True).parameters.items():
            default = ... if parameter.default is parameter.empty else parameter.default
            fields[name] = parameter.annotation, default
        self.model = create_model(self.name, __config__=ConfigDict(extra="forbid"), **fields)
        parameters = self.model.model_json_schema()
        schema = {"name": self.name, "description": self.description, "parameters": parameters}
        self.declaration = {"type": "function", "function": schema}

    def execute(self, arguments):
        values = dict(self.model.model_validate_json(arguments))
        return self.function(**values)


def tool(description="", **options):
    """Turn a function into a tool: `@tool`, or `@tool("description")`."""
    if isinstance(description, str):
        return lambda function: Tool(function, description, **options)
    return Tool(description)


@tool
def stock(items: list[str], unit: Literal["pieces", "grams"] = "pieces") -> str:
    """Return the amounts of some items in the pantry."""
    print(f"stock runs with {items}")
    return ", ".join(f"{PANTRY[item]} {unit} of {item}" for item in items)


def call(id, name, **arguments):
    function = {"name": name, "arguments": json.dumps(arguments)}
    return {"id": id, "type": "function", "function": function}


def reply_with(*calls):
    return {"role": "assistant", "content": None, "tool_calls": list(calls)}


SCRIPT = [
    reply_with(call("call_1", "stock", items="eggs")),
    reply_with(call("call_2", "stock", items=["eggs", "flour"])),
    {"role": "assistant", "content": "There are 12 eggs, and 900 of flour."},
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
        tools = {tool.name: tool for tool in self.toolset()}
        try:
            tool = tools[call["function"]["name"]]
            result = tool.execute(call["function"]["arguments"])
        except Exception as error:
            result = f"{type(error).__name__}: {error}"
        return result_of(call, str(result))

    def record(self, record):
        self.log.append(record)


def result_of(call, text):
    return {"role": "tool", "tool_call_id": call["id"], "content": text}


if __name__ == "__main__":
    print(json.dumps(stock.declaration, indent=2))
    agent = Loop(model, [stock], max_iterations=4)
    agent.run("How many eggs are there?")
    for message in agent.log:
        for tool_call in message.get("tool_calls", []):
            print("the model sends:   ", tool_call["function"]["arguments"])
        if message["role"] == "tool":
            lines = [line for line in message["content"].splitlines() if "For further" not in line]
            print("the model receives:", *lines)
    print("Notice: a text is also a sequence, but validation does not accept it as a list.")
