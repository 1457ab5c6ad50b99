"""A hostile MCP server on stdin and stdout: `python mcp_server.py MODE PIDFILE`.

Implements the protocol by hand, in order to violate it. PIDFILE receives the process ids, one per
line. MODE "newest": only version 2026-07-28, with questions to the user. "oldest": exits on a
request for that version. "restless": announces new tools at each listing, whose number is a
description. "tools": 20,000 tools. "descriptions": 20 MB of text. "schemas": unusable tools.
"""

import base64
import json
import os
import signal
import subprocess
import sys
import time

mode, pids = sys.argv[1], sys.argv[2]
with open(pids, "a") as file:
    print(os.getpid(), file=file)

TOOLS = [
    {"name": "echo", "description": "Echo.", "inputSchema": {"type": "object"}},
    {"name": "a.b", "inputSchema": {"type": "object"}, "annotations": {"readOnlyHint": True}},
    {"name": "a_b", "inputSchema": {"type": "object"}},
    {"name": "x" * 80, "inputSchema": {"type": "object"}},
    {"name": "a_b", "inputSchema": {"type": "object"}},  # a duplicate
]
if mode == "tools":
    TOOLS = [TOOLS[0] | {"name": f"tool{number}"} for number in range(20_000)]
if mode == "restless":
    TOOLS[0]["description"] = "0"
if mode == "descriptions":
    TOOLS = [TOOLS[0]] + [
        TOOLS[0] | {"name": f"t{n}", "description": "x" * 10**6} for n in range(20)
    ]
if mode == "schemas":
    bad = [None, "text", [], {"type": "string"}, {"properties": {"a": {"enum": 5}}}]
    bad.append({"type": "object", "properties": {"a": {"type": "object", "properties": None}}})
    good = {"type": "object", "properties": None, "required": None}
    TOOLS = [TOOLS[0], TOOLS[0] | {"name": "nulls", "inputSchema": good}, "no tool", {"name": 5}]
    deep = {"type": "string"}
    for _ in range(40):
        deep = {"type": "object", "properties": {"a": deep}, "required": ["a"]}
    TOOLS.append({"name": "deep", "inputSchema": deep})
    TOOLS += [{"name": f"bad{number}", "inputSchema": schema} for number, schema in enumerate(bad)]
PIXEL = base64.b64encode(b"pixel").decode()
PNG = {"uri": "a://b", "blob": PIXEL, "mimeType": "image/png"}
RESULTS = {
    "texts": {"content": [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]},
    "image": {"content": [{"type": "image", "data": PIXEL, "mimeType": "image/png"}]},
    "structured": {"content": [], "structuredContent": {"n": 1}},
    "images": {
        "content": [
            *[{"type": "image", "data": PIXEL, "mimeType": "image/png"}] * 100,
            {"type": "text", "text": "after them"},
        ]
    },
    "broken": {
        "content": [
            {"type": "image", "data": "A", "mimeType": "image/png"},
            {"type": "text", "text": "after it"},
        ]
    },
    "svg": {"content": [{"type": "image", "data": PIXEL, "mimeType": "image/svg+xml"}]},
    "sound": {"content": [{"type": "audio", "data": PIXEL, "mimeType": "audio/wav"}]},
    "huge": {"content": [{"type": "image", "data": "AAAA" * 2_000_000, "mimeType": "image/png"}]},
    "long": {"content": [{"type": "text", "text": "x" * 2_000_000}]},
    "blob": {"content": [{"type": "resource", "resource": {"uri": "a://b", "blob": PIXEL}}]},
    "picture": {"content": [{"type": "resource", "resource": PNG}]},
    "nested": {"content": [{"type": "resource", "resource": {"uri": "a://b", "text": "in it"}}]},
    "empty": {"content": [], "isError": True},
    "link": {"content": [{"type": "resource_link", "uri": "file:///a.txt", "name": "a"}]},
    "error": {"content": [{"type": "text", "text": "no such file"}], "isError": True},
    "env": {"content": [{"type": "text", "text": json.dumps(dict(os.environ))}]},
    "args": {"content": [{"type": "text", "text": " ".join(sys.argv[3:])}], "isError": True},
}


listening = []  # the ids of requests that wait for changes, in the newest version


def send(message):
    print(json.dumps({"jsonrpc": "2.0"} | message), flush=True)


