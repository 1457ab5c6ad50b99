"""Approval of tool calls: by rule, by mode, or by a person.

Copy with: the core, common/decides.py, common/gate.py, common/nested.py, common/records.py,
common/review.py, common/subagents.py.

    class MyAgent(Approval, Session, Agent):
        approval_rules = [Rule("allow", "bash", {"command": "git status*"}), Rule("deny", "drop_*")]

    result = await agent.run("Pay 5.")                   # "needs_approval", result.pending
    agent.decide(result.pending[0].id, "deny", note="Not today.")
    result = await agent.run()                           # also in another process, with a session

Every call of a turn is judged, and every approval request answered, before any call of the turn
runs. If nothing allows a call, it doesn't run, and the model reads why. `agent.pending` lists the
calls that await a decision, those of sub-agents included, and survives a restart. A new prompt
cancels them, unless you set `defer_approval`. Requests and decisions are log entries. A decision
counts once, for one call with its name and arguments.

A reviewer may also change the arguments, or answer in place of the tool: see `decide`. A tool may
ask itself: see `NeedsApproval`. The rules also judge the calls of the agent's sub-agents; the
sub-agents' own rules come first, and the strictest verdict applies.
"""

import inspect
import re
from asyncio import CancelledError
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, field, fields, is_dataclass, replace
from fnmatch import fnmatchcase
from glob import escape
from typing import Any, Literal, NamedTuple

from pydantic import BaseModel, PositiveFloat
from pydantic_core import from_json, to_json, to_jsonable_python

from ..common.gate import FAILED, Gate, Judgment, Verdict
from ..common.review import (
    Ask,
    Decision,
    Review,
    asked,
    awaits_start,
    decision_of,
    is_approved,
)
from ..common.subagents import RunsBelow, tools_below
from ..errors import ToolError
from ..loop import Loop
from ..messages import (
    JSON,
    AssistantMessage,
    Result,
    Stop,
    TextPart,
    ToolCall,
    UserMessage,
    frozen,
)
from ..model import Request
from ..tools import FunctionTool, Tool, by_name, find_tool
from ..transcript import (
    CallEntry,
    CallState,
    Fold,
    Fork,
    Mark,
    Records,
    calls_to_resume,
    placeholder_result,
    record_of,
    with_inner,
)
from ..waiting import call_function, logger, wait_for, was_cancelled

# What "*" may match in an "allow" rule: no shell metacharacters, which could start a second
# command, and no ".." in a path
PLAIN = re.compile(r"(?!.*(?<![\w.])\.\.(?![\w.]))[\w ./,:=@+~'\"-]*")


DEFERRED = (
    "Not run: this call awaits approval. The outcome will be in a later message. Do not repeat it."
)
OUTCOME = "The outcome of a call that awaited approval:"


class Rule(NamedTuple):
    """A verdict for calls of the tools whose names match the glob `tool`.

    arguments: for which calls: globs by the name of the argument, or a predicate that gets all
        arguments; None is for every call. The arguments are those that the tool gets, with
        defaults, as plain data (see `plain_arguments`). An argument that the call doesn't have is
        "", which "*" matches. A `default_factory` is called once for the rules and once for the
        tool, so the two may see different values.
        "deny" and "ask" match as much as possible: a glob matches a list or an object if it
        matches any key or value inside, either as the model wrote it or as the tool gets it.
        "allow" matches as little as possible: a glob must match each item of a list, never matches
        an object, and "*" stands only for letters, digits, spaces and _./,:=@+~'"- but not for a
        ".." segment, so "git *" doesn't match "git log; rm x".
        If an argument is a path, "deny" and "ask" globs also match the names of the file that it
        leads to, whatever their case: see `Tool.file_names`.
    reason: what the model reads.

    A "deny" or "ask" rule that can never match is reported in the first turn: see `check_rules`.

    A glob must match the whole text: "rm *" doesn't match `ls; rm x`, but "*rm *" does.

    Rules aren't a sandbox: an allowed command can do whatever its options permit. "*.env" matches
    `cat .env`, but not `grep -r key .`, which reads the file as well.
    """

    verdict: Literal["allow", "ask", "deny"]
    tool: str = "*"
    arguments: Mapping[str, str] | Callable[..., bool] | None = None
    reason: str = ""


