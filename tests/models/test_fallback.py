"""Fallback: who is asked when the first model is down, and what is never asked twice."""

from itertools import permutations
from types import SimpleNamespace

import pytest

from agentloop import Agent, call, errors
from agentloop.events import TextDeltaEvent
from agentloop.models.fallback import Fallback
from agentloop.models.scripted import ScriptedModel
from tests.doubles.openai_double import Failure
from tests.doubles.wires import CONVERSATIONS, WIRES, hold
from tests.models.asked import HI, ask


@pytest.fixture
def clock(monkeypatch):
    clock = SimpleNamespace(now=1000.0)
    monkeypatch.setattr("agentloop.models.fallback.monotonic", lambda: clock.now)
    return clock


class Talker(ScriptedModel):
    """Shows something before it fails."""

    async def ainvoke(self, *args, on_delta=None, **options):
        if on_delta:
            on_delta(TextDeltaEvent("so"))
        return await super().ainvoke(*args, **options)


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
    first, second, shown = ScriptedModel(error), ScriptedModel("hello"), []
    llm = Fallback(first, second)
    reply = await llm.ainvoke(HI, (), tool_choice="none", on_delta=shown.append)
    assert (reply.text, shown) == ("hello", [TextDeltaEvent("hello")])
    assert first.requests == second.requests


@pytest.mark.parametrize("error", REFUSED, ids=lambda error: type(error).__name__)
async def test_a_request_that_is_refused_is_not_tried_elsewhere(error):
    llm = Fallback(ScriptedModel(error, "again"), ScriptedModel())
    with pytest.raises(type(error)) as caught:
        await ask(llm)
    assert caught.value is error
    assert (await ask(llm)).text == "again"  # it is not passed over either


async def test_nobody_else_is_asked_once_something_was_shown():
    shown = []
    with pytest.raises(errors.ConnectionFailed):
        await Fallback(Talker(DOWN[0]), ScriptedModel()).ainvoke(HI, on_delta=shown.append)
    assert shown == [TextDeltaEvent("so")]
    assert (await ask(Fallback(Talker(DOWN[0]), ScriptedModel("a")))).text == "a"


async def test_the_last_error_is_raised_and_names_those_before_it():
    script = errors.RateLimited("one"), errors.Overloaded("two"), errors.ServerError("three")
    with pytest.raises(errors.ServerError, match="three") as caught:
        await ask(Fallback(*map(ScriptedModel, script)))
    first, second = caught.value.__notes__
    assert "RateLimited: one" in first
    assert "Overloaded: two" in second


async def test_a_model_that_was_down_is_passed_over_for_a_while(clock):
    models = ScriptedModel(DOWN[0], "back", model="a"), ScriptedModel("x", "y", model="b")
    llm = Fallback(*models, cooldown=30)
    for model, text, model_then, seconds in (("a", "x", "b", 29), ("b", "y", "b", 1)):
        assert (llm.model, (await ask(llm)).text, llm.model) == (model, text, model_then)
        clock.now += seconds
    assert (llm.model, (await ask(llm)).text) == ("a", "back")


async def test_a_model_that_asks_for_a_longer_pause_gets_it(clock):
    first = ScriptedModel(errors.RateLimited("later", retry_after=300))
    llm = Fallback(first, ScriptedModel("x", "y"), cooldown=30)
    for _ in "xy":
        await ask(llm)
        clock.now += 299
    assert len(first.requests) == 1


async def test_models_that_are_all_down_are_all_asked(clock):
    llm = Fallback(ScriptedModel(DOWN[0], DOWN[1]), ScriptedModel(DOWN[2], "up"))
    with pytest.raises(errors.Overloaded):
        await ask(llm)
    assert (await ask(llm)).text == "up"


async def test_what_counts_as_down_is_a_setting():
    llm = Fallback(ScriptedModel(REFUSED[-1]), ScriptedModel("a"), errors=(errors.BadResponse,))
    assert (await ask(llm)).text == "a"
    with pytest.raises(errors.ConnectionFailed):
        await ask(Fallback(ScriptedModel(DOWN[0]), ScriptedModel("a"), errors=()))


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


async def test_an_output_type_is_asked_for_by_the_done_tool():
    llm = Fallback(ScriptedModel(errors.ServerError("down")), ScriptedModel(call("done", result=3)))
    agent = Agent(llm=llm, output_type=int)
    assert (await agent.run("1 + 2?")).value == 3