def answer(method, params):
    if method == "initialize":
        version = params["protocolVersion"]
        info = {"name": "fake", "version": "1"}
        return {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": info}
    if method == "tools/list":
        if len(TOOLS) > 5:
            return {"tools": TOOLS}
        if mode == "restless":
            tell_of_change()
            TOOLS[0]["description"] = str(int(TOOLS[0]["description"]) + 1)
            return {"tools": TOOLS[:1]}
        first = 2 * ("cursor" in params)
        return {"tools": TOOLS[first:][:3]} | ({} if first else {"nextCursor": "2"})
    if method == "tools/call":
        kind = params.get("arguments", {}).get("kind", "texts")
        if kind == "die":
            print(f"dying with {os.environ.get('KEY')}", file=sys.stderr, flush=True)
            os._exit(3)
        if kind == "hang":
            time.sleep(600)
        if kind == "change":
            TOOLS[:] = [TOOLS[0] | {"description": "Echo louder."}]
            tell_of_change()
        if kind == "parts":
            return {"content": [{"type": "text", "text": "x"}] * 300_000}
        if kind == "flood":
            flood()
        if kind == "half an emoji":
            return {"content": [{"type": "text", "text": "half \ud83d emoji"}]}
        if kind == "debug":
            print('got {"jsonrpc": "2.0", "method": "tools/call"}', flush=True)
            print('{"jsonrpc": "2.0", "result": {}}', flush=True)
            print('{"jsonrpc":' + "[" * 100_000, flush=True)
        return RESULTS.get(kind, RESULTS["texts"])
    return None


def flood():
    """Print 150 MB without a line end, then a line end."""
    print('{"jsonrpc": "2.0", "result": "', end="")
    for _ in range(150):
        sys.stdout.write("x" * 1_000_000)
    print('"}', flush=True)


def tell_of_change():
    changed = {"method": "notifications/tools/list_changed"}
    if mode != "newest":
        send(changed)
    for listener in listening:  # in the newest version, only listeners are notified
        send(changed | {"params": {"_meta": {SUBSCRIPTION: listener}}})


VERSION = "2026-07-28"
SUBSCRIPTION = "io.modelcontextprotocol/subscriptionId"
COMPLETE = {"resultType": "complete", "ttlMs": 0, "cacheScope": "public"}


def form(message, **properties):
    schema = {"type": "object", "properties": properties, "required": [*properties]}
    params = {"mode": "form", "message": message, "requestedSchema": schema}
    return {"method": "elicitation/create", "params": params}


def link(url):
    params = {"mode": "url", "message": "Please log in.", "url": url}
    return {"method": "elicitation/create", "params": params}


DATE = {"type": "string", "description": "for example tomorrow"}
QUESTIONS = {  # the rounds of questions of a call
    "form": [{"when": form("Which date?", date=DATE, guests={"type": "integer"})}],
    "one": [{"when": form("Which date?", date=DATE)}],
    "number": [{"when": form("How many?", guests={"type": "integer"})}],
    "confirm": [{"when": form("Really?")}],
    "url": [{"login": link("https://bank.example/login?id=7")}],
    "two": [{"a": form("First?", a=DATE), "b": form("Second?", b=DATE)}],
    "rounds": [{"a": form("First?", a=DATE)}, {"b": form("Second?", b=DATE)}],
    "again": [{}],
    "endless": [{}] * 10_000,
    "script": [{"login": link("javascript:alert(1)")}],
    "sampling": [
        {"x": {"method": "sampling/createMessage", "params": {"messages": [], "maxTokens": 9}}}
    ],
    "bad": [{"x": form("Bad?", date={"enum": 5})}],
    "large": [{"x": form("x" * 300_000, date={"enum": 5})}],  # its size is checked first
    "kill": [{"when": form("Which date?", date=DATE)}],
}
requests = 0  # calls of tools


def ask_or_answer(params):
    """Return the next round of questions, all answers, or nothing (the process exits)."""
    global requests
    requests += 1
    kind = params["arguments"].get("kind", "")
    rounds = QUESTIONS.get(kind)
    if rounds is None:
        return answer("tools/call", params)
    number, answers = json.loads(params.get("requestState") or "[0, {}]")
    if number:
        assert (params.get("inputResponses") or {}).keys() == rounds[number - 1].keys()
        answers |= params.get("inputResponses") or {}
        if kind == "kill":
            os._exit(3)
    if number < len(rounds):
        inputs = {"inputRequests": rounds[number]} if rounds[number] else {}
        state = json.dumps([number + 1, answers])
        return {"resultType": "input_required", "requestState": state, **inputs}
    text = json.dumps({"requests": requests, "answers": answers})
    return {"content": [{"type": "text", "text": text}]}


def answer_newest(request):
    """Answer a request of version 2026-07-28: without a handshake, with a version per request."""
    method, params = request["method"], request.get("params", {})
    if method == "initialize":
        data = {"supported": [VERSION], "requested": params["protocolVersion"]}
        error = {"code": -32022, "message": "Unsupported protocol version", "data": data}
        send({"id": request["id"], "error": error})
    elif method == "server/discover":
        discovery = {
            "supportedVersions": [VERSION],
            "capabilities": {"tools": {"listChanged": True}},
        }
        send({"id": request["id"], "result": discovery | COMPLETE})
    elif method == "subscriptions/listen":
        listening.append(request["id"])
        about = {
            "_meta": {SUBSCRIPTION: request["id"]},
            "notifications": {"toolsListChanged": True},
        }
        send({"method": "notifications/subscriptions/acknowledged", "params": about})
    else:
        assert params["_meta"]["io.modelcontextprotocol/protocolVersion"] == VERSION
        result = ask_or_answer(params) if method == "tools/call" else answer(method, params)
        send({"id": request["id"], "result": COMPLETE | result})


if mode == "exit":
    print("no licence found", file=sys.stderr)
    sys.exit(3)
if mode == "mute":
    time.sleep(600)
if mode == "stubborn":
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
if mode in ("stubborn", "leaves"):
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    with open(pids, "a") as file:
        print(child.pid, file=file)
for line in sys.stdin:
    request = json.loads(line)
    if mode == "noise":
        print("starting up ...", flush=True)
        sys.stdout.buffer.write(b"\xff\xfe not text\n")
        sys.stdout.flush()
    if mode == "oldest" and request["method"] == "server/discover":
        sys.exit("expected an initialize request")
    if "id" not in request:
        continue
    if mode == "newest":
        answer_newest(request)
        continue
    result = answer(request["method"], request.get("params", {}))
    if result is None:
        error = {"code": -32601, "message": f"no method {request['method']}"}
        send({"id": request["id"], "error": error})
    else:
        send({"id": request["id"], "result": result})
while mode == "stubborn":
    time.sleep(600)
