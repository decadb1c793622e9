"""The issuer's keys, kept at hand: fetched in the background, and at once when a token names a key that is not known.

However many requests come, one fetch runs at a time and the next one begins `refetch_seconds` after it at the earliest.
While the issuer cannot be reached the last keys serve on, until they are `stale_seconds_max` old.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import structlog

from orchestrator.http import metrics
from orchestrator.http.oidc.issuer_documents import FetchFailed, IssuerDocuments
from orchestrator.http.oidc.key_sets import IssuerKey, KeySet
from orchestrator.http.oidc.token_refusals import IssuerUnavailable, TokenInvalid
from orchestrator.http.oidc.tokens import TokenHeader

log = structlog.get_logger("orchestrator.api")


class IssuerKeys:
    """One process's copy of an issuer's keys."""

    def __init__(
        self,
        documents: IssuerDocuments,
        *,
        cache_seconds: float,
        refetch_seconds: float,
        stale_seconds_max: float,
    ) -> None:
        self._documents = documents
        self._cache_seconds = cache_seconds
        self._refetch_seconds = refetch_seconds
        self._stale_seconds_max = stale_seconds_max
        self._keys: KeySet = {}
        self._fetched_at = float("-inf")
        self._tried_at = float("-inf")
        self._failed = False
        self._fetching: asyncio.Task[None] | None = None

    async def key_of(self, header: TokenHeader) -> IssuerKey:
        """The key that a token names, asking the issuer if it is not known.

        Raises `TokenInvalid` if the issuer has no such key, `IssuerUnavailable` if that cannot be found out now.
        """
        if not self._usable() or header.key_id not in self._keys:
            await self._ask_again()
        if not self._usable():
            raise IssuerUnavailable("the token's issuer cannot be reached; nothing was done")
        key = self.key_at_hand(header)
        if key is not None:
            return key
        if header.key_id not in self._keys and self._failed:
            raise IssuerUnavailable("the token may be signed with a new key, and its issuer cannot be reached")
        raise TokenInvalid("the token is signed with a key that its issuer does not list")

    def key_at_hand(self, header: TokenHeader) -> IssuerKey | None:
        """The key as last fetched; None if the issuer listed none such, or that was too long ago."""
        return self._keys.get(header.key_id, {}).get(header.algorithm) if self._usable() else None

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Renew the keys all the time inside the block. If that dies the process ends with a message."""
        renewing = asyncio.create_task(self._renew())
        renewing.add_done_callback(_died)
        try:
            yield
        finally:
            for task in (renewing, self._fetching):
                if task is not None:
                    task.cancel()
                    with suppress(asyncio.CancelledError):
                        await task

    async def _renew(self) -> None:
        while True:
            # Shielded, because requests wait for the same fetch.
            await asyncio.shield(self._fetch())
            await asyncio.sleep(
                min(self._refetch_seconds, self._cache_seconds) if self._failed else self._cache_seconds
            )

    async def _ask_again(self) -> None:
        """Wait for the fetch under way, or for a new one unless the last one was a moment ago."""
        under_way = self._fetching is not None and not self._fetching.done()
        if under_way or time.monotonic() - self._tried_at >= self._refetch_seconds:
            await asyncio.shield(self._fetch())

    def _fetch(self) -> asyncio.Task[None]:
        if self._fetching is None or self._fetching.done():
            self._tried_at = time.monotonic()
            self._fetching = asyncio.create_task(self._fetch_once())
        return self._fetching

    async def _fetch_once(self) -> None:
        """Replace the keys by what is published now, or keep them and say why. Bounded by the fetch's own timeout."""
        try:
            keys = await self._documents.fetch_key_set()
        except FetchFailed as failure:
            self._failed = True
            metrics.ISSUER_FETCHES.labels(result="failed").inc()
            log.warning("issuer_keys_not_fetched", why=str(failure), usable=self._usable())
            return
        except Exception as error:
            # Whatever it was, the next fetch may succeed, and renewing must go on.
            self._failed = True
            metrics.ISSUER_FETCHES.labels(result="failed").inc()
            log.error("unforeseen", where="fetching the issuer's keys", exc_info=error)
            return
        if keys.keys() != self._keys.keys():
            log.info("issuer_keys_changed", key_ids=sorted(keys)[:20], count=len(keys))
        self._keys, self._fetched_at, self._failed = keys, time.monotonic(), False
        metrics.ISSUER_FETCHES.labels(result="fetched").inc()
        metrics.ISSUER_KEYS_FETCHED_AT.set_to_current_time()

    def _usable(self) -> bool:
        return time.monotonic() - self._fetched_at <= self._stale_seconds_max


def _died(renewing: asyncio.Task[None]) -> None:
    if not renewing.cancelled() and renewing.exception() is not None:
        log.critical("the issuer's keys are no longer renewed; ending the process", exc_info=renewing.exception())
        raise SystemExit(1)
