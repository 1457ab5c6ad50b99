"""A pytest plugin for runs in which a bundle stands in the place of the package's modules."""

import sys

# Tests that say nothing of a bundle, and why.
NOT_OF_A_BUNDLE = {
    "tests/test_structure.py": "it is about the package as a folder",
    "tests/test_mixin_rules.py": "it finds the mixins by their files",
    "tests/cli/test_bundle.py": "it is about bundles, and starts these runs",
    "tests/cli/test_explain.py": "the places that it looks at are files of the package",
    "tests/conformance/test_servers.py": "it needs servers, and is run by hand",
    "tests/conformance/test_types.py": "it needs the vendors' packages, and is run by hand",
    "tests/test_readme.py": "its programs import the package, in a Python of its own",
    "tests/toolkits/test_shell.py::TestBash::test_it_says_that_it_is_no_sandbox": (
        "it reads the docstring of a module, which is that of a part"
    ),
}


def pytest_collection_modifyitems(config, items):
    left_out = [item for item in items if item.nodeid.partition("[")[0] in NOT_OF_A_BUNDLE]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in left_out]


def pytest_sessionfinish(session):
    modules = {name: sys.modules[name] for name in sys.modules if name.startswith("agentloop.")}
    assert modules["agentloop.loop"] is sys.modules["bundled_agent"]
