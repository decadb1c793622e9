"""Adoptions that are refused: each by a stable code, and nothing is changed."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from node_agent.wire.sites import BmcTaskKind
from orchestrator.operations.store.operations import Answer, Operation
from orchestrator.problems import OperationConflict
from orchestrator.sites.commands.adoptions import adopt_machine
from orchestrator.sites.ports.rules import Port
from tests.allocations.driving import ADMIN
from tests.allocations.reconciling import admin_operation
from tests.allocations.seeding import SLICE_SKU, create_allocation
from tests.deploy_system.stage import MAC
from tests.nodes.answers import body_of
from tests.sites.adopting.machines import Adopting, Scene
from tests.sites.ports.placed import PORT, SWITCH, set_ports, set_segments
from tests.sites.renting.tenancy import LOCAL
from tests.sites.running import ADDRESSES
from tests.support.bmc.resources import UUID as BMC_UUID

LEFT = """
select (select array_agg(n::text order by n.id) from nodes n), (select array_agg(c::text order by c.id) from claims c),
       (select count(*) from allocations), (select count(*) from allocation_timeline), (select gpus_used from tenant_quotas),
       (select count(*) from outbox where event_type not like 'operation.%%')
"""
LATER = """
insert into claims (node_id, tenant_id, owner_kind, owner_id, units, during, fence)
select n.id, case when %(kind)s = 'reservation' then t.id end, %(kind)s, %(owner)s,
       int8multirange(int8range(n.unit_base, n.unit_base + 8)),
       tstzrange(clock_timestamp() + interval '1 day', clock_timestamp() + interval '2 days'), nextval('fences')
