"""A pytest plugin: the tests of the package, run on a bundle.

`pytest -p tests.bundled.plugin --bundle=FILE` puts the bundle in the place of the package's
modules, and leaves out the tests that say nothing of it.
"""

import os
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
# What says nothing of a bundle, and why.
NOT_OF_A_BUNDLE = {
    "tests/benchmarks": "they measure, and prove nothing",
    "tests/cli": "the command is no part of a bundle",
    "tests/conformance": "it needs servers and the vendors' packages, and is run apart",
    "tests/test_api.py": "it reads the files of the package",
    "tests/test_first_agent.py": "its program imports the package, in a Python without this plugin",
    "tests/test_howto.py": "its programs import the package, in a Python without this plugin",
    "tests/test_known_gaps.py": "much of it is about the command",
    "tests/test_mixin_rules.py": "it finds the mixins by their files",
    "tests/test_readme.py": "its programs import the package, in a Python without this plugin",
    "tests/test_reference.py": "it is about the modules of the package",
    "tests/test_structure.py": "it is about the package as a folder",
    "tests/test_typed.py": "it is about what checkers see of the package",
}


def is_of_a_bundle(name):
    return not any(f"{name}/".startswith(f"{no}/") for no in NOT_OF_A_BUNDLE)


def pytest_addoption(parser):
    parser.addoption("--bundle", required=True, help="the file to test")


def pytest_load_initial_conftests(early_config):
    """Put the bundle in place before anything imports the package, also in other Pythons."""
    path = Path(early_config.known_args_namespace.bundle).resolve()
    here = os.path.dirname(__file__)
    os.environ["AGENTLOOP_BUNDLE"] = str(path)
    os.environ["PYTHONPATH"] = os.pathsep.join([here, str(ROOT)])
    from tests.bundled import sitecustomize

    early_config.stash["parts"] = sitecustomize.parts_of(path)


def pytest_ignore_collect(collection_path, config):
    """Leave out what is not about a bundle, and the tests of parts that this one does not have."""
    name = collection_path.relative_to(ROOT)
    part = Path("agentloop", *name.parts[1:]).with_name(name.name.removeprefix("test_"))
    module = ".".join(part.with_suffix("").parts)
    is_missing = (ROOT / part).is_file() and module not in config.stash["parts"]
    return True if is_missing or not is_of_a_bundle(name.as_posix()) else None


def pytest_sessionfinish(session):
    modules = {name: sys.modules[name] for name in sys.modules if name.startswith("agentloop.")}
    assert modules["agentloop.loop"] is sys.modules["bundled_agent"]
