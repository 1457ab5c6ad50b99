"""A call that awaits approval while the conversation continues.

Use the class where approval takes hours and the user has other questions in the meantime. Normally
a prompt closes pending calls. Here a pending call immediately receives a result with its status.
Later, `settle` runs or denies the call, and adds a message with the outcome for the next request.
`undecided` lists the calls that await a decision, because `agent.pending` omits calls with a
result.
"""

import asyncio

from agentloop import Agent, ScriptedModel, Stop, ToolCall, tool
from agentloop.common.gate import Gate
from agentloop.messages import Decision
from agentloop.mixins.approval import Approval
from agentloop.models.scripted import call
from agentloop.tools import find_tool

PENDING = "Pending approval: this call has not run. The outcome follows. Do not repeat the call."


class Patient(Approval, Agent):
    async def call_tools(self, calls):
        try:
            return await super().call_tools(calls)
        except Stop as stop:
            if stop.reason != "needs_approval":
                raise
        pending = [call.id for call in self.pending]
        for tool_call in calls:
            if tool_call.id in pending:
                self.add(tool_call.answer(PENDING))
        return await super().call_tools([c for c in calls if c.id not in pending])

    def undecided(self) -> list[ToolCall]:
        """Return the calls that await a decision, with the arguments to execute."""
        states = self.conversation.states.values()
        return [state.asked for state in states if state.ask and not state.decision]

    def tool(self, call):
        return find_tool(call.name, self.toolset())  # also after a restart

    async def settle(self, call_id: str, *, allowed: bool, note: str = "") -> None:
        """Decide a pending call once, run it if allowed, and report the outcome to the model."""
        state = self.conversation.states[call_id]
        if state.ask is None or state.decision:
            raise ValueError(f"call {call_id!r} requires no approval, or was already decided")
        self.record(Decision(call_id, allowed, note))
        outcome = f"was denied. {note}"
        if allowed:
            try:  # as in a run, but without another approval check
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
    script = call("pay", to="bert", amount=700), "Your boss decides.", "Noon.", "It is paid."
    clerk = Patient(llm=ScriptedModel(*script), tools=[pay])
    clerk.run_sync("Pay Bert 700.")
    clerk.run_sync("What time is it?")
    [waiting] = clerk.undecided()
    asyncio.run(clerk.settle(waiting.id, allowed=True))  # hours later
    clerk.run_sync("And Bert?")
    print(*[message.text for message in clerk.messages if message.text], sep="\n")
