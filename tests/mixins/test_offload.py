"""Offload: a long result goes to a file, and the model reads on from its beginning and end."""

import asyncio
import gc
import os
import re
import stat
import sys
import tempfile
import threading
import time
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentloop import (
    Agent,
    ChatOpenAI,
    CompactionConfig,
    ImagePart,
    ScriptedModel,
    Session,
    Summary,
    TextPart,
    ToolError,
    ToolMessage,
    ToolResultEvent,
    tool,
)
from agentloop.mixins import offload as offload_module
from agentloop.mixins.compaction import SUMMARY_PROMPT
from agentloop.mixins.offload import MAX_READ_BACK, Offload, excerpt, load, preview, store
from agentloop.models.scripted import call
from agentloop.tokens import count_tokens

from .. import test_loop
from ..doubles.openai_double import OpenAIDouble
from ..doubles.openai_double import calls as ask
from ..test_loop import shown

posix = pytest.mark.skipif(sys.platform == "win32", reason="needs POSIX")
LONG = "".join(f"line {n}: é\n" for n in range(2_000))


@tool("A long text")
async def long(n: int = 0, size: int = 0) -> str:
    return f"{n} {LONG}" + "x" * size


def test_what_a_killed_writer_left_is_removed_after_an_hour(tmp_path):
    names = [f".{n:016x}.tmp" for n in range(3)] + ["of-the-user.tmp", ".mine.tmp"]
    for name in names:
        (tmp_path / name).write_text("half")
        os.utime(tmp_path / name, (0, time.time() - 3_700))
    (tmp_path / names[0]).touch()
    (tmp_path / names[2]).unlink()
    (tmp_path / names[2]).mkdir()  # which cannot be removed
    os.utime(tmp_path / names[2], (0, 0))
    name = store(tmp_path, LONG)
    assert {path.name for path in tmp_path.iterdir()} == {name, *names} - {names[1]}


