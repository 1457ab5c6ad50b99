"""The content of an agent's context, counted in tokens by kind.

Use the counts to analyze long or expensive conversations: which messages dominate the next request,
and how much of the log is omitted? The kinds are "system prompt", "tools", "user", "replies",
"calls", "results of NAME", and the origin of messages in the user's place, such as "memory" or
"summary".
"""

import asyncio
from collections import Counter

from agentloop import Agent, AssistantMessage, ScriptedModel, ToolMessage, UserMessage, call, tool
from agentloop.common.tokens import count_tokens, message_tokens, tool_tokens
from agentloop.loop import Loop
from agentloop.toolkits.recall import hidden_texts


async def context_info(agent: Loop) -> dict[str, int]:
    """Count the tokens of the next request by kind. "hidden": log content omitted from it."""
    messages = await agent.context()
    sizes = Counter({"system prompt": 0, "tools": tool_tokens(agent.toolset())})
    for message in messages:
        size = message_tokens(message)
        if isinstance(message, AssistantMessage):
            text_size = count_tokens(message.text) if message.tool_calls else size
            sizes["replies"] += text_size
            sizes["calls"] += size - text_size
        elif isinstance(message, ToolMessage):
            sizes[f"results of {message.tool_name}"] += size
        elif isinstance(message, UserMessage):
            sizes[message.origin] += size
        else:
            sizes["system prompt"] += size
    sizes["hidden"] = sum(map(count_tokens, hidden_texts(agent.log, messages)))
    return sizes


@tool
def read(page: int) -> str:
    """Read a page of the book."""
    return f"On page {page} it rains. " * 200


async def main() -> None:
    pages = [call("read", page=page) for page in range(12)]
    llm = ScriptedModel(*pages, "It rains on all of them.")
    agent = Agent(llm=llm, tools=[read], system_prompt="You read.", context_budget=4_000)
    print((await agent.run("How is the weather in the book?")).text)
    for kind, size in (await context_info(agent)).items():
        print(f"{size:6} {kind}")


if __name__ == "__main__":
    asyncio.run(main())
