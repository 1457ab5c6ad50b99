"""Anthropic's Messages API, and compatible servers.

Copy with: common/found_tools.py, common/model_info.py, models/http.py, models/wire.py and their
imports.

    llm = ChatAnthropic("claude-sonnet-5", thinking={"type": "adaptive"})

Source: https://platform.claude.com/docs/en/api/messages
"""

import base64
import json
import re
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from graphlib import CycleError, TopologicalSorter
from itertools import islice, takewhile
from operator import methodcaller
from typing import Any, Literal, Self

from ..common.found_tools import found_tools
from ..common.model_info import CacheRules
from ..errors import BadResponse
from ..messages import (
    JSON,
    AssistantMessage,
    Citation,
    ImagePart,
    Message,
    Part,
    SystemMessage,
    TextPart,
    ToolCall,
    ToolChoice,
    ToolMessage,
    Usage,
    UserMessage,
)
from ..tools import Tool
from .http import HTTPModel, chat_model
from .wire import (
    Accumulator,
    Encoded,
    as_dict,
    as_dicts,
    attachment,
    check_types,
    declare,
    drop_none,
    encode,
    encode_exchanges,
    extend_prefix,
    first_text,
    from_user,
    grow,
    in_turns,
    kept_blocks,
    needed_thoughts,
    owner_id,
    parse_json,
    plain_text,
    read_citations,
    read_counts,
    readable,
    resumed,
    rewrite_schema,
    split_system,
    stop_reason,
    wire_id,
    wire_name,
    write_content,
)

# Models, the smallest prefix in tokens that is cached, and the price of a read relative to input.
# All others, such as Haiku 5.5, have the defaults of CacheRules.
CACHE_RULES = (
    (r"(fable|mythos)-5-[12]\b", 512, 0.025),
    (r"(opus|sonnet)-5-5\b", 512, 0.05),
    (r"(opus|fable|mythos)-5(?!-\d\b)", 512, 0.1),
    (r"opus-4-8|sonnet-5(?!-\d\b)|sonnet-4|opus-4-[01]|3-7-sonnet", 1_024, 0.1),
    (r"opus-4-7|haiku-3|3-5-haiku|3-haiku", 2_048, 0.1),
)
CLAUDE_CACHE_SOURCE = (
    "https://platform.claude.com/docs/en/build-with-claude/prompt-caching (sizes), "
    "https://platform.claude.com/docs/en/about-claude/pricing (prices), November 2026"
)
ANTHROPIC_STOP_REASONS = {
    "end_turn": "end",
    "stop_sequence": "end",
    "tool_use": "tool_calls",
    "max_tokens": "length",
    "refusal": "refused",
    "pause_turn": "pause",
    "compaction": "pause",  # with pause_after_compaction
    "model_context_window_exceeded": "context_overflow",
}
# the types of files that models read. Sources:
# https://platform.claude.com/docs/en/build-with-claude/vision,
# https://platform.claude.com/docs/en/build-with-claude/pdf-support
CLAUDE_IMAGES = "image/(jpeg|png|gif|webp)"
CLAUDE_READS = rf"{CLAUDE_IMAGES}|application/pdf|text/.*"
# These read only images. DeepSeek ignores documents, and Kimi refuses them. Sources:
# https://github.com/maximhq/bifrost/pull/6741, https://github.com/MoonshotAI/Kimi-K2.5/issues/27,
# https://platform.minimaxi.com/docs/api-reference/text-anthropic-api (MiniMax)
NO_DOCUMENTS = r"//[^/]*(deepseek\.com|moonshot\.(ai|cn)|kimi\.com|minimaxi?\.(io|com))"
CLAUDE_MAX_IMAGE = 10 * 2**20  # characters in base64
CHOICES: dict[str, JSON] = {
    "auto": {"type": "auto"},
    "required": {"type": "any"},
    "none": {"type": "none"},
}
ID = "[a-zA-Z0-9_-]{1,64}"
# Matches the schema keywords that structured outputs reject: all but these. Source:
# https://platform.claude.com/docs/en/build-with-claude/structured-outputs
NOT_IN_OUTPUT = (
    r"(?!(type|properties|required|items|enum|const|anyOf|oneOf|allOf|\$defs|\$ref|title|"
    "description|default|propertyName)$).*"
)
# Blocks that the API refuses without a beta feature. Sources:
# https://platform.claude.com/docs/en/agents-and-tools/tool-use/advisor-tool,
# https://platform.claude.com/docs/en/agents-and-tools/mcp-connector,
# https://platform.claude.com/docs/en/build-with-claude/compaction-threshold,
# https://github.com/code-yeongyu/senpi/pull/1212 (fallback)
BETA_BLOCKS = {
    "compaction": "compact-",
    "advisor_tool_result": "advisor-tool-",
    "fallback": "server-side-fallback-",
    **dict.fromkeys(("mcp_tool_use", "mcp_tool_result", "mcp_tool_listing"), "mcp-client-"),
}
USER_PREFIX, END = b'{"role":"user"', b"}]}"  # how an encoded message of the user begins and ends
CONTROL = b',"cache_control":'
EMPTY_BLOCK: JSON = {"type": "text", "text": "(empty)"}  # where the API requires text content
# Models that take thinking back only after the same prefix as when they thought: the same system
# prompt, tools and messages. Source:
# https://platform.claude.com/docs/en/build-with-claude/preserved-thinking/prefix-checks
BINDS_THINKING = r"(opus|sonnet|haiku|fable|mythos)-(5-[1-9]\b|[6-9]|\d\d)"


