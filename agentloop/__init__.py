"""agentloop: an agent is a for-loop.

    from agentloop import Agent, ScriptedModel, call, tool

    @tool("Add two numbers")
    async def add(a: int, b: int) -> int:
        return a + b

    llm = ScriptedModel(call("add", a=2, b=3), "2 + 3 is 5.")  # or ChatOpenAI("gpt-5-mini")
    print(Agent(llm=llm, tools=[add]).run_sync("What is 2 + 3?"))

This module exports the names that most programs need:

- agents: `Agent`, `Loop` (the for-loop without mixins), `Result`, `Stop`, `RunStopped`;
- models: `ChatOpenAI`, `ChatAnthropic`, `ChatGoogle`, `Fallback`, `ScriptedModel`, `ChatModel`;
- tools: `tool`, `Tool`, `ToolError`, `TaskComplete`, `Depends`, `current_agent`, `current_call`;
- mixins: `Compaction`, `Cost`, `DoneTool`, `Ephemeral`, `InstructionFiles`, `Limits`,
  `MessageQueue`, `Session`;
- messages, log records and events: `UserMessage`, `ToolCall`, `TextDeltaEvent`, and others.

Other mixins are in `agentloop.mixins` (approval, durable, hooks, tracing), and capabilities in
`agentloop.toolkits` (files, shell, mcp, skills, subagent, todo, and others). `help(Limits)`
documents the settings of a class. The README lists all parts; examples/howto, examples/recipes and
examples/lessons contain complete programs.

Names that require httpx are loaded on first use.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from .agent import Agent
from .common.gate import Gate, Judgment, Verdict
from .common.prices import Price
from .common.records import dump_record, load_record
from .common.store import read_log, session_path
from .common.summary import Summary
from .common.tokens import (
    context_window,
    count_tokens,
    load_encoding,
    message_tokens,
    tool_tokens,
)
from .depends import Depends, current_agent, current_call
from .errors import (
    AgentBusy,
    AuthenticationFailed,
    BadRequest,
    BadResponse,
    ConnectionFailed,
    ContentRefused,
    ContextWindowExceeded,
    ModelError,
    Overloaded,
    RateLimited,
    RunStopped,
    ServerError,
    SessionLocked,
    ToolError,
)
from .events import (
    CompactionEvent,
    FinalResponseEvent,
    HiddenUserMessageEvent,
    StepCompleteEvent,
    StepStartEvent,
    TextDeltaEvent,
    TextEvent,
    ThinkingDeltaEvent,
    ThinkingEvent,
    ToolCallDeltaEvent,
    ToolCallEvent,
    ToolResultEvent,
    UsageEvent,
)
from .imports import IMPORT_WORDS
from .loop import ChatModel, Loop, Request
from .messages import (
    AssistantMessage,
    FilePart,
    Fork,
    ImagePart,
    Mark,
    Message,
    Part,
    Record,
    Result,
    RunStart,
    SideRequest,
    Stop,
    SystemMessage,
    TaskComplete,
    TextPart,
    ToolCall,
    ToolMessage,
    ToolStart,
    Usage,
    UserMessage,
)
from .mixins.compaction import Compaction, CompactionConfig
from .mixins.cost import Cost
from .mixins.done import DoneTool
from .mixins.ephemeral import Ephemeral
from .mixins.instruction_files import InstructionFiles
from .mixins.limits import Limits
from .mixins.message_queue import MessageQueue, every
from .mixins.session import Session, list_sessions
from .models.fallback import Fallback
from .models.scripted import ScriptedModel, assert_prefix_stable, call, validate_messages
from .tools import Tool, tool
from .transcript import newest_prompt_index, view
from .vocabulary import read_remedies

if TYPE_CHECKING:
    from .models.anthropic import ChatAnthropic
    from .models.google import ChatGoogle
    from .models.openai import ChatOpenAI
    from .models.openai_messages import from_openai, to_openai

__version__ = "1.0.0"

__all__ = [
    "Agent",
    "AgentBusy",
    "AssistantMessage",
    "AuthenticationFailed",
    "BadRequest",
    "BadResponse",
    "ChatAnthropic",
    "ChatGoogle",
    "ChatModel",
    "ChatOpenAI",
    "Compaction",
    "CompactionConfig",
    "CompactionEvent",
    "ConnectionFailed",
    "ContentRefused",
    "ContextWindowExceeded",
    "Cost",
    "Depends",
    "DoneTool",
    "Ephemeral",
    "Fallback",
    "FilePart",
    "FinalResponseEvent",
    "Fork",
    "Gate",
    "HiddenUserMessageEvent",
    "ImagePart",
    "InstructionFiles",
    "Judgment",
    "Limits",
    "Loop",
    "Mark",
    "Message",
    "MessageQueue",
    "ModelError",
    "Overloaded",
    "Part",
    "Price",
    "RateLimited",
    "Record",
    "Request",
    "Result",
    "RunStart",
    "RunStopped",
    "ScriptedModel",
    "ServerError",
    "Session",
    "SessionLocked",
    "SideRequest",
    "StepCompleteEvent",
    "StepStartEvent",
    "Stop",
    "Summary",
    "SystemMessage",
    "TaskComplete",
    "TextDeltaEvent",
    "TextEvent",
    "TextPart",
    "ThinkingDeltaEvent",
    "ThinkingEvent",
    "Tool",
    "ToolCall",
    "ToolCallDeltaEvent",
    "ToolCallEvent",
    "ToolError",
    "ToolMessage",
    "ToolResultEvent",
    "ToolStart",
    "Usage",
    "UsageEvent",
    "UserMessage",
    "Verdict",
    "assert_prefix_stable",
    "call",
    "context_window",
    "count_tokens",
    "current_agent",
    "current_call",
    "dump_record",
    "every",
    "from_openai",
    "list_sessions",
    "load_encoding",
    "load_record",
    "message_tokens",
    "newest_prompt_index",
    "read_log",
    "session_path",
    "to_openai",
    "tool",
    "tool_tokens",
    "validate_messages",
    "view",
]


LAZY = {  # names of modules that need httpx, or that few programs need
    "ChatAnthropic": ".models.anthropic",
    "ChatGoogle": ".models.google",
    "ChatOpenAI": ".models.openai",
    "from_openai": ".models.openai_messages",
    "to_openai": ".models.openai_messages",
}

if not TYPE_CHECKING:  # otherwise type checkers would accept any name

    def __getattr__(name: str) -> object:
        """Load a name of `LAZY`, or name the replacement of a name of another library."""
        if name in LAZY:
            return getattr(import_module(LAZY[name], __name__), name)
        if remedy := read_remedies(IMPORT_WORDS).get(name):
            raise ImportError(f"{__name__} does not export {name}: {remedy}")
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
