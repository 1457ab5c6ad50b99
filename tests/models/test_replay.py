"""Recordings and replays: the same answers without a model, and an end where a request differs."""

import asyncio
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
    Overloaded,
    ScriptedModel,
    ToolCall,
    ToolError,
    ToolMessage,
    UserMessage,
    tool,
)
from agentloop.models.replay import RecordingModel, ReplayMismatch, ReplayModel
from agentloop.models.scripted import call


@tool
async def add(a: int, b: int) -> int:
    """Add."""
    return a + b


@tool
def fail() -> str:
    """Fail."""
    raise ToolError("no luck")


@tool(name="add", description="Add.")
async def wrong(a: int, b: int) -> int:
    return a + b + 1


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
        with pytest.raises(ReplayMismatch, match=r"(?s)request 2 differs from r\n.*-3\n\+4"):
            Agent(llm=llm, tools=[wrong]).run_sync("go")
        with pytest.raises(ReplayMismatch, match=r"2 of 3 requests in r .* request 2"):
            llm.assert_done()

    @pytest.mark.parametrize(
        ("settings", "what"),
        [
            ({"system_prompt": "other"}, "[+]other"),
            ({"tools": [add, fail]}, "[+]fail: "),
            ({"tool_choice": "required"}, "[+]tool_choice: required"),
        ],
    )
    def test_the_whole_request_counts(self, tmp_path, settings, what):
        path = recorded(tmp_path / "r", "hi", system_prompt="Be good.")
        base = {"tools": [add], "system_prompt": "Be good."}
        with pytest.raises(ReplayMismatch, match=what):
            Agent(llm=ReplayModel(path), **base | settings).run_sync("go")

    def test_what_is_to_be_ignored_may_differ(self, tmp_path):
        path = recorded(tmp_path / "r", call("add", a=1, b=2), "3.")
        llm = ReplayModel(path, ignore=r"^\d$")
        assert Agent(llm=llm, tools=[wrong]).run_sync("go").text == "3."
        llm.assert_done()

    def test_a_request_too_many_fails(self, tmp_path):
        llm = ReplayModel(recorded(tmp_path / "r", "hi"))
        agent = Agent(llm=llm, tools=[add])
        agent.run_sync("go")
        with pytest.raises(ReplayMismatch, match="request 2 is one more than there are in r"):
            agent.run_sync("more")

    def test_a_request_that_failed_is_not_in_it(self, tmp_path):
        script = (call("add", a=1, b=2), Overloaded("later"), asyncio.CancelledError(), "3.")
        agent = Agent(llm=RecordingModel(ScriptedModel(*script), tmp_path / "r"), tools=[add])
        with pytest.raises(Overloaded):
            agent.run_sync("go")
        with pytest.raises(asyncio.CancelledError):
            agent.run_sync()
        agent.run_sync()
        llm = ReplayModel(tmp_path / "r")
        assert Agent(llm=llm, tools=[add]).run_sync("go").text == "3."
        llm.assert_done()


@pytest.mark.parametrize("content", [b"hello\n", b"\x89PNG\n", b""])
def test_a_file_that_is_no_recording_is_a_clear_error(tmp_path, content):
    (tmp_path / "f").write_bytes(content)
    with pytest.raises(ValueError, match="is no recording"):
        ReplayModel(tmp_path / "f")


# ---- any run

TEXTS = st.sampled_from(["ok", "a\nb", "", " ", "\u2028é\x00", "Denied"])
CALLS = st.lists(
    st.sampled_from([call("add", a=1, b=2), call("fail"), call("none", x=1), call("add", a="x")]),
    min_size=1,
    max_size=3,
)
REPLIES = st.one_of(TEXTS, CALLS)


async def work_through(agent, prompts):
    """What comes of each prompt, and what the agent has seen in the end."""
    came = []
    for prompt in prompts:
        try:
            came.append((await agent.run(prompt)).stop_reason)
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