# Models that can load a deferred tool when a result refers to it. Source:
# https://platform.claude.com/docs/en/agents-and-tools/tool-use/tool-search-tool
CLAUDE_LOADS_TOOLS = r"(opus|sonnet|haiku|fable|mythos)-(4-[5-9]\b|[5-9]|\d\d)"

# Models that take instructions in the middle of a conversation, before a reply or at the end.
# Source: https://platform.claude.com/docs/en/build-with-claude/mid-conversation-system-messages
TAKES_INSTRUCTIONS = (
    r"opus-4-8|(opus|fable|mythos)-5|(sonnet|haiku)-5-[1-9]\b|"
    r"(opus|sonnet|haiku|fable|mythos)-([6-9]|\d\d)"
)


# ---- the request


def _write_part(part: Part) -> JSON | None:
    if isinstance(part, TextPart):
        if not part.text.strip():
            return None  # the API rejects blank text
        return {"type": "text", "text": part.text}
    kind, data, url, own = attachment(part, "anthropic")
    source = {"type": "base64", "media_type": kind, "data": data}
    if url:
        source = {"type": "url", "url": url}
    elif kind.startswith("text/"):
        text = base64.b64decode(data).decode(errors="replace")
        source = {"type": "text", "media_type": "text/plain", "data": text}
    name = "image" if isinstance(part, ImagePart) else "document"
    title = getattr(part, "name", None)
    return drop_none({"type": name, "source": source, "title": title} | own)


def _write_result(message: ToolMessage, loadable: Container[str]) -> list[JSON]:
    blocks = write_content(message.content, _write_part) or [EMPTY_BLOCK]
    found = found_tools(message)
    if found and all(name in loadable for name in found):
        blocks = [{"type": "tool_reference", "tool_name": name} for name in found]
    call_id = wire_id(message.tool_call_id, ID)
    result: JSON = {"type": "tool_result", "tool_use_id": call_id, "content": blocks}
    # the API rejects an error that contains an image
    if message.is_error and all(block["type"] == "text" for block in blocks):
        result["is_error"] = True
    return [result]


def _is_sendable(block: JSON, is_cut_off: bool) -> bool:
    """Whether the API takes a block. It sends blank text, and thinking that was cut off before its
    signature, but rejects both in requests.

    The thinking of Kimi, MiMo and DeepSeek may have no signature, but must be sent back. Source:
    https://github.com/anomalyco/opencode/pull/44713
    """
    if block["type"] == "thinking" and is_cut_off:
        return bool(block.get("signature"))
    return block["type"] != "text" or bool(first_text(block, "text").strip())


