"""Four wires and one list of conversations: what every provider has to get right alike.

A `Wire` is a chat model, the strict double that it talks to, and the bytes of that wire's replies
for servers that misbehave. A `Conversation` is a script that every double can play.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from agentloop import Agent, tool
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
from agentloop.records import to_dict
from tests.doubles.anthropic_double import AnthropicDouble
from tests.doubles.fault_server import answer, chunk, stream_head
from tests.doubles.google_double import GoogleDouble
from tests.doubles.openai_double import OpenAIDouble, Reply, calls
from tests.doubles.responses_double import ResponsesDouble

KEY = "k-secret-4711"
VARIABLES = [
    f"{provider}_{name}"
    for provider in ("OPENAI", "ANTHROPIC", "GOOGLE", "GEMINI", "GOOGLE_GEMINI")
    for name in ("API_KEY", "BASE_URL")
] + ["HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"]


class Naps(list[float]):
    """Stands in for sleep, and remembers."""

    async def __call__(self, seconds: float) -> None:
        self.append(seconds)


@dataclass(frozen=True)
class Wire:
    """One provider's way to speak."""

    name: str
    chat: type[HTTPModel]
    double: type[OpenAIDouble]
    model_name: str
    errors: Mapping[str, Any]  # what stands for each class of errors inside a good answer
    settings: Mapping[str, Any] = field(default_factory=dict)  # of its chat model

    def model(self, server: Any, **settings: Any) -> Any:
        """The chat model for a double, a FaultServer, or an address; it does not really sleep."""
        url = server if isinstance(server, str) else getattr(server, "base_url", None) or server.url
        settings = {"sleep": Naps(), "api_key": KEY, **self.settings, **settings}
        if self.name == "google":
            url = url.removesuffix("/v1")
        return self.chat(settings.pop("model", self.model_name), base_url=url, **settings)

    def whole(self, reply: Reply | str = "hello") -> dict[str, Any]:
        return self.double().whole(Reply(reply) if isinstance(reply, str) else reply)

    def frames(self, reply: Reply | str = "hello") -> list[bytes]:
        """The reply as server-sent events, some of which show text."""
        return self.double().frames(Reply(reply) if isinstance(reply, str) else reply)

    def answer(self, reply: Reply | str = "hello", **settings: Any) -> bytes:
        """A whole HTTP response."""
        return answer(self.whole(reply), **settings)

    def stream(self, reply: Reply | str = "hello") -> bytes:
        """A whole streamed HTTP response."""
        return stream_head() + chunk(b"".join(self.frames(reply))) + chunk(b"")

    def error(self, kind: str, message: str = "later") -> bytes:
        """An error as an event in a stream."""
        error = self.errors[kind] | {"message": message}
        name, body = "", {"error": error}
        if self.name == "anthropic":
            name, body = "event: error\n", {"type": "error"} | body
        if self.name == "responses":
            name, body = "event: error\n", {"type": "error", "param": None} | error
        return f"{name}data: {json.dumps(body)}\n\n".encode()


