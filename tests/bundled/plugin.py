"""A pytest plugin that runs the tests of the package on a bundle.

`pytest -p tests.bundled.plugin --bundle=FILE` replaces the modules of the package with the bundle
and skips tests unrelated to bundles. `--one-case` runs each test with its first case only: a bundle
has the same code, so what may differ is whether a name is there, and which.
"""

import os
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
ANOTHER = "its programs import the package, in a Python without this plugin"
OWN = "it tests a program that has its own code, or uses nothing but public names"
# Tests unrelated to bundles, with the reason.
NOT_OF_A_BUNDLE = {
    "tests/benchmarks": "they measure and verify nothing",
    "tests/programs/chat": OWN,
    "tests/programs/cli": "a bundle does not contain the command",
    "tests/conformance": "it requires servers and vendor packages, and runs separately",
    "tests/library/test_api.py": "it reads the files of the package",
    "tests/library/test_first_mistakes.py": "a bundle leaves out the names of other libraries",
    "tests/library/test_what_to_write.py": "a bundle leaves out the names of other libraries",
    "tests/programs/test_first_agent.py": ANOTHER,
    "tests/programs/test_howto.py": ANOTHER,
    "tests/programs/test_lessons.py": OWN,
    "tests/programs/test_micro.py": OWN,
    "tests/programs/test_nano.py": OWN,
    "tests/library/mixins/test_mixin_rules.py": "it locates the mixins by their files",
    "tests/programs/test_readme.py": ANOTHER,
    "tests/programs/test_reference.py": "it checks the modules of the package",
    "tests/core/test_structure.py": "it checks the folder structure of the package",
    "tests/library/test_typed.py": "it checks the types of the package",
}


def is_of_a_bundle(name):
    return not any(f"{name}/".startswith(f"{no}/") for no in NOT_OF_A_BUNDLE)


def pytest_addoption(parser):
    parser.addoption("--bundle", required=True, help="the file to test")
    parser.addoption("--one-case", action="store_true", help="run the first case of each test")


def pytest_load_initial_conftests(early_config):
    """Install the bundle before any import of the package, including in subprocesses."""
    path = Path(early_config.known_args_namespace.bundle).resolve()
    here = os.path.dirname(__file__)
    os.environ["AGENTLOOP_BUNDLE"] = str(path)
    os.environ["PYTHONPATH"] = os.pathsep.join([here, str(ROOT)])
    from . import sitecustomize

    early_config.stash["parts"] = sitecustomize.parts_of(path)


def pytest_ignore_collect(collection_path, config):
    """Ignore tests unrelated to bundles, and tests of modules missing from the bundle."""
    name = collection_path.relative_to(ROOT)
    part = Path("agentloop", *name.parts[2:]).with_name(name.name.removeprefix("test_"))
    module = ".".join(part.with_suffix("").parts)
    is_missing = (ROOT / part).is_file() and module not in config.stash["parts"]
    return True if is_missing or not is_of_a_bundle(name.as_posix()) else None


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config, items):
    """With `--one-case`, keep the first case of each test."""
    if config.option.one_case:
        first = {item.nodeid.partition("[")[0]: item for item in reversed(items)}
        items[:] = reversed(first.values())


def pytest_sessionfinish(session):
    modules = {name: sys.modules[name] for name in sys.modules if name.startswith("agentloop.")}
    assert modules["agentloop.loop"] is sys.modules["bundled_agent"]
