"""Recordings and replays: the same answers without a model, and an end where a request differs."""

import asyncio
import re
import stat
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentloop import (
    Agent,
    AssistantMessage,
    BadRequest,
    ModelError,
    Overloaded,
    ScriptedModel,
    ToolCall,
    ToolMessage,
    UserMessage,
    tool,
)
from agentloop.models.recording import RecordingModel
from agentloop.models.replay import ReplayMismatch, ReplayModel
from agentloop.models.scripted import call
from tests.doubles.worked import add, fail, session, wrong


def recorded(path, *script, prompts=("go",), tools=(add,), **settings):
    """A recording of an agent that works off a script."""
    agent = Agent(llm=RecordingModel(ScriptedModel(*script), path), tools=tools, **settings)
    for prompt in prompts:
        agent.run_sync(prompt)
    return path


SCRIPT = (call("add", a=1, b=2), [call("add", a=3, b=4), call("add", a=5, b=6)], "18.")


# ---- recordings


class TestARecording:
    def test_plays_the_same_answers(self, tmp_path):
        path = recorded(tmp_path / "r", *SCRIPT)
        llm = ReplayModel(path)
        agent = Agent(llm=llm, tools=[add])
        assert agent.run_sync("go").text == "18."
        assert agent.messages[0] == UserMessage("go")
        llm.assert_done()
        assert llm.model == "scripted"

    @pytest.mark.parametrize("sent", ["", "a"])
    def test_plays_the_ids_that_were_made_for_calls_without_one_of_their_own(self, tmp_path, sent):
        asks = AssistantMessage(tool_calls=(ToolCall(sent, "add", '{"a":1,"b":1}'),) * 2)
        path = tmp_path / "r"
        agent = Agent(llm=RecordingModel(ScriptedModel(asks, asks, "18."), path), tools=[add])
        agent.run_sync("go")
        ids = [m.tool_call_id for m in agent.messages if isinstance(m, ToolMessage)]
        assert len(set(ids)) == 4
        for _ in range(2):
            llm = ReplayModel(path)
            again = Agent(llm=llm, tools=[add])
            assert again.run_sync("go").text == "18."
            assert [m.tool_call_id for m in again.messages if isinstance(m, ToolMessage)] == ids
            llm.assert_done()

    def test_of_0_1_0_in_which_each_reply_has_the_same_id_is_played(self):
        llm = ReplayModel(Path(__file__).parent.parent / "data" / "recording_v1.jsonl")
        assert Agent(llm=llm, tools=[add]).run_sync("go").text == "18."
        llm.assert_done()

    def test_is_for_its_owner_and_replaces_no_file(self, tmp_path):
        path = recorded(tmp_path / "r", "hi")
        if sys.platform != "win32":
            assert stat.S_IMODE(path.stat().st_mode) == 0o600
        with pytest.raises(FileExistsError):
            RecordingModel(ScriptedModel(), path)

    def test_a_changed_result_fails_at_the_first_request_that_has_it(self, tmp_path):
        path = recorded(tmp_path / "r", *SCRIPT)
        llm = ReplayModel(path)
        with pytest.raises(ReplayMismatch) as caught:
            Agent(llm=llm, tools=[wrong()]).run_sync("go")
        assert (caught.value.number, caught.value.index) == (2, 2)
        assert "-3\n+4" in caught.value.diff
        assert str(caught.value).startswith("request 2 differs from r in message 2\n--- recorded")
        with pytest.raises(ReplayMismatch):
            llm.assert_done()

    @pytest.mark.parametrize(
        ("settings", "what"),
        [
            ({"system_prompt": "other"}, "in message 0"),
            ({"tools": [add, fail]}, "(?s)in its tools or tool_choice.*[+]fail: "),
            (
                {"tool_choice": "required"},
                "(?s)tool_choice.*[+]tool_choice: .required",
            ),
        ],
    )
    def test_the_whole_request_counts(self, tmp_path, settings, what):
        path = recorded(tmp_path / "r", "hi", system_prompt="Be good.")
        base = {"tools": [add], "system_prompt": "Be good."}
        with pytest.raises(ReplayMismatch, match=what):
            Agent(llm=ReplayModel(path), **base | settings).run_sync("go")

    def test_not_strict_it_goes_on_and_keeps_count(self, tmp_path):
        path = recorded(tmp_path / "r", *SCRIPT)
        llm = ReplayModel(path, strict=False)
        assert Agent(llm=llm, tools=[wrong()]).run_sync("go").text == "18."
        assert [mismatch.number for mismatch in llm.mismatches] == [2, 3]

    def test_what_is_to_be_ignored_may_differ(self, tmp_path):
        path = recorded(tmp_path / "r", call("add", a=1, b=2), "3.")
        llm = ReplayModel(path, ignore=r"^\d$")
        assert Agent(llm=llm, tools=[wrong()]).run_sync("go").text == "3."
        llm.assert_done()

    def test_a_request_too_many_fails(self, tmp_path):
        llm = ReplayModel(recorded(tmp_path / "r", "hi"))
        agent = Agent(llm=llm, tools=[add])
        agent.run_sync("go")
        with pytest.raises(ReplayMismatch, match="request 2 is one more than there are in r"):
            agent.run_sync("more")

    def test_a_request_too_few_fails_at_the_end(self, tmp_path):
        llm = ReplayModel(recorded(tmp_path / "r", "hi", "there", prompts=["one", "two"]))
        Agent(llm=llm, tools=[add]).run_sync("one")
        with pytest.raises(ReplayMismatch, match=r"1 of 2 requests in r .* request 2"):
            llm.assert_done()

    def test_one_that_was_caught_stays(self, tmp_path):
        llm = ReplayModel(recorded(tmp_path / "r", "hi"))
        for prompt in ("other", "go"):
            with pytest.raises(ReplayMismatch, match="request 1"):
                Agent(llm=llm, tools=[add]).run_sync(prompt)

    def test_errors_of_the_model_are_played_too(self, tmp_path):
        script = (Overloaded("529: later"), "here")
        llm = RecordingModel(ScriptedModel(*script), tmp_path / "r")
        replay = None
        for _ in range(2):
            agent = Agent(llm=replay or llm)
            with pytest.raises(Overloaded, match="529: later"):
                agent.run_sync("go")
            assert agent.run_sync().text == "here"
            replay = replay or ReplayModel(tmp_path / "r")
        replay.assert_done()

    def test_an_error_of_an_unknown_class_is_a_model_error(self, tmp_path):
        path = recorded(tmp_path / "r", "hi")
        path.write_text(re.sub('"reply":.*', '"error":"ToolError","text":"m"}', path.read_text()))
        with pytest.raises(ModelError, match="^m$"):
            Agent(llm=ReplayModel(path), tools=[add]).run_sync("go")

    async def test_streams_if_somebody_listens(self, tmp_path):
        script = AssistantMessage("some words", thinking="hm hm")
        llm = RecordingModel(ScriptedModel(script), tmp_path / "r")
        for model in (llm, None):
            model = model or ReplayModel(tmp_path / "r")
            events = [event async for event in Agent(llm=model).query_stream("go")]
            pieces = [event.content for event in events if "Delta" in type(event).__name__]
            assert "".join(pieces) == "hm hmsome words"

    @pytest.mark.parametrize("line", ["{", "[]", '{"reply":{"type":"assistant"}}'])
    def test_a_line_that_cannot_be_read_is_named(self, tmp_path, line):
        path = recorded(tmp_path / "r", "one")
        path.write_text(path.read_text() + line)
        with pytest.raises(ValueError, match="line 3 of the recording"):
            ReplayModel(path)

    def test_one_of_a_newer_schema_is_refused(self, tmp_path):
        path = recorded(tmp_path / "r", "one")
        path.write_text(path.read_text().replace('"schema":1', '"schema":2'))
        with pytest.raises(ValueError, match="another schema"):
            ReplayModel(path)

    def test_a_cancelled_request_is_not_in_it(self, tmp_path):
        llm = RecordingModel(ScriptedModel(asyncio.CancelledError(), "two"), tmp_path / "r")
        agent = Agent(llm=llm)
        with pytest.raises(asyncio.CancelledError):
            agent.run_sync("one")
        agent.run_sync()
        assert len(ReplayModel(tmp_path / "r").entries) == 1


