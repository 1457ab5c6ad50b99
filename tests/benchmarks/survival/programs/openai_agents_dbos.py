"""OpenAI Agents SDK in DBOS workflows, with tools as steps.

https://openai.github.io/openai-agents-python/running_agents/ ("DBOS")
https://docs.dbos.dev/integrations/openai-agents
"""

from agents import Agent, OpenAIChatCompletionsModel, function_tool, set_tracing_disabled
from dbos import DBOS, SetWorkflowID
from dbos_openai_agents import DBOSRunner
from openai import AsyncOpenAI

from .bank import base_url, folder, look_up, pay_slowly

ROWS = ("step", "write", "disk")  # what a workflow is for; see the program outside of workflows
set_tracing_disabled(True)


@function_tool
@DBOS.step()
async def pay(name: str) -> str:
    """Pay an invoice."""
    return await pay_slowly(name)


@function_tool
@DBOS.step()
async def look(name: str) -> str:
    """Ask the bank whether an invoice is paid."""
    return look_up(name)


client = AsyncOpenAI(base_url=base_url(), api_key="k", max_retries=0)
model = OpenAIChatCompletionsModel("gpt-5-mini", client)
agent = Agent(name="clerk", instructions="You pay invoices.", model=model, tools=[pay, look])


@DBOS.workflow()
async def answer(history):
    result = await DBOSRunner.run(agent, history)
    return result.to_input_list()


class Program:
    def __init__(self):
        self.history, self.runs = [], 0
        url = f"sqlite:///{folder()}/dbos.sqlite"
        DBOS(config={"name": "clerk", "system_database_url": url, "run_admin_server": False})
        DBOS.launch()  # recovers the workflows that were killed

    async def send(self, prompt):
        self.runs += 1
        with SetWorkflowID(f"run-{self.runs}"):
            self.history = await answer([*self.history, {"role": "user", "content": prompt}])

    async def resume(self, prompt):
        if await DBOS.get_workflow_status_async("run-1"):
            handle = await DBOS.retrieve_workflow_async("run-1")
            self.history, self.runs = await handle.get_result(), 1
        else:
            await self.send(prompt)
