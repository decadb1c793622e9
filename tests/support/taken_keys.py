"""An idempotency key that another session has reserved."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import psycopg

TAKE_KEY = """
insert into operations (scope, key, fingerprint, retire_after)
values (%s, %s, decode(repeat('00', 32), 'hex'), clock_timestamp() + interval '1 hour')
"""


def take_key(rival: psycopg.Connection[Any], tenant_id: UUID, key: str) -> None:
    """Another transaction has inserted the key and does not end."""
    rival.execute("begin")
    rival.execute(TAKE_KEY, (tenant_id, key))
