"""Policies, consumers, appends, truncations and readers in any order, against a model of a few lines."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test
from starlette.testclient import TestClient

from berth.local.servers import LocalPostgres
from orchestrator.app import build_services, public_listener
from orchestrator.log.queries import find_kept, read_feed
from orchestrator.log.store.feed import ALL
from tests.api.calling import Caller, insert_admin_key, new_tenant
from tests.databases import copied_database
from tests.log.retention.partitions import append, cut_log, truncate
from tests.log.retention.policies import put, send
from tests.support.public_api import settings_over

PARTITION = 10
TENANT_VERSIONS_MAX = 25
RESET = """
delete from log; delete from outbox; delete from retention_policies; delete from log_tenants;
update log_head set version = 0; update log_first set version = 1;
delete from consumer_positions; insert into consumer_positions (consumer, version) values ('berth-relay', 0);
"""


class World:
    """The application over one database."""

    def __init__(self, http: TestClient, services: Any, database: psycopg.Connection[Any], url: str) -> None:
        self.http, self.services, self.database = http, services, database
        self.admin = Caller(http, insert_admin_key(url))
        self.tenant = new_tenant(self.admin)

    def run(self, query: Any, *arguments: Any) -> Any:
        """Run a query of the control plane in its event loop."""
        assert self.http.portal is not None
        return self.http.portal.call(query, self.services.context.database, *arguments)


@pytest.fixture(scope="module")
def world(
    postgres_server: LocalPostgres, migrated_template: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[World]:
    """For all the stories of the module."""
    with copied_database(postgres_server, migrated_template) as url:
        bounds = {"retention_tenant_versions_max": TENANT_VERSIONS_MAX}
        given = settings_over(url, tmp_path_factory.mktemp("authority")).model_copy(update=bounds)
        services = build_services(given)
        with TestClient(public_listener(services), raise_server_exceptions=False) as http:
            with psycopg.connect(url, autocommit=True) as database:
                yield World(http, services, database, url)
            assert http.portal is not None
            http.portal.call(services.context.database.close)


class Stories(RuleBasedStateMachine):
    """The log keeps what the model keeps, for every reader."""

    world: World
    told = 0

    def __init__(self) -> None:
        super().__init__()
        self.first, self.head = 1, 0
        self.owners: dict[int, str | None] = {}
        self.pins: dict[tuple[bool, str], int] = {}
        self.positions = {"berth-relay": 0}

    @initialize()
    def begin(self) -> None:
        """An empty log in small partitions. What makes tenants and policies leaves events, so those are swept away."""
        type(self).told += 1
        self.world.database.execute(RESET)
        cut_log(self.world.database, PARTITION)

    def count_events(self) -> None:
        """Requests emit events too: they are in the log like others."""
        append(self.world.database, 0)
        rows = self.world.database.execute(
            "select version, tenant_id::text from log where version > %s order by version", (self.head,)
        ).fetchall()
        self.owners |= dict(rows)
        assert list(range(self.head + 1, self.head + 1 + len(rows))) == [version for version, _ in rows]
        self.head += len(rows)

    @rule(number=st.integers(1, 15), own=st.booleans())
    def write(self, number: int, own: bool) -> None:
        """Events come."""
        append(self.world.database, number, self.world.tenant.tenant_id if own else None)
        self.count_events()

    @rule(by_tenant=st.booleans(), name=st.sampled_from("ab"), place=st.integers(-30, 3))
    def pin(self, by_tenant: bool, name: str, place: int) -> None:
        """A policy is made or changed; what it names lies around the log's end."""
        caller = self.world.tenant if by_tenant else self.world.admin
        version = max(0, self.head + place)
        answer = put(caller, name, version)
        if version > self.head + 1:
            expected = 400
        elif version < self.first and self.first > 1:
            expected = 410
        elif by_tenant and max(1, version) < self.head - TENANT_VERSIONS_MAX:
            expected = 409
        else:
            expected = 200 if (by_tenant, name) in self.pins else 201
            self.pins[by_tenant, name] = version
        assert answer.status_code == expected, answer.text
        self.count_events()

    @rule(by_tenant=st.booleans(), name=st.sampled_from("ab"))
    def unpin(self, by_tenant: bool, name: str) -> None:
        """A policy is deleted."""
        answer = send(self.world.tenant if by_tenant else self.world.admin, "DELETE", name)
        assert answer.status_code == (204 if self.pins.pop((by_tenant, name), None) is not None else 404)
        self.count_events()

    @rule(name=st.sampled_from(["berth-relay", "berth-relay", "billing"]), share=st.floats(0, 1))
    def consume(self, name: str, share: float) -> None:
        """A consumer gets on, or comes new, at the log's beginning."""
        before = self.positions.get(name, self.first - 1)
        position = self.positions[name] = before + round((self.head - before) * share)
        self.world.database.execute(
            "insert into consumer_positions (consumer, version) values (%s, %s) "
            "on conflict (consumer) do update set version = excluded.version",
            (name, position),
        )

    @rule()
    def forget(self) -> None:
        """A consumer is given up."""
        self.world.database.execute("delete from consumer_positions where consumer = 'billing'")
        self.positions.pop("billing", None)

    @rule(versions_min=st.sampled_from([1, 1, 15]))
    def truncate(self, versions_min: int) -> None:
        """Nothing that is needed is dropped, nothing out of order; what no consumer needs is dropped."""
        end = (self.first // PARTITION + 1) * PARTITION
        if end > self.head or self.head - end + 1 < versions_min:
            expected = "kept"
        elif min(self.needs()) < end:
            expected = "held"
        else:
            expected, self.first = "dropped", end
        assert truncate(self.world.database, versions_min=versions_min) == expected

    def needs(self) -> Iterator[int]:
        """For each consumer of the log, the first version that it needs."""
        for (by_tenant, _), version in self.pins.items():
            yield max(1, version, self.head - TENANT_VERSIONS_MAX if by_tenant else 0)
        for position in self.positions.values():
            yield position + 1

    @rule(after=st.floats(0, 1), own=st.booleans())
    def read(self, after: float, own: bool) -> None:
        """A resuming reader receives all that follows, or an error that some of it is dropped."""
        place = round(self.head * after)
        tenant_id = self.world.tenant.tenant_id if own else None
        meant = [v for v, owner in self.owners.items() if v > place and (not own or owner == str(tenant_id))]
        lost = [version for version in meant if version < self.first]
        is_gone = bool(lost) if own else place + 1 < self.first
        assert self.world.run(find_kept, place, tenant_id) == (self.first, is_gone)
        scan = self.world.run(read_feed, place, self.head, tenant_id, ALL)
        assert [event.version for event in scan.events] == [version for version in meant if version >= self.first]

    @invariant()
    def log_is_what_the_model_says(self) -> None:
        """From its beginning to its head, whole."""
        rows = self.world.database.execute(
            "select min(version), max(version), count(*), (select version from log_first) from log"
        ).fetchone()
        whole = (self.first, self.head, self.head - self.first + 1, self.first)
        assert rows == (whole if self.head else (None, None, 0, 1))
        assert all(needed >= self.first for needed in self.needs())


def tell_stories(world: World, number: int) -> int:
    """How many ran: at least `number`, of thirty steps at most."""
    Stories.world, Stories.told = world, 0
    run_state_machine_as_test(
        Stories,
        settings=settings(
            max_examples=number, stateful_step_count=30, deadline=None, derandomize=True,
            suppress_health_check=list(HealthCheck),
        ),
    )  # fmt: skip
    return Stories.told


@pytest.mark.full
def test_nothing_that_is_needed_is_dropped(world: World) -> None:
    assert tell_stories(world, 8) >= 8


@pytest.mark.full
@pytest.mark.timeout(600)
def test_it_never_is(world: World) -> None:
    assert tell_stories(world, 100) >= 100
