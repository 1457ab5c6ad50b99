"""Promises 2 and 3 with sub-agents that ask: a program that is killed anywhere continues, once.

A child process runs an agent with sub-agents that pay, ask for approval and ask the user, at two
depths. Reviewers allow, edit, deny and respond. The process is killed at an access to the disk or
to the ledger of payments, and started again until it ends by itself. No payment is in the ledger
twice, none is in it that a reviewer has denied, and the agent ends with its answer.

`AGENTLOOP_SLOW=1` kills 50 processes; the default is a sample.
"""

import random
import subprocess
import sys
from collections import Counter

import pytest

from agentloop import read_log
from agentloop.common.subagents import SubAgentRecord
from agentloop.messages import Unknown
from agentloop.transcript import RunEnd
from tests import SLOW
from tests.doubles.kills import MORTAL

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="there is no SIGKILL")

PROGRAM = """
from agentloop import (
    Agent, AssistantMessage, NeedsApproval, ScriptedModel, Session, call, is_approved, tool
)
from agentloop.depends import Depends
from agentloop.mixins.approval import Approval, Rule
from agentloop.toolkits.ask import ask_user
from agentloop.toolkits.subagent import as_tool

@tool
async def pay(to: str, amount: int, approved: bool = Depends(is_approved)) -> str:
    "Pay."
    if to.endswith("lender") and not approved:
        raise NeedsApproval("a new payee")
    point()
    ledger = os.open(ledger_path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(ledger, f"{to}:{amount}\\n".encode())
    os.close(ledger)
    point()
    return f"paid {to}"

def clean(messages, tools):
    me, number = messages[0].text, sum(isinstance(m, AssistantMessage) for m in messages)
    turns = [
        call("pay", to=f"{me}.shop", amount=1),
        [call("pay", to=f"{me}.{kind}", amount=9) for kind in ("bank", "edited", "denied", "card")],
        [call("pay", to=f"{me}.lender", amount=5), call("ask_user", question="More?")],
    ]
    return turns[number] if number < len(turns) else f"{me} is clean"

def pass_on(messages, tools):
    me = messages[0].text
    return call("clean", prompt=f"{me}.in") if len(messages) == 1 else messages[-1].text

class Guarded(Approval, Agent):
    approval_rules = [Rule("allow", "pay", {"amount": "1"}), Rule("allow", "pay", {"amount": "5"})]

class Boss(Session, Agent):
    pass

cleaner = as_tool(Guarded(llm=ScriptedModel(clean), tools=[pay, ask_user]), "clean", "Cleans")
middle = as_tool(Agent(llm=ScriptedModel(pass_on), tools=[cleaner]), "manage", "Manages")
both = [call("clean", prompt="one"), call("manage", prompt="two")]
llm = ScriptedModel(lambda messages, tools: both if len(messages) == 1 else "all is clean")
agent = Boss(llm=llm, tools=[cleaner, middle], session="s", session_dir=folder)

def review(waiting):
    to = (waiting.parsed or {}).get("to", "")
    if waiting.name == "ask_user":
        agent.answer(waiting.id, "No.")
    elif to.endswith("edited"):
        agent.decide(waiting.id, "allow", arguments={"to": to, "amount": 2})
    elif to.endswith("denied"):
        agent.decide(waiting.id, "deny", "Never.")
    elif to.endswith("card"):
        agent.decide(waiting.id, "respond", "Paid by card.")
    else:
        agent.decide(waiting.id, "allow")

if not agent.messages:
    agent.run_sync("Clean up.")
while not isinstance(agent.messages[-1], AssistantMessage):
    for waiting in agent.pending:
        review(waiting)
    agent.run_sync()
agent.close()
print(points)
"""

PAID = Counter(
    f"{who}.{payee}"
    for who in ("one", "two.in")
    for payee in ("shop:1", "bank:9", "edited:2", "lender:5")
)


def run_program(folder, kill_at=0):
    """Run a process; return the number of its points, or None if it was killed."""
    command = [
        sys.executable,
        "-c",
        MORTAL + PROGRAM,
        str(folder),
        str(folder / "ledger"),
        str(kill_at),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode in (0, -9), done.stderr
    return int(done.stdout) if done.returncode == 0 else None


def check(folder):
    """Check the ledger and the log after the program has ended by itself."""
    paid = Counter((folder / "ledger").read_text().split())
    assert not [payment for payment, times in paid.items() if times > 1], "paid twice"
    assert not paid - PAID, "paid without approval, or without the reviewer's edit"
    log = read_log(folder / "s.jsonl")
    assert any(isinstance(record, SubAgentRecord) for record in log)
    assert not [r for r in log if isinstance(r, Unknown) and r.data["type"] != "unreadable"]
    answers = [r.text for r in log if isinstance(r, RunEnd) and r.stop_reason == "completed"]
    assert answers in ([], ["all is clean"]), "no end of the run, if it was killed before it"
    missing = PAID - paid
    told = (folder / "s.jsonl").read_text()
    assert told.count("outcome is unknown") >= len(missing), "the model knows what is uncertain"
    return len(missing)


@pytest.mark.timeout(900)
@pytest.mark.parametrize("seed", range(2 if SLOW else 1))
def test_a_killed_program_with_sub_agents_that_ask_continues_and_pays_once(tmp_path, seed):
    whole = tmp_path / "whole"
    whole.mkdir()
    points = run_program(whole)
    assert check(whole) == 0
    dice = random.Random(seed)
    kills = uncertain = number = 0
    while kills < (25 if SLOW else 8):
        folder = tmp_path / str(number)
        folder.mkdir()
        (folder / "ledger").touch()
        number += 1
        killed = 0
        kill_at = dice.randrange(1, points)
        while run_program(folder, kill_at) is None:
            killed += 1
            kill_at = dice.randrange(1, points) if killed < 4 else 0
        kills += killed
        missing = check(folder)
        assert missing <= killed, "a kill makes at most one payment uncertain"
        uncertain += missing
    print(f"{kills} kills in {number} programs; {uncertain} payments with an unknown outcome")
