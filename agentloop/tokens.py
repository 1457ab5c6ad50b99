"""How many tokens a text, a message or a request has: tiktoken's count, or an estimate.

Copy with: messages.py.

tiktoken downloads its tables on first use, and most providers' models have other tables. So an
estimate is the default: one token per four bytes of UTF-8, calibrated with what the provider last
reported (`request_tokens`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from pydantic_core import to_json

from .messages import AssistantMessage, Content, Message, Record, Summary, TextPart, Usage

if TYPE_CHECKING:
    from .tools import Tool

BYTES_PER_TOKEN = 4
MESSAGE_OVERHEAD = 4  # role and separators
ATTACHMENT_TOKENS = 1_000  # an image of about a megapixel, or a page or two of a PDF


def count_tokens(text: str, encoding: str | None = None) -> int:
    """The tokens of a text: estimated, or counted with a tiktoken encoding ("o200k_base").

    A named encoding is loaded from tiktoken's cache, or downloaded by tiktoken.
    """
    if encoding is not None:
        import tiktoken

        return len(tiktoken.get_encoding(encoding).encode(text, disallowed_special=()))
    size = len(text) if text.isascii() else len(text.encode("utf-8", "replace"))
    return -(-size // BYTES_PER_TOKEN)


def message_tokens(message: Message) -> int:
    """The estimated tokens of one message, its calls and attachments included."""
    tokens = MESSAGE_OVERHEAD + _content_tokens(message.content)
    if isinstance(message, AssistantMessage):
        for call in message.tool_calls:
            tokens += MESSAGE_OVERHEAD + count_tokens(call.name) + count_tokens(call.arguments)
    return tokens


def _content_tokens(content: Content) -> int:
    if isinstance(content, str):
        return count_tokens(content)
    texts = (part.text if isinstance(part, TextPart) else None for part in content)
    return sum(ATTACHMENT_TOKENS if text is None else count_tokens(text) for text in texts)


def tool_tokens(tools: Iterable[Tool]) -> int:
    """The estimated tokens of the declarations of some tools."""
    return sum(
        count_tokens(tool.name + tool.description) + -(-len(to_json(tool.parameters)) // 4)
        for tool in tools
    )


def request_tokens(
    messages: Sequence[Message], tools: Sequence[Tool] = (), *, reported: Usage | None = None
) -> int:
    """The estimated input tokens of a request.

    `reported` is the usage of the last reply among the messages: then only what came after that
    reply is estimated, at the rate that the report shows.
    """
    sizes = [message_tokens(message) for message in messages]
    fixed = tool_tokens(tools)
    replies = [i for i, message in enumerate(messages) if isinstance(message, AssistantMessage)]
    if reported is None or not replies:
        return sum(sizes) + fixed
    last = replies[-1]
    rate = max(1.0, reported.input_tokens / max(1, sum(sizes[:last]) + fixed))
    return reported.total_tokens + round(rate * sum(sizes[last + 1 :]))


def last_report(log: Sequence[Record]) -> Usage | None:
    """What the provider reported for the newest reply, unless a summary has come since."""
    for record in reversed(log):
        if isinstance(record, Summary):
            return None
        if isinstance(record, AssistantMessage):
            return record.usage if record.usage and record.usage.input_tokens else None
    return None
