"""An agent as an A2A agent: agents of other teams find its card and send it tasks.

Use A2A between agents of different frameworks. A message starts a task. If a call awaits approval
or an answer, the task is "input-required", and its next message is the answer: "yes" allows a call,
other text denies it. Open tasks are in memory here; give each a Session to keep it. `uvicorn
a2a_agent:app` serves the agent. Needs `pip install 'a2a-sdk[http-server]>=1.3' uvicorn`.
"""

import asyncio

import httpx
from a2a import helpers, types
from a2a.client import ClientConfig, create_client
from a2a.server.agent_execution import AgentExecutor, RequestContext
from a2a.server.events import EventQueue
from a2a.server.request_handlers import DefaultRequestHandler
from a2a.server.routes import create_agent_card_routes, create_jsonrpc_routes
from a2a.server.tasks import InMemoryTaskStore, TaskUpdater
from a2a.utils.errors import UnsupportedOperationError
from starlette.applications import Starlette

from agentloop import Agent, ScriptedModel, call, tool
from agentloop.mixins.approval import Approval

URL = "http://localhost:8000"


class Executor(AgentExecutor):
    def __init__(self, template: Agent) -> None:
        self.template = template
        self.open = dict[str, Agent]()  # by task id, while a task awaits input

    async def execute(self, context: RequestContext, event_queue: EventQueue) -> None:
        task_id, text = str(context.task_id), context.get_user_input()
        task = TaskUpdater(event_queue, task_id, str(context.context_id))
        agent = self.open.pop(task_id, None) or self.template.fork()
        if context.current_task and not agent.pending:
            raise UnsupportedOperationError("the question has been answered already")
        if context.message and not context.current_task:
            await event_queue.enqueue_event(helpers.new_task_from_user_message(context.message))
        prompt = None if agent.pending else text
        for waiting in agent.pending:
            awaits = agent.conversation.states[waiting.id].awaits
            if awaits and awaits.stop_reason == "needs_approval":
                agent.decide(waiting.id, "allow" if text.lower() == "yes" else "deny", text)
            else:
                agent.answer(waiting.id, text)
        try:
            result = await agent.run(prompt)
        except Exception as error:  # its text may be confidential
            reason = helpers.new_text_part(type(error).__name__)
            await task.failed(task.new_agent_message([reason]))
            return
        if result.pending:
            self.open[task_id] = agent
            asked = ", ".join(f"{each.name}({each.arguments})?" for each in result.pending)
            await task.requires_input(task.new_agent_message([helpers.new_text_part(asked)]))
        else:
            await task.add_artifact([helpers.new_text_part(result.text)])
            await task.complete()

    async def cancel(self, context: RequestContext, event_queue: EventQueue) -> None:
        task_id = str(context.task_id)
        self.open.pop(task_id, None)  # a running `execute` was cancelled before
        await TaskUpdater(event_queue, task_id, str(context.context_id)).cancel()


@tool("Pay an amount")
def pay(amount: int) -> str:
    return f"paid {amount}"


class Clerk(Approval, Agent): ...


clerk = Clerk(llm=ScriptedModel(call("pay", amount=5), lambda m, t: m[-1].text), tools=[pay])
card = types.AgentCard(name="clerk", description="Pays bills", version="1")
card.supported_interfaces.add(url=URL, protocol_binding="JSONRPC", protocol_version="1.0")
card.capabilities.streaming = True
card.default_input_modes.append("text/plain")
card.default_output_modes.append("text/plain")
card.skills.add(id="pay", name="Pay", description="Pays a bill", tags=["money"])
handler = DefaultRequestHandler(Executor(clerk), InMemoryTaskStore(), card)
app = Starlette(routes=create_agent_card_routes(card) + create_jsonrpc_routes(handler, "/"))


async def main() -> None:
    http = httpx.AsyncClient(transport=httpx.ASGITransport(app))
    client = await create_client(URL, ClientConfig(httpx_client=http))
    task_id = ""
    for text in "Pay the bill of 5.", "yes":
        message = helpers.new_text_message(text, task_id=task_id, role=types.Role.ROLE_USER)
        async for event in client.send_message(types.SendMessageRequest(message=message)):
            task_id = task_id or event.task.id
            print(event.WhichOneof("payload"), helpers.get_stream_response_text(event))


if __name__ == "__main__":
    asyncio.run(main())
