"""An MCP server with OAuth, and its authorization server, on loopback addresses.

A code is valid once and for one verifier, and a token only for this server. See RFC 6749, 7636
(verifier), 7591 (registration), 8414 and 9728 (metadata).
"""

import asyncio
from base64 import urlsafe_b64encode
from contextlib import asynccontextmanager
from hashlib import sha256
from urllib.parse import urlencode

import uvicorn
from mcp.server import MCPServer
from starlette.applications import Starlette
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import Route


class OAuthServer:
    """An MCP server whose tool `whoami` requires a token issued by this server."""

    def __init__(self):
        self.url = ""
        self.clients, self.codes, self.tokens = {}, {}, []
        server = MCPServer("private")
        server.tool(name="whoami")(lambda: "you")
        self.inside = server.streamable_http_app()
        well_known = "/.well-known/oauth"
        routes = [
            Route(f"{well_known}-protected-resource/mcp", self.resource),
            Route(f"{well_known}-authorization-server", self.places),
            Route("/register", self.register, methods=["POST"]),
            Route("/authorize", self.authorize),
            Route("/token", self.token, methods=["POST"]),
        ]
        self.login = Starlette(routes=routes)

    async def __call__(self, scope, receive, send):
        if scope["type"] != "http" or scope["path"] != "/mcp":
            app = self.inside if scope["type"] == "lifespan" else self.login
            await app(scope, receive, send)
            return
        header = dict(scope["headers"]).get(b"authorization", b"").decode()
        if header.removeprefix("Bearer ") in self.tokens:
            await self.inside(scope, receive, send)
            return
        where = f"{self.url}/.well-known/oauth-protected-resource/mcp"
        refused = {"WWW-Authenticate": f'Bearer resource_metadata="{where}"'}
        await Response(status_code=401, headers=refused)(scope, receive, send)

    async def resource(self, request):
        about = {"resource": f"{self.url}/mcp", "authorization_servers": [self.url]}
        return JSONResponse(about)

    async def places(self, request):
        return JSONResponse(
            {
                "issuer": self.url,
                "authorization_endpoint": f"{self.url}/authorize",
                "token_endpoint": f"{self.url}/token",
                "registration_endpoint": f"{self.url}/register",
                "response_types_supported": ["code"],
                "code_challenge_methods_supported": ["S256"],
                "token_endpoint_auth_methods_supported": ["none"],
            }
        )

    async def register(self, request):
        client = await request.json() | {"client_id": f"client{len(self.clients)}"}
        self.clients[client["client_id"]] = client
        return JSONResponse(client, status_code=201)

    async def authorize(self, request):
        query = request.query_params
        client = self.clients[query["client_id"]]
        assert query["redirect_uri"] in client["redirect_uris"]
        assert query["code_challenge_method"] == "S256"
        assert query["resource"] == f"{self.url}/mcp"
        code = f"code{len(self.codes)}"
        self.codes[code] = query["code_challenge"]
        back = urlencode({"code": code, "state": query["state"]})
        return RedirectResponse(f"{query['redirect_uri']}?{back}")

    async def token(self, request):
        form = await request.form()
        challenge = urlsafe_b64encode(sha256(form["code_verifier"].encode()).digest())
        assert self.codes.pop(form["code"]) == challenge.decode().rstrip("=")
        self.tokens.append(f"token{len(self.tokens)}")
        return JSONResponse({"access_token": self.tokens[-1], "token_type": "Bearer"})


@asynccontextmanager
async def oauth_server():
    """Start the server, and yield it with its `url`."""
    app = OAuthServer()
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="error", lifespan="on"))
    serving = asyncio.create_task(server.serve())
    try:
        while not server.started:
            await asyncio.sleep(0.01)
        port = server.servers[0].sockets[0].getsockname()[1]
        app.url = f"http://127.0.0.1:{port}"
        yield app
    finally:
        server.should_exit = True
        await serving
