"""Names and behavior of bu_agent_sdk, for programs written for bu_agent_sdk.

Use the shim to migrate a program immediately and adapt the code later: only the imports change, to
`from from_bu_agent_sdk import ...`. README.md lists the remaining differences.
"""

import asyncio
import json
import sys
from base64 import b64encode
from dataclasses import dataclass
from typing import NamedTuple

from pydantic_core import to_json

import agentloop
from agentloop import *  # noqa: F403
from agentloop import Cost, FinalResponseEvent, ImagePart, Mark, ScriptedModel, call
from agentloop.content import to_content
from agentloop.events import Delta
from agentloop.messages import ToolChoice, frozen  # noqa: F401
from agentloop.tools import FunctionTool

BaseChatModel, BaseMessage = agentloop.ChatModel, agentloop.Message
AgentEvent = agentloop.events.Event
ModelProviderError, ModelRateLimitError = agentloop.ModelError, agentloop.RateLimited


# ---- content, calls and replies


class ImageURL(NamedTuple):
    url: str
    detail: str = "auto"
    media_type: str = "image/png"


class Function(NamedTuple):
    arguments: str
    name: str


class ChatInvokeUsage(NamedTuple):
    prompt_tokens: int
    prompt_cached_tokens: int | None = 0
    prompt_cache_creation_tokens: int | None = 0
    prompt_image_tokens: int | None = 0
    completion_tokens: int = 0
    total_tokens: int = 0


class ContentText:  # a class, for annotations such as list[ContentText | ContentImage]
    def __new__(cls, text, type="text"):
        return agentloop.TextPart(text)


class ContentImage:
    def __new__(cls, image_url, type="image_url"):
        return ImagePart(image_url.url, media_type=image_url.media_type)


class SystemMessage:
    def __new__(cls, content, **_):  # cache=, name=
        return agentloop.SystemMessage(content)


def ToolCall(id, function, type="function"):
    return agentloop.ToolCall(id, function.name, function.arguments)


def ChatInvokeCompletion(content=None, tool_calls=(), thinking=None, usage=None, **_):
    """Return the reply of a custom model."""
    if usage is not None:
        usage = agentloop.Usage(
            usage.prompt_tokens,
            usage.completion_tokens,
            cached_input_tokens=usage.prompt_cached_tokens or 0,
            cache_write_tokens=usage.prompt_cache_creation_tokens or 0,
        )
    return agentloop.AssistantMessage(content, tool_calls, thinking, usage)


# Set in the classes, because programs read these attributes from the replies of any model.
agentloop.SystemMessage.role, agentloop.UserMessage.role = "system", "user"
agentloop.AssistantMessage.role, agentloop.ToolMessage.role = "assistant", "tool"
agentloop.ToolCall.function = property(lambda call: Function(call.arguments, call.name))
agentloop.AssistantMessage.has_tool_calls = property(lambda reply: bool(reply.tool_calls))
ContentPartTextParam, ContentPartImageParam = ContentText, ContentImage
DeveloperMessage = SystemMessage


class ChatOpenAI(agentloop.ChatOpenAI):
    def __init__(self, model, **settings):
        names = {"frequency_penalty", "presence_penalty", "top_p", "seed"} & settings.keys()
        extra = {name: settings.pop(name) for name in names}
        if extra:  # Responses, the default at OpenAI, refuses some of these
            settings["api"] = "chat"
            settings["extra"] = {name: value for name, value in extra.items() if value is not None}
        super().__init__(model, **settings)


ChatOpenAILike = ChatOpenAI


# ---- tools


def ToolDefinition(name, description, parameters, strict=True):
    return agentloop.Tool(name, description, parameters)


class Tool(FunctionTool):
    """A tool that programs can also call directly: `await tools[0].execute(path="notes.txt")`.

    A subclass may override `execute(self, _overrides=None, **arguments)`.
    """

    def __init_subclass__(cls):
        own = vars(cls).get("execute")

        async def execute(self, *positional, **arguments):
            if positional:
                values, overrides = positional
                arguments = {**values, "_overrides": overrides}
            return await own(self, **arguments)

        if own:
            cls.execute = execute

    def __init__(self, func, description=None, name=None, ephemeral=False):
        super().__init__(func, description, name=name, ephemeral=int(ephemeral))

    @property
    def func(self):
        return self.function

    @property
    def definition(self):
        return ToolDefinition(self.name, self.description, self.parameters)

    async def execute(self, *positional, _overrides=None, **arguments):
        if positional:  # the loop passes (arguments, overrides), and expects the unconverted value
            return await super().execute(*positional)
        checked = self.validate(to_json(arguments).decode())
        value = await super().execute(checked, _overrides or {})
        return to_content(value, limit=sys.maxsize)


def tool(description, *, name=None, ephemeral=False):
    return lambda function: Tool(function, description, name, ephemeral)


# ---- events


@dataclass
class ToolCallEvent(agentloop.ToolCallEvent):
    display_name: str = ""


@dataclass
class ToolResultEvent(agentloop.ToolResultEvent):
    screenshot_base64: str | None = None


def preview(text, limit):
    return text if len(text) <= limit else text[:limit] + "..."


