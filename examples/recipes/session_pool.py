"""A pool of sessions for a server: of too many, it closes those that nobody has used for longest.

Use a pool if your server has thousands of users. To open a session means to read its file and take
its lock, so the hundred most recent ones stay open by default. Requests for one session run one
after the other, and those for different sessions at the same time.
"""

import asyncio
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress

from agentloop import Agent, ScriptedModel, Session


class SessionPool:
    """Agents by the name of their session. `make(name)` opens one; about `size` stay open."""

    def __init__(self, make: Callable[[str], Session], size: int = 100) -> None:
        self.make, self.size = make, size
        self.agents: dict[str, Session] = {}  # least recently used first
        self.turns: dict[str, asyncio.Lock] = {}
        self.users: Counter[str] = Counter()  # requests that use a session or wait for it

    @asynccontextmanager
    async def agent(self, name: str) -> AsyncIterator[Session]:
        """Give the agent of a session to one request at a time."""
        self.users[name] += 1
        try:
            async with self.turns.setdefault(name, asyncio.Lock()):
                agent = self.agents.pop(name, None) or self.make(name)
                self.agents[name] = agent
                try:
                    yield agent
                except OSError:  # the file may be gone: the next request reopens the session
                    with suppress(OSError):
                        self.agents.pop(name).close()
                    raise
        finally:
            self.users[name] -= 1
            self.close_idle(self.size)

    def close_idle(self, keep: int = 0) -> None:
        """Close unused sessions until only `keep` sessions are open."""
        for name in [name for name in self.agents if not self.users[name]]:
            if len(self.agents) > keep:
                self.agents.pop(name).close()
        for name in [name for name in self.users if not self.users[name]]:
            if name not in self.agents:
                del self.turns[name], self.users[name]

    async def __aenter__(self) -> "SessionPool":
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        self.close_idle()


class MyAgent(Session, Agent):
    """An agent with persistent sessions."""


async def main() -> None:
    with tempfile.TemporaryDirectory() as folder:

        def make(name: str) -> MyAgent:
            llm = ScriptedModel(lambda messages, tools: f"That was message {len(messages)}.")
            return MyAgent(llm=llm, session=name, session_dir=folder)

        async def ask(pool: SessionPool, name: str) -> None:
            async with pool.agent(name) as agent:
                print(f"{name}: {await agent.query('Hello')}")

        async with SessionPool(make, size=2) as pool:
            for names in ("anna", "ben", "carla", "anna"), ("anna", "ben"):
                await asyncio.gather(*(ask(pool, name) for name in names))
                print("open:", *pool.agents)


if __name__ == "__main__":
    asyncio.run(main())
