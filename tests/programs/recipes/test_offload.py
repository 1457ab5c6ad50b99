"""Offload: long results are stored in files, and the model receives an excerpt."""

import gc
import re
import stat
import sys
import tempfile
from errno import ENOSPC
from pathlib import Path
from typing import Annotated

import pytest

from agentloop import (
    Agent,
    CompactionConfig,
    Depends,
    Ephemeral,
    ImagePart,
    InstructionFiles,
    Loop,
    ScriptedModel,
    Session,
    TextPart,
    current_agent,
    tool,
)
from agentloop.common.summary import Summary
from agentloop.common.tokens import count_tokens
from agentloop.messages import ToolMessage
from agentloop.models.scripted import call
from tests.core import test_loop
from tests.core.test_loop import shown
from tests.helpers import read as read_a_lot
from tests.helpers import results, summarizing
from tests.properties import given, st
from tests.recipes import load

recipe = load("offload")
Offload, preview, store = recipe.Offload, recipe.preview, recipe.store

posix = pytest.mark.skipif(sys.platform == "win32", reason="needs POSIX")
LONG = "".join(f"line {n}: é\n" for n in range(2_000))


@tool("A long text")
async def long(n: int = 0) -> str:
    return f"{n} {LONG}"


def name_in(agent):
    """Return the name of the newest file of a result in the log."""
    return [name for message in agent.messages if (name := recipe.file_of(message))][-1]


async def kept(folder, **settings):
    """Return an agent with a long result stored in the folder `results`, and the file."""
    llm = ScriptedModel(call("long"), "ok")
    agent = Offload(llm=llm, tools=[long], offload_dir=folder / "results", **settings)
    await agent.query("x")
    return agent, folder / "results" / name_in(agent)


async def read(agent, name, **arguments):
    """Return the result of `read_offloaded` in a separate run, and whether it is an error."""
    agent.llm = ScriptedModel(call("read_offloaded", name=name, **arguments), "ok")
    await agent.query("read")
    message = next(m for m in reversed(agent.messages) if isinstance(m, ToolMessage))
    return message.text, message.is_error


