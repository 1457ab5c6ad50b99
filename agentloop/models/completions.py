"""OpenAI's Chat Completions as functions: messages, replies, streams, schemas, usage.

Copy with: models/wire.py and its imports.

responses.py uses the functions for parts, schemas and usage as well.

Source: https://platform.openai.com/docs/api-reference/chat
"""

import json
import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, cast

from ..errors import BadResponse
from ..messages import (
    JSON,
    AssistantMessage,
    ImagePart,
    Message,
    Part,
    SystemMessage,
    TextPart,
    ToolCall,
    ToolMessage,
    Usage,
)
from .wire import (
    Accumulator,
    applies,
    as_dict,
    as_dicts,
    attachment,
    clean_json,
    drop_none,
    first_text,
    grow,
    needed_thoughts,
    owner_id,
    parse_json,
    plain_text,
    read_citations,
    read_counts,
    readable,
    rewrite_schema,
    stop_reason,
    wire_arguments,
    wire_id,
    wire_name,
)

OPENAI_STOP_REASONS = {
    "stop": "end",
    "eos": "end",  # Together
    "eos_token": "end",  # TGI, SGLang
    "function_call": "tool_calls",
    "length": "length",
    "model_length": "length",  # Mistral
    "content_filter": "refused",
    "sensitive": "refused",  # Z.AI
    "guardrail_intervened": "refused",  # Bedrock
    "model_context_window_exceeded": "context_overflow",  # Z.AI
}
# finish reasons of a reply that was broken off: OpenRouter, vLLM and SGLang, Z.AI, DeepSeek
BROKEN_OFF = ("error", "abort", "network_error", "insufficient_system_resource")
THOUGHTS = ("reasoning_content", "reasoning", "thinking")  # DeepSeek, vLLM; OpenRouter; Mistral
GROWING = {"content", "refusal", *THOUGHTS}  # texts that are streamed in pieces
# Fields that are sent back only to their server. The last three have signatures of OpenRouter, of
# Claude behind LiteLLM, and of Gemini.
OPAQUE = (
    "reasoning_content",
    "reasoning",
    "reasoning_details",
    "thinking_blocks",
    "extra_content",
)
OPAQUE_OF_CALLS = ("extra_content", "provider_specific_fields")  # Gemini; Gemini behind LiteLLM
# the types of files that models read. Source:
# https://developers.openai.com/api/docs/guides/file-inputs
CHAT_READS = "image/(jpeg|png|gif|webp)|audio/.*|application/pdf"
BETWEEN: JSON = {"role": "assistant", "content": "(no reply)"}
# The result of a tool that returns nothing. Some servers refuse an empty one. Sources:
# https://github.com/anomalyco/opencode/issues/15371 (OpenCode),
# https://github.com/quailyquaily/mistermorph/pull/46 (Ark),
# https://github.com/earendil-works/pi/pull/3311 (Z.AI, MiniMax)
NO_TEXT = "(no text)"

# ---- who requires more than OpenAI: patterns for "ADDRESS MODEL"

