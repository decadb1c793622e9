"""An OIDC issuer as `berth login` uses it: device authorization (RFC 8628), refresh, revocation (RFC 7009).

Only https, or http to a loopback address; no redirects. Of what the issuer answers, only the address and the code for the user
and the name of an error are printed. Tokens are in no message.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import urlsplit

import httpx

from berth.cli.endings import UNREACHABLE, Refused
from berth.client.errors import BerthError
from berth.client.requests.credentials import require_confidential
from berth.process.json_objects import JsonMapping, JsonObject

DISCOVERY_PATH: Final = "/.well-known/openid-configuration"
DEVICE_GRANT: Final = "urn:ietf:params:oauth:grant-type:device_code"
BYTES_MAX: Final = 262_144
REQUEST_SECONDS: Final = 10.0
INTERVAL_SECONDS: Final = 5.0
"""RFC 8628 §3.2: between two polls if the issuer names none, and what each `slow_down` adds."""
INTERVAL_SECONDS_MAX: Final = 60.0
DEVICE_SECONDS_MAX: Final = 3_600.0
TOKEN_SECONDS: Final = 300.0
"""Assumed life of a token whose response names none."""
TOKEN_LENGTH_MAX: Final = 16_384
_ERROR = re.compile(r"[a-z_]{1,64}")
_ENDPOINTS: Final = ("device_authorization_endpoint", "token_endpoint", "revocation_endpoint")


@dataclass(frozen=True, slots=True)
class Endpoints:
    """What the issuer's discovery document names."""

    device: str
    token: str
    revocation: str | None


@dataclass(frozen=True, slots=True)
class DeviceCode:
    """What the user opens and enters, and what the command polls with."""

    device_code: str = field(repr=False)
    user_code: str
    verification_uri: str
    verification_uri_complete: str | None
    expires_in: float
    interval: float


@dataclass(frozen=True, slots=True)
class Tokens:
    """Tokens of a response. `expires_at`: of the access token, Unix seconds. `refresh_token` None: none came."""

    access_token: str = field(repr=False)
    refresh_token: str | None = field(repr=False)
    expires_at: float


class TokenDenied(Refused):
    """The issuer refused a token; `error` is the code of its answer (RFC 6749 §5.2)."""

    def __init__(self, error: str, detail: str, code: str = "login_failed") -> None:
        super().__init__(detail, code=code)
        self.error = error


def require_issuer(url: str, what: str) -> str:
    """The address, if a token may be sent there. Raises `Refused`."""
    try:
        parts = urlsplit(url)
        _ = parts.port  # read for its ValueError
        usable = (
            parts.scheme in ("https", "http") and bool(parts.hostname) and parts.username is None and url.isprintable()
        )
        if usable:
            require_confidential(url)
    except (ValueError, BerthError):
        usable = False
    if not usable:
        raise Refused(f"{what} must be https://, or http:// on a loopback address", code="login_address")
    return url


def discover(http: httpx.Client, issuer: str) -> Endpoints:
    """The endpoints of the issuer. Raises `Refused` if it names none for devices, or unusable ones."""
    document = _document(_answer(http, "GET", issuer.rstrip("/") + DISCOVERY_PATH, None))
    if document.get("issuer") != issuer:
        raise Refused(
            f"the discovery document is of another issuer than {issuer}; give the exact `iss`", code="login_failed"
        )
    found: dict[str, str | None] = {}
    for name in _ENDPOINTS:
        url = document.get(name)
        found[name] = require_issuer(url, f"the issuer's {name}") if isinstance(url, str) else None
    device, token = found["device_authorization_endpoint"], found["token_endpoint"]
    if device is None or token is None:
        raise Refused("the issuer offers no login for devices (RFC 8628); use an API key", code="login_unsupported")
    return Endpoints(device, token, found["revocation_endpoint"])


def begin(http: httpx.Client, endpoints: Endpoints, client_id: str, scope: str, audience: str | None) -> DeviceCode:
    """Ask for a code for the user. Raises `Refused`."""
    asked = {"client_id": client_id, "scope": scope, **({} if audience is None else {"audience": audience})}
    answer = _answer(http, "POST", endpoints.device, asked)
    document = _document(answer)
    if answer.status_code != 200:
        raise TokenDenied(
            _error(document), f"the issuer refused the login ({_error(document)}); check --client-id and --scope"
        )
    texts = [document.get(name) for name in ("device_code", "user_code", "verification_uri")]
    if not all(isinstance(text, str) and text.isprintable() and 0 < len(text) <= 2_000 for text in texts):
        raise Refused("the issuer answered no code; nothing was stored", code="login_failed")
    complete = document.get("verification_uri_complete")
    return DeviceCode(
        str(texts[0]),
        str(texts[1]),
        require_issuer(str(texts[2]), "the issuer's verification_uri"),
        require_issuer(complete, "the issuer's verification_uri_complete") if isinstance(complete, str) else None,
        min(_seconds(document.get("expires_in"), DEVICE_SECONDS_MAX), DEVICE_SECONDS_MAX),
        min(_seconds(document.get("interval"), INTERVAL_SECONDS), INTERVAL_SECONDS_MAX),
    )


