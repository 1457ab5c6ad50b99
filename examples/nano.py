#!/usr/bin/env python3
"""nano.py: an agent is a for-loop. The whole idea of agentloop in one hand-written file.

Version 0.4.1. License: MIT, copyright 2026 the agentloop authors. Home: agentloop, examples/nano.py.
Copy it, read it, change it. It needs Python 3.11 or newer, pydantic and httpx.

Run it with a question. It asks the model behind OPENAI_BASE_URL, OPENAI_API_KEY and OPENAI_MODEL,
and without any of these it plays a script:

    python nano.py "What is 2 + 3?"
    OPENAI_BASE_URL=http://localhost:11434/v1 OPENAI_MODEL=qwen3 python nano.py "What is 2 + 3?"

Use it like this:

    from nano import Agent, ChatOpenAI, tool

    @tool
    def add(a: int, b: int) -> int:
        "Add two numbers."
        return a + b

    agent = Agent(llm=ChatOpenAI("gpt-5-mini"), tools=[add], system_prompt="Be brief.")
    print(agent.run_sync("What is 2 + 3?"))

Read it from the top. Each part uses those that come after it:

    the loop    Loop.run: call the model, call its tools, finish or go round again
    the tools   @tool makes a function callable for a model; Depends gives it what it needs
    the mixins  Ephemeral hides old results, DoneTool ends a run, Compaction summarizes
    the models  ChatOpenAI speaks HTTP, ScriptedModel plays a script
    the data    messages, which are frozen, and the view of them that a model gets

Three rules make it work. They hold for every part:

1. The log (`agent.log`) is a list of frozen records, and a run only appends to it. The model sees
   a view that is computed from the log. So hiding and summarizing never lose anything.
2. In the view each call has exactly one result. So whatever happens in a run (an answer, an error,
   a cancel), the next request is one that every provider accepts.
3. A feature is a mixin: a subclass of Loop that overrides one or two of its seven seams (context,
   toolset, call_model, call_tools, call_tool, finish, record) and calls super().
"""

from __future__ import annotations

import asyncio
import copy
import functools
import inspect
import json
import logging
import os
import re
import sys
import threading
import uuid
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from dataclasses import KW_ONLY, dataclass, replace
from itertools import repeat
from typing import Any, Protocol, TypeVar, dataclass_transform, get_args, get_type_hints
from weakref import WeakKeyDictionary, WeakSet

import httpx
from pydantic import BaseModel, ConfigDict, ValidationError, create_model
from pydantic.json_schema import GenerateJsonSchema
from pydantic_core import from_json, to_json

logger = logging.getLogger("agentloop")

# ======================================================================================== the loop

EMPTY_REPLY = "Your last reply was empty. Answer, or call a tool."
OUT_OF_TURNS = "You have no turns left. Answer now, and say what is done and what is missing."
CUT_OFF = "Not run: the reply ended before it was complete. Do it in smaller pieces."
MAX_NUDGES = 3
UNFINISHED = {"length": "limit:length", "refused": "refused"}  # how a reply ends: how the run ends


@dataclass_transform(kw_only_default=True, eq_default=False)
class Settings:
    """The settings of a class are its annotated attributes, and those of all its bases.

    A class attribute is a setting's default, so a subclass changes it with `max_iterations = 20`.
    Each object gets a copy of a default that is a list, a dict or a set.
    """

    def __init__(self, **settings: Any) -> None:
        names = {name for base in type(self).__mro__ for name in inspect.get_annotations(base)}
        for name in names:
            default = getattr(self, name, None)
            if type(default) in (list, dict, set):
                setattr(self, name, copy.copy(default))
        for name, value in settings.items():
            if name not in names:
                raise TypeError(f"{type(self).__name__} has no setting {name!r}")
            setattr(self, name, value)
        self.__post_init__()

    def __post_init__(self) -> None:
        """Prepare an object whose settings are there. A subclass calls super() here."""


