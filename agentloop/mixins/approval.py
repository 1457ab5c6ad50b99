"""Decides over each call before it runs: by rules, by a mode, and by asking somebody.

Copy with: the core, common/gate.py.

    class MyAgent(Approval, Session, Agent):
        approval_rules = [Rule("allow", "bash", {"command": "git status*"}), Rule("deny", "drop_*")]

    result = await agent.run("Pay 5.")                   # "needs_approval", result.pending
    agent.decide(result.pending[0].id, "deny", note="Not today.")
    result = await agent.run()                           # in another process too, from the session

All calls of a turn are judged, and all asks answered, before any of them runs. What nothing and
nobody clearly allows does not run, and the model reads why. `agent.pending` has what waits, after a
restart too. A new prompt closes it, and it does not run. Each ask and each answer is a mark in the
log. An answer is bound to a call's id, name and arguments, and counts once.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, field, fields, is_dataclass, replace
from fnmatch import fnmatchcase
from glob import escape
from typing import Any, Literal, NamedTuple

from pydantic import BaseModel, PositiveFloat
from pydantic_core import to_jsonable_python

from ..common.gate import Gate, Judgment, Verdict
from ..errors import ToolError
from ..messages import JSON, Ask, Decision, Mark, ToolCall, frozen
from ..tools import Tool, find_tool
from ..transcript import Fold
from ..waiting import call_function, logger, wait_for

# A text that a * may match in a rule that allows: nothing in it makes a second command, or leads to
# a folder above.
PLAIN = re.compile(r"(?!.*(?<![\w.])\.\.(?![\w.]))[\w ./,:=@+~'\"-]*")


class Rule(NamedTuple):
    """A verdict over calls of the tools that the glob `tool` names. The model reads the reason.

    arguments: which of the calls; None is all. Either a glob for each of some arguments, or a
        function that gets all arguments and returns a bool. They are those that the tool gets, with
        defaults and as plain data: see `plain_arguments`. A `default_factory` runs once for the
        rules and once more for the tool, so the two may see different values. In a rule that denies
        or asks, a glob matches a list or an object if it matches anything in it, the keys too; it
        is enough if it matches what the model wrote. In a rule that allows, a glob has to match all
        of a list, never matches an object, and matches plain text only, so "git *" does not match
        "git log; rm x". A name that is no argument of the tool counts as the text "": a mistyped
        one denies nothing. A rule is no sandbox: a command that it lets run does whatever the
        command's options can.
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
    """Asks for a tool are answered with yes, as long as it is defined so: see `allow_always`."""

    tool: JSON = field(hash=False)
    arguments: Mapping[str, str] | None = field(default=None, hash=False)


@frozen
class PlanApproved(Mark):
    """Somebody said yes to the plan of this conversation."""


class Consent(Fold):
    """What somebody has said yes to for good: calls, and the plan."""

    always: tuple[AlwaysAllow, ...] = ()
    has_plan = False

    def take(self, at: int, record: object) -> None:
        if isinstance(record, AlwaysAllow):
            self.always += (record,)
        elif isinstance(record, PlanApproved):
            self.has_plan = True


class Approval(Gate):
    """Lets a call run if a rule, the mode or somebody allows it.

    approval_mode: for calls that no rule matches. Those of tools with `read_only` run. The others
        run too ("auto"), are asked for ("ask"), are denied ("readonly"), or are denied until
        `approve_plan()` ("plan"): then they are asked for.
    approval_rules: deny outranks ask, ask outranks allow. A rule that fails (its function
        raises or returns no bool, or its argument is no plain data) counts where it asks or denies,
        and does not where it allows.
    approval_callback: called with a call and why it is asked for, async or not. It returns True, or
        a text: that is a no, which the model reads. Anything else is a no too. Without a callback
        the run ends with "needs_approval".
    approval_timeout: how many seconds the callback may take; after that the call is denied.
    """

    approval_mode: Literal["auto", "ask", "readonly", "plan"] = "ask"
    approval_rules: Sequence[Rule] = ()
    approval_callback: Callable[[ToolCall, str], object] | None = None
    approval_timeout: PositiveFloat = 300.0

    def decide(
        self, call_id: str, verdict: Literal["allow", "deny"], note: str = "", *, by: str = "user"
    ) -> None:
        """Answer for a call that waits; `run()` goes on with it.

        note: why, for the log. The model reads the note of a "deny".
        by: who answers, for the log.
        Raises ValueError that says why the call cannot be decided, and AgentBusy while a run goes
        on.
        """
        if self.waiting_call(call_id).ask is None:
            raise ValueError(f"{call_id!r} waits for an answer, or for run(): answer() it")
        if verdict not in ("allow", "deny"):
            raise ValueError(f"{verdict!r} is no verdict over {call_id!r}: say 'allow' or 'deny'")
        self.record(Decision(call_id, verdict == "allow", note, by))

    def allow_always(self, tool: str, arguments: Mapping[str, str] | None = None) -> None:
        """Answer asks for this tool with yes, as long as its definition stays what it is.

        arguments: a glob for each of some arguments, such as `{"command": "git log*"}`. For exactly
            this text it is `{"command": glob.escape(text)}`.
        Raises ToolError if there is no such tool.
        """
        definition = asdict(find_tool(tool, self.toolset()))
        self.record(AlwaysAllow(definition, arguments))

    def approve_plan(self) -> None:
        """Say yes to the plan that the model has answered with, for this conversation.

        In the mode "plan", calls are asked for from now on.
        """
        self.record(PlanApproved())

    async def judge(self, judgment: Judgment) -> Judgment:
        judgment = await super().judge(judgment)  # a hook may change the call
        try:
            tool = self.tool(judgment.call)
            arguments = plain_arguments(tool.validate(judgment.call.arguments))
        except ToolError as error:
            return judgment.or_stricter(Verdict.INVALID, str(error))
        for rule in self.approval_rules:
            if matches(rule, tool.name, arguments, judgment.call.parsed or {}):
                judgment = judgment.or_stricter(Verdict[rule.verdict.upper()], rule.reason)
        if judgment.verdict == Verdict.NONE:
            judgment = judgment.or_stricter(*self._mode(tool))
        if judgment.verdict == Verdict.ASK:
            return await self._settle(judgment, tool, arguments)
        return judgment

    def _mode(self, tool: Tool) -> tuple[Verdict, str]:
        """Return the verdict over calls of a tool that no rule is about, and why."""
        mode = "auto" if tool.read_only else self.approval_mode
        if mode == "plan" and self.fold(Consent).has_plan:
            mode = "ask"
        return MODES[mode]

    async def _settle(self, judgment: Judgment, tool: Tool, arguments: JSON) -> Judgment:
        """Return the judgment with the answer to an ask.

        The answer is an earlier decision, an `AlwaysAllow`, or that of the callback. Without any of
        them the judgment waits.
        """
        call = judgment.call
        state = self.conversation.states[call.id]
        if state.decision and state.asked == call and state.state in ("pending", "denied"):
            return decided(judgment, state.decision)  # nobody asked again, or started it, since
        for mark in self.fold(Consent).always:
            if allows_always(mark, tool, arguments):
                return replace(judgment, verdict=Verdict.ALLOW)
        self.record(Ask(call.id, judgment.reason, call.name, call.arguments))
        if self.approval_callback is None:
            return replace(judgment, waits=True)
        work = call_function(self.approval_callback, call, judgment.reason)
        answer = await wait_for(self.approval_timeout, work, grace=1)
        note = answer if isinstance(answer, str) else ""
        decision = Decision(call.id, answer is True, note, "callback")
        self.record(decision)
        return decided(judgment, decision)


