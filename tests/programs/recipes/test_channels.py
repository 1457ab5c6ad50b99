"""Channels: numbered entries for late, slow and reconnecting readers."""

import asyncio
import threading
from typing import Annotated

import pytest

from agentloop import (
    Agent,
    AssistantMessage,
    BadRequest,
    Depends,
    ScriptedModel,
    Session,
    Usage,
    current_agent,
    tool,
)
from agentloop.common.review import Decision
from agentloop.common.store import read_log
from agentloop.events import StepStartEvent, TextEvent, ToolCallEvent
from agentloop.models.scripted import call
from tests.core import test_loop
from tests.core.test_loop import add
from tests.recipes import load

recipe = load("channels")
Channels, Entries = recipe.Channels, recipe.Entries


class Served(Channels, Session, Agent): ...


def served(*script, **settings):
    return Served(llm=ScriptedModel(*script), tools=[add], **settings)


async def read(subscription):
    """Close a subscription and return its entries."""
    subscription.close()
    return [entry async for entry in subscription]


async def read_on(subscription):
    """Return all entries until the subscription is closed."""
    return [entry async for entry in subscription]


def kinds(entries):
    return [entry.kind for entry in entries]


class TestChannels(test_loop.TestLoop):
    agent_class = Channels
    largest_fork = 1100  # includes the list of listeners

    async def test_each_channel_has_its_own_kinds(self):
        agent = served(call("add", a=1, b=2), "3")
        progress, control, monitor = map(agent.follow, ("progress", "control", "monitor"))
        await agent.run("x")
        agent.record(Decision("call_1", True))
        assert [kind for kind in kinds(await read(progress)) if "Delta" not in kind] == [
            "UserMessage",
            "StepStartEvent",
            "ToolCallEvent",
            "ToolResultEvent",
            "StepCompleteEvent",
            "TextEvent",
            "FinalResponseEvent",
        ]
        assert kinds(await read(control)) == ["Decision"]
        assert kinds(await read(monitor)) == ["RunStart", "ToolStart", "RunEnd"]

    async def test_a_replay_from_any_entry_equals_the_live_entries(self, tmp_path):
        thought = AssistantMessage("3", thinking="hm", usage=Usage(5, 1))
        first = served(call("add", a=1, b=2), thought, session="s", session_dir=tmp_path)
        live = first.follow()
        await first.run("x")
        first.close()
        received = [entry for entry in await read(live) if not entry.kind.endswith("DeltaEvent")]
        assert [entry.number for entry in received] == [*range(len(received))]
        assert kinds(received)[-5:] == [
            *("UsageEvent", "ThinkingEvent", "TextEvent"),
            *("RunEnd", "FinalResponseEvent"),
        ]
        assert received[-1].item.content == "3"
        again = served("more", session="s", session_dir=tmp_path)
        for since in range(-1, len(received)):
            replayed = await read(again.follow(since=since))
            assert replayed == received[since + 1 :]
        again.close()

    async def test_the_steps_of_a_replay_are_those_of_the_live_run(self):
        cut_off = AssistantMessage("", [call("add", a=1, b=2)], stop_reason="length")
        agent = served(call("add", a=1, b=2), "3", call("add", a=3, b=4), "7", cut_off, "Too long.")
        live, heard = [], (StepStartEvent, ToolCallEvent)
        agent.listeners = [lambda event: isinstance(event, heard) and live.append(event)]
        for prompt in "xyz":
            await agent.run(prompt)
        replayed = await read(agent.follow("StepStartEvent", "ToolCallEvent", since=-1))
        assert [entry.item for entry in replayed] == live
        assert [event.step_number for event in live[::2]] == [1, 1]

    async def test_a_slow_reader_receives_all_entries_of_records(self):
        agent = served("word " * 2_000, "two")
        slow = agent.follow()
        await agent.run("x")
        await agent.run("y")
        entries = await read(slow)
        lasting = [entry for entry in entries if not entry.kind.endswith("DeltaEvent")]
        assert [entry.number for entry in lasting] == [*range(len(lasting))]
        assert kinds(lasting).count("FinalResponseEvent") == 2
        assert [entry.number for entry in entries] == sorted(entry.number for entry in entries)

    async def test_a_waiting_reader_receives_the_error_of_a_failed_run(self):
        agent = served(BadRequest("no such model"))
        ends = agent.follow("RunEnd", "FinalResponseEvent")
        waiting = asyncio.create_task(anext(ends))
        with pytest.raises(BadRequest):
            await agent.run("x")
        entry = await waiting
        assert (entry.item.stop_reason, entry.item.error) == ("error", "BadRequest: no such model")
        assert (await anext(ends)).item.stop_reason == "error"

    @pytest.mark.parametrize("bases", [(Channels, Session), (Session, Channels)])
    async def test_entries_are_delivered_only_after_they_are_on_disk_for_any_order_of_bases(
        self, tmp_path, bases
    ):
        pairs = []

        class Both(*bases, Agent): ...

        def collect(entry):
            on_disk = Entries(read_log(tmp_path / "s.jsonl")).catch_up().entries
            pairs.append((entry, on_disk[entry.number] if entry.number < len(on_disk) else None))

        llm = ScriptedModel(call("add", a=1, b=2), "3")
        agent = Both(llm=llm, tools=[add], session="s", session_dir=tmp_path)
        for channel in ("progress", "monitor", "control"):
            agent.on(channel, collect)
        await agent.run("x")
        agent.record(Decision("call_1", True))
        await asyncio.sleep(0)
        agent.close()
        lasting = [pair for pair in pairs if "Delta" not in pair[0].kind]
        assert [here for here, _ in lasting] == [there for _, there in lasting]
        assert lasting[-1][0].kind == "Decision"
        assert {"RunStart", "ToolStart", "RunEnd"} <= {*kinds(here for here, _ in lasting)}

    async def test_a_reader_receives_a_cleared_history_from_its_start(self):
        agent = served("one", "two")
        await agent.run("x")
        reader = agent.follow()
        agent.clear_history()
        assert (await anext(reader)).kind == "Reset"
        await agent.run("y")
        assert [(entry.number, entry.kind) for entry in await read(reader)][:2] == [
            (1, "RunStart"),
            (2, "UserMessage"),
        ]

    async def test_a_handler_receives_one_kind_of_entry_until_it_is_removed(self, caplog):
        agent, received = served(call("add", a=1, b=2), "3", "again"), []
        stop = agent.on("ToolResultEvent", lambda entry: received.append(entry.item.result))
        agent.on("TextEvent", lambda entry: 1 / 0)
        await agent.run("x")
        stop()
        await agent.run("y")
        assert received == ["3"]
        assert "ZeroDivisionError" in caplog.text

    def test_a_handler_receives_all_entries_with_run_sync(self):
        agent, received = served("one", "two"), []
        agent.on("FinalResponseEvent", lambda entry: received.append(entry.item.content))
        agent.run_sync("x")
        agent.run_sync("y")
        assert received == ["one", "two"]

    async def test_a_handler_that_removes_itself_receives_no_further_entries(self):
        agent, received = served(), []

        def once(entry):
            received.append(entry.item.call_id)
            stop()

        stop = agent.on("control", once)
        agent.record(Decision("call_1", True))
        agent.record(Decision("call_2", True))
        await asyncio.sleep(0)
        assert received == ["call_1"]

    async def test_removing_a_handler_from_another_thread_causes_no_error(self, caplog):
        class Slow(Served):
            def fold(self, kind, *settings):
                value = super().fold(kind, *settings)
                if closes:  # like a thread during the search for a handler's next entry
                    closes.pop()()
                return value

        closes, received = [], []
        agent = Slow(llm=ScriptedModel("hi"))
        stop = agent.on("control", received.append)
        closes.append(stop)
        agent.record(Decision("call_1", True))
        agent.emit(TextEvent("a"))
        await asyncio.sleep(0)
        assert "a listener failed" not in caplog.text

    async def test_a_number_beyond_the_history_yields_the_complete_history(self):
        agent = served("hi")
        page = agent.follow("progress", since=57)
        await agent.run("x")
        lasting = [entry for entry in await read(page) if "Delta" not in entry.kind]
        assert kinds(lasting) == ["UserMessage", "TextEvent", "FinalResponseEvent"]
        late = await read(agent.follow("progress", since=57))
        assert late == lasting

    async def test_a_note_from_a_thread_between_runs_is_delivered_to_readers_and_handlers(self):
        agent, received = served("hi"), []
        agent.on("HiddenUserMessageEvent", lambda entry: received.append(entry.item.content))
        await agent.run("x")
        reader = agent.follow("HiddenUserMessageEvent")
        waiting = asyncio.create_task(anext(reader))
        await asyncio.sleep(0)  # starts to wait
        thread = threading.Thread(target=agent.add_note, args=("a note",))
        thread.start()
        entry = await asyncio.wait_for(waiting, 10)
        thread.join()
        await asyncio.sleep(0)
        assert [entry.item.content] == received == ["a note"]

    async def test_notes_from_a_tool_in_a_thread_are_delivered_once(self):
        @tool("Test")
        def say(agent: Annotated[Agent, Depends(current_agent)]) -> str:
            agent.add_note("one")
            agent.add_note("two")
            return "said"

        agent, received = Served(llm=ScriptedModel(call("say"), "ok"), tools=[say]), []
        agent.on("HiddenUserMessageEvent", lambda entry: received.append(entry.item.content))
        await agent.run("x")
        await asyncio.sleep(0)
        assert received == ["one", "two"]

    async def test_hidden_messages_are_delivered_only_to_monitors_and_only_once(self):
        agent = served("hi", system_prompt="the secret recipe")
        progress, monitor = map(agent.follow, ("progress", "monitor"))
        agent.add_note("a hidden note")
        await agent.run("x")
        entries = await read(progress)
        assert "hidden note" not in str(entries)
        assert "RunStart" not in kinds(entries)
        assert str(await read(monitor)).count("a hidden note") == 1

    @pytest.mark.parametrize("kind", ["Ask", "Decision", "ToolStart", "RunStart", "TextEvent"])
    def test_each_kind_of_event_and_log_entry_can_be_followed(self, kind):
        served().follow(kind).close()

    def test_an_unknown_channel_or_kind_is_an_error(self):
        agent = served()
        for use in (agent.follow, lambda name: agent.on(name, print)):
            with pytest.raises(ValueError, match="progres.: use .*, progress"):
                use("progres")
            with pytest.raises(ValueError, match="ToolResult.: use .*ToolResultEvent, "):
                use("ToolResult")

    async def test_a_fork_does_not_inherit_subscriptions(self):
        agent = served("one", "two")
        subscription = agent.follow()
        await agent.fork().run("x")
        assert await read(subscription) == []
