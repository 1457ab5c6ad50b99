"""Hooks from settings files of Claude Code. The user must confirm the files of a project.

Use the loader if you have such hooks: commands that read and print JSON, listed by event. A
settings file runs programs, so if it comes with a project, the user must confirm exactly what's in
it. File format, JSON and exit codes: code.claude.com/docs/en/hooks.
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

from agentloop import Agent, ScriptedModel, call, tool
from agentloop.mixins.hooks import Hook, HookEvent, Hooks, fires_for

VERDICTS = {"allow": 1, "approve": 1, "ask": 2}  # any other word is a denial: 3
MAX_OUTPUT = 100_000  # bytes of output, after which a command is killed
TOOL_EVENTS = ("PreToolUse", "PostToolUse", "PostToolUseFailure")


def command(
    program: str | list[str], matcher: str = "", timeout: float = 10
) -> Callable[[dict[str, Any]], dict[str, Any] | None]:
    """Make a hook of a command that reads the data as JSON and prints a JSON answer.

    program: a list of arguments, or a shell command line.
    matcher: a pattern for the tool's name in Claude Code or in agentloop.

    Exit code 2 is a "deny", and what the command writes to stderr is the reason. After any other
    code but 0, the hook has failed, and a gate that fails denies. If your commands use
    CLAUDE_PROJECT_DIR, set this environment variable.
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
        answer = json.loads(text or "null")
        return None if answer is None else flatten(answer)

    return run


def run_bounded(
    program: str | list[str], data: bytes, timeout: float
) -> subprocess.CompletedProcess[str]:
    """Run a command on `data`; kill the process after `timeout` seconds or MAX_OUTPUT bytes."""
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
    """A tool's name, and what Claude Code calls it: "Bash" for "bash".

    Likewise, it's "WebFetch" for "web_fetch", and "mcp__memory__create" for "memory__create" of an
    MCP server.
    """
    name = data["tool_name"]
    names = [name, name.title().replace("_", "")]
    return [*names, f"mcp__{name}"] if "__" in name else names


def flatten(output: dict[str, Any]) -> dict[str, Any]:
    """Turn the output of a command into the four keys of `Hook`. The strictest verdict counts."""
    flat = dict[str, Any]()
    strictest = 0
    for part in (output, output.get("hookSpecificOutput") or {}):
        words = [part[key] for key in ("decision", "permissionDecision") if part.get(key)]
        if not part.get("continue", True):
            words.append("deny")
        verdict = max((VERDICTS.get(word, 3) for word in words), default=0)
        if verdict > strictest:
            strictest = verdict
            flat["decision"] = ("", "allow", "ask", "deny")[verdict]
            reasons = part.get("permissionDecisionReason"), part.get("reason"), output.get("reason")
            flat["reason"] = next(filter(None, reasons), "")
        for key in ("updatedInput", "additionalContext"):
            if part.get(key) is not None:
                flat[key] = part[key]
    return flat


def load_hooks(path: Path, trusted: Collection[str] | None = None) -> list[Hook]:
    """Load the hooks of a file. A warning names the events that agentloop doesn't support.

    trusted: hashes of the files that the user has confirmed; None accepts any file. Raises
    PermissionError for any other file, and ValueError if it's invalid.
    """
    digest = sha256(data := path.read_bytes()).hexdigest()
    if trusted is not None and digest not in trusted:
        raise PermissionError(
            f"{path} runs commands: have it confirmed, then trust its hash {digest}"
        )
    hooks, unsupported = list[Hook](), list[str]()
    try:
        for event, groups in json.loads(data)["hooks"].items():
            if event not in get_args(HookEvent):
                unsupported.append(event)
                continue
            for group in groups:
                for hook in group["hooks"]:
                    program = hook["command"]
                    if "args" in hook:
                        program = [program, *hook["args"]]
                    matcher, timeout = group.get("matcher", ""), hook.get("timeout", 10.0)
                    of_tools = event in TOOL_EVENTS
                    run = command(program, matcher if of_tools else "", timeout)
                    hooks.append(Hook(event, run, "" if of_tools else matcher, timeout))
    except Exception as error:
        raise ValueError(f"invalid hooks in {path}: {error!r}") from error
    if unsupported:
        logging.warning("%s has hooks for unsupported events: %s", path, ", ".join(unsupported))
    return hooks


async def main() -> None:
    deny = 'print(\'{"decision": "deny", "reason": "Pushing is not allowed."}\')'
    no = {"type": "command", "command": sys.executable, "args": ["-c", deny]}
    with TemporaryDirectory() as folder:
        path = Path(folder, "settings.json")
        path.write_text(json.dumps({"hooks": {"PreToolUse": [{"matcher": "Push", "hooks": [no]}]}}))
        hooks = load_hooks(path)
    push = tool("Push", name="push")(lambda: "pushed")
    llm = ScriptedModel(call("push"), "I am not allowed to push.")
    developer = type("Developer", (Hooks, Agent), {})(llm=llm, tools=[push], hooks=hooks)
    await developer.run("Push it.")
    print(*[message.text for message in developer.messages if message.text], sep="\n")


if __name__ == "__main__":
    asyncio.run(main())
