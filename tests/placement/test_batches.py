"""Creates placed together: one that loses harms no other, and what a batch writes at its end is what it decided."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.allocations.commands.create import create_allocations
from orchestrator.operations.execution import Deferred
from orchestrator.operations.store.operations import Answer
from orchestrator.problems import Problem
from tests.placement.fleet import Fleet, create_of, working
from tests.support.creating import body_of, run, word_of

UNKNOWN_CLAIM = """
insert into claims (node_id, tenant_id, owner_kind, owner_id, units, during, occupied, occupied_from, fence)
select id, gen_random_uuid(), 'allocation', gen_random_uuid(),
       int8multirange(int8range(unit_base, unit_base + 8)), tstzrange(clock_timestamp(), null), true, clock_timestamp(), 1
from nodes order by placement_rank, id limit 1
returning node_id
"""
FITS_THAT_LIE = """
with derived as (
    select s.node_id, sum((1::bigint << s.slot_index)) filter (where not exists (
               select from claims c where c.node_id = s.node_id and c.closed_at is null and c.units @> s.unit)) as mask
    from slots s group by s.node_id
)
select count(*) from nodes n join derived d on d.node_id = n.id
where n.free_mask <> coalesce(d.mask, 0)
   or n.fit_class <> bit_count((n.free_mask & 15)::bit(64)) * 64 + bit_count((n.free_mask >> 4)::bit(64))
"""


def test_a_wrong_fit_costs_no_create_its_place_and_is_corrected(database_url: str) -> None:
    """The first node's units are taken, but its fit says free: the batch goes back, and each finds its place alone."""
    fleet = Fleet(database_url, slice_nodes=3)
    tenants = [fleet.tenant(), fleet.tenant()]
    full = fleet.one(UNKNOWN_CLAIM)

    results = run(database_url, [create_of(tenants[i % 2], gpus=2) for i in range(8)])

    assert Counter(map(word_of, results)) == {"201": 8}
    assert fleet.one("select free_mask from nodes where id = %s", full) == 0
    assert fleet.one("select count(*) from allocations where node_id = %s", full) == 0
    assert fleet.overlaps() == 0
    assert fleet.one(FITS_THAT_LIE) == 0
    assert fleet.one("select count(*) from operations where status = 201") == 8
    assert fleet.one("select sum(gpus_used) from tenant_quotas") == 16


TROUBLE = """
create function trouble() returns trigger language plpgsql as $$ begin
    raise exception 'trouble' using errcode = tg_argv[0];
end $$;
create trigger refusals before insert on operations for each row when (new.status >= 400)
    execute function trouble('disk_full');
create trigger windows before insert on allocations for each row when (new.ends_at is not null)
    execute function trouble('disk_full');
create trigger bugs before insert on allocations for each row when (new.name = 'odd') execute function trouble('P0001');
"""
FREE_TODAY_ONLY = """
insert into claims (node_id, tenant_id, owner_kind, owner_id, units, during, fence)
    select id, gen_random_uuid(), 'reservation', gen_random_uuid(),
           int8multirange(int8range(unit_base, unit_base + 1)), tstzrange(clock_timestamp() + interval '1 day', null), 1
    from nodes
"""


def test_what_has_its_place_is_answered_whatever_happens_to_the_rest_of_the_list(database_url: str) -> None:
    """A refusal that cannot be stored, a window in which placing fails, and an unforeseen error."""
    fleet = Fleet(database_url, slice_nodes=2)
    tenant = fleet.tenant()
    fleet.connection.execute(TROUBLE)
    fleet.connection.execute(FREE_TODAY_ONLY)
    fleet.connection.execute("select refresh_node_fit(id) from nodes")
    window = replace(create_of(tenant, gpus=8), ends_at=datetime.now(UTC) + timedelta(hours=1))
    odd = replace(create_of(tenant), name="odd")

    refused = run(database_url, [create_of(tenant), create_of(tenant, region="nowhere")])
    assert sorted(map(word_of, refused)) == ["201", "database_unavailable"]
    windowed = run(database_url, [window, create_of(tenant)])
    assert sorted(map(word_of, windowed)) == ["201", "database_unavailable"]
    unforeseen = run(database_url, [create_of(tenant), odd, create_of(tenant)])
    assert sorted(map(word_of, unforeseen)) == ["201", "201", "internal"]
    assert [one.outcome for one in unforeseen if isinstance(one, Problem)] == ["not_done"], "Postgres itself refused it"


