"""A machine that runs already becomes an active allocation of its tenant, and nothing is commanded or written on it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from orchestrator.log.events import EventType
from orchestrator.sites.queries import find_adoption
from tests.allocations.seeding import IMAGE, METAL_SKU, PRICE, SLOTS
from tests.sites.adopting.machines import CONNECTION, SERIAL, Adopting, Scene
from tests.support.bmc.resources import UUID as BMC_UUID

EVENTS = "select event_type, payload from outbox where subject = %s order by id"
TIMELINE = """
select kind, to_state, code, actor_kind from allocation_timeline where allocation_id = %s order by id
"""


def test_an_adopted_machine_is_an_active_allocation_of_its_tenant(play: Callable[[Scene], None]) -> None:
    async def scene(rent: Adopting) -> None:
        shown = await rent.adopt(serial=SERIAL)
        row, claim, machine = rent.row, rent.claim, rent.run.machine.service.machine
        assert (machine.power, machine.image, machine.effects, rent.commands()) == ("On", None, [], [])
        assert rent.count("deploy_runs") + rent.count("node_tasks") + rent.count("deploy_systems") == 0
        assert (row["state"], row["guest_state"], row["waits_for"]) == ("active", "running", "tenant")
        assert (row["tenant_id"], row["sku"], row["image"], row["gpus"]) == (
            rent.seeded.tenant_id, METAL_SKU, IMAGE, SLOTS,
        )  # fmt: skip
        assert row["requested_at"] <= row["active_at"], "metering begins at the adoption"
        assert (claim["booked"], claim["occupied"], claim["owner_id"]) == (True, True, rent.allocation)
        assert rent.run.row("select free_mask, state, driver from nodes where id = %s", rent.run.node) == (
            0, "cordoned", "redfish",
        )  # fmt: skip
        assert rent.run.row("select gpus_used from tenant_quotas") == (SLOTS,)
        assert shown["allocation"]["connection"] == CONNECTION
        assert (shown["smbios_uuid"], shown["machine"]["serial"], shown["inspected"]) == (BMC_UUID, SERIAL, False)
        assert {"disks", "host_key", "operating_system", "network_port"} <= set(shown["gaps"])
        assert shown == await find_adoption(rent.run.stage.context.database, rent.run.node)

    play(scene)


def test_timeline_events_and_audit_say_that_it_was_adopted(play: Callable[[Scene], None]) -> None:
    async def scene(rent: Adopting) -> None:
        await rent.adopt()
        connection = rent.run.stage.fleet.connection
        assert connection.execute(TIMELINE, (rent.allocation,)).fetchall() == [
            ("transition", "requested", None, "admin"), ("transition", "provisioning", None, "admin"),
            ("transition", "active", None, "admin"), ("note", None, "adopted", "admin"),
        ]  # fmt: skip
        events = connection.execute(EVENTS, (f"allocations/{rent.allocation}",)).fetchall()
        assert [(kind, payload["adopted"]) for kind, payload in events] == [
            (EventType.PROVISIONING_REQUESTED, True), (EventType.PROVISIONING_ACTIVE, True),
        ]  # fmt: skip
        assert events[1][1]["price_version"] == rent.row["price_version"]
        assert rent.run.row("select price_micro_per_gpu_second from skus where name = %s", METAL_SKU)[0] == PRICE
        assert rent.run.row("select count(*) from outbox where event_type = 'node.cordoned'") == (1,)
        said = rent.run.row("select detail from audit_pending where action = 'node.adopt_machine'")
        assert (said[0]["allocation_id"], said[0]["tenant_id"]) == (str(rent.allocation), str(rent.seeded.tenant_id))

    play(scene)


def test_an_end_that_the_operator_states_is_that_of_its_claim(play: Callable[[Scene], None]) -> None:
    async def scene(rent: Adopting) -> None:
        ends_at = datetime.now(UTC) + timedelta(days=3)
        await rent.adopt(ends_at=ends_at)
        assert rent.row["ends_at"] == ends_at
        assert rent.run.row("select upper(during) from claims where owner_id = %s", rent.allocation) == (ends_at,)

    play(scene)
