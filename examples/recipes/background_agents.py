"""Sub-agents in the background: the caller continues to work, and the answer arrives as a message.

Use background agents for slow side tasks. The run ends after the last of them has answered. Their
requests count in the usage, cost and limits of the caller. If the run is cancelled or its process
dies, its background agents end too: the next run reports that their outcome is unknown.

A background agent can't wait for a decision or an answer: allow its calls by rules, or with
`read_only=True`. If it asks, it ends, and the caller's model reads what it has done.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Annotated, Any

from agentloop import (
    Agent,
    Depends,
    Loop,
    Message,
    MessageQueue,
    Record,
    Result,
    ScriptedModel,
    Stop,
    Tool,
    ToolCall,
    UserMessage,
    call,
    current_agent,
    current_call,
    load_record,
    tool,
)
from agentloop.common.subagents import SubAgentRecord
from agentloop.content import describe_error
from agentloop.messages import frozen
from agentloop.mixins.message_queue import Sent, Unread
from agentloop.toolkits.subagent import run_sub_agent
from agentloop.transcript import CallEntry, Conversation, Fold, RunEnd
from agentloop.waiting import wait_for

STARTED = "Started in the background. Continue with other work: the answer arrives as a message."
UNKNOWN = "was interrupted, and its outcome is unknown: check for effects before you repeat it."


@frozen
class BackgroundStart(CallEntry):
    """A call started the background agent `name`."""

    name: str


class Unfinished(Fold):
    """The names of the background agents that haven't ended, by call id."""

    def __init__(self, log: Any) -> None:
        super().__init__(log)
        self.names = dict[str, str]()

    def take(self, at: int, record: Record | Message) -> None:
        if isinstance(record, BackgroundStart):
            self.names[record.call_id] = record.name
        elif isinstance(record, Sent):
            self.names.pop(record.message.sent_id, None)


class Background(MessageQueue):
    """Runs sub-agents in the background of a run.

    background_timeout: how many seconds a background agent may take.
    """

    background_timeout: float = 600

    def __post_init__(self) -> None:
        super().__post_init__()
        self._tasks = dict[str, asyncio.Task[None]]()  # by call id, while they run

    def start(self, call_id: str, name: str, work: Callable[[], Awaitable[str]]) -> None:
        """Run the work in the background. Its answer becomes a message."""
        self.record(BackgroundStart(call_id, name))
        self._tasks[call_id] = asyncio.create_task(self._report(call_id, name, work))

    async def _report(self, call_id: str, name: str, work: Callable[[], Awaitable[str]]) -> None:
        try:
            text = await wait_for(work(), self.background_timeout, grace=self.cancel_timeout)
            outcome = f"has answered: {text}"
        except Stop:
            outcome = f"needed a decision or an answer, and ended. {self._work_of(call_id)}"
        except Exception as error:
            outcome = f"has failed: {describe_error(error)}"
        if self._tasks.pop(call_id, None):  # otherwise the run has ended
            self._end(call_id, name, outcome)

    def _work_of(self, call_id: str) -> str:
        """Describe the calls that a sub-agent has made, with their results."""
        records = [record for record in self.log if isinstance(record, SubAgentRecord)]
        log = [load_record(json.dumps(r.record)) for r in records if r.call_id == call_id]
        states = Conversation(log).catch_up().states.values()
        done = [f"{s.call.name}({s.call.arguments}): {s.result.text}" for s in states if s.result]
        return "\n".join(["Its calls:", *done]) if done else "It had made no calls."

    def _end(self, call_id: str, name: str, outcome: str) -> None:
        text = f"{name} ({call_id}) {outcome}"
        self.record(
            Sent(UserMessage(text, "program", call_id))
        )  # survives a kill, see MessageQueue

    async def context(self) -> list[Message]:
        for call_id, name in [*self.fold(Unfinished).names.items()]:
            if call_id not in self._tasks:
                self._end(call_id, name, UNKNOWN)
        return await super().context()

    async def finish(self, result: Result) -> Result | None:
        answer = await super().finish(result)
        if self._tasks:
            await asyncio.wait([*self._tasks.values()])
        return None if self.fold(Unread).messages or self.fold(Unfinished).names else answer

    def record(self, record: Record) -> None:
        if isinstance(record, RunEnd):
            for call_id in [*self._tasks]:
                self._tasks.pop(call_id).cancel()
        super().record(record)


def in_background(agent: Loop, name: str, description: str) -> Tool:
    """Make a tool that starts a fork of an agent in the background of a `Background` agent."""

    async def start(
        prompt: str,
        parent: Annotated[Background, Depends(current_agent)],
        call: Annotated[ToolCall, Depends(current_call)],
    ) -> str:
        work = partial(run_sub_agent, agent, prompt, name, parent, call)
        parent.start(call.id, name, work)
        return STARTED

    return tool(description, name=name)(start)


class Boss(Background, Agent): ...


@tool
async def look_up() -> str:
    """Look up the distance of the moon, slowly."""
    await asyncio.sleep(0.2)
    return "384,400 km"


if __name__ == "__main__":
    reader = Agent(llm=ScriptedModel(call("look_up"), "384,400 km."), tools=[look_up])
    research = in_background(reader, "research", "Have a question researched in the background")
    add = tool("Add", name="add")(lambda: "5")
    first = call("research", prompt="How far is the moon?")
    llm = ScriptedModel(first, call("add"), "It is 5.", "Also far.")
    boss = Boss(llm=llm, tools=[research, add])
    print("the answer:", boss.run_sync("What is 2 + 3, and how far is the moon?").text)
    print(*[message.text for message in boss.messages if message.text], sep="\n")
