"""Workspace: file tools restricted to one folder."""

import asyncio
import os
import re
import stat
import sys
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from agentloop import Agent, ScriptedModel, ToolError
from agentloop.mixins.approval import Approval
from agentloop.models.scripted import call
from agentloop.toolkits import files
from agentloop.toolkits.files import Workspace
from tests.properties import given, st

posix = pytest.mark.skipif(sys.platform == "win32", reason="requires links, modes or pipes")


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
    """Return the complete contents of a folder, to verify the effects of tools."""
    return {
        str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None
        for path in sorted(folder.rglob("*"))
    }


async def error_of(awaitable):
    try:
        result = awaitable() if callable(awaitable) else awaitable
        result = await result if asyncio.iscoroutine(result) else result
    except ToolError as error:
        return str(error)
    pytest.fail(f"no error: {result}")


TEN_LINES = "".join(f"line {n}\n" for n in range(1, 11))
ESCAPES = [
    "..",
    "../secret.txt",
    "a/../../secret.txt",
    "./../secret.txt",
    "..\\secret.txt",
    "../root2/x",
    "/etc/passwd",
    "//etc/passwd",
    "~/x",
    "~root/x",
    "C:\\Windows\\x",
    "a\0b",
    "a" * 5000,
]
NAMES = ["", " ", "a", "a.txt", "é", "secret.txt", "out", "up", "\ud800", "\n", "\0"]
STEPS = ["/", "//", "\\", ".", "..", "...", "..\\..", "%2e%2e", "\uff0e\uff0e", "~", "C:"]
GLOBS = [  # a pattern, the folder to search, and the expected files
    ("*.py", ".", ["a.py", "b.py", "src/c.py", "src/deep/d.py"]),
    ("src/*.py", ".", ["src/c.py"]),
    ("src/**/*.py", ".", ["src/c.py", "src/deep/d.py"]),
    ("src/**", ".", ["src/c.py", "src/deep/d.py", "src/deep/e.md"]),
    ("**/d.*", ".", ["src/deep/d.py"]),
    ("[ab].py", ".", ["a.py", "b.py"]),
    ("[!a].py", ".", ["b.py", "src/c.py", "src/deep/d.py"]),
    ("?.{md,txt}", ".", ["src/deep/e.md"]),
    ("{a,src/*}.py", ".", ["a.py", "src/c.py"]),
    ("*.py", "src", ["src/c.py", "src/deep/d.py"]),
    ("deep/*", "src", ["src/deep/d.py", "src/deep/e.md"]),
    (".github/*", ".", [".github/ci.yml"]),
]
GIT_PATHS = [
    ".git/config",
    ".GIT/hooks/x",
    "lib/.git/config",
    "lib/.git",
    ".git./x",
    "GIT~1/config",
    "link",
    "up/x",
]
pieces = st.lists(st.sampled_from(NAMES + STEPS) | st.text(max_size=4), max_size=6)


