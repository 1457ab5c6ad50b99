"""Log: the records of an agent, its folds, and the replacement of history."""

import os
import random
import signal
import subprocess
import sys
from dataclasses import replace

import pytest

from agentloop import (
    Agent,
    AgentBusy,
    MessageQueue,
    ScriptedModel,
    Session,
    Summary,
    ToolMessage,
    UserMessage,
    call,
    tool,
)
from agentloop.messages import Message
from agentloop.transcript import Conversation, Fold, view
from tests.recipes import load

SEEDS = 500 if os.environ.get("AGENTLOOP_SLOW") else 40


class Kept(Session, MessageQueue, Agent): ...


def session(folder, *script, tools=()):
    llm = ScriptedModel(*script)
    return Kept(llm=llm, tools=tools, session="s", session_dir=folder, session_fsync=False)


def summaries(agent):
    return [record.kept_from for record in agent.log if isinstance(record, Summary)]


def killed_during_replacement(folder, kept, kill_at):
    """Replace the history in a child process that is killed at a disk operation.

    kept: the indexes of the kept records.
    """
    if child := os.fork():
        return os.waitpid(child, 0)[1] == signal.SIGKILL
    points = 0

    def point():
        nonlocal points
        points += 1
        if points == kill_at:
            os.kill(os.getpid(), signal.SIGKILL)

    def mortal(function):
        def between_points(*arguments, **settings):
            point()
            result = function(*arguments, **settings)
            point()
            return result

        return between_points

    agent = session(folder)
    for name in ("open", "write", "replace", "dup2", "ftruncate"):
        setattr(os, name, mortal(getattr(os, name)))
    agent.log.replace([agent.log[at] for at in kept])
    os._exit(0)


@pytest.mark.skipif(os.name != "posix", reason="kill -9")
@pytest.mark.parametrize("seed", range(SEEDS))
def test_a_killed_replacement_is_complete_or_has_no_effect(seed, tmp_path):
    chance = random.Random(seed)
    paid = []

    @tool("Pay")
    def pay(number: int) -> str:
        paid.append(number)
        return f"paid-{number}-secret"

    script = [step for n in range(3) for step in (call("pay", number=n), f"answer-{n}-secret")]
    with session(tmp_path, *script, tools=[pay]) as agent:
        for n in range(3):
            agent.run_sync(f"prompt-{n}-secret")
        before = [*agent.log]
    indexes = [at for at in range(len(before)) if chance.random() < 0.7]
    was_killed = killed_during_replacement(tmp_path, indexes, chance.randint(1, 60))
    kept = [before[at] for at in indexes if isinstance(before[at], Message)]
    deleted = {record.text for record in before if isinstance(record, Message)}
    deleted -= {record.text for record in kept}
    with session(tmp_path, *["fine"] * 4, tools=[pay]) as again:
        if [*again.log] == before:
            assert was_killed
        else:
            assert all(record in again.log for record in kept)
            text = (tmp_path / "s.jsonl").read_text("utf-8")
            assert not [secret for secret in deleted if secret and secret in text]
        again.run_sync("go on")
    assert len(paid) == 3
    assert [path.name for path in tmp_path.iterdir()] == ["s.jsonl"]


@pytest.mark.parametrize("seed", range(SEEDS))
def test_deleted_records_are_absent_from_the_file_and_no_call_runs_twice(seed, tmp_path):
    chance = random.Random(seed)
    paid = []

    @tool("Pay")
    def pay(number: int) -> str:
        paid.append(number)
        return f"paid-{number}-secret"

    script = [step for n in range(4) for step in (call("pay", number=n), f"answer-{n}-secret")]
    agent = session(tmp_path, *script, tools=[pay])
    for n in range(4):
        if chance.random() < 0.4:
            agent.send(f"sent-{n}-secret")
        agent.run_sync(f"prompt-{n}-secret")
    if chance.random() < 0.5:
        agent.record(Summary("in short", chance.randrange(len(agent.log))))
    kept = [record for record in agent.log if chance.random() < 0.75]
    deleted = {r.text for r in agent.log if isinstance(r, Message) and r not in kept and r.text}
    deleted -= {record.text for record in kept if isinstance(record, Message)}
    agent.log.replace(kept)
    after = [*agent.log]
    agent.close()
    text = (tmp_path / "s.jsonl").read_text("utf-8")
    assert not [secret for secret in deleted if secret in text]

    before = len(paid)
    again = session(tmp_path, *["fine"] * 4, tools=[pay])
    assert [*again.log][: len(after)] == after
    assert all(record in again.log for record in kept if isinstance(record, Message))
    again.run_sync("go on")
    assert len(paid) == before
    again.close()


def test_summaries_keep_their_position_when_records_are_deleted_or_replaced():
    agent = Agent(llm=ScriptedModel())
    messages = [UserMessage(f"message {n}") for n in range(8)]
    agent.log.replace([*messages[:6], Summary("in short", 4), *messages[6:]])
    agent.log.replace(record for record in agent.log if record not in messages[1:3])
    assert summaries(agent) == [2]
    agent.log.replace(replace(r, content="***") if r is messages[3] else r for r in agent.log)
    assert summaries(agent) == [2]
    assert agent.messages == view(agent.log)
    assert "message 4" in [message.text for message in agent.messages]


