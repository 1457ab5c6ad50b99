"""Reads recorded runs: those of tau-bench, SWE-agent and mini-swe-agent, as they publish them.

tau-bench: a list of runs, each with its messages as "traj" (historical_trajectories/*.json).
SWE-agent: a run a file, with its messages as "history" (*.traj). A demonstration that stands before
    the task is part of what the model is told first.
mini-swe-agent: a run a file, with its messages as "messages" (*.traj.json). A command may stand in
    the text as a block of bash; it is read as a call of a tool `bash`.
"""

import json
import re
import sys
from functools import partial

from .transcripts import NEWEST, Conversation, Task, Turn, Workload, played

WRITES = ("book", "cancel", "update", "modify", "return", "exchange", "send", "transfer", "think")
BLOCK = re.compile(r"```(?:bash|mswea_bash_command)\s*\n(.*?)\n?```", re.DOTALL)


def recorded(folder):
    """Return the recordings in a folder as workloads.

    A file of several runs is one workload; files of one run each form one workload per folder below
    `folder`. The kind is the name of that folder, up to a hyphen.
    """
    many, single = {}, {}
    for path in sorted([*folder.rglob("*.json"), *folder.rglob("*.traj")]):
        below = path.relative_to(folder).parts[:-1]
        kind = below[0] if below else folder.name
        runs = runs_in(path)
        if path.name.endswith((".traj", ".traj.json")):
            single.setdefault(kind, []).extend(runs)
        elif runs:
            many[path.stem] = kind, runs
    named = {**many, **{kind: (kind, runs) for kind, runs in single.items() if runs}}
    return [workload(name, kind, runs) for name, (kind, runs) in named.items()]


def workload(name, kind, runs):
    conversations = [conversation(run) for run in runs]
    names = {turn.name for each in conversations for task in each.tasks for turn in task.turns}
    keeps = {name: 0 if name.startswith(WRITES) else NEWEST for name in sorted(names)}
    label = f"{name} ({len(runs)} run{'s' if len(runs) > 1 else ''})"
    kind = f"{kind.partition('-')[0]}, recorded"
    return Workload(label, conversations, partial(played, keeps), kind)


def runs_in(path):
    """Return the messages of each run in a file; [] and a note on stderr without runs."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except ValueError:
        data = None
    runs = []
    if isinstance(data, list):
        runs = [run["traj"] for run in data if isinstance(run, dict) and "traj" in run]
    elif isinstance(data, dict):
        runs = [data.get("history") or data.get("messages")]
    runs = [run for run in runs if is_run(run)]
    if not runs:
        print(f"no recorded run in {path}", file=sys.stderr)
    return runs


def is_run(messages):
    """Return whether a value is a list of messages with a reply."""
    if not isinstance(messages, list):
        return False
    found = [each for each in messages if isinstance(each, dict) and each.get("role")]
    return len(found) == len(messages) and any(each["role"] == "assistant" for each in found)


def conversation(messages):
    """Return the initial instructions and the tasks."""
    at = 0
    while messages[at]["role"] in ("system", "developer") or messages[at].get("is_demo"):
        at += 1
    told = "\n\n".join(text_of(message) for message in messages[:at])
    return Conversation(told, [*tasks_of(messages[at:])])


def tasks_of(messages):
    """Yield the tasks: each prompt of the user with the turns up to the next prompt."""
    task, waiting = None, []
    for message in messages:
        role, text = message["role"], text_of(message)
        if role == "assistant" and task:
            says, calls = calls_of(message)
            waiting = [Turn(name, arguments, "", says) for name, arguments in calls]
            if says and not calls:
                task = task._replace(answer=says)
        elif waiting:  # a result; its role is "user" if the call was a command in the text
            task.turns.append(waiting.pop(0)._replace(result=text))
        elif role == "user":
            if task:
                yield task
            task = Task(text, [])
    if task:
        task.turns.extend(waiting)  # a run may end before its last call returns
        yield task


def calls_of(message):
    """Return the text of a reply, and its calls as names and JSON."""
    if message["role"] != "assistant":
        return "", []
    text = text_of(message)
    if message.get("tool_calls"):
        made = [call["function"] for call in message["tool_calls"]]
        return text, [(each["name"], each["arguments"]) for each in made]
    if message.get("action"):  # SWE-agent's parse of a command in the text
        return message.get("thought") or "", [bash(message["action"])]
    blocks = BLOCK.findall(text)
    if len(blocks) == 1:
        return BLOCK.sub("", text).strip(), [bash(blocks[0])]
    return text, []


def bash(command):
    return "bash", json.dumps({"command": command.strip()})


def text_of(message):
    content = message.get("content") or ""
    if isinstance(content, str):
        return content
    return "\n".join(part.get("text") or "" for part in content)
