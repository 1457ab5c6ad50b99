"""Recorded runs are read in the formats of their projects."""

import json
from pathlib import Path

import pytest

from .recordings import recorded
from .transcripts import script

RECORDED = Path(__file__).parent / "recorded"


def write(path, data):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(data), encoding="utf-8")


def said(role, content, **more):
    return {"role": role, "content": content, **more}


@pytest.fixture
def tau_bench(tmp_path):
    made = {"function": {"name": "get_user", "arguments": '{"id": "u1"}'}}
    log = [
        said("system", "policy"),
        said("user", "I am u1."),
        said("assistant", None, tool_calls=[made]),
        said("tool", "Ada"),
        said("assistant", "Hello Ada."),
        said("user", "Bye."),
    ]
    write(tmp_path / "support" / "airline.json", [{"traj": log}])
    return tmp_path


def test_each_message_of_the_user_is_a_task(tau_bench):
    [airline] = recorded(tau_bench)
    [run] = airline.conversations
    assert (airline.name, airline.kind) == ("airline (1 run)", "support, recorded")
    assert run.system_prompt == "policy"
    assert [task.prompt for task in run.tasks] == ["I am u1.", "Bye."]
    assert run.tasks[0].answer == "Hello Ada."


def test_a_demonstration_of_swe_agent_is_not_the_task(tmp_path):
    history = [
        said("system", "You fix code."),
        said("user", "Here is a demonstration.", is_demo=True),
        said("user", [{"type": "text", "text": "Fix a.py."}]),
        said("assistant", "Look.\n```\nls\n```", thought="Look.", action="ls\n"),
        said("user", "a.py"),
        said("assistant", "Done.\n```\nsubmit\n```", thought="Done.", action="submit\n"),
    ]
    write(tmp_path / "a.traj", {"history": history, "trajectory": [{"action": "ls"}]})
    write(tmp_path / "b.traj", {"history": history})
    [swe] = recorded(tmp_path)
    run = swe.conversations[1]
    assert len(swe.conversations) == 2
    assert run.system_prompt == "You fix code.\n\nHere is a demonstration."
    assert [task.prompt for task in run.tasks] == ["Fix a.py."]
    replies, results = script(run.tasks)
    assert json.loads(replies[0].tool_calls[0].arguments) == {"command": "ls"}
    assert [reply.text for reply in replies[:2]] == ["Look.", "Done."]
    assert [*results.values()] == ["a.py", ""]
    assert [tool.name for tool in swe.tools(results)] == ["bash"]


@pytest.mark.parametrize("block", ["bash", "mswea_bash_command"])
def test_a_command_in_the_text_of_mini_swe_agent_is_a_call(tmp_path, block):
    messages = [
        said("system", "One command in a block of bash."),
        said("user", "Fix a.py."),
        said("assistant", f"THOUGHT: look.\n\n```{block}\ncat a.py\n```"),
        said("user", "<output>x = 1</output>"),
        said("assistant", "No command here."),
        said("exit", "Submitted"),
    ]
    write(tmp_path / "runs" / "one" / "one.traj.json", {"info": {}, "messages": messages})
    [mini] = recorded(tmp_path)
    [task] = mini.conversations[0].tasks
    [turn] = task.turns
    assert (turn.name, json.loads(turn.arguments)) == ("bash", {"command": "cat a.py"})
    assert (turn.says, turn.result) == ("THOUGHT: look.", "<output>x = 1</output>")
    assert (task.answer, mini.name) == ("No command here.", "runs (1 run)")


def test_other_files_than_recordings_are_omitted_with_a_warning(tau_bench, capsys):
    for name, data in (
        ("preds.json", {"a": 1}),
        ("eval.json", [1, 2]),
        ("b.traj", {"history": []}),
    ):
        write(tau_bench / "coding" / name, data)
    (tau_bench / "pointer.json").write_text("version https://git-lfs.github.com/spec/v1")
    assert [workload.name for workload in recorded(tau_bench)] == ["airline (1 run)"]
    assert capsys.readouterr().err.count("no recorded run in ") == 4


def test_the_recordings_of_the_repository_are_small_and_readable():
    found = {each.name: each.kind for each in recorded(RECORDED)}
    assert found == {
        "pytest (2 runs)": "coding, recorded",
        "airline-10-in-a-row (1 run)": "support, recorded",
    }
    assert sum(path.stat().st_size for path in RECORDED.rglob("*.json")) <= 300_000
