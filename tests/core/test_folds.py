"""Incremental folds have the same values as folds of the complete log."""

import asyncio

import pytest

from agentloop import ScriptedModel
from agentloop.common.ledger import Ledger
from agentloop.common.model_info import CacheRules
from agentloop.common.nested import InnerCall, InnerResult
from agentloop.common.outdated import Outdated
from agentloop.common.pruned import Pruned
from agentloop.common.review import Ask, Decision
from agentloop.common.summary import Summary
from agentloop.messages import (
    AssistantMessage,
    ToolCall,
    ToolMessage,
    Usage,
    UserMessage,
)
from agentloop.mixins.approval import AlwaysAllow, Consent, PlanApproved
from agentloop.mixins.cost_aware_pruning import CostAwarePruning
from agentloop.mixins.ephemeral import Ephemeral
from agentloop.mixins.histories import Histories
from agentloop.mixins.hooks import HookHistory, HookVerdict
from agentloop.mixins.limits import RunUsage
from agentloop.mixins.message_queue import Reminded, Sent, TurnsWithout, Unread
from agentloop.toolkits.todo import TodoList, ToldOfOpenItems
from agentloop.transcript import (
    Conversation,
    Fork,
    RunEnd,
    RunStart,
    SideRequest,
    ToolStart,
)
from tests.helpers import record_all
from tests.properties import given, st
from tests.recipes import load

FOLDS = [
    (Conversation,),
    (Outdated,),
    (Ledger, CacheRules(100)),
    (Ledger, CacheRules(0, 1.0, 1.0)),
    (Consent,),
    (HookHistory,),
    (Unread,),
    (TurnsWithout, "hello"),
    (RunUsage, None, "add"),
    (RunUsage, lambda model, usage: usage.total_tokens),
    (load("loop_detection").Turns, "skill"),
    (load("skills").ActiveSkill,),
    (TodoList,),
]
ids = st.sampled_from("abc")
names = st.sampled_from(["add", "skill", "todos"])
calls = st.builds(ToolCall, ids, names, st.sampled_from(["{}", '{"name": "pdf"}']))
calls |= st.builds(ToolCall, ids, st.just("add"), st.just("{"))
origins = st.sampled_from(["user", "sent", "note", "nudge"])
texts = st.sampled_from(["hello", "[open] clean up", "page " * 100])
users = st.builds(UserMessage, texts, origins, st.sampled_from(["", "1", "2"]))
results = st.builds(ToolMessage, ids, names, texts, st.booleans(), st.integers(0, 2))
usages = st.none() | st.builds(Usage, st.integers(0, 3_000), st.just(5))
records = (
    users
    | results
    | st.builds(AssistantMessage, texts, st.lists(calls, max_size=3).map(tuple), usage=usages)
    | st.builds(Summary, texts, st.integers(0, 9), usage=usages, at=st.just(1.0))
    | st.builds(SideRequest, st.sampled_from(["", "compaction"]), usage=usages, model=st.just("m"))
    | st.builds(Decision, ids, st.booleans())
    | st.builds(InnerCall, st.sampled_from("ad"), ids, names, st.just("{}"))
    | st.builds(InnerResult, st.sampled_from("ad"), results)
    | st.builds(AlwaysAllow, st.just({"name": "add"}))
    | st.builds(Sent, users)
    | st.sampled_from(
        [
            *(RunStart(at=1.0), RunEnd("completed"), Fork(at=2.0), PlanApproved()),
            *(Ask("a"), ToolStart("b"), ToldOfOpenItems(), HookVerdict("Stop", "deny")),
            *(Reminded("hello"), Pruned(["a"]), Pruned(["b", "c"])),
        ]
    )
)
logs = st.lists(records, max_size=25)


def values_of(fold):
    """Return the public values of a fold, without its log and elapsed times."""
    public = {name for name in dir(fold) if not name.startswith("_")}
    found = {name: getattr(fold, name) for name in public - {"log", "seconds"}}
    if "used" in found:
        del found["used"]["seconds"]
    return {name: value for name, value in found.items() if not callable(value)}


def with_verdicts(log):
    """Return the log with a hook verdict after each prompt."""
    extended = []
    for record in log:
        extended.append(record)
        if isinstance(record, UserMessage) and not record.hidden:
            verdict = "deny" if len(extended) % 2 else "none"
            extended.append(HookVerdict("UserPromptSubmit", verdict, record.text))
    return extended


@pytest.mark.parametrize("kind", FOLDS, ids=lambda kind: kind[0].__name__)
@given(logs, logs, st.integers(0, 25))
def test_an_incremental_fold_equals_a_complete_fold_after_each_record(kind, log, later, cut):
    fold, *settings = kind
    agent = Histories(llm=ScriptedModel())
    for record in with_verdicts(log):
        agent.record(record)
        assert values_of(agent.fold(fold, *settings)) == values_of(
            fold(agent.log, *settings).catch_up()
        )
    for other in (agent.fork(), agent.fork(cut)):
        for record in with_verdicts(later):
            other.record(record)
            assert values_of(other.fold(fold, *settings)) == values_of(
                fold(other.log, *settings).catch_up()
            )
    agent.load_history(agent.messages)  # a new list and a new fold
    for record in with_verdicts(later):
        agent.record(record)
        assert values_of(agent.fold(fold, *settings)) == values_of(
            fold(agent.log, *settings).catch_up()
        )


@given(logs, st.sampled_from([CostAwarePruning, Ephemeral]))
def test_the_view_after_each_record_equals_the_view_of_a_new_agent_with_the_same_log(log, kind):
    agent = kind(llm=ScriptedModel())
    for record in log:
        agent.record(record)
        fresh = kind(llm=ScriptedModel())
        record_all(fresh, agent.log)
        assert asyncio.run(agent.context()) == asyncio.run(fresh.context())
