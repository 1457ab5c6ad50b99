"""Approval: rules allow or deny tool calls, or require a decision, which may come later.

Use approval where a tool costs money or has irreversible effects. Without a callback the run ends,
and the session contains the pending calls. Another process can open the session, approve or deny
the calls, and continue the run.
"""

from tempfile import TemporaryDirectory

from agentloop import Agent, ScriptedModel, Session, call, tool
from agentloop.mixins.approval import Approval, Rule


@tool
def pay(to: str, amount: int) -> str:
    """Transfer money to a recipient."""
    return f"paid {amount} to {to}"


class Clerk(Approval, Session, Agent):
    tools = (pay,)
    approval_rules = (
        Rule("allow", "pay", lambda arguments: arguments["amount"] < 10),
        Rule("deny", "pay", {"to": "*casino*"}, "The casino gets nothing."),
    )


if __name__ == "__main__":
    asks = [call("pay", to="anna", amount=5), call("pay", to="bert", amount=700)]
    with TemporaryDirectory() as folder:
        with Clerk(llm=ScriptedModel(asks), session="bills", session_dir=folder) as clerk:
            print(clerk.run_sync("Pay Anna 5 and Bert 700.").stop_reason)
        script = call("pay", to="the casino", amount=1), "Anna has her 5. Bert has to wait."
        with Clerk(llm=ScriptedModel(*script), session="bills", session_dir=folder) as clerk:
            [bert] = clerk.run_sync().pending
            clerk.decide(bert.id, "deny", note="Not before Monday.", by="the boss")
            print(clerk.run_sync())
            print(*[message.text for message in clerk.messages if message.text], sep="\n")
