"""The recipe for a provider of one's own, against a double that stands in for Azure."""

import pytest

from agentloop import errors
from agentloop.messages import UserMessage
from tests.doubles.openai_double import Failure, OpenAIDouble, Refused
from tests.doubles.wires import CONVERSATIONS, KEY, VARIABLES, hold
from tests.test_recipes import load


@pytest.fixture(name="recipe")
def _recipe(monkeypatch):
    for name in (*VARIABLES, "AZURE_OPENAI_API_KEY", "AZURE_OPENAI_ENDPOINT"):
        monkeypatch.delenv(name, raising=False)
    return load("azure_openai")


class AzureDouble(OpenAIDouble):
    """Wants the deployment in the path, the version in the query and the key in its header."""

    def _examine(self, first, headers, content):
        path = "/openai/deployments/my%20one/chat/completions?api-version=2024-10-21"
        if first != f"POST {path} HTTP/1.1":
            raise Refused(f"Resource not found: {first}")
        if headers.get("api-key") != KEY or "authorization" in headers:
            raise Refused("Access denied due to invalid subscription key")
        super()._examine("POST /v1/chat/completions HTTP/1.1", headers, content)


@pytest.mark.parametrize("streaming", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("talk", CONVERSATIONS, ids=lambda talk: talk.name)
async def test_azure_holds_every_conversation(talk, streaming, recipe, monkeypatch):
    async with AzureDouble(talk.script, secrets=[KEY]) as server:
        monkeypatch.setenv("AZURE_OPENAI_API_KEY", KEY)
        monkeypatch.setenv("AZURE_OPENAI_ENDPOINT", server.base_url.removesuffix("/v1") + "/")
        async with recipe.chat_model("azure", "my one") as llm:
            await hold(talk, llm, streaming)
            assert KEY not in repr(llm)
        assert (server.refusals, server.replies) == ([], [])


async def test_azure_s_content_filter_is_a_refusal_and_not_tried_again(recipe):
    said = "The response was filtered due to the prompt triggering the content management policy."
    script = [Failure(400, said, code="content_filter")]
    async with AzureDouble(script) as server:
        url = server.base_url.removesuffix("/v1")
        async with recipe.AzureOpenAI("my one", base_url=url, api_key=KEY) as llm:
            with pytest.raises(errors.ContentRefused, match="filtered"):
                await llm.ainvoke([UserMessage("hi")])
        assert len(server.requests) == 1


def test_every_address_in_the_table_makes_a_model(recipe, monkeypatch):
    for name in recipe.KEYS:
        monkeypatch.setenv(f"{name.upper()}_API_KEY", KEY)
    for name, url in recipe.BASE_URLS.items():
        assert recipe.chat_model(name, "m").base_url == url
    assert len(recipe.BASE_URLS) == 8


async def test_the_recipe_answers_a_question(recipe, monkeypatch, capsys):
    async with OpenAIDouble(["It scatters."]) as server:
        monkeypatch.setitem(recipe.BASE_URLS, "ollama", server.base_url)
        await recipe.main("ollama", "qwen3", "Why is the sky blue?")
    assert capsys.readouterr().out == "It scatters.\n"
