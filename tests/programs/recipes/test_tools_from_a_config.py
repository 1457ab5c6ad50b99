"""The recipe for tools from a config: values of the model cannot change the rest of a request."""

import json
import logging
import sys
from urllib.parse import parse_qs, quote, quote_plus, unquote

import pytest

from agentloop import Agent, ScriptedModel, ToolError, ToolMessage
from agentloop.models.scripted import call
from agentloop.toolkits.mcp import mcp_servers
from tests.doubles.fault_server import FaultServer, stall
from tests.doubles.web_server import serving
from tests.properties import given, st
from tests.recipes import load

recipe = load("tools_from_a_config")
ConfigToolLoader = recipe.ConfigToolLoader
CONFIG = """
{"basic_settings": {"name": "Desk", "description": "Answers customers.", "background": "A shop for tea.", "language": "English", "tone": "friendly", "chatbot_id": "c1"},
 "action_books": [{"condition": "the customer wants a demo", "action": "save their address", "tools": ["save_contact"]}],
 "tools": [{"name": "save_contact", "description": "Save a contact.",
   "parameters": {"type": "object", "properties": {"email": {"type": "string"}, "tags": {"type": "array", "items": {"type": "string"}}}, "required": ["email"]},
   "endpoint": {"url": "https://api.example.com/contacts/{tenantId}", "method": "POST", "headers": {"Authorization": "Bearer ${CRM_KEY}"},
     "query_params": {"source": "agent"}, "body": {"email": "{email}", "tags": "{tags}", "dialogId": "todo_autofill_by_system"}, "timeout": 30}}]}
"""  # noqa: E501
KEY = "k-12345/67+89"
ENDPOINT = "https://api.example.com/contacts/{tenantId}"
BAD_URLS = [
    "https://{host}/", "https://api.{host}", "{scheme}://h/", "https://h:{port}/", "https://h{path}",
    "ftp://h/", "https://u:p@h/", "https:///x", "h/x", "https://h\\\\@g/", "https://h/?a={x}", "https://h/#a",
]  # fmt: skip
VALUES = ["a&admin=1", "a b", "x#y", "?q=1", "%2e%2e", "é€", "a;b", "{y}", "${SECRET}", "ok/../..b",
          '"},{"', "\x00", "@evil.com", ":80", "a\r\nX: 1", "&", "=", "+"]  # fmt: skip


def http_tool(url, *parameters, context=None, **endpoint):
    """Return the single tool of a config with parameters of any type and an endpoint."""
    properties = {name: {} for name in parameters}
    tool = {
        "name": "t",
        "description": "T",
        "parameters": {"type": "object", "properties": properties},
        "endpoint": {"url": url, **endpoint},
    }
    [only] = ConfigToolLoader(json.dumps({"tools": [tool]})).get_tools(context or {})
    return only


async def failure(tool, args):
    """Return the error of a call, as shown to the model."""
    agent = Agent(llm=ScriptedModel(call(tool.name, **args), "ok"), tools=[tool])
    await agent.run("x")
    assert agent.messages[2].is_error
    return agent.messages[2].text


