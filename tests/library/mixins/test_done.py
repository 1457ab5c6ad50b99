"""DoneTool: only a done tool ends the run."""

import json

import pytest

from agentloop import (
    Agent,
    AssistantMessage,
    DoneTool,
    Result,
    RunStart,
    ScriptedModel,
    TaskComplete,
    ToolCall,
    ToolError,
    ToolStart,
    UserMessage,
    tool,
)
from agentloop.models.scripted import call
from tests.core import test_loop
from tests.core.test_loop import add, shown


@tool("Hand in", ends_run=True)
async def hand_in(work: str) -> str:
    return work


def complete(work):
    raise TaskComplete(work)


@tool("Submit")
def submit(work: str) -> None:
    complete(work)  # raises in a helper


@tool("Try")
def attempt(work: str) -> str:
    try:
        complete(work)
    except TaskComplete:
        return "not yet"


@tool("Count", ends_run=True)
def count(work: str) -> dict[str, int]:
    if not work:
        raise ToolError("nothing to count")
    return {"letters": len(work)}


class TestDoneTool(test_loop.TestLoop):
    agent_class = DoneTool

    async def test_plain_text_is_nudged_until_done_is_called(self):
        llm = ScriptedModel("I am thinking.", call("done", message="Here."))
        result = await DoneTool(llm=llm).run("x")
        assert (result.text, result.stop_reason) == ("Here.", "done")
        assert "done tool" in shown(llm.requests[1])[-1]
        result = await DoneTool(llm=ScriptedModel(lambda m, t: "talk")).run("x")
        assert (result.text, result.stop_reason) == ("talk", "no_progress")

    async def test_a_custom_done_tool_replaces_the_built_in_one(self):
        llm = ScriptedModel("hm", call("hand_in", work="essay"))
        assert await DoneTool(llm=llm, tools=[add, hand_in]).query("x") == "essay"
        assert [t.name for t in llm.requests[0].tools] == ["add", "hand_in"]
        assert "hand_in" in shown(llm.requests[1])[-1]

    @pytest.mark.parametrize("settings", [{"require_done_tool": True}, {"output_type": str}])
    async def test_a_done_call_that_a_kill_interrupted_still_ends_the_run(self, settings):
        agent = Agent(llm=ScriptedModel(), **settings)
        named = next(iter(agent.toolset()[0].parameters["properties"]))
        done = ToolCall("1", "done", json.dumps({named: "Here."}))
        reply = AssistantMessage(tool_calls=(done,))
        for record in [RunStart(), UserMessage("x"), reply, ToolStart("1")]:
            agent.record(record)
        result = await agent.run()
        assert (result.text, result.stop_reason) == ("Here.", "done")

    async def test_other_tools_may_also_end_the_run_with_task_complete(self):
        llm = ScriptedModel(call("attempt", work="a"), call("submit", work="essay"))
        result = await DoneTool(llm=llm, tools=[submit, attempt]).run("x")
        assert (result.text, result.stop_reason) == ("essay", "done")
        assert [t.name for t in llm.requests[0].tools] == ["submit", "attempt", "done"]

    async def test_a_tool_with_ends_run_ends_the_run_with_its_result_unless_the_tool_fails(self):
        llm = ScriptedModel(call("count", work=""), call("count", work="essay"))
        result = await DoneTool(llm=llm, tools=[count]).run("x")
        assert (result.value, result.text) == ({"letters": 5}, '{"letters":5}')
        assert (result.stop_reason, len(llm.requests)) == ("done", 2)

    async def test_without_require_done_tool_plain_text_is_an_answer(self):
        llm = ScriptedModel("hello")
        assert await DoneTool(llm=llm, require_done_tool=False).query("x") == "hello"
        assert llm.requests[0].tools == ()

    async def test_the_summary_at_max_iterations_requires_no_done_tool(self):
        llm = ScriptedModel(
            lambda m, t: "so far" if "limit" in m[-1].text else call("add", a=1, b=1)
        )
        agent = Agent(llm=llm, tools=[add], max_iterations=2, require_done_tool=True)
        result = await agent.run("x")
        assert result == Result("so far", stop_reason="max_iterations")
