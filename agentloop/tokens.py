"""How many tokens a text, a message, a list of tools has: an estimate, or tiktoken's count.

Copy with: tools.py and what it names.

The estimate is one token per four bytes of UTF-8: the same on every machine and at any time.
"""

from __future__ import annotations

from collections.abc import Iterable
from importlib import import_module
from typing import Any

from pydantic_core import to_json

from .messages import AssistantMessage, Message, TextPart
from .tools import Tool

BYTES_PER_TOKEN = 4
MESSAGE_OVERHEAD = 4  # role and separators
ATTACHMENT_TOKENS = 1_000  # an image of about a megapixel, or a page or two of a PDF
PIECE = 2_000  # characters that tiktoken gets at once: long runs of one letter take it very long


def estimate(text: str) -> int:
    """One token per four bytes of UTF-8."""
    size = len(text) if text.isascii() else len(text.encode("utf-8", "replace"))
    return -(-size // BYTES_PER_TOKEN)


def count_tokens(text: str, encoding: str | None = None) -> int:
    """The tokens of a text: estimated, or counted with a tiktoken encoding ("o200k_base").

    A named encoding is loaded from tiktoken's cache, or downloaded by tiktoken.
    """
    if encoding is None:
        return estimate(text)
    encoder: Any = import_module("tiktoken").get_encoding(encoding)  # which it keeps
    pieces = (text[at : at + PIECE] for at in range(0, len(text), PIECE))
    return sum(len(encoder.encode(piece, disallowed_special=())) for piece in pieces)


def message_tokens(message: Message) -> int:
    """The estimated tokens of one message, its calls and attachments included."""
    content = message.content
    if isinstance(content, str):
        tokens = MESSAGE_OVERHEAD + estimate(content)
    else:
        sizes = (
            estimate(p.text) if isinstance(p, TextPart) else ATTACHMENT_TOKENS for p in content
        )
        tokens = MESSAGE_OVERHEAD + sum(sizes)
    if isinstance(message, AssistantMessage):
        for call in message.tool_calls:
            tokens += MESSAGE_OVERHEAD + estimate(call.name) + estimate(call.arguments)
    return tokens


def tool_tokens(tools: Iterable[Tool]) -> int:
    """The estimated tokens of the declarations of some tools."""
    return sum(
        estimate(tool.name + tool.description) + estimate(to_json(tool.parameters).decode())
        for tool in tools
    )


def context_window(model: str) -> int | None:
    """The tokens of a model's context window, if the package genai-prices is there and knows it."""
    try:
        snapshot = import_module("genai_prices.data_snapshot").get_snapshot()
        _, found = snapshot.find_provider_model(model, None, None, None)
    except (ImportError, LookupError):
        return None
    window: int | None = found.context_window
    return window
