"""Promises 2 and 3 for decisions: a kill at any record repeats no effect and loses no verdict.

An agent makes eight calls that need approval: half because of its gate, half because the tool asks.
They're allowed, edited, denied and responded to. The agent is the one that the reviewer talks to,
or a sub-agent one or two levels below it, twice at the same time. It dies before or after one
record of the session, and a new agent continues from the session's file. If a tool that isn't
idempotent had started, even if only to ask, the model reads that the outcome is unknown.

`AGENTLOOP_SLOW=1` kills 350 agents, at every third record; the default is a sample.
"""

from collections import Counter
from typing import Annotated

import pytest

from agentloop import (
    Agent,
    AssistantMessage,
    Depends,
    NeedsApproval,
    ScriptedModel,
    Session,
    ToolMessage,
    UserMessage,
    is_approved,
    tool,
    validate_messages,
)
from agentloop.common.review import DENIED
from agentloop.depends import current_call
from agentloop.messages import ToolCall
from agentloop.mixins.approval import Approval, Rule
from agentloop.models.scripted import call
from agentloop.toolkits.subagent import as_tool
from tests import SLOW
from tests.doubles.kills import Killed, mortal

ALLOW, EDIT, DENY, RESPOND = 1, 2, 3, 4  # the amounts of the calls
EDITED = 20
AMOUNTS = ALLOW, EDIT, DENY, RESPOND
UNKNOWN = "outcome is unknown"


class Careful(Approval, Agent):
    approval_rules = (Rule("allow", "lend"), Rule("allow", "clerk"))


class Saved(Session, Careful):
    session = "s"
    session_fsync = False


def replies(messages, tools):
    """Pay and lend each amount, then answer with all results."""
    if len(messages) > 1:
        return "\n".join(each.text for each in messages if isinstance(each, ToolMessage))
    who = messages[0].text
    return [call(name, amount=n, to=who) for name in ("pay", "lend") for n in AMOUNTS]


def two_clerks(messages, tools):
    """Let two sub-agents work at the same time, then answer with their answers."""
    if len(messages) > 1:
        return "\n".join(each.text for each in messages if isinstance(each, ToolMessage))
    return [call("clerk", prompt=f"{messages[0].text}.{name}") for name in ("a", "b")]


def one_clerk(messages, tools):
    is_first = len(messages) == 1
    return call("clerk", prompt=messages[0].text) if is_first else messages[-1].text


class World:
    """An agent that's killed at one record, what it has paid and lent, and its reviewer."""

    def __init__(self, folder, depth, kill_at, *, before, idempotent):
        self.folder, self.depth, self.kill_at, self.before = folder, depth, kill_at, before
        self.records = self.kills = 0
        self.effects = Counter()
        self.keys = set()

        def take_effect(name, amount, to, this):
            if not (idempotent and (this.id, to) in self.keys):
                self.keys.add((this.id, to))
                self.effects[to, name, amount] += 1
            return f"{name}: {amount} to {to}"

        @tool(idempotent=idempotent)
        async def pay(
            amount: int, to: str, this: Annotated[ToolCall, Depends(current_call)]
        ) -> str:
            """Pay."""
            return take_effect("pay", amount, to, this)

        @tool(idempotent=idempotent)
        async def lend(
            amount: int,
            to: str,
            approved: Annotated[bool, Depends(is_approved)],
            this: Annotated[ToolCall, Depends(current_call)],
        ) -> str:
            """Lend."""
            if not approved:
                raise NeedsApproval("a loan")
            return take_effect("lend", amount, to, this)

        self.tools = [pay, lend]

    def open(self):
        tools, replying = self.tools, replies
        for level in range(self.depth):
            below = Careful(llm=ScriptedModel(replying), tools=tools)
            tools = [as_tool(below, "clerk", "Pays and lends")]
            replying = two_clerks if level == 0 else one_clerk
        return mortal(Saved, self)(
            llm=ScriptedModel(replying), tools=tools, session_dir=self.folder
        )

    def review(self, agent, waiting):
        match waiting.parsed:
            case {"amount": 1 | 20}:  # 20: an edited call that had started asks again
                agent.decide(waiting.id, "allow")
            case {"amount": 2, "to": to}:
                agent.decide(waiting.id, "allow", arguments={"amount": EDITED, "to": to})
            case {"amount": 3}:
                agent.decide(waiting.id, "deny", f"Nothing to {waiting.name}.")
            case _:
                agent.decide(waiting.id, "respond", f"Then {waiting.name} elsewhere.")

    def live(self):
        """Run and review until the agent has answered; return it."""
        while True:
            agent = self.open()
            try:
                while not self.is_over(agent):
                    for waiting in agent.pending:
                        self.review(agent, waiting)
                    agent.run_sync(None if agent.messages else "x")
                agent.close()
                return agent
            except (Killed, BaseExceptionGroup):
                self.kills += 1

    def is_over(self, agent):
        return bool(agent.messages) and isinstance(agent.messages[-1], AssistantMessage)

    def check(self, agent):
        """Check what had effects, and what the models have read; return how much is unknown."""
        people = ["x.a", "x.b"] if self.depth else ["x"]
        names = [(who, name) for who in people for name in ("pay", "lend")]
        wanted = Counter((*each, amount) for each in names for amount in (ALLOW, EDITED))
        assert not self.effects - wanted, "repeated, or without approval, or without the edit"
        assert agent.pending == ()
        answer = agent.messages[-1].text
        unknown = answer.count(UNKNOWN)
        told = sum(answer.count(f"{name}: {n} to {who}") for who, name, n in wanted)
        for name in ("pay", "lend"):
            verdicts = f"{DENIED} Nothing to {name}.", f"Then {name} elsewhere."
            counts = [answer.count(verdict) for verdict in verdicts]
            assert name == "lend" or counts == [len(people), len(people)]
            told += sum(counts)
        assert told + unknown == len(names) * len(AMOUNTS), "each outcome is told, or is unknown"
        assert sum((wanted - self.effects).values()) <= unknown, "a lost effect"
        assert validate_messages([*agent.messages, UserMessage("next")]) == []
        return unknown


@pytest.mark.timeout(600)
@pytest.mark.parametrize("idempotent", [False, True])
@pytest.mark.parametrize("depth", [0, 1, 2])
def test_a_kill_at_any_record_repeats_no_effect_and_loses_no_verdict(tmp_path, depth, idempotent):
    kills = unknown = kill_at = 0
    was_killed = True
    while was_killed:
        kill_at += 3 if SLOW else 13
        for before in (False, True):
            folder = tmp_path / f"{kill_at} {before}"
            world = World(folder, depth, kill_at, before=before, idempotent=idempotent)
            unknown += world.check(world.live())
            kills += world.kills
            was_killed = bool(world.kills)
    if idempotent:
        assert unknown == 0
    print(f"depth {depth}, idempotent {idempotent}: {kills} kills, {unknown} unknown outcomes")
