"""Leaves out what is old when the conversation outgrows a budget, without asking a model.

Copy with: the core, tokens.py.

Old tool results keep their beginning and end; old turns (a reply, its calls and their results) and
old prompts go whole. The system prompt, the task, pinned messages (memory, summaries) and what the
model has not seen yet stay as they are. The log keeps everything.

A cut changes the request's prefix, which the provider then reads at the full price. So it goes down
to a share of the budget, and the next is far. `trim` finds the cuts of earlier requests again.
"""

from __future__ import annotations

import copy
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice

from ..events import PruneEvent
from ..loop import Loop
from ..messages import AssistantMessage, Message, TextPart, ToolMessage, UserMessage
from ..results import clip
from ..tokens import message_tokens

KINDS: dict[type, str] = {ToolMessage: "results", AssistantMessage: "turns", UserMessage: "prompts"}
KEEP = {"results": 5, "turns": 10, "prompts": 5}
FIXED = "fixed"  # the kind of what stays in any case


@dataclass(frozen=True, kw_only=True)
class TrimConfig:
    """How many tokens (estimated) the messages may have, and what leaves first.

    budget: of all messages. A cut goes down to `low_water` of it.
    budgets: of one kind, such as `{"results": 20_000}`.
    order: which kinds leave; one does when those before it were not enough. A prompt leaves once
        the answers before it are gone.
    keep: how many of the newest stay in any case, such as `{"turns": 20}`; else as in `KEEP`.
    result_chars: what an old result keeps.
    """

    budget: int = 100_000
    budgets: Mapping[str, int] = field(default_factory=dict[str, int])
    low_water: float = 0.6
    order: Sequence[str] = ("results", "turns", "prompts")
    keep: Mapping[str, int] = field(default_factory=dict[str, int])
    result_chars: int = 200

    def __post_init__(self) -> None:
        keep = {**KEEP, **self.keep}
        if {*keep, *self.budgets, *self.order} > {*KEEP} or len({*self.order}) < len(self.order):
            raise ValueError(f"the kinds are {', '.join(KEEP)}, each once; this is {self}")
        least = min(self.budget, *self.budgets.values(), keep["turns"])
        if least < 1 or not 0 < self.low_water <= 1 or min(self.result_chars, *keep.values()) < 0:
            raise ValueError(f"budgets and turns begin at 1, other numbers at 0; this is {self}")
        object.__setattr__(self, "keep", keep)


class Trim(Loop):
    """Keeps what the model sees within a budget.

    trim: the budget, and what leaves first; None turns it off.
    """

    trim: TrimConfig | None = TrimConfig()

    def __post_init__(self) -> None:
        super().__post_init__()
        if type(self.trim) not in (TrimConfig, type(None)):
            raise TypeError(f"trim= takes TrimConfig(...) or None, not {self.trim!r}")

    async def context(self) -> list[Message]:
        messages = await super().context()
        if self.trim is None:
            return messages
        walk: Walk | None = self._cache.get(Walk)
        if walk is None or walk.config is not self.trim or not walk.begins(messages):
            walk = self._cache[Walk] = Walk(self.trim)
        messages, cut = walk.go_on(messages)
        if cut:
            results = {each.tool_call_id for each in cut if isinstance(each, ToolMessage)}
            self.emit(PruneEvent(sorted(results)))
        return messages


def trim(messages: Sequence[Message], config: TrimConfig) -> tuple[list[Message], list[Message]]:
    """The messages that fit the budget or have to stay, and those that left just now."""
    return Walk(config).go_on(messages)


