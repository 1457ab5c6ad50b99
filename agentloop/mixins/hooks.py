"""Runs your functions at certain points: before and after tools, prompts, answers.

Copy with: the core, common/gate.py, common/subagents.py.

    class MyAgent(Hooks, Approval, Agent): ...             # in any order

    def no_pushes(data):
        if "push" in data["tool_input"]["command"]:
            return {"decision": "deny", "reason": "Nothing is pushed on Fridays."}

    agent = MyAgent(llm=llm, hooks=[Hook("PreToolUse", no_pushes, "bash")])
    await agent.fire_hooks("SessionEnd", {})               # when you are done: nobody else knows

Events have the names that people know from Claude Code; PreModel and PostModel are added here. A
recipe, claude_code_hooks.py, reads its settings and runs the commands in them. These are the places
of a middleware, here and as a seam (a method that you override):

    | before the agent | SessionStart, UserPromptSubmit | `context`    |
    | after the agent  | Stop, SessionEnd               | `finish`     |
    | before the model | PreModel                       | `call_model` |
    | after the model  | PostModel, PostCompact         | `call_model` |
    | before a tool    | PreToolUse, SubagentStart      | `judge` of `Gate` |
    | after a tool     | PostToolUse, PostToolUseFailure, SubagentStop | `call_tools` |

PostToolUse and PostToolUseFailure run when all calls of the turn have their results in the log.

A gate (PreToolUse, UserPromptSubmit) that fails in any way denies. Any other hook that fails stops
nothing. What the hooks of an event decided, or why one failed, is a mark in the log: HookVerdict.
"""

import json
import os
import re
from asyncio import CancelledError
from collections.abc import Sequence
from copy import deepcopy
from operator import attrgetter
from typing import Literal, NamedTuple

from pydantic import BaseModel, PositiveFloat, dataclasses
from pydantic_core import from_json, to_json

from ..common.gate import Gate, Judgment, Verdict
from ..common.subagents import FiresHooks
from ..content import clip
from ..depends import Function
from ..loop import Request
from ..messages import (
    JSON,
    AssistantMessage,
    Mark,
    Message,
    Record,
    Result,
    RunStart,
    Stop,
    Summary,
    ToolCall,
    UserMessage,
    Withheld,
    frozen,
)
from ..transcript import Fold, is_own
from ..waiting import call_function, logger, wait_for, was_cancelled

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
# What a matcher is compared with: an event has one of these fields, or none.
MATCHED = ("tool_name", "agent_type", "source", "reason", "trigger")
MAX_TEXT = 10_000  # characters of a `reason` and of an `additionalContext`
# A matcher of these characters is a list of exact names.
EXACT_NAMES = re.compile(r"[A-Za-z0-9_ ,|-]*")
VERDICTS = {  # any other word is a "deny"
    "": Verdict.NONE,
    "allow": Verdict.ALLOW,
    "ask": Verdict.ASK,
}


@dataclasses.dataclass
class Hook:
    """A function that runs at an event, async or not.

    It gets a dict: `hook_event_name`, `session_id`, `cwd`, and by event `tool_name`, `tool_input`,
    `tool_use_id`, `tool_response`, `prompt` and more. It returns None, or a dict of these keys,
    each of them optional:

    decision: "allow", "ask" or "deny". "block" means "deny", and at Stop that the run goes on.
    reason: what the model reads of a "deny".
    updatedInput: the arguments to call the tool with, an object. None changes nothing. The function
        may change `tool_input` in place as well.
    additionalContext: what the model is told in any case, from its next request on.

    matcher: a tool's name, a list as in "write|edit" or "write, edit", or a regular expression for
        a part of the name: see `fires_for`. "" and "*" are all tools. Other events compare it with
        the name of a sub-agent, the source of a session, or what else `MATCHED` lists.
    timeout: in seconds.
    """

    event: HookEvent
    function: Function
    matcher: str = ""
    timeout: PositiveFloat = 10.0


class Said(BaseModel, strict=True, extra="forbid"):
    """What a hook returns."""

    decision: str = ""
    reason: str = ""
    updatedInput: JSON | None = None
    additionalContext: str = ""


class Answer(NamedTuple):
    """What a hook says, as we read it. `tool_input`: the arguments to call the tool with."""

    verdict: Verdict
    reason: str = ""
    tool_input: object = None
    context: str = ""


