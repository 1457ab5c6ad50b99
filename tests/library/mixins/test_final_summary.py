"""FinalSummary: the loop's contract and its own."""

from agentloop import (
    AssistantMessage,
    assert_prefix_stable,
    validate_messages,
)
from agentloop.mixins.final_summary import OUT_OF_TURNS, FinalSummary
from agentloop.models.scripted import call
from agentloop.transcript import Log, RunEnd
from tests.core.test_loop import TestLoop, add


class TestFinalSummary(TestLoop):
    agent_class = FinalSummary

    async def test_at_max_iterations_the_model_summarizes_and_no_call_of_this_reply_runs(self):
        def again(messages, tools):
            text = "half done" if messages[-1].text == OUT_OF_TURNS else ""
            return AssistantMessage(text, tool_calls=(call("add", a=1, b=1),), raw={"x": 1})

        agent, llm = self.make(again, tools=[add], max_iterations=3)
        result = await agent.run("x")
        assert (result.text, result.stop_reason) == ("half done", "max_iterations")
        assert len(llm.requests) == 4
        assert_prefix_stable(llm.requests)
        last = agent.messages[-1]
        assert (last.text, last.tool_calls, last.raw) == ("half done", (), None)
        assert validate_messages(agent.messages[:-1]) == []

    async def test_a_summary_is_no_plain_answer_if_the_run_was_killed_before_its_end(self):
        agent, llm = self.make(call("add", a=1, b=1), "half done", tools=[add], max_iterations=1)
        before = await agent.run("x")
        killed = agent.fork()
        killed.log = Log(record for record in agent.log if not isinstance(record, RunEnd))
        after = await killed.run()
        assert (after.text, after.stop_reason) == (before.text, before.stop_reason)
        assert len(llm.requests) == 2, "neither is paid for twice"
