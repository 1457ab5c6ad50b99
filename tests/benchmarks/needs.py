"""What a later call needs of a conversation, and with what words a model would ask for it."""

import json
import re
from functools import cache

from agentloop import AssistantMessage, UserMessage
from agentloop.mixins.compaction import NAMES

LONG = 60  # characters; a longer text is looked at by its words and lines
SHORTEST_LINE = 16
SHORTEST_NAME = 5  # in code: a shorter one, such as 130, stands everywhere; so does __init__
CODE_NAME = re.compile(r"[\w@#./-]*[\d_@][\w@#./-]*")
WORDS = 8  # that a model asks with
WORD = re.compile(r"[^\W\d_][\w./-]{2,}\w|\w*\d[\w./-]*\w")
PART = re.compile(r"\w{3,}")
NAME = re.compile(r"[\d_./-]|[a-z][A-Z]")


def values(arguments):
    """Return the texts and numbers among some arguments, each once; of code, the longer names."""
    found = []
    for name, item in items(arguments):
        if is_code(name, item):
            words = (word.rstrip("./-") for word in CODE_NAME.findall(item))
            found += [word for word in words if len(word) >= SHORTEST_NAME and word[:2] != "__"]
        elif not isinstance(item, bool | None) and len(str(item)) >= 3:
            found.append(str(item))
    return [*dict.fromkeys(found)]


def lines(arguments):
    """Return the lines of the code among some arguments, each once."""
    code = [item for name, item in items(arguments) if is_code(name, item)]
    found = (line.strip() for text in code for line in text.splitlines())
    return [*dict.fromkeys(line for line in found if len(line) >= SHORTEST_LINE)]


def is_code(name, item):
    """Return whether an argument is a command or a long text, of which only parts are a value."""
    if not isinstance(item, str):
        return False
    return name == "command" or len(item) > LONG or "\n" in item


def items(arguments):
    """Yield what stands in some arguments, however deep, with the name of its argument."""
    for key, value in arguments.items():
        for item in value if isinstance(value, list) else [value]:
            if isinstance(item, dict):
                yield from items(item)
            else:
                yield key, item


@cache
def plain(arguments):
    """Return the texts in a call's JSON as they were before they became JSON."""
    try:
        return "\n".join(str(item) for _, item in items(json.loads(arguments)))
    except (ValueError, AttributeError):
        return arguments


def text_of(messages):
    """Return all that stands in some messages."""
    texts = []
    for message in messages:
        texts.append(message.text)
        if isinstance(message, AssistantMessage):
            texts += [plain(call.arguments) for call in message.tool_calls]
    return "\n".join(texts)


def without_names(messages):
    """Return all that stands in some messages, but for the list of names of a cut."""
    texts = []
    for message in messages:
        summary = isinstance(message, UserMessage) and message.origin == "summary"
        texts.append(message.text.partition(NAMES)[0] if summary else text_of([message]))
    return "\n".join(texts)


def question(reply, missing, shown, tried=(), blind=False):
    """Return the words with which a model may ask for what it needs for the calls of a reply.

    They are words of that reply that the model can see and has not tried: first those of the lines
    that are missing, then the others of its calls, then what it says; of these, names first. If
    there are none, it is the name of the tool. A `blind` model has no word of the missing lines.
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
    """Yield the words of a text that are among `seen`; of a longer name that is not, its parts."""
    for word in WORD.findall(text):
        parts = [word] if word in seen else PART.findall(word)
        yield from (part for part in parts if part in seen and part not in tried)
