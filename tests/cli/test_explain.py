"""`agentloop explain`: which class does what."""

import sys
from pathlib import Path

import pytest

from agentloop.cli.explain import SEAMS
from agentloop.cli.main import main

ROOT = Path(__file__).parent.parent.parent
MODULE = """\
from agentloop import Agent, Loop, Request, Session

LIST = []


class Loud(Loop):
    \"\"\"Says what it asks.

    loud: how loud.
    words: what it says first.
    \"\"\"

    loud: int = 1
    words: list[str] = ["hm"]

    async def call_model(self, request: Request):
        print("asking")
        return await super().call_model(request)

    async def finish(self, result):
        return result


class MyAgent(Loud, Session, Agent):
    max_iterations = 50
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    Path("my_module.py").write_text(MODULE)
    yield tmp_path
    for name in ("my_module", "my_agent", "sub", "sub.one"):
        sys.modules.pop(name, None)


def explain(capsys, where):
    status = main(["explain", where])
    out, err = capsys.readouterr()
    assert not (out and err)
    return status, (out or err).splitlines()


def rows(lines, name):
    """The lines of one seam, as (class, place, note)."""
    at = next(i for i, line in enumerate(lines) if line.startswith(f"{name} "))
    found = [lines[at][12:].split(maxsplit=2)]
    for line in lines[at + 1 :]:
        if not line.startswith(" "):
            break
        found.append(line.split(maxsplit=2))
    return found


def test_a_seam_goes_through_its_classes_from_left_to_right(folder, capsys):
    status, lines = explain(capsys, "my_module:MyAgent")
    assert status == 0
    assert lines[0].startswith("MyAgent, from left to right: Loud, Session, Agent, DoneTool, ")
    assert rows(lines, "call_model")[0] == ["Loud", "my_module.py:16"]
    names = [name for name, *_ in rows(lines, "call_model")]
    classes = [cls for cls in sys.modules["my_module"].MyAgent.__mro__ if "call_model" in vars(cls)]
    assert names == [cls.__name__ for cls in classes]
    assert [name for name, *_ in rows(lines, "run")] == ["Loop"]


def test_each_place_is_where_the_method_is(folder, capsys):
    _, lines = explain(capsys, "my_module:MyAgent")
    for seam in ["run", *SEAMS]:
        for name, place, *_ in rows(lines, seam):
            file, _, line = place.rpartition(":")
            base = ROOT if file.startswith("agentloop/") else folder
            text = (base / file).read_text(encoding="utf-8").splitlines()
            assert f"def {seam}(" in text[int(line) - 1], (name, place)


def test_an_agent_in_a_bundle_is_explained_too(folder, capsys):
    assert main(["bundle", "agent", "-o", "my_agent.py"]) == 0
    capsys.readouterr()
    status, lines = explain(capsys, "my_agent:Agent")
    assert status == 0
    assert rows(lines, "context")[-1][0] == "Loop"
    assert all(place.startswith("my_agent.py:") for _, place, *_ in rows(lines, "context"))


@pytest.mark.parametrize(
    ("where", "why"),
    [
        ("my_module:MyAgnt", "There is no agent 'MyAgnt' in my_module. It has: Agent, "),
        ("my_module:LIST", "There is no agent 'LIST' in my_module."),
        ("json:x", "There is no agent 'x' in json. It has: no agent, a subclass of Loop."),
        ("/tmp/no.py:X", "Name it as my_module:MyAgent, not as /tmp/no.py:X."),
        ("no_module:X", "There is no module no_module here."),
        ("sub/no.py:X", "There is no file sub/no.py."),
    ],
)
def test_what_cannot_be_found_says_what_there_is(folder, capsys, where, why):
    status, lines = explain(capsys, where)
    assert status == 2
    assert lines[0].startswith(why)
    assert len(lines) == 1