class Loop(Settings):
    """A for-loop around a chat model and its tools: the smallest agent.

    llm: the model that answers.
    tools: functions that it may call, each made with `@tool`.
    system_prompt: sent first with every request. It is never in the log.
    max_iterations: how many turns (model calls) a run may take.
    tool_choice: "auto", "required", "none" or a tool's name, for the first request of a run.
    dependency_overrides: `{dependency: replacement}`, for tests above all.
    cancel_grace: how many seconds a cancelled tool gets to stop.
    """

    llm: ChatModel
    tools: Sequence[Tool] = ()
    system_prompt: str = ""
    max_iterations: int = 200
    tool_choice: str = "auto"
    dependency_overrides: Mapping[Function, Function] | None = None
    cancel_grace: float = 5.0

    def __post_init__(self) -> None:
        super().__post_init__()
        self.log: list[Record] = []
        self._run: object = None  # the run that goes on, and where it begins in the log
        self._start = 0

    async def run(self, prompt: str | None = None) -> Result:
        """Work on a prompt until there is an answer; without one, go on where the last run ended.

        Raises what the model raises, AgentBusy if a run is going on, and ValueError if there is
        nothing to work on. After an error, `run()` tries again.
        """
        self._refuse_if_busy()
        try:
            self._begin(prompt)
            tool_choice, calls = self.tool_choice, waiting_calls(self.log)  # from an earlier run
            answer = await self.call_tools(calls) if calls else None
            if answer and (answer := await self.finish(answer)):
                return self._end(answer)
            for _ in range(self.max_iterations):
                request = Request(await self.context(), self.toolset(), tool_choice)
                reply = self._take(await self.call_model(request))
                if reply.stop_reason in UNFINISHED:
                    answer = self._refuse_to_run(reply)
                elif reply.tool_calls:
                    answer = await self.call_tools(reply.tool_calls)
                else:
                    answer = Result(reply.text)
                if answer and (answer := await self.finish(answer)):
                    return self._end(answer)
                tool_choice = "auto"  # a forced tool is forced once
            return self._end(await self._sum_up())
        except Stop as stop:
            return self._end(Result(stop.text, stop.value, stop.reason))
        finally:
            self._run = None

    async def query(self, prompt: str) -> str:
        """The answer to a prompt, as text."""
        return (await self.run(prompt)).text

    def run_sync(self, prompt: str | None = None) -> Result:
        """`run` for scripts. In async code, await `run` instead."""
        return asyncio.run(self.run(prompt))

    # ---- the seven seams, for mixins to override

    async def context(self) -> list[Message]:
        """The messages that the model will see. Twice in a row gives the same."""
        system: list[Message] = [SystemMessage(self.system_prompt)] if self.system_prompt else []
        return system + self.messages

    def toolset(self) -> Sequence[Tool]:
        """The tools on offer in this turn."""
        return self.tools

    async def call_model(self, request: Request) -> AssistantMessage:
        """The model's reply to one request."""
        return await self.llm.ainvoke(
            request.messages, request.tools, tool_choice=request.tool_choice
        )

    async def call_tools(self, calls: Sequence[ToolCall]) -> Result | None:
        """Run one turn's calls side by side, all answered; a Result if a done tool ended the run.

        An error waits until the other calls have settled. It outranks TaskComplete, and among
        equals the first call's wins.
        """
        tasks = [asyncio.create_task(self._answer(call)) for call in calls]
        try:
            await asyncio.wait(tasks)
        finally:
            await cancel_and_wait(tasks, self.cancel_grace)
        raised = [error for task in tasks if not task.cancelled() and (error := task.result())]
        if not raised:
            return None
        first = min(raised, key=lambda error: isinstance(error, TaskComplete))
        if isinstance(first, TaskComplete):
            return Result(first.text, first.value, first.reason)
        raise first

    async def call_tool(self, call: ToolCall) -> ToolMessage:
        """Run one call; every failure becomes an error result that the model can read."""
        try:
            tool = self.tool(call)
            arguments = tool.validate(call.arguments)
            self.record(ToolStart(call.id))
            given = {current_agent: lambda: self, current_call: lambda: call}
            value = await tool.execute(arguments, given | dict(self.dependency_overrides or {}))
            return ToolMessage(call.id, call.name, as_text(value), ephemeral=tool.ephemeral)
        except Stop:
            raise
        except Exception as error:
            logger.info("tool %s failed", call.name, exc_info=True)
            return ToolMessage(call.id, call.name, describe(error), is_error=True)

    async def finish(self, result: Result) -> Result | None:
        """The answer that ends the run, or None to go on. Done results pass here too."""
        if result.stop_reason == "completed" and not result.text.strip():
            self.nudge(EMPTY_REPLY)
            return None
        return result

    def record(self, record: Record) -> None:
        """Append to the log. It is synchronous, so that no cancel comes between."""
        self.log.append(record)

    # ---- the conversation

    @property
    def messages(self) -> list[Message]:
        """The conversation as the model sees it, without the system prompt: every call answered."""
        return view(self.log)

    @property
    def usage(self) -> Usage:
        """All tokens so far, those of summaries included."""
        return usage_of(self.log)

    def load_history(self, messages: Sequence[Message]) -> None:
        """Start from these messages instead of the present log. System messages are left out."""
        self._refuse_if_busy()
        self.log = []
        renamed: dict[str, str] = {}  # call ids; some servers use the same ones in every reply
        for message in messages:
            if isinstance(message, AssistantMessage):
                reply = self._take(message)
                for old, new in zip(message.tool_calls, reply.tool_calls, strict=True):
                    renamed[old.id] = new.id
            elif isinstance(message, ToolMessage):
                self.record(replace(message, tool_call_id=renamed.pop(message.tool_call_id, "")))
            elif isinstance(message, UserMessage):
                self.record(message)
        self._close_open_calls()

    def clear_history(self) -> None:
        """Forget the log; the settings stay."""
        self.load_history([])

    # ---- what mixins use

    def tool(self, call: ToolCall) -> Tool:
        """The tool that a call names. ToolError if there is none."""
        tools = {tool.name: tool for tool in self.toolset()}
        if call.name not in tools:
            raise ToolError(f"There is no tool named {call.name!r}. There are: {', '.join(tools)}.")
        return tools[call.name]

    def nudge(self, text: str) -> None:
        """Say something to the model as a hidden user message, so that the run goes on.

        Raises Stop("no_progress") if it was nudged `MAX_NUDGES` times without calling a tool since.
        """
        recent = self.log[-2 * MAX_NUDGES :]  # reply, nudge, reply, nudge, ...
        if sum(message.hidden for message in those(recent, UserMessage)) >= MAX_NUDGES:
            raise Stop("no_progress", those(self.log, AssistantMessage)[-1].text)
        self.record(UserMessage(text, hidden=True))

    # ---- the steps of `run`

    def _begin(self, prompt: str | None) -> None:
        """Mark the agent as busy, and record the prompt."""
        last = [AssistantMessage(), *self.messages][-1]
        if prompt is None and isinstance(last, AssistantMessage):
            raise ValueError("there is nothing to go on with: give run() a prompt")
        self._run, self._start = object(), len(self.log)
        if prompt is not None:
            self._close_open_calls()
            self.record(UserMessage(prompt))

    def _end(self, result: Result) -> Result:
        """The result with what the run used, and with the calls that wait."""
        return replace(
            result, usage=usage_of(self.log[self._start :]), pending=tuple(waiting_calls(self.log))
        )

    def _refuse_if_busy(self) -> None:
        if self._run is not None:
            raise AgentBusy("this agent is running a query: await it first, or make another agent")

    def _close_open_calls(self) -> None:
        """Record a result for each call that has none, so that it will not run any more."""
        results = those(self.log, ToolMessage)
        for result in those(self.messages, ToolMessage):
            if result not in results:
                self.record(result)

    def _take(self, reply: AssistantMessage) -> AssistantMessage:
        """Record a reply, with call ids that are unique."""
        reply = with_unique_ids(reply, self.log)
        self.record(reply)
        return reply

    def _refuse_to_run(self, reply: AssistantMessage) -> Result | None:
        """After a reply that is cut off: its calls may be incomplete, so none of them runs."""
        for call in reply.tool_calls:
            self.record(ToolMessage(call.id, call.name, CUT_OFF, is_error=True))
        if reply.tool_calls:
            return None
        return Result(reply.text, stop_reason=UNFINISHED[str(reply.stop_reason)])

    async def _answer(self, call: ToolCall) -> BaseException | None:
        """Run one call, and record its result as soon as there is one. Returns what it raised.

        After a cancel, or a Stop before the tool started, the call stays open, and the view says
        what is known of it. A KeyboardInterrupt is returned like the rest: raised in a task, it
        would end the event loop before the other calls are settled.
        """
        run, raised = self._run, None
        try:
            message = await self.call_tool(call)
        except asyncio.CancelledError:
            raise
        except BaseException as error:
            raised = error
            is_stop, is_done = isinstance(error, Stop), isinstance(error, TaskComplete)
            if is_stop and not is_done and ToolStart(call.id) not in self.log:
                return raised
            message = ToolMessage(call.id, call.name, describe(error), is_error=not is_stop)
        if self._run is run:  # else it did not stop when its run was cancelled, and was left behind
            self.record(message)
        return raised

    async def _sum_up(self) -> Result:
        """Out of turns: one more request for what is done and what is missing. No call runs."""
        self.record(UserMessage(OUT_OF_TURNS, hidden=True))
        reply = await self.call_model(Request(await self.context(), self.toolset()))
        reply = self._take(replace(reply, tool_calls=()))
        return Result(reply.text, stop_reason="max_iterations")


