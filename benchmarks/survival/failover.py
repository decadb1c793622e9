"""The loss of a primary of `berth up --ha`: the outage of creates, creates lost, and the cost of quorum commit."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import replace
from typing import NamedTuple

import psutil
import psycopg

import migrations
from benchmarks.figures import Figure
from benchmarks.load import Outcome, drive
from benchmarks.running import TENANTS, Bench, bench
from benchmarks.seeding import BenchTenant, empty_fleet, seed_fleet, seed_tenants
from benchmarks.survival.creating import Creating
from berth.local.high_availability.cluster import LocalCluster, cluster_of
from berth.local.high_availability.member import Member
from berth.local.high_availability.postmasters import family_of, kill_postmaster, postmaster_of
from berth.local.processes import Endpoints
from berth.local.secret_files import role_passwords
from berth.local.state import Ports, StateDirectory

NODES = 10_000
CREATES = 12_000
COST_CLIENTS = 64
LOAD_CLIENTS = 8
OUTAGE_SECONDS_MAX = 60.0
RETURN_SECONDS_MAX = 90.0
COST_RATIO_MIN = 0.8
"""Quorum commit may cost a fifth of the creates."""
Act = Callable[[Member], Callable[[], None]]
"""Hurts a member, and returns what brings it back."""


class Fault(NamedTuple):
    """What is done to a primary, how often in the full command, and the longest outage that is allowed, in seconds."""

    act: Act
    kills: int
    outage_seconds_max: float


def run(quick: bool) -> list[Figure]:
    """Creates of 64 clients on both in turn; then faults under the load of 8 clients."""
    rounds, share = (1, 4) if quick else (3, 1)
    with bench() as servers, ExitStack() as held:
        cluster = _cluster(servers, held)
        seed_fleet(cluster.url(), NODES)
        tenants = {"quorum": seed_tenants(cluster.url(), TENANTS)}
        single, tenants["single"] = servers.fleet(NODES)
        addresses = {"single": single, "quorum": cluster.url()}
        endpoints = {"single": servers.endpoints(single), "quorum": _endpoints(servers, cluster)}
        for each in endpoints.values():
            servers.api(each)
        found: dict[str, list[Outcome]] = {"single": [], "quorum": []}
        for _ in range(rounds):
            for side, address in addresses.items():
                empty_fleet(address)
                port = endpoints[side].public_port
                found[side].append(drive([port], COST_CLIENTS, CREATES // share, tenants[side]))
        figures = [_cost(found)]
        for name, fault in FAULTS.items():
            empty_fleet(cluster.url())
            kills = 1 if quick else fault.kills
            figures += _outages(cluster, endpoints["quorum"].public_port, tenants["quorum"], name, fault, kills)
        return figures


def _cluster(servers: Bench, held: ExitStack) -> LocalCluster:
    """Three members with the newest schema."""
    state = StateDirectory(servers.directory / "cluster")
    state.prepare()
    cluster = cluster_of(state, Ports(state))
    held.callback(cluster.stop)
    cluster.prepare()
    for member in cluster.members:
        member.start()
    cluster.wait_formed()
    cluster.make_databases(role_passwords(state.secrets))
    migrations.upgrade(cluster.url())
    return cluster


def _endpoints(servers: Bench, cluster: LocalCluster) -> Endpoints:
    """Free ports for processes over the cluster; each connects as its role."""
    state = StateDirectory(servers.directory / "cluster")
    urls = {role: cluster.url("berth", role, password) for role, password in role_passwords(state.secrets).items()}
    return replace(servers.endpoints(cluster.url()), database_urls=urls)


def _cost(found: dict[str, list[Outcome]]) -> Figure:
    rates = {side: statistics.median(outcome.per_second for outcome in outcomes) for side, outcomes in found.items()}
    notes = [f"{side} {statistics.median(o.p50_ms for o in outcomes):.0f} ms" for side, outcomes in found.items()]
    over = f"{rates['quorum']:,.0f}/s over {rates['single']:,.0f}/s of one server;"
    return Figure(
        "create_64_clients_quorum",
        rates["quorum"] / rates["single"],
        "ratio",
        COST_RATIO_MIN,
        at_least=True,
        over=over,
        note=f"p50 {', '.join(notes)}",
    )


def _outages(
    cluster: LocalCluster, port: int, tenants: list[BenchTenant], name: str, fault: Fault, kills: int
) -> list[Figure]:
    """So many faults of the primary, one after another, each when both standbys confirm again.

    What was acknowledged up to and in an outage is compared with the new primary after each.
    """
    outages: list[float] = []
    lost: list[int] = []
    with Creating(port, LOAD_CLIENTS, tenants) as creating:
        for _ in range(kills):
            primary = _wait_whole(cluster)
            creating.first_sent_after(time.monotonic(), OUTAGE_SECONDS_MAX)
            began = time.monotonic()
            back = fault.act(primary)
            # What was sent before the fault was complete may have been answered by the dying primary.
            complete = time.monotonic()
            outages.append(complete - began + creating.first_sent_after(complete, OUTAGE_SECONDS_MAX))
            back()
            lost.append(_lost(creating, _wait_whole(cluster)))
        last = _wait_whole(cluster)
    lost.append(_lost(creating, last))
    every = ", ".join(f"{outage:.1f}" for outage in outages)
    word = name.replace(" ", "_")
    acknowledged = f"after each of {kills} faults, of {len(creating.acknowledged):,} acknowledged"
    return [
        Figure(f"outage_{word}", max(outages), "s", fault.outage_seconds_max, note=f"worst of {every} s"),
        Figure(f"lost_creates_{word}", max(lost), "", 0, note=acknowledged),
    ]


def _lost(creating: Creating, primary: Member) -> int:
    """How many creates that were acknowledged by now this primary does not have."""
    acknowledged = {found for found, _, _ in list(creating.acknowledged)}
    with psycopg.connect(primary.url(), autocommit=True) as connection:
        stored = {str(row[0]) for row in connection.execute("select id from allocations")}
    return len(acknowledged - stored)


def _wait_whole(cluster: LocalCluster) -> Member:
    """The primary, once two standbys confirm its commits."""
    deadline = time.monotonic() + RETURN_SECONDS_MAX
    while time.monotonic() < deadline:
        primary = cluster.confirmed_primary(2)
        if primary is not None:
            return primary
        time.sleep(0.1)
    shown = ", ".join(f"{name}: {status}" for name, status in cluster.statuses().items())
    raise RuntimeError(f"the members did not come together again: {shown}")


def _kill_postgres(member: Member) -> Callable[[], None]:
    kill_postmaster(member.data)
    return lambda: None


def _lose_machine(member: Member) -> Callable[[], None]:
    """Patroni comes back after the outage, as a machine that is started again."""
    member.kill()
    return member.start


def _freeze(member: Member) -> Callable[[], None]:
    """The processes stop and their connections stay open, as those of a paused machine."""
    server = postmaster_of(member.data)
    assert server is not None
    assert member.process is not None
    frozen = [psutil.Process(member.process.pid), *family_of(server)]

    def each(act: Callable[[psutil.Process], None]) -> None:
        for process in frozen:
            with suppress(psutil.NoSuchProcess):
                act(process)

    each(psutil.Process.suspend)
    return lambda: each(psutil.Process.resume)


FAULTS: dict[str, Fault] = {
    "postgresql killed": Fault(_kill_postgres, 8, 8.0),
    "machine lost": Fault(_lose_machine, 6, 30.0),
    "frozen": Fault(_freeze, 6, 35.0),
}
"""Twenty faults under load."""
