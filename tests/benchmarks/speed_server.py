"""A scripted Chat Completions server for the speed benchmark, in a separate process.

python -m tests.benchmarks.speed_server

Prints its port, and ends with its stdin, so that it cannot outlive its parent. With the path of a
certificate and its key, it also prints a TLS port. "GET /connections" returns the number of
connections accepted on the TLS port.
The prompt is the script TOOL-TURNS-CALLS-WAIT: TURNS turns with CALLS calls of TOOL, each reply
after WAIT ms, followed by a text that ends with "done". The turn is derived from the results in the
request, so a client that loses a result never ends. "text-0-N-WAIT", streamed, is a text in N
pieces after the first piece, which is the time of its sending; they follow WAIT ms later, at once.
"""

import asyncio
import json
import os
import re
import ssl
import sys
import threading
import time
from functools import cache

SCRIPT = re.compile(rb'"content": ?"(\w+)-(\d+)-(\d+)-(\d+)"')
JSON_HEAD = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n"
STREAM_HEAD = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
)
USAGE = {"prompt_tokens": 100, "completion_tokens": 20, "total_tokens": 120}
FRAME = {"id": "chatcmpl-1", "created": 1_700_000_000, "model": "script"}
PIECES_AT_ONCE = 64
accepted = []  # connections with TLS


def event(data):
    """Return a server-sent event as a chunk of the transfer."""
    line = b"data: " + data + b"\n\n"
    return b"%x\r\n%s\r\n" % (len(line), line)


def chunk(delta, finish=None):
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    frame = {**FRAME, "object": "chat.completion.chunk", "choices": [choice]}
    return event(json.dumps(frame).encode())


def ending(finish):
    usage = {**FRAME, "object": "chat.completion.chunk", "choices": [], "usage": USAGE}
    last = event(json.dumps(usage).encode()) + event(b"[DONE]")
    return chunk({}, finish) + last + b"0\r\n\r\n"


@cache
def reply(tool, turn, count, streamed):
    """Return a reply with calls, or the last text."""
    finish = "tool_calls" if count else "stop"
    calls = []
    for number in range(count):
        function = {"name": tool, "arguments": json.dumps({"number": number})}
        calls.append({"id": f"call_{turn}_{number}", "type": "function", "function": function})
    if streamed:  # the arguments in two pieces
        pieces = [chunk({"role": "assistant", "content": "" if count else "done"})]
        for index, call in enumerate(calls):
            function, whole = call["function"], call["function"]["arguments"]
            begun = {**call, "index": index, "function": function | {"arguments": whole[:6]}}
            rest = {"index": index, "function": {"arguments": whole[6:]}}
            pieces += [chunk({"tool_calls": [begun]}), chunk({"tool_calls": [rest]})]
        return STREAM_HEAD + b"".join(pieces) + ending(finish)
    message = {"role": "assistant", "content": None if count else "done"}
    message |= {"tool_calls": calls} if calls else {}
    choice = {"index": 0, "message": message, "finish_reason": finish}
    frame = {**FRAME, "object": "chat.completion", "choices": [choice], "usage": USAGE}
    body = json.dumps(frame).encode()
    return JSON_HEAD.format(len(body)).encode() + body


async def stream_text(writer, count, wait):
    sent_at = chunk({"role": "assistant", "content": f"{time.perf_counter_ns()} "})
    writer.write(STREAM_HEAD + sent_at)
    await asyncio.sleep(wait)
    word = chunk({"content": "word "})
    for at in range(0, count, PIECES_AT_ONCE):
        writer.write(word * min(PIECES_AT_ONCE, count - at))
        await writer.drain()
    writer.write(chunk({"content": "done"}) + ending("stop"))


async def answer(writer, body):
    script = SCRIPT.search(body)
    tool, (turns, count, wait) = script[1].decode(), map(int, script.groups()[1:])
    streamed = b'"stream":true' in body or b'"stream": true' in body
    if tool == "text" and streamed:
        await stream_text(writer, count, wait / 1000)
        return
    turn = body.count(b'"tool_call_id"') // (count or 1)
    if wait:
        await asyncio.sleep(wait / 1000)
    writer.write(reply(tool, turn, count if turn < turns else 0, streamed))
    await writer.drain()


async def count_and_serve(reader, writer):
    accepted.append(writer.get_extra_info("peername"))
    await serve(reader, writer)


async def serve(reader, writer):
    try:
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            if head.startswith(b"GET"):
                count = str(len(accepted)).encode()
                writer.write(JSON_HEAD.format(len(count)).encode() + count)
                continue
            length = re.search(rb"(?i)\r\ncontent-length: *(\d+)", head)
            await answer(writer, await reader.readexactly(int(length[1])))
    except (asyncio.IncompleteReadError, ConnectionError):
        pass  # the client has disconnected
    finally:
        writer.close()


def end_with_stdin():
    sys.stdin.read()
    os._exit(0)


async def main(certificate=None):
    server = await asyncio.start_server(serve, "127.0.0.1", 0, limit=2**20, backlog=1024)
    ports = [server.sockets[0].getsockname()[1]]
    if certificate:
        tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        tls.load_cert_chain(certificate)
        secure = await asyncio.start_server(
            count_and_serve, "127.0.0.1", 0, limit=2**20, backlog=1024, ssl=tls
        )
        ports.append(secure.sockets[0].getsockname()[1])
    print(*ports, flush=True)
    threading.Thread(target=end_with_stdin, daemon=True).start()
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
