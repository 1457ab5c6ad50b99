"""Recall: searching the log for records outside of the current view."""

import json
import threading
from itertools import chain

import pytest

from agentloop import (
    Agent,
    AssistantMessage,
    Loop,
    MessageQueue,
    ScriptedModel,
    Session,
    ToolCall,
    ToolMessage,
    current_agent,
    tool,
)
from agentloop.common.summary import Summary
from agentloop.messages import UserMessage
from agentloop.mixins.approval import Approval
from agentloop.mixins.hooks import Hook, Hooks
from agentloop.models.scripted import call
from agentloop.toolkits.recall import recall, search
from agentloop.transcript import RunEnd, RunStart, view
from tests.core import test_loop
from tests.core.test_loop import shown


def turn(number, name, result, text="", **arguments):
    """Return an assistant message with a tool call, followed by the result."""
    tool_call = ToolCall(f"c{number}", name, json.dumps(arguments))
    return [AssistantMessage(text, (tool_call,)), ToolMessage(tool_call.id, name, result)]


ORDER = json.dumps({"order": "#W77", "city": "Oslo", "items": [{"item": "4411", "price": 250}]})
CODE = "\n".join(f"    value_{n} = compute_{n}(row, {n * 7})" for n in range(1_000, 1_200))
LOG = [
    UserMessage("My shoe size is 43."),
    *turn(1, "get_order", ORDER, order="#W77"),
    *turn(2, "read", CODE, path="src/store.py"),
    *turn(3, "bash", "3 failed: test_a, test_b, test_c", "Now the tests.", command="pytest -q"),
    *turn(4, "write", "Written.", path="notes.md", text="The price\nwas raised in March."),
    *turn(5, "read", "订单退货地址: 上海", path="中文.md"),
    *turn(6, "get_order", ORDER.replace("77", "78").replace("Oslo", "Rome"), order="#W78"),
    UserMessage("Which shoe size, which order from Oslo?"),
]
LOG = [UserMessage("The task."), *LOG, Summary("cut", len(LOG) + 1)]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("value_1150 = compute_1150(row, 8050)", "    value_1150 = compute_1150(row, 8050)\n"),
        ("8050 ROW compute", "    value_1150 = compute_1150(row, 8050)\n"),
        ("What was the number of the order that went to Oslo?", '"#W77"'),
        ("orders from OSLO, items", '"4411"'),
        ("pytest", "3 failed: test_a"),
        ("bash", "3 failed: test_a"),
        ("src/store.py 1003", "value_1003 = compute"),
        ("when was the price raised?", "was raised in March."),
        ("What is my shoe size?", "My shoe size is 43."),
        ("退货地址", "上海"),
        ('{"order": "#W78", "new": "something that never was"}', "Rome"),
    ],
)
def test_a_search_returns_the_matching_text(words, expected):
    results = search(LOG, view(LOG), words)
    assert expected in results
    assert len(results) < 10_000


def test_a_search_without_matches_lists_the_searchable_calls():
    results = search(LOG, view(LOG), "zebra giraffe")
    assert "bash: pytest -q" in results
    assert "get_order: #W78" in results
    assert "The task." not in results, "messages in view are not searched"
    assert search([], [], "anything").startswith("None of these words")


def test_messages_in_view_are_not_searched():
    for words in ("Which shoe size, which order from Oslo?", "The task."):
        assert words not in search(LOG, view(LOG), words)
    assert "None of these words" in search(LOG[:-1], view(LOG[:-1]), "Oslo")


def test_rare_words_have_more_weight_and_newer_matches_are_preferred():
    log = [*(r for n in range(30) for r in turn(n, "read", f"the order of user {n}", n=n))]
    log.append(Summary("cut", len(log)))
    assert "user 7" in search(log, view(log), "the order of 7")
    assert "user 29" in search(log, view(log), "the order of user")


def test_of_equally_good_passages_the_newest_are_found():
    words = [[f"{letter}{n}" for letter in "abcdefgh"] for n in range(20)]
    parts = [some[:size] for some in words for size in range(1, 8)]  # "a" is frequent, "h" is rare
    log = [turn(f"part {n}", "part", " ".join(part)) for n, part in enumerate(parts)]
    log += [turn(n, "good", " ".join(all_parts), order=n) for n, all_parts in enumerate(words)]
    found = search([*chain(*log)], [], " ".join(chain(*words)))
    titles = [line for line in found.splitlines() if line.startswith("good: ")]
    assert [*dict.fromkeys(titles)] == [f"good: {n}" for n in range(10, 20)]


def test_a_result_that_is_truncated_in_the_view_is_searched():
    [reply, result] = turn(1, "read", "The key is 55.")
    short = ToolMessage("c1", "read", "[cut]")
    assert "The key is 55." in search([reply, result], [reply, short], "key")


