"""web_fetch: requests only to allowed hosts at verified public addresses."""

import gzip
import ssl
import subprocess

import httpx
import pytest
from agentloop_chat import web_fetch as web
from agentloop_chat.web_fetch import is_public, web_fetch

from agentloop import Agent, ScriptedModel
from agentloop.models.scripted import call
from tests.doubles.fault_server import FaultServer, stall
from tests.doubles.web_server import serving

PUBLIC = "93.184.216.34 2606:2800:220:1::1 8.8.8.8"
PRIVATE = """
    127.0.0.1 127.9.9.9 0.0.0.0 10.1.2.3 172.16.0.1 192.168.1.1 169.254.169.254 100.64.0.1 100::1
    100.100.100.200 168.63.129.16 198.18.0.1 203.0.113.9 224.0.0.1 240.0.0.1 255.255.255.255 ::
    fe80::1 fe80::1%eth0 fc00::1 fd00:ec2::254 ff02::1 ::ffff:127.0.0.1 ::ffff:169.254.169.254 ::1
    64:ff9b::7f00:1 64:ff9b:1::1 2002:7f00:1:: 2001:0:7f00:1:: 2001:db8::1 192.0.0.1 192.0.0.8
    192.88.99.1 4000::1 5f00::1 8000::1 fec0::1 3fff::1 ::7f00:1 ::127.0.0.1"""
PAGE = """<!doctype html><html><head><title>T</title><script>if (a<b) "</p>"</script></head>
<body><h1>Tea &amp; <b>milk</b></h1><style>p { x }</style><p>Green<br>Black
 tea</p><script src=x></script><ul><li>One<li>Two</ul><svg><path/></svg></body></html>"""
NOT_ALLOWED = r"""
    https://evil.com/ http://good.com.evil.com/ http://good.com@evil.com/ http://good.com:8080/
    http://good.com\@evil.com/ http://good.com./ ftp://good.com/ file:///etc/passwd //good.com/
    good.com http://127.0.0.1/ http://2130706433/ http://0x7f.1/ http://[::1]/ http://sub.good.com/
    http://evil.com#good.com http://169.254.169.254/latest"""


def fetch_tool(url):
    """Return a web_fetch tool restricted to the host of this URL."""
    return web_fetch([httpx.URL(url).netloc.decode()])


async def fetch(url):
    return await fetch_tool(url).execute({"url": url})


async def failure(url, tool=None):
    """Return the error of a call, as shown to the model."""
    tool = tool or fetch_tool(url)
    agent = Agent(llm=ScriptedModel(call("web_fetch", url=url), "ok"), tools=[tool])
    await agent.run("x")
    assert agent.messages[2].is_error
    return agent.messages[2].text


