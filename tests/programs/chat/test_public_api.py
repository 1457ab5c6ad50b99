"""The chat uses only the public API: the API is sufficient for a complete program.

agentloop.cli is the command, of which the chat is a part: the two share how a terminal prints.
"""

import ast
from pathlib import Path

import pytest

import agentloop
from tests import ROOT
from tests.library.test_api import MODULES

PROGRAM = ROOT / "examples" / "agentloop_chat"
FILES = sorted(PROGRAM.glob("*.py"))


def imported(path):
    """Yield the module and the name of every import from agentloop in a file."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            for alias in node.names:
                assert not alias.name.startswith("agentloop"), f"{path.name}: import {alias.name}"
        elif isinstance(node, ast.ImportFrom) and not node.level:
            module = node.module or ""
            if module.split(".")[0] == "agentloop":
                for alias in node.names:
                    yield module, alias.name


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_every_import_from_the_library_is_public(path):
    for module, name in imported(path):
        assert not name.startswith("_"), name
        if module == "agentloop":
            assert name in agentloop.__all__ or name == "events", name
        elif not module.startswith("agentloop.cli."):
            assert name in MODULES.get(module, ()), f"{module}.{name} is internal"


def test_no_file_reads_a_private_attribute_of_another_object():
    for path in FILES:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Attribute) and node.attr[0] == "_" and node.attr[:2] != "__":
                owner = node.value
                assert isinstance(owner, ast.Name), f"{path.name}: {ast.unparse(node)}"
                assert owner.id == "self", f"{path.name}: {ast.unparse(node)}"


def test_the_library_does_not_import_the_program():
    for path in Path(agentloop.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom):
                assert not (node.module or "").startswith("agentloop_chat"), path
