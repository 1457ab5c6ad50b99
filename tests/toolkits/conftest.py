"""A server, and names that lead where a test says, for tools that make HTTP requests."""

import socket

import pytest

from agentloop.toolkits import web

from ..doubles.web_server import serving


@pytest.fixture
async def server():
    async with serving() as server:
        yield server


@pytest.fixture
def resolver(monkeypatch):
    """Names and their addresses, one list for each time that they are looked up."""
    answers, asked = {}, []

    def getaddrinfo(host, port, **options):
        asked.append(host)
        found = answers[host].pop(0) if host in answers else [host]
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (each, 0)) for each in found]

    monkeypatch.setattr(web.socket, "getaddrinfo", getaddrinfo)
    answers["asked"] = asked
    return answers
