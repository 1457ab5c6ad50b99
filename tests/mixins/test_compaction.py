"""Compaction: the conversation goes on from a summary."""

import pytest

from agentloop import (
    AssistantMessage,
    Compaction,
    CompactionConfig,
    CompactionEvent,
    ContextWindowExceeded,
    ScriptedModel,
    SideRequest,
    Stop,
    Summary,
    Usage,
    tool,
)
from agentloop.mixins.compaction import SUMMARY_PROMPT, first_unseen
from agentloop.models.scripted import call

from .. import test_loop
from ..test_loop import add, shown

SMALL = CompactionConfig(context_window=1000)


@tool("Read a lot")
async def read(n: int) -> str:
    return f"{n} " + "word " * 300


def play(*replies, summary="SUMMARY"):
    """A model that summarizes when asked to, and else plays replies."""
    script = iter(replies)

    def answer(messages, tools):
        return summary if messages[-1].text == SUMMARY_PROMPT else next(script)

    return ScriptedModel(answer)


class TestCompaction(test_loop.TestLoop):
    agent_class = Compaction

    async def test_near_the_window_the_conversation_is_summarized(self):
        llm = play(call("read", n=1), call("read", n=2), "done")
        agent = Compaction(llm=llm, tools=[read], compaction=SMALL, system_prompt="Be good.")
        assert await agent.query("The task") == "done"
        last = llm.requests[-1]
        assert shown(last)[:2] == ["Be good.", "The task"]
        assert shown(last)[2].endswith("SUMMARY")
        assert shown(last)[4].startswith("2 word"), "what was not seen yet stays word for word"
        assert len(last.messages) == 5

    async def test_the_summary_request_extends_the_request_that_was_due(self):
        llm = play(call("read", n=1), call("read", n=2), "done")
        agent = Compaction(llm=llm, tools=[read], compaction=SMALL)
        await agent.query("The task")
        ask = llm.requests[2]
        assert ask.messages[:3] == llm.requests[1].messages
        assert (ask.tools, ask.tool_choice) == (llm.requests[1].tools, "auto")

    async def test_the_first_task_survives_every_summary(self):
        llm = play(*(call("read", n=n) for n in range(8)), "done")
        agent = Compaction(llm=llm, tools=[read], compaction=SMALL)
        await agent.query("The task")
        assert sum(isinstance(record, Summary) for record in agent.log) >= 3
        assert all("The task" in shown(request) for request in llm.requests)

    async def test_a_new_question_is_kept_word_for_word(self):
        llm = play(call("read", n=1), "one", "two")
        agent = Compaction(llm=llm, tools=[read], compaction=CompactionConfig(context_window=560))
        await agent.query("First")
        await agent.query("Second")
        assert shown(llm.requests[-1])[0] == "First"
        assert shown(llm.requests[-1])[-1] == "Second"

    @pytest.mark.parametrize("summary", ["", "  ", RuntimeError("down")])
    async def test_a_summary_that_comes_to_nothing_changes_nothing(self, summary, caplog):
        llm = play(call("read", n=1), call("read", n=2), "done", summary=summary)
        agent = Compaction(llm=llm, tools=[read], compaction=SMALL)
        assert await agent.query("x") == "done"
        assert not any(isinstance(record, Summary) for record in agent.log)
        assert len(llm.requests[-1].messages) == 5
        assert "summar" in caplog.text

    async def test_a_stop_during_the_summary_ends_the_run(self):
        llm = play(call("read", n=1), call("read", n=2), "done", summary=Stop("limit:cost"))
        agent = Compaction(llm=llm, tools=[read], compaction=SMALL)
        assert (await agent.run("x")).stop_reason == "limit:cost"

    async def test_calls_in_a_summary_do_not_run(self):
        ran = []

        @tool("Note")
        async def note() -> None:
            ran.append(1)

        both = AssistantMessage("SUMMARY", tool_calls=(call("note"),))
        llm = play(call("read", n=1), call("read", n=2), "done", summary=both)
        agent = Compaction(llm=llm, tools=[read, note], compaction=SMALL)
        assert await agent.query("x") == "done"
        assert ran == []

    async def test_usage_counts_summaries_also_those_that_came_to_nothing(self):
        paid = AssistantMessage("SUMMARY", usage=Usage(100, 10))
        llm = play(call("read", n=1), call("read", n=2), "done", summary=paid)
        agent = Compaction(llm=llm, tools=[read], compaction=SMALL)
        assert (await agent.run("x")).usage == Usage(100, 10)
        empty = AssistantMessage("", usage=Usage(100, 10))
        llm = play(call("read", n=1), call("read", n=2), "done", summary=empty)
        agent = Compaction(llm=llm, tools=[read], compaction=SMALL)
        await agent.run("x")
        assert any(isinstance(record, SideRequest) for record in agent.log)
        assert agent.usage.input_tokens >= 100

    async def test_it_is_an_event(self):
        llm = play(call("read", n=1), call("read", n=2), "done")
        agent = Compaction(llm=llm, tools=[read], compaction=SMALL)
        events = [event async for event in agent.query_stream("x")]
        [event] = [e for e in events if isinstance(e, CompactionEvent)]
        assert event.summary == "SUMMARY"
        assert event.tokens_before > 800 > event.tokens_after

    async def test_a_request_that_is_too_long_is_summarized_and_tried_once_more(self):
        llm = play(call("add", a=1, b=1), ContextWindowExceeded("too long"), "done")
        agent = Compaction(llm=llm, tools=[add])
        assert await agent.query("x") == "done"
        assert any("SUMMARY" in text for text in shown(llm.requests[-1]))

    async def test_a_request_that_stays_too_long_raises(self):
        llm = play(call("add", a=1, b=1), *2 * [ContextWindowExceeded("too long")])
        agent = Compaction(llm=llm, tools=[add])
        with pytest.raises(ContextWindowExceeded):
            await agent.query("x")

    async def test_a_first_request_that_is_too_long_raises_at_once(self):
        llm = play(ContextWindowExceeded("too long"))
        with pytest.raises(ContextWindowExceeded):
            await Compaction(llm=llm).query("x")
        assert len(llm.requests) == 1

    async def test_what_the_provider_reports_counts_more_than_the_estimate(self):
        dear = AssistantMessage(tool_calls=(call("add", a=1, b=1),), usage=Usage(900, 10))
        llm = play(call("read", n=1), dear, "done")
        agent = Compaction(llm=llm, tools=[add, read], compaction=SMALL)
        assert await agent.query("x") == "done"
        assert any(isinstance(record, Summary) for record in agent.log)

    async def test_cached_tokens_are_not_counted_twice(self):
        cheap = AssistantMessage(
            tool_calls=(call("add", a=1, b=1),), usage=Usage(600, 10, cached_input_tokens=590)
        )
        agent = Compaction(llm=play(cheap, "done"), tools=[add], compaction=SMALL)
        await agent.query("x")
        assert not any(isinstance(record, Summary) for record in agent.log)

    @pytest.mark.parametrize("off", [None, CompactionConfig(context_window=10, enabled=False)])
    async def test_it_can_be_turned_off(self, off):
        llm = play(call("read", n=1), "done")
        await Compaction(llm=llm, tools=[read], compaction=off).query("x")
        assert len(llm.requests) == 2

    @pytest.mark.parametrize("wrong", [True, 0.8, {}])
    def test_the_setting_is_checked(self, wrong):
        with pytest.raises(TypeError, match="CompactionConfig"):
            Compaction(llm=ScriptedModel(), compaction=wrong)

    def test_the_ratio_is_checked(self):
        with pytest.raises(ValueError, match="threshold_ratio"):
            CompactionConfig(threshold_ratio=80)

    def test_nothing_is_unseen_in_an_empty_log(self):
        assert first_unseen([]) == 0

    async def test_a_provider_that_reports_zero_tokens_is_compacted_all_the_same(self):
        def free(n):
            return AssistantMessage(tool_calls=(call("read", n=n),), usage=Usage())

        agent = Compaction(llm=play(*map(free, range(4)), "done"), tools=[read], compaction=SMALL)
        assert await agent.query("x") == "done"
        assert any(isinstance(record, Summary) for record in agent.log)

    async def test_results_that_no_request_can_hold_do_not_wedge_the_agent(self):
        def answer(messages, tools):
            if sum(len(message.text) for message in messages) > 20_000:
                return ContextWindowExceeded("too long")
            if messages[-1].text == SUMMARY_PROMPT:
                return "SUMMARY"
            return "fine" if len(messages) > 1 else [call("huge")] * 8

        @tool("Huge")
        async def huge() -> str:
            return "x" * 10_000

        agent = Compaction(llm=ScriptedModel(answer), tools=[huge])
        assert await agent.query("x") == "fine"
        assert await agent.query("again") == "fine"

    @pytest.mark.parametrize("summary", ["SUMMARY", ""])
    async def test_a_window_that_is_always_full_does_not_cost_a_summary_a_turn(self, summary):
        llm = play(*(call("add", a=n, b=n) for n in range(20)), "done", summary=summary)
        agent = Compaction(
            llm=llm, tools=[add], compaction=SMALL, system_prompt="word " * 1000, max_iterations=30
        )
        assert await agent.query("x") == "done"
        assert len(llm.requests) <= 21 + 6
