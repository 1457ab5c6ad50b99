"""What happens on the wire: retries, errors, streams, limits, clients, and what nobody may see."""

from __future__ import annotations

import asyncio
import gc
import json
import random
import subprocess
import sys
import threading
from email.utils import formatdate
from typing import Any

import httpx
import pytest

from agentloop import errors
from agentloop.errors import BadRequest, BadResponse, ConnectionFailed, ModelError
from agentloop.messages import AssistantMessage, UserMessage
from agentloop.models import clients, http
from agentloop.models.http import (
    EventParser,
    SentEvent,
    error_class,
    loaded,
    retry_after,
    status_of,
)
from agentloop.models.openai import ChatOpenAI
from tests.doubles.fault_server import (
    Connection,
    FaultServer,
    answer,
    chunk,
    fin,
    send,
    sse,
    stall,
    stream,
    stream_head,
    wait,
)
from tests.doubles.openai_double import OpenAIDouble

KEY = "sk-secret-4711"
HI = [UserMessage("hi")]
OK = {"choices": [{"message": {"content": "hello"}, "finish_reason": "stop"}]}


def delta(text: str, finish: str | None = None) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": {"content": text}, "finish_reason": finish}]}


STREAM = [delta("hel"), delta("lo"), delta("", "stop")]


@pytest.fixture(autouse=True)
def _clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL", "HTTP_PROXY", "http_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)


class Naps(list[float]):
    """Stands in for sleep, and remembers."""

    async def __call__(self, seconds: float) -> None:
        self.append(seconds)


def model(url: str, **settings: Any) -> ChatOpenAI:
    settings = {"sleep": Naps(), "jitter": lambda: 1.0, "api_key": KEY, **settings}
    return ChatOpenAI("m", base_url=url, **settings)


async def ask(llm: ChatOpenAI, streaming: bool = False) -> AssistantMessage:
    return await llm.ainvoke(HI, on_delta=(lambda _: None) if streaming else None)


# ---- retries


async def test_an_empty_account_is_not_asked_again() -> None:
    body = {"error": {"message": "no credit", "type": "insufficient_quota"}}
    async with FaultServer([send(answer(body, 429))]) as server:
        with pytest.raises(errors.RateLimited):
            await ask(model(server.url))
        assert len(server.requests) == 1


async def test_backoff_doubles_up_to_a_minute_and_the_last_error_is_the_plain_one() -> None:
    async with FaultServer(*[[send(answer("down", 503))]] * 9) as server:
        llm = model(server.url, max_retries=8)
        with pytest.raises(errors.Overloaded, match="down") as caught:
            await ask(llm)
        assert llm.sleep == [1, 2, 4, 8, 16, 32, 60, 60]
        assert caught.value.status == 503


async def test_jitter_shortens_a_wait_by_at_most_half() -> None:
    async with FaultServer([send(answer("", 500))], [send(answer(OK))]) as server:
        llm = model(server.url, jitter=lambda: 0.0)
        await ask(llm)
        assert llm.sleep == [0.5]


async def test_five_attempts_are_the_default_and_no_retries_means_one() -> None:
    for settings, sent in (({}, 5), ({"max_retries": 0}, 1)):
        async with FaultServer(*[[send(answer("down", 500))]] * 5) as server:
            with pytest.raises(errors.ServerError, match="500: down"):
                await ask(model(server.url, **settings))
            assert len(server.requests) == sent


NOW = 1_000_000_000.0


