"""The principal of a verified token: a tenant by its id in one claim, an operator by a role in another, and its role.

The principal's id is a UUIDv5 (RFC 9562) of issuer and subject, so it is the same under every token of one subject: in the
audit, on timelines, and as the scope of an operator's operation keys (DESIGN §6).
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, TypeVar

from berth.process.json_objects import JsonMapping
from orchestrator.http.oidc.token_refusals import TokenInvalid
from orchestrator.tenants.principals import Principal
from orchestrator.tenants.roles import OperatorRole, TenantRole

Role = TypeVar("Role", OperatorRole, TenantRole)
SUBJECT_LENGTH_MAX: Final = 255  # OpenID Connect Core §2
NO_ROLE: Final = "none"
"""The role of a tenant's token that names no known role: every route refuses it with `role_required`."""
_ASCENDING: Final = (TenantRole.BILLING, TenantRole.VIEWER, TenantRole.MEMBER, TenantRole.ADMIN)
"""Each role of a tenant may do what those before it may."""


@dataclass(frozen=True, slots=True)
class ClaimRules:
    """Where a token names its tenant and its roles, and what the values mean.

    `operator_roles`: those that make a token an operator's; none if it is empty. `tenant_roles`: those of tenants' tokens, and
    `default_role` for a token without one of them (None: refused by each route); empty: every tenant's token is an admin's.

    A place is a claim's name, or a JSON pointer (RFC 6901) into the claims, which begins with a slash.
    """

    issuer: str
    tenant_claim: str
    role_claim: str
    operator_roles: Mapping[str, OperatorRole] = field(default_factory=dict)
    tenant_roles: Mapping[str, TenantRole] = field(default_factory=dict)
    default_role: TenantRole | None = None


def principal_id(issuer: str, subject: str) -> uuid.UUID:
    """The id of a subject of an issuer."""
    return uuid.uuid5(uuid.uuid5(uuid.NAMESPACE_URL, issuer), subject)


@dataclass(frozen=True, slots=True)
class User:
    """The subject of a token that names neither a tenant nor an operator's role; it may be a member of a tenant."""

    id: uuid.UUID
    subject: str


def principal_of(claims: JsonMapping, rules: ClaimRules) -> Principal | User:
    """The principal of verified claims, or the user that they name. Raises `TokenInvalid` for a tenant and an operator at once.

    Of several roles of a tenant the one that may most counts; several of operators without `admin` are refused.
    """
    subject = claims.get("sub")
    if not isinstance(subject, str) or not subject.isprintable() or not 0 < len(subject) <= SUBJECT_LENGTH_MAX:
        raise TokenInvalid(f"`sub` must be 1 to {SUBJECT_LENGTH_MAX} printable characters")
    tenant, named = _found(claims, rules.tenant_claim), _roles(_found(claims, rules.role_claim))
    operator = set(_known(named, rules.operator_roles))
    if operator and tenant is not None:
        raise TokenInvalid("the token names a tenant and an operator's role; it must be one of them")
    own_id = principal_id(rules.issuer, subject)
    if operator:
        return Principal(_operator_role(operator), own_id, None, owner=subject, subject=subject)
    if tenant is None:
        return User(own_id, subject)
    tenant_id = _tenant_id(tenant, rules.tenant_claim)
    return Principal(_tenant_role(named, rules), own_id, tenant_id, owner=subject, subject=subject)


def _operator_role(found: set[OperatorRole]) -> OperatorRole:
    """The role of an operator: `admin`, or the only one beside `viewer`, which every role includes."""
    if OperatorRole.ADMIN in found:
        return OperatorRole.ADMIN
    above = found - {OperatorRole.VIEWER} or found
    if len(above) > 1:
        named = ", ".join(sorted(above))
        raise TokenInvalid(
            f"the token names several roles of an operator ({named}); it must be one, or one that means admin"
        )
    return above.pop()


def _tenant_role(named: list[object], rules: ClaimRules) -> str:
    if not rules.tenant_roles:
        return TenantRole.ADMIN
    found = max(_known(named, rules.tenant_roles), key=_ASCENDING.index, default=rules.default_role)
    return NO_ROLE if found is None else found


def _known(named: list[object], roles: Mapping[str, Role]) -> Iterable[Role]:
    """The roles that these values of the claim stand for."""
    return (roles[name] for name in named if isinstance(name, str) and name in roles)


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


def _found(claims: JsonMapping, place: str) -> object:
    if not place.startswith("/"):
        return claims.get(place)
    value: object = claims
    for step in place[1:].split("/"):
        name = step.replace("~1", "/").replace("~0", "~")
        value = value.get(name) if isinstance(value, Mapping) else None
    return value
