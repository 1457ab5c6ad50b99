"""A session done again: its runs are a test of the tools."""

import asyncio
from contextlib import suppress
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
    ToolCall,
    UserMessage,
    tool,
)
from agentloop.cli.rerun import own_runs, rerun
from agentloop.mixins.compaction import SUMMARY_PROMPT
from agentloop.models.replay import RecordingModel, ReplayMismatch, ReplayModel
from agentloop.models.scripted import call
from agentloop.store import read_log
from tests.doubles.worked import Kept, add, fail, session, wrong


@tool
async def slow(seconds: float) -> str:
    """Wait."""
    await asyncio.sleep(seconds)
    return f"waited {seconds}"


SCRIPT = (call("add", a=1, b=2), [call("add", a=3, b=4), call("add", a=5, b=6)], "18.")


SCRIPT = (call("add", a=1, b=2), [call("add", a=3, b=4), call("add", a=5, b=6)], "18.")


async def test_rerun_runs_the_tools_again(tmp_path):
    path = await session(tmp_path, *SCRIPT, "bye", prompts=["go", "and?"])
    await rerun(Agent(llm=ScriptedModel(), tools=[add]), ReplayModel(path))
    with pytest.raises(ReplayMismatch, match="-3\n[+]4"):
        await rerun(Agent(llm=ScriptedModel(), tools=[wrong()]), ReplayModel(path))


async def test_an_error_that_was_none_before_is_a_difference(tmp_path):
    path = await session(tmp_path, call("fail"), "well", tools=[fail])

    @tool(name="fail")
    def works() -> str:
        """Fail."""
        return "no luck"

    await rerun(Agent(llm=ScriptedModel(), tools=[fail]), ReplayModel(path))
    with pytest.raises(ReplayMismatch, match="-is_error:\n-True"):
        await rerun(Agent(llm=ScriptedModel(), tools=[works]), ReplayModel(path))


async def test_results_are_compared_in_the_order_of_their_calls(tmp_path):
    calls = [call("slow", seconds=0.05), call("slow", seconds=0.0)]
    path = await session(tmp_path, calls, "done", tools=[slow])
    results = [r.text for r in read_log(path) if getattr(r, "tool_name", "")]
    assert results == ["waited 0.0", "waited 0.05"]  # as they came
    await rerun(Agent(llm=ScriptedModel(), tools=[slow]), ReplayModel(path))


async def test_nudges_come_again_by_themselves(tmp_path):
    path = await session(tmp_path, "", "now")
    await rerun(Agent(llm=ScriptedModel(), tools=[add]), ReplayModel(path))


async def test_a_run_into_which_somebody_spoke_is_left_out(tmp_path):
    agent = None

    @tool
    def look() -> str:
        """Look."""
        if agent:
            agent.send("also this")
        return "seen"

    llm = ScriptedModel(call("look"), "ok", call("look"), "ok")
    agent = Kept(llm=llm, tools=[look], session="s", session_dir=tmp_path)
    await agent.run("go")
    agent, first = None, agent
    await first.run("again")
    first.close()
    llm = ReplayModel(tmp_path / "s.jsonl")
    assert len(own_runs(llm.log)) == 1
    await rerun(Agent(llm=ScriptedModel(), tools=[look]), llm)


async def test_calls_that_were_cut_off_are_not_run(tmp_path):
    ran = []

    @tool
    async def wait() -> str:
        """Wait."""
        ran.append(1)
        agent.interrupt("enough")
        return await asyncio.Event().wait()

    script = (call("add", a=1, b=2), call("wait"), "after it", call("add", a=0, b=0), "0")
    settings = {"tools": [add, wait], "session": "s", "session_dir": tmp_path}
    agent = Kept(llm=ScriptedModel(*script), **settings)
    assert (await agent.run("go")).stop_reason == "interrupted"
    assert (await agent.run("what now?")).text == "after it"
    assert (await agent.run("go on")).text == "0"
    agent.close()
    llm = ReplayModel(tmp_path / "s.jsonl")
    await rerun(Agent(llm=ScriptedModel(), tools=[add, wait]), llm)
    assert ran == [1]
    assert "enough" in llm.entries[2].request


