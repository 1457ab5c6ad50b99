"""Task: add up the cost of each variant in part 2: 0.1 for a cached token, 1.25 for any other."""

from itertools import pairwise

from agentloop import Ephemeral, Loop, Request, ScriptedModel, call, tool
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

    The cache contains the tools and the leading messages that equal those of the previous request.
    """
    old, new = before.messages, after.messages
    kept = 0
    while kept < len(old) and old[kept] == new[kept]:
        kept += 1
    tools = tool_tokens(after.tools)
    cached = message_tokens(new[:kept]) + (tools if kept else 0)
    again = message_tokens([message for message in new[kept:] if message in old[kept:]])
    return cached, again, message_tokens(new) + tools - cached - again


def bill(kind, **settings):
    """Return the cost of a run."""
    model = ScriptedModel(*SCRIPT, "Everything is weighed.", cache_rules=RULES)
    kind(llm=model, tools=[take], **settings).run_sync("Weigh the ingredients.")
    cost = 0.0
    for before, after in pairwise([Request(()), *model.requests]):
        cached, again, new = compare(before, after)
        cost += 0.1 * cached + 1.25 * (again + new)
    return cost


if __name__ == "__main__":
    print(f"no pruning: {bill(Loop):,.0f}")
    print(f"pruned every turn: {bill(Ephemeral, ephemeral_batch=1):,.0f}")
    print(f"pruned when cheaper: {bill(CostAwarePruning):,.0f}")
    print("Notice: the variant with the fewest tokens is not the cheapest.")