# ---- sessions


class TestASession:
    async def test_replays_as_a_model(self, tmp_path):
        llm = ReplayModel(await session(tmp_path, *SCRIPT, "bye", prompts=["go", "and?"]))
        agent = Agent(llm=llm, tools=[add], system_prompt="It is not in a session.")
        assert (await agent.run("go")).text == "18."
        assert (await agent.run("and?")).text == "bye"
        llm.assert_done()

    async def test_another_prompt_or_result_fails(self, tmp_path):
        path = await session(tmp_path, *SCRIPT)
        with pytest.raises(ReplayMismatch, match="request 1 differs from s.jsonl in message 0"):
            await Agent(llm=ReplayModel(path), tools=[add]).run("went")
        with pytest.raises(ReplayMismatch) as caught:
            await Agent(llm=ReplayModel(path), tools=[wrong()]).run("go")
        assert (caught.value.number, caught.value.index) == (2, 2)

    async def test_equal_requests_have_their_own_numbers(self, tmp_path):
        llm = RecordingModel(ScriptedModel("a", "b"), tmp_path / "r")
        for _ in range(2):
            await Agent(llm=llm).run("go")
        llm = ReplayModel(tmp_path / "r")
        assert [await Agent(llm=llm).query("go") for _ in range(2)] == ["a", "b"]


