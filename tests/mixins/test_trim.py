"""Trim: what is old leaves when the conversation outgrows its budget, and no model is asked."""

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentloop import (
    Agent,
    AssistantMessage,
    CompactionConfig,
    CompactionEvent,
    Ephemeral,
    ImagePart,
    PruneEvent,
    ScriptedModel,
    SystemMessage,
    TextPart,
    ToolCall,
    ToolMessage,
    UserMessage,
    tool,
    validate,
)
from agentloop.mixins.compaction import SUMMARY_PROMPT, Compaction
from agentloop.mixins.memory import Memory
from agentloop.mixins.trim import Trim, TrimConfig, shortened, trim
from agentloop.models.scripted import call
from agentloop.tokens import message_tokens

from .. import test_loop
from ..test_loop import shown

SMALL = TrimConfig(budget=1_000, keep_turns=2)


@tool("Read a page")
async def read(n: int) -> str:
    return f"page {n} " + "word " * 100


def total(messages):
    return sum(message_tokens(message) for message in messages)


def turn(n, *results, text=""):
    """A reply that makes calls, and their results."""
    calls = [ToolCall(f"{n}.{i}", "read") for i in range(len(results))]
    given = zip(calls, results, strict=True)
    return [
        AssistantMessage(text, tool_calls=tuple(calls)),
        *(ToolMessage(each.id, "read", result) for each, result in given),
    ]


class TestTrim(test_loop.TestLoop):
    agent_class = Trim

    async def test_below_the_budget_nothing_changes(self):
        llm = ScriptedModel(*(call("read", n=n) for n in range(8)), "ok")
        agent = Trim(llm=llm, tools=[read])
        await agent.query("x")
        assert shown(llm.requests[-1]) == [message.text for message in agent.messages[:-1]]

    async def test_when_results_are_not_enough_old_turns_leave_and_the_task_stays(self):
        llm = ScriptedModel(*(call("read", n=n) for n in range(40)), "ok")
        agent = Trim(llm=llm, tools=[read], trim=SMALL, system_prompt="Be good.")
        await agent.query("The task")
        for request in llm.requests:
            assert shown(request)[:2] == ["Be good.", "The task"]
            assert total(request.messages) <= SMALL.budget
        assert not any(text.startswith("page 0") for text in shown(llm.requests[-1]))
        assert len(agent.messages) == 82, "the log keeps everything"
        assert not any("left out" in message.text for message in agent.messages)

    async def test_a_chat_without_tools_loses_its_old_exchanges(self):
        llm = ScriptedModel(*(f"answer {n} " + "word " * 40 for n in range(60)))
        agent = Trim(llm=llm, trim=SMALL)
        for n in range(60):
            await agent.query(f"question {n} " + "word " * 20)
        last = shown(llm.requests[-1])
        assert last[0].startswith("question 0 ")
        assert last[-1].startswith("question 59 ")
        assert not any(text.startswith(("question 1 ", "answer 1 ")) for text in last)
        assert all(total(request.messages) <= SMALL.budget for request in llm.requests)

    async def test_what_the_model_has_not_seen_is_never_cut(self):
        llm = ScriptedModel([call("read", n=n) for n in range(20)], "ok")
        await Trim(llm=llm, tools=[read], trim=SMALL).query("x")
        assert not any("left out" in text for text in shown(llm.requests[1]))

    @pytest.mark.parametrize("bases", [(Trim, Compaction), (Compaction, Trim)])
    async def test_a_summary_is_never_cut(self, bases):
        replies = iter([*(call("read", n=n) for n in range(30)), "done"])
        summaries = iter(f"SUMMARY {n} " + "word " * 40 for n in range(99))
        config = TrimConfig(budget=600, keep_turns=1)

        def answer(messages, tools):
            return next(summaries if messages[-1].text == SUMMARY_PROMPT else replies)

        agent = type("Any", bases, {})(
            llm=(llm := ScriptedModel(answer)),
            tools=[read],
            trim=config,
            compaction=CompactionConfig(context_window=700, keep_turns=0),
        )
        events = [event async for event in agent.query_stream("The task")]
        compactions = sum(isinstance(event, CompactionEvent) for event in events)
        assert compactions >= 1
        asked = [r for r in llm.requests if r.messages[-1].text == SUMMARY_PROMPT]
        after = llm.requests[llm.requests.index(asked[0]) + 1 :]
        assert all(sum("SUMMARY" in text for text in shown(request)) == 1 for request in after)
        assert all(shown(request)[0] == "The task" for request in llm.requests)

    @pytest.mark.parametrize("bases", [(Trim, Memory), (Memory, Trim)])
    async def test_memory_is_never_cut(self, bases, tmp_path):
        (tmp_path / "AGENTS.md").write_text("Use tabs. " * 50, encoding="utf-8")
        llm = ScriptedModel(*(call("read", n=n) for n in range(30)), "ok")
        agent = type("Any", bases, {})(llm=llm, tools=[read], trim=SMALL, memory_dir=tmp_path)
        await agent.query("The task")
        for request in llm.requests:
            assert shown(request)[0].count("Use tabs.") == 50
            assert shown(request)[1] == "The task"

    @pytest.mark.parametrize("bases", [(Trim, Ephemeral), (Ephemeral, Trim), (Trim, Agent)])
    async def test_beside_other_views_every_change_of_the_prefix_is_an_event(self, bases):
        @tool("Look", ephemeral=2)
        async def look(n: int) -> str:
            return f"{n} " + "word " * 60

        names = ["read", "look", "look"]
        llm = ScriptedModel(*(call(names[n % 3], n=n) for n in range(60)), "ok")
        agent = type("Any", bases, {})(llm=llm, tools=[read, look], trim=SMALL)
        changed_at = []
        agent.listeners = [
            lambda e: changed_at.append(len(llm.requests)) if isinstance(e, PruneEvent) else None
        ]
        await agent.query("x")
        for at, (before, after) in enumerate(pairwise(llm.requests), 1):
            same = after.messages[: len(before.messages)] == before.messages
            assert same or at in changed_at


