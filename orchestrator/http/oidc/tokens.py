"""Whether a token was made by our issuer for us, now: compact JWS (RFC 7515, 7519) under the advice of RFC 8725.

Signatures and registered claims are checked by PyJWT, with the one algorithm that the issuer's key serves. Nothing that a
token says decides how it is checked, save for the id of its key; keys that a token brings itself (`jwk`, `jku`, `x5u`)
are not looked at.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Final

import jwt

from berth.process.json_objects import JsonMapping
from orchestrator.http.oidc.key_sets import ALGORITHMS, IssuerKey
from orchestrator.http.oidc.token_refusals import TokenExpired, TokenInvalid, TokenNotYetValid

TOKEN_LENGTH_MAX: Final = 16_384
# Exactly one form of each token: padding and foreign characters, which some decoders drop, are refused.
_COMPACT: Final = re.compile(r"[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]*")
_TYPES: Final = frozenset({"jwt", "at+jwt", "application/jwt", "application/at+jwt"})  # RFC 8725 §3.11, RFC 9068
_REQUIRED: Final = ("iss", "aud", "sub", "iat", "exp")
_TIMES: Final = ("iat", "nbf", "exp")
_TIME_MAX: Final = 2**53


@dataclass(frozen=True, slots=True)
class TokenRules:
    """What a token must say: exactly this issuer, this audience among its audiences, times with this leeway."""

    issuer: str
    audience: str
    leeway_seconds: float


@dataclass(frozen=True, slots=True)
class TokenHeader:
    """Which key a token says it is signed with. Not verified."""

    key_id: str
    algorithm: str


def is_token(bearer: str) -> bool:
    """Whether a bearer string has a token's form (an API key has no dot)."""
    return bearer.count(".") == 2


def read_header(token: str) -> TokenHeader:
    """The key and the algorithm that a token names. Raises `TokenInvalid`, also for algorithms that we never take."""
    if len(token) > TOKEN_LENGTH_MAX or not _COMPACT.fullmatch(token):
        raise TokenInvalid("this is not a token, or a larger one than is taken")
    try:
        header = jwt.get_unverified_header(token)
    except (jwt.PyJWTError, ValueError, RecursionError) as error:
        raise TokenInvalid("the token cannot be read") from error
    algorithm, key_id, kind = header.get("alg"), header.get("kid"), header.get("typ", "JWT")
    if not isinstance(algorithm, str) or algorithm not in ALGORITHMS:
        raise TokenInvalid(f"the token must be signed with one of {', '.join(sorted(ALGORITHMS))}")
    if not isinstance(key_id, str):
        raise TokenInvalid("the token does not name its key (`kid`)")
    if "crit" in header or not isinstance(kind, str) or kind.lower() not in _TYPES:
        raise TokenInvalid("the token is of another kind than is taken")
    return TokenHeader(key_id, algorithm)


def verify_token(token: str, key: IssuerKey, rules: TokenRules) -> JsonMapping:
    """The claims of a token that this key signed and that obeys the rules.

    Raises `TokenExpired` or `TokenNotYetValid` for a token that is good at another time, `TokenInvalid` for any other.
    """
    try:
        claims = jwt.decode(
            token,
            key.public,
            algorithms=[key.algorithm],
            audience=rules.audience,
            issuer=rules.issuer,
            leeway=rules.leeway_seconds,
            options={"require": list(_REQUIRED)},
        )
    except jwt.ExpiredSignatureError as error:
        raise TokenExpired("the token has expired; get a new one") from error
    except jwt.ImmatureSignatureError as error:
        raise TokenNotYetValid("the token is not valid yet; do the clocks agree?") from error
    except (jwt.PyJWTError, ValueError, RecursionError) as error:
        raise TokenInvalid(_what_is_wrong(error)) from error
    for name in _TIMES:
        if name in claims and not _is_time(claims[name]):
            raise TokenInvalid(f"`{name}` is not a time in seconds")
    return claims


def _is_time(value: object) -> bool:
    return (
        isinstance(value, int | float)
        and not isinstance(value, bool)
        and math.isfinite(value)
        and 0 <= value <= _TIME_MAX
    )


def _what_is_wrong(error: Exception) -> str:
    """One sentence, without anything that the token holds."""
    match error:
        case jwt.InvalidIssuerError():
            return "the token is from another issuer"
        case jwt.InvalidAudienceError():
            return "the token is for another audience"
        case jwt.MissingRequiredClaimError():
            return f"the token lacks `{error.claim}`"
        case jwt.InvalidSignatureError():
            return "the token's signature is wrong"
    return "the token cannot be read"
