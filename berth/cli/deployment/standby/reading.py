"""Whether a standby of `BERTH_READ_DATABASE_URL` may serve reads, for `berth doctor` and `berth verify --on-standby`."""

from __future__ import annotations

import time
from dataclasses import dataclass

import psycopg
from psycopg.conninfo import make_conninfo
from psycopg.rows import DictRow, dict_row

from berth.cli.deployment.findings import Finding

CONNECT_SECONDS = 5
CATCH_UP_SECONDS = 5.0
"""How far behind the standby may be."""
PAUSE_SECONDS = 0.1


@dataclass(frozen=True)
class Compared:
    """A standby beside the primary. `unfit`: why it may not serve; None: it may. `behind_seconds`: at most so far behind.

    `url`: the address of this server alone, whatever others the compared address names.
    """

    where: str
    url: str
    unfit: str | None
    behind_seconds: float


def compare_standby(primary_url: str, standby_url: str) -> Compared:
    """Compare the standby at an address with the primary, as a process of the API does; it gets 5 s to catch up.

    Raises `psycopg.Error` if one of them does not answer.
    """
    # SQLAlchemy, for these commands alone: start-up stays light for all others.
    from orchestrator.database.replicas.facts import PRIMARY, STANDBY
    from orchestrator.database.replicas.rules import MEANINGS, Cause, PrimaryFacts, StandbyFacts, Unfit, judge_standby
    from orchestrator.database.sqlstates import is_unprivileged

    def connect(url: str) -> psycopg.Connection[DictRow]:
        return psycopg.connect(url, connect_timeout=CONNECT_SECONDS, autocommit=True, row_factory=dict_row)

    with connect(primary_url) as primary, connect(standby_url) as standby:
        where, only = f"{standby.info.host or 'here'}:{standby.info.port}", _address_of(standby.info, standby_url)
        asked = time.monotonic()
        row = _row(primary, PRIMARY)
        history = [PrimaryFacts(asked=asked, answered=time.monotonic(), **row)]
        while True:
            asked = time.monotonic()
            try:
                row = _row(standby, STANDBY)
            except psycopg.ProgrammingError as error:  # another schema, or none
                cause = Cause.UNPRIVILEGED if is_unprivileged(error) else Cause.SCHEMA
                return Compared(where, only, MEANINGS[cause], 0.0)
            facts = StandbyFacts(asked=asked, answered=time.monotonic(), **row)
            event = primary.execute("select event_id from log where version = %s", (facts.version,)).fetchone()
            event_id = None if event is None else event["event_id"]
            verdict = judge_standby(history, facts, event_id, CATCH_UP_SECONDS)
            if not isinstance(verdict, Unfit):
                return Compared(where, only, None, verdict.lag_seconds)
            if verdict.cause not in (Cause.LAGGING, Cause.AHEAD) or asked > history[0].asked + CATCH_UP_SECONDS:
                return Compared(where, only, _why(verdict.cause, MEANINGS[verdict.cause]), asked - history[0].asked)
            time.sleep(PAUSE_SECONDS)


def _address_of(server: psycopg.ConnectionInfo, url: str) -> str:
    """The address of the server of a connection alone, also of one behind a name with several addresses.

    The host's name remains, by which its certificate is verified.
    """
    return make_conninfo(
        url, host=server.host, hostaddr=server.hostaddr or None, port=server.port, load_balance_hosts="disable"
    )


def _why(cause: str, meaning: str) -> str:
    return f"it is more than {CATCH_UP_SECONDS:g} s behind" if cause == "lagging" else meaning


def _row(connection: psycopg.Connection[DictRow], statement: str) -> DictRow:
    row = connection.execute(statement.encode()).fetchone()
    if row is None:
        raise psycopg.ProgrammingError("the log has no head")
    return row


def read_standby_finding(primary_url: str, standby_url: str) -> Finding:
    """Whether the standby that serves reads may. It is a warning where not: the primary serves them."""
    try:
        found = compare_standby(primary_url, standby_url)
    except psycopg.Error as error:
        why = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        return Finding("read standbys", "warning", f"no standby can be asked, so the primary serves all reads: {why}")
    if found.unfit is not None:
        return Finding("read standbys", "warning", f"{found.where} serves no reads: {found.unfit}")
    return Finding("read standbys", "ok", f"{found.where} may serve, at most {found.behind_seconds:.1f} s behind")
