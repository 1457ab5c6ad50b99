"""nano.py: an agent is a for-loop. The whole idea of agentloop in one file to read and copy.

    python nano.py      runs a script, offline; with a prompt and OPENAI_API_KEY, asks gpt-5.4-mini
    OPENAI_BASE_URL=http://localhost:11434/v1 OPENAI_MODEL=qwen3 python nano.py "What is 2 + 3?"

`agent.log` is a list that only grows: messages as they're sent, and summaries. Keys that begin with
"_" are never sent. The model gets a view of the log, in which every call is followed by its result
or by a placeholder. So a run may end at any point, and providers accept the next request. A mixin
is a subclass of Loop that overrides some of the seams: context, toolset, call_model, call_tools,
call_tool, finish, record. Version 1.0.0, MIT, by the agentloop authors.
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
Depends: Any = namedtuple("Depends", "function")  # `= Depends(get_db)`: not set by the model
Usage = namedtuple("Usage", "input_tokens output_tokens")
OPENAI = "https://api.openai.com/v1"
UNFINISHED = {"length": "limit:length", "content_filter": "refused"}  # finish_reason: stop_reason
NO_RESULT = "Interrupted: this call may have had effects. Check before you repeat it."
SUMMARIZE = """The context window is nearly full. Do not call tools. Summarize to continue:
the task, all instructions of the user, actions, findings, failures, and remaining work."""
OUT_OF_TURNS = "You have no turns left. Report the results and the open points."
closing = WeakSet[Any]()  # tasks that close dependencies, which cancel_and_wait must not cancel


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


class ModelError(Exception): ...


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
    dependency_overrides: dict[Function, Function] = {}  # noqa: RUF012
    cancel_timeout: float = 5.0  # seconds to wait for a cancelled tool

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
        try:
            await asyncio.wait(tasks)
        except asyncio.CancelledError:
            await cancel_and_wait(tasks, self.cancel_timeout)
            raise
        stops = [stop for task in tasks if not task.cancelled() and (stop := task.result())]
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
            value = await tools[name].execute(arguments, self.dependency_overrides)
            text = value if isinstance(value, str) else to_json(value, fallback=str).decode()
            return result_of(call, text) | {"_tool": name}
        except Stop:
            raise
        except Exception as error:
            return result_of(call, f"{type(error).__name__}: {str(error) or 'effects are unknown'}")

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

    @property
    def usage(self) -> Usage:
        reported = [record["_usage"] for record in self.log if record.get("_usage")]
        output_tokens = sum(usage["completion_tokens"] for usage in reported)
        return Usage(sum(usage["prompt_tokens"] for usage in reported), output_tokens)


async def cancel_and_wait(tasks: list[asyncio.Task[Any]], grace: float) -> None:
    """Cancel tasks, and wait until all have ended, but at most `grace` seconds."""
    for task in tasks:
        if task not in closing:
            task.cancel()
    waiting = asyncio.create_task(asyncio.wait(tasks, timeout=grace))
    while not waiting.done():
        with suppress(asyncio.CancelledError):  # a second cancellation does not shorten the wait
            await asyncio.shield(waiting)


@overload
def tool(description: Function) -> Tool: ...
@overload
def tool(description: str = "", **options: Any) -> Callable[[Function], Tool]: ...
def tool(description: Any = "", **options: Any) -> Any:
    """Turn a function into a tool: `@tool`, or `@tool("description", timeout=10)`."""
    if isinstance(description, str):
        return lambda function: Tool(function, description, **options)
    return Tool(description)


@dataclass(eq=False)
class Tool:
    function: Function  # `async def`, or `def`, which runs in a thread
    description: str = ""
    ephemeral: int = 0  # newest results to keep; older ones are pruned in eights; 0: keep all
    timeout: float | None = None  # seconds per call

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
        schema = {"name": self.name, "description": self.description, "parameters": parameters}
        self.declaration: Message = {"type": "function", "function": schema}

    async def execute(self, arguments: str, overrides: dict[Function, Function]) -> Any:
        """Validate the arguments, open dependencies on the event loop, run the tool, close them."""
        values = dict(self.model.model_validate_json(arguments))
        async with AsyncExitStack() as stack:
            for name, dependency in self.dependencies.items():
                function = overrides.get(dependency, dependency)
                if inspect.isasyncgenfunction(function):
                    values[name] = await stack.enter_async_context(asynccontextmanager(function)())
                else:
                    value = function()
                    values[name] = await value if inspect.isawaitable(value) else value
            stack.callback(closing.add, asyncio.current_task())  # runs first: closing starts
            async with asyncio.timeout(self.timeout):
                return await call_function(self.function, values)
        raise RuntimeError("a dependency suppressed the exception of this tool")


async def call_function(function: Function, arguments: Message) -> Any:
    """Await an async function; run any other in a daemon thread, which never delays the exit."""
    if inspect.iscoroutinefunction(function):
        return await function(**arguments)
    outcome = Future[Any]()
    outcome.set_running_or_notify_cancel()  # cancellation does not reach the thread

    def work() -> None:
        try:
            outcome.set_result(function(**arguments))
        except StopIteration as error:  # a future rejects StopIteration
            outcome.set_exception(RuntimeError(repr(error)))
        except BaseException as error:
            outcome.set_exception(error)

    threading.Thread(target=work, daemon=True).start()
    return await asyncio.wrap_future(outcome)


class Ephemeral(Loop):  # prunes old results of tools with ephemeral=N, once the model has read them
    async def context(self) -> Messages:
        messages, hidden = await super().context(), set[str]()
        seen = list(self.log)
        while seen and seen[-1]["role"] != "assistant":  # keep results that the model has not read
            seen.pop()
        for tool in self.toolset():
            results = [r["tool_call_id"] for r in seen if r.get("_tool") == tool.name]
            old = results[: -tool.ephemeral]  # empty for the default, 0
            hidden.update(old[: len(old) // 8 * 8])  # each change invalidates the provider's cache
        for message in messages:
            if message.get("tool_call_id") in hidden:  # a copy, made by sent()
                message["content"] = "[Older result removed. See newer results below.]"
        return messages


class DoneTool(Loop):  # plain text does not end a run
    require_done_tool: bool = True  # only TaskComplete ends a run

    def toolset(self) -> Tools:
        tools = super().toolset()
        has_own = any(tool.name == "done" for tool in tools)
        return [*tools, done] if self.require_done_tool and not has_own else tools

    async def finish(self, result: Result) -> Result | None:
        answer = await super().finish(result)
        if answer and answer.stop_reason == "completed" and self.require_done_tool:
            self.nudge("The task is not finished: continue, or call the done tool if all is done.")
            return None
        return answer


@tool
async def done(message: str) -> None:
    """Finish the task. Call this once everything is done, with the answer."""
    raise TaskComplete(message)


class CompactionConfig(NamedTuple):
    threshold_ratio: float = 0.80
    context_window: int = 128_000  # tokens


class Compaction(Loop):  # summarizes before a request is too long; put counting mixins after it
    compaction: CompactionConfig = CompactionConfig()

    async def call_model(self, request: Request) -> Message:
        ratio, window = self.compaction  # a token has about 3 characters; schemas are not counted
        turns = [at for at, record in enumerate(self.log) if record["role"] == "assistant"]
        if len(str(request)) / 3 > ratio * window and len(turns) > 2:
            messages = [*request.messages, {"role": "user", "content": SUMMARIZE}]  # cached prefix
            reply = await super().call_model(request._replace(messages=messages))
            if reply["content"]:
                # the view from here on: the first prompt, the summary, the last two turns
                start = [self.log[0], {"role": "user", "content": f"So far: {reply['content']}"}]
                self.record(reply | {"role": "summary", "_start": start, "_keep": turns[-2]})
                request = request._replace(messages=await self.context())
        return await super().call_model(request)


class Agent(DoneTool, Ephemeral, Compaction, Loop):  # requests pass from left to right
    require_done_tool = False  # a plain answer ends a run, too


def view(log: Messages) -> Messages:
    """The messages for the model: each call is followed by its result; summaries are left out."""
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


@dataclass(repr=False)
class ChatOpenAI:  # OpenAI's Chat Completions API, or a compatible server
    model: str
    base_url: str = ""  # or OPENAI_BASE_URL in the environment
    api_key: str = ""  # or OPENAI_API_KEY

    async def ainvoke(self, messages: Messages, tools: Tools = ()) -> Message:
        """Get the model's reply. Raises ModelError after at most three retries."""
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


if __name__ == "__main__":

    @tool("Add two numbers.")
    def add(a: int, b: int) -> int:
        return a + b

    llm: ChatModel = ScriptedModel(call("add", a=2, b=3), "2 + 3 is 5.")
    if task := " ".join(sys.argv[1:]):
        llm = ChatOpenAI(os.environ.get("OPENAI_MODEL", "gpt-5.4-mini"))
    agent = Agent(llm=llm, tools=[add])
    agent.run_sync(task or "What is 2 + 3?")
    print(*agent.messages, sep="\n")

# The package has the same names: to replace this file with the package, change the import. It adds
# streaming, sessions, approval, MCP and more; `agentloop bundle` writes selected parts to one file.
