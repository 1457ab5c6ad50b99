"""Google's Gemini models, with the generateContent API.

Copy with: common/model_info.py, models/http.py, models/wire.py and their imports.

    llm = ChatGoogle("gemini-flash-latest", thinking_level="low")

Source: https://ai.google.dev/api/generate-content
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, partial
from typing import Any
from urllib.parse import quote

from pydantic_core import from_json, to_json

from ..common.model_info import CacheRules
from ..errors import BadResponse
from ..messages import (
    JSON,
    AssistantMessage,
    Citation,
    Message,
    Part,
    TextPart,
    ToolCall,
    ToolChoice,
    ToolMessage,
    Usage,
)
from ..tools import Tool
from .http import HTTPModel, chat_model
from .wire import (
    Accumulator,
    as_dict,
    as_dicts,
    attachment,
    declare,
    drop_none,
    encode_exchanges,
    first_text,
    from_user,
    in_turns,
    kept_blocks,
    merge,
    owner_id,
    plain_text,
    read_citations,
    read_counts,
    readable,
    resumed,
    rewrite_schema,
    split_system,
    stop_reason,
    wire_name,
    write_content,
)

REFUSED = (
    *("SAFETY", "RECITATION", "BLOCKLIST", "PROHIBITED_CONTENT", "SPII", "MODEL_ARMOR"),
    *("IMAGE_SAFETY", "IMAGE_PROHIBITED_CONTENT", "IMAGE_RECITATION", "LANGUAGE", "ESCALATION"),
)
MENDABLE = ("MALFORMED_FUNCTION_CALL", "UNEXPECTED_TOOL_CALL", "TOO_MANY_TOOL_CALLS")
GOOGLE_STOP_REASONS = {
    "STOP": "end",
    "FUNCTION_CALL": "tool_calls",  # sent by compatible servers; Google sends STOP
    "MAX_TOKENS": "length",
    "CONTINUATION": "length",
    **dict.fromkeys(REFUSED, "refused"),
    **dict.fromkeys(MENDABLE, "tool_calls"),
}
# the types of files that models read, besides text, which is sent as such. Source:
# https://firebase.google.com/docs/ai-logic/input-file-requirements
GEMINI_READS = "image/(jpeg|png|webp|hei[cf])|(audio|video)/.*|application/pdf"
# Schema keywords that Gemini doesn't support. It takes a `title` for a function to call. Source:
# https://github.com/googleapis/python-genai/issues/1732
UNKNOWN = "exclusiveMinimum|exclusiveMaximum|multipleOf|uniqueItems|discriminator|title"
CALLING = {"auto": None, "required": {"mode": "ANY"}, "none": {"mode": "NONE"}}
EMPTY_PART: JSON = {"text": "(empty)"}  # for the first turn, which must be the user's
GEMINI_CACHE_SOURCE = (
    "https://ai.google.dev/gemini-api/docs/caching (sizes), "
    "https://ai.google.dev/gemini-api/docs/pricing (prices), November 2026"
)
UNSIGNED = "skip_thought_signature_validator"  # accepted by the API for calls of other models


# ---- the request


def _write_subschema(schema: JSON) -> JSON:
    if not isinstance(schema.get("const", {}), dict):
        schema["enum"] = [schema.pop("const")]
    if isinstance(schema.get("$ref"), str) and any(not key.startswith("$") for key in schema):
        schema["anyOf"] = [{"$ref": schema.pop("$ref")}, *schema.get("anyOf", ())]
    return schema


def write_schema(schema: JSON) -> JSON:
    """Rewrite what Gemini rejects in a schema (siblings of a $ref) or ignores (const).

    Source: https://ai.google.dev/api/generate-content#FIELDS.response_json_schema
    """
    return _rewritten(to_json(schema))


@lru_cache(1000)  # each request repeats the schemas of the tools
def _rewritten(schema: bytes) -> JSON:
    return rewrite_schema(from_json(schema), UNKNOWN, _write_subschema)


def _write_google_part(part: Part) -> JSON | None:
    if isinstance(part, TextPart):
        if not part.text:
            return None  # the API rejects empty text
        return {"text": part.text}
    kind, data, url, own = attachment(part, "google")
    if url:
        return {"fileData": drop_none({"mimeType": kind or None, "fileUri": url})} | own
    return {"inlineData": {"mimeType": kind, "data": data}} | own


def _write_google_result(message: ToolMessage) -> list[JSON]:
    """Write a result, and after it its images and files, which few models accept inside.

    JSON stays text, because an object would lose digits of long numbers.
    """
    outcome = "error" if message.is_error else "output"
    response: JSON = {
        "id": message.tool_call_id,
        "name": wire_name(message.tool_name),
        "response": {outcome: message.text},
    }
    blocks = write_content(message.content, _write_google_part)
    media = [block for block in blocks if "text" not in block]
    if media:
        media.insert(0, {"text": f"Attached to the result of {message.tool_name}:"})
    return [{"functionResponse": response}, *media]


def _write_google_assistant(message: AssistantMessage, owner: str) -> list[JSON]:
    """The parts that the server sent, or new ones if the message has changed."""
    own: list[JSON] = [
        {"functionCall": {"id": call.id, "name": wire_name(call.name), "args": call.parsed or {}}}
        for call in message.tool_calls
    ]
    parts = kept_blocks(message, "parts", "google", owner, "functionCall", own, _google_text)
    parts = parts or write_content(message.content, _write_google_part) + own
    for part in parts:
        if "functionCall" in part:  # only the first of parallel calls requires a signature
            part.setdefault("thoughtSignature", UNSIGNED)
            break
    return parts


def write_google_messages(messages: Sequence[Message], owner: str = "") -> list[JSON]:
    """Write messages, except the system prompt, for Gemini.

    `owner` identifies the server: the Gemini API and Vertex AI reject each other's signatures.
    Source: https://github.com/BerriAI/litellm/issues/32140
    """
    messages = readable(messages, "google", GEMINI_READS)
    write_reply = partial(_write_google_assistant, owner=owner)
    turns = in_turns(messages, write_reply, _write_google_result, _write_google_part)
    contents = list[JSON]()
    for role, parts in turns:
        # results come before images and files: False sorts before True
        parts.sort(key=lambda part: "functionResponse" not in part)
        name = "user" if role == "user" else "model"
        contents.append({"role": name, "parts": parts or [EMPTY_PART]})
    return contents


# ---- the reply


def _google_text(parts: Sequence[JSON], thought: bool = False) -> str:
    """The text of the thoughts, or of the other parts."""
    chosen = [part for part in parts if bool(part.get("thought")) == thought]
    return "".join(part.get("text") or "" for part in chosen)


def _count_characters(text: str, offset: int) -> int:
    """How many characters come before an offset in bytes."""
    encoded = text.encode(errors="replace")  # the text may contain lone surrogates
    return len(encoded[:offset].decode(errors="ignore"))


def _read_grounding(grounding: JSON, text: str) -> Iterator[Citation]:
    """Yield the sources of a text: pages, documents, map locations.

    Positions are byte offsets in a part, and the API doesn't always say in which. So the cited text
    is looked up in the whole text, from that position on.
    Source: https://github.com/googleapis/python-genai/issues/961
    """
    chunks = as_dicts(grounding, "groundingChunks")
    supports = as_dicts(grounding, "groundingSupports")
    for support in supports:
        segment = as_dict(support, "segment")
        words = segment.get("text", "")
        before = _count_characters(text, segment.get("startIndex", 0))
        start = max(0, text.find(words, before))
        for number in support.get("groundingChunkIndices", ()):
            yield from read_citations(chunks[number : number + 1], start, start + len(words))
    if not supports:
        yield from read_citations(chunks, 0, 0)


def _read_sources(candidate: JSON, text: str) -> Iterator[Citation]:
    """Yield the sources of a reply: grounding, recitations, and pages that the model fetched.

    Source: https://ai.google.dev/api/generate-content#CitationMetadata
    """
    yield from _read_grounding(as_dict(candidate, "groundingMetadata"), text)
    recited = as_dict(candidate, "citationMetadata")
    for source in as_dicts(recited.get("citationSources") or recited.get("citations")):
        places = read_counts(source)
        start = _count_characters(text, places["startIndex"])
        yield from read_citations([source], start, _count_characters(text, places["endIndex"]))
    for page in as_dicts(candidate, "urlContextMetadata", "urlMetadata"):
        yield from read_citations([page | {"url": page.get("retrievedUrl")}], 0, 0)


def _find_parts(candidate: JSON, finish: str) -> list[JSON]:
    """The parts of a reply, except empty ones. Raises BadResponse if there's no message."""
    sent: list[JSON] = as_dict(candidate, "content").get("parts") or []
    # another attempt at a malformed reply may succeed
    if finish == "MALFORMED_RESPONSE" or not (sent or finish):
        raise BadResponse(f"no message in the reply ({finish or 'no candidates'})")
    return [part for part in map(drop_none, sent) if part not in ({}, {"text": ""})]


