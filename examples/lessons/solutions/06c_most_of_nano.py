"""Task: write a mixin `Limited` that counts the calls of an agent and raises `Stop("limit:calls",
"enough")` from the second call on."""

from __future__ import annotations

import asyncio
import inspect
import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, dataclass_transform

from pydantic import ConfigDict, TypeAdapter, create_model
from pydantic_core import to_json

Message = dict[str, Any]  # {"role": "user", "content": "hello"}
Messages = list[Message]
Function = Callable[..., Any]
Tools = Sequence["Tool"]
UNFINISHED = {"length": "limit:length", "content_filter": "refused"}  # finish_reason: stop_reason
NO_RESULT = "Interrupted: this call may have had effects. Check before you repeat it."
OUT_OF_TURNS = "You have no turns left. Report the results and the open points."


class ChatModel(Protocol):  # receives messages, returns a message
    async def ainvoke(self, messages: Messages, tools: Tools = ()) -> Message: ...


class Request(NamedTuple):
    messages: Messages
    tools: Tools


class Result(NamedTuple):
    text: str = ""
    value: Any = None
    stop_reason: str = "completed"  # or "done", "max_iterations", "limit:length", "refused", ...

    def __str__(self) -> str:
        return self.text


class Stop(Exception):  # ends a run; raised by tools and mixins
    def __init__(self, reason: str, text: str = "", value: Any = None) -> None:
        self.result = Result(text, value, reason)


class TaskComplete(Stop):  # ends a run successfully; raised by a done tool
    def __init__(self, message: str = "", value: Any = None) -> None:
        super().__init__("done", message, value)


@dataclass_transform(kw_only_default=True)  # like a dataclass, but mixins need no decorator
class Settings:  # annotated attributes of all bases are keywords of the constructor
    def __init__(self, **settings: Any) -> None:
        for name, value in settings.items():
            if not any(name in inspect.get_annotations(base) for base in type(self).__mro__):
                raise TypeError(f"{type(self).__name__} has no setting {name!r}")
            setattr(self, name, value)
        self.log, self.busy = Messages(), False


class Loop(Settings):  # a for-loop around a chat model and tools: the smallest agent
    llm: ChatModel
    tools: Tools = ()
    system_prompt: str = ""
    max_iterations: int = 200  # turns of a run

    async def run(self, prompt: str) -> Result:
        """Work on a prompt until the model answers. Raises the model's errors."""
        if self.busy:
            raise RuntimeError("this agent is running a query: await it first, or make another one")
        self.busy, self.nudges = True, 0
        try:
            self.record({"role": "user", "content": prompt})
            for _ in range(self.max_iterations):
                reply = await self.call_model(Request(await self.context(), self.toolset()))
                self.record(reply)
                if reply["tool_calls"]:
                    result = await self.call_tools(reply["tool_calls"])
                else:
                    result = Result(reply["content"], stop_reason=reply["_stop_reason"])
                if result and (result := await self.finish(result)):
                    return result
            self.record({"role": "user", "content": OUT_OF_TURNS})
            reply = await self.call_model(Request(await self.context(), self.toolset()))
            self.record(reply | {"tool_calls": []})
            return Result(reply["content"], stop_reason="max_iterations")
        except Stop as stop:
            return stop.result
        finally:
            self.busy = False

    def run_sync(self, prompt: str) -> Result:
        return asyncio.run(self.run(prompt))

    async def context(self) -> Messages:  # the messages of the next request
        system = {"role": "system", "content": self.system_prompt}
        return [system, *self.messages] if self.system_prompt else self.messages

    def toolset(self) -> Tools:  # the tools of this turn
        return self.tools

    async def call_model(self, request: Request) -> Message:
        reply = await self.llm.ainvoke(request.messages, request.tools)
        return well_formed(reply, len(self.log))

    async def call_tools(self, calls: Messages) -> Result | None:
        """Run the calls of a turn together. Returns a Result if a done tool ended the run."""
        self.nudges = 0  # a call is progress
        tasks = [asyncio.create_task(self.answer(call)) for call in calls]
        await asyncio.wait(tasks)
        stops = [stop for task in tasks if (stop := task.result())]
        for stop in stops:
            if not isinstance(stop, TaskComplete):
                raise stop
        return stops[0].result if stops else None

    async def answer(self, call: Message) -> Stop | None:
        """Run a call, and record its result at once. Returns a Stop that was raised."""
        try:
            self.record(await self.call_tool(call))
            return None
        except Stop as stop:
            self.record(result_of(call, stop.result.text))
            return stop

    async def call_tool(self, call: Message) -> Message:
        """Run a call. An exception becomes an error result."""
        name, tools = call["function"]["name"], {tool.name: tool for tool in self.toolset()}
        try:
            if name not in tools:
                raise LookupError(f"unknown tool {name!r}; available tools: {', '.join(tools)}")
            arguments = call["function"]["arguments"]
            value = await tools[name].execute(arguments)
            text = value if isinstance(value, str) else to_json(value, fallback=str).decode()
            return result_of(call, text) | {"_tool": name}
        except Stop:
            raise
        except Exception as error:
            return result_of(call, f"{type(error).__name__}: {error}")

    async def finish(self, result: Result) -> Result | None:
        """Return the result to end the run, or None to go on."""
        return result

    def record(self, record: Message) -> None:
        self.log.append(record)

    def nudge(self, text: str) -> None:
        """Append a message, so that the run goes on. Raises Stop after three of them in a row."""
        self.nudges += 1
        if self.nudges > 3:
            raise Stop("no_progress", self.log[-1]["content"])
        self.record({"role": "user", "content": text})

    @property
    def messages(self) -> Messages:
        return view(self.log)


