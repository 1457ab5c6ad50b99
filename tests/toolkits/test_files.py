"""Files: an agent works in one folder, and no path leads out of it."""

import asyncio
import os
import re
import stat
import sys
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentloop import Agent, ScriptedModel, ToolError
from agentloop.models.scripted import call
from agentloop.toolkits import files
from agentloop.toolkits.files import Workspace

posix = pytest.mark.skipif(sys.platform == "win32", reason="needs links, modes or pipes")


@pytest.fixture
def ws(tmp_path):
    (tmp_path / "root").mkdir()
    (tmp_path / "secret.txt").write_text("secret")
    return Workspace(tmp_path / "root")


def put(ws, path, content):
    target = ws.root / path
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(content if isinstance(content, bytes) else content.encode())
    return target


def contents(folder):
    """Everything in a folder: the ledger of what tools did."""
    return {
        str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None
        for path in sorted(folder.rglob("*"))
    }


async def refused(awaitable):
    try:
        result = awaitable() if callable(awaitable) else awaitable
        result = await result if asyncio.iscoroutine(result) else result
    except ToolError as error:
        return str(error)
    pytest.fail(f"not refused: {result}")


class TestWorkspace:
    async def test_an_agent_works_in_the_folder(self, ws):
        put(ws, "a.py", "x = 1\n")
        llm = ScriptedModel(
            call("read", path="a.py"),
            call("edit", path="a.py", old_text="1", new_text="2"),
            call("write", path="new/b.py", content="y = 3\n"),
            "done",
        )
        assert await Agent(llm=llm, tools=ws.tools).query("go") == "done"
        assert contents(ws.root) == {"a.py": b"x = 2\n", "new": None, "new/b.py": b"y = 3\n"}

    def test_the_tools_say_which_may_run_twice_or_side_by_side(self, ws):
        options = {tool.name: (tool.parallel, tool.idempotent) for tool in ws.tools}
        assert options["read"] == options["glob"] == options["grep"] == (True, True)
        assert options["write"] == options["edit"] == (False, False)
        assert list(ws.write.parameters["properties"]) == ["path", "content"]


ESCAPES = [
    *("../secret.txt", "a/../../secret.txt", "./../secret.txt", "..\\secret.txt", ".."),
    *("/etc/passwd", "//etc/passwd", "../root2/x", "~/x", "~root/x", "C:\\Windows\\x"),
    *("a\0b", "a" * 5000),
]

PIECES = [
    *("/", "//", "..", ".", "...", "", " ", "a", "out", "up", "secret.txt", "a.txt", "é"),
    *("~", "C:", "\\", "..\\..", "\0", "\n", "%2e%2e", "\uff0e\uff0e", "\ud800"),
]


