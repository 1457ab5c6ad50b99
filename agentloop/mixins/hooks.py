"""Runs your functions and commands at certain points: before and after tools, prompts, answers.

Copy with: the core.

    class MyAgent(Hooks, Approval, Agent): ...             # to the left of Approval

    def no_pushes(data):
        if "push" in data["tool_input"]["command"]:
            return {"decision": "deny", "reason": "Nothing is pushed on Fridays."}

    MyAgent(llm=..., hooks=[Hook("PreToolUse", no_pushes, "bash"), *load_hooks("hooks.json")])

Events have the names that people know from Claude Code, and commands get and print its JSON: see
`Hook`. These are the places of a middleware, here and as a seam (a method that you override):

    | before the agent | SessionStart, UserPromptSubmit | `context`    |
    | after the agent  | Stop, SessionEnd               | `finish`     |
    | before the model | PreModel                       | `call_model` |
    | after the model  | PostModel, PostCompact         | `call_model` |
    | before a tool    | PreToolUse, SubagentStart      | `call_tools`, `call_tool` |
    | after a tool     | PostToolUse, PostToolUseFailure, SubagentStop | `call_tool` |

A gate (PreToolUse, UserPromptSubmit) that fails in any way denies. Any other hook that
fails stops nothing. A verdict and a failure are each a mark in the log, of the type "hook".
"""

from __future__ import annotations

import json
import logging
import os
import re
import subprocess
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import BaseModel, Field, PositiveFloat

from ..loop import Loop, Request
from ..messages import (
    AssistantMessage,
    Message,
    Result,
    Stop,
    Summary,
    ToolCall,
    ToolMessage,
    Unknown,
)
from ..tools import call_function, in_thread
from ..transcript import denied, is_own, newest_run
from ..waiting import within

logger = logging.getLogger("agentloop")

GATES = ("PreToolUse", "UserPromptSubmit")
VERDICTS = {None: "", "allow": "allow", "approve": "allow", "ask": "ask"}  # anything else denies
HookEvent = Literal[
    "SessionStart",
    "SessionEnd",
    "UserPromptSubmit",
    "PreModel",
    "PostModel",
    "PreToolUse",
    "PostToolUse",
    "PostToolUseFailure",
    "Stop",
    "SubagentStart",
    "SubagentStop",
    "PostCompact",
]
# Of Claude Code, with no such moment here: they are ignored. Any other name is a mistake.
Other = Literal["Notification", "PreCompact", "PermissionRequest", "PermissionDenied", "Setup"]
Matcher = Annotated[str, Field(pattern=r"^[\w*|.-]*$")]


class Hook(NamedTuple):
    """What runs at an event: a function, async or not, or a command.

    A command is a list of arguments, or a line for the shell. It reads JSON, as the dict that a
    function gets: `hook_event_name`, `session_id`, `cwd`, and by event `tool_name`, `tool_input`,
    `tool_use_id`, `tool_response`, `prompt` and more. It prints such a dict, or nothing, as a
    function returns one or None. Each key is optional, and may be within "hookSpecificOutput":

    decision, or permissionDecision: "allow", "ask" or "deny". "block" means "deny", and at Stop
        that the run goes on.
    reason, or permissionDecisionReason: what the model reads of a "deny".
    updatedInput: the arguments to call the tool with.
    additionalContext: what the model is told in any case, from its next request on.

    Exit code 2 is a "deny" with the error output as its reason. Other codes are failures.
    matcher: a tool's name, as in "write|mcp_*"; upper and lower case are the same.
    timeout: in seconds.
    """

    event: HookEvent
    run: Callable[..., Any] | Sequence[str] | str
    matcher: Matcher = ""
    timeout: PositiveFloat = 10.0


