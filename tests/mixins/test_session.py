"""Session: the log is a file, which nothing that happens to it or to the process can ruin."""

import copy
import errno
import gc
import json
import logging
import os
import pickle
import re
import shutil
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest

import agentloop.store as store_module
from agentloop import (
    Agent,
    AssistantMessage,
    CompactionConfig,
    FilePart,
    ImagePart,
    Loop,
    RunEnd,
    ScriptedModel,
    Summary,
    SystemMessage,
    TextPart,
    ToolCall,
    ToolMessage,
    ToolStart,
    Unknown,
    Usage,
    UserMessage,
    dump_record,
    load_record,
    open_calls,
    tool,
    validate,
    view,
)
from agentloop.errors import ModelError, SessionLocked
from agentloop.mixins.session import Session
from agentloop.models.openai import ChatOpenAI
from agentloop.models.scripted import call
from agentloop.saved import load_log, sessions
from agentloop.store import FileStore

from .. import some, test_loop
from ..doubles.openai_double import Failure, OpenAIDouble
from ..doubles.openai_double import calls as ask
from ..test_loop import add, shown

DATA = Path(__file__).parent.parent / "data"
posix = pytest.mark.skipif(sys.platform == "win32", reason="needs POSIX")


class SessionAgent(Session, Agent):
    """What people write."""


def open_session(folder, *script, name="s", agent_class=SessionAgent, **settings):
    llm = ScriptedModel(*script)
    settings.setdefault("session_fsync", False)
    return agent_class(llm=llm, session=name, session_dir=folder, **settings), llm


def lines(folder, name="s"):
    return (Path(folder) / f"{name}.jsonl").read_bytes().split(b"\n")


def saved(folder, name="s"):
    """The log that the file holds now."""
    return load_log(FileStore(folder).read(name))


def write(folder, *records, name="s", header=b'{"type":"session","schema":1}'):
    path = Path(folder) / f"{name}.jsonl"
    written = [dump_record(r) if not isinstance(r, bytes) else r for r in records]
    path.write_bytes(b"".join(line + b"\n" for line in ([header] if header else []) + written))
    return path


class TestSession(test_loop.TestLoop):
    agent_class = Session


class TestLoopWithAFile(test_loop.TestLoop):
    """The loop's contract again, each agent with a file; after each test it holds the log."""

    agent_class = Session

    @pytest.fixture(autouse=True)
    def _files(self, tmp_path):
        self.folder, self.agents = tmp_path, []
        yield
        for agent in self.agents:
            agent._save()  # what a test put into the log by hand
            assert saved(self.folder, agent.session) == agent.log

    def make(self, *script, **settings):
        name = f"s{len(self.agents)}"
        agent, llm = super().make(
            *script, session=name, session_dir=self.folder, session_fsync=False, **settings
        )
        self.agents.append(agent)
        return agent, llm


class TestLoopWithASessionLast(TestLoopWithAFile):
    agent_class = type("SessionLast", (Agent, Session), {})


# ---- keeping and continuing


class TestContinuing:
    async def test_the_end_of_a_with_block_lets_go_of_the_session(self, tmp_path):
        with Session(llm=ScriptedModel("ok"), session="s", session_dir=tmp_path) as agent:
            await agent.query("x")
        with Session(llm=ScriptedModel("ok"), session="s", session_dir=tmp_path) as again:
            assert [message.text for message in again.messages] == ["x", "ok"]

    async def test_the_next_process_goes_on_where_the_last_one_ended(self, tmp_path):
        agent, _ = open_session(tmp_path, call("add", a=1, b=2), "3", tools=[add])
        await agent.query("1 + 2?")
        agent.close()
        again, llm = open_session(tmp_path, "As I said, 3.", tools=[add])
        assert again.log == agent.log
        assert await again.query("Sure?") == "As I said, 3."
        assert shown(llm.requests[0]) == ["1 + 2?", "", "3", "3", "Sure?"]

    async def test_without_a_name_no_file_is_made(self, tmp_path):
        agent = Session(llm=ScriptedModel("ok"), session_dir=tmp_path / "none")
        await agent.run("x")
        agent.close()
        assert not (tmp_path / "none").exists()

    async def test_each_record_is_in_the_file_when_record_returns(self, tmp_path):
        agent, _ = open_session(tmp_path)
        for n in range(3):
            agent.record(UserMessage(f"{n}"))
            assert saved(tmp_path) == agent.log

    async def test_open_calls_stay_open_and_run_only_if_they_never_started(self, tmp_path):
        ran = []

        @tool("Once")
        async def once(n: int) -> str:
            ran.append(n)
            return "done"

        calls = (ToolCall("a", "once", '{"n":1}'), ToolCall("b", "once", '{"n":2}'))
        write(tmp_path, UserMessage("x"), AssistantMessage(tool_calls=calls), ToolStart("a"))
        agent, llm = open_session(tmp_path, "ok", tools=[once])
        assert [c.id for c in open_calls(agent.log)] == ["a", "b"]
        assert (await agent.run()).text == "ok"
        assert ran == [2]
        assert "may have had effects" in shown(llm.requests[0])[2]
        assert shown(llm.requests[0])[3] == "done"

    async def test_what_was_cleared_stays_in_the_file_and_out_of_the_log(self, tmp_path):
        agent, _ = open_session(tmp_path, "one", "two")
        await agent.query("first")
        agent.clear_history()
        await agent.query("second")
        agent.close()
        again, _ = open_session(tmp_path)
        assert again.log == agent.log
        assert [m.text for m in again.messages] == ["second", "two"]
        assert b"first" in b"".join(lines(tmp_path))

    async def test_a_summary_means_the_same_after_a_restart(self, tmp_path):
        small = CompactionConfig(context_window=200, threshold_ratio=0.5)

        def play(messages, tools):
            return "SUMMARY" if "Write a summary" in messages[-1].text else "word " * 80

        agent, _ = open_session(tmp_path, play, compaction=small)
        for question in ("a", "b", "c"):
            await agent.query(question)
        assert any(isinstance(record, Summary) for record in agent.log)
        agent.close()
        again, _ = open_session(tmp_path)
        assert again.messages == agent.messages

    def test_everything_is_for_the_owners_eyes_only(self, tmp_path):
        open_session(tmp_path / "new")
        if sys.platform != "win32":
            assert (tmp_path / "new").stat().st_mode & 0o777 == 0o700
            assert (tmp_path / "new" / "s.jsonl").stat().st_mode & 0o777 == 0o600

    async def test_it_is_on_the_disk_before_the_next_model_call_and_at_the_end(
        self, tmp_path, monkeypatch
    ):
        synced = []
        proxy = Faults(monkeypatch).count_only()
        model = ScriptedModel(
            lambda m, t: synced.append(proxy.calls["fsync"]) or call("add", a=1, b=1),
            lambda m, t: synced.append(proxy.calls["fsync"]) or "2",
        )
        agent = Session(llm=model, session="s", session_dir=tmp_path, tools=[add])
        before = proxy.calls["fsync"]
        await agent.run("x")
        assert [n - before for n in (*synced, proxy.calls["fsync"])] == [1, 2, 3]
        off = Session(
            llm=ScriptedModel("x"), session="t", session_dir=tmp_path, session_fsync=False
        )
        await off.run("x")
        assert proxy.calls["fsync"] - before == 3

    def test_a_record_that_cannot_be_written_is_in_neither(self, tmp_path):
        agent, _ = open_session(tmp_path)
        with pytest.raises(ValueError, match="serialize"):
            agent.record(AssistantMessage("x", raw=object()))
        agent.record(UserMessage("y"))
        assert saved(tmp_path) == agent.log == [UserMessage("y")]


