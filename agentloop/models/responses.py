"""OpenAI's Responses, the second wire format of ChatOpenAI.

Copy with: common/found_tools.py, models/completions.py and their imports.

The server stores nothing: each request has the whole conversation. Opaque items, such as encrypted
reasoning, are sent back as they came.

Source: https://platform.openai.com/docs/api-reference/responses
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..common.found_tools import found_tools
from ..errors import BadRequest, BadResponse
from ..messages import (
    JSON,
    AssistantMessage,
    Citation,
    Message,
    Part,
    SystemMessage,
    TextPart,
    ToolCall,
    ToolMessage,
)
from .completions import read_openai_usage, write_part
from .wire import (
    Accumulator,
    as_dict,
    as_dicts,
    check_types,
    first_text,
    kept_blocks,
    needed_thoughts,
    owner_id,
    plain_text,
    read_citations,
    readable,
    stop_reason,
    wire_arguments,
    wire_id,
    wire_name,
)

RESPONSES_STOP_REASONS = {
    "completed": "end",
    "max_output_tokens": "length",
    "content_filter": "refused",
}
# the types of files that models read. Source:
# https://developers.openai.com/api/docs/guides/file-inputs
RESPONSES_READS = r"image/(jpeg|png|gif|webp)|text/.*|application/(pdf|json|rtf|msword|vnd\..*)"
# calls that the client must answer, of tools that this library doesn't have
OTHER_CALLS = (
    "computer_call",
    "custom_tool_call",
    "shell_call",
    "local_shell_call",
    "apply_patch_call",
    "mcp_approval_request",
    "tool_search_call",  # unless the server searches, which is the default
)
# searches that xAI runs itself, and reports as completed `custom_tool_call` items
XAI_SEARCHES = "x_(user|keyword|semantic)_search|x_thread_fetch"
TEXT_DELTAS = ("output_text.delta", "refusal.delta")
THINKING_DELTAS = (
    "reasoning_summary_text.delta",
    "reasoning_text.delta",  # gpt-oss behind vLLM, llama.cpp, LM Studio
)


# ---- the request


def _write_input(part: Part) -> JSON:
    chat = write_part(part)
    image = chat.get("image_url")
    if image:
        detail = image.get("detail", "auto")
        return {"type": "input_image", "image_url": image["url"], "detail": detail}
    file = chat.get("file")
    if file:
        if "file_data" in file and getattr(part, "url", None):
            file = {"file_url": file["file_data"]}
        return {"type": "input_file"} | file
    return chat | {"type": "input_text"}


def _write_reply(message: AssistantMessage, server: str) -> list[JSON]:
    """The items that the server sent, or new ones for the text and the calls."""
    items: list[JSON] = [
        {
            "type": "function_call",
            "call_id": wire_id(call.id),
            "name": wire_name(call.name),
            "arguments": wire_arguments(call),
        }
        for call in message.tool_calls
    ]
    owner = owner_id(server)
    kept = kept_blocks(message, "output", "responses", owner, "function_call", items, _items_text)
    if kept:
        return kept
    if message.content:
        items.insert(0, {"type": "message", "role": "assistant", "content": message.content})
    thoughts = needed_thoughts(message, server)
    if thoughts and items:
        parts = [{"type": "reasoning_text", "text": thoughts}]
        items.insert(0, {"type": "reasoning", "summary": [], "content": parts})
    return items


def write_items(
    messages: Sequence[Message],
    server: str,
    load: Callable[[str], JSON | None] = lambda name: None,
) -> list[JSON]:
    """Write messages as items.

    server: the address and the model. Items in `raw` are sent back only to their server and model:
        no server documents what it does with the items of another. Some servers require reasoning
        with every reply.
    load: declares a deferred tool of the request. The tools that a turn has found follow its
        results, because nothing may come between results.
    """
    items = list[JSON]()
    found = dict[str, JSON]()
    for message in readable(messages, "openai", RESPONSES_READS):
        if not isinstance(message, ToolMessage):
            items += _additional_tools(found)
            found.clear()
        if isinstance(message, AssistantMessage):
            items += _write_reply(message, server)
            continue
        content: str | list[JSON] = message.text
        parts = message.content
        if not isinstance(parts, str) and not all(isinstance(part, TextPart) for part in parts):
            content = [_write_input(part) for part in parts]
        if isinstance(message, ToolMessage):
            names = found_tools(message)
            loaded = {name: tool for name in names if (tool := load(name))}
            if loaded.keys() == {*names} and names:
                content = "\n".join(names)
                found |= loaded
            call_id = wire_id(message.tool_call_id)
            items.append({"type": "function_call_output", "call_id": call_id, "output": content})
        else:
            role = "system" if isinstance(message, SystemMessage) else "user"
            items.append({"type": "message", "role": role, "content": content})
    return items + _additional_tools(found)


def _additional_tools(found: Mapping[str, JSON]) -> list[JSON]:
    """Source: AdditionalTools in the types of OpenAI's client."""
    if not found:
        return []
    return [{"type": "additional_tools", "role": "developer", "tools": [*found.values()]}]


