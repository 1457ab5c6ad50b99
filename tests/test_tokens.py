"""Tokens: an estimate, or the count of tiktoken."""

import pytest

from agentloop import AssistantMessage, ImagePart, Tool, ToolCall, UserMessage
from agentloop.common.tokens import (
    context_window,
    count_tokens,
    load_encoding,
    message_tokens,
    tool_tokens,
)

LETTERS = {bytes([byte]): byte for byte in range(256)}  # a vocabulary with a token per byte
TEXTS = ["hello", "é🚂", "<|endoftext|>", "\ud800"]


@pytest.fixture
def loaded(monkeypatch):
    """Vocabularies that need no download; returns the names of the loaded ones."""
    tiktoken = pytest.importorskip("tiktoken")
    names = []

    def get_encoding(name):
        names.append(name)
        return tiktoken.Encoding(
            name, pat_str=r"\S+|\s+", mergeable_ranks=LETTERS, special_tokens={"<|endoftext|>": 256}
        )

    monkeypatch.setattr("agentloop.common.tokens._vocabularies", {})
    monkeypatch.setattr(tiktoken, "get_encoding", get_encoding)
    return names


def test_counts_for_a_model_are_those_of_its_vocabulary_once_it_is_loaded(loaded):
    estimates = [count_tokens(text) for text in TEXTS]
    assert [count_tokens(text, "gpt-5") for text in TEXTS] == estimates
    assert load_encoding("gpt-5")
    assert [count_tokens(text, "gpt-5") for text in TEXTS] == [5, 6, 13, 3]
    calls = AssistantMessage("abcd", (ToolCall("1", "look", '{"a":123}'),))
    assert message_tokens([calls], "gpt-5") == 4 + 4 + 4 + len('look{"a":123}')
    declared = Tool("look", "12345678", {"type": "object"})
    assert tool_tokens([declared], "gpt-5") == len('look12345678{"type":"object"}')
    assert [count_tokens(text) for text in TEXTS] == estimates  # decisions stay the same


def test_the_vocabulary_of_a_model_is_that_of_its_family_or_the_newest(loaded):
    models = ["gpt-4", "openai/gpt-4o", "gpt-5-mini", "my-model"]
    assert all(map(load_encoding, models))
    assert loaded == ["cl100k_base", "o200k_base", "o200k_base", "o200k_base"]


@pytest.mark.parametrize("error", [ImportError, ConnectionError])
def test_without_the_vocabulary_counts_remain_estimates(loaded, monkeypatch, error):
    def fails(name):
        raise error("not available")

    monkeypatch.setattr("tiktoken.get_encoding", fails)
    assert not load_encoding("gpt-5")
    assert count_tokens("x" * 400, "gpt-5") == count_tokens("x" * 400)


def test_an_encoding_needs_the_name_of_a_model(loaded):
    with pytest.raises(ValueError, match="model"):
        load_encoding("")


def test_the_estimate_is_a_token_for_four_bytes():
    assert [count_tokens(text) for text in ("", "abcd", "abcde", "é" * 4, "🚂")] == [0, 1, 2, 2, 1]
    calls = AssistantMessage("abcd", (ToolCall("1", "look", '{"a":123}'),))
    assert message_tokens(calls) == 4 + 1 + 4 + 4
    image = ImagePart(url="https://example.com/a.png")
    assert message_tokens(UserMessage(["abcd", image, image])) == 4 + 1 + 2_000
    assert message_tokens([calls, calls]) == 2 * message_tokens(calls)
    assert message_tokens([]) == 0
    declared = Tool("look", "12345678", {"type": "object"})
    assert tool_tokens([declared, declared]) == 2 * count_tokens('look12345678{"type":"object"}')


def test_the_context_window_is_known_of_some_models():
    pytest.importorskip("genai_prices")
    assert context_window("models/gemini-2.5-flash") == 1_048_576
    assert context_window("anthropic/claude-3-5-haiku-latest") == 200_000
    assert context_window("claude-3-5-haiku-latest") == 200_000
    assert context_window("nobody-knows-it") is None