from nodes n, tenants t
"""
OTHER = str(uuid.UUID(int=7))


def reason_of(answer: Answer) -> tuple[int, str, str | None]:
    """Status, code and reason of a refusal."""
    body = body_of(answer)
    return answer.status, body["code"], body.get("reason") or body.get("state")


async def refused(rent: Adopting, **changes: Any) -> tuple[int, str, str | None]:
    """The refusal of an adoption, which has left everything as it was."""
    before = rent.run.row(LEFT)
    answer = await rent.request(**changes)
    assert rent.run.row(LEFT) == before
    assert rent.commands() == []
    return reason_of(answer)


def sql(rent: Adopting, statement: str) -> None:
    """Change what the scene begins with."""
    rent.run.stage.fleet.connection.execute(statement)


def adoptable(reason: str) -> tuple[int, str, str | None]:
    """The refusal of a machine for this reason."""
    return 409, "machine_not_adoptable", reason


BROKEN: list[tuple[str, str, tuple[int, str, str | None]]] = [
    ("nodes set state = 'retired'", "nodes set state = 'registered'", (409, "invalid_state", "retired")),
    ("nodes set state = 'active'", "nodes set state = 'registered'", (409, "invalid_state", "active")),
    ("nodes set state = 'draining'", "nodes set state = 'registered'", (409, "invalid_state", "draining")),
    ("nodes set enrolled_at = now()", "nodes set enrolled_at = null", adoptable("has_agent")),
    ("nodes set slot_count = 0, half_slots = 0, free_mask = 0",
     "nodes set slot_count = 8, half_slots = 4, free_mask = 255", adoptable("no_slots")),
    ("slots set state = 'out_of_service', reason = 'x'", "slots set state = 'in_service', reason = null",
     adoptable("slots_out_of_service")),
    ("nodes set gpu_model = 'B200'", "nodes set gpu_model = 'H200'", adoptable("sku_does_not_fit")),
    ("skus set state = 'retired'", "skus set state = 'active'", adoptable("sku_does_not_fit")),
    ("skus set allowed_counts = '{4}'", "skus set allowed_counts = '{8}'", adoptable("sku_does_not_fit")),
    ("images set state = 'retired'", "images set state = 'active'", (422, "image_unavailable", None)),
    ("tenants set state = 'suspended'", "tenants set state = 'active'", (409, "invalid_state", "suspended")),
    ("tenants set depleted_at = now()", "tenants set depleted_at = null", (409, "balance_depleted", None)),
    ("tenant_quotas set gpus_limit = 7", "tenant_quotas set gpus_limit = 8", (409, "quota_exceeded", None)),
    ("node_bmcs set silent_because = 'bmc_unreachable'", "node_bmcs set silent_because = null", adoptable("bmc_silent")),
    ("node_bmcs set looked_at = now() - interval '15 min 1 s'", "node_bmcs set looked_at = now()", adoptable("look_outdated")),
    ("node_bmcs set power_state = 'Off'", "node_bmcs set power_state = 'On'", adoptable("machine_off")),
    ("node_bmcs set power_state = 'PoweringOn'", "node_bmcs set power_state = 'On'", adoptable("machine_off")),
    ("node_bmcs set inventory = jsonb_set(inventory, '{uuid}', '\"-\"')",
     f"node_bmcs set inventory = jsonb_set(inventory, '{{uuid}}', '\"{BMC_UUID}\"')", adoptable("machine_unknown")),
]  # fmt: skip
"""What is changed, how it is mended, and the refusal between them."""


def test_a_machine_that_is_not_as_it_must_be_is_refused(play: Callable[[Scene], None]) -> None:
    async def scene(rent: Adopting) -> None:
        assert await refused(rent) == adoptable("not_looked")
        await rent.look()
        sql(rent, "set session_replication_role = replica")  # without triggers: what is judged is the command
        for change, mended, expected in BROKEN:
            sql(rent, f"update {change}")
            assert await refused(rent) == expected, change
            sql(rent, f"update {mended}")
        sql(rent, "set session_replication_role = origin")
        assert (await rent.request()).status == 200

    play(scene)


def test_what_the_operator_states_must_be_right(play: Callable[[Scene], None]) -> None:
    async def scene(rent: Adopting) -> None:
        await rent.look()
        past, far = datetime.now(UTC) - timedelta(seconds=1), datetime.now(UTC) + timedelta(days=4_000)
        stated: list[tuple[dict[str, Any], tuple[int, str, str | None]]] = [
            ({"tenant_id": uuid.UUID(OTHER)}, (404, "not_found", None)),
            ({"sku": "no.such"}, (409, "sku_unavailable", "unknown_sku")),
            ({"sku": SLICE_SKU}, adoptable("sku_does_not_fit")),
            ({"image": "no-such"}, (422, "image_unavailable", None)),
            ({"ssh_key_ids": (uuid.UUID(OTHER),)}, (422, "ssh_key_not_found", None)),
            ({"smbios_uuid": uuid.UUID(OTHER)}, adoptable("other_machine")),
            ({"serial": "another"}, adoptable("other_machine")),
            ({"ends_at": past}, (422, "window_invalid", None)),
            ({"ends_at": far}, (422, "window_invalid", None)),
        ]  # fmt: skip
        for changes, expected in stated:
            assert await refused(rent, **changes) == expected, changes
        assert (await rent.request(smbios_uuid=uuid.UUID(BMC_UUID))).status == 200

    play(scene)


def test_a_machine_that_was_inspected_as_another_one_is_refused(play: Callable[[Scene], None]) -> None:
    async def scene(rent: Adopting) -> None:
        await rent.look()
        rent.run.stage.fleet.connection.execute(
            "insert into node_machines (node_id, smbios_uuid, macs, report, inspected_at) values (%s, %s, '{}', %s, now())",
            (rent.run.node, OTHER, json.dumps({})),
        )
        assert await refused(rent) == adoptable("other_machine")

    play(scene)


def test_a_node_in_use_is_refused(play: Callable[[Scene], None]) -> None:
    async def scene(rent: Adopting) -> None:
        await rent.look()
        sql(rent, "update nodes set state = 'active', online = true")
        create_allocation(rent.url, rent.seeded, shape="baremetal")
        sql(rent, "update nodes set state = 'cordoned', online = false")
        status, code, _ = await refused(rent)
        assert (status, code) == (409, "node_in_use")

    play(scene)


def test_a_machine_with_switch_ports_is_refused_and_gets_none(play: Callable[[Scene], None]) -> None:
    async def scene(rent: Adopting) -> None:
        sql(rent, "update nodes set state = 'cordoned'")
        await rent.look()
        await set_segments(rent.run.stage)
        assert (await set_ports(rent.run, Port(SWITCH, PORT, MAC))).status == 200
        assert await refused(rent) == adoptable("ports_set")
        assert (await set_ports(rent.run)).status == 200
        await rent.adopt()
        assert reason_of(await set_ports(rent.run, Port(SWITCH, PORT, MAC)))[:2] == (409, "node_in_use")
        assert rent.count("node_ports") == 0

    play(scene)


@pytest.mark.parametrize("kind", ["reservation", "maintenance"])
def test_a_later_claim_on_the_node_refuses_it(play: Callable[[Scene], None], kind: str) -> None:
    async def scene(rent: Adopting) -> None:
        await rent.look()
        rent.run.stage.fleet.connection.execute(LATER, {"kind": kind, "owner": uuid.uuid4()})
        status, code, _ = await refused(rent)
        assert (status, code) == (409, "node_in_use")

    play(scene)


@pytest.mark.parametrize("kind", ["look", "inspect"])
def test_while_something_works_on_the_machine_it_is_refused(play: Callable[[Scene], None], kind: str) -> None:
    async def scene(rent: Adopting) -> None:
        await rent.look()
        if kind == "look":
            await rent.run.machine.request(BmcTaskKind.LOOK)
        else:
            await rent.run.request(network=LOCAL)
        before = rent.run.row(LEFT)
        answer = await rent.request()
        assert reason_of(answer) == (409, "invalid_state", "task_open" if kind == "look" else "run_open")
        assert rent.run.row(LEFT) == before

    play(scene)


def test_after_a_restore_the_content_must_be_known_first(play: Callable[[Scene], None]) -> None:
    async def scene(rent: Adopting) -> None:
        await rent.look()
        rent.restore()
        assert await refused(rent) == adoptable("awaited")

    play(scene)


def test_a_repeated_request_has_the_first_answer_and_another_body_is_refused(play: Callable[[Scene], None]) -> None:
    async def scene(rent: Adopting) -> None:
        await rent.look()
        operation = admin_operation()
        first = await rent.request(operation)
        second = await rent.request(operation)
        assert (second.status, second.replayed, body_of(second)) == (200, True, body_of(first))
        other = Operation(operation.scope, operation.key, b"\1" * 32, operation.retention_seconds)
        with pytest.raises(OperationConflict):
            await adopt_machine(rent.run.stage.api, other, ADMIN, rent.run.node, rent.stated(name="b"), ADDRESSES)
        assert rent.count("allocations") == rent.count("claims") == 1

    play(scene)


def test_a_refusal_is_the_answer_of_its_key(play: Callable[[Scene], None]) -> None:
    async def scene(rent: Adopting) -> None:
        operation = admin_operation()
        first = await rent.request(operation)
        await rent.look()
        second = await rent.request(operation)
        assert reason_of(first) == reason_of(second) == adoptable("not_looked")
        assert rent.count("allocations") == 0

    play(scene)