def _take_calls(parts: list[JSON], candidate: JSON, finish: str) -> list[ToolCall]:
    """Take the calls out of the parts, which keep the calls' places.

    The calls of a malformed reply must not run: the error takes the place of their arguments, so
    they get error results. If a malformed reply has no call, it gets one.
    """
    calls = list[ToolCall]()
    broken = ""
    if finish in MENDABLE:
        broken = first_text(candidate, "finishMessage", "finishReason")
        if not any("functionCall" in part for part in parts):
            parts.append({"functionCall": {"name": finish.lower()}})
    for part in parts:
        call = part.get("functionCall")
        if call:
            arguments = plain_text(call.pop("args", None)) or "{}"
            name = plain_text(call["name"])
            calls.append(ToolCall(str(call.get("id") or ""), name, broken or arguments))
    return calls


def read_google_usage(usage: JSON) -> Usage | None:
    """Read the usage that the API reports. It counts thoughts apart from the reply."""
    counts = read_counts(usage)
    if not counts:
        return None
    return Usage(
        input_tokens=counts["promptTokenCount"] + counts["toolUsePromptTokenCount"],
        output_tokens=counts["candidatesTokenCount"] + counts["thoughtsTokenCount"],
        cached_input_tokens=counts["cachedContentTokenCount"],
        reasoning_tokens=counts["thoughtsTokenCount"],
    )