class TestToolsFromAConfig:
    async def test_the_complete_config_format_is_used_from_file_to_request(
        self, tmp_path, monkeypatch, server
    ):
        monkeypatch.setenv("CRM_KEY", KEY)
        path = tmp_path / "desk.json"
        path.write_text(CONFIG.replace("https://api.example.com", server.url))
        loader = ConfigToolLoader.load_from_file(path)
        assert loader.basic_settings.chatbot_id == "c1"
        assert loader.build_system_prompt() == (
            "Name: Desk\nDescription: Answers customers.\nBackground: A shop for tea.\n"
            "Language: English\nTone: friendly\n"
            "When the customer wants a demo: save their address. Tools: save_contact"
        )
        tools = loader.get_tools(context_vars={"tenantId": "t 1", "dialogId": 7})
        assert tools[0].timeout == 30
        script = [call("save_contact", email="a@b.c", tags=["x"]), call("save_contact", email="d")]
        agent = Agent(llm=ScriptedModel(*script, "ok"), tools=tools)
        await agent.query("x")
        results = [message.text for message in agent.messages if isinstance(message, ToolMessage)]
        assert results == ["200 OK \n{}"] * 2
        (first, headers, body), (_, _, other) = server.got
        assert first == "POST /contacts/t%201?source=agent HTTP/1.1"
        assert headers["authorization"] == f"Bearer {KEY}"
        assert headers["host"] == f"127.0.0.1:{server.port}"
        assert headers["content-type"] == "application/json"
        assert "cookie" not in headers
        assert body == {"email": "a@b.c", "tags": ["x"], "dialogId": 7}
        assert other == {"email": "d", "dialogId": 7}

    async def test_a_placeholder_keeps_the_type_and_a_missing_value_removes_its_key(self, server):
        inside = [{"y": "a{y}"}, "{y}", "{x}"]
        body = {"all": "{x}", "text": "<{x}>", "y": "{y}", "in": inside, "n": 1}
        places = {"body": body, "query_params": {"x": "{x}", "y": "{y}"}}
        tool = http_tool(server.url, "x", "y", method="PUT", **places)
        for value in ({"a": [1]}, 5, True, None, [2, "z"]):
            await tool.execute({"x": value})
            text = "" if value is None else json.dumps(value, separators=(",", ":"))
            sent = {"all": value, "text": f"<{text}>", "in": [{}, value], "n": 1}
            assert server.got[-1][2] == sent
        await tool.execute({"x": [2, "z"]})
        assert server.got[-1][0] == "PUT /?x=2&x=z HTTP/1.1"

    @pytest.mark.parametrize(
        ("old", "new", "words"),
        [
            (
                '"url": ',
                '"method": "GET", "ur": ',
                r"tools.0.endpoint\n.*'ur'. Did you mean 'url'",
            ),
            ('"timeout": 30', '"timeout": 0', "endpoint.timeout\n.*greater"),
            (
                '"timeout": 30',
                '"timeou": 30',
                "tools.0.endpoint\n.*'timeou'. Did you mean 'timeout'",
            ),
            ('"name": "save_contact"', '"name": "save contact"', "tools.0.name\n.*match"),
            ('"Bearer ${CRM_KEY}"', "1", "endpoint.headers"),
            ("{tenantId}", "${NO_KEY}", "set 'NO_KEY' in"),
            ('["save_contact"]', '["save_kontact"]', "action_books: tools: .*save_kontact"),
            ('"tools": [{', '"tools": [}', "Invalid JSON: .*line 4 column 12"),
            *[(ENDPOINT, url, "endpoint.url\n.*pattern") for url in BAD_URLS],
        ],
    )
    def test_an_invalid_config_is_an_error_with_file_key_and_remedy(
        self, tmp_path, monkeypatch, old, new, words
    ):
        monkeypatch.setenv("CRM_KEY", KEY)
        path = tmp_path / "desk.json"
        assert old in CONFIG
        path.write_text(CONFIG.replace(old, new))
        with pytest.raises(ValueError, match=f"(?s)desk.json: .*{words}") as caught:
            ConfigToolLoader.load_from_file(path)
        assert KEY not in str(caught.value)

    def test_a_placeholder_without_a_parameter_or_context_value_is_an_error(self):
        for parameter, body in ("x", "{z}"), ("z", {"z": "todo_autofill_by_system"}):
            with pytest.raises(ValueError, match=r"config: t: .*context_vars={'z': ...}"):
                http_tool("https://h/", parameter, body=body)

    @given(st.sampled_from(VALUES) | st.text(max_size=20))
    def test_a_value_cannot_change_other_parts_of_the_request(self, value):
        body = {"k": "{x}", "t": "<{x}>"}
        places = {"body": body, "query_params": {"r": "{x}", "{x}": "1"}, "headers": {"{x}": "1"}}
        tool = http_tool("https://h.example/a/{x}/b-{x}", "x", context={"y": "context"}, **places)
        try:
            request = tool.request({"x": value})
        except ToolError:
            assert {*value.replace("\\", "/").split("/")} & {"", ".", ".."}
            return
        assert json.loads(request.content) == {"k": value, "t": f"<{value}>"}
        assert (request.url.scheme, request.url.netloc) == ("https", b"h.example")
        path, _, query = request.url.raw_path.decode().partition("?")
        assert [unquote(segment) for segment in path.split("/")] == ["", "a", value, f"b-{value}"]
        assert parse_qs(query, True, errors="strict") == {"r": [value], "{x}": ["1"]}
        assert request.headers["{x}"] == "1"  # placeholders in header names are not replaced
        assert request.url.fragment == ""

    async def test_a_value_that_would_change_the_path_is_rejected(self, server):
        tool = http_tool(f"{server.url}/a/{{x}}/b", "x")
        values = ["", ".", "..", "a/..", "../a", "a//b", "..\\a", "/", "a/", None]
        for args in (*({"x": value} for value in values), {}):
            assert "x: the address requires a value" in await failure(tool, args)
        assert server.connections == 0

    async def test_a_header_value_with_line_breaks_or_non_ascii_characters_is_rejected(
        self, server
    ):
        tool = http_tool(server.url, "x", headers={"X-Tenant": "t-{x}"})
        for value in ("a\r\nX-Admin: 1", "a\nb", "\x00"):
            assert "Illegal header value" in await failure(tool, {"x": value})
        assert "ascii" in await failure(tool, {"x": "é"})
        assert server.got == []
        await tool.execute({"x": "7"})
        assert server.got[0][1]["x-tenant"] == "t-7"

    async def test_the_model_fills_in_only_its_parameters_in_one_pass(self, server, monkeypatch):
        monkeypatch.setenv("SECRET", KEY)
        body = {"x": "{x}", "tenant": "{tenant}", "id": "todo_autofill_by_system"}
        context = {"tenant": "{x}", "id": "${SECRET}"}
        tool = http_tool(server.url, "x", context=context, method="POST", body=body)
        evil = dict.fromkeys(["tenant", "id", "=id"], "evil")
        await tool.execute({"x": "{tenant} ${SECRET}"} | evil)
        assert server.got[0][2] == {"x": "{tenant} ${SECRET}", "tenant": "{x}", "id": "${SECRET}"}

    async def test_a_secret_is_masked_in_every_encoding_of_a_response(
        self, server, monkeypatch, caplog
    ):
        caplog.set_level(logging.DEBUG)
        for secret in (KEY, 'pa"ss w\\ord'):
            monkeypatch.setenv("CRM_KEY", secret + "\n")
            headers = {"Authorization": "Bearer ${CRM_KEY}", "X-T": "{x}"}
            tool = http_tool(server.url, "x", headers=headers, query_params={"key": "${CRM_KEY}"})
            quoted = quote(secret, ""), quote_plus(secret)
            forms = [secret, json.dumps(secret), repr(secret), *quoted]
            server.reply(body="\n".join(forms).encode())
            text = await tool.execute({"x": "1"})
            assert text.count("***") == len(forms)
            first, sent, _ = server.got[-1]
            assert sent["authorization"] == f"Bearer {secret}"
            assert quote_plus(secret) in first.replace("%20", "+")
            server.reply("401 No", body=f"{secret} is wrong".encode())
            text += await failure(tool, {"x": "1"})
            assert "*** is wrong" in text
            server.answer = b""
            text += await failure(tool, {"x": "1"}) + await failure(tool, {"x": "\n1"})
            texts = text + repr(tool) + caplog.text
            assert not [form for form in (*forms, secret[:5]) if form in texts]

    async def test_a_truncated_error_contains_no_part_of_a_long_token(self, server):
        token = "".join(f"{number:05}" for number in range(200))
        headers = {"Authorization": "Bearer {token}"}
        tool = http_tool(server.url, context={"token": f"{token}\n"}, headers=headers)
        text = await failure(tool, {})  # a line break is invalid in a header and quoted
        assert "Bearer ***" in text
        assert token[:20] not in text

    @pytest.mark.parametrize("token", ["to/ken+67", "Bearer abc/def\n"])
    async def test_values_of_context_vars_are_masked(self, server, token):
        context = {"token": token, "login": {"password": "pa$$/word"}}
        headers = {"Authorization": "{token}"}
        body = {"login": "{login}"}
        tool = http_tool(server.url, context=context, headers=headers, method="POST", body=body)
        texts = f"{tool!r} {tool.config.endpoint!r} {vars(tool)}"
        server.reply(
            body=rb'{"token": "to\/ken+67", "path": "to%2fken%2B67", "login": "pa$$\/word"}'
        )
        if "\n" in token:
            texts += await failure(tool, {})
            assert "Illegal header value b'***" in texts
        else:
            text = await tool.execute({})
            assert text.endswith('{"token": "***", "path": "***", "login": "***"}')
            assert server.got[0][1]["authorization"] == token
            assert server.got[0][2] == {"login": {"password": "pa$$/word"}}
        assert not [secret for secret in ("ken", "abc", "/def", "pa$$") if secret in texts]

    def test_the_repr_of_a_tool_or_a_loader_shows_no_variable(self, monkeypatch):
        monkeypatch.setenv("CRM_KEY", KEY)
        loader = ConfigToolLoader(CONFIG)
        [tool] = loader.get_tools({"tenantId": "t", "dialogId": "d"})
        texts = f"{vars(loader)} {loader.config} {vars(tool)} {tool.config.endpoint}"
        assert KEY not in texts

    @pytest.mark.parametrize("addresses", [["127.0.0.1"], ["93.184.216.34", "169.254.169.254"]])
    async def test_a_public_name_that_resolves_to_a_private_address_is_rejected(
        self, resolver, addresses
    ):
        resolver["api.example.com"] = [addresses]
        assert "private address" in await failure(http_tool("https://api.example.com/x"), {})

    async def test_no_redirect_is_followed(self, server):
        async with serving() as inner:
            server.reply("302 Found", b"moved", Location=f"{inner.url}/admin")
            text = await failure(http_tool(server.url), {})
            assert text == f"302 Found {inner.url}/admin\nmoved"
            assert inner.connections == 0

    async def test_a_slow_server_is_an_error_result(self):
        async with FaultServer([stall()]) as mute:
            text = await failure(http_tool(mute.url, timeout=0.1), {})
            assert "not finished within 0.1 seconds" in text

    async def test_the_default_method_is_post_with_a_body_and_get_without(self, server):
        await http_tool(server.url, "x", body={"x": "{x}"}).execute({"x": 5})
        assert (server.got[0][0], server.got[0][2]) == ("POST / HTTP/1.1", {"x": 5})
        await http_tool(server.url).execute({})
        assert server.got[1][0] == "GET / HTTP/1.1"


