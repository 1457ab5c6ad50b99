"""No key and no address of this machine is seen by the tests of models."""

import pytest

from tests.doubles.wires import VARIABLES


@pytest.fixture(autouse=True)
def _clean_environment(monkeypatch):
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
