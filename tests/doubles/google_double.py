"""A strict stand-in for Gemini's generateContent, on a real socket.

    async with GoogleDouble([calls(("add", {"a": 1, "b": 2})), "It is 3."]) as server:
        model = ChatGoogle("gemini-3-pro", base_url=server.base_url, api_key="k")
        ...
    assert "functionResponse" in server.requests[1]["contents"][-1]["parts"][0]

As `OpenAIDouble`, with which it shares its server and its scripts: each request is checked first,
and refused with 400 in the provider's own words. It signs the first call of each reply, or its
text, as Gemini 3 does, and wants the signatures back (`signs=False`: an older model).
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Iterable
from typing import Any

from tests.doubles.openai_double import Failure, OpenAIDouble, Refused, Reply, Scripted, pieces

UNSIGNED = ("skip_thought_signature_validator", "context_engineering_is_the_way_to_go")
RESULTS = (
    "Please ensure that the number of function response parts is equal to the number of function "
    "call parts of the function call turn."
)
FIELDS = {  # what each object may hold
    "": "contents tools toolConfig systemInstruction generationConfig safetySettings "
    "cachedContent labels",
    "content": "role parts",
    "part": "text thought thoughtSignature inlineData fileData functionCall functionResponse "
    "executableCode codeExecutionResult videoMetadata",
    "functionCall": "id name args",
    "functionResponse": "id name response parts willContinue scheduling",
    "function_declarations": "name description parameters parametersJsonSchema response behavior "
    "responseJsonSchema",
    "generation_config": "temperature topP topK maxOutputTokens stopSequences candidateCount seed "
    "thinkingConfig responseMimeType responseSchema responseJsonSchema presencePenalty "
    "frequencyPenalty responseModalities mediaResolution",
    "thinking_config": "thinkingBudget thinkingLevel includeThoughts",
}
DATA = FIELDS["part"].replace("thoughtSignature ", "").replace("thought ", "").split()[:-1]


class GoogleDouble(OpenAIDouble):
    def __init__(
        self, replies: Iterable[Scripted] = (), *, signs: bool = True, **settings: Any
    ) -> None:
        super().__init__(replies, **settings)
        self.signs = signs
        self.signatures: dict[str, str] = {}  # and the call that each was on

    base_path = ""

    def _check_head(self, first: str, headers: dict[str, str]) -> None:
        where = re.fullmatch(
            r"POST /v1(?:beta)?/models/([A-Za-z0-9._-]+):"
            r"(generateContent|streamGenerateContent\?alt=sse) HTTP/1.1",
            first,
        )
        if where is None:
            raise Refused("Requested entity was not found.", code="404 NOT_FOUND")
        self.model = where[1]
        if not headers.get("x-goog-api-key"):
            raise Refused(
                "Method doesn't allow unregistered callers (callers without established identity).",
                code="403 PERMISSION_DENIED",
            )

    def _check(self, body: dict[str, Any], headers: dict[str, str]) -> None:
        check(body, self.model, self.system, self.signatures if self.signs else None)

    def _refuse(self, refused: Refused) -> bytes:
        status, _, word = (refused.code or "400 INVALID_ARGUMENT").partition(" ")
        return self._fail(Failure(int(status), refused.message, code=word))

    def _fail(self, failure: Failure) -> bytes:
        word = failure.code or "UNAVAILABLE"
        error = {"code": failure.status, "message": failure.message, "status": word}
        return self._response(failure.status, {"error": error}, failure.headers)

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
                args = arguments  # no JSON at all: some servers pass on what the model wrote
            call = {"name": name, "args": args} | ({"id": call_id[0]} if call_id else {})
            parts.append({"functionCall": call})
        if self.signs and parts:
            signed = next((part for part in parts if "functionCall" in part), parts[-1])
            text = f"signature {len(self.requests)}"
            signature = signed["thoughtSignature"] = base64.b64encode(text.encode()).decode()
            self.signatures[signature] = _key(signed.get("functionCall"))
        return parts


def _flat(body: dict[str, Any]) -> list[Any]:
    return [
        (content.get("role"), part) for content in body["contents"] for part in content["parts"]
    ]


# ---- what the provider refuses


def check(
    body: dict[str, Any],
    model: str = "gemini-3-pro",
    system: str | None = None,
    signatures: dict[str, str] | None = None,
) -> None:
    """Refused: the provider would not take this request."""
    _check_fields(body, "", "")
    _check_fields(body.get("generationConfig", {}), "generation_config", "generation_config")
    config = body.get("generationConfig", {})
    at = "generation_config.thinking_config"
    _check_fields(config.get("thinkingConfig", {}), "thinking_config", at)
    if "responseJsonSchema" in config:
        if config.get("responseMimeType") != "application/json":
            raise Refused("response_json_schema needs response_mime_type 'application/json'.")
        _check_schema(config["responseJsonSchema"])
    found = None
    if "systemInstruction" in body:
        _check_fields(body["systemInstruction"], "content", "system_instruction")
        found = "".join(part["text"] for part in body["systemInstruction"]["parts"])
    if system is not None and found != system:
        raise Refused(f"expected the system prompt {system!r}, got {found!r}")
    contents = body.get("contents")
    if not isinstance(contents, list) or not contents:
        raise Refused("* GenerateContentRequest.contents: contents is not specified")
    _check_contents(contents, model, signatures)
    names = _check_tools(body)
    if any("functionCall" in part for _, part in _flat(body)) and not names:
        raise Refused("tools must be declared when the conversation holds function calls")


def _check_fields(value: Any, kind: str, at: str) -> None:
    if not isinstance(value, dict):
        raise Refused(f"Invalid value at '{at}': an object was expected.")
    for name, item in value.items():
        if name not in FIELDS[kind].split():
            where = f" at '{at}'" if at else ""
            raise Refused(
                f'Invalid JSON payload received. Unknown name "{name}"{where}: Cannot find field.'
            )
        if item is None:
            raise Refused(f"Invalid value at '{at}.{name}': null.")


def _check_tools(body: dict[str, Any]) -> list[str]:
    names: list[str] = []
    others = [tool for tool in body.get("tools", ()) if "functionDeclarations" not in tool]
    for at, tool in enumerate(body.get("tools", ())):
        for n, function in enumerate(tool.get("functionDeclarations", ())):
            where = f"tools[{at}].function_declarations[{n}]"
            function = {_camel(key): value for key, value in function.items()}
            _check_fields(function, "function_declarations", where)
            name = function.get("name")
            if not isinstance(name, str) or not re.fullmatch("[A-Za-z0-9_-]{1,64}", name):
                raise Refused(
                    f"* GenerateContentRequest.{where}.name: Invalid function name. Must start "
                    "with a letter or an underscore. Must be alphanumeric (a-z, A-Z, 0-9), "
                    "underscores (_), dots (.), colons (:), or dashes (-), with a maximum length "
                    "of 64."
                )
            if name in names:
                raise Refused(f"Duplicate function declaration found: {name}")
            if not isinstance(function.get("description"), str):
                raise Refused(f"* GenerateContentRequest.{where}.description: is required")
            if function.get("parametersJsonSchema", {}).get("type") != "object":
                raise Refused(f"* GenerateContentRequest.{where}: parameters must be an object")
            _check_schema(function["parametersJsonSchema"])
            names.append(name)
    if "tools" in body and not names and not others:
        raise Refused("* GenerateContentRequest.tools[0]: function_declarations is empty")
    if names and others and not body["toolConfig"].get("includeServerSideToolInvocations"):
        raise Refused(
            "Please enable tool_config.include_server_side_tool_invocations to use Built-in tools "
            "with Function calling."
        )
    if config := body.get("toolConfig", {}).get("functionCallingConfig"):
        if not names:
            raise Refused("Function calling config is set without function_declarations.")
        if config["mode"] not in ("AUTO", "ANY", "NONE"):
            raise Refused(f"Invalid value at 'mode': \"{config['mode']}\"")
        allowed = config.get("allowedFunctionNames", [])
        if allowed and config["mode"] != "ANY":
            raise Refused("Allowed function names are set but the mode is not ANY.")
        if not set(allowed) <= set(names):
            raise Refused(f"allowed_function_names holds undeclared functions: {allowed}")
    return names


def _camel(name: str) -> str:
    """Protocol buffers take both spellings of a field, and google-genai mixes them."""
    return re.sub("_([a-z])", lambda found: found[1].upper(), name)


def _check_schema(schema: Any) -> None:
    if isinstance(schema, list):
        for item in schema:
            _check_schema(item)
    if isinstance(schema, dict):
        if isinstance(schema.get("$ref"), str) and any(key[0] != "$" for key in schema):
            raise Refused("a schema with $ref set must not set any other property")
        for name in ("exclusiveMinimum", "exclusiveMaximum", "multipleOf", "discriminator"):
            if name in schema and "type" not in str(schema[name]):
                raise Refused(f'Unknown name "{name}": Cannot find field.')
        for value in schema.values():
            _check_schema(value)


def _check_contents(contents: list[Any], model: str, signatures: dict[str, str] | None) -> None:
    seen: set[str] = set()
    open_calls: list[dict[str, Any]] = []
    for n, content in enumerate(contents):
        at = f"contents[{n}]"
        _check_fields(content, "content", at)
        role, parts = content.get("role"), content.get("parts")
        if role not in ("user", "model"):
            raise Refused("Please use a valid role: user, model.")
        if n and contents[n - 1]["role"] == role:
            raise Refused("Please ensure that multiturn requests alternate between user and model.")
        if not isinstance(parts, list) or not parts:
            raise Refused(f"* GenerateContentRequest.{at}.parts: contents.parts must not be empty.")
        for p, part in enumerate(parts):
            _check_part(part, f"{at}.parts[{p}]", role)
        calls = [part["functionCall"] for part in parts if "functionCall" in part]
        results = [part["functionResponse"] for part in parts if "functionResponse" in part]
        if results and not open_calls:
            raise Refused(
                "Please ensure that function response turn comes immediately after a function "
                "call turn."
            )
        if len(results) != len(open_calls):
            raise Refused(RESULTS)
        for call, result in zip(open_calls, results, strict=True):
            if (call.get("id"), call["name"]) != (result.get("id"), result["name"]):
                raise Refused("function responses must come in the order of the calls")
            inside = result.get("parts", [])
            if inside and not re.match(r"gemini-([3-9]|\d\d)", model):
                raise Refused("Multimodal function response is not supported for this model.")
            for part in inside:
                _check_blob(part["inlineData"], at)
        if any("functionResponse" not in part for part in parts[: len(results)]):
            raise Refused("function responses must come first")
        if calls and not n:
            raise Refused(
                "Please ensure that function call turn comes immediately after a user turn or "
                "after a function response turn."
            )
        for call in calls:
            if not call.get("id") or call["id"] in seen:
                raise Refused(f"the id of a function call is empty or used before: {call}")
            seen.add(call["id"])
        if role == "model" and signatures is not None:
            _check_signatures(parts, n, signatures)
        open_calls = calls
    if contents[-1]["role"] != "user":
        raise Refused(
            "Please ensure that single turn requests end with a user role or the role field is "
            "empty."
        )


def _key(call: Any) -> str:
    return json.dumps([call["name"], call["args"]], sort_keys=True) if call else ""


def _check_signatures(parts: list[Any], n: int, signatures: dict[str, str]) -> None:
    first = next((part for part in parts if "functionCall" in part), {})
    for part in parts:
        signature = part.get("thoughtSignature", UNSIGNED[0])
        of_a_call = bool(signatures.get(signature))
        if signature not in (*UNSIGNED, *signatures) or (of_a_call and part is not first):
            raise Refused("Corrupted thought signature.")
    key, signature = _key(first.get("functionCall")), first.get("thoughtSignature")
    if first and (signature is None or (signature in UNSIGNED and key in signatures.values())):
        raise Refused(
            "Function call is missing a thought_signature in functionCall parts. This is "
            "required for tools to work correctly, and missing thought_signature may lead to "
            "degraded model performance. Additional data, function call "
            f"`default_api:{first['functionCall']['name']}`, position {n + 1}. Please refer to "
            "https://ai.google.dev/gemini-api/docs/thought-signatures for more details."
        )


def _check_part(part: Any, at: str, role: str) -> None:
    _check_fields(part, "part", at)
    kinds = [name for name in DATA if name in part]
    if len(kinds) != 1:
        raise Refused(
            f"* GenerateContentRequest.{at}.data: required oneof field 'data' must have one "
            "initialized field"
        )
    value = part[kinds[0]]
    if kinds[0] == "text" and not value and "thoughtSignature" not in part:
        raise Refused(
            "Unable to submit request because it has an empty text parameter. Add a value to the "
            "parameter and try again."
        )
    if kinds[0] in ("functionCall", "functionResponse"):
        _check_fields(value, kinds[0], f"{at}.{kinds[0]}")
        if role != ("model" if kinds[0] == "functionCall" else "user"):
            raise Refused(f"{kinds[0]} is not allowed for the role {role}. ({at})")
        if not re.fullmatch("[A-Za-z0-9_-]{1,64}", value.get("name") or ""):
            raise Refused(f"* GenerateContentRequest.{at}.name: Name cannot be empty or odd.")
        key = "args" if kinds[0] == "functionCall" else "response"
        if not isinstance(value.get(key), dict):
            raise Refused(f"Invalid value at '{at}.{key}' (type.googleapis.com/protobuf.Struct)")
    if kinds[0] == "inlineData":
        _check_blob(value, at)
    if kinds[0] == "fileData" and not value.get("fileUri"):
        raise Refused(f"* GenerateContentRequest.{at}.file_data.file_uri: is required")


def _check_blob(blob: Any, at: str) -> None:
    try:
        good = blob["mimeType"] and base64.b64decode(blob["data"], validate=True)
    except (KeyError, binascii.Error):
        good = None
    if not good:
        raise Refused(
            f"Invalid value at '{at}.inline_data.data' (TYPE_BYTES), Base64 decoding failed"
        )


# ---- replies


def _usage(reply: Reply) -> dict[str, Any]:
    """The script's usage; OpenAI's words for it are translated, so that scripts can be shared."""
    if reply.usage is None:
        return {}
    words = {
        "prompt_tokens": "promptTokenCount",
        "completion_tokens": "candidatesTokenCount",
        "total_tokens": "totalTokenCount",
    }
    return {"usageMetadata": {words.get(name, name): n for name, n in reply.usage.items()}}


def _chunk(parts: list[dict[str, Any]], **rest: Any) -> dict[str, Any]:
    return {"candidates": [{"content": {"role": "model", "parts": parts}, "index": 0, **rest}]}


def _finish(reply: Reply) -> str:
    words = {"length": "MAX_TOKENS", "content_filter": "SAFETY"}  # so that scripts can be shared
    return words.get(reply.finish or "", reply.finish) or ("SAFETY" if reply.refusal else "STOP")


def events(reply: Reply, parts: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """A reply as it is streamed."""
    chunks: list[dict[str, Any]] = []
    last: list[dict[str, Any]] = []
    for part in parts:
        if "text" not in part:
            chunks.append(_chunk([part]))
            continue
        if "thoughtSignature" in part:  # of a text it comes last, on an empty part
            last = [{"text": "", "thoughtSignature": part["thoughtSignature"]}]
        text, flag = part["text"], {"thought": True} if part.get("thought") else {}
        chunks += [_chunk([{"text": piece, **flag}]) for piece in pieces(text)]
    chunks.append(_chunk(last, finishReason=_finish(reply)))
    for count, chunk in enumerate(chunks):  # cumulative: only the last count is the whole
        chunk |= _usage(reply)
        if "usageMetadata" in chunk and count < len(chunks) - 1:
            chunk["usageMetadata"] |= {"candidatesTokenCount": 1}
    return chunks


def sse(*items: dict[str, Any]) -> bytes:
    """Events as Gemini streams them."""
    return "".join(f"data: {json.dumps(item)}\r\n\r\n" for item in items).encode()
