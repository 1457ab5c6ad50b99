"""Skills: loaded when needed, read inside their folder only, and denying other tools."""

import sys

import pytest

from agentloop import Agent, ScriptedModel, ToolCall, ToolMessage, assert_prefix_stable, tool
from agentloop.models.scripted import call
from agentloop.toolkits import skills
from agentloop.toolkits.skills import Skill, Skills, discover_skills

from .. import test_loop

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


async def use(folder, *script, prompts=("x",), **settings):
    """An agent with the skills of a folder and two tools, after its runs."""
    llm = ScriptedModel(*script)
    agent = Skilled(llm=llm, tools=[read, write], skills=discover_skills(folder), **settings)
    for prompt in prompts:
        await agent.run(prompt)
    return agent


def results(agent):
    """What the model has read of its calls."""
    return [message.text for message in agent.messages if isinstance(message, ToolMessage)]


class TestSkills(test_loop.TestLoop):
    agent_class = Skills

    async def test_the_model_sees_the_list_loads_one_and_reads_its_files(self, folder):
        more = call("skill", name="pdf", path="more/forms.md")
        agent = await use(folder, LOAD, more, call("skill", name="no"), "ok")
        skill = agent.llm.requests[0].tools[-1]
        assert skill.description.endswith(":\n- free: Free: all tools\n- pdf: Fills forms.")
        assert skill.parameters["properties"]["name"]["enum"] == ["free", "pdf"]
        loaded, file, unknown = results(agent)
        assert loaded.endswith("---\nDo it well.\n")
        assert file == "Fields."
        assert "'free' or 'pdf'" in unknown
        found = Skill("pdf", "Fills forms.", folder / "pdf", ("Read", "Bash(git:*)"))
        assert discover_skills(folder)[1] == found

    @pytest.mark.skipif(sys.platform == "win32", reason="needs links")
    async def test_no_path_and_no_link_leads_out_of_a_skills_folder(self, folder):
        (folder / "pdf" / "out").symlink_to(folder / "README.md")
        (folder / "pdf" / "up").symlink_to(folder, target_is_directory=True)
        (folder / "pdf" / "in").symlink_to(folder / "pdf" / "more" / "forms.md")
        outside = ["../README.md", f"{folder / 'README.md'}", "out", "up/README.md"]
        bad = [*outside, ".", "no", "a\0b", ""]
        calls = [call("skill", name="pdf", path=path) for path in [*bad, "in"]]
        *refused, inside = results(await use(folder, calls, "ok"))
        assert inside == "Fields."
        for text in refused:
            assert "is no file in pdf" in text or "null" in text
        (folder / "evil").mkdir()
        (folder / "outside.md").write_text("---\nname: evil\ndescription: Evil\n---\nSecret.")
        (folder / "evil" / "SKILL.md").symlink_to(folder / "outside.md")
        [text] = results(await use(folder, call("skill", name="evil"), "ok"))
        assert text.startswith("'SKILL.md' is no file in evil")

    async def test_an_active_skill_denies_other_tools_and_the_request_stays_the_same(self, folder):
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

    def test_allowed_tools_have_an_underscore_too_and_an_empty_list_allows_none(self, folder):
        put(folder, "zzz", "name: zzz\ndescription: z\nallowed_tools: [a, 'b']")
        put(folder, "zzzz", "name: none\ndescription: z\nallowed-tools: []")
        assert [skill.allowed_tools for skill in discover_skills(folder)[2:]] == [("a", "b"), ()]

    async def test_a_skill_stays_active_in_a_run_that_goes_on_and_in_a_fork(self, folder):
        agent = await use(folder, LOAD, RuntimeError("down"), call("write"), "ok", prompts=())
        with pytest.raises(RuntimeError):
            await agent.run("x")
        fork = agent.fork()
        fork.llm = ScriptedModel(call("write"), "ok")
        for each in (agent, fork):
            await each.run()
            assert each.fold(skills.ActiveSkill).name == "pdf"
            assert results(each)[-1].startswith("Denied")

    async def test_arguments_that_are_encoded_twice_open_no_gap(self, folder):
        twice = ToolCall("", "skill", '"{\\"name\\": \\"pdf\\"}"')
        assert results(await use(folder, twice, call("write"), "ok"))[1].startswith("Denied")

    def test_a_broken_skill_is_refused_with_file_key_and_remedy(self, folder):
        for head, missing in ("description: d", "name"), ("name: a", "description"):
            put(folder, "zzz", head)
            with pytest.raises(ValueError, match=rf"zzz.SKILL.md: {missing} is missing: write"):
                discover_skills(folder)
        with pytest.raises(FileNotFoundError):
            discover_skills(folder / "nowhere")
