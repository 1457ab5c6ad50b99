"""Session: the log is a file that survives crashes, full disks and concurrent processes."""

import errno
import gc
import json
import os
import runpy
import shutil
import subprocess
import sys
import threading
from datetime import UTC, datetime
from enum import Enum
from pathlib import Path
from types import SimpleNamespace

import pytest

import agentloop.common.store as store_module
import agentloop.mixins.session as session_module
from agentloop import (
    Agent,
    FilePart,
    ImagePart,
    ScriptedModel,
    SystemMessage,
    TextPart,
    tool,
    validate_messages,
)
from agentloop.common.records import dump_record, load_record
from agentloop.common.review import Decision
from agentloop.common.store import HEADER, read_log, session_path
from agentloop.errors import SessionLocked
from agentloop.messages import (
    AssistantMessage,
    ToolCall,
    Unknown,
    Usage,
    UserMessage,
    frozen,
)
from agentloop.mixins.approval import Approval, Deferred
from agentloop.mixins.hooks import Withheld
from agentloop.mixins.message_queue import MessageQueue
from agentloop.mixins.session import Session, list_sessions
from agentloop.models.scripted import call
from agentloop.transcript import Mark, RunStart
from tests import ROOT, SLOW
from tests.core import test_loop
from tests.core.test_loop import add, shown

FROZEN = ROOT / "tests" / "data" / "session_v2.jsonl"
posix = pytest.mark.skipif(sys.platform == "win32", reason="needs POSIX")

BAD_LINES = [
    b"",
    b"\0" * 40,
    b"not json",
    b"[" * 5000,
    b'{"type":"user"}',
    b'{"type":"user","content":"\xf0\x9f"}',
    b'{"type":"user","content":7}',
]
BAD_NAMES = ["../x", "/etc/x", "a/b", "a\\b", "C:x", "~", "", ".", "..", "a.b", "a b", "a\0", "x\n"]
BAD_NAMES += ["a" * 129, "é", "e\u0301", "-a", "_a", "CON", "nul", "Com1", "LPT9", "aux"]
HOLDER = """
import sys
import tracemalloc
from agentloop import ScriptedModel, Session
agent = Session(llm=ScriptedModel(), session="s", session_dir=sys.argv[1])
print("ready", flush=True)
sys.stdin.read()
"""


class Color(Enum):
    RED = "red"


@frozen
class TupleMark(Mark):
    value: tuple[object, ...]


@frozen
class ColorMark(Mark):
    value: Color


@frozen
class TimeMark(Mark):
    value: datetime


@frozen
class UsageMark(Mark):
    value: Usage | None


@frozen
class CallMark(Mark):
    value: ToolCall


@frozen
class PromptMark(Mark):
    value: UserMessage


@frozen
class BytesMark(Mark):
    value: bytes


OWN_MARKS = {
    tuple: TupleMark,
    Color: ColorMark,
    datetime: TimeMark,
    Usage: UsageMark,
    type(None): UsageMark,
    ToolCall: CallMark,
    UserMessage: PromptMark,
    bytes: BytesMark,
}


class SessionAgent(Session, Agent):
    """A session without fsync, for fast tests."""

    session_fsync = False


def open_session(folder, *script, name="s", **settings):
    llm = ScriptedModel(*script)
    return SessionAgent(llm=llm, session=name, session_dir=folder, **settings), llm


def lines(folder, name="s"):
    return session_path(name, folder).read_bytes().split(b"\n")


def saved(folder, name="s"):
    """Return the log stored in the file."""
    return read_log(session_path(name, folder))


def write(folder, *records, name="s", header=HEADER):
    path = Path(folder) / f"{name}.jsonl"
    written = [dump_record(r) if not isinstance(r, bytes) else r for r in records]
    path.write_bytes(b"".join(line + b"\n" for line in [header, *written]))
    return path


