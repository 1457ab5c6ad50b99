"""HTTP transport: retries, errors, streams, limits, clients, and protection of secrets."""

import asyncio
import errno
import gc
import gzip
import json
import os
import re
import subprocess
import sys
import weakref
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from agentloop import Agent, ChatOpenAI, ModelError, errors
from agentloop.errors import BadRequest, ConnectionFailed
from agentloop.models import http
from agentloop.models.http import error_class
from agentloop.models.wire import EventParser, retry_after
from tests.doubles.fault_server import (
    FaultServer,
    Loopback,
    answer,
    chunk,
    fin,
    request,
    rst,
    send,
    stall,
    stream_head,
)
from tests.doubles.openai_double import OpenAIDouble
from tests.doubles.wires import KEY, OPENAI

from .helpers import ask, serving

model = OPENAI.model
OK = {"choices": [{"message": {"content": "hello"}, "finish_reason": "stop"}]}


def client_of(handler):
    return httpx.AsyncClient(transport=httpx.MockTransport(handler))


def output_of(program, *options):
    """Run a program that writes nothing to stderr, and return what it prints."""
    command = [sys.executable, *options, "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, timeout=50, check=False)
    assert done.stderr == ""
    return done.stdout


# ---- retries


async def test_backoff_doubles_up_to_a_minute_and_the_last_error_is_raised():
    async with serving(*[answer("down", 503)] * 9) as server:
        llm = model(server, max_retries=8)
        with pytest.raises(errors.Overloaded, match="down") as caught:
            await ask(llm)
    for wait, most in zip(llm.sleep, [1, 2, 4, 8, 16, 32, 60, 60], strict=True):
        assert most / 2 <= wait <= most
    assert caught.value.status == 503


async def test_a_negative_number_of_retries_is_none():
    async with serving(*[answer("down", 503)] * 2) as server:
        with pytest.raises(errors.Overloaded):
            await ask(model(server, max_retries=-1))
    assert len(server.requests) == 1


@pytest.mark.parametrize(
    ("headers", "body", "wait"),
    [
        ({"retry-after": "0.5"}, "", 0.5),
        ({"retry-after": "0"}, "", 0.0),
        ({"retry-after": "soon"}, "", None),
        ({"retry-after": "nan"}, "", None),
        ({"retry-after-ms": "1500", "retry-after": "9"}, "", 1.5),
        ({"retry-after-ms": "soon", "retry-after": "9"}, "", 9.0),
        ({"retry-after": "Wed, 21 Oct 2015 07:28:00 GMT"}, "", 0.0),  # in the past
        ({"retry-after": "Wed, 99 Oct 2015"}, "", None),
        ({}, "503 Service Unavailable", None),
        ({}, '{"error": {"details": [{"retryDelay": "37s"}]}}', 37.0),  # Google
        ({"retry-after": "2"}, '{"details": [{"retryDelay":"0.25s"}]}', 2.0),
    ],
)
def test_the_retry_delay_is_read_from_headers_or_body(headers, body, wait):
    assert retry_after(headers, body) == wait


@pytest.mark.parametrize(
    ("status", "advice", "requests"),
    [
        (429, "false", 1),
        (503, "false", 1),
        (503, "true", 2),
        (400, "true", 2),
        (400, "false", 1),
        (503, "perhaps", 2),
    ],
)
async def test_the_x_should_retry_header_is_respected(status, advice, requests):
    failure = answer("busy", status, {"x-should-retry": advice})
    async with serving(failure, answer(OK)) as server:
        llm = model(server, max_retries=3)
        if requests == 1:
            with pytest.raises(errors.ModelError):
                await ask(llm)
        else:
            assert (await ask(llm)).text == "hello"
        assert len(server.requests) == requests


@pytest.mark.parametrize(
    "error",
    [
        {"message": "Failed to call a function.", "code": "tool_use_failed"},  # Groq
        {"message": "Failed to generate tool_calls. Tool is not present in the tools list."},
        {"code": "tool_use_failed", "failed_generation": "<function=find>usage limit"},
    ],
)
async def test_a_malformed_call_that_the_server_reports_as_an_error_is_tried_again(error):
    body = {"error": error | {"type": "invalid_request_error"}}
    async with serving(answer(body, 400), answer(OK)) as server:
        assert (await ask(model(server, max_retries=1))).text == "hello"
        assert len(server.requests) == 2


# Google's, from https://github.com/voideditor/void/issues/557
VIOLATION = {"quotaId": "GenerateRequestsPerDayPerProjectPerModel-FreeTier", "quotaValue": "25"}
FAILURES = [{"violations": [VIOLATION]}, {"retryDelay": "5s"}]


@pytest.mark.parametrize(
    "error",
    [
        {"message": "no credit", "type": "insufficient_quota"},
        {"message": "no credit", "code": "credit_balance_exhausted"},
        {"message": "too much", "code": "organization_usage_limit_exceeded"},
        {"message": "Your account x is suspended", "type": "exceeded_current_quota_error"},  # Kimi
        "Your team x has either used all available credits or reached its monthly spending limit.",
        {"message": "Rate limit exceeded: free-models-per-day.", "code": 429},  # OpenRouter
        {"message": "you (x) have reached your session usage limit, upgrade for higher limits"},
        {"code": 429, "message": "You exceeded your quota. " * 30, "details": FAILURES},
    ],
)
async def test_an_exhausted_quota_is_not_retried(error):
    async with serving(answer({"error": error}, 429)) as server:
        with pytest.raises(errors.RateLimited):
            await ask(model(server))
        assert len(server.requests) == 1


# ---- addresses and connection failures


async def test_a_local_server_that_is_not_running_is_reported_at_once_with_a_remedy():
    async with FaultServer() as server:
        llm, port = model(server), server.port
    with pytest.raises(ConnectionFailed, match=f"127.0.0.1:{port}: no server.*start one"):
        await ask(llm)
    assert llm.sleep == []


@pytest.mark.parametrize(
    ("host", "message"),
    [
        ("models.invalid", "All connection attempts failed"),
        ("localhost", "[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed"),
    ],
)
async def test_a_request_to_an_unreachable_host_is_retried_and_the_error_names_the_host(
    host, message
):
    def refuse(request):
        raise httpx.ConnectError(f"{message} {request.headers['authorization']}")

    async with client_of(refuse) as client:
        llm = model(f"https://{host}/v1", client=client, max_retries=2)
        expected = f"{host}: ConnectError: {message} Bearer ***"  # the key is masked
        with pytest.raises(ConnectionFailed, match=re.escape(expected)):
            await ask(llm)
    assert len(llm.sleep) == 2


@pytest.mark.parametrize(
    "url",
    [
        *("127.0.0.1:8123/v1", "ftp://x", "http://", "u:secret@host/v1", "http://me:secret#1@h/v1"),
        *("http://h/v1#a", "http://h/v1\n", "http://h/a b"),
    ],
)
def test_an_invalid_address_is_rejected_at_construction(url):
    with pytest.raises(ValueError, match="must be an http") as caught:
        model(url)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("query", ["", "?api-version=2024-10-21"])
def test_the_address_of_an_endpoint_is_rejected_at_construction(query):
    with pytest.raises(ValueError, match="ends in '/chat/completions'"):
        model(f"https://h/openai/deployments/d/chat/completions{query}")


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("/v1/?api-version=2024-10-21", "/v1/chat/completions?api-version=2024-10-21"),
        ("/openai/deployments/d?a=b%20c&d", "/openai/deployments/d/chat/completions?a=b+c&d="),
        ("/v1///", "/v1/chat/completions"),
    ],
)
async def test_the_query_of_the_base_url_is_preserved(url, expected):
    def reply(request):
        path = request.url.raw_path.decode().replace("%20", "+")  # older versions of httpx
        assert path == expected
        return httpx.Response(200, json=OK)

    async with client_of(reply) as client:
        assert (await ask(model("http://host" + url, client=client))).text == "hello"


