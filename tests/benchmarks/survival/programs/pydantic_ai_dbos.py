"""Pydantic AI in DBOS workflows, with tools as steps.

https://ai.pydantic.dev/durable_execution/dbos/
https://docs.dbos.dev/integrations/pydantic-ai
"""

from asyncio import CancelledError

from dbos import DBOS, SetWorkflowID
from openai import AsyncOpenAI
from pydantic_ai import Agent, AgentRunError, RunCancelled, UsageLimits, capture_run_messages
from pydantic_ai.durable_exec.dbos import DBOSDurability
from pydantic_ai.messages import repair_messages
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

from .bank import base_url, folder, look_up, pay_slowly

client = AsyncOpenAI(base_url=base_url(), api_key="k", max_retries=0)
model = OpenAIChatModel("gpt-5-mini", provider=OpenAIProvider(openai_client=client))
agent = Agent(
    model, name="clerk", instructions="You pay invoices.", capabilities=[DBOSDurability()]
)


@agent.tool_plain
@DBOS.step()
async def pay(name: str) -> str:
    """Pay an invoice."""
    return await pay_slowly(name)


@agent.tool_plain
@DBOS.step()
async def look(name: str) -> str:
    """Ask the bank whether an invoice is paid."""
    return look_up(name)


@DBOS.workflow()
async def answer(prompt, history, limit):
    with capture_run_messages() as messages:
        try:
            await agent.run(
                prompt, message_history=history, usage_limits=UsageLimits(request_limit=limit)
            )
        except AgentRunError:  # of the model, or of a limit
            pass
    return repair_messages(messages)


class Program:
    limited = True

    def __init__(self, limit=50):
        self.limit, self.history, self.runs = limit, [], 0
        url = f"sqlite:///{folder()}/dbos.sqlite"
        DBOS(config={"name": "clerk", "system_database_url": url, "run_admin_server": False})
        DBOS.launch()  # recovers the workflows that were killed

    async def send(self, prompt):
        self.runs += 1
        try:
            with SetWorkflowID(f"run-{self.runs}"):
                self.history = await answer(prompt, self.history, self.limit)
        except CancelledError as error:
            if cancelled := RunCancelled.from_cancellation(error):
                self.history = repair_messages(cancelled.all_messages())
            raise

    async def resume(self, prompt):
        if await DBOS.get_workflow_status_async("run-1"):
            handle = await DBOS.retrieve_workflow_async("run-1")
            self.history, self.runs = await handle.get_result(), 1
        else:
            await self.send(prompt)
