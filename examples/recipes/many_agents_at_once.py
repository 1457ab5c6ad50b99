"""Many agents, one provider: only so many requests at a time, and so many tokens per minute.

Use the wrapper if your provider limits the tokens per minute. The limits belong to the model, so
all agents that use it share them. A request waits until the tokens of the last minute leave room
for its own, which are an estimate until the reply is there.
"""

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any

from agentloop import (
    Agent,
    AssistantMessage,
    ChatModel,
    ScriptedModel,
    Usage,
    message_tokens,
    tool_tokens,
)

MINUTE = 60.0


class Paced:
    """A model that gets at most `at_once` requests at a time, and `per_minute` tokens."""

    def __init__(
        self,
        llm: ChatModel,
        at_once: int,
        per_minute: int,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self.llm, self.model, self.per_minute = llm, llm.model, per_minute
        self.slots, self.turn = asyncio.Semaphore(at_once), asyncio.Lock()
        self.clock, self.sleep = clock, sleep
        self.spent: deque[list[float]] = deque()  # the last minute: times and numbers of tokens

    async def ainvoke(self, messages: Any, tools: Any = (), **options: Any) -> AssistantMessage:
        async with self.slots:
            size = sum(map(message_tokens, messages)) + tool_tokens(tools)
            entry = await self.wait_for_room(size)
            reply = await self.llm.ainvoke(messages, tools, **options)
            entry[1] = reply.usage.total_tokens if reply.usage else entry[1]
            return reply

    async def wait_for_room(self, tokens: float) -> list[float]:
        async with self.turn:  # requests wait in the order of their arrival
            while self.spent and sum(used for _, used in self.spent) + tokens > self.per_minute:
                await self.sleep(max(0.0, self.spent[0][0] + MINUTE - self.clock()))
                while self.spent and self.spent[0][0] + MINUTE <= self.clock():
                    self.spent.popleft()
            self.spent.append([self.clock(), tokens])
            return self.spent[-1]


async def main() -> None:
    llm = ScriptedModel(lambda m, t: AssistantMessage(f"{m[-1].text}!", usage=Usage(90, 10)))
    template = Agent(llm=Paced(llm, at_once=4, per_minute=100_000))
    answers = await asyncio.gather(*(template.fork().query(f"Hello {i}") for i in range(100)))
    print(answers[0], answers[-1], len(llm.requests))


if __name__ == "__main__":
    asyncio.run(main())
