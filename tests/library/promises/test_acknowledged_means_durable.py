"""Promise 3: with a session, every reported record survives `kill -9`.

A child process runs an agent and acknowledges each report of the agent on a pipe. The process is
killed at every access to the disk, to a tool's effects or to the pipe, and at random moments.
Afterwards, all acknowledged records must be in the file, the lock free and the next request valid,
and no tool may have run twice for one call.

`AGENTLOOP_SLOW=1` tests all accesses and 120 random kills; the default is a sample of both.
"""

import json
import random
import subprocess
import sys
import time
from collections import Counter
from contextlib import suppress

import pytest

from agentloop import (
    Agent,
    AssistantMessage,
    Depends,
    ScriptedModel,
    ToolCall,
    ToolMessage,
    UserMessage,
    current_call,
    tool,
    validate_messages,
)
from agentloop.common.store import read_log
from agentloop.messages import Unknown
from agentloop.mixins.message_queue import MessageQueue, Sent, Unread
from agentloop.mixins.session import Session
from tests import SLOW
from tests.doubles.kills import MORTAL

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="there is no SIGKILL")

VICTIM = '''
from agentloop import Agent, Depends, ScriptedModel, ToolCall, current_call, tool
from agentloop.mixins.message_queue import MessageQueue, every
from agentloop.mixins.session import Session
from agentloop.models.scripted import call

prompts, serial, me = int(sys.argv[4]), 0, os.getpid()

def acknowledge(**report):
    """Acknowledge a report; the reader may rely on the acknowledgement."""
    point()
    os.write(1, json.dumps(report).encode() + b"\\n")

def unique(text):
    global serial
    serial += 1
    return f"{text} {me}.{serial}"

@tool("Charge a card")
async def charge(this: ToolCall = Depends(current_call)) -> str:
    point()
    ledger = os.open(ledger_path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(ledger, this.id.encode() + b"\\n")
    os.close(ledger)
    point()
    if serial % 2:
        note = unique("note")
        agent.send(note)
        acknowledge(sent=note)
    return unique("charged")

def play(messages, tools):
    point()
    asked = sum(len(getattr(m, "tool_calls", ())) for m in messages)
    if messages[-1].text.startswith("task") or asked % 3 == 1:
        return [call("charge"), call("charge")] if asked % 2 else call("charge")
    return unique("answer")

def listen(event):
    kind = type(event).__name__
    if kind == "ToolResultEvent":
        acknowledge(result=event.result, id=event.tool_call_id)
    elif kind == "ToolCallEvent":
        acknowledge(called=event.tool_call_id)
    elif kind in ("TextEvent", "FinalResponseEvent"):
        acknowledge(text=event.content)

class Victim(Session, MessageQueue, Agent):
    pass

agent = Victim(
    llm=ScriptedModel(play), tools=[charge], session="s", session_dir=folder, listeners=[listen],
    reminders=[every(3, "remember")],
)
try:
    acknowledge(text=agent.run_sync().text)
except ValueError:
    pass
for _ in range(prompts):
    acknowledge(text=agent.run_sync(unique("task")).text)
agent.close()
'''


class Next(Session, MessageQueue, Agent):
    pass


class Scene:
    """A folder with a session, a ledger of effects, and the acknowledged reports."""

    def __init__(self, folder):
        self.folder = folder
        self.folder.mkdir()
        self.ledger = folder / "ledger"
        self.ledger.touch()
        self.acknowledged = []

    def run_victim(self, kill_at=0, prompts=2, kill_after=None, delay=0.0):
        """Run a process until its end or its kill; return whether it ended by itself."""
        arguments = [self.folder, self.ledger, kill_at, prompts]
        command = [sys.executable, "-c", MORTAL + VICTIM, *map(str, arguments)]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as child:
            for number, line in enumerate(child.stdout):
                if line.endswith(b"\n"):
                    self.acknowledged.append(json.loads(line))
                if number == kill_after:
                    time.sleep(delay)
                    child.kill()
        assert child.returncode in (0, -9)
        return child.returncode == 0

    def check(self):
        """Check that all acknowledged reports are in the file, and continue the session."""
        path = self.folder / "s.jsonl"
        log = read_log(path) if path.exists() else []
        assert not any(isinstance(r, Unknown) and r.data["type"] == "unreadable" for r in log[:-1])
        results = {r.tool_call_id: r.text for r in log if isinstance(r, ToolMessage)}
        calls = {c.id for r in log if isinstance(r, AssistantMessage) for c in r.tool_calls}
        texts = {r.text for r in log if isinstance(r, AssistantMessage)}
        sent = {r.message.text for r in log if isinstance(r, Sent)}
        for report in self.acknowledged:
            match report:
                case {"result": text, "id": call_id}:
                    assert results[call_id] == text
                case {"called": call_id}:
                    assert call_id in calls
                case {"sent": text}:
                    assert text in sent
                case {"text": text}:
                    assert text in texts
        self.continue_session()
        counts = Counter(self.ledger.read_text().split())
        assert not [call for call, times in counts.items() if times > 1], "ran twice"
        assert set(counts) <= self.call_ids, "ran without a call in a reply"

    def continue_session(self):
        """Continue the session of the killed process in a new agent with a strict model."""
        ran = []

        @tool("Charge a card")
        async def charge(this: ToolCall = Depends(current_call)) -> str:
            ran.append(this.id)
            with self.ledger.open("a") as ledger:
                ledger.write(f"{this.id}\n")
            return "charged later"

        llm = ScriptedModel(lambda messages, tools: "fine")
        settings = {"session": "s", "session_dir": self.folder, "session_fsync": False}
        agent = Next(llm=llm, tools=[charge], **settings)
        waiting = [call for call, state in agent.conversation.states.items() if state.may_start]
        assert list(agent.fold(Unread).messages) == [], "opening the session delivers sent messages"
        with suppress(ValueError):
            agent.run_sync()
        if not llm.requests:  # there was nothing to continue, or an answer to return
            agent.run_sync("and now?")
        assert sorted(ran) == sorted(waiting), "exactly the calls that never started run"
        request = llm.requests[0].messages
        assert validate_messages(request) == []
        shown = [m.text for m in request if isinstance(m, UserMessage)]
        for report in self.acknowledged:
            assert "sent" not in report or shown.count(report["sent"]) == 1
        agent.close()
        assert read_log(self.folder / "s.jsonl") == agent.log
        self.call_ids = set(agent.conversation.states)


@pytest.mark.timeout(900)
def test_acknowledged_reports_survive_a_kill_at_each_point(tmp_path):
    kills, step = 0, 1 if SLOW else 23
    while not (scene := Scene(tmp_path / f"{kills}")).run_victim(kill_at=1 + kills * step):
        scene.check()
        kills += 1
    assert kills >= (80 if SLOW else 5)


@pytest.mark.timeout(900)
@pytest.mark.parametrize("seed", range(6 if SLOW else 1))
def test_acknowledged_reports_survive_kills_of_one_session_at_random_moments(tmp_path, seed):
    scene, dice = Scene(tmp_path / "r"), random.Random(seed)
    for _ in range(20 if SLOW else 4):
        moment = {"kill_after": dice.randrange(40), "delay": dice.random() * 0.003}
        assert not scene.run_victim(prompts=50, **moment)
        scene.check()
    assert len(scene.acknowledged) > 4
