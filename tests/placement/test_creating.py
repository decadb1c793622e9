"""Creates against real PostgreSQL: winners, refusals with their reasons, and the rows left behind (P1, P2, P4)."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import psycopg
import pytest

from orchestrator.operations.execution import Result
from orchestrator.operations.store.operations import Answer
from orchestrator.placement.store.placing import Create
from orchestrator.problems import OperationConflict
from tests.placement.fleet import Fleet, create_all, create_of, fresh_fingerprint, with_image, working
from tests.support.creating import body_of, run, word_of
from tests.support.waiting import async_wait_for


def test_a_create_leaves_claim_allocation_operation_timeline_and_event_together(database_url: str) -> None:
    fleet = Fleet(database_url, slice_nodes=1)
    tenant = fleet.tenant()
    (result,) = run(database_url, [create_of(tenant, gpus=2, key="k")])
    allocation = body_of(result)["allocation_id"]
    assert body_of(result)["status"] == "requested"
    assert fleet.one("select count(*) from claims where owner_id = %s and booked and occupied", allocation) == 1
    assert fleet.one("select body from operations where key = 'k' and subject_id = %s", allocation) == result.body  # type: ignore[union-attr]
    assert fleet.one("select to_state from allocation_timeline where allocation_id = %s", allocation) == "requested"
    assert (
        fleet.one("select payload ->> 'allocation_id' from outbox where event_type = 'provisioning.requested'")
        == allocation
    )
    assert fleet.one("select gpus_used from tenant_quotas where tenant_id = %s", tenant.id) == 2


def test_exactly_the_capacity_is_placed_under_contention(database_url: str) -> None:
    fleet = Fleet(database_url, slice_nodes=3)
    tenants = [fleet.tenant() for _ in range(4)]
    lists = [[create_of(tenants[i % 4]) for _ in range(1 + i % 5)] for i in range(16)]
    words = Counter(map(word_of, run(database_url, *lists)))
    assert words == {"201": 24, "busy_now": sum(map(len, lists)) - 24}
    assert fleet.overlaps() == 0
    assert fleet.one("select sum(gpus_used) from tenant_quotas") == 24
    assert fleet.one("select sum(bit_count(free_mask::bit(64))) from nodes") == 0


def test_bare_metal_takes_the_whole_block_and_each_node_once(database_url: str) -> None:
    fleet = Fleet(database_url, metal_nodes=2)
    tenant = fleet.tenant()
    lists = [[create_of(tenant, gpus=8, sku="h100.metal", region="us-1")] for _ in range(5)]
    assert Counter(map(word_of, run(database_url, *lists))) == {"201": 2, "busy_now": 3}
    assert fleet.one("select count(distinct node_id) from claims where upper(units) - lower(units) = 8") == 2


HALF_OUT_OF_SERVICE = """
with more as (
    insert into slots (unit, node_id, slot_index, numa_half, state, reason)
    select n.unit_base + i, n.id, i, 1, case when i < 12 then 'in_service' else 'out_of_service' end,
           case when i >= 12 then 'r' end
    from nodes n, generate_series(8, 15) i where n.id = %(node)s
)
update slots set numa_half = 0, state = case when slot_index < 4 then 'in_service' else 'out_of_service' end,
                 reason = case when slot_index >= 4 then 'r' end where node_id = %(node)s
