"""Mutants are generated. Whether tests detect them is tested with AGENTLOOP_NIGHTLY=1."""

import os

import pytest

from .mutants import FILES, ROOT, TESTS, mutants, survivors

SOURCE = """
def found(limit):
    "Say something."
    if limit > 2 and not last():
        tell(limit)
        raise KeyError
        return None
    return limit
"""


def test_a_mutant_has_one_change_and_unchanged_texts():
    changes = [mutant.change for mutant in mutants(SOURCE)]
    assert sorted(changes) == [
        "2 -> 3",
        "limit > 2 -> limit >= 2",
        "limit > 2 and (not last()) -> limit > 2 or not last()",
        "not last() -> last()",
        "raise KeyError -> pass",
        "return limit -> return",
        "tell(limit) -> pass",
    ]
    assert all("Say something." in mutant.source for mutant in mutants(SOURCE))
    assert len({mutant.source for mutant in mutants(SOURCE)}) == len(changes)


def test_the_files_to_change_and_their_tests_exist():
    assert all((ROOT / "agentloop" / f"{name}.py").exists() for name in FILES)
    assert all((ROOT / "tests" / name).exists() for name in TESTS)


@pytest.mark.skipif("AGENTLOOP_NIGHTLY" not in os.environ, reason="takes most of an hour")
def test_most_mutants_of_the_core_are_detected():
    left, tried = survivors(200, 1)
    assert len(left) <= 0.1 * tried, left  # about 1 in 20 has no effect
