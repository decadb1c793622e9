"""A rented machine with a port at a switch."""

from __future__ import annotations

import uuid
from typing import Any

from node_agent.switches.contract import Switch
from orchestrator.operations.store.operations import Answer
from orchestrator.sites.ports.commands import put_ports, put_segments, request_move
from orchestrator.sites.ports.queries import find_ports, find_segments
from orchestrator.sites.ports.rules import Port, Verb
from tests.allocations.driving import ADMIN
from tests.allocations.reconciling import admin_operation
from tests.deploy_system.stage import MAC
from tests.sites.renting.tenancy import Renting
from tests.sites.rotations import Rotations
from tests.sites.running import Run

PROVISIONING, TENANT_A, TENANT_B = 100, 1001, 1002
SWITCH, PORT = "leaf-1", "machine"


async def set_segments(
    stage: Rotations,
    provisioning: int = PROVISIONING,
    vlans: tuple[int, int] = (TENANT_A, TENANT_B),
    quarantine: int = 600,
) -> Answer:
    """An operator's request."""
    return await put_segments(
        stage.api, admin_operation(), ADMIN, stage.site_id, provisioning, vlans, quarantine
    )  # fmt: skip


async def set_ports(run: Run, *ports: Port) -> Answer:
    """The same, while the node is cordoned."""
    return await put_ports(run.stage.api, admin_operation(), ADMIN, run.node, ports)


async def move(run: Run, verb: Verb) -> Answer:
    """The same."""
    return await request_move(run.stage.api, admin_operation(), ADMIN, run.node, verb)


async def shown(run: Run) -> dict[str, Any]:
    """The ports of the machine."""
    return await find_ports(run.stage.context.database, run.node)


async def leased(stage: Rotations) -> list[dict[str, Any]]:
    """The leased segments of the site."""
    found = await find_segments(stage.context.database, stage.site_id)
    rows: list[dict[str, Any]] = found["leased"]
    return rows


async def connect(run: Run, switch: Switch, port: str = PORT, mac: str = MAC) -> None:
    """The machine has one port, at this switch, and is in the state that it was in before."""
    run.stage.switches[SWITCH] = switch
    state = run.row("select state from nodes where id = %s", run.node)[0]
    run.stage.fleet.connection.execute("update nodes set state = 'cordoned' where id = %s", (run.node,))
    assert (await set_segments(run.stage)).status == 200
    answer = await set_ports(run, Port(SWITCH, port, mac))
    assert answer.status == 200, answer
    run.stage.fleet.connection.execute("update nodes set state = %s where id = %s", (state, run.node))


def restored(stage: Rotations, node: uuid.UUID) -> None:
    """Since a restore it is not known what this machine has, and which segment it carries."""
    sql = stage.fleet.connection.execute
    epoch = sql(
        "insert into restores (written_by, leader_id, head_version, without_export) values ('w', 'l', 0, 'none')"
        " returning epoch"
    ).fetchone()
    assert epoch is not None
    sql("insert into awaited_inventories (node_id, epoch) values (%s, %s)", (node, *epoch))
    sql("update restores set closed_at = clock_timestamp()")


async def steps_of(rent: Renting, last: str | None = None) -> list[str]:
    """Do what can be done until the run ends, waits for its deploy system, or is at the step `last`; each step, in order."""
    steps: list[str] = []
    while True:
        if await rent.run.advance() is not None:
            now = await rent.run.shown()
            if not steps or steps[-1] != now["step"]:
                steps.append(now["step"])
            if now["step"] == last:
                return steps
            continue
        if not rent.run.row("select count(*) from bmc_tasks where node_id = %s and ended_at is null", rent.run.node)[0]:
            return steps
        await rent.run.perform()


async def release(rent: Renting) -> list[str]:
    """The tenant releases, and the machine is wiped; the steps."""
    await rent.release()
    await rent.clean_up()
    steps = await steps_of(rent)
    await rent.wipe()
    steps += await steps_of(rent)
    await rent.cleaned_up()
    return steps


def is_claimed(rent: Renting) -> bool:
    """Whether the units of the allocation are still occupied."""
    return rent.claim["closed_at"] is None


def vlan_of(run: Run) -> uuid.UUID | int | None:
    """The tenant's VLAN that the machine's ports may carry."""
    row = run.row("select tenant_vlan from node_segments where node_id = %s", run.node)
    found: int | None = None if row is None else row[0]
    return found