async def test_a_killed_run_and_what_was_resumed_of_it(tmp_path):
    path = await session(tmp_path, *SCRIPT)
    lines = path.read_bytes().splitlines(keepends=True)
    cut = next(i for i, line in enumerate(lines) if b'"tool_start"' in line) + 1
    path.write_bytes(b"".join(lines[:cut]))  # the call had started
    agent = Kept(llm=ScriptedModel("unknown, then"), tools=[add], session="s", session_dir=tmp_path)
    await agent.run()
    agent.close()
    llm = ReplayModel(path)
    await rerun(Agent(llm=ScriptedModel(), tools=[add]), llm)
    assert "Interrupted: this call had started" in llm.entries[1].request


async def test_a_run_that_waited_for_an_approval_and_then_went_on(tmp_path):
    class Approval(Kept):
        approved: bool = False

        async def call_tool(self, call):
            if not self.approved:
                raise Stop("needs_approval")
            return await super().call_tool(call)

    llm = ScriptedModel(call("add", a=1, b=2), "3")
    agent = Approval(llm=llm, tools=[add], session="s", session_dir=tmp_path)
    assert (await agent.run("go")).stop_reason == "needs_approval"
    agent.approved = True
    await agent.run()
    agent.close()
    path = tmp_path / "s.jsonl"
    await rerun(Agent(llm=ScriptedModel(), tools=[add]), ReplayModel(path))
    with pytest.raises(ReplayMismatch, match="-3\n[+]4"):
        await rerun(Agent(llm=ScriptedModel(), tools=[wrong()]), ReplayModel(path))


async def test_a_run_that_failed_and_was_tried_again(tmp_path):
    llm = ScriptedModel(call("add", a=1, b=2), Overloaded("no"), "3")
    agent = Kept(llm=llm, tools=[add], session="s", session_dir=tmp_path)
    with pytest.raises(Overloaded):
        await agent.run("go")
    await agent.run()
    agent.close()
    await rerun(Agent(llm=ScriptedModel(), tools=[add]), ReplayModel(tmp_path / "s.jsonl"))


async def test_summaries_are_answers_too(tmp_path):
    settings = {"compaction": CompactionConfig(context_window=1000), "tools": [slow]}

    @tool
    def page(n: int) -> str:
        """Look."""
        return f"{n} " + "word " * 300

    replies = iter([*(call("page", n=n) for n in range(5)), "done", "and done"])
    llm = ScriptedModel(lambda m, t: "SUM" if m[-1].text == SUMMARY_PROMPT else next(replies))
    agent = Kept(llm=llm, session="s", session_dir=tmp_path, **settings | {"tools": [page]})
    await agent.run("go")
    await agent.run("more")
    agent.close()
    llm = ReplayModel(tmp_path / "s.jsonl")
    assert sum(entry.side for entry in llm.entries) > 1
    await rerun(Agent(llm=ScriptedModel(), **settings | {"tools": [page]}), llm)
    other = settings | {"tools": [page], "compaction": None}
    with pytest.raises(ReplayMismatch, match="a summary was asked for"):
        await rerun(Agent(llm=ScriptedModel(), **other), ReplayModel(tmp_path / "s.jsonl"))
    llm = ReplayModel(tmp_path / "s.jsonl")
    whole = Agent(llm=llm, **settings | {"tools": [page]})
    await whole.run("go")
    await whole.run("more")
    llm.assert_done()


async def test_what_was_loaded_or_cleared_was_not_asked_for(tmp_path):
    agent = Kept(llm=ScriptedModel("one", "two"), session="s", session_dir=tmp_path)
    await agent.run("forgotten")
    agent.load_history([UserMessage("earlier"), AssistantMessage("said")])
    await agent.run("go")
    agent.close()
    llm = ReplayModel(tmp_path / "s.jsonl")
    assert [entry.reply.text for entry in llm.entries] == ["two"]
    await rerun(Agent(llm=ScriptedModel()), llm)


async def test_a_tool_that_ended_the_run_with_an_error(tmp_path):
    @tool
    def crash() -> str:
        """Crash."""
        raise RuntimeError("no")

    llm = ScriptedModel(call("crash"), "after")
    agent = Kept(llm=llm, tools=[crash], session="s", session_dir=tmp_path, on_tool_error="raise")
    with pytest.raises(RuntimeError):
        await agent.run("go")
    await agent.run()
    agent.close()
    again = Agent(llm=ScriptedModel(), tools=[crash], on_tool_error="raise")
    await rerun(again, ReplayModel(tmp_path / "s.jsonl"))


