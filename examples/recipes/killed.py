"""An agent is killed during a payment; another one continues, and doesn't pay twice.

Use this program to see how a run survives before an agent handles money. The first agent runs in a
process of its own, which is killed after the payment and before the tool returns. The second agent
is told that the outcome of the payment is unknown, checks the ledger, and doesn't pay again.

    python killed.py             a Session: its file holds the interrupted call
    python killed.py workflow    Durable: DBOS repeats the run; completed steps come from SQLite

A session needs nothing else. A workflow (`pip install 'dbos>=3.4,<4'`) restarts by itself when the
program starts; a reply that has arrived isn't billed again. fleet.py does it on many machines.
"""

import asyncio
import os
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from agentloop import Agent, AssistantMessage, ScriptedModel, Session, Tool, call, tool

SIGKILL = 9  # on Windows, any number terminates a process
PROMPT = "Pay the bill of 6, once."
PAYS = AssistantMessage("I pay the bill.", (call("pay", amount=6),))
LOOKS = AssistantMessage("The outcome is unknown, so I check the ledger.", (call("ledger"),))
CONTINUES = LOOKS, "The bill is paid, according to the ledger."


def tools_of(folder: Path) -> list[Tool]:
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

    return [pay, ledger]


class Payer(Session, Agent): ...


def with_session(llm: ScriptedModel, folder: Path) -> str:
    """Run the agent of either process: the second one continues the run of the first."""
    agent = Payer(llm=llm, tools=tools_of(folder), session="bill", session_dir=folder)
    return agent.run_sync(None if agent.messages else PROMPT).text


def with_workflow(llm: ScriptedModel, folder: Path) -> str:
    from dbos import DBOS, SetWorkflowID

    from agentloop.mixins.durable import Durable

    class DurablePayer(Agent, Durable): ...

    @DBOS.workflow()
    async def pay_the_bill() -> str:  # a request is one step in DBOS, a tool call is two
        return await DurablePayer(llm=llm, tools=tools_of(folder)).query(PROMPT)

    async def run() -> str:
        with SetWorkflowID("bill"):  # one id: it runs once, however often you call it
            return await pay_the_bill()

    url = f"sqlite:///{folder}/bills.sqlite"
    DBOS(config={"name": "bills", "system_database_url": url, "log_level": "ERROR"})
    DBOS.launch()  # continues the runs that were killed
    answer = asyncio.run(run())
    DBOS.destroy()
    return answer


if __name__ == "__main__":
    run = with_workflow if "workflow" in sys.argv else with_session
    if sys.argv[2:]:
        run(ScriptedModel(PAYS), Path(sys.argv[2]))
    else:
        with TemporaryDirectory() as name:
            first = [sys.executable, __file__, run.__name__.removeprefix("with_"), name]
            print("The first agent pays; exit code:", subprocess.run(first, timeout=60).returncode)
            llm = ScriptedModel(*CONTINUES)
            print(run(llm, Path(name)))
            print("Shown to the second agent:", llm.requests[0].messages[-1].text)
            print("The ledger:", Path(name, "ledger.txt").read_text("utf-8").strip())
