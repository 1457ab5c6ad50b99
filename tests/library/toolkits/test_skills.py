"""Skills: instructions loaded on demand, with files read only from their folder."""

import os
import sys

import pytest

from agentloop import Agent, ScriptedModel, ToolMessage, tool
from agentloop.models.scripted import call
from agentloop.toolkits.skills import Skill, Skills, discover_skills
from tests.core import test_loop

LOAD = call("skill", name="pdf")


class Skilled(Skills, Agent): ...


read = tool("Read", name="read")(lambda: "read it")
write = tool("Write", name="write")(lambda: "wrote it")


@pytest.fixture
def folder(tmp_path):
    put(tmp_path, "pdf", "name: pdf\ndescription: Fills forms.\nallowed-tools: Read, Bash(git:*)")
    put(tmp_path, "free", "name: free\ndescription: 'Free: all tools'\nlicense: MIT")
    (tmp_path / "pdf" / "more").mkdir()
    (tmp_path / "pdf" / "more" / "forms.md").write_text("Fields.")
    (tmp_path / "README.md").write_text("No skill.")
    (tmp_path / "empty").mkdir()
    return tmp_path


def put(folder, name, head):
    (folder / name).mkdir(exist_ok=True)
    (folder / name / "SKILL.md").write_text(f"---\n{head}\n---\nDo it well.\n")


async def run_agent(folder, *script, prompts=("x",), **settings):
    """Create an agent with the skills of a folder, run the prompts, and return the agent."""
    llm = ScriptedModel(*script)
    agent = Skilled(llm=llm, tools=[read, write], skills=discover_skills(folder), **settings)
    for prompt in prompts:
        await agent.run(prompt)
    return agent


def results(agent):
    """Return the texts of all tool results."""
    return [message.text for message in agent.messages if isinstance(message, ToolMessage)]


class TestSkills(test_loop.TestLoop):
    agent_class = Skills

    async def test_the_model_receives_the_list_loads_a_skill_and_reads_its_files(self, folder):
        more = call("skill", name="pdf", path="more/forms.md")
        agent = await run_agent(folder, LOAD, more, call("skill", name="no"), "ok")
        skill = agent.llm.requests[0].tools[-1]
        assert skill.description.endswith(":\n- free: Free: all tools\n- pdf: Fills forms.")
        assert skill.parameters["properties"]["name"]["enum"] == ["free", "pdf"]
        loaded, file, unknown = results(agent)
        assert loaded.endswith("---\nDo it well.\n")
        assert file == "Fields."
        assert "'free' or 'pdf'" in unknown
        pdf = discover_skills(folder)[1]
        assert pdf == Skill("pdf", "Fills forms.", folder / "pdf", pdf.fields)
        assert pdf.fields["allowed-tools"] == "Read, Bash(git:*)"

    @pytest.mark.skipif(sys.platform == "win32", reason="requires links")
    async def test_no_path_or_link_leaves_the_folder_of_a_skill(self, folder):
        (folder / "pdf" / "out").symlink_to(folder / "README.md")
        (folder / "pdf" / "up").symlink_to(folder, target_is_directory=True)
        (folder / "pdf" / "in").symlink_to(folder / "pdf" / "more" / "forms.md")
        outside = ["../README.md", f"{folder / 'README.md'}", "out", "up/README.md"]
        bad = [*outside, ".", "no", "a\0b", ""]
        calls = [call("skill", name="pdf", path=path) for path in [*bad, "in"]]
        *refused, inside = results(await run_agent(folder, calls, "ok"))
        assert inside == "Fields."
        for text in refused:
            assert "pdf" in text or "null" in text
        (folder / "evil").mkdir()
        (folder / "outside.md").write_text("---\nname: evil\ndescription: Evil\n---\nSecret.")
        (folder / "evil" / "SKILL.md").symlink_to(folder / "outside.md")
        with pytest.raises(ValueError, match="evil"):
            discover_skills(folder)

    def test_an_invalid_skill_is_an_error_with_file_key_and_remedy(self, folder):
        for head, missing in ("description: d", "name"), ("name: a", "description"):
            put(folder, "zzz", head)
            with pytest.raises(ValueError, match=rf"zzz.SKILL.md: {missing} is missing: write"):
                discover_skills(folder)
        with pytest.raises(FileNotFoundError):
            discover_skills(folder / "nowhere")


def test_two_skills_with_the_same_name_are_an_error_with_both_paths(folder):
    put(folder, "other", "name: pdf\ndescription: Fills others.")
    with pytest.raises(ValueError, match="'pdf'") as refused:
        discover_skills(folder)
    assert str(folder / "pdf") in str(refused.value)
    assert str(folder / "other") in str(refused.value)


@pytest.mark.skipif(sys.platform == "win32", reason="requires links and pipes")
@pytest.mark.parametrize("kind", ["link", "pipe"])
def test_instructions_that_are_a_link_or_a_pipe_are_rejected(folder, tmp_path, kind):
    (folder / "pdf" / "SKILL.md").unlink()
    if kind == "pipe":
        os.mkfifo(folder / "pdf" / "SKILL.md")
    else:
        (folder / "pdf" / "SKILL.md").symlink_to(folder / "free" / "SKILL.md")
    with pytest.raises(ValueError, match="SKILL.md"):
        discover_skills(folder)


@pytest.mark.skipif(sys.platform == "win32", reason="requires links")
def test_a_link_to_the_folder_of_a_skill_works(folder, tmp_path_factory):
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    (elsewhere / "pdf").symlink_to(folder / "pdf")
    assert [skill.name for skill in discover_skills(elsewhere)] == ["pdf"]
