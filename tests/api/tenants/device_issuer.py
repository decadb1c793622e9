"""An issuer with device authorization (RFC 8628), rotating refresh tokens and revocation, on a real socket."""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from typing import Any

from tests.api.tenants.issuer import DISCOVERY_PATH, Issuer, send

CLIENT = "berth-cli"
DEVICE, TOKEN, REVOKE = "/device", "/token", "/revoke"
PENDING = "authorization_pending"


class DeviceIssuer(Issuer):
    """The issuer. `script`: errors that polls get before the tokens; `forms`: what was posted, by path, in order.

    `claims_of_tokens` go into each access token, `members` into each token response, `published_endpoints` into discovery; None
    leaves a member out. `secrets`: every code and token that was issued, which nothing may show.
    """

    def __init__(self) -> None:
        super().__init__()
        self.script: list[str] = [PENDING]
        self.forms: list[tuple[str, dict[str, str]]] = []
        self.claims_of_tokens: dict[str, Any] = {}
        self.members: dict[str, Any] = {}
        self.device_members: dict[str, Any] = {"interval": 0, "expires_in": 600}
        self.published_endpoints: dict[str, Any] = {}
        self.refresh_tokens: set[str] = set()
        self.secrets: list[str] = []
        self.device_code = ""

    def document(self, path: str) -> dict[str, Any]:
        """The discovery document names the endpoints."""
        document = super().document(path)
        if path != DISCOVERY_PATH:
            return document
        named = {
            "device_authorization_endpoint": f"{self.address}{DEVICE}", "token_endpoint": f"{self.address}{TOKEN}",
            "revocation_endpoint": f"{self.address}{REVOKE}", **self.published_endpoints,
        }  # fmt: skip
        return document | {name: value for name, value in named.items() if value is not None}

    def answer_post(self, request: BaseHTTPRequestHandler, form: dict[str, str]) -> None:
        """A device code, tokens or an error as the script says, or a revocation."""
        self.forms.append((request.path, form))
        status, document = self._decide(request.path, form)
        members = {name: value for name, value in document.items() if value is not None}
        send(request, status, json.dumps(members).encode())

    def polls(self) -> int:
        """How often the token endpoint was asked with the device code."""
        return sum(1 for path, form in self.forms if path == TOKEN and "device_code" in form)

    def _decide(self, path: str, form: dict[str, str]) -> tuple[int, dict[str, Any]]:
        if form.get("client_id") != CLIENT:
            return 401, {"error": "invalid_client"}
        if path == DEVICE:
            return 200, self._device()
        if path == REVOKE:
            self.refresh_tokens.discard(form["token"])
            return 200, {}
        if form["grant_type"] == "refresh_token":
            if form["refresh_token"] not in self.refresh_tokens:
                return 400, {"error": "invalid_grant"}
            self.refresh_tokens.discard(form["refresh_token"])
            return 200, self._tokens()
        if form["device_code"] != self.device_code:
            return 400, {"error": "invalid_grant"}
        if self.script:
            return 400, {"error": self.script.pop(0), "error_description": f"about {self.device_code}"}
        return 200, self._tokens()

    def _device(self) -> dict[str, Any]:
        self.device_code = self._secret()
        return {
            "device_code": self.device_code, "user_code": "WDJB-MJHT", "verification_uri": f"{self.address}/open",
            "verification_uri_complete": f"{self.address}/open?user_code=WDJB-MJHT", **self.device_members,
        }  # fmt: skip

    def _tokens(self) -> dict[str, Any]:
        access, refresh = self.token("first", **{**self.claims_of_tokens, "jti": secrets.token_hex(8)}), self._secret()
        self.refresh_tokens.add(refresh)
        self.secrets.append(access)
        return {
            "access_token": access, "token_type": "Bearer", "expires_in": 600, "refresh_token": refresh, **self.members,
        }  # fmt: skip

    def _secret(self) -> str:
        self.secrets.append(secrets.token_urlsafe(24))
        return self.secrets[-1]


@contextmanager
def running_device_issuer() -> Iterator[DeviceIssuer]:
    """An issuer with one key."""
    issuer = DeviceIssuer()
    issuer.add_key("first")
    issuer.start()
    try:
        yield issuer
    finally:
        issuer.held.set()
        issuer.stop()
