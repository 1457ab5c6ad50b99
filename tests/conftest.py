"""Configuration of all tests, and tests that need `AGENTLOOP_SLOW=1`.

The core's tests need nothing but pytest and respx: this file runs its async tests if pytest-asyncio
isn't installed, and `properties.py` skips what needs hypothesis.
"""

import asyncio
import gc
import os
import tempfile
from inspect import iscoroutinefunction
from pathlib import Path

import certifi
import pytest

from agentloop.messages import clean_text

from . import SLOW

# Programs started by tests use compiled files of the package.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

# Tests use no public servers, and each HTTP client would load all certificates slowly.
_folder = tempfile.TemporaryDirectory()
_one = Path(certifi.where()).read_text(encoding="utf-8").partition("-----END CERTIFICATE-----\n")
os.environ["SSL_CERT_FILE"] = str(Path(_folder.name, "one.pem"))
Path(os.environ["SSL_CERT_FILE"]).write_text("".join(_one[:2]), encoding="utf-8")


def pytest_configure(config: pytest.Config) -> None:
    """Let pytest-xdist distribute small batches, because slow tests are adjacent."""
    config.option.maxschedchunk = 40


def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run an async test in an event loop of its own, if no plugin has done so."""
    if pyfuncitem.config.pluginmanager.hasplugin("asyncio"):
        return None
    if not iscoroutinefunction(pyfuncitem.obj):
        return None
    names = pyfuncitem._fixtureinfo.argnames
    asyncio.run(pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in names}))
    return True


ALWAYS = (
    "tests.core.test_loop",
    "tests.library.mixins.test_mixin_rules",
    "tests.programs.test_nano",
)


def is_slow(item: pytest.Item) -> bool:
    """Return whether a test is marked as slow, or repeats the loop's contract with one part alone.

    Every run tests the contract with the loop itself, with the standard agent, with all mixins
    together, and with nano.py.
    """
    of_the_loop = getattr(item.function, "__module__", "") == "tests.core.test_loop"
    alone = of_the_loop and item.module.__name__ not in ALWAYS
    return alone or item.get_closest_marker("slow") is not None


left_out = pytest.StashKey[int]()


def pytest_terminal_summary(terminalreporter, config: pytest.Config) -> None:
    if count := config.stash.get(left_out, 0):
        terminalreporter.write_line(
            f"{count} slow tests did not run, the loop's contract with one part alone among them: "
            "AGENTLOOP_SLOW=1 runs them"
        )


def is_named(item: pytest.Item, config: pytest.Config) -> bool:
    """Return whether the command names this test: `pytest FILE::TEST` runs slow tests, too."""
    name = f"{item.path.name}::{item.nodeid.partition('::')[2]}"
    return any("::" in arg and name.startswith(arg.rpartition("/")[2]) for arg in config.args)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if SLOW:
        return
    slow = [item for item in items if is_slow(item) and not is_named(item, config)]
    if slow:
        config.hook.pytest_deselected(items=slow)
        config.stash[left_out] = len(slow)
        items[:] = [item for item in items if item not in {*slow}]


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    """Exclude the collected tests from garbage collections, which would traverse all of them."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item):
    """Make a report safe to send to another process, even with invalid text in the log."""
    report = yield
    report.sections = [(name, clean_text(text)) for name, text in report.sections]
    return report
