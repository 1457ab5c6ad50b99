"""micro.py: nano.py with streaming, sessions, approval and Anthropic. Copy both files.

    python micro.py                    runs a script, offline
    python micro.py "What is 2 + 3?"   with ANTHROPIC_API_KEY, OPENAI_API_KEY or OPENAI_BASE_URL

Each class adds a feature: it overrides seams of the loop in nano.py. Session, Approval and Streaming
derive from Resumable, and none of them needs the others:

    class Assistant(Session, Approval, Agent, Streaming): ...

    agent = Assistant(llm=ChatAnthropic("claude-sonnet-5"), tools=[delete], session="ada.jsonl",
                      requires_approval=lambda name, arguments: name == "delete")
    async for event in agent.query_stream("Delete the old report."): ...
    for call in agent.pending:                  # the run ended with "needs_approval"
        agent.decide(call["id"], allow=True)
    async for event in agent.query_stream(): ...  # continues, also in another process

Version 1.0.0, MIT, by the agentloop authors.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator, Callable
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import httpx
from nano import (
    NO_RESULT,
    OPENAI,
    SUMMARIZE,
    Agent,
    ChatModel,
    Loop,
    Message,
    Messages,
    ModelError,
    Request,
    Result,
    ScriptedModel,
    Stop,
    Tool,
    Tools,
    cancel_and_wait,
    result_of,
    tool,
)
from nano import ChatOpenAI as NanoOpenAI
from nano import call as scripted_call

if sys.platform != "win32":
    import fcntl

ANTHROPIC = "https://api.anthropic.com"
NOT_RUN = "Not run: the user continued without this call."


# ---- runs that continue


class Resumable(Loop):
    """Runs that go on after a decision, an error or a crash, and repeat no call.

    When a call starts, the log gets a record {"role": "start"}. Only messages, results and
    summaries are sent to the model.
    """

    async def run(self, prompt: str) -> Result:
        """Work on a prompt. Calls that have no result are closed, and won't run."""
        if not self.busy:
            for call in self.open_calls:
                self.record(result_of(call, NO_RESULT if self.has_started(call) else NOT_RUN))
        return await super().run(prompt)

    async def resume(self) -> Result:
        """Continue the newest run: run the calls that haven't started, then send a request.

        A call that had started may have had effects. It isn't repeated, and its placeholder result
        says that the outcome is unknown. If the run has its answer already, that's the result.
        """
        if self.busy:
            raise RuntimeError("this agent is running a query: await it first")
        if self.messages and (last := self.messages[-1])["role"] == "assistant":
            return Result(last["content"])
        runnable = Messages()
        for call in self.open_calls:
            if self.has_started(call):
                self.record(result_of(call, NO_RESULT))
            else:
                runnable.append(call)
        self.busy = True
        try:
            if runnable and (result := await self.call_tools(runnable)):
                return result
        except Stop as stop:
            return stop.result
        finally:
            self.busy = False
        return await super().run("")  # an empty message is not sent

    @property
    def open_calls(self) -> Messages:
        """The calls of the newest reply that have no result."""
        replies = [record for record in self.log if record["role"] == "assistant"]
        done = {record["tool_call_id"] for record in self.log if record["role"] == "tool"}
        calls: Messages = replies[-1]["tool_calls"] if replies else []
        return [call for call in calls if call["id"] not in done]

    def has_started(self, call: Message) -> bool:
        start = {"role": "start", "tool_call_id": call["id"]}
        return start in self.log

    async def call_tool(self, call: Message) -> Message:
        self.record({"role": "start", "tool_call_id": call["id"]})
        return await super().call_tool(call)