# ---- any conversation, any config

sizes = st.integers(0, 400)
items = st.one_of(
    st.tuples(st.just("prompt"), sizes, st.sampled_from([False, False, True, "pinned"])),
    st.tuples(st.just("turn"), sizes, st.lists(sizes, max_size=3)),
    st.tuples(st.just("turn"), sizes, st.just([])),
)


@st.composite
def conversations(draw):
    """A valid request: a prompt, then turns and prompts; no reply follows a reply without calls."""
    messages = [SystemMessage("system")] if draw(st.booleans()) else []
    if draw(st.booleans()):
        messages.append(UserMessage("memory " * 20, hidden=True, extra={"pinned": True}))
    messages.append(UserMessage("task " * draw(sizes)))
    for n, (kind, size, more) in enumerate(
        draw(st.lists(items, min_size=draw(st.sampled_from([0, 12])), max_size=40))
    ):
        if kind == "prompt":
            extra = {"pinned": True} if more == "pinned" else None
            messages.append(UserMessage(f"{n} " + "p" * size, hidden=bool(more), extra=extra))
        elif more:
            messages += turn(n, *("r" * each for each in more), text="t" * size)
        else:
            messages += [AssistantMessage(f"{n} " + "t" * size), UserMessage(f"{n} go on")]
    assert validate(messages) == []
    return messages


configs = st.builds(TrimConfig, budget=st.integers(1, 800), keep_turns=st.integers(1, 4))


def test_old_results_keep_their_beginning_and_end():
    pages = [turn(n, f"page {n} " + "word " * 300) for n in range(9)]
    messages = [UserMessage("task"), *(message for page in pages for message in page)]
    left, _ = trim(messages, TrimConfig(budget=2_000, keep_turns=2))
    texts = [message.text for message in left[2::2]]
    cut = ["left out" in text for text in texts]
    assert cut == sorted(cut, reverse=True), "the oldest first"
    assert cut[0]
    assert not any(cut[-2:])
    assert texts[0].startswith(f"page {9 - len(texts)} word")
    assert texts[0].endswith("word ")


def test_attachments_of_an_old_result_leave_and_it_says_so():
    image = ImagePart(data=b"png", media_type="image/png")
    message = ToolMessage("1", "screen", [TextPart("a screen"), image, image], ephemeral=1)
    short = shortened(message)
    assert short.content == "a screen\n[attachments left out]"
    assert (short.tool_call_id, short.ephemeral) == ("1", 1)
    assert shortened(ToolMessage("1", "read", "short")).content == "short"


def test_the_words_of_the_user_since_the_newest_prompt_stay():
    turns = [turn(n, "word " * 100) for n in range(20)]
    sent = UserMessage("sent", extra={"sent": "1"})
    messages = [UserMessage("task"), *turns[0], AssistantMessage("ok"), UserMessage("older")]
    messages += [*turns[1], AssistantMessage("ok"), UserMessage("newest")]
    messages += [*turns[2], sent, *(message for each in turns[3:] for message in each)]
    left, _ = trim(messages, SMALL)
    own = [message.text for message in left if isinstance(message, UserMessage)]
    assert own == ["task", "newest", "sent"]


def identities(messages):
    return [id(message) for message in messages]


def result_of(message):
    return message.tool_call_id if isinstance(message, ToolMessage) else ""


@settings(max_examples=200, deadline=None)
@given(conversations(), configs)
def test_what_is_left_is_valid_in_order_and_has_all_that_stays(messages, config):
    left, _ = trim(messages, config)
    assert validate(left) == []
    for before, after in pairwise(left):
        talked = isinstance(before, AssistantMessage) and not before.tool_calls
        assert not (talked and isinstance(after, AssistantMessage)), "two replies in a row"
    rest = iter(messages)
    for message in left:  # in order: the same object, or a result of the same call
        same = next(m for m in rest if m is message or result_of(m) == result_of(message) != "")
        assert same is message or total([message]) < total([same])
    kept = set(identities(left))
    replies = [i for i, m in enumerate(messages) if isinstance(m, AssistantMessage)]
    assert {*identities(messages[[0, *replies][-config.keep_turns :][0] :])} <= kept or not replies
    task = next(m for m in messages if isinstance(m, UserMessage) and not m.hidden)
    pinned = [m for m in messages if (getattr(m, "extra", None) or {}).get("pinned")]
    system = [m for m in messages if isinstance(m, SystemMessage)]
    assert {*identities([task, *pinned, *system])} <= kept


@settings(max_examples=200, deadline=None)
@given(conversations(), configs)
def test_a_request_repeats_the_one_before_it_unless_something_leaves_just_now(messages, config):
    ends = [i for i, m in enumerate(messages) if isinstance(m, AssistantMessage)]
    ends.append(len(messages))
    requests = [trim(messages[:end], config) for end in ends]
    for end, (before, _), (after, cut) in zip(ends, requests, requests[1:], strict=False):
        assert bool(cut) == (after[: len(before)] != before)
        gone = set(keys(messages[:end])) - set(keys(before))
        assert not gone & set(keys(after)), "what has left does not come back"


def keys(messages):
    """What tells messages apart, whatever became of their text."""
    return [result_of(message) or id(message) for message in messages]
