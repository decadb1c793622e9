"""Authentication by OIDC tokens: each is verified once, then cached by its SHA-256 until it expires.

A token known already still needs three things at each call, all of them in memory: its time is not over, the issuer still
lists the very key that signed it, and its tenant is active (asked in Postgres as often as for API keys).
"""

from __future__ import annotations

import hashlib
import time
from collections import OrderedDict
from dataclasses import dataclass
from uuid import UUID

import structlog

from orchestrator.database.transactions import Database
from orchestrator.http import metrics
from orchestrator.http.oidc.issuer_keys import IssuerKeys
from orchestrator.http.oidc.token_principals import ClaimRules, User, principal_of
from orchestrator.http.oidc.token_refusals import TenantNotActive, TokenExpired, TokenInvalid
from orchestrator.http.oidc.tokens import TokenHeader, TokenRules, read_header, verify_token
from orchestrator.http.single_flight import SingleFlightCache
from orchestrator.problems import Forbidden, Problem
from orchestrator.tenants.principals import Principal
from orchestrator.tenants.queries import find_membership, is_tenant_active
from orchestrator.tenants.store.members import Membership

TOKENS_MAX = 10_000

log = structlog.get_logger("orchestrator.api")


@dataclass(frozen=True, slots=True)
class _Verified:
    """A verified token. `expires_at`: Unix seconds, leeway included."""

    principal: Principal | User
    expires_at: float
    header: TokenHeader
    fingerprint: bytes


class BearerTokens:
    """Turns the tokens of one issuer into principals."""

    def __init__(self, keys: IssuerKeys, rules: TokenRules, claims: ClaimRules, cache_seconds: float) -> None:
        self.keys = keys
        self._rules = rules
        self._claims = claims
        # Not cachetools.TTLCache: an entry is valid until its token expires or its key changes.
        self._verified: OrderedDict[bytes, _Verified] = OrderedDict()

        self._tenants: SingleFlightCache[UUID, bool] = SingleFlightCache(is_tenant_active, cache_seconds)
        self._members: SingleFlightCache[UUID, Membership | None] = SingleFlightCache(find_membership, cache_seconds)

    async def principal_of(self, database: Database, token: str) -> Principal:
        """The principal of the token; of one that names neither a tenant nor an operator's role, the member.

        Raises a `TokenRefused`, `IssuerUnavailable`, or what asking the database for the tenant raises.
        """
        try:
            found = (await self._verified_token(token)).principal
            if isinstance(found, User):
                principal = await self._member(database, found)
            else:
                principal, tenant_id = found, found.tenant_id
                if tenant_id is not None and not await self._tenants.answer_for(database, tenant_id):
                    raise TenantNotActive("the tenant that the token names is unknown or suspended")
        except Problem as problem:
            metrics.TOKENS.labels(result=problem.code).inc()
            raise
        metrics.TOKENS.labels(result="accepted").inc()
        return principal

    async def user_of(self, token: str) -> User:
        """The user of a token that names neither a tenant nor an operator's role. Raises a `TokenRefused`, else `Forbidden`."""
        found = (await self._verified_token(token)).principal
        if isinstance(found, User):
            return found
        raise Forbidden(
            "the token names its tenant or an operator's role itself; its user joins no tenant by invitation"
        )

    async def _member(self, database: Database, user: User) -> Principal:
        """The user as a member of its tenant. Raises `TokenInvalid`, `TenantNotActive`."""
        member = await self._members.answer_for(database, user.id)
        if member is None:
            raise TokenInvalid(
                "the token names neither a tenant nor an operator's role, and its user is a member of no tenant; accept an"
                " invitation"
            )
        if not member.active:
            raise TenantNotActive("the tenant of this member is suspended")
        return Principal(
            member.role, user.id, member.tenant_id, owner=user.subject, subject=user.subject, is_member=True
        )

    async def _verified_token(self, token: str) -> _Verified:
        digest = hashlib.sha256(token.encode()).digest()
        found = self._verified.get(digest)
        if found is not None and self._still_good(found):
            self._verified.move_to_end(digest)
            return found
        header = read_header(token)
        key = await self.keys.key_of(header)
        claims = verify_token(token, key, self._rules)
        principal = principal_of(claims, self._claims)
        verified = _Verified(principal, claims["exp"] + self._rules.leeway_seconds, header, key.fingerprint)
        self._verified[digest] = verified
        self._verified.move_to_end(digest)
        while len(self._verified) > TOKENS_MAX:
            self._verified.popitem(last=False)
        tenant_id = None if isinstance(principal, User) else principal.tenant_id
        log.info(
            "token_verified", principal_id=str(principal.id), role=None if isinstance(principal, User) else principal.role,
            tenant_id=None if tenant_id is None else str(tenant_id),
            subject=claims["sub"], key_id=header.key_id,
        )  # fmt: skip
        return verified

    def _still_good(self, found: _Verified) -> bool:
        """Whether verifying the token again would say the same. Raises `TokenExpired`."""
        if time.time() >= found.expires_at:
            raise TokenExpired("the token has expired; get a new one")
        key = self.keys.key_at_hand(found.header)
        return key is not None and key.fingerprint == found.fingerprint

    def forget(self) -> None:
        """Drop every cached tenant and member: called by the process that suspends a tenant."""
        self._tenants.forget()
        self._members.forget()

    def forget_members(self) -> None:
        """Drop every cached member: called by the process that adds, changes or removes one."""
        self._members.forget()
