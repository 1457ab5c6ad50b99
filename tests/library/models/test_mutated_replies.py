"""A reply in which something is wrong becomes a message that can be stored and sent, or an error.

`AGENTLOOP_MUTATIONS=10000 python -m pytest tests/library/models/test_mutated_replies.py` tries
10,000 complete and as many streamed replies for each provider.
"""

import copy
import json
import os
from collections import Counter
from random import Random

import httpx
import pytest

from agentloop import Agent
from agentloop.common.records import dump_record, load_record
from agentloop.errors import ModelError
from agentloop.messages import AssistantMessage, UserMessage
from tests.doubles.openai_double import Reply
from tests.doubles.wires import ANTHROPIC, GOOGLE, RESPONSES

from .helpers import HI, TOOLS

MUTATIONS = int(os.environ.get("AGENTLOOP_MUTATIONS", "150"))
WRONG = (
    *(None, True, False, 0, -1, 7, 10**30, 1e300, 0.5, "", "x", "\ud800", "stop", "tool_use"),
    *([], {}, [None], [[]], [{}], {"a": 1}, {"type": "text"}, {"id": 5}, "{", [{"type": 5}]),
)
REPLIES = [
    Reply("hello there", thinking="hm"),
    Reply("I look", calls=[("weather", {"city": "Bern"}), ("time", {})], thinking="hm"),
    Reply(refusal="no"),
    Reply("cut", finish="length"),
]


def places(value, path=()):
    """Yield the paths of all values in a JSON value."""
    yield path
    if isinstance(value, dict | list):
        for name, inner in value.items() if isinstance(value, dict) else enumerate(value):
            yield from places(inner, (*path, name))


def mutate(value, random):
    """Return a copy in which a value is wrong, missing, or there twice."""
    value = copy.deepcopy(value)
    *path, name = random.choice([path for path in places(value) if path])
    holder = value
    for step in path:
        holder = holder[step]
    kind = random.random()
    if kind < 0.15:
        del holder[name]
    elif kind < 0.25 and isinstance(holder, list):
        holder.insert(name, copy.deepcopy(holder[name]))
    else:
        holder[name] = copy.deepcopy(random.choice(WRONG))
    return value


def mutated_frame(frame, random):
    head, separator, data = frame.partition(b"data: ")
    if not data.startswith(b"{"):
        return frame
    event = mutate(json.loads(data), random)
    return head + separator + json.dumps(event).encode() + b"\n\n"


def mutated_stream(frames, random):
    """Return a stream in which one event is wrong, missing, truncated, or there twice."""
    frames = [*frames]
    at = random.randrange(len(frames))
    kind = random.random()
    if kind < 0.05:
        del frames[at]
    elif kind < 0.1:
        frames.insert(at, frames[at])
    elif kind < 0.15:
        frames[at] = frames[at][: random.randrange(len(frames[at]))]
    elif kind < 0.2:
        other = random.randrange(len(frames))
        frames[at], frames[other] = frames[other], frames[at]
    else:
        frames[at] = mutated_frame(frames[at], random)
    return b"".join(frames)


@pytest.mark.parametrize("streaming", [False, True], ids=["whole", "streamed"])
async def test_a_mutated_reply_is_a_message_or_a_model_error(wire, streaming):
    random = Random(f"{wire.name} {streaming}")
    outcomes = Counter[str]()
    settings = {"model": "claude-opus-5-5"} if wire is ANTHROPIC else {}

    def respond(request):
        return httpx.Response(200, content=content, headers={"content-type": kind})

    kind = "text/event-stream" if streaming else "application/json"
    async with httpx.AsyncClient(transport=httpx.MockTransport(respond)) as client:
        llm = wire.model("http://x", client=client, max_retries=0, **settings)
        for _ in range(MUTATIONS):
            reply = random.choice(REPLIES)
            if streaming:
                content = mutated_stream(wire.frames(reply), random)
            else:
                content = json.dumps(mutate(wire.whole(reply), random)).encode()
            deltas = []
            try:
                message = await llm.ainvoke(
                    HI, TOOLS, on_delta=deltas.append if streaming else None
                )
            except ModelError as error:
                outcomes[type(error).__name__] += 1
                continue
            finally:
                assert all(isinstance(delta.content, str) for delta in deltas)
            assert isinstance(message, AssistantMessage)
            assert load_record(dump_record(message)) == message
            answers = [call.answer("ok") for call in message.tool_calls]
            assert llm.request_body([*HI, message, *answers, UserMessage("go on")], TOOLS)
            outcomes["reply"] += 1
    assert outcomes["reply"]
    assert outcomes["BadResponse"]


PARTS = ("candidates", 0, "content", "parts")


@pytest.mark.parametrize(
    ("wire", "place", "value"),
    [
        *((RESPONSES, ("output", 1, "id"), value) for value in (5, [], {"a": 1}, True)),
        *((RESPONSES, ("output", 1, "role"), value) for value in ([], {})),
        *((RESPONSES, ("output", 1, "content"), value) for value in ([None], [[]], [7])),
        (RESPONSES, ("output", 1, "content", 0, "type"), {}),
        *((ANTHROPIC, ("content", 0, "thinking"), value) for value in (None, False, 0, [], {})),
        *((ANTHROPIC, ("content", 0, "signature"), value) for value in (7, True, {"a": 1}, [None])),
        *((GOOGLE, (*PARTS, 0, "text"), value) for value in (False, 0, [])),
        *((GOOGLE, (*PARTS, 2, "thoughtSignature"), value) for value in (7, True, {"a": 1})),
    ],
    ids=lambda each: getattr(each, "name", str(each)),
)
async def test_a_field_of_another_type_is_not_sent_back(wire, place, value):
    whole = wire.whole(REPLIES[1])
    holder = whole
    for step in place[:-1]:
        holder = holder[step]
    assert place[-1] in holder
    holder[place[-1]] = value
    transport = httpx.MockTransport(lambda request: httpx.Response(200, json=whole))
    async with wire.double(["ok"]) as server, httpx.AsyncClient(transport=transport) as client:
        message = await wire.model(server, client=client).ainvoke(HI, TOOLS)
        agent = Agent(llm=wire.model(server), tools=TOOLS)
        results = [call.answer("x") for call in message.tool_calls]
        agent.load_history([*HI, message, *results])
        assert await agent.query("go on") == "ok"
        assert server.refusals == []
