"""Continuation: the loop's contract and its own."""

import pytest

from agentloop import (
    AssistantMessage,
    ToolMessage,
    ToolStart,
    Usage,
)
from agentloop.events import HiddenUserMessageEvent
from agentloop.mixins.continuation import EMPTY_REPLY, Continuation
from agentloop.models.scripted import call
from agentloop.transcript import (
    CUT_OFF,
    SideRequest,
)
from tests.core.test_loop import TestLoop, add, fail, shown


class TestContinuation(TestLoop):
    agent_class = Continuation

    async def test_the_run_ends_after_three_nudges_about_empty_replies(self):
        agent, llm = self.make("", "", call("add", a=1, b=1), "", "", " ", "", tools=[add])
        assert (await agent.run("x")).stop_reason == "no_progress"
        assert len(llm.requests) == 7, "a call resets the count"
        assert shown(llm.requests[-1])[-3:] == 3 * [EMPTY_REPLY]

    async def test_log_entries_between_nudges_do_not_reset_the_count(self):
        def empty(messages, tools):
            agent.record(SideRequest(usage=Usage(1)))
            return ""

        agent, llm = self.make(*[empty] * 9)
        assert (await agent.run("x")).stop_reason == "no_progress"
        assert len(llm.requests) == 4

    @pytest.mark.parametrize("prompt", [None, "again"])
    async def test_five_consecutive_truncated_replies_end_the_run(self, prompt):
        cut = AssistantMessage("So: ", tool_calls=(call("fail"),), stop_reason="length")
        agent, llm = self.make(*9 * [cut], "short", tools=[fail])
        result = await agent.run("x")
        assert (result.stop_reason, result.text, result.pending) == ("limit:length", "So: ", ())
        assert len(llm.requests) == 5
        assert not any(isinstance(record, ToolStart) for record in agent.log)
        results = [m for m in agent.messages if isinstance(m, ToolMessage)]
        assert [(m.text, m.is_error) for m in results] == 5 * [(CUT_OFF, True)]
        assert (await agent.run(prompt)).text == "short", "the next run starts a new count"

    @pytest.mark.parametrize("text", ["wait", ""])
    async def test_the_request_after_a_pause_ends_with_the_paused_reply(self, text):
        paused = AssistantMessage(text, stop_reason="pause", raw=[{"type": "server_tool_use"}])
        agent, llm = self.make(paused, RuntimeError("down"), "done")
        with pytest.raises(RuntimeError):
            await agent.run("x")
        assert (await agent.run()).text == "done"
        for request in llm.requests[1:]:
            assert request.messages[-1].raw == paused.raw

    async def test_endless_pauses_end_the_run(self):
        agent, llm = self.make(lambda m, t: AssistantMessage("wait", stop_reason="pause", raw=[1]))
        assert (await agent.run("x")).stop_reason == "no_progress"
        assert len(llm.requests) < 20

    async def test_hidden_messages_emit_an_event_and_prompts_do_not(self):
        received = []
        agent, _ = self.make("", "ok", listeners=[received.append])
        await agent.run("x")
        texts = [event.content for event in received if isinstance(event, HiddenUserMessageEvent)]
        assert texts == [EMPTY_REPLY]