# ---- error classes


@pytest.mark.parametrize(
    ("status", "text", "kind"),
    [
        (400, "content_filter", errors.ContentRefused),
        (400, "triggering Azure OpenAI's content management policy", errors.ContentRefused),
        # Sources: https://help.aliyun.com/en/model-studio/error-code (Qwen's own servers),
        # https://github.com/langchain4j/langchain4j/issues/1079 (Z.AI)
        (400, '{"error":{"code":"data_inspection_failed"}}', errors.ContentRefused),
        (400, '{"error":{"code":"1301","message":"..."}}', errors.ContentRefused),
        # Sources: https://github.com/UKGovernmentBEIS/inspect_ai/pull/2267 (xAI),
        # https://openrouter.ai/docs/api/reference/errors-and-debugging,
        # https://github.com/666ghj/BettaFish/issues/108 (DeepSeek)
        (403, "Content violates usage guidelines.", errors.ContentRefused),
        (403, '{"metadata":{"reasons":["violence"],"flagged_input":"a"}}', errors.ContentRefused),
        (400, "Content Exists Risk", errors.ContentRefused),
        (400, "unknown parameter", BadRequest),
        (400, "INVALID_ARGUMENT API key not valid. Please", errors.AuthenticationFailed),
        (400, "API key expired. Please renew it.", errors.AuthenticationFailed),
        (400, "Incorrect API key provided: a***z", errors.AuthenticationFailed),
        (400, "the key 'api' is not valid", BadRequest),
        (408, "", ConnectionFailed),
        (413, "", errors.ContextWindowExceeded),
        (400, "Context size has been exceeded.", errors.ContextWindowExceeded),
        (500, "Context size has been exceeded.", errors.ContextWindowExceeded),
        (503, "", errors.Overloaded),
        (529, "", errors.Overloaded),
        (500, "", errors.ServerError),
    ],
)
def test_each_status_maps_to_an_error_class(status, text, kind):
    assert error_class(status, text) is kind


