"""Event channels over HTTP: server-sent events that a browser continues after a lost connection.

Use the endpoint between an agent and a web page; copy channels.py with this file. Event ids are the
entry numbers of channels.py. A browser's `EventSource` sends the last id when reconnecting, and so
misses nothing after a lost connection or a server restart: a page that was disconnected in the
middle of a run still shows "done". `uvicorn event_channels:app` serves the page at localhost:8000.
"""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import closing
from typing import Annotated

from channels import Channel, Channels
from fastapi import Body, FastAPI, Header
from fastapi.responses import HTMLResponse, StreamingResponse
from pydantic_core import to_json

from agentloop import Agent, ScriptedModel, Session, call, tool

PAGE = """<!doctype html><p id=status><p id=text>
<script>
const seen = new EventSource("/events?channel=progress")
const show = (id, text) => { document.getElementById(id).textContent = text }
seen.addEventListener("ToolCallEvent", e => show("status", JSON.parse(e.data).tool))
seen.addEventListener("TextEvent", e => show("text", JSON.parse(e.data).content))
seen.addEventListener("FinalResponseEvent", e => show("status", "done"))
fetch("/runs", {method: "POST", body: JSON.stringify("How were sales?"),
                headers: {"content-type": "application/json"}})
</script>"""


class Served(Channels, Session, Agent):
    """An agent for one conversation. With `session="name"` the conversation survives restarts."""


@tool("Sales by month")
def sales(year: int) -> dict[str, int]:
    return {"January": year - 2000, "February": 31}


agent = Served(llm=ScriptedModel(call("sales", year=2026), "More in February."), tools=[sales])
app = FastAPI()


@app.get("/")
def page() -> HTMLResponse:
    return HTMLResponse(PAGE)


@app.post("/runs")
async def run(prompt: Annotated[str, Body()]) -> str:
    return (await agent.run(prompt)).stop_reason


@app.get("/events")
async def events(
    channel: Channel = "progress", last_event_id: Annotated[int, Header()] = -1
) -> StreamingResponse:
    return StreamingResponse(lines(channel, last_event_id), media_type="text/event-stream")


async def lines(channel: Channel, since: int) -> AsyncGenerator[bytes]:
    """Yield the entries after number `since`, then new entries, until the client disconnects."""
    with closing(agent.follow(channel, since=since)) as entries:
        async for entry in entries:
            data = to_json(entry.item, fallback=repr)
            yield b"id: %d\nevent: %s\ndata: %s\n\n" % (entry.number, entry.kind.encode(), data)


async def main() -> None:
    before = lines("progress", since=-1)
    running = asyncio.create_task(run("How were sales?"))
    seen = -1
    while seen < 3:  # simulates a lost connection
        event = (await anext(before)).decode()
        seen = int(event.split()[1])
        print(event, end="")
    await before.aclose()
    print(f"-- {await running}; a new connection with Last-Event-ID {seen}")
    after = lines("progress", since=seen)
    while "FinalResponseEvent" not in event:
        event = (await anext(after)).decode()
        print(event, end="")
    await after.aclose()


if __name__ == "__main__":
    asyncio.run(main())
