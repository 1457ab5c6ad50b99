"""InstructionFiles: the contents of the files follow the system prompt in every request."""

import os
from contextlib import suppress

import pytest

from agentloop import Agent, AgentBusy, CompactionConfig, ScriptedModel
from agentloop.common.summary import Summary
from agentloop.content import clip
from agentloop.messages import UserMessage
from agentloop.mixins.instruction_files import INTRO, InstructionFiles
from agentloop.models.scripted import call
from tests.core import test_loop
from tests.core.test_loop import add, shown
from tests.helpers import read, summarizing


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "AGENTS.md").write_text("Use tabs.\n", encoding="utf-8")
    return tmp_path


class TestInstructionFiles(test_loop.TestLoop):
    agent_class = InstructionFiles
    largest_fork = 1200  # includes the list of names

    async def test_a_system_prompt_returned_by_a_function_precedes_the_files(self, folder):
        llm = ScriptedModel("one", "two")
        texts = iter(["", "Be good."])
        settings = {"system_prompt": lambda agent: next(texts), "instruction_dir": folder}
        agent = InstructionFiles(llm=llm, **settings)
        await agent.query("x")
        await agent.query("y")
        firsts = [[text[:8] for text in shown(request)[:2]] for request in llm.requests]
        assert firsts == [[INTRO[:8], "x"], ["Be good.", INTRO[:8]]]

    async def test_the_files_follow_the_system_prompt_in_every_request(self, folder):
        llm = ScriptedModel(call("add", a=1, b=2), "3", "again")
        agent = InstructionFiles(
            llm=llm, tools=[add], system_prompt="Be good.", instruction_dir=folder
        )
        await agent.query("x")
        await agent.query("y")
        text = f"{INTRO}\n\n## AGENTS.md\n\nUse tabs."
        for request in llm.requests:
            assert shown(request)[:3] == ["Be good.", text, "x"]
            assert request.messages[1] == UserMessage(text, "memory")
        assert [message.text for message in agent.messages][:2] == ["x", ""]
        assert "tabs" not in repr(agent.log)

    @pytest.mark.parametrize("files", [(), ("none.md",), ("AGENTS.md/none.md",), ("empty.md",)])
    async def test_without_file_contents_there_is_no_message(self, files, folder):
        (folder / "empty.md").write_bytes(b"\xef\xbb\xbf \r\n")
        llm = ScriptedModel("ok")
        await InstructionFiles(llm=llm, instruction_files=files, instruction_dir=folder).query("x")
        assert shown(llm.requests[0]) == ["x"]

    async def test_files_appear_under_their_names_in_the_configured_order(self, folder):
        (folder / "docs").mkdir()
        (folder / "docs" / "rules.md").write_text("Café rules 😀", encoding="utf-8")
        (other := folder / "other.md").write_text("Other", encoding="utf-8")
        (folder / "CLAUDE.md").write_text("Use tabs.", encoding="utf-8")
        names = ["docs/rules.md", other, "CLAUDE.md", "AGENTS.md"]
        agent = InstructionFiles(
            llm=ScriptedModel(), instruction_files=names, instruction_dir=folder
        )
        whole = (
            f"{INTRO}\n\n## docs/rules.md\n\nCafé rules 😀\n\n## {other}\n\nOther"
            "\n\n## AGENTS.md\n\nUse tabs."
        )
        assert (await agent.context())[0].text == whole, "duplicate texts are omitted"
        short = (await agent.fork(instruction_tokens=10).context())[0].text
        assert short == clip(whole, 40), "the truncation of the middle is marked"

    async def test_an_unreadable_file_is_an_error_that_names_the_file(self, folder):
        (folder / "bad.md").write_bytes(b"\xff\xfeh\0i\0")
        (folder / "notes").mkdir()
        for name in ("bad.md", "notes"):
            with pytest.raises(ValueError, match=rf"{name} can.t be read"):
                InstructionFiles(
                    llm=ScriptedModel(), instruction_files=[name], instruction_dir=folder
                )

    async def test_a_changed_file_takes_effect_in_forks_and_after_read_instructions(self, folder):
        llm = ScriptedModel("one", "two", "three")
        agent = InstructionFiles(llm=llm, instruction_dir=folder)
        await agent.query("x")
        (folder / "AGENTS.md").write_text("Use spaces.", encoding="utf-8")
        await agent.query("y")
        assert all("Use tabs." in shown(request)[0] for request in llm.requests)
        await agent.fork().query("z")
        agent.read_instructions()
        for again in (llm.requests[-1].messages, await agent.context()):
            assert "Use spaces." in again[0].text

    async def test_the_files_stay_the_same_during_a_run(self, folder):
        def think(messages, tools):
            (folder / "AGENTS.md").write_text("Use spaces.", encoding="utf-8")
            with pytest.raises(AgentBusy):
                agent.read_instructions()
            return call("read", n=0)

        llm = ScriptedModel(think, "done")
        agent = InstructionFiles(llm=llm, tools=[read], instruction_dir=folder)
        assert await agent.query("x") == "done"
        assert all("Use tabs." in shown(request)[0] for request in llm.requests)

    @pytest.mark.parametrize("bases", [(InstructionFiles, Agent), (Agent, InstructionFiles)])
    async def test_a_summary_neither_contains_nor_replaces_the_files(self, bases, folder):
        agent = type("Remembering", bases, {})(
            llm=summarizing(*(call("read", n=n) for n in range(6)), "done"),
            tools=[read],
            system_prompt="Be good.",
            instruction_dir=folder,
            compaction=CompactionConfig(context_window=1200),
        )
        assert await agent.query("The task") == "done"
        assert sum(isinstance(record, Summary) for record in agent.log) >= 2
        for request in agent.llm.requests:
            system, memory, task = shown(request)[:3]
            assert [system, task] == ["Be good.", "The task"]
            assert memory.endswith("Use tabs.")
            assert sum("Use tabs." in text for text in shown(request)) == 1
        assert shown(agent.llm.requests[-1])[3].endswith("SUMMARY")
        assert agent.messages[1].origin == "summary"

    async def test_a_file_in_the_home_directory_is_found_from_any_folder(
        self, folder, tmp_path_factory, monkeypatch
    ):
        monkeypatch.setenv("HOME", str(folder))
        monkeypatch.setenv("USERPROFILE", str(folder))
        here = tmp_path_factory.mktemp("here")
        agent = InstructionFiles(
            llm=ScriptedModel("ok"), instruction_files=["~/AGENTS.md"], instruction_dir=here
        )
        await agent.query("x")
        assert "Use tabs." in shown(agent.llm.requests[0])[0]

    @pytest.mark.skipif(os.name != "posix", reason="needs links")
    async def test_links_out_of_the_folder_are_not_followed(self, tmp_path):
        (tmp_path / "secret.txt").write_text("the secret")
        (folder := tmp_path / "project").mkdir()
        (folder / "AGENTS.md").symlink_to(tmp_path / "secret.txt")
        with suppress(ValueError):  # an explicit error is acceptable, too
            agent = InstructionFiles(llm=ScriptedModel(), instruction_dir=folder)
            assert "the secret" not in repr(await agent.context())
