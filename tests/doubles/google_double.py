"""A strict double of Gemini's generateContent, on a real socket.

Its interface is that of OpenAIDouble. It signs the first call of each reply, or the text of a reply
without calls, as Gemini 3 does, and requires these signatures in later requests.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Iterable
from typing import Any

from .fault_server import answer
from .openai_double import (
    Failure,
    OpenAIDouble,
    Refused,
    Reply,
    Scripted,
    check_declared,
    check_name,
    check_system,
    check_turns,
    pieces,
)

# "Unsupported MIME type" for others: https://github.com/google/adk-python/issues/5693
# Of texts, only text/plain: https://github.com/epam/ai-dial-adapter-vertexai/issues/148
BLOBS = "image/(png|jpeg|webp|hei[cf])|(audio|video)/.*|application/pdf|text/plain"
UNSIGNED = ("skip_thought_signature_validator", "context_engineering_is_the_way_to_go")
FIELDS = {  # the permitted fields of each object
    "": [
        "contents",
        "tools",
        "toolConfig",
        "systemInstruction",
        "generationConfig",
        "safetySettings",
        "cachedContent",
        "labels",
    ],
    "content": ["role", "parts"],
    "part": [
        "text",
        "thought",
        "thoughtSignature",
        "inlineData",
        "fileData",
        "functionCall",
        "functionResponse",
        "executableCode",
        "codeExecutionResult",
        "videoMetadata",
    ],
    "functionCall": ["id", "name", "args"],
    "functionResponse": ["id", "name", "response", "parts", "willContinue", "scheduling"],
    "function_declarations": [
        "name",
        "description",
        "parameters",
        "parametersJsonSchema",
        "response",
        "behavior",
        "responseJsonSchema",
    ],
    "generation_config": [
        "temperature",
        "topP",
        "topK",
        "maxOutputTokens",
        "stopSequences",
        "candidateCount",
        "seed",
        "thinkingConfig",
        "responseMimeType",
        "responseSchema",
        "responseJsonSchema",
        "presencePenalty",
        "frequencyPenalty",
        "responseModalities",
        "mediaResolution",
    ],
    "thinking_config": ["thinkingBudget", "thinkingLevel", "includeThoughts"],
}
DATA = [
    "text",
    "inlineData",
    "fileData",
    "functionCall",
    "functionResponse",
    "executableCode",
    "codeExecutionResult",
]  # a part has exactly one of these fields


class GoogleDouble(OpenAIDouble):
    def __init__(self, replies: Iterable[Scripted] = (), **settings: Any) -> None:
        super().__init__(replies, **settings)
        self.signatures: dict[str, str] = {}  # and the call with the signature

    base_path = ""

    def _check_head(self, first: str, headers: dict[str, str]) -> None:
        where = re.fullmatch(
            r"POST /v1(?:beta)?/models/([A-Za-z0-9._-]+):"
            r"(generateContent|streamGenerateContent\?alt=sse) HTTP/1.1",
            first,
        )
        if where is None:
            raise Refused("Requested entity was not found.", "404 NOT_FOUND")
        self.model = where[1]
        if not headers.get("x-goog-api-key"):
            raise Refused("Method doesn't allow unregistered callers", "403 PERMISSION_DENIED")

    def _check(self, body: dict[str, Any], headers: dict[str, str]) -> None:
        check(body, self.model, self.system, self.signatures)

    def _refuse(self, refused: Refused) -> bytes:
        status, _, word = (refused.code or "400 INVALID_ARGUMENT").partition(" ")
        return self._fail(Failure(int(status), refused.message, code=word))

    def _fail(self, failure: Failure) -> bytes:
        word = failure.code or "UNAVAILABLE"
        error = {"code": failure.status, "message": failure.message, "status": word}
        return answer({"error": error}, failure.status, failure.headers)

    def _streams(self, first: str) -> bool:
        return "streamGenerateContent" in first

    def whole(self, reply: Any) -> dict[str, Any]:
        return _chunk(self._parts(reply), finishReason=_finish(reply)) | _usage(reply)

    def frames(self, reply: Any) -> list[bytes]:
        return [sse(event) for event in events(reply, self._parts(reply))]

    fixed = ("systemInstruction", "tools", "toolConfig", "generationConfig")

    def in_order(self, body: dict[str, Any]) -> list[Any]:
        return _flat(body)

    def _parts(self, reply: Reply) -> list[dict[str, Any]]:
        parts: list[dict[str, Any]] = []
        if reply.thinking:
            parts.append({"text": reply.thinking, "thought": True})
        if text := reply.text or reply.refusal:
            parts.append({"text": text})
        for name, arguments, *call_id in reply.calls:
            try:
                args = json.loads(arguments) if isinstance(arguments, str) else arguments
            except (ValueError, RecursionError):
                args = arguments  # not JSON: some servers pass on the text of the model
            call = {"name": name, "args": args} | ({"id": call_id[0]} if call_id else {})
            parts.append({"functionCall": call})
        if parts:
            signed = next((part for part in parts if "functionCall" in part), parts[-1])
            text = f"signature {len(self.requests)}"
            signature = signed["thoughtSignature"] = base64.b64encode(text.encode()).decode()
            self.signatures[signature] = _key(signed.get("functionCall"))
        return parts


def _flat(body: dict[str, Any]) -> list[Any]:
    return [
        (content.get("role"), part) for content in body["contents"] for part in content["parts"]
    ]


# ---- checks of requests


def check(body: dict[str, Any], model: str, system: str | None, signatures: dict[str, str]) -> None:
    """Raise Refused for an invalid request."""
    config = body.get("generationConfig", {})
    _check_fields(body, "")
    _check_fields(config, "generation_config")
    _check_fields(config.get("thinkingConfig", {}), "thinking_config")
    if "responseJsonSchema" in config:
        assert config.get("responseMimeType") == "application/json"
        _check_schema(config["responseJsonSchema"])
    prompts = []
    if "systemInstruction" in body:
        _check_fields(body["systemInstruction"], "content")
        prompts = ["".join(part["text"] for part in body["systemInstruction"]["parts"])]
    check_system(prompts, system)
    contents = body.get("contents")
    assert isinstance(contents, list)
    assert contents
    _check_contents(contents, model, signatures)
    names = _check_tools(body)
    assert names or not any("functionCall" in part for _, part in _flat(body))


def _check_fields(value: Any, kind: str) -> None:
    assert isinstance(value, dict)
    for name, item in value.items():
        assert name in FIELDS[kind], f'Unknown name "{name}": Cannot find field.'
        assert item is not None


def _check_tools(body: dict[str, Any]) -> list[str]:
    declared: list[tuple[Any, Any]] = []
    tools, config = body.get("tools", ()), body.get("toolConfig", {})
    others = [tool for tool in tools if "functionDeclarations" not in tool]
    for tool in tools:
        for function in tool.get("functionDeclarations", ()):
            function = {_camel(key): value for key, value in function.items()}
            _check_fields(function, "function_declarations")
            assert isinstance(function.get("description"), str)
            declared.append((function.get("name"), function.get("parametersJsonSchema")))
    check_declared(declared)
    _check_schema([schema for _, schema in declared])
    names = [name for name, _ in declared]
    for name in names:
        assert re.match("[A-Za-z_]", name), "Must start with a letter or an underscore"
    assert "tools" not in body or names or others
    assert not (names and others) or config.get("includeServerSideToolInvocations")
    if calling := config.get("functionCallingConfig"):
        allowed = calling.get("allowedFunctionNames", [])
        assert names
        assert calling["mode"] in ("AUTO", "ANY", "NONE")
        assert not allowed or calling["mode"] == "ANY"
        assert set(allowed) <= set(names)
    return names


def _camel(name: str) -> str:
    """Return a name in camel case. Protocol buffers accept both forms; google-genai mixes them."""
    return re.sub("_([a-z])", lambda match: match[1].upper(), name)


def _check_schema(schema: Any) -> None:
    if isinstance(schema, list):
        for item in schema:
            _check_schema(item)
    if isinstance(schema, dict):
        is_reference = isinstance(schema.get("$ref"), str)
        assert not is_reference or all(key[0] == "$" for key in schema)
        for name in ("exclusiveMinimum", "exclusiveMaximum", "multipleOf", "discriminator"):
            assert "type" in str(schema.get(name, "type")), (
                f"{name} is unknown"
            )  # or it is a property
        required, properties = schema.get("required"), schema.get("properties")
        if isinstance(required, list) and isinstance(properties, dict):
            assert properties.keys() >= {*required}, "property is not defined"
        for value in schema.values():
            _check_schema(value)


def _check_contents(contents: list[Any], model: str, signatures: dict[str, str]) -> None:
    turns: list[tuple[bool, list[Any], list[Any]]] = []
    names: dict[Any, str] = {}  # of the calls
    for n, content in enumerate(contents):
        _check_fields(content, "content")
        role, parts = content.get("role"), content.get("parts")
        assert role in ("user", "model")
        assert not n or contents[n - 1]["role"] != role, "roles alternate"
        assert isinstance(parts, list)
        assert parts
        for part in parts:
            _check_part(part, role)
        calls = [part["functionCall"] for part in parts if "functionCall" in part]
        results = [part["functionResponse"] for part in parts if "functionResponse" in part]
        names |= {call.get("id"): call["name"] for call in calls}
        ids = [result.get("id") for result in results]
        turns.append((True, ids, [call.get("id") for call in calls]))
        for result in results:
            inside, name = result.get("parts", []), names.get(result.get("id"))
            assert name == result["name"], "no call before it waits for this id and name"
            assert not inside or re.match(r"gemini-([3-9]|\d\d)", model)
            for part in inside:
                _check_blob(part["inlineData"])
        assert all("functionResponse" in part for part in parts[: len(results)])
        assert n or not calls
        if role == "model":
            _check_signatures(parts, signatures)
    check_turns(turns)
    assert contents[-1]["role"] == "user", "it ends with the assistant"


def _key(call: Any) -> str:
    return json.dumps([call["name"], call["args"]], sort_keys=True) if call else ""


def _check_signatures(parts: list[Any], signatures: dict[str, str]) -> None:
    first = next((part for part in parts if "functionCall" in part), {})
    for part in parts:
        signature = part.get("thoughtSignature", UNSIGNED[0])
        assert signature in (*UNSIGNED, *signatures), "Corrupted thought signature."
        assert part is first or not signatures.get(signature), "Corrupted: that of a call"
    key, signature = _key(first.get("functionCall")), first.get("thoughtSignature")
    stripped = signature is None or (signature in UNSIGNED and key in signatures.values())
    assert not first or not stripped, "Function call is missing a thought_signature"


def _check_part(part: Any, role: str) -> None:
    _check_fields(part, "part")
    kinds = [name for name in DATA if name in part]
    assert len(kinds) == 1, "required oneof field 'data' must have one initialized field"
    kind, value = kinds[0], part[kinds[0]]
    assert kind != "text" or value or "thoughtSignature" in part
    if kind in ("functionCall", "functionResponse"):
        whose, key = {"functionCall": ("model", "args")}.get(kind, ("user", "response"))
        _check_fields(value, kind)
        assert role == whose
        check_name(value.get("name"))
        assert isinstance(value.get(key), dict)
    if kind == "inlineData":
        _check_blob(value)
    assert kind != "fileData" or value.get("fileUri")


def _check_blob(blob: Any) -> None:
    try:
        good = blob["mimeType"] and base64.b64decode(blob["data"], validate=True)
        assert re.fullmatch(BLOBS, blob["mimeType"]), f"Unsupported MIME type: {blob['mimeType']}"
    except (KeyError, binascii.Error):
        good = None
    assert good, "Base64 decoding failed"


# ---- replies


def _usage(reply: Reply) -> dict[str, Any]:
    """Return the usage of a script in Gemini's format."""
    if reply.usage is None:
        return {}
    words = {"prompt_tokens": "promptTokenCount", "completion_tokens": "candidatesTokenCount"}
    words["total_tokens"] = "totalTokenCount"
    return {"usageMetadata": {words.get(name, name): n for name, n in reply.usage.items()}}


