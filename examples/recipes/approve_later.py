"""A call waits for approval while the conversation goes on.

One wants it where somebody says yes hours later, and the user has other questions until then. A
prompt would close a call that waits. Here the call gets a result at once, which says that it waits.
`settle` runs it, or does not, and a message tells the model of it before the next prompt.
"""

import asyncio

from agentloop import Agent, ScriptedModel, Stop, tool
from agentloop.messages import Decision, ToolStart
from agentloop.mixins.approval import Approval
from agentloop.models.scripted import call
from agentloop.tools import find_tool

WAITS = "This waits for approval and has not run. You will be told. Do not call it again."


class Patient(Approval, Agent):
    async def call_tools(self, calls):
        try:
            return await super().call_tools(calls)
        except Stop as stop:
            if stop.reason != "needs_approval":
                raise
        waiting = [waits.id for waits in self.pending]
        for each in calls:
            if each.id in waiting:
                self.add(each.answer(WAITS))
        return await super().call_tools([each for each in calls if each.id not in waiting])

    async def settle(self, call_id: str, *, allowed: bool, note: str = "") -> None:
        """Decide a call that waits, run it if it is allowed, and tell the model. Only once."""
        state = self.conversation.states[call_id]
        if state.ask is None or state.decision:
            raise ValueError(f"nobody is asked for {call_id!r}, or it is decided already")
        self.record(Decision(call_id, allowed, note))
        outcome = f"was denied. {note}"
        if allowed:
            tool = find_tool(state.asked.name, self.toolset())
            self.record(ToolStart(call_id))
            outcome = f"has run: {await tool.execute(tool.validate(state.asked.arguments))}"
        self.tell(f"The call {state.call.name}({state.asked.arguments}) {outcome}")


@tool
def pay(to: str, amount: int) -> str:
    """Pay somebody."""
    return f"paid {amount} to {to}"


if __name__ == "__main__":
    script = call("pay", to="bert", amount=700), "That waits for your boss.", "Noon.", "It is paid."
    clerk = Patient(llm=ScriptedModel(*script), tools=[pay])
    clerk.run_sync("Pay Bert 700.")
    clerk.run_sync("What time is it?")
    [waiting] = [state for state in clerk.conversation.states.values() if state.ask]
    asyncio.run(clerk.settle(waiting.call.id, allowed=True))  # hours later
    clerk.run_sync("And Bert?")
    print(*[message.text for message in clerk.messages if message.text], sep="\n")