"""


def test_bare_metal_is_refused_while_only_a_part_of_a_larger_node_has_as_many_gpus_free(database_url: str) -> None:
    """At the first attempt: to wait for that node would not make room."""
    fleet = Fleet(database_url, metal_nodes=2)
    tenant = fleet.tenant()
    larger = fleet.one("select id from nodes where shape = 'baremetal' order by unit_base desc limit 1")
    fleet.connection.execute("update nodes set slot_count = 16, half_slots = 8 where id = %s", (larger,))
    fleet.connection.execute(HALF_OUT_OF_SERVICE, {"node": larger})
    fleet.connection.execute("select refresh_node_fit(%s)", (larger,))
    assert fleet.one("select fit_class from nodes where id = %s", larger) == 4 * 64 + 4

    metal = [create_of(tenant, gpus=8, sku="h100.metal", region="us-1") for _ in range(2)]
    assert [word_of(result) for result in run(database_url, metal[:1])] == ["201"]
    (refused,) = run(database_url, metal[1:])
    assert word_of(refused) == "busy_now"
    assert "0 are free" in body_of(refused)["detail"], "not that rivals took every node"


def test_nodes_that_serve_equally_well_come_by_their_rank_and_not_by_their_id(database_url: str) -> None:
    fleet = Fleet(database_url, slice_nodes=5)
    tenant = fleet.tenant()
    assert fleet.one("select count(distinct placement_rank) from nodes") == 5, "each draws its own"
    fleet.connection.execute(
        "update nodes n set placement_rank = r.place from (select id, row_number() over (order by id desc) as place"
        " from nodes) r where r.id = n.id"
    )
    for _ in range(5):
        run(database_url, [create_of(tenant, gpus=8)])
    taken = fleet.connection.execute("select node_id from allocations order by requested_at").fetchall()
    assert taken == fleet.connection.execute("select id from nodes order by id desc").fetchall()


def test_an_item_that_is_refused_harms_no_other_in_its_list(database_url: str) -> None:
    fleet = Fleet(database_url, slice_nodes=1)
    tenant, other = fleet.tenant(gpus_limit=3), fleet.tenant()
    strange = create_of(other)
    stolen = Create(**{**{f: getattr(strange, f) for f in strange.__slots__}, "ssh_key_ids": (tenant.ssh_key,)})
    items = [create_of(tenant, gpus=2), create_of(tenant, gpus=2), stolen, create_of(tenant, gpus=1), create_of(other)]
    assert [word_of(r) for r in run(database_url, items)] == [
        "201",
        "quota_exceeded",
        "ssh_key_not_found",
        "201",
        "201",
    ]
    assert fleet.one("select gpus_used from tenant_quotas where tenant_id = %s", tenant.id) == 3


def test_a_quota_holds_under_concurrent_creates(database_url: str) -> None:
    fleet = Fleet(database_url, slice_nodes=4)
    tenant = fleet.tenant(gpus_limit=10)
    words = Counter(map(word_of, run(database_url, *[[create_of(tenant), create_of(tenant)] for _ in range(12)])))
    assert words == {"201": 10, "quota_exceeded": 14}
    assert fleet.one("select gpus_used from tenant_quotas where tenant_id = %s", tenant.id) == 10


@pytest.mark.parametrize(
    ("wanted", "reason"),
    [
        ({"sku": "nothing"}, "unknown_sku"),
        ({"gpus": 3}, "count_not_allowed"),
        ({"gpus": 16}, "no_node_large_enough"),
        ({"region": "us-1"}, "wrong_shape"),
        ({"region": "mars"}, "none_in_region"),
        ({"sku": "b200.slice"}, "none_in_region"),
    ],
)
def test_the_catalogue_refuses_with_a_reason_a_person_can_act_on(
    database_url: str, wanted: dict[str, Any], reason: str
) -> None:
    fleet = Fleet(database_url, slice_nodes=1, metal_nodes=1)
    (result,) = run(database_url, [create_of(fleet.tenant(), **wanted)])
    assert word_of(result) == reason
    assert fleet.one("select count(*) from allocations") == 0
    assert fleet.one("select payload ->> 'reason' from outbox where event_type = 'operation.refused'") == reason


def test_an_image_for_another_shape_is_refused(database_url: str) -> None:
    fleet = Fleet(database_url, slice_nodes=1)
    (result,) = run(database_url, [with_image(create_of(fleet.tenant()), "metal-only")])
    assert word_of(result) == "image_unavailable"


def test_fragments_are_distinguished_from_full(database_url: str) -> None:
    fleet = Fleet(database_url, slice_nodes=2)
    tenant = fleet.tenant()
    # Best fit packs the first two on one node; the third opens the other, whose last 4 are less than the 8 wanted.
    assert {word_of(r) for r in run(database_url, [create_of(tenant, gpus=4) for _ in range(3)])} == {"201"}
    (one,) = run(database_url, [create_of(tenant, gpus=8)])
    assert word_of(one) == "busy_now", "4 are free, 8 were asked for: full"
    fleet.connection.execute("update skus set allowed_counts = '{1,3,4,8}', row_version = row_version + 1")
    assert [word_of(r) for r in run(database_url, [create_of(tenant, gpus=3)])] == ["201"]
    (two,) = run(database_url, [create_of(tenant, gpus=4)])
    assert word_of(two) == "busy_now"


def test_free_gpus_on_several_nodes_are_only_fragments(database_url: str) -> None:
    fleet = Fleet(database_url, slice_nodes=2)
    tenant = fleet.tenant()
    assert {word_of(r) for r in run(database_url, [create_of(tenant, gpus=8), create_of(tenant, gpus=8)])} == {"201"}
    fleet.connection.execute(  # one half of each node comes back
        "with half as (update claims c set units = int8multirange(int8range(n.unit_base, n.unit_base + 4)) from nodes n"
        " where n.id = c.node_id returning c.node_id) select refresh_node_fit(node_id) from half"
    )
    fleet.connection.execute("select refresh_node_fit(id) from nodes")
    (result,) = run(database_url, [create_of(tenant, gpus=8)])
    assert word_of(result) == "only_fragments_left"


def test_a_retry_gets_the_first_answer_and_other_content_is_refused(database_url: str) -> None:
    fleet = Fleet(database_url, slice_nodes=1)
    create = create_of(fleet.tenant(), key="same")
    (first,) = run(database_url, [create])
    (again,) = run(database_url, [create])
    assert isinstance(again, Answer)
    assert again.replayed
    assert body_of(again) == body_of(first)
    (other,) = run(database_url, [fresh_fingerprint(create)])
    assert isinstance(other, OperationConflict)
    assert fleet.one("select count(*) from allocations") == 1


def test_simultaneous_retries_run_once(database_url: str) -> None:
    fleet = Fleet(database_url, slice_nodes=2)
    create = create_of(fleet.tenant(), key="same")
    results = run(database_url, *[[create, create_of(fleet.tenant())] for _ in range(8)])
    assert len({body_of(r)["allocation_id"] for r in results[0::2]}) == 1
    assert fleet.one("select count(*) from allocations where operation_key = 'same'") == 1


def test_a_refusal_is_remembered_as_well(database_url: str) -> None:
    fleet = Fleet(database_url)
    create = create_of(fleet.tenant())
    (first,) = run(database_url, [create])
    fleet.connection.execute(
        "insert into nodes (name, pool_id, region, gpu_model, shape, slot_count, half_slots, unit_base, state, online,"
        " free_mask, fit_class) values ('late', 1, 'eu-1', 'H100', 'gpu_slice', 8, 4, 9000, 'active', true, 255, 260)"
    )
    (again,) = run(database_url, [create])
    assert isinstance(again, Answer)
    assert again.status == 409
    assert body_of(again) == body_of(first)


def test_a_creation_stays_deduplicated_when_its_operation_has_been_retired(database_url: str) -> None:
    fleet = Fleet(database_url, slice_nodes=1)
    create = create_of(fleet.tenant())
    (first,) = run(database_url, [create])
    fleet.connection.execute("delete from operations")
    (again,) = run(database_url, [create])
    assert body_of(again)["allocation_id"] == body_of(first)["allocation_id"]
    assert fleet.one("select count(*) from allocations") == 1


def test_a_node_that_is_only_busy_is_not_reported_full(database_url: str) -> None:
    """SKIP LOCKED passes over a locked node; the second look waits for it (TRAPS)."""
    fleet = Fleet(database_url, slice_nodes=1)
    create = create_of(fleet.tenant())

    async def scene() -> Result:
        async with working(database_url) as (context, catalogue):
            blocker = await psycopg.AsyncConnection.connect(database_url)
            await blocker.execute("select from nodes for no key update")
            creating = asyncio.create_task(create_all(context, catalogue, [create]))
            waits = "select count(*) from pg_stat_activity where wait_event_type = 'Lock' and query like '%place_allocations%'"
            await async_wait_for(lambda: fleet.one(waits) != 0 or creating.done(), "the create to wait for the node")
            assert not creating.done()
            await blocker.rollback()
            await blocker.close()
            return (await creating)[0]

    assert word_of(asyncio.run(scene())) == "201"


def test_nodes_that_are_cordoned_or_silent_get_nothing(database_url: str) -> None:
    fleet = Fleet(database_url, slice_nodes=2)
    fleet.connection.execute("update nodes set state = 'cordoned' where id = (select min(id::text)::uuid from nodes)")
    fleet.connection.execute("update nodes set online = false where state = 'active'")
    (result,) = run(database_url, [create_of(fleet.tenant())])
    assert word_of(result) == "busy_now"


def test_a_suspended_tenant_is_refused(database_url: str) -> None:
    fleet = Fleet(database_url, slice_nodes=1)
    tenant = fleet.tenant()
    fleet.connection.execute("update tenants set state = 'suspended'")
    assert [word_of(r) for r in run(database_url, [create_of(tenant)])] == ["forbidden"]


def test_the_database_refuses_a_second_holder_whatever_the_code_does(database_url: str) -> None:
    fleet = Fleet(database_url, slice_nodes=1)
    run(database_url, [create_of(fleet.tenant(), gpus=8)])
    again = (
        "insert into claims (node_id, tenant_id, owner_kind, owner_id, units, during, occupied, occupied_from, fence)"
        " select node_id, tenant_id, owner_kind, uuidv7(), units, during, {occupied}, now(), 0 from claims"
    )
    for occupied in ("true", "false"):
        with pytest.raises(psycopg.errors.ExclusionViolation):
            fleet.connection.execute(again.format(occupied=occupied))
