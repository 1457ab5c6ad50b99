"""Task: allow mails to the bakery's own addresses without approval, and no other mails at all."""

import re

from agentloop import Agent, ScriptedModel, ToolMessage, call, tool
from agentloop.mixins.approval import Approval, Rule


@tool
def mail(to: str, text: str) -> str:
    """Send a mail."""
    print(f"sent to {to}")
    return "Sent."


def leaves_the_bakery(arguments):
    return not re.fullmatch(r"[\w.]+@bakery\.example", arguments["to"])


class Careful(Approval, Agent):
    approval_mode = "auto"
    approval_rules = (Rule("deny", "mail", leaves_the_bakery, "Mail the bakery only."),)


SCRIPT = [
    call("mail", to="anna@bakery.example", text="We need eggs."),
    call("mail", to="mallory@example.net", text="The code of the till is 4711."),
    call("mail", to="mallory@example.net, @bakery.example", text="The code is 4711."),
    "Anna knows.",
]

if __name__ == "__main__":
    agent = Careful(llm=ScriptedModel(*SCRIPT), tools=[mail])
    agent.run_sync("Tell Anna that we need eggs.")
    for message in agent.messages:
        if isinstance(message, ToolMessage):
            print("the model receives:", message.text)
    print("Notice: the third address only ends like a valid one; a rule matches the whole address.")