# ---- the reply


def _parts_of(items: Sequence[JSON], kind: str) -> list[JSON]:
    """The parts of all items of a type."""
    parts = list[JSON]()
    for item in items:
        if item["type"] == kind:
            parts += as_dicts(item, "summary") + as_dicts(item, "content")
    return parts


def _items_text(items: Sequence[JSON], kind: str = "message") -> str:
    """The text of all items of a type."""
    texts = [part.get("text") or part.get("refusal") for part in _parts_of(items, kind)]
    between = "" if kind == "message" else "\n\n"  # as in OpenAI's client
    return between.join(filter(None, texts))


def _is_needed(items: Sequence[JSON]) -> bool:
    """Whether the items say more than the message does, and can be sent back as they are.

    Reasoning can be sent back if it has its content, because the server stores nothing, and if
    another item follows it.
    """
    says_more = False
    for item in items:
        kind = item["type"]
        if kind == "reasoning" and not (item.get("encrypted_content") or item.get("content")):
            return False
        # OpenAI requires the phase of a message and the namespace of a function
        if kind not in ("message", "function_call") or item.get("phase") or item.get("namespace"):
            says_more = True
    return says_more and items[-1]["type"] != "reasoning"


def _read_call(item: JSON) -> ToolCall:
    """Read a call. If it isn't the call of a function, its type becomes the tool's name."""
    call_id = first_text(item, "call_id", "id")
    if item["type"] in OTHER_CALLS:
        return ToolCall(call_id, item["type"], plain_text(item))
    return ToolCall(call_id, plain_text(item["name"]), plain_text(item.get("arguments")))


def _is_executed(item: JSON, later: Sequence[JSON]) -> bool:
    """Whether the server has run a call itself, as the call or the items after it say.

    If it has, the reply contains the output. Completed searches of xAI, and other completed
    `custom_tool_call` items that a message follows, were run as well, but have no output.
    """
    if item["type"] == "custom_tool_call" and item.get("status") == "completed":
        is_search = re.fullmatch(XAI_SEARCHES, first_text(item, "name"))
        if is_search or any(other["type"] == "message" for other in later):
            return True
    if item.get("execution") == "server":
        return True
    outputs = [other for other in later if other["type"].endswith("_output")]
    return any(output.get("call_id") == item.get("call_id") for output in outputs)


def _read_annotations(parts: Sequence[JSON]) -> Iterator[Citation]:
    """Yield the sources that the text cites."""
    length = 0  # of the text before the part
    for part in parts:
        yield from read_citations(part.get("annotations"), length, length)
        length += len(part.get("text") or "")


