"""Approval: rules allow or deny tool calls; a person allows, edits, denies or answers the others.

Use approval where a tool costs money or has effects that nobody can undo. If there's no callback,
the run ends, and the session holds the pending calls. Another process can open the session, decide
and continue the run. Calls of sub-agents are pending at the agent whose run you started.

By default, a new prompt cancels a pending call. With `defer_approval`, the conversation goes on: a
result says that the call waits, `agent.deferred` lists it, and after the decision a note tells the
model the outcome.
"""

from collections.abc import Sequence
from tempfile import TemporaryDirectory
from typing import Annotated

from agentloop import (
    Agent,
    Depends,
    Message,
    NeedsApproval,
    ScriptedModel,
    Session,
    ToolMessage,
    call,
    is_approved,
    tool,
)
from agentloop.mixins.approval import Approval, Rule
from agentloop.toolkits.subagent import as_tool


@tool
def pay(to: str, amount: int) -> str:
    """Transfer money to a recipient."""
    return f"paid {amount} to {to}"


@tool
def order(item: str, price: int, approved: Annotated[bool, Depends(is_approved)]) -> str:
    """Order an item. Asks for approval itself, before it has done anything."""
    if price > 100 and not approved:
        raise NeedsApproval("over 100")
    return f"ordered {item}"


class Clerk(Approval, Session, Agent):
    tools = (pay,)
    approval_rules = (
        Rule("allow", "pay", lambda arguments: arguments["amount"] < 10),
        Rule("deny", "pay", {"to": "*casino*"}, "The casino gets nothing."),
    )


class Patient(Approval, Agent):
    defer_approval = True


def report(messages: Sequence[Message], tools: object) -> str:
    """Simulate a model: report all results."""
    return " | ".join(message.text for message in messages if isinstance(message, ToolMessage))


def decide_in_another_process(folder: str) -> None:
    script = [
        call("pay", to="anna", amount=5),
        call("pay", to="bert", amount=700),
        call("pay", to="carla", amount=800),
        call("pay", to="dora", amount=900),
        call("pay", to="the casino", amount=1),
    ]
    with Clerk(llm=ScriptedModel(script), session="bills", session_dir=folder) as clerk:
        print(clerk.run_sync("Pay everybody.").stop_reason)
    with Clerk(llm=ScriptedModel(report), session="bills", session_dir=folder) as clerk:
        bert, carla, dora = clerk.pending
        clerk.decide(bert.id, "allow", arguments={"to": "bert", "amount": 70}, by="the boss")
        clerk.decide(carla.id, "deny", "Not before Monday.", by="the boss")
        clerk.decide(dora.id, "respond", "Dora was paid by hand.", by="the boss")
        print(clerk.run_sync())


def decide_for_a_sub_agent() -> None:
    buyer = Agent(llm=ScriptedModel(call("order", item="a desk", price=300), report), tools=[order])
    llm = ScriptedModel(call("buy", prompt="A desk."), report)
    office = Agent(llm=llm, tools=[as_tool(buyer, "buy", "Buys things")])
    [desk] = office.run_sync("We need a desk.").pending
    print(f"{desk.name}{desk.parsed}?")
    office.decide(desk.id, "allow")
    print(office.run_sync())


def decide_later() -> None:
    script = call("pay", to="bert", amount=700), "That awaits your boss.", "Noon.", "It is paid."
    clerk = Patient(llm=ScriptedModel(*script), tools=[pay])
    clerk.run_sync("Pay Bert 700.")
    clerk.run_sync("What time is it?")
    [waiting] = clerk.deferred
    clerk.decide(waiting.id, "allow")  # hours later
    clerk.run_sync()
    print(*[message.text for message in clerk.messages if message.text], sep="\n")


if __name__ == "__main__":
    with TemporaryDirectory() as folder:
        decide_in_another_process(folder)
    decide_for_a_sub_agent()
    decide_later()
