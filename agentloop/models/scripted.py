"""A chat model that answers from a script, for tests, lessons and programs that run offline.

Copy with: the core, common/model_info.py.

    model = ScriptedModel(call("add", a=2, b=3), "It is 5.")
"""

import re
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from inspect import isawaitable
from itertools import pairwise, repeat
from typing import Any, TypeAlias

from pydantic_core import to_json

from ..common.model_info import CacheRules
from ..errors import BadRequest
from ..events import OnDelta, TextDeltaEvent, ThinkingDeltaEvent
from ..messages import (
    AssistantMessage,
    Message,
    SystemMessage,
    ToolCall,
    ToolChoice,
    ToolMessage,
    UserMessage,
)
from ..model import Request
from ..tools import Tool

WORDS = r"[^ ]* |[^ ]+$"  # the pieces of a text in a stream
Reply: TypeAlias = str | ToolCall | Sequence[ToolCall] | AssistantMessage | BaseException
Script: TypeAlias = Callable[[Sequence[Message], Sequence[Tool]], "Reply | Awaitable[Reply]"]


def call(name: str, /, **arguments: Any) -> ToolCall:
    """A tool call for a script. It gets a unique id when the model makes it."""
    return ToolCall("", name, to_json(arguments).decode())


class ScriptedModel:
    """Answers with the replies of a script, in order.

    A reply is text, a call, a list of calls, an AssistantMessage, or an exception to raise. A
    function of (messages, tools) may stand for any reply; alone, it answers every request. A new
    process begins the script again: to continue a session there, use a function. Like a provider,
    the model raises BadRequest if a request is invalid. `requests` lists all requests.
    `cache_rules` are those of the provider that you simulate.
    """

    def __init__(
        self,
        *script: Reply | Script,
        model: str = "scripted",
        cache_rules: CacheRules | None = None,
    ) -> None:
        self.model = model
        self.cache_rules = cache_rules or CacheRules()
        self.requests: list[Request] = []
        self._script = iter(script)
        if len(script) == 1 and callable(script[0]):
            self._script = repeat(script[0])

    async def ainvoke(
        self,
        messages: Sequence[Message],
        tools: Sequence[Tool] = (),
        *,
        tool_choice: ToolChoice = "auto",
        on_delta: OnDelta | None = None,
    ) -> AssistantMessage:
        number = len(self.requests)
        self.requests.append(Request(tuple(messages), tuple(tools), tool_choice))
        problems = validate_messages(messages)
        if problems:
            raise BadRequest("; ".join(problems), status=400)
        step = next(self._script, None)
        if step is None:
            raise IndexError(f"the script has no reply to request {number + 1}: add one")
        answer: object = step
        if callable(step):
            answer = step(messages, tools)
        if isawaitable(answer):
            answer = await answer
        reply = _message(answer, number)
        if on_delta is not None:
            for piece in re.findall(WORDS, reply.thinking or ""):
                on_delta(ThinkingDeltaEvent(piece))
            for piece in re.findall(WORDS, reply.text):
                on_delta(TextDeltaEvent(piece))
        return reply


def _message(reply: Any, number: int) -> AssistantMessage:
    match reply:
        case BaseException():
            raise reply
        case AssistantMessage():
            return reply
        case str():
            return AssistantMessage(reply)
        case ToolCall():
            calls = [reply]
        case [*calls] if all(isinstance(item, ToolCall) for item in calls):
            pass
        case _:
            raise TypeError(
                f"a reply must be text, call(...), a list of calls, or an AssistantMessage, not "
                f"{reply!r:.80}; pass several replies one by one: ScriptedModel('Hello.', 'Bye.')"
            )
    named = [replace(c, id=c.id or f"call_{number}_{i}") for i, c in enumerate(calls)]
    return AssistantMessage(tool_calls=tuple(named))


def validate_messages(messages: Sequence[Message]) -> list[str]:
    """What a provider would find wrong with these messages, one text each: [] if nothing is."""
    problems = [f"messages[{at}]: {problem}" for at, problem in _find_problems(messages)]
    last = next((m for m in reversed(messages) if not isinstance(m, SystemMessage)), None)
    is_paused = getattr(last, "stop_reason", None) == "pause"  # its model continues it
    if not (is_paused or isinstance(last, UserMessage | ToolMessage)):
        problems.append("the last message is neither the user's nor a tool's")
    return problems


def _find_problems(messages: Sequence[Message]) -> Iterator[tuple[int, str]]:
    """Yield what's wrong with messages, each with the message's index."""
    seen = set[str]()
    waiting = list[str]()
    for at, message in enumerate((*messages, None)):
        if isinstance(message, ToolMessage):
            if waiting[:1] == [message.tool_call_id]:
                waiting.pop(0)
            else:
                yield at, f"no earlier call expects the result {message.tool_call_id!r} next"
            continue
        if waiting:
            yield at, f"earlier calls have no result: {', '.join(waiting)}"
        waiting = []
        if isinstance(message, AssistantMessage):
            waiting = [call.id for call in message.tool_calls]
            for problem in _problems_of_reply(message, seen):
                yield at, problem


def _problems_of_reply(reply: AssistantMessage, seen: set[str]) -> Iterator[str]:
    """Yield what's wrong with a reply, and add its ids to `seen`, the ids of earlier calls."""
    if not (reply.text.strip() or reply.tool_calls or reply.raw):
        yield "an assistant message has neither text nor calls"
    for call in reply.tool_calls:
        if not call.id or call.id in seen:
            yield f"the call id {call.id!r} is empty, or another call has it"
        seen.add(call.id)


def assert_prefix_stable(requests: Iterable[Request], *, breaks: int = 0) -> None:
    """Assert that each request begins with the whole request before it.

    requests: the requests of a model, such as `ScriptedModel.requests`.
    breaks: how many requests may differ.

    If more do, the AssertionError shows the first message that changed in each of them, before and
    after. Both are equal if it was the tools or tool_choice that changed.
    """
    changes: list[str] = []
    for number, (before, after) in enumerate(pairwise(requests), 2):
        at = _first_change(before, after)
        if at is not None:
            now = after.messages[at : at + 1] or "gone"
            changes.append(
                f"request {number} changes messages[{at}], or the tools:"
                f"\n  was {before.messages[at]}\n  now {now}"
            )
    if len(changes) > breaks:
        raise AssertionError("\n".join(changes))


def _first_change(before: Request, after: Request) -> int | None:
    """The index of the first message of `before` that `after` doesn't repeat."""
    if (before.tools, before.tool_choice) != (after.tools, after.tool_choice):
        return 0
    for at, message in enumerate(before.messages):
        if [*after.messages[at : at + 1]] != [message]:
            return at
    return None
