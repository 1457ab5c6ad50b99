"""The context windows of models.

Copy with: waiting.py and its imports.
"""

from functools import cache
from importlib import import_module
from typing import cast

from ..waiting import logger

UNKNOWN_WINDOW = 128_000
"""The context window that a model is assumed to have if nobody knows it, in tokens."""


def context_window(model: str) -> int | None:
    """How many tokens a model's context window has; None if genai-prices doesn't say.

    A provider prefix (`anthropic/...`) is ignored. The package doesn't have the windows of Gemini
    models: since version 2.0, all of them have 1,048,576 tokens.
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
    """Look up a model's context window. If it isn't known, warn once and assume UNKNOWN_WINDOW."""
    window = context_window(model)
    if window:
        return window
    logger.warning(
        "the context window of %r is unknown and assumed to be %s tokens: set "
        "compaction=CompactionConfig(context_window=...), or install genai-prices",
        model,
        f"{UNKNOWN_WINDOW:,}",
    )
    return UNKNOWN_WINDOW