@dataclass
class GoogleChunks(Accumulator):
    """Puts a streamed reply together. Each chunk is a reply that has the next parts."""

    def __post_init__(self) -> None:
        self._parts: list[JSON] = []
        self._candidate: JSON = {}
        self.data = {"candidates": [self._candidate], "usageMetadata": {}, "promptFeedback": {}}

    def add(self, event: JSON) -> None:
        for name in ("usageMetadata", "promptFeedback"):
            self.data[name] |= as_dict(event, name)  # counts are cumulative
        for candidate in as_dicts(event, "candidates")[:1]:
            self._candidate |= drop_none(candidate)
            for part in as_dict(candidate, "content").get("parts") or ():
                self._add_part(drop_none(part))
        self._candidate["content"] = {"parts": self._parts}
        blocked = self.data["promptFeedback"].get("blockReason")
        self.complete = bool(blocked or self._candidate.get("finishReason"))

    def _add_part(self, part: JSON) -> None:
        text = part.get("text", "")
        if part.get("thought"):
            self.thinking(text)
        else:
            self.text(text)
        call = part.get("functionCall")
        if call:
            self.call(plain_text(call.get("args")), call["name"], str(call.get("id") or ""))
        last = self._parts[-1] if self._parts else {}
        if part.keys() == last.keys() <= {"text", "thought"}:
            last["text"] += text  # a part with a signature must stay as it is
        else:
            self._parts.append(part)


# ---- the model


