"""A token server (OAuth 2, client credentials) with the API behind it."""

from __future__ import annotations

from aiohttp import web

from fetchers.toolkit.auth import ClientCredentials

SECRET = "s3cr3t-0815-4711"


class TokenServer:
    """A token server and the API behind it, which takes the newest token only."""

    def __init__(self) -> None:
        self.url = ""
        self.forms: list[dict[str, str]] = []
        self.headers: list[str | None] = []
        self.asked: list[str | None] = []
        """How each request to the API was authorized."""
        self.life: object = 3600
        self.valid = ""
        self.broken: web.Response | None = None

    async def answer(self, request: web.Request) -> web.Response:
        """A token, or the API's answer."""
        if request.path == "/token":
            if self.broken is not None:
                return self.broken
            self.forms.append({name: str(text) for name, text in (await request.post()).items()})
            self.headers.append(request.headers.get("Authorization"))
            self.valid = f"token-{len(self.forms)}-{SECRET}"
            token = {"access_token": self.valid, "token_type": "Bearer", "expires_in": self.life}
            return web.json_response({name: value for name, value in token.items() if value is not None})
        self.asked.append(request.headers.get("Authorization"))
        if self.asked[-1] != f"Bearer {self.valid}":
            return web.Response(status=401, text=f"bad: {self.asked[-1]}")
        return web.json_response([])

    def client(self, *, is_secret_in_body: bool = False) -> ClientCredentials:
        """A client of this server."""
        return ClientCredentials(
            f"{self.url}/token", "me", SECRET, scope="read write", is_secret_in_body=is_secret_in_body
        )
