"""Compaction: a summary replaces older messages of the conversation."""

from dataclasses import replace
from math import nan
from typing import Annotated

import pytest

from agentloop import (
    Agent,
    Compaction,
    CompactionConfig,
    Depends,
    MessageQueue,
    ScriptedModel,
    current_agent,
    tool,
    validate_messages,
)
from agentloop.common.summary import SUMMARY_INTRO, Summary
from agentloop.common.tokens import message_tokens, tool_tokens
from agentloop.common.turns import LEFT_OUT
from agentloop.errors import ContextWindowExceeded
from agentloop.events import CompactionEvent
from agentloop.messages import AssistantMessage, SystemMessage, Usage, UserMessage
from agentloop.mixins.compaction import SUMMARY_PROMPT
from agentloop.models.scripted import assert_prefix_stable, call
from tests.core import test_loop
from tests.core.test_loop import add, shown
from tests.helpers import read, summarizing, words

SMALL = CompactionConfig(context_window=1000)
LONG = AssistantMessage(words(1_125), usage=Usage(100, 10))
CUT = AssistantMessage("cut", usage=Usage(100, 10), stop_reason="length")
RATES = [0.4, 0.5, 0.8, 1.0, 1.2, 1.6, 2.0, 3.0]  # tokens of the provider per counted token


def reads(first, end):
    return [call("read", n=n) for n in range(first, end)]


def make(*replies, compaction=SMALL, tools=(read,), summary="SUMMARY", window=10**6, **settings):
    llm = summarizing(*replies, summary=summary, window=window)
    return Compaction(llm=llm, tools=tools, compaction=compaction, **settings)


def summaries(agent):
    return [record for record in agent.log if isinstance(record, Summary)]


def summary_text(agent):
    return SUMMARY_INTRO + summaries(agent)[0].content


def summary_requests(agent):
    """Return the requests for a summary."""
    return [
        request for request in agent.llm.requests if request.messages[-1].text == SUMMARY_PROMPT
    ]


class Metered(ScriptedModel):
    """A model whose provider reports `rate` tokens for each estimated token."""

    def __init__(self, rate, *script):
        super().__init__(*script)
        self.rate, self.sizes = rate, []

    async def ainvoke(self, messages, tools=(), **options):
        size = round(self.rate * (message_tokens(messages) + tool_tokens(tools)))
        self.sizes.append(size)
        reply = await super().ainvoke(messages, tools, **options)
        return replace(reply, usage=Usage(size, 10))


@tool("Read a page")
def read_page(n: int) -> str:
    return f"{n} " + words(390)


class Small(ScriptedModel):
    """A model with a window of 2,000 tokens."""

    async def ainvoke(self, messages, *rest, **options):
        if message_tokens(messages) > 2_000:
            raise ContextWindowExceeded("too long")
        return await super().ainvoke(messages, *rest, **options)


