"""Recall: what is no longer in view is found again, in the agent's own log."""

import json

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
    tool,
)
from agentloop.messages import RunEnd, RunStart, Summary, UserMessage
from agentloop.mixins.approval import Approval
from agentloop.mixins.hooks import Hook, Hooks
from agentloop.models.scripted import call
from agentloop.toolkits.recall import recall, search
from agentloop.transcript import view

from .. import test_loop
from ..test_loop import shown


def turn(number, name, result, says="", **arguments):
    """A call of a tool, and its result."""
    made = ToolCall(f"c{number}", name, json.dumps(arguments))
    return [AssistantMessage(says, (made,)), ToolMessage(made.id, name, result)]


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
    ("words", "finds"),
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
def test_a_search_finds(words, finds):
    found = search(LOG, view(LOG), words)
    assert finds in found
    assert len(found) < 10_000


def test_a_search_that_finds_nothing_says_what_there_is():
    found = search(LOG, view(LOG), "zebra giraffe")
    assert "bash: pytest -q" in found
    assert "get_order: #W78" in found
    assert "The task." not in found, "it is in view"
    assert search([], [], "anything").startswith("None of these words")


def test_what_is_in_view_is_not_searched():
    for words in ("Which shoe size, which order from Oslo?", "The task."):
        assert words not in search(LOG, view(LOG), words)
    assert "None of these words" in search(LOG[:-1], view(LOG[:-1]), "Oslo")


def test_rare_words_count_more_and_of_equal_places_the_newer_one_stays():
    log = [*(r for n in range(30) for r in turn(n, "read", f"the order of user {n}", n=n))]
    log.append(Summary("cut", len(log)))
    assert "user 7" in search(log, view(log), "the order of 7")
    assert "user 29" in search(log, view(log), "the order of user")


def test_a_result_that_a_view_shortens_is_hidden():
    [said, result] = turn(1, "read", "The key is 55.")
    short = ToolMessage("c1", "read", "[cut]")
    assert "The key is 55." in search([said, result], [said, short], "key")


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

    async def test_an_agent_with_a_budget_finds_what_was_left_out(self):
        agent = make(*READS, call("recall", words="part 2 colour"), "done")
        assert await agent.query("Read it.") == "done"
        assert not any("colour_4." in text for text in shown(agent.llm.requests[-2])[3:])
        assert "the colour is colour_4." in last_result(agent)

    async def test_it_is_on_offer_in_every_turn_of_an_agent_with_a_budget_and_in_no_other(self):
        agent = make(*READS, "done")
        await agent.query("Read it.")
        assert {tuple(t.name for t in r.tools) for r in agent.llm.requests} == {("read", "recall")}
        for off in ({"context_budget": None}, {"compaction": None}):
            assert recall not in make(**off).toolset()

    async def test_an_agent_without_tools_stays_without(self):
        assert not make(tools=[]).toolset()
        names = [each.name for each in make(tools=[], require_done_tool=True).toolset()]
        assert names == ["done", "recall"]

    async def test_an_applications_own_recall_stays(self):
        @tool("Recall a memory", name="recall")
        def own(words: str) -> str:
            return "mine"

        agent = make(call("recall", words="x"), "done", tools=[own])
        await agent.query("x")
        assert last_result(agent) == "mine"

    async def test_any_agent_can_have_it_as_a_tool(self):
        turns = [call("read", n=1), "one", call("recall", words="part 1 colour"), "done"]
        agent = make(*turns, kind=Loop, tools=[read, recall])
        await agent.query("Read it.")
        agent.log.append(Summary("It is read.", len(agent.log)))
        await agent.query("What was it?")
        assert "colour_1." in last_result(agent)

    async def test_what_was_recalled_is_not_found_again(self):
        again = [call("recall", words="part 2 colour"), *READS, call("recall", words="recall")]
        agent = make(*READS, *again, "done")
        await agent.query("Read it.")
        assert "None of these words" in last_result(agent)

    async def test_it_needs_no_approval(self):
        kind = type("Asking", (Approval, Agent), {})
        agent = make(call("recall", words="x"), "done", kind=kind)
        assert (await agent.run("x")).stop_reason == "completed"

    async def test_a_fork_and_a_session_find_what_their_log_has(self, tmp_path):
        kind = type("Kept", (Session, Agent), {})
        asks = [call("recall", words="part 2 colour"), "found"]
        with make(*READS, "done", kind=kind, session="s", session_dir=tmp_path) as agent:
            await agent.query("Read it.")
        again = make(*asks, *asks, kind=kind, session="s", session_dir=tmp_path)
        for each in (again.fork(), again):
            await each.query("What was it?")
            assert "colour_4." in last_result(each)
        again.clear_history()
        assert "colour_4." not in search(again.log, again.messages, "colour")
        again.close()

    async def test_what_a_gate_refused_is_not_found(self):
        def judge(data):
            return {"decision": "block", "reason": "no"} if "SECRET" in data["prompt"] else None

        kind = type("Gated", (Hooks, MessageQueue, Agent), {})
        gate = [Hook("UserPromptSubmit", judge)]
        agent = make(*READS, "one", kind=kind, hooks=gate)
        assert (await agent.run("my SECRET password")).stop_reason == "refused"
        await agent.query("Read it.")
        found = search(agent.log, await agent.context(), "SECRET password")
        assert "SECRET" not in found

    async def test_what_was_said_in_a_run_that_failed_is_found(self):
        log = [RunStart(), UserMessage("size 43"), RunEnd("error"), AssistantMessage("ok")]
        assert "size 43" in search(log, [], "43")
