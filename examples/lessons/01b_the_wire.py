"""Problem: the model of lesson 1 was a function. A real model is a server that you reach over HTTP.

You send a request and get a reply. The request has the list as JSON, the name of the model, and
your API key in a header. The reply has one message as JSON, and the number of tokens.

The lesson runs offline: a server in this program stands in for the provider. To use a real one:

    export OPENAI_BASE_URL=https://api.openai.com/v1 OPENAI_API_KEY=...
    python examples/lessons/01b_the_wire.py

OPENAI_MODEL chooses another model; local servers (llama.cpp, Ollama, vLLM) need it.

Task: let the server accept one key only, send a different key, and print the error: `401: there is
no such key`. (`urllib` raises an HTTPError, which you can read like a reply.)
"""

import json
import os
import urllib.request
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread

MESSAGE = {"role": "assistant", "content": "Yes: 20 pancakes take 10 eggs."}
ANSWER = {
    "id": "chatcmpl-1",
    "choices": [{"message": MESSAGE, "finish_reason": "stop"}],
    "usage": {"prompt_tokens": 22, "completion_tokens": 10, "total_tokens": 32},
}


class Provider(BaseHTTPRequestHandler):
    """Stands in for a provider: every request gets the same answer."""

    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.end_headers()
        self.wfile.write(json.dumps(ANSWER).encode())

    def log_message(self, *args): ...


def stand_in():
    """Start a server that answers one request, and return its address."""

    def serve():
        with server:
            server.handle_request()

    server = HTTPServer(("127.0.0.1", 0), Provider)
    Thread(target=serve, daemon=True).start()
    os.environ.setdefault("no_proxy", "127.0.0.1")
    return f"http://127.0.0.1:{server.server_port}/v1"


def ask(messages):
    """Send the messages to a server, and return its reply, as `model` did."""
    url = os.environ.get("OPENAI_BASE_URL") or stand_in()
    key = os.environ.get("OPENAI_API_KEY") or "no-key"
    name = os.environ.get("OPENAI_MODEL") or "gpt-5.4-mini"
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {key}"}
    body = json.dumps({"model": name, "messages": messages})
    print("> POST .../chat/completions\n> Content-Type: application/json")
    print(f"> Authorization: Bearer ...\n>\n> {body}")
    request = urllib.request.Request(f"{url}/chat/completions", body.encode(), headers)
    with urllib.request.urlopen(request, timeout=60) as response:
        reply = json.load(response)
        print(f"< {response.status} {response.reason}\n<\n< {json.dumps(reply)}")
    return reply["choices"][0]["message"]


if __name__ == "__main__":
    question = "There are 12 eggs. Are they enough for 20 pancakes?"
    print(ask([{"role": "user", "content": question}])["content"])
    print("Notice: the server remembers nothing, so the next request repeats the whole list.")
