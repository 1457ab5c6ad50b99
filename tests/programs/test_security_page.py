"""Each promise on the security page names an existing test."""

import re

import pytest

from tests import ROOT

PAGE = (ROOT / ".github" / "SECURITY.md").read_text(encoding="utf-8")
PROMISES = PAGE.partition("## Promises")[2].partition("## Limits")[0]
TESTS = "\n".join(path.read_text("utf-8") for path in (ROOT / "tests").rglob("test_*.py"))


@pytest.mark.parametrize("name", re.findall(r"`([a-z0-9_]{25,})`", PROMISES))
def test_the_named_test_exists(name):
    assert f"def test_{name}(" in TESTS


def test_each_promise_names_a_test():
    for promise in re.split(r"\n- ", PROMISES)[1:]:
        assert re.search(r"`[a-z0-9_]{25,}`", promise), promise


def test_each_linked_file_exists():
    for target in re.findall(r"\]\(([^)]+)\)", PAGE):
        assert (ROOT / ".github" / target).exists()
