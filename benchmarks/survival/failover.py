"""The loss of a primary of `berth up --ha`: the outage of creates, creates lost, and the cost of quorum commit."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import replace

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
Fault = Callable[[Member], Callable[[], None]]
"""Hurts a member, and returns what brings it back."""


def run(quick: bool) -> list[Figure]:
    """Creates of 64 clients on both in turn; then faults under the load of 8 clients."""
    rounds, share, kills = (1, 4, 1) if quick else (3, 1, 5)
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
        for fault, act in FAULTS.items():
            empty_fleet(cluster.url())
            figures += _outages(cluster, endpoints["quorum"].public_port, tenants["quorum"], fault, act, kills)
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
        over=over,
        note=f"p50 {', '.join(notes)}",
    )


def _outages(
    cluster: LocalCluster, port: int, tenants: list[BenchTenant], fault: str, act: Fault, kills: int
) -> list[Figure]:
    """So many faults of the primary, one after another, each when both standbys confirm again."""
    outages = []
    with Creating(port, LOAD_CLIENTS, tenants) as creating:
        for _ in range(kills):
            primary = _wait_whole(cluster)
            creating.first_sent_after(time.monotonic(), OUTAGE_SECONDS_MAX)
            began = time.monotonic()
            back = act(primary)
            outages.append(creating.first_sent_after(began, OUTAGE_SECONDS_MAX))
            back()
        last = _wait_whole(cluster)
    with psycopg.connect(last.url(), autocommit=True) as connection:
        stored = {str(row[0]) for row in connection.execute("select id from allocations")}
    acknowledged = {found for found, _, _ in creating.acknowledged}
    every = ", ".join(f"{outage:.1f}" for outage in outages)
    name = fault.replace(" ", "_")
    return [
        Figure(f"outage_{name}", statistics.median(outages), "s", note=f"median of {every} s"),
        Figure(
            f"lost_creates_{name}", len(acknowledged - stored), "", 0, note=f"of {len(acknowledged):,} acknowledged"
        ),
    ]


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


FAULTS: dict[str, Fault] = {"postgresql killed": _kill_postgres, "machine lost": _lose_machine, "frozen": _freeze}