@pytest.mark.parametrize(
    "text",
    [
        "context_length_exceeded",
        "This model's maximum context length is 8192 tokens. However, you requested 9000",
        "prompt is too long: 210000 tokens > 200000 maximum",
        "Your input exceeds the context window of this model",
        "The input token count (1200000) exceeds the maximum number of tokens allowed",
        "input length and `max_tokens` exceed context limit: 190000 + 20000 > 200000",
        "This model's maximum prompt length is 131072 but the request contains 140000 tokens",
        "the request exceeds the available context size, try increasing it",
        "Please reduce the length of the messages or completion.",
        "Error: context length exceeded",
        "The total length of all messages is too long",  # Perplexity
        "The prompt (9000 tokens) is longer than the model's context length of 8192",
        "The decoder prompt (length 10127) is longer than the maximum model length of 8192",
        # Source: https://github.com/anomalyco/opencode/issues/11141 (LM Studio)
        "Cannot truncate prompt with n_keep (15028) >= n_ctx (7424)",
        # Source: https://github.com/anomalyco/opencode/pull/45834 (Qwen's own servers)
        "InternalError.Algo.InvalidParameter: Range of input length should be [1, 98304]",
        # Source: https://github.com/MoonshotAI/kimi-code/pull/207 (Kimi)
        "Your request exceeded model token limit: 131072 (requested: 140000)",
        # Sources: https://github.com/earendil-works/pi/issues/8991,
        # https://github.com/NousResearch/hermes-agent/pull/61725 (Z.AI)
        "Prompt exceeds max length",
        "tokens in request more than max tokens allowed",
        # Source: https://github.com/NVIDIA-NeMo/Switchyard/pull/426 (SGLang)
        "Input length (700001 tokens) exceeds the maximum allowed length (536826 tokens).",
        # Source: packages/ai/src/utils/overflow.ts of earendil-works/pi (MiniMax, Poolside)
        "invalid params, context window exceeds limit",
        "Input length 200000 exceeds the maximum allowed input length of 131072 tokens.",
        # Source: https://github.com/BerriAI/litellm/pull/37862 (Bedrock)
        "prompt tokens (400007) exceed model maximum (278528) for openai.gpt-5.5",
        # Sources: https://github.com/web-infra-dev/midscene/issues/315,
        # https://github.com/deepset-ai/haystack/issues/8188 (Hugging Face)
        "`inputs` tokens + `max_new_tokens` must be <= 32768. Given: 82004 `inputs` tokens",
        "`inputs` must have less than 4095 tokens. Given: 4701",
        # Source: https://github.com/cohere-ai/sandbox-topically/issues/4 (Cohere)
        "too many tokens: total number of tokens (prompt and prediction) cannot exceed 2048",
    ],
)
def test_a_context_overflow_is_recognized_in_every_wording(text):
    assert error_class(400, text) is errors.ContextWindowExceeded


def test_a_throttled_request_in_a_stream_is_not_taken_for_a_context_overflow():
    # Source: https://github.com/RooCodeInc/Roo-Code/issues/5050 (Bedrock)
    text = "Too many tokens, please wait before trying again."
    assert error_class("ThrottlingException", text) is errors.ServerError


