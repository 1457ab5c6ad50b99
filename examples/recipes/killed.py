"""An agent is killed while its tool pays a bill, and another goes on and pays nothing twice.

One wants it before money moves. The first runs in a process of its own, which SIGKILL ends once the
bill is paid, before the tool returns. What it did is in the session's file, so the second, in this
process, reads that the outcome of the payment is unknown. It looks at the ledger, and does not pay
again.
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from agentloop import Agent, AssistantMessage, ScriptedModel, Session, call, tool

SIGKILL = 9  # Windows has no such signal, and ends a process for any number
PAYS = AssistantMessage("I pay the bill.", (call("pay", amount=6),))
LOOKS = AssistantMessage("Whether that paid is unknown, so I look.", (call("ledger"),))
GOES_ON = [LOOKS, "The bill is paid: the ledger says so."]


def paying_agent(llm: ScriptedModel, folder: Path) -> Agent:
    """Build the agent of both processes. Its session and its ledger are in the folder."""
    paid = folder / "ledger.txt"

    @tool
    def pay(amount: int) -> None:
        """Pay an amount. Each call pays again."""
        with paid.open("a", encoding="utf-8") as file:
            file.write(f"paid {amount}\n")
        os.kill(os.getpid(), SIGKILL)  # the process ends here

    @tool
    def ledger() -> str:
        """Read what was paid."""
        return paid.read_text("utf-8")

    class Payer(Session, Agent):
        tools = (pay, ledger)

    return Payer(llm=llm, session="bill", session_dir=folder)


def main(folder: Path) -> None:
    first = subprocess.run([sys.executable, __file__, str(folder)], timeout=60)
    print("The first agent pays, and ends with", first.returncode)
    agent = paying_agent(ScriptedModel(*GOES_ON), folder)
    print("A second agent reads:", agent.messages[-1].text)
    print(agent.run_sync().text)
    print("The ledger:", (folder / "ledger.txt").read_text("utf-8").strip())


if __name__ == "__main__":
    if sys.argv[1:]:
        paying_agent(ScriptedModel(PAYS), Path(sys.argv[1])).run_sync("Pay the bill of 6, once.")
    else:
        with tempfile.TemporaryDirectory() as temporary:
            main(Path(temporary))