# Mistral's models, wherever they run: call ids have nine letters or digits. Source:
# https://github.com/anomalyco/opencode/issues/1680
MISTRAL = "(?i:(mis|minis|magis|codes|devs|mix)tral)"
# Mistral's own API takes files only as `document_url`. Source:
# https://github.com/nextcloud/integration_openai/pull/419
MISTRAL_API = r"//([^/]*\.)?mistral\.ai"
# These refuse `stream_options`: Mistral's own API, which reports the usage of a stream without it,
# Azure for Mistral's models, and Databricks. Sources:
# https://github.com/openai/openai-agents-python/issues/442,
# https://github.com/BerriAI/litellm/issues/11696 (Azure),
# https://github.com/continuedev/continue/issues/12936 (Databricks)
NO_STREAM_OPTIONS = (
    rf"{MISTRAL_API}|//([^/]*\.)?(azure)?databricks\.(com|net)|"
    rf"//[^/]*azure\.com\S* \S*{MISTRAL}"
)
# These want a reply before each message of the user except the first. Sources:
# https://github.com/NousResearch/hermes-agent/issues/20154 (Mistral, after results),
# https://github.com/NousResearch/hermes-agent/pull/74087 (Mistral behind llama.cpp),
# https://github.com/google/adk-python/issues/1373 (Gemma 3 behind vLLM),
# https://github.com/anomalyco/opencode/issues/9416 (Perplexity)
ALTERNATING = rf"{MISTRAL}|(?i:gemma-?[1-3])|//[^/]*perplexity\.ai|perplexity/"
# Cloudflare's models, behind its API or gateway, refuse null as the content of a reply. Sources:
# https://github.com/zeroclaw-labs/zeroclaw/pull/9493,
# https://github.com/TencentCloud/TencentDB-Agent-Memory/issues/1313
NEEDS_CONTENT = r"//api\.cloudflare\.com|workers-ai/"
# Kimi refuses each request that has a schema with no type, or with one beside `anyOf`. An enum may
# have one type, and "null". Sources:
# https://github.com/MoonshotAI/walle/blob/main/validator.go,
# https://github.com/MoonshotAI/kimi-cli/issues/1595,
# https://github.com/MoonshotAI/kimi-code/issues/2661,
# https://github.com/anomalyco/opencode/issues/40127 (Kimi behind OpenCode)
NEEDS_TYPES = "(?i:kimi|moonshot)"
# OpenCode's gateway sends `reasoning`, and only takes `reasoning_content`. Sources:
# https://github.com/can1357/oh-my-pi/issues/1157,
# https://github.com/can1357/oh-my-pi/issues/1482
ONLY_REASONING_CONTENT = r"//opencode\.ai"

# ---- for both formats: parts, schemas, reasoning, usage


def write_part(part: Part) -> JSON:
    """Write a part for Chat Completions."""
    if isinstance(part, TextPart):
        return {"type": "text", "text": part.text}
    kind, data, url, own = attachment(part, "openai")
    url = url or f"data:{kind};base64,{data}"
    if isinstance(part, ImagePart):
        detail = drop_none({"detail": (part.extra or {}).get("detail")})
        return {"type": "image_url", "image_url": {"url": url} | detail}
    if data and kind.startswith("audio/"):
        sound = re.sub("audio/(x-)?", "", kind).replace("mpeg", "mp3")
        return {"type": "input_audio", "input_audio": {"data": data, "format": sound}}
    file = {"filename": getattr(part, "name", None) or "file", "file_data": url}
    return {"type": "file", "file": file} | own


STRICT_KEYWORDS = re.compile(
    r"type|properties|required|additionalProperties|items|enum|const|anyOf|\$defs|title|"
    "description|pattern|format|minimum|maximum|exclusiveMinimum|exclusiveMaximum|multipleOf|"
    "minItems|maxItems"
)
FORMATS = "date-time|time|date|duration|email|hostname|ipv4|ipv6|uuid"
ANY = ["string", "number", "boolean", "object", "array", "null"]
JSON_TYPES: dict[type, str] = {
    **{str: "string", bool: "boolean", int: "number", float: "number"},
    **{dict: "object", list: "array", type(None): "null"},
}
MAX_NESTED = 10  # how deep types may be nested to be put in place of the references to them
MAX_INLINED = 20_000  # characters of the schema then; a type may be in many places


def _close_object(schema: JSON) -> JSON:
    """Forbid other properties, as OpenAI's own client does, and leave out unknown formats."""
    form = schema.get("format")  # or a parameter with this name
    if isinstance(form, str) and not re.fullmatch(FORMATS, form):
        del schema["format"]
    if schema.get("type") == "object" and "properties" in schema:
        schema.setdefault("additionalProperties", False)
        schema["required"] = [*schema["properties"]]
    return schema


def _is_strict(schema: JSON) -> bool:
    """Whether strict mode accepts the schema."""
    keys = schema.keys()
    if keys == {"$ref"}:
        return True
    if not all(map(STRICT_KEYWORDS.fullmatch, keys)) or not keys & {"type", "anyOf", "enum"}:
        return False
    if schema.get("type") == "object" and schema.get("additionalProperties") is not False:
        return False
    inner = [*schema.get("anyOf", ())]
    for name in ("properties", "$defs"):
        inner += as_dict(schema, name).values()
    if schema.get("type") == "array":
        inner.append(schema.get("items"))
    return all(_is_strict(as_dict(subschema)) for subschema in inner)