# ---- fork, snapshot, list


class TestForks:
    async def test_a_fork_is_in_memory_unless_it_has_a_name(self, tmp_path):
        agent, _ = open_session(tmp_path, lambda m, t: "ok")
        await agent.query("x")
        before = lines(tmp_path)
        twin = agent.fork()
        await twin.query("only in the twin")
        assert lines(tmp_path) == before
        assert os.listdir(tmp_path) == ["s.jsonl"]
        agent.record(UserMessage("still open"))
        assert b"still open" in lines(tmp_path)[-2]

    async def test_a_fork_with_a_name_is_a_session_of_its_own(self, tmp_path):
        agent, _ = open_session(tmp_path, lambda m, t: "ok")
        await agent.query("x")
        before = lines(tmp_path)
        twin = agent.fork(session="twin")
        await twin.query("more")
        twin.close()
        assert lines(tmp_path) == before
        again, _ = open_session(tmp_path, name="twin")
        assert again.log == twin.log
        assert sorted(os.listdir(tmp_path)) == ["s.jsonl", "twin.jsonl"]

    async def test_a_fork_never_overwrites_a_session(self, tmp_path):
        agent, _ = open_session(tmp_path)
        open_session(tmp_path, name="other")[0].record(UserMessage("mine"))
        before = lines(tmp_path, "other")
        for name in ("other", "s"):
            with pytest.raises(FileExistsError, match="already"):
                agent.fork(session=name)
        assert lines(tmp_path, "other") == before

    async def test_a_fork_takes_no_open_call_with_it(self, tmp_path):
        calls = (ToolCall("a", "add", '{"a":1,"b":1}'),)
        write(tmp_path, UserMessage("x"), AssistantMessage(tool_calls=calls))
        agent, _ = open_session(tmp_path, tools=[add])
        twin = agent.fork(session="twin")
        assert open_calls(agent.log) == list(calls)
        assert open_calls(saved(tmp_path, "twin")) == [] == open_calls(twin.log)

    async def test_a_snapshot_is_a_place_to_go_back_to(self, tmp_path):
        agent, llm = open_session(tmp_path, "one", "two", "three")
        await agent.query("first")
        place = agent.snapshot("before")
        await agent.query("second")
        agent.close()
        again, llm = open_session(tmp_path, "other")
        assert again.fork(at="before").log == again.fork(at=place).log == agent.log[:place]
        assert await again.fork(at="before", session="twin").query("instead") == "other"
        assert shown(llm.requests[0]) == ["first", "one", "instead"]
        assert again.fork(at=0).log == []

    def test_of_snapshots_with_one_label_the_newest_counts(self, tmp_path):
        agent, _ = open_session(tmp_path)
        agent.snapshot("x")
        agent.record(UserMessage("a"))
        agent.snapshot("x")
        assert len(agent.fork(at="x").log) == 3
        with pytest.raises(ValueError, match=r"no snapshot 'y'; there are: \['x'\]"):
            agent.fork(at="y")

    def test_a_fork_is_whole_or_not_there(self, tmp_path, monkeypatch):
        agent, _ = open_session(tmp_path)
        agent.record(UserMessage("a"))
        with monkeypatch.context() as patch:
            patch.setattr(store_module.os, "link", fail_with(errno.ENOSPC))
            with pytest.raises(OSError, match="space"):
                agent.fork(session="twin")
        assert os.listdir(tmp_path) == ["s.jsonl"]
        assert agent.fork(session="twin").log == agent.log

    def test_of_two_forks_into_one_name_the_first_wins(self, tmp_path):
        store, first = FileStore(tmp_path), dump_record(UserMessage("first"))

        def lines():
            store.create("twin", [first]).close()
            yield dump_record(UserMessage("second"))

        with pytest.raises(FileExistsError, match="already"):
            store.create("twin", lines())
        assert [line for _, line in store.read("twin")] == [first]
        assert os.listdir(tmp_path) == ["twin.jsonl"]

    @pytest.mark.parametrize("take", [copy.deepcopy, pickle.dumps])
    def test_an_open_session_is_neither_pickled_nor_copied_deeply(self, tmp_path, take):
        agent, _ = open_session(tmp_path)
        with pytest.raises(TypeError, match=r"use fork\(\)"):
            take(agent.journal)
        agent.record(UserMessage("a"))
        assert saved(tmp_path) == agent.log

    async def test_a_copy_is_in_memory_and_leaves_the_file_alone(self, tmp_path):
        agent, _ = open_session(tmp_path, lambda m, t: "ok")
        await agent.query("one")
        twin = copy.copy(agent)
        await twin.query("two")
        await agent.query("three")
        assert saved(tmp_path) == agent.log
        assert [m.text for m in agent.messages] == ["one", "ok", "three", "ok"]
        assert [m.text for m in twin.messages] == ["one", "ok", "two", "ok"]

    def test_a_fork_of_a_session_with_unknown_records_keeps_them(self, tmp_path):
        new = b'{"type":"from_the_future","deep":{"x":[1,2]}}'
        write(tmp_path, UserMessage("a"), new, AssistantMessage("b"))
        agent, _ = open_session(tmp_path)
        agent.fork(session="twin")
        assert lines(tmp_path, "twin")[2] == new
        assert [m.text for m in agent.messages] == ["a", "b"]


