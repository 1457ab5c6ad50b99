"""A server on loopback that plays a script over three wires: HTTP and streams are real.

Copy with: cli/wires.py.

    with loopback([[("add", {"a": 2, "b": 3})], "It is 5."]) as base_url:
        ChatOpenAI("scripted", base_url=base_url)  # or ChatAnthropic, or ChatGoogle
"""

from __future__ import annotations

import json
import re
import threading
import time
from collections import Counter
from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, TypeAlias

from .wires import JSON, WIRES, Reply, openai

Call: TypeAlias = tuple[str, JSON]
Turn: TypeAlias = str | Sequence[str | Call]
"""What the model says in one turn: text, calls as (tool, arguments), or both."""


@contextmanager
def loopback(
    script: Sequence[Turn], *, bodies: list[bytes] | None = None, pause: float = 0.0
) -> Generator[str]:
    """Serves the script, on a free port of 127.0.0.1; gives the base URL for a chat model.

    Which turn is due is the number of the model's messages in the request. Like the providers, it
    refuses a request in which a call has no result, or two.

    bodies: gets the body of each request, as it came.
    pause: seconds from one piece of a streamed reply to the next.
    """

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            content = self.rfile.read(int(self.headers["Content-Length"]))
            if bodies is not None:
                bodies.append(content)
            path, body = self.path.partition("?")[0], json.loads(content)
            write = next((WIRES[end] for end in WIRES if path.endswith(end)), None)
            messages: list[JSON] = body.get("messages") or body.get("contents") or []
            turn = sum(message["role"] in ("assistant", "model") for message in messages)
            ids = Counter(re.findall(rb'"(call_\d+_\d+)"', content))
            if write is None or turn >= len(script):
                return self.send_error(400, "the script ends before this request")
            if any(count != 2 for count in ids.values()):
                return self.send_error(400, f"not one result for each call: {dict(ids)}")
            whole, events = write(_reply(script[turn], turn, len(content) // 4))
            if body.get("stream") or "stream" in path:
                end = ["data: [DONE]\n\n"] * (write is openai)
                return self._send("text/event-stream", *map(_sse, events), *end)
            return self._send("application/json", json.dumps(whole))

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
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()


def _reply(turn: Turn, number: int, tokens_in: int) -> Reply:
    said = [turn] if isinstance(turn, str) else turn
    text = "".join(each for each in said if isinstance(each, str))
    asked = [each for each in said if not isinstance(each, str)]
    calls = [(f"call_{number}_{i}", *call) for i, call in enumerate(asked)]
    words = re.findall(r"\S+\s*|\s+", text)
    return Reply(words, calls, tokens_in, len(json.dumps([text, calls])) // 4)


def _sse(event: JSON) -> str:
    """A server-sent event. Those of Anthropic have names."""
    name = f"event: {event['type']}\n" if "type" in event else ""
    return f"{name}data: {json.dumps(event)}\n\n"
