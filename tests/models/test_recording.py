"""Recordings and replays: the same answers without a model, a loud end where a request differs."""

import asyncio
import json
import re
import stat
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentloop import (
    Agent,
    AssistantMessage,
    BadRequest,
    ChatOpenAI,
    CompactionConfig,
    Inbox,
    ModelError,
    Overloaded,
    ScriptedModel,
    Session,
    Stop,
    ToolCall,
    ToolError,
    UserMessage,
    tool,
)
from agentloop.cli.loopback import loopback
from agentloop.cli.models import model_at
from agentloop.mixins.compaction import SUMMARY_PROMPT
from agentloop.models.recording import (
    MODEL_ERRORS,
    RecordingModel,
    ReplayMismatch,
    ReplayModel,
    dump_to,
    read_log,
)
from agentloop.models.scripted import call


@tool
async def add(a: int, b: int) -> int:
    """Add."""
    return a + b


@tool
async def slow(seconds: float) -> str:
    """Wait."""
    await asyncio.sleep(seconds)
    return f"waited {seconds}"


@tool
def fail() -> str:
    """Fail."""
    raise ToolError("no luck")


def wrong(name="add"):
    @tool(name=name, description="Add.")
    async def other(a: int, b: int) -> int:
        return a + b + 1

    return other


class Kept(Inbox, Session, Agent):
    pass


def recorded(path, *script, prompts=("go",), tools=(add,), **settings):
    """A recording of an agent that works off a script."""
    agent = Agent(llm=RecordingModel(ScriptedModel(*script), path), tools=tools, **settings)
    for prompt in prompts:
        agent.run_sync(prompt)
    return path


