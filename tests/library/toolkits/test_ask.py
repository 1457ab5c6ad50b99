"""External calls: the run ends with pending calls and continues after their answers."""

import asyncio
import re
from contextlib import suppress

import pytest
from agentloop_chat import mcp_questions

from agentloop import (
    Agent,
    AgentBusy,
    FinalResponseEvent,
    ImagePart,
    Limits,
    RunStopped,
    ScriptedModel,
    Session,
    ToolMessage,
    assert_prefix_stable,
    tool,
)
from agentloop.mixins.approval import Approval, Rule
from agentloop.mixins.hooks import Hook, Hooks
from agentloop.models.scripted import call
from agentloop.toolkits.ask import answer_text, ask_user, question_text
from agentloop.transcript import NEVER_STARTED, OUTCOME_UNKNOWN, ToolStart
from tests.doubles.openai_double import calls
from tests.doubles.wires import WIRES
from tests.helpers import results

ASK = call("ask_user", question="For how many?", options=["two", "four"])


class SessionAgent(Session, Agent):
    session = "s"
    session_fsync = False


def asking_agent(*script, kind=Agent, **settings):
    """Return an agent with `ask_user`, `look` and external `sign`, and a list of executed calls."""
    ran = []

    @tool("Look")
    def look(at: str) -> str:
        ran.append(at)
        return f"saw {at}"

    @tool("Have a paper signed by the boss", external=True)
    def sign(paper: str) -> str:
        ran.append(paper)
        return "never"

    return kind(llm=ScriptedModel(*script), tools=[ask_user, look, sign], **settings), ran


async def test_a_question_ends_the_run_and_its_answer_continues_the_run():
    agent, _ = asking_agent(ASK, "A table for four.")
    result = await agent.run("Book a table.")
    assert result.stop_reason == "needs_answer"
    [question] = result.pending
    assert question.parsed == {"question": "For how many?", "options": ["two", "four"]}

    agent.answer(question.id, "For four.")
    assert (await agent.run()).text == "A table for four."
    assert agent.messages[2].text == "For four."
    assert_prefix_stable(agent.llm.requests)


async def test_a_question_may_be_answered_in_another_process(tmp_path):
    agent, _ = asking_agent(ASK, kind=SessionAgent, session_dir=tmp_path)
    with agent:
        assert (await agent.run("Book a table.")).stop_reason == "needs_answer"
    agent, _ = asking_agent(kind=SessionAgent, session_dir=tmp_path)
    with agent:
        [question] = agent.pending
        agent.answer(question.id, "For four.")
        assert agent.pending == ()
    agent, _ = asking_agent("A table for four.", kind=SessionAgent, session_dir=tmp_path)
    with agent:
        with pytest.raises(ValueError, match="answered"):
            agent.answer(question.id, "For two.")
        assert (await agent.run()).text == "A table for four."
        assert results(agent) == ["For four."]


async def test_other_calls_of_the_turn_run_and_external_functions_do_not():
    agent, ran = asking_agent(
        [call("look", at="a"), ASK, call("sign", paper="p"), call("look", at="b")]
    )
    result = await agent.run("go")
    assert [call.name for call in result.pending] == ["ask_user", "sign"]
    assert sorted(ran) == ["a", "b"]
    results = [record for record in agent.log if isinstance(record, ToolMessage)]
    assert sorted(message.text for message in results) == ["saw a", "saw b"]
    started = {record.call_id for record in agent.log if isinstance(record, ToolStart)}
    assert not started & {call.id for call in result.pending}


async def test_a_run_before_the_answer_sends_no_request_and_has_the_same_pending_calls():
    agent, _ = asking_agent([ASK, call("sign", paper="p")], "Done.")
    first, second = (await agent.run("go")).pending
    agent.answer(second.id, "signed")
    for _ in range(2):
        result = await agent.run()
        assert (result.stop_reason, result.pending) == ("needs_answer", (first,))
    assert len(agent.llm.requests) == 1
    agent.answer(first.id, "two")
    assert (await agent.run()).text == "Done."
    assert results(agent) == ["two", "signed"]


