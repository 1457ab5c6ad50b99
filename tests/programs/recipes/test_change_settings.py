"""The recipe for settings of one run, and for sessions that bring their settings."""

import pytest

from agentloop import Agent, Overloaded, ScriptedModel, call
from tests.recipes import load

recipe = load("change_settings")


def test_a_session_continues_with_its_template_and_its_changes(tmp_path):
    recipe.resume("s", tmp_path, template="support", max_iterations=5).close()
    with recipe.resume("s", tmp_path, model="strong") as agent:
        assert agent.system_prompt == "You answer customers."
        assert (agent.max_iterations, agent.llm) == (5, recipe.MODELS["strong"])
    with recipe.resume("s", tmp_path) as agent:
        assert (agent.max_iterations, agent.llm) == (5, recipe.MODELS["strong"])


def test_a_new_history_keeps_the_template(tmp_path):
    with recipe.resume("s", tmp_path, template="editor") as agent:
        agent.run_sync("hi")
        agent.clear_history()
    with recipe.resume("s", tmp_path) as agent:
        assert agent.system_prompt == "You correct texts."
        assert not agent.messages


def test_another_template_replaces_the_first_one_and_its_changes(tmp_path):
    recipe.resume("s", tmp_path, template="support", max_iterations=5).close()
    recipe.resume("s", tmp_path, template="editor").close()
    with recipe.resume("s", tmp_path) as agent:
        assert (agent.system_prompt, agent.max_iterations) == ("You correct texts.", 200)


def test_a_session_without_a_template_is_an_error_that_lists_the_templates(tmp_path):
    with pytest.raises(ValueError, match="support.*editor"):
        recipe.resume("s", tmp_path)
    assert [*tmp_path.iterdir()] == []


async def test_settings_for_one_run_are_validated_and_restored_after_any_end_of_the_run():
    llm = ScriptedModel(call("order", number=7), Overloaded("529"), "ok", "ok")
    agent = Agent(llm=llm, tools=[recipe.order, recipe.cancel])
    usual = [*agent.tools]
    with pytest.raises(Overloaded), recipe.settings(agent, tools=[recipe.order], max_iterations=5):
        await agent.run("x")
    assert [[tool.name for tool in request.tools] for request in llm.requests] == [["order"]] * 2
    assert ([*agent.tools], agent.max_iterations) == (usual, 200)
    for wrong in ({"max_iterations": 0}, {"tools": [recipe.order] * 2}, {"max_iteration": 3}):
        with pytest.raises(ValueError), recipe.settings(agent, **wrong):
            raise AssertionError("the run must not start")
    await agent.run()
    assert [tool.name for tool in llm.requests[-1].tools] == ["order", "cancel"]
