"""Log: the records of an agent, and its folds."""

import pytest

from agentloop import (
    Loop,
    ScriptedModel,
    Session,
    SystemMessage,
    UserMessage,
    read_log,
)
from agentloop.transcript import Conversation, Fold
from tests.helpers import record_all


class Interrupted(Conversation):
    times = 0

    def take(self, at, record):
        super().take(at, record)
        if at == 3 and not Interrupted.times:
            Interrupted.times += 1
            raise KeyboardInterrupt


def test_an_interrupted_fold_starts_over():
    agent = Loop(llm=ScriptedModel())
    messages = [UserMessage(f"message {n}") for n in range(6)]
    record_all(agent, messages)
    with pytest.raises(KeyboardInterrupt):
        agent.fold(Interrupted)
    assert agent.fold(Interrupted).messages == messages


def test_a_fold_must_be_a_class_so_that_the_cache_keeps_no_lambdas():
    agent = Loop(llm=ScriptedModel())
    with pytest.raises(TypeError, match="Fold"):
        agent.fold(lambda log: Fold(log))


def test_a_log_equals_a_sequence_of_the_same_records_and_nothing_else():
    agent = Loop(llm=ScriptedModel("ok"))
    agent.run_sync("a")
    assert agent.log == [*agent.log]
    assert agent.log == tuple(agent.log)
    assert agent.log != [UserMessage("b")]
    assert agent.log != 5


BE_BRIEF = SystemMessage("Be brief.")


@pytest.mark.parametrize("wrong", ["Be brief.", {"role": "system", "content": "x"}, [BE_BRIEF]])
@pytest.mark.parametrize("cls", [Loop, Session])
def test_only_records_are_added_because_anything_else_would_have_no_effect(cls, wrong, tmp_path):
    settings = {"session": "a", "session_dir": tmp_path} if cls is Session else {}
    agent = cls(llm=ScriptedModel(), **settings)
    with pytest.raises(TypeError, match="record"):
        agent.add(wrong)
    agent.add(BE_BRIEF)
    assert agent.log == [BE_BRIEF]
    if cls is Session:
        agent.close()
        assert read_log(tmp_path / "a.jsonl") == [BE_BRIEF]
