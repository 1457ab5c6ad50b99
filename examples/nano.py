"""nano.py: an agent is a for-loop. The whole idea of agentloop in one file, to read and to copy.

    python nano.py                                      plays a script, offline
    OPENAI_BASE_URL=http://localhost:11434/v1 OPENAI_MODEL=qwen3 python nano.py "What is 2 + 3?"

`agent.log` is a list that only grows: messages as they go over the wire, and summaries. Keys that
begin with "_" are never sent. The model sees a view of it, in which a result follows each call. A
call without one gets a placeholder there, so a run may end anywhere, and providers still take the
next request. A mixin is a subclass of Loop that overrides some of its seams: context, toolset,
call_model, call_tools, call_tool, finish, record. Version 0.6.0, MIT, by the agentloop authors.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import os
import re
import sys
import threading
from collections import namedtuple
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, dataclass_transform, get_args, overload
from weakref import WeakSet

import httpx
from pydantic import ConfigDict, TypeAdapter, create_model
from pydantic_core import to_json

Message = dict[str, Any]  # {"role": "user", "content": "hello"}
Messages = list[Message]
Function = Callable[..., Any]
Tools = Sequence["Tool"]
Depends: Any = namedtuple("Depends", "function")  # `= Depends(get_db)`: the program fills it in
Usage = namedtuple("Usage", "input_tokens output_tokens")
OPENAI = "https://api.openai.com/v1"
UNFINISHED = {"length": "limit:length", "content_filter": "refused"}  # finish_reason: stop_reason
NO_RESULT = "Interrupted: this call may have had effects. Check before you repeat it."
SUMMARIZE = """Your context window is nearly full. Do not call tools. Write a summary to go on from:
the task, all instructions of the user, what was done and found, what failed, and what is left."""
OUT_OF_TURNS = "You have no turns left. Say what is done, and what is missing."
closing = WeakSet[Any]()  # tasks that close their dependencies: cancel_and_wait leaves them alone


class ChatModel(Protocol):  # anything that answers messages with a message
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


class Stop(Exception):  # ends a run; tools and mixins raise it
    def __init__(self, reason: str, text: str = "", value: Any = None) -> None:
        self.result = Result(text, value, reason)


class TaskComplete(Stop):  # ends a run as done; a done tool raises it
    def __init__(self, message: str = "", value: Any = None) -> None:
        super().__init__("done", message, value)


class ModelError(Exception): ...


@dataclass_transform(kw_only_default=True)  # like a dataclass, but mixins need no decorator
class Settings:  # annotated attributes, of all bases too, are the keywords of the constructor
    def __init__(self, **settings: Any) -> None:
        for name, value in settings.items():
            if not any(name in inspect.get_annotations(base) for base in type(self).__mro__):
                raise TypeError(f"{type(self).__name__} has no setting {name!r}")
            setattr(self, name, value)
        self.log, self.busy = Messages(), False


class Loop(Settings):  # a for-loop around a chat model and its tools: the smallest agent
    llm: ChatModel
    tools: Tools = ()
    system_prompt: str = ""
    max_iterations: int = 200  # turns of a run
    dependency_overrides: dict[Function, Function] = {}  # noqa: RUF012
    cancel_grace: float = 5.0  # seconds that a cancelled tool has to stop

    async def run(self, prompt: str) -> Result:
        """Work on a prompt until there is an answer. Raise what the model raises."""
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

    async def context(self) -> Messages:  # what the model will see
        system = {"role": "system", "content": self.system_prompt}
        return [system, *self.messages] if self.system_prompt else self.messages

    def toolset(self) -> Tools:  # what is on offer in this turn
        return self.tools

    async def call_model(self, request: Request) -> Message:
        reply = await self.llm.ainvoke(request.messages, request.tools)
        return well_formed(reply, len(self.log))

    async def call_tools(self, calls: Messages) -> Result | None:
        """Run one turn's calls side by side. Return a Result if a done tool ended the run."""
        self.nudges = 0  # a call is progress
        tasks = [asyncio.create_task(self.answer(call)) for call in calls]
        try:
            await asyncio.wait(tasks)
        except asyncio.CancelledError:
            await cancel_and_wait(tasks, self.cancel_grace)
            raise
        stops = [stop for task in tasks if not task.cancelled() and (stop := task.result())]
        for stop in stops:
            if not isinstance(stop, TaskComplete):
                raise stop
        return stops[0].result if stops else None

    async def answer(self, call: Message) -> Stop | None:
        """Run one call, and record its result at once. Return the Stop that it raised."""
        try:
            self.record(await self.call_tool(call))
            return None
        except Stop as stop:
            self.record(result_of(call, stop.result.text))
            return stop

    async def call_tool(self, call: Message) -> Message:
        """Run one call and return its result. The model reads each failure as a result."""
        name, tools = call["function"]["name"], {tool.name: tool for tool in self.toolset()}
        try:
            if name not in tools:
                raise LookupError(f"there is no tool {name!r}; there are: {', '.join(tools)}")
            arguments = call["function"]["arguments"]
            value = await tools[name].execute(arguments, self.dependency_overrides)
            text = value if isinstance(value, str) else to_json(value, fallback=str).decode()
            return result_of(call, text) | {"_tool": name}
        except Stop:
            raise
        except Exception as error:
            return result_of(call, f"{type(error).__name__}: {str(error) or 'effects are unknown'}")

    async def finish(self, result: Result) -> Result | None:
        """Return the result that ends the run, or None to go on."""
        return result

    def record(self, record: Message) -> None:
        self.log.append(record)

    def nudge(self, text: str) -> None:
        """Tell the model something, so that the run goes on. Raise Stop if that has not helped."""
        self.nudges += 1
        if self.nudges > 3:
            raise Stop("no_progress", self.log[-1]["content"])
        self.record({"role": "user", "content": text})

    @property
    def messages(self) -> Messages:
        return view(self.log)

    @property
    def usage(self) -> Usage:
        reported = [record["_usage"] for record in self.log if record.get("_usage")]
        output_tokens = sum(usage["completion_tokens"] for usage in reported)
        return Usage(sum(usage["prompt_tokens"] for usage in reported), output_tokens)