class Hooks(Loop):
    """Runs hooks, one after the other: those that change arguments before those that judge them.

    An "ask" goes to Approval, which stands to the right of this. Without it, it is a no.

    hooks: each made with `Hook(...)`, or by `load_hooks`.
    """

    hooks: Sequence[Hook] = ()

    async def fire_hooks(self, event: HookEvent, data: dict[str, Any]) -> tuple[str, str]:
        """Run the hooks of an event; return the strictest verdict, or "", and its reason.

        They may change `data`. SessionEnd is yours to fire.
        """
        session = getattr(self, "session", None)
        data |= {"hook_event_name": event, "cwd": os.getcwd(), "session_id": session}
        strictest = "", ""
        for hook in self.hooks:
            if hook.event != event or not is_meant(hook.matcher, data.get("tool_name")):
                continue
            try:
                said = read(await within(hook.timeout, run_hook(hook, data), grace=0))
                if "additionalContext" in said:
                    self.tell(said["additionalContext"])
                data["tool_input"] = said.get("updatedInput", data.get("tool_input"))
                judged = said["verdict"], str(said["reason"])
            except Exception as error:
                logger.exception("a hook at %s failed", event)
                judged = "deny" if event in GATES else "", f"A hook failed: {error!r:.200}"
            if any(judged):
                self.record(Unknown({"type": "hook", "event": event, "said": judged}))
            strictest = max(strictest, judged)  # allow < ask < deny
        return strictest

    async def context(self) -> list[Message]:
        messages = await super().context()  # which may take in a message that was sent
        own = [record.text for record in self.log if is_own(record)]
        marks = [r.data for r in self.log if isinstance(r, Unknown)]
        checks = [mark["refused"] for mark in marks if "refused" in mark]
        if not checks:
            await self.fire_hooks("SessionStart", {})
        new = own[len(checks) :]
        for prompt in new:
            verdict, reason = await self.fire_hooks("UserPromptSubmit", {"prompt": prompt})
            checks.append(reason if verdict == "deny" else None)
            self.record(Unknown({"type": "prompt", "refused": checks[-1]}))
        if checks and checks[-1] is not None:
            raise Stop("refused", checks[-1])
        refused = dict(zip(own, checks, strict=True))
        if new:  # a hook may have added context
            messages = await super().context()
        return [m for m in messages if not is_own(m) or refused.get(m.text) is None]

    async def call_model(self, request: Request) -> AssistantMessage:
        await self.fire_hooks("PreModel", {"purpose": request.purpose})
        reply = await super().call_model(request)
        known = (r for r in reversed(self.log) if isinstance(r, Summary | AssistantMessage))
        if isinstance(newest := next(known, None), Summary):
            await self.fire_hooks("PostCompact", {"compact_summary": newest.content})
        await self.fire_hooks("PostModel", {"text": reply.text})
        return reply

    async def call_tools(self, calls: Sequence[ToolCall]) -> Result | None:
        judged: list[ToolCall] = []
        for call in calls:
            verdict, reason = await self.fire_hooks("PreToolUse", data := about(call))
            if data["tool_input"] != about(call)["tool_input"]:
                call = replace(call, arguments=json.dumps(data["tool_input"], default=str))
            if verdict:
                rules = [[verdict, "*", None, reason]]
                call = replace(call, extra={**(call.extra or {}), "rules": rules})
            judged.append(call)
        return await super().call_tools(judged)

    async def call_tool(self, call: ToolCall) -> ToolMessage:
        for verdict, *_, reason in (call.extra or {}).get("rules", ()):
            if verdict == "deny" or (verdict == "ask" and not hasattr(self, "approval_mode")):
                return denied(call, reason)
        result = await super().call_tool(call)
        event: HookEvent = "PostToolUseFailure" if result.is_error else "PostToolUse"
        verdict, reason = await self.fire_hooks(
            event, {**about(call), "tool_response": result.text}
        )
        if verdict == "deny":  # too late, but the model reads why
            self.tell(reason)
        return result

    async def finish(self, result: Result) -> Result | None:
        answer = await super().finish(result)
        if answer is None or answer.stop_reason not in ("completed", "done"):
            return answer
        active = any(
            isinstance(r, Unknown) and r.data.get("event") == "Stop" for r in newest_run(self.log)
        )
        data = {"stop_hook_active": active, "last_assistant_message": answer.text}
        verdict, reason = await self.fire_hooks("Stop", data)
        if verdict != "deny":
            return answer
        self.nudge(reason or "Go on.")
        return None


def about(call: ToolCall) -> dict[str, Any]:
    """What a hook gets to know of a call. Arguments that are no JSON object come as text."""
    given = call.arguments if call.parsed is None else call.parsed
    return {"tool_name": call.name, "tool_input": given, "tool_use_id": call.id}


def is_meant(matcher: str, name: str | None) -> bool:
    """True if a matcher is about a tool, or there is no tool."""
    pattern = (matcher or "*").replace(".*", "*").replace("*", ".*")
    return name is None or bool(re.fullmatch(pattern, name, re.IGNORECASE))


async def run_hook(hook: Hook, data: dict[str, Any]) -> Any:
    """What a hook returns or prints. Raises what a function raises, and OSError or
    CalledProcessError for a command."""
    if callable(hook.run):
        return await call_function(hook.run, data)
    done = await in_thread(
        subprocess.run,
        hook.run,
        shell=isinstance(hook.run, str),
        input=json.dumps(data, default=str),
        capture_output=True,
        encoding="utf-8",
        timeout=hook.timeout,
        env={**os.environ, "CLAUDE_PROJECT_DIR": data["cwd"]},
    )
    if done.returncode == 2:
        return {"decision": "deny", "reason": done.stderr.strip()}
    done.check_returncode()
    said = done.stdout.strip()
    if said[:1] != "{" and hook.event in ("SessionStart", "UserPromptSubmit"):
        return {"additionalContext": said}  # as Claude Code takes it
    return json.loads(said or "{}")


def read(answer: Any) -> dict[str, Any]:
    """What a hook said, with a verdict and a reason. Raises TypeError if it is no dict."""
    said: dict[str, Any] = {"reason": "", **({} if answer is None else answer)}
    said |= said.get("hookSpecificOutput", {})
    word = said.get("permissionDecision", said.get("decision"))
    said["verdict"] = "deny" if said.get("continue") is False else VERDICTS.get(word, "deny")
    said["reason"] = said.get("permissionDecisionReason", said["reason"])
    return said


# ---- settings


class Command(BaseModel):
    type: Literal["command"]
    command: str | list[str]
    timeout: PositiveFloat = 10.0


class Group(BaseModel):
    matcher: Matcher = ""
    hooks: list[Command]


class HooksFile(BaseModel):
    hooks: dict[HookEvent | Other, list[Group]]


def load_hooks(path: str | Path, trusted: Collection[str] | None = None) -> list[Hook]:
    """The hooks in a JSON file, such as Claude Code's settings.json.

    trusted: for a file that came with a project, whose commands are somebody else's: the hashes of
        the files that a person has said yes to. They cover no scripts that a command runs.

    Raises PermissionError, with the hash, if it is none of these, and ValueError if the file is
    broken.
    """
    data = Path(path).read_bytes()
    digest = sha256(data).hexdigest()
    if trusted is not None and digest not in trusted:
        raise PermissionError(f"{path} runs commands: ask a person, then trust its hash {digest}")
    try:
        events: dict[Any, list[Group]] = HooksFile.model_validate_json(data).hooks
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None
    return [
        Hook(event, each.command, group.matcher, each.timeout)
        for event, groups in events.items()
        for group in groups
        for each in group.hooks
    ]