class TestCompaction(test_loop.TestLoop):
    agent_class = Compaction

    async def test_the_conversation_is_summarized_near_the_context_window(self):
        summary = AssistantMessage("SUMMARY", usage=Usage(100, 10))
        agent = make(*reads(1, 3), "done", system_prompt="Be good.", summary=summary)
        assert await agent.query("The task") == "done"
        assert agent.usage == Usage(100, 10)
        _, before, ask, last = agent.llm.requests
        assert shown(last)[:2] == ["Be good.", "The task"]
        assert shown(last)[2].endswith("SUMMARY")
        assert shown(last)[4].startswith("2 word"), "a result without a reply is retained verbatim"
        assert len(last.messages) == 5
        assert ask.messages[:-1] == before.messages, "the summary request reads the cached prefix"
        assert (ask.tools, ask.tool_choice) == (before.tools, "auto")

    async def test_the_task_and_messages_of_this_run_survive_every_summary(self):
        @tool("Read a lot")
        async def read(n: int) -> str:
            if n == 1:
                agent.send("Leave the tests alone.")
                agent.send("(a reminder)", hidden=True)
            if n == 3:
                agent.send("And be quick.")
            return f"{n} " + words(375)

        llm = summarizing("one", "two", *reads(0, 9), "done")
        agent = type("Steered", (MessageQueue, Compaction), {})(
            llm=llm, tools=[read], compaction=SMALL
        )
        for prompt in ("The task", "An older question", "The newest question"):
            await agent.query(prompt)
        assert len(summaries(agent)) >= 3
        task, summary, *texts = shown(llm.requests[-1])
        assert task == "The task"
        assert summary.endswith("SUMMARY")
        assert texts[:3] == ["The newest question", "Leave the tests alone.", "And be quick."]
        assert not {*texts[3:]} & {*texts[:3], task, "An older question", "(a reminder)"}
        assert all("The newest question" in shown(request) for request in llm.requests[2:])
        assert all("Leave the tests alone." in shown(request) for request in llm.requests[5:])
        assert_prefix_stable(llm.requests, breaks=len(summaries(agent)))

    async def test_instructions_added_to_the_log_survive_every_summary(self):
        agent = make("one", *reads(0, 4), "done", *reads(4, 9), "done", system_prompt="Be good.")
        await agent.query("The task")
        agent.add(SystemMessage("Answer in French."))
        await agent.query("Go on.")
        agent.add(SystemMessage("Be brief."))
        await agent.query("The newest question")
        assert len(summaries(agent)) >= 3
        last = agent.llm.requests[-1].messages
        told = [SystemMessage("Answer in French."), SystemMessage("Be brief.")]
        assert [*last[:4]] == [SystemMessage("Be good."), UserMessage("The task"), *told]
        assert last[4].text.endswith("SUMMARY")
        assert last[5].text == "The newest question"
        assert last.count(told[0]) == 1

    async def test_a_retained_prompt_does_not_count_as_tokens_freed_by_a_summary(self):
        agent = make("one", call("add", a=1, b=1), call("add", a=1, b=2), "done", tools=[add])
        await agent.query("The task")
        long = words(875)
        assert await agent.query(long) == "done"
        assert long in shown(agent.llm.requests[-1])
        assert summary_requests(agent) == []

    @pytest.mark.parametrize("summary", ["", "  ", RuntimeError("down"), CUT, LONG])
    async def test_an_unusable_summary_changes_nothing(self, summary, caplog):
        agent = make(*reads(1, 3), "done", summary=summary)
        assert await agent.query("x") == "done"
        assert not summaries(agent)
        assert len(agent.llm.requests[-1].messages) == 5
        assert "summar" in caplog.text
        paid = CUT.usage if summary in (CUT, LONG) else Usage()
        assert agent.usage == paid

    @pytest.mark.parametrize("config", [None, CompactionConfig(keep_turns=0)])
    async def test_compact_summarizes_on_demand(self, config):
        agent = make(*reads(1, 2), "one", "two", compaction=config, system_prompt="Be good.")
        assert not await agent.compact(), "nothing to summarize yet"
        await agent.query("The task")
        events = []
        agent.listeners = [events.append]
        assert await agent.compact()
        [event] = [event for event in events if isinstance(event, CompactionEvent)]
        assert event.tokens_after < event.tokens_before
        assert len(summary_requests(agent)) == 1
        await agent.query("More")
        first, task, summary, *_, more = shown(agent.llm.requests[-1])
        assert [first, task, more] == ["Be good.", "The task", "More"]
        assert summary.endswith("SUMMARY")
        assert not any(text.startswith("1 word") for text in shown(agent.llm.requests[-1]))

    async def test_a_history_that_was_cleared_meanwhile_gets_no_summary(self):
        def summarize(messages, tools):
            agent.clear_history()
            return "SECRET"

        agent = Agent(llm=ScriptedModel(*reads(1, 3), "done", summarize), tools=[read])
        await agent.query("The task")
        assert not await agent.compact()
        assert agent.messages == ()

    async def test_a_history_that_another_thread_replaces_before_the_request_gets_no_summary(self):
        class Replaced(Agent):
            async def context(self):
                messages = await super().context()
                if self.log and not self.running:
                    self.load_history(other.messages)
                return messages

        llm = ScriptedModel(*reads(1, 3), "done", "SECRET")
        other = Agent(llm=ScriptedModel(*reads(1, 9), "done"), tools=[read])
        agent = Replaced(llm=llm, tools=[read], compaction=CompactionConfig(keep_turns=0))
        await other.query("Another task")
        await agent.query("The task")
        assert not await agent.compact()
        assert agent.messages == other.messages

    @pytest.mark.parametrize("config", [None, CompactionConfig()])
    async def test_a_tool_may_ask_for_a_summary_before_the_next_request(self, config):
        summarized = []

        @tool("Summarize the conversation")
        async def compact(agent: Annotated[Compaction, Depends(current_agent)]) -> None:
            summarized.append(await agent.compact())

        script = [*reads(0, 6), call("compact"), *reads(6, 7), "done"]
        agent = make(*script, tools=[read, compact], compaction=config)
        assert await agent.query("The task") == "done"
        assert summarized == [False], "not yet"
        assert len(summary_requests(agent)) == len(summaries(agent)) == 1
        asked = agent.llm.requests.index(summary_requests(agent)[0])
        assert agent.llm.requests[asked].messages[-2].text.startswith("5 word")
        assert shown(agent.llm.requests[asked + 1])[:2] == ["The task", summary_text(agent)]
        assert_prefix_stable(agent.llm.requests, breaks=1)

    async def test_a_summary_that_a_tool_asked_for_comes_before_turns_are_dropped(self):
        @tool("Summarize the conversation")
        async def compact(agent: Annotated[Compaction, Depends(current_agent)]) -> str:
            await agent.compact()
            return words(900)  # too long for the budget

        llm = summarizing(*reads(0, 3), call("compact"), "done")
        agent = Agent(llm=llm, tools=[read, compact], context_budget=2_000)
        assert await agent.query("The task") == "done"
        assert [record.content for record in summaries(agent)] == ["SUMMARY"]

    async def test_a_request_that_is_refused_again_ends_the_run_as_context_overflow(self):
        too_long = ContextWindowExceeded("too long")
        agent = Compaction(llm=ScriptedModel(call("read", n=1), too_long, "so far", too_long))
        agent.tools = [read]
        result = await agent.run("x")
        assert result.stop_reason == "context_overflow"

    async def test_a_request_that_is_too_long_is_summarized_and_retried(self):
        script = [call("add", a=1, b=1), ContextWindowExceeded("too long"), "done"]
        agent = make(*script, tools=[add], compaction=CompactionConfig())
        assert await agent.query("x") == "done"
        assert any("SUMMARY" in text for text in shown(agent.llm.requests[-1]))

    async def test_the_reported_usage_outranks_the_estimate(self):
        dear = AssistantMessage(tool_calls=(call("add", a=1, b=1),), usage=Usage(900, 10))
        agent = make(*reads(1, 2), dear, "done", tools=[add, read])
        assert await agent.query("x") == "done"
        assert summaries(agent)

    def test_invalid_settings_are_errors(self):
        for name, wrong in {"keep_turns": -1, "context_window": 0, "threshold_ratio": nan}.items():
            with pytest.raises(ValueError, match=name):
                CompactionConfig(**{name: wrong})

    async def test_compaction_can_be_disabled(self):
        agent = make(*reads(1, 2), "done", compaction=None)
        await agent.query("x")
        assert len(agent.llm.requests) == 2

    async def test_compaction_is_disabled_if_the_provider_compacts(self):
        agent = make(*reads(1, 2), "done")
        agent.llm.compact_threshold = 50_000
        await agent.query("x")
        assert len(agent.llm.requests) == 2

    async def test_results_that_exceed_every_request_do_not_block_the_agent(self):
        huge = tool("Huge", name="huge")(lambda: words(2_500))
        settings = {"tools": [huge], "window": 5_000, "compaction": CompactionConfig()}
        agent = make([call("huge")] * 8, "fine", "fine", **settings)
        assert await agent.query("x") == "fine"
        assert await agent.query("again") == "fine"

    @pytest.mark.parametrize("summary", ["SUMMARY", ""])
    async def test_a_context_that_is_always_full_is_not_compacted_every_turn(self, summary):
        adds = [call("add", a=n, b=n) for n in range(20)]
        config = CompactionConfig(context_window=1500)
        settings = {"tools": [add], "system_prompt": words(1_250)}
        agent = make(*adds, "done", summary=summary, compaction=config, **settings)
        assert await agent.query("x") == "done"
        assert len(summary_requests(agent)) <= 6
        assert len(summaries(agent)) <= 6

    async def test_a_failed_summary_is_retried_once_in_the_run_and_again_in_the_next(self):
        config = CompactionConfig(context_window=5_000, threshold_ratio=0.1)
        agent = make(*reads(0, 9), "done", "x", summary="", compaction=config)
        for prompt, times in (("x", 2), ("y", 3)):
            await agent.query(prompt)
            assert len(summary_requests(agent)) == times

    async def test_the_oldest_turns_are_dropped_with_an_event_if_no_summary_helps(self):
        settings = {"compaction": CompactionConfig(), "system_prompt": "Be good."}
        agent = make(*reads(0, 6), "done", summary="", window=1_500, **settings)
        events = [event async for event in agent.query_stream("The task")]
        assert events[-1].content == "done"
        cut = [event for event in events if isinstance(event, CompactionEvent)]
        assert cut
        assert all(event.summary.startswith(LEFT_OUT) for event in cut)
        assert "0 word" not in " ".join(shown(agent.llm.requests[-1]))
        assert cut[0].tokens_before > 1_500 > cut[0].tokens_after
        last = shown(agent.llm.requests[-1])
        assert last[:2] == ["Be good.", "The task"]
        assert last[-1].startswith("5 word")

    async def test_an_older_summary_is_retained_when_later_turns_are_dropped(self):
        agent = make(*reads(0, 3), "one", *reads(3, 9), "two", window=1_500)
        await agent.query("The task")
        agent.compaction = CompactionConfig(model=ScriptedModel("", ""))
        await agent.query("More")
        contents = [record.content for record in summaries(agent)]
        assert len(contents) > 1
        assert {content.partition("\n")[0] for content in contents} == {"SUMMARY"}

    @pytest.mark.parametrize("rate", [0.6, 3.0])
    async def test_the_threshold_of_a_summary_uses_the_tokens_counted_by_the_provider(self, rate):
        def answer(messages, tools):
            if messages[-1].text == SUMMARY_PROMPT:
                return "SUMMARY"
            return next(script)

        script = iter([*(call("read_page", n=n) for n in range(200)), "done"])
        llm = Metered(rate, answer)
        config = CompactionConfig(context_window=40_000)
        agent = Compaction(llm=llm, tools=[read_page], compaction=config, max_iterations=400)
        assert await agent.query("The task") == "done"
        assert summaries(agent)
        assert max(llm.sizes) <= 1.05 * 0.8 * 40_000

    @pytest.mark.parametrize(("limit", "summarized"), [(None, False), (60_000, True)])
    async def test_the_threshold_reserves_the_largest_output(self, limit, summarized):
        class Limited(ScriptedModel):
            output_limit = limit

        def answer(messages, tools):
            return "SUMMARY" if messages[-1].text == SUMMARY_PROMPT else next(script)

        script = iter([*(call("read_page", n=n) for n in range(120)), "done"])
        config = CompactionConfig(context_window=100_000)
        agent = Compaction(llm=Limited(answer), tools=[read_page], compaction=config)
        assert await agent.query("x") == "done"
        assert bool(summaries(agent)) == summarized

    async def test_a_run_without_turns_to_drop_ends_with_context_overflow(self):
        agent = make(ContextWindowExceeded("prompt is too long"))
        result = await agent.run("x")
        assert result.stop_reason == "context_overflow"
        assert "prompt is too long" in result.text
        assert len(agent.llm.requests) == 1
        assert validate_messages([*agent.messages, UserMessage("go on")]) == []

    async def test_all_older_turns_of_a_rejected_request_are_dropped_if_necessary(self):
        agent = Compaction(llm=Small("one", "two", "three", "four"))
        await agent.query("The task")
        await agent.query(words(500))
        await agent.query("And?")
        assert await agent.query("words " * 1_800) == "four"
        assert "word word" not in " ".join(shown(agent.llm.requests[-1]))

    async def test_long_notes_are_cut_in_the_summary_of_a_refused_request(self):
        agent = Compaction(llm=Small("one", "a summary", "two"))
        await agent.query("The task")
        agent.add_note(words(1_500))
        agent.add_note(words(1_500))
        assert await agent.query("And?") == "two"

    async def test_large_turns_are_not_retained_after_a_summary(self):
        much = tool("Much", name="much")(lambda: "a " * 25_000)
        few = tool("Few", name="few")(lambda: words(125))
        for last_tool, turns in ((much, 1), (few, 3)):
            calls = [call("much")] * 4 + [call(last_tool.name)] * 2 + [call("much")]
            agent = make(*calls, "done", tools=[much, few], compaction=CompactionConfig())
            await agent.query("x")
            summary = summaries(agent)[0]
            at = agent.log.index(summary)
            replies = [
                r for r in agent.log[summary.kept_from : at] if isinstance(r, AssistantMessage)
            ]
            assert len(replies) == turns

    async def test_a_separate_model_may_write_the_summary(self):
        cheap = ScriptedModel(AssistantMessage("CHEAP", usage=Usage(50, 5)), model="cheap")
        config = CompactionConfig(context_window=1_000, model=cheap)
        agent = make(*reads(1, 3), "done", compaction=config)
        assert await agent.query("x") == "done"
        [summary] = summaries(agent)
        assert (summary.content, summary.model, summary.usage) == ("CHEAP", "cheap", Usage(50, 5))
        assert summary_requests(agent) == []

    async def test_an_unknown_window_counts_as_128000_tokens_with_one_warning(self, caplog):
        much = tool("Much", name="much")(lambda: words(18_750))
        for config in (CompactionConfig(), CompactionConfig(context_window=9)):
            agent = make(*[call("much")] * 14, "done", tools=[much], compaction=config)
            agent.llm.model = f"nobody-knows-{config.context_window}"
            assert await agent.query("x") == "done"
            assert summaries(agent)
        assert caplog.text.count("context window of") == 1
        assert "CompactionConfig(context_window=" in caplog.text


class Unprintable(Exception):
    def __str__(self):
        raise RuntimeError("no text")


async def test_a_summary_error_without_a_message_does_not_end_the_run():
    def reply(messages, tools):
        if "Write a summary" in messages[-1].text:
            raise Unprintable
        return words(100)

    agent = Agent(llm=ScriptedModel(reply), compaction=CompactionConfig(context_window=200))
    for prompt in "abcd":
        assert (await agent.run(prompt)).stop_reason == "completed"
