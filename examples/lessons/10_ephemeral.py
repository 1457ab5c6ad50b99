"""Problem: every request sends the complete conversation, including obsolete results.

Here every result is the complete pantry. With `@tool(ephemeral=2)`, the model sees the newest two
results, for comparison, and placeholders for older results.

However, providers cache requests, and bill a repeated prefix at approximately a tenth of the price.
A placeholder changes the prefix: the remainder of the request is billed at the full price again.
The `cache_rules` of a model contain the prices. Therefore `Ephemeral` waits until sending old
results has cost as much as pruning would, and prunes all old results together.

watch_the_loop.html shows the placeholders from record 11 on.

Task: add up the cost of each variant: 0.1 for a cached token, 1.25 for any other token. The tools
and the messages that an event counts as kept are cached; `message_tokens` and `tool_tokens` of
`agentloop.common.tokens` count tokens. The sums are 27,408 and 34,205 and 26,114.
"""

from agentloop import CacheMonitor, Ephemeral, RequestEvent, ScriptedModel, call, tool
from agentloop.common.model_info import CacheRules

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


def requests(kind, **settings):
    """Return the prefix statistics of the requests of a run."""
    events = []
    agent = kind(
        llm=ScriptedModel(*SCRIPT, "Everything is weighed.", cache_rules=RULES),
        tools=[take],
        listeners=[events.append],
        **settings,
    )
    agent.run_sync("Weigh the ingredients.")
    return [event for event in events if isinstance(event, RequestEvent)]


def draw(event):
    """Return a bar for a request: cached tokens, tokens billed again, new tokens."""
    new = event.tokens - event.tokens_kept - event.tokens_again
    parts = ("-", event.tokens_kept), ("#", event.tokens_again), ("+", new)
    return "".join(mark * max(tokens > 0, round(tokens / 512)) for mark, tokens in parts)


if __name__ == "__main__":
    runs = {
        "no pruning": requests(CacheMonitor),
        "pruned every turn": requests(Pruning, ephemeral_per_turn=True),
        "pruned when cheaper": requests(Pruning),
    }
    print("".join(f"{name:31}" for name in runs).rstrip())
    for row in zip(*runs.values(), strict=True):
        print("".join(f"{draw(event):31}" for event in row).rstrip())
    print("One line per request, one sign per 512 tokens: - cached, # billed again, + new.")
    for name, events in runs.items():
        sent = sum(event.tokens for event in events)
        again = sum(event.tokens_again for event in events)
        print(f"{name}: {sent:,} tokens sent, {again:,} of them billed again at the full price.")
    print("Notice: left, requests are cached but grow; middle, little is cached in any turn.")
    print("Notice: right, pruning is paid for once, and later requests are short.")
