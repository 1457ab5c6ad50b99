"""CacheMonitor: each request is compared with the previous request."""

from agentloop import Agent, CompactionConfig, Ephemeral, Request, ScriptedModel, ToolCall, tool
from agentloop.common.tokens import message_tokens, tool_tokens
from agentloop.messages import AssistantMessage, Message, ToolMessage, UserMessage
from agentloop.models.scripted import call
from tests.core import test_loop
from tests.core.test_loop import add
from tests.helpers import read
from tests.recipes import load

recipe = load("cache_monitor")
CacheMonitor, RequestEvent, compare = recipe.CacheMonitor, recipe.RequestEvent, recipe.compare


class Metered(Agent, CacheMonitor):
    """CacheMonitor as the last base, next to the model."""


async def play(agent):
    events = [event async for event in agent.query_stream("x")]
    return [event for event in events if isinstance(event, RequestEvent)]


class TestCacheMonitor(test_loop.TestLoop):
    agent_class = CacheMonitor
    largest_fork = 1100  # includes the dict of requests

    async def test_the_events_of_a_run_in_order(self):
        agent, _ = self.make(call("add", a=1, b=1), "2", tools=[add])
        events = [event async for event in agent.query_stream("x")]
        assert [at for at, event in enumerate(events) if isinstance(event, RequestEvent)] == [0, 5]

    async def test_a_request_event_counts_the_messages_and_tokens_kept_from_the_last_request(self):
        llm = ScriptedModel(call("add", a=1, b=2), call("add", a=1, b=2), "3")
        sent = await play(Metered(llm=llm, tools=[add], system_prompt="Be good."))
        counts = [(event.messages, event.kept, event.tokens_again) for event in sent]
        assert counts == [(2, 0, 0), (4, 2, 0), (6, 4, 0)]
        assert sent[0].tokens < sent[1].tokens < sent[2].tokens
        assert [event.tokens_kept for event in sent] == [0, sent[0].tokens, sent[1].tokens]

    async def test_a_request_event_counts_the_tokens_that_are_billed_again_after_a_prune(self):
        @tool("Look", ephemeral=1)
        async def look() -> str:
            return "x" * 4_000

        @tool("Note")
        async def note() -> str:
            return "y" * 4_000

        class Pruning(Ephemeral, CacheMonitor):
            ephemeral_batch = 1

        llm = ScriptedModel(call("look"), call("note"), call("look"), "ok")
        sent = await play(Pruning(llm=llm, tools=[look, note]))
        assert [event.kept for event in sent] == [0, 1, 3, 2]
        calls = [AssistantMessage(tool_calls=(ToolCall("", name),)) for name in ("look", "note")]
        again = [UserMessage("x"), *calls, ToolMessage("", "note", "y" * 4_000)]
        assert [event.tokens_again for event in sent] == [0, 0, 0, sum(map(message_tokens, again))]
        assert sent[3].tokens_kept == tool_tokens([look, note]), (
            "cache entries end at cache marks only"
        )

    def test_a_change_of_tools_or_tool_choice_invalidates_the_complete_prefix(self):
        a, b = UserMessage("a " * 10), UserMessage("b")
        before = Request([a], (add,))
        assert compare(Request([a, b], (add,)), before).tokens_kept == 14 + tool_tokens([add])
        for other in (Request([a, b]), Request([a, b], (add,), "required")):
            event = compare(other, before)
            assert (event.kept, event.tokens_kept, event.tokens_again) == (0, 0, 14)

    async def test_a_side_request_is_compared_with_the_last_request_to_the_same_model(self):
        cheap = ScriptedModel("SUMMARY", "SUMMARY", model="cheap")
        llm = ScriptedModel(*(call("read", n=n) for n in range(4)), "ok")
        config = CompactionConfig(context_window=1_500, model=cheap, keep_turns=1)
        sent = await play(Metered(llm=llm, tools=[read], compaction=config))
        side = [at for at, event in enumerate(sent) if event.purpose == "compaction"]
        assert sent[side[0]].kept == 0
        assert sent[side[0] + 1].kept == 1, "the first task"

    async def test_only_new_messages_are_counted_even_if_a_prune_changes_a_message(
        self, monkeypatch
    ):
        counted = [0]

        def count(message):
            counted[-1] += isinstance(message, Message)
            return message_tokens(message)

        async def answer(messages, tools):
            counted.append(0)
            return call("look") if len(messages) < 200 else "done"

        @tool("Look", ephemeral=3)
        async def look() -> str:
            return "x" * 4_000

        class Pruning(Ephemeral, CacheMonitor):
            ephemeral_batch = 1

        monkeypatch.setattr(recipe, "message_tokens", count)
        await play(Pruning(llm=ScriptedModel(answer), tools=[look], max_iterations=200))
        assert len(set(counted[5:-1])) == 1  # the same count in early and late requests
