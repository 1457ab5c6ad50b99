"""Channels: numbered entries for readers who come, go, and are slow."""

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
from agentloop.common.store import read_log
from agentloop.events import TextEvent
from agentloop.messages import Decision
from agentloop.models.scripted import call

from . import test_loop
from .test_loop import add
from .test_recipes import load

recipe = load("channels")
Channels, Entries = recipe.Channels, recipe.Entries


class Served(Channels, Session, Agent): ...


def served(*script, **settings):
    return Served(llm=ScriptedModel(*script), tools=[add], **settings)


async def read(subscription):
    """All entries, once the subscription is closed."""
    subscription.close()
    return [entry async for entry in subscription]


async def read_on(subscription):
    """All entries, until somebody closes the subscription."""
    return [entry async for entry in subscription]


def kinds(entries):
    return [entry.kind for entry in entries]


class TestChannels(test_loop.TestLoop):
    agent_class = Channels

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

    async def test_a_replay_is_what_was_seen_live_from_each_entry_on(self, tmp_path):
        thought = AssistantMessage("3", thinking="hm", usage=Usage(5, 1))
        first = served(call("add", a=1, b=2), thought, session="s", session_dir=tmp_path)
        live = first.follow()
        await first.run("x")
        first.close()
        heard = [entry for entry in await read(live) if not entry.kind.endswith("DeltaEvent")]
        assert [entry.number for entry in heard] == [*range(len(heard))]
        assert kinds(heard)[-5:] == [
            *("UsageEvent", "ThinkingEvent", "TextEvent"),
            *("RunEnd", "FinalResponseEvent"),
        ]
        assert heard[-1].item.content == "3"
        again = served("more", session="s", session_dir=tmp_path)
        for since in range(-1, len(heard)):
            replayed = await read(again.follow(since=since))
            assert replayed == heard[since + 1 :]
        again.close()

    async def test_a_slow_reader_misses_no_entry_of_a_record(self):
        agent = served("word " * 2_000, "two")
        slow = agent.follow()
        await agent.run("x")
        await agent.run("y")
        entries = await read(slow)
        lasting = [entry for entry in entries if not entry.kind.endswith("DeltaEvent")]
        assert [entry.number for entry in lasting] == [*range(len(lasting))]
        assert kinds(lasting).count("FinalResponseEvent") == 2
        assert [entry.number for entry in entries] == sorted(entry.number for entry in entries)

    async def test_a_reader_that_waits_learns_how_a_run_failed(self):
        agent = served(BadRequest("no such model"))
        ends = agent.follow("RunEnd", "FinalResponseEvent")
        waiting = asyncio.create_task(anext(ends))
        with pytest.raises(BadRequest):
            await agent.run("x")
        entry = await waiting
        assert (entry.item.stop_reason, entry.item.error) == ("error", "BadRequest: no such model")
        assert (await anext(ends)).item.stop_reason == "error"

    @pytest.mark.parametrize("bases", [(Channels, Session), (Session, Channels)])
    async def test_nothing_is_told_before_it_is_on_disk_in_any_order(self, tmp_path, bases):
        pairs = []

        class Both(*bases, Agent): ...

        def hear(entry):
            on_disk = Entries(read_log(tmp_path / "s.jsonl")).catch_up().entries
            pairs.append((entry, on_disk[entry.number] if entry.number < len(on_disk) else None))

        llm = ScriptedModel(call("add", a=1, b=2), "3")
        agent = Both(llm=llm, tools=[add], session="s", session_dir=tmp_path)
        for channel in ("progress", "monitor", "control"):
            agent.on(channel, hear)
        await agent.run("x")
        agent.record(Decision("call_1", True))
        await asyncio.sleep(0)
        agent.close()
        lasting = [pair for pair in pairs if "Delta" not in pair[0].kind]
        assert [here for here, _ in lasting] == [there for _, there in lasting]
        assert lasting[-1][0].kind == "Decision"
        assert {"RunStart", "ToolStart", "RunEnd"} <= {*kinds(here for here, _ in lasting)}

    async def test_a_cleared_history_is_told_from_its_beginning(self):
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

    async def test_a_handler_hears_one_kind_until_it_is_taken_off(self, caplog):
        agent, heard = served(call("add", a=1, b=2), "3", "again"), []
        stop = agent.on("ToolResultEvent", lambda entry: heard.append(entry.item.result))
        agent.on("TextEvent", lambda entry: 1 / 0)
        await agent.run("x")
        stop()
        await agent.run("y")
        assert heard == ["3"]
        assert "ZeroDivisionError" in caplog.text

    def test_a_handler_hears_all_of_a_run_in_a_script(self):
        agent, heard = served("one", "two"), []
        agent.on("FinalResponseEvent", lambda entry: heard.append(entry.item.content))
        agent.run_sync("x")
        agent.run_sync("y")
        assert heard == ["one", "two"]

    async def test_a_handler_that_takes_itself_off_hears_no_more(self):
        agent, heard = served(), []

        def once(entry):
            heard.append(entry.item.call_id)
            stop()

        stop = agent.on("control", once)
        agent.record(Decision("call_1", True))
        agent.record(Decision("call_2", True))
        await asyncio.sleep(0)
        assert heard == ["call_1"]

    async def test_a_handler_that_a_thread_takes_off_meanwhile_leaves_no_error(self, caplog):
        class Slow(Served):
            def fold(self, kind, *settings):
                value = super().fold(kind, *settings)
                if closes:  # as a thread might, while a handler's next entry is looked up
                    closes.pop()()
                return value

        closes, heard = [], []
        agent = Slow(llm=ScriptedModel("hi"))
        stop = agent.on("control", heard.append)
        closes.append(stop)
        agent.record(Decision("call_1", True))
        agent.emit(TextEvent("a"))
        await asyncio.sleep(0)
        assert "a listener failed" not in caplog.text

    async def test_a_number_of_another_history_gets_all_of_this_one(self):
        agent = served("hi")
        page = agent.follow("progress", since=57)
        await agent.run("x")
        lasting = [entry for entry in await read(page) if "Delta" not in entry.kind]
        assert kinds(lasting) == ["UserMessage", "TextEvent", "FinalResponseEvent"]
        late = await read(agent.follow("progress", since=57))
        assert late == lasting

    async def test_what_a_thread_says_between_runs_wakes_the_reader_and_the_handler(self):
        agent, heard = served("hi"), []
        agent.on("HiddenUserMessageEvent", lambda entry: heard.append(entry.item.content))
        await agent.run("x")
        reader = agent.follow("HiddenUserMessageEvent")
        waiting = asyncio.create_task(anext(reader))
        await asyncio.sleep(0)  # now it waits
        thread = threading.Thread(target=agent.add_note, args=("a note",))
        thread.start()
        entry = await asyncio.wait_for(waiting, 10)
        thread.join()
        await asyncio.sleep(0)
        assert [entry.item.content] == heard == ["a note"]

    async def test_what_a_tool_says_in_a_thread_is_heard_once(self):
        @tool
        def say(agent: Annotated[Agent, Depends(current_agent)]) -> str:
            agent.add_note("one")
            agent.add_note("two")
            return "said"

        agent, heard = Served(llm=ScriptedModel(call("say"), "ok"), tools=[say]), []
        agent.on("HiddenUserMessageEvent", lambda entry: heard.append(entry.item.content))
        await agent.run("x")
        await asyncio.sleep(0)
        assert heard == ["one", "two"]

    async def test_what_the_user_must_not_see_is_for_monitors_and_is_told_once(self):
        agent = served("hi", system_prompt="the secret recipe")
        progress, monitor = map(agent.follow, ("progress", "monitor"))
        agent.add_note("a hidden note")
        await agent.run("x")
        seen = await read(progress)
        assert "hidden note" not in str(seen)
        assert "RunStart" not in kinds(seen)
        assert str(await read(monitor)).count("a hidden note") == 1

    def test_a_name_that_does_not_exist_is_refused(self):
        agent = served()
        for use in (agent.follow, lambda name: agent.on(name, print)):
            with pytest.raises(ValueError, match="progres.: use .*, progress"):
                use("progres")
            with pytest.raises(ValueError, match="ToolResult.: use .*ToolResultEvent, "):
                use("ToolResult")

    async def test_a_fork_has_no_subscription_of_its_parent(self):
        agent = served("one", "two")
        subscription = agent.follow()
        await agent.fork().run("x")
        assert await read(subscription) == []