class TestNoPathLeavesTheRoot:
    @pytest.mark.parametrize("path", ESCAPES)
    async def test_by_any_spelling(self, ws, tmp_path, path):
        before = contents(tmp_path)
        for attempt in (
            lambda: ws.read(path),
            lambda: ws.write(path, "x"),
            lambda: ws.edit(path, "secret", "x"),
            lambda: ws.glob("*", path),
            lambda: ws.grep("secret", path),
        ):
            assert await refused(attempt)
        assert contents(tmp_path) == before

    @posix
    async def test_by_a_link_at_the_end_in_the_middle_or_dangling(self, ws, tmp_path):
        (ws.root / "file").symlink_to(tmp_path / "secret.txt")
        (ws.root / "folder").symlink_to(tmp_path)
        (ws.root / "deep").mkdir()
        (ws.root / "deep/link").symlink_to("../folder")
        (ws.root / "dangling").symlink_to(tmp_path / "new.txt")
        before = contents(tmp_path)
        for path in ("file", "folder/secret.txt", "deep/link/secret.txt", "dangling"):
            assert "leads out" in await refused(lambda p=path: ws.read(p))
            assert "leads out" in await refused(ws.write(path, "x"))
            assert "leads out" in await refused(ws.edit(path, "secret", "x"))
        assert contents(tmp_path) == before

    @posix
    async def test_a_search_follows_no_link(self, ws, tmp_path):
        (ws.root / "file.txt").symlink_to(tmp_path / "secret.txt")
        (ws.root / "folder").symlink_to(tmp_path)
        assert "There is nothing like" in await ws.grep("secret")
        assert "secret.txt" not in await ws.glob("**")

    @posix
    async def test_links_inside_the_root_work_and_stay_links(self, ws):
        put(ws, "real/a.txt", "one")
        (ws.root / "link").symlink_to("real")
        assert "one" in ws.read("link/a.txt")
        await ws.edit("link/a.txt", "one", "two")
        assert (ws.root / "link").is_symlink()
        assert (ws.root / "real/a.txt").read_text() == "two"

    @pytest.mark.parametrize(
        "path",
        [".git/config", ".GIT/hooks/pre-commit", "vendor/lib/.git/config", "lib/.git", ".git./x"],
    )
    async def test_what_belongs_to_git_is_read_and_not_written(self, ws, path):
        for before in ({}, {path: "old"}):
            for name, text in before.items():
                put(ws, name, text)
                assert "old" in ws.read(name)
                assert "git's own" in await refused(ws.edit(name, "old", "new"))
            known = contents(ws.root)
            assert "git's own" in await refused(ws.write(path, "new"))
            assert contents(ws.root) == known

    @posix
    async def test_no_link_leads_a_write_into_git(self, ws):
        put(ws, ".git/config", "old")
        (ws.root / "notes.txt").symlink_to(".git/config")
        (ws.root / "docs").symlink_to(".git/hooks")
        ws.read("notes.txt")
        for path in ("notes.txt", "docs/pre-commit"):
            assert "git's own" in await refused(ws.write(path, "new"))
        assert contents(ws.root / ".git") == {"config": b"old"}

    @posix
    async def test_a_file_that_became_a_link_is_not_written_through(self, ws, tmp_path):
        target = put(ws, "a.txt", "inside")

        def swap(name, arguments):
            target.unlink()
            target.symlink_to(tmp_path / "secret.txt")
            return True

        ws.approve = swap
        assert await refused(ws.edit("a.txt", "inside", "x"))
        assert (tmp_path / "secret.txt").read_text() == "secret"

    @given(
        st.lists(st.sampled_from(PIECES) | st.text(max_size=4), max_size=6),
        st.sampled_from(["/", "\\", "//", "/./"]),
        st.booleans(),
    )
    def test_whatever_it_is_made_of(self, parts, separator, absolute):
        with TemporaryDirectory() as folder:
            outside = Path(folder).resolve()
            (outside / "secret.txt").write_text("classified")
            (outside / "root/a").mkdir(parents=True)
            ws = Workspace(outside / "root")
            if sys.platform != "win32":
                (ws.root / "out").symlink_to(outside)
                (ws.root / "a/up").symlink_to("../..")
            path = (str(outside) if absolute else "") + separator.join(parts)
            for attempt in (
                lambda: asyncio.run(ws.write(path, "x")),
                lambda: ws.read(path),
            ):
                with suppress(ToolError):
                    assert "classified" not in attempt()
            rest = {name for name in os.listdir(outside) if name != "root"}
            assert rest == {"secret.txt"}
            assert (outside / "secret.txt").read_text() == "classified"


class TestRead:
    async def test_lines_come_with_their_numbers(self, ws):
        put(ws, "a.txt", "one\ntwo\r\nthree")
        assert ws.read("a.txt") == "     1\tone\n     2\ttwo\n     3\tthree"

    async def test_a_range_says_how_to_read_on(self, ws):
        put(ws, "a.txt", "".join(f"line {n}\n" for n in range(1, 11)))
        text = ws.read("a.txt", offset=3, limit=2)
        assert text == "     3\tline 3\n     4\tline 4\n[More follows: read on with offset=5.]"
        assert ws.read("a.txt", offset=9, limit=2).endswith("line 10")

    async def test_a_long_line_is_cut_and_the_next_ones_keep_their_numbers(self, ws):
        put(ws, "a.txt", b"x" * 1_000_000 + b"\nend\n")
        text = ws.read("a.txt")
        assert "[... of 1,000,000]\n     2\tend" in text
        assert len(text) < 3000

    async def test_what_is_no_text_says_so(self, ws):
        put(ws, "a.bin", b"\x7fELF\0\0")
        (ws.root / "folder").mkdir()
        assert "binary file of 6 bytes" in await refused(lambda: ws.read("a.bin"))
        assert "a folder" in await refused(lambda: ws.read("folder"))
        assert "a folder" in await refused(lambda: ws.read("."))
        assert "a folder" in await refused(ws.write("folder", "x"))

    @posix
    async def test_a_pipe_does_not_hang(self, ws):
        os.mkfifo(ws.root / "pipe")
        assert "a pipe or a device" in await refused(lambda: ws.read("pipe"))
        assert "a pipe or a device" in await refused(ws.write("pipe", "x"))
        assert "There is nothing like" in await ws.grep("x")

    async def test_a_wrong_name_says_how_to_find_the_right_one(self, ws):
        put(ws, "main.py", "")
        for path in ("mian.py", "no/such/folder", "main.py/x"):
            assert "Look for it with glob" in await refused(lambda p=path: ws.read(p))

    async def test_a_huge_file_is_not_read(self, ws):
        with open(ws.root / "huge", "wb") as file:
            file.truncate(1 << 33)
        assert "with grep" in await refused(lambda: ws.read("huge"))
        assert "too large" in await refused(ws.edit("huge", "x", "y"))


