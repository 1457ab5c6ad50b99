"""A conversation that moves from model to model is valid for each provider, whatever they reply.

The doubles refuse what the providers refuse; the vendors' types check every request.
"""

import json
from contextlib import AsyncExitStack
from itertools import count
from random import Random

import pytest

from agentloop import Agent
from agentloop.messages import AssistantMessage, SystemMessage, TextPart, ToolCall, UserMessage
from agentloop.toolkits.search import ToolSearch
from tests.doubles.openai_double import Reply
from tests.doubles.wires import ANTHROPIC, GOOGLE, OPENAI, PDF, PNG, RESPONSES, TOOLS

from .test_types import CHECKS

TEXTS = ["hi", "half \ud83d", "nul \0", "</tool>", "x" * 999]
PROMPTS = [*TEXTS, [TextPart("see"), PNG], [TextPart(""), PDF]]
ADDED = [
    SystemMessage("Be brief."),
    SystemMessage(" "),
    UserMessage(""),
    AssistantMessage(""),
    AssistantMessage("so", (ToolCall("left open", "now"),)),
]
IDS = ["", "same", "a b", "a.b|" + "long" * 20, "\ud800"]
SERVERS = [  # the last two wires twice: opaque data of another address is refused
    *((OPENAI, {}), (OPENAI, {"model": "mistral-large"})),
    *((RESPONSES, {}), (RESPONSES, {"model": "gpt-5.6"})),
    *((ANTHROPIC, {"model": "claude-opus-5-5"}), (ANTHROPIC, {"thinking": 1024})),
    *((GOOGLE, {}), (GOOGLE, {})),
]


class Searcher(ToolSearch, Agent): ...


def any_reply(random, number):
    """A reply whose calls have arguments that no other call has."""
    arguments = {
        "add": {"a": number, "b": 1},
        "echo": {"text": f"{number} \ud83d"},
        "now": {"wrong": number},
        "unknown tool": {"n": number},
        "search_tools": {"query": f"echo {number}"},
    }
    names = random.sample([*arguments], random.choice([0, 0, 1, 3]))
    ids = [*IDS, f"call_{number}"]
    made = [(name, arguments[name], random.choice(ids)) for name in names]
    text = random.choice([*TEXTS, None, " "])
    thinking, finish = random.choice(["hm", None]), random.choice([None, None, "length", "zzz"])
    return Reply(text, made, thinking, finish, refusal="no" if random.random() < 0.1 else None)


@pytest.mark.parametrize("seed", range(20))
async def test_a_conversation_that_moves_between_all_models_is_valid_for_each(seed):
    random, numbers = Random(seed), count()
    async with AsyncExitStack() as stack:
        models = []
        for wire, settings in SERVERS:
            server = await stack.enter_async_context(wire.double())
            llm = await stack.enter_async_context(wire.model(server, **settings))
            models.append((wire, server, llm))
        agent = Searcher(llm=models[0][2], tools=TOOLS[:2], searchable_tools=TOOLS[2:])
        agent.max_iterations = 4
        for _ in range(8):
            _, server, agent.llm = random.choice(models)
            server.replies = [any_reply(random, next(numbers)) for _ in range(8)]
            if random.random() < 0.4:
                agent.add(random.choice(ADDED))
            agent.listeners = random.choice([[], [lambda event: None]])
            await agent.run(random.choice(PROMPTS))
    for wire, server, _ in models:
        assert server.refusals == []
        for body in server.requests:
            CHECKS[wire.name](json.loads(json.dumps(body)))
