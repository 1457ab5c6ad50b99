"""Names and habits of bu_agent_sdk, for a program that was written for it.

One wants it to move such a program at once, and to change it afterwards: only its imports change,
all of them to `from from_bu_agent_sdk import ...`. README.md lists what differs nevertheless.
"""

import asyncio
from typing import NamedTuple

import agentloop
from agentloop import *  # noqa: F403
from agentloop import CompactionConfig, Cost, FinalResponseEvent, ScriptedModel, ToolCallEvent, call

BaseChatModel, BaseMessage = agentloop.ChatModel, agentloop.Message
AgentEvent, ContentText = agentloop.events.Event, agentloop.TextPart
ModelProviderError, ModelRateLimitError = agentloop.ModelError, agentloop.RateLimited


class UsageSummary(NamedTuple):
    total_prompt_tokens: int
    total_prompt_cached_tokens: int
    total_completion_tokens: int
    total_tokens: int
    total_cost: float
    entry_count: int


class Agent(Cost, agentloop.Agent):
    """Runs calls one by one, hides old results each turn, and takes the settings of the other.

    system_prompt, compaction: None is no prompt, and the usual compaction.
    The others are accepted and not needed: costs are always counted, the log keeps all results,
    and the models themselves repeat requests.
    """

    max_parallel = 1
    ephemeral_per_turn = True
    system_prompt: str | None = None
    compaction: CompactionConfig | None = None
    include_cost: bool = False
    ephemeral_storage_path: object = None
    llm_max_retries: int = 5
    llm_retry_base_delay: float = 1.0
    llm_retry_max_delay: float = 60.0
    llm_retryable_status_codes: object = None

    def __post_init__(self):
        super().__post_init__()
        self.system_prompt = self.system_prompt or ""
        self.compaction = self.compaction or CompactionConfig()

    async def query(self, message):
        """The text, however the run has ended."""
        return (await self.run(message)).text

    async def get_usage(self):
        used, bill = self.usage, self.bill
        prompt, answer = used.input_tokens, used.output_tokens
        cached, cost = used.cached_input_tokens, bill.cost or 0.0
        return UsageSummary(prompt, cached, answer, prompt + answer, cost, bill.requests)


def observe(*_, **__):
    """Observe nothing: mixins/tracing.py does that here."""
    return lambda function: function


observe_debug, Laminar = observe, None


async def main():
    @agentloop.tool("Add two numbers")
    async def add(a: int, b: int) -> int:
        return a + b

    agent = Agent(llm=ScriptedModel(call("add", a=2, b=3), "It is 5."), tools=[add])
    async for event in agent.query_stream("What is 2 + 3?"):
        match event:
            case ToolCallEvent(tool=name, args=args):
                print(f"{name} {args}")
            case FinalResponseEvent(content=text):
                print(text)
    usage = await agent.get_usage()
    print(f"{usage.entry_count} requests, {usage.total_cost} dollars")


if __name__ == "__main__":
    asyncio.run(main())
