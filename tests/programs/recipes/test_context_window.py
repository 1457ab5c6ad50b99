"""The recipe that reads the context window from a server, with realistic server responses."""

import httpx
import pytest

from agentloop.common.windows import context_window
from tests.recipes import load

recipe = load("other_servers")
URL = "http://host:1/v1"

SERVERS = {  # by path; other paths return 404
    # Source: https://docs.vllm.ai/en/latest/serving/openai_compatible_server.html
    "vllm": ({"/v1/models": {"data": [{"id": "m", "max_model_len": 32768}]}}, 32768),
    # Source: https://openrouter.ai/docs/api-reference/list-available-models
    "openrouter": (
        {
            "/v1/models": {
                "data": [
                    {"id": "other", "context_length": 9},
                    {"id": "m", "context_length": 200_000, "top_provider": {"context_length": 1}},
                ]
            }
        },
        200_000,
    ),
    # Source: https://console.groq.com/docs/api-reference#models-list
    "groq": ({"/v1/models": {"data": [{"id": "m", "context_window": 131_072}]}}, 131_072),
    # Source: https://docs.together.ai/reference/models-1
    "together": ({"/v1/models": [{"id": "m", "context_length": 131_072}]}, 131_072),
    # Source: https://github.com/ggml-org/llama.cpp/tree/master/tools/server#get-props
    "llama.cpp": (
        {
            "/v1/models": {"models": [{"name": "x.gguf"}], "data": [{"id": "x.gguf", "meta": {}}]},
            "/props": {"default_generation_settings": {"n_ctx": 2048}},
        },
        2048,
    ),
    # Source: https://docs.ollama.com/api/ps
    "ollama": (
        {
            "/v1/models": {"data": [{"id": "m"}]},
            "/api/ps": {"models": [{"name": "m", "model": "m", "context_length": 4096}]},
        },
        4096,
    ),
    "ollama, whose other models have no id either": (
        {
            "/api/ps": {
                "models": [
                    {"name": "other", "context_length": 9},
                    {"name": "m:latest", "context_length": 4096},
                ]
            }
        },
        4096,
    ),
    "ollama, not loaded": (
        {"/v1/models": {"data": [{"id": "m"}]}, "/api/ps": {"models": []}},
        None,
    ),
    "not reported": ({"/v1/models": {"data": [{"id": "m"}]}, "/props": "hello"}, None),
}


@pytest.mark.parametrize("name", SERVERS)
async def test_the_context_window_is_read_from_each_server(name):
    paths, window = SERVERS[name]

    def answer(request):
        assert request.headers["authorization"] == "Bearer k"
        path = request.url.path
        return httpx.Response(200, json=paths[path]) if path in paths else httpx.Response(404)

    headers = {"authorization": "Bearer k"}
    transport = httpx.MockTransport(answer)
    assert await recipe.server_window(URL, "m", headers, transport=transport) == window


async def test_the_window_is_requested_after_the_request_that_loads_the_model(capsys):
    loaded = []

    def ollama(request):
        if request.url.path == "/v1/chat/completions":
            loaded.append({"name": "m", "context_length": 4096})
            return httpx.Response(200, json={"choices": [{"message": {"content": "hello"}}]})
        return httpx.Response(200, json={"models": loaded})

    await recipe.main("ollama", "m", "Hi", httpx.MockTransport(ollama))
    assert "window is 4096" in capsys.readouterr().out


async def test_an_unreachable_server_has_an_unknown_context_window():
    assert await recipe.server_window("http://127.0.0.1:9/v1", "m", trust_env=False) is None


def test_context_windows_of_known_models_are_looked_up():
    pytest.importorskip("genai_prices")
    names = ["gemini-2.5-pro", "google/gemini-3-pro-preview", "models/gemini-flash-latest"]
    assert {context_window(name) for name in names} == {1_048_576}
    assert context_window("anthropic/claude-sonnet-4-5") == 200_000
    assert context_window("gpt-4o") == 128_000
    assert context_window("nobody-knows") is None
