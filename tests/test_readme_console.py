"""The README's terminal blocks are run, and print what it says; `...` stands for anything."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.held_double import HeldDouble

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```console\n(.*?)^```$", README, re.DOTALL | re.MULTILINE)
TURNS = (  # what a model would answer to the README's prompts
    [("read", {"path": "notes.txt"})],
    [("write", {"path": "notes.txt", "content": "milk\nbread\n"})],
    "There is bread on the list now.",
    "It is on the list.",
)


def steps(block):
    """Each command of a block, with what it prints."""
    for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
        first, *rest = part.splitlines()
        more = [line[2:] for line in rest if line.startswith(">")]
        yield "\n".join([first, *more]), [line for line in rest if not line.startswith(">")]


def matches(expected, printed):
    pattern = "\n".join(expected).strip()
    pattern = re.escape(pattern).replace(r"\.\.\.", "(?s:.*?)")
    return re.fullmatch(pattern, printed.strip())


@pytest.mark.skipif(os.name != "posix", reason="the commands are for a POSIX shell")
@pytest.mark.parametrize("block", BLOCKS)
def test_every_command_prints_what_it_says(block, tmp_path):
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "notes.txt").write_text("milk\n")
    python = tmp_path / "bin" / "python"
    python.parent.mkdir()
    python.write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    python.chmod(0o755)
    with HeldDouble(*TURNS) as server:
        environment = os.environ | {
            "PATH": f"{python.parent}:{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT),
            "HOME": str(tmp_path),
            "OPENAI_API_KEY": "k",
            "OPENAI_BASE_URL": server.base_url,
            "PYTHONDONTWRITEBYTECODE": "1",
        }
        for command, expected in steps(block):
            done = subprocess.run(
                [shutil.which("bash") or "sh", "-c", command],
                cwd=folder,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                timeout=50,
            )
            assert matches(expected, done.stdout), f"$ {command}\n{done.stdout}"
        assert server.refusals == []


def test_there_are_terminal_blocks():
    assert len(BLOCKS) >= 2
