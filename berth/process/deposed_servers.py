"""Refuses a PostgreSQL server that has been deposed: it runs as a primary on an earlier timeline than this process has seen.

A primary that returns without its manager (Patroni demotes it, a start by hand does not) answers reads with old data and takes
writes that no other server has. Addresses with several servers go on to the next one. The same question reads the server's clock,
which berth/process/server_clocks.py compares.
"""

from __future__ import annotations

from typing import Any, TypedDict

import psycopg
import structlog
from psycopg.conninfo import conninfo_to_dict
from psycopg.rows import tuple_row

from berth.process.poolers import ConnectionOptions, require_no_pooler
from berth.process.server_clocks import ClockReading, require_right_clock, steady_seconds

TIMELINE = b"""
    select pg_backend_pid(), s.system_identifier,
           case when not pg_is_in_recovery() then ('x' || left(pg_walfile_name(pg_current_wal_lsn()), 8))::bit(32)::bigint end,
           extract(epoch from clock_timestamp())::float8
      from pg_control_system() s
"""
_newest: dict[int, int] = {}
"""The newest timeline that this process has seen of each database system, by system identifier."""

_log = structlog.get_logger()


async def is_deposed(connection: psycopg.AsyncConnection[Any]) -> bool:
    """Whether the server of this new connection, in autocommit mode, is a primary on an earlier timeline than another one was.

    Raises `PoolerRefused` if it is no server of PostgreSQL, `ClockRefused` if it is a primary whose clock cannot be right.
    """
    system, timeline, reading = await _read_server(connection)
    if timeline is None:
        return False
    newest = max(timeline, _newest.get(system, 0))
    _newest[system] = newest
    if timeline == newest:
        await require_right_clock(connection, system, timeline, reading)
        return False
    info = connection.info
    _log.warning("deposed_server_refused", host=info.host, port=info.port, timeline=timeline, newest=newest)
    return True


async def require_standby(connection: psycopg.AsyncConnection[Any]) -> None:
    """Raise `OperationalError` unless the server of this new connection, in autocommit mode, is a standby.

    Nothing is remembered of it: the timeline of a server that was promoted beside the primary (a drill, a clone) would depose
    the primary. Raises `PoolerRefused` if it is no server of PostgreSQL.
    """
    _, timeline, _ = await _read_server(connection)
    if timeline is not None:
        raise psycopg.OperationalError(
            f"the server at port {connection.info.port} is no standby: it is not in recovery"
        )


async def _read_server(connection: psycopg.AsyncConnection[Any]) -> tuple[int, int | None, ClockReading]:
    """System identifier, timeline (None: it is a standby) and clock of a server. Raises `PoolerRefused`."""
    asked = steady_seconds()
    cursor = await psycopg.AsyncCursor(connection, row_factory=tuple_row).execute(TIMELINE)
    row = await cursor.fetchone()
    assert row is not None
    session_pid, system, timeline, clock = row
    reading = ClockReading(clock, asked, steady_seconds())
    require_no_pooler(connection, session_pid)
    return system, timeline, reading


class Servers(TypedDict):
    """The parameters of libpq that name servers, each with commas between them."""

    host: str
    port: str


def other_servers(conninfo: str, options: ConnectionOptions, host: str, port: int) -> Servers | None:
    """The parameters `host` and `port` of an address without one of its servers; None if it names no other."""
    address = {**conninfo_to_dict(conninfo), **{name: value for name, value in options.items() if value is not None}}
    if address.get("hostaddr"):
        return None
    hosts = str(address.get("host") or "").split(",")
    ports = str(address.get("port") or "").split(",")
    places = list(zip(hosts, ports if len(ports) == len(hosts) else ports * len(hosts), strict=False))
    left = [place for place in places if place != (host, str(port)) and place != (host, "")]
    if not left or len(left) == len(places):
        return None
    return {"host": ",".join(host for host, _ in left), "port": ",".join(port for _, port in left)}
