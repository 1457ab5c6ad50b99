"""What an agent consists of: the classes at each seam, and the tokens of the next request by kind.

Use `explain` if an agent combines several mixins. A mixin wraps the methods of the classes after it
in the method resolution order, so a seam does what the listed methods do, in this order.

Use `context_info` for a long or expensive conversation: which messages fill the next request, and
how much of the log is left out? The kinds are "system prompt", "tools", "user", "replies", "calls",
"results of NAME", "hidden" (no longer sent), and the origin of messages in the user's place, such
as "memory" or "summary".
"""

import asyncio
from collections import Counter

from agentloop import (
    Agent,
    AssistantMessage,
    Loop,
    Request,
    ScriptedModel,
    ToolMessage,
    UserMessage,
    call,
    tool,
)
from agentloop.common.tokens import count_tokens, message_tokens, tool_tokens
from agentloop.toolkits.recall import hidden_texts

SEAMS = ["run", "context", "toolset", "call_model", "call_tools", "call_tool", "finish", "record"]


def explain(agent: type[Loop]) -> None:
    """Print the classes of an agent, and the methods of every seam with their positions."""
    print("Method resolution order:", *(cls.__name__ for cls in agent.__mro__))
    for seam in SEAMS:
        for cls in agent.__mro__:
            if method := vars(cls).get(seam):
                code = method.__code__
                print(f"{method.__qualname__:24}{code.co_filename}:{code.co_firstlineno}")


async def context_info(agent: Loop) -> dict[str, int]:
    """Count the tokens of the next request by kind."""
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


class Loud(Loop):
    async def call_model(self, request: Request) -> AssistantMessage:
        print(".", end="")
        return await super().call_model(request)


class Reader(Loud, Agent):
    max_iterations = 50


@tool
def read(page: int) -> str:
    """Read a page of the book."""
    return f"On page {page} it rains. " * 200


async def main() -> None:
    explain(Reader)
    llm = ScriptedModel(
        *[call("read", page=page) for page in range(24)], "It rains on all of them."
    )
    agent = Reader(llm=llm, tools=[read], system_prompt="You read.", context_budget=8_000)
    print((await agent.run("How is the weather in the book?")).text)
    for kind, size in (await context_info(agent)).items():
        print(f"{size:6} {kind}")


if __name__ == "__main__":
    asyncio.run(main())
