"""Thinking that the provider binds to its prefix: sent back where it's valid, omitted elsewhere.

The double seals each thinking block with a hash of everything before it, as the newest Claude
models do, and refuses a request with a block behind a changed prefix.
"""

import pytest

from agentloop import (
    Agent,
    ChatAnthropic,
    CompactionConfig,
    Loop,
    SystemMessage,
    ToolCall,
    UserMessage,
    load_record,
    tool,
)
from agentloop.common.records import dump_record
from agentloop.mixins.compaction import Compaction
from agentloop.mixins.continuation import Continuation
from agentloop.mixins.done import DoneTool
from agentloop.mixins.ephemeral import Ephemeral
from agentloop.mixins.histories import Histories
from agentloop.mixins.instruction_files import InstructionFiles
from agentloop.mixins.message_queue import MessageQueue
from agentloop.models.fallback import Fallback
from agentloop.models.scripted import ScriptedModel
from agentloop.toolkits.search import ToolSearch
from agentloop.toolkits.todo import Todo
from tests.doubles.anthropic_double import AnthropicDouble, redacted, thought
from tests.doubles.openai_double import Failure, Reply
from tests.doubles.wires import Naps

MODEL = "claude-opus-5-5"


@tool("Look", ephemeral=2)
async def look(n: int) -> str:
    return f"{n} " + "word " * 400


@tool("Note")
async def note(n: int) -> str:
    return f"noted {n}"


def thinks(n, name="look"):
    return Reply(calls=[(name, {"n": n})], thinking=f"thought {n}", usage=None)


def thoughts(body):
    """Return the thoughts in a request."""
    blocks = [block for message in body["messages"] for block in message["content"]]
    return [block["thinking"] for block in blocks if block["type"] == "thinking"]


def model(server, name=MODEL, **settings):
    return ChatAnthropic(name, base_url=server.url, api_key="k", sleep=Naps(), **settings)


class Plain(Continuation, Histories, Loop): ...


class Script:
    """Runs agents against one double, and returns the thoughts of each request."""

    def __init__(self, *replies):
        self.server = AnthropicDouble(replies)

    async def __aenter__(self):
        await self.server.__aenter__()
        return self

    async def __aexit__(self, *error):
        await self.server.__aexit__(*error)
        assert self.server.refusals == []

    def agent(self, agent_class=Plain, **settings):
        settings = {"tools": [look, note], "system_prompt": "Be good.", **settings}
        return agent_class(llm=model(self.server), **settings)

    @property
    def thoughts(self):
        return [thoughts(request) for request in self.server.requests]


async def test_all_thinking_is_sent_back_while_the_prefix_is_unchanged():
    async with Script(thinks(1), thinks(2), thinks(3), Reply("ok", thinking="4"), "ok") as script:
        agent = script.agent()
        await agent.run("go")
        await agent.run("again")
    assert [len(each) for each in script.thoughts] == [0, 1, 2, 3, 4]


async def test_pruned_results_drop_only_the_thinking_behind_them():
    async with Script(*map(thinks, range(8)), "ok") as script:
        await script.agent(Ephemeral, ephemeral_batch=1).run("go")
    sent = script.thoughts
    assert sent[2] == ["thought 0", "thought 1"]
    # the first result is hidden from now on: the first thought stands before it, the second behind
    assert sent[3] == ["thought 0"]
    assert sent[4] == ["thought 0"]


async def test_thinking_produced_after_a_change_stays():
    async with Script(thinks(1), "ok", thinks(2, "note"), thinks(3, "note"), "ok") as script:
        agent = script.agent()
        await agent.run("go")
        agent.system_prompt = "Be brief."
        await agent.run("again")
    assert script.thoughts == [[], ["thought 1"], [], ["thought 2"], ["thought 2", "thought 3"]]


async def test_a_restored_system_prompt_restores_its_thinking():
    async with Script(thinks(1), "ok", "ok", "ok") as script:
        agent = script.agent()
        await agent.run("go")
        for prompt in ("Be brief.", "Be good."):
            agent.system_prompt = prompt
            await agent.run("again")
    assert script.thoughts == [[], ["thought 1"], [], ["thought 1"]]


