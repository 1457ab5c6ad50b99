"""A Chat Completions server on loopback that plays a script: HTTP and streams are real.

Copy with: nothing else.

    with loopback([[("add", {"a": 2, "b": 3})], "It is 5."]) as base_url:
        ChatOpenAI("scripted", base_url=base_url)
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, TypeAlias

Turn: TypeAlias = str | Sequence[tuple[str, dict[str, Any]]]
"""What the model says in one turn: text, or calls as (tool, arguments)."""


@contextmanager
def loopback(script: Sequence[Turn]) -> Iterator[str]:
    """Serves the script, on a free port of 127.0.0.1; gives the base URL for a chat model.

    Which turn is due is the number of assistant messages that the request holds.
    """

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            turn = sum(message["role"] == "assistant" for message in body["messages"])
            if not self.path.endswith("/chat/completions") or turn >= len(script):
                return self.send_error(404, "the script ends before this request")
            message = _message(script[turn], turn)
            usage = _usage(body, message)
            if body.get("stream"):
                chunks: list[dict[str, Any]] = [
                    {"choices": [{"index": 0, "delta": delta}]} for delta in _deltas(message)
                ]
                end = {"index": 0, "delta": {}, "finish_reason": _finish(message)}
                chunks += [{"choices": [end]}, {"choices": [], "usage": usage}]
                lines = [f"data: {json.dumps(chunk)}\n\n" for chunk in chunks]
                return self._send("text/event-stream", "".join([*lines, "data: [DONE]\n\n"]))
            choice = {"index": 0, "message": message, "finish_reason": _finish(message)}
            reply = {"object": "chat.completion", "choices": [choice], "usage": usage}
            return self._send("application/json", json.dumps(reply))

        def _send(self, kind: str, text: str) -> None:
            self.send_response(200)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(text.encode())))
            self.end_headers()
            self.wfile.write(text.encode())

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
    if isinstance(turn, str):
        return {"role": "assistant", "content": turn}
    calls = [
        {
            "id": f"call_{number}_{i}",
            "type": "function",
            "function": {"name": name, "arguments": json.dumps(arguments)},
        }
        for i, (name, arguments) in enumerate(turn)
    ]
    return {"role": "assistant", "content": None, "tool_calls": calls}


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
