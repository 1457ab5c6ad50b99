"""The values that a later call needs from a conversation, and the words of a search for them."""

import json
import re
from functools import cache

from agentloop import AssistantMessage, UserMessage
from agentloop.common.dropped_turns import NAMES

LONG = 60  # characters; longer texts are compared by their words and lines
SHORTEST_LINE = 16
SHORTEST_NAME = 5  # in code: shorter names, such as 130, occur everywhere; so does __init__
CODE_NAME = re.compile(r"[\w@#./-]*[\d_@][\w@#./-]*")
WORDS = 8  # of a search
WORD = re.compile(r"[^\W\d_][\w./-]{2,}\w|\w*\d[\w./-]*\w")
PART = re.compile(r"\w{3,}")
NAME = re.compile(r"[\d_./-]|[a-z][A-Z]")


def values(arguments):
    """Return the distinct texts and numbers in arguments; of code, the longer names."""
    found = []
    for name, item in items(arguments):
        if is_code(name, item):
            words = (word.rstrip("./-") for word in CODE_NAME.findall(item))
            found += [word for word in words if len(word) >= SHORTEST_NAME and word[:2] != "__"]
        elif not isinstance(item, bool | None) and len(str(item)) >= 3:
            found.append(str(item))
    return [*dict.fromkeys(found)]


def lines(arguments):
    """Return the distinct lines of the code in arguments."""
    code = [item for name, item in items(arguments) if is_code(name, item)]
    found = (line.strip() for text in code for line in text.splitlines())
    return [*dict.fromkeys(line for line in found if len(line) >= SHORTEST_LINE)]


def is_code(name, item):
    """Return whether an argument is a command or a long text, of which only parts are values."""
    if not isinstance(item, str):
        return False
    return name == "command" or len(item) > LONG or "\n" in item


def items(arguments):
    """Yield the values in arguments, at any depth, with the name of their argument."""
    for key, value in arguments.items():
        for item in value if isinstance(value, list) else [value]:
            if isinstance(item, dict):
                yield from items(item)
            else:
                yield key, item


@cache
def plain(arguments):
    """Return the texts in the JSON of a call, without escapes."""
    try:
        return "\n".join(str(item) for _, item in items(json.loads(arguments)))
    except (ValueError, AttributeError):
        return arguments


def text_of(messages):
    """Return the complete text of messages."""
    texts = []
    for message in messages:
        texts.append(message.text)
        if isinstance(message, AssistantMessage):
            texts += [plain(call.arguments) for call in message.tool_calls]
    return "\n".join(texts)


def without_names(messages):
    """Return the complete text of messages, without the lists of names in placeholders."""
    texts = []
    for message in messages:
        summary = isinstance(message, UserMessage) and message.origin == "summary"
        texts.append(message.text.partition(NAMES)[0] if summary else text_of([message]))
    return "\n".join(texts)


def question(reply, missing, shown, tried=(), blind=False):
    """Return the words of a search for the missing values of a reply.

    The words occur in this reply, are visible to the model, and have not been tried: first words of
    missing lines, then of other calls, then of the text; of these, names first. Without such words,
    the search is the name of the tool. A `blind` model has no word of the missing lines.
    """
    if blind:
        tried = {*tried, *(word for line in missing for word in WORD.findall(line))}
    seen = {*WORD.findall(shown), *PART.findall(shown)}
    texts = ["\n".join(missing), *(plain(call.arguments) for call in reply.tool_calls), reply.text]
    words = []
    for text in texts:
        found = [word for word in visible_words(text, seen, tried) if word not in words]
        words += sorted(dict.fromkeys(found), key=lambda word: not NAME.search(word))
    return words[:WORDS] or [call.name for call in reply.tool_calls]


def visible_words(text, seen, tried):
    """Yield the words of a text that are in `seen`; of longer names that are not, their parts."""
    for word in WORD.findall(text):
        parts = [word] if word in seen else PART.findall(word)
        yield from (part for part in parts if part in seen and part not in tried)
