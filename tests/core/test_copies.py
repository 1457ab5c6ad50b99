"""copy, deepcopy and pickle of agents: independent copies, or an error that says what to do."""

import copy
import gc
import pickle
import weakref

import pytest

from agentloop import Agent, ScriptedModel, Session, tool
from agentloop.common.store import read_log
from agentloop.models.scripted import call
from agentloop.settings import Settings


class Saved(Session, Agent): ...


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy])
async def test_a_copy_is_a_fork_with_a_log_of_its_own_and_without_the_session(copied, tmp_path):
    agent = Saved(llm=ScriptedModel("one", "two"), session="s", session_dir=tmp_path)
    await agent.query("first")
    before = read_log(tmp_path / "s.jsonl")
    twin = copied(agent)
    assert twin.messages == agent.messages
    assert await twin.query("second") == "two"
    assert agent.log == before == read_log(tmp_path / "s.jsonl")
    assert twin.session is None


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy])
async def test_a_call_that_the_original_runs_is_closed_in_a_copy(copied):
    ran = []

    @tool(external=True)
    def pay() -> str:
        """Pay."""

    @tool("Look")
    async def look() -> str:
        ran.append(copied(agent))
        return "seen"

    agent = Agent(llm=ScriptedModel([call("look")], "done", "again"), tools=[look, pay])
    await agent.run("go")
    [twin] = ran
    assert await twin.query("And you?") == "again"
    assert len(ran) == 1


def test_the_error_for_a_pickle_names_what_to_use():
    with pytest.raises(TypeError, match=r"Session.*fork\(\)"):
        pickle.dumps(Agent(llm=ScriptedModel()))


def test_a_class_of_agents_is_freed_although_its_settings_were_checked():
    def make_class():
        class Clerk(Settings):
            customer: str

        Clerk(customer="ada")
        return weakref.ref(Clerk)

    classes = [make_class() for _ in range(300)]
    gc.collect()
    assert not classes[0]()
