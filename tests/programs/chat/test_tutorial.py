"""The tutorial of the chat: programs, links, and the table of files."""

import contextlib
import io
import re

import pytest

from tests import ROOT

FOLDER = ROOT / "examples" / "agentloop_chat"
TEXT = (FOLDER / "README.md").read_text(encoding="utf-8")
PROGRAMS = re.findall(r"^```python\n(.*?)^```$", TEXT, re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_program_prints_its_last_comment(program):
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(program, "README.md", "exec", dont_inherit=True), {"__name__": "__main__"})
    assert printed.getvalue().strip().endswith(program.rstrip().rpartition("# ")[2])


def test_the_table_names_every_file():
    named = set(re.findall(r"^\| \[(\w+\.py)\]", TEXT, re.MULTILINE))
    assert named == {path.name for path in FOLDER.glob("[a-z]*.py")}


def test_the_links_of_the_tutorial_are_valid():
    for target in re.findall(r"\]\(([^)#]+)", TEXT):
        assert (FOLDER / target).exists(), target
