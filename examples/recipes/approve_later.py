"""A call waits for approval while the conversation goes on.

One wants it where somebody says yes hours later, and the user has other questions until then. A
prompt would close a call that waits. Here the call gets a result at once, which says that it waits.
`settle` runs it, or does not, and a message tells the model of it before the next prompt.
`undecided` lists what waits, as `agent.pending` has only calls without a result.
"""

import asyncio

from agentloop import Agent, ScriptedModel, Stop, ToolCall, tool
from agentloop.common.gate import Gate
from agentloop.messages import Decision
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

    def undecided(self) -> list[ToolCall]:
        """Return the calls that still wait for a decision, as they would run."""
        states = self.conversation.states.values()
        return [state.asked for state in states if state.ask and not state.decision]

    def tool(self, call):
        return find_tool(call.name, self.toolset())  # after a restart, too

    async def settle(self, call_id: str, *, allowed: bool, note: str = "") -> None:
        """Decide a call that waits, run it if it is allowed, and tell the model. Only once."""
        state = self.conversation.states[call_id]
        if state.ask is None or state.decision:
            raise ValueError(f"nobody is asked for {call_id!r}, or it is decided already")
        self.record(Decision(call_id, allowed, note))
        outcome = f"was denied. {note}"
        if allowed:
            try:  # as in a run, but no gate judges it again
                result = await super(Gate, self).call_tool(state.asked)
                outcome = f"{'failed' if result.is_error else 'has run'}: {result.text}"
            except Stop as stop:
                outcome = f"has run: {stop.text}"
        self.add_note(f"The call {state.call.name}({state.asked.arguments}) {outcome}")


@tool
def pay(to: str, amount: int) -> str:
    """Pay somebody."""
    return f"paid {amount} to {to}"


if __name__ == "__main__":
    script = call("pay", to="bert", amount=700), "That waits for your boss.", "Noon.", "It is paid."
    clerk = Patient(llm=ScriptedModel(*script), tools=[pay])
    clerk.run_sync("Pay Bert 700.")
    clerk.run_sync("What time is it?")
    [waiting] = clerk.undecided()
    asyncio.run(clerk.settle(waiting.id, allowed=True))  # hours later
    clerk.run_sync("And Bert?")
    print(*[message.text for message in clerk.messages if message.text], sep="\n")
