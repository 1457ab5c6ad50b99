"""Many agents at once on one model: none is refused a connection, none waits for another."""

import asyncio
import subprocess
import sys
from contextlib import contextmanager

import pytest

from agentloop import Agent, ChatOpenAI

resource = pytest.importorskip("resource")  # to be allowed so many sockets

SERVER = """
import asyncio, json, resource, sys

_, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
count, asked, all_asked = int(sys.argv[1]), 0, asyncio.Event()
reply = {"choices": [{"message": {"content": "done"}, "finish_reason": "stop"}]}
content = json.dumps(reply).encode()
head = "HTTP/1.1 200 OK\\r\\ncontent-type: application/json\\r\\ncontent-length: %d\\r\\n\\r\\n"


async def serve(reader, writer):
    global asked
    while head_in := await reader.readuntil(b"\\r\\n\\r\\n"):
        length = int(head_in.lower().split(b"content-length:")[1].split(b"\\r\\n")[0])
        await reader.readexactly(length)
        asked += 1
        if asked == count:
            all_asked.set()
        await all_asked.wait()
        writer.write((head % len(content)).encode() + content)


async def quiet(reader, writer):
    try:
        await serve(reader, writer)
    except (asyncio.IncompleteReadError, ConnectionError):
        writer.close()


async def main():
    server = await asyncio.start_server(quiet, "127.0.0.1", 0, backlog=4096)
    print(server.sockets[0].getsockname()[1], flush=True)
    await asyncio.Event().wait()


asyncio.run(main())
"""


@contextmanager
def patient_server(count):
    """A server, in a process of its own, that answers nobody before so many have asked."""
    command = [sys.executable, "-c", SERVER, str(count)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        yield f"http://127.0.0.1:{process.stdout.readline().strip()}/v1"
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("count", [200, pytest.param(1000, marks=pytest.mark.slow)])
async def test_many_agents_at_once_all_finish(count):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < 2 * count and hard != resource.RLIM_INFINITY:
        pytest.skip(f"only {hard} files may be open here")
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    try:
        with patient_server(count) as base_url:
            async with ChatOpenAI("m", base_url=base_url, api_key="k", max_retries=0) as llm:
                template = Agent(llm=llm)
                agents = [template.fork() for _ in range(count)]
                answers = await asyncio.gather(*(agent.query("go") for agent in agents))
            assert answers == ["done"] * count
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
