"""micro.py with a session: examples/micro.py."""

from micro import Assistant, ChatOpenAI, tool  # examples/ is on the path

from .bank import base_url, folder, look_up, pay_slowly


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

    def __init__(self, limit=None, ask=""):
        self.agent = Assistant(
            llm=ChatOpenAI("gpt-5-mini", base_url(), "k"),
            tools=[pay, look],
            system_prompt="You pay invoices.",
            max_iterations=limit or 200,
            session=f"{folder()}/clerk.jsonl",
            requires_approval=lambda name, arguments: name == "pay" and arguments["name"] == ask,
        )

    async def send(self, prompt):
        await self.agent.run(prompt)

    async def resume(self, prompt):
        if not self.agent.messages:  # the prompt wasn't saved
            await self.agent.run(prompt)
        elif self.agent.messages[-1]["role"] != "assistant":
            await self.agent.resume()

    def stream(self, prompt):
        return self.agent.query_stream(prompt)

    async def decide(self, allow, note):
        for call in self.agent.pending:
            self.agent.decide(call["id"], allow=allow, note=note)
        await self.agent.resume()
