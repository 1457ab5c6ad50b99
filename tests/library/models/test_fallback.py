"""Fallback: model selection after errors, cooldown, and requests that are never repeated."""

from itertools import permutations
from types import SimpleNamespace

import pytest

from agentloop import Agent, call, errors
from agentloop.events import TextDeltaEvent
from agentloop.messages import Attempt, Usage
from agentloop.models.fallback import Fallback
from agentloop.models.scripted import ScriptedModel
from tests.doubles.openai_double import Failure, Reply
from tests.doubles.wires import ANTHROPIC, CONVERSATIONS, WIRES, hold

from .helpers import HI, ask


@pytest.fixture
def clock(monkeypatch):
    clock = SimpleNamespace(now=1000.0)
    monkeypatch.setattr("agentloop.models.fallback.monotonic", lambda: clock.now)
    return clock


class PartialModel(ScriptedModel):
    """Emits a delta before it fails."""

    async def ainvoke(self, *args, on_delta=None, **options):
        if on_delta:
            on_delta(TextDeltaEvent("so"))
        return await super().ainvoke(*args, **options)


UNAVAILABLE = [
    errors.ConnectionFailed("down"),
    errors.RateLimited("down", status=429),
    errors.Overloaded("down", status=529),
    errors.ServerError("down", status=500),
]
REJECTED = [
    errors.BadRequest("no", status=400),
    errors.ContextWindowExceeded("no", status=400),
    errors.ContentRefused("no", status=400),
    errors.AuthenticationFailed("no", status=401),
    errors.BadResponse("no", status=200),
]


@pytest.mark.parametrize("error", UNAVAILABLE, ids=lambda error: type(error).__name__)
async def test_the_second_model_answers_if_the_first_is_unavailable(error):
    first, second, deltas = ScriptedModel(error), ScriptedModel("hello", model="second"), []
    llm = Fallback(first, second)
    reply = await llm.ainvoke(HI, (), tool_choice="none", on_delta=deltas.append)
    assert (reply.text, reply.model, deltas) == ("hello", "second", [TextDeltaEvent("hello")])
    assert first.requests == second.requests


@pytest.mark.parametrize("wire", WIRES, ids=lambda wire: wire.name)
async def test_another_model_goes_on_with_a_turn_that_anthropic_has_paused(wire):
    search = {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}}
    paused = Reply(blocks=[{"type": "text", "text": "so"}, search], finish="pause_turn")
    async with ANTHROPIC.double([paused, Failure(529)]) as first, wire.double(["done"]) as second:
        web = {"type": "web_search_20250305", "name": "web_search"}
        claude = ANTHROPIC.model(first, provider_tools=[web], max_retries=0)
        agent = Agent(llm=Fallback(claude, wire.model(second)))
        assert await agent.query("Look it up.") == "done"
        assert second.refusals == []


@pytest.mark.parametrize("error", REJECTED, ids=lambda error: type(error).__name__)
async def test_a_rejected_request_is_not_sent_to_another_model(error):
    llm = Fallback(ScriptedModel(error, "again"), ScriptedModel())
    with pytest.raises(type(error)) as caught:
        await ask(llm)
    assert caught.value is error
    assert (await ask(llm)).text == "again"  # the model is not skipped either


async def test_no_other_model_is_used_after_a_delta_was_emitted():
    deltas = []
    with pytest.raises(errors.ConnectionFailed):
        await Fallback(PartialModel(UNAVAILABLE[0]), ScriptedModel()).ainvoke(
            HI, on_delta=deltas.append
        )
    assert deltas == [TextDeltaEvent("so")]
    assert (await ask(Fallback(PartialModel(UNAVAILABLE[0]), ScriptedModel("a")))).text == "a"


async def test_the_last_error_is_raised_with_notes_about_the_earlier_errors():
    script = errors.RateLimited("one"), errors.Overloaded("two"), errors.ServerError("three")
    with pytest.raises(errors.ServerError, match="three") as caught:
        await ask(Fallback(*map(ScriptedModel, script)))
    first, second = caught.value.__notes__
    assert "RateLimited: one" in first
    assert "Overloaded: two" in second