class TestWorkspace:
    async def test_an_agent_reads_edits_and_writes_files_in_the_folder(self, ws):
        put(ws, "a.py", "x = 1\n")
        llm = ScriptedModel(
            call("read", path="a.py"),
            call("edit", path="a.py", old_text="1", new_text="2"),
            call("write", path="new/b.py", content="y = 3\n"),
            "done",
        )
        assert await Agent(llm=llm, tools=ws.tools).query("go") == "done"
        assert contents(ws.root) == {"a.py": b"x = 2\n", "new": None, "new/b.py": b"y = 3\n"}
        options = {tool.name: (tool.parallel, tool.idempotent) for tool in ws.tools}
        changing = dict.fromkeys(["write", "edit", "multi_edit"], (False, False))
        assert options == {**dict.fromkeys(["read", "glob", "grep"], (True, True)), **changing}

    async def test_only_tools_that_change_files_require_approval(self, ws):
        put(ws, "a.txt", "one")
        changes = [
            call("write", path="b.txt", content="x"),
            call("edit", path="a.txt", old_text="one", new_text="1"),
            call("multi_edit", path="a.txt", edits=[{"old_text": "one", "new_text": "1"}]),
        ]
        looks = [call("read", path="a.txt"), call("glob", pattern="*"), call("grep", pattern="o")]
        agent = type("Asking", (Approval, Agent), {})(
            llm=ScriptedModel([*looks, *changes]), tools=ws.tools
        )
        pending = (await agent.run("go")).pending
        assert [call.name for call in pending] == ["write", "edit", "multi_edit"]
        assert contents(ws.root) == {"a.txt": b"one"}

    @pytest.mark.parametrize("path", ESCAPES)
    async def test_no_spelling_of_a_path_leaves_the_root(self, ws, tmp_path, path):
        before = contents(tmp_path)
        for attempt in (ws.write(path, "x"), ws.edit(path, "secret", "x"), ws.grep("secret", path)):
            assert await error_of(attempt)
        assert await error_of(lambda: ws.read(path))
        assert await error_of(lambda: ws.glob("*", path))
        assert contents(tmp_path) == before

    @posix
    async def test_no_link_at_any_position_of_a_path_leaves_the_root(self, ws, tmp_path):
        (ws.root / "file").symlink_to(tmp_path / "secret.txt")
        (ws.root / "folder").symlink_to(tmp_path)
        (ws.root / "deep").mkdir()
        (ws.root / "deep/link").symlink_to("../folder")
        (ws.root / "dangling").symlink_to(tmp_path / "new.txt")
        before = contents(tmp_path)
        for path in ("file", "folder/secret.txt", "deep/link/secret.txt", "dangling"):
            edit, write = ws.edit(path, "secret", "x"), ws.write(path, "x")
            for attempt in (edit, write, lambda p=path: ws.read(p)):
                assert "outside" in await error_of(attempt)
        assert contents(tmp_path) == before

    @posix
    async def test_a_search_follows_no_links_and_links_inside_the_root_work(self, ws, tmp_path):
        (ws.root / "file.txt").symlink_to(tmp_path / "secret.txt")
        (ws.root / "folder").symlink_to(tmp_path)
        assert "No match for" in await ws.grep("secret")
        assert "secret.txt" not in await ws.glob("**")
        put(ws, "real/a.txt", "one")
        (ws.root / "link").symlink_to("real")
        assert "one" in ws.read("link/a.txt")
        await ws.edit("link/a.txt", "one", "two")
        assert (ws.root / "link").is_symlink()
        assert (ws.root / "real/a.txt").read_text() == "two"

    @posix
    @pytest.mark.parametrize("path", GIT_PATHS)
    async def test_git_files_are_readable_and_not_writable_even_through_a_link(self, ws, path):
        put(ws, ".git/config", "old")
        (ws.root / "link").symlink_to(".git/config")
        (ws.root / "up").symlink_to(".git")
        before = contents(ws.root)
        assert await error_of(ws.write(path, "new"))
        assert contents(ws.root) == before
        put(ws, path, "old")
        assert "old" in ws.read(path)
        for attempt in (ws.edit(path, "old", "new"), ws.write(path, "new")):
            assert "belongs to git" in await error_of(attempt)

    @given(pieces, st.sampled_from(["/", "\\", "//", "/./"]), st.booleans())
    def test_no_generated_path_leaves_the_root(self, parts, separator, absolute):
        with TemporaryDirectory() as folder:
            outside = Path(folder).resolve()
            (outside / "secret.txt").write_text("classified")
            (outside / "root/a").mkdir(parents=True)
            ws = Workspace(outside / "root")
            if sys.platform != "win32":
                (ws.root / "out").symlink_to(outside)
                (ws.root / "a/up").symlink_to("../..")
            path = (str(outside) if absolute else "") + separator.join(parts)
            for attempt in (lambda: asyncio.run(ws.write(path, "x")), lambda: ws.read(path)):
                with suppress(ToolError):
                    assert "classified" not in attempt()
            rest = {name for name in os.listdir(outside) if name != "root"}
            assert rest == {"secret.txt"}
            assert (outside / "secret.txt").read_text() == "classified"

    def test_lines_are_read_with_numbers_and_a_hint_if_more_lines_follow(self, ws):
        nine = "     9\tline 9\n    10\tline 10"
        more = "\n[More lines follow: continue with offset=4.]"
        long = f"     1\t{'x' * 2000}[... of 1,000,000]\n     2\tend"
        for content, options, expected in (
            ("one\ntwo\r\nthree", {}, "     1\tone\n     2\ttwo\n     3\tthree"),
            (TEN_LINES, {"offset": 9, "limit": 2}, nine),
            (TEN_LINES, {"offset": 3, "limit": 1}, f"     3\tline 3{more}"),
            ("x" * 1_000_000 + "\nend\n", {}, long),
            ("", {}, "[a.txt is empty, or ends before line 1.]"),
        ):
            put(ws, "a.txt", content)
            assert ws.read("a.txt", **options) == expected

    @pytest.mark.parametrize(
        ("path", "problem"),
        [
            ("aa", "Search for it with glob"),
            ("no/such/folder", "Search for it with glob"),
            ("bin/x", "Search for it with glob"),
            (".", "a folder"),
            ("folder", "a folder"),
            ("bin", "binary file of 6 bytes"),
            ("huge", "too large: 8,589,934,592 bytes. Search it with grep"),
            pytest.param("pipe", "a pipe or a device", marks=posix),
        ],
    )
    async def test_an_unreadable_path_is_an_error_and_does_not_hang(self, ws, path, problem):
        put(ws, "bin", b"\x7fELF\0\0")
        (ws.root / "folder").mkdir()
        if sys.platform != "win32":
            os.mkfifo(ws.root / "pipe")
        with open(ws.root / "huge", "wb") as file:
            file.truncate(1 << 33)
        assert problem in await error_of(lambda: ws.read(path))
        assert problem in await error_of(ws.edit(path, "x", "y"))
        if "glob" not in problem:
            assert problem in await error_of(ws.write(path, "x"))
        (ws.root / "huge").unlink()
        assert "No match for" in await ws.grep("xyz")

    async def test_a_file_must_be_read_before_it_is_overwritten_and_again_after_a_change(self, ws):
        put(ws, "a.txt", "old")
        for text in ("old", "somebody else's"):
            put(ws, "a.txt", text)
            assert "read it first" in await error_of(ws.write("a.txt", "new"))
            assert contents(ws.root) == {"a.txt": text.encode()}
            ws.read("a.txt")
        await ws.write("a.txt", "new")
        assert contents(ws.root) == {"a.txt": b"new"}
        put(ws, "b.txt", "one two")
        await ws.edit("b.txt", "one", "1")
        assert "read it first" in await error_of(ws.write("b.txt", "new")), (
            "an edit does not count as a read"
        )
        ws.read("b.txt")
        await ws.edit("b.txt", "two", "2")
        await ws.write("b.txt", "new")

    @posix
    async def test_file_modes_are_preserved_and_a_read_only_file_is_not_changed(self, ws):
        target = put(ws, "run.sh", "old")
        target.chmod(0o750)
        await ws.edit("run.sh", "old", "new")
        assert stat.S_IMODE(target.stat().st_mode) == 0o750
        target.chmod(0o444)
        ws.read("run.sh")
        for work in (ws.write("run.sh", "x"), ws.edit("run.sh", "new", "x")):
            assert "read-only" in await error_of(work)
        assert contents(ws.root) == {"run.sh": b"new"}

    async def test_a_failed_write_leaves_only_the_old_file(self, ws, monkeypatch):
        put(ws, "a.txt", "old")

        def fail(*args, **kwargs):
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(Path, "replace", fail)
        assert "No space left" in await error_of(ws.edit("a.txt", "old", "new"))
        assert contents(ws.root) == {"a.txt": b"old"}

    async def test_line_endings_and_undecodable_bytes_are_preserved(self, ws):
        for before, edits, after in (
            (b"x\ny\nx\n", [("x", "z", True)], b"z\ny\nz\n"),
            (b"1\r\n2\r\n3\r\n", [("1\n2", "a\nb"), ("3", "c\nd")], b"a\r\nb\r\nc\r\nd\r\n"),
            (b"caf\xe9 = 1\n", [("= 1", "= 2")], b"caf\xe9 = 2\n"),
        ):
            put(ws, "a.txt", before)
            for edit in edits:
                await ws.edit("a.txt", *edit)
            assert contents(ws.root) == {"a.txt": after}

    async def test_the_old_text_must_occur_exactly_once(self, ws):
        put(ws, "a.txt", "x\ny\nx\n")
        for old, problem in {"x": "2 times", "w": "not in a.txt", "": "is empty"}.items():
            assert problem in await error_of(ws.edit("a.txt", old, "z"))
        assert contents(ws.root) == {"a.txt": b"x\ny\nx\n"}

    async def test_several_edits_are_applied_in_order_and_all_or_none(self, ws):
        put(ws, "a.txt", b"one\r\ntwo\r\nthree\r\n")

        async def edit(*pairs):
            edits = [{"old_text": old, "new_text": new} for old, new in pairs]
            llm = ScriptedModel(call("multi_edit", path="a.txt", edits=edits), "ok")
            await Agent(llm=llm, tools=ws.tools).query("go")
            return llm.requests[1].messages[-1].text

        reply = await edit(("one", "1\n2"), ("2\ntwo", "II"), ("three", "3"))
        assert reply == "Edited a.txt: 3 replaced."
        assert contents(ws.root) == {"a.txt": b"1\r\nII\r\n3\r\n"}
        reply = await edit(("1", "one"), ("II", ""), ("four", "4"))
        assert reply.startswith("'four' is not in a.txt.")
        assert "2 times" in await edit(("1", "3"), ("3", "4"))
        assert contents(ws.root) == {"a.txt": b"1\r\nII\r\n3\r\n"}

    @pytest.mark.parametrize(("pattern", "path", "expected"), GLOBS)
    async def test_glob_supports_these_patterns(self, ws, pattern, path, expected):
        for name in ("b.py", "a.py", "src/c.py", "src/deep/d.py", "src/deep/e.md"):
            put(ws, name, "")
        for name in (".github/ci.yml", ".git/a.py", "node_modules/a.py"):
            put(ws, name, "")
        assert (await ws.glob(pattern, path)).splitlines() == expected

    async def test_grep_returns_matching_lines(self, ws):
        put(ws, "a.py", "def one():\n    pass\r\n")
        put(ws, "src/b.py", "# DEF\ndef two():\n")
        put(ws, "src/c.txt", "def three\n")
        put(ws, "a.bin", b"\0four\n")
        put(ws, ".git/x", "four\n")
        put(ws, "node_modules/x", "four\n")
        put(ws, "-e", "--files\n")
        assert await ws.grep("^def", glob="*.py") == "a.py:1:def one():\nsrc/b.py:2:def two():"
        assert await ws.grep("pass$") == "a.py:2:    pass"
        matches = await ws.grep("def", "src/b.py", ignore_case=True)
        assert matches == "src/b.py:1:# DEF\nsrc/b.py:2:def two():"
        assert await ws.grep("three", "src") == "src/c.txt:1:def three"
        assert "No match for" in await ws.grep("four"), (
            "binary files and ignored folders are skipped"
        )
        assert await ws.grep("--files", "-e") == "-e:1:--files", "a pattern is never an option"
        for pattern in ("(", "[z-a]", "*"):
            assert re.search("re.error|PatternError", await ws.grep(pattern))

    @pytest.mark.skipif(sys.platform == "win32", reason="names can't contain line ends")
    @pytest.mark.parametrize("end", ["\n", "\r", "\x85", "\u2028"])
    async def test_a_line_end_in_a_name_or_a_line_forges_no_result(self, ws, end):
        put(ws, f"a{end}fake.py:1:forged", "needle\n")
        put(ws, "b.py", f"needle{end.strip(chr(10))}fake.py:2:forged\n")
        found = await ws.grep("needle")
        assert [line[:2] for line in found.splitlines()] == ["a\\", "b."]
        assert len((await ws.glob("*")).splitlines()) == 2

    @pytest.mark.skipif(sys.platform == "win32", reason="names can't contain line ends")
    async def test_a_folder_with_a_line_end_in_its_name_is_searched(self, ws):
        put(ws, "in\nside/a.py", "needle\n")
        assert await ws.grep("needle") == r"in\nside/a.py:1:needle"
        assert await ws.glob("**/*.py") == r"in\nside/a.py"

    async def test_long_lines_and_many_lines_are_truncated(self, ws, monkeypatch):
        monkeypatch.setattr(files, "MAX_FOUND", 2)
        put(ws, "a", "word" + "x" * 5_000_000 + "\n" + "word\n" * 100_000)
        text = await ws.grep("word")
        assert "More than 2" in text
        assert len(text) < 1000

    async def test_a_catastrophically_backtracking_regex_is_stopped(self, ws):
        put(ws, "evil", "a" * 60 + "!\n")
        (tool := ws.grep).timeout = 0.5
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
