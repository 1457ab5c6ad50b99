"""Fixtures for model tests, which never read API keys or addresses from the environment."""

import pytest

from tests.doubles.wires import VARIABLES, WIRES


@pytest.fixture(autouse=True)
def _clean_environment(monkeypatch):
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(params=WIRES, ids=lambda wire: wire.name)
def wire(request):
    return request.param


@pytest.fixture(params=[False, True], ids=["whole", "streamed"])
def streaming(request):
    return bool(request.param)
