"""agentloop: an agent is a for-loop.

    from agentloop import Agent, ScriptedModel, call, tool

    @tool("Add two numbers")
    async def add(a: int, b: int) -> int:
        return a + b

    llm = ScriptedModel(call("add", a=2, b=3), "2 + 3 is 5.")  # or ChatOpenAI("gpt-5.4-mini")
    print(Agent(llm=llm, tools=[add]).run_sync("What is 2 + 3?"))

This module exports the names that most programs need:

- agents: `Agent`, `Loop` (the for-loop without mixins), `Result`, `Stop`, `RunStopped`;
- models: `ChatOpenAI`, `ChatAnthropic`, `ChatGoogle`, `Fallback`, `ScriptedModel`, `ChatModel`;
- tools: `tool`, `Tool`, `ToolError`, `TaskComplete`, `NeedsApproval`, `Depends`, `current_agent`,
  `current_call`;
- mixins: `Compaction`, `Cost`, `DoneTool`, `Ephemeral`, `InstructionFiles`, `Limits`,
  `MessageQueue`, `Session`;
- messages, log records and events: `UserMessage`, `ToolCall`, `TextDeltaEvent`, and others.

Other mixins are in `agentloop.mixins` (approval, durable, hooks, tracing), and capabilities in
`agentloop.toolkits` (files, shell, mcp, skills, subagent, todo, and others). `help(Limits)`
documents the settings of a class. PARTS.md lists all parts; examples/howto, examples/recipes and
examples/lessons contain complete programs.

Names outside the core are loaded on first use.
"""

from importlib import import_module
from typing import TYPE_CHECKING

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
from .loop import Loop
from .messages import (
    AssistantMessage,
    FilePart,
    ImagePart,
    Message,
    Part,
    Result,
    Stop,
    SystemMessage,
    TaskComplete,
    TextPart,
    ToolCall,
    ToolMessage,
    Usage,
    UserMessage,
)
from .model import ChatModel, Request
from .tools import Tool, tool
from .transcript import (
    Fork,
    Mark,
    Record,
    RunStart,
    SideRequest,
    ToolStart,
    newest_prompt_index,
    view,
)

if TYPE_CHECKING:
    from .agent import Agent
    from .common.gate import Gate, Judgment, Verdict
    from .common.nudge import nudge
    from .common.prices import Price
    from .common.records import dump_record, load_record
    from .common.redaction import redacted
    from .common.review import NeedsApproval, Review, is_approved
    from .common.store import read_log, session_path, write_log
    from .common.summary import Summary
    from .common.tokens import count_tokens, load_encoding, message_tokens, tool_tokens
    from .common.windows import context_window
    from .mixins.compaction import Compaction, CompactionConfig
    from .mixins.cost import Cost
    from .mixins.done import DoneTool
    from .mixins.ephemeral import Ephemeral
    from .mixins.instruction_files import InstructionFiles
    from .mixins.limits import Limits
    from .mixins.message_queue import MessageQueue, every
    from .mixins.session import Session, list_sessions
    from .models.anthropic import ChatAnthropic
    from .models.fallback import Fallback
    from .models.google import ChatGoogle
    from .models.openai import ChatOpenAI
    from .models.openai_messages import from_openai, to_openai
    from .models.scripted import ScriptedModel, assert_prefix_stable, call, validate_messages

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
    "NeedsApproval",
    "Overloaded",
    "Part",
    "Price",
    "RateLimited",
    "Record",
    "Request",
    "Result",
    "Review",
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
    "is_approved",
    "list_sessions",
    "load_encoding",
    "load_record",
    "message_tokens",
    "newest_prompt_index",
    "nudge",
    "read_log",
    "redacted",
    "session_path",
    "to_openai",
    "tool",
    "tool_tokens",
    "validate_messages",
    "view",
    "write_log",
]

LAZY = {  # names outside the core, by module: loaded on first use
    ".agent": "Agent",
    ".common.gate": "Gate Judgment Verdict",
    ".common.nudge": "nudge",
    ".common.prices": "Price",
    ".common.records": "dump_record load_record",
    ".common.redaction": "redacted",
    ".common.review": "NeedsApproval Review is_approved",
    ".common.store": "read_log session_path write_log",
    ".common.summary": "Summary",
    ".common.tokens": "count_tokens load_encoding message_tokens tool_tokens",
    ".common.windows": "context_window",
    ".mixins.compaction": "Compaction CompactionConfig",
    ".mixins.cost": "Cost",
    ".mixins.done": "DoneTool",
    ".mixins.ephemeral": "Ephemeral",
    ".mixins.instruction_files": "InstructionFiles",
    ".mixins.limits": "Limits",
    ".mixins.message_queue": "MessageQueue every",
    ".mixins.session": "Session list_sessions",
    ".models.fallback": "Fallback",
    ".models.scripted": "ScriptedModel assert_prefix_stable call validate_messages",
    ".models.anthropic": "ChatAnthropic",
    ".models.google": "ChatGoogle",
    ".models.openai": "ChatOpenAI",
    ".models.openai_messages": "from_openai to_openai",
}


def __dir__() -> list[str]:
    return __all__


if not TYPE_CHECKING:  # otherwise type checkers would accept any name
    from .messages import advice

    def __getattr__(name: str) -> object:
        for module, names in LAZY.items():
            if name in names.split():
                value = globals()[name] = getattr(import_module(module, __name__), name)
                return value
        if name[0] != "_" and (remedy := advice(["import"], name)):
            raise ImportError(f"{__name__} does not export {name}: {remedy}")
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
