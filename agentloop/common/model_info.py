"""Optional information of a chat model about its provider: cache, output limit, compaction.

Copy with: the core.

These are optional attributes of a chat model. The models of this library define them; a custom
model can define the same attributes:

    class MyModel:
        model = "my-model"
        cache_rules = CacheRules(smallest_prefix=1_024, write_price=1.0)
        output_limit = 8_000
        compact_threshold = 100_000
"""

from dataclasses import field

from ..messages import frozen
from ..model import ChatModel


@frozen
class CacheRules:
    """The rules of a provider's prompt cache. The defaults are a cautious guess.

    smallest_prefix: the provider caches the beginning of a request from this many tokens on.
    read_price: price of a token read from the cache, relative to uncached input.
    write_price: price of a token written to the cache, relative to uncached input.
    source: where the provider says so, and when that was read.
    """

    smallest_prefix: int = 4_096
    read_price: float = 0.1
    write_price: float = 1.25
    source: str = field(default="", compare=False, repr=False)


def cache_rules(llm: ChatModel) -> CacheRules:
    """Return the cache rules of a model, or the defaults."""
    rules: CacheRules | None = getattr(llm, "cache_rules", None)
    return rules or CacheRules()


def output_limit(llm: ChatModel) -> int:
    """Return the output tokens reserved by a model's requests, or 0 if unknown."""
    limit: int | None = getattr(llm, "output_limit", None)
    return limit or 0


def compact_threshold(llm: ChatModel) -> int:
    """Return the input tokens at which the provider compacts the conversation, or 0 for never."""
    threshold: int | None = getattr(llm, "compact_threshold", None)
    return threshold or 0
