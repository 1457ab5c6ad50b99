"""A call that awaits approval while the conversation continues.

Use the setting for approvals that take hours, while the user has other questions. By default, a new
prompt cancels a pending call. With `defer_approval`, the call immediately receives a result that
mentions the pending approval, and `agent.deferred` lists the call. After `agent.decide`, also in
another process with a session, the next run executes the call if it was allowed, and a note returns
the outcome to the model.
"""

from agentloop import Agent, ScriptedModel, call, tool
from agentloop.mixins.approval import Approval


class Patient(Approval, Agent):
    defer_approval = True


@tool
def pay(to: str, amount: int) -> str:
    """Transfer money to a recipient."""
    return f"paid {amount} to {to}"


if __name__ == "__main__":
    script = call("pay", to="bert", amount=700), "That awaits your boss.", "Noon.", "It is paid."
    clerk = Patient(llm=ScriptedModel(*script), tools=[pay])
    clerk.run_sync("Pay Bert 700.")
    clerk.run_sync("What time is it?")
    [waiting] = clerk.deferred
    clerk.decide(waiting.id, "allow")  # hours later
    clerk.run_sync()
    print(*[message.text for message in clerk.messages if message.text], sep="\n")
