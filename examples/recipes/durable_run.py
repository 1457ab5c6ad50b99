"""A run that goes on after its process has died, in one process, on SQLite.

One wants it for a run that takes long or costs much: the process may be killed at any moment, and
the next one takes the run up at its last step. A reply that has come is not paid again. fleet.py is
the same on many machines. It needs dbos.
"""

import asyncio

from dbos import DBOS, SetWorkflowID

from agentloop import Agent, ScriptedModel, call, tool
from agentloop.mixins.durable import Durable


class MyAgent(Agent, Durable):
    """Each model request is a step; each tool call is two."""


@tool("Book a room")
async def book(room: str) -> str:
    return f"{room} is booked."


@DBOS.workflow()
async def answer(prompt: str) -> str:
    llm = ScriptedModel(call("book", room="Room 4"), "Room 4 is yours.")
    return await MyAgent(llm=llm, tools=[book]).query(prompt)


async def main():
    for word in ("first", "again"):  # the same run once more: its steps are not run again
        with SetWorkflowID("booking-1"):
            print(f"{word}: {await answer('I need a room.')}")


if __name__ == "__main__":
    where = "sqlite:///desk.sqlite"
    DBOS(config={"name": "desk", "system_database_url": where, "log_level": "ERROR"})
    DBOS.launch()  # takes up the runs that were killed
    asyncio.run(main())
    DBOS.destroy()
