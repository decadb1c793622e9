"""A VLAN of a site is leased to one tenant at a time, until its last machine has left it and its quarantine is over."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from berth.local.servers import LocalPostgres
from node_agent.wire.switches import PortFound
from orchestrator.database.transactions import Transaction
from orchestrator.operations.execution import transact
from orchestrator.sites.ports import store
from orchestrator.sites.ports.rules import Place, Port, agrees, isolation_of
from orchestrator.sites.store import bmcs, sites
from tests.databases import copied_database
from tests.deploy_system.stage import MAC
from tests.sites.ports.placed import TENANT_A, TENANT_B, leased, restored, set_segments
from tests.sites.rotations import Rotations, rotations
from tests.support.waiting import pause

FOUND = [PortFound(switch="leaf-1", port="p", driver="scripted", isolation="vlan", segments=[1])]
MACHINES, TENANTS = 3, 3
ALL_FREE = "update tenant_segments set returned_at = clock_timestamp() - interval '1 h', free_at = clock_timestamp()"


class Segments:
    """Machines and tenants of one site, and what its worker and agents do with them."""

    def __init__(self, stage: Rotations, nodes: list[uuid.UUID], tenants: list[uuid.UUID]) -> None:
        self.stage, self.nodes, self.tenants = stage, nodes, tenants

    async def enter(self, machine: int, tenant: int) -> int | None:
        """The ports of the machine are to be in the tenant's segment, and are proven there."""
        node, task = self.nodes[machine], uuid.uuid4()

        async def work(tx: Transaction) -> int | None:
            await sites.lock_site(tx, self.stage.site_id)
            await bmcs.lock_bmc(tx, node)
            await store.want_place(tx, node, self.stage.site_id, Place.TENANT, task)
            vlan = await store.lease_segment(tx, node, self.stage.site_id, self.tenants[tenant])
            if vlan is not None:
                await store.note_proven(tx, node, task, FOUND)
            return vlan

        return await transact(self.stage.worker, work)

    async def leave(
        self, machine: int, proven: bool = True, before_commit: tuple[asyncio.Event, asyncio.Event] | None = None
    ) -> None:
        """They are to be in the provisioning segment, and are proven there, or not. `before_commit`: set, and waited for."""
        node, task = self.nodes[machine], uuid.uuid4()

        async def request(tx: Transaction) -> None:
            await store.want_place(tx, node, self.stage.site_id, Place.PROVISIONING, task)

        async def report(tx: Transaction) -> None:
            await bmcs.lock_bmc(tx, node)
            await (store.note_proven(tx, node, task, FOUND) if proven else store.note_doubt(tx, node, task))
            if before_commit is not None:
                before_commit[0].set()
                await before_commit[1].wait()

        await transact(self.stage.worker, request)
        await transact(self.stage.context, report)

    async def vlans(self) -> dict[int, str]:
        """The tenant of each leased VLAN."""
        return {one["vlan"]: one["tenant_id"] for one in await leased(self.stage)}


@asynccontextmanager
async def segments(
    url: str, vlans: tuple[int, int] = (TENANT_A, TENANT_B), quarantine: int = 600
) -> AsyncIterator[Segments]:
    async with rotations(url) as stage:
        await set_segments(stage, vlans=vlans, quarantine=quarantine)
        nodes = [(await stage.machine()).node_id for _ in range(MACHINES)]
        tenants = [uuid.UUID(str(stage.fleet.tenant().id)) for _ in range(TENANTS)]
        yield Segments(stage, nodes, tenants)


MOVES = st.lists(
    st.one_of(
        st.tuples(st.just("enter"), st.integers(0, MACHINES - 1), st.integers(0, TENANTS - 1)),
        st.tuples(st.just("leave"), st.integers(0, MACHINES - 1), st.booleans()),
        st.tuples(st.just("free"), st.just(0), st.just(0)),
    ),
    max_size=14,
)


@settings(max_examples=25, deadline=None)
@given(moves=MOVES)
def test_a_vlan_has_one_tenant_and_a_tenant_one_vlan(
    postgres_server: LocalPostgres, migrated_template: str, moves: list[tuple[str, int, int]]
) -> None:
    async def scene(url: str) -> None:
        async with segments(url) as made:
            held: dict[int, int] = {}  # the tenant whose segment a machine may carry
            for move, machine, other in moves:
                if move == "free":
                    made.stage.fleet.connection.execute(ALL_FREE + " where returned_at is not null")
                elif move == "leave" and machine in held:
                    await made.leave(machine, bool(other))
                    if other:
                        del held[machine]
                elif move == "enter" and held.get(machine, other) == other:
                    others = set(held.values()) - {other}
                    vlan = await made.enter(machine, other)
                    if vlan is not None:
                        held[machine] = other
                    else:
                        assert other not in held.values()
                        assert len(await made.vlans()) == 2, "refused only if every VLAN is taken"
                    assert others <= set(held.values())
                rows = await leased(made.stage)
                counted = {one["tenant_id"]: one["machines"] for one in rows}
                assert len(counted) == len(rows), "one segment for each tenant"
                for tenant in range(TENANTS):
                    machines = sum(one == tenant for one in held.values())
                    assert counted.get(str(made.tenants[tenant]), 0) == machines
                assert all((one["machines"] > 0) == (one["free_at"] is None) for one in rows)

    with copied_database(postgres_server, migrated_template) as url:
        asyncio.run(scene(url))


