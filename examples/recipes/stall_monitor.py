"""A stall monitor: calls a function when a run emits no event for a number of seconds.

Use a stall monitor where a user is waiting: a page can display "still working", a pager can notify
an operator. The monitor does not interrupt the run; the function can call `agent.interrupt()` for
this purpose.
"""

import asyncio
from collections.abc import Callable

from agentloop import Agent, Loop, ScriptedModel, call, tool


async def watch(agent: Loop, seconds: float, stalled: Callable[[str], object]) -> None:
    """Call `stalled` with the last event's name whenever a run is silent for `seconds`."""
    news, last = asyncio.Event(), "nothing yet"

    def listen(event: object) -> None:
        nonlocal last
        last = type(event).__name__
        news.set()

    agent.listeners = [*agent.listeners, listen]
    while True:
        news.clear()
        try:
            await asyncio.wait_for(news.wait(), seconds)
        except TimeoutError:
            if agent.running:
                stalled(last)


@tool("Build the project")
async def build() -> str:
    await asyncio.sleep(0.3)
    return "built"


async def main() -> None:
    agent = Agent(llm=ScriptedModel(call("build"), "It is built."), tools=[build])
    watcher = asyncio.create_task(watch(agent, 0.1, lambda last: print("silent since", last)))
    print(await agent.query("Build it."))
    watcher.cancel()


if __name__ == "__main__":
    asyncio.run(main())
