"""The cost of a conversation's requests by the rules of each provider's prompt cache.

The price of an uncached input token is 1, and the tokens of JSON are estimated. A request is a list
of blocks; a cache entry is a prefix of a request. The rules are those of the providers' pages in
November 2026:

Anthropic (platform.claude.com/docs/en/build-with-claude/prompt-caching): an entry ends at a mark of
    a request. A later request reads the longest entry that ends at one of its marks, or up to 20
    positions before a mark; consecutive calls are one position, and so are consecutive results. A
    read costs 0.1, a write 1.25. An entry expires 5 minutes after its last use. The minimum is 512
    tokens (Opus 5, Fable 5), 1,024 (Sonnet 5, Opus 4.8), 2,048 (Opus 4.7) or 4,096 (Haiku 4.5,
    Opus 4.5 and 4.6).
OpenAI, GPT-5.6 and later (developers.openai.com/api/docs/guides/prompt-caching): an entry of at
    least 1,024 tokens ends at the newest message of the user, or at the last of consecutive
    results, and matches exactly. A later request compares this position, 20 such positions before
    it, and the end of the system prompt. (The API reference says "the latest 80 breakpoints"; this
    file uses the guide's 20, which cost more.) A read costs 0.1, a write 1.25. An entry expires 30
    minutes after its last use.
OpenAI, earlier models (the same page): the longest prefix of an earlier request, in steps of 128
    from 1,024 on, for 0.1; writes are free. The page states that the steps depend on the model,
    without their sizes. An entry typically expires after 30 minutes.
Google, Gemini 3 (ai.google.dev/gemini-api/docs/caching): the longest prefix of an earlier request,
    from 4,096 tokens on, for 0.1 (the discount and the price of a write are those of
    docs.cloud.google.com/gemini-enterprise-agent-platform/models/context-cache). Hits are not
    guaranteed. The documented lifetime is "within 24 hours, most much earlier"; this file assumes 5
    minutes.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache, cached_property, partial
from itertools import accumulate
from typing import Any, NamedTuple

from pydantic_core import from_json, to_json

from agentloop import ChatAnthropic, ChatGoogle, ChatOpenAI, Request
from agentloop.common.tokens import count_tokens
from agentloop.models.wire import encode_body

READ, WRITE = 0.1, 1.25  # prices of a token
PAUSE, EVERY = 40, 8  # minutes before every eighth request, in rows with pauses


@cache
def tokens(block: bytes) -> int:
    return count_tokens(block.decode())


class Prefix(NamedTuple):
    """The beginning of a request up to a block: its hash, and its tokens."""

    name: int
    size: int


@dataclass
class Body:
    """A request as blocks of JSON.

    marks: the blocks at which an entry may end.
    kinds: "call", "result" or "" of each block.
    """

    blocks: list[bytes]
    marks: list[int]
    kinds: list[str]

    @cached_property
    def prefixes(self) -> list[Prefix]:
        """The beginnings of the request, one for each block."""
        names = accumulate(self.blocks, lambda so_far, block: hash((so_far, block)), initial=0)
        next(names)
        return [*map(Prefix, names, accumulate(map(tokens, self.blocks)))]


class Entries:
    """The entries of a cache. An entry expires some minutes after its last use."""

    def __init__(self, minutes: float):
        self.minutes = minutes
        self.last_use: dict[int, float] = {}

    def longest(self, prefixes: Iterable[Prefix], now: float) -> Prefix:
        """Return the longest of the prefixes that has an entry."""
        there = [each for each in prefixes if self.has(each, now)]
        return max(there, key=lambda each: each.size, default=Prefix(0, 0))

    def has(self, prefix: Prefix, now: float) -> bool:
        last_use = self.last_use.get(prefix.name)
        return last_use is not None and now - last_use <= self.minutes

    def use(self, prefixes: Iterable[Prefix], now: float) -> None:
        for each in prefixes:
            self.last_use[each.name] = now


Timed = Iterable[tuple[Body, float]]  # requests, each with its time in minutes


def anthropic(requests: Timed, least: int = 1_024, minutes: float = 5) -> float:
    """Return the cost of a conversation whose requests mark their entries."""
    entries, cost = Entries(minutes), 0.0
    for body, now in requests:
        prefixes = body.prefixes
        places = {at for mark in body.marks for at in positions_before(body.kinds, mark)}
        read = entries.longest((prefixes[at] for at in places), now)
        marked = [prefixes[at] for at in body.marks if prefixes[at].size >= least]
        written = max([read.size, *(each.size for each in marked)])
        entries.use([read, *marked], now)
        cost += READ * read.size + WRITE * (written - read.size) + prefixes[-1].size - written
    return cost


def positions_before(kinds: list[str], mark: int, many: int = 20) -> Iterable[int]:
    """Yield a mark, and the blocks of the positions before the mark."""
    passed = 0
    for at in range(mark, -1, -1):
        if at < mark and (kinds[at] == "" or kinds[at] != kinds[at + 1]):
            passed += 1
        if passed > many:
            return
        yield at


def openai(requests: Timed, least: int = 1_024, minutes: float = 30) -> float:
    """Return the cost of a conversation with an entry at the end of each newest message."""
    entries, cost = Entries(minutes), 0.0
    for body, now in requests:
        prefixes = body.prefixes
        places = {*body.marks[-21:], *body.marks[:1]}
        read = entries.longest((prefixes[at] for at in places), now)
        end, whole = prefixes[body.marks[-1]], prefixes[-1].size
        if end.size < least:
            cost += whole
            continue
        entries.use([read, end], now)
        cost += READ * read.size + WRITE * (end.size - read.size) + whole - end.size
    return cost


def by_prefix(requests: Timed, least: int, step: int, minutes: float) -> float:
    """Return the cost of a conversation whose requests read the longest known prefix."""
    entries, cost = Entries(minutes), 0.0
    for body, now in requests:
        prefixes = body.prefixes
        read = entries.longest(prefixes, now).size // step * step
        if read < least:
            read = 0
        entries.use(prefixes, now)
        cost += READ * read + prefixes[-1].size - read
    return cost


def body_of(model: Any, request: Request) -> Body:
    """Return the blocks that a model sends: tools, system prompt, blocks of messages."""
    body = model.body(request.messages, request.tools, request.tool_choice, False)
    data = from_json(encode_body(body), cache_strings="all")
    system = data.get("system") or data.get("systemInstruction") or []
    blocks = [*data.get("tools", ()), *(system if isinstance(system, list) else [system])]
    for message in data.get("messages") or data.get("contents") or data["input"]:
        content = message.get("content") or message.get("parts")
        blocks += content if isinstance(content, list) else [message]
    kinds = [kind_of(block) for block in blocks]
    if "input" in data:
        marks = message_ends(blocks, kinds)
    else:
        marks = [at for at, block in enumerate(blocks) if "cache_control" in block]
    for block in blocks:
        block.pop("cache_control", None)
    return Body([to_json(block) for block in blocks], marks, kinds)


def kind_of(block: dict[str, Any]) -> str:
    kind = block.get("type", "")
    if kind in ("tool_use", "function_call"):
        return "call"
    return "result" if kind in ("tool_result", "function_call_output") else ""


def message_ends(blocks: list[dict[str, Any]], kinds: list[str]) -> list[int]:
    """Return the positions at which an entry of OpenAI may end."""
    ends = []
    for at, block in enumerate(blocks):
        last_result = kinds[at] == "result" and kinds[at + 1 : at + 2] != ["result"]
        if last_result or block.get("role") in ("system", "user"):
            ends.append(at)
    return ends


class Cache(NamedTuple):
    """A provider's model, its cost function, and the pause before every eighth request."""

    model: Any
    rule: Callable[[Timed], float]
    pause: float = 0

    def timed(self, bodies: Iterable[Body]) -> Timed:
        return ((body, n // EVERY * self.pause) for n, body in enumerate(bodies))


CLAUDE = ChatAnthropic("claude", api_key="-")
GPT = ChatOpenAI("gpt", api_key="-")
GEMINI = ChatGoogle("gemini", api_key="-")
CACHES = {
    "Anthropic": Cache(CLAUDE, anthropic),
    "Anthropic from 4,096": Cache(CLAUDE, partial(anthropic, least=4_096)),
    "Anthropic with pauses": Cache(CLAUDE, anthropic, PAUSE),
    "OpenAI": Cache(GPT, openai),
    "OpenAI with pauses": Cache(GPT, openai, PAUSE),
    "OpenAI before GPT-5.6": Cache(GPT, partial(by_prefix, least=1_024, step=128, minutes=30)),
    "Google": Cache(GEMINI, partial(by_prefix, least=4_096, step=1, minutes=5)),
}


def costs(requests: list[Request]) -> dict[str, float]:
    """Return the cost of a conversation in each cache."""
    models = {id(cache.model): cache.model for cache in CACHES.values()}
    bodies = {at: [body_of(model, each) for each in requests] for at, model in models.items()}
    return {
        name: cache.rule(cache.timed(bodies[id(cache.model)])) for name, cache in CACHES.items()
    }
