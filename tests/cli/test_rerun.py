"""A session done again: its runs are a test of the tools."""

import asyncio
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentloop import (
    Agent,
    AssistantMessage,
    BadRequest,
    CompactionConfig,
    ModelError,
    Overloaded,
    ScriptedModel,
    Stop,
    UserMessage,
    tool,
)
from agentloop.cli.rerun import own_runs, rerun
from agentloop.mixins.compaction import SUMMARY_PROMPT
from agentloop.mixins.memory import Memory
from agentloop.models.replay import RecordingModel, ReplayMismatch, ReplayModel
from agentloop.models.scripted import call
from agentloop.store import read_log
from agentloop.toolkits.shell import Shell
from tests.doubles.worked import Kept, add, fail, session, wrong

SCRIPT = (call("add", a=1, b=2), [call("add", a=3, b=4), call("add", a=5, b=6)], "18.")


@tool
async def slow(seconds: float) -> str:
    """Wait."""
    await asyncio.sleep(seconds)
    return f"waited {seconds}"


@tool
def page(n: int) -> str:
    """Look."""
    return f"{n} " + "word " * 300


@tool
def crash() -> str:
    """Crash."""
    raise RuntimeError("no")


@contextmanager
def kept(folder, *script, kind=Kept, **settings):
    """An agent whose session is s.jsonl in that folder."""
    agent = kind(llm=ScriptedModel(*script), session="s", session_dir=folder, **settings)
    yield agent
    agent.close()


async def done_again(folder, *tools, kind=Agent, **settings):
    """The model that the session was done again with."""
    llm = ReplayModel(folder / "s.jsonl")
    await rerun(kind(llm=ScriptedModel(), tools=tools, **settings), llm)
    return llm


async def test_rerun_runs_the_tools_again(tmp_path):
    await session(tmp_path, *SCRIPT, "bye", prompts=["go", "and?"])
    await done_again(tmp_path, add)
    with pytest.raises(ReplayMismatch, match="-3\n[+]4"):
        await done_again(tmp_path, wrong())


async def test_an_error_that_was_none_before_is_a_difference(tmp_path):
    @tool(name="fail")
    def works() -> str:
        """Fail."""
        return "no luck"

    await session(tmp_path, call("fail"), "well", tools=[fail])
    await done_again(tmp_path, fail)
    with pytest.raises(ReplayMismatch, match="-is_error:\n-True"):
        await done_again(tmp_path, works)


async def test_results_are_compared_in_the_order_of_their_calls(tmp_path):
    calls = [call("slow", seconds=0.05), call("slow", seconds=0.0)]
    path = await session(tmp_path, calls, "done", tools=[slow])
    results = [r.text for r in read_log(path) if getattr(r, "tool_name", "")]
    assert results == ["waited 0.0", "waited 0.05"]  # as they came
    await done_again(tmp_path, slow)


async def test_a_run_into_which_somebody_spoke_is_left_out(tmp_path):
    @tool
    def look() -> str:
        """Look."""
        if len(agent.log) < 8:
            agent.send("also this")
        return "seen"

    with kept(tmp_path, call("look"), "ok", call("look"), "ok", tools=[look]) as agent:
        await agent.run("go")
        await agent.run("again")
    llm = await done_again(tmp_path, look)
    assert len(own_runs(llm.log)) == 1


async def test_calls_that_were_cut_off_are_not_run(tmp_path):
    ran = []

    @tool
    async def wait() -> str:
        """Wait."""
        ran.append(1)
        agent.interrupt("enough")
        return await asyncio.Event().wait()

    script = (call("add", a=1, b=2), call("wait"), "after it", call("add", a=0, b=0), "0")
    with kept(tmp_path, *script, tools=[add, wait]) as agent:
        assert (await agent.run("go")).stop_reason == "interrupted"
        await agent.run("what now?")
        assert (await agent.run("go on")).text == "0"
    llm = await done_again(tmp_path, add, wait)
    assert ran == [1]
    assert "enough" in llm.entries[2].request


async def test_a_killed_run_and_what_was_resumed_of_it(tmp_path):
    path = await session(tmp_path, *SCRIPT)
    lines = path.read_bytes().splitlines(keepends=True)
    cut = next(i for i, line in enumerate(lines) if b'"tool_start"' in line) + 1
    path.write_bytes(b"".join(lines[:cut]))  # the call had started
    with kept(tmp_path, "unknown, then", tools=[add]) as agent:
        await agent.run()
    llm = await done_again(tmp_path, add)
    assert "Interrupted: this call had started" in llm.entries[1].request


async def test_a_run_that_waited_for_an_approval_and_then_went_on(tmp_path):
    class Approval(Kept):
        approved: bool = False

        async def call_tool(self, call):
            if not self.approved:
                raise Stop("needs_approval")
            return await super().call_tool(call)

    with kept(tmp_path, call("add", a=1, b=2), "3", kind=Approval, tools=[add]) as agent:
        assert (await agent.run("go")).stop_reason == "needs_approval"
        agent.approved = True
        await agent.run()
    await done_again(tmp_path, add)
    with pytest.raises(ReplayMismatch, match="-3\n[+]4"):
        await done_again(tmp_path, wrong())


@pytest.mark.parametrize(
    ("script", "error"),
    [
        ([call("add", a=1, b=2), Overloaded("no"), "3"], Overloaded),
        ([call("crash"), "after"], RuntimeError),
    ],
)
async def test_a_run_that_failed_and_was_tried_again(tmp_path, script, error):
    settings = {"on_tool_error": "raise"}
    with kept(tmp_path, *script, tools=[add, crash], **settings) as agent:
        with pytest.raises(error):
            await agent.run("go")
        await agent.run()
    await done_again(tmp_path, add, crash, **settings)


