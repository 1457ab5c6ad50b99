"""Hooks: your functions, which run before and after prompts, model requests and tools.

Copy with: the core, common/decides.py, common/gate.py, common/nested.py, common/nudge.py,
common/records.py, common/review.py, common/subagents.py, common/summary.py.

    class MyAgent(Hooks, Approval, Agent): ...             # in any order

    def no_pushes(data):
        if "push" in data["tool_input"]["command"]:
            return {"decision": "deny", "reason": "Nothing is pushed on Fridays."}

    agent = MyAgent(llm=llm, hooks=[Hook("PreToolUse", no_pushes, "bash")])
    await agent.fire_hooks("SessionEnd", {})               # at the end, which only you know

Events have the names of Claude Code's hooks; PreModel and PostModel are ours. The recipe
claude_code_hooks.py reads Claude Code's settings and runs their commands. Where a middleware
usually sits, as an event, and as a seam (a method to override):

    | before the agent | SessionStart, UserPromptSubmit | `context`    |
    | after the agent  | Stop, SessionEnd               | `finish`     |
    | before the model | PreModel                       | `call_model` |
    | after the model  | PostModel, PostCompact         | `call_model` |
    | before a tool    | PreToolUse, SubagentStart      | `judge` of `Gate` |
    | after a tool     | PostToolUse, PostToolUseFailure, SubagentStop | `call_tools` |

PostToolUse and PostToolUseFailure run once all calls of the turn have results in the log.

If a hook at a gate (PreToolUse, UserPromptSubmit) fails, the call or the prompt is denied. If
another hook fails, the run goes on. A HookVerdict in the log says what the hooks of an event
decided together, or that they failed.
"""

import json
import os
import re
from asyncio import CancelledError
from collections.abc import Sequence, Set
from copy import deepcopy
from operator import attrgetter
from typing import Literal, NamedTuple

from pydantic import BaseModel, PositiveFloat, dataclasses
from pydantic_core import from_json, to_json

from ..common.gate import Gate, Judgment, Verdict
from ..common.nudge import nudge
from ..common.subagents import FiresHooks
from ..common.summary import Summary
from ..content import clip
from ..depends import Function
from ..loop import Loop
from ..messages import (
    JSON,
    AssistantMessage,
    Message,
    Result,
    Stop,
    ToolCall,
    UserMessage,
    frozen,
)
from ..model import Request
from ..transcript import Conversation, Fold, Mark, Record, RunStart, is_from_user
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
# what a matcher is compared with: an event has at most one of these fields
MATCHED = ("tool_name", "agent_type", "source", "reason", "trigger")
MAX_TEXT = 10_000  # characters of a `reason` and of an `additionalContext`
# a matcher that has only these characters is a list of exact names
EXACT_NAMES = re.compile(r"[A-Za-z0-9_ ,|-]*")
VERDICTS = {  # any other decision is a "deny"
    "": Verdict.NONE,
    "allow": Verdict.ALLOW,
    "ask": Verdict.ASK,
}


@dataclasses.dataclass
class Hook:
    """A function, `def` or `async def`, that runs at an event.

    It gets a dict with `hook_event_name`, `session_id`, `cwd`, and, depending on the event,
    `tool_name`, `tool_input`, `tool_use_id`, `tool_response`, `prompt` and others. It returns None,
    or a dict with any of these keys:

    decision: "allow", "ask" or "deny"; "block" and unknown words mean "deny". "deny" denies a call
        (PreToolUse) or a prompt (UserPromptSubmit), and makes the run go on (Stop). After a tool,
        the model reads the reason. At other events, the decision has no effect.
    reason: why. If you deny, the model reads it.
    updatedInput: new arguments for the call, as a dict; None keeps the old ones. The function may
        also change `tool_input` in place.
    additionalContext: text for the model, whatever the decision is.

    matcher: a tool name, a list such as "write|edit" or "write, edit", or a regular expression that
        matches a part of the name: see `fires_for`. "" and "*" match all tools. At other events,
        it's compared with the name of a sub-agent, the source of a session, or another field of
        `MATCHED`.
    timeout: how many seconds the function may take.
    """

    event: HookEvent
    function: Function
    matcher: str = ""
    timeout: PositiveFloat = 10.0


class HookOutput(BaseModel, strict=True, extra="forbid"):
    """What a hook returns."""

    decision: str = ""
    reason: str = ""
    updatedInput: JSON | None = None
    additionalContext: str = ""


