"""What a context trick may cost at most, wherever a run ends: a search for the worst case.

A request costs 0.1 a token for the messages with which the one before it began, and 1.25 for the
others, as long as the cache lives; the model's words for a summary cost 5. The system prompt has
1,500 tokens, since a tool more than before costs little beside it.
"""

from functools import partial

from hypothesis import example, given, settings
from hypothesis import strategies as st

from agentloop import Agent, AssistantMessage, Loop, ScriptedModel, tool
from agentloop.common.tokens import message_tokens, tool_tokens
from agentloop.mixins.compaction import SUMMARY_PROMPT
from agentloop.models.scripted import call

MOST = 1.10
SYSTEM, SUMMARY = "Be good. " * 667, "What was done and found. " * 80


def result(number, tokens, *, named):
    """A result of so many tokens; `named` ones are full of names."""
    if not named:
        return f"{number} " + "lorem ipsum " * (tokens // 3)
    return " ".join(f"order_{number}_{at * 7919 % 9973}" for at in range(tokens // 4))


def play(kind, turns):
    """The requests of an agent that gets these results, and a task after each that ends one."""
    replies = []
    for number, turn in enumerate(turns):
        replies.append(call("look", n=number))
        if turn[2]:
            replies.append("Done.")
    script = iter([*replies, "Done."])

    @tool("Look")
    def look(n: int) -> str:
        return result(n, turns[n][0], named=turns[n][1])

    def answer(messages, tools):
        return SUMMARY if messages[-1].text == SUMMARY_PROMPT else next(script)

    limits = {"max_iterations": 1_000, "max_result_chars": 10**6}
    agent = kind(llm=ScriptedModel(answer), tools=[look], system_prompt=SYSTEM, **limits)
    for task in range(1 + sum(turn[2] for turn in turns)):
        agent.run_sync(f"Task {task}: look at this.")
    return agent.llm.requests


def costs(requests, gaps=()):
    """What the requests cost up to each of them that is no request for a summary."""
    total, found, before = 0.0, [], ()
    for request in requests:
        summary = request.messages[-1].text == SUMMARY_PROMPT
        known = 0
        if len(found) not in gaps or summary:
            pairs = zip(before, request.messages, strict=False)
            known = next((at for at, (a, b) in enumerate(pairs) if a != b), len(before))
        tools = tool_tokens(request.tools)
        read = message_tokens(request.messages[:known]) + tools * bool(known)
        total += 0.1 * read + 1.25 * (message_tokens(request.messages) + tools - read)
        before = request.messages
        if summary:
            total += 5 * message_tokens(AssistantMessage(SUMMARY))
        else:
            found.append(total)
    return found


def worst(kind, turns, gaps=()):
    """How much more an agent costs than one that leaves its context alone, where that is most."""
    plain, other = (costs(play(each, turns), gaps) for each in (Loop, kind))
    return max(b / a for a, b in zip(plain, other, strict=True))


def turns_of(sizes, most):
    turn = st.tuples(st.sampled_from(sizes), st.booleans(), st.sampled_from([False] * 9 + [True]))
    same = st.tuples(turn, st.integers(1, most)).map(lambda pair: [pair[0]] * pair[1])
    return st.lists(turn, min_size=1, max_size=most) | same


@given(
    turns_of([50, 200, 500, 1_000, 2_000, 4_000, 8_000], 40),
    st.sampled_from([6_000, 8_000, 12_000, 20_000]),
    st.sets(st.integers(1, 40), max_size=4),
)
@example([(200, True, False)] * 40, 6_000, set())
@example([(1_000, True, False)] * 14, 12_000, set())
@example([(1_000, True, False)] * 14, 12_000, {11})
@settings(max_examples=40, deadline=None)
def test_a_budget_never_costs_more_than_110_wherever_a_run_ends(turns, budget, gaps):
    assert worst(partial(Agent, context_budget=budget), turns, gaps) <= MOST


@given(
    turns_of([1_000, 5_000, 20_000, 34_000, 60_000, 90_000], 12),
    st.sets(st.integers(1, 12), max_size=2),
)
@example([(20_000, False, False)] * 9, set())
@example([(34_000, False, False)] * 7, set())
@example([(45_000, False, False)] * 12, set())
@settings(max_examples=20, deadline=None)
def test_an_agent_whose_window_is_not_known_never_costs_more_than_110(turns, gaps):
    assert worst(Agent, turns, gaps) <= MOST