def strict_schema(schema: JSON) -> JSON | None:
    """The schema for strict mode; None if strict mode can't express it.

    Strict mode requires every property, at any depth. So optional parameters may be null, which
    stands for the default.
    Source: https://platform.openai.com/docs/guides/structured-outputs#supported-schemas
    """
    strict = rewrite_schema({"properties": {}, **schema}, "default", _close_object)
    properties = strict["properties"]
    for name in properties.keys() - {*schema.get("required", ())}:
        properties[name] = {"anyOf": [properties[name], {"type": "null"}]}
    return strict if _is_strict(strict) else None


def _write_openai_subschema(schema: JSON) -> JSON:
    """Rewrite what makes a server refuse each request, strict or not.

    For OpenAI, that's an array with no `items` (Python's tuples have only `prefixItems`), and a
    pattern that looks ahead or behind (such as Zod's for emails). Sources:
    https://github.com/AnswerDotAI/fastcore/issues/798, https://github.com/vercel/ai/pull/21037

    For OpenAI's strict mode, and for older servers of Kimi, that's a reference to a type with a
    description beside it. Sources: https://github.com/defog-ai/defog/pull/244,
    https://github.com/MoonshotAI/kimi-cli/issues/2061

    For Kimi, that's a list of texts with no type (such as JetBrains's for a Kotlin enum). Source:
    https://github.com/MoonshotAI/kimi-cli/pull/2030
    """
    choices = schema.get("enum")
    if isinstance(choices, list) and {*map(type, cast(list[object], choices))} == {str}:
        schema.setdefault("type", "string")
    if isinstance(schema.get("$ref"), str) and len(schema) > 1:
        schema["anyOf"] = [{"$ref": schema.pop("$ref")}]
    if schema.get("type") == "array":
        schema.setdefault("items", {})
    pattern = schema.get("pattern")  # or a parameter with this name
    if isinstance(pattern, str) and re.search(r"\(\?<?[=!]", pattern):
        del schema["pattern"]
    return schema


def inline_types(schema: JSON) -> JSON:
    """Put types in place of the references to them, except if a type refers to itself.

    Ollama leaves the references of parameters out, so the model doesn't see their types. vLLM takes
    such arguments for texts. Sources: ToolProperty in
    https://github.com/ollama/ollama/blob/main/api/types.go,
    https://github.com/vllm-project/vllm/pull/50933
    """

    def visit(found: JSON) -> JSON:
        pointer = found.get("$ref")
        if not isinstance(pointer, str):  # or a parameter with this name
            return found
        target = as_dict(schema, *pointer.split("/")[1:])
        beside = {name: value for name, value in found.items() if name != "$ref"}
        return target | beside if target else found

    if '"$ref"' not in json.dumps(schema):
        return schema
    whole = {name: value for name, value in schema.items() if name not in ("$defs", "definitions")}
    for _ in range(MAX_NESTED):
        whole = rewrite_schema(whole, "discriminator", visit)  # its references would lead nowhere
        text = json.dumps(whole)
        if len(text) > MAX_INLINED:
            break
        if '"$ref": "' not in text:
            return whole
    return schema


def add_types(schema: JSON) -> JSON:
    """Give each subschema a type. If it has alternatives, only they get one."""

    def visit(found: Any, default: Any) -> None:
        if not isinstance(found, dict):
            return
        node = cast(JSON, found)
        if not node.keys() & {"type", "anyOf", "oneOf", "allOf", "$ref"}:
            node |= _typed_enum(node) if isinstance(node.get("enum"), list) else {"type": default}
        kind = node.get("type", ANY)
        for name in ("anyOf", "oneOf"):
            for choice in node.get(name) or ():
                visit(choice, kind)
        if "anyOf" in node:
            node.pop("type", None)
        nested = (as_dict(node, name).values() for name in ("properties", "$defs"))
        for subschema in (node.get("items"), node.get("additionalProperties"), *chain(*nested)):
            visit(subschema, ANY)

    whole: JSON = json.loads(json.dumps(schema))
    visit(whole, "object")
    return whole