class Kept(Session, Offload):
    """An agent with a session and an offload directory."""


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
        assert text.endswith(full[-400:])
        assert f"{len(full):,} characters, about {count_tokens(full):,} tokens" in text
        assert count_tokens(text) < 700
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
            if "this is the end" in text:
                return "read all"
            offset = re.search(r"offset=(\d+)", text)[1] if "Characters" in text else 0
            return call("read_offloaded", name=name, offset=int(offset), limit=7_000)

        agent, _ = make(tmp_path, call("long"), *[go_on] * 9)
        assert await agent.query("x") == "read all"
        pieces = [m.text.split("]\n", 1) for m in agent.messages[4::2] if m.text.startswith("[Cha")]
        where = f"[Characters 0 to 7,000 of {len(LONG) + 2:,}; go on with offset=7000."
        assert pieces[0][0] == where
        assert "".join(piece for _, piece in pieces) == f"0 {LONG}"

    async def test_what_is_read_is_never_offloaded_again(self, tmp_path):
        agent, _ = make(tmp_path, call("long"), "ok", offload_tokens=100)
        await agent.query("x")
        text, is_error = await read(agent, name_in(agent), limit=10**9)
        assert not is_error
        assert len(text.split("]\n", 1)[1]) == MAX_READ_BACK
        assert len(list((tmp_path / "results").iterdir())) == 1

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
        assert (tmp_path / "results" / name_in(agent)).read_text() == "a" * 9000 + "\n" + "z" * 9000

    async def test_a_long_error_is_offloaded_and_still_an_error(self, tmp_path):
        @tool("Fail at length")
        async def fails() -> str:
            raise ToolError("no " * 3_000)

        agent, _ = make(tmp_path, call("fails"), "ok", tools=[fails])
        await agent.query("x")
        assert agent.messages[2].is_error
        assert name_in(agent)

    async def test_how_many_stay_visible_and_other_fields_are_kept(self, tmp_path):
        @tool("Look", ephemeral=3)
        async def look() -> str:
            return LONG

        agent, _ = make(tmp_path, call("look"), "ok", tools=[look])
        await agent.query("x")
        assert (agent.messages[2].ephemeral, agent.messages[2].tool_name) == (3, "look")

    async def test_listeners_get_the_short_version(self, tmp_path):
        agent, _ = make(tmp_path, call("long"), "ok")
        events = [event async for event in agent.query_stream("x")]
        results = [event.result for event in events if isinstance(event, ToolResultEvent)]
        assert len(results) == 1
        assert len(results[0]) < 3_000

    async def test_fifty_megabytes_become_a_preview_and_a_file_of_ten(self, tmp_path):
        agent, llm = make(tmp_path, call("long", size=50_000_000), "ok")
        await agent.query("x")
        assert len(shown(llm.requests[1])[-1]) < 3_000
        (file,) = (tmp_path / "results").iterdir()
        assert 10_000_000 <= file.stat().st_size <= 10_100_000

    @pytest.mark.parametrize(
        "text", ["half \ud83d " * 2_000, "\ud83d\ude00" * 3_000, "\0\r\n" * 4000]
    )
    async def test_any_text_comes_back_as_the_model_would_have_seen_it(self, text, tmp_path):
        @tool("Odd text")
        async def odd() -> str:
            return text

        agent, _ = make(tmp_path, call("odd"), "ok", tools=[odd])
        await agent.query("x")
        got, _ = await read(agent, name_in(agent), limit=MAX_READ_BACK)
        whole = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        assert got.split("]\n", 1)[1] == whole[:MAX_READ_BACK]

    async def test_it_is_offered_always_and_once(self, tmp_path):
        agent, llm = make(tmp_path, call("long"), "ok", "ok")
        await agent.query("x")
        await agent.query("y")
        assert {tuple(t.name for t in r.tools) for r in llm.requests} == {
            ("long", "read_offloaded")
        }
        reader = llm.requests[0].tools[1]
        assert set(reader.parameters["properties"]) == {"name", "offset", "limit"}
        assert reader.parameters["required"] == ["name"]
        assert reader.idempotent

    async def test_over_thirty_turns_each_request_begins_with_the_one_before(self, tmp_path):
        async with OpenAIDouble([*(ask(("long", {"n": n})) for n in range(30)), "done"]) as server:
            llm = ChatOpenAI("m", base_url=server.base_url, api_key="k")
            agent = Offload(llm=llm, tools=[long], offload_dir=tmp_path)
            await agent.query("x")
            assert server.refusals == []
            sent = [request["messages"] for request in server.requests]
            assert len(sent) == 31
            assert all(after[: len(before)] == before for before, after in pairwise(sent))
            assert all(r["tools"] == server.requests[0]["tools"] for r in server.requests)
            assert len(list(tmp_path.iterdir())) == 30

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
        assert f"There are: {name_in(agent)}." in text
        assert "SECRET" not in text

    @pytest.mark.parametrize("name", ["../secret", "secret", "", ".", "a\0b", ["x"], 7, None])
    async def test_a_log_from_elsewhere_opens_no_other_file(self, name, tmp_path):
        agent, _ = make(tmp_path, call("long"), "ok")
        await agent.query("x")
        (tmp_path / "secret").write_text("SECRET")
        (tmp_path / "results" / "secret").write_text("SECRET")
        history = agent.messages
        history[2] = ToolMessage(history[2].tool_call_id, "long", "x", extra={"offloaded": name})
        agent.load_history(history)
        text, is_error = await read(agent, str(name))
        assert is_error
        assert "SECRET" not in text

    async def test_nothing_outside_of_the_directory_is_even_opened(self, tmp_path, monkeypatch):
        (tmp_path / "secret").write_text("SECRET")
        (tmp_path / "results").mkdir()
        opened, real = [], offload_module._open_result
        monkeypatch.setattr(
            offload_module,
            "_open_result",
            lambda path, flags: opened.append(path) or real(path, flags),
        )
        for name in ("../secret", str(tmp_path / "secret"), "secret/../../secret"):
            assert load(tmp_path / "results", name) is None
        assert {Path(path).parent for path in opened} == {tmp_path / "results"}

    async def test_one_agent_does_not_read_what_another_keeps(self, tmp_path):
        agent, _ = make(tmp_path, call("long"), "ok")
        await agent.query("x")
        other, _ = make(tmp_path)
        text, is_error = await read(other, name_in(agent))
        assert is_error
        assert text.endswith("There are: none.")

    async def test_a_cleared_history_takes_the_names_with_it(self, tmp_path):
        agent, _ = make(tmp_path, call("long"), "ok")
        await agent.query("x")
        name = name_in(agent)
        agent.clear_history()
        assert (await read(agent, name))[1]

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

    @pytest.mark.parametrize("damage", ["delete", "change", "empty", "folder", "not UTF-8"])
    async def test_a_file_that_is_not_as_it_was_is_an_error_that_says_so(self, damage, tmp_path):
        agent, _ = make(tmp_path, call("long"), "ok")
        await agent.query("x")
        name = name_in(agent)
        file = tmp_path / "results" / name
        data = {"change": LONG.encode(), "empty": b"", "not UTF-8": b"\xff"}.get(damage)
        file.unlink()
        if damage == "folder":
            file.mkdir()
        elif data is not None:
            file.write_bytes(data)
        text, is_error = await read(agent, name)
        assert is_error
        assert text == f"The text of {name} is gone or was changed: call the tool again."

    @posix
    async def test_a_link_or_a_pipe_in_the_place_of_a_file_is_not_followed(self, tmp_path):
        agent, _ = make(tmp_path, call("long"), "ok")
        await agent.query("x")
        name = name_in(agent)
        file = tmp_path / "results" / name
        file.rename(tmp_path / "moved")
        file.symlink_to(tmp_path / "moved")
        assert (await read(agent, name))[1]
        file.unlink()
        os.mkfifo(file)
        assert (await read(agent, name))[1]

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

    async def test_a_full_disk_leaves_no_half_file(self, tmp_path, monkeypatch, caplog):
        def full(fd):
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(os, "fsync", full)
        agent, llm = make(tmp_path, call("long"), "ok")
        await agent.query("x")
        assert "characters left out" in shown(llm.requests[1])[-1]
        assert "No space left" in caplog.text
        assert list((tmp_path / "results").iterdir()) == []

    async def test_a_full_disk_does_not_matter_for_what_is_kept_already(
        self, tmp_path, monkeypatch
    ):
        store(tmp_path / "results", f"0 {LONG}")
        monkeypatch.setattr(os, "fsync", lambda fd: os.fstat(-1))
        agent, _ = make(tmp_path, call("long"), "ok")
        await agent.query("x")
        assert name_in(agent)

    @pytest.mark.parametrize("directory", ["a\0b", "x" * 5_000])
    async def test_a_directory_that_cannot_be_is_no_crash(self, directory, tmp_path, caplog):
        agent = Offload(
            llm=ScriptedModel(call("long"), "ok"), tools=[long], offload_dir=tmp_path / directory
        )
        assert await agent.query("x") == "ok"
        assert "characters left out" in agent.messages[2].text
        assert "is cut" in caplog.text

    async def test_a_disk_that_hangs_is_not_waited_for_for_ever(
        self, tmp_path, monkeypatch, caplog
    ):
        release = threading.Event()
        monkeypatch.setattr(offload_module, "store", lambda folder, text: release.wait(30))
        monkeypatch.setattr(offload_module, "WRITE_SECONDS", 0.01)
        agent, llm = make(tmp_path, call("long"), "ok")
        try:
            assert await agent.query("x") == "ok"
        finally:
            release.set()
        assert "characters left out" in shown(llm.requests[1])[-1]

    async def test_a_cancel_while_writing_loses_no_result(self, tmp_path, monkeypatch):

        release, writing = threading.Event(), asyncio.Event()
        loop = asyncio.get_running_loop()

        def slow(folder, text):
            loop.call_soon_threadsafe(writing.set)
            release.wait(30)

        monkeypatch.setattr(offload_module, "store", slow)
        agent, _ = make(tmp_path, call("long"))
        task = asyncio.create_task(agent.query("x"))
        await writing.wait()
        task.cancel()
        try:
            with pytest.raises(asyncio.CancelledError):
                await task
        finally:
            release.set()
        result = agent.messages[2]
        assert result.text.startswith("0 line 0")
        assert "characters left out" in result.text

    async def test_such_a_cancel_comes_at_the_next_await(self, tmp_path, monkeypatch):
        release, writing, reached = threading.Event(), asyncio.Event(), []
        loop = asyncio.get_running_loop()

        def slow(folder, text):
            loop.call_soon_threadsafe(writing.set)
            release.wait(30)

        class Waiting(Offload):
            async def call_tool(self, call):
                message = await super().call_tool(call)
                await asyncio.sleep(0)
                reached.append(message)
                return message

        monkeypatch.setattr(offload_module, "store", slow)
        agent = Waiting(llm=ScriptedModel(call("long")), tools=[long], offload_dir=tmp_path)
        task = asyncio.create_task(agent.query("x"))
        await writing.wait()
        task.cancel()
        try:
            with pytest.raises(asyncio.CancelledError):
                await task
        finally:
            release.set()
        assert reached == []

    # ---- agents, forks and sessions

    async def test_many_agents_write_the_same_text_at_once(self, tmp_path):
        agents = [make(tmp_path, [call("long")] * 4, "ok")[0] for _ in range(8)]
        await asyncio.gather(*(agent.query("x") for agent in agents))
        assert len({name_in(agent) for agent in agents}) == 1
        assert len(list((tmp_path / "results").iterdir())) == 1
        assert not (await read(agents[0], name_in(agents[0])))[1]

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
        assert agent.offload_folder is None, "nothing is made before it is needed"
        await agent.query("x")
        folder, fork = agent.offload_folder.path, agent.fork()
        assert [file.name for file in folder.iterdir()] == [name_in(agent)]
        assert sys.platform == "win32" or stat.S_IMODE(folder.stat().st_mode) == 0o700
        del agent
        gc.collect()
        assert folder.exists()
        del fork
        gc.collect()
        assert not folder.exists()

    async def test_a_new_process_reads_what_the_session_kept(self, tmp_path):
        settings = {
            "tools": [long],
            "session": "s",
            "session_dir": tmp_path / "sessions",
            "offload_dir": tmp_path / "results",
        }
        agent = Kept(llm=ScriptedModel(call("long"), "ok"), **settings)
        await agent.query("x")
        name, before = name_in(agent), agent.messages
        agent.close()
        agent = Kept(llm=ScriptedModel(), **settings)
        assert agent.messages == before
        text, is_error = await read(agent, name, offset=24_000)
        assert not is_error
        size = f"{len(LONG) + 2:,}"
        assert text.startswith(f"[Characters 24,000 to {size} of {size}; this is the end.]")
        agent.close()

    async def test_a_session_without_a_directory_says_that_the_text_is_gone(self, tmp_path):
        settings = {"tools": [long], "session": "s", "session_dir": tmp_path}
        agent = Kept(llm=ScriptedModel(call("long"), "ok"), **settings)
        await agent.query("x")
        name = name_in(agent)
        agent.close()
        del agent
        gc.collect()
        agent = Kept(llm=ScriptedModel(), **settings)
        assert "is gone" in (await read(agent, name))[0]
        agent.close()

    async def test_a_tool_that_changes_the_working_directory_does_not_move_it(
        self, tmp_path, monkeypatch
    ):
        monkeypatch.chdir(tmp_path)
        (tmp_path / "elsewhere").mkdir()

        @tool("Go elsewhere")
        async def go() -> str:
            os.chdir(tmp_path / "elsewhere")
            return LONG

        agent = Offload(llm=ScriptedModel(call("go"), "ok"), tools=[go], offload_dir="results")
        await agent.query("x")
        assert (tmp_path / "results" / name_in(agent)).exists()
        assert not (await read(agent, name_in(agent)))[1]

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

    @pytest.mark.parametrize("tokens", [99, 2_000.5, float("nan"), None])
    async def test_what_is_no_threshold_is_an_error(self, tokens):
        with pytest.raises(ValueError, match=f"100 or more, not {tokens}"):
            Offload(llm=ScriptedModel(), offload_tokens=tokens)

    async def test_another_tool_of_that_name_is_an_error(self):
        @tool("Mine", name="read_offloaded")
        async def mine() -> None: ...

        with pytest.raises(ValueError, match="two tools named 'read_offloaded'"):
            await Offload(llm=ScriptedModel("x"), tools=[mine]).query("x")


