"""Finding of `berth doctor` about PostgreSQL's standbys: which server is the primary, and whether commits are confirmed."""

from __future__ import annotations

import psycopg
from psycopg.rows import class_row

from berth.cli.deployment.findings import Finding
from berth.cli.deployment.standby.judgement import Standby, judge_standbys
from migrations.roles import BACKUP_ROLE

CONNECT_SECONDS = 5
_STANDBYS = """
select application_name as name, state, sync_state, pg_current_wal_lsn() - replay_lsn as behind_bytes
  from pg_stat_replication where usename is distinct from %s and state is distinct from 'backup' order by application_name
"""
"""Without receivers of backups: they are no standbys."""
_PRIMARY = """
select ('x' || left(pg_walfile_name(pg_current_wal_lsn()), 8))::bit(32)::int, current_setting('synchronous_standby_names')
 where not pg_is_in_recovery()
"""


def standby_finding(database_url: str) -> Finding:
    """Raises `psycopg.Error` if the server does not answer."""
    with psycopg.connect(database_url, connect_timeout=CONNECT_SECONDS, autocommit=True) as connection:
        primary = connection.execute(_PRIMARY).fetchone()
        if primary is None:
            return Finding(
                "standbys",
                "bad",
                "the address leads to a standby; name every server and target_session_attrs=read-write",
            )
        standbys = connection.cursor(row_factory=class_row(Standby)).execute(_STANDBYS, (BACKUP_ROLE,)).fetchall()
        where = f"primary {connection.info.host or 'here'}:{connection.info.port}, timeline {primary[0]}"
    return judge_standbys(where, str(primary[1]), standbys)