MODES = {
    "auto": (Verdict.ALLOW, ""),
    "ask": (Verdict.ASK, "It may have side effects."),
    "readonly": (Verdict.DENY, "This agent may only read."),
    "plan": (Verdict.DENY, "Until a plan is approved you may only read: answer with it."),
}


@frozen
class AlwaysAllow(Mark):
    """A tool is approved from now on, until its definition changes: see `allow_always`."""

    tool: JSON = field(hash=False)
    arguments: Mapping[str, str] | None = field(default=None, hash=False)


@frozen
class PlanApproved(Mark):
    """The plan of this conversation was approved."""


@frozen
class Deferred(CallEntry):
    """A call awaits approval while the conversation continues: see `Approval.deferred`."""

    def apply_to(self, state: CallState) -> None:
        state.defers = not state.deferred


class Deferrals(Fold):
    """The ids of deferred calls, until the log has a note with their outcome."""

    def __init__(self, log: Records) -> None:
        super().__init__(log)
        self.ids = set[str]()

    def take(self, at: int, record: object) -> None:
        if isinstance(record, Deferred):
            self.ids.add(record.call_id)
        elif isinstance(record, UserMessage):
            self.ids.discard(record.sent_id)
        elif isinstance(record, Fork):  # the calls belong to the original agent
            self.ids.clear()


def undecided(*states: CallState) -> list[CallState]:
    """The calls that await a decision: these, or those inside them at any depth."""
    calls = with_inner(states)
    return [each for each in calls if isinstance(each.awaits, Ask) and not each.result]


class Consent(Fold):
    """What is approved from now on: tools, and the plan."""

    always: tuple[AlwaysAllow, ...] = ()
    has_plan = False

    def take(self, at: int, record: object) -> None:
        if isinstance(record, AlwaysAllow):
            self.always += (record,)
        elif isinstance(record, PlanApproved):
            self.has_plan = True

    def allows(self, tool: Tool, arguments: JSON) -> bool:
        """Whether calls with these arguments are always allowed."""
        definition = definition_of(tool)
        for mark in self.always:
            is_same_tool = mark.tool.items() <= definition.items()  # older marks lack options
            rule = Rule("allow", arguments=mark.arguments)
            if is_same_tool and matches(rule, tool.name, arguments, {}):
                return True
        return False


def definition_of(tool: Tool) -> JSON:
    """The fields of a tool, as a session holds them."""
    text = to_json(asdict(tool), inf_nan_mode="strings", serialize_unknown=True)
    definition: JSON = from_json(text)
    return definition


