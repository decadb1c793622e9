"""Where each consumer of the log stands, so that a rebuilt stream does not replay what is done (DESIGN §7)."""

from __future__ import annotations

from orchestrator.store.database import Reading, Transaction

_SAVE = """
insert into consumer_positions (consumer, version) values (:consumer, :version)
on conflict (consumer) do update set version = excluded.version, updated_at = clock_timestamp()
where consumer_positions.version < excluded.version
"""
_READ = "select version from consumer_positions where consumer = :consumer"


async def raise_position(tx: Transaction, consumer: str, version: int) -> None:
    """Everything at or below `version` is done; a position never goes back."""
    await tx.execute(_SAVE, {"consumer": consumer, "version": version})


async def read_position(reading: Reading, consumer: str) -> int:
    """The last version that is done; 0 for a consumer that never said."""
    version: int | None = (await reading.execute(_READ, {"consumer": consumer})).scalar_one_or_none()
    return version or 0