def _find_calls(items: Sequence[JSON]) -> list[JSON]:
    """The calls that the client must answer."""
    calls = list[JSON]()
    for number, item in enumerate(items, 1):
        is_other = item["type"] in OTHER_CALLS and not _is_executed(item, items[number:])
        if is_other or item["type"] == "function_call":
            calls.append(item)
    return calls


def _check_status(status: str) -> None:
    """Raise BadResponse if the reply was broken off, BadRequest if it's still being written."""
    if status in ("failed", "cancelled"):
        raise BadResponse(f"the provider broke off the reply: {status}")
    if status in ("queued", "in_progress"):
        raise BadRequest(f"the reply is {status}: leave out `background`, which isn't supported")


def read_responses(data: JSON, server: str) -> AssistantMessage:
    """Turn a reply into a message. Raises one of PARSE_ERRORS if the reply is invalid."""
    items = as_dicts(data["output"])
    for item in items:
        if item.get("type") == "reasoning" and not item.get("content"):
            item.pop("content", None)  # xAI sends null, but rejects it
    status = data["status"]
    _check_status(status)
    check_types(items)
    open_calls = _find_calls(items)
    has_other_calls = any(call["type"] in OTHER_CALLS for call in open_calls)
    calls = [*map(_read_call, open_calls)]
    reason = as_dict(data, "incomplete_details").get("reason") or status
    stop = stop_reason(RESPONSES_STOP_REASONS, reason, calls)
    parts = _parts_of(items, "message")
    if any("refusal" in part for part in parts):
        stop = "refused"
    # The server ran these calls. In a request, xAI knows no such item, and OpenAI wants the output.
    # Sources: https://github.com/router-for-me/CLIProxyAPI/pull/4284 (xAI),
    # https://github.com/diegosouzapw/OmniRoute/issues/8946 (OpenAI)
    kept = [item for item in items if not item["type"].startswith("custom_tool_call")]
    raw = None
    if status == "completed" and not has_other_calls and _is_needed(kept):
        raw = {"provider": "responses", "owner": owner_id(server), "output": kept}
    return AssistantMessage(
        content=_items_text(items),
        tool_calls=tuple(calls),
        thinking=_items_text(items, "reasoning") or None,
        usage=read_openai_usage(as_dict(data, "usage")),
        stop_reason=stop,
        raw=raw,
        citations=tuple(_read_annotations(parts)),
        finish_reason=plain_text(reason) or None,
    )


@dataclass
class ResponsesEvents(Accumulator):
    """Puts a streamed reply together.

    The last event has the whole reply, except at some servers, whose `output` is empty there.
    """

    def __post_init__(self) -> None:
        self.data = {"output": []}
        self._begun: dict[Any, JSON] = {}  # items, by index and by id
        self._thought: tuple[Any, ...] = ()  # the position of the last piece of thinking

    def add(self, event: JSON) -> None:
        kind = first_text(event, "type").removeprefix("response.")
        index = event.get("output_index", event.get("item_id"))
        if kind in TEXT_DELTAS:
            self.text(event["delta"])
        elif kind in THINKING_DELTAS:
            place = index, event.get("summary_index"), event.get("content_index")
            gap = "" if self._thought in ((), place) else "\n\n"
            self._thought = place
            self.thinking(gap + event["delta"])
        elif kind == "function_call_arguments.delta":
            call = self._begun[index]
            self.call(event["delta"], call["name"], call["call_id"])
        elif kind == "output_item.added":
            item: JSON = event["item"]
            # some servers leave out the place of a piece, which then belongs to the newest item
            names = (event.get("output_index"), item.get("id"), None)
            self._begun |= dict.fromkeys(names, item)
        elif kind == "output_item.done":
            self.data["output"].append(event["item"])
        elif kind in ("completed", "incomplete", "failed"):
            # Codex backend, new-api: the last event lacks the items
            items = event["response"].get("output") or self.data["output"]
            self.data = event["response"] | {"output": items}
            self.complete = True