class TestWrite:
    async def test_a_file_has_to_be_read_before_it_is_overwritten_and_after_it_changed(self, ws):
        put(ws, "a.txt", "old")
        for text in ("old", "somebody else's"):
            put(ws, "a.txt", text)
            assert "read it first" in await refused(ws.write("a.txt", "new"))
            assert contents(ws.root) == {"a.txt": text.encode()}
            ws.read("a.txt")
        await ws.write("a.txt", "new")
        assert contents(ws.root) == {"a.txt": b"new"}

    async def test_an_edit_does_not_stand_for_reading(self, ws):
        put(ws, "a.txt", "one two")
        await ws.edit("a.txt", "one", "1")
        assert "read it first" in await refused(ws.write("a.txt", "new"))
        ws.read("a.txt")
        await ws.edit("a.txt", "two", "2")
        await ws.write("a.txt", "new")

    @posix
    async def test_mode_bits_are_kept(self, ws):
        target = put(ws, "run.sh", "echo 1\n")
        target.chmod(0o750)
        await ws.edit("run.sh", "1", "2")
        assert stat.S_IMODE(target.stat().st_mode) == 0o750

    @posix
    async def test_a_read_only_file_is_left_alone(self, ws):
        put(ws, "a.txt", "old").chmod(0o444)
        ws.read("a.txt")
        assert "read-only" in await refused(ws.write("a.txt", "new"))
        assert "read-only" in await refused(ws.edit("a.txt", "old", "new"))
        assert contents(ws.root) == {"a.txt": b"old"}

    async def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(self, ws, monkeypatch):
        put(ws, "a.txt", "old")

        def fail(*args, **kwargs):
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(Path, "replace", fail)
        assert "No space left" in await refused(ws.edit("a.txt", "old", "new"))
        assert contents(ws.root) == {"a.txt": b"old"}


class TestEdit:
    async def test_the_old_text_has_to_be_there_once(self, ws):
        put(ws, "a.txt", "x\ny\nx\n")
        assert "2 times" in await refused(ws.edit("a.txt", "x", "z"))
        assert contents(ws.root) == {"a.txt": b"x\ny\nx\n"}
        await ws.edit("a.txt", "x", "z", replace_all=True)
        assert contents(ws.root) == {"a.txt": b"z\ny\nz\n"}

    async def test_crlf_is_kept(self, ws):
        put(ws, "a.txt", b"one\r\ntwo\r\nthree\r\n")
        await ws.edit("a.txt", "one\ntwo", "1\n2")
        await ws.edit("a.txt", "three", "3\n4")
        assert contents(ws.root) == {"a.txt": b"1\r\n2\r\n3\r\n4\r\n"}

    async def test_bytes_that_are_not_utf_8_are_kept(self, ws):
        put(ws, "a.txt", b"caf\xe9 = 1\n")
        await ws.edit("a.txt", "= 1", "= 2")
        assert contents(ws.root) == {"a.txt": b"caf\xe9 = 2\n"}

    @pytest.mark.parametrize("tool", ["edit", "write"])
    async def test_a_file_that_changes_while_approval_is_asked_is_left_alone(self, ws, tool):
        target = put(ws, "a.txt", "old")
        ws.read("a.txt")
        ws.approve = lambda name, arguments: target.write_text("somebody else's") > 0
        work = ws.edit("a.txt", "old", "new") if tool == "edit" else ws.write("a.txt", "n")
        assert "just changed" in await refused(work)
        assert contents(ws.root) == {"a.txt": b"somebody else's"}


async def nobody(name, arguments):
    await asyncio.Event().wait()


def raising(name, arguments):
    raise RuntimeError("no terminal")


class TestApproval:
    @pytest.mark.parametrize(
        "approve",
        [
            *(raising, nobody, lambda: True),
            *(lambda name, arguments, said=said: said for said in (None, 1, "yes", False)),
        ],
    )
    async def test_anything_but_true_denies_and_nothing_happens(self, ws, approve):
        put(ws, "a.txt", "old")
        ws.read("a.txt")
        ws.approve, ws.approve_timeout = approve, 0.05
        assert "Denied" in await refused(ws.write("a.txt", "new"))
        assert "Denied" in await refused(ws.write("new/b.txt", "new"))
        assert "Denied" in await refused(ws.edit("a.txt", "old", "new"))
        assert contents(ws.root) == {"a.txt": b"old"}

    @posix
    async def test_it_is_asked_about_the_file_behind_a_link(self, ws):
        put(ws, "deploy.sh", "old")
        (ws.root / "notes.txt").symlink_to("deploy.sh")
        (ws.root / "here").symlink_to(".")
        asked = []
        ws.approve = lambda name, arguments: asked.append((name, arguments["path"])) is None
        await ws.edit("notes.txt", "old", "new")
        ws.read("here/notes.txt")
        await ws.write("here/notes.txt", "newer")
        assert asked == [("edit", "deploy.sh"), ("write", "deploy.sh")]

    async def test_it_is_asked_with_the_arguments(self, ws):
        asked = []

        async def approve(name, arguments):
            asked.append((name, dict(arguments)))
            arguments.clear()
            return True

        ws.approve = approve
        await ws.write("./a.txt", "x")
        await ws.edit("a.txt", "x", "y")
        assert asked == [
            ("write", {"path": "a.txt", "content": "x"}),
            ("edit", {"path": "a.txt", "old_text": "x", "new_text": "y", "replace_all": False}),
        ]
        assert contents(ws.root) == {"a.txt": b"y"}


