"""A session of version 1.0 that every later 1.x reads.

Neither this file nor data/session_1_0.jsonl is ever edited: a failure means that a change breaks
the sessions of users.
"""

import json
from importlib import import_module

import pytest

from agentloop import (
    Agent,
    ScriptedModel,
    Session,
    SideRequest,
    UserMessage,
    dump_record,
    load_record,
    newest_prompt_index,
    read_log,
    view,
)
from agentloop.common.review import Decision
from agentloop.messages import Unknown
from agentloop.toolkits.ask import UserAnswer, UserQuestion
from agentloop.transcript import Conversation, RunEnd
from tests import ROOT

SAMPLE = ROOT / "tests" / "data" / "session_1_0.jsonl"
LINES = SAMPLE.read_bytes().splitlines()[1:]
PARTS = (  # modules with log entries of their own
    *("mixins.approval", "mixins.hooks", "mixins.message_queue"),
    *("toolkits.subagent", "toolkits.search", "toolkits.todo"),
)
OF_OTHER_PROGRAMS = ("from_a_later_version",)


@pytest.fixture(autouse=True)
def parts():
    for name in PARTS:
        import_module(f"agentloop.{name}")


@pytest.mark.parametrize("line", LINES)
def test_each_record_is_read_and_written_without_loss(line):
    record = load_record(line)
    data = json.loads(line)
    assert isinstance(record, Unknown) == (data["type"] in OF_OTHER_PROGRAMS)
    written = json.loads(dump_record(record))
    if "later_field" in data:  # fields of later versions are kept in `extra`
        data["extra"] = {"later_field": data.pop("later_field")}
    assert data.items() <= written.items()


def test_the_log_has_the_records_since_the_reset_without_the_replaced_attempt():
    log = read_log(SAMPLE)
    assert len(log) == 52
    assert isinstance(log[3], SideRequest)
    assert log[3].text == "It is"
    assert [record.stop_reason for record in log if isinstance(record, RunEnd)] == [
        *("needs_approval", "completed", "error", "completed")
    ]
    assert log[newest_prompt_index(log)] == UserMessage("Sink the ship")


def test_the_states_of_the_calls_are_the_same():
    conversation = Conversation(read_log(SAMPLE)).catch_up()
    states = conversation.states
    assert states["call_1"].result.text == "paid"
    assert states["call_1"].newest(Decision).by == "chief"
    assert states["call_1"].start.at == 1782000006.0
    assert states["call_1"].inner[0].result.text == "100"
    assert states["call_1.1"].call.name == "balance"
    assert states["call_2"].status == "denied"
    assert states["call_3"].newest(UserQuestion).state == "q1"
    assert states["call_3"].newest(UserAnswer).content == '"today"'
    assert [state.call.id for state in conversation.open_calls] == ["call_5"]
    assert sum(request.usage.input_tokens for request in conversation.requests) == 70


def test_the_model_receives_the_summary_and_the_messages_after_it():
    assert [message.text for message in view(read_log(SAMPLE))][:-1] == [
        "Who is on the picture? Pay her.",
        "Summary of the conversation so far:\n\nAda was paid, Bob was not.",
        "And Cid?",
        "",
        "Approval is pending.",
        "Cid waits for an approval.",
        "Sink the ship",
        "",
    ]
    assert "outcome is unknown" in view(read_log(SAMPLE))[-1].text


def test_an_agent_continues_the_session(tmp_path):
    class Sailor(Session, Agent): ...

    (tmp_path / "sample.jsonl").write_bytes(SAMPLE.read_bytes())
    llm = ScriptedModel("It may have sunk.")
    with Sailor(llm=llm, session="sample", session_dir=tmp_path) as agent:
        assert agent.run_sync().text == "It may have sunk."
    assert (tmp_path / "sample.jsonl").read_bytes().startswith(SAMPLE.read_bytes())
