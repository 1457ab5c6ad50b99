"""Promise: cancelled at any moment, a run leaves a log that the next request can be made from.

A scenario runs once to count the turns of the event loop that it takes. Then it runs again and
again, and is cancelled at the first turn, the second, and so on.
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
    validate,
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
    """An agent whose tools write down what they do, and a model that plays a script."""

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
        assert validate([*self.agent.messages, UserMessage("x")]) == []


def calls(tool, names):
    return [call(tool, name=name) for name in names]


PARALLEL = [calls("act", "abc"), calls("alone", "d")]
SCENARIOS = {
    "calls side by side": {"script": PARALLEL},
    "dependencies": {"script": [[*calls("connected", "ab"), *calls("act", "c")]]},
    "done beside siblings": {
        "script": [[*calls("act", "a"), *calls("finish", "b"), *calls("connected", "c")]]
    },
    "compaction": {
        "script": [calls("act", name) for name in "abcd"],
        "compaction": CompactionConfig(context_window=400, threshold_ratio=0.6),
    },
    "sub-agents": {"script": [[*calls("ask", "a"), *calls("act", "b")], calls("ask", "c")]},
    "calls of tools": {"script": [[*calls("nest", "a"), *calls("nest_again", "b")]]},
    "a stream of calls of tools": {"script": [calls("nest_again", "a")], "how": stream},
    "a stream": {
        "script": [[*calls("act", "a"), *calls("connected", "b")], "some words of text"],
        "how": stream,
    },
    "a timeout": {"script": PARALLEL, "how": in_time},
}


async def start(kind, turns):
    """A scenario that has run for so many turns of the event loop, and its task."""
    scenario = Scenario(**SCENARIOS[kind])
    task = asyncio.ensure_future(scenario.run())
    for _ in range(turns):
        await asyncio.sleep(0)
    return scenario, task


async def turns_of(kind):
    """How many turns of the event loop a scenario takes; it keeps its promises uncancelled too."""
    scenario, task = await start(kind, 0)
    turns = 0
    while not task.done():
        await asyncio.sleep(0)
        turns += 1
    await task
    scenario.check()
    assert turns >= 10
    return turns


@pytest.mark.parametrize("go_on", ["a new prompt", None])
@pytest.mark.parametrize("kind", SCENARIOS)
async def test_cancelled_at_every_turn_of_the_event_loop(kind, go_on):
    moments = await turns_of(kind)
    for moment in range(moments):
        scenario, task = await start(kind, moment)
        task.cancel()
        await asyncio.wait([task])
        assert task.cancelled() or moment == moments - 1, "a cancel always cancels"
        scenario.check()
        agent = scenario.agent
        finished = {r.tool_call_id: r.text for r in agent.log if isinstance(r, ToolMessage)}
        if go_on or any(isinstance(record, UserMessage) for record in agent.log):
            try:
                await agent.run(go_on)
            except ValueError:  # it had ended already
                assert isinstance(agent.messages[-1], AssistantMessage | ToolMessage)
        scenario.check()
        shown = {r.tool_call_id: r.text for r in agent.log if isinstance(r, ToolMessage)}
        assert finished.items() <= shown.items(), "nothing that was finished is lost"


async def test_an_interrupt_at_every_turn_gives_a_result():
    for moment in range(1, await turns_of("calls side by side")):
        scenario, task = await start("calls side by side", moment)
        scenario.agent.interrupt("stop")
        result = await task
        assert result.stop_reason in ("interrupted", "completed")
        assert task.cancelling() == 0
        scenario.check()
        assert (await scenario.agent.run("go on")).stop_reason == "completed"
        scenario.check()


async def test_leaving_the_stream_at_every_event():
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