async def session(folder, *script, prompts=("go",), tools=(add,), **settings):
    """A session of an agent that works off a script; its file."""
    agent = Kept(
        llm=ScriptedModel(*script), tools=tools, session="s", session_dir=folder, **settings
    )
    for prompt in prompts:
        await agent.run(prompt)
    agent.close()
    return folder / "s.jsonl"


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

    def test_is_for_its_owner_and_replaces_no_file(self, tmp_path):
        path = recorded(tmp_path / "r", "hi")
        if sys.platform != "win32":
            assert stat.S_IMODE(path.stat().st_mode) == 0o600
        with pytest.raises(FileExistsError):
            RecordingModel(ScriptedModel(), path)

    def test_does_not_repeat_messages(self, tmp_path):
        path = recorded(tmp_path / "r", *SCRIPT)
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        assert [line.get("kept") for line in lines] == [None, 0, 1, 3]
        assert [len(line["messages"]) for line in lines[1:]] == [1, 2, 3]

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
            ({"tools": [add, slow]}, "in its tools"),
            ({"tool_choice": "required"}, "in its tool_choice: 'auto' was recorded"),
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
        script = (Overloaded("529: later", status=529, retry_after=3.0), "here")
        llm = RecordingModel(ScriptedModel(*script), tmp_path / "r")
        replay = None
        for _ in range(2):
            agent = Agent(llm=replay or llm)
            with pytest.raises(Overloaded, match="529: later") as caught:
                agent.run_sync("go")
            assert (caught.value.status, caught.value.retry_after) == (529, 3.0)
            assert agent.run_sync().text == "here"
            replay = replay or ReplayModel(tmp_path / "r")
        replay.assert_done()

    def test_every_kind_of_model_error_is_known(self):
        kinds, found = [ModelError], set()
        while kinds:
            kind = kinds.pop()
            kinds += kind.__subclasses__()
            found |= {kind} if kind.__module__ == "agentloop.errors" else set()
        assert {*MODEL_ERRORS, ModelError} == found

    def test_an_error_of_an_unknown_class_is_a_model_error(self, tmp_path):
        path = recorded(tmp_path / "r", "hi")
        path.write_text(
            re.sub('"reply":.*', '"error":{"class":"ToolError","message":"m"}}', path.read_text())
        )
        with pytest.raises(ModelError, match="^m$"):
            Agent(llm=ReplayModel(path), tools=[add]).run_sync("go")

    async def test_streams_if_somebody_listens(self, tmp_path):
        script = AssistantMessage("some words", thinking="hm hm")
        llm = RecordingModel(ScriptedModel(script), tmp_path / "r")
        for model in (llm, None):
            model = model or ReplayModel(tmp_path / "r")
            events = [event async for event in Agent(llm=model).query_stream("go")]
            pieces = [event.content for event in events if "Delta" in type(event).__name__]
            assert pieces == ["hm ", "hm", "some ", "words"]

    async def test_agents_side_by_side_get_the_answers_to_what_they_asked(self, tmp_path):
        async def echo(messages, tools):
            number = sum(isinstance(m, AssistantMessage) for m in messages)
            await asyncio.sleep(0)
            return f"{messages[0].text}, answer {number}"

        async def both(llm, order):
            async def one(name):
                agent = Agent(llm=llm)
                return [await agent.query(name), await agent.query("more")]

            return await asyncio.gather(*map(one, order))

        said = await both(RecordingModel(ScriptedModel(echo), tmp_path / "r"), "ab")
        llm = ReplayModel(tmp_path / "r")
        assert await both(llm, "ba") == said[::-1]
        assert said[0] == ["a, answer 0", "a, answer 1"]
        llm.assert_done()

    async def test_a_difference_is_to_the_recorded_request_that_is_nearest(self, tmp_path):
        llm = RecordingModel(ScriptedModel(lambda messages, tools: "fine"), tmp_path / "r")
        for name in ("a", "b"):
            agent = Agent(llm=llm)
            await agent.run(name)
            await agent.run("more")
        llm = ReplayModel(tmp_path / "r")
        agent = Agent(llm=llm)
        await agent.run("b")
        with pytest.raises(ReplayMismatch, match="request 4 differs from r in message 2") as caught:
            await agent.run("less")
        assert caught.value.diff.endswith("-more\n+less")

    def test_a_last_line_that_was_cut_off_is_left_out(self, tmp_path):
        path = recorded(tmp_path / "r", "one", "two", prompts=["a", "b"])
        path.write_bytes(path.read_bytes()[:-20])
        assert len(ReplayModel(path).entries) == 1
        path.write_bytes(path.read_bytes() + b"\n")
        with pytest.raises(ValueError, match="line 3"):
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

    async def test_rerun_runs_the_tools_again(self, tmp_path):
        path = await session(tmp_path, *SCRIPT, "bye", prompts=["go", "and?"])
        await ReplayModel(path).rerun(Agent(llm=ScriptedModel(), tools=[add]))
        with pytest.raises(ReplayMismatch, match="-3\n[+]4"):
            await ReplayModel(path).rerun(Agent(llm=ScriptedModel(), tools=[wrong()]))

    async def test_an_error_that_was_none_before_is_a_difference(self, tmp_path):
        path = await session(tmp_path, call("fail"), "well", tools=[fail])

        @tool(name="fail")
        def works() -> str:
            """Fail."""
            return "no luck"

        await ReplayModel(path).rerun(Agent(llm=ScriptedModel(), tools=[fail]))
        with pytest.raises(ReplayMismatch, match="-is_error: true"):
            await ReplayModel(path).rerun(Agent(llm=ScriptedModel(), tools=[works]))

    async def test_results_are_compared_in_the_order_of_their_calls(self, tmp_path):
        calls = [call("slow", seconds=0.05), call("slow", seconds=0.0)]
        path = await session(tmp_path, calls, "done", tools=[slow])
        results = [r.text for r in read_log(path) if getattr(r, "tool_name", "")]
        assert results == ["waited 0.0", "waited 0.05"]  # as they came
        await ReplayModel(path).rerun(Agent(llm=ScriptedModel(), tools=[slow]))

    async def test_nudges_come_again_by_themselves(self, tmp_path):
        path = await session(tmp_path, "", "now")
        await ReplayModel(path).rerun(Agent(llm=ScriptedModel(), tools=[add]))

    @pytest.mark.parametrize("agent_class", [Kept, Agent])
    async def test_messages_into_the_run_come_where_they_came(self, tmp_path, agent_class):
        agent = None

        @tool
        def look() -> str:
            """Look."""
            if agent:
                agent.send("also this")
            return "seen"

        llm = ScriptedModel(call("look"), "ok")
        agent = Kept(llm=llm, tools=[look], session="s", session_dir=tmp_path)
        await agent.run("go")
        agent.close()
        agent = None
        llm = ReplayModel(tmp_path / "s.jsonl")
        await llm.rerun(agent_class(llm=ScriptedModel(), tools=[look]))
        assert [m["content"] for m in llm.entries[1].messages] == ["seen", "also this"]

    async def test_calls_that_were_cut_off_are_not_run(self, tmp_path):
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
        await llm.rerun(Agent(llm=ScriptedModel(), tools=[add, wait]))
        assert ran == [1]
        assert "enough" in llm.entries[2].messages[1]["content"]

    async def test_a_killed_run_and_what_was_resumed_of_it(self, tmp_path):
        path = await session(tmp_path, *SCRIPT)
        lines = path.read_bytes().splitlines(keepends=True)
        cut = next(i for i, line in enumerate(lines) if b'"tool_start"' in line) + 1
        path.write_bytes(b"".join(lines[:cut]))  # the call had started
        agent = Kept(
            llm=ScriptedModel("unknown, then"), tools=[add], session="s", session_dir=tmp_path
        )
        await agent.run()
        agent.close()
        llm = ReplayModel(path)
        await llm.rerun(Agent(llm=ScriptedModel(), tools=[add]))
        assert (
            llm.entries[1].messages[0]["content"].startswith("Interrupted: this call had started")
        )

    async def test_a_run_that_waited_for_an_approval_and_then_went_on(self, tmp_path):
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
        await ReplayModel(path).rerun(Agent(llm=ScriptedModel(), tools=[add]))
        with pytest.raises(ReplayMismatch, match="-3\n[+]4"):
            await ReplayModel(path).rerun(Agent(llm=ScriptedModel(), tools=[wrong()]))

    async def test_a_run_that_failed_and_was_tried_again(self, tmp_path):
        llm = ScriptedModel(call("add", a=1, b=2), Overloaded("no"), "3")
        agent = Kept(llm=llm, tools=[add], session="s", session_dir=tmp_path)
        with pytest.raises(Overloaded):
            await agent.run("go")
        await agent.run()
        agent.close()
        await ReplayModel(tmp_path / "s.jsonl").rerun(Agent(llm=ScriptedModel(), tools=[add]))

    async def test_summaries_are_answers_too(self, tmp_path):
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
        await llm.rerun(Agent(llm=ScriptedModel(), **settings | {"tools": [page]}))
        other = settings | {"tools": [page], "compaction": None}
        with pytest.raises(ReplayMismatch, match="a summary was asked for"):
            await ReplayModel(tmp_path / "s.jsonl").rerun(Agent(llm=ScriptedModel(), **other))
        llm = ReplayModel(tmp_path / "s.jsonl")
        whole = Agent(llm=llm, **settings | {"tools": [page]})
        await whole.run("go")
        await whole.run("more")
        llm.assert_done()

    async def test_what_was_loaded_or_cleared_was_not_asked_for(self, tmp_path):
        agent = Kept(llm=ScriptedModel("one", "two"), session="s", session_dir=tmp_path)
        await agent.run("forgotten")
        agent.load_history([UserMessage("earlier"), AssistantMessage("said")])
        await agent.run("go")
        agent.close()
        llm = ReplayModel(tmp_path / "s.jsonl")
        assert [entry.answer.text for entry in llm.entries] == ["two"]
        await llm.rerun(Agent(llm=ScriptedModel()))

    async def test_a_tool_that_ended_the_run_with_an_error(self, tmp_path):
        @tool
        def crash() -> str:
            """Crash."""
            raise RuntimeError("no")

        llm = ScriptedModel(call("crash"), "after")
        agent = Kept(
            llm=llm, tools=[crash], session="s", session_dir=tmp_path, on_tool_error="raise"
        )
        with pytest.raises(RuntimeError):
            await agent.run("go")
        await agent.run()
        agent.close()
        again = Agent(llm=ScriptedModel(), tools=[crash], on_tool_error="raise")
        await ReplayModel(tmp_path / "s.jsonl").rerun(again)

    async def test_a_call_that_was_denied_is_denied_again(self, tmp_path):
        from agentloop.toolkits.shell import Shell

        def agent_with(approve, **settings):
            return Kept(
                llm=ScriptedModel(call("bash", command="echo x > f"), "denied, then"),
                tools=Shell(tmp_path, approve=approve).tools,
                **settings,
            )

        agent = agent_with(lambda tool, arguments: False, session="s", session_dir=tmp_path)
        await agent.run("go")
        agent.close()
        llm = ReplayModel(tmp_path / "s.jsonl")
        await llm.rerun(agent_with(llm.approve))
        assert not (tmp_path / "f").exists()
        llm = ReplayModel(tmp_path / "s.jsonl")
        with pytest.raises(ReplayMismatch, match="-Denied"):
            await llm.rerun(agent_with(None))
        assert (tmp_path / "f").exists()

    async def test_a_run_that_ends_too_early_fails(self, tmp_path):
        @tool(name="add")
        def ends(a: int, b: int) -> int:
            """Add."""
            raise Stop("enough")

        path = await session(tmp_path, *SCRIPT, "bye", prompts=["go", "and?"])
        with pytest.raises(ReplayMismatch, match="the run ended before request 2"):
            await ReplayModel(path).rerun(Agent(llm=ScriptedModel(), tools=[ends]))

    async def test_one_request_more_in_a_run_fails(self, tmp_path):
        class Doubtful(Agent):
            async def finish(self, result):
                self.nudge("Are you sure?")

        path = await session(tmp_path, "yes", "bye", prompts=["go", "and?"])
        with pytest.raises(ReplayMismatch, match="one more request before request 2"):
            await ReplayModel(path).rerun(Doubtful(llm=ScriptedModel()))

    async def test_equal_requests_have_their_own_numbers(self, tmp_path):
        llm = RecordingModel(ScriptedModel("a", "b"), tmp_path / "r")
        for _ in range(2):
            await Agent(llm=llm).run("go")
        llm = ReplayModel(tmp_path / "r")
        assert [await Agent(llm=llm).query("go") for _ in range(2)] == ["a", "b"]

    async def test_a_summary_by_another_model_is_played_too(self, tmp_path):
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
        await llm.rerun(Agent(llm=ScriptedModel(), tools=[page], compaction=config))
        assert len(other.requests) == asked

    async def test_what_is_pinned_first_is_not_compared(self, tmp_path):
        from agentloop.mixins.memory import Memory

        class Remembers(Memory, Agent):
            memory_dir = tmp_path

        (tmp_path / "AGENTS.md").write_text("Be brief.")
        path = await session(tmp_path, *SCRIPT)
        await ReplayModel(path).rerun(Remembers(llm=ScriptedModel(), tools=[add]))

    async def test_turns_that_were_left_out_are_no_answer(self, tmp_path):
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
        assert any(isinstance(entry.answer, ModelError) for entry in llm.entries)
        await llm.rerun(Agent(llm=ScriptedModel(), **settings))

    async def test_the_agent_and_its_log_stay_as_they_were(self, tmp_path):
        agent = Kept(llm=ScriptedModel("mine"), tools=[add], session="own", session_dir=tmp_path)
        await agent.run("hello")
        log, llm = list(agent.log), agent.llm
        await ReplayModel(await session(tmp_path, *SCRIPT)).rerun(agent)
        assert (agent.log, agent.llm) == (log, llm)
        agent.close()


