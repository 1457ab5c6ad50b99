"""The slash commands, without a terminal: what each does to the conversation."""

import asyncio
import io
import os

import pytest

from agentloop import AssistantMessage, ScriptedModel, Summary, Usage, UserMessage, view
from agentloop.cli.chat import Chat, CodingAgent
from agentloop.cli.commands import COMMANDS, is_command, obey, up_to
from agentloop.cli.models import another_model, model_at
from agentloop.cli.rerun import rerun
from agentloop.cli.terminal import Terminal
from agentloop.messages import Reset
from agentloop.mixins.compaction import SUMMARY_PROMPT
from agentloop.models.replay import ReplayModel, read_log
from agentloop.models.scripted import call

LONG = "word " * 200


@pytest.fixture
def begin(tmp_path):
    """Starts a chat that is kept, and gives it with what it shows."""
    chats = []

    def start(*replies):
        script = iter(replies)

        def answer(messages, tools):
            return "SUMMARY" if messages[-1].text == SUMMARY_PROMPT else next(script)

        shown = io.StringIO()
        kept = {"session": "s", "session_dir": tmp_path / "sessions"}
        chats.append(Chat(ScriptedModel(answer), tmp_path, Terminal(shown), yes=True, **kept))
        return chats[-1].__enter__(), shown

    yield start
    for chat in chats:
        chat.__exit__()


def texts(chat):
    return [message.text for message in chat.agent.messages]


def assert_replays(tmp_path):
    llm = ReplayModel(tmp_path / "sessions" / "s.jsonl")
    asyncio.run(rerun(CodingAgent(llm=ScriptedModel()), llm))


def test_undo_takes_back_the_last_prompt_and_what_followed(begin, tmp_path):
    chat, shown = begin("one", "two", "three", "four")
    for prompt in ("first", "second", "third"):
        chat.answer(prompt)
    used = len((tmp_path / "sessions" / "s.jsonl").read_bytes())
    obey(chat, "undo", "")
    obey(chat, "undo", "")
    assert texts(chat) == ["first", "one"]
    assert '(Taken back: "second". What it did to files is not undone;' in shown.getvalue()
    chat.answer("other")
    assert texts(chat) == ["first", "one", "other", "four"]
    path = tmp_path / "sessions" / "s.jsonl"
    assert [r for r in read_log(path) if isinstance(r, AssistantMessage)][-1].text == "four"
    assert path.stat().st_size > used, "what was taken back is in the file"
    assert_replays(tmp_path)


def test_what_was_taken_back_was_paid_all_the_same(begin):
    reply = AssistantMessage("ok", usage=Usage(1000, 20))
    chat, _ = begin(*[reply] * 3)
    chat.answer("first")
    chat.answer("second")
    obey(chat, "undo", "")
    obey(chat, "undo", "")
    chat.answer("third")
    assert chat.usage() == "3,000 tokens in, 60 out"


def test_what_a_summary_counts_stays_the_same_records():
    log = [UserMessage("a"), AssistantMessage("b"), AssistantMessage("c"), Summary("s", 2)]
    again = [Reset(), *up_to([*log, UserMessage("gone")], 4)]
    assert view(again) == view(log)
    assert [Reset(), *up_to(again, 5)][1:] == again[1:]


def test_compact_summarizes_now_and_the_session_replays(begin, tmp_path):
    chat, shown = begin(LONG, "two", "three", "four")
    for prompt in ("first", "second", "third"):
        chat.answer(prompt)
    obey(chat, "compact", "")
    assert "(Summarized: " in shown.getvalue()
    chat.answer("fourth")
    assert texts(chat)[0] == "first"
    assert texts(chat)[1].endswith("SUMMARY")
    assert LONG not in texts(chat)
    assert_replays(tmp_path)


def test_fork_goes_on_in_a_copy(begin, tmp_path):
    chat, shown = begin("one", "two")
    obey(chat, "fork", "t")
    assert "nothing to copy yet" in shown.getvalue()
    chat.answer("first")
    before = (tmp_path / "sessions" / "s.jsonl").read_bytes()
    obey(chat, "fork", "s")
    assert "there is a session 's' already" in shown.getvalue()
    obey(chat, "fork", "t")
    chat.answer("second")
    assert chat.agent.session == "t"
    assert texts(chat) == ["first", "one", "second", "two"]
    assert (tmp_path / "sessions" / "s.jsonl").read_bytes() == before
    obey(chat, "fork", "")
    assert chat.agent.session.endswith("-1")


def test_the_model_is_another_from_then_on(begin, monkeypatch):
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
    chat, shown = begin()
    chat.agent.llm = model_at("openai", "first", "http://127.0.0.1:9/v1", "k")
    obey(chat, "model", "qwen3:8b")
    assert chat.agent.llm.model == "qwen3:8b"
    assert chat.agent.llm.base_url == "http://127.0.0.1:9/v1"
    obey(chat, "model", "anthropic:claude")
    assert "(ChatAnthropic needs ANTHROPIC_API_KEY in the environment)" in shown.getvalue()
    assert chat.agent.llm.model == "qwen3:8b"
    monkeypatch.setenv("ANTHROPIC_API_KEY", "k-1234")
    other = another_model(chat.agent.llm, "anthropic:claude")
    assert (type(other).__name__, other.model) == ("ChatAnthropic", "claude")


def test_view_writes_a_page_and_says_where(begin, tmp_path):
    chat, shown = begin("the answer")
    chat.answer("first")
    obey(chat, "view", "")
    page = tmp_path / "sessions" / "s.html"
    assert page.as_uri() in shown.getvalue()
    assert "the answer" in page.read_text(encoding="utf-8")
    assert os.name == "nt" or page.stat().st_mode & 0o077 == 0


def test_tools_and_help_name_all(begin):
    chat, shown = begin()
    obey(chat, "tools", "")
    listed = [line.split()[0] for line in shown.getvalue().splitlines()]
    assert listed == [tool.name for tool in chat.agent.tools]
    obey(chat, "help", "")
    for name in [*COMMANDS, "exit"]:
        assert f"\n/{name} " in shown.getvalue()


def test_a_command_that_is_none_has_near_names(begin):
    chat, shown = begin()
    obey(chat, "cmpact", "")
    obey(chat, "xyzzy", "")
    assert shown.getvalue() == (
        "(There is no /cmpact; did you mean /compact?)\n"
        "(There is no /xyzzy; /help lists what there is.)\n"
    )
    assert is_command("modle", alone=False)
    assert is_command("xyzzy", alone=True)
    assert not is_command("tmp", alone=False)
    assert not is_command("etc/hosts", alone=True)


def test_usage_is_that_of_the_conversation(begin):
    chat, shown = begin(call("read", path="none.txt"), AssistantMessage("ok", usage=Usage(5, 6)))
    chat.answer("first")
    obey(chat, "usage", "")
    assert shown.getvalue().endswith("5 tokens in, 6 out\n")
