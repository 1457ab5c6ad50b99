"""The conversation of the chat without a terminal."""

import io
import json
import shutil
import sys
from typing import Annotated

import pytest
from agentloop_chat.coding_agent import expired
from agentloop_chat.config import Config
from agentloop_chat.conversation import Chat, Setup
from agentloop_chat.program import with_servers
from agentloop_chat.sessions import stem

from agentloop import (
    Agent,
    AssistantMessage,
    Depends,
    Loop,
    ScriptedModel,
    Session,
    Stop,
    Summary,
    ToolCall,
    Usage,
    call,
    current_agent,
    current_call,
    session_path,
    tool,
)
from agentloop.cli.terminal import Terminal
from agentloop.common.prices import Price
from agentloop.common.records import to_dict
from agentloop.common.review import Decision
from agentloop.common.subagents import SubAgentRecord
from agentloop.messages import Unknown
from agentloop.mixins.approval import Approval, Rule
from agentloop.toolkits.ask import UserAnswer, UserQuestion
from agentloop.toolkits.shell import Shell
from tests import ROOT
from tests.helpers import bash


class Theirs(Approval, Session, Agent): ...


def billed(text, *calls, tokens):
    return AssistantMessage(text, calls, usage=Usage(tokens, 1), model="m")


@pytest.fixture(autouse=True)
def _home(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))


@pytest.fixture
def start(tmp_path):
    """Return a function that starts a conversation with a scripted model and records its output."""
    shown = io.StringIO()

    def start(*said, **settings):
        terminal = Terminal(shown)
        llm = ScriptedModel(*said)
        chat = Chat(Setup(llm=llm, root=tmp_path, terminal=terminal, yes=True, **settings))
        chat.shown_text = shown.getvalue
        return chat

    return start


def test_an_undo_retains_the_bill_and_names_the_changed_files(start):
    write = call("write", path="a.py", content="1")
    fails = call("edit", path="b.py", old_text="x", new_text="y")
    said = [
        billed("one", tokens=100),
        billed("", write, fails, tokens=20),
        billed("two", tokens=3),
        billed("three", tokens=1000),
    ]
    with start(*said, session="s") as chat:
        chat.agent.prices = {"m": Price(1e6, 0)}
        chat.runner.run(chat.reply("first"))
        chat.runner.run(chat.reply("second"))
        before = chat.agent.bill
        assert chat.take_back() == "second"
        assert "(Removed. Changed files are not restored: a.py.)" in chat.shown_text()
        assert chat.agent.bill == before
        assert [each.text for each in chat.agent.messages] == ["first", "one"]
        assert chat.take_back() == "first"
        assert chat.agent.bill == before
        chat.runner.run(chat.reply("third"))
        assert (chat.agent.usage.input_tokens, chat.agent.cost) == (1123, 1123)
    with start(session="s") as chat:
        assert chat.agent.usage.input_tokens == 1123


def test_a_new_conversation_starts_in_the_working_directory_that_its_prompt_names(start, tmp_path):
    with start(bash("mkdir sub && cd sub"), "ok", bash("pwd > where"), "ok") as chat:
        chat.runner.run(chat.reply("go"))
        chat.runner.run(chat.do_new())
        chat.runner.run(chat.reply("where are you?"))
    assert (tmp_path / "where").read_text() == f"{tmp_path}\n"


def test_a_new_conversation_has_to_read_a_file_before_it_overwrites_it(start, tmp_path):
    (tmp_path / "a.py").write_text("one")
    write = call("write", path="a.py", content="two")
    with start(call("read", path="a.py"), "ok", write, "ok") as chat:
        chat.runner.run(chat.reply("read"))
        chat.runner.run(chat.do_new())
        chat.runner.run(chat.reply("write"))
    assert (tmp_path / "a.py").read_text() == "one"


def test_the_question_of_a_server_is_shown_and_answered_by_the_next_prompt(start):
    form = {"properties": {"date": {"type": "string"}}}
    asked = {"server": "inn", "question": "When?", "form": form}

    @tool("Book")
    async def book(
        agent: Annotated[Loop, Depends(current_agent)],
        this: Annotated[ToolCall, Depends(current_call)],
    ) -> str:
        answer = agent.conversation.state_of(this).newest(UserAnswer)
        if answer is None:
            agent.record(UserQuestion(this.id, json.dumps(asked)))
            raise Stop("needs_answer")
        return f"booked: {answer.content}"

    with start(call("book"), "It is booked.") as chat:
        chat.agent.tools = [book]
        chat.runner.run(chat.reply("Book a table."))
        assert "When?" in chat.shown_text()
        assert "Stopped" not in chat.shown_text()
        assert chat.runner.run(chat.reply("tomorrow")).text == "It is booked."
        assert chat.agent.messages[2].text == 'booked: "tomorrow"'


def test_the_next_prompt_is_the_result_of_an_external_tool(start):
    @tool("Ship the order", external=True)
    def ship() -> None: ...

    with start(call("ship"), "It was shipped.") as chat:
        chat.agent.tools = [ship]
        chat.runner.run(chat.reply("Ship it."))
        assert chat.runner.run(chat.reply("by rail")).text == "It was shipped."
        assert chat.agent.messages[2].text == "by rail"


