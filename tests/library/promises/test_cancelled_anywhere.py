"""Promise 1: after a cancellation at any moment, the log yields a valid next request.

A scenario runs once to count its iterations of the event loop, and then once for each iteration,
with a cancellation at this iteration.
"""

import asyncio
from collections import Counter
from contextlib import aclosing

import pytest

from agentloop import (
    Agent,
    AssistantMessage,
    CompactionConfig,
    Depends,
    ScriptedModel,
    TaskComplete,
    ToolMessage,
    UserMessage,
    current_agent,
    tool,
    validate_messages,
)
from agentloop.mixins.compaction import SUMMARY_PROMPT
from agentloop.models.scripted import call


async def run(agent, prompt):
    return await agent.run(prompt)


async def stream(agent, prompt):
    async with aclosing(agent.query_stream(prompt)) as events:
        return [event async for event in events][-1]


async def in_time(agent, prompt):
    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        return await group.create_task(agent.run(prompt))


class Scenario:
    """An agent whose tools record their effects, and a model with scripted replies."""

    def __init__(self, script, how=run, **settings):
        self.ledger = Counter()
        self.opened = self.closed = 0
        scenario = self

        async def connection():
            await asyncio.sleep(0)
            scenario.opened += 1
            try:
                yield "c"
            finally:
                await asyncio.sleep(0)
                await asyncio.sleep(0)
                scenario.closed += 1

        @tool("Act")
        async def act(name: str) -> str:
            await asyncio.sleep(0)
            scenario.ledger[name] += 1
            await asyncio.sleep(0)
            return name + " word" * 50

        @tool("Act with a connection", timeout=30)
        async def connected(name: str, c: str = Depends(connection)) -> str:
            return await act(name)

        @tool("Alone", parallel=False)
        async def alone(name: str) -> str:
            return await act(name)

        @tool("Finish")
        async def finish(name: str) -> str:
            await act(name)
            raise TaskComplete("finished")

        @tool("Ask another agent")
        async def ask(name: str, agent: Agent = Depends(current_agent)) -> str:
            helper = agent.fork(at=0)
            helper.llm = ScriptedModel(call("act", name=name + "-sub"), "sub answer")
            return await helper.query("sub task")

        async def nest(name: str, agent: Agent = Depends(current_agent)) -> str:
            await agent.call("connected", name=f"{name}1")
            await asyncio.gather(*(agent.call(act, name=f"{name}{n}") for n in (2, 3)))
            return await agent.call(alone, name=f"{name}4")

        once = tool("Call other tools", name="nest", timeout=30)(nest)
        again = tool("Call them again", name="nest_again", idempotent=True)(nest)

        replies = iter(script)

        async def answer(messages, tools):
            await asyncio.sleep(0)
            if messages[-1].text == SUMMARY_PROMPT:
                return "SUMMARY"
            return next(replies, "the end")

        tools = [act, connected, alone, finish, ask, once, again]
        self.agent = Agent(llm=ScriptedModel(answer), tools=tools, **settings)
        self.run = lambda: how(self.agent, "task")

    def check(self):
        assert max(self.ledger.values(), default=0) <= 1, "at most once"
        assert self.opened == self.closed
        assert validate_messages([*self.agent.messages, UserMessage("x")]) == []


def calls(tool, names):
    return [call(tool, name=name) for name in names]


PARALLEL = [calls("act", "abc"), calls("alone", "d")]
SCENARIOS = {
    "parallel calls": {"script": PARALLEL},
    "dependencies": {"script": [[*calls("connected", "ab"), *calls("act", "c")]]},
    "a done tool among other calls": {
        "script": [[*calls("act", "a"), *calls("finish", "b"), *calls("connected", "c")]]
    },
    "compaction": {
        "script": [calls("act", name) for name in "abcd"],
        "compaction": CompactionConfig(context_window=400, threshold_ratio=0.6),
    },
    "sub-agents": {"script": [[*calls("ask", "a"), *calls("act", "b")], calls("ask", "c")]},
    "nested calls": {"script": [[*calls("nest", "a"), *calls("nest_again", "b")]]},
    "a stream of nested calls": {"script": [calls("nest_again", "a")], "how": stream},
    "a stream": {
        "script": [[*calls("act", "a"), *calls("connected", "b")], "some words of text"],
        "how": stream,
    },
    "a timeout": {"script": PARALLEL, "how": in_time},
}


async def start(kind, iterations):
    """Return a scenario after a number of iterations of the event loop, and its task."""
    scenario = Scenario(**SCENARIOS[kind])
    task = asyncio.ensure_future(scenario.run())
    for _ in range(iterations):
        await asyncio.sleep(0)
    return scenario, task


async def iterations_of(kind):
    """Return the event loop iterations of an uncancelled scenario, and check the scenario."""
    scenario, task = await start(kind, 0)
    count = 0
    while not task.done():
        await asyncio.sleep(0)
        count += 1
    await task
    scenario.check()
    assert count >= 10
    return count


@pytest.mark.parametrize("prompt", ["a new prompt", None])
@pytest.mark.parametrize("kind", SCENARIOS)
async def test_a_cancellation_at_every_iteration_of_the_event_loop(kind, prompt):
    moments = await iterations_of(kind)
    for moment in range(moments):
        scenario, task = await start(kind, moment)
        task.cancel()
        await asyncio.wait([task])
        assert task.cancelled() or moment == moments - 1, "the task is cancelled"
        scenario.check()
        agent = scenario.agent
        finished = {r.tool_call_id: r.text for r in agent.log if isinstance(r, ToolMessage)}
        if prompt or any(isinstance(record, UserMessage) for record in agent.log):
            try:
                await agent.run(prompt)
            except ValueError:  # the run had already ended
                assert isinstance(agent.messages[-1], AssistantMessage | ToolMessage)
        scenario.check()
        shown = {r.tool_call_id: r.text for r in agent.log if isinstance(r, ToolMessage)}
        assert finished.items() <= shown.items(), "a finished result is lost"


async def test_an_interrupt_at_every_iteration_ends_with_a_result():
    for moment in range(1, await iterations_of("parallel calls")):
        scenario, task = await start("parallel calls", moment)
        scenario.agent.interrupt("stop")
        result = await task
        assert result.stop_reason in ("interrupted", "completed")
        assert task.cancelling() == 0
        scenario.check()
        assert (await scenario.agent.run("go on")).stop_reason == "completed"
        scenario.check()


async def test_an_abandoned_stream_at_every_event():
    scenario = Scenario(**SCENARIOS["a stream"])
    events = [event async for event in scenario.agent.query_stream("task")]
    for place in range(len(events)):
        scenario = Scenario(**SCENARIOS["a stream"])
        stream = scenario.agent.query_stream("task")
        for _ in range(place + 1):
            await anext(stream)
        del stream
        assert (await scenario.agent.run("go on")).text
        scenario.check()