async def test_changed_tools_drop_all_earlier_thinking():
    async with Script(thinks(1), "ok", thinks(2), "ok") as script:
        agent = script.agent()
        await agent.run("go")
        agent.tools = [look]
        await agent.run("again")
    assert script.thoughts == [[], ["thought 1"], [], ["thought 2"]]


async def test_compaction_drops_thinking_behind_the_summary():
    def answer(body):
        if "tool_choice" in body or "summar" in str(body["messages"][-1]).lower():
            return "SUMMARY"
        return thinks(len(script.server.requests), "look")

    async with Script(*[answer] * 10) as script:
        agent = script.agent(
            Compaction, compaction=CompactionConfig(context_window=1200), max_iterations=5
        )
        await agent.run("go")
    assert any("SUMMARY" in str(request) for request in script.server.requests)
    assert script.thoughts[3:6] == [["thought 1", "thought 2"], [], ["thought 5"]]


@pytest.mark.parametrize("budget", [1_000, 2_000])
async def test_a_context_budget_ends_no_run(budget):
    async with Script(*map(thinks, range(12)), "ok") as script:
        agent = script.agent(Agent, context_budget=budget)
        assert (await agent.run("go")).text == "ok"


@pytest.mark.parametrize(
    "mixin", [Ephemeral, Compaction, MessageQueue, InstructionFiles, Todo, Agent]
)
async def test_no_mixin_sends_thinking_behind_a_changed_prefix(mixin, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "AGENTS.md").write_text("Be brief.")
    async with Script(*map(thinks, range(6)), "ok", *map(thinks, range(6)), "ok") as script:
        agent = script.agent(mixin)
        for _ in range(2):
            assert (await agent.run("go")).text == "ok"
    assert len(script.thoughts[3]) >= 1


async def test_a_done_tool_keeps_the_thinking():
    done = Reply(calls=[("done", {"message": "ok"})], thinking="thought 2")
    async with Script(thinks(1), "not yet", done) as script:
        await script.agent(DoneTool, require_done_tool=True).run("go")
    assert script.thoughts == [[], ["thought 1"], ["thought 1"]]


async def test_a_message_sent_during_a_run_keeps_the_thinking():
    class Sends(MessageQueue):
        async def call_tool(self, call):
            self.send("hurry")
            return await super().call_tool(call)

    async with Script(thinks(1, "note"), thinks(2, "note"), "ok") as script:
        await script.agent(Sends).run("go")
    assert script.thoughts[-1] == ["thought 1", "thought 2"]


async def test_a_tool_search_keeps_the_thinking():
    later = [tool("Paint", name="paint")(lambda: "")]
    search = Reply(calls=[("search_tools", {"query": "paint"})], thinking="thought 1")

    class Searcher(ToolSearch, Agent): ...

    async with Script(search, thinks(2, "note"), "ok") as script:
        await script.agent(Searcher, searchable_tools=later).run("go")
    assert script.thoughts == [[], ["thought 1"], ["thought 1", "thought 2"]]


async def test_a_reopened_history_keeps_its_thinking():
    async with Script(thinks(1), thinks(2), "ok", "ok") as script:
        agent = script.agent()
        await agent.run("go")
        lines = [dump_record(message) for message in agent.messages]
        other = script.agent()
        other.load_history([load_record(line) for line in lines])
        await other.run("again")
    assert script.thoughts[-1] == ["thought 1", "thought 2"]


async def test_a_shortened_history_keeps_the_thinking_before_the_cut():
    async with Script(thinks(1), thinks(2), "ok", "ok") as script:
        agent = script.agent()
        await agent.run("go")
        other = script.agent()
        other.load_history([*agent.messages[:3], UserMessage("enough")])
        await other.run()
    assert script.thoughts[-1] == ["thought 1"]