async def test_an_unavailable_model_is_skipped_during_the_cooldown(clock):
    models = ScriptedModel(UNAVAILABLE[0], "back", model="a"), ScriptedModel("x", "y", model="b")
    llm = Fallback(*models, cooldown=30)
    for model, text, model_then, seconds in (("a", "x", "b", 29), ("b", "y", "b", 1)):
        assert (llm.model, (await ask(llm)).text, llm.model) == (model, text, model_then)
        clock.now += seconds
    assert (llm.model, (await ask(llm)).text) == ("a", "back")


async def test_a_longer_retry_after_extends_the_cooldown(clock):
    first = ScriptedModel(errors.RateLimited("later", retry_after=300))
    llm = Fallback(first, ScriptedModel("x", "y"), cooldown=30)
    for _ in "xy":
        await ask(llm)
        clock.now += 299
    assert len(first.requests) == 1


async def test_every_model_is_tried_if_all_are_in_cooldown(clock):
    llm = Fallback(
        ScriptedModel(UNAVAILABLE[0], UNAVAILABLE[1]), ScriptedModel(UNAVAILABLE[2], "up")
    )
    with pytest.raises(errors.Overloaded):
        await ask(llm)
    assert (await ask(llm)).text == "up"


async def test_the_errors_that_trigger_a_fallback_are_configurable():
    llm = Fallback(ScriptedModel(REJECTED[-1]), ScriptedModel("a"), errors=(errors.BadResponse,))
    assert (await ask(llm)).text == "a"
    with pytest.raises(errors.ConnectionFailed):
        await ask(Fallback(ScriptedModel(UNAVAILABLE[0]), ScriptedModel("a"), errors=()))


@pytest.mark.parametrize("pair", [*permutations(WIRES, 2)], ids=lambda pair: pair[0].name)
@pytest.mark.parametrize("talk", CONVERSATIONS[2:5], ids=lambda talk: talk.name)
async def test_a_conversation_continues_with_another_provider(talk, pair):
    half = len(talk.script) // 2
    first = pair[0].double([*talk.script[:half], Failure(503)])
    second = pair[1].double(talk.script[half:])
    async with first as first_server, second as second_server:
        llm = Fallback(pair[0].model(first_server, max_retries=0), pair[1].model(second_server))
        held = await hold(talk, llm, streaming=True)
    assert held.results[-1].text == talk.script[-1].text
    assert (first.refusals, second.refusals, second.replies) == ([], [], [])


@pytest.mark.parametrize("models", [(), ("gpt-5-mini",), (ScriptedModel(), None)])
def test_an_invalid_model_is_rejected_at_construction(models):
    with pytest.raises(TypeError, match=r"ainvoke"):
        Fallback(*models)


def test_the_repr_shows_the_models_without_keys():
    llm = Fallback(*[wire.model("http://x") for wire in WIRES[1:]])
    assert repr(llm) == "Fallback(ChatOpenAI('m'), ChatAnthropic('m'), ChatGoogle('gemini-3-pro'))"


async def test_an_output_type_uses_the_done_tool():
    llm = Fallback(ScriptedModel(errors.ServerError("down")), ScriptedModel(call("done", result=3)))
    agent = Agent(llm=llm, output_type=int)
    assert (await agent.run("1 + 2?")).value == 3


async def test_the_failed_attempts_of_all_models_belong_to_the_reply_or_the_error():
    def down():
        error = errors.ServerError("down")
        error.attempts = (Attempt(Usage(5)),)
        return error

    reply = await ask(Fallback(ScriptedModel(down()), ScriptedModel("hello")))
    assert [attempt.usage for attempt in reply.attempts] == [Usage(5)]
    with pytest.raises(errors.ServerError) as caught:
        await ask(Fallback(ScriptedModel(down()), ScriptedModel(down())))
    assert len(caught.value.attempts) == 2