@pytest.mark.parametrize(
    ("content", "text"),
    [("four", "four"), ({"table": 4}, '{"table":4}'), (None, ""), (["a", "b"], '["a","b"]')],
)
async def test_an_answer_may_have_any_type_that_a_tool_may_return(content, text):
    agent, _ = asking_agent(ASK, "ok")
    [question] = (await agent.run("go")).pending
    agent.answer(question.id, content)
    assert results(agent) == [text]


async def test_an_answer_may_be_an_image_and_a_long_answer_is_truncated_in_the_middle():
    agent, _ = asking_agent(ASK, ASK, "ok", max_result_chars=100)
    [question] = (await agent.run("go")).pending
    agent.answer(question.id, ["Here:", ImagePart(url="https://example.org/a.png")])
    [question] = (await agent.run()).pending
    agent.answer(question.id, "x" * 1000)
    assert (await agent.run()).text == "ok"
    assert results(agent)[0] == "Here:"
    assert "900 characters omitted" in results(agent)[1]


async def test_an_answer_to_a_call_that_is_not_pending_is_an_error_with_the_reason():
    agent, _ = asking_agent(ASK, "Fine.", [ASK, call("look", at="a")], "ok")
    with pytest.raises(ValueError, match="call_9"):
        agent.answer("call_9", "x")
    [closed] = (await agent.run("go")).pending
    assert (await agent.run("Never mind.")).text == "Fine."
    assert results(agent) == [NEVER_STARTED]
    with pytest.raises(ValueError, match=f"{closed.id!r} is not pending: it is sealed .Not run"):
        agent.answer(closed.id, "x")
    [question] = (await agent.run("Once more.")).pending
    look_call = next(state.call for state in agent.conversation.states.values() if state.start)
    agent.answer(question.id, "x")
    for done, status in ((question, "answered"), (look_call, "completed")):
        with pytest.raises(ValueError, match=f"{done.id!r} .*{status}"):
            agent.answer(done.id, "y")
    assert (await agent.run()).text == "ok"


async def test_answer_raises_an_error_during_a_run():
    async def look_around(messages, tools):
        with pytest.raises(AgentBusy):
            agent.answer("call_1", "x")
        return "ok"

    agent, _ = asking_agent(look_around)
    await agent.run("go")


async def test_pending_approvals_are_decided_and_pending_questions_are_answered():
    kind = type("Asks", (Approval, Agent), {})
    agent, ran = asking_agent([call("sign", paper="p"), ASK, call("look", at="a")], "ok", kind=kind)
    first, last = (await agent.run("go")).pending
    assert agent.pending == (first, last)
    with pytest.raises(ValueError, match=f"{first.id!r} needs approval"):
        agent.answer(first.id, "signed")
    agent.decide(first.id, "allow")
    agent.decide(last.id, "allow")
    assert agent.pending == (), "the external calls have not been reached"
    assert (await agent.run()).stop_reason == "needs_answer"
    paper, question = agent.pending
    with pytest.raises(ValueError, match=f"{question.id!r} needs no approval"):
        agent.decide(question.id, "allow")
    agent.answer(paper.id, "signed")
    assert agent.pending == (question,)
    agent.answer(question.id, "two")
    assert (await agent.run()).text == "ok"
    assert (ran, results(agent)) == (["a"], ["signed", "two", "saw a"])


async def test_a_run_that_ends_with_a_question_has_no_text():
    events = []
    agent, _ = asking_agent(ASK, listeners=[events.append])
    assert (await agent.run("go")).text == ""
    assert events[-1] == FinalResponseEvent("", "needs_answer")


