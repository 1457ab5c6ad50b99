"""A server on loopback that plays a script over Chat Completions: HTTP and streams are real.

Copy with: nothing else.

    with loopback([[("add", {"a": 2, "b": 3})], "It is 5."]) as base_url:
        ChatOpenAI("scripted", base_url=base_url)
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

JSON: TypeAlias = dict[str, Any]
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
            body = json.loads(content)
            turn = sum(message["role"] == "assistant" for message in body["messages"])
            ids = Counter(re.findall(rb'"(call_\d+_\d+)"', content))
            if turn >= len(script):
                self.send_error(400, "the script ends before this request")
            elif any(count != 2 for count in ids.values()):
                self.send_error(400, f"not one result for each call: {dict(ids)}")
            else:
                self.answer(reply(script[turn], turn, len(content) // 4, body.get("stream", False)))

        def answer(self, pieces: list[str]) -> None:
            self.send_response(200)  # in HTTP/1.0, where a body lasts until the connection ends
            kind = "text/event-stream" if len(pieces) > 1 else "application/json"
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


def reply(turn: Turn, number: int, tokens_in: int, streams: bool) -> list[str]:
    """A turn as the pieces of an HTTP body.

    Source: https://platform.openai.com/docs/api-reference/chat
    """
    said = [turn] if isinstance(turn, str) else turn
    words = re.findall(r"\S+\s*|\s+", "".join(each for each in said if isinstance(each, str)))
    asked = [each for each in said if not isinstance(each, str)]
    calls: list[JSON] = [
        {"id": f"call_{number}_{i}", "type": "function", "index": i}
        | {"function": {"name": name, "arguments": json.dumps(arguments)}}
        for i, (name, arguments) in enumerate(asked)
    ]
    end = {"index": 0, "finish_reason": "tool_calls" if calls else "stop"}
    tokens_out = len(json.dumps([words, calls])) // 4
    usage = {"usage": {"prompt_tokens": tokens_in, "completion_tokens": tokens_out}}
    if not streams:
        message = {"role": "assistant", "content": "".join(words), "tool_calls": calls}
        return [json.dumps({"choices": [end | {"message": message}]} | usage)]
    deltas = [*({"content": word} for word in words), *({"tool_calls": [call]} for call in calls)]
    events: list[JSON] = [{"choices": [{"index": 0, "delta": delta}]} for delta in deltas]
    events += [{"choices": [end | {"delta": {}}]}, {"choices": []} | usage]
    return [*(f"data: {json.dumps(event)}\n\n" for event in events), "data: [DONE]\n\n"]