def _chunk(parts: list[dict[str, Any]], **rest: Any) -> dict[str, Any]:
    return {"candidates": [{"content": {"role": "model", "parts": parts}, "index": 0, **rest}]}


def _finish(reply: Reply) -> str:
    words = {"length": "MAX_TOKENS", "content_filter": "SAFETY"}  # scripts use the words of OpenAI
    return words.get(reply.finish or "", reply.finish) or ("SAFETY" if reply.refusal else "STOP")


def events(reply: Reply, parts: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the stream events of a reply."""
    chunks: list[dict[str, Any]] = []
    last: list[dict[str, Any]] = []
    for part in parts:
        if "text" not in part:
            chunks.append(_chunk([part]))
            continue
        if "thoughtSignature" in part:  # the signature of a text is in a last, empty part
            last = [{"text": "", "thoughtSignature": part["thoughtSignature"]}]
        text, flag = part["text"], {"thought": True} if part.get("thought") else {}
        chunks += [_chunk([{"text": piece, **flag}]) for piece in pieces(text)]
    chunks.append(_chunk(last, finishReason=_finish(reply)))
    for count, chunk in enumerate(chunks):  # cumulative: only the last count is complete
        chunk |= _usage(reply)
        if "usageMetadata" in chunk and count < len(chunks) - 1:
            chunk["usageMetadata"] |= {"candidatesTokenCount": 1}
    return chunks


def sse(*items: dict[str, Any]) -> bytes:
    """Encode events as server-sent events."""
    return "".join(f"data: {json.dumps(item)}\r\n\r\n" for item in items).encode()