closing: WeakSet[Any] = WeakSet()  # tasks that close their dependencies


async def cancel_and_wait(tasks: Sequence[asyncio.Future[Any]], grace: float) -> None:
    """Cancel tasks and wait until they have ended, but no longer than `grace` seconds."""
    for task in tasks:
        if task not in closing:
            task.cancel()
    loop = asyncio.get_running_loop()
    end = loop.time() + grace
    while pending := [task for task in tasks if not task.done()]:
        if loop.time() >= end:
            logger.warning("a tool did not stop in time")
            break
        with suppress(asyncio.CancelledError):  # a second cancel does not shorten this
            await asyncio.wait(pending, timeout=end - loop.time())


# ======================================================================================= the tools


def tool(description: Any = None, **options: Any) -> Any:
    """Make a tool of a function: `@tool`, or `@tool("what it does", name=...)`.

    Without a description, the docstring is it. The other options are those of `Tool`.
    """
    if callable(description):
        return Tool(description)
    return functools.partial(Tool, description=description, **options)


class Tool:
    """A function that a model may call. Calling the tool calls the function.

    The function may be async, or a plain `def`, which runs in a thread.

    parameters: the JSON schema of its arguments, made from its signature by pydantic.
    ephemeral: how many newest results of this tool stay visible; 0 means all of them.
    timeout: seconds that one call may take.
    """

    def __init__(
        self,
        function: Function,
        description: str | None = None,
        *,
        name: str | None = None,
        ephemeral: int = 0,
        timeout: float | None = None,
    ) -> None:
        self.function = function
        self.name = name or function.__name__
        self.ephemeral, self.timeout = ephemeral, timeout
        text, _, of_parameters = (inspect.getdoc(function) or "").partition("\nArgs:\n")
        self.description = description or text.strip()
        self.dependencies, visible = dependencies_of(function)
        self._whole, self._model = arguments_model(self.name, visible)
        schema = self._model.model_json_schema(schema_generator=WithoutTitles)
        self.parameters = {key: value for key, value in schema.items() if key != "title"}
        properties = self.parameters["properties"]
        for each, meaning in re.findall(r"^\s+(\w+):\s*(.+)$", of_parameters, re.MULTILINE):
            if each in properties:
                properties[each]["description"] = meaning

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.function(*args, **kwargs)

    def validate(self, arguments: str) -> dict[str, Any]:
        """The arguments, from the model's JSON text. ToolError says what is wrong, for the model."""
        try:
            values = self._model.model_validate_json(arguments.strip() or "{}")
        except ValidationError as error:
            problems = sorted(map(problem, error.errors(include_url=False)))
            raise ToolError("\n".join(problems)) from None
        if self._whole:
            return {self._whole: values}
        return {name: getattr(values, name) for name in self._model.model_fields}

    async def execute(
        self, arguments: dict[str, Any], overrides: Mapping[Function, Function]
    ) -> Any:
        """What the function returns. Its dependencies are opened first and closed last."""
        done: TaskComplete | None = None
        async with AsyncExitStack() as stack:
            opened: dict[Any, Any] = {}
            for name, dependency in self.dependencies.items():
                value = await provide(dependency, overrides, opened, stack)
                arguments = arguments | {name: value}
            # This callback runs first, when closing begins: no cancel cuts that short.
            stack.callback(closing.add, asyncio.current_task())
            try:
                async with asyncio.timeout(self.timeout):
                    return await call_function(self.function, arguments)
            except TaskComplete as error:
                done = error  # it is no failure, so dependencies do not roll back
        raise done or ToolError("A dependency has swallowed the error of this tool.")


# ---- arguments


