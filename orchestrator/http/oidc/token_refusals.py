"""Why a bearer token (an OIDC JWT) is not taken, as named situations with a stable code (docs/reference/http-api.md)."""

from __future__ import annotations

from typing import ClassVar

from orchestrator.problems import Problem


class TokenRefused(Problem):
    """Any refusal of a token: 401 with the challenge of RFC 6750 §3."""

    status: ClassVar[int] = 401
    challenge: ClassVar[str] = 'Bearer error="invalid_token"'


class TokenInvalid(TokenRefused):
    """Not a token of our issuer for us, or one that says too little, too much or nonsense."""

    code, title = "token_invalid", "Token invalid"


class TokenExpired(TokenRefused):
    """The token was good until its `exp`."""

    code, title = "token_expired", "Token expired"


class TokenNotYetValid(TokenRefused):
    """The token's `nbf` or `iat` has not come yet."""

    code, title = "token_not_yet_valid", "Token not yet valid"


class TenantNotActive(TokenRefused):
    """The tenant that the token names is unknown or suspended."""

    code, title = "tenant_not_active", "Tenant not active"


class IssuerUnavailable(Problem):
    """The issuer's keys could not be fetched, so the token could not be verified; nothing was done."""

    status, code, title = 503, "issuer_unavailable", "Issuer unavailable"
    retry_after_seconds = 2
