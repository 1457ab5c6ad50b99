"""Mutants are generated. Whether tests detect them is tested with AGENTLOOP_NIGHTLY=1."""

import os
from itertools import chain

import pytest

from .mutants import CORE, FILES, ROOT, mutants, suite_of, survivors

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
    for name in chain(*FILES.values()):
        assert (ROOT / "agentloop" / f"{name}.py").exists()
        assert all((ROOT / "tests" / test).exists() for test in suite_of(name))
    assert suite_of("mixins/done")[0] == "library/mixins/test_done.py"


@pytest.mark.skipif("AGENTLOOP_NIGHTLY" not in os.environ, reason="takes most of an hour")
def test_most_mutants_of_the_core_are_detected():
    left, tried = survivors(CORE, 200, 1)
    assert len(left) <= 0.1 * tried, left  # about 1 in 20 has no effect
