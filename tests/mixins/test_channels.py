"""Channels: numbered entries for readers who come, go, and are slow."""

import asyncio

import pytest

from agentloop import Agent, AssistantMessage, BadRequest, ScriptedModel, Session, Usage
from agentloop.common.store import read_log
from agentloop.messages import Decision
from agentloop.mixins.channels import Channels, Entries
from agentloop.models.scripted import call

from .. import test_loop
from ..test_loop import add


class Served(Channels, Session, Agent): ...


def served(*script, **settings):
    return Served(llm=ScriptedModel(*script), tools=[add], **settings)


async def read(subscription):
    """All entries, once the subscription is closed."""
    subscription.close()
    return [entry async for entry in subscription]


def kinds(entries):
    return [entry.kind for entry in entries]


class TestChannels(test_loop.TestLoop):
    agent_class = Channels

    async def test_each_channel_has_its_own_kinds(self):
        agent = served(call("add", a=1, b=2), "3")
        progress, control, monitor = map(agent.subscribe, ("progress", "control", "monitor"))
        await agent.run("x")
        agent.record(Decision("call_1", True))
        assert [kind for kind in kinds(await read(progress)) if "Delta" not in kind] == [
            "RunStart",
            "UserMessage",
            "StepStartEvent",
            "ToolCallEvent",
            "ToolResultEvent",
            "StepCompleteEvent",
            "TextEvent",
            "FinalResponseEvent",
        ]
        assert kinds(await read(control)) == ["Decision"]
        assert kinds(await read(monitor)) == ["ToolStart", "RunEnd"]

    async def test_a_replay_is_what_was_seen_live_from_each_entry_on(self, tmp_path):
        thought = AssistantMessage("3", thinking="hm", usage=Usage(5, 1))
        first = served(call("add", a=1, b=2), thought, session="s", session_dir=tmp_path)
        live = first.subscribe()
        await first.run("x")
        first.close()
        heard = [each for each in await read(live) if not each.kind.endswith("DeltaEvent")]
        assert [each.number for each in heard] == [*range(len(heard))]
        assert kinds(heard)[-5:] == [
            *("UsageEvent", "ThinkingEvent", "TextEvent"),
            *("RunEnd", "FinalResponseEvent"),
        ]
        assert heard[-1].item.content == "3"
        again = served("more", session="s", session_dir=tmp_path)
        for since in range(-1, len(heard)):
            replayed = await read(again.subscribe(since=since))
            assert replayed == heard[since + 1 :]
        again.close()

    async def test_a_slow_reader_misses_no_entry_of_a_record(self):
        agent = served("word " * 2_000, "two")
        slow = agent.subscribe()
        await agent.run("x")
        await agent.run("y")
        entries = await read(slow)
        lasting = [each for each in entries if not each.kind.endswith("DeltaEvent")]
        assert [each.number for each in lasting] == [*range(len(lasting))]
        assert kinds(lasting).count("FinalResponseEvent") == 2
        assert [each.number for each in entries] == sorted(each.number for each in entries)

    async def test_a_reader_that_waits_learns_how_a_run_failed(self):
        agent = served(BadRequest("no such model"))
        ends = agent.subscribe("RunEnd", "FinalResponseEvent")
        waiting = asyncio.create_task(anext(ends))
        with pytest.raises(BadRequest):
            await agent.run("x")
        entry = await waiting
        assert (entry.item.stop_reason, entry.item.error) == ("error", "BadRequest: no such model")
        assert (await anext(ends)).item.stop_reason == "error"

    @pytest.mark.parametrize("bases", [(Channels, Session), (Session, Channels)])
    async def test_nothing_is_told_before_it_is_on_disk_in_any_order(self, tmp_path, bases):
        told = []

        class Both(*bases, Agent): ...

        def hear(entry):
            on_disk = Entries(read_log(tmp_path / "s.jsonl")).catch_up().entries
            told.append((entry, on_disk[entry.number] if entry.number < len(on_disk) else None))

        llm = ScriptedModel(call("add", a=1, b=2), "3")
        agent = Both(llm=llm, tools=[add], session="s", session_dir=tmp_path)
        for channel in ("progress", "monitor", "control"):
            agent.on(channel, hear)
        await agent.run("x")
        agent.record(Decision("call_1", True))
        await asyncio.sleep(0)
        agent.close()
        lasting = [each for each in told if "Delta" not in each[0].kind]
        assert [here for here, _ in lasting] == [there for _, there in lasting]
        assert lasting[-1][0].kind == "Decision"
        assert {"RunStart", "ToolStart", "RunEnd"} <= {*kinds(here for here, _ in lasting)}

    async def test_a_cleared_history_is_told_from_its_beginning(self):
        agent = served("one", "two")
        await agent.run("x")
        reader = agent.subscribe()
        agent.clear_history()
        assert (await anext(reader)).kind == "Reset"
        await agent.run("y")
        assert [(each.number, each.kind) for each in await read(reader)][:2] == [
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

    async def test_an_async_handler_is_awaited_with_one_entry_after_the_other(self):
        agent, heard, done = served(call("add", a=1, b=2), "3"), [], asyncio.Event()

        async def handle(entry):
            heard.append(f"begins {entry.kind}")
            await asyncio.sleep(0)
            heard.append(f"ends {entry.kind}")
            if entry.kind == "FinalResponseEvent":
                done.set()

        agent.on("progress", handle)
        await agent.run("x")
        await done.wait()
        assert heard[::2] == [each.replace("ends", "begins") for each in heard[1::2]]
        assert "ends ToolResultEvent" in heard

    def test_a_name_that_does_not_exist_is_refused(self):
        agent = served()
        for use in (agent.subscribe, lambda name: agent.on(name, print)):
            with pytest.raises(ValueError, match="there is no 'progres': choose from .*, progress"):
                use("progres")
            with pytest.raises(ValueError, match="there is no 'ToolResult': .*ToolResultEvent, "):
                use("ToolResult")

    async def test_a_fork_has_no_subscription_of_its_parent(self):
        agent = served("one", "two")
        subscription = agent.subscribe()
        await agent.fork().run("x")
        assert await read(subscription) == []
