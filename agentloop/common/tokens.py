"""Estimates how many tokens a text, a message, a list of tools has.

Copy with: tools.py and what it names.

The estimate is one token per four bytes of UTF-8: the same on every machine and at any time.
"""

from collections.abc import Iterable
from importlib import import_module
from typing import cast

from pydantic_core import to_json

from ..messages import AssistantMessage, Message, TextPart
from ..tools import Tool

BYTES_PER_TOKEN = 4
MESSAGE_OVERHEAD = 4  # role and separators
ATTACHMENT_TOKENS = 1_000  # an image of about a megapixel, or a page or two of a PDF


def count_tokens(text: str) -> int:
    """Estimate the tokens of a text."""
    return -(-len(text.encode("utf-8", "replace")) // BYTES_PER_TOKEN)  # rounded up


def message_tokens(message: Message | Iterable[Message]) -> int:
    """Estimate the tokens of one message or of several, their calls and attachments included."""
    if not isinstance(message, Message):
        return sum(map(message_tokens, message))
    tokens = MESSAGE_OVERHEAD + count_tokens(message.text)
    if not isinstance(message.content, str):
        tokens += ATTACHMENT_TOKENS * sum(not isinstance(p, TextPart) for p in message.content)
    if isinstance(message, AssistantMessage):
        for call in message.tool_calls:
            tokens += MESSAGE_OVERHEAD + count_tokens(call.name + call.arguments)
    return tokens


def tool_tokens(tools: Iterable[Tool]) -> int:
    """Estimate the tokens of the declarations of some tools."""
    return sum(
        count_tokens(f"{each.name}{each.description}{to_json(each.parameters).decode()}")
        for each in tools
    )


def context_window(model: str) -> int | None:
    """Return the tokens of a model's context window, or None if nobody here knows it.

    They are from the package genai-prices, where a provider's name in front (`anthropic/...`) is
    no part of the model's. It does not know those of Gemini, which are the same since 2.0.
    """
    if "gemini" in model:
        return 1_048_576
    try:
        snapshot = import_module("genai_prices.data_snapshot").get_snapshot()
        _, found = snapshot.find_provider_model(model.rpartition("/")[2], None, None, None)
    except (ImportError, LookupError):
        return None
    return cast(int | None, found.context_window)