class TestList:
    async def test_sessions_are_listed_newest_first_with_what_they_cost(self, tmp_path):
        paid = AssistantMessage("ok", usage=Usage(100, 10))
        agent, _ = open_session(tmp_path, paid, paid, name="long")
        await agent.query("Write\n  a story " + "about a very long train " * 10)
        await agent.query("More")
        open_session(tmp_path, name="empty")
        os.utime(tmp_path / "long.jsonl", (2e9, 2e9))
        long, empty = sessions(tmp_path, price=lambda usage: usage.input_tokens / 100)
        assert (long.name, long.modified, long.cost) == ("long", 2e9, 2.0)
        assert long.title == "Write a story about a very long train about a very long tra…"
        assert long.usage == Usage(200, 20)
        assert long.size == (tmp_path / "long.jsonl").stat().st_size
        assert (empty.name, empty.title, empty.usage) == ("empty", "", Usage())
        assert sessions(tmp_path)[0].cost is None

    def test_a_list_shows_only_sessions_and_follows_no_link(self, tmp_path):
        folder = tmp_path / "sessions"
        folder.mkdir()
        write(folder, UserMessage("the task"), name="good")
        (folder / "notes.txt").write_text("x")
        (folder / "a.b.jsonl").write_text("x")
        (folder / "-x.jsonl").write_text("x")
        (folder / "dir.jsonl").mkdir()
        write(folder, name="newer", header=b'{"type":"session","schema":2}')
        if sys.platform != "win32":
            (folder / "link.jsonl").symlink_to(write(tmp_path, name="outside"))
        found = {info.name: info.title for info in sessions(folder)}
        assert set(found) == {"good", "newer"}
        assert found["good"] == "the task"
        assert "schema 2" in found["newer"]

    def test_a_session_that_vanishes_meanwhile_ends_no_list(self, tmp_path):
        for n in range(9):
            write(tmp_path, name=f"s{n}")
        names = [entry.name for entry in os.scandir(tmp_path)]
        stored = FileStore(tmp_path).list()
        next(stored)
        (tmp_path / names[4]).unlink()
        assert len([*stored]) == 7

    def test_where_there_is_no_directory_there_are_no_sessions(self, tmp_path):
        assert sessions(tmp_path / "none") == []
        assert not (tmp_path / "none").exists()

    def test_the_title_is_that_of_the_present_conversation(self, tmp_path):
        agent, _ = open_session(tmp_path)
        agent.load_history([UserMessage("old")])
        agent.load_history([UserMessage("new")])
        assert [info.title for info in sessions(tmp_path)] == ["new"]


# ---- damaged files


def good_session(folder):
    """A small session with calls, results and several turns; its bytes."""
    agent, _ = open_session(
        folder, call("add", a=1, b=2), "three é 🚂", "four", tools=[add], name="good"
    )
    agent.run_sync("1 + 2?")
    agent.run_sync("2 + 2?")
    agent.close()
    return (Path(folder) / "good.jsonl").read_bytes()