@pytest.mark.parametrize(
    ("headers", "wait"),
    [
        ({"retry-after-ms": "1500", "retry-after": "9"}, 1.5),
        ({"retry-after-ms": "soon", "retry-after": "9"}, 9.0),
        ({"retry-after": "0.5"}, 0.5),
        ({"retry-after": formatdate(NOW + 10, usegmt=True)}, 10.0),
        ({"retry-after": formatdate(NOW + 10)}, 10.0),  # -0000
        ({"retry-after": formatdate(NOW - 10, usegmt=True)}, None),
        ({"retry-after": "soon"}, None),
        ({"retry-after": ""}, None),
        ({"retry-after": "0"}, None),
        ({"retry-after": "-5"}, None),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "inf"}, None),
        ({"retry-after": "1e999"}, None),
        ({"retry-after": "Mon, 99 Foo 0000 99:99:99 +9999"}, None),
        ({"retry-after": "Mon, 01 Jan 0000 00:00:00 GMT"}, None),
        ({"retry-after": "Mon, 01 Jan 99999 00:00:00 GMT"}, None),
        ({}, None),
    ],
)
def test_retry_after_in_every_spelling(headers: dict[str, str], wait: float | None) -> None:
    assert retry_after(headers, NOW) == wait


@pytest.mark.parametrize(
    ("body", "wait"),
    [
        ({"error": {"details": [{"@type": "RetryInfo", "retryDelay": "37s"}]}}, 37.0),
        ([{"error": {"details": [{}, {"retryDelay": "0.25s"}]}}], 0.25),
        ({"error": {"details": [{"retryDelay": "0s"}]}}, None),
        ({"error": {"details": [{"retryDelay": "soon"}]}}, None),
        ({"error": {"message": '"retryDelay": "37s"'}}, None),  # said, but not meant
    ],
)
def test_retry_after_in_the_body(body: Any, wait: float | None) -> None:
    assert retry_after({}, NOW, json.dumps(body)) == wait
    assert retry_after({"retry-after": "2"}, NOW, json.dumps(body)) == 2.0


async def test_our_own_mistakes_are_neither_retried_nor_wrapped() -> None:
    class Broken(ChatOpenAI):
        def read(self, data: dict[str, Any]) -> AssistantMessage:
            raise TypeError("a bug")

    async with FaultServer([send(answer(OK))]) as server:
        llm = Broken("m", base_url=server.url, sleep=Naps())
        with pytest.raises(TypeError, match="a bug"):
            await ask(llm)
        assert len(server.requests) == 1


async def test_an_exception_of_the_listener_comes_out_as_it_is() -> None:
    def listen(event: object) -> None:
        raise ZeroDivisionError

    async with FaultServer([send(stream(*STREAM))]) as server:
        with pytest.raises(ZeroDivisionError):
            await model(server.url).ainvoke(HI, on_delta=listen)
        assert len(server.requests) == 1


# ---- connections that break


async def test_nobody_listening_is_a_connection_failure_that_names_the_host() -> None:
    async with FaultServer() as server:
        port = server.port
    llm = model(f"http://127.0.0.1:{port}/v1", max_retries=2)
    with pytest.raises(ConnectionFailed, match=f"127.0.0.1:{port}"):
        await ask(llm)
    assert llm.sleep == [1, 2]


@pytest.mark.parametrize(
    "url", ["127.0.0.1:8123/v1", "localhost", "ftp://x", "http://", "u:secret@host/v1"]
)
def test_an_address_that_is_none_is_refused_at_once(url: str) -> None:
    with pytest.raises(ValueError, match="needs http:// or https://") as caught:
        model(url)
    assert "secret" not in str(caught.value)


def test_an_address_may_be_none_and_is_text_afterwards() -> None:
    url: str | None = None
    llm = ChatOpenAI("m", base_url=url, api_key=KEY)
    assert llm.base_url == "https://api.openai.com/v1"
    llm.base_url = "http://elsewhere"
    assert llm.base_url == "http://elsewhere"


async def test_a_server_that_talks_on_after_the_end_does_not_hold_us_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def drip(connection: Any) -> None:
        while True:
            connection.writer.write(chunk(b": ping\n\n"))
            await connection.writer.drain()
            await asyncio.sleep(0.001)

    monkeypatch.setattr(http, "LINGER", 0.02)
    async with FaultServer([send(stream_head() + chunk(sse(*STREAM))), drip]) as server:
        assert (await ask(model(server.url), streaming=True)).text == "hello"


