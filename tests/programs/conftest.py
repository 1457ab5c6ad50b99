"""A web server and a fake DNS resolver for tools that send HTTP requests."""

import socket

import pytest
from agentloop_chat import web_fetch as web

from tests.doubles.web_server import serving


@pytest.fixture
async def server():
    async with serving() as server:
        yield server


@pytest.fixture
def resolver(monkeypatch):
    """Map host names to lists of addresses, one list per lookup."""
    answers, hosts = {}, []

    def getaddrinfo(host, port, **options):
        hosts.append(host)
        addresses = answers[host].pop(0) if host in answers else [host]
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, 0)) for address in addresses]

    monkeypatch.setattr(web.socket, "getaddrinfo", getaddrinfo)
    answers["asked"] = hosts
    return answers
