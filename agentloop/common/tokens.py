"""How many tokens texts, messages and tools have: an estimate, or tiktoken's count if you load it.

Copy with: tools.py and its imports.

The estimate splits a text with one regular expression, and needs no vocabulary. For source code,
data, tool output and prose in most languages, it's 0.8 to 1.35 times the tokens of o200k_base.
Decisions about the log use the estimate, so that the messages of a request are the same on every
machine. For exact counts:

    load_encoding("gpt-5.4-mini")       # once, before a run: may download the vocabulary
    count_tokens(text, model="gpt-5.4-mini")
"""

import re
from collections.abc import Iterable
from contextlib import suppress
from importlib import import_module
from threading import Thread
from typing import Any, cast

from pydantic_core import to_json

from ..messages import JSON, AssistantMessage, Message, TextPart, cache_of
from ..tools import Tool

TOKEN = re.compile(
    r"[ _.]?[A-Z]?[a-z]{1,8}|[A-Z]{4,8}|[A-Z]{1,2}"  # words, or parts of long words
    r"|[0-9]{1,3}|[ \t](?=[0-9])"  # other single spaces belong to the next token
    r"|\n{1,16}|[ \t\r]{2,64}"
    r"|[-=*#~.─━═]{5,64}|[^ \t\r\nA-Za-z0-9\x80-\U0010ffff]{1,3}"  # rules, punctuation
    r"|[\x80-\u1fff]{1,3}[a-z]{0,2}"  # accented, Greek, Cyrillic, Semitic and Indic letters
    r"|[\u3040-\u30ff\uac00-\ud7af]{1,2}|[^\x00-\u1fff]"  # kana and hangul, other characters
)
SAMPLE, BLOCK = 100_000, 1_000  # characters: a longer text is measured by samples, in blocks
MESSAGE_OVERHEAD = 4  # role and separators
ATTACHMENT_TOKENS = 1_000  # an image of about a megapixel, or a page or two of a PDF
DEFAULT_ENCODING = "o200k_base"  # for models unknown to tiktoken
DOWNLOAD_SECONDS = 30.0

_vocabularies = dict[str, Any]()  # by model


def load_encoding(model: str) -> bool:
    """Load tiktoken's vocabulary for a model, so that its counts are exact.

    If tiktoken doesn't know the model, the vocabulary is o200k_base; for models that aren't
    OpenAI's, the counts are then approximate. The first call for a vocabulary downloads it to the
    directory TIKTOKEN_CACHE_DIR, and may block for 30 seconds, so call this before a run. Returns
    False if tiktoken isn't installed, or if the download fails or takes longer: counts stay
    estimates.
    """
    if not model:
        raise ValueError("load_encoding() needs a model's name, such as 'gpt-5.4-mini'")
    try:
        tiktoken = import_module("tiktoken")
    except ImportError:
        return False
    try:
        name = tiktoken.encoding_name_for_model(model.rpartition("/")[2])
    except KeyError:
        name = DEFAULT_ENCODING
    loaded = list[Any]()

    def load() -> None:
        with suppress(Exception):  # no network, no space, a damaged file
            loaded.append(tiktoken.get_encoding(name))

    # in a thread that can be left alone: tiktoken waits forever for a server that doesn't answer
    thread = Thread(target=load, name="vocabulary", daemon=True)
    thread.start()
    thread.join(DOWNLOAD_SECONDS)
    if not loaded:
        return False
    _vocabularies[model] = loaded[0]
    return True


def count_tokens(text: str, model: str = "") -> int:
    """Count the tokens of a text: exactly after `load_encoding(model)`, or else an estimate."""
    if encoding := _vocabularies.get(model):
        return len(encoding.encode_ordinary(text))
    if len(text) <= SAMPLE:
        return len(TOKEN.findall(text))
    step = BLOCK * -(-len(text) // SAMPLE)  # a multiple of BLOCK, rounded up
    sample = "".join(text[at : at + BLOCK] for at in range(0, len(text), step))
    return len(TOKEN.findall(sample)) * len(text) // len(sample)


def message_tokens(message: Message | Iterable[Message], model: str = "") -> int:
    """Count the tokens of one message or several, with their calls and attachments.

    Texts are counted by `count_tokens(text, model)`; attachments and overhead are estimated. A
    message keeps its estimate, because a run asks for it again and again.
    """
    if not isinstance(message, Message):
        return sum(message_tokens(one, model) for one in message)
    if model:
        return _tokens_of(message, model)
    cache = cache_of(message)
    if "tokens" not in cache:
        cache["tokens"] = _tokens_of(message)
    return cast(int, cache["tokens"])


def _tokens_of(message: Message, model: str = "") -> int:
    tokens = MESSAGE_OVERHEAD + count_tokens(message.text, model)
    if not isinstance(message.content, str):
        tokens += ATTACHMENT_TOKENS * sum(not isinstance(p, TextPart) for p in message.content)
    if isinstance(message, AssistantMessage):
        for call in message.tool_calls:
            tokens += MESSAGE_OVERHEAD + count_tokens(call.name + call.arguments, model)
    return tokens


def tool_tokens(tools: Iterable[Tool], model: str = "") -> int:
    """Count the tokens of what a request says about tools: see `count_tokens`.

    A tool doesn't count if the provider loads it only when its search finds it (`defer_loading`).
    """
    tokens = 0
    for tool in tools:
        if tool.deferred or any(map(_is_deferred, (tool.extra or {}).values())):
            continue
        schema = to_json(tool.parameters).decode()
        tokens += count_tokens(f"{tool.name}{tool.description}{schema}", model)
    return tokens


def _is_deferred(fields: object) -> bool:
    return isinstance(fields, dict) and bool(cast(JSON, fields).get("defer_loading"))
