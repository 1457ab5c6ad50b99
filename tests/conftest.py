"""How all tests run: one profile of hypothesis, and what only `AGENTLOOP_SLOW=1` runs."""

import os
import tempfile
from pathlib import Path

import certifi
import pytest
from hypothesis import HealthCheck, settings

from agentloop.messages import clean_text

from . import SLOW

# On a busy machine an example may take any time, so there is no deadline.
settings.register_profile(
    "agentloop",
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    max_examples=100 if SLOW else 20,
)
settings.load_profile("agentloop")

# Programs that tests start find the package compiled.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

# No test talks to the world, whose certificates each HTTP client would take a while to read.
_folder = tempfile.TemporaryDirectory()
_one = Path(certifi.where()).read_text(encoding="utf-8").partition("-----END CERTIFICATE-----\n")
os.environ["SSL_CERT_FILE"] = str(Path(_folder.name, "one.pem"))
Path(os.environ["SSL_CERT_FILE"]).write_text("".join(_one[:2]), encoding="utf-8")


def is_slow(item: pytest.Item) -> bool:
    """True of a marked test, and of the loop's contract with one mixin alone.

    The loop itself, the standard agent and all mixins together keep the contract in every run.
    """
    of_the_loop = getattr(item.function, "__module__", "") == "tests.test_loop"
    alone = of_the_loop and item.module.__name__.startswith(("tests.mixins.", "tests.toolkits."))
    return alone or item.get_closest_marker("slow") is not None


left_out = pytest.StashKey[int]()


def pytest_terminal_summary(terminalreporter, config: pytest.Config) -> None:
    if count := config.stash.get(left_out, 0):
        terminalreporter.write_line(
            f"{count} slow tests did not run, the loop's contract with one mixin alone among them: "
            "AGENTLOOP_SLOW=1 runs them"
        )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    slow = [] if SLOW else [item for item in items if is_slow(item)]
    if slow:
        config.hook.pytest_deselected(items=slow)
        config.stash[left_out] = len(slow)
        items[:] = [item for item in items if not is_slow(item)]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item):
    """Let a report be sent to another process, whatever a hostile text has left in the log."""
    report = yield
    report.sections = [(name, clean_text(text)) for name, text in report.sections]
    return report