def _write_assistant(message: AssistantMessage, address: str, betas: str = "") -> list[JSON]:
    """The blocks that the server sent, or new ones if the message has changed, or if the request
    lacks the beta feature of a block.
    """
    owner = owner_id(address)
    calls: list[JSON] = [
        {
            "type": "tool_use",
            "id": wire_id(call.id, ID),
            "name": wire_name(call.name),
            "input": call.parsed or {},
        }
        for call in message.tool_calls
    ]
    blocks = kept_blocks(message, "content", "anthropic", owner, "tool_use", calls, _anthropic_text)
    if any(BETA_BLOCKS.get(block["type"], "") not in betas for block in blocks):
        blocks = []  # the API refuses such a block, and the thinking after it
    blocks = blocks or write_content(message.content, _write_part) + calls
    is_cut_off = message.stop_reason in ("length", "context_overflow")
    blocks = [block for block in blocks if _is_sendable(block, is_cut_off)]
    thoughts = needed_thoughts(message, address)
    if calls and thoughts and not any("thinking" in block["type"] for block in blocks):
        blocks.insert(0, {"type": "thinking", "thinking": thoughts, "signature": ""})
    return blocks


def _close_turn(blocks: list[JSON], answered: list[Any]) -> None:
    """Take pending calls of the provider's tools, and thinking at the end, out of an ended turn."""
    # the provider runs pending calls of its own tools only if the turn goes on
    blocks[:] = [
        block for block in blocks if "_tool_use" not in block["type"] or block.get("id") in answered
    ]
    while blocks and "thinking" in blocks[-1]["type"]:
        blocks.pop()  # the API rejects thinking at the end of a turn


def _split_prompt(messages: Sequence[Message], in_place: bool) -> tuple[list[str], list[Message]]:
    """The texts of the system prompt, and the conversation.

    in_place: whether the API takes later system messages where they are.
    """
    texts, said = split_system(messages)
    start = len([*takewhile(lambda each: isinstance(each, SystemMessage), messages)])
    if in_place and start < len(texts):
        return texts[:start], _delay_instructions(messages[start:])
    return texts, said


def _delay_instructions(messages: Sequence[Message]) -> list[Message]:
    """Move system messages to where the API takes them: one behind the user's and the results."""
    moved = list[Message]()
    waiting = list[str]()
    for message in messages:
        if isinstance(message, SystemMessage):
            waiting.append(message.content)
            continue
        # requests leave out empty replies
        is_reply = isinstance(message, AssistantMessage) and (
            message.tool_calls or message.text.strip()
        )
        if is_reply and waiting and moved and not isinstance(moved[-1], AssistantMessage):
            moved.append(SystemMessage("\n\n".join(waiting)))
            waiting.clear()
        moved.append(message)
    if waiting:
        after_reply = moved and isinstance(moved[-1], AssistantMessage)
        kind = UserMessage if after_reply else SystemMessage
        moved.append(kind("\n\n".join(waiting)))
    return moved


def write_anthropic_messages(
    messages: Sequence[Message],
    loadable: Container[str] = (),
    address: str = "",
    betas: str = "",
) -> list[JSON]:
    """Write messages for the Messages API.

    `loadable` names the deferred tools of the request. `address` is the server's: thinking is
    sent back only to its server, because others reject its signature. Anthropic says that its own
    API, Bedrock and Google Cloud accept each other's, but people report that they don't:
    https://github.com/openclaw/openclaw/issues/110079

    `betas` names the beta features of the request. If compaction isn't one of them, the API's
    summaries are left out, and it reads the messages that they replaced.
    """
    reads = CLAUDE_IMAGES if re.search(NO_DOCUMENTS, address) else CLAUDE_READS
    messages = readable(messages, "anthropic", reads, CLAUDE_MAX_IMAGE)
    write_result = partial(_write_result, loadable=loadable)
    write_reply = partial(_write_assistant, address=address, betas=betas)
    turns = in_turns(messages, write_reply, write_result, _write_part)
    answered = list[Any]()
    for _, written in turns:
        answered += [block["tool_use_id"] for block in written if "tool_use_id" in block]
    if not turns:
        return []
    last = len(turns) - 1
    if turns[last][0] == "system":
        last -= 1
    if {block["type"] for block in turns[last][1]} == {"tool_result"}:
        last -= 1  # the last turn of the model goes on with these results
    closed = turns[:last]
    for _, written in closed:
        _close_turn(written, answered)
    return [{"role": role, "content": written or [EMPTY_BLOCK]} for role, written in turns]


