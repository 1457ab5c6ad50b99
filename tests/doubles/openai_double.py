"""A strict stand-in for Chat Completions, on a real socket.

    async with OpenAIDouble([calls(("add", {"a": 1, "b": 2})), "It is 3."]) as server:
        model = ChatOpenAI("m", base_url=server.base_url, api_key="k")
        ...
    assert server.requests[1]["messages"][-1]["role"] == "tool"

Each request is checked first, and refused with 400 in the provider's own words if no provider
would take it; only then the next reply of the script is played, streamed or whole as the request
asks. `with server.in_thread():` serves it from a thread, for tests with several event loops.
"""

from __future__ import annotations

import asyncio
import json
import re
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Self, TypeAlias


@dataclass
class Reply:
    """A reply, with all it can hold. `calls` are (name, arguments) or (name, arguments, id)."""

    text: str | None = None
    calls: Sequence[Sequence[Any]] = ()
    thinking: str | None = None
    finish: str | None = None
    usage: Mapping[str, Any] | None = field(
        default_factory=lambda: {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}
    )
    refusal: str | None = None


@dataclass
class Failure:
    """An error answer."""

    status: int
    message: str = "scripted failure"
    type: str = "server_error"
    code: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)


Scripted: TypeAlias = "str | Reply | Failure | Callable[[dict[str, Any]], Scripted]"


def calls(*items: Sequence[Any]) -> Reply:
    """A reply that calls tools: calls(("add", {"a": 1, "b": 2}), ...)."""
    return Reply(calls=items)


PROVIDER_TOOLS = ("web_search", "code_interpreter")  # which a server runs by itself


class Refused(Exception):
    """What the provider would say to an invalid request, and about which part of it."""

    def __init__(self, message: str, param: str = "messages", code: str | None = None) -> None:
        super().__init__(message)
        self.message, self.param, self.code = message, param, code


