"""Tools from a JSON config, each an HTTP request; and `web_fetch`, which reads a page.

Copy with: toolkits/environment.py, tools.py and what they name. Needs httpx.

    loader = ConfigToolLoader.load_from_file("desk.json")
    agent = Agent(
        llm=...,
        tools=loader.get_tools(context_vars={"tenantId": "t1"}),
        system_prompt=loader.build_system_prompt(),
    )

The host is the config's: what the model fills in is encoded for the place where it stands. No
redirect is followed, no cookie kept, no proxy used. A name is looked up once, and the request goes
to an address that was checked. Private addresses are refused, unless the config's own host is one,
or a name that only a private network has ("localhost", "crm", "crm.internal"). `${NAME}` is a
variable of the environment, read when the config is loaded. Nothing shows its value, nor a value of
`context_vars`: where a response or an error has one of six characters or more, the model reads ***.
"""

from __future__ import annotations

import codecs
import html
import re
import socket
from collections.abc import Iterable, Mapping, Sequence
from ipaddress import ip_address, ip_network
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import quote

from pydantic import Field

from ..content import as_text, describe_error
from ..errors import ToolError
from ..messages import JSON
from ..tools import Tool, tool
from ..waiting import call_function
from .environment import Secrets, StrictConfig, fill_in, mask, texts_in

if TYPE_CHECKING:
    import httpx

PLACE = re.compile(r"\{(=?[\w.-]+)\}")  # {x} is filled in by the model, {=x} by the system
AUTOFILL = re.compile(r'"([\w.-]+)"\s*:\s*"todo_autofill_by_system"')  # it becomes "x": "{=x}"
# Hosts that only a private network has: a name without a dot or with a private ending, an address.
PRIVATE_NAME = re.compile(r"[^.]+|[\d.]+|.+:.+|.+\.(local|localhost|internal)")
# The registries call these public, but Azure serves its metadata at the first, and the others lead
# to any address (NAT64 and 6to4).
NOT_PUBLIC = [ip_network(net) for net in ("168.63.129.16/32", "64:ff9b::/32", "2002::/16")]
MAX_BYTES = 1_000_000  # of a response that are read
# What a response may be encoded in. Some of Python's other codecs take time with the square of the
# length ("punycode": half a minute), or are none for text ("zip").
CHARSETS = re.compile(
    r"utf-(8|16|16-le|16-be)|iso8859-\d+|cp125\d|koi8-[ru]|shift_jis|euc_(jp|kr)|"
    "gb(k|2312|18030)|big5"
)


# ---- the config


class BasicSettings(StrictConfig):
    name: str = ""
    description: str = ""
    background: str = ""
    language: str = ""
    tone: str = ""
    chatbot_id: str = ""


class ActionBook(StrictConfig):
    condition: str
    action: str
    tools: Sequence[str] = ()


class Endpoint(StrictConfig):
    """A request. Its `url` holds no {place} in the host, no `user:password@` and no `?query`."""

    url: str = Field(pattern=r"^https?://[^/?#@{}\\\s]+(/[^?#]*)?$")
    method: str = Field("GET", pattern="^(GET|POST|PUT|PATCH|DELETE)$")
    headers: Mapping[str, str] = {}
    body: object = None
    query_params: Mapping[str, object] = {}
    timeout: float = Field(30, gt=0)

    def __repr_args__(self) -> tuple[()]:
        return ()  # there are secrets among them


class ToolConfig(StrictConfig):
    name: str = Field(pattern=r"^[\w-]{1,64}$")
    description: str
    parameters: JSON = Field({"type": "object", "properties": {}})
    endpoint: Endpoint = Field(repr=False)


class Config(StrictConfig):
    basic_settings: BasicSettings = BasicSettings()
    action_books: Sequence[ActionBook] = ()
    tools: Sequence[ToolConfig] = ()