class WithoutTitles(GenerateJsonSchema):
    """A JSON schema without titles, which only repeat the names."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False


def arguments_model(
    tool: str, parameters: Mapping[str, inspect.Parameter]
) -> tuple[str, type[BaseModel]]:
    """A pydantic model with a field for each parameter.

    A single parameter that is a pydantic model itself is the whole object; then its name comes
    first.
    """
    fields: dict[str, Any] = {}
    for name, parameter in parameters.items():
        kind = parameter.annotation
        if kind is parameter.empty:
            raise TypeError(f"tool {tool!r}: parameter {name!r} needs a type annotation")
        if len(parameters) == 1 and isinstance(kind, type) and issubclass(kind, BaseModel):
            return name, kind
        default = ... if parameter.default is parameter.empty else parameter.default
        fields[name] = kind, default
    return "", create_model("Arguments", __config__=ConfigDict(extra="forbid"), **fields)


def problem(error: Any) -> str:
    """One line for the model on one thing that is wrong, such as "a: Field required"."""
    where = ".".join(map(str, error["loc"]))
    if error["type"] == "extra_forbidden":
        return f"{where!r}: there is no such argument"
    got = "" if error["type"] == "missing" else f" (got {error['input']!r:.40})"
    return f"{where or 'arguments'}: {error['msg']}{got}"


# ---- dependencies


@dataclass(frozen=True)
class Dependency:
    """The mark that `Depends` leaves on a parameter."""

    function: Function


def Depends(function: Function) -> Any:
    """Mark a parameter that the program fills in, not the model: `db: Db = Depends(get_db)`.

    `db: Annotated[Db, Depends(get_db)]` is the same. A dependency is a function: plain, async, or
    a generator of either kind (the part after its `yield` runs after the tool; put it in `finally`,
    since a tool's error is raised at the `yield`). Its own parameters may be dependencies. One
    call opens each dependency once, and closes the last one first.
    """
    return Dependency(function)


def current_agent() -> Any:
    """`Depends(current_agent)` gives a tool the agent that runs it."""
    raise LookupError


def current_call() -> Any:
    """`Depends(current_call)` gives a tool the `ToolCall` that it answers."""
    raise LookupError


def dependencies_of(function: Function) -> tuple[dict[str, Function], dict[str, inspect.Parameter]]:
    """The parameters of a function that are marked with `Depends`, and the others."""
    hints = get_type_hints(function, include_extras=True)
    marked: dict[str, Function] = {}
    others: dict[str, inspect.Parameter] = {}
    for name, parameter in inspect.signature(function).parameters.items():
        hint = hints.get(name, parameter.empty)
        marks = those((parameter.default, *get_args(hint)), Dependency)
        if marks:
            marked[name] = marks[0].function
        else:
            others[name] = parameter.replace(annotation=hint)
    return marked, others


async def provide(
    function: Function,
    overrides: Mapping[Function, Function],
    opened: dict[Any, Any],
    stack: AsyncExitStack,
) -> Any:
    """The value of a dependency: opened now if it is not open yet, and closed by `stack`."""
    function = overrides.get(function, function)
    if function not in opened:
        wanted = dependencies_of(function)[0].items()
        given = {name: await provide(each, overrides, opened, stack) for name, each in wanted}
        if inspect.isasyncgenfunction(function):
            manager = asynccontextmanager(function)(**given)
            opened[function] = await stack.enter_async_context(manager)
        elif inspect.isgeneratorfunction(function):
            opened[function] = stack.enter_context(contextmanager(function)(**given))
        else:
            made = function(**given)
            opened[function] = await made if inspect.isawaitable(made) else made
    return opened[function]


# ---- calling a function, and telling the model of it


async def call_function(function: Function, arguments: dict[str, Any]) -> Any:
    """What a function returns: awaited if it is async, else out of a thread of its own.

    A daemon thread, so that a slow tool never keeps the program from exiting. Not an asyncio
    future for its outcome: that takes no StopIteration, and would wait for ever.
    """
    if inspect.iscoroutinefunction(function):
        return await function(**arguments)
    loop, ended = asyncio.get_running_loop(), asyncio.Event()
    outcome: Future[Any] = Future()

    def work() -> None:
        try:
            outcome.set_result(function(**arguments))
        except BaseException as error:
            outcome.set_exception(error)
        with suppress(RuntimeError):  # the event loop is closed: nobody waits any more
            loop.call_soon_threadsafe(ended.set)

    threading.Thread(target=work, daemon=True).start()
    await ended.wait()
    value = outcome.result()
    return await value if inspect.isawaitable(value) else value


def as_text(value: Any) -> str:
    """What a tool returned, as text for the model: JSON for what is no text."""
    if value is None or isinstance(value, str):
        return value or ""
    try:
        return to_json(value, fallback=repr).decode()
    except Exception:  # text that UTF-8 cannot carry, or a value that contains itself
        return repr(value)


def describe(error: BaseException) -> str:
    """An error for the model to read. A timeout has no text of its own."""
    if isinstance(error, ToolError | Stop):
        return str(error)
    return f"{type(error).__name__}: {str(error) or 'no more is known; it may have had effects'}"


# ====================================================================================== the mixins

BATCH = 8  # stale results that are hidden at once


class Ephemeral(Loop):
    """Shows the model only the newest results of tools made with `ephemeral=N`.

    Hiding a result changes the beginning of the next request, which the provider then cannot read
    from its cache. So stale results are hidden `BATCH` at a time, or at once if you say so.

    ephemeral_per_turn: whether stale results go at once.
    """

    ephemeral_per_turn: bool = False

    async def context(self) -> list[Message]:
        hidden = stale_results(self.log, 1 if self.ephemeral_per_turn else BATCH)
        return [
            replace(message, content=placeholder(message))
            if isinstance(message, ToolMessage) and message.tool_call_id in hidden
            else message
            for message in await super().context()
        ]


def stale_results(log: Sequence[Record], batch: int) -> set[str]:
    """The call ids of the results to hide. A result that is hidden once stays hidden.

    Results that the model has not seen yet, after its last reply, do not count.
    """
    replies = [at for at, record in enumerate(log) if isinstance(record, AssistantMessage)]
    seen = those(log[: max(replies, default=0)], ToolMessage)
    hidden: set[str] = set()
    for name in {result.tool_name for result in seen if result.ephemeral}:
        results = [result for result in those(log, ToolMessage) if result.tool_name == name]
        keep = max(result.ephemeral for result in results)
        stale = [result.tool_call_id for result in results[:-keep] if result in seen]
        hidden.update(stale[: len(stale) // batch * batch])
    return hidden


def placeholder(message: ToolMessage) -> str:
    size = f"{len(message.text):,} characters"
    return f"[An older result of {message.tool_name} stood here: {size}. Newer results follow.]"


DONE_DESCRIPTION = "Finish the task. Call this once everything is done, with the answer."
DONE_NUDGE = "You have not finished: go on with the task, or call the {tool} tool if it is done."


class DoneTool(Loop):
    """Ends a run when a done tool is called, so that the model cannot stop by just talking.

    A done tool is one that raises TaskComplete: your own, or the built-in `done`.

    require_done_tool: whether plain text is no answer; if not, it ends a run as usual.
    output_type: the type of `Result.value`. The built-in `done` then takes its fields as
        arguments, validated, and is required.
    done_nudge: said to the model after plain text; `{tool}` is the done tool's name.
    """

    require_done_tool: bool = True
    output_type: Any = None
    done_nudge: str = DONE_NUDGE

    def toolset(self) -> Sequence[Tool]:
        tools = super().toolset()
        if self._must_be_done() and (self.output_type is not None or not done_names(tools)):
            return [*tools, done_tool(self.output_type)]
        return tools

    async def finish(self, result: Result) -> Result | None:
        answer = await super().finish(result)
        if answer is None or answer.stop_reason != "completed" or not self._must_be_done():
            return answer
        names = done_names(self.toolset())
        self.nudge(self.done_nudge.replace("{tool}", " or ".join(names)))
        return None

    def _must_be_done(self) -> bool:
        return self.require_done_tool or self.output_type is not None


@functools.cache
def done_tool(output_type: Any) -> Tool:
    """The built-in done tool: it takes a message, or the fields of `output_type`."""

    def done(message: str) -> None:
        raise TaskComplete(message)

    def hand_over(result: Any) -> None:
        raise TaskComplete(as_text(result), value=result)

    hand_over.__annotations__["result"] = output_type
    return Tool(done if output_type is None else hand_over, DONE_DESCRIPTION, name="done")


def done_names(tools: Sequence[Tool]) -> list[str]:
    """The names of the tools that end a run: those named `done`, or whose code says TaskComplete."""
    return [
        tool.name
        for tool in tools
        if tool.name == "done"
        or "TaskComplete" in getattr(getattr(tool.function, "__code__", None), "co_names", ())
    ]


SUMMARY_PROMPT = (
    "Your context window is nearly full. Do not call tools. Write a summary from which you can go "
    "on without this conversation: the task and every instruction of the user, word for word where "
    "it matters; what was done and found, with names, paths and numbers; what failed; what is left."
)
SUMMARY_INTRO = "The conversation so far, summarized:\n\n"


@dataclass(frozen=True)
class CompactionConfig:
    """When and how to compact: at `threshold_ratio` of `context_window` tokens.

    keep_turns: how many of the newest turns stay as they are.
    """

    threshold_ratio: float = 0.80
    context_window: int = 128_000
    summary_prompt: str = SUMMARY_PROMPT
    keep_turns: int = 2


class Compaction(Loop):
    """Summarizes the conversation when it nears the context window, and goes on from the summary.

    The summary request is the request that was due plus one user message, so that it reads the
    provider's cache. The system prompt, the first task and the newest prompt and turns stay as they
    are. All of it stays in the log.

    compaction: when and how; None turns it off.
    """

    compaction: CompactionConfig | None = CompactionConfig()

    async def call_model(self, request: Request) -> AssistantMessage:
        config = self.compaction
        if config is None or request.purpose != "step":
            return await super().call_model(request)
        keep = place_to_cut(self.log, config.keep_turns)
        if keep and estimate(request) >= config.threshold_ratio * config.context_window:
            asked = [*request.messages, UserMessage(config.summary_prompt, hidden=True)]
            side = replace(request, messages=asked, purpose="compaction")
            reply = await super().call_model(side)
            if reply.text.strip():
                self.record(Summary(reply.text, keep, reply.usage))
                request = replace(request, messages=await self.context())
        return await super().call_model(request)


def place_to_cut(log: Sequence[Record], keep_turns: int) -> int:
    """Where the newest turns begin in the log, with their user message; 0 if there are no older."""
    turns = [i for i, record in enumerate(log) if isinstance(record, AssistantMessage)]
    if len(turns) <= keep_turns:
        return 0
    at = [*turns, len(log)][-1 - keep_turns]
    while isinstance(log[at - 1], UserMessage) and at:
        at -= 1
    return at


def estimate(request: Request) -> int:
    """How many tokens a request has, with three bytes for each, which is rather too many."""
    sent = [request.messages, [tool.parameters for tool in request.tools]]
    return len(repr(sent).encode(errors="replace")) // 3


class Agent(DoneTool, Ephemeral, Compaction, Loop):
    """The loop with all three mixins. A plain answer ends a run, until you ask for a done tool."""

    require_done_tool = False


# ====================================================================================== the models


class ChatModel(Protocol):
    """Anything that answers messages."""

    async def ainvoke(
        self, messages: Sequence[Message], tools: Sequence[Tool] = (), *, tool_choice: str = "auto"
    ) -> AssistantMessage: ...


WITHOUT_REASONING = (
    "This model takes no tools on Chat Completions while it reasons: "
    'set ChatOpenAI(..., extra={"reasoning_effort": "none"}), or choose another model.'
)


@dataclass(eq=False, repr=False)
class ChatOpenAI:
    """A model behind OpenAI's Chat Completions, or any other server that speaks it.

    api_key: or OPENAI_API_KEY in the environment.
    base_url: or OPENAI_BASE_URL, such as "http://localhost:11434/v1".
    max_retries: attempts after the first.
    timeout: seconds that one attempt may take.
    extra: more fields to send, such as {"temperature": 0}.
    """

    model: str
    _: KW_ONLY
    api_key: str | None = None
    base_url: str | None = None
    max_retries: int = 4
    timeout: float = 600.0
    extra: Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        self.api_key = self.api_key or os.environ.get("OPENAI_API_KEY")
        self.base_url = self.base_url or os.environ.get("OPENAI_BASE_URL")
        if not (self.api_key or self.base_url):
            raise ValueError("ChatOpenAI needs api_key=, or OPENAI_API_KEY in the environment")

    async def ainvoke(
        self, messages: Sequence[Message], tools: Sequence[Tool] = (), *, tool_choice: str = "auto"
    ) -> AssistantMessage:
        """The model's answer. Raises ModelError; one that may pass is tried again first."""
        body = write_request(self.model, messages, tools, tool_choice) | dict(self.extra or {})
        content = json.dumps(body, ensure_ascii=False).encode(errors="replace")
        attempt = 0
        while True:
            try:
                return await self._attempt(content)
            except ModelError as error:
                wait = error.retry_after or 2.0**attempt
                if isinstance(error, BadRequest) or attempt == self.max_retries or wait > 120:
                    raise
            attempt += 1
            await asyncio.sleep(wait)

    async def _attempt(self, content: bytes) -> AssistantMessage:
        url = (self.base_url or "https://api.openai.com/v1").rstrip("/") + "/chat/completions"
        key = f"Bearer {self.api_key or 'none'}"
        headers = {"authorization": key, "content-type": "application/json"}
        try:
            async with asyncio.timeout(self.timeout):
                client = await client_of_this_loop()
                response = await client.post(url, content=content, headers=headers)
        except (httpx.HTTPError, TimeoutError) as error:
            raise ModelError(f"no answer from {url}: {describe(error)}") from error
        if response.status_code != 200:
            raise error_of(response)
        return read_reply(response)


clients: WeakKeyDictionary[Any, AsyncGenerator[httpx.AsyncClient, None]] = WeakKeyDictionary()


async def client_of_this_loop() -> httpx.AsyncClient:
    """One client, with its open connections, for each event loop.

    A generator holds it, because an event loop that ends closes its generators.
    """
    loop = asyncio.get_running_loop()
    if loop not in clients:
        clients[loop] = hold_client()
    return await anext(clients[loop])


async def hold_client() -> AsyncGenerator[httpx.AsyncClient, None]:
    async with httpx.AsyncClient(timeout=None) as client:
        while True:
            yield client


def write_request(
    model: str, messages: Sequence[Message], tools: Sequence[Tool], tool_choice: str
) -> dict[str, Any]:
    """The body of a request. https://platform.openai.com/docs/api-reference/chat"""
    body: dict[str, Any] = {"model": model, "messages": [write_message(m) for m in messages]}
    if tools:
        body["tools"] = [{"type": "function", "function": write_tool(tool)} for tool in tools]
        function = {"type": "function", "function": {"name": tool_choice}}
        named = tool_choice not in ("auto", "required", "none")
        body["tool_choice"] = function if named else tool_choice
    return body


def write_tool(tool: Tool) -> dict[str, Any]:
    return {"name": tool.name, "description": tool.description, "parameters": tool.parameters}


def write_message(message: Message) -> dict[str, Any]:
    if isinstance(message, ToolMessage):
        return {"role": "tool", "tool_call_id": message.tool_call_id, "content": message.text}
    if isinstance(message, AssistantMessage):
        out: dict[str, Any] = {"role": "assistant", "content": message.text or None}
        if message.tool_calls:
            out["tool_calls"] = [write_call(call) for call in message.tool_calls]
        return out
    return {
        "role": "user" if isinstance(message, UserMessage) else "system",
        "content": message.text,
    }


def write_call(call: ToolCall) -> dict[str, Any]:
    """A call as it was made. OpenAI refuses a history with other names or arguments, for ever."""
    name = re.sub("[^a-zA-Z0-9_-]", "_", call.name)[:64] or "unknown"
    function = {"name": name, "arguments": "{}" if call.parsed is None else call.arguments}
    return {"id": call.id, "type": "function", "function": function}


def read_reply(response: httpx.Response) -> AssistantMessage:
    """The message in a response. ModelError if there is none."""
    try:
        data = response.json()
        choice, usage = data["choices"][0], data.get("usage")
        message = choice["message"]
        finish, calls = choice["finish_reason"], message.get("tool_calls") or ()
        return AssistantMessage(
            message.get("content") or "",
            tuple(map(read_call, calls)),
            usage=Usage(usage["prompt_tokens"], usage["completion_tokens"]) if usage else None,
            stop_reason="refused" if finish == "content_filter" else finish,
        )
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        text = f"no message in the reply ({describe(error)}): {response.text:.200}"
        raise ModelError(text, status=response.status_code) from error


def read_call(call: Any) -> ToolCall:
    function = call["function"]
    return ToolCall(call.get("id") or "", function["name"], function["arguments"] or "{}")


def error_of(response: httpx.Response) -> ModelError:
    """The error that a response reports, in the server's own words."""
    status, text = response.status_code, response.text[:1000]
    if status == 400 and "/v1/responses" in text:
        text = f"{text}\n{WITHOUT_REASONING}"
    may_pass = status >= 500 or status in (408, 409, 429)
    asked = response.headers.get("retry-after", "")  # seconds; some servers send a date
    wait = float(asked) if asked.isdecimal() else None
    kind = ModelError if may_pass else BadRequest
    return kind(f"HTTP {status}: {text}", status=status, retry_after=wait)


class ScriptedModel:
    """Plays replies in order, or asks a function of (messages, tools) for each. Offline.

    A reply is text, a call, several calls, an AssistantMessage, or an exception to raise; a
    function may stand in the place of any. `requests` holds what was asked.
    """

    def __init__(self, *script: Any) -> None:
        self.requests: list[Request] = []
        for_every = len(script) == 1 and callable(script[0])
        self._replies = repeat(script[0]) if for_every else iter(script)

    async def ainvoke(
        self, messages: Sequence[Message], tools: Sequence[Tool] = (), *, tool_choice: str = "auto"
    ) -> AssistantMessage:
        self.requests.append(Request(messages, tools, tool_choice))
        reply = next(self._replies, IndexError("the script has no more replies"))
        if callable(reply):
            reply = reply(messages, tools)
            reply = await reply if inspect.isawaitable(reply) else reply
        if isinstance(reply, BaseException):
            raise reply
        if isinstance(reply, AssistantMessage):
            return reply
        if isinstance(reply, str):
            return AssistantMessage(reply)
        return AssistantMessage(
            tool_calls=(reply,) if isinstance(reply, ToolCall) else tuple(reply)
        )


def call(name: str, /, **arguments: Any) -> ToolCall:
    """A call as a model would make it. It gets its id when the loop takes it."""
    return ToolCall("", name, to_json(arguments).decode())


# ======================================================================================== the data

Function = Callable[..., Any]


def clean(text: str) -> str:
    """Text that UTF-8 can carry: surrogate pairs are joined, and lone ones become U+FFFD."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of one request, or of several added up."""

    input_tokens: int = 0
    output_tokens: int = 0

    @property
    def total_tokens(self) -> int:
        return self.input_tokens + self.output_tokens


def usage_of(records: Iterable[Record]) -> Usage:
    """The tokens that some records report, added up."""
    found = [r.usage for r in records if isinstance(r, AssistantMessage | Summary) and r.usage]
    return Usage(sum(u.input_tokens for u in found), sum(u.output_tokens for u in found))


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call that the model asks for; `arguments` is the JSON text as the model wrote it."""

    id: str
    name: str
    arguments: str = "{}"

    @property
    def parsed(self) -> dict[str, Any] | None:
        """The arguments if they are a JSON object, else None."""
        with suppress(ValueError):
            value: dict[str, Any] | None = from_json(self.arguments, allow_inf_nan=False)
            return value if isinstance(value, dict) else None
        return None


class Message:
    """What all messages have in common: `content`, a text that UTF-8 can carry."""

    content: str

    def __post_init__(self) -> None:
        object.__setattr__(self, "content", clean(self.content))

    @property
    def text(self) -> str:
        return self.content


@dataclass(frozen=True)
class SystemMessage(Message):
    """The system prompt. Never in a log: it is a setting, so that nothing can lose it."""

    content: str


@dataclass(frozen=True)
class UserMessage(Message):
    """What the user says. `hidden`: the library said it, not the user."""

    content: str
    hidden: bool = False


@dataclass(frozen=True)
class AssistantMessage(Message):
    """What the model said. `stop_reason` is "end", "tool_calls", "length", "refused", or None."""

    content: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    usage: Usage | None = None
    stop_reason: str | None = None


@dataclass(frozen=True)
class ToolMessage(Message):
    """The result of one call. `ephemeral`: how many newest results of this tool stay visible."""

    tool_call_id: str
    tool_name: str
    content: str
    is_error: bool = False
    ephemeral: int = 0


@dataclass(frozen=True)
class ToolStart:
    """A mark in the log: from here on the call may have had effects."""

    call_id: str


@dataclass(frozen=True)
class Summary:
    """A mark in the log: `content` stands for what is before record number `keep`."""

    content: str
    keep: int
    usage: Usage | None = None


Record = Message | ToolStart | Summary
T = TypeVar("T")


def those(log: Sequence[Any], kind: type[T]) -> list[T]:
    """The records of one kind."""
    return [record for record in log if isinstance(record, kind)]


@dataclass(frozen=True)
class Request:
    """What is asked of a model. `purpose` is "step", or "compaction"."""

    messages: Sequence[Message]
    tools: Sequence[Tool] = ()
    tool_choice: str = "auto"
    purpose: str = "step"


@dataclass(frozen=True)
class Result:
    """How a run ended. `pending` are the calls that wait: `run()` without a prompt runs them.

    stop_reason: "completed", "done", "max_iterations", "refused", "no_progress", "limit:length",
        or the reason of a Stop that a tool or a mixin raised.
    """

    text: str = ""
    value: Any = None
    stop_reason: str = "completed"
    usage: Usage = Usage()
    pending: tuple[ToolCall, ...] = ()

    def __str__(self) -> str:
        return self.text


# ---- the view of a log

NEVER_STARTED = "Not run: the run ended before this call started. It had no effects."
OUTCOME_UNKNOWN = (
    "Interrupted: this call had started and its outcome is unknown. "
    "It may have had effects: check before you repeat it."
)


def view(log: Sequence[Record]) -> list[Message]:
    """What the model sees of a log: summarized, without marks, every call followed by its result.

    A call without a result gets a text that says what is known of it. Empty replies are left out.
    """
    results = {result.tool_call_id: result for result in those(log, ToolMessage)}
    started = {mark.call_id for mark in those(log, ToolStart)}
    messages: list[Message] = []
    for record in summarized(log):
        if isinstance(record, UserMessage):
            messages.append(record)
        elif isinstance(record, AssistantMessage) and (record.text.strip() or record.tool_calls):
            messages.append(record)
            for call in record.tool_calls:
                known = OUTCOME_UNKNOWN if call.id in started else NEVER_STARTED
                sealed = ToolMessage(call.id, call.name, known, is_error=True)
                messages.append(results.get(call.id, sealed))
    return messages


def summarized(log: Sequence[Record]) -> Sequence[Record]:
    """The log after its last Summary: first task, newest prompt, summary, the rest."""
    if not (summaries := those(log, Summary)):
        return log
    summary = summaries[-1]
    prompts = [r for r in those(log[: summary.keep], UserMessage) if not r.hidden]
    told = UserMessage(SUMMARY_INTRO + summary.content, hidden=True)
    return [*prompts[:1], *prompts[1:][-1:], told, *log[summary.keep :]]


def waiting_calls(log: Sequence[Record]) -> list[ToolCall]:
    """The calls that have neither started nor got a result."""
    known = {mark.call_id for mark in those(log, ToolStart)}
    known |= {result.tool_call_id for result in those(log, ToolMessage)}
    return [call for call in calls_in(log) if call.id not in known]


def calls_in(log: Sequence[Record]) -> list[ToolCall]:
    """All calls that the model has asked for."""
    return [call for reply in those(log, AssistantMessage) for call in reply.tool_calls]


def with_unique_ids(reply: AssistantMessage, log: Sequence[Record]) -> AssistantMessage:
    """The reply with call ids that are new. Some servers send none, or the same ones again.

    OpenAI takes ids of up to 40 characters.
    """
    seen = {call.id for call in calls_in(log)}
    calls: list[ToolCall] = []
    for call in reply.tool_calls:
        if call.id in seen or not 0 < len(call.id) <= 40:
            call = replace(call, id=f"call_{uuid.uuid4().hex[:12]}")
        seen.add(call.id)
        calls.append(call)
    return replace(reply, tool_calls=tuple(calls))


# ---- what can go wrong


class Stop(Exception):
    """Ends a run with this reason. A tool, or a mixin in any seam, raises it."""

    def __init__(self, reason: str, text: str = "", value: Any = None) -> None:
        super().__init__(text)
        self.reason, self.text, self.value = reason, text, value


class TaskComplete(Stop):
    """The task is done: a done tool raises it, with the answer."""

    def __init__(self, message: str = "", value: Any = None) -> None:
        super().__init__("done", message, value)


class AgentBusy(RuntimeError):
    """One agent runs one query at a time."""


class ToolError(Exception):
    """An expected failure of a tool: the model reads the message, and nothing else of it."""


class ModelError(Exception):
    """A model request failed. `status` is the HTTP status, or None if there was no answer."""

    def __init__(
        self, message: str, *, status: int | None = None, retry_after: float | None = None
    ) -> None:
        super().__init__(message)
        self.status, self.retry_after = status, retry_after


class BadRequest(ModelError):
    """The provider refuses the request itself: trying again would not help."""


# ======================================================================================== try it


class Verbose(Agent):
    """An agent that prints its calls: a mixin of your own is as short as this."""

    async def call_tool(self, call: ToolCall) -> ToolMessage:
        message = await super().call_tool(call)
        print(f"{call.name} {call.arguments} -> {message.text}")
        return message


@tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def main() -> None:
    """Answer the question on the command line."""
    question = " ".join(sys.argv[1:]) or "What is 2 + 3?"
    if os.environ.get("OPENAI_API_KEY") or os.environ.get("OPENAI_BASE_URL"):
        llm: ChatModel = ChatOpenAI(os.environ.get("OPENAI_MODEL", "gpt-5-mini"))
    else:
        print("(There is no OPENAI_API_KEY and no OPENAI_BASE_URL, so this is a script.)")
        llm = ScriptedModel(call("add", a=2, b=3), "2 + 3 is 5.")
    try:
        print(Verbose(llm=llm, tools=[add]).run_sync(question))
    except ModelError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()

# What the package has beside this. The names are the same, so `from agentloop import ...` is the
# whole change, if you give the fields of messages by name. What you changed in the loop becomes a
# mixin. A model of yours needs `model`, and `agent.log` has marks (RunStart, RunEnd) beside messages.
#
# - streaming (`query_stream`, deltas; a model of yours takes `on_delta=None` for it), events for
#   `listeners`, `interrupt`, and `fork` for a copy of an agent
# - sessions: the log in a file, each record as soon as it is made, so that `kill -9` loses nothing
# - images and files, thinking, and what providers want back of it; ChatAnthropic, ChatGoogle
# - ChatOpenAI over Responses, which the newer models of OpenAI need for tools
# - more mixins: Limits, Session, Approval, Hooks, Cost, Inbox, Offload, Memory, Repetition, Channels,
#   Tracing, Log, Durable; `output_type=` for typed answers
# - toolkits: files in a workspace, a shell, MCP, HTTP tools from a config, sub-agents, skills, to-dos
# - tools: methods, local names in annotations, `idempotent=`, `parallel=`, repair of arguments that
#   are almost right, long results cut, a bound also for a tool that does not stop at its timeout
# - compaction also after a request that was too long, with windows known by model; cheaper pruning
# - `client=` and more settings of ChatOpenAI; errors by kind (RateLimited, Overloaded, ContextWindowExceeded, ...)