OPENAI = Wire(
    "openai",
    ChatOpenAI,
    OpenAIDouble,
    "m",
    {
        "Overloaded": {"type": "overloaded_error"},
        "RateLimited": {"code": "rate_limit_exceeded"},
        "ServerError": {"type": "server_error"},
        "BadRequest": {"type": "invalid_request_error"},
    },
)
RESPONSES = Wire(
    "responses",
    ChatOpenAI,
    ResponsesDouble,
    "m",
    {
        "Overloaded": {"code": "server_is_overloaded"},
        "RateLimited": {"code": "rate_limit_exceeded"},
        "ServerError": {"code": "server_error"},
        "BadRequest": {"code": "invalid_prompt"},
    },
    {"api": "responses"},
)
ANTHROPIC = Wire(
    "anthropic",
    ChatAnthropic,
    AnthropicDouble,
    "m",
    {
        "Overloaded": {"type": "overloaded_error"},
        "RateLimited": {"type": "rate_limit_error"},
        "ServerError": {"type": "api_error"},
        "BadRequest": {"type": "invalid_request_error"},
    },
)
GOOGLE = Wire(
    "google",
    ChatGoogle,
    GoogleDouble,
    "gemini-3-pro",
    {
        "Overloaded": {"code": 503, "status": "UNAVAILABLE"},
        "RateLimited": {"code": 429, "status": "RESOURCE_EXHAUSTED"},
        "ServerError": {"code": 500, "status": "INTERNAL"},
        "BadRequest": {"code": 400, "status": "INVALID_ARGUMENT"},
    },
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
THINKS = {
    "responses": {"reasoning_summary": "auto"},
    "anthropic": {"thinking": 1024},
    "google": {"include_thoughts": True},
}


@dataclass(frozen=True)
class Conversation:
    """What the user says and what the model answers. The ids of calls are given, to compare them.

    `settings` are those of a wire's chat model.
    """

    name: str
    script: Sequence[Reply]
    prompts: Sequence[str | Sequence[Part]] = ("Hello?",)
    system: str = "Be exact."
    tool_choice: str = "auto"
    settings: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


def _say(text: str, **more: Any) -> Reply:
    return Reply(text, **more)


CONVERSATIONS = [
    Conversation("plain", [_say("Hello.")], system=""),
    Conversation("a system prompt", [_say("Hello.")], system="Be brief.\n\n- and kind"),
    Conversation(
        "parallel tools",
        [
            calls(*[("add", {"a": n, "b": 1}, f"c{n}") for n in range(5)]),
            _say("I go on.", calls=[("now", {}, "c5"), ("echo", {"text": "x"}, "c6")]),
            _say("Done."),
        ],
    ),
    Conversation(
        "tool errors",
        [
            calls(("fail", {}, "c1"), ("add", {"a": "x", "b": 1}, "c2"), ("add", {"a": 1}, "c3")),
            calls(("zzz", {"a": 1}, "c4"), ("add", {"a": 1, "b": 2, "c": 3}, "c5")),
            _say("I give up."),
        ],
    ),
    Conversation(
        "thinking",
        [
            _say("I add.", thinking="two sums, 漢字", calls=[("add", {"a": 1, "b": 2}, "c1")]),
            Reply(thinking="once more", calls=[("add", {"a": 3, "b": 4}, "c2"), ("now", {}, "c3")]),
            _say("3 and 7.", thinking="all done"),
            _say("Bye.", thinking="the end"),
        ],
        ["Add.", "Thanks."],
        settings=THINKS,
    ),
    Conversation(
        "images and files in a user message",
        [_say("A screen and a file.")],
        [[TextPart("What is this?"), PNG, PDF, ImagePart(url="https://example.org/a.png")]],
    ),
    Conversation(
        "an image in a tool result",
        [
            calls(("look", {}, "c1"), ("now", {}, "c2"), ("look", {}, "c3")),
            _say("Twice the screen."),
            _say("Yes."),
        ],
        ["Look!", "Really?"],
    ),
    Conversation(
        "unicode",
        [calls(("echo", {"text": UNICODE}, "c1")), _say(UNICODE)],
        [UNICODE],
        system=UNICODE,
    ),
    Conversation(
        "long",
        [
            *[
                _say(f"Step {n}.", calls=[("echo", {"text": LONG[: n * 500]}, f"c{n}")])
                for n in range(12)
            ],
            _say(LONG),
            _say("That was long."),
        ],
        [LONG, "And?"],
        system=LONG,
    ),
    Conversation("an unknown stop reason", [_say("So", finish="zzz")]),
    Conversation(
        "an unknown stop reason with calls",
        [_say("So", finish="zzz", calls=[("now", {}, "c1")]), _say("Noon.")],
        ["When?", "Well?"],
    ),
    Conversation("a refusal", [Reply(refusal="I can't.")]),
    Conversation(
        "a refusal without a word",
        [Reply(finish="content_filter"), _say("Hello.")],
        ["Help!", "Hello?"],
    ),
    Conversation("an answer that is cut off", [_say("It is", finish="length")]),
    Conversation(
        "calls that are cut off",
        [
            _say("So", finish="length", calls=[("now", {}, "c1"), ("add", {"a": 1}, "c2")]),
            _say("Hello."),
        ],
    ),
    Conversation("no arguments", [calls(("now", {}, "c1"), ("fail", {}, "c2")), _say("Noon.")]),
    Conversation("no usage", [calls(("now", {}, "c1")), _say("Noon.", usage=None)]),
    Conversation(
        "a second question",
        [
            calls(("add", {"a": 1, "b": 2}, "c1")),
            _say("3."),
            calls(("add", {"a": 3, "b": 4}, "c2")),
            _say("7."),
            _say("Bye."),
        ],
        ["1 + 2?", "3 + 4?", "Thanks."],
    ),
    Conversation(
        "ids that come again",
        [
            calls(("now", {}, "same"), ("echo", {"text": "x"}, "same")),
            calls(("now", {}, "same"), ("echo", {"text": "y"}, "a.b|" + "long" * 20)),
            _say("Noon."),
        ],
    ),
    Conversation("no tools allowed", [_say("Hello.")], tool_choice="none"),
]


def as_message(reply: Reply) -> AssistantMessage:
    """What a chat model should make of a scripted reply."""
    words = {"content_filter": "refused"}
    reason = words.get(reply.finish or "", reply.finish)
    reason = "refused" if reply.refusal else reason or ("tool_calls" if reply.calls else "end")
    return AssistantMessage(
        reply.text or reply.refusal or "",
        tuple(
            ToolCall(call_id, name, json.dumps(arguments, ensure_ascii=False))
            for name, arguments, call_id in reply.calls
        ),
        reply.thinking,
        Usage(10, 5) if reply.usage else None,
        reason,
    )


@dataclass
class Held:
    """A conversation that was held: its agent, what each run gave, and what was shown meanwhile."""

    agent: Agent
    results: list[Result]
    texts: str = ""
    thoughts: str = ""

    @property
    def log(self) -> list[dict[str, Any]]:
        """The log without times, and without what is for one provider alone."""
        records = map(to_dict, self.agent.log)
        return [
            {k: v for k, v in one.items() if k not in ("at", "raw", "seconds", "model")}
            for one in records
        ]


async def hold(talk: Conversation, llm: Any, streaming: bool = False) -> Held:
    """Lets an agent hold the conversation."""
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
