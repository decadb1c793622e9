"""Faults that another user of the same PostgreSQL causes: sessions are ended, used up, locked out, or left open."""

from __future__ import annotations

import threading
import time
from contextlib import suppress

import psycopg
from psycopg import sql

from tests.campaign.faults.act import Act
from tests.campaign.faults.probing import stalled_events
from tests.campaign.schedule import Fault
from tests.campaign.stage import Stage

CONNECT_SECONDS_MAX = 3
LOOK_SECONDS = 0.3
TAKING_SECONDS_MIN = 3.0
NEIGHBOUR = "campaign_neighbour"
"""A role without rights in Berth's schema, with another database."""


def terminate_sessions(url: str, role: str) -> int:
    """End every session of a role; return how many."""
    with psycopg.connect(url, autocommit=True, connect_timeout=CONNECT_SECONDS_MAX) as connection:
        found = connection.execute(
            "select count(*) filter (where pg_terminate_backend(pid)) from pg_stat_activity where usename = %s", (role,)
        ).fetchone()
    assert found is not None
    return int(found[0])


def make_neighbour(url: str, password: str) -> str:
    """Another user of the server; return the URL of the database `postgres` as that role."""
    with psycopg.connect(url, autocommit=True, connect_timeout=CONNECT_SECONDS_MAX) as connection:
        name = sql.Identifier(NEIGHBOUR)
        if connection.execute("select from pg_roles where rolname = %s", (NEIGHBOUR,)).fetchone() is None:
            connection.execute(sql.SQL("create role {} login").format(name))
        # Two hundred sessions are made: half of the work of each would be to hash the password 4,096 times.
        connection.execute("set scram_iterations = 1")
        connection.execute(sql.SQL("alter role {} password {}").format(name, sql.Literal(password)))
        return psycopg.conninfo.make_conninfo(url, user=NEIGHBOUR, password=password, dbname="postgres")


class Terminate(Act):
    """An operator, or the failover of a proxy, ends every session of one role."""

    def begin(self) -> None:
        """End them."""
        terminate_sessions(self.stage.endpoints.database_url, self.fault.detail)

    def end(self) -> None:
        """Nothing: the pools have to connect anew."""


class _Sessions(Act):
    """Sessions that are open for as long as the fault."""

    def __init__(self, stage: Stage, fault: Fault) -> None:
        super().__init__(stage, fault)
        self.sessions: list[psycopg.Connection] = []

    def open(self, url: str) -> psycopg.Connection:
        """One more session, in autocommit."""
        session = psycopg.connect(url, autocommit=True, connect_timeout=CONNECT_SECONDS_MAX)
        self.sessions.append(session)
        return session

    def end(self) -> None:
        """Close them all, which rolls back."""
        while self.sessions:
            self.sessions.pop().close()


class Exhaust(_Sessions):
    """A neighbour opens sessions until it is refused, while one of our roles loses its own and cannot get others."""

    def begin(self) -> None:
        """Take every connection, end those of the role, and take these as well."""
        url = self.stage.endpoints.database_url
        neighbour = make_neighbour(url, self.stage.state.path.name)
        until = time.monotonic() + max(self.fault.seconds, TAKING_SECONDS_MIN)
        self._take_all(neighbour, until)
        terminate_sessions(url, self.fault.detail)
        self._take_all(neighbour, until)

    def _take_all(self, url: str, until: float) -> None:
        """Return when no more are to be had, or the fault is over."""
        try:
            while time.monotonic() < until:
                self.open(url)
        except psycopg.OperationalError as error:
            # 53300 at the connection: "too many clients", or "remaining slots are reserved".
            if "too many" not in str(error) and "reserved" not in str(error):
                raise


class Lock(_Sessions):
    """An operator's transaction holds a table that every write needs."""

    def begin(self) -> None:
        """Lock it as `alter table` does; wait for it no longer than the fault lasts."""
        session = self.open(self.stage.endpoints.database_url)
        session.execute(sql.SQL("set lock_timeout = {}").format(sql.Literal(f"{max(self.fault.seconds, 0.1):.3f}s")))
        session.execute("begin")
        session.execute(sql.SQL("lock table {} in access exclusive mode").format(sql.Identifier(self.fault.detail)))


class OpenTransaction(_Sessions):
    """A transaction that wrote, and saw a snapshot, stays open. Meanwhile events have to get their versions."""

    def __init__(self, stage: Stage, fault: Fault) -> None:
        super().__init__(stage, fault)
        self._over = threading.Event()
        self._watching: threading.Thread | None = None

    def begin(self) -> None:
        """Take a transaction id and a snapshot, and keep both."""
        session = self.open(self.stage.endpoints.database_url)
        session.execute("begin isolation level repeatable read")
        session.execute("select pg_current_xact_id(), count(*) from outbox")
        self._over.clear()
        self._watching = threading.Thread(target=self._watch, name="open transaction")
        self._watching.start()

    def end(self) -> None:
        """Roll back."""
        self._over.set()
        if self._watching is not None:
            self._watching.join()
        super().end()

    def _watch(self) -> None:
        while not self._over.wait(LOOK_SECONDS):
            with suppress(psycopg.Error):  # another fault of the database
                self.observed += stalled_events(self.stage.endpoints.database_url)
