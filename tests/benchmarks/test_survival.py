"""The page about survival: it says what was measured, and agentloop still does what it says."""

import json
import os
import subprocess
import sys

import pytest

from tests import ROOT, SLOW
from tests.benchmarks.survival import page

if sys.platform == "win32":
    pytest.skip("faults happen in forked processes", allow_module_level=True)

from tests.benchmarks.survival import __main__ as command

RESULTS = json.loads((page.FOLDER / "results.json").read_text(encoding="utf-8"))


def test_the_page_and_the_picture_are_made_from_the_saved_results():
    hint = "python -m tests.benchmarks.survival.page"
    assert (page.FOLDER / "README.md").read_text(encoding="utf-8") == page.page(RESULTS), hint
    assert (page.FOLDER / "survival.svg").read_text(encoding="utf-8") == page.picture(RESULTS), hint


def test_the_readme_quotes_the_saved_results():
    good, runs = page.clean(RESULTS["programs"]["agentloop"])
    others = len(RESULTS["programs"]) - len(page.OURS)
    readme = " ".join((ROOT / "README.md").read_text(encoding="utf-8").split())
    assert others == 7
    assert "it and seven other programs" in readme
    assert f"{good} of {runs} runs" in readme
    assert page.all_clean(RESULTS) == ["agentloop", "Strands"]


def test_every_program_is_measured_and_follows_a_documentation_page():
    assert list(RESULTS["programs"]) == list(command.PROGRAMS)
    for name, program in RESULTS["programs"].items():
        assert program["lines"] == command.code_lines(page.FOLDER / "programs" / f"{name}.py")
        assert program["docs"] or name in page.OURS
        assert set(program["rows"]) == set(page.ROWS)


def test_the_page_says_where_a_peer_is_better():
    text = page.page(RESULTS)
    for sentence in page.comparisons(RESULTS):
        assert sentence in text


def test_agentloop_still_pays_once_in_every_row(tmp_path):
    file = tmp_path / "rows.json"
    subprocess.run(
        [sys.executable, "-m", "tests.benchmarks.survival.rows", "agentloop", file],
        check=True,
        env=os.environ | {"SURVIVAL_MOST": "8" if SLOW else "3"},
        cwd=page.FOLDER.parents[2],
        capture_output=True,
    )
    saved = RESULTS["programs"]["agentloop"]["rows"]
    for name, row in json.loads(file.read_text()).items():
        assert row["runs"] > 0
        assert row["clean"] == row["runs"], (name, row["errors"])
        assert saved[name]["clean"] == saved[name]["runs"], name