async def test_a_tool_choice_is_forced_once_and_not_again_after_an_answer():
    class Failing(ScriptedModel):
        choices = ()

        async def ainvoke(self, messages, tools=(), *, tool_choice="auto", on_delta=None):
            self.choices += (tool_choice,)
            if len(self.choices) == 1:
                raise OSError("try again")
            return await super().ainvoke(messages, tools, on_delta=on_delta)

    llm = Failing(ASK, "ok", "Bye.")
    agent = Agent(llm=llm, tools=[ask_user], tool_choice="required")
    with pytest.raises(OSError, match="try again"):
        await agent.run("go")
    [question] = (await agent.run()).pending
    agent.answer(question.id, "two")
    assert (await agent.run()).text == "ok"
    await agent.run("And now?")
    assert llm.choices == ("required", "required", "auto", "required")


@pytest.mark.parametrize("bases", [(Hooks, Agent), (Hooks, Approval, Agent)])
async def test_post_tool_hooks_run_for_calls_in_the_same_turn_as_a_question(bases):
    seen = []
    agent, _ = asking_agent(
        [call("look", at="a"), ASK],
        "ok",
        kind=type("Both", bases, {}),
        hooks=[Hook("PostToolUse", lambda data: seen.append(data["tool_response"]))],
        **({"approval_rules": [Rule("allow")]} if Approval in bases else {}),
    )
    [question] = (await agent.run("go")).pending
    assert seen == ["saw a"]
    agent.answer(question.id, "two")
    assert (await agent.run()).text == "ok"
    assert seen == ["saw a"]


async def test_an_invalid_question_is_an_error_result():
    agent, _ = asking_agent(call("ask_user", options=["a"]), "ok")
    assert (await agent.run("go")).text == "ok"
    assert "question" in results(agent)[0]


async def test_query_raises_an_error_if_an_answer_is_needed():
    agent, _ = asking_agent(ASK)
    with pytest.raises(RunStopped) as stopped:
        await agent.query("go")
    assert stopped.value.result.stop_reason == "needs_answer"


async def test_gates_and_limits_do_not_affect_a_pending_question():
    kind = type("All", (Hooks, Approval, Limits, Session, Agent), {})
    agent, _ = asking_agent(
        [ASK, call("sign", paper="p")],
        "ok",
        kind=kind,
        hooks=[Hook("PreToolUse", lambda data: None)],
        approval_rules=[Rule("ask", "sign")],
        max_tool_calls=2,
        max_seconds=60.0,
        max_tool_failures=1,
    )
    result = await agent.run("go")
    assert result.stop_reason == "needs_approval"
    [paper] = result.pending
    agent.decide(paper.id, "allow")
    result = await agent.run()
    assert (result.stop_reason, len(result.pending)) == ("needs_answer", 2)
    for waiting in result.pending:
        agent.answer(waiting.id, f"answer to {waiting.name}")
    assert (await agent.run()).text == "ok"
    assert results(agent) == ["answer to ask_user", "answer to sign"]


async def test_a_call_that_cancels_itself_next_to_a_question_is_not_pending():
    @tool("Wait")
    async def wait() -> None:
        asyncio.current_task().cancel()
        await asyncio.sleep(0)

    agent = Agent(llm=ScriptedModel([ASK, call("wait")], "ok"), tools=[ask_user, wait])
    result = await agent.run("go")
    assert result.stop_reason == "needs_answer"
    assert [call.name for call in result.pending] == ["ask_user"]
    assert agent.pending == result.pending
    agent.answer(result.pending[0].id, "two")
    assert (await agent.run()).text == "ok"
    assert results(agent) == ["two", OUTCOME_UNKNOWN]


async def test_a_denied_external_call_is_not_pending():
    rules = [Rule("deny", "sign", reason="The boss is away.")]
    agent, _ = asking_agent(
        call("sign", paper="p"),
        "ok",
        kind=type("Asks", (Approval, Agent), {}),
        approval_rules=rules,
    )
    assert (await agent.run("go")).text == "ok"
    assert results(agent)[0].endswith("The boss is away.")


