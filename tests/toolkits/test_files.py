"""Files: an agent works in one folder, and no path leads out of it."""

import asyncio
import os
import shutil
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
from agentloop.toolkits.files import Workspace, edit, glob, grep, read, workspace, write

posix = pytest.mark.skipif(sys.platform == "win32", reason="needs links, modes or pipes")
RG = shutil.which("rg")


@pytest.fixture
def ws(tmp_path):
    (tmp_path / "root").mkdir()
    (tmp_path / "secret.txt").write_text("secret")
    return Workspace(tmp_path / "root")


@pytest.fixture(params=["re", pytest.param("rg", marks=pytest.mark.skipif(not RG, reason="no rg"))])
def search_program(request, monkeypatch):
    monkeypatch.setattr(files.shutil, "which", lambda name: RG if request.param == "rg" else None)
    return request.param


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

    async def test_an_override_moves_bound_tools_and_bare_ones(self, ws, tmp_path):
        (tmp_path / "other").mkdir()
        other = {workspace: lambda: Workspace(tmp_path / "other")}
        for number, tools in enumerate([ws.tools, [write]]):
            llm = ScriptedModel(call("write", path=f"{number}", content="x"), "done")
            await Agent(llm=llm, tools=tools, dependency_overrides=other).query("go")
        assert contents(tmp_path / "other") == {"0": b"x", "1": b"x"}
        assert contents(ws.root) == {}

    async def test_without_a_workspace_the_error_says_how_to_set_one(self):
        llm = ScriptedModel(call("read", path="x"), "done")
        agent = Agent(llm=llm, tools=[read])
        await agent.query("go")
        assert "Workspace('path').tools" in llm.requests[-1].messages[-1].text

    def test_bind_offers_some_tools_with_the_options_of_the_originals(self, ws):
        tools = ws.bind(read, write)
        assert [tool.name for tool in tools] == ["read", "write"]
        assert [(tool.parallel, tool.idempotent) for tool in tools] == [
            (True, True),
            (False, False),
        ]
        assert tools[0].parameters == read.parameters
        assert "ws" not in read.parameters["properties"]

    async def test_the_model_cannot_choose_the_workspace(self, ws):
        llm = ScriptedModel(call("read", path="secret.txt", ws=".."), "done")
        await Agent(llm=llm, tools=ws.tools).query("go")
        assert llm.requests[-1].messages[-1].is_error

    def test_the_root_has_to_be_a_folder(self, tmp_path):
        with pytest.raises(FileNotFoundError):
            Workspace(tmp_path / "missing")
        (tmp_path / "file").write_text("")
        with pytest.raises(NotADirectoryError):
            Workspace(tmp_path / "file")


