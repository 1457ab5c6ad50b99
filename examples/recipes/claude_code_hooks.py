"""Hooks from a settings file of Claude Code, and from a project's own only if a person trusts it.

One wants it for hooks that people have already: commands that read JSON and print it, listed by
event. Such a file runs programs, so one that came with a project needs a yes to its very content.
The form of the files, the JSON and the exit codes: code.claude.com/docs/en/hooks.
"""

import asyncio
import json
import logging
import subprocess
import sys
from collections.abc import Callable, Collection
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from pathlib import Path
from subprocess import PIPE
from tempfile import TemporaryDirectory, TemporaryFile
from threading import Timer
from typing import IO, Any, get_args

from agentloop import Agent, ScriptedModel, tool
from agentloop.mixins.hooks import Hook, HookEvent, Hooks, fires_for
from agentloop.models.scripted import call

VERDICTS = {"allow": 1, "approve": 1, "ask": 2}  # any other word is a no, which is 3
MAX_OUTPUT = 100_000  # bytes that a command may print; one that prints more is killed
TOOL_EVENTS = ("PreToolUse", "PostToolUse", "PostToolUseFailure")


def command(
    program: str | list[str], matcher: str = "", timeout: float = 10
) -> Callable[[dict[str, Any]], dict[str, Any] | None]:
    """Make a hook's function of a command, which reads the data as JSON and prints its answer.

    program: a list of arguments, or a line for the shell.
    matcher: of the tool's name as Claude Code has it, or as it is here.

    Exit code 2 is a "deny" with the error output as its reason; another code but 0 is a failure, so
    a gate denies. If your commands use CLAUDE_PROJECT_DIR, put it into the environment.
    """

    def run(data: dict[str, Any]) -> dict[str, Any] | None:
        if "tool_name" in data and not any(fires_for(matcher, n) for n in names_of(data)):
            return None
        done = run_bounded(program, json.dumps(data).encode(), timeout)
        if done.returncode == 2:
            return {"decision": "deny", "reason": done.stderr.strip()}
        done.check_returncode()
        text = done.stdout.strip()
        if text[:1] != "{" and data["hook_event_name"] in ("SessionStart", "UserPromptSubmit"):
            return {"additionalContext": text}
        said = json.loads(text or "null")
        return None if said is None else flatten(said)

    return run


def run_bounded(
    program: str | list[str], data: bytes, timeout: float
) -> subprocess.CompletedProcess[str]:
    """Run a command on `data`. It is killed after `timeout` seconds, or after MAX_OUTPUT bytes."""
    with TemporaryFile() as file:
        file.write(data)
        file.seek(0)
        process = subprocess.Popen(
            program, shell=isinstance(program, str), stdin=file, stdout=PIPE, stderr=PIPE
        )

    def read(stream: IO[bytes]) -> str:
        text = stream.read(MAX_OUTPUT + 1)
        if len(text) > MAX_OUTPUT:
            process.kill()
        return text.decode()

    timer = Timer(timeout, process.kill)
    timer.start()
    try:
        with process, ThreadPoolExecutor() as threads:
            output, errors = threads.map(read, filter(None, (process.stdout, process.stderr)))
    finally:
        timer.cancel()
    return subprocess.CompletedProcess(program, process.returncode, output, errors)


def names_of(data: dict[str, Any]) -> list[str]:
    """Return a tool's name, and the one that it has in Claude Code: "bash" is "Bash" there.

    "web_fetch" is "WebFetch", and "memory__create" of a server is "mcp__memory__create".
    """
    name = data["tool_name"]
    names = [name, name.title().replace("_", "")]
    return [*names, f"mcp__{name}"] if "__" in name else names


def flatten(said: dict[str, Any]) -> dict[str, Any]:
    """Return what a command printed in the four keys of `Hook`. The strictest verdict counts."""
    found = dict[str, Any]()
    strictest = 0
    for part in (said, said.get("hookSpecificOutput") or {}):
        words = [part[key] for key in ("decision", "permissionDecision") if part.get(key)]
        if not part.get("continue", True):
            words.append("deny")
        verdict = max((VERDICTS.get(word, 3) for word in words), default=0)
        if verdict > strictest:
            strictest = verdict
            found["decision"] = ("", "allow", "ask", "deny")[verdict]
            reasons = part.get("permissionDecisionReason"), part.get("reason"), said.get("reason")
            found["reason"] = next(filter(None, reasons), "")
        for key in ("updatedInput", "additionalContext"):
            if part.get(key) is not None:
                found[key] = part[key]
    return found


def load_hooks(path: Path, trusted: Collection[str] | None = None) -> list[Hook]:
    """Return the hooks in a file. One warning names the events that never come here.

    trusted: the hashes of the files that a person has said yes to; None takes any file.
    """
    digest = sha256(data := path.read_bytes()).hexdigest()
    if trusted is not None and digest not in trusted:
        raise PermissionError(f"{path} runs commands: ask a person, then trust its hash {digest}")
    hooks, never = list[Hook](), list[str]()
    try:
        for event, groups in json.loads(data)["hooks"].items():
            if event not in get_args(HookEvent):
                never.append(event)
                continue
            for group in groups:
                for each in group["hooks"]:
                    program = each["command"]
                    if "args" in each:
                        program = [program, *each["args"]]
                    matcher, timeout = group.get("matcher", ""), each.get("timeout", 10.0)
                    of_tools = event in TOOL_EVENTS
                    run = command(program, matcher if of_tools else "", timeout)
                    hooks.append(Hook(event, run, "" if of_tools else matcher, timeout))
    except Exception as error:
        raise ValueError(f"{path} is broken: {error!r}") from error
    if never:
        logging.warning("%s has hooks at events that never come: %s", path, ", ".join(never))
    return hooks


async def main() -> None:
    print_no = 'print(\'{"decision": "deny", "reason": "Nothing is pushed here."}\')'
    no = {"type": "command", "command": sys.executable, "args": ["-c", print_no]}
    with TemporaryDirectory() as folder:
        path = Path(folder, "settings.json")
        path.write_text(json.dumps({"hooks": {"PreToolUse": [{"matcher": "Push", "hooks": [no]}]}}))
        hooks = load_hooks(path)
    push = tool("Push", name="push")(lambda: "pushed")
    llm = ScriptedModel(call("push"), "I may not.")
    developer = type("Developer", (Hooks, Agent), {})(llm=llm, tools=[push], hooks=hooks)
    await developer.run("Push it.")
    print(*[message.text for message in developer.messages if message.text], sep="\n")


if __name__ == "__main__":
    asyncio.run(main())