async def cancel_and_wait(tasks: list[asyncio.Task[Any]], grace: float) -> None:
    """Cancel tasks. Return only when all have ended, or after `grace` seconds."""
    for task in tasks:
        if task not in closing:
            task.cancel()
    waiting = asyncio.create_task(asyncio.wait(tasks, timeout=grace))
    while not waiting.done():
        with suppress(asyncio.CancelledError):  # a second cancel does not shorten this
            await asyncio.shield(waiting)


@overload
def tool(description: Function) -> Tool: ...
@overload
def tool(description: str = "", **options: Any) -> Callable[[Function], Tool]: ...
def tool(description: Any = "", **options: Any) -> Any:
    """Make a tool of a function: `@tool`, or `@tool("what it does", timeout=10)`."""
    if isinstance(description, str):
        return lambda function: Tool(function, description, **options)
    return Tool(description)


@dataclass(eq=False)
class Tool:
    function: Function  # an async one, or a `def`, which runs in a thread
    description: str = ""
    ephemeral: int = 0  # its newest results that stay; older ones go eight at a time; 0: all stay
    timeout: float | None = None  # seconds that a call may take

    def __post_init__(self) -> None:
        self.name = self.function.__name__
        self.description = self.description or inspect.getdoc(self.function) or ""
        self.dependencies, fields = dict[str, Function](), Message()
        for name, parameter in inspect.signature(self.function, eval_str=True).parameters.items():
            default = ... if parameter.default is parameter.empty else parameter.default
            fields[name] = parameter.annotation, default
            for mark in (default, *get_args(parameter.annotation)):
                if isinstance(mark, Depends):
                    self.dependencies[name] = mark.function
                    del fields[name]
        self.model = create_model(self.name, __config__=ConfigDict(extra="forbid"), **fields)
        parameters = self.model.model_json_schema()
        told = {"name": self.name, "description": self.description, "parameters": parameters}
        self.declaration = {"type": "function", "function": told}

    async def execute(self, arguments: str, overrides: dict[Function, Function]) -> Any:
        """Validate the arguments, open dependencies (on the event loop), run the tool, close."""
        given = dict(self.model.model_validate_json(arguments))
        async with AsyncExitStack() as stack:
            for name, dependency in self.dependencies.items():
                function = overrides.get(dependency, dependency)
                if inspect.isasyncgenfunction(function):
                    given[name] = await stack.enter_async_context(asynccontextmanager(function)())
                else:
                    value = function()
                    given[name] = await value if inspect.isawaitable(value) else value
            stack.callback(closing.add, asyncio.current_task())  # last in: closing begins here
            async with asyncio.timeout(self.timeout):
                return await call_function(self.function, given)
        raise RuntimeError("a dependency has swallowed the error of this tool")


