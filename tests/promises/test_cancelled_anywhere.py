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


class Scenario:
    """An agent whose tools write down what they do. `model` answers by what it was asked last."""

    settings: dict = {}
    script: list = []

    def __init__(self):
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

        script = iter(self.script)

        async def answer(messages, tools):
            await asyncio.sleep(0)
            if messages[-1].text == SUMMARY_PROMPT:
                return "SUMMARY"
            return next(script, "the end")

        tools = [act, connected, alone, finish, ask]
        self.agent = Agent(llm=ScriptedModel(answer), tools=tools, **self.settings)

    async def run(self):
        return await self.agent.run("task")

    def check(self):
        assert max(self.ledger.values(), default=0) <= 1, "at most once"
        assert self.opened == self.closed
        assert validate([*self.agent.messages, UserMessage("x")]) == []


class Parallel(Scenario):
    script = [[call("act", name=f"{i}") for i in range(3)], call("alone", name="x")]


class Dependencies(Scenario):
    script = [[call("connected", name="a"), call("connected", name="b"), call("act", name="c")]]


class DoneBesideSiblings(Scenario):
    script = [[call("act", name="a"), call("finish", name="b"), call("connected", name="c")]]


class CompactionInProgress(Scenario):
    settings = {"compaction": CompactionConfig(context_window=400, threshold_ratio=0.6)}
    script = [call("act", name=f"{i}") for i in range(4)]


class SubRuns(Scenario):
    script = [[call("ask", name="a"), call("act", name="b")], call("ask", name="c")]


class Streaming(Scenario):
    script = [[call("act", name="a"), call("connected", name="b")], "some words of text"]

    async def run(self):
        async with aclosing(self.agent.query_stream("task")) as events:
            return [event async for event in events][-1]


class Timeout(Scenario):
    script = Parallel.script

    async def run(self):
        async with asyncio.timeout(60), asyncio.TaskGroup() as group:
            return await group.create_task(self.agent.run("task"))


SCENARIOS = [
    Parallel,
    Dependencies,
    DoneBesideSiblings,
    CompactionInProgress,
    SubRuns,
    Streaming,
    Timeout,
]


async def turns_of(scenario):
    """Over how many turns of the event loop the scenario goes."""
    task, turns = asyncio.ensure_future(scenario.run()), 0
    while not task.done():
        await asyncio.sleep(0)
        turns += 1
    await task
    return turns


@pytest.mark.parametrize("go_on", ["a new prompt", None])
@pytest.mark.parametrize("kind", SCENARIOS)
async def test_cancelled_at_every_turn_of_the_event_loop(kind, go_on):
    whole = kind()
    moments = await turns_of(whole)
    whole.check()
    assert moments > 10
    for moment in range(moments):
        scenario = kind()
        task = asyncio.ensure_future(scenario.run())
        for _ in range(moment):
            await asyncio.sleep(0)
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
    moments = await turns_of(Parallel())
    for moment in range(1, moments):
        scenario = Parallel()
        task = asyncio.ensure_future(scenario.run())
        for _ in range(moment):
            await asyncio.sleep(0)
        scenario.agent.interrupt("stop")
        result = await task
        assert result.stop_reason in ("interrupted", "completed")
        assert task.cancelling() == 0
        scenario.check()
        assert (await scenario.agent.run("go on")).stop_reason == "completed"
        scenario.check()


async def test_leaving_the_stream_at_every_event():
    events = [event async for event in Streaming().agent.query_stream("task")]
    for place in range(len(events)):
        scenario = Streaming()
        stream = scenario.agent.query_stream("task")
        for _ in range(place + 1):
            await anext(stream)
        del stream
        assert (await scenario.agent.run("go on")).text
        scenario.check()
