"""The README is true: its blocks run, its loop is the one that ships, its commands are there."""

import contextlib
import io
import re
import textwrap
from pathlib import Path

import pytest

from agentloop import AssistantMessage, ScriptedModel, ToolCall, tool

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(\w*) ?(\w*)\n(.*?)^```$", README, re.DOTALL | re.MULTILINE)
PROGRAMS = [
    (text, BLOCKS[i + 1][2] if BLOCKS[i + 1 : i + 2] and BLOCKS[i + 1][:2] == ("text", "") else "")
    for i, (language, label, text) in enumerate(BLOCKS)
    if (language, label) == ("python", "")
]


@pytest.mark.parametrize(("program", "output"), PROGRAMS)
def test_every_program_runs_and_prints_what_it_says(program, output):
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(program, "README.md", "exec", dont_inherit=True), {"__name__": "__main__"})
    assert printed.getvalue() == output


def approval(*replies):
    """An agent of the README's class `Approval`, and what its tool has paid."""
    [program] = [text for text, _ in PROGRAMS if "class Approval" in text]
    names = {"__name__": "__main__"}
    with contextlib.redirect_stdout(io.StringIO()):
        exec(compile(program, "README.md", "exec", dont_inherit=True), names)
    paid = []

    @tool
    def pay(amount: int) -> str:
        """Pay somebody."""
        paid.append(amount)
        return f"paid {amount}"

    template = names["Approval"](llm=ScriptedModel(*replies), tools=[pay])

    [line] = [line for line in program.splitlines() if line.startswith("agent.approved")]

    def approve(agent, result):
        exec(line, names | {"agent": agent, "result": result})

    return template, paid, approve


def pays(amount, call_id=""):
    return AssistantMessage(tool_calls=(ToolCall(call_id, "pay", f'{{"amount":{amount}}}'),))


@pytest.mark.parametrize("call_id", ["", "call_1"])
def test_what_is_approved_in_one_fork_is_approved_in_no_other(call_id):
    template, paid, approve = approval(pays(1, call_id), pays(9999, call_id), "Paid.", "Paid.")
    one, other = template.fork(), template.fork()
    result = one.run_sync("Pay 1.")
    assert other.run_sync("Pay 9999.").stop_reason == "needs_approval"
    approve(one, result)
    assert other.run_sync().stop_reason == "needs_approval"
    assert paid == []
    assert one.run_sync().text == "Paid."
    assert other.run_sync().stop_reason == "needs_approval"
    assert template.fork().approved == set()
    assert paid == [1]


@pytest.mark.parametrize("call_id", ["", "call_1"])
@pytest.mark.parametrize("amount", [1, 9999])
def test_an_approval_counts_once_for_one_call(call_id, amount):
    agent, paid, approve = approval(pays(1, call_id), "Paid.", pays(amount, call_id), "Paid.")
    approve(agent, agent.run_sync("Pay 1."))
    assert agent.run_sync().text == "Paid."
    agent.clear_history()
    result = agent.run_sync("And again.")
    assert result.stop_reason == "needs_approval"
    assert paid == [1]
    approve(agent, result)
    assert agent.run_sync().text == "Paid."
    assert paid == [1, amount]


def test_an_approval_that_was_not_used_lets_no_other_call_through():
    agent, paid, approve = approval(pays(1, "call_1"), pays(9999, "call_1"))
    approve(agent, agent.run_sync("Pay 1."))
    agent.clear_history()
    assert agent.run_sync("Pay 9999.").stop_reason == "needs_approval"
    assert paid == []


def test_there_are_programs():
    assert len(PROGRAMS) >= 4


def test_the_loop_is_the_one_that_ships():
    [shown] = [text for language, label, text in BLOCKS if label == "loop"]
    code = (ROOT / "agentloop" / "loop.py").read_text(encoding="utf-8")
    without_comments = re.sub(r"  #.*$|^ *#.*\n", "", code, flags=re.MULTILINE)
    assert textwrap.indent(shown, " " * 8) in without_comments


def test_its_links_lead_somewhere():
    for target in re.findall(r"\]\(([^)#]+)\)", README):
        assert (ROOT / target).exists(), target


def test_ci_runs_the_test_command():
    [command] = [text for _, label, text in BLOCKS if label == "test"]
    assert command.strip() in (ROOT / ".ci" / "run").read_text(encoding="utf-8")