def _typed_enum(schema: JSON) -> JSON:
    """Take the values from a schema, and declare them with their type, or each of their types."""
    by_type = defaultdict[str, list[Any]](list)
    for value in schema.pop("enum"):
        by_type[JSON_TYPES[type(value)]].append(value)
    choices: list[JSON] = [{"type": kind, "enum": values} for kind, values in by_type.items()]
    return choices[0] if len(choices) == 1 else {"anyOf": choices}


def write_openai_schema(name: str, schema: JSON, strict: bool) -> JSON:
    """Declare a named schema, strict if you ask for that and the schema allows it."""
    schema = rewrite_schema(schema, "", _write_openai_subschema)
    supported = strict_schema(schema) if strict else None
    if supported:
        return {name: supported, "strict": True}
    return {name: schema}


def join_details(details: Sequence[JSON]) -> list[JSON]:
    """Join the fragments of reasoning of OpenRouter and LiteLLM. The last has the signature."""
    whole = list[JSON]()
    for detail in details:
        new = drop_none(detail)
        last = whole[-1] if whole else {"index": ""}
        is_whole = "data" in last | new or last.get("signature")
        if is_whole or last.get("index") != new.get("index"):
            whole.append(new)
        else:
            grow(last, new, ("text", "summary", "thinking"))
    return whole


def read_openai_usage(usage: JSON) -> Usage | None:
    """Read the usage that a server reports, in either format."""
    counts = read_counts(usage)
    if not counts:
        return None
    asked = max(counts["prompt_tokens"], counts["input_tokens"])
    answered = max(counts["completion_tokens"], counts["output_tokens"])
    reasoning = counts["reasoning_tokens"]
    cached = max(
        counts["cached_tokens"],
        counts["num_cached_tokens"],  # Mistral
        counts["prompt_cache_hit_tokens"],  # DeepSeek
    )
    rest = counts["total_tokens"] - asked - answered
    if rest == reasoning or (rest > 0 and not cached):
        answered += rest  # xAI and Google count reasoning separately; Google only in the total
    if cached > asked:
        asked += cached  # xAI sometimes counts these separately, too
    return Usage(
        input_tokens=asked,
        output_tokens=answered,
        cached_input_tokens=cached,
        cache_write_tokens=counts["cache_write_tokens"],
        reasoning_tokens=reasoning,
    )


# ---- the request


def _write_id(call_id: str, server: str) -> str:
    if applies(MISTRAL, server):
        return wire_id(call_id, "[a-zA-Z0-9]{9}")
    return wire_id(call_id)


def _own_fields(raw: JSON, server: str) -> JSON:
    """The opaque fields of a reply, for the server and the model that sent them."""
    if applies(ONLY_REASONING_CONTENT, server):
        return drop_none({"reasoning_content": first_text(raw, *THOUGHTS) or None})
    return {name: raw[name] for name in OPAQUE if name in raw}


def _write_openai_reply(message: AssistantMessage, server: str) -> JSON:
    nothing = "" if applies(NEEDS_CONTENT, server) else None
    written: JSON = {"role": "assistant", "content": message.content or nothing}
    raw = as_dict(message.raw)
    is_own = raw.get("owner") == owner_id(server)
    if is_own:  # required by DeepSeek's thinking models, even if empty
        written |= _own_fields(raw, server)
    thoughts = needed_thoughts(message, server)
    if thoughts and not written.get("reasoning_content"):
        written["reasoning_content"] = thoughts
    calls = list[JSON]()
    for call in message.tool_calls:
        function = {"name": wire_name(call.name), "arguments": wire_arguments(call)}
        own: JSON = {"id": _write_id(call.id, server), "type": "function", "function": function}
        if is_own and call.extra:
            own = {**call.extra, **own}
        calls.append(own)
    if calls:
        written["tool_calls"] = calls
    return written


def _parts(message: Message, server: str) -> list[JSON]:
    """The parts of a message; [] if all are text.

    Some servers take only a string, and Mistral Small 3.2 sees no tools beside a list. Source:
    https://github.com/lemonade-sdk/lemonade/issues/629
    """
    content = message.content
    if isinstance(content, str) or all(isinstance(part, TextPart) for part in content):
        return []
    parts = [*map(write_part, content)]
    return [*map(_as_document, parts)] if applies(MISTRAL_API, server) else parts


