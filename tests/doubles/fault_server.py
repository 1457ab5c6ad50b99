"""A raw loopback server that misbehaves on cue: one script for each accepted connection.

    async with FaultServer([send(b"HTTP/1.1 200 OK\\r\\n"), rst()], [send(answer)]) as server:
        ...  # server.url, server.requests

Each script runs once the request on its connection was read (`send`, `split`, ... then act on
the connection), and `request()` in a script reads one more, on the same connection.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import struct
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeAlias

Step: TypeAlias = Callable[["Connection"], Awaitable[None]]


class Connection:
    def __init__(
        self, server: FaultServer, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self.server, self.reader, self.writer = server, reader, writer

    async def read_request(self) -> None:
        head = await self.reader.readuntil(b"\r\n\r\n")
        headers: dict[str, str] = {}
        for line in head.decode("latin-1").split("\r\n")[1:-2]:
            name, _, value = line.partition(":")
            headers[name.lower()] = value.strip()
        body = await self.reader.readexactly(int(headers.get("content-length", 0)))
        self.server.requests.append((headers, body))


class FaultServer:
    def __init__(self, *scripts: list[Step]) -> None:
        self.scripts = list(scripts)
        self.requests: list[tuple[dict[str, str], bytes]] = []
        self.connections = 0
        self._tasks: set[asyncio.Task[Any]] = set()

    async def __aenter__(self) -> FaultServer:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}/v1"
        return self

    async def __aexit__(self, *error: object) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    @property
    def bodies(self) -> list[Any]:
        return [json.loads(body) for _, body in self.requests]

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        self.connections += 1
        script = self.scripts.pop(0) if self.scripts else []
        connection = Connection(self, reader, writer)
        try:
            await connection.read_request()
            for step in script:
                await step(connection)
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass  # the client has gone, or the test is over
        finally:
            writer.close()


def send(data: bytes) -> Step:
    async def step(connection: Connection) -> None:
        connection.writer.write(data)
        await connection.writer.drain()

    return step


def split(data: bytes, every: int = 1) -> Step:
    """Sends the bytes a few at a time; the client gets the chance to read in between."""

    async def step(connection: Connection) -> None:
        for start in range(0, len(data), every):
            connection.writer.write(data[start : start + every])
            await connection.writer.drain()
            await asyncio.sleep(0)

    return step


def request() -> Step:
    """Waits for the next request on this connection."""
    return Connection.read_request


def wait(event: asyncio.Event) -> Step:
    async def step(connection: Connection) -> None:
        await event.wait()

    return step


def tell(event: asyncio.Event) -> Step:
    async def step(connection: Connection) -> None:
        event.set()

    return step


def rst() -> Step:
    """Resets the connection: the other side loses what it has not read yet."""

    async def step(connection: Connection) -> None:
        raw = connection.writer.get_extra_info("socket")
        raw.setsockopt(
            socket.SOL_SOCKET,
            socket.SO_LINGER,
            struct.pack("hh" if os.name == "nt" else "ii", 1, 0),
        )
        connection.writer.transport.abort()

    return step


def fin() -> Step:
    async def step(connection: Connection) -> None:
        connection.writer.close()

    return step


def stall() -> Step:
    """Says nothing more, and leaves the connection open."""

    async def step(connection: Connection) -> None:
        await asyncio.Event().wait()

    return step


def answer(
    body: bytes | str | Any,
    status: int = 200,
    headers: Mapping[str, str] | None = None,
    kind: str = "application/json",
) -> bytes:
    """A whole HTTP response; anything but text and bytes is written as JSON."""
    if isinstance(body, str):
        body = body.encode()
    elif not isinstance(body, bytes):
        body = json.dumps(body).encode()
    fields = {"content-type": kind, "content-length": str(len(body)), **(headers or {})}
    head = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
    return f"HTTP/1.1 {status} Status\r\n{head}\r\n".encode() + body


def stream_head(kind: str = "text/event-stream") -> bytes:
    """The head of a chunked stream."""
    return (
        f"HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\ntransfer-encoding: chunked\r\n\r\n"
    ).encode()


def chunk(data: bytes) -> bytes:
    """One chunk of a chunked body; an empty one ends it."""
    return f"{len(data):x}\r\n".encode() + data + b"\r\n"


def sse(*events: Any, done: bool = True) -> bytes:
    """Events as Chat Completions streams them."""
    lines = [f"data: {json.dumps(event)}\n\n" for event in events]
    return "".join([*lines, "data: [DONE]\n\n"] if done else lines).encode()


def stream(*events: Any, done: bool = True) -> bytes:
    """A whole streamed response."""
    return stream_head() + chunk(sse(*events, done=done)) + chunk(b"")