NOTHING = Answer(Verdict.NONE)


@frozen
class HookVerdict(Mark):
    """What the hooks of an event said together. `verdict`: the name of a Verdict in lower case."""

    event: str
    verdict: str
    reason: str = ""

    @property
    def refuses(self) -> bool:
        """Return whether this is a no."""
        return self.verdict in ("ask", "broken", "deny")


class Hooks(Gate, FiresHooks):
    """Runs hooks, one after the other, each with the arguments that the one before has made.

    A hook that judged other arguments than those that will run is asked again. The second answer
    can only make the verdict stricter. An "ask" about a call goes to Approval; without that mixin,
    and about a prompt, it is a no.

    hooks: each made with `Hook(...)`.
    """

    hooks: Sequence[Hook] = ()

    async def fire_hooks(self, event: HookEvent, data: JSON) -> tuple[Verdict, str]:
        """Run the hooks of an event; return the strictest verdict and its reason.

        The hooks may change `data["tool_input"]`. The verdict of a hook that failed is BROKEN.
        """
        session = self.fold(Judged).session or None
        data |= {"hook_event_name": event, "session_id": session, "cwd": os.getcwd()}
        hooks = [hook for hook in self.hooks if hook.event == event]
        answers = list[Answer]()
        for hook in hooks:
            answer = await ask_hook(hook, data)
            answers.append(answer)
            data["tool_input"] = answer.tool_input
            if answer.context:
                self.add_note(answer.context)
        for hook, answer in zip(hooks, answers[:], strict=True):
            if not is_same(answer.tool_input, data["tool_input"]):  # it judged other arguments
                answers.append(await ask_hook(hook, data))
        verdict, reason, *_ = max(answers, key=attrgetter("verdict"), default=NOTHING)
        mark = HookVerdict(event, verdict.name.lower(), reason)
        if event == "UserPromptSubmit":
            if mark.refuses:  # first, so that a kill between the two entries reveals nothing
                index, _ = self.fold(Judged).waiting[0]
                self.record(Withheld(index))
            self.record(mark)
        elif verdict:
            self.record(mark)
        return verdict, reason

    async def context(self) -> list[Message]:
        await super().context()  # which may take in a message that was sent
        judged = self.fold(Judged)
        if judged.newest is None:
            await self.fire_hooks("SessionStart", {"source": "startup"})
        for _, prompt in judged.waiting:
            await self.fire_hooks("UserPromptSubmit", {"prompt": prompt.text})
        judged = self.fold(Judged)
        if judged.newest and judged.newest.refuses:
            raise Stop("refused", judged.newest.reason)
        return await super().context()

    async def call_model(self, request: Request) -> AssistantMessage:
        await self.fire_hooks("PreModel", {"purpose": request.purpose})
        before = len(self.log)
        reply = await super().call_model(request)
        for record in self.log[before:]:
            if isinstance(record, Summary):
                data = {"trigger": "auto", "compact_summary": record.content}
                await self.fire_hooks("PostCompact", data)
        await self.fire_hooks("PostModel", {"text": reply.text})
        return reply

    async def judge(self, judgment: Judgment) -> Judgment:
        judged = await self._fire_before(judgment)
        judgment = await super().judge(judged)
        if judgment.call == judged.call:
            return judgment
        return await self._fire_before(judgment)  # a gate after this one changed the call

    async def _fire_before(self, judgment: Judgment) -> Judgment:
        """Return the judgment with the verdict of the PreToolUse hooks and their arguments."""
        data = about(judgment.call)
        before = data["tool_input"]
        judgment = judgment.or_stricter(*await self.fire_hooks("PreToolUse", data))
        if not is_same(data["tool_input"], before):
            judgment = judgment.with_arguments(data["tool_input"])
        return judgment

    async def call_tools(self, calls: Sequence[ToolCall]) -> Result | None:
        try:
            result = await super().call_tools(calls)
        except Stop:  # such as a question to the user; the other calls have run
            await self._fire_after(calls)
            raise
        await self._fire_after(calls)
        return result

    async def _fire_after(self, calls: Sequence[ToolCall]) -> None:
        """Run the hooks that come after a tool, for each of these calls that has run."""
        for call in calls:
            judgment = self._judgments.get(call.id)
            done = self.conversation.states[call.id].result
            if judgment is None or done is None or judgment.denies:
                continue
            event: HookEvent = "PostToolUseFailure" if done.is_error else "PostToolUse"
            data = about(judgment.call) | {"tool_response": done.text}
            verdict, reason = await self.fire_hooks(event, data)
            if verdict == Verdict.DENY and reason:  # too late, but the model reads why
                self.add_note(reason)

    async def finish(self, result: Result) -> Result | None:
        answer = await super().finish(result)
        if answer and answer.stop_reason in ("completed", "done"):
            data = {
                "stop_hook_active": self.fold(Judged).stop,
                "last_assistant_message": answer.text,
            }
            verdict, reason = await self.fire_hooks("Stop", data)
            if verdict == Verdict.DENY:
                self.nudge(reason or "Go on.")
                return None
        return answer