def tool(description: Any = "", **options: Any) -> Any:
    """Turn a function into a tool: `@tool`, or `@tool("description")`."""
    if isinstance(description, str):
        return lambda function: Tool(function, description, **options)
    return Tool(description)


@dataclass(eq=False)
class Tool:
    function: Function
    description: str = ""

    def __post_init__(self) -> None:
        self.name = self.function.__name__
        self.description = self.description or inspect.getdoc(self.function) or ""
        fields: Message = {}
        for name, parameter in inspect.signature(self.function, eval_str=True).parameters.items():
            default = ... if parameter.default is parameter.empty else parameter.default
            fields[name] = parameter.annotation, default
        self.model = create_model(self.name, __config__=ConfigDict(extra="forbid"), **fields)
        parameters = self.model.model_json_schema()
        schema = {"name": self.name, "description": self.description, "parameters": parameters}
        self.declaration = {"type": "function", "function": schema}

    async def execute(self, arguments: str) -> Any:
        """Validate the arguments, and run the function."""
        values = dict(self.model.model_validate_json(arguments))
        value = self.function(**values)
        return await value if inspect.isawaitable(value) else value


def view(log: Messages) -> Messages:
    """The messages for the model: results come directly after their calls."""
    results = {record["tool_call_id"]: record for record in log if record["role"] == "tool"}
    messages = Messages()
    for record in log:
        calls = record.get("tool_calls", [])
        if record["role"] in ("user", "assistant") and (record["content"] or calls):
            messages.append(sent(record))
            for call in calls:
                messages.append(sent(results.get(call["id"]) or result_of(call, NO_RESULT)))
    return messages


def sent(record: Message) -> Message:
    """A message as it's sent: no private keys, and no empty lists."""
    return {key: value for key, value in record.items() if key[0] != "_" and value != []}


def result_of(call: Message, text: str) -> Message:
    return {"role": "tool", "tool_call_id": call["id"], "content": text}


def well_formed(reply: Message, place: int) -> Message:
    """Make a reply valid for every provider. Some servers leave ids out, or repeat them."""
    calls, stop_reason = Messages(), UNFINISHED.get(reply.get("_finish", ""), "completed")
    for call in reply.get("tool_calls") or []:
        name = re.sub("[^a-zA-Z0-9_-]", "_", call["function"]["name"])
        try:
            arguments = TypeAdapter(Message).validate_json(call["function"]["arguments"] or "{}")
        except ValueError as error:
            arguments = {"no JSON object": str(error)}  # an argument that no tool accepts
        function = {"name": name, "arguments": json.dumps(arguments)}
        calls.append(call | {"id": f"{place:06}{len(calls):03}", "function": function})
    safe = calls if stop_reason == "completed" else []  # calls of a truncated reply are unsafe
    ours = {"tool_calls": safe, "_stop_reason": stop_reason, "_usage": reply.get("_usage")}
    return {"role": "assistant", "content": (reply.get("content") or "").strip()} | ours


class ScriptedModel:  # returns scripted replies in order: texts, calls and lists of calls
    def __init__(self, *script: Any) -> None:
        self.script = list(script)

    async def ainvoke(self, messages: Messages, tools: Tools = ()) -> Message:
        reply = self.script.pop(0)
        if isinstance(reply, str):
            return {"content": reply}
        return {"tool_calls": reply if isinstance(reply, list) else [reply]}


def call(name: str, /, **arguments: Any) -> Message:
    """A tool call, in the format of Chat Completions."""
    return {"type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}


class Limited(Loop):
    calls = 0

    async def call_tool(self, call: Message) -> Message:
        self.calls += 1
        if self.calls > 1:
            raise Stop("limit:calls", "enough")
        return await super().call_tool(call)


PANTRY = {"flour": 900, "eggs": 12}


@tool
async def stock(item: str) -> int:
    """Return the quantity of an ingredient in the pantry."""
    await asyncio.sleep(0.1 if item == "flour" else 0)
    amount = PANTRY[item]
    print(f"stock has found the {item}")
    return amount


if __name__ == "__main__":
    calls = [call("stock", item="flour"), call("stock", item="eggs"), call("stock", item="milk")]
    agent = Limited(llm=ScriptedModel(calls, "There is no milk."), tools=[stock])
    print("it ends:", agent.run_sync("What is there?").stop_reason)
    for message in agent.messages:
        print(message["role"], message["content"])
    print("Notice: the stopped calls also have results, so the run could continue.")
