"""Reads what a standby has and what the primary is, for the judgement of orchestrator/database/replicas/rules.py."""

from __future__ import annotations

import time
from uuid import UUID

import psycopg
import sqlalchemy.exc
from sqlalchemy import text

from orchestrator.database.replicas.connections import ReplicaConnection
from orchestrator.database.replicas.rules import Cause, PrimaryFacts, StandbyFacts
from orchestrator.database.row_security import PLATFORM
from orchestrator.database.sqlstates import is_of_another_schema, is_unprivileged
from orchestrator.database.transactions import Reading

PRIMARY = """
select s.system_identifier::text as system, postgres_leader_id() as leader_id, h.leader_id as accepted_leader_id, h.version,
       (pg_current_wal_flush_lsn() - '0/0')::bigint as written, extract(epoch from clock_timestamp())::float8 as clock
  from pg_control_system() s, log_head h
"""
STANDBY = """
select pg_is_in_recovery() as in_recovery, s.system_identifier::text as system,
       concat_ws(' ', s.system_identifier, pg_postmaster_start_time(), inet_server_addr(), inet_server_port()) as server,
       (select version_num from alembic_version) as revision, (select oldest_process from function_generation) as oldest_process,
       exists (select from restores where closed_at is null) as restoring, h.leader_id, h.version,
       (select event_id from log l where l.version = h.version) as event_id,
       coalesce(pg_last_wal_replay_lsn() - '0/0', 0)::bigint as replayed, extract(epoch from clock_timestamp())::float8 as clock
  from pg_control_system() s, log_head h
"""
_STANDBY_STATEMENT = text(STANDBY)
_EVENT = "select event_id from log where version = :version"


class UnfitServer(Exception):
    """Nothing could be read of a standby. `cause` says why."""

    def __init__(self, cause: Cause) -> None:
        super().__init__(cause)
        self.cause = cause


async def read_primary(reading: Reading) -> PrimaryFacts:
    """What the primary is now. Raises `DBAPIError`, also for a server that is no primary."""
    asked = time.monotonic()
    row = (await reading.execute(PRIMARY)).one()
    return PrimaryFacts(asked=asked, answered=time.monotonic(), **row._mapping)


async def read_event_id(reading: Reading, version: int) -> UUID | None:
    """The event at this version; None if the log has none there."""
    found: UUID | None = (await reading.execute(_EVENT, {"version": version})).scalar()
    return found


async def read_standby(held: ReplicaConnection) -> StandbyFacts:
    """What the standby of a connection has now. Raises `UnfitServer`."""
    asked = time.monotonic()
    try:
        await held.prepare(PLATFORM, snapshot=False)
        row = (await held.connection.execute(_STANDBY_STATEMENT)).one()
    except sqlalchemy.exc.NoResultFound:
        raise UnfitServer(Cause.SCHEMA) from None
    except (sqlalchemy.exc.DBAPIError, psycopg.Error) as error:
        driver = error.orig if isinstance(error, sqlalchemy.exc.DBAPIError) else error
        raise UnfitServer(_cause_of(driver)) from error
    answered = time.monotonic()
    if not await held.finish():
        raise UnfitServer(Cause.LOST)
    return StandbyFacts(asked=asked, answered=answered, **row._mapping)


def _cause_of(driver: BaseException | None) -> Cause:
    if is_of_another_schema(driver):
        return Cause.SCHEMA
    return Cause.UNPRIVILEGED if is_unprivileged(driver) else Cause.LOST
