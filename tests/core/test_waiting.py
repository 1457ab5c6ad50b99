"""Waiting: tasks that end late, and tools that block the event loop."""

import asyncio
import logging
import threading
import time
from contextlib import closing

import pytest

from agentloop import Agent, ScriptedModel, call, tool, waiting
from agentloop.waiting import WorkThread, cancel_and_wait, gather_bounded


async def test_a_task_that_outlives_the_wait_is_cancelled_a_second_time(caplog):
    cancellations = []

    async def stubborn():
        while len(cancellations) < 2:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                cancellations.append("cancelled")

    task = asyncio.create_task(stubborn())
    await asyncio.sleep(0)
    assert not await cancel_and_wait([task], 0.01)
    await asyncio.wait([task], timeout=5)  # not wait_for, which would cancel the task itself
    assert task.done()
    assert len(cancellations) == 2
    assert "did not stop" in caplog.text


async def test_a_task_that_ends_in_time_is_cancelled_once(caplog):
    cancellations = []

    async def cleans_up():
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancellations.append("cancelled")
            await asyncio.sleep(0.01)

    task = asyncio.create_task(cleans_up())
    await asyncio.sleep(0)
    assert not await cancel_and_wait([task], 5)
    assert task.done()
    assert cancellations == ["cancelled"]
    assert "did not stop" not in caplog.text


@pytest.mark.parametrize(
    ("blocks", "limit", "warns"),
    [(True, 0.01, True), (True, 5.0, False), (False, 0.01, False)],
    ids=["blocks for long", "blocks briefly", "waits"],
)
async def test_only_a_tool_that_blocks_the_event_loop_for_long_is_reported(
    blocks, limit, warns, monkeypatch, caplog
):
    monkeypatch.setattr(waiting, "MAX_BLOCKED", limit)
    caplog.set_level(logging.WARNING, "agentloop")

    @tool("Work")
    async def work() -> str:
        if blocks:
            time.sleep(0.05)
        else:
            await asyncio.sleep(0.05)
        return "worked"

    agent = Agent(llm=ScriptedModel(call("work"), "Done."), tools=[work])
    await agent.query("Go.")
    assert agent.messages[2].text == "worked"
    assert ("tool work blocks" in caplog.text) == warns


async def test_work_that_cancels_itself_is_left_out_of_the_results():
    async def work(number):
        if number == 1:
            asyncio.current_task().cancel()
            await asyncio.sleep(0)
        return number

    assert await gather_bounded(work, range(3), at_once=3, grace=1) == [0, 2]


async def test_a_thread_left_by_a_cancellation_runs_the_rest_and_nobody_waits():
    release, ran = threading.Event(), threading.Event()
    with closing(WorkThread(inline=False)) as thread:
        task = asyncio.ensure_future(thread.run(release.wait, 2))
        await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        with pytest.raises(asyncio.CancelledError):
            await thread.run(ran.set)
        release.set()
        assert await asyncio.to_thread(ran.wait, 5)
