"""The model: a strict server of Chat Completions that decides from the request alone.

It plays a model that reads what it's given. It pays each name that has no result, asks the bank
about a call whose result has no receipt, and pays again if the bank says "not paid". So a program
that tells its model what happened pays each name once, and a program that forgets pays twice.
"""

import asyncio
import json
import os
import re
import signal

from tests.doubles.openai_double import Failure, OpenAIDouble, Reply

from . import world


def texts(messages):
    """Return the texts and the arguments of the messages, in order, without the prompts."""
    for message in messages:
        if message["role"] == "system":
            continue
        content = message.get("content") or ""
        if not isinstance(content, str):
            content = " ".join(part.get("text", "") for part in content)
        yield content
        for call in message.get("tool_calls") or ():
            yield f"{call['function']['name']} {call['function']['arguments']}"


def next_call(name, told):
    """Return the call that this name needs, or None."""
    if f"receipt R-{name}" in told or (name == "Cleo" and world.NOTE in told):
        return None
    mentions = re.findall(rf"pay\b\W[^\n]{{0,40}}?\b{name}\b|\b{name}: not paid", told)
    if not mentions or "not paid" in mentions[-1]:
        return "pay"
    return "look"


def think(body):
    """Return the calls of the reply, or its text."""
    told = "\n".join(texts(body["messages"]))
    tools = {tool["function"]["name"]: tool["function"] for tool in body.get("tools") or ()}
    if "clerk" in tools:
        if "All is paid." in told:
            return "The clerk has paid."
        [argument, *_] = tools["clerk"]["parameters"]["properties"]
        return [("clerk", {argument: world.PROMPT})]
    for turn in world.ORDER if "pay" in tools else ():
        calls = [(next_call(name, told), {"name": name}) for name in turn]
        if calls := [call for call in calls if call[0]]:
            return calls
    if "final_answer" in tools:  # smolagents ends a run with a call
        return [("final_answer", {"answer": "All is paid."})]
    return "All is paid."


class Model(OpenAIDouble):
    """Appends each request to a file of JSON lines, with the length of the ledger at that time."""

    def __init__(self, log):
        super().__init__()
        self.log, self.served = log, 0

    def reply(self, body):
        self.served += 1
        reply = think(body)
        if isinstance(reply, str):
            return reply
        ids = [f"call_{self.served}_{at}" for at in range(len(reply))]
        return Reply(calls=[(*call, id) for call, id in zip(reply, ids, strict=True)])

    def _answer(self, first, headers, content):
        self.requests.clear()
        self.refusals.clear()
        self.replies = [self.reply]
        response = super()._answer(first, headers, content)
        body = json.loads(content)
        entry = {"after": "after" in world.lines(), "ledger": len(world.lines())}
        entry |= {"refused": self.refusals[-1] if self.refusals else None}
        entry |= {"tools": [tool["function"]["name"] for tool in body.get("tools") or ()]}
        with self.log.open("a") as file:
            file.write(json.dumps(entry | {"messages": body["messages"]}) + "\n")
        world.add("request")
        number = sum(line == "request" for line in world.lines())
        if not entry["after"]:
            if number == world.field(3):
                os.kill(world.field(4), signal.SIGKILL)
            if world.field(2) and number >= world.field(2):
                return self._fail(Failure(500, "the model's server has failed"))
        return response


def serve(log):
    """Serve until the process is killed. The port is in the shared memory."""

    async def run():
        async with Model(log) as server:
            world.field(1, server.port)
            await asyncio.Event().wait()

    asyncio.run(run())
