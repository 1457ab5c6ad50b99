"""The recipe skills.py: an active skill denies the tools that it does not allow."""

import pytest

from agentloop import (
    Agent,
    ScriptedModel,
    ToolCall,
    ToolStart,
    assert_prefix_stable,
    tool,
)
from agentloop.models.scripted import call
from agentloop.toolkits.skills import discover_skills
from tests.helpers import record_all
from tests.library.toolkits.test_skills import LOAD, folder, put, read, results, write
from tests.recipes import load

recipe = load("skills")
__all__ = ["folder"]  # a fixture


class Strict(recipe.StrictSkills, Agent): ...


async def use(folder, *script, prompts=("x",), **settings):
    """Run an agent with the skills of a folder and two tools; return the agent."""
    llm = ScriptedModel(*script)
    agent = Strict(llm=llm, tools=[read, write], skills=discover_skills(folder), **settings)
    for prompt in prompts:
        await agent.run(prompt)
    return agent


async def test_an_active_skill_denies_other_tools_and_the_request_stays_the_same(folder):
    done = call("done", message="ok")
    script = [
        [call("write"), LOAD, call("write"), call("read")],
        [call("skill", name="pdf", path="../x"), call("write")],
        [call("skill", name="free"), call("write")],
        LOAD,
        done,
        call("write"),
        done,
    ]
    agent = await use(folder, *script, prompts=("x", "y"), require_done_tool=True)
    texts = results(agent)
    denied = [at for at, text in enumerate(texts) if text.startswith("Denied")]
    assert denied == [2, 5]
    assert "only these tools can be called: Read, Bash(git:*), skill, done" in texts[2]
    assert [texts.count("wrote it"), texts.count("read it")] == [3, 1]
    assert_prefix_stable(agent.llm.requests)


def test_allowed_tools_may_be_spelled_with_an_underscore_and_an_empty_list_allows_none(folder):
    put(folder, "zzz", "name: zzz\ndescription: z\nallowed_tools: [a, 'b']")
    put(folder, "zzzz", "name: none\ndescription: z\nallowed-tools: []")
    assert [*map(recipe.allowed_tools, discover_skills(folder)[2:])] == [["a", "b"], []]


async def test_a_skill_stays_active_in_a_continued_run_and_in_a_fork(folder):
    agent = await use(folder, LOAD, RuntimeError("down"), call("write"), "ok", prompts=())
    with pytest.raises(RuntimeError):
        await agent.run("x")
    fork = agent.fork()
    fork.llm = ScriptedModel(call("write"), "ok")
    for reader in (agent, fork):
        await reader.run()
        assert reader.fold(recipe.ActiveSkill).name == "pdf"
        assert results(reader)[-1].startswith("Denied")


async def test_an_interrupted_call_that_the_skill_denies_has_an_unknown_outcome(folder):
    again = tool("Send", idempotent=True, name="send")(lambda: "sent")
    llm = ScriptedModel([call("send"), LOAD], "ok")
    agent = Strict(llm=llm, tools=[again], skills=discover_skills(folder))
    await agent.run("x")
    at = next(n for n, record in enumerate(agent.log) if isinstance(record, ToolStart))
    loaded = [record for record in agent.log if getattr(record, "tool_name", "") == "skill"]
    again = agent.fork(at=0, llm=ScriptedModel("ok"))
    record_all(again, [*agent.log[: at + 1], *loaded])  # a crash during the first call
    await again.run()
    assert "outcome is unknown" in results(again)[0]
    assert "Denied" in results(again)[0]


async def test_a_skill_loaded_with_double_encoded_arguments_is_active(folder):
    twice = ToolCall("", "skill", '"{\\"name\\": \\"pdf\\"}"')
    assert results(await use(folder, twice, call("write"), "ok"))[1].startswith("Denied")