def _as_document(part: JSON) -> JSON:
    """Write a file for Mistral's API."""
    file = as_dict(part, "file")
    if "file_data" not in file:
        return part
    name, url = file["filename"], file["file_data"]
    return {"type": "document_url", "document_url": url, "document_name": name}


def _attachment(message: ToolMessage, server: str) -> list[JSON]:
    """The images and files of a result, after a text that names the tool."""
    media = [part for part in _parts(message, server) if part["type"] != "text"]
    if media:
        label = f"Attached to the result of {message.tool_name}:"
        media.insert(0, {"type": "text", "text": label})
    return media


def write_openai_messages(messages: Sequence[Message], server: str = "") -> list[JSON]:
    """Write messages for Chat Completions.

    `server` is the address and the model: opaque fields are sent back only to their server and
    model, and some servers require more than others.
    Tool results can only have text, so their images and files are in a user message after the last
    result of the turn.
    """
    written: list[JSON] = []
    attached: list[JSON] = []  # the content of the additional user message
    for message in readable(messages, "openai", CHAT_READS):
        if isinstance(message, ToolMessage):
            call_id = _write_id(message.tool_call_id, server)
            result = {"role": "tool", "tool_call_id": call_id, "content": message.text or NO_TEXT}
            written.insert(len(written) - bool(attached), result)
            media = _attachment(message, server)
            if media and not attached:
                written.append({"role": "user", "content": attached})
            attached += media
            continue
        attached = []
        if not isinstance(message, AssistantMessage):
            role = "system" if isinstance(message, SystemMessage) else "user"
            written.append({"role": role, "content": _parts(message, server) or message.text})
        elif message.content or message.tool_calls:  # providers reject empty replies
            written.append(_write_openai_reply(message, server))
    if applies(ALTERNATING, server):
        written = _separate(written)
    return written


def _separate(written: Sequence[JSON]) -> list[JSON]:
    """Put a reply before a message of the user that follows results, or another such message."""
    separated = list[JSON]()
    for message in written:
        after = separated[-1]["role"] if separated else ""
        if message["role"] == "user" and after in ("tool", "user"):
            separated.append(BETWEEN)
        separated.append(message)
    return separated


# ---- the reply


def _read_openai_call(call: JSON) -> ToolCall:
    function = as_dict(call, "function")
    extra = drop_none({name: call.get(name) for name in OPAQUE_OF_CALLS})
    return ToolCall(
        first_text(call, "id"),
        first_text(function, "name"),
        plain_text(function.get("arguments")),
        extra=clean_json(extra) if extra else None,
    )


def _flatten(message: JSON) -> JSON:
    """Make two texts, "content" and "thinking", of Mistral's list."""
    if not isinstance(message.get("content"), list):
        return message
    flat = message | {"content": "", "thinking": ""}
    for part in as_dicts(message["content"]):
        flat["content"] += first_text(part, "text")
        for thought in as_dicts(part, "thinking"):
            flat["thinking"] += first_text(thought, "text")
    return flat


def _find_sources(data: JSON, message: JSON) -> list[JSON]:
    """The cited sources, as OpenAI and OpenRouter send them, or Perplexity."""
    sources = as_dicts(message, "annotations") or as_dicts(data, "search_results")
    if not sources and isinstance(data.get("citations"), list):
        return [{"url": url} for url in data["citations"]]
    return sources


def _opaque_fields(message: JSON, calls: Sequence[ToolCall], server: str) -> JSON | None:
    """The fields that later requests send back to the server; None if there are none."""
    opaque = drop_none({name: message.get(name) for name in OPAQUE})
    if opaque or any(call.extra for call in calls):
        return {"provider": "openai", "owner": owner_id(server)} | opaque
    return None