# ---- clocks


async def test_the_total_time_includes_the_waits() -> None:
    async with FaultServer(*[[send(answer("", 500))]] * 2) as server:
        with pytest.raises(ConnectionFailed, match="no whole answer"):
            await ask(model(server.url, timeout=0.05, sleep=asyncio.sleep))


async def test_a_cancelled_request_is_cancelled_and_gives_up_its_client() -> None:
    async with FaultServer([send(stream_head()), stall()], [send(answer(OK))]) as server:
        llm = model(server.url)
        task = asyncio.create_task(ask(llm, streaming=True))
        while not server.requests:
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        [pool] = llm._clients._pools.values()
        assert pool.users == {}
        await ask(llm)
        assert list(pool.users.values()) == [0]


async def test_a_cancelled_request_leaves_another_one_its_client(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(clients, "MAX_CLIENTS", 1)
    go_on = asyncio.Event()
    slow = [wait(go_on), send(answer(OK))]
    async with FaultServer(slow, slow) as server:
        llm = model(server.url)
        kept, dropped = (asyncio.create_task(ask(llm)) for _ in range(2))
        while len(server.requests) < 2:
            await asyncio.sleep(0)
        dropped.cancel()
        with pytest.raises(asyncio.CancelledError):
            await dropped
        go_on.set()
        assert (await kept).text == "hello"


# ---- answers that are no answers


async def test_a_redirect_is_not_followed() -> None:
    async with FaultServer([send(answer("", 302, {"location": "http://other/"}))]) as server:
        with pytest.raises(BadResponse):
            await ask(model(server.url))
        assert len(server.requests) == 1


async def test_a_bare_error_event_and_an_error_in_a_whole_reply_count_too() -> None:
    event = b'event: error\ndata: {"type": "invalid_request_error", "message": "no"}\n\n'
    reply = answer({"error": {"code": 400, "message": "no"}})
    async with FaultServer([send(stream_head() + chunk(event)), fin()], [send(reply)]) as server:
        for streaming in (True, False):
            with pytest.raises(BadRequest, match="no"):
                await ask(model(server.url), streaming)
        assert len(server.requests) == 2


# ---- what kind of error


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
    ],
)
def test_a_full_context_window_is_known_in_every_spelling(text: str) -> None:
    assert error_class(400, text) is errors.ContextWindowExceeded
    assert error_class(413, "") is errors.ContextWindowExceeded


@pytest.mark.parametrize(
    ("status", "text", "kind"),
    [
        (400, "content_filter", errors.ContentRefused),
        (400, "triggering Azure OpenAI's content management policy", errors.ContentRefused),
        (400, "unknown parameter", BadRequest),
        (400, "INVALID_ARGUMENT API key not valid. Please", errors.AuthenticationFailed),
        (400, "API key expired. Please renew it.", errors.AuthenticationFailed),
        (400, "Incorrect API key provided: a***z", errors.AuthenticationFailed),
        (400, "the key 'api' is not valid", BadRequest),
        (408, "", ConnectionFailed),
        (409, "", ModelError),
        (503, "", errors.Overloaded),
        (529, "", errors.Overloaded),
        (500, "", errors.ServerError),
    ],
)
def test_each_status_has_its_class(status: int, text: str, kind: type[ModelError]) -> None:
    assert error_class(status, text) is kind


def test_the_words_of_an_error_stand_for_a_status() -> None:
    words = ["overloaded_error", "RESOURCE_EXHAUSTED", "authentication_error", "zzz", "code 422"]
    assert [status_of(word) for word in words] == [529, 429, 401, 500, 422]


