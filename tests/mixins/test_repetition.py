"""Repetition: a model that goes in circles is warned once, then stopped."""

import asyncio
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentloop import (
    Agent,
    AssistantMessage,
    Inbox,
    RunStart,
    ScriptedModel,
    ToolCall,
    ToolMessage,
    UserMessage,
    tool,
    validate,
)
from agentloop.mixins.repetition import (
    STOPPED_REPEATING,
    Repetition,
    Turns,
    calls_made,
    canonical,
    repeated,
)
from agentloop.models.scripted import call

from .. import test_loop
from ..test_loop import add, shown


class Careful(Repetition, Agent):
    """The plain case."""


@tool
async def look(at: str = "") -> str:
    """Look."""
    return at


class Clock:
    """A tool whose result is never the same."""

    def __init__(self):
        self.ticks = 0

    @tool
    async def tick(self, at: str = "") -> str:
        """Tick."""
        self.ticks += 1
        return f"{at} {self.ticks}"


async def play(turns, tools=(look,), **settings):
    """The result of a run in which the model plays these turns, and its requests."""
    llm = ScriptedModel(*turns, "ok")
    agent = Careful(llm=llm, tools=[*tools], **settings)
    return await agent.run("x"), agent, llm


def warnings(agent):
    return [m.text for m in agent.messages if isinstance(m, UserMessage) and m.hidden]


def ran(agent):
    results = [m for m in agent.messages if isinstance(m, ToolMessage)]
    return len([m for m in results if m.text != STOPPED_REPEATING])


A, B, C = (call("look", at=at) for at in "abc")


