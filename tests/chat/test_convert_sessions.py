"""`agentloop convert`: sessions of older versions are converted automatically."""

import os
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from agentloop_chat.convert_sessions import DENIED, TOOL_ORIGINS, convert_line

from agentloop import Agent, MessageQueue, ScriptedModel, Session, load_record
from agentloop.cli.main import main
from agentloop.common.store import read_log
from agentloop.messages import Ask, Decision, RunStart, SideRequest, ToolMessage, UserMessage
from agentloop.mixins.approval import Approval
from agentloop.mixins.hooks import Hooks, HookVerdict

from ..mixins import acting, bash

DATA = Path(__file__).parents[1] / "data"


class Kept(MessageQueue, Hooks, Approval, Session, Agent):
    """An agent with all mixins that read records of old sessions."""


def converted(folder, *lines, name="s"):
    """Write an old session, convert the folder, and return the new file."""
    path = folder / f"{name}.jsonl"
    if lines:
        path.write_text("".join(line + "\n" for line in lines))
    else:
        shutil.copy(DATA / path.name, path)
    with pytest.raises(ValueError, match="agentloop convert"):
        read_log(path)
    main(["convert", str(folder)])
    return path


def test_an_old_session_is_converted_and_its_original_file_is_saved(tmp_path, capsys):
    path = converted(tmp_path, name="session_v1")
    assert read_log(path) == read_log(DATA / "session_v2.jsonl")
    old = tmp_path / "before_0.6" / path.name
    assert old.read_bytes() == (DATA / path.name).read_bytes()
    (tmp_path / "notes.jsonl").write_text("mine")
    main(["convert", str(tmp_path)])
    said = ["session_v1.jsonl: converted", "notes.jsonl: unchanged"]
    assert capsys.readouterr().out.splitlines() == [*said, "session_v1.jsonl: unchanged"]
    assert old.read_bytes() == (DATA / path.name).read_bytes()
    assert sorted(os.listdir(tmp_path)) == ["before_0.6", "notes.jsonl", "session_v1.jsonl"]


def test_an_argument_that_is_not_a_directory_is_an_error(tmp_path, capsys):
    path = tmp_path / "s.jsonl"
    path.write_bytes(b'{"type":"session","schema":1}\n')
    assert main(["convert", str(path), str(tmp_path)]) == 1
    assert capsys.readouterr().out == f"{path}: not a directory\ns.jsonl: converted\n"


def test_an_open_session_is_not_converted(tmp_path, capsys):
    path = tmp_path / "s.jsonl"
    agent = Kept(llm=ScriptedModel(), session="s", session_dir=tmp_path)
    before = b'{"type":"session","schema":1}\n{"type":"user","content":"x"}\n'
    path.write_bytes(before)
    main(["convert", str(tmp_path)])
    assert "s.jsonl: not converted: the session 's' is open elsewhere" in capsys.readouterr().out
    assert path.read_bytes() == before
    agent.close()


def test_an_unreadable_line_is_retained_and_a_partial_last_line_is_dropped(tmp_path, caplog):
    path = tmp_path / "s.jsonl"
    lines = ['{"type":"session","schema":1}', "{broken", "[7]", '{"type":"user","content":"x"}']
    path.write_text("\n".join([*lines, '{"type":"us']))
    main(["convert", str(tmp_path)])
    assert path.read_text().splitlines()[1:] == lines[1:]
    assert "last line dropped, 11 bytes" in caplog.text


async def test_a_converted_session_retains_its_verdicts_requests_and_permissions(tmp_path):
    converted(tmp_path, name="gates_v04")
    script = [bash("git status"), bash("rm -r folder x.pyc")]
    agent, ran = acting(
        *script,
        kind=Kept,
        session="gates_v04",
        session_dir=tmp_path,
        approval_mode="plan",
    )
    with agent:
        marks = [record for record in agent.log if isinstance(record, HookVerdict)]
        assert [(mark.event, mark.verdict) for mark in marks] == [
            ("UserPromptSubmit", "none"),
            ("PreToolUse", "deny"),
            ("UserPromptSubmit", "deny"),
            ("UserPromptSubmit", "none"),
        ]
        [pending] = (await agent.run()).pending  # the other call had been approved
        assert pending.parsed == {"command": "y"}
        agent.decide(pending.id, "allow")
        [pending] = (await agent.run()).pending
        assert pending.parsed == {"command": "rm -r folder x.pyc"}  # "rm *.pyc" had been approved
        assert ran == ["x", "y", "git status"]
        assert "My key" not in str([request.messages for request in agent.llm.requests])


async def test_an_unread_message_of_an_old_session_is_delivered_once(tmp_path):
    converted(
        tmp_path,
        '{"type":"session","schema":1}',
        '{"type":"user","content":"x"}',
        '{"type":"sent","id":"0a","message":{"type":"user","content":"early"}}',
        '{"type":"user","content":"early","sent":"0a"}',
        '{"type":"sent","id":"0f","message":{"type":"user","content":"late","hidden":true}}',
    )
    for _ in range(2):
        agent = Kept(llm=ScriptedModel("ok"), session="s", session_dir=tmp_path)
        messages = [(message.text, message.hidden) for message in agent.messages]
        assert messages == [("x", False), ("early", False), ("late", True)]
        agent.close()


@pytest.mark.parametrize(
    ("line", "record"),
    [
        ('{"type":"user","content":"x","hidden":true}', UserMessage("x", "note")),
        ('{"type":"user","content":"x","hidden":true,"nudge":true}', UserMessage("x", "nudge")),
        ('{"type":"user","content":"x","hidden":true,"reminder":0}', UserMessage("x", "reminder")),
        ('{"type":"user","content":"x","sent":"ab"}', UserMessage("x", "sent", "ab")),
        (
            '{"type":"user","content":"x","hidden":true,"sent":"a"}',
            UserMessage("x", "program", "a"),
        ),
        (
            '{"type":"ask","call_id":"a","reason":"r","call":["pay",{"eur":5}],"at":1}',
            Ask("a", "r", "pay", '{"eur":5}', at=1),
        ),
        (
            '{"type":"decision","call_id":"a","allowed":true,"by":"anna","at":1}',
            Decision("a", True, by="anna", at=1),
        ),
        ('{"type":"side_request","tool_calls":3,"at":1}', SideRequest(tool_calls=3, at=1)),
        (
            '{"type":"run_start","workflow_run":"w:1","system_prompt":"s","mine":2,"at":1}',
            RunStart("s", workflow_run="w:1", extra={"mine": 2}, at=1),
        ),
        (
            '{"type":"tool","tool_call_id":"a","tool_name":"t","content":"c","offloaded":"f"}',
            ToolMessage("a", "t", "c", extra={"offloaded": "f"}),
        ),
        *(
            (
                f'{{"type":"tool","tool_call_id":"a","tool_name":"t","content":"{text}",'
                '"is_error":true}',
                ToolMessage("a", "t", text, True, origin=origin),
            )
            for text, origin in {
                **TOOL_ORIGINS,
                f"{DENIED} No.": "denied",
                "Denied by the bank": "tool",
            }.items()
        ),
    ],
)
def test_records_of_version_0_4_are_converted(line, record):
    found = load_record(convert_line(line.encode()))
    if not record.extra:
        found = replace(found, extra=None)
    assert found == record
