"""A strict double of Chat Completions, on a real socket.

    async with OpenAIDouble([calls(("add", {"a": 1, "b": 2})), "It is 3."]) as server:
        model = ChatOpenAI("m", base_url=server.base_url, api_key="k")

Each request is validated: an invalid request receives a 400 that names the violated rule. A valid
request receives the next reply of the script, streamed or complete as requested. `with
server.in_thread():` serves from a thread, for tests with several event loops.
"""

from __future__ import annotations

import asyncio
import json
import re
import threading
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from .fault_server import Connection, Loopback, answer, chunk, stream_head


@dataclass
class Reply:
    """A reply with all possible fields. `calls` are (name, arguments) or (name, arguments, id)."""

    text: str | None = None
    calls: Sequence[Sequence[Any]] = ()
    thinking: str | None = None
    finish: str | None = None
    usage: Mapping[str, Any] | None = field(
        default_factory=lambda: {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}
    )
    refusal: str | None = None
    blocks: Sequence[dict[str, Any]] | None = None  # of Anthropic: exactly these blocks
    more: Mapping[str, Any] = field(default_factory=dict)  # other fields of the message


@dataclass
class Failure:
    """An error response."""

    status: int
    message: str = "scripted failure"
    type: str = "server_error"
    code: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)


Scripted: TypeAlias = "str | Reply | Failure | Callable[[dict[str, Any]], Scripted]"


def calls(*items: Sequence[Any]) -> Reply:
    """Return a reply with tool calls: calls(("add", {"a": 1, "b": 2}), ...)."""
    return Reply(calls=items)


# for others: "The image data you provided does not represent a valid image."
# https://github.com/openai/codex/issues/7459
IMAGE_DATA = "data:image/(jpeg|png|gif|webp);base64,.*"
PROVIDER_TOOLS = ("web_search", "code_interpreter")  # executed by the server


class Refused(Exception):
    """The provider's error message for an invalid request."""

    def __init__(self, message: str, code: str | None = None) -> None:
        super().__init__(message)
        self.message, self.code = message, code


@contextmanager
def refusing() -> Iterator[None]:
    """Convert a failed assertion to Refused, with its message or its source line."""
    try:
        yield
    except AssertionError as error:
        line = traceback.extract_tb(error.__traceback__)[-1].line
        raise Refused(f"invalid request: {error or line}") from None


class OpenAIDouble(Loopback):
    """A server of Chat Completions.

    system: the prompt that every request must contain.
    secrets: texts that no request may contain.
    requests, headers: the parsed bodies of the requests, and their headers.
    refusals: the messages of the 400 responses.
    prefix_breaks: the numbers of requests that do not begin with the previous request.
    """

    def __init__(
        self,
        replies: Iterable[Scripted] = (),
        *,
        system: str | None = None,
        secrets: Sequence[str] = (),
    ) -> None:
        super().__init__()
        self.replies, self.system, self.secrets = list(replies), system, secrets
        self.requests: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.refusals: list[str] = []
        self.prefix_breaks: list[int] = []

    # ---- the server

    @property
    def base_url(self) -> str:
        return self.url.removesuffix("/v1") + self.base_path

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

    async def talk(self, connection: Connection) -> None:
        while True:
            await connection.write(self._answer(*await connection.read()))

    def _answer(self, first: str, headers: dict[str, str], content: bytes) -> bytes:
        self.headers.append(headers)
        try:
            with refusing():
                self._examine(first, headers, content)
                assert self.replies, "the script has no more replies"
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
            return stream_head() + chunk(b"".join(self.frames(reply))) + chunk(b"")
        return answer(self.whole(reply))

    # ---- the format, overridden by the doubles of other providers

    base_path, path = "/v1", "/v1/chat/completions"

    def _examine(self, first: str, headers: dict[str, str], content: bytes) -> None:
        """Raise Refused for an invalid request."""
        self._check_head(first, headers)
        body = parse(content)
        if self.requests and not self.begins_like(body, self.requests[-1]):
            self.prefix_breaks.append(len(self.requests))
        self.requests.append(body)
        self._check(body, headers)
        text = json.dumps(body, ensure_ascii=False)
        assert not any(secret in text for secret in self.secrets), "a secret is in the request"

    def _check_head(self, first: str, headers: dict[str, str]) -> None:
        assert first == f"POST {self.path} HTTP/1.1"

    def _check(self, body: dict[str, Any], headers: dict[str, str]) -> None:
        check(body, self.system)

    def _refuse(self, refused: Refused) -> bytes:
        return self._fail(Failure(400, refused.message, "invalid_request_error", refused.code))

    def _fail(self, failure: Failure) -> bytes:
        error = {"message": failure.message, "type": failure.type, "code": failure.code}
        return answer({"error": error}, failure.status, failure.headers)

    def _streams(self, first: str) -> bool:
        return bool(self.requests[-1].get("stream"))

    def whole(self, reply: Any) -> dict[str, Any]:
        """Return a complete reply."""
        return whole(reply, len(self.requests))

    def frames(self, reply: Any) -> list[bytes]:
        """Return a reply as server-sent events."""
        return frames(reply, len(self.requests))

    fixed: tuple[str, ...] = ("model", "tools", "tool_choice")  # fields that no request may change

    def begins_like(self, body: dict[str, Any], previous: dict[str, Any]) -> bool:
        same = all(body.get(name) == previous.get(name) for name in self.fixed)
        before = self.in_order(previous)
        return same and self.in_order(body)[: len(before)] == before

    def in_order(self, body: dict[str, Any]) -> list[Any]:
        """Return the parts of a request that a prefix cache compares."""
        return list(body["messages"])