class OpenAIDouble:
    """`system`: the prompt that every request must carry. `secrets`: texts that none may.

    `requests` are the parsed bodies, `headers` theirs, `refusals` what was answered with 400,
    `prefix_breaks` the numbers of requests that did not begin like the one before.
    """

    def __init__(
        self,
        replies: Iterable[Scripted] = (),
        *,
        system: str | None = None,
        secrets: Sequence[str] = (),
    ) -> None:
        self.replies, self.system, self.secrets = list(replies), system, secrets
        self.requests: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.refusals: list[str] = []
        self.prefix_breaks: list[int] = []
        self.connections = 0
        self._tasks: set[asyncio.Task[Any]] = set()

    # ---- the server

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        port = self._server.sockets[0].getsockname()[1]
        self.base_url = f"http://127.0.0.1:{port}{self.base_path}"
        return self

    async def __aexit__(self, *error: object) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    @contextmanager
    def in_thread(self) -> Iterator[OpenAIDouble]:
        ready, loop = threading.Event(), asyncio.new_event_loop()

        async def serve() -> None:
            self._stop = asyncio.Event()
            async with self:
                ready.set()
                await self._stop.wait()

        thread = threading.Thread(target=loop.run_until_complete, args=(serve(),), daemon=True)
        thread.start()
        ready.wait()
        try:
            yield self
        finally:
            loop.call_soon_threadsafe(self._stop.set)
            thread.join()
            loop.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        self.connections += 1
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                first, *lines = head.decode("latin-1").split("\r\n")[:-2]
                pairs = (line.partition(":") for line in lines)
                headers = {name.lower(): value.strip() for name, _, value in pairs}
                body = await reader.readexactly(int(headers.get("content-length", 0)))
                writer.write(self._answer(first, headers, body))
                await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass  # the client has gone, or the test is over
        finally:
            writer.close()

    def _answer(self, first: str, headers: dict[str, str], content: bytes) -> bytes:
        self.headers.append(headers)
        try:
            self._examine(first, headers, content)
            if not self.replies:
                raise Refused("the script has no more replies", "script")
        except Refused as refused:
            self.refusals.append(refused.message)
            return self._refuse(refused)
        reply: Any = self.replies.pop(0)
        while callable(reply):
            reply = reply(self.requests[-1])
        if isinstance(reply, Failure):
            return self._fail(reply)
        reply = Reply(reply) if isinstance(reply, str) else reply
        if self._streams(first):
            head = {"content-type": "text/event-stream", "transfer-encoding": "chunked"}
            content = b"".join(self.frames(reply))
            return self._head(200, head) + b"%x\r\n%b\r\n0\r\n\r\n" % (len(content), content)
        return self._response(200, self.whole(reply))

    def _response(self, status: int, body: Any, headers: Mapping[str, str] | None = None) -> bytes:
        content = json.dumps(body).encode()
        fields = {"content-type": "application/json", "content-length": str(len(content))}
        return self._head(status, fields | dict(headers or {})) + content

    def _head(self, status: int, headers: Mapping[str, str]) -> bytes:
        fields = {self.id_header: "req_double", **headers}
        lines = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
        return f"HTTP/1.1 {status} Status\r\n{lines}\r\n".encode()

    # ---- the wire: what the doubles of other providers override

    base_path, path = "/v1", "/v1/chat/completions"
    id_header = "x-request-id"

    def _examine(self, first: str, headers: dict[str, str], content: bytes) -> None:
        """Refused: the provider would not take this request."""
        self._check_head(first, headers)
        body = parse(content)
        if self.requests and not self.begins_like(body, self.requests[-1]):
            self.prefix_breaks.append(len(self.requests))
        self.requests.append(body)
        self._check(body, headers)
        text = json.dumps(body, ensure_ascii=False)
        if any(secret in text for secret in self.secrets):
            raise Refused("a secret is in the request", "body")

    def _check_head(self, first: str, headers: dict[str, str]) -> None:
        if first != f"POST {self.path} HTTP/1.1":
            raise Refused(f"Invalid URL ({first})", "url")

    def _check(self, body: dict[str, Any], headers: dict[str, str]) -> None:
        check(body, self.system)

    def _refuse(self, refused: Refused) -> bytes:
        error = {"message": refused.message, "type": "invalid_request_error"}
        error |= {"param": refused.param, "code": refused.code}
        return self._response(400, {"error": error})

    def _fail(self, failure: Failure) -> bytes:
        error = {"message": failure.message, "type": failure.type, "code": failure.code}
        return self._response(failure.status, {"error": error}, failure.headers)

    def _streams(self, first: str) -> bool:
        return bool(self.requests[-1].get("stream"))

    def whole(self, reply: Any) -> dict[str, Any]:
        """A reply in one piece."""
        return whole(reply, len(self.requests))

    def frames(self, reply: Any) -> list[bytes]:
        """A reply as server-sent events."""
        return frames(reply, len(self.requests))

    fixed: tuple[str, ...] = ("model", "tools", "tool_choice")  # what no request may change

    def begins_like(self, body: dict[str, Any], previous: dict[str, Any]) -> bool:
        same = all(body.get(name) == previous.get(name) for name in self.fixed)
        before = self.in_order(previous)
        return same and self.in_order(body)[: len(before)] == before

    def in_order(self, body: dict[str, Any]) -> list[Any]:
        """What a cache of prefixes sees of a request."""
        return list(body["messages"])


# ---- what a provider refuses


