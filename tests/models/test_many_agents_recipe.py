"""The recipe for many agents at once: few requests side by side, spread over the minutes."""

import asyncio

import pytest

from agentloop import Agent, AssistantMessage, ScriptedModel, Usage
from tests.test_recipes import load


@pytest.fixture(name="recipe")
def _recipe():
    return load("many_agents_at_once")


class Time:
    """A clock that sleeping moves on."""

    def __init__(self):
        self.now = 1000.0

    def clock(self):
        return self.now

    async def sleep(self, seconds):
        await asyncio.sleep(0)
        self.now += seconds


async def play(recipe, agents, at_once, per_minute):
    """When each of many requests began, and how many were under way at most."""
    time, begun, running, most = Time(), list[float](), 0, 0

    async def answer(messages, tools):
        nonlocal running, most
        begun.append(time.now)
        running += 1
        most = max(most, running)
        await asyncio.sleep(0)
        running -= 1
        return AssistantMessage("ok", usage=Usage(90, 10))

    llm = ScriptedModel(answer)
    paced = recipe.Paced(llm, at_once, per_minute, clock=time.clock, sleep=time.sleep)
    template = Agent(llm=paced)
    answers = await asyncio.gather(*(template.fork().query("x") for _ in range(agents)))
    assert answers == ["ok"] * agents
    return begun, most


async def test_few_requests_are_under_way_at_once(recipe):
    assert (await play(recipe, 50, 4, 10**9))[1] == 4


@pytest.mark.parametrize("at_once", [1, 3])
async def test_the_tokens_of_any_minute_stay_below_the_limit(recipe, at_once):
    begun, _ = await play(recipe, 20, at_once, 500)
    for start in begun:
        of_a_minute = sum(start <= at < start + 60 for at in begun)
        # What is under way is counted by its estimate, which is lower here.
        assert of_a_minute <= 5 + (at_once - 1)
    assert begun[-1] - begun[0] >= 60 * 2


async def test_a_request_that_is_larger_than_the_limit_goes_out_alone(recipe):
    begun, _ = await play(recipe, 3, 3, 1)
    assert [round(at - begun[0]) for at in begun] == [0, 60, 120]