class TestRepetition(test_loop.TestLoop):
    agent_class = Repetition

    async def test_twice_the_same_is_nothing_special(self):
        result, agent, _ = await play([A, A, B, A, A])
        assert result.stop_reason == "completed"
        assert warnings(agent) == []

    async def test_the_third_time_warns_and_the_fourth_ends_the_run(self):
        result, agent, llm = await play([A, A, A, A])
        assert result.stop_reason == "no_progress"
        assert result.pending == ()
        assert 'look({"at": "a"})' in result.text
        assert [len(shown(r)) for r in llm.requests] == [1, 3, 5, 8]
        assert shown(llm.requests[3])[-1] == warnings(agent)[0]
        assert 'look({"at": "a"})' in warnings(agent)[0]
        assert ran(agent) == 3
        assert agent.messages[-1].text == STOPPED_REPEATING
        assert validate([*agent.messages, UserMessage("y")]) == []

    async def test_after_a_warning_another_way_goes_on(self):
        result, agent, _ = await play([A, A, A, B, C])
        assert result.stop_reason == "completed"
        assert len(warnings(agent)) == 1

    async def test_a_second_round_of_the_same_is_not_warned_again(self):
        result, agent, _ = await play([A, A, A, B, A, A, A])
        assert result.stop_reason == "no_progress"
        assert len(warnings(agent)) == 1
        assert ran(agent) == 6

    async def test_another_repetition_has_a_warning_of_its_own(self):
        result, agent, _ = await play([A, A, A, B, B, B, C])
        assert result.stop_reason == "completed"
        assert len(warnings(agent)) == 2

    async def test_a_cycle_of_two_warns_the_second_time_and_ends_the_third(self):
        result, agent, llm = await play([A, B, A, B, A, B])
        assert result.stop_reason == "no_progress"
        assert len(warnings(agent)) == 1
        assert shown(llm.requests[4])[-1] == warnings(agent)[0]
        assert ran(agent) == 5

    async def test_a_cycle_may_be_left_in_its_middle(self):
        result, agent, _ = await play([A, B, A, B, A, C])
        assert result.stop_reason == "completed"
        assert len(warnings(agent)) == 1

    @pytest.mark.parametrize("length", [3, 4, 5])
    async def test_longer_cycles_are_seen_too(self, length):
        cycle = [call("look", at=str(at)) for at in range(length)]
        assert (await play(cycle * 3))[0].stop_reason == "no_progress"
        assert warnings((await play(cycle * 2))[1]) != []
        assert warnings((await play([*cycle, *cycle[:-1]]))[1]) == []

    async def test_results_that_differ_are_no_progress(self):
        clock = Clock()
        result, _, _ = await play([call("tick")] * 4, [clock.tick])
        assert (result.stop_reason, clock.ticks) == ("no_progress", 3)

    async def test_arguments_are_compared_as_values(self):
        spellings = ['{"a": 1, "b": 2}', '{"b":2,"a":1}', '{ "a":1,"b":2 }', '{"b": 2, "a": 1}']
        turns = [[ToolCall("", "add", text)] for text in spellings]
        assert (await play(turns, [add]))[0].stop_reason == "no_progress"

    async def test_arguments_that_are_no_json_are_compared_as_text(self):
        turns = [[ToolCall("", "look", "{oops")]] * 4
        result, agent, _ = await play(turns)
        assert result.stop_reason == "no_progress"
        assert validate([*agent.messages, UserMessage("y")]) == []

    async def test_calls_side_by_side_count_in_any_order(self):
        result, agent, _ = await play([[A, B], [B, A], [A, B], [B, A]])
        assert result.stop_reason == "no_progress"
        assert len(warnings(agent)) == 1
        assert ran(agent) == 6

    async def test_many_calls_side_by_side_are_one_turn(self):
        turn = [call("look", at=str(n)) for n in range(6)]
        result, agent, _ = await play([turn, turn[::-1], turn, turn])
        assert result.stop_reason == "no_progress"
        assert len(warnings(agent)) == 1
        assert ran(agent) == 18
        other = [*turn, A]
        assert (await play([turn, other, turn[1:], turn]))[0].stop_reason == "completed"

    async def test_the_same_call_side_by_side_is_no_repetition(self):
        result, agent, _ = await play([[A, A, A, A], [A, A, A, A], B])
        assert (result.stop_reason, warnings(agent)) == ("completed", [])

    async def test_a_tool_that_polls_may_be_exempt(self):
        result, agent, _ = await play([A] * 9, repetition_exempt=["look"])
        assert result.stop_reason == "completed"
        assert warnings(agent) == []

    @pytest.mark.parametrize("polled", [[A], [A, B], [A, A, A]])
    async def test_a_tool_that_polls_in_between_hides_nothing(self, polled):
        turns = [one for _ in range(4) for one in (polled, call("add", a=1, b=1))]
        result, agent, _ = await play(turns, [look, add], repetition_exempt=["look"])
        assert result.stop_reason == "no_progress"
        assert len(warnings(agent)) == 1
        assert ran(agent) == 4 * len(polled) + 3

    async def test_a_tool_that_polls_in_the_same_turn_hides_nothing(self):
        turns = [[call("look", at=str(n)), call("add", a=1, b=1)] for n in range(4)]
        result, _, _ = await play(turns, [look, add], repetition_exempt=["look"])
        assert result.stop_reason == "no_progress"

    async def test_a_warning_is_for_what_follows_it_and_not_for_what_polls(self):
        turns = [*[call("add", a=1, b=1)] * 3, *[A] * 9, "done"]
        result, agent, _ = await play(turns, [look, add], repetition_exempt=["look"])
        assert (result.text, len(warnings(agent))) == ("done", 1)

    async def test_the_limit_is_a_setting(self):
        assert (await play([A] * 2, repetition_limit=2))[1].messages[-2].hidden
        assert warnings((await play([A] * 4, repetition_limit=5))[1]) == []
        assert (await play([A] * 6, repetition_limit=5))[0].stop_reason == "no_progress"

    @pytest.mark.parametrize("limit", [1, 2.5, float("nan"), "3", None])
    async def test_settings_that_make_no_sense_are_errors(self, limit):
        with pytest.raises(ValueError, match=f"2 or more, not {limit}"):
            Repetition(llm=ScriptedModel(), repetition_limit=limit)
        with pytest.raises(TypeError, match=r"takes a list: \['look'\]"):
            Repetition(llm=ScriptedModel(), repetition_exempt="look")

    async def test_each_run_begins_anew(self):
        llm = ScriptedModel(A, A, "one", A, A, "two", A, A, "three")
        agent = Careful(llm=llm, tools=[look])
        assert [await agent.query(text) for text in "xyz"] == ["one", "two", "three"]
        assert warnings(agent) == []

    async def test_after_the_stop_the_next_prompt_works(self):
        llm = ScriptedModel(*[A] * 4, A, "ok")
        agent = Careful(llm=llm, tools=[look])
        assert (await agent.run("x")).stop_reason == "no_progress"
        assert await agent.query("once more") == "ok"

    async def test_what_the_user_says_meanwhile_is_a_new_beginning(self):
        class Steered(Repetition, Inbox, Agent):
            pass

        def again(messages, tools):
            agent.send("once more")
            return A

        agent = Steered(llm=ScriptedModel(A, again, A, A, "ok"), tools=[look])
        assert await agent.query("x") == "ok"
        assert warnings(agent) == []
        agent = Steered(llm=ScriptedModel(A, A, again, A, A, A, A, "never"), tools=[look])
        assert (await agent.run("x")).stop_reason == "no_progress"
        assert (len(warnings(agent)), ran(agent)) == (2, 6), "and with a warning of its own"

    async def test_a_done_tool_ends_the_run_unwarned(self):
        turns = [A, A, [A, call("done", message="done")]]
        result, agent, _ = await play(turns, require_done_tool=True)
        assert (result.stop_reason, result.text) == ("done", "done")
        assert warnings(agent) == []

    @pytest.mark.parametrize("way", ["run", "query_stream", "run_sync"])
    def test_all_ways_to_run_end_the_same(self, way):
        agent = Careful(llm=ScriptedModel(*[A] * 4), tools=[look])

        async def streamed():
            async with agent.query_stream("x") as stream:
                async for _ in stream:
                    pass
            return stream.result

        if way == "run_sync":
            result = agent.run_sync("x")
        else:
            result = asyncio.run(agent.run("x") if way == "run" else streamed())
        assert result.stop_reason == "no_progress"
        assert len(warnings(agent)) == 1


