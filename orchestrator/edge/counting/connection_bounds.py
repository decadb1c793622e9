"""Bounds of a listener's connections that the process's open files allow."""

from __future__ import annotations

import resource
from typing import Final, NamedTuple

import structlog

from orchestrator.http.metrics import CONNECTIONS_MAX
from orchestrator.settings import Settings

log = structlog.get_logger("orchestrator.api")
FILES_RESERVED: Final = 64
"""Open files of a process beside connections of clients and of the database."""
POOLS: Final = 4
"""Connections of the database, as a multiple of a pool: requests, reservations, creates, and what runs beside them."""
LISTENERS: Final = 2
"""A process has at most so many listeners with many connections."""
SOURCES: Final = 2
"""Where the bound is lowered, a source has at most this part of it."""


class ConnectionBounds(NamedTuple):
    """Connections in total and of one source; None: of a source without a bound."""

    total: int
    per_source: int | None


def connection_bounds(settings: Settings, per_source_max: int, name: str) -> ConnectionBounds:
    """The settings' bounds, or what the limit of open files leaves, with a line in the log that says so. 0: no bound of a source.

    Without it the listener would accept until there are no file descriptors, and then none for the database.
    """
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    per_source = per_source_max or None
    reserved = FILES_RESERVED + POOLS * settings.database_pool_size + settings.database_reserve_size
    allowed = settings.connections_max if soft == resource.RLIM_INFINITY else max(1, (soft - reserved) // LISTENERS)
    total = min(settings.connections_max, allowed)
    if total < settings.connections_max:
        per_source = None if per_source is None else min(per_source, max(1, total // SOURCES))
        log.warning(
            "connections_lowered", listener=name, configured=settings.connections_max, connections=total,
            per_source=per_source, open_files=soft, why="raise the hard limit of open files (ulimit -n, LimitNOFILE)",
        )  # fmt: skip
    CONNECTIONS_MAX.labels(listener=name).set(total)
    return ConnectionBounds(total, per_source)