class HookResult(NamedTuple):
    """What a hook said. `tool_input` has the arguments for the call."""

    verdict: Verdict
    reason: str = ""
    tool_input: object = None
    context: str = ""


NO_OPINION = HookResult(Verdict.NONE)


@frozen
class HookVerdict(Mark):
    """What the hooks of an event decided together. `verdict` is a Verdict's name in lower case."""

    event: str
    verdict: str
    reason: str = ""

    @property
    def refuses(self) -> bool:
        return self.verdict in ("ask", "broken", "deny")


@frozen
class Withheld(Mark):
    """A gate refused the message at this `index` of the log. No model ever gets it."""

    index: int

    def apply(self, conversation: Conversation) -> None:
        for message in conversation.log[self.index : self.index + 1]:  # none in a damaged session
            conversation.withhold(message)


class Hooks(Gate, FiresHooks):
    """Runs hooks in order. Each gets the arguments as the one before has left them.

    If the arguments change after a hook has judged them, the hook runs again, and its second
    verdict can only be stricter. "ask" means that the call needs approval; if the agent has no
    Approval, and for a prompt, it denies.

    hooks: `Hook(...)` objects.
    """

    hooks: Sequence[Hook] = ()

    async def fire_hooks(
        self, event: HookEvent, data: JSON, reader: Loop | None = None
    ) -> tuple[Verdict, str]:
        """Run the hooks of an event. Returns the strictest verdict, with its reason.

        The hooks may change `data["tool_input"]`. If one fails, its verdict is BROKEN. `reader` is
        the agent whose model reads the `additionalContext`: a sub-agent, if it's about its call.
        """
        session = self.fold(HookHistory).session or None
        data |= {"hook_event_name": event, "session_id": session, "cwd": os.getcwd()}
        hooks = [hook for hook in self.hooks if hook.event == event]
        results = list[HookResult]()
        for hook in hooks:
            result = await run_hook(hook, data)
            results.append(result)
            data["tool_input"] = result.tool_input
            if result.context:
                (reader or self).add_note(result.context)
        for hook, result in zip(hooks, results[:], strict=True):
            if not is_same(result.tool_input, data["tool_input"]):  # it has judged older arguments
                results.append(await run_hook(hook, data))
        verdict, reason, *_ = max(results, key=attrgetter("verdict"), default=NO_OPINION)
        if verdict or event == "UserPromptSubmit":
            self.record(HookVerdict(event, verdict.name.lower(), reason))
        return verdict, reason

    async def context(self) -> list[Message]:
        await super().context()  # may add a queued message
        history = self.fold(HookHistory)
        if history.newest is None:
            await self.fire_hooks("SessionStart", {"source": "startup"})
        for _, prompt in history.waiting:
            await self.fire_hooks("UserPromptSubmit", {"prompt": prompt.text})
        history = self.fold(HookHistory)
        for index in sorted(history.refused):
            self.record(Withheld(index))
        if history.newest and history.newest.refuses:
            raise Stop("refused", history.newest.reason)
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
        return await self._fire_before(judgment)  # a gate after this one has changed the call

    async def _fire_before(self, judgment: Judgment) -> Judgment:
        """Add the verdict of the PreToolUse hooks, and take over the arguments they return."""
        data = data_of(judgment.call)
        before = data["tool_input"]
        judgment = judgment.or_stricter(*await self.fire_hooks("PreToolUse", data, judgment.agent))
        if not is_same(data["tool_input"], before):
            judgment = judgment.with_arguments(data["tool_input"])
        return judgment

    async def call_tools(self, calls: Sequence[ToolCall]) -> Result | None:
        try:
            result = await super().call_tools(calls)
        except Stop:  # for example a question to the user, after the other calls
            await self._fire_after(calls)
            raise
        await self._fire_after(calls)
        return result

    async def _fire_after(self, calls: Sequence[ToolCall]) -> None:
        """Run the hooks after a tool, for every call that wasn't denied."""
        for call in calls:
            judgment = self._judgments.get(call.id)
            message = self.conversation.state_of(call).result
            if judgment is None or message is None or judgment.denies:
                continue
            event: HookEvent = "PostToolUseFailure" if message.is_error else "PostToolUse"
            data = data_of(judgment.call) | {"tool_response": message.text}
            verdict, reason = await self.fire_hooks(event, data)
            if verdict == Verdict.DENY and reason:  # too late to deny the call
                self.add_note(reason)

    async def finish(self, result: Result) -> Result | None:
        answer = await super().finish(result)
        if answer and answer.stop_reason in ("completed", "done"):
            data = {
                "stop_hook_active": self.fold(HookHistory).stop,
                "last_assistant_message": answer.text,
            }
            verdict, reason = await self.fire_hooks("Stop", data)
            if verdict == Verdict.DENY:
                nudge(self, reason or "Continue.")
                return None
        return answer


