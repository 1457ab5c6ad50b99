"""Offload: a long result goes to a file, and the model reads on from its beginning and end."""

import gc
import os
import re
import stat
import sys
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentloop import (
    Agent,
    CompactionConfig,
    ImagePart,
    ScriptedModel,
    Summary,
    TextPart,
    ToolMessage,
    tool,
)
from agentloop.mixins.compaction import SUMMARY_PROMPT
from agentloop.mixins.offload import Offload, preview, store
from agentloop.models.scripted import call

from .. import test_loop
from ..test_loop import shown

posix = pytest.mark.skipif(sys.platform == "win32", reason="needs POSIX")
LONG = "".join(f"line {n}: é\n" for n in range(2_000))


@tool("A long text")
async def long(n: int = 0, size: int = 0) -> str:
    return f"{n} {LONG}" + "x" * size


def name_in(agent):
    """The name of the newest file that results in the log are kept in."""
    return [m.extra["offloaded"] for m in agent.messages if (m.extra or {}).get("offloaded")][-1]


def make(tmp_path, *script, tools=(long,), **settings):
    llm = ScriptedModel(*script)
    return Offload(llm=llm, tools=tools, offload_dir=tmp_path / "results", **settings), llm


async def read(agent, name, **arguments):
    """What `read_offloaded` gives an agent in a run of its own, and whether it is an error."""
    agent.llm = ScriptedModel(call("read_offloaded", name=name, **arguments), "ok")
    await agent.query("read")
    message = next(m for m in reversed(agent.messages) if isinstance(m, ToolMessage))
    return message.text, message.is_error


