"""A tool that reads web pages: web_fetch. `send` makes requests for other tools.

    agent = Agent(llm=..., tools=[web_fetch(["docs.python.org"])])

The model chooses among the hosts that you list. The tool follows no redirects, stores no cookies,
and uses no proxies. A host name is resolved once, and the request goes to the first of its checked
addresses that accepts a connection. A private address is refused, unless the host is a private
address itself, or a name of a private network ("localhost", "crm", "crm.internal"). The recipe
examples/recipes/tools_from_a_config.py makes tools of HTTP requests in a JSON file.
"""

from __future__ import annotations

import codecs
import html
import re
import socket
from collections.abc import Iterable, Sequence
from contextlib import suppress
from ipaddress import ip_address, ip_network

import httpx

from agentloop import Tool, ToolError, tool
from agentloop.content import describe_error
from agentloop.toolkits.environment import mask
from agentloop.waiting import call_function

# Hosts that may have a private address: names without a dot or with a private suffix, and IP
# addresses.
PRIVATE_NAME = re.compile(r"[^.]+|[\d.]+|.+:.+|.+\.(local|localhost|internal)")
# Not public, although Python or the registries classify these networks as public. Azure serves its
# metadata at the first address. 192.0.0.0/24 is reserved for protocols, 192.88.99.0/24 for relays.
# In IPv6 only 2000::/3 is public, excluding 6to4 (2002::/16), Teredo and other protocols
# (2001::/23), and documentation (3fff::/20).
NOT_PUBLIC = """
    168.63.129.16/32 192.0.0.0/24 192.88.99.0/24
    ::/3 2001::/23 2002::/16 3fff::/20 4000::/2 8000::/1"""
MAX_BYTES = 1_000_000  # of a response; the rest is not read
# Supported character encodings. Some other codecs of Python take quadratic time ("punycode": half a
# minute), and some do not decode text ("zip").
CHARSETS = re.compile(
    r"utf-(8|16|16-le|16-be)|iso8859-\d+|cp125\d|koi8-[ru]|shift_jis|euc_(jp|kr)|"
    "gb(k|2312|18030)|big5"
)


def web_fetch(allow: Sequence[str]) -> Tool:
    """Make a tool that reads pages of these hosts: ["docs.python.org", "localhost:8000"].

    Raises ValueError if one is an address of a page, which would never match.
    """
    if pages := [host for host in allow if "/" in host]:
        raise ValueError(f"web_fetch takes hosts, such as docs.python.org, not {pages[0]}")
    hosts = [httpx.URL(f"http://{host}").netloc for host in allow]

    @tool(
        f"Fetch a web page as text, from {', '.join(allow)}",
        timeout=30,
        idempotent=True,
        read_only=True,
    )
    async def web_fetch(url: str) -> str:
        page = httpx.Request("GET", url)
        if page.url.scheme not in ("http", "https") or page.url.netloc not in hosts:
            raise ToolError(f"{url!r:.200} is not an http(s) address of {', '.join(allow)}")
        return await send(page)

    return web_fetch


async def send(request: httpx.Request, secrets: Iterable[str] = ()) -> str:
    """Send a request. Returns the status and the body as text, in which secrets are hidden.

    Raises ToolError: with the same text if the status is an error, or with the reason if there's no
    response. Redirects aren't followed. It takes as long as the tool's `timeout` allows.
    """
    host = request.url.raw_host.decode()
    try:
        addresses = await checked_addresses(host)
        request.extensions["sni_hostname"] = host
        response, body = await exchange(request, addresses)
    except (httpx.HTTPError, OSError, UnicodeError) as error:
        text = f"{host}: {describe_error(error, lambda text: mask(text, secrets))}"
        raise ToolError(mask(text, secrets)) from None
    text = mask(describe(response, body), secrets)
    if not response.is_success:
        raise ToolError(text)
    return text


async def checked_addresses(host: str) -> list[str]:
    """Resolve a host, and check its addresses.

    The name must not be resolved again, because the second answer could be another.
    """
    resolved = await call_function(socket.getaddrinfo, host, None, type=socket.SOCK_STREAM)
    addresses = [str(sockaddr[0]) for *_, sockaddr in resolved]
    if not PRIVATE_NAME.fullmatch(host):
        for address in addresses:
            if not is_public(address):
                raise PermissionError(f"the private address {address} is not allowed")
    return addresses


async def exchange(
    request: httpx.Request, addresses: Sequence[str]
) -> tuple[httpx.Response, bytes]:
    """Send a request to the first address that accepts a connection.

    "localhost" is often ::1 first, where few servers listen.
    """
    for address in addresses[:-1]:
        with suppress(httpx.ConnectError):
            return await exchange_with(address, request)
    return await exchange_with(addresses[-1], request)


async def exchange_with(address: str, request: httpx.Request) -> tuple[httpx.Response, bytes]:
    """Send a request over a connection of its own. Returns the response and its body.

    It stops reading the body soon after MAX_BYTES.
    """
    request.url = request.url.copy_with(host=address)  # the Host header still has the name
    request.headers["Accept-Encoding"] = "identity"
    request.headers.setdefault("User-Agent", "agentloop")
    body = bytearray()
    async with httpx.AsyncHTTPTransport() as transport:
        response = await transport.handle_async_request(request)
        async for piece in response.aiter_raw():
            body += piece
            if len(body) > MAX_BYTES:
                break
        await response.aclose()
    return response, bytes(body)


def describe(response: httpx.Response, body: bytes) -> str:
    """Describe a response: its status, and its body as text. Of an image, it's the size."""
    headers = response.headers
    kind = headers.get("content-encoding") or headers.get("content-type", "text")
    text = body[:MAX_BYTES].decode(charset_of(response), "replace")
    if "html" in kind:
        text = text_of_page(text)
    elif not re.search("text|json|xml", kind):
        text = f"<{len(body):,} bytes of {kind}>"
    if len(body) > MAX_BYTES:
        text += f"\n[The body has more than {MAX_BYTES:,} bytes.]"
    location = headers.get("location", "")
    return f"{response.status_code} {response.reason_phrase} {location}\n{text}"


def charset_of(response: httpx.Response) -> str:
    """The encoding of a response if it's one of CHARSETS, or else "utf-8"."""
    name = codecs.lookup(response.encoding or "utf-8").name
    return name if CHARSETS.fullmatch(name) else "utf-8"


def is_public(address: str) -> bool:
    """Whether anybody can reach an IP address."""
    ip = ip_address(address)
    if any(ip in ip_network(net) for net in NOT_PUBLIC.split()):
        return False
    return ip.is_global and not ip.is_multicast


def text_of_page(page: str) -> str:
    """The text of a web page, one paragraph per line."""
    # An unclosed element extends to the end of the page, so that matching takes linear time.
    page = re.sub(r"(?is)<(script|style|svg)\b.*?(</\1\s*>|\Z)|<!--.*?(-->|\Z)", "", page)
    page = re.sub(r"(?i)</?(?:a|b|code|em|i|span|strong)\b[^<>]*>", "", page)
    page = re.sub(r"&#\w{8,};?", "\ufffd", page)  # Python converts at most 4,300 digits
    page = html.unescape(re.sub(r"<[^<>]*>", "\n", page))
    lines = [" ".join(line.split()) for line in page.splitlines()]
    return "\n".join(line for line in lines if line)
