"""The view of any log is a valid conversation for every provider."""

from dataclasses import replace

import pytest

from agentloop import Loop, ScriptedModel
from agentloop.common.records import dump_record, load_record
from agentloop.common.review import DENIED, Ask, Decision, asked, denied
from agentloop.common.summary import SUMMARY_INTRO, Summary
from agentloop.messages import (
    AssistantMessage,
    SystemMessage,
    ToolCall,
    ToolMessage,
    Usage,
    UserMessage,
)
from agentloop.models.scripted import validate_messages
from agentloop.transcript import (
    CUT_OFF,
    NEVER_STARTED,
    OUTCOME_UNKNOWN,
    CallState,
    Conversation,
    Fork,
    Reset,
    RunEnd,
    RunStart,
    SideRequest,
    ToolStart,
    placeholder_result,
    usage_of,
    view,
)
from tests.properties import given, st

A, B = ToolCall("a", "add"), ToolCall("b", "add")
TASK = UserMessage("task")


def asks(*calls):
    return AssistantMessage(tool_calls=calls)


def answers(call_id, text="ok"):
    return ToolMessage(call_id, "add", text)


def states_of(log):
    return Conversation(log).catch_up().states


ids = st.sampled_from(["", "a", "b", "c"])
records = st.one_of(
    st.builds(UserMessage, st.sampled_from(["", "hello"]), st.sampled_from(["user", "note"])),
    st.builds(
        AssistantMessage,
        st.sampled_from(["", " ", "text"]),
        st.lists(st.builds(ToolCall, ids, st.just("add")), max_size=3).map(tuple),
    ),
    st.builds(ToolMessage, ids, st.just("add"), st.just("ok")),
    st.builds(ToolStart, ids, at=st.just(0.0)),
    st.builds(Ask, ids, at=st.just(0.0)),
    st.builds(Decision, ids, st.booleans(), at=st.just(0.0)),
    st.builds(
        Summary, st.just("sum"), st.integers(0, 12), usage=st.just(Usage(1)), at=st.just(0.0)
    ),
)
logs = st.lists(records, max_size=12)


@given(logs)
def test_the_view_of_any_log_is_valid_with_a_new_prompt(log):
    assert validate_messages([*view(log), UserMessage("next")]) == []


@given(logs, st.randoms())
def test_the_view_does_not_depend_on_timestamps(log, random):
    moved = [replace(r, at=random.random()) if hasattr(r, "at") else r for r in log]
    assert view(moved) == view(log)


def test_results_follow_their_calls_in_call_order_regardless_of_log_order():
    log = [TASK, asks(A, B), answers("b", "2"), UserMessage("hurry"), answers("a", "1")]
    odd = [answers("nobody", "no call"), *log, answers("a", "a second result")]
    assert [m.text for m in view(odd)] == ["task", "", "1", "2", "hurry"]


def test_the_state_and_the_decision_of_each_call_are_computed_from_the_log():
    ids = "abcdefgh"
    no = Decision("d", False, "Never.", by="anna")
    yes = Decision("e", True, by="bert")
    log = [TASK, asks(*(ToolCall(name, "add") for name in ids)), Ask("b", "why", at=1.0), no, yes]
    log += [ToolStart(name, at=2.0) for name in "cefg"]
    log += [answers("e"), ToolMessage("f", "add", "LookupError", is_error=True, seconds=0.5)]
    log += [ToolMessage("g", "add", OUTCOME_UNKNOWN, is_error=True, origin="sealed")]
    log += [denied(CallState(ToolCall("h", "add")), "A rule says so.")]
    trails = states_of(log)
    assert {name: trails[name].status for name in ids} == {
        "a": "pending",
        "b": "awaiting_approval",
        "c": "running",
        "d": "denied",
        "e": "completed",
        "f": "failed",
        "g": "sealed",
        "h": "denied",
    }
    assert (trails["b"].newest(Ask).at, trails["c"].start.at, trails["e"].newest(Decision)) == (
        1.0,
        2.0,
        yes,
    )
    assert trails["f"].start.at + trails["f"].result.seconds == 2.5
    assert trails["e"].result == answers("e")
    assert states_of([load_record(dump_record(record)) for record in log]) == trails
    results = [placeholder_result(state) for state in Conversation(log).catch_up().open_calls]
    assert {result.tool_call_id: result.text for result in results} == {
        "a": NEVER_STARTED,
        "b": NEVER_STARTED,
        "c": OUTCOME_UNKNOWN,
        "d": f"{DENIED} Never.",
    }
    assert all(result.is_error for result in results)
    assert view(log)[2:6] == results
    assert view([TASK, asks(A), Decision("a", allowed=False)])[-1].text == DENIED