class TestDamage:
    @pytest.mark.parametrize("which", ["fresh", "frozen"])
    def test_cut_at_any_byte_nothing_else_is_lost_and_nothing_fuses(self, tmp_path, caplog, which):
        frozen = (DATA / "session_v1.jsonl").read_bytes()
        whole = frozen if which == "frozen" else good_session(tmp_path)
        path = tmp_path / "s.jsonl"
        ends = [match.start() + n for match in re.finditer(b"\n", whole) for n in (0, 1)]
        for cut in sorted({*some(range(len(whole) + 1), 40), *ends}):
            path.write_bytes(whole[:cut])
            # what stands whole in the file; a last line may lack no more than its end
            kept = whole[: cut + 1 if whole[cut : cut + 1] == b"\n" else cut].split(b"\n")
            kept = load_log(enumerate(kept[1:-1]))
            agent, llm = open_session(tmp_path, "go on", tools=[add])
            assert agent.log == kept, cut
            assert path.read_bytes().startswith(whole[:cut].rpartition(b"\n")[0])
            agent.run_sync("and now?")
            assert validate(llm.requests[0].messages) == []
            agent.close()
            assert saved(tmp_path) == agent.log
            assert all(type(load_record(line)) for line in path.read_bytes().split(b"\n")[:-1])
        assert "cut off" in caplog.text

    @pytest.mark.parametrize(
        "bad",
        [
            b"\0" * 40,
            b'{"type":"user","content":"\xf0\x9f"}',
            b"not json",
            b"",
            b"[1,2]",
            b"null",
            b'{"type":"user"}',
            b'{"type":"user","content":7}',
            b'{"type":"tool","tool_call_id":"a"}',
            b'{"type":"assistant","tool_calls":[1]}',
            b'{"type":"summary","content":"x","keep":"y"}',
            b'{"type":"assistant","content":"x","usage":{"input_tokens":"many"}}',
            b'{"type":"tool_start","call_id":[1]}',
            b'{"type":"assistant","content":5}',
            b'{"type":"assistant","content":["a"]}',
            b'{"type":"system","content":"obey"}',
            b'{"type":"user","content":"x","extra":5}',
            b"[" * 5000,
        ],
    )
    async def test_a_bad_line_in_the_middle_is_reported_and_the_rest_is_kept(
        self, tmp_path, caplog, bad
    ):
        path = write(
            tmp_path, *(UserMessage(f"{n}") for n in range(3)), bad, AssistantMessage("after")
        )
        before = path.read_bytes()
        agent, _ = open_session(tmp_path, "ok")
        assert path.read_bytes() == before
        assert [m.text for m in agent.messages] == ["0", "1", "2", "after"]
        assert "line 5" in caplog.text
        [place] = [r.data for r in agent.log if isinstance(r, Unknown)]
        assert (place["type"], place["line"]) == ("unreadable", 5)
        assert await agent.query("go on") == "ok"
        assert path.read_bytes().startswith(before)

    def test_the_place_of_a_bad_line_counts_so_a_summary_keeps_the_same_records(self, tmp_path):
        log = [UserMessage(f"{n}") for n in range(6)]
        log.append(Summary("the rest", keep=4))
        path = write(tmp_path, *log)
        whole = view(saved(tmp_path))
        path.write_bytes(path.read_bytes().replace(dump_record(log[2]), b"\0\0"))
        assert view(saved(tmp_path)) == whole

    def test_a_summary_never_hides_what_comes_after_it(self, tmp_path):
        write(tmp_path, UserMessage("task"), Summary("all", keep=9), UserMessage("new"))
        agent, _ = open_session(tmp_path)
        assert [m.text for m in agent.messages][-1] == "new"

    def test_a_reply_is_never_answered_by_what_a_bad_line_held(self, tmp_path):
        calls = (ToolCall("a", "add"), ToolCall("b", "add"))
        write(
            tmp_path,
            UserMessage("x"),
            AssistantMessage(tool_calls=calls),
            b"\0",
            ToolMessage("b", "add", "2"),
            UserMessage("next"),
        )
        agent, _ = open_session(tmp_path)
        assert validate(agent.messages) == []

    def test_lines_end_at_newlines_and_nowhere_else(self, tmp_path):
        text = "one\u2028two\u2029three\x85four\x0bfive\rsix"
        agent, _ = open_session(tmp_path)
        agent.record(UserMessage(text))
        agent.close()
        raw = b'{"type":"user","content":"raw \xe2\x80\xa8 \xc2\x85"}\r\n'
        with open(tmp_path / "s.jsonl", "ab") as file:
            file.write(raw)
        again, _ = open_session(tmp_path)
        assert [m.text for m in again.messages] == [text, "raw \u2028 \x85"]

    @pytest.mark.parametrize("schema", [2, 99, "1.1", None, 0, [1]])
    @pytest.mark.parametrize("tail", [b"\n", b"", b"\nhalf a li"])
    def test_a_newer_schema_is_refused_and_left_alone(self, tmp_path, schema, tail):
        header = json.dumps({"type": "session", "schema": schema}).encode()
        path = tmp_path / "s.jsonl"
        path.write_bytes(header + tail)
        with pytest.raises(ValueError, match="schema"):
            open_session(tmp_path)
        with pytest.raises(ValueError, match="schema"):
            open_session(tmp_path)  # and the lock is free again
        assert path.read_bytes() == header + tail

    def test_a_lost_or_bad_header_loses_nothing_else(self, tmp_path, caplog):
        write(tmp_path, UserMessage("a"), header=None)
        assert open_session(tmp_path)[0].messages == [UserMessage("a")]
        write(tmp_path, UserMessage("a"), header=b"\0\0\0", name="t")
        assert open_session(tmp_path, name="t")[0].messages == [UserMessage("a")]
        assert "line 1" in caplog.text

    @pytest.mark.parametrize("text", ["my notes in one line", "my\nnotes", "my\nnotes\n"])
    def test_a_file_that_is_no_session_is_refused_and_left_alone(self, tmp_path, text):
        (tmp_path / "s.jsonl").write_text(text)
        for _ in range(2):
            with pytest.raises(ValueError, match="no session"):
                open_session(tmp_path)
        assert (tmp_path / "s.jsonl").read_text() == text

    def test_an_empty_file_is_an_empty_session(self, tmp_path):
        (tmp_path / "s.jsonl").touch()
        agent, _ = open_session(tmp_path)
        agent.record(UserMessage("a"))
        assert json.loads(lines(tmp_path)[0])["schema"] == 1
        assert saved(tmp_path) == [UserMessage("a")]

    @pytest.mark.slow
    @posix
    def test_a_huge_file_is_read_as_a_stream(self, tmp_path):
        long = dump_record(UserMessage("x" * 100_000))
        with open(tmp_path / "s.jsonl", "wb") as file:
            for _ in range(1500):  # 150 MB, all of it cleared at the end
                file.write(long + b"\n")
            file.write(b'{"type":"reset"}\n{"type":"user","content":"new"}\n')
        code = (
            "import sys, tracemalloc\n"
            "from agentloop.saved import sessions\n"
            "tracemalloc.start()\n"
            "[info] = sessions(sys.argv[1])\n"
            "assert info.title == 'new', info\n"
            "print(tracemalloc.get_traced_memory()[1])\n"
        )
        out = subprocess.check_output([sys.executable, "-c", code, tmp_path], text=True)
        assert int(out) < 20_000_000  # bytes at the most, of a file of 150 MB


# ---- names, links, locks