class Approval(Resumable):
    """Ends a run with "needs_approval" before a turn whose calls need it.

    `pending` lists the calls. No call of the turn runs until every pending call is decided.

    requires_approval: a function that gets the name of a tool and the arguments. If it raises, the
        run ends, and no call of the turn runs.
    """

    requires_approval: Callable[[str, Message], bool]

    @property
    def pending(self) -> Messages:
        """The calls that wait for a decision. A new prompt closes them, and they don't run."""
        return [call for call in self.open_calls if self._is_undecided(call)]

    def decide(self, call_id: str, *, allow: bool, note: str = "") -> None:
        """Allow or deny a pending call. If you deny it, the model reads the `note`."""
        if call_id not in [call["id"] for call in self.pending]:
            raise ValueError(f"call {call_id!r} is not pending: agent.pending lists the calls")
        decision = {"role": "decision", "tool_call_id": call_id, "allow": allow, "note": note}
        self.record(decision)

    async def call_tools(self, calls: Messages) -> Result | None:
        if any(map(self._is_undecided, calls)):
            raise Stop("needs_approval")
        return await super().call_tools(calls)

    async def call_tool(self, call: Message) -> Message:
        decision = self._decision(call)
        if self._requires(call) and not decision.get("allow"):
            return result_of(call, f"Denied by the user. {decision.get('note', '')}".strip())
        return await super().call_tool(call)

    def _requires(self, call: Message) -> bool:
        function = call["function"]
        return self.requires_approval(function["name"], json.loads(function["arguments"]))

    def _decision(self, call: Message) -> Message:
        for record in reversed(self.log):
            if record["role"] == "decision" and record["tool_call_id"] == call["id"]:
                return record
        return {}

    def _is_undecided(self, call: Message) -> bool:
        return not self._decision(call) and self._requires(call)


# ---- sessions


class Session(Resumable):
    """Keeps the log in a file of JSON lines, so that another process can continue.

    Every record is on disk before `record` returns. After `kill -9`, `resume` continues. One
    process at a time can open a session (not checked on Windows).

    session: the path of the file, which is made if there's none.
    """

    session: str

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self._file = open(self.session, "a+b", buffering=0)  # noqa: SIM115
        if sys.platform != "win32":
            try:
                fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                self._file.close()
                raise BlockingIOError(f"session {self.session!r} is in use: close it") from None
        self._file.seek(0)
        data = self._file.read()
        complete = data.rfind(b"\n") + 1  # a crash may have left a part of a line
        self._file.truncate(complete)
        self.log = [json.loads(line) for line in data[:complete].splitlines()]

    def record(self, record: Message) -> None:
        line = json.dumps(record).encode() + b"\n"
        size = self._file.seek(0, os.SEEK_END)
        try:
            while line:
                line = line[self._file.write(line) or 0 :]
            os.fsync(self._file)
        except OSError:  # the disk is full, for example
            self._file.truncate(size)
            raise
        super().record(record)

    def close(self) -> None:
        """Close the file, so that another agent can open the session."""
        self._file.close()


# ---- streaming


class TextDelta(NamedTuple):
    """A part of the reply's text."""

    text: str


class ToolCall(NamedTuple):
    """A call of the model. When you read the event, the tool may be running already."""

    id: str
    name: str
    arguments: str  # a JSON object


class ToolResult(NamedTuple):
    """The result of a call."""

    id: str
    text: str


Event = TextDelta | ToolCall | ToolResult | Result  # a Result is the last event of a run
on_text = ContextVar[Callable[[str], None]]("on_text")  # receives the text of a streamed reply


