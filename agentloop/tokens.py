"""How many tokens a text, a message, a list of tools has: tiktoken's count, or an estimate.

Copy with: messages.py.

The estimate is one token per four bytes of UTF-8, on every machine. tiktoken counts better, but
downloads its tables, without a timeout: so it counts only where a program says so, and where they
are on the disk. Either is scaled by what the provider reports: see prefix.py.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterable
from functools import partial
from hashlib import sha256
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
TABLES = {  # the names of tiktoken's tables in its cache, and how their sha256 begins
    "o200k_base": ("fb374d419588a4632f3f557e76b4b70aebbca790", "446a9538cb6c348e3516120d7c08b09f"),
    "cl100k_base": ("9b5ad71b2ce5302211f9c61530b329a4922fc6a4", "223921b76ee99bde995b7ff738513eef"),
}
PIECE = 2_000  # characters that tiktoken gets at once: long runs of one letter take it very long

_in_use: list[str] = []  # the encoding, if there is one


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
    encoder: Any = import_module("tiktoken").get_encoding(encoding)  # which it keeps
    pieces = (text[at : at + PIECE] for at in range(0, len(text), PIECE))
    return sum(len(encoder.encode(piece, disallowed_special=())) for piece in pieces)


def use_tiktoken(encoding: str | None = ENCODING) -> bool:
    """Let agents count with tiktoken from now on, if its table is on the disk: whether they do.

    For the start of a program: loading the table takes half a second. None goes back to the
    estimate. TIKTOKEN_CACHE_DIR says where tiktoken keeps its tables.
    """
    _in_use.clear()
    if encoding is None:
        return False
    if encoding not in TABLES:
        raise ValueError(f"the encodings are {', '.join(TABLES)}; not {encoding!r}")
    folder = os.environ.get("TIKTOKEN_CACHE_DIR", os.environ.get("DATA_GYM_CACHE_DIR"))
    name, digest = TABLES[encoding]
    path = Path(folder or Path(tempfile.gettempdir(), "data-gym-cache"), name)
    # With "" for a folder tiktoken has no cache; a damaged table it deletes, and downloads.
    data = path.read_bytes() if folder != "" and path.is_file() else b""
    if found := sha256(data).hexdigest().startswith(digest):
        count_tokens("", encoding)
        _in_use.append(encoding)
    return found


def counter() -> TokenCount:
    """How agents count: by the estimate, or with tiktoken after `use_tiktoken`."""
    return partial(count_tokens, encoding=_in_use[0]) if _in_use else estimate


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
