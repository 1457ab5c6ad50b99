"""A server on this machine that replays a script over Chat Completions, with real HTTP and streams.

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

Call: TypeAlias = tuple[str, dict[str, Any]]
Turn: TypeAlias = str | Sequence[str | Call]
"""The reply of the model in one turn: text, calls as (tool, arguments), or both."""


@contextmanager
def loopback(script: Sequence[Turn], pause: float = 0.0) -> Generator[str]:
    """Serve the script on a free port of 127.0.0.1, and yield the base URL for a chat model.

    pause: seconds between words.

    How many messages of the model are in the request says which turn comes next. Like a provider,
    the server refuses a request in which a call has no result, or several.
    """

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            content = self.rfile.read(int(self.headers["Content-Length"]))
            turn = sum(m["role"] == "assistant" for m in json.loads(content)["messages"])
            ids = Counter(re.findall(rb'"(call_\d+_\d+)"', content))
            if turn >= len(script) or {*ids.values()} - {2}:
                self.send_error(
                    400, "the script has ended, or a call does not have exactly one result"
                )
                return
            self.send_response(200)  # HTTP/1.0: the end of the connection ends the body
            self.send_header("Content-Type", "text/event-stream")
            self.end_headers()
            with suppress(ConnectionError):  # the client may disconnect
                for event in stream_of(script[turn], turn, len(content)):
                    self.wfile.write(f"data: {event}\n\n".encode())
                    time.sleep(pause)

        def log_message(self, format: str, *args: Any) -> None:
            """Disable logging."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()


def stream_of(turn: Turn, number: int, size: int) -> Generator[str]:
    """Yield the events of a turn. `size` is the length of the request; a token has 4 characters.

    Source: https://platform.openai.com/docs/api-reference/chat
    """
    deltas = list[dict[str, Any]]()
    for index, part in enumerate([turn] if isinstance(turn, str) else turn):
        if isinstance(part, str):
            deltas += [{"content": word} for word in re.findall(r"\s*\S+\s*", part)]
        else:
            function = {"name": part[0], "arguments": json.dumps(part[1])}
            call = {"index": index, "id": f"call_{number}_{index}", "function": function}
            deltas.append({"tool_calls": [call]})
    for delta in deltas:
        yield json.dumps({"choices": [{"index": 0, "delta": delta}]})
    usage = {"prompt_tokens": size // 4, "completion_tokens": len(str(deltas)) // 4}
    reason = "tool_calls" if "tool_calls" in deltas[-1] else "stop"
    end: Any = {"index": 0, "delta": {}, "finish_reason": reason}
    yield json.dumps({"choices": [end], "usage": usage})
    yield "[DONE]"