# ---- the functions

words = st.text("abc", min_size=1, max_size=1)


@given(st.lists(words, max_size=12), st.integers(2, 5))
def test_what_is_repeated_stands_so_often_at_the_end(made, limit):
    cycle = repeated(made, limit)
    if cycle:
        times = limit if len(cycle) == 1 else max(2, limit - 1)
        assert made[-len(cycle) * times :] == cycle * times


@given(st.lists(words, min_size=1, max_size=5), st.lists(words), st.integers(2, 5))
def test_every_cycle_is_found_after_anything(cycle, before, limit):
    assert repeated(before + cycle * limit, limit)


@given(st.lists(st.integers(), unique=True), st.integers(2, 5))
def test_what_never_comes_twice_is_no_repetition(made, limit):
    assert repeated([str(one) for one in made], limit) == []


@given(st.dictionaries(st.text(), st.integers() | st.text() | st.booleans() | st.none()))
def test_the_order_of_arguments_does_not_matter(arguments):
    turned = dict(reversed(arguments.items()))
    assert canonical(call("look", **{"x": arguments})) == canonical(call("look", **{"x": turned}))


turns = st.builds(
    lambda names: AssistantMessage("", tuple(call(name) for name in names)),
    st.lists(words, max_size=3),
)
warned = st.builds(lambda name: UserMessage("!", hidden=True, extra={"repetition": name}), words)
spoken = st.builds(UserMessage, words, hidden=st.booleans()) | st.builds(RunStart)


@given(st.lists(turns | turns | warned | spoken, max_size=30))
def test_a_log_that_is_read_record_by_record_comes_to_the_same_as_at_once(log):
    bit_by_bit = Turns(["c"])
    for end in range(len(log) + 1):
        bit_by_bit.catch_up(log[:end])
        assert (bit_by_bit.made, bit_by_bit.warned) == calls_made(log[:end], ["c"])


@given(st.lists(turns, max_size=12))
def test_calls_of_exempt_tools_are_as_if_they_were_not_there(replies):
    without = [
        replace(reply, tool_calls=tuple(one for one in reply.tool_calls if one.name != "c"))
        for reply in replies
    ]
    assert calls_made(replies, ["c"]) == calls_made(without)


def test_different_calls_are_different():
    calls = [A, B, call("look"), call("see", at="a"), call("look", at=["a"]), call("look", at=None)]
    assert len({canonical(one) for one in calls}) == len(calls)


async def test_only_the_whole_name_of_a_tool_is_exempt():
    made_up = [call("look(", at="a")] * 4
    result, _, _ = await play(made_up, repetition_exempt=["look"])
    assert result.stop_reason == "no_progress"