async def test_a_cancelled_run_keeps_its_pending_question():
    started = asyncio.Event()

    @tool("Wait")
    async def wait() -> None:
        started.set()
        await asyncio.Event().wait()

    agent = Agent(llm=ScriptedModel([ASK, call("wait")], "ok"), tools=[ask_user, wait])
    run = asyncio.ensure_future(agent.run("go"))
    await started.wait()
    run.cancel()
    with suppress(asyncio.CancelledError):
        await run
    assert (await agent.run()).stop_reason == "needs_answer"
    [question] = agent.pending
    agent.answer(question.id, "two")
    assert (await agent.run()).text == "ok"
    assert results(agent)[0] == "two"


@pytest.mark.parametrize("wire", WIRES, ids=lambda wire: wire.name)
@pytest.mark.parametrize("answers", [True, False], ids=["an answer", "a new prompt"])
async def test_every_provider_accepts_the_messages_after_a_question(wire, answers):
    turn = calls(("look", {"at": "a"}, "c1"), ("ask_user", {"question": "For how many?"}, "c2"))
    async with wire.double([turn, "Done."]) as server:
        agent, _ = asking_agent()
        agent.llm = wire.model(server, max_retries=0)
        [question] = (await agent.run("go")).pending
        if answers:
            agent.answer(question.id, "four")
        assert (await agent.run(None if answers else "Never mind.")).text == "Done."
        assert server.refusals == []
        assert results(agent) == ["saw a", "four" if answers else NEVER_STARTED]


def test_the_text_of_a_question_lists_its_options():
    assert question_text(ASK.parsed) == "For how many?\n1. two\n2. four"
    assert question_text({"question": "Why?"}) == "Why?"
    assert question_text({}) == ""


def test_the_text_of_a_server_question_is_an_indented_block_with_fields_or_address():
    form = {"properties": {"date": {"type": "string"}, "guests": {"type": "integer"}}}
    hostile = "When?\n\n# Done\r[bank](http://x)\u2028> quote"
    request = {"server": "inn", "question": hostile, "problem": "guests: no", "form": form}
    text = mcp_questions.question_text(request)
    _, _, *lines = text.splitlines()
    assert all(line.startswith("    ") for line in lines if line)
    assert "guests: no" in text
    assert '    guests: {"type":"integer"}' in lines
    assert "JSON object" in lines[-1]
    one = mcp_questions.question_text(
        {"server": "inn", "question": "When?", "form": {"properties": {"d": {}}}}
    )
    assert "Answer with a text" in one
    url = mcp_questions.question_text(
        {"server": "inn", "question": "Log in.", "url": "https://x.example/?a=1"}
    )
    assert "    https://x.example/?a=1" in url.splitlines()
    consent = {"server": "inn", "question": "Really?", "form": {"properties": {}}}
    assert "Answer: done." in mcp_questions.question_text(consent)
    broken = {"server": 5, "question": "Why?", "form": 5}
    assert mcp_questions.question_text(broken) == "Why?"


def test_the_schema_of_ask_user_describes_the_question():
    properties = ask_user.parameters["properties"]
    assert re.search("(?i)one question", properties["question"]["description"])
    assert ask_user.parameters["required"] == ["question"]


@pytest.mark.parametrize(
    ("options", "answer", "sent"),
    [
        (["two", "four"], "2", "four"),
        (["two", "four"], "1.", "two"),
        (["two", "four"], "3", "3"),
        (["two", "four"], "0", "0"),
        (["two", "four"], "2 of them", "2 of them"),
        (["4", "2"], "2", "2"),
        ("two", "1", "1"),
        (None, "1", "1"),
    ],
)
def test_an_option_number_is_replaced_by_the_option(options, answer, sent):
    assert answer_text({"options": options}, answer) == sent
