"""Recordings and replays: the same answers without a model, and errors for other requests."""

import asyncio
import stat
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

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
from agentloop.models.scripted import call
from tests import ROOT
from tests.properties import given, st
from tests.recipes import load

recipe = load("record_and_replay")
RecordingModel, ReplayModel = recipe.RecordingModel, recipe.ReplayModel
ReplayMismatch = recipe.ReplayMismatch


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


@pytest.fixture
def path(tmp_path):
    return tmp_path / "r"


def agent_on(llm, tools=(add,), **settings):
    return Agent(llm=llm, tools=tools, **settings)


def record(path, *script, **settings):
    """Record a run of an agent with a script; return the agent."""
    agent = agent_on(RecordingModel(ScriptedModel(*script), path), **settings)
    agent.run_sync("go")
    return agent


def replay(path, text, **settings):
    """Replay a complete recording and check the answer; return the agent."""
    llm = ReplayModel(path, **settings)
    agent = agent_on(llm)
    assert agent.run_sync("go").text == text
    llm.assert_done()
    return agent


def result_ids(agent):
    return [m.tool_call_id for m in agent.messages if isinstance(m, ToolMessage)]


SCRIPT = (call("add", a=1, b=2), [call("add", a=3, b=4), call("add", a=5, b=6)], "18.")


class TestARecording:
    def test_plays_the_same_answers(self, path):
        record(path, *SCRIPT)
        agent = replay(path, "18.")
        assert agent.messages[0] == UserMessage("go")
        assert agent.llm.model == "scripted"

    @pytest.mark.parametrize("sent", ["", "a"])
    def test_plays_the_ids_generated_for_calls_without_an_id(self, path, sent):
        asks = AssistantMessage(tool_calls=(ToolCall(sent, "add", '{"a":1,"b":1}'),) * 2)
        ids = result_ids(record(path, asks, asks, "18."))
        assert len(set(ids)) == 4
        for _ in range(2):
            assert result_ids(replay(path, "18.")) == ids

    def test_of_version_0_1_0_with_the_same_id_in_each_reply_is_played(self):
        replay(ROOT / "tests" / "data" / "recording_v1.jsonl", "18.")

    def test_is_readable_only_by_its_owner_and_replaces_no_file(self, path):
        record(path, "hi")
        if sys.platform != "win32":
            assert stat.S_IMODE(path.stat().st_mode) == 0o600
        with pytest.raises(FileExistsError):
            RecordingModel(ScriptedModel(), path)

    def test_with_a_changed_result_fails_at_the_first_request_that_contains_it(self, path):
        record(path, *SCRIPT)
        llm = ReplayModel(path)
        with pytest.raises(ReplayMismatch, match=r"(?s)request 2 differs from r\n.*-3\n\+4"):
            agent_on(llm, [wrong]).run_sync("go")
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
    def test_is_compared_with_the_complete_request(self, path, settings, what):
        record(path, "hi", system_prompt="Be good.")
        with pytest.raises(ReplayMismatch, match=what):
            agent_on(ReplayModel(path), **{"system_prompt": "Be good."} | settings).run_sync("go")

    def test_is_compared_without_ignored_texts(self, path):
        record(path, call("add", a=1, b=2), "3.")
        llm = ReplayModel(path, ignore=r"^\d$")
        assert agent_on(llm, [wrong]).run_sync("go").text == "3."
        llm.assert_done()

    def test_fails_at_an_additional_request(self, path):
        record(path, "hi")
        agent = replay(path, "hi")
        with pytest.raises(ReplayMismatch, match="request 2 .*recorded"):
            agent.run_sync("more")

    def test_does_not_contain_failed_requests(self, path):
        script = (call("add", a=1, b=2), Overloaded("later"), asyncio.CancelledError(), "3.")
        agent = agent_on(RecordingModel(ScriptedModel(*script), path))
        for prompt, error in (("go", Overloaded), (None, asyncio.CancelledError)):
            with pytest.raises(error):
                agent.run_sync(prompt)
        agent.run_sync()
        replay(path, "3.")


@pytest.mark.parametrize("content", [b"hello\n", b"\x89PNG\n", b""])
def test_a_file_that_is_not_a_recording_is_an_error(path, content):
    path.write_bytes(content)
    with pytest.raises(ValueError, match="not a recording"):
        ReplayModel(path)


# ---- any run

TEXTS = st.sampled_from(["ok", "a\nb", "", " ", "\u2028é\x00", "Denied"])
CALLS = [call("add", a=1, b=2), call("fail"), call("none", x=1), call("add", a="x")]
REPLIES = st.one_of(TEXTS, st.lists(st.sampled_from(CALLS), min_size=1, max_size=3))


async def work_through(llm, prompts):
    """Run each prompt; return the stop reasons and the final messages."""
    agent, came = agent_on(llm, [add, fail]), []
    for prompt in prompts:
        try:
            came.append((await agent.run(prompt)).stop_reason)
        except (IndexError, ReplayMismatch):
            break  # the script has ended
    return came, agent.messages


@given(script=st.lists(REPLIES, min_size=1, max_size=8), prompts=st.lists(TEXTS, max_size=3))
async def test_any_run_can_be_recorded_and_played(script, prompts):
    prompts = ["go", *(prompt for prompt in prompts if prompt.strip())]
    with TemporaryDirectory() as folder:
        path = Path(folder, "r")
        outcome = await work_through(RecordingModel(ScriptedModel(*script), path), prompts)
        assert await work_through(ReplayModel(path), prompts) == outcome
