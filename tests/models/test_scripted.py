"""ScriptedModel says what to write where a script is none."""

import pytest

from agentloop import Agent, ScriptedModel, call, tool


async def test_a_list_of_texts_as_one_reply_says_how_to_write_several_replies():
    with pytest.raises(TypeError, match=r"several replies.*ScriptedModel\('Hello\.', 'Bye\.'\)"):
        await Agent(llm=ScriptedModel(["a", "b"])).run("x")


async def test_a_list_of_calls_is_one_reply():
    note = tool("Note", name="note")(lambda: "noted")
    agent = Agent(llm=ScriptedModel([call("note"), call("note")], "ok"), tools=[note])
    assert await agent.query("x") == "ok"
    assert [message.text for message in agent.messages] == ["x", "", "noted", "noted", "ok"]