class Judged(Fold):
    """What hooks have said of the user's prompts, in their order, and of the newest run's answer.

    waiting: the prompts that the hooks have not judged yet, each with its index in the log.
    newest: what the hooks said of the newest prompt that they were asked about.
    stop: True if a hook at Stop gave a verdict in the newest run.
    session: the name of the newest run's session.
    """

    waiting: tuple[tuple[int, UserMessage], ...] = ()
    newest: HookVerdict | None = None
    stop = False
    session = ""

    def take(self, at: int, record: Record | Message) -> None:
        if is_own(record):
            self.waiting += ((at, record),)
        elif isinstance(record, RunStart):
            self.stop = False
            self.session = record.session
        elif isinstance(record, HookVerdict) and record.event == "Stop":
            self.stop = True
        elif isinstance(record, HookVerdict) and record.event == "UserPromptSubmit":
            self.waiting = self.waiting[1:]
            self.newest = record


def about(call: ToolCall) -> JSON:
    """Return what a hook gets to know of a call. Arguments that are no JSON object come as text."""
    given = call.arguments if call.parsed is None else call.parsed
    return {"tool_name": call.name, "tool_input": given, "tool_use_id": call.id}


def fires_for(matcher: str, name: str) -> bool:
    """Return True if a matcher is about this name, by the rules of Claude Code.

    "" and "*" are about all names. Letters, digits, _, -, spaces, commas and | are exact names,
    with | or a comma between them. Anything else is a regular expression for a part of the name.
    Upper and lower case differ. See code.claude.com/docs/en/hooks, "Matcher patterns".
    """
    if matcher in ("", "*"):
        return True
    if EXACT_NAMES.fullmatch(matcher):
        return name in re.split(" *[,|] *", matcher.strip())
    return re.search(matcher, name) is not None


# ---- one hook


async def ask_hook(hook: Hook, data: JSON) -> Answer:
    """Return what a hook says if its matcher is about this; BROKEN if it fails or is too slow."""
    given = data.get("tool_input")
    own = deepcopy(data)  # a function may change it in place, which counts as updatedInput
    try:
        said = None
        if is_about(hook, data):
            said = await wait_for(hook.timeout, call_function(hook.function, own), grace=0)
        changed: object = own.get("tool_input")
        if changed is None:  # the function took it out
            changed = given
        if changed != given and changed.__class__ is not dict:
            raise TypeError("tool_input has to be a dict")
        return read_answer(said, changed)
    except (Exception, CancelledError) as error:
        if was_cancelled(error):
            raise
        logger.exception("a hook at %s failed", hook.event)
        return Answer(Verdict.BROKEN, f"A hook failed: {error!r:.200}", given)


def is_about(hook: Hook, data: JSON) -> bool:
    """Return True if a hook's matcher is about what has happened."""
    names = [data[key] for key in MATCHED if key in data]
    return not names or fires_for(hook.matcher, names[0])


def read_answer(said: object, tool_input: object) -> Answer:
    """Read what a hook says.

    Raises ValueError if it is not of the form that `Hook` describes, or if the arguments are no
    JSON.
    """
    answer = Said.model_validate({} if said is None else said)
    if answer.updatedInput is not None:
        tool_input = answer.updatedInput
    tool_input = from_json(to_json(tool_input), allow_inf_nan=False)
    verdict = VERDICTS.get(answer.decision, Verdict.DENY)
    context = clip(answer.additionalContext, MAX_TEXT)
    return Answer(verdict, clip(answer.reason, MAX_TEXT), tool_input, context)


def is_same(one: object, other: object) -> bool:
    """Return True if two values are the same JSON: Python's == takes 1 for True and for 1.0."""
    return json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)