def parse(content: bytes) -> dict[str, Any]:
    """The body of a request: strict JSON in UTF-8, with nothing that UTF-8 cannot carry."""
    try:
        body = json.loads(content.decode(), parse_constant=_no_constant)
        json.dumps(body, ensure_ascii=False).encode()
    except ValueError as error:
        raise Refused(f"We could not parse the JSON body of your request. ({error})") from None
    if not isinstance(body, dict):
        raise Refused("We could not parse the JSON body of your request.")
    return body


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def check(body: dict[str, Any], system: str | None = None) -> None:
    """Refused: no provider would take this request."""
    if not isinstance(body.get("model"), str) or not body["model"]:
        raise Refused("you must provide a model parameter", "model")
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        raise Refused("[] is too short - 'messages'")
    for name in ("tools", "tool_choice", "stream_options", "temperature"):
        if name in body and body[name] is None:
            raise Refused(f"Invalid type for '{name}': got null instead.", name, "invalid_type")
    if "stream_options" in body and not body.get("stream"):
        raise Refused("'stream_options' is only allowed when 'stream' is enabled", "stream_options")
    _check_tools(body)
    if "response_format" in body:
        if body["response_format"].get("type") != "json_schema":
            raise Refused("Invalid value for 'response_format.type'.", "response_format")
        check_format(body["response_format"]["json_schema"])
    effort = body.get("reasoning_effort")
    if body.get("tools") and effort != "none" and re.match(r"gpt-(5\.[56]|6)", body["model"]):
        raise Refused(
            f"Function tools with reasoning_effort are not supported for {body['model']} in "
            "/v1/chat/completions. To use function tools, use /v1/responses or set "
            "reasoning_effort to 'none'.",
            "reasoning_effort",
        )
    _check_messages(messages)
    if any(message.get("tool_calls") for message in messages) and not body.get("tools"):
        raise Refused("'tools' must be set when the conversation holds tool calls", "tools")
    found = [m["content"] for m in messages if m["role"] in ("system", "developer")]
    if system is not None and found != [system]:
        raise Refused(f"expected the system prompt {system!r}, got {found!r}")


def _check_tools(body: dict[str, Any]) -> None:
    if "tools" not in body:
        for name in ("tool_choice", "parallel_tool_calls"):
            if name in body:
                text = f"'{name}' is only allowed when 'tools' are specified."
                raise Refused(f"Invalid value for '{name}': {text}", name)
        return
    if not body["tools"]:
        raise Refused("Invalid 'tools': empty array. Expected minimum length 1.", "tools")
    names: list[str] = []
    for number, tool in enumerate(body["tools"]):
        if tool.get("type") in PROVIDER_TOOLS:
            continue
        function = tool.get("function") or {}
        at = f"tools[{number}].function"
        if tool.get("type") != "function":
            raise Refused(f"Missing required parameter: 'tools[{number}].type'.", at)
        check_name(function.get("name"), f"{at}.name")
        schema = function.get("parameters")
        if not isinstance(schema, dict) or schema.get("type") != "object":
            text = "schema must be a JSON Schema of 'type: \"object\"'"
            raise Refused(f"Invalid schema for function '{function['name']}': {text}", at)
        if function.get("strict"):
            check_strict(schema, function["name"])
        names.append(function["name"])
    if len(set(names)) < len(names):
        raise Refused("Tool names must be unique.", "tools")
    choice = body.get("tool_choice", "auto")
    if isinstance(choice, dict):
        choice = choice["function"]["name"]
        if choice not in names:
            text = f"Tool choice 'function' '{choice}' not found in 'tools' parameter"
            raise Refused(f"Invalid value for 'tool_choice': {text}.", "tool_choice")
    elif choice not in ("auto", "none", "required"):
        raise Refused(f"Invalid value: '{choice}'.", "tool_choice")


def check_format(form: dict[str, Any]) -> None:
    """What the answer has to follow: a named schema."""
    check_name(form.get("name"), "response_format.json_schema.name")
    if form.get("schema", {}).get("type") != "object":
        raise Refused("Invalid schema for response_format: it has to be an object", "schema")
    if form.get("strict"):
        check_strict(form["schema"], form["name"])


def check_strict(schema: Any, name: str) -> None:
    if isinstance(schema, list):
        for item in schema:
            check_strict(item, name)
    if not isinstance(schema, dict):
        return
    if schema.get("type") == "object":
        problem = None
        if schema.get("additionalProperties") is not False:
            problem = "'additionalProperties' is required to be supplied and to be false."
        elif sorted(schema.get("required", [])) != sorted(schema.get("properties", {})):
            problem = "'required' is required to be supplied and to include every key."
        if problem:
            raise Refused(f"Invalid schema for function '{name}': In context=(), {problem}")
    if "default" in schema and not isinstance(schema["default"], dict):
        raise Refused(f"Invalid schema for function '{name}': 'default' is not permitted.")
    for value in schema.values():
        check_strict(value, name)


