"""The terminal blocks of the command's page run, and print what they say; `...` is anything."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.held_double import HeldDouble

ROOT = Path(__file__).parent.parent
README = (ROOT / "agentloop" / "cli" / "README.md").read_text(encoding="utf-8")
SECTIONS = [
    blocks
    for section in re.split(r"^## ", README, flags=re.MULTILINE)
    if "```console" in section
    and (
        blocks := re.findall(
            r"^```(console|python append|diff)\n(.*?)^```$", section, re.DOTALL | re.MULTILINE
        )
    )
]
TURNS = (  # what a model would answer to the README's prompts
    [("read", {"path": "notes.txt"})],
    [("write", {"path": "notes.txt", "content": "milk\nbread\n"})],
    "There is bread on the list now.",
    "It is on the list.",
)


def steps(block):
    """Each command of a block, with what it prints."""
    for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
        command, *expected = part.splitlines()
        yield command, expected


def matches(expected, printed):
    pattern = "\n".join(expected).strip()
    pattern = re.escape(pattern).replace(r"\.\.\.", "(?s:.*?)")
    return re.fullmatch(pattern, printed.strip())


def edit(path, diff):
    """Do to a file what a diff says: each of its lines begins with a space or a plus sign."""
    old = "".join(line[1:] + "\n" for line in diff.splitlines() if line[0] == " ")
    new = "".join(line[1:] + "\n" for line in diff.splitlines())
    text = path.read_text(encoding="utf-8")
    assert text.count(old) == 1
    path.write_text(text.replace(old, new), encoding="utf-8")


@pytest.mark.skipif(os.name != "posix", reason="the commands are for a POSIX shell")
@pytest.mark.parametrize("blocks", SECTIONS)
def test_every_command_prints_what_it_says(blocks, tmp_path):
    folder = tmp_path / "project"
    folder.mkdir()
    programs = tmp_path / "bin"
    programs.mkdir()
    for name in ("python", "agentloop"):
        program = programs / name
        there = sys.executable if name == "python" else Path(sys.executable).with_name(name)
        program.write_text(f'#!/bin/sh\nexec "{there}" "$@"\n')
        program.chmod(0o755)
    with HeldDouble(*TURNS) as server:
        environment = os.environ | {
            "PATH": f"{programs}:{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT),
            "HOME": str(tmp_path),
            "OPENAI_API_KEY": "k",
            "OPENAI_BASE_URL": server.base_url,
            "PYTHONDONTWRITEBYTECODE": "1",
        }
        for kind, text in blocks:
            if kind == "python append":
                with open(folder / "my_agent.py", "a", encoding="utf-8") as file:
                    file.write(text)
            elif kind == "diff":
                edit(folder / "my_agent.py", text)
            for command, expected in steps(text) if kind == "console" else ():
                done = subprocess.run(
                    [shutil.which("bash") or "sh", "-c", command],
                    cwd=folder,
                    env=environment,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                    text=True,
                    timeout=200,
                )
                assert matches(expected, done.stdout), f"$ {command}\n{done.stdout}"
        assert server.refusals == []


def test_there_are_terminal_blocks():
    assert len(SECTIONS) >= 2