def test_a_creation_from_long_ago_is_answered_among_new_ones(database_url: str) -> None:
    fleet = Fleet(database_url, slice_nodes=2)
    tenant = fleet.tenant()
    old = create_of(tenant, gpus=2)
    (first,) = run(database_url, [old])
    fleet.connection.execute("delete from operations")

    fresh = [create_of(tenant), create_of(tenant)]
    before, again, after = run(database_url, [fresh[0], old, fresh[1]])

    assert body_of(again) == body_of(first)
    assert [word_of(before), word_of(after)] == ["201", "201"]
    assert fleet.one("select count(*) from allocations") == 3
    assert fleet.one("select gpus_used from tenant_quotas") == 4


def test_whatever_is_placed_together_every_fit_is_what_the_claims_say(database_url: str) -> None:
    fleet = Fleet(database_url, slice_nodes=5)

    @given(st.lists(st.lists(st.sampled_from([1, 1, 2, 4, 8]), min_size=1, max_size=12), min_size=1, max_size=4))
    @settings(max_examples=15, deadline=None)
    def holds(lists: list[list[int]]) -> None:
        tenant = fleet.tenant()

        results = run(database_url, *([create_of(tenant, gpus=gpus) for gpus in together] for together in lists))

        placed = sum(body_of(result)["gpus"] for result in results if word_of(result) == "201")
        assert fleet.overlaps() == 0
        assert fleet.one(FITS_THAT_LIE) == 0
        assert fleet.one("select gpus_used from tenant_quotas where tenant_id = %s", tenant.id) == placed
        assert fleet.one("select coalesce(sum(gpus), 0) from allocations where tenant_id = %s", tenant.id) == placed
        fleet.connection.execute(
            "truncate claims, allocations, allocation_timeline, operations, outbox, network_addresses, published_ports"
        )
        fleet.connection.execute("select refresh_node_fit(id) from nodes")

    holds()


def test_a_locked_quota_or_key_delays_its_own_create_alone(database_url: str) -> None:
    fleet = Fleet(database_url, slice_nodes=2)
    ours, theirs = fleet.tenant(), fleet.tenant()
    creates = [create_of(ours), create_of(theirs), create_of(ours)]
    keyed = [create_of(ours, key="taken"), create_of(ours), create_of(ours, region="nowhere")]
    unstored = [create_of(ours, region="nowhere", key="taken"), create_of(ours, region="nowhere"), create_of(ours)]

    async def scene() -> None:
        async with working(database_url) as (context, catalogue):
            fleet.connection.execute("begin")
            fleet.connection.execute("select from tenant_quotas where tenant_id = %s for update", (theirs.id,))
            results = await create_allocations(context, catalogue, creates)
            assert [isinstance(result, Answer) and result.status == 201 for result in results] == [True, False, True]
            fleet.connection.execute("rollback")
            assert not isinstance(results[1], Answer | Problem)
            assert word_of(await results[1].retry_alone()) == "201"

            fleet.connection.execute("begin")
            fleet.connection.execute(
                "insert into operations (scope, key, fingerprint, retire_after) values (%s, 'taken', %s, now())",
                (ours.id, b"0" * 32),
            )
            waiting = await create_allocations(context, catalogue, keyed)
            refused = await create_allocations(context, catalogue, unstored)
            told = [
                word_of(await result.retry_alone())
                for result in (*waiting[1:2], refused[1])
                if isinstance(result, Deferred)
            ]
            assert told == ["201", "none_in_region"]
            assert [word_of(result) for result in (waiting[2], refused[2]) if isinstance(result, Answer)] == [
                "none_in_region", "201",
            ]  # fmt: skip
            fleet.connection.execute("rollback")
            late = [
                word_of(await result.retry_alone())
                for result in (waiting[0], refused[0])
                if isinstance(result, Deferred)
            ]
            assert late == ["201", "operation_conflict"]

    asyncio.run(scene())