class ConfigToolLoader:
    """A config, read and checked. Raises ValueError with the file, the key and what to do."""

    def __init__(self, text: str, source: str | Path = "config") -> None:
        self.source = source
        try:
            text, self.secrets = fill_in(AUTOFILL.sub(r'"\1": "{=\1}"', text))
            self.config = Config.model_validate_json(text)
            declared = [tool.name for tool in self.config.tools]
            for book in self.config.action_books:
                for name in book.tools:
                    if name not in declared:
                        raise ValueError(f"action_books: tools: declare {name!r} under tools")
        except ValueError as error:
            raise ValueError(f"{source}: {error}") from None

    @classmethod
    def load_from_file(cls, path: str | Path) -> Self:
        """Read a config from a file."""
        return cls(Path(path).read_text("utf-8-sig", "replace"), path)

    def get_tools(self, context_vars: Mapping[str, object] = {}) -> list[Tool]:
        """Return the tools. `context_vars`, which stay secret, fill what is no parameter."""
        return [HTTPTool(each, context_vars, self) for each in self.config.tools]

    def build_system_prompt(self) -> str:
        """Return a prompt that says who the agent is, how it talks, and what it does when."""
        settings = self.config.basic_settings.model_dump(exclude={"chatbot_id"})
        lines = [f"{key.capitalize()}: {text}" for key, text in settings.items() if text]
        for book in self.config.action_books:
            tools = ", ".join(book.tools) or "none"
            lines.append(f"When {book.condition}: {book.action}. Tools: {tools}")
        return "\n".join(lines)


# ---- a tool


class Values(JSON):
    """Values by their names. Printing it shows none of them."""

    def __repr__(self) -> str:
        return f"<{len(self)} values>"


class HTTPTool(Tool):
    """A tool that makes the request of its endpoint.

    values: what fills places that are no parameter of the tool, by their names.
    secrets: what is hidden in results.
    """

    def __init__(
        self, config: ToolConfig, context: Mapping[str, object], loader: ConfigToolLoader
    ) -> None:
        endpoint = config.endpoint
        parameters = set(config.parameters.get("properties", ()))
        super().__init__(
            config.name, config.description, config.parameters, timeout=endpoint.timeout
        )
        self.endpoint = endpoint
        self.secrets = Secrets(loader.secrets.union(texts_in(dict(context))))
        self.values = Values()
        for name, value in context.items():
            self.values[f"={name}"] = value
            if name not in parameters:
                self.values[name] = value
        places = set(PLACE.findall(endpoint.model_dump_json()))
        for name in places - parameters - self.values.keys():
            raise ValueError(
                f"{loader.source}: {config.name}: {{{name}}} is no parameter: declare it, or give "
                f"it with get_tools(context_vars={{{name.strip('=')!r}: ...}})"
            )

    async def execute(self, args: JSON, overrides: object = None) -> str:
        return await send(self.request(args), self.secrets)

    def request(self, args: JSON) -> httpx.Request:
        """Build the request. Raises ToolError if a value would lead to another path."""
        import httpx

        values = {**args, **self.values}

        def encode(place: re.Match[str]) -> str:
            text = as_text(values.get(place[1]))
            steps = re.split(r"[/\\]", text)
            if "" in steps or "." in steps or ".." in steps:
                raise ToolError(f"{place[1]}: the address needs a value for it, and not a path")
            return quote(text, safe="")

        filled = fill(self.endpoint.model_dump(), values)
        url = httpx.URL(PLACE.sub(encode, self.endpoint.url), params=filled["query_params"])
        headers = {name: as_text(value) for name, value in filled["headers"].items()}
        return httpx.Request(filled["method"], url, headers=headers, json=filled.get("body"))


def fill(template: Any, values: JSON) -> Any:
    """Fill the places of a template; drop keys and items whose value is missing.

    A value is not searched for places: the model cannot ask for another value by naming it.
    """

    def is_known(each: object) -> bool:
        return not isinstance(each, str) or values.keys() >= set(PLACE.findall(each))

    kind = template.__class__
    if kind is dict:
        return {key: fill(each, values) for key, each in template.items() if is_known(each)}
    if kind is list:
        return [fill(each, values) for each in template if is_known(each)]
    if kind is not str:
        return template
    if whole := PLACE.fullmatch(template):
        return values[whole[1]]
    return PLACE.sub(lambda place: as_text(values[place[1]]), template)


