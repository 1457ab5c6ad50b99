"""MessageQueue: a sent message reaches the model exactly once, in this run or the next."""

import asyncio
import random
import re
import threading
import time
from contextlib import suppress

import pytest

from agentloop import (
    Agent,
    AgentBusy,
    CompactionConfig,
    HiddenUserMessageEvent,
    ScriptedModel,
    Session,
    tool,
)
from agentloop.messages import AssistantMessage, UserMessage
from agentloop.mixins.message_queue import MessageQueue, Sent, Unread, every
from agentloop.models.scripted import call
from agentloop.transcript import Reset, RunStart
from tests.core import test_loop
from tests.core.test_loop import add, shown
from tests.helpers import record_all


class Steered(MessageQueue, Agent): ...


class SavedSteered(MessageQueue, Session, Agent): ...


class TestMessageQueue(test_loop.TestLoop):
    agent_class = MessageQueue

    async def test_messages_precede_the_next_request_and_a_hidden_one_is_an_event(self):
        @tool("Send")
        async def send() -> str:
            agent.send("and be quick")
            agent.send("remember", hidden=True)
            return "sent"

        agent, llm = self.make(call("send"), "ok", tools=[send])
        events = [event async for event in agent.query_stream("x")]
        assert shown(llm.requests[1]) == ["x", "", "sent", "and be quick", "remember"]
        assert [message.hidden for message in llm.requests[1].messages[-2:]] == [False, True]
        assert HiddenUserMessageEvent("remember") in events

    async def test_a_message_sent_during_a_request_follows_its_reply(self):
        replies = iter([call("add", a=1, b=1), "ok"])

        def reply(messages, tools):
            if len(messages) == 1:
                agent.send("wait")
            return next(replies)

        agent, llm = self.make(reply, tools=[add])
        await agent.query("x")
        assert shown(llm.requests[1]) == ["x", "", "2", "wait"]

    def test_an_empty_message_is_an_error(self):
        agent, _ = self.make()
        for empty in ("", "  ", []):
            with pytest.raises(ValueError, match="empty"):
                agent.send(empty)
        assert agent.log == []

    async def test_a_message_sent_during_the_last_request_starts_the_next_run(self):
        def last(messages, tools):
            agent.send("one more thing")
            return "done"

        agent, llm = self.make(last, "that too")
        assert (await agent.run("x")).text == "done"
        assert (await agent.run()).text == "that too"
        assert shown(llm.requests[1]) == ["x", "done", "one more thing"]
        with pytest.raises(ValueError, match="nothing to continue"):
            await agent.run()

    @pytest.mark.parametrize("how", ["error", "cancel", "interrupt"])
    async def test_a_message_is_part_of_the_next_run_for_every_ending(self, how):
        async def reply(messages, tools):
            if len(llm.requests) > 1:
                return "ok"
            agent.send("do not forget")
            if how == "error":
                raise RuntimeError("down")
            agent.interrupt() if how == "interrupt" else asyncio.current_task().cancel()
            return await asyncio.Event().wait()

        agent, llm = self.make(reply)
        await asyncio.wait([run := asyncio.create_task(agent.run("x"))])
        assert run.cancelled() or run.exception() or run.result().stop_reason == "interrupted"
        assert (await agent.run()).text == "ok"
        assert "do not forget" in shown(llm.requests[1])
        assert agent.fold(Unread).messages == []

    def test_messages_from_many_threads_arrive_exactly_once(self):
        sent = [[f"{n}.{i}" for i in range(50)] for n in range(8)]
        threads = [threading.Thread(target=lambda own=own: [*map(agent.send, own)]) for own in sent]

        def reply(messages, tools):
            for thread in threads if len(llm.requests) == 1 else ():
                thread.start()
            return call("add", a=1, b=1) if any(t.is_alive() for t in threads) else "ok"

        agent, llm = self.make(reply, tools=[add], max_iterations=100_000)
        agent.run_sync("x")
        agent.send("end")
        agent.run_sync()
        texts = [m.text for m in llm.requests[-1].messages if isinstance(m, UserMessage)]
        assert sorted(texts) == sorted(["x", "end", *(text for own in sent for text in own)])
        assert all([text for text in texts if text in own] == own for own in sent)

    def test_a_sent_message_is_only_lost_if_the_history_is_cleared_after_it(self):
        order = []  # what was sent, requested and cleared, in the order of the log's lock
        choose = random.Random(1).choice

        class Recorded(Steered):
            def record(self, record):
                with self.log.lock:
                    super().record(record)
                    order.append(record)

        def reply(messages, tools):
            order.append([message.text for message in messages])
            return choose([call("add", a=1, b=1), "ok"])

        def send(sender):
            for n in range(200):
                agent.send(f"{sender}.{n}")

        def clear():
            while any(sender.is_alive() for sender in senders):
                with suppress(AgentBusy):
                    agent.clear_history()
                time.sleep(0.002)

        agent = Recorded(llm=ScriptedModel(reply), tools=[add])
        senders = [threading.Thread(target=send, args=[n]) for n in range(6)]
        clearing = threading.Thread(target=clear)
        for thread in (*senders, clearing):
            thread.start()
        while clearing.is_alive():
            agent.run_sync("x")
        agent.run_sync("end")
        waiting = set()
        arrived = set()
        for entry in order:
            if isinstance(entry, Sent):
                waiting.add(entry.message.text)
            elif isinstance(entry, list):
                arrived |= waiting & {*entry}
                waiting -= arrived
            elif isinstance(entry, Reset):
                waiting.clear()
        assert arrived
        assert not waiting

    async def test_a_reminder_is_sent_every_n_turns(self):
        script, both = [call("add", a=1, b=1)] * 5, [every(2, "remember"), every(3, "three")]
        agent, llm = self.make(*script, "ok", tools=[add], reminders=both)
        await agent.query("x")
        counts = [[shown(r).count(text) for r in llm.requests] for text in ("remember", "three")]
        assert counts == [[0, 0, 1, 1, 2, 2], [0, 0, 0, 1, 1, 1]]
        assert shown(llm.requests[2])[-1] == "remember"
        assert llm.requests[2].messages[-1].hidden

    async def test_only_sent_messages_have_a_sent_id_and_they_postpone_no_reminder(self):
        script = [call("add", a=1, b=1)] * 2
        agent, llm = self.make(*script, "ok", tools=[add], reminders=[every(2, "remember")])
        agent.send("remember")
        await agent.run()
        messages = [m for m in llm.requests[-1].messages if m.text == "remember"]
        assert [(m.origin, bool(m.sent_id)) for m in messages] == [
            ("sent", True),
            ("reminder", False),
        ]

    async def test_a_reminder_may_be_a_function_of_the_agent(self):
        def counted(agent):
            return f"{len(agent.messages)} messages" if len(agent.messages) > 3 else ""

        def other(agent):
            return "other"

        both = [every(1, counted), every(4, other)]
        agent, llm = self.make(*[call("add", a=1, b=1)] * 4, "ok", tools=[add], reminders=both)
        await agent.query("x")
        reminders = [
            [text for text in shown(r) if re.match("[0-9]+ |other", text)] for r in llm.requests
        ]
        assert reminders[:3] == [[], [], ["5 messages"]], "an empty text is omitted"
        assert reminders[-1] == ["5 messages", "8 messages", "11 messages", "other"]
        assert await agent.context() == await agent.context()

    def test_two_reminders_with_the_same_name_are_rejected(self):
        both = [every(1, lambda agent: "one"), every(2, lambda agent: "two")]
        with pytest.raises(ValueError, match="<lambda>"):
            self.make("ok", reminders=both)

    async def test_the_interval_of_a_reminder_function_continues_after_a_restart(self, tmp_path):
        def now(agent):
            return f"turn {len(agent.messages)}"

        def reopened(*script):
            llm = ScriptedModel(*script)
            settings = {"session": "s", "session_dir": tmp_path, "reminders": [every(2, now)]}
            return SavedSteered(llm=llm, tools=[add], **settings), llm

        first, _ = reopened(call("add", a=1, b=1), call("add", a=1, b=1), "ok")
        with first:
            await first.query("x")
        second, llm = reopened("ok", "ok")
        with second:
            await second.query("y")
        assert [text for text in shown(llm.requests[0]) if "turn" in text] == ["turn 5"]

    async def test_a_message_sent_during_a_summary_is_not_lost(self):
        def reply(messages, tools):
            if "Write a summary" in messages[-1].text:
                agent.send("during the summary")
                return "SUMMARY"
            return "word " * 80 if len(llm.requests) < 3 else "ok"

        llm = ScriptedModel(reply)
        agent = Steered(llm=llm, compaction=CompactionConfig(context_window=100))
        for prompt in "abc":
            await agent.query(prompt)
        assert "during the summary" in shown(llm.requests[-1])

    async def test_a_message_sent_after_a_killed_run_continues_the_conversation(self):
        agent, _ = self.make("two")
        record_all(agent, [RunStart(), UserMessage("x"), AssistantMessage("one")])
        agent.send("later")
        assert (await agent.run()).text == "two"