class TestWebFetch:
    async def test_a_page_is_fetched_as_text(self, server):
        server.reply(body=PAGE.encode(), content_type="text/html; charset=utf-8")
        assert f"127.0.0.1:{server.port}" in fetch_tool(server.url).description
        text = await fetch(f"{server.url}/tea?kind=green#top")
        assert text == "200 OK \nT\nTea & milk\nGreen\nBlack\ntea\nOne\nTwo"
        assert server.got[0][0] == "GET /tea?kind=green HTTP/1.1"

    @pytest.mark.parametrize("url", NOT_ALLOWED.split())
    async def test_only_allowed_hosts_are_fetched(self, resolver, url):
        text = await failure(url, web_fetch(["good.com"]))
        assert "is not an http(s) address of good.com" in text
        assert resolver["asked"] == []

    def test_public_and_private_addresses_are_distinguished(self):
        assert all(map(is_public, PUBLIC.split()))
        assert not [address for address in PRIVATE.split() if is_public(address)]

    @pytest.mark.parametrize("addresses", [["127.0.0.1"], ["93.184.216.34", "169.254.169.254"]])
    async def test_a_public_name_that_resolves_to_a_private_address_is_rejected(
        self, resolver, addresses
    ):
        resolver["docs.example.com"] = [addresses]
        assert "private address" in await failure("https://docs.example.com/")
        assert resolver["asked"] == ["docs.example.com"]

    async def test_the_connection_uses_the_checked_address(self, resolver, server, monkeypatch):
        resolver["rebind.example.com"] = [["127.0.0.1"], ["127.0.0.2"], ["127.0.0.2"]]
        monkeypatch.setattr(web, "is_public", {"127.0.0.1": True}.get)
        assert await fetch(f"http://rebind.example.com:{server.port}/x") == "200 OK \n{}"
        assert resolver["asked"].count("rebind.example.com") == 1
        assert server.got[0][1]["host"] == f"rebind.example.com:{server.port}"

    async def test_an_address_where_nobody_listens_is_followed_by_the_next(self, resolver, server):
        resolver["localhost"] = [["::1", "127.0.0.1"], ["::1", "::1"]]
        assert await fetch(f"http://localhost:{server.port}/") == "200 OK \n{}"
        assert "ConnectError" in await failure(f"http://localhost:{server.port}/")
        assert len(server.got) == 1

    async def test_tls_verifies_the_certificate_for_the_name(self, tmp_path, resolver, monkeypatch):
        cert, key = str(tmp_path / "cert.pem"), str(tmp_path / "key.pem")
        made_of = ["-newkey", "rsa:2048", "-nodes", "-subj", "/CN=crm", "-days", "2"]
        names = ["-addext", "subjectAltName=DNS:crm.internal"]
        command = ["openssl", "req", "-x509", *made_of, *names, "-keyout", key, "-out", cert]
        try:
            subprocess.run(command, check=True, capture_output=True)
        except (OSError, subprocess.CalledProcessError):
            pytest.skip("requires openssl")
        monkeypatch.setenv("SSL_CERT_FILE", cert)
        context, server_names = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), []
        context.load_cert_chain(cert, key)
        context.sni_callback = lambda sock, name, ctx: server_names.append(name)
        for host in ("crm.internal", "other.internal"):
            resolver[host] = [["127.0.0.1"]]
        async with serving(ssl=context) as server:
            assert await fetch(f"https://crm.internal:{server.port}/") == "200 OK \n{}"
            wrong = f"https://other.internal:{server.port}/"
            assert "certificate verify failed" in await failure(wrong)
        assert server_names == ["crm.internal", "other.internal"]
        assert len(server.got) == 1

    async def test_redirects_cookies_and_proxies_are_not_used(self, server, monkeypatch):
        for name in ("HTTP_PROXY", "ALL_PROXY"):
            monkeypatch.setenv(name, "http://127.0.0.1:9")
        async with serving() as inner:
            server.reply("302 Found", b"moved", Location=f"{inner.url}/admin", Set_Cookie="a=b")
            assert await failure(server.url) == f"302 Found {inner.url}/admin\nmoved"
            await failure(server.url)
            assert inner.connections == 0
        assert "cookie" not in server.got[1][1]

    async def test_a_response_is_returned_as_text_of_limited_length(self, server):
        server.reply("404 Not Found", '{"error": "né"}'.encode())
        assert await failure(server.url) == '404 Not Found \n{"error": "né"}'
        server.reply(body=b"\x89PNG", content_type="image/png")
        assert await fetch(server.url) == "200 OK \n<4 bytes of image/png>"
        server.reply(body=b"x" * 3_000_000)
        text = await fetch(server.url)
        assert len(text) < 1_000_100
        assert text.endswith("[The body has more than 1,000,000 bytes.]")
        bomb = gzip.compress(b"x" * 5_000_000)
        server.reply(body=bomb, Content_Encoding="gzip")
        assert await fetch(server.url) == f"200 OK \n<{len(bomb):,} bytes of gzip>"
        assert {got[1]["accept-encoding"] for got in server.got} == {"identity"}
        server.answer = b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc"
        assert "RemoteProtocolError" in await failure(server.url)

    @pytest.mark.parametrize(
        ("charset", "codec"),
        [
            ("utf-8", "utf-8"),
            ("UTF8", "utf-8"),
            ("utf-16", "utf-16"),
            ("latin1", "latin-1"),
            ("windows-1252", "cp1252"),
            ("Shift_JIS", "shift_jis"),
            ("gb2312", "gb2312"),
        ],
    )
    async def test_a_response_is_decoded_with_its_charset(self, server, charset, codec):
        text = "日本" if codec in ("shift_jis", "gb2312") else "né"
        server.reply(body=text.encode(codec), content_type=f"text/plain; charset={charset}")
        assert await fetch(server.url) == f"200 OK \n{text}"

    @pytest.mark.parametrize("charset", ["punycode", "idna", "utf-7", "unicode_escape", "zip", "x"])
    async def test_an_unsupported_charset_is_read_as_utf_8(self, server, charset):
        body = "bcher-kva né \\u0041 ".encode() + b"\xff"
        server.reply(body=body, content_type=f"text/plain; charset={charset}")
        text = await fetch(server.url)
        assert text == "200 OK \nbcher-kva né \\u0041 \ufffd"

    async def test_a_slow_or_unreachable_server_is_an_error_result(self):
        async with FaultServer([stall()]) as mute:
            impatient = fetch_tool(mute.url)
            impatient.timeout = 0.1
            text = await failure(mute.url, impatient)
            assert "not finished within 0.1 seconds" in text
        assert "127.0.0.1: ConnectError" in await failure("http://127.0.0.1:1")

    def test_a_hostile_page_does_not_slow_down_the_parser(self):
        for page in ("<" * 200_000, "<script>" * 40_000, "<!--" * 50_000, "</" * 99_999):
            assert web.text_of_page(page) is not None


@pytest.mark.parametrize(
    "number", ["&#" + "9" * 5_000 + ";", "&#x" + "f" * 5_000, "&#" + "9" * 5_000]
)
def test_a_character_reference_with_thousands_of_digits_is_text(number):
    assert "tea" in web.text_of_page(f"<p>tea {number}</p>")


@pytest.mark.parametrize("address", ["https://docs.python.org", "docs.python.org/3"])
def test_an_address_in_place_of_a_host_is_an_error(address):
    with pytest.raises(ValueError, match="host"):
        web_fetch([address])
