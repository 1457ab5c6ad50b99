"""What a chat model may say about its provider: cache, output limit, compaction.

Copy with: the core.

These are optional attributes of a chat model. The models of this library have them, and yours may
have them, too:

    class MyModel:
        model = "my-model"
        cache_rules = CacheRules(smallest_prefix=1_024, write_price=1.0)
        output_limit = 8_000
        compact_threshold = 100_000
        loads_tools = True
"""

from dataclasses import field

from ..messages import frozen
from ..model import ChatModel


@frozen
class CacheRules:
    """The rules of a provider's prompt cache. The defaults are a cautious guess.

    smallest_prefix: how many tokens the beginning of a request must have before it's cached.
    read_price: what a token costs if it's read from the cache; 1 is the price of uncached input.
    write_price: what a token costs if it's written to the cache.
    source: where the provider says so, and when we read it.
    """

    smallest_prefix: int = 4_096
    read_price: float = 0.1
    write_price: float = 1.25
    source: str = field(default="", compare=False, repr=False)


def cache_rules(llm: ChatModel) -> CacheRules:
    """The cache rules of a model, or the defaults if it has none."""
    rules: CacheRules | None = getattr(llm, "cache_rules", None)
    return rules or CacheRules()


def output_limit(llm: ChatModel) -> int:
    """How many output tokens a model's requests reserve; 0 if it doesn't say."""
    limit: int | None = getattr(llm, "output_limit", None)
    return limit or 0


def compact_threshold(llm: ChatModel) -> int:
    """The input tokens at which the provider compacts the conversation; 0 if it never does."""
    threshold: int | None = getattr(llm, "compact_threshold", None)
    return threshold or 0


def loads_tools(llm: ChatModel) -> bool:
    """Whether the model can get more tools in the middle of a conversation."""
    return bool(getattr(llm, "loads_tools", False))