@pytest.mark.parametrize(
    "body",
    [
        {"error": {"message": "why"}},
        {"error": "why"},
        [{"error": {"message": "why"}}],
        {"detail": [{"msg": "why"}]},
        "why",
    ],
)
async def test_error_bodies_of_any_format_are_included_in_the_error(body):
    async with serving(answer(body, 400)) as server:
        with pytest.raises(BadRequest, match=r": 400: ([\[{].*)?why"):
            await ask(model(server))


async def test_a_body_may_begin_with_a_byte_order_mark():
    async with serving(answer(b"\xef\xbb\xbf" + json.dumps(OK).encode())) as server:
        assert (await ask(model(server))).text == "hello"


# ---- server-sent events


def events(*pieces):
    parser = EventParser()
    return [event for piece in pieces for event in parser.feed(piece)]


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"data: a\n\n", [b"a"]),
        (b"data:a\r\n\r\n", [b"a"]),
        (b"data: {\rdata: }\r\rdata: b\r\r\n", [b"{}", b"b"]),
        (b"data: {\r\ndata: }\r\n\r\n", [b"{}"]),
        (b"\xef\xbb\xbfdata: a\n\ndata: b\n\n", [b"a", b"b"]),
        (b"data: {\ndata: }\n\n", [b"{}"]),
        (b": OPENROUTER PROCESSING\n\nevent: ping\ndata: {}\n\n", [b"{}"]),
        (b"id: 1\nretry: 5\ndata: a\n\n", [b"a"]),
        ("data: a\u2028b\u0085c\x0b漢字\n\n".encode(), ["a\u2028b\u0085c\x0b漢字".encode()]),
        (b"data: unfinished\n", []),
        (b'error: {"error": {}}\n\n', [b'{"error": {}}']),  # GPUStack
    ],
)
def test_events_are_parsed_for_any_split_of_the_bytes(data, expected):
    assert events(data) == expected
    assert events(*[data[i : i + 1] for i in range(len(data))]) == expected


def test_a_long_line_in_many_chunks_is_not_copied_repeatedly():
    parser, copied = EventParser(), 0

    class Piece(bytes):
        """Counts the bytes of every copy that the parser makes by concatenation."""

        def __radd__(self, line):
            nonlocal copied
            copied += len(line)
            return bytes(line) + bytes(self)

    assert [*parser.feed(b"data: ")] == []
    for _ in range(1000):
        assert [*parser.feed(Piece(b"x" * 100))] == []
    assert [*parser.feed(b"\n\n")] == [b"x" * 100_000]
    assert copied < 1_000_000


# ---- clients


def test_a_model_works_in_successive_event_loops_without_keeping_references():
    async def main():
        assert (await ask(llm)).text == "a"
        assert (await ask(llm, streaming=True)).text == "a"
        return weakref.ref(asyncio.get_running_loop())

    with OpenAIDouble(["a"] * 6).in_thread() as server:
        llm = model(server)
        loops = [asyncio.run(main()) for _ in range(3)]
        gc.collect()  # with -W error, an unclosed connection would raise an error here
    assert [loop() for loop in loops] == [None] * 3


def test_a_model_works_in_several_threads_concurrently():
    async def several():
        return await asyncio.gather(*[ask(llm) for _ in range(5)])

    with OpenAIDouble(["a"] * 40).in_thread() as server:
        llm = model(server)
        with ThreadPoolExecutor(8) as threads:
            runs = [threads.submit(asyncio.run, several()) for _ in range(8)]
        replies = [reply.text for run in runs for reply in run.result()]
    assert replies == ["a"] * 40


def test_a_model_that_is_not_closed_causes_no_warnings():
    program = """if True:
        import asyncio, sys
        sys.path.insert(0, ".")
        from tests.doubles.wires import OPENAI
        from tests.library.models.helpers import ask

        async def main():
            for _ in range(3):
                await ask(OPENAI.model(server))

        with OPENAI.double(["a"] * 6).in_thread() as server:
            asyncio.run(main())
            llm = OPENAI.model(server)
            asyncio.run(ask(llm))
        print("fine")
    """
    assert output_of(program, "-W", "error") == "fine\n"


