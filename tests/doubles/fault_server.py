"""A loopback server with scripted faults: one script for each accepted connection.

    async with FaultServer([send(b"HTTP/1.1 200 OK\\r\\n"), rst()], [send(answer)]) as server:
        ...  # server.url, server.requests

A script runs after the first request of its connection was read. The steps `send`, `rst` and others
act on the connection; `request()` reads another request of the connection.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import struct
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Any, Self, TypeAlias


class Loopback:
    """A server on a free loopback port; `talk` handles a connection."""

    def __init__(self) -> None:
        self.connections = 0
        self._tasks: set[asyncio.Task[Any]] = set()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, backlog=4096)
        self.port = self._server.sockets[0].getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}/v1"
        return self

    async def __aexit__(self, *error: object) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        task = asyncio.create_task(self._run(Connection(self, reader, writer)))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        task.add_done_callback(lambda _: writer.close())

    async def _run(self, connection: Connection) -> None:
        with suppress(ConnectionError, asyncio.IncompleteReadError):  # the client has disconnected
            await self.talk(connection)

    async def talk(self, connection: Connection) -> None:
        raise NotImplementedError


class Connection:
    def __init__(
        self, server: Any, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self.server, self.reader, self.writer = server, reader, writer

    async def read(self) -> tuple[str, dict[str, str], bytes]:
        """Read a request: the first line, the headers, the body."""
        head = await self.reader.readuntil(b"\r\n\r\n")
        first, *lines = head.decode("latin-1").split("\r\n")[:-2]
        pairs = (line.partition(":") for line in lines)
        headers = {name.lower(): value.strip() for name, _, value in pairs}
        return first, headers, await self.reader.readexactly(int(headers.get("content-length", 0)))

    async def read_request(self) -> None:
        self.server.requests.append((await self.read())[1:])

    async def write(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()


Step: TypeAlias = Callable[[Connection], Awaitable[None]]


class FaultServer(Loopback):
    """A server with scripted faults. `requests` are pairs of headers and body."""

    def __init__(self, *scripts: list[Step]) -> None:
        super().__init__()
        self.scripts = list(scripts)
        self.requests: list[tuple[dict[str, str], bytes]] = []

    async def talk(self, connection: Connection) -> None:
        script = self.scripts.pop(0) if self.scripts else []
        await connection.read_request()
        for step in script:
            await step(connection)


def send(data: bytes) -> Step:
    return lambda connection: connection.write(data)


def request() -> Step:
    """Wait for the next request on this connection."""
    return Connection.read_request


def rst() -> Step:
    """Reset the connection: the client loses unread data."""

    async def step(connection: Connection) -> None:
        raw = connection.writer.get_extra_info("socket")
        linger = struct.pack("hh" if os.name == "nt" else "ii", 1, 0)
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        connection.writer.transport.abort()

    return step


def fin() -> Step:
    async def step(connection: Connection) -> None:
        connection.writer.close()

    return step


def stall() -> Step:
    """Send nothing more, and leave the connection open."""

    async def step(connection: Connection) -> None:
        await asyncio.Event().wait()

    return step


def answer(
    body: Any,
    status: int = 200,
    headers: Mapping[str, str] | None = None,
    kind: str = "application/json",
) -> bytes:
    """Return a complete HTTP response; values other than text and bytes become JSON."""
    if not isinstance(body, bytes):
        body = (body if isinstance(body, str) else json.dumps(body)).encode()
    fields = {"content-type": kind, "content-length": str(len(body)), **(headers or {})}
    head = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
    return f"HTTP/1.1 {status} Status\r\n{head}\r\n".encode() + body


def stream_head() -> bytes:
    """Return the head of a chunked response."""
    fields = "content-type: text/event-stream\r\ntransfer-encoding: chunked"
    return f"HTTP/1.1 200 OK\r\n{fields}\r\n\r\n".encode()


def chunk(data: bytes) -> bytes:
    """Return a chunk of a chunked body; an empty chunk ends the body."""
    return f"{len(data):x}\r\n".encode() + data + b"\r\n"


def stream(*events: Any) -> bytes:
    """Return a complete streamed response of Chat Completions."""
    lines = [*map(json.dumps, events), "[DONE]"]
    content = "".join(f"data: {line}\n\n" for line in lines).encode()
    return stream_head() + chunk(content) + chunk(b"")
