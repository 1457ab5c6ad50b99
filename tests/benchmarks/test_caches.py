"""The cost functions of the providers' caches."""

from dataclasses import replace
from functools import partial

import pytest

from agentloop import (
    AssistantMessage,
    Request,
    SystemMessage,
    ToolCall,
    ToolMessage,
    UserMessage,
    tool,
)

from .caches import CACHES, CLAUDE, GEMINI, GPT, Body, anthropic, body_of, by_prefix, openai, tokens


def body(*sizes, marks, kinds=None):
    """Return a request of blocks with these tokens. Blocks of equal size are equal."""
    blocks = [b"%d" % size + b" x" * (size - tokens(b"%d" % size)) for size in sizes]
    return Body(blocks, marks, kinds or [""] * len(sizes))


def cost(rule, *bodies, minutes=0):
    return rule((each, n * minutes) for n, each in enumerate(bodies))


def test_anthropic_reads_blocks_marked_by_an_earlier_request():
    first, second = body(2_000, 500, marks=[0, 1]), body(2_000, 500, 100, marks=[0, 2])
    assert cost(anthropic, first) == pytest.approx(1.25 * 2_500)
    assert cost(anthropic, first, second) == pytest.approx(1.25 * 2_600 + 0.1 * 2_500)
    changed = body(2_000, 501, 100, marks=[0, 2])
    assert cost(anthropic, first, changed) == pytest.approx(1.25 * (2_500 + 601) + 200)


def test_anthropic_searches_20_positions_and_consecutive_results_count_as_one():
    first = body(2_000, marks=[0])
    near, far = (body(2_000, *[10] * n, marks=[n]) for n in (20, 21))
    found = 1.25 * 2_000 + 0.1 * 2_000 + 1.25 * 200
    assert cost(anthropic, first, near) == pytest.approx(found)
    assert cost(anthropic, first, far) == pytest.approx(1.25 * 4_210)
    parallel = replace(far, kinds=["", *["call"] * 10, *["result"] * 11])
    assert cost(anthropic, first, parallel) == pytest.approx(found + 1.25 * 10)


@pytest.mark.parametrize("least", [512, 1_024, 4_096])
def test_anthropic_ignores_prefixes_below_the_minimum_of_the_model(least):
    rule = partial(anthropic, least=least)
    short, long = body(least - 1, marks=[0]), body(least, marks=[0])
    assert cost(rule, short, short) == 2 * (least - 1)
    assert cost(rule, long, long) == pytest.approx(1.35 * least)
    assert cost(rule, body(least, 50, marks=[0])) == 1.25 * least + 50


def test_openai_matches_only_at_the_ends_of_messages():
    first = body(2_000, 500, marks=[0, 1])
    second = body(2_000, 500, 100, 30, marks=[0, 1, 3])
    assert cost(openai, first) == pytest.approx(1.25 * 2_500)
    assert cost(openai, first, second) == pytest.approx(1.25 * 2_630 + 0.1 * 2_500)
    cut = body(2_000, 300, marks=[0, 1])  # no request ended after the system prompt
    assert cost(openai, first, cut) == pytest.approx(1.25 * 4_800)
    assert cost(openai, body(1_000, marks=[0]), body(1_000, marks=[0])) == 2_000


def test_openai_searches_20_earlier_messages():
    first = body(2_000, marks=[0])
    near, far = (body(2_000, *[10] * n, marks=[*range(1, n + 1)]) for n in (20, 21))
    near = replace(near, marks=[0, *near.marks])
    assert cost(openai, first, near) == pytest.approx(1.25 * 2_200 + 0.1 * 2_000)
    assert cost(openai, first, far) == pytest.approx(1.25 * 4_210)


def test_other_caches_read_the_longest_common_prefix_in_steps():
    bodies = body(1_100, 50, marks=[]), body(1_100, 60, marks=[])
    rule = partial(by_prefix, least=1_024, step=128, minutes=30)
    assert cost(rule, *bodies) == pytest.approx(1_150 + 1_160 - 0.9 * 1_024)
    assert cost(partial(by_prefix, least=4_096, step=1, minutes=5), *bodies) == 2_310


@pytest.mark.parametrize(("rule", "minutes"), [(anthropic, 5), (openai, 30)])
def test_an_unused_cache_entry_expires(rule, minutes):
    once = body(2_000, marks=[0])
    assert cost(rule, once, once, once, minutes=minutes) == pytest.approx(1.45 * 2_000)
    assert cost(rule, once, once, minutes=minutes + 1) == pytest.approx(2.5 * 2_000)


def test_every_eighth_request_follows_a_pause():
    paused = CACHES["Anthropic with pauses"]
    minutes = [now for _, now in paused.timed([body(10, marks=[])] * 17)]
    assert minutes == [0] * 8 + [40] * 8 + [80]
    assert [now for _, now in CACHES["Anthropic"].timed([body(10, marks=[])] * 9)] == [0] * 9


CALLS = (ToolCall("1", "look", "{}"), ToolCall("2", "look", "{}"))


@tool
def look() -> str:
    """Looks."""
    return "a"


REQUEST = Request(
    [
        SystemMessage("Be good."),
        UserMessage("x"),
        AssistantMessage("", CALLS),
        ToolMessage("1", "look", "a"),
        ToolMessage("2", "look", "b"),
    ],
    [look],
)


def test_a_body_contains_the_blocks_sent_by_the_model():
    sent = {"Anthropic": CLAUDE, "OpenAI": GPT, "Google": GEMINI}
    bodies = {name: body_of(model, REQUEST) for name, model in sent.items()}
    assert bodies["Anthropic"].kinds == ["", "", "", "call", "call", "result", "result"]
    assert bodies["Anthropic"].marks == [0, 1, 2, 6]
    assert bodies["OpenAI"].marks == [1, 2, 6]
    assert len(bodies["Google"].blocks) == 7
    assert all(b"cache_control" not in block for block in bodies["Anthropic"].blocks)
