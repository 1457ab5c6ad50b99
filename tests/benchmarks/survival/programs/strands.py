"""Strands with a session that saves each message.

https://strandsagents.com/docs/user-guide/concepts/agents/session-management/
https://strandsagents.com/docs/user-guide/concepts/interrupts/
https://strandsagents.com/docs/user-guide/concepts/multi-agent/agents-as-tools/
"""

from strands import Agent, tool
from strands.hooks import BeforeToolCallEvent
from strands.models.openai import OpenAIModel
from strands.session import SnapshotSessionManager
from strands.storage import LocalFileStorage

from .bank import GO_ON, base_url, folder, look_up, pay_slowly


@tool
async def pay(name: str) -> str:
    """Pay an invoice."""
    return await pay_slowly(name)


@tool
async def look(name: str) -> str:
    """Ask the bank whether an invoice is paid."""
    return look_up(name)


def agent_of(tools, session, **settings):
    model = OpenAIModel(
        model_id="gpt-5-mini",
        client_args={"base_url": base_url(), "api_key": "k", "max_retries": 0},
    )
    return Agent(
        model=model,
        tools=tools,
        system_prompt="You pay invoices.",
        session_manager=session,
        callback_handler=None,
        retry_strategy=None,
        **settings,
    )


def saved(name):
    storage = LocalFileStorage(folder())
    return SnapshotSessionManager(session_id=name, storage=storage, save_latest_on="message")


def ask_about(name):
    def ask(event: BeforeToolCallEvent):
        if event.tool_use["name"] == "pay" and event.tool_use["input"]["name"] == name:
            answer = event.interrupt("pay", reason=event.tool_use["input"])
            if not answer["allow"]:
                event.cancel_tool = answer["note"]

    return ask


class Program:
    limited = True

    def __init__(self, limit=None, ask=""):
        self.limits = {"turns": limit} if limit else None
        self.agent = agent_of([pay, look], saved("clerk"), agent_id="clerk", hooks=[ask_about(ask)])
        self.interrupts = []

    async def send(self, prompt):
        result = await self.agent.invoke_async(prompt, limits=self.limits)
        self.interrupts = result.interrupts or []

    async def resume(self, prompt):
        await self.send(GO_ON if self.agent.messages else prompt)

    def stream(self, prompt):
        return self.agent.stream_async(prompt)

    async def decide(self, allow, note):
        answer = {"allow": allow, "note": note}
        responses = [
            {"interruptResponse": {"interruptId": each.id, "response": answer}}
            for each in self.interrupts or self.agent._interrupt_state.interrupts.values()
        ]
        await self.send(responses)


class Boss(Program):
    def __init__(self):
        self.limits, self.interrupts = None, []
        clerk = agent_of(
            [pay, look], None, agent_id="clerk", name="clerk", hooks=[ask_about("Cleo")]
        )
        tool = clerk.as_tool(name="clerk", description="Pays invoices.")
        self.agent = agent_of([tool], saved("boss"), agent_id="boss")
