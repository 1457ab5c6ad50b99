"""`agentloop view SESSION -o run.svg`: one picture of a session, for an issue or a README.

It shows the prompt and the answer, the tokens of each request, and the clock: a lane for the model,
for each tool and for each sub-agent. It has no scripts, and follows the reader's light or dark
theme.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from html import escape
from typing import NamedTuple

from ..common.prices import cost_of, genai_price
from ..common.pruned import Pruned
from ..common.records import from_dict
from ..common.subagents import SubAgentRecord
from ..common.summary import Summary
from ..common.windows import context_window
from ..messages import AssistantMessage, ToolMessage, Usage
from ..transcript import (
    Conversation,
    Mark,
    Record,
    RequestRecord,
    RunEnd,
    RunStart,
    ToolStart,
    is_from_user,
    is_request,
)
from .terminal import safe

WIDTH, LEFT, RIGHT = 960, 24, 936
END = RIGHT - 50  # of the columns; their figures are to the right
TOP, HEIGHT = 96, 150  # of the columns
LANE, LANES = 20, 8  # the height of a lane, and how many there are at most

STYLE = """
.session { font: 13px system-ui, sans-serif; fill: #1e1e1b }
.session .small { font-size: 11px }
.session .page { fill: #fff }
.session .soft { fill: #66665e }
.session .grid { stroke: #e0e0da }
.session .lane { fill: #f1f1ed }
.session .cached { fill: #b3c6ef }
.session .new, .session .model { fill: #4a74d4 }
.session .tool { fill: #1b7a46 }
.session .failed { fill: #b3261e }
.session .denied { fill: #b87200 }
.session .cut { stroke: #b87200 }
@media (prefers-color-scheme: dark) {
.session { fill: #e9e9e3 }
.session .page { fill: #1d1e1c }
.session .soft { fill: #a3a39a }
.session .grid { stroke: #373833 }
.session .lane { fill: #262724 }
.session .cached { fill: #3c5487 }
.session .new, .session .model { fill: #7ea2f2 }
.session .tool { fill: #6fce98 }
.session .failed { fill: #ff938a }
.session .denied { fill: #f0c060 }
.session .cut { stroke: #f0c060 }
}
"""


@dataclass
class Turn:
    """A request of the model: its tokens, and how many of its calls failed or were denied."""

    usage: Usage
    failed: int = 0
    denied: int = 0
    change: str = ""  # of the messages before this turn: "summarized", "dropped" or "pruned"


class Bar(NamedTuple):
    """Something that took time: `kind` is "model", "tool", "failed" or "denied"."""

    lane: str
    start: float
    seconds: float
    kind: str


@dataclass
class Overview:
    """What a picture shows of a session. Its clock stands still between runs.

    If a provider reported no usage, it's estimated: a token for four characters.
    """

    prompt: str = ""
    answer: str = ""
    ended: str = ""  # why the newest run has no answer
    model: str = ""  # of the newest reply
    turns: list[Turn] = field(default_factory=list[Turn])
    bars: list[Bar] = field(default_factory=list[Bar])
    calls: int = 0  # without those of sub-agents
    usage: Usage = field(default_factory=Usage)  # of all requests, also of summaries and sub-agents
    now: float = 0.0
    estimated: bool = False
    _log: list[Record] = field(default_factory=list[Record])
    _in_run: bool = False
    _before: float = 0.0  # the time of the clock's zero
    _starts: dict[str, float] = field(default_factory=dict[str, float])
    _change: str = ""

    def __post_init__(self) -> None:
        self._conversation = Conversation(self._log)

    def take(self, record: Record) -> None:
        """Add the next record."""
        if isinstance(record, RunStart):
            self._before = record.at - self.now
            self._in_run = True
            self.ended = ""
        if isinstance(record, Mark) and self._in_run:
            self.now = max(self.now, record.at - self._before)
        if isinstance(record, ToolStart):
            self._starts[record.call_id] = self.now
        elif isinstance(record, Summary):
            self._change = "summarized" if record.is_request else "dropped"
        elif isinstance(record, Pruned):
            self._change = "pruned"
        elif isinstance(record, RunEnd):
            self._in_run = False
            failure = clipped(record.error, 60) or record.stop_reason
            self.ended = "" if record.stop_reason in ("completed", "done") else failure
            self.answer = record.text or self.answer
        elif isinstance(record, SubAgentRecord):
            self._take_inner(record)
        elif isinstance(record, AssistantMessage):
            usage = record.usage or self._estimated_usage(record)
            self.estimated = self.estimated or record.usage is None
            self.usage += usage
            self.model = record.model or self.model
            self.turns.append(Turn(usage, change=self._change))
            self._change = ""
            self.answer = record.text or self.answer
            self._add("model", self.now, record.seconds, "model")
        elif isinstance(record, ToolMessage):
            self.calls += 1
            start = self._starts.get(record.tool_call_id, self.now)
            self._add_result(record.tool_name, start, record)
        elif is_from_user(record):
            self.prompt = self.prompt or record.text
        if is_request(record) and not isinstance(record, AssistantMessage):
            self.usage += record.usage or Usage()
        self._log.append(record)

    def _estimated_usage(self, reply: AssistantMessage) -> Usage:
        sent = sum(len(message.text) for message in self._conversation.catch_up().messages)
        return Usage(sent // 4, len(reply.text) // 4)

    def _take_inner(self, record: SubAgentRecord) -> None:
        """Add a record of a sub-agent, which is written when it has happened."""
        inner = from_dict(record.record)
        if isinstance(inner, SubAgentRecord):
            self._take_inner(inner)
        elif isinstance(inner, AssistantMessage | ToolMessage):
            start = self.now - (inner.seconds or 0)
            if isinstance(inner, ToolMessage):
                self._add_result(record.agent, start, inner)
            else:
                self._add(record.agent, start, inner.seconds, "model")

    def _add_result(self, lane: str, start: float, result: ToolMessage) -> None:
        kind = "tool"
        if result.origin == "denied":
            kind = "denied"
        elif result.is_error:
            kind = "failed"
        if self.turns and kind != "tool":
            turn = self.turns[-1]
            turn.failed += kind == "failed"
            turn.denied += kind == "denied"
        self._add(lane, start, result.seconds, kind)

    def _add(self, lane: str, start: float, seconds: float | None, kind: str) -> None:
        self.bars.append(Bar(lane, start, seconds or 0, kind))
        self.now = max(self.now, start + (seconds or 0))


def picture_of(*logs: Sequence[Record]) -> str:
    """The picture of a session as SVG: see `logs_of` in view.py."""
    seen = Overview()
    records = [record for log in logs for record in log]
    for record in records:
        seen.take(record)
    lanes = lanes_of(seen.bars)
    bottom = TOP + HEIGHT + 44 + LANE * len(lanes)
    parts = [
        text(LEFT, 36, clipped(seen.prompt, 88), size=18),
        text(LEFT, 62, facts_of(seen, price_of(filter(is_request, records))), "soft"),
        text(RIGHT, 62, failures_of(seen), "failed", anchor="end"),
        *columns(seen),
        *clock(seen.bars, lanes, seen.now),
        text(LEFT, bottom + 38, clipped(seen.answer, 120), size=14),
    ]
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="session" role="img" '
        f'viewBox="0 0 {WIDTH} {bottom + 58}"><title>{clean(clipped(seen.prompt, 120))}</title>'
        f'<style>{STYLE}</style><rect class="page" width="100%" height="100%" rx="12"/>'
    )
    return "\n".join([head, *filter(None, parts), "</svg>"]) + "\n"


def columns(seen: Overview) -> Iterable[str]:
    """Yield a column for the tokens of each request, and a dot for what failed in its turn."""
    turns = seen.turns
    top = max([turn.usage.input_tokens for turn in turns], default=0) or 1
    step = (END - LEFT) / max(len(turns), 1)
    width = min(max(step * 0.8, 0.6), 60)
    for share in (1, 0.5):
        y = TOP + HEIGHT * (1 - share)
        yield f'<path class="grid" d="M{LEFT} {y:g}H{END}"/>'
        yield text(RIGHT, y + 4, short(top * share), "soft small", anchor="end")
    free = 0.0
    for at, turn in enumerate(turns):
        x, middle = LEFT + at * step, LEFT + at * step + width / 2
        tall = HEIGHT * turn.usage.input_tokens / top
        cached = HEIGHT * min(turn.usage.cached_input_tokens, turn.usage.input_tokens) / top
        yield rect("new", x, TOP + HEIGHT - tall, width, tall - cached)
        yield rect("cached", x, TOP + HEIGHT - cached, width, cached)
        if turn.failed or turn.denied:
            kind = "failed" if turn.failed else "denied"
            yield f'<circle class="{kind}" cx="{middle:.1f}" cy="{TOP + HEIGHT + 9}" r="4"/>'
        if turn.change:
            line = f"M{x - step / 10:.1f} {TOP - 8}v{HEIGHT + 8}"
            yield f'<path class="cut" stroke-dasharray="3 3" d="{line}"/>'
            if x >= free:  # otherwise the labels of two lines would overlap
                free = x + 6 * len(turn.change)
                yield text(x, TOP - 3, turn.change, "denied small")
    y = TOP + HEIGHT + 30
    words = "tokens of each request, estimated:" if seen.estimated else "tokens of each request:"
    yield text(LEFT, y, words, "soft small")
    for x, kind in ((LEFT + 215, "new"), (LEFT + 265, "cached")):
        yield rect(kind, x, y - 9, 10, 10)
        yield text(x + 15, y, kind, "soft small")
    if window := context_window(seen.model):
        filled = f"the largest fills {top / window:.0%} of the window of {short(window)}"
        yield text(LEFT + 335, y, filled, "soft small")


def clock(bars: Sequence[Bar], lanes: Sequence[str], seconds: float) -> Iterable[str]:
    """Yield a lane for each name: when it worked, and for how long."""
    left = LEFT + 120
    scale = (RIGHT - left) / (seconds or 1)
    for at, name in enumerate(lanes):
        y = TOP + HEIGHT + 44 + at * LANE
        yield text(LEFT, y + 11, clipped(name, 17), "small")
        yield rect("lane", left, y, RIGHT - left, 14)
        for bar in bars:
            if bar.lane == name:
                width = max(bar.seconds * scale, 1.5)
                yield rect(bar.kind, left + bar.start * scale, y + 1, width, 12)
    y = TOP + HEIGHT + 44 + len(lanes) * LANE + 10
    yield text(left, y, "0", "soft small")
    yield text(RIGHT, y, duration(seconds), "soft small", anchor="end")


def lanes_of(bars: Sequence[Bar]) -> list[str]:
    """The names of the lanes: the model, then what took longest."""
    seconds = dict.fromkeys([bar.lane for bar in bars], 0.0)
    for bar in bars:
        seconds[bar.lane] += bar.seconds
    return sorted(seconds, key=lambda name: (name != "model", -seconds[name]))[:LANES]


def price_of(requests: Iterable[RequestRecord]) -> str:
    """What requests have cost, as far as their prices are known: "" if none is."""
    costs = [cost_of([request], genai_price) for request in requests]
    known = sum(filter(None, costs))
    if not known:
        return ""
    return f"{'at least ' if None in costs else ''}${known:,.4f}"


def facts_of(seen: Overview, price: str) -> str:
    """The figures of a session, in one line."""
    usage = seen.usage
    cached = usage.cached_input_tokens / (usage.input_tokens or 1)
    facts = [
        count(len(seen.turns), "turn"),
        count(seen.calls, "call"),
        duration(seen.now),
        f"{short(usage.input_tokens)} tokens in, {cached:.0%} cached",
        f"{short(usage.output_tokens)} out",
    ]
    return " · ".join([*facts, price] if price else facts)


def failures_of(seen: Overview) -> str:
    """What went wrong, in one line: "" if nothing did."""
    failed = sum(turn.failed for turn in seen.turns)
    denied = sum(turn.denied for turn in seen.turns)
    parts = [count(failed, "error") if failed else "", f"{denied} denied" if denied else ""]
    return " · ".join(filter(None, [*parts, seen.ended]))


def rect(kind: str, x: float, y: float, width: float, height: float) -> str:
    if height <= 0:
        return ""
    place = f'x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}"'
    return f'<rect class="{kind}" {place} rx="1.5"/>'


def text(x: float, y: float, words: str, kind: str = "", *, anchor: str = "", size: int = 0) -> str:
    if not words:
        return ""
    more = f' class="{kind}"' if kind else ""
    more += f' text-anchor="{anchor}"' if anchor else ""
    more += f' style="font-size: {size}px"' if size else ""
    return f'<text x="{x:g}" y="{y:g}"{more}>{clean(words)}</text>'


def clean(words: str) -> str:
    """Escape text for XML, and what `safe` escapes. Braces, too: one could begin a placeholder."""
    return escape(safe(words)).replace("{", "&#123;")


def clipped(words: str, limit: int) -> str:
    """Put a text on one line of at most this many characters."""
    line = " ".join(words.split())
    return line if len(line) <= limit else line[: limit - 1] + "…"


def count(number: int, name: str) -> str:
    return f"{number:,} {name}{'' if number == 1 else 's'}"


def duration(seconds: float) -> str:
    return f"{seconds:,.1f} s" if seconds < 120 else f"{seconds / 60:,.0f} min"


def short(number: float) -> str:
    """Write a number of tokens in at most five characters."""
    if number < 1_000:
        return f"{number:.0f}"
    return f"{number / 1e6:.1f}M" if number >= 999_500 else f"{number / 1e3:.3g}k"
