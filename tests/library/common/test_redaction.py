"""redacted() makes a new log from chosen records of an old one, and nothing runs again."""

from itertools import combinations

import pytest

from agentloop import Agent, ScriptedModel, call, tool, validate_messages
from agentloop.common.records import dump_record, load_record
from agentloop.common.redaction import redacted
from agentloop.common.store import read_log, session_path, write_log
from agentloop.common.summary import Summary
from agentloop.messages import (
    AssistantMessage,
    ToolCall,
    ToolMessage,
    Unknown,
    UserMessage,
)
from agentloop.mixins.approval import Approval, Rule
from agentloop.mixins.message_queue import MessageQueue
from agentloop.mixins.session import Session
from agentloop.toolkits.subagent import as_tool
from agentloop.transcript import OUTCOME_UNKNOWN, RunEnd, ToolStart, view
from tests import SLOW

SECRET = "4111-1111"


class Clerk(Session, MessageQueue, Approval, Agent):
    session_fsync = False
    approval_mode = "auto"


def clerk(*script, **settings):
    """Return an agent that pays, and the list of what it has paid."""
    paid = []

    @tool("Pay", idempotent=True)
    async def pay(to: str) -> str:
        paid.append(to)
        return f"paid {to}"

    return Clerk(llm=ScriptedModel(*script), tools=[pay], **settings), paid


def without(*unwanted):
    return lambda record: None if any(record is one for one in unwanted) else record


def masked(record):
    return load_record(dump_record(record).replace(SECRET.encode(), b"***"))


async def continued(records, **settings):
    """Continue a log in a new agent, and return the agent and what it paid."""
    agent, paid = clerk(lambda messages, tools: "fine", **settings)
    for record in records:
        agent.log.append(record)
    await agent.run("And now?")
    for waiting in (*agent.pending, *agent.deferred):
        agent.decide(waiting.id, "allow")
    await agent.run("Go on.")
    assert validate_messages(agent.llm.requests[-1].messages) == []
    return agent, paid


@pytest.mark.parametrize("kept", [True, False], ids=["with its start", "without its start"])
async def test_a_call_whose_result_is_left_out_has_an_unknown_outcome_and_does_not_run(kept):
    agent, paid = clerk(call("pay", to="anna"), "Done.")
    await agent.run("Pay anna.")
    unwanted = [record for record in agent.log if isinstance(record, ToolMessage | RunEnd)]
    unwanted += [record for record in agent.log if isinstance(record, ToolStart) and not kept]
    unwanted.append(agent.messages[-1])
    records = redacted(agent.log, without(*unwanted))
    assert OUTCOME_UNKNOWN in [message.text for message in view(records)]
    twin, again = clerk("I will check.")
    for record in records:
        twin.log.append(record)
    assert (await twin.run()).text == "I will check."
    assert (paid, again) == (["anna"], [])


@pytest.mark.parametrize("defer", [True, False])
@pytest.mark.parametrize("verdict", ["allow", "deny", None])
async def test_no_choice_of_records_makes_a_call_run_that_ran_or_was_denied(defer, verdict):
    settings = {"approval_rules": [Rule("ask", "pay")], "defer_approval": defer}
    agent, paid = clerk(call("pay", to="anna"), "One.", "Two.", "Three.", **settings)
    await agent.run("Pay anna.")
    if verdict:
        [waiting] = agent.pending or agent.deferred
        agent.decide(waiting.id, verdict)
        await agent.run()
    records = [*agent.log]
    for number in (1, 2, 3) if SLOW else (1, 2):
        for unwanted in combinations(records, number):
            new = redacted(records, without(*unwanted))
            twin, again = clerk(lambda messages, tools: "fine", **settings)
            for record in new:
                twin.log.append(record)
            await twin.run("And now?")
            if verdict:
                assert again == [], unwanted
    assert paid == (["anna"] if verdict == "allow" else [])


