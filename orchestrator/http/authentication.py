"""Authentication of the public API: an API key, looked up by its SHA-256 and cached briefly, or an OIDC token.

A revoked key is refused within `credential_cache_seconds` on every process, and at once on the one that revoked it.
An expired key is refused from its `expires_at` on by every process, or earlier by the time that the lookup took.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Annotated
from uuid import UUID

from fastapi import Depends, Request

from orchestrator.database.transactions import Database
from orchestrator.http.audited.break_glass import BreakGlassUses
from orchestrator.http.failed_attempts import FailedAttempts
from orchestrator.http.key_lookups import KeyLookups
from orchestrator.http.metrics import FAILED_ATTEMPTS
from orchestrator.http.oidc.bearer_tokens import BearerTokens
from orchestrator.http.oidc.token_principals import User
from orchestrator.http.oidc.tokens import is_token
from orchestrator.http.query_parameters import refuse_unknown_parameters
from orchestrator.http.services import CALLER, Services, services_for, source_of
from orchestrator.http.single_flight import SingleFlightCache
from orchestrator.problems import Forbidden, Problem, TooManyFailures, Unauthenticated
from orchestrator.tenants.principals import Principal
from orchestrator.tenants.queries import find_principals
from orchestrator.tenants.required_roles import check_roles

KEY_LENGTH_MAX = 200
UNAUTHENTICATED = 401


class Credentials:
    """Resolves a bearer string to its principal. Unknown API keys are cached too, as long and in a separate table.

    The cache's key is the SHA-256 of the whole key: a key that is created later is not in it.

    `tokens` is None where no issuer is configured; then a token is an unknown key. `note_use` is called with the id of each
    key that authenticates a request.
    """

    def __init__(
        self,
        cache_seconds: float,
        tokens: BearerTokens | None = None,
        failed: FailedAttempts | None = None,
        note_use: Callable[[UUID], None] | None = None,
        break_glass: BreakGlassUses | None = None,
    ) -> None:
        self.tokens = tokens
        self._note_use = note_use
        self._break_glass = break_glass
        self._failed = failed or FailedAttempts(0, 1.0)
        self._keys: SingleFlightCache[bytes, Principal | None] = SingleFlightCache(
            KeyLookups(find_principals).principal_of, cache_seconds
        )

    async def principal_of(self, database: Database, bearer: str, source: str | None = None) -> Principal:
        """The principal of a live key or a good token, sent from the address `source`; of a break-glass key after its event.

        It is looked up in the platform's name: before it is known, no tenant is.

        Raises `Unauthenticated`, `TooManyFailures`, `DatabaseUnavailable`, or what `BearerTokens` raises.
        """
        async with self.attempt(bearer, source) as digest:
            principal = await self._principal_of(database.for_platform(), bearer, digest)
            if principal.break_glass and self._break_glass is not None:
                await self._break_glass.require_event(principal, source)
        return principal

    @asynccontextmanager
    async def attempt(self, secret: str, source: str | None) -> AsyncIterator[bytes]:
        """Look a credential up in the block, which gets its SHA-256; `Unauthenticated` in it is a failure of the source.

        Raises `TooManyFailures`.
        """
        digest = hashlib.sha256(secret.encode()).digest()
        try:
            counted = bool(secret) and await self._failed.begin(source, digest)
        except TooManyFailures:
            FAILED_ATTEMPTS.labels(result="refused").inc()
            raise
        is_wrong = False
        try:
            yield digest
        except Problem as problem:
            is_wrong = problem.status == UNAUTHENTICATED
            if is_wrong and secret:
                FAILED_ATTEMPTS.labels(result="looked_up").inc()
            raise
        else:
            self._failed.note_success(digest)
        finally:
            if counted and source is not None:
                self._failed.end(source, is_wrong=is_wrong)

    async def _principal_of(self, database: Database, bearer: str, digest: bytes) -> Principal:
        if self.tokens is not None and is_token(bearer):
            return await self.tokens.principal_of(database, bearer)
        if not bearer or len(bearer) > KEY_LENGTH_MAX:
            raise Unauthenticated("send `Authorization: Bearer <API key>`")
        principal = await self._keys.answer_for(database, digest)
        if principal is None or (principal.ends_at is not None and principal.ends_at <= time.monotonic()):
            raise Unauthenticated("this API key is unknown, revoked or expired; send a live key")
        if self._note_use is not None:
            self._note_use(principal.id)
        return principal

    async def user_behind(self, database: Database, header: str, source: str | None) -> User:
        """The user of an Authorization header with a token that names neither a tenant nor an operator's role.

        Raises `Forbidden` for any other live credential, and else as `principal_of` does.
        """
        scheme, _, rest = header.partition(" ")
        bearer = rest.strip() if scheme.lower() == "bearer" else ""
        async with self.attempt(bearer, source) as digest:
            if self.tokens is not None and is_token(bearer):
                return await self.tokens.user_of(bearer)
            await self._principal_of(database.for_platform(), bearer, digest)
            raise Forbidden("an invitation is accepted by a user with a token of the issuer, not by an API key")

    def forget_members(self) -> None:
        """Drop every cached member: called by the process that adds, changes or removes one."""
        if self.tokens is not None:
            self.tokens.forget_members()

    def forget_key(self, key_id: UUID) -> None:
        """Drop this key from the cache: called by the process that revokes or rotates it."""
        self._keys.forget_answers(lambda principal: principal is not None and principal.id == key_id)

    def forget(self) -> None:
        """Drop every cached key and tenant: called by the process that suspends or deletes a tenant."""
        self._keys.forget()
        if self.tokens is not None:
            self.tokens.forget()


async def principal_behind(
    credentials: Credentials, database: Database, header: str, source: str | None = None
) -> Principal:
    """The principal of an Authorization header sent from the address `source`. Raises as `Credentials.principal_of` does."""
    scheme, _, bearer = header.partition(" ")
    return await credentials.principal_of(database, bearer.strip() if scheme.lower() == "bearer" else "", source)


def tenants_own(principal: Principal) -> Principal:
    """The principal, if it acts for a tenant; else `Forbidden`."""
    if principal.tenant_id is None:
        raise Forbidden("this needs a tenant's key")
    return principal


async def authenticate(request: Request) -> Principal:
    """The caller, or `Unauthenticated`; then `Invalid` for a query parameter that the path does not know.

    Raises `Forbidden` or `RoleRequired` if its role does not allow this endpoint, and `ConcurrencyLimited` if it has as many
    requests in flight as it may.
    Returns when the log has come to the version that the client wants its answer to include, or raises what
    `LogHead.reach` raises: here, because strangers are not waited for.
    """
    return await admit(request, request.headers.get("authorization", ""))


async def admit(request: Request, authorization: str) -> Principal:
    """As `authenticate`, whatever header or parameter the credential came in."""
    services = services_for(request.app.state.services, request.scope)
    database = services.context.database
    principal = await principal_behind(services.credentials, database, authorization, source_of(request.scope))
    request.scope["state"][CALLER] = principal
    await services.limits.admit(request.scope, principal.scope)
    check_roles(request.scope["endpoint"], principal)
    refuse_unknown_parameters(request)
    asked = database.response_version
    if asked is not None and not services.log_head.includes(asked.at_least):
        async with services.limits.away(request.scope["state"], principal.scope):
            await services.log_head.reach(asked.at_least)
    return principal


async def require_unchanged(
    services: Services, authorization: str, caller: Principal, *endpoints: Callable[..., object]
) -> None:
    """Check the credential of an open stream or socket again: it is still of the same tenant and allows these endpoints.

    Raises what `principal_behind` and `check_roles` raise, and `Forbidden` for another tenant.
    """
    found = await principal_behind(services.credentials, services.context.database, authorization)
    if found.tenant_id != caller.tenant_id:
        raise Forbidden("the caller acts for another tenant now; open a new stream")
    for endpoint in endpoints:
        check_roles(endpoint, found)


async def require_admin(request: Request) -> Principal:
    """The caller, if an operator; else `Forbidden`."""
    principal = await authenticate(request)
    if principal.tenant_id is not None:
        raise Forbidden("this needs an operator's key")
    return principal


async def require_tenant(request: Request) -> Principal:
    """The caller, if it acts for a tenant; else `Forbidden`."""
    return tenants_own(await authenticate(request))


Caller = Annotated[Principal, Depends(authenticate)]
AdminCaller = Annotated[Principal, Depends(require_admin)]
TenantCaller = Annotated[Principal, Depends(require_tenant)]
