"""Faults of a stack with three PostgreSQL servers under Patroni and three NATS servers (docs/explanation/failover.md)."""

from __future__ import annotations

from contextlib import suppress

import httpx
import psutil
import psycopg

from berth.local.high_availability.cluster import LocalCluster
from berth.local.high_availability.configuration import REST_USER
from berth.local.high_availability.member import Member
from berth.local.high_availability.postmasters import family_of, postmaster_of
from tests.campaign.faults.act import Act
from tests.campaign.schedule import Fault
from tests.campaign.stage import Stage
from tests.high_availability.stacks import freeze, kill_postgres, lose_machine, thaw
from tests.proxy import Mode

SWITCHOVER_SECONDS_MAX = 30.0


class NoPrimary(Exception):
    """No server leads at this moment, because of an earlier fault."""


class _OfCluster(Act):
    """A fault of the PostgreSQL servers. `primary` is the one that led when it began."""

    def __init__(self, stage: Stage, fault: Fault) -> None:
        super().__init__(stage, fault)
        assert stage.cluster is not None, "the stage has three PostgreSQL servers"
        self.cluster: LocalCluster = stage.cluster
        self.primary: Member | None = None

    def find_primary(self) -> Member:
        """The server that leads, with a standby that confirms. Raises `NoPrimary`."""
        self.primary = self.cluster.confirmed_primary(1)
        if self.primary is None:
            raise NoPrimary("no primary with a standby that confirms its commits")
        return self.primary

    def standbys(self) -> list[Member]:
        """The others."""
        return [member for member in self.cluster.members if member is not self.primary]

    def end(self) -> None:
        """Start every Patroni that has ended; `berth up` does that within seconds."""
        for member in self.cluster.members:
            self.stage.start(member.name)


class PrimaryKilled(_OfCluster):
    """PostgreSQL of the primary dies; its Patroni gives up the lead."""

    def begin(self) -> None:
        """Kill it."""
        kill_postgres(self.find_primary())


class PrimaryLost(_OfCluster):
    """The machine of the primary is lost; the key of the lead runs out."""

    def begin(self) -> None:
        """Kill Patroni and PostgreSQL at once."""
        lose_machine(self.find_primary())


class PrimaryFrozen(_OfCluster):
    """The machine of the primary pauses, and goes on as a deposed primary."""

    def __init__(self, stage: Stage, fault: Fault) -> None:
        super().__init__(stage, fault)
        self._frozen: list[psutil.Process] = []

    def begin(self) -> None:
        """Stop every process of it."""
        self._frozen = freeze(self.find_primary())

    def end(self) -> None:
        """Let them go on."""
        thaw(self._frozen)
        super().end()


class Switchover(_OfCluster):
    """An operator moves the primary for maintenance, and moves it back: failover and failback."""

    def begin(self) -> None:
        """Hand over to a standby."""
        primary = self.find_primary()
        self._move(primary, self._following())

    def end(self) -> None:
        """Hand back, if the first primary follows. Where another fault has moved the primary meanwhile, leave it."""
        super().end()
        first = self.primary
        if first is None:
            return
        with suppress(NoPrimary):
            now = self.find_primary()
            if now is not first and first in self._streaming():
                self._move(now, first)

    def _following(self) -> Member:
        found = self._streaming()
        if not found:
            raise NoPrimary("no standby streams")
        return found[0]

    def _streaming(self) -> list[Member]:
        statuses = self.cluster.statuses()
        return [m for m in self.standbys() if m.name in statuses and statuses[m.name].state == "streaming"]

    def _move(self, primary: Member, to: Member) -> None:
        httpx.post(
            f"http://127.0.0.1:{primary.ports.rest}/switchover",
            json={"leader": primary.short_name, "candidate": to.short_name},
            auth=(REST_USER, self.cluster._passwords.rest), timeout=SWITCHOVER_SECONDS_MAX,
        ).raise_for_status()  # fmt: skip


class Lag(_OfCluster):
    """Both standbys stop receiving WAL: commits wait."""

    def __init__(self, stage: Stage, fault: Fault) -> None:
        super().__init__(stage, fault)
        self._frozen: list[psutil.Process] = []

    def begin(self) -> None:
        """Stop their WAL receivers where they are."""
        self.find_primary()
        for member in self.standbys():
            self._frozen += receivers_of(member)
        for process in self._frozen:
            with suppress(psutil.NoSuchProcess):
                process.suspend()
        if not self._frozen:
            raise NoPrimary("no standby receives WAL")

    def end(self) -> None:
        """Let them go on."""
        thaw(self._frozen)
        super().end()


def receivers_of(member: Member) -> list[psutil.Process]:
    """The WAL receiver of a standby."""
    try:
        with psycopg.connect(member.url("postgres"), autocommit=True, connect_timeout=2) as connection:
            rows = connection.execute("select pid from pg_stat_wal_receiver").fetchall()
    except psycopg.Error:
        return []
    server = postmaster_of(member.data)
    family = {} if server is None else {process.pid: process for process in family_of(server)}
    return [family[pid] for (pid,) in rows if pid in family]


class StandbysLost(_OfCluster):
    """Both standbys die, and then the same primary is restarted while commits wait for a standby."""

    def begin(self) -> None:
        """Kill the machines of the standbys, then PostgreSQL of the primary, which its Patroni starts again."""
        primary = self.find_primary()
        for member in self.standbys():
            lose_machine(member)
        kill_postgres(primary)


class Partition(Act):
    """The other servers of NATS do not reach one, nor it them. Clients reach all."""

    def begin(self) -> None:
        """Cut its routes."""
        self._set(Mode.CUT)

    def end(self) -> None:
        """Let everything through."""
        self._set(Mode.PASS)

    def _set(self, mode: Mode) -> None:
        for name, link in self.stage.routes.by_name.items():
            if self.fault.target in name.split(" > "):
                link.set_mode(mode)
