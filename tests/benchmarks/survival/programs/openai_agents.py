"""OpenAI Agents SDK with a SQLite session.

https://openai.github.io/openai-agents-python/sessions/
https://openai.github.io/openai-agents-python/human_in_the_loop/
https://openai.github.io/openai-agents-python/models/ (Chat Completions for other servers)
"""

from pathlib import Path

from agents import (
    Agent,
    OpenAIChatCompletionsModel,
    Runner,
    RunState,
    SQLiteSession,
    function_tool,
    set_tracing_disabled,
)
from openai import AsyncOpenAI

from .bank import GO_ON, base_url, folder, look_up, pay_slowly

set_tracing_disabled(True)


def pay_tool(ask):
    async def needs_approval(context, parameters, call_id):
        return parameters["name"] == ask

    @function_tool(needs_approval=needs_approval)
    async def pay(name: str) -> str:
        """Pay an invoice."""
        return await pay_slowly(name)

    return pay


@function_tool
async def look(name: str) -> str:
    """Ask the bank whether an invoice is paid."""
    return look_up(name)


def agent_of(name, tools):
    client = AsyncOpenAI(base_url=base_url(), api_key="k", max_retries=0)
    model = OpenAIChatCompletionsModel("gpt-5-mini", client)
    return Agent(name=name, instructions="You pay invoices.", model=model, tools=tools)


class Program:
    limited = True

    def __init__(self, limit=None, ask=""):
        self.limit = limit or 20
        self.agent = agent_of("clerk", [pay_tool(ask), look])
        self.session = SQLiteSession("clerk", Path(folder(), "sessions.db"))
        self.state = Path(folder(), "state.json")

    async def send(self, prompt):
        result = await Runner.run(self.agent, prompt, session=self.session, max_turns=self.limit)
        if result.interruptions:
            self.state.write_text(result.to_state().to_string())

    async def resume(self, prompt):
        await self.send(GO_ON if await self.session.get_items() else prompt)

    async def stream(self, prompt):
        result = Runner.run_streamed(self.agent, prompt, session=self.session)
        try:
            async for event in result.stream_events():
                yield event
        finally:
            result.cancel(mode="after_turn")  # and continue, so that the session is complete
            async for _ in result.stream_events():
                pass

    async def decide(self, allow, note):
        state = await RunState.from_string(self.agent, self.state.read_text())
        for interruption in state.get_interruptions():
            if allow:
                state.approve(interruption)
            else:
                state.reject(interruption, rejection_message=note)
        await self.send(state)


class Boss(Program):
    def __init__(self):
        super().__init__()
        clerk = agent_of("clerk", [pay_tool("Cleo"), look])
        tool = clerk.as_tool(tool_name="clerk", tool_description="Pays invoices.")
        self.agent = agent_of("boss", [tool])
