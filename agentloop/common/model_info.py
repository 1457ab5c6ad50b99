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

from typing import Protocol, runtime_checkable

from ..loop import ChatModel
from ..messages import frozen


@frozen
class CacheRules:
    """The rules of a provider's prompt cache. The defaults are a cautious guess.

    smallest_prefix: minimum tokens of a request's beginning that the provider caches.
    read_price: price of a token read from the cache, relative to uncached input.
    write_price: price of a token written to the cache, relative to uncached input.
    """

    smallest_prefix: int = 4_096
    read_price: float = 0.1
    write_price: float = 1.25


@runtime_checkable
class HasCacheRules(Protocol):
    """A chat model with its provider's cache rules."""

    @property
    def cache_rules(self) -> CacheRules: ...


@runtime_checkable
class HasOutputLimit(Protocol):
    """A chat model with the maximum output that its requests reserve, in tokens."""

    @property
    def output_limit(self) -> int | None: ...


@runtime_checkable
class HasCompactThreshold(Protocol):
    """A chat model whose provider compacts the conversation at this number of input tokens."""

    @property
    def compact_threshold(self) -> int | None: ...


def cache_rules(llm: ChatModel) -> CacheRules:
    """Return the cache rules of a model, or the defaults."""
    return llm.cache_rules if isinstance(llm, HasCacheRules) else CacheRules()


def output_limit(llm: ChatModel) -> int:
    """Return the output tokens reserved by a model's requests, or 0 if unknown."""
    return (llm.output_limit or 0) if isinstance(llm, HasOutputLimit) else 0


def compact_threshold(llm: ChatModel) -> int:
    """Return the input tokens at which the provider compacts the conversation, or 0 for never."""
    return (llm.compact_threshold or 0) if isinstance(llm, HasCompactThreshold) else 0