@pytest.mark.parametrize(
    "message",
    [
        "Function tools with reasoning_effort are not supported for gpt-5.5 in "
        "/v1/chat/completions. Please use /v1/responses instead.",
        "Function tools with reasoning_effort are not supported for gpt-5.6 in "
        "/v1/chat/completions. To use function tools, use /v1/responses or set "
        "reasoning_effort to 'none'.",
    ],
)
async def test_a_model_that_wants_responses_for_its_tools_names_the_setting(message: str) -> None:
    script = [send(answer({"error": {"message": message, "param": "reasoning_effort"}}, 400))]
    async with FaultServer(script) as server:
        with pytest.raises(BadRequest) as caught:
            await ask(model(server.url))
    said = 'ChatOpenAI does not speak Responses: give it reasoning_effort="none"'
    assert str(caught.value).endswith(f"{message} ({said})")


@pytest.mark.parametrize(("end", "asks"), [("/v1", False), ("", True), ("/api", True)])
async def test_an_address_that_is_not_found_may_lack_its_end(end: str, asks: bool) -> None:
    script = [send(answer({"error": {"message": "no such page"}}, 404))]
    async with FaultServer(script) as server:
        with pytest.raises(BadRequest) as caught:
            await ask(model(server.url.removesuffix("/v1") + end))
    assert ("does base_url end in /v1?" in str(caught.value)) == asks


@pytest.mark.parametrize(
    "body",
    [
        {"error": {"message": "why"}},
        {"error": "why"},
        {"message": "why"},
        [{"error": {"message": "why"}}],
        {"detail": [{"msg": "why"}]},
        "why",
        [],
        7,
    ],
)
async def test_error_bodies_of_any_shape_are_shown(body: Any) -> None:
    async with FaultServer([send(answer(body, 400))]) as server:
        with pytest.raises(BadRequest, match="400") as caught:
            await ask(model(server.url))
        assert "why" in str(caught.value) or body in ([], 7)


# ---- secrets


async def test_a_key_in_a_message_of_the_http_library_is_not_shown() -> None:
    class TransportError(Exception):
        pass

    class Client:
        def stream(self, *args: Any, headers: dict[str, str], **options: Any) -> Any:
            raise TransportError(f"Illegal header value {headers['authorization']!r}")

    llm = model("http://x", client=Client(), max_retries=0)
    with pytest.raises(ConnectionFailed) as caught:
        await ask(llm)
    assert KEY not in f"{caught.value}"


def test_without_a_key_the_message_says_where_to_put_one() -> None:
    with pytest.raises(ValueError, match="OPENAI_API_KEY"):
        ChatOpenAI("m")
    assert ChatOpenAI("m", base_url="http://localhost:1234/v1").headers() == {}


# ---- server-sent events


def events(*pieces: bytes) -> list[SentEvent]:
    parser = EventParser()
    return [event for piece in pieces for event in parser.feed(piece)]


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"data: a\n\n", [("", b"a")]),
        (b"data:a\r\rdata:b\r\n\r\n", [("", b"a"), ("", b"b")]),
        (b"data: a\ndata:\ndata: c\n\n", [("", b"a\n\nc")]),
        (b"\xef\xbb\xbfdata: a\n\n", [("", b"a")]),
        (b": hello\n\nevent: ping\ndata: {}\n\n", [("ping", b"{}")]),
        (b"event: lost\n\ndata: a\n\n", [("", b"a")]),
        (b"id: 1\nretry: 5\nzzz: 1\ndata: a\n\n", [("", b"a")]),
        (b"data\n\n", [("", b"")]),
        (b"data:  two\n\n", [("", b" two")]),
        (
            "data: a\u2028b\u0085c\x0b\x0c\x1cd\n\n".encode(),
            [("", "a\u2028b\u0085c\x0b\x0c\x1cd".encode())],
        ),
        (b"data: unfinished\n", []),
    ],
)
def test_events_are_parsed_as_the_specification_says(data: bytes, expected: list[Any]) -> None:
    assert events(data) == expected
    assert events(*[data[i : i + 1] for i in range(len(data))]) == expected