async def test_summaries_are_answers_too(tmp_path):
    settings = {"compaction": CompactionConfig(context_window=1000)}
    replies = iter([*(call("page", n=n) for n in range(5)), "done", "and done"])
    script = [lambda m, t: "SUM" if m[-1].text == SUMMARY_PROMPT else next(replies)]
    with kept(tmp_path, *script, tools=[page], **settings) as agent:
        await agent.run("go")
        await agent.run("more")
    llm = await done_again(tmp_path, page, **settings)
    assert sum(entry.side for entry in llm.entries) > 1
    with pytest.raises(ReplayMismatch, match="a summary was asked for"):
        await done_again(tmp_path, page, compaction=None)
    llm = ReplayModel(tmp_path / "s.jsonl")
    whole = Agent(llm=llm, tools=[page], **settings)
    await whole.run("go")
    await whole.run("more")
    llm.assert_done()


async def test_a_summary_by_another_model_is_played_too(tmp_path):
    other = ScriptedModel(lambda m, t: "SUM", model="cheap")
    settings = {"compaction": CompactionConfig(context_window=1000, model=other)}
    script = [*(call("page", n=n) for n in range(5)), "done"]
    await session(tmp_path, *script, tools=[page], **settings)
    asked = len(other.requests)
    assert asked
    await done_again(tmp_path, page, **settings)
    assert len(other.requests) == asked


async def test_what_was_loaded_or_cleared_was_not_asked_for(tmp_path):
    with kept(tmp_path, "one", "two") as agent:
        await agent.run("forgotten")
        agent.load_history([UserMessage("earlier"), AssistantMessage("said")])
        await agent.run("go")
    llm = await done_again(tmp_path)
    assert [entry.reply.text for entry in llm.entries] == ["two"]


async def test_a_run_with_a_call_that_was_denied_is_left_out(tmp_path):
    tools = Shell(tmp_path, approve=lambda tool, arguments: False).tools
    anybodys = Shell(tmp_path).tools
    with kept(tmp_path, call("bash", command="echo x > f"), "denied", "bye", tools=tools) as agent:
        await agent.run("go")
        with pytest.raises(ValueError, match="no run that can be done again"):
            await done_again(tmp_path, *anybodys)
        await agent.run("well")
    await done_again(tmp_path, *anybodys)
    assert not (tmp_path / "f").exists()


async def test_a_run_that_ends_too_early_fails(tmp_path):
    @tool(name="add")
    def ends(a: int, b: int) -> int:
        """Add."""
        raise Stop("enough")

    await session(tmp_path, *SCRIPT, "bye", prompts=["go", "and?"])
    with pytest.raises(ReplayMismatch, match="were not made; the first of them is request 2"):
        await done_again(tmp_path, ends)


async def test_one_request_more_in_a_run_fails(tmp_path):
    class Doubtful(Agent):
        async def finish(self, result):
            self.nudge("Are you sure?")

    await session(tmp_path, "yes", "bye", prompts=["go", "and?"])
    with pytest.raises(ReplayMismatch, match="request 2 is one more than there are"):
        await done_again(tmp_path, kind=Doubtful)


async def test_what_is_pinned_first_is_not_compared(tmp_path):
    class Remembers(Memory, Agent):
        memory_dir = tmp_path

    (tmp_path / "AGENTS.md").write_text("Be brief.")
    await session(tmp_path, *SCRIPT)
    await done_again(tmp_path, add, kind=Remembers)


async def test_the_agent_and_its_log_stay_as_they_were(tmp_path):
    agent = Agent(llm=ScriptedModel("mine"), tools=[add])
    await agent.run("hello")
    log, llm = list(agent.log), agent.llm
    await rerun(agent, ReplayModel(await session(tmp_path, *SCRIPT)))
    assert (agent.log, agent.llm) == (log, llm)


async def test_a_recording_has_no_runs_to_do_again(tmp_path):
    await Agent(llm=RecordingModel(ScriptedModel("hi"), tmp_path / "s.jsonl")).run("go")
    with pytest.raises(ValueError, match="no run that can be done again"):
        await done_again(tmp_path)


# ---- any run

TEXTS = st.sampled_from(["ok", "a\nb", "", " ", "\u2028é\x00", "Denied"])
CALLS = st.lists(
    st.sampled_from([call("add", a=1, b=2), call("fail"), call("none", x=1), call("add", a="x")]),
    min_size=1,
    max_size=3,
)
REPLIES = st.one_of(TEXTS, CALLS, st.just(Overloaded("no")), st.just(BadRequest("no")))


@given(script=st.lists(REPLIES, min_size=1, max_size=8), prompts=st.lists(TEXTS, max_size=3))
async def test_any_session_can_be_done_again(script, prompts):
    with TemporaryDirectory() as folder:
        kept = {"session": "s", "session_dir": folder, "session_fsync": False}
        agent = Kept(llm=ScriptedModel(*script), tools=[add, fail], **kept)
        for prompt in ["go", *(prompt for prompt in prompts if prompt.strip())]:
            with suppress(ModelError, IndexError):  # the script is over
                await agent.run(prompt)
        agent.close()
        llm = ReplayModel(Path(folder, "s.jsonl"))
        if own_runs(llm.log):
            await rerun(Agent(llm=ScriptedModel(), tools=[add, fail]), llm)