def _has_thinking(message: Message) -> bool:
    raw = as_dict(getattr(message, "raw", None))
    is_own = raw.get("provider") == "anthropic"
    return is_own and any("thinking" in block["type"] for block in as_dicts(raw, "content"))


def drop_unbound_thinking(
    messages: Sequence[Message], prefix: str, write: Callable[[Sequence[Message]], list[JSON]]
) -> list[Message]:
    """Take out the thinking of replies that came after another prefix than now.

    `raw["prefix"]` identifies what a reply's request had, except thinking that was taken out then.
    So one change makes all thinking after it invalid, as the API says, but what the model thinks
    after the change stays.
    """
    kept = list[Message]()
    for message in messages:
        if isinstance(message, AssistantMessage) and _has_thinking(message):
            before = prefix
            if kept:
                before = extend_prefix(prefix, map(encode, write(kept)))
            if message.raw.get("prefix") != before:
                blocks = as_dicts(message.raw, "content")
                others = [block for block in blocks if "thinking" not in block["type"]]
                message = replace(message, raw=message.raw | {"content": others})
        kept.append(message)
    return kept


def mark_for_cache(body: JSON, cache: bool | str) -> None:
    """Mark the tools, the system prompt and the last two user messages for the provider's cache.

    The provider looks for earlier marks within 20 blocks, and a turn with many calls has more. The
    last request ended with the second-to-last user message, so a mark there finds its cache entry.
    Source: https://platform.claude.com/docs/en/build-with-claude/prompt-caching
    """
    control = {"type": "ephemeral"}
    if isinstance(cache, str):
        control["ttl"] = cache
    for blocks in (body.get("tools"), body["system"]):
        if blocks:
            blocks[-1] = blocks[-1] | {"cache_control": control}
    messages: Encoded = body["messages"]
    # the API allows four marks, and `extra` of attachments may have made some
    own = sum(map(methodcaller("count", CONTROL), messages))
    newest_first = reversed(range(len(messages)))
    users = (at for at in newest_first if messages[at].startswith(USER_PREFIX))
    unmarked = (at for at in users if CONTROL not in messages[at])
    for at in islice(unmarked, max(0, 2 - own)):
        messages[at] = messages[at].removesuffix(END) + CONTROL + encode(control) + END


def _fits_output(schema: JSON) -> bool:
    """Whether structured outputs can express the schema.

    They close every object, which makes a dict {}, and reject recursive types. The types of a
    tuple, `prefixItems`, would be left out.
    """
    if re.search(r'"(prefixItems"|additionalProperties": (true|\{))', json.dumps(schema)):
        return False
    references = dict[str, list[str]]()  # references between type definitions
    for name, definition in as_dict(schema, "$defs").items():
        references[name] = re.findall(r'"#/\$defs/(.*?)"', json.dumps(definition))
    try:
        TopologicalSorter(references).prepare()
    except CycleError:
        return False  # a recursive type
    return True


def _close(schema: JSON) -> JSON:
    """Forbid other properties, as structured outputs require, and write oneOf as anyOf."""
    if "oneOf" in schema:
        schema["anyOf"] = schema.pop("oneOf")
    if schema.get("type") == "object":
        schema["additionalProperties"] = False
    return schema


def _find_container(messages: Sequence[Message]) -> str | None:
    """The id of the newest container for code that hasn't expired; None if there's none."""
    now = datetime.now(UTC).isoformat()
    for message in reversed(messages):
        container = as_dict(getattr(message, "raw", None), "container")
        if str(container.get("expires_at", "")) > now:
            return str(container["id"])
    return None


def _may_think(messages: Sequence[Message], address: str, betas: str) -> bool:
    """Whether a new turn begins, or the turn that goes on began with thinking.

    If neither is true, the API rejects a thinking budget.
    """
    first = after = None  # the first reply of the turn, and the user's first message after a reply
    for message in reversed(messages):
        if isinstance(message, SystemMessage):
            continue
        if not isinstance(message, AssistantMessage):
            after = message
        elif message.tool_calls or _write_assistant(message, address, betas):  # otherwise unsent
            if isinstance(after, UserMessage):
                break
            first, after = message, None
    return not first or "thinking" in _write_assistant(first, address, betas)[0]["type"]


# ---- the reply


