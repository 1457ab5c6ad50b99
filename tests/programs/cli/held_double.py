"""A Chat Completions server whose replies a test can pause.

    hold = threading.Event()
    with HeldDouble(["one ", hold, "two"], [("read", {"path": "a"})], "done") as server: ...

A turn is a text or a list of pieces: a text, a call as (tool, arguments), an event that must be
set first, a dict with the `finish_reason` of the last chunk, a ConnectionError that breaks the
stream. [400, "message"] rejects the request. Every request is validated like at a provider.
"""

import json
import threading
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from tests.doubles.openai_double import Refused, check, parse


class HeldDouble(ThreadingHTTPServer):
    """`requests` are the parsed bodies, `refusals` the messages about invalid requests."""

    daemon_threads = True

    def __init__(self, *turns):
        super().__init__(("127.0.0.1", 0), Answer)
        self.turns, self.requests, self.refusals = list(turns), [], []
        self.models = ["first-model", "second-model"]
        self.arrived = threading.Semaphore(0)
        self.base_url = f"http://127.0.0.1:{self.server_port}/v1"

    def __enter__(self):
        threading.Thread(target=self.serve_forever, args=(0.01,), daemon=True).start()
        return self

    def __exit__(self, *error):
        self.shutdown()
        self.server_close()
        assert not self.refusals, self.refusals


def pieces(turn):
    """Yield the pieces of a turn; wait for each event before the next piece."""
    for piece in [turn] if isinstance(turn, str) else turn:
        if isinstance(piece, threading.Event):
            piece.wait(30)
        else:
            yield piece


class Answer(BaseHTTPRequestHandler):
    def do_GET(self):
        models = [{"id": name} for name in self.server.models]
        self.whole(200, {"data": models} if self.path == "/v1/models" else {})

    def do_POST(self):
        body = parse(self.rfile.read(int(self.headers["Content-Length"])))
        try:
            check(body)
        except Refused as refused:
            self.server.refusals.append(refused.message)
            return self.whole(400, {"error": {"message": refused.message}})
        self.server.requests.append(body)
        self.server.arrived.release()
        turn = self.server.turns.pop(0) if self.server.turns else "The script is over."
        with suppress(ConnectionError):  # the client may be stopped
            if isinstance(turn[0], int):
                return self.whole(turn[0], {"error": {"message": turn[1]}})
            if body.get("stream"):
                return self.stream(pieces(turn))
            choice = {"message": {"content": "".join(pieces(turn))}, "finish_reason": "stop"}
            return self.whole(200, {"choices": [choice]})

    def whole(self, status, body):
        self.start(status, "application/json")
        self.wfile.write(json.dumps(body).encode())

    def stream(self, pieces):
        self.start(200, "text/event-stream")
        calls, ends = [], {}
        for piece in pieces:
            if isinstance(piece, ConnectionError):
                raise piece
            if isinstance(piece, str):
                self.event({"content": piece})
            elif isinstance(piece, dict):
                ends = piece
            else:
                call_id = f"call_{len(self.server.requests)}_{len(calls)}"
                function = {"name": piece[0], "arguments": json.dumps(piece[1])}
                calls.append({"index": len(calls), "id": call_id, "function": function})
                self.event({"tool_calls": calls[-1:]})
        self.event({}, ends.get("finish_reason", "tool_calls" if calls else "stop"))
        self.wfile.write(b"data: [DONE]\n\n")

    def event(self, delta, finish=None):
        choice = {"index": 0, "delta": delta, "finish_reason": finish}
        self.wfile.write(f"data: {json.dumps({'choices': [choice]})}\n\n".encode())
        self.wfile.flush()

    def start(self, status, kind):
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.end_headers()

    def log_message(self, format, *args):
        pass
