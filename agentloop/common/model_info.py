"""Optional statements of a chat model about its provider: prompt cache and output limit.

Copy with: the core.

Both are optional attributes of a chat model. The models of this library have them; a custom model
states them in the same way:

    class MyModel:
        model = "my-model"
        cache_rules = CacheRules(smallest_prefix=1_024, write_price=1.0)
        output_limit = 8_000
"""

from typing import Protocol, runtime_checkable

from ..loop import ChatModel
from ..messages import frozen


@frozen
class CacheRules:
    """The rules of a provider's prompt cache. The defaults are a cautious guess.

    smallest_prefix: tokens; a shorter beginning of a request is not cached.
    read_price: the price of a token read from the cache, where uncached input costs 1.
    write_price: the price of a token written to the cache.
    """

    smallest_prefix: int = 4_096
    read_price: float = 0.1
    write_price: float = 1.25


@runtime_checkable
class HasCacheRules(Protocol):
    """A chat model that states its provider's cache rules."""

    @property
    def cache_rules(self) -> CacheRules: ...


@runtime_checkable
class HasOutputLimit(Protocol):
    """A chat model that states the largest output that its requests reserve, in tokens."""

    @property
    def output_limit(self) -> int | None: ...


def cache_rules(llm: ChatModel) -> CacheRules:
    """Return the cache rules that a model states, or the defaults."""
    return llm.cache_rules if isinstance(llm, HasCacheRules) else CacheRules()


def output_limit(llm: ChatModel) -> int:
    """Return the output tokens that a model's requests reserve, or 0 if unknown."""
    limit = llm.output_limit if isinstance(llm, HasOutputLimit) else None
    return limit or 0
