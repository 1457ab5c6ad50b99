"""`agentloop replay`: a session turn by turn."""

import json
import re

import pytest

from agentloop import AssistantMessage, ToolCall, ToolMessage, UserMessage, dump_record
from agentloop.cli.main import main
from agentloop.messages import RunEnd, RunStart
from tests.cli.command import run
from tests.cli.held_double import HeldDouble

TURNS = (
    ["I look. ", ("read", {"path": "notes.txt"}), ("bash", {"command": "cat notes.txt | wc -l"})],
    [("write", {"path": "notes.txt", "content": "milk\nbread\n"}), ("bash", {"command": "pwd"})],
    "There is bread on the list now.",
    [("bash", {"command": "rm notes.txt"})],
    "Then I leave it.",
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Make a folder in which the chat has kept a session. The home is the folder above it."""
    project = tmp_path_factory.mktemp("home") / "project"
    project.mkdir()
    (project / "notes.txt").write_text("milk\n")
    with HeldDouble(*TURNS) as server:
        model = ["--base-url", server.base_url, "--model", "m", "--session", "list"]
        for prompt in (["Add bread to my list.", "--yes"], ["Delete it."]):  # which nobody allows
            done = run(*model, "--prompt", *prompt, cwd=project, HOME=str(project.parent))
            assert done.returncode == 0, done.stderr
    return project


def replay(folder, *arguments):
    return run("replay", *arguments, cwd=folder, HOME=str(folder.parent))


def test_it_shows_each_turn(folder):
    done = replay(folder, "list")
    assert (done.returncode, done.stderr) == (0, "")
    text = re.sub(r"\d+\.\d\d s", "0.00 s", done.stdout)
    for told in (
        "\n> Add bread to my list.\n\nTurn 1: m, 0 tokens in, 0 out, 0.00 s\nI look. \n"
        "* read notes.txt\n* bash cat notes.txt | wc -l\n",
        "\nTurn 2: m, 0 tokens in, 0 out, 0.00 s\n* write notes.txt milk",
        "Overwrote notes.txt: 11 bytes.",
        "The run ended: completed\n\n> Delete it.\n\nTurn 4: ",
        "Denied: this call was not allowed",
    ):
        assert told in text


def test_what_a_terminal_would_obey_is_spelled_out(tmp_path, capsys):
    evil = "\x1b]0;evil\x07\x1b[2J\u202e"
    reply = AssistantMessage(evil, [ToolCall("a", evil, json.dumps({evil: evil}))], model=evil)
    log = UserMessage(evil), reply, ToolMessage("a", evil, evil)
    lines = [b'{"type":"session","schema":2}', *map(dump_record, log), b""]
    (tmp_path / "s.jsonl").write_bytes(b"\n".join(lines))
    assert main(["replay", str(tmp_path / "s.jsonl")]) == 0
    shown = capsys.readouterr().out
    assert "\\x1b]0;evil\\x07" in shown
    assert not set("\x1b\x07\u202e") & set(shown)


def test_what_the_user_said_is_told_from_what_the_program_told_the_model(tmp_path, capsys):
    told = UserMessage("The user interrupted you here.", "note")
    stopped = AssistantMessage("I beg", stop_reason="interrupted")
    log = RunStart(), UserMessage("go"), stopped, told, RunEnd("interrupted")
    lines = [b'{"type":"session","schema":2}', *map(dump_record, log), b""]
    (tmp_path / "s.jsonl").write_bytes(b"\n".join(lines))
    assert main(["replay", str(tmp_path / "s.jsonl")]) == 0
    shown = capsys.readouterr().out
    assert "\n> go\n" in shown
    assert "\nTurn 1: interrupted, " in shown
    assert "\n(The user interrupted you here.)\n" in shown


def test_a_run_that_failed_says_why(tmp_path, capsys):
    error = 'BadRequest: 400: {"error": {"message": "No such model."}}'
    log = RunStart(), UserMessage("go"), RunEnd("error", error)
    lines = [b'{"type":"session","schema":2}', *map(dump_record, log), b""]
    (tmp_path / "s.jsonl").write_bytes(b"\n".join(lines))
    assert main(["replay", str(tmp_path / "s.jsonl")]) == 0
    shown = capsys.readouterr().out
    assert (
        "\n> go\n\nTurn 1 failed.\nThe run ended: error BadRequest: 400: No such model.\n" in shown
    )
