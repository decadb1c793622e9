"""A real issuer of tokens on a real socket: it publishes keys, rotates them, and misbehaves on request."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from berth.local.servers import free_port

AUDIENCE = "berth"
ADMIN_ROLE = "berth-operators"
HELD_SECONDS_MAX = 60.0
JWKS_PATH = "/keys"
DISCOVERY_PATH = "/.well-known/openid-configuration"
SigningKey = rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey | ed25519.Ed25519PrivateKey
# Making an RSA key takes long; tests that do not compare keys share one.
SOME_RSA_KEY = rsa.generate_private_key(65537, 2048)
ALGORITHMS = ("RS256", "ES256", "EdDSA")


def new_signing_key(algorithm: str) -> SigningKey:
    """A key of the algorithm's type."""
    if algorithm == "RS256":
        return SOME_RSA_KEY
    return ec.generate_private_key(ec.SECP256R1()) if algorithm == "ES256" else ed25519.Ed25519PrivateKey.generate()


def public_jwk(key: SigningKey, **members: Any) -> dict[str, Any]:
    """The public half as a JWK."""
    if isinstance(key, rsa.RSAPrivateKey):
        own: dict[str, Any] = jwt.algorithms.RSAAlgorithm.to_jwk(key.public_key(), as_dict=True)
        del own["key_ops"]
    elif isinstance(key, ec.EllipticCurvePrivateKey):
        own = jwt.algorithms.ECAlgorithm.to_jwk(key.public_key(), as_dict=True)
    else:
        own = jwt.algorithms.OKPAlgorithm.to_jwk(key.public_key(), as_dict=True)
    return {**own, "use": "sig", **members}


def public_pem(key: SigningKey) -> bytes:
    """The public half as PEM: what confused verifiers take for an HMAC secret."""
    return key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)


def encoded(value: Any) -> str:
    """Base64url without padding, of bytes or of JSON."""
    raw = value if isinstance(value, bytes) else json.dumps(value).encode()
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def signed(claims: Any, key: SigningKey, headers: dict[str, Any]) -> str:
    """A token with any claims whatever, even those that a library for tokens would not sign."""
    kinds = {rsa.RSAPrivateKey: "RS256", ec.EllipticCurvePrivateKey: "ES256", ed25519.Ed25519PrivateKey: "EdDSA"}
    algorithm = next(name for kind, name in kinds.items() if isinstance(key, kind))
    return jwt.PyJWS().encode(json.dumps(claims).encode(), key, algorithm, {"typ": "JWT", **headers})


def hmac_token(header: dict[str, Any], claims: dict[str, Any], secret: bytes) -> str:
    """A token signed with a shared secret, as no library would let itself be talked into."""
    signed = f"{encoded(header)}.{encoded(claims)}"
    return f"{signed}.{encoded(hmac.new(secret, signed.encode(), hashlib.sha256).digest())}"


class Issuer:
    """The issuer. `answers` overrides what a path is answered; while `held` is clear, nothing is answered."""

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        self.port = free_port()
        self.address = f"{'http' if tls is None else 'https'}://127.0.0.1:{self.port}"
        self.url = f"{self.address}/realms/cloud"
        self._tls = tls
        self.keys: dict[str, SigningKey] = {}
        self.published: list[dict[str, Any]] = []
        self.answers: dict[str, Callable[[BaseHTTPRequestHandler], None]] = {}
        self.asked: list[str] = []
        self.held = threading.Event()
        self.held.set()
        self._server: ThreadingHTTPServer | None = None

    def add_key(self, key_id: str, algorithm: str = "ES256", *, published: bool = True) -> SigningKey:
        """A new key to sign with."""
        key = self.keys[key_id] = new_signing_key(algorithm)
        if published:
            self.publish(public_jwk(key, kid=key_id))
        return key

    def publish(self, *members: dict[str, Any]) -> None:
        """List further keys."""
        self.published = [*self.published, *members]

    def withdraw(self, key_id: str) -> None:
        """List a key no longer."""
        self.published = [member for member in self.published if member["kid"] != key_id]

    def fetches(self) -> int:
        """How often the key set was asked for."""
        return self.asked.count(JWKS_PATH)

    def claims(self, **changes: Any) -> dict[str, Any]:
        """Valid claims without a principal; a change to None leaves one out."""
        now = int(time.time())
        good = {"iss": self.url, "aud": AUDIENCE, "sub": "subject", "iat": now, "exp": now + 600}
        return {name: value for name, value in {**good, **changes}.items() if value is not None}

    def token(self, key_id: str, headers: dict[str, Any] | None = None, **changes: Any) -> str:
        """A token signed with one of the keys."""
        return signed(self.claims(**changes), self.keys[key_id], {"kid": key_id, **(headers or {})})

    def document(self, path: str) -> dict[str, Any]:
        """What a well-behaved issuer says."""
        if path == JWKS_PATH:
            return {"keys": self.published}
        return {"issuer": self.url, "jwks_uri": f"{self.address}{JWKS_PATH}"}

    def start(self) -> None:
        """Listen, at the same address each time."""
        issuer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                path = self.path.removeprefix("/realms/cloud")
                issuer.asked.append(path)
                issuer.held.wait(HELD_SECONDS_MAX)
                try:
                    issuer.answers.get(path, issuer.answer_well)(self)
                except OSError:
                    self.close_connection = True  # the caller went away, as it may

            def do_POST(self) -> None:
                issuer.held.wait(HELD_SECONDS_MAX)
                form = self.rfile.read(int(self.headers.get("content-length", "0"))).decode()
                try:
                    issuer.answer_post(self, dict(parse_qsl(form)))
                except OSError:
                    self.close_connection = True  # the caller went away, as it may

            def log_message(self, *arguments: Any) -> None:
                """Say nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", self.port), Handler)
        if self._tls is not None:
            self._server.socket = self._tls.wrap_socket(self._server.socket, server_side=True)
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()

    def answer_well(self, request: BaseHTTPRequestHandler) -> None:
        """The right document, or 404."""
        path = request.path.removeprefix("/realms/cloud")
        known = path in (JWKS_PATH, DISCOVERY_PATH)
        send(request, 200 if known else 404, json.dumps(self.document(path)).encode())

    def answer_post(self, request: BaseHTTPRequestHandler, form: dict[str, str]) -> None:
        """404: this issuer gives out no tokens by itself."""
        send(request, 404, b"{}")

    def stop(self) -> None:
        """Be unreachable from now on."""
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server = None


def send(request: BaseHTTPRequestHandler, status: int, body: bytes, **headers: str) -> None:
    """A whole answer."""
    request.send_response(status)
    for name, value in {"content-type": "application/json", "content-length": str(len(body)), **headers}.items():
        request.send_header(name.replace("_", "-"), value)
    request.end_headers()
    request.wfile.write(body)


@contextmanager
def running_issuer(tls: ssl.SSLContext | None = None) -> Iterator[Issuer]:
    """An issuer with one key, `first`."""
    issuer = Issuer(tls)
    issuer.add_key("first")
    issuer.start()
    try:
        yield issuer
    finally:
        issuer.held.set()
        issuer.stop()