class Streaming(Resumable):
    """Yields the events of a run. List this class last. Summaries are not streamed."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self._readers = list[asyncio.Queue[Event | None]]()

    async def query_stream(self, prompt: str | None = None) -> AsyncIterator[Event]:
        """Iterate over the events of a run. If there's no prompt, `resume`.

        If you leave the loop, the run is cancelled. If the model fails, the loop raises at the end.
        """
        queue = asyncio.Queue[Event | None]()
        task = asyncio.create_task(self.resume() if prompt is None else self.run(prompt))
        task.add_done_callback(lambda _: queue.put_nowait(None))
        self._readers.append(queue)
        try:
            while event := await queue.get():
                yield event
            yield await task
        finally:
            self._readers.remove(queue)
            await cancel_and_wait([task], self.cancel_timeout)

    async def call_model(self, request: Request) -> Message:
        is_summary = request.messages[-1].get("content") == SUMMARIZE
        token = on_text.set(ignore if is_summary else self._emit_text)
        try:
            return await super().call_model(request)
        finally:
            on_text.reset(token)

    def record(self, record: Message) -> None:
        super().record(record)
        if record["role"] == "assistant":  # the calls of a summary are not executed
            for call in record["tool_calls"]:
                self._emit(ToolCall(call["id"], **call["function"]))
        elif record["role"] == "tool":
            self._emit(ToolResult(record["tool_call_id"], record["content"]))

    def _emit_text(self, text: str) -> None:
        self._emit(TextDelta(text))

    def _emit(self, event: Event) -> None:
        for queue in self._readers:
            queue.put_nowait(event)


def ignore(text: str) -> None:
    """Discard the streamed text of a reply."""


# ---- models that stream


async def server_events(url: str, headers: dict[str, str], body: Message) -> AsyncIterator[Message]:
    """Send a request, and yield the data of the events in the response.

    It retries three times at most, and never after the first event: you may have seen its text.
    Raises ModelError.
    """
    content = json.dumps(body, ensure_ascii=False).encode(errors="replace")
    headers = {**headers, "Content-Type": "application/json"}
    for wait in (1, 2, 4, 0):  # seconds
        has_begun = False
        try:
            async with (
                httpx.AsyncClient(headers=headers, timeout=120) as client,
                client.stream("POST", url, content=content) as response,
            ):
                if response.is_success:
                    async for line in lines_of(response):
                        if line.startswith(b"data:") and line[5:].strip() != b"[DONE]":
                            has_begun = True
                            yield json.loads(line[5:])
                    return
                text = (await response.aread()).decode(errors="replace")
                failure = f"HTTP {response.status_code}: {text[:1000]}"
                if response.status_code < 500 and response.status_code != 429:
                    break
        except (httpx.TransportError, ValueError) as error:
            failure = f"no reply from {url}: {type(error).__name__}: {error}"
            if has_begun:
                break
        await asyncio.sleep(wait)
    raise ModelError(failure)


async def lines_of(response: httpx.Response) -> AsyncIterator[bytes]:
    """Yield lines that end with a line feed. httpx also splits at U+2028, which JSON may contain."""
    rest = b""
    async for chunk in response.aiter_bytes():
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            yield line
    yield rest


class ChatOpenAI(NanoOpenAI):
    """OpenAI's Chat Completions API, or a compatible server. Replies are streamed."""

    async def ainvoke(self, messages: Messages, tools: Tools = ()) -> Message:
        """Get the model's reply. Raises ModelError."""
        url = f"{self.base_url or os.environ.get('OPENAI_BASE_URL', OPENAI)}/chat/completions"
        key = self.api_key or os.environ.get("OPENAI_API_KEY")
        options = {"stream": True, "stream_options": {"include_usage": True}}
        body = {"model": self.model, "messages": messages, **options}
        if tools:
            body["tools"] = [tool.declaration for tool in tools]
        text, finish, usage = "", "", None
        calls = dict[int, Message]()
        async for data in server_events(url, {"Authorization": f"Bearer {key}"}, body):
            if "error" in data:
                raise ModelError(f"{url}: {data['error']}")
            usage = data.get("usage") or usage
            for choice in data.get("choices", ()):
                finish = choice.get("finish_reason") or finish
                delta = choice["delta"]
                if part := delta.get("content"):
                    text += part
                    on_text.get(ignore)(part)
                for part in delta.get("tool_calls") or ():
                    function = calls.setdefault(part["index"], {"name": "", "arguments": ""})
                    for key, value in part["function"].items():
                        function[key] += value or ""
        if not finish:
            raise ModelError(f"{url}: the stream ended before the reply was complete")
        tool_calls = [{"type": "function", "function": function} for function in calls.values()]
        return {"content": text, "tool_calls": tool_calls, "_finish": finish, "_usage": usage}


@dataclass(repr=False)
class ChatAnthropic:
    """Anthropic's Messages API. Replies are streamed, and requests use the prompt cache."""

    model: str
    base_url: str = ""  # or ANTHROPIC_BASE_URL in the environment
    api_key: str = ""  # or ANTHROPIC_API_KEY
    max_tokens: int = 16_000  # of a reply

    async def ainvoke(self, messages: Messages, tools: Tools = ()) -> Message:
        """Get the model's reply. Raises ModelError."""
        url = f"{self.base_url or os.environ.get('ANTHROPIC_BASE_URL', ANTHROPIC)}/v1/messages"
        key = self.api_key or os.environ.get("ANTHROPIC_API_KEY", "")
        headers = {"x-api-key": key, "anthropic-version": "2023-06-01"}
        blocks = Messages()
        finish, usage = "", Message()
        async for event in server_events(url, headers, self.body(messages, tools)):
            kind = event["type"]
            if kind == "error":
                raise ModelError(f"{url}: {event['error']}")
            if kind == "message_start":
                usage = event["message"]["usage"]
            elif kind == "content_block_start":
                blocks.append(event["content_block"] | {"arguments": ""})
            elif kind == "content_block_delta":
                delta = event["delta"]
                if part := delta.get("text"):
                    blocks[-1]["text"] += part
                    on_text.get(ignore)(part)
                blocks[-1]["arguments"] += delta.get("partial_json", "")
            elif kind == "message_delta":
                finish = event["delta"]["stop_reason"]
                usage |= event["usage"]
        if not finish:
            raise ModelError(f"{url}: the stream ended before the reply was complete")
        return as_reply(blocks, finish, usage)

    def body(self, messages: Messages, tools: Tools) -> Message:
        """The body of a request. The provider caches everything up to the two marked blocks."""
        mark = {"cache_control": {"type": "ephemeral"}}
        body: Message = {"model": self.model, "max_tokens": self.max_tokens, "stream": True}
        if messages[0]["role"] == "system":
            body["system"] = [{"type": "text", "text": messages[0]["content"], **mark}]
            messages = messages[1:]
        body["messages"] = turns = as_turns(messages)
        turns[-1]["content"][-1].update(mark)
        if tools:
            body["tools"] = [declaration(tool) for tool in tools]
        return body


