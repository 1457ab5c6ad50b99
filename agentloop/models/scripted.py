"""A chat model that plays a script: for tests, lessons, and your own tests. Offline.

Copy with: messages.py, events.py, transcript.py, errors.py.

    model = ScriptedModel(call("add", a=2, b=3), "It is 5.")
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from inspect import isawaitable
from itertools import pairwise
from typing import TYPE_CHECKING, Any, TypeAlias

from pydantic_core import to_json

from ..errors import BadRequest
from ..events import OnDelta, TextDeltaEvent, ThinkingDeltaEvent
from ..messages import AssistantMessage, Message, Request, ToolCall, ToolChoice, dump_record
from ..transcript import common_prefix, validate

if TYPE_CHECKING:
    from ..tools import Tool

Reply: TypeAlias = str | ToolCall | Sequence[ToolCall] | AssistantMessage | BaseException
Script: TypeAlias = Callable[[Sequence[Message], Sequence["Tool"]], "Reply | Awaitable[Reply]"]


def call(name: str, /, **arguments: Any) -> ToolCall:
    """A call as a model would make it. Its id is made unique when the reply is played."""
    return ToolCall("", name, to_json(arguments).decode())


class ScriptedModel:
    """Plays replies in order, or asks a function of (messages, tools) for each.

    A reply is text, a call, several calls, an AssistantMessage, or an exception to raise; a
    function may stand in the place of any. As strict as a provider: a request that one would
    refuse raises BadRequest. `requests` holds what was asked.
    """

    def __init__(self, *script: Reply | Script, model: str = "scripted") -> None:
        self.model = model
        self.requests: list[Request] = []
        self._every = script[0] if len(script) == 1 and callable(script[0]) else None
        self._script = list(script)

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
        if problems := validate(messages):
            raise BadRequest("; ".join(problems), status=400)
        if self._every is None and number >= len(self._script):
            raise IndexError(
                f"the script has {len(self._script)} replies; this is request {number + 1}"
            )
        step = self._every or self._script[number]
        answer = step(messages, tools) if callable(step) else step
        reply = _message(await answer if isawaitable(answer) else answer, number)
        if on_delta is not None:
            for piece in _pieces(reply.thinking or ""):
                on_delta(ThinkingDeltaEvent(piece))
            for piece in _pieces(reply.text):
                on_delta(TextDeltaEvent(piece))
        return reply


def _message(reply: Any, number: int) -> AssistantMessage:
    if isinstance(reply, BaseException):
        raise reply
    if isinstance(reply, AssistantMessage):
        return reply
    if isinstance(reply, str):
        return AssistantMessage(reply)
    calls = [reply] if isinstance(reply, ToolCall) else list(reply)
    named = [
        ToolCall(c.id or f"call_{number}_{i}", c.name, c.arguments) for i, c in enumerate(calls)
    ]
    return AssistantMessage(tool_calls=tuple(named))


def _pieces(text: str) -> Iterable[str]:
    """The text word by word, as a stream would bring it."""
    return [piece + " " for piece in text.split(" ")[:-1]] + text.split(" ")[-1:] if text else []


def assert_prefix_stable(requests: Iterable[Any], *, breaks: int = 0) -> None:
    """Passes if each request begins with all of the one before it, with `breaks` exceptions.

    requests: those that a model got, as `ScriptedModel.requests` holds them. AssertionError shows
    the first message that changed, or what changed in the tools.
    """
    found: list[str] = []
    for number, (before, after) in enumerate(pairwise(requests), 2):
        at = common_prefix(before.messages, after.messages)
        if [before.tools, before.tool_choice] != [after.tools, after.tool_choice]:
            found.append(f"request {number} offers other tools, or another tool_choice")
        elif at < len(before.messages):
            was = dump_record(before.messages[at]).decode()
            now = dump_record(after.messages[at]).decode() if at < len(after.messages) else "gone"
            found.append(f"request {number}, messages[{at}]:\n  was {was:.500}\n  now {now:.500}")
    if len(found) > breaks:
        raise AssertionError(
            f"the prefix broke {len(found)} times, not {breaks}:\n" + "\n".join(found)
        )
