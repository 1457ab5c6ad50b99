"""The context windows of models.

Copy with: waiting.py and its imports.
"""

from functools import cache
from importlib import import_module
from typing import cast

from ..waiting import logger

UNKNOWN_WINDOW = 128_000
"""The context window of an unknown model in tokens."""


def context_window(model: str) -> int | None:
    """Return the tokens of a model's context window, or None if unknown.

    The source is the package genai-prices; a provider prefix (`anthropic/...`) is ignored. The
    package lacks the windows of Gemini models, which are identical since version 2.0.
    """
    if "gemini" in model:
        return 1_048_576
    try:
        snapshot = import_module("genai_prices.data_snapshot").get_snapshot()
        _, info = snapshot.find_provider_model(model.rpartition("/")[2], None, None, None)
    except (ImportError, LookupError):
        return None
    return cast(int | None, info.context_window)


@cache
def window_of(model: str) -> int:
    """Return a model's context window, or UNKNOWN_WINDOW and say so once."""
    window = context_window(model)
    if window:
        return window
    logger.warning(
        "unknown context window of %r, assumed to be 128,000 tokens: set "
        "compaction=CompactionConfig(context_window=...), or install genai-prices",
        model,
    )
    return UNKNOWN_WINDOW
