"""Names and behavior of bu_agent_sdk, for programs that were written for it.

Use this to run a program here at once, and adapt it later: only the imports change, to `from
from_bu_agent_sdk import ...`. README.md lists what is still different.
"""

import asyncio
import json
import sys
from collections import namedtuple
from dataclasses import dataclass
from inspect import signature
from types import SimpleNamespace

from pydantic_core import to_json

import agentloop
from agentloop import *  # noqa: F403
from agentloop import Cost, ImagePart
from agentloop.content import to_content
from agentloop.messages import ToolChoice  # noqa: F401
from agentloop.tools import FunctionTool

BaseChatModel, BaseMessage = agentloop.ChatModel, agentloop.Message
AgentEvent = agentloop.events.Event
ModelProviderError, ModelRateLimitError = agentloop.ModelError, agentloop.RateLimited
SAMPLING = {"frequency_penalty", "presence_penalty", "top_p", "seed"}
TOKENS = "prompt_tokens completion_tokens total_tokens"
ImageURL = namedtuple("ImageURL", "url detail media_type", defaults=["auto", "image/png"])
Function = ChatInvokeUsage = SimpleNamespace
ModelUsageStats = namedtuple(
    "ModelUsageStats", f"model {TOKENS} cost invocations average_tokens_per_invocation"
)
UsageSummary = namedtuple(
    "UsageSummary",
    "total_prompt_tokens total_prompt_cached_tokens total_completion_tokens total_tokens "
    "total_cost entry_count by_model",
)


def creates(function):
    """Return a class, usable in annotations, whose constructor returns the result of a function."""
    return type("Created", (), {"__new__": lambda cls, *args, **kwargs: function(*args, **kwargs)})


ContentText = creates(lambda text, type="text": agentloop.TextPart(text))
ContentImage = creates(
    lambda image_url, type="image_url": ImagePart(image_url.url, media_type=image_url.media_type)
)
ContentPartTextParam, ContentPartImageParam = ContentText, ContentImage
SystemMessage = creates(lambda content, **_: agentloop.SystemMessage(content))  # cache=, name=
DeveloperMessage = SystemMessage
ToolCall = creates(
    lambda id, function, type="function": agentloop.ToolCall(id, function.name, function.arguments)
)


def ChatInvokeCompletion(content=None, tool_calls=(), thinking=None, usage=None, **_):
    """Return the reply of a custom model."""
    if usage is not None:
        cached = usage.prompt_cached_tokens or 0
        written = usage.prompt_cache_creation_tokens or 0
        usage = agentloop.Usage(usage.prompt_tokens, usage.completion_tokens, cached, written)
    return agentloop.AssistantMessage(content, tool_calls, thinking, usage)


# Set in the classes, because programs read these attributes from the replies of any model.
agentloop.SystemMessage.role, agentloop.UserMessage.role = "system", "user"
agentloop.AssistantMessage.role, agentloop.ToolMessage.role = "assistant", "tool"
agentloop.ToolCall.function = property(lambda call: call)  # with `name` and `arguments`
agentloop.AssistantMessage.has_tool_calls = property(lambda reply: bool(reply.tool_calls))
agentloop.ModelError.status_code = property(lambda error: error.status or 502)
agentloop.ModelError.message = property(str)


class ChatOpenAI(agentloop.ChatOpenAI):
    def __init__(self, model, **settings):
        if names := SAMPLING & settings.keys():  # Responses, the default API, refuses some of these
            values = {name: settings.pop(name) for name in names}
            settings["api"] = "chat"
            settings["extra"] = {name: v for name, v in values.items() if v is not None}
        super().__init__(model, **settings)


@dataclass(repr=False)
class ToolDefinition(agentloop.Tool):
    strict: bool = True


class Tool(FunctionTool):
    """A tool that programs can also call directly: `await tools[0].execute(path="notes.txt")`.

    A subclass may override `execute(self, _overrides=None, **arguments)`.
    """

    def __init_subclass__(cls):
        own = vars(cls).get("execute")

        async def execute(self, values=None, overrides=None, /, **arguments):
            if values is not None:
                arguments = {**values, "_overrides": overrides}
            return await own(self, **arguments)

        if own:
            cls.execute = execute

    def __init__(self, func, description=None, name=None, ephemeral=False):
        parameters = signature(func).parameters.values()
        types = {p.name: str for p in parameters if p.annotation is p.empty and p.name != "self"}
        super().__init__(func, description, name=name, types=types, ephemeral=int(ephemeral))

    func = property(lambda self: self.function)
    definition = property(lambda self: ToolDefinition(self.name, self.description, self.parameters))

    async def execute(self, *positional, _overrides=None, **arguments):
        if positional:  # the loop passes (arguments, overrides), and expects the unconverted value
            return await super().execute(*positional)
        checked = self.validate(to_json(arguments).decode())
        value = await super().execute(checked, _overrides or {})
        return to_content(value, limit=sys.maxsize)


def tool(description, *, name=None, ephemeral=False):
    return lambda function: Tool(function, description, name, ephemeral)


def preview(text, limit):
    return text if len(text) <= limit else text[:limit] + "..."


@dataclass
class ToolCallEvent(agentloop.ToolCallEvent):
    display_name: str = ""

    def __str__(self):
        arguments = preview(json.dumps(self.args, default=str), 77)
        return f"🔧 {self.display_name or f'{self.tool}({arguments})'}"


