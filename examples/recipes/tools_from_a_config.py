"""Tools from a JSON file: HTTP requests as tools, and a system prompt from the same file.

Use the loader if those who write the tools don't write Python, as in customer service. Copy this
file into your program's folder:

    loader = ConfigToolLoader.load_from_file("desk.json")
    agent = Agent(
        llm=...,
        tools=loader.get_tools(context_vars={"tenantId": "t1"}),
        system_prompt=loader.build_system_prompt(),
    )

The model only chooses the values of parameters: neither the host, nor the path, nor the names of
headers. Values are encoded for the place where they go. `send` only connects to addresses that it
has checked, and follows no redirects. `${NAME}` is an environment variable, read when the config is
loaded. The values of environment variables and of `context_vars` are never shown: in responses and
errors, *** takes the place of those that have six or more characters.

Loaders in some forks of bu_agent_sdk have the same format. `mcp_json` turns a list `mcp_servers` in
the config into the format of `toolkits.mcp`:

    text = mcp_json(Path("agent.json").read_text())
    async with mcp_servers("agent.json", text) as servers: ...
"""

from __future__ import annotations

import json
import os
import re
import threading
from collections.abc import Mapping, Sequence
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any, Self
from urllib.parse import quote

import httpx
from agentloop_chat.web_fetch import send
from pydantic import Field

from agentloop import Agent, ScriptedModel, Tool, ToolError, call
from agentloop.content import as_text
from agentloop.messages import JSON
from agentloop.toolkits.environment import Secrets, StrictConfig, fill_in

PLACE = re.compile(r"\{(=?[\w.-]+)\}")  # the model provides {x}, the system {=x}
AUTOFILL = re.compile(r'"([\w.-]+)"\s*:\s*"todo_autofill_by_system"')  # replaced with "x": "{=x}"


# ---- the config


class BasicSettings(StrictConfig):
    name: str = ""
    description: str = ""
    background: str = ""
    language: str = ""
    tone: str = ""
    chatbot_id: str | None = None


class ActionBook(StrictConfig):
    condition: str
    action: str
    tools: Sequence[str] = ()


class Endpoint(StrictConfig):
    """A request. `url` must not contain a {place} in the host, `user:password@` or `?query`.

    method: by default POST for requests with a body, otherwise GET.
    """

    url: str = Field(pattern=r"^https?://[^/?#@{}\\\s]+(/[^?#]*)?$")
    method: str = Field("", pattern="^(|GET|POST|PUT|PATCH|DELETE)$")
    headers: Mapping[str, str] = {}
    body: object = None
    query_params: Mapping[str, object] | None = None
    timeout: float = Field(30, gt=0)

    def __repr_args__(self) -> tuple[()]:
        return ()  # the values may be secret


class ToolConfig(StrictConfig):
    name: str = Field(pattern=r"^[\w-]{1,64}$")
    description: str
    parameters: JSON = Field({"type": "object", "properties": {}})
    endpoint: Endpoint = Field(repr=False)


class Config(StrictConfig):
    basic_settings: BasicSettings = BasicSettings()
    action_books: Sequence[ActionBook] = ()
    tools: Sequence[ToolConfig] = ()
    mcp_servers: Sequence[JSON] = Field((), repr=False)  # for `mcp_json`


def export_config_schema() -> JSON:
    """The JSON schema of a config, for an editor or a form."""
    return Config.model_json_schema()


class ConfigToolLoader:
    """A validated config. Raises ValueError with the file, the key and the remedy."""

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

    @classmethod
    def load_from_dict(cls, config: Mapping[str, object]) -> Self:
        """Read a config from parsed JSON."""
        return cls(json.dumps(config))

    @property
    def basic_settings(self) -> BasicSettings:
        return self.config.basic_settings

    @property
    def action_books(self) -> Sequence[ActionBook]:
        return self.config.action_books

    def get_tools(self, context_vars: Mapping[str, object] = {}) -> list[Tool]:
        """Make the tools. The secret `context_vars` fill the places that aren't parameters."""
        return [HTTPTool(tool, context_vars, self) for tool in self.config.tools]

    def build_system_prompt(self) -> str:
        """Write a prompt: who the agent is, its tone, and what to do in which case."""
        settings = self.basic_settings.model_dump(exclude={"chatbot_id"})
        lines = [f"{key.capitalize()}: {text}" for key, text in settings.items() if text]
        for book in self.action_books:
            tools = ", ".join(book.tools) or "none"
            lines.append(f"When {book.condition}: {book.action}. Tools: {tools}")
        return "\n".join(lines)


def mcp_json(text: str) -> str:
    """Convert the list `mcp_servers` of a config to the text of an mcp.json file."""
    servers = dict[str, JSON]()
    for server in json.loads(text)["mcp_servers"]:
        name: str = server.pop("name")
        if "transport" in server:
            server["type"] = server.pop("transport")
        servers[name] = server
    return json.dumps({"mcpServers": servers})


# ---- a tool


class Values(JSON):
    """Values by name. The repr does not show the values."""

    def __repr__(self) -> str:
        return f"<{len(self)} values>"


