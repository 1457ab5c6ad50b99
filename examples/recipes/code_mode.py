"""Code mode: the model writes Python programs that call the tools, and only reads what they print.

Use code mode if a task has many calls or large results: one program does what would take several
turns, and the results in between stay out of the context. Programs run in Monty, a sandboxed
interpreter that has no files, no network and no modules of yours. Approval, hooks and limits hold
for every call. After an approval, the program starts again, and calls that were done return their
recorded results. Needs `pip install pydantic-monty`.
"""

import asyncio
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import Annotated, Any

from pydantic_monty import (
    AsyncFutureSnapshot,
    AsyncMonty,
    AsyncNameLookupSnapshot,
    MontyComplete,
    MontyError,
    MontyRuntimeError,
    MontySyntaxError,
    OSPolicy,
    ResourceLimits,
)

from agentloop import (
    Agent,
    AssistantMessage,
    Depends,
    Loop,
    Request,
    ScriptedModel,
    Tool,
    ToolError,
    call,
    current_agent,
    tool,
)
from agentloop.content import as_text, clip
from agentloop.messages import JSON, text_of

LIMITS: ResourceLimits = {
    "max_feed_duration_secs": 10,  # without the time of the calls
    "max_turn_duration_secs": 3,  # between two calls
    "max_memory": 100_000_000,
}
MAX_SECONDS = 600  # with the time of the calls
MAX_PRINTED = 20_000  # characters
MAX_RESULT = 50_000  # characters that the model receives
# A program that starts again must make the same calls, so clock and random numbers stay the same.
POLICY: OSPolicy = {"datetime": datetime(2000, 1, 1), "sleep": "zero", "random_start": {"seed": 0}}
ABOUT = """Run Python that calls the functions below, and return the value of its last line.

Await each call and use keyword arguments; asyncio.gather runs calls in parallel. Available modules:
asyncio, json, math, re. There are no files, no network, and no clock.

"""
TYPES = {"string": "str", "integer": "int", "number": "float", "boolean": "bool"}
TYPES |= {"array": "list", "object": "dict"}


class CodeMode(Loop):
    """Offers the model a single tool, for programs. Put it left of all other mixins.

    max_result_chars: as in `Loop`, but for the calls of programs.
    """

    max_result_chars = 10_000_000

    def toolset(self) -> Sequence[Tool]:
        tools = super().toolset()
        return [*tools, python_tool(tools)]

    async def call_model(self, request: Request) -> AssistantMessage:
        if request.purpose != "subagent":
            shown = [tool for tool in request.tools if tool.name == "run_python" or tool.ends_run]
            request = replace(request, tools=shown)
        return await super().call_model(request)


def python_tool(tools: Sequence[Tool]) -> Tool:
    """Make the tool that runs programs. Only the calls of a program have side effects."""

    async def run_python(code: str, agent: Annotated[Agent, Depends(current_agent)]) -> str:
        return await run_program(code, agent, [tool.name for tool in tools])

    about = ABOUT + "\n".join(map(signature, tools))
    return tool(about, idempotent=True, read_only=True, timeout=MAX_SECONDS)(run_python)


def signature(tool: Tool) -> str:
    """Write a tool as a Python function: its signature, and its description."""
    parameters = ["*"]
    for name, schema in tool.parameters["properties"].items():
        default = "" if name in tool.parameters.get("required", ()) else " = ..."
        parameters.append(f"{name}: {TYPES.get(schema.get('type'), 'Any')}{default}")
    head = f"async def {tool.name}({', '.join(parameters)})".replace("(*)", "()")
    return f"{head}: {tool.description!r}"


async def run_program(code: str, agent: Agent, names: Collection[str]) -> str:
    """Run a program. Returns what it prints, and the value of its last expression.

    Calls that are awaited together run at the same time. A request for approval, or any other Stop,
    ends the program, which can't catch it. Raises ToolError with the traceback of the program.
    """
    printed: list[str] = []
    calls: dict[int, tuple[str, JSON]] = {}  # calls without await, by Monty's call id
    functions = dict.fromkeys(names, len)  # placeholders: this loop performs the calls
    try:
        async with (
            AsyncMonty() as pool,
            pool.checkout(limits=LIMITS, os_policy=POLICY) as session,
        ):
            step: Callable[[], Any] = partial(
                session.feed_start,
                code,
                external_lookup=functions,
                print_callback=partial(keep_text, printed),
            )
            while not isinstance(state := await step(), MontyComplete):
                if isinstance(state, AsyncFutureSnapshot):
                    ids = sorted(state.pending_call_ids)
                    awaited = [call_tool(agent, *calls.pop(id)) for id in ids]
                    results = await asyncio.gather(*awaited)
                    step = partial(state.resume, dict(zip(ids, results, strict=True)))
                elif isinstance(state, AsyncNameLookupSnapshot) or state.is_os_function:
                    step = state.resume_auto
                elif state.args:
                    step = partial(state.resume, {"exception": TypeError("use keyword arguments")})
                else:
                    calls[state.call_id] = state.function_name, state.kwargs
                    step = partial(state.resume, {"future": ...})
    except (MontyRuntimeError, MontySyntaxError) as error:
        raise ToolError("".join(printed) + error.display()) from None
    except MontyError as error:
        raise ToolError("".join(printed) + str(error)) from None
    if calls:
        skipped = ", ".join(name for name, _ in calls.values())
        raise ToolError(f"These calls did not run, because they were not awaited: {skipped}")
    return clip("".join(printed) + as_text(state.output), MAX_RESULT)


async def call_tool(agent: Agent, name: str, arguments: JSON) -> Any:
    """Make a call. Returns its result, or its exception, in Monty's format."""
    try:
        result = await agent.call(name, **arguments)
    except ToolError as error:
        return {"exception": RuntimeError(str(error))}
    return {"return_value": text_of(result) if isinstance(result, tuple) else result}


def keep_text(printed: list[str], stream: str, text: str) -> None:
    """Collect printed text, up to `MAX_PRINTED` characters."""
    printed.append(text[: MAX_PRINTED - sum(map(len, printed))])


@tool(read_only=True)
def stock(item: str) -> int:
    """Return the number of items in stock."""
    return {"tea": 12, "milk": 1}.get(item, 0)


@tool
def order(item: str, count: int) -> str:
    """Order items."""
    return f"ordered {count} {item}"


class Clerk(CodeMode, Agent): ...


CODE = """
import asyncio
items = ['tea', 'coffee', 'milk']
counts = await asyncio.gather(*[stock(item=item) for item in items])
[await order(item=item, count=5) for item, count in zip(items, counts) if count < 2]
"""

if __name__ == "__main__":
    llm = ScriptedModel(call("run_python", code=CODE), "Coffee and milk are ordered.")
    clerk = Clerk(llm=llm, tools=[stock, order])
    print(clerk.run_sync("Order what is running out.").text, "|", clerk.messages[2].text)
    print([tool.name for tool in llm.requests[0].tools], len(llm.requests), "requests")
