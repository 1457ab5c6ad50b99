"""An HTTP server with scripted responses that records its requests."""

import asyncio
import json
from contextlib import asynccontextmanager


class Server:
    """Responds to each request with `answer`, and records the requests."""

    def __init__(self):
        self.answer = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n{}"
        self.got = []
        self.connections = 0

    async def serve(self, reader, writer):
        self.connections += 1
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
            first, *lines = head.strip().split("\r\n")
            headers = {name.lower(): value for name, value in (x.split(": ", 1) for x in lines)}
            body = await reader.readexactly(int(headers.get("content-length", 0)))
            self.got.append((first, headers, json.loads(body) if body else None))
            assert len(headers) == len(lines)
            writer.write(self.answer)
            await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    def reply(self, status="200 OK", body=b"{}", **headers):
        headers = {"content_type": "application/json", **headers}
        lines = [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
        head = "\r\n".join([f"HTTP/1.1 {status}", *lines])
        self.answer = f"{head}\r\n\r\n".encode() + body


@asynccontextmanager
async def serving(**options):
    server = Server()
    running = await asyncio.start_server(server.serve, "127.0.0.1", 0, **options)
    server.port = running.sockets[0].getsockname()[1]
    server.url = f"http://127.0.0.1:{server.port}"
    try:
        yield server
    finally:
        running.close()
