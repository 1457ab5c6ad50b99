"""Problem: each request sends the whole conversation, including old results that nobody needs.

Here each result is the whole pantry. With `@tool(ephemeral=2)`, the model sees the newest two
results, for comparison, and a placeholder for each older result.

However, a provider caches requests, and bills a repeated prefix at about a tenth of the price. A
placeholder changes the prefix: everything after it is billed at the full price again. A model's
`cache_rules` state these prices. Therefore `Ephemeral` waits until carrying old results has cost as
much as pruning would, and then prunes all of them at once.

watch_the_loop.html shows the placeholders from record 11 on.

Task: add up the cost of each variant: 0.1 for a cached token, 1.25 for any other token. Cached are
the messages that an event counts as kept, and the tools before them; `message_tokens` and
`tool_tokens` of `agentloop.common.tokens` count them. The sums are 27,408 and 34,205 and 26,114.
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
    """Hides old results. CacheMonitor compares each request with the previous one."""


RULES = CacheRules(smallest_prefix=1024, read_price=0.1, write_price=1.25)
SCRIPT = [call("take", item=f"ingredient number {n:02}", amount=100) for n in range(14)]


def requests(kind, **settings):
    """Return the prefix statistics of each request of a run."""
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
    """Return one request as a bar: cached tokens, tokens billed again, new tokens."""
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