class HookHistory(Fold):
    """What hooks have said about the user's prompts, and about the newest run's answer.

    waiting: the prompts that no hook has judged yet, with their indices in the log.
    refused: the indices of prompts that were refused, but have no Withheld entry yet.
    newest: the verdict on the last prompt that was judged.
    stop: whether a Stop hook has given a verdict in the newest run.
    session: the name of the newest run's session.
    """

    waiting: tuple[tuple[int, UserMessage], ...] = ()
    refused: Set[int] = frozenset[int]()
    newest: HookVerdict | None = None
    stop = False
    session = ""

    def take(self, at: int, record: Record | Message) -> None:
        match record:
            case UserMessage() if is_from_user(record):
                self.waiting += ((at, record),)
            case RunStart():
                self.stop = False
                self.session = record.session
            case HookVerdict(event="Stop"):
                self.stop = True
            case HookVerdict(event="UserPromptSubmit"):
                judged, self.waiting = self.waiting[:1], self.waiting[1:]
                self.newest = record
                if record.refuses:
                    self.refused |= {index for index, _ in judged}
            case Withheld():
                self.refused -= {record.index}
            case _:
                pass


def data_of(call: ToolCall) -> JSON:
    """What a hook reads about a call. Arguments that aren't a JSON object stay text."""
    arguments = call.arguments if call.parsed is None else call.parsed
    return {"tool_name": call.name, "tool_input": arguments, "tool_use_id": call.id}


def fires_for(matcher: str, name: str) -> bool:
    """Whether a matcher matches a name, by the rules of Claude Code.

    "" and "*" match all names. If the matcher has only letters, digits, _, -, spaces, commas and |,
    it's a list of exact names, separated by | or commas. If not, it's a regular expression that
    matches a part of the name. Upper and lower case matter. See code.claude.com/docs/en/hooks,
    "Matcher patterns".
    """
    if matcher in ("", "*"):
        return True
    if EXACT_NAMES.fullmatch(matcher):
        return name in re.split(" *[,|] *", matcher.strip())
    return re.search(matcher, name) is not None


# ---- one hook


async def run_hook(hook: Hook, data: JSON) -> HookResult:
    """Run a hook if its matcher matches. If it fails or takes too long, its verdict is BROKEN."""
    before = data.get("tool_input")
    own = deepcopy(data)  # a change in place counts as updatedInput
    try:
        output = None
        if is_matched(hook, data):
            output = await wait_for(call_function(hook.function, own), hook.timeout, grace=0)
        changed: object = own.get("tool_input")
        if changed is None:  # removed by the function
            changed = before
        if changed != before and changed.__class__ is not dict:
            raise TypeError(f"tool_input must be a dict, not {changed!r:.80}")
        return read_output(output, changed)
    except (Exception, CancelledError) as error:
        if was_cancelled(error):
            raise
        logger.exception("a hook at %s failed", hook.event)
        return HookResult(Verdict.BROKEN, f"A hook failed: {error!r:.200}", before)


def is_matched(hook: Hook, data: JSON) -> bool:
    names = [data[key] for key in MATCHED if key in data]
    return not names or fires_for(hook.matcher, names[0])


def read_output(value: object, tool_input: object) -> HookResult:
    """Read what a hook returned.

    Raises ValueError if `Hook` doesn't allow the value, or if JSON can't hold the arguments.
    """
    output = HookOutput.model_validate({} if value is None else value)
    if output.updatedInput is not None:
        tool_input = output.updatedInput
    tool_input = from_json(to_json(tool_input), allow_inf_nan=False)
    verdict = VERDICTS.get(output.decision, Verdict.DENY)
    context = clip(output.additionalContext, MAX_TEXT)
    return HookResult(verdict, clip(output.reason, MAX_TEXT), tool_input, context)


def is_same(one: object, other: object) -> bool:
    """Whether two values are the same JSON. In Python, 1 equals True and 1.0."""
    return json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)
