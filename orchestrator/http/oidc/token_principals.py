"""The principal of a verified token: a tenant by its id in one claim, or an operator by a role in another.

The principal's id is a UUIDv5 (RFC 9562) of issuer and subject, so it is the same under every token of one subject: in the
audit, on timelines, and as the scope of an operator's operation keys (DESIGN §6).
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from orchestrator.http.oidc.token_refusals import TokenInvalid
from orchestrator.tenants.principals import Principal
from orchestrator.tenants.roles import OperatorRole, TenantRole

SUBJECT_LENGTH_MAX: Final = 255  # OpenID Connect Core §2


@dataclass(frozen=True, slots=True)
class ClaimRules:
    """Where a token names its tenant and its roles; `admin_role` is the role of operators, None if no token is one.

    A place is a claim's name, or a JSON pointer (RFC 6901) into the claims, which begins with a slash.
    """

    issuer: str
    tenant_claim: str
    role_claim: str
    admin_role: str | None


def principal_id(issuer: str, subject: str) -> uuid.UUID:
    """The id of a subject of an issuer."""
    return uuid.uuid5(uuid.uuid5(uuid.NAMESPACE_URL, issuer), subject)


def principal_of(claims: Mapping[str, Any], rules: ClaimRules) -> Principal:
    """The principal of verified claims. Raises `TokenInvalid` where they name none, or a tenant and an operator at once."""
    subject = claims.get("sub")
    if not isinstance(subject, str) or not subject.isprintable() or not 0 < len(subject) <= SUBJECT_LENGTH_MAX:
        raise TokenInvalid(f"`sub` must be 1 to {SUBJECT_LENGTH_MAX} printable characters")
    tenant = _found(claims, rules.tenant_claim)
    is_admin = rules.admin_role is not None and rules.admin_role in _roles(_found(claims, rules.role_claim))
    if is_admin and tenant is not None:
        raise TokenInvalid("the token names a tenant and an operator's role; it must be one of them")
    if is_admin:
        return Principal(OperatorRole.ADMIN, principal_id(rules.issuer, subject), None)
    if tenant is None:
        raise TokenInvalid("the token names neither a tenant nor an operator's role")
    return Principal(TenantRole.ADMIN, principal_id(rules.issuer, subject), _tenant_id(tenant, rules.tenant_claim))


def _tenant_id(value: object, place: str) -> uuid.UUID:
    try:
        found = uuid.UUID(value) if isinstance(value, str) else None
    except ValueError:
        found = None
    if found is None or str(found) != str(value).lower():
        raise TokenInvalid(f"`{place}` must be the tenant's id, a UUID")
    return found


def _roles(value: object) -> list[object]:
    """A claim of roles is one string or a list of them; anything else names none."""
    return value if isinstance(value, list) else [value]


def _found(claims: Mapping[str, Any], place: str) -> object:
    if not place.startswith("/"):
        return claims.get(place)
    value: object = claims
    for step in place[1:].split("/"):
        name = step.replace("~1", "/").replace("~0", "~")
        value = value.get(name) if isinstance(value, Mapping) else None
    return value