def check_name(name: Any, at: str) -> None:
    if not isinstance(name, str) or not re.fullmatch("[a-zA-Z0-9_-]+", name):
        raise Refused(
            f"Invalid '{at}': string does not match pattern. "
            "Expected a string that matches the pattern '^[a-zA-Z0-9_-]+$'.",
            at,
            "invalid_value",
        )
    check_length(name, at, 64)


def check_length(text: str, at: str, most: int) -> None:
    if len(text) > most:
        raise Refused(
            f"Invalid '{at}': string too long. Expected a string with maximum length {most}, "
            f"but got a string with length {len(text)} instead.",
            at,
            "string_above_max_length",
        )


def _check_messages(messages: list[Any]) -> None:
    open_calls: list[str] = []
    seen: set[str] = set()
    for number, message in enumerate(messages):
        at = f"messages[{number}]"
        role = message.get("role")
        if role not in ("system", "developer", "user", "assistant", "tool"):
            raise Refused(f"Invalid value: '{role}'. Supported values are: 'system', ...", at)
        if role != "tool" and open_calls:
            raise _unanswered(open_calls)
        if role == "tool":
            _check_result(message, at, open_calls)
            continue
        if role == "assistant":
            open_calls = _check_assistant(message, at, seen)
        else:
            _check_content(message.get("content"), f"{at}.content", role)
    if open_calls:
        raise _unanswered(open_calls)
    if messages[-1]["role"] not in ("user", "tool"):
        raise Refused("The last message must be from the user or a tool")
    if all(message["role"] in ("system", "developer") for message in messages):
        raise Refused("at least one message must not be a system message")


def _unanswered(open_calls: list[str]) -> Refused:
    return Refused(
        "An assistant message with 'tool_calls' must be followed by tool messages responding to "
        "each 'tool_call_id'. The following tool_call_ids did not have response messages: "
        + ", ".join(open_calls)
    )


def _check_result(message: dict[str, Any], at: str, open_calls: list[str]) -> None:
    if message.get("tool_call_id") not in open_calls:
        raise Refused(
            "Invalid parameter: messages with role 'tool' must be a response to a preceeding "
            "message with 'tool_calls'.",
            f"{at}.role",
        )
    if message["tool_call_id"] != open_calls[0]:
        raise Refused("tool messages must come in the order of the calls", at)
    open_calls.pop(0)
    _check_content(message.get("content"), f"{at}.content", "tool")


def _check_assistant(message: dict[str, Any], at: str, seen: set[str]) -> list[str]:
    calls = message.get("tool_calls")
    if calls is not None and not calls:
        raise Refused(
            f"Invalid '{at}.tool_calls': empty array. Expected an array with minimum length 1, "
            "but got an empty array instead.",
            at,
            "empty_array",
        )
    if not calls and not message.get("content") and not message.get("refusal"):
        raise Refused(f"Invalid value for 'content': expected a string, got null. ({at})", at)
    if message.get("content") is not None:
        _check_content(message["content"], f"{at}.content", "assistant")
    for position, call in enumerate(calls or ()):
        where = f"{at}.tool_calls[{position}]"
        call_id, function = call.get("id"), call.get("function") or {}
        if not isinstance(call_id, str) or not call_id:
            raise Refused(f"Invalid '{where}.id': empty string.", where, "empty_string")
        if call_id in seen:
            raise Refused(f"Duplicate value for 'tool_call_id' of '{call_id}'", where)
        seen.add(call_id)
        check_length(call_id, f"{where}.id", 40)
        if call.get("type") != "function":
            raise Refused(f"Missing required parameter: '{where}.type'.", where)
        check_name(function.get("name"), f"{where}.function.name")
        try:
            arguments = json.loads(function.get("arguments"), parse_constant=_no_constant)
        except (TypeError, ValueError):
            arguments = None
        if not isinstance(arguments, dict):
            raise Refused(f"Invalid '{where}.function.arguments': expected a JSON object.", where)
    return [call["id"] for call in calls or ()]


