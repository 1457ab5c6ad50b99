"""Many agents at once on one model: none is refused a connection, none waits for another."""

import asyncio
import json
import re
from contextlib import asynccontextmanager

import pytest

from agentloop import Agent, ChatOpenAI

resource = pytest.importorskip("resource")  # to be allowed so many sockets

REPLY = {"choices": [{"message": {"content": "done"}, "finish_reason": "stop"}]}
CONTENT = json.dumps(REPLY).encode()
HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"


@asynccontextmanager
async def patient_server(count):
    """A server that answers nobody before so many have asked."""
    all_have_asked = asyncio.Barrier(count)

    async def serve(reader, writer):
        head = await reader.readuntil(b"\r\n\r\n")
        await reader.readexactly(int(re.search(rb"content-length: *(\d+)", head.lower())[1]))
        await all_have_asked.wait()
        writer.write(HEAD % len(CONTENT) + CONTENT)
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0, backlog=4096) as server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"


@pytest.mark.parametrize("count", [200, pytest.param(1000, marks=pytest.mark.slow)])
async def test_many_agents_at_once_all_finish(count):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < 3 * count and hard != resource.RLIM_INFINITY:
        pytest.skip(f"only {hard} files may be open here")
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    try:
        async with patient_server(count) as base_url:
            async with ChatOpenAI("m", base_url=base_url, api_key="k", max_retries=0) as llm:
                template = Agent(llm=llm)
                agents = [template.fork() for _ in range(count)]
                answers = await asyncio.gather(*(agent.query("go") for agent in agents))
            assert answers == ["done"] * count
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
