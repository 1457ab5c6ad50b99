"""The four wire formats, and conversations for the tests of all formats.

A `Wire` combines a chat model, its strict double, and replies as bytes for servers with faults. A
`Conversation` is a script for all doubles.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from agentloop import Agent, tool
from agentloop.common.records import to_dict
from agentloop.errors import ToolError
from agentloop.events import TextDeltaEvent, ThinkingDeltaEvent
from agentloop.messages import (
    AssistantMessage,
    FilePart,
    ImagePart,
    Part,
    Result,
    TextPart,
    ToolCall,
    Usage,
)
from agentloop.models.anthropic import ChatAnthropic
from agentloop.models.google import ChatGoogle
from agentloop.models.http import HTTPModel
from agentloop.models.openai import ChatOpenAI

from .anthropic_double import AnthropicDouble
from .fault_server import answer, chunk, stream_head
from .google_double import GoogleDouble
from .openai_double import OpenAIDouble, Reply, calls
from .responses_double import ResponsesDouble

KEY = "k-secret-4711"
VARIABLES = [
    f"{provider}_{name}"
    for provider in ("OPENAI", "ANTHROPIC", "GOOGLE", "GEMINI", "GOOGLE_GEMINI")
    for name in ("API_KEY", "BASE_URL")
] + ["HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"]


class Naps(list[float]):
    """A replacement of sleep that records the durations."""

    async def __call__(self, seconds: float) -> None:
        self.append(seconds)


@dataclass(frozen=True)
class Wire:
    """The wire format of a provider.

    errors: error objects inside a successful response, by the class of the error.
    settings: settings of the chat model. `bare` disables all defaults, and `thinks` enables
        thinking.
    extra: the provider's key in `Tool.extra`.
    choice: the field of a request for the tool choice; `choice_beside_provider_tools` applies if
        the request also contains tools of the provider.
    schema: the field of a declared tool for the parameters.
    results_hold_media: whether the result of a call may contain an image.
    last_event_says_nothing: whether a stream is complete without its last event.
    """

    name: str
    chat: type[HTTPModel]
    double: type[OpenAIDouble]
    model_name: str
    errors: Mapping[str, Any]
    extra: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    bare: Mapping[str, Any] = field(default_factory=dict)
    thinks: Mapping[str, Any] = field(default_factory=dict)
    choice: str = "tool_choice"
    choice_beside_provider_tools: Mapping[str, Any] | None = None
    schema: str = "parameters"
    results_hold_media: bool = False
    last_event_says_nothing: bool = False

    def model(self, server: Any, **settings: Any) -> Any:
        """Return the chat model for a double, a FaultServer or an address, without waits."""
        url = server if isinstance(server, str) else getattr(server, "base_url", None) or server.url
        settings = {"sleep": Naps(), "api_key": KEY, **self.settings, **settings}
        if self.name == "google":
            url = url.removesuffix("/v1")
        return self.chat(settings.pop("model", self.model_name), base_url=url, **settings)

    def whole(self, reply: Reply | str = "hello") -> dict[str, Any]:
        return self.double().whole(Reply(reply) if isinstance(reply, str) else reply)

    def frames(self, reply: Reply | str = "hello") -> list[bytes]:
        """Return a reply as server-sent events, some of which contain text."""
        return self.double().frames(Reply(reply) if isinstance(reply, str) else reply)

    def answer(self, reply: Reply | str = "hello") -> bytes:
        """Return a complete HTTP response."""
        return answer(self.whole(reply))

    def stream(self, reply: Reply | str = "hello") -> bytes:
        """Return a complete streamed HTTP response."""
        return stream_head() + chunk(b"".join(self.frames(reply))) + chunk(b"")

    def declared(self, body: Mapping[str, Any]) -> list[Any]:
        """Return the declared tools of the agent in a request."""
        tools: list[Any] = body["tools"]
        return tools[0]["functionDeclarations"] if self.name == "google" else tools

    def first_content(self, body: Mapping[str, Any]) -> Any:
        """Return the content of the first message in a request."""
        messages = body.get("messages") or body.get("input") or body["contents"]
        return messages[0].get("content") or messages[0]["parts"]

    def result_content(self, body: Mapping[str, Any]) -> Any:
        """Return the content of the result of the call that follows the first message."""
        if self.name == "responses":
            return body["input"][2]["output"]
        return body["messages"][2]["content"][0]["content"]

    def keep_beside(self, data: dict[str, Any]) -> dict[str, Any]:
        """Return an object in a complete reply whose fields must be preserved."""
        beside: dict[str, Any] = {"type": "zzz"}
        if self.name == "openai":
            data["choices"][0]["message"]["extra_content"] = beside
        elif self.name == "responses":
            data["output"][0]["zzz"] = beside
        elif self.name == "anthropic":
            data["content"].append(beside)
        else:
            data["candidates"][0]["content"]["parts"].append(beside)
        return beside

    def error(self, kind: str) -> bytes:
        """Return an error as an event of a stream."""
        error = self.errors[kind] | {"message": "later"}
        form = {
            "anthropic": {"type": "error", "error": error},
            "responses": {"type": "error"} | error,
        }
        body = form.get(self.name, {"error": error})
        name = "event: error\n" if self.name in form else ""
        return f"{name}data: {json.dumps(body)}\n\n".encode()


OPENAI = Wire(
    name="openai",
    chat=ChatOpenAI,
    double=OpenAIDouble,
    model_name="m",
    errors={
        "Overloaded": {"type": "overloaded_error"},
        "RateLimited": {"code": "rate_limit_exceeded"},
        "ServerError": {"type": "server_error"},
        "BadRequest": {"type": "invalid_request_error"},
    },
    extra="openai",
    last_event_says_nothing=True,  # [DONE]
)
RESPONSES = Wire(
    name="responses",
    chat=ChatOpenAI,
    double=ResponsesDouble,
    model_name="m",
    errors={
        "Overloaded": {"code": "server_is_overloaded"},
        "RateLimited": {"code": "rate_limit_exceeded"},
        "ServerError": {"code": "server_error"},
        "BadRequest": {"code": "invalid_prompt"},
    },
    extra="openai",
    settings={"api": "responses"},
    thinks={"reasoning_summary": "auto"},
    results_hold_media=True,
)
ANTHROPIC = Wire(
    name="anthropic",
    chat=ChatAnthropic,
    double=AnthropicDouble,
    model_name="m",
    errors={
        "Overloaded": {"type": "overloaded_error"},
        "RateLimited": {"type": "rate_limit_error"},
        "ServerError": {"type": "api_error"},
        "BadRequest": {"type": "invalid_request_error"},
    },
    extra="anthropic",
    bare={"cache": False},
    thinks={"thinking": 1024},
    schema="input_schema",
    results_hold_media=True,
    last_event_says_nothing=True,  # message_stop
)
GOOGLE = Wire(
    name="google",
    chat=ChatGoogle,
    double=GoogleDouble,
    model_name="gemini-3-pro",
    errors={
        "Overloaded": {"code": 503, "status": "UNAVAILABLE"},
        "RateLimited": {"code": 429, "status": "RESOURCE_EXHAUSTED"},
        "ServerError": {"code": 500, "status": "INTERNAL"},
        "BadRequest": {"code": 400, "status": "INVALID_ARGUMENT"},
    },
    extra="google",
    thinks={"include_thoughts": True},
    choice="toolConfig",
    choice_beside_provider_tools={"includeServerSideToolInvocations": True},
    schema="parametersJsonSchema",
)
WIRES = [OPENAI, RESPONSES, ANTHROPIC, GOOGLE]


# ---- conversations


@tool("Adds two numbers.")
async def add(a: int, b: int) -> int:
    return a + b


@tool("Looks at the screen.")
async def look() -> list[Any]:
    return [TextPart("the screen"), PNG]


@tool("The time.")
async def now() -> str:
    return "noon"


@tool("Fails, always.")
async def fail(how: str = "badly") -> str:
    raise ToolError(f"it failed {how}")


@tool("Says it again.")
async def echo(text: str) -> str:
    return text


TOOLS = [add, look, now, fail, echo]
PNG = ImagePart(data=b"\x89PNG\r\n", media_type="image/png")
PDF = FilePart(data=b"%PDF-1.4", media_type="application/pdf", name="a.pdf")
UNICODE = 'Zürich 漢字 👩\u200d👧 عربي e\u0301 \u2028\u0085 \\u0041 "quoted" </tool> \t|'
LONG = "All work and no play. " * 500
THINKS = {wire.name: wire.thinks for wire in WIRES}


@dataclass(frozen=True)
class Conversation:
    """A script of user messages and replies. The ids of calls are fixed, for comparisons.

    settings: settings of the chat model.
    """

    name: str
    script: Sequence[Reply]
    prompts: Sequence[str | Sequence[Part]] = ("Hello?",)
    system: str = "Be exact."
    tool_choice: str = "auto"
    settings: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


def _add(call_id: str, **arguments: Any) -> tuple[str, dict[str, Any], str]:
    return "add", arguments, call_id


def _echo(call_id: str, text: str) -> tuple[str, dict[str, Any], str]:
    return "echo", {"text": text}, call_id


def _now(call_id: str) -> tuple[str, dict[str, Any], str]:
    return "now", {}, call_id


HELLO, NOON, BYE = Reply("Hello."), Reply("Noon."), Reply("Bye.")
CONVERSATIONS = [
    Conversation("plain", [HELLO], system=""),
    Conversation("a system prompt", [HELLO], system="Be brief.\n\n- and kind"),
    Conversation(
        "parallel tools",
        [
            calls(*[_add(f"c{n}", a=n, b=1) for n in range(5)]),
            Reply("I go on.", [_now("c5"), _echo("c6", "x")]),
            Reply("Done."),
        ],
    ),
    Conversation(
        "tool errors",
        [
            calls(("fail", {}, "c1"), _add("c2", a="x", b=1), _add("c3", a=1)),
            calls(("zzz", {"a": 1}, "c4"), _add("c5", a=1, b=2, c=3)),
            Reply("I give up."),
        ],
    ),
    Conversation(
        "thinking",
        [
            Reply("I add.", [_add("c1", a=1, b=2)], "two sums, 漢字"),
            Reply(None, [_add("c2", a=3, b=4), _now("c3")], "once more"),
            Reply("3 and 7.", thinking="all done"),
            Reply("Bye.", thinking="the end"),
        ],
        ["Add.", "Thanks."],
        settings=THINKS,
    ),
    Conversation(
        "images and files in a user message",
        [Reply("A screen and a file.")],
        [[TextPart("What is this?"), PNG, PDF, ImagePart(url="https://example.org/a.png")]],
    ),
    Conversation(
        "an image in a tool result",
        [
            calls(("look", {}, "c1"), _now("c2"), ("look", {}, "c3")),
            Reply("Twice the screen."),
            Reply("Yes."),
        ],
        ["Look!", "Really?"],
    ),
    Conversation("unicode", [calls(_echo("c1", UNICODE)), Reply(UNICODE)], [UNICODE], UNICODE),
    Conversation(
        "long",
        [
            *[Reply(f"Step {n}.", [_echo(f"c{n}", LONG[: n * 500])]) for n in range(12)],
            Reply(LONG),
            Reply("That was long."),
        ],
        [LONG, "And?"],
        LONG,
    ),
    Conversation("an unknown stop reason", [Reply("So", finish="zzz")]),
    Conversation(
        "an unknown stop reason with calls",
        [Reply("So", [_now("c1")], finish="zzz"), NOON],
        ["When?", "Well?"],
    ),
    Conversation("a refusal", [Reply(refusal="I can't.")]),
    Conversation(
        "a refusal without a word", [Reply(finish="content_filter"), HELLO], ["Help!", "Hello?"]
    ),
    Conversation("an answer that is cut off", [Reply("It is", finish="length")]),
    Conversation(
        "calls that are cut off",
        [Reply("So", [_now("c1"), _add("c2", a=1)], finish="length"), HELLO],
    ),
    Conversation("no arguments", [calls(_now("c1"), ("fail", {}, "c2")), NOON]),
    Conversation("no usage", [calls(_now("c1")), Reply("Noon.", usage=None)]),
    Conversation(
        "a second question",
        [calls(_add("c1", a=1, b=2)), Reply("3."), calls(_add("c2", a=3, b=4)), Reply("7."), BYE],
        ["1 + 2?", "3 + 4?", "Thanks."],
    ),
    Conversation(
        "ids that come again",
        [
            calls(_now("same"), _echo("same", "x")),
            calls(_now("same"), _echo("a.b|" + "long" * 20, "y")),
            NOON,
        ],
    ),
    Conversation("no tools allowed", [HELLO], tool_choice="none"),
]


def as_message(reply: Reply) -> AssistantMessage:
    """Return the message that a chat model must return for a scripted reply."""
    refused = reply.refusal or reply.finish == "content_filter"
    reason = reply.finish or ("tool_calls" if reply.calls else "end")
    made = tuple(
        ToolCall(call_id, name, json.dumps(arguments, ensure_ascii=False))
        for name, arguments, call_id in reply.calls
    )
    text, usage = reply.text or reply.refusal or "", Usage(10, 5) if reply.usage else None
    return AssistantMessage(text, made, reply.thinking, usage, "refused" if refused else reason)


@dataclass
class Held:
    """A finished conversation: the agent, the results of its runs, and the streamed text."""

    agent: Agent
    results: list[Result]
    texts: str = ""
    thoughts: str = ""

    @property
    def log(self) -> list[dict[str, Any]]:
        """Return the log without times and without provider-specific data."""
        left_out = ("at", "raw", "seconds", "model", "finish_reason")
        records = map(to_dict, self.agent.log)
        return [{k: v for k, v in one.items() if k not in left_out} for one in records]


async def hold(talk: Conversation, llm: Any, streaming: bool = False) -> Held:
    """Run the conversation with an agent."""
    agent = Agent(llm=llm, tools=TOOLS, system_prompt=talk.system, tool_choice=talk.tool_choice)
    held = Held(agent, [])

    def listen(event: object) -> None:
        if isinstance(event, TextDeltaEvent):
            held.texts += event.content
        if isinstance(event, ThinkingDeltaEvent):
            held.thoughts += event.content

    agent.listeners = [listen] if streaming else []
    for prompt in talk.prompts:
        held.results.append(await agent.run(prompt))
    return held
