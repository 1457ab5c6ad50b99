"""Event loops closed during a run or without cleanup, and locks while listeners run."""

import asyncio
import gc
import os
import sys
import threading

import pytest

from agentloop import Agent, AgentBusy, ChatOpenAI, MessageQueue, ScriptedModel, ToolMessage, tool
from agentloop.models.scripted import call
from tests.doubles.openai_double import OpenAIDouble


class Steered(MessageQueue, Agent): ...


@tool
async def wait() -> str:
    """Wait forever."""
    await asyncio.Event().wait()
    return ""


class Slow:
    model = "slow"

    async def ainvoke(self, *_, **__):
        await asyncio.Event().wait()


def dropped(agent):
    """Start a run, and close its event loop during the run."""
    loop = asyncio.new_event_loop()
    task = loop.create_task(agent.run("go"))
    loop.run_until_complete(asyncio.sleep(0.05))
    loop.close()
    return task


@pytest.fixture
def unraisable(monkeypatch):
    errors = []
    monkeypatch.setattr(sys, "unraisablehook", lambda info: errors.append(info.exc_value))
    return errors


@pytest.mark.parametrize("llm", [ScriptedModel(call("wait"), "x"), Slow()], ids=["tool", "model"])
def test_a_run_ends_with_its_event_loop_and_another_run_may_follow(llm, unraisable):
    agent = Agent(llm=llm, tools=[wait])
    task = dropped(agent)
    agent.interrupt()
    agent.llm = ScriptedModel("ok")
    assert not agent.running
    assert agent.run_sync("again").text == "ok"
    before = [*agent.log]
    del task
    gc.collect()
    assert agent.log == before, "the dropped run records nothing more"
    assert unraisable == []


def test_a_call_of_a_dropped_run_has_no_result(unraisable):
    agent = Agent(llm=ScriptedModel(call("wait"), "x"), tools=[wait])
    task = dropped(agent)
    del task
    gc.collect()
    assert not [record for record in agent.log if isinstance(record, ToolMessage)]
    [state] = agent.conversation.open_calls
    assert state.status == "running"
    assert unraisable == []


def test_a_call_that_is_closed_after_its_event_loop_raises_nothing():
    loop = asyncio.new_event_loop()
    work = wait.execute({}, {})
    task = loop.create_task(work)
    loop.run_until_complete(asyncio.sleep(0.05))
    loop.close()
    work.close()
    assert not task.done()


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="counts descriptors")
@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_closed_event_loops_keep_no_connections():
    gc.freeze()  # so that a collection processes only new objects
    with OpenAIDouble(["ok"] * 21).in_thread() as server:
        llm = ChatOpenAI("m", base_url=server.url, api_key="key")
        sizes = []
        for _ in range(20):
            loop = asyncio.new_event_loop()
            assert loop.run_until_complete(Agent(llm=llm).query("hi")) == "ok"
            loop.close()
            gc.collect()
            sizes.append(len(os.listdir("/proc/self/fd")))
        asyncio.run(Agent(llm=llm).query("hi"))  # releases the last event loop
        gc.collect()
    assert sizes[-1] < sizes[0] + 10, "two for each loop would be 38 more"


def test_two_threads_that_start_a_run_at_the_same_time_get_one_run():
    ended = []
    both = threading.Barrier(2)

    def instructions(agent):
        if threading.current_thread() in threads:
            both.wait(5)  # both runs are about to start
        return "Be brief."

    def reply(messages, tools):
        for other in {*threads} - {threading.current_thread()}:
            other.join(0.2)  # the refused one ends meanwhile
        return "ok"

    def run():
        try:
            ended.append(agent.run_sync("x").text)
        except AgentBusy:
            ended.append("busy")

    agent = Agent(llm=ScriptedModel(reply, reply), system_prompt=instructions)
    threads = [threading.Thread(target=run) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(ended) == ["busy", "ok"]
    assert len(agent.messages) == 2


def test_a_listener_may_wait_for_another_agent_that_receives_a_message():
    other = Steered(llm=ScriptedModel())

    def listen(event):
        thread = threading.Thread(target=lambda: other.send("hello"), daemon=True)
        thread.start()
        thread.join(5)
        assert not thread.is_alive()

    agent = Steered(llm=ScriptedModel("ok"), listeners=[listen])
    agent.send("hi", hidden=True)
    assert [message.text for message in other.messages] == ["hello"]


def test_a_stream_that_outlives_its_event_loop_is_released_without_an_error():
    agent = Agent(llm=ScriptedModel(call("wait")), tools=[wait])
    stream = agent.query_stream("go")
    loop = asyncio.new_event_loop()
    loop.run_until_complete(anext(stream))
    loop.close()
    del stream
    gc.collect()  # pytest reports exceptions of __del__