class Approval(Gate):
    """Runs only the calls that a rule, the mode or a person allows.

    approval_mode: what happens to a call that no rule matches. Read-only tools always run. The
        others run ("auto"), need approval ("ask"), are denied ("readonly"), or are denied until
        `approve_plan()` and need approval from then on ("plan"). It's also for the calls of
        sub-agents that have no `Approval` of their own.
    approval_rules: "deny" goes before "ask", and "ask" before "allow". If a rule fails (its
        predicate raises or doesn't return a bool, or an argument isn't plain data), a "deny" or
        "ask" rule matches, and an "allow" rule doesn't.
    approval_callback: a function, `def` or `async def`, that gets the call and the reason why it
        needs approval. Return True to allow the call, a string to deny it and tell the model why,
        or a `Review` with other arguments or with a result; anything else denies the call. If you
        set no callback, the run ends with "needs_approval". Sub-agents and tools that make calls
        may ask at the same time: a callback that asks in a terminal needs a lock. If a sub-agent
        has a callback, its decision counts for "ask" rules above it, too: set callbacks on the root
        agent only, unless you trust the sub-agent's.
    approval_timeout: how many seconds the callback may take before the call is denied. If the call
        is a sub-agent's or a nested one, the timeout of the call around it includes that time.
    defer_approval: whether the conversation goes on while a call, or one inside it (a nested call
        or a sub-agent's), awaits approval. The result of the call says that it waits, and
        `agent.deferred` lists what was asked. After you `decide`, the next run runs the call if you
        allowed it, and a note tells the model the outcome. Calls of external tools aren't deferred,
        and a sub-agent never defers.
    """

    approval_mode: Literal["auto", "ask", "readonly", "plan"] = "ask"
    approval_rules: Sequence[Rule] = ()
    approval_callback: Callable[[ToolCall, str], object] | None = None
    approval_timeout: PositiveFloat = 300.0
    defer_approval: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        check_callback(self.approval_callback)

    @property
    def pending(self) -> tuple[ToolCall, ...]:
        deferred = [call.id for call in self.deferred]
        return tuple(call for call in super().pending if call.id not in deferred)

    @property
    def deferred(self) -> tuple[ToolCall, ...]:
        """The deferred calls that await a decision. They survive a restart, but a fork has none."""
        states = self._deferrals(decided=False)
        return tuple(state.presented for state in undecided(*states))

    def allow_always(self, tool: str, arguments: Mapping[str, str] | None = None) -> None:
        """Approve this tool's calls from now on, until its definition changes.

        It may also be a tool of the agent's sub-agents, at any depth. Call this method on the agent
        that you talk to: a sub-agent starts with an empty log, so it would forget.

        arguments: globs by the name of the argument, such as `{"command": "git log*"}`. For one
            exact value, write `{"command": glob.escape(value)}`.

        Raises ToolError if there's no such tool.
        """
        own = self.toolset()
        below = tools_below(self) if tool not in by_name(own) else ()
        named = [each for each in below if each.name == tool]
        for each in named or [find_tool(tool, own)]:
            definition = definition_of(each)
            del definition["deferred"]  # a summary changes it: see `ToolSearch`
            self.record(AlwaysAllow(definition, arguments))

    def approve_plan(self) -> None:
        """Approve the plan that the model has proposed in this conversation.

        From now on, mode "plan" doesn't deny calls any more, but asks for approval.
        """
        self.record(PlanApproved())

    async def call_model(self, request: Request) -> AssistantMessage:
        if not self.conversation.requests:
            tools = [*self.tools, *self._turn_tools, *tools_below(self)]
            check_rules(self.approval_rules, tools)
        if request.purpose == "turn":
            for state in self._deferrals(decided=True):
                await self._settle_deferred(state.call)
                request = replace(request, messages=await self.context())
        return await super().call_model(request)

    def _deferrals(self, decided: bool) -> list[CallState]:
        """The deferred calls whose outcome the model doesn't know yet: those decided, or others."""
        ids = self.fold(Deferrals).ids
        states = self.conversation.in_call_order() if ids else ()
        deferred = [state for state in states if state.call.id in ids and state.deferred]
        return [state for state in deferred if decided != bool(undecided(state))]

    async def _settle_deferred(self, call: ToolCall) -> None:
        """Run a deferred call if it was allowed, and tell the model its outcome in a note."""
        state, run = self.conversation.state_of(call), self.active_run
        if state.result is None and run:
            try:
                await run.resume_calls([state], self._turn_tools)
            except Stop:
                state = self.conversation.state_of(call)
                if run.stopping or not undecided(state):
                    raise
        state = self.conversation.state_of(call)
        if state.result:
            text = f"{OUTCOME} {call.name}({asked(state).arguments}): "
            content = state.result.content
            note = text + content if isinstance(content, str) else (TextPart(text), *content)
            self.add(UserMessage(note, "note", call.id))

    async def call_tools(self, calls: Sequence[ToolCall]) -> Result | None:
        while True:
            try:
                return await super().call_tools(calls)
            except Stop as stop:
                states = [self.conversation.state_of(call) for call in calls]
                asking = [state for state in states if undecided(state)]
                is_ending = self.active_run and self.active_run.stopping
                waiting = [each for each in asking if awaits_start(each) and not each.deferred]
                if not asking or is_ending or waiting:
                    raise
                await self._settle_asking(asking, stop)
                # another call that waits, for an answer for example, ends the run again
                states = [self.conversation.state_of(state.call) for state in states]
                left = [state for state in states if state.result is None and not state.deferred]
                resumable = [tool.name for tool in self._turn_tools if tool.resumes]
                calls, _ = calls_to_resume(left, resumable)
                if not calls:
                    return None

    async def _settle_asking(self, asking: Sequence[CallState], stop: Stop) -> None:
        """Decide or defer what asked while it ran: a tool, or a sub-agent's calls.

        Raises the Stop if the run has to end.
        """
        if self.approval_callback:
            for state in asking:
                for inner in undecided(state):
                    if is_approved(self, inner.call):
                        raise RuntimeError(
                            f"{inner.call.name} asks for approval again, after it was approved: "
                            "check Depends(is_approved) before you raise NeedsApproval"
                        )
                    ask = inner.newest(Ask)
                    decision = await self._ask_reviewer(inner.presented, ask.reason if ask else "")
                    self.record(record_of(inner.call, decision))
                state = self.conversation.state_of(state.call)
                if state.result is None and not state.may_start:
                    self.add(record_of(state.call, placeholder_result(state)))
        elif all(self._may_defer(self, state.call) for state in asking):
            for state in asking:
                self.record(Deferred(state.call.id))
                if not state.deferred:
                    self.add(record_of(state.call, state.call.answer(DEFERRED, is_error=True)))
        else:
            raise stop

    def _may_defer(self, agent: Loop, call: ToolCall) -> bool:
        """Whether the conversation may go on while this call, or one inside it, awaits approval.

        If a nested call asks, its caller is deferred.
        """
        return self.defer_approval and not (call.parent_id or isinstance(agent, RunsBelow))

    async def judge(self, judgment: Judgment) -> Judgment:
        judgment = await super().judge(judgment)  # a hook may change the call
        try:
            tool = judgment.agent.tool(judgment.call)
            validated = tool.validate(judgment.call.arguments)
        except ToolError as error:
            return judgment.or_stricter(Verdict.INVALID, str(error))
        arguments = plain_arguments(validated)
        files = tool.file_names(validated)
        for rule in self.approval_rules:
            if matches(rule, tool.name, arguments, judgment.call.parsed or {}, files):
                judgment = judgment.or_stricter(Verdict[rule.verdict.upper()], rule.reason)
        if judgment.verdict == Verdict.NONE:
            judgment = judgment.or_stricter(*self._mode(tool))
        if judgment.verdict == Verdict.ASK:
            return await self._settle(judgment, tool, arguments)
        return judgment

    def _mode(self, tool: Tool) -> tuple[Verdict, str]:
        """The verdict and the reason for a call that matches no rule."""
        mode = "auto" if tool.read_only else self.approval_mode
        if mode == "plan" and self.fold(Consent).has_plan:
            mode = "ask"
        return MODES[mode]

    async def _settle(self, judgment: Judgment, tool: Tool, arguments: JSON) -> Judgment:
        """Answer a request: by an earlier decision, by what's always allowed, or by the callback.

        If there's none of these, the judgment waits.
        """
        call, agent = judgment.call, judgment.agent
        state = agent.conversation.state_of(call)
        decision = state.newest(Decision)
        counts = state.status in ("pending", "denied", "awaiting_answer")
        if decision and asked(state) == call and counts:
            return decided(judgment, decision)  # not requested again, and not running, since
        if self.fold(Consent).allows(tool, arguments):
            return replace(judgment, verdict=Verdict.ALLOW, waits=False)
        if not judgment.waits:  # otherwise a sub-agent's own gate has recorded the request
            agent.record(Ask(call.id, judgment.reason, call.name, call.arguments))
        if self.approval_callback is None:
            if self._may_defer(agent, call) and not (tool.external or state.deferred):
                self.record(Deferred(call.id))
                return replace(judgment, verdict=Verdict.INVALID, reason=DEFERRED)
            is_open = call.id in agent.conversation.states and not state.result
            return replace(judgment, waits=is_open)  # if not, nobody could decide it later
        decision = await self._ask_reviewer(call, judgment.reason)
        agent.record(decision)
        return decided(judgment, decision)

    async def _ask_reviewer(self, call: ToolCall, reason: str) -> Decision:
        """Ask the callback. If it fails or takes too long, the call is denied."""
        assert self.approval_callback
        try:
            work = call_function(self.approval_callback, call, reason)
            answer = await wait_for(work, self.approval_timeout, grace=0)
            if answer is True:
                answer = Review("allow")
            elif not isinstance(answer, Review):
                answer = Review("deny", answer if isinstance(answer, str) else "")
            return decision_of(call, *answer, by="callback", limit=self.max_result_chars)
        except (Exception, CancelledError) as error:
            if isinstance(error, Stop) or was_cancelled(error):
                raise
            if isinstance(error, TypeError):
                error.add_note("call.arguments is the model's JSON text; call.parsed is a dict")
            logger.exception("approval_callback failed; the call %s is denied", call.id)
            return Decision(call.id, False, FAILED, by="callback")


