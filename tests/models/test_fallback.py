"""Fallback: who is asked when the first model is down, and what is never asked twice."""

from itertools import permutations

import pytest

from agentloop import Agent, errors
from agentloop.events import TextDeltaEvent
from agentloop.messages import UserMessage
from agentloop.models.fallback import Fallback
from agentloop.models.scripted import ScriptedModel
from tests.doubles.openai_double import Failure
from tests.doubles.wires import CONVERSATIONS, WIRES, hold

HI = [UserMessage("hi")]


class Clock:
    now = 1000.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr("agentloop.models.fallback.monotonic", clock)
    return clock


class Model(ScriptedModel):
    """Shows what it says before it fails, if it is given something to say."""

    def __init__(self, *script, says="", model="m"):
        super().__init__(*script, model=model)
        self.says = says

    async def ainvoke(self, *args, on_delta=None, **options):
        if self.says and on_delta:
            on_delta(TextDeltaEvent(self.says))
        return await super().ainvoke(*args, on_delta=on_delta, **options)


DOWN = [
    errors.ConnectionFailed("down"),
    errors.RateLimited("down", status=429),
    errors.Overloaded("down", status=529),
    errors.ServerError("down", status=500),
]
REFUSED = [
    errors.BadRequest("no", status=400),
    errors.ContextWindowExceeded("no", status=400),
    errors.ContentRefused("no", status=400),
    errors.AuthenticationFailed("no", status=401),
    errors.BadResponse("no", status=200),
]


@pytest.mark.parametrize("error", DOWN, ids=lambda error: type(error).__name__)
async def test_the_second_answers_when_the_first_is_down(error):
    first, second = Model(error), Model("hello")
    shown = []
    llm = Fallback(first, second)
    reply = await llm.ainvoke(HI, (), tool_choice="none", on_delta=shown.append)
    assert reply.text == "hello"
    assert shown == [TextDeltaEvent("hello")]
    assert first.requests == second.requests


@pytest.mark.parametrize("error", REFUSED, ids=lambda error: type(error).__name__)
async def test_a_request_that_is_refused_is_not_tried_elsewhere(error):
    first, second = Model(error, "again"), Model()
    llm = Fallback(first, second)
    with pytest.raises(type(error)) as caught:
        await llm.ainvoke(HI)
    assert caught.value is error
    assert (await llm.ainvoke(HI)).text == "again"  # it is not passed over either


async def test_nobody_else_is_asked_once_something_was_shown():
    first, second = Model(DOWN[0], says="so"), Model()
    shown = []
    with pytest.raises(errors.ConnectionFailed):
        await Fallback(first, second).ainvoke(HI, on_delta=shown.append)
    assert [event.content for event in shown] == ["so"]
    assert (await Fallback(Model(DOWN[0], says="so"), Model("a")).ainvoke(HI)).text == "a"


async def test_the_last_error_is_raised_and_names_those_before_it():
    script = errors.RateLimited("one"), errors.Overloaded("two"), errors.ServerError("three")
    llm = Fallback(*map(Model, script))
    with pytest.raises(errors.ServerError, match="three") as caught:
        await llm.ainvoke(HI)
    first, second = caught.value.__notes__
    assert "RateLimited: one" in first
    assert "Overloaded: two" in second


async def test_a_model_that_was_down_is_passed_over_for_a_while(clock):
    first, second = Model(DOWN[0], "back", model="a"), Model("x", "y", model="b")
    llm = Fallback(first, second, cooldown=30)
    assert llm.model == "a"
    assert (await llm.ainvoke(HI)).text == "x"
    assert llm.model == "b"
    clock.now += 29
    assert (await llm.ainvoke(HI)).text == "y"
    clock.now += 1
    assert llm.model == "a"
    assert (await llm.ainvoke(HI)).text == "back"


async def test_a_model_that_asks_for_a_longer_pause_gets_it(clock):
    first, second = Model(errors.RateLimited("later", retry_after=300)), Model("x", "y")
    llm = Fallback(first, second, cooldown=30)
    for _ in "xy":
        await llm.ainvoke(HI)
        clock.now += 299
    assert len(first.requests) == 1


async def test_models_that_are_all_down_are_all_asked(clock):
    first, second = Model(DOWN[0], DOWN[1]), Model(DOWN[2], "up")
    llm = Fallback(first, second)
    with pytest.raises(errors.Overloaded):
        await llm.ainvoke(HI)
    assert (await llm.ainvoke(HI)).text == "up"


async def test_what_counts_as_down_is_a_setting():
    llm = Fallback(Model(REFUSED[-1]), Model("hello"), errors=(errors.BadResponse,))
    assert (await llm.ainvoke(HI)).text == "hello"
    llm = Fallback(Model(DOWN[0]), Model("hello"), errors=())
    with pytest.raises(errors.ConnectionFailed):
        await llm.ainvoke(HI)


@pytest.mark.parametrize("pair", [*permutations(WIRES, 2)], ids=lambda pair: pair[0].name)
@pytest.mark.parametrize("talk", CONVERSATIONS[2:5], ids=lambda talk: talk.name)
async def test_a_conversation_goes_on_with_another_provider(talk, pair):
    half = len(talk.script) // 2
    first = pair[0].double([*talk.script[:half], Failure(503)])
    second = pair[1].double(talk.script[half:])
    async with first as here, second as there:
        llm = Fallback(pair[0].model(here, max_retries=0), pair[1].model(there))
        held = await hold(talk, llm, streaming=True)
    assert held.results[-1].text == talk.script[-1].text
    assert (first.refusals, second.refusals, second.replies) == ([], [], [])


@pytest.mark.parametrize("models", [(), ("gpt-5-mini",), (ScriptedModel(), None)])
def test_what_is_no_model_is_refused_at_once(models):
    with pytest.raises(TypeError, match=r"chat models, which have ainvoke\(\)"):
        Fallback(*models)


def test_the_repr_shows_the_models_and_no_key():
    llm = Fallback(*[wire.model("http://x") for wire in WIRES[1:]])
    assert repr(llm) == "Fallback(ChatOpenAI('m'), ChatAnthropic('m'), ChatGoogle('gemini-3-pro'))"
    assert Agent(llm=llm).llm is llm
