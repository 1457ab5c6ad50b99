"""Promise 5: no repr, log, event, error or record contains an API key."""

import logging
import pickle
import traceback
from dataclasses import asdict

import pytest

from agentloop import Agent, ChatOpenAI, ModelError, dump_record
from tests.doubles.openai_double import Failure, OpenAIDouble

KEY = "sk-very-secret-0123456789"


@pytest.mark.parametrize("status", [400, 401, 429, 500])
async def test_a_key_echoed_by_the_provider_is_hidden(status, caplog):
    caplog.set_level(logging.DEBUG)
    events = []
    async with OpenAIDouble([Failure(status, f"bad key {KEY}")]) as server:
        llm = ChatOpenAI("m", base_url=server.base_url, api_key=KEY, max_retries=0)
        agent = Agent(llm=llm, listeners=[events.append])
        with pytest.raises(ModelError) as caught:
            await agent.run("hi")
        assert KEY in str(server.headers)
    texts = [repr(agent), repr(llm), str(caught.value), repr(vars(caught.value)), repr(events)]
    texts += [caplog.text, "".join(traceback.format_exception(caught.value))]
    texts += [dump_record(record).decode() for record in agent.log]
    assert not [text for text in texts if KEY in text]


@pytest.mark.parametrize("settings", [{"api_key": KEY}, {"llm": KEY}, {"token": KEY}])
def test_an_error_about_a_setting_omits_the_value(settings):
    class WithToken(Agent):
        token: str

    with pytest.raises(TypeError, match="llm|api_key") as caught:
        WithToken(**settings)
    assert KEY not in str(caught.value)


@pytest.mark.parametrize("status", [400, 401, 404])
async def test_no_local_variable_of_a_traceback_shows_the_key(status):
    async with OpenAIDouble([Failure(status, "no")]) as server:
        llm = ChatOpenAI("m", base_url=server.base_url, api_key=KEY)
        with pytest.raises(ModelError) as caught:
            await llm.ainvoke([])
        await llm.aclose()
    frames = [entry.frame.f_locals for entry in caught.traceback[1:]]
    assert not [text for each in frames for text in map(repr, each.values()) if KEY in text]


@pytest.mark.parametrize("show", [vars, asdict, pickle.dumps])
def test_no_representation_of_a_model_shows_the_key(show):
    assert KEY not in repr(show(ChatOpenAI("m", api_key=KEY)))
