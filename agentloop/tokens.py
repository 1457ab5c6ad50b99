"""How many tokens a text, a message, a list of tools has: tiktoken's count, or an estimate.

Copy with: messages.py.

The estimate is one token per four bytes of UTF-8. tiktoken counts better, but downloads its tables
without a timeout: so it is used where they are on the disk already, and loaded in a thread. Either
is scaled by what the provider reports: see prefix.py.
"""

from __future__ import annotations

import logging
import os
import tempfile
import threading
from collections.abc import Callable, Iterable
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from pydantic_core import to_json

from .messages import AssistantMessage, Message, TextPart

if TYPE_CHECKING:
    from .tools import Tool

TokenCount: TypeAlias = Callable[[str], int]

BYTES_PER_TOKEN = 4
MESSAGE_OVERHEAD = 4  # role and separators
ATTACHMENT_TOKENS = 1_000  # an image of about a megapixel, or a page or two of a PDF
ENCODING = "o200k_base"
TABLES = {  # the names that tiktoken gives its tables in its cache
    "o200k_base": "fb374d419588a4632f3f557e76b4b70aebbca790",
    "cl100k_base": "9b5ad71b2ce5302211f9c61530b329a4922fc6a4",
}
PIECE = 2_000  # characters that tiktoken gets at once: long runs of one letter take it very long

logger = logging.getLogger("agentloop")
_loaded: dict[str, Any] = {}


def estimate(text: str) -> int:
    """One token per four bytes of UTF-8: the same on every machine and at any time."""
    size = len(text) if text.isascii() else len(text.encode("utf-8", "replace"))
    return -(-size // BYTES_PER_TOKEN)


def count_tokens(text: str, encoding: str | None = None) -> int:
    """The tokens of a text: estimated, or counted with a tiktoken encoding ("o200k_base").

    A named encoding is loaded from tiktoken's cache, or downloaded by tiktoken.
    """
    if encoding is None:
        return estimate(text)
    if encoding not in _loaded:
        _loaded[encoding] = import_module("tiktoken").get_encoding(encoding)
    pieces = (text[at : at + PIECE] for at in range(0, len(text), PIECE))
    return sum(len(_loaded[encoding].encode(piece, disallowed_special=())) for piece in pieces)


def counter() -> TokenCount:
    """tiktoken's count if its table is loaded; else the estimate, while a thread loads the table.

    Only a table that is on the disk is loaded.
    """
    if ENCODING in _loaded:
        return lambda text: count_tokens(text, ENCODING)
    load_in_background(ENCODING)
    return estimate


@cache
def load_in_background(encoding: str) -> threading.Thread | None:
    """The thread that loads a table of tiktoken's; None if it is not on the disk."""
    folder = os.environ.get("TIKTOKEN_CACHE_DIR") or os.environ.get("DATA_GYM_CACHE_DIR")
    path = Path(folder or Path(tempfile.gettempdir(), "data-gym-cache"), TABLES[encoding])
    if not path.is_file():
        return None

    def load() -> None:
        try:
            count_tokens("", encoding)
        except Exception:
            logger.info("tiktoken's table %s could not be loaded", encoding, exc_info=True)

    thread = threading.Thread(target=load, daemon=True)
    thread.start()
    return thread


def message_tokens(message: Message, count: TokenCount = estimate) -> int:
    """The estimated tokens of one message, its calls and attachments included."""
    content = message.content
    tokens = MESSAGE_OVERHEAD
    if isinstance(content, str):
        tokens += count(content)
    else:
        for part in content:
            tokens += count(part.text) if isinstance(part, TextPart) else ATTACHMENT_TOKENS
    if isinstance(message, AssistantMessage):
        for call in message.tool_calls:
            tokens += MESSAGE_OVERHEAD + count(call.name) + count(call.arguments)
    return tokens


def tool_tokens(tools: Iterable[Tool], count: TokenCount = estimate) -> int:
    """The estimated tokens of the declarations of some tools."""
    return sum(
        count(tool.name + tool.description) + count(to_json(tool.parameters).decode())
        for tool in tools
    )


def context_window(model: str) -> int | None:
    """How many tokens a model's context window has, if the package genai-prices is there and
    knows it."""
    try:
        snapshot = import_module("genai_prices.data_snapshot").get_snapshot()
        _, found = snapshot.find_provider_model(model, None, None, None)
    except (ImportError, LookupError):
        return None
    window: int | None = found.context_window
    return window
