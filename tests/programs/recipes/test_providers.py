"""The recipes for custom providers (with a double of Azure) and for many concurrent agents."""

import asyncio

import pytest

from agentloop import Agent, AssistantMessage, ScriptedModel, Usage, errors
from tests.doubles.openai_double import Failure, OpenAIDouble
from tests.doubles.wires import CONVERSATIONS, KEY, hold
from tests.library.models.helpers import ask
from tests.recipes import load


@pytest.fixture(name="recipe")
def _recipe(monkeypatch):
    for name in ("AZURE_OPENAI_API_KEY", "AZURE_OPENAI_ENDPOINT"):
        monkeypatch.delenv(name, raising=False)
    return load("other_servers")


class AzureDouble(OpenAIDouble):
    """Requires the deployment in the path, the version in the query and the key in its header."""

    def _examine(self, first, headers, content):
        path = "/openai/deployments/my%20one/chat/completions?api-version=2024-10-21"
        assert first == f"POST {path} HTTP/1.1"
        assert (headers.get("api-key"), headers.get("authorization")) == (KEY, None)
        super()._examine("POST /v1/chat/completions HTTP/1.1", headers, content)


@pytest.mark.parametrize("streaming", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("talk", CONVERSATIONS, ids=lambda talk: talk.name)
async def test_azure_completes_every_conversation(talk, streaming, recipe, monkeypatch):
    async with AzureDouble(talk.script, secrets=[KEY]) as server:
        monkeypatch.setenv("AZURE_OPENAI_API_KEY", KEY)
        monkeypatch.setenv("AZURE_OPENAI_ENDPOINT", server.base_url.removesuffix("/v1") + "/")
        async with recipe.chat_model("azure", "my one") as llm:
            await hold(talk, llm, streaming)
            assert KEY not in repr(llm)
        assert (server.refusals, server.replies) == ([], [])


async def test_the_content_filter_of_azure_is_a_refusal_and_not_retried(recipe):
    message = (
        "The response was filtered due to the prompt triggering the content management policy."
    )
    script = [Failure(400, message, code="content_filter")]
    async with AzureDouble(script) as server:
        url = server.base_url.removesuffix("/v1")
        with pytest.raises(errors.ContentRefused, match="filtered"):
            await ask(recipe.AzureOpenAI("my one", base_url=url, api_key=KEY))
        assert len(server.requests) == 1


def test_every_address_in_the_table_creates_a_model(recipe, monkeypatch):
    for name in recipe.KEYS:
        monkeypatch.setenv(f"{name.upper()}_API_KEY", KEY)
    for name, url in recipe.BASE_URLS.items():
        assert recipe.chat_model(name, "m").base_url == url
    assert len(recipe.BASE_URLS) == 8


async def test_the_recipe_answers_a_question(recipe, monkeypatch, capsys):
    async with OpenAIDouble(["It scatters."]) as server:
        monkeypatch.setitem(recipe.BASE_URLS, "ollama", server.base_url)
        await recipe.main("ollama", "qwen3", "Why is the sky blue?")
    assert "It scatters.\n" in capsys.readouterr().out


# ---- many agents: limited concurrency and tokens per minute


async def run_paced_agents(agents, at_once, per_minute):
    """Return the start times of many requests and their maximum concurrency."""
    now, starts, running, peak = 1000.0, list[float](), 0, 0

    async def sleep(seconds):
        nonlocal now
        await asyncio.sleep(0)
        now += seconds

    async def answer(messages, tools):
        nonlocal running, peak
        starts.append(now)
        running += 1
        peak = max(peak, running)
        await asyncio.sleep(0)
        running -= 1
        return AssistantMessage("ok", usage=Usage(90, 10))

    paced = load("many_agents_at_once").Paced
    llm = paced(ScriptedModel(answer), at_once, per_minute, clock=lambda: now, sleep=sleep)
    template = Agent(llm=llm)
    answers = await asyncio.gather(*(template.fork().query("x") for _ in range(agents)))
    assert answers == ["ok"] * agents
    return starts, peak


async def test_concurrent_requests_are_limited():
    assert (await run_paced_agents(50, 4, 10**9))[1] == 4


@pytest.mark.parametrize("at_once", [1, 3])
async def test_the_tokens_per_minute_stay_below_the_limit(at_once):
    starts, _ = await run_paced_agents(20, at_once, 500)
    for start in starts:
        per_minute = sum(start <= at < start + 60 for at in starts)
        # Concurrent requests are counted by their estimates, which are lower here.
        assert per_minute <= 5 + (at_once - 1)
    assert starts[-1] - starts[0] >= 60 * 2


async def test_a_request_that_is_larger_than_the_limit_is_sent_alone():
    starts, _ = await run_paced_agents(3, 3, 1)
    assert [round(at - starts[0]) for at in starts] == [0, 60, 120]
