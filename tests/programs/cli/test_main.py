"""The command `agentloop`: subcommands, mistyped subcommands, and the chat as a program."""

import sys

import pytest

from agentloop.cli.main import main

from .command import run
from .held_double import HeldDouble


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["veiw", "x"], "view"),
        (["bundel", "agent"], "bundle"),
        (["repaly"], "replay"),
        (["dmeo"], "demo"),
        (["vieew", "x"], "view"),
    ],
)
def test_a_mistyped_command_is_an_error_that_names_the_right_one(words, named, capsys):
    assert main(words) == 2
    error = capsys.readouterr().err
    assert named in error
    assert "-p" in error


@pytest.mark.parametrize(
    "words", ["review the code", "explain this file", "fix the test", "demonstrate it", "a"]
)
def test_a_prompt_is_not_mistaken_for_a_command(words, tmp_path):
    with HeldDouble("Fine.") as server:
        done = run(*words.split(), "--base-url", server.base_url, "--model", "m", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, "Fine.\n")


@pytest.mark.parametrize("words", [["hello there"], ["--help"]])
def test_without_the_chat_the_error_contains_the_install_command(words, capsys, monkeypatch):
    for name in [*sys.modules]:
        if name.partition(".")[0] == "agentloop_chat":
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "agentloop_chat", None)
    assert main(words) == 2
    assert "pip install" in capsys.readouterr().err