class TestOffload(test_loop.TestLoop):
    agent_class = Offload

    async def test_the_start_and_the_end_of_a_long_result_are_sent_to_the_model(self, tmp_path):
        agent, file = await kept(tmp_path)
        text, full = shown(agent.llm.requests[1])[-1], f"0 {LONG}"
        assert re.fullmatch("[0-9a-f]{16}", file.name)
        head = int(re.search(rf'read_offloaded\(name="{file.name}", offset=(\d+)\)', text)[1])
        assert f"\n{full[:head]}\n" in text
        assert text.endswith(full[-1000:])
        assert f"{len(full):,} characters" in text
        assert len(text) < 2_300
        assert file.read_bytes().decode() == full
        got, place = "", 0
        while place < len(full):
            text, _ = await read(agent, file.name, offset=place, limit=7_000)
            note, piece = text.split("]\n", 1)
            assert note.endswith(f"of {len(full):,}.")
            got, place = got + piece, place + 7_000
        assert got == full

    async def test_a_result_up_to_the_threshold_is_unchanged(self, tmp_path):
        size = count_tokens(f"0 {LONG}")
        agent, _ = await kept(tmp_path, offload_tokens=size - 1)
        agent.llm, agent.offload_tokens = ScriptedModel(call("long"), "ok"), size
        await agent.query("again")
        assert shown(agent.llm.requests[1])[-1] == f"0 {LONG}"

    async def test_a_folder_may_be_in_the_home_directory(self, tmp_path, monkeypatch):
        monkeypatch.setenv("HOME", str(tmp_path))
        monkeypatch.setenv("USERPROFILE", str(tmp_path))
        agent, _ = await kept(Path("~"))
        assert (tmp_path / "results" / name_in(agent)).exists()

    async def test_images_stay_in_a_result_with_shortened_text(self, tmp_path):
        image = ImagePart(data=b"png", media_type="image/png")
        content = [TextPart("a" * 9000), image, TextPart("z" * 9000)]
        page = tool("A page", name="page")(lambda: content)
        agent = Offload(llm=ScriptedModel(call("page"), "ok"), tools=[page], offload_dir=tmp_path)
        await agent.query("x")
        first, second = agent.messages[2].content
        assert second == image
        assert first.text.endswith("z" * 100)
        assert "omitted" in first.text
        assert (tmp_path / name_in(agent)).read_text() == "a" * 9000 + "\n" + "z" * 9000

    async def test_only_files_of_the_own_log_can_be_read(self, tmp_path):
        agent, file = await kept(tmp_path)
        (tmp_path / "secret").write_text("SECRET")
        (tmp_path / "results" / "secret").write_text("SECRET")
        for name in ("../secret", "/etc/passwd", "secret", "", ".", "..", "a\0b", "0" * 16):
            text, is_error = await read(agent, name)
            assert is_error
            assert f"['{file.name}']" in text
            assert "SECRET" not in text
        other = Offload(llm=ScriptedModel(), offload_dir=tmp_path / "results")
        assert (await read(other, file.name))[0].endswith("[].")

    @posix
    async def test_only_the_owner_can_read_the_files(self, tmp_path):
        _, file = await kept(tmp_path)
        modes = [stat.S_IMODE(path.stat().st_mode) for path in (file.parent, file)]
        assert modes == [0o700, 0o600]

    @pytest.mark.parametrize("damage", ["delete", "change", "folder"])
    async def test_a_deleted_or_changed_file_is_an_error_that_names_the_cause(
        self, damage, tmp_path
    ):
        agent, file = await kept(tmp_path)
        file.unlink()
        if damage == "folder":
            file.mkdir()
        elif damage == "change":
            file.write_text("other")
        text, is_error = await read(agent, file.name)
        assert is_error
        assert f"{file.name} was deleted or changed" in text

    async def test_a_failed_write_leaves_no_partial_file(self, tmp_path, monkeypatch):
        def full(path, data):
            with path.open("wb") as file:
                file.write(data[:10])
            raise OSError(ENOSPC, "No space left on device")

        monkeypatch.setattr(Path, "write_bytes", full)
        with pytest.raises(OSError, match="space"):
            store(tmp_path, "a long text " * 100)
        assert [*tmp_path.iterdir()] == []

    async def test_a_result_that_cannot_be_written_is_truncated(self, tmp_path, caplog):
        (tmp_path / "file").write_text("not a directory")
        agent = Offload(llm=ScriptedModel(call("long"), "ok"), tools=[long])
        await agent.fork(offload_dir=tmp_path / "file").query("x")
        text = shown(agent.llm.requests[1])[-1]
        assert "characters omitted" in text
        assert 8_000 < len(text) < 8_100
        assert "result of long is truncated" in caplog.text

    @pytest.mark.parametrize("stays", [True, False])
    async def test_a_fork_can_read_the_files_and_the_last_agent_deletes_a_temporary_folder(
        self, tmp_path, stays
    ):
        folder = {"offload_dir": tmp_path} if stays else {}
        agent = Offload(llm=ScriptedModel(call("long"), "ok"), tools=[long], **folder)
        await agent.query("x")
        name, fork, empty = name_in(agent), agent.fork(), agent.fork(at=1)
        at = tmp_path if stays else Path(tempfile.gettempdir())
        [file] = at.glob(name if stays else f"agentloop-*/{name}")
        del agent
        gc.collect()
        text, is_error = await read(fork, name)
        assert (text[:20], is_error) == ("[Characters 0 to 8,0", False)
        assert (await read(empty, name))[1]
        del fork, empty
        gc.collect()
        assert file.parent.exists() == stays

    def test_a_fork_with_a_directory_creates_no_temporary_directory(self, tmp_path, monkeypatch):
        monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "none"))
        fork = Offload(llm=ScriptedModel(), offload_dir=tmp_path).fork()
        assert fork.offload_dir == tmp_path

    @pytest.mark.parametrize("bases", [(Offload, Agent), (Agent, Offload)])
    async def test_the_file_can_be_read_after_a_summary(self, bases, tmp_path):
        llm = summarizing(*(call("long", n=n) for n in range(5)), "done")
        settings = {"offload_dir": tmp_path, "compaction": CompactionConfig(context_window=2_500)}
        agent = type("Any", bases, {})(llm=llm, tools=[long], **settings)
        assert agent.max_result_chars == 10_000_000
        await agent.query("x")
        assert any(isinstance(record, Summary) for record in agent.log)
        first = next(record for record in agent.log if isinstance(record, ToolMessage))
        agent.compaction = None
        text, is_error = await read(agent, recipe.file_of(first))
        assert (text.split("]\n")[1][:6], is_error) == ("0 line", False)

    @given(st.text(st.sampled_from("aé語😀\n"), min_size=500), st.integers(100, 500))
    def test_a_preview_is_bounded_and_states_the_offset_of_the_omitted_text(self, text, limit):
        note, rest = preview(text, "0123456789abcdef", limit).split("]\n", 1)
        offset = int(re.search(r"offset=(\d+)", note)[1])
        assert rest.startswith(text[:offset])
        assert rest.endswith(text[offset - limit :])
        assert len(rest) <= limit + 40