def describe_call(event):
    return event.display_name or f"{event.tool}({preview(json.dumps(event.args, default=str), 77)})"


for event, text in {
    agentloop.TextEvent: lambda event: f"💬 {preview(event.content, 100)}",
    agentloop.ThinkingEvent: lambda event: f"🧠 {preview(event.content, 80)}",
    ToolCallEvent: lambda event: f"🔧 {describe_call(event)}",
    ToolResultEvent: lambda event: (
        f"   {'❌' if event.is_error else '✓'} {event.tool}: {preview(event.result, 80)}"
        + " 📸" * bool(event.screenshot_base64)
    ),
    FinalResponseEvent: lambda event: f"✅ Final: {preview(event.content, 100)}",
    agentloop.StepStartEvent: lambda event: f"▶️  Step {event.step_number}: {event.title}",
    agentloop.StepCompleteEvent: lambda event: (
        f"{'✅' if event.status == 'completed' else '❌'} Step complete ({event.duration_ms:.0f}ms)"
    ),
    agentloop.HiddenUserMessageEvent: lambda event: f"👻 Hidden: {preview(event.content, 80)}",
}.items():
    event.__str__ = text


def first_image(message):
    """Return the first image of a message in base64, or None."""
    for part in message.content:
        if isinstance(part, ImagePart) and part.data:
            return b64encode(part.data).decode()
        if isinstance(part, ImagePart) and part.url.startswith("data:"):
            return part.url.partition(",")[2]
    return None


# ---- usage


class ModelUsageStats(NamedTuple):
    model: str
    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    cost: float
    invocations: int
    average_tokens_per_invocation: float


class UsageSummary(NamedTuple):
    total_prompt_tokens: int
    total_prompt_cached_tokens: int
    total_completion_tokens: int
    total_tokens: int
    total_cost: float
    entry_count: int
    by_model: dict[str, ModelUsageStats]


# ---- the agent


class CompactionConfig(agentloop.CompactionConfig):
    enabled: bool = True


@frozen
class AskedForTodos(Mark):
    """Marks a run whose model was reminded of incomplete to-dos."""


class Agent(Cost, agentloop.Agent):
    """Runs calls sequentially, prunes old results in each turn, and accepts the original settings.

    system_prompt: None means an empty prompt.
    compaction: None means the default compaction.

    The remaining settings are accepted and ignored: costs are always counted, the log keeps every
    result, and models retry requests themselves.
    """

    max_parallel = 1
    ephemeral_per_turn = True
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
        self.compaction = config if config.enabled else None

    @property
    def token_cost(self):
        return self  # for token_cost.get_usage_summary()

    @property
    def tool_definitions(self):
        return [ToolDefinition(tool.name, tool.description, tool.parameters) for tool in self.tools]

    async def query(self, message):
        """Return the text, regardless of how the run has ended."""
        return (await self.run(message)).text

    async def _get_incomplete_todos_prompt(self):
        """Return a prompt that keeps the model working, at most once per run; None ends the run."""

    async def finish(self, result):
        answer = await super().finish(result)
        if answer is None or answer.stop_reason != "completed" or self.require_done_tool:
            return answer
        if any(isinstance(record, AskedForTodos) for record in self.conversation.run):
            return answer
        prompt = await self._get_incomplete_todos_prompt()
        if not prompt:
            return answer
        self.record(AskedForTodos())
        self.add_note(prompt)
        return None

    def emit(self, event):
        if isinstance(event, Delta):  # programs print the complete texts
            return
        if type(event) is agentloop.ToolCallEvent:
            event = ToolCallEvent(**vars(event), display_name=event.tool)
        elif type(event) is agentloop.ToolResultEvent:
            result = self.conversation.states[event.tool_call_id].result
            event = ToolResultEvent(**vars(event), screenshot_base64=first_image(result))
        super().emit(event)

    async def get_usage(self):
        used, bill = self.usage, self.bill
        by_model = {}
        for model, of_model in self.model_bills.items():
            tokens, requests = of_model.usage, of_model.requests
            by_model[model] = ModelUsageStats(
                model,
                tokens.input_tokens,
                tokens.output_tokens,
                tokens.total_tokens,
                of_model.cost or 0.0,
                requests,
                tokens.total_tokens / requests,
            )
        return UsageSummary(
            used.input_tokens,
            used.cached_input_tokens,
            used.output_tokens,
            used.total_tokens,
            bill.cost or 0.0,
            bill.requests,
            by_model,
        )

    get_usage_summary = get_usage


def observe(*_, **__):
    """Return the function unchanged: use mixins/tracing.py for traces."""
    return lambda function: function


observe_debug, Laminar = observe, None


async def main():
    @tool("Add two numbers")
    async def add(a: int, b: int) -> int:
        return a + b

    agent = Agent(ScriptedModel(call("add", a=2, b=3), "It is 5."), [add])
    async for event in agent.query_stream("What is 2 + 3?"):
        match event:
            case ToolCallEvent(tool=name, args=args):
                print(f"{name} {args}")
            case FinalResponseEvent(content=text):
                print(text)
    usage = await agent.get_usage()
    print(f"{usage.entry_count} requests, {usage.total_cost} dollars")


if __name__ == "__main__":
    asyncio.run(main())