def test_the_next_prompt_answers_the_question_of_a_configured_mcp_server(start, tmp_path):
    pytest.importorskip("mcp")
    double = ROOT / "tests" / "doubles" / "mcp_server.py"
    arguments = [str(double), "newest", str(tmp_path / "pids")]
    server = {"command": sys.executable, "args": arguments, "elicitation": True}
    (tmp_path / "mcp.json").write_text(json.dumps({"mcpServers": {"fake": server}}))
    with start(call("fake__echo", kind="one"), "Booked.") as chat:

        async def work():
            await chat.reply("Book a table.")
            assert "Which date?" in chat.shown_text()
            return await chat.reply("tomorrow")

        result = chat.runner.run(with_servers(chat, str(tmp_path / "mcp.json"), work))
        assert result.text == "Booked."
        answers = json.loads(chat.agent.messages[2].text)["answers"]
        assert answers["when"] == {"action": "accept", "content": {"date": "tomorrow"}}


@pytest.mark.parametrize("entry", ["decision", "standing approval", "plan"])
def test_an_approval_in_a_session_file_has_no_effect(tmp_path, entry):
    """Somebody else may have written the file; the user of this chat approved nothing."""
    shell = Shell(tmp_path)
    llm = ScriptedModel(bash("touch ran"), "done")
    theirs = Theirs(llm=llm, tools=shell.tools, session="s")
    if entry == "standing approval":
        theirs.allow_always("bash")
    elif entry == "plan":
        theirs.approve_plan()
    theirs.run_sync("go")
    if entry == "decision":
        theirs.decide(theirs.pending[0].id, "allow")
    theirs.close()
    (tmp_path / "ran").unlink(missing_ok=True)
    asked = []

    class Careful(Chat):
        async def ask(self, call, reason):
            asked.append(call.name)
            return False

    shown = io.StringIO()
    llm = ScriptedModel(bash("touch ran"), "done")
    setup = Setup(llm=llm, root=tmp_path, terminal=Terminal(shown), session="s")
    with Careful(setup) as chat:
        chat.tell_interrupted()
        pending = entry != "standing approval"
        chat.runner.run(chat.reply(None if pending else "again"))
        assert ("Enter to continue with bash touch ran" in shown.getvalue()) == pending
    assert asked == ["bash", "bash"][not pending :]
    assert not (tmp_path / "ran").exists()
    with Theirs(llm=ScriptedModel(), session="s") as agent:  # the file is unchanged
        kinds = [type(record).__name__ for record in agent.log]
    assert {"decision": "Decision", "plan": "PlanApproved"}.get(entry, "AlwaysAllow") in kinds


@pytest.mark.parametrize("depth", [1, 2])
def test_an_approval_of_a_sub_agents_call_in_a_session_file_has_no_effect(depth):
    record = Decision("b", True, by="somebody")
    for _ in range(depth):
        record = SubAgentRecord("a", "helper", to_dict(record))
    assert isinstance(expired(record), Unknown)
    denial = SubAgentRecord("a", "helper", to_dict(Decision("b", False)))
    assert expired(denial) is denial


def test_the_context_is_measured_at_the_rate_of_the_provider(start):
    def filled():
        return int(chat.runner.run(chat.meter()).split()[1].replace(",", ""))

    with start(billed("one", tokens=2_000)) as chat:
        estimated = filled()
        chat.runner.run(chat.reply("go"))
        assert 2_000 < filled() < 2_020
        chat.agent.add_note("note " * 100)
        assert filled() == pytest.approx(2_000 + 100 * 2_000 / estimated, abs=40)
        before = filled()
        chat.agent.record(Summary("They greeted each other.", len(chat.agent.log)))
        assert filled() < before


def test_a_rule_of_the_configuration_denies_a_program_anywhere_in_a_line(start, tmp_path):
    rules = [Rule("deny", "bash", {"command": "touch *"})]
    with start(bash("echo x; /bin/touch ran"), "done", config=Config(rules=rules)) as chat:
        chat.runner.run(chat.reply("go"))
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("name", ["--live", "page", "missing/page.html"])
def test_an_unusable_name_of_an_export_does_not_end_the_chat(start, name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with start("hi", session="s") as chat:
        chat.runner.run(chat.reply("go"))
        chat.runner.run(chat.do_export(name))
    assert [*tmp_path.rglob("*.html")] == []


def test_the_context_lists_only_the_tools_that_the_model_sees(start):
    @tool("Found by a search")
    async def rare() -> str:
        return ""

    rare.deferred = True
    with start(tools=[rare]) as chat:
        chat.runner.run(chat.do_context())
        assert "tools: read," in chat.shown_text()
        assert "rare" not in chat.shown_text()


def test_an_export_may_be_a_picture_in_the_home_folder(start, tmp_path):
    with start("hi", session="s") as chat:
        chat.runner.run(chat.reply("go"))
        chat.runner.run(chat.do_export("~/run.svg"))
    assert (tmp_path / "run.svg").read_text().startswith("<svg")


def test_a_list_of_sessions_ends_after_the_newest_ones(start, tmp_path):
    with start("hi", session="s") as chat:
        chat.runner.run(chat.reply("go"))
        for number in range(30):
            shutil.copy(session_path("s"), session_path(f"{stem(tmp_path)}-{number}"))
        chat.runner.run(chat.do_resume(""))
    assert chat.shown_text().count(stem(tmp_path)) == 20
    assert "... 10 older ones" in chat.shown_text()