class HTTPTool(Tool):
    """A tool that sends the request of its endpoint.

    values: values by name for the places that are not parameters of the tool.
    secrets: texts that are masked in results.
    """

    def __init__(
        self, config: ToolConfig, context: Mapping[str, object], loader: ConfigToolLoader
    ) -> None:
        endpoint = config.endpoint
        properties: JSON = config.parameters.get("properties", {})
        super().__init__(
            config.name, config.description, config.parameters, timeout=endpoint.timeout
        )
        self.config = config
        self.secrets = Secrets(loader.secrets.union(texts_in(dict(context))))
        self.defaults = JSON()
        for name, schema in properties.items():
            if isinstance(schema, dict) and schema.get("default") is not None:
                self.defaults[name] = schema["default"]
        self.values = Values()
        for name, value in context.items():
            self.values[f"={name}"] = value
            if name not in properties:
                self.values[name] = value
        places = set(PLACE.findall(endpoint.model_dump_json()))
        for name in places - properties.keys() - self.values.keys():
            raise ValueError(
                f"{loader.source}: {config.name}: undeclared parameter {{{name}}}: declare it, or "
                f"use get_tools(context_vars={{{name.strip('=')!r}: ...}})"
            )

    async def execute(self, args: JSON, overrides: object = None) -> str:
        return await send(self.request(args), self.secrets)

    def request(self, args: JSON) -> httpx.Request:
        """Build the request. Raises ToolError if a value would change the path."""
        values = {**self.defaults, **args, **self.values}

        def encode(place: re.Match[str]) -> str:
            text = as_text(values.get(place[1]))
            steps = re.split(r"[/\\]", text)
            if "" in steps or "." in steps or ".." in steps:
                raise ToolError(f"{place[1]}: the address requires a value that is not a path")
            return quote(text, safe="")

        endpoint = self.config.endpoint
        method = endpoint.method
        if not method:
            method = "GET" if endpoint.body is None else "POST"
        query = fill(dict(endpoint.query_params or {}), values)
        url = httpx.URL(PLACE.sub(encode, endpoint.url), params=query)
        filled = fill({"headers": dict(endpoint.headers), "body": endpoint.body}, values)
        headers = {name: as_text(value) for name, value in filled["headers"].items()}
        return httpx.Request(method, url, headers=headers, json=filled.get("body"))


def fill(template: Any, values: JSON) -> Any:
    """Fill the places of a template; drop keys and items whose value is missing.

    Places in values are not filled: otherwise the model could read secret values by their names.
    """

    def has_values(item: object) -> bool:
        return not isinstance(item, str) or values.keys() >= set(PLACE.findall(item))

    kind = template.__class__
    if kind is dict:
        return {key: fill(item, values) for key, item in template.items() if has_values(item)}
    if kind is list:
        return [fill(item, values) for item in template if has_values(item)]
    if kind is not str:
        return template
    if whole := PLACE.fullmatch(template):
        return values[whole[1]]
    return PLACE.sub(lambda place: as_text(values[place[1]]), template)


def texts_in(value: Any) -> list[str]:
    """The texts in a nested value."""
    # {"a": ["me", 7]} -> ["me", "7"]
    if value.__class__ is dict:
        value = list(value.values())
    elif value.__class__ not in (list, tuple):
        return [str(value).strip()]
    texts = list[str]()
    for item in value:
        texts += texts_in(item)
    return texts


# ---- an example: a desk, and the service that its tool calls

CONFIG = """
{"basic_settings": {"name": "Desk", "background": "A shop for tea.", "tone": "friendly"},
 "action_books": [
   {"condition": "the customer wants a demo", "action": "save them", "tools": ["save_contact"]}],
 "tools": [{"name": "save_contact", "description": "Save a contact.",
   "parameters": {"type": "object", "properties": {"email": {"type": "string"}},
     "required": ["email"]},
   "endpoint": {"url": "http://localhost:PORT/contacts/{tenant}", "method": "POST",
     "headers": {"Authorization": "Bearer ${DESK_KEY}"}, "body": {"email": "{email}"}}}]}
"""


class Contacts(BaseHTTPRequestHandler):
    """Simulates the service: the response repeats the request."""

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        answer = {"saved": body["email"], "for": self.path, "by": self.headers["Authorization"]}
        print("The service received: POST", self.path)
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.end_headers()
        self.wfile.write(json.dumps(answer).encode())

    def log_message(self, *_: object) -> None: ...


if __name__ == "__main__":
    os.environ["DESK_KEY"] = "a-secret-key"
    with HTTPServer(("127.0.0.1", 0), Contacts) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        loader = ConfigToolLoader(CONFIG.replace("PORT", str(server.server_port)))
        llm = ScriptedModel(call("save_contact", email="ann@tea.example"), "You are on the list.")
        tools = loader.get_tools(context_vars={"tenant": "shop 1"})
        desk = Agent(llm=llm, tools=tools, system_prompt=loader.build_system_prompt())
        print(desk.run_sync("A demo, please: ann@tea.example"))
        server.shutdown()
    print(desk.messages[2].text)
    print(desk.system_prompt)
