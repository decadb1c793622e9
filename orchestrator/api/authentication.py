"""Who is calling the public API: the bearer key, looked up by its SHA-256 and trusted for a moment.

A revoked key is refused within `credential_cache_seconds` on every process, and at once on the one that revoked it.
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections import OrderedDict
from typing import Annotated

from fastapi import Depends, Request

from orchestrator.domain.errors import Forbidden, Unauthenticated
from orchestrator.domain.states import Principal
from orchestrator.queries.find_principal import find_principal
from orchestrator.store.database import Database

CACHE_ENTRIES_MAX = 10_000
KEY_LENGTH_MAX = 200


class Credentials:
    """Looks up keys, remembering what was found for a short time. Refusals are remembered too, in the same bound."""

    def __init__(self, database: Database, cache_seconds: float) -> None:
        self._database = database
        self._cache_seconds = cache_seconds
        self._known: OrderedDict[bytes, tuple[float, Principal | None]] = OrderedDict()
        self._asking: dict[bytes, asyncio.Task[tuple[float, Principal | None]]] = {}

    async def principal_of(self, key: str) -> Principal | None:
        """The principal of a live key, or None."""
        digest = hashlib.sha256(key.encode()).digest()
        found = self._known.get(digest)
        now = time.monotonic()
        if found is not None and found[0] > now:
            return found[1]
        asking = self._asking.get(digest)
        if asking is None:
            # One question for all who come with this key meanwhile; it goes on when the first of them goes away.
            asking = asyncio.create_task(self._ask(digest))
            self._asking[digest] = asking
            asking.add_done_callback(lambda ended: self._asked(digest, ended))
        return (await asyncio.shield(asking))[1]

    async def _ask(self, digest: bytes) -> tuple[float, Principal | None]:
        asked_at = time.monotonic()
        return asked_at + self._cache_seconds, await find_principal(self._database, digest)

    def _asked(self, digest: bytes, ended: asyncio.Task[tuple[float, Principal | None]]) -> None:
        """Remember the answer, unless `forget` was called since the question was put."""
        if self._asking.get(digest) is not ended:
            return
        del self._asking[digest]
        if ended.cancelled() or ended.exception() is not None:
            return
        self._known[digest] = ended.result()
        self._known.move_to_end(digest)
        while len(self._known) > CACHE_ENTRIES_MAX:
            self._known.popitem(last=False)

    def forget(self) -> None:
        """Ask again for every key from now on: called by the process that revokes or suspends."""
        self._known.clear()
        self._asking.clear()


async def principal_behind(credentials: Credentials, header: str) -> Principal:
    """Whose key an Authorization header carries, or `Unauthenticated`."""
    scheme, _, key = header.partition(" ")
    if scheme.lower() != "bearer" or not key or len(key) > KEY_LENGTH_MAX:
        raise Unauthenticated("send `Authorization: Bearer <API key>`")
    principal = await credentials.principal_of(key.strip())
    if principal is None:
        raise Unauthenticated("this API key is unknown or revoked")
    return principal


def tenants_own(principal: Principal) -> Principal:
    """The principal, if it acts for a tenant; else `Forbidden`."""
    if principal.tenant_id is None:
        raise Forbidden("this needs a tenant's key")
    return principal


async def authenticate(request: Request) -> Principal:
    """The caller, or `Unauthenticated`."""
    return await principal_behind(request.app.state.services.credentials, request.headers.get("authorization", ""))


async def require_admin(request: Request) -> Principal:
    """The caller, if an operator; else `Forbidden`."""
    principal = await authenticate(request)
    if principal.role != "admin":
        raise Forbidden("this needs an operator's key")
    return principal


async def require_tenant(request: Request) -> Principal:
    """The caller, if it acts for a tenant; else `Forbidden`."""
    return tenants_own(await authenticate(request))


Caller = Annotated[Principal, Depends(authenticate)]
AdminCaller = Annotated[Principal, Depends(require_admin)]
TenantCaller = Annotated[Principal, Depends(require_tenant)]