@pytest.mark.parametrize("content", [b"", b"hello\n", b"\x89PNG\n"])
def test_a_file_that_is_neither_is_a_clear_error(tmp_path, content):
    (tmp_path / "f").write_bytes(content)
    with pytest.raises(ValueError, match="is no session"):
        ReplayModel(tmp_path / "f")


def test_long_texts_are_compared_in_a_moment(tmp_path):
    @tool(name="page")
    def page(n: int) -> str:
        """Look."""
        return "\n".join(str((i * 7919) % 1000 + shift[0]) for i in range(19_000))

    shift = [0]
    path = recorded(tmp_path / "r", call("page", n=1), "ok", tools=[page], max_result_chars=200_000)
    shift[0] = 1
    with pytest.raises(ReplayMismatch) as caught:
        Agent(llm=ReplayModel(path), tools=[page], max_result_chars=200_000).run_sync("go")
    assert caught.value.diff.count("\n") < 70


# ---- any run

TEXTS = st.sampled_from(["ok", "a\nb", "", " ", "\u2028é\x00", "Denied"])
CALLS = st.lists(
    st.sampled_from([call("add", a=1, b=2), call("fail"), call("none", x=1), call("add", a="x")]),
    min_size=1,
    max_size=3,
)
REPLIES = st.one_of(TEXTS, CALLS, st.just(Overloaded("no")), st.just(BadRequest("no")))


async def work_through(agent, prompts):
    """What comes of each prompt, and what the agent has seen in the end."""
    came = []
    for prompt in prompts:
        try:
            came.append((await agent.run(prompt)).stop_reason)
        except ModelError as error:
            came.append(str(error))
        except (IndexError, ReplayMismatch):
            break  # the script is over
    return came, agent.messages


@given(script=st.lists(REPLIES, min_size=1, max_size=8), prompts=st.lists(TEXTS, max_size=3))
async def test_any_run_can_be_recorded_and_played(script, prompts):
    prompts = ["go", *(prompt for prompt in prompts if prompt.strip())]
    with TemporaryDirectory() as folder:
        llm = RecordingModel(ScriptedModel(*script), Path(folder, "r"))
        outcome = await work_through(Agent(llm=llm, tools=[add, fail]), prompts)
        llm = ReplayModel(Path(folder, "r"))
        assert await work_through(Agent(llm=llm, tools=[add, fail]), prompts) == outcome