def test_events_do_not_depend_on_how_the_bytes_were_cut() -> None:
    text = "\ufeffdata: 漢字\r\n: c\r\n\r\nevent: é\rdata: 👩\u200d👧\rdata: x\r\r\n\ndata: z\n\r\n"
    data = text.encode()
    whole = events(data)
    assert [event.data.decode() for event in whole] == ["漢字", "👩\u200d👧\nx", "z"]
    for size in range(1, 8):
        assert events(*[data[i : i + size] for i in range(0, len(data), size)]) == whole
    cut = random.Random(4)
    for _ in range(300):
        at = sorted(cut.choices(range(len(data)), k=5))
        assert events(*[data[a:b] for a, b in zip([0, *at], [*at, None], strict=True)]) == whole


# ---- clients


def test_one_model_works_in_several_event_loops_one_after_the_other() -> None:
    with OpenAIDouble(["a"] * 6).in_thread() as server:
        llm = model(server.base_url)
        for _ in range(3):
            assert asyncio.run(ask(llm)).text == "a"
            assert asyncio.run(ask(llm, streaming=True)).text == "a"
        gc.collect()  # -W error: a connection that was not closed would be an error here
        assert len(llm._clients._pools) == 1  # the last loop's; the next one makes room


def test_one_model_works_in_several_threads_at_once() -> None:
    async def several() -> list[AssistantMessage]:
        return await asyncio.gather(*[ask(llm) for _ in range(5)])

    with OpenAIDouble(["a"] * 40).in_thread() as server:
        llm = model(server.base_url)
        replies: list[AssistantMessage] = []
        threads = [
            threading.Thread(target=lambda: replies.extend(asyncio.run(several())))
            for _ in range(8)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert [reply.text for reply in replies] == ["a"] * 40


def test_forgetting_to_close_warns_of_nothing() -> None:
    program = """if True:
        import asyncio, sys
        sys.path.insert(0, ".")
        from agentloop.messages import UserMessage
        from agentloop.models.openai import ChatOpenAI
        from tests.doubles.openai_double import OpenAIDouble

        async def main(base_url):
            for _ in range(3):
                llm = ChatOpenAI("m", base_url=base_url)
                await llm.ainvoke([UserMessage("hi")])

        with OpenAIDouble(["a"] * 6).in_thread() as server:
            asyncio.run(main(server.base_url))
            kept = ChatOpenAI("m", base_url=server.base_url)
            asyncio.run(kept.ainvoke([UserMessage("hi")]))
        print("fine")
    """
    command = [sys.executable, "-W", "error", "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200, check=False)
    assert (done.stdout.strip(), done.stderr) == ("fine", "")


async def test_concurrent_requests_get_clients_of_their_own_and_later_ones_reuse_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(clients, "MAX_CLIENTS", 3)
    async with OpenAIDouble(["a"] * 12) as server, model(server.base_url) as llm:
        await asyncio.gather(*[ask(llm) for _ in range(6)])
        await asyncio.gather(*[ask(llm) for _ in range(6)])
        [pool] = llm._clients._pools.values()
        assert list(pool.users.values()) == [0, 0, 0]
        assert server.connections <= 6


async def test_a_client_of_ones_own_is_used_and_never_closed() -> None:
    async with OpenAIDouble(["a", "b"]) as server, httpx.AsyncClient(trust_env=False) as client:
        async with model(server.base_url, client=client) as llm:
            assert (await ask(llm)).text == "a"
        assert not client.is_closed
        assert (await ask(llm)).text == "b"


async def test_a_closed_model_opens_again() -> None:
    async with OpenAIDouble(["a", "b"]) as server:
        llm = model(server.base_url)
        await ask(llm)
        await llm.aclose()
        await llm.aclose()
        assert (await ask(llm)).text == "b"
        await llm.aclose()


async def test_proxies_of_the_environment_are_used_but_not_for_loopback(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    answer = send(b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n")
    async with FaultServer([answer]) as proxy, OpenAIDouble(["a"]) as server:
        for name in ("HTTP_PROXY", "http_proxy"):
            monkeypatch.setenv(name, f"http://127.0.0.1:{proxy.port}")
        for name in ("NO_PROXY", "no_proxy"):
            monkeypatch.delenv(name, raising=False)
        with pytest.raises(BadRequest):
            await ask(model("http://models.invalid/v1", max_retries=0))
        assert (await ask(model(server.base_url, max_retries=0))).text == "a"


async def test_a_name_and_a_password_in_the_address_are_sent_as_basic_authentication() -> None:
    async with FaultServer(*[[send(answer(OK))]] * 3) as server:
        await ask(model(server.url.replace("//", "//me:secret@")))
        await ask(model(server.url.replace("//", "//:secret@")))
        await ask(model(server.url))
    sent = [headers["authorization"] for headers, _ in server.requests]
    assert sent == ["Basic bWU6c2VjcmV0", "Basic OnNlY3JldA==", f"Bearer {KEY}"]


async def test_a_password_in_an_address_that_is_set_later_is_sent() -> None:
    async with FaultServer([send(answer(OK))], [send(answer(OK))]) as server:
        llm = model(server.url)
        await ask(llm)
        llm.base_url = server.url.replace("//", "//me:secret@")
        await ask(llm)
    assert server.requests[1][0]["authorization"] == "Basic bWU6c2VjcmV0"


async def test_a_header_of_a_subclass_replaces_ours_however_it_is_written() -> None:
    class Mine(ChatOpenAI):
        def headers(self) -> dict[str, str]:
            return {"User-Agent": "mine", "Accept": "application/json"}

    lines: list[bytes] = []

    async def head(connection: Connection) -> None:
        lines.extend((await connection.reader.readuntil(b"\r\n\r\n")).lower().split(b"\r\n"))

    async with FaultServer([send(answer(OK)), head]) as server:
        llm = Mine("m", base_url=server.url, max_retries=0)
        await ask(llm)
        with pytest.raises(ConnectionFailed):  # the second request of the connection, looked at
            await llm.ainvoke(HI)
    named = [line for line in lines if line.startswith((b"user-agent", b"accept:"))]
    assert sorted(named) == [b"accept: application/json", b"user-agent: mine"]


async def test_a_client_of_ones_own_may_have_read_the_reply_before_us() -> None:
    async def read(response: httpx.Response) -> None:
        await response.aread()

    hooks: Any = {"response": [read]}
    async with (
        FaultServer([send(answer(OK))], [send(stream(*STREAM))]) as server,
        httpx.AsyncClient(trust_env=False, event_hooks=hooks) as client,
    ):
        llm = model(server.url, client=client)
        assert (await ask(llm)).text == "hello"
        assert (await ask(llm, streaming=True)).text == "hello"


async def test_a_request_says_who_sends_it_and_keeps_no_cookie() -> None:
    reply = send(answer(OK, 200, {"set-cookie": "a=b; Path=/"}))
    async with FaultServer([reply], [reply]) as server:
        llm = model(server.url)
        await ask(llm)
        await ask(llm)
    assert [headers["user-agent"] for headers, _ in server.requests] == ["agentloop"] * 2
    assert "cookie" not in server.requests[1][0]


def test_importing_a_provider_does_not_import_httpx() -> None:
    program = "import sys, agentloop.models.openai; sys.exit('httpx' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], timeout=200, check=False).returncode == 0


@pytest.mark.parametrize("url", ["http://127.0.0.1:99999/v1", "http://h:x/v1", "http://["])
def test_an_address_with_a_port_that_is_none_is_refused_at_once(url: str) -> None:
    with pytest.raises(ValueError, match="ChatOpenAI: base_url="):
        model(url)


def test_an_address_that_is_none_does_not_show_its_password() -> None:
    with pytest.raises(ValueError, match="base_url='h/v1'") as caught:
        model("http://me:secret#1@h/v1")
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("text", ['{"a": "\ud83d"}', '{"a": "\\ud83d"}', b'{"a": "\\ud83d"}'])
def test_json_with_half_a_surrogate_pair_is_read(text: str | bytes) -> None:
    assert loaded(text) == {"a": "\ud83d"}
