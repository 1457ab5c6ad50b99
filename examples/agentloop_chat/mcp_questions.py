"""Questions of MCP servers to the user (elicitation), which end the run with "needs_answer".

    async with mcp_servers("mcp.json", tool_class=AskingTool) as servers: ...

A server only asks if its configuration has `elicitation: true`. The question is in the log, so
`agent.answer` may come from another process. Answer with a dict (the fields of the form), True (the
user has opened the URL) or None (declined); `AskingTool` then sends the call again with the answers.
A question whose schema or URL can't be used is an error, and so is a server that wants anything
else than an answer of the user.
"""

from __future__ import annotations

import asyncio
import re
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, cast

from pydantic_core import from_json, to_json

from agentloop import Stop, Tool, ToolError, current_agent, current_call
from agentloop.cli.terminal import safe
from agentloop.depends import Overrides
from agentloop.messages import JSON
from agentloop.toolkits.ask import UserAnswer, UserQuestion
from agentloop.toolkits.ask import question_text as text_with_options
from agentloop.toolkits.mcp import MCPTool

MAX_QUESTIONS = 200_000  # maximum bytes of the questions of a call as JSON
POLL_SECONDS = 0.25  # before a call is sent again because the server requires it
CONSENT = "Answer: done. Or answer: decline."  # to a question that has no fields


class AskingTool(MCPTool):
    """A tool of a server that may ask the user. The question comes in place of the call's result."""

    @staticmethod
    async def elicitation_callback(context: object, params: object) -> Any:
        """Refuse a question over an older version, in which the server would wait for the answer."""
        from mcp.types import INVALID_REQUEST, ErrorData

        return ErrorData(code=INVALID_REQUEST, message="elicitation requires MCP 2026-07-28")

    async def request(self, args: JSON, overrides: Overrides) -> Any:
        result = await self._send(args, *earlier_answers(overrides))
        while not hasattr(result, "content"):  # questions, or the request to send the call again
            if result.input_requests and not self.server.config.elicitation:
                raise ToolError("The server asks the user: set `elicitation` in its configuration.")
            questions = Questions.read(result, self.server.name)
            await_answer(questions, overrides)
            await asyncio.sleep(POLL_SECONDS)
            result = await self._send(args, state=result.request_state)
        return result

    async def _send(self, args: JSON, answers: JSON | None = None, state: str | None = None) -> Any:
        """Send the call with the answers so far."""
        return await self.server.client.session.call_tool(
            self.own_name,
            args,
            input_responses=answers,
            request_state=state,
            allow_input_required=True,
        )


@dataclass
class Questions:
    """The questions in a server's result, and the user's answers.

    open: the questions without an answer, by the server's keys. answers: in MCP's format, by key.
    state: returned to the server together with the answers.
    """

    open: dict[str, JSON]
    answers: JSON
    state: str | None

    @classmethod
    def read(cls, result: Any, server: str) -> Questions:
        """Read the questions in a result. Raises ToolError if the user can't answer them."""
        questions = cls({}, {}, result.request_state)
        requests: dict[str, Any] = result.input_requests or {}
        if len(to_json([requests, result.request_state])) > MAX_QUESTIONS:
            raise ToolError(f"The server's questions have more than {MAX_QUESTIONS:,} bytes.")
        for key, request in requests.items():
            questions.open[key] = read_question(server, request)
        return questions

    def take(self, answer: object) -> None:
        """Add the answer to the first open question. An invalid answer leaves the question open."""
        key, question = next(iter(self.open.items()))
        try:
            self.answers[key] = write_answer(question, answer)
            del self.open[key]
        except ToolError as error:
            question["problem"] = str(error)


