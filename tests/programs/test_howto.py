"""The how-to pages are correct: commands with the files of a page print the shown output."""

import os
import re
import shlex
import shutil
import signal
import sqlite3
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from agentloop import Agent, ScriptedModel, Session
from tests import ROOT
from tests.programs.recipes.test_fleet import free_port

from .test_readme import matches, steps

FOLDER = ROOT / "examples" / "howto"
PAGES = sorted(path for path in FOLDER.glob("*.md") if path.name != "README.md")
FENCE = re.compile(r"^```(\w+)(?: (\S+))?\n(.*?)^```$", re.DOTALL | re.MULTILINE)
ORDER = ["chatbot", "approvals", "extraction", "coding_agent", "mcp", "fleet"]
NEEDS = {
    "chatbot": ["fastapi", "uvicorn"],
    "fleet": ["dbos", "fastapi", "uvicorn", "psycopg"],
    "mcp": ["mcp"],
}
EDIT = """import sys; from pathlib import Path; from tests.programs.test_readme import edit
edit(Path(sys.argv[1]), sys.argv[2])"""
MARK = "-- end of command --"
KILLED = re.compile(r"^bash: .* Killed .*\n", re.MULTILINE)  # bash's own report
CURLRC = "silent\n"  # as in a terminal: no progress meter
OLD_SQLITE = sqlite3.sqlite_version_info < (3, 42) and sys.version_info >= (3, 12)  # DBOS fails


class Running(Session, Agent): ...


def run_commands(commands, folder):
    """Return the output of each command, in one shell that keeps variables and background jobs."""
    script = "\n".join(f"{command}\nprintf '\\n{MARK}\\n'" for command in commands)
    (folder / ".curlrc").write_text(CURLRC)
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {k: v for k, v in os.environ.items() if not k.endswith(("_URL", "_API_KEY"))}
    environment |= {"HOME": str(folder), "PATH": path, "PYTHONPATH": str(ROOT)}
    streams = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    where = {"cwd": folder, "env": environment, "start_new_session": True}
    shell = subprocess.Popen(["bash", "-c", script], **where, **streams, text=True)
    try:
        output, _ = shell.communicate(timeout=200)
    finally:
        with suppress(ProcessLookupError):  # without background jobs, the group has ended
            os.killpg(shell.pid, signal.SIGKILL)
    return KILLED.sub("", output).split(f"\n{MARK}\n")[:-1]


@pytest.mark.skipif(os.name != "posix" or not shutil.which("curl"), reason="requires bash and curl")
@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, id=page.stem, marks=[pytest.mark.slow] if page.stem == "fleet" else [])
        for page in PAGES
    ],
)
def test_every_block_of_a_page_has_the_documented_output(page, tmp_path):
    for package in NEEDS.get(page.stem, []):
        pytest.importorskip(package)
    if page.stem == "fleet" and OLD_SQLITE:
        pytest.skip("requires a newer SQLite")
    text = page.read_text(encoding="utf-8")
    text = text.replace("path/to/checkout", str(ROOT))
    text = text.replace("8000", str(free_port())).replace(" 8001", f" {(other := free_port())}")
    text = text.replace(":8001", f":{other}")
    expected = []
    commands = []
    for kind, name, block in FENCE.findall(text):
        if kind == "console":
            commands += [command for command, _ in steps(block)]
            expected += [lines for _, lines in steps(block)]
        elif kind == "diff":
            commands.append(shlex.join([sys.executable, "-c", EDIT, name, block]))
            expected.append([])
        elif name:
            (tmp_path / name).write_text(block, encoding="utf-8")
        else:
            assert kind == "sh", "a block without a file name that no test runs"
    outputs = run_commands(commands, tmp_path)
    for command, lines, output in zip(commands, expected, outputs, strict=True):
        assert matches(lines, output), f"$ {command}\n{output}"


@pytest.mark.skipif(os.name != "posix", reason="requires bash")
def test_a_case_that_is_running_hides_no_other_case_from_the_reviewer(tmp_path):
    text = (FOLDER / "approvals.md").read_text(encoding="utf-8")
    for _, name, block in FENCE.findall(text):
        if name:
            (tmp_path / name).write_text(block, encoding="utf-8")
    submit = ["python submit.py case-1 'Pay Anna 700'", "python submit.py case-2 'Pay Bert 800'"]
    run_commands(submit, tmp_path)
    with Running(llm=ScriptedModel(), session="case-1", session_dir=tmp_path / "cases"):
        [output] = run_commands(["python review.py"], tmp_path)
    assert output.startswith("case-2 ")


def test_the_index_lists_every_page_and_links_have_existing_targets():
    index = (FOLDER / "README.md").read_text(encoding="utf-8")
    assert re.findall(r"^\| \[(\S+)\.md\]", index, re.MULTILINE) == ORDER
    assert sorted(ORDER) == [page.stem for page in PAGES]
    for page in [*PAGES, FOLDER / "README.md"]:
        for target in re.findall(r"\]\(([^)#]+)\)", page.read_text(encoding="utf-8")):
            assert (FOLDER / target).exists(), f"{page.name}: {target}"
