"""ScriptedModel reports invalid scripts and shows the correct form."""

import pytest

from agentloop import Agent, ScriptedModel, UserMessage, call, tool
from agentloop.errors import BadRequest


async def test_a_list_of_texts_as_one_reply_is_an_error_that_shows_the_correct_form():
    with pytest.raises(TypeError, match=r"ScriptedModel\('Hello\.', "):
        await Agent(llm=ScriptedModel(["a", "b"])).run("x")


async def test_a_list_of_calls_is_one_reply():
    note = tool("Note", name="note")(lambda: "noted")
    agent = Agent(llm=ScriptedModel([call("note"), call("note")], "ok"), tools=[note])
    assert await agent.query("x") == "ok"
    assert [message.text for message in agent.messages] == ["x", "", "noted", "noted", "ok"]


async def test_the_error_of_a_script_that_has_ended_names_the_request_each_time():
    llm = ScriptedModel("One.", "Two.")
    for _ in range(2):
        await llm.ainvoke([UserMessage("Go.")])
    for number in (3, 4):
        with pytest.raises(IndexError, match=f"request {number}"):
            await llm.ainvoke([UserMessage("Go.")])


async def test_an_invalid_request_is_refused_as_a_provider_does():
    with pytest.raises(BadRequest, match="result") as caught:
        await ScriptedModel("ok").ainvoke([call("note").answer("noted")])
    assert caught.value.status == 400
