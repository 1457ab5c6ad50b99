"""Decides over each call before it runs: by rules, by a mode, and by asking somebody.

Copy with: the core, common/approve.py, common/gate.py.

    class MyAgent(Approval, Session, Agent):
        approval_rules = [Rule("allow", "bash", {"command": "git *"}), Rule("deny", "drop_*")]

    result = await agent.run("Pay 5.")                   # "needs_approval", result.pending
    agent.decide(result.pending[0].id, "deny", note="Not today.")
    result = await agent.run()                           # in another process too, from the session

All calls of a turn are judged, and all asks answered, before any of them runs. What nothing and
nobody clearly allows does not run, and the model reads why. Each ask and each answer is a mark in
the log. An answer is bound to a call's id, name and arguments, and counts once.
"""

import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, field, fields, is_dataclass, replace
from fnmatch import fnmatchcase
from typing import Any, Literal, NamedTuple, cast

from pydantic import AliasChoices, BaseModel, PositiveFloat, RootModel
from pydantic_core import to_jsonable_python

from ..common.approve import ask
from ..common.gate import Gate, Judgment, Verdict
from ..content import describe_error
from ..errors import ToolError
from ..messages import JSON, Ask, Decision, Mark, Message, Record, ToolCall, frozen
from ..tools import Tool, find_tool
from ..transcript import Fold
from ..waiting import logger

# What a * stands for in a rule that allows: nothing that makes a second command, no folder above.
PLAIN = re.compile(r"(?!.*(?<![\w.])\.\.(?![\w.]))[\w ./,:=@+~'\"-]*")


class Rule(NamedTuple):
    """A verdict over calls of the tools that the glob `tool` names. The model reads the reason.

    arguments: which of the calls; None is all. Either a glob for each of some arguments, or a
        function that gets all arguments and returns a bool. They are those that the tool gets, with
        defaults and as plain data: see `named_values`. What a `default_factory` makes is made anew
        for the run, so no rule sees it. A glob matches a list or an object if it matches anything
        in it. In a rule that allows, it has to match all of a list, and a * stands for plain text,
        so "git *" is not "git log; rm x". It is no sandbox: what it lets run does whatever its
        options can.
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
    exact: bool = False


@frozen
class PlanApproved(Mark):
    """Somebody said yes to the plan of this conversation."""


class Consent(Fold):
    """What somebody has said yes to for good: calls, and the plan."""

    always: tuple[AlwaysAllow, ...] = ()
    has_plan = False

    def take(self, at: int, record: Record | Message) -> None:
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
        raises or returns no bool, or an argument is no text) counts where it asks or denies, and
        does not where it allows.
    approval_callback: called with a call and why it is asked for, async or not. It returns True, or
        a text: that is a no, which the model reads. Anything else is a no too. Without a callback
        the run ends with "needs_approval".
    approval_timeout: how many seconds an answer may take.
    """

    approval_mode: Literal["auto", "ask", "readonly", "plan"] = "ask"
    approval_rules: Sequence[Rule] = ()
    approval_callback: Callable[[ToolCall, str], object] | None = None
    approval_timeout: PositiveFloat = 300.0

    def decide(
        self, call_id: str, verdict: Literal["allow", "deny"], note: str = "", *, by: str = "user"
    ) -> None:
        """Answer for a call that waits; `run()` goes on with it. The model reads why it is denied.

        by: who answers, for the log.
        Raises ValueError if the call does not wait, and AgentBusy while a run goes on.
        """
        self.refuse_if_busy()
        waiting = [state.call.id for state in self.conversation.open_calls if state.waits]
        if call_id not in waiting:
            raise ValueError(f"{call_id!r} is no call that waits: {waiting}")
        if verdict not in ("allow", "deny"):
            raise ValueError(f"{verdict!r} is no verdict over {call_id!r}: say 'allow' or 'deny'")
        self.record(Decision(call_id, verdict == "allow", note, by))

    def allow_always(
        self, tool: str, arguments: Mapping[str, str] | None = None, *, exact: bool = False
    ) -> None:
        """Answer asks for this tool with yes, as long as its definition stays what it is.

        arguments: a glob for each of some arguments, such as `{"command": "git *"}`.
        exact: they are no globs, but the very texts: "rm *.pyc" is not "rm -r x.pyc".
        Raises ToolError if there is no such tool.
        """
        definition = asdict(find_tool(tool, self.toolset()))
        self.record(AlwaysAllow(definition, arguments, exact))

    def approve_plan(self) -> None:
        """Say yes to the plan that the model has answered with, for this conversation.

        In the mode "plan", calls are asked for from now on.
        """
        self.record(PlanApproved())

    async def judge(self, judgment: Judgment) -> Judgment:
        judgment = await super().judge(judgment)  # a hook may change the call
        try:
            tool = self.tool(judgment.call)
            named = named_values(tool.validate(judgment.call.arguments))
        except ToolError as error:
            return judgment.or_stricter(Verdict.INVALID, str(error))
        except Exception as error:
            logger.exception("the arguments of a call cannot be judged")
            return judgment.or_stricter(Verdict.INVALID, describe_error(error))
        for rule in self.approval_rules:
            if matches(rule, tool.name, named):
                judgment = judgment.or_stricter(Verdict[rule.verdict.upper()], rule.reason)
        if judgment.verdict == Verdict.NONE:
            judgment = judgment.or_stricter(*self._mode(tool))
        if judgment.verdict == Verdict.ASK:
            return await self._settle(judgment, tool, named)
        return judgment

    def _mode(self, tool: Tool) -> tuple[Verdict, str]:
        """Return the verdict over calls of a tool that no rule is about, and why."""
        if tool.read_only:
            return MODES["auto"]
        mode = self.approval_mode
        if mode == "plan" and self.fold(Consent).has_plan:
            mode = "ask"
        return MODES[mode]

    async def _settle(
        self, judgment: Judgment, tool: Tool, named: Mapping[str, list[Any]]
    ) -> Judgment:
        """Return the judgment with the answer to an ask: an earlier one, or that of the callback.

        Without a callback the judgment waits.
        """
        call = judgment.call
        state = self.conversation.states[call.id]
        is_decided = state.state in ("pending", "denied")  # and not asked again, or started, since
        if is_decided and state.decision and state.asked == call:
            return decided(judgment, state.decision)
        for mark in self.fold(Consent).always:
            if allows_always(mark, tool, named):
                return replace(judgment, verdict=Verdict.ALLOW)
        self.record(Ask(call.id, judgment.reason, call.name, call.arguments))
        if self.approval_callback is None:
            return replace(judgment, waits=True)
        answer = await ask(
            self.approval_callback, call, judgment.reason, seconds=self.approval_timeout
        )
        note = answer if isinstance(answer, str) else ""
        decision = Decision(call.id, answer is True, note, "callback")
        self.record(decision)
        return decided(judgment, decision)


