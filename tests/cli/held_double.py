"""A Chat Completions server whose replies can be held in the middle, at the hands of a test.

    hold = threading.Event()
    with HeldDouble(["one ", hold, "two"], [("read", {"path": "a"})], "done") as server: ...

A turn is a text, or a list of pieces: texts, calls as (tool, arguments), events that are waited
for, other deltas. [400, "why"] refuses. Each request is checked as a provider checks it.
"""

import json
import threading
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from tests.doubles.openai_double import Refused, check, parse


class HeldDouble:
    """`requests` are the parsed bodies, `refusals` what no provider would take."""

    def __init__(self, *turns, models=("m",), listing=None):
        self.turns, self.requests, self.refusals, self.headers = list(turns), [], [], []
        self.listing = listing or json.dumps({"data": [{"id": name} for name in models]})
        self.arrived = threading.Semaphore(0)

    def __enter__(self):
        double = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                double.headers.append(dict(self.headers))
                self.reply(200, double.listing)

            def do_POST(self):
                body = parse(self.rfile.read(int(self.headers["Content-Length"])))
                try:
                    check(body)
                except Refused as refused:
                    double.refusals.append(refused.message)
                    return self.reply(400, json.dumps({"error": {"message": refused.message}}))
                double.requests.append(body)
                double.arrived.release()
                turn = double.turns.pop(0) if double.turns else "The script is over."
                with suppress(ConnectionError):  # it may have been stopped
                    if not body.get("stream"):
                        message = {"role": "assistant", "content": turn}
                        choice = {"index": 0, "message": message, "finish_reason": "stop"}
                        return self.reply(200, json.dumps({"choices": [choice]}))
                    self.stream([turn] if isinstance(turn, str) else turn)
                return None

            def stream(self, turn):
                if isinstance(turn[0], int):
                    return self.reply(turn[0], json.dumps({"error": {"message": turn[1]}}))
                self.start(200, "text/event-stream")
                calls = 0
                for piece in turn:
                    if isinstance(piece, threading.Event):
                        piece.wait(30)
                    elif isinstance(piece, str):
                        self.event({"content": piece})
                    elif isinstance(piece, dict):
                        self.event(piece)
                    else:
                        call = {
                            "index": calls,
                            "id": f"call_{len(double.requests)}_{calls}",
                            "function": {"name": piece[0], "arguments": json.dumps(piece[1])},
                        }
                        self.event({"tool_calls": [call]})
                        calls += 1
                self.event({}, "tool_calls" if calls else "stop")
                self.wfile.write(b"data: [DONE]\n\n")
                return None

            def event(self, delta, finish=None):
                choice = {"index": 0, "delta": delta, "finish_reason": finish}
                self.wfile.write(f"data: {json.dumps({'choices': [choice]})}\n\n".encode())
                self.wfile.flush()

            def reply(self, status, text):
                self.start(status, "application/json")
                self.wfile.write(text.encode())

            def start(self, status, kind):
                self.send_response(status)
                self.send_header("Content-Type", kind)
                self.end_headers()

            def log_message(self, format, *args):
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True).start()
        self.port = self.server.server_address[1]
        self.base_url = f"http://127.0.0.1:{self.port}/v1"
        return self

    def __exit__(self, *error):
        self.server.shutdown()
        self.server.server_close()
        assert not self.refusals, self.refusals