def _anthropic_text(blocks: Sequence[JSON], kind: str = "text") -> str:
    """The text of all blocks of a type."""
    return "".join(block.get(kind) or "" for block in blocks if block["type"] == kind)


def _leave_out_declined(blocks: Sequence[JSON]) -> list[JSON]:
    """Leave out what a model thought and called before it declined and a fallback model took over.

    Such calls must not run, and the API refuses them in requests. Source:
    https://platform.claude.com/docs/en/build-with-claude/refusals-and-fallback
    """
    fallbacks = [at for at, block in enumerate(blocks) if block["type"] == "fallback"]
    end = max(fallbacks, default=0)
    answered = [block.get("tool_use_id") for block in blocks]
    kept = list[JSON]()
    for block in blocks[:end]:
        is_open = block["type"].endswith("tool_use") and block.get("id") not in answered
        if not is_open and not re.search("thinking|connector_text", block["type"]):
            kept.append(block)
    return [*kept, *blocks[end:]]


def _take_tool_uses(blocks: Sequence[JSON]) -> list[ToolCall]:
    """Take the calls out of the blocks, which keep the calls' places."""
    calls = list[ToolCall]()
    for block in blocks:
        if block["type"] == "tool_use":
            call_id, name = str(block.pop("id", "")), plain_text(block.pop("name"))
            calls.append(ToolCall(call_id, name, plain_text(block.pop("input", None))))
    return calls


def read_anthropic_usage(usage: JSON) -> Usage | None:
    """Read the usage that the API reports.

    Its `input_tokens` leave out what was read from the cache, or written to it.
    """
    counts = read_counts(usage)
    if not counts:
        return None
    for iteration in as_dicts(usage, "iterations"):
        if iteration.get("type") == "compaction":  # a summary, which the other counts exclude
            counts += read_counts(iteration)
    cached, written = counts["cache_read_input_tokens"], counts["cache_creation_input_tokens"]
    return Usage(
        input_tokens=counts["input_tokens"] + cached + written,
        output_tokens=counts["output_tokens"],
        cached_input_tokens=cached,
        cache_write_tokens=written,
        reasoning_tokens=counts["thinking_tokens"],
        extra={**read_counts(as_dict(usage, "cache_creation"))} or None,  # written, by lifetime
    )


@dataclass
class AnthropicChunks(Accumulator):
    """Puts a streamed reply together from its events."""

    def __post_init__(self) -> None:
        self._by_index: dict[Any, JSON] = {}  # blocks; compatible servers may interleave them

    def add(self, event: JSON) -> None:
        blocks = self.data.setdefault("content", [])
        usage = self.data.setdefault("usage", {})
        kind = event.get("type")
        piece: JSON = as_dict(
            event.get("content_block") or event.get("delta") or event.get("message")
        )
        if kind == "content_block_start":
            blocks.append(piece)
            self._by_index[event.get("index")] = piece
        elif kind == "content_block_delta":
            block = self._by_index.get(event.get("index")) or blocks[-1]
            if "citation" in piece:
                piece = {"citations": [piece["citation"]]}
            piece.pop("type", None)
            piece.pop("estimated_tokens", None)
            grow(block, piece, piece)
            self.call(piece.get("partial_json", ""), block.get("name", ""), block.get("id", ""))
        elif kind == "message_start" and blocks and piece.get("id") != self.data.get("id"):
            raise BadResponse("another reply starts within the reply")  # a proxy has tried again
        else:  # message_start and message_delta; other events are ignored
            # counts are totals so far; an event may leave out those that stay the same
            usage |= drop_none(as_dict(event.get("usage") or piece.get("usage")))
            self.data |= piece | {"content": blocks, "usage": usage}
        if kind == "message_stop" or piece.get("stop_reason"):
            self.complete = True
        self.text(piece.get("text", ""))
        self.thinking(piece.get("thinking", ""))

    def reply(self) -> JSON:
        for block in self.data["content"]:
            text = block.pop("partial_json", "").strip()
            # Arguments that were cut off stay text. Tools of the server need an object.
            if text:
                truncated: Any = text if block["type"] == "tool_use" else {}
                block["input"] = parse_json(text) or truncated
        return self.data


# ---- the model