def test_an_allowed_call_is_pending_until_its_start_or_another_approval_request():
    log = [TASK, asks(A), Ask("a", "why"), Decision("a", True)]
    state = states_of(log)["a"]
    assert (state.status, state.may_start) == ("pending", True)
    log += [Ask("a", "once more")]
    assert states_of(log)["a"].status == "awaiting_approval"
    assert Conversation(log).catch_up().open_calls == [states_of(log)["a"]]


def test_a_call_in_a_truncated_reply_has_a_placeholder_result():
    log = [TASK, replace(asks(A), stop_reason="length")]
    result = view(log)[-1]
    assert (result.text, result.is_error, result.origin) == (CUT_OFF, True, "cut_off")


def test_an_approval_request_refers_to_the_call_as_changed_by_a_gate():
    log = [TASK, asks(A), Ask("a", "why")]
    assert asked(states_of(log)["a"]) == A
    log += [Ask("a", "why", "subtract", '{"b":1}')]
    assert asked(states_of(log)["a"]) == ToolCall("a", "subtract", '{"b":1}')
    assert states_of(log)["a"].call == A


def test_empty_and_repeated_call_ids_become_unique_and_keep_their_results():
    empty = ToolCall("", "add")
    log = [TASK, asks(A, A), answers("a", "1"), answers("a", "2"), asks(A, empty, empty), TASK]
    assert validate_messages(view(log)) == []
    assert [m.text for m in view(log)[2:4]] == ["1", "2"]


@pytest.mark.parametrize("call_id", ["", "a"])
@pytest.mark.parametrize("results", [0, 1, 2])
def test_results_of_calls_with_the_same_id_name_their_own_tools(call_id, results):
    # Gemini may send no ids, and its results refer to calls by name
    calls = ToolCall(call_id, "add"), ToolCall(call_id, "subtract")
    log = [TASK, asks(*calls), *[answers(call_id)] * results, TASK]
    assert [m.tool_name for m in view(log)[2:4]] == ["add", "subtract"]


@pytest.mark.parametrize(
    ("log", "texts"),
    [
        ([answers("a", "cut off"), TASK, asks(A), answers("a", "1")], ["1"]),
        ([TASK, asks(A), answers("a", "1"), answers("a", "again")], ["1"]),
        ([TASK, asks(A)], [NEVER_STARTED]),
    ],
)
def test_calls_with_a_reused_id_keep_their_own_results(log, texts):
    messages = view([*log, TASK, asks(A), answers("a", "2"), TASK, asks(A), answers("a", "3")])
    assert [m.text for m in messages if isinstance(m, ToolMessage)] == [*texts, "2", "3"]


def test_log_entries_and_empty_replies_are_not_part_of_the_view():
    log = [RunStart(), TASK, AssistantMessage(" \n"), AssistantMessage("hi"), RunEnd("completed")]
    assert [m.text for m in view(log)] == ["task", "hi"]


def test_after_a_summary_the_view_contains_the_first_task_the_summary_and_the_rest():
    log = [RunStart(), TASK, asks(A), answers("a"), asks(B), answers("b", "new"), Summary("old", 2)]
    messages = view([*log, Summary("S", 4), UserMessage("more")])
    assert messages[0] == TASK
    assert messages[1].text.endswith("S")
    assert messages[1].hidden
    assert [m.text for m in messages[2:]] == ["", "new", "more"]


def test_user_messages_since_the_newest_prompt_are_kept_verbatim_after_a_summary():
    log = [RunStart(), TASK, AssistantMessage("said"), RunEnd("completed")]
    log += [RunStart(), UserMessage("older"), AssistantMessage("said"), RunEnd("completed")]
    log += [RunStart(), UserMessage("newest"), asks(A), answers("a")]
    log += [UserMessage("a nudge", "nudge"), asks(B), answers("b", "new")]
    rendered = view([*log, Summary("S", len(log) - 2)])
    assert [m.text for m in rendered] == ["task", f"{SUMMARY_INTRO}S", "newest", "", "new"]
    assert view([*log, Summary("S", 9)])[2:] == view(log)[-6:], "kept messages are not repeated"


