"""A Chat Completions server on loopback that plays a script: HTTP and streams are real.

Copy with: nothing else.

    with loopback([[("add", {"a": 2, "b": 3})], "It is 5."]) as base_url:
        ChatOpenAI("scripted", base_url=base_url)
"""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, TypeAlias

Call: TypeAlias = tuple[str, dict[str, Any]]
Turn: TypeAlias = str | Sequence[str | Call]
"""What the model says in one turn: text, calls as (tool, arguments), or both."""


@contextmanager
def loopback(
    script: Sequence[Turn], *, bodies: list[bytes] | None = None, pause: float = 0.0
) -> Generator[str]:
    """Serves the script, on a free port of 127.0.0.1; gives the base URL for a chat model.

    Which turn is due is the number of assistant messages that the request holds.

    bodies: gets the body of each request, as it came.
    pause: seconds from one piece of a streamed reply to the next.
    """

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            content = self.rfile.read(int(self.headers["Content-Length"]))
            body = json.loads(content)
            if bodies is not None:
                bodies.append(content)
            turn = sum(message["role"] == "assistant" for message in body["messages"])
            if not self.path.endswith("/chat/completions") or turn >= len(script):
                return self.send_error(404, "the script ends before this request")
            message = _message(script[turn], turn)
            usage = _usage(body, message)
            if body.get("stream"):
                chunks: list[dict[str, Any]] = [
                    {"choices": [{"index": 0, "delta": delta}]} for delta in _deltas(message)
                ]
                end: dict[str, Any] = {"index": 0, "delta": {}, "finish_reason": _finish(message)}
                chunks += [{"choices": [end]}, {"choices": [], "usage": usage}]
                lines = [f"data: {json.dumps(chunk)}\n\n" for chunk in chunks]
                return self._send("text/event-stream", *lines, "data: [DONE]\n\n")
            choice = {"index": 0, "message": message, "finish_reason": _finish(message)}
            reply = {"object": "chat.completion", "choices": [choice], "usage": usage}
            return self._send("application/json", json.dumps(reply))

        def _send(self, kind: str, *pieces: str) -> None:
            self.send_response(200)  # in HTTP/1.0, where a body lasts until the connection ends
            self.send_header("Content-Type", kind)
            self.end_headers()
            with suppress(ConnectionError):  # who reads may leave in the middle
                for piece in pieces:
                    self.wfile.write(piece.encode())
                    time.sleep(pause)

        def log_message(self, format: str, *args: Any) -> None:
            """Quiet."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/v1"
    finally:
        server.shutdown()
        server.server_close()


def _message(turn: Turn, number: int) -> dict[str, Any]:
    said = [turn] if isinstance(turn, str) else turn
    text = "".join(each for each in said if isinstance(each, str))
    message: dict[str, Any] = {"role": "assistant", "content": text or None}
    calls = [
        {
            "id": f"call_{number}_{i}",
            "type": "function",
            "function": {"name": name, "arguments": json.dumps(arguments)},
        }
        for i, (name, arguments) in enumerate(each for each in said if not isinstance(each, str))
    ]
    return message | {"tool_calls": calls} if calls else message


def _deltas(message: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """A reply as a stream brings it: text word by word, arguments in two pieces."""
    yield {"role": "assistant", "content": ""}
    for piece in re.findall(r"\S+\s*|\s+", message["content"] or ""):
        yield {"content": piece}
    for i, call in enumerate(message.get("tool_calls", ())):
        text = call["function"]["arguments"]
        head = call["function"] | {"arguments": text[: len(text) // 2]}
        yield {"tool_calls": [call | {"index": i, "function": head}]}
        yield {"tool_calls": [{"index": i, "function": {"arguments": text[len(text) // 2 :]}}]}


def _finish(message: dict[str, Any]) -> str:
    return "tool_calls" if message.get("tool_calls") else "stop"


def _usage(body: dict[str, Any], message: dict[str, Any]) -> dict[str, int]:
    """About what a tokenizer would say: a token for four characters."""
    return {
        "prompt_tokens": len(json.dumps([body["messages"], body.get("tools")])) // 4,
        "completion_tokens": len(json.dumps(message)) // 4,
    }
