"""The README is true: its blocks run, its loop is the one that ships, its commands are there."""

import contextlib
import io
import re
import textwrap
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(\w*) ?(\w*)\n(.*?)^```$", README, re.DOTALL | re.MULTILINE)
PROGRAMS = [
    (text, BLOCKS[i + 1][2] if BLOCKS[i + 1 : i + 2] and BLOCKS[i + 1][:2] == ("text", "") else "")
    for i, (language, label, text) in enumerate(BLOCKS)
    if (language, label) == ("python", "")
]


@pytest.mark.parametrize(("program", "output"), PROGRAMS)
def test_every_program_runs_and_prints_what_it_says(program, output):
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(program, "README.md", "exec", dont_inherit=True), {"__name__": "__main__"})
    assert printed.getvalue() == output


def test_there_are_programs():
    assert len(PROGRAMS) >= 4


def test_the_loop_is_the_one_that_ships():
    [shown] = [text for language, label, text in BLOCKS if label == "loop"]
    code = (ROOT / "agentloop" / "loop.py").read_text(encoding="utf-8")
    without_comments = re.sub(r"  #.*$|^ *#.*\n", "", code, flags=re.MULTILINE)
    assert textwrap.indent(shown, " " * 8) in without_comments


def test_its_links_lead_somewhere():
    for target in re.findall(r"\]\(([^)#]+)\)", README):
        assert (ROOT / target).exists(), target


def test_ci_runs_the_test_command():
    [command] = [text for _, label, text in BLOCKS if label == "test"]
    assert command.strip() in (ROOT / ".ci" / "run").read_text(encoding="utf-8")