def decided(judgment: Judgment, decision: Decision) -> Judgment:
    """Return a judgment as somebody has decided."""
    verdict = Verdict.ALLOW if decision.allowed else Verdict.DENY
    return replace(judgment, verdict=verdict, reason=decision.reason)


def allows_always(mark: AlwaysAllow, tool: Tool, arguments: JSON) -> bool:
    """Return True if a mark is about these arguments of a tool."""
    is_same_tool = mark.tool.items() <= asdict(tool).items()  # an older mark has fewer options
    rule = Rule("allow", arguments=mark.arguments)
    return is_same_tool and matches(rule, tool.name, arguments, {})


def matches(rule: Rule, name: str, arguments: JSON, written: JSON) -> bool:
    """Return True if a rule is about this call, or fails and does not allow."""
    if not fnmatchcase(name, rule.tool):
        return False
    try:
        found = finds(rule, arguments, written)
    except Exception:
        logger.exception("a rule failed")
        found = None
    if rule.verdict == "allow":
        return found is True
    return found is not False


def finds(rule: Rule, arguments: JSON, written: JSON) -> object:
    """Return True if a rule is about these arguments. Raises what its function raises.

    written: the arguments as the model wrote them. A rule that denies or asks looks at them too:
        they show what validation drops, such as a second alias of one field.
    PydanticSerializationError: an argument is no plain data.
    """
    if callable(rule.arguments):
        return rule.arguments({**arguments})
    for name, glob in (rule.arguments or {}).items():
        value = to_jsonable_python(arguments.get(name, ""))
        if rule.verdict == "allow":
            fits = fits_plainly(value, glob)
        else:
            fits = fits_somewhere([value, written.get(name, value)], glob)
        if not fits:
            return False
    return True


def fits_somewhere(value: Any, glob: str) -> bool:
    """Return True if a glob matches a value, or anything in it, the keys of objects included."""
    match value:
        case {**named} if named:
            return fits_somewhere([*named, *named.values()], glob)
        case [*inside] if inside:
            return any(fits_somewhere(each, glob) for each in inside)
        case _:
            text = str(value)
    return text == glob or fnmatchcase(text, glob)


def fits_plainly(value: Any, glob: str) -> bool:
    """Return True if a glob matches a plain text, or is the text itself, escaped or not.

    It has to match all of a list, and never matches an object.
    """
    match value:
        case [*inside] if inside:
            return all(fits_plainly(each, glob) for each in inside)
        case _:
            text = str(value)
    if glob in (text, escape(text)):
        return True
    return fnmatchcase(text, glob) and PLAIN.fullmatch(text) is not None


def plain_arguments(arguments: JSON) -> JSON:
    """Return validated arguments as plain data: see `plain`.

    If the only argument is a pydantic model, which stands for the whole object, its fields are
    arguments too, by name and by alias: {"message": Message(to="anna")} -> {"message": {"to":
    "anna"}, "to": "anna"}.
    """
    shown: JSON = plain(arguments)
    match [*arguments.values()]:
        case [BaseModel() as model]:
            named: JSON = plain(model)
            for name, about in type(model).model_fields.items():
                named[str(about.validation_alias or name)] = named[name]
            return named | shown
        case _:
            return shown


def plain(value: Any) -> Any:
    """Return a value with dicts for models and dataclasses, and lists for tuples.

    The values are those of the attributes. A serializer of a model's own does not change them.
    """
    match value:
        case BaseModel():
            return plain((value.model_extra or {}) | vars(value))
        case _ if is_dataclass(value):
            return {each.name: plain(getattr(value, each.name)) for each in fields(value)}
        case {**named}:
            return {name: plain(each) for name, each in named.items()}
        case [*inside]:
            return [plain(each) for each in inside]
        case _:
            return value