# ---- checks of requests


def parse(content: bytes) -> dict[str, Any]:
    """Parse the body of a request: strict JSON in valid UTF-8."""
    try:
        body = json.loads(content.decode(), parse_constant=_no_constant)
        json.dumps(body, ensure_ascii=False).encode()
    except ValueError as error:
        raise Refused(f"We could not parse the JSON body of your request. ({error})") from None
    assert isinstance(body, dict)
    return body


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


@refusing()
def check(body: dict[str, Any], system: str | None = None) -> None:
    """Raise Refused for an invalid request."""
    model, messages = body.get("model"), body.get("messages")
    assert isinstance(model, str)
    assert model
    assert isinstance(messages, list)
    assert messages
    for name in ("tools", "tool_choice", "stream_options", "temperature"):
        assert body.get(name, 0) is not None, f"'{name}' is null"
    assert "stream_options" not in body or body.get("stream")
    _check_tools(body)
    if "response_format" in body:
        assert body["response_format"].get("type") == "json_schema"
        check_format(body["response_format"]["json_schema"])
    plain = not body.get("tools") or body.get("reasoning_effort") == "none"
    assert plain or not re.match(r"gpt-(5\.[56]|6)", model), (
        f"Function tools with reasoning_effort are not supported for {model} in "
        "/v1/chat/completions. To use function tools, use /v1/responses or set reasoning_effort "
        "to 'none'."
    )
    _check_messages(messages)
    assert body.get("tools") or not any(message.get("tool_calls") for message in messages)
    check_system([m["content"] for m in messages if m["role"] in ("system", "developer")], system)


def check_system(prompts: list[Any], system: str | None) -> None:
    assert system is None or prompts == [system], (
        f"the system prompt is {prompts!r}, not {system!r}"
    )


def check_declared(functions: Sequence[tuple[Any, Any]], choice: Any = None) -> None:
    """Check the names and schemas of tools, and the name of a forced tool."""
    names = [name for name, _ in functions]
    for name, schema in functions:
        check_name(name)
        assert isinstance(schema, dict)
        assert schema.get("type") == "object"
        unions = schema.keys() & {"anyOf", "oneOf", "allOf", "not", "enum"}
        assert not unions, f"the schema of {name} has {unions} at the top level"
    assert len(set(names)) == len(names)
    assert choice is None or choice in names


def check_turns(turns: Iterable[tuple[bool, Sequence[Any], Sequence[Any]]]) -> None:
    """Check turns, as tuples: whether all previous calls must have results, results, calls."""
    waiting: list[Any] = []
    seen: set[Any] = set()
    for closes, answered, called in [*turns, (True, (), ())]:
        for call_id in answered:
            assert call_id in waiting, f"no call before it waits for result {call_id!r}"
            assert call_id == waiting.pop(0), "the results are not in the order of the calls"
        assert not closes or not waiting, f"calls without a result: {waiting}"
        for call_id in called:
            assert call_id
            assert call_id not in seen
            seen.add(call_id)
        waiting += called


def _check_tools(body: dict[str, Any]) -> None:
    if "tools" not in body:
        assert not body.keys() & {"tool_choice", "parallel_tool_calls"}
        return
    assert body["tools"]
    own = [tool for tool in body["tools"] if tool.get("type") not in PROVIDER_TOOLS]
    assert all(tool.get("type") == "function" for tool in own)
    check_functions(body, [tool.get("function") or {} for tool in own], "function", strict=False)


def check_functions(
    body: dict[str, Any], functions: list[dict[str, Any]], holder: str, strict: bool
) -> None:
    """Check the schema of a tool. `strict` is the default for tools without the field."""
    choice = body.get("tool_choice", "auto")
    named = isinstance(choice, dict)
    assert named or choice in ("auto", "none", "required")
    name = choice.get(holder, choice).get("name", "") if named else None
    check_declared([(f.get("name"), f.get("parameters")) for f in functions], name)
    for function in functions:
        check_arrays(function["parameters"])
        if function.get("strict", strict):
            check_strict(function["parameters"])


