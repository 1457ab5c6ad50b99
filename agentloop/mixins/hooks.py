"""Runs your functions and commands at certain points: before and after tools, prompts, answers.

Copy with: the core.

    class MyAgent(Hooks, Approval, Agent): ...             # to the left of Approval

    def no_pushes(data):
        if "push" in data["tool_input"]["command"]:
            return {"decision": "deny", "reason": "Nothing is pushed on Fridays."}

    agent = MyAgent(
        llm=llm, hooks=[Hook("PreToolUse", no_pushes, "bash"), *load_hooks("hooks.json")]
    )
    await agent.fire_hooks("SessionEnd", {})               # when you are done: nobody else knows

Events have the names that people know from Claude Code, and commands get and print its JSON: see
`Hook`. These are the places of a middleware, here and as a seam (a method that you override):

    | before the agent | SessionStart, UserPromptSubmit | `context`    |
    | after the agent  | Stop, SessionEnd               | `finish`     |
    | before the model | PreModel                       | `call_model` |
    | after the model  | PostModel, PostCompact         | `call_model` |
    | before a tool    | PreToolUse, SubagentStart      | `call_tools`, `call_tool` |
    | after a tool     | PostToolUse, PostToolUseFailure, SubagentStop | `call_tools`, `call_tool` |

The hooks after a tool run when all calls of the turn have their results in the log.

A gate (PreToolUse, UserPromptSubmit) that fails in any way denies. Any other hook that fails stops
nothing. What the hooks of an event said, and why one failed, is a mark in the log, of type "hook".
"""

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

from pydantic import Field, PositiveFloat, TypeAdapter

from ..loop import Loop, Request
from ..messages import AssistantMessage, Message, Result, Stop, Summary, ToolCall, Unknown
from ..tools import call_function, in_thread
from ..transcript import call_states, denied, is_own, newest_run
from ..waiting import within

logger = logging.getLogger("agentloop")

GATES = ("PreToolUse", "UserPromptSubmit")
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
    "Notification",  # from here on: of Claude Code, with no such moment here
    "PreCompact",
    "PermissionRequest",
]


class Hook(NamedTuple):
    """What runs at an event: a function, async or not, or a command.

    A command is a list of arguments, or a line for the shell. It reads JSON, as the dict that a
    function gets: `hook_event_name`, `session_id`, `cwd`, and by event `tool_name`, `tool_input`,
    `tool_use_id`, `tool_response`, `prompt` and more. It prints such a dict, or nothing, as a
    function returns one or None; other text is a failure. Each key is optional, and may be within
    "hookSpecificOutput":

    decision, or permissionDecision: "allow", "ask" or "deny". "block" means "deny", and at Stop
        that the run goes on.
    reason, or permissionDecisionReason: what the model reads of a "deny".
    updatedInput: the arguments to call the tool with.
    additionalContext: what the model is told in any case, from its next request on.
    continue: False is a "deny", too.

    Exit code 2 is a "deny" with the error output as its reason. Other codes are failures. If your
    commands use CLAUDE_PROJECT_DIR, put it into the environment.
    matcher: a tool's name, as in "write|mcp_*"; upper and lower case are the same.
    timeout: in seconds.
    """

    event: HookEvent
    run: Callable[..., Any] | Sequence[str] | str
    matcher: Annotated[str, Field(pattern=r"^[\w*|.-]*$")] = ""
    timeout: PositiveFloat = 10.0


