"""Combined mixins: additions, deletions and changes of one mixin apply to all others."""

import asyncio

import pytest

from agentloop import (
    Agent,
    AssistantMessage,
    CompactionConfig,
    Mark,
    MessageQueue,
    ScriptedModel,
    Session,
    ToolMessage,
    Usage,
    UserMessage,
    list_sessions,
    tool,
)
from agentloop.common.store import read_log
from agentloop.common.typed_answer import TypedAnswer
from agentloop.messages import frozen
from agentloop.mixins.compaction import SUMMARY_PROMPT
from agentloop.mixins.hooks import Hook, Hooks
from agentloop.models.scripted import call


def judge(data):
    return {"decision": "block", "reason": "no"} if "SECRET" in data["prompt"] else None


@pytest.mark.parametrize("bases", [(Session, MessageQueue, Agent), (MessageQueue, Session, Agent)])
def test_a_message_sent_during_a_run_is_saved_in_the_session_once(tmp_path, bases):
    def last_words(messages, tools):
        agent.send("one thing more")
        return "done"

    agent = type("Steered", bases, {})(
        llm=ScriptedModel(last_words, "done"), session="s", session_dir=tmp_path
    )
    agent.run_sync("go")
    agent.close()
    assert read_log(tmp_path / "s.jsonl") == agent.log


@pytest.mark.parametrize("bases", [(Hooks, MessageQueue, Agent), (MessageQueue, Hooks, Agent)])
def test_a_message_sent_during_a_run_is_checked_by_prompt_hooks(bases):
    @tool("Send")
    def send() -> str:
        agent.send("SECRET")
        return "sent"

    llm = ScriptedModel(call("send"), "never asked")
    agent = type("Gated", bases, {})(llm=llm, tools=[send], hooks=[Hook("UserPromptSubmit", judge)])
    assert agent.run_sync("go").stop_reason == "refused"
    assert "SECRET" not in str([request.messages for request in llm.requests])


def test_names_from_a_refused_prompt_are_not_retained_by_compaction():
    class Budgeted(Hooks, Agent):
        context_budget = 400

    llm = ScriptedModel(lambda messages, tools: "order_77 " + "word " * 200)
    agent = Budgeted(llm=llm, hooks=[Hook("UserPromptSubmit", judge)])
    for prompt in ("order_1", "my password is SECRET_1", *map("order_{}".format, range(2, 9))):
        agent.run_sync(prompt)
    seen = str([request.messages for request in llm.requests])
    assert "order_1" in seen
    assert "SECRET_1" not in seen


def test_a_refused_prompt_is_not_the_first_task_of_a_summary():
    class Gated(Hooks, Agent): ...

    def answer(messages, tools):
        return "so far" if messages[-1].text == SUMMARY_PROMPT else "word " * 200

    llm = ScriptedModel(answer)
    agent = Gated(llm=llm, hooks=[Hook("UserPromptSubmit", judge)])
    for prompt in ("SECRET_1", "The task", "one", "two", "three", "four"):
        agent.run_sync(prompt)
    assert asyncio.run(agent.compact())
    assert agent.messages[0].text == "The task"


def test_messages_that_an_entry_took_out_stay_out_after_a_summary():
    @frozen
    class Cleared(Mark):
        def apply(self, conversation):
            conversation.show([UserMessage("A new matter.", "program")])

    def answer(messages, tools):
        return "so far" if messages[-1].text == SUMMARY_PROMPT else "word " * 200

    agent = Agent(llm=ScriptedModel(answer), compaction=CompactionConfig(keep_turns=1))
    agent.run_sync("The old matter")
    agent.record(Cleared())
    for prompt in ("one", "two", "three"):
        agent.run_sync(prompt)
    assert asyncio.run(agent.compact())
    texts = [message.text[:25] for message in agent.messages]
    assert texts == ["one", "Summary of the conversati", "two", "word " * 5, "three", "word " * 5]


@pytest.mark.parametrize("text", ['5, "result": 6', '[1], "result": [2]'])
def test_an_answer_cannot_escape_the_result_field(text):
    with pytest.raises(Exception, match="JSON"):
        TypedAnswer(int).parse(text)


class Saved(Session, Agent):
    pass


@tool(ephemeral=1)
def look() -> str:
    """Look."""
    return "x" * 8_000


@tool
def read() -> str:
    """Read what stays true."""
    return "y" * 20_000


async def test_an_agent_and_the_list_of_sessions_agree_after_clear_history(tmp_path):
    used = AssistantMessage("ok", usage=Usage(1000, 100))
    with Saved(llm=ScriptedModel(used), session="s", session_dir=tmp_path) as agent:
        await agent.run("go")
        agent.clear_history()
        [info] = list_sessions(tmp_path)
        assert agent.usage == info.usage


async def test_ephemeral_results_are_pruned_immediately_if_nothing_is_cached():
    calls = (call("look"), call("read"))
    script = [AssistantMessage("", calls, usage=Usage(9000 * at, 100)) for at in range(4)]
    llm = ScriptedModel(*script, "done")
    await Agent(llm=llm, tools=[look, read]).run("go")
    results = [m for m in llm.requests[-1].messages if isinstance(m, ToolMessage)]
    looks = [len(m.text) == 8_000 for m in results if m.tool_name == "look"]
    assert looks == [False, False, False, True]
