"""Problem: every request sends the whole conversation again, even what nobody needs any more.

Part 1, the idea. Each result of `take` is the whole pantry, so only the newest ones matter. With
`@tool(ephemeral=2)`, the model sees the newest two results, and a placeholder for each older one.
watch_the_loop.html shows the placeholders from record 14 on.

Part 2, the price. A provider caches what a request has in common with the one before, and charges
about a tenth for it. A placeholder changes an old message, so everything after it costs the full
price again. That's why `CostAwarePruning`, a part of `Agent`, waits until the old results have cost
as much as pruning will, and then prunes all of them together. The `cache_rules` of a model are its
prices.

Task: add up the cost of each variant in part 2: 0.1 for a cached token, 1.25 for any other. The
sums are 27,258 and 33,775 and 25,805.
"""

from itertools import pairwise

from agentloop import Ephemeral, Loop, Request, ScriptedModel, ToolMessage, call, tool
from agentloop.common.model_info import CacheRules
from agentloop.common.tokens import message_tokens, tool_tokens
from agentloop.mixins.cost_aware_pruning import CostAwarePruning

PANTRY = {f"ingredient number {n:02}": 1000 for n in range(100)}


@tool(ephemeral=2)
def take(item: str, amount: int) -> str:
    """Take some of an item. Return the remaining contents of the pantry."""
    PANTRY[item] -= amount
    return "\n".join(f"{name}: {left:>17}" for name, left in PANTRY.items())


RULES = CacheRules(smallest_prefix=1024, read_price=0.1, write_price=1.25)
SCRIPT = [call("take", item=f"ingredient number {n:02}", amount=100) for n in range(14)]


def compare(before, after):
    """Count the tokens of a request: cached, billed again, and new.

    The cache holds the tools, and the messages at the start that equal those of the last request.
    """
    old, new = before.messages, after.messages
    kept = 0
    while kept < len(old) and old[kept] == new[kept]:
        kept += 1
    tools = tool_tokens(after.tools)
    cached = message_tokens(new[:kept]) + (tools if kept else 0)
    again = message_tokens([message for message in new[kept:] if message in old[kept:]])
    return cached, again, message_tokens(new) + tools - cached - again


def requests(kind, **settings):
    """Run an agent and return its requests."""
    model = ScriptedModel(*SCRIPT, "Everything is weighed.", cache_rules=RULES)
    kind(llm=model, tools=[take], **settings).run_sync("Weigh the ingredients.")
    return model.requests


def results(request):
    """The size of each tool result in a request."""
    return [len(message.text) for message in request.messages if isinstance(message, ToolMessage)]


def counts_of(requests):
    """The three counts of each request of a run."""
    return [compare(before, after) for before, after in pairwise([Request(()), *requests])]


def draw(counts):
    """Draw a bar for a request: cached tokens, tokens billed again, new tokens."""
    parts = zip("-#+", counts, strict=True)
    return "".join(mark * max(tokens > 0, round(tokens / 512)) for mark, tokens in parts)


if __name__ == "__main__":
    sent = {
        "no pruning": requests(Loop),
        "pruned every turn": requests(Ephemeral, ephemeral_batch=1),
        "pruned when cheaper": requests(CostAwarePruning),
    }
    print("Part 1: the characters of each result in the fifth request")
    for name in "no pruning", "pruned every turn":
        print(f"{name}: {results(sent[name][4])}")
    print("Notice: the model still reads the newest two results.")

    print("\nPart 2: the same run, and what the provider has cached")
    runs = {name: counts_of(requests) for name, requests in sent.items()}
    print("".join(f"{name:31}" for name in runs).rstrip())
    for row in zip(*runs.values(), strict=True):
        print("".join(f"{draw(counts):31}" for counts in row).rstrip())
    print("One line per request, one sign per 512 tokens: - cached, # billed again, + new.")
    for name, rows in runs.items():
        sent = sum(map(sum, rows))
        again = sum(billed_again for _, billed_again, _ in rows)
        print(f"{name}: {sent:,} tokens sent, {again:,} of them billed again at the full price.")
    print("Notice: left, requests are cached but grow; middle, little is cached in any turn.")
    print("Notice: right, pruning is paid for once, and later requests are short.")