class TestOffload(test_loop.TestLoop):
    agent_class = Offload

    # ---- what the model sees

    async def test_a_long_result_is_shown_as_its_beginning_and_end(self, tmp_path):
        agent, llm = make(tmp_path, call("long"), "ok")
        await agent.query("x")
        text, full = shown(llm.requests[1])[-1], f"0 {LONG}"
        name = name_in(agent)
        assert re.fullmatch("[0-9a-f]{16}", name)
        head = int(re.search(rf'read_offloaded\(name="{name}", offset=(\d+)\)', text)[1])
        assert f"\n{full[:head]}\n" in text
        assert text.endswith(full[-1000:])
        assert f"{len(full):,} characters: here are its beginning and its end" in text
        assert len(text) < 2_300
        assert (tmp_path / "results" / name).read_bytes().decode() == full

    async def test_a_result_up_to_the_threshold_is_left_alone(self, tmp_path):
        @tool("As many characters")
        async def text(n: int) -> str:
            return "x" * n

        agent, llm = make(tmp_path, [call("text", n=8_000), call("text", n=8_001)], "ok")
        agent.tools = [text]
        await agent.query("x")
        assert shown(llm.requests[1])[-2] == "x" * 8_000
        assert "read_offloaded" in shown(llm.requests[1])[-1]
        assert len(list((tmp_path / "results").iterdir())) == 1

    async def test_the_model_reads_on_until_the_end(self, tmp_path):
        def go_on(messages, tools):
            text = messages[-1].text
            name = re.search(r'name="(\w+)"', messages[2].text)[1]
            place = re.match(r"\[Characters [\d,]+ to ([\d,]+) of ([\d,]+)", text)
            end, size = (int(n.replace(",", "")) for n in place.groups()) if place else (0, 1)
            return (
                "read all"
                if end == size
                else call("read_offloaded", name=name, offset=end, limit=7_000)
            )

        agent, _ = make(tmp_path, call("long"), *[go_on] * 9)
        assert await agent.query("x") == "read all"
        pieces = [m.text.split("]\n", 1) for m in agent.messages[4::2] if m.text.startswith("[Cha")]
        where = f"[Characters 0 to 7,000 of {len(LONG) + 2:,}."
        assert pieces[0][0] == where
        assert "".join(piece for _, piece in pieces) == f"0 {LONG}"

    async def test_images_stay_beside_the_shortened_text(self, tmp_path):
        image = ImagePart(data=b"png", media_type="image/png")

        @tool("A page")
        async def page() -> list:
            return [TextPart("a" * 9_000), image, TextPart("z" * 9_000)]

        agent, _ = make(tmp_path, call("page"), "ok", tools=[page])
        await agent.query("x")
        first, second = agent.messages[2].content
        assert second == image
        assert first.text.endswith("z" * 100)
        assert "left out" in first.text
        assert (tmp_path / "results" / name_in(agent)).read_text() == "a" * 9000 + "\n" + "z" * 9000

    # ---- who may read what

    @pytest.mark.parametrize(
        "name", ["../secret", "/etc/passwd", "secret", "", ".", "..", "a\0b", "0" * 16]
    )
    async def test_a_name_that_is_not_ours_reads_nothing(self, name, tmp_path):
        agent, _ = make(tmp_path, call("long"), "ok")
        await agent.query("x")
        (tmp_path / "secret").write_text("SECRET")
        (tmp_path / "results" / "secret").write_text("SECRET")
        text, is_error = await read(agent, name)
        assert is_error
        assert f"There are: ['{name_in(agent)}']." in text
        assert "SECRET" not in text

    async def test_one_agent_does_not_read_what_another_keeps(self, tmp_path):
        agent, _ = make(tmp_path, call("long"), "ok")
        await agent.query("x")
        other, _ = make(tmp_path)
        text, is_error = await read(other, name_in(agent))
        assert is_error
        assert text.endswith("There are: [].")

    @posix
    async def test_the_owner_alone_can_read_the_files(self, tmp_path):
        before = os.umask(0)
        try:
            agent, _ = make(tmp_path, call("long"), "ok")
            await agent.query("x")
        finally:
            os.umask(before)
        folder = tmp_path / "results"
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        assert [stat.S_IMODE(file.stat().st_mode) for file in folder.iterdir()] == [0o600]

    # ---- when something is wrong with the files

    @pytest.mark.parametrize("damage", ["delete", "change", "folder"])
    async def test_a_file_that_is_not_as_it_was_is_an_error_that_says_so(self, damage, tmp_path):
        agent, _ = make(tmp_path, call("long"), "ok")
        await agent.query("x")
        name = name_in(agent)
        file = tmp_path / "results" / name
        file.unlink()
        if damage == "folder":
            file.mkdir()
        elif damage == "change":
            file.write_text("other")
        text, is_error = await read(agent, name)
        assert is_error
        assert text == f"The text of {name} is gone or was changed: call the tool again."

    @posix
    async def test_writing_replaces_a_link_and_leaves_its_target_alone(self, tmp_path):
        victim = tmp_path / "victim"
        victim.write_text("precious")
        name = store(tmp_path / "probe", f"0 {LONG}")
        (tmp_path / "results").mkdir()
        (tmp_path / "results" / name).symlink_to(victim)
        agent, _ = make(tmp_path, call("long"), "ok")
        await agent.query("x")
        assert victim.read_text() == "precious"
        assert not (await read(agent, name))[1]

    async def test_a_result_that_cannot_be_written_is_cut(self, tmp_path, caplog):
        (tmp_path / "results").write_text("a file in the directory's place")
        agent, llm = make(tmp_path, call("long"), "ok")
        await agent.query("x")
        text = shown(llm.requests[1])[-1]
        assert "characters left out" in text
        assert 8_000 < len(text) < 8_100
        assert agent.messages[2].extra is None
        assert "a result of long is cut" in caplog.text

    # ---- agents, forks and sessions

    async def test_a_fork_reads_what_its_parent_kept(self, tmp_path):
        for settings in ({}, {"offload_dir": tmp_path}):
            agent = Offload(llm=ScriptedModel(call("long"), "ok"), tools=[long], **settings)
            await agent.query("x")
            name, fork, empty = name_in(agent), agent.fork(), agent.fork(at=1)
            del agent
            gc.collect()
            text, is_error = await read(fork, name)
            assert (text[:20], is_error) == ("[Characters 0 to 8,0", False)
            assert (await read(empty, name))[1]

    async def test_without_a_directory_the_files_go_with_the_last_agent(self):
        agent = Offload(llm=ScriptedModel(call("long"), "ok"), tools=[long])
        await agent.query("x")
        folder, fork = (
            next(Path(tempfile.gettempdir()).glob(f"agentloop-*/{name_in(agent)}")),
            agent.fork(),
        )
        folder = folder.parent
        assert [file.name for file in folder.iterdir()] == [name_in(agent)]
        assert sys.platform == "win32" or stat.S_IMODE(folder.stat().st_mode) == 0o700
        del agent
        gc.collect()
        assert folder.exists()
        del fork
        gc.collect()
        assert not folder.exists()

    @pytest.mark.parametrize("bases", [(Offload, Agent), (Agent, Offload)])
    async def test_the_name_outlives_a_summary(self, bases, tmp_path):
        replies = iter([*(call("long", n=n) for n in range(5)), "done"])

        def answer(messages, tools):
            return "SUM" if messages[-1].text == SUMMARY_PROMPT else next(replies)

        agent = type("Any", bases, {})(
            llm=ScriptedModel(answer),
            tools=[long],
            offload_dir=tmp_path,
            compaction=CompactionConfig(context_window=2_500),
        )
        assert agent.max_result_chars == 10_000_000
        await agent.query("x")
        assert any(isinstance(record, Summary) for record in agent.log)
        first = next(record for record in agent.log if isinstance(record, ToolMessage))
        agent.compaction = None
        text, is_error = await read(agent, first.extra["offloaded"])
        assert (text.split("]\n")[1][:6], is_error) == ("0 line", False)


@given(st.text(st.sampled_from("aé語😀\n"), min_size=500), st.integers(100, 500))
def test_a_preview_is_a_quarter_as_long_and_leads_back_to_the_whole(text, limit):
    note, rest = preview(text, "0123456789abcdef", limit).split("]\n", 1)
    offset = int(re.search(r"offset=(\d+)", note)[1])
    assert rest.startswith(text[:offset])
    assert rest.endswith(text[offset - limit :])
    assert len(rest) <= limit + 40