def check_callback(callback: Callable[..., object] | None) -> None:
    """Raise TypeError unless `approval_callback` can be called with a call and a reason."""
    if callback is None:
        return
    try:
        inspect.signature(callback).bind("call", "why")
    except TypeError:
        raise TypeError(
            "approval_callback must take two arguments, the call and the reason: write "
            "`def approve(call, why): ...`"
        ) from None


def check_rules(rules: Sequence[Rule], tools: Sequence[Tool]) -> None:
    """Complain about "deny" and "ask" rules that can never match a call of these tools.

    If no tool has the name, a warning is logged, because a later turn may offer one. Raises
    ValueError if only upper and lower case differ, or if no tool has an argument that a rule names.
    """
    for rule in rules:
        if rule.verdict == "allow":
            continue
        matching = [tool for tool in tools if fnmatchcase(tool.name, rule.tool)]
        if matching:
            check_arguments(rule, matching)
        else:
            check_tool_name(rule, tools)


def check_tool_name(rule: Rule, tools: Sequence[Tool]) -> None:
    for tool in tools:
        if fnmatchcase(tool.name.lower(), rule.tool.lower()):
            raise ValueError(f"{rule} never matches: the tool is called {tool.name!r}")
    if escape(rule.tool) == rule.tool:
        logger.warning("%s matches no tool of this agent or its sub-agents", rule)


