"""Memory: what stands in some files comes right after the system prompt, in every request."""

import logging
import os
import sys
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentloop import (
    Agent,
    AgentBusy,
    ChatOpenAI,
    CompactionConfig,
    ScriptedModel,
    Session,
    Summary,
    SystemMessage,
    UserMessage,
    tool,
)
from agentloop.mixins.compaction import SUMMARY_PROMPT
from agentloop.mixins.memory import MEMORY_INTRO, Memory, MemoryFile, memory_text, shares
from agentloop.models.scripted import call

from .. import test_loop
from ..doubles.openai_double import OpenAIDouble
from ..doubles.openai_double import calls as ask
from ..test_loop import add, shown


@tool("Read a lot")
async def read(n: int) -> str:
    return f"{n} " + "word " * 300


class Remembering(Memory, Agent):
    """An agent with memory."""


class RememberingToo(Agent, Memory):
    """The same, its bases the other way round."""


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "AGENTS.md").write_text("Use tabs.\n", encoding="utf-8")
    return tmp_path


class TestMemory(test_loop.TestLoop):
    agent_class = Memory

    async def test_it_stands_right_after_the_system_prompt_in_every_request(self, folder):
        llm = ScriptedModel(call("add", a=1, b=2), "3", "again")
        agent = Memory(llm=llm, tools=[add], system_prompt="Be good.", memory_dir=folder)
        await agent.query("x")
        await agent.query("y")
        text = f"{MEMORY_INTRO}\n\n## AGENTS.md\n\nUse tabs."
        for request in llm.requests:
            assert shown(request)[:3] == ["Be good.", text, "x"]
            assert request.messages[1] == UserMessage(text, hidden=True, extra={"pinned": True})

    async def test_without_a_system_prompt_it_comes_first(self, folder):
        llm = ScriptedModel("ok")
        await Memory(llm=llm, memory_dir=folder).query("x")
        assert [text.endswith("Use tabs.") for text in shown(llm.requests[0])] == [True, False]

    async def test_it_is_not_in_the_log(self, folder):
        agent = Memory(llm=ScriptedModel("ok"), memory_dir=folder)
        await agent.query("x")
        assert [message.text for message in agent.messages] == ["x", "ok"]
        assert "tabs" not in repr(agent.log)

    @pytest.mark.parametrize("files", [(), ("none.md",), ("AGENTS.md/none.md",), ("empty.md",)])
    async def test_with_nothing_to_show_there_is_no_message(self, files, folder, caplog):
        caplog.set_level(logging.INFO)
        (folder / "empty.md").write_bytes(b"\xef\xbb\xbf \r\n")
        llm = ScriptedModel("ok")
        await Memory(llm=llm, memory=files, memory_dir=folder).query("x")
        assert shown(llm.requests[0]) == ["x"]
        assert ("no memory file" in caplog.text) == any("none" in name for name in files)

    async def test_several_files_stand_under_their_names_in_the_order_asked_for(self, folder):
        (folder / "docs").mkdir()
        (folder / "docs" / "rules.md").write_text("Café rules 😀", encoding="utf-8")
        other = folder / "other.md"
        other.write_text("Other", encoding="utf-8")
        agent = Memory(
            llm=ScriptedModel(), memory=["docs/rules.md", other, "AGENTS.md"], memory_dir=folder
        )
        assert agent.memory_message.text == (
            f"{MEMORY_INTRO}\n\n## docs/rules.md\n\nCafé rules 😀\n\n## other.md\n\nOther"
            "\n\n## AGENTS.md\n\nUse tabs."
        )

    async def test_relative_names_start_from_the_working_directory(self, folder, monkeypatch):
        monkeypatch.chdir(folder)
        assert "## AGENTS.md\n\nUse tabs." in Memory(llm=ScriptedModel()).memory_message.text
        there = Memory(llm=ScriptedModel(), memory=["../outside.md", "AGENTS.md"])
        assert there.memory_message.text.count("##") == 1

    async def test_a_file_outside_is_shown_under_the_name_that_it_was_given(self, tmp_path, folder):
        inner = folder / "inner"
        inner.mkdir()
        agent = Memory(
            llm=ScriptedModel(), memory=["../AGENTS.md"], memory_dir=inner, memory_tokens=10
        )
        assert "## ../AGENTS.md\n" in agent.memory_message.text
        agent = Memory(llm=ScriptedModel(), memory=[folder / "AGENTS.md"], memory_dir=inner)
        assert f"## {(folder / 'AGENTS.md').as_posix()}\n" in agent.memory_message.text

    async def test_no_text_is_shown_twice(self, folder):
        (folder / "CLAUDE.md").write_text("Use tabs.", encoding="utf-8")
        names = ["AGENTS.md", "CLAUDE.md", "./AGENTS.md"]
        agent = Memory(llm=ScriptedModel(), memory=names, memory_dir=folder)
        assert agent.memory_message.text.count("Use tabs.") == 1
        assert "## AGENTS.md" in agent.memory_message.text

    async def test_a_long_file_loses_its_end_and_says_so(self, folder):
        (folder / "long.md").write_text("é" * 10_000, encoding="utf-8")
        agent = Memory(
            llm=ScriptedModel(),
            memory=["long.md", "AGENTS.md"],
            memory_dir=folder,
            memory_tokens=100,
        )
        text = agent.memory_message.text
        assert text.count("é") == (400 - len("Use tabs.")) // 2
        assert "[long.md goes on: it has 20,000 bytes, and its end is not shown.]" in text
        assert "AGENTS.md goes on" not in text

    @pytest.mark.parametrize("cut", range(397, 405))
    async def test_a_cut_inside_a_character_is_no_error(self, cut, folder):
        (folder / "long.md").write_bytes(b"x" * cut + "😀".encode() * 5)
        settings = {"memory": ["long.md"], "memory_dir": folder, "memory_tokens": 100}
        text = Memory(llm=ScriptedModel(), **settings).memory_message.text
        assert "�" not in text
        assert 397 <= text.count("x") <= 400

    @pytest.mark.parametrize("data", [b"\xff\xfeh\0i\0", b"\x80" * 9, b"half \xf0\x9f"])
    async def test_a_file_that_is_not_utf8_is_an_error_that_names_it(self, data, folder):
        (folder / "bad.md").write_bytes(data)
        with pytest.raises(ValueError, match=r"bad\.md cannot be read as UTF-8 text"):
            Memory(llm=ScriptedModel(), memory=["bad.md"], memory_dir=folder)

    async def test_a_directory_is_an_error_that_names_it(self, folder):
        (folder / "notes").mkdir()
        with pytest.raises(ValueError, match="notes cannot be read.*directory"):
            Memory(llm=ScriptedModel(), memory=["notes"], memory_dir=folder)

    @pytest.mark.skipif(sys.platform == "win32", reason="needs POSIX")
    async def test_a_pipe_is_an_error_and_not_a_wait(self, folder):
        os.mkfifo(folder / "pipe")
        with pytest.raises(ValueError, match="pipe cannot be read"):
            Memory(llm=ScriptedModel(), memory=["pipe"], memory_dir=folder)

    @pytest.mark.skipif(
        sys.platform == "win32" or os.geteuid() == 0, reason="nothing is forbidden to root"
    )
    async def test_a_file_without_permission_is_an_error_that_names_it(self, folder):
        (folder / "AGENTS.md").chmod(0)
        with pytest.raises(ValueError, match=r"AGENTS\.md cannot be read"):
            Memory(llm=ScriptedModel(), memory_dir=folder)

    async def test_one_string_is_no_list_of_files(self):
        with pytest.raises(TypeError, match=r"\['AGENTS\.md'\]"):
            Memory(llm=ScriptedModel(), memory="AGENTS.md")

    @pytest.mark.parametrize("tokens", [0, 1.5, float("nan"), None])
    async def test_no_number_of_tokens_is_an_error(self, tokens):
        with pytest.raises(ValueError, match=f"memory_tokens is a whole.*, not {tokens}"):
            Memory(llm=ScriptedModel(), memory_tokens=tokens)

    async def test_a_change_of_the_file_shows_when_it_is_read_again(self, folder):
        llm = ScriptedModel("one", "two", "three")
        agent = Memory(llm=llm, memory_dir=folder)
        await agent.query("x")
        (folder / "AGENTS.md").write_text("Use spaces.", encoding="utf-8")
        await agent.query("y")
        await agent.fork().query("z")
        assert all("Use tabs." in shown(request)[0] for request in llm.requests)
        fork = agent.fork()
        agent.read_memory()
        assert "Use spaces." in agent.memory_message.text
        assert "Use tabs." in fork.memory_message.text

    async def test_it_is_not_read_again_during_a_run(self, folder):
        @tool("Read the memory again")
        async def again() -> None:
            with pytest.raises(AgentBusy):
                agent.read_memory()

        agent = Memory(llm=ScriptedModel(call("again"), "ok"), tools=[again], memory_dir=folder)
        assert await agent.query("x") == "ok"
        assert not agent.messages[2].is_error

    @pytest.mark.parametrize("order", [Remembering, RememberingToo])
    async def test_a_summary_neither_contains_nor_replaces_it(self, order, folder):
        replies = iter([*(call("read", n=n) for n in range(6)), "done"])

        def answer(messages, tools):
            return "SUM" if messages[-1].text == SUMMARY_PROMPT else next(replies)

        llm = ScriptedModel(answer)
        agent = order(
            llm=llm,
            tools=[read],
            system_prompt="Be good.",
            memory_dir=folder,
            compaction=CompactionConfig(context_window=1200),
        )
        assert await agent.query("The task") == "done"
        assert sum(isinstance(record, Summary) for record in agent.log) >= 2
        for request in llm.requests:
            assert [text[-9:] for text in shown(request)[:3]] == [
                "Be good.",
                "Use tabs.",
                "The task",
            ]
            assert sum("Use tabs." in text for text in shown(request)) == 1
        assert shown(llm.requests[-1])[3].endswith("SUM")
        assert agent.messages[1].extra == {"pinned": True}, "the summary"

    async def test_over_thirty_turns_each_request_begins_with_the_one_before(self, folder):
        async with OpenAIDouble([*(ask(("read", {"n": n})) for n in range(30)), "done"]) as server:
            llm = ChatOpenAI("m", base_url=server.base_url, api_key="k")
            agent = Memory(llm=llm, tools=[read], system_prompt="Be good.", memory_dir=folder)
            await agent.query("x")
            assert server.refusals == []
            sent = [request["messages"] for request in server.requests]
            assert len(sent) == 31
            assert all(after[: len(before)] == before for before, after in pairwise(sent))
            assert "Use tabs." in sent[0][1]["content"]

    async def test_a_file_that_cannot_be_read_leaves_no_session_open(self, folder):
        class Kept(Memory, Session):
            pass

        kept = {"llm": ScriptedModel(), "session": "s", "session_dir": folder / "sessions"}
        (folder / "bad.md").write_bytes(b"\xff")
        with pytest.raises(ValueError, match=r"bad\.md") as caught:
            Kept(**kept, memory=["bad.md"], memory_dir=folder)
        Kept(**kept, memory_dir=folder).close()
        assert caught

    async def test_a_new_process_reads_the_files_as_they_are_then(self, folder):
        class Kept(Session, Memory):
            pass

        kept = {"session": "s", "session_dir": folder / "sessions", "memory_dir": folder}
        agent = Kept(llm=ScriptedModel("ok"), **kept)
        await agent.query("x")
        agent.close()
        (folder / "AGENTS.md").write_text("Use spaces.", encoding="utf-8")
        llm = ScriptedModel("ok")
        agent = Kept(llm=llm, **kept)
        await agent.query("y")
        agent.close()
        assert [text[-11:] for text in shown(llm.requests[0])] == ["Use spaces.", "x", "ok", "y"]

    async def test_it_stays_first_after_the_history_was_cleared(self, folder):
        llm = ScriptedModel("one", "two")
        agent = Memory(llm=llm, system_prompt="S", memory_dir=folder)
        await agent.query("x")
        agent.clear_history()
        await agent.query("y")
        assert shown(llm.requests[1])[0::2] == ["S", "y"]
        assert isinstance(llm.requests[1].messages[0], SystemMessage)