class Hooks(Loop):
    """Runs hooks, one after the other: those that change arguments before those that judge them.

    An "ask" goes to Approval, which stands to the right of this. Without it, it is a no.

    hooks: each made with `Hook(...)`, or by `load_hooks`.
    """

    hooks: Sequence[Hook] = ()

    async def fire_hooks(self, event: HookEvent, data: dict[str, Any]) -> tuple[str, str]:
        """Run the hooks of an event; return the strictest verdict, or "", and its reason.

        They may change `data`.
        """
        session = getattr(self, "session", None)
        data |= {"hook_event_name": event, "session_id": session, "cwd": os.getcwd()}
        strictest = "", ""
        for hook in self.hooks:
            pattern = (hook.matcher or "*").replace(".*", "*").replace("*", ".*")
            named = re.fullmatch(pattern, data.get("tool_name", ""), re.IGNORECASE)
            if hook.event != event or not named:
                continue
            try:
                said = await within(hook.timeout, run_hook(hook, data), grace=0)
                if context := said.get("additionalContext"):
                    self.tell(context)
                data["tool_input"] = said.get("updatedInput", data.get("tool_input"))
                verdict = said.get("permissionDecision", said.get("decision", ""))
                if verdict not in ("", "allow", "ask") or said.get("continue", True) is not True:
                    verdict = "deny"
                reason = str(said.get("permissionDecisionReason", said.get("reason", "")))
            except Exception as error:
                logger.exception("a hook at %s failed", event)
                verdict = "deny" if event in GATES else ""
                reason = f"A hook failed: {error!r:.200}"
            self.record(Unknown({"type": "hook", "event": event, "said": [verdict, reason]}))
            strictest = max(strictest, (verdict, reason))  # "" < "allow" < "ask" < "deny"
        return strictest

    async def context(self) -> list[Message]:
        await super().context()  # which may take in a message that was sent
        own = [record for record in self.log if is_own(record)]
        marks = [record.data for record in self.log if isinstance(record, Unknown)]
        refusals = [mark["refused"] for mark in marks if "refused" in mark]  # one for each prompt
        if not refusals:
            await self.fire_hooks("SessionStart", {"source": "startup"})
        for prompt in own[len(refusals) :]:
            verdict, reason = await self.fire_hooks("UserPromptSubmit", {"prompt": prompt.text})
            refusals.append((reason or "Not allowed.") if verdict == "deny" else "")
            self.record(Unknown({"type": "prompt", "refused": refusals[-1]}))
        if any(refusals[-1:]):
            raise Stop("refused", refusals[-1])
        hidden = [id(prompt) for prompt, no in zip(own, refusals, strict=True) if no]
        return [message for message in await super().context() if id(message) not in hidden]

    async def call_model(self, request: Request) -> AssistantMessage:
        await self.fire_hooks("PreModel", {"purpose": request.purpose})
        before = len(self.log)
        reply = await super().call_model(request)
        for record in self.log[before:]:
            if isinstance(record, Summary):
                await self.fire_hooks("PostCompact", {"compact_summary": record.content})
        await self.fire_hooks("PostModel", {"text": reply.text})
        return reply

    async def call_tools(self, calls: Sequence[ToolCall]) -> Result | None:
        passed: list[ToolCall] = []
        for call in calls:
            verdict, reason = await self.fire_hooks("PreToolUse", data := about(call))
            if verdict == "deny" or (verdict == "ask" and not hasattr(self, "approval_mode")):
                self.add(denied(call, reason))
            else:
                given = json.dumps(data["tool_input"], default=str)
                rules = [[verdict, "*", None, reason]] if verdict else []
                passed.append(replace(call, arguments=given, extra={"rules": rules}))
        result = await super().call_tools(passed)
        for call in passed:
            if done := call_states(self.log)[call.id].result:
                event: HookEvent = "PostToolUseFailure" if done.is_error else "PostToolUse"
                data = about(call) | {"tool_response": done.text}
                verdict, reason = await self.fire_hooks(event, data)
                if verdict == "deny":  # too late, but the model reads why
                    self.tell(reason)
        return result

    async def finish(self, result: Result) -> Result | None:
        answer = await super().finish(result)
        if answer and answer.stop_reason in ("completed", "done"):
            run = newest_run(self.log)
            active = any(getattr(mark, "data", {}).get("event") == "Stop" for mark in run)
            data = {"stop_hook_active": active, "last_assistant_message": answer.text}
            verdict, reason = await self.fire_hooks("Stop", data)
            if verdict == "deny":
                self.nudge(reason or "Go on.")
                return None
        return answer


def about(call: ToolCall) -> dict[str, Any]:
    """What a hook gets to know of a call. Arguments that are no JSON object come as text."""
    given = call.arguments if call.parsed is None else call.parsed
    return {"tool_name": call.name, "tool_input": given, "tool_use_id": call.id}


async def run_hook(hook: Hook, data: dict[str, Any]) -> dict[str, Any]:
    """What a hook says. Raises what a function raises, and OSError or CalledProcessError for a
    command."""
    if callable(hook.run):
        said = await call_function(hook.run, data)
    else:
        done = await in_thread(
            subprocess.run,
            hook.run,
            shell=isinstance(hook.run, str),
            input=json.dumps(data),
            capture_output=True,
            encoding="utf-8",
            timeout=hook.timeout,
        )
        if done.returncode == 2:
            return {"decision": "deny", "reason": done.stderr.strip()}
        done.check_returncode()
        said = json.loads(done.stdout or "null")
    return {} if said is None else {**said, **said.get("hookSpecificOutput", {})}


# ---- settings


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
        hooks = [
            Hook(
                event,
                [each["command"], *each["args"]] if "args" in each else each["command"],
                group.get("matcher", "") if "Tool" in event else "",
                each.get("timeout", 10.0),
            )
            for event, groups in json.loads(data)["hooks"].items()
            for group in groups
            for each in group["hooks"]
        ]
        return TypeAdapter(list[Hook]).validate_python(hooks)
    except Exception as error:
        raise ValueError(f"{path} is broken: {error!r}") from error
