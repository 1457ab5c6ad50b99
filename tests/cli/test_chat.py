"""The chat without a terminal: what a model of one's own makes easier to see."""

import asyncio
import io
import re
import signal

import pytest

from agentloop import AssistantMessage, ScriptedModel, Usage
from agentloop.cli.chat import Chat
from agentloop.cli.terminal import Terminal


class Stubborn:
    """A model that is interrupted while it answers, and again while it stops."""

    model = "stubborn"

    async def ainvoke(self, messages, tools=(), *, tool_choice="auto", on_delta=None):
        signal.raise_signal(signal.SIGINT)
        try:
            await asyncio.sleep(30)
        except asyncio.CancelledError:
            signal.raise_signal(signal.SIGINT)
        return AssistantMessage("never")


def test_a_second_ctrl_c_leaves_at_once(tmp_path):
    before = signal.getsignal(signal.SIGINT)
    with Chat(Stubborn(), tmp_path, Terminal(io.StringIO())) as chat:
        with pytest.raises(KeyboardInterrupt):
            chat.answer("go")
        assert [type(record).__name__ for record in chat.agent.log][-1] == "RunEnd"
    assert signal.getsignal(signal.SIGINT) is before


def test_a_reply_that_does_not_stream_is_shown_all_the_same(tmp_path):
    class Whole(ScriptedModel):
        async def ainvoke(self, messages, tools=(), *, tool_choice="auto", on_delta=None):
            return await super().ainvoke(messages, tools, tool_choice=tool_choice)

    stream = io.StringIO()
    with Chat(Whole("all at once"), tmp_path, Terminal(stream)) as chat:
        result = chat.answer("go")
    assert result
    assert result.text == "all at once"
    assert stream.getvalue() == "all at once\n"


def test_an_end_before_its_time_is_named(tmp_path):
    stream = io.StringIO()
    llm = ScriptedModel(AssistantMessage("half", stop_reason="length"))
    with Chat(llm, tmp_path, Terminal(stream)) as chat:
        chat.answer("go")
    assert stream.getvalue() == "half\n(This ended early: limit:length.)\n"


def test_a_session_whose_file_is_gone_is_an_error_and_no_crash(tmp_path):
    stream = io.StringIO()
    folder = tmp_path / "sessions"
    llm = ScriptedModel("one", "two")
    with Chat(llm, tmp_path, Terminal(stream), session="s", session_dir=folder) as chat:
        assert chat.answer("go")
        (folder / "s.jsonl").unlink()
        assert chat.answer("more") is None
    assert "The session cannot be kept: " in stream.getvalue()


@pytest.mark.parametrize(("price", "cost"), [(1.5, ", $3.0000"), (None, "")])
def test_its_last_line_says_what_the_conversation_took(tmp_path, price, cost):
    stream = io.StringIO()
    used = Usage(2000, 30, cached_input_tokens=500)
    llm = ScriptedModel(*[AssistantMessage("ok", usage=used)] * 2)
    with Chat(llm, tmp_path, Terminal(stream)) as chat:
        chat.agent.prices = lambda model, usage: price
        chat.sum_up()
        assert stream.getvalue() == "", "it has taken nothing"
        chat.answer("go")
        chat.answer("on")
        chat.sum_up()
    assert re.fullmatch(
        rf"\(2 requests, 4,000 tokens in \(25% cached\), 60 out{re.escape(cost)}, \d+\.\d s\)",
        stream.getvalue().splitlines()[-1],
    )
