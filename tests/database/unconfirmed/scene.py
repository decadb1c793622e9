"""A cluster whose commits wait for a standby, with something to act on by each verb of the public API."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import psycopg

from tests.api.calling import Caller, Place, fresh, insert_admin_key, new_place, new_tenant, one_gpu, rent
from tests.api.reservations.reserving import HOLDER
from tests.support.failover.cluster import Cluster, Member, running_cluster
from tests.support.waiting import wait_for


@contextmanager
def replicated(directory: Path) -> Iterator[Cluster]:
    """Three servers whose commits wait for one of two standbys."""
    with running_cluster(directory / f"cluster-{uuid.uuid4().hex[:8]}") as running:
        running.a.wait_for_commits_of(running.b, running.c)
        yield running


def waiting_commits(member: Member) -> int:
    """How many commits wait for a standby at this server."""
    with psycopg.connect(member.url(), autocommit=True) as connection:
        row = connection.execute("select count(*) from pg_stat_activity where wait_event = 'SyncRep'").fetchone()
    assert row is not None
    return int(row[0])


def cancelled_waits(member: Member) -> int:
    """How often this server has ended a commit's wait because it was cancelled: rows that no standby has are visible then."""
    return member.log.read_text().count("canceling wait for synchronous replication")


def kill_standbys(cluster: Cluster) -> None:
    """From now on no commit is confirmed."""
    cluster.b.kill()
    cluster.c.kill()


def return_standbys(cluster: Cluster) -> None:
    """Start both standbys, and return when every commit that waited is confirmed."""
    cluster.b.start()
    cluster.c.start()
    wait_for(lambda: waiting_commits(cluster.a) == 0, "the commits are confirmed")


def count_of(member: Member, query: str, *values: Any) -> int:
    """The single number that a query returns, as another session sees it."""
    with psycopg.connect(member.url(), autocommit=True) as connection:
        row = connection.execute(query.encode(), values).fetchone()
    assert row is not None
    return int(row[0])


@dataclass(frozen=True)
class Act:
    """A request of a tenant with its idempotency key, and a query for the rows that show that it was done."""

    tenant: Caller
    path: str
    body: dict[str, Any] | None
    status: int
    done: str
    subject: str
    key: str = field(default_factory=partial(fresh, "key"))

    def send(self, http: httpx.Client | None = None) -> httpx.Response:
        """Send it, whatever comes of it; to another process with `http`."""
        caller = self.tenant if http is None else replace(self.tenant, http=http)
        return caller.call("POST", self.path, self.body, key=self.key)

    def times_done(self, member: Member) -> int:
        """How often another session of this server sees it done."""
        return count_of(member, self.done, self.subject)


def prepared(http: httpx.Client, cluster: Cluster) -> dict[str, Act]:
    """A request of each verb that has not been sent yet, each of another tenant in another region: none waits for a lock."""
    admin = Caller(http, insert_admin_key(cluster.a.url()))
    acts = {}
    for verb in VERBS:
        with psycopg.connect(cluster.a.url(), autocommit=True) as database:
            acts[verb] = _ACTS[verb](new_tenant(admin), new_place(admin, database))
        assert acts[verb].times_done(cluster.a) == 0
    return acts


def _create(tenant: Caller, place: Place) -> Act:
    body = one_gpu(tenant, place, name=fresh("created"))
    return Act(tenant, "/allocations", body, 201, "select count(*) from allocations where name = %s", body["name"])


def _release(tenant: Caller, place: Place) -> Act:
    made = rent(tenant, place)["allocation_id"]
    done = "select count(*) from allocations where id = %s::uuid and state <> 'requested'"
    return Act(tenant, f"/allocations/{made}/release", None, 202, done, made)


def _hold(tenant: Caller, place: Place) -> Act:
    holder = fresh("holder")
    body = {"sku": place.sku, "gpus": 1, "region": place.region, "holder_id": holder}
    return Act(tenant, "/reservations", body, 201, "select count(*) from reservations where holder_id = %s", holder)


def _decide(verb: str, tenant: Caller, place: Place) -> Act:
    held = _held(tenant, place)
    done = "select count(*) from reservations where id = %s::uuid and state <> 'hold'"
    return Act(tenant, f"/reservations/{held}/{verb}", {"holder_id": HOLDER}, 200, done, held)


def _consume(tenant: Caller, place: Place) -> Act:
    held = _held(tenant, place)
    keys = one_gpu(tenant, place)["ssh_key_ids"]
    body = {"reservation_id": held, "holder_id": HOLDER, "ssh_key_ids": keys}
    done = "select count(*) from allocations where reservation_id = %s::uuid"
    return Act(tenant, "/allocations", body, 201, done, held)


def _held(tenant: Caller, place: Place) -> str:
    body = {"sku": place.sku, "gpus": 1, "region": place.region, "holder_id": HOLDER}
    return str(tenant.make("/reservations", body)["reservation_id"])


_ACTS: dict[str, Callable[[Caller, Place], Act]] = {
    "create": _create,
    "release": _release,
    "hold": _hold,
    "confirm": partial(_decide, "confirm"),
    "cancel": partial(_decide, "cancel"),
    "consume": _consume,
}
VERBS = tuple(_ACTS)