async def test_a_history_without_its_beginning_has_no_thinking():
    async with Script(thinks(1), thinks(2), "ok", "ok") as script:
        agent = script.agent()
        await agent.run("go")
        other = script.agent()
        other.load_history([UserMessage("earlier"), *agent.messages[3:]])
        await other.run("again")
    assert script.thoughts[-1] == []


async def test_empty_truncated_and_redacted_replies_keep_what_follows_valid():
    replies = [
        Reply(blocks=[redacted("r"), thought("a")], finish="length"),
        Reply(blocks=[thought("b"), {"type": "text", "text": "I look."}], finish="length"),
        Reply(blocks=[thought("c")]),
        thinks(1),
        "ok",
    ]
    async with Script(*replies) as script:
        agent = script.agent()
        for _ in range(3):
            await agent.run("go")
    assert script.thoughts[-1][-1] == "thought 1"


@pytest.mark.parametrize("hidden", [False, True])
async def test_a_paused_reply_keeps_its_thinking_unless_a_result_before_it_changes(hidden):
    search = {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}}
    found = {"type": "web_search_tool_result", "tool_use_id": "s", "content": []}
    paused = Reply(blocks=[thought("p"), search], finish="pause_turn")
    ended = Reply(blocks=[found, thought("q"), {"type": "text", "text": "ok"}])
    async with Script(thinks(1), paused, ended, "ok") as script:
        agent = script.agent()
        await agent.run("go")
        messages = [*agent.messages]
        if hidden:
            messages[2] = ToolCall("toolu_1_0", "look").answer("hidden")
        other = script.agent()
        other.load_history(messages)
        await other.run("again")
    assert script.thoughts[2] == ["thought 1", "p"]
    assert script.thoughts[3] == (["thought 1"] if hidden else ["thought 1", "p", "q"])


async def test_an_interrupted_run_continues_with_its_thinking():
    async with Script(thinks(1), Failure(400, "stop"), thinks(2), "ok") as script:
        agent = script.agent()
        with pytest.raises(Exception, match="stop"):
            await agent.run("go")
        await agent.run()
    assert script.thoughts == [[], ["thought 1"], ["thought 1"], ["thought 1", "thought 2"]]


async def test_thinking_of_an_older_model_is_sent_to_a_newer_one_only_with_a_known_prefix():
    async with Script(thinks(1), "ok", "ok") as script:
        agent = script.agent()
        agent.llm = model(script.server, "claude-opus-4-8")
        await agent.run("go")
        agent.llm = model(script.server)
        await agent.run("again")
    assert script.thoughts == [[], ["thought 1"], []]


async def test_an_older_model_gets_all_thinking_behind_a_changed_prefix():
    async with Script(*map(thinks, range(8)), "ok") as script:
        agent = script.agent(Ephemeral, ephemeral_batch=1)
        agent.llm = model(script.server, "claude-opus-4-8")
        await agent.run("go")
    assert len(script.thoughts[-1]) == 8


async def test_a_reply_of_another_model_in_between_drops_the_thinking_behind_it():
    async with Script(thinks(1), thinks(2), "ok", "ok") as script:
        agent = script.agent()
        await agent.run("go")
        llm = agent.llm
        agent.llm = Fallback(ScriptedModel("other"))
        await agent.run("you?")
        agent.llm = llm
        await agent.run("again")
    assert script.thoughts[-1] == ["thought 1", "thought 2"]


async def test_the_cache_marks_are_no_change():
    async with Script(*(thinks(n, "note") for n in range(6)), "ok") as script:
        agent = script.agent()
        await agent.run("go")
        agent.llm = model(script.server, cache="1h")
        script.server.replies.append("ok")
        await agent.run("again")
    assert len(script.thoughts[-1]) == 6


async def test_messages_sent_directly_to_the_model_are_bound_too():
    async with Script("no", Reply("one", thinking="hm"), "two") as script:
        llm = model(script.server)
        start = [SystemMessage("s"), UserMessage("hi")]
        await llm.ainvoke(start)
        reply = await llm.ainvoke(start)
        await llm.ainvoke([*start, reply, UserMessage("and?")])
    assert script.thoughts[-1] == ["hm"]
