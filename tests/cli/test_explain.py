"""`agentloop explain`: which class does what."""

import re
import sys
from pathlib import Path

import pytest

from agentloop.cli.main import SEAMS, main

ROOT = Path(__file__).parent.parent.parent
MODULE = """\
from agentloop import Agent, Loop, Request, Session

LIST = []


class Loud(Loop):
    async def call_model(self, request: Request):
        return await super().call_model(request)


class MyAgent(Loud, Session, Agent):
    max_iterations = 50
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    Path("my_module.py").write_text(MODULE)
    yield tmp_path
    for name in ("my_module", "my_agent"):
        sys.modules.pop(name, None)


def test_each_seam_goes_through_its_classes_from_left_to_right(folder, capsys):
    assert main(["explain", "my_module:MyAgent"]) == 0
    first, *rows = capsys.readouterr().out.splitlines()
    assert first.startswith("MyAgent, from left to right: Loud, Session, Agent, DoneTool, ")
    found, seam = {name: [] for name in SEAMS}, ""
    for row in rows:
        title, cls, file, line = re.fullmatch(r"(\S*) +(\w+) +(\S+):(\d+)", row).groups()
        seam = title or seam
        found[seam].append(cls)
        assert file == "my_module.py" or Path(file).is_relative_to(ROOT)
        text = Path(file).read_text(encoding="utf-8").splitlines()
        assert f"def {seam}(" in text[int(line) - 1]
    agent = sys.modules["my_module"].MyAgent
    for seam, classes in found.items():
        method = [cls.__name__ for cls in agent.__mro__ if seam in vars(cls)]
        assert (
            classes == [name for name in method if (name, seam) != ("Runs", "run")][: len(classes)]
        )
    assert found["call_model"][0] == "Loud"
    assert found["run"] == ["Loop"]


def test_an_agent_in_a_bundle_is_explained_too(folder, capsys):
    assert main(["bundle", "agent", "-o", "my_agent.py"]) == 0
    assert main(["explain", "my_agent:Agent"]) == 0
    rows = capsys.readouterr().out.splitlines()[2:]
    assert all(re.search(r" my_agent\.py:\d+$", row) for row in rows)


@pytest.mark.parametrize(
    ("where", "why"),
    [
        ("my_module:MyAgnt", "module 'my_module' has no attribute 'MyAgnt'"),
        ("my_module:LIST", "my_module:LIST is no agent: name one as my_module:MyAgent."),
        ("no_module:X", "No module named 'no_module'"),
        ("\x1b]0;x\x07", "\\x1b]0;x\\x07"),
    ],
)
def test_what_cannot_be_found_is_one_safe_line(folder, capsys, where, why):
    assert main(["explain", where]) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert why in err
