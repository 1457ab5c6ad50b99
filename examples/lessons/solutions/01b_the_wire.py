"""Task: let the server accept one key only, send a different key, and print the error."""

import json
import os
import urllib.error
import urllib.request
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread

KEY = "pancakes"


class Provider(BaseHTTPRequestHandler):
    """Simulates a provider with a single valid key."""

    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        if self.headers["Authorization"] == f"Bearer {KEY}":
            message = {"role": "assistant", "content": "Yes: 20 pancakes take 10 eggs."}
            self.answer(200, {"choices": [{"message": message}]})
        else:
            self.answer(401, {"error": {"message": "there is no such key"}})

    def answer(self, status, body):
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.end_headers()
        self.wfile.write(json.dumps(body).encode())

    def log_message(self, *args):
        """Print nothing."""


def model(messages, url, key):
    """Send the messages to a server. Return the text of the answer, or of the HTTP error."""
    body = json.dumps({"model": "gpt-5.4-mini", "messages": messages}).encode()
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {key}"}
    request = urllib.request.Request(f"{url}/chat/completions", body, headers, method="POST")
    try:
        with urllib.request.urlopen(request, timeout=60) as response:
            return json.load(response)["choices"][0]["message"]["content"]
    except urllib.error.HTTPError as error:
        with error:
            return f"{error.code}: {json.load(error)['error']['message']}"


if __name__ == "__main__":
    os.environ.setdefault("no_proxy", "127.0.0.1")
    server = HTTPServer(("127.0.0.1", 0), Provider)
    Thread(target=server.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{server.server_port}/v1"
    for key in ("waffles", KEY):
        print(model([{"role": "user", "content": "Are 12 eggs enough?"}], url, key))
    server.shutdown()
    server.server_close()
    print("Notice: an error is also a reply, with a status and a body that explains the error.")
