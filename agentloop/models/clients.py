"""The HTTP connections of a model: made as needed, closed with the event loop that uses them.

Copy with: nothing else.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from functools import cache
from typing import Any
from urllib.parse import urlsplit
from urllib.request import getproxies

MAX_CLIENTS = 64
LOOPBACK = ("localhost", "127.0.0.1", "::1")  # reached without a proxy
HEADERS = {"accept": "*/*", "user-agent": "agentloop"}


class Clients:
    """Does for a model what an `httpx.AsyncClient` would: `stream` one request, and `aclose`.

    Each request has a client of its own, up to `MAX_CLIENTS` at a time, as httpx looks at all
    connections of a client for each request: that would triple what 200 agents cost. And where no
    proxy is to be used, the client is only a transport, without cookies, redirects and hooks, which
    is 0.1 ms less a request.
    """

    def __init__(self) -> None:
        self._pools: dict[asyncio.AbstractEventLoop, _Pool] = {}

    @asynccontextmanager
    async def stream(
        self,
        method: str,
        url: str,
        *,
        content: bytes,
        headers: Mapping[str, str],
        timeout: tuple[float | None, ...],
    ) -> AsyncGenerator[Any, None]:
        """The `httpx.Response`. `timeout`: seconds to connect, read, write and get a connection."""
        import httpx

        seconds = dict(zip(("connect", "read", "write", "pool"), timeout, strict=True))
        sent: Any = {"content": content, "extensions": {"timeout": seconds}}
        sent["headers"] = HEADERS | {name.lower(): value for name, value in headers.items()}
        address = _parsed(url)
        request = httpx.Request(method, address, **sent)
        if address.userinfo:
            request = next(httpx.BasicAuth(address.username, address.password).auth_flow(request))
        users = (await self._pool()).users
        client = _least_busy(users, url)
        users[client] += 1
        try:
            if isinstance(client, httpx.AsyncClient):
                response = await client.send(request, stream=True)
            else:
                response = await client.handle_async_request(request)
            try:
                yield response
            finally:
                await response.aclose()
        except asyncio.CancelledError:  # httpcore may keep half of a connection then
            if users.get(client) == 1:
                del users[client]
                await client.aclose()
            raise
        finally:
            if client in users:  # else it was closed meanwhile
                users[client] -= 1

    async def aclose(self) -> None:
        """Close this event loop's connections. If nobody does, the loop's own end does."""
        if pool := self._pools.pop(asyncio.get_running_loop(), None):
            await pool.closer.aclose()

    async def _pool(self) -> _Pool:
        loop = asyncio.get_running_loop()
        if (pool := self._pools.get(loop)) is None:
            for old in [old for old in list(self._pools) if old.is_closed()]:
                self._pools.pop(old, None)
            pool = self._pools[loop] = _Pool()
            await anext(pool.closer)
        return pool


class _Pool:
    """The clients of one event loop, and how many requests each has at present."""

    def __init__(self) -> None:
        self.users: dict[Any, int] = {}
        self.closer = _close_at_the_end(self.users)


async def _close_at_the_end(clients: dict[Any, int]) -> AsyncGenerator[None, None]:
    """Started once, it waits; an event loop closes its open async generators before it ends."""
    try:
        yield
    finally:
        while clients:
            client, _ = clients.popitem()
            await client.aclose()


def _least_busy(users: dict[Any, int], url: str) -> Any:
    client = min(users, key=users.__getitem__, default=None)
    if client is None or (users[client] and len(users) < MAX_CLIENTS):
        client = _new_client(url)
        users[client] = 0
    return client


def _new_client(url: str) -> Any:
    import httpx

    settings: Any = {"verify": _ssl_context(), "limits": httpx.Limits(keepalive_expiry=60)}
    if urlsplit(url).hostname not in LOOPBACK and getproxies():
        return httpx.AsyncClient(**settings)
    return httpx.AsyncHTTPTransport(**settings)


@cache
def _parsed(url: str) -> Any:
    """The URL as httpx would parse it for each request, which takes it a tenth of a millisecond."""
    import httpx

    return httpx.URL(url)


@cache
def _ssl_context() -> Any:
    import httpx

    return httpx.create_ssl_context()  # 20 ms; a client with a ready one takes 0.05
