"""ForcedTool: the loop's contract and its own."""

from agentloop import ScriptedModel, UserMessage
from agentloop.mixins.forced_tool import ForcedTool
from agentloop.models.scripted import call
from tests.core.test_loop import TestLoop, add


class TestForcedTool(TestLoop):
    agent_class = ForcedTool

    async def test_only_the_first_request_after_a_prompt_forces_the_tool(self):
        script = [call("add", a=1, b=1), "2", call("add", a=2, b=2), "4"]
        agent, llm = self.make(*script, tools=[add], tool_choice="add")
        await agent.run("1 + 1?")
        await agent.run("2 + 2?")
        assert [each.tool_choice for each in llm.requests] == ["add", "auto", "add", "auto"]

    async def test_a_note_after_the_prompt_changes_nothing(self):
        class Noting(self.agent_class):
            async def context(self):
                return [*await super().context(), UserMessage("It is noon.", "reminder")]

        llm = ScriptedModel(call("add", a=1, b=1), "2")
        await Noting(llm=llm, tools=[add], tool_choice="required").run("1 + 1?")
        assert [each.tool_choice for each in llm.requests] == ["required", "auto"]
