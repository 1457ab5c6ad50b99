"""nano.py, which has no session: examples/nano.py."""

from nano import Agent, ChatOpenAI, tool

from .bank import base_url, look_up, pay_slowly


@tool
async def pay(name: str) -> str:
    """Pay an invoice."""
    return await pay_slowly(name)


@tool
async def look(name: str) -> str:
    """Ask the bank whether an invoice is paid."""
    return look_up(name)


class Program:
    limited = True

    def __init__(self, limit=None):
        self.agent = Agent(
            llm=ChatOpenAI("gpt-5-mini", base_url(), "k"),
            tools=[pay, look],
            system_prompt="You pay invoices.",
            max_iterations=limit or 200,
        )

    async def send(self, prompt):
        await self.agent.run(prompt)

    async def resume(self, prompt):
        await self.send(prompt)
