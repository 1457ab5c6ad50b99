"""LoopDetection: a model that repeats its calls is warned, then stopped."""

import pytest

from agentloop import (
    Agent,
    ScriptedModel,
    ToolCall,
    ToolMessage,
    UserMessage,
    tool,
    validate_messages,
)
from agentloop.models.scripted import call
from tests.core import test_loop
from tests.core.test_loop import add, shown
from tests.properties import given, st
from tests.recipes import load

recipe = load("loop_detection")
LoopDetection, repeated = recipe.LoopDetection, recipe.repeated


class Careful(LoopDetection, Agent): ...


@tool("Look")
async def look(at: str = "") -> str:
    return at


async def play(script, tools=(look,), **settings):
    """Run an agent with these turns; return the result, the agent and the model."""
    llm = ScriptedModel(*script, "ok")
    agent = Careful(llm=llm, tools=[*tools], **settings)
    return await agent.run("x"), agent, llm


def warnings(agent):
    return [m.text for m in agent.messages if isinstance(m, UserMessage) and m.hidden]


def ran(agent):
    return sum(isinstance(record, ToolMessage) for record in agent.log)


A, B, C = (call("look", at=at) for at in "abc")
words = st.text("abc", min_size=1, max_size=1)


class TestLoopDetection(test_loop.TestLoop):
    agent_class = LoopDetection

    @pytest.mark.parametrize("length", [1, 2, 3, 4, 5])
    async def test_the_third_repetition_of_a_cycle_warns_and_the_fourth_ends_the_run(self, length):
        cycle = [call("look", at=str(at)) for at in range(length)]
        result, agent, llm = await play(cycle * 4)
        assert result.stop_reason == "no_progress"
        [warning] = warnings(agent)
        assert shown(llm.requests[3 * length])[-1] == warning
        for text in (result.text, warning):
            assert all(f'look({{"at": "{at}"}})' in text for at in range(length))
        assert ran(agent) == 4 * length - 1
        assert [state.call.name for state in agent.conversation.open_calls] == ["look"]
        assert validate_messages([*agent.messages, UserMessage("y")]) == []
        _, three_times, _ = await play(cycle * 3)
        assert warnings(three_times) != []
        _, incomplete, _ = await play([*cycle, *cycle, *cycle[:-1]])
        assert warnings(incomplete) == []

    async def test_repeated_calls_with_different_results_count_as_no_progress(self):
        ticks = []

        @tool("Tick")
        async def tick() -> int:
            ticks.append(1)
            return len(ticks)

        result, _, _ = await play([call("tick")] * 4, [tick])
        assert (result.stop_reason, len(ticks)) == ("no_progress", 3)

    async def test_arguments_are_compared_as_json_values_or_as_text_if_invalid(self):
        same = ['{"a": 1, "b": 2}', '{"b":2,"a":1}', '{ "a":1,"b":2 }', '{"b": 2, "a": 1}']
        for spellings in (same, ["{oops"] * 4):
            calls = [[ToolCall("", "add", text)] for text in spellings]
            result, agent, _ = await play(calls, [add])
            assert result.stop_reason == "no_progress"
            assert validate_messages([*agent.messages, UserMessage("y")]) == []

    async def test_parallel_calls_are_one_turn_regardless_of_their_order(self):
        turn = [call("look", at=str(n)) for n in range(6)]
        result, agent, _ = await play([turn, turn[::-1], turn, turn])
        assert result.stop_reason == "no_progress"
        assert len(warnings(agent)) == 1
        assert ran(agent) == 18
        assert (await play([turn, [*turn, A], turn[1:], turn]))[0].stop_reason == "completed"
        assert warnings((await play([[A, A, A, A], [A, A, A, A], B]))[1]) == []

    @pytest.mark.parametrize("polled", [[A], [A, B], [A, A, A]])
    async def test_exempt_tools_are_ignored_and_do_not_conceal_other_repetitions(self, polled):
        result, agent, _ = await play([A] * 9, repetition_exempt=["look"])
        assert (result.stop_reason, warnings(agent)) == ("completed", [])
        script = [turn for _ in range(4) for turn in (polled, call("add", a=1, b=1))]
        result, agent, _ = await play(script, [look, add], repetition_exempt=["look"])
        assert (result.stop_reason, len(warnings(agent))) == ("no_progress", 1)
        assert ran(agent) == 4 * len(polled) + 3
        mixed = [[call("look", at=str(n)), call("add", a=1, b=1)] for n in range(4)]
        result, _, _ = await play(mixed, [look, add], repetition_exempt=["look"])
        assert result.stop_reason == "no_progress"

    async def test_each_run_has_separate_counts_even_after_a_stop(self):
        llm = ScriptedModel(A, A, "one", A, A, "two", *[A] * 4, A, "ok")
        agent = Careful(llm=llm, tools=[look])
        assert [await agent.query(text) for text in "xy"] == ["one", "two"]
        assert warnings(agent) == []
        assert (await agent.run("z")).stop_reason == "no_progress"
        assert await agent.query("once more") == "ok"

    async def test_a_user_message_during_the_run_resets_the_detection(self):
        def again(messages, tools):
            agent.record(UserMessage("once more"))
            return A

        agent = Careful(llm=ScriptedModel(A, A, again, A, "ok"), tools=[look])
        assert await agent.query("x") == "ok"
        assert warnings(agent) == []
        agent = Careful(llm=ScriptedModel(A, A, A, again, A, A, A, "never"), tools=[look])
        assert (await agent.run("x")).stop_reason == "no_progress"
        assert (len(warnings(agent)), ran(agent)) == (2, 6), "a second warning"

    async def test_a_done_tool_ends_the_run_without_a_warning(self):
        script = [A, A, [A, call("done", message="done")]]
        result, agent, _ = await play(script, require_done_tool=True)
        assert (result.stop_reason, result.text, warnings(agent)) == ("done", "done", [])

    @given(st.lists(words, min_size=1, max_size=5), st.lists(words), st.integers(2, 5))
    def test_every_cycle_is_detected_after_any_prefix(self, cycle, before, times):
        assert repeated(before + cycle * times, times)