def test_the_texts_of_a_value_are_collected_recursively():
    assert recipe.texts_in({"a": ["me\n", 7], "b": {"c": ("x", None)}}) == ["me", "7", "x", "None"]


# ---- config files of bu_agent_sdk forks

FORK = """
{"basic_settings": {"name": "Desk", "description": "Answers.", "chatbot_id": null},
 "tools": [{"name": "add", "description": "Add.",
   "parameters": {"type": "object", "properties": {
     "email": {"type": "string", "examples": ["a@b.c"]},
     "country": {"type": "string", "default": "LV"}, "tag": {"type": "string", "default": null}},
     "required": ["email"]},
   "endpoint": {"url": "URL/add", "headers": {"Content-Type": "application/json"},
     "query_params": null, "body": {"email": "{email}", "phone": "todo_autofill_by_system",
       "attrs": [{"key": "country", "value": {"country": "{country}"}}], "tag": "{tag}"}}}],
 "mcp_servers": [
   {"name": "browser", "transport": "sse", "url": "http://localhost:3000", "timeout": 30},
   {"name": "hub", "transport": "stdio", "command": "hub", "args": ["-y"], "enabled": false,
     "env": {"TOKEN": "${HUB_TOKEN}"}}]}
"""


async def test_a_config_file_of_a_fork_is_read_and_used(server, monkeypatch):
    monkeypatch.setenv("HUB_TOKEN", KEY)
    text = FORK.replace("URL", server.url)
    config = ConfigToolLoader.load_from_dict(json.loads(text))
    assert config.basic_settings.chatbot_id is None
    assert [tool.name for tool in config.config.tools] == ["add"]
    assert config.action_books == ()
    [tool] = config.get_tools(context_vars={"phone": "+371"})
    assert list(tool.config.parameters["properties"]) == ["email", "country", "tag"]
    await tool.execute({"email": "a@b.c"})
    first, headers, body = server.got[0]
    assert (first, headers["content-type"]) == ("POST /add HTTP/1.1", "application/json")
    attrs = [{"key": "country", "value": {"country": "LV"}}]
    assert body == {"email": "a@b.c", "phone": "+371", "attrs": attrs}
    assert KEY not in f"{config.config!r}"


