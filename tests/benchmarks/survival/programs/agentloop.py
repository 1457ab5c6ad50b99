"""agentloop with a session: README.md, "Sessions" and "Tools and approval"."""

from agentloop import Agent, ChatOpenAI, Session, tool
from agentloop.mixins.approval import Approval, Rule
from agentloop.mixins.limits import Limits
from agentloop.toolkits.subagent import as_tool

from .bank import base_url, folder, look_up, pay_slowly


@tool
async def pay(name: str) -> str:
    """Pay an invoice."""
    return await pay_slowly(name)


@tool(idempotent=True)
def look(name: str) -> str:
    """Ask the bank whether an invoice is paid."""
    return look_up(name)


class Clerk(Approval, Limits, Session, Agent):
    tools = (pay, look)
    system_prompt = "You pay invoices."


def model():
    return ChatOpenAI("gpt-5-mini", base_url=base_url(), api_key="k", max_retries=0)


class Program:
    limited = True

    def __init__(self, limit=None, ask=""):
        self.agent = Clerk(
            llm=model(),
            session="clerk",
            session_dir=folder(),
            max_requests=limit,
            approval_mode="auto",
            approval_rules=[Rule("ask", "pay", {"name": ask})],
        )

    async def send(self, prompt):
        await self.agent.run(prompt)

    async def resume(self, prompt):
        if not self.agent.messages:  # the prompt wasn't saved
            await self.agent.run(prompt)
        elif self.agent.messages[-1].role != "assistant":
            await self.agent.run()

    def stream(self, prompt):
        return self.agent.query_stream(prompt)

    async def decide(self, allow, note):
        for call in self.agent.pending:
            self.agent.decide(call.id, "allow" if allow else "deny", note=note)
        await self.agent.run()


class Boss(Program):
    def __init__(self):
        super().__init__(ask="Cleo")
        clerk = Agent(llm=model(), tools=[pay, look], system_prompt="You pay invoices.")
        self.agent.tools = [as_tool(clerk, "clerk", "Pays invoices.")]