def test_history_changes_only_through_replace():
    agent = Agent(llm=ScriptedModel())
    with pytest.raises(AttributeError, match="replace"):
        agent.log = []
    with pytest.raises(TypeError, match="replace"):
        agent.log += [UserMessage("x")]
    with pytest.raises(TypeError, match="messages and log entries"):
        agent.log.replace(["text"])


async def test_history_does_not_change_during_a_run():
    def reply(messages, tools):
        with pytest.raises(AgentBusy):
            agent.log.replace([])
        return "ok"

    agent = Agent(llm=ScriptedModel(reply))
    assert await agent.query("x") == "ok"


def test_a_full_disk_leaves_the_log_and_the_file_unchanged(tmp_path, monkeypatch):
    agent = session(tmp_path, "ok")
    agent.run_sync("x")
    before, text = [*agent.log], (tmp_path / "s.jsonl").read_bytes()

    def full(*_):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch, pytest.raises(OSError, match="space"):
        patch.setattr(os, "replace", full)
        agent.log.replace([])
    assert [*agent.log] == before
    assert (tmp_path / "s.jsonl").read_bytes() == text
    agent.close()
    assert [path.name for path in tmp_path.iterdir()] == ["s.jsonl"]


KILLED = """
import os, signal, sys
from agentloop import Agent, ScriptedModel, Session, UserMessage
from agentloop.common import store

class Kept(Session, Agent): ...

agent = Kept(llm=ScriptedModel(), session="s", session_dir=sys.argv[1])
secret = UserMessage("secret")
agent.record(secret)
agent.record(UserMessage("kept"))
store.os.replace = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
agent.log.replace(record for record in agent.log if record is not secret)
"""


@pytest.mark.skipif(os.name != "posix", reason="kill -9")
def test_a_kill_during_the_replacement_leaves_the_old_records_and_no_second_file(tmp_path):
    killed = subprocess.run([sys.executable, "-c", KILLED, tmp_path], check=False)
    assert killed.returncode == -signal.SIGKILL
    with session(tmp_path) as agent:
        assert [record.text for record in agent.log] == ["secret", "kept"]
    assert [path.name for path in tmp_path.iterdir()] == ["s.jsonl"]


class Interrupted(Conversation):
    times = 0

    def take(self, at, record):
        super().take(at, record)
        if at == 3 and not Interrupted.times:
            Interrupted.times += 1
            raise KeyboardInterrupt


def test_an_interrupted_fold_starts_over():
    agent = Agent(llm=ScriptedModel())
    messages = [UserMessage(f"message {n}") for n in range(6)]
    agent.log.replace(messages)
    with pytest.raises(KeyboardInterrupt):
        agent.fold(Interrupted)
    assert agent.fold(Interrupted).messages == messages


def test_a_fork_of_the_whole_log_processes_no_record_again(monkeypatch):
    agent = Agent(llm=ScriptedModel("a", "b"))
    agent.run_sync("x")
    taken = []

    def take(fold, at, record):
        taken.append(at)
        process(fold, at, record)

    process = Conversation.take
    monkeypatch.setattr(Conversation, "take", take)
    twin = agent.fork()
    assert taken == []
    assert twin.messages == agent.messages


def test_a_fold_must_be_a_class_so_that_the_cache_keeps_no_lambdas():
    agent = Agent(llm=ScriptedModel())
    with pytest.raises(TypeError, match="Fold"):
        agent.fold(lambda log: Fold(log))


def test_a_message_whose_record_was_deleted_is_not_delivered_again():
    agent = Kept(llm=ScriptedModel("one", "two"))
    agent.send("password")
    agent.log.replace(r for r in agent.log if not isinstance(r, UserMessage))
    agent.run_sync("x")
    assert "password" not in str([request.messages for request in agent.llm.requests])


def test_a_session_in_a_database_replaces_its_records_too(tmp_path):
    recipe = load("sqlite_sessions")
    database = recipe.Database(tmp_path / "all.db")
    settings = {"session": "s", "database": database}
    with recipe.MyAgent(llm=ScriptedModel("ok"), **settings) as agent:
        agent.run_sync("secret")
        agent.log.replace(r for r in agent.log if getattr(r, "text", "") != "secret")
    with recipe.MyAgent(llm=ScriptedModel(), **settings) as agent:
        assert [message.text for message in agent.messages] == ["ok"]
        assert not [record for record in agent.log if isinstance(record, ToolMessage)]
    database.db.close()


def test_a_log_equals_a_sequence_of_the_same_records_and_nothing_else():
    agent = Agent(llm=ScriptedModel("ok"))
    agent.run_sync("a")
    assert agent.log == [*agent.log]
    assert agent.log == tuple(agent.log)
    assert agent.log != [UserMessage("b")]
    assert agent.log != 5