class TestGlob:
    @pytest.mark.parametrize(
        ("pattern", "path", "found"),
        [
            ("*.py", ".", "a.py b.py src/c.py src/deep/d.py"),
            ("src/*.py", ".", "src/c.py"),
            ("src/**/*.py", ".", "src/c.py src/deep/d.py"),
            ("src/**", ".", "src/c.py src/deep/d.py src/deep/e.md"),
            ("**/d.*", ".", "src/deep/d.py"),
            ("[ab].py", ".", "a.py b.py"),
            ("[!a].py", ".", "b.py src/c.py src/deep/d.py"),
            ("?.{md,txt}", ".", "src/deep/e.md"),
            ("{a,src/*}.py", ".", "a.py src/c.py"),
            ("*.py", "src", "src/c.py src/deep/d.py"),
            ("deep/*", "src", "src/deep/d.py src/deep/e.md"),
            (".github/*", ".", ".github/ci.yml"),
        ],
    )
    async def test_patterns(self, ws, pattern, path, found):
        names = "b.py a.py src/c.py src/deep/d.py src/deep/e.md .github/ci.yml"
        for name in (*names.split(), ".git/a.py", "node_modules/a.py"):
            put(ws, name, "")
        text = await ws.glob(pattern, path)
        assert text.split() == found.split() or (not found and "There is nothing like" in text)


class TestGrep:
    async def test_it_finds_lines(self, ws):
        put(ws, "a.py", "def one():\n    pass\r\n")
        put(ws, "src/b.py", "# DEF\ndef two():\n")
        put(ws, "src/c.txt", "def three\n")
        assert await ws.grep("^def", glob="*.py") == "a.py:1:def one():\nsrc/b.py:2:def two():"
        assert await ws.grep("pass$") == "a.py:2:    pass"
        assert await ws.grep("def", "src/b.py", ignore_case=True) == (
            "src/b.py:1:# DEF\nsrc/b.py:2:def two():"
        )
        assert await ws.grep("three", "src") == "src/c.txt:1:def three"
        assert "There is nothing like" in await ws.grep("four")

    async def test_binary_files_and_what_is_not_ours_are_left_out(self, ws):
        put(ws, "a.bin", b"\0word\n")
        put(ws, ".git/x", "word\n")
        put(ws, "node_modules/x", "word\n")
        assert "There is nothing like" in await ws.grep("word")

    async def test_a_wrong_pattern_says_so(self, ws):
        put(ws, "a", "x")
        for pattern in ("(", "[z-a]", "*"):
            assert re.search("re.error|PatternError", await ws.grep(pattern))

    async def test_a_pattern_is_never_an_option(self, ws):
        put(ws, "-e", "--files\n")
        assert await ws.grep("--files", "-e") == "-e:1:--files"

    async def test_long_lines_and_many_lines_are_cut(self, ws, monkeypatch):
        monkeypatch.setattr(files, "MAX_FOUND", 2)
        put(ws, "a", "word" + "x" * 5_000_000 + "\n" + "word\n" * 100_000)
        text = await ws.grep("word")
        assert "more than these 2" in text
        assert len(text) < 1000

    async def test_a_regex_that_backtracks_for_ever_is_stopped(self, ws, monkeypatch):
        put(ws, "evil", "a" * 60 + "!\n")
        tool = ws.grep
        tool.timeout = 0.5
        llm = ScriptedModel(call("grep", pattern="^(a+)+$"), "done")
        await Agent(llm=llm, tools=[tool]).query("go")
        assert "0.5 seconds" in llm.requests[-1].messages[-1].text

    async def test_a_cancelled_search_is_killed(self, ws, monkeypatch):
        started = asyncio.Queue()
        popen = files.Popen

        def start(*args, **options):
            started.put_nowait(process := popen(*args, **options))
            return process

        monkeypatch.setattr(files, "Popen", start)
        put(ws, "evil", "a" * 60 + "!\n")
        task = asyncio.create_task(ws.grep("^(a+)+$"))
        process = await started.get()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert process.wait() != 0
