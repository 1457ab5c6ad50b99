"""Trim: what is old leaves when the conversation outgrows its budget, and no model is asked."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentloop import (
    Agent,
    AssistantMessage,
    ChatOpenAI,
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
from agentloop.mixins import trim as trim_module
from agentloop.mixins.compaction import SUMMARY_PROMPT, Compaction
from agentloop.mixins.memory import Memory
from agentloop.mixins.trim import KEEP, Trim, TrimConfig, Walk, shortened, trim
from agentloop.models.scripted import call
from agentloop.tokens import message_tokens

from .. import test_loop
from ..doubles.openai_double import OpenAIDouble, Reply
from ..test_loop import shown

SMALL = TrimConfig(budget=1_000, keep={"results": 1, "turns": 2, "prompts": 1})


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

    async def test_old_results_keep_their_beginning_and_end(self):
        llm = ScriptedModel(*(call("read", n=n) for n in range(9)), "ok")
        agent = Trim(llm=llm, tools=[read], trim=TrimConfig(budget=1_000, keep={"results": 1}))
        await agent.query("x")
        texts = shown(llm.requests[-1])[2::2]
        cut = ["left out" in text for text in texts]
        assert cut[0]
        assert cut == sorted(cut, reverse=True), "the oldest first"
        assert not cut[-1]
        assert texts[0].startswith("page 0 word")
        assert texts[0].endswith("word")

    async def test_the_log_keeps_everything(self):
        llm = ScriptedModel(*(call("read", n=n) for n in range(20)), "ok")
        agent = Trim(llm=llm, tools=[read], trim=SMALL)
        await agent.query("x")
        assert len(agent.messages) == 42
        assert not any("left out" in message.text for message in agent.messages)

    async def test_when_results_are_not_enough_old_turns_leave_and_the_task_stays(self):
        llm = ScriptedModel(*(call("read", n=n) for n in range(40)), "ok")
        agent = Trim(llm=llm, tools=[read], trim=SMALL, system_prompt="Be good.")
        await agent.query("The task")
        for request in llm.requests:
            assert shown(request)[:2] == ["Be good.", "The task"]
            assert total(request.messages) <= SMALL.budget
        assert not any(text.startswith("page 0") for text in shown(llm.requests[-1]))

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

    async def test_old_results_of_few_calls_do_not_keep_a_long_chat_from_leaving(self):
        messages = [UserMessage("task"), *turn(0, "word " * 40)]
        for n in range(40):
            messages += [AssistantMessage(f"answer {n} " + "word " * 40), UserMessage(f"and {n}?")]
        left, _ = trim(messages, SMALL)
        assert total(left) <= SMALL.budget
        assert left[:3] == messages[:3], "the newest result stays in any case"
        assert left[-1] is messages[-1]

    async def test_over_thirty_turns_the_prefix_changes_at_few_events_only(self):
        script = [*(Reply(calls=[("read", {"n": n})], usage=None) for n in range(30)), "done"]
        async with OpenAIDouble(script) as server:
            llm = ChatOpenAI("m", base_url=server.base_url, api_key="k")
            agent = Trim(llm=llm, tools=[read], system_prompt="Be good.", trim=SMALL)
            events = [event async for event in agent.query_stream("x")]
            assert server.refusals == []
        sent = [request["messages"] for request in server.requests]
        breaks = [n for n, (a, b) in enumerate(pairwise(sent)) if b[: len(a)] != a]
        prunes = [event for event in events if isinstance(event, PruneEvent)]
        assert len(sent) == 31
        assert 3 <= len(breaks) == len(prunes) <= 8
        assert all(event.tool_call_ids for event in prunes)

    async def test_twice_in_a_row_the_context_is_the_same(self):
        llm = ScriptedModel(*(call("read", n=n) for n in range(30)), "ok")
        agent = Trim(llm=llm, tools=[read], trim=SMALL)
        await agent.query("x")
        assert await agent.context() == await agent.context()

    async def test_none_turns_it_off(self):
        llm = ScriptedModel(*(call("read", n=n) for n in range(20)), "ok")
        await Trim(llm=llm, tools=[read], trim=None).query("x")
        assert "left out" not in "".join(shown(llm.requests[-1]))

    async def test_what_the_model_has_not_seen_is_never_cut(self):
        llm = ScriptedModel([call("read", n=n) for n in range(20)], "ok")
        await Trim(llm=llm, tools=[read], trim=SMALL).query("x")
        assert not any("left out" in text for text in shown(llm.requests[1]))

    @pytest.mark.parametrize("bases", [(Trim, Compaction), (Compaction, Trim)])
    async def test_a_summary_is_never_cut(self, bases):
        replies = iter([*(call("read", n=n) for n in range(30)), "done"])
        summaries = iter(f"SUMMARY {n} " + "word " * 40 for n in range(99))
        config = TrimConfig(budget=600, keep={"results": 1, "turns": 1, "prompts": 0})

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

    @pytest.mark.parametrize(
        "wrong",
        [
            {"budget": 0},
            {"low_water": 0},
            {"low_water": 1.5},
            {"budgets": {"results": 0}},
            {"budgets": {"images": 5}},
            {"order": ["results", "results"]},
            {"order": ["calls"]},
            {"keep": {"turns": 0}},
            {"keep": {"results": -1}},
            {"keep": {"tools": 1}},
            {"result_chars": -1},
        ],
    )
    async def test_a_config_that_makes_no_sense_is_an_error(self, wrong):
        with pytest.raises(ValueError, match="this is TrimConfig"):
            TrimConfig(**wrong)

    async def test_something_else_than_a_config_is_an_error(self):
        with pytest.raises(TypeError, match=r"takes TrimConfig\(\.\.\.\) or None, not 5000"):
            Trim(llm=ScriptedModel(), trim=5000)


def test_a_kind_with_a_budget_of_its_own_is_cut_when_the_whole_is_small():
    messages = [UserMessage("task")]
    for n in range(10):
        messages += turn(n, "word " * 100)
    config = TrimConfig(budgets={"results": 500}, keep={"results": 1}, result_chars=20)
    left, cut = trim(messages, config)
    results = [message for message in left if isinstance(message, ToolMessage)]
    assert total(results) <= 500
    assert len(left) == len(messages)
    assert sum("left out" in message.text for message in left) in range(5, 10)
    assert cut == []  # an earlier request was the first to miss them


def test_the_order_says_what_leaves_first_and_what_never_does():
    messages = [UserMessage("task")]
    for n in range(30):
        messages += turn(n, "word " * 100)
    config = TrimConfig(budget=1_000, order=["turns", "results"], keep=SMALL.keep)
    turns_first, _ = trim(messages, config)
    assert len(turns_first) < 20
    assert not any("left out" in message.text for message in turns_first)
    only_results, _ = trim(messages, TrimConfig(budget=1_000, order=["results"]))
    assert len(only_results) == len(messages)
    assert trim(messages, TrimConfig(budget=1_000, order=[]))[0] == messages


def test_attachments_of_an_old_result_leave_and_it_says_so():
    image = ImagePart(data=b"png", media_type="image/png")
    message = ToolMessage("1", "screen", [TextPart("a screen"), image, image], ephemeral=1)
    short = shortened(message, 200)
    assert short.content == "a screen\n[2 attachments left out]"
    assert (short.tool_call_id, short.ephemeral) == ("1", 1)
    assert shortened(ToolMessage("1", "read", "short"), 200).content == "short"
    assert "495 characters left out" in shortened(ToolMessage("1", "read", "x" * 495), 0).text


def test_a_long_conversation_is_gone_through_once(monkeypatch):
    counted = []
    monkeypatch.setattr(
        trim_module, "message_tokens", lambda m: counted.append(m) or message_tokens(m)
    )
    messages = [UserMessage("task")]
    for n in range(2_000):
        messages += [*turn(n, "word " * 100), AssistantMessage("so"), UserMessage("and?")]
    left, _ = trim(messages, TrimConfig(budget=10_000))
    assert total(left) <= 10_000
    assert len(counted) < 5 * len(messages)


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


limits = st.integers(1, 800)
kinds = st.sampled_from(["results", "turns", "prompts"])
configs = st.builds(
    TrimConfig,
    budget=limits,
    budgets=st.dictionaries(kinds, limits),
    low_water=st.floats(0.1, 1),
    order=st.permutations(["results", "turns", "prompts"]) | st.lists(kinds, unique=True),
    keep=st.builds(
        lambda r, t, p: {"results": r, "turns": t, "prompts": p},
        st.integers(0, 4),
        st.integers(1, 4),
        st.integers(0, 4),
    ),
    result_chars=st.integers(0, 300),
)


def has_seen(messages):
    """The place behind the newest reply: the model has seen what comes before."""
    replies = [i for i, message in enumerate(messages) if isinstance(message, AssistantMessage)]
    return replies[-1] if replies else 0


def identities(messages):
    return [id(message) for message in messages]


@given(conversations(), configs)
def test_what_is_left_is_valid_in_order_and_has_all_that_stays(messages, config):
    left, _ = trim(messages, config)
    assert validate(left) == []
    starts = [m for m in left if not isinstance(m, SystemMessage)]
    assert isinstance(starts[0], UserMessage)
    for before, after in pairwise(left):
        talked = isinstance(before, AssistantMessage) and not before.tool_calls
        assert not (talked and isinstance(after, AssistantMessage)), "two replies in a row"

    kept = set(identities(left))
    rest = iter(messages)
    for message in left:  # in order: the same object, or a result of the same call
        same = next(m for m in rest if m is message or result_of(m) == result_of(message) != "")
        assert same is message or total([message]) < total([same])

    unseen = messages[has_seen(messages) :]
    assert identities(left[len(left) - len(unseen) :]) == identities(unseen)
    task = next(m for m in messages if isinstance(m, UserMessage) and not m.hidden)
    pinned = [m for m in messages if (getattr(m, "extra", None) or {}).get("pinned")]
    system = [m for m in messages if isinstance(m, SystemMessage)]
    assert {*identities([task, *pinned, *system])} <= kept
    for kind, cls in (("turns", AssistantMessage), ("results", ToolMessage)):
        of_kind = [m for m in messages if isinstance(m, cls)]
        newest = of_kind[max(0, len(of_kind) - config.keep[kind]) :]
        assert {*identities(newest)} <= kept
    prompts = [m for m in messages if isinstance(m, UserMessage) and m not in pinned]
    assert {*identities(prompts[max(0, len(prompts) - config.keep["prompts"]) :])} <= kept


def result_of(message):
    return message.tool_call_id if isinstance(message, ToolMessage) else ""


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


@given(conversations(), configs)
def test_what_is_over_the_budget_after_a_cut_had_to_stay(messages, config):
    left, _ = trim(messages, config)
    if total(left) <= config.budget:
        return
    seen = left[: has_seen(left)]
    results = [m for m in left if isinstance(m, ToolMessage)]
    kept = identities(results[max(0, len(results) - config.keep["results"]) :])
    if "results" in config.order:
        for message in (m for m in seen if isinstance(m, ToolMessage) and id(m) not in kept):
            assert shortened(message, config.result_chars).content == message.content or (
                "left out" in message.text
            )
    if "turns" in config.order:
        turns = [i for i, m in enumerate(left) if isinstance(m, AssistantMessage)]
        for at in turns[: max(0, len(turns) - config.keep["turns"])]:
            own = left[at + 1 : at + 1 + len(left[at].tool_calls)]
            assert any(id(message) in kept for message in own)


@given(conversations(), configs, st.data())
def test_a_walk_that_goes_on_comes_to_the_same_as_a_new_one(messages, config, data):
    walk = Walk(config)
    ends = data.draw(st.sets(st.integers(0, len(messages))))
    for end in [*sorted(ends), len(messages)]:
        part = messages[:end]
        assert walk.begins(part)
        assert walk.go_on(part) == walk.go_on(part) == trim(part, config)
    assert not walk.begins(messages[:-1])
    assert not walk.begins([UserMessage("another"), *messages[1:]])


def test_an_agent_goes_on_with_its_walk_and_starts_over_with_another_history(monkeypatch):
    counted = []
    monkeypatch.setattr(
        trim_module, "message_tokens", lambda m: counted.append(m) or message_tokens(m)
    )
    llm = ScriptedModel(*(call("read", n=n) for n in range(60)), "ok", "hello")
    agent = Trim(llm=llm, tools=[read], trim=SMALL)
    agent.run_sync("x")
    assert len(counted) < 60 * 20, "a new walk for each request comes to 60 * 60"
    agent.load_history([UserMessage("a"), AssistantMessage("b")])
    agent.run_sync("c")
    assert shown(llm.requests[-1]) == ["a", "b", "c"]


@given(conversations())
def test_within_its_budgets_a_conversation_is_left_as_it_is(messages):
    left, cut = trim(messages, TrimConfig(budget=max(1, total(messages)), keep=KEEP))
    assert identities(left) == identities(messages)
    assert cut == []