@tool("Read a part of the book")
def read(n: int) -> str:
    return f"part {n}: the colour is colour_{n * n}. " + "word " * 300


def make(*script, kind=Agent, **settings):
    settings = {"context_budget": 1_500, "tools": [read]} | settings
    if kind is Loop:
        del settings["context_budget"]
    return kind(llm=ScriptedModel(*script), **settings)


READS = [call("read", n=n) for n in range(12)]


def last_result(agent):
    return [m.text for m in agent.messages if isinstance(m, ToolMessage)][-1]


class Budgeted(Agent):
    context_budget = 12_000


class TestRecall(test_loop.TestLoop):
    agent_class = Budgeted

    async def test_an_agent_with_a_budget_finds_pruned_results(self):
        agent = make(*READS, call("recall", words="part 2 colour"), "done")
        assert await agent.query("Read it.") == "done"
        assert not any("colour_4." in text for text in shown(agent.llm.requests[-2])[3:])
        assert "the colour is colour_4." in last_result(agent)

    async def test_a_search_in_a_long_log_does_not_block_the_event_loop(self):
        threads = []

        def spy():
            threads.append(threading.current_thread())
            return agent

        settings = {"tools": [recall], "dependency_overrides": {current_agent: spy}}
        agent = make(call("recall", words="shoe size"), "done", **settings)
        await agent.run("Which shoe size?")
        assert threads
        assert threading.current_thread() not in threads

    async def test_recall_is_offered_in_every_turn_only_if_the_agent_has_a_budget(self):
        agent = make(*READS, "done")
        await agent.query("Read it.")
        assert {tuple(t.name for t in r.tools) for r in agent.llm.requests} == {("read", "recall")}
        for off in ({"context_budget": None}, {"offer_recall": False}):
            assert recall not in make(**off).toolset()

    async def test_an_agent_without_tools_gets_no_recall_tool(self):
        for settings in ({}, {"require_done_tool": True}, {"output_type": int}):
            assert recall not in make(tools=[], **settings).toolset()

    async def test_a_recall_tool_of_the_application_is_not_replaced(self):
        @tool("Recall a memory", name="recall")
        def own(words: str) -> str:
            return "mine"

        agent = make(call("recall", words="x"), "done", tools=[own])
        await agent.query("x")
        assert last_result(agent) == "mine"

    async def test_recall_works_as_a_tool_of_any_agent(self):
        turns = [call("read", n=1), "one", call("recall", words="part 1 colour"), "done"]
        agent = make(*turns, kind=Loop, tools=[read, recall])
        await agent.query("Read it.")
        agent.log.append(Summary("It is read.", len(agent.log)))
        await agent.query("What was it?")
        assert "colour_1." in last_result(agent)

    async def test_results_of_recall_are_not_searched(self):
        again = [call("recall", words="part 2 colour"), *READS, call("recall", words="recall")]
        agent = make(*READS, *again, "done")
        await agent.query("Read it.")
        assert "None of these words" in last_result(agent)

    async def test_recall_does_not_require_approval(self):
        kind = type("Asking", (Approval, Agent), {})
        agent = make(call("recall", words="x"), "done", kind=kind)
        assert (await agent.run("x")).stop_reason == "completed"

    async def test_a_fork_and_a_session_search_their_own_log(self, tmp_path):
        kind = type("SessionAgent", (Session, Agent), {})
        script = [call("recall", words="part 2 colour"), "found"]
        with make(*READS, "done", kind=kind, session="s", session_dir=tmp_path) as agent:
            await agent.query("Read it.")
        again = make(*script, *script, kind=kind, session="s", session_dir=tmp_path)
        for agent in (again.fork(), again):
            await agent.query("What was it?")
            assert "colour_4." in last_result(agent)
        again.clear_history()
        assert "colour_4." not in search(again.log, again.messages, "colour")
        again.close()

    async def test_a_prompt_blocked_by_a_hook_is_not_found(self):
        def judge(data):
            return {"decision": "block", "reason": "no"} if "SECRET" in data["prompt"] else None

        kind = type("Gated", (Hooks, MessageQueue, Agent), {})
        gate = [Hook("UserPromptSubmit", judge)]
        agent = make(*READS, "one", kind=kind, hooks=gate)
        assert (await agent.run("my SECRET password")).stop_reason == "refused"
        await agent.query("Read it.")
        results = search(agent.log, await agent.context(), "SECRET password")
        assert "SECRET" not in results

    async def test_messages_of_a_failed_run_are_found(self):
        log = [RunStart(), UserMessage("size 43"), RunEnd("error"), AssistantMessage("ok")]
        assert "size 43" in search(log, [], "43")