@pytest.mark.parametrize("content", [b"", b"hello\n", b"\x89PNG\n"])
def test_a_file_that_is_neither_is_a_clear_error(tmp_path, content):
    (tmp_path / "f").write_bytes(content)
    with pytest.raises(ValueError, match="is no session"):
        ReplayModel(tmp_path / "f")


async def test_a_recording_has_no_runs_to_do_again(tmp_path):
    path = tmp_path / "r"
    await Agent(llm=RecordingModel(ScriptedModel("hi"), path)).run("go")
    with pytest.raises(ValueError, match="is no session"):
        await ReplayModel(path).rerun(Agent(llm=ScriptedModel()))


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


@settings(max_examples=60, deadline=None)
@given(script=st.lists(REPLIES, min_size=1, max_size=8), prompts=st.lists(TEXTS, max_size=3))
async def test_any_run_can_be_recorded_and_replayed(script, prompts):
    prompts = ["go", *(prompt for prompt in prompts if prompt.strip())]
    with TemporaryDirectory() as folder:
        kept = {"session": "s", "session_dir": folder, "session_fsync": False}
        llm = RecordingModel(ScriptedModel(*script), Path(folder, "r"))
        agent = Kept(llm=llm, tools=[add, fail], **kept)
        outcome = await work_through(agent, prompts)
        agent.close()
        llm = ReplayModel(Path(folder, "r"))
        assert await work_through(Agent(llm=llm, tools=[add, fail]), prompts) == outcome
        await ReplayModel(Path(folder, "s.jsonl")).rerun(
            Agent(llm=ScriptedModel(), tools=[add, fail])
        )


