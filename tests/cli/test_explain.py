"""`agentloop explain`: which class does what. The console blocks have one of a bundle."""

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
    sys.modules.pop("my_module", None)


def test_each_seam_goes_through_its_classes_from_left_to_right(folder, capsys):
    assert main(["explain", "my_module:MyAgent"]) == 0
    first, *rows = capsys.readouterr().out.splitlines()
    assert first.startswith("From left to right: MyAgent Loud Session Agent DoneTool ")
    shown = []
    for row in rows:
        cls, seam, file, line = re.fullmatch(r"(\w+)\.(\w+) +(\S+):(\d+)", row).groups()
        assert file == str(folder / "my_module.py") or Path(file).is_relative_to(ROOT)
        assert f"def {seam}(" in Path(file).read_text(encoding="utf-8").splitlines()[int(line) - 1]
        shown.append((cls, seam))
    classes = sys.modules["my_module"].MyAgent.__mro__
    expected = [(cls.__name__, seam) for seam in SEAMS for cls in classes if seam in vars(cls)]
    assert shown == expected
    assert ("Loud", "call_model") in shown


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
    assert (out, err.count("\n"), why in err) == ("", 1, True)