class TestNames:
    BAD = ("../x", "/etc/x", "a/b", "", ".", "..", "a\0", "a" * 129, "x\n", "é", "e\u0301", "-a")
    BAD += ("_a", "a.b", "a b", "CON", "nul", "Com1", "LPT9", "aux", "a\\b", "C:x", "~", 5, b"x")

    @pytest.mark.parametrize("name", BAD, ids=ascii)
    def test_a_name_that_is_no_plain_file_name_is_refused(self, tmp_path, name):
        folder = tmp_path / "sessions"
        agent, _ = open_session(folder)
        with pytest.raises(ValueError, match="session's name"):
            open_session(folder, name=name)
        with pytest.raises(ValueError, match="session's name"):
            agent.fork(session=name)
        assert os.listdir(tmp_path) == ["sessions"]
        assert os.listdir(folder) == ["s.jsonl"]

    @pytest.mark.parametrize("name", ["a", "A-1_b", "0", "a" * 128, "CONSOLE", "COM", "nul0"])
    def test_other_names_are_fine(self, tmp_path, name):
        open_session(tmp_path, name=name)
        assert os.listdir(tmp_path) == [f"{name}.jsonl"]

    @posix
    def test_links_are_not_followed(self, tmp_path):
        folder = tmp_path / "sessions"
        folder.mkdir()
        secret = tmp_path / "secret"
        secret.write_text("private\n")
        (folder / "s.jsonl").symlink_to(secret)
        (folder / "t.jsonl").symlink_to(tmp_path / "not-there")
        (folder / "u.jsonl").mkdir()
        os.mkfifo(folder / "v.jsonl")
        for name in "stuv":
            with pytest.raises(OSError, match="regular file"):
                open_session(folder, name=name)
            with pytest.raises(OSError, match="regular file"):
                list(FileStore(folder).read(name))
            with pytest.raises(FileExistsError):
                FileStore(folder).create(name, [])
        assert secret.read_text() == "private\n"
        assert not (tmp_path / "not-there").exists()

    @posix
    @pytest.mark.parametrize("flags", [store_module._FLAGS, 0])
    def test_a_link_put_there_behind_our_first_look_is_not_followed(
        self, tmp_path, monkeypatch, flags
    ):
        """By a flag where the system has one, and by a second look where it has none."""
        secret = tmp_path / "secret"
        secret.write_text("private\n")
        (tmp_path / "s.jsonl").symlink_to(secret)
        monkeypatch.setattr(store_module, "_FLAGS", flags)
        monkeypatch.setattr(store_module.os.path, "lexists", lambda path: False)
        with pytest.raises(OSError, match="symbolic link" if flags else "replaced"):
            open_session(tmp_path)
        assert secret.read_text() == "private\n"


class TestLocks:
    def test_the_second_agent_on_a_session_is_refused(self, tmp_path):
        agent, _ = open_session(tmp_path)
        agent.record(UserMessage("a"))
        with pytest.raises(SessionLocked, match=r"'s' is open elsewhere.*fork"):
            open_session(tmp_path)
        agent.record(UserMessage("b"))
        agent.close()
        again, _ = open_session(tmp_path)
        assert again.log == agent.log

    def test_a_closed_agent_records_nothing_and_says_so(self, tmp_path):
        agent, _ = open_session(tmp_path, "x")
        agent.close()
        agent.close()
        before = lines(tmp_path)
        with pytest.raises(ValueError, match="'s' is closed"):
            agent.run_sync("x")
        assert agent.llm.requests == []
        assert lines(tmp_path) == before

    def test_garbage_collection_frees_a_session(self, tmp_path, recwarn):
        agent, _ = open_session(tmp_path)
        twin = agent.fork()
        agent.me = agent  # a cycle
        del agent
        gc.collect()
        open_session(tmp_path)
        assert twin.journal is None
        assert not [warning for warning in recwarn if warning.category is ResourceWarning]

    def test_settings_that_are_wrong_leave_no_lock(self, tmp_path):
        with pytest.raises(ValueError, match="at least 1") as caught:
            open_session(tmp_path, max_iterations=0)
        open_session(tmp_path)
        del caught

    @posix
    def test_a_session_is_locked_for_other_processes_and_free_after_a_kill(self, tmp_path):
        code = (
            "import sys; from agentloop import Loop, ScriptedModel\n"
            "from agentloop.mixins.session import Session\n"
            "agent = Session(llm=ScriptedModel(), session='s', session_dir=sys.argv[1])\n"
            "print('ready', flush=True); sys.stdin.read()"
        )
        with subprocess.Popen(
            [sys.executable, "-c", code, tmp_path], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        ) as child:
            assert child.stdout.readline() == b"ready\n"
            with pytest.raises(SessionLocked):
                open_session(tmp_path)
            child.kill()
            child.wait()
            open_session(tmp_path)


class TestChildren:
    """os.fork(), which multiprocessing uses too."""

    CODE = """if True:
        import os, signal, sys
        from agentloop import Agent, ScriptedModel
        from agentloop.mixins.session import Session
        class Kept(Session, Agent): pass
        agent = Kept(llm=ScriptedModel(lambda m, t: "ok"), session="s", session_dir=sys.argv[1])
        agent.run_sync("parent")
        if os.fork() == 0:
            try:
                agent.run_sync("child")
            except ValueError as error:
                print(error, flush=True)
            if sys.argv[2] == "stays":
                sys.stdin.read()
            os._exit(0)
        if sys.argv[2] == "stays":
            signal.pause()
        os.wait()
        agent.run_sync("parent again")
    """

    @posix
    def test_a_child_writes_nothing_into_its_parents_session(self, tmp_path):
        command = [sys.executable, "-c", self.CODE, tmp_path, "ends"]
        assert "'s' is closed" in subprocess.check_output(command, text=True)
        texts = [record.text for record in saved(tmp_path) if isinstance(record, UserMessage)]
        assert texts == ["parent", "parent again"]

    @posix
    def test_a_child_that_stays_does_not_hold_the_lock(self, tmp_path):
        command = [sys.executable, "-c", self.CODE, tmp_path, "stays"]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        with subprocess.Popen(command, **pipes) as parent:
            assert b"closed" in parent.stdout.readline()
            parent.kill()
            parent.wait()
            agent, _ = open_session(tmp_path)
            assert agent.messages[0].text == "parent"