ESCAPES = [
    "../secret.txt",
    "a/../../secret.txt",
    "/etc/passwd",
    "//etc/passwd",
    "..",
    "../root2/x",
    "./../secret.txt",
    "~/x",
    "~root/x",
    "..\\secret.txt",
    "C:\\Windows\\x",
    "C:/x",
    "a\0b",
    "a" * 5000,
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
            lambda: read(path, ws=ws),
            lambda: write(path, "x", ws=ws),
            lambda: edit(path, "secret", "x", ws=ws),
            lambda: glob("*", path, ws=ws),
            lambda: grep("secret", path, ws=ws),
        ):
            assert await refused(attempt)
        assert contents(tmp_path) == before

    async def test_the_error_says_the_rule(self, ws):
        for path in ("../x", "/x", "~/x"):
            assert "relative to the workspace root" in await refused(lambda p=path: read(p, ws=ws))

    async def test_an_absolute_path_into_the_root_is_fine(self, ws):
        target = put(ws, "a.txt", "hello")
        assert "hello" in read(str(target), ws=ws)

    @posix
    async def test_by_a_link_at_the_end_in_the_middle_or_dangling(self, ws, tmp_path):
        (ws.root / "file").symlink_to(tmp_path / "secret.txt")
        (ws.root / "folder").symlink_to(tmp_path)
        (ws.root / "deep").mkdir()
        (ws.root / "deep/link").symlink_to("../folder")
        (ws.root / "dangling").symlink_to(tmp_path / "new.txt")
        before = contents(tmp_path)
        for path in ("file", "folder/secret.txt", "deep/link/secret.txt", "dangling"):
            assert "leads out" in await refused(lambda p=path: read(p, ws=ws))
            assert "leads out" in await refused(write(path, "x", ws=ws))
            assert "leads out" in await refused(edit(path, "secret", "x", ws=ws))
        assert contents(tmp_path) == before

    @posix
    async def test_a_search_follows_no_link(self, ws, tmp_path, search_program):
        (ws.root / "file.txt").symlink_to(tmp_path / "secret.txt")
        (ws.root / "folder").symlink_to(tmp_path)
        assert "There are no lines" in await grep("secret", ws=ws)
        assert "secret.txt" not in await glob("**", ws=ws)

    @posix
    async def test_links_inside_the_root_work_and_stay_links(self, ws):
        put(ws, "real/a.txt", "one")
        (ws.root / "link").symlink_to("real")
        assert "one" in read("link/a.txt", ws=ws)
        await edit("link/a.txt", "one", "two", ws=ws)
        assert (ws.root / "link").is_symlink()
        assert (ws.root / "real/a.txt").read_text() == "two"

    @posix
    async def test_a_link_put_there_after_the_check_leads_nowhere(self, ws, tmp_path):
        outside = tmp_path / "outside"
        outside.mkdir()
        (outside / "a.txt").write_text("secret")
        put(ws, "folder/a.txt", "inside")

        def swap(name, arguments):
            shutil.rmtree(ws.root / "folder")
            (ws.root / "folder").symlink_to(outside)
            return True

        ws.approve = swap
        assert await refused(edit("folder/a.txt", "inside", "x", ws=ws))
        assert contents(outside) == {"a.txt": b"secret"}
        for path in ("folder/a.txt", "folder/new.txt"):
            target = ws.root / path  # as `resolve` has found it, before the swap
            with pytest.raises((OSError, ToolError)), ws.open(target):
                pass
            with pytest.raises((OSError, ToolError)):
                ws.store(target, b"x", None)
        assert contents(outside) == {"a.txt": b"secret"}

    @pytest.mark.parametrize(
        "path",
        [".git/config", ".GIT/hooks/pre-commit", "vendor/lib/.git/config", "lib/.git", ".git./x"],
    )
    async def test_what_belongs_to_git_is_read_and_not_written(self, ws, path):
        for before in ({}, {path: "old"}):
            for name, text in before.items():
                put(ws, name, text)
                assert "old" in read(name, ws=ws)
                assert "git's own" in await refused(edit(name, "old", "new", ws=ws))
            known = contents(ws.root)
            assert "git's own" in await refused(write(path, "new", ws=ws))
            assert contents(ws.root) == known

    @posix
    async def test_no_link_leads_a_write_into_git(self, ws):
        put(ws, ".git/config", "old")
        (ws.root / "notes.txt").symlink_to(".git/config")
        (ws.root / "docs").symlink_to(".git/hooks")
        read("notes.txt", ws=ws)
        for path in ("notes.txt", "docs/pre-commit"):
            assert "git's own" in await refused(write(path, "new", ws=ws))
        assert contents(ws.root / ".git") == {"config": b"old"}

    async def test_a_file_with_a_name_like_gits_is_written(self, ws):
        for path in (".gitignore", ".github/ci.yml", "a.git", "git/config"):
            await write(path, "x", ws=ws)

    @posix
    async def test_a_file_that_became_a_link_is_not_written_through(self, ws, tmp_path):
        target = put(ws, "a.txt", "inside")

        def swap(name, arguments):
            target.unlink()
            target.symlink_to(tmp_path / "secret.txt")
            return True

        ws.approve = swap
        assert await refused(edit("a.txt", "inside", "x", ws=ws))
        assert (tmp_path / "secret.txt").read_text() == "secret"

    @given(
        st.lists(
            st.sampled_from(PIECES) | st.text(max_size=4),
            max_size=6,
        ),
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
            try:
                target = ws.resolve(path)
            except ToolError:
                target = None
            assert target is None or target == ws.root or ws.root in target.parents
            for attempt in (
                lambda: asyncio.run(write(path, "x", ws=ws)),
                lambda: read(path, ws=ws),
            ):
                with suppress(ToolError):
                    assert "classified" not in attempt()
            rest = {name for name in os.listdir(outside) if name != "root"}
            assert rest == {"secret.txt"}
            assert (outside / "secret.txt").read_text() == "classified"


class TestRead:
    async def test_lines_come_with_their_numbers(self, ws):
        put(ws, "a.txt", "one\ntwo\r\nthree")
        assert read("a.txt", ws=ws) == "     1\tone\n     2\ttwo\n     3\tthree"

    async def test_a_range_says_how_to_read_on(self, ws):
        put(ws, "a.txt", "".join(f"line {n}\n" for n in range(1, 11)))
        text = read("a.txt", offset=3, limit=2, ws=ws)
        assert text == "     3\tline 3\n     4\tline 4\n[More follows: read on with offset=5.]"
        assert read("a.txt", offset=9, limit=2, ws=ws).endswith("line 10")

    async def test_without_a_range_there_is_a_limit_of_bytes(self, ws):
        put(ws, "a.txt", "x" * 99 + "\n" + ("y" * 99 + "\n") * 1900)
        text = read("a.txt", ws=ws)
        assert len(text) < 2 * files.MAX_READ
        assert "read on with offset=507" in text

    async def test_a_long_line_is_cut_and_the_next_ones_keep_their_numbers(self, ws):
        put(ws, "a.txt", b"x" * 1_000_000 + b"\nend\n")
        text = read("a.txt", ws=ws)
        assert "[... 998,000 more bytes]\n     2\tend" in text
        assert len(text) < 3000

    async def test_a_line_one_longer_than_the_limit_loses_nothing_silently(self, ws):
        put(ws, "a.txt", b"x" * (files.MAX_LINE + 1) + b"\n")
        assert "[... 1 more bytes]" in read("a.txt", ws=ws)
        put(ws, "b.txt", b"x" * files.MAX_LINE + b"\r\n")
        assert "more bytes" not in read("b.txt", ws=ws)

    async def test_a_huge_file_is_not_read_for_ever(self, ws, monkeypatch):
        monkeypatch.setattr(files, "MAX_SCAN", 1 << 20)
        with open(ws.root / "huge", "wb") as file:
            file.write(b"x" * 10_000)
            file.truncate(1 << 33)
        assert "use grep" in read("huge", ws=ws)

    @pytest.mark.parametrize("offset", [7, 10**30])
    async def test_there_is_nothing_behind_the_end(self, ws, offset):
        put(ws, "a.txt", "one\n")
        try:
            text = read("a.txt", offset=offset, ws=ws)
        except ToolError as error:
            text = str(error)
        assert "no line 7" in text or "a.txt" in text

    async def test_an_empty_file_says_so(self, ws):
        put(ws, "a.txt", "")
        assert "empty" in read("a.txt", ws=ws)

    async def test_what_is_no_text_says_so(self, ws):
        put(ws, "a.bin", b"\x7fELF\0\0")
        (ws.root / "folder").mkdir()
        assert "binary file of 6 bytes" in await refused(lambda: read("a.bin", ws=ws))
        assert "is a folder" in await refused(lambda: read("folder", ws=ws))
        assert "is a folder" in await refused(lambda: read(".", ws=ws))
        assert "is a folder" in await refused(write("folder", "x", ws=ws))

    @posix
    async def test_a_pipe_does_not_hang(self, ws):
        os.mkfifo(ws.root / "pipe")
        assert "pipe or a device" in await refused(lambda: read("pipe", ws=ws))
        assert "pipe or a device" in await refused(write("pipe", "x", ws=ws))
        assert "There are no lines" in await grep("x", ws=ws)

    async def test_a_wrong_name_gets_the_right_one(self, ws):
        put(ws, "src/main.py", "")
        assert "Did you mean: src/main.py?" in await refused(lambda: read("src/mian.py", ws=ws))
        assert "There is no" in await refused(lambda: read("no/such/folder", ws=ws))
        assert "main.py" in await refused(lambda: read("src/main.py/x", ws=ws))

    async def test_of_very_many_names_some_are_compared(self, ws, monkeypatch):
        compared = []
        monkeypatch.setattr(
            files, "get_close_matches", lambda name, names: compared.append(len(names)) or []
        )
        monkeypatch.setattr(files.os, "listdir", lambda folder: [f"{n}" for n in range(60_000)])
        assert "There is no x" in await refused(lambda: read("x", ws=ws))
        assert compared == [files.MAX_NAMES]

    async def test_other_bytes_than_utf_8_are_marked(self, ws):
        put(ws, "a.txt", b"caf\xe9\n")
        text = read("a.txt", ws=ws)
        assert text.startswith("     1\tcaf\ufffd\n")
        assert "not UTF-8" in text


class TestWrite:
    async def test_it_makes_folders_and_says_what_it_did(self, ws):
        assert await write("a/b/c.txt", "é\n", ws=ws) == "Created a/b/c.txt: 3 bytes."
        assert await write("a/b/c.txt", "x", ws=ws) == "Overwrote a/b/c.txt: 1 bytes."
        assert contents(ws.root) == {"a": None, "a/b": None, "a/b/c.txt": b"x"}

    async def test_a_file_has_to_be_read_before_it_is_overwritten(self, ws):
        put(ws, "a.txt", "old")
        assert "exists: read it" in await refused(write("a.txt", "new", ws=ws))
        assert contents(ws.root) == {"a.txt": b"old"}
        read("a.txt", ws=ws)
        await write("a.txt", "new", ws=ws)
        assert contents(ws.root) == {"a.txt": b"new"}

    async def test_a_file_that_changed_since_has_to_be_read_again(self, ws):
        put(ws, "a.txt", "old")
        read("a.txt", ws=ws)
        put(ws, "a.txt", "somebody else's")
        assert "changed on disk" in await refused(write("a.txt", "new", ws=ws))
        assert contents(ws.root) == {"a.txt": b"somebody else's"}

    async def test_the_same_content_is_not_written_again(self, ws):
        await write("a.txt", "x", ws=ws)
        before = (ws.root / "a.txt").stat()
        assert "already" in await write("a.txt", "x", ws=ws)
        assert (ws.root / "a.txt").stat() == before

    @posix
    async def test_mode_bits_are_kept(self, ws):
        target = put(ws, "run.sh", "echo 1\n")
        target.chmod(0o750)
        await edit("run.sh", "1", "2", ws=ws)
        assert stat.S_IMODE(target.stat().st_mode) == 0o750

    @posix
    async def test_a_read_only_file_is_left_alone(self, ws):
        put(ws, "a.txt", "old").chmod(0o444)
        read("a.txt", ws=ws)
        assert "read-only" in await refused(write("a.txt", "new", ws=ws))
        assert "read-only" in await refused(edit("a.txt", "old", "new", ws=ws))
        assert contents(ws.root) == {"a.txt": b"old"}

    @pytest.mark.parametrize("step", ["fsync", "replace"])
    async def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(
        self, ws, monkeypatch, step
    ):
        put(ws, "a.txt", "old")

        def fail(*args, **kwargs):
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(files.os, step, fail)
        assert "No space left" in await refused(edit("a.txt", "old", "new", ws=ws))
        assert contents(ws.root) == {"a.txt": b"old"}

    async def test_text_that_utf_8_cannot_carry_is_refused(self, ws):
        assert await refused(write("a.txt", "\ud800", ws=ws))
        assert contents(ws.root) == {}


class TestEdit:
    async def test_the_old_text_has_to_be_there_once(self, ws):
        put(ws, "a.txt", "x\ny\nx\n")
        assert "at lines 1, 3" in await refused(edit("a.txt", "x", "z", ws=ws))
        assert contents(ws.root) == {"a.txt": b"x\ny\nx\n"}
        assert (
            await edit("a.txt", "x", "z", replace_all=True, ws=ws) == "Edited a.txt at line 1, 3."
        )
        assert contents(ws.root) == {"a.txt": b"z\ny\nz\n"}

    async def test_matches_that_overlap_count_as_two(self, ws):
        put(ws, "a.txt", "aaa")
        assert "more than once" in await refused(edit("a.txt", "aa", "b", ws=ws))

    async def test_the_lines_of_all_replacements_are_those_that_were_made(self, ws):
        put(ws, "a.txt", "aaaa\n")
        assert "line 1, 1." in await edit("a.txt", "aa", "b", replace_all=True, ws=ws)
        assert contents(ws.root) == {"a.txt": b"bb\n"}

    async def test_a_text_that_nearly_matches_everywhere_is_looked_for_in_linear_time(self, ws):
        put(ws, "a.txt", "a" * 5_000_000)
        error = await refused(edit("a.txt", "a" * 50_000 + "b", "c", ws=ws))
        assert "not in a.txt" in error

    async def test_mixed_line_ends_are_named(self, ws):
        put(ws, "a.txt", b"a\r\nb\nc\nd\n")
        assert r"some end with \r\n" in await refused(edit("a.txt", "a\nb", "A\nB", ws=ws))
        await edit("a.txt", "a", "A", ws=ws)
        assert contents(ws.root) == {"a.txt": b"A\r\nb\nc\nd\n"}

    async def test_other_white_space_is_found(self, ws):
        put(ws, "a.py", "def f():\n\treturn 1\n")
        error = await refused(edit("a.py", "def f():\n    return 1", "x", ws=ws))
        assert "line 1" in error
        assert "white space" in error

    async def test_near_matches_are_shown(self, ws):
        put(ws, "a.py", "import os\n\ndef compute_total(items):\n    return sum(items)\n")
        error = await refused(edit("a.py", "def compute_totals(item):", "x", ws=ws))
        assert "line 3: def compute_total(items):" in error

    async def test_nothing_near_says_to_read_it(self, ws):
        put(ws, "a.py", "x\n")
        assert "Read it again" in await refused(edit("a.py", "completely different", "y", ws=ws))

    async def test_an_edit_that_is_none_is_refused(self, ws):
        put(ws, "a.txt", "x")
        assert "empty" in await refused(edit("a.txt", "", "y", ws=ws))
        assert "same" in await refused(edit("a.txt", "x", "x", ws=ws))
        assert "There is no b.txt" in await refused(edit("b.txt", "x", "y", ws=ws))

    async def test_crlf_is_kept(self, ws):
        put(ws, "a.txt", b"one\r\ntwo\r\nthree\r\n")
        await edit("a.txt", "one\ntwo", "1\n2", ws=ws)
        await edit("a.txt", "three", "3\n4", ws=ws)
        assert contents(ws.root) == {"a.txt": b"1\r\n2\r\n3\r\n4\r\n"}

    async def test_lf_is_kept_when_the_model_writes_crlf(self, ws):
        put(ws, "a.txt", b"one\ntwo\n")
        await edit("a.txt", "one\r\ntwo", "1\r\n2", ws=ws)
        assert contents(ws.root) == {"a.txt": b"1\n2\n"}

    async def test_bytes_that_are_not_utf_8_are_kept(self, ws):
        put(ws, "a.txt", b"caf\xe9 = 1\n")
        await edit("a.txt", "= 1", "= 2", ws=ws)
        assert contents(ws.root) == {"a.txt": b"caf\xe9 = 2\n"}

    async def test_a_binary_file_is_left_alone(self, ws):
        put(ws, "a.bin", b"x\0y")
        assert "binary" in await refused(edit("a.bin", "x", "z", ws=ws))

    async def test_a_file_that_changed_since_it_was_read_is_edited_and_the_result_says_so(self, ws):
        put(ws, "a.txt", "one\n")
        read("a.txt", ws=ws)
        put(ws, "a.txt", "one\ntwo\n")
        assert "had changed on disk" in await edit("a.txt", "one", "1", ws=ws)
        assert "had changed" not in await edit("a.txt", "two", "2", ws=ws)
        assert contents(ws.root) == {"a.txt": b"1\n2\n"}

    @pytest.mark.parametrize("tool", ["edit", "write"])
    async def test_a_file_that_changes_while_approval_is_asked_is_left_alone(self, ws, tool):
        target = put(ws, "a.txt", "old")
        read("a.txt", ws=ws)
        ws.approve = lambda name, arguments: target.write_text("somebody else's") > 0
        work = edit("a.txt", "old", "new", ws=ws) if tool == "edit" else write("a.txt", "n", ws=ws)
        assert "just changed" in await refused(work)
        assert contents(ws.root) == {"a.txt": b"somebody else's"}

    async def test_a_file_that_vanishes_while_approval_is_asked_is_not_made_again(self, ws):
        target = put(ws, "a.txt", "old")
        ws.approve = lambda name, arguments: target.unlink() is None
        assert await refused(edit("a.txt", "old", "new", ws=ws))
        assert contents(ws.root) == {}

    async def test_a_huge_file_is_left_alone(self, ws, monkeypatch):
        monkeypatch.setattr(files, "MAX_EDIT", 10)
        put(ws, "a.txt", "x" * 11)
        assert "too large" in await refused(edit("a.txt", "x", "y", ws=ws))

    async def test_two_edits_in_one_turn_both_count(self, ws):
        put(ws, "a.txt", "one two")
        llm = ScriptedModel(
            [
                call("edit", path="a.txt", old_text="one", new_text="1"),
                call("edit", path="a.txt", old_text="two", new_text="2"),
            ],
            "done",
        )
        await Agent(llm=llm, tools=ws.tools).query("go")
        assert contents(ws.root) == {"a.txt": b"1 2"}


async def nobody(name, arguments):
    await asyncio.Event().wait()


async def stubborn(name, arguments):
    try:
        await asyncio.Event().wait()
    finally:
        return True  # noqa: B012


def raising(name, arguments):
    raise RuntimeError("no terminal")


class TestApproval:
    @pytest.mark.parametrize(
        "approve",
        [
            raising,
            nobody,
            lambda name, arguments: None,
            lambda name, arguments: 1,
            lambda name, arguments: "yes",
            lambda name, arguments: False,
            lambda: True,
        ],
    )
    async def test_anything_but_true_denies_and_nothing_happens(self, ws, approve):
        put(ws, "a.txt", "old")
        read("a.txt", ws=ws)
        ws.approve, ws.approve_timeout = approve, 0.05
        assert "Denied" in await refused(write("a.txt", "new", ws=ws))
        assert "Denied" in await refused(write("new/b.txt", "new", ws=ws))
        assert "Denied" in await refused(edit("a.txt", "old", "new", ws=ws))
        assert contents(ws.root) == {"a.txt": b"old"}

    @posix
    async def test_it_is_asked_about_the_file_behind_a_link(self, ws):
        put(ws, "deploy.sh", "old")
        (ws.root / "notes.txt").symlink_to("deploy.sh")
        (ws.root / "here").symlink_to(".")
        asked = []
        ws.approve = lambda name, arguments: asked.append((name, arguments["path"])) is None
        await edit("notes.txt", "old", "new", ws=ws)
        read("here/notes.txt", ws=ws)
        await write("here/notes.txt", "newer", ws=ws)
        assert asked == [("edit", "deploy.sh"), ("write", "deploy.sh")]

    async def test_it_is_asked_with_the_arguments(self, ws):
        asked = []

        async def approve(name, arguments):
            asked.append((name, dict(arguments)))
            arguments.clear()
            return True

        ws.approve = approve
        await write("./a.txt", "x", ws=ws)
        await edit("a.txt", "x", "y", ws=ws)
        assert asked == [
            ("write", {"path": "a.txt", "content": "x"}),
            ("edit", {"path": "a.txt", "old_text": "x", "new_text": "y", "replace_all": False}),
        ]
        assert contents(ws.root) == {"a.txt": b"y"}

    async def test_it_is_not_asked_to_look_or_for_what_cannot_be_done(self, ws):
        put(ws, "a.txt", "x")
        ws.approve = raising
        read("a.txt", ws=ws)
        await glob("*", ws=ws)
        assert "leads out" in await refused(write("../a.txt", "x", ws=ws))

    async def test_a_cancel_while_it_is_asked_leaves_the_file(self, ws):
        asked = asyncio.Event()

        async def approve(name, arguments):
            asked.set()
            await asyncio.Event().wait()

        ws.approve = approve
        task = asyncio.create_task(write("a.txt", "x", ws=ws))
        await asked.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert contents(ws.root) == {}


class TestGlob:
    @pytest.mark.parametrize(
        ("pattern", "path", "found"),
        [
            ("*.py", ".", "a.py b.py src/c.py src/deep/d.py"),
            ("./*.md", ".", ""),
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
        for name in (
            "b.py",
            "a.py",
            "src/c.py",
            "src/deep/d.py",
            "src/deep/e.md",
            ".github/ci.yml",
        ):
            put(ws, name, "")
        put(ws, ".git/a.py", "")
        put(ws, "node_modules/a.py", "")
        text = await glob(pattern, path, ws=ws)
        assert text.split() == found.split() or (not found and "There are no files" in text)

    async def test_many_are_cut_and_it_says_so(self, ws, monkeypatch):
        monkeypatch.setattr(files, "MAX_FOUND", 3)
        for n in range(5):
            put(ws, f"{n}.txt", "")
        lines = (await glob("*", ws=ws)).split("\n")
        assert lines[:3] == ["0.txt", "1.txt", "2.txt"]
        assert "more than these 3" in lines[3]
        assert len(lines) == 4

    @pytest.mark.parametrize("pattern", ["../*", "/etc/*", "~/*", "a/../../*"])
    async def test_a_pattern_does_not_go_up(self, ws, pattern):
        assert "goes down" in await refused(glob(pattern, ws=ws))

    async def test_a_folder_that_is_not_there_says_so(self, ws):
        assert "There is no nowhere" in await refused(glob("*", "nowhere", ws=ws))

    async def test_a_name_is_never_an_option_or_a_pattern(self, ws):
        put(ws, "-rf/[x].py", "")
        assert await glob("*.py", "-rf", ws=ws) == "-rf/[x].py"


class TestGrep:
    async def test_it_finds_lines(self, ws, search_program):
        put(ws, "a.py", "def one():\n    pass\r\n")
        put(ws, "src/b.py", "# DEF\ndef two():\n")
        put(ws, "src/c.txt", "def three\n")
        assert await grep("^def", glob="*.py", ws=ws) == "a.py:1:def one():\nsrc/b.py:2:def two():"
        assert await grep("pass$", ws=ws) == "a.py:2:    pass"
        assert await grep("def", "src/b.py", ignore_case=True, ws=ws) == (
            "src/b.py:1:# DEF\nsrc/b.py:2:def two():"
        )
        assert await grep("three", "src", ws=ws) == "src/c.txt:1:def three"
        assert "There are no lines" in await grep("four", ws=ws)

    async def test_binary_files_and_what_is_not_ours_are_left_out(self, ws, search_program):
        put(ws, "a.bin", b"\0word\n")
        put(ws, ".git/x", "word\n")
        put(ws, "node_modules/x", "word\n")
        assert "There are no lines" in await grep("word", ws=ws)

    async def test_a_wrong_pattern_says_so(self, ws, search_program):
        put(ws, "a", "x")
        for pattern in ("(", "[z-a]", "*"):
            error = await refused(grep(pattern, ws=ws))
            assert "regular expression" in error or "regex" in error
        assert "empty" in await refused(grep("", ws=ws))

    async def test_a_pattern_that_python_warns_of_is_searched_for(self, ws, monkeypatch):
        monkeypatch.setattr(files.shutil, "which", lambda name: None)
        put(ws, "a.txt", "x\n")
        assert "There are no lines" in await grep("[[:alpha:]]x", ws=ws)
        assert "There are no files" in await glob("[[a]zz", ws=ws)

    async def test_a_pattern_is_never_an_option(self, ws, search_program):
        put(ws, "-e", "--files\n")
        assert await grep("--files", "-e", ws=ws) == "-e:1:--files"

    async def test_long_lines_and_many_lines_are_cut(self, ws, search_program, monkeypatch):
        monkeypatch.setattr(files, "MAX_FOUND", 2)
        put(ws, "a", "word" + "x" * 5_000_000 + "\n" + "word\n" * 100_000)
        text = await grep("word", ws=ws)
        assert "more than these 2" in text
        assert len(text) < 1000

    async def test_a_regex_that_backtracks_for_ever_is_stopped(self, ws, monkeypatch):
        started = []
        popen = files.Popen
        monkeypatch.setattr(files.shutil, "which", lambda name: None)
        monkeypatch.setattr(files, "SEARCH_SECONDS", 0.5)
        monkeypatch.setattr(
            files, "Popen", lambda *a, **k: started.append(popen(*a, **k)) or started[0]
        )
        put(ws, "a", "b\n")
        put(ws, "evil", "a" * 60 + "!\n")
        text = await grep("^(a+)+$|b", ws=ws)
        assert "Stopped after 0.5 seconds" in text
        assert started[0].wait() != 0

    async def test_a_cancelled_search_is_killed(self, ws, monkeypatch):
        started = asyncio.Queue()
        popen = files.Popen

        def start(*args, **options):
            started.put_nowait(process := popen(*args, **options))
            return process

        monkeypatch.setattr(files.shutil, "which", lambda name: None)
        monkeypatch.setattr(files, "Popen", start)
        put(ws, "evil", "a" * 60 + "!\n")
        task = asyncio.create_task(grep("^(a+)+$", ws=ws))
        process = await started.get()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert process.wait() != 0

    async def test_results_of_a_tool_are_in_the_tool_message_of_the_run(self, ws):
        put(ws, "a.py", "x = 1\n")
        llm = ScriptedModel(call("grep", pattern="x"), "done")
        await Agent(llm=llm, tools=ws.tools).query("go")
        assert llm.requests[-1].messages[-1].text == "a.py:1:x = 1"