@chat_model
class ChatAnthropic(HTTPModel):
    """A model behind the Messages API. Settings that are None aren't sent.

    max_tokens: limit of the output, thinking included.
    thinking: a budget in tokens or, for models without budgets, the API's own object, such as
        {"type": "adaptive"}. The API doesn't support forced tool calls with a budget, nor for
        models that can't be kept from thinking, such as Sonnet 5.5.
        {"type": "adaptive", "display": "summarized"} also returns what the newest models write
        between calls; by default their thinking is empty.
    effort: how much the model thinks and writes: "low", "medium", "high", ...
    cache: marks tools, system prompt and conversation for the provider's prompt cache. With "1h",
        entries live for an hour, at a higher price.
    compact_threshold: input tokens, at least 50,000, at which the API replaces older messages with
        its own summary: see `Compaction`.
    clear_tool_uses: input tokens at which the API hides all but the newest three tool results.
    betas: beta features to turn on by header, besides those of these two settings.
    version: of the API; newer versions reject `temperature`.
    """

    max_tokens: int = 16_000
    temperature: float | None = None
    thinking: int | Mapping[str, Any] | None = None
    effort: str | None = None
    parallel_tool_calls: bool | None = None
    cache: bool | Literal["5m", "1h"] = True
    compact_threshold: int | None = None
    clear_tool_uses: int | None = None
    betas: Sequence[str] = ()
    version: str = "2023-06-01"

    key_variables = ("ANTHROPIC_API_KEY",)
    url_variable = "ANTHROPIC_BASE_URL"
    default_url = "https://api.anthropic.com"
    chunks = AnthropicChunks

    def with_output(self, schema: JSON) -> Self | None:
        if not _fits_output(schema):
            return None
        return super().with_output(schema)

    @property
    def cache_rules(self) -> CacheRules:
        """The cache rules of this model, as the setting `cache` changes them."""
        if not self.cache:
            return CacheRules(read_price=1.0, write_price=1.0)
        known = (
            (size, read) for models, size, read in CACHE_RULES if re.search(models, self.model)
        )
        size, read = next(known, (4_096, 0.1))
        return CacheRules(size, read, 2.0 if self.cache == "1h" else 1.25, CLAUDE_CACHE_SOURCE)

    @property
    def output_limit(self) -> int | None:
        return self.max_tokens

    @property
    def loads_tools(self) -> bool:
        """Whether a result can load a deferred tool: see `ToolSearch`."""
        return bool(re.search(CLAUDE_LOADS_TOOLS, self.model))

    def _declare(self, tool: Tool) -> JSON:
        schema: JSON = {"input_schema": tool.parameters}
        if tool.deferred and self.loads_tools:
            schema["defer_loading"] = True
        return declare(tool, "anthropic", schema)

    def _edits(self) -> dict[str, JSON]:
        """The API's edits of the conversation, by the beta feature that they need.

        Sources: https://platform.claude.com/docs/en/build-with-claude/compaction-threshold,
        https://platform.claude.com/docs/en/build-with-claude/context-editing
        """
        edits = dict[str, JSON]()
        for beta, kind, threshold in (
            ("context-management-2025-06-27", "clear_tool_uses_20250919", self.clear_tool_uses),
            ("compact-2026-01-12", "compact_20260112", self.compact_threshold),
        ):
            if threshold:
                trigger = {"type": "input_tokens", "value": threshold}
                edits[beta] = {"type": kind, "trigger": trigger}
        return edits

    @property
    def _betas(self) -> str:
        return ",".join(dict.fromkeys([*self.betas, *self._edits()]))

    def headers(self) -> dict[str, str]:
        return drop_none(
            {
                "x-api-key": self.api_key or None,
                "anthropic-version": self.version,
                "anthropic-beta": self._betas or None,
            }
        )

    def path(self, stream: bool) -> str:
        return "/v1/messages"

    def body(
        self,
        messages: Sequence[Message],
        tools: Sequence[Tool],
        tool_choice: ToolChoice,
        stream: bool,
    ) -> JSON:
        in_place = bool(re.search(TAKES_INSTRUCTIONS, self.model))
        texts, messages = _split_prompt(messages, in_place)
        address = str(self.base_url)
        messages = resumed(from_user(messages), owner_id(address))
        declared = [self._declare(tool) for tool in tools]
        loadable = {tool.name for tool in tools if tool.deferred and self.loads_tools}
        # deferred tools come first, because the last tool gets the cache mark, and they can't
        declared.sort(key=lambda tool: not tool.get("defer_loading"))
        declared += self.provider_tools
        blocks = write_content("\n\n".join(texts), _write_part)
        binds = re.search(BINDS_THINKING, self.model)
        betas = self._betas
        write = partial(write_anthropic_messages, loadable=loadable, address=address, betas=betas)
        body: JSON = {
            "model": self.model,
            "max_tokens": self.max_tokens,
            "system": blocks or None,
            # the reply after an exchange may have results of the provider's own tools
            "messages": encode_exchanges(
                messages,
                extend_prefix(
                    f"anthropic {in_place} {betas} {address}", map(str.encode, sorted(loadable))
                ),
                write,
                closed_by_reply=True,
                prefix=extend_prefix("", [encode([blocks, declared])]) if binds else "",
                bind=partial(drop_unbound_thinking, write=write) if binds else None,
            ),
            "temperature": self.temperature,
            "thinking": self._thinking(messages),
            "stream": stream or None,
            "tools": declared or None,
            "tool_choice": self._choice(tool_choice) if declared else None,
        }
        if edits := self._edits():
            body["context_management"] = {"edits": [*edits.values()]}
        if self.provider_tools:
            body["container"] = _find_container(messages)
        output: JSON = {"effort": self.effort, "format": None}
        if self.output_schema:
            schema = rewrite_schema(self.output_schema, NOT_IN_OUTPUT, _close)
            output["format"] = {"type": "json_schema", "schema": schema}
        body["output_config"] = drop_none(output) or None
        if self.cache:
            mark_for_cache(body, self.cache)
        return drop_none(body)

    def bound(self, reply: AssistantMessage, body: JSON) -> AssistantMessage:
        prefix = body["messages"].prefix
        if not prefix or not _has_thinking(reply):
            return reply
        return replace(reply, raw=reply.raw | {"prefix": prefix})

    def _thinking(self, messages: Sequence[Message]) -> Mapping[str, Any] | None:
        """The setting for thinking; None if another provider began the turn."""
        thinking = self.thinking or None
        if isinstance(thinking, int):
            thinking = {"type": "enabled", "budget_tokens": thinking}
        has_budget = thinking and thinking["type"] == "enabled"
        if has_budget and not _may_think(messages, str(self.base_url), self._betas):
            return None
        return thinking

    def _choice(self, tool_choice: ToolChoice) -> JSON | None:
        """The choice of a tool; None if it's the API's default."""
        choice = CHOICES.get(tool_choice, {"type": "tool", "name": tool_choice})
        if self.parallel_tool_calls is not None and tool_choice != "none":
            choice = choice | {"disable_parallel_tool_use": not self.parallel_tool_calls}
        return None if choice == CHOICES["auto"] else choice

    def read(self, data: JSON) -> AssistantMessage:
        blocks = [drop_none(block) for block in data["content"]]
        check_types(blocks)
        blocks = _leave_out_declined(blocks)
        calls = _take_tool_uses(blocks)
        citations = list[Citation]()
        start = 0  # the position of the block in the text
        for block in blocks:
            end = start + len(block.get("text", ""))
            citations += read_citations(block.get("citations"), start, end)
            start = end
        container = as_dict(data, "container") or None
        # for most replies, the message says it all
        is_plain = not container and all(block.keys() <= {"type", "text"} for block in blocks)
        sent: JSON = {"content": blocks, "container": container}
        raw = drop_none({"provider": "anthropic", "owner": owner_id(str(self.base_url)), **sent})
        refusal = first_text(as_dict(data, "stop_details"), "explanation")
        return AssistantMessage(
            content=_anthropic_text(blocks) or refusal,
            tool_calls=tuple(calls),
            thinking=_anthropic_text(blocks, "thinking") or None,
            usage=read_anthropic_usage(as_dict(data, "usage")),
            stop_reason=stop_reason(ANTHROPIC_STOP_REASONS, data.get("stop_reason"), calls),
            raw=None if is_plain else raw,
            citations=tuple(citations),
            finish_reason=first_text(data, "stop_reason") or None,
        )
