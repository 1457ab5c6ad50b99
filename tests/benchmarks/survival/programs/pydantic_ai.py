"""Pydantic AI that saves its conversation after each run.

https://ai.pydantic.dev/message-history/ (storing messages, repaired histories)
https://ai.pydantic.dev/agent/#cancelling-a-run
https://ai.pydantic.dev/agent/#model-errors (capture_run_messages)
https://ai.pydantic.dev/deferred-tools/#human-in-the-loop-tool-approval
"""

from asyncio import CancelledError
from pathlib import Path

from openai import AsyncOpenAI
from pydantic_ai import (
    Agent,
    ApprovalRequired,
    DeferredToolRequests,
    DeferredToolResults,
    RunCancelled,
    RunContext,
    ToolDenied,
    UsageLimits,
    capture_run_messages,
)
from pydantic_ai.conversation import Conversation, ConversationTypeAdapter
from pydantic_ai.messages import repair_messages
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

from .bank import GO_ON, base_url, folder, look_up, pay_slowly


def model():
    client = AsyncOpenAI(base_url=base_url(), api_key="k", max_retries=0)
    return OpenAIChatModel("gpt-5-mini", provider=OpenAIProvider(openai_client=client))


class Program:
    limited = True

    def __init__(self, limit=None, ask=""):
        async def pay(context: RunContext, name: str) -> str:
            """Pay an invoice."""
            if name == ask and not context.tool_call_approved:
                raise ApprovalRequired
            return await pay_slowly(name)

        async def look(name: str) -> str:
            """Ask the bank whether an invoice is paid."""
            return look_up(name)

        self.agent = Agent(
            model(),
            instructions="You pay invoices.",
            tools=[pay, look],
            output_type=[str, DeferredToolRequests],
        )
        self.limits = UsageLimits(request_limit=limit or 50)
        self.file = Path(folder(), "conversation.json")
        self.conversation = Conversation()
        if self.file.exists():
            self.conversation = ConversationTypeAdapter.validate_json(self.file.read_bytes())

    def save(self, conversation):
        self.conversation = conversation
        new = self.file.with_suffix(".new")
        new.write_bytes(ConversationTypeAdapter.dump_json(conversation))
        new.replace(self.file)

    async def send(self, prompt, **settings):
        with capture_run_messages() as messages:
            try:
                result = await self.agent.run(
                    prompt, conversation=self.conversation, usage_limits=self.limits, **settings
                )
            except CancelledError as error:
                if cancelled := RunCancelled.from_cancellation(error):
                    self.save(Conversation(messages=repair_messages(cancelled.all_messages())))
                raise
            except Exception:
                self.save(Conversation(messages=repair_messages(messages)))
                raise
        self.save(result.conversation)

    async def resume(self, prompt):
        await self.send(GO_ON if self.conversation.messages else prompt)

    async def stream(self, prompt):
        settings = {"conversation": self.conversation, "usage_limits": self.limits}
        async with self.agent.run_stream_events(prompt, **settings) as events:
            try:
                async for event in events:
                    yield event
            finally:
                events.cancel()
                self.save(Conversation(messages=repair_messages(events.all_messages())))

    async def decide(self, allow, note):
        results = DeferredToolResults()
        for call in self.conversation.deferred_tool_requests.approvals:
            results.approvals[call.tool_call_id] = True if allow else ToolDenied(note)
        await self.send(None, deferred_tool_results=results)
