"""Tokens: an estimate of them."""

import pytest

from agentloop import AssistantMessage, ImagePart, Tool, ToolCall, UserMessage
from agentloop.common.tokens import context_window, count_tokens, message_tokens, tool_tokens


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