def test_a_segment_is_in_quarantine_for_others_and_its_tenants_at_once(database_url: str) -> None:
    async def scene() -> None:
        async with segments(database_url, (TENANT_A, TENANT_A)) as made:
            assert await made.enter(0, 0) == TENANT_A
            assert await made.enter(1, 0) == TENANT_A, "a tenant has one segment for all its machines"
            assert await made.enter(2, 1) is None
            await made.leave(0)
            assert (await leased(made.stage))[0]["free_at"] is None, "another machine is in it"
            await made.leave(1, proven=False)
            assert (await leased(made.stage))[0]["free_at"] is None, "it may be in it"
            await made.leave(1)
            (segment,) = await leased(made.stage)
            assert segment["free_at"] > segment["returned_at"]
            assert await made.enter(2, 1) is None, "its quarantine is not over"
            assert await made.enter(0, 0) == TENANT_A
            await made.leave(0)
            made.stage.fleet.connection.execute(ALL_FREE)
            assert (await set_segments(made.stage, vlans=(TENANT_B, TENANT_B))).status == 200, "its quarantine is over"
            assert await leased(made.stage) == []
            assert (await set_segments(made.stage, vlans=(TENANT_A, TENANT_A))).status == 200
            assert await made.enter(0, 0) == TENANT_A
            await made.leave(0)
            made.stage.fleet.connection.execute(ALL_FREE)
            fence = (await leased(made.stage))[0]["fence"]
            assert await made.enter(2, 1) == TENANT_A
            assert (await leased(made.stage))[0]["fence"] > fence

    asyncio.run(scene())


def test_after_a_restore_no_segment_is_leased_before_every_machine_with_ports_is_known(database_url: str) -> None:
    async def scene() -> None:
        async with segments(database_url) as made:
            sql = made.stage.fleet.connection.execute
            assert await made.enter(0, 0) == TENANT_A
            restored(made.stage, made.nodes[2])
            assert await made.enter(1, 1) == TENANT_B, "the awaited machine has no port"
            await made.leave(1)
            sql("insert into node_ports (node_id, site_id, switch, port, mac, set_by) values (%s, %s, 's', 'p', %s, 'a')",
                (made.nodes[2], made.stage.site_id, MAC))  # fmt: skip
            assert await made.enter(1, 1) is None
            assert await made.enter(1, 0) is None, "another tenant may have got its VLAN in the lost interval"
            sql("delete from awaited_inventories")
            assert await made.enter(1, 0) == TENANT_A

    asyncio.run(scene())


def test_two_tenants_at_once_get_two_segments(database_url: str) -> None:
    async def scene() -> None:
        async with segments(database_url) as made:
            found = await asyncio.gather(made.enter(0, 0), made.enter(1, 1))
            assert set(found) == {TENANT_A, TENANT_B}
            assert len(await made.vlans()) == 2

    asyncio.run(scene())


def test_two_machines_that_leave_at_once_return_their_segment(database_url: str) -> None:
    async def scene() -> None:
        async with segments(database_url) as made:
            await made.enter(0, 0)
            await made.enter(1, 0)
            proven, committed = asyncio.Event(), asyncio.Event()
            first = asyncio.create_task(made.leave(0, before_commit=(proven, committed)))
            await proven.wait()
            second = asyncio.create_task(made.leave(1))
            while not second.done() and not made.stage.fleet.one("select count(*) from pg_locks where not granted"):
                await pause(0.02)
            committed.set()
            await asyncio.gather(first, second)
            (segment,) = await leased(made.stage)
            assert (segment["machines"], segment["free_at"] is not None) == (0, True)

    asyncio.run(scene())


@pytest.mark.parametrize(("kinds", "isolation"), [(["vlan", "vlan"], "vlan"), (["vlan", "none"], "none"), ([], "none")])
def test_the_weakest_port_says_what_separates_a_machine(kinds: list[str], isolation: str) -> None:
    found = [FOUND[0].model_copy(update={"isolation": kind}) for kind in kinds]
    assert isolation_of(found) == isolation
    assert agrees(Port("a", "b", "c"), None) is None