@pytest.mark.parametrize(
    ("status", "kind", "requests"), [(400, BadRequest, 1), (503, errors.Overloaded, 2)]
)
async def test_a_client_hook_that_raises_for_the_status_results_in_a_model_error(
    status, kind, requests
):
    async def check(response):
        response.raise_for_status()

    client = httpx.AsyncClient(trust_env=False, event_hooks={"response": [check]})
    async with serving(*[answer("no", status)] * 2) as server, client:
        with pytest.raises(kind, match=str(status)) as caught:
            await ask(model(server, client=client, max_retries=1))
        assert (caught.value.status, len(server.requests)) == (status, requests)


def test_an_own_client_in_a_second_event_loop_is_an_error_that_says_so():
    program = """if True:
        import asyncio, httpx, sys
        sys.path.insert(0, ".")
        from agentloop.errors import ConnectionFailed
        from tests.doubles.wires import OPENAI
        from tests.library.models.helpers import ask

        with OPENAI.double(["a"] * 3).in_thread() as server:
            llm = OPENAI.model(server, client=httpx.AsyncClient(trust_env=False))
            asyncio.run(ask(llm))
            try:
                asyncio.run(ask(llm))
            except ConnectionFailed as error:
                print(error, llm.sleep)
    """
    assert re.match(r"client: .*in one event loop.* \[\]", output_of(program))


async def test_a_closed_client_is_an_error_that_says_so():
    client = client_of(lambda _: httpx.Response(200, json=OK))
    await client.aclose()
    llm = model("http://host/v1", client=client)
    with pytest.raises(ConnectionFailed, match="client.*closed"):
        await ask(llm)
    assert llm.sleep == []


def test_a_client_of_httpx2_works_under_the_name_of_httpx():
    pytest.importorskip("httpx2")
    program = """if True:
        import asyncio, httpx2, sys
        httpx2.alias_httpx()
        sys.path.insert(0, ".")
        from tests.doubles.wires import OPENAI
        from tests.library.models.helpers import ask

        async def main(server):
            async with httpx2.AsyncClient(trust_env=False) as own:
                for client in (None, own):
                    for streaming in (False, True):
                        print((await ask(OPENAI.model(server, client=client), streaming)).text)

        with OPENAI.double(["a"] * 4).in_thread() as server:
            asyncio.run(main(server))
    """
    assert output_of(program).split() == ["a"] * 4


@pytest.mark.parametrize("name", ["httpx.Client", "httpx2.AsyncClient"])
def test_a_client_of_another_type_is_an_error_that_names_both_types(name):
    package, _, kind = name.partition(".")
    client = getattr(pytest.importorskip(package), kind)()
    with pytest.raises(TypeError, match=rf"httpx\.AsyncClient.*{name}") as caught:
        model("http://x", client=client)
    assert ("alias_httpx" in str(caught.value)) == (package == "httpx2")


async def test_an_unrequested_compressed_response_is_decoded_within_the_size_limit(streaming):
    content = b"".join(OPENAI.frames()) if streaming else json.dumps(OK).encode()
    kind = "text/event-stream" if streaming else "application/json"
    reply, bomb = (
        answer(gzip.compress(data), headers={"content-encoding": "gzip"}, kind=kind)
        for data in (content, b" " * 10**7)
    )
    async with FaultServer([send(reply), fin()], [send(bomb), fin()]) as server:
        assert (await ask(model(server), streaming)).text == "hello"
        with pytest.raises(errors.BadResponse, match="max_response_bytes=1000"):
            await ask(model(server, max_response_bytes=1000, max_retries=0), streaming)


def test_only_the_beginning_of_an_error_is_searched_for_its_class():
    text = "This exceeds the context window."
    assert error_class(400, text + "x" * 20_000) is errors.ContextWindowExceeded
    assert error_class(400, "x" * 20_000 + text) is errors.BadRequest


@pytest.mark.parametrize("encoding", ["gzip, gzip", "br", "zstd", "BR"])
async def test_a_response_that_could_grow_beyond_any_limit_is_not_decoded(encoding):
    bomb = gzip.compress(gzip.compress(b" " * 10**7))
    async with FaultServer(
        [send(answer(bomb, headers={"content-encoding": encoding})), fin()]
    ) as s:
        with pytest.raises(errors.BadResponse, match=f"compressed as '{encoding}'"):
            await ask(model(s, max_retries=0))