def read_question(server: str, request: Any) -> JSON:
    """Read a server's question: a text with a form or a URL. Raises ToolError for any other."""
    params = request.params
    question = {"server": server, "question": getattr(params, "message", "")}
    form, url = getattr(params, "requested_schema", None), getattr(params, "url", "")
    if isinstance(form, dict):
        with suppress(Exception):  # the schema may contain anything
            with suppress(ToolError):  # an empty answer may be invalid
                form_tool(cast(JSON, form)).validate("{}")
            return question | {"form": {"properties": {}, **form}}
    if re.match("https?://", url):
        return question | {"url": url}
    raise ToolError(f"The server requires {request.method!r}, which cannot be answered here.")


def form_tool(form: JSON) -> Tool:
    """Make a tool whose arguments are the answers to a form."""
    schema = {**form, "type": "object", "additionalProperties": False}
    return Tool("answer", parameters=schema)


def write_answer(question: JSON, answer: object) -> JSON:
    """Write the user's answer in MCP's format. Raises ToolError if it doesn't fit the form.

    The answer to a form is a dict or its JSON text, or the value of the first field. To a URL, or a
    form that has no fields, it's True, "done" or "yes": any other word might be meant as a no.
    None, False and "decline" refuse an answer.
    """
    if answer is None or answer is False or answer == "decline":
        return {"action": "decline"}
    form = question.get("form", {"properties": {}})
    word = str(answer).lower().strip(" .!")
    if not form["properties"] and word not in ("true", "{}", "done", "yes", "y"):
        raise ToolError(CONSENT)
    if "url" in question:
        return {"action": "accept"}
    text = answer if isinstance(answer, str) else to_json(answer).decode()
    if answer is True or not form["properties"]:
        text = "{}"
    elif not text.lstrip().startswith("{"):
        text = to_json({next(iter(form["properties"])): answer}).decode()
    return {"action": "accept", "content": form_tool(form).validate(text)}


def question_text(arguments: JSON) -> str:
    """Write a pending question, of a server or of `ask_user`, as Markdown.

    The text of a server is an indented block, in which Markdown has no effect.
    """
    match arguments:
        case {"server": server, "url": url}:
            lines = [str(url), f"Open this URL yourself. {CONSENT}"]
        case {"server": server, "form": {"properties": {**fields}}}:
            lines = [f"{name}: {to_json(field).decode()}" for name, field in fields.items()]
            how = "a JSON object" if len(fields) > 1 else "a text"
            lines.append(f"Answer with {how}. Or answer: decline." if fields else CONSENT)
        case _:
            return text_with_options(arguments)
    texts = [str(arguments[key]) for key in ("problem", "question") if key in arguments]
    block = "\n".join([f"{server}:", *texts, *lines])
    return f"A question of an MCP server:\n\n{quoted(block)}"


def quoted(text: str) -> str:
    """Quote somebody else's text as a block of code, in which Markdown has no effect."""
    return "\n".join(f"    {line}" for line in safe(text).split("\n"))


def earlier_answers(overrides: Overrides) -> tuple[JSON | None, str | None]:
    """The answers to what the call asked when it ran before, and the server's state.

    Raises Stop while a question is open.
    """
    if current_agent not in overrides:
        return None, None
    agent, call = overrides[current_agent](), overrides[current_call]()
    state = agent.conversation.state_of(call)
    question, answer = state.newest(UserQuestion), state.newest(UserAnswer)
    if question is None:
        return None, None
    questions = Questions(**from_json(question.state))
    if answer and not state.awaits:
        questions.take(from_json(answer.content))
    await_answer(questions, overrides)
    return questions.answers, questions.state


def await_answer(questions: Questions, overrides: Overrides) -> None:
    """If a question is open, record it and raise Stop, so that the call waits for the answer."""
    if not questions.open:
        return
    if current_agent not in overrides:
        raise ToolError("The server asks the user: the tool has to run in an agent.")
    agent, call = overrides[current_agent](), overrides[current_call]()
    question = next(iter(questions.open.values()))
    asked = UserQuestion(call.id, to_json(question).decode(), to_json(questions).decode())
    agent.record(asked)
    raise Stop("needs_answer")