def test_the_schema_of_a_config_contains_its_sections():
    schema = recipe.export_config_schema()
    assert schema["properties"].keys() == {"basic_settings", "action_books", "tools", "mcp_servers"}
    assert "chatbot_id" in schema["$defs"]["BasicSettings"]["properties"]


async def test_the_mcp_servers_of_a_fork_are_converted_for_the_toolkit(monkeypatch):
    monkeypatch.setenv("HUB_TOKEN", KEY)
    listed = json.loads(FORK)["mcp_servers"]
    text = recipe.mcp_json(FORK)
    assert KEY not in text, "the toolkit inserts and masks the variable"
    servers = json.loads(text)["mcpServers"]
    assert servers["hub"] == {
        "type": "stdio", "command": "hub", "args": ["-y"], "enabled": False,
        "env": {"TOKEN": "${HUB_TOKEN}"},
    }  # fmt: skip
    command = [sys.executable, "-c", "raise SystemExit(3)"]
    listed[0] = {"name": "gone", "transport": "stdio", "command": command[0], "args": command[1:]}
    pytest.importorskip("mcp")
    text = recipe.mcp_json(json.dumps({"mcp_servers": listed}))
    async with mcp_servers("agent.json", text) as [server]:
        assert (server.name, server.config.type) == ("gone", "stdio")
        assert server.error
