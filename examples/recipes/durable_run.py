"""A run that continues after its process has died: one process, SQLite.

Use durable runs for long or expensive work: the process may be killed at any moment, and the next
process resumes the run at the last step. Completed replies are not paid twice. fleet.py extends the
idea to many machines. Requires dbos.
"""

import asyncio

from dbos import DBOS, SetWorkflowID

from agentloop import Agent, ScriptedModel, call, tool
from agentloop.mixins.durable import Durable


class MyAgent(Agent, Durable):
    """A model request is one step in DBOS; a tool call is two steps."""


@tool("Book a room")
async def book(room: str) -> str:
    return f"{room} is booked."


@DBOS.workflow()
async def answer(prompt: str) -> str:
    llm = ScriptedModel(call("book", room="Room 4"), "Room 4 is yours.")
    return await MyAgent(llm=llm, tools=[book]).query(prompt)


async def main():
    for word in ("first", "again"):  # the same run a second time: no step is repeated
        with SetWorkflowID("booking-1"):
            print(f"{word}: {await answer('I need a room.')}")


if __name__ == "__main__":
    where = "sqlite:///desk.sqlite"
    DBOS(config={"name": "desk", "system_database_url": where, "log_level": "ERROR"})
    DBOS.launch()  # resumes the runs that were killed
    asyncio.run(main())
    DBOS.destroy()
