"""One connection that a consumer of the log keeps for its own transactions, bounded as the pools' are."""

from __future__ import annotations

from typing import Any

from berth.process.database_connections import AnsweringConnection
from orchestrator.database.calls import LINK


async def connect_directly(
    url: str, *, lock_timeout_seconds: float, transaction_timeout_seconds: float, application: str
) -> AnsweringConnection:
    """Connect. Raises `psycopg.OperationalError`."""
    bounds = {
        "lock_timeout": lock_timeout_seconds,
        "transaction_timeout": transaction_timeout_seconds,
        "idle_in_transaction_session_timeout": transaction_timeout_seconds,
    }
    options = " ".join(f"-c {name}={int(seconds * 1000)}ms" for name, seconds in bounds.items())
    settings: dict[str, Any] = {"options": options, "application_name": application, **LINK}
    return await AnsweringConnection.connect(url, **settings)