async def test_a_run_with_a_call_that_was_denied_is_left_out(tmp_path):
    from agentloop.toolkits.shell import Shell

    script = (call("bash", command="echo x > f"), "denied, then", "bye")
    agent = Kept(
        llm=ScriptedModel(*script),
        tools=Shell(tmp_path, approve=lambda tool, arguments: False).tools,
        session="s",
        session_dir=tmp_path,
    )
    await agent.run("go")
    anybody = Agent(llm=ScriptedModel(), tools=Shell(tmp_path).tools)
    with pytest.raises(ValueError, match="no run that can be done again"):
        await rerun(anybody, ReplayModel(tmp_path / "s.jsonl"))
    await agent.run("well")
    agent.close()
    await rerun(anybody, ReplayModel(tmp_path / "s.jsonl"))
    assert not (tmp_path / "f").exists()


async def test_a_run_that_ends_too_early_fails(tmp_path):
    @tool(name="add")
    def ends(a: int, b: int) -> int:
        """Add."""
        raise Stop("enough")

    path = await session(tmp_path, *SCRIPT, "bye", prompts=["go", "and?"])
    with pytest.raises(ReplayMismatch, match="were not made; the first of them is request 2"):
        await rerun(Agent(llm=ScriptedModel(), tools=[ends]), ReplayModel(path))


async def test_one_request_more_in_a_run_fails(tmp_path):
    class Doubtful(Agent):
        async def finish(self, result):
            self.nudge("Are you sure?")

    path = await session(tmp_path, "yes", "bye", prompts=["go", "and?"])
    with pytest.raises(ReplayMismatch, match="request 2 is one more than there are"):
        await rerun(Doubtful(llm=ScriptedModel()), ReplayModel(path))


async def test_a_summary_by_another_model_is_played_too(tmp_path):
    other = ScriptedModel(lambda m, t: "SUM", model="cheap")

    @tool
    def page(n: int) -> str:
        """Look."""
        return f"{n} " + "word " * 300

    config = CompactionConfig(context_window=1000, model=other)
    llm = ScriptedModel(*(call("page", n=n) for n in range(5)), "done")
    agent = Kept(llm=llm, tools=[page], session="s", session_dir=tmp_path, compaction=config)
    await agent.run("go")
    agent.close()
    asked = len(other.requests)
    assert asked
    llm = ReplayModel(tmp_path / "s.jsonl")
    await rerun(Agent(llm=ScriptedModel(), tools=[page], compaction=config), llm)
    assert len(other.requests) == asked


async def test_what_is_pinned_first_is_not_compared(tmp_path):
    from agentloop.mixins.memory import Memory

    class Remembers(Memory, Agent):
        memory_dir = tmp_path

    (tmp_path / "AGENTS.md").write_text("Be brief.")
    path = await session(tmp_path, *SCRIPT)
    await rerun(Remembers(llm=ScriptedModel(), tools=[add]), ReplayModel(path))


async def test_a_run_with_a_summary_that_failed_is_left_out(tmp_path):
    @tool
    def page(n: int) -> str:
        """Look."""
        return f"{n} " + "word " * 300

    def answer(messages, tools):
        if messages[-1].text == SUMMARY_PROMPT:
            raise Overloaded("no")
        return next(replies)

    replies = iter(
        [
            *(
                AssistantMessage(tool_calls=(ToolCall(f"c{n}", "page", f'{{"n": {n}}}'),))
                for n in range(6)
            ),
            "done",
        ]
    )
    config = CompactionConfig(context_window=1000)
    settings = {"tools": [page], "compaction": config}
    agent = Kept(llm=ScriptedModel(answer), session="s", session_dir=tmp_path, **settings)
    await agent.run("go")
    agent.close()
    llm = ReplayModel(tmp_path / "s.jsonl")
    assert [entry.side for entry in llm.entries] == [False] * 7
    assert not own_runs(llm.log)


async def test_the_agent_and_its_log_stay_as_they_were(tmp_path):
    agent = Kept(llm=ScriptedModel("mine"), tools=[add], session="own", session_dir=tmp_path)
    await agent.run("hello")
    log, llm = list(agent.log), agent.llm
    await rerun(agent, ReplayModel(await session(tmp_path, *SCRIPT)))
    assert (agent.log, agent.llm) == (log, llm)
    agent.close()


async def test_a_recording_has_no_runs_to_do_again(tmp_path):
    path = tmp_path / "r"
    await Agent(llm=RecordingModel(ScriptedModel("hi"), path)).run("go")
    with pytest.raises(ValueError, match="no run that can be done again"):
        await rerun(Agent(llm=ScriptedModel()), ReplayModel(path))


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
