"""Counts what the context of an agent holds, by kind."""

from collections import Counter

from ..common.tokens import count_tokens, message_tokens, tool_tokens
from ..loop import Loop
from ..messages import AssistantMessage, ToolMessage, UserMessage
from ..toolkits.recall import hidden


async def context_info(agent: Loop) -> dict[str, int]:
    """Count the tokens of the next request by kind: `{"system prompt": 12, "tools": 90, ...}`.

    The kinds are "system prompt", "tools", "user", "replies", "calls", "results of NAME", and the
    origin of what is said in the user's place, such as "memory" or "summary". "hidden" is what the
    log has and the request has not.
    """
    shown = await agent.context()
    sizes = Counter({"system prompt": 0, "tools": tool_tokens(agent.toolset())})
    for message in shown:
        size = message_tokens(message)
        if isinstance(message, AssistantMessage):
            said = count_tokens(message.text)
            sizes["replies"] += said
            sizes["calls"] += size - said
        elif isinstance(message, ToolMessage):
            sizes[f"results of {message.tool_name}"] += size
        elif isinstance(message, UserMessage):
            sizes[message.origin] += size
        else:
            sizes["system prompt"] += size
    sizes["hidden"] = sum(map(count_tokens, hidden(agent.log, shown)))
    return sizes