def decided(judgment: Judgment, decision: Decision) -> Judgment:
    """Return a judgment as somebody has decided."""
    verdict = Verdict.ALLOW if decision.allowed else Verdict.DENY
    return replace(judgment, verdict=verdict, reason=decision.reason)


def allows_always(mark: AlwaysAllow, tool: Tool, named: Mapping[str, list[Any]]) -> bool:
    """Return True if a mark is about these arguments of a tool."""
    is_same_tool = mark.tool.items() <= asdict(tool).items()  # an older mark has fewer options
    if not is_same_tool:
        return False
    if not mark.exact:
        return matches(Rule("allow", arguments=mark.arguments), tool.name, named)
    for name, text in (mark.arguments or {}).items():
        if {str(value) for value in named.get(name, ())} != {text}:
            return False
    return True


def matches(rule: Rule, name: str, named: Mapping[str, list[Any]]) -> bool:
    """Return True if a rule is about this call, or fails and does not allow."""
    if not fnmatchcase(name, rule.tool):
        return False
    found: Any = None
    try:
        found = finds(rule, named)
    except Exception:
        logger.exception("a rule failed")
    if rule.verdict == "allow":
        return found is True
    return found is not False


def finds(rule: Rule, named: Mapping[str, list[Any]]) -> Any:
    """Return True if a rule is about these arguments. Raises what its function raises."""
    about = rule.arguments or {}
    if callable(about):
        return about({name: values[0] for name, values in named.items()})
    for name, glob in about.items():
        values = to_jsonable_python(named.get(name, [""]), fallback=str)
        if rule.verdict == "allow":
            fits = fits_plainly(values, glob)  # all of them
        else:
            fits = any(fits_somewhere(value, glob) for value in values)
        if not fits:
            return False
    return True


def fits_somewhere(value: object, glob: str) -> bool:
    """Return True if a glob matches a value, or anything in it."""
    text = str(value)
    if text == glob or fnmatchcase(text, glob):
        return True
    return any(fits_somewhere(each, glob) for each in inside(value))


def fits_plainly(value: Any, glob: str) -> bool:
    """Return True if a glob matches a value, or all of a list, and each text is plain."""
    if isinstance(value, list):
        return value != [] and all(fits_plainly(each, glob) for each in inside(value))
    text = str(value)
    return text == glob or bool(fnmatchcase(text, glob) and PLAIN.fullmatch(text))


def inside(value: Any) -> Sequence[object]:
    """Return the elements of a list, or the values of an object."""
    if isinstance(value, dict):
        return [*cast(JSON, value).values()]
    return cast(Sequence[object], value) if isinstance(value, list) else ()


def named_values(arguments: Mapping[str, Any]) -> dict[str, list[Any]]:
    """Return {name: values} of validated arguments, as plain data: see `plain`.

    If the only argument is a pydantic model, which stands for the whole object, its fields are
    arguments too, by name and by alias: {"message": Message(to="anna")} -> {"message": [{"to":
    "anna"}], "to": ["anna"]}. One name may be that of several values, as the model may send an
    extra with the name of a field. They are in this order: parameter, field, alias, extra.
    """
    pairs = [(name, plain(value)) for name, value in arguments.items()]
    model = next(iter(arguments.values()), None)
    if len(arguments) == 1 and isinstance(model, BaseModel) and not isinstance(model, RootModel):
        [(_, shown)] = pairs
        known = type(model).model_fields
        pairs += [(name, shown[name]) for name in known]
        for name, about in known.items():
            alias = about.validation_alias or name
            choices = alias if isinstance(alias, AliasChoices) else AliasChoices(alias)
            pairs += [(str(path[0]), shown[name]) for path in choices.convert_to_aliases()]
        pairs += (model.model_extra or {}).items()
    named = defaultdict[str, list[Any]](list)
    for name, value in pairs:
        named[name].append(value)
    return named


def plain(value: Any) -> Any:
    """Return a value with dicts for models and dataclasses, and lists for other collections.

    They hold what a function finds in the attributes, whatever a serializer would say of it.
    """
    match value:
        case RootModel():
            return plain(vars(value)["root"])
        case BaseModel():
            return plain((value.model_extra or {}) | vars(value))
        case _ if is_dataclass(value):
            return plain({each.name: getattr(value, each.name) for each in fields(value)})
        case Mapping():
            return {name: plain(each) for name, each in cast(Mapping[str, Any], value).items()}
        case str() | bytes():
            return value
        case Collection() | Iterator():
            return [plain(each) for each in cast(Iterable[Any], value)]
        case _:
            return value
