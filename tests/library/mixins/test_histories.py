"""Histories: the loop's contract and its own."""

from threading import Thread

import pytest

from agentloop import (
    AgentBusy,
    AssistantMessage,
    MessageQueue,
    ScriptedModel,
    ToolCall,
    ToolMessage,
    UserMessage,
)
from agentloop.errors import BadRequest
from agentloop.mixins.histories import Histories
from agentloop.transcript import (
    OUTCOME_UNKNOWN,
)
from tests.core.test_loop import TestLoop, add, ids_in, shown


class TestHistories(TestLoop):
    agent_class = Histories

    async def test_generated_call_ids_are_unique_across_logs(self):
        asks = AssistantMessage(tool_calls=(ToolCall("", "add", '{"a":1,"b":1}'),) * 3)
        template, _ = self.make(*(asks, "ok") * 6, tools=[add])
        made = []
        for agent in (template, template.fork(), template.fork()):
            agent.clear_history()
            await agent.query("x")
            await agent.query("y")
            made += ids_in(agent)
        assert len(set(made)) == len(made) == 3 * 6

    async def test_a_prompt_that_the_provider_refuses_can_be_taken_back(self):
        def answer(messages, tools):
            return BadRequest("no image") if "image" in messages[-1].text else "hello"

        agent, llm = self.make(answer)
        await agent.run("a")
        with pytest.raises(BadRequest):
            await agent.run("an image")
        agent.load_history(agent.messages[:-1])
        await agent.run("b")
        assert [message.text for message in llm.requests[-1].messages] == ["a", "hello", "b"]

    async def test_a_call_without_result_in_a_loaded_history_has_an_unknown_outcome(self):
        asked = AssistantMessage("", (ToolCall("c1", "add", "{}"), ToolCall("c2", "add", "{}")))
        agent, llm = self.make("ok")
        agent.load_history([UserMessage("a"), asked, ToolMessage("c2", "add", "3")])
        await agent.query("b")
        assert shown(llm.requests[0])[2:4] == [OUTCOME_UNKNOWN, "3"]

    async def test_a_message_that_is_sent_meanwhile_comes_after_a_loaded_history(self):
        class Queued(MessageQueue, self.agent_class):
            def record(self, record):
                super().record(record)
                if record == UserMessage("a"):
                    sender.start()
                    sender.join(0.1)

        agent = Queued(llm=ScriptedModel())
        sender = Thread(target=agent.send, args=["sent"])
        agent.load_history([UserMessage("a"), AssistantMessage("b")])
        sender.join()
        assert [message.text for message in agent.messages] == ["a", "b", "sent"]

    async def test_a_run_that_starts_meanwhile_keeps_its_history(self):
        refused = []

        def load():
            try:
                agent.clear_history()
            except AgentBusy as error:
                refused.append(error)

        def reply(messages, tools):
            agent.log.lock.release()
            thread.join()
            return "ok"

        agent, _ = self.make(reply)
        thread = Thread(target=load)
        agent.log.lock.acquire()  # so `load` has begun, and the run comes first
        thread.start()
        thread.join(0.05)
        await agent.query("x")
        assert refused
        assert [message.text for message in agent.messages] == ["x", "ok"]

    @pytest.mark.parametrize("junk", ["hi", 7])
    async def test_load_history_rejects_values_that_are_not_messages(self, junk):
        with pytest.raises(TypeError, match="UserMessage"):
            self.make("ok")[0].load_history([junk])

    async def test_changes_of_a_callers_list_do_not_affect_the_agent(self):
        history = [UserMessage("a"), AssistantMessage("b")]
        one, two = self.make("1")[0], self.make("2")[0]
        for agent in (one, two):
            agent.load_history(history)
        history.append(UserMessage("evil"))
        assert (await one.query("c"), await two.query("c")) == ("1", "2")
        assert [m.text for m in one.messages] == ["a", "b", "c", "1"]
        assert [m.text for m in two.messages] == ["a", "b", "c", "2"]