def read_openai_reply(data: JSON, server: str = "") -> AssistantMessage:
    """Turn a reply into a message. Raises one of PARSE_ERRORS if the reply is invalid."""
    choice = data["choices"][0]
    finish = choice.get("finish_reason")
    if finish in BROKEN_OFF:
        raise BadResponse(f"the provider broke off the reply: {finish}")
    if finish == "content_filter":  # Azure filters content without a message
        choice = choice | {"message": as_dict(choice, "message")}
    message = _flatten(choice["message"])
    calls = [*map(_read_openai_call, as_dicts(message, "tool_calls"))]
    stop = stop_reason(OPENAI_STOP_REASONS, finish, calls)
    refusal = message.get("refusal")
    if refusal:
        stop = "refused"
    return AssistantMessage(
        content=first_text(message, "content") or refusal or "",  # Cloudflare: an object
        tool_calls=tuple(calls),
        thinking=first_text(message, *THOUGHTS) or None,
        usage=read_openai_usage(as_dict(data, "usage")),
        stop_reason=stop,
        raw=_opaque_fields(message, calls, server),
        citations=tuple(read_citations(_find_sources(data, message), 0, 0)),
        finish_reason=plain_text(finish) or None,
    )


# ---- the stream


def _begins_another(known: JSON, call_id: str, arguments: str) -> bool:
    """Whether a piece with a name begins a new call, and doesn't continue this one."""
    if call_id and known["id"]:
        return bool(call_id != known["id"])
    # Gemini's calls have the same index, and lack ids
    return bool(arguments) and parse_json(known["function"]["arguments"]) is not None


@dataclass
class OpenAIChunks(Accumulator):
    """Puts a streamed reply together from the chunks of various servers."""

    def __post_init__(self) -> None:
        self._message: JSON = {"tool_calls": []}
        self._choice: JSON = {"message": self._message}
        self.data = {"choices": [self._choice]}
        self._open: dict[Any, JSON] = {}  # the incomplete calls, by index
        self._has_begun = False

    def end(self) -> None:
        # Some servers refuse a request with an empty stream, or with an error in words of their
        # own. Source: https://github.com/NousResearch/hermes-agent/issues/65631
        self.complete = self._has_begun

    def add(self, event: JSON) -> None:
        for name in ("usage", "search_results", "citations"):  # Perplexity repeats its sources
            if event.get(name):
                self.data[name] = event[name]
        for choice in as_dicts(event, "choices"):
            if choice.get("index"):
                continue  # with extra={"n": 2}: only the first choice is read
            self._has_begun = True
            if choice.get("usage"):  # Kimi: https://github.com/earendil-works/pi/issues/2017
                self.data.setdefault("usage", choice["usage"])
            self._add_delta(_flatten(as_dict(choice, "delta")))
            finish = choice.get("finish_reason")
            if finish:
                self.complete = True
                self._choice["finish_reason"] = finish

    def _add_delta(self, delta: JSON) -> None:
        self.thinking(first_text(delta, *THOUGHTS))  # once: some servers send two fields
        self.text(first_text(delta, "content"))
        self.text(first_text(delta, "refusal"))
        message = self._message
        for name, piece in delta.items():
            if piece is None:
                continue
            if name in GROWING:
                message[name] = message.get(name, "") + plain_text(piece)
            elif name == "tool_calls":
                for position, call in enumerate(as_dicts(piece)):
                    self._add_call(position, call)
            elif name == "annotations":  # OpenRouter repeats some
                known = message.setdefault(name, [])
                known += [source for source in as_dicts(piece) if source not in known]
            elif name in ("reasoning_details", "thinking_blocks"):
                known = message.setdefault(name, [])
                known[-1:] = join_details(known[-1:] + as_dicts(piece))
            else:
                message[name] = piece

    def _add_call(self, position: int, delta: JSON) -> None:
        """Add a piece of a call.

        Index, id and name may be missing, repeated, or identical for two calls.
        """
        function = as_dict(delta, "function")
        call_id = delta.get("id") or ""
        index = delta.get("index")
        if index is None:
            index = call_id or position
        name = function.get("name") or ""
        arguments = plain_text(function.get("arguments"))
        call = self._open.get(index)
        if not call or (name and _begins_another(call, call_id, arguments)):
            call = self._open[index] = {"id": "", "function": {"name": "", "arguments": ""}}
            if delta.get("index") is None:  # pieces without index and id continue this call
                self._open[position] = call
            self._message["tool_calls"].append(call)
        known = call["function"]
        if name != known["name"]:
            known["name"] += name
        known["arguments"] += arguments
        call |= drop_none(delta) | {"id": call["id"] or call_id, "function": known}
        self.call(arguments, known["name"], call["id"])
