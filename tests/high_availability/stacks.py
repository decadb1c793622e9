"""A stack with three PostgreSQL servers that is watched as `berth up` watches it, a load on it, and the faults of a member."""

from __future__ import annotations

import itertools
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
import psycopg

from berth.client import BerthError
from berth.local.high_availability.cluster import LocalCluster
from berth.local.high_availability.member import Member
from berth.local.high_availability.postmasters import family_of, kill_postmaster, postmaster_of
from berth.local.options import StackOptions
from berth.local.servers import LocalServer
from berth.local.stack import Stack
from orchestrator.verification.all_checks import run_checks
from tests.support.waiting import wait_for
from tests.support.whole_stack import Tenant, Whole

LOADING = 4
"""Threads that create at once."""


class Watched:
    """The stack, and its cluster."""

    def __init__(self, stack: Stack) -> None:
        assert stack.cluster is not None
        self.stack = stack
        self.cluster: LocalCluster = stack.cluster
        self.whole = Whole(stack)

    @property
    def nats_members(self) -> list[LocalServer]:
        """The NATS servers."""
        return [server for server in self.stack._servers if server.name.startswith("nats")]

    def primary(self) -> Member:
        """The member that leads."""
        found = self.cluster.primary()
        assert found is not None
        return found

    def leader_id(self, first: Member | None = None) -> str:
        """Which server answers at the address of all, or at that address with this member first."""
        order = sorted(self.cluster.members, key=lambda member: member is not first)
        hosts, ports = ",".join("127.0.0.1" for _ in order), ",".join(str(member.ports.postgres) for member in order)
        with psycopg.connect(
            self.cluster.url(), host=hosts, port=ports, autocommit=True, connect_timeout=5
        ) as connection:
            row = connection.execute("select postgres_leader_id()").fetchone()
        assert row is not None
        return str(row[0])

    def wait_whole(self) -> None:
        """Return when both standbys confirm commits, and Patroni says so too."""

        def holds() -> bool:
            leader = self.cluster.primary()
            return leader is not None and self.cluster.confirmed_primary(2) is leader

        wait_for(holds, "the primary and two standbys that confirm")

    def violations(self) -> list[str]:
        """What `berth verify` finds, once nothing waits for a place in the log."""
        wait_for(lambda: self.whole.waiting_events() == 0, "the outbox is empty")
        return [str(check) for check in run_checks(self.cluster.url()) if not check.kept]


@contextmanager
def watched_stack(
    directory: Path, *, read_standbys: bool = False, backup_directory: Path | None = None
) -> Iterator[Watched]:
    """A stack on this directory, with a slice node in each of two regions; its standbys may serve reads, or it is backed up."""
    options = StackOptions(
        directory, agents=2, wished_port=None, ha=True, read_standbys=read_standbys, backup_directory=backup_directory
    )
    with Stack(options) as stack:
        stop = threading.Event()
        given_up: list[str | None] = []
        watching = threading.Thread(target=lambda: given_up.append(stack.watch(stop)))
        watching.start()
        try:
            yield Watched(stack)
        finally:
            stop.set()
            watching.join()
        assert given_up == [None]


class Load:
    """Threads that create an allocation, note its id once it is acknowledged, and release it."""

    def __init__(self, tenant: Tenant) -> None:
        self._tenant = tenant
        self._stopping = threading.Event()
        self.acknowledged: list[uuid.UUID] = []
        self._threads = [threading.Thread(target=self._create, args=(number,)) for number in range(LOADING)]

    def __enter__(self) -> Load:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *ending: object) -> None:
        self._stopping.set()
        for thread in self._threads:
            thread.join()

    def _create(self, number: int) -> None:
        regions = itertools.cycle(("eu-1", "us-1"))
        while not self._stopping.wait(0.05):
            with suppress(BerthError):
                made = self._tenant.create(region=next(regions))
                self.acknowledged.append(made.allocation_id)
                self._tenant.client.release_allocation(made.allocation_id)

    def wait_for_more(self, count: int) -> None:
        """Return when so many more creates are acknowledged."""
        wanted = len(self.acknowledged) + count
        wait_for(lambda: len(self.acknowledged) >= wanted, f"{count} more creates")


def stored(cluster: LocalCluster) -> set[uuid.UUID]:
    """The ids of every allocation that the primary has."""
    leader = cluster.primary()
    assert leader is not None
    with psycopg.connect(leader.url(), autocommit=True) as connection:
        return {row[0] for row in connection.execute("select id from allocations")}


def kill_postgres(member: Member) -> None:
    """PostgreSQL dies, Patroni stays."""
    kill_postmaster(member.data)


def lose_machine(member: Member) -> None:
    """Patroni and PostgreSQL die at once."""
    assert member.process is not None
    psutil.Process(member.process.pid).kill()
    kill_postmaster(member.data)


def processes_of(member: Member) -> list[psutil.Process]:
    """Patroni, PostgreSQL and its processes."""
    assert member.process is not None
    server = postmaster_of(member.data)
    return [psutil.Process(member.process.pid), *(family_of(server) if server is not None else [])]


def freeze(member: Member) -> list[psutil.Process]:
    """Every process of the member stops, and its connections stay open; returns them for `thaw`."""
    found = processes_of(member)
    for process in found:
        with suppress(psutil.NoSuchProcess):
            process.suspend()
    return found


def thaw(frozen: list[psutil.Process]) -> None:
    """The member goes on where it stopped."""
    for process in frozen:
        with suppress(psutil.NoSuchProcess):
            process.resume()
