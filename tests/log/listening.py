"""A real API process whose log is listened to over WebSockets, with bounds that tests reach."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg

from tests.api.calling import Caller
from tests.api.processes import metric_of

SETTINGS = {
    "BERTH_FEED_BUFFER_BYTES_MAX": "200000",
    "BERTH_FEED_CHECKPOINT_SECONDS": "0.05",
    "BERTH_FEED_TENANT_SUBSCRIBERS_MAX": "3",
    "BERTH_NOTIFICATIONS_RECHECK_SECONDS": "0.2",
    "BERTH_NOTIFICATIONS_ACK_SECONDS": "2",
    "BERTH_NOTIFICATIONS_SUBSCRIPTIONS_MAX": "3",
    "BERTH_NOTIFICATIONS_MESSAGES_PER_SECOND_MAX": "200",
    "BERTH_CREDENTIAL_CACHE_SECONDS": "0.1",
}


@dataclass(frozen=True)
class Listener:
    """A running API, and its database to write to."""

    admin: Caller
    database: psycopg.Connection[Any]
    log: Path

    def metric(self, name: str) -> float:
        """A number of the process."""
        return metric_of(self.admin.http, name)

    def position(self, tenant: Caller | None, name: str) -> int | None:
        """Where Postgres has a subscription."""
        scope = "00000000-0000-0000-0000-000000000000" if tenant is None else tenant.tenant_id
        row = self.database.execute(
            "select version from notification_subscriptions where scope = %s and name = %s", (scope, name)
        ).fetchone()
        return None if row is None else int(row[0])