def test_messages_sent_during_the_first_run_are_kept_after_a_summary():
    log = [RunStart(), TASK, asks(A), answers("a"), UserMessage("hurry", "sent")]
    log += [asks(B), answers("b", "new")]
    messages = view([*log, Summary("S", 5)])
    assert [m.text for m in messages] == ["task", f"{SUMMARY_INTRO}S", "hurry", "", "new"]


def test_a_started_call_is_never_in_the_state_denied_regardless_of_its_result():
    log = [TASK, asks(A), ToolStart("a"), ToolMessage("a", "add", "Denied by the bank", True)]
    assert states_of(log)["a"].status == "failed"
    log[-1] = replace(log[-1], origin="denied")
    assert states_of(log)["a"].status == "failed"


def test_a_denial_of_a_second_start_keeps_the_outcome_of_a_started_call_unknown():
    log = [TASK, asks(A), ToolStart("a"), Ask("a"), Decision("a", False, "Not twice.")]
    assert states_of(log)["a"].status == "sealed"
    assert view(log)[-1].text == f"{OUTCOME_UNKNOWN} It may not run again. Not twice."
    result = denied(states_of(log)["a"], "Not twice.")
    assert (result.origin, OUTCOME_UNKNOWN in result.text) == ("sealed", True)
    assert result.is_error


@given(logs, st.integers(0, 12))
def test_an_incremental_fold_equals_a_fold_of_the_complete_log(log, cut):
    agent = Loop(llm=ScriptedModel())
    for record in [*log, RunStart(), *log[cut:], Fork(), *log[:cut]]:
        agent.record(record)
        complete = Conversation(agent.log).catch_up()
        assert [*agent.messages] == complete.messages == view(agent.log)
        assert agent.conversation.states == complete.states
        assert agent.conversation.requests == complete.requests
        assert agent.conversation.run == complete.run
        assert agent.usage == usage_of(complete.requests)
    before = [*agent.log]
    agent.record(RunStart(workflow_run="w"))
    agent.record(TASK)
    again = RunStart(workflow_run="w")
    agent.record(again)
    assert agent.log[-1] is again
    assert agent.log[:-1] == before
    assert [*agent.messages] == view(agent.log), "the folds start over after an attempt is replaced"
    agent.record(Reset())
    agent.record(TASK)
    assert agent.messages == (TASK,)


def test_the_stop_reason_of_the_newest_run_is_computed_from_the_log():
    log = [TASK]
    for record, ended in [(RunStart(), ""), (RunEnd("limit:cost"), "limit:cost"), (RunStart(), "")]:
        log.append(record)
        assert Conversation(log).catch_up().stop_reason == ended


def test_validate_messages_reports_messages_that_providers_reject():
    bad = [AssistantMessage(), asks(A), UserMessage("x"), answers("a"), SystemMessage("s"), asks(A)]
    problems = "\n".join(validate_messages(bad))
    for words in (
        "neither text nor calls",
        "calls have no result",
        "no earlier call expects the result",
    ):
        assert words in problems
    for words in ("another call has it", "nor a tool"):
        assert words in problems


def test_usage_counts_replies_summaries_and_side_requests():
    log = [AssistantMessage("x", usage=Usage(1, 1)), Summary("s", 0, usage=Usage(2))]
    log += [SideRequest(usage=Usage(4)), AssistantMessage("y"), SideRequest()]
    assert usage_of(Conversation(log).catch_up().requests) == Usage(7, 1)


@pytest.mark.parametrize("kept_from", [1, 2, 3, 4])
@pytest.mark.parametrize("with_marks", [False, True])
def test_a_summary_after_a_denied_call_is_a_valid_view(kept_from, with_marks):
    marks = [Ask("a"), Decision("a", False)] if with_marks else []
    log = [TASK, asks(A, B), *marks, denied(CallState(A), "A rule says so."), answers("b")]
    log += [AssistantMessage("fine"), Summary("in short", kept_from), UserMessage("next")]
    messages = view(log)
    assert validate_messages(messages) == []
    assert messages[0] == TASK
    assert messages[1].text == SUMMARY_INTRO + "in short"
    assert messages[-1] == UserMessage("next")
    results = [message.tool_call_id for message in messages if isinstance(message, ToolMessage)]
    assert results == (["a", "b"] if kept_from == 1 else [])
