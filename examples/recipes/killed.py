"""An agent is killed during a payment; another agent continues and does not pay twice.

Use this program to test recovery before an agent handles money. The first agent runs in a separate
process, which receives SIGKILL after the payment and before the tool returns. The session file
contains the interrupted call. Therefore the second agent, in this process, is informed about the
unknown outcome of the payment, checks the ledger, and does not repeat the payment.
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from agentloop import Agent, AssistantMessage, ScriptedModel, Session, call, tool

SIGKILL = 9  # on Windows, any number terminates a process
PAYS = AssistantMessage("I pay the bill.", (call("pay", amount=6),))
LOOKS = AssistantMessage("The outcome is unknown, so I check the ledger.", (call("ledger"),))
CONTINUES = [LOOKS, "The bill is paid, according to the ledger."]


def paying_agent(llm: ScriptedModel, folder: Path) -> Agent:
    """Create the agent of either process, with its session and its ledger in the folder."""
    paid = folder / "ledger.txt"

    @tool
    def pay(amount: int) -> None:
        """Pay an amount. Every call is another payment."""
        with paid.open("a", encoding="utf-8") as file:
            file.write(f"paid {amount}\n")
        os.kill(os.getpid(), SIGKILL)  # the process ends here

    @tool
    def ledger() -> str:
        """Return the recorded payments."""
        return paid.read_text("utf-8")

    class Payer(Session, Agent):
        tools = (pay, ledger)

    return Payer(llm=llm, session="bill", session_dir=folder)


def main(folder: Path) -> None:
    first = subprocess.run([sys.executable, __file__, str(folder)], timeout=60)
    print("The first agent pays; exit code:", first.returncode)
    agent = paying_agent(ScriptedModel(*CONTINUES), folder)
    print("Shown to the second agent:", agent.messages[-1].text)
    print(agent.run_sync().text)
    print("The ledger:", (folder / "ledger.txt").read_text("utf-8").strip())


if __name__ == "__main__":
    if sys.argv[1:]:
        paying_agent(ScriptedModel(PAYS), Path(sys.argv[1])).run_sync("Pay the bill of 6, once.")
    else:
        with tempfile.TemporaryDirectory() as temporary:
            main(Path(temporary))