texts = st.text(st.characters(codec="utf-8"), max_size=60).map(str.strip)


@given(st.lists(texts, max_size=6), st.integers(1, 100))
def test_the_text_is_of_so_many_tokens_at_most_and_each_file_loses_only_its_end(texts, tokens):
    files = [MemoryFile(f"{n}.md", text, len(text.encode())) for n, text in enumerate(texts)]
    whole = memory_text(files, tokens)
    assert (whole == "") == (not any(texts))
    total, rest = 0, whole
    unique = [f for n, f in enumerate(files) if f.text and f.text not in texts[:n]]
    for file in unique:
        begin = rest.index(f"## {file.name}\n\n") + len(f"## {file.name}\n\n")
        rest = rest[begin:]
        note = f"\n[{file.name} goes on"
        shown = rest[: rest.index(note)] if note in rest else file.text
        assert file.text.startswith(shown)
        assert rest.startswith(shown)
        assert (shown == file.text) == (note not in rest)
        total += len(shown.encode())
    assert total <= tokens * 4


@given(st.lists(st.integers(0, 100), max_size=8), st.integers(0, 400))
def test_shares_meet_the_small_ones_and_treat_the_large_ones_alike(sizes, total):
    room = shares(sizes, total)
    assert sum(room) <= total
    assert all(got <= size for got, size in zip(room, sizes, strict=True))
    if sum(sizes) <= total:
        assert room == sizes
    cut = [got for got, size in zip(room, sizes, strict=True) if got < size]
    assert not cut or max(room) - min(cut) <= 1