def declaration(tool: Tool) -> Message:
    """Declare a tool for Anthropic."""
    parameters = tool.declaration["function"]["parameters"]
    return {"name": tool.name, "description": tool.description, "input_schema": parameters}


def as_turns(messages: Messages) -> Messages:
    """Write messages for Anthropic: lists of blocks, in turns of the user and the assistant."""
    turns = Messages()
    for message in messages:
        role = "assistant" if message["role"] == "assistant" else "user"
        blocks = Messages()
        if message["content"].strip():
            blocks.append({"type": "text", "text": message["content"]})
        if message["role"] == "tool":
            call_id = message["tool_call_id"]
            blocks = [{"type": "tool_result", "tool_use_id": call_id, "content": blocks}]
        for call in message.get("tool_calls", ()):
            function = call["function"]
            use = {"id": call["id"], "name": function["name"]}
            blocks.append({"type": "tool_use", **use, "input": json.loads(function["arguments"])})
        if turns and turns[-1]["role"] == role:
            turns[-1]["content"] += blocks
        else:
            turns.append({"role": role, "content": blocks})
    return turns


FINISH = {  # Anthropic's stop reasons, in the terms of OpenAI
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "refusal": "content_filter",
}


def as_reply(blocks: Messages, finish: str, usage: Message) -> Message:
    """Read a reply of Anthropic into the format of nano.py."""
    kinds = ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")
    prompt_tokens = sum(usage.get(kind) or 0 for kind in kinds)
    return {
        "content": "".join(block["text"] for block in blocks if block["type"] == "text"),
        "tool_calls": [
            {"function": {"name": block["name"], "arguments": block["arguments"]}}
            | {"type": "function"}
            for block in blocks
            if block["type"] == "tool_use"
        ],
        "_finish": FINISH.get(finish, finish),
        "_usage": {
            "prompt_tokens": prompt_tokens,
            "completion_tokens": usage.get("output_tokens", 0),
        },
    }


# ---- a program


class Assistant(Session, Approval, Agent, Streaming):
    """An agent with all of these features."""


@tool("Delete a file of the working folder.")
def delete(name: str) -> str:
    Path(Path(name).name).unlink()
    return f"deleted {name}"


async def main(prompt: str) -> None:
    """Answer a prompt in the terminal, and continue the session in agent.jsonl."""
    llm: ChatModel = ScriptedModel(scripted_call("delete", name="old.txt"), "old.txt is deleted.")
    if prompt and "ANTHROPIC_API_KEY" in os.environ:
        llm = ChatAnthropic(os.environ.get("ANTHROPIC_MODEL", "claude-sonnet-5"))
    elif prompt:
        llm = ChatOpenAI(os.environ.get("OPENAI_MODEL", "gpt-5.4-mini"))
    agent = Assistant(
        llm=llm,
        tools=[delete],
        session="agent.jsonl",
        requires_approval=lambda name, arguments: name == "delete",
    )
    await show(agent.query_stream(prompt or "Delete old.txt."))
    while agent.pending:
        for call in agent.pending:
            answer = await asyncio.to_thread(input, f"Run {call['function']}? [y/n] ")
            agent.decide(call["id"], allow=answer.strip().lower() == "y")
        await show(agent.query_stream())


async def show(events: AsyncIterator[Event]) -> None:
    """Print the events of a run."""
    is_streamed = False
    async for event in events:
        if isinstance(event, TextDelta):
            is_streamed = True
            print(event.text, end="", flush=True)
        elif isinstance(event, ToolCall | ToolResult):
            print(event)
        else:
            print("" if is_streamed else event.text)


if __name__ == "__main__":
    asyncio.run(main(" ".join(sys.argv[1:])))