# ---- requests


async def send(request: httpx.Request, secrets: Iterable[str] = ()) -> str:
    """Make a request; return the status and the body as text, secrets hidden.

    Raises ToolError, with the same text, unless the status is a good one. No redirect is followed.
    """
    import httpx

    host = request.url.raw_host.decode()
    try:
        await use_checked_address(request, host)
        response, body = await exchange(request)
        succeeded = response.is_success
        text = describe(response, body)
    except (httpx.HTTPError, OSError, UnicodeError) as error:
        succeeded = False
        text = f"{host}: {describe_error(error, lambda said: mask(said, secrets))}"
    text = mask(text, secrets)
    if not succeeded:
        raise ToolError(text)
    return text


async def use_checked_address(request: httpx.Request, host: str) -> None:
    """Look a host up, check its addresses, and send the request to the first of them.

    Nobody looks the name up again, when it might have another address.
    """
    found = await call_function(socket.getaddrinfo, host, None, type=socket.SOCK_STREAM)
    addresses = [str(each[4][0]) for each in found]
    if not PRIVATE_NAME.fullmatch(host):
        for address in addresses:
            if not is_public(address):
                raise PermissionError(f"its private address, {address}, is refused")
    request.extensions["sni_hostname"] = host
    request.url = request.url.copy_with(host=addresses[0])  # the Host header keeps the name


async def exchange(request: httpx.Request) -> tuple[httpx.Response, bytes]:
    """Send a request over a connection of its own; return the response and its body.

    A body of more than MAX_BYTES is read a little further, and no more.
    """
    import httpx

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
    """Return the status and the body as text: of a web page its words, of an image its size."""
    headers = response.headers
    kind = headers.get("content-encoding") or headers.get("content-type", "text")
    text = body[:MAX_BYTES].decode(charset_of(response), "replace")
    if "html" in kind:
        text = text_of_page(text)
    elif not re.search("text|json|xml", kind):
        text = f"<{len(body):,} bytes of {kind}>"
    if len(body) > MAX_BYTES:
        text += f"\n[It has more than these {MAX_BYTES:,} bytes.]"
    location = headers.get("location", "")
    return f"{response.status_code} {response.reason_phrase} {location}\n{text}"


def charset_of(response: httpx.Response) -> str:
    """Return the encoding that a response names, or "utf-8" if it is not among CHARSETS."""
    name = codecs.lookup(response.encoding or "utf-8").name
    return name if CHARSETS.fullmatch(name) else "utf-8"


def is_public(address: str) -> bool:
    """Return True if an address is one that everybody reaches."""
    ip = ip_address(address)
    if any(ip in net for net in NOT_PUBLIC):
        return False
    return ip.is_global and not ip.is_multicast


def web_fetch(allow: Sequence[str]) -> Tool:
    """Make a tool that fetches pages of these hosts: "docs.python.org", "localhost:8000"."""
    import httpx

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
            raise ToolError(f"{url!r:.200} is no http(s) address of {', '.join(allow)}")
        return await send(page)

    return web_fetch


def text_of_page(page: str) -> str:
    """Return the words of a web page, each paragraph in a line."""
    # An element without an end goes on to the page's end, so no pattern reads a character twice.
    page = re.sub(r"(?is)<(script|style|svg)\b.*?(</\1\s*>|\Z)|<!--.*?(-->|\Z)", "", page)
    page = re.sub(r"(?i)</?(?:a|b|code|em|i|span|strong)\b[^<>]*>", "", page)
    page = html.unescape(re.sub(r"<[^<>]*>", "\n", page))
    lines = [" ".join(line.split()) for line in page.splitlines()]
    return "\n".join(line for line in lines if line)