@pytest.mark.parametrize("own", [False, True])
async def test_transport_instrumentation_covers_every_request_and_own_clients_stay_open(
    own, monkeypatch
):
    send_it = httpx.AsyncHTTPTransport.handle_async_request

    async def traced(self, request):
        request.headers["traceparent"] = "t-1"
        return await send_it(self, request)

    monkeypatch.setattr(httpx.AsyncHTTPTransport, "handle_async_request", traced)
    async with OpenAIDouble(["a", "b"]) as server, httpx.AsyncClient(trust_env=False) as client:
        async with model(server, client=client if own else None) as llm:
            assert (await ask(llm)).text == "a"
        assert (await ask(llm, streaming=True)).text == "b"
    assert [headers["traceparent"] for headers in server.headers] == ["t-1"] * 2


@pytest.mark.parametrize("scheme", ["http://", ""])
async def test_environment_proxies_are_used_except_for_loopback_and_no_proxy(scheme, monkeypatch):
    answer = send(b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n")
    async with FaultServer([answer], [answer]) as proxy, OpenAIDouble(["a"]) as server:
        for name, value in (("HTTP", f"{scheme}127.0.0.1:{proxy.port}"), ("NO", "127.0.0.2:9")):
            monkeypatch.setenv(f"{name}_PROXY", value)
            monkeypatch.setenv(f"{name}_PROXY".lower(), value)
        llm = model("http://models.invalid/v1", max_retries=0)
        with pytest.raises(BadRequest):
            await ask(llm)
        llm.base_url = server.base_url  # the address may be changed after construction
        assert (await ask(llm)).text == "a"
        llm.base_url = "http://127.0.0.2:9"
        with pytest.raises(ConnectionFailed):
            await ask(llm)


def proxies_of(monkeypatch, **values):
    for name, value in values.items():
        monkeypatch.setenv(name, value)
        monkeypatch.setenv(name.lower(), value)


@pytest.mark.parametrize(
    ("host", "uses_proxy"),
    [("127.0.0.2", False), ("127.1.0.2", True), ("[::5]", False), ("models.invalid", True)],
)
async def test_no_proxy_may_name_networks(host, uses_proxy, monkeypatch):
    async with FaultServer([send(answer("by proxy", 400))]) as proxy:
        no_proxy = "models.internal, 127.0.0.0/24,::/96,10.0.0.0/x"
        proxies_of(monkeypatch, HTTP_PROXY=f"http://127.0.0.1:{proxy.port}", NO_PROXY=no_proxy)
        with pytest.raises(BadRequest if uses_proxy else ConnectionFailed):
            await ask(model(f"http://{host}:9/v1", max_retries=0))


@pytest.mark.parametrize(
    ("proxy", "remedy"),
    [
        ("socks5://127.0.0.1:9", "socksio.*pip install"),
        ("socks4://127.0.0.1:9", "ALL_PROXY"),
        ("'http://127.0.0.1:9'", "ALL_PROXY.*'http"),  # quoted, as `docker run --env-file` keeps it
    ],
)
async def test_a_proxy_that_cannot_be_used_is_an_error_that_says_why(proxy, remedy, monkeypatch):
    monkeypatch.setitem(sys.modules, "socksio", None)  # not installed
    proxies_of(monkeypatch, ALL_PROXY=proxy.replace("//", "//me:secret@"))
    llm = model("http://models.invalid/v1")
    with pytest.raises(ConnectionFailed, match=remedy) as caught:
        await ask(llm)
    assert ("secret" in str(caught.value), llm.sleep) == (False, [])


async def test_an_error_names_the_proxy_that_it_came_from(monkeypatch):
    proxies_of(monkeypatch, ALL_PROXY="http://me:secret@127.0.0.1:9")
    with pytest.raises(ConnectionFailed, match="models.invalid .*ALL_PROXY") as caught:
        await ask(model("http://models.invalid/v1", max_retries=0))
    assert "secret" not in str(caught.value)
    proxies_of(monkeypatch, ALL_PROXY="", HTTP_PROXY="")
    with pytest.raises(ConnectionFailed) as caught:
        await ask(model("http://0.0.0.0:9/v1", max_retries=0))
    assert "proxy" not in str(caught.value)


def test_certificates_that_cannot_be_read_are_an_error_that_names_the_variable(
    monkeypatch, tmp_path
):
    file = tmp_path / "empty.pem"  # httpx before 0.28 ignores a file that's missing
    file.touch()
    monkeypatch.setenv("SSL_CERT_FILE", str(file))
    program = """if True:
        import asyncio
        from agentloop import ChatOpenAI, ModelError
        llm = ChatOpenAI("m", base_url="https://127.0.0.1:9/v1")
        try:
            asyncio.run(llm.ainvoke([]))
        except ModelError as error:
            print(error)
    """
    assert "SSL_CERT_FILE" in output_of(program)


async def test_closing_connections_does_not_affect_requests_to_another_server():
    async with OpenAIDouble(["a"]) as first, OpenAIDouble(["b"]) as second:
        llm = model(first)
        await ask(llm)
        _, reply = await asyncio.gather(llm.aclose(), ask(model(second)))
    assert reply.text == "b"


async def test_credentials_in_the_address_are_sent_and_not_logged(caplog):
    caplog.set_level("DEBUG")
    async with serving(*[answer(OK)] * 4) as server, httpx.AsyncClient(auth=("a", "b")) as own:
        for user, client in (
            ("me:secret@", None),
            (":secret@", None),
            ("me:secret@", own),
            ("", None),
        ):
            await ask(model(server.url.replace("//", "//" + user), client=client))
    sent = [headers["authorization"] for headers, _ in server.requests]
    assert sent[:3] == ["Basic bWU6c2VjcmV0", "Basic OnNlY3JldA==", "Basic YTpi"]
    assert sent[3] == f"Bearer {KEY}"
    assert "POST" in caplog.text
    assert "secret" not in caplog.text


# ---- concurrency


class CountingServer(Loopback):
    """Answers requests while `go` is set; `open` is the number of open connections."""

    def __init__(self):
        super().__init__()
        self.open, self.go, self.changed = 0, asyncio.Event(), asyncio.Event()
        self.go.set()

    async def talk(self, connection):
        self.count(1)
        try:
            while True:
                await connection.read()
                await self.go.wait()
                await connection.write(answer(OK))
        finally:
            self.count(-1)

    def count(self, more):
        self.open += more
        self.changed.set()

    async def has(self, count):
        """Wait until at most `count` connections are open."""
        async with asyncio.timeout(5):
            while self.open > count:
                self.changed.clear()
                await self.changed.wait()


async def test_cancelled_requests_leave_no_open_connections():
    async with CountingServer() as server, model(server, max_retries=0) as llm:
        await ask(llm)
        server.go.clear()
        for steps in range(120):
            tasks = [asyncio.create_task(ask(llm)) for _ in range(3)]
            for _ in range(steps % 30):
                await asyncio.sleep(0)
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
        server.go.set()
        await server.has(0)
        assert (await ask(llm)).text == "hello"


class HalfServer(CountingServer):
    """Sends the beginning of each response."""

    async def talk(self, connection):
        self.count(1)
        try:
            await connection.read()
            await connection.write(stream_head() + chunk(b": ping\n\n"))
            await connection.read()
        finally:
            self.count(-1)


async def test_requests_that_are_cancelled_twice_leave_no_open_connections():
    async with HalfServer() as server, model(server, max_retries=0) as llm:
        for steps in range(40):
            task = asyncio.create_task(ask(llm, streaming=True))
            for count in (20 + steps, steps % 4):
                for _ in range(count):
                    await asyncio.sleep(0)
                task.cancel()
            await asyncio.wait([task])
        await server.has(0)


async def test_idle_connections_are_reused_and_closed_after_the_keep_alive_time(monkeypatch):
    async with CountingServer() as server, model(server, max_retries=0) as llm:
        for _ in range(5):
            await asyncio.gather(*[ask(llm) for _ in range(100)])
        assert server.connections <= 110, "one connection per concurrent request"
        monkeypatch.setattr(http, "KEEP_ALIVE", 0.01)
        await asyncio.gather(*[ask(llm) for _ in range(100)])
        await server.has(0)
        assert (await ask(llm)).text == "hello"


async def test_the_keep_alive_time_starts_again_with_each_request(monkeypatch):
    async with CountingServer() as server, model(server, max_retries=0) as llm:
        await ask(llm)
        for seconds in (0.2, 60):
            monkeypatch.setattr(http, "KEEP_ALIVE", seconds)
            await ask(llm)
        await asyncio.sleep(0.3)
        await ask(llm)
        assert server.connections == 1


async def test_the_connections_of_a_model_are_closed_at_the_end_of_its_block():
    async with CountingServer() as server:
        async with model(server) as llm:
            await ask(llm)
            assert server.open == 1
        await server.has(0)


@pytest.mark.parametrize("end", [fin(), rst()])
async def test_a_reused_connection_that_breaks_before_the_response_is_replaced_at_once(end):
    first = [send(answer(OK)), request(), end]
    async with FaultServer(first, [send(answer(OK))]) as server:
        llm = model(server, max_retries=0)
        await ask(llm)
        assert (await ask(llm)).text == "hello"
        assert (llm.sleep, len(server.requests), server.connections) == ([], 3, 2)


async def test_a_broken_connection_is_replaced_only_once():
    first = [send(answer(OK)), request(), fin()]
    async with FaultServer(first, [fin()], [send(answer(OK))]) as server:
        llm = model(server, max_retries=0)
        await ask(llm)
        with pytest.raises(ConnectionFailed):
            await ask(llm)
        assert server.connections == 2


async def test_a_request_is_not_repeated_after_a_partial_response():
    first = [send(answer(OK)), request(), send(answer(OK)[:-2]), fin()]
    async with FaultServer(first, [send(answer(OK))]) as server:
        llm = model(server, max_retries=0)
        await ask(llm)
        with pytest.raises(ConnectionFailed):
            await ask(llm)
        assert server.connections == 1


async def test_concurrent_connects_are_limited_during_a_burst(monkeypatch):
    monkeypatch.setattr(http, "MAX_CONCURRENT_CONNECTS", 2)
    connecting, most = 0, 0
    connect = asyncio.BaseEventLoop.create_connection

    async def counted(*args, **settings):
        nonlocal connecting, most
        connecting += 1
        most = max(most, connecting)
        try:
            return await connect(*args, **settings)
        finally:
            connecting -= 1

    monkeypatch.setattr(asyncio.BaseEventLoop, "create_connection", counted)
    async with CountingServer() as server, model(server, max_retries=0) as llm:
        replies = await asyncio.gather(*[ask(llm) for _ in range(50)])
    assert [reply.text for reply in replies] == ["hello"] * 50
    assert most == 2


async def test_too_many_open_files_are_not_reported_as_a_missing_server(monkeypatch):
    async def full(*args, **settings):
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    monkeypatch.setattr(asyncio.BaseEventLoop, "create_connection", full)
    with pytest.raises(ConnectionFailed, match=os.strerror(errno.EMFILE)) as caught:
        await ask(model("http://127.0.0.1:9/v1", max_retries=0))
    assert "no server" not in str(caught.value)


def test_a_refused_connection_is_recognized_for_a_name_with_several_addresses():
    several = ExceptionGroup("", [ConnectionRefusedError(errno.ECONNREFUSED, "refused")] * 2)
    error = httpx.ConnectError("All connection attempts failed")
    error.__cause__ = OSError("All connection attempts failed")
    error.__cause__.__cause__ = several
    assert isinstance(http.cause_of(error), ConnectionRefusedError)


@pytest.mark.parametrize("count", [200, pytest.param(1000, marks=pytest.mark.slow)])
async def test_many_concurrent_agents_on_one_model_are_neither_rejected_nor_serialized(count):
    resource = pytest.importorskip("resource")  # to raise the limit of open sockets
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < 3 * count and hard != resource.RLIM_INFINITY:
        pytest.skip(f"the limit of open files is {hard}")
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    all_requests_arrived = asyncio.Barrier(count)  # no request is answered before all have arrived
    script = [lambda _: all_requests_arrived.wait(), send(answer(OK)), fin()]
    try:
        async with FaultServer(*[script] * count) as server, model(server, max_retries=0) as llm:
            agent = Agent(llm=llm)
            queries = [agent.fork().query("go") for _ in range(count)]
            assert await asyncio.gather(*queries) == ["hello"] * count
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


async def test_a_timeout_while_waiting_for_a_connection_raises_model_error():
    own = httpx.AsyncClient(limits=httpx.Limits(max_connections=1))
    bounds = {"connect_timeout": 0.2, "read_timeout": 0.2, "timeout": None, "max_retries": 0}
    async with FaultServer([send(stream_head()), stall()]) as server, own:
        llm = ChatOpenAI("m", base_url=server.url, client=own, **bounds)
        async with own.stream("POST", server.url):  # takes the only connection
            with pytest.raises(ModelError, match="max_connections"):
                await asyncio.wait_for(llm.ainvoke([]), 5)