async def test_no_choice_of_records_makes_a_sub_agent_repeat_what_it_has_done():
    def reply(messages, tools):
        return [call("pay", to="anna"), call("pay", to="bert"), "Done."][len(messages) // 2]

    rules = [Rule("ask", "pay", {"to": "bert"})]
    child, paid = clerk(reply, approval_rules=rules)

    def boss():
        clean = as_tool(child, "clean", "Cleans up")
        return Clerk(llm=ScriptedModel(call("clean", prompt="Go."), "Done."), tools=[clean])

    asking = boss()
    assert (await asking.run("Go.")).stop_reason == "needs_approval"
    records = [*asking.log]
    for unwanted in combinations(records, 2):
        twin = boss()
        twin.llm = ScriptedModel("Done.")  # the boss doesn't call again
        for record in redacted(records, without(*unwanted)):
            twin.log.append(record)
        for waiting in twin.pending:
            twin.decide(waiting.id, "allow")
        await twin.run("And now?" if not twin.messages else None)
    assert paid.count("anna") == 1


async def test_a_call_that_waits_still_waits_unless_something_about_it_was_left_out():
    settings = {"approval_rules": [Rule("ask", "pay")]}
    agent, _ = clerk(call("pay", to="anna"), **settings)
    await agent.run("Pay anna.")
    twin, paid = clerk("Done.", **settings)
    for record in redacted(agent.log, without(agent.log[0])):
        twin.log.append(record)
    [waiting] = twin.pending
    twin.decide(waiting.id, "allow")
    await twin.run()
    assert paid == ["anna"]


async def test_a_masked_text_is_in_no_record_of_the_new_log():
    agent, paid = clerk(call("pay", to=SECRET), f"Paid {SECRET}.")
    agent.send(f"My card is {SECRET}.")
    await agent.run("Pay.")
    agent.log.append(Summary(f"The card is {SECRET}.", 2))
    records = redacted(agent.log, masked)
    assert SECRET not in "".join(dump_record(record).decode() for record in records)
    assert len(records) == len(agent.log)
    _, again = await continued(records)
    assert (paid, again) == ([SECRET], [])


async def test_a_call_whose_arguments_are_masked_before_it_ran_never_runs():
    settings = {"approval_rules": [Rule("ask", "pay")]}
    agent, _ = clerk(call("pay", to=SECRET), **settings)
    await agent.run("Pay.")
    twin, paid = await continued(redacted(agent.log, masked), **settings)
    assert paid == []
    assert any("had no effects" in message.text for message in twin.messages)


async def test_a_message_that_was_sent_and_is_left_out_is_not_delivered_again():
    agent, _ = clerk("one")
    agent.send("secret")
    await agent.run()
    [message] = [record for record in agent.log if isinstance(record, UserMessage)]
    twin, _ = await continued(redacted(agent.log, without(message)))
    assert "secret" not in [message.text for message in twin.messages]


def test_positions_stay_the_same_so_that_a_summary_keeps_its_messages():
    prompts = [UserMessage(str(number)) for number in range(6)]
    records = [*prompts, Summary("in short", 4), UserMessage("next")]
    new = redacted(records, without(prompts[1], prompts[2]))
    assert [message.text for message in view(new)] == [message.text for message in view(records)]
    assert new[1:3] == [Unknown({"type": "left_out"})] * 2


def test_a_new_session_has_the_chosen_records_and_the_old_file_is_unchanged(tmp_path):
    agent, _ = clerk("Hello.", session="old", session_dir=tmp_path)
    agent.run_sync(f"I am {SECRET}.")
    agent.close()
    old, new = (session_path(name, tmp_path) for name in ("old", "new"))
    before = old.read_bytes()
    write_log(new, redacted(read_log(old), masked))
    assert old.read_bytes() == before
    assert SECRET.encode() not in new.read_bytes()
    again, _ = clerk("Yes.", session="new", session_dir=tmp_path)
    assert [message.text for message in again.messages] == ["I am ***.", "Hello."]
    assert again.run_sync("Are you sure?").text == "Yes."
    with pytest.raises(FileExistsError):
        write_log(old, [])


def test_a_session_file_that_can_not_be_written_completely_is_deleted(tmp_path):
    with pytest.raises(ValueError, match="serialize"):
        write_log(tmp_path / "s.jsonl", [UserMessage("a"), UserMessage("b", extra={"x": object()})])
    assert [*tmp_path.iterdir()] == []


def test_a_reply_that_is_left_out_leaves_no_open_call():
    reply = AssistantMessage(tool_calls=(ToolCall("1", "pay", '{"to": "anna"}'),))
    records = [UserMessage("Pay."), reply, ToolStart("1"), ToolMessage("1", "pay", "paid")]
    assert [message.text for message in view(redacted(records, without(reply)))] == ["Pay."]