class Walk:
    """A conversation up to some message, and what the cuts so far have left of it."""

    def __init__(self, config: TrimConfig) -> None:
        self.config = config
        self.walked: list[Message] = []
        self.left: list[Message | None] = []  # None: it is gone
        self.places = {kind: deque[int]() for kind in (*KEEP, FIXED)}  # of what is not cut yet
        self.tokens = dict.fromkeys(self.places, 0)
        self.has_task, self.taken = False, list[Message]()

    def begins(self, messages: Sequence[Message]) -> bool:
        """Whether these messages begin with those that were walked."""
        return messages[: len(self.walked)] == self.walked

    def go_on(self, messages: Sequence[Message]) -> tuple[list[Message], list[Message]]:
        """Walk to the end of these messages: what is left of them, and what left just now."""
        for message in messages[len(self.walked) :]:
            if isinstance(message, AssistantMessage):
                self.cut()  # as the request did that this replies to
            self.add(message)
        end = copy.copy(self)  # without a cut, as more than the reply to this request may follow
        end.left, end.tokens = self.left[:], self.tokens.copy()
        end.places = {kind: places.copy() for kind, places in self.places.items()}
        cut = end.cut()
        return [message for message in end.left if message is not None], cut

    def add(self, message: Message) -> None:
        kind = KINDS.get(type(message), FIXED)
        if isinstance(message, UserMessage):
            kind = kind if self.has_task and not (message.extra or {}).get("pinned") else FIXED
            self.has_task = self.has_task or not message.hidden
        self.places[kind].append(len(self.left))
        self.tokens[kind] += message_tokens(message)
        self.left.append(message)
        self.walked.append(message)

    def cut(self) -> list[Message]:
        """Cut what is over its budget. Returns it as it was before."""
        config, self.taken = self.config, list[Message]()
        limits = [([kind], [kind], most) for kind, most in config.budgets.items()]
        for kinds, counted, most in [*limits, ([*config.order], [*self.tokens], config.budget)]:
            for kind in kinds if self.size(counted) > most else ():
                while self.size(counted) > most * config.low_water:
                    if (at := self.oldest(kind)) is None:
                        break
                    self.take(kind, at)
        return self.taken

    def size(self, kinds: Sequence[str]) -> int:
        return sum(self.tokens[kind] for kind in kinds)

    def oldest(self, kind: str) -> int | None:
        """Where the message of this kind stands that leaves next; None if none may."""
        places, results, turns = (self.places[each] for each in (kind, "results", "turns"))
        old = islice(places, max(0, len(places) - self.config.keep[kind]))
        if kind == "turns":
            kept = min(self.config.keep["results"], len(results))
            end = results[-kept] if kept else len(self.left)
            own = ((at, self.results_of(at)) for at in old)
            return next((at for at, results in own if not results or results.stop <= end), None)
        at = next(old, len(self.left))
        if not turns or at > turns[-1]:
            return None  # the model has not seen it
        held = kind == "prompts" and any(turn < at and not self.results_of(turn) for turn in turns)
        return None if held else at  # a reply must not come to stand behind a reply

    def results_of(self, place: int) -> range:
        """Where the results of a turn stand; nowhere for anything else."""
        reply = self.left[place]
        calls = reply.tool_calls if isinstance(reply, AssistantMessage) else ()
        return range(place + 1, place + 1 + len(calls))

    def take(self, kind: str, at: int) -> None:
        """Shorten the result there, or remove the prompt, or the turn with its results."""
        self.places[kind].remove(at)
        for place in (at, *self.results_of(at)):
            old, new = self.left[place], None
            if kind == "results" and isinstance(old, ToolMessage):
                new = shortened(old, self.config.result_chars)
            if old is not None and new is not old:
                self.left[place] = new
                self.tokens[KINDS[type(old)]] -= message_tokens(old)
                self.tokens[KINDS[type(old)]] += message_tokens(new) if new else 0
                self.taken.append(old)


def shortened(message: ToolMessage, limit: int) -> ToolMessage:
    """A result's beginning and end, without its attachments; the same if that is no shorter."""
    parts = () if isinstance(message.content, str) else message.content
    others = sum(not isinstance(part, TextPart) for part in parts)
    note = f"\n[{others} attachment{'s' * (others > 1)} left out]" * bool(others)
    short = replace(message, content=clip(message.text, limit).strip() + note)
    return short if message_tokens(short) < message_tokens(message) else message
