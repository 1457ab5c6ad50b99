"""What is computed from a log goes on with it, and is what one would compute from its beginning."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentloop import Loop, ScriptedModel
from agentloop.common.model_info import CacheRules
from agentloop.messages import (
    Ask,
    AssistantMessage,
    Decision,
    Fork,
    InnerCall,
    InnerResult,
    RunEnd,
    RunStart,
    SideRequest,
    Summary,
    ToolCall,
    ToolMessage,
    ToolStart,
    Usage,
    UserMessage,
)
from agentloop.mixins.approval import AlwaysAllow, Consent, PlanApproved
from agentloop.mixins.compaction import CutPoints
from agentloop.mixins.ephemeral import Ephemeral, Pruning
from agentloop.mixins.hooks import HookHistory, HookVerdict
from agentloop.mixins.limits import RunUsage
from agentloop.mixins.message_queue import Reminded, Sent, TurnsWithout, Unread
from agentloop.toolkits.todo import TodoList, ToldOfOpenItems
from agentloop.transcript import Conversation

from .test_recipes import load

FOLDS = [
    (Conversation,),
    (Pruning, CacheRules(100)),
    (Pruning, CacheRules(0, 1.0, 1.0)),
    (CutPoints,),
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
    | st.builds(Summary, texts, st.integers(0, 9), usages, at=st.just(1.0))
    | st.builds(SideRequest, usages, st.just("m"), st.sampled_from(["", "compaction"]))
    | st.builds(Decision, ids, st.booleans())
    | st.builds(InnerCall, st.sampled_from("ad"), ids, names, st.just("{}"))
    | st.builds(InnerResult, st.sampled_from("ad"), results)
    | st.builds(AlwaysAllow, st.just({"name": "add"}))
    | st.builds(Sent, users)
    | st.sampled_from(
        [
            *(RunStart(at=1.0), RunEnd("completed"), Fork(at=2.0), PlanApproved()),
            *(Ask("a"), ToolStart("b"), ToldOfOpenItems(), HookVerdict("Stop", "deny")),
            Reminded("hello"),
        ]
    )
)
logs = st.lists(records, max_size=25)


def said(fold):
    """What a fold says, without what it was made of and the time that has passed."""
    public = {name for name in dir(fold) if not name.startswith("_")}
    found = {name: getattr(fold, name) for name in public - {"log", "seconds"}}
    if "used" in found:
        del found["used"]["seconds"]
    return {name: value for name, value in found.items() if not callable(value)}


def judged(log):
    """A log in which hooks were asked about each prompt: that is when they have a say."""
    found = []
    for record in log:
        found.append(record)
        if isinstance(record, UserMessage) and not record.hidden:
            verdict = "deny" if len(found) % 2 else "none"
            found.append(HookVerdict("UserPromptSubmit", verdict, record.text))
    return found


@pytest.mark.parametrize("kind", FOLDS, ids=lambda kind: kind[0].__name__)
@given(logs, logs, st.integers(0, 25))
def test_a_fold_that_goes_on_says_after_each_record_what_one_from_the_beginning_says(
    kind, log, later, cut
):
    fold, *settings = kind
    agent = Loop(llm=ScriptedModel())
    for record in judged(log):
        agent.record(record)
        assert said(agent.fold(fold, *settings)) == said(fold(agent.log, *settings).catch_up())
    for other in (agent.fork(), agent.fork(cut)):
        for record in judged(later):
            other.record(record)
            assert said(other.fold(fold, *settings)) == said(fold(other.log, *settings).catch_up())
    agent.load_history(agent.messages)  # another list, so another fold
    for record in judged(later):
        agent.record(record)
        assert said(agent.fold(fold, *settings)) == said(fold(agent.log, *settings).catch_up())


@given(logs, st.booleans())
def test_what_is_shown_after_each_record_is_what_a_new_agent_with_this_log_shows(log, per_turn):
    def make():
        return Ephemeral(llm=ScriptedModel(), ephemeral_per_turn=per_turn)

    agent = make()
    for record in log:
        agent.record(record)
        anew = make()
        anew.log.replace(agent.log)
        assert asyncio.run(agent.context()) == asyncio.run(anew.context())