@dataclass
class ToolResultEvent(agentloop.ToolResultEvent):
    screenshot_base64: str | None = None

    def __str__(self):
        text = f"   {'✓❌'[self.is_error]} {self.tool}: {preview(self.result, 80)}"
        return text + " 📸" * bool(self.screenshot_base64)


TEXTS = {  # of the other events of bu_agent_sdk
    agentloop.TextEvent: lambda event: f"💬 {preview(event.content, 100)}",
    agentloop.ThinkingEvent: lambda event: f"🧠 {preview(event.content, 80)}",
    agentloop.FinalResponseEvent: lambda event: f"✅ Final: {preview(event.content, 100)}",
    agentloop.HiddenUserMessageEvent: lambda event: f"👻 Hidden: {preview(event.content, 80)}",
    agentloop.StepStartEvent: lambda event: f"▶️  Step {event.step_number}: {event.title}",
    agentloop.StepCompleteEvent: lambda event: (
        f"{'❌✅'[event.status == 'completed']} Step complete ({event.duration_ms:.0f}ms)"
    ),
}
for event_class, text in TEXTS.items():
    event_class.__str__ = text


class TaskComplete(agentloop.TaskComplete):
    def __init__(self, message):
        super().__init__(f"Task completed: {message}")  # the text of the tool's result
        self.answer = message

    message = property(lambda self: self.answer)
    result = property(lambda self: agentloop.Result(self.answer, None, "done"))


class CompactionConfig(agentloop.CompactionConfig):
    enabled: bool = True
    model: object = None  # a name is ignored, as in the original


class Agent(Cost, agentloop.Ephemeral, agentloop.Agent):
    """Runs calls sequentially, prunes old results in each turn, and accepts the original settings.

    `compaction=None` means the default compaction. The settings after `compaction` are ignored:
    costs are always counted, the log keeps every result, and models retry requests themselves.
    """

    max_parallel = 1
    ephemeral_batch = 1
    system_prompt: str | None = None
    compaction: CompactionConfig | None = None
    include_cost: bool = False
    ephemeral_storage_path: object = None
    llm_max_retries: int = 5
    llm_retry_base_delay: float = 1.0
    llm_retry_max_delay: float = 60.0
    llm_retryable_status_codes: object = None

    def __init__(self, llm, tools=(), *more, **settings):
        names = ("system_prompt", "max_iterations", "tool_choice", "compaction")
        super().__init__(llm=llm, tools=tools, **dict(zip(names, more, strict=False)), **settings)

    def __post_init__(self):
        super().__post_init__()
        self.system_prompt = self.system_prompt or ""
        config = self.compaction or CompactionConfig()
        if isinstance(config.model, str):
            config.model = None
        self.compaction = config if config.enabled else None

    token_cost = property(lambda self: self)  # for token_cost.get_usage_summary()
    tool_definitions = property(
        lambda self: [ToolDefinition(t.name, t.description, t.parameters) for t in self.tools]
    )

    async def query(self, message):
        """Run a prompt and return the text, however the run ends."""
        return (await self.run(message)).text

    async def _get_incomplete_todos_prompt(self):
        """A prompt to keep the model working, at most once per run; None ends the run."""

    async def finish(self, result):
        answer = await super().finish(result)
        if answer is None or answer.stop_reason != "completed" or self.require_done_tool:
            return answer
        if any(getattr(record, "origin", "") == "note" for record in self.conversation.run):
            return answer
        if prompt := await self._get_incomplete_todos_prompt():
            self.add_note(prompt)
        return None if prompt else answer

    def emit(self, event):
        if type(event) is agentloop.ToolCallEvent:
            event = ToolCallEvent(**vars(event), display_name=event.tool)
        elif type(event) is agentloop.ToolResultEvent:
            result = self.conversation.states[event.tool_call_id].result
            images = [part.url for part in result.content if isinstance(part, ImagePart)]
            shots = [url.partition(",")[2] for url in images if url.startswith("data:")]
            event = ToolResultEvent(**vars(event), screenshot_base64=next(iter(shots), None))
        if isinstance(event, (ToolCallEvent, ToolResultEvent, *TEXTS)):  # no parts of texts
            super().emit(event)

    async def get_usage(self):
        by_model = {}
        for model, bill in self.model_bills.items():
            used, count = bill.usage, bill.requests
            tokens = (used.input_tokens, used.output_tokens, used.total_tokens)
            average = used.total_tokens / count
            by_model[model] = ModelUsageStats(model, *tokens, bill.cost or 0.0, count, average)
        used, bill = self.usage, self.bill
        tokens = (used.input_tokens, used.cached_input_tokens, used.output_tokens)
        rest = (used.total_tokens, bill.cost or 0.0, bill.requests, by_model)
        return UsageSummary(*tokens, *rest)

    get_usage_summary = get_usage


def observe(*_, **__):
    """Leave the function as it is: for traces, use mixins/tracing.py."""
    return lambda function: function


ChatOpenAILike, observe_debug, Laminar = ChatOpenAI, observe, None


@tool("Add two numbers")
async def add(a: int, b: int) -> int:
    return a + b


async def main():
    llm = agentloop.ScriptedModel(agentloop.call("add", a=2, b=3), "It is 5.")
    agent = Agent(llm, [add])
    async for event in agent.query_stream("What is 2 + 3?"):
        print(event)
    print((await agent.get_usage()).entry_count, "requests")


if __name__ == "__main__":
    asyncio.run(main())
