"""agentloop: an agent is a for-loop.

Everything public is here. What is more than the core and Agent is loaded when it is first named.
"""

import sys

# `python -m agentloop` imports this file first, with the current folder at the front of the path:
# a secrets.py or pydantic.py there is a stranger's.
if (
    sys.argv[:1] == ["-m"]
    and sys.orig_argv[-len(sys.argv)].partition(".")[0] == __name__
    and not sys.flags.safe_path
):
    del sys.path[0]

from importlib import import_module
from typing import TYPE_CHECKING, Any

from .agent import Agent
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
    ServerError,
    SessionLocked,
    ToolError,
)
from .events import (
    CompactionEvent,
    Event,
    FinalResponseEvent,
    HiddenUserMessageEvent,
    PruneEvent,
    RequestEvent,
    StepCompleteEvent,
    StepStartEvent,
    TextDeltaEvent,
    TextEvent,
    ThinkingDeltaEvent,
    ThinkingEvent,
    ToolCallEvent,
    ToolResultEvent,
    ToolsChangedEvent,
    UsageEvent,
)
from .loop import ChatModel, Loop
from .messages import (
    AssistantMessage,
    Decision,
    FilePart,
    ImagePart,
    Message,
    Record,
    Request,
    Reset,
    Result,
    RunEnd,
    RunStart,
    SideRequest,
    Stop,
    Summary,
    SystemMessage,
    TaskComplete,
    TextPart,
    ToolCall,
    ToolMessage,
    ToolStart,
    Unknown,
    Usage,
    UserMessage,
    dump_record,
    load_record,
)
from .mixins.compaction import Compaction, CompactionConfig
from .mixins.done import DoneTool
from .mixins.ephemeral import Ephemeral
from .mixins.inbox import Inbox, every
from .models.scripted import ScriptedModel, assert_prefix_stable
from .settings import Settings
from .tools import Tool, tool
from .transcript import call_states, open_calls, seal, validate, view

if TYPE_CHECKING:
    from .mixins.cost import Cost, Price, price_of, run_counted
    from .mixins.limits import Limits
    from .mixins.memory import Memory
    from .mixins.offload import Offload
    from .mixins.repetition import Repetition
    from .mixins.session import Session
    from .mixins.trim import Trim, TrimConfig
    from .models.anthropic import ChatAnthropic
    from .models.dumps import dump_to
    from .models.fallback import Fallback
    from .models.google import ChatGoogle
    from .models.openai import ChatOpenAI
    from .models.recording import RecordingModel
    from .models.replay import ReplayMismatch, ReplayModel
    from .saved import sessions
    from .store import FileStore

__version__ = "0.1.0"

_LAZY = {
    "ChatAnthropic": ".models.anthropic",
    "ChatGoogle": ".models.google",
    "ChatOpenAI": ".models.openai",
    "Cost": ".mixins.cost",
    "Fallback": ".models.fallback",
    "FileStore": ".store",
    "Limits": ".mixins.limits",
    "Memory": ".mixins.memory",
    "Offload": ".mixins.offload",
    "Price": ".mixins.cost",
    "RecordingModel": ".models.recording",
    "Repetition": ".mixins.repetition",
    "ReplayMismatch": ".models.replay",
    "ReplayModel": ".models.replay",
    "Session": ".mixins.session",
    "Trim": ".mixins.trim",
    "TrimConfig": ".mixins.trim",
    "dump_to": ".models.dumps",
    "price_of": ".mixins.cost",
    "run_counted": ".mixins.cost",
    "sessions": ".saved",
}


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return getattr(import_module(_LAZY[name], __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


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
    "Decision",
    "Depends",
    "DoneTool",
    "Ephemeral",
    "Event",
    "Fallback",
    "FilePart",
    "FileStore",
    "FinalResponseEvent",
    "HiddenUserMessageEvent",
    "ImagePart",
    "Inbox",
    "Limits",
    "Loop",
    "Memory",
    "Message",
    "ModelError",
    "Offload",
    "Overloaded",
    "Price",
    "PruneEvent",
    "RateLimited",
    "Record",
    "RecordingModel",
    "Repetition",
    "ReplayMismatch",
    "ReplayModel",
    "Request",
    "RequestEvent",
    "Reset",
    "Result",
    "RunEnd",
    "RunStart",
    "ScriptedModel",
    "ServerError",
    "Session",
    "SessionLocked",
    "Settings",
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
    "ToolCallEvent",
    "ToolError",
    "ToolMessage",
    "ToolResultEvent",
    "ToolStart",
    "ToolsChangedEvent",
    "Trim",
    "TrimConfig",
    "Unknown",
    "Usage",
    "UsageEvent",
    "UserMessage",
    "assert_prefix_stable",
    "call_states",
    "current_agent",
    "current_call",
    "dump_record",
    "dump_to",
    "every",
    "load_record",
    "open_calls",
    "price_of",
    "run_counted",
    "seal",
    "sessions",
    "tool",
    "validate",
    "view",
]