def check_format(form: dict[str, Any]) -> None:
    """Check the response format: a named schema."""
    check_name(form.get("name"))
    assert form.get("schema", {}).get("type") == "object"
    check_arrays(form["schema"])
    if form.get("strict"):
        check_strict(form["schema"])


def check_arrays(schema: Any) -> None:
    inner = schema.values() if isinstance(schema, dict) else schema
    if isinstance(schema, dict) and schema.get("type") == "array":
        assert isinstance(schema.get("items"), dict), f"array schema missing items: {schema}"
    for value in inner if isinstance(schema, dict | list) else ():
        check_arrays(value)


def check_strict(schema: Any) -> None:
    inner = schema.values() if isinstance(schema, dict) else schema
    if isinstance(schema, dict):
        if schema.get("type") == "object":
            assert schema.get("additionalProperties") is False
            assert sorted(schema.get("required", ())) == sorted(schema.get("properties", ()))
        assert isinstance(schema.get("default", {}), dict)  # or it is a property
    for value in inner if isinstance(schema, dict | list) else ():
        check_strict(value)


def check_name(name: Any) -> None:
    assert isinstance(name, str)
    assert re.fullmatch("[a-zA-Z0-9_-]{1,64}", name), f"{name!r} is no name"


def check_call(call_id: Any, call: dict[str, Any], longest: int) -> None:
    assert isinstance(call_id, str)
    assert 0 < len(call_id) <= longest
    check_name(call.get("name"))
    try:
        arguments = json.loads(call.get("arguments") or "", parse_constant=_no_constant)
    except (TypeError, ValueError):
        arguments = None
    assert isinstance(arguments, dict), "the arguments are no JSON object"


def _check_messages(messages: list[Any]) -> None:
    later = [message.get("role") for message in messages[1:]]
    assert "system" not in later, "System message must be at the beginning."  # of Qwen's templates
    for message in messages:
        role, content, calls = (
            message.get("role"),
            message.get("content"),
            message.get("tool_calls"),
        )
        assert role in ("system", "developer", "user", "assistant", "tool")
        if role == "assistant":
            assert calls is None or calls
            assert calls or content or message.get("refusal")
            for call in calls or ():
                assert call.get("type") == "function"
                check_call(call.get("id"), call.get("function") or {}, 40)
        if role != "assistant" or content is not None:
            _check_content(content, role)
    check_turns(
        (
            message["role"] != "tool",
            [message.get("tool_call_id")] if message["role"] == "tool" else [],
            [call["id"] for call in message.get("tool_calls") or ()],
        )
        for message in messages
    )
    assert messages[-1]["role"] in ("user", "tool"), "it ends with the assistant"


def _check_content(content: Any, role: str) -> None:
    if isinstance(content, str):
        return
    assert isinstance(content, list)
    assert content
    for part in content:
        kind = part.get("type")
        assert kind == "text" or (role == "user" and kind in ("image_url", "file", "input_audio"))
        assert kind in part
        if kind == "image_url":
            check_url(part["image_url"]["url"])
        if "file_data" in part.get("file", ()):
            check_url(part["file"]["file_data"], "data:application/pdf;.*")


def check_url(url: str, allowed: str = IMAGE_DATA) -> None:
    assert not url.startswith("data:") or re.fullmatch(allowed, url), url[:40]


# ---- replies


def scripted_calls(reply: Reply, number: int) -> list[dict[str, Any]]:
    out: list[dict[str, Any]] = []
    for position, (name, arguments, *rest) in enumerate(reply.calls):
        is_text = isinstance(arguments, str)
        text = arguments if is_text else json.dumps(arguments, ensure_ascii=False)
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
        name, arguments = call["function"].values()
        begun = call | {"index": index, "function": {"name": name, "arguments": ""}}
        rest = [{"index": index, "function": {"arguments": piece}} for piece in pieces(arguments)]
        deltas += [{"tool_calls": [part]} for part in (begun, *rest)]
    choices: list[dict[str, Any]] = [{"delta": delta, "finish_reason": None} for delta in deltas]
    choices.append({"delta": {}, "finish_reason": _finish(reply)})
    chunks: list[dict[str, Any]] = [{"choices": [choice | {"index": 0}]} for choice in choices]
    chunks.append({"choices": [], "usage": reply.usage})
    common = {"id": f"chatcmpl-{number}", "object": "chat.completion.chunk"}
    common |= {"created": 0, "model": "m"}
    lines = [f"data: {json.dumps(common | chunk)}\n\n".encode() for chunk in chunks]
    return [*lines, b"data: [DONE]\n\n"]