# ---- bodies

KEY = "sk-secret-4711"


class TestADump:
    @pytest.fixture(autouse=True)
    def _clean_environment(self, monkeypatch):
        for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL", "HTTP_PROXY", "http_proxy", "ALL_PROXY"):
            monkeypatch.delenv(name, raising=False)

    @pytest.mark.parametrize("provider", ["openai", "anthropic", "google"])
    async def test_has_the_bodies_as_they_went_without_the_key(self, tmp_path, provider):
        bodies = []
        with loopback(
            [[f"my key is {KEY}? ", ("add", {"a": 1, "b": 2})], "3"], bodies=bodies
        ) as url:
            llm = model_at(provider, "m", url, KEY)
            llm.dump = dump_to(tmp_path / "new" / "d")
            agent = Agent(llm=llm, tools=[add], system_prompt=f"The key is {KEY}.")
            assert await agent.query("go") == "3"
        files = {path.name: path.read_text() for path in (tmp_path / "new" / "d").iterdir()}
        names = [
            "0001-request.json",
            "0001-response.json",
            "0002-request.json",
            "0002-response.json",
        ]
        assert sorted(files) == names
        assert files["0002-request.json"] == bodies[1].decode().replace(KEY, "***")
        assert KEY in bodies[1].decode()
        assert KEY not in "".join(files.values())
        assert "my key is ***?" in files["0001-response.json"]

    async def test_a_stream_is_kept_as_it_came(self, tmp_path):
        with loopback(["hello there"]) as url:
            llm = model_at("openai", "m", url, KEY)
            llm.dump = dump_to(tmp_path)
            async for _ in Agent(llm=llm).query_stream("go"):
                pass
        text = (tmp_path / "0001-response.sse").read_text()
        assert text.startswith("data: {")
        assert text.endswith("data: [DONE]\n\n")
        if sys.platform != "win32":
            assert stat.S_IMODE((tmp_path / "0001-request.json").stat().st_mode) == 0o600

    async def test_each_attempt_is_one_and_so_is_one_without_an_answer(self, tmp_path):
        async def no_wait(seconds):
            return None

        llm = ChatOpenAI("m", base_url="http://127.0.0.1:9/v1", max_retries=2, sleep=no_wait)
        llm.dump = dump_to(tmp_path)
        with pytest.raises(ModelError):
            await llm.ainvoke([UserMessage("hi")])
        assert len(list(tmp_path.glob("*-request.json"))) == 3
        assert (tmp_path / "0003-response.json").read_text() == ""

    async def test_one_that_cannot_be_written_costs_no_answer(self, tmp_path, caplog):
        (tmp_path / "f").write_text("")
        with loopback(["hello"]) as url:
            llm = model_at("openai", "m", url, KEY)
            llm.dump = dump_to(tmp_path / "f")
            assert (await llm.ainvoke([UserMessage("hi")])).text == "hello"
        assert "could not be written" in caplog.text