def check_arguments(rule: Rule, tools: Sequence[Tool]) -> None:
    """Raise ValueError if a rule names an argument that none of its tools has."""
    if callable(rule.arguments) or not all(map(has_fixed_arguments, tools)):
        return
    names = (name for tool in tools for name in tool.parameters.get("properties") or ())
    known = [*dict.fromkeys(names)]
    unknown = [name for name in rule.arguments or () if name not in known]
    if unknown:
        raise ValueError(f"{rule} never matches: no tool has {unknown}: write one of {known}")


def has_fixed_arguments(tool: Tool) -> bool:
    """Whether a tool's schema names every argument that it may get.

    It doesn't if a pydantic model stands for all of them, which may have aliases for example.
    """
    is_model = isinstance(tool, FunctionTool) and tool.takes.model_parameter
    return tool.parameters.get("additionalProperties") is False and not is_model


def decided(judgment: Judgment, decision: Decision) -> Judgment:
    verdict = Verdict.ALLOW if decision.allowed else Verdict.DENY
    if decision.is_response:
        verdict = Verdict.ANSWERED
    return replace(judgment, verdict=verdict, reason=decision.reason, waits=False)


def matches(
    rule: Rule, name: str, arguments: JSON, written: JSON, files: Mapping[str, Sequence[str]] = {}
) -> bool:
    """Whether a rule applies to a call. If it raises, it applies unless it's an "allow" rule."""
    if not fnmatchcase(name, rule.tool):
        return False
    try:
        applies = rule_matches(rule, arguments, written, files)
    except Exception:
        logger.exception("a rule failed")
        applies = None
    if rule.verdict == "allow":
        return applies is True
    return applies is not False


