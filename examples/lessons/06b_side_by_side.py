"""Problem: calls wait for each other, and a cancelled run leaves a call that has no result.

Providers reject a list with such a call. So the loop becomes async, and two of its methods change:
`call_tools` runs the calls of a turn at the same time, and records each result at once; `context`
returns a *view* of the log, in which every call is followed by its result, or by a placeholder
which says that the call was interrupted. The other methods only gain `async` and `await`. A `def`
tool would still hold up the other calls: nano.py runs `def` tools in threads.

Task: let the placeholder name its call: `stock {"item": "flour"} was interrupted`.
"""

import asyncio
import inspect
import json
from dataclasses import dataclass

from pydantic import ConfigDict, create_model

PANTRY = {"flour": 900, "eggs": 12}
NO_RESULT = "Interrupted: this call may have had effects. Check before you repeat it."
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

    async def execute(self, arguments):
        values = dict(self.model.model_validate_json(arguments))
        value = self.function(**values)
        return await value if inspect.isawaitable(value) else value


def tool(description="", **options):
    """Turn a function into a tool: `@tool`, or `@tool("description")`."""
    if isinstance(description, str):
        return lambda function: Tool(function, description, **options)
    return Tool(description)


@tool
async def stock(item: str) -> int:
    """Return the quantity of an ingredient in the pantry."""
    await asyncio.sleep(60 if item == "flour" else 0)
    print(f"stock has found the {item}")
    return PANTRY[item]


def call(id, name, **arguments):
    function = {"name": name, "arguments": json.dumps(arguments)}
    return {"id": id, "type": "function", "function": function}


def reply_with(*calls):
    return {"role": "assistant", "content": None, "tool_calls": list(calls)}


SCRIPT = [
    reply_with(call("call_1", "stock", item="flour"), call("call_2", "stock", item="eggs")),
    {"role": "assistant", "content": "There are 12 eggs. The amount of flour is unknown."},
]


async def model(messages):
    """Simulate a model: after n replies in the list, return reply n + 1 of the script."""
    return SCRIPT[sum(message["role"] == "assistant" for message in messages)]


class Loop:
    def __init__(self, model, tools, max_iterations=3):
        self.llm, self.tools, self.max_iterations, self.log = model, tools, max_iterations, []

    async def run(self, prompt):
        self.record({"role": "user", "content": prompt})
        for _ in range(self.max_iterations):
            reply = await self.call_model(await self.context())
            self.record(reply)
            if not reply.get("tool_calls"):
                return reply["content"]
            await self.call_tools(reply["tool_calls"])
        self.record({"role": "user", "content": OUT_OF_TURNS})
        reply = await self.call_model(await self.context())
        self.record(reply)
        return reply["content"]

    async def context(self):
        return view(self.log)

    def toolset(self):
        return self.tools

    async def call_model(self, messages):
        return await self.llm(messages)

    async def call_tools(self, calls):
        await asyncio.gather(*[self.answer(call) for call in calls])

    async def answer(self, call):
        self.record(await self.call_tool(call))

    async def call_tool(self, call):
        tools = {tool.name: tool for tool in self.toolset()}
        try:
            tool = tools[call["function"]["name"]]
            result = await tool.execute(call["function"]["arguments"])
        except Exception as error:
            result = f"{type(error).__name__}: {error}"
        return result_of(call, str(result))

    def record(self, record):
        self.log.append(record)


def view(log):
    """The messages for the model: results come directly after their calls."""
    results = {record["tool_call_id"]: record for record in log if record["role"] == "tool"}
    messages = []
    for record in log:
        if record["role"] != "tool":
            messages.append(record)
            for call in record.get("tool_calls", []):
                result = results.get(call["id"])
                messages.append(result or result_of(call, NO_RESULT))
    return messages


def result_of(call, text):
    return {"role": "tool", "tool_call_id": call["id"], "content": text}


async def two_runs():
    """Cancel a run during the call for the flour, then continue with another prompt."""
    agent = Loop(model, [stock])
    try:
        await asyncio.wait_for(agent.run("What is there?"), timeout=0.2)
    except TimeoutError:
        print("The run is cancelled.")
    await agent.run("And now?")
    return agent.log


if __name__ == "__main__":
    log = asyncio.run(two_runs())
    print("-- the log")
    for record in log:
        print(record["role"], record["content"] or "calls")
    print("-- the view")
    for message in view(log):
        print(message["role"], message["content"] or "calls")
    print("Notice: the call for the eggs didn't wait for the call for the flour.")
    print("Notice: only the view has a result for the flour, so that requests stay valid.")