class Faults:
    """A replacement of `os` in the store in which the n-th disk operation fails."""

    NAMES = ("open", "write", "fsync", "ftruncate", "stat")

    def __init__(self, monkeypatch, fail_at=0, *, lasting=False, partly=False):
        self.fail_at, self.lasting, self.partly = fail_at, lasting, partly
        self.calls, self.failed = [], ""
        names = {name: getattr(os, name) for name in dir(os)}
        names |= {name: self._wrap(name, names[name]) for name in self.NAMES}
        monkeypatch.setattr(store_module, "os", SimpleNamespace(**names))

    def _wrap(self, name, real):
        def wrapped(*args, **kwargs):
            self.calls.append(name)
            late = len(self.calls) - self.fail_at if self.fail_at else -1
            if late < 0 or (late and not self.lasting):
                return real(*args, **kwargs)
            self.failed = name
            if self.partly and name == "write" and not late:
                return real(args[0], bytes(args[1])[: len(args[1]) // 2])
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        return wrapped


class TestSession(test_loop.TestLoop):
    """Loop contract without a session file; tests of combined mixins cover sessions with a file."""

    agent_class = Session

    async def test_a_new_process_continues_the_session(self, tmp_path):
        agent, _ = open_session(tmp_path, call("add", a=1, b=2), "3", tools=[add])
        await agent.query("1 + 2?")
        agent.close()
        again, llm = open_session(tmp_path, "As I said, 3.", tools=[add])
        assert again.log == agent.log
        assert await again.query("Sure?") == "As I said, 3."
        assert shown(llm.requests[0]) == ["1 + 2?", "", "3", "3", "Sure?"]

    async def test_the_file_contains_the_system_prompt_of_each_run_as_text(self, tmp_path):
        agent, llm = open_session(tmp_path, "one", "two")
        agent.system_prompt = lambda agent: f"After {len(agent.messages)}."
        await agent.query("x")
        await agent.query("y")
        agent.close()
        again, _ = open_session(tmp_path)
        starts = [record.system_prompt for record in again.log if isinstance(record, RunStart)]
        assert starts == ["After 0.", "After 2."]
        assert starts == [request.messages[0].text for request in llm.requests]

    async def test_cleared_messages_remain_in_the_file_but_not_in_the_log(self, tmp_path):
        agent, _ = open_session(tmp_path, "one", "two")
        await agent.query("first")
        agent.clear_history()
        await agent.query("second")
        agent.close()
        again, _ = open_session(tmp_path)
        assert again.log == agent.log
        assert [m.text for m in again.messages] == ["second", "two"]
        assert b"first" in b"".join(lines(tmp_path))

    @posix
    def test_only_the_owner_may_read_the_folder_and_the_file(self, tmp_path):
        open_session(tmp_path / "new")
        assert (tmp_path / "new").stat().st_mode & 0o777 == 0o700
        assert (tmp_path / "new" / "s.jsonl").stat().st_mode & 0o777 == 0o600

    async def test_the_file_is_synced_before_each_request_and_at_the_end(
        self, tmp_path, monkeypatch
    ):
        synced, faults = [], Faults(monkeypatch)
        replies = iter([call("add", a=1, b=1), "2", "x"])

        def reply(messages, tools):
            synced.append(faults.calls.count("fsync"))
            return next(replies)

        llm = ScriptedModel(reply, reply)
        await Session(llm=llm, tools=[add], session="s", session_dir=tmp_path).run("x")
        assert [*synced, faults.calls.count("fsync")] == [1, 2, 3]
        off, _ = open_session(tmp_path, reply, name="t")
        await off.run("x")
        assert faults.calls.count("fsync") == 3

    def test_a_record_that_cannot_be_serialized_is_in_neither_file_nor_log(self, tmp_path):
        agent, _ = open_session(tmp_path)
        with pytest.raises(ValueError, match="serialize"):
            agent.record(UserMessage("x", extra={"x": object()}))
        agent.record(UserMessage("y"))
        assert saved(tmp_path) == agent.log == [UserMessage("y")]

    async def test_a_fork_with_a_name_is_a_new_session_and_never_overwrites_one(self, tmp_path):
        agent, _ = open_session(tmp_path, lambda m, t: "ok")
        await agent.query("x")
        before = lines(tmp_path)
        twin = agent.fork(session="twin")
        await twin.query("more")
        twin.close()
        for name in ("twin", "s"):
            with pytest.raises(FileExistsError, match=f"session='{name}'"):
                agent.fork(session=name)
        assert lines(tmp_path) == before
        again, _ = open_session(tmp_path, name="twin")
        assert again.log == twin.log
        assert sorted(os.listdir(tmp_path)) == ["s.jsonl", "twin.jsonl"]
        assert agent.fork(at=0, session="empty").log == [] == saved(tmp_path, "empty")

    async def test_each_record_is_encoded_once(self, tmp_path, monkeypatch):
        encoded = []
        monkeypatch.setattr(
            session_module, "dump_record", lambda one: encoded.append(one) or dump_record(one)
        )
        agent = Session(
            llm=ScriptedModel(call("add", a=1, b=2), "3"),
            tools=[add],
            session="s",
            session_dir=tmp_path,
        )
        await agent.run("add")
        assert encoded == agent.log
        assert read_log(tmp_path / "s.jsonl") == agent.log

    async def test_sessions_are_listed_newest_first(self, tmp_path):
        paid = AssistantMessage("ok", usage=Usage(100, 10))
        agent, _ = open_session(tmp_path, paid, paid, name="long")
        await agent.query("Write\n  a story " + "about a very long train " * 10)
        await agent.query("More")
        open_session(tmp_path, name="empty")
        os.utime(tmp_path / "long.jsonl", (2e9, 2e9))
        write(tmp_path, name="newer", header=b'{"type":"session","schema":3}')
        os.utime(tmp_path / "newer.jsonl", (1, 1))
        (tmp_path / "notes.txt").write_text("x")
        long, empty, newer = list_sessions(tmp_path)
        assert (long.name, long.modified, long.usage) == ("long", 2e9, Usage(200, 20))
        assert long.title == "Write a story about a very long train about a very long trai"
        assert long.latest == "More"
        assert (empty.name, empty.title, empty.usage) == ("empty", "", Usage())
        assert (newer.name, newer.usage) == ("newer", Usage())
        assert "schema 2" in newer.title
        assert list_sessions(tmp_path, "[en]*") == [empty, newer]

    def test_a_session_that_is_deleted_meanwhile_is_not_listed(self, tmp_path, monkeypatch):
        for name in "ab":
            write(tmp_path, UserMessage("hi"), name=name)
        deleted = tmp_path / "a.jsonl"
        found = [deleted, tmp_path / "b.jsonl"]
        deleted.unlink()
        monkeypatch.setattr(type(tmp_path), "glob", lambda *_: found)
        assert [info.name for info in list_sessions(tmp_path)] == ["b"]

    def test_a_title_is_one_line_without_control_characters(self, tmp_path):
        write(tmp_path, UserMessage("one\u2028two\r\nthree\x1b[31m \u202efour"))
        [info] = list_sessions(tmp_path)
        assert info.title == info.latest == "one two three[31m four"

    @posix
    def test_a_file_with_a_name_that_no_session_can_have_is_not_listed(self, tmp_path):
        for name in ("s", "a\nb", "a b", "\x1b[2J"):
            write(tmp_path, UserMessage("hi"), name=name)
        assert [info.name for info in list_sessions(tmp_path)] == ["s"]

    async def test_a_session_is_listed_by_the_prompts_of_its_user_after_the_last_reset(
        self, tmp_path
    ):
        agent, _ = open_session(tmp_path, *["ok"] * 3)
        await agent.query("Before")
        agent.clear_history()
        assert [(session.title, session.latest) for session in list_sessions(tmp_path)] == [
            ("", "")
        ]
        agent.add_note("A note of the program")
        await agent.query("First")
        await agent.query("Second")
        agent.add_note("Another note")
        assert [(session.title, session.latest) for session in list_sessions(tmp_path)] == [
            ("First", "Second")
        ]

    @pytest.mark.timeout(900)
    def test_a_file_truncated_at_any_byte_loses_only_its_partial_line(self, tmp_path):
        whole, path = FROZEN.read_bytes(), tmp_path / "s.jsonl"
        for cut in range(0, len(whole) + 1, 1 if SLOW else 23):
            end = whole.rfind(b"\n", 0, cut) + 1  # of the last complete line
            path.write_bytes(whole[:end])
            complete = saved(tmp_path)
            path.write_bytes(whole[:cut])
            agent, llm = open_session(tmp_path, "go on", tools=[add])
            assert agent.log == complete, cut
            agent.run_sync("and now?")
            assert validate_messages(llm.requests[0].messages) == []
            agent.close()
            assert path.read_bytes().startswith(whole[:end])
            assert saved(tmp_path) == agent.log
            assert all(type(json.loads(line)) is dict for line in lines(tmp_path)[:-1])

    @pytest.mark.parametrize("bad", BAD_LINES)
    async def test_an_unreadable_line_is_reported_and_all_others_are_read(
        self, tmp_path, caplog, bad
    ):
        prompts = [UserMessage(f"{n}") for n in range(3)]
        path = write(tmp_path, *prompts, bad, AssistantMessage("after"))
        before = path.read_bytes()
        agent, _ = open_session(tmp_path, "ok")
        assert path.read_bytes() == before
        assert [m.text for m in agent.messages] == ["0", "1", "2", "after"]
        assert "line 5" in caplog.text
        [place] = [r.data for r in agent.log if isinstance(r, Unknown)]
        assert (place["type"], place["line"]) == ("unreadable", 5)
        assert await agent.query("go on") == "ok"
        assert path.read_bytes().startswith(before)

    @pytest.mark.parametrize(
        "bad",
        [
            b'{"type":"assistant","tool_calls":[1]}',
            b'{"type":"assistant","content":"ok","usage":{"input_tokens":2.5}}',
            b'{"type":"assistant","content":"torn',
            b'{"type":"tool_start","call_id":"ca',
            b'\0"type":"tool_start","call_id":"call_1"}',
            b'{"type":"sub_agent_record","call_id":"a","record":{"type":"tool_start","call_id":"1"}',
            b'{"type":"sub_agent_record","call_id":1,"agent":"a","record":{"type":"assistant"}}',
        ],
    )
    def test_a_session_whose_calls_might_run_again_is_refused_with_the_number_of_its_line(
        self, tmp_path, bad
    ):
        path = write(tmp_path, UserMessage("Pay."), bad, UserMessage("Thanks."))
        before = path.read_bytes()
        for _ in range(2):  # the lock is released after the error
            with pytest.raises(ValueError, match="line 3 .*a call"):
                open_session(tmp_path)
        with pytest.raises(ValueError, match="line 3"):
            read_log(path)
        assert path.read_bytes() == before

    def test_an_entry_that_refers_to_a_missing_line_has_no_effect(self, tmp_path):
        write(tmp_path, UserMessage("hi"), Withheld(99), Deferred("lost"), Decision("lost", True))

        class SavedApproval(Session, Approval, Agent): ...

        with SavedApproval(llm=ScriptedModel(), session="s", session_dir=tmp_path) as agent:
            assert [message.text for message in agent.messages] == ["hi"]
            assert agent.deferred == ()

    @pytest.mark.parametrize("tail", ["\n", "", "\nhalf a li"])
    def test_a_file_that_is_not_a_session_is_rejected_and_unchanged(self, tmp_path, tail):
        old = '{"type":"session","schema":1}'
        error = "schema 2"
        for text in ("my notes", "my\nnotes", '{"a":1}', '{"type":"session","schema":3}', old):
            (tmp_path / "s.jsonl").write_text(text + tail)
            for _ in range(2):  # the lock is released after the error
                with pytest.raises(ValueError, match=error):
                    open_session(tmp_path)
            assert (tmp_path / "s.jsonl").read_text() == text + tail

    @posix
    def test_the_header_is_checked_before_the_rest_is_read(self, tmp_path):
        path = tmp_path / "s.jsonl"
        with path.open("wb") as file:
            file.truncate(1 << 40)  # a sparse file of zeros
        with pytest.raises(ValueError, match="schema 2"):
            open_session(tmp_path)

    def test_a_session_name_must_be_a_plain_file_name(self, tmp_path):
        folder = tmp_path / "sessions"
        agent, _ = open_session(folder)
        for name in BAD_NAMES:
            for use in (agent.fork, lambda session: open_session(folder, name=session)):
                with pytest.raises(ValueError, match="session name"):
                    use(session=name)
        assert [path.name for path in tmp_path.rglob("*")] == ["sessions", "s.jsonl"]

    def test_an_agent_whose_construction_fails_leaves_its_session_free(self, tmp_path):
        class Failing(SessionAgent):
            def load_records(self):
                super().load_records()
                raise LookupError("no such customer")

        settings = {"llm": ScriptedModel("ok"), "session": "s", "session_dir": tmp_path}
        with pytest.raises(LookupError) as caught:
            Failing(**settings)
        agent = SessionAgent(**settings)
        assert agent.run_sync("x").text == "ok"
        assert caught.value, "the failed agent still exists"

    def test_a_closed_agent_raises_an_error_and_records_nothing(self, tmp_path):
        agent, llm = open_session(tmp_path, "x")
        agent.close()
        agent.close()
        before = lines(tmp_path)
        with pytest.raises(ValueError, match="'s' is closed"):
            agent.run_sync("x")
        assert (llm.requests, lines(tmp_path)) == ([], before)

    @posix
    @pytest.mark.parametrize("how", ["replaced", "moved away"])
    async def test_a_replaced_file_receives_no_record_and_no_event_is_emitted(self, tmp_path, how):
        events = []
        agent, llm = open_session(tmp_path, "one", "two", listeners=[events.append])
        await agent.query("first")
        events.clear()
        path, before = tmp_path / "s.jsonl", lines(tmp_path)
        path.rename(tmp_path / "old")
        if how == "replaced":  # some editors replace the file
            shutil.copy(tmp_path / "old", path)
        error = r"s\.jsonl was replaced.*fork"
        with pytest.raises(OSError, match=error):
            await agent.run("second")
        assert (len(llm.requests), events) == (1, [])
        assert (tmp_path / "old").read_bytes().split(b"\n") == before
        with pytest.raises(OSError, match=error):  # a record is not saved
            agent.close()
        (tmp_path / "old").replace(path)
        again, _ = open_session(tmp_path, "two")
        assert await again.query("second") == "two"

    @pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
    def test_a_remaining_child_process_of_a_tool_does_not_hold_the_lock(self, tmp_path):
        agent, _ = open_session(tmp_path)
        read, write = os.pipe()
        child = os.fork()
        if not child:
            os.close(write)
            os.read(read, 1)  # until the parent closes the pipe
            os._exit(0)
        os.close(read)
        try:
            with pytest.raises(SessionLocked):
                open_session(tmp_path)
            agent.close()
            open_session(tmp_path)
        finally:
            os.close(write)
            os.waitpid(child, 0)

    @posix
    @pytest.mark.parametrize("way", ["close", "with"])
    def test_a_child_process_that_closes_the_agent_does_not_release_the_lock(self, tmp_path, way):
        agent, _ = open_session(tmp_path)
        child = os.fork()
        if not child:
            agent.close() if way == "close" else agent.__exit__()
            os._exit(0)
        os.waitpid(child, 0)
        with pytest.raises(SessionLocked):
            open_session(tmp_path)
        agent.close()
        open_session(tmp_path)

    @pytest.mark.parametrize(
        "value",
        [
            ("a", "b"),
            Color.RED,
            datetime(2026, 1, 2, 3, 4, tzinfo=UTC),
            Usage(1, 2),
            None,
            ToolCall("call_1", "add", "{}"),
            UserMessage("hi"),
            b"\xff+/=",
        ],
        ids=repr,
    )
    def test_a_custom_mark_is_restored_with_fields_of_any_type(self, tmp_path, value):
        mark = OWN_MARKS[type(value)](value)
        with open_session(tmp_path)[0] as agent:
            agent.record(mark)
        with open_session(tmp_path)[0] as agent:
            assert agent.log == [mark]

    async def test_extra_data_of_a_run_is_restored_for_any_key(self, tmp_path):
        extra = {"type": "user", "at": 5, "session": "other", "extra": {"hidden": True}}
        agent, _ = open_session(tmp_path, "ok")
        await agent.run("x", extra=extra)
        agent.close()
        again, _ = open_session(tmp_path)
        assert again.log == agent.log
        assert (again.log[0].extra, again.log[0].session) == (extra, "s")

    @posix
    def test_a_broken_link_is_listed_with_its_error(self, tmp_path):
        write(tmp_path, UserMessage("hi"))
        (tmp_path / "gone.jsonl").symlink_to(tmp_path / "nothing")
        titles = {session.name: session.title for session in list_sessions(tmp_path)}
        assert titles["s"] == "hi"
        assert "No such file" in titles["gone"]

    @posix
    def test_a_session_is_locked_for_other_processes_until_the_holder_is_killed(self, tmp_path):
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        with subprocess.Popen([sys.executable, "-c", HOLDER, tmp_path], **pipes) as child:
            assert child.stdout.readline() == b"ready\n"
            with pytest.raises(SessionLocked):
                open_session(tmp_path)
            child.kill()
            child.wait()
            open_session(tmp_path)

    @posix
    def test_a_disk_that_has_no_locks_is_not_reported_as_a_session_in_use(
        self, tmp_path, monkeypatch
    ):
        def flock(fd, how):
            raise OSError(errno.ENOLCK, "No locks available")

        monkeypatch.setattr("fcntl.flock", flock)
        with pytest.raises(OSError, match="No locks"):
            open_session(tmp_path)

    @pytest.mark.parametrize("how", [{}, {"lasting": True}, {"lasting": True, "partly": True}])
    async def test_a_full_disk_loses_nothing_at_any_failing_call(self, tmp_path, monkeypatch, how):
        """Fail the n-th disk operation for n = 1, 2, ... until a scenario sees no fault."""
        failed = []
        while "" not in failed:
            folder, ran, events, agent = tmp_path / f"{len(failed)}", [], [], None
            with monkeypatch.context() as patch:
                faults = Faults(patch, len(failed) + 1, **how)
                try:
                    agent = self.note_agent(folder, ran, events)
                    await agent.query("one")
                    await agent.query("two")
                    agent.fork(session=f"twin{faults.fail_at}").close()
                except OSError:
                    assert faults.failed
                failed.append(faults.failed)
                faults.fail_at = 0
                agent = agent or self.note_agent(folder, ran, events)  # the constructor failed
                agent.llm = ScriptedModel("all is well")
                assert await agent.query("And now?") == "all is well", failed
            agent.close()
            again, _ = open_session(folder, "ok")
            assert again.log == agent.log, failed
            assert {*events} <= {m.text for m in again.messages}, failed
            assert len(ran) == len({*ran}), failed
            await again.query("next")
            assert all(type(json.loads(line)) is dict for line in lines(folder)[:-1])
            again.close()
        assert len(failed) > 30
        assert {"open", "write", "fsync", "ftruncate"} <= {*failed}

    @staticmethod
    def note_agent(folder, ran, events):
        @tool("Note")
        async def note(n: int) -> str:
            ran.append(n)
            return f"noted {n}"

        def listen(event):
            if type(event).__name__ == "ToolResultEvent":
                events.append(event.result)

        script = [[call("note", n=1), call("note", n=2)], "first", call("note", n=3), "second"]
        settings = {"session_fsync": True, "tools": [note], "listeners": [listen]}
        return open_session(folder, *script, **settings)[0]

    def test_a_reset_that_fails_on_a_full_disk_retains_the_old_log(self, tmp_path, monkeypatch):
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
        assert not agent.messages

    @pytest.mark.parametrize("fail_at", range(1, 9))
    def test_a_full_disk_leaves_no_part_of_a_loaded_history(self, tmp_path, monkeypatch, fail_at):
        agent, _ = open_session(tmp_path, "hello", tools=[add])
        agent.run_sync("hi")
        asks = AssistantMessage("", (ToolCall("c1", "add", '{"a":1,"b":1}'),))
        history = [UserMessage("1 + 1?"), asks, asks.tool_calls[0].answer("2")]
        with monkeypatch.context() as patch:
            Faults(patch, fail_at, lasting=True)
            with pytest.raises(OSError, match="space"):
                agent.load_history(history)
        assert [*agent.messages] in ([UserMessage("hi"), AssistantMessage("hello")], history)
        agent.save()
        assert saved(tmp_path) == agent.log

    async def test_what_a_full_disk_refused_is_saved_when_the_session_is_closed(
        self, tmp_path, monkeypatch
    ):
        agent = await self.with_an_unsaved_answer(tmp_path, monkeypatch)
        agent.close()
        assert AssistantMessage("the answer") in saved(tmp_path)
        assert saved(tmp_path) == agent.log

    async def test_an_answer_that_a_full_disk_refused_is_saved_and_returned_by_run(
        self, tmp_path, monkeypatch
    ):
        agent = await self.with_an_unsaved_answer(tmp_path, monkeypatch)
        assert (await agent.run()).text == "the answer"
        assert saved(tmp_path) == agent.log

    async def test_closing_on_a_full_disk_is_an_error_and_a_fork_saves_everything(
        self, tmp_path, monkeypatch
    ):
        agent = await self.with_an_unsaved_answer(tmp_path, monkeypatch)
        with monkeypatch.context() as patch:
            Faults(patch, 1, lasting=True)
            with pytest.raises(OSError, match="space"):
                agent.close()
        again, _ = open_session(tmp_path)  # the lock is released
        assert AssistantMessage("the answer") not in again.log
        agent.fork(session="other").close()
        assert AssistantMessage("the answer") in saved(tmp_path, "other")

    @staticmethod
    async def with_an_unsaved_answer(folder, monkeypatch):
        """Return an agent after a run during whose request the disk was full."""
        with monkeypatch.context() as patch:

            def fill_the_disk(messages, tools):
                Faults(patch, 1, lasting=True)
                return "the answer"

            agent, _ = open_session(folder, fill_the_disk)
            with pytest.raises(OSError, match="space"):
                await agent.run("x")
        assert agent.messages[-1] == AssistantMessage("the answer")
        assert AssistantMessage("the answer") not in saved(folder)
        return agent

    def test_messages_sent_from_eight_threads_end_no_run(self, tmp_path):
        per_thread = 1250 if SLOW else 60
        sent = [[f"{n}.{i}" for i in range(per_thread)] for n in range(8)]

        class Steered(Session, MessageQueue, Agent): ...

        def reply(messages, tools):
            for thread in threads if len(llm.requests) == 1 else ():
                thread.start()
            return call("add", a=1, b=1) if any(t.is_alive() for t in threads) else "ok"

        llm = ScriptedModel(reply)
        agent = Steered(
            llm=llm, tools=[add], session="s", session_dir=tmp_path, max_iterations=10**6
        )
        threads = [threading.Thread(target=lambda own=own: [*map(agent.send, own)]) for own in sent]
        assert agent.run_sync("x").text == "ok"
        agent.close()
        assert saved(tmp_path) == agent.log
        texts = [message.text for message in agent.messages if isinstance(message, UserMessage)]
        assert [[text for text in texts if text in own] for own in sent] == sent

    def test_a_file_may_be_synced_while_another_thread_appends(self, tmp_path, monkeypatch):
        agent, _ = open_session(tmp_path)
        thread = threading.Thread(target=agent.record, args=[UserMessage("x")])

        def append_meanwhile(fd):
            status = os.fstat(fd)
            if thread.ident is None:
                thread.start()
                thread.join(0.2)
            return status

        names = {name: getattr(os, name) for name in dir(os)}
        patched = SimpleNamespace(**names | {"fstat": append_meanwhile})
        monkeypatch.setattr(store_module, "os", patched)
        agent.session_file.sync()
        thread.join()
        assert saved(tmp_path) == agent.log == [UserMessage("x")]

    def test_a_stored_session_of_schema_2_remains_readable(self, tmp_path, caplog):
        before = Path(shutil.copy(FROZEN, tmp_path / "s.jsonl")).read_bytes()
        agent, _ = open_session(tmp_path)
        assert "agentloop" not in [record.name for record in caplog.records]
        assert (tmp_path / "s.jsonl").read_bytes() == before
        unknown = [record.data["type"] for record in agent.log if isinstance(record, Unknown)]
        assert unknown == ["snapshot", "from_a_later_version"]
        assert [load_record(dump_record(record)) for record in agent.log] == agent.log
        assert validate_messages([*agent.messages]) == []
        assert agent.messages[0].content == (
            TextPart("What is on this picture?"),
            ImagePart(data=b"\x89PNG", media_type="image/png"),
            FilePart(url="https://example.com/a.pdf", name="a.pdf"),
        )
        assert agent.usage == Usage(1130, 66, 900, 50, 20)
        assert [state.call.id for state in agent.conversation.open_calls] == ["call_3"]


async def test_a_subclass_stores_its_sessions_in_a_database(tmp_path):
    path = ROOT / "examples" / "recipes" / "sqlite_sessions.py"
    sqlite = SimpleNamespace(**runpy.run_path(str(path)))
    database = sqlite.Database(tmp_path / "all.db")

    def make(*script, name="s"):
        llm = ScriptedModel(*script)
        return sqlite.MyAgent(llm=llm, tools=[add], session=name, database=database)

    agent = make(call("add", a=1, b=2), "3", "4")
    await agent.query("1 + 2?")
    for _ in range(2):  # a rejected agent does not release the lock of another
        with pytest.raises(SessionLocked):
            make()
    twin = agent.fork(session="twin")
    await twin.query("3 + 1?")
    with pytest.raises(FileExistsError):
        agent.fork(session="twin")
    agent.close()
    with pytest.raises(ValueError, match="closed"):
        await agent.query("again")
    assert make().messages == agent.messages
    database.db.close()
    database = sqlite.Database(tmp_path / "all.db")
    assert make(name="twin").log == twin.log
    database.db.close()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_worker_is_refused_the_database_of_its_parent(tmp_path):
    sqlite = runpy.run_path(str(ROOT / "examples" / "recipes" / "sqlite_sessions.py"))
    database = sqlite["Database"](tmp_path / "all.db")
    child = os.fork()
    if not child:
        try:
            sqlite["MyAgent"](llm=ScriptedModel("Hi"), session="s", database=database)
        except SessionLocked:
            os._exit(0)
        finally:
            os._exit(1)
    assert os.waitpid(child, 0)[1] == 0
    database.db.close()


# ---- session files and other files


@posix
@pytest.mark.parametrize("kind", ["pipe", "link", "folder"])
def test_a_path_that_is_not_a_regular_file_is_rejected_and_listed_with_its_error(kind, tmp_path):
    path = tmp_path / "s.jsonl"
    other = tmp_path / "other.txt"
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    else:
        shutil.copy(FROZEN, other)
        path.symlink_to(other)
    with pytest.raises(ValueError, match=kind):
        open_session(tmp_path)
    if kind != "link":  # reading a link is permitted
        with pytest.raises(ValueError, match=kind):
            read_log(path)
        [info] = list_sessions(tmp_path)
        assert kind in info.title
    else:
        assert other.read_bytes() == Path(FROZEN).read_bytes()


@pytest.mark.parametrize("change", ["truncated", "appended"])
def test_a_file_changed_while_open_receives_no_record(change, tmp_path):
    agent, _ = open_session(tmp_path)
    agent.record(UserMessage("first"))
    path = tmp_path / "s.jsonl"
    before = path.read_bytes()
    changed = before[:-10] if change == "truncated" else before + b"{}\n"
    path.write_bytes(changed)
    with pytest.raises(OSError, match="changed"):
        agent.record(UserMessage("second"))
    with pytest.raises(OSError, match="changed"):
        agent.close()
    assert path.read_bytes() == changed


def test_a_session_in_a_relative_folder_survives_a_change_of_the_working_directory(
    tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    agent, _ = open_session("sessions", "ok")
    monkeypatch.chdir("/")
    assert agent.run_sync("hi").text == "ok"
    agent.close()
    assert saved(tmp_path / "sessions") == agent.log


def test_a_message_that_is_sent_at_the_start_of_a_run_is_saved_once(tmp_path):
    class Sending(MessageQueue, Agent):
        def record(self, record):
            super().record(record)
            if isinstance(record, RunStart):
                sender.start()
                sender.join(0.1)

    kind = type("Queued", (Session, Sending), {})
    agent = kind(llm=ScriptedModel("ok"), session="s", session_dir=tmp_path)
    sender = threading.Thread(target=agent.send, args=["sent"])
    agent.run_sync("hi")
    sender.join()
    assert saved(tmp_path) == agent.log
    agent.close()


def test_a_file_that_another_thread_closes_is_closed_after_the_line(tmp_path, monkeypatch):
    file = store_module.SessionFile(session_path("s", tmp_path))
    closer = threading.Thread(target=file.close)

    def write(fd, data, write=os.write):
        closer.start()
        closer.join(0.1)
        return write(fd, data)

    monkeypatch.setattr(store_module.os, "write", write)
    file.append(dump_record(UserMessage("hello")))
    closer.join()
    assert file.closed
    assert saved(tmp_path) == [UserMessage("hello")]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_worker_neither_writes_to_the_session_nor_holds_its_lock(tmp_path):
    agent, _ = open_session(tmp_path)
    agent.record(UserMessage("of the parent"))
    read, write = os.pipe()
    started, starts = os.pipe()
    child = os.fork()
    if not child:
        os.close(write)
        try:
            agent.record(UserMessage("of the worker"))
        except ValueError:
            os.close(starts)
            os.read(read, 1)  # until the parent closes the pipe
            os._exit(0)
        os._exit(1)
    os.close(read)
    os.close(starts)
    os.read(started, 1)  # until the worker has closed its copy of the file
    os.close(started)
    agent.session_file = None  # as after a kill: the file remains locked
    del agent
    gc.collect()
    again, _ = open_session(tmp_path)
    assert [message.text for message in again.messages] == ["of the parent"]
    os.close(write)
    assert os.waitpid(child, 0)[1] == 0
    again.close()


@pytest.mark.parametrize("fail_at", range(1, 12))
def test_a_fork_that_fails_on_a_full_disk_leaves_no_session_file(fail_at, tmp_path, monkeypatch):
    agent, _ = open_session(tmp_path)
    for n in range(4):
        agent.record(UserMessage(str(n)))
    with monkeypatch.context() as patch:
        faults = Faults(patch, fail_at, lasting=True)
        try:
            agent.fork(session="twin").close()
        except OSError:
            assert faults.failed
            assert not (tmp_path / "twin.jsonl").exists()
        else:
            assert (tmp_path / "twin.jsonl").exists()
    agent.close()


@posix
def test_zeros_at_the_end_of_the_file_count_as_a_truncated_line(
    tmp_path,
):  # some file systems append zeros in a crash
    path = tmp_path / "s.jsonl"
    path.write_bytes(FROZEN.read_bytes() + b"\0" * 3)
    assert read_log(path) == read_log(FROZEN)


def test_instructions_in_a_conversation_are_saved_and_stay_where_they_are(tmp_path):
    agent, _ = open_session(tmp_path, "one", "two", system_prompt="Be brief.")
    agent.run_sync("first")
    agent.add(SystemMessage("Answer in French."))
    agent.run_sync("second")
    agent.close()
    agent, llm = open_session(tmp_path, "three", system_prompt="Be brief.")
    agent.run_sync("third")
    texts = ["Be brief.", "first", "one", "Answer in French.", "second", "two", "third"]
    assert shown(llm.requests[0]) == texts