class TestSignals:
    """A handler of signal.signal() runs in the middle of whatever the main thread does."""

    @pytest.mark.parametrize("where", [os.SEEK_SET, os.SEEK_END], ids=["before", "after"])
    def test_what_it_records_while_a_record_is_written_comes_after_that(
        self, tmp_path, monkeypatch, where
    ):
        agent, _ = open_session(tmp_path)
        write, left = os.write, [3, 2, 1]

        def interrupted(fd, data):
            if left and where == os.SEEK_SET:
                agent.record(UserMessage(f"{left.pop()}"))
            half = write(fd, bytes(data)[: len(data) // 2 + 1])
            if left and where == os.SEEK_END:
                agent.record(UserMessage(f"{left.pop()}"))
            return half

        monkeypatch.setattr(store_module.os, "write", interrupted)
        agent.record(UserMessage("0"))
        assert [record.text for record in agent.log] == ["0", "1", "2", "3"]
        assert saved(tmp_path) == agent.log


class TestNewHistories:
    def test_one_that_cannot_be_saved_leaves_the_old_one(self, tmp_path):
        agent, _ = open_session(tmp_path)
        agent.record(UserMessage("precious"))
        with pytest.raises(ValueError, match="serialize"):
            agent.load_history([UserMessage("a"), UserMessage("b", extra={"x": object()})])
        assert agent.log == saved(tmp_path) == [UserMessage("precious")]

    def test_on_a_full_disk_nothing_is_forgotten(self, tmp_path, monkeypatch):
        agent, _ = open_session(tmp_path)
        agent.record(UserMessage("precious"))
        with monkeypatch.context() as patch:
            Faults(patch, 1, lasting=True)
            with pytest.raises(OSError, match="space"):
                agent.clear_history()
            with pytest.raises(OSError, match="space"):
                agent.record(UserMessage("waits"))
        assert agent.log == [UserMessage("precious"), UserMessage("waits")]
        agent.record(UserMessage("next"))
        assert saved(tmp_path) == agent.log
        agent.clear_history()
        assert saved(tmp_path) == agent.log
        assert agent.messages == []


# ---- disks that fail


def fail_with(number):
    def fail(*args, **kwargs):
        raise OSError(number, os.strerror(number))

    return fail


class Faults:
    """Stands in for `os` in the store, and lets the n-th call of what touches the disk fail."""

    NAMES = ("open", "write", "fsync", "ftruncate", "lseek", "read", "fstat", "lstat", "link")

    def __init__(self, monkeypatch, fail_at=0, *, code=errno.ENOSPC, partly=False, lasting=False):
        self.fail_at, self.code, self.partly, self.lasting = fail_at, code, partly, lasting
        self.calls = dict.fromkeys(self.NAMES, 0)
        self.count, self.failed = 0, ""
        wrapped = {name: self._wrap(name, getattr(os, name)) for name in self.NAMES}
        names = {name: getattr(os, name) for name in dir(os)}
        monkeypatch.setattr(store_module, "os", SimpleNamespace(**(names | wrapped)))

    def count_only(self):
        return self

    def repair(self):
        self.fail_at = 0

    def _wrap(self, name, real):
        def wrapped(*args, **kwargs):
            self.calls[name] += 1
            self.count += 1
            if self.fail_at and (
                self.count == self.fail_at or (self.lasting and self.count > self.fail_at)
            ):
                self.failed = name
                if self.partly and name == "write" and self.count == self.fail_at:
                    return real(args[0], bytes(args[1])[: len(args[1]) // 2])
                raise OSError(self.code, os.strerror(self.code))
            return real(*args, **kwargs)

        return wrapped


class TestFullDisks:
    @pytest.mark.parametrize(
        "how",
        [
            {"code": errno.ENOSPC},
            {"code": errno.ENOSPC, "lasting": True},
            {"code": errno.ENOSPC, "lasting": True, "partly": True},
            {"code": errno.EIO},
        ],
        ids=str,
    )
    async def test_whatever_call_fails_memory_and_disk_agree_when_it_works_again(
        self, tmp_path, monkeypatch, how
    ):
        """Fail the n-th disk operation for n = 1, 2, ... until a scenario sees no fault."""
        n, failed = 0, set()
        while True:
            n += 1
            folder = tmp_path / f"{n}"
            with monkeypatch.context() as patch:
                faults = Faults(patch, n, **how)
                ran, heard, agent = await self.scenario(folder, faults)
                failed.add(faults.failed)
                faults.repair()
                agent = agent or self.agent(folder, ran, heard)  # its constructor failed
                agent.llm = ScriptedModel("all is well")
                assert await agent.query("And now?") == "all is well", (n, faults.failed)
            agent.close()
            again, _ = open_session(folder, "ok", name="s")
            assert again.log == agent.log, (n, faults.failed)
            text = [m.text for m in again.messages]
            assert all(result in text for result in heard), (n, faults.failed)
            assert max((ran.count(i) for i in ran), default=0) <= 1, (n, faults.failed)
            await again.query("next")
            assert all(type(json.loads(line)) is dict for line in lines(folder)[:-1])
            again.close()
            if not faults.failed:
                break
        assert n > 40
        assert {"open", "write", "fsync", "fstat"} <= failed
        print(f"faults: {n - 1} injected ({', '.join(map(str, how.values()))})")

    def agent(self, folder, ran, heard):
        @tool("Note")
        async def note(n: int) -> str:
            ran.append(n)
            return f"noted {n}"

        def hear(event):
            if type(event).__name__ == "ToolResultEvent":
                heard.append(event.result)

        calls = [call("note", n=1), call("note", n=2)]
        llm = ScriptedModel(calls, "first", call("note", n=3), "second")
        return SessionAgent(
            llm=llm, session="s", session_dir=folder, tools=[note], listeners=[hear]
        )

    async def scenario(self, folder, faults):
        ran, heard, agent = [], [], None
        try:
            agent = self.agent(folder, ran, heard)
            await agent.query("one")
            agent.snapshot("here")
            await agent.query("two")
            agent.fork(session=f"twin{faults.fail_at}").close()
        except OSError:
            assert faults.failed
        return ran, heard, agent

    @posix
    async def test_a_full_disk_is_an_error_at_once_and_no_record_is_lost(self, tmp_path):
        import resource

        agent, _ = open_session(tmp_path, "one", "two", "three")
        await agent.query("a")
        size = (tmp_path / "s.jsonl").stat().st_size
        soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (size + 10, hard))  # as if the disk were full
        try:
            with pytest.raises(OSError, match="too large"):
                await agent.query("b")
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        assert len(agent.llm.requests) == 1, "an error before the model call"
        assert await agent.query("b") == "two"
        agent.close()
        again, _ = open_session(tmp_path)
        assert again.log == agent.log
        assert [m.text for m in again.messages] == ["a", "one", "b", "two"]

    def test_a_process_that_dies_on_a_full_disk_leaves_a_session_that_opens(
        self, tmp_path, monkeypatch
    ):
        agent, _ = open_session(tmp_path)
        agent.record(UserMessage("a"))
        with monkeypatch.context() as patch:
            Faults(patch, 1, partly=True, lasting=True)
            with pytest.raises(OSError, match="space"):
                agent.record(UserMessage("b"))
        agent.journal.close()  # as a kill would, without a last attempt
        again, _ = open_session(tmp_path)
        assert again.log == [UserMessage("a")]

    @posix
    @pytest.mark.parametrize("how", ["delete", "move", "replace"])
    async def test_a_file_that_is_gone_is_an_error_before_the_model_call(self, tmp_path, how):
        agent, llm = open_session(tmp_path, "x")
        path = tmp_path / "s.jsonl"
        if how == "delete":
            path.unlink()
        elif how == "move":
            path.rename(tmp_path / "t.jsonl")
        else:
            shutil.copy(path, tmp_path / "copy")
            os.replace(tmp_path / "copy", path)
        with pytest.raises(FileNotFoundError, match="deleted or replaced"):
            await agent.query("a")
        assert llm.requests == []
        assert path.exists() == (how == "replace")

    @posix
    @pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may write")
    def test_a_directory_that_is_read_only_is_an_error_at_once(self, tmp_path):
        tmp_path.chmod(0o555)
        with pytest.raises(PermissionError):
            open_session(tmp_path)
        tmp_path.chmod(0o755)

    def test_a_disk_that_is_read_only_is_an_error_at_once(self, tmp_path, monkeypatch):
        monkeypatch.setattr(store_module.os, "open", fail_with(errno.EROFS))
        with pytest.raises(OSError, match="Read-only"):
            open_session(tmp_path)


# ---- frozen files


class TestFrozenFiles:
    def test_the_session_of_schema_1_is_read_for_ever(self, tmp_path, caplog):
        shutil.copy(DATA / "session_v1.jsonl", tmp_path / "s.jsonl")
        before = (tmp_path / "s.jsonl").read_bytes()
        agent, _ = open_session(tmp_path)
        assert not caplog.records
        assert (tmp_path / "s.jsonl").read_bytes() == before
        assert [type(record).__name__ for record in agent.log] == [
            "Reset RunStart UserMessage AssistantMessage Decision ToolStart ToolMessage "
            "ToolMessage AssistantMessage RunEnd Unknown RunStart UserMessage SideRequest Unknown "
            "AssistantMessage UserMessage Summary AssistantMessage RunEnd Unknown RunStart "
            "UserMessage AssistantMessage ToolStart"
        ][0].split()
        written = [json.loads(dump_record(record)) for record in agent.log]
        assert written == [json.loads(line) for line in before.split(b"\n")[3:-1]]
        assert validate([*agent.messages]) == []
        assert agent.messages[0].content == (
            TextPart("What is on this picture?"),
            ImagePart(data=b"\x89PNG", media_type="image/png"),
            FilePart(url="https://example.com/a.pdf", name="a.pdf"),
        )
        assert agent.usage == Usage(1130, 66, 900, 50, 20)
        assert [c.id for c in open_calls(agent.log)] == ["call_3"]
        assert agent.fork(at="before the second task").log == agent.log[:11]

    async def test_and_goes_on(self, tmp_path):
        shutil.copy(DATA / "session_v1.jsonl", tmp_path / "s.jsonl")
        before = (tmp_path / "s.jsonl").read_bytes()
        agent, llm = open_session(tmp_path, "ok")
        assert await agent.query("Go on") == "ok"
        assert "may have had effects" in shown(llm.requests[0])[-2]
        assert (tmp_path / "s.jsonl").read_bytes().startswith(before)

    def test_a_session_of_a_later_schema_is_refused(self, tmp_path):
        shutil.copy(DATA / "future_version.jsonl", tmp_path / "s.jsonl")
        with pytest.raises(ValueError, match="schema 2.*newer version"):
            open_session(tmp_path)
        assert (tmp_path / "s.jsonl").read_bytes() == (DATA / "future_version.jsonl").read_bytes()


# ---- secrets, and other stores


class TestSecrets:
    async def test_the_models_key_never_reaches_the_file(self, tmp_path):
        key = "sk-very-secret-0123456789"
        refused = Failure(401, f"Incorrect API key provided: {key}")
        script = [ask(("add", {"a": 1, "b": 2})), "It is 3.", refused]
        async with OpenAIDouble(script) as server:
            llm = ChatOpenAI("m", base_url=server.base_url, api_key=key)
            agent = SessionAgent(llm=llm, session="s", session_dir=tmp_path, tools=[add])
            assert await agent.query("1 + 2?") == "It is 3."
            with pytest.raises(ModelError):
                await agent.query("again")
            agent.fork(session="twin").close()
        for path in tmp_path.iterdir():
            content = path.read_bytes()
            assert b"It is 3." in content
            assert key.encode() not in content
            assert b"base_url" not in content
        assert key not in repr(sessions(tmp_path))

    async def test_settings_are_not_in_the_file(self, tmp_path):
        agent, _ = open_session(tmp_path, "ok", system_prompt="the prompt is a setting")
        agent.llm.api_key = "sk-1"
        await agent.query("x")
        assert b"setting" not in b"".join(lines(tmp_path))
        assert not any(isinstance(record, SystemMessage) for record in agent.log)


def recipe(name):
    import runpy

    path = Path(__file__).parents[2] / "examples" / "recipes" / f"{name}.py"
    return SimpleNamespace(**runpy.run_path(str(path)))


class TestRecipes:
    async def test_a_sqlite_store_does_the_same(self, tmp_path):
        sqlite = recipe("sqlite_sessions")
        with sqlite.SQLiteStore(tmp_path / "all.db") as store:
            agent = SessionAgent(
                llm=ScriptedModel(call("add", a=1, b=2), "3", "4", "5"),
                tools=[add],
                session="s",
                session_store=store,
            )
            await agent.query("1 + 2?")
            with pytest.raises(SessionLocked):
                store.open("s")
            twin = agent.fork(session="twin")
            await twin.query("3 + 1?")
            with pytest.raises(FileExistsError):
                agent.fork(session="twin")
            agent.close()
            twin.close()
            again = SessionAgent(llm=ScriptedModel("ok"), session="s", session_store=store)
            assert again.log == agent.log
            assert {info.name: info.title for info in sessions(store=store)} == {
                "s": "1 + 2?",
                "twin": "1 + 2?",
            }
            again.close()
        with sqlite.SQLiteStore(tmp_path / "all.db") as store:
            last = SessionAgent(llm=ScriptedModel("ok"), session="twin", session_store=store)
            assert last.log == twin.log
            last.close()

    def test_in_sqlite_a_create_that_fails_takes_nothing_of_others_back(self, tmp_path):
        with recipe("sqlite_sessions").SQLiteStore(tmp_path / "all.db") as store:
            other = SessionAgent(llm=ScriptedModel(), session="s", session_store=store)

            def lines():
                yield dump_record(UserMessage("a"))
                other.record(UserMessage("acknowledged"))
                raise RuntimeError

            with pytest.raises(RuntimeError):
                store.create("twin", lines())
            assert load_log(store.read("s")) == [UserMessage("acknowledged")]
            assert [*store.read("twin")] == []
            store.create("twin", [dump_record(UserMessage("b"))]).close()
            assert load_log(store.read("twin")) == [UserMessage("b")]

    @pytest.mark.slow
    def test_in_sqlite_threads_wait_for_each_other(self, tmp_path):
        with recipe("sqlite_sessions").SQLiteStore(tmp_path / "all.db") as store:
            agents = [
                SessionAgent(llm=ScriptedModel(), session=f"s{n}", session_store=store)
                for n in range(4)
            ]
            errors = []

            def work(agent):
                try:
                    for n in range(30):
                        agent.record(RunEnd(f"{n}"))  # which syncs
                        next(store.read(agent.session))  # and leaves a reader behind
                        agent.fork(session=f"{agent.session}-{n}").close()
                        sessions(store=store)
                except Exception as error:
                    errors.append(error)

            threads = [threading.Thread(target=work, args=(agent,)) for agent in agents]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            assert errors == []
            assert all(load_log(store.read(agent.session)) == agent.log for agent in agents)

    def test_in_sqlite_an_error_of_the_database_is_an_os_error(self, tmp_path):
        with recipe("sqlite_sessions").SQLiteStore(tmp_path / "all.db") as store:
            journal = store.open("s")
        for work in (store.list, lambda: store.read("s"), lambda: journal.append(b"{}")):
            with pytest.raises(OSError, match="closed"):
                work()

    async def test_a_pool_forgets_what_could_not_be_opened_and_what_is_gone(self, tmp_path):
        def make(name):
            return open_session(tmp_path, lambda m, t: f"{len(m)}", name=name)[0]

        async with recipe("session_pool").SessionPool(make) as pool:
            for n in range(3):
                with pytest.raises(ValueError, match="session's name"):
                    async with pool.agent(f"bad/{n}"):
                        pass
            assert {**pool.turns, **pool.users, **pool.agents} == {}
            async with pool.agent("a") as agent:
                await agent.query("x")
            if sys.platform != "win32":
                (tmp_path / "a.jsonl").unlink()
                with pytest.raises(FileNotFoundError):
                    async with pool.agent("a") as agent:
                        await agent.query("x")
            async with pool.agent("a") as agent:
                await agent.query("x")
            assert [*pool.turns] == [*pool.users] == [*pool.agents] == ["a"]

    async def test_a_pool_keeps_the_sessions_used_last_and_closes_the_others(self, tmp_path):
        pool_recipe = recipe("session_pool")

        def make(name):
            return open_session(tmp_path, lambda m, t: f"{len(m)}", name=name)[0]

        async with pool_recipe.SessionPool(make, size=2) as pool:
            for name in ("a", "b", "a", "c"):
                async with pool.agent(name) as agent:
                    await agent.query(f"for {name}")
            open_session(tmp_path, name="b")[0].close()
            for name in ("a", "c"):
                with pytest.raises(SessionLocked):
                    open_session(tmp_path, name=name)
            async with pool.agent("a") as agent:
                assert len(agent.messages) == 4
        for name in ("a", "b", "c"):
            open_session(tmp_path, name=name)

    @pytest.mark.parametrize("name", ["sqlite_sessions", "session_pool"])
    def test_they_run(self, name, tmp_path):
        path = Path(__file__).parents[2] / "examples" / "recipes" / f"{name}.py"
        environment = {**os.environ, "PYTHONPATH": str(path.parents[2]), "HOME": str(tmp_path)}
        out = subprocess.check_output(
            [sys.executable, "-W", "error", path], text=True, cwd=tmp_path, env=environment
        )
        assert out.strip()


@posix
def test_a_session_that_is_not_read_after_all_holds_no_file(tmp_path):
    write(tmp_path, UserMessage("a"))
    before = os.dup(0)
    os.close(before)
    lines = FileStore(tmp_path).read("s")
    after = os.dup(0)
    os.close(after)
    assert before == after
    assert len([*lines]) == 1


def test_nothing_is_logged_about_a_good_session(tmp_path, caplog):
    with caplog.at_level(logging.INFO, "agentloop"):
        good_session(tmp_path)
        open_session(tmp_path, name="good")
    assert not [record for record in caplog.records if record.name == "agentloop"]


def test_a_session_without_other_mixins_is_a_loop():
    assert issubclass(Session, Loop)