alphabets = st.sampled_from(["a", "é", "語", "😀", "a😀\n", "\r\n"])


@given(alphabets, st.integers(100, 500), st.integers(0, 3_000))
def test_a_preview_is_of_a_quarter_of_the_tokens_and_leads_back_to_the_whole(piece, tokens, more):
    text = piece * (tokens * 4 // len(piece.encode()) + 1 + more)
    assert count_tokens(text) > tokens
    shown = preview(text, "0123456789abcdef", tokens)
    assert count_tokens(shown) <= tokens / 4 + 80
    note, rest = shown.split("]\n", 1)
    offset = int(re.search(r"offset=(\d+)", note)[1])
    assert rest.startswith(text[:offset])
    head, tail = rest[:offset], rest.rsplit(" left out ...]\n", 1)[1]
    assert text.endswith(tail)
    left_out = int(re.search(r"\[\.\.\. ([\d,]+) left", rest[offset:])[1].replace(",", ""))
    assert len(head) + left_out + len(tail) == len(text)


@given(st.text(min_size=1), st.integers(-5, 60), st.integers(-5, 60))
def test_an_excerpt_says_where_it_is_and_where_to_go_on(text, offset, limit):
    if offset >= len(text):
        with pytest.raises(ToolError, match=f"there are {len(text)} characters"):
            excerpt(text, offset, limit)
        return
    where, piece = excerpt(text, offset, limit).split("]\n", 1)
    begin, end, total = (int(n.replace(",", "")) for n in re.findall(r"[\d,]+(?= |;)", where)[:3])
    assert (text[begin:end], len(text)) == (piece, total)
    assert begin == max(0, offset)
    assert 1 <= end - begin <= max(1, limit)
    assert where.endswith("this is the end." if end == total else f"go on with offset={end}.")


@given(st.text(st.characters(codec="utf-8")))
def test_what_is_stored_is_what_is_loaded(text):
    folder = Path(__file__).parent / "never"
    assert load(folder, "0" * 16) is None

    with tempfile.TemporaryDirectory() as made:
        name = store(Path(made), text)
        assert load(Path(made), name) == text
        assert store(Path(made), text) == name
        assert load(Path(made), "../" + name) is None
        assert os.listdir(made) == [name]