async def call_function(function: Function, arguments: Message) -> Any:
    """Await an async function. Run a plain one in a daemon thread, which delays no exit."""
    if inspect.iscoroutinefunction(function):
        return await function(**arguments)
    outcome = Future[Any]()
    outcome.set_running_or_notify_cancel()  # a cancel does not reach the thread

    def work() -> None:
        try:
            outcome.set_result(function(**arguments))
        except StopIteration as error:  # which an event loop does not take
            outcome.set_exception(RuntimeError(repr(error)))
        except BaseException as error:
            outcome.set_exception(error)

    threading.Thread(target=work, daemon=True).start()
    return await asyncio.wrap_future(outcome)


class Ephemeral(Loop):  # hides old results of tools made with ephemeral=N, after they were seen
    async def context(self) -> Messages:
        messages, hidden = await super().context(), set[str]()
        seen = list(self.log)
        while seen and seen[-1]["role"] != "assistant":  # what the model has not read stays
            seen.pop()
        for tool in self.toolset():
            results = [r["tool_call_id"] for r in seen if r.get("_tool") == tool.name]
            old = results[: -tool.ephemeral]  # for 0, which is the default, these are none
            hidden.update(old[: len(old) // 8 * 8])  # since each change costs the provider's cache
        for message in messages:
            if message.get("tool_call_id") in hidden:  # a copy, made by sent()
                message["content"] = "[An older result stood here. Newer ones follow.]"
        return messages


class DoneTool(Loop):  # keeps the model from stopping by just talking
    require_done_tool: bool = True  # only TaskComplete ends a run

    def toolset(self) -> Tools:
        tools = super().toolset()
        has_own = any(tool.name == "done" for tool in tools)
        return [*tools, done] if self.require_done_tool and not has_own else tools

    async def finish(self, result: Result) -> Result | None:
        answer = await super().finish(result)
        if answer and answer.stop_reason == "completed" and self.require_done_tool:
            self.nudge("You have not finished: go on, or call the done tool if all is done.")
            return None
        return answer


@tool
async def done(message: str) -> None:
    """Finish the task. Call this once everything is done, with the answer."""
    raise TaskComplete(message)


class CompactionConfig(NamedTuple):
    threshold_ratio: float = 0.80
    context_window: int = 128_000  # tokens


class Compaction(Loop):  # summarizes before a request is too long; counters stand right of it
    compaction: CompactionConfig = CompactionConfig()

    async def call_model(self, request: Request) -> Message:
        ratio, window = self.compaction  # 3 characters are a token; schemas are not counted
        turns = [at for at, record in enumerate(self.log) if record["role"] == "assistant"]
        if len(str(request)) / 3 > ratio * window and len(turns) > 2:
            asked = [*request.messages, {"role": "user", "content": SUMMARIZE}]  # for the cache
            reply = await super().call_model(request._replace(messages=asked))
            if reply["content"]:
                # the view from here on: the first prompt, the summary, the last two turns
                start = [self.log[0], {"role": "user", "content": f"So far: {reply['content']}"}]
                self.record(reply | {"role": "summary", "_start": start, "_keep": turns[-2]})
                request = request._replace(messages=await self.context())
        return await super().call_model(request)


class Agent(DoneTool, Ephemeral, Compaction, Loop):  # a request meets them from left to right
    require_done_tool = False  # a plain answer ends a run, too


def view(log: Messages) -> Messages:
    """Return what the model sees of a log: no marks, and each call is followed by its result."""
    results = {record["tool_call_id"]: record for record in log if record["role"] == "tool"}
    records, messages = log, Messages()
    for record in log:
        if record["role"] == "summary":
            records = [*record["_start"], *log[record["_keep"] :]]
    for record in records:
        calls = record.get("tool_calls", [])
        if record["role"] in ("user", "assistant") and (record["content"] or calls):
            messages.append(sent(record))
            for call in calls:
                messages.append(sent(results.get(call["id"]) or result_of(call, NO_RESULT)))
    return messages


def sent(record: Message) -> Message:
    """Return a message as it goes over the wire: without our keys, and without empty lists."""
    return {key: value for key, value in record.items() if key[0] != "_" and value != []}


def result_of(call: Message, text: str) -> Message:
    return {"role": "tool", "tool_call_id": call["id"], "content": text}


def well_formed(reply: Message, place: int) -> Message:
    """Return a reply that every provider takes back. Some servers send no ids, or repeat them."""
    calls, stop_reason = Messages(), UNFINISHED.get(reply.get("_finish", ""), "completed")
    for call in reply.get("tool_calls") or []:
        name = re.sub("[^a-zA-Z0-9_-]", "_", call["function"]["name"])
        try:
            arguments = TypeAdapter(Message).validate_json(call["function"]["arguments"] or "{}")
        except ValueError as error:
            arguments = {"no JSON object": str(error)}  # which no tool takes
        function = {"name": name, "arguments": json.dumps(arguments)}
        calls.append(call | {"id": f"{place:06}{len(calls):03}", "function": function})
    kept = calls if stop_reason == "completed" else []  # after a cut, the calls are incomplete
    ours = {"tool_calls": kept, "_stop_reason": stop_reason, "_usage": reply.get("_usage")}
    return {"role": "assistant", "content": (reply.get("content") or "").strip()} | ours


@dataclass(repr=False)
class ChatOpenAI:  # a model behind OpenAI's Chat Completions, or any server that speaks it
    model: str
    base_url: str = ""  # or OPENAI_BASE_URL in the environment
    api_key: str = ""  # or OPENAI_API_KEY

    async def ainvoke(self, messages: Messages, tools: Tools = ()) -> Message:
        """Return the model's reply. Raise ModelError, after trying again if that may help."""
        body: Message = {"model": self.model, "messages": messages}
        if tools:
            body["tools"] = [tool.declaration for tool in tools]
        content = json.dumps(body, ensure_ascii=False).encode(errors="replace")
        key = f"Bearer {self.api_key or os.environ.get('OPENAI_API_KEY')}"
        headers = {"Authorization": key, "Content-Type": "application/json"}
        url = f"{self.base_url or os.environ.get('OPENAI_BASE_URL', OPENAI)}/chat/completions"
        for wait in (1, 2, 4, 0):  # seconds
            try:
                async with httpx.AsyncClient(headers=headers, timeout=600) as client:
                    response = await client.post(url, content=content)
                failure = f"HTTP {response.status_code}: {response.text[:1000]}"
                if response.is_success:
                    data = response.json()
                    choice = data["choices"][0]
                    ours = {"_finish": choice["finish_reason"], "_usage": data.get("usage")}
                    return {**choice["message"], **ours}
                if response.status_code < 500 and response.status_code != 429:
                    break
            except (httpx.TransportError, LookupError, ValueError) as error:
                failure = f"no reply from {url}: {type(error).__name__}: {error}"
            await asyncio.sleep(wait)
        raise ModelError(failure)


class ScriptedModel:  # plays replies in order, offline: texts, calls and lists of calls
    def __init__(self, *script: Any) -> None:
        self.script = list(script)

    async def ainvoke(self, messages: Messages, tools: Tools = ()) -> Message:
        reply = self.script.pop(0)
        if isinstance(reply, str):
            return {"content": reply}
        return {"tool_calls": reply if isinstance(reply, list) else [reply]}


def call(name: str, /, **arguments: Any) -> Message:
    """Return a call as a model makes it."""
    return {"type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}


if __name__ == "__main__":

    @tool("Add two numbers.")
    def add(a: int, b: int) -> int:
        return a + b

    llm: ChatModel = ScriptedModel(call("add", a=2, b=3), "2 + 3 is 5.")
    if "OPENAI_BASE_URL" in os.environ:
        llm = ChatOpenAI(os.environ.get("OPENAI_MODEL", "gpt-5-mini"))
    agent = Agent(llm=llm, tools=[add])
    agent.run_sync(" ".join(sys.argv[1:]) or "What is 2 + 3?")
    print(*agent.messages, sep="\n")

# The package has the same names: to outgrow this file, change the import. It adds streaming,
# sessions, approval, MCP and more; `agentloop bundle` writes what you name of it into one file.
