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
wait = float(sys.argv[1])
reply = {"choices": [{"message": {"content": "done"}, "finish_reason": "stop"}]}
content = json.dumps(reply).encode()
head = "HTTP/1.1 200 OK\\r\\ncontent-type: application/json\\r\\ncontent-length: %d\\r\\n\\r\\n"


async def serve(reader, writer):
    while head_in := await reader.readuntil(b"\\r\\n\\r\\n"):
        length = int(head_in.lower().split(b"content-length:")[1].split(b"\\r\\n")[0])
        await reader.readexactly(length)
        await asyncio.sleep(wait)
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
def slow_server(wait):
    """A server, in a process of its own, that answers each request after `wait` seconds."""
    command = [sys.executable, "-c", SERVER, str(wait)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        yield f"http://127.0.0.1:{process.stdout.readline().strip()}/v1"
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize(("count", "wait"), [(250, 6), (1000, 1)])
async def test_many_agents_at_once_all_finish(count, wait):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < 2 * count and hard != resource.RLIM_INFINITY:
        pytest.skip(f"only {hard} files may be open here")
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    try:
        with slow_server(wait) as base_url:
            async with ChatOpenAI("m", base_url=base_url, api_key="k", max_retries=0) as llm:
                template = Agent(llm=llm)
                agents = [template.fork() for _ in range(count)]
                answers = await asyncio.gather(*(agent.query("go") for agent in agents))
            assert answers == ["done"] * count
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
