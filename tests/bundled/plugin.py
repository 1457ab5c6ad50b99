"""A pytest plugin for runs in which a bundle stands in the place of the package's modules."""

import sys

# What says nothing of a bundle, and why.
NOT_OF_A_BUNDLE = {
    "tests/benchmarks": "they measure, and prove nothing",
    "tests/cli": "the command is no part of a bundle",
    "tests/conformance": "it needs servers and the vendors' packages, and is run apart",
    "tests/test_first_agent.py": "its program imports the package, in a Python without this plugin",
    "tests/test_known_gaps.py": "much of it is about the command",
    "tests/test_mixin_rules.py": "it finds the mixins by their files",
    "tests/test_readme.py": "its programs import the package, in a Python without this plugin",
    "tests/test_structure.py": "it is about the package as a folder",
    "tests/test_typed.py": "it is about what checkers see of the package",
}


def is_of_a_bundle(name):
    return not any(f"{name}/".startswith(f"{no}/") for no in NOT_OF_A_BUNDLE)


def pytest_sessionfinish(session):
    modules = {name: sys.modules[name] for name in sys.modules if name.startswith("agentloop.")}
    assert modules["agentloop.loop"] is sys.modules["bundled_agent"]
