"""LangGraph: LangChain's `create_agent` with a SQLite checkpointer and synchronous durability.

https://docs.langchain.com/oss/python/langgraph/durable-execution
https://docs.langchain.com/oss/python/langgraph/persistence
https://docs.langchain.com/oss/python/langchain/human-in-the-loop
https://docs.langchain.com/oss/python/langchain/multi-agent/subagents
"""

from contextlib import asynccontextmanager

from langchain.agents import create_agent
from langchain.agents.middleware import HumanInTheLoopMiddleware, ModelCallLimitMiddleware
from langchain.tools import tool
from langchain_openai import ChatOpenAI
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.types import Command

from .bank import base_url, folder, look_up, pay_slowly

CONFIG = {"configurable": {"thread_id": "clerk"}}


@tool
async def pay(name: str) -> str:
    """Pay an invoice."""
    return await pay_slowly(name)


@tool
async def look(name: str) -> str:
    """Ask the bank whether an invoice is paid."""
    return look_up(name)


def agent_of(tools, checkpointer=None, middleware=()):
    model = ChatOpenAI(model="gpt-5-mini", base_url=base_url(), api_key="k", max_retries=0)
    return create_agent(
        model,
        tools,
        system_prompt="You pay invoices.",
        middleware=middleware,
        checkpointer=checkpointer,
    )


def asking_about(name):
    review = {
        "allowed_decisions": ["approve", "reject"],
        "when": lambda request: request.tool_call["args"]["name"] == name,
    }
    return HumanInTheLoopMiddleware({"pay": review}, interrupt_mode="per_call")


class Program:
    limited = True

    def __init__(self, limit=None, ask=""):
        self.tools, self.middleware = [pay, look], [asking_about(ask)]
        if limit:
            self.middleware.append(ModelCallLimitMiddleware(run_limit=limit))

    @asynccontextmanager
    async def agent(self):
        async with AsyncSqliteSaver.from_conn_string(f"{folder()}/checkpoints.db") as saver:
            yield agent_of(self.tools, saver, self.middleware)

    async def send(self, prompt):
        async with self.agent() as agent:
            state = await agent.aget_state(CONFIG)
            if state.values and not state.interrupts:  # finish a run that has failed
                await agent.ainvoke(None, CONFIG, durability="sync")
            await agent.ainvoke(message(prompt), CONFIG, durability="sync")

    async def resume(self, prompt):
        async with self.agent() as agent:
            state = await agent.aget_state(CONFIG)
            start = None if state.values else message(prompt)
            await agent.ainvoke(start, CONFIG, durability="sync")

    async def stream(self, prompt):
        async with self.agent() as agent:
            async for event in agent.astream(
                message(prompt), CONFIG, stream_mode=["messages", "updates"], durability="sync"
            ):
                yield event

    async def decide(self, allow, note):
        decision = {"type": "approve"} if allow else {"type": "reject", "message": note}
        async with self.agent() as agent:
            state = await agent.aget_state(CONFIG)
            answers = {interrupt.id: decision for interrupt in state.interrupts}
            await agent.ainvoke(Command(resume=answers), CONFIG, durability="sync")


def message(prompt):
    return {"messages": [{"role": "user", "content": prompt}]}


class Boss(Program):
    def __init__(self):
        clerk_agent = agent_of([pay, look], middleware=[asking_about("Cleo")])

        @tool
        async def clerk(request: str) -> str:
            """Let the clerk pay invoices."""
            result = await clerk_agent.ainvoke(message(request))
            return result["messages"][-1].text

        self.tools, self.middleware = [clerk], []
