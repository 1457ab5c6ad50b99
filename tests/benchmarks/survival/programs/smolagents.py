"""smolagents, whose documentation has no persistence and no approval of single calls.

https://huggingface.co/docs/smolagents/tutorials/memory
https://huggingface.co/docs/smolagents/examples/async_agent
https://huggingface.co/docs/smolagents/reference/agents (interrupt, max_steps, stream)
"""

import anyio.to_thread
from smolagents import OpenAIServerModel, ToolCallingAgent, tool

from .bank import base_url, look_up, pay_in_thread


@tool
def pay(name: str) -> str:
    """Pay an invoice.

    Args:
        name: whose invoice
    """
    return pay_in_thread(name)


@tool
def look(name: str) -> str:
    """Ask the bank whether an invoice is paid.

    Args:
        name: whose invoice
    """
    return look_up(name)


class Program:
    limited = True

    def __init__(self, limit=None):
        model = OpenAIServerModel(
            "gpt-5-mini", base_url(), api_key="k", client_kwargs={"max_retries": 0}
        )
        self.agent = ToolCallingAgent([pay, look], model, max_steps=limit or 20, verbosity_level=0)

    async def send(self, prompt):
        await anyio.to_thread.run_sync(lambda: self.agent.run(prompt, reset=False))

    async def resume(self, prompt):
        await self.send(prompt)

    async def stream(self, prompt):
        for event in self.agent.run(prompt, stream=True, reset=False):
            yield event
