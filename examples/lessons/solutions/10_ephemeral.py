"""Task: add up the cost of each variant: 0.1 for a cached token, 1.25 for any other token."""

from agentloop import CacheMonitor, Ephemeral, RequestEvent, ScriptedModel, call, tool
from agentloop.common.model_info import CacheRules
from agentloop.common.tokens import message_tokens, tool_tokens

PANTRY = {f"ingredient number {n:02}": 1000 for n in range(100)}


@tool(ephemeral=2)
def take(item: str, amount: int) -> str:
    """Take some of an item. Return the remaining contents of the pantry."""
    PANTRY[item] -= amount
    return "\n".join(f"{name}: {left:>17}" for name, left in PANTRY.items())


class Pruning(CacheMonitor, Ephemeral):
    """Hides old results. CacheMonitor compares consecutive requests."""


RULES = CacheRules(smallest_prefix=1024, read_price=0.1, write_price=1.25)
SCRIPT = [call("take", item=f"ingredient number {n:02}", amount=100) for n in range(14)]


def bill(kind, **settings):
    """Return the cost of a run. Tokens that an event counts as kept were cached."""
    events, model = [], ScriptedModel(*SCRIPT, "Everything is weighed.", cache_rules=RULES)
    agent = kind(llm=model, tools=[take], listeners=[events.append], **settings)
    agent.run_sync("Weigh the ingredients.")
    events = [event for event in events if isinstance(event, RequestEvent)]
    cost = 0.0
    for event, request in zip(events, model.requests, strict=True):
        cached = sum(map(message_tokens, request.messages[: event.kept]))
        if event.kept:  # the tools precede the messages
            cached += tool_tokens(request.tools)
        cost += 0.1 * cached + 1.25 * (event.tokens - cached)
    return cost


if __name__ == "__main__":
    print(f"no pruning: {bill(CacheMonitor):,.0f}")
    print(f"pruned every turn: {bill(Pruning, ephemeral_per_turn=True):,.0f}")
    print(f"pruned when cheaper: {bill(Pruning):,.0f}")
    print("Notice: the variant with the fewest tokens is not the cheapest.")
