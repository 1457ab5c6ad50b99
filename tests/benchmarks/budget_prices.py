"""What a budget costs at the prices of each model, on long recorded runs.

python -m tests.benchmarks.budget_prices --recorded FOLDER [--save FILE.json]

A request is billed by the model's `cache_rules`: what it shares with the previous request is read
from the cache, if that's long enough, and the rest is written to it. The cost is relative to that
of the same run without a budget. Replies are the same in both and aren't counted, except calls of
`recall`, which cost 5 per token.
"""

import argparse
import asyncio
import json
from functools import partial
from itertools import takewhile
from pathlib import Path

from agentloop import Agent, ChatAnthropic, ChatGoogle, ChatOpenAI, Loop
from agentloop.common.tokens import tool_tokens

from .context_cost import OUTPUT, markdown, play, tokens
from .recordings import recorded

BUDGETS = (16_000, 32_000)
LONG = (
    "live-swe-gpt5mini",
    "mini-swe-gemini3-30plus",
    "mini-swe-gemini3-5-in-a-row",
    "tau-airline-gpt4o-10-in-a-row",
)
MODELS = {
    "Claude Fable 5.1 and 5.2": ChatAnthropic("claude-fable-5-1", api_key="-"),
    "Claude Opus 5.5, Sonnet 5.5": ChatAnthropic("claude-opus-5-5", api_key="-"),
    "Claude Opus 5, Fable 5": ChatAnthropic("claude-opus-5", api_key="-"),
    "Claude Sonnet 5, Opus 4.8": ChatAnthropic("claude-sonnet-5", api_key="-"),
    "Claude Haiku 5.5, and models that aren't listed": ChatAnthropic(
        "claude-haiku-5-5", api_key="-"
    ),
    "GPT-5.6 and later": ChatOpenAI("gpt-5.6", api_key="-"),
    "GPT-5 to GPT-5.5": ChatOpenAI("gpt-5", api_key="-"),
    "Gemini 4": ChatGoogle("gemini-4-pro", api_key="-"),
    "Gemini 3": ChatGoogle("gemini-3-pro", api_key="-"),
}
SAVED = Path(__file__).parent / "budget_prices.json"


def bill(requests, rules):
    """Return what the requests of a run cost, in prices of an input token."""
    cost, before = 0.0, ()
    for request in requests:
        pairs = zip(before, request.messages, strict=False)
        shared = [new for _, new in takewhile(lambda pair: pair[0] == pair[1], pairs)]
        declared = tool_tokens(request.tools)
        whole = declared + sum(map(tokens, request.messages))
        read = declared + sum(map(tokens, shared))
        if not shared or read < rules.smallest_prefix:
            read = 0
        write_price = rules.write_price if whole >= rules.smallest_prefix else 1.0
        cost += rules.read_price * read + write_price * (whole - read)
        before = request.messages
    return cost


def total(runs, rules):
    """Return what the runs of a workload cost together."""
    return sum(bill(run.requests, rules) + OUTPUT * run.extra_output for run in runs)


async def compare(workload):
    """Return the costs of a workload with each budget, by model."""
    found, costs = {}, {}
    plain = [await play(workload, each, Loop) for each in workload.conversations]
    for name, model in MODELS.items():
        rules = model.cache_rules
        if rules not in costs:
            costs[rules] = []
            for budget in BUDGETS:
                agents = partial(Agent, context_budget=budget)
                runs = [
                    await play(workload, o, agents, rules=rules) for o in workload.conversations
                ]
                costs[rules].append(round(total(runs, rules) / total(plain, rules), 4))
        found[name] = costs[rules]
    return found


def table(saved):
    """Return the table of README.md: each model's prices, and its smallest and largest costs."""
    heads = [f"{budget // 1_000}k" for budget in BUDGETS]
    rows = [["cost with a budget of", "cached from", "read", "write", *heads]]
    for name, model in MODELS.items():
        rules = model.cache_rules
        prices = [f"{rules.smallest_prefix:,}", f"{rules.read_price:g}", f"{rules.write_price:g}"]
        columns = zip(*(found[name] for found in saved.values()), strict=True)
        rows.append([name, *prices, *(f"{min(one):.2f} to {max(one):.2f}" for one in columns)])
    return markdown(rows)


def main(argv=None):
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.budget_prices")
    parser.add_argument("--recorded", type=Path, required=True, help="recorded conversations")
    parser.add_argument("--save", type=Path, help="a file of numbers to write")
    options = parser.parse_args(argv)
    workloads = {each.name.partition(" (")[0]: each for each in recorded(options.recorded)}
    saved = {name: asyncio.run(compare(workloads[name])) for name in LONG}
    if options.save:
        options.save.write_text(json.dumps(saved, indent=1) + "\n", encoding="utf-8")
    print(table(saved))


if __name__ == "__main__":
    main()
