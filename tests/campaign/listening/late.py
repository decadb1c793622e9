"""Subscribers that stay away while the log is truncated: sometimes a retention policy keeps their place."""

from __future__ import annotations

import time
from collections.abc import Sequence

from berth.client import AsyncClient, BerthError, NotFound
from tests.campaign.history import History
from tests.campaign.listening.feeds import FeedSubscriber
from tests.campaign.listening.records import PolicySpan
from tests.campaign.listening.subscribers import PACE_SECONDS
from tests.support.waiting import pause

STAY_SECONDS = (0.5, 2.0)
AWAY_SECONDS = (4.0, 15.0)
POLICY_SHARE = 0.35


class LateSubscriber(FeedSubscriber):
    """Reads for a moment, stays away, and comes back. `clients` are those of its principal, one for each API process."""

    def __init__(
        self,
        name: str,
        urls: Sequence[str],
        key: str,
        tenant: str | None,
        history: History,
        clients: Sequence[AsyncClient],
    ) -> None:
        super().__init__(name, urls, key, tenant, history, stays=STAY_SECONDS)
        self._clients = clients
        self._policy = name.replace(" ", "-")

    async def run(self) -> None:
        """Read until cancelled."""
        while True:
            session = await self.read_once()
            if self._ending.is_set() or session.refused is not None or session.reached == 0:
                await pause(PACE_SECONDS)
                continue
            span = await self._keep_log() if self._chance.random() < POLICY_SHARE else None
            await pause(self._chance.uniform(*AWAY_SECONDS), self._ending)
            if span is not None:
                await self.read_once()
                span.until = time.monotonic()
                await self._forget()

    async def _keep_log(self) -> PolicySpan | None:
        """Let the log keep what follows the cursor."""
        try:
            policy = await self._client().put_retention_policy(self._policy, prevent_truncate=self.cursor + 1)
        except BerthError as error:
            self._history.count_read(f"policy {error.code}")
            await self._forget()
            return None
        self._history.count_read("policy ok")
        self._history.policies.append(span := PolicySpan(policy.kept_from, time.monotonic()))
        return span

    async def _forget(self) -> None:
        """However long it takes: servers come back."""
        while True:
            try:
                await self._client().delete_retention_policy(self._policy)
            except NotFound:
                return
            except BerthError:
                await pause(PACE_SECONDS)
            else:
                return

    def _client(self) -> AsyncClient:
        return self._chance.choice(self._clients)