def test_a_fork_with_another_folder_uses_that_folder(tmp_path):
    class Kept(InstructionFiles, Offload, Agent):
        offload_tokens = 100

    def folders(name):
        (folder := tmp_path / name).mkdir()
        (folder / "AGENTS.md").write_text(f"This is {name}.")
        return {"instruction_dir": folder, "offload_dir": folder / "kept"}

    llm = ScriptedModel(call("read", n=1), "done")
    template = Kept(llm=ScriptedModel(), tools=[read_a_lot], **folders("one"))
    template.fork(llm=llm, **folders("two")).run_sync("go")
    assert "This is two." in llm.requests[0].messages[0].text
    assert [*(tmp_path / "two" / "kept").iterdir()]
    assert not (tmp_path / "one" / "kept").exists()


async def test_long_results_of_nested_calls_are_not_moved_to_files():
    @tool("Read")
    async def read() -> list:
        return [*range(10_000)]

    @tool("Sum")
    async def total(agent: Annotated[Loop, Depends(current_agent)]) -> int:
        return sum(await agent.call(read))

    kind = type("Offloading", (Offload, Agent), {})
    agent = kind(llm=ScriptedModel(call("total"), "ok"), tools=[read, total])
    await agent.run("go")
    assert results(agent) == ["49995000"]


async def test_recall_finds_the_name_of_the_file_after_its_excerpt_was_pruned(tmp_path):
    @tool("A long text", ephemeral=1)
    async def page(n: int) -> str:
        return f"page {n} {LONG}"

    class Reader(Offload, Ephemeral, Agent): ...

    def find(messages, tools):
        assert "removed" in messages[2].text
        return call("recall", words="page 0")

    def read(messages, tools):
        name = re.search(r'read_offloaded\(name="(\w+)"', messages[-1].text)[1]
        return call("read_offloaded", name=name)

    pages = [call("page", n=n) for n in range(3)]
    llm = ScriptedModel(*pages, find, read, "ok")
    agent = Reader(llm=llm, tools=[page], offload_dir=tmp_path, ephemeral_batch=1)
    assert await agent.query("x") == "ok"
    assert "\npage 0 line 0" in results(agent)[-1]


async def test_files_of_a_session_of_version_0_7_can_be_read(tmp_path):
    class Kept(Offload, Session, Agent): ...

    settings = {"session": "s", "session_dir": tmp_path, "offload_dir": tmp_path / "files"}
    with Kept(llm=ScriptedModel(call("long"), "ok"), tools=[long], **settings) as agent:
        await agent.query("x")
        name = name_in(agent)
    file = tmp_path / "s.jsonl"
    new, old = f'"extra":{{"offloaded":"{name}"}}', f'"offloaded":"{name}"'
    assert new in file.read_text("utf-8")
    file.write_text(file.read_text("utf-8").replace(new, old), "utf-8")
    with Kept(llm=ScriptedModel(), tools=[long], **settings) as agent:
        assert name_in(agent) == name
        text, is_error = await read(agent, name)
        assert (text.split("]\n")[1][:6], is_error) == ("0 line", False)