def rule_matches(
    rule: Rule, arguments: JSON, written: JSON, files: Mapping[str, Sequence[str]]
) -> object:
    """Whether a rule matches the arguments.

    written: the arguments as the model wrote them. "deny" and "ask" rules match these too, because
        validation may drop a value, such as a second alias of a field.
    files: the names of the files that the arguments lead to: see `Tool.file_names`.

    Raises what the rule's predicate raises, and PydanticSerializationError if an argument can't be
    made plain data.
    """
    if callable(rule.arguments):
        return rule.arguments({**arguments})
    for name, glob in (rule.arguments or {}).items():
        value = to_jsonable_python(arguments.get(name, ""))
        if rule.verdict == "allow":
            matched = matches_safely(value, glob)
        else:
            matched = matches_anywhere([value, written.get(name, value)], glob) or any(
                fnmatchcase(file.lower(), glob.lower()) for file in files.get(name, ())
            )
        if not matched:
            return False
    return True


def matches_anywhere(value: Any, glob: str) -> bool:
    """Whether a glob matches a value, or anything inside it, keys of objects included."""
    match value:
        case {**named} if named:
            return matches_anywhere([*named, *named.values()], glob)
        case [*items] if items:
            return any(matches_anywhere(item, glob) for item in items)
        case _:
            text = str(value)
    return text == glob or fnmatchcase(text, glob)


def matches_safely(value: Any, glob: str) -> bool:
    """Whether a glob matches plain text (see PLAIN), or is the text itself.

    Each item of a list must match; an object never does.
    """
    match value:
        case [*items] if items:
            return all(matches_safely(item, glob) for item in items)
        case _:
            text = str(value)
    if glob in (text, escape(text)):
        return True
    unquoted = re.sub("['\"]", "", text)  # a shell reads ."". as ..
    return fnmatchcase(text, glob) and PLAIN.fullmatch(unquoted) is not None


def plain_arguments(arguments: JSON) -> JSON:
    """Turn validated arguments into plain data: see `to_plain_data`.

    If the only argument is a pydantic model, it stands for all arguments. So its fields become
    arguments too, by name and by alias: {"message": Message(to="anna")} becomes
    {"message": {"to": "anna"}, "to": "anna"}.
    """
    plain: JSON = to_plain_data(arguments)
    match [*arguments.values()]:
        case [BaseModel() as model]:
            named: JSON = to_plain_data(model)
            for name, info in type(model).model_fields.items():
                named[str(info.validation_alias or name)] = named[name]
            return named | plain
        case _:
            return plain


def to_plain_data(value: Any) -> Any:
    """Turn models and dataclasses into dicts and tuples into lists, at any depth.

    It takes the values of attributes as they are, and calls no serializer.
    """
    match value:
        case BaseModel():
            return to_plain_data((value.model_extra or {}) | vars(value))
        case _ if is_dataclass(value):
            return {item.name: to_plain_data(getattr(value, item.name)) for item in fields(value)}
        case {**named}:
            return {name: to_plain_data(item) for name, item in named.items()}
        case [*items]:
            return [to_plain_data(item) for item in items]
        case _:
            return value