@chat_model
class ChatGoogle(HTTPModel):
    """A Gemini model. Settings that are None aren't sent.

    thinking_budget: tokens, for Gemini 2.5; 0 turns thinking off, -1 lets the model decide.
    thinking_level: "low", "high", ... for later models.
    include_thoughts: whether you get the thoughts, which are billed in any case.
    generation_config: more fields of the API's object with this name.

    On Vertex AI: `base_url="https://aiplatform.googleapis.com"`,
        `api_version="v1/publishers/google"`.
    """

    temperature: float | None = None
    max_output_tokens: int | None = None
    thinking_budget: int | None = None
    thinking_level: str | None = None
    include_thoughts: bool | None = None
    generation_config: Mapping[str, Any] = field(default_factory=dict[str, Any])
    api_version: str = "v1beta"

    key_variables = ("GOOGLE_API_KEY", "GEMINI_API_KEY")
    url_variable = "GOOGLE_GEMINI_BASE_URL"
    default_url = "https://generativelanguage.googleapis.com"
    fields_setting = "generation_config"
    chunks = GoogleChunks

    @property
    def cache_rules(self) -> CacheRules:
        """The rules of Gemini's implicit cache. Writing to it is free."""
        smallest = 2_048 if "gemini-2.5" in self.model else 4_096
        return CacheRules(
            smallest, 0.05 if "gemini-4" in self.model else 0.1, 1.0, GEMINI_CACHE_SOURCE
        )

    @property
    def output_limit(self) -> int | None:
        return self.max_output_tokens

    @property
    def _owner(self) -> str:
        return owner_id(f"google {self.base_url}")

    def headers(self) -> dict[str, str]:
        if not self.api_key:
            return {}
        return {"x-goog-api-key": self.api_key}

    def path(self, stream: bool) -> str:
        model = quote(self.model.removeprefix("models/"), safe="")
        method = "streamGenerateContent?alt=sse" if stream else "generateContent"
        return f"/{self.api_version}/models/{model}:{method}"

    def body(
        self,
        messages: Sequence[Message],
        tools: Sequence[Tool],
        tool_choice: ToolChoice,
        stream: bool,
    ) -> JSON:
        texts, said = split_system(messages)
        declared = [
            declare(tool, "google", {"parametersJsonSchema": write_schema(tool.parameters)})
            for tool in tools
        ]
        all_tools = [*self.provider_tools]
        tool_config: JSON = {}
        if declared:
            all_tools.insert(0, {"functionDeclarations": declared})
            one_tool: JSON = {"mode": "ANY", "allowedFunctionNames": [tool_choice]}
            tool_config["functionCallingConfig"] = CALLING.get(tool_choice, one_tool)
            # Gemini requires it for functions beside provider tools, Vertex AI doesn't know it
            if self.provider_tools and "publishers" not in self.api_version:
                tool_config["includeServerSideToolInvocations"] = True
        messages = resumed(from_user(said))
        write = partial(write_google_messages, owner=self._owner)
        body: JSON = {
            "contents": encode_exchanges(messages, self._owner, write),
            "generationConfig": self._config() or None,
            "tools": all_tools or None,
            "toolConfig": drop_none(tool_config) or None,
        }
        if texts:
            body["systemInstruction"] = {"parts": [{"text": text} for text in texts]}
        return drop_none(body)

    def _config(self) -> JSON:
        """The API's `generationConfig`."""
        thinking = {
            "thinkingBudget": self.thinking_budget,
            "thinkingLevel": self.thinking_level,
            "includeThoughts": self.include_thoughts,
        }
        config: JSON = {
            "temperature": self.temperature,
            "maxOutputTokens": self.max_output_tokens,
            "thinkingConfig": drop_none(thinking) or None,
        }
        if self.output_schema:
            config["responseMimeType"] = "application/json"
            config["responseJsonSchema"] = write_schema(self.output_schema)
        return merge(drop_none(config), self.generation_config)

    def read(self, data: JSON) -> AssistantMessage:
        candidate = next(iter(as_dicts(data, "candidates")), JSON())
        blocked = first_text(as_dict(data, "promptFeedback"), "blockReason")
        finish = first_text(candidate, "finishReason") or blocked
        parts = _find_parts(candidate, finish)
        calls = _take_calls(parts, candidate, finish)
        stop = "refused" if blocked else stop_reason(GOOGLE_STOP_REASONS, finish, calls)
        # for most replies, the message says it all
        is_plain = all(part.keys() <= {"text", "thought", "functionCall"} for part in parts)
        raw = {"provider": "google", "owner": self._owner, "parts": parts}
        text = _google_text(parts)
        return AssistantMessage(
            content=text,
            tool_calls=tuple(calls),
            thinking=_google_text(parts, True) or None,
            usage=read_google_usage(as_dict(data, "usageMetadata")),
            stop_reason=stop,
            raw=None if is_plain else raw,
            citations=tuple(_read_sources(candidate, text)),
            finish_reason=finish or None,
        )
