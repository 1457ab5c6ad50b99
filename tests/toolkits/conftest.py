"""A server, and names that lead where a test says, for tools that make HTTP requests."""

import socket

import pytest
from agentloop_chat import web_fetch as web

from ..doubles.web_server import serving


@pytest.fixture
async def server():
    async with serving() as server:
        yield server


@pytest.fixture
def resolver(monkeypatch):
    """Names and their addresses, one list for each time that they are looked up."""
    answers, hosts = {}, []

    def getaddrinfo(host, port, **options):
        hosts.append(host)
        addresses = answers[host].pop(0) if host in answers else [host]
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, 0)) for address in addresses]

    monkeypatch.setattr(web.socket, "getaddrinfo", getaddrinfo)
    answers["asked"] = hosts
    return answers