def _check_content(content: Any, at: str, role: str) -> None:
    if isinstance(content, str):
        return
    if not isinstance(content, list) or not content:
        raise Refused(
            f"Invalid type for '{at}': expected one of a string or array of objects, but got "
            f"{'null' if content is None else type(content).__name__} instead.",
            at,
            "invalid_type",
        )
    fields = {"text": "text"}
    if role == "user":
        fields |= {"image_url": "image_url", "file": "file", "input_audio": "input_audio"}
    for number, part in enumerate(content):
        if part.get("type") not in fields:
            kinds = ", ".join(fields)
            raise Refused(f"Invalid value: '{part.get('type')}'. Supported values are: {kinds}", at)
        if fields[part["type"]] not in part:
            raise Refused(f"Missing required parameter: '{at}[{number}].{part['type']}'.", at)


# ---- replies


def scripted_calls(reply: Reply, number: int) -> list[dict[str, Any]]:
    out: list[dict[str, Any]] = []
    for position, (name, arguments, *rest) in enumerate(reply.calls):
        text = arguments
        if not isinstance(text, str):
            text = json.dumps(arguments, ensure_ascii=False)
        call_id = rest[0] if rest else f"call_{number}_{position}"
        function = {"name": name, "arguments": text}
        out.append({"id": call_id, "type": "function", "function": function})
    return out


def _finish(reply: Reply) -> str:
    return reply.finish or ("tool_calls" if reply.calls else "stop")


def whole(reply: Reply, number: int = 1) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": reply.text}
    message["refusal"] = reply.refusal
    if reply.calls:
        message["tool_calls"] = scripted_calls(reply, number)
    if reply.thinking is not None:
        message["reasoning_content"] = reply.thinking
    choice = {"index": 0, "message": message, "finish_reason": _finish(reply), "logprobs": None}
    common = {"id": f"chatcmpl-{number}", "object": "chat.completion", "created": 0, "model": "m"}
    return common | {"choices": [choice], "usage": reply.usage}


def pieces(text: str | None) -> list[str]:
    return [text[i : i + 4] for i in range(0, len(text), 4)] if text else []


def frames(reply: Reply, number: int = 1) -> list[bytes]:
    deltas: list[dict[str, Any]] = [{"role": "assistant", "content": None}]
    if reply.thinking is not None:
        deltas += [{"reasoning_content": piece} for piece in pieces(reply.thinking) or [""]]
    deltas += [{"content": piece} for piece in pieces(reply.text)]
    deltas += [{"refusal": piece} for piece in pieces(reply.refusal)]
    for index, call in enumerate(scripted_calls(reply, number)):
        function = call["function"]
        start = call | {"index": index, "function": {"name": function["name"], "arguments": ""}}
        deltas.append({"tool_calls": [start]})
        for piece in pieces(function["arguments"]):
            rest = {"index": index, "function": {"arguments": piece}}
            deltas.append({"tool_calls": [rest]})
    choices: list[list[dict[str, Any]]] = [
        [{"index": 0, "delta": delta, "finish_reason": None}] for delta in deltas
    ]
    choices.append([{"index": 0, "delta": {}, "finish_reason": _finish(reply)}])
    chunks: list[dict[str, Any]] = [{"choices": choice} for choice in choices]
    chunks.append({"choices": [], "usage": reply.usage})
    common = {"id": f"chatcmpl-{number}", "object": "chat.completion.chunk"}
    common |= {"created": 0, "model": "m"}
    lines = [f"data: {json.dumps(common | chunk)}\n\n".encode() for chunk in chunks]
    return [*lines, b"data: [DONE]\n\n"]