def poll(
    http: httpx.Client,
    endpoints: Endpoints,
    client_id: str,
    code: DeviceCode,
    *,
    pause: Callable[[float], None] = time.sleep,
    now: Callable[[], float] = time.monotonic,
) -> Tokens:
    """The tokens, once the user has entered the code. Raises `Refused` if the user denies it or the code expires.

    Each `slow_down` adds `INTERVAL_SECONDS` to the interval; a failed connection doubles it (RFC 8628 §3.5).
    """
    ends, interval = now() + code.expires_in, code.interval
    asked = {"grant_type": DEVICE_GRANT, "device_code": code.device_code, "client_id": client_id}
    while now() + interval < ends:
        pause(interval)
        try:
            return request_tokens(http, endpoints.token, asked)
        except TokenDenied as denied:
            if denied.error == "slow_down":
                interval += INTERVAL_SECONDS
            elif denied.error == "access_denied":
                raise TokenDenied(denied.error, "the login was denied; nothing was stored", "login_denied") from None
            elif denied.error == "expired_token":
                break
            elif denied.error != "authorization_pending":
                raise
        except Refused as failed:
            if failed.exit_code != UNREACHABLE:
                raise
            interval = min(max(interval, 1.0) * 2, INTERVAL_SECONDS_MAX)
    raise Refused("the code expired before it was entered; run `berth login` again", code="login_expired")


def request_tokens(http: httpx.Client, endpoint: str, asked: Mapping[str, str]) -> Tokens:
    """The tokens of one request. Raises `TokenDenied` with the issuer's error, `Refused` for an unusable answer."""
    answer = _answer(http, "POST", endpoint, asked)
    document = _document(answer)
    if answer.status_code != 200:
        raise TokenDenied(_error(document), f"the issuer refused the token ({_error(document)}); run `berth login`")
    token, refresh = document.get("access_token"), document.get("refresh_token")
    if str(document.get("token_type", "")).lower() != "bearer" or not _is_jwt(token):
        raise Refused(
            "the issuer gave no JWT as the access token, which the API needs; ask for the API's audience (--audience, --scope)",
            code="login_unusable",
        )
    usable = (
        isinstance(refresh, str)
        and refresh.isascii()
        and refresh.isprintable()
        and 0 < len(refresh) <= TOKEN_LENGTH_MAX
    )
    lasts = _seconds(document.get("expires_in"), TOKEN_SECONDS)
    return Tokens(str(token), refresh if usable else None, time.time() + lasts)


def revoke(http: httpx.Client, endpoint: str, client_id: str, token: str) -> bool:
    """Have the issuer forget a refresh token; return whether it did."""
    asked = {"token": token, "token_type_hint": "refresh_token", "client_id": client_id}
    try:
        return _answer(http, "POST", require_issuer(endpoint, "the revocation endpoint"), asked).status_code == 200
    except Refused:
        return False


def _answer(http: httpx.Client, method: str, url: str, form: Mapping[str, str] | None) -> httpx.Response:
    """The whole answer, within bounds of time and size. Raises `Refused`, unreachable or unusable."""
    headers = {"accept": "application/json", "user-agent": "berth-cli"}
    try:
        with http.stream(method, url, data=form, headers=headers, timeout=REQUEST_SECONDS) as answer:
            read = bytearray()
            for piece in answer.iter_bytes():
                read += piece
                if len(read) > BYTES_MAX:
                    raise Refused(f"the issuer answered more than {BYTES_MAX:,} bytes", code="login_failed")
            return httpx.Response(answer.status_code, content=bytes(read))
    except (httpx.HTTPError, httpx.InvalidURL, OSError) as error:
        raise Refused(
            f"cannot reach the issuer at {urlsplit(url).netloc} ({type(error).__name__})", code="issuer_unreachable",
            exit_code=UNREACHABLE,
        ) from None  # fmt: skip


def _document(answer: httpx.Response) -> JsonObject:
    """The JSON object of an answer. Raises `Refused`; a busy issuer counts as one that cannot be reached."""
    try:
        document = json.loads(answer.content)
    except ValueError:
        document = None
    if isinstance(document, dict):
        return document
    busy = answer.status_code >= 500 or answer.status_code == 429
    raise Refused(
        f"the issuer answered {answer.status_code} without a JSON object", code="login_failed",
        **({"exit_code": UNREACHABLE} if busy else {}),
    )  # fmt: skip


def _error(document: JsonMapping) -> str:
    error = document.get("error")
    return error if isinstance(error, str) and _ERROR.fullmatch(error) else "unknown error"


def _seconds(value: object, default: float) -> float:
    """A duration of an answer; the default if it is absent or no number."""
    usable = isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 2**31
    return float(value) if usable else default  # type: ignore[arg-type]


def _is_jwt(token: object) -> bool:
    return (
        isinstance(token, str) and token.count(".") == 2 and token.isascii() and token.isprintable()
        and len(token) <= TOKEN_LENGTH_MAX
    )  # fmt: skip
