"""Refuses connection poolers (PgBouncer and its like) between a process of Berth and PostgreSQL.

In its other modes than `session` a pooler gives each transaction another session: what Berth sets for a session (time zone,
timeouts, the tenants whose rows it may read) would hold for transactions of others, and not for its own. In every mode it
answers for a server that is frozen or deposed, or loses the startup options which set the timeouts.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import psycopg
from psycopg.conninfo import conninfo_to_dict

UNSUPPORTED = "unsupported startup parameter"
"""What PgBouncer answers to options that it does not pass on (https://www.pgbouncer.org/config.html)."""


ConnectionOptions = Mapping[str, object]
"""Parameters of libpq, by name."""


class PoolerRefused(psycopg.OperationalError):
    """The address is that of a pooler. One sentence says so; no retry cures it."""

    def __init__(self, host: str, port: int | str) -> None:
        super().__init__(
            f"{host}:{port} is a connection pooler, not PostgreSQL: it would mix the sessions of Berth's processes;"
            " name PostgreSQL's own address (the processes pool their connections themselves)"
        )


def refusal_of(conninfo: str, options: ConnectionOptions) -> PoolerRefused:
    """For an address that refused startup options."""
    address = {**conninfo_to_dict(conninfo), **options}
    return PoolerRefused(str(address.get("host")), str(address.get("port") or 5432))


def require_no_pooler(connection: psycopg.Connection[Any] | psycopg.AsyncConnection[Any], session_pid: int) -> None:
    """Raise `PoolerRefused` unless `session_pid`, the server's process of this session, is what the connection was given.

    A server names that process when a session begins; a pooler names something else, as it has no session yet.
    """
    info = connection.info
    if info.backend_pid != session_pid:
        raise PoolerRefused(info.host, info.port)


def pooler_behind(error: BaseException | None) -> PoolerRefused | None:
    """The refusal that an error was raised for; None if it has another cause."""
    while error is not None and not isinstance(error, PoolerRefused):
        error = error.__cause__ or error.__context__
    return error
